"""The ledger of the queues as a cycle opens it: what the groups hold and request, and the fair shares of that."""

from __future__ import annotations

from collections.abc import Iterator

from pykai.api import names
from pykai.core.cluster.groupindex import PriorityKind, QueueGroups
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.protected import protected_tasks
from pykai.core.model.queuetree import CPU, GPU, MEMORY, RESOURCES
from pykai.core.model.tasks import Task, by_age
from pykai.core.queueing.fairshare import fair_shares, roll_up
from pykai.core.queueing.queueledger import QueueLedger
from pykai.core.queueing.terminating import TaskOrderKey, sum_terminating


class _QueueSums:
    """What the groups of each queue hold and request, [resource][queue row]; GPUs in hundredths."""

    __slots__ = ("allocated", "non_preemptible", "requested", "requested_mib")

    def __init__(self, size: int) -> None:
        self.allocated = [[0] * size for _ in range(RESOURCES)]
        self.non_preemptible = [[0] * size for _ in range(RESOURCES)]
        self.requested = [[0] * size for _ in range(RESOURCES)]
        #: [queue row] devices x MiB of pending gpu-memory requests
        self.requested_mib = [0] * size


def open_ledger(
    snapshot: Snapshot,
    *,
    usage: list[list[float]] | None = None,
    k: float = 1.0,
    strict_remainders: bool,
    task_key: TaskOrderKey = by_age,
    count_held: bool,
) -> QueueLedger:
    """Sum up the groups, divide the cluster, and open the ledger (queues:7, 8).

    `usage` is historical usage as a fraction of the cluster, [resource][queue row].  With `count_held`, what waits for
    admission to a queue is part of its request (queues:Q-407).
    """
    tree = snapshot.tree
    sums = _sum_groups(snapshot, task_key, count_held=count_held)
    request = _total_requests(snapshot, sums)
    allocated = [[float(value) for value in column] for column in sums.allocated]
    non_preemptible = [[float(value) for value in column] for column in sums.non_preemptible]
    for columns in (request, allocated, non_preemptible):
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
    return QueueLedger(
        tree,
        total,
        _by_queue(allocated),
        _by_queue(non_preemptible),
        _by_queue(request, 100.0),
        _by_queue(shares, 100.0),
        sum_terminating(snapshot, task_key),
    )


def _sum_groups(snapshot: Snapshot, task_key: TaskOrderKey, *, count_held: bool) -> _QueueSums:
    tree = snapshot.tree
    sums = _QueueSums(len(tree.names))
    for name, queue_groups in snapshot.group_index.queues.items():
        if (queue := tree.rows.get(name)) is None:
            continue
        _add_allocated(snapshot, sums, queue, queue_groups, task_key)
        if not tree.children[queue]:
            # Demand that names an inner queue can never be served there (queues:5, Do better).
            for resource in range(RESOURCES):
                sums.requested[resource][queue] += queue_groups.requested[resource]
            sums.requested_mib[queue] += queue_groups.requested_mib
            if count_held and queue_groups.held.tasks:
                for resource in range(RESOURCES):
                    sums.requested[resource][queue] += queue_groups.held.requested[resource]
                sums.requested_mib[queue] += queue_groups.held.requested_mib
    return sums


def _add_allocated(
    snapshot: Snapshot, sums: _QueueSums, queue: int, queue_groups: QueueGroups, task_key: TaskOrderKey
) -> None:
    non_preemptible = sums.non_preemptible
    for kind, used in queue_groups.allocated.items():
        for resource in range(RESOURCES):
            sums.allocated[resource][queue] += used[resource]
        if kind.preemptibility == names.SEMI_PREEMPTIBLE:
            # Only its protected part counts (queues:Q-418).
            for task in _protected_tasks_of(snapshot, queue_groups, kind, task_key):
                cost = snapshot.amounts_on(task.shape, snapshot.nodes.rows.get(task.node, -1))
                for resource in range(RESOURCES):
                    non_preemptible[resource][queue] += int(cost[resource])
        elif not snapshot.is_kind_preemptible(kind):
            for resource in range(RESOURCES):
                non_preemptible[resource][queue] += used[resource]


def _total_requests(snapshot: Snapshot, sums: _QueueSums) -> list[list[float]]:
    """[resource][queue row] what queues hold and request together; GPUs in devices."""
    size = len(snapshot.tree.names)
    gpu_range = snapshot.gpu_memory_range()
    smallest_mib = gpu_range[0] if gpu_range else 0
    request = [
        [float(sums.allocated[resource][queue] + sums.requested[resource][queue]) for queue in range(size)]
        for resource in range(RESOURCES)
    ]
    for queue in range(size):
        request[GPU][queue] /= 100.0
        if smallest_mib:
            request[GPU][queue] += sums.requested_mib[queue] / smallest_mib
    return request


def _by_queue(columns: list[list[float]], gpu_scale: float = 1.0) -> list[list[float]]:
    """Columns [resource][queue row] as rows [queue row][resource], in the units of the ledger."""
    return [
        [cpu, memory, round(gpu * gpu_scale, 9)]
        for cpu, memory, gpu in zip(columns[CPU], columns[MEMORY], columns[GPU], strict=True)
    ]


def _protected_tasks_of(
    snapshot: Snapshot, queue_groups: QueueGroups, kind: PriorityKind, task_key: TaskOrderKey
) -> Iterator[Task]:
    """The protected tasks of the groups of a kind."""
    for entry in snapshot.read_running().of_kind(queue_groups, kind):
        if entry.group is not None and any(entry.allocated):
            yield from protected_tasks(entry.group, entry.tasks.values(), task_key)
