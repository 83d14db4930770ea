"""The state of a cycle: placing, pipelining, committing, and undo that restores every byte (cycle:11)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.state import State
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.opencycle import Cycle
from pykai.core.queueing.queueledger import QueueLedger
from tests.core.builders import Cluster, cluster

PORT = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}


def content(cycle: Cycle) -> tuple[Any, ...]:
    """Everything a placement changes, in a form that compares byte by byte."""
    state = cycle.state
    counters = [
        (gang.key, leaf.name, leaf.active_allocated, leaf.active_used, leaf.pipelined, leaf.unplaced)
        for gang in cycle.gangs.waiting()
        for leaf in gang.leaves
    ]
    return (
        state.columns.tobytes(),
        {row: dict(devices) for row, devices in state.devices.items()},
        {row: dict(ports) for row, ports in state.ports.items()},
        [list(row) for row in state.ledger.allocated],
        [list(row) for row in state.ledger.allocated_non_preemptible],
        dict(state.placements),
        counters,
    )


def two_gangs(**pod: Any) -> Cluster:
    """Gangs a and b of two pods each on two nodes of four GPUs, a not preemptible."""
    built = cluster(nodes=2, gpus=4).queue("top").queue("q", parent="top")
    return built.gang("a", 2, preemptible=False, **pod).gang("b", 2, **pod)


def gangs_of(cycle: Cycle) -> dict[str, Gang]:
    return {gang.group.name: gang for gang in cycle.gangs.waiting()}


def put(cycle: Cycle, gang: Gang, index: int, row: int, *devices: str, pipelined: bool = False) -> Task:
    leaf = gang.leaves[0]
    task = leaf.tasks[index]
    cycle.state.place(gang, leaf, task, row, devices, pipelined=pipelined)
    return task


def amounts(cycle: Cycle, queue: str) -> tuple[list[float], list[float]]:
    row = cycle.context.snapshot.tree.rows[queue]
    return cycle.state.ledger.allocated[row], cycle.state.ledger.allocated_non_preemptible[row]


def gpu_column(cycle: Cycle, row: int) -> tuple[int, int, int, int]:
    """Idle, releasing, free and used GPUs of a node."""
    axis = cycle.context.snapshot.axes.index["nvidia.com/gpu"]
    state = cycle.state
    idle, releasing, free, used = (
        int(plane[axis, row]) for plane in (state.idle, state.releasing, state.free, state.used)
    )
    return idle, releasing, free, used


# cycle:STM-1, STM-4: placing


def test_stm4_a_placed_task_holds_its_node_its_queue_and_its_gang() -> None:
    cycle = two_gangs(gpu=3).cycle()
    gang = gangs_of(cycle)["a"]
    task = put(cycle, gang, 0, 1)
    assert cycle.state.status_of(task) is TaskStatus.ALLOCATED
    assert gpu_column(cycle, 1) == (1, 0, 1, 3)
    for queue in ("q", "top"):
        assert amounts(cycle, queue)[0][2] == 300
        assert amounts(cycle, queue)[1][2] == 300, "the gang is not preemptible"
    leaf = gang.leaves[0]
    assert (leaf.active_allocated, leaf.active_used, leaf.pipelined, leaf.unplaced) == (1, 1, 0, 1)


def test_stm3_a_pipelined_task_holds_what_is_being_released() -> None:
    cycle = two_gangs(gpu=3).cycle()
    gang = gangs_of(cycle)["b"]
    task = put(cycle, gang, 0, 1, pipelined=True)
    assert cycle.state.status_of(task) is TaskStatus.PIPELINED
    assert gpu_column(cycle, 1) == (4, -3, 1, 3)
    assert amounts(cycle, "q")[0][2] == 300
    assert amounts(cycle, "q")[1][2] == 0, "the gang is preemptible"
    assert (gang.leaves[0].active_allocated, gang.leaves[0].pipelined) == (1, 1)


def test_stm1_a_shared_task_takes_its_part_of_the_device() -> None:
    cycle = two_gangs(fraction=0.5).cycle()
    put(cycle, gangs_of(cycle)["a"], 0, 0, "device")
    assert cycle.state.devices[0]["device"].used_mib == 500
    assert gpu_column(cycle, 0)[:3] == (3, 0, 3)
    put(cycle, gangs_of(cycle)["a"], 1, 0, "device")
    assert cycle.state.devices[0]["device"].used_mib == 1000
    assert gpu_column(cycle, 0)[:3] == (3, 0, 3)


def test_stm1_host_ports_are_held() -> None:
    cycle = two_gangs(spec=PORT).cycle()
    put(cycle, gangs_of(cycle)["a"], 0, 0)
    assert [port.port for port in cycle.state.ports[0]] == [80]


def test_stm1_a_placed_task_is_no_longer_waiting() -> None:
    cycle = two_gangs(gpu=1).cycle()
    gang = gangs_of(cycle)["a"]
    task = put(cycle, gang, 0, 0)
    assert not cycle.state.is_unplaced(task)
    (batch,) = cycle.gangs.next_tasks(gang)
    assert [waiting.name for waiting in batch.tasks] == ["a-1"]


class Listener:
    """Records which tasks were added and removed."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, int]] = []

    def task_added(self, task: Task, row: int) -> None:
        self.heard.append(("added", task.name, row))

    def task_removed(self, task: Task, row: int) -> None:
        self.heard.append(("removed", task.name, row))


def test_stm1_observers_are_notified_of_every_change_undo_included() -> None:
    cycle = two_gangs(gpu=1).cycle()
    listener = Listener()
    cycle.state.observers = (*cycle.state.observers, listener)
    gang = gangs_of(cycle)["a"]
    mark = cycle.state.mark()
    put(cycle, gang, 0, 1)
    put(cycle, gang, 1, 0, pipelined=True)
    cycle.state.rollback(mark)
    assert listener.heard == [("added", "a-0", 1), ("added", "a-1", 0), ("removed", "a-1", 0), ("removed", "a-0", 1)]


# cycle:STM-5: undo


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize(
    ("pod", "devices"),
    [
        ({"gpu": 2}, ()),
        ({"fraction": 0.5}, ("device",)),
        ({"gpu_memory": 333, "devices": 2}, ("one", "two")),
        ({"cpu": "250m", "spec": PORT}, ()),
        ({"extra": {"nvidia.com/mig-1g.5gb": 1}}, ()),
    ],
    ids=["whole", "fraction", "memory", "port", "slice"],
)
def test_stm5_undo_restores_every_byte(pod: dict[str, Any], devices: tuple[str, ...], pipelined: bool) -> None:
    cycle = two_gangs(**pod).cycle()
    before = content(cycle)
    gangs = gangs_of(cycle)
    mark = cycle.state.mark()
    for gang in gangs.values():
        for index in range(2):
            put(cycle, gang, index, index, *devices, pipelined=pipelined)
    assert content(cycle) != before
    cycle.state.rollback(mark)
    assert content(cycle) == before


def test_stm5_a_rollback_goes_back_to_its_mark_and_no_further() -> None:
    cycle = two_gangs(gpu=2).cycle()
    gangs = gangs_of(cycle)
    put(cycle, gangs["a"], 0, 0)
    between = content(cycle)
    mark = cycle.state.mark()
    put(cycle, gangs["a"], 1, 0)
    put(cycle, gangs["b"], 0, 1)
    cycle.state.rollback(mark)
    assert content(cycle) == between
    cycle.state.rollback(0)
    assert cycle.state.placements == {}


def test_stm5_marks_nest() -> None:
    cycle = two_gangs(gpu=1).cycle()
    state, gang = cycle.state, gangs_of(cycle)["a"]
    outer, before = state.mark(), content(cycle)
    put(cycle, gang, 0, 0)
    inner, between = state.mark(), content(cycle)
    put(cycle, gang, 1, 0)
    state.rollback(inner)
    assert content(cycle) == between
    put(cycle, gang, 1, 1)
    state.rollback(outer)
    assert content(cycle) == before


def test_stm5_a_second_attempt_is_undone_like_the_first() -> None:
    cycle = two_gangs(fraction=0.3).cycle()
    gang, before = gangs_of(cycle)["a"], content(cycle)
    after = None
    for _ in range(3):
        put(cycle, gang, 0, 0, "device")
        assert after is None or content(cycle) == after
        after = content(cycle)
        cycle.state.rollback(0)
        assert content(cycle) == before


def test_stm5_undone_tasks_wait_again() -> None:
    cycle = two_gangs(gpu=1).cycle()
    gang = gangs_of(cycle)["a"]
    task = put(cycle, gang, 0, 0)
    (batch,) = cycle.gangs.next_tasks(gang)
    assert [waiting.name for waiting in batch.tasks] == ["a-1"]
    cycle.state.rollback(0)
    assert cycle.state.is_unplaced(task)
    (batch,) = cycle.gangs.next_tasks(gang)
    assert [waiting.name for waiting in batch.tasks] == ["a-0", "a-1"]


def test_stm5_after_undo_of_a_part_the_earliest_waiting_task_is_next() -> None:
    cycle = cluster(nodes=1, gpus=4).queue("q").gang("a", 3, gpu=1).cycle()
    gang = gangs_of(cycle)["a"]
    put(cycle, gang, 0, 0)
    mark = cycle.state.mark()
    put(cycle, gang, 1, 0)
    (batch,) = cycle.gangs.next_tasks(gang)
    assert [waiting.name for waiting in batch.tasks] == ["a-2"]
    cycle.state.rollback(mark)
    (batch,) = cycle.gangs.next_tasks(gang)
    assert [waiting.name for waiting in batch.tasks] == ["a-1", "a-2"]


def test_stm5_queue_figures_are_put_back_as_they_were_not_subtracted() -> None:
    """0.3 + 0.1 - 0.1 is not 0.3."""
    tree = cluster().queue("top").queue("q", parent="top").tables().snapshot(0).tree
    start = [[0.3, 0.3, 0.3] for _ in tree.names]
    books = QueueLedger(tree, [0.0] * 3, [list(row) for row in start], [list(row) for row in start], start, start)
    chain = tree.chains[tree.rows["q"]]
    for committed in (True, False):
        saved = books.add(chain, (0.1, 0.1, 0.1), committed)
        assert books.allocated != start
        assert (books.allocated_non_preemptible != start) is committed
        books.restore(chain, saved, committed)
        assert books.allocated == start
        assert books.allocated_non_preemptible == start


def test_versions_name_contents() -> None:
    cycle = two_gangs(gpu=1).cycle()
    state, gang = cycle.state, gangs_of(cycle)["a"]
    first = state.version
    put(cycle, gang, 0, 0)
    second = state.version
    put(cycle, gang, 1, 0)
    third = state.version
    assert len({first, second, third}) == 3
    state.rollback(1)
    assert state.version == second
    put(cycle, gang, 1, 1)
    assert state.version not in {first, second, third}, "another content, although as many entries as before"
    state.rollback(0)
    assert state.version == first


def test_touched_rows_name_every_change_undo_included() -> None:
    cycle = two_gangs(gpu=1).cycle()
    state, gang = cycle.state, gangs_of(cycle)["a"]
    mark = state.mark()
    put(cycle, gang, 0, 1)
    put(cycle, gang, 1, 0)
    assert state.changed_rows == [1, 0]
    state.convert_to_pipelined(gang, mark)
    assert sorted(state.changed_rows[2:]) == [0, 1]
    seen = len(state.changed_rows)
    state.rollback(mark)
    assert set(state.changed_rows[seen:]) == {0, 1}


# cycle:STM-6: converting


def test_stm6_allocations_become_pipelined_on_the_same_nodes() -> None:
    cycle = two_gangs(gpu=2).cycle()
    gang = gangs_of(cycle)["a"]
    tasks = [put(cycle, gang, 0, 0), put(cycle, gang, 1, 1)]
    books = amounts(cycle, "q")
    cycle.state.convert_to_pipelined(gang, 0)
    assert [cycle.state.status_of(task) for task in tasks] == [TaskStatus.PIPELINED] * 2
    assert [cycle.state.placements[task.key].row for task in tasks] == [0, 1]
    assert [gpu_column(cycle, row) for row in (0, 1)] == [(4, -2, 2, 2)] * 2
    assert gang.leaves[0].pipelined == 2
    assert amounts(cycle, "q") == books, "a pipelined task counts like an allocated one"


def test_stm6_shared_devices_follow() -> None:
    cycle = two_gangs(fraction=0.5).cycle()
    gang = gangs_of(cycle)["a"]
    task = put(cycle, gang, 0, 0, "device")
    cycle.state.convert_to_pipelined(gang, 0)
    use = cycle.state.devices[0]["device"]
    assert (use.live, use.pipelined, use.used_mib, use.allocated_mib) == (0, 1, 500, 0)
    assert gpu_column(cycle, 0)[:3] == (4, -1, 3)
    assert cycle.state.placements[task.key].gpu_groups == ("device",)


def test_stm6_other_gangs_and_what_came_before_the_mark_stay() -> None:
    cycle = two_gangs(gpu=1).cycle()
    gangs = gangs_of(cycle)
    earlier = put(cycle, gangs["a"], 0, 0)
    mark = cycle.state.mark()
    other = put(cycle, gangs["b"], 0, 0)
    promised = put(cycle, gangs["a"], 1, 0)
    cycle.state.convert_to_pipelined(gangs["a"], mark)
    assert cycle.state.status_of(earlier) is TaskStatus.ALLOCATED
    assert cycle.state.status_of(other) is TaskStatus.ALLOCATED
    assert cycle.state.status_of(promised) is TaskStatus.PIPELINED


def test_stm6_a_pipelined_task_is_not_converted_again() -> None:
    cycle = two_gangs(gpu=1).cycle()
    gang = gangs_of(cycle)["a"]
    put(cycle, gang, 0, 0, pipelined=True)
    put(cycle, gang, 1, 0)
    cycle.state.convert_to_pipelined(gang, 0)
    cycle.state.convert_to_pipelined(gang, 0)
    assert gang.leaves[0].pipelined == 2
    assert gpu_column(cycle, 0) == (4, -2, 2, 2)


@pytest.mark.parametrize(("pod", "devices"), [({"gpu": 2}, ()), ({"fraction": 0.5}, ("device",))], ids=str)
def test_stm6_a_conversion_is_undone_too(pod: dict[str, Any], devices: tuple[str, ...]) -> None:
    cycle = two_gangs(**pod).cycle()
    gang, before = gangs_of(cycle)["a"], content(cycle)
    put(cycle, gang, 0, 0, *devices)
    put(cycle, gang, 1, 0, *devices)
    placed, mark = content(cycle), cycle.state.mark()
    cycle.state.convert_to_pipelined(gang, 0)
    cycle.state.rollback(mark)
    assert content(cycle) == placed
    cycle.state.convert_to_pipelined(gang, 0)
    cycle.state.rollback(0)
    assert content(cycle) == before


# cycle:STM-7, STM-8: committing


def test_stm7_a_commit_reports_placements_in_order() -> None:
    cycle = two_gangs(gpu=1).cycle()
    gangs = gangs_of(cycle)
    put(cycle, gangs["a"], 0, 0)
    mark = cycle.state.mark()
    put(cycle, gangs["b"], 1, 1)
    put(cycle, gangs["b"], 0, 0, pipelined=True)
    done = cycle.state.commit(mark)
    assert [(task.name, placed.status, placed.row) for _, task, placed in done.placed] == [
        ("b-1", TaskStatus.BINDING, 1),
        ("b-0", TaskStatus.PIPELINED, 0),
    ]


def test_stm8_bound_tasks_are_binding_from_then_on() -> None:
    cycle = two_gangs(gpu=1).cycle()
    gang = gangs_of(cycle)["a"]
    bound, promised = put(cycle, gang, 0, 0), put(cycle, gang, 1, 0, pipelined=True)
    columns = cycle.state.columns.tobytes()
    cycle.state.commit(0)
    assert cycle.state.status_of(bound) is TaskStatus.BINDING
    assert cycle.state.status_of(promised) is TaskStatus.PIPELINED
    assert cycle.state.columns.tobytes() == columns


def test_stm7_a_converted_task_is_committed_as_pipelined() -> None:
    cycle = two_gangs(gpu=1).cycle()
    gang = gangs_of(cycle)["a"]
    put(cycle, gang, 0, 0)
    put(cycle, gang, 1, 1)
    cycle.state.convert_to_pipelined(gang, 0)
    assert [(task.name, placed.status) for _, task, placed in cycle.state.commit(0).placed] == [
        ("a-0", TaskStatus.PIPELINED),
        ("a-1", TaskStatus.PIPELINED),
    ]


def test_a_cycle_changes_its_own_copy_of_the_cluster() -> None:
    built = two_gangs(fraction=0.5)
    tables = built.tables()
    before = tables.snapshot(0)
    cycle = built.cycle()
    state = State(tables.snapshot(0), cycle.state.ledger)
    gang = gangs_of(cycle)["a"]
    leaf = gang.leaves[0]
    state.place(gang, leaf, leaf.tasks[0], 0, ("device",), pipelined=False)
    assert state.devices
    after = tables.snapshot(0)
    assert after.columns.tobytes() == before.columns.tobytes()
    assert after.devices == before.devices == {}
