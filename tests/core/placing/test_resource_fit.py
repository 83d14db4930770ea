"""Resource fit: requests of pods against what nodes have left (cycle:FLT-1, R-1 to R-6, NOD-2, NOD-3, NOD-6)."""

import pytest

from pykai.api.decode import decode_object
from pykai.core.opencycle import open_cycle
from pykai.core.plan import build_plan
from pykai.core.schedule import run_actions
from tests.core.builders import NOW_NS, Cluster, Raw, Result, cluster, scores_of

SHORT = "node(s) didn't have enough resources: "
FULL = "node(s) pod number exceeded"
NVIDIA, AMD, OTHER = "nvidia.com/gpu", "amd.com/gpu", "example.com/gpu"
I915, XE = "gpu.intel.com/i915", "gpu.intel.com/xe"
FLEET = {"amd": AMD, "intel": I915, "intel-new": XE, "nvidia": NVIDIA, "other": OTHER}
SLICE, BIG_SLICE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"


def mixed_fleet() -> Cluster:
    """One node for each resource, with two GPUs."""
    fleet = cluster().queue("q")
    for name, resource in FLEET.items():
        fleet.node(name, extra={resource: 2})
    return fleet


@pytest.mark.parametrize(("node", "resource"), FLEET.items())
def test_a_pod_gets_gpus_of_the_vendor_it_names(resource: str, node: str) -> None:
    """cycle:R-3, Do better: fit is per resource name."""
    result = mixed_fleet().gang("job", pods=3, min=1, extra={resource: 1}).schedule()
    assert result.nodes_used("job") == {node: 2}
    assert result.node_reasons("job") == {f"{SHORT}GPUs": 5}


def test_gpus_of_every_vendor_are_whole_gpus_of_quota() -> None:
    """cycle:R-3, R-6: one dimension for quota, in whole GPUs."""
    result = (
        mixed_fleet()
        .gang("nvidia", extra={NVIDIA: 2})
        .gang("amd", extra={AMD: 1})
        .gang("intel", extra={I915: 2})
        .gang("intel-new", extra={XE: 1})
        .gang("other", extra={OTHER: 2})
        .schedule()
    )
    assert allocated_gpus(result) == 8.0


def test_a_device_that_watches_gpus_is_none() -> None:
    """cycle:R-3: `i915_monitoring` of Intel's device plugin."""
    watching = cluster().node(extra={I915: 1, "gpu.intel.com/i915_monitoring": 1}).queue("q")
    result = watching.gang("watch", extra={"gpu.intel.com/i915_monitoring": 1}).schedule()
    assert (result.bound("watch"), allocated_gpus(result)) == (1, 0.0)


@pytest.mark.parametrize("resource", FLEET.values())
def test_a_limit_of_gpus_holds_for_any_vendor(resource: str) -> None:
    """cycle:R-3"""
    result = cluster().node(extra={resource: 4}).queue("q", limit=1).gang("j", extra={resource: 2}).schedule()
    assert result.bound("j") == 0
    assert "Limit is 1 GPUs" in result.why("j")


def test_a_node_without_gpus_of_either_of_two_vendors_counts_once() -> None:
    """cycle:EXP-1: a reason is counted by nodes."""
    result = mixed_fleet().gang("job", extra={NVIDIA: 1, AMD: 1}).schedule()
    assert result.node_reasons("job") == {f"{SHORT}GPUs": 5}


def allocated_gpus(result: Result) -> float:
    (queue,) = (queue for queue in result.plan.queues if queue.name == "q")
    return queue.allocated[2]


@pytest.mark.parametrize(
    ("how", "gpus"),
    [
        ({"gpu": 2}, 2.0),
        ({"fraction": 0.25}, 0.25),
        ({"fraction": 0.25, "devices": 2}, 0.5),
        ({"gpu_memory": 255}, 0.26),
        ({}, 0.0),
    ],
)
def test_what_a_request_costs_its_queue(how: Raw, gpus: float) -> None:
    """cycle:R-6; a memory request costs its portion of the device it is given, rounded up (gpu:C-3)."""
    result = cluster(nodes=1, gpus=4).queue("q").gang("job", **how).schedule()
    assert result.bound("job") == 1
    assert allocated_gpus(result) == gpus


def test_slices_cost_as_many_gpus_as_their_profile() -> None:
    """cycle:R-6"""
    result = (
        cluster().node(extra={SLICE: 4, BIG_SLICE: 2}).queue("q").gang("job", extra={SLICE: 2, BIG_SLICE: 1}).schedule()
    )
    assert allocated_gpus(result) == 5.0


def test_every_resource_must_fit_by_itself() -> None:
    """cycle:FLT-1"""
    nodes = cluster().queue("q").node("cpu", cpu=8, memory="1Gi").node("memory", cpu=1, memory="8Gi")
    assert nodes.gang("both", cpu=2, memory="2Gi").schedule().bound("both") == 0
    nodes = cluster().queue("q").node("cpu", cpu=8, memory="1Gi").node("memory", cpu=1, memory="8Gi")
    result = nodes.gang("much-cpu", cpu=8, memory="1Gi").gang("much-memory", cpu=1, memory="8Gi").schedule()
    assert result.node_of("much-cpu-0") == "cpu"
    assert result.node_of("much-memory-0") == "memory"


def test_a_pod_may_take_the_very_last_of_a_node() -> None:
    result = cluster(nodes=1, cpu=2, memory="2Gi").queue("q").gang("job", cpu=2, memory="2Gi").schedule()
    assert result.bound("job") == 1


def test_a_node_short_of_several_resources_names_all_of_them() -> None:
    """cycle:EXP-2, EXP-3; another node has enough of each, so none is more than any node has."""
    wanted: Raw = {"cpu": 4, "memory": "4Gi", "gpu": 4, "extra": {"example.com/port": 4, "hugepages-2Mi": "4Gi"}}
    offered = {"example.com/port": 4, "hugepages-2Mi": "4Gi"}
    result = (
        cluster(nodes=2, cpu=4, memory="4Gi", gpus=4, extra=offered)
        .queue("q")
        .pod("here", on="node-0", cpu=1, memory="1Gi", gpu=1, extra={"example.com/port": 1, "hugepages-2Mi": "1Gi"})
        .pod("there", on="node-1", cpu=0, memory=0, gpu=1)
        .gang("job", **wanted)
        .schedule()
    )
    assert result.node_reasons("job") == {
        f"{SHORT}CPU cores": 1,
        f"{SHORT}memory": 1,
        f"{SHORT}GPUs": 2,
        f"{SHORT}example.com/port": 1,
        f"{SHORT}hugepages-2Mi": 1,
    }


def test_a_node_lacking_slices_names_their_profile() -> None:
    """gpu:P-9, cycle:EXP-3"""
    result = (
        cluster()
        .node("used", extra={SLICE: 1})
        .queue("q")
        .pod("here", on="used", extra={SLICE: 1})
        .gang("job", extra={SLICE: 1})
        .schedule()
    )
    assert result.node_reasons("job") == {f"node(s) didn't have enough of mig profile: {SLICE}": 1}


def test_slices_of_one_profile_do_not_serve_another() -> None:
    """cycle:NOD-3"""
    nodes = cluster().queue("q").node("small", extra={SLICE: 7}).node("big", extra={BIG_SLICE: 2})
    result = nodes.gang("job", pods=3, min=1, extra={BIG_SLICE: 1}).schedule()
    assert result.nodes_used("job") == {"big": 2}


def test_slices_and_whole_gpus_do_not_replace_each_other() -> None:
    nodes = cluster().queue("q").node("sliced", extra={SLICE: 7}).node("whole", gpus=1)
    result = nodes.gang("slice", pods=7, extra={SLICE: 1}).gang("gpu", gpu=1).schedule()
    assert result.nodes_used("slice") == {"sliced": 7}
    assert result.nodes_used("gpu") == {"whole": 1}


@pytest.mark.parametrize("nodes", [1, 20])
def test_a_node_overdrawn_in_a_resource_the_pod_does_not_request_takes_it(nodes: int) -> None:
    """cycle:R-4, Do better: only what is asked for is compared, and pod slots.  Many nodes are compared by columns."""
    overdrawn = cluster().queue("q")
    for number in range(nodes):
        overdrawn.node(cpu=4, memory="1Gi", gpus=1).pod(
            f"fat-{number}", on=f"node-{number}", cpu=1, memory="2Gi", gpu=2
        )
    result = overdrawn.gang("lean", cpu=1, memory=0).gang("hungry", cpu=1, memory="1Mi").schedule()
    assert result.bound("lean") == 1
    assert result.bound("hungry") == 0


def test_an_overdrawn_node_takes_nothing_of_what_it_lacks() -> None:
    overdrawn = cluster(nodes=1, cpu=4, gpus=2).queue("q").pod("fat", on="node-0", gpu=3)
    assert overdrawn.gang("job", gpu=1).schedule().node_reasons("job") == {f"{SHORT}GPUs": 1}


@pytest.mark.parametrize("nodes", [2, 20])
def test_a_resource_no_node_has_fits_nowhere(nodes: int) -> None:
    """cycle:R-1, R-5: no node has a resource first named by a pod, until a node offers it."""
    result = cluster(nodes=nodes).queue("q").gang("job", extra={"example.com/dongle": 1}).schedule()
    assert result.bound("job") == 0
    later = cluster(nodes=1).queue("q").gang("job", extra={"example.com/dongle": 1})
    assert later.node("node-9", extra={"example.com/dongle": 1}).schedule().node_of("job-0") == "node-9"


def test_invented_resource_names_cost_other_pods_nothing() -> None:
    """Each axis is a row over all nodes in every snapshot, and any user who may create pods may invent names."""
    offered = cluster(nodes=2, gpus=1).queue("q")
    one = offered.tables().snapshot(0).columns.shape
    for number in range(50):
        asked = {f"example.com/x{number}": 1, f"x{number}.example.com/gpu": 1, f"nvidia.com/mig-{number}g.5gb": 1}
        offered.pod(f"pod-{number}", on="node-0" if number % 2 else "", extra=asked)
    planes, axes, nodes = offered.tables().snapshot(0).columns.shape
    assert (planes, nodes) == (one[0], one[2])
    assert axes == one[1]


def test_a_name_that_a_node_comes_to_offer_is_counted_from_then_on() -> None:
    """cycle:R-5: an earlier request gets what the new node has; a request for an unknown resource gets nothing."""
    fleet = cluster(nodes=1).queue("q").gang("job", pods=3, min=1, extra={"example.com/dongle": 1})
    fleet.gang("other", extra={"example.com/chimera": 1})
    tables = fleet.tables()
    tables.snapshot(0)
    for raw in cluster().node("node-9", extra={"example.com/dongle": 2}).objects:
        tables.apply(decode_object(raw))
    cycle = open_cycle(tables.snapshot(NOW_NS), fleet.policy())
    run_actions(cycle)
    result = Result(cycle, build_plan(cycle))
    assert (result.nodes_used("job"), result.bound("other")) == ({"node-9": 2}, 0)


def test_each_name_that_no_node_offers_is_reported_by_itself() -> None:
    """cycle:EXP-1: also where the check that refuses such a pod at once is switched off."""
    asked = {"example.com/a": 1, "example.com/b": 2, "example.com/gpu": 1, SLICE: 1}
    fleet = cluster(nodes=2).queue("q").gang("job", extra=asked)
    result = fleet.configured({"tiers": [{"plugins": [{"name": "proportion"}]}]}).schedule()
    assert result.node_reasons("job") == {
        f"{SHORT}example.com/a": 2,
        f"{SHORT}example.com/b": 2,
        f"{SHORT}GPUs": 2,
        f"node(s) didn't have enough of mig profile: {SLICE}": 2,
    }


def test_a_node_seen_before_a_new_resource_appears_has_none_of_it() -> None:
    """cycle:R-5: vectors grow with zeros."""
    tables = cluster(nodes=2).tables()
    tables.snapshot(0)
    for raw in cluster().pod("later", on="node-0", extra={"example.com/dongle": 1}).objects:
        tables.apply(decode_object(raw))
    for raw in cluster().node("node-2", extra={"example.com/dongle": 3}).objects:
        tables.apply(decode_object(raw))
    snapshot = tables.snapshot(0)
    axis = snapshot.axes.index["example.com/dongle"]
    assert snapshot.allocatable[axis].tolist() == [0, 0, 3000]
    assert not snapshot.columns[:, axis, :2].any()


@pytest.mark.parametrize(
    ("resource", "offered", "wanted", "fits"),
    [
        ("cpu", "1500m", "1.5", True),
        ("cpu", "1500m", "1501m", False),
        ("memory", "1Gi", "1073741824", True),
        ("memory", "1Gi", "1073741825", False),
        ("ephemeral-storage", "10G", "10000000000", True),
        ("ephemeral-storage", "10G", "10000000001", False),
        ("example.com/watt", "1500m", "1501m", False),
        ("example.com/watt", "1500m", "1500m", True),
        ("hugepages-1Gi", "2Gi", "2Gi", True),
        ("hugepages-1Gi", "2Gi", "3Gi", False),
        (SLICE, "1", "1", True),
        (SLICE, "1", "2", False),
        # Part of a device is a whole one.
        (NVIDIA, "1", "500m", True),
        (I915, "1", "1500m", False),
    ],
)
def test_quantities_are_compared_in_the_unit_of_their_resource(
    resource: str, offered: str, wanted: str, fits: bool
) -> None:
    """cycle:R-2; a second node with plenty but no slot keeps the request from being more than any node has."""
    node, plenty = ({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in ("node", "plenty"))
    offers = {"status": {"allocatable": {resource: offered, "pods": "1"}}}
    more = {"status": {"allocatable": {resource: "1000P"}}}
    spec = {"containers": [{"name": "main", "resources": {"requests": {resource: wanted}}}]}
    result = cluster().add({**node, **offers}, {**plenty, **more}).queue("q").gang("job", spec=spec).schedule()
    assert result.bound("job") == fits
    if not fits:
        assert result.node_reasons("job")[FULL] == 1


def test_names_that_are_not_node_resources_are_ignored() -> None:
    """cycle:R-2"""
    result = cluster(nodes=1).queue("q").gang("job", extra={"bananas": 3, "requests.example.com/x": 1}).schedule()
    assert result.bound("job") == 1


def test_a_resource_a_node_has_none_of_is_as_good_as_absent() -> None:
    """cycle:R-2: zero quantities on nodes are skipped."""
    none = cluster().node(extra={"example.com/port": "0"}).node(extra={"example.com/port": "1"}).queue("q")
    assert none.gang("job", pods=2, min=1, extra={"example.com/port": 1}).schedule().nodes_used("job") == {"node-1": 1}


@pytest.mark.parametrize("wanted", ["9E", "1e300", "18446744073709551616"])
def test_absurd_requests_fit_nowhere(wanted: str) -> None:
    result = cluster(nodes=1, memory="1000Gi").queue("q").gang("job", pods=2, memory=wanted).gang("sane").schedule()
    assert result.bound("job") == 0
    assert result.bound("sane") == 1


def test_absurd_loads_do_not_overflow_into_free_capacity() -> None:
    """The sum of a node's loads stays far below zero instead of overflowing."""
    made = cluster(nodes=1, memory="1000Gi").queue("q")
    for index in range(9):
        made.pod(f"monster-{index}", on="node-0", memory="9E", scheduler="other")
    result = made.gang("job", memory="1Gi").gang("lean", memory=0).schedule()
    assert result.bound("job") == 0
    assert result.bound("lean") == 1


def test_absurd_allocatable_amounts_are_clamped() -> None:
    result = cluster(nodes=1, memory="9E", cpu="9E").queue("q").gang("job", pods=5, memory="9T", cpu=1000).schedule()
    assert result.bound("job") == 5


def test_releasing_resources_may_be_pipelined_but_not_allocated() -> None:
    """cycle:NOD-2"""
    ending = cluster(nodes=1, gpus=2).queue("q").pod("ending", on="node-0", gpu=2, deleted=0)
    result = ending.gang("job", gpu=1).schedule()
    assert result.bound("job") == 0
    assert result.pipelined("job") == 1


def test_idle_and_released_resources_add_up() -> None:
    """cycle:NOD-2"""
    ending = cluster(nodes=1, gpus=2).queue("q").pod("ending", on="node-0", gpu=1, deleted=0)
    assert ending.gang("job", gpu=2).schedule().pipelined("job") == 1


def test_pipelined_resources_are_not_given_again() -> None:
    """cycle:NOD-2"""
    ending = cluster(nodes=1, gpus=1).queue("q").pod("ending", on="node-0", gpu=1, deleted=0)
    result = ending.gang("first", gpu=1).gang("second", gpu=1).schedule()
    assert result.pipelined("first") == 1
    assert result.pipelined("second") == 0


def test_what_a_stuck_pod_holds_is_not_being_released() -> None:
    """cycle:NOD-2, 4."""
    stuck = cluster(nodes=1, gpus=1).queue("q").pod("stuck", on="node-0", gpu=1, deleted=3600)
    assert stuck.gang("job", gpu=1).schedule().pipelined("job") == 0


def test_one_releasing_resource_keeps_the_pod_from_starting() -> None:
    """cycle:NOD-2: every resource must be idle to start, not just GPUs."""
    ending = cluster(nodes=1, gpus=2, cpu=2).queue("q").pod("ending", on="node-0", cpu=2, deleted=0)
    result = ending.gang("job", gpu=1, cpu=1).schedule()
    assert result.bound("job") == 0
    assert result.pipelined("job") == 1


def test_every_pod_takes_a_pod_slot() -> None:
    """cycle:NOD-6, R-4"""
    result = cluster(nodes=2, pods=2).queue("q").gang("job", pods=5, min=1, cpu=0, memory=0).schedule()
    assert result.nodes_used("job") == {"node-0": 2, "node-1": 2}
    assert result.node_reasons("job") == {FULL: 2}


def test_running_pods_of_every_scheduler_take_slots() -> None:
    """cycle:NOD-6: pods of other schedulers and reservation pods too."""
    made = cluster(nodes=1, pods=3, gpus=1).queue("q").pod("other", on="node-0", scheduler="other", cpu=0)
    made.pod("reserved", on="node-0", gpu=1, cpu=0, labels={"app": "kai-resource-reservation"}, scheduler="")
    result = made.gang("job", pods=2, min=1).schedule()
    assert result.bound("job") == 1
    assert result.node_reasons("job") == {FULL: 1}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pods_take_nothing(phase: str) -> None:
    made = cluster(nodes=1, pods=1, cpu=1).queue("q").pod("done", on="node-0", phase=phase)
    assert made.gang("job").schedule().bound("job") == 1


def test_a_slot_being_released_may_be_pipelined() -> None:
    """cycle:9.1 step 9: idle and releasing slots"""
    ending = cluster(nodes=1, pods=1).queue("q").pod("ending", on="node-0", deleted=0)
    assert ending.gang("job").schedule().pipelined("job") == 1


def test_a_node_without_slots_takes_no_pod() -> None:
    assert cluster(nodes=1, pods=0).queue("q").gang("job").schedule().node_reasons("job") == {FULL: 1}


def test_a_node_short_of_resources_and_slots_names_resources() -> None:
    result = cluster(nodes=1, pods=1, cpu=2).queue("q").pod("there", on="node-0", cpu=2).gang("job", cpu=1).schedule()
    assert result.node_reasons("job") == {f"{SHORT}CPU cores": 1}


def test_shared_requests_count_devices_not_sums() -> None:
    """cycle:NOD-3: whole GPUs left and shared ones with free memory must be as many as the devices requested."""
    made = cluster(nodes=1, gpus=2).queue("q").pod("half", on="node-0", fraction=0.5, device="d0", gpu=0)
    two = made.gang("two", fraction=0.5, devices=2).schedule()
    assert len(two.devices_of("two-0")) == 2
    made = cluster(nodes=1, gpus=2).queue("q").pod("half", on="node-0", fraction=0.5, device="d0", gpu=0)
    assert made.gang("two", fraction=0.6, devices=2).schedule().node_reasons("two") == {f"{SHORT}GPUs": 1}


def test_shared_requests_need_the_other_resources_too() -> None:
    """cycle:NOD-3"""
    made = cluster(nodes=2, gpus=2, cpu=2).queue("q").pod("there", on="node-0", cpu=2)
    result = made.gang("job", fraction=0.5, cpu=1).schedule()
    assert result.node_of("job-0") == "node-1"


def test_more_memory_than_a_device_has_fits_no_node() -> None:
    """cycle:NOD-3, gpu:C-4, P-9"""
    result = cluster(nodes=2, gpus=2, gpu_memory=1000).queue("q").gang("job", gpu_memory=1001).schedule()
    assert result.node_reasons("job") == {f"{SHORT}GPU memory": 2}


def test_whole_gpu_requests_ignore_free_memory_on_shared_gpus() -> None:
    """cycle:NOD-3"""
    made = cluster(nodes=1, gpus=1).queue("q").pod("part", on="node-0", fraction=0.1, device="d0", gpu=0)
    assert made.gang("job", gpu=1).schedule().node_reasons("job") == {f"{SHORT}GPUs": 1}


def test_cpu_pods_fit_nodes_whose_gpus_are_gone() -> None:
    made = cluster(nodes=1, gpus=1).queue("q").pod("all", on="node-0", gpu=1)
    assert made.gang("job", pods=3).schedule().bound("job") == 3


def test_a_gang_never_takes_more_than_a_node_has() -> None:
    result = cluster(nodes=2, gpus=3, cpu=100).queue("q").gang("job", pods=4, min=1, gpu=2).schedule()
    assert result.nodes_used("job") == {"node-0": 1, "node-1": 1}


def test_the_reason_names_the_overhead_of_a_pod_that_fits_without_it() -> None:
    """gpu:P-9, cycle:EXP-3"""
    spec = {"overhead": {"cpu": "500m", "memory": "1Mi"}}
    made = cluster(nodes=1, cpu=2).node("large", cpu=9, pods=0).queue("q").gang("job", cpu=2, spec=spec)
    assert made.schedule().node_reasons("job") == {
        f"{SHORT}CPU cores. Not enough resources due to pod overhead resources. "
        "The overhead resources are  cpu: 500m, memory: 1048576": 1,
        FULL: 1,
    }


def test_a_node_without_enough_devices_is_not_ranked() -> None:
    """cycle:NOD-3."""
    cycle = cluster(nodes=1, gpus=1).node(gpus=2).queue("q").gang("two", fraction=0.5, devices=2).cycle()
    assert set(scores_of(cycle, "two-0")) == {"node-1"}


def test_a_gang_with_several_devices_that_fails_leaves_nothing_behind() -> None:
    """cycle:ALC-4: it is tried with the emptiest devices, too, and rolled back."""
    made = cluster(nodes=1, gpus=3).queue("q").gang("pairs", 4, fraction=0.6, devices=2, age=100)
    result = made.gang("single", 3, gpu=1, age=1).schedule()
    assert result.bound("pairs") == 0
    assert result.bound("single") == 3


def test_the_emptiest_devices_are_taken_when_packing_leaves_no_second_one() -> None:
    """Packing the two fuller devices would leave the second pod with one device only."""
    made = cluster(nodes=1, gpus=3).queue("q")
    for device in ("a", "b"):
        made.gang(f"on-{device}", fraction=0.5, on="node-0", device=device)
    result = made.gang("pairs", 2, fraction=0.5, devices=2).schedule()
    assert result.bound("pairs") == 2
    assert sorted(len(set(result.devices_of(f"pairs-{number}"))) for number in range(2)) == [2, 2]
