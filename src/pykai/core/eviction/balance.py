"""What a gang asks for against what others would lose for good (cycle:PERF-7).

Whoever only moves makes no room: all of what is asked for must come from what is free anywhere, or from those who may
lose something.  Where queues may not lose anything, because none is over its share, a full cluster is seen to be full
without a single trial, however many could be evicted.

Sums over the cluster, never over nodes: this only throws away what cannot be.  GPUs are not compared where a share of
one is another amount elsewhere: memory of GPUs of several sizes, MIG, and devices of claims.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from pykai.core.cycle.gangs import Batch, Gang
from pykai.core.cycle.session import Session
from pykai.core.eviction.trial import total_free_gpus
from pykai.core.eviction.victims import Member
from pykai.core.model.axes import CPU, MEMORY
from pykai.core.model.shapes import GpuKind, Shape

_SLACK = 1e-6


class Balance:
    """What is missing of each resource (cpu milli, memory bytes, GPU hundredths) as victims are added."""

    __slots__ = ("_losing", "_missing", "_one_size")

    def __init__(self, session: Session, batches: list[Batch], losing: frozenset[int] | None) -> None:
        self._losing = losing
        self._one_size = session.smallest_gpu_mib == session.largest_gpu_mib
        self._missing = [-inf, -inf, -inf]
        if losing is None:
            return
        asked = session.count(batches, session.largest_gpu_mib)
        free = _free(session)
        self._missing = [asked[resource] - free[resource] for resource in range(3)]
        if not all(_plain(task.shape) for batch in batches for task in batch.tasks):
            self._missing[2] = -inf

    def copy(self) -> Balance:
        """The same, to go on from here."""
        made = Balance.__new__(Balance)
        made._losing, made._one_size, made._missing = self._losing, self._one_size, self._missing.copy()
        return made

    def add(self, gang: Gang, members: Iterable[Member]) -> None:
        """Count more victims."""
        losing, missing = self._losing, self._missing
        if losing is None:
            return
        loses = gang.queue in losing
        for member in members:
            if loses:
                missing[0] -= member.amounts[0]
                missing[1] -= member.amounts[1]
            if loses or not self._same_everywhere(member.task.shape):
                missing[2] -= member.amounts[2]

    def _same_everywhere(self, shape: Shape) -> bool:
        """Whether the shape takes as much of the GPUs wherever it is."""
        return _plain(shape) and (self._one_size or shape.gpu.kind is not GpuKind.MEMORY)

    @property
    def covers(self) -> bool:
        """Whether nothing is missing."""
        missing = self._missing
        return missing[0] <= _SLACK and missing[1] <= _SLACK and missing[2] <= _SLACK

    @property
    def hopeless(self) -> bool:
        """Whether something is missing that nobody who only moves could give."""
        return self._missing[0] > _SLACK or self._missing[1] > _SLACK or (self._one_size and self._missing[2] > _SLACK)


def _plain(shape: Shape) -> bool:
    return shape.gpu.kind is not GpuKind.MIG and not shape.claims and not shape.extended


def _free(session: Session) -> tuple[float, float, float]:
    """What is free or being released on nodes that may start pods."""
    state, snapshot = session.state, session.snapshot
    ready = snapshot.nodes.ready
    cpu, memory = (float(state.free[axis][ready].clip(0).sum()) for axis in (CPU, MEMORY))
    return cpu, memory, total_free_gpus(session)
