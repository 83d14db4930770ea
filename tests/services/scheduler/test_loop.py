"""The loop: what starts a cycle, what a failing one costs, the configuration file, standby and takeover."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pykai.core.cluster import tables as core_tables
from pykai.core.report.decisions import Plan
from pykai.kube import resources
from pykai.kube.store import Change
from pykai.scheduler.config.configuration import ConfigurationError
from pykai.scheduler.intake.groupfeed import GroupFeed, GroupStage
from tests.servers import ensure_namespace
from tests.services.scheduler.schedulercluster import running, scheduler_cluster


async def test_a_change_starts_a_cycle_long_before_the_period_ends() -> None:
    async with scheduler_cluster() as lab, lab.scheduler(schedule_period="1h") as scheduler:
        await lab.node("a", gpus=1)
        await lab.gang("job", pods=1, gpu=1)
        await lab.until_bound("job", 1)
        assert scheduler.ready()


async def test_without_a_change_a_cycle_comes_with_the_period() -> None:
    async with scheduler_cluster() as lab, lab.scheduler(schedule_period="1ms") as scheduler:
        while scheduler.loop.cycles < 4:
            await asyncio.sleep(0.001)
        assert not scheduler.intake.queue


async def test_what_a_cycle_puts_off_goes_first_in_the_next() -> None:
    """Groups of one namespace that cost much take turns while another namespace waits."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await ensure_namespace(lab.client, "another")
        meta = {"name": "mine", "namespace": "another"}
        await lab.create(resources.POD_GROUPS, {"metadata": meta, "spec": {"queue": "team", "minMember": 1}})
        await lab.create(
            resources.PODS,
            {
                "metadata": {**meta, "annotations": {"pod-group-name": "mine"}},
                "spec": {
                    "schedulerName": "kai-scheduler",
                    "schedulingGates": [{"name": "example.com/later"}],
                    "containers": [{"name": "main", "image": "none"}],
                },
            },
        )
        for number in range(3):
            selector = {"matchLabels": {"app": f"nobody-{number}"}}
            terms = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}]
            await lab.gang(f"c{number}", pods=1, affinity={"podAffinity": {required: terms}})
        scheduler = lab.make_scheduler(schedule_period="1ms")
        scheduler.loop.policy = replace(scheduler.loop.policy, namespace_allowance=1)
        turns: list[tuple[tuple[str, str], ...]] = []
        holds: set[bool] = set()
        scheduler.loop.plan_listeners.append(lambda plan: turns.append(plan.resume or ()))
        scheduler.loop.plan_listeners.append(
            lambda plan: holds.add(bool(plan.resume) and scheduler.loop.plan_holds_until_change)
        )
        async with running(scheduler):
            while len(turns) < 8:
                await asyncio.sleep(0.001)
    order = [group.partition("/")[2] for turn in turns for _, group in turn]
    assert set(order) == {"c0", "c1", "c2"}
    assert holds == {False}
    following = {"c0": "c1", "c1": "c2", "c2": "c0"}
    assert all(after == following[before] for before, after in pairwise(order))


async def test_a_cycle_that_fails_is_followed_by_another(caplog: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.gang("job", pods=1, gpu=1)
        scheduler = lab.make_scheduler(schedule_period="1ms")
        tables = scheduler.intake.tables
        failures = 0

        def broken(now_ns: int) -> Any:
            nonlocal failures
            failures += 1
            raise RuntimeError("the tables contradict themselves")

        # Corrupted tables; new ones, built from the caches, are sound.
        tables.snapshot = broken  # type: ignore[method-assign]
        async with running(scheduler):
            await lab.until_bound("job", 1)
        assert failures == 3
        assert scheduler.intake.tables is not tables
        assert "the tables contradict themselves" in caplog.text


async def test_a_listener_that_fails_fails_no_cycle(caplog: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.gang("job", pods=1, gpu=1)
        scheduler = lab.make_scheduler(schedule_period="1ms")
        told = 0

        def broken(_: Plan) -> None:
            raise RuntimeError("nobody looks at this display" if told % 2 else "nor at this one")

        def counting(_: Plan) -> None:
            nonlocal told
            told += 1

        scheduler.loop.plan_listeners.append(broken)
        scheduler.loop.plan_listeners.append(counting)
        async with running(scheduler):
            await lab.until_bound("job", 1)
            while told < 3:
                await asyncio.sleep(0.001)
    registry = scheduler.metrics.registry
    assert registry.get_sample_value("kai_plan_listener_failures_total") == told
    assert not registry.get_sample_value("kai_scheduling_cycles_total", {"result": "failed"})
    assert sum(record.name == "pykai.scheduler.planlisteners" for record in caplog.records) == 1


async def test_the_view_of_the_cluster_is_made_when_asked_for_and_not_while_a_cycle_runs() -> None:
    async with scheduler_cluster() as lab, lab.scheduler(schedule_period="1h") as scheduler:
        loop = scheduler.loop
        await lab.node("a", gpus=2)
        await lab.gang("job", pods=1, gpu=1)
        await lab.until_bound("job", 1)
        while not (await loop.cluster_view()).pods_placed:
            await asyncio.sleep(0.001)
        view = await loop.cluster_view()
        assert (view.gpus, view.gpus_used, view.pods_waiting) == (2, 1, 0)
        async with loop.engine_lock:
            view = await loop.cluster_view()
            loop.cycles += 1
            assert await loop.cluster_view() is view
        assert await loop.cluster_view() is not view
        assert await loop.cluster_view() is await loop.cluster_view()


async def test_changes_of_pod_groups_are_delivered_in_the_order_of_the_stages() -> None:
    feed, heard = GroupFeed(), list[str]()
    for stage in reversed(GroupStage):
        feed.subscribe(stage, lambda _, name=stage.name: heard.append(name))  # type: ignore[misc]
    feed.publish(Change("default/g", None, None))
    assert heard == ["INTAKE", "DISPATCH", "STATUS"]


async def test_a_change_that_cannot_be_ingested_is_reported_and_the_others_are_ingested() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        scheduler = lab.make_scheduler()

        class Odd(core_tables.Tables):
            """Tables that fail on one node."""

            def apply(self, item: Any) -> None:
                if item.metadata.name == "odd":
                    raise RuntimeError("never seen such a thing")
                super().apply(item)

        scheduler.intake.tables = Odd(scheduler.intake.tables.shard)
        await lab.node("odd", gpus=1)
        await lab.gang("job", pods=1, gpu=1)
        async with running(scheduler):
            await lab.until_bound("job", 1)
            assert "never seen such a thing" in await lab.wait_for_event("InvalidNode", "odd")


async def test_the_configuration_file_is_read_again_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("actions: allocate, preempt\n")
    async with scheduler_cluster() as lab, lab.scheduler(scheduler_conf=str(file)) as scheduler:
        assert list(scheduler.loop.policy.actions) == ["allocate", "preempt"]
        file.write_text("actions: [")
        os.utime(file, (1, 1))
        await scheduler.loop.cycle()
        assert list(scheduler.loop.policy.actions) == ["allocate", "preempt"]
        file.write_text("actions: allocate\n")
        os.utime(file, (2, 2))
        await scheduler.loop.cycle()
        assert list(scheduler.loop.policy.actions) == ["allocate"]
        file.unlink()
        await scheduler.loop.cycle()
        assert list(scheduler.loop.policy.actions) == ["allocate"]


async def test_a_configuration_that_cannot_be_used_stops_the_program_at_its_start(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("- 1")
    async with scheduler_cluster() as lab:
        with pytest.raises(ConfigurationError):
            lab.make_scheduler(scheduler_conf=str(file))


async def test_what_happens_while_the_engine_works_is_seen_by_the_next_cycle() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        async with lab.scheduler(schedule_period="1h") as scheduler:
            await scheduler.intake.nodes.wait_until(lambda store: len(store) == 1, 10)
            async with scheduler.loop.engine_lock:
                await lab.gang("job", pods=1, gpu=1)
                await scheduler.intake.pods.wait_until(lambda store: len(store) == 1, 10)
                assert len(scheduler.intake.queue)
                assert not scheduler.intake.tables.groups
            await lab.until_bound("job", 1)


async def test_a_pod_that_fails_leaves_the_tables() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.gang("job", pods=1, gpu=1)
        await lab.gang("next", pods=1, gpu=1)
        async with lab.scheduler():
            await lab.pods.wait_until(lambda _: len(lab.placed("job")) + len(lab.placed("next")) == 1, 10)
            first = "job" if lab.placed("job") else "next"
            other = "next" if first == "job" else "job"
            failed = {"status": {"phase": "Failed"}}
            await lab.client.patch(resources.PODS, f"{first}-0", failed, "default", subresource="status")
            await lab.until_bound(other, 1)


async def test_one_of_two_leads_and_the_other_is_warm_and_takes_over() -> None:
    async with scheduler_cluster() as lab:
        await ensure_namespace(lab.client, "kai-scheduler")
        await lab.node("a", gpus=2)
        first, second = (lab.make_scheduler(leader_elect=True) for _ in range(2))
        second.lease_retry_s = 0.05
        stop = asyncio.Event()
        one = asyncio.create_task(first.run(stop))
        while not first.leading:
            await asyncio.sleep(0.002)
        async with running(second):
            await lab.gang("job", pods=1, gpu=1)
            await lab.until_bound("job", 1)
            while not second.intake.tables.groups:
                await asyncio.sleep(0.002)
            assert second.ready()
            assert not second.leading
            assert not second.loop.cycles
            lease = await lab.client.get_raw(resources.LEASES, "kai-scheduler", "kai-scheduler")
            assert lease["spec"]["leaseDurationSeconds"] == 15
            assert lease["spec"]["holderIdentity"].startswith(f"{socket.gethostname()}_")
            stop.set()
            await one
            released = await lab.client.get_raw(resources.LEASES, "kai-scheduler", "kai-scheduler")
            assert released["spec"].get("holderIdentity") != lease["spec"]["holderIdentity"]
            await first._runtime.caches.stop()
            await _hurried(second)
            await lab.gang("late", pods=1, gpu=1)
            await lab.until_bound("late", 1)
            assert second.leading


async def _hurried(scheduler: Any) -> None:
    """Wait for a standby to lead."""
    async with asyncio.timeout(20):
        while not scheduler.leading:
            await asyncio.sleep(0.01)


async def test_stopping_finishes_the_writes_that_are_going_out() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=3)
        await lab.gang("train", pods=3, gpu=1)
        stop = asyncio.Event()
        scheduler = lab.make_scheduler()

        async def stop_at_the_first_bind(request: Any) -> None:
            if request.path.endswith("/binding"):
                stop.set()
                await asyncio.sleep(0)

        lab.faults.on_write = stop_at_the_first_bind
        await scheduler.run(stop)
        await scheduler._runtime.caches.stop()
        await lab.until_bound("train", 3)


async def test_the_next_cycle_knows_the_groups_to_serve_first() -> None:
    """cycle:SOL-17: as long as the last plan says so: here while the pod waits for one that leaves."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.gang("train", pods=1, gpu=1)
        async with lab.scheduler() as scheduler:
            loop = scheduler.loop
            await lab.until_bound("train", 1)
            await lab.client.delete(resources.PODS, "train-0", "default", grace_s=60)
            await lab.gang("next", pods=1, gpu=1)
            async with asyncio.timeout(10):
                while loop.effective_policy.nominated_groups != {"default/next"}:
                    await asyncio.sleep(0)
            async with loop.engine_lock:
                loop._served_first = ("default/next",)
                cycles = loop.cycles
            async with asyncio.timeout(10):
                while loop.cycles < cycles + 2:
                    await asyncio.sleep(0)
            assert loop.effective_policy.served_first == ("default/next",)
            await lab.client.delete(resources.PODS, "train-0", "default", grace_s=0)
            await lab.until_bound("next", 1)
            async with asyncio.timeout(10):
                while loop.effective_policy.served_first:
                    await asyncio.sleep(0)


async def test_the_next_cycle_knows_the_nominated_pods() -> None:
    """So that a group whose namespace takes turns is not put off while others could take its place."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.gang("first", pods=1, gpu=1)
        async with lab.scheduler() as scheduler:
            await lab.until_bound("first", 1)
            assert scheduler.loop.effective_policy.nominated_groups == frozenset()
            await lab.client.delete(resources.PODS, "first-0", "default", grace_s=60)
            await lab.gang("next", pods=1, gpu=1)
            async with asyncio.timeout(10):
                while scheduler.loop.effective_policy.nominated_groups != {"default/next"}:
                    await asyncio.sleep(0)
            await lab.client.delete(resources.PODS, "first-0", "default", grace_s=0)
            await lab.until_bound("next", 1)
