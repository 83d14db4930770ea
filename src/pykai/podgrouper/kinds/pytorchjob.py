"""PyTorchJobs: master and workers are subgroups, the workers divided into segments on request (workloads:WK-PT).

Subtle: a worker's own annotation sets the size of segments where the template sets none.  Then the master does not know
it, and takes the workers' subgroups from the group as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pykai.api.core import Pod
from pykai.api.scheduling import SubGroup
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.kinds.kubeflow import check_roles
from pykai.podgrouper.kubeflowjob import KubeflowJob
from pykai.podgrouper.metadata import GroupingSettings, Metadata, Owner, Readers
from pykai.podgrouper.ownerspec import checked_minimum, read_owner
from pykai.podgrouper.segments import pytorch_subgroups

_ROLES: Final = "spec.pytorchReplicaSpecs"
_WORKER: Final = "worker"


def group_pytorch_job(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group of a PyTorchJob."""
    job = read_owner(KubeflowJob, top)
    roles = job.spec.pytorch_replica_specs
    if job.spec.min_available is None or not roles:
        check_roles(top, roles, _ROLES)
    parts = pytorch_subgroups(top.document(), pod)
    metadata = default_metadata(top, pod, (), settings, readers)
    sub_groups = parts.sub_groups
    if not parts.pod_sub_group.startswith(_WORKER):
        sub_groups = _with_divided_workers(sub_groups, metadata, readers)
    return replace(
        metadata,
        min_available=checked_minimum(top, _ROLES, parts.min_member),
        sub_groups=sub_groups,
        pod_sub_group=parts.pod_sub_group,
        problems=(*metadata.problems, *parts.problems),
    )


def _with_divided_workers(
    sub_groups: tuple[SubGroup, ...], metadata: Metadata, readers: Readers
) -> tuple[SubGroup, ...]:
    """The subgroups as they are for workers that set the size of their segments themselves."""
    if any(each.parent for each in sub_groups):
        return sub_groups
    existing = readers.pod_group(metadata.namespace, metadata.name)
    divided = existing.spec.sub_groups if existing is not None else ()
    return tuple(divided) if any(each.parent == _WORKER for each in divided) else sub_groups
