"""The units of an order that a search has read so far: by gang, by node, and as columns of what they free.

A search tries parts of a gang with several generators, and each reads the order from its worst unit.  What was read
once is indexed here, so that no scenario walks over all units again (cycle:PERF-6, PERF-7).  Places count from 0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable

import numpy as np

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.eviction.balance import ResourceBalance
from pykai.core.eviction.units import EvictableTask, EvictionUnit
from pykai.core.eviction.victimorder import VictimOrder
from pykai.core.model.axes import IntArray
from pykai.core.model.queuetree import NO_AMOUNTS, QueueAmounts, difference_of, sum_of


class ReadUnits:
    """Units in order, read on demand."""

    __slots__ = ("_by_gang", "_by_row", "_freed", "_losses", "_order", "_place_by_task", "_snapshot", "_units")

    def __init__(self, order: VictimOrder, snapshot: Snapshot) -> None:
        self._order = order
        self._snapshot = snapshot
        self._units: list[EvictionUnit] = []
        self._place_by_task: dict[str, int] = {}
        self._by_gang: dict[str, list[int]] = {}
        self._by_row: dict[int, list[int]] = {}
        self._freed = _FreedColumns(snapshot)
        #: what the units up to each place lose for good, their own loss included
        self._losses: list[QueueAmounts] = [NO_AMOUNTS]

    def unit_at(self, place: int) -> EvictionUnit | None:
        """The unit at a place, None after the last."""
        units = self._units
        while len(units) <= place:
            unit = self._order.unit_at(len(units))
            if unit is None:
                return None
            self._index(unit)
        return units[place]

    def read(self, count: int) -> int:
        """Read so many units; returns how many there are of them."""
        self.unit_at(count - 1)
        return min(count, len(self._units))

    def between(self, first: int, end: int) -> list[EvictionUnit]:
        """The units from `first` to before `end`."""
        return self._units[first:end]

    def at(self, places: Iterable[int]) -> list[EvictionUnit]:
        """The units at these places, which were read."""
        units = self._units
        return [units[place] for place in places]

    def losses(self, balance: ResourceBalance, first: int, end: int, left_out: Collection[str]) -> QueueAmounts:
        """What the units from `first` to before `end` lose for good, without some of their tasks.

        All balances of one search count alike.
        """
        sums = self._losses
        for unit in self._units[len(sums) - 1 : end]:
            sums.append(sum_of(sums[-1], balance.losses(unit.gang, unit.members)))
        lost = difference_of(sums[end], sums[first])
        for key in left_out:
            unit_with = self._unit_between(key, first, end)
            if unit_with is not None:
                lost = difference_of(lost, balance.losses(unit_with.gang, (_member(unit_with, key),)))
        return lost

    def _unit_between(self, key: str, first: int, end: int) -> EvictionUnit | None:
        """The unit of a task if it lies between these places."""
        place = self._place_by_task.get(key, -1)
        return self._units[place] if first <= place < end else None

    def rows_between(self, first: int, end: int) -> set[int]:
        """The nodes of the units from `first` to before `end`."""
        return {row for unit in self._units[first:end] for row in unit.rows}

    def _index(self, unit: EvictionUnit) -> None:
        place = len(self._units)
        self._units.append(unit)
        self._by_gang.setdefault(unit.gang.key, []).append(place)
        for row in unit.rows:
            self._by_row.setdefault(row, []).append(place)
        for member in unit.members:
            self._place_by_task[member.task.key] = place

    def of_gang(self, gang: str, last: int) -> list[int]:
        """Places of a gang's units up to a place, ascending."""
        return _up_to(self._by_gang.get(gang, []), last)

    def on_row(self, row: int, last: int) -> list[int]:
        """Places of the units with a task on a node, up to a place, ascending."""
        return _up_to(self._by_row.get(row, []), last)

    def freed(self, first: int, end: int, left_out: Collection[str]) -> IntArray:
        """[axis, node] what the units from `first` to before `end` free, without some of their tasks."""
        self._freed.extend(self._units[self._freed.units : end])
        freed = self._freed.between(first, end)
        for key in left_out:
            unit = self._unit_between(key, first, end)
            if unit is not None:
                member = _member(unit, key)
                for axis, amount in freed_by(self._snapshot, member):
                    freed[axis, member.row] -= amount
        return freed


def _member(unit: EvictionUnit, key: str) -> EvictableTask:
    return next(each for each in unit.members if each.task.key == key)


def freed_by(snapshot: Snapshot, member: EvictableTask) -> list[tuple[int, int]]:
    """(axis, amount) that a task would free of its node at most.

    A device without its tenant is assumed to be a whole free device.
    """
    shape = member.task.shape
    freed = [*snapshot.vectors[shape].taken, *member.claimed]
    if shape.shared:
        axis = snapshot.axes.index.get(snapshot.nodes.facts[member.row].shared_resource)
        if axis is not None:
            freed.append((axis, shape.gpu.devices))
    return freed


class _FreedColumns:
    """What units free, one entry for each task and axis."""

    __slots__ = ("_amounts", "_cells", "_ends", "_snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        #: entry -> its cell in [axis, node], flattened
        self._cells: IntArray = np.zeros(0, dtype=np.int64)
        self._amounts: IntArray = np.zeros(0, dtype=np.int64)
        #: unit -> the end of its entries
        self._ends: list[int] = [0]

    @property
    def units(self) -> int:
        """How many units are listed."""
        return len(self._ends) - 1

    def extend(self, units: list[EvictionUnit]) -> None:
        """List more units."""
        if not units:
            return
        snapshot, before = self._snapshot, self._ends[-1]
        nodes = len(snapshot.nodes.names)
        cells: list[int] = []
        amounts: list[int] = []
        for unit in units:
            for member in unit.members:
                for axis, amount in freed_by(snapshot, member):
                    cells.append(axis * nodes + member.row)
                    amounts.append(amount)
            self._ends.append(before + len(cells))
        self._cells = np.concatenate((self._cells, np.array(cells, dtype=np.int64)))
        self._amounts = np.concatenate((self._amounts, np.array(amounts, dtype=np.int64)))

    def between(self, first: int, end: int) -> IntArray:
        """[axis, node] what the units from `first` to before `end` free."""
        entries = slice(self._ends[first], self._ends[end])
        freed: IntArray = np.zeros((len(self._snapshot.axes), len(self._snapshot.nodes.names)), dtype=np.int64)
        np.add.at(freed.reshape(-1), self._cells[entries], self._amounts[entries])
        return freed


def _up_to(places: list[int], last: int) -> list[int]:
    return places if not places or places[-1] <= last else places[: bisect_right(places, last)]
