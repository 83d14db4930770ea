"""Which pods may run on nodes with MIG slices (cycle:9.1 steps 5 to 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from pykai.core.cluster.nodetable import NodeTable
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.hooks import NodeCheck, Scope
from pykai.core.model.axes import BoolArray, IntArray, Rows
from pykai.core.model.shapes import GpuKind


def node_column(nodes: NodeTable, name: str, test: Callable[[int], bool]) -> BoolArray:
    """[node] a test on each node, kept as long as no node changes."""
    return nodes.remember(name, lambda: np.array([test(row) for row in range(len(nodes))], dtype=np.bool_))


_NOT_MIG, _SINGLE, _MIXED = 1, 2, 3


#: Beyond these codes every node with legacy MIG pods has its own, because its text names them.
_MIG_TEXTS = (
    "MIG job cannot be scheduled on non-MIG node",
    "only whole gpu jobs can run on a node with MigStrategy='single'",
    "non MIG jobs cant run on a node with MigStrategy='mixed'",
)


def _legacy_mig_pods(snapshot: Snapshot) -> dict[int, list[str]]:
    """Node row -> keys of the pods there that were given MIG slices by annotation, sorted."""
    pods_by_row: dict[int, list[str]] = {}
    for key in sorted(snapshot.legacy_mig_tasks):
        task = snapshot.legacy_mig_tasks[key]
        if task.holds_node and task.node in snapshot.nodes.rows:
            pods_by_row.setdefault(snapshot.nodes.rows[task.node], []).append(key)
    return pods_by_row


def _mig_mismatch(legacy_rows: Iterable[int]) -> Callable[[State, PlacementRequest, Rows], IntArray]:
    """Codes of the MIG rules (cycle:9.1 steps 5 to 7)."""

    def evaluate(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
        nodes = state.snapshot.nodes
        enabled = node_column(nodes, "mig enabled", lambda row: nodes.facts[row].mig_enabled)
        single = node_column(nodes, "mig single", lambda row: nodes.facts[row].mig_strategy == "single")
        mixed = node_column(nodes, "mig mixed", lambda row: nodes.facts[row].mig_strategy == "mixed")
        codes = np.zeros(len(nodes), dtype=np.int64)
        kind = request.shape.gpu.kind
        if kind is GpuKind.MIG:
            codes[~enabled] = _NOT_MIG
            for code, row in enumerate(legacy_rows, start=len(_MIG_TEXTS) + 1):
                if codes[row] == 0:
                    codes[row] = code
        if kind is not GpuKind.WHOLE:
            codes[(codes == 0) & single] = _SINGLE
        if kind is not GpuKind.MIG:
            codes[(codes == 0) & mixed] = _MIXED
        row_codes: IntArray = codes[rows]
        return row_codes

    return evaluate


def mig_checks(snapshot: Snapshot) -> tuple[NodeCheck, ...]:
    """The checks; nodes with legacy MIG pods name them in their texts."""
    legacy = _legacy_mig_pods(snapshot)
    legacy_texts = (
        f"MIG job cannot be scheduled on node with legacy MIG jobs: <[{' '.join(pods)}]>" for pods in legacy.values()
    )
    return (NodeCheck("MIG", (*_MIG_TEXTS, *legacy_texts), _mig_mismatch(tuple(legacy)), Scope.NODES, _requests_gpu),)


def _requests_gpu(request: PlacementRequest) -> bool:
    return not request.shape.cpu_only
