"""What terminating pods still hold, and which queues are charged for it.

A terminating pod keeps its devices until it is gone, which its owner can delay at will by a long grace period or a
finalizer.  If it were not charged (as queues:Q-105 and cycle:SNP-18 have it), a queue could hold any number of devices:
start, delete, start again.  So the checks of limit and non-preemptible quota add terminating pods (ADR 20):

- a *start* is charged with all terminating pods of its queues;
- a *pipelined* placement only with those that terminate slowly: stuck pods, and pods that another client deleted with
  a grace period longer than the threshold for stuck pods;
- a victim of this scheduler is never charged to the PodGroup it was evicted for.

Only the two checks read this: requests, fair shares, the order of queues and the nodes count as before.  Nothing here
changes during a cycle; what the cycle itself evicts frees its queue at once (queues:Q-108).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pykai.api import names
from pykai.core.cluster.groupindex import PriorityKind, QueueGroups
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.protected import protected_tasks
from pykai.core.model.status import QUEUE_ALLOCATED, TERMINATING
from pykai.core.model.tasks import Task
from pykai.core.queueing.queueledger import QueueCharges, TerminatingCharges

_RESOURCES = range(3)
TaskOrderKey = Callable[[Task], tuple[Any, ...]]


def sum_terminating(snapshot: Snapshot, task_key: TaskOrderKey) -> TerminatingCharges | None:
    """The sums of a snapshot; None when no pod terminates."""
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
    """Of a semi-preemptible group the quota counts the protected part (queues:Q-418): with its terminating pods, less
    without them."""
    for entry in snapshot.read_running().of_kind(count, kind):
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
    """Whether a task terminates and will hold its node for long."""
    return task.terminates_slowly(snapshot.shard.stuck_after_ns)


def _amounts_of(snapshot: Snapshot, tasks: list[Task]) -> Iterator[tuple[float, float, float]]:
    for task in tasks:
        yield snapshot.amounts_on(task.shape, snapshot.nodes.rows.get(task.node, -1))


def _exempt_victim(snapshot: Snapshot, terminating: TerminatingCharges, task: Task) -> None:
    """Exempt a victim from the charges of the PodGroup it was evicted for."""
    entry = snapshot.group_entries.get(task.group_key)
    group = entry.group if entry is not None else None
    if group is None or not task.evicted_for or (queue := snapshot.tree.rows.get(group.queue)) is None:
        return
    size = len(snapshot.tree.names)
    exempt_charges = terminating.exempt.setdefault(task.evicted_for, (QueueCharges.zero(size), QueueCharges.zero(size)))
    (amounts,) = _amounts_of(snapshot, [task])
    # The protected part of a semi-preemptible group is not split by task: it stays charged to the quota.
    semi_preemptible = group.preemptibility == names.SEMI_PREEMPTIBLE
    non_preemptible = not semi_preemptible and not snapshot.is_preemptible(group, snapshot.priority_of(group))
    exempt_charges[0].add(snapshot.tree.chains[queue], amounts, non_preemptible=non_preemptible)
    if terminates_slowly(snapshot, task):
        exempt_charges[1].add(snapshot.tree.chains[queue], amounts, non_preemptible=non_preemptible)
