"""Whom to take from first, over all queues: the fair order from its other end (cycle:8.1 victim mode, queues:Q-239).

Each leaf hands out its units worst first; leaves and their ancestors compete by a key that counts what would already
have been taken from them, at every level (queues:10.2, Do better).  The order is worked out once per search and as far
as it is asked for; every scenario of the search reads it from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.session import Session
from pykai.core.eviction.victims import Line, Unit, Victims
from pykai.core.queueing.queueledger import Amounts
from pykai.core.queueing.queuewalk import Siblings

_NOTHING: Amounts = (0.0, 0.0, 0.0)


def _sum(a: Amounts, b: Amounts) -> Amounts:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


class _Source:
    """A leaf as a source of victims."""

    __slots__ = ("accepts", "line", "position", "seen")

    def __init__(self, line: Line, accepts: Callable[[Gang], bool]) -> None:
        self.line = line
        self.accepts = accepts
        self.position = len(line)
        #: gangs handed out
        self.seen: set[str] = set()
        self.advance()

    def advance(self) -> None:
        """Go to the next acceptable unit."""
        line, accepts = self.line, self.accepts
        self.position -= 1
        while self.position >= 0 and not accepts(line[self.position][2].gang):
            self.position -= 1

    @property
    def unit(self) -> Unit | None:
        """The next unit."""
        return self.line[self.position][2] if self.position >= 0 else None

    @property
    def next_loss(self) -> Amounts:
        """What the next unit's gang costs its queue, unless it is counted already."""
        unit = self.unit
        return _NOTHING if unit is None or unit.gang.key in self.seen else unit.whole


class VictimOrder:
    """Units worst first, worked out as far as asked for (cycle:ORD-4, PERF-6; queues:Q-231)."""

    def __init__(
        self, session: Session, victims: Victims, leaves: list[int], accepts: Callable[[Gang], bool], most: int = -1
    ) -> None:
        """`most` bounds how many gangs are handed out, -1 = all."""
        self._session = session
        self._most = most
        self._gangs: set[str] = set()
        self._units: list[Unit] = []
        self._sources: dict[int, _Source] = {}
        for leaf in leaves:
            source = _Source(victims.line(leaf), accepts)
            if source.unit is not None:
                self._sources[leaf] = source
        self._roots = Siblings(session.rules.bound_tie(session.state))
        self._below: dict[int, Siblings] = {}
        #: queue -> what the gangs handed out so far cost it
        self._lost: dict[int, Amounts] = {}
        self._only = next(iter(self._sources.values())) if len(self._sources) == 1 else None
        if self._only is None:
            for leaf in self._sources:
                self._rank(leaf)

    def at(self, index: int) -> Unit | None:
        """The unit at a place of the order, None behind its end."""
        while index >= len(self._units):
            unit = self._next()
            if unit is None:
                return None
            if unit.gang.key not in self._gangs:
                if self._most >= 0 and len(self._gangs) >= self._most:
                    continue
                self._gangs.add(unit.gang.key)
            self._units.append(unit)
        return self._units[index]

    def _next(self) -> Unit | None:
        if self._only is not None:
            # Nobody competes, so nothing has to be counted.
            unit = self._only.unit
            if unit is not None:
                self._only.advance()
            return unit
        if not self._roots.order:
            return None
        row = self._roots.worst()
        while (below := self._below.get(row)) is not None:
            row = below.worst()
        source = self._sources[row]
        unit = source.unit
        assert unit is not None
        loss = source.next_loss
        source.seen.add(unit.gang.key)
        for queue in self._session.snapshot.tree.chains[row]:
            self._lost[queue] = _sum(self._lost.get(queue, _NOTHING), loss)
        source.advance()
        self._rank(row)
        return unit

    def _rank(self, leaf: int) -> None:
        """Give a leaf and its ancestors their present places: by what they have lost, and what they would lose next."""
        session = self._session
        tree, key = session.snapshot.tree, session.rules.victim_queue_key
        for row in tree.chains[leaf]:
            siblings = self._siblings(tree.parents[row])
            giver: int | None = leaf if row == leaf else self._worst_leaf(row)
            if giver is None or self._sources[giver].unit is None:
                siblings.discard(row)
                continue
            lost = _sum(self._lost.get(row, _NOTHING), self._sources[giver].next_loss)
            siblings.update(row, key(session.state, row, lost) if key is not None else ())

    def _worst_leaf(self, row: int) -> int | None:
        """The leaf below a queue that would give next, None when none is left."""
        while (below := self._below.get(row)) is not None:
            if not below.order:
                return None
            row = below.worst()
        return row

    def _siblings(self, parent: int) -> Siblings:
        if parent < 0:
            return self._roots
        found = self._below.get(parent)
        if found is None:
            found = self._below[parent] = Siblings(self._session.rules.bound_tie(self._session.state))
        return found
