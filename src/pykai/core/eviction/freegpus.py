"""GPUs that are free or being released, over the cluster and by node."""

from __future__ import annotations

import numpy as np

from pykai.core.cycle.gangs import Batch
from pykai.core.cycle.state import State
from pykai.core.model.axes import BoolArray, FloatArray


def total_free_gpus(state: State) -> float:
    """GPUs idle or being released on nodes that may start pods, in hundredths."""
    free = free_gpus(state)
    return float(free[state.snapshot.nodes.ready].clip(0).sum())


def free_gpus(state: State) -> FloatArray:
    """[node] GPUs idle or being released, in hundredths, the rest of shared ones included (gpu:C-10)."""
    snapshot = state.snapshot
    free: FloatArray = 100.0 * state.free[snapshot.axes.gpu_axes].sum(axis=0)
    for row, devices in state.devices.items():
        mib = snapshot.nodes.facts[row].gpu_mib
        for device in devices.values():
            if device.live or device.releasing != device.pipelined:
                free[row] += 100.0 * max(0, mib - device.allocated_mib + device.releasing_mib) / mib
    return free


def feasible_nodes(state: State, batches: list[Batch]) -> BoolArray | None:
    """[node] nodes with a free GPU, if all tasks want one (cycle:SOL-4; gpu:C-13; topo:T-52)."""
    if any(task.shape.cpu_only for batch in batches for task in batch.tasks):
        return None
    snapshot = state.snapshot
    axes = [*snapshot.axes.gpu_axes, *snapshot.axes.mig_axes]
    free: BoolArray = np.zeros(len(snapshot.nodes), dtype=np.bool_)
    for axis in axes:
        free |= state.free[axis] > 0
    for row, devices in state.devices.items():
        mib = snapshot.nodes.facts[row].gpu_mib
        if any(device.used_mib < mib or device.releasing for device in devices.values()):
            free[row] = True
    return free
