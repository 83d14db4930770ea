"""Undoing, converting and committing evictions in the state of a cycle (cycle:STM-5 to STM-7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pykai.core.cycle.validate import check_state
from pykai.core.model.status import TaskStatus
from pykai.core.opencycle import Cycle
from tests.core.builders import cluster
from tests.core.cycle.evictions import KINDS, PORT, content, counters, evict, find, gangs_of, keep, put, two_nodes

# cycle:STM-5: undo


@KINDS
def test_stm5_every_operation_is_undone_exactly(pod: dict[str, Any], device: str | tuple[str, ...]) -> None:
    """cycle:STM-5, 23: from the tail, mark by mark, to every mark there was."""
    cycle = two_nodes(device, **pod).cycle()
    state = cycle.state
    devices = (device,) if isinstance(device, str) else device
    operations: list[Callable[[], object]] = [
        lambda: evict(cycle, "a-0"),
        lambda: evict(cycle, "a-1"),
        lambda: keep(cycle, "a-0"),
        lambda: evict(cycle, "a-0"),
        lambda: put(cycle, "a-0", 1, *devices),
        lambda: put(cycle, "b-0", 0, *devices),
        lambda: evict(cycle, "b-0"),
        lambda: put(cycle, "b-0", 1, *devices, pipelined=False),
        lambda: evict(cycle, "b-0"),
        lambda: put(cycle, "b-1", 1, *devices),
    ]
    marks = []
    for operation in operations:
        marks.append((state.mark(), state.version, content(cycle)))
        operation()
    for mark, version, before in reversed(marks):
        state.rollback(mark)
        assert content(cycle) == before
        assert state.version == version


def test_stm5_a_rollback_between_evict_and_pipeline_leaves_the_eviction() -> None:
    """Part 23, statement tests."""
    cycle = two_nodes(gpu=2).cycle()
    task = evict(cycle, "a-0")
    mark, between = cycle.state.mark(), content(cycle)
    put(cycle, "b-0", 0)
    cycle.state.rollback(mark)
    assert content(cycle) == between
    assert cycle.state.status_of(task) is TaskStatus.RELEASING
    assert cycle.state.status_of(find(cycle, "b-0")[2]) is TaskStatus.PENDING


def test_stm5_undoing_a_keep_evicts_again() -> None:
    """cycle:STM-5: undo of an undo redoes."""
    cycle = two_nodes(gpu=1).cycle()
    task = evict(cycle, "a-0")
    mark, evicted = cycle.state.mark(), content(cycle)
    keep(cycle, "a-0")
    cycle.state.rollback(mark)
    assert content(cycle) == evicted
    assert cycle.state.is_unplaced(task)
    keep(cycle, "a-0")
    assert cycle.state.status_of(task) is TaskStatus.RUNNING


def test_stm5_undone_evictions_name_their_rows() -> None:
    """Caches by row read `touched`: every change is there, undo included."""
    cycle = two_nodes(gpu=1).cycle()
    state = cycle.state
    evict(cycle, "a-0")
    keep(cycle, "a-0")
    put(cycle, "b-0", 1)
    evict(cycle, "b-0")
    assert state.changed_rows == [0, 0, 1, 1]
    state.rollback(0)
    assert state.changed_rows[4:] == [1, 1, 0, 0]


# cycle:STM-6: converting


def test_stm6_what_was_evicted_again_is_not_converted() -> None:
    """cycle:STM-6: only allocated tasks become pipelined."""
    cycle = two_nodes(gpu=1).cycle()
    stays, leaves = put(cycle, "b-0", 1, pipelined=False), put(cycle, "b-1", 1, pipelined=False)
    evict(cycle, "b-1")
    cycle.state.convert_to_pipelined(gangs_of(cycle)["b"], 0)
    assert cycle.state.status_of(stays) is TaskStatus.PIPELINED
    assert cycle.state.status_of(leaves) is TaskStatus.RELEASING
    assert counters(cycle, "b-0")[2] == 1


# cycle:STM-7: committing


def test_stm7_a_commit_reports_evictions_and_placements() -> None:
    """cycle:STM-7: in the order they were first touched, each once."""
    cycle = two_nodes(gpu=1).gang("c", 2, gpu=1, on="node-1").cycle()
    for pod in ("c-1", "a-0", "a-1", "c-0"):
        evict(cycle, pod)
    keep(cycle, "a-1")
    put(cycle, "a-0", 1)
    put(cycle, "b-0", 0)
    outcome = cycle.state.commit(0)
    assert [(task.name, placed.row) for _, task, placed in outcome.evicted] == [("c-1", 1), ("a-0", 0), ("c-0", 1)]
    assert [(task.name, placed.row) for _, task, placed in outcome.placed] == [("a-0", 1), ("b-0", 0)]
    assert {key: gang.group.name for key, gang in outcome.gangs_by_task.items()} == {
        "default/c-1": "c",
        "default/a-0": "a",
        "default/c-0": "c",
        "default/b-0": "b",
    }
    check_state(cycle.state, cycle.gangs)


def test_stm7_a_commit_reads_the_journal_from_its_mark_only() -> None:
    """cycle:STM-7"""
    cycle = two_nodes(gpu=1).cycle()
    evict(cycle, "a-0")
    assert len(cycle.state.commit(0).evicted) == 1
    mark = cycle.state.mark()
    evict(cycle, "a-1")
    put(cycle, "b-0", 0)
    outcome = cycle.state.commit(mark)
    assert [task.name for _, task, _ in outcome.evicted] == ["a-1"]
    assert [task.name for _, task, _ in outcome.placed] == ["b-0"]


def test_stm7_a_commit_reports_the_final_state_since_its_mark() -> None:
    """cycle:STM-7: only valid operations count."""
    cycle = two_nodes(gpu=1).cycle()
    put(cycle, "b-0", 1)
    evict(cycle, "b-0")
    outcome = cycle.state.commit(0)
    assert (outcome.placed, outcome.evicted) == ([], [])
    put(cycle, "b-0", 1, pipelined=False)
    cycle.state.commit(0)
    mark = cycle.state.mark()
    evict(cycle, "b-0")
    keep(cycle, "b-0")
    assert cycle.state.commit(mark).gangs_by_task == {}, "a bind of this cycle that was kept stays as it is"


def test_stm7_a_committed_eviction_is_final() -> None:
    """cycle:STM-7: no later trial may keep it or count on it."""
    cycle = two_nodes(gpu=1).pod("a-2", group="a", gpu=1).cycle()
    task = evict(cycle, "a-0")
    cycle.state.commit(0)
    gang, part, _ = find(cycle, "a-0")
    assert not cycle.state.is_unplaced(task)
    assert (gang.unplaced, part.unplaced, part.evicted) == (1, 1, [])
    assert part.alive == 2, "the pod terminates"
    (batch,) = cycle.gangs.next_tasks(gang)
    assert [found.name for found in batch.tasks] == ["a-2"]
    check_state(cycle.state, cycle.gangs)


def test_stm7_a_moved_task_is_not_unplaced_either() -> None:
    """cycle:STM-7"""
    cycle = two_nodes(gpu=1).cycle()
    evict(cycle, "a-0")
    put(cycle, "a-0", 1)
    cycle.state.commit(0)
    gang, part, _ = find(cycle, "a-0")
    assert (gang.unplaced, part.unplaced, part.evicted, part.alive) == (0, 0, [], 2)
    check_state(cycle.state, cycle.gangs)


# Any sequence

STEP = st.tuples(st.integers(0, 7), st.integers(0, 3))
PODS = [*(f"a-{index}" for index in range(3)), *(f"b-{index}" for index in range(3)), "s-0", "s-1"]


def crowd(kind: str) -> Cycle:
    """Running, waiting and half protected gangs of one kind of pod on two nodes that could hold them twice."""
    pods: dict[str, dict[str, Any]] = {
        "whole": {"gpu": 1},
        "shared": {"fraction": 0.2},
        "port": {"gpu": 1, "spec": PORT},
    }
    pod = pods[kind]
    device: Any = "x" if kind == "shared" else ()
    built = cluster(nodes=2, gpus=40).queue("top").queue("q", parent="top")
    built.gang("a", 3, min=1, on="node-0", device=device, **pod).gang("b", 3, min=1, preemptible=False, **pod)
    semi = {"preemptibility": "semi-preemptible"}
    built.gang("s", 2, min=1, on="node-1", device=device, preemptible=None, group_spec=semi, **pod)
    return built.cycle()


def step(cycle: Cycle, kind: str, choice: tuple[int, int]) -> None:
    """Apply a possible operation to one of the pods."""
    state = cycle.state
    task = find(cycle, PODS[choice[0]])[2]
    row, pipelined = choice[1] % 2, choice[1] >= 2
    devices = (f"y{row}",) if kind == "shared" else ()
    status = state.status_of(task)
    if status is TaskStatus.PENDING:
        put(cycle, task.name, row, *devices, pipelined=pipelined)
    elif status is TaskStatus.RELEASING:
        if not state.is_unplaced(task):
            return
        if state.evicted_from[task.key].row == row:
            keep(cycle, task.name)
        else:
            put(cycle, task.name, row, *devices)
    elif task.key not in state.evicted_from or task.key in state.decided_evictions:
        evict(cycle, task.name)


@given(
    kind=st.sampled_from(["whole", "shared", "port"]),
    first=st.lists(STEP, max_size=12),
    tried=st.lists(STEP, min_size=1, max_size=12),
    second=st.lists(STEP, max_size=12),
)
def test_stm5_any_trial_is_undone_and_any_commit_adds_up(
    kind: str, first: list[tuple[int, int]], tried: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    """cycle:STM-5, STM-7: a rollback restores every byte, and after a commit all sums are those of the tasks."""
    cycle = crowd(kind)
    state = cycle.state
    for choice in first:
        step(cycle, kind, choice)
    state.commit(0)
    check_state(cycle.state, cycle.gangs)
    mark, version, before = state.mark(), state.version, content(cycle)
    for choice in tried:
        step(cycle, kind, choice)
    state.rollback(mark)
    assert content(cycle) == before
    assert state.version == version
    for choice in second:
        step(cycle, kind, choice)
    state.commit(mark)
    check_state(cycle.state, cycle.gangs)
