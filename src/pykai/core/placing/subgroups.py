"""Placing the subgroups of a gang inside the node sets that plugins offer (cycle:ALC-2; topo:8).

The tree is walked with a mark at every level: a set that fails is rolled back before the next is tried.  A subgroup
that is placed stays while its siblings are placed, as in KAI; only if the whole gang fails that way, and some subgroup
had another set to try, are those tried too, as many as the budget allows (topo:T-38, TD-6).

In that second walk, subgroups that need the smallest domain go first.  With equal pods, the rest of a domain does not
depend on which pods took what, so no subgroup with a choice takes what another one needs, and if every set fails, no
placement exists.  Where that order does not exist (subgroups of subgroups, two topologies), the refusal says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pykai.core.cycle.gangs import Batch, BranchState, Gang, LeafState, by_subgroup_order
from pykai.core.hooks import NodeSet, NoNodeSets
from pykai.core.model.tasks import Task
from pykai.core.placing.failures import PlacementFailure
from pykai.core.placing.task import PlacementMode, TaskPlacer
from pykai.core.placing.topology import narrowing_of
from pykai.core.report.decisions import DomainSearchStopped

#: How often a placed subgroup is retried on another set.
MAX_RETRIES = 256


def place_subgroups(
    placer: TaskPlacer, gang: Gang, batches: list[Batch], nodes: NodeSet, mode: PlacementMode
) -> PlacementFailure | None:
    """Place all tasks, or return why not; the caller rolls back."""
    search = _SubgroupSearch(placer, gang, batches, mode, 0)
    if search.place_all(nodes):
        return None
    if not search.budget_spent:
        return search.failure
    retry_search = _SubgroupSearch(placer, gang, batches, mode, MAX_RETRIES)
    if retry_search.place_all(nodes):
        return None
    if retry_search.is_exhaustive:
        return search.failure
    return search.failure._replace(refusals=(*search.failure.refusals, DomainSearchStopped(retry_search.tried)))


class _SubgroupSearch:
    """One walk over the subgroups."""

    def __init__(self, placer: TaskPlacer, gang: Gang, batches: list[Batch], mode: PlacementMode, retries: int) -> None:
        self._placer = placer
        self._state = placer.state
        self._rules = placer.rules
        self._gang = gang
        self._batches = {id(batch.leaf): (index, batch) for index, batch in enumerate(batches)}
        self._mode = mode
        #: subgroup -> tasks to place in it, by identity
        self._tasks_by_subgroup: dict[int, list[Task]] = {}
        self._retries = retries
        #: how often a placed subgroup was retried on another set
        self.tried = 0
        #: some subgroup had more sets to try when the budget was spent
        self.budget_spent = False
        #: the last one
        self.failure = PlacementFailure(0, 0, "", {}, False)

    def place_all(self, nodes: NodeSet) -> bool:
        """Whether all could be placed; if not, nothing is left behind."""
        return any(True for _ in self._placements(self._gang.root, nodes))

    def _tasks_below(self, node: BranchState | LeafState) -> list[Task]:
        if isinstance(node, LeafState):
            indexed_batch = self._batches.get(id(node))
            return indexed_batch[1].tasks if indexed_batch is not None else []
        tasks = self._tasks_by_subgroup.get(id(node))
        if tasks is None:
            tasks = [task for child in node.children for task in self._tasks_below(child)]
            self._tasks_by_subgroup[id(node)] = tasks
        return tasks

    def _placements(self, node: BranchState | LeafState, nodes: NodeSet) -> Iterator[None]:
        """Yields each time the subgroup is placed; resuming tries another placement."""
        tasks = self._tasks_below(node)
        if not tasks:
            yield
            return
        state = self._state
        counts: Counter[str] = Counter()
        for candidate in self._node_sets(node, tasks, nodes):
            mark = state.mark()
            placed = False
            for _ in self._placements_in_set(node, candidate):
                placed = True
                yield
                if not self._may_retry():
                    # The subgroup around it rolls back.
                    return
            state.rollback(mark)
            if not placed:
                # The reasons of the nodes of each set add up (cycle:EXP-2).
                counts.update(self.failure.nodes)
                self.failure = self.failure._replace(nodes=dict(sorted(counts.items())))

    def _may_retry(self) -> bool:
        if self.tried == self._retries:
            self.budget_spent = True
            return False
        self.tried += 1
        return True

    @property
    def is_exhaustive(self) -> bool:
        """After a failed walk: whether no placement exists at all, as far as equal pods go."""
        topologies: set[str] = set()
        order = list(self._narrowing_levels(self._gang.root, 0, topologies))
        return not self.budget_spent and len(topologies) < 2 and order == sorted(order, reverse=True)

    def _narrowing_levels(self, node: BranchState | LeafState, above: int, topologies: set[str]) -> Iterator[int]:
        """How far the leaves are narrowed, in the order in which they are placed, and by which topologies."""
        if not self._tasks_below(node):
            return
        topology, depth = narrowing_of(self._state.snapshot, node)
        if depth:
            topologies.add(topology)
        if isinstance(node, LeafState):
            yield max(above, depth)
            return
        for child in self._placement_order(node):
            yield from self._narrowing_levels(child, max(above, depth), topologies)

    # Subgroup order, unless retries put the narrowest first (topo:T-36).
    def _placement_order(self, node: BranchState) -> list[LeafState | BranchState]:
        order = by_subgroup_order(node.children, self._rules.subgroup_key)
        if not self._retries:
            return order
        return sorted(order, key=lambda child: (-self._deepest_narrowing(child), -len(self._tasks_below(child))))

    def _deepest_narrowing(self, node: BranchState | LeafState) -> int:
        """How far a subgroup or one below it is narrowed."""
        own = narrowing_of(self._state.snapshot, node)[1]
        return max([own, *map(self._deepest_narrowing, node.children)]) if isinstance(node, BranchState) else own

    def _node_sets(
        self, node: BranchState | LeafState, tasks: list[Task], nodes: NodeSet, position: int = 0
    ) -> Iterator[NodeSet]:
        """The node sets of a subgroup, those of one plugin inside those of the one before it (topo:T-39)."""
        set_makers = self._rules.node_set_makers(self._gang)
        if position == len(set_makers):
            yield nodes
            return
        offered = set_makers[position](self._state, self._gang, node, tasks, nodes)
        if isinstance(offered, NoNodeSets):
            self.failure = PlacementFailure(self._first_batch(tasks), 0, "", {}, False, offered.refusals)
            return
        is_empty = True
        for node_set in offered:
            is_empty = False
            yield from self._node_sets(node, tasks, node_set, position + 1)
        if is_empty:
            text = "no set of nodes can hold the subgroup"
            self.failure = PlacementFailure(self._first_batch(tasks), 0, text, {}, False)

    def _first_batch(self, tasks: list[Task]) -> int:
        return min(index for index, batch in self._batches.values() if batch.tasks[0] in tasks)

    def _placements_in_set(self, node: BranchState | LeafState, candidate: NodeSet) -> Iterator[None]:
        """Ways to place a subgroup on one set of nodes (topo:T-37)."""
        if isinstance(node, BranchState):
            yield from self._child_placements(self._placement_order(node), 0, candidate)
            return
        index, batch = self._batches[id(node)]
        failure = self._placer.place_batch(self._gang, batch, index, candidate, self._mode)
        if failure is None:
            yield
        else:
            self.failure = failure

    def _child_placements(
        self, children: list[LeafState | BranchState], position: int, candidate: NodeSet
    ) -> Iterator[None]:
        if position == len(children):
            yield
            return
        for _ in self._placements(children[position], candidate):
            yield from self._child_placements(children, position + 1, candidate)
