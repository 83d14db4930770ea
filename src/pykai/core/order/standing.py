"""Gangs that wait, in the order of their queues, during the trials of the eviction actions.

In a trial only the preemptor and its victims are placed.  The other waiting gangs are never served, but they stand in
line: a queue is compared by the best gang of its line, whoever that is (cycle:ORD-2, PERF-5).  Their lines are sorted
once; a trial reads them with a cursor.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush
from typing import Any

from pykai.core.fairshare.ledger import Amounts
from pykai.core.gangs import Gang
from pykai.core.session import Session

Key = tuple[Any, ...]


class Standing:
    """Waiting gangs by leaf queue, best first."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.lines: dict[int, list[tuple[Key, Gang]]] = {}
        self._keys: dict[str, Key] = {}
        tree = session.snapshot.tree
        for gang in session.waiting():
            if gang.queue >= 0 and not tree.children[gang.queue] and session.next_tasks(gang):
                key = self._keys[gang.key] = session.group_order(gang)
                self.lines.setdefault(gang.queue, []).append((key, gang))
        for line in self.lines.values():
            line.sort(key=_key_of)
        self.version = session.state.version

    def changed(self, gang: Gang) -> None:
        """Put a gang where it stands now."""
        key = self._keys.pop(gang.key, None)
        line = self.lines.get(gang.queue)
        if key is not None and line is not None:
            del line[bisect_left(line, key, key=_key_of)]
        if gang.open and self._session.next_tasks(gang):
            key = self._keys[gang.key] = self._session.group_order(gang)
            insort(self.lines.setdefault(gang.queue, []), (key, gang), key=_key_of)


def _key_of(item: tuple[Key, Gang]) -> Key:
    return item[0]


def standing_of(session: Session) -> Standing:
    """The lines of this cycle, made anew when someone else has changed the state."""
    found: Standing | None = session.memo.get(Standing)
    if found is None or found.version != session.state.version:
        found = session.memo[Standing] = Standing(session)
    return found


class TrialLine:
    """The line of one leaf in a trial: those who take part, among those who only stand there."""

    __slots__ = ("_asks", "_bystanders", "_next", "_own", "_session", "_taking_part")

    def __init__(
        self,
        session: Session,
        bystanders: list[tuple[Key, Gang]],
        taking_part: dict[str, Gang],
        asks: dict[str, Amounts],
    ) -> None:
        """`asks` overrides what some of those who take part ask for."""
        self._session = session
        self._bystanders = bystanders
        self._taking_part = taking_part
        self._asks = asks
        self._next = 0
        self._own = [(session.group_order(gang), gang) for gang in taking_part.values()]
        heapify(self._own)

    def push(self, gang: Gang) -> None:
        """Put one who takes part back."""
        heappush(self._own, (self._session.group_order(gang), gang))

    def _bystander(self) -> tuple[Key, Gang] | None:
        """The best of the others if it stands before all who take part."""
        line = self._bystanders
        while self._next < len(line):
            item = line[self._next]
            if self._own and item[0] > self._own[0][0]:
                return None
            if item[1].key not in self._taking_part:
                return item
            self._next += 1
        return None

    def ask(self) -> Amounts | None:
        """What the best gang asks for."""
        if (item := self._bystander()) is not None:
            return self._session.request_of(item[1])
        if not self._own:
            return None
        gang = self._own[0][1]
        asked = self._asks.get(gang.key)
        return asked if asked is not None else self._session.request_of(gang)

    def pop(self) -> Gang | None:
        """Take the best gang out, None for bystanders; those who ask for the same go together."""
        item = self._bystander()
        if item is None:
            return heappop(self._own)[1]
        asked = self._session.request_of(item[1])
        while (item := self._bystander()) is not None and self._session.request_of(item[1]) == asked:
            self._next += 1
        return None
