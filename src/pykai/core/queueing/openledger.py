"""The ledger of the queues as a cycle opens it: what the groups hold and request, and the fair shares of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pykai.api import names
from pykai.core.cluster.groupindex import PriorityKind, QueueGroups
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.protected import protected_tasks
from pykai.core.model.queuetree import CPU, GPU, MEMORY, RESOURCES
from pykai.core.model.tasks import Task, by_age
from pykai.core.queueing.fairshare import fair_shares, roll_up
from pykai.core.queueing.queueledger import QueueLedger
from pykai.core.queueing.terminating import sum_terminating


def open_ledger(
    snapshot: Snapshot,
    *,
    usage: list[list[float]] | None = None,
    k: float = 1.0,
    strict_remainders: bool = False,
    task_key: Callable[[Task], tuple[Any, ...]] = by_age,
) -> QueueLedger:
    """Sum up the groups, divide the cluster, and open the books (queues:7, 8).

    `usage` is historical usage as a fraction of the cluster, [resource][queue row].
    """
    tree = snapshot.tree
    size = len(tree.names)
    allocated = [[0] * size for _ in range(RESOURCES)]
    non_preemptible = [[0] * size for _ in range(RESOURCES)]
    requested = [[0] * size for _ in range(RESOURCES)]
    requested_mib = [0] * size
    rows = tree.rows
    for name, count in snapshot.group_index.queues.items():
        if (queue := rows.get(name)) is None:
            continue
        for kind, used in count.allocated.items():
            for resource in range(RESOURCES):
                allocated[resource][queue] += used[resource]
            if kind.preemptibility == names.SEMI_PREEMPTIBLE:
                # Only its core counts (queues:Q-418).
                for task in _protected_tasks_of(snapshot, count, kind, task_key):
                    cost = snapshot.amounts_on(task.shape, snapshot.nodes.rows.get(task.node, -1))
                    for resource in range(RESOURCES):
                        non_preemptible[resource][queue] += int(cost[resource])
            elif not snapshot.is_kind_preemptible(kind):
                for resource in range(RESOURCES):
                    non_preemptible[resource][queue] += used[resource]
        if not tree.children[queue]:
            # Demand that names an inner queue can never be served there (queues:5, Do better).
            for resource in range(RESOURCES):
                requested[resource][queue] += count.requested[resource]
            requested_mib[queue] += count.requested_mib

    gpu_range = snapshot.gpu_memory_range()
    smallest = gpu_range[0] if gpu_range else 0
    request = [
        [float(allocated[resource][q] + requested[resource][q]) for q in range(size)] for resource in range(RESOURCES)
    ]
    for queue in range(size):
        request[GPU][queue] /= 100.0
        if smallest:
            request[GPU][queue] += requested_mib[queue] / smallest
    allocated_f = [[float(value) for value in column] for column in allocated]
    non_preemptible_f = [[float(value) for value in column] for column in non_preemptible]
    for columns in (request, allocated_f, non_preemptible_f):
        roll_up(tree, columns)
    total = snapshot.cluster_totals()
    shares = fair_shares(
        tree,
        [total[CPU], total[MEMORY], total[GPU] / 100.0],
        request,
        usage=usage,
        k=k,
        strict_remainders=strict_remainders,
    )

    def by_queue(columns: list[list[float]], gpu_scale: float = 1.0) -> list[list[float]]:
        return [[columns[CPU][q], columns[MEMORY][q], round(columns[GPU][q] * gpu_scale, 9)] for q in range(size)]

    return QueueLedger(
        tree,
        total,
        by_queue(allocated_f),
        by_queue(non_preemptible_f),
        by_queue(request, 100.0),
        by_queue(shares, 100.0),
        sum_terminating(snapshot, task_key),
    )


def _protected_tasks_of(
    snapshot: Snapshot, count: QueueGroups, kind: PriorityKind, task_key: Callable[[Task], tuple[Any, ...]]
) -> Iterator[Task]:
    """The tasks of the groups of a kind that may not be taken back."""
    for entry in snapshot.running_groups(count, kind):
        if entry.group is not None and any(entry.allocated):
            yield from protected_tasks(entry.group, entry.tasks.values(), task_key)
