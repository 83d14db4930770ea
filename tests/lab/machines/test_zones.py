"""NUMA zones of simulated machines: which pods a Topology Manager admits, and what they are given (sim:zones)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pykai.api import names
from pykai.api.decode import decode_as
from pykai.api.numa import NodeResourceTopology
from pykai.api.workloads import MachinePod
from pykai.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NODE_RESOURCE_TOPOLOGIES, PODS
from pykai.lab.machines.zones import BEST_EFFORT, RESTRICTED, SINGLE, MachineZoneLedger
from tests.e2e.zones import DEFINITION, topology
from tests.lab.simulatedcluster import simulated_cluster

GPU = names.NVIDIA_GPU


def ledger(policy: str, scope: str = "container") -> MachineZoneLedger:
    """Two zones, each with two GPUs, 8 cores and 16Gi."""
    made = MachineZoneLedger()
    zone = {"cpu": "8", "memory": "16Gi", GPU: "2"}
    made.update(decode_as(NodeResourceTopology, topology("n", policy, [zone, zone], scope)))
    return made


def pod(
    uid: str = "p", *, gpu: int = 0, containers: int = 1, init: int = 0, observed: str = "", **asks: str
) -> MachinePod:
    """Guaranteed if it asks for cores and memory."""
    one = {"resources": {"requests": {**({GPU: str(gpu)} if gpu else {}), **asks}}}
    first = [{"resources": {"requests": {GPU: str(init)}}}] if init else []
    return decode_as(
        MachinePod,
        {
            "metadata": {"name": uid, "uid": uid, "annotations": {names.NUMA_OBSERVED_ANNOTATION: observed}},
            "spec": {"containers": [one] * containers, "initContainers": first},
            "status": {"qosClass": "Guaranteed" if len(asks) == 2 else "Burstable"},
        },
    )


def given(zones: MachineZoneLedger, uid: str = "p") -> dict[str, Any]:
    """Zone -> amounts."""
    text = zones.annotation(uid)
    return {each["zone"]: each["amount"] for each in json.loads(text)} if text else {}


@pytest.mark.parametrize(
    ("policy", "asks", "admitted"),
    [
        (SINGLE, {"gpu": 2}, True),
        (SINGLE, {"gpu": 3}, False),
        (SINGLE, {"gpu": 1, "cpu": "8", "memory": "1Gi"}, True),
        (SINGLE, {"gpu": 1, "cpu": "9", "memory": "1Gi"}, False),
        # Cores and memory of other pods are not aligned, nor parts of cores.
        (SINGLE, {"gpu": 1, "cpu": "9"}, True),
        (SINGLE, {"gpu": 1, "cpu": "9500m", "memory": "1Gi"}, True),
        (SINGLE, {"gpu": 1, "cpu": "1", "memory": "17Gi"}, False),
        (RESTRICTED, {"gpu": 3}, True),
        (RESTRICTED, {"gpu": 3, "cpu": "10", "memory": "20Gi"}, True),
        # All resources must be best off in the same number of zones.
        (RESTRICTED, {"gpu": 3, "cpu": "1", "memory": "1Gi"}, False),
        (RESTRICTED, {"gpu": 5}, False),
        (BEST_EFFORT, {"gpu": 3, "cpu": "1", "memory": "1Gi"}, True),
        ("none", {"gpu": 3, "cpu": "1", "memory": "1Gi"}, True),
    ],
)
def test_a_policy_admits_what_it_can_align(policy: str, asks: dict[str, Any], admitted: bool) -> None:
    assert ledger(policy).admit(pod(**asks)) is admitted


def test_a_pod_holds_what_it_is_given_until_it_is_released() -> None:
    zones = ledger(SINGLE)
    assert [zones.admit(pod(uid, gpu=1)) for uid in ("a", "b", "c")] == [True] * 3
    assert (given(zones, "a"), given(zones, "b"), given(zones, "c")) == (
        {"node-0": {GPU: "1"}},
        {"node-0": {GPU: "1"}},
        {"node-1": {GPU: "1"}},
    )
    assert not MachineZoneLedger().annotation("a")
    zones.release("a")
    zones.release("b")
    assert zones.admit(pod("d", gpu=2))
    assert given(zones, "d") == {"node-0": {GPU: "2"}}
    assert not zones.admit(pod("e", gpu=2))


def test_cores_and_memory_are_given_as_the_exporter_writes_them() -> None:
    zones = ledger(RESTRICTED)
    assert zones.admit(pod(gpu=3, cpu="10", memory="20Gi"))
    assert given(zones) == {
        "node-0": {"cpu": "8", "memory": str(16 << 30), GPU: "2"},
        "node-1": {"cpu": "2", "memory": str(4 << 30), GPU: "1"},
    }


def test_containers_are_aligned_one_by_one() -> None:
    zones = ledger(SINGLE)
    assert zones.admit(pod(gpu=2, containers=2))
    assert given(zones) == {"node-0": {GPU: "2"}, "node-1": {GPU: "2"}}
    assert not ledger(SINGLE).admit(pod(gpu=2, containers=3))


def test_containers_are_aligned_at_once_where_the_scope_is_the_pod() -> None:
    assert not ledger(SINGLE, "pod").admit(pod(gpu=2, containers=2))
    zones = ledger(SINGLE, "pod")
    assert zones.admit(pod(gpu=1, containers=2))
    assert given(zones) == {"node-0": {GPU: "2"}}
    assert not ledger(SINGLE, "pod").admit(pod(gpu=1, init=3))


@pytest.mark.parametrize(("init", "admitted"), [(2, True), (3, False)])
def test_an_init_container_only_has_to_fit(init: int, admitted: bool) -> None:
    zones = ledger(SINGLE)
    assert zones.admit(pod(gpu=1, init=init)) is admitted
    assert given(zones) == ({"node-0": {GPU: "1"}} if admitted else {})


def test_a_pod_without_an_aligned_place_gets_one_in_several_zones() -> None:
    zones = ledger(BEST_EFFORT)
    assert zones.admit(pod("a", gpu=1))
    assert zones.admit(pod("b", gpu=3))
    assert given(zones, "b") == {"node-0": {GPU: "1"}, "node-1": {GPU: "2"}}


def test_what_was_given_is_read_back() -> None:
    zones = ledger(SINGLE)
    assert zones.admit(pod("a", gpu=2))
    again = ledger(SINGLE)
    again.record(pod("a", gpu=2, observed=zones.annotation("a")))
    assert again.admit(pod("b", gpu=2))
    assert given(again, "b") == {"node-1": {GPU: "2"}}
    again.record(pod("c", gpu=2, observed="{"))
    assert not again.annotation("c")


async def test_a_machine_follows_its_topology() -> None:
    async with simulated_cluster() as w:

        async def zones_of(name: str) -> list[str]:
            annotations = (await w.get(PODS, name))["metadata"]["annotations"]
            return [each["zone"] for each in json.loads(annotations[names.NUMA_OBSERVED_ANNOTATION])]

        await w.client.create(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)
        await w.node("n1", gpus=4)
        zones = [{GPU: "2"}, {GPU: "2"}]
        await w.client.create(NODE_RESOURCE_TOPOLOGIES, topology("n1", SINGLE, zones))
        await w.restart()
        await w.pod("wide", gpus=3, node="n1")
        refused = await w.phase("wide", "Failed")
        assert refused.status.reason == "TopologyAffinityError"
        await w.pod("narrow", gpus=2, node="n1")
        await w.phase("narrow", "Running")
        assert await zones_of("narrow") == ["node-0"]
        await w.restart()
        await w.pod("next", gpus=2, node="n1")
        await w.phase("next", "Running")
        assert await zones_of("next") == ["node-1"]
        await w.client.delete(PODS, "narrow", "default")
        await w.gone("narrow")
        await w.pod("last", gpus=2, node="n1")
        await w.phase("last", "Running")
        assert await zones_of("last") == ["node-0"]
