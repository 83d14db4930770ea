"""Victim sets that cannot suffice, found without a trial (cycle:PERF-7).

For each kind of task to place, every node can hold at most so many: the least, over all resources, of what would be
free divided by the request.  If the sum over the nodes is less than the number of tasks of that kind, no trial can
succeed.  A subgroup that must stay inside one domain of a topology needs that much in one domain (topo:T-54, TD-9): a
rack that cannot be emptied far enough is never tried.

Only facts that no eviction changes are counted against a node besides its resources, and shared GPUs are counted
generously, so a sufficient set of victims is never excluded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Batch, BranchState, Gang, LeafState, leaves_of
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.eviction.readunits import ReadUnits
from pykai.core.eviction.units import EvictableTask, freed_by
from pykai.core.hooks import ALL_NODES, Rules
from pykai.core.model.axes import IntArray
from pykai.core.placing.claimamounts import claimed_amounts
from pykai.core.placing.fit import device_fits_request, fits_plane, shared_axes
from pykai.core.placing.ranking import Rankings
from pykai.core.placing.topology import active_rows, levels_of, pinned_nodes, topology_tree

#: Unlimited: more than any number of tasks.
_UNBOUNDED = 2**31
#: How many units `add_until_sufficient` counts first.
_FIRST_STEP = 64


class _TaskKind:
    """Tasks of one kind."""

    __slots__ = ("_allowed", "_claimed", "allowed", "base", "claimed", "count", "is_shared", "requested", "total")

    def __init__(self, state: State, rankings: Rankings, request: PlacementRequest, count: int) -> None:
        ranking = rankings.ranking_for(state, request, ALL_NODES)
        self.count = count
        self.is_shared = request.shape.shared
        axes = state.snapshot.axes
        gpus = {*axes.gpu_axes, *axes.mig_axes}
        requested = [(axis, amount) for axis, amount in request.vector.requested if amount > 0]
        #: GPUs first, because they are scarce
        self.requested = sorted(requested, key=lambda item: (item[0] not in gpus, item[0]))
        self._claimed = claimed_amounts(state, request.shape)
        #: the same for resources of claims, with the nodes that have them (elsewhere they are not counted)
        self.claimed = [(axis, amount, offered.tolist()) for axis, amount, offered in self._claimed]
        allowed = ranking.allowed
        if request.shape.shared:
            allowed = (
                allowed & (shared_axes(state.snapshot) >= 0) & device_fits_request(state.snapshot.nodes, request.shape)
            )
            # Devices only: other reasons against a node may go with a victim elsewhere.
            counts: IntArray = np.where(allowed & fits_plane(state, state.free, request, slice(None)), _UNBOUNDED, 0)
        else:
            counts = self._tasks_per_node(state.free)
            counts[~allowed] = 0
        self._allowed = allowed
        self.allowed: list[bool] = allowed.tolist()
        #: [node] tasks it could hold with what is free now
        self.base: list[int] = counts.tolist()
        self.total = int(counts.sum())

    def _tasks_per_node(self, free: IntArray) -> IntArray:
        counts = np.full(free.shape[1], _UNBOUNDED, dtype=np.int64)
        for axis, amount in self.requested:
            np.minimum(counts, free[axis] // amount, out=counts)
        for axis, amount, offered in self._claimed:
            np.minimum(counts, free[axis] // amount, out=counts, where=offered)
        return np.maximum(counts, 0, out=counts)

    def count_by_node(self, free: IntArray) -> IntArray:
        """[node] tasks it could hold with so much free."""
        return np.where(self._allowed, self._tasks_per_node(free), 0)

    def count_at(self, row: int, free: list[int]) -> int:
        """Tasks a node could hold with so much free."""
        if not self.allowed[row]:
            return 0
        least = _UNBOUNDED
        for axis, amount in self.requested:
            fitting = free[axis] // amount
            if fitting < least:
                if fitting <= 0:
                    return 0
                least = fitting
        for axis, amount, offered in self.claimed:
            if offered[row]:
                least = min(least, max(free[axis] // amount, 0))
        return least


class _DomainRequirement:
    """A subgroup that must be inside one domain."""

    __slots__ = ("_domains", "domain_by_node", "domains_with_room", "missing", "needs")

    def __init__(self, codes: IntArray, domains: int, needs: dict[int, int], kinds: list[_TaskKind]) -> None:
        self._domains = domains
        #: [node] number of its domain, -1 where the subgroup may not be
        self.domain_by_node: list[int] = codes.tolist()
        #: kind -> how many tasks of it
        self.needs = needs
        #: kind -> [domain] for how many of them there is no room yet
        self.missing = self.missing_with([kind.base for kind in kinds])
        #: domains with room for all
        self.domains_with_room = self.count_with_room(self.missing)

    def missing_with(self, places: Sequence[IntArray | list[int]]) -> dict[int, list[int]]:
        """Kind -> [domain] for how many tasks there is no room, if nodes have room for so many of each kind."""
        return {
            number: [wanted - have for have in self._by_domain(places[number])] for number, wanted in self.needs.items()
        }

    def count_with_room(self, missing: dict[int, list[int]]) -> int:
        """How many domains have room for all."""
        return sum(all(kind[domain] <= 0 for kind in missing.values()) for domain in range(self._domains))

    def _by_domain(self, places: IntArray | list[int]) -> list[int]:
        codes = np.array(self.domain_by_node, dtype=np.int64)
        inside = codes >= 0
        weights = np.asarray(places)[inside]
        counts: list[int] = np.bincount(codes[inside], weights=weights, minlength=self._domains).astype(int).tolist()
        return counts

    def is_unsatisfiable(self, places: list[IntArray]) -> bool:
        """Whether no domain would have room for all."""
        held = {number: self._by_domain(places[number]) for number in self.needs}
        return not any(
            all(held[number][domain] >= wanted for number, wanted in self.needs.items())
            for domain in range(self._domains)
        )


def _requirements(
    state: State, rules: Rules, gang: Gang, batches: list[Batch], numbers: dict[int, int]
) -> Iterator[tuple[IntArray, int, dict[int, int]]]:
    """Domains by node, their number, and what is needed in one of them, for every subgroup with a required level."""
    if not gang.group.names_topology or not rules.node_set_makers(gang):
        return
    tasks = {batch.leaf.name: batch.tasks for batch in batches}
    nodes: list[BranchState | LeafState] = [gang.root]
    while nodes:
        node = nodes.pop()
        if isinstance(node, BranchState):
            nodes += node.children
        needs = Counter(numbers[task.shape.id] for leaf in leaves_of(node) for task in tasks.get(leaf.name, ()))
        constraint = node.topology
        if constraint is None or not needs:
            continue
        tree = topology_tree(state.snapshot, constraint.topology)
        levels = levels_of(tree, constraint, node.name) if tree is not None else ""
        if tree is None or isinstance(levels, str) or not levels.required:
            continue
        codes = np.where(tree.member, tree.codes[levels.required] - tree.level_starts[levels.required], -1)
        rows = active_rows(state, gang, node)
        if rows is not None:
            codes = np.where(pinned_nodes(tree, levels.required, rows), codes, -1)
        yield codes, len(tree.domains_of_level(levels.required)), dict(needs)


class CapacityBounds:
    """What would have to be free for some tasks of a gang; holds for one state."""

    def __init__(self, state: State, rules: Rules, rankings: Rankings, gang: Gang, batches: list[Batch]) -> None:
        self._state = state
        kinds: dict[int, tuple[PlacementRequest, int]] = {}
        for batch in batches:
            for task in batch.tasks:
                seen = kinds.get(task.shape.id)
                if seen is None:
                    seen = (PlacementRequest(task, gang, batch.leaf, state.snapshot.vectors[task.shape]), 0)
                kinds[task.shape.id] = (seen[0], seen[1] + 1)
        self.kinds = [_TaskKind(state, rankings, request, count) for request, count in kinds.values()]
        #: node row -> what is free there, as a list
        self._free: dict[int, list[int]] = {}
        numbers = {shape: number for number, shape in enumerate(kinds)}
        self.requirements = [
            _DomainRequirement(codes, domains, needs, self.kinds)
            for codes, domains, needs in _requirements(state, rules, gang, batches, numbers)
        ]

    def is_unsatisfiable(self, evictable: IntArray) -> bool:
        """Whether not even the eviction of every victim would suffice."""
        return not self.suffices_with(self._state.free + evictable)

    def suffices_with(self, free: IntArray) -> bool:
        """Whether the tasks could fit with so much free, [axis, node]."""
        places = [kind.count_by_node(free) for kind in self.kinds]
        if any(int(found.sum()) < kind.count for kind, found in zip(self.kinds, places, strict=True)):
            return False
        return not any(requirement.is_unsatisfiable(places) for requirement in self.requirements)

    @property
    def has_shared(self) -> bool:
        """Whether a task requests a share of a GPU: its places are not counted by amounts alone."""
        return any(kind.is_shared for kind in self.kinds)

    def free_with(self, changed: Mapping[int, list[int]]) -> IntArray:
        """[axis, node] what is free, other on some nodes."""
        free = self._state.free.copy()
        for row, amounts in changed.items():
            free[:, row] = amounts
        return free

    def free_at(self, row: int) -> list[int]:
        """What is free on a node, by axis."""
        free = self._free.get(row)
        if free is None:
            free = self._free[row] = self._state.free[:, row].tolist()
        return free


class FreedCapacity:
    """What a growing set of victims frees, and how many tasks of each kind that makes room for at most.

    Statements: cycle:SOL-8.
    """

    __slots__ = (
        "_bounds",
        "_counts",
        "_enough",
        "_everywhere",
        "_free",
        "_in_domains",
        "_missing",
        "_missing_in_domains",
        "_snapshot",
    )

    def __init__(self, snapshot: Snapshot, bounds: CapacityBounds) -> None:
        self._snapshot = snapshot
        self._bounds = bounds
        self._free: dict[int, list[int]] = {}
        #: kind -> tasks for which there is no room yet
        self._missing = [kind.count - kind.total for kind in bounds.kinds]
        self._counts: dict[int, list[int]] = {}
        #: requirement -> domains with room for all of its tasks
        self._enough = [requirement.domains_with_room for requirement in bounds.requirements]
        #: requirement -> kind -> [domain] for how many tasks there was no room before those below
        self._missing_in_domains = [requirement.missing for requirement in bounds.requirements]
        #: what was free on all nodes, and kind -> [node] tasks, before those below; None = what the state has
        self._everywhere: tuple[IntArray, list[IntArray]] | None = None
        #: (requirement, domain) -> kind -> tasks for which it has no room yet
        self._in_domains: dict[tuple[int, int], dict[int, int]] = {}

    def copy(self) -> FreedCapacity:
        """A copy to extend."""
        copied = FreedCapacity(self._snapshot, self._bounds)
        copied._free = {row: free.copy() for row, free in self._free.items()}
        copied._missing = self._missing.copy()
        copied._counts = {row: counts.copy() for row, counts in self._counts.items()}
        copied._enough = self._enough.copy()
        copied._missing_in_domains, copied._everywhere = self._missing_in_domains, self._everywhere
        copied._in_domains = {place: missing.copy() for place, missing in self._in_domains.items()}
        return copied

    @property
    def grows_only(self) -> bool:
        """Whether a victim never takes room away, as it may where whole free devices were counted as unlimited."""
        return not self._bounds.has_shared

    @property
    def suffices(self) -> bool:
        """Whether the tasks could fit."""
        for missing in self._missing:
            if missing > 0:
                return False
        return all(self._enough)

    def add(self, members: Iterable[EvictableTask]) -> None:
        """Count more victims."""
        for member in members:
            free = self._free_at(member.row)
            for axis, amount in freed_by(self._snapshot, member):
                free[axis] += amount
            self._recount(member.row, free)

    def add_until_sufficient(self, read: ReadUnits, first: int, left_out: Collection[str]) -> int:
        """Count units from a place on, up to the first with which the tasks could fit, or all; returns the next place.

        Every unit only adds room, so the place is found by doubling and halving, over columns of many units.
        """
        bounds, low, step = self._bounds, first, _FIRST_STEP
        free = bounds.free_with(self._free)
        while True:
            high = read.read(low + step)
            more = free + read.freed(low, high, left_out)
            if bounds.suffices_with(more) or high < low + step:
                break
            free, low, step = more, high, 2 * step
        if bounds.suffices_with(more):
            while high - low > 1:
                middle = (low + high) // 2
                more = free + read.freed(low, middle, left_out)
                if bounds.suffices_with(more):
                    high = middle
                else:
                    free, low = more, middle
            more = free + read.freed(low, high, left_out)
        self._count_everywhere(more)
        return high

    def _count_everywhere(self, free: IntArray) -> None:
        """So much is free on all nodes, [axis, node]."""
        bounds = self._bounds
        self._everywhere = (free, [kind.count_by_node(free) for kind in bounds.kinds])
        places = self._everywhere[1]
        self._free, self._counts, self._in_domains = {}, {}, {}
        self._missing = [kind.count - int(found.sum()) for kind, found in zip(bounds.kinds, places, strict=True)]
        self._missing_in_domains = [requirement.missing_with(places) for requirement in bounds.requirements]
        self._enough = [
            requirement.count_with_room(missing)
            for requirement, missing in zip(bounds.requirements, self._missing_in_domains, strict=True)
        ]

    def _free_at(self, row: int) -> list[int]:
        """What is free on a node with the victims counted so far, by axis; to be changed."""
        free = self._free.get(row)
        if free is None and self._everywhere is not None:
            columns, places = self._everywhere
            free = self._free[row] = columns[:, row].tolist()
            self._counts[row] = [int(found[row]) for found in places]
        elif free is None:
            free = self._free[row] = self._bounds.free_at(row).copy()
            self._counts[row] = [kind.base[row] for kind in self._bounds.kinds]
        return free

    def _recount(self, row: int, free: list[int]) -> None:
        """A node has so much free now."""
        counts = self._counts[row]
        for index, kind in enumerate(self._bounds.kinds):
            count = kind.count_at(row, free)
            if count != counts[index]:
                self._missing[index] -= count - counts[index]
                self._count_in_domain(row, index, count - counts[index])
                counts[index] = count

    def _count_in_domain(self, row: int, kind: int, more: int) -> None:
        """A node has room for more tasks of a kind: so have the domains it lies in."""
        for number, requirement in enumerate(self._bounds.requirements):
            domain = requirement.domain_by_node[row]
            if domain < 0 or kind not in requirement.needs:
                continue
            missing = self._in_domains.get((number, domain))
            if missing is None:
                missing = {known: base[domain] for known, base in self._missing_in_domains[number].items()}
                self._in_domains[number, domain] = missing
            had_room = all(count <= 0 for count in missing.values())
            missing[kind] -= more
            self._enough[number] += all(count <= 0 for count in missing.values()) - had_room
