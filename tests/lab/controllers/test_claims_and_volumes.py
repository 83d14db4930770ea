"""Claims for devices and for storage on the embedded API server."""

from __future__ import annotations

import asyncio
from typing import Any

from pykai.api import names
from pykai.api.resource import ResourceClaim
from pykai.api.storage import PersistentVolume, PersistentVolumeClaim
from pykai.kube.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    STORAGE_CLASSES,
)
from pykai.kube.store import Store
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from tests.lab.simulatedcluster import TIMEOUT_S, SimulatedCluster, simulated_cluster, wait_for_object

REQUEST = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}}]}
ALLOCATION = {"devices": {"results": [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"}]}}


async def claims(w: SimulatedCluster) -> Store[ResourceClaim]:
    store = w.caches.store(RESOURCE_CLAIMS, ResourceClaim)
    await store.synced.wait()
    return store


async def reserve(w: SimulatedCluster, claim: str, pod: str) -> None:
    """What a binder does."""
    uid = (await w.get(PODS, pod))["metadata"]["uid"]
    status = {"allocation": ALLOCATION, "reservedFor": [{"resource": "pods", "name": pod, "uid": uid}]}
    await w.client.patch(RESOURCE_CLAIMS, claim, {"status": status}, "default", subresource="status")


async def template(w: SimulatedCluster) -> None:
    body = {"metadata": {"name": "one-gpu", "namespace": "default"}, "spec": {"spec": {"devices": REQUEST}}}
    await w.create(RESOURCE_CLAIM_TEMPLATES, body)


WISH = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]


async def test_a_pod_gets_a_claim_from_its_template() -> None:
    async with simulated_cluster(controllers=True) as w:
        store = await claims(w)
        await w.pod("a", resourceClaims=WISH)
        await w.event("FailedResourceClaimCreation", '"one-gpu" not found')
        await template(w)
        noted = await w.wait_for_pod("a", lambda p: bool(p.status.resource_claim_statuses))
        (status,) = noted.status.resource_claim_statuses
        claim = store.get(f"default/{status.resource_claim_name}")
        assert status.name == "gpu"
        assert claim is not None
        assert claim.metadata.annotations[names.POD_CLAIM_NAME_ANNOTATION] == "gpu"
        assert claim.metadata.owner_references[0].uid == noted.metadata.uid
        assert claim.spec.devices.requests[0].exactly is not None
        await w.restart()
        await w.pod("b", resourceClaims=WISH)
        await w.wait_for_pod("b", lambda p: bool(p.status.resource_claim_statuses))
        assert len(store) == 2


async def test_a_pod_starts_once_its_claim_is_reserved_and_gives_it_back_at_the_end() -> None:
    async with simulated_cluster(controllers=True, behaviour=BehaviourDefaults(run_s=30)) as w:
        store = await claims(w)
        await w.node("n1")
        await template(w)
        await w.pod("a", resourceClaims=WISH)
        noted = await w.wait_for_pod("a", lambda p: bool(p.status.resource_claim_statuses))
        name = noted.status.resource_claim_statuses[0].resource_claim_name or ""
        await w.client.bind("default", "a", uid=noted.metadata.uid, node="n1")
        held = await w.wait_for_pod("a", lambda p: bool(p.status.container_statuses))
        waiting = held.status.container_statuses[0].state.waiting
        assert waiting is not None
        assert "is not reserved for this pod" in waiting.message
        await reserve(w, name, "a")
        await w.phase("a", "Running")
        await w.phase("a", "Succeeded")
        await store.wait_until(lambda s: len(s) == 0)


async def test_a_shared_claim_gives_its_devices_back_when_the_last_user_is_gone() -> None:
    async with simulated_cluster(controllers=True) as w:
        store = await claims(w)
        await w.create(
            RESOURCE_CLAIMS, {"metadata": {"name": "shared", "namespace": "default"}, "spec": {"devices": REQUEST}}
        )
        wish = [{"name": "gpu", "resourceClaimName": "shared"}]
        users = []
        for name in ("a", "b"):
            made = await w.pod(name, resourceClaims=wish)
            users.append({"resource": "pods", "name": name, "uid": made["metadata"]["uid"]})
        status = {"allocation": ALLOCATION, "reservedFor": users}
        await w.client.patch(RESOURCE_CLAIMS, "shared", {"status": status}, "default", subresource="status")
        await wait_for_object(store, "default/shared", lambda found: len(found.status.reserved_for) == 2)
        await w.client.delete(PODS, "a", "default")
        await wait_for_object(store, "default/shared", lambda found: len(found.status.reserved_for) == 1)
        claim = store.get("default/shared")
        assert claim is not None
        assert claim.status.allocation is not None
        await w.client.delete(PODS, "b", "default")
        await wait_for_object(store, "default/shared", lambda found: found.status.allocation is None)
        assert len(store) == 1


async def protected(w: SimulatedCluster, pod: dict[str, Any], name: str, *more: str) -> None:
    """A claim as a binder makes it for extended resources of a pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    metadata = {
        "name": name,
        "namespace": "default",
        "finalizers": [names.DRA_DELETE_PROTECTION_FINALIZER, *more],
        "ownerReferences": [{**owner, "controller": True}],
    }
    await w.create(RESOURCE_CLAIMS, {"metadata": metadata, "spec": {"devices": REQUEST}})
    await reserve(w, name, pod["metadata"]["name"])
    told = {"status": {"extendedResourceClaimStatus": {"resourceClaimName": name, "requestMappings": []}}}
    await w.client.patch(PODS, pod["metadata"]["name"], told, "default", subresource="status")


async def test_a_protected_claim_goes_when_its_pod_is_gone() -> None:
    async with simulated_cluster(controllers=True) as w:
        store = await claims(w)
        await protected(w, await w.pod("a"), "extended")
        await wait_for_object(store, "default/extended", lambda found: len(found.status.reserved_for) == 1)
        await w.client.delete(PODS, "a", "default")
        await store.wait_until(lambda s: len(s) == 0, TIMEOUT_S)


async def test_a_protected_claim_goes_when_its_pod_has_ended() -> None:
    async with simulated_cluster(controllers=True, behaviour=BehaviourDefaults(run_s=30)) as w:
        store = await claims(w)
        await w.node("n1")
        await protected(w, made := await w.pod("a"), "extended")
        await w.client.bind("default", "a", uid=made["metadata"]["uid"], node="n1")
        await w.phase("a", "Succeeded")
        await store.wait_until(lambda s: len(s) == 0, TIMEOUT_S)


async def test_a_protected_claim_in_use_stays_and_so_do_the_finalizers_of_others() -> None:
    async with simulated_cluster(controllers=True) as w:
        store = await claims(w)
        await protected(w, await w.pod("a"), "extended", "example.com/mine")
        await w.client.delete(RESOURCE_CLAIMS, "extended", "default")
        leaving = await wait_for_object(
            store, "default/extended", lambda found: found.metadata.deletion_timestamp is not None
        )
        assert len(leaving.status.reserved_for) == 1
        await w.client.delete(PODS, "a", "default")
        await wait_for_object(store, "default/extended", lambda found: not found.status.reserved_for)
        finalizers: list[str] = []
        async with asyncio.timeout(TIMEOUT_S):
            while not finalizers or names.DRA_DELETE_PROTECTION_FINALIZER in finalizers:
                finalizers = (await w.get(RESOURCE_CLAIMS, "extended"))["metadata"]["finalizers"]
                await asyncio.sleep(0)
        assert finalizers == ["example.com/mine"]


async def volumes(w: SimulatedCluster) -> tuple[Store[PersistentVolume], Store[PersistentVolumeClaim]]:
    there = w.caches.store(PERSISTENT_VOLUMES, PersistentVolume)
    asked = w.caches.store(PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim)
    await there.synced.wait()
    await asked.synced.wait()
    return there, asked


def volume(name: str, size: str, storage_class: str = "", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "hostPath": {"path": "/data"},
            **spec,
        },
    }


def claim(name: str, size: str = "5Gi", storage_class: str = "", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}},
            **spec,
        },
    }


async def bound(asked: Store[PersistentVolumeClaim], name: str) -> PersistentVolumeClaim:
    return await wait_for_object(asked, f"default/{name}", lambda found: found.status.phase == "Bound")


async def test_a_claim_is_bound_to_the_smallest_volume_that_is_large_enough() -> None:
    async with simulated_cluster(controllers=True) as w:
        there, asked = await volumes(w)
        for name, size in (("small", "1Gi"), ("large", "100Gi"), ("fitting", "10Gi")):
            await w.create(PERSISTENT_VOLUMES, volume(name, size))
        await w.create(PERSISTENT_VOLUME_CLAIMS, claim("c"))
        found = await bound(asked, "c")
        assert found.spec.volume_name == "fitting"
        assert found.metadata.annotations[names.BIND_COMPLETED_ANNOTATION] == "yes"
        taken = there.get("fitting")
        assert taken is not None
        assert taken.spec.claim_ref is not None
        assert taken.spec.claim_ref.uid == found.metadata.uid
        await wait_for_object(there, "fitting", lambda found: found.status.phase == "Bound")
        await wait_for_object(there, "small", lambda found: found.status.phase == "Available")
        await w.client.delete(PERSISTENT_VOLUME_CLAIMS, "c", "default")
        await wait_for_object(there, "fitting", lambda found: found.status.phase == "Released")


async def test_a_class_makes_volumes_and_takes_them_back() -> None:
    async with simulated_cluster(controllers=True) as w:
        there, asked = await volumes(w)
        await w.create(PERSISTENT_VOLUME_CLAIMS, claim("c", storage_class="fast"))
        await w.create(STORAGE_CLASSES, {"metadata": {"name": "fast"}, "provisioner": "disks.example.com"})
        found = await bound(asked, "c")
        assert found.spec.volume_name == f"pvc-{found.metadata.uid}"
        await w.client.delete(PERSISTENT_VOLUME_CLAIMS, "c", "default")
        await there.wait_until(lambda s: len(s) == 0)


async def test_a_class_that_waits_is_served_when_the_node_is_known() -> None:
    async with simulated_cluster(controllers=True) as w:
        _, asked = await volumes(w)
        late = {
            "metadata": {"name": "late"},
            "provisioner": "x.example.com",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        await w.create(STORAGE_CLASSES, late)
        await w.create(STORAGE_CLASSES, {"metadata": {"name": "fast"}, "provisioner": "x.example.com"})
        await w.create(PERSISTENT_VOLUME_CLAIMS, claim("waits", storage_class="late"))
        await w.create(PERSISTENT_VOLUME_CLAIMS, claim("other", storage_class="fast"))
        await bound(asked, "other")
        waiting = asked.get("default/waits")
        assert waiting is not None
        assert waiting.status.phase != "Bound"
        note = {"metadata": {"annotations": {names.SELECTED_NODE_ANNOTATION: "n1"}}}
        await w.client.patch(PERSISTENT_VOLUME_CLAIMS, "waits", note, "default")
        await bound(asked, "waits")


async def test_a_volume_that_a_binder_chose_is_bound_whatever_the_class_waits_for() -> None:
    async with simulated_cluster(controllers=True) as w:
        _, asked = await volumes(w)
        late = {
            "metadata": {"name": "local"},
            "provisioner": names.NO_PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        await w.create(STORAGE_CLASSES, late)
        made = await w.create(PERSISTENT_VOLUME_CLAIMS, claim("c", storage_class="local"))
        chosen = {"namespace": "default", "name": "c", "uid": made["metadata"]["uid"]}
        await w.create(PERSISTENT_VOLUMES, volume("mine", "10Gi", "local", claimRef=chosen))
        assert (await bound(asked, "c")).spec.volume_name == "mine"


async def test_a_pod_waits_for_its_volume() -> None:
    async with simulated_cluster(controllers=True) as w:
        _, asked = await volumes(w)
        await w.node("n1")
        source = {"persistentVolumeClaim": {"claimName": "c"}}
        await w.pod("a", node="n1", volumes=[{"name": "v", **source}])
        await w.wait_for_pod("a", lambda p: bool(p.status.container_statuses))
        await w.create(PERSISTENT_VOLUMES, volume("v", "10Gi"))
        await w.create(PERSISTENT_VOLUME_CLAIMS, claim("c"))
        await bound(asked, "c")
        await w.phase("a", "Running")
