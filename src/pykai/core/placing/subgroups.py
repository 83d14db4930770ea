"""Placing the subgroups of a gang inside the node sets that plugins offer (cycle:ALC-2; topo:8).

The tree is walked with a mark at every level: a set that fails is rolled back before the next is tried.  A subgroup
that found a place keeps it while its siblings look for theirs, as in KAI; only when the whole gang fails that way, and
some subgroup had another set to try, are those tried too, as many as the budget allows (topo:T-38, TD-6).

In that second walk those go first who must be in the smallest domain.  Of equal pods, what is left of a domain does not
depend on who of them took what, so nobody with a choice takes what another one needs, and when all is tried in vain
there is no way.  Where that order cannot be had (subgroups of subgroups, two topologies), the refusal says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pykai.core.cycle.gangs import Batch, BranchRun, Gang, LeafRun, by_subgroup_order
from pykai.core.cycle.session import Failure, Session
from pykai.core.hooks import NodeSet, NoSets
from pykai.core.model.tasks import Task
from pykai.core.placing.task import Manner, place_batch
from pykai.core.placing.topology import narrowed_to
from pykai.core.report.decisions import WaysSpent

#: How often a subgroup that has a place is asked for another one.
MOST_RETRIES = 256


def place_subgroups(
    session: Session, gang: Gang, batches: list[Batch], nodes: NodeSet, manner: Manner
) -> Failure | None:
    """Place all tasks or tell why not; the caller rolls back."""
    walk = _Walk(session, gang, batches, manner, 0)
    if walk.find(nodes):
        return None
    if not walk.cut_short:
        return walk.failure
    again = _Walk(session, gang, batches, manner, MOST_RETRIES)
    if again.find(nodes):
        return None
    if again.complete:
        return walk.failure
    return walk.failure._replace(refusals=(*walk.failure.refusals, WaysSpent(again.tried)))


class _Walk:
    """One walk over the subgroups."""

    def __init__(self, session: Session, gang: Gang, batches: list[Batch], manner: Manner, retries: int) -> None:
        self._session = session
        self._gang = gang
        self._batches = {id(batch.leaf): (index, batch) for index, batch in enumerate(batches)}
        self._manner = manner
        #: subgroup -> tasks to place in it, by identity
        self._below: dict[int, list[Task]] = {}
        self._retries = retries
        #: how often a subgroup with a place was asked for another one
        self.tried = 0
        #: some subgroup had more sets to try when the budget was spent
        self.cut_short = False
        #: the last one
        self.failure = Failure(0, 0, 0, "", {}, False)

    def find(self, nodes: NodeSet) -> bool:
        """Whether all could be placed; if not, nothing is left behind."""
        return next(self._ways(self._gang.root, nodes), False)

    def _tasks_below(self, node: BranchRun | LeafRun) -> list[Task]:
        if isinstance(node, LeafRun):
            found = self._batches.get(id(node))
            return found[1].tasks if found is not None else []
        below = self._below.get(id(node))
        if below is None:
            below = [task for child in node.children for task in self._tasks_below(child)]
            self._below[id(node)] = below
        return below

    def _ways(self, node: BranchRun | LeafRun, nodes: NodeSet) -> Iterator[bool]:
        """Yields True each time the subgroup has a place; whoever goes on asks for another one."""
        tasks = self._tasks_below(node)
        if not tasks:
            yield True
            return
        state = self._session.state
        counts: Counter[str] = Counter()
        for candidate in self._sets(node, tasks, nodes):
            mark = state.mark()
            placed = False
            for _ in self._inside(node, candidate):
                placed = True
                yield True
                if not self._may_retry():
                    state.rollback(mark)
                    return
            state.rollback(mark)
            if not placed:
                # What the nodes of each set said adds up (cycle:EXP-2).
                counts.update(self.failure.nodes)
                self.failure = self.failure._replace(nodes=dict(sorted(counts.items())))

    def _may_retry(self) -> bool:
        if self.tried == self._retries:
            self.cut_short = True
            return False
        self.tried += 1
        return True

    @property
    def complete(self) -> bool:
        """After a walk in vain: whether there is no way at all, as far as equal pods go."""
        topologies: set[str] = set()
        order = list(self._narrowed(self._gang.root, 0, topologies))
        return not self.cut_short and len(topologies) < 2 and order == sorted(order, reverse=True)

    def _narrowed(self, node: BranchRun | LeafRun, above: int, topologies: set[str]) -> Iterator[int]:
        """How far the leaves are narrowed, in the order in which they are placed, and by which topologies."""
        if not self._tasks_below(node):
            return
        topology, depth = narrowed_to(self._session.snapshot, node)
        if depth:
            topologies.add(topology)
        if isinstance(node, LeafRun):
            yield max(above, depth)
            return
        for child in self._order(node):
            yield from self._narrowed(child, max(above, depth), topologies)

    # Subgroup order, unless retries put the narrowest first (topo:T-36).
    def _order(self, node: BranchRun) -> list[LeafRun | BranchRun]:
        order = by_subgroup_order(node.children, self._session.rules.subgroup_key)
        if not self._retries:
            return order
        return sorted(order, key=lambda child: (-self._deepest(child), -len(self._tasks_below(child))))

    def _deepest(self, node: BranchRun | LeafRun) -> int:
        """How far a subgroup or one below it is narrowed."""
        own = narrowed_to(self._session.snapshot, node)[1]
        return max([own, *map(self._deepest, node.children)]) if isinstance(node, BranchRun) else own

    def _sets(
        self, node: BranchRun | LeafRun, tasks: list[Task], nodes: NodeSet, position: int = 0
    ) -> Iterator[NodeSet]:
        """The node sets of a subgroup, those of one plugin inside those of the one before it (topo:T-39)."""
        makers = self._session.rules.sets_for(self._gang)
        if position == len(makers):
            yield nodes
            return
        offered = makers[position](self._session.state, self._gang, node, tasks, nodes)
        if isinstance(offered, NoSets):
            self.failure = Failure(0, self._first_batch(tasks), 0, "", {}, False, offered.refusals)
            return
        none = True
        for each in offered:
            none = False
            yield from self._sets(node, tasks, each, position + 1)
        if none:
            text = "no set of nodes can hold the subgroup"
            self.failure = Failure(0, self._first_batch(tasks), 0, text, {}, False)

    def _first_batch(self, tasks: list[Task]) -> int:
        return min(index for index, batch in self._batches.values() if batch.tasks[0] in tasks)

    def _inside(self, node: BranchRun | LeafRun, candidate: NodeSet) -> Iterator[bool]:
        """Ways to place a subgroup on one set of nodes (topo:T-37)."""
        if isinstance(node, BranchRun):
            yield from self._one_by_one(self._order(node), 0, candidate)
            return
        index, batch = self._batches[id(node)]
        failure = place_batch(self._session, self._gang, batch, index, candidate, self._manner)
        if failure is None:
            yield True
        else:
            self.failure = failure

    def _one_by_one(self, children: list[LeafRun | BranchRun], position: int, candidate: NodeSet) -> Iterator[bool]:
        if position == len(children):
            yield True
            return
        for _ in self._ways(children[position], candidate):
            yield from self._one_by_one(children, position + 1, candidate)
