"""Queue capacity as seen from a node (queues:Q-205) and as an explanation (queues:Q-206, Q-207)."""

from __future__ import annotations

import numpy as np

from pykai.core.cluster.nodetable import NodeTable
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.model.axes import IntArray, Rows
from pykai.core.model.queuetree import GPU, RESOURCE_NAMES, QueueAmounts, QueueTree
from pykai.core.model.shapes import GpuRequest
from pykai.core.model.sharedgpus import quota_hundredths
from pykai.core.placing.fit import gpu_sizes
from pykai.core.queueing.queueledger import CapacityRefusal
from pykai.core.report.decisions import OverCapacity
from pykai.core.report.sentences import reason_of, refusal_text


def over_capacity(tree: QueueTree, refusal: CapacityRefusal, amounts: QueueAmounts, preemptible: bool) -> OverCapacity:
    """A refusal of the queue ledger as a record."""
    scale = 100.0 if refusal.resource == GPU else 1.0
    return OverCapacity(
        rule=refusal.rule,
        queue=tree.names[refusal.queue],
        display_name=tree.display_names[refusal.queue],
        resource=RESOURCE_NAMES[refusal.resource],
        bound=refusal.bound / scale,
        used=refusal.used / scale,
        requested=refusal.requested / scale,
        asked=(amounts[0], amounts[1], amounts[2] / 100.0),
        preemptible=preemptible,
        leaving=refusal.terminating / scale,
    )


def _hundredths(nodes: NodeTable, gpu: GpuRequest) -> tuple[IntArray, list[int]]:
    """[node] number of what a request costs its queue there, and the costs, in hundredths of a GPU."""

    def make() -> tuple[IntArray, list[int]]:
        codes, sizes = gpu_sizes(nodes)
        costs: dict[int, int] = {}
        by_size = [costs.setdefault(quota_hundredths(gpu, *size), len(costs)) for size in sizes]
        return np.array(by_size, dtype=np.int64)[codes], list(costs)

    return nodes.remember(("quota hundredths", gpu), make)


def _amounts(request: PlacementRequest, hundredths: int) -> QueueAmounts:
    return (request.vector.cpu, request.vector.memory, hundredths)


def over_capacity_codes(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
    """[rows] 1 where the portion of a shared request is more than its queue may take.

    A node matters only through the memory of its GPUs, and most sizes cost the same, so each cost is checked once.
    Other requests cost the same everywhere and were checked before any node.
    """
    codes, costs = _hundredths(state.snapshot.nodes, request.shape.gpu)
    gate = state.quota_gate
    refused = [gate is not None and gate(state, request.gang, _amounts(request, cost)) is not None for cost in costs]
    codes_by_row: IntArray = np.array(refused, dtype=np.int64)[codes[rows]]
    return codes_by_row


def describe_over_capacity(state: State, request: PlacementRequest, code: int, row: int) -> str:
    """The text of `over_capacity_codes` for one node."""
    codes, costs = _hundredths(state.snapshot.nodes, request.shape.gpu)
    amounts = _amounts(request, costs[codes.item(row)])
    refusal = None if state.quota_gate is None else state.quota_gate(state, request.gang, amounts)
    assert refusal is not None
    record = over_capacity(state.snapshot.tree, refusal, amounts, request.gang.preemptible)
    return f"node does not have enough capacity. Reason: {reason_of(record)}, Details: {refusal_text(record)}"
