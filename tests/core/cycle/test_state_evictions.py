"""Evictions in the state of a cycle: evicting, keeping, moving, dropping a nomination (cycle:11).

Gang a runs on node-0 and is not preemptible; gang b waits.  A trial evicts, places and rolls back; only what is
committed becomes a decision.
"""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.cycle.journal import Placement
from pykai.core.cycle.validate import check_state
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from tests.core.builders import cluster
from tests.core.cycle.evictions import (
    KINDS,
    PORT,
    content,
    counters,
    evict,
    find,
    gangs_of,
    gpus,
    held,
    keep,
    put,
    two_nodes,
)

# cycle:STM-2: evicting


def test_stm2_an_evicted_task_gives_its_node_back_when_it_is_gone() -> None:
    """cycle:STM-2: Releasing; the node has it until then."""
    cycle = two_nodes(gpu=1).cycle()
    task = evict(cycle, "a-0")
    assert cycle.state.status_of(task) is TaskStatus.RELEASING
    assert cycle.state.evicted_from[task.key] == Placement(TaskStatus.RELEASING, 0, ())
    assert gpus(cycle, 0) == (2, 1, 3, 2)


def test_stm2_an_evicted_task_no_longer_counts_for_its_queues() -> None:
    """cycle:STM-2, queues:Q-108: on every level, and for non-preemptible work."""
    cycle = two_nodes(gpu=1).gang("c", gpu=1, on="node-1").cycle()
    assert [held(cycle, queue) for queue in ("q", "top")] == [(300, 200)] * 2
    evict(cycle, "a-0")
    assert [held(cycle, queue) for queue in ("q", "top")] == [(200, 100)] * 2
    evict(cycle, "c-0")
    assert [held(cycle, queue) for queue in ("q", "top")] == [(100, 100)] * 2, "c is preemptible"


def test_stm2_an_evicted_task_holds_its_node_but_not_for_good() -> None:
    """cycle:STM-2, 1.1: activeUsed, no longer activeAllocated."""
    cycle = two_nodes(gpu=1).cycle()
    evict(cycle, "a-0")
    assert counters(cycle, "a-0") == (1, 2, 0, 1)
    assert find(cycle, "a-0")[0].unplaced == 1


def test_stm2_a_task_evicted_by_a_trial_may_be_placed_again() -> None:
    """cycle:SOL-13: it counts as placeable, and goes before waiting tasks."""
    cycle = two_nodes(gpu=1).pod("a-2", group="a", gpu=1).cycle()
    gang = find(cycle, "a-0")[0]
    task = evict(cycle, "a-1")
    assert cycle.state.is_unplaced(task)
    (batch,) = cycle.gangs.next_tasks(gang)
    assert [found.name for found in batch.tasks] == ["a-1"]
    evict(cycle, "a-0")
    (batch,) = cycle.gangs.next_tasks(gang)
    assert [found.name for found in batch.tasks] == ["a-0", "a-1"]


def test_stm2_a_tenant_of_a_shared_gpu_releases_its_part() -> None:
    """cycle:STM-2, gpu:4: the device itself is released with its last tenant."""
    cycle = two_nodes("x", fraction=0.5).cycle()
    evict(cycle, "a-0")
    use = cycle.state.devices[0]["x"]
    assert (use.live, use.releasing, use.used_mib, use.releasing_mib) == (1, 1, 1000, 500)
    assert gpus(cycle, 0)[:3] == (3, 0, 3)
    evict(cycle, "a-1")
    assert gpus(cycle, 0)[:3] == (3, 1, 4)


def test_stm2_what_a_task_costs_its_queue_is_what_it_cost_on_its_node() -> None:
    """cycle:STM-2, gpu:C-8: a gpu-memory request is converted by its own node."""
    built = cluster().node(gpus=2, gpu_memory=1000).node(gpus=2, gpu_memory=4000).queue("q")
    built.gang("a", gpu_memory=500, on="node-1", device="x").gang("b", gpu_memory=500, on="node-0", device="y")
    cycle = built.cycle()
    assert held(cycle, "q")[0] == 63
    evict(cycle, "a-0")
    assert held(cycle, "q")[0] == 50


def test_stm2_host_ports_of_a_terminating_task_are_released() -> None:
    """cycle:STM-2, FLT-2: the port can be pipelined, but no pod can start on it yet."""
    cycle = two_nodes(spec=PORT).cycle()
    evict(cycle, "a-0")
    assert [(port.port, holders) for port, holders in cycle.state.ports[0].items()] == [(80, 1)]
    evict(cycle, "a-1")
    assert cycle.state.ports == {}
    assert [(port.port, holders) for port, holders in cycle.state.terminating_ports[0].items()] == [(80, 2)]
    assert cycle.placer.try_place_tasks(gangs_of(cycle)["b"], cycle.gangs.next_tasks(gangs_of(cycle)["b"]))


@pytest.mark.parametrize("pod", ["b-0", "a-0"], ids=["waits", "leaves"])
def test_stm2_only_a_task_that_has_a_node_can_be_evicted(pod: str) -> None:
    """cycle:PG-14"""
    cycle = two_nodes(gpu=1).assume("a-0", TaskStatus.RELEASING).cycle()
    with pytest.raises((AssertionError, KeyError)):
        evict(cycle, pod)


class Listener:
    """Records which tasks were added and removed."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, int]] = []

    def task_added(self, task: Task, row: int) -> None:
        self.heard.append(("added", task.name, row))

    def task_removed(self, task: Task, row: int) -> None:
        self.heard.append(("removed", task.name, row))


def test_stm1_observers_are_notified_of_evictions_and_their_undo() -> None:
    """cycle:STM-1: every operation fires its events."""
    cycle = two_nodes(gpu=1).cycle()
    listener = Listener()
    cycle.state.observers = (*cycle.state.observers, listener)

    def heard() -> list[tuple[str, str, int]]:
        found, listener.heard = listener.heard, []
        return found

    evict(cycle, "a-0")
    assert heard() == [("removed", "a-0", 0)]
    keep(cycle, "a-0")
    assert heard() == [("added", "a-0", 0)]
    put(cycle, "b-0", 1)
    evict(cycle, "b-0")
    assert heard() == [("added", "b-0", 1), ("removed", "b-0", 1)]
    cycle.state.rollback(0)
    assert heard() == [("added", "b-0", 1), ("removed", "b-0", 1), ("removed", "a-0", 0), ("added", "a-0", 0)]


# cycle:STM-3: keeping and moving


@KINDS
def test_stm3_a_kept_task_is_unchanged(pod: dict[str, Any], device: str | tuple[str, ...]) -> None:
    """cycle:STM-3, 23: evict and un-evict restore every vector, map and figure."""
    cycle = two_nodes(device, **pod).cycle()
    before = content(cycle)
    evict(cycle, "a-0")
    evict(cycle, "a-1")
    assert content(cycle) != before
    keep(cycle, "a-0")
    keep(cycle, "a-1")
    assert content(cycle) == before


def test_stm3_keeping_undoes_only_the_task_that_is_kept() -> None:
    """cycle:STM-3"""
    cycle = two_nodes(gpu=1).cycle()
    kept, gone = evict(cycle, "a-0"), evict(cycle, "a-1")
    keep(cycle, "a-0")
    assert cycle.state.status_of(kept) is TaskStatus.RUNNING
    assert cycle.state.status_of(gone) is TaskStatus.RELEASING
    assert list(cycle.state.evicted_from) == [gone.key]
    assert held(cycle, "q") == (100, 100)
    assert counters(cycle, "a-0") == (1, 2, 0, 1)


def test_stm3_pipelining_an_evicted_task_onto_its_own_node_keeps_it() -> None:
    """cycle:STM-3, 23: the pod keeps running, although another node would do as well."""
    cycle = two_nodes(gpu=1).cycle()
    before = content(cycle)
    evict(cycle, "a-0")
    evict(cycle, "a-1")
    gang = gangs_of(cycle)["a"]
    assert cycle.placer.try_place_tasks(gang, cycle.gangs.next_tasks(gang))
    assert content(cycle) == before
    outcome = cycle.state.commit(0)
    assert (outcome.gangs_by_task, outcome.placed, outcome.evicted) == ({}, [], [])


@pytest.mark.parametrize("home", ["node-0", "node-1", "node-2"])
def test_stm3_no_task_is_moved_to_a_node_that_is_not_better(home: str) -> None:
    """cycle:STM-3, SCO-5: whichever of equal nodes is the first."""
    cycle = cluster(nodes=3, gpus=4).queue("q").gang("a", gpu=1, on=home).cycle()
    task = evict(cycle, "a-0")
    gang = gangs_of(cycle)["a"]
    assert cycle.placer.try_place_tasks(gang, cycle.gangs.next_tasks(gang))
    assert cycle.state.status_of(task) is TaskStatus.RUNNING


@pytest.mark.parametrize("leave", [("a-1",), ("a-0", "a-1")], ids=["shared", "emptied"])
def test_stm3_a_tenant_that_gets_its_own_device_again_is_kept(leave: tuple[str, ...]) -> None:
    """cycle:STM-3: whether or not its neighbour holds the device meanwhile."""
    cycle = two_nodes("x", fraction=0.5).cycle()
    before = content(cycle)
    for pod in leave:
        evict(cycle, pod)
    gang = gangs_of(cycle)["a"]
    assert cycle.placer.try_place_tasks(gang, cycle.gangs.next_tasks(gang))
    assert content(cycle) == before


def test_stm3_a_tenant_that_gets_another_device_of_its_node_moves() -> None:
    """cycle:STM-3: changed GPU groups are a move, not an un-evict."""
    built = cluster(nodes=1, gpus=2).queue("q").gang("a", fraction=0.4, on="node-0", device="x")
    cycle = built.gang("b", fraction=0.6, on="node-0", device="y").cycle()
    task = evict(cycle, "a-0")
    gang = gangs_of(cycle)["a"]
    assert cycle.placer.try_place_tasks(gang, cycle.gangs.next_tasks(gang))
    assert cycle.state.placements[task.key] == Placement(TaskStatus.PIPELINED, 0, ("y",))
    assert cycle.state.evicted_from[task.key].gpu_groups == ("x",)
    outcome = cycle.state.commit(0)
    assert [found.name for _, found, _ in outcome.evicted] == ["a-0"]
    check_state(cycle.state, cycle.gangs)


def test_stm3_a_moved_task_holds_two_nodes_and_counts_once() -> None:
    """cycle:STM-3: Pipelined on the new node, Releasing on the old."""
    cycle = two_nodes(gpu=1).cycle()
    evict(cycle, "a-0")
    task = put(cycle, "a-0", 1)
    assert cycle.state.status_of(task) is TaskStatus.PIPELINED
    assert cycle.state.placements[task.key].row == 1
    assert cycle.state.evicted_from[task.key].row == 0
    assert gpus(cycle, 0) == (2, 1, 3, 2)
    assert gpus(cycle, 1) == (4, -1, 3, 1)
    assert held(cycle, "q") == (200, 200)
    assert counters(cycle, "a-0") == (2, 2, 1, 0)


def test_stm3_a_moved_task_holds_its_port_where_it_goes() -> None:
    """cycle:STM-3"""
    cycle = two_nodes(spec=PORT).cycle()
    evict(cycle, "a-0")
    put(cycle, "a-0", 1)
    assert {row: list(ports.values()) for row, ports in cycle.state.ports.items()} == {0: [1], 1: [1]}
    assert {row: list(ports.values()) for row, ports in cycle.state.terminating_ports.items()} == {0: [1]}


# cycle:PG-14: dropping a nomination


@KINDS
def test_pg14_a_task_that_loses_its_nomination_waits_as_before(
    pod: dict[str, Any], device: str | tuple[str, ...]
) -> None:
    """cycle:PG-14, 23: pipeline and un-pipeline restore everything."""
    cycle = two_nodes(device, **pod).cycle()
    devices = (device,) if isinstance(device, str) else device
    before = content(cycle)
    task = put(cycle, "b-0", 1, *devices)
    evict(cycle, "b-0")
    assert cycle.state.status_of(task) is TaskStatus.PENDING
    assert cycle.state.is_unplaced(task)
    assert cycle.state.evicted_from == {}
    del cycle.state.placements[task.key]
    assert content(cycle) == before


def test_pg14_a_task_that_loses_its_nomination_is_chosen_again() -> None:
    """cycle:PG-9: the next tasks are chosen again."""
    cycle = two_nodes(gpu=1).cycle()
    gang = gangs_of(cycle)["b"]
    put(cycle, "b-0", 1)
    assert [task.name for batch in cycle.gangs.next_tasks(gang) for task in batch.tasks] == ["b-1"]
    put(cycle, "b-1", 1)
    evict(cycle, "b-0")
    assert [task.name for batch in cycle.gangs.next_tasks(gang) for task in batch.tasks] == ["b-0"]
    evict(cycle, "b-1")
    assert [task.name for batch in cycle.gangs.next_tasks(gang) for task in batch.tasks] == ["b-0", "b-1"]


@KINDS
def test_pg14_a_bind_of_this_cycle_is_withdrawn_without_a_trace(
    pod: dict[str, Any], device: str | tuple[str, ...]
) -> None:
    """cycle:PG-14: the pod was never there, so nothing is being released and it waits as before."""
    cycle = two_nodes(device, **pod).cycle()
    devices = (device,) if isinstance(device, str) else device
    before = content(cycle)
    task = put(cycle, "b-0", 1, *devices, pipelined=False)
    cycle.state.commit(0)
    mark = cycle.state.mark()
    evict(cycle, "b-0")
    outcome = cycle.state.commit(mark)
    assert (list(outcome.gangs_by_task), outcome.placed, outcome.evicted) == ([task.key], [], [])
    assert cycle.state.placements.pop(task.key).status is TaskStatus.PENDING
    assert content(cycle) == before
    assert [found.name for batch in cycle.gangs.next_tasks(gangs_of(cycle)["b"]) for found in batch.tasks] == [
        "b-0",
        "b-1",
    ]


def test_pg14_a_moved_task_that_loses_its_nomination_stays_evicted() -> None:
    """cycle:PG-14: its eviction was decided before."""
    cycle = two_nodes(gpu=1).cycle()
    evict(cycle, "a-0")
    put(cycle, "a-0", 1)
    cycle.state.commit(0)
    mark = cycle.state.mark()
    task = evict(cycle, "a-0")
    assert cycle.state.placements[task.key] == Placement(TaskStatus.RELEASING, 0, ())
    assert not cycle.state.is_unplaced(task)
    assert gpus(cycle, 0) == (2, 1, 3, 2)
    assert gpus(cycle, 1) == (4, 0, 4, 0)
    assert held(cycle, "q") == (100, 100)
    assert counters(cycle, "a-0") == (1, 2, 0, 0)
    outcome = cycle.state.commit(mark)
    assert list(outcome.gangs_by_task) == [task.key], "its nomination no longer holds"
    assert (outcome.placed, outcome.evicted) == ([], []), "it is not evicted twice"
    check_state(cycle.state, cycle.gangs)
