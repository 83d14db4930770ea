"""The whole order of victims at once, as numbers of units (`unitcolumns.py`).

`VictimOrder` finds the next victim by ranking queues again after each.  The order below one queue does not depend on
other queues, and the key of a queue only falls as more is taken from it.  So the orders of siblings are merged by
sorting: the same order, where thousands of units are read.  Orders below queues stay from search to search; a
decision changes those above the queues that it touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, groupby
from operator import is_
from typing import NamedTuple

import numpy as np

from pykai.core.caching import Cache
from pykai.core.cycle.queueranks import Beats
from pykai.core.eviction.unitcolumns import UnitColumns
from pykai.core.eviction.units import EvictionUnit, UnitLine
from pykai.core.model.axes import BoolArray, FloatArray, IntArray
from pykai.core.model.queuetree import QueueTree
from pykai.core.queueing.queueledger import FallingKeys

#: So many siblings are compared with each other before a merge.
_MOST_COMPARED = 32


class _Order(NamedTuple):
    """The order below a queue."""

    numbers: IntArray
    #: [position, resource] what each unit costs the queue
    losses: FloatArray


class _Ranked(NamedTuple):
    """A queue among its siblings."""

    row: int
    order: _Order
    keys: FallingKeys


class KeptOrder(NamedTuple):
    """The order below a queue, and what it was made of: it holds while each is the same."""

    parts: tuple[object, ...]
    order: _Order


class KeptOrders(NamedTuple):
    """What one search leaves to the next."""

    #: queue -> the order below it
    orders: Cache[int, KeptOrder]
    #: siblings with equal keys -> the worst first
    ties: Cache[frozenset[int], list[int]]

    @classmethod
    def none(cls) -> KeptOrders:
        """Nothing so far."""
        return cls(Cache(), Cache())


class NotFallingError(Exception):
    """The key of a queue rises as more is taken from it."""


class OrderMerger:
    """Merges the orders of queues below given ones."""

    __slots__ = ("_accepts", "_beats", "_columns", "_figures", "_kept", "_keys", "_lines", "_tree")

    def __init__(
        self,
        tree: QueueTree,
        columns: UnitColumns,
        lines: Callable[[int], UnitLine],
        keys: Callable[[int, FloatArray], FallingKeys],
        beats: Beats | None,
        accepts: Callable[[EvictionUnit], bool] | None,
        figures: Sequence[object],
        kept: KeptOrders,
    ) -> None:
        """`keys` are those of a queue after each of the losses, by its `figures`, which are replaced, never changed."""
        self._tree = tree
        self._columns = columns
        self._lines = lines
        self._keys = keys
        self._beats = beats
        self._accepts = accepts
        self._figures = figures
        self._kept = kept

    def numbers(self, queues: Iterable[int]) -> IntArray:
        """The units below these queues, worst first; none of the queues is above another."""
        parents, chains = self._tree.parents, self._tree.chains
        children: dict[int, set[int]] = {}
        for queue in queues:
            for row in chains[queue]:
                children.setdefault(parents[row], set()).add(row)

        def order(row: int) -> _Order:
            below: Iterable[int] = children.get(row, ()) or self._tree.children[row]
            if not below and row >= 0:
                return self._leaf_order(row)
            found = ((child, order(child)) for child in sorted(below))
            return self._merged(row, [(child, each) for child, each in found if len(each.numbers)])

        return order(-1).numbers

    def _leaf_order(self, leaf: int) -> _Order:
        numbers = self._columns.of_leaf(leaf, self._lines)
        if self._accepts is not None:
            numbers = self._columns.accepted(numbers, self._accepts)
        return self._kept_or_made(leaf, (numbers,), lambda: _Order(numbers, self._columns.gang_losses(numbers)))

    def _kept_or_made(self, row: int, parts: tuple[object, ...], make: Callable[[], _Order]) -> _Order:
        """The order below a queue, made again if a part of it is another."""
        kept = self._kept.orders.get(row)
        if kept is not None and len(kept.parts) == len(parts) and all(map(is_, kept.parts, parts)):
            return kept.order
        return self._kept.orders.store(row, KeptOrder(parts, make())).order

    def _merged(self, row: int, orders: list[tuple[int, _Order]]) -> _Order:
        if not orders:
            return _Order(np.zeros(0, dtype=np.int64), np.zeros((0, 3)))
        if len(orders) == 1:
            return orders[0][1]
        parts = (*(order for _, order in orders), *(self._figures[child] for child, _ in orders))
        return self._kept_or_made(row, parts, lambda: self._made(orders))

    def _made(self, orders: list[tuple[int, _Order]]) -> _Order:
        """The orders of several siblings as one."""
        ranked = [_Ranked(row, order, self._keys(row, order.losses.cumsum(axis=0))) for row, order in orders]
        if any((np.diff(each.keys.falling) > 0).any() for each in ranked):
            raise NotFallingError
        # What does not change with what is taken goes first.
        ranked.sort(key=lambda each: each.keys.before, reverse=True)
        merged = [self._sorted(list(alike)) for _, alike in groupby(ranked, key=lambda each: each.keys.before)]
        return _Order(np.concatenate([each[0] for each in merged]), np.concatenate([each[1] for each in merged]))

    def _sorted(self, queues: list[_Ranked]) -> _Order:
        """The orders of queues whose keys differ only from where they fall on."""
        if len(queues) == 1:
            return queues[0].order
        after = {key: rank for rank, key in enumerate(sorted({each.keys.after for each in queues}))}
        sizes = [len(each.order.numbers) for each in queues]
        falling = np.concatenate([each.keys.falling for each in queues])
        afters = np.repeat([after[each.keys.after] for each in queues], sizes)
        order = self._order_of_ties([each.row for each in queues])
        rows = np.repeat([each.row for each in queues], sizes)
        ranks = np.repeat([order.index(each.row) if order else -each.row for each in queues], sizes)
        # Stable: units of one queue stay in order.
        places = np.lexsort((ranks, -afters, -falling))
        if not order:
            same = (np.diff(falling[places]) == 0) & (np.diff(afters[places]) == 0)
            self._settle_ties(places, rows, same)
        numbers = np.concatenate([each.order.numbers for each in queues])[places]
        return _Order(numbers, np.concatenate([each.order.losses for each in queues])[places])

    def _order_of_ties(self, rows: list[int]) -> list[int]:
        """The order in which siblings go when their keys are equal, the worst first; empty if it depends on which of
        them have equal keys.
        """
        if self._beats is None:
            return sorted(rows, reverse=True)
        if len(rows) > _MOST_COMPARED:
            return []
        order = self._tie_order(frozenset(rows))
        pairs = combinations(order, 2)
        return order if all(self._tie_order(frozenset(pair))[0] == pair[0] for pair in pairs) else []

    def _settle_ties(self, places: IntArray, rows: IntArray, same: BoolArray) -> None:
        """Put units of queues with equal keys in the order of these queues; `same` tells whether the next is equal."""
        tied_rows = rows[places]
        starts = np.flatnonzero(same & (np.diff(tied_rows) != 0))
        end = 0
        for start in starts.tolist():
            if start < end:
                continue
            while start > 0 and same[start - 1]:
                start -= 1
            end = start + 1
            while end < len(places) and same[end - 1]:
                end += 1
            tied = tied_rows[start:end].tolist()
            order = self._tie_order(frozenset(tied))
            ranks = [order.index(row) for row in tied]
            places[start:end] = places[start:end][np.argsort(ranks, kind="stable")]

    def _tie_order(self, rows: frozenset[int]) -> list[int]:
        """Siblings with equal keys, the worst first; see `RankedSiblings.worst`."""
        known = self._kept.ties.get(rows)
        if known is not None:
            return known
        order: list[int] = []
        left = sorted(rows, reverse=True)
        while left:
            leader = left[0]
            for row in left[1:]:
                if self._beats is not None and self._beats(leader, row):
                    leader = row
            order.append(leader)
            left.remove(leader)
        return self._kept.ties.store(rows, order)
