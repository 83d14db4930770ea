"""Allocations written into ResourceClaims: gpu:D-12, D-17, RB-2, T-75."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.api.unstructured import JsonObject
from pykai.binder.claims import extended_claim_name
from pykai.kube.resources import BIND_REQUESTS, PODS, RESOURCE_CLAIMS
from pykai.kube.transport import Request, Response
from tests.services.binder.bindercluster import (
    BinderCluster,
    binder_cluster,
    status,
)

EXTENDED = {
    "deviceRequests": [
        {
            "name": "container-0-request-0",
            "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
        }
    ],
    "containerMappings": [
        {"containerName": "c", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"}
    ],
}


def allocation(*devices: str, request: str = "r", node: str = "n1") -> JsonObject:
    """What the scheduler chose."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    chosen = devices or ("gpu-0",)
    results = [{"request": request, "driver": "d", "pool": node, "device": device} for device in chosen]
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"devices": {"results": results}, "nodeSelector": selector}


def extended(node: str = "n1") -> JsonObject:
    """What the scheduler chose for extended resources."""
    return {**EXTENDED, "allocation": allocation("gpu-0", "gpu-1", request="container-0-request-0", node=node)}


async def claim(it: BinderCluster, name: str = "claim", **status_: Any) -> None:
    """A claim, perhaps in use."""
    document = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    made = await it.client.create(RESOURCE_CLAIMS, document)
    if status_:
        await it.client.update(RESOURCE_CLAIMS, {**made, "status": status_}, subresource="status")


async def greedy_pod(it: BinderCluster) -> JsonObject:
    """A pod that requests two GPUs as an extended resource."""
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    return await it.pod(containers=[container])


async def ask(it: BinderCluster, given: JsonObject | None, *, name: str = "p", node: str = "n1") -> JsonObject:
    """A pod with the claim, and the decision about it."""
    pod = await it.pod(name, resourceClaims=[{"name": "devices", "resourceClaimName": "claim"}])
    entry = {"name": "devices"} | ({"allocation": given} if given is not None else {})
    await it.request(pod, node, resourceClaimAllocations=[entry])
    return pod


async def claim_status(it: BinderCluster, name: str = "claim") -> JsonObject:
    found: JsonObject = (await it.client.get_raw(RESOURCE_CLAIMS, name, "ns")).get("status") or {}
    return found


def refuse_binding(request: Request) -> Response | None:
    return status(403, "Forbidden", "injected") if request.path.endswith("/binding") else None


async def test_a_claim_is_allocated_and_reserved_unpruned() -> None:
    async with binder_cluster() as it, it.working():
        await claim(it)
        given = allocation()
        settings = {"driver": "d", "parameters": {"kind": "Sharing", "strategy": {"slices": [1, 2]}}}
        given["devices"]["config"] = [{"source": "FromClass", "requests": ["r"], "opaque": settings}]
        uid = (await ask(it, given))["metadata"]["uid"]
        await it.until_phase("Succeeded")
        told = await claim_status(it)
        assert told["allocation"]["devices"] == given["devices"]
        assert told["reservedFor"] == [{"resource": "pods", "name": "p", "uid": uid}]


async def test_a_shared_claim_keeps_what_it_was_given_first() -> None:
    async with binder_cluster() as it, it.working():
        await claim(it)
        await ask(it, allocation(), name="first")
        await it.until_phase("Succeeded", "first")
        await ask(it, allocation("gpu-7"), name="second")
        await it.until_phase("Succeeded", "second")
        told = await claim_status(it)
        assert told["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
        assert [consumer["name"] for consumer in told["reservedFor"]] == ["first", "second"]


async def test_a_claim_that_was_allocated_on_another_node_fails_the_bind() -> None:
    async with binder_cluster() as it, it.working():
        await claim(it, allocation=allocation(node="n2"))
        await ask(it, allocation())
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"] == (
            "plugin dynamicresources failed in PreBind: K8sPlugin DynamicResources failed Bind for pod: ns/p "
            "and node n1. error: resource claim ns/claim is allocated on other nodes"
        )


@pytest.mark.parametrize(
    ("prepared", "text"),
    [
        ("missing", "resource claim ns/claim not found"),
        ("no allocation", "no allocation for claim devices in the BindRequest"),
        ("full", "resource claim ns/claim has reached its maximum number of consumers (256)"),
    ],
)
async def test_claims_that_cannot_be_allocated_fail_the_bind(prepared: str, text: str) -> None:
    async with binder_cluster() as it, it.working():
        if prepared == "full":
            others = [{"resource": "pods", "name": f"o{n}", "uid": f"u{n}"} for n in range(256)]
            await claim(it, allocation=allocation(), reservedFor=others)
        elif prepared != "missing":
            await claim(it)
        await ask(it, None if prepared == "no allocation" else allocation())
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"].endswith(text)


async def test_a_failed_bind_gives_its_devices_back() -> None:
    async with binder_cluster() as it, it.working() as binder:
        binder.transport.fault = refuse_binding
        await claim(it)
        await ask(it, allocation())
        await it.until_phase("Failed")
        told = await claim_status(it)
        assert not told.get("reservedFor")
        assert not told.get("allocation")


async def test_a_failed_bind_gives_its_devices_back_although_the_claim_is_changed_meanwhile() -> None:
    async with binder_cluster() as it, it.working() as binder:
        writes = 0

        def fault(request: Request) -> Response | None:
            nonlocal writes
            if request.method == "PUT" and "resourceclaims" in request.path:
                writes += 1
                # The first allocates, the second gives back.
                return status(409, "Conflict") if writes == 2 else None
            return refuse_binding(request)

        binder.transport.fault = fault
        await claim(it)
        await ask(it, allocation())
        await it.until_phase("Failed")
        assert not (await claim_status(it)).get("allocation")


async def test_a_failed_bind_leaves_devices_that_others_use() -> None:
    async with binder_cluster() as it, it.working() as binder:
        binder.transport.fault = refuse_binding
        other = {"resource": "pods", "name": "other", "uid": "u"}
        await claim(it, allocation=allocation(), reservedFor=[other])
        await ask(it, allocation())
        await it.until_phase("Failed")
        told = await claim_status(it)
        assert told["reservedFor"] == [other]
        assert told["allocation"]["devices"] == allocation()["devices"]


async def test_a_lost_race_for_the_claim_is_tried_again() -> None:
    async with binder_cluster() as it, it.working() as binder:
        refusals = 0

        def fault(request: Request) -> Response | None:
            nonlocal refusals
            if request.method == "PUT" and "resourceclaims" in request.path and refusals < 2:
                refusals += 1
                return status(409, "Conflict")
            return None

        binder.transport.fault = fault
        await claim(it)
        await ask(it, allocation())
        await it.until_phase("Succeeded")
        assert refusals == 2


async def test_extended_resources_get_a_claim_of_their_own() -> None:
    async with binder_cluster() as it, it.working():
        pod = await greedy_pod(it)
        await it.request(pod, extendedResourceClaimAllocation=extended())
        await it.until_phase("Succeeded")
        (made,) = await it.client.list_raw(RESOURCE_CLAIMS, namespace="ns")
        metadata = made["metadata"]
        assert metadata["name"].startswith("p-extended-resources-")
        assert metadata["finalizers"] == [names.DRA_DELETE_PROTECTION_FINALIZER]
        assert metadata["annotations"] == {names.EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"}
        (owner,) = metadata["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (pod["metadata"]["uid"], True)
        assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2
        assert made["status"]["allocation"]["devices"] == extended()["allocation"]["devices"]
        assert [consumer["name"] for consumer in made["status"]["reservedFor"]] == ["p"]
        told = (await it.live())["status"]["extendedResourceClaimStatus"]
        assert told == {"resourceClaimName": metadata["name"], "requestMappings": EXTENDED["containerMappings"]}


async def test_t75_every_failed_bind_deletes_that_claim() -> None:
    async with binder_cluster(speed=1000) as it, it.working() as binder:
        binder.transport.fault = refuse_binding
        await it.request(await greedy_pod(it), extendedResourceClaimAllocation=extended(), backoffLimit=2)
        await it.until_phase("Failed", failedAttempts=2)
        assert await it.client.list_raw(RESOURCE_CLAIMS, namespace="ns") == []
        assert "extendedResourceClaimStatus" not in (await it.live())["status"]


async def test_a_claim_that_an_interrupted_attempt_left_for_another_node_is_replaced() -> None:
    async with binder_cluster() as it:
        await it.node("n2")
        pod = await greedy_pod(it)
        await it.request(pod, "n2", extendedResourceClaimAllocation=extended("n2"))
        # Killed when the claim is made, allocated, and the pod knows of it.
        await it.binder_that_dies(after=3)
        await it.client.delete(BIND_REQUESTS, "p", "ns")
        await it.request(pod, "n1", extendedResourceClaimAllocation=extended())
        async with it.working():
            await it.until_phase("Succeeded")
        (made,) = await it.client.list_raw(RESOURCE_CLAIMS, namespace="ns")
        assert made["status"]["allocation"]["devices"]["results"][0]["pool"] == "n1"


async def test_a_claim_that_an_interrupted_attempt_left_for_the_same_devices_is_kept() -> None:
    async with binder_cluster() as it:
        await it.request(await greedy_pod(it), extendedResourceClaimAllocation=extended())
        await it.binder_that_dies(after=3)
        (left,) = await it.client.list_raw(RESOURCE_CLAIMS, namespace="ns")
        assert left["status"]["allocation"]
        async with it.working():
            await it.until_phase("Succeeded")
        (kept,) = await it.client.list_raw(RESOURCE_CLAIMS, namespace="ns")
        assert kept["metadata"]["uid"] == left["metadata"]["uid"]


async def test_extended_resources_without_an_allocation_fail_the_bind_and_leave_no_claim() -> None:
    async with binder_cluster() as it, it.working():
        await it.request(await greedy_pod(it), extendedResourceClaimAllocation=EXTENDED)
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"].endswith("no allocation for the extended resources in the BindRequest")
        assert await it.client.list_raw(RESOURCE_CLAIMS, namespace="ns") == []


def test_the_name_of_a_claim_of_extended_resources_follows_from_the_uid() -> None:
    """A later version finds the claim that an earlier one has made."""
    pod = decode_as(Pod, {"metadata": {"name": "p", "uid": "9d4ad6a8-1bd6-4a5a-9f0d-4f2a8ea1a1b5"}})
    assert extended_claim_name(pod) == "p-extended-resources-7qqn8"


async def test_a_template_claim_is_found_by_the_pods_status() -> None:
    async with binder_cluster() as it:
        await claim(it, "p-devices-abc")
        pod = await it.pod(resourceClaims=[{"name": "devices", "resourceClaimTemplateName": "template"}])
        made = {"status": {"resourceClaimStatuses": [{"name": "devices", "resourceClaimName": "p-devices-abc"}]}}
        await it.client.patch(PODS, "p", made, "ns", subresource="status")
        await it.request(pod, resourceClaimAllocations=[{"name": "devices", "allocation": allocation()}])
        async with it.working():
            await it.until_phase("Succeeded")
        assert (await claim_status(it, "p-devices-abc"))["reservedFor"][0]["name"] == "p"


async def test_a_claim_under_the_name_of_the_pods_own_that_was_not_made_for_it_is_left_alone() -> None:
    async with binder_cluster() as it:
        pod = await greedy_pod(it)
        name = extended_claim_name(decode_as(Pod, pod))
        await claim(it, name, allocation=allocation("gpu-7"))
        before = await it.client.get_raw(RESOURCE_CLAIMS, name, "ns")
        async with it.working():
            await it.request(pod, extendedResourceClaimAllocation=extended())
            failed = await it.until_phase("Failed")
        assert f"resource claim ns/{name} was not made for this pod" in failed["status"]["reason"]
        assert await it.client.get_raw(RESOURCE_CLAIMS, name, "ns") == before
