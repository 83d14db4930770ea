"""Extended resources that a device class stands behind: served by the node or by a claim for the pod (gpu:11.4)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.builders import Cluster, Result, allocation_of, cluster
from tests.core.deviceclusters import devices

EXTENDED = "<extended-resources>"
GPU = "nvidia.com/gpu"


def backed(nodes: int = 1, each: int = 2, **node: Any) -> Cluster:
    """Nodes with devices behind nvidia.com/gpu, and a queue."""
    world = cluster(nodes=nodes, **node).device_class("gpu", extendedResourceName=GPU).queue("q")
    for number in range(nodes):
        world.slice(f"node-{number}", each)
    return world


def given(result: Result, pod: str) -> list[str]:
    return result.allocated_devices(pod).get(EXTENDED, [])


def test_a_node_with_devices_serves_the_resource_by_a_claim_gpu_d14() -> None:
    result = backed().gang("a", gpu=2).schedule()
    assert given(result, "a-0") == ["node-0/gpu-0", "node-0/gpu-1"]
    bind = result.binds["default/a-0"]
    assert bind.claims == ()
    assert bind.extended_claim is not None
    (request,) = bind.extended_claim.device_requests
    assert (request.name, request.exactly and request.exactly.count) == ("container-0-request-2", 2)
    (mapping,) = bind.extended_claim.container_mappings
    assert (mapping.container_name, mapping.resource_name, mapping.request_name) == (
        "main",
        GPU,
        "container-0-request-2",
    )
    assert bind.extended_claim.allocation is not None
    assert [r.device for r in bind.extended_claim.allocation.devices.results] == ["gpu-0", "gpu-1"]


def test_a_node_with_a_device_plugin_serves_it_itself_gpu_d14() -> None:
    result = (
        cluster(nodes=1, gpus=2).device_class("gpu", extendedResourceName=GPU).queue("q").gang("a", gpu=2).schedule()
    )
    assert result.bound("a") == 1
    assert result.binds["default/a-0"].extended_claim is None
    axis = result.cycle.context.snapshot.axes.index[GPU]
    assert result.cycle.state.columns[:, axis, 0].tolist() == [0, 0, 0, 2]


def test_both_kinds_of_nodes_are_filled_and_no_further_gpu_t95() -> None:
    world = backed(nodes=1, each=2).node("plugin", gpus=2)
    result = world.gang("a", 5, min=1, gpu=1).schedule()
    assert result.nodes_used("a") == {"node-0": 2, "plugin": 2}
    assert result.node_reasons("a") == {
        "node(s) didn't have enough resources: GPUs": 1,
        "cannot allocate all DRA claims": 1,
    }


def test_a_gang_spans_nodes_and_waits_whole_gpu_t95() -> None:
    assert backed(nodes=2, each=1).gang("a", 2, gpu=1).schedule().bound("a") == 2
    assert backed(nodes=2, each=1).gang("a", 3, gpu=1).schedule().bound("a") == 0


def test_running_pods_hold_what_their_node_offers_gpu_d14() -> None:
    world = cluster(nodes=1, gpus=2).device_class("gpu", extendedResourceName=GPU).queue("q")
    result = world.gang("old", on="node-0", gpu=1).gang("a", 2, min=1, gpu=1).schedule()
    assert result.bound("a") == 1


def test_terminating_pods_of_a_device_plugin_node_release_what_they_hold() -> None:
    world = cluster(nodes=1, gpus=1).device_class("gpu", extendedResourceName=GPU).queue("q")
    result = world.gang("old", on="node-0", gpu=1, deleted=-30).gang("a", gpu=1).schedule()
    assert (result.bound("a"), result.pipelined("a")) == (0, 1)


def test_one_pod_may_be_served_both_ways_gpu_d14() -> None:
    world = backed(nodes=1, each=1, extra={"example.com/nic": 1}).device_class(
        "nic", extendedResourceName="example.com/nic"
    )
    result = (
        world.gang("a", gpu=1, extra={"example.com/nic": 1}).gang("b", gpu=0, extra={"example.com/nic": 1}).schedule()
    )
    assert (result.bound("a"), result.bound("b")) == (1, 0)
    assert given(result, "a-0") == ["node-0/gpu-0"]


def test_a_resource_other_than_gpus_is_served_by_claims_too_gpu_d18() -> None:
    """And costs no GPUs; other schedulers of this kind never place such a pod (cycle:NOD-3, Do better)."""
    world = cluster(nodes=1).device_class("nic", extendedResourceName="example.com/nic").queue("q", quota=0, limit=0)
    world.slice("node-0", 2, driver="nic.example.com")
    result = world.gang("a", 3, min=1, extra={"example.com/nic": 1}).schedule()
    assert result.bound("a") == 2


def test_gpus_cost_the_queue_whichever_way_they_are_served_gpu_d18() -> None:
    world = cluster(nodes=1).device_class("gpu", extendedResourceName=GPU).queue("q", quota=1, limit=1)
    result = world.slice("node-0", 4).gang("a", 2, min=1, gpu=1).schedule()
    assert result.bound("a") == 1


def test_the_implicit_name_of_a_class_costs_nothing_gpu_d18() -> None:
    world = cluster(nodes=1).device_class("gpu.example.com").queue("q", quota=0, limit=0).slice("node-0", 1)
    result = world.gang("a", extra={"deviceclass.resource.kubernetes.io/gpu.example.com": 1}).schedule()
    assert given(result, "a-0") == ["node-0/gpu-0"]


def test_without_a_class_behind_it_a_resource_is_what_nodes_offer_gpu_d13() -> None:
    world = devices(each=2).queue("q").gang("a", gpu=1)
    assert world.schedule().bound("a") == 0


def test_the_newest_class_that_claims_a_name_serves_it_gpu_d13() -> None:
    world = devices(each=2).queue("q")
    world.device_class("old", 'device.driver == "none"', extendedResourceName=GPU, age=100)
    world.device_class("new", extendedResourceName=GPU, age=10)
    assert world.gang("a", gpu=1).schedule().bound("a") == 1


def test_init_containers_use_the_devices_of_later_ones_gpu_d15() -> None:
    init = {"name": "init", "resources": {"requests": {GPU: "2"}}}
    world = backed(each=2).gang("a", gpu=2, spec={"initContainers": [init]})
    result = world.schedule()
    assert given(result, "a-0") == ["node-0/gpu-0", "node-0/gpu-1"]
    extended = result.binds["default/a-0"].extended_claim
    assert extended is not None
    assert [(m.container_name, m.request_name) for m in extended.container_mappings] == [
        ("main", "container-1-request-2"),
        ("init", "container-1-request-2"),
    ]


def test_sidecars_need_devices_of_their_own_gpu_d15() -> None:
    side = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {GPU: "1"}}}
    assert backed(each=1).gang("a", gpu=1, spec={"initContainers": [side]}).schedule().bound("a") == 0
    assert backed(each=2).gang("a", gpu=1, spec={"initContainers": [side]}).schedule().bound("a") == 1


# What is given already (gpu:D-8, D-16, D-17)


def with_synthetic(world: Cluster, pod: str, device: str, *, named: bool = True) -> Cluster:
    """The claim that a binder made for the last pod added."""
    if named:
        world.objects[-1]["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": f"{pod}-x"}
    notes = {"resource.kubernetes.io/extended-resource-claim": "true"}
    return world.device_claim(f"{pod}-x", given=(device,), on="node-0", users=(pod,), owner=pod, annotations=notes)


def test_devices_of_a_bind_request_for_extended_resources_are_in_use_gpu_d8() -> None:
    world = backed(each=2).gang("old", gpu=1)
    world.bind_request("old-0", "node-0", extended_claim=allocation_of("node-0", "gpu-0"))
    assert given(world.gang("a", gpu=1).schedule(), "a-0") == ["node-0/gpu-1"]


@pytest.mark.parametrize("named", [True, False])
def test_a_running_pod_holds_the_devices_of_its_synthetic_claim_gpu_d16(named: bool) -> None:
    """Also before its status names the claim, which is written last (gpu:D-17)."""
    world = with_synthetic(backed(each=2).gang("old", on="node-0", gpu=1), "old-0", "gpu-0", named=named)
    assert given(world.gang("a", 2, min=1, gpu=1).schedule(), "a-0") == ["node-0/gpu-1"]


@pytest.mark.parametrize("named", [True, False])
def test_the_synthetic_claim_of_a_victim_is_free_for_the_preemptor_gpu_d16(named: bool) -> None:
    world = backed(each=1).priority_class("low", 50).priority_class("high", 75)
    with_synthetic(world.gang("old", on="node-0", gpu=1, priority="low"), "old-0", "gpu-0", named=named)
    if not named:
        world.bind_request("old-0", "node-0", extended_claim=allocation_of("node-0", "gpu-0"))
    result = world.gang("a", gpu=1, priority="high").with_actions("preempt").schedule()
    assert result.evicted_pods() == ["old-0"]
    assert given(result, "a-0") == ["node-0/gpu-0"]


def test_a_claim_of_devices_may_take_over_from_extended_resources_gpu_d16() -> None:
    world = backed(each=1).priority_class("low", 50).priority_class("high", 75)
    with_synthetic(world.gang("old", on="node-0", gpu=1, priority="low"), "old-0", "gpu-0")
    result = world.gang("a", template=1, priority="high").with_actions("preempt").schedule()
    assert result.allocated_devices("a-0") == {"devices": ["node-0/gpu-0"]}


def test_victims_on_device_plugin_nodes_free_their_gpus() -> None:
    world = cluster(nodes=2, gpus=1).device_class("gpu", extendedResourceName=GPU).queue("q")
    world.priority_class("low", 50).priority_class("high", 75)
    for number in range(2):
        world.gang(f"old-{number}", on=f"node-{number}", gpu=1, priority="low")
    result = world.gang("a", gpu=1, priority="high").with_actions("preempt").schedule()
    assert len(result.plan.evictions) == 1
    assert result.pipelined("a") == 1


def test_consolidation_moves_pods_with_extended_resources_between_kinds_of_nodes() -> None:
    world = backed(nodes=1, each=2).node("plugin", gpus=1)
    with_synthetic(world.gang("old", on="node-0", gpu=1), "old-0", "gpu-0")
    result = world.gang("a", template=2).with_actions("consolidation").schedule()
    assert result.moved_to("old-0") == "plugin"
    assert result.allocated_devices("a-0") == {"devices": ["node-0/gpu-0", "node-0/gpu-1"]}
