"""Which sets of victims the generators offer, and which cannot suffice (cycle:SOL-7 to SOL-11).

`old` work runs and `new` work waits in one queue unless a test says otherwise; `new` has the higher priority.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.core.eviction.bounds import FreedCapacity
from pykai.core.eviction.units import EvictionUnit
from pykai.core.eviction.victimorder import VictimOrder
from tests.core.builders import Cluster
from tests.core.eviction.searching import LOCAL, MULTI, gang_of, new, old, searching, sets_of
from tests.core.topologies import inside, topology

# Which sets node-local tries


def test_sol9_the_node_of_the_latest_victim_is_cleared() -> None:
    """cycle:SOL-9: all victims on that node, and no others."""
    built = searching(2, 2)
    for index, node in enumerate((1, 0, 1, 0)):
        old(built, f"old-{index}", node)
    found = sets_of(new(built, gpu=2), LOCAL)
    assert found == [["old-3-0", "old-1-0"], ["old-2-0", "old-0-0"]]


def test_sol9_nodes_of_a_gang_come_in_the_order_of_their_names() -> None:
    """cycle:SOL-9: a gang on two nodes goes whole, with all other victims of the one node or the other."""
    built = searching(2, 2).group("wide", queue="q", minMember=2, preemptibility="preemptible")
    built.pod("wide-0", group="wide", gpu=1, on="node-1").pod("wide-1", group="wide", gpu=1, on="node-0")
    old(old(built, "left", 0), "right", 1)
    assert sets_of(new(built, gpu=2), LOCAL) == [["left-0", "wide-1", "wide-0"], ["right-0", "wide-1", "wide-0"]]


def test_sol9_equal_sets_of_one_step_are_offered_once() -> None:
    """cycle:SOL-9: a gang alone on two nodes."""
    built = searching(2, 2).group("wide", queue="q", minMember=4, preemptibility="preemptible")
    for index in range(4):
        built.pod(f"wide-{index}", group="wide", gpu=1, on=f"node-{index % 2}")
    assert sets_of(new(built, gpu=2), LOCAL) == [["wide-3", "wide-2", "wide-1", "wide-0"]]


def test_sol9_recorded_victims_are_in_every_set_and_alone_first() -> None:
    """cycle:SOL-9, SOL-15: they may be enough."""
    built = searching(1, 1, 1)
    for index in range(3):
        old(built, f"old-{index}", index)
    assert sets_of(new(built), LOCAL, recorded=("old-1-0",)) == [
        ["old-1-0"],
        ["old-1-0", "old-2-0"],
        ["old-1-0", "old-0-0"],
    ]


def test_sol9_recorded_victims_that_are_not_enough_are_not_offered_alone() -> None:
    """cycle:SOL-8: two GPUs on one node are wanted."""
    built = old(old(old(searching(2, 1), "a", 0), "b", 0), "c", 1)
    assert sets_of(new(built, gpu=2), LOCAL, recorded=("c-0",)) == [["c-0", "b-0", "a-0"]]


def test_sol9_a_recorded_pod_is_not_named_twice() -> None:
    """cycle:SOL-11, Do better: victims are a set; the rest of a gang goes with it."""
    built = searching(3).group("old", queue="q", minMember=3, preemptibility="preemptible")
    for index in range(3):
        built.pod(f"old-{index}", group="old", gpu=1, on="node-0")
    (first, second) = sets_of(new(built), LOCAL, recorded=("old-1",))
    assert first == ["old-1"]
    assert sorted(second) == ["old-0", "old-1", "old-2"]


# Which sets multi-node tries


def test_sol10_the_nodes_with_least_free_come_first() -> None:
    """cycle:SOL-10: then one, two, four more."""
    built = searching(3, 2, 1)
    for index, gpus in enumerate((3, 2, 1)):
        old(built, f"old-{index}", index, gpu=gpus)
    assert sets_of(new(built, 1), MULTI) == [
        ["old-2-0"],
        ["old-2-0"],
        ["old-2-0", "old-1-0"],
        ["old-2-0"],
        ["old-2-0", "old-1-0"],
        ["old-2-0", "old-1-0", "old-0-0"],
    ]


@pytest.mark.parametrize(("pods", "sizes"), [(1, [1, 2, 3, 5, 8]), (2, [2, 3, 4, 6, 8])])
def test_sol10_prefixes_grow_by_one_two_and_four(pods: int, sizes: list[int]) -> None:
    """cycle:SOL-10: from the first that covers the demand to all, here when all victims are known."""
    built = searching(*[1] * 8)
    for index in range(8):
        old(built, f"old-{index}", index)
    assert [len(found) for found in sets_of(new(built, pods), MULTI)][-5:] == sizes


def test_sol10_of_equal_nodes_the_first_seen_comes_first() -> None:
    """cycle:SOL-10: in the order of the victims, not of the names."""
    built = searching(1, 1, 1)
    for node in (1, 2, 0):
        old(built, f"old-{node}", node)
    two = ["old-0-0", "old-2-0"]
    assert sets_of(new(built, 2), MULTI) == [two, two, [*two, "old-1-0"]]


def test_sol10_nodes_too_small_for_the_smallest_pod_are_left_out() -> None:
    """cycle:SOL-10."""
    built = old(old(searching(2, 1), "large", 0, gpu=2), "small", 1)
    assert sets_of(new(built, gpu=2), MULTI) == [["large-0"]]


def test_sol10_what_is_free_elsewhere_counts() -> None:
    """cycle:SOL-10: two of the three pods fit on a node without victims."""
    built = old(old(searching(1, 1, 2), "a", 0), "b", 1)
    assert sets_of(new(built, 3), MULTI)[0] == ["b-0"]


def test_sol10_what_is_free_beside_the_victims_counts_once() -> None:
    """cycle:SOL-10: the capacity of a node is what is free and what is freed; ten pods need five nodes of two GPUs."""
    built = searching(*[2] * 8)
    for index in range(8):
        old(built, f"old-{index}", index)
    assert [len(found) for found in sets_of(new(built, 10), MULTI)][-4:] == [5, 6, 7, 8]


def test_sol10_nodes_with_enough_together_are_taken_together() -> None:
    """cycle:SOL-10: the first prefix covers the demand."""
    built = searching(2, 2, 2)
    for index in range(6):
        old(built, f"old-{index}", index // 2)
    first = sets_of(new(built, 2, gpu=2), MULTI)[0]
    assert first == ["old-5-0", "old-4-0", "old-3-0", "old-2-0"]


def test_sol10_recorded_victims_come_first_and_count_as_free() -> None:
    """cycle:SOL-10."""
    built = searching(1, 1, 1)
    for index in range(3):
        old(built, f"old-{index}", index)
    found = sets_of(new(built, 2), MULTI, recorded=("old-0-0",))
    assert found[0] == ["old-0-0", "old-2-0"]


def test_sol10_shared_gpus_count_by_what_is_left_of_them() -> None:
    """cycle:SOL-10: half a GPU is wanted, and there is half a GPU beside the victim."""
    built = searching(1, 1)
    built.gang("half", fraction=0.5, on="node-0", device="one").gang("whole", gpu=1, on="node-1")
    assert sets_of(new(built, 3, gpu=0, fraction=0.5), MULTI)[0] == ["whole-0"]


def test_sol10_smaller_nodes_come_first_though_larger_ones_were_seen_first() -> None:
    """cycle:SOL-10: when all victims are known."""
    built = searching(1, 2, 3)
    for index, gpus in enumerate((1, 2, 3)):
        old(built, f"old-{index}", index, gpu=gpus)
    found = sets_of(new(built), MULTI)
    assert found[-3:] == [["old-0-0"], ["old-1-0", "old-0-0"], ["old-2-0", "old-1-0", "old-0-0"]]


def test_sol10_without_a_demand_for_gpus_prefixes_grow_from_none() -> None:
    """cycle:SOL-10: 0, and then 1, 2 and 4 nodes more, here when all victims are known."""
    built = searching(*[0] * 5, cpu=2)
    for index in range(5):
        old(built, f"old-{index}", index, gpu=0, cpu=2)
    assert [len(found) for found in sets_of(new(built, gpu=0, cpu=2), MULTI)][-4:] == [1, 2, 4, 5]


def test_sol10_more_than_all_nodes_could_free_is_not_offered() -> None:
    """cycle:SOL-10: one GPU cannot be shared by three halves, which the bounds do not see."""
    built = searching(1).gang("half", fraction=0.5, on="node-0", device="one")
    assert sets_of(new(built, 2, gpu=0, fraction=0.5), MULTI) == [["half-0"]]
    assert sets_of(new(built, 3, name="more", gpu=0, fraction=0.5), MULTI, name="more") == []


@pytest.mark.parametrize("way", [LOCAL, MULTI])
@pytest.mark.parametrize("group_spec", [{}, inside("rack")])
def test_recorded_victims_and_those_that_may_lose_count_together(way: str, group_spec: dict[str, Any]) -> None:
    """cycle:SOL-8, SOL-15: two GPUs of one node are wanted, and the queue may lose what it has."""
    built = topology(searching(2, labels={"rack": "r"}), "rack")
    old(old(built, "a"), "b")
    new(built, gpu=2, group_spec=group_spec)
    queue = built.cycle().context.snapshot.tree.rows["q"]
    for losing in (None, frozenset([queue])):
        assert sets_of(built, way, losing=losing)[-1] == ["b-0", "a-0"]
        assert sets_of(built, way, recorded=("a-0",), losing=losing)[-1] == ["a-0", "b-0"]
    assert sets_of(built, way, losing=frozenset()) == []


def test_a_shared_gpu_without_its_tenant_is_a_whole_one() -> None:
    """cycle:SOL-8: shared GPUs are counted generously."""
    built = searching(1).gang("half", fraction=0.5, on="node-0", device="one")
    assert sets_of(new(built), LOCAL) == [["half-0"]]


# What cannot suffice is not offered


@pytest.mark.parametrize(
    ("held", "wanted"),
    [({"cpu": 2}, {"cpu": 3}), ({"memory": "2Gi"}, {"memory": "3Gi"}), ({"gpu": 2}, {"gpu": 3})],
)
@pytest.mark.parametrize("way", [LOCAL, MULTI])
def test_sol8_sets_are_measured_by_every_resource(way: str, held: dict[str, Any], wanted: dict[str, Any]) -> None:
    """cycle:SOL-8, Do better: CPU and memory too; two victims are needed."""
    built = searching(4, cpu=4, memory="4Gi", pods=10)
    empty = {"gpu": 0, "cpu": 0, "memory": 0}
    for name in ("first", "second"):
        old(built, name, **{**empty, **held})
    found = sets_of(new(built, **{**empty, **wanted}), way)
    assert found == [["second-0", "first-0"]]


def test_sol8_the_pod_limit_of_nodes_is_a_resource_too() -> None:
    """cycle:SOL-8, Do better: a node of two pods."""
    built = old(old(searching(4, pods=2), "a", pods=1), "b", pods=1)
    assert sets_of(new(built, 2), LOCAL) == [["b-0", "a-0"]]


def test_sol8_nodes_the_pods_may_not_use_do_not_count() -> None:
    """cycle:SOL-8: a node selector that no eviction changes."""
    built = old(old(searching(1, 1), "there", 0), "elsewhere", 1)
    job: dict[str, Any] = {"spec": {"nodeSelector": {"kubernetes.io/hostname": "node-0"}}}
    assert sets_of(new(built, **job), LOCAL) == [["there-0"]]


def test_sol8_each_kind_of_pod_must_fit() -> None:
    """cycle:SOL-8: one pod wants CPU, the other a GPU."""
    built = searching(1, cpu=2).node(cpu=8)
    old(old(built, "cpu", 1, gpu=0, cpu=8), "gpu", 0)
    built.group("new", queue="q", minMember=2, priorityClassName="high", preemptibility="preemptible")
    built.pod("new-0", group="new", gpu=1).pod("new-1", group="new", cpu=4)
    assert sets_of(built, LOCAL) == []
    assert sets_of(built, MULTI)[0] == ["gpu-0", "cpu-0"]


@pytest.mark.parametrize(
    ("case", "job"),
    [
        ("CPU", {"cpu": 3}),
        ("memory", {"memory": "3Gi"}),
        ("GPUs", {"gpu": 3}),
        ("nodes", {"spec": {"nodeSelector": {"no": "where"}}}),
        ("devices of another kind", {"extra": {"example.com/chip": 1}}),
    ],
)
def test_a_job_that_all_victims_together_cannot_serve_costs_nothing(case: str, job: dict[str, Any]) -> None:
    """cycle:PERF-7: found without trying."""
    built = searching(4, cpu=4, memory="4Gi", extra={"example.com/chip": 1})
    result = new(old(old(built, "a", cpu=2, memory="2Gi"), "b", cpu=2, memory="2Gi"), 2, **job).schedule()
    assert result.verdicts("new") == {"preempt": "hopeless"}, case
    assert result.plan.work == 0


def test_nodes_that_a_pod_may_not_use_have_no_room_for_a_single_one() -> None:
    """cycle:PERF-7: the only evictable work is on a node that the pod does not select."""
    built = old(old(searching(0, 1, cpu=4), "loose", 0, gpu=0, cpu=4), "fixed", 1, preemptible=False)
    new(built, spec={"nodeSelector": {"no": "where"}})
    cycle = built.cycle()
    gang = gang_of(cycle, "new")
    bounds = cycle.victims.bounds_of(gang, cycle.gangs.next_tasks(gang))
    freed = FreedCapacity(cycle.context.snapshot, bounds)
    assert not freed.suffices
    for line in cycle.tables.victims().units_by_leaf_queue.values():
        for _, _, unit in line:
            freed.add(unit.members)
    assert not freed.suffices
    assert bounds.is_unsatisfiable(cycle.tables.victims().evictable)


@pytest.mark.parametrize("group_spec", [{}, inside("rack")])
def test_room_on_a_node_is_counted_once_as_it_grows(group_spec: dict[str, Any]) -> None:
    """cycle:SOL-8, topo:T-54: four victims of one GPU make room for four pods, three do not."""
    built = topology(searching(4, labels={"rack": "r"}), "rack")
    for index in range(4):
        old(built, f"old-{index}")
    assert sets_of(new(built, 4, group_spec=group_spec), LOCAL) == [["old-3-0", "old-2-0", "old-1-0", "old-0-0"]]
    cycle = built.cycle()
    gang = gang_of(cycle, "new")
    freed = FreedCapacity(cycle.context.snapshot, cycle.victims.bounds_of(gang, cycle.gangs.next_tasks(gang)))
    said = []
    for _, _, unit in cycle.tables.victims().units_of(gang.queue):
        freed.add(unit.members)
        said.append(freed.suffices)
    assert said == [False, False, False, True]


def test_only_evictable_pods_count() -> None:
    """cycle:PERF-7: half of the node belongs to work that stays."""
    built = old(old(searching(2), "fixed", preemptible=False), "loose")
    result = new(built, gpu=2).schedule()
    assert result.verdicts("new") == {"preempt": "hopeless"}


@st.composite
def _crowds(draw: st.DrawFn) -> Cluster:
    built = searching(2, 3, cpu=6, memory="6Gi", pods=6)
    for index in range(draw(st.integers(1, 5))):
        node = draw(st.integers(0, 1))
        kind: dict[str, Any] = draw(
            st.sampled_from([{"gpu": 0}, {"gpu": 1}, {"gpu": 0, "fraction": 0.5, "device": f"gpu-{node}"}])
        )
        size: dict[str, Any] = {"cpu": draw(st.integers(0, 2)), "memory": f"{draw(st.integers(0, 2))}Gi"}
        if kind == {"gpu": 1} and index > 2:
            kind = {"gpu": 0}
        old(built, f"old-{index}", node, preemptible=draw(st.booleans()), **kind, **size)
    wants: dict[str, Any] = draw(st.sampled_from([{"gpu": 0}, {"gpu": 1}, {"gpu": 2}, {"gpu": 0, "fraction": 0.6}]))
    size = {"cpu": draw(st.integers(0, 5)), "memory": f"{draw(st.integers(0, 5))}Gi"}
    return new(built, draw(st.integers(1, 3)), **wants, **size)


@given(built=_crowds(), data=st.data())
def test_no_sufficient_set_is_pruned(built: Cluster, data: st.DataObject) -> None:
    """cycle:PERF-7: whatever a trial can place, the bounds let through."""
    cycle = built.cycle()
    state = cycle.state
    gang = gang_of(cycle, "new")
    batches = cycle.gangs.next_tasks(gang)
    bounds = cycle.victims.bounds_of(gang, batches)
    freed = FreedCapacity(cycle.context.snapshot, bounds)
    victims = cycle.tables.victims()
    units = [unit for line in victims.units_by_leaf_queue.values() for _, _, unit in line]
    hopeless = bounds.is_unsatisfiable(victims.evictable)
    chosen = [unit for unit in units if data.draw(st.booleans())]
    for unit in chosen:
        freed.add(unit.members)
    mark = state.mark()
    for unit in chosen:
        for member in unit.members:
            state.evict(unit.gang, member.leaf, member.task)
    if cycle.placer.try_place_tasks(gang, batches):
        assert freed.suffices
        assert not hopeless
    state.rollback(mark)


# The order of victims


def test_sol7_a_job_that_lost_pods_competes_again() -> None:
    """cycle:SOL-7: two elastic jobs shrink in turn, down to their minimum, and then go whole, the youngest first."""
    built = searching(5)
    old(built, "elder", pods=3, min=1)
    old(built, "young", pods=2, min=1)
    cycle = new(built, gpu=5).cycle()
    victims = cycle.tables.victims()
    order = VictimOrder(
        cycle.state, cycle.context.rules, victims, sorted(victims.units_by_leaf_queue), lambda gang: True
    )
    units: list[EvictionUnit] = []
    while (unit := order.unit_at(len(units))) is not None:
        units.append(unit)
    assert [[member.task.name for member in unit.members] for unit in units] == [
        ["young-1"],
        ["elder-2"],
        ["elder-1"],
        ["young-0"],
        ["elder-0"],
    ]


def test_sol11_sets_of_elastic_jobs_grow_pod_by_pod() -> None:
    """cycle:SOL-11."""
    found = sets_of(new(old(searching(3), "old", pods=3, min=1)), LOCAL)
    assert found == [["old-2"], ["old-2", "old-1"], ["old-2", "old-1", "old-0"]]


def test_pods_on_unknown_nodes_are_not_victims() -> None:
    """cycle:14: alive pods on known nodes."""
    built = old(old(searching(2), "here"), "nowhere", "gone")
    assert sets_of(new(built), LOCAL) == [["here-0"]]
