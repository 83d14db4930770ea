"""Queue capacity as seen from a node (queues:Q-205) and as an explanation (queues:Q-206, Q-207)."""

from __future__ import annotations

import numpy as np

from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.model.axes import IntArray, Rows
from pykai.core.model.queuetree import GPU, RESOURCE_NAMES, QueueAmounts, QueueTree
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


def _amounts_at(request: PlacementRequest, gpu_mib: int, label_mib: int) -> QueueAmounts:
    return (request.vector.cpu, request.vector.memory, quota_hundredths(request.shape.gpu, gpu_mib, label_mib))


def _refusal_at(state: State, request: PlacementRequest, gpu_mib: int, label_mib: int) -> CapacityRefusal | None:
    if state.quota_gate is None:
        return None
    return state.quota_gate(state, request.gang, _amounts_at(request, gpu_mib, label_mib))


def over_capacity_codes(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
    """[rows] 1 where the portion of a shared request is more than its queue may take.

    A node matters only through the memory of its GPUs, so each size is checked once.  Other requests cost the same
    everywhere and were checked before any node.
    """
    codes, sizes = gpu_sizes(state.snapshot.nodes)
    refused: IntArray = np.array([_refusal_at(state, request, *size) is not None for size in sizes], dtype=np.int64)
    codes_by_row: IntArray = refused[codes[rows]]
    return codes_by_row


def describe_over_capacity(state: State, request: PlacementRequest, code: int, row: int) -> str:
    """The text of `over_capacity_codes` for one node."""
    facts = state.snapshot.nodes.facts[row]
    refusal = _refusal_at(state, request, facts.gpu_mib, facts.gpu_label_mib)
    assert refusal is not None
    amounts = _amounts_at(request, facts.gpu_mib, facts.gpu_label_mib)
    record = over_capacity(state.snapshot.tree, refusal, amounts, request.gang.preemptible)
    return f"node does not have enough capacity. Reason: {reason_of(record)}, Details: {refusal_text(record)}"
