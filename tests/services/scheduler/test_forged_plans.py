"""Plans that a tenant writes on its PodGroup do nothing, and a record that is wrong is refused entry by entry.

Three attacks, each by an annotation and by a record as if its text had been changed: pods over the limit of their
queue and against their selector, a share of a full GPU, a claim of a device that another holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from pykai.api import names
from pykai.api.sharing import reservation_name
from pykai.kube import resources
from tests.servers import ensure_namespace
from tests.services.scheduler.schedulercluster import SchedulerCluster, scheduler_cluster

REQUESTS = r"/bindrequests$"
BINDING = r"/pods/[^/]+/binding$"
#: where the forged text is, and when it is written
WAYS = ["annotation before", "annotation after", "record"]


async def annotate(lab: SchedulerCluster, group: str, node: str, more: list[Any]) -> None:
    """The text that earlier versions carried out at once."""
    entries = [
        [pod["metadata"]["name"], pod["metadata"]["uid"], node, *more]
        for pod in await lab.client.list_raw(resources.PODS, namespace="default")
        if pod["metadata"].get("annotations", {}).get(names.POD_GROUP_ANNOTATION) == group
    ]
    annotations = {names.BIND_PLAN_ANNOTATION: msgspec.json.encode(entries).decode()}
    await lab.client.patch(resources.POD_GROUPS, group, {"metadata": {"annotations": annotations}}, "default")


async def attacked(
    lab: SchedulerCluster, way: str, group: str, node: str, pods: list[str], more: list[Any] | None = None
) -> None:
    """Run a scheduler against the forged plan."""
    if way == "annotation before":
        await annotate(lab, group, node, more or [])
    elif way == "record":
        await lab.record_plan(group, dict.fromkeys(pods, node))
    async with lab.scheduler() as scheduler:
        await lab.events.wait_until(lambda _: bool(lab.event_messages("Unschedulable", group)), 10)
        if way == "annotation after":
            await annotate(lab, group, node, more or [])
            await scheduler.intake.groups.wait_until(
                lambda store: (
                    (found := store.get(f"default/{group}")) is not None
                    and names.BIND_PLAN_ANNOTATION in found.metadata.annotations
                ),
                10,
            )
        await scheduler.loop.cycle()
        await scheduler.dispatcher.drain()
        await lab.until_no_records()


@pytest.mark.parametrize("way", WAYS)
async def test_pods_stay_within_limit_and_selector(way: str) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=8)
        await lab.queue("small", parent="department", limit=2)
        await lab.gang("mine", pods=3, gpu=1, queue="small", nodeSelector={"zone": "elsewhere"})
        if way == "record":
            await lab.client.patch(resources.NODES, "a", {"metadata": {"labels": {"zone": "here"}}})
        await attacked(lab, way, "mine", "a", ["mine-0", "mine-1", "mine-2"])
        assert not lab.placed("mine")
        assert not lab.faults.written("POST", BINDING)


async def test_a_record_binds_no_more_than_the_limit_of_the_queue() -> None:
    """The same without the selector: the gang cannot be whole, so nothing of it is bound."""
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=8)
        await lab.queue("small", parent="department", limit=2)
        await lab.gang("mine", pods=3, gpu=1, queue="small")
        await lab.record_plan("mine", {f"mine-{index}": "a" for index in range(3)}, queue="small")
        async with lab.scheduler():
            assert "limit" in await lab.wait_for_event("Unschedulable", "mine")
            await lab.until_no_records()
        assert not lab.placed("mine")


async def test_of_a_record_what_is_right_is_bound_and_what_is_wrong_is_not() -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.node("b", gpus=2, labels={"zone": "b"})
        await lab.group("mine", minimum=1)
        await lab.pod("mine-0", "mine", gpu=1)
        await lab.pod("mine-1", "mine", gpu=1, nodeSelector={"zone": "b"})
        await lab.gang("other", pods=1, gpu=1)
        places = {"mine-0": "a", "mine-1": "a", "other-0": "a"}
        await lab.record_plan("mine", places, **{"mine-2": "never"})
        async with lab.scheduler():
            await lab.until_bound("mine", 2)
            await lab.until_bound("other", 1)
            await lab.until_no_records()
        assert lab.placed("mine") == {"mine-0": "a", "mine-1": "b"}


@pytest.mark.parametrize("wrong", [{"queue": "rich"}, {"mine-0": "another-uid"}])
async def test_a_record_that_names_another_queue_or_pod_binds_nothing(wrong: Mapping[str, str]) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.node("b", gpus=8)
        await lab.gang("mine", pods=2, gpu=1)
        await lab.gang("busy", pods=1, gpu=6)
        await lab.record_plan("mine", {"mine-0": "b", "mine-1": "b"}, **wrong)
        before = len(lab.faults.writes)
        async with lab.scheduler() as scheduler:
            await scheduler.intake.wait_for_sync()
            await lab.until_bound("mine", 2)
            await lab.until_no_records()
        # The record of the plan that the engine made itself came before the binds.
        paths = [each.path for each in lab.faults.writes[before:] if each.method == "POST"]
        first_bind = next(index for index, path in enumerate(paths) if "mine-" in path and path.endswith("/binding"))
        assert any(path.endswith("/configmaps") for path in paths[:first_bind])


async def shared_gpu(lab: SchedulerCluster) -> None:
    """Node a has one GPU, of which 0.9 is in use."""
    await ensure_namespace(lab.client, names.RESERVATION_NAMESPACE)
    await lab.node("a", gpus=1, memory_mib=40000)
    await lab.group("honest")
    fraction = {"gpu-fraction": "0.9"}
    await lab.pod("honest-0", "honest", annotations=fraction)
    labels = {"metadata": {"labels": {names.GPU_GROUP_LABEL: "g1"}}}
    made = await lab.client.patch(resources.PODS, "honest-0", labels, "default")
    await lab.client.bind("default", "honest-0", uid=made["metadata"]["uid"], node="a")
    gpu = {names.NVIDIA_GPU: "1"}
    meta = {
        "name": reservation_name("a", "g1"),
        "namespace": names.RESERVATION_NAMESPACE,
        "labels": {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: "g1"},
    }
    container = {"name": "main", "image": "none", "resources": {"requests": gpu, "limits": gpu}}
    await lab.create(resources.PODS, {"metadata": meta, "spec": {"nodeName": "a", "containers": [container]}})


@pytest.mark.parametrize("way", WAYS)
async def test_a_share_does_not_land_on_a_full_gpu(way: str) -> None:
    async with scheduler_cluster() as lab:
        await shared_gpu(lab)
        await lab.gang("mine", pods=1, annotations={"gpu-fraction": "0.9"})
        request = {
            "podName": "mine-0",
            "selectedNode": "a",
            "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 1, "portion": "0.90"},
            "selectedGPUGroups": ["g1"],
        }
        await attacked(lab, way, "mine", "a", ["mine-0"], [request, {}])
        assert not lab.faults.written("POST", REQUESTS)


async def one_device(lab: SchedulerCluster) -> dict[str, Any]:
    """Node a has one device, which a claim of another pod holds; what that claim was given."""
    await lab.node("a")
    await lab.create(resources.DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {}})
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    offer = {"driver": "gpu.example.com", "nodeName": "a", "pool": pool, "devices": [{"name": "gpu-0"}]}
    await lab.create(resources.RESOURCE_SLICES, {"metadata": {"name": "a"}, "spec": offer})
    asked = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    for name in ("theirs", "ours"):
        await lab.create(resources.RESOURCE_CLAIMS, {"metadata": {"name": name}, "spec": asked})
    result = {"request": "r", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}
    pin = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    given = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [pin]}]},
    }
    await lab.group("honest")
    made = await lab.pod("honest-0", "honest", resourceClaims=[{"name": "d", "resourceClaimName": "theirs"}])
    user = {"resource": "pods", "name": "honest-0", "uid": made["metadata"]["uid"]}
    status = {"status": {"allocation": given, "reservedFor": [user]}}
    await lab.client.patch(resources.RESOURCE_CLAIMS, "theirs", status, "default", subresource="status")
    await lab.client.bind("default", "honest-0", uid=made["metadata"]["uid"], node="a")
    return given


@pytest.mark.parametrize("way", WAYS)
async def test_a_claim_does_not_get_a_device_that_another_holds(way: str) -> None:
    async with scheduler_cluster() as lab:
        given = await one_device(lab)
        await lab.gang("mine", pods=1, resourceClaims=[{"name": "d", "resourceClaimName": "ours"}])
        request = {
            "podName": "mine-0",
            "selectedNode": "a",
            "receivedResourceType": "Regular",
            "resourceClaimAllocations": [{"name": "d", "allocation": given}],
        }
        await attacked(lab, way, "mine", "a", ["mine-0"], [request, {}])
        assert not lab.faults.written("POST", REQUESTS)
