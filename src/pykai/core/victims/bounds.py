"""What cannot suffice, found without trying (cycle:PERF-7).

For each kind of task to place, every node can hold at most so many: the least, over all resources, of what would be
free divided by what is asked.  If the sum over the nodes is less than the number of tasks of that kind, no trial can
succeed.  Only facts that no eviction changes are counted against a node besides its resources, and shared GPUs are
counted generously, so a set of victims that suffices is never thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pykai.core.axes import IntArray
from pykai.core.gangs import Batch, Gang
from pykai.core.hooks import EVERY_NODE, Ask
from pykai.core.place.fit import big_enough, shared_axes
from pykai.core.session import Session
from pykai.core.shapes import Shape
from pykai.core.victims.units import Member

#: As good as any number of tasks.
_MANY = 2**31


class _Kind:
    """Tasks of one kind."""

    __slots__ = ("allowed", "asked", "base", "count", "total")

    def __init__(self, session: Session, ask: Ask, count: int) -> None:
        state = session.state
        ranking = session.rankings.of(state, ask, EVERY_NODE)
        self.count = count
        gpus = {*session.snapshot.axes.gpu_axes, *session.snapshot.axes.mig_axes}
        asked = [(axis, amount) for axis, amount in ask.vector.asked if amount > 0]
        #: GPUs first, because they are what is short
        self.asked = sorted(asked, key=lambda item: (item[0] not in gpus, item[0]))
        allowed = ranking.allowed
        if ask.shape.shared:
            allowed = allowed & (shared_axes(state.snapshot) >= 0) & big_enough(state.snapshot.nodes, ask.shape)
            counts: IntArray = np.where(allowed & (ranking.scores > -np.inf), _MANY, 0)
        else:
            counts = self._over(state.free)
            counts[~allowed] = 0
        self.allowed: list[bool] = allowed.tolist()
        #: [node] tasks it could hold with what is free now
        self.base: list[int] = counts.tolist()
        self.total = int(counts.sum())

    def _over(self, free: IntArray) -> IntArray:
        counts = np.full(free.shape[1], _MANY, dtype=np.int64)
        for axis, amount in self.asked:
            np.minimum(counts, free[axis] // amount, out=counts)
        return np.maximum(counts, 0, out=counts)

    def within(self, free: IntArray) -> int:
        """Tasks that all nodes could hold with so much free."""
        return int(self._over(free)[np.array(self.allowed, dtype=np.bool_)].sum())

    def at(self, row: int, free: list[int]) -> int:
        """Tasks a node could hold with so much free."""
        if not self.allowed[row]:
            return 0
        least = _MANY
        for axis, amount in self.asked:
            fitting = free[axis] // amount
            if fitting < least:
                if fitting <= 0:
                    return 0
                least = fitting
        return least


class Bounds:
    """What would have to be free for some tasks of a gang; holds for one state."""

    def __init__(self, session: Session, gang: Gang, batches: list[Batch]) -> None:
        self._session = session
        kinds: dict[int, tuple[Ask, int]] = {}
        for batch in batches:
            for task in batch.tasks:
                known = kinds.get(task.shape.id)
                if known is None:
                    known = (Ask(task, gang, batch.leaf, session.snapshot.vectors[task.shape]), 0)
                kinds[task.shape.id] = (known[0], known[1] + 1)
        self.kinds = [_Kind(session, ask, count) for ask, count in kinds.values()]
        #: node row -> what is free there, as a list
        self._free: dict[int, list[int]] = {}

    def hopeless(self, evictable: IntArray) -> bool:
        """Not even everyone's eviction would suffice."""
        free = self._session.state.free + evictable
        return any(kind.within(free) < kind.count for kind in self.kinds)

    def free_at(self, row: int) -> list[int]:
        """What is free on a node, by axis."""
        found = self._free.get(row)
        if found is None:
            found = self._free[row] = self._session.state.free[:, row].tolist()
        return found


class Freed:
    """What a growing set of victims frees, and how many tasks of each kind that makes room for at most."""

    __slots__ = ("_bounds", "_counts", "_free", "_missing", "_session")

    def __init__(self, session: Session, bounds: Bounds) -> None:
        self._session = session
        self._bounds = bounds
        self._free: dict[int, list[int]] = {}
        #: kind -> tasks for which there is no room yet
        self._missing = [kind.count - kind.total for kind in bounds.kinds]
        self._counts: dict[int, list[int]] = {}

    def copy(self) -> Freed:
        """The same, to go on from here."""
        made = Freed(self._session, self._bounds)
        made._free = {row: free.copy() for row, free in self._free.items()}
        made._missing = self._missing.copy()
        made._counts = {row: counts.copy() for row, counts in self._counts.items()}
        return made

    @property
    def suffices(self) -> bool:
        """Whether the tasks could fit."""
        for missing in self._missing:  # noqa: SIM110  (asked for every victim; a generator takes thrice the time)
            if missing > 0:
                return False
        return True

    def add(self, members: Iterable[Member]) -> None:
        """Count more victims."""
        kinds = self._bounds.kinds
        for member in members:
            row = member.row
            free = self._free.get(row)
            if free is None:
                free = self._free[row] = self._bounds.free_at(row).copy()
                self._counts[row] = [kind.base[row] for kind in kinds]
            shape = member.task.shape
            for axis, amount in self._session.snapshot.vectors[shape].asked:
                free[axis] += amount
            if shape.shared:
                self._add_devices(free, shape, row)
            counts = self._counts[row]
            for index, kind in enumerate(kinds):
                count = kind.at(row, free)
                if count != counts[index]:
                    self._missing[index] -= count - counts[index]
                    counts[index] = count

    def _add_devices(self, free: list[int], shape: Shape, row: int) -> None:
        """A tenant gone may mean a whole device free; assume so."""
        snapshot = self._session.snapshot
        axis = snapshot.axes.index.get(snapshot.nodes.facts[row].shared_resource)
        if axis is not None:
            free[axis] += shape.gpu.devices
