"""topology: gangs and subgroups inside one domain of a network topology (topo:5 to 7).

For a subgroup with a constraint the plugin offers one node set after another: the finest level wanted first, inside a
level the fullest domain that can hold the tasks first.  Running pods pin the domain of a required level.  A preferred
level also ranks the nodes of a set: its emptiest sub-domain is filled first, so as few as possible are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from pykai.api.scheduling import TopologyConstraint
from pykai.core.caching import Cache
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import BranchState, Gang, LeafState
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.hooks import Hooks, NodeSet, NoNodeSets
from pykai.core.model.axes import BoolArray, FloatArray, IntArray
from pykai.core.model.problems import Problem, ProblemReporter
from pykai.core.model.shapes import Shape
from pykai.core.model.tasks import Task
from pykai.core.placing.topology import (
    ROOT,
    ConstraintLevels,
    DomainDemand,
    DomainTree,
    active_rows,
    enclosing_required_level,
    fill_ratios,
    levels_of,
    pinned_nodes,
    topology_tree,
)
from pykai.core.plugins.arguments import ArgumentReader, read_flag, read_one_of
from pykai.core.report.decisions import BadTopology, DomainShort, FurtherDomains, NoDomain, Refusal

#: Score of the emptiest preferred domain; the others of its level get equal steps less (cycle:SCO-2).
_PREFERRED_BAND = 1_000_000.0

#: Sets of nodes that are kept to be found again; each may have an amount for every node.
_MAX_SETS = 256

#: Domains that are named one by one (topo:TD-15).
_MAX_REPORTED_DOMAINS = 5


@dataclass(frozen=True, slots=True)
class TopologyPlugin:
    """Placement by topology.

    `order` says which domain is tried first: the fullest (`binpack`, as KAI does) or the emptiest (`spread`,
    topo:TD-17).  With `sticky` the later pods of a group that only prefers a level go to the domains of its earlier
    ones where they fit (topo:TD-4); recorded decisions of KAI are otherwise, so it is off by default.
    """

    order: str = "binpack"
    sticky: bool = False

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, ArgumentReader]]] = {
        "order": ("order", read_one_of("binpack", "spread")),
        "sticky": ("sticky", read_flag),
    }

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """Node sets for groups that name a topology."""
        if not snapshot.group_index.topology_constrained:
            return Hooks()
        return Hooks(
            node_sets=partial(_node_sets, self),
            unresolvable=partial(_names_missing_topology, snapshot),
            node_sets_for=lambda gang: gang.group.names_topology,
        )


def report_unenforced_constraints(snapshot: Snapshot, report: ProblemReporter) -> Hooks:
    """Report groups that wait and ask for a topology while the plugin is switched off (topo:TD-22)."""
    for key in sorted(snapshot.group_index.topology_constrained):
        if snapshot.read_running().groups[key].pending:
            text = "not kept, because the plugin topology is switched off"
            report(Problem(f"PodGroup/{key}", "spec.topologyConstraint", text))
    return Hooks()


def _names_missing_topology(snapshot: Snapshot, request: PlacementRequest, beside: Sequence[Task]) -> bool:
    """Whether the group or the subgroup of a task names a topology or a level that does not exist."""
    gang = request.gang
    return gang.group.names_topology and (_is_unusable(snapshot, gang.root) or _is_unusable(snapshot, request.leaf))


def _is_unusable(snapshot: Snapshot, node: BranchState | LeafState) -> bool:
    constraint = node.topology
    if constraint is None or not constraint.topology:
        return False
    tree = topology_tree(snapshot, constraint.topology)
    return tree is None or isinstance(levels_of(tree, constraint, node.name), str)


def _node_sets(
    plugin: TopologyPlugin,
    state: State,
    gang: Gang,
    node: BranchState | LeafState,
    tasks: Sequence[Task],
    nodes: NodeSet,
) -> Iterable[NodeSet] | NoNodeSets:
    """The node sets to try for a subgroup, in order (cycle:TOP-1)."""
    constraint = node.topology
    if constraint is None or not constraint.topology or not tasks:
        return [nodes]
    tree = topology_tree(state.snapshot, constraint.topology)
    if tree is None:
        return NoNodeSets((BadTopology(f"Requested topology {constraint.topology} does not exist"),))
    levels = levels_of(tree, constraint, node.name)
    if isinstance(levels, str):
        return NoNodeSets((BadTopology(levels),))
    return _DomainSearch(state, gang, node, tasks, nodes, tree, levels, plugin).sets(constraint)


def _no_sets() -> Cache[tuple[bytes, str, bytes], NodeSet]:
    """Sets of nodes by what is in them."""
    return Cache(_MAX_SETS)


class _DomainSearch:
    """One search over all domains of a tree, with the columns as they are now (topo:T-18)."""

    def __init__(
        self,
        state: State,
        gang: Gang,
        node: BranchState | LeafState,
        tasks: Sequence[Task],
        nodes: NodeSet,
        tree: DomainTree,
        levels: ConstraintLevels,
        plugin: TopologyPlugin,
    ) -> None:
        self._state, self._gang, self._node, self._tasks = state, gang, node, tasks
        self._nodes, self._tree, self._levels, self._plugin = nodes, tree, levels, plugin
        self._demand = DomainDemand(state, tasks)
        #: [node] of the topology and of the set
        self._inside: BoolArray = tree.member if nodes.mask is None else tree.member & nodes.mask
        self._rows: IntArray = np.flatnonzero(self._inside)
        #: [domain] has a node of the set
        self._present: BoolArray = np.zeros(len(tree), dtype=np.bool_)
        self._present[tree.codes[:, self._rows].ravel()] = True
        self._room = self._demand.placeable_pods(tree, self._rows)
        self._loads = self._demand.resource_loads(tree, self._rows)
        self._fits: BoolArray = (self._room >= self._demand.count) & ~self._demand.overloaded(tree, self._rows)

    def sets(self, constraint: TopologyConstraint) -> Iterable[NodeSet] | NoNodeSets:
        """The sets in order, or why there are none (topo:T-23, T-35)."""
        tree, levels = self._tree, self._levels
        working = self._working_domain()
        if not self._fits[working]:
            depth = tree.level_of(working)
            where_level = tree.label(depth) if depth != ROOT else ""
            level = enclosing_required_level(self._state.snapshot, self._gang, self._node, constraint.topology)
            return NoNodeSets((NoDomain(constraint.topology, level, self._node.name, tree.ids[working], where_level),))
        sticky = self._domains_with_active_pods()
        order = self._order(sticky)
        relevant = self._present.copy()
        if levels.required:
            pinned_domains = self._pinned_domains()
            if pinned_domains is not None:
                relevant &= pinned_domains
        enough = self._fits & relevant
        by_level = [order[depth] for depth in range(levels.deepest, levels.required - 1, -1)]
        chosen: list[int] = np.concatenate([numbers[enough[numbers]] for numbers in by_level]).tolist()
        if not chosen:
            coarsest = order[levels.required]
            level = tree.label(levels.required)
            no_domain = NoDomain(constraint.topology, level, self._node.name)
            return NoNodeSets((*self._shortages(coarsest[relevant[coarsest]].tolist(), level), no_domain))
        scores = self._scores(order[levels.preferred], sticky) if levels.preferred else self._nodes.scores
        return self._make_sets(self._worth_trying(chosen), scores)

    def _make_sets(self, chosen: list[int], scores: FloatArray | None) -> Iterator[NodeSet]:
        """Masks are made lazily: a level of single hosts may have ten thousand domains."""
        tree = self._tree
        for number in chosen:
            depth = tree.level_of(number)
            if depth == ROOT:
                yield self._set_of(self._inside, self._nodes.name, scores)
            else:
                yield self._set_of(self._inside & (tree.codes[depth] == number), tree.ids[number], scores)

    def _set_of(self, mask: BoolArray, name: str, scores: FloatArray | None) -> NodeSet:
        """One object for equal sets, so that what is cached for one is found again: searches make the same ones."""
        sets = self._state.snapshot.memo.remember(NodeSet, _no_sets)
        key = (mask.tobytes(), name, b"" if scores is None else scores.tobytes())
        known = sets.get(key)
        return sets.store(key, NodeSet(mask, name, scores)) if known is None else known

    def _worth_trying(self, chosen: list[int]) -> list[int]:
        """Without domains whose nodes refuse the tasks for other reasons than resources (topo:TD-12).

        When all do, the first is still tried, so that its nodes give the reasons.
        """
        allowed = self._state.allowed_nodes
        if allowed is None:
            return chosen
        leaves = {leaf.name: leaf for leaf in self._gang.leaves}
        requests: dict[Shape, PlacementRequest] = {}
        for task in self._tasks:
            if task.shape not in requests:
                vector = self._state.snapshot.vectors[task.shape]
                requests[task.shape] = PlacementRequest(task, self._gang, leaves[task.subgroup], vector)
        masks = {shape: allowed(self._state, request) for shape, request in requests.items()}
        if all(mask[self._rows].all() for mask in masks.values()):
            return chosen
        room = self._demand.placeable_pods(self._tree, self._rows, masks.__getitem__)
        return [number for number in chosen if room[number] >= self._demand.count] or chosen[:1]

    def _working_domain(self) -> int:
        """The deepest domain that holds all nodes of the set (topo:5, step 2; topo:TD-1; cycle:TOP-2)."""
        domain = ROOT
        for codes in self._tree.codes[1 : self._levels.common + 1, self._rows]:
            if not len(codes) or (codes != codes[0]).any() or not self._tree.has_name(int(codes[0])):
                break
            domain = int(codes[0])
        return domain

    def _order(self, sticky: BoolArray) -> list[IntArray]:
        """Level -> its domains as the sorted tree lists them: fullest first under each parent, then by id (step 7).

        Statements: cycle:TOP-4; topo:T-17, T-24.
        """
        tree = self._tree
        full = fill_ratios(self._loads, len(tree))
        if self._plugin.order == "spread":
            full = -full
        place: IntArray = np.zeros(len(tree), dtype=np.int64)
        order: list[IntArray] = [np.array([ROOT])]
        for level in range(1, self._levels.deepest + 1):
            numbers = np.arange(tree.level_starts[level], tree.level_starts[level + 1])
            keys = (numbers, -full[numbers], ~sticky[numbers], place[tree.parents[numbers]])
            ordered = numbers[np.lexsort(keys)]
            place[ordered] = np.arange(len(ordered))
            order.append(ordered[self._present[ordered]])
        return order

    def _scores(self, order: IntArray, sticky: BoolArray) -> FloatArray:
        """[node] what the preferred level adds, to the emptiest domain most (topo:T-30, TD-11; cycle:TOP-5).

        Statements: topo:T-31, T-32, T-33, TD-18.
        """
        worth: FloatArray = np.zeros(len(self._tree) + 1)
        ranked = order[np.argsort(sticky[order], kind="stable")]
        worth[ranked] = _PREFERRED_BAND * np.arange(1, len(ranked) + 1) / len(ranked)
        node_scores: FloatArray = worth[self._tree.codes[self._levels.preferred]]
        return node_scores

    def _domains_with_active_pods(self) -> BoolArray:
        """[domain] holds a pod of the subgroup, where only a preference could keep the next one there."""
        has_active: BoolArray = np.zeros(len(self._tree) + 1, dtype=np.bool_)
        if self._plugin.sticky and self._levels.preferred and not self._levels.required:
            rows = active_rows(self._state, self._gang, self._node)
            if rows:
                has_active[self._tree.codes[:, rows].ravel()] = True
        return has_active[:-1]

    def _pinned_domains(self) -> BoolArray | None:
        """[domain] inside a required domain where pods of the subgroup run already; None when none does (topo:T-28)."""
        rows = active_rows(self._state, self._gang, self._node)
        if rows is None:
            return None
        tree, level = self._tree, self._levels.required
        inside = pinned_nodes(tree, level, rows)
        is_pinned: BoolArray = np.zeros(len(tree), dtype=np.bool_)
        is_pinned[tree.codes[level:, inside].ravel()] = True
        return is_pinned

    def _shortages(self, domains: list[int], level: str) -> list[Refusal]:
        """What each domain of the coarsest level is short of, the nearest to enough first (topo:5.3, TD-15)."""
        tree, demand = self._tree, self._demand
        nearest_first = sorted(domains, key=lambda number: (-self._room[number], tree.ids[number]))
        refusals: list[Refusal] = []
        loads = demand.resource_loads(tree, self._rows, shared=True)
        for number in nearest_first[:_MAX_REPORTED_DOMAINS]:
            # Pods of several sizes may each find a place, only not all of them together.
            by_count = demand.homogeneous and self._room[number] < demand.count
            short = [] if by_count else [(n, a, float(f[number])) for n, a, f in loads if a > f[number]]
            refusals.append(
                DomainShort(
                    tree.ids[number], self._node.name, int(self._room[number]), demand.count, tuple(sorted(short))
                )
            )
        if len(nearest_first) > _MAX_REPORTED_DOMAINS:
            refusals.append(FurtherDomains(level, len(nearest_first) - _MAX_REPORTED_DOMAINS))
        return refusals
