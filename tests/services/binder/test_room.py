"""Pods of others that came to the node while the binder prepared: the kubelet would refuse ours, so it is not bound."""

from __future__ import annotations

from pykai.api import names
from pykai.api.unstructured import JsonObject
from pykai.kube.resources import NODES, PODS
from tests.services.binder.bindercluster import (
    BinderCluster,
    binder_cluster,
)


def asking(**requests: str) -> list[JsonObject]:
    asks = {names.NVIDIA_GPU if key == "gpu" else key: value for key, value in requests.items()}
    return [{"name": "c", "image": "i", "resources": {"requests": asks, "limits": asks}}]


async def foreign(it: BinderCluster, **requests: str) -> None:
    """A pod that another scheduler has bound to the only node."""
    spec = {"schedulerName": "default-scheduler", "nodeName": "n1", "containers": asking(**requests)}
    await it.client.create(PODS, {"metadata": {"name": "foreign", "namespace": "ns"}, "spec": spec})


async def test_a_pod_that_no_longer_fits_is_not_bound_and_what_was_prepared_is_undone() -> None:
    async with binder_cluster() as it:
        await it.client.patch(NODES, "n1", {"status": {"allocatable": {"cpu": "2"}}}, subresource="status")
        await foreign(it, cpu="2")
        async with it.working() as binder:
            await it.request(await it.pod(fraction="0.5", containers=asking(cpu="1")), groups=("g",))
            failed = await it.until_phase("Failed")
            assert "others came to node n1: cpu: 2000 of 2000 are in use" in failed["status"]["reason"]
            await it.until_reservations(0)
            assert not [write for write in binder.transport.writes if write.endswith("/binding")]


async def test_a_pod_that_still_fits_is_bound() -> None:
    async with binder_cluster() as it:
        await foreign(it, gpu="7")
        async with it.working():
            await it.request(await it.pod(containers=asking(gpu="1")))
            await it.until_phase("Succeeded")


async def test_the_room_of_a_pod_that_is_gone_is_free_again() -> None:
    async with binder_cluster() as it, it.working() as binder:
        await it.request(await it.pod("first", containers=asking(gpu="8")))
        await it.until_phase("Succeeded", "first")
        await it.client.delete(PODS, "first", "ns", grace_s=0)
        await binder.service._pods.wait_until(lambda store: "ns/first" not in store)
        await it.request(await it.pod(containers=asking(gpu="8")))
        await it.until_phase("Succeeded")
