"""Pods that share GPUs on the real control plane: scheduler and binder under their own accounts, simulated kubelets.

Three halves on a machine with two GPUs are two groups.  Each pod gets the GPU of its group and no other, and when
the pods are gone the reservation pods and ConfigMaps go too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pykai.api import names
from pykai.binder.options import BinderOptions
from pykai.binder.service import make_binder
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.resources import CONFIG_MAPS, POD_GROUPS, PODS, QUEUES
from pykai.kube.runtime import Runtime, Service, run_services
from pykai.kube.store import Store
from pykai.lab.machines import create_nodes, machines
from pykai.lab.machines.nodes import MachineKind
from pykai.lab.machines.options import MachineOptions
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from pykai.scheduler.flags import read_flags
from pykai.scheduler.service import make_scheduler
from tests.cluster.plane import ADMITTED_NAMESPACE
from tests.servers import Server, api_server

pytestmark = [pytest.mark.cluster_only, pytest.mark.usefixtures("plane")]

Document = dict[str, Any]
QUICK = BehaviourDefaults(start_s=0.05, stop_s=0.05, reservation_start_s=0.05)


@asynccontextmanager
async def at_work(server: Server, clock: Clock) -> AsyncIterator[None]:
    """Scheduler, binder and machines, each as a process of its own would be."""
    stop = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    def runtime(user: str) -> Runtime:
        client = Client(server.transport(user))
        return Runtime(client, Caches(client), clock)

    def start(over: Runtime, services: Sequence[Service]) -> None:
        tasks.append(asyncio.create_task(run_services(over, services, stop)))

    start(over := runtime("scheduler"), [make_scheduler(over, read_flags({}), endpoints=False)])
    start(over := runtime("binder"), [make_binder(over, BinderOptions())])
    # No other controller manages nodes here; a kube-scheduler is not needed.
    start(over := runtime("admin"), machines(over, MachineOptions(QUICK, default_scheduler=False)))
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


@asynccontextmanager
async def seen(client: Client) -> AsyncIterator[tuple[Store[Document], Store[Document]]]:
    """All pods, and the ConfigMaps beside those of the test."""
    caches = Caches(client)
    pods, maps = caches.store(PODS, dict), caches.store(CONFIG_MAPS, dict, namespace=ADMITTED_NAMESPACE)
    await caches.start()
    try:
        yield pods, maps
    finally:
        await caches.stop()


async def half_a_gpu(client: Client, name: str) -> None:
    """A pod that requests half of a GPU, alone in its group."""
    await client.create(
        POD_GROUPS, {"metadata": {"name": name}, "spec": {"queue": "team", "minMember": 1}}, ADMITTED_NAMESPACE
    )
    notes = {names.GPU_FRACTION_ANNOTATION: "0.5", names.POD_GROUP_ANNOTATION: name}
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "main", "image": "example"}]}
    await client.create(PODS, {"metadata": {"name": name, "annotations": notes}, "spec": spec}, ADMITTED_NAMESPACE)


def within(store: Store[Document], namespace: str) -> list[Document]:
    return [each for each in store.values() if each["metadata"]["namespace"] == namespace]


def running(pods: Store[Document]) -> list[Document]:
    return [each for each in within(pods, ADMITTED_NAMESPACE) if each["status"]["phase"] == "Running"]


async def test_three_halves_share_two_gpus_and_leave_nothing_behind() -> None:
    clock = Clock()
    async with api_server(clock, sharing=True, namespaces=[ADMITTED_NAMESPACE]) as server:
        client = Client(server.transport())
        enough = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        resources = {"gpu": enough, "cpu": enough, "memory": enough}
        await client.create(QUEUES, {"metadata": {"name": "team"}, "spec": {"resources": resources}})
        await create_nodes(client, clock, [MachineKind(name="machine", gpus=2)])
        async with at_work(server, clock), seen(client) as (pods, maps):
            for name in ("a", "b", "c"):
                await half_a_gpu(client, name)
            await pods.wait_until(lambda _: len(running(pods)) == 3)

            gpus = {
                each["metadata"]["labels"][names.GPU_GROUP_LABEL]: each["metadata"]["annotations"][
                    names.RESERVED_GPU_ANNOTATION
                ]
                for each in within(pods, names.RESERVATION_NAMESPACE)
            }
            assert len(set(gpus.values())) == 2
            groups = [each["metadata"]["labels"][names.GPU_GROUP_LABEL] for each in running(pods)]
            assert sorted(map(groups.count, gpus)) == [1, 2]
            for each in running(pods):
                told = await client.get_raw(
                    CONFIG_MAPS,
                    each["metadata"]["annotations"][names.SHARED_GPU_CONFIGMAP_ANNOTATION] + "-0",
                    ADMITTED_NAMESPACE,
                )
                assert told["data"]["NVIDIA_VISIBLE_DEVICES"] == gpus[each["metadata"]["labels"][names.GPU_GROUP_LABEL]]
                assert told["data"]["GPU_PORTION"] == "0.50"
                assert each["spec"]["nodeName"] == "machine"

            for name in ("a", "b", "c"):
                await client.delete(PODS, name, ADMITTED_NAMESPACE)
            await pods.wait_until(lambda _: not len(pods))
            await maps.wait_until(lambda _: not any("shared-gpu" in key for key in list(maps.keys())))
