"""The order of victims over all queues: the fair order reversed (cycle:8.1 victim mode, queues:Q-239).

Each leaf yields its units worst first; leaves and their ancestors compete by a key that counts what would already have
been taken from them, at every level (queues:10.2, Do better).  The order is computed once per search, lazily; every
scenario of the search reads it from the beginning.  It begins with the ranks that the table of victims keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.queueranks import OrderKey, QueueRanks
from pykai.core.cycle.state import State
from pykai.core.eviction.mergedorder import KeptOrders, NotFallingError, OrderMerger
from pykai.core.eviction.unitcolumns import UnitColumns
from pykai.core.eviction.units import EvictionUnit
from pykai.core.eviction.victims import VictimTable
from pykai.core.hooks import KeyOfFigures, Rules
from pykai.core.model.axes import IntArray
from pykai.core.model.queuetree import NO_AMOUNTS, QueueAmounts, sum_of


class _LeafVictims:
    """A leaf as a source of victims."""

    __slots__ = ("_units", "seen", "unit")

    def __init__(self, units: Iterator[EvictionUnit]) -> None:
        #: acceptable ones, worst first
        self._units = units
        #: gangs yielded
        self.seen: set[str] = set()
        #: the next unit, None after the last
        self.unit: EvictionUnit | None = next(units, None)

    def advance(self) -> None:
        """Go to the next unit."""
        self.unit = next(self._units, None)

    @property
    def next_loss(self) -> QueueAmounts:
        """What the next unit's gang costs its queue, unless it is already counted."""
        unit = self.unit
        return NO_AMOUNTS if unit is None or unit.gang.key in self.seen else unit.gang_amounts


class VictimOrder:
    """Units worst first, computed lazily (cycle:ORD-4, PERF-6; queues:Q-231)."""

    def __init__(
        self,
        state: State,
        rules: Rules,
        victim_table: VictimTable,
        queues: list[int],
        accepts: Callable[[Gang], bool] | None = None,
        max_gangs: int = -1,
        *,
        lazily: bool = False,
    ) -> None:
        """Victims are the gangs below these queues, none of which is above another; `accepts` leaves out some of them.

        `max_gangs` limits how many gangs are yielded, -1 = all.  `lazily`: gangs are asked for only as they are read.
        """
        self._state = state
        self._rules = rules
        self._queues = queues
        self._lazily = lazily
        self._key = rules.victim_queue_key_in(state)
        self._table = victim_table
        self._accepts = accepts
        self._max_gangs = max_gangs
        self._gangs: set[str] = set()
        self._units: list[EvictionUnit] = []
        self._sources: dict[int, _LeafVictims] = {}
        #: queue -> what the gangs yielded so far cost it
        self._lost: dict[int, QueueAmounts] = {}
        self._only_source: _LeafVictims | None = None
        kept = victim_table.ranks(queues)
        only = kept.only_leaf(queues[0]) if len(queues) == 1 else -1
        if only >= 0:
            self._only_source = self._source(only)
            return
        beats = rules.queue_tie_in(state)
        self._ranks = QueueRanks(state.snapshot.tree, self._key_with_losses, beats, worst_first=True, kept=kept)
        self._ranks.start_with(queues)
        for leaf in victim_table.leaves_in_other_order(queues, accepts):
            self._rank(leaf)

    def unit_at(self, index: int) -> EvictionUnit | None:
        """The unit at a position of the order, None after its end."""
        while index >= len(self._units):
            unit = self._next()
            if unit is None:
                return None
            if unit.gang.key not in self._gangs:
                if self._max_gangs >= 0 and len(self._gangs) >= self._max_gangs:
                    continue
                self._gangs.add(unit.gang.key)
            self._units.append(unit)
        return self._units[index]

    @property
    def leaf_count(self) -> int:
        """How many leaf queues may have victims: what it costs to merge them."""
        return sum(len(self._table.leaves_below(queue)) for queue in self._queues)

    def numbers(self) -> tuple[UnitColumns, IntArray] | None:
        """The whole order as numbers of units, None where it has to be read one by one."""
        state, rules, accepts = self._state, self._rules, self._accepts
        key = rules.victim_queue_key
        if self._lazily or not self._table.are_in_order(self._queues):
            return None
        if not isinstance(key, KeyOfFigures) or key.falling is None:
            return None
        columns = self._table.columns
        merger = OrderMerger(
            state.snapshot.tree,
            columns,
            self._table.units_of,
            partial(key.falling, state),
            rules.queue_tie_in(state),
            None if accepts is None else lambda unit: accepts(unit.gang),
            state.ledger.allocated,
            self._table.kept_orders if rules.keeps_ranks(key) else KeptOrders.none(),
        )
        try:
            numbers = merger.numbers(self._queues)
        except NotFallingError:
            return None
        return columns, numbers if self._max_gangs < 0 else columns.of_first_gangs(numbers, self._max_gangs)

    def _next(self) -> EvictionUnit | None:
        if self._only_source is not None:
            # No other queue competes, so nothing has to be counted.
            unit = self._only_source.unit
            if unit is not None:
                self._only_source.advance()
            return unit
        row = self._ranks.chosen()
        if row < 0:
            return None
        source = self._source(row)
        unit = source.unit
        assert unit is not None
        loss = source.next_loss
        source.seen.add(unit.gang.key)
        lost = self._lost
        for queue in self._state.snapshot.tree.chains[row]:
            lost[queue] = sum_of(lost.get(queue, NO_AMOUNTS), loss)
        source.advance()
        self._rank(row)
        return unit

    def _source(self, leaf: int) -> _LeafVictims:
        source = self._sources.get(leaf)
        if source is None:
            source = self._sources[leaf] = _LeafVictims(self._table.worst_first(leaf, self._accepts))
        return source

    def _rank(self, leaf: int) -> None:
        """Update the ranks of a leaf and its ancestors: by what they have lost, and what they would lose next."""
        source = self._source(leaf)
        self._ranks.rank(leaf, source.next_loss if source.unit is not None else None)

    def _key_with_losses(self, row: int, next_loss: QueueAmounts) -> OrderKey:
        return self._key(row, sum_of(self._lost.get(row, NO_AMOUNTS), next_loss)) if self._key is not None else ()
