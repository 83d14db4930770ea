"""Why nodes refuse a request, counted (cycle:EXP-1 to EXP-3).

Evaluated only when no node fits.  A node short of resources contributes every resource it is short of; any other node
contributes the first check that refuses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from pykai.api.gpuvendors import SHAREABLE_GPU, is_gpu
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.hooks import NodeSet, Rules
from pykai.core.model.axes import PODS, BoolArray, is_mig
from pykai.core.model.shapes import GpuKind, Shape
from pykai.core.placing.fit import device_fits_request, devices_with_room, has_unshareable_gpus, whole_gpus
from pykai.core.report.sentences import amount_text

PODS_EXCEEDED = "node(s) pod number exceeded"
UNSHAREABLE = f"node(s) have GPUs that pods cannot share, only those of {SHAREABLE_GPU} can be shared"
_SHORT = "node(s) didn't have enough resources: "
_ALL = slice(None)


def shortage_text(name: str) -> str:
    """The text for a shortage of one resource."""
    if name == "cpu":
        return f"{_SHORT}CPU cores"
    if is_gpu(name):
        return f"{_SHORT}GPUs"
    if is_mig(name):
        return f"node(s) didn't have enough of mig profile: {name}"
    return f"{_SHORT}{name}"


def is_short_of(state: State, name: str, requested: int) -> BoolArray:
    """[node] whether it has too little of a resource free; a resource that no node offers has no axis."""
    axis = state.snapshot.axes.index.get(name)
    if axis is None:
        return np.full(len(state.snapshot.nodes), requested > 0)
    short: BoolArray = state.free[axis] < requested
    return short


def _overhead_note(shape: Shape) -> str:
    listed = ", ".join(f"{name}: {amount_text(name, value)}" for name, value in shape.overhead)
    return f". Not enough resources due to pod overhead resources. The overhead resources are  {listed}"


def _shortages(state: State, request: PlacementRequest) -> tuple[list[tuple[str, BoolArray]], BoolArray]:
    """Texts with the nodes they hold for, and all nodes that are short of something other than pod slots."""
    free = state.free
    overhead = dict(request.shape.overhead)
    shortages: list[tuple[str, BoolArray]] = []
    # [node] would be short of something even if the pod had no overhead
    short_without_overhead = free[PODS] < 1
    for name, requested in request.shape.requests:
        if name != "pods":
            shortages.append((shortage_text(name), is_short_of(state, name, requested)))
            short_without_overhead |= is_short_of(state, name, requested - overhead.get(name, 0))
    if request.shape.shared:
        nodes = state.snapshot.nodes
        count = np.maximum(whole_gpus(state, free, _ALL), 0) + devices_with_room(state, request.shape, _ALL)
        small = ~device_fits_request(nodes, request.shape)
        unshareable = has_unshareable_gpus(state.snapshot)
        shortages.append((UNSHAREABLE, unshareable))
        if request.shape.gpu.kind is GpuKind.MEMORY:
            # Too little memory on each device is a different reason than too few devices.
            too_small = small & (whole_gpus(state, state.allocatable, _ALL) > 0)
            shortages.append((f"{_SHORT}GPU memory", too_small))
            shortages.append((f"{_SHORT}GPUs", (count < request.shape.gpu.devices) & ~too_small & ~unshareable))
        else:
            shortages.append((f"{_SHORT}GPUs", ((count < request.shape.gpu.devices) | small) & ~unshareable))
        short_without_overhead |= (count < request.shape.gpu.devices) | small
    short_of_any = np.zeros(free.shape[1], dtype=np.bool_)
    for _, short in shortages:
        short_of_any |= short
    if overhead:
        note = _overhead_note(request.shape)
        shortages = [
            *((text + note, short & ~short_without_overhead) for text, short in shortages),
            *((text, short & short_without_overhead) for text, short in shortages),
        ]
    return shortages, short_of_any


def count_refusals(state: State, rules: Rules, request: PlacementRequest, nodes: NodeSet) -> dict[str, int]:
    """Reason -> number of nodes, over the nodes of the attempt; `{pod}` stays in the text (gpu:P-9)."""
    size = len(state.snapshot.nodes)
    inside = np.ones(size, dtype=np.bool_) if nodes.mask is None else nodes.mask
    counts: Counter[str] = Counter()
    shortages, short = _shortages(state, request)
    columns: dict[str, BoolArray] = {}
    for text, column in shortages:
        # GPUs of two vendors have one name here, and a node reports it once.
        columns[text] = columns[text] | column if text in columns else column
    for text, column in columns.items():
        if count := int((column & inside).sum()):
            counts[text] += count
    undecided = inside & ~short
    full = undecided & (state.free[PODS] < 1)
    if count := int(full.sum()):
        counts[PODS_EXCEEDED] += count
    undecided &= ~full
    for text, rows in check_refusals(state, rules, request, undecided):
        counts[text] += len(rows)
    return dict(sorted(counts.items()))


def check_refusals(
    state: State, rules: Rules, request: PlacementRequest, undecided: BoolArray
) -> Iterator[tuple[str, list[int]]]:
    """For nodes that are not short of anything, the first check that refuses each: a text and the rows it holds for.

    `left` is changed: the rows that stay in it are refused by no check.
    """
    for check in rules.checks:
        if not undecided.any():
            break
        if not check.applies(request):
            continue
        codes = np.where(undecided, check.evaluate(state, request, _ALL), 0)
        undecided &= codes == 0
        for code in np.unique(codes[codes > 0]):
            rows: list[int] = np.flatnonzero(codes == code).tolist()
            if check.describe is not None:
                for row in rows:
                    yield check.describe(state, request, int(code), row), [row]
                continue
            text = check.texts[int(code) - 1]
            if "{node}" in text:
                for row in rows:
                    yield text.replace("{node}", state.snapshot.nodes.names[row]), [row]
            else:
                yield text, rows
