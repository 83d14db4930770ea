"""Volumes are bound before the pod is: gpu:BI-8."""

from __future__ import annotations

from typing import Any

from pykai.api import names
from pykai.kube.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from tests.services.binder.bindercluster import BinderCluster, binder_cluster
from tests.services.binder.test_reservations import looked

USES_CLAIM = [{"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}]


async def storage_class(
    it: BinderCluster, provisioner: str = "maker", mode: str = "WaitForFirstConsumer", **extra: Any
) -> None:
    document = {"metadata": {"name": "fast"}, "provisioner": provisioner, "volumeBindingMode": mode, **extra}
    await it.client.create(STORAGE_CLASSES, document)


async def volume_claim(it: BinderCluster, **spec: Any) -> None:
    wanted = {
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "5Gi"}},
    }
    await it.client.create(
        PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "claim", "namespace": "ns"}, "spec": wanted | spec}
    )


async def volume(it: BinderCluster, name: str, size: str, node: str = "n1") -> None:
    terms = [{"matchExpressions": [{"key": "host", "operator": "In", "values": [node]}]}]
    spec = {
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        "local": {"path": "/"},
    }
    await it.client.create(PERSISTENT_VOLUMES, {"metadata": {"name": name}, "spec": spec})
    available = {"status": {"phase": "Available"}}
    await it.client.patch(PERSISTENT_VOLUMES, name, available, subresource="status")


async def bind_claim(it: BinderCluster, to: str) -> None:
    """What the volume controller does."""
    done = {"metadata": {"annotations": {names.BIND_COMPLETED_ANNOTATION: "yes"}}, "spec": {"volumeName": to}}
    await it.client.patch(PERSISTENT_VOLUME_CLAIMS, "claim", done, "ns")


async def selected_node(it: BinderCluster) -> str | None:
    found = await it.client.get_raw(PERSISTENT_VOLUME_CLAIMS, "claim", "ns")
    node: str | None = (found["metadata"].get("annotations") or {}).get(names.SELECTED_NODE_ANNOTATION)
    return node


async def with_hosts(it: BinderCluster) -> None:
    await it.node("host1", {"host": "n1"})


async def test_the_claim_names_the_node_for_the_provisioner_and_the_pod_waits() -> None:
    async with binder_cluster() as it, it.working():
        await with_hosts(it)
        await storage_class(it)
        await volume_claim(it)
        await it.request(await it.pod(volumes=USES_CLAIM), "host1")
        assert await it.until(lambda: selected_node(it), of=PERSISTENT_VOLUME_CLAIMS) == "host1"
        assert "nodeName" not in (await it.live())["spec"]
        await volume(it, "made", "5Gi")
        await bind_claim(it, "made")
        await it.until_phase("Succeeded")


async def test_the_smallest_volume_that_fits_and_is_reached_is_taken() -> None:
    async with binder_cluster() as it:
        await with_hosts(it)
        await storage_class(it, names.NO_PROVISIONER)
        await volume_claim(it)
        for name, size, node in (
            ("big", "50Gi", "n1"),
            ("small", "1Gi", "n1"),
            ("right", "6Gi", "n1"),
            ("far", "5Gi", "x"),
        ):
            await volume(it, name, size, node)
        await it.request(await it.pod(volumes=USES_CLAIM), "host1")
        async with it.working():

            async def kept() -> Any:
                found = await it.client.get_raw(PERSISTENT_VOLUMES, "right")
                return found["spec"].get("claimRef")

            assert (await it.until(kept, of=PERSISTENT_VOLUMES))["name"] == "claim"
            await bind_claim(it, "right")
            await it.until_phase("Succeeded")
            for other in ("big", "small", "far"):
                assert "claimRef" not in (await it.client.get_raw(PERSISTENT_VOLUMES, other))["spec"]


async def test_a_bound_volume_must_be_reached_from_the_node() -> None:
    async with binder_cluster() as it, it.working():
        await with_hosts(it)
        await storage_class(it)
        await volume_claim(it)
        await volume(it, "far", "5Gi", "elsewhere")
        await bind_claim(it, "far")
        await it.request(await it.pod(volumes=USES_CLAIM), "host1")
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"] == (
            "plugin volumebinding failed in PreBind: "
            "K8sPlugin VolumeBinding failed Filter for pod: ns/p and node host1. error: "
            "node(s) had volume node affinity conflict"
        )


async def test_without_volume_and_provisioner_the_bind_fails() -> None:
    async with binder_cluster() as it, it.working():
        await with_hosts(it)
        await storage_class(it, names.NO_PROVISIONER)
        await volume_claim(it)
        await it.request(await it.pod(volumes=USES_CLAIM), "host1")
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"].endswith("node(s) didn't find available persistent volumes to bind")


async def test_a_missing_claim_fails_the_bind() -> None:
    async with binder_cluster() as it, it.working():
        await it.request(await it.pod(volumes=USES_CLAIM))
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"].endswith('persistentvolumeclaim "claim" not found')


async def test_a_volume_that_never_appears_fails_the_bind_in_time() -> None:
    async with binder_cluster(speed=2000) as it, it.working():
        await with_hosts(it)
        await storage_class(it)
        await volume_claim(it)
        await it.request(await it.pod(volumes=USES_CLAIM), "host1")
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"].endswith("timed out waiting for volumes to be bound: claim")
        await looked(it)


async def test_a_node_deleted_while_its_volume_is_provisioned_gets_no_pod() -> None:
    async with binder_cluster() as it, it.working() as binder:
        await with_hosts(it)
        await storage_class(it)
        await volume_claim(it)
        await it.request(await it.pod(volumes=USES_CLAIM), "host1")

        async def told() -> bool:
            return await selected_node(it) == "host1"

        await it.until(told, of=PERSISTENT_VOLUME_CLAIMS)
        await it.client.delete(NODES, "host1")
        await binder.service._nodes.wait_until(lambda store: "host1" not in store)
        await volume(it, "v", "5Gi")
        await bind_claim(it, "v")
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"] == "node host1 not found"
        assert not (await it.live())["spec"].get("nodeName")
