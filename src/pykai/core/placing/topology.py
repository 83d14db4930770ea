"""Topologies as trees of domains over the node columns (topo:4, 5).

A `Topology` lists node labels from the coarsest level to the finest.  A node belongs to it when it has all of them; the
values along the path name its domain at each level.  `DomainTree` numbers the domains of all levels, the root first,
and holds one column of domain numbers per level.  The free resources of every domain are therefore one sum over
columns, for the whole tree at once (topo:TD-8).

`DomainDemand` is what some tasks need of a domain.  A domain is excluded only if it surely cannot hold them: for every
kind of pod there are too few places, or all of them together request more than there is (topo:TD-5).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pykai.api import names
from pykai.api.gpuvendors import is_gpu
from pykai.api.scheduling import TopologyConstraint
from pykai.api.topology import Topology
from pykai.core.cluster.nodetable import NodeTable
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import BranchState, Gang, LeafState, leaves_of
from pykai.core.cycle.state import State
from pykai.core.model.axes import PODS, BoolArray, FloatArray, IntArray
from pykai.core.model.shapes import GpuKind, Shape
from pykai.core.model.tasks import Task
from pykai.core.placing.claimamounts import claimed_amounts
from pykai.core.placing.fit import gpu_columns

#: The contribution of a resource that a domain does not have (topo:5.4).
_EXHAUSTED_RATIO = 1000.0
#: Unlimited: more than any number of pods.
_UNLIMITED_PODS = 2**31
ROOT = 0
#: Domains times nodes of a tree that is also kept as a matrix.
_SMALL_TREE = 2048


@dataclass(frozen=True, slots=True, eq=False)
class DomainTree:
    """The domains of one topology; level 0 is the root, which holds every node that has all the labels."""

    #: label or alias -> level, from 1 on
    levels: dict[str, int]
    #: [node] has all labels
    member: BoolArray
    #: [level, node] number of its domain, -1 outside the topology
    codes: IntArray
    #: [level + 1] the domains of a level are numbered from here up to the next; ordered by parent, then by name
    level_starts: list[int]
    #: domain -> path of label values from the top, with dots (topo:T-16)
    ids: list[str]
    #: domain -> its parent; the root is its own
    parents: IntArray
    #: [domain, node] 1 where the node lies in the domain; None for large trees
    inside: FloatArray | None

    def __len__(self) -> int:
        return len(self.ids)

    def label(self, level: int) -> str:
        """The node label of a level, whatever else it is called (topo:T-11)."""
        return next(name for name, known in self.levels.items() if known == level)

    def level_of(self, domain: int) -> int:
        """The level of a domain."""
        return bisect_right(self.level_starts, domain) - 1

    def domains_of_level(self, level: int) -> range:
        """The domains of a level."""
        return range(self.level_starts[level], self.level_starts[level + 1])

    def has_name(self, domain: int) -> bool:
        """Whether its own label has a value; an empty one makes a domain, but means nothing in a message."""
        return bool(self.ids[domain]) and not self.ids[domain].endswith(".")

    def sums_by_domain(self, column: IntArray | FloatArray, rows: IntArray) -> FloatArray:
        """[domain] the sum of a column over those of the rows that lie in it."""
        if self.inside is not None:
            # One product takes less time than a sum for each level.
            few: FloatArray = self.inside[:, rows] @ column[rows]
            return few
        sums = np.bincount(self.codes[-1, rows], weights=column[rows], minlength=len(self)).astype(np.float64)
        for level in range(len(self.codes) - 1, 0, -1):
            # Each level is the sum of the one below it.
            below = slice(self.level_starts[level], self.level_starts[level + 1])
            sums += np.bincount(self.parents[below], weights=sums[below], minlength=len(self))
        return sums


def domain_tree(nodes: NodeTable, topology: Topology) -> DomainTree:
    """The tree of a topology over these nodes (cycle:SNP-14; topo:T-5, T-8, T-15, TD-2)."""
    labels = tuple(level.node_label for level in topology.spec.levels)
    levels = {label: index for index, label in enumerate(labels, 1)}
    for index, level in enumerate(topology.spec.levels, 1):
        if level.alias:
            levels.setdefault(level.alias, index)
    paths: list[tuple[str, ...] | None] = [
        tuple(node.labels[label] for label in labels) if all(label in node.labels for label in labels) else None
        for node in nodes.facts
    ]
    ids, parents, level_starts = ["root"], [ROOT], [ROOT, 1]
    codes = [np.array([-1 if path is None else ROOT for path in paths], dtype=np.int64)]
    numbers_above: dict[tuple[str, ...], int] = {(): ROOT}
    for depth in range(1, len(labels) + 1):
        prefixes = sorted({path[:depth] for path in paths if path is not None})
        numbers = {prefix: len(ids) + index for index, prefix in enumerate(prefixes)}
        codes.append(np.array([-1 if path is None else numbers[path[:depth]] for path in paths], dtype=np.int64))
        ids += [".".join(prefix) for prefix in prefixes]
        parents += [numbers_above[prefix[:-1]] for prefix in prefixes]
        level_starts.append(len(ids))
        numbers_above = numbers
    member = np.array([path is not None for path in paths], dtype=np.bool_)
    inside: FloatArray | None = None
    if len(ids) * len(paths) <= _SMALL_TREE:
        inside = np.zeros((len(ids), len(paths)))
        for column in codes:
            inside[column[member], member] = 1.0
    return DomainTree(levels, member, np.array(codes), level_starts, ids, np.array(parents, dtype=np.int64), inside)


def topology_tree(snapshot: Snapshot, name: str) -> DomainTree | None:
    """The tree of the topology of that name, made once as long as neither it nor a node changes; None = no such
    topology.
    """
    topology = snapshot.topologies.get(name)
    if topology is None:
        return None
    levels = tuple((level.node_label, level.alias) for level in topology.spec.levels)
    return snapshot.nodes.remember(("topology", name, levels), lambda: domain_tree(snapshot.nodes, topology))


@dataclass(frozen=True, slots=True)
class ConstraintLevels:
    """The levels of a constraint in a tree; ROOT where there is none of a kind."""

    required: int
    preferred: int

    @property
    def deepest(self) -> int:
        """The first to be tried."""
        return max(self.required, self.preferred)

    @property
    def common(self) -> int:
        """The coarser one: all nodes of a set may share a domain this deep without hiding a requested one."""
        return min(self.required, self.preferred) if self.required and self.preferred else self.deepest


def levels_of(tree: DomainTree, constraint: TopologyConstraint, subgroup: str) -> ConstraintLevels | str:
    """The levels a constraint names, or what is wrong with it (topo:T-40)."""
    named = (("required", constraint.required_topology_level), ("preferred", constraint.preferred_topology_level))
    who = "workload" if subgroup in ("", names.DEFAULT_SUBGROUP) else f"sub-group {subgroup}"
    if not any(level for _, level in named):
        return f"no topology constraints were found for subgroup {subgroup}, with topology name {constraint.topology}"
    for kind, level in named:
        if level and level not in tree.levels:
            return (
                f"topology constraint error: {who} specified '{level}' as the {kind} topology constraint level, "
                f"but the topology tree '{constraint.topology}' does not contain a level with this name"
            )
    required, preferred = (tree.levels[level] if level else ROOT for _, level in named)
    # A preferred level no deeper than the required one adds nothing (topo:TD-10).
    return ConstraintLevels(required, preferred if preferred > required else ROOT)


def narrowing_of(snapshot: Snapshot, node: BranchState | LeafState) -> tuple[str, int]:
    """The topology that a subgroup names, and how far that narrows it.

    0 = not at all, 1 = to the nodes of the topology, 2 and more = to one domain of the first level, the second, ...
    """
    constraint = node.topology
    tree = topology_tree(snapshot, constraint.topology) if constraint is not None and constraint.topology else None
    if tree is None or constraint is None:
        return "", 0
    levels = levels_of(tree, constraint, node.name)
    return ("", 0) if isinstance(levels, str) else (constraint.topology, 1 + levels.required)


def enclosing_required_level(snapshot: Snapshot, gang: Gang, node: BranchState | LeafState, topology: str) -> str:
    """The level of a topology that a subgroup or the nearest one around it requires; "" where none does."""
    key = ("required around", gang.key, topology)
    return snapshot.memo.remember(key, lambda: _enclosing_levels(snapshot, gang, topology)).get(node.name, "")


def _enclosing_levels(snapshot: Snapshot, gang: Gang, topology: str) -> dict[str, str]:
    """Subgroup -> the level that it or the nearest one around it requires."""
    tree = topology_tree(snapshot, topology)
    levels: dict[str, str] = {}
    # Names identify subgroups: a tree with a duplicate name is not used (cycle:PG-2).
    stack: list[tuple[BranchState | LeafState, str]] = [(gang.root, "")]
    while stack and tree is not None:
        subgroup, level = stack.pop()
        constraint = subgroup.topology
        named = tree.levels.get(constraint.required_topology_level or "", ROOT) if constraint is not None else ROOT
        if constraint is not None and constraint.topology == topology and named != ROOT:
            level = tree.label(named)
        levels[subgroup.name] = level
        if isinstance(subgroup, BranchState):
            stack += [(child, level) for child in subgroup.children]
    return levels


def active_rows(state: State, gang: Gang, node: BranchState | LeafState) -> list[int] | None:
    """Nodes of pods of a subgroup that run or are about to, None when there is no such pod.

    All pods below it count, not only those placed now (topo:T-25, TD-3).

    Statements: topo:T-29.
    """
    active = gang.active_tasks(state.status_of)
    tasks = [task for leaf in leaves_of(node) for task in active.get(leaf.name, ())]
    if not tasks:
        return None
    rows = state.snapshot.nodes.rows
    return [state.placement_of(task).row for task in tasks if task.key in state.placements or task.node in rows]


def pinned_nodes(tree: DomainTree, level: int, rows: list[int]) -> BoolArray:
    """[node] inside those domains of a level that contain the rows (topo:T-25 to T-27)."""
    codes = tree.codes[level]
    held = {int(codes[row]) for row in rows} - {-1}
    return np.isin(codes, sorted(held))


def _gpu_mibs(nodes: NodeTable) -> IntArray:
    """[node] memory of each of its GPUs."""
    return nodes.remember("gpu mib", lambda: np.array([node.gpu_mib for node in nodes.facts], dtype=np.int64))


def free_gpu_mib(state: State) -> IntArray:
    """[node] memory of GPUs idle or being released, the rest of shared ones included (topo:TD-13)."""
    mibs = _gpu_mibs(state.snapshot.nodes)
    free: IntArray = np.zeros(len(mibs), dtype=np.int64)
    for axis in state.snapshot.axes.gpu_axes:
        free += mibs * np.maximum(state.free[axis], 0)
    for row, devices in state.devices.items():
        for device in devices.values():
            # One whose tenants all leave is a whole GPU being released, unless a task is already pipelined onto it.
            if device.live or device.pipelined:
                free[row] += max(0, int(mibs[row]) - device.allocated_mib + device.releasing_mib)
    return free


def min_gpu_hundredths(nodes: NodeTable, shape: Shape) -> int:
    """What a shared request takes of the GPUs of any node at least, cut to hundredths for each device: what fits never
    adds up to more than there is."""
    gpu_request = shape.gpu
    largest = int(_gpu_mibs(nodes).max(initial=1))
    each = (
        100 * gpu_request.memory_mib // largest
        if gpu_request.kind is GpuKind.MEMORY
        else int(100 * gpu_request.portion)
    )
    return gpu_request.devices * each


class DomainDemand:
    """What some tasks need of a domain (topo:5.1 to 5.4; cycle:TOP-3)."""

    def __init__(self, state: State, tasks: Sequence[Task]) -> None:
        snapshot = state.snapshot
        self._state = state
        self.count = len(tasks)
        #: kinds of pods, and how many of each
        self.shapes = Counter(task.shape for task in tasks)
        size = len(snapshot.axes)
        self._sums: IntArray = np.zeros(size, dtype=np.int64)
        requesting: IntArray = np.zeros(size, dtype=np.int64)
        #: hundredths of GPUs that shared requests take: as they say, and at least
        self._shared_sum = self._shared_least = with_gpu = 0
        #: GPUs that are served by claims (topo:T-59)
        self._claimed = 0
        self._gpu_mib: IntArray | None = None
        for shape, count in self.shapes.items():
            charge = snapshot.vectors[shape].charge
            self._sums += count * charge
            requesting += count * (charge > 0)
            with_gpu += count * (shape.gpu.kind in (GpuKind.WHOLE, GpuKind.FRACTION))
            if shape.shared:
                least = min_gpu_hundredths(snapshot.nodes, shape)
                # An amount of memory has no weight in the order of domains, as recorded decisions show.
                self._shared_sum += count * shape.gpu_hundredths
                self._shared_least += count * least
            claimed = sum(claim.gpus for claim in shape.claims)
            self._claimed += count * (claimed + sum(amount for name, amount in shape.dra_backed if is_gpu(name)))
        gpu_axes = set(snapshot.axes.gpu_axes)
        others = [axis for axis in range(2, size) if axis not in gpu_axes]
        #: whether a shortage is reported in pods or in resources (topo:T-19)
        self.homogeneous = with_gpu in (0, self.count) and all(
            int(requesting[axis]) in (0, self.count) for axis in others
        )

    def pod_slots(self, shape: Shape) -> IntArray:
        """[node] how many pods of this kind it could hold, as far as resources go (topo:5.2, TD-14)."""
        state = self._state
        size = len(state.snapshot.nodes)
        requested = [(axis, amount) for axis, amount in state.snapshot.vectors[shape].requested if amount > 0]
        claimed = claimed_amounts(state, shape)
        if not shape.shared and not claimed and requested == [(PODS, 1)]:
            return np.full(size, self.count, dtype=np.int64)
        counts: IntArray = np.full(size, _UNLIMITED_PODS, dtype=np.int64)
        for axis, amount in requested:
            np.minimum(counts, state.free[axis] // amount, out=counts)
        for axis, amount, offered in claimed:
            np.minimum(counts, np.where(offered, state.free[axis] // amount, _UNLIMITED_PODS), out=counts)
        if shape.shared:
            asked_mib = np.maximum(shape.gpu.devices * gpu_columns(state.snapshot.nodes, shape.gpu).tenant_mib, 1)
            np.minimum(counts, self._free_gpu_mib() // asked_mib, out=counts)
        slots: IntArray = np.minimum(np.maximum(counts, 0), self.count)
        return slots

    def placeable_pods(
        self, tree: DomainTree, rows: IntArray, allowed: Callable[[Shape], BoolArray] | None = None
    ) -> FloatArray:
        """[domain] how many of the tasks could be in it at most, counted on these rows.

        `allowed` also excludes nodes that refuse a kind whichever pods leave (topo:TD-12).
        """
        pods: FloatArray = np.zeros(len(tree))
        for shape, count in self.shapes.items():
            slots = self.pod_slots(shape)
            if allowed is not None:
                slots = np.where(allowed(shape), slots, 0)
            pods += np.minimum(tree.sums_by_domain(slots, rows), count)
        return pods

    def resource_loads(
        self, tree: DomainTree, rows: IntArray, *, shared: bool = False
    ) -> list[tuple[str, float, FloatArray]]:
        """The total request, resource by resource: its name, how much, and [domain] how much is free.

        All GPUs are one resource (topo:5.4), with the rest of shared ones if `shared`.
        """
        state = self._state
        axes = state.snapshot.axes
        loads = [
            (axes.names[axis], float(self._sums[axis]), tree.sums_by_domain(state.free[axis], rows))
            for axis in np.flatnonzero(self._sums).tolist()
            if axis != PODS and axis not in axes.gpu_axes
        ]
        gpus = float(self._sums[axes.gpu_axes].sum()) + self._shared_sum / 100.0 + self._claimed
        if gpus:
            whole = state.free[axes.gpu_axes].sum(axis=0)
            loads.append(("/gpu", gpus, self._free_gpus(tree, rows) if shared else tree.sums_by_domain(whole, rows)))
        return loads

    def overloaded(self, tree: DomainTree, rows: IntArray) -> BoolArray:
        """[domain] has less than the total request; several kinds may compete for one node (topo:T-20)."""
        short: BoolArray = np.zeros(len(tree), dtype=np.bool_)
        if len(self.shapes) > 1:
            # A node that is overdrawn takes nothing from the others.
            free = np.maximum(self._state.free, 0)
            for axis in np.flatnonzero(self._sums).tolist():
                if axis != PODS:
                    short |= tree.sums_by_domain(free[axis], rows) < self._sums[axis]
            if self._shared_least:
                whole = int(self._sums[self._state.snapshot.axes.gpu_axes].sum())
                short |= self._free_gpus(tree, rows) < whole + self._shared_least / 100.0
        return short

    def _free_gpu_mib(self) -> IntArray:
        if self._gpu_mib is None:
            self._gpu_mib = free_gpu_mib(self._state)
        return self._gpu_mib

    def _free_gpus(self, tree: DomainTree, rows: IntArray) -> FloatArray:
        """[domain] GPUs, the rest of shared ones included; rounded, because 0.1 and 0.7 must not be less than 0.8.

        Statements: gpu:C-12.
        """
        gpus = tree.sums_by_domain(self._free_gpu_mib() / _gpu_mibs(self._state.snapshot.nodes), rows)
        return np.round(gpus, 6)


def fill_ratios(loads: list[tuple[str, float, FloatArray]], size: int) -> FloatArray:
    """[domain] how full the tasks would make it; the fullest is tried first (topo:5.4)."""
    ratios_by_domain: FloatArray = np.zeros(size)
    for _, requested, free in loads:
        has = free > 0
        np.maximum(
            ratios_by_domain,
            np.where(has, requested / np.where(has, free, 1.0), _EXHAUSTED_RATIO),
            out=ratios_by_domain,
        )
    return ratios_by_domain
