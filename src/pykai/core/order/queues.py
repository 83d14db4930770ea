"""The walk over the tree of queues: whose turn is it (cycle:8.1, queues:10.2).

Every leaf holds its gangs in a heap; every queue is ranked among its siblings by a key that depends on what it has
and on the best gang below it.  Only the queue that was served last can have changed, so a pop recomputes one path of
the tree.

Keys order siblings completely except for ties, which are settled pairwise (rule 7 is not a total order): siblings are
walked from the oldest, and a later one takes the lead only if it beats the leader.  Rows of the tree are in order of
(creation, name), so the walk is in order of rows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from pykai.core.fairshare.ledger import Amounts
from pykai.core.fairshare.tree import QueueTree
from pykai.core.gangs import Gang

QueueKey = Callable[[int, Amounts], tuple[object, ...]]
Beats = Callable[[int, int], bool]


class Siblings:
    """Queues of one parent, best first."""

    __slots__ = ("_beats", "_buckets", "_heap", "_keys")

    def __init__(self, beats: Beats | None) -> None:
        self._beats = beats
        self._keys: dict[int, tuple[object, ...]] = {}
        #: key -> rows that have it, ascending
        self._buckets: dict[tuple[object, ...], list[int]] = {}
        #: keys, some of them stale
        self._heap: list[tuple[object, ...]] = []

    def __bool__(self) -> bool:
        return bool(self._keys)

    def update(self, row: int, key: tuple[object, ...]) -> None:
        """Give a queue its present key."""
        if self._keys.get(row) == key:
            return
        self.discard(row)
        self._keys[row] = key
        bucket = self._buckets.get(key)
        if bucket is None:
            self._buckets[key] = [row]
            heappush(self._heap, key)
        else:
            insort(bucket, row)

    def discard(self, row: int) -> None:
        """Take a queue out."""
        key = self._keys.pop(row, None)
        if key is None:
            return
        bucket = self._buckets[key]
        del bucket[bisect_left(bucket, row)]
        if not bucket:
            del self._buckets[key]

    def best(self) -> int:
        """The queue to serve next."""
        heap, buckets = self._heap, self._buckets
        while heap[0] not in buckets:
            heappop(heap)
        bucket = buckets[heap[0]]
        leader = bucket[0]
        if len(bucket) > 1 and self._beats is not None:
            beats = self._beats
            for row in bucket[1:]:
                if beats(row, leader):
                    leader = row
        return leader


class QueueWalk:
    """Hands out gangs in fair order."""

    def __init__(
        self,
        tree: QueueTree,
        gangs: Iterable[Gang],
        *,
        gang_key: Callable[[Gang], tuple[object, ...]],
        request: Callable[[Gang], Amounts],
        queue_key: QueueKey | None,
        beats: Beats | None,
        depth: int | None = None,
    ) -> None:
        self._tree = tree
        self._gang_key = gang_key
        self._request = request
        self._queue_key: QueueKey = queue_key or (lambda row, amounts: ())
        self._roots = Siblings(beats)
        self._below = {row: Siblings(beats) for row, children in enumerate(tree.children) if children}
        #: leaf row -> heap of (key, gang)
        self._gangs: dict[int, list[tuple[tuple[object, ...], Gang]]] = {}
        #: queue row -> what the best gang below it asks for
        self._asks: dict[int, Amounts] = {}
        self._changed: list[int] = []
        by_leaf: dict[int, list[tuple[tuple[object, ...], Gang]]] = {}
        for gang in gangs:
            by_leaf.setdefault(gang.queue, []).append((gang_key(gang), gang))
        for leaf, waiting in by_leaf.items():
            # A sorted list is a heap; the keys end in the name, so gangs themselves are never compared.
            waiting.sort(key=lambda item: item[0])
            self._gangs[leaf] = waiting if depth is None else waiting[:depth]
            self._changed.append(leaf)

    def push(self, gang: Gang) -> None:
        """Put a gang back to compete again (queues:Q-238)."""
        heappush(self._gangs.setdefault(gang.queue, []), (self._gang_key(gang), gang))
        self._changed.append(gang.queue)

    def pop(self) -> Gang | None:
        """The gang whose turn it is, None when all are served."""
        changed, self._changed = self._changed, []
        for leaf in changed:
            self._rank(leaf)
        if not self._roots:
            return None
        row = self._roots.best()
        while (below := self._below.get(row)) is not None:
            row = below.best()
        self._changed.append(row)
        return heappop(self._gangs[row])[1]

    def _rank(self, leaf: int) -> None:
        """Give a leaf and its ancestors their present places."""
        tree = self._tree
        waiting = self._gangs.get(leaf)
        if waiting:
            self._asks[leaf] = self._request(waiting[0][1])
        else:
            self._asks.pop(leaf, None)
        for row in tree.chains[leaf]:
            below = self._below.get(row)
            if below is not None:
                if below:
                    self._asks[row] = self._asks[below.best()]
                else:
                    self._asks.pop(row, None)
            parent = tree.parents[row]
            siblings = self._roots if parent < 0 else self._below[parent]
            ask = self._asks.get(row)
            if ask is None:
                siblings.discard(row)
            else:
                siblings.update(row, self._queue_key(row, ask))
