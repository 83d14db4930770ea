"""Pods in deletion: what they still hold is charged to their queue, and victims are not replaced by other victims."""

from __future__ import annotations

from typing import Any

from pykai.api import names
from pykai.kube import resources
from pykai.scheduler.service import Scheduler
from tests.services.scheduler.schedulercluster import SchedulerCluster, scheduler_cluster

POD = r"/pods/[^/]+$"
FINALIZER = "example.com/never"
TEN_MINUTES = 600


async def runs(lab: SchedulerCluster, name: str) -> None:
    """What a kubelet says of a pod once it is bound."""
    await lab.client.patch(resources.PODS, name, {"status": {"phase": "Running"}}, "default", subresource="status")


async def cycles(scheduler: Scheduler, count: int = 3) -> None:
    """Some more cycles, and all their writes."""
    for _ in range(count):
        await scheduler.loop.cycle()
        await scheduler.dispatcher.drain()


def going(lab: SchedulerCluster) -> list[str]:
    """Pods that are being deleted."""
    return sorted(pod.metadata.name for pod in lab.pods.values() if pod.metadata.deletion_timestamp is not None)


async def until_going(lab: SchedulerCluster, *pods: str) -> None:
    """Wait until exactly these pods are being deleted."""
    await lab.pods.wait_until(lambda _: going(lab) == list(pods), 10)


async def goes(lab: SchedulerCluster, pod: str) -> None:
    """A terminating pod is gone."""
    await lab.client.patch(resources.PODS, pod, {"metadata": {"finalizers": None}}, "default")
    await lab.client.delete(resources.PODS, pod, "default", grace_s=0)
    await lab.pods.wait_until(lambda store: f"default/{pod}" not in store, 10)


async def a_limited_queue(lab: SchedulerCluster, limit: int) -> None:
    """Eight GPUs, and a queue that may have some of them."""
    await lab.node("a", gpus=8)
    await lab.queue("small", parent="department", limit=limit)


async def test_a_queue_does_not_grow_by_pods_whose_deletion_is_blocked() -> None:
    """A finalizer keeps the pod, and with it the device, for as long as the tenant likes."""
    async with scheduler_cluster() as lab:
        await a_limited_queue(lab, limit=2)
        await lab.gang("first", pods=1, queue="small", gpu=2)
        await lab.client.patch(resources.PODS, "first-0", {"metadata": {"finalizers": [FINALIZER]}}, "default")
        async with lab.scheduler() as scheduler:
            await lab.until_bound("first", 1)
            await runs(lab, "first-0")
            await lab.client.delete(resources.PODS, "first-0", "default")
            await until_going(lab, "first-0")
            await lab.gang("second", pods=1, queue="small", gpu=2)
            text = await lab.wait_for_event("Pipelined", "second-0")
            assert "2 GPUs are still held by pods being deleted" in text
            await cycles(scheduler)
            assert not lab.placed("second")
            await goes(lab, "first-0")
            await lab.until_bound("second", 1)


async def test_deleting_the_pod_group_of_a_terminating_pod_frees_nothing() -> None:
    async with scheduler_cluster() as lab:
        await a_limited_queue(lab, limit=2)
        await lab.gang("first", pods=1, queue="small", gpu=2)
        patch = {"metadata": {"finalizers": [FINALIZER], "labels": {names.QUEUE_LABEL: "small"}}}
        await lab.client.patch(resources.PODS, "first-0", patch, "default")
        async with lab.scheduler() as scheduler:
            await lab.until_bound("first", 1)
            await runs(lab, "first-0")
            await lab.client.delete(resources.PODS, "first-0", "default")
            await until_going(lab, "first-0")
            await lab.client.delete(resources.POD_GROUPS, "first", "default")
            await lab.groups.wait_until(lambda store: "default/first" not in store, 10)
            await lab.gang("second", pods=1, queue="small", gpu=2)
            text = await lab.wait_for_event("Pipelined", "second-0")
            assert "2 GPUs are still held by pods being deleted" in text
            await cycles(scheduler)
            assert not lab.placed("second")
            await goes(lab, "first-0")


async def test_a_pod_deleted_with_a_long_grace_period_is_not_counted_as_releasing() -> None:
    async with scheduler_cluster() as lab:
        await a_limited_queue(lab, limit=2)
        await lab.gang("first", pods=1, queue="small", gpu=2, terminationGracePeriodSeconds=TEN_MINUTES)
        async with lab.scheduler():
            await lab.until_bound("first", 1)
            await runs(lab, "first-0")
            await lab.client.delete(resources.PODS, "first-0", "default")
            await until_going(lab, "first-0")
            await lab.gang("second", pods=1, queue="small", gpu=2)
            text = await lab.wait_for_event("Unschedulable", "second")
            assert text.startswith("OverLimit")
            assert "2 GPUs are still held by pods being deleted" in text
            assert not lab.event_messages("Pipelined", "second-0")


async def two_slow_jobs(lab: SchedulerCluster) -> None:
    """A queue at its limit, full of work that takes ten minutes to leave."""
    await a_limited_queue(lab, limit=4)
    for name, value in (("lowly", 10), ("urgent", 20)):
        await lab.create(resources.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    for index in range(2):
        name = f"slow{index}"
        await lab.group(name, queue="small", priorityClassName="lowly")
        made = await lab.pod(f"{name}-0", name, gpu=2, terminationGracePeriodSeconds=TEN_MINUTES)
        await lab.client.bind("default", f"{name}-0", uid=made["metadata"]["uid"], node="a")
        await runs(lab, f"{name}-0")


async def test_a_victim_that_takes_ten_minutes_names_its_preemptor_and_costs_one_eviction() -> None:
    """The node has free resources; only the limit blocked the job, and the victim does not count against it."""
    async with scheduler_cluster() as lab:
        await two_slow_jobs(lab)
        job = await lab.group("job", queue="small", priorityClassName="urgent")
        async with lab.scheduler() as scheduler:
            await lab.pod("job-0", "job", gpu=2)
            await lab.pods.wait_until(lambda _: len(going(lab)) == 1, 10)
            (victim,) = going(lab)
            await lab.until_bound("job", 1)
            await cycles(scheduler)
        expected = ("True", "PreemptionByScheduler", f"default/job/{job['metadata']['uid']}")
        assert lab.condition(victim, names.CONDITION_EVICTED_FOR) == expected
        assert going(lab) == [victim]
        assert len(lab.faults.written("DELETE", POD)) == 1


async def test_a_new_leader_waits_for_the_victim_and_then_starts_the_job() -> None:
    async with scheduler_cluster() as lab:
        await two_slow_jobs(lab)
        await lab.gang("rest", pods=1, gpu=4)
        async with lab.scheduler() as scheduler:
            await lab.until_bound("rest", 1)
            await lab.group("job", queue="small", priorityClassName="urgent")
            await lab.pod("job-0", "job", gpu=2)
            await lab.pods.wait_until(lambda _: len(going(lab)) == 1, 10)
            await cycles(scheduler)
        (victim,) = going(lab)
        async with lab.scheduler() as scheduler:
            await lab.wait_for_event("Pipelined", "job-0")
            await cycles(scheduler)
            assert going(lab) == [victim]
            assert not lab.placed("job")
            await goes(lab, victim)
            await lab.until_bound("job", 1)
        # One of the scheduler; the other was this test's, and bypassed its transport.
        assert len(lab.faults.written("DELETE", POD)) == 1


async def test_a_quick_victim_costs_no_further_write() -> None:
    async with scheduler_cluster() as lab:
        await a_limited_queue(lab, limit=2)
        for name, value in (("lowly", 10), ("urgent", 20)):
            await lab.create(resources.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        await lab.group("quick", queue="small", priorityClassName="lowly")
        await lab.pod("quick-0", "quick", gpu=2)
        async with lab.scheduler():
            await lab.until_bound("quick", 1)
            await runs(lab, "quick-0")
            await lab.group("job", queue="small", priorityClassName="urgent")
            await lab.pod("job-0", "job", gpu=2)
            await until_going(lab, "quick-0")
        assert not lab.faults.written("PATCH", r"/pods/quick-0/status$")


async def test_the_mark_of_a_victim_cannot_be_given_with_a_new_pod() -> None:
    """The creator of a pod does not set its status."""
    async with scheduler_cluster() as lab:
        condition: dict[str, Any] = {"type": names.CONDITION_EVICTED_FOR, "status": "True", "message": ""}
        await lab.create(
            resources.PODS,
            {
                "metadata": {"name": "forged"},
                "spec": {"containers": [{"name": "main", "image": "none"}]},
                "status": {"phase": "Running", "startTime": "2020-01-01T00:00:00Z", "conditions": [condition]},
            },
        )
        await lab.pods.wait_until(lambda store: "default/forged" in store, 10)
        assert lab.condition("forged", names.CONDITION_EVICTED_FOR) == ("", "", "")
        found = lab.pods.get("default/forged")
        assert found is not None
        assert found.status.start_time is None
