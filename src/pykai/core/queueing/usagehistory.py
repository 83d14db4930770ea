"""Time-based fair share: how much of the cluster each queue has used lately (queues:14).

The division of the surplus takes usage as a fraction of the cluster over a window (queues:Q-346, `waterfill.py`);
here is where such fractions come from when no database is asked.  `UsageHistory` is fed whenever allocations change and
keeps areas (amount times seconds) in spans of time.

Allocations are steps: an amount holds from one record to the next.  Usage is the area under the steps over the area
under the capacity, both halved for every half-life that has passed since (queues:Q-337, Q-339).

Subtle:
- The older a span, the longer it may be: neighbours are joined while their joint length is at most their age over
  `fineness`.  So the number of spans grows with the logarithm of the time they cover, and what a window cuts off at its
  far end is known to one part in `fineness` of the window.
- Spans hold areas and not averages.  Time in which nothing was recorded counts neither as use nor as capacity, also
  where spans were joined across it.

Statements: usage:bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log
from typing import NamedTuple

from pykai.api.duration import MINUTE, SECOND, WEEK
from pykai.core.model.queuetree import RESOURCES
from pykai.core.queueing.cron import CronSchedule

#: CPU, memory, GPU; any unit, as long as usage and capacity have the same
UsageAmounts = tuple[float, float, float]

SLIDING, TUMBLING, CRON = "sliding", "tumbling", "cron"

#: how many times longer ago than long a span is, at least, when it is joined with its neighbour
FINENESS = 32
#: spans that are together shorter than this are joined at once
_SHORTEST_NS = MINUTE


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


class UsageSpan(NamedTuple):
    """What queues held in a span of time, and what there was: amounts times seconds."""

    begin_ns: int
    end_ns: int
    capacity: UsageAmounts
    #: queue -> area; queues that held nothing are left out
    allocated: Mapping[str, UsageAmounts]

    def joined(self, other: UsageSpan) -> UsageSpan:
        """This span and the one after it as one."""
        allocated = dict(self.allocated)
        for queue, area in other.allocated.items():
            allocated[queue] = _sum(allocated.get(queue, _NOTHING), area)
        return UsageSpan(self.begin_ns, other.end_ns, _sum(self.capacity, other.capacity), allocated)

    def until(self, end_ns: int) -> UsageSpan:
        """The part before an instant within the span."""
        part = (end_ns - self.begin_ns) / (self.end_ns - self.begin_ns)
        allocated = {queue: _times(area, part) for queue, area in self.allocated.items()}
        return UsageSpan(self.begin_ns, end_ns, _times(self.capacity, part), allocated)


class _Step(NamedTuple):
    """What holds since an instant."""

    begin_ns: int
    allocated: Mapping[str, UsageAmounts]
    capacity: UsageAmounts

    def span(self, end_ns: int) -> UsageSpan:
        seconds = (end_ns - self.begin_ns) / SECOND
        allocated = {queue: _times(amounts, seconds) for queue, amounts in self.allocated.items()}
        return UsageSpan(self.begin_ns, end_ns, _times(self.capacity, seconds), allocated)


class UsageHistory:
    """What queues have held, in memory."""

    def __init__(self, spans: Iterable[UsageSpan] = (), fineness: int = FINENESS) -> None:
        #: at least 1; lower means fewer spans
        self.fineness = fineness
        self._spans = list(spans)
        self._step: _Step | None = None

    def record(self, at_ns: int, allocated: Mapping[str, UsageAmounts], capacity: UsageAmounts) -> None:
        """From this instant on the queues hold these amounts of this capacity.

        What was recorded for later instants is dropped: the clock was wrong then, or is now.
        """
        held = {queue: amounts for queue, amounts in allocated.items() if any(amounts)}
        step = self._step
        if step is not None and step.begin_ns < at_ns and (step.allocated, step.capacity) == (held, capacity):
            return
        self.close(at_ns)
        self._step = _Step(at_ns, held, capacity)

    def close(self, at_ns: int) -> None:
        """From this instant on nothing is known, until the next record."""
        step, self._step = self._step, None
        if step is not None and step.begin_ns < at_ns:
            self._append(step.span(at_ns))
        while self._spans and self._spans[-1].end_ns > at_ns:
            last = self._spans.pop()
            if last.begin_ns < at_ns:
                self._spans.append(last.until(at_ns))

    def _append(self, span: UsageSpan) -> None:
        if self._spans and span.end_ns - self._spans[-1].begin_ns <= _SHORTEST_NS:
            self._spans[-1] = self._spans[-1].joined(span)
        else:
            self._spans.append(span)

    def prepend(self, older: Iterable[UsageSpan]) -> None:
        """Add what was recorded before the first record of this history."""
        before = UsageHistory(older)
        if (begin_ns := self._begin_ns()) is not None:
            before.close(begin_ns)
        self._spans[:0] = before._spans

    def _begin_ns(self) -> int | None:
        if self._spans:
            return self._spans[0].begin_ns
        return None if self._step is None else self._step.begin_ns

    def compact(self, now_ns: int) -> None:
        """Join old spans (usage:bounds)."""
        self._spans = list(compacted(self._spans, now_ns, self.fineness))

    def forget(self, before_ns: int) -> None:
        """Drop the spans that ended before an instant."""
        self._spans = [span for span in self._spans if span.end_ns > before_ns]

    def spans(self, now_ns: int) -> tuple[UsageSpan, ...]:
        """All spans, the last up to now."""
        step = self._step
        return (*self._spans, step.span(now_ns)) if step is not None and step.begin_ns < now_ns else tuple(self._spans)


def compacted(spans: Iterable[UsageSpan], now_ns: int, fineness: int) -> list[UsageSpan]:
    """Spans of which no two neighbours are together shorter than their age over `fineness`, where that is possible."""
    kept: list[UsageSpan] = []
    for span in spans:
        if kept and (span.end_ns - kept[-1].begin_ns) * fineness <= now_ns - span.end_ns:
            kept[-1] = kept[-1].joined(span)
        else:
            kept.append(span)
    return kept


def usage_within(spans: Iterable[UsageSpan], window: UsageWindow, now_ns: int) -> dict[str, UsageAmounts]:
    """Queue -> fraction of the cluster it used within the window: what `Policy.usage` takes (queues:Q-335)."""
    begin_ns = window.begin_ns(now_ns)
    used: dict[str, UsageAmounts] = {}
    capacity = _NOTHING
    for span in spans:
        seconds = window.weight(max(span.begin_ns, begin_ns), min(span.end_ns, now_ns), now_ns)
        if seconds <= 0:
            continue
        part = seconds * SECOND / (span.end_ns - span.begin_ns)
        capacity = _sum(capacity, _times(span.capacity, part))
        for queue, area in span.allocated.items():
            used[queue] = _sum(used.get(queue, _NOTHING), _times(area, part))
    return {queue: fractions(area, capacity) for queue, area in sorted(used.items())}


def fractions(used: UsageAmounts, capacity: UsageAmounts) -> UsageAmounts:
    """Used over capacity; a resource that the cluster does not have was not used (queues:Q-344)."""
    cpu, memory, gpu = (
        used[resource] / capacity[resource] if capacity[resource] > 0 else 0.0 for resource in range(RESOURCES)
    )
    return (cpu, memory, gpu)


_NOTHING: UsageAmounts = (0.0, 0.0, 0.0)


def _sum(one: UsageAmounts, other: UsageAmounts) -> UsageAmounts:
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2])


def _times(amounts: UsageAmounts, factor: float) -> UsageAmounts:
    return (amounts[0] * factor, amounts[1] * factor, amounts[2] * factor)
