"""topology: gangs and subgroups inside one domain of a network topology (topo:5 to 7).

For a subgroup with a constraint the plugin offers one node set after another: the finest level wanted first, inside a
level the fullest domain that can hold the tasks first.  Running pods pin the domain of a required level.  A preferred
level also ranks the nodes of a set: its emptiest sub-domain is filled first, so as few as possible are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from pykai.core.axes import BoolArray, FloatArray, IntArray
from pykai.core.gangs import BranchRun, Gang, LeafRun
from pykai.core.hooks import Hooks, NodeSet
from pykai.core.place.topology import Demand, DomainTree, domain_tree
from pykai.core.plugins.arguments import Reader
from pykai.core.snapshot import Snapshot
from pykai.core.state import State
from pykai.core.tasks import Task

#: What the emptiest preferred domain is worth (cycle:SCO-2).
_STEP, _STEPS = 100_000.0, 10


@dataclass(frozen=True, slots=True)
class TopologyPlugin:
    """Placement by topology."""

    ARGUMENTS: ClassVar[Mapping[str, tuple[str, Reader]]] = {}

    def prepare(self, snapshot: Snapshot) -> Hooks:
        """Node sets for groups that name a topology."""
        if not any(entry.group is not None and entry.group.names_topology for entry in snapshot.groups.values()):
            return Hooks()
        return Hooks(node_sets=partial(_node_sets, snapshot), node_sets_for=lambda gang: gang.group.names_topology)


def _tree(snapshot: Snapshot, name: str) -> DomainTree | None:
    topology = snapshot.topologies.get(name)
    if topology is None:
        return None
    levels = tuple((level.node_label, level.alias) for level in topology.spec.levels)
    return snapshot.nodes.remember(("topology", name, levels), lambda: domain_tree(snapshot.nodes, topology))


def _node_sets(
    snapshot: Snapshot, state: State, gang: Gang, node: BranchRun | LeafRun, tasks: Sequence[Task], nodes: NodeSet
) -> list[NodeSet]:
    """The node sets to try for a subgroup, in order; none when it cannot be placed."""
    wanted = node.topology
    if wanted is None or not wanted.topology or not tasks:
        return [nodes]
    tree = _tree(snapshot, wanted.topology)
    if tree is None:
        return []
    required, preferred = wanted.required_topology_level, wanted.preferred_topology_level
    at_least = tree.levels.get(required) if required else None
    at_best = tree.levels.get(preferred) if preferred else None
    if (required and at_least is None) or (preferred and at_best is None) or not (required or preferred):
        return []
    if at_least is not None and at_best is not None and at_best < at_least:
        return []
    search = _Search(state, tree, tasks, nodes)
    depth, domain = search.working_domain(at_best)
    if not search.fits(depth)[domain if depth >= 0 else 0]:
        return []
    deepest = at_best if at_best is not None else at_least
    assert deepest is not None
    order = search.order(depth, domain, deepest)
    scores = _scores(tree, order[at_best], at_best) if at_best is not None else None
    pinned = _pinned(state, gang, node, tasks, tree, at_least) if at_least is not None else None
    found: list[NodeSet] = []
    for level in range(deepest, (at_least if at_least is not None else -1) - 1, -1):
        fitting = search.fits(level)
        for number in order[level] if level >= 0 else [0]:
            if not fitting[number]:
                continue
            if level < 0:
                found.append(NodeSet(search.inside, "", scores))
                continue
            mask = search.inside & (tree.codes[level] == number)
            if pinned is not None and not pinned[mask].any():
                continue
            found.append(NodeSet(mask, tree.ids[level][number], scores))
    return found


class _Search:
    """One question about the domains, with the columns as they are now."""

    def __init__(self, state: State, tree: DomainTree, tasks: Sequence[Task], nodes: NodeSet) -> None:
        self._tree = tree
        self._demand = Demand(state, tasks)
        self.inside: BoolArray = tree.member if nodes.mask is None else tree.member & nodes.mask
        self._root: IntArray = np.where(tree.member, 0, -1)
        self._pods = self._demand.pods_on() if self._demand.homogeneous else None

    def _level(self, level: int) -> tuple[IntArray, int]:
        """[node] domain numbers of a level, -1 being the root, and how many domains there are."""
        return (self._root, 1) if level < 0 else (self._tree.codes[level], len(self._tree.ids[level]))

    def working_domain(self, preferred: int | None) -> tuple[int, int]:
        """The deepest domain that holds all nodes of the set, no deeper than the preferred level (topo:5, step 2)."""
        depth, domain = -1, 0
        for level, codes in enumerate(self._tree.codes):
            found = np.unique(codes[self.inside])
            if len(found) != 1:
                break
            depth, domain = level, int(found[0])
            if level == preferred:
                break
        return depth, domain

    def fits(self, level: int) -> list[bool]:
        """[domain] whether the tasks could fit (topo:5.3)."""
        codes, domains = self._level(level)
        if self._pods is not None:
            counts = np.bincount(codes[self.inside], weights=self._pods[self.inside], minlength=domains)
            enough: BoolArray = counts >= self._demand.count
        else:
            enough = self._ratios(level) <= 1
        return [bool(each) for each in enough]

    def _ratios(self, level: int) -> FloatArray:
        codes, domains = self._level(level)
        return self._demand.ratios(codes, domains, self.inside)

    def order(self, depth: int, domain: int, deepest: int) -> dict[int, list[int]]:
        """Level -> its domains below the working domain, as the sorted tree lists them: fullest first under each
        parent, then by id (topo:5, step 7)."""
        found: dict[int, list[int]] = {depth: [domain]}
        for level in range(depth + 1, deepest + 1):
            ratios = self._ratios(level)
            children: dict[int, list[int]] = {}
            for number, parent in enumerate(self._tree.parents[level]):
                children.setdefault(parent, []).append(number)
            ids = self._tree.ids[level]
            found[level] = [
                number
                for parent in found[level - 1]
                for number in sorted(children.get(parent, ()), key=lambda each: (-ratios[each], ids[each]))
            ]
        for level in range(depth):
            # Above the working domain there is only the way to it.
            codes = self._tree.codes[level]
            found[level] = [int(codes[self._tree.codes[depth] == domain][0])]
        return found


def _scores(tree: DomainTree, order: list[int], level: int) -> FloatArray:
    """[node] what the preferred level adds, to the emptiest domain most; nodes outside drop out (topo:T-30, T-33)."""
    worth: FloatArray = np.full(len(tree.ids[level]) + 1, -np.inf)
    for place, number in enumerate(order, 1):
        worth[number] = (_STEPS * place // len(order)) * _STEP
    return worth[tree.codes[level]]


def _pinned(
    state: State, gang: Gang, node: BranchRun | LeafRun, tasks: Sequence[Task], tree: DomainTree, level: int
) -> BoolArray | None:
    """[node] inside a domain where pods of the batch's subgroups run already, None when none does (topo:T-25)."""
    concerned = {task.subgroup for task in tasks}
    active = gang.active(state.status_of)
    rows = [state.seat_of(task).row for name in concerned for task in active.get(name, ()) if _has_row(state, task)]
    if not any(active.get(name) for name in concerned):
        return None
    numbers = {int(tree.codes[level][row]) for row in rows} - {-1}
    return np.isin(tree.codes[level], sorted(numbers))


def _has_row(state: State, task: Task) -> bool:
    return task.key in state.moved or task.node in state.snapshot.nodes.rows
