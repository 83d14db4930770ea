"""Pods that were admitted to their queue, until the watch shows them without its gate (queues:Q-406).

    decision --> laid over the pod at once --> Ungating writes it --> the watch shows it

Meanwhile the tables have the pod with the time of its admission and another gate in place of its queue's: it holds a
reservation and is not decided on again, but it is not placed either, since no API server binds a gated pod.

A pod whose patch the server calls invalid pauses: the tables have a gate that counts as foreign, so that the pod holds
no reservation and is not decided on until the pause ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Pod, SchedulingGate
from pykai.api.keys import object_key
from pykai.core.model.gates import OPENING_GATE, REFUSED_GATE
from pykai.scheduler.intake.assumptions import Assumption, AssumptionEvent, AssumptionKind, AssumptionState


@dataclass(slots=True)
class PendingAdmission(Assumption):
    """A gate that is being removed."""

    kind = AssumptionKind.ADMISSION
    uid: str
    #: when it was admitted (RFC 3339), "" = nothing gates it any more
    admitted: str


@dataclass(slots=True)
class RefusedAdmission:
    """A gate that the server does not remove."""

    uid: str
    failures: int = 0
    pausing: bool = True


class PendingAdmissions:
    """Gates that are being removed, and those whose removal pauses."""

    def __init__(self) -> None:
        self._admissions: dict[str, PendingAdmission] = {}
        self._refused: dict[str, RefusedAdmission] = {}

    def __len__(self) -> int:
        return len(self._admissions)

    def add(self, key: str, uid: str, admitted: str) -> None:
        """The gate of a pod is removed; `admitted` is the time to write on it."""
        self._admissions[key] = PendingAdmission(key, AssumptionState.DECIDED, uid, admitted)

    def advance(self, key: str, uid: str, event: AssumptionEvent) -> bool:
        """Apply an event to the admission of this very pod; whether that ended it."""
        admission = self._admissions.get(key)
        if admission is None or admission.uid != uid or not admission.advance(event):
            return False
        del self._admissions[key]
        return True

    def pause(self, key: str, uid: str) -> int:
        """Decide nothing about a pod until `resume`; returns how often its patch was refused."""
        refused = self._refused.get(key)
        if refused is None or refused.uid != uid:
            refused = self._refused[key] = RefusedAdmission(uid)
        refused.pausing = True
        refused.failures += 1
        return refused.failures

    def resume(self, key: str, uid: str) -> bool:
        """End the pause of this very pod; whether it paused."""
        refused = self._refused.get(key)
        if refused is None or refused.uid != uid or not refused.pausing:
            return False
        refused.pausing = False
        return True

    def on_pod_change(self, key: str, pod: Pod | None) -> None:
        """Handle a change of a pod, None if it is deleted."""
        refused = self._refused.get(key)
        if refused is not None and (pod is None or pod.metadata.uid != refused.uid or not has_queue_gate(pod)):
            del self._refused[key]
        admission = self._admissions.get(key)
        if admission is None:
            return
        if pod is None or pod.metadata.uid != admission.uid:
            self.advance(key, admission.uid, AssumptionEvent.OBJECT_GONE)
        elif not has_queue_gate(pod):
            self.advance(key, admission.uid, AssumptionEvent.OBSERVED)

    def with_opening(self, pod: Pod) -> Pod:
        """The pod as the tables have it; nearly always the pod itself."""
        if not self._admissions and not self._refused:
            return pod
        meta = pod.metadata
        key = object_key(meta.namespace, meta.name)
        refused = self._refused.get(key)
        if refused is not None and refused.pausing and refused.uid == meta.uid:
            return _with_gate(pod, REFUSED_GATE)
        admission = self._admissions.get(key)
        if admission is None or admission.uid != meta.uid or not has_queue_gate(pod):
            return pod
        if admission.admitted:
            annotations = {**meta.annotations, names.ADMITTED_TIMESTAMP_ANNOTATION: admission.admitted}
            pod = replace(pod, metadata=replace(meta, annotations=annotations))
        return _with_gate(pod, OPENING_GATE)


def _with_gate(pod: Pod, name: str) -> Pod:
    """The pod with another gate in place of its queue's."""
    gates = tuple(
        SchedulingGate(name=name) if gate.name == names.ADMISSION_GATE else gate for gate in pod.spec.scheduling_gates
    )
    return replace(pod, spec=replace(pod.spec, scheduling_gates=gates))


def has_queue_gate(pod: Pod) -> bool:
    """Whether the gate of its queue holds a pod, alone or with others."""
    return any(gate.name == names.ADMISSION_GATE for gate in pod.spec.scheduling_gates)
