"""The books of the queues during one cycle: what each has, may have, and deserves.

One row per queue, three figures each in the order CPU (milli), memory (bytes), GPU (hundredths of a device, so that
sums of fractions are exact: queues:1.4, Do better).  `allocated` and `committed` (upstream: AllocatedNotPreemptible)
follow every placement along the chain from leaf to root; undo puts the saved figures back and never subtracts.
Everything else is fixed when the cycle starts, also what pods in deletion still hold (`terminating.py`).  Figures are
plain floats in lists: a placement touches three numbers of two or three rows, which is where Python is quicker than
NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple

from pykai.api import names
from pykai.core.cluster.groupindex import Kind, QueueCount
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.protected import core_of
from pykai.core.model.tasks import Task, by_age
from pykai.core.queueing.queuetree import CPU, GPU, MEMORY, RESOURCES, QueueTree, fair_shares, roll_up
from pykai.core.queueing.terminating import Leaving, what_leaves

#: cpu milli, memory bytes, GPU hundredths
Amounts = tuple[float, float, float]

#: A queue that has a resource of which it may have nothing ranks by this multiple of it (queues:1.3).
_ZERO_SHARE = 1000.0


class Refusal(NamedTuple):
    """A capacity check that failed: which queue, which resource, and the figures."""

    #: "limit" or "quota"
    rule: str
    queue: int
    resource: int
    #: limit or quota, in ledger units
    bound: float
    #: allocated, or allocated to non-preemptible work
    used: float
    requested: float
    #: what pods that are being deleted still hold of it, where that was charged too
    leaving: float = 0.0


def _scaled(devices: float) -> float:
    """Devices to hundredths, without the last-bit noise of values such as 0.07."""
    return round(devices * 100.0, 9)


class Ledger:
    """Figures of all queues; rows are those of the tree."""

    __slots__ = (
        "_divisors",
        "_limited",
        "_nothing",
        "allocatable",
        "allocated",
        "committed",
        "fair_share",
        "leaving",
        "limit",
        "priorities",
        "quota",
        "request",
        "total",
        "tree",
    )

    def __init__(
        self,
        tree: QueueTree,
        total: list[float],
        allocated: list[list[float]],
        committed: list[list[float]],
        request: list[list[float]],
        fair_share: list[list[float]],
        leaving: Leaving | None = None,
    ) -> None:
        """All lists are [queue][resource] in ledger units, rolled up."""
        self.tree = tree
        self.total = total
        self.allocated = allocated
        self.committed = committed
        self.request = request
        self.fair_share = fair_share
        #: what pods in deletion still hold, None = nothing
        self.leaving = leaving
        self.priorities = tree.priorities
        rows = range(len(tree.names))
        self.quota = [(tree.quota[CPU][q], tree.quota[MEMORY][q], _scaled(tree.quota[GPU][q])) for q in rows]
        self.limit = [(tree.limit[CPU][q], tree.limit[MEMORY][q], _scaled(tree.limit[GPU][q])) for q in rows]
        self.allocatable = [
            tuple(
                self.limit[q][r]
                if self.quota[q][r] == inf
                else min(max(self.quota[q][r], fair_share[q][r]), self.limit[q][r])
                for r in range(RESOURCES)
            )
            for q in rows
        ]
        #: what dominant shares are measured by: allocatable, the cluster where that is unlimited
        self._divisors: list[Amounts] = [
            (
                total[0] if may[0] == inf else may[0],
                total[1] if may[1] == inf else may[1],
                total[2] if may[2] == inf else may[2],
            )
            for may in self.allocatable
        ]
        self._nothing = [(0.0, 0.0, 0.0)] * len(rows)
        #: whether any limit is set at all
        self._limited = [any(bound != inf for bound in limit) for limit in self.limit]

    def add(self, chain: tuple[int, ...], amounts: Amounts, committed: bool) -> list[list[float]]:
        """Charge a queue and its ancestors; returns what `restore` needs to take it back."""
        cpu, memory, gpu = amounts
        saved = []
        for queue in chain:
            row = self.allocated[queue]
            saved.append(row)
            self.allocated[queue] = [row[0] + cpu, row[1] + memory, row[2] + gpu]
            if committed:
                row = self.committed[queue]
                saved.append(row)
                self.committed[queue] = [row[0] + cpu, row[1] + memory, row[2] + gpu]
        return saved

    def restore(self, chain: tuple[int, ...], saved: list[list[float]], committed: bool) -> None:
        """Put back the figures of before an `add`; undo runs strictly backwards."""
        if committed:
            for index, queue in enumerate(chain):
                self.allocated[queue] = saved[2 * index]
                self.committed[queue] = saved[2 * index + 1]
        else:
            for index, queue in enumerate(chain):
                self.allocated[queue] = saved[index]

    def refusal(
        self,
        chain: tuple[int, ...],
        amounts: Amounts,
        committed: bool,
        *,
        preemptor: str = "",
        start: bool = False,
    ) -> Refusal | None:
        """The first rule that forbids this allocation, None when all allow it (queues:Q-200, Q-201).

        What leaves is charged too: to a start all of it, to a promise the part that will not have gone soon, and to
        neither what was evicted for the PodGroup with the uid `preemptor`.

        Statements: queues:Q-210; workloads:PR-4.
        """
        left: Sequence[Sequence[float]] = self._nothing
        left_committed = left
        if self.leaving is not None:
            left = self.leaving.charged(preemptor, start=start, committed=False)
            left_committed = self.leaving.charged(preemptor, start=start, committed=True)
        for queue in chain:
            if not self._limited[queue]:
                continue
            allocated, limit = self.allocated[queue], self.limit[queue]
            for resource in range(RESOURCES):
                wanted = amounts[resource]
                more = left[queue][resource]
                if wanted > 0 and limit[resource] < allocated[resource] + wanted + more:
                    return Refusal("limit", queue, resource, limit[resource], allocated[resource], wanted, more)
        if committed:
            for queue in chain:
                held, quota = self.committed[queue], self.quota[queue]
                for resource in range(RESOURCES):
                    wanted = amounts[resource]
                    more = left_committed[queue][resource]
                    if wanted > 0 and quota[resource] < held[resource] + wanted + more:
                        return Refusal("quota", queue, resource, quota[resource], held[resource], wanted, more)
        return None

    def order_key(self, queue: int, request: Amounts) -> tuple[bool, bool, int, bool, float, float]:
        """Rules 1 to 6 of the queue order as a sort key, smallest served first (queues:10.1)."""
        cpu, memory, gpu = self.allocated[queue]
        share_cpu, share_memory, share_gpu = self.fair_share[queue]
        quota_cpu, quota_memory, quota_gpu = self.quota[queue]
        with_cpu, with_memory, with_gpu = cpu + request[0], memory + request[1], gpu + request[2]
        over = share_cpu < cpu and share_memory < memory and share_gpu < gpu
        starved = with_cpu <= quota_cpu and with_memory <= quota_memory and with_gpu <= quota_gpu
        may_cpu, may_memory, may_gpu = self._divisors[queue]
        if may_cpu and may_memory and may_gpu:
            violator = False
            dominant_with = max(0.0, with_cpu / may_cpu, with_memory / may_memory, with_gpu / may_gpu)
            dominant = max(0.0, cpu / may_cpu, memory / may_memory, gpu / may_gpu)
        else:
            violator = self._violates(queue, (with_cpu, with_memory, with_gpu))
            dominant_with = self._dominant(queue, (with_cpu, with_memory, with_gpu))
            dominant = self._dominant(queue, (cpu, memory, gpu))
        return (over, not starved, -self.priorities[queue], violator, dominant_with, dominant)

    def victim_key(self, queue: int, taken: Amounts) -> tuple[bool, bool, int, bool, float, float]:
        """The same key for a queue that is to lose something, largest first: only rule 5 counts what it would lose
        (queues:10.1, Q-239)."""
        over, hungry, priority, violator, _, dominant = self.order_key(queue, (0.0, 0.0, 0.0))
        have = self.allocated[queue]
        left = (have[0] - taken[0], have[1] - taken[1], have[2] - taken[2])
        return (over, hungry, priority, violator, self._dominant(queue, left), dominant)

    def _violates(self, queue: int, amounts: Amounts) -> bool:
        """Rule 4: it would have something of which it may have nothing."""
        return any(may == 0 and have > 0 for may, have in zip(self.allocatable[queue], amounts, strict=True))

    def _dominant(self, queue: int, amounts: Amounts) -> float:
        """Dominant share where some divisor may be zero (queues:1.3)."""
        cpu, memory, gpu = self._divisors[queue]
        if cpu and memory and gpu:
            return max(0.0, amounts[0] / cpu, amounts[1] / memory, amounts[2] / gpu)
        units = (1.0, 1.0, 100.0)
        return max(
            0.0,
            *(
                have / may if may else have / unit * _ZERO_SHARE
                for have, may, unit in zip(amounts, self._divisors[queue], units, strict=True)
            ),
        )

    def beats_on_tie(self, queue: int, other: int) -> bool:
        """Rule 7: a queue that may have less everywhere and less somewhere goes first (queues:10.1)."""
        mine, theirs = self.allocatable[queue], self.allocatable[other]
        return mine != theirs and mine[0] <= theirs[0] and mine[1] <= theirs[1] and mine[2] <= theirs[2]


def open_ledger(
    snapshot: Snapshot,
    *,
    usage: list[list[float]] | None = None,
    k: float = 1.0,
    strict_remainders: bool = False,
    task_key: Callable[[Task], tuple[Any, ...]] = by_age,
) -> Ledger:
    """Sum up the groups, divide the cluster, and open the books (queues:7, 8).

    `usage` is historical usage as a fraction of the cluster, [resource][queue row].
    """
    tree = snapshot.tree
    size = len(tree.names)
    allocated = [[0] * size for _ in range(RESOURCES)]
    committed = [[0] * size for _ in range(RESOURCES)]
    wanted = [[0] * size for _ in range(RESOURCES)]
    wanted_mib = [0] * size
    rows = tree.rows
    for name, count in snapshot.census.queues.items():
        if (queue := rows.get(name)) is None:
            continue
        for kind, used in count.allocated.items():
            for resource in range(RESOURCES):
                allocated[resource][queue] += used[resource]
            if kind.preemptibility == names.SEMI_PREEMPTIBLE:
                # Only its core counts (queues:Q-418).
                for task in _cores(snapshot, count, kind, task_key):
                    cost = snapshot.amounts_on(task.shape, snapshot.nodes.rows.get(task.node, -1))
                    for resource in range(RESOURCES):
                        committed[resource][queue] += int(cost[resource])
            elif not snapshot.kind_preemptible(kind):
                for resource in range(RESOURCES):
                    committed[resource][queue] += used[resource]
        if not tree.children[queue]:
            # Demand that names an inner queue can never be served there (queues:5, Do better).
            for resource in range(RESOURCES):
                wanted[resource][queue] += count.wanted[resource]
            wanted_mib[queue] += count.wanted_mib

    gpu_range = snapshot.gpu_memory_range()
    smallest = gpu_range[0] if gpu_range else 0
    request = [
        [float(allocated[resource][q] + wanted[resource][q]) for q in range(size)] for resource in range(RESOURCES)
    ]
    for queue in range(size):
        request[GPU][queue] /= 100.0
        if smallest:
            request[GPU][queue] += wanted_mib[queue] / smallest
    allocated_f = [[float(value) for value in column] for column in allocated]
    committed_f = [[float(value) for value in column] for column in committed]
    for columns in (request, allocated_f, committed_f):
        roll_up(tree, columns)
    total = snapshot.totals()
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

    return Ledger(
        tree,
        total,
        by_queue(allocated_f),
        by_queue(committed_f),
        by_queue(request, 100.0),
        by_queue(shares, 100.0),
        what_leaves(snapshot, task_key),
    )


def _cores(
    snapshot: Snapshot, count: QueueCount, kind: Kind, task_key: Callable[[Task], tuple[Any, ...]]
) -> Iterator[Task]:
    """The tasks of the groups of a kind that may not be taken back."""
    for entry in snapshot.running(count, kind):
        if entry.group is not None and any(entry.allocated):
            yield from core_of(entry.group, entry.tasks.values(), task_key)
