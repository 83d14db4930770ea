"""TFJobs, XGBoostJobs, JAXJobs and MPIJobs: all pods of the job start together (workloads:WK-KF); and Notebooks.

A minimum in the run policy goes before the sum of the replicas, unchecked against it, as in KAI.  Absent `replicas`
mean 1, as the operator takes them; KAI refuses such a job.

Subtle: the launcher of an MPIJob may be created only when the workers are ready.  Until it exists, the group must not
wait for it (workloads:WK-MPI).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from pykai.api import names
from pykai.api.core import Pod
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.kubeflowjob import KubeflowJob, KubeflowJobSpec, ReplicaSpec
from pykai.podgrouper.metadata import Grouper, GroupingError, GroupingSettings, Metadata, Owner, Readers
from pykai.podgrouper.ownerspec import checked_minimum, describe_owner, read_owner

_LAUNCHER: Final = "launcher"
_DELAYED_LAUNCHER: Final = "WaitForWorkersReady"


def _whole_job(roles_of: Callable[[KubeflowJobSpec], Mapping[str, ReplicaSpec]], path: str, *required: str) -> Grouper:
    """A grouper of jobs whose pods all start together."""

    def group(
        top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
    ) -> Metadata:
        job = read_owner(KubeflowJob, top)
        minimum = minimum_pods(top, job, roles_of(job.spec), path, *required)
        return replace(default_metadata(top, pod, (), settings, readers), min_available=minimum)

    return group


group_tf_job: Final = _whole_job(lambda spec: spec.tf_replica_specs, "spec.tfReplicaSpecs")
group_xgboost_job: Final = _whole_job(lambda spec: spec.xgb_replica_specs, "spec.xgbReplicaSpecs", "Master", "Worker")
group_jax_job: Final = _whole_job(lambda spec: spec.jax_replica_specs, "spec.jaxReplicaSpecs", "Worker")


def group_mpi_job(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group of an MPIJob, of both versions."""
    job = read_owner(KubeflowJob, top)
    roles = job.spec.mpi_replica_specs
    minimum = minimum_pods(top, job, roles, "spec.mpiReplicaSpecs", "Launcher", "Worker")
    if job.spec.launcher_creation_policy == _DELAYED_LAUNCHER and not _has_launcher(top, pod, readers):
        minimum = max(0, minimum - (roles["Launcher"].count if "Launcher" in roles else 0))
    return replace(default_metadata(top, pod, (), settings, readers), min_available=minimum)


def _has_launcher(job: Owner, pod: Pod, readers: Readers) -> bool:
    labels = {names.KUBEFLOW_JOB_NAME_LABEL: job.metadata.name, names.KUBEFLOW_ROLE_LABEL: _LAUNCHER}
    return any(each.metadata.deletion_timestamp is None for each in readers.pods(pod.metadata.namespace, labels))


def group_notebook(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group of a Notebook, which people work in."""
    return default_metadata(top, pod, (), settings, readers, priority_class=names.PRIORITY_CLASS_BUILD)


def minimum_pods(owner: Owner, job: KubeflowJob, roles: Mapping[str, ReplicaSpec], path: str, *required: str) -> int:
    """How many pods of a job must start together; raises `GroupingError` for a job that cannot run."""
    declared = job.spec.min_available
    if declared is not None:
        return checked_minimum(owner, "spec.runPolicy.schedulingPolicy.minAvailable", declared)
    check_roles(owner, roles, path, *required)
    return checked_minimum(owner, path, sum(role.count for role in roles.values()))


def check_roles(owner: Owner, roles: Mapping[str, ReplicaSpec], path: str, *required: str) -> None:
    """Refuse a job without roles, without a required one, or with one that has no pods, in KAI's words."""
    if not roles:
        raise _refusal(owner, path, f"doesn't have a {path.rpartition('.')[2]} field")
    for name in required:
        if name not in roles:
            raise _refusal(owner, path, f"doesn't have a {name} replica spec which is required")
    for name, role in roles.items():
        if not role.count:
            raise _refusal(owner, f"{path}.{name}.replicas", f"doesn't allow for 0 {name} pods")


def _refusal(owner: Owner, path: str, reason: str) -> GroupingError:
    text = f"the type of the job {owner.metadata.name} {reason}. Please fix the replica field"
    return GroupingError(f"{describe_owner(owner)}: {path}: {text}")
