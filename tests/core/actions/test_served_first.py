"""A fair move is kept: the next cycle serves those it concerns before all others (cycle:SOL-17)."""

from __future__ import annotations

import msgspec
import pytest

from pykai.core.cycle.journal import Placement
from pykai.core.model.status import TaskStatus
from pykai.core.report.evictions import MOVED_BACK
from pykai.core.schedule import run_actions
from pykai.dev.cases import Case, Cycles
from pykai.dev.conformance import CaseRun
from tests.core.builders import Cluster, Result, cluster, timestamp_before


def returning(*, priority: int = 200, owed: bool = True, weight: float = 0, action: str = "reclaim") -> Cluster:
    """`new` may take two GPUs from a queue above its share, and needs a node whose pod would come back to it."""
    built = cluster().with_actions("allocate", action)
    built.node("small", gpus=1).node("full", gpus=2).node("large", gpus=2)
    built.queue("good", quota=1, priority=priority).queue("mine", quota=3 if owed else 0, priority=100)
    built.queue("over", quota=0, weight=weight)
    built.gang("moves", queue="good", gpu=1, on="small").gang("loses", queue="over", gpu=2, on="full")
    built.group("new", queue="mine", minMember=2)
    for index, (node, gpu) in enumerate((("full", 2), ("small", 1))):
        built.pod(f"new-{index}", group="new", gpu=gpu, spec={"nodeSelector": {"kubernetes.io/hostname": node}})
    return built


def first(result: Result) -> tuple[str, ...]:
    return result.plan.served_first or ()


def test_sol17_those_who_move_go_first_where_they_would_come_back() -> None:
    """cycle:SOL-17: the queue of the one that moves is served first, so only an order keeps it away."""
    result = returning().schedule()
    assert sorted(result.evicted_pods()) == ["loses-0", "moves-0"]
    assert first(result) == ("default/new", "default/moves")


def test_sol17_a_quota_is_owed_to_those_who_reclaim_it() -> None:
    """cycle:SOL-17; queues:Q-270: the other queue is within its fair share, and above its quota."""
    result = returning(weight=1).node("more", gpus=2, cpu=0).schedule()
    assert {each.name: each.fair_share[2] for each in result.plan.queues}["over"] == 2
    assert sorted(result.evicted_pods()) == ["loses-0", "moves-0"]
    assert first(result) == ("default/new", "default/moves")


def test_sol17_no_gang_goes_first_where_the_fair_order_keeps_the_move() -> None:
    """cycle:SOL-17: what the next cycle does anyway needs no order."""
    result = returning(priority=1).schedule()
    assert sorted(result.evicted_pods()) == ["loses-0", "moves-0"]
    assert result.plan.served_first is msgspec.UNSET


def test_sol17_the_move_lasts() -> None:
    """cycle:SOL-17: two cycles later all are where they were meant to be, and nothing is evicted any more."""
    built = returning()
    run = CaseRun(
        Case(id="x", now=timestamp_before(0), objects=built.objects, expect={}, cycles=Cycles()), validate=True
    )
    assert sorted(run.step().decisions.evictions) == ["default/loses-0", "default/moves-0"]
    for _ in range(3):
        cycle = run.step()
        assert not cycle.decisions.evictions
        assert not cycle.decisions.served_first
    nodes = {key: task.node for key, task in cycle.context.snapshot.task_records.items()}
    assert nodes == {
        "default/new-0": "full",
        "default/new-1": "small",
        "default/moves-0": "large",
        "default/loses-0": "",
    }


def consolidating(*, over: bool, quota: float = 2, weight: float = 0) -> Cluster:
    """`new` needs the small node; the pod there goes first, and comes back to it."""
    built = cluster().with_actions("allocate", "consolidation").node("small", gpus=1).node("large", gpus=4)
    built.queue("good", quota=1, priority=200).queue("mine", quota=quota, weight=0)
    built.queue("over", quota=0, weight=weight)
    built.gang("moves", queue="good", gpu=1, on="small")
    if over:
        built.gang("more", queue="over", gpu=1, on="large")
    return built.gang("new", queue="mine", gpu=1, spec={"nodeSelector": {"kubernetes.io/hostname": "small"}})


def test_sol17_a_consolidation_is_kept_for_a_queue_that_could_reclaim() -> None:
    """cycle:SOL-17: no gang loses anything, and it would be owed a GPU of the queue that is above its share."""
    result = consolidating(over=True).schedule()
    assert result.evicted_pods() == ["moves-0"]
    assert first(result) == ("default/new", "default/moves")


@pytest.mark.parametrize(("over", "quota", "weight"), [(False, 2, 0), (True, 0, 0), (True, 2, 1)])
def test_sol17_no_other_gang_goes_first(over: bool, quota: float, weight: float) -> None:
    """cycle:SOL-17: no queue is above its share, or the own one would be, or the other is above its quota alone."""
    result = consolidating(over=over, quota=quota, weight=weight).schedule()
    assert result.evicted_pods() == []
    record = result.unscheduled("new")
    assert record is not None
    assert [verdict.other for verdict in record.verdicts] == [MOVED_BACK]


@pytest.mark.parametrize(("gpus", "evicted"), [(2, []), (1, ["moves-0"])])
def test_sol17_the_one_that_moves_must_fit_behind_the_preemptor(gpus: int, evicted: list[str]) -> None:
    """cycle:SOL-17: served first, the second pod of the preemptor takes the fuller node, where alone the other fits."""
    built = cluster().with_actions("allocate", "consolidation").queue("good", quota=1, priority=200)
    built.node("small", gpus=1).node("large", gpus=4).node("other", gpus=2, cpu=1)
    built.queue("mine", quota=3, weight=0).queue("over", quota=0, weight=0)
    built.gang("moves", queue="good", gpu=1, cpu=4, on="small").gang("more", queue="over", gpu=gpus, on="large")
    built.group("new", queue="mine", minMember=2).pod("new-1", group="new", gpu=2)
    built.pod("new-0", group="new", gpu=1, spec={"nodeSelector": {"kubernetes.io/hostname": "small"}})
    assert built.schedule().evicted_pods() == evicted


@pytest.mark.parametrize("ports", [[], [{"hostPort": 80}]])
def test_sol17_no_gang_goes_first_while_others_wait_for_room_in_the_same_cycle(ports: list[dict[str, int]]) -> None:
    """cycle:SOL-17: what was decided for them before could be taken from them."""
    built = consolidating(over=True).node("leaving", gpus=1)
    built.gang("ends", queue="good", gpu=1, on="leaving", deleted=5)
    container = {"name": "main", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}
    here = {"nodeSelector": {"kubernetes.io/hostname": "leaving"}, "containers": [{**container, "ports": ports}]}
    result = built.gang("waits", queue="over", spec=here).schedule()
    assert result.pipelined("waits") == 1
    assert result.evicted_pods() == []


# The cycle that serves them


def two_for_one() -> Cluster:
    return cluster(nodes=1, gpus=1).with_actions("allocate").queue("q")


def test_sol17_groups_are_served_in_the_order_that_is_asked_for() -> None:
    built = two_for_one().gang("old", gpu=1, age=50).gang("second", gpu=1, age=20).gang("first", gpu=1, age=10)
    assert built.schedule().bound_pods("old") == ["old-0"]
    result = built.with_policy(served_first=("default/first", "default/second")).schedule()
    assert result.bound_pods("first") == ["first-0"]
    assert first(result) == ()


def test_sol17_one_step_each() -> None:
    """cycle:SOL-17: an elastic gang gets as many pods as moved, and competes for more."""
    built = cluster(nodes=1, gpus=3).with_actions("allocate").queue("q")
    built.gang("elastic", 3, min=1, gpu=1, age=10).gang("old", gpu=1, age=50)
    once = built.with_policy(served_first=("default/elastic",)).schedule()
    assert (once.bound("elastic"), once.bound("old")) == (2, 1)
    often = built.with_policy(served_first=("default/elastic",) * 3).schedule()
    assert (often.bound("elastic"), often.bound("old")) == (3, 0)


def test_sol17_limits_hold_and_the_reason_is_given_once() -> None:
    built = cluster(nodes=1, gpus=2).with_actions("allocate").queue("q", limit=1).gang("new", gpu=2)
    result = built.with_policy(served_first=("default/new", "default/gone")).schedule()
    record = result.unscheduled("new")
    assert record is not None
    assert len(record.refusals) == 1
    assert first(result) == ()


def test_sol17_a_gang_that_waits_for_pods_that_leave_stays_first() -> None:
    """cycle:SOL-17: the preemptor waits for the room of pods that leave, and the one that moves is leaving itself."""
    built = two_for_one().gang("moves", gpu=1, on="node-0", deleted=5).gang("old", gpu=1, age=50)
    built.gang("new", gpu=1, age=10)
    result = built.with_policy(served_first=("default/new", "default/moves")).schedule()
    assert (result.pipelined("new"), result.pipelined("old")) == (1, 0)
    assert first(result) == ("default/new", "default/moves")


def test_sol17_a_group_that_may_not_be_placed_is_passed_over() -> None:
    built = two_for_one().gang("lost", gpu=1, queue="nowhere").gang("new", gpu=1)
    result = built.with_policy(served_first=("default/lost",)).schedule()
    assert result.bound_pods("new") == ["new-0"]
    assert first(result) == ()


def test_sol17_the_look_ahead_leaves_nothing_behind() -> None:
    """cycle:SOL-17, STM-5: only what the plan says is evicted."""
    cycle = returning().cycle()
    run_actions(cycle)
    assert set(cycle.state.evicted_from) == {"default/loses-0", "default/moves-0"}
    placed: dict[str, Placement] = cycle.state.placements
    assert {key for key, each in placed.items() if each.status is TaskStatus.PIPELINED} == {
        "default/new-0",
        "default/new-1",
        "default/moves-0",
    }
