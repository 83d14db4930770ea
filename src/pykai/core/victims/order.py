"""Whom to take from first, over all queues: the fair order from its other end (cycle:8.1 victim mode, queues:Q-239).

Each leaf hands out its units worst first; leaves and their ancestors compete by a key that counts what would already
have been taken from them, at every level (queues:10.2, Do better).  The order is worked out once per search and as far
as it is asked for; every scenario of the search reads it from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable

from pykai.core.fairshare.ledger import Amounts
from pykai.core.gangs import Gang
from pykai.core.order.queues import Siblings
from pykai.core.session import Session
from pykai.core.victims.units import Key, Unit, Victims

_NOTHING: Amounts = (0.0, 0.0, 0.0)


class _Source:
    """A leaf as a source of victims."""

    __slots__ = ("accepts", "line", "position", "seen")

    def __init__(self, line: list[tuple[Key, int, Unit]], accepts: Callable[[Gang], bool]) -> None:
        self.line = line
        self.accepts = accepts
        self.position = len(line)
        #: gangs whose loss is counted
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

    def newly_lost(self) -> Amounts:
        """What the next unit's gang costs its queue, unless it is counted already."""
        unit = self.unit
        if unit is None or unit.gang.key in self.seen:
            return _NOTHING
        self.seen.add(unit.gang.key)
        return unit.whole


class VictimOrder:
    """Units worst first, worked out as far as asked for."""

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
            source = _Source(victims.lines[leaf], accepts)
            if source.unit is not None:
                self._sources[leaf] = source
        self._roots = Siblings(session.rules.bound_tie(session.state))
        self._below: dict[int, Siblings] = {}
        #: queue -> what the gangs handed out so far and those next in line cost it
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
        source.advance()
        self._rank(row)
        return unit

    def _rank(self, leaf: int) -> None:
        """Give a leaf and its ancestors their present places."""
        session = self._session
        tree, key = session.snapshot.tree, session.rules.victim_queue_key
        source = self._sources[leaf]
        cpu, memory, gpu = source.newly_lost()
        for row in tree.chains[leaf]:
            lost = self._lost.get(row, _NOTHING)
            lost = self._lost[row] = (lost[0] + cpu, lost[1] + memory, lost[2] + gpu)
            siblings = self._siblings(tree.parents[row])
            left = source.unit is not None if row == leaf else bool(self._below[row].order)
            if left:
                siblings.update(row, key(session.state, row, lost) if key is not None else ())
            else:
                siblings.discard(row)

    def _siblings(self, parent: int) -> Siblings:
        if parent < 0:
            return self._roots
        found = self._below.get(parent)
        if found is None:
            found = self._below[parent] = Siblings(self._session.rules.bound_tie(self._session.state))
        return found
