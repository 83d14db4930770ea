"""Suspended workloads are resumed when they fit, and get the room that was held for them (suspend:resume)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api import names
from pykai.kube.resources import JOBS, NODES, PODS
from tests.services.scheduler.schedulercluster import refusal
from tests.services.scheduler.suspendcluster import JOB, SuspendCluster, mark_of, suspend_cluster


async def resumed(lab: SuspendCluster) -> None:
    """Suspend the Job, then let it be resumed."""
    await lab.suspend()
    await lab.go_away()
    await lab.until_suspended(suspended=False)


async def until_no_record(lab: SuspendCluster) -> None:
    await lab.cluster.maps.wait_until(lambda _: not lab.records(), 10)


async def test_an_owner_is_resumed_when_it_fits_and_its_pods_are_bound() -> None:
    async with suspend_cluster() as lab, lab.cluster.scheduler() as scheduler:
        await resumed(lab)
        assert not mark_of(await lab.live_job())
        await lab.cluster.wait_for_event("WorkloadResumed", "train")
        await lab.create_pods()
        await lab.cluster.until_bound("train", 2)
        await until_no_record(lab)
        assert not list(scheduler.intake.placeholders.objects())
        assert [patch["spec"] for patch in lab.patches()] == [{"suspend": True}, {"suspend": False}]
        await lab.cluster.until_no_records()


async def test_room_is_held_and_no_pod_is_bound_before_the_minimum_is_there() -> None:
    """The other queue waits again; it does not get the room of a workload whose pods have not come yet."""
    async with suspend_cluster() as lab, lab.cluster.scheduler() as scheduler:
        await resumed(lab)
        await lab.cluster.gang("late", pods=1, queue="rich", gpu=2)
        (first,) = await lab.create_pods(1)
        for _ in range(3):
            await scheduler.loop.cycle()
        assert not lab.cluster.placed("late")
        assert not lab.cluster.placed("train")
        await lab.create_pods(1)
        await lab.cluster.until_bound("train", 2)
        assert first in lab.cluster.placed("train")
        assert not lab.cluster.placed("late")


async def test_a_pod_that_comes_back_first_waits_for_the_others_although_it_fits_elsewhere() -> None:
    async with suspend_cluster() as lab, lab.cluster.scheduler() as scheduler:
        await resumed(lab)
        await lab.cluster.node("b", gpus=4)
        await lab.create_pods(1)
        for _ in range(3):
            await scheduler.loop.cycle()
        assert not lab.cluster.placed("train")
        await lab.create_pods(1)
        await lab.cluster.until_bound("train", 2)
        assert set(lab.cluster.placed("train").values()) == {"a"}


async def test_room_is_free_after_the_time_limit_and_pods_wait_as_others_do() -> None:
    async with suspend_cluster(speed=400) as lab, lab.cluster.scheduler():
        await resumed(lab)
        assert await lab.cluster.wait_for_event("WorkloadNotResumed", "train") == (
            "Job default/train was resumed, but 2 of its pods did not come within 120 s; their room is free for others"
        )
        await until_no_record(lab)
        await lab.cluster.gang("late", pods=1, queue="rich", gpu=4)
        await lab.cluster.until_bound("late", 1)


async def test_pods_above_the_minimum_take_their_places_when_they_come() -> None:
    async with suspend_cluster(minimum=1) as lab, lab.cluster.scheduler():
        await resumed(lab)
        await lab.create_pods(1)
        await lab.cluster.until_bound("train", 1)
        assert lab.records()
        await lab.create_pods(1)
        await lab.cluster.until_bound("train", 2)
        await until_no_record(lab)


async def test_a_workload_that_its_user_resumes_counts_as_it_is() -> None:
    async with suspend_cluster() as lab, lab.cluster.scheduler() as scheduler:
        await lab.suspend()
        await lab.client.patch(JOBS, "train", {"spec": {"suspend": False}}, "default")
        await lab.create_pods()
        await until_no_record(lab)
        assert not list(scheduler.intake.placeholders.objects())
        await lab.go_away()
        await lab.cluster.until_bound("train", 2)
        assert len(lab.patches()) == 1


@pytest.mark.parametrize("change", [{"metadata": {"annotations": {names.SUSPENDED_BY_ANNOTATION: "me"}}}, None])
async def test_an_owner_whose_mark_was_changed_or_that_is_gone_is_not_resumed(change: dict[str, Any] | None) -> None:
    """suspend:owner: only what this scheduler has suspended."""
    async with suspend_cluster() as lab, lab.cluster.scheduler():
        await lab.suspend()
        if change is None:
            await lab.client.delete(JOBS, "train", "default")
        else:
            await lab.client.patch(JOBS, "train", change, "default")
        await lab.go_away()
        await until_no_record(lab)
        assert len(lab.patches()) == 1


async def test_a_mark_without_a_record_does_nothing() -> None:
    """suspend:owner"""
    async with suspend_cluster() as lab:
        await lab.delete_pods()
        mark = {names.SUSPENDED_BY_ANNOTATION: f"{lab.group['metadata']['uid']}/2026-01-01T00:00:00Z"}
        await lab.client.patch(JOBS, "train", {"metadata": {"annotations": mark}, "spec": {"suspend": True}}, "default")
        async with lab.cluster.scheduler() as scheduler:
            await lab.cluster.gang("late", pods=1, gpu=1)
            await lab.cluster.until_bound("late", 1)
            await scheduler.dispatcher.drain()
        assert not lab.patches()


async def test_a_resume_that_is_refused_gives_the_room_back_and_is_repeated() -> None:
    async with suspend_cluster(speed=20) as lab, lab.cluster.scheduler():
        await lab.suspend()
        lab.cluster.faults.refuse("PATCH", JOB, refusal(403, "Forbidden", "not yours"), times=1)
        await lab.go_away()
        assert await lab.cluster.wait_for_event("WorkloadNotResumed", "train") == (
            "Job default/train cannot be resumed; next attempt in 5 s: Job train cannot be changed: not yours"
        )
        await lab.until_suspended(suspended=False)
        await lab.create_pods()
        await lab.cluster.until_bound("train", 2)


async def test_pods_are_placed_by_the_cycles_if_the_engine_fails_to_place_them_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("pykai.scheduler.dispatch.resumption.resume", fail)
    async with suspend_cluster() as lab, lab.cluster.scheduler():
        await resumed(lab)
        await lab.create_pods()
        await lab.cluster.until_bound("train", 2)
        await until_no_record(lab)


async def test_held_room_is_given_up_for_work_that_may_evict_it() -> None:
    async with suspend_cluster() as lab, lab.cluster.scheduler():
        await resumed(lab)
        await lab.cluster.gang("again", pods=1, queue="poor", gpu=4)
        await lab.cluster.until_bound("again", 1)
        await until_no_record(lab)
        await lab.create_pods()
        assert not lab.cluster.placed("train")


async def test_a_pod_of_another_size_does_not_overfill_the_node() -> None:
    """The place is checked by every rule."""
    async with suspend_cluster() as lab, lab.cluster.scheduler() as scheduler:
        await resumed(lab)
        await lab.create_pods(gpu=3)
        await until_no_record(lab)
        await scheduler.loop.cycle()
        assert not lab.cluster.placed("train")


async def test_a_scheduler_that_takes_over_continues_with_a_suspended_workload() -> None:
    """suspend:takeover"""
    async with suspend_cluster() as lab:
        async with lab.cluster.scheduler():
            await lab.suspend()
        async with lab.cluster.scheduler():
            await lab.go_away()
            await lab.until_suspended(suspended=False)
            await lab.create_pods()
            await lab.cluster.until_bound("train", 2)
            await until_no_record(lab)


async def test_a_scheduler_that_takes_over_waits_until_the_pods_are_gone() -> None:
    """suspend:takeover"""
    async with suspend_cluster() as lab:
        async with lab.cluster.scheduler():
            await lab.evict()
            await lab.until_suspended()
            await lab.cluster.wait_for_event("WorkloadSuspended", "train")
        async with lab.cluster.scheduler() as scheduler:
            await lab.cluster.maps.wait_until(lambda _: bool(lab.records()), 10)
            assert not list(scheduler.intake.placeholders.objects())
            await lab.delete_pods()
            await lab.cluster.until_bound("claim", 1)
            await lab.go_away()
            await lab.until_suspended(suspended=False)


async def test_a_scheduler_that_takes_over_holds_the_room_of_a_resumed_workload() -> None:
    """suspend:takeover"""
    async with suspend_cluster() as lab:
        async with lab.cluster.scheduler():
            await resumed(lab)
            await lab.cluster.wait_for_event("WorkloadResumed", "train")
        await lab.cluster.gang("late", pods=1, queue="rich", gpu=2)
        await lab.cluster.gang("small", pods=1, queue="rich")
        async with lab.cluster.scheduler():
            await lab.cluster.until_bound("small", 1)
            assert not lab.cluster.placed("late")
            await lab.create_pods()
            await lab.cluster.until_bound("train", 2)
        assert not lab.cluster.placed("late")


async def test_a_scheduler_that_takes_over_holds_no_room_for_pods_that_have_theirs() -> None:
    """suspend:takeover: the last scheduler died before it deleted the record."""
    async with suspend_cluster(minimum=1) as lab:
        async with lab.cluster.scheduler():
            await resumed(lab)
            await lab.create_pods(1)
            await lab.cluster.until_bound("train", 1)
        more = {"status": {"allocatable": {names.NVIDIA_GPU: "6"}, "capacity": {names.NVIDIA_GPU: "6"}}}
        await lab.client.patch(NODES, "a", more, subresource="status")
        await lab.cluster.gang("late", pods=1, queue="rich", gpu=2)
        async with lab.cluster.scheduler():
            await lab.cluster.until_bound("late", 1)
            await lab.create_pods(1)
            await lab.cluster.until_bound("train", 2)


async def test_a_record_of_an_owner_that_was_not_suspended_is_deleted() -> None:
    """suspend:takeover: the scheduler died after the record and before the patch."""
    async with suspend_cluster() as lab:
        async with lab.cluster.scheduler():
            await lab.evict()
            await lab.until_suspended()
        before = {"metadata": {"annotations": {names.SUSPENDED_BY_ANNOTATION: None}}, "spec": {"suspend": False}}
        await lab.client.patch(JOBS, "train", before, "default")
        await lab.client.delete(PODS, "claim-0", "default", grace_s=0)
        async with lab.cluster.scheduler():
            await until_no_record(lab)
        assert len(lab.patches()) == 1


async def test_a_record_that_cannot_be_read_is_deleted() -> None:
    """suspend:takeover"""
    async with suspend_cluster() as lab:
        async with lab.cluster.scheduler():
            await lab.suspend()
        await lab.break_record()
        async with lab.cluster.scheduler():
            await until_no_record(lab)
        assert (await lab.live_job())["spec"]["suspend"]
