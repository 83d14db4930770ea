"""A cluster in memory for the services around pods and groups, whose methods read like what people do.

`running(service)` starts a service with caches of its own, as a process would; `Wire` notes what it writes and spoils
what a test wants spoilt.  Waiting is on changes: `settled` returns when a service has nothing left to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import msgspec

from pykai.api.core import Pod
from pykai.api.scheduling import PodGroup, Queue
from pykai.apiserver.server import ApiServer
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.resources import Resource
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.kube.transport import Request, Response, Stream, Transport

Document = dict[str, Any]
Labels = Mapping[str, str]
CLASSES = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
#: Instead of the server: an answer, an error, or None for what the server says.
Fault = Callable[[Request], Response | Exception | None]


def refusal(code: int, reason: str) -> Response:
    """An answer that is an error."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": f"injected {reason}"}
    return Response(code, msgspec.json.encode(body))


class Wire:
    """A transport that notes writes and reads, and spoils some."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.writes: list[str] = []
        self.reads: list[str] = []
        self.fault: Fault = lambda request: None
        #: asked once the server has done it: the answer is lost or replaced
        self.fault_after: Fault = lambda request: None

    async def send(self, request: Request) -> Response:
        notes = self.reads if request.method == "GET" else self.writes
        if "/events" not in request.path:
            notes.append(f"{request.method} {request.path}")
        spoilt = self.fault(request)
        if spoilt is None:
            answer = await self._inner.send(request)
            spoilt = self.fault_after(request)
            if spoilt is None:
                return answer
        if isinstance(spoilt, Exception):
            raise spoilt
        return spoilt

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


class Worker(Protocol):
    """A service that says when it has nothing left to do."""

    async def run(self, stop: asyncio.Event) -> None: ...

    def idle(self) -> bool: ...


class Workplace:
    """The cluster, from outside."""

    def __init__(self, server: ApiServer, clock: Clock) -> None:
        self.server = server
        self.clock = clock
        self.client = Client(server.transport())
        self.caches = Caches(self.client)
        self.pods: Store[Pod] = self.caches.store(resources.PODS, Pod)
        self.groups: Store[PodGroup] = self.caches.store(resources.POD_GROUPS, PodGroup)
        self.queues: Store[Queue] = self.caches.store(resources.QUEUES, Queue)
        self.events = self.caches.store(resources.EVENTS, dict)

    @asynccontextmanager
    async def running(
        self, make: Callable[[Runtime], Worker], *, transport: Transport | None = None, user: str = "admin"
    ) -> AsyncIterator[Worker]:
        """A service at work in a process of its own; it is settled when the block ends."""
        client = Client(transport or self.server.transport(user))
        caches = Caches(client)
        service = make(Runtime(client, caches, self.clock))
        await caches.start()
        stop = asyncio.Event()
        task = asyncio.create_task(service.run(stop))
        try:
            yield service
            await self.settled(service)
        finally:
            stop.set()
            await asyncio.wait_for(task, 10)
            await caches.stop()

    async def settled(self, service: Worker, timeout_s: float = 10.0) -> None:
        """Wait until the service has seen everything and has nothing left to do."""
        async with asyncio.timeout(timeout_s):
            quiet = 0
            # Events take a few turns of the loop from the server through the watch to the service.
            while quiet < 20:
                quiet = quiet + 1 if service.idle() else 0
                await asyncio.sleep(0 if quiet else 0.002)

    def load(self, obj: Document) -> None:
        """Put an object into storage as it is, uid included, past every rule."""
        kind = self.server.registry.named(obj["apiVersion"], obj["kind"])
        assert kind is not None, obj["kind"]
        self.server.writer.write(kind, msgspec.json.decode(msgspec.json.encode(obj)))

    async def create(self, resource: Resource, name: str, **fields: Any) -> Document:
        """Create an object; `labels`, `annotations` and `owners` go into its metadata."""
        metadata: Document = {"name": name}
        if resource.namespaced:
            metadata["namespace"] = fields.pop("namespace", "default")
        for ours, theirs in (("labels", "labels"), ("annotations", "annotations"), ("owners", "ownerReferences")):
            if fields.get(ours):
                metadata[theirs] = fields.pop(ours)
            fields.pop(ours, None)
        return await self.client.create(resource, {"metadata": metadata, **fields}, metadata.get("namespace", ""))

    async def pod(
        self,
        name: str,
        *,
        by: Document | None = None,
        group: str = "",
        requests: Labels | None = None,
        annotations: Labels | None = None,
        scheduler: str = "kai-scheduler",
        namespace: str = "default",
        spec: Document | None = None,
        labels: Labels | None = None,
    ) -> Document:
        """A pod, owned by an object, in a group."""
        container = {"name": "main", "image": "example", "resources": {"requests": dict(requests or {"cpu": "1"})}}
        noted = dict(annotations or {})
        if group:
            noted["pod-group-name"] = group
        return await self.create(
            resources.PODS,
            name,
            namespace=namespace,
            annotations=noted,
            labels=dict(labels or {}),
            owners=[reference(by)] if by is not None else [],
            spec={"schedulerName": scheduler, "containers": [container], **(spec or {})},
        )

    async def job(
        self, name: str = "j", *, namespace: str = "default", completions: int = 1, **metadata: Any
    ) -> Document:
        template = {
            "spec": {
                "schedulerName": "kai-scheduler",
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "example"}],
            }
        }
        spec = {"completions": completions, "template": template}
        return await self.create(resources.JOBS, name, namespace=namespace, spec=spec, **metadata)

    async def classes(self, **values: int) -> None:
        """Priority classes, those that KAI installs unless others are named."""
        for name, value in (values or CLASSES).items():
            await self.create(resources.PRIORITY_CLASSES, name, value=value)

    async def queue(self, name: str, parent: str = "", quota: float = -1, **spec: Any) -> Document:
        numbers = {"quota": quota, "limit": -1, "overQuotaWeight": 1}
        fields: Document = {"resources": {"gpu": numbers, "cpu": numbers, "memory": numbers}, **spec}
        if parent:
            fields["parentQueue"] = parent
        return await self.create(resources.QUEUES, name, spec=fields)

    async def group(self, name: str, **spec: Any) -> Document:
        return await self.create(resources.POD_GROUPS, name, spec={"queue": "q", "minMember": 1, **spec})

    async def pod_status(self, name: str, namespace: str = "default", **status: Any) -> None:
        """What a kubelet would write."""
        await self.client.patch(resources.PODS, name, {"status": status}, namespace, subresource="status")

    async def bind(self, name: str, node: str = "node-0") -> None:
        found = await self.client.get(resources.PODS, name, "default", into=Pod)
        await self.client.bind("default", name, uid=found.metadata.uid, node=node)

    async def raw_groups(self, namespace: str = "") -> list[Document]:
        return await self.client.list_raw(resources.POD_GROUPS, namespace=namespace)

    async def raw_pod(self, name: str, namespace: str = "default") -> Document:
        return await self.client.get_raw(resources.PODS, name, namespace)

    async def warned(self, about: str, reason: str, timeout_s: float = 10.0) -> str:
        """Wait for a warning about an object; its message."""
        found: list[str] = []

        def told(events: Store[Document]) -> bool:
            found[:] = [
                event["message"]
                for event in events.values()
                if event["involvedObject"].get("name") == about and event["reason"] == reason
            ]
            return bool(found)

        await self.events.until(told, timeout_s)
        return found[0]


def reference(owner: Document) -> Document:
    """A controller's reference to an object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


@asynccontextmanager
async def workplace(clock: Clock | None = None) -> AsyncIterator[Workplace]:
    """An empty cluster."""
    time = clock or Clock()
    server = await ApiServer.open(clock=time)
    place = Workplace(server, time)
    await place.caches.start()
    await place.caches.synced()
    try:
        yield place
    finally:
        await place.caches.stop()
        await server.close()
