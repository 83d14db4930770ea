"""The environment of a container with a shared GPU: gpu:8.5, 8.6, T-73."""

from __future__ import annotations

import pytest

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.decode import decode_as
from pykai.api.unstructured import JsonObject
from pykai.binder.configmaps import is_owned_by, memory_limit, visible_devices
from pykai.binder.options import read_options
from pykai.kube.resources import CONFIG_MAPS, PODS
from tests.services.binder.bindercluster import (
    BinderCluster,
    binder_cluster,
)
from tests.services.binder.test_claims import refuse_binding

HAMI = read_options({"plugins": '{"hamicore": {"enabled": true}}'})


def a_pod(**annotations: str) -> Pod:
    return decode_as(Pod, {"metadata": {"annotations": {key.replace("_", "-"): v for key, v in annotations.items()}}})


def a_node(memory: str) -> Node:
    return decode_as(Node, {"metadata": {"labels": {names.GPU_MEMORY_NODE_LABEL: memory}}})


@pytest.mark.parametrize(
    ("asked", "memory", "portion", "limit"),
    [
        ({"gpu_fraction": "0.27"}, "15360", "0.27", "4147m"),
        ({"gpu_fraction": "0.5"}, "11441", "0.50", "5720m"),
        ({"gpu_fraction": "0.5"}, str(15360 << 20), "0.50", "7680m"),
        ({"gpu_memory": "1000"}, "15360", "0.07", "1000m"),
        ({"gpu_fraction": "0.5"}, "much", "0.50", None),
        ({"gpu_fraction": "0.5"}, "15360", "", None),
        ({"gpu_fraction": "0.5"}, "15360", "0.00", None),
    ],
)
def test_the_memory_limit(asked: dict[str, str], memory: str, portion: str, limit: str | None) -> None:
    assert memory_limit(a_pod(**asked), a_node(memory), portion) == limit


def test_devices_may_be_named_as_cdi_does() -> None:
    assert visible_devices(["GPU-a", "GPU-b"], False) == "GPU-a,GPU-b"
    assert visible_devices(["GPU-a"], True) == "k8s.device-plugin.nvidia.com/gpu=GPU-a"


async def test_hami_core_gets_its_limit() -> None:
    async with binder_cluster() as it, it.working(HAMI):
        await it.request(await it.pod(fraction="0.5"), groups=("g",))
        await it.until_phase("Succeeded")
        assert (await it.config_maps())["p-xxxxxxx-shared-gpu-0"]["CUDA_DEVICE_MEMORY_LIMIT"] == "7680m"


async def test_t73_an_init_container_may_get_the_fraction_and_a_failed_bind_takes_the_maps_back() -> None:
    async with binder_cluster() as it, it.working() as binder:
        binder.transport.fault = refuse_binding
        seen: set[str] = set()
        binder.transport.fault_after = lambda request: seen.add(request.path) if request.body else None
        chosen = {names.GPU_FRACTION_CONTAINER_ANNOTATION: "warm"}
        pod = await it.pod(fraction="0.5", annotations=chosen, initContainers=[{"name": "warm", "image": "i"}])
        await it.request(pod, groups=("g",))
        await it.until_phase("Failed")
        deleted = [w for w in binder.transport.writes if w.startswith("DELETE") and "/configmaps/" in w]
        assert sorted(write.rpartition("/")[2] for write in deleted) == [
            "p-xxxxxxx-shared-gpu-i0",
            "p-xxxxxxx-shared-gpu-i0-evar",
        ]
        assert await it.config_maps() == {}


async def untreated(it: BinderCluster, **annotations: str) -> JsonObject:
    """A pod to which admission has added nothing, because it requests its share only since its creation."""
    await it.pod()
    asks = {"metadata": {"annotations": {names.GPU_FRACTION_ANNOTATION: "0.5", **annotations}}}
    return await it.client.patch(PODS, "p", asks, "ns")


async def test_a_pod_that_admission_has_not_treated_gets_its_devices_through_the_environment() -> None:
    async with binder_cluster() as it:
        # Before the binder starts: its cache may lag behind the pod's change.
        pod = await untreated(it, **{names.SHARED_GPU_CONFIGMAP_ANNOTATION: "mine"})
        await it.request(pod, groups=("g",))
        async with it.working():
            await it.until_phase("Succeeded")
        maps = await it.config_maps()
        assert maps["mine-0-evar"] == {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}
        assert maps["mine-0"] == {"GPU_PORTION": "0.50", "RUNAI_NUM_OF_GPUS": "0.50"}


async def test_without_a_prefix_the_bind_fails(caplog: pytest.LogCaptureFixture) -> None:
    async with binder_cluster() as it:
        await it.request(await untreated(it), groups=("g",))
        async with it.working():
            failed = await it.until_phase("Failed")
        text = "no desired configmap name found in pod ns/p annotations; the admission service adds it"
        assert text in failed["status"]["reason"]
        assert f"pod ns/p was not bound to node n1: plugin gpusharing failed in PreBind: {text}" in caplog.text


def owned_by(owner: JsonObject, **more: object) -> JsonObject:
    meta = owner["metadata"]
    kind = owner.get("kind", "Pod")
    return {"apiVersion": "v1", "kind": kind, "name": meta["name"], "uid": meta["uid"], **more}


def the_map(*owners: JsonObject) -> JsonObject:
    """A ConfigMap under the name that the binder would use for pod `p`."""
    return {
        "metadata": {"name": "p-xxxxxxx-shared-gpu-0", "namespace": "ns", "ownerReferences": list(owners)},
        "data": {"MINE": "1", "RUNAI-VISIBLE-DEVICES": "old", "GPU_PORTION": "0.10"},
    }


@pytest.mark.parametrize("controller", [True, None])
async def test_a_map_of_this_pod_gets_our_keys_and_keeps_its_others(controller: bool | None) -> None:
    """Also one that KAI's binder made: its reference to the pod is the only one and not a controller reference."""
    async with binder_cluster() as it:
        pod = await it.pod(fraction="0.5")
        says = {"controller": True} if controller else {}
        await it.client.create(CONFIG_MAPS, the_map(owned_by(pod, **says)))
        await it.request(pod, groups=("g",))
        async with it.working():
            await it.until_phase("Succeeded")
        told = (await it.config_maps())["p-xxxxxxx-shared-gpu-0"]
        ours = {"NVIDIA_VISIBLE_DEVICES": "GPU-1", "GPU_PORTION": "0.50", "RUNAI_NUM_OF_GPUS": "0.50"}
        assert told == ours | {"MINE": "1", "RUNAI-VISIBLE-DEVICES": "GPU-1"}


def test_an_owner_of_another_kind_is_not_the_pod() -> None:
    pod = decode_as(Pod, {"metadata": {"name": "p", "uid": "1"}})
    for kind, own in (("Pod", True), ("Secret", False)):
        owner = owned_by({"kind": kind, "metadata": {"name": "p", "uid": "1"}}, controller=True)
        assert is_owned_by(the_map(owner), pod) is own


async def test_a_new_map_is_controlled_by_its_pod() -> None:
    async with binder_cluster() as it, it.working():
        pod = await it.pod(fraction="0.5")
        await it.request(pod, groups=("g",))
        await it.until_phase("Succeeded")
        for name in ("p-xxxxxxx-shared-gpu-0", "p-xxxxxxx-shared-gpu-0-evar"):
            (owner,) = (await it.client.get_raw(CONFIG_MAPS, name, "ns"))["metadata"]["ownerReferences"]
            assert owner == owned_by(pod, controller=True)


@pytest.mark.parametrize("whose", ["nobody", "another pod", "another beside this pod"])
async def test_a_map_that_is_not_this_pods_own_is_neither_written_nor_deleted(whose: str) -> None:
    """The annotation that names it is written by the tenant; gpu:E-3 would overwrite it."""
    async with binder_cluster() as it:
        pod, keeper = await it.pod(fraction="0.5"), await it.pod("keeper")
        owners = {
            "nobody": [],
            "another pod": [owned_by(keeper, controller=True)],
            "another beside this pod": [owned_by(pod), owned_by(keeper, controller=True)],
        }[whose]
        before = await it.client.create(CONFIG_MAPS, the_map(*owners))
        await it.request(pod, groups=("g",))
        async with it.working(HAMI) as binder:
            failed = await it.until_phase("Failed")
            touched = [w for w in binder.transport.writes if w.endswith("/configmaps/p-xxxxxxx-shared-gpu-0")]
            assert touched == []
        assert "ConfigMap ns/p-xxxxxxx-shared-gpu-0" in failed["status"]["reason"]
        says = "has no owner" if whose == "nobody" else f"belongs to {owners[-1]['kind']} {owners[-1]['name']}"
        assert says in failed["status"]["reason"]
        assert await it.get(CONFIG_MAPS, "p-xxxxxxx-shared-gpu-0") == before
        assert not (await it.live())["spec"].get("nodeName")
