"""Which tasks of a gang are evicted together, and in which order (cycle:6.3).

Every pod requests one GPU.  Pods of a subgroup are called <group>-<leaf>-<number>; tests leave the name of the group
out.  A step is what goes together, the first step is the first to go.
"""

from typing import Any

import pytest

from pykai.core.cycle.gangs import Gang
from pykai.core.eviction.units import EvictionUnit
from pykai.core.eviction.victims import was_placed_in_cycle
from pykai.core.model.status import TaskStatus
from pykai.core.opencycle import Cycle
from tests.core.builders import Cluster, SubgroupSpec, branch, cluster, leaf


def ground(gpus: int = 100) -> Cluster:
    return cluster(nodes=1, gpus=gpus).queue("q")


def job(*parts: SubgroupSpec, needs: int | None = None, **more: Any) -> Cluster:
    """One node and one group called job with subgroups."""
    return ground().tree("job", *parts, needs=needs, gpu=1, **more)


def running(pods: int, *, min: int, **more: Any) -> Cluster:
    """One node and one running group called job without subgroups."""
    return ground().gang("job", pods, min=min, gpu=1, on="node-0", **more)


def gang_of(cycle: Cycle, group: str = "job") -> Gang:
    return cycle.gangs.gang(cycle.context.snapshot.group_entries[f"default/{group}"])


def line_of(cycle: Cycle, queue: str = "q") -> list[EvictionUnit]:
    """The units of a queue, first to go first."""
    line = cycle.tables.victims().units_by_leaf_queue.get(cycle.context.snapshot.tree.rows[queue], [])
    return [unit for _, _, unit in reversed(line)]


def names_of(unit: EvictionUnit) -> list[str]:
    return [member.task.name.removeprefix(f"{unit.gang.group.name}-") for member in unit.members]


def steps(built: Cluster, group: str = "job") -> list[list[str]]:
    """What of a group is evicted together, first to go first."""
    return [names_of(unit) for unit in line_of(built.cycle()) if unit.gang.group.name == group]


# Plain gangs


def test_t16_an_elastic_gang_shrinks_one_pod_at_a_time() -> None:
    """Case cycle:T-16; cycle:PG-12, PG-13: one task, and there is more."""
    assert steps(running(3, min=1)) == [["2"], ["1"], ["0"]]


def test_t16_a_gang_at_its_minimum_goes_at_once() -> None:
    """Case cycle:T-16; cycle:PG-12: all tasks, and nothing is left."""
    assert steps(running(2, min=2)) == [["1", "0"]]


def test_pg13_a_gang_gives_its_surplus_before_its_minimum() -> None:
    """cycle:PG-13"""
    assert steps(running(5, min=3)) == [["4"], ["3"], ["2", "1", "0"]]


def test_pg13_a_gang_without_minimum_goes_pod_by_pod() -> None:
    """cycle:PG-13, PG-2"""
    assert steps(running(3, min=0)) == [["2"], ["1"], ["0"]]


def test_pg13_a_gang_below_its_minimum_goes_at_once() -> None:
    """cycle:6.3: no satisfied child, so there is nothing elastic."""
    assert steps(running(2, min=3)) == [["1", "0"]]


@pytest.mark.parametrize(
    "label",
    [
        {"training.kubeflow.org/job-role": "master"},
        {"training.kubeflow.org/job-role": "launcher"},
        {"ray.io/node-type": "head"},
        {"kai.scheduler/task-priority": "1"},
    ],
    ids=["master", "launcher", "head", "priority"],
)
def test_8_5_tasks_leave_in_reverse_order_so_masters_go_last(label: dict[str, str]) -> None:
    """cycle:8.5: eviction uses the exact reverse of the task order."""
    built = running(2, min=1).pod("job-boss", group="job", gpu=1, on="node-0", labels=label)
    assert steps(built) == [["1"], ["0"], ["boss"]]
    built = running(2, min=3).pod("job-boss", group="job", gpu=1, on="node-0", labels=label)
    assert steps(built) == [["1", "0", "boss"]], "inside a step too"


def test_8_5_the_youngest_task_leaves_first() -> None:
    """cycle:8.5"""
    built = ground().group("job", minMember=1)
    for name, age in (("old", 30.0), ("young", 10.0), ("middle", 20.0)):
        built.pod(f"job-{name}", group="job", gpu=1, on="node-0", age=age)
    assert steps(built) == [["young"], ["middle"], ["old"]]


# Subgroups


def test_t16_a_surplus_subgroup_goes_whole_and_the_worst_goes_first() -> None:
    """Case cycle:T-16; cycle:6.3 phase 2."""
    assert steps(job(leaf("a", running=1), leaf("b", running=1), needs=1)) == [["b-0"], ["a-0"]]
    assert steps(job(leaf("a", 2, running=2), leaf("b", 2, running=2), needs=1)) == [["b-1", "b-0"], ["a-1", "a-0"]]


def test_t16_an_inner_set_that_needs_nothing_gives_before_its_required_sibling() -> None:
    """Case cycle:T-16"""
    inner = branch("inner", leaf("x", running=1), needs=0)
    assert steps(job(inner, leaf("must", running=1)))[0] == ["x-0"]
    assert steps(job(leaf("must", running=1), inner))[0] == ["x-0"], "whichever comes first"


def test_pg13_surplus_pods_go_before_surplus_subgroups() -> None:
    """cycle:PG-13: pods beyond the minimum, then subgroups beyond those needed, then the rest."""
    built = job(leaf("a", 2, running=3), leaf("b", 2, running=2), needs=1)
    assert steps(built) == [["a-2"], ["b-1", "b-0"], ["a-1", "a-0"]]


def test_6_3_needed_subgroups_go_together() -> None:
    """cycle:6.3: phase 2 only where more children are satisfied than needed."""
    built = job(leaf("a", running=1), leaf("b", running=1), leaf("c", running=1), needs=2)
    assert steps(built) == [["c-0"], ["a-0", "b-0"]]
    assert steps(job(leaf("a", running=1), leaf("b", running=1))) == [["a-0", "b-0"]]


def test_6_3_the_subgroup_farthest_above_its_minimum_gives_first() -> None:
    """cycle:6.3 phase 1, reverse of cycle:8.4: 3/1 gives before 4/2, then those with the same ratio by name."""
    built = job(leaf("a", 1, running=3), leaf("b", 2, running=4))
    assert steps(built) == [["a-2"], ["b-3"], ["a-1"], ["b-2"], ["a-0", "b-1", "b-0"]]


def test_6_3_a_subgroup_without_minimum_gives_before_others() -> None:
    """cycle:8.4 reversed: threshold 0 is last to be served and first to give."""
    built = job(leaf("free", 0, running=1), leaf("hard", 1, running=9))
    assert steps(built)[0] == ["free-0"]


def test_6_3_surplus_below_an_inner_set_is_found() -> None:
    """cycle:6.3 phase 1: a set gives what is elastic below it."""
    built = job(branch("deep", leaf("a", running=2), leaf("b", running=1)), leaf("c", running=1))
    assert steps(built) == [["a-1"], ["a-0", "b-0", "c-0"]]


def test_6_3_a_surplus_inner_set_goes_with_all_below_it() -> None:
    """cycle:6.3 phase 2: every task of the worst child."""
    one = branch("one", leaf("a", running=1), leaf("b", running=1))
    two = branch("two", leaf("c", running=2), leaf("d", running=1))
    assert steps(job(one, two, needs=1)) == [["c-1"], ["c-0", "d-0"], ["a-0", "b-0"]]


def test_6_3_a_child_set_gives_a_whole_subgroup_of_its_own() -> None:
    """cycle:6.3 phase 1 asks the elastic part of a set, which may be a subgroup beyond those it needs."""
    inner = branch("inner", leaf("a", 2, running=2), leaf("b", 2, running=2), needs=1)
    assert steps(job(inner, leaf("c", running=1))) == [["b-1", "b-0"], ["a-1", "a-0", "c-0"]]


def test_6_3_nothing_is_elastic_where_no_child_is_satisfied() -> None:
    """cycle:6.3: s == 0 ends it, although there is a surplus further down."""
    built = job(branch("half", leaf("a", running=2), leaf("b", pending=1)))
    assert steps(built) == [["a-1", "a-0"]]


def test_6_3_an_unsatisfied_sibling_does_not_keep_a_surplus() -> None:
    """cycle:6.3: one satisfied child is enough to look for a surplus."""
    built = job(leaf("a", running=2), leaf("b", 2, running=1))
    assert steps(built) == [["a-1"], ["a-0", "b-0"]]


def test_6_3_the_worst_child_that_has_any_task_goes() -> None:
    """cycle:6.3 phase 2: an empty subgroup without minimum is satisfied and has nothing to give."""
    built = job(leaf("a", running=1), leaf("b", running=1), leaf("empty", 0), needs=2)
    assert steps(built) == [["b-0"], ["a-0"]]


def test_t23_a_victim_gives_one_pod_of_each_subgroup() -> None:
    """Case cycle:T-23"""
    built = ground(4).priority_class("high", 90).tree("job", leaf("a", running=2), leaf("b", running=2), gpu=1)
    result = built.gang("urgent", gpu=2, priority="high").with_actions("preempt").schedule()
    assert sorted(result.evicted_pods("job")) == ["job-a-1", "job-b-1"]
    assert result.pipelined("urgent") == 1


# cycle:PG-14: evictable tasks


@pytest.mark.parametrize("status", [TaskStatus.RELEASING, TaskStatus.STUCK_IN_RELEASING])
def test_pg14_a_terminating_task_is_not_evicted_again(status: TaskStatus) -> None:
    """cycle:PG-14; case T-26: its sibling is."""
    built = running(2, min=1).assume("job-1", status)
    assert steps(built) == [["0"]]
    assert steps(built.assume("job-0", status)) == []


def test_pg14_tasks_that_wait_or_have_ended_are_not_evicted() -> None:
    """cycle:PG-14"""
    built = running(1, min=1).pod("job-w", group="job", gpu=1)
    for name, phase in (("s", "Succeeded"), ("f", "Failed")):
        built.pod(f"job-{name}", group="job", gpu=1, on="node-0", phase=phase)
    assert steps(built) == [["0"]]


def test_pg14_a_task_that_is_bound_or_being_bound_is_evictable() -> None:
    """cycle:PG-14"""
    built = ground().group("job", minMember=0).pod("job-bound", group="job", gpu=1, on="node-0", phase="Pending")
    built.pod("job-binding", group="job", gpu=1).bind_request("job-binding", "node-0")
    assert steps(built) == [["binding"], ["bound"]]


def test_pg14_a_stray_task_is_not_counted_and_not_evicted() -> None:
    """cycle:PG-4: it belongs to no subgroup."""
    built = running(1, min=1).pod("job-lost", group="job", gpu=1, on="node-0", subgroup="nowhere")
    assert steps(built) == [["0"]]


def test_pg14_a_task_on_an_unknown_node_frees_nothing() -> None:
    """cycle:PG-14: evicting it would free nothing."""
    built = running(1, min=1).pod("job-away", group="job", gpu=1, on="elsewhere")
    assert steps(built) == [["0"]]


def test_pg14_the_bind_request_of_a_victim_is_withdrawn_instead_of_its_pod_deleted() -> None:
    """cycle:PG-14, Do better."""
    built = ground(1).priority_class("high", 90).gang("job", gpu=1).bind_request("job-0", "node-0")
    result = built.gang("urgent", gpu=1, priority="high").with_actions("preempt").schedule()
    assert result.eviction("job-0").unbound
    built = ground(1).priority_class("high", 90).gang("job", gpu=1, on="node-0")
    result = built.gang("urgent", gpu=1, priority="high").with_actions("preempt").schedule()
    assert not result.eviction("job-0").unbound


def crowded() -> Cluster:
    """Two GPUs; one is held by running low work, and an urgent gang wants both."""
    built = ground(2).priority_class("high", 90).gang("runs", gpu=1, on="node-0")
    return built.gang("urgent", gpu=2, priority="high").with_actions("allocate", "preempt")


def test_pg14_a_nomination_is_dropped_and_no_pod_deleted() -> None:
    """cycle:PG-14, Do better: the victim was only promised a place, and waits again."""
    built = crowded().gang("ends", gpu=1, on="node-0").assume("ends-0", TaskStatus.RELEASING).gang("waits", gpu=1)
    assert built.with_actions("allocate").schedule().pipelined("waits") == 1
    result = built.with_actions("allocate", "preempt").schedule()
    assert result.evicted_pods() == ["runs-0"]
    assert [item.pod for item in result.plan.nominations] == ["urgent-0"]
    left = result.unscheduled("waits")
    assert left is not None
    assert left.pending == 1


def test_pg14_a_bind_of_the_same_cycle_is_withdrawn_and_no_pod_deleted() -> None:
    """cycle:PG-14, Do better; case cycle:T-50: both effects of the cycle are valid."""
    built = crowded().gang("waits", gpu=1)
    assert built.with_actions("allocate").schedule().bound("waits") == 1
    result = built.with_actions("allocate", "preempt").schedule()
    assert result.plan.binds == ()
    assert result.evicted_pods() == ["runs-0"]
    assert result.pipelined("urgent") == 1


def test_pol2_what_the_cycle_started_is_a_victim_only_if_it_is_preemptible() -> None:
    """cycle:POL-2: it was placed a moment ago, and stays."""
    result = crowded().gang("waits", gpu=1, preemptible=False).schedule()
    assert result.bound("waits") == 1
    assert result.evicted_pods() == []


def cornered() -> Cluster:
    """low runs twice on the larger of two nodes, which an urgent gang wants."""
    built = cluster().node(gpus=2).node(gpus=1).queue("q").priority_class("high", 90).priority_class("next", 80)
    built.gang("low", 2, min=1, gpu=1, on="node-0").gang("urgent", gpu=2, priority="high")
    return built.with_actions("preempt")


def test_stm7_a_decision_lists_every_victim_and_every_nomination() -> None:
    """cycle:STM-7, SOL-16, T-20: deletes for victims, moved ones included, and promises for those that come."""
    result = cornered().schedule()
    assert sorted(result.evicted_pods()) == ["low-0", "low-1"]
    assert sorted(result.moved_to(pod) for pod in ("low-0", "low-1")) == ["", "node-1"]
    assert result.node_of("urgent-0") == "node-0"
    assert result.plan.binds == ()
    evictions = [result.eviction(pod) for pod in ("low-0", "low-1")]
    assert {(item.node, item.gang_size, item.preemptor) for item in evictions} == {("node-0", 2, "default/urgent")}


def test_con1_no_pod_is_evicted_twice_in_a_cycle() -> None:
    """cycle:CON-1, POL-2: a victim that is to move keeps the place it was promised."""
    there = {"nodeSelector": {"kubernetes.io/hostname": "node-1"}}
    result = cornered().gang("second", gpu=1, priority="next", spec=there).schedule()
    assert sorted(result.evicted_pods()) == ["low-0", "low-1"]
    assert sorted(result.moved_to(pod) for pod in ("low-0", "low-1")) == ["", "node-1"]
    assert result.pipelined("second") == 0


def test_stm7_a_gang_whose_bind_was_withdrawn_has_not_started() -> None:
    """cycle:STM-7, PG-14: its last start is not now."""
    built = crowded().gang("waits", gpu=1)
    assert built.with_actions("allocate").schedule().plan.started == ("default/waits",)
    result = built.with_actions("allocate", "preempt").schedule()
    assert result.plan.binds == ()
    assert result.plan.started == ()


def test_exp10_a_pod_whose_bind_was_withdrawn_waits() -> None:
    """cycle:EXP-10, PG-14: it exists, it is Pending, and it has a reason."""
    left = crowded().gang("waits", gpu=1).schedule().unscheduled("waits")
    assert left is not None
    assert left.pending == 1


# cycle:PG-7


@pytest.mark.parametrize("phase", ["Running", "Pending", "Succeeded", "Failed"])
def test_pg7_a_gang_with_more_pods_than_its_minimum_is_elastic_whatever_their_state(phase: str) -> None:
    """cycle:PG-7"""
    built = running(1, min=1)
    assert not gang_of(built.cycle()).elastic
    built.pod("job-more", group="job", gpu=1, on="" if phase == "Pending" else "node-0", phase=phase)
    assert gang_of(built.cycle()).elastic


def test_pg7_one_subgroup_with_more_pods_than_its_minimum_is_enough() -> None:
    """cycle:PG-7"""
    assert gang_of(job(leaf("a", 2, running=2), leaf("b", 1, running=2)).cycle()).elastic
    assert not gang_of(job(leaf("a", 2, running=2), leaf("b", 2, running=1)).cycle()).elastic


@pytest.mark.parametrize(("minimum", "evicted"), [(1, ["job-1"]), (2, [])])
def test_pg7_an_elastic_gang_within_its_minimum_runtime_may_shrink(minimum: int, evicted: list[str]) -> None:
    """cycle:PG-7, queues:Q-306."""
    built = cluster(nodes=1, gpus=2).queue("q", preemptMinRuntime="1h").priority_class("high", 90)
    started = {"annotations": {"kai.scheduler/last-start-timestamp": "2025-12-31T23:59:00Z"}}
    built.gang("job", 2, min=minimum, gpu=1, on="node-0", group_spec=started)
    result = built.gang("urgent", gpu=1, priority="high").with_actions("preempt").schedule()
    assert result.evicted_pods() == evicted


def test_con1_what_the_cycle_placed_is_known() -> None:
    """cycle:CON-1: one placed pod is enough, and an eviction is none."""
    cycle = running(2, min=1).pod("job-more", group="job", gpu=1).gang("other", gpu=1, on="node-0").cycle()
    gang, other = gang_of(cycle), cycle.gangs.gang(cycle.context.snapshot.group_entries["default/other"])
    tasks = cycle.context.snapshot.task_records
    cycle.state.evict(gang, gang.leaves[0], tasks["default/job-1"])
    assert not was_placed_in_cycle(cycle.state, gang)
    cycle.state.place(gang, gang.leaves[0], tasks["default/job-more"], 0, (), pipelined=False)
    assert was_placed_in_cycle(cycle.state, gang)
    assert not was_placed_in_cycle(cycle.state, other)


# The table of units


def test_sol7_an_elastic_gang_competes_again_after_each_step() -> None:
    """cycle:SOL-7; 8.3: above its minimum it ranks below the younger gang, at its minimum above it."""
    built = ground().gang("job", 3, min=1, gpu=1, on="node-0").gang("other", gpu=1, on="node-0")
    line = [(unit.gang.group.name, names_of(unit)) for unit in line_of(built.cycle())]
    assert line == [("job", ["2"]), ("job", ["1"]), ("other", ["0"]), ("job", ["0"])]


def test_listing_the_units_changes_no_counter() -> None:
    """cycle:6.3: listing candidates changes nothing."""
    cycle = job(leaf("a", 1, running=3), leaf("b", 2, running=2), needs=1).cycle()
    cycle.tables.victims()
    gang = gang_of(cycle)
    assert [(part.active_allocated, part.active_used) for part in gang.leaves] == [(3, 3), (2, 2)]
    assert gang.satisfied


@pytest.mark.parametrize(
    "more", [{"preemptible": False}, {"queue": "top"}, {"queue": "nowhere"}], ids=["protected", "inner", "unknown"]
)
def test_pol2_only_preemptible_gangs_of_leaf_queues_are_listed(more: dict[str, Any]) -> None:
    """cycle:POL-2, ORD-1"""
    built = cluster(nodes=1, gpus=4).queue("top").queue("leaf", parent="top")
    assert built.gang("job", gpu=1, on="node-0", **more).cycle().tables.victims().units_by_leaf_queue == {}
    assert built.gang("plain", gpu=1, on="node-0", queue="leaf").cycle().tables.victims().units_by_leaf_queue != {}


def test_a_unit_knows_its_nodes_and_what_its_gang_costs() -> None:
    """cycle:SOL-9: nodes ascending; queues:Q-239: the whole gang counts, not the step."""
    built = cluster(nodes=2, gpus=4).queue("q").group("job", minMember=2)
    for name, node in (("a", "node-1"), ("b", "node-0"), ("c", "node-1")):
        built.pod(f"job-{name}", group="job", gpu=1, cpu=2, on=node)
    surplus, rest = line_of(built.cycle())
    assert (surplus.rows, rest.rows) == ((1,), (0, 1))
    assert surplus.gang_amounts == rest.gang_amounts
    assert surplus.gang_amounts == (6000, 3 * 2**30, 300)


def test_what_all_evictions_would_free_is_summed_up_by_node() -> None:
    """cycle:PERF-7: shared GPUs count as whole ones."""
    built = cluster(nodes=2, gpus=4).queue("q").gang("job", 3, min=1, gpu=1, cpu=2, on="node-0")
    built.gang("part", fraction=0.5, cpu=1, on="node-1", device="x")
    built.gang("kept", gpu=1, on="node-1", preemptible=False)
    cycle = built.cycle()
    evictable = cycle.tables.victims().evictable
    index = cycle.context.snapshot.axes.index
    assert evictable[index["nvidia.com/gpu"]].tolist() == [3, 1]
    assert evictable[index["cpu"]].tolist() == [6000, 1000]


def test_a_changed_gang_is_listed_again() -> None:
    """cycle:SOL-7: after an eviction only what is left may go, and its sums follow."""
    cycle = ground().gang("job", 3, min=1, gpu=1, on="node-0").gang("other", gpu=1, on="node-0").cycle()
    table, gang, state = cycle.tables.victims(), gang_of(cycle), cycle.state
    assert len(table.units_by_leaf_queue[gang.queue]) == 4
    assert table.evictable[cycle.context.snapshot.axes.index["nvidia.com/gpu"]].tolist() == [4]
    state.evict(gang, gang.leaves[0], cycle.context.snapshot.task_records["default/job-2"])
    state.commit(0)
    table.refresh(gang)
    line = [(unit.gang.group.name, names_of(unit)) for _, _, unit in reversed(table.units_by_leaf_queue[gang.queue])]
    assert line == [("job", ["1"]), ("other", ["0"]), ("job", ["0"])]
    assert table.evictable[cycle.context.snapshot.axes.index["nvidia.com/gpu"]].tolist() == [3]
    assert cycle.tables.victims() is not table, "the table was made for another state"


def test_a_gang_without_anything_left_leaves_the_table() -> None:
    """cycle:PG-14"""
    cycle = running(1, min=1).cycle()
    table, gang = cycle.tables.victims(), gang_of(cycle)
    assert table.units_by_leaf_queue[gang.queue]
    assert table.evictable.any()
    cycle.state.evict(gang, gang.leaves[0], cycle.context.snapshot.task_records["default/job-0"])
    cycle.state.commit(0)
    table.refresh(gang)
    assert table.units_by_leaf_queue[gang.queue] == []
    assert not table.evictable.any()


# Semi-preemptible gangs


def semi(pods: int, *, min: int) -> Cluster:
    return running(pods, min=min, preemptible=None, group_spec={"preemptibility": "semi-preemptible"})


def test_q418_a_semi_preemptible_gang_gives_its_surplus_and_no_more() -> None:
    """queues:Q-418"""
    assert steps(semi(4, min=2)) == [["3"], ["2"]]


def test_q416_a_semi_preemptible_gang_without_surplus_gives_nothing() -> None:
    """queues:Q-416: minMember of all pods is non-preemptible, minMember 0 is preemptible."""
    assert steps(semi(3, min=3)) == []
    assert steps(semi(3, min=0)) == [["2"], ["1"], ["0"]]


def test_q418_surplus_subgroups_of_a_semi_preemptible_gang_go_whole() -> None:
    """queues:Q-418: minSubGroup 2 over 4 subgroups of minMember 8 are 16 protected pods and 16 elastic ones."""
    parts = [leaf(name, 8, running=8) for name in "abcd"]
    found = steps(job(*parts, needs=2, group_spec={"preemptibility": "semi-preemptible"}))
    assert [sorted({name[0] for name in step}) for step in found] == [["d"], ["c"]]
    assert [len(step) for step in found] == [8, 8]


@pytest.mark.parametrize(("minimum", "placed", "goes"), [(1, (0,), ["0"]), (2, (2, 1), ["1"]), (2, (1, 2), ["2"])])
def test_q418_what_starts_in_this_cycle_does_not_replace_the_core(
    minimum: int, placed: tuple[int, ...], goes: list[str]
) -> None:
    """queues:Q-415, Q-418: the core is what was there when the minimum was reached, whatever comes first in task
    order.  One pod runs: the last, or the first of three."""
    built = ground().group("job", minMember=minimum, preemptibility="semi-preemptible")
    for index in range(3 if minimum == 2 else 2):
        built.pod(f"job-{index}", group="job", gpu=1, on="" if index in placed else "node-0")
    cycle = built.cycle()
    gang = gang_of(cycle)
    for index in placed:
        task = cycle.context.snapshot.task_records[f"default/job-{index}"]
        cycle.state.place(gang, gang.leaves[0], task, 0, (), pipelined=False)
    assert [names_of(unit) for unit in line_of(cycle)] == [goes]
