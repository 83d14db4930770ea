"""Cluster time.

A simulated cluster may run faster than the wall: `Clock(speed=60)` lets a minute pass each second for everything that
asks this clock, and everything that belongs to the cluster does (services, simulated machines, timestamps of objects).
What protects against a dead peer stays on wall time and uses asyncio directly: HTTP time-outs, leases.

Subtle: machines are suspended, and their clocks are set.  Durations are measured so that neither matters.  The time of
a cluster that runs at the speed of the wall is the wall's, whatever happens to it, because it is compared with what API
servers write into objects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


def _wall() -> datetime:
    return datetime.now(UTC)


class Clock:
    """Time that starts now, unless told when, and runs at a constant speed."""

    def __init__(
        self, speed: float = 1.0, start: datetime | None = None, *, wall: Callable[[], datetime] = _wall
    ) -> None:
        if not speed > 0:
            raise ValueError(f"the speed of a clock must be more than 0, not {speed}")
        self.speed = speed
        self._wall = wall if speed == 1 and start is None else None
        self._start = start or wall()
        self._origin_s = time.monotonic()

    def elapsed_s(self) -> float:
        """Cluster seconds since the clock was made; never goes back."""
        return (time.monotonic() - self._origin_s) * self.speed

    def now(self) -> datetime:
        """The time of the cluster, UTC; may jump where the wall's does."""
        if self._wall is not None:
            return self._wall()
        return self._start + timedelta(seconds=self.elapsed_s())

    async def sleep(self, seconds: float) -> None:
        """Wait that many cluster seconds."""
        await asyncio.sleep(max(0.0, seconds) / self.speed)

    def wall_s(self, seconds: float) -> float:
        """How long that many cluster seconds are on the wall."""
        return seconds / self.speed


async def stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    """Wait that long by the wall, or until `stop` is set; returns whether it is."""
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True
