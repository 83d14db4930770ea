"""Which groups wait and which run, and what queues hold and request.

A cycle needs this for tens of thousands of groups, of which a handful have changed since the last one.  The tables only
note which groups changed; `GroupIndex.refresh` recounts those when a snapshot is taken.  The index depends on the
present groups alone, not on their history (`validate.py` recounts everything and compares).

Groups are summed by queue and *kind*: the priority class and preemptibility that their objects name.  The value of a
class is looked up when sums are read, so a changed priority class costs nothing here.  Sums are integers and exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pykai.core.model.groups import Branch, Group, Leaf
from pykai.core.model.status import ACTIVE_USED, TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.report.decisions import QueueAccessDenied, Unscheduled

ResourceSums = tuple[int, int, int]


class HeldTasks(NamedTuple):
    """Tasks that only the gate of their queue holds back: how many, and their requests as in `GroupEntry`."""

    tasks: int
    requested: ResourceSums
    requested_mib: int

    def plus(self, other: HeldTasks, sign: int) -> HeldTasks:
        """The sum, or with -1 the difference."""
        return HeldTasks(
            self.tasks + sign * other.tasks,
            _plus(self.requested, other.requested, sign),
            self.requested_mib + sign * other.requested_mib,
        )


NOTHING_HELD = HeldTasks(0, (0, 0, 0), 0)


@dataclass(slots=True)
class GroupEntry:
    """A group with its tasks; either may exist without the other."""

    #: None while no PodGroup of this key is known in this shard
    group: Group | None = None
    #: the PodGroup belongs to another shard, which schedules its tasks
    in_other_shard: bool = False
    tasks: dict[str, Task] = field(default_factory=dict)
    #: why the group may not use its queue, as of the last `GroupTable.refresh`
    denial: QueueAccessDenied | None = None
    #: tasks that are Pending and name this scheduler
    pending: int = 0
    #: the same for tasks held back by scheduling gates
    gated: int = 0
    #: cpu milli, memory bytes, GPU hundredths of tasks that count as allocated (queues:Q-103)
    allocated: list[int] = field(default_factory=lambda: [0, 0, 0])
    #: the same of terminating tasks that still hold their node; then of those that terminate slowly
    terminating: ResourceSums = (0, 0, 0)
    slow_terminating: ResourceSums = (0, 0, 0)
    #: the same requested by pending tasks, without gpu-memory requests (queues:Q-104)
    requested: list[int] = field(default_factory=lambda: [0, 0, 0])
    #: devices x MiB of pending gpu-memory requests, converted when the smallest GPU is known (queues:Q-107)
    requested_mib: int = 0
    #: tasks that wait for admission to their queue, and what these request (queues:Q-407)
    held: HeldTasks = NOTHING_HELD
    #: a new number whenever the index finds the group changed
    version: int = 0
    #: what it costs a cycle, kept by `allowance.py`
    load: object = None


class TerminatingSums(NamedTuple):
    """What terminating tasks hold: all of them, and those that terminate slowly."""

    all: ResourceSums
    slow: ResourceSums

    def plus(self, other: TerminatingSums, sign: int) -> TerminatingSums:
        """The sum, or with -1 the difference."""
        return TerminatingSums(_plus(self.all, other.all, sign), _plus(self.slow, other.slow, sign))


class PriorityKind(NamedTuple):
    """What decides whether groups are preemptible."""

    priority_class: str
    preemptibility: str


@dataclass(slots=True)
class QueueGroups:
    """The groups of one queue, whether the queue exists or not."""

    #: kind -> groups that have tasks, including those in back-off
    groups: dict[PriorityKind, int] = field(default_factory=dict)
    #: kind -> what the tasks of participating groups hold, as in `GroupEntry`
    allocated: dict[PriorityKind, ResourceSums] = field(default_factory=dict)
    #: kind -> what terminating tasks hold, whether or not their groups participate; only kinds that have such tasks
    terminating: dict[PriorityKind, TerminatingSums] = field(default_factory=dict)
    #: kind -> participating groups with tasks that are neither pending nor gated
    running: dict[PriorityKind, dict[str, GroupEntry]] = field(default_factory=dict)
    #: what the tasks of participating groups request
    requested: ResourceSums = (0, 0, 0)
    requested_mib: int = 0
    #: their tasks that wait for admission
    held: HeldTasks = NOTHING_HELD


class _GroupContribution(NamedTuple):
    """What one group adds to its queue."""

    queue: str
    kind: PriorityKind
    is_running: bool
    #: None while the group is in back-off
    allocated: ResourceSums | None
    requested: ResourceSums
    requested_mib: int
    #: None where no task terminates
    terminating: TerminatingSums | None
    held: HeldTasks


class GroupIndex:
    """All groups, counted."""

    def __init__(self) -> None:
        #: queue name -> its groups
        self.queues: dict[str, QueueGroups] = {}
        #: kind -> queues that have groups of it
        self.kinds: Counter[PriorityKind] = Counter()
        #: participating groups with pending or gated tasks
        self.waiting: dict[str, GroupEntry] = {}
        #: groups that would be among those, were they allowed to use their queue, as the plan reports them
        self.denied: dict[str, Unscheduled] = {}
        #: waiting tasks whose PodGroup is known neither here nor in another shard
        self.ungrouped: dict[str, GroupEntry] = {}
        #: groups that name a topology
        self.topology_constrained: dict[str, None] = {}
        #: groups below their minimum, or marked as such (cycle:15)
        self.stale: dict[str, None] = {}
        self._contributions: dict[str, _GroupContribution] = {}
        self._last_version = 0

    def refresh(self, groups: Mapping[str, GroupEntry], changed: Iterable[str]) -> bool:
        """Recount groups that changed, came or went; returns whether waiting groups may notice more than the sums:
        whether one of them waits, is stale or names a topology, or did."""
        affects_waiting = False
        for key in changed:
            affects_waiting = affects_waiting or self._affects_waiting(key)
            contribution = self._contributions.pop(key, None)
            if contribution is not None:
                self._remove_group(key, contribution)
            entry = groups.get(key)
            group = entry.group if entry is not None else None
            if entry is not None:
                self._last_version += 1
                entry.version = self._last_version
            _set_membership(self.ungrouped, key, entry, group is None and entry is not None and _is_ungrouped(entry))
            _set_membership(
                self.waiting, key, entry, group is not None and entry is not None and _is_waiting(group, entry)
            )
            if (
                group is not None
                and entry is not None
                and entry.denial is not None
                and (entry.pending or entry.held.tasks)
                and group.in_cycle
            ):
                self.denied[key] = _denied_group(group, entry.pending, entry.denial)
            else:
                self.denied.pop(key, None)
            _set_membership(self.topology_constrained, key, None, group is not None and group.names_topology)
            _set_membership(
                self.stale, key, None, group is not None and entry is not None and not _is_not_stale(group, entry)
            )
            if group is not None and entry is not None and entry.tasks:
                self._add_group(key, group, entry)
            affects_waiting = affects_waiting or self._affects_waiting(key)
        return affects_waiting

    def _affects_waiting(self, key: str) -> bool:
        return (
            key in self.waiting
            or key in self.stale
            or key in self.ungrouped
            or key in self.topology_constrained
            or key in self.denied
        )

    def _add_group(self, key: str, group: Group, entry: GroupEntry) -> None:
        kind = PriorityKind(group.priority_class, group.preemptibility)
        in_cycle = group.in_cycle
        # What runs is charged; what may not start is no demand (access:engine, access:withdrawn).
        requests = in_cycle and entry.denial is None
        is_running = in_cycle and len(entry.tasks) > entry.pending + entry.gated
        contribution = self._contributions[key] = _GroupContribution(
            group.queue,
            kind,
            is_running,
            _sums(entry.allocated) if in_cycle else None,
            _sums(entry.requested) if requests else (0, 0, 0),
            entry.requested_mib if requests else 0,
            TerminatingSums(entry.terminating, entry.slow_terminating) if entry.terminating != _ZERO else None,
            entry.held if requests else NOTHING_HELD,
        )
        queue_groups = self.queues.get(contribution.queue)
        if queue_groups is None:
            queue_groups = self.queues[contribution.queue] = QueueGroups()
        if kind not in queue_groups.groups:
            self.kinds[kind] += 1
        queue_groups.groups[kind] = queue_groups.groups.get(kind, 0) + 1
        if contribution.allocated is not None:
            queue_groups.allocated[kind] = _plus(queue_groups.allocated.get(kind, (0, 0, 0)), contribution.allocated, 1)
            queue_groups.requested = _plus(queue_groups.requested, contribution.requested, 1)
            queue_groups.requested_mib += contribution.requested_mib
        if contribution.held.tasks:
            queue_groups.held = queue_groups.held.plus(contribution.held, 1)
        if contribution.terminating is not None:
            queue_groups.terminating[kind] = queue_groups.terminating.get(kind, _NOTHING_TERMINATING).plus(
                contribution.terminating, 1
            )
        if is_running:
            queue_groups.running.setdefault(kind, {})[key] = entry

    def _remove_group(self, key: str, contribution: _GroupContribution) -> None:
        queue_groups = self.queues[contribution.queue]
        kind = contribution.kind
        queue_groups.groups[kind] -= 1
        if contribution.allocated is not None:
            queue_groups.allocated[kind] = _plus(queue_groups.allocated[kind], contribution.allocated, -1)
            queue_groups.requested = _plus(queue_groups.requested, contribution.requested, -1)
            queue_groups.requested_mib -= contribution.requested_mib
        if contribution.held.tasks:
            queue_groups.held = queue_groups.held.plus(contribution.held, -1)
        if contribution.terminating is not None:
            remaining = queue_groups.terminating.pop(kind).plus(contribution.terminating, -1)
            if remaining != _NOTHING_TERMINATING:
                queue_groups.terminating[kind] = remaining
        if contribution.is_running:
            running = queue_groups.running[kind]
            del running[key]
            if not running:
                del queue_groups.running[kind]
        if not queue_groups.groups[kind]:
            del queue_groups.groups[kind]
            self.kinds[kind] -= 1
            if not self.kinds[kind]:
                del self.kinds[kind]
            queue_groups.allocated.pop(kind, None)
            if not queue_groups.groups:
                del self.queues[contribution.queue]

    def as_comparable(self) -> dict[str, object]:
        """Everything, for comparison; names only, because order does not matter."""
        return {
            "queues": {
                name: (
                    count.groups,
                    {kind: sums for kind, sums in count.allocated.items() if any(sums)},
                    count.terminating,
                    {kind: set(running) for kind, running in count.running.items()},
                    count.requested,
                    count.requested_mib,
                    count.held,
                )
                for name, count in self.queues.items()
            },
            "waiting": set(self.waiting),
            "denied": self.denied,
            "ungrouped": set(self.ungrouped),
            "placed_by_topology": set(self.topology_constrained),
            "broken": set(self.stale),
        }


_ZERO: ResourceSums = (0, 0, 0)
_NOTHING_TERMINATING = TerminatingSums(_ZERO, _ZERO)


def _set_membership(index: dict[str, Any], key: str, value: object, belongs: bool) -> None:
    if belongs:
        index[key] = value
    else:
        index.pop(key, None)


def count_terminating(entry: GroupEntry, amounts: ResourceSums, sign: int, *, slow: bool) -> None:
    """Add to or subtract from what the terminating tasks of a group hold."""
    entry.terminating = _plus(entry.terminating, amounts, sign)
    if slow:
        entry.slow_terminating = _plus(entry.slow_terminating, amounts, sign)


def _sums(amounts: list[int]) -> ResourceSums:
    return (amounts[0], amounts[1], amounts[2])


def _plus(a: ResourceSums, b: ResourceSums, sign: int) -> ResourceSums:
    return (a[0] + sign * b[0], a[1] + sign * b[1], a[2] + sign * b[2])


def _is_waiting(group: Group, entry: GroupEntry) -> bool:
    return bool(entry.pending or entry.gated) and group.in_cycle and entry.denial is None


def _denied_group(group: Group, pending: int, denial: QueueAccessDenied) -> Unscheduled:
    return Unscheduled(group.namespace, group.name, group.queue, pending, (denial,))


def _is_ungrouped(entry: GroupEntry) -> bool:
    return bool(entry.pending) and not entry.in_other_shard


def can_be_stale(group: Group) -> bool:
    """Whether a group can fall below its minimum: a group that needs one pod has it or has none (cycle:15)."""
    return not (group.has_single_leaf and group.min_member <= 1 and group.stale_since_ns is None)


def _is_not_stale(group: Group, entry: GroupEntry) -> bool:
    """Whether a group is complete or has no pods, and no timestamp marks it as stale."""
    if not can_be_stale(group):
        return True
    if group.stale_since_ns is not None:
        return False
    used: dict[str, int] = {}
    for task in entry.tasks.values():
        if task.status is TaskStatus.SUCCEEDED:
            return True
        if ACTIVE_USED[task.status] and task.subgroup in group.leaf_index:
            used[task.subgroup] = used.get(task.subgroup, 0) + 1
    return not used or _has_minimum(group.root, used)


def _has_minimum(node: Branch | Leaf, used: Mapping[str, int]) -> bool:
    """Whether enough tasks hold a node, terminating ones included (cycle:PG-8)."""
    if isinstance(node, Leaf):
        return used.get(node.name, 0) >= node.minimum
    return sum(_has_minimum(child, used) for child in node.children) >= node.min_children
