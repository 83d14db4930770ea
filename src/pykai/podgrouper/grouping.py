"""The decisions of the pod grouper about one pod, without I/O: is it ours to group, and which PodGroup is it to have?

The service and the recorded cases (`dev.groupingcases`) go through these functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.scheduling import MOST_SUBGROUPS
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata, Owner, Readers
from pykai.podgrouper.origins import is_in_origin_group, with_origin
from pykai.podgrouper.ownerspec import describe_owner

_FINISHED: Final = frozenset(("Succeeded", "Failed"))


def needs_grouping(pod: Pod, scheduler_name: str, settings: GroupingSettings | None = None) -> bool:
    """Whether there may be something to do for the pod; every check that needs no owner.

    With `settings`, a pod without owners follows the group of another API that it is in.

    Statements: workloads:EX-1, EX-2.
    """
    annotations = pod.metadata.annotations
    if pod.spec.scheduler_name != scheduler_name:
        return False
    if annotations.get(names.SKIP_POD_GROUPER_ANNOTATION) == "true":
        return False
    if names.POD_GROUP_ANNOTATION not in annotations:
        return True
    # A pod without owners is grouped once; one that has ended stays where it was.
    if pod.status.phase in _FINISHED:
        return False
    return bool(pod.metadata.owner_references) or (settings is not None and is_in_origin_group(pod, settings))


def opts_out(owners: Iterable[Owner]) -> bool:
    """Whether an owner leaves its pods to others; known only after the climb (workloads:EX-3)."""
    return any(owner.metadata.annotations.get(names.SKIP_POD_GROUPER_ANNOTATION) == "true" for owner in owners)


def pod_metadata(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The result of the top owner's grouper, with the node pool added, changed by the group of another API."""
    meta = readers.grouper(top.group_version_kind)(top, pod, owners, settings, readers)
    pool_label = settings.node_pool_label
    pool = pod.metadata.labels.get(pool_label) if pool_label else None
    if pool is not None and pool_label not in meta.labels:
        meta = replace(meta, labels={**meta.labels, pool_label: pool})
    meta = with_origin(meta, top, pod, settings, readers)
    _check_limits(meta, top, readers)
    return meta


def _check_limits(meta: Metadata, top: Owner, readers: Readers) -> None:
    """Refuse a group that no PodGroup can be, with a better text than that of the server (kinds:limits)."""
    # An existing group may be larger, from before there was a limit, and stays as it is.
    if len(meta.sub_groups) > MOST_SUBGROUPS and readers.pod_group(meta.namespace, meta.name) is None:
        raise GroupingError(
            f"{describe_owner(top)}: it needs {len(meta.sub_groups)} subgroups, and a PodGroup has at most "
            f"{MOST_SUBGROUPS}; use larger segments or fewer replicas"
        )
