"""Gangs: when one is satisfied or ready, which tasks are placed next, and in which order subgroups come.

cycle:6.1, PG-5, PG-6, 6.2, PG-9 to PG-11, 8.4, and the cases cycle:T-1, T-2, T-4, T-5, T-9 to T-15 and T-49.
Pods of a subgroup are called <group>-<leaf>-<number>, the running ones first.
"""

from collections import Counter

import pytest

from pykai.core.model.status import TaskStatus
from pykai.core.report.decisions import NotReady
from tests.core.builders import Cluster, Result, SubgroupSpec, branch, cluster, leaf


def one_node(gpus: int = 100) -> Cluster:
    return cluster(nodes=1, gpus=gpus).queue("q")


def job(*parts: SubgroupSpec, needs: int | None = None, gpus: int = 100) -> Cluster:
    """One node and one group called job; every pod requests a GPU."""
    return one_node(gpus).tree("job", *parts, needs=needs, gpu=1)


def chosen(built: Cluster, group: str = "job") -> list[str]:
    """The pods a group would place in its first turn, without the name of the group."""
    cycle = built.cycle()
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries[f"default/{group}"])
    return [task.name.removeprefix(f"{group}-") for batch in cycle.gangs.next_tasks(gang) for task in batch.tasks]


def started(result: Result, group: str = "job") -> dict[str, int]:
    """Leaf -> how many of its pods were bound."""
    return dict(Counter(pod.removeprefix(f"{group}-").rpartition("-")[0] for pod in result.bound_pods(group)))


# Plain groups


def test_an_elastic_group_gets_all_its_pods_when_they_fit() -> None:
    """Case cycle:T-1."""
    assert one_node(2).gang("job", pods=2, min=1, gpu=1).schedule().bound("job") == 2


def test_an_elastic_group_gets_the_first_pod_by_order_when_one_fits() -> None:
    """Case cycle:T-2."""
    result = one_node(1).gang("job", pods=2, min=1, gpu=1).schedule()
    assert result.bound_pods("job") == ["job-0"]


def test_two_elastic_groups_grow_in_turn() -> None:
    """Case cycle:T-4; cycle:PG-10, POL-3."""
    result = one_node(5).gang("a", pods=3, min=1, gpu=1, age=9).gang("b", pods=3, min=1, gpu=1, age=9).schedule()
    assert [bind.pod for bind in result.plan.binds] == ["a-0", "b-0", "a-1", "b-1", "a-2"]


def test_a_gang_that_does_not_fit_as_a_whole_gets_nothing() -> None:
    """Case cycle:T-5."""
    built = cluster(nodes=1, gpus=2).queue("q", quota=2)
    assert built.gang("job", pods=2, gpu=2).schedule().plan.binds == ()


def test_a_non_preemptible_gang_beyond_the_quota_gets_nothing() -> None:
    """Case cycle:T-5: the quota alone would stop it too."""
    built = cluster(nodes=1, gpus=2).queue("q", quota=2)
    assert built.gang("job", pods=2, gpu=2, preemptible=False).schedule().plan.binds == ()


def test_the_minimum_is_attempted_at_once_and_nothing_beyond_it() -> None:
    """cycle:6.2 pick: the missing minimum."""
    assert chosen(one_node().gang("job", pods=5, min=3, gpu=1)) == ["0", "1", "2"]


def test_only_what_is_missing_to_the_minimum_is_attempted() -> None:
    """cycle:6.2 pick: minAvailable - activeAllocated."""
    built = one_node().gang("job", pods=1, min=3, on="node-0", gpu=1)
    for index in range(1, 5):
        built.pod(f"job-{index}", group="job", gpu=1)
    assert chosen(built) == ["1", "2"]


def test_beyond_the_minimum_one_pod_is_attempted() -> None:
    """cycle:PG-10"""
    built = one_node().gang("job", pods=1, min=1, on="node-0", gpu=1)
    built.pod("job-1", group="job", gpu=1).pod("job-2", group="job", gpu=1)
    assert chosen(built) == ["1"]


def test_a_group_without_minimum_starts_with_one_pod() -> None:
    """cycle:PG-2, PG-10"""
    assert chosen(one_node().gang("job", pods=3, min=0, gpu=1)) == ["0"]


def test_growth_goes_on_until_nothing_is_pending() -> None:
    """cycle:PG-9: the next tasks are chosen again after every placement."""
    result = one_node().gang("job", pods=4, min=2, gpu=1).schedule()
    assert result.bound_pods("job") == ["job-0", "job-1", "job-2", "job-3"]
    assert result.unscheduled("job") is None


def test_growth_of_a_running_group_is_not_a_new_start() -> None:
    """Case cycle:T-9: the last-start timestamp stays."""
    built = one_node().gang("job", pods=1, min=1, on="node-0", gpu=1).pod("job-1", group="job", gpu=1)
    result = built.gang("fresh", gpu=1).schedule()
    assert result.bound_pods("job") == ["job-1"]
    assert result.plan.started == ("default/fresh",)


def test_a_group_that_grows_in_its_first_cycle_starts_once() -> None:
    """Case cycle:T-9"""
    assert one_node().gang("job", pods=3, min=1, gpu=1).schedule().plan.started == ("default/job",)


def test_the_choice_is_kept_until_a_task_changes() -> None:
    """cycle:PG-9"""
    cycle = job(leaf("a", 1, pending=2), leaf("b", 1, pending=1)).cycle()
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries["default/job"])
    batches = cycle.gangs.next_tasks(gang)
    assert cycle.gangs.next_tasks(gang) is batches
    for batch in batches:
        for task in batch.tasks:
            cycle.state.place(gang, batch.leaf, task, 0, (), pipelined=False)
    assert [task.name for batch in cycle.gangs.next_tasks(gang) for task in batch.tasks] == ["job-a-1"]


def test_the_choice_is_repeated_when_a_placement_is_undone() -> None:
    """cycle:PG-9"""
    cycle = job(leaf("a", 1, pending=2)).cycle()
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries["default/job"])
    (batch,) = cycle.gangs.next_tasks(gang)
    mark = cycle.state.mark()
    cycle.state.place(gang, batch.leaf, batch.tasks[0], 0, (), pipelined=False)
    assert [task.name for batch in cycle.gangs.next_tasks(gang) for task in batch.tasks] == ["job-a-1"]
    cycle.state.rollback(mark)
    assert [task.name for batch in cycle.gangs.next_tasks(gang) for task in batch.tasks] == ["job-a-0"]


# Satisfied (cycle:PG-5)


@pytest.mark.parametrize(
    "status", [TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND, TaskStatus.RUNNING, TaskStatus.PIPELINED]
)
def test_a_task_that_holds_or_will_hold_its_node_counts_toward_the_minimum(status: TaskStatus) -> None:
    """cycle:PG-5: activeAllocated."""
    built = job(leaf("a", 2, running=1, pending=2)).assume("job-a-0", status)
    assert chosen(built) == ["a-1"]


@pytest.mark.parametrize(
    "status", [TaskStatus.RELEASING, TaskStatus.STUCK_IN_RELEASING, TaskStatus.SUCCEEDED, TaskStatus.FAILED]
)
def test_a_terminating_task_does_not_count_toward_the_minimum(status: TaskStatus) -> None:
    """cycle:PG-5"""
    built = job(leaf("a", 2, running=1, pending=2)).assume("job-a-0", status)
    assert chosen(built) == ["a-1", "a-2"]


def test_a_leaf_whose_pod_terminates_is_missing_in_its_group() -> None:
    """cycle:PG-5: the group starts both or neither."""
    built = job(leaf("a", 1, running=1, pending=1), leaf("b", 1, pending=1)).assume("job-a-0", TaskStatus.RELEASING)
    assert chosen(built) == ["a-1", "b-0"]


def test_a_minimum_reached_exactly_is_satisfied() -> None:
    """cycle:PG-5; case T-10: b's two pods start, a's extra pod waits for the next turn."""
    built = job(leaf("a", 2, running=2, pending=1), leaf("b", 2, pending=2), gpus=4)
    assert chosen(built) == ["b-0", "b-1"]
    assert started(built.schedule()) == {"b": 2}


def test_without_min_sub_group_every_child_is_needed() -> None:
    """cycle:PG-5; case T-11: 3 + 2 GPUs are more than 4."""
    built = one_node(4).tree("job", leaf("sub0", 1, pending=2, gpu=3), leaf("sub1", 2, pending=2, gpu=1))
    assert chosen(built) == ["sub0-0", "sub1-0", "sub1-1"]
    assert built.schedule().plan.binds == ()


def test_a_nested_group_starts_as_a_whole() -> None:
    """Case cycle:T-12; cycle:PG-3."""
    parts = (branch("ab", leaf("a", 2, pending=2), leaf("b", 2, pending=2)), leaf("c", 1, pending=1, gpu=4))
    assert started(one_node(8).tree("job", *parts, gpu=1).schedule()) == {"a": 2, "b": 2, "c": 1}
    assert started(one_node(7).tree("job", *parts, gpu=1).schedule()) == {}


def test_a_branch_is_satisfied_by_its_min_sub_group() -> None:
    """cycle:PG-5: ab has one of the one it needs, so only c is missing."""
    parts = (branch("ab", leaf("a", 1, running=1), leaf("b", 1, pending=1), needs=1), leaf("c", 1, pending=1))
    assert chosen(job(*parts)) == ["c-0"]


def test_a_branch_without_min_sub_group_is_not_satisfied_by_some_of_its_children() -> None:
    """cycle:PG-5"""
    parts = (branch("ab", leaf("a", 1, running=1), leaf("b", 1, pending=1)), leaf("c", 1, pending=1))
    assert chosen(job(*parts)) == ["b-0", "c-0"]


def test_the_minimum_of_a_branch_counts_children_and_not_pods() -> None:
    """cycle:PG-5: three running pods of one child are one child."""
    parts = (branch("ab", leaf("a", 1, running=3), leaf("b", 1, pending=1), needs=2),)
    assert chosen(job(*parts, leaf("c", 1, pending=1))) == ["b-0", "c-0"]


def test_a_min_sub_group_of_zero_is_always_satisfied() -> None:
    """cycle:PG-5; case T-15: one child a turn, whole."""
    built = job(leaf("a", 2, pending=2), leaf("b", 1, pending=1), needs=0, gpus=8)
    assert chosen(built) == ["a-0", "a-1"]
    assert built.schedule().bound_pods("job") == ["job-a-0", "job-a-1", "job-b-0"]


def test_a_satisfied_tree_without_pending_pods_places_nothing() -> None:
    """Case cycle:T-15"""
    assert chosen(job(leaf("a", 1, running=1), leaf("b", 1, running=1), needs=0)) == []


# Ready (cycle:PG-6)


def test_a_gang_waits_until_enough_pods_exist() -> None:
    """cycle:PG-6"""
    result = one_node().gang("job", pods=1, min=2, gpu=1).schedule()
    assert result.plan.binds == ()
    record = result.unscheduled("job")
    assert record is not None
    assert record.refusals == (NotReady("default", 2, 1, 0),)


def test_gated_pods_exist_but_do_not_make_a_gang_ready() -> None:
    """cycle:PG-6, POL-6"""
    result = job(leaf("a", 2, pending=1, gated=1)).schedule()
    assert result.plan.binds == ()
    assert "Waiting for 2 pods for SubGroup a, currently 2 exist, 1 are gated." in result.why("job")


def test_gated_pods_beyond_the_minimum_do_not_hold_a_gang_back() -> None:
    """cycle:PG-6, POL-6"""
    assert started(job(leaf("a", 2, pending=2, gated=1)).schedule()) == {"a": 2}


def test_running_pods_make_a_gang_ready_again() -> None:
    """cycle:PG-6: one of two went away and came back."""
    assert started(job(leaf("a", 2, running=1, pending=1)).schedule()) == {"a": 1}


def test_ended_pods_do_not_make_a_gang_ready() -> None:
    """cycle:PG-6: alive."""
    built = job(leaf("a", 2, running=1, pending=1)).assume("job-a-0", TaskStatus.FAILED)
    assert built.schedule().plan.binds == ()


def test_pods_of_another_scheduler_do_not_make_a_gang_ready() -> None:
    """cycle:PG-6; SNP-13, Do better: this scheduler never starts them."""
    built = one_node().group("job", minMember=2).pod("job-0", group="job").pod("job-1", group="job", scheduler="other")
    assert built.schedule().plan.binds == ()


def test_every_leaf_must_be_ready_without_min_sub_group() -> None:
    """cycle:PG-6"""
    result = job(leaf("a", 1, pending=1), leaf("b", 2, pending=1)).schedule()
    assert result.plan.binds == ()
    record = result.unscheduled("job")
    assert record is not None
    assert record.refusals == (NotReady("b", 2, 1, 0),)


def test_a_branch_is_ready_with_as_many_ready_children_as_it_needs() -> None:
    """cycle:PG-6: the child with too few pods is skipped, since part of a minimum must not start."""
    built = job(leaf("a", 2, pending=1), leaf("b", 2, pending=2), needs=1)
    assert started(built.schedule()) == {"b": 2}


def test_a_nested_branch_that_is_not_ready_holds_its_group_back() -> None:
    """cycle:PG-6"""
    parts = (branch("ab", leaf("a", 2, pending=1), leaf("b", 1, pending=1)), leaf("c", 1, pending=1))
    result = job(*parts).schedule()
    assert result.plan.binds == ()
    record = result.unscheduled("job")
    assert record is not None
    assert record.refusals == (NotReady("a", 2, 1, 0),)


def test_a_subgroup_that_cannot_reach_its_minimum_gets_nothing_beyond_that_of_the_group_either() -> None:
    """cycle:24, hard rules: never part of a minimum."""
    assert started(job(leaf("a", 1, running=1), leaf("b", 2, pending=1), needs=1).schedule()) == {}


# Turns (cycle:PG-10, PG-11)


def test_with_fewer_needed_than_there_are_the_first_by_order_start_and_the_others_wait() -> None:
    """cycle:PG-11; case T-13."""
    parts = (
        branch("a", leaf("a0", 1, pending=1), leaf("a1", 1, pending=1)),
        branch("b", leaf("b0", 1, pending=1), leaf("b1", 1, pending=1)),
    )
    built = job(*parts, needs=1, gpus=2)
    assert chosen(built) == ["a0-0", "a1-0"]
    assert started(built.schedule()) == {"a0": 1, "a1": 1}


def test_the_needed_children_are_chosen_by_order_even_when_another_would_fit() -> None:
    """cycle:PG-11"""
    built = one_node(2).tree("job", leaf("a", 1, pending=1, gpu=4), leaf("b", 1, pending=1, gpu=1), needs=1)
    assert built.schedule().plan.binds == ()


def test_children_beyond_the_needed_follow_one_a_turn() -> None:
    """cycle:PG-10, PG-11: the second child does not hold the first back."""
    built = job(leaf("a", 1, pending=1), leaf("b", 2, pending=2), needs=1, gpus=2)
    assert started(built.schedule()) == {"a": 1}
    assert started(job(leaf("a", 1, pending=1), leaf("b", 2, pending=2), needs=1, gpus=3).schedule()) == {
        "a": 1,
        "b": 2,
    }


def test_an_unsatisfied_child_of_a_satisfied_group_starts() -> None:
    """Case cycle:T-14"""
    parts = (branch("a", leaf("a0", 1, running=1)), branch("b", leaf("b0", 1, pending=1)))
    assert started(job(*parts, needs=1).schedule()) == {"b0": 1}


def test_a_whole_subgroup_is_one_turn() -> None:
    """cycle:PG-10: after b another queue has its turn, and then c follows."""
    built = cluster(nodes=1, gpus=100).queue("q", quota=10).queue("r", quota=10)
    built.tree("job", leaf("a", 1, running=1), leaf("b", 2, pending=2), leaf("c", 2, pending=2), needs=1, gpu=1)
    built.gang("x", pods=2, queue="r", gpu=1).gang("y", pods=2, queue="r", gpu=1)
    pods = [bind.pod for bind in built.schedule().plan.binds]
    assert pods == ["x-0", "x-1", "job-b-0", "job-b-1", "y-0", "y-1", "job-c-0", "job-c-1"]


def test_a_subgroup_beyond_the_needed_starts_whole_or_not_at_all() -> None:
    """cycle:PG-10, POL-5"""
    assert started(job(leaf("a", 1, running=1), leaf("b", 2, pending=2), needs=1, gpus=2).schedule()) == {}


def test_extra_pods_come_one_leaf_and_one_pod_at_a_time() -> None:
    """cycle:PG-10"""
    assert chosen(job(leaf("a", 1, running=1, pending=2), leaf("b", 1, running=1, pending=2))) == ["a-1"]


def test_a_child_that_has_nothing_to_offer_is_skipped() -> None:
    """cycle:6.2: the first non-empty result."""
    assert chosen(job(leaf("a", 1, running=1), leaf("b", 1, running=1, pending=2))) == ["b-1"]
    nested = branch("ab", leaf("a", 1, running=1), leaf("b", 1, running=1))
    assert chosen(job(nested, leaf("c", 1, running=1, pending=1))) == ["c-1"]


def test_while_the_group_is_below_its_minimum_satisfied_children_get_nothing() -> None:
    """cycle:6.2: satisfied -> nothing."""
    parts = (leaf("a", 1, running=1, pending=2), branch("b", leaf("b0", 1, running=1, pending=2)))
    assert chosen(job(*parts, leaf("c", 1, pending=1))) == ["c-0"]


def test_leaves_are_placed_one_after_the_other() -> None:
    """cycle:ALC-2: children in subgroup order, tasks of a leaf together."""
    result = job(leaf("b", 2, pending=2), leaf("a", 2, pending=2)).schedule()
    assert result.bound_pods("job") == ["job-a-0", "job-a-1", "job-b-0", "job-b-1"]


# The order of subgroups (cycle:8.4); `needs=0` lets the order alone decide


def test_below_its_threshold_beats_satisfied() -> None:
    """cycle:8.4"""
    assert chosen(job(leaf("a", 1, running=1, pending=1), leaf("b", 1, pending=1), needs=0)) == ["b-0"]


def test_two_below_their_thresholds_are_equal_however_far_below() -> None:
    """cycle:8.4: the name decides, not the ratio."""
    assert chosen(job(leaf("b", 3, pending=3), leaf("a", 3, running=2, pending=1), needs=0)) == ["a-2"]
    assert chosen(job(leaf("a", 3, pending=3), leaf("b", 3, running=2, pending=1), needs=0)) == ["a-0", "a-1", "a-2"]


def test_a_threshold_beats_none() -> None:
    """cycle:8.4: even with three times its minimum running."""
    assert chosen(job(leaf("a", 0, pending=1), leaf("b", 1, running=3, pending=1), needs=0)) == ["b-3"]


def test_of_two_without_threshold_the_one_with_fewer_comes_first() -> None:
    """cycle:8.4"""
    assert chosen(job(leaf("a", 0, running=2, pending=1), leaf("b", 0, running=1, pending=1), needs=0)) == ["b-1"]


def test_of_two_satisfied_the_lower_ratio_comes_first() -> None:
    """cycle:8.4: 6 of 4 is less than 2 of 1."""
    assert chosen(job(leaf("a", 1, running=2, pending=1), leaf("b", 4, running=6, pending=1), needs=0)) == ["b-6"]


def test_equal_ratios_are_settled_by_name() -> None:
    """cycle:8.4: 4 of 2 is as much as 2 of 1."""
    assert chosen(job(leaf("b", 1, running=2, pending=1), leaf("a", 2, running=4, pending=1), needs=0)) == ["a-4"]


def test_only_pods_that_hold_a_node_count_in_the_order() -> None:
    """cycle:8.4: activeAllocated."""
    built = job(leaf("a", 0, running=2, pending=1), leaf("b", 0, running=3, pending=1), needs=0)
    assert chosen(built) == ["a-2"]
    built.assume("job-b-0", TaskStatus.RELEASING).assume("job-b-1", TaskStatus.RELEASING)
    assert chosen(built) == ["b-3"]


def test_a_branch_counts_its_satisfied_children() -> None:
    """cycle:8.4; case T-49: 2 of 2 before 2 of 1, and again for the next pod, since pods do not change that count."""
    full = branch("b", leaf("b0", 1, running=1, pending=2), leaf("b1", 1, running=1, pending=1), needs=2)
    over = branch("a", leaf("a0", 1, running=1, pending=1), leaf("a1", 1, running=1, pending=1), needs=1)
    pods = [pod.removeprefix("job-") for pod in job(over, full, needs=1).schedule().bound_pods("job")]
    assert pods == ["b0-1", "b1-1", "b0-2", "a0-1", "a1-1"]


def test_children_that_are_not_satisfied_do_not_count() -> None:
    """cycle:8.4: 1 of 1 before 3 of 2, though the first has two children."""
    few = branch("b", leaf("b0", 1, running=1, pending=1), leaf("b1", 1), needs=1)
    many = branch("a", *(leaf(f"a{number}", 1, running=1, pending=1) for number in range(3)), needs=2)
    assert chosen(job(many, few, needs=1)) == ["b0-1"]


def test_without_the_plugin_only_the_name_orders_subgroups() -> None:
    """cycle:8.4: the fallback."""
    built = job(leaf("a", 1, running=1, pending=1), leaf("b", 1, pending=1), needs=0)
    built.configured({"tiers": [{"plugins": [{"name": "predicates"}, {"name": "proportion"}]}]})
    assert chosen(built) == ["a-1"]


def test_a_group_with_nothing_to_place_does_not_use_up_the_queue_depth() -> None:
    """cycle:ORD-1, ORD-5"""
    built = cluster(nodes=1, gpus=8).queue("q").with_policy(queue_depth={"allocate": 1}).priority_class("high", 80)
    built.tree("out", leaf("a", 1, running=1), gpu=1, group_spec={"priorityClassName": "high"})
    built.pod("lost", group="out", subgroup="x", gpu=1)
    assert built.gang("job", gpu=1).schedule().order() == ["job"]


def test_the_reason_names_missing_subgroups() -> None:
    """cycle:PG-6"""
    result = cluster(nodes=1, gpus=8).queue("q").tree("job", leaf("a", 1, pending=1), needs=2, gpu=1).schedule()
    assert result.bound("job") == 0
    assert "the group needs 2 subgroups and has only 1" in result.why("job")


def test_the_reason_of_an_incomplete_surplus_subgroup_names_what_is_missing() -> None:
    """cycle:PG-6"""
    built = cluster(nodes=1, gpus=8).queue("q")
    built.tree("job", leaf("a", 1, running=1), leaf("b", 3, pending=1), needs=1, gpu=1)
    assert "Waiting for 3 pods for SubGroup b, currently 1 exist" in built.schedule().why("job")


@pytest.mark.parametrize("late", [False, True])
def test_strays_are_not_demand(late: bool) -> None:
    """cycle:PG-4: also when the group is known only after its pods."""
    built = cluster(nodes=1, gpus=8).queue("q", quota=0).tree("job", leaf("a", 1, running=1), gpu=1)
    built.pod("lost", group="job", subgroup="x", gpu=4)
    if late:
        built.objects.sort(key=lambda raw: raw["kind"] == "PodGroup")
    assert built.schedule().plan.queues[0].request[2] == 1
