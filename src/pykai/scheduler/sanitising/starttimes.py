"""Start times of PodGroups that say they started later than their pods did.

`kai.scheduler/last-start-timestamp` protects a group from eviction for a minimum run time (queues:Q-300).  A tenant who
may write the PodGroup may write the annotation, and would be protected for any length of time.  The kubelet's record is
better: tenants cannot write `status.startTime` of pods.  The effective start is the earlier of the annotation and the
moment at which the minimum of the group was running (ADR 21).  An event on the PodGroup says when its annotation is not
used.

    PodGroup, and pods as they start or go --believable--> the PodGroup with the start that counts

A group is stamped before any of its pods starts, so an honest annotation is not later than any of their starts, and is
left alone.  Pods that are being deleted or have ended do not count: the remains of an earlier run do not age a new one.
While pods of a group run on, its start does not become later again, whatever is done to its minimum or its pods.  Where
fewer pods than the minimum tell their start, the first of those that do is taken; where none does, the annotation
stays as it is.

Cheap: an honest annotation is compared with one start time per pod event.  All pods of a group are looked at when its
annotation changes, and while it is later than a start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.scheduling import PodGroup
from pykai.api.timestamp import TimestampError, format_timestamp, parse_timestamp
from pykai.core.model.groups import Branch, Leaf, build_subgroup_tree
from pykai.core.model.problems import Problem
from pykai.core.model.tasks import has_ended
from pykai.kube.store import Change

_START = names.LAST_START_TIMESTAMP_ANNOTATION
#: Clocks of nodes and of the scheduler may differ by so much without an event.
SKEW_NS = 60_000_000_000


def _instant(text: str | None) -> int | None:
    try:
        return parse_timestamp(text) if text else None
    except TimestampError:
        return None


def started_ns(pod: Pod) -> int | None:
    """When a pod that runs on was started, None where its status does not say."""
    if pod.metadata.deletion_timestamp is not None or has_ended(pod):
        return None
    return _instant(pod.status.start_time)


def starts_of(pods: Collection[Pod]) -> dict[str, list[int]]:
    """Subgroup -> when its pods that run on were started, in order."""
    starts: dict[str, list[int]] = {}
    for pod in pods:
        start = started_ns(pod)
        if start is not None:
            subgroup = pod.metadata.labels.get(names.SUBGROUP_LABEL) or names.DEFAULT_SUBGROUP
            starts.setdefault(subgroup, []).append(start)
    for found in starts.values():
        found.sort()
    return starts


def minimum_ns(group: PodGroup, starts: dict[str, list[int]]) -> int | None:
    """When the minimum of a group was running, at the earliest when its first pod was; None while it is not."""
    reached = _reached(build_subgroup_tree(group)[0], starts)
    return None if reached is None else max(reached, _first(starts))


def _first(starts: dict[str, list[int]]) -> int:
    return min(found[0] for found in starts.values())


def _reached(node: Branch | Leaf, starts: dict[str, list[int]]) -> int | None:
    """When enough pods below a node were running, None while they are not; 0 = none is needed."""
    if isinstance(node, Leaf):
        found = starts.get(node.name, [])
        return None if len(found) < node.minimum else found[node.minimum - 1] if node.minimum else 0
    below = sorted(moment for child in node.children if (moment := _reached(child, starts)) is not None)
    return None if len(below) < node.min_children else below[node.min_children - 1] if node.min_children else 0


class StartTimes:
    """Judges the start times of PodGroups by those of their pods."""

    def __init__(self, pods_of: Callable[[str], Collection[Pod]]) -> None:
        self._pods_of = pods_of
        #: group -> the start it says
        self._said: dict[str, int] = {}
        #: group -> the start that counts
        self._counts: dict[str, int] = {}
        #: groups that say a later start than one of their pods has
        self._suspect: set[str] = set()

    def believable(self, group: PodGroup) -> tuple[PodGroup, tuple[Problem, ...]]:
        """The group with the start that counts, and what is wrong with the one it says; nearly always itself."""
        meta = group.metadata
        text = meta.annotations.get(_START)
        key = f"{meta.namespace}/{meta.name}"
        said = _instant(text)
        if said is None:
            self._said.pop(key, None)
            self._suspect.discard(key)
            return group, ()
        if said == self._said.get(key) and key not in self._suspect:
            return group, ()
        self._said[key] = said
        starts = starts_of(self._pods_of(key))
        if not starts or said <= _first(starts):
            self._suspect.discard(key)
            self._counts[key] = said
            return group, ()
        self._suspect.add(key)
        begun = minimum_ns(group, starts)
        counts = min(said, _first(starts) if begun is None else begun, self._counts.get(key, said))
        if begun is not None:
            self._counts[key] = counts
        if counts == said:
            return group, ()
        used = format_timestamp(counts)
        seen = replace(group, metadata=replace(meta, annotations={**meta.annotations, _START: used}))
        if said - counts <= SKEW_NS:
            return seen, ()
        why = f"{text} is later than the start of its pods; {used} is used instead"
        return seen, (Problem(f"PodGroup/{key}", f"metadata.annotations[{_START}]", why),)

    def forget(self, key: str) -> None:
        """A group is gone."""
        self._said.pop(key, None)
        self._counts.pop(key, None)
        self._suspect.discard(key)

    def concerned(self, change: Change[Pod]) -> str | None:
        """The group to be judged again because of a pod that started, stopped or went; None for nearly all changes."""
        if not self._said:
            return None
        before = started_ns(change.old) if change.old is not None else None
        after = started_ns(change.new) if change.new is not None else None
        if before == after:
            return None
        pod = change.new or change.old
        name = pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION) if pod is not None else None
        if pod is None or not name:
            return None
        key = f"{pod.metadata.namespace}/{name}"
        said = self._said.get(key)
        if said is not None and after is not None and after < said:
            self._suspect.add(key)
        return key if key in self._suspect else None
