"""Whom to take from first, over all queues: the fair order from its other end (cycle:8.1 victim mode, queues:Q-239).

Each leaf hands out its units worst first; leaves and their ancestors compete by a key that counts what would already
have been taken from them.  The order is worked out once per search and as far as it is asked for; every scenario of
the search reads it from the beginning.
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

    __slots__ = ("accepts", "line", "position", "seen", "taken")

    def __init__(self, line: list[tuple[Key, int, Unit]], accepts: Callable[[Gang], bool]) -> None:
        self.line = line
        self.accepts = accepts
        self.position = len(line) - 1
        #: what the gangs handed out so far cost, the next one included (queues:Q-239)
        self.taken: Amounts = _NOTHING
        self.seen: set[str] = set()
        self._settle()

    def _settle(self) -> None:
        """Go to the next acceptable unit."""
        line = self.line
        while self.position >= 0 and not self.accepts(line[self.position][2].gang):
            self.position -= 1
        if self.position >= 0:
            unit = line[self.position][2]
            if unit.gang.key not in self.seen:
                self.seen.add(unit.gang.key)
                self.taken = _sum(self.taken, unit.whole)

    def step(self) -> Unit | None:
        """The next unit where no other source competes, so that what was taken need not be counted."""
        line, accepts = self.line, self.accepts
        while self.position >= 0:
            unit = line[self.position][2]
            self.position -= 1
            if accepts(unit.gang):
                return unit
        return None

    def pop(self) -> Unit:
        """The next unit."""
        unit = self.line[self.position][2]
        self.position -= 1
        self._settle()
        return unit


def _sum(a: Amounts, b: Amounts) -> Amounts:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


class VictimOrder:
    """Units worst first, worked out as far as asked for."""

    def __init__(
        self, session: Session, victims: Victims, leaves: list[int], accepts: Callable[[Gang], bool], most: int = -1
    ) -> None:
        """`most` bounds how many gangs are handed out, -1 = all."""
        self._session = session
        self._most = most
        self._gangs: set[str] = set()
        self._sources: dict[int, _Source] = {}
        for leaf in leaves:
            source = _Source(victims.lines[leaf], accepts)
            if source.position >= 0:
                self._sources[leaf] = source
        self._roots = Siblings(session.rules.bound_tie(session.state))
        self._below: dict[int, Siblings] = {}
        self._units: list[Unit] = []
        self._only = next(iter(self._sources.values())) if len(self._sources) == 1 else None
        if self._only is None:
            for leaf in self._sources:
                self._rank(leaf)

    def at(self, index: int) -> Unit | None:
        """The unit at a place of the order, None behind its end."""
        while index >= len(self._units):
            unit = self._next() if self._only is None else self._only.step()
            if unit is None:
                return None
            if unit.gang.key not in self._gangs:
                if self._most >= 0 and len(self._gangs) >= self._most:
                    continue
                self._gangs.add(unit.gang.key)
            self._units.append(unit)
        return self._units[index]

    def _next(self) -> Unit | None:
        if not self._roots.order:
            return None
        row = self._roots.worst()
        while (below := self._below.get(row)) is not None:
            row = below.worst()
        unit = self._sources[row].pop()
        self._rank(row)
        return unit

    def _rank(self, leaf: int) -> None:
        """Give a leaf and its ancestors their present places; an ancestor counts what its worst leaf would lose."""
        session = self._session
        tree, key = session.snapshot.tree, session.rules.victim_queue_key
        source = self._sources[leaf]
        for row in tree.chains[leaf]:
            parent = tree.parents[row]
            siblings = self._siblings(parent)
            here = source
            if row != leaf:
                if not self._below[row].order:
                    siblings.discard(row)
                    continue
                here = self._sources[self._worst_leaf(row)]
            elif source.position < 0:
                siblings.discard(row)
                continue
            siblings.update(row, key(session.state, row, here.taken) if key is not None else ())

    def _worst_leaf(self, row: int) -> int:
        while (below := self._below.get(row)) is not None:
            row = below.worst()
        return row

    def _siblings(self, parent: int) -> Siblings:
        if parent < 0:
            return self._roots
        found = self._below.get(parent)
        if found is None:
            found = self._below[parent] = Siblings(self._session.rules.bound_tie(self._session.state))
        return found
