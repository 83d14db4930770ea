"""The statuses of PodGroups, written by the service on an API server (workloads:PC-1 to PC-7)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from pykai.api.scheduling import PodGroup
from pykai.kube import resources
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.kube.transport import Request, Response
from pykai.podgroups.options import PodGroupsOptions
from pykai.podgroups.service import PodGroups, make_podgroups
from tests.servers import ensure_namespace
from tests.services.servicecluster import ServiceCluster, refusal, service_cluster

GPU = "nvidia.com/gpu"


@pytest.fixture
async def place() -> AsyncIterator[ServiceCluster]:
    async with service_cluster("podgroup-controller") as found:
        await found.classes()
        await found.queue("q")
        yield found


def writer(**options: Any) -> Any:
    def make(runtime: Runtime) -> PodGroups:
        return make_podgroups(runtime, PodGroupsOptions(**{"settle_s": 0.01, **options}))

    return make


def sums(name: str, **lists: dict[str, str]) -> Any:
    """Whether a group has these resource lists, and no others."""

    def holds(groups: Store[PodGroup]) -> bool:
        found = groups.get(f"default/{name}")
        return found is not None and (found.status.resources_status or {}) == lists

    return holds


def stands(name: str, type_: str, status: str) -> Any:
    def holds(groups: Store[PodGroup]) -> bool:
        found = groups.get(f"default/{name}")
        listed = found.status.conditions or () if found is not None else ()
        return any((entry["type"], entry["status"]) == (type_, status) for entry in listed)

    return holds


async def test_a_group_from_its_first_pod_to_its_last(place: ServiceCluster) -> None:
    """workloads:T-130, T-131."""
    await place.group("g", priorityClassName="build")
    async with place.running(writer()):
        await place.groups.wait_until(stands("g", "Ready", "False"))
        await place.pod("a", group="g")
        await place.groups.wait_until(sums("g", requested={"cpu": "1"}))
        await place.bind("a")
        cpu = {"cpu": "1"}
        await place.groups.wait_until(sums("g", requested=cpu, allocated=cpu, allocatedNonPreemptible=cpu))
        await place.groups.wait_until(stands("g", "Scheduled", "True"))
        await place.pod_status("a", phase="Running")
        await place.groups.wait_until(stands("g", "Running", "True"))
        await place.client.delete(resources.PODS, "a", "default", grace_s=0)
        await place.groups.wait_until(sums("g"))
        await place.groups.wait_until(stands("g", "Running", "False"))


async def test_a_gang_of_hundreds_is_a_handful_of_writes(place: ServiceCluster) -> None:
    await place.group("g", minMember=200)
    wire = place.wire()
    async with place.running(writer(settle_s=0.3), transport=wire):
        for number in range(200):
            await place.pod(f"p{number}", group="g")
            # Other tasks get a turn, as between requests of a real client.
            await place.pods.wait_until(lambda pods, key=f"default/p{number}": key in pods)  # type: ignore[misc]
        await place.groups.wait_until(sums("g", requested={"cpu": "200"}))
        await place.groups.wait_until(stands("g", "Ready", "True"))
    assert len(wire.writes) < 100


async def test_a_new_service_writes_nothing_twice(place: ServiceCluster) -> None:
    await place.group("g")
    await place.pod("a", group="g")
    async with place.running(writer()):
        await place.groups.wait_until(sums("g", requested={"cpu": "1"}))
    wire = place.wire()
    async with place.running(writer(), transport=wire) as service:
        await place.settled(service)
        # A write that must happen shows that everything before it was processed.
        await place.pod("b", group="g")
        await place.groups.wait_until(sums("g", requested={"cpu": "2"}))
    assert len(wire.writes) == 1


async def test_other_fields_of_the_status_are_left_alone(place: ServiceCluster) -> None:
    """workloads:PC-7."""
    await place.group("g")
    condition = {"type": "UnschedulableOnNodePool", "nodePool": "default", "status": "True", "transitionID": "1"}
    patch = {"status": {"schedulingConditions": [condition]}}
    await place.client.patch(resources.POD_GROUPS, "g", patch, "default", subresource="status")
    async with place.running(writer()):
        await place.groups.wait_until(stands("g", "Ready", "False"))
    (group,) = await place.raw_groups()
    assert group["status"]["schedulingConditions"] == [condition]


async def test_a_pod_that_changes_its_group_is_moved(place: ServiceCluster) -> None:
    """workloads:PC-1."""
    for name in ("g", "h"):
        await place.group(name)
    await place.pod("a", group="g")
    async with place.running(writer()):
        await place.groups.wait_until(sums("g", requested={"cpu": "1"}))
        await place.client.patch(resources.PODS, "a", {"metadata": {"annotations": {"pod-group-name": "h"}}}, "default")
        await place.groups.wait_until(sums("h", requested={"cpu": "1"}))
        await place.groups.wait_until(sums("g"))


async def test_pods_of_other_namespaces_and_schedulers_do_not_count(place: ServiceCluster) -> None:
    """workloads:PC-2."""
    await ensure_namespace(place.client, "other")
    await place.group("g")
    await place.pod("a", group="g", namespace="other")
    await place.pod("b", group="g", scheduler="default-scheduler")
    await place.pod("c", group="g", requests={"cpu": "3"})
    async with place.running(writer(shared_cache=True)):
        await place.groups.wait_until(sums("g", requested={"cpu": "3"}))


async def test_priority_classes_are_followed(place: ServiceCluster) -> None:
    """workloads:T-135, T-137; PC, Do better (a, h)."""
    await place.group("g", priorityClassName="mine")
    await place.pod("a", group="g")
    await place.bind("a")
    cpu = {"cpu": "1"}
    async with place.running(writer()):
        await place.groups.wait_until(sums("g", requested=cpu, allocated=cpu))
        await place.create(resources.PRIORITY_CLASSES, "high", value=125, globalDefault=True)
        await place.groups.wait_until(sums("g", requested=cpu, allocated=cpu, allocatedNonPreemptible=cpu))
        await place.create(resources.PRIORITY_CLASSES, "mine", value=1)
        await place.groups.wait_until(sums("g", requested=cpu, allocated=cpu))


async def test_a_share_is_measured_by_the_memory_of_the_node(place: ServiceCluster) -> None:
    """workloads:T-133."""
    await place.group("g")
    node = {"nvidia.com/gpu.memory": "5000"}
    await place.create(resources.NODES, "node-0", labels=node)
    received = {"gpu-memory": "2500", "received-resource-type": "Fraction"}
    await place.pod("a", group="g", annotations=received)
    await place.bind("a")
    asked = {"cpu": "1", "run.ai/gpu.memory": "2500"}
    async with place.running(writer()):
        await place.groups.wait_until(sums("g", requested=asked, allocated={"cpu": "1", GPU: "500m"}))
        patch = {"metadata": {"labels": {"nvidia.com/gpu.memory": "10000"}}}
        await place.client.patch(resources.NODES, "node-0", patch)
        await place.groups.wait_until(sums("g", requested=asked, allocated={"cpu": "1", GPU: "250m"}))


async def test_a_queue_that_comes_late_makes_its_groups_valid(place: ServiceCluster) -> None:
    await place.group("g", queue="late")
    await place.group("h")
    async with place.running(writer()):
        await place.groups.wait_until(stands("g", "Valid", "False"))
        await place.queue("late")
        await place.groups.wait_until(stands("g", "Valid", "True"))
        await place.client.delete(resources.QUEUES, "late")
        await place.groups.wait_until(stands("g", "Valid", "False"))
    found = {group["metadata"]["name"]: group["status"]["conditions"] for group in await place.raw_groups()}
    assert "Valid" not in {entry["type"] for entry in found["h"]}


async def test_an_unreadable_group_is_reported_and_others_are_served(place: ServiceCluster) -> None:
    await place.group("bad", minMember=7)
    await place.group("g")
    await place.pod("a", group="bad")
    await place.pod("b", group="g")
    wire = place.wire()
    wire.reword = lambda request, body: body.replace(b'"minMember":7', b'"minMember":"many"')
    async with place.running(writer(), transport=wire):
        assert "spec.minMember" in await place.wait_for_warning("bad", "Unreadable")
        await place.groups.wait_until(sums("g", requested={"cpu": "1"}))


async def test_an_object_broken_again_is_reported_again(place: ServiceCluster) -> None:
    await place.group("bad", minMember=7)
    wire = place.wire()
    wire.reword = lambda request, body: body.replace(b'"minMember":7', b'"minMember":"many"')
    async with place.running(writer(), transport=wire):
        await place.wait_for_warning("bad", "Unreadable")
        await place.client.patch(resources.POD_GROUPS, "bad", {"spec": {"minMember": 8}}, "default")
        await place.groups.wait_until(stands("bad", "Ready", "False"))
        await place.client.patch(resources.POD_GROUPS, "bad", {"spec": {"minMember": 7}}, "default")
        # Events are seen in order.
        await place.group("last")
        await place.groups.wait_until(stands("last", "Ready", "False"))
    assert await place.count("bad", "Unreadable") == 2


async def test_a_refused_write_is_tried_again(place: ServiceCluster) -> None:
    await place.group("g")
    refused = [refusal(500, "InternalError"), refusal(409, "Conflict")]

    def fault(request: Request) -> Response | None:
        return refused.pop() if refused and request.method == "PATCH" else None

    wire = place.wire()
    wire.fault = fault
    place.clock.speed = 1000.0
    async with place.running(writer(), transport=wire):
        await place.groups.wait_until(stands("g", "Ready", "False"))
    assert refused == []


async def test_claims_are_counted_under_their_class(place: ServiceCluster) -> None:
    """workloads:PC-6."""
    await place.group("g")
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}}
    await place.create(resources.RESOURCE_CLAIMS, "c", spec={"devices": {"requests": [request]}})
    await place.pod("a", group="g", spec={"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]})
    async with place.running(writer()):
        await place.groups.wait_until(sums("g", requested={"cpu": "1", "gpu.example.com": "2"}))
        await place.client.delete(resources.RESOURCE_CLAIMS, "c", "default")
        await place.groups.wait_until(stands("g", "Valid", "False"))
    (group,) = await place.raw_groups()
    assert group["status"]["resourcesStatus"] == {"requested": {"cpu": "1"}}
