"""A pod whose gate the server does not remove pauses, and only that pod (queues:Q-406)."""

from __future__ import annotations

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Pod, PodSpec, SchedulingGate
from pykai.api.meta import ObjectMeta
from pykai.core.model.gates import REFUSED_GATE, Gate, read_gate
from pykai.scheduler.intake.pendingadmissions import PendingAdmissions

KEY = "default/job-0"
GATED = Pod(
    metadata=ObjectMeta(name="job-0", namespace="default", uid="1"),
    spec=PodSpec(scheduling_gates=(SchedulingGate(name=names.ADMISSION_GATE),)),
)
ANOTHER = replace(GATED, metadata=replace(GATED.metadata, uid="2"))


def gates(admissions: PendingAdmissions, pod: Pod) -> list[str]:
    return [gate.name for gate in admissions.with_opening(pod).spec.scheduling_gates]


def test_a_pod_that_pauses_is_behind_a_gate_of_which_no_action_decides() -> None:
    admissions = PendingAdmissions()
    admissions.pause(KEY, "1")
    assert gates(admissions, GATED) == [REFUSED_GATE]
    assert read_gate(admissions.with_opening(GATED).spec.scheduling_gates) is Gate.FOREIGN
    assert gates(admissions, ANOTHER) == [names.ADMISSION_GATE]
    assert not admissions.resume(KEY, "2")
    assert admissions.resume(KEY, "1")
    assert not admissions.resume(KEY, "1")
    assert gates(admissions, GATED) == [names.ADMISSION_GATE]


def test_failures_add_up_until_the_pod_goes_or_its_gate_does() -> None:
    admissions = PendingAdmissions()
    ungated = replace(GATED, spec=PodSpec())
    for change in (None, ANOTHER, ungated):
        assert admissions.pause(KEY, "1") == 1
        admissions.resume(KEY, "1")
        admissions.on_pod_change(KEY, GATED)
        assert admissions.pause(KEY, "1") == 2
        admissions.on_pod_change(KEY, change)
        assert not admissions.resume(KEY, "1")
