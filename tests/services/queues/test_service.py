"""The statuses of queues, written by the service on an API server (queues:Q-40 to Q-47)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from pykai.api.scheduling import Queue
from pykai.kube import resources
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.queues.options import QueuesOptions
from pykai.queues.service import Queues, make_queues
from tests.services.servicecluster import ServiceCluster, service_cluster


@pytest.fixture
async def place() -> AsyncIterator[ServiceCluster]:
    async with service_cluster("queue-controller") as found:
        yield found


def writer(registry: CollectorRegistry | None = None) -> Any:
    def make(runtime: Runtime) -> Queues:
        return make_queues(runtime, QueuesOptions(settle_s=0.01), registry)

    return make


def status(queues: Store[Queue], name: str) -> dict[str, Any]:
    found = queues.get(name)
    return (found.status or {}) if found is not None else {}


def requests(name: str, cpu: str | None) -> Any:
    return lambda queues: (status(queues, name).get("requested") or {}).get("cpu") == cpu


def stands(name: str, type_: str, wanted: str) -> Any:
    return lambda queues: any(
        (entry["type"], entry["status"]) == (type_, wanted) for entry in status(queues, name).get("conditions", ())
    )


async def asks(place: ServiceCluster, group: str, cpu: str) -> None:
    """What the service of PodGroups would write."""
    patch = {"status": {"resourcesStatus": {"requested": {"cpu": cpu}, "allocated": {"cpu": cpu}}}}
    await place.client.patch(resources.POD_GROUPS, group, patch, "default", subresource="status")


async def test_sums_reach_every_level_and_follow_moves(place: ServiceCluster) -> None:
    for name, parent in (("top", ""), ("left", "top"), ("right", "top")):
        await place.queue(name, parent)
    await place.group("g", queue="left")
    async with place.running(writer()):
        await asks(place, "g", "3")
        await place.queues.wait_until(requests("top", "3"))
        await place.queues.wait_until(requests("left", "3"))
        assert status(place.queues, "top")["childQueues"] == ["left", "right"]
        await place.client.patch(resources.POD_GROUPS, "g", {"spec": {"queue": "right"}}, "default")
        await place.queues.wait_until(requests("right", "3"))
        await place.queues.wait_until(requests("left", None))
        await place.client.patch(resources.QUEUES, "right", {"spec": {"parentQueue": "left"}})
        await place.queues.wait_until(requests("left", "3"))
        await place.client.delete(resources.POD_GROUPS, "g", "default")
        await place.queues.wait_until(requests("top", None))


async def test_a_service_that_starts_again_writes_nothing_twice(place: ServiceCluster) -> None:
    for name in ("b", "a", "c"):
        await place.queue(name, "top")
    await place.queue("top")
    await place.group("g", queue="a")
    await asks(place, "g", "1")
    async with place.running(writer()):
        await place.queues.wait_until(requests("top", "1"))
    wire = place.wire()
    async with place.running(writer(), transport=wire) as service:
        await place.settled(service)
        await place.queue("new")
        await place.queues.wait_until(stands("new", "Orphan", "False"))
    assert [write.split("/")[5] for write in wire.writes] == ["new"]


async def test_a_burst_is_few_writes(place: ServiceCluster) -> None:
    await place.queue("top")
    await place.queue("q", "top")
    wire = place.wire()

    def make(runtime: Runtime) -> Queues:
        return make_queues(runtime, QueuesOptions(settle_s=0.2))

    async with place.running(make, transport=wire):
        for number in range(100):
            await place.group(f"g{number}")
            await asks(place, f"g{number}", "1")
        await place.queues.wait_until(requests("top", "100"))
    assert len(wire.writes) < 100


async def test_orphans_cycles_and_invalid_fields_are_reported(place: ServiceCluster) -> None:
    await place.queue("orphan", "nobody")
    await place.queue("a", "b")
    await place.queue("b", "a")
    await place.queue("negative", quota=-7)
    await place.queue("sound")
    await place.group("g", queue="a")
    await asks(place, "g", "1")
    async with place.running(writer()):
        await place.queues.wait_until(stands("orphan", "Orphan", "True"))
        for name in ("a", "b"):
            await place.queues.wait_until(stands(name, "Cyclic", "True"))
        await place.queues.wait_until(stands("negative", "Valid", "False"))
        await place.queues.wait_until(stands("sound", "Cyclic", "False"))
        await place.queues.wait_until(requests("a", "1"))
        await place.queue("nobody")
        await place.queues.wait_until(stands("orphan", "Orphan", "False"))
        await place.client.patch(resources.QUEUES, "b", {"spec": {"parentQueue": None}})
        for name in ("a", "b"):
            await place.queues.wait_until(stands(name, "Cyclic", "False"))
        await place.queues.wait_until(requests("b", "1"))


async def test_an_unreadable_queue_is_reported_and_others_are_served(place: ServiceCluster) -> None:
    await place.queue("bad", priority=7)
    await place.queue("good")
    wire = place.wire()
    wire.reword = lambda request, body: body.replace(b'"priority":7', b'"priority":"high"')
    async with place.running(writer(), transport=wire):
        assert "spec.priority" in await place.wait_for_warning("bad", "Unreadable")
        await place.queues.wait_until(stands("good", "Orphan", "False"))


async def test_an_object_broken_again_is_reported_again(place: ServiceCluster) -> None:
    await place.queue("bad", priority=7)
    wire = place.wire()
    wire.reword = lambda request, body: body.replace(b'"priority":7', b'"priority":"high"')
    async with place.running(writer(), transport=wire):
        await place.wait_for_warning("bad", "Unreadable")
        await place.client.patch(resources.QUEUES, "bad", {"spec": {"priority": 8}})
        await place.queues.wait_until(stands("bad", "Orphan", "False"))
        await place.client.patch(resources.QUEUES, "bad", {"spec": {"priority": 7}})
        # Events are seen in order.
        await place.queue("last")
        await place.queues.wait_until(stands("last", "Orphan", "False"))
    assert await place.count("bad", "Unreadable") == 2


async def test_a_queue_that_is_gone_leaves_no_series(place: ServiceCluster) -> None:
    """queues:Q-41."""
    registry = CollectorRegistry()
    labels = {"queue_name": "q", "queue_metadata_name": "q", "queue_display_name": ""}
    await place.queue("q", "top")
    await place.queue("top")
    async with place.running(writer(registry)) as service:
        await place.queues.wait_until(lambda queues: status(queues, "top").get("childQueues") == ["q"])
        await place.queues.wait_until(stands("q", "Orphan", "False"))
        assert registry.get_sample_value("kai_queue_info", labels) == 1
        await place.client.delete(resources.QUEUES, "q")
        await place.queues.wait_until(lambda queues: not status(queues, "top").get("childQueues"))
        await place.settled(service)
        assert registry.get_sample_value("kai_queue_info", labels) is None


async def test_over_quota_is_reported(place: ServiceCluster) -> None:
    await place.queue("q", quota=500)
    await place.group("g")
    async with place.running(writer()):
        await asks(place, "g", "500m")
        await place.queues.wait_until(stands("q", "OverQuota", "False"))
        await asks(place, "g", "1")
        await place.queues.wait_until(stands("q", "OverQuota", "True"))
    entry = next(entry for entry in status(place.queues, "q")["conditions"] if entry["type"] == "OverQuota")
    assert entry["message"] == "cpu: 1 allocated, quota 500m"
