"""The ledger of the queues during one cycle: what each holds, may hold, and deserves.

One row per queue, three figures each in the order CPU (milli), memory (bytes), GPU (hundredths of a device, so that
sums of fractions are exact: queues:1.4, Do better).  `allocated` and `allocated_non_preemptible` follow every placement
along the chain from leaf to root; undo restores the saved figures and never subtracts.  Everything else is fixed when
the cycle starts, including what terminating pods still hold (`terminating.py`).  Figures are plain floats in lists: a
placement touches three numbers of two or three rows, where Python is faster than NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np

from pykai.core.caching import Cache
from pykai.core.model.axes import FloatArray
from pykai.core.model.queuetree import CPU, GPU, MEMORY, RESOURCES, QueueAmounts, QueueTree

#: A queue that holds a resource it may not have at all ranks by this multiple of the amount (queues:1.3).
_ZERO_SHARE_FACTOR = 1000.0


class CapacityRefusal(NamedTuple):
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
    #: what terminating pods still hold of it, where that was charged
    terminating: float = 0.0


class FallingKeys(NamedTuple):
    """Keys of a queue as more is taken from it: they differ in one figure, which falls."""

    before: tuple[float, ...]
    falling: FloatArray
    after: tuple[float, ...]


def _to_hundredths(devices: float) -> float:
    """Devices to hundredths, without the last-bit noise of values such as 0.07."""
    return round(devices * 100.0, 9)


def _rows(size: int) -> list[list[float]]:
    return [[0.0, 0.0, 0.0] for _ in range(size)]


@dataclass(slots=True)
class QueueCharges:
    """Ledger units by queue and resource, rolled up: everything, and the part of non-preemptible work."""

    amounts: list[list[float]]
    non_preemptible: list[list[float]]

    @classmethod
    def zero(cls, size: int) -> QueueCharges:
        """No charges, for this many queues."""
        return cls(_rows(size), _rows(size))

    def add(self, chain: tuple[int, ...], amounts: tuple[float, ...], *, non_preemptible: bool) -> None:
        """Charge a queue and its ancestors."""
        for queue in chain:
            for resource in range(RESOURCES):
                self.amounts[queue][resource] += amounts[resource]
                if non_preemptible:
                    self.non_preemptible[queue][resource] += amounts[resource]


@dataclass(slots=True)
class TerminatingCharges:
    """What terminating pods hold, as charged to a start and to a pipelined placement."""

    for_start: QueueCharges
    for_pipelined: QueueCharges
    #: uid of a PodGroup -> the same for its own victims, which are not charged to it
    exempt: dict[str, tuple[QueueCharges, QueueCharges]] = field(default_factory=dict)
    _charged: Cache[tuple[str, bool, bool], list[list[float]]] = field(default_factory=Cache)

    def charged(self, preemptor: str, *, start: bool, non_preemptible: bool) -> list[list[float]]:
        """[queue][resource] what a PodGroup is charged besides what its queues hold."""
        charges = self.for_start if start else self.for_pipelined
        everything = charges.non_preemptible if non_preemptible else charges.amounts
        exempt_charges = self.exempt.get(preemptor)
        if exempt_charges is None:
            return everything
        key = (preemptor, start, non_preemptible)
        charged = self._charged.get(key)
        if charged is None:
            part = exempt_charges[0] if start else exempt_charges[1]
            spared = part.non_preemptible if non_preemptible else part.amounts
            charged = [
                [max(0.0, a - b) for a, b in zip(*rows, strict=True)] for rows in zip(everything, spared, strict=True)
            ]
            self._charged.store(key, charged)
        return charged


class QueueLedger:
    """Figures of all queues; rows are those of the tree."""

    __slots__ = (
        "_divisors",
        "_limited",
        "_zeros",
        "allocatable",
        "allocated",
        "allocated_non_preemptible",
        "fair_share",
        "limit",
        "priorities",
        "quota",
        "request",
        "terminating",
        "total",
        "tree",
    )

    def __init__(
        self,
        tree: QueueTree,
        total: list[float],
        allocated: list[list[float]],
        allocated_non_preemptible: list[list[float]],
        request: list[list[float]],
        fair_share: list[list[float]],
        terminating: TerminatingCharges | None = None,
    ) -> None:
        """All lists are [queue][resource] in ledger units, rolled up."""
        self.tree = tree
        self.total = total
        self.allocated = allocated
        self.allocated_non_preemptible = allocated_non_preemptible
        self.request = request
        self.fair_share = fair_share
        #: what terminating pods still hold, None = nothing
        self.terminating = terminating
        self.priorities = tree.priorities
        rows = range(len(tree.names))
        self.quota = [(tree.quota[CPU][q], tree.quota[MEMORY][q], _to_hundredths(tree.quota[GPU][q])) for q in rows]
        self.limit = [(tree.limit[CPU][q], tree.limit[MEMORY][q], _to_hundredths(tree.limit[GPU][q])) for q in rows]
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
        self._divisors: list[QueueAmounts] = [
            (
                total[0] if may[0] == inf else may[0],
                total[1] if may[1] == inf else may[1],
                total[2] if may[2] == inf else may[2],
            )
            for may in self.allocatable
        ]
        self._zeros = [(0.0, 0.0, 0.0)] * len(rows)
        #: whether any limit is set at all
        self._limited = [any(bound != inf for bound in limit) for limit in self.limit]

    def add(self, chain: tuple[int, ...], amounts: QueueAmounts, non_preemptible: bool) -> list[list[float]]:
        """Charge a queue and its ancestors; returns what `restore` needs to undo it."""
        cpu, memory, gpu = amounts
        saved = []
        for queue in chain:
            row = self.allocated[queue]
            saved.append(row)
            self.allocated[queue] = [row[0] + cpu, row[1] + memory, row[2] + gpu]
            if non_preemptible:
                row = self.allocated_non_preemptible[queue]
                saved.append(row)
                self.allocated_non_preemptible[queue] = [row[0] + cpu, row[1] + memory, row[2] + gpu]
        return saved

    def restore(self, chain: tuple[int, ...], saved: list[list[float]], non_preemptible: bool) -> None:
        """Restore the figures from before an `add`; undo runs strictly backwards."""
        if non_preemptible:
            for index, queue in enumerate(chain):
                self.allocated[queue] = saved[2 * index]
                self.allocated_non_preemptible[queue] = saved[2 * index + 1]
        else:
            for index, queue in enumerate(chain):
                self.allocated[queue] = saved[index]

    def check_capacity(
        self,
        chain: tuple[int, ...],
        amounts: QueueAmounts,
        non_preemptible: bool,
        *,
        preemptor: str = "",
        start: bool = False,
    ) -> CapacityRefusal | None:
        """The first rule that forbids this allocation, None when all allow it (queues:Q-200, Q-201).

        Terminating pods are charged too: to a start all of them, to a pipelined placement those that terminate slowly,
        and to neither those evicted for the PodGroup with the uid `preemptor`.

        Statements: queues:Q-210; workloads:PR-4.
        """
        terminating: Sequence[Sequence[float]] = self._zeros
        terminating_non_preemptible = terminating
        if self.terminating is not None:
            terminating = self.terminating.charged(preemptor, start=start, non_preemptible=False)
            terminating_non_preemptible = self.terminating.charged(preemptor, start=start, non_preemptible=True)
        for queue in chain:
            if not self._limited[queue]:
                continue
            allocated, limit = self.allocated[queue], self.limit[queue]
            for resource in range(RESOURCES):
                requested = amounts[resource]
                terminating_amount = terminating[queue][resource]
                if requested > 0 and limit[resource] < allocated[resource] + requested + terminating_amount:
                    return CapacityRefusal(
                        "limit", queue, resource, limit[resource], allocated[resource], requested, terminating_amount
                    )
        if non_preemptible:
            for queue in chain:
                allocated_non_preemptible, quota = self.allocated_non_preemptible[queue], self.quota[queue]
                for resource in range(RESOURCES):
                    requested = amounts[resource]
                    terminating_amount = terminating_non_preemptible[queue][resource]
                    if (
                        requested > 0
                        and quota[resource] < allocated_non_preemptible[resource] + requested + terminating_amount
                    ):
                        return CapacityRefusal(
                            "quota",
                            queue,
                            resource,
                            quota[resource],
                            allocated_non_preemptible[resource],
                            requested,
                            terminating_amount,
                        )
        return None

    def queue_order_key(self, queue: int, request: QueueAmounts) -> tuple[bool, bool, int, bool, float, float]:
        """Rules 1 to 6 of the queue order as a sort key, smallest served first (queues:10.1)."""
        cpu, memory, gpu = self.allocated[queue]
        share_cpu, share_memory, share_gpu = self.fair_share[queue]
        quota_cpu, quota_memory, quota_gpu = self.quota[queue]
        with_cpu, with_memory, with_gpu = cpu + request[0], memory + request[1], gpu + request[2]
        over = share_cpu < cpu and share_memory < memory and share_gpu < gpu
        starved = with_cpu <= quota_cpu and with_memory <= quota_memory and with_gpu <= quota_gpu
        allowed_cpu, allowed_memory, allowed_gpu = self._divisors[queue]
        if allowed_cpu and allowed_memory and allowed_gpu:
            violator = False
            dominant_with = max(0.0, with_cpu / allowed_cpu, with_memory / allowed_memory, with_gpu / allowed_gpu)
            dominant = max(0.0, cpu / allowed_cpu, memory / allowed_memory, gpu / allowed_gpu)
        else:
            violator = self._violates(queue, (with_cpu, with_memory, with_gpu))
            dominant_with = self._dominant_share(queue, (with_cpu, with_memory, with_gpu))
            dominant = self._dominant_share(queue, (cpu, memory, gpu))
        return (over, not starved, -self.priorities[queue], violator, dominant_with, dominant)

    def victim_order_key(self, queue: int, taken: QueueAmounts) -> tuple[bool, bool, int, bool, float, float]:
        """The same key for a queue that would lose something, largest first: only rule 5 counts what it would lose
        (queues:10.1, Q-239)."""
        over, not_starved, priority, violator, _, dominant = self.queue_order_key(queue, (0.0, 0.0, 0.0))
        have = self.allocated[queue]
        remaining = (have[0] - taken[0], have[1] - taken[1], have[2] - taken[2])
        return (over, not_starved, priority, violator, self._dominant_share(queue, remaining), dominant)

    def falling_victim_keys(self, queue: int, taken: FloatArray) -> FallingKeys:
        """`victim_order_key` for each of the amounts, [position, resource]."""
        over, not_starved, priority, violator, _, dominant = self.queue_order_key(queue, (0.0, 0.0, 0.0))
        remaining: FloatArray = np.array(self.allocated[queue]) - taken
        divisors = self._divisors[queue]
        if all(divisors):
            falling = np.maximum((remaining / np.array(divisors)).max(axis=1), 0.0)
        else:
            falling = np.array([self._dominant_share(queue, (row[0], row[1], row[2])) for row in remaining.tolist()])
        return FallingKeys((over, not_starved, priority, violator), falling, (dominant,))

    def _violates(self, queue: int, amounts: QueueAmounts) -> bool:
        """Rule 4: it would hold a resource that it may not have at all."""
        may = self.allocatable[queue]
        return (may[0] == 0 and amounts[0] > 0) or (may[1] == 0 and amounts[1] > 0) or (may[2] == 0 and amounts[2] > 0)

    def _dominant_share(self, queue: int, amounts: QueueAmounts) -> float:
        """Dominant share where some divisor may be zero (queues:1.3)."""
        cpu, memory, gpu = self._divisors[queue]
        if cpu and memory and gpu:
            return max(0.0, amounts[0] / cpu, amounts[1] / memory, amounts[2] / gpu)
        return max(
            0.0,
            amounts[0] / cpu if cpu else amounts[0] * _ZERO_SHARE_FACTOR,
            amounts[1] / memory if memory else amounts[1] * _ZERO_SHARE_FACTOR,
            amounts[2] / gpu if gpu else amounts[2] / 100.0 * _ZERO_SHARE_FACTOR,
        )

    def wins_tie(self, queue: int, other: int) -> bool:
        """Rule 7: a queue that may have less everywhere and less somewhere goes first (queues:10.1)."""
        allocatable, other_allocatable = self.allocatable[queue], self.allocatable[other]
        return (
            allocatable != other_allocatable
            and allocatable[0] <= other_allocatable[0]
            and allocatable[1] <= other_allocatable[1]
            and allocatable[2] <= other_allocatable[2]
        )
