"""Resource fit of a request over many nodes at once (cycle:4, FLT-1; gpu:F-1 to F-3).

Fit is tested twice in a placement: against what is free or being freed ("may go there at all"), and against what is
idle ("may start now").  Whole and MIG requests compare columns.  Shared requests compare all other columns and then
count devices: whole GPUs left plus shared ones with room must be as many as asked for.  A GPU of which there is nothing
but the reservation pod is being released, yet a pod that joins it may start at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pykai.core.cluster.nodetable import NodeTable
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.model.axes import BoolArray, IntArray, Rows
from pykai.core.model.shapes import GpuRequest, Shape
from pykai.core.model.sharedgpus import fits_device, tenant_mib
from pykai.core.model.vectors import fits_amounts
from pykai.core.placing.sharedroom import SharedRoom


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


class GpuColumns(NamedTuple):
    """What a request for GPUs is on nodes, which depends on the memory of their GPUs alone."""

    #: [node] MiB one device of the node gives the request (gpu:C-2)
    tenant_mib: IntArray
    #: [node] whether one device can hold it at all
    fits_device: BoolArray


def gpu_columns(nodes: NodeTable, gpu: GpuRequest) -> GpuColumns:
    """The columns of a request, computed once per size of GPUs."""

    def make() -> GpuColumns:
        codes, sizes = gpu_sizes(nodes)
        mibs = np.array([tenant_mib(gpu, *size) for size in sizes], dtype=np.int64)
        fits = np.array([fits_device(gpu, *size) for size in sizes], dtype=np.bool_)
        return GpuColumns(mibs[codes], fits[codes])

    # Numbers alone are found faster than the request.
    return nodes.remember(("gpu columns", gpu.portion, gpu.memory_mib), make)


def device_fits_request(nodes: NodeTable, shape: Shape) -> BoolArray:
    """[node] whether one device can hold the request at all (gpu:C-4)."""
    return gpu_columns(nodes, shape.gpu).fits_device


def devices_with_room(state: State, shape: Shape, rows: Rows) -> IntArray:
    """[rows] how many shared GPUs fit the request (gpu:F-3)."""
    room, mibs = SharedRoom.of(state), gpu_columns(state.snapshot.nodes, shape.gpu).tenant_mib
    counts: IntArray = (room.free_mib[:, rows] >= mibs[rows]).sum(axis=0)
    return counts


def has_device_with_room(state: State, shape: Shape, rows: Rows) -> BoolArray:
    """[rows] whether any shared GPU fits the request."""
    fits: BoolArray = (
        SharedRoom.of(state).most_mib[rows] >= gpu_columns(state.snapshot.nodes, shape.gpu).tenant_mib[rows]
    )
    return fits


def has_device_with_room_at(state: State, shape: Shape, row: int) -> bool:
    """The same for one row."""
    if row not in state.devices:
        return False
    mibs = gpu_columns(state.snapshot.nodes, shape.gpu).tenant_mib
    return SharedRoom.of(state).most_mib.item(row) >= mibs.item(row)


def whole_gpus(state: State, plane: IntArray, rows: Rows) -> IntArray:
    """[rows] whole GPUs on the shared axis of each node in one plane."""
    axes = shared_axes(state.snapshot)

    def make() -> list[tuple[int, IntArray]]:
        return [(axis, (axes == axis).astype(np.int64)) for axis in np.unique(axes[axes >= 0]).tolist()]

    total = np.zeros(len(axes), dtype=np.int64)[rows]
    for axis, has_axis in state.snapshot.nodes.remember("nodes by shared axis", make):
        total += plane[axis, rows] * has_axis[rows]
    return total


def _has_enough_devices(state: State, plane: IntArray, request: PlacementRequest, rows: Rows) -> BoolArray:
    shape = request.shape
    count = np.maximum(whole_gpus(state, plane, rows), 0)
    if state.devices:
        # One device with room is all that most requests need to know of.
        count += (devices_with_room if shape.gpu.devices > 1 else has_device_with_room)(state, shape, rows)
        if plane is state.idle:
            # GPUs that are only reserved count, and those pipelined onto them since: the free column shows whether
            # enough is left beside pipelined tasks.
            count += SharedRoom.of(state).only_reserved[rows]
    fits: BoolArray = count >= shape.gpu.devices
    return fits & device_fits_request(state.snapshot.nodes, shape)[rows]


def _has_enough_devices_at(state: State, amounts: list[int], shape: Shape, row: int, *, idle: bool) -> bool:
    if not device_fits_request(state.snapshot.nodes, shape).item(row):
        return False
    axis = shared_axes(state.snapshot).item(row)
    count = max(amounts[axis], 0) if axis >= 0 else 0
    if row in state.devices and count < shape.gpu.devices:
        count += (
            int(devices_with_room(state, shape, slice(row, row + 1))[0])
            if shape.gpu.devices > 1
            else has_device_with_room_at(state, shape, row)
        )
        if idle:
            count += SharedRoom.of(state).only_reserved.item(row)
    return count >= shape.gpu.devices


def fits_plane(state: State, plane: IntArray, request: PlacementRequest, rows: Rows) -> BoolArray:
    """[rows] whether the request fits what one plane ([axis, node], free or idle) holds (cycle:NOD-3)."""
    fits: BoolArray = np.logical_and.reduce(plane[:, rows] >= request.vector.demand, axis=0)
    if request.shape.shared:
        fits &= _has_enough_devices(state, plane, request, rows)
    return fits


def fits_row(state: State, amounts: list[int], request: PlacementRequest, row: int, *, idle: bool) -> bool:
    """`fits_plane` for one row, with the amounts of the plane by axis."""
    if not fits_amounts(amounts, request.vector.requested):
        return False
    return not request.shape.shared or _has_enough_devices_at(state, amounts, request.shape, row, idle=idle)


def fits_idle_row(state: State, request: PlacementRequest, row: int) -> bool:
    """Whether the request can start on a node right now (cycle:NOD-2)."""
    return fits_row(state, state.idle[:, row].tolist(), request, row, idle=True)
