"""LeaderWorkerSets: each replica, a leader with its workers, is a group (workloads:WK-LWS)."""

from __future__ import annotations

from dataclasses import replace

from pykai.api import names
from pykai.api.core import Pod
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import GroupingSettings, Metadata, Owner, Readers
from pykai.podgrouper.ownerspec import checked_minimum, parse_int32
from pykai.podgrouper.segments import leader_worker_subgroups


def group_leader_worker_set(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group of the replica that the pod belongs to."""
    metadata = default_metadata(top, pod, (), settings, readers)
    parts = leader_worker_subgroups(top.document(), pod)
    index = parse_int32(pod.metadata.labels.get(names.LWS_GROUP_INDEX_LABEL, ""))
    return replace(
        metadata,
        name=metadata.name if index is None else f"{metadata.name}-group-{index}",
        min_available=checked_minimum(top, "spec.leaderWorkerTemplate.size", parts.min_member),
        sub_groups=parts.sub_groups,
        pod_sub_group=parts.pod_sub_group,
        problems=(*metadata.problems, *parts.problems),
    )
