"""Which changes of objects matter to the engine.

Most watch events bring heartbeats, conditions and our own patches.  These comparisons filter them out, so that they do
not start a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pykai.api import names
from pykai.api.core import ConfigMap, Pod
from pykai.api.disruption import PodDisruptionBudget
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import PodGroup, Queue

_TIMESTAMP_ANNOTATIONS = (
    names.STALE_TIMESTAMP_ANNOTATION,
    names.LAST_START_TIMESTAMP_ANNOTATION,
    names.LAST_EVICTION_TIMESTAMP_ANNOTATION,
)


def _same_meta(old: ObjectMeta, new: ObjectMeta) -> bool:
    return (
        old.labels == new.labels
        and old.annotations == new.annotations
        and old.uid == new.uid
        and old.deletion_timestamp == new.deletion_timestamp
        and old.owner_references == new.owner_references
    )


def differs(old: Any, new: Any) -> bool:
    """Whether anything but the resource version changed."""
    return not _same_meta(old.metadata, new.metadata) or any(
        getattr(old, name) != getattr(new, name) for name in type(new).__struct_fields__ if name != "metadata"
    )


def pod_differs(old: Pod, new: Pod) -> bool:
    """Whether the engine could see a difference between two versions of a pod.

    Conditions are not compared.  The engine reads one, EvictedFor: it is written right before a pod is deleted, and the
    deletion is a difference.
    """
    was, now = old.status, new.status
    return (
        was.phase != now.phase
        or was.nominated_node_name != now.nominated_node_name
        or was.resource_claim_statuses != now.resource_claim_statuses
        or was.extended_resource_claim_status != now.extended_resource_claim_status
        or not _same_meta(old.metadata, new.metadata)
        or old.spec != new.spec
    )


def group_differs(old: PodGroup, new: PodGroup) -> bool:
    """The same for PodGroups: the spec, labels, our timestamps, and conditions where a failed attempt is final."""
    if old is new:
        return False
    was, now = old.metadata, new.metadata
    if was.uid != now.uid or was.labels != now.labels or old.spec != new.spec:
        return True
    if any(was.annotations.get(key) != now.annotations.get(key) for key in _TIMESTAMP_ANNOTATIONS):
        return True
    retries_forever = new.spec.scheduling_backoff in (None, names.BACKOFF_NONE)
    return not retries_forever and old.status.scheduling_conditions != new.status.scheduling_conditions


def queue_differs(old: Queue, new: Queue) -> bool:
    """The same for queues, whose status the engine does not read."""
    return old.spec != new.spec or not _same_meta(old.metadata, new.metadata)


def budget_differs(old: PodDisruptionBudget, new: PodDisruptionBudget) -> bool:
    """The same for disruption budgets; how many pods are healthy counts only through what is allowed."""
    was, now = old.status, new.status
    return (
        old.spec != new.spec
        or was.disruptions_allowed != now.disruptions_allowed
        or was.desired_healthy != now.desired_healthy
        or was.observed_generation != now.observed_generation
    )


def is_record(item: object) -> bool:
    """Whether this is a record of a scheduler for its successor: no pod mounts it, and every gang brings one."""
    return isinstance(item, ConfigMap) and names.RECORD_LABEL in item.metadata.labels


def _never_differs(_: object, __: object) -> bool:
    return False


#: kind -> whether two versions differ for the engine; the others by anything but the resource version
CHANGE_FILTERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "ConfigMap": _never_differs,
    "PodDisruptionBudget": budget_differs,
    "Queue": queue_differs,
}
