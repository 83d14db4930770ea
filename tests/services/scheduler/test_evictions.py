"""Evictions: events, deletions, withdrawn binds, and that no pod is evicted twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pykai.api import names
from pykai.kube import resources
from tests.services.scheduler.schedulercluster import SchedulerCluster, refusal, scheduler_cluster

POD = r"/pods/[^/]+$"


async def running_pod(lab: SchedulerCluster, name: str, group: str, node: str, **pod: Any) -> None:
    """A pod that runs on a node."""
    made = await lab.pod(name, group, **pod)
    await lab.client.bind("default", name, uid=made["metadata"]["uid"], node=node)
    await lab.client.patch(resources.PODS, name, {"status": {"phase": "Running"}}, "default", subresource="status")


async def an_unfair_cluster(lab: SchedulerCluster) -> None:
    """Team `rich` uses both GPUs, `poor` waits for the one it deserves."""
    await lab.node("a", gpus=2)
    await lab.queue("rich", parent="department", quota=0)
    await lab.queue("poor", parent="department", quota=1)
    for index in range(2):
        await lab.group(f"greedy{index}", queue="rich")
        await running_pod(lab, f"greedy{index}-0", f"greedy{index}", "a", gpu=1)
    await lab.group("needy", queue="poor")
    await lab.pod("needy-0", "needy", gpu=1)


def going(lab: SchedulerCluster) -> list[str]:
    """Pods that are being deleted."""
    return [pod.metadata.name for pod in lab.pods.values() if pod.metadata.deletion_timestamp is not None]


async def test_a_victim_is_deleted_by_uid_with_an_event_on_its_group() -> None:
    async with scheduler_cluster() as lab:
        await an_unfair_cluster(lab)
        async with lab.scheduler() as scheduler:
            await lab.pods.wait_until(lambda _: len(going(lab)) == 1, 10)
            (victim,) = going(lab)
            group = victim.removesuffix("-0")
            await lab.wait_for_event("Evict", group)
            cycles = scheduler.loop.cycles
            await lab.groups.wait_until(
                lambda _: bool(lab.annotation(group, names.LAST_EVICTION_TIMESTAMP_ANNOTATION)), 10
            )
            while scheduler.loop.cycles < cycles + 3:
                await scheduler.loop.cycle()
            assert (await lab.wait_for_event("Pipelined", "needy-0")) == "Pod default/needy-0 was pipelined to node a"
        (event,) = (each for each in lab.events.values() if each["reason"] == "Evict")
        assert event["type"] == "Normal"
        assert event["metadata"]["annotations"] == {
            "num-evicted-pods": "1",
            "evictor-action-type": "reclaim",
            "evictor-pod-group-name": "needy",
            "evictor-pod-group-namespace": "default",
        }
        (delete,) = lab.faults.written("DELETE", POD)
        found = lab.pods.get(f"default/{victim}")
        assert found is not None
        assert msgspec.json.decode(delete.body or b"")["preconditions"]["uid"] == found.metadata.uid


async def test_no_pod_is_evicted_twice_while_the_watch_is_behind() -> None:
    async with scheduler_cluster() as lab:
        await an_unfair_cluster(lab)
        async with lab.scheduler() as scheduler:
            await lab.pods.wait_until(lambda _: len(going(lab)) == 1, 10)
            # The test sees the deletion; the scheduler assumes or sees it.
            for _ in range(3):
                await scheduler.loop.cycle()
            await scheduler.dispatcher.drain()
        assert len(lab.faults.written("DELETE", POD)) == 1


async def test_a_refused_eviction_leaves_the_pod_on_its_node() -> None:
    async with scheduler_cluster() as lab:
        lab.faults.refuse("DELETE", POD, refusal(403, "Forbidden", "not yours"))
        await an_unfair_cluster(lab)
        async with lab.scheduler() as scheduler:
            await lab.wait_for_event("Evict")
            await scheduler.dispatcher.drain()
        assert scheduler.intake.statuses.operations() == []
        assert not going(lab)


@pytest.mark.parametrize("code", [409, 429, 500, 504])
async def test_an_eviction_that_fails_once_is_tried_again(code: int) -> None:
    async with scheduler_cluster() as lab:
        await an_unfair_cluster(lab)
        lab.faults.refuse("DELETE", POD, refusal(code, "Conflict" if code == 409 else "Later"), times=1)
        async with lab.scheduler():
            await lab.pods.wait_until(lambda _: len(going(lab)) == 1, 10)


async def test_an_evicted_pod_has_a_condition_where_configured() -> None:
    async with scheduler_cluster() as lab:
        await an_unfair_cluster(lab)
        async with lab.scheduler(update_pod_eviction_condition=True):
            await lab.pods.wait_until(lambda _: len(going(lab)) == 1, 10)
        status, reason, message = lab.condition(going(lab)[0], "DisruptionTarget")
        assert (status, reason) == ("True", "PreemptionByScheduler")
        assert "needy" in message


async def test_a_pod_that_cannot_be_marked_is_not_deleted() -> None:
    async with scheduler_cluster() as lab:
        lab.faults.refuse("PATCH", r"/pods/greedy\d-0/status$", refusal(403, "Forbidden", "not yours"))
        await an_unfair_cluster(lab)
        async with lab.scheduler(update_pod_eviction_condition=True) as scheduler:
            await lab.wait_for_event("Evict")
            await scheduler.dispatcher.drain()
        assert not lab.faults.written("DELETE", POD)


async def test_a_binding_pod_loses_its_bind_request_and_waits() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.queue("rich", parent="department", quota=0)
        await lab.queue("poor", parent="department", quota=1)
        await lab.group("greedy", queue="rich")
        await lab.pod("greedy-0", "greedy", gpu=1)
        async with lab.scheduler(fast_bind=False):
            await lab.requests.wait_until(lambda store: "default/greedy-0" in store, 10)
            await lab.group("needy", queue="poor")
            await lab.pod("needy-0", "needy", gpu=1)
            await lab.requests.wait_until(
                lambda store: "default/needy-0" in store and "default/greedy-0" not in store, 10
            )
        assert not going(lab)
        assert not lab.faults.written("DELETE", POD)
