"""Assumed states of pods that their objects do not show: evicted, or held back."""

from __future__ import annotations

from pykai.api.core import Pod
from pykai.core.model.status import TaskStatus
from pykai.kube.store import Store
from pykai.scheduler.intake.assumptions import AssumptionEvent
from pykai.scheduler.intake.operationqueue import OperationQueue
from pykai.scheduler.intake.operations import AssumeStatus
from pykai.scheduler.intake.pendingevictions import PendingEvictions
from pykai.scheduler.intake.podintake import PodIntake


class StatusAssumptions:
    """Assumptions about the state of pods.  Lives on the event loop."""

    def __init__(
        self, pods: Store[Pod], pod_intake: PodIntake, evictions: PendingEvictions, queue: OperationQueue
    ) -> None:
        self._pods = pods
        self._pod_intake = pod_intake
        self._evictions = evictions
        self._queue = queue
        #: keys of the pods that are held back; a dict is an ordered set
        self._gated: dict[str, None] = {}

    def assume_eviction(self, key: str, uid: str, preemptor: str = "") -> None:
        """Assume an eviction: the pod counts as terminating, for a PodGroup (namespace/name/uid)."""
        pod = self._pods.get(key)
        if pod is not None and pod.metadata.uid == uid:
            self._evictions.add(key, uid, preemptor)
            self._queue.add_quietly(AssumeStatus(key, TaskStatus.RELEASING))
            self._pod_intake.apply_quietly(pod)

    def eviction_written(self, key: str, uid: str) -> None:
        """The server has accepted the deletion of a pod."""
        if self._evictions.is_unseen(key, uid):
            self._evictions.advance(key, uid, AssumptionEvent.ACCEPTED)

    def operations(self) -> list[AssumeStatus]:
        """All assumptions, for new tables: pods held back, then those we evict and have not seen terminating."""
        gated = [AssumeStatus(key, TaskStatus.GATED) for key in self._gated]
        return gated + [AssumeStatus(key, TaskStatus.RELEASING) for key in self._evictions.unseen()]

    def preemptor_of(self, key: str, uid: str) -> str:
        """The group for which we evict a pod."""
        return self._evictions.preemptor_of(key, uid)

    def assume_gated(self, key: str) -> None:
        """Keep a waiting pod out of the cycles for a while, as if it were gated."""
        self._gated[key] = None
        self._queue.add(AssumeStatus(key, TaskStatus.GATED))

    def release_gated(self, key: str) -> None:
        """Let a pod that was kept out of the cycles take part again."""
        if key in self._gated:
            del self._gated[key]
            self._queue.add(AssumeStatus(key, TaskStatus.RELEASING if self._evictions.is_unseen(key) else None))

    def give_up_eviction(self, key: str, uid: str, event: AssumptionEvent = AssumptionEvent.TAKEN_BACK) -> None:
        """Drop the eviction of a pod; another pod of its name is left alone."""
        if self._evictions.advance(key, uid, event):
            self._queue.add(AssumeStatus(key, TaskStatus.GATED if key in self._gated else None))
            if (pod := self._pods.get(key)) is not None:
                self._pod_intake.apply(pod)
