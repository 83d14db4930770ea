"""Owners that can be suspended: the field that does it, for each kind.

The pod grouper shows it in its table of kinds; the scheduler suspends evicted workloads by it (suspend:owner).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SUSPEND: Final = ("spec", "suspend")
_RUN_POLICY: Final = ("spec", "runPolicy", "suspend")

#: API group and kind -> the field, as names from the top
SUSPEND_PATHS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("batch", "Job"): _SUSPEND,
    ("jobset.x-k8s.io", "JobSet"): _SUSPEND,
    ("kubeflow.org", "JAXJob"): _RUN_POLICY,
    ("kubeflow.org", "MPIJob"): _RUN_POLICY,
    ("kubeflow.org", "PyTorchJob"): _RUN_POLICY,
    ("kubeflow.org", "TFJob"): _RUN_POLICY,
    ("kubeflow.org", "XGBoostJob"): _RUN_POLICY,
    ("ray.io", "RayJob"): _SUSPEND,
    ("trainer.kubeflow.org", "TrainJob"): _SUSPEND,
}

#: Kinds between a pod and such an owner that have no field of their own.
PASSED_KINDS: Final = frozenset((("ray.io", "RayCluster"),))
