"""predicates: what keeps a pod off a node, apart from resources (cycle:9, gpu:5.1).

The order of the checks is the order in which a node's reason is looked for.  Which Kubernetes filters are reused, and
their texts: cycle:FLT-2, FLT-3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pykai.core.axes import CPU, MEMORY, PODS, BoolArray, IntArray, is_gpu, is_mig
from pykai.core.explain import number, raw_number
from pykai.core.hooks import Ask, Hooks, NodeCheck, PreFailure, Rows, Scope
from pykai.core.place.affinity import AFFINITY_TEXTS, affinity_index
from pykai.core.place.capacity import describe_over_capacity, node_over_capacity
from pykai.core.place.constraints import selected, tainted
from pykai.core.place.fit import row_numbers
from pykai.core.place.gpus import choose_devices
from pykai.core.place.ports import taken_ports
from pykai.core.place.reasons import PODS_EXCEEDED
from pykai.core.plugins.arguments import Reader
from pykai.core.shapes import GpuKind, Shape
from pykai.core.snapshot import NodeTable, Snapshot
from pykai.core.state import State

_NODES = Scope.NODES


def _shared(ask: Ask) -> bool:
    return ask.shape.gpu.shared


def _wants_gpu(ask: Ask) -> bool:
    return not ask.shape.cpu_only


def _where(refused: BoolArray, rows: Rows) -> IntArray:
    return refused[rows].astype(np.int64)


def _column(nodes: NodeTable, name: str, test: Callable[[int], bool]) -> BoolArray:
    return nodes.remember(name, lambda: np.array([test(row) for row in range(len(nodes))], dtype=np.bool_))


def _mig_mismatch(legacy_rows: frozenset[int]) -> Callable[[State, Ask, Rows], IntArray]:
    """Codes of the MIG rules (cycle:9.1 steps 5 to 7)."""

    def evaluate(state: State, ask: Ask, rows: Rows) -> IntArray:
        nodes = state.snapshot.nodes
        enabled = _column(nodes, "mig enabled", lambda row: nodes.facts[row].mig_enabled)
        single = _column(nodes, "mig single", lambda row: nodes.facts[row].mig_strategy == "single")
        mixed = _column(nodes, "mig mixed", lambda row: nodes.facts[row].mig_strategy == "mixed")
        codes = np.zeros(len(nodes), dtype=np.int64)
        kind = ask.shape.gpu.kind
        if kind is GpuKind.MIG:
            codes[~enabled] = 1
            for row in legacy_rows:
                if codes[row] == 0:
                    codes[row] = 2
        if kind is not GpuKind.WHOLE:
            codes[(codes == 0) & single] = 3
        if kind is not GpuKind.MIG:
            codes[(codes == 0) & mixed] = 4
        found: IntArray = codes[rows]
        return found

    return evaluate


def _slots_for_reservations(state: State, ask: Ask, rows: Rows) -> IntArray:
    """A shared request also needs a pod slot for every device it is the first to share (gpu:P-7, Do better)."""
    numbers = row_numbers(rows, len(state.snapshot.nodes))
    codes = np.zeros(len(numbers), dtype=np.int64)
    free = state.free[PODS][rows]
    most = 1 + ask.shape.gpu.devices
    for position in np.flatnonzero((free >= 1) & (free < most)):
        row = numbers[int(position)]
        seating = choose_devices(state, ask, row, pipeline_only=False)
        if seating is not None and free[position] < 1 + seating.fresh:
            codes[position] = 1
    return codes


def _blocked_codes(snapshot: Snapshot) -> tuple[tuple[str, ...], IntArray]:
    nodes = snapshot.nodes

    def make() -> tuple[tuple[str, ...], IntArray]:
        texts = tuple(sorted({node.blocked for node in nodes.facts if node.blocked}))
        numbers = {text: index + 1 for index, text in enumerate(texts)}
        return texts, np.array([numbers.get(node.blocked, 0) for node in nodes.facts], dtype=np.int64)

    return nodes.remember("blocked", make)


def _wrong_worker(snapshot: Snapshot) -> Callable[[State, Ask, Rows], IntArray]:
    shard = snapshot.shard

    def evaluate(state: State, ask: Ask, rows: Rows) -> IntArray:
        label = shard.cpu_worker_label if ask.shape.cpu_only else shard.gpu_worker_label
        missing = state.snapshot.nodes.per_label(label, lambda value: value is None)
        return _where(missing, rows) * (2 if ask.shape.cpu_only else 1)

    return evaluate


@dataclass(frozen=True, slots=True)
class Predicates:
    """The filters."""

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, Reader]]] = {}

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """Checks in the order of cycle:9.1."""
        nodes = snapshot.nodes
        index = affinity_index(snapshot)
        legacy = frozenset(
            nodes.rows[task.node] for task in snapshot.legacy_mig_tasks.values() if task.node in nodes.rows
        )
        legacy_names = ",".join(sorted(t.key for t in snapshot.legacy_mig_tasks.values() if t.node in nodes.rows))
        blocked_texts, blocked_codes = _blocked_codes(snapshot)

        def refuse_all(state: State, ask: Ask, rows: Rows) -> IntArray:
            return np.ones(len(nodes), dtype=np.int64)[rows]

        def memory_unknown(state: State, ask: Ask, rows: Rows) -> IntArray:
            return _where(~nodes.gpu_mib_known, rows)

        def blocked(state: State, ask: Ask, rows: Rows) -> IntArray:
            codes: IntArray = blocked_codes[rows]
            return codes

        def has_taint(state: State, ask: Ask, rows: Rows) -> IntArray:
            return _where(tainted(nodes, ask.shape), rows)

        def not_selected(state: State, ask: Ask, rows: Rows) -> IntArray:
            return _where(~selected(nodes, ask.shape), rows)

        checks = [
            NodeCheck(
                "queue capacity",
                (),
                node_over_capacity,
                Scope.ASK,
                _shared,
                describe=describe_over_capacity,
                key=lambda ask: (ask.gang.queue, ask.gang.preemptible),
            ),
            NodeCheck(
                "legacy MIG",
                ("Legacy MIG jobs cannot be scheduled on node {node}",),
                refuse_all,
                _NODES,
                lambda ask: ask.shape.gpu.legacy_mig,
            ),
            NodeCheck(
                "MIG",
                (
                    "MIG job cannot be scheduled on non-MIG node",
                    f"MIG job cannot be scheduled on node with legacy MIG jobs: <[{legacy_names}]>",
                    "only whole gpu jobs can run on a node with MigStrategy='single'",
                    "non MIG jobs cant run on a node with MigStrategy='mixed'",
                ),
                _mig_mismatch(legacy),
                _NODES,
                _wants_gpu,
            ),
            NodeCheck(
                "GPU memory known",
                (
                    "node is not a gpu node or the gpu memory count on the node was not synced yet, "
                    "task: {pod}, node: {node}",
                ),
                memory_unknown,
                _NODES,
                lambda ask: ask.shape.gpu.kind is GpuKind.MEMORY,
            ),
            NodeCheck("pod slots", (PODS_EXCEEDED,), _slots_for_reservations, Scope.ROW, _shared),
            NodeCheck("node conditions", blocked_texts, blocked, _NODES, lambda ask: bool(blocked_texts)),
            NodeCheck(
                "host ports",
                ("node(s) didn't have free ports for the requested pod ports",),
                taken_ports,
                Scope.ROW,
                lambda ask: bool(ask.shape.host_ports),
            ),
            NodeCheck("taints", ("node(s) had untolerated taint(s)",), has_taint, _NODES),
            NodeCheck(
                "node affinity",
                ("node(s) didn't match Pod's node affinity/selector",),
                not_selected,
                _NODES,
                lambda ask: bool(ask.shape.node_selector) or ask.shape.node_terms is not None,
            ),
            NodeCheck("pod affinity", AFFINITY_TEXTS, index.refused, Scope.ROW, index.concerns),
        ]
        if snapshot.shard.restrict_nodes:
            checks.append(
                NodeCheck(
                    "worker nodes",
                    (
                        "gpu task: {pod} can't run on non gpu nodes, node: {node}",
                        "cpu task: {pod} can't run on non cpu nodes, node: {node}",
                    ),
                    _wrong_worker(snapshot),
                    _NODES,
                )
            )
        return Hooks(
            pre_place=_PrePlace(snapshot),
            node_checks=tuple(checks),
            ask_key=index.key if index.active else None,
            observer=index if index.active else None,
        )


class _PrePlace:
    """Reasons that hold for every node: more than any node has, or a missing config map (cycle:FLT-7, FLT-8)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[int, PreFailure | None] = {}
        size = len(snapshot.nodes)
        self._most = snapshot.allocatable.max(axis=1) if size else np.zeros(len(snapshot.axes), dtype=np.int64)

    def __call__(self, state: State, ask: Ask) -> PreFailure | None:
        shape = ask.shape
        if shape.id not in self._known:
            self._known[shape.id] = self._too_large(shape) or self._missing_config_maps(shape)
        return self._known[shape.id]

    def _too_large(self, shape: Shape) -> PreFailure | None:
        axes, pool = self._snapshot.axes, self._snapshot.shard.node_pool or "default"
        most = [int(value) for value in self._most]
        wanted = {axes.index[name]: value for name, value in shape.requests}
        order = sorted(
            (axis for axis in wanted if axis != PODS),
            key=lambda axis: (not is_gpu(axes.names[axis]), axis != CPU, axis != MEMORY, axes.names[axis]),
        )
        devices_short = shape.gpu.shared and max((most[axis] for axis in axes.gpu_axes), default=0) < shape.gpu.devices
        short = next((axis for axis in order if axis >= len(most) or wanted[axis] > most[axis]), None)
        if devices_short and (short is None or not is_gpu(axes.names[short])):
            word, have, unit = "GPU", max((most[axis] for axis in axes.gpu_axes), default=0), ""
            return self._max_failure(shape, word, float(have), unit, pool)
        if short is None:
            return None
        have = most[short] if short < len(most) else 0
        name = axes.names[short]
        if is_gpu(name):
            return self._max_failure(shape, "GPU", float(have), "", pool)
        if short == CPU:
            return self._max_failure(shape, "CPU", have / 1000.0, " cores", pool)
        if short == MEMORY:
            return self._max_failure(shape, "memory", have / 1e9, " GB", pool)
        return self._max_failure(shape, name, float(have), "", pool)

    def _max_failure(self, shape: Shape, word: str, have: float, unit: str, pool: str) -> PreFailure:
        asked = dict(shape.requests)
        gpus = shape.gpu_hundredths / 100.0 if shape.gpu.kind is not GpuKind.MIG else 0.0
        text = (
            f"The pod {{pod}} requires GPU: {raw_number(gpus)}, CPU: {number(asked.get('cpu', 0) / 1000.0)} (cores), "
            f"memory: {number(asked.get('memory', 0) / 1e9)} (GB)"
        )
        for name, value in shape.requests:
            if is_mig(name):
                text += f", mig {name.removeprefix('nvidia.com/mig-')}: {value}"
            elif name not in ("cpu", "memory", "pods") and not is_gpu(name):
                text += f", {name}: {value}"
        text += ". "
        if have <= 0:
            text += f"No node in the {pool} node-pool has {word} resources"
        else:
            text += (
                f"Max {word} resources available in a single node in the {pool} node-pool is topped at "
                f"{number(have)}{unit}"
            )
        return PreFailure("MaxNodePoolResources", text, unresolvable=True)

    def _missing_config_maps(self, shape: Shape) -> PreFailure | None:
        known = self._snapshot.config_maps
        missing = [name for name in shape.config_maps if f"{shape.namespace}/{name}" not in known]
        if not missing:
            return None
        return PreFailure("ConfigMap", f"Missing required configmaps: [{' '.join(missing)}]", unresolvable=True)
