"""Suspended workloads of a queue that gates: gates are opened for the room that is held (suspend:gates)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pykai.api import names
from pykai.kube.resources import JOBS, PODS
from pykai.scheduler.service import Scheduler
from tests.services.scheduler.schedulercluster import refusal
from tests.services.scheduler.suspendcluster import SuspendCluster, suspend_cluster
from tests.services.scheduler.test_suspend_races import HeldWrite

ON = {"queue_admission_gating": "true"}
GATED: dict[str, Any] = {"schedulingGates": [{"name": names.ADMISSION_GATE}]}
POD = r"/pods/train-[^/]+$"


@asynccontextmanager
async def gated_cluster(*, limit: float = 4, **how: Any) -> AsyncIterator[SuspendCluster]:
    """The Job is in a queue that gates; the limit is what it needs, or more."""
    async with suspend_cluster(queue={"limit": limit, "admissionGating": True}, **how) as lab:
        yield lab


async def resumed(lab: SuspendCluster) -> None:
    """Suspend the Job, then let it be resumed."""
    await lab.suspend()
    await lab.go_away()
    await lab.until_suspended(suspended=False)


def gated(lab: SuspendCluster) -> list[str]:
    """The pods of the Job behind a gate."""
    found = (lab.cluster.pods.get(f"default/{name}") for name in lab.pods())
    return [pod.metadata.name for pod in found if pod is not None and pod.spec.scheduling_gates]


async def until_no_record(lab: SuspendCluster) -> None:
    await lab.cluster.maps.wait_until(lambda _: not lab.records(), 10)


async def some_cycles(scheduler: Scheduler) -> None:
    for _ in range(5):
        await scheduler.loop.cycle()


@pytest.mark.parametrize("limit", [4, 100])
async def test_pods_that_come_back_are_admitted_and_bound(limit: float) -> None:
    """At the limit, and far below it."""
    async with gated_cluster(limit=limit) as lab, lab.cluster.scheduler(**ON):
        await resumed(lab)
        first, second = await lab.create_pods(**GATED)
        await lab.cluster.until_bound("train", 2)
        for name in (first, second):
            assert await lab.cluster.wait_for_event("Admitted", name) == (
                f"Pod default/{name} was admitted to queue rich"
            )
            pod = lab.cluster.pods.get(f"default/{name}")
            assert pod is not None
            assert pod.metadata.annotations[names.ADMITTED_TIMESTAMP_ANNOTATION]
        await until_no_record(lab)


async def test_pods_that_come_back_and_their_room_are_charged_once() -> None:
    """Six GPUs are four of the Job and two of another; eight are not."""
    async with gated_cluster(limit=6) as lab, lab.cluster.scheduler(**ON) as scheduler:
        await resumed(lab)
        opening = HeldWrite(lab, "PATCH", "/pods/train-")
        await lab.create_pods(**GATED)
        await opening.wait()
        await lab.cluster.gang("beside", pods=1, queue="rich", gpu=2, **GATED)
        await lab.cluster.wait_for_event("Admitted", "beside-0")
        await lab.cluster.gang("over", pods=1, queue="rich", gpu=1, **GATED)
        await some_cycles(scheduler)
        assert not lab.cluster.event_messages("Admitted", "over-0")
        opening.let_go()
        await lab.cluster.until_bound("train", 2)
        await some_cycles(scheduler)
        assert not lab.cluster.event_messages("Admitted", "over-0")


async def test_a_pod_without_a_place_waits_behind_its_gate() -> None:
    async with gated_cluster() as lab, lab.cluster.scheduler(**ON) as scheduler:
        await resumed(lab)
        await lab.create_pods(3, **GATED)
        await lab.cluster.until_bound("train", 2)
        await until_no_record(lab)
        await some_cycles(scheduler)
        assert len(gated(lab)) == 1


async def test_a_pod_that_asks_for_more_than_was_held_waits_behind_its_gate() -> None:
    async with gated_cluster() as lab, lab.cluster.scheduler(**ON) as scheduler:
        await resumed(lab)
        larger = await lab.create_pods(gpu=3, **GATED)
        await some_cycles(scheduler)
        assert gated(lab) == larger
        assert not lab.cluster.placed("train")


async def test_a_pod_behind_another_gate_too_waits_for_it() -> None:
    both: dict[str, Any] = {"schedulingGates": [{"name": names.ADMISSION_GATE}, {"name": "example.com/later"}]}
    async with gated_cluster() as lab, lab.cluster.scheduler(**ON) as scheduler:
        await resumed(lab)
        (first,) = await lab.create_pods(1, **both)
        (second,) = await lab.create_pods(1, **GATED)
        await lab.cluster.wait_for_event("Admitted", second)
        await some_cycles(scheduler)
        assert gated(lab) == [first]
        assert not lab.cluster.placed("train")
        await lab.client.patch(PODS, first, {"spec": GATED}, "default")
        await lab.cluster.until_bound("train", 2)


async def test_the_place_of_a_pod_that_goes_is_for_another() -> None:
    async with gated_cluster() as lab, lab.cluster.scheduler(**ON):
        await resumed(lab)
        (first,) = await lab.create_pods(1, **GATED)
        await lab.cluster.wait_for_event("Admitted", first)
        await lab.client.delete(PODS, first, "default", grace_s=0)
        await lab.create_pods(2, **GATED)
        await lab.cluster.until_bound("train", 2)


@pytest.mark.parametrize(
    ("answer", "times"),
    [
        (refusal(500, "InternalError"), 1),
        (refusal(422, "Invalid", "metadata.annotations: Too long"), 2),
        (refusal(403, "Forbidden", "not here"), 3),
    ],
)
async def test_a_gate_that_cannot_be_opened_is_tried_again(answer: Any, times: int) -> None:
    """Its place is held meanwhile: the other queue of the Job's parent would take it."""
    async with gated_cluster(speed=50) as lab, lab.cluster.scheduler(**ON):
        await resumed(lab)
        lab.cluster.faults.refuse("PATCH", r"/pods/train-2-0$", answer, times=times)
        await lab.create_pods(**GATED)
        await lab.cluster.until_bound("train", 2)
        assert not lab.cluster.event_messages("WorkloadNotResumed")


async def test_gates_that_stay_closed_hold_the_room_no_longer_than_the_limit() -> None:
    async with gated_cluster(speed=400) as lab, lab.cluster.scheduler(**ON):
        await resumed(lab)
        lab.cluster.faults.refuse("PATCH", POD, refusal(422, "Invalid", "no"))
        await lab.create_pods(**GATED)
        await lab.cluster.wait_for_event("WorkloadNotResumed", "train")
        await until_no_record(lab)
        await lab.cluster.gang("late", pods=1, queue="team", gpu=4)
        await lab.cluster.until_bound("late", 1)


@pytest.mark.parametrize("closed", [POD, r"/pods/train-2-0$"])
async def test_a_scheduler_that_takes_over_opens_the_gates_that_are_left(closed: str) -> None:
    """suspend:takeover: no gate was opened, or one of two."""
    async with gated_cluster() as lab:
        async with lab.cluster.scheduler(**ON):
            await resumed(lab)
            await lab.cluster.wait_for_event("WorkloadResumed", "train")
            lab.cluster.faults.refuse("PATCH", closed, refusal(422, "Invalid", "no"))
            await lab.create_pods(**GATED)
            await lab.cluster.wait_for_event("AdmissionRefused", "train-2-0")
            left = 2 if closed == POD else 1
            await lab.cluster.pods.wait_until(lambda _: len(gated(lab)) == left, 10)
        lab.cluster.faults.heal()
        async with lab.cluster.scheduler(**ON):
            await lab.cluster.until_bound("train", 2)
            await until_no_record(lab)


async def test_a_workload_that_its_user_resumes_counts_as_it_is() -> None:
    """Its pods are behind gates until the queue takes them."""
    async with gated_cluster() as lab, lab.cluster.scheduler(**ON) as scheduler:
        await lab.suspend()
        await lab.client.patch(JOBS, "train", {"spec": {"suspend": False}}, "default")
        await lab.create_pods(**GATED)
        await until_no_record(lab)
        assert not list(scheduler.intake.placeholders.objects())
        await lab.go_away()
        await lab.cluster.until_bound("train", 2)
        assert len(lab.patches()) == 1


async def test_new_tables_show_demand_once() -> None:
    """After a rebuild of the tables, too, a pod that has a place is not in them."""
    async with gated_cluster() as lab, lab.cluster.scheduler(**ON) as scheduler:
        await resumed(lab)
        opening = HeldWrite(lab, "PATCH", "/pods/train-")
        made = await lab.create_pods(**GATED)
        await opening.wait()
        scheduler.intake.rebuild_tables()
        await scheduler.loop.cycle()
        shown = {each.metadata.name for each in scheduler.intake.objects() if each.metadata.name.startswith("train-")}
        assert not shown & set(made)
        opening.let_go()
        await lab.cluster.until_bound("train", 2)
        shown = {each.metadata.name for each in scheduler.intake.objects() if each.metadata.name.startswith("train-")}
        assert shown >= set(made)
