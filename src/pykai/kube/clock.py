"""Cluster time.

A simulated cluster may run faster than the wall: `Clock(speed=60)` lets a minute pass each second for everything that
asks this clock, and everything that belongs to the cluster does (services, simulated machines, timestamps of objects).
What protects against a dead peer stays on wall time and uses asyncio directly: HTTP time-outs, leases.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta


class Clock:
    """Time that starts now and runs at a constant speed."""

    def __init__(self, speed: float = 1.0, start: datetime | None = None) -> None:
        if not speed > 0:
            raise ValueError(f"the speed of a clock must be more than 0, not {speed}")
        self.speed = speed
        self._start = start or datetime.now(UTC)
        self._origin_s = time.monotonic()

    def elapsed_s(self) -> float:
        """Cluster seconds since the clock was made; never goes back."""
        return (time.monotonic() - self._origin_s) * self.speed

    def now(self) -> datetime:
        """The time of the cluster, UTC."""
        return self._start + timedelta(seconds=self.elapsed_s())

    async def sleep(self, seconds: float) -> None:
        """Wait that many cluster seconds."""
        await asyncio.sleep(max(0.0, seconds) / self.speed)

    def wall_s(self, seconds: float) -> float:
        """How long that many cluster seconds are on the wall."""
        return seconds / self.speed
