"""The walk over the tree of queues: which gang is served next (cycle:8.1, queues:10.2).

Every leaf holds its gangs in order; every queue is ranked among its siblings by a key that depends on what it has
and on the best gang below it.  Only the queue that was served last can have changed, so a pop recomputes one path of
the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from operator import itemgetter
from typing import NamedTuple, Protocol

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.queueranks import Beats, KeptRanks, OrderKey, QueueKey, QueueRanks
from pykai.core.model.queuetree import QueueAmounts, QueueTree


class GangLine(Protocol):
    """Gangs of one leaf queue, best first."""

    def head_request(self) -> QueueAmounts | None:
        """The request of the best gang, None if the line is empty."""

    def pop(self) -> Gang | None:
        """Remove the best gang; None for one that only waits in line and is not to be served."""

    def push(self, gang: Gang) -> None:
        """Put a gang back to compete again (queues:Q-238)."""


class ServingLine:
    """A line of gangs to serve: a sorted list read from the front, and a heap of those that came back."""

    __slots__ = ("_gang_key", "_next", "_request", "_returned", "_sorted")

    def __init__(
        self,
        gangs: list[tuple[OrderKey, Gang]],
        gang_key: Callable[[Gang], OrderKey],
        request: Callable[[Gang], QueueAmounts],
    ) -> None:
        self._sorted = gangs
        self._gang_key = gang_key
        self._request = request
        self._next = 0
        self._returned: list[tuple[OrderKey, Gang]] = []

    def push(self, gang: Gang) -> None:
        """Put a gang back to compete again."""
        heappush(self._returned, (self._gang_key(gang), gang))

    def _returned_gang_is_first(self) -> bool:
        return bool(self._returned) and (
            self._next >= len(self._sorted) or self._returned[0][0] < self._sorted[self._next][0]
        )

    def head_request(self) -> QueueAmounts | None:
        """The request of the best gang."""
        if self._returned and self._returned_gang_is_first():
            return self._request(self._returned[0][1])
        return self._request(self._sorted[self._next][1]) if self._next < len(self._sorted) else None

    def pop(self) -> Gang:
        """Remove the best gang."""
        if self._returned and self._returned_gang_is_first():
            return heappop(self._returned)[1]
        self._next += 1
        return self._sorted[self._next - 1][1]


def gangs_by_leaf_queue(
    gangs: Iterable[Gang], gang_key: Callable[[Gang], OrderKey]
) -> dict[int, list[tuple[OrderKey, Gang]]]:
    """Leaf queue -> its gangs with their keys, best first."""
    by_leaf: dict[int, list[tuple[OrderKey, Gang]]] = {}
    for gang in gangs:
        by_leaf.setdefault(gang.queue, []).append((gang_key(gang), gang))
    for waiting in by_leaf.values():
        # Keys end in the name, so gangs themselves are never compared.
        waiting.sort(key=itemgetter(0))
    return by_leaf


def lines_by_leaf_queue(
    by_leaf: Mapping[int, list[tuple[OrderKey, Gang]]],
    gang_key: Callable[[Gang], OrderKey],
    request: Callable[[Gang], QueueAmounts],
    depth: int | None = None,
) -> dict[int, GangLine]:
    """Gangs as lines of their leaf queues, the best `depth` of each (queues:Q-240)."""
    return {
        leaf: ServingLine(waiting if depth is None else waiting[:depth], gang_key, request)
        for leaf, waiting in by_leaf.items()
    }


class WalkStart(NamedTuple):
    """Where a walk over a part of the tree begins."""

    #: only queues below it are compared, -1 = the whole forest
    top: int = -1
    #: ranks of the lines, None = all lines are ranked first
    kept: KeptRanks | None = None
    #: queues to compare, with all that is below them
    rows: Iterable[int] = ()
    #: leaves with lines other than kept
    changed: Iterable[int] = ()


class QueueWalk:
    """Yields gangs in fair order (queues:Q-236)."""

    def __init__(
        self,
        tree: QueueTree,
        lines: Mapping[int, GangLine],
        *,
        queue_key: QueueKey | None,
        beats: Beats | None,
        version: Callable[[], int],
        start: WalkStart | None = None,
    ) -> None:
        """`version` names the state that keys and ties depend on."""
        self._lines = lines
        self._version = version
        #: the queue served last, and the state then
        self._last = -1
        self._ranked_at = -1
        # Without fairness between queues the oldest queue with work is served.
        key = queue_key or (lambda row, ask: ())
        if start is None or start.kept is None:
            self._ranks = QueueRanks(tree, key, beats, top=start.top if start is not None else -1)
            self._changed: list[int] = list(lines)
        else:
            self._ranks = QueueRanks(tree, key, beats, top=start.top, kept=start.kept.ranks)
            self._ranks.start_with(start.rows)
            self._changed = list(start.changed)

    def push(self, gang: Gang) -> None:
        """Put a gang back to compete again (queues:Q-238)."""
        self._lines[gang.queue].push(gang)
        self._changed.append(gang.queue)

    def pop(self) -> Gang | None:
        """The next gang, None when all are served (cycle:ORD-3; queues:Q-237)."""
        while True:
            row = self._last if self._nothing_changed() else self._next()
            if row < 0:
                return None
            gang = self._lines[row].pop()
            if gang is not None:
                return gang

    def pop_from(self, leaf: int) -> Gang | None:
        """The next gang of one leaf, None when all of its gangs are served.

        Where nothing is placed in other leaves any more, the order is the same without them.
        """
        line = self._lines[leaf]
        self._changed.append(leaf)
        while line.head_request() is not None:
            gang = line.pop()
            if gang is not None:
                return gang
        return None

    def _nothing_changed(self) -> bool:
        """Whether the same queue is next again: nothing was placed, and its next gang requests the same."""
        last = self._last
        return (
            len(self._changed) == 1
            and self._changed[0] == last
            and self._ranked_at == self._version()
            and self._lines[last].head_request() == self._ranks.amount(last)
        )

    def _next(self) -> int:
        """The leaf to serve next, -1 when all are served."""
        for leaf in dict.fromkeys(self._changed):
            self._ranks.rank(leaf, self._lines[leaf].head_request())
        self._changed.clear()
        self._ranked_at = self._version()
        row = self._ranks.chosen()
        if row >= 0:
            self._changed.append(row)
            self._last = row
        return row
