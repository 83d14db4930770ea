"""Validation notices every kind of figure that is not the sum of its parts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.journal import Placement
from pykai.core.cycle.validate import StateMismatch, check_state
from pykai.core.model.status import TaskStatus
from pykai.core.model.vectors import FREE, IDLE, RELEASING, USED
from pykai.core.opencycle import Cycle
from pykai.core.schedule import run_actions
from tests.core.builders import cluster

PORT = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}


def busy() -> Cycle:
    """A cluster with a bit of everything, some of it placed by the cycle."""
    built = cluster(nodes=2, gpus=6, cpu=16).queue("top").queue("q", parent="top")
    built.group("old", preemptibility="non-preemptible").pod("old", group="old", gpu=1, on="node-0")
    built.group("part").pod("part", group="part", fraction=0.5, on="node-0", device="gpu-0")
    built.group("leaving").pod("leaving", group="leaving", gpu=2, on="node-1", deleted=1)
    built.gang("waits", gpu=6).gang("whole", 2, gpu=1, preemptible=False).gang("shared", 2, fraction=0.4)
    built.gang("port", spec=PORT).gang("later", 2, min=1, gpu=9)
    cycle = built.cycle()
    run_actions(cycle)
    return cycle


def waiting_gang(cycle: Cycle, name: str = "later") -> Gang:
    return next(gang for gang in cycle.gangs.waiting() if gang.group.name == name)


def test_what_a_cycle_leaves_behind_is_in_order() -> None:
    cycle = busy()
    assert {placed.status for placed in cycle.state.placements.values()} == {TaskStatus.BINDING, TaskStatus.PIPELINED}
    check_state(cycle.state, cycle.gangs)


def _column(plane: int) -> Callable[[Cycle], None]:
    def corrupt(cycle: Cycle) -> None:
        cycle.state.columns[plane, 0, 0] += 1

    return corrupt


def _device(cycle: Cycle) -> None:
    devices = cycle.state.devices[0]
    devices["gpu-0"] = devices["gpu-0"]._replace(used_mib=1)


def _stray_device(cycle: Cycle) -> None:
    cycle.state.devices[1] = {"nobody": cycle.state.devices[0]["gpu-0"]}


def _port(cycle: Cycle) -> None:
    row = next(iter(cycle.state.ports))
    cycle.state.ports[row] = {port: count + 1 for port, count in cycle.state.ports[row].items()}


def _lost_port(cycle: Cycle) -> None:
    cycle.state.ports.clear()


def _allocated(resource: int) -> Callable[[Cycle], None]:
    def corrupt(cycle: Cycle) -> None:
        cycle.state.ledger.allocated[0][resource] += 1

    return corrupt


def _committed(cycle: Cycle) -> None:
    cycle.state.ledger.allocated_non_preemptible[1][2] -= 1


def _lost_placement(cycle: Cycle) -> None:
    del cycle.state.placements["default/whole-0"]


def _other_node(cycle: Cycle) -> None:
    placed = cycle.state.placements["default/whole-0"]
    cycle.state.placements["default/whole-0"] = placed._replace(row=1 - placed.row)


def _other_status(cycle: Cycle) -> None:
    placed = cycle.state.placements["default/whole-0"]
    cycle.state.placements["default/whole-0"] = Placement(TaskStatus.PIPELINED, placed.row, placed.gpu_groups)


def _gang_counter(name: str) -> Callable[[Cycle], None]:
    def corrupt(cycle: Cycle) -> None:
        gang = waiting_gang(cycle)
        setattr(gang, name, getattr(gang, name) + 1)

    return corrupt


def _counter(name: str) -> Callable[[Cycle], None]:
    def corrupt(cycle: Cycle) -> None:
        leaf = waiting_gang(cycle).leaves[0]
        setattr(leaf, name, getattr(leaf, name) + 1)

    return corrupt


@pytest.mark.parametrize(
    ("corrupt", "text"),
    [
        pytest.param(_column(IDLE), "node columns differ", id="idle"),
        pytest.param(_column(RELEASING), "node columns differ", id="releasing"),
        pytest.param(_column(FREE), "node columns differ", id="free"),
        pytest.param(_column(USED), "node columns differ", id="used"),
        pytest.param(_device, "shared GPUs differ", id="device"),
        pytest.param(_stray_device, "shared GPUs differ", id="a device of nobody"),
        pytest.param(_port, "host ports differ", id="port"),
        pytest.param(_lost_port, "host ports differ", id="a lost port"),
        pytest.param(_allocated(0), "queue top has ", id="allocated CPU"),
        pytest.param(_allocated(1), "queue top has ", id="allocated memory"),
        pytest.param(_allocated(2), "queue top has ", id="allocated GPU"),
        pytest.param(_committed, "queue q has for non-preemptible work ", id="committed"),
        pytest.param(_lost_placement, "node columns differ", id="a lost placement"),
        pytest.param(_other_node, "node columns differ", id="another node"),
        pytest.param(_other_status, "node columns differ", id="another status"),
        pytest.param(_counter("active_allocated"), "subgroup default of default/later counts", id="active"),
        pytest.param(_counter("active_used"), "subgroup default of default/later counts", id="used tasks"),
        pytest.param(_counter("pipelined"), "subgroup default of default/later counts", id="pipelined tasks"),
        pytest.param(_counter("unplaced"), "subgroup default of default/later counts", id="open tasks"),
        pytest.param(_gang_counter("unplaced"), "default/later has not as many open tasks", id="unplaced of the gang"),
        pytest.param(_gang_counter("pipelined"), "default/later has not the promises", id="promises of the gang"),
    ],
)
def test_a_corrupted_figure_is_noticed(corrupt: Callable[[Cycle], None], text: str) -> None:
    cycle = busy()
    corrupt(cycle)
    with pytest.raises(StateMismatch, match=text):
        check_state(cycle.state, cycle.gangs)


@pytest.mark.parametrize("pipelined", [False, True])
def test_an_over_filled_node_is_noticed(pipelined: bool) -> None:
    """All sums are right, but the task should not have been put there."""
    cycle = cluster(nodes=1, gpus=1).queue("q").gang("job", gpu=2).cycle()
    (gang,) = cycle.gangs.waiting()
    leaf = gang.leaves[0]
    cycle.state.place(gang, leaf, leaf.tasks[0], 0, (), pipelined=pipelined)
    with pytest.raises(StateMismatch, match="node node-0 is over-filled"):
        check_state(cycle.state, cycle.gangs)


@pytest.mark.parametrize("pipelined", [False, True])
def test_an_over_filled_device_is_noticed(pipelined: bool) -> None:
    cycle = cluster(nodes=1, gpus=1).queue("q").gang("job", 2, fraction=0.6).cycle()
    (gang,) = cycle.gangs.waiting()
    leaf = gang.leaves[0]
    for task in leaf.tasks:
        cycle.state.place(gang, leaf, task, 0, ("gpu-0",), pipelined=pipelined)
    with pytest.raises(StateMismatch, match="GPU gpu-0 of node node-0 is over-filled"):
        check_state(cycle.state, cycle.gangs)


def test_a_node_over_filled_before_the_cycle_is_not_reported() -> None:
    built = cluster(nodes=1, gpus=1, cpu=1).queue("q").group("old")
    built.pod("old", group="old", cpu=5, memory=0, on="node-0")
    assert built.gang("job", cpu=0, gpu=1).schedule().bound("job") == 1
