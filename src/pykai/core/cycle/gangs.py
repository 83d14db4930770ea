"""A group during a cycle: how many of its tasks run, and which to place next (cycle:6).

A `Gang` mirrors the group's subgroup tree with counters that the state changes as tasks are placed and taken back.
`select` answers "which tasks next": whole missing minimums first, then one pod (or one whole subgroup) per turn.

Subtle: a subgroup that cannot reach its minimum with the pods that exist is passed over in both phases.  Placing the
pods it has would start part of a gang (cycle:24, hard rules).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pykai.api import names
from pykai.core.cluster.groupindex import GroupEntry
from pykai.core.model.groups import Branch, Group, Leaf
from pykai.core.model.status import ACTIVE_ALLOCATED, ACTIVE_USED, ALIVE, Status
from pykai.core.model.tasks import Task, by_age
from pykai.core.queueing.queueledger import Amounts

#: (count, threshold) of a subgroup -> its place among its siblings (cycle:8.4)
SubgroupKey = Callable[[int, int], tuple[float, ...]]
TaskKey = Callable[[Task], tuple[Any, ...]]


class LeafRun:
    """Counters of one leaf."""

    __slots__ = (
        "active_allocated",
        "active_used",
        "alive",
        "evicted",
        "first_open",
        "gated",
        "minimum",
        "name",
        "open",
        "pipelined",
        "tasks",
        "topology",
        "total",
    )

    def __init__(self, leaf: Leaf) -> None:
        self.name = leaf.name
        self.minimum = leaf.minimum
        self.topology = leaf.topology
        self.active_allocated = 0
        self.active_used = 0
        self.pipelined = 0
        self.alive = 0
        #: alive but not for us to start now: gated, or another scheduler's
        self.gated = 0
        self.total = 0
        #: tasks that were pending when the cycle began, in task order
        self.tasks: list[Task] = []
        #: no task before this position is open
        self.first_open = 0
        #: tasks that a trial told to leave and may still keep
        self.evicted: list[Task] = []
        #: how many tasks wait now, those a trial evicted included
        self.open = 0

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
    def standing(self) -> tuple[int, int]:
        """Count and threshold for the order among siblings."""
        return self.active_allocated, self.minimum


class BranchRun:
    """An inner node over the counters of its leaves."""

    __slots__ = ("children", "name", "needed", "topology")

    def __init__(self, branch: Branch, leaves: dict[str, LeafRun]) -> None:
        self.name = branch.name
        self.topology = branch.topology
        self.needed = branch.needed
        self.children: list[LeafRun | BranchRun] = [
            leaves[child.name] if isinstance(child, Leaf) else BranchRun(child, leaves) for child in branch.children
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
    def standing(self) -> tuple[int, int]:
        """Count and threshold for the order among siblings."""
        return sum(child.satisfied for child in self.children), self.needed


def leaves_of(node: LeafRun | BranchRun) -> list[LeafRun]:
    """The leaves at or below a subgroup."""
    if isinstance(node, LeafRun):
        return [node]
    return [leaf for child in node.children for leaf in leaves_of(child)]


class Batch:
    """Tasks of one leaf to place together."""

    __slots__ = ("leaf", "tasks")

    def __init__(self, leaf: LeafRun, tasks: list[Task]) -> None:
        self.leaf = leaf
        self.tasks = tasks


class Gang:
    """A group during a cycle."""

    __slots__ = (
        "_plain",
        "_root",
        "_selection",
        "_tree_text",
        "asked",
        "chain",
        "core",
        "entry",
        "group",
        "key",
        "leaves",
        "open",
        "pipelined",
        "place",
        "preemptible",
        "priority",
        "queue",
        "semi",
        "signature",
        "started_before",
        "strays",
        "task_key",
        "touched",
        "unsupported",
        "version",
    )

    def __init__(
        self, group: Group, entry: GroupEntry, queue: int, chain: tuple[int, ...], priority: int, preemptible: bool
    ) -> None:
        self.group = group
        self.key = group.key
        #: the entry it was made from, and what it was like then
        self.entry = entry
        self.version = entry.version
        #: whether a task of it was ever placed or taken back, undone or not
        self.touched = False
        #: queue row, and the chain from it to the root; -1 and () when the queue does not exist
        self.queue = queue
        self.chain = chain
        self.priority = priority
        self.preemptible = preemptible
        #: what lies beyond its minimum may be taken back, the rest not (queues:Q-415)
        self.semi = group.preemptibility == names.SEMI_PREEMPTIBLE and queue >= 0
        #: keys of the tasks of a semi-preemptible gang that may not, as the cycle began
        self.core: frozenset[str] = frozenset()
        self.task_key: TaskKey = by_age
        leaves = [LeafRun(leaf) for leaf in group.leaves]
        self.leaves = leaves
        #: the only leaf of a group without subgroups: the tree adds nothing to it
        self._plain = leaves[0] if group.plain else None
        self._root: BranchRun | None = None
        self._tree_text: str | None = None
        #: tasks that name a subgroup the group does not have (cycle:PG-4)
        self.strays: list[Task] = []
        #: what its tasks ask for that the engine cannot honour
        self.unsupported: set[str] = set()
        index = group.leaf_index
        started = False
        for task in entry.tasks.values():
            position = index.get(task.subgroup)
            if position is None:
                self.strays.append(task)
                continue
            leaf = leaves[position]
            status = task.status
            leaf.total += 1
            if ALIVE[status]:
                leaf.alive += 1
                if status is Status.PENDING and task.ours:
                    leaf.tasks.append(task)
                    if task.shape.unsupported:
                        self.unsupported.update(task.shape.unsupported)
                elif status is Status.GATED or status is Status.PENDING:
                    leaf.gated += 1
            if ACTIVE_USED[status]:
                leaf.active_used += 1
                if ACTIVE_ALLOCATED[status]:
                    started = True
                    leaf.active_allocated += 1
                    if status is Status.PIPELINED:
                        leaf.pipelined += 1
        #: whether some task was allocated before this cycle
        self.started_before = started
        #: tasks that wait to be placed, and tasks pipelined
        self.open = 0
        self.pipelined = 0
        for leaf in leaves:
            leaf.open = len(leaf.tasks)
            self.open += leaf.open
            self.pipelined += leaf.pipelined
        self._selection: list[Batch] | None = None
        #: its sort key among the gangs of its queue, None = to be asked anew
        self.place: tuple[object, ...] | None = None
        #: what makes it like others (`victims/signatures.py`); once it was touched only for this version of the state
        self.signature: Any = None
        #: what the selected tasks ask of their queue, by the MiB that converts gpu-memory requests
        self.asked: dict[int, Amounts] = {}

    @property
    def root(self) -> BranchRun:
        """The subgroup tree over the leaves."""
        if self._root is None:
            self._root = BranchRun(self.group.root, {leaf.name: leaf for leaf in self.leaves})
        return self._root

    @property
    def tree_text(self) -> str:
        """The subgroups as a text, equal for equal trees; made once, for there may be a thousand."""
        if self._tree_text is None:
            self._tree_text = repr(self.group.root)
        return self._tree_text

    @property
    def ready(self) -> bool:
        """Enough tasks exist to start the gang (cycle:PG-6)."""
        return self.root.ready if self._plain is None else self._plain.ready

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
        """Enough tasks run or are promised a place (cycle:PG-5)."""
        return self.root.satisfied if self._plain is None else self._plain.satisfied

    @property
    def complete(self) -> bool:
        """Enough tasks hold a node, terminating ones included; the tree counts, minSubGroup too (cycle:PG-8)."""
        return self.root.complete if self._plain is None else self._plain.complete

    @property
    def elastic(self) -> bool:
        """Some leaf has more tasks than it needs (cycle:PG-7)."""
        return any(leaf.minimum < leaf.total for leaf in self.leaves)

    @property
    def starts_core(self) -> bool:
        """Whether the next task it gets counts as non-preemptible."""
        return not self.preemptible and (not self.semi or not self.satisfied)

    def sort_tasks(self, key: TaskKey) -> None:
        """Put the tasks of every leaf in task order (cycle:8.5)."""
        self.task_key = key
        for leaf in self.leaves:
            if len(leaf.tasks) > 1:
                leaf.tasks.sort(key=key)

    def changed(self) -> None:
        """A task was placed or taken back: what to place next must be asked anew (cycle:PG-9)."""
        self.touched = True
        self._selection = None
        self.place = None
        self.asked.clear()

    def active(self, status_of: Callable[[Task], Status]) -> dict[str, list[Task]]:
        """Tasks that hold a node or the promise of one, by leaf, in task order."""
        found: dict[str, list[Task]] = {}
        for task in self.entry.tasks.values():
            if ACTIVE_ALLOCATED[status_of(task)] and task.subgroup in self.group.leaf_index:
                found.setdefault(task.subgroup, []).append(task)
        for tasks in found.values():
            if len(tasks) > 1:
                tasks.sort(key=self.task_key)
        return found

    def select(self, is_open: Callable[[Task], bool], subgroup_key: SubgroupKey) -> list[Batch]:
        """Which tasks to place next, leaf by leaf in placing order (cycle:6.2)."""
        if self._selection is None:
            plain = self._plain
            judged: dict[int, Judged] = {}
            if not (plain.ready if plain is not None else judge(self.root, judged).ready):
                # Nothing of a gang that cannot be complete is started (cycle:PG-6).
                self._selection = []
            elif plain is None:
                self._selection = list(_collect(self.root, _Picker(is_open, self.task_key, judged), subgroup_key))
            else:
                tasks = _pick(plain, is_open, self.task_key)
                self._selection = [Batch(plain, tasks)] if tasks else []
        return self._selection


def by_subgroup_order(children: list[LeafRun | BranchRun], key: SubgroupKey) -> list[LeafRun | BranchRun]:
    """Siblings in subgroup order (cycle:8.4): the plugins' key, then the name."""
    if len(children) < 2:
        return children
    return sorted(children, key=lambda child: (key(*child.standing), child.name))


class _Picker(NamedTuple):
    is_open: Callable[[Task], bool]
    task_key: TaskKey
    judged: dict[int, Judged]


class Judged(NamedTuple):
    """How a subgroup stands, worked out once for it and everything below it."""

    satisfied: bool
    ready: bool
    #: count and threshold for the order among siblings
    standing: tuple[int, int]


def judge(node: LeafRun | BranchRun, found: dict[int, Judged]) -> Judged:
    """Enter how a subgroup and those below it stand, by identity: one pass, however deep the tree is."""
    if isinstance(node, LeafRun):
        made = Judged(node.satisfied, node.ready, node.standing)
    else:
        below = [judge(child, found) for child in node.children]
        satisfied = sum([child.satisfied for child in below])
        ready = sum([child.ready for child in below])
        made = Judged(satisfied >= node.needed, ready >= node.needed, (satisfied, node.needed))
    found[id(node)] = made
    return made


# Children that cannot be complete are passed over (cycle:PG-11).
def _collect(branch: BranchRun, picker: _Picker, key: SubgroupKey) -> Iterator[Batch]:
    judged = picker.judged
    children = [child for child in branch.children if judged[id(child)].satisfied or judged[id(child)].ready]
    if len(children) > 1:
        children.sort(key=lambda child: (key(*judged[id(child)].standing), child.name))
    if judged[id(branch)].satisfied:
        for child in children:
            found = list(_next_of(child, picker, key))
            if found:
                yield from found
                return
        return
    for child in children[: branch.needed]:
        if not judged[id(child)].satisfied:
            yield from _next_of(child, picker, key)


def _next_of(child: LeafRun | BranchRun, picker: _Picker, key: SubgroupKey) -> Iterator[Batch]:
    if isinstance(child, BranchRun):
        yield from _collect(child, picker, key)
    else:
        tasks = _pick(child, picker.is_open, picker.task_key)
        if tasks:
            yield Batch(child, tasks)


def _pick(leaf: LeafRun, is_open: Callable[[Task], bool], task_key: TaskKey) -> list[Task]:
    """The missing minimum of a leaf, or one task beyond it (cycle:PG-10)."""
    if not leaf.open:
        return []
    missing = max(leaf.minimum - leaf.active_allocated, 1)
    tasks = leaf.tasks
    if leaf.evicted:
        # Those a trial evicted go first: putting a waiting task in the place of a running one helps nobody.
        back = sorted((task for task in leaf.evicted if is_open(task)), key=task_key)
        waiting = [task for task in tasks if task not in leaf.evicted and is_open(task)]
        return (back + waiting)[:missing]
    if leaf.open == len(tasks):
        return tasks[:missing]
    position = leaf.first_open
    while position < len(tasks) and not is_open(tasks[position]):
        position += 1
    leaf.first_open = position
    picked: list[Task] = []
    while position < len(tasks) and len(picked) < missing:
        if is_open(tasks[position]):
            picked.append(tasks[position])
        position += 1
    return picked
