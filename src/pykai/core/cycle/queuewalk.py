"""The walk over the tree of queues: which gang is served next (cycle:8.1, queues:10.2).

Every leaf holds its gangs in order; every queue is ranked among its siblings by a key that depends on what it has
and on the best gang below it.  Only the queue that was served last can have changed, so a pop recomputes one path of
the tree.

Keys order siblings completely except for ties, which are settled pairwise (rule 7 is not a total order): siblings are
walked from the oldest, and a later one takes the lead only if it beats the leader.  Rows of the tree are in order of
(creation, name), so the walk is in order of rows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from itertools import islice
from operator import itemgetter
from typing import Any, Protocol

from pykai.core.cycle.gangs import Gang
from pykai.core.model.queuetree import QueueAmounts, QueueTree

OrderKey = tuple[Any, ...]
QueueKey = Callable[[int, QueueAmounts], OrderKey]
Beats = Callable[[int, int], bool]


class RankedSiblings:
    """Queues of one parent, best first."""

    __slots__ = ("_beats", "_keys", "order")

    def __init__(self, beats: Beats | None) -> None:
        self._beats = beats
        self._keys: dict[int, OrderKey] = {}
        #: (key, row), ascending
        self.order: list[tuple[OrderKey, int]] = []

    def update(self, row: int, key: OrderKey) -> None:
        """Set the present key of a queue."""
        before = self._keys.get(row)
        if before == key:
            return
        order = self.order
        if before is not None:
            del order[bisect_left(order, (before, row))]
        self._keys[row] = key
        insort(order, (key, row))

    def discard(self, row: int) -> None:
        """Remove a queue."""
        key = self._keys.pop(row, None)
        if key is not None:
            del self.order[bisect_left(self.order, (key, row))]

    def best(self) -> int:
        """The queue to serve next."""
        order = self.order
        key, leader = order[0]
        if len(order) > 1 and order[1][0] == key and self._beats is not None:
            for other, row in islice(order, 1, None):
                if other != key:
                    break
                if self._beats(row, leader):
                    leader = row
        return leader

    def worst(self) -> int:
        """The queue to take from first: the last in the same order (queues:Q-239)."""
        order = self.order
        key, leader = order[-1]
        if len(order) > 1 and order[-2][0] == key and self._beats is not None:
            for other, row in islice(reversed(order), 1, None):
                if other != key:
                    break
                if self._beats(leader, row):
                    leader = row
        return leader


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
        subtree_root: int = -1,
    ) -> None:
        """`version` names the state that keys and ties depend on.  With `subtree_root`, a queue above all lines, only
        queues below it are compared; -1 = the whole forest.
        """
        self._tree = tree
        self._lines = lines
        # Without fairness between queues the oldest queue with work is served.
        self._queue_key: QueueKey = queue_key or (lambda row, ask: ())
        self._beats = beats
        self._version = version
        #: the queue served last, and the state then
        self._last = -1
        self._ranked_at = -1
        self._subtree_root = subtree_root
        self._roots = RankedSiblings(beats)
        self._children: dict[int, RankedSiblings] = {}
        #: queue -> the request of the best gang below it
        self._requests: dict[int, QueueAmounts] = {}
        self._changed: list[int] = list(lines)

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

    def _nothing_changed(self) -> bool:
        """Whether the same queue is next again: nothing was placed, and its next gang requests the same."""
        last = self._last
        return (
            len(self._changed) == 1
            and self._changed[0] == last
            and self._ranked_at == self._version()
            and self._lines[last].head_request() == self._requests[last]
        )

    def _next(self) -> int:
        """The leaf to serve next, -1 when all are served."""
        for leaf in dict.fromkeys(self._changed):
            self._rank(leaf)
        self._changed.clear()
        self._ranked_at = self._version()
        if not self._roots.order:
            return -1
        row = self._roots.best()
        while (children := self._children.get(row)) is not None:
            row = children.best()
        self._changed.append(row)
        self._last = row
        return row

    def _rank(self, leaf: int) -> None:
        """Update the ranks of a leaf and its ancestors."""
        parents = self._tree.parents
        request = self._lines[leaf].head_request()
        for row in self._tree.chains[leaf]:
            if row == self._subtree_root:
                return
            if row != leaf:
                children = self._children[row]
                request = self._requests[children.best()] if children.order else None
            parent = parents[row]
            if parent == self._subtree_root:
                siblings = self._roots
            else:
                known_siblings = self._children.get(parent)
                siblings = (
                    known_siblings
                    if known_siblings is not None
                    else self._children.setdefault(parent, RankedSiblings(self._beats))
                )
            if request is None:
                siblings.discard(row)
            else:
                self._requests[row] = request
                siblings.update(row, self._queue_key(row, request))
