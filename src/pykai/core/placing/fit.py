"""Resource fit of a request over many nodes at once (cycle:4, FLT-1; gpu:F-1 to F-3).

Fit is tested twice in a placement: against what is free or being freed ("may go there at all"), and against what is
idle ("may start now").  Whole and MIG requests compare columns.  Shared requests compare all other columns and then
count devices: whole GPUs left plus shared ones with room must be as many as asked for.  A GPU of which there is nothing
but the reservation pod is being released, yet a pod that joins it may start at once.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import numpy as np

from pykai.core.cluster.nodetable import NodeTable
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.model.axes import BoolArray, IntArray, Rows, row_numbers
from pykai.core.model.shapes import GpuRequest, Shape
from pykai.core.model.sharedgpus import fits_device, tenant_mib
from pykai.core.model.vectors import fits_amounts

_ALL = slice(None)


def shared_axes(snapshot: Snapshot) -> IntArray:
    """[node] axis of the GPUs a node shares, -1 when it has none."""
    index = snapshot.axes.index

    def make() -> IntArray:
        return np.array([index.get(node.shared_resource, -1) for node in snapshot.nodes.facts], dtype=np.int64)

    return snapshot.nodes.remember("shared axes", make)


def has_unshareable_gpus(snapshot: Snapshot) -> BoolArray:
    """[node] whether it has GPUs, and none that pods can share (ADR-37)."""
    offered: BoolArray = snapshot.allocatable[snapshot.axes.gpu_axes].sum(axis=0) > 0
    return offered & (shared_axes(snapshot) < 0)


def gpu_sizes(nodes: NodeTable) -> tuple[IntArray, list[tuple[int, int]]]:
    """[node] number of the size of its GPUs, and the sizes: MiB as counted and as labelled."""

    def make() -> tuple[IntArray, list[tuple[int, int]]]:
        sizes: dict[tuple[int, int], int] = {}
        codes = [sizes.setdefault((node.gpu_mib, node.gpu_label_mib), len(sizes)) for node in nodes.facts]
        return np.array(codes, dtype=np.int64), list(sizes)

    return nodes.remember("gpu sizes", make)


def _by_gpu_size(nodes: NodeTable, gpu_request: GpuRequest, measure: Callable[[GpuRequest, int, int], int]) -> IntArray:
    """[node] a value that depends on the memory of a node's GPUs alone, computed once per size."""
    codes, sizes = gpu_sizes(nodes)
    values: IntArray = np.array([measure(gpu_request, *size) for size in sizes], dtype=np.int64)[codes]
    return values


def tenant_mibs(nodes: NodeTable, shape: Shape) -> IntArray:
    """[node] MiB one device of the node gives this shape (gpu:C-2)."""
    return nodes.remember(("tenant mib", shape.gpu), lambda: _by_gpu_size(nodes, shape.gpu, tenant_mib))


def device_fits_request(nodes: NodeTable, shape: Shape) -> BoolArray:
    """[node] whether one device can hold the request at all (gpu:C-4)."""
    return nodes.remember(("big enough", shape.gpu), lambda: _by_gpu_size(nodes, shape.gpu, fits_device) > 0)


class _SharedGpuRoom:
    """Room on the shared GPUs of all nodes, following the rows that change.

    Every pod of a tenant may request a different part of a GPU, and each request is checked on every node.
    """

    __slots__ = ("_by_row", "_seen", "free_mib", "only_reserved", "rows")

    def __init__(self) -> None:
        self._seen = -1
        #: node row -> MiB free on each of its shared GPUs that can be joined
        self._by_row: dict[int, list[int]] = {}
        #: [device] its node row and MiB free
        self.rows: IntArray = np.zeros(0, dtype=np.int64)
        self.free_mib: IntArray = np.zeros(0, dtype=np.int64)
        #: node row -> GPUs with nothing but a reservation pod
        self.only_reserved: dict[int, int] = {}

    def refresh(self, state: State) -> _SharedGpuRoom:
        """Bring it up to date."""
        touched = state.changed_rows
        if self._seen == len(touched):
            return self
        changed = set(state.devices) if self._seen < 0 else set(touched[self._seen :])
        self._seen = len(touched)
        has_changed = False
        for row in changed:
            devices = state.devices.get(row, {})
            gpu_mib = state.snapshot.nodes.facts[row].gpu_mib
            free_mib = [
                joinable for device in devices.values() if (joinable := device.joinable_mib(gpu_mib)) is not None
            ]
            if free_mib != self._by_row.get(row, []):
                self._by_row[row] = free_mib
                has_changed = True
            self.only_reserved[row] = sum([device.is_only_reserved for device in devices.values()])
        if has_changed:
            self.rows = np.repeat(
                np.fromiter(self._by_row, np.int64, len(self._by_row)),
                np.fromiter(map(len, self._by_row.values()), np.int64, len(self._by_row)),
            )
            self.free_mib = np.fromiter(chain.from_iterable(self._by_row.values()), np.int64, len(self.rows))
        return self


def _shared_gpu_room(state: State) -> _SharedGpuRoom:
    return state.snapshot.memo.remember(_SharedGpuRoom, _SharedGpuRoom).refresh(state)


def devices_with_room(state: State, shape: Shape, rows: Rows) -> IntArray:
    """[rows] how many shared GPUs fit the request (gpu:F-3)."""
    nodes = state.snapshot.nodes
    if not state.devices:
        return np.zeros(len(row_numbers(rows, len(nodes))), dtype=np.int64)
    mibs = tenant_mibs(nodes, shape)
    if isinstance(rows, slice) and rows == _ALL:
        gpu_room = _shared_gpu_room(state)
        return np.bincount(gpu_room.rows[gpu_room.free_mib >= mibs[gpu_room.rows]], minlength=len(nodes))
    numbers = row_numbers(rows, len(nodes))
    counts = np.zeros(len(numbers), dtype=np.int64)
    for position, row in enumerate(numbers):
        devices = state.devices.get(row)
        if devices:
            mib, gpu_mib = int(mibs[row]), nodes.facts[row].gpu_mib
            counts[position] = sum(device.fits_tenant(mib, gpu_mib) for device in devices.values())
    return counts


def whole_gpus(state: State, plane: IntArray, rows: Rows) -> IntArray:
    """[rows] whole GPUs on the shared axis of each node in one plane."""
    axes = shared_axes(state.snapshot)[rows]
    numbers = np.arange(len(state.snapshot.nodes))[rows]
    return np.where(axes >= 0, plane[axes, numbers], 0)


def _only_reserved_devices(state: State, rows: Rows) -> IntArray:
    """[rows] how many GPUs have nothing but a reservation pod.

    Those pipelined since are counted too: the free column shows whether enough is left beside pipelined tasks.
    """
    numbers = row_numbers(rows, len(state.snapshot.nodes))
    counts = np.zeros(len(numbers), dtype=np.int64)
    if isinstance(rows, slice) and rows == _ALL:
        for row, count in _shared_gpu_room(state).only_reserved.items():
            counts[row] = count
        return counts
    for position, row in enumerate(numbers):
        devices = state.devices.get(row)
        if devices:
            counts[position] = sum(device.is_only_reserved for device in devices.values())
    return counts


def _has_enough_devices(state: State, plane: IntArray, request: PlacementRequest, rows: Rows) -> BoolArray:
    shape = request.shape
    count = np.maximum(whole_gpus(state, plane, rows), 0) + devices_with_room(state, shape, rows)
    if plane is state.idle and state.devices:
        count += _only_reserved_devices(state, rows)
    return (count >= shape.gpu.devices) & device_fits_request(state.snapshot.nodes, shape)[rows]


def fits_plane(state: State, plane: IntArray, request: PlacementRequest, rows: Rows) -> BoolArray:
    """[rows] whether the request fits what one plane ([axis, node], free or idle) holds (cycle:NOD-3)."""
    fits: BoolArray = np.all(plane[:, rows] >= request.vector.demand, axis=0)
    if request.shape.shared:
        fits &= _has_enough_devices(state, plane, request, rows)
    return fits


def fits_idle_row(state: State, request: PlacementRequest, row: int) -> bool:
    """Whether the request can start on a node right now (cycle:NOD-2)."""
    if request.shape.shared:
        return bool(fits_plane(state, state.idle, request, slice(row, row + 1))[0])
    return fits_amounts(state.idle[:, row].tolist(), request.vector.requested)
