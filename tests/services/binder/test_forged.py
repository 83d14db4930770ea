"""BindRequests written by a tenant never fill a node or device beyond its capacity."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.decode import decode_as
from pykai.api.resource import ResourceClaim
from pykai.api.scheduling import BindRequest
from pykai.api.sharing import gpu_groups, reservation_name
from pykai.api.unstructured import JsonObject
from pykai.binder.attempt import BindAttempt
from pykai.binder.bindadmission import BindAdmission
from pykai.binder.deviceholders import DeviceHolders
from pykai.binder.gpugroups import GROUP_INDEX
from pykai.binder.lifecycle import BindFailure
from pykai.binder.options import BinderOptions
from pykai.kube.caches import Caches
from pykai.kube.resources import BIND_REQUESTS, EVENTS, PODS, RESOURCE_CLAIMS
from pykai.kube.store import Store
from tests.services.binder.bindercluster import (
    BinderCluster,
    binder_cluster,
)
from tests.services.binder.test_claims import allocation, claim, claim_status, extended
from tests.services.binder.test_room import asking

FRACTION = names.GPU_FRACTION_ANNOTATION


async def refused(it: BinderCluster, name: str = "p") -> str:
    """Why a request failed; nothing was bound."""
    failed = await it.until_phase("Failed", name)
    assert not (await it.live(name))["spec"].get("nodeName")
    reason: str = failed["status"]["reason"]
    return reason


async def test_a_gpu_that_is_full_takes_no_more() -> None:
    """A share of 0.9 lands on no GPU that holds 0.9."""
    async with binder_cluster() as it, it.working():
        await it.request(await it.pod("honest", fraction="0.9"), groups=("g",))
        await it.until_phase("Succeeded", "honest")
        await it.request(await it.pod(fraction="0.9"), groups=("g",))
        why = await refused(it)
        assert "the GPU of group g on node n1 is full: 13770 of 15300 MiB are in use, 13770 are wanted" in why
        await it.until_reservations(1)
        await it.request(await it.pod("small", fraction="0.1"), groups=("g",))
        await it.until_phase("Succeeded", "small")


@pytest.mark.embedded_only("cuts whole events out of the bytes of a watch")
async def test_concurrent_binds_do_not_pass_before_the_first_is_visible() -> None:
    """The cache shows none of them yet: watches bring nothing after the pods were made."""
    async with binder_cluster() as it:
        pods = [await it.pod(f"p{number}", fraction="0.4") for number in range(6)]
        binder = await it.binder()
        try:
            await it.until(lambda: _synced(binder.service.ready()))
            binder.transport.garble = _without_nodes
            for pod in pods:
                await it.request(pod, groups=("g",))
            phases = await it.until(lambda: _settled(it, len(pods)), of=BIND_REQUESTS)
            assert sorted(phases) == ["Failed"] * 4 + ["Succeeded"] * 2
            bound = [pod for pod in await it.client.list_raw(PODS, namespace="ns") if pod["spec"].get("nodeName")]
            assert len(bound) == 2
        finally:
            binder.transport.garble = lambda chunk: chunk
            await binder.end()


async def _synced(ready: bool) -> bool:
    return ready


async def _settled(it: BinderCluster, count: int) -> list[str]:
    found = await it.client.list_raw(BIND_REQUESTS, namespace="ns")
    phases = [(each.get("status") or {}).get("phase", "") for each in found]
    return phases if len(phases) == count and all(phases) else []


def _without_nodes(chunk: bytes) -> bytes:
    """Events of user pods that have a node are held back."""
    lines = chunk.split(b"\n")
    kept = [line for line in lines if not (b'"namespace":"ns"' in line and b'"nodeName":"n1"' in line)]
    return b"\n".join(kept)


async def test_a_full_node_takes_no_more_under_concurrent_requests() -> None:
    async with binder_cluster() as it:
        pods = [await it.pod(f"p{number}", containers=asking(gpu="3")) for number in range(4)]
        async with it.working():
            await asyncio.gather(*(it.request(pod) for pod in pods))
            phases = await it.until(lambda: _settled(it, len(pods)), of=BIND_REQUESTS)
            assert sorted(phases) == ["Failed"] * 2 + ["Succeeded"] * 2


async def test_a_pod_of_another_scheduler_is_not_bound() -> None:
    async with binder_cluster() as it, it.working():
        await it.request(await it.pod(fraction="0.5", schedulerName="default-scheduler"), groups=("g",))
        assert "asks for scheduler default-scheduler, not kai-scheduler" in await refused(it)
        assert await it.reservations() == []


async def test_a_share_goes_only_to_a_pod_that_requests_one() -> None:
    async with binder_cluster() as it, it.working():
        await it.request(await it.pod(), groups=("g",))
        assert "asks for no part of a GPU" in await refused(it)
        assert await it.reservations() == []


@pytest.mark.parametrize(
    ("groups", "portion", "text"),
    [
        (("a", "b"), "0.20", "asks for parts of 1 GPUs and is to get 2"),
        (("a",), "1.00", "asks for 0.20 of a GPU and is to get 1.00"),
        (("a",), "much", "asks for 0.20 of a GPU and is to get much"),
    ],
)
async def test_a_pod_gets_no_more_than_it_requests(groups: tuple[str, ...], portion: str, text: str) -> None:
    async with binder_cluster() as it, it.working():
        given_ = {"count": len(groups), "portion": portion}
        await it.request(await it.pod(fraction="0.2"), groups=groups, receivedGPU=given_)
        assert text in await refused(it)
        assert await it.reservations() == []


async def test_a_share_without_a_gpu_group_is_invalid() -> None:
    """It is deleted, with an event on the pod."""
    async with binder_cluster() as it, it.working():
        half = {"count": 1, "portion": "0.50"}
        pod = await it.pod(fraction="0.5")
        await it.request(pod, receivedResourceType="Fraction", receivedGPU=half)

        async def told() -> bool:
            return any("names no selectedGPUGroups" in event["message"] for event in await it.events("BindingError"))

        await it.until(told, of=EVENTS)
        assert await it.get(BIND_REQUESTS, "p") is None


async def test_a_gpu_group_that_is_not_a_label_value_is_refused() -> None:
    async with binder_cluster() as it, it.working():
        await it.request(await it.pod(fraction="0.5"), groups=("../../etc",))
        assert "../../etc" in await refused(it)


async def test_a_claim_of_extended_resources_does_not_hide_gpus_that_the_node_has() -> None:
    """The request says that devices are served by a claim; the node has GPUs of its own, and they are in use."""
    async with binder_cluster() as it, it.working():
        await it.request(await it.pod("honest", containers=asking(gpu="8")))
        await it.until_phase("Succeeded", "honest")
        pod = await it.pod(containers=asking(gpu="1"))
        await it.request(pod, extendedResourceClaimAllocation=extended())
        assert "nvidia.com/gpu: 8 of 8 are in use" in await refused(it)


async def two_claims(it: BinderCluster) -> JsonObject:
    """One claim has gpu-0 and is in use; a pod has another."""
    other = {"resource": "pods", "name": "other", "uid": "u"}
    await claim(it, "theirs", allocation=allocation(), reservedFor=[other])
    await claim(it, "mine")
    return await it.pod(resourceClaims=[{"name": "devices", "resourceClaimName": "mine"}])


async def test_a_device_that_another_claim_has_is_not_given_away() -> None:
    async with binder_cluster() as it, it.working():
        pod = await two_claims(it)
        await it.request(pod, resourceClaimAllocations=[{"name": "devices", "allocation": allocation()}])
        assert "device d/n1/gpu-0 belongs to resource claim ns/theirs" in await refused(it)
        assert not await claim_status(it, "mine")


async def test_admin_access_that_the_claim_does_not_request_opens_no_device() -> None:
    async with binder_cluster() as it, it.working():
        pod = await two_claims(it)
        forged = allocation()
        forged["devices"]["results"][0]["adminAccess"] = True
        await it.request(pod, resourceClaimAllocations=[{"name": "devices", "allocation": forged}])
        assert "device d/n1/gpu-0 belongs to resource claim ns/theirs" in await refused(it)


async def test_a_device_that_was_given_back_can_be_given_again() -> None:
    async with binder_cluster() as it, it.working():
        pod = await two_claims(it)
        theirs = await it.client.get_raw(RESOURCE_CLAIMS, "theirs", "ns")
        await it.client.update(RESOURCE_CLAIMS, {**theirs, "status": {}}, subresource="status")
        await it.request(pod, resourceClaimAllocations=[{"name": "devices", "allocation": allocation()}])
        await it.until_phase("Succeeded")


async def test_a_device_that_only_the_cache_shows_with_another_claim_can_be_given() -> None:
    async with binder_cluster() as it:
        await two_claims(it)
        caches = Caches(it.client)
        claims = caches.store(RESOURCE_CLAIMS, ResourceClaim)
        holders = DeviceHolders(it.client, claims)
        await caches.start()
        await caches.wait_for_sync()
        await caches.stop()
        mine, theirs = [await it.client.get_raw(RESOURCE_CLAIMS, name, "ns") for name in ("mine", "theirs")]
        assert "belongs to resource claim ns/theirs" in await holders.reserve(mine, allocation())
        await it.client.update(RESOURCE_CLAIMS, {**theirs, "status": {}}, subresource="status")
        assert await holders.reserve(mine, allocation()) == ""


async def test_a_claim_gets_no_more_devices_than_it_requests() -> None:
    async with binder_cluster() as it, it.working():
        pod = await two_claims(it)
        many = allocation("gpu-1", "gpu-2")
        await it.request(pod, resourceClaimAllocations=[{"name": "devices", "allocation": many}])
        assert "request r asks for 1 devices and is given 2" in await refused(it)


async def test_two_claims_that_are_given_one_device_at_once_do_not_both_get_it() -> None:
    async with binder_cluster() as it:
        for number in range(2):
            await claim(it, f"c{number}")
            uses = [{"name": "devices", "resourceClaimName": f"c{number}"}]
            pod = await it.pod(f"p{number}", resourceClaims=uses)
            await it.request(pod, resourceClaimAllocations=[{"name": "devices", "allocation": allocation()}])
        async with it.working():
            phases = await it.until(lambda: _settled(it, 2), of=BIND_REQUESTS)
        assert sorted(phases) == ["Failed", "Succeeded"]


async def test_a_label_of_a_pod_of_another_scheduler_fills_nothing_and_keeps_no_gpu() -> None:
    async with binder_cluster() as it, it.working():
        await it.request(await it.pod("honest", fraction="0.9"), groups=("g",))
        await it.until_phase("Succeeded", "honest")
        marks = {"labels": {names.GPU_GROUP_LABEL: "g"}, "annotations": {FRACTION: "0.9"}}
        spec = {"schedulerName": "default-scheduler", "nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
        await it.client.create(PODS, {"metadata": {"name": "guest", "namespace": "ns", **marks}, "spec": spec})
        await it.request(await it.pod("small", fraction="0.1"), groups=("g",))
        await it.until_phase("Succeeded", "small")
        for name in ("honest", "small"):
            await it.client.delete(PODS, name, "ns", grace_s=0)
        await it.until_reservations(0)


async def test_a_pod_that_only_has_the_name_of_a_reservation_is_not_used() -> None:
    async with binder_cluster() as it, it.working() as binder:
        it.answers = False
        meta = {"name": reservation_name("n1", "g"), "namespace": names.RESERVATION_NAMESPACE}
        spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
        await it.client.create(PODS, {"metadata": meta, "spec": spec})
        # The cache must not take it for one either.
        await binder.service._pods.wait_until(lambda store: f"{meta['namespace']}/{meta['name']}" in store)
        await it.request(await it.pod(fraction="0.5"), groups=("g",))
        assert "has the name of the GPU reservation of group g on node n1" in await refused(it)


NODE = decode_as(
    Node,
    {
        "metadata": {"name": "n1", "labels": {names.GPU_MEMORY_NODE_LABEL: "10000"}},
        "status": {"allocatable": {names.NVIDIA_GPU: "4"}},
    },
)


def attempt(number: int, hundredths: int, groups: list[str]) -> BindAttempt:
    asks = {FRACTION: f"0.{hundredths:02}", names.GPU_NUM_DEVICES_ANNOTATION: str(len(groups))}
    meta: JsonObject = {"name": f"p{number}", "namespace": "ns", "uid": f"u{number}", "annotations": asks}
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "c"}]}
    pod = decode_as(Pod, {"metadata": meta, "spec": spec})
    wanted = {"podName": f"p{number}", "receivedResourceType": "Fraction", "selectedGPUGroups": groups}
    return BindAttempt(decode_as(BindRequest, {"spec": wanted}), {"spec": {}}, pod, NODE)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 99),
            st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_no_order_of_attempts_fills_a_gpu_beyond_its_memory(steps: list[tuple[int, list[str], bool]]) -> None:
    """Whichever binds pass, and whichever pods end, the shares of each group stay within one GPU."""
    pods: Store[Pod] = Store(PODS, Pod)
    pods.index(GROUP_INDEX, lambda pod: gpu_groups(pod.metadata.labels))
    room = BindAdmission(pods, BinderOptions())
    inside: dict[str, tuple[int, list[str]]] = {}
    for number, (hundredths, groups, leaves) in enumerate(steps):
        one = attempt(number, hundredths, groups)
        full = any(hundredths + sum(h for h, g in inside.values() if group in g) > 100 for group in groups)
        try:
            room.admit(one, NODE)
        except BindFailure:
            assert full
            continue
        assert not full
        inside[one.key] = (hundredths, groups)
        if leaves:
            room.release(one.key)
            del inside[one.key]


def test_a_pod_that_another_binder_has_bound_is_counted_once() -> None:
    """gpu:T-70: this binder tries the same request, and the next pod fits beside the first."""
    pods: Store[Pod] = Store(PODS, Pod)
    pods.index(GROUP_INDEX, lambda pod: gpu_groups(pod.metadata.labels))
    room = BindAdmission(pods, BinderOptions())
    first = attempt(0, 40, ["g"])
    document = msgspec.to_builtins(first.pod)
    document["metadata"]["labels"] = {names.GPU_GROUP_LABEL: "g"}
    document["spec"]["nodeName"] = NODE.metadata.name
    pods.begin_list()
    pods.add_listed([msgspec.Raw(msgspec.json.encode(document))])
    pods.end_list("1")
    room.admit(first, NODE)
    room.admit(attempt(1, 40, ["g"]), NODE)
    with pytest.raises(BindFailure, match="is full"):
        room.admit(attempt(2, 40, ["g"]), NODE)
