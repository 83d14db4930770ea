"""A cluster for the services around pods and groups, with methods named after user actions.

`running(service)` starts a service with caches of its own and under its own role, as a process would; `wire` gives it a
transport that notes what it writes and spoils what a test wants spoilt.  Waiting is on changes: `settled` returns when
a service has nothing left to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar, overload

import msgspec

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.scheduling import PodGroup, Queue
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.reflector import WatchTimeouts
from pykai.kube.resources import Resource
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.kube.transport import Request, Response, Stream, Transport
from tests.cluster.plane import install
from tests.servers import Server, api_server

Document = dict[str, Any]
Labels = Mapping[str, str]
CLASSES = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
#: Instead of the server: an answer, an error, or None for what the server says.
Fault = Callable[[Request], Response | Exception | None]


def refusal(code: int, reason: str) -> Response:
    """An answer that is an error."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": f"injected {reason}"}
    return Response(code, msgspec.json.encode(body))


class _Reworded:
    """A watch, its words changed; a word that is cut in two by the network stays as it is."""

    def __init__(self, inner: Stream, reword: Callable[[bytes], bytes]) -> None:
        self._inner = inner
        self._reword = reword

    @property
    def status(self) -> int:
        return self._inner.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._inner.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            yield self._reword(chunk)


class RecordingTransport:
    """A transport that notes writes and reads, and spoils some."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.writes: list[str] = []
        self.reads: list[str] = []
        self.fault: Fault = lambda request: None
        #: called once the server has done it: the answer is lost or replaced
        self.fault_after: Fault = lambda request: None
        #: what the service reads in place of what the server says, in answers and in watches
        self.reword: Callable[[Request, bytes], bytes] = lambda request, body: body

    async def send(self, request: Request) -> Response:
        notes = self.reads if request.method == "GET" else self.writes
        if "/events" not in request.path:
            notes.append(f"{request.method} {request.path}")
        spoilt = self.fault(request)
        if spoilt is None:
            answer = await self._inner.send(request)
            spoilt = self.fault_after(request)
            if spoilt is None:
                return (
                    msgspec.structs.replace(answer, body=self.reword(request, answer.body))
                    if request.method == "GET"
                    else answer
                )
        if isinstance(spoilt, Exception):
            raise spoilt
        return spoilt

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self._inner.stream(request) as stream:
            yield _Reworded(stream, lambda body: self.reword(request, body))

    async def close(self) -> None:
        await self._inner.close()


W = TypeVar("W", bound=RecordingTransport)


class IdleReportingService(Protocol):
    """A service that says when it has nothing left to do."""

    async def run(self, stop: asyncio.Event) -> None: ...

    def idle(self) -> bool: ...


class ServiceCluster:
    """The cluster, from outside."""

    def __init__(self, server: Server, clock: Clock, role: str) -> None:
        self.server = server
        self.clock = clock
        self.role = role
        self.client = Client(server.transport())
        self.caches = Caches(self.client)
        self.pods: Store[Pod] = self.caches.store(resources.PODS, Pod)
        self.groups: Store[PodGroup] = self.caches.store(resources.POD_GROUPS, PodGroup)
        self.queues: Store[Queue] = self.caches.store(resources.QUEUES, Queue)
        self.events = self.caches.store(resources.EVENTS, dict)

    @overload
    def wire(self) -> RecordingTransport: ...

    @overload
    def wire(self, kind: type[W]) -> W: ...

    def wire(self, kind: type[RecordingTransport] = RecordingTransport) -> RecordingTransport:
        """A way in for the service, observed."""
        return kind(self.server.transport(self.role))

    @asynccontextmanager
    async def running(
        self,
        make: Callable[[Runtime], IdleReportingService],
        *,
        transport: Transport | None = None,
        timeouts: WatchTimeouts | None = None,
    ) -> AsyncIterator[IdleReportingService]:
        """A service at work in a process of its own; it is settled when the block ends."""
        client = Client(transport or self.server.transport(self.role))
        caches = Caches(client, timeouts=timeouts)
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

    async def settled(self, service: IdleReportingService, timeout_s: float = 60.0) -> None:
        """Wait until the service has seen everything and has nothing left to do."""
        async with asyncio.timeout(timeout_s):
            quiet = 0
            # Events take a few turns of the loop from the server through the watch to the service.
            while quiet < 20:
                quiet = quiet + 1 if service.idle() else 0
                await asyncio.sleep(0 if quiet else 0.002)

    async def ensure(self, *objects: Document) -> None:
        """Definitions, roles and the like, which stay: what is there already is left alone."""
        await install(self.server.transport(), list(objects))

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
        spec = {"completions": completions, "parallelism": completions, "template": template}
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

    async def wait_for_warning(self, about: str, reason: str, timeout_s: float = 10.0) -> str:
        """Wait for a warning about an object; its message."""
        found: list[str] = []

        def told(events: Store[Document]) -> bool:
            found[:] = [
                event["message"]
                for event in events.values()
                if event["involvedObject"].get("name") == about and event["reason"] == reason
            ]
            return bool(found)

        await self.events.wait_until(told, timeout_s)
        return found[0]

    async def count(self, about: str, reason: str) -> int:
        """How many events an object has."""
        events = await self.client.list_raw(resources.EVENTS)
        return sum(
            event["count"]
            for event in events
            if event["involvedObject"].get("name") == about and event["reason"] == reason
        )


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
async def service_cluster(role: str, clock: Clock | None = None) -> AsyncIterator[ServiceCluster]:
    """An empty cluster for the service of this role."""
    time = clock or Clock()
    async with api_server(time, namespaces=(names.DEFAULT_NAMESPACE,)) as server:
        place = ServiceCluster(server, time, role)
        await place.caches.start()
        await place.caches.wait_for_sync()
        try:
            yield place
        finally:
            await place.caches.stop()
