"""What all groups come to, kept as they change: who waits, who runs in which queue, and what queues hold and want.

A cycle asks these questions of tens of thousands of groups, of which a handful have changed since the last one.  The
tables only note which groups changed; `Census.refresh` counts those anew, when a snapshot is taken, and leaves the
others alone.  Everything here is a function of the groups as they are, whatever came before (`validate.py` counts them
all anew and compares).

Groups are summed by queue and *kind*: the priority class and preemptibility that their objects name.  What a class is
worth is asked when the sums are read, so a changed priority class costs nothing here.  Sums are integers and exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pykai.core.model.groups import Branch, Group, Leaf
from pykai.core.model.status import ACTIVE_USED, Status
from pykai.core.model.tasks import Task

Sums = tuple[int, int, int]


@dataclass(slots=True)
class GroupEntry:
    """A group with its tasks; either may be there without the other."""

    #: None while no PodGroup of this key is known in this shard
    group: Group | None = None
    #: the PodGroup belongs to another shard, which looks after its tasks
    elsewhere: bool = False
    tasks: dict[str, Task] = field(default_factory=dict)
    #: tasks that are Pending and ask for this scheduler
    pending: int = 0
    #: the same for tasks held back by scheduling gates
    gated: int = 0
    #: cpu milli, memory bytes, GPU hundredths of tasks that count as allocated (queues:Q-103)
    allocated: list[int] = field(default_factory=lambda: [0, 0, 0])
    #: the same of tasks that leave and still hold their node; then of those of them that will not have gone soon
    leaving: Sums = (0, 0, 0)
    lasting: Sums = (0, 0, 0)
    #: the same wanted by pending tasks, gpu-memory requests left out (queues:Q-104)
    wanted: list[int] = field(default_factory=lambda: [0, 0, 0])
    #: devices x MiB of pending gpu-memory requests, converted when the smallest GPU is known (queues:Q-107)
    wanted_mib: int = 0
    #: another number whenever the census found the group changed
    version: int = 0
    #: what it costs a cycle to look at it, kept by `yielding.py`
    load: object = None


class LeavingSums(NamedTuple):
    """What tasks that leave hold: all of them, and those that will not have gone soon."""

    all: Sums
    lasting: Sums

    def plus(self, other: LeavingSums, sign: int) -> LeavingSums:
        """The sum, or with -1 the difference."""
        return LeavingSums(_plus(self.all, other.all, sign), _plus(self.lasting, other.lasting, sign))


class Kind(NamedTuple):
    """What decides whether groups may be taken back."""

    priority_class: str
    preemptibility: str


@dataclass(slots=True)
class QueueCount:
    """The groups of one queue, whether the queue exists or not."""

    #: kind -> groups that have tasks, those that back off included
    groups: dict[Kind, int] = field(default_factory=dict)
    #: kind -> what the tasks of groups that take part have, as in `GroupEntry`
    allocated: dict[Kind, Sums] = field(default_factory=dict)
    #: kind -> what tasks that leave hold, whether or not their groups take part; no kind of which none does
    leaving: dict[Kind, LeavingSums] = field(default_factory=dict)
    #: kind -> groups that take part and have tasks which neither wait nor are held back
    running: dict[Kind, dict[str, GroupEntry]] = field(default_factory=dict)
    #: what the tasks of groups that take part want
    wanted: Sums = (0, 0, 0)
    wanted_mib: int = 0


class _Part(NamedTuple):
    """What one group adds to its queue."""

    queue: str
    kind: Kind
    runs: bool
    #: how it takes part, None while it backs off
    allocated: Sums | None
    wanted: Sums
    wanted_mib: int
    #: None where none of its tasks leaves
    leaving: LeavingSums | None


class Census:
    """All groups, counted."""

    def __init__(self) -> None:
        #: queue name -> its groups
        self.queues: dict[str, QueueCount] = {}
        #: kind -> queues that have groups of it
        self.kinds: Counter[Kind] = Counter()
        #: groups that take part and have tasks that wait or are held back
        self.waiting: dict[str, GroupEntry] = {}
        #: waiting tasks whose PodGroup is known neither here nor in another shard
        self.ungrouped: dict[str, GroupEntry] = {}
        #: groups that name a topology
        self.placed_by_topology: dict[str, None] = {}
        #: groups that are less than a gang, or were when somebody looked last (cycle:15)
        self.broken: dict[str, None] = {}
        self._parts: dict[str, _Part] = {}
        self._changes = 0

    def refresh(self, groups: Mapping[str, GroupEntry], changed: Iterable[str]) -> bool:
        """Count groups anew that have changed, came or went; whether one of them means more than its part of the sums:
        because it waits, is broken or names a topology, or did."""
        matters = False
        for key in changed:
            matters = matters or self._matters(key)
            part = self._parts.pop(key, None)
            if part is not None:
                self._take_out(key, part)
            entry = groups.get(key)
            group = entry.group if entry is not None else None
            if entry is not None:
                self._changes += 1
                entry.version = self._changes
            _enter(self.ungrouped, key, entry, group is None and entry is not None and _unclaimed(entry))
            _enter(self.waiting, key, entry, group is not None and entry is not None and _waits(group, entry))
            _enter(self.placed_by_topology, key, None, group is not None and group.names_topology)
            _enter(self.broken, key, None, group is not None and entry is not None and not _whole(group, entry))
            if group is not None and entry is not None and entry.tasks:
                self._put_in(key, group, entry)
            matters = matters or self._matters(key)
        return matters

    def _matters(self, key: str) -> bool:
        return key in self.waiting or key in self.broken or key in self.ungrouped or key in self.placed_by_topology

    def _put_in(self, key: str, group: Group, entry: GroupEntry) -> None:
        kind = Kind(group.priority_class, group.preemptibility)
        active = group.in_cycle
        runs = active and len(entry.tasks) > entry.pending + entry.gated
        part = self._parts[key] = _Part(
            group.queue,
            kind,
            runs,
            _sums(entry.allocated) if active else None,
            _sums(entry.wanted) if active else (0, 0, 0),
            entry.wanted_mib if active else 0,
            LeavingSums(entry.leaving, entry.lasting) if entry.leaving != _NONE else None,
        )
        count = self.queues.get(part.queue)
        if count is None:
            count = self.queues[part.queue] = QueueCount()
        if kind not in count.groups:
            self.kinds[kind] += 1
        count.groups[kind] = count.groups.get(kind, 0) + 1
        if part.allocated is not None:
            count.allocated[kind] = _plus(count.allocated.get(kind, (0, 0, 0)), part.allocated, 1)
            count.wanted = _plus(count.wanted, part.wanted, 1)
            count.wanted_mib += part.wanted_mib
        if part.leaving is not None:
            count.leaving[kind] = count.leaving.get(kind, _NOTHING_LEAVES).plus(part.leaving, 1)
        if runs:
            count.running.setdefault(kind, {})[key] = entry

    def _take_out(self, key: str, part: _Part) -> None:
        count = self.queues[part.queue]
        kind = part.kind
        count.groups[kind] -= 1
        if part.allocated is not None:
            count.allocated[kind] = _plus(count.allocated[kind], part.allocated, -1)
            count.wanted = _plus(count.wanted, part.wanted, -1)
            count.wanted_mib -= part.wanted_mib
        if part.leaving is not None:
            left = count.leaving.pop(kind).plus(part.leaving, -1)
            if left != _NOTHING_LEAVES:
                count.leaving[kind] = left
        if part.runs:
            running = count.running[kind]
            del running[key]
            if not running:
                del count.running[kind]
        if not count.groups[kind]:
            del count.groups[kind]
            self.kinds[kind] -= 1
            if not self.kinds[kind]:
                del self.kinds[kind]
            count.allocated.pop(kind, None)
            if not count.groups:
                del self.queues[part.queue]

    def said(self) -> dict[str, object]:
        """Everything, to be compared; names only, because order means nothing."""
        return {
            "queues": {
                name: (
                    count.groups,
                    {kind: sums for kind, sums in count.allocated.items() if any(sums)},
                    count.leaving,
                    {kind: set(running) for kind, running in count.running.items()},
                    count.wanted,
                    count.wanted_mib,
                )
                for name, count in self.queues.items()
            },
            "waiting": set(self.waiting),
            "ungrouped": set(self.ungrouped),
            "placed_by_topology": set(self.placed_by_topology),
            "broken": set(self.broken),
        }


_NONE: Sums = (0, 0, 0)
_NOTHING_LEAVES = LeavingSums(_NONE, _NONE)


def _enter(into: dict[str, Any], key: str, value: object, belongs: bool) -> None:
    if belongs:
        into[key] = value
    else:
        into.pop(key, None)


def count_leaving(entry: GroupEntry, amounts: Sums, sign: int, *, lasts: bool) -> None:
    """Add to or take from what the tasks of a group hold that leave."""
    entry.leaving = _plus(entry.leaving, amounts, sign)
    if lasts:
        entry.lasting = _plus(entry.lasting, amounts, sign)


def _sums(amounts: list[int]) -> Sums:
    return (amounts[0], amounts[1], amounts[2])


def _plus(a: Sums, b: Sums, sign: int) -> Sums:
    return (a[0] + sign * b[0], a[1] + sign * b[1], a[2] + sign * b[2])


def _waits(group: Group, entry: GroupEntry) -> bool:
    return bool(entry.pending or entry.gated) and group.in_cycle


def _unclaimed(entry: GroupEntry) -> bool:
    return bool(entry.pending) and not entry.elsewhere


def may_break(group: Group) -> bool:
    """Whether a group can be less than a gang: where one pod is enough, whoever has any is complete (cycle:15)."""
    return not (group.plain and group.min_member <= 1 and group.stale_since_ns is None)


def _whole(group: Group, entry: GroupEntry) -> bool:
    """Whether there is nothing to say about a group as it stands: it is complete or not there at all, and no stamp
    says that it was otherwise."""
    if not may_break(group):
        return True
    if group.stale_since_ns is not None:
        return False
    used: dict[str, int] = {}
    for task in entry.tasks.values():
        if task.status is Status.SUCCEEDED:
            return True
        if ACTIVE_USED[task.status] and task.subgroup in group.leaf_index:
            used[task.subgroup] = used.get(task.subgroup, 0) + 1
    return not used or _complete(group.root, used)


def _complete(node: Branch | Leaf, used: Mapping[str, int]) -> bool:
    """Whether enough tasks hold a node, terminating ones included (cycle:PG-8)."""
    if isinstance(node, Leaf):
        return used.get(node.name, 0) >= node.minimum
    return sum(_complete(child, used) for child in node.children) >= node.needed
