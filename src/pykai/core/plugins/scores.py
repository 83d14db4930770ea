"""The plugins that score nodes and GPUs (cycle:10).

Magnitudes are chosen so that a higher class dominates: a nominated node (worth ten points of pod affinity), then pod
affinity, then joining a shared GPU, then starting now, then CPU work on CPU nodes, and last packing or spreading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.hooks import Hooks, NodeScore, NodeSet, Planes, Scope
from pykai.core.model.axes import CPU, BoolArray, FloatArray, IntArray, Rows
from pykai.core.model.shapes import GpuKind
from pykai.core.model.sharedgpus import DeviceUse
from pykai.core.model.vectors import FREE, IDLE
from pykai.core.placing.affinity import affinity_index
from pykai.core.placing.fit import fits_plane, fits_row, has_device_with_room, has_device_with_room_at
from pykai.core.plugins.arguments import ArgumentReader, read_flag, read_one_of

NOMINATED_NODE = 10_000_000.0
POD_AFFINITY = 1_000_000.0
GPU_SHARING = 10_000.0
AVAILABILITY = 1_000.0
RESOURCE_TYPE = 10.0
DENSITY = 9.0

Amount = TypeVar("Amount", float, FloatArray)

_CPU_AXES = [CPU]
_NO_ARGUMENTS: Mapping[str, tuple[str, ArgumentReader]] = {}


def _availability_scores(state: State, request: PlacementRequest, rows: Rows, context: None) -> FloatArray:
    return np.multiply(AVAILABILITY, fits_plane(state, state.idle, request, rows))


def _availability_score_at(state: State, request: PlacementRequest, row: int, planes: Planes, context: None) -> float:
    return AVAILABILITY * fits_row(state, planes[IDLE], request, row, idle=True)


@dataclass(frozen=True, slots=True)
class NodeAvailability:
    """nodeavailability: prefer nodes where the task can start now."""

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = _NO_ARGUMENTS

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """One score."""
        return Hooks(node_scores=(NodeScore("nodeavailability", _availability_scores, at=_availability_score_at),))


def _sharing_scores(state: State, request: PlacementRequest, rows: Rows, context: None) -> FloatArray:
    return np.multiply(GPU_SHARING, has_device_with_room(state, request.shape, rows))


def _sharing_score_at(state: State, request: PlacementRequest, row: int, planes: Planes, context: None) -> float:
    return GPU_SHARING * has_device_with_room_at(state, request.shape, row)


@dataclass(frozen=True, slots=True)
class GpuSharingOrder:
    """gpusharingorder: prefer nodes with a shared GPU that has room.

    A pod that needs no memory of a GPU always finds room on one, so CPU-only and MIG pods are drawn to such nodes
    too. That is a quirk (cycle:SCO-5), but recorded decisions depend on it, so it is the default; `sharedOnly:
    "true"` limits the score to requests that really share.

    Statements: gpu:F-9.
    """

    shared_only: bool = False

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = {"sharedOnly": ("shared_only", read_flag)}

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """One score."""

        def applies(request: PlacementRequest) -> bool:
            return request.shape.shared if self.shared_only else request.shape.gpu.kind is not GpuKind.WHOLE

        return Hooks(
            node_scores=(NodeScore("gpusharingorder", _sharing_scores, applies=applies, at=_sharing_score_at),)
        )


def _cpu_node_scores(state: State, request: PlacementRequest, rows: Rows, context: None) -> FloatArray:
    return np.multiply(RESOURCE_TYPE, state.snapshot.nodes.cpu_only[rows])


@dataclass(frozen=True, slots=True)
class ResourceType:
    """resourcetype: CPU-only tasks prefer CPU-only nodes."""

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = _NO_ARGUMENTS

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """One score."""
        score = NodeScore("resourcetype", _cpu_node_scores, Scope.NODES, lambda request: request.shape.cpu_only)
        return Hooks(node_scores=(score,))


def _nominated_scores(state: State, request: PlacementRequest, rows: Rows, context: None) -> FloatArray:
    nodes = state.snapshot.nodes
    column = np.zeros(len(nodes))
    row = nodes.rows.get(request.task.nominated_node)
    if row is not None:
        column[row] = NOMINATED_NODE
    row_scores: FloatArray = column[rows]
    return row_scores


@dataclass(frozen=True, slots=True)
class NominatedNode:
    """nominatednode: a pod goes where `status.nominatedNodeName` says, if it can (cycle:POL-8)."""

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = _NO_ARGUMENTS

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """One score, apart for every nominated node."""
        score = NodeScore(
            "nominatednode", _nominated_scores, Scope.NODES, lambda request: bool(request.task.nominated_node)
        )
        return Hooks(node_scores=(score,), cache_key=lambda request: request.task.nominated_node)


@dataclass(frozen=True, slots=True)
class PodAffinityPlugin:
    """podaffinity: preferred affinity and anti-affinity between pods, as Kubernetes weighs them, not normalised.

    Statements: topo:T-57.
    """

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = _NO_ARGUMENTS

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """One score, where any pod has such terms."""
        index = affinity_index(snapshot)
        if not index.active:
            return Hooks()

        def score(state: State, request: PlacementRequest, rows: Rows, context: None) -> FloatArray:
            return POD_AFFINITY * index.preference(state, request, rows)

        return Hooks(node_scores=(NodeScore("podaffinity", score),), cache_key=index.key, observer=index)


def _free(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
    """[rows] idle and releasing amount of what the task is about: CPU, else whole GPUs of any vendor."""
    if request.shape.cpu_only:
        return state.free[CPU, rows]
    return _gpus(state, state.free, rows)


def _gpus(state: State, plane: IntArray, rows: Rows) -> IntArray:
    axes = state.snapshot.axes.gpu_axes
    if len(axes) == 1:
        return plane[axes[0], rows]
    total: IntArray = plane[axes][:, rows].sum(axis=0)
    return total


def _offered(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
    return state.allocatable[CPU, rows] if request.shape.cpu_only else _gpus(state, state.allocatable, rows)


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """nodeplacement: fill nodes one after the other, or spread over them (cycle:SCO-3)."""

    cpu: str = "binpack"
    gpu: str = "binpack"

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = {
        "cpu": ("cpu", read_one_of("binpack", "spread")),
        "gpu": ("gpu", read_one_of("binpack", "spread")),
    }

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """One score for each strategy, each for the tasks it is configured for."""

        def strategy(request: PlacementRequest) -> str:
            return self.cpu if request.shape.cpu_only else self.gpu

        return Hooks(
            node_scores=(
                NodeScore(
                    "binpack",
                    _pack_scores,
                    applies=lambda request: strategy(request) == "binpack",
                    context=_free_range,
                    at=_pack_score_at,
                ),
                NodeScore("spread", _spread_scores, applies=lambda request: strategy(request) == "spread"),
            )
        )


class FreeAmountRange:
    """Least and most free amount over some nodes, following the rows that change.

    A full pass is needed only when the last node at the least or the most leaves it.
    """

    __slots__ = ("_at_least", "_at_most", "_axes", "_seen", "_state", "_values", "least", "most")

    def __init__(self, state: State, axes: list[int], offering: BoolArray) -> None:
        self._state = state
        self._axes = axes
        #: row -> free amount as last read, of the rows that offer the resource
        amounts = state.free[axes].sum(axis=0)[offering]
        self._values: dict[int, int] = dict(zip(np.flatnonzero(offering).tolist(), amounts.tolist(), strict=True))
        self._seen = len(state.changed_rows)
        self._recount()

    def _recount(self) -> None:
        values = list(self._values.values())
        self.least = min(values, default=0)
        self.most = max(values, default=0)
        self._at_least = values.count(self.least)
        self._at_most = values.count(self.most)

    def current(self) -> tuple[int, int]:
        """The range as of the last placement."""
        state = self._state
        touched = state.changed_rows
        rows = touched[self._seen :]
        for row in rows if len(rows) == 1 else set(rows):
            before = self._values.get(row)
            if before is None:
                continue
            after = 0
            for axis in self._axes:
                after += state.free.item(axis, row)
            if after == before:
                continue
            self._values[row] = after
            self._at_least += (after == self.least) - (before == self.least)
            self._at_most += (after == self.most) - (before == self.most)
            if after < self.least:
                self.least, self._at_least = after, 1
            if after > self.most:
                self.most, self._at_most = after, 1
            if not self._at_least or not self._at_most:
                self._recount()
        self._seen = len(touched)
        return (self.least, self.most)


def _free_range(state: State, request: PlacementRequest, nodes: NodeSet) -> Callable[[], tuple[int, int]]:
    """Least and most free amount over the candidate nodes that offer the resource at all."""

    def make() -> FreeAmountRange:
        offering = _offered(state, request, slice(None)) > 0
        if nodes.mask is not None:
            offering &= nodes.mask
        axes = _CPU_AXES if request.shape.cpu_only else state.snapshot.axes.gpu_axes
        return FreeAmountRange(state, axes, offering)

    return state.snapshot.memo.remember(("free range", request.shape.cpu_only, nodes), make).current


def _density(free: Amount, least: int, most: int) -> Amount:
    """9 for the fullest candidate, 0 for the emptiest."""
    return DENSITY * (1.0 - (free - least) / (most - least))


def _pack_scores(state: State, request: PlacementRequest, rows: Rows, context: tuple[int, int]) -> FloatArray:
    least, most = context
    offered = _offered(state, request, rows) > 0
    if most == 0:
        return np.zeros(offered.shape)
    if least == most:
        return np.multiply(DENSITY, offered)
    return offered * _density(_free(state, request, rows).astype(np.float64), least, most)


def _pack_score_at(
    state: State, request: PlacementRequest, row: int, planes: Planes, context: tuple[int, int]
) -> float:
    least, most = context
    offered = free = 0
    for axis in _CPU_AXES if request.shape.cpu_only else state.snapshot.axes.gpu_axes:
        offered += state.allocatable.item(axis, row)
        free += planes[FREE][axis]
    if most == 0 or not offered:
        return 0.0
    return DENSITY if least == most else _density(float(free), least, most)


def _spread_scores(state: State, request: PlacementRequest, rows: Rows, context: None) -> FloatArray:
    total = state.allocatable[CPU, rows] if request.shape.cpu_only else state.snapshot.nodes.gpu_count[rows]
    free = _free(state, request, rows)
    return np.where(total > 0, free / np.maximum(total, 1), 0.0)


def _gpu_pack_score(state: State, request: PlacementRequest, row: int, device: DeviceUse | None) -> float:
    return 0.0 if device is None else device.used_mib / state.snapshot.nodes.facts[row].gpu_mib


def _gpu_spread_score(state: State, request: PlacementRequest, row: int, device: DeviceUse | None) -> float:
    return 1.0 - _gpu_pack_score(state, request, row, device)


@dataclass(frozen=True, slots=True)
class GpuPack:
    """gpupack: fill the fullest GPU first."""

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = _NO_ARGUMENTS

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """One GPU score."""
        return Hooks(gpu_score=_gpu_pack_score)


@dataclass(frozen=True, slots=True)
class GpuSpread:
    """gpuspread: an untouched GPU first."""

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = _NO_ARGUMENTS

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """One GPU score."""
        return Hooks(gpu_score=_gpu_spread_score)
