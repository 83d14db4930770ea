"""What cannot suffice, found without trying (cycle:PERF-7).

For each kind of task to place, every node can hold at most so many: the least, over all resources, of what would be
free divided by what is asked.  If the sum over the nodes is less than the number of tasks of that kind, no trial can
succeed.  Only facts that no eviction changes are counted against a node besides its resources, and shared GPUs are
counted generously, so a set of victims that suffices is never thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from pykai.core.axes import IntArray
from pykai.core.gangs import Batch, Gang
from pykai.core.hooks import Ask, NodeSet
from pykai.core.place.fit import big_enough, shared_axes
from pykai.core.session import Session
from pykai.core.vectors import Vector
from pykai.core.victims.units import Member

_EVERY_NODE = NodeSet()
#: As good as any number of tasks.
_MANY = 2**31


class _Kind:
    """Tasks of one kind."""

    __slots__ = ("allowed", "asked", "base", "count", "shared", "total")

    def __init__(self, session: Session, ask: Ask, count: int) -> None:
        state = session.state
        ranking = session.rankings.of(state, ask, _EVERY_NODE)
        self.count = count
        self.asked = [(axis, amount) for axis, amount in ask.vector.asked if amount > 0]
        self.shared = ask.shape.shared
        self.allowed: list[bool] = ranking.allowed.tolist()
        if self.shared:
            axes = shared_axes(state.snapshot)
            holds = ranking.allowed & (axes >= 0) & big_enough(state.snapshot.nodes, ask.shape)
            self.allowed = holds.tolist()
            fits = holds & (ranking.scores > -np.inf)
            counts = np.where(fits, _MANY, 0)
        else:
            counts = _counts(state.free, ask.vector)
            counts[~ranking.allowed] = 0
        #: [node] tasks it could hold with what is free now
        self.base: list[int] = counts.tolist()
        self.total = int(counts.sum())

    def at(self, row: int, free: list[int]) -> int:
        """Tasks a node could hold with so much free."""
        if not self.allowed[row]:
            return 0
        least = _MANY
        for axis, amount in self.asked:
            least = min(least, free[axis] // amount)
        return max(least, 0)


def _counts(free: IntArray, vector: Vector) -> IntArray:
    counts = np.full(free.shape[1], _MANY, dtype=np.int64)
    for axis, amount in vector.asked:
        if amount > 0:
            np.minimum(counts, free[axis] // amount, out=counts)
    return np.maximum(counts, 0, out=counts)


class Bounds:
    """What would have to be free for some tasks of a gang; holds for one state."""

    def __init__(self, session: Session, gang: Gang, batches: list[Batch]) -> None:
        self._session = session
        kinds: dict[int, tuple[Ask, int]] = {}
        for batch in batches:
            for task in batch.tasks:
                known = kinds.get(task.shape.id)
                if known is None:
                    ask = Ask(task, gang, batch.leaf, session.snapshot.vectors[task.shape])
                    kinds[task.shape.id] = (ask, 1)
                else:
                    kinds[task.shape.id] = (known[0], known[1] + 1)
        self._kinds = [_Kind(session, ask, count) for ask, count in kinds.values()]
        #: node row -> what is free there, as lists
        self._free: dict[int, list[int]] = {}

    def hopeless(self, evictable: IntArray) -> bool:
        """Not even everyone's eviction would suffice."""
        state = self._session.state
        free = state.free + evictable
        for kind in self._kinds:
            counts = np.full(free.shape[1], _MANY, dtype=np.int64)
            for axis, amount in kind.asked:
                np.minimum(counts, free[axis] // amount, out=counts)
            total = int(np.maximum(counts, 0)[np.array(kind.allowed, dtype=np.bool_)].sum())
            if total < kind.count:
                return True
        return False

    def may_suffice(self, freed: Mapping[int, Mapping[int, int]]) -> bool:
        """Whether the tasks could fit if so much was freed: node row -> axis -> amount."""
        for kind in self._kinds:
            total = kind.total
            if total >= kind.count:
                continue
            for row, amounts in freed.items():
                free = self._free.get(row)
                if free is None:
                    free = self._free[row] = self._session.state.free[:, row].tolist()
                total += kind.at(row, [have + amounts.get(axis, 0) for axis, have in enumerate(free)]) - kind.base[row]
            if total < kind.count:
                return False
        return True


def add_freed(session: Session, freed: dict[int, dict[int, int]], members: Iterable[Member]) -> None:
    """Count what evicting some tasks frees."""
    snapshot = session.snapshot
    for member in members:
        here = freed.setdefault(member.row, {})
        shape = member.task.shape
        for axis, amount in snapshot.vectors[shape].asked:
            here[axis] = here.get(axis, 0) + amount
        if shape.shared:
            axis = snapshot.axes.index[snapshot.nodes.facts[member.row].shared_resource]
            here[axis] = here.get(axis, 0) + shape.gpu.devices
