"""Why each node refuses a request, with figures (cycle:EXP-4).

This is the long form of `reasons.py`, made only on request: one text per node instead of a count per reason.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from pykai.api.gpuvendors import is_gpu
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.hooks import Rules
from pykai.core.model.axes import PODS, is_mig
from pykai.core.model.shapes import GpuKind
from pykai.core.placing.fit import device_fits_request, devices_with_room, has_unshareable_gpus, whole_gpus
from pykai.core.placing.reasons import PODS_EXCEEDED, UNSHAREABLE, check_refusals, is_short_of
from pykai.core.report.sentences import amount_text, format_number

_SHORT = "Node didn't have enough resources: "
_ALL = slice(None)


def _gpus(value: float) -> str:
    """Three significant digits, as Go's %.3g."""
    return f"{value:.3g}"


def _amount(name: str, value: int) -> str:
    if name == "cpu":
        return format_number(value / 1000.0)
    if name == "memory":
        return format_number(value / 1e9)
    return _gpus(value) if is_gpu(name) else amount_text(name, value)


def _word(name: str) -> str:
    if name == "cpu":
        return "CPU cores"
    return "GPUs" if is_gpu(name) else name


def _shortage_text(state: State, name: str, row: int, wanted: int, is_multi_pod: bool) -> str:
    word = _word(name)
    if is_multi_pod:
        return f"{_SHORT}{word}, taking all considerations into account"
    axis = state.snapshot.axes.index.get(name)
    used, offered = (0, 0) if axis is None else (int(state.used[axis, row]), int(state.allocatable[axis, row]))
    if is_gpu(name):
        used += len(state.devices.get(row, ()))
    figures = (wanted, used, offered)
    requested, in_use, capacity = (_amount(name, figure) for figure in figures)
    what = f"Node didn't have enough of mig profile: {word}" if is_mig(word) else f"{_SHORT}{word}"
    return f"{what}, requested: {requested}, used: {in_use}, capacity: {capacity}"


def _axis_position(state: State, request: tuple[str, int]) -> int:
    """In the order of the axes; resources that no node offers come last."""
    return state.snapshot.axes.index.get(request[0], len(state.snapshot.axes))


def _device_shortage_text(state: State, request: PlacementRequest, row: int, is_multi_pod: bool) -> str:
    if is_multi_pod:
        return f"{_SHORT}GPUs, taking all considerations into account"
    gpu = request.shape.gpu
    axes = state.snapshot.axes.gpu_axes
    used = sum(int(state.used[axis, row]) for axis in axes) + len(state.devices.get(row, ()))
    capacity = sum(int(state.allocatable[axis, row]) for axis in axes)
    portion = state.amounts_on(request.shape, row)[2] / 100.0 / gpu.devices
    requested = f"{gpu.devices} X {_gpus(portion)}" if gpu.devices > 1 else _gpus(portion)
    return f"{_SHORT}GPUs, requested: {requested}, used: {_gpus(used)}, capacity: {_gpus(capacity)}"


def node_details(state: State, rules: Rules, request: PlacementRequest, *, is_multi_pod: bool) -> dict[str, str]:
    """Node -> why it refuses; nodes that refuse nothing are left out.  `several`: the job has more than one pod."""
    nodes = state.snapshot.nodes
    texts_by_row: dict[int, list[str]] = {}
    for name, wanted in sorted(request.shape.requests, key=partial(_axis_position, state)):
        if name != "pods":
            for row in np.flatnonzero(is_short_of(state, name, wanted)).tolist():
                texts_by_row.setdefault(row, []).append(_shortage_text(state, name, row, wanted, is_multi_pod))
    if request.shape.shared:
        count = np.maximum(whole_gpus(state, state.free, _ALL), 0) + devices_with_room(state, request.shape, _ALL)
        too_small = ~device_fits_request(nodes, request.shape)
        unshareable = has_unshareable_gpus(state.snapshot)
        for row in np.flatnonzero(too_small | (count < request.shape.gpu.devices)).tolist():
            if unshareable[row]:
                text = UNSHAREABLE
            elif too_small[row] and request.shape.gpu.kind is GpuKind.MEMORY:
                text = (
                    f"{_SHORT}Each gpu on the node has a gpu memory capacity of {nodes.facts[row].gpu_mib} Mib. "
                    f"{request.shape.gpu.memory_mib} Mib of gpu memory has been requested"
                )
            else:
                text = _device_shortage_text(state, request, row, is_multi_pod)
            texts_by_row.setdefault(row, []).append(text)
    undecided = np.ones(len(nodes), dtype=np.bool_)
    undecided[list(texts_by_row)] = False
    for row in np.flatnonzero(undecided & (state.free[PODS] < 1)).tolist():
        texts_by_row[row] = [PODS_EXCEEDED]
        undecided[row] = False
    for text, rows in check_refusals(state, rules, request, undecided):
        for row in rows:
            texts_by_row[row] = [text.replace("{pod}", request.task.key)]
    return {nodes.names[row]: ", ".join(texts_by_row[row]) for row in sorted(texts_by_row)}
