"""Lines of waiting gangs in trials: who is passed together, and who speaks for a queue (cycle:ORD-2, PERF-5)."""

from __future__ import annotations

from pykai.core.eviction.waitinglines import TrialLine, WaitingLine
from pykai.core.opencycle import Cycle
from tests.core.builders import cluster
from tests.core.eviction.searching import gang_of

ONE, TWO = (0.0, 0.0, 100.0), (0.0, 0.0, 200.0)


def waiting(*gpus: int) -> Cycle:
    """Jobs a, b, c, ... that want so many GPUs each and nothing else, the oldest first."""
    built = cluster(nodes=1, gpus=8).queue("q")
    for name, count in zip("abcdef", gpus, strict=False):
        built.gang(name, gpu=count, cpu=0, memory=0)
    return built.cycle()


def test_jobs_with_equal_requests_are_passed_in_one_step() -> None:
    (line,) = waiting(1, 1, 2, 2, 1).tables.waiting_lines().lines.values()
    assert [line.next_request_change(position) for position in range(5)] == [2, 2, 4, 4, 5]


def test_the_steps_follow_when_jobs_come_and_go() -> None:
    gang = gang_of(waiting(1), "a")
    line = WaitingLine()
    for key, request in (((1,), ONE), ((2,), ONE), ((4,), TWO)):
        line.insert(key, gang, request)
    assert line.next_request_change(0) == 2
    line.insert((3,), gang, TWO)
    assert line.requests == [ONE, ONE, TWO, TWO]
    line.insert((0,), gang, TWO)
    assert [line.next_request_change(position) for position in range(5)] == [1, 3, 3, 5, 5]
    line.remove((0,))
    assert [line.next_request_change(position) for position in range(4)] == [2, 2, 4, 4]


def test_equal_jobs_are_not_passed_beyond_one_that_takes_part() -> None:
    """The job behind it still speaks for its queue once it was served."""
    cycle = waiting(1, 1, 1)
    (line,) = cycle.tables.waiting_lines().lines.values()
    taking_part = gang_of(cycle, "b")
    trial = TrialLine(cycle.gangs, line, {taking_part.key: taking_part}, {taking_part.key: TWO})
    assert trial.head_request() == ONE
    assert trial.pop() is None
    assert trial.head_request() == TWO
    assert trial.pop() is taking_part
    assert trial.head_request() == ONE
    assert trial.pop() is None
    assert trial.head_request() is None


def test_ord1_jobs_of_queues_with_children_stand_in_no_line() -> None:
    """cycle:ORD-1"""
    built = cluster(nodes=1, gpus=8).queue("top").queue("leaf", parent="top")
    cycle = built.gang("lost", gpu=1, queue="top").gang("found", gpu=1, queue="leaf").cycle()
    assert list(cycle.tables.waiting_lines().lines) == [cycle.context.snapshot.tree.rows["leaf"]]


def test_lines_are_in_the_present_order() -> None:
    """cycle:8.3: an elastic job that has its minimum ranks behind the others."""
    cycle = cluster(nodes=1, gpus=8).queue("q").gang("elastic", 2, min=1, gpu=1).gang("other", gpu=1).cycle()
    assert [gang.group.name for gang in cycle.gangs.waiting()] == ["elastic", "other"]
    gang = gang_of(cycle, "elastic")
    cycle.state.place(gang, gang.leaves[0], gang.leaves[0].tasks[0], 0, (), pipelined=False)
    (line,) = cycle.tables.waiting_lines().lines.values()
    assert [gang.group.name for gang in line.gangs] == ["other", "elastic"]
