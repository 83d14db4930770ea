"""What goes while something is decided or written about it leaves nothing behind: no table may grow with every name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pykai.api.scheduling import PodGroup
from pykai.core.report.decisions import Evict, Plan
from pykai.kube import resources
from pykai.kube.resources import Resource
from pykai.kube.transport import Request
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.service import Scheduler
from pykai.scheduler.status.statusdiff import GroupStatusDiff, PodStatusDiff, StatusDiff
from tests.heldentries import entry_counts
from tests.servers import ensure_namespace
from tests.services.scheduler.schedulercluster import SchedulerCluster, refusal, running, scheduler_cluster

BINDING = r"/pods/[^/]+/binding$"


def eviction(pod: str, group: str) -> Evict:
    return Evict("default", pod, f"uid-{pod}", f"default/{group}", "a", "reclaim", 1, "somebody else's turn")


def plan(*evictions: Evict) -> Plan:
    return Plan(0, (), (), evictions, (), (), (), (), (), (), (), 0)


async def delete(lab: SchedulerCluster, scheduler: Scheduler, resource: Resource, name: str) -> None:
    """Delete an object, and wait until the scheduler knows."""
    await lab.client.delete(resource, name, "default", grace_s=0)
    await scheduler.intake.stores[resource.kind].wait_until(lambda store: f"default/{name}" not in store, 10)


def while_binding(lab: SchedulerCluster, meanwhile: Callable[[], Awaitable[None]]) -> asyncio.Event:
    """Something happens while the first bind is under way; set once it has."""
    begun, done = asyncio.Event(), asyncio.Event()

    async def on_write(request: Request) -> None:
        if request.path.endswith("/binding") and not begun.is_set():
            begun.set()
            await meanwhile()
            done.set()

    lab.faults.on_write = on_write
    return done


async def test_a_gang_deleted_while_it_is_bound() -> None:
    async with scheduler_cluster() as lab, lab.scheduler() as scheduler:
        await lab.node("a", gpus=2)
        before = entry_counts(scheduler.dispatcher)

        async def goes() -> None:
            await delete(lab, scheduler, resources.POD_GROUPS, "train")
            for name in ("train-0", "train-1"):
                await delete(lab, scheduler, resources.PODS, name)

        gone = while_binding(lab, goes)
        await lab.gang("train", pods=2, gpu=1)
        await asyncio.wait_for(gone.wait(), 10)
        assert await scheduler.dispatcher.drain()
        assert entry_counts(scheduler.dispatcher) == before


async def test_a_pod_deleted_while_its_bind_is_refused() -> None:
    async with scheduler_cluster() as lab, lab.scheduler() as scheduler:
        await lab.node("a", gpus=1)
        before = entry_counts(scheduler.dispatcher)
        lab.faults.refuse("POST", BINDING, refusal(403, "Forbidden"))
        gone = while_binding(lab, lambda: delete(lab, scheduler, resources.PODS, "job-0"))
        await lab.gang("job", pods=1, gpu=1)
        await asyncio.wait_for(gone.wait(), 10)
        assert await scheduler.dispatcher.drain()
        assert entry_counts(scheduler.dispatcher) == before


async def test_a_pod_whose_request_is_gone_before_our_deletion_is_answered() -> None:
    async with scheduler_cluster() as lab, lab.scheduler() as scheduler:
        await lab.gang("job", pods=1, gpu=1)
        await scheduler.intake.pods.wait_until(lambda store: "default/job-0" in store, 10)
        scheduler.intake.binds.withdraw("default/job-0", "uid of a request that has gone")
        await delete(lab, scheduler, resources.PODS, "job-0")
        assert "_withdrawals" not in entry_counts(scheduler.intake.binds)


def test_evicted_pods_are_counted_by_group_while_the_group_exists() -> None:
    metrics = SchedulerMetrics()

    def series() -> int:
        name = "kai_pod_group_evicted_pods_total"
        return sum(sample.name == name for family in metrics.registry.collect() for sample in family.samples)

    metrics.count_eviction(eviction("job-0", "job"), PodGroup(), "default")
    assert series() == 1
    metrics.forget_group("default/job")
    metrics.count_eviction(eviction("job-1", "job"), None, "default")
    assert series() == 0
    action = eviction("job-1", "job").action
    assert metrics.registry.get_sample_value("kai_evicted_pods_total", {"action": action}) == 2


async def test_a_shadow_forgets_objects_deleted_during_a_cycle() -> None:
    async with scheduler_cluster() as lab, lab.scheduler(shadow="true") as scheduler:
        before = entry_counts(scheduler.dispatcher)
        waits = GroupStatusDiff("default/gone", "uid", "no room", "Unschedulable", event=True, reasons=None, pods=())
        alone = PodStatusDiff("default/gone-0", "uid", "no group", condition=True, event=True)
        await scheduler.status_sink.publish(StatusDiff(groups=[waits], pods=[alone]))
        await scheduler.dispatcher.dispatch(plan(eviction("gone-0", "gone")))
        assert entry_counts(scheduler.dispatcher) == before


async def test_a_standby_keeps_nothing_of_groups_that_have_gone() -> None:
    async with scheduler_cluster() as lab:
        await ensure_namespace(lab.client, "kai-scheduler")
        await lab.node("a", gpus=1)
        first, second = (lab.make_scheduler(leader_elect=True, schedule_period="10ms") for _ in range(2))
        async with running(first):
            while not first.leading:
                await asyncio.sleep(0.002)
            async with running(second):
                tables = second.intake.tables
                await lab.gang("stays", pods=1, gpu=2)
                # The first leaves the entry that equal ones share.
                before: dict[str, int] = {}
                for name in ("one", "two", "three"):
                    await lab.gang(name, pods=1, gpu=2)
                    await _known(second, f"default/{name}")
                    await delete(lab, second, resources.PODS, f"{name}-0")
                    await delete(lab, second, resources.POD_GROUPS, name)
                    await _known(second, "default/stays")
                    before = before or entry_counts(tables)
                assert not second.leading
                assert entry_counts(tables) == before


async def _known(scheduler: Scheduler, group: str) -> None:
    """Wait until the tables know this group and its pod, and all events."""
    async with asyncio.timeout(10):
        while True:
            async with scheduler.loop.engine_lock:
                groups = scheduler.intake.tables.groups
                if not scheduler.intake.queue and group in groups and groups[group].tasks:
                    return
            await asyncio.sleep(0.002)
