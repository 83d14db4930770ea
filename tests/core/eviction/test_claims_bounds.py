"""Searches for victims with claims are cut short where nothing can suffice, and only there (cycle:PERF-7, gpu:D-7)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.eviction.bounds import CapacityBounds, FreedCapacity
from pykai.core.opencycle import Cycle
from tests.core.builders import Cluster, cluster
from tests.core.deviceclusters import device_request, devices, first_of

GPU = "nvidia.com/gpu"


def bounds_of(cycle: Cycle, group: str = "a") -> CapacityBounds:
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries[f"default/{group}"])
    return cycle.victims.bounds_of(gang, cycle.gangs.next_tasks(gang))


def crowded(nodes: int = 2, each: int = 2) -> Cluster:
    """Every device is held by a pod of its own that may be evicted."""
    world = devices(nodes=nodes, each=each).queue("q").priority_class("high", 75)
    for number in range(nodes):
        for device in range(each):
            world.gang(f"old-{number}-{device}", on=f"node-{number}", template=1, given=(f"gpu-{device}",))
    return world


@pytest.mark.parametrize(("count", "hopeless"), [(2, False), (3, True)])
def test_more_gpus_than_a_node_could_ever_free_are_unresolvable(count: int, hopeless: bool) -> None:
    cycle = crowded().gang("a", template=count, priority="high").cycle()
    assert bounds_of(cycle).is_unsatisfiable(cycle.tables.victims().evictable) == hopeless


@pytest.mark.parametrize(("pods", "hopeless"), [(4, False), (5, True)])
def test_more_pods_than_all_nodes_could_ever_hold_are_unresolvable(pods: int, hopeless: bool) -> None:
    cycle = crowded().gang("a", pods, template=1, priority="high").cycle()
    assert bounds_of(cycle).is_unsatisfiable(cycle.tables.victims().evictable) == hopeless


def test_victims_suffice_as_soon_as_their_devices_do() -> None:
    cycle = crowded(nodes=1, each=3).gang("a", template=2, priority="high").cycle()
    freed = FreedCapacity(cycle.context.snapshot, bounds_of(cycle))
    said = []
    for line in cycle.tables.victims().units_by_leaf_queue.values():
        for _, _, unit in reversed(line):
            freed.add(unit.members)
            said.append(freed.suffices)
    assert said == [False, True, True]


@pytest.mark.parametrize(
    "template",
    [[first_of(("gpu", 9), ("gpu", 1))], [device_request(9, adminAccess=True)], [device_request(9, "any")]],
    ids=["the cheapest alternative counts", "administrators take nothing", "devices that are no GPUs do not count"],
)
def test_what_may_be_served_otherwise_is_not_counted(template: Any) -> None:
    world = crowded(nodes=1).device_class("any")
    if "any" in repr(template):
        world.slice("node-0", 9, driver="nic.example.com")
    cycle = world.gang("a", template=template, priority="high").cycle()
    assert not bounds_of(cycle).is_unsatisfiable(cycle.tables.victims().evictable)


def test_a_node_without_the_column_is_not_counted_against() -> None:
    """Its devices are those that all nodes reach."""
    world = cluster(nodes=1).device_class("gpu").queue("q").slice("", 9, pool="net", allNodes=True)
    cycle = world.gang("a", template=4).cycle()
    bounds = bounds_of(cycle)
    assert not bounds.is_unsatisfiable(cycle.tables.victims().evictable)
    assert FreedCapacity(cycle.context.snapshot, bounds).suffices


@pytest.mark.parametrize(("gpus", "hopeless"), [(2, False), (3, True)])
def test_resources_that_a_class_backs_are_counted_where_the_node_serves_them(gpus: int, hopeless: bool) -> None:
    world = cluster(nodes=2, gpus=2).device_class("gpu", extendedResourceName=GPU).queue("q").priority_class("high", 75)
    for number in range(2):
        world.gang(f"old-{number}", on=f"node-{number}", gpu=2)
    cycle = world.gang("a", gpu=gpus, priority="high").cycle()
    assert bounds_of(cycle).is_unsatisfiable(cycle.tables.victims().evictable) == hopeless


def test_resources_that_a_class_backs_are_not_counted_where_a_claim_serves_them() -> None:
    world = cluster(nodes=1, gpus=1).device_class("gpu", extendedResourceName=GPU).queue("q")
    cycle = world.node("other").slice("other", 4).gang("a", gpu=3).cycle()
    bounds = bounds_of(cycle)
    assert not bounds.is_unsatisfiable(cycle.tables.victims().evictable)
    assert FreedCapacity(cycle.context.snapshot, bounds).suffices


def test_nodes_without_own_gpus_serve_no_claims_for_them() -> None:
    """Else a single CPU node would make every search look promising."""
    cycle = crowded(nodes=1).node("cpu-only").gang("a", 3, template=1, priority="high").cycle()
    assert bounds_of(cycle).is_unsatisfiable(cycle.tables.victims().evictable)


def test_the_victim_table_adds_up_after_a_change() -> None:
    cycle = crowded().gang("a", template=1, priority="high").cycle()
    victims = cycle.tables.victims()
    before = victims.evictable.copy()
    axis = cycle.context.snapshot.axes.index["resource.k8s.io/gpu"]
    assert before[axis].tolist() == [2, 2]
    victims.refresh(cycle.gangs.gang(cycle.context.snapshot.group_entries["default/old-0-0"]))
    assert (victims.evictable == before).all()
