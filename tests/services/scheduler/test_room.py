"""A bind that no longer fits is not sent: pods of others came to its node between the decision and the write."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pykai.api import names
from pykai.kube import resources
from pykai.kube.errors import ConnectionLost
from pykai.kube.transport import Request
from pykai.scheduler.service import Scheduler
from tests.services.scheduler.schedulercluster import SchedulerCluster, running, scheduler_cluster

BINDING = r"/pods/[^/]+/binding$"
PLAN = r"/configmaps$"
REQUESTS = r"/bindrequests$"


async def foreign(lab: SchedulerCluster, name: str, node: str, *, gpu: int = 0, cpu: str = "1", port: int = 0) -> None:
    """A pod that another scheduler has bound."""
    requests = {"cpu": cpu, **({names.NVIDIA_GPU: str(gpu)} if gpu else {})}
    ports = [{"containerPort": port, "hostPort": port}] if port else []
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": requests, "limits": requests},
        "ports": ports,
    }
    spec = {"schedulerName": "default-scheduler", "nodeName": node, "containers": [container]}
    await lab.create(resources.PODS, {"metadata": {"name": name}, "spec": spec})


def before(lab: SchedulerCluster, path: str, work: Callable[[], Awaitable[None]], times: int = 1) -> None:
    """Let something happen while the first write of a kind is under way."""
    left = [times]

    async def on_write(request: Request) -> None:
        if left[0] and request.method in ("POST", "PATCH") and re.search(path, request.path):
            left[0] -= 1
            await work()

    lab.faults.on_write = on_write


async def seen(scheduler: Scheduler, name: str) -> None:
    await scheduler.intake.pods.wait_until(lambda store: f"default/{name}" in store, 10)


def overtaken(scheduler: Scheduler) -> float:
    return scheduler.metrics.registry.get_sample_value("kai_binds_overtaken_total") or 0.0


@pytest.mark.parametrize("taken", [{"gpu": 1}, {"cpu": "64"}, {"port": 8080}])
async def test_a_pod_is_not_bound_to_a_node_that_others_filled_meanwhile(taken: dict[str, Any]) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        scheduler = lab.make_scheduler()
        async with running(scheduler):
            ports = [{"name": "main", "image": "none", "ports": [{"containerPort": 8080, "hostPort": 8080}]}]
            spec: dict[str, Any] = {"containers": ports} if "port" in taken else {}

            async def others_come() -> None:
                await foreign(lab, "foreign", "a", **taken)
                await seen(scheduler, "foreign")

            # The first attempt is lost on the way; before the second, the place is taken.
            before(lab, BINDING, others_come)
            lab.faults.lose("POST", BINDING, ConnectionLost("injected"), carried_out=False)
            await lab.group("job")
            await lab.pod("job-0", "job", gpu=1, **spec)
            await lab.pods.wait_until(lambda _: overtaken(scheduler) == 1, 10)
            await lab.pods.wait_until(lambda _: lab.condition("job-0")[1] == "Unschedulable", 10)
            assert not lab.placed("job")
            await lab.client.delete(resources.PODS, "foreign", "default", grace_s=0)
            await lab.until_bound("job", 1)


async def test_a_pod_is_bound_where_others_came_and_it_still_fits() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        scheduler = lab.make_scheduler()
        async with running(scheduler):

            async def others_come() -> None:
                await foreign(lab, "foreign", "a", gpu=1)
                await seen(scheduler, "foreign")

            before(lab, BINDING, others_come)
            lab.faults.lose("POST", BINDING, ConnectionLost("injected"), carried_out=False)
            await lab.gang("job", pods=1, gpu=1)
            await lab.until_bound("job", 1)
        assert overtaken(scheduler) == 0


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_pod_is_not_bound_to_a_node_that_was_deleted_or_recreated_smaller(comes_back: bool) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        scheduler = lab.make_scheduler()
        async with running(scheduler):

            async def it_goes() -> None:
                node = await lab.client.get_raw(resources.NODES, "a")
                await lab.client.delete(resources.NODES, "a")
                await scheduler.intake.nodes.wait_until(lambda store: "a" not in store, 10)
                if comes_back:
                    node["status"]["allocatable"][names.NVIDIA_GPU] = "1"
                    smaller = {"metadata": {"name": "a"}, "status": node["status"]}
                    await lab.client.create(resources.NODES, smaller)
                    await scheduler.intake.nodes.wait_until(lambda store: "a" in store, 10)

            before(lab, BINDING, it_goes)
            lab.faults.lose("POST", BINDING, ConnectionLost("injected"), carried_out=False)
            await lab.gang("job", pods=1, gpu=2)
            await lab.pods.wait_until(lambda _: overtaken(scheduler) == 1, 10)
            await lab.pods.wait_until(lambda _: lab.condition("job-0")[1] == "Unschedulable", 10)
            assert not lab.placed("job")
        # The server would have taken the bind: it does not look whether there is such a node.
        assert len(lab.faults.written("POST", BINDING)) == 1


async def test_a_gang_does_not_begin_when_one_of_its_nodes_was_filled() -> None:
    async with scheduler_cluster() as lab:
        for name in ("a", "b"):
            await lab.node(name, gpus=1)
        scheduler = lab.make_scheduler()
        async with running(scheduler):

            async def others_come() -> None:
                await foreign(lab, "foreign", "b", gpu=1)
                await seen(scheduler, "foreign")

            before(lab, PLAN, others_come)
            await lab.gang("train", pods=2, gpu=1)
            await lab.pods.wait_until(lambda _: overtaken(scheduler) == 2, 10)
            await lab.until_no_records()
            assert not lab.faults.written("POST", BINDING)
            lab.faults.on_write = None
            await lab.client.delete(resources.PODS, "foreign", "default", grace_s=0)
            await lab.until_bound("train", 2)


async def test_a_started_gang_finds_another_node_for_a_pod_that_lost_its_own() -> None:
    async with scheduler_cluster() as lab:
        for name in ("a", "b"):
            await lab.node(name, gpus=1)
        scheduler = lab.make_scheduler()
        async with running(scheduler):
            await lose_one_place(lab, scheduler)
            await lab.node("c", gpus=1)
            await lab.until_bound("train", 2)
            await lab.until_no_records()
        assert "c" in lab.placed("train").values()


@pytest.mark.embedded_only("five seconds pass until the gang gives up, which needs fast time")
async def test_a_gang_whose_pod_finds_no_other_node_gives_its_nodes_back() -> None:
    async with scheduler_cluster(speed=20) as lab:
        for name in ("a", "b"):
            await lab.node(name, gpus=1)
        scheduler = lab.make_scheduler()
        async with running(scheduler):
            await lose_one_place(lab, scheduler)
            assert "others came to node" in await lab.wait_for_event(names.EVENT_GANG_BROKEN, "train")
            await lab.pods.wait_until(lambda _: all(going(lab, name) for name in lab.placed("train")), 10)


def going(lab: SchedulerCluster, name: str) -> bool:
    pod = lab.pods.get(f"default/{name}")
    return pod is None or pod.metadata.deletion_timestamp is not None


async def lose_one_place(lab: SchedulerCluster, scheduler: Scheduler) -> None:
    """One pod of a gang is bound; the other loses its node to another pod before it is."""
    lost: list[str] = []

    async def others_come(request: Request) -> None:
        if request.method != "POST" or not re.search(BINDING, request.path) or lost:
            return
        lost.append(request.path.split("/")[-2])
        node = next(
            each.spec.selected_node
            for each in scheduler.intake.binds.effective_requests()
            if each.spec.pod_name == lost[0]
        )
        await foreign(lab, "foreign", node, gpu=1)
        await seen(scheduler, "foreign")

    lab.faults.on_write = others_come
    lab.faults.lose("POST", BINDING, ConnectionLost("injected"), carried_out=False)
    await lab.gang("train", pods=2, gpu=1)
    await lab.until_bound("train", 1)
    await lab.pods.wait_until(lambda _: overtaken(scheduler) == 1, 10)


async def test_a_new_shared_gpu_needs_a_whole_free_gpu() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1, memory_mib=40_000)
        scheduler = lab.make_scheduler()
        async with running(scheduler):

            async def others_come() -> None:
                await foreign(lab, "foreign", "a", gpu=1)
                await seen(scheduler, "foreign")

            before(lab, REQUESTS, others_come)
            lab.faults.lose("POST", REQUESTS, ConnectionLost("injected"), carried_out=False)
            await lab.gang("share", pods=1, annotations={names.GPU_FRACTION_ANNOTATION: "0.5"})
            await lab.pods.wait_until(lambda _: overtaken(scheduler) == 1, 10)
            assert len(lab.requests) == 0
