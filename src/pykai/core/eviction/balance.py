"""A gang's request against what other gangs would lose for good (cycle:PERF-7).

A task that only moves frees nothing: the whole request must come from what is free anywhere, or from gangs that may
lose something.  Where queues may not lose anything, because none is over its share, a full cluster is seen to be full
without a single trial, however many could be evicted.

Sums over the cluster, never over nodes: this only excludes the impossible.  GPUs are not compared where a share of one
is another amount elsewhere: memory of GPUs of several sizes, MIG, and devices of claims.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import numpy as np

from pykai.core.cycle.context import CycleContext
from pykai.core.cycle.cyclegangs import total_amounts
from pykai.core.cycle.gangs import Batch, Gang
from pykai.core.cycle.state import State
from pykai.core.eviction.freegpus import total_free_gpus
from pykai.core.eviction.units import EvictableTask
from pykai.core.model.axes import CPU, MEMORY, BoolArray, IntArray
from pykai.core.model.queuetree import NO_AMOUNTS, QueueAmounts
from pykai.core.model.shapes import GpuKind, Shape

_SLACK = 1e-6


class ResourceBalance:
    """What is missing of each resource (cpu milli, memory bytes, GPU hundredths) as victims are added."""

    __slots__ = ("_losing_leaves", "_one_size", "missing")

    def __init__(
        self, context: CycleContext, state: State, batches: list[Batch], losing_leaves: frozenset[int] | None
    ) -> None:
        self._losing_leaves = losing_leaves
        self._one_size = context.smallest_gpu_mib == context.largest_gpu_mib
        #: not above zero: nothing
        self.missing = [-inf, -inf, -inf]
        if losing_leaves is None:
            return
        requested = total_amounts(context.snapshot.vectors, batches, context.largest_gpu_mib)
        free = free_amounts(state)
        self.missing = [requested[resource] - free[resource] for resource in range(3)]
        if not all(_has_comparable_gpus(task.shape) for batch in batches for task in batch.tasks):
            self.missing[2] = -inf

    def copy(self) -> ResourceBalance:
        """A copy to extend."""
        copied = ResourceBalance.__new__(ResourceBalance)
        copied._losing_leaves, copied._one_size, copied.missing = (
            self._losing_leaves,
            self._one_size,
            self.missing.copy(),
        )
        return copied

    def add(self, gang: Gang, members: Iterable[EvictableTask]) -> None:
        """Count more victims."""
        if self._losing_leaves is not None:
            self.subtract(self.losses(gang, members))

    def subtract(self, losses: QueueAmounts) -> None:
        """So much less is missing."""
        missing = self.missing
        for resource in range(3):
            missing[resource] -= losses[resource]

    def losses(self, gang: Gang, members: Iterable[EvictableTask]) -> QueueAmounts:
        """What victims of a gang lose for good, as far as it counts."""
        if self._losing_leaves is None:
            return NO_AMOUNTS
        return self.amounts_lost(members, for_good=gang.queue in self._losing_leaves)

    def losing(self, queues: IntArray) -> BoolArray | None:
        """Which of these leaf queues may lose something for good; None if nothing counts."""
        if self._losing_leaves is None:
            return None
        mask: BoolArray = np.isin(queues, list(self._losing_leaves))
        return mask

    def amounts_lost(self, members: Iterable[EvictableTask], *, for_good: bool) -> QueueAmounts:
        """What these lose if their gang may lose something for good, or may not."""
        cpu = memory = gpu = 0.0
        for member in members:
            if for_good:
                cpu += member.amounts[0]
                memory += member.amounts[1]
            if for_good or not self._costs_same_gpus_everywhere(member.task.shape):
                gpu += member.amounts[2]
        return cpu, memory, gpu

    def _costs_same_gpus_everywhere(self, shape: Shape) -> bool:
        """Whether the shape takes the same amount of GPUs on every node."""
        return _has_comparable_gpus(shape) and (self._one_size or shape.gpu.kind is not GpuKind.MEMORY)

    @property
    def is_covered(self) -> bool:
        """Whether nothing is missing."""
        missing = self.missing
        return missing[0] <= _SLACK and missing[1] <= _SLACK and missing[2] <= _SLACK

    @property
    def is_unsatisfiable(self) -> bool:
        """Whether something is missing that moves alone cannot free."""
        return self.missing[0] > _SLACK or self.missing[1] > _SLACK or (self._one_size and self.missing[2] > _SLACK)


def _has_comparable_gpus(shape: Shape) -> bool:
    return shape.gpu.kind is not GpuKind.MIG and not shape.claims and not shape.dra_backed_spec


def free_amounts(state: State) -> tuple[float, float, float]:
    """What is free or being released on nodes that may start pods."""
    ready = state.snapshot.nodes.ready
    cpu, memory = (float(state.free[axis][ready].clip(0).sum()) for axis in (CPU, MEMORY))
    return cpu, memory, total_free_gpus(state)
