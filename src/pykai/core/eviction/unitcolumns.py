"""Units of victims as columns, kept from search to search while the table of victims is.

A search that reads thousands of units would read nearly the same thousands again for the next gang.  Here every unit is
a number, and what it frees and costs is stored once; a search takes sums over an order of numbers.  A unit that leaves
the table is only marked, and its number is never given again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.eviction.balance import ResourceBalance
from pykai.core.eviction.units import EvictionUnit, UnitLine, freed_by
from pykai.core.model.axes import BoolArray, FloatArray, IntArray

Number = TypeVar("Number", np.int64, np.float64, np.bool_)


class _Column(Generic[Number]):
    """A column that grows."""

    __slots__ = ("_buffer", "_size")

    def __init__(self, kind: type[Number], *shape: int) -> None:
        self._buffer: NDArray[Number] = np.zeros((64, *shape), dtype=kind)
        self._size = 0

    def extend(self, values: list[Any]) -> None:
        """Add values at the end."""
        end = self._size + len(values)
        if end > len(self._buffer):
            grown = np.zeros((max(end, 2 * len(self._buffer)), *self._buffer.shape[1:]), dtype=self._buffer.dtype)
            grown[: self._size] = self._buffer[: self._size]
            self._buffer = grown
        if values:
            self._buffer[self._size : end] = values
        self._size = end

    @property
    def values(self) -> NDArray[Number]:
        """All values."""
        return self._buffer[: self._size]


class UnitColumns:
    """The units of the leaf queues that a search has read as columns."""

    __slots__ = (
        "_alive",
        "_amounts",
        "_by_leaf",
        "_cells",
        "_changed",
        "_ends",
        "_gang_amounts",
        "_gang_numbers",
        "_gangs",
        "_lost",
        "_moved",
        "_queues",
        "_snapshot",
        "_thinned",
        "by_gang",
        "by_row",
        "by_task",
        "units",
    )

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        #: by number
        self.units: list[EvictionUnit] = []
        #: numbers, ascending, of units that have left the table too
        self.by_gang: dict[str, list[int]] = {}
        self.by_row: dict[int, list[int]] = {}
        #: task -> the number of its latest unit
        self.by_task: dict[str, int] = {}
        #: leaf queue -> numbers, worst first
        self._by_leaf: dict[int, IntArray] = {}
        #: leaf queues with other units than these, or fewer
        self._changed: set[int] = set()
        self._thinned: set[int] = set()
        self._alive = _Column(np.bool_)
        self._gangs: dict[str, int] = {}
        self._gang_numbers = _Column(np.int64)
        self._gang_amounts = _Column(np.float64, 3)
        self._queues = _Column(np.int64)
        #: what each loses if its gang may lose something for good, and if it may not; measured on first use
        self._lost = _Column(np.float64, 3)
        self._moved = _Column(np.float64, 3)
        #: cells of [axis, node], flattened, with what the units free of them, and where the entries of each unit end
        self._cells = _Column(np.int64)
        self._amounts = _Column(np.int64)
        self._ends = _Column(np.int64)

    def insert(self, leaf: int) -> None:
        """A unit has come to the line of a leaf queue."""
        self._changed.add(leaf)

    def remove(self, leaf: int, unit: EvictionUnit) -> None:
        """A unit has left it."""
        if unit.number >= 0:
            self._alive.values[unit.number] = False
            self._thinned.add(leaf)

    def of_leaf(self, leaf: int, lines: Callable[[int], UnitLine]) -> IntArray:
        """The units of a leaf queue, worst first; `lines` returns its line."""
        numbers = self._by_leaf.get(leaf)
        if numbers is None or leaf in self._changed:
            units = [unit for _, _, unit in reversed(lines(leaf))]
            self._add([unit for unit in units if unit.number < 0])
            numbers = self._by_leaf[leaf] = np.array([unit.number for unit in units], dtype=np.int64)
        elif leaf in self._thinned:
            numbers = self._by_leaf[leaf] = numbers[self._alive.values[numbers]]
        self._changed.discard(leaf)
        self._thinned.discard(leaf)
        return numbers

    def _add(self, units: list[EvictionUnit]) -> None:
        nodes = len(self._snapshot.nodes)
        cells: list[int] = []
        amounts: list[int] = []
        ends: list[int] = []
        before = len(self._cells.values)
        for unit in units:
            number = unit.number = len(self.units)
            self.units.append(unit)
            self.by_gang.setdefault(unit.gang.key, []).append(number)
            for row in unit.rows:
                self.by_row.setdefault(row, []).append(number)
            for member in unit.members:
                self.by_task[member.task.key] = number
                for axis, amount in freed_by(self._snapshot, member):
                    cells.append(axis * nodes + member.row)
                    amounts.append(amount)
            ends.append(before + len(cells))
        self._cells.extend(cells)
        self._amounts.extend(amounts)
        self._ends.extend(ends)
        self._alive.extend([True] * len(units))
        gangs = self._gangs
        self._gang_numbers.extend([gangs.setdefault(unit.gang.key, len(gangs)) for unit in units])
        self._gang_amounts.extend([unit.gang_amounts for unit in units])
        self._queues.extend([unit.gang.queue for unit in units])

    def first_of_gangs(self, numbers: IntArray) -> IntArray:
        """Positions of the first unit of each gang, ascending."""
        _, first = np.unique(self._gang_numbers.values[numbers], return_index=True)
        first.sort()
        return first

    def of_first_gangs(self, numbers: IntArray, most: int) -> IntArray:
        """Those of so many gangs that come first."""
        gangs = self._gang_numbers.values[numbers]
        chosen = gangs[self.first_of_gangs(numbers)[:most]]
        return numbers[np.isin(gangs, chosen)]

    def gang_losses(self, numbers: IntArray) -> FloatArray:
        """[position, resource] what each costs its queue: the whole gang with its first unit, then nothing."""
        losses: FloatArray = np.zeros((len(numbers), 3))
        first = self.first_of_gangs(numbers)
        losses[first] = self._gang_amounts.values[numbers[first]]
        return losses

    def freed(self, numbers: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """(cells, amounts, ends) of the entries of these units, in their order; ends begin with 0."""
        all_ends = self._ends.values
        ends = all_ends[numbers]
        begins = np.where(numbers > 0, all_ends[numbers - 1], 0)
        sizes = ends - begins
        ends_here: IntArray = np.concatenate(([0], sizes.cumsum()))
        entries = np.repeat(begins - ends_here[:-1], sizes) + np.arange(ends_here[-1])
        return self._cells.values[entries], self._amounts.values[entries], ends_here

    def losses(self, numbers: IntArray, balance: ResourceBalance) -> FloatArray:
        """[position, resource] what the units before each position lose for good, and at the end all of them."""
        losing = balance.losing(self._queues.values[numbers])
        sums: FloatArray = np.zeros((len(numbers) + 1, 3))
        if losing is None:
            return sums
        unmeasured = self.units[len(self._lost.values) :]
        # The balances of one cycle measure alike.
        self._lost.extend([balance.amounts_lost(unit.members, for_good=True) for unit in unmeasured])
        self._moved.extend([balance.amounts_lost(unit.members, for_good=False) for unit in unmeasured])
        lost, moved = self._lost.values[numbers], self._moved.values[numbers]
        np.cumsum(np.where(losing[:, None], lost, moved), axis=0, out=sums[1:])
        return sums

    def places(self, numbers: IntArray) -> IntArray:
        """Number -> its position among these, -1 for all others."""
        places: IntArray = np.full(len(self.units), -1, dtype=np.int64)
        places[numbers] = np.arange(len(numbers))
        return places

    def accepted(self, numbers: IntArray, accepts: Callable[[EvictionUnit], bool]) -> IntArray:
        """Those of acceptable units."""
        units = self.units
        mask: BoolArray = np.fromiter((accepts(units[number]) for number in numbers.tolist()), np.bool_, len(numbers))
        return numbers if mask.all() else numbers[mask]
