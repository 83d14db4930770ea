"""What bounds of victims count of a topology and of shared GPUs (cycle:PERF-7, topo:T-54).

A bound only saves trials, so its answers are read directly: a wrong one would only show in the work done.
"""

from typing import Any

import pytest

from pykai.core.eviction.bounds import CapacityBounds, FreedCapacity
from pykai.core.eviction.freegpus import free_gpus
from pykai.core.opencycle import Cycle
from tests.core.builders import Cluster, Raw, leaf
from tests.core.eviction.searching import MULTI, gang_of, new, old, searching, sets_of
from tests.core.topologies import inside, keeping, racks


def bounds_of(cycle: Cycle) -> CapacityBounds:
    gang = gang_of(cycle, "new")
    return cycle.victims.bounds_of(gang, cycle.gangs.next_tasks(gang))


def is_hopeless(built: Cluster) -> bool:
    """Whether not even the eviction of all victims would suffice."""
    cycle = built.cycle()
    return bounds_of(cycle).is_unsatisfiable(cycle.tables.victims().evictable)


def has_room(built: Cluster, *victims: str) -> bool:
    """Whether there could be room without these pods."""
    cycle = built.cycle()
    freed = FreedCapacity(cycle.context.snapshot, bounds_of(cycle))
    units = [unit for line in cycle.tables.victims().units_by_leaf_queue.values() for _, _, unit in line]
    members = {member.task.name: member for unit in units for member in unit.members}
    freed.add(members[name] for name in victims)
    assert freed.copy().suffices is freed.suffices
    return freed.suffices


# One domain


@pytest.mark.parametrize(
    ("constraint", "count"),
    [
        (inside("rack"), 1),
        (inside("", "rack"), 0),
        (inside("row"), 0),
        (inside("rack", name="other"), 0),
        ({"topologyConstraint": {"requiredTopologyLevel": "rack"}}, 0),
    ],
    ids=["required", "preferred", "unknown level", "unknown topology", "no topology"],
)
def test_t54_only_a_required_level_that_exists_is_a_bound(constraint: Raw, count: int) -> None:
    """topo:T-54"""
    built = racks(("rack",), ("r1", 1)).gang("new", gpu=1, group_spec=constraint)
    assert len(bounds_of(built.cycle()).requirements) == count


def test_t54_a_subgroup_without_pods_to_place_is_no_bound() -> None:
    """topo:T-54: only the other one is to be placed."""
    built = racks(("rack",), ("r1", 2)).tree("new", keeping(leaf("a", 0), "rack"), leaf("b", 1, pending=1), gpu=1)
    assert bounds_of(built.cycle()).requirements == []


def test_t54_room_in_two_racks_is_not_room_in_one() -> None:
    """topo:T-54: a gang of two, and one GPU is free in each rack."""

    def built(**spec: Any) -> Cluster:
        found = racks(("rack",), ("r1", 2), ("r2", 2)).gang("a", gpu=1, on="n0").gang("b", gpu=1, on="n1")
        return found.gang("new", 2, gpu=1, group_spec=spec)

    assert has_room(built())
    assert not has_room(built(**inside("rack")))
    assert has_room(built(**inside("rack")), "a-0")
    assert has_room(built(**inside("rack")), "a-0", "b-0")


def test_t54_room_in_a_rack_is_counted_once_as_it_grows() -> None:
    """topo:T-54: a gang of three; two GPUs are free in the other rack."""
    built = racks(("rack",), ("r1", 3), ("r2", 2))
    for name in "abc":
        built.gang(name, gpu=1, on="n0")
    built.gang("new", 3, gpu=1, group_spec=inside("rack"))
    assert not has_room(built, "a-0")
    assert not has_room(built, "a-0", "b-0")
    assert has_room(built, "a-0", "b-0", "c-0")


def test_t54_a_gang_whose_pods_run_must_find_room_in_their_rack() -> None:
    """topo:T-25, T-54: what can be evicted is in another rack."""

    def hopeless(loose: str, fixed: str) -> bool:
        built = racks(("rack",), ("r1", 2), ("r2", 2))
        built.group("new", minMember=1, preemptibility="non-preemptible", **inside("rack"))
        built.pod("new-0", group="new", gpu=1, on="n0").pod("new-1", group="new", gpu=1)
        return is_hopeless(built.gang("loose", gpu=1, on=loose).gang("fixed", gpu=1, on=fixed, preemptible=False))

    assert hopeless(loose="n1", fixed="n0")
    assert not hopeless(loose="n0", fixed="n1")


def test_t54_only_the_pods_of_a_subgroup_count_in_its_rack() -> None:
    """topo:T-54: the subgroup that wants CPU may be anywhere."""
    built = racks(("rack",), ("r1", 1), ("r2", 1))
    built.gang("a", gpu=1, cpu=60, on="n0").gang("b", gpu=0, cpu=60, on="n1")
    narrow = keeping(leaf("narrow", 1, pending=1, gpu=1, cpu=1), "rack")
    built.tree("new", narrow, leaf("wide", 1, pending=1, gpu=0, cpu=80))
    assert not has_room(built)
    assert has_room(built, "a-0")
    assert has_room(built, "a-0", "b-0")


# Shared GPUs


@pytest.mark.parametrize(
    "wanted", [{"fraction": 0.5}, {"gpu_memory": 500}, {"gpu_memory": 5000}], ids=["half", "memory", "too large"]
)
def test_a_node_without_such_gpus_has_no_room_for_a_part_of_one(wanted: dict[str, Any]) -> None:
    """cycle:PERF-7: all that can be evicted is on a node that has no GPU."""
    built = old(old(searching(0, 1), "loose", 0, gpu=0, cpu=4), "fixed", 1, preemptible=False)
    new(built, gpu=0, **wanted)
    assert not has_room(built)
    assert not has_room(built, "loose-0")
    assert is_hopeless(new(old(searching(0), "loose", gpu=0), gpu=0, **wanted))


def test_memory_beyond_the_size_of_a_gpu_has_no_room_where_one_is_freed() -> None:
    """cycle:PERF-7: the GPU has 1000 MiB."""
    built = new(old(searching(1), "old"), gpu=0, gpu_memory=5000)
    assert is_hopeless(built)
    assert not has_room(built, "old-0")


def test_a_shared_gpu_that_is_full_has_nothing_free() -> None:
    """gpu:C-10: two halves."""
    built = searching(1)
    for name in ("a", "b"):
        old(built, name, gpu=0, fraction=0.5, device="one")
    assert free_gpus(built.cycle().state).tolist() == [0.0]


def test_gpu_memory_where_no_node_has_a_gpu_is_not_offered() -> None:
    """cycle:SOL-10: there is no size that would convert it."""
    assert sets_of(new(old(searching(0), "old", gpu=0), gpu=0, gpu_memory=500), MULTI) == []
