"""Which keys are to be worked on next, without I/O and without a clock of its own.

A key stands in the queue at most once.  While it is being worked on it is not handed out again; if it is added in the
meantime, it comes back when the work is done.  Keys can be added for later; the earliest time holds, and adding a key
for now cancels its later time.

Work may hang, and one namespace may have any amount of it.  So namespaces take turns, and none is given more workers
than it leaves for others (`limits.leaves_enough`).  A key without a namespace stands for itself.

Statements: kube:reconcile.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable

from pykai.kube.limits import leaves_enough


def namespace_of(key: str) -> str:
    """The namespace of `namespace/name`, or the name where there is none."""
    namespace, _, name = key.rpartition("/")
    return namespace or name


class WorkQueue:
    """First come, first served within a namespace, each key once; `owner` tells the namespace of a key."""

    def __init__(self, owner: Callable[[str], str] = namespace_of) -> None:
        self._owner = owner
        #: namespace -> its keys; a dict is an ordered set
        self._ready: dict[str, dict[str, None]] = {}
        self._working: set[str] = set()
        #: namespace -> how many of its keys are being worked on
        self._held: Counter[str] = Counter()
        self._again: set[str] = set()
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return sum(map(len, self._ready.values()))

    def add(self, key: str) -> None:
        """Work on it as soon as possible."""
        self._due.pop(key, None)
        if key in self._working:
            self._again.add(key)
        else:
            self._ready.setdefault(self._owner(key), {})[key] = None

    def add_at(self, key: str, due_s: float) -> None:
        """Work on it at that time, unless it is to be worked on earlier anyway."""
        if key in self._again or key in self._ready.get(self._owner(key), ()):
            return
        known = self._due.get(key)
        if known is not None and known <= due_s:
            return
        self._due[key] = due_s
        heapq.heappush(self._heap, (due_s, key))

    def ripen(self, now_s: float) -> None:
        """Move what has become due to the ready ones."""
        while self._heap and self._heap[0][0] <= now_s:
            due_s, key = heapq.heappop(self._heap)
            if self._due.get(key) == due_s:
                self.add(key)

    def next_due_s(self) -> float | None:
        """When the next key becomes due."""
        while self._heap:
            due_s, key = self._heap[0]
            if self._due.get(key) == due_s:
                return due_s
            heapq.heappop(self._heap)
        return None

    def take(self, free: int | None = None) -> str | None:
        """The next key, which is being worked on from now on; None if none is ready.

        Of so many free workers; None: there are always more.
        """
        for namespace, keys in self._ready.items():
            if free is None or leaves_enough(self._held[namespace], free):
                key = next(iter(keys))
                del keys[key], self._ready[namespace]
                if keys:
                    # The others first.
                    self._ready[namespace] = keys
                self._working.add(key)
                self._held[namespace] += 1
                return key
        return None

    def done(self, key: str) -> None:
        """The work on a key has ended."""
        self._working.discard(key)
        namespace = self._owner(key)
        self._held[namespace] -= 1
        if not self._held[namespace]:
            del self._held[namespace]
        if key in self._again:
            self._again.discard(key)
            self._ready.setdefault(namespace, {})[key] = None

    @property
    def working(self) -> int:
        """How many keys are being worked on."""
        return len(self._working)
