"""Evictable tasks, in units that go together (cycle:6.3), worst first inside each leaf queue.

A gang loses what it has beyond its minimum pod by pod, then whole subgroups beyond what it needs, then all of the rest
at once; masters go last because tasks leave in reverse order.  The units of a gang and their places in the line of its
queue depend on the gang alone, so one table serves all searches of a cycle: after a commit only the gangs that changed
are listed again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from pykai.api import names
from pykai.core.cluster.groupindex import QueueGroups
from pykai.core.cycle.cyclegangs import CycleGangs
from pykai.core.cycle.gangs import BranchState, Gang, LeafState, SubgroupKey
from pykai.core.cycle.queueranks import KeptRanks, QueueRanks
from pykai.core.cycle.state import State
from pykai.core.eviction.disruptions import DisruptionLedger
from pykai.core.eviction.mergedorder import KeptOrders
from pykai.core.eviction.unitcolumns import UnitColumns
from pykai.core.eviction.units import EvictableTask, EvictionUnit, UnitItem, UnitKey, UnitLine
from pykai.core.hooks import Rules
from pykai.core.model.axes import IntArray
from pykai.core.model.queuetree import QueueAmounts
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.placing.claimamounts import freed_amounts

_NO_GROUPS = QueueGroups()


def eviction_batches(
    gang: Gang, active: dict[str, list[Task]], subgroup_key: SubgroupKey, protected: frozenset[str] = frozenset()
) -> Iterator[list[Task]]:
    """What to evict of a gang, step by step; `active` is consumed, and the counters of the leaves follow.

    Tasks of the `core` of a semi-preemptible gang stay.  The caller must restore the counters.

    Statements: cycle:PG-12, PG-13, SOL-11.
    """
    if protected:
        # The core comes first, whatever started before it in task order since.
        active.update(
            {name: sorted(tasks, key=lambda task: task.key not in protected) for name, tasks in active.items()}
        )
    while any(active.values()):
        batch = _elastic_batch(gang.root, active, subgroup_key, protected)
        if not batch:
            if gang.semi_preemptible:
                return
            batch = [task for leaf in gang.leaves for task in reversed(active.get(leaf.name, ()))]
        evicted = set(batch)
        for leaf in gang.leaves:
            tasks = active.get(leaf.name)
            if tasks:
                remaining = [task for task in tasks if task not in evicted]
                leaf.active_allocated -= len(tasks) - len(remaining)
                active[leaf.name] = remaining
        yield batch


def _elastic_batch(
    branch: BranchState, active: dict[str, list[Task]], key: SubgroupKey, protected: frozenset[str]
) -> list[Task]:
    """What a subgroup can lose and stay satisfied: one pod, or one whole child (cycle:6.3)."""
    satisfied = sum(child.satisfied for child in branch.children)
    if not satisfied:
        return []
    worst_first = sorted(branch.children, key=lambda child: (key(*child.count_and_threshold), child.name), reverse=True)
    for child in worst_first:
        if isinstance(child, BranchState):
            batch = _elastic_batch(child, active, key, protected)
        else:
            tasks = active.get(child.name)
            batch = tasks[-1:] if tasks and child.active_allocated > child.minimum else []
        if batch:
            return batch
    if branch.needed < satisfied:
        for child in worst_first:
            batch = _tasks_below(child, active)
            if batch and protected.isdisjoint(task.key for task in batch):
                return batch
    return []


def _tasks_below(node: BranchState | LeafState, active: dict[str, list[Task]]) -> list[Task]:
    if isinstance(node, LeafState):
        return active.get(node.name, [])[::-1]
    return [task for child in node.children for task in _tasks_below(child, active)]


class VictimTable:
    """The units of all gangs that may lose something, by leaf queue; a line is built on first use."""

    def __init__(
        self, state: State, gangs: CycleGangs, rules: Rules, disruptions: DisruptionLedger | None = None
    ) -> None:
        self._state = state
        #: None where no budget matters
        self._disruptions = disruptions
        #: leaf queues with gangs in namespaces that have budgets
        self._budgeted_queues: set[int] = set()
        self._gangs = gangs
        self._rules = rules
        self._subgroup_key = rules.subgroup_key
        #: leaf queue -> (key, -place in its gang, unit), best first; the worst is at the end
        self._lines: dict[int, list[UnitItem]] = {}
        #: leaf queues whose lines have been made, empty ones included
        self._listed_queues: set[int] = set()
        self._items_by_gang: dict[str, list[UnitItem]] = {}
        self._evictable: IntArray | None = None
        #: queue -> leaf queues below it that may have victims, or itself
        self._leaves_below: dict[int, list[int]] = {}
        self._ranks: KeptRanks | None = None
        self._columns: UnitColumns | None = None
        self.kept_orders = KeptOrders.none()
        #: queues with ranks of all that is below them
        self._ranked: set[int] = set()

    def leaf_queues(self) -> list[int]:
        """Leaf queues that may have victims, in order of their rows."""
        return self.leaves_below(-1)

    def leaves_below(self, queue: int) -> list[int]:
        """Those below a queue, -1 = all; a leaf queue itself."""
        leaves = self._leaves_below.get(queue)
        if leaves is None:
            snapshot = self._state.snapshot
            tree = snapshot.tree
            rows = {tree.rows.get(name, -1) for name in snapshot.group_index.queues}
            leaves = self._leaves_below[queue] = sorted(
                row for row in rows if row >= 0 and not tree.children[row] and (queue < 0 or queue in tree.chains[row])
            )
        return leaves

    def with_units(self, queues: Iterable[int]) -> list[int]:
        """Those of these queues that have units below them."""
        rows = list(queues)
        ranks = self.ranks(rows)
        return [row for row in rows if ranks.has(row)]

    def ranks(self, queues: Iterable[int]) -> QueueRanks:
        """Ranks of these queues and of all below them, by what they would lose first if every gang might."""
        kept = self._ranks
        if kept is None or not self._rules.keeps_ranks(self._rules.victim_queue_key):
            kept = self._ranks = self._new_ranks()
            self._ranked.clear()
        for queue in queues:
            if queue not in self._ranked:
                self._ranked.add(queue)
                for leaf in self.leaves_below(queue):
                    self.units_of(leaf)
                    kept.mark(leaf)
        kept.repair(self._next_loss, self._state.version)
        return kept.ranks

    def _new_ranks(self) -> KeptRanks:
        state, rules = self._state, self._rules
        tree, key = state.snapshot.tree, rules.victim_queue_key_in(state)
        beats = rules.queue_tie_in(state)
        ranks = QueueRanks(tree, key or (lambda row, amount: ()), beats, worst_first=True)
        return KeptRanks(tree, ranks, state.ledger.allocated)

    def _next_loss(self, leaf: int) -> QueueAmounts | None:
        line = self.units_of(leaf)
        return line[-1][2].gang_amounts if line else None

    def leaves_in_other_order(self, queues: Iterable[int], accepts: Callable[[Gang], bool] | None) -> Iterator[int]:
        """Leaf queues below these that do not begin with the unit that ranks were made with."""
        if accepts is None and not self._budgeted_queues:
            return
        for queue in queues:
            for leaf in self.leaves_below(queue):
                line = self.units_of(leaf)
                if line and (leaf in self._budgeted_queues or (accepts is not None and not accepts(line[-1][2].gang))):
                    yield leaf

    def units_of(self, queue: int) -> UnitLine:
        """The units of a leaf queue, worst last."""
        if queue not in self._listed_queues:
            self._listed_queues.add(queue)
            for gang in self._evictable_gangs(queue):
                if gang.key not in self._items_by_gang:
                    self._list_gang(gang)
            if queue in self._lines:
                self._lines[queue].sort(key=_sort_key)
        return self._lines.get(queue, ())

    @property
    def columns(self) -> UnitColumns:
        """The units as columns."""
        if self._columns is None:
            self._columns = UnitColumns(self._state.snapshot)
        return self._columns

    def are_in_order(self, queues: Iterable[int]) -> bool:
        """Whether disruption budgets leave the order of eviction below these queues as it is."""
        return not self._budgeted_queues or self._budgeted_queues.isdisjoint(
            leaf for queue in queues for leaf in self.leaves_below(queue)
        )

    def worst_first(self, queue: int, accepts: Callable[[Gang], bool] | None) -> Iterator[EvictionUnit]:
        """The units of acceptable gangs of a leaf queue in the order of eviction, as disruption budgets change it."""
        line = self.units_of(queue)
        if self._disruptions is None or queue not in self._budgeted_queues:
            return (unit for _, _, unit in reversed(line) if accepts is None or accepts(unit.gang))
        return self._disruptions.worst_first(queue, line, accepts or _accepts_every_gang)

    def _evictable_gangs(self, queue: int) -> Iterator[Gang]:
        """Gangs of a leaf queue that may be evicted: those that ran before the cycle, and those it placed."""
        snapshot, gangs = self._state.snapshot, self._gangs
        count = snapshot.group_index.queues.get(snapshot.tree.names[queue], _NO_GROUPS)
        for kind in count.running:
            if kind.preemptibility == names.SEMI_PREEMPTIBLE or snapshot.is_kind_preemptible(kind):
                yield from (gangs.gang(entry) for entry in snapshot.read_running().of_kind(count, kind))
        if self._state.placements:
            yield from (
                gang for gang in gangs.waiting() if gang.queue == queue and (gang.preemptible or gang.semi_preemptible)
            )

    @property
    def units_by_leaf_queue(self) -> Mapping[int, UnitLine]:
        """The lines of all leaf queues that have one."""
        for queue in self.leaf_queues():
            self.units_of(queue)
        return self._lines

    @property
    def evictable(self) -> IntArray:
        """[axis, node] what evicting every victim would free; shared GPUs count as whole ones."""
        if self._evictable is None:
            lines = self.units_by_leaf_queue
            self._evictable = np.zeros_like(self._state.allocatable)
            for line in lines.values():
                for _, _, unit in line:
                    self._count_evictable(unit, 1)
        return self._evictable

    def refresh(self, gang: Gang) -> None:
        """List a gang again."""
        if gang.queue not in self._listed_queues:
            return
        if self._ranks is not None:
            self._ranks.mark(gang.queue)
        for item in self._items_by_gang.pop(gang.key, ()):
            line = self._lines[gang.queue]
            del line[bisect_left(line, item[:2], key=_sort_key)]
            if self._columns is not None:
                self._columns.remove(gang.queue, item[2])
            self._count_evictable(item[2], -1)
        if gang.preemptible or gang.semi_preemptible:
            self._list_gang(gang, keep_sorted=True)

    def _list_gang(self, gang: Gang, *, keep_sorted: bool = False) -> None:
        if not any(leaf.active_allocated for leaf in gang.leaves):
            return
        items = list(self._unit_items(gang))
        if not items:
            return
        self._items_by_gang[gang.key] = items
        if self._disruptions is not None and self._disruptions.concerns(gang):
            self._budgeted_queues.add(gang.queue)
        if self._columns is not None:
            self._columns.insert(gang.queue)
        line = self._lines.setdefault(gang.queue, [])
        for item in items:
            self._count_evictable(item[2], 1)
            if keep_sorted:
                insort(line, item, key=_sort_key)
            else:
                line.append(item)

    def _unit_items(self, gang: Gang) -> Iterator[UnitItem]:
        """The units of a gang with their places in the line: each as bad as the gang is when it is reached
        (cycle:SOL-7).

        A gang that has lost something ranks better than before, so places only get better.
        """
        state = self._state
        rows = state.snapshot.nodes.rows
        members: dict[str, EvictableTask] = {}
        active = gang.active_tasks(state.status_of)
        by_name = {leaf.name: leaf for leaf in gang.leaves}
        for name, tasks in active.items():
            evictable_tasks = []
            for task in tasks:
                if task.key in state.evicted_from:
                    # It moves already, and no task is disturbed twice in a cycle.
                    return
                placement = state.placements.get(task.key)
                row = placement.row if placement is not None else rows.get(task.node, -1)
                if row >= 0:
                    costs, freed = state.amounts_on(task.shape, row), freed_amounts(state, task)
                    members[task.key] = EvictableTask(by_name[name], task, row, costs, freed)
                    evictable_tasks.append(task)
            active[name] = evictable_tasks
        counts_before = [leaf.active_allocated for leaf in gang.leaves]
        try:
            batches: list[tuple[UnitKey, list[Task]]] = []
            protected = (
                gang.protected_keys.union(key for key in members if key in state.protected_keys)
                if gang.semi_preemptible
                else gang.protected_keys
            )
            steps = eviction_batches(gang, active, self._subgroup_key, protected)
            while True:
                # The key is that of the gang before the batch is evicted.
                key = self._gangs.compute_order_key(gang)
                batch = next(steps, None)
                if batch is None:
                    break
                batches.append((min(key, batches[-1][0]) if batches else key, batch))
        finally:
            for leaf, count in zip(gang.leaves, counts_before, strict=True):
                leaf.active_allocated = count
        evicted_amounts = [members[task.key].amounts for _, batch in batches for task in batch]
        gang_amounts = (
            sum(a[0] for a in evicted_amounts),
            sum(a[1] for a in evicted_amounts),
            sum(a[2] for a in evicted_amounts),
        )
        for position, (key, batch) in enumerate(batches):
            yield (key, -position, EvictionUnit(gang, [members[task.key] for task in batch], gang_amounts))

    def _count_evictable(self, unit: EvictionUnit, sign: int) -> None:
        evictable = self._evictable
        if evictable is None:
            return
        snapshot = self._state.snapshot
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


def _accepts_every_gang(gang: Gang) -> bool:
    return True


def _sort_key(item: UnitItem) -> tuple[UnitKey, int]:
    return item[0], item[1]


def was_placed_in_cycle(state: State, gang: Gang) -> bool:
    """Whether the cycle has placed or pipelined a task of the gang."""
    if not gang.touched:
        return False
    placements = state.placements
    return any(
        task.key in placements and placements[task.key].status is not TaskStatus.RELEASING
        for task in gang.entry.tasks.values()
    )
