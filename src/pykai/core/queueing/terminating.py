"""What pods that are being deleted still hold, and whom that is charged to.

A pod in deletion keeps its devices until it has gone, which its owner can put off at will: by a long grace period, or
by a finalizer.  If it were free of charge (as queues:Q-105 and cycle:SNP-18 have it) a queue could hold any number of
devices: start, delete, start again.  So the checks of limit and non-preemptible quota add what leaves (ADR 20):

- a *start* is charged with all pods of its queues that leave;
- a *promise* only with those that will not go soon: stuck ones, and those that somebody else deleted with a grace
  period longer than the threshold for stuck pods;
- a victim of this scheduler is never charged to the PodGroup it was evicted for.

Only the two checks read this: requests, fair shares, the order of queues and the nodes count as before.  Nothing here
changes during a cycle; what the cycle itself evicts frees its queue at once (queues:Q-108).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pykai.api import names
from pykai.core.cluster.groupindex import Kind, QueueCount
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.protected import core_of
from pykai.core.model.status import LEAVING, QUEUE_ALLOCATED
from pykai.core.model.tasks import Task

_RESOURCES = range(3)
TaskKey = Callable[[Task], tuple[Any, ...]]


def _rows(size: int) -> list[list[float]]:
    return [[0.0, 0.0, 0.0] for _ in range(size)]


@dataclass(slots=True)
class Held:
    """Ledger units by queue and resource, rolled up: everything, and the part of non-preemptible work."""

    amounts: list[list[float]]
    committed: list[list[float]]

    @classmethod
    def nothing(cls, size: int) -> Held:
        """Nothing for so many queues."""
        return cls(_rows(size), _rows(size))

    def add(self, chain: tuple[int, ...], amounts: tuple[float, ...], *, committed: bool) -> None:
        """Charge a queue and its ancestors."""
        for queue in chain:
            for resource in _RESOURCES:
                self.amounts[queue][resource] += amounts[resource]
                if committed:
                    self.committed[queue][resource] += amounts[resource]


@dataclass(slots=True)
class Leaving:
    """What leaves, as charged to a start and to a promise."""

    start: Held
    promise: Held
    #: uid of a PodGroup -> the same of its own victims, which are not charged to it
    spared: dict[str, tuple[Held, Held]] = field(default_factory=dict)
    _charged: dict[tuple[str, bool, bool], list[list[float]]] = field(default_factory=dict)

    def charged(self, preemptor: str, *, start: bool, committed: bool) -> list[list[float]]:
        """[queue][resource] what a PodGroup finds charged besides what its queues have."""
        held = self.start if start else self.promise
        every = held.committed if committed else held.amounts
        own = self.spared.get(preemptor)
        if own is None:
            return every
        key = (preemptor, start, committed)
        if key not in self._charged:
            part = own[0] if start else own[1]
            spared = part.committed if committed else part.amounts
            self._charged[key] = [
                [max(0.0, a - b) for a, b in zip(*rows, strict=True)] for rows in zip(every, spared, strict=True)
            ]
        return self._charged[key]


def what_leaves(snapshot: Snapshot, task_key: TaskKey) -> Leaving | None:
    """The sums of a snapshot; None when nothing leaves, as most of the time."""
    tree = snapshot.tree
    counts = [
        (tree.rows[name], count)
        for name, count in snapshot.census.queues.items()
        if count.leaving and name in tree.rows
    ]
    if not counts:
        return None
    size = len(tree.names)
    found = Leaving(Held.nothing(size), Held.nothing(size))
    for queue, count in counts:
        chain = tree.chains[queue]
        for kind, sums in count.leaving.items():
            semi = kind.preemptibility == names.SEMI_PREEMPTIBLE
            committed = not semi and not snapshot.kind_preemptible(kind)
            found.start.add(chain, sums.all, committed=committed)
            found.promise.add(chain, sums.lasting, committed=committed)
            if semi:
                _add_cores(snapshot, found, chain, count, kind, task_key)
    for task in snapshot.victims.values():
        _spare(snapshot, found, task)
    return found


def _add_cores(
    snapshot: Snapshot, found: Leaving, chain: tuple[int, ...], count: QueueCount, kind: Kind, task_key: TaskKey
) -> None:
    """Of a semi-preemptible group the quota counts the core (queues:Q-418): as it is with those that leave, less what
    it is without them."""
    for entry in snapshot.running(count, kind):
        group = entry.group
        if group is None or not any(entry.leaving):
            continue
        tasks = entry.tasks.values()
        without = core_of(group, tasks, task_key)
        for held, counts in (
            (found.start, lambda task: QUEUE_ALLOCATED[task.status] or LEAVING[task.status]),
            (found.promise, lambda task: QUEUE_ALLOCATED[task.status] or lasts(snapshot, task)),
        ):
            more = list(_costs(snapshot, core_of(group, tasks, task_key, counts)))
            less = list(_costs(snapshot, without))
            for resource in _RESOURCES:
                extra = sum(cost[resource] for cost in more) - sum(cost[resource] for cost in less)
                for queue in chain:
                    held.committed[queue][resource] += max(0.0, extra)


def lasts(snapshot: Snapshot, task: Task) -> bool:
    """Whether a task leaves and will not have gone soon."""
    return task.lasts(snapshot.shard.stuck_after_ns)


def _costs(snapshot: Snapshot, tasks: list[Task]) -> Iterator[tuple[float, float, float]]:
    for task in tasks:
        yield snapshot.amounts_on(task.shape, snapshot.nodes.rows.get(task.node, -1))


def _spare(snapshot: Snapshot, found: Leaving, task: Task) -> None:
    """Note that a victim is not charged to the PodGroup it was evicted for."""
    entry = snapshot.entries.get(task.group_key)
    group = entry.group if entry is not None else None
    if group is None or not task.evicted_for or (queue := snapshot.tree.rows.get(group.queue)) is None:
        return
    size = len(snapshot.tree.names)
    own = found.spared.setdefault(task.evicted_for, (Held.nothing(size), Held.nothing(size)))
    (amounts,) = _costs(snapshot, [task])
    # What a core of a semi-preemptible group has lost is not taken apart by task: it stays charged to the quota.
    semi = group.preemptibility == names.SEMI_PREEMPTIBLE
    committed = not semi and not snapshot.preemptible(group, snapshot.priority_of(group))
    own[0].add(snapshot.tree.chains[queue], amounts, committed=committed)
    if lasts(snapshot, task):
        own[1].add(snapshot.tree.chains[queue], amounts, committed=committed)
