"""Owners that can be suspended: the field that does it for each kind, and the objects for which it must not be used.

The pod grouper shows the field in its table of kinds; the scheduler suspends evicted workloads by it (suspend:owner).

Writing the field is of use only where its controller obeys it.  One that was told to leave an object alone
(`managedBy`) does not, and KubeRay ends a RayJob for good that may not be suspended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykai.api import names
from pykai.api.unstructured import JsonMapping

_SUSPEND: Final = ("spec", "suspend")
_RUN_POLICY: Final = ("spec", "runPolicy", "suspend")
_MANAGED_BY: Final = "managedBy"
_RAY_JOB: Final = ("ray.io", "RayJob")

#: API group and kind -> the field, as names from the top
SUSPEND_PATHS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("batch", "Job"): _SUSPEND,
    ("jobset.x-k8s.io", "JobSet"): _SUSPEND,
    ("kubeflow.org", "JAXJob"): _RUN_POLICY,
    ("kubeflow.org", "MPIJob"): _RUN_POLICY,
    ("kubeflow.org", "PyTorchJob"): _RUN_POLICY,
    ("kubeflow.org", "TFJob"): _RUN_POLICY,
    ("kubeflow.org", "XGBoostJob"): _RUN_POLICY,
    _RAY_JOB: _SUSPEND,
    ("trainer.kubeflow.org", "TrainJob"): _SUSPEND,
}

#: Kinds between a pod and such an owner that are never suspended themselves.
PASSED_KINDS: Final = frozenset((("ray.io", "RayCluster"),))

#: API group -> what `managedBy` may say beside nothing: the controllers that obey the field
_CONTROLLERS: Final[Mapping[str, tuple[str, ...]]] = {
    "batch": ("kubernetes.io/job-controller",),
    "jobset.x-k8s.io": ("jobset.sigs.k8s.io/jobset-controller",),
    "kubeflow.org": ("kubeflow.org/training-operator", "kubeflow.org/mpi-operator"),
    "ray.io": ("ray.io/kuberay-operator",),
    "trainer.kubeflow.org": ("trainer.kubeflow.org/trainjob-controller",),
}


def is_suspended(group: str, kind: str, content: JsonMapping) -> bool:
    """Whether an owner is suspended."""
    return _value(content, *SUSPEND_PATHS[group, kind]) is True


def foreign_manager(group: str, content: JsonMapping) -> str:
    """The program that runs an owner, or suspends and resumes it, in place of its own controller; "" if none does.

    Kueue does so where a label or an owner says it, others where `managedBy` does (suspend:kueue, suspend:obeyed).
    """
    meta = content.get("metadata") or {}
    if names.KUEUE_QUEUE_LABEL in (meta.get("labels") or {}):
        return "Kueue"
    owners = [str(each.get("apiVersion", "")) for each in meta.get("ownerReferences") or ()]
    if any(each.startswith(f"{names.KUEUE_GROUP}/") for each in owners):
        return "Kueue"
    managers = (_value(content, "spec", _MANAGED_BY), _value(content, "spec", "runPolicy", _MANAGED_BY))
    return next((str(each) for each in managers if each and each not in _CONTROLLERS[group]), "")


def why_not_suspendable(group: str, kind: str, content: JsonMapping) -> str:
    """Why an owner would not come back from being suspended; "" if it does (suspend:obeyed)."""
    if (group, kind) != _RAY_JOB:
        return ""
    if _value(content, "spec", "shutdownAfterJobFinishes") is not True:
        return "KubeRay fails a suspended RayJob without spec.shutdownAfterJobFinishes: true"
    if _value(content, "spec", "clusterSelector"):
        return "KubeRay fails a suspended RayJob with a spec.clusterSelector"
    return ""


def _value(content: JsonMapping, *path: str) -> Any:
    """What is at a path; None where nothing is, or where a tenant wrote something else than an object on the way."""
    found: Any = content
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
