"""Queue of keys to work on, without I/O and without a clock of its own.

A key is in the queue at most once.  While it is being worked on it is not handed out again; if it is added in the
meantime, it comes back when the work is done.  Keys can be added for later; the earliest time holds, and adding a key
for now cancels its later time.

Work may hang, and one namespace may have any amount of it.  So namespaces take turns, and each leaves workers for the
others (`limits.may_take_slot`).  A key without a namespace counts as a namespace of its own.

Statements: kube:reconcile.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable

from pykai.api.keys import split_key
from pykai.kube.limits import may_take_slot


def namespace_of(key: str) -> str:
    """The namespace of `namespace/name`, or the name where there is none."""
    namespace, name = split_key(key)
    return namespace or name


class WorkQueue:
    """First come, first served within a namespace, each key once; `namespace_of_key` gives the namespace of a key."""

    def __init__(self, namespace_of_key: Callable[[str], str] = namespace_of) -> None:
        self._namespace_of_key = namespace_of_key
        #: namespace -> its keys; a dict is an ordered set
        self._ready: dict[str, dict[str, None]] = {}
        self._processing: set[str] = set()
        #: namespace -> how many of its keys are being worked on
        self._processing_by_namespace: Counter[str] = Counter()
        self._dirty: set[str] = set()
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return sum(map(len, self._ready.values()))

    def add(self, key: str) -> None:
        """Work on it as soon as possible."""
        self._due.pop(key, None)
        if key in self._processing:
            self._dirty.add(key)
        else:
            self._ready.setdefault(self._namespace_of_key(key), {})[key] = None

    def add_at(self, key: str, due_s: float) -> None:
        """Work on it at that time, unless it is due earlier."""
        if key in self._dirty or key in self._ready.get(self._namespace_of_key(key), ()):
            return
        current_due_s = self._due.get(key)
        if current_due_s is not None and current_due_s <= due_s:
            return
        self._due[key] = due_s
        heapq.heappush(self._heap, (due_s, key))

    def promote_due(self, now_s: float) -> None:
        """Move due keys to the ready ones."""
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

    def get(self, free: int | None = None) -> str | None:
        """The next key, marked as being worked on; None if none is ready.

        `free` is the number of free workers, None for no limit.
        """
        for namespace, keys in self._ready.items():
            if free is None or may_take_slot(self._processing_by_namespace[namespace], free):
                key = next(iter(keys))
                del keys[key], self._ready[namespace]
                if keys:
                    # Other namespaces first.
                    self._ready[namespace] = keys
                self._processing.add(key)
                self._processing_by_namespace[namespace] += 1
                return key
        return None

    def done(self, key: str) -> None:
        """The work on a key has ended."""
        self._processing.discard(key)
        namespace = self._namespace_of_key(key)
        self._processing_by_namespace[namespace] -= 1
        if not self._processing_by_namespace[namespace]:
            del self._processing_by_namespace[namespace]
        if key in self._dirty:
            self._dirty.discard(key)
            self._ready.setdefault(namespace, {})[key] = None

    @property
    def processing(self) -> int:
        """How many keys are being worked on."""
        return len(self._processing)
