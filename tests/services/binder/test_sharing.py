"""What the container of a shared GPU is told: gpu:8.5, 8.6."""

from __future__ import annotations

import pytest

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.decode import decode_as
from pykai.binder.configmaps import memory_limit, visible_devices
from pykai.binder.options import read_options
from pykai.kube.resources import CONFIG_MAPS
from tests.services.binder.lab import JsonObject, lab
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
    async with lab() as it, it.working(HAMI):
        await it.request(await it.pod(fraction="0.5"), groups=("g",))
        await it.until_phase("Succeeded")
        assert (await it.config_maps())["p-xxxxxxx-shared-gpu-0"]["CUDA_DEVICE_MEMORY_LIMIT"] == "7680m"


async def test_t73_an_init_container_may_get_the_fraction_and_a_failed_bind_takes_the_maps_back() -> None:
    async with lab() as it, it.working() as binder:
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


async def test_a_pod_that_admission_has_not_treated_gets_its_devices_through_the_environment() -> None:
    async with lab() as it, it.working():
        # No fraction annotation, so nothing was added at admission; the prefix was given by hand.
        pod = await it.pod(annotations={names.SHARED_GPU_CONFIGMAP_ANNOTATION: "mine"})
        await it.request(pod, groups=("g",))
        await it.until_phase("Succeeded")
        maps = await it.config_maps()
        assert maps["mine-0-evar"] == {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}
        assert maps["mine-0"] == {"GPU_PORTION": "0.50", "RUNAI_NUM_OF_GPUS": "0.50"}


async def test_without_a_prefix_the_bind_fails(caplog: pytest.LogCaptureFixture) -> None:
    async with lab() as it, it.working():
        await it.request(await it.pod(), groups=("g",))
        failed = await it.until_phase("Failed")
        text = "no desired configmap name found in pod ns/p annotations; the admission service adds it"
        assert text in failed["status"]["reason"]
        assert f"pod ns/p was not bound to node n1: plugin gpusharing failed in PreBind: {text}" in caplog.text


@pytest.mark.parametrize("own", [True, False])
async def test_a_map_of_another_pod_is_overwritten_and_one_of_this_pod_keeps_its_data(own: bool) -> None:
    async with lab() as it:
        pod = await it.pod(fraction="0.5")
        keeper = await it.pod("keeper")
        owner = (pod if own else keeper)["metadata"]
        there: JsonObject = {
            "metadata": {
                "name": "p-xxxxxxx-shared-gpu-0",
                "namespace": "ns",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": owner["name"], "uid": owner["uid"]}],
            },
            "data": {"MINE": "1", "RUNAI-VISIBLE-DEVICES": "old", "GPU_PORTION": "0.10"},
        }
        await it.client.create(CONFIG_MAPS, there)
        await it.request(pod, groups=("g",))
        async with it.working():
            await it.until_phase("Succeeded")
        told = (await it.config_maps())["p-xxxxxxx-shared-gpu-0"]
        ours = {"NVIDIA_VISIBLE_DEVICES": "GPU-1", "GPU_PORTION": "0.50", "RUNAI_NUM_OF_GPUS": "0.50"}
        assert told == (ours | {"MINE": "1", "RUNAI-VISIBLE-DEVICES": "GPU-1"} if own else ours)
        (now,) = (await it.client.get_raw(CONFIG_MAPS, "p-xxxxxxx-shared-gpu-0", "ns"))["metadata"]["ownerReferences"]
        assert now["uid"] == pod["metadata"]["uid"]
