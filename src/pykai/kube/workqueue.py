"""Which keys are to be worked on next, without I/O and without a clock of its own.

A key stands in the queue at most once.  While it is being worked on it is not handed out again; if it is added in the
meantime, it comes back when the work is done.  Keys can be added for later; the earliest time holds, and adding a key
for now cancels its later time.
"""

from __future__ import annotations

import heapq


class WorkQueue:
    """First come, first served, each key once."""

    def __init__(self) -> None:
        # A dict is an ordered set.
        self._ready: dict[str, None] = {}
        self._working: set[str] = set()
        self._again: set[str] = set()
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: str) -> None:
        """Work on it as soon as possible."""
        self._due.pop(key, None)
        if key in self._working:
            self._again.add(key)
        else:
            self._ready[key] = None

    def add_at(self, key: str, due_s: float) -> None:
        """Work on it at that time, unless it is to be worked on earlier anyway."""
        if key in self._ready or key in self._again:
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

    def take(self) -> str | None:
        """The next key, which is being worked on from now on; None if none is ready."""
        for key in self._ready:
            del self._ready[key]
            self._working.add(key)
            return key
        return None

    def done(self, key: str) -> None:
        """The work on a key has ended."""
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._ready[key] = None

    @property
    def working(self) -> int:
        """How many keys are being worked on."""
        return len(self._working)
