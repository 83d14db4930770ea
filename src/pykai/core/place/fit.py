"""Resource fit of an ask over many nodes at once (cycle:4, FLT-1; gpu:F-1 to F-3).

Fit is tested twice in a placement: against what is free or being freed ("may go there at all"), and against what is
idle ("may start now").  Whole and MIG requests compare columns.  Shared requests compare all other columns and then
count devices: whole GPUs left plus shared ones with room must be as many as asked for.  A GPU of which there is nothing
but the reservation pod is being released, yet whoever joins it may start at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pykai.core.axes import BoolArray, IntArray
from pykai.core.devices import fits_device, tenant_mib
from pykai.core.hooks import Ask, Rows
from pykai.core.shapes import GpuAsk, Shape
from pykai.core.snapshot import NodeTable, Snapshot
from pykai.core.state import State
from pykai.core.vectors import fits_within


def shared_axes(snapshot: Snapshot) -> IntArray:
    """[node] axis of the GPUs a node shares, -1 when it has none."""
    index = snapshot.axes.index

    def make() -> IntArray:
        return np.array([index.get(node.shared_resource, -1) for node in snapshot.nodes.facts], dtype=np.int64)

    return snapshot.nodes.remember("shared axes", make)


def _by_gpu_size(nodes: NodeTable, ask: GpuAsk, measure: Callable[[GpuAsk, int, int], int]) -> IntArray:
    """[node] something that depends on the memory of a node's GPUs alone, worked out once per size."""
    sizes = [(node.gpu_mib, node.gpu_label_mib) for node in nodes.facts]
    known = {size: measure(ask, *size) for size in set(sizes)}
    return np.array([known[size] for size in sizes], dtype=np.int64)


def tenant_mibs(nodes: NodeTable, shape: Shape) -> IntArray:
    """[node] MiB one device of the node gives this shape (gpu:C-2)."""
    return nodes.remember(("tenant mib", shape.gpu), lambda: _by_gpu_size(nodes, shape.gpu, tenant_mib))


def big_enough(nodes: NodeTable, shape: Shape) -> BoolArray:
    """[node] whether one device can hold the ask at all (gpu:C-4)."""
    return nodes.remember(("big enough", shape.gpu), lambda: _by_gpu_size(nodes, shape.gpu, fits_device) > 0)


def row_numbers(rows: Rows, size: int) -> range | list[int]:
    """The rows one by one."""
    return range(*rows.indices(size)) if isinstance(rows, slice) else rows.tolist()


def devices_with_room(state: State, shape: Shape, rows: Rows) -> IntArray:
    """[rows] how many shared GPUs have room for the ask (gpu:F-3)."""
    nodes = state.snapshot.nodes
    mibs = tenant_mibs(nodes, shape)
    devices = state.devices
    numbers = row_numbers(rows, len(nodes))
    counts = np.zeros(len(numbers), dtype=np.int64)
    for position, row in enumerate(numbers):
        there = devices.get(row)
        if there:
            mib, gpu_mib = int(mibs[row]), nodes.facts[row].gpu_mib
            counts[position] = sum(device.has_room(mib, gpu_mib) for device in there.values())
    return counts


def whole_gpus(state: State, plane: IntArray, rows: Rows) -> IntArray:
    """[rows] whole GPUs on the shared axis of each node in one plane."""
    axes = shared_axes(state.snapshot)[rows]
    numbers = np.arange(len(state.snapshot.nodes))[rows]
    return np.where(axes >= 0, plane[axes, numbers], 0)


def _vacant_devices(state: State, rows: Rows) -> IntArray:
    """[rows] how many GPUs have nothing but a reservation pod.

    Those that were promised since are counted too: whether there are enough beside promises, what is free tells.
    """
    devices = state.devices
    numbers = row_numbers(rows, len(state.snapshot.nodes))
    counts = np.zeros(len(numbers), dtype=np.int64)
    for position, row in enumerate(numbers):
        there = devices.get(row)
        if there:
            counts[position] = sum(device.vacant for device in there.values())
    return counts


def _enough_devices(state: State, plane: IntArray, ask: Ask, rows: Rows) -> BoolArray:
    shape = ask.shape
    count = np.maximum(whole_gpus(state, plane, rows), 0) + devices_with_room(state, shape, rows)
    if plane is state.idle and state.devices:
        count += _vacant_devices(state, rows)
    return (count >= shape.gpu.devices) & big_enough(state.snapshot.nodes, shape)[rows]


def fits_in(state: State, plane: IntArray, ask: Ask, rows: Rows) -> BoolArray:
    """[rows] whether the ask fits what one plane ([axis, node], free or idle) holds."""
    fits: BoolArray = np.all(plane[:, rows] >= ask.vector.demand, axis=0)
    if ask.shape.shared:
        fits &= _enough_devices(state, plane, ask, rows)
    return fits


def fits_idle_row(state: State, ask: Ask, row: int) -> bool:
    """Whether the ask can start on a node right now (cycle:NOD-2)."""
    if ask.shape.shared:
        return bool(fits_in(state, state.idle, ask, slice(row, row + 1))[0])
    return fits_within(state.idle[:, row].tolist(), ask.vector.asked)
