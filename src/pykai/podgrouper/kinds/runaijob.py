"""RunaiJobs: the pods of one index of the job are a group (workloads:WK-RJ).

Subtle: older releases made one group for the job, or one for each of its pods; an existing one is kept.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import field

from pykai.api.core import Pod
from pykai.api.meta import Int64, Wire
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import GroupingSettings, Metadata, Owner, Readers
from pykai.podgrouper.ownerspec import read_owner


class _RunaiJobSpec(Wire):
    parallelism: Int64 = 1


class _RunaiJob(Wire):
    spec: _RunaiJobSpec = field(default_factory=_RunaiJobSpec)


def group_runai_job(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group of the pods whose names differ in the last number only."""
    metadata = default_metadata(top, pod, (), settings, readers)
    uid = top.metadata.uid
    if settings.search_legacy_groups:
        parallel = read_owner(_RunaiJob, top).spec.parallelism > 1
        legacy = f"pg-{pod.metadata.name if parallel else top.metadata.name}-{uid}"
        if readers.pod_group(pod.metadata.namespace, legacy) is not None:
            return replace(metadata, name=legacy)
    shared = pod.metadata.name.rpartition("-")[0] or pod.metadata.name
    return replace(metadata, name=f"pg-{shared}-{uid}")
