"""Devices assigned to pods on the embedded API server: unique, published, and kept over restarts."""

from __future__ import annotations

from pykai.api import names
from pykai.api.sharing import reservation_name
from pykai.kube.resources import DEVICE_CLASSES, NAMESPACES, PODS, RESOURCE_SLICES
from tests.lab.simulatedcluster import SimulatedCluster, simulated_cluster


async def reservation(w: SimulatedCluster, group: str, node: str, namespace: str = names.RESERVATION_NAMESPACE) -> None:
    await w.pod(
        reservation_name(node, group),
        namespace=namespace,
        node=node,
        gpus=1,
        restart="Always",
        labels={names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: group},
    )


async def reserved(
    w: SimulatedCluster, group: str, node: str = "n1", namespace: str = names.RESERVATION_NAMESPACE
) -> str:
    key = f"{namespace}/{reservation_name(node, group)}"
    found = await w.wait_for_pod(key, lambda p: names.RESERVED_GPU_ANNOTATION in p.metadata.annotations)
    return found.metadata.annotations[names.RESERVED_GPU_ANNOTATION]


async def test_reservation_pods_learn_which_gpu_they_hold() -> None:
    async with simulated_cluster() as w:
        await w.create(NAMESPACES, {"metadata": {"name": names.RESERVATION_NAMESPACE}})
        await w.node("n1", gpus=3)
        await reservation(w, "r1", "n1")
        await reservation(w, "r2", "n1")
        await w.pod("whole", node="n1", gpus=1, restart="Always")
        first, second = await reserved(w, "r1"), await reserved(w, "r2")
        whole = await w.phase("whole", "Running")
        ids = {first, second, whole.metadata.annotations[names.DEVICES_ANNOTATION]}
        assert len(ids) == 3
        assert names.RESERVED_GPU_ANNOTATION not in whole.metadata.annotations

        r1 = reservation_name("n1", "r1")
        await w.client.delete(PODS, r1, names.RESERVATION_NAMESPACE, grace_s=0)
        await w.gone(f"{names.RESERVATION_NAMESPACE}/{r1}")
        await w.restart()
        await reservation(w, "r3", "n1")
        assert await reserved(w, "r3") == first
        assert await reserved(w, "r2") == second


async def test_an_installation_may_keep_its_reservations_elsewhere() -> None:
    """install:places; sim:RP-2."""
    async with simulated_cluster() as w:
        await w.create(NAMESPACES, {"metadata": {"name": "reserved"}})
        await w.node("n1", gpus=1)
        await reservation(w, "r1", "n1", "reserved")
        assert await reserved(w, "r1", namespace="reserved")


async def test_a_pod_of_the_reservation_namespace_that_reserves_nothing_gets_no_index() -> None:
    async with simulated_cluster() as w:
        await w.create(NAMESPACES, {"metadata": {"name": names.RESERVATION_NAMESPACE}})
        await w.node("n1", gpus=1)
        marks = {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: "g"}
        await w.pod("other", namespace=names.RESERVATION_NAMESPACE, node="n1", gpus=1, restart="Always", labels=marks)
        running = await w.phase(f"{names.RESERVATION_NAMESPACE}/other", "Running")
        assert names.RESERVED_GPU_ANNOTATION not in running.metadata.annotations


async def test_no_device_is_used_twice_while_pods_come_and_go() -> None:
    async with simulated_cluster(speed=300) as w:
        await w.node("n1", gpus=4)
        names_of_pods = [f"p{number}" for number in range(12)]
        holders: dict[str, str] = {}
        for name in names_of_pods:
            await w.pod(name, node="n1", gpus=1, annotations={names.RUN_SECONDS_ANNOTATION: "2..20"})
            await w.wait_for_pod(name, lambda p: p.status.phase in ("Running", "Succeeded", "Failed"))
        await w.pods.wait_until(lambda s: all(p.status.phase in ("Succeeded", "Failed") for p in s.values()))
        for version in w.history:
            device = version.metadata.annotations.get(names.DEVICES_ANNOTATION)
            if device is None:
                continue
            if version.status.phase == "Running":
                assert holders.setdefault(device, version.metadata.uid) == version.metadata.uid
            elif holders.get(device) == version.metadata.uid:
                del holders[device]


async def test_slices_of_dra_nodes_are_there_for_the_scheduler() -> None:
    async with simulated_cluster() as w:
        await w.node("d", gpus=2, dra=True)
        assert (await w.get(RESOURCE_SLICES, "d-gpu.nvidia.com"))["spec"]["nodeName"] == "d"
        assert await w.get(DEVICE_CLASSES, "gpu.nvidia.com")
