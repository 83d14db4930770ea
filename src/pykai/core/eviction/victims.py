"""What can be evicted, in units that go together (cycle:6.3), worst first inside each leaf queue.

A gang gives up what it has beyond its minimum pod by pod, then whole subgroups beyond what it needs, then all of the
rest at once; masters go last because tasks leave in reverse order.  The units of a gang and their places in the line of
its queue depend on the gang alone, so one table serves all searches of a cycle: after a commit only the gangs that
changed are listed anew.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pykai.api import names
from pykai.core.cluster.groupindex import QueueCount
from pykai.core.cycle.gangs import BranchRun, Gang, LeafRun, SubgroupKey
from pykai.core.cycle.session import Session
from pykai.core.model.axes import IntArray
from pykai.core.model.status import Status
from pykai.core.model.tasks import Task
from pykai.core.placing.claimamounts import freed_by
from pykai.core.queueing.queueledger import Amounts

Key = tuple[Any, ...]
Line = Sequence[tuple[Key, int, "Unit"]]


_NOBODY = QueueCount()


class Member:
    """A task that may be evicted, with its leaf and node."""

    __slots__ = ("amounts", "claimed", "leaf", "row", "task")

    def __init__(
        self, leaf: LeafRun, task: Task, row: int, amounts: Amounts, claimed: tuple[tuple[int, int], ...] = ()
    ) -> None:
        self.leaf = leaf
        self.task = task
        self.row = row
        #: what it costs its queue where it is
        self.amounts = amounts
        #: what its claims would free of the columns of its node at most: axis and amount
        self.claimed = claimed


class Unit:
    """Tasks of a gang that are evicted together."""

    __slots__ = ("gang", "members", "rows", "whole")

    def __init__(self, gang: Gang, members: list[Member], whole: Amounts) -> None:
        self.gang = gang
        self.members = members
        #: nodes they are on, ascending
        self.rows: tuple[int, ...] = tuple(sorted({member.row for member in members}))
        #: what all that may be evicted of the gang costs its queue
        self.whole = whole


def eviction_batches(
    gang: Gang, active: dict[str, list[Task]], subgroup_key: SubgroupKey, core: frozenset[str] = frozenset()
) -> Iterator[list[Task]]:
    """What to evict of a gang, step by step; `active` is used up, and the counters of the leaves follow.

    Tasks of the `core` of a semi-preemptible gang stay.  Whoever calls this must put the counters back.

    Statements: cycle:PG-12, PG-13, SOL-11.
    """
    if core:
        # The core comes first, whatever started before it in task order since.
        active.update({name: sorted(tasks, key=lambda task: task.key not in core) for name, tasks in active.items()})
    while any(active.values()):
        batch = _elastic(gang.root, active, subgroup_key, core)
        if not batch:
            if gang.semi:
                return
            batch = [task for leaf in gang.leaves for task in reversed(active.get(leaf.name, ()))]
        gone = set(batch)
        for leaf in gang.leaves:
            tasks = active.get(leaf.name)
            if tasks:
                kept = [task for task in tasks if task not in gone]
                leaf.active_allocated -= len(tasks) - len(kept)
                active[leaf.name] = kept
        yield batch


def _elastic(branch: BranchRun, active: dict[str, list[Task]], key: SubgroupKey, core: frozenset[str]) -> list[Task]:
    """What a subgroup can give without ceasing to be satisfied: one pod, or one whole child (cycle:6.3)."""
    satisfied = sum(child.satisfied for child in branch.children)
    if not satisfied:
        return []
    worst_first = sorted(branch.children, key=lambda child: (key(*child.standing), child.name), reverse=True)
    for child in worst_first:
        if isinstance(child, BranchRun):
            found = _elastic(child, active, key, core)
        else:
            tasks = active.get(child.name)
            found = tasks[-1:] if tasks and child.active_allocated > child.minimum else []
        if found:
            return found
    if branch.needed < satisfied:
        for child in worst_first:
            found = _below(child, active)
            if found and core.isdisjoint(task.key for task in found):
                return found
    return []


def _below(node: BranchRun | LeafRun, active: dict[str, list[Task]]) -> list[Task]:
    if isinstance(node, LeafRun):
        return active.get(node.name, [])[::-1]
    return [task for child in node.children for task in _below(child, active)]


class Victims:
    """The units of all gangs that may lose something, by leaf queue; a line is made when somebody reads it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        #: leaf queue -> (key, -place in its gang, unit), best first; the worst is at the end
        self._lines: dict[int, list[tuple[Key, int, Unit]]] = {}
        #: leaf queues whose lines have been made, empty ones included
        self._made: set[int] = set()
        self._listed: dict[str, list[tuple[Key, int, Unit]]] = {}
        self._evictable: IntArray | None = None
        #: the state for which everything here holds
        self.version = session.state.version

    def leaves(self) -> list[int]:
        """Leaf queues that may have victims, in order of their rows."""
        tree = self._session.snapshot.tree
        found = {tree.rows.get(name, -1) for name in self._session.snapshot.census.queues}
        return sorted(queue for queue in found if queue >= 0 and not tree.children[queue])

    def line(self, queue: int) -> Line:
        """The units of a leaf queue, worst last."""
        if queue not in self._made:
            self._made.add(queue)
            for gang in self._gangs(queue):
                if gang.key not in self._listed:
                    self._list(gang)
            if queue in self._lines:
                self._lines[queue].sort(key=_place)
        return self._lines.get(queue, ())

    def _gangs(self, queue: int) -> Iterator[Gang]:
        """Gangs of a leaf queue that may be evicted: those that ran before the cycle, and those it placed."""
        session, snapshot = self._session, self._session.snapshot
        count = snapshot.census.queues.get(snapshot.tree.names[queue], _NOBODY)
        for kind in count.running:
            if kind.preemptibility == names.SEMI_PREEMPTIBLE or snapshot.kind_preemptible(kind):
                yield from (session.gang(entry) for entry in snapshot.running(count, kind))
        if session.state.moved:
            yield from (gang for gang in session.waiting() if gang.queue == queue and (gang.preemptible or gang.semi))

    @property
    def lines(self) -> Mapping[int, Line]:
        """The lines of all leaf queues that have one."""
        for queue in self.leaves():
            self.line(queue)
        return self._lines

    @property
    def evictable(self) -> IntArray:
        """[axis, node] what evicting everyone would free; shared GPUs count as whole ones."""
        if self._evictable is None:
            lines = self.lines
            self._evictable = np.zeros_like(self._session.state.allocatable)
            for line in lines.values():
                for _, _, unit in line:
                    self._count(unit, 1)
        return self._evictable

    def changed(self, gang: Gang) -> None:
        """List a gang anew; `version` says for which state the table holds."""
        if gang.queue not in self._made:
            return
        for item in self._listed.pop(gang.key, ()):
            line = self._lines[gang.queue]
            del line[bisect_left(line, item[:2], key=_place)]
            self._count(item[2], -1)
        if gang.preemptible or gang.semi:
            self._list(gang, keep_sorted=True)

    def _list(self, gang: Gang, *, keep_sorted: bool = False) -> None:
        if not any(leaf.active_allocated for leaf in gang.leaves):
            return
        items = list(self._items(gang))
        if not items:
            return
        self._listed[gang.key] = items
        line = self._lines.setdefault(gang.queue, [])
        for item in items:
            self._count(item[2], 1)
            if keep_sorted:
                insort(line, item, key=_place)
            else:
                line.append(item)

    def _items(self, gang: Gang) -> Iterator[tuple[Key, int, Unit]]:
        """The units of a gang with their places in the line: as bad as the gang is when its turn comes (cycle:SOL-7).

        A gang that has given something back stands better than before, so places only get better.
        """
        session, state = self._session, self._session.state
        rows = session.snapshot.nodes.rows
        members: dict[str, Member] = {}
        active = gang.active(state.status_of)
        by_name = {leaf.name: leaf for leaf in gang.leaves}
        for name, tasks in active.items():
            known = []
            for task in tasks:
                if task.key in state.leaving:
                    # It is to move already, and nobody is disturbed twice in a cycle.
                    return
                moved = state.moved.get(task.key)
                row = moved.row if moved is not None else rows.get(task.node, -1)
                if row >= 0:
                    costs, freed = state.amounts_on(task.shape, row), freed_by(state, task)
                    members[task.key] = Member(by_name[name], task, row, costs, freed)
                    known.append(task)
            active[name] = known
        if not members:
            return
        before = [leaf.active_allocated for leaf in gang.leaves]
        try:
            batches: list[tuple[Key, list[Task]]] = []
            core = gang.core.union(key for key in members if key in state.core) if gang.semi else gang.core
            steps = eviction_batches(gang, active, session.rules.subgroup_key, core)
            while True:
                # The key is that of the gang before the batch is taken.
                key = session.group_order(gang)
                batch = next(steps, None)
                if batch is None:
                    break
                batches.append((min(key, batches[-1][0]) if batches else key, batch))
        finally:
            for leaf, count in zip(gang.leaves, before, strict=True):
                leaf.active_allocated = count
        taken = [members[task.key].amounts for _, batch in batches for task in batch]
        whole = (sum(a[0] for a in taken), sum(a[1] for a in taken), sum(a[2] for a in taken))
        for place, (key, batch) in enumerate(batches):
            yield (key, -place, Unit(gang, [members[task.key] for task in batch], whole))

    def _count(self, unit: Unit, sign: int) -> None:
        evictable = self._evictable
        if evictable is None:
            return
        state = self._session.state
        snapshot = state.snapshot
        for member in unit.members:
            shape = member.task.shape
            evictable[:, member.row] += sign * snapshot.vectors[shape].charge
            for column, amount in member.claimed:
                evictable[column, member.row] += sign * amount
            if shape.shared:
                facts = snapshot.nodes.facts[member.row]
                axis = snapshot.axes.index.get(facts.shared_resource)
                if axis is not None:
                    evictable[axis, member.row] += sign * shape.gpu.devices


def _place(item: tuple[Key, int, Unit]) -> tuple[Key, int]:
    return item[0], item[1]


def victims_of(session: Session) -> Victims:
    """The table of this cycle, made anew when someone else has changed the state."""
    found: Victims | None = session.memo.get(Victims)
    if found is None or found.version != session.state.version:
        found = session.memo[Victims] = Victims(session)
    return found


def placed_in_cycle(session: Session, gang: Gang) -> bool:
    """Whether the cycle has promised or given a place to a task of the gang."""
    moved = session.state.moved
    return any(
        task.key in moved and moved[task.key].status is not Status.RELEASING for task in gang.entry.tasks.values()
    )
