"""Time-based fair share: how much of the cluster each queue has used lately (queues:14).

The division of the surplus takes usage as a fraction of the cluster over a window (queues:Q-346, `waterfill.py`);
here is where such fractions come from.  `UsageStore` is what a source of usage must offer; `UsageHistory` is one in
memory, fed whenever allocations change, which makes Prometheus optional.

Allocations are steps: an amount holds from one record to the next.  Usage is the area under the steps over the area
under the capacity, both halved for every half-life that has passed since (queues:Q-337, Q-339).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Protocol

from pykai.api.duration import WEEK
from pykai.core.model.queuetree import RESOURCES
from pykai.core.queueing.cron import CronSchedule

#: CPU, memory, GPU; any unit, as long as usage and capacity have the same
UsageAmounts = tuple[float, float, float]

SLIDING, TUMBLING, CRON = "sliding", "tumbling", "cron"


@dataclass(frozen=True, slots=True)
class UsageWindow:
    """Which part of the past counts, and how much."""

    #: sliding: the last `size_ns`; tumbling: since the last multiple of it; cron: since the last occurrence
    kind: str = SLIDING
    size_ns: int = WEEK
    #: where tumbling windows are counted from
    start_ns: int = 0
    cron: CronSchedule | None = None
    #: usage counts half after this time; at or below zero = always in full
    half_life_ns: int = 0

    def begin_ns(self, now_ns: int) -> int:
        """Where the window of an instant begins (queues:Q-341)."""
        if self.kind == TUMBLING:
            if self.start_ns >= now_ns:
                return now_ns
            # On an exact boundary the window that just ended counts, never the empty one that begins.
            return self.start_ns + (now_ns - self.start_ns - 1) // self.size_ns * self.size_ns
        if self.kind == CRON and self.cron is not None:
            last = self.cron.last_before(now_ns)
            return now_ns if last is None else last
        return now_ns - self.size_ns

    def weight(self, begin_ns: int, end_ns: int, now_ns: int) -> float:
        """The length of a span in seconds, each moment halved for every half-life since."""
        if end_ns <= begin_ns:
            return 0.0
        if self.half_life_ns <= 0:
            return (end_ns - begin_ns) / 1e9
        half = self.half_life_ns
        late: float = 0.5 ** ((now_ns - end_ns) / half)
        early: float = 0.5 ** ((now_ns - begin_ns) / half)
        return half / 1e9 / log(2.0) * (late - early)


class UsageStore(Protocol):
    """Where historical usage comes from."""

    def usage(self, now_ns: int) -> Mapping[str, UsageAmounts]:
        """Queue -> fraction of the cluster it used: what `Policy.usage` takes; queues without usage may be left out."""


class UsageHistory:
    """Usage kept in memory."""

    def __init__(self, window: UsageWindow) -> None:
        self.window = window
        self._times: list[int] = []
        self._records: list[tuple[Mapping[str, UsageAmounts], UsageAmounts]] = []

    def __len__(self) -> int:
        return len(self._times)

    def record(self, at_ns: int, allocated: Mapping[str, UsageAmounts], capacity: UsageAmounts) -> None:
        """From this instant on the queues hold these amounts of this capacity.  Instants must not go back."""
        if self._times and at_ns < self._times[-1]:
            raise ValueError("usage is recorded in the order of time")
        entry = (dict(allocated), capacity)
        if self._records and self._records[-1] == entry:
            return
        if self._times and self._times[-1] == at_ns:
            self._records[-1] = entry
            return
        self._times.append(at_ns)
        self._records.append(entry)

    def forget(self, now_ns: int) -> None:
        """Drop records that no window will count again."""
        # The record in force when the window begins is still needed.
        keep = max(0, bisect_right(self._times, self.window.begin_ns(now_ns)) - 1)
        del self._times[:keep], self._records[:keep]

    def usage(self, now_ns: int) -> dict[str, UsageAmounts]:
        """Queue -> fraction of the cluster it used within the window."""
        begin = self.window.begin_ns(now_ns)
        used: dict[str, list[float]] = {}
        capacity = [0.0] * RESOURCES
        for index, (allocated, total) in enumerate(self._records):
            since = max(self._times[index], begin)
            until = min(self._times[index + 1] if index + 1 < len(self._times) else now_ns, now_ns)
            weight = self.window.weight(since, until, now_ns)
            if weight <= 0:
                continue
            for resource in range(RESOURCES):
                capacity[resource] += weight * total[resource]
            for queue, amounts in allocated.items():
                sums = used.setdefault(queue, [0.0] * RESOURCES)
                for resource in range(RESOURCES):
                    sums[resource] += weight * amounts[resource]
        return {queue: _fractions(sums, capacity) for queue, sums in sorted(used.items())}


def _fractions(sums: list[float], capacity: list[float]) -> UsageAmounts:
    """A resource the cluster does not have was not used (queues:Q-344)."""
    cpu, memory, gpu = (
        sums[resource] / capacity[resource] if capacity[resource] > 0 else 0.0 for resource in range(RESOURCES)
    )
    return (cpu, memory, gpu)
