"""Invalid objects are reported, and other work is served."""

from __future__ import annotations

import pytest

from pykai.kube import resources
from pykai.observe import metrics
from pykai.scheduler.service import Scheduler
from tests.services.scheduler.schedulercluster import SchedulerCluster, scheduler_cluster


async def served(lab: SchedulerCluster) -> None:
    """Another gang is bound."""
    await lab.node("sound", gpus=1)
    await lab.gang("other", pods=1, gpu=1)
    await lab.until_bound("other", 1)


async def test_a_pod_group_without_a_queue() -> None:
    async with scheduler_cluster() as lab:
        await lab.create(resources.POD_GROUPS, {"metadata": {"name": "lost"}, "spec": {"minMember": 1}})
        await lab.pod("lost-0", "lost")
        async with lab.scheduler():
            await served(lab)
            assert "Queue '' does not exist" in await lab.wait_for_event("Unschedulable", "lost")
            await lab.pods.wait_until(lambda _: "Queue '' does not exist" in lab.condition("lost-0")[2], 10)


async def test_queues_that_are_each_others_parents() -> None:
    async with scheduler_cluster() as lab:
        await lab.queue("hen", parent="egg")
        await lab.queue("egg", parent="hen")
        await lab.gang("lost", pods=1, queue="egg")
        async with lab.scheduler() as scheduler:
            await served(lab)
            assert "spec.parentQueue" in await lab.wait_for_event("InvalidQueue", "hen")
            assert "Queue 'egg' cannot be used: the parents form a cycle" in await lab.wait_for_event(
                "Unschedulable", "lost"
            )
            assert b'kai_invalid_objects{kind="Queue"}' in exposed(scheduler)


@pytest.mark.embedded_only("stores nodes whose quantities a server refuses")
async def test_a_node_that_lies_about_its_gpus() -> None:
    async with scheduler_cluster() as lab:
        for name, gpus in (("negative", "-8"), ("absurd", "9e30"), ("unreadable", "eight")):
            node = {
                "metadata": {"name": name},
                "status": {
                    "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": gpus},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
            await lab.store_as_is(resources.NODES, node)
        async with lab.scheduler():
            await served(lab)
            assert "nvidia.com/gpu" in await lab.wait_for_event("InvalidNode", "unreadable")
            assert "-8 is negative" in await lab.wait_for_event("InvalidNode", "negative")
            assert "9e30 is more than" in await lab.wait_for_event("InvalidNode", "absurd")
            await lab.gang("late", pods=1, gpu=1)
            await lab.wait_for_event("Unschedulable", "late")
        assert not lab.placed("late")
        assert lab.placed("other") == {"other-0": "sound"}


@pytest.mark.embedded_only("stores an object that its schema refuses")
async def test_an_object_that_got_past_its_schema() -> None:
    async with scheduler_cluster() as lab:
        group = {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"minMember": "many", "queue": "team"}}
        await lab.store_as_is(resources.POD_GROUPS, group)
        async with lab.scheduler() as scheduler:
            await served(lab)
            text = await lab.wait_for_event("InvalidPodGroup", "odd")
            assert "spec.minMember" in text
            assert b'kai_invalid_objects{kind="PodGroup"} 1.0' in exposed(scheduler)


async def test_a_bind_request_for_a_pod_that_is_gone() -> None:
    async with scheduler_cluster() as lab:
        spec = {"podName": "ghost", "selectedNode": "nowhere", "receivedResourceType": "Regular"}
        await lab.create(resources.BIND_REQUESTS, {"metadata": {"name": "ghost"}, "spec": spec})
        async with lab.scheduler():
            await served(lab)
            await lab.requests.wait_until(lambda store: "default/ghost" not in store, 10)


async def test_a_bind_request_that_failed_for_good_is_deleted_and_the_pod_retried() -> None:
    async with scheduler_cluster(speed=50) as lab:
        await lab.node("a", gpus=1)
        await lab.gang("job", pods=1, gpu=1)
        async with lab.scheduler(fast_bind=False):
            await lab.requests.wait_until(lambda store: len(store) == 1, 10)
            first = lab.requests.get("default/job-0")
            assert first is not None
            failed = {"status": {"phase": "Failed", "reason": "no device", "failedAttempts": 3}}
            await lab.client.patch(resources.BIND_REQUESTS, "job-0", failed, "default", subresource="status")
            await lab.requests.wait_until(
                lambda store: (
                    (found := store.get("default/job-0")) is not None and found.metadata.uid != first.metadata.uid
                ),
                10,
            )


async def test_a_failed_bind_request_of_another_pool_is_left_alone() -> None:
    async with scheduler_cluster() as lab:
        spec = {"podName": "ghost", "selectedNode": "nowhere", "receivedResourceType": "Regular"}
        labels = {"kai.scheduler/node-pool": "blue"}
        await lab.create(resources.BIND_REQUESTS, {"metadata": {"name": "ghost", "labels": labels}, "spec": spec})
        async with lab.scheduler() as scheduler:
            await served(lab)
            await scheduler.dispatcher.drain()
        assert "default/ghost" in lab.requests


async def test_a_pod_whose_group_never_appears_is_reported_after_a_while() -> None:
    async with scheduler_cluster(speed=50) as lab:
        await lab.pod("stray-0", "")
        async with lab.scheduler():
            await served(lab)
            text = await lab.wait_for_event("Unschedulable", "stray-0")
            assert "the pod grouper has not put it into a PodGroup (yet)" in text
            await lab.pods.wait_until(lambda _: lab.condition("stray-0")[1] == "Unschedulable", 10)


async def test_invalid_fields_are_reported_with_what_is_used_instead() -> None:
    """ADR 27: a typo does not block a group, but is reported."""
    async with scheduler_cluster() as lab:
        await lab.client.patch(resources.QUEUES, "team", {"spec": {"preemptMinRuntime": "soon"}})
        await lab.group("late", preemptionDelay="soon")
        await lab.pod("late-0", "late")
        await lab.group("odd", priorityClassName="nowhere")
        await lab.pod("odd-0", "odd", annotations={"gpu-fraction": "banana"})
        async with lab.scheduler():
            await served(lab)
            queue = await lab.wait_for_event("InvalidQueue", "team")
            assert "spec.preemptMinRuntime: 'soon' is not a duration" in queue
            assert "the value of the parent queue or the default applies" in queue
            late = await lab.wait_for_event("InvalidPodGroup", "late")
            assert "spec.preemptionDelay: 'soon' is not a duration" in late
            assert "no delay is used" in late
            odd = await lab.wait_for_event("InvalidPodGroup", "odd")
            assert "spec.priorityClassName: priority class 'nowhere' does not exist; priority 50 is used" in odd
            pod = await lab.wait_for_event("InvalidPod", "odd-0")
            assert "metadata.annotations[gpu-fraction]: 'banana' is not a number above 0 and at most 1" in pod
            assert "the pod gets no GPU" in pod
            await lab.until_bound("odd", 1)
        types = {event["type"] for event in lab.events.values() if event["reason"].startswith("Invalid")}
        assert types == {"Warning"}


def exposed(scheduler: Scheduler) -> bytes:
    """The metrics of a scheduler."""
    return metrics.exposition(scheduler.metrics.registry)
