"""Resource fit of an ask over many nodes at once (cycle:4, FLT-1; gpu:F-1 to F-3).

Fit is tested twice in a placement: against what is free or being freed ("may go there at all"), and against what is
idle ("may start now").  Whole and MIG requests compare columns.  Shared requests compare all other columns and then
count devices: whole GPUs left plus shared ones with room must be as many as asked for.  A GPU of which there is nothing
but the reservation pod is being released, yet whoever joins it may start at once.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import numpy as np

from pykai.core.cluster.snapshot import NodeTable, Snapshot
from pykai.core.cycle.state import State
from pykai.core.hooks import Ask, Rows
from pykai.core.model.axes import BoolArray, IntArray
from pykai.core.model.shapes import GpuAsk, Shape
from pykai.core.model.sharedgpus import fits_device, tenant_mib
from pykai.core.model.vectors import fits_within

_ALL = slice(None)


def shared_axes(snapshot: Snapshot) -> IntArray:
    """[node] axis of the GPUs a node shares, -1 when it has none."""
    index = snapshot.axes.index

    def make() -> IntArray:
        return np.array([index.get(node.shared_resource, -1) for node in snapshot.nodes.facts], dtype=np.int64)

    return snapshot.nodes.remember("shared axes", make)


def gpu_sizes(nodes: NodeTable) -> tuple[IntArray, list[tuple[int, int]]]:
    """[node] number of the size of its GPUs, and the sizes: MiB as counted and as labelled."""

    def make() -> tuple[IntArray, list[tuple[int, int]]]:
        sizes: dict[tuple[int, int], int] = {}
        codes = [sizes.setdefault((node.gpu_mib, node.gpu_label_mib), len(sizes)) for node in nodes.facts]
        return np.array(codes, dtype=np.int64), list(sizes)

    return nodes.remember("gpu sizes", make)


def _by_gpu_size(nodes: NodeTable, ask: GpuAsk, measure: Callable[[GpuAsk, int, int], int]) -> IntArray:
    """[node] something that depends on the memory of a node's GPUs alone, worked out once per size."""
    codes, sizes = gpu_sizes(nodes)
    found: IntArray = np.array([measure(ask, *size) for size in sizes], dtype=np.int64)[codes]
    return found


def tenant_mibs(nodes: NodeTable, shape: Shape) -> IntArray:
    """[node] MiB one device of the node gives this shape (gpu:C-2)."""
    return nodes.remember(("tenant mib", shape.gpu), lambda: _by_gpu_size(nodes, shape.gpu, tenant_mib))


def big_enough(nodes: NodeTable, shape: Shape) -> BoolArray:
    """[node] whether one device can hold the ask at all (gpu:C-4)."""
    return nodes.remember(("big enough", shape.gpu), lambda: _by_gpu_size(nodes, shape.gpu, fits_device) > 0)


def row_numbers(rows: Rows, size: int) -> range | list[int]:
    """The rows one by one."""
    return range(*rows.indices(size)) if isinstance(rows, slice) else rows.tolist()


class _Rooms:
    """Room on the shared GPUs of all nodes, following the rows that change.

    A tenant may ask for a different part of a GPU with every pod, and each of them asks about every node.
    """

    __slots__ = ("_by_row", "_seen", "rooms", "rows", "vacant")

    def __init__(self) -> None:
        self._seen = -1
        #: node row -> MiB free on each of its shared GPUs that can be joined
        self._by_row: dict[int, list[int]] = {}
        #: [device] its node row and MiB free
        self.rows: IntArray = np.zeros(0, dtype=np.int64)
        self.rooms: IntArray = np.zeros(0, dtype=np.int64)
        #: node row -> GPUs with nothing but a reservation pod
        self.vacant: dict[int, int] = {}

    def refresh(self, state: State) -> _Rooms:
        """Bring it up to date."""
        touched = state.touched
        if self._seen == len(touched):
            return self
        changed = set(state.devices) if self._seen < 0 else set(touched[self._seen :])
        self._seen = len(touched)
        different = False
        for row in changed:
            there = state.devices.get(row, {})
            gpu_mib = state.snapshot.nodes.facts[row].gpu_mib
            rooms = [room for device in there.values() if (room := device.room(gpu_mib)) is not None]
            if rooms != self._by_row.get(row, []):
                self._by_row[row] = rooms
                different = True
            self.vacant[row] = sum([device.vacant for device in there.values()])
        if different:
            self.rows = np.repeat(
                np.fromiter(self._by_row, np.int64, len(self._by_row)),
                np.fromiter(map(len, self._by_row.values()), np.int64, len(self._by_row)),
            )
            self.rooms = np.fromiter(chain.from_iterable(self._by_row.values()), np.int64, len(self.rows))
        return self


def _rooms(state: State) -> _Rooms:
    found = state.snapshot.memo.get(_Rooms)
    if not isinstance(found, _Rooms):
        found = state.snapshot.memo[_Rooms] = _Rooms()
    return found.refresh(state)


def devices_with_room(state: State, shape: Shape, rows: Rows) -> IntArray:
    """[rows] how many shared GPUs have room for the ask (gpu:F-3)."""
    nodes = state.snapshot.nodes
    if not state.devices:
        return np.zeros(len(row_numbers(rows, len(nodes))), dtype=np.int64)
    mibs = tenant_mibs(nodes, shape)
    if isinstance(rows, slice) and rows == _ALL:
        known = _rooms(state)
        return np.bincount(known.rows[known.rooms >= mibs[known.rows]], minlength=len(nodes))
    numbers = row_numbers(rows, len(nodes))
    counts = np.zeros(len(numbers), dtype=np.int64)
    for position, row in enumerate(numbers):
        there = state.devices.get(row)
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
    numbers = row_numbers(rows, len(state.snapshot.nodes))
    counts = np.zeros(len(numbers), dtype=np.int64)
    if isinstance(rows, slice) and rows == _ALL:
        for row, count in _rooms(state).vacant.items():
            counts[row] = count
        return counts
    for position, row in enumerate(numbers):
        there = state.devices.get(row)
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
    """[rows] whether the ask fits what one plane ([axis, node], free or idle) holds (cycle:NOD-3)."""
    fits: BoolArray = np.all(plane[:, rows] >= ask.vector.demand, axis=0)
    if ask.shape.shared:
        fits &= _enough_devices(state, plane, ask, rows)
    return fits


def fits_idle_row(state: State, ask: Ask, row: int) -> bool:
    """Whether the ask can start on a node right now (cycle:NOD-2)."""
    if ask.shape.shared:
        return bool(fits_in(state, state.idle, ask, slice(row, row + 1))[0])
    return fits_within(state.idle[:, row].tolist(), ask.vector.asked)
