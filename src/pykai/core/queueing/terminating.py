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
from pykai.core.cluster.groupindex import PriorityKind, QueueGroups
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.protected import protected_tasks
from pykai.core.model.status import QUEUE_ALLOCATED, TERMINATING
from pykai.core.model.tasks import Task

_RESOURCES = range(3)
TaskOrderKey = Callable[[Task], tuple[Any, ...]]


def _rows(size: int) -> list[list[float]]:
    return [[0.0, 0.0, 0.0] for _ in range(size)]


@dataclass(slots=True)
class QueueCharges:
    """Ledger units by queue and resource, rolled up: everything, and the part of non-preemptible work."""

    amounts: list[list[float]]
    non_preemptible: list[list[float]]

    @classmethod
    def zero(cls, size: int) -> QueueCharges:
        """Nothing for so many queues."""
        return cls(_rows(size), _rows(size))

    def add(self, chain: tuple[int, ...], amounts: tuple[float, ...], *, non_preemptible: bool) -> None:
        """Charge a queue and its ancestors."""
        for queue in chain:
            for resource in _RESOURCES:
                self.amounts[queue][resource] += amounts[resource]
                if non_preemptible:
                    self.non_preemptible[queue][resource] += amounts[resource]


@dataclass(slots=True)
class TerminatingCharges:
    """What leaves, as charged to a start and to a promise."""

    for_start: QueueCharges
    for_pipelined: QueueCharges
    #: uid of a PodGroup -> the same of its own victims, which are not charged to it
    exempt: dict[str, tuple[QueueCharges, QueueCharges]] = field(default_factory=dict)
    _charged: dict[tuple[str, bool, bool], list[list[float]]] = field(default_factory=dict)

    def charged(self, preemptor: str, *, start: bool, non_preemptible: bool) -> list[list[float]]:
        """[queue][resource] what a PodGroup finds charged besides what its queues have."""
        charges = self.for_start if start else self.for_pipelined
        everything = charges.non_preemptible if non_preemptible else charges.amounts
        exempt_charges = self.exempt.get(preemptor)
        if exempt_charges is None:
            return everything
        key = (preemptor, start, non_preemptible)
        if key not in self._charged:
            part = exempt_charges[0] if start else exempt_charges[1]
            spared = part.non_preemptible if non_preemptible else part.amounts
            self._charged[key] = [
                [max(0.0, a - b) for a, b in zip(*rows, strict=True)] for rows in zip(everything, spared, strict=True)
            ]
        return self._charged[key]


def sum_terminating(snapshot: Snapshot, task_key: TaskOrderKey) -> TerminatingCharges | None:
    """The sums of a snapshot; None when nothing leaves, as most of the time."""
    tree = snapshot.tree
    counts_by_queue = [
        (tree.rows[name], count)
        for name, count in snapshot.group_index.queues.items()
        if count.terminating and name in tree.rows
    ]
    if not counts_by_queue:
        return None
    size = len(tree.names)
    terminating = TerminatingCharges(QueueCharges.zero(size), QueueCharges.zero(size))
    for queue, count in counts_by_queue:
        chain = tree.chains[queue]
        for kind, sums in count.terminating.items():
            semi_preemptible = kind.preemptibility == names.SEMI_PREEMPTIBLE
            non_preemptible = not semi_preemptible and not snapshot.is_kind_preemptible(kind)
            terminating.for_start.add(chain, sums.all, non_preemptible=non_preemptible)
            terminating.for_pipelined.add(chain, sums.slow, non_preemptible=non_preemptible)
            if semi_preemptible:
                _add_protected_parts(snapshot, terminating, chain, count, kind, task_key)
    for task in snapshot.victims.values():
        _exempt_victim(snapshot, terminating, task)
    return terminating


def _add_protected_parts(
    snapshot: Snapshot,
    terminating: TerminatingCharges,
    chain: tuple[int, ...],
    count: QueueGroups,
    kind: PriorityKind,
    task_key: TaskOrderKey,
) -> None:
    """Of a semi-preemptible group the quota counts the core (queues:Q-418): as it is with those that leave, less what
    it is without them."""
    for entry in snapshot.running_groups(count, kind):
        group = entry.group
        if group is None or not any(entry.terminating):
            continue
        tasks = entry.tasks.values()
        protected_now = protected_tasks(group, tasks, task_key)
        for charges, holds_node in (
            (terminating.for_start, lambda task: QUEUE_ALLOCATED[task.status] or TERMINATING[task.status]),
            (terminating.for_pipelined, lambda task: QUEUE_ALLOCATED[task.status] or terminates_slowly(snapshot, task)),
        ):
            with_terminating = list(_amounts_of(snapshot, protected_tasks(group, tasks, task_key, holds_node)))
            without_terminating = list(_amounts_of(snapshot, protected_now))
            for resource in _RESOURCES:
                extra = sum(cost[resource] for cost in with_terminating) - sum(
                    cost[resource] for cost in without_terminating
                )
                for queue in chain:
                    charges.non_preemptible[queue][resource] += max(0.0, extra)


def terminates_slowly(snapshot: Snapshot, task: Task) -> bool:
    """Whether a task leaves and will not have gone soon."""
    return task.terminates_slowly(snapshot.shard.stuck_after_ns)


def _amounts_of(snapshot: Snapshot, tasks: list[Task]) -> Iterator[tuple[float, float, float]]:
    for task in tasks:
        yield snapshot.amounts_on(task.shape, snapshot.nodes.rows.get(task.node, -1))


def _exempt_victim(snapshot: Snapshot, terminating: TerminatingCharges, task: Task) -> None:
    """Note that a victim is not charged to the PodGroup it was evicted for."""
    entry = snapshot.group_entries.get(task.group_key)
    group = entry.group if entry is not None else None
    if group is None or not task.evicted_for or (queue := snapshot.tree.rows.get(group.queue)) is None:
        return
    size = len(snapshot.tree.names)
    exempt_charges = terminating.exempt.setdefault(task.evicted_for, (QueueCharges.zero(size), QueueCharges.zero(size)))
    (amounts,) = _amounts_of(snapshot, [task])
    # What a core of a semi-preemptible group has lost is not taken apart by task: it stays charged to the quota.
    semi_preemptible = group.preemptibility == names.SEMI_PREEMPTIBLE
    non_preemptible = not semi_preemptible and not snapshot.is_preemptible(group, snapshot.priority_of(group))
    exempt_charges[0].add(snapshot.tree.chains[queue], amounts, non_preemptible=non_preemptible)
    if terminates_slowly(snapshot, task):
        exempt_charges[1].add(snapshot.tree.chains[queue], amounts, non_preemptible=non_preemptible)
