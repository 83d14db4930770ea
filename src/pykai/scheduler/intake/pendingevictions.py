"""The pods that this scheduler evicts, and for which PodGroup, until they are gone.

A victim may take ten minutes to terminate.  Meanwhile the engine must know the group it makes room for, or that group
would be charged for it and evict another (ADR 20).  The engine reads that from a condition of the pod. The role `edit`
cannot write it: it is part of the status.

    decision --> laid over the pod at once --(long grace period) Deletions--> written on the pod before it is deleted

The condition is written only on pods with a grace period longer than the threshold for stuck pods.  The next leader
need not know the others, because they will be gone soon.  Until a pod is gone, the condition is added to it, so a
snapshot file contains it as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Condition, Pod
from pykai.api.keys import object_key
from pykai.core.report.decisions import Evict
from pykai.scheduler.intake.assumptions import Assumption, AssumptionEvent, AssumptionKind, AssumptionState

_SECOND = 1_000_000_000


def preemptor_reference(eviction: Evict) -> str:
    """The PodGroup that gets the place of a victim as namespace/name/uid, "" for none."""
    return f"{eviction.preemptor}/{eviction.preemptor_uid}" if eviction.preemptor_uid else ""


def outlasts_stuck_threshold(pod: Pod, stuck_after_ns: int) -> bool:
    """Whether a pod may terminate later than the threshold for stuck pods."""
    return (pod.spec.termination_grace_period_seconds or 0) * _SECOND > stuck_after_ns


@dataclass(slots=True)
class PendingEviction(Assumption):
    """A pod that is evicted and not gone yet."""

    kind = AssumptionKind.EVICTION
    uid: str
    #: names the group for which the pod is evicted
    condition: Condition


#: The pod counts as terminating although its object does not show it.
_UNSEEN = (AssumptionState.DECIDED, AssumptionState.WRITTEN)


class PendingEvictions:
    """Pods that are evicted and not gone yet."""

    def __init__(self) -> None:
        self._evictions: dict[str, PendingEviction] = {}

    def add(self, key: str, uid: str, preemptor: str) -> None:
        """A pod is evicted for a group (namespace/name/uid), or for none."""
        before = self._evictions.get(key)
        if before is not None:
            before.advance(AssumptionEvent.DECIDED_AGAIN)
        condition = Condition(
            type=names.CONDITION_EVICTED_FOR, status="True", reason=names.CONDITION_REASON_PREEMPTION, message=preemptor
        )
        self._evictions[key] = PendingEviction(key, AssumptionState.DECIDED, uid, condition)

    def advance(self, key: str, uid: str, event: AssumptionEvent) -> bool:
        """Apply an event to the eviction of this very pod; whether that ended it."""
        eviction = self._evictions.get(key)
        if eviction is None or eviction.uid != uid or not eviction.advance(event):
            return False
        del self._evictions[key]
        return True

    def on_pod_change(self, key: str, pod: Pod | None) -> None:
        """Handle a change of a pod, None if it is deleted."""
        eviction = self._evictions.get(key)
        if eviction is None:
            return
        if pod is None or pod.metadata.uid != eviction.uid:
            self.advance(key, eviction.uid, AssumptionEvent.OBJECT_GONE)
        elif pod.metadata.deletion_timestamp is not None:
            self.advance(key, eviction.uid, AssumptionEvent.OBSERVED)

    def is_unseen(self, key: str, uid: str | None = None) -> bool:
        """Whether we evict this very pod (None: any pod of the name) and its object does not show it."""
        eviction = self._evictions.get(key)
        return eviction is not None and uid in (None, eviction.uid) and eviction.state in _UNSEEN

    def unseen(self) -> list[str]:
        """Keys of the pods that count as terminating although their objects do not show it."""
        return [key for key, eviction in self._evictions.items() if eviction.state in _UNSEEN]

    def preemptor_of(self, key: str, uid: str) -> str:
        """The group for which a pod is evicted."""
        eviction = self._evictions.get(key)
        return eviction.condition.message if eviction is not None and eviction.uid == uid else ""

    def with_condition(self, pod: Pod) -> Pod:
        """The pod with its condition added; nearly always the pod itself."""
        if not self._evictions:
            return pod
        meta, status = pod.metadata, pod.status
        eviction = self._evictions.get(object_key(meta.namespace, meta.name))
        if eviction is None or eviction.uid != meta.uid:
            return pod
        others = tuple(each for each in status.conditions if each.type != names.CONDITION_EVICTED_FOR)
        return replace(pod, status=replace(status, conditions=(*others, eviction.condition)))
