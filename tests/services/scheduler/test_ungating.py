"""Queue admission gating on an API server: what the scheduler writes, and what happens if it cannot (queues:17.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from pykai.api import names
from pykai.kube import resources
from pykai.kube.errors import ConnectionLost
from pykai.scheduler.service import Scheduler
from tests.services.scheduler.schedulercluster import SchedulerCluster, refusal, scheduler_cluster

POD = r"/pods/[^/]+$"
GATE = "kai.scheduler/queue-admission"
ADMITTED = "kai.scheduler/queue-admitted-timestamp"
ON = {"queue_admission_gating": "true"}


def behind(*gates: str) -> dict[str, Any]:
    return {"schedulingGates": [{"name": gate} for gate in gates]}


@asynccontextmanager
async def gated_cluster(*, limit: float = 1, speed: float = 1.0) -> AsyncIterator[SchedulerCluster]:
    """A node with four GPUs, and a queue that gates."""
    async with scheduler_cluster(speed=speed) as lab:
        await lab.node("a", gpus=4)
        await lab.queue("gated", parent="department", limit=limit, admissionGating=True)
        yield lab


async def job(lab: SchedulerCluster, name: str, *, pods: int = 1, gates: tuple[str, ...] = (GATE,), **how: Any) -> None:
    await lab.gang(name, pods=pods, queue=how.pop("queue", "gated"), gpu=1, **behind(*gates), **how)


def gates_of(lab: SchedulerCluster, pod: str) -> list[str]:
    found = lab.pods.get(f"default/{pod}")
    return [gate.name for gate in found.spec.scheduling_gates] if found is not None else []


def admitted(lab: SchedulerCluster, pod: str) -> str:
    found = lab.pods.get(f"default/{pod}")
    return found.metadata.annotations.get(ADMITTED, "") if found is not None else ""


def reasons(lab: SchedulerCluster, group: str) -> list[str]:
    """Reasons of the scheduling condition of a PodGroup."""
    found = lab.groups.get(f"default/{group}")
    conditions = found.status.scheduling_conditions if found is not None else []
    return [reason.reason for condition in conditions for reason in condition.reasons]


async def until_refused(lab: SchedulerCluster, group: str, reason: str) -> None:
    await lab.groups.wait_until(lambda _: reasons(lab, group) == [reason], 10)


def sample(scheduler: Scheduler, name: str, **labels: str) -> float | None:
    return scheduler.metrics.registry.get_sample_value(f"kai_{name}", labels)


async def test_work_over_the_limit_waits_behind_its_gate_until_there_is_quota() -> None:
    """queues:Q-406, Q-409: from the gate to the node, and no condition that an autoscaler acts on."""
    labels = {"queue_name": "gated", "queue_metadata_name": "gated"}
    async with gated_cluster() as lab, lab.scheduler(**ON) as scheduler:
        await job(lab, "first")
        await lab.until_bound("first", 1)
        assert await lab.wait_for_event("Admitted", "first-0") == "Pod default/first-0 was admitted to queue gated"
        assert admitted(lab, "first-0")
        await job(lab, "second")
        await until_refused(lab, "second", "OverLimit")
        assert lab.condition("second-0")[:2] == ("False", "SchedulingGated")
        assert gates_of(lab, "second-0") == [GATE]
        await scheduler.loop.cycle()
        assert sample(scheduler, "queue_admission_gated_pods", **labels) == 1
        await lab.client.delete(resources.PODS, "first-0", "default", grace_s=0)
        await lab.until_bound("second", 1)
        await lab.groups.wait_until(lambda _: not reasons(lab, "second"), 10)
        assert not lab.event_messages("Unschedulable", "second-0")
        await scheduler.loop.cycle()
        assert sample(scheduler, "queue_admission_gated_pods", **labels) is None
        assert sample(scheduler, "queue_admission_ungated_pods_total") == 2


async def test_gate_and_time_are_one_patch_by_uid_that_leaves_other_gates_alone() -> None:
    async with gated_cluster() as lab:
        await job(lab, "job")
        async with lab.scheduler(**ON):
            await lab.until_bound("job", 1)
        (patch,) = lab.faults.written("PATCH", POD)
        found = lab.pods.get("default/job-0")
        assert found is not None
        assert msgspec.json.decode(patch.body or b"") == {
            "metadata": {"uid": found.metadata.uid, "annotations": {ADMITTED: admitted(lab, "job-0")}},
            "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]},
        }


async def test_a_pod_that_gets_no_node_after_its_admission_becomes_unschedulable() -> None:
    """queues:Q-409: that is the signal of an autoscaler; the condition of its group is replaced."""
    async with gated_cluster(limit=8) as lab:
        await job(lab, "big", pods=6)
        async with lab.scheduler(**ON):
            await lab.pods.wait_until(lambda _: lab.condition("big-0")[1] == "Unschedulable", 10)
            await until_refused(lab, "big", "PodSchedulingErrors")
        assert not any(gates_of(lab, f"big-{index}") for index in range(6))


@pytest.mark.parametrize("flags", [{}, {"queue_admission_gating": "false"}])
async def test_with_the_feature_off_gates_are_opened(flags: dict[str, str]) -> None:
    """queues:Q-407: those found at the start, and those that come later; no admission is recorded."""
    async with gated_cluster(limit=0) as lab:
        await lab.queue("free", parent="department")
        await job(lab, "early", queue="free")
        await job(lab, "over")
        async with lab.scheduler(**flags):
            await lab.until_bound("early", 1)
            await job(lab, "late", queue="free")
            await lab.until_bound("late", 1)
            await lab.pods.wait_until(lambda _: lab.condition("over-0")[1] == "Unschedulable", 10)
        assert not any(admitted(lab, pod) for pod in ("early-0", "late-0", "over-0"))
        assert not lab.event_messages("Admitted")


async def test_a_queue_that_does_not_gate_opens_the_gates_of_its_pods() -> None:
    async with gated_cluster() as lab, lab.scheduler(**ON):
        await job(lab, "job", queue="team")
        await lab.until_bound("job", 1)
        assert not admitted(lab, "job-0")


async def test_a_queue_that_stops_gating_lets_its_pods_go() -> None:
    async with gated_cluster() as lab, lab.scheduler(**ON):
        await job(lab, "job", pods=2)
        await until_refused(lab, "job", "OverLimit")
        unlimited = {"spec": {"admissionGating": False, "resources": {"gpu": {"limit": -1}}}}
        await lab.client.patch(resources.QUEUES, "gated", unlimited)
        await lab.until_bound("job", 2)


async def test_without_its_queue_a_pod_stays_gated_with_a_reason_of_its_own() -> None:
    """queues:Q-408"""
    async with gated_cluster() as lab, lab.scheduler(**ON):
        await job(lab, "job", pods=2)
        await until_refused(lab, "job", "OverLimit")
        await lab.client.delete(resources.QUEUES, "gated")
        await until_refused(lab, "job", "QueueDoesNotExist")
        assert gates_of(lab, "job-0") == [GATE]
        assert lab.condition("job-0")[1] == "SchedulingGated"


async def test_gates_of_others_stay() -> None:
    async with gated_cluster(limit=4) as lab, lab.scheduler(**ON):
        await job(lab, "both", gates=(GATE, "example.com/later"))
        await job(lab, "job")
        await lab.until_bound("job", 1)
        assert gates_of(lab, "both-0") == [GATE, "example.com/later"]
        await lab.client.patch(resources.PODS, "both-0", {"spec": behind(GATE)}, "default")
        await lab.until_bound("both", 1)


@pytest.mark.parametrize("answer", [refusal(500, "InternalError"), refusal(409, "Conflict"), refusal(403, "Forbidden")])
async def test_a_patch_that_fails_is_repeated(answer: Any) -> None:
    async with gated_cluster() as lab:
        lab.faults.refuse("PATCH", POD, answer, times=1)
        await job(lab, "job")
        async with lab.scheduler(**ON):
            await lab.until_bound("job", 1)
        assert len(lab.faults.written("PATCH", POD)) == 2


TOO_LONG = refusal(422, "Invalid", "metadata.annotations: Too long: must have at most 262144 bytes")


async def test_a_pod_whose_patch_is_forbidden_again_and_again_pauses() -> None:
    async with gated_cluster() as lab:
        lab.faults.refuse("PATCH", r"/pods/full-0$", refusal(403, "Forbidden", "not here"))
        await job(lab, "full")
        async with lab.scheduler(**ON):
            assert await lab.wait_for_event("AdmissionRefused", "full-0") == (
                "The API server refuses to remove the gate of pod default/full-0; next attempt in 5 s: not here"
            )
            await job(lab, "next")
            await lab.until_bound("next", 1)
        assert len(lab.faults.written("PATCH", r"/pods/full-0$")) == 3


async def test_a_pod_whose_patch_is_invalid_pauses_and_holds_no_quota() -> None:
    """It has no space for the annotation: others get the quota, and it is not written again and again."""
    async with gated_cluster() as lab:
        lab.faults.refuse("PATCH", r"/pods/full-0$", TOO_LONG)
        await job(lab, "full")
        async with lab.scheduler(**ON) as scheduler:
            assert await lab.wait_for_event("AdmissionRefused", "full-0") == (
                "The API server refuses to remove the gate of pod default/full-0; next attempt in 5 s: "
                "metadata.annotations: Too long: must have at most 262144 bytes"
            )
            await job(lab, "next")
            await lab.until_bound("next", 1)
            await scheduler.dispatcher.drain()
            assert len(scheduler.intake.admissions) == 0
        found = lab.pods.get("default/full-0")
        assert found is not None
        assert gates_of(lab, "full-0") == [GATE]
        # A scheduler that stopped leaves no pause behind.
        assert not scheduler.intake.admissions.resume("default/full-0", found.metadata.uid)


async def test_after_its_pause_a_refused_pod_is_admitted_again() -> None:
    """Every pause is longer than the last."""
    async with gated_cluster(speed=50) as lab:
        lab.faults.refuse("PATCH", r"/pods/full-0$", TOO_LONG, times=2)
        await job(lab, "full")
        async with lab.scheduler(**ON):
            await lab.until_bound("full", 1)
            await lab.events.wait_until(lambda _: len(lab.event_messages("AdmissionRefused")) == 2, 10)
        found = sorted(lab.event_messages("AdmissionRefused"))
        assert [text.partition(": ")[0].rpartition("attempt ")[2] for text in found] == ["in 10 s", "in 5 s"]
        assert len(lab.faults.written("PATCH", r"/pods/full-0$")) == 3


async def test_a_patch_whose_answer_is_lost_is_repeated_without_harm() -> None:
    async with gated_cluster() as lab:
        lab.faults.lose("PATCH", POD, ConnectionLost("gone"), carried_out=True)
        await job(lab, "job")
        async with lab.scheduler(**ON):
            await lab.until_bound("job", 1)
            await lab.wait_for_event("Admitted", "job-0")
        assert admitted(lab, "job-0")


async def test_a_pod_that_is_deleted_meanwhile_is_forgotten() -> None:
    """Its reservation goes with it."""
    async with gated_cluster() as lab:

        async def delete_first(request: Any) -> None:
            if request.method == "PATCH" and request.path.endswith("/pods/job-0"):
                lab.faults.on_write = None
                await lab.client.delete(resources.PODS, "job-0", "default", grace_s=0)

        lab.faults.on_write = delete_first
        await job(lab, "job")
        async with lab.scheduler(**ON) as scheduler:
            await lab.pods.wait_until(lambda _: "default/job-0" not in lab.pods, 10)
            await job(lab, "next")
            await lab.until_bound("next", 1)
            await scheduler.dispatcher.drain()
            assert len(scheduler.intake.admissions) == 0
        assert not lab.event_messages("Admitted", "job-0")


async def test_another_pod_of_the_name_keeps_its_gate() -> None:
    async with gated_cluster() as lab:

        async def replace_first(request: Any) -> None:
            if request.method == "PATCH" and request.path.endswith("/pods/job-0"):
                lab.faults.on_write = None
                await lab.client.delete(resources.PODS, "job-0", "default", grace_s=0)
                await lab.client.patch(resources.QUEUES, "gated", {"spec": {"resources": {"gpu": {"limit": 0}}}})
                await lab.pod("job-0", "job", gpu=1, **behind(GATE))

        lab.faults.on_write = replace_first
        await job(lab, "job")
        async with lab.scheduler(**ON) as scheduler:
            await until_refused(lab, "job", "OverLimit")
            await scheduler.dispatcher.drain()
            assert gates_of(lab, "job-0") == [GATE]
            assert not admitted(lab, "job-0")


async def test_the_next_leader_completes_what_was_begun() -> None:
    """queues:Q-408: a gang of which one gate is gone, and another that would take the quota."""
    async with gated_cluster(limit=3) as lab:
        await job(lab, "rival", pods=2)
        await job(lab, "half", pods=3)
        begun = {"metadata": {"annotations": {ADMITTED: await now(lab)}}, "spec": {"schedulingGates": None}}
        await lab.client.patch(resources.PODS, "half-0", begun, "default")
        async with lab.scheduler(**ON):
            await lab.until_bound("half", 3)
            await until_refused(lab, "rival", "OverLimit")


async def now(lab: SchedulerCluster) -> str:
    found = await lab.client.get_raw(resources.PODS, "half-0", "default")
    return str(found["metadata"]["creationTimestamp"])


async def test_a_shadow_removes_no_gate() -> None:
    async with gated_cluster() as lab:
        await job(lab, "job")
        async with lab.scheduler(shadow="true", **ON) as scheduler:
            async with asyncio.timeout(30):
                while not sample(scheduler, "shadow_decisions_total", kind="ungate"):
                    await scheduler.loop.cycle()
                    await asyncio.sleep(0)
            for _ in range(3):
                await scheduler.loop.cycle()
            assert sample(scheduler, "shadow_decisions_total", kind="ungate") == 1
        assert gates_of(lab, "job-0") == [GATE]


def test_names() -> None:
    assert (names.ADMISSION_GATE, names.ADMITTED_TIMESTAMP_ANNOTATION) == (GATE, ADMITTED)
