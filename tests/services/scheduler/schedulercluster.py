"""A cluster for tests of the scheduler service: an API server, and a fluent builder for its objects.

    async with cluster() as lab:
        await lab.node("a", gpus=8)
        await lab.gang("train", pods=4, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("train", 4)

Nothing here schedules, groups or runs pods except the scheduler under test: pods carry their PodGroup from the start
and stay Pending after they are bound.  `Faults` sits between the scheduler and the server and lets writes fail.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.scheduling import BindRequest, PodGroup, Queue
from pykai.core.model.shard import Shard
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.resources import Resource
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.kube.transport import Request, Response, Stream, Transport
from pykai.scheduler.dispatch.records import HandoverRecords
from pykai.scheduler.flags import read_flags
from pykai.scheduler.service import Scheduler, make_scheduler
from tests.servers import Server, api_server, embedded

Raw = dict[str, Any]
#: the answer instead of the server's, None = let it pass; an exception is raised
Fault = Callable[[Request], Response | None]


def refusal(code: int, reason: str, message: str = "") -> Response:
    """An error answer of an API server."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return Response(code, msgspec.json.encode({**status, "message": message or reason}))


@dataclass
class FaultRule:
    """The outcome of matching requests, so many times."""

    method: str
    path: str
    before: Fault | None = None
    after: Callable[[Request], None] | None = None
    times: int = 1_000_000
    seen: int = 0


@dataclass
class FaultyTransport:
    """A transport with injected faults that records all writes."""

    inner: Transport
    rules: list[FaultRule] = field(default_factory=list)
    writes: list[Request] = field(default_factory=list)
    #: called before each write goes out
    on_write: Callable[[Request], Awaitable[None]] | None = None

    def refuse(self, method: str, path: str, answer: Response, times: int = 1_000_000) -> None:
        """Answer so, without asking the server."""
        self.rules.append(FaultRule(method, path, before=lambda _: answer, times=times))

    def lose(self, method: str, path: str, error: Exception, *, carried_out: bool, times: int = 1) -> None:
        """No answer comes; the server has carried the request out, or has not."""

        def fail(_: Request) -> None:
            raise error

        def refuse(request: Request) -> Response | None:
            fail(request)
            return None

        if carried_out:
            self.rules.append(FaultRule(method, path, after=fail, times=times))
        else:
            self.rules.append(FaultRule(method, path, before=refuse, times=times))

    def heal(self) -> None:
        """Remove all faults."""
        self.rules.clear()

    def written(self, method: str, path: str) -> list[Request]:
        """Writes so far whose path matches."""
        return [each for each in self.writes if each.method == method and re.search(path, each.path)]

    async def send(self, request: Request) -> Response:
        """See `Transport`."""
        rule = next(
            (
                each
                for each in self.rules
                if each.method == request.method and re.search(each.path, request.path) and each.seen < each.times
            ),
            None,
        )
        if request.method != "GET":
            if self.on_write is not None:
                await self.on_write(request)
            self.writes.append(request)
        if rule is not None:
            rule.seen += 1
            if rule.before is not None and (answer := rule.before(request)) is not None:
                return answer
        answer = await self.inner.send(request)
        if rule is not None and rule.after is not None:
            rule.after(request)
        return answer

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """See `Transport`."""
        return self.inner.stream(request)

    async def close(self) -> None:
        """See `Transport`."""


class SchedulerCluster:
    """The server, a client of the test's own, and what it sees."""

    def __init__(self, server: Server, clock: Clock) -> None:
        self.server = server
        self.clock = clock
        self.client = Client(server.transport())
        self.caches = Caches(self.client)
        self.pods: Store[Pod] = self.caches.store(resources.PODS, Pod)
        self.groups: Store[PodGroup] = self.caches.store(resources.POD_GROUPS, PodGroup)
        self.queues: Store[Queue] = self.caches.store(resources.QUEUES, Queue)
        self.requests: Store[BindRequest] = self.caches.store(resources.BIND_REQUESTS, BindRequest)
        self.events: Store[dict[str, Any]] = self.caches.store(resources.EVENTS, dict)
        self.maps: Store[dict[str, Any]] = self.caches.store(resources.CONFIG_MAPS, dict)
        self.faults = FaultyTransport(server.transport("scheduler"))

    # Objects

    async def create(self, resource: Resource, obj: Raw, *, status: Raw | None = None) -> Raw:
        """Create an object, then its status where one is given."""
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        if resource.namespaced:
            obj["metadata"].setdefault("namespace", "default")
        made = await self.client.create(resource, obj)
        if status is not None:
            meta = made["metadata"]
            made = await self.client.patch(
                resource, meta["name"], {"status": status}, meta.get("namespace", ""), subresource="status"
            )
        return made

    async def store_as_is(self, resource: Resource, obj: Raw) -> None:
        """Put an object into storage past every check, as an older server or a broken writer may have left it."""
        server = embedded(self.server)
        kind = server.registry.by_kind(resource.api_version, resource.kind)
        assert kind is not None
        meta = {"uid": f"uid-{obj['metadata']['name']}", "creationTimestamp": "2026-01-01T00:00:00Z", **obj["metadata"]}
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **obj, "metadata": meta}
        key = resource.key(meta.get("namespace", ""), meta["name"])
        record = server.storage.write(kind.store, key, whole, {})
        await server.storage.wait_durable(record.revision)

    async def node(
        self,
        name: str,
        *,
        gpus: int | str = 0,
        cpu: str = "64",
        memory_mib: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> Raw:
        """A machine that is ready."""
        allocatable = {"cpu": cpu, "memory": "512Gi", "pods": "110"}
        if gpus:
            allocatable[names.NVIDIA_GPU] = str(gpus)
        marks = dict(labels or {})
        if memory_mib:
            marks[names.GPU_MEMORY_NODE_LABEL] = str(memory_mib)
            marks[names.GPU_COUNT_NODE_LABEL] = str(gpus)
        ready = {"type": "Ready", "status": "True"}
        status = {"allocatable": allocatable, "capacity": allocatable, "conditions": [ready]}
        await self.create(resources.NODES, {"metadata": {"name": name, "labels": marks}}, status=status)
        # There is no controller here that removes the taint of a new node once it is ready.
        return await self.client.patch(resources.NODES, name, {"spec": {"taints": None}})

    async def queue(self, name: str, *, parent: str = "", quota: float = -1, limit: float = -1, **more: Any) -> Raw:
        """A queue; the numbers are GPUs, CPU and memory are unlimited, `more` are further fields of its spec."""
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        gpu = {"quota": quota, "limit": limit, "overQuotaWeight": 1}
        spec: Raw = {"resources": {"gpu": gpu, "cpu": free, "memory": free}, **more}
        if parent:
            spec["parentQueue"] = parent
        return await self.create(resources.QUEUES, {"metadata": {"name": name}, "spec": spec})

    async def group(self, name: str, *, minimum: int = 1, queue: str = "team", **spec: Any) -> Raw:
        """A PodGroup."""
        content = {"minMember": minimum, "queue": queue, **spec}
        return await self.create(resources.POD_GROUPS, {"metadata": {"name": name}, "spec": content})

    async def pod(
        self,
        name: str,
        group: str,
        *,
        gpu: int = 0,
        cpu: str = "1",
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Raw:
        """A pod of a group, for our scheduler."""
        requests = {"cpu": cpu, "memory": "1Gi"}
        if gpu:
            requests[names.NVIDIA_GPU] = str(gpu)
        container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}
        marks = {names.POD_GROUP_ANNOTATION: group, **(annotations or {})}
        return await self.create(
            resources.PODS,
            {
                "metadata": {"name": name, "annotations": {k: v for k, v in marks.items() if v}},
                "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **spec},
            },
        )

    async def gang(self, name: str, *, pods: int, minimum: int | None = None, queue: str = "team", **pod: Any) -> None:
        """A PodGroup with its pods <name>-0, <name>-1, ..."""
        await self.group(name, minimum=pods if minimum is None else minimum, queue=queue)
        for index in range(pods):
            await self.pod(f"{name}-{index}", name, **pod)

    # The scheduler

    def make_scheduler(self, *, fast_bind: bool = True, **flags: Any) -> Scheduler:
        """A scheduler that talks to the server through the faults."""
        client = Client(self.faults)
        runtime = Runtime(client, Caches(client), self.clock)
        given = {name.replace("_", "-"): value for name, value in flags.items()}
        quick = {"schedule-period": "200ms", "min-cycle-interval": "1ms", "version": "false"}
        return make_scheduler(runtime, read_flags({**quick, **given}), fast_bind=fast_bind, endpoints=False)

    @asynccontextmanager
    async def scheduler(self, **options: Any) -> AsyncIterator[Scheduler]:
        """A running scheduler, stopped at the end."""
        scheduler = self.make_scheduler(**options)
        async with running(scheduler):
            yield scheduler

    # What became of it

    def placed(self, group: str) -> dict[str, str]:
        """Pod -> node of the pods of a group that are bound."""
        return {
            pod.metadata.name: pod.spec.node_name
            for pod in self.pods.values()
            if pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION) == group and pod.spec.node_name
        }

    async def until_bound(self, group: str, count: int) -> None:
        """Wait until so many pods of a group are bound."""
        await self.pods.wait_until(lambda _: len(self.placed(group)) == count, 10)

    def event_messages(self, reason: str, about: str = "") -> list[str]:
        """Messages of events with this reason, about an object of this name if one is given."""
        return [
            event["message"]
            for event in self.events.values()
            if event["reason"] == reason and (not about or event["involvedObject"]["name"] == about)
        ]

    async def wait_for_event(self, reason: str, about: str = "") -> str:
        """Wait for an event; its message."""
        await self.events.wait_until(lambda _: bool(self.event_messages(reason, about)), 10)
        return self.event_messages(reason, about)[0]

    def condition(self, pod: str, type_: str = names.CONDITION_POD_SCHEDULED) -> tuple[str, str, str]:
        """Status, reason and message of a condition of a pod; empty when there is none."""
        found = self.pods.get(f"default/{pod}")
        for each in found.status.conditions if found is not None else ():
            if each.type == type_:
                return each.status, each.reason, each.message
        return "", "", ""

    def records(self, kind: str = "bind-plan") -> list[dict[str, str]]:
        """The contents of the records of schedulers, of one kind."""
        return [
            item["data"]
            for item in self.maps.values()
            if item["metadata"]["namespace"] == names.DEFAULT_NAMESPACE
            and item["metadata"].get("labels", {}).get(names.RECORD_LABEL) == kind
        ]

    async def until_no_records(self, kind: str = "bind-plan") -> None:
        """Wait until no record of a kind is left."""
        await self.maps.wait_until(lambda _: not self.records(kind), 10)

    async def record_plan(self, group: str, places: Mapping[str, str], *, queue: str = "team", **wrong: str) -> None:
        """Leave the plan of a gang behind, as a scheduler that was killed does; `wrong` replaces pods' uids."""
        made = await self.client.get_raw(resources.POD_GROUPS, group, "default")
        uid = made["metadata"]["uid"]
        listed = []
        for pod, node in places.items():
            found = await self.client.get_raw(resources.PODS, pod, "default")
            listed.append([pod, wrong.get(pod, found["metadata"]["uid"]), node])
        records = HandoverRecords(self.client, Shard(), names.DEFAULT_NAMESPACE)
        text = msgspec.json.encode(listed).decode()
        assert await records.put("bind-plan", f"default/{group}", uid, {"queue": queue, "pods": text}) == ""

    def annotation(self, group: str, key: str) -> str:
        """An annotation of a PodGroup."""
        found = self.groups.get(f"default/{group}")
        return found.metadata.annotations.get(key, "") if found is not None else ""


@asynccontextmanager
async def running(scheduler: Scheduler) -> AsyncIterator[None]:
    """Run a scheduler; at the end it is stopped and awaited, and what it raised is raised."""
    stop = asyncio.Event()
    task = asyncio.create_task(scheduler.run(stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait([task], timeout=10)
        await scheduler.intake._caches.stop()
        if not task.done():
            task.cancel()
            raise AssertionError("the scheduler did not stop")
        task.result()


@asynccontextmanager
async def scheduler_cluster(*, speed: float = 1.0, queue: str = "team") -> AsyncIterator[SchedulerCluster]:
    """A server with one leaf queue below a parent, unless none is wanted."""
    clock = Clock(speed)
    async with api_server(clock, namespaces=(names.DEFAULT_NAMESPACE,)) as server:
        lab = SchedulerCluster(server, clock)
        try:
            await lab.caches.start()
            if queue:
                await lab.queue("department")
                await lab.queue(queue, parent="department")
            yield lab
        finally:
            await lab.caches.stop()
