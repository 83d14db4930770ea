"""How fetching usage goes (queues:15.2)."""

from __future__ import annotations

from pykai.api.duration import SECOND
from pykai.observe.metrics import Metrics

_MILLISECONDS = tuple(5.0 * 2**power for power in range(10))


class UsageMetrics:
    """Metrics of fetches."""

    def __init__(self, make: Metrics) -> None:
        self._latency = make.histogram(
            "usage_query_latency_milliseconds", "Milliseconds that a successful fetch of usage took", _MILLISECONDS
        )
        self._failures = make.counter("usage_fetch_failures", "Fetches of usage that failed")
        self._fetched = make.gauge(
            "usage_last_fetch_timestamp_seconds", "When usage was last fetched, in seconds since 1970; 0 = never"
        )
        self._staleness = make.gauge(
            "usage_staleness_period_seconds", "stalenessPeriod of usageDBConfig; 0 = usage does not count"
        )

    def set_staleness(self, staleness_ns: int) -> None:
        """Set the age at which usage no longer counts; 0 = it never does."""
        self._staleness.set(staleness_ns / SECOND)

    def forget_fetch(self) -> None:
        """Usage was dropped: nothing has been fetched since."""
        self._fetched.set(0)

    def observe_fetch(self, seconds: float, at_ns: int) -> None:
        """Record a successful fetch."""
        self._latency.observe(seconds * 1000.0)
        self._fetched.set(at_ns / SECOND)

    def count_failure(self) -> None:
        """Count a failed fetch."""
        self._failures.inc()
