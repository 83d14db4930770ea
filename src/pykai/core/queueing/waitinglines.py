"""Gangs that wait, in the order of their queues, during the trials of the eviction actions.

In a trial only the preemptor and its victims are placed.  The other waiting gangs are never served, but they stand in
line: a queue is compared by the best gang of its line, whoever that is (cycle:ORD-2, PERF-5).  Their lines are sorted
once and kept right; a trial reads them with a cursor, and passes those who ask for the same in one step.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from heapq import heapify, heappop, heappush
from typing import Any

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.session import Session
from pykai.core.queueing.queueledger import Amounts

Key = tuple[Any, ...]


class StandingLine:
    """Gangs that wait in one leaf queue, best first."""

    __slots__ = ("_breaks", "asks", "gangs", "keys")

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.gangs: list[Gang] = []
        #: what each asks of its queue
        self.asks: list[Amounts] = []
        self._breaks: list[int] | None = None

    def insert(self, key: Key, gang: Gang, ask: Amounts) -> None:
        """Put a gang where it belongs."""
        place = bisect_left(self.keys, key)
        self.keys.insert(place, key)
        self.gangs.insert(place, gang)
        self.asks.insert(place, ask)
        self._breaks = None

    def remove(self, key: Key) -> None:
        """Take a gang out."""
        place = bisect_left(self.keys, key)
        del self.keys[place], self.gangs[place], self.asks[place]
        self._breaks = None

    def next_break(self, place: int) -> int:
        """The first place behind this one where another amount is asked for."""
        if self._breaks is None:
            asks = self.asks
            self._breaks = [here for here in range(1, len(asks)) if asks[here] != asks[here - 1]]
        following = bisect_right(self._breaks, place)
        return self._breaks[following] if following < len(self._breaks) else len(self.asks)


NOBODY = StandingLine()


class Standing:
    """Waiting gangs by leaf queue."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.lines: dict[int, StandingLine] = {}
        self._keys: dict[str, Key] = {}
        tree = session.snapshot.tree
        waiting = [
            (session.group_order(gang), gang)
            for gang in session.waiting()
            if gang.queue >= 0 and not tree.children[gang.queue] and session.next_tasks(gang)
        ]
        waiting.sort(key=lambda item: item[0])
        for key, gang in waiting:
            self._keys[gang.key] = key
            line = self.lines.setdefault(gang.queue, StandingLine())
            line.keys.append(key)
            line.gangs.append(gang)
            line.asks.append(session.request_of(gang))
        self.version = session.state.version

    def largest_ask(self) -> float:
        """The most GPUs (hundredths) that anyone asks for at once."""
        return max((ask[2] for line in self.lines.values() for ask in line.asks), default=0.0)

    def changed(self, gang: Gang) -> None:
        """Put a gang where it stands now."""
        before = self._keys.pop(gang.key, None)
        if before is not None:
            self.lines[gang.queue].remove(before)
        if gang.open and self._session.next_tasks(gang):
            key = self._keys[gang.key] = self._session.group_order(gang)
            line = self.lines.setdefault(gang.queue, StandingLine())
            line.insert(key, gang, self._session.request_of(gang))


def standing_of(session: Session) -> Standing:
    """The lines of this cycle, made anew when someone else has changed the state."""
    found: Standing | None = session.memo.get(Standing)
    if found is None or found.version != session.state.version:
        found = session.memo[Standing] = Standing(session)
    return found


class TrialLine:
    """The line of one leaf in a trial: those who take part, among those who only stand there."""

    __slots__ = ("_asks", "_line", "_next", "_own", "_session", "_taking_part")

    def __init__(
        self, session: Session, line: StandingLine, taking_part: dict[str, Gang], asks: dict[str, Amounts]
    ) -> None:
        """`asks` overrides what some of those who take part ask for."""
        self._session = session
        self._line = line
        self._taking_part = taking_part
        self._asks = asks
        self._next = 0
        self._own = [(session.group_order(gang), gang) for gang in taking_part.values()]
        heapify(self._own)

    def push(self, gang: Gang) -> None:
        """Put one who takes part back."""
        heappush(self._own, (self._session.group_order(gang), gang))

    def _bystander(self) -> int | None:
        """The place of the best of the others if it stands before all who take part."""
        line = self._line
        while self._next < len(line.gangs):
            if self._own and line.keys[self._next] > self._own[0][0]:
                return None
            if line.gangs[self._next].key not in self._taking_part:
                return self._next
            self._next += 1
        return None

    def ask(self) -> Amounts | None:
        """What the best gang asks for."""
        place = self._bystander()
        if place is not None:
            return self._line.asks[place]
        if not self._own:
            return None
        gang = self._own[0][1]
        asked = self._asks.get(gang.key)
        return asked if asked is not None else self._session.request_of(gang)

    def pop(self) -> Gang | None:
        """Take the best gang out, None for bystanders; those who ask for the same go together."""
        place = self._bystander()
        if place is None:
            return heappop(self._own)[1]
        self._next = self._line.next_break(place)
        if self._own:
            self._next = min(self._next, bisect_left(self._line.keys, self._own[0][0]))
        return None
