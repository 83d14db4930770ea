"""Gangs that wait, in the order of their queues, during the trials of the eviction actions.

In a trial only the preemptor and its victims are placed.  The other waiting gangs are never served, but they stay in
line: a queue is compared by the best gang of its line (cycle:ORD-2, PERF-5).  The lines are sorted once and kept up to
date; a trial reads them with a cursor, and skips gangs with equal requests in one step.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Any

from pykai.core import caching
from pykai.core.cycle.cyclegangs import CycleGangs
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.state import State
from pykai.core.model.queuetree import QueueAmounts

WaitingKey = tuple[Any, ...]


class WaitingLine:
    """Gangs that wait in one leaf queue, best first."""

    __slots__ = ("_request_changes", "gangs", "keys", "requests")

    def __init__(self) -> None:
        self.keys: list[WaitingKey] = []
        self.gangs: list[Gang] = []
        #: what each requests of its queue
        self.requests: list[QueueAmounts] = []
        self._request_changes: list[int] | None = None

    def insert(self, key: WaitingKey, gang: Gang, request: QueueAmounts) -> None:
        """Insert a gang in order."""
        position = bisect_left(self.keys, key)
        self.keys.insert(position, key)
        self.gangs.insert(position, gang)
        self.requests.insert(position, request)
        self._request_changes = None

    def remove(self, key: WaitingKey) -> None:
        """Remove a gang."""
        position = bisect_left(self.keys, key)
        del self.keys[position], self.gangs[position], self.requests[position]
        self._request_changes = None

    def next_request_change(self, position: int) -> int:
        """The first position after this one with another request."""
        changes = self._request_changes
        if changes is None:
            requests = self.requests
            changes = [here for here in range(1, len(requests)) if requests[here] != requests[here - 1]]
            if caching.enabled:
                self._request_changes = changes
        following = bisect_right(changes, position)
        return changes[following] if following < len(changes) else len(self.requests)


EMPTY_LINE = WaitingLine()


class WaitingLines:
    """Waiting gangs by leaf queue."""

    def __init__(self, state: State, gangs: CycleGangs) -> None:
        self._state = state
        self._gangs = gangs
        self.lines: dict[int, WaitingLine] = {}
        #: the queues by the best gangs of their lines; None = they have to be ranked for each walk
        self.ranks = gangs.kept_ranks()
        self._keys: dict[str, WaitingKey] = {}
        tree = state.snapshot.tree
        waiting = [
            (gangs.compute_order_key(gang), gang)
            for gang in gangs.waiting()
            if gang.queue >= 0 and not tree.children[gang.queue] and gangs.next_tasks(gang)
        ]
        waiting.sort(key=lambda item: item[0])
        for key, gang in waiting:
            self._keys[gang.key] = key
            line = self.lines.setdefault(gang.queue, WaitingLine())
            line.keys.append(key)
            line.gangs.append(gang)
            line.requests.append(gangs.requested_amounts(gang))
        self._repair_ranks(self.lines)

    def _first_request(self, leaf: int) -> QueueAmounts | None:
        line = self.lines.get(leaf)
        return line.requests[0] if line is not None and line.requests else None

    def _repair_ranks(self, changed: Iterable[int]) -> None:
        if self.ranks is not None:
            for leaf in changed:
                self.ranks.mark(leaf)
            self.ranks.repair(self._first_request, self._state.version)

    def largest_request(self) -> QueueAmounts:
        """The most of each resource that some gang requests at once."""
        cpu = memory = gpu = 0.0
        for line in self.lines.values():
            for request in line.requests:
                cpu, memory, gpu = max(cpu, request[0]), max(memory, request[1]), max(gpu, request[2])
        return cpu, memory, gpu

    def refresh(self, changed: Iterable[Gang]) -> None:
        """Move gangs to their present places."""
        gangs = list(changed)
        for gang in gangs:
            self._move(gang)
        self._repair_ranks({gang.queue for gang in gangs if gang.queue in self.lines})

    def _move(self, gang: Gang) -> None:
        before = self._keys.pop(gang.key, None)
        if before is not None:
            self.lines[gang.queue].remove(before)
        if gang.unplaced and self._gangs.next_tasks(gang):
            key = self._keys[gang.key] = self._gangs.compute_order_key(gang)
            line = self.lines.setdefault(gang.queue, WaitingLine())
            line.insert(key, gang, self._gangs.requested_amounts(gang))


class TrialLine:
    """The line of one leaf in a trial: the participants, among gangs that only wait."""

    __slots__ = ("_gangs", "_line", "_next", "_participant_heap", "_participants", "_request_overrides")

    def __init__(
        self,
        gangs: CycleGangs,
        line: WaitingLine,
        participants: dict[str, Gang],
        request_overrides: dict[str, QueueAmounts],
    ) -> None:
        """`request_overrides` replaces the requests of some participants."""
        self._gangs = gangs
        self._line = line
        self._participants = participants
        self._request_overrides = request_overrides
        self._next = 0
        self._participant_heap = [(gangs.compute_order_key(gang), gang) for gang in participants.values()]
        heapify(self._participant_heap)

    def push(self, gang: Gang) -> None:
        """Put a participant back."""
        heappush(self._participant_heap, (self._gangs.compute_order_key(gang), gang))

    def _first_bystander(self) -> int | None:
        """The position of the best of the other gangs, if it is before all participants."""
        line = self._line
        while self._next < len(line.gangs):
            if self._participant_heap and line.keys[self._next] > self._participant_heap[0][0]:
                return None
            if line.gangs[self._next].key not in self._participants:
                return self._next
            self._next += 1
        return None

    def head_request(self) -> QueueAmounts | None:
        """The request of the best gang."""
        position = self._first_bystander()
        if position is not None:
            return self._line.requests[position]
        if not self._participant_heap:
            return None
        gang = self._participant_heap[0][1]
        request = self._request_overrides.get(gang.key)
        return request if request is not None else self._gangs.requested_amounts(gang)

    def pop(self) -> Gang | None:
        """Remove the best gang, None for bystanders; gangs with equal requests go together."""
        position = self._first_bystander()
        if position is None:
            return heappop(self._participant_heap)[1]
        self._next = self._line.next_request_change(position)
        if self._participant_heap:
            self._next = min(self._next, bisect_left(self._line.keys, self._participant_heap[0][0]))
        return None
