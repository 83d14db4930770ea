"""Benchmark of the pod grouper: many workloads of ten kinds, all created at once.

The objects are those that the operators of the lab would create (`kindsworkloads`), put into an embedded API server in
one go. Measured is the time from then until every pod is in its group and every group has the right minimum, and what
that costs: writes of the pod grouper, at most how many for a pod and for a group. Then every owner is updated without a
change that matters, and another pod grouper starts, as after a restart: it must write nothing.

All pods of these workloads start together, so a group is right if its minimum is the number of its pods.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import msgspec

from pykai.api import names
from pykai.api.unstructured import JsonObject
from pykai.dev.kindsworkloads import NAMESPACE, OPERATED_KINDS, workloads
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.resources import JOBS, POD_GROUPS, PODS
from pykai.kube.runtime import Runtime, run_services
from pykai.kube.store import Change, Store
from pykai.kube.transport import Request, Response, Stream, Transport
from pykai.lab.apiserver.server import ApiServer
from pykai.lab.operators.families import ALL, definitions, read_families
from pykai.operator.install import installation
from pykai.podgrouper.options import PodGrouperOptions
from pykai.podgrouper.service import PodGrouper, make_podgrouper

#: How often what is seen is compared with what should be, in wall seconds.
_LOOK_EVERY_S: Final = 0.02
#: Pods of one workload.
_PODS_PER_WORKLOAD: Final = 20


@dataclass(frozen=True, slots=True)
class KindsMeasurement:
    """One run."""

    kinds: int
    workloads: int
    pods: int
    groups: int
    #: from the last create until every group is right
    seconds: float
    #: of the pod grouper, without its lists and watches
    reads: int
    pod_writes: int
    group_writes: int
    most_writes_of_a_pod: int
    most_writes_of_a_group: int
    #: of a pod grouper that starts after each owner was updated without a change that matters
    writes_after_update: int

    def record(self) -> dict[str, object]:
        """As it is printed."""
        return {"shape": "kinds", **asdict(self)}


class _CountingTransport:
    """Counts the requests of a client: reads of single objects, and writes by kind and name."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.reads = 0
        #: collection -> writes by object
        self.writes: dict[str, Counter[str]] = {}

    async def send(self, request: Request) -> Response:
        """Count and send."""
        parts = request.path.split("/")
        if request.method == "GET":
            self.reads += "limit" not in request.query and not request.path.startswith("/apis/apiextensions")
        elif "events" not in parts:
            collection, name = (parts[-1], _name_of(request)) if request.method == "POST" else (parts[-2], parts[-1])
            self.writes.setdefault(collection, Counter())[name] += 1
        return await self._inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Pass a watch on."""
        return self._inner.stream(request)

    async def close(self) -> None:
        """Close what is below."""
        await self._inner.close()


def _name_of(request: Request) -> str:
    found = msgspec.json.decode(request.body or b"{}")
    return str(found.get("metadata", {}).get("name", ""))


class _GroupedPods:
    """Follows which pods are in which group."""

    def __init__(self, pods: Store[dict[str, Any]], groups: Store[dict[str, Any]]) -> None:
        self._groups = groups
        #: pod -> group
        self._group_of: dict[str, str] = {}
        pods.subscribe(self._observe)

    def _observe(self, change: Change[dict[str, Any]]) -> None:
        annotations = (change.new or {}).get("metadata", {}).get("annotations") or {}
        if group := annotations.get(names.POD_GROUP_ANNOTATION):
            self._group_of[change.key] = group

    def are_right(self, expected: int) -> bool:
        """Whether so many pods have groups, each group with its number of pods as minimum."""
        if len(self._group_of) < expected:
            return False
        sizes = Counter(self._group_of.values())
        found = {group["metadata"]["name"]: _minimum(group["spec"]) for group in self._groups.values()}
        return found == sizes


def _minimum(spec: Mapping[str, Any]) -> int:
    """How many pods of a group start together, all subgroups counted."""
    if "minMember" in spec:
        return int(spec["minMember"])
    return sum(int(each.get("minMember", 0)) for each in spec["subGroups"])


@asynccontextmanager
async def _podgrouper(server: ApiServer) -> AsyncIterator[tuple[PodGrouper, _CountingTransport]]:
    """A pod grouper with its own rights and caches."""
    transport = _CountingTransport(server.transport(names.POD_GROUPER))
    client = Client(transport)
    runtime = Runtime(client, Caches(client), server.clock)
    service = make_podgrouper(runtime, PodGrouperOptions())
    stop = asyncio.Event()
    running = asyncio.create_task(run_services(runtime, [service], stop))
    try:
        while not service.ready():
            await asyncio.sleep(_LOOK_EVERY_S)
        yield service, transport
    finally:
        stop.set()
        await running


async def measure_kinds(pods: int) -> KindsMeasurement:
    """Group so many pods of ten kinds."""
    made = list(workloads(max(1, pods // _PODS_PER_WORKLOAD), _PODS_PER_WORKLOAD))
    documents = [each for workload in made for each in workload]
    owners = [each for each in documents if each["kind"] != "Pod"]
    expected = len(documents) - len(owners)
    server = await ApiServer.open(clock=Clock(), objects=[*installation(), *definitions(read_families(ALL))])
    try:
        client = Client(server.transport())
        async with _podgrouper(server) as (_, transport):
            seconds, groups = await _grouping(server, client, [*owners, *_pods_of(documents)], expected)
        await _touch(client, owners)
        async with _podgrouper(server) as (service, second):
            while not service.idle():
                await asyncio.sleep(_LOOK_EVERY_S)
        assert second.reads, "the second pod grouper must have looked at the owners"
    finally:
        await server.close()
    pod_writes, group_writes = transport.writes[PODS.plural], transport.writes[POD_GROUPS.plural]
    return KindsMeasurement(
        kinds=len({workload[0]["kind"] for workload in made}),
        workloads=len(made),
        pods=expected,
        groups=groups,
        seconds=round(seconds, 3),
        reads=transport.reads,
        pod_writes=pod_writes.total(),
        group_writes=group_writes.total(),
        most_writes_of_a_pod=max(pod_writes.values()),
        most_writes_of_a_group=max(group_writes.values()),
        writes_after_update=sum(each.total() for each in second.writes.values()),
    )


def _pods_of(documents: Sequence[JsonObject]) -> list[JsonObject]:
    return [each for each in documents if each["kind"] == "Pod"]


async def _grouping(
    server: ApiServer, client: Client, documents: Sequence[JsonObject], expected: int
) -> tuple[float, int]:
    """Create the objects; the seconds until all groups are right, and their number."""
    caches = Caches(client)
    groups: Store[dict[str, Any]] = caches.store(POD_GROUPS, dict)
    seen = _GroupedPods(caches.store(PODS, dict), groups)
    await caches.start()
    await caches.wait_for_sync()
    try:
        server.load(documents)
        began = time.perf_counter()
        while not seen.are_right(expected):
            await asyncio.sleep(_LOOK_EVERY_S)
        return time.perf_counter() - began, len(groups)
    finally:
        await caches.stop()


async def _touch(client: Client, owners: Sequence[JsonObject]) -> None:
    """Update each owner as its operator does all the time: in its status."""
    for owner in owners:
        resource = JOBS if owner["kind"] == JOBS.kind else OPERATED_KINDS[owner["kind"]].resource
        status = {"active": 1} if resource is JOBS else {"lastReconcileTime": "2026-01-01T00:00:00Z"}
        name = owner["metadata"]["name"]
        await client.patch(resource, name, {"status": status}, NAMESPACE, subresource="status")
