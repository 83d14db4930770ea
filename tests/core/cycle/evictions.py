"""Two gangs in the state of a cycle, and evictions of their tasks.

Gang a runs on node-0 and is not preemptible; gang b waits.
"""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.cycle.gangs import Gang, LeafState
from pykai.core.model.tasks import Task
from pykai.core.opencycle import Cycle
from tests.core.builders import Cluster, cluster

PORT = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
SLICE = {"extra": {"nvidia.com/mig-1g.5gb": 1}}
KINDS = pytest.mark.parametrize(
    ("pod", "device"),
    [
        ({"gpu": 2}, ()),
        ({"fraction": 0.5}, "x"),
        ({"gpu_memory": 333, "devices": 2}, ("x", "y")),
        ({"cpu": "250m", "spec": PORT}, ()),
        (SLICE, ()),
    ],
    ids=["whole", "fraction", "memory", "port", "slice"],
)


def gangs_of(cycle: Cycle) -> dict[str, Gang]:
    return {
        entry.group.name: cycle.gangs.gang(entry)
        for entry in cycle.context.snapshot.group_entries.values()
        if entry.group is not None
    }


def content(cycle: Cycle) -> tuple[Any, ...]:
    """Everything the journal changes, in a form that compares byte by byte."""
    state = cycle.state
    gangs = [(gang.key, gang.unplaced, gang.pipelined) for gang in gangs_of(cycle).values()]
    leaves = [
        (
            gang.key,
            leaf.name,
            leaf.active_allocated,
            leaf.active_used,
            leaf.pipelined,
            leaf.unplaced,
            leaf.alive,
            sorted(task.key for task in leaf.evicted),
        )
        for gang in gangs_of(cycle).values()
        for leaf in gang.leaves
    ]
    return (
        state.columns.tobytes(),
        {row: dict(devices) for row, devices in state.devices.items()},
        {row: dict(ports) for row, ports in state.ports.items()},
        {row: dict(ports) for row, ports in state.terminating_ports.items()},
        [list(row) for row in state.ledger.allocated],
        [list(row) for row in state.ledger.allocated_non_preemptible],
        dict(state.placements),
        dict(state.evicted_from),
        set(state.protected_keys),
        set(state.decided_evictions),
        gangs,
        leaves,
    )


def two_nodes(device: str | tuple[str, ...] = (), **pod: Any) -> Cluster:
    """a-0 and a-1 on the first of two nodes with four GPUs, b-0 and b-1 waiting."""
    built = cluster(nodes=2, gpus=4, extra={"nvidia.com/mig-1g.5gb": 4}).queue("top").queue("q", parent="top")
    return built.gang("a", 2, preemptible=False, on="node-0", device=device, **pod).gang("b", 2, **pod)


def find(cycle: Cycle, pod: str) -> tuple[Gang, LeafState, Task]:
    task = cycle.context.snapshot.task_records[f"default/{pod}"]
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries[task.group_key])
    return gang, gang.leaves[gang.group.leaf_index[task.subgroup]], task


def evict(cycle: Cycle, pod: str) -> Task:
    gang, part, task = find(cycle, pod)
    cycle.state.evict(gang, part, task)
    return task


def keep(cycle: Cycle, pod: str) -> None:
    cycle.state.cancel_eviction(*find(cycle, pod))


def put(cycle: Cycle, pod: str, row: int, *devices: str, pipelined: bool = True) -> Task:
    gang, part, task = find(cycle, pod)
    cycle.state.place(gang, part, task, row, devices, pipelined=pipelined)
    return task


def gpus(cycle: Cycle, row: int) -> tuple[int, int, int, int]:
    """Idle, releasing, free and used GPUs of a node."""
    axis = cycle.context.snapshot.axes.index["nvidia.com/gpu"]
    state = cycle.state
    idle, releasing, free, used = (
        int(plane[axis, row]) for plane in (state.idle, state.releasing, state.free, state.used)
    )
    return idle, releasing, free, used


def held(cycle: Cycle, queue: str) -> tuple[float, float]:
    """GPU hundredths of a queue: all, and the non-preemptible ones."""
    row = cycle.context.snapshot.tree.rows[queue]
    return cycle.state.ledger.allocated[row][2], cycle.state.ledger.allocated_non_preemptible[row][2]


def counters(cycle: Cycle, pod: str) -> tuple[int, int, int, int]:
    """Tasks of the pod's subgroup: kept, holding a node, pipelined, waiting."""
    _, part, _ = find(cycle, pod)
    return part.active_allocated, part.active_used, part.pipelined, part.unplaced
