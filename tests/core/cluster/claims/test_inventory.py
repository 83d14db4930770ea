"""Devices of the cluster as columns: gpu:D-6, D-19, D-21, case T-94."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pykai.api.resource import ResourceSlice
from pykai.core.cluster.claims.inventory import REACHED_FROM_ALL, REACHED_FROM_NONE, REACHED_FROM_SELECTED, Inventory
from tests.core.deviceobjects import (
    DRIVER,
    all_devices_request,
    claim_request,
    device_class,
    device_request,
    gpu,
    gpus,
    named,
    node_table,
    offered,
    pool,
    refusal_text,
)

ZONES = {0: {"zone": "a"}, 1: {"zone": "b"}, 2: {"zone": "a"}}


def zone(name: str) -> dict[str, object]:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [name]}]}]}


def names_at(inventory: Inventory, row: int) -> list[str]:
    return [inventory.ids[number].device for number in inventory.devices_at(row)]


def test_d21_devices_are_ordered_by_driver_pool_slice_and_position() -> None:
    slices = [
        pool("b", gpu("1"), node="node-0", driver="x"),
        pool("a", gpu("3"), node="node-0", driver="x", slices=2, part="second"),
        pool("a", gpu("z"), gpu("2"), node="node-0", driver="x", slices=2, part="first"),
        pool("z", gpu("0"), node="node-0", driver="a"),
    ]
    expected = ["0", "z", "2", "3", "1"]
    assert [identity.device for identity in offered(*slices).ids] == expected
    assert names_at(offered(*reversed(slices)), 0) == expected


def test_d19_a_device_is_reached_from_its_node_from_all_or_from_selected_nodes() -> None:
    inventory = offered(
        pool("all", gpu("everywhere"), allNodes=True),
        pool("n0", gpu("own"), node="node-0"),
        pool("none", gpu("nowhere")),
        pool("other", gpu("gone"), node="node-9"),
        pool("zone", gpu("near"), nodeSelector=zone("a")),
        nodes=node_table(3, ZONES),
    )
    assert names_at(inventory, 0) == ["everywhere", "own", "near"]
    assert names_at(inventory, 1) == ["everywhere"]
    assert names_at(inventory, 2) == ["everywhere", "near"]
    assert inventory.node_row.tolist() == [
        REACHED_FROM_ALL,
        0,
        REACHED_FROM_NONE,
        REACHED_FROM_NONE,
        REACHED_FROM_SELECTED,
    ]


def test_d19_each_device_of_a_slice_may_select_its_nodes() -> None:
    inventory = offered(
        pool(
            "fabric",
            gpu("own", more={"nodeName": "node-1"}),
            gpu("everywhere", more={"allNodes": True}),
            gpu("near", more={"nodeSelector": zone("a")}),
            perDeviceNodeSelection=True,
        ),
        nodes=node_table(3, ZONES),
    )
    assert [names_at(inventory, row) for row in range(3)] == [
        ["everywhere", "near"],
        ["own", "everywhere"],
        ["everywhere", "near"],
    ]


def test_node_selection_per_device_counts_only_when_the_slice_enables_it() -> None:
    inventory = offered(pool("n0", gpu("gpu-0", more={"nodeName": "node-1"}), node="node-0"), nodes=2)
    assert names_at(inventory, 0) == ["gpu-0"]
    assert names_at(inventory, 1) == []


def test_devices_are_counted_by_node_whatever_way_they_are_reached() -> None:
    inventory = offered(
        pool("all", gpu("everywhere"), allNodes=True),
        pool("n0", gpu("a"), gpu("b"), node="node-0"),
        pool("zone", gpu("near"), nodeSelector=zone("a")),
        nodes=node_table(3, ZONES),
    )
    everything = np.ones(len(inventory), dtype=np.bool_)
    assert inventory.count_by_node(everything).tolist() == [4, 1, 2]
    everything[list(named(inventory, "b", "near"))] = False
    assert inventory.count_by_node(everything).tolist() == [2, 1, 1]
    everything[:] = False
    assert inventory.count_by_node(everything).tolist() == [0, 0, 0]


def test_d19_only_the_newest_generation_of_a_pool_counts() -> None:
    inventory = offered(
        pool("a", gpu("old-0"), gpu("old-1"), node="node-0", generation=9, part="x"),
        pool("a", gpu("new"), node="node-0", generation=10, part="y"),
    )
    assert names_at(inventory, 0) == ["new"]
    assert inventory.broken_pools == ()


def test_d19_generations_of_pools_are_compared_within_driver_and_pool_only() -> None:
    inventory = offered(
        pool("a", gpu("0"), node="node-0", generation=1),
        pool("b", gpu("1"), node="node-0", generation=2),
        pool("a", gpu("2"), node="node-0", generation=3, driver="other"),
    )
    assert len(inventory) == 3


@pytest.mark.parametrize("published", [1, 3])
def test_d19_a_pool_with_a_wrong_number_of_slices_is_not_used(published: int) -> None:
    slices = [pool("a", gpu(f"{part}"), node=f"node-{part}", slices=2, part=f"{part}") for part in range(published)]
    inventory = offered(*slices, nodes=3)
    assert len(inventory) == 0
    (broken,) = inventory.broken_pools
    assert broken.incomplete
    assert str(broken) == f"pool a of {DRIVER} has {published} of 2 slices"
    assert [len(inventory.broken_pools_at(row)) for row in range(3)] == [1] * published + [0] * (3 - published)


def test_d19_slices_for_other_nodes_make_a_pool_complete() -> None:
    inventory = offered(
        pool("a", gpu("0"), node="node-0", slices=2, part="x"),
        pool("a", gpu("1"), node="node-1", slices=2, part="y"),
        nodes=2,
    )
    assert names_at(inventory, 0) == ["0"]
    assert inventory.broken_pools == ()


def test_d19_an_incomplete_newest_generation_hides_a_complete_older_one() -> None:
    inventory = offered(
        pool("a", gpu("old"), node="node-0", generation=1, part="x"),
        pool("a", gpu("new"), node="node-0", generation=2, part="y", slices=2),
    )
    assert len(inventory) == 0


def test_d19_a_pool_with_a_repeated_device_name_is_invalid() -> None:
    inventory = offered(
        pool("a", gpu("0"), node="node-0", slices=2, part="x"),
        pool("a", gpu("0"), node="node-0", slices=2, part="y"),
        pool("b", gpu("0"), node="node-0"),
    )
    assert [identity.pool for identity in inventory.ids] == ["b"]
    assert [str(pool) for pool in inventory.broken_pools_at(0)] == [f"pool a of {DRIVER} has two devices called 0"]
    assert not inventory.broken_pools[0].incomplete


def test_d19_broken_pools_are_reported_for_their_nodes() -> None:
    twice = [gpu("0"), gpu("0")]
    inventory = offered(
        pool("all", *twice, allNodes=True),
        pool("own", *twice, node="node-1"),
        pool("zone", *twice, nodeSelector=zone("a")),
        pool("single", gpu("0", more={"nodeName": "node-1"}), twice[0], perDeviceNodeSelection=True),
        nodes=node_table(3, ZONES),
    )
    troubles = [[broken.pool for broken in inventory.broken_pools_at(row)] for row in range(3)]
    assert troubles == [["all", "zone"], ["all", "own", "single"], ["all", "zone"]]


def test_claims_find_devices_by_name() -> None:
    inventory = offered(gpus(2), gpus(2, "node-1"), nodes=2)
    assert {identity: inventory.index[identity] for identity in inventory.ids} == inventory.index
    assert inventory.index[inventory.ids[3]] == 3


def test_d6_capacity_is_the_number_of_devices_of_gpu_drivers_on_the_node() -> None:
    """case gpu:T-94"""
    inventory = offered(
        pool("n0", *(gpu(f"gpu-{number}") for number in range(4)), node="node-0", driver="GPU.nvidia.com"),
        pool("n0", gpu("nic-0"), gpu("nic-1"), node="node-0", driver="net.example.com"),
        pool("n1", gpu("nic-0"), node="node-1", driver="net.example.com"),
        nodes=2,
    )
    assert inventory.gpu_capacity().tolist() == [4, 0]


def test_d6_devices_reached_from_several_nodes_are_not_node_capacity() -> None:
    inventory = offered(
        pool("all", gpu("everywhere"), allNodes=True),
        pool("zone", gpu("near"), nodeSelector=zone("a")),
        pool("own", gpu("own", more={"nodeName": "node-1"}), perDeviceNodeSelection=True),
        nodes=node_table(3, ZONES),
    )
    assert inventory.gpu_capacity().tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("kind", "gpus_counted"), [("gpu", 1), ("GPU", 1), ("amdgpu", 1), ("mig", 0), ("vfio", 0), (None, 1)]
)
def test_d6_devices_marked_as_partial_gpus_do_not_count(kind: str | None, gpus_counted: int) -> None:
    facts: dict[str, Any] = {} if kind is None else {"type": kind}
    assert offered(pool("n0", gpu("0", **facts), node="node-0")).gpu_capacity().tolist() == [gpus_counted]
    qualified: dict[str, Any] = {f"{DRIVER}/type": kind} if kind is not None else {}
    assert offered(pool("n0", gpu("0", **qualified), node="node-0")).gpu_capacity().tolist() == [gpus_counted]


def test_d6_the_type_attribute_of_another_domain_is_ignored() -> None:
    foreign: dict[str, Any] = {"net.example.com/type": "nic"}
    device = gpu("0", **foreign)
    assert offered(pool("n0", device, node="node-0")).gpu_capacity().tolist() == [1]


def test_d6_obsolete_generations_and_incomplete_pools_are_not_capacity() -> None:
    inventory = offered(
        pool("n0", gpu("0"), gpu("1"), node="node-0", generation=1, part="x"),
        pool("n0", gpu("0"), node="node-0", generation=2, part="y"),
        pool("n1", gpu("0"), node="node-1", slices=2),
        nodes=2,
    )
    assert inventory.gpu_capacity().tolist() == [1, 0]


def test_d21_attributes_are_equal_when_type_and_value_are() -> None:
    values: list[object] = ["1", 1, True, {"version": "1.0.0"}, "1", 1, {}]
    devices = [gpu(str(number), x=value) for number, value in enumerate(values)]
    codes = offered(pool("a", *devices, gpu("none"), node="node-0")).attribute(f"{DRIVER}/x").tolist()
    assert codes[0] == codes[4]
    assert codes[1] == codes[5]
    assert len(set(codes[:4])) == 4
    assert codes[6] == codes[7] == 0


def test_d21_an_attribute_is_found_by_full_name_or_without_the_drivers_domain() -> None:
    qualified: list[dict[str, Any]] = [{f"{DRIVER}/x": 1}, {"x": 1}, {"other.example.com/x": 1}]
    devices = [gpu(str(number), **facts) for number, facts in enumerate(qualified)]
    inventory = offered(pool("a", *devices, node="node-0"))
    assert inventory.attribute(f"{DRIVER}/x").tolist() == [1, 1, 0]
    assert inventory.attribute("other.example.com/x").tolist() == [0, 0, 1]
    assert inventory.attribute("x").tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("shares", "takes", "about"),
    [
        ({"s": {"memory": "40Gi"}}, {"t": {"memory": "1"}}, "t/memory, which is not there"),
        ({"s": {"memory": "40Gi"}}, {"s": {"cores": "1"}}, "s/cores, which is not there"),
        ({"s": {"memory": "lots"}}, {"s": {"memory": "1"}}, "'lots' is not a quantity"),
    ],
)
def test_d23_counters_that_do_not_add_up_make_a_pool_invalid(
    shares: dict[str, dict[str, str]], takes: dict[str, dict[str, str]], about: str
) -> None:
    inventory = offered(pool("a", gpu("0"), gpu("1", takes=takes), node="node-0", shares=shares))
    assert len(inventory) == 0
    assert about in inventory.broken_pools[0].text
    assert not inventory.broken_pools[0].incomplete


def test_d23_counters_may_be_in_another_slice_of_the_pool() -> None:
    inventory = offered(
        pool("a", node="node-0", slices=2, part="counters", shares={"s": {"memory": "2"}}),
        pool("a", gpu("0", takes={"s": {"memory": "1500m"}}), node="node-0", slices=2, part="devices"),
    )
    assert inventory.counter_limits == [2 * 10**9]
    assert inventory.counter_use == {0: ((0, 1_500_000_000),)}


def test_d23_counters_of_one_pool_are_not_those_of_another() -> None:
    slices = [
        pool(name, gpu(name, takes={"s": {"memory": "1"}}), node="node-0", shares={"s": {"memory": "1"}})
        for name in "ab"
    ]
    assert offered(*slices).counter_use == {0: ((0, 10**9),), 1: ((1, 10**9),)}
    lacking = pool("c", gpu("c", takes={"s": {"memory": "1"}}), node="node-0")
    assert [broken.pool for broken in offered(*slices, lacking).broken_pools] == ["c"]


def test_selector_results_over_all_devices_are_cached() -> None:
    inventory = offered(gpus(2))
    ask = claim_request(device_request(1, "fast"))
    selectors = next(ask.alternatives()).selectors
    assert inventory.selection(selectors) is inventory.selection(selectors)


def test_an_inventory_without_devices_or_nodes_works() -> None:
    empty: list[ResourceSlice] = []
    assert offered(*empty, nodes=2).gpu_capacity().tolist() == [0, 0]
    assert offered(gpus(1), nodes=0).count_by_node(np.ones(1, dtype=np.bool_)).tolist() == []
    assert refusal_text(offered(*empty), claim_request(device_request(1))) == ""


def test_d20_selectors_of_the_class_run_before_those_of_the_request() -> None:
    """The class keeps devices away from a request whose own selector would fail on them."""
    only = device_class("gpu", f'device.driver == "{DRIVER}"')
    inventory = offered(
        pool("a", gpu("nic"), node="node-0", driver="a.net"), pool("b", gpu("0", size=2), node="node-0")
    )
    selector = "device.attributes[device.driver].size == 2"
    guarded = claim_request(device_request(1, selectors=[selector]), classes={"gpu": only})
    assert inventory.selection(next(guarded.alternatives()).selectors).results.tolist() == [0, 1]
    bare = claim_request(all_devices_request(selectors=[selector]))
    assert "device a.net/a/nic" in refusal_text(inventory, bare)
