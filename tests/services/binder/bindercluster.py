"""A small cluster for tests of the binder: an API server, nodes, pods, requests, and a kubelet that plays the
reservation program.  Methods are actions of users and the scheduler; `until_*` wait for the binder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.unstructured import JsonObject
from pykai.binder.options import BinderOptions
from pykai.binder.service import BinderService, make_binder
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import NotFound
from pykai.kube.resources import (
    BIND_REQUESTS,
    CONFIG_MAPS,
    EVENTS,
    NODES,
    PODS,
    Resource,
)
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change
from pykai.kube.transport import Request, Response, Stream, Transport
from tests.servers import Server, api_server, ensure_namespace

RESERVATIONS = names.RESERVATION_NAMESPACE
Fault = Callable[[Request], Response | Exception | None]


def status(code: int, reason: str, message: str = "injected") -> Response:
    """An error answer."""
    return Response(code, msgspec.json.encode({"kind": "Status", "code": code, "reason": reason, "message": message}))


class FaultyBinderTransport:
    """A transport that records writes, and answers instead of the server where a fault is set."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.writes: list[str] = []
        #: called before each request; an answer or an error replaces the server's
        self.fault: Fault = lambda request: None
        #: called after each request that the server has carried out
        self.fault_after: Fault = lambda request: None
        #: how the bytes of a watch are changed
        self.garble: Callable[[bytes], bytes] = lambda chunk: chunk

    async def send(self, request: Request) -> Response:
        """Like the inner transport, faults apart."""
        instead = self.fault(request)
        if instead is None:
            if request.method != "GET":
                self.writes.append(f"{request.method} {request.path}")
            answer = await self._inner.send(request)
            instead = self.fault_after(request)
            if instead is None:
                return answer
        if isinstance(instead, Exception):
            raise instead
        return instead

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """The inner transport's, garbled."""
        return self._garbled(request)

    @asynccontextmanager
    async def _garbled(self, request: Request) -> AsyncIterator[Stream]:
        async with self._inner.stream(request) as stream:
            yield GarbledStream(stream, self)

    async def close(self) -> None:
        """The inner transport's."""
        await self._inner.close()


class GarbledStream:
    """A watch through a `FaultyBinderTransport`."""

    def __init__(self, inner: Stream, through: FaultyBinderTransport) -> None:
        self._inner = inner
        self._through = through
        self.status = inner.status
        self.headers = inner.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """The inner stream's, garbled."""
        async for chunk in self._inner.chunks():
            yield self._through.garble(chunk)


class DyingTransport(FaultyBinderTransport):
    """Dies after a number of writes: the next one never returns, and neither does anything after it."""

    def __init__(self, inner: Transport, after: int) -> None:
        super().__init__(inner)
        self._after = after
        self.dead = asyncio.Event()

    async def send(self, request: Request) -> Response:
        """Like the inner transport, while it lives."""
        if request.method != "GET" and not request.path.endswith("/events") and len(self.writes) >= self._after:
            self.dead.set()
        if self.dead.is_set():
            await asyncio.get_running_loop().create_future()
        return await super().send(request)


@dataclass
class Running:
    """A binder at work."""

    service: BinderService
    transport: FaultyBinderTransport
    caches: Caches
    task: asyncio.Task[None]
    stop: asyncio.Event
    registry: CollectorRegistry

    def count(self, name: str, **labels: str) -> float:
        """A figure of its metrics."""
        return self.registry.get_sample_value(f"kai_binder_{name}", labels) or 0.0

    async def end(self) -> None:
        """As SIGTERM does."""
        self.stop.set()
        await self.task
        await self.caches.stop()


class BinderCluster:
    """The cluster of a test."""

    def __init__(self, server: Server, clock: Clock) -> None:
        self.server = server
        self.clock = clock
        self.client = Client(server.transport())
        self.caches = Caches(self.client)
        self.pods = self.caches.store(PODS, Pod)
        #: whether the reservation program reports its GPU
        self.answers = True
        self.gpus = 0
        #: work of the kubelet in progress
        self.tasks: set[asyncio.Task[None]] = set()
        self._given: set[str] = set()
        self._changed = asyncio.Event()
        self._watched: set[Resource] = set()
        self.pods.subscribe(lambda _: self._changed.set())
        self._watch(BIND_REQUESTS)
        self._watch(CONFIG_MAPS)

    async def open(self) -> None:
        """Namespaces, and the kubelet."""
        for name in (RESERVATIONS, names.SCALE_ADJUST_NAMESPACE, names.DEFAULT_NAMESPACE, "ns"):
            await ensure_namespace(self.client, name)
        await self.caches.start()
        await self.caches.wait_for_sync()
        self.pods.subscribe(self._kubelet)

    async def close(self) -> None:
        """End everything."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.caches.stop()

    def _watch(self, resource: Resource) -> None:
        if resource not in self._watched:
            self._watched.add(resource)
            self.caches.store(resource, dict).subscribe(lambda _: self._changed.set())

    def _kubelet(self, change: Change[Pod]) -> None:
        pod = change.new
        if not self.answers or pod is None or pod.metadata.namespace != RESERVATIONS or pod.metadata.uid in self._given:
            return
        self._given.add(pod.metadata.uid)
        self.gpus += 1
        task = asyncio.ensure_future(self._tell_gpu(pod.metadata.name, f"GPU-{self.gpus}"))
        self.tasks.add(task)

    async def _tell_gpu(self, name: str, gpu: str) -> None:
        try:
            await self.annotate_reservation(name, gpu)
            await self.client.patch(PODS, name, {"status": {"phase": "Running"}}, RESERVATIONS, subresource="status")
        except NotFound:
            pass

    async def annotate_reservation(self, name: str, gpu: str) -> None:
        """What the reservation program does."""
        patch = {"metadata": {"annotations": {names.RESERVED_GPU_ANNOTATION: gpu}}}
        await self.client.patch(PODS, name, patch, RESERVATIONS)

    async def node(self, name: str = "n1", labels: dict[str, str] | None = None) -> None:
        """A machine."""
        facts = {names.GPU_MEMORY_NODE_LABEL: "15360", **(labels or {})}
        status = {"allocatable": {"nvidia.com/gpu": "8"}}
        await self.client.create(NODES, {"metadata": {"name": name, "labels": facts}, "status": status})

    async def pod(
        self,
        name: str = "p",
        *,
        fraction: str = "",
        devices: int = 1,
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        namespace: str = "ns",
        **spec: Any,
    ) -> JsonObject:
        """A pod of ours, in namespace `ns` unless another is given."""
        asked = dict(annotations or {})
        if fraction:
            asked[names.GPU_FRACTION_ANNOTATION] = fraction
        if devices > 1:
            asked[names.GPU_NUM_DEVICES_ANNOTATION] = str(devices)
        document = {
            "metadata": {"name": name, "namespace": namespace, "annotations": asked, "labels": labels or {}},
            "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "c", "image": "i"}], **spec},
        }
        return await self.client.create(PODS, document)

    async def request(
        self,
        pod: JsonObject,
        node: str = "n1",
        *,
        groups: tuple[str, ...] = (),
        owners: Sequence[tuple[str, str]] = (),
        owners_version: str = "v1",
        **spec: Any,
    ) -> JsonObject:
        """What the scheduler decides about a pod; with groups it gets the part of each GPU that it requests."""
        metadata = pod["metadata"]
        wanted: JsonObject = {"podName": metadata["name"], "selectedNode": node}
        if groups:
            wanted |= {"receivedResourceType": "Fraction", "selectedGPUGroups": list(groups)}
            asked = (metadata.get("annotations") or {}).get(names.GPU_FRACTION_ANNOTATION, "0.5")
            wanted["receivedGPU"] = {"count": len(groups), "portion": f"{float(asked):.2f}"}
        else:
            wanted |= {"receivedResourceType": "Regular", "receivedGPU": {"count": 1, "portion": "1.00"}}
        pods = owners or [(metadata["name"], metadata["uid"])]
        references = [{"apiVersion": owners_version, "kind": "Pod", "name": name, "uid": uid} for name, uid in pods]
        document = {
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "labels": {names.SELECTED_NODE_LABEL: node},
                "ownerReferences": references,
            },
            "spec": wanted | spec,
        }
        return await self.client.create(BIND_REQUESTS, document)

    async def set_phase(self, pod: str, phase: str, namespace: str = "ns") -> None:
        """The status of a pod by its kubelet."""
        await self.client.patch(PODS, pod, {"status": {"phase": phase}}, namespace, subresource="status")

    async def get(self, resource: Resource, name: str, namespace: str = "ns") -> JsonObject | None:
        """An object as it is now, or None."""
        try:
            return await self.client.get_raw(resource, name, namespace)
        except NotFound:
            return None

    async def live(self, name: str = "p") -> JsonObject:
        """A pod of `ns` as it is now."""
        return await self.client.get_raw(PODS, name, "ns")

    async def config_maps(self) -> dict[str, dict[str, str]]:
        """Data of the ConfigMaps of `ns`, by name."""
        found = await self.client.list_raw(CONFIG_MAPS, namespace="ns")
        return {each["metadata"]["name"]: each.get("data") or {} for each in found}

    async def reservations(self) -> list[JsonObject]:
        """The reservation pods."""
        return await self.client.list_raw(PODS, namespace=RESERVATIONS)

    async def events(self, reason: str) -> list[JsonObject]:
        """The events of a reason."""
        return [event for event in await self.client.list_raw(EVENTS) if event["reason"] == reason]

    async def until(self, holds: Callable[[], Any], *, of: Resource = PODS, timeout_s: float = 10.0) -> Any:
        """Wait, change by change of pods, requests, ConfigMaps and of one more kind, until a coroutine function gives
        something true."""
        if of != PODS:
            self._watch(of)
        async with asyncio.timeout(timeout_s):
            while True:
                self._changed.clear()
                found = await holds()
                if found:
                    return found
                await self._changed.wait()

    async def until_phase(self, phase: str, name: str = "p", **status: Any) -> JsonObject:
        """Wait for a request to be in a phase."""

        last: JsonObject | None = None

        async def settled() -> JsonObject | None:
            nonlocal last
            last = await self.get(BIND_REQUESTS, name)
            told = (last or {}).get("status") or {}
            return last if told.get("phase") == phase and all(told.get(k) == v for k, v in status.items()) else None

        try:
            found: JsonObject = await self.until(settled)
        except TimeoutError:
            state = "is gone" if last is None else f"has the status {last.get('status')}"
            raise AssertionError(f"BindRequest {name} {state}, and is not {phase}") from None
        return found

    async def until_reservations(self, count: int) -> None:
        """Wait for a number of reservation pods."""

        async def there() -> bool:
            return len(await self.reservations()) == count

        await self.until(there)

    async def binder(
        self,
        options: BinderOptions | None = None,
        *,
        transport: FaultyBinderTransport | None = None,
        lease_retry_s: float = names.LEASE_RETRY_S,
    ) -> Running:
        """Start a binder."""
        wire = transport or FaultyBinderTransport(self.server.transport("binder"))
        client = Client(wire)
        caches = Caches(client)
        registry = CollectorRegistry()
        service = make_binder(Runtime(client, caches, self.clock), options or BinderOptions(), registry=registry)
        assert isinstance(service, BinderService)
        service.lease_retry_s = lease_retry_s
        await caches.start()
        stop = asyncio.Event()
        task = asyncio.ensure_future(service.run(stop))
        return Running(service, wire, caches, task, stop, registry)

    async def binder_that_dies(self, after: int) -> None:
        """A binder that is killed at its next write after so many: nothing is finished, nothing is reported."""
        before = asyncio.all_tasks()
        dying = DyingTransport(self.server.transport("binder"), after)
        await self.binder(transport=dying)
        await dying.dead.wait()
        dead = asyncio.all_tasks() - before - self.tasks
        for task in dead:
            task.cancel()
        await asyncio.gather(*dead, return_exceptions=True)

    @asynccontextmanager
    async def working(self, options: BinderOptions | None = None) -> AsyncIterator[Running]:
        """A binder within the block."""
        running = await self.binder(options)
        try:
            yield running
        finally:
            await running.end()


@asynccontextmanager
async def binder_cluster(*, speed: float = 1.0) -> AsyncIterator[BinderCluster]:
    """A cluster with one node."""
    clock = Clock(speed=speed)
    async with api_server(clock, sharing=True) as server:
        made = BinderCluster(server, clock)
        try:
            await made.open()
            await made.node()
            yield made
        finally:
            await made.close()
