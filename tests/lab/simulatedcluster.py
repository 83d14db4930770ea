"""A small cluster for tests: the embedded API server in memory, simulated machines, a clock that runs fast.

    async with world(speed=100) as w:
        await w.node("n1", gpus=8)
        await w.pod("a", gpus=1, node="n1")
        await w.phase("a", "Running")

Nothing sleeps: every wait is for a change of the cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from pykai.api.meta import ObjectMeta, Wire
from pykai.api.workloads import Deployment, Job, MachinePod, ReplicaSet, StatefulSet
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import Conflict, NotFound
from pykai.kube.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change, Store
from pykai.kube.transport import Transport
from pykai.lab.apiserver.server import ApiServer
from pykai.lab.machines import create_nodes, machines
from pykai.lab.machines.kubelets import Kubelets
from pykai.lab.machines.nodes import MachineKind
from pykai.lab.machines.options import MachineOptions
from pykai.lab.machines.podbehaviour import BehaviourDefaults

T = TypeVar("T")
Document = dict[str, Any]
TIMEOUT_S = 10.0


class RecordedEvent(Wire):
    """A recorded event."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    reason: str = ""
    message: str = ""


class Process:
    """Machines and controllers with caches of their own: what a restart throws away."""

    def __init__(self, transport: Transport, clock: Clock, options: MachineOptions) -> None:
        self.client = Client(transport)
        self.caches = Caches(self.client)
        self.services = machines(Runtime(self.client, self.caches, clock), options)
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def machines(self) -> Kubelets:
        (found,) = [service for service in self.services if isinstance(service, Kubelets)]
        return found

    async def start(self) -> None:
        await self.caches.start()
        await self.caches.wait_for_sync()
        self._tasks = [asyncio.create_task(service.run(self._stop)) for service in self.services]

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)
        await self.caches.stop()

    async def kill(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.caches.stop()


class SimulatedCluster:
    def __init__(self, server: ApiServer, clock: Clock, options: MachineOptions) -> None:
        self.server, self.clock, self.options = server, clock, options
        self.client = Client(server.transport())
        self.caches = Caches(self.client)
        self.pods: Store[MachinePod] = self.caches.store(PODS, MachinePod)
        self.jobs: Store[Job] = self.caches.store(JOBS, Job)
        self.deployments: Store[Deployment] = self.caches.store(DEPLOYMENTS, Deployment)
        self.replica_sets: Store[ReplicaSet] = self.caches.store(REPLICA_SETS, ReplicaSet)
        self.stateful_sets: Store[StatefulSet] = self.caches.store(STATEFUL_SETS, StatefulSet)
        self.events: Store[RecordedEvent] = self.caches.store(EVENTS, RecordedEvent)
        #: every version of every pod, in order
        self.history: list[MachinePod] = []
        self.pods.subscribe(self._remember)
        self.process = Process(server.transport(), clock, options)
        self._binding: set[asyncio.Task[None]] = set()

    def _remember(self, change: Change[MachinePod]) -> None:
        if change.new is not None:
            self.history.append(change.new)

    def binds_to(self, *nodes: str) -> None:
        """From now on pods are bound to these nodes in turn, like a careless scheduler would."""
        count = 0

        def on_change(change: Change[MachinePod]) -> None:
            nonlocal count
            pod = change.new
            if change.old is None and pod is not None and not pod.spec.node_name:
                task = asyncio.create_task(self._bind(pod, nodes[count % len(nodes)]))
                count += 1
                self._binding.add(task)
                task.add_done_callback(self._binding.discard)

        self.pods.subscribe(on_change)

    async def _bind(self, pod: MachinePod, node: str) -> None:
        try:
            await self.client.bind(pod.metadata.namespace, pod.metadata.name, uid=pod.metadata.uid, node=node)
        except (NotFound, Conflict):
            return

    async def restart(self) -> None:
        """Kill the machines and controllers without notice and start others."""
        await self.process.kill()
        self.process = Process(self.server.transport(), self.clock, self.options)
        await self.process.start()

    async def node(self, name: str, count: int = 1, **kind: Any) -> None:
        await create_nodes(self.client, self.clock, [MachineKind(name=name, count=count, **kind)])
        await wait_until(
            lambda: self.process.machines.machine(name if count == 1 else f"{name}-{count - 1}") is not None
        )
        if not self.options.controllers:
            for each in [name] if count == 1 else [f"{name}-{number}" for number in range(count)]:
                await self.client.patch(NODES, each, {"spec": {"taints": list(kind.get("taints", ()))}})

    async def pod(self, name: str, *, node: str = "", **fields: Any) -> Document:
        return await self.client.create(PODS, pod(name, node=node, **fields))

    async def config_map(self, name: str) -> None:
        await self.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": "default"}, "data": {}})

    async def create(self, resource: Resource, obj: Document) -> Document:
        return await self.client.create(resource, obj)

    async def get(self, resource: Resource, name: str) -> Document:
        return await self.client.get_raw(resource, name, "default" if resource.namespaced else "")

    def find(self, name: str) -> MachinePod | None:
        return self.pods.get(name if "/" in name else f"default/{name}")

    async def phase(self, name: str, phase: str) -> MachinePod:
        """Wait until a pod is in this phase."""
        return await self.wait_for_pod(name, lambda found: found.status.phase == phase)

    async def wait_for_pod(self, name: str, holds: Callable[[MachinePod], bool]) -> MachinePod:
        return await wait_for_object(self.pods, name if "/" in name else f"default/{name}", holds)

    async def event(self, reason: str, text: str = "") -> None:
        """Wait for this event."""
        await self.events.wait_until(
            lambda s: any(e.reason == reason and text in e.message for e in s.values()), TIMEOUT_S
        )

    async def gone(self, name: str) -> None:
        await self.pods.wait_until(lambda _: self.find(name) is None, TIMEOUT_S)

    async def wait_for_job(self, name: str, holds: Callable[[Job], bool]) -> Job:
        return await wait_for_object(self.jobs, f"default/{name}", holds)


@asynccontextmanager
async def simulated_cluster(
    speed: float = 100.0,
    *,
    behaviour: BehaviourDefaults | None = None,
    controllers: bool = False,
    all_nodes: bool = True,
    default_scheduler: bool = False,
) -> AsyncIterator[SimulatedCluster]:
    clock = Clock(speed=speed)
    server = await ApiServer.open(clock=clock)
    options = MachineOptions(
        behaviour or BehaviourDefaults(),
        all_nodes=all_nodes,
        controllers=controllers,
        default_scheduler=default_scheduler,
    )
    made = SimulatedCluster(server, clock, options)
    await made.caches.start()
    await made.caches.wait_for_sync()
    await made.process.start()
    try:
        yield made
    finally:
        await made.process.stop()
        await made.caches.stop()
        await server.close()


async def wait_for_object(store: Store[T], key: str, holds: Callable[[T], bool]) -> T:
    """Wait until an object exists and is as it should be."""
    await store.wait_until(lambda s: (found := s.get(key)) is not None and holds(found), TIMEOUT_S)
    found = store.get(key)
    assert found is not None
    return found


async def wait_until(holds: Callable[[], bool]) -> None:
    """Give the loop its turns until something holds in memory."""
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():
            await asyncio.sleep(0)


def pod(
    name: str = "p",
    *,
    node: str = "",
    namespace: str = "default",
    gpus: int = 0,
    cpu: str = "",
    memory: str = "",
    restart: str = "Never",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    containers: int = 1,
    init: int = 0,
    sidecars: int = 0,
    **spec: Any,
) -> Document:
    """A pod as a user writes it."""
    requests = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": str(gpus or "")}
    resources = {key: value for key, value in requests.items() if value}
    listed = [
        {"name": f"c{number}", "image": "image", "resources": {"requests": resources, "limits": resources}}
        for number in range(containers)
    ]
    body: Document = {"restartPolicy": restart, "containers": listed, **spec}
    if init or sidecars:
        body["initContainers"] = [
            *({"name": f"sidecar{n}", "image": "image", "restartPolicy": "Always"} for n in range(sidecars)),
            *({"name": f"init{n}", "image": "image"} for n in range(init)),
        ]
    if node:
        body["nodeName"] = node
    metadata: Document = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def template(
    *, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None, **fields: Any
) -> Document:
    """A pod template."""
    made = pod("unused", **fields)
    metadata: Document = {}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"metadata": metadata, "spec": made["spec"]}
