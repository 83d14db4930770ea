"""The order of victims over all queues: the fair order reversed (cycle:8.1 victim mode, queues:Q-239).

Each leaf yields its units worst first; leaves and their ancestors compete by a key that counts what would already have
been taken from them, at every level (queues:10.2, Do better).  The order is computed once per search, lazily; every
scenario of the search reads it from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.queuewalk import RankedSiblings
from pykai.core.cycle.state import State
from pykai.core.eviction.units import EvictionUnit
from pykai.core.eviction.victims import VictimTable
from pykai.core.hooks import Rules
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
        leaves: list[int],
        accepts: Callable[[Gang], bool],
        max_gangs: int = -1,
    ) -> None:
        """`max_gangs` limits how many gangs are yielded, -1 = all."""
        self._state = state
        self._rules = rules
        self._max_gangs = max_gangs
        self._gangs: set[str] = set()
        self._units: list[EvictionUnit] = []
        self._sources: dict[int, _LeafVictims] = {}
        for leaf in leaves:
            source = _LeafVictims(victim_table.worst_first(leaf, accepts))
            if source.unit is not None:
                self._sources[leaf] = source
        self._roots = RankedSiblings(rules.queue_tie_in(state))
        self._children: dict[int, RankedSiblings] = {}
        #: queue -> what the gangs yielded so far cost it
        self._lost: dict[int, QueueAmounts] = {}
        self._only_source = next(iter(self._sources.values())) if len(self._sources) == 1 else None
        if self._only_source is None:
            for leaf in self._sources:
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

    def _next(self) -> EvictionUnit | None:
        if self._only_source is not None:
            # No other queue competes, so nothing has to be counted.
            unit = self._only_source.unit
            if unit is not None:
                self._only_source.advance()
            return unit
        if not self._roots.order:
            return None
        row = self._roots.worst()
        while (children := self._children.get(row)) is not None:
            row = children.worst()
        source = self._sources[row]
        unit = source.unit
        assert unit is not None
        loss = source.next_loss
        source.seen.add(unit.gang.key)
        for queue in self._state.snapshot.tree.chains[row]:
            self._lost[queue] = sum_of(self._lost.get(queue, NO_AMOUNTS), loss)
        source.advance()
        self._rank(row)
        return unit

    def _rank(self, leaf: int) -> None:
        """Update the ranks of a leaf and its ancestors: by what they have lost, and what they would lose next."""
        state, key = self._state, self._rules.victim_queue_key
        tree = state.snapshot.tree
        for row in tree.chains[leaf]:
            siblings = self._siblings(tree.parents[row])
            source_leaf: int | None = leaf if row == leaf else self._worst_leaf(row)
            if source_leaf is None or self._sources[source_leaf].unit is None:
                siblings.discard(row)
                continue
            lost = sum_of(self._lost.get(row, NO_AMOUNTS), self._sources[source_leaf].next_loss)
            siblings.update(row, key(state, row, lost) if key is not None else ())

    def _worst_leaf(self, row: int) -> int | None:
        """The leaf below a queue that would lose next, None if none is left."""
        while (children := self._children.get(row)) is not None:
            if not children.order:
                return None
            row = children.worst()
        return row

    def _siblings(self, parent: int) -> RankedSiblings:
        if parent < 0:
            return self._roots
        siblings = self._children.get(parent)
        if siblings is None:
            siblings = self._children[parent] = RankedSiblings(self._rules.queue_tie_in(self._state))
        return siblings
