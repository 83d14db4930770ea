"""How fast and how wide a client may ask.

By default a client asks as fast as it can, with a bounded number of requests in flight, and lets the server say when
it is too much (429).  `--qps` and `--burst` put a token bucket before that, for installations that are used to them.
Watches are slow to end and do not count as in flight; beginning one takes a token like any request.

Time is wall time: this protects a server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """`qps` None: no rate limit; `burst` 0: as many as `qps`, at least one."""

    qps: float | None = None
    burst: int = 0
    in_flight: int = 100

    def __post_init__(self) -> None:
        if self.qps is not None and not self.qps > 0:
            raise ValueError(f"qps must be more than 0, not {self.qps}; leave it out for no limit")
        if self.burst < 0:
            raise ValueError(f"burst must not be negative, got {self.burst}")
        if self.in_flight < 1:
            raise ValueError(f"at least one request must be allowed in flight, got {self.in_flight}")


class TokenBucket:
    """`take` returns at once while there are tokens, and in order of arrival as they come back afterwards."""

    def __init__(
        self,
        qps: float,
        burst: int,
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._qps = qps
        self._burst = max(1, burst or int(qps))
        self._now = now
        self._pause = pause
        self._tokens = float(self._burst)
        self._at = now()

    async def take(self) -> None:
        """Wait for a token; debts are booked at once, so that waiting callers do not overtake each other."""
        moment = self._now()
        self._tokens = min(float(self._burst), self._tokens + (moment - self._at) * self._qps)
        self._at = moment
        self._tokens -= 1
        if self._tokens < 0:
            await self._pause(-self._tokens / self._qps)
