"""predicates: what keeps a pod off a node, apart from resources (cycle:9, gpu:5.1).

The order of the checks is the order in which a node's reason is looked for.  Which Kubernetes filters are reused, and
their texts: cycle:FLT-2, FLT-3.  Hard topology spread constraints are one of them here, which KAI leaves out (ADR 26).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pykai.api.names import DRA_GPU
from pykai.core.cluster.nodematching import has_untolerated_taint, matches_node_selector
from pykai.core.cluster.nodetable import NodeTable
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.state import State
from pykai.core.hooks import Hooks, NodeCheck, Observers, PlacementRequest, PreFailure, Scope
from pykai.core.ledgers.claims.feasible import minimum_devices
from pykai.core.model.axes import PODS, BoolArray, IntArray, Rows, amount, is_gpu, is_mig, row_numbers
from pykai.core.model.shapes import GpuKind, Shape
from pykai.core.placing.affinity import AFFINITY_TEXTS, affinity_index
from pykai.core.placing.capacity import describe_over_capacity, over_capacity_codes
from pykai.core.placing.gpus import choose_devices
from pykai.core.placing.ports import port_conflict_codes
from pykai.core.placing.reasons import PODS_EXCEEDED
from pykai.core.placing.spread import SPREAD_TEXTS, spread_index
from pykai.core.plugins.arguments import ArgumentReader, read_flag
from pykai.core.plugins.volumes import combine_keys, volume_hooks
from pykai.core.report.sentences import format_go_float, format_number

_NODES = Scope.NODES


def _shares_gpu(request: PlacementRequest) -> bool:
    return request.shape.shared


def _requests_gpu(request: PlacementRequest) -> bool:
    return not request.shape.cpu_only


def _codes_where(refused: BoolArray, rows: Rows) -> IntArray:
    return refused[rows].astype(np.int64)


def _node_column(nodes: NodeTable, name: str, test: Callable[[int], bool]) -> BoolArray:
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
        enabled = _node_column(nodes, "mig enabled", lambda row: nodes.facts[row].mig_enabled)
        single = _node_column(nodes, "mig single", lambda row: nodes.facts[row].mig_strategy == "single")
        mixed = _node_column(nodes, "mig mixed", lambda row: nodes.facts[row].mig_strategy == "mixed")
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


def _slots_for_reservations(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
    """A shared request also needs a pod slot for every device it is the first to share (gpu:P-7, Do better).

    Statements: cycle:FLT-10.
    """
    numbers = row_numbers(rows, len(state.snapshot.nodes))
    codes = np.zeros(len(numbers), dtype=np.int64)
    free = state.free[PODS][rows]
    most = 1 + request.shape.gpu.devices
    for position in np.flatnonzero((free >= 1) & (free < most)):
        row = numbers[int(position)]
        assignment = choose_devices(state, request, row, pipeline_only=False, allow_stay=False)
        if assignment is not None and free[position] < 1 + assignment.new_groups:
            codes[position] = 1
    return codes


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


@dataclass(frozen=True, slots=True)
class Predicates:
    """The filters; `topologySpread: false` leaves out topology spread constraints, as KAI Scheduler does."""

    topology_spread: bool = True

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = {"topologySpread": ("topology_spread", read_flag)}

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """Checks in the order of cycle:9.1 (gpu:P-1 to P-5)."""
        nodes = snapshot.nodes
        index = affinity_index(snapshot)
        spread = spread_index(snapshot) if self.topology_spread and snapshot.shapes.has_hard_spread else None
        legacy = _legacy_mig_pods(snapshot)
        volumes = volume_hooks(snapshot)
        legacy_texts = (
            f"MIG job cannot be scheduled on node with legacy MIG jobs: <[{' '.join(pods)}]>"
            for pods in legacy.values()
        )
        blocked_texts, blocked_codes = _blocked_codes(snapshot)

        def refuse_all(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
            return np.ones(len(nodes), dtype=np.int64)[rows]

        def offers_dra_gpus(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
            return _codes_where(_node_column(nodes, "DRA GPUs", lambda row: nodes.facts[row].dra_gpus > 0), rows)

        def memory_unknown(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
            return _codes_where(~nodes.has_gpu_memory_label, rows)

        def blocked(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
            codes: IntArray = blocked_codes[rows]
            return codes

        def has_taint(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
            return _codes_where(has_untolerated_taint(nodes, request.shape), rows)

        def not_selected(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
            return _codes_where(~matches_node_selector(nodes, request.shape), rows)

        checks = [
            NodeCheck(
                "queue capacity",
                (),
                over_capacity_codes,
                Scope.REQUEST,
                _shares_gpu,
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
                "GPUs of slices",
                ("fractional/shared GPU pods are not yet supported on DRA-only nodes",),
                offers_dra_gpus,
                _NODES,
                _shares_gpu,
            ),
            NodeCheck(
                "MIG",
                (*_MIG_TEXTS, *legacy_texts),
                _mig_mismatch(tuple(legacy)),
                _NODES,
                _requests_gpu,
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
            NodeCheck("pod slots", (PODS_EXCEEDED,), _slots_for_reservations, Scope.ROW, _shares_gpu),
            NodeCheck("node conditions", blocked_texts, blocked, _NODES, lambda ask: bool(blocked_texts)),
            NodeCheck(
                "host ports",
                ("node(s) didn't have free ports for the requested pod ports",),
                port_conflict_codes,
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
            NodeCheck("pod affinity", AFFINITY_TEXTS, index.refusal_codes, Scope.ROW, index.applies_to),
            *volumes.node_checks,
        ]
        if spread is not None:
            checks.append(NodeCheck("topology spread", SPREAD_TEXTS, spread.refusal_codes, applies=spread.can_refuse))
        if snapshot.shard.restrict_nodes:
            checks.append(
                NodeCheck(
                    "worker nodes",
                    (
                        "gpu task: {pod} can't run on non gpu nodes, node: {node}",
                        "cpu task: {pod} can't run on non cpu nodes, node: {node}",
                    ),
                    _worker_label_check(snapshot),
                    _NODES,
                )
            )
        return Hooks(
            pre_place=(*volumes.pre_place, _max_node_resources_check(snapshot), _config_map_check(snapshot)),
            node_checks=tuple(checks),
            unresolvable=index.is_unresolvable if index.active else None,
            cache_key=combine_keys(
                index.key if index.active else None,
                combine_keys(spread.key if spread is not None else None, volumes.cache_key),
            ),
            observer=Observers(tuple(one for one in (index if index.active else None, spread) if one is not None)),
            discrete_ledger=volumes.discrete_ledger,
        )


def _once_per_shape(
    find: Callable[[Shape], PreFailure | None],
) -> Callable[[State, PlacementRequest], PreFailure | None]:
    """A pre-check that looks at nothing but the shape, asked once for each (cycle:FLT-9)."""
    failures: dict[int, PreFailure | None] = {}

    def check(state: State, request: PlacementRequest) -> PreFailure | None:
        shape = request.shape
        if shape.id not in failures:
            failures[shape.id] = find(shape)
        return failures[shape.id]

    return check


#: What a resource is called, how many axis units make one of its units, and that unit.
_RESOURCE_WORDS = {
    "cpu": ("CPU", 1000.0, "cores"),
    "memory": ("memory", 1e9, "GB"),
    "ephemeral-storage": ("ephemeral-storage", 1e9, "GB"),
    "storage": ("storage", 1e9, "GB"),
}


#: Resources besides the usual ones that a sentence names; a pod may ask for as many as it likes.
_MAX_NAMED_RESOURCES = 32


def _resource_words(name: str) -> tuple[str, float, str]:
    return ("GPU", 1.0, "") if is_gpu(name) else _RESOURCE_WORDS.get(name, (name, float(amount(name, 1)), ""))


def _max_node_resources_check(snapshot: Snapshot) -> Callable[[State, PlacementRequest], PreFailure | None]:
    """More than any node of the shard has, whoever leaves it (cycle:FLT-7; gpu:P-6)."""
    names = snapshot.axes.names
    max_by_resource = (
        dict(zip(names, snapshot.allocatable.max(axis=1).tolist(), strict=False)) if len(snapshot.nodes) else {}
    )
    max_gpus = max((max_by_resource.get(name, 0) for name in names if is_gpu(name)), default=0)
    pool = snapshot.shard.node_pool or "default"

    def find(shape: Shape) -> PreFailure | None:
        short: tuple[str, int] | None = None
        if shape.shared and shape.gpu_hundredths > 100 * max_gpus:
            short = ("/gpu", max_gpus)
        elif _claimed_gpus(snapshot, shape) > max_by_resource.get(DRA_GPU, 0):
            short = (DRA_GPU, max_by_resource.get(DRA_GPU, 0))
        else:
            for name, requested in sorted(shape.requests, key=_by_importance):
                if name != "pods" and requested > max_by_resource.get(name, 0):
                    short = (name, max_by_resource.get(name, 0))
                    break
        if short is None:
            return None
        word, scale, unit = _resource_words(short[0])
        text = f"The pod {{pod}} requires {_request_text(shape)}. "
        if short[1] <= 0:
            text += f"No node in the {pool} node-pool has {word} resources"
        else:
            text += f"Max {word} resources available in a single node in the {pool} node-pool is topped at "
            text += f"{format_number(short[1] / scale)} {unit}".rstrip()
        return PreFailure("MaxNodePoolResources", text, unresolvable=True)

    return _once_per_shape(find)


def _claimed_gpus(snapshot: Snapshot, shape: Shape) -> int:
    """Devices of claims that can be nothing but GPUs of one node (gpu:D-7)."""
    requests = [claim.request for claim in shape.claims if claim.gpus and claim.request is not None and not claim.key]
    if not requests:
        return 0
    inventory = snapshot.claims.inventory(snapshot.nodes)
    # A pool that is not complete yet may bring more.
    return 0 if inventory.broken_pools else minimum_devices(inventory, requests, inventory.whole_gpus())


def _by_importance(request: tuple[str, int]) -> tuple[bool, bool, bool, str]:
    name = request[0]
    return (not is_gpu(name), name != "cpu", name != "memory", name)


def _request_text(shape: Shape) -> str:
    """The request as a sentence shows it: GPUs, CPU and memory always, then other resources, then MIG slices."""
    requested = dict(shape.requests)
    whole = sum(value for name, value in (*shape.requests, *shape.dra_backed) if is_gpu(name))
    whole += sum(claim.gpus for claim in shape.claims)
    gpus = shape.gpu_hundredths / 100.0 if shape.shared else float(whole)
    parts = [
        f"GPU: {format_go_float(gpus)}",
        f"CPU: {format_number(requested.get('cpu', 0) / 1000.0)} (cores)",
        f"memory: {format_number(requested.get('memory', 0) / 1e9)} (GB)",
    ]
    others = [each for each in shape.requests if each[0] not in ("cpu", "memory", "pods") and not is_gpu(each[0])]
    slices = [each for each in others if is_mig(each[0])]
    for name, value in [each for each in others if not is_mig(each[0])][:_MAX_NAMED_RESOURCES]:
        _, scale, unit = _resource_words(name)
        parts.append(f"{name}: {format_number(value / scale)}" + (f" ({unit})" if unit else ""))
    parts.extend(f"mig {name}: {value}" for name, value in slices[:_MAX_NAMED_RESOURCES])
    more = max(0, len(others) - len(slices) - _MAX_NAMED_RESOURCES) + max(0, len(slices) - _MAX_NAMED_RESOURCES)
    return ", ".join(parts) + (f" and {more} more resources" if more else "")


def _config_map_check(snapshot: Snapshot) -> Callable[[State, PlacementRequest], PreFailure | None]:
    """Config maps without which some container cannot start (cycle:FLT-8; gpu:P-8)."""

    def find(shape: Shape) -> PreFailure | None:
        missing = [name for name in shape.config_maps if f"{shape.namespace}/{name}" not in snapshot.config_maps]
        if not missing:
            return None
        return PreFailure("ConfigMap", f"Missing required configmaps: [{' '.join(missing)}]", unresolvable=True)

    return _once_per_shape(find)
