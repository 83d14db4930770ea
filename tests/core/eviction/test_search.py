"""The search for victims: which sets are tried, in which order, and where it ends (cycle:13).

`old` work runs and `new` work waits in one queue unless a test says otherwise; `new` has the higher priority.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.core.cycle.cyclegangs import total_amounts
from pykai.core.cycle.gangs import Gang
from pykai.core.eviction.balance import ResourceBalance
from pykai.core.eviction.bounds import FreedCapacity
from pykai.core.eviction.freegpus import feasible_nodes
from pykai.core.eviction.scenarios import GENERATORS, ScenarioInput
from pykai.core.eviction.trial import Preemptor, Victim
from pykai.core.eviction.victimorder import VictimOrder
from pykai.core.eviction.victims import EvictionUnit
from pykai.core.opencycle import Cycle
from pykai.core.policy import UNITS_PER_SECOND, SearchBudgets
from tests.core.builders import Cluster, Result, cluster, timestamp_before

LOCAL, MULTI = "NodeLocalGreedy", "MultiNodeGang"


def searching(*nodes: int, **node: Any) -> Cluster:
    """Nodes with so many GPUs each, on which only preempt runs."""
    built = cluster().with_actions("preempt").queue("q").priority_class("high", 90)
    for gpus in nodes:
        built.node(gpus=gpus, **node)
    return built


def old(built: Cluster, name: str, on: int | str = 0, pods: int = 1, **job: Any) -> Cluster:
    """A job that runs; jobs added later are younger, so they are taken first."""
    return built.gang(name, pods, **{"gpu": 1, "on": f"node-{on}", **job})


def new(built: Cluster, pods: int = 1, name: str = "new", **job: Any) -> Cluster:
    """A job that waits."""
    return built.gang(name, pods, **{"gpu": 1, "priority": "high", **job})


def gang_of(cycle: Cycle, name: str) -> Gang:
    return cycle.gangs.gang(cycle.context.snapshot.group_entries[f"default/{name}"])


def sets_of(
    built: Cluster,
    way: str,
    *,
    recorded: tuple[str, ...] = (),
    name: str = "new",
    losing: frozenset[int] | None = None,
) -> list[list[str]]:
    """The victim sets of one generator, as names of pods; `recorded` are pods that a smaller part needs already."""
    cycle = built.cycle()
    gang = gang_of(cycle, name)
    batches = cycle.gangs.next_tasks(gang)
    victims = cycle.tables.victims()
    order = VictimOrder(
        cycle.state,
        cycle.context.rules,
        victims,
        sorted(victims.units_by_leaf_queue),
        lambda victim: victim is not gang,
    )
    required = total_amounts(cycle.context.snapshot.vectors, batches, cycle.context.smallest_gpu_mib)
    preemptor = Preemptor(gang, batches, required, feasible_nodes(cycle.state, batches), cycle.tables.waiting_lines())
    everyone = {
        member.task.name: Victim(unit.gang, member)
        for line in victims.units_by_leaf_queue.values()
        for _, _, unit in line
        for member in unit.members
    }
    known = [everyone[pod] for pod in recorded]
    bounds, balance = (
        cycle.victims.bounds_of(gang, batches),
        ResourceBalance(cycle.context, cycle.state, batches, losing),
    )
    material = ScenarioInput(cycle.context, cycle.state, preemptor, order, bounds, balance, known)
    return [[victim.member.task.name for victim in found] for found in GENERATORS[way](material)]


def ways(built: Cluster, *plugins: str) -> Cluster:
    """Choose victims by these plugins only."""
    names = ("predicates", "proportion", "priority", "elastic", "nodeavailability", "gpupack", *plugins)
    return built.configured({"actions": "preempt", "tiers": [{"plugins": [{"name": name} for name in names]}]})


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


# One trial


def test_sol12_gangs_ahead_of_the_preemptor_are_served_first() -> None:
    """cycle:SOL-12: a set with a victim ahead of the preemptor does not help: allocate would undo it."""
    built = cluster(nodes=1, gpus=2).with_actions("reclaim").queue("good", quota=1).queue("over").queue("mine", quota=1)
    built.objects[-2]["spec"]["resources"]["gpu"].update(quota=0, overQuotaWeight=0)
    old(old(built, "over", queue="over"), "good", queue="good")
    assert new(built, queue="mine", priority="").schedule().evicted_pods() == ["over-0"]


@pytest.mark.parametrize(("age", "reclaims"), [(20, False), (5, True)])
def test_bystanders_follow_the_queue_order(age: float, reclaims: bool) -> None:
    """cycle:ORD-2, PERF-5: a queue is compared by its best waiting job, though that job takes no part in the trial."""
    built = cluster(nodes=1, gpus=4).with_actions("reclaim").queue("theirs", quota=2).queue("mine", quota=2)
    for index in range(3):
        old(built, f"old-{index}", queue="theirs")
    old(built, "mine", queue="mine").gang("large", gpu=3, queue="mine", age=age)
    assert bool(built.gang("new", gpu=1, queue="mine", age=10).schedule().plan.evictions) is reclaims


def test_bystanders_of_queues_beside_count_for_their_parent() -> None:
    """cycle:ORD-2: the best job of the best leaf represents a department."""
    for waiting, reclaims in ((0, True), (1, False)):
        built = cluster(nodes=1, gpus=4).with_actions("reclaim").queue("d0", quota=2).queue("d1", quota=2)
        built.queue("theirs", parent="d0", quota=2).queue("mine", parent="d1", quota=0, priority=1)
        built.queue("beside", parent="d1", quota=1, limit=1, priority=200)
        for index in range(3):
            old(built, f"old-{index}", queue="theirs")
        old(built, "mine", queue="beside")
        for index in range(waiting):
            built.gang(f"large-{index}", gpu=3, queue="beside")
        assert bool(built.gang("new", gpu=1, queue="mine").schedule().plan.evictions) is reclaims


def test_sol13_nothing_starts_in_a_trial() -> None:
    """cycle:SOL-13: one pod of the gang would fit on what is idle, and waits with the other."""
    result = new(old(searching(2), "old"), 2).schedule()
    assert result.plan.binds == ()
    assert result.pipelined("new") == 2


def test_sol14_an_elastic_victim_gets_back_more_than_one_pod() -> None:
    """cycle:SOL-14, Do better: three pods were in the set only because they are worse than the one that is needed."""
    built = searching(4, cpu=10)
    old(built, "needed", gpu=0, cpu=10)
    old(built, "elastic", pods=4, min=1, cpu=0)
    result = new(built, gpu=0, cpu=5).schedule()
    assert result.evicted_pods() == ["needed-0"]


def test_sol15_kept_pods_are_not_victims() -> None:
    """cycle:SOL-15: the same with an elastic job that may not lose its minimum yet: it loses nothing."""
    built = searching(4, cpu=10).queue("slow", preemptMinRuntime="1h")
    old(built, "needed", gpu=0, cpu=10, queue="slow")
    fresh = {"annotations": {"kai.scheduler/last-start-timestamp": timestamp_before(1)}}
    old(built, "elastic", pods=4, min=1, cpu=0, queue="slow", group_spec=fresh)
    (evicted,) = new(built, gpu=0, cpu=5, queue="slow").schedule().plan.evictions
    assert (evicted.pod, evicted.gang_size) == ("needed-0", 1)


@pytest.mark.parametrize(("beside", "moves_to"), [(1, ""), (0, "node-1")])
def test_sol4_victims_without_gpu_go_only_where_gpus_are_unless_a_pod_needs_none(beside: int, moves_to: str) -> None:
    """cycle:SOL-4: a node that has no GPU to give is searched only if some pod of the job needs no GPU."""
    built = old(searching(2, 0, cpu=5), "old", 0, gpu=0, cpu=4)
    built.group("new", queue="q", minMember=2, priorityClassName="high", preemptibility="preemptible")
    built.pod("new-0", group="new", gpu=1, cpu=3).pod("new-1", group="new", gpu=beside, cpu="100m")
    assert built.schedule().moved_to("old-0") == moves_to


@pytest.mark.parametrize("gpu", [1, 0])
def test_sol4_the_nodes_of_the_victims_are_searched_too(gpu: int) -> None:
    """cycle:SOL-4: the second CPU job finds its own node again, though that node has no GPU to give."""
    built = searching(1, cpu=6)
    old(old(old(built, "gpu", gpu=gpu, cpu=0), "large", gpu=0, cpu=4), "small", gpu=0, cpu=2)
    result = new(built, cpu=4).schedule()
    assert "small-0" not in result.evicted_pods()
    assert "large-0" in result.evicted_pods()


# Larger and larger parts


@pytest.mark.parametrize(("pods", "placed"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 0)])
def test_sol1_parts_of_a_gang_are_probed_and_their_victims_recorded(pods: int, placed: int) -> None:
    """cycle:SOL-1, SOL-15: clearing one node at a time serves 1, 2 and 3 pods, and the last probe one more; after a
    failure with 4 of 5 pods only 3 are known to fit, and two nodes at once are too many."""
    result = ways(_one_per_node(pods, 6), "sg-nodelocalgreedy").schedule()
    assert result.pipelined("new") == len(result.plan.evictions) == placed


def test_sol1_tasks_of_several_subgroups_are_probed_in_order() -> None:
    """cycle:SOL-1: the gang is whole in the end."""
    built = searching(1, 1, 1)
    for index in range(3):
        old(built, f"old-{index}", index)
    entries = [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 2}]
    built.group("new", queue="q", priorityClassName="high", preemptibility="preemptible", subGroups=entries)
    for name, subgroup in (("a-0", "a"), ("b-0", "b"), ("b-1", "b")):
        built.pod(name, group="new", gpu=1, subgroup=subgroup)
    result = built.schedule()
    assert result.pipelined("new") == 3
    assert len(result.plan.evictions) == 3


def _one_per_node(pods: int, nodes: int) -> Cluster:
    """A gang of pods that share no node, which the bounds do not see."""
    built = searching(*[2] * nodes)
    for index in range(nodes):
        old(built, f"old-{index}", index, gpu=2)
    container: dict[str, Any] = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    container["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return new(built, pods, spec={"containers": [container]})


@pytest.mark.parametrize("pods", [1, 2, 3, 5, 6, 9])
def test_t45_a_gang_that_needs_no_more_nodes_than_there_are_gets_them(pods: int) -> None:
    """cycle:13.1: whatever its size."""
    result = _one_per_node(pods, 9).schedule()
    assert len(result.plan.evictions) == result.pipelined("new") == pods


def test_t45_a_gang_that_needs_one_node_more_gets_nothing() -> None:
    """cycle:T-45: nine of ten could be placed; nothing is committed, and the state is as before."""
    built = _one_per_node(10, 9)
    result = built.schedule()
    assert result.verdicts("new") == {"preempt": "generators_exhausted"}
    assert (result.plan.evictions, result.plan.nominations) == ((), ())
    assert result.cycle.state.version == 0
    assert (result.cycle.state.columns == built.cycle().state.columns).all()


def test_sol2_a_set_that_failed_is_not_tried_again() -> None:
    """cycle:SOL-2: the second generator offers the same sets, which costs nothing."""

    def work(*plugins: str) -> int:
        built = ways(_one_per_node(2, 1), *plugins)
        result = built.schedule()
        assert result.verdicts("new") == {"preempt": "generators_exhausted"}
        return result.plan.work

    assert work("sg-nodelocalgreedy") > 0
    assert work("sg-nodelocalgreedy", "sg-multinodegang") < 2 * work("sg-nodelocalgreedy")


# Where a search ends


def test_sol3_without_a_generator_nothing_is_tried() -> None:
    """cycle:SOL-3: no_generator goes to the next job."""
    result = ways(new(new(old(searching(1), "old")), name="other", cpu="500m")).schedule()
    assert result.verdicts("new") == result.verdicts("other") == {"preempt": "no_generator"}
    assert result.plan.stopped == ()


def budgeted(built: Cluster, **limits: Any) -> Result:
    defaults: dict[str, Any] = {"default_action": None, "job": None, "generators": {}, "default_generator": None}
    return built.with_policy(search_budgets=SearchBudgets(**{**defaults, **limits})).schedule()


@pytest.mark.parametrize(
    ("plugins", "last"),
    [
        (("sg-nodelocalgreedy", "sg-multinodegang"), "deadline_exhausted"),
        (("sg-multinodegang", "sg-nodelocalgreedy"), "generators_exhausted"),
    ],
)
def test_sol3_generators_run_in_order_and_the_last_result_counts(plugins: tuple[str, ...], last: str) -> None:
    """cycle:13.1: here multi-node has no budget."""
    result = budgeted(ways(_one_per_node(2, 1), *plugins), generators={MULTI: 0})
    assert result.verdicts("new") == {"preempt": last}


def _two_jobs() -> Cluster:
    """Two jobs of different signatures with possible victims."""
    return new(new(old(old(searching(2), "a"), "b"), name="first"), name="second", cpu=2)


@pytest.mark.parametrize("limits", [{"actions": {"preempt": 0}}, {"default_action": 0}])
def test_sol3_an_action_without_budget_is_not_begun(limits: dict[str, Any]) -> None:
    """cycle:SOL-3, SOL-5: not_attempted stops the whole action, and is in the plan."""
    result = budgeted(_two_jobs(), **limits)
    assert result.verdicts("first") == {"preempt": "not_attempted"}
    assert result.verdicts("second") == {}
    assert result.plan.stopped == ("preempt stopped at default/first: not_attempted, 0 units of work done",)


def test_sol5_each_action_has_its_own_budget() -> None:
    """cycle:SOL-5: that of reclaim does not apply to preempt."""
    result = budgeted(_two_jobs(), actions={"reclaim": 0})
    assert result.plan.stopped == ()


@pytest.mark.parametrize("job", [None, 1000])
def test_sol6_the_action_budget_covers_all_jobs(job: int | None) -> None:
    """cycle:SOL-6: the first job uses it up, the second is not begun, whatever a job may have."""
    result = budgeted(_two_jobs(), actions={"preempt": 1}, job=job)
    assert result.pipelined("first") == 1
    assert result.verdicts("second") == {"preempt": "not_attempted"}


def test_t44_the_least_of_a_job_is_given_whatever_the_action_has_left() -> None:
    """cycle:SOL-6, T-44."""
    result = budgeted(_two_jobs(), actions={"preempt": 0}, job_minimum=1)
    assert (result.pipelined("first"), result.pipelined("second")) == (1, 1)


def test_sol6_the_job_budget_restarts_with_each_job() -> None:
    """cycle:SOL-6."""
    result = budgeted(_two_jobs(), job=1)
    assert (result.pipelined("first"), result.pipelined("second")) == (1, 1)


def test_sol3_a_job_that_runs_out_of_budget_ends_the_action() -> None:
    """cycle:SOL-2, SOL-3: the budget is checked between sets; the ninth node is never tried."""
    built = new(_one_per_node(9, 9), name="after", cpu=2)
    result = budgeted(built, job=10)
    assert result.verdicts("new") == {"preempt": "deadline_exhausted"}
    assert result.verdicts("after") == {}
    assert len(result.plan.stopped) == 1
    assert (result.plan.evictions, result.plan.nominations) == ((), ())


def test_sol6_a_generator_out_of_budget_leaves_the_rest_to_the_next() -> None:
    """cycle:SOL-6: the limit of one generator does not end the job."""
    result = budgeted(_two_jobs(), generators={LOCAL: 0})
    assert (result.pipelined("first"), result.pipelined("second")) == (1, 1)


def test_sol6_a_generator_has_one_budget_for_all_tries_of_a_job() -> None:
    """cycle:SOL-6: nine nodes cannot be cleared one set after the other with so little."""
    alone = ways(_one_per_node(9, 9), "sg-multinodegang")
    assert budgeted(alone, generators={MULTI: 10}).verdicts("new") == {"preempt": "deadline_exhausted"}
    assert budgeted(alone, generators={LOCAL: 10}).pipelined("new") == 9
    assert budgeted(alone, default_generator=10).verdicts("new") == {"preempt": "deadline_exhausted"}


def test_sol5_the_built_in_budgets() -> None:
    """cycle:SOL-5: five minutes, four minutes, no minimum; two minutes a generator, half a minute for node-local."""
    limits = SearchBudgets()
    seconds = [limits.action_units("reclaim"), limits.job, limits.generator_units(LOCAL), limits.generator_units(MULTI)]
    assert [units and units / UNITS_PER_SECOND for units in seconds] == [300, 240, 30, 120]
    assert limits.generator_units("another") == limits.generator_units(MULTI)
    assert limits.job_minimum == 0


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
