"""The units of an order that a search has read so far: by gang, by node, and as columns of what they free.

A search tries parts of a gang with several generators, and each reads the order from its worst unit.  What was read
once is indexed here, so that no scenario walks over all units again (cycle:PERF-6, PERF-7).  Places count from 0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.eviction.balance import ResourceBalance
from pykai.core.eviction.unitcolumns import UnitColumns
from pykai.core.eviction.units import EvictableTask, EvictionUnit, freed_by
from pykai.core.eviction.victimorder import VictimOrder
from pykai.core.model.axes import FloatArray, IntArray
from pykai.core.model.queuetree import NO_AMOUNTS, QueueAmounts, difference_of, sum_of

#: So many units are read one by one before the whole order is computed, and one more for each leaf queue.
FIRST_UNITS = 96


class ReadUnits:
    """Units in order, read on demand."""

    __slots__ = (
        "_by_gang",
        "_by_row",
        "_first",
        "_freed",
        "_losses",
        "_order",
        "_place_by_task",
        "_snapshot",
        "_units",
        "_whole",
    )

    def __init__(self, order: VictimOrder, snapshot: Snapshot, first: int = -1) -> None:
        """`first` units are read one by one before the whole order is computed, -1 = as many as that costs."""
        self._order = order
        self._snapshot = snapshot
        self._first = first if first >= 0 else FIRST_UNITS + order.leaf_count
        self._whole: _WholeOrder | None = None
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
        if self._whole is not None:
            return units[place] if place < len(units) else None
        while len(units) <= place:
            if len(units) == self._first and self._open_whole():
                return self.unit_at(place)
            unit = self._order.unit_at(len(units))
            if unit is None:
                return None
            self._index(unit)
        return units[place]

    def _open_whole(self) -> bool:
        """Go on with the whole order, if it can be computed at once."""
        whole = self._order.numbers()
        if whole is None:
            return False
        self._whole = _WholeOrder(*whole, self._snapshot)
        units = self._whole.columns.units
        self._units += [units[number] for number in self._whole.numbers[len(self._units) :].tolist()]
        return True

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
        if self._whole is not None:
            lost = self._whole.losses(balance, first, end)
            return self._without(lost, balance, first, end, left_out)
        sums = self._losses
        for unit in self._units[len(sums) - 1 : end]:
            sums.append(sum_of(sums[-1], balance.losses(unit.gang, unit.members)))
        return self._without(difference_of(sums[end], sums[first]), balance, first, end, left_out)

    def _without(
        self, lost: QueueAmounts, balance: ResourceBalance, first: int, end: int, left_out: Collection[str]
    ) -> QueueAmounts:
        """What units from `first` to before `end` lose, without some of their tasks."""
        for key in left_out:
            unit_with = self._unit_between(key, first, end)
            if unit_with is not None:
                lost = difference_of(lost, balance.losses(unit_with.gang, (_member(unit_with, key),)))
        return lost

    def _unit_between(self, key: str, first: int, end: int) -> EvictionUnit | None:
        """The unit of a task if it lies between these places."""
        place = self._whole.of_task(key) if self._whole is not None else self._place_by_task.get(key, -1)
        return self._units[place] if first <= place < end else None

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
        if self._whole is not None:
            return self._whole.up_to(self._whole.columns.by_gang.get(gang, ()), last)
        return _up_to(self._by_gang.get(gang, []), last)

    def on_row(self, row: int, last: int) -> list[int]:
        """Places of the units with a task on a node, up to a place, ascending."""
        if self._whole is not None:
            return self._whole.up_to(self._whole.columns.by_row.get(row, ()), last)
        return _up_to(self._by_row.get(row, []), last)

    def freed(self, first: int, end: int, left_out: Collection[str]) -> IntArray:
        """[axis, node] what the units from `first` to before `end` free, without some of their tasks."""
        if self._whole is not None:
            freed = self._whole.freed.between(first, end)
        else:
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


class _WholeOrder:
    """The whole order as numbers of units."""

    __slots__ = ("_losses", "_places", "columns", "freed", "numbers")

    def __init__(self, columns: UnitColumns, numbers: IntArray, snapshot: Snapshot) -> None:
        self.columns = columns
        self.numbers = numbers
        self.freed = _FreedColumns(snapshot, columns.freed(numbers))
        self._losses: FloatArray | None = None
        #: number -> place, -1 = not in this order
        self._places = columns.places(numbers)

    def losses(self, balance: ResourceBalance, first: int, end: int) -> QueueAmounts:
        """What the units from `first` to before `end` lose for good."""
        if self._losses is None:
            self._losses = self.columns.losses(self.numbers, balance)
        (cpu, memory, gpu), before = self._losses[end].tolist(), self._losses[first].tolist()
        return difference_of((cpu, memory, gpu), before)

    def of_task(self, key: str) -> int:
        """The place of the unit of a task, -1 if it is not in this order."""
        number = self.columns.by_task.get(key, -1)
        return int(self._places[number]) if number >= 0 else -1

    def up_to(self, numbers: Sequence[int], last: int) -> list[int]:
        """The places of units up to a place, ascending."""
        places = self._places
        return sorted(place for number in numbers if 0 <= (place := int(places[number])) <= last)


class _FreedColumns:
    """What units free, one entry for each task and axis."""

    __slots__ = ("_amounts", "_cells", "_ends", "_snapshot")

    def __init__(self, snapshot: Snapshot, listed: tuple[IntArray, IntArray, IntArray] | None = None) -> None:
        """`listed` are cells, amounts and ends of units that are listed already."""
        self._snapshot = snapshot
        #: entry -> its cell in [axis, node], flattened
        self._cells: IntArray = np.zeros(0, dtype=np.int64)
        self._amounts: IntArray = np.zeros(0, dtype=np.int64)
        #: unit -> the end of its entries
        self._ends: list[int] = [0]
        if listed is not None:
            self._cells, self._amounts = listed[0], listed[1]
            self._ends = listed[2].tolist()

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
