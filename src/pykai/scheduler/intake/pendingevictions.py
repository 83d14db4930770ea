"""Whom this scheduler evicts, and for which PodGroup, until the pods have gone.

A victim may take ten minutes to leave.  Meanwhile the engine must know that it leaves for the sake of a certain group,
or that group would be charged for it and evict another (ADR 20).  The engine reads that from a condition of the pod.
The role `edit` cannot write it: it is part of the status.

    decision --note--> laid over the pod at once --(where it takes long) Removals--> written on the pod before it goes

The condition is written only on pods with a grace period longer than the threshold for stuck pods.  For the others the
next leader needs to know nothing, because they will have gone soon.  Until a pod has gone, what was noted is laid over
it, so a snapshot file holds it as well.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Condition, Pod
from pykai.core.report.decisions import Evict

_SECOND = 1_000_000_000


def preemptor_reference(eviction: Evict) -> str:
    """The PodGroup that gets the place of a victim as namespace/name/uid, "" for none."""
    return f"{eviction.preemptor}/{eviction.preemptor_uid}" if eviction.preemptor_uid else ""


def outlasts_stuck_threshold(pod: Pod, stuck_after_ns: int) -> bool:
    """Whether a pod may leave later than others are called stuck."""
    return (pod.spec.termination_grace_period_seconds or 0) * _SECOND > stuck_after_ns


class _EvictionNote(NamedTuple):
    uid: str
    condition: Condition


class PendingEvictions:
    """Pods that are evicted and have not gone."""

    def __init__(self) -> None:
        self._notes: dict[str, _EvictionNote] = {}

    def add(self, key: str, uid: str, preemptor: str) -> None:
        """A pod is evicted for a group (namespace/name/uid), or for none."""
        condition = Condition(
            type=names.CONDITION_EVICTED_FOR, status="True", reason=names.CONDITION_REASON_PREEMPTION, message=preemptor
        )
        self._notes[key] = _EvictionNote(uid, condition)

    def forget(self, key: str) -> bool:
        """A pod has gone, or stays after all; whether anything was noted about it."""
        return self._notes.pop(key, None) is not None

    def preemptor_of(self, key: str, uid: str) -> str:
        """For which group a pod is evicted, as noted."""
        note = self._notes.get(key)
        return note.condition.message if note is not None and note.uid == uid else ""

    def with_condition(self, pod: Pod) -> Pod:
        """The pod with what is noted about it; nearly always the pod itself."""
        if not self._notes:
            return pod
        meta, status = pod.metadata, pod.status
        note = self._notes.get(f"{meta.namespace}/{meta.name}")
        if note is None or note.uid != meta.uid:
            return pod
        others = tuple(each for each in status.conditions if each.type != names.CONDITION_EVICTED_FOR)
        return replace(pod, status=replace(status, conditions=(*others, note.condition)))
