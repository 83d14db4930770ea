"""What victims lose in a trial, and what they get back (cycle:13.5)."""

from __future__ import annotations

import pytest

from pykai.core.cycle.cyclegangs import total_amounts
from pykai.core.eviction.trial import Preemptor, Victim, losses_of
from tests.core.builders import cluster
from tests.core.eviction.searching import gang_of, new, searching


def test_losses_are_in_task_order_without_what_is_kept() -> None:
    """cycle:RCL-3, PG-14: the first tasks are the minimum; a promise that is withdrawn is a loss too."""
    cycle = cluster(nodes=1, gpus=8).queue("q").gang("old", 3, min=1, gpu=1, on="node-0").gang("late", gpu=1).cycle()
    state = cycle.state
    late = gang_of(cycle, "late")
    state.place(late, late.leaves[0], late.leaves[0].tasks[0], 0, (), pipelined=True)
    members = {
        member.task.name: Victim(unit.gang, member)
        for line in cycle.tables.victims().units_by_leaf_queue.values()
        for _, _, unit in line
        for member in unit.members
    }
    victims = [members[name] for name in ("old-2", "old-1", "old-0", "late-0")]
    for gang, member in victims:
        state.evict(gang, member.leaf, member.task)
    kept = members["old-1"]
    state.cancel_eviction(kept.gang, kept.member.leaf, kept.member.task)
    found = [[(loss.task.name, loss.moves) for loss in losses] for _, losses in losses_of(state, victims)]
    assert found == [[("old-0", False), ("old-2", False)], [("late-0", False)]]


def test_sol14_pods_that_waited_before_get_nothing_in_a_trial() -> None:
    """cycle:SOL-14: a victim that moves gets what it had, though there is room for one more."""
    built = searching(1, 2).gang("old", gpu=1, on="node-0").pod("old-1", group="old", gpu=1)
    result = new(built, spec={"nodeSelector": {"kubernetes.io/hostname": "node-0"}}).schedule()
    assert result.moved_to("old-0") == "node-1"
    assert sorted(item.pod for item in result.plan.nominations) == ["new-0", "old-0"]


@pytest.mark.parametrize(("priority", "goes_first"), [(200, True), (1, False)])
def test_sol12_a_set_in_which_only_one_moves_is_seen_as_the_next_cycle_will(priority: int, goes_first: bool) -> None:
    """cycle:SOL-12, SOL-17: the one that moves would come back to the smallest node, if its queue is served first."""
    built = cluster().with_actions("reclaim").node("small", gpus=1).node("full", gpus=2).node("large", gpus=2)
    built.queue("good", quota=1, priority=priority).queue("mine", quota=3, priority=100)
    built.queue("over", quota=0, weight=0)
    built.gang("moves", queue="good", gpu=1, on="small").gang("loses", queue="over", gpu=2, on="full")
    built.group("new", queue="mine", minMember=2)
    for index, (node, gpu) in enumerate((("full", 2), ("small", 1))):
        built.pod(f"new-{index}", group="new", gpu=gpu, spec={"nodeSelector": {"kubernetes.io/hostname": node}})
    result = built.schedule()
    assert sorted(result.evicted_pods()) == ["loses-0", "moves-0"]
    assert bool(result.plan.served_first) == goes_first


def test_what_the_quota_refuses_is_not_tried() -> None:
    """queues:Q-205: gangs that are served before the preemptor leave its queue even less, so none is."""
    built = cluster(nodes=2, gpus=1).queue("limited", limit=1).queue("other")
    built.gang("holds", queue="limited", gpu=1, on="node-0").gang("victim", queue="other", gpu=1, on="node-1")
    cycle = built.gang("waits", queue="limited", gpu=1).cycle()
    waits, victim = gang_of(cycle, "waits"), gang_of(cycle, "victim")
    batches = cycle.gangs.next_tasks(waits)
    required = total_amounts(cycle.context.snapshot.vectors, batches, cycle.context.smallest_gpu_mib)
    preemptor = Preemptor(waits, batches, required, None, cycle.tables.waiting_lines())
    units = cycle.tables.victims().units_by_leaf_queue[victim.queue]
    members = [Victim(unit.gang, member) for _, _, unit in units for member in unit.members]
    tried_before = cycle.state.work
    assert not cycle.victims.trials.run(preemptor, members)
    assert cycle.state.work - tried_before == len(members) == 1
