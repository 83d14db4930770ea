"""Start times of PodGroups that are later than those of their pods.

`kai.scheduler/last-start-timestamp` protects a group from eviction for a minimum run time (queues:Q-300).  A tenant
that may write the PodGroup may write the annotation, and would be protected for any length of time.  The kubelet's
record is better: tenants cannot write `status.startTime` of pods.  The effective start is the earlier of the annotation
and the moment at which the minimum of the group was running (ADR 21).  An event on the PodGroup says when its
annotation is not used.

    PodGroup, and pods that start or stop --sanitise--> the PodGroup with its effective start

A group has its timestamp before its pods start, so an honest annotation is not later than any of their starts, and is
left alone.  Pods that are being deleted or have ended do not count: the remains of an earlier run do not age a new one.
While pods of a group run on, its start does not become later again, whatever happens to its minimum or its pods.  If
fewer pods than the minimum have a start time, the first of those counts; if none has, the annotation stays as it is.

Cheap: an honest annotation is compared with one start time per pod event.  All pods of a group are read when its
annotation changes, and while it is later than a start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.scheduling import PodGroup
from pykai.api.timestamp import TimestampError, format_timestamp, parse_timestamp
from pykai.core.model.groups import Branch, Leaf, build_subgroup_tree
from pykai.core.model.problems import Problem
from pykai.core.model.tasks import has_ended
from pykai.kube.store import Change

_START = names.LAST_START_TIMESTAMP_ANNOTATION
#: Clocks of nodes and of the scheduler may differ by this much without an event.
CLOCK_SKEW_NS = 60_000_000_000


def _instant(text: str | None) -> int | None:
    try:
        return parse_timestamp(text) if text else None
    except TimestampError:
        return None


def started_ns(pod: Pod) -> int | None:
    """When a running pod was started, None if its status does not say."""
    if pod.metadata.deletion_timestamp is not None or has_ended(pod):
        return None
    return _instant(pod.status.start_time)


def starts_by_subgroup(pods: Collection[Pod]) -> dict[str, list[int]]:
    """Subgroup -> start times of its running pods, in order."""
    starts: dict[str, list[int]] = {}
    for pod in pods:
        start = started_ns(pod)
        if start is not None:
            subgroup = pod.metadata.labels.get(names.SUBGROUP_LABEL) or names.DEFAULT_SUBGROUP
            starts.setdefault(subgroup, []).append(start)
    for subgroup_starts in starts.values():
        subgroup_starts.sort()
    return starts


def minimum_running_since_ns(group: PodGroup, starts: dict[str, list[int]]) -> int | None:
    """When the minimum of a group was running, not before its first pod; None while it is not."""
    reached = _minimum_reached_ns(build_subgroup_tree(group)[0], starts)
    return None if reached is None else max(reached, _earliest_start_ns(starts))


def _earliest_start_ns(starts: dict[str, list[int]]) -> int:
    return min(found[0] for found in starts.values())


def _minimum_reached_ns(node: Branch | Leaf, starts: dict[str, list[int]]) -> int | None:
    """When enough pods below a node were running, None while they are not; 0 = none is needed."""
    if isinstance(node, Leaf):
        subgroup_starts = starts.get(node.name, [])
        return None if len(subgroup_starts) < node.minimum else subgroup_starts[node.minimum - 1] if node.minimum else 0
    below = sorted(
        reached_ns for child in node.children if (reached_ns := _minimum_reached_ns(child, starts)) is not None
    )
    return None if len(below) < node.min_children else below[node.min_children - 1] if node.min_children else 0


class StartTimeSanitiser:
    """Compares the start times of PodGroups with those of their pods."""

    def __init__(self, pods_of: Callable[[str], Collection[Pod]]) -> None:
        self._pods_of = pods_of
        #: group -> the start in its annotation
        self._annotated_ns: dict[str, int] = {}
        #: group -> its effective start
        self._effective_ns: dict[str, int] = {}
        #: groups whose annotation is later than the start of one of their pods
        self._too_late: set[str] = set()

    def sanitise(self, group: PodGroup) -> tuple[PodGroup, tuple[Problem, ...]]:
        """The group with its effective start, and what is wrong with the annotation; nearly always the group itself."""
        meta = group.metadata
        text = meta.annotations.get(_START)
        key = object_key(meta.namespace, meta.name)
        annotated_ns = _instant(text)
        if annotated_ns is None:
            self._annotated_ns.pop(key, None)
            self._too_late.discard(key)
            return group, ()
        if annotated_ns == self._annotated_ns.get(key) and key not in self._too_late:
            return group, ()
        self._annotated_ns[key] = annotated_ns
        starts = starts_by_subgroup(self._pods_of(key))
        if not starts or annotated_ns <= _earliest_start_ns(starts):
            self._too_late.discard(key)
            self._effective_ns[key] = annotated_ns
            return group, ()
        self._too_late.add(key)
        minimum_since_ns = minimum_running_since_ns(group, starts)
        effective_ns = min(
            annotated_ns,
            _earliest_start_ns(starts) if minimum_since_ns is None else minimum_since_ns,
            self._effective_ns.get(key, annotated_ns),
        )
        if minimum_since_ns is not None:
            self._effective_ns[key] = effective_ns
        if effective_ns == annotated_ns:
            return group, ()
        effective = format_timestamp(effective_ns)
        sanitised = replace(group, metadata=replace(meta, annotations={**meta.annotations, _START: effective}))
        if annotated_ns - effective_ns <= CLOCK_SKEW_NS:
            return sanitised, ()
        why = f"{text} is later than the start of its pods; {effective} is used instead"
        return sanitised, (Problem(f"PodGroup/{key}", f"metadata.annotations[{_START}]", why),)

    def forget(self, key: str) -> None:
        """Forget a deleted group."""
        self._annotated_ns.pop(key, None)
        self._effective_ns.pop(key, None)
        self._too_late.discard(key)

    def affected_group(self, change: Change[Pod]) -> str | None:
        """The group to check again because of a pod that started, stopped or is gone; nearly always None."""
        if not self._annotated_ns:
            return None
        before = started_ns(change.old) if change.old is not None else None
        after = started_ns(change.new) if change.new is not None else None
        if before == after:
            return None
        pod = change.new or change.old
        name = pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION) if pod is not None else None
        if pod is None or not name:
            return None
        key = object_key(pod.metadata.namespace, name)
        annotated_ns = self._annotated_ns.get(key)
        if annotated_ns is not None and after is not None and after < annotated_ns:
            self._too_late.add(key)
        return key if key in self._too_late else None
