"""predicates: what keeps a pod off a node, apart from resources (cycle:9, gpu:5.1).

The first check that refuses a node gives its reason.  Which Kubernetes filters are reused, and
their texts: cycle:FLT-2, FLT-3.  Hard topology spread constraints are one of them here, which KAI leaves out (ADR 26).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pykai.core.cluster.nodematching import has_untolerated_taint, matches_node_selector
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.hooks import Hooks, NodeCheck, Observers, Scope
from pykai.core.model.axes import PODS, BoolArray, IntArray, Rows, row_numbers
from pykai.core.model.shapes import GpuKind
from pykai.core.placing.affinity import AFFINITY_TEXTS, affinity_index
from pykai.core.placing.capacity import describe_over_capacity, over_capacity_codes
from pykai.core.placing.gpus import choose_devices
from pykai.core.placing.ports import port_conflict_codes
from pykai.core.placing.reasons import PODS_EXCEEDED
from pykai.core.placing.spread import SPREAD_TEXTS, spread_index
from pykai.core.plugins.arguments import ArgumentReader, read_flag
from pykai.core.plugins.migrules import mig_checks, node_column
from pykai.core.plugins.prefilters import config_map_check, max_node_resources_check
from pykai.core.plugins.volumes import combine_keys, volume_hooks

_NODES = Scope.NODES


def _shares_gpu(request: PlacementRequest) -> bool:
    return request.shape.shared


def _codes_where(refused: BoolArray, rows: Rows) -> IntArray:
    return refused[rows].astype(np.int64)


def _slots_for_reservations(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
    """A shared request also needs a pod slot for every device it is the first to share (gpu:P-7, Do better).

    Statements: cycle:FLT-10.
    """
    free = state.free[PODS][rows]
    codes = np.zeros(len(free), dtype=np.int64)
    few = np.flatnonzero((free >= 1) & (free < 1 + request.shape.gpu.devices)).tolist()
    if few:
        numbers = row_numbers(rows, len(state.snapshot.nodes))
        for position in few:
            codes[position] = _slots_for_reservations_at(state, request, numbers[position])
    return codes


def _slots_for_reservations_at(state: State, request: PlacementRequest, row: int) -> int:
    """The same for one row."""
    free = state.free.item(PODS, row)
    if not 1 <= free < 1 + request.shape.gpu.devices:
        return 0
    assignment = choose_devices(state, request, row, pipeline_only=False, allow_stay=False)
    return int(assignment is not None and free < 1 + assignment.new_groups)


def _blocked_codes(snapshot: Snapshot) -> tuple[tuple[str, ...], IntArray]:
    nodes = snapshot.nodes

    def make() -> tuple[tuple[str, ...], IntArray]:
        texts = tuple(sorted({node.unschedulable_reason for node in nodes.facts if node.unschedulable_reason}))
        numbers = {text: index + 1 for index, text in enumerate(texts)}
        return texts, np.array([numbers.get(node.unschedulable_reason, 0) for node in nodes.facts], dtype=np.int64)

    return nodes.remember("blocked", make)


def _worker_label_check(snapshot: Snapshot) -> Callable[[State, PlacementRequest, Rows], IntArray]:
    shard = snapshot.shard

    def evaluate(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
        label = shard.cpu_worker_label if request.shape.cpu_only else shard.gpu_worker_label
        missing = state.snapshot.nodes.per_label(label, lambda value: value is None)
        return _codes_where(missing, rows) * (2 if request.shape.cpu_only else 1)

    return evaluate


def _refuse_all(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
    return np.ones(len(state.snapshot.nodes), dtype=np.int64)[rows]


def _offers_dra_gpus(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
    nodes = state.snapshot.nodes
    return _codes_where(node_column(nodes, "DRA GPUs", lambda row: nodes.facts[row].dra_gpus > 0), rows)


def _memory_unknown(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
    return _codes_where(~state.snapshot.nodes.has_gpu_memory_label, rows)


def _has_taint(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
    return _codes_where(has_untolerated_taint(state.snapshot.nodes, request.shape), rows)


def _not_selected(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
    return _codes_where(~matches_node_selector(state.snapshot.nodes, request.shape), rows)


def _gpu_checks(snapshot: Snapshot) -> tuple[NodeCheck, ...]:
    """What shared GPUs, MIG slices and gpu-memory need of a node (gpu:P-1 to P-5)."""
    return (
        NodeCheck(
            "queue capacity",
            (),
            over_capacity_codes,
            Scope.REQUEST,
            _shares_gpu,
            describe=describe_over_capacity,
            key=lambda request: (request.gang.queue, request.gang.preemptible),
        ),
        NodeCheck(
            "legacy MIG",
            ("Legacy MIG jobs cannot be scheduled on node {node}",),
            _refuse_all,
            _NODES,
            lambda request: request.shape.gpu.legacy_mig,
        ),
        NodeCheck(
            "GPUs of slices",
            ("fractional/shared GPU pods are not yet supported on DRA-only nodes",),
            _offers_dra_gpus,
            _NODES,
            _shares_gpu,
        ),
        *mig_checks(snapshot),
        NodeCheck(
            "GPU memory known",
            (
                "node is not a gpu node or the gpu memory count on the node was not synced yet, "
                "task: {pod}, node: {node}",
            ),
            _memory_unknown,
            _NODES,
            lambda request: request.shape.gpu.kind is GpuKind.MEMORY,
        ),
        NodeCheck(
            "pod slots",
            (PODS_EXCEEDED,),
            _slots_for_reservations,
            Scope.ROW,
            _shares_gpu,
            at=_slots_for_reservations_at,
        ),
    )


def _kubernetes_checks(snapshot: Snapshot) -> tuple[NodeCheck, ...]:
    """Filters of kube-scheduler that read one node (cycle:FLT-2)."""
    blocked_texts, blocked_codes = _blocked_codes(snapshot)

    def blocked(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
        codes: IntArray = blocked_codes[rows]
        return codes

    return (
        NodeCheck("node conditions", blocked_texts, blocked, _NODES, lambda request: bool(blocked_texts)),
        NodeCheck(
            "host ports",
            ("node(s) didn't have free ports for the requested pod ports",),
            port_conflict_codes,
            Scope.ROW,
            lambda request: bool(request.shape.host_ports),
        ),
        NodeCheck("taints", ("node(s) had untolerated taint(s)",), _has_taint, _NODES),
        NodeCheck(
            "node affinity",
            ("node(s) didn't match Pod's node affinity/selector",),
            _not_selected,
            _NODES,
            lambda request: bool(request.shape.node_selector) or request.shape.node_terms is not None,
        ),
    )


def _worker_checks(snapshot: Snapshot) -> tuple[NodeCheck, ...]:
    """GPU and CPU pods on nodes labelled for them, where the shard restricts nodes."""
    if not snapshot.shard.restrict_nodes:
        return ()
    texts = (
        "gpu task: {pod} can't run on non gpu nodes, node: {node}",
        "cpu task: {pod} can't run on non cpu nodes, node: {node}",
    )
    return (NodeCheck("worker nodes", texts, _worker_label_check(snapshot), _NODES),)


@dataclass(frozen=True, slots=True)
class Predicates:
    """The filters; `topologySpread: false` leaves out topology spread constraints, as KAI Scheduler does."""

    topology_spread: bool = True

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = {"topologySpread": ("topology_spread", read_flag)}

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """Checks in the order of cycle:9.1."""
        affinity = affinity_index(snapshot)
        spread = spread_index(snapshot) if self.topology_spread and snapshot.shapes.has_hard_spread else None
        volumes = volume_hooks(snapshot)
        checks = [
            *_gpu_checks(snapshot),
            *_kubernetes_checks(snapshot),
            NodeCheck("pod affinity", AFFINITY_TEXTS, affinity.refusal_codes, Scope.ROW, affinity.applies_to),
            *volumes.node_checks,
        ]
        if spread is not None:
            checks.append(NodeCheck("topology spread", SPREAD_TEXTS, spread.refusal_codes, applies=spread.can_refuse))
        checks += _worker_checks(snapshot)
        return Hooks(
            pre_place=(*volumes.pre_place, max_node_resources_check(snapshot), config_map_check(snapshot)),
            node_checks=tuple(checks),
            unresolvable=affinity.is_unresolvable if affinity.active else None,
            cache_key=combine_keys(
                affinity.key if affinity.active else None,
                combine_keys(spread.key if spread is not None else None, volumes.cache_key),
            ),
            observer=Observers(
                tuple(one for one in (affinity if affinity.active else None, spread) if one is not None)
            ),
            discrete_ledger=volumes.discrete_ledger,
        )
