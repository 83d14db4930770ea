"""A group during a cycle: how many of its tasks run, and which to place next (cycle:6).

A `Gang` mirrors the group's subgroup tree with counters that the state changes as tasks are placed and evicted.
`select` answers "which tasks next": whole missing minimums first, then one pod (or one whole subgroup) per turn.

Subtle: a subgroup that cannot reach its minimum with the pods that exist is passed over in both phases.  Placing the
pods it has would start part of a gang (cycle:24, hard rules).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pykai.api import names
from pykai.core import caching
from pykai.core.cluster.groupindex import GroupEntry
from pykai.core.model.groups import Branch, Group, Leaf
from pykai.core.model.queuetree import QueueAmounts
from pykai.core.model.status import ACTIVE_ALLOCATED, ACTIVE_USED, ALIVE, TaskStatus
from pykai.core.model.tasks import Task, by_age

#: (count, threshold) of a subgroup -> its place among its siblings (cycle:8.4)
SubgroupKey = Callable[[int, int], tuple[float, ...]]
TaskKey = Callable[[Task], tuple[Any, ...]]


class LeafState:
    """Counters of one leaf."""

    __slots__ = (
        "active_allocated",
        "active_used",
        "alive",
        "evicted",
        "first_unplaced",
        "gated",
        "minimum",
        "name",
        "pipelined",
        "tasks",
        "topology",
        "total",
        "unplaced",
    )

    def __init__(self, leaf: Leaf) -> None:
        self.name = leaf.name
        self.minimum = leaf.minimum
        self.topology = leaf.topology
        self.active_allocated = 0
        self.active_used = 0
        self.pipelined = 0
        self.alive = 0
        #: alive but not to be started now: gated, another scheduler's, or of a group that may not use its queue
        self.gated = 0
        self.total = 0
        #: tasks that were pending when the cycle began, in task order
        self.tasks: list[Task] = []
        #: no task before this position is open
        self.first_unplaced = 0
        #: tasks that a trial evicted and may still keep
        self.evicted: list[Task] = []
        #: how many tasks wait now, those a trial evicted included
        self.unplaced = 0

    @property
    def satisfied(self) -> bool:
        """Enough tasks run (cycle:PG-5)."""
        return self.active_allocated >= self.minimum

    @property
    def ready(self) -> bool:
        """Enough tasks exist to be started (cycle:PG-6, POL-6; workloads:PS-3)."""
        return self.alive - self.gated >= self.minimum

    @property
    def complete(self) -> bool:
        """Enough tasks hold a node, terminating ones included (cycle:PG-8)."""
        return self.active_used >= self.minimum

    @property
    def count_and_threshold(self) -> tuple[int, int]:
        """Count and threshold for the order among siblings."""
        return self.active_allocated, self.minimum


class BranchState:
    """An inner node over the counters of its leaves."""

    __slots__ = ("children", "name", "needed", "topology")

    def __init__(self, branch: Branch, leaves: dict[str, LeafState]) -> None:
        self.name = branch.name
        self.topology = branch.topology
        self.needed = branch.min_children
        self.children: list[LeafState | BranchState] = [
            leaves[child.name] if isinstance(child, Leaf) else BranchState(child, leaves) for child in branch.children
        ]

    @property
    def satisfied(self) -> bool:
        """Enough children are satisfied (cycle:PG-5)."""
        return sum(child.satisfied for child in self.children) >= self.needed

    @property
    def complete(self) -> bool:
        """Enough children are complete (cycle:PG-8, Do better)."""
        return sum(child.complete for child in self.children) >= self.needed

    @property
    def ready(self) -> bool:
        """Enough children are ready (cycle:PG-6)."""
        return sum(child.ready for child in self.children) >= self.needed

    @property
    def count_and_threshold(self) -> tuple[int, int]:
        """Count and threshold for the order among siblings."""
        return sum(child.satisfied for child in self.children), self.needed


def leaves_of(node: LeafState | BranchState) -> list[LeafState]:
    """The leaves at or below a subgroup."""
    if isinstance(node, LeafState):
        return [node]
    return [leaf for child in node.children for leaf in leaves_of(child)]


class Batch:
    """Tasks of one leaf to place together."""

    __slots__ = ("leaf", "tasks")

    def __init__(self, leaf: LeafState, tasks: list[Task]) -> None:
        self.leaf = leaf
        self.tasks = tasks


class Gang:
    """A group during a cycle."""

    __slots__ = (
        "_only_leaf",
        "_root",
        "_selection",
        "_tree_text",
        "chain",
        "entry",
        "group",
        "key",
        "leaves",
        "order_key",
        "pipelined",
        "preemptible",
        "priority",
        "protected_keys",
        "queue",
        "requested_by_gpu_mib",
        "semi_preemptible",
        "signature",
        "started_before",
        "strays",
        "task_key",
        "touched",
        "unplaced",
        "unsupported",
        "version",
    )

    def __init__(
        self, group: Group, entry: GroupEntry, queue: int, chain: tuple[int, ...], priority: int, preemptible: bool
    ) -> None:
        self.group = group
        self.key = group.key
        #: the entry it was made from, and its version then
        self.entry = entry
        self.version = entry.version
        #: whether a task of it was ever placed or evicted, undone or not
        self.touched = False
        #: queue row, and the chain from it to the root; -1 and () when the queue does not exist
        self.queue = queue
        self.chain = chain
        self.priority = priority
        self.preemptible = preemptible
        #: tasks beyond its minimum are preemptible, the rest is not (queues:Q-415)
        self.semi_preemptible = group.preemptibility == names.SEMI_PREEMPTIBLE and queue >= 0
        #: keys of the non-preemptible tasks of a semi-preemptible gang when the cycle began
        self.protected_keys: frozenset[str] = frozenset()
        self.task_key: TaskKey = by_age
        leaves = [LeafState(leaf) for leaf in group.leaves]
        self.leaves = leaves
        #: the only leaf of a group without subgroups: the tree adds nothing to it
        self._only_leaf = leaves[0] if group.has_single_leaf else None
        self._root: BranchState | None = None
        self._tree_text: str | None = None
        #: tasks that name a subgroup the group does not have (cycle:PG-4)
        self.strays: list[Task] = []
        #: requests of its tasks that the engine does not support
        self.unsupported: set[str] = set()
        #: whether some task was allocated before this cycle
        self.started_before = False
        self._count_tasks()
        #: tasks that wait to be placed, and tasks pipelined
        self.unplaced = 0
        self.pipelined = 0
        for leaf in leaves:
            leaf.unplaced = len(leaf.tasks)
            self.unplaced += leaf.unplaced
            self.pipelined += leaf.pipelined
        self._selection: list[Batch] | None = None
        #: its sort key among the gangs of its queue, None = to be computed
        self.order_key: tuple[object, ...] | None = None
        #: its signature (`eviction/signatures.py`); once the gang was touched, valid only for this version of the state
        self.signature: Any = None
        #: what the selected tasks request of their queue, by the MiB that converts gpu-memory requests
        self.requested_by_gpu_mib: dict[int, QueueAmounts] = {}

    def _count_tasks(self) -> None:
        """Count the tasks of all leaves as they were when the cycle began.

        No task of a group that may not use its queue is to be started (access:engine).
        """
        leaves, index = self.leaves, self.group.leaf_index
        may_start = self.entry.denial is None
        started = False
        for task in self.entry.tasks.values():
            position = index.get(task.subgroup)
            if position is None:
                self.strays.append(task)
                continue
            leaf = leaves[position]
            status = task.status
            leaf.total += 1
            if ALIVE[status]:
                leaf.alive += 1
                if status is TaskStatus.PENDING and task.for_this_scheduler and may_start:
                    leaf.tasks.append(task)
                    if task.shape.unsupported:
                        self.unsupported.update(task.shape.unsupported)
                elif status is TaskStatus.GATED or status is TaskStatus.PENDING:
                    leaf.gated += 1
            if ACTIVE_USED[status]:
                leaf.active_used += 1
                if ACTIVE_ALLOCATED[status]:
                    started = True
                    leaf.active_allocated += 1
                    if status is TaskStatus.PIPELINED:
                        leaf.pipelined += 1
        self.started_before = started

    @property
    def root(self) -> BranchState:
        """The subgroup tree over the leaves."""
        if self._root is None:
            self._root = BranchState(self.group.root, {leaf.name: leaf for leaf in self.leaves})
        return self._root

    @property
    def tree_text(self) -> str:
        """The subgroups as a text, equal for equal trees; made once, because there may be a thousand."""
        if self._tree_text is None:
            self._tree_text = repr(self.group.root)
        return self._tree_text

    @property
    def ready(self) -> bool:
        """Enough tasks exist to start the gang (cycle:PG-6)."""
        return self.root.ready if self._only_leaf is None else self._only_leaf.ready

    @property
    def size(self) -> int:
        """How many tasks the group has, in any state."""
        return sum(leaf.total for leaf in self.leaves)

    @property
    def is_gang(self) -> bool:
        """Some leaf needs more than one task at a time."""
        return any(leaf.minimum > 1 for leaf in self.leaves)

    @property
    def satisfied(self) -> bool:
        """Enough tasks run or are pipelined (cycle:PG-5)."""
        return self.root.satisfied if self._only_leaf is None else self._only_leaf.satisfied

    @property
    def complete(self) -> bool:
        """Enough tasks hold a node, terminating ones included; the tree counts, minSubGroup too (cycle:PG-8)."""
        return self.root.complete if self._only_leaf is None else self._only_leaf.complete

    @property
    def elastic(self) -> bool:
        """Some leaf has more tasks than it needs (cycle:PG-7)."""
        return any(leaf.minimum < leaf.total for leaf in self.leaves)

    @property
    def next_task_non_preemptible(self) -> bool:
        """Whether the next task it gets counts as non-preemptible."""
        return not self.preemptible and (not self.semi_preemptible or not self.satisfied)

    def sort_tasks(self, key: TaskKey) -> None:
        """Put the tasks of every leaf in task order (cycle:8.5)."""
        self.task_key = key
        for leaf in self.leaves:
            if len(leaf.tasks) > 1:
                leaf.tasks.sort(key=key)

    def mark_changed(self) -> None:
        """A task was placed or evicted: the next tasks must be selected again (cycle:PG-9)."""
        self.touched = True
        self._selection = None
        self.order_key = None
        self.requested_by_gpu_mib.clear()

    def active_tasks(self, status_of: Callable[[Task], TaskStatus]) -> dict[str, list[Task]]:
        """Tasks that hold a node or are pipelined, by leaf, in task order."""
        active: dict[str, list[Task]] = {}
        for task in self.entry.tasks.values():
            if ACTIVE_ALLOCATED[status_of(task)] and task.subgroup in self.group.leaf_index:
                active.setdefault(task.subgroup, []).append(task)
        for tasks in active.values():
            if len(tasks) > 1:
                tasks.sort(key=self.task_key)
        return active

    def select_tasks(self, is_unplaced: Callable[[Task], bool], subgroup_key: SubgroupKey) -> list[Batch]:
        """Which tasks to place next, leaf by leaf in placing order (cycle:6.2)."""
        if self._selection is not None:
            return self._selection
        selection = self._select(is_unplaced, subgroup_key)
        if caching.enabled:
            self._selection = selection
        return selection

    def _select(self, is_unplaced: Callable[[Task], bool], subgroup_key: SubgroupKey) -> list[Batch]:
        only_leaf = self._only_leaf
        statuses: dict[int, SubgroupStatus] = {}
        if not (only_leaf.ready if only_leaf is not None else evaluate_subgroups(self.root, statuses).ready):
            # No task of a gang that cannot be complete is started (cycle:PG-6).
            return []
        if only_leaf is None:
            picker = _TaskPicker(is_unplaced, self.task_key, statuses)
            return list(_collect_batches(self.root, picker, subgroup_key))
        tasks = _pick_tasks(only_leaf, is_unplaced, self.task_key)
        return [Batch(only_leaf, tasks)] if tasks else []


def by_subgroup_order(children: list[LeafState | BranchState], key: SubgroupKey) -> list[LeafState | BranchState]:
    """Siblings in subgroup order (cycle:8.4): the plugins' key, then the name."""
    if len(children) < 2:
        return children
    return sorted(children, key=lambda child: (key(*child.count_and_threshold), child.name))


class _TaskPicker(NamedTuple):
    is_unplaced: Callable[[Task], bool]
    task_key: TaskKey
    statuses: dict[int, SubgroupStatus]


class SubgroupStatus(NamedTuple):
    """The status of a subgroup, computed once for it and everything below it."""

    satisfied: bool
    ready: bool
    #: count and threshold for the order among siblings
    count_and_threshold: tuple[int, int]


def evaluate_subgroups(node: LeafState | BranchState, statuses: dict[int, SubgroupStatus]) -> SubgroupStatus:
    """Enter the status of a subgroup and of those below it, by identity: one pass, however deep the tree is."""
    if isinstance(node, LeafState):
        status = SubgroupStatus(node.satisfied, node.ready, node.count_and_threshold)
    else:
        children = [evaluate_subgroups(child, statuses) for child in node.children]
        satisfied = sum([child.satisfied for child in children])
        ready = sum([child.ready for child in children])
        status = SubgroupStatus(satisfied >= node.needed, ready >= node.needed, (satisfied, node.needed))
    statuses[id(node)] = status
    return status


# Children that cannot be complete are skipped (cycle:PG-11).
def _collect_batches(branch: BranchState, picker: _TaskPicker, key: SubgroupKey) -> Iterator[Batch]:
    statuses = picker.statuses
    children = [child for child in branch.children if statuses[id(child)].satisfied or statuses[id(child)].ready]
    if len(children) > 1:
        children.sort(key=lambda child: (key(*statuses[id(child)].count_and_threshold), child.name))
    if statuses[id(branch)].satisfied:
        for child in children:
            batches = list(_next_batches(child, picker, key))
            if batches:
                yield from batches
                return
        return
    for child in children[: branch.needed]:
        if not statuses[id(child)].satisfied:
            yield from _next_batches(child, picker, key)


def _next_batches(child: LeafState | BranchState, picker: _TaskPicker, key: SubgroupKey) -> Iterator[Batch]:
    if isinstance(child, BranchState):
        yield from _collect_batches(child, picker, key)
    else:
        tasks = _pick_tasks(child, picker.is_unplaced, picker.task_key)
        if tasks:
            yield Batch(child, tasks)


def _pick_tasks(leaf: LeafState, is_unplaced: Callable[[Task], bool], task_key: TaskKey) -> list[Task]:
    """The missing minimum of a leaf, or one task beyond it (cycle:PG-10)."""
    if not leaf.unplaced:
        return []
    missing = max(leaf.minimum - leaf.active_allocated, 1)
    tasks = leaf.tasks
    if leaf.evicted:
        # Tasks that a trial evicted go first: replacing a running task by a waiting one gains nothing.
        evicted = sorted((task for task in leaf.evicted if is_unplaced(task)), key=task_key)
        waiting = [task for task in tasks if task not in leaf.evicted and is_unplaced(task)]
        return (evicted + waiting)[:missing]
    if leaf.unplaced == len(tasks):
        return tasks[:missing]
    position = leaf.first_unplaced
    while position < len(tasks) and not is_unplaced(tasks[position]):
        position += 1
    leaf.first_unplaced = position
    picked: list[Task] = []
    while position < len(tasks) and len(picked) < missing:
        if is_unplaced(tasks[position]):
            picked.append(tasks[position])
        position += 1
    return picked
