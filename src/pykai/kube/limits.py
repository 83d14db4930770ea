"""How fast and how wide a client may ask.

By default a client asks as fast as it can, with a bounded number of requests in flight, and lets the server say when
it is too much (429).  `--qps` and `--burst` put a token bucket before that, for installations that are used to them.
Watches are slow to end and do not count as in flight; beginning one takes a token like any request.

What is bounded can be used up.  A webhook that hangs, a volume that never comes: whoever waits for one holds his slot
for a minute, and one namespace has enough such work to hold all of them.  So slots are shared (`Slots`, and the same
rule in `workqueue`): a namespace may hold at most four times as many as remain for the others.

Time is wall time: this protects a server.

Statements: kube:limits.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

#: How many slots one may hold for each that remains free.  Totals are set so that one who is alone has enough of them.
_MAX_HELD_PER_FREE = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """`qps` None: no rate limit; `burst` 0: as many as `qps`, at least one."""

    qps: float | None = None
    burst: int = 0
    in_flight: int = 128

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
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._qps = qps
        self._burst = max(1, burst or int(qps))
        self._now = now
        self._sleep = sleep
        self._tokens = float(self._burst)
        self._at = now()

    async def take(self) -> None:
        """Wait for a token; debts are booked at once, so that waiting callers do not overtake each other."""
        moment = self._now()
        self._tokens = min(float(self._burst), self._tokens + (moment - self._at) * self._qps)
        self._at = moment
        self._tokens -= 1
        if self._tokens < 0:
            await self._sleep(-self._tokens / self._qps)


def may_take_slot(held: int, free: int) -> bool:
    """Whether one who holds so many slots may take another of those that are free; the first is never denied."""
    return free > 0 and (held == 0 or held + 1 <= _MAX_HELD_PER_FREE * (free - 1))


class FairSemaphore:
    """So many at a time, and never all of them for one and the same owner.

    First come, first served among those of one owner; owners who wait take turns.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._held: dict[str, int] = {}
        #: owner -> who waits; the owner whose turn is next stands first
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def slot(self, namespace: str) -> AsyncIterator[None]:
        """Hold a slot in the name of an owner, a namespace mostly, within the block."""
        if namespace not in self._waiting and may_take_slot(self._held.get(namespace, 0), self._free):
            self._take(namespace)
        else:
            await self._wait_for_slot(namespace)
        try:
            yield
        finally:
            self._release(namespace)

    async def _wait_for_slot(self, namespace: str) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._stop_waiting(namespace, granted)
            else:
                # The slot came at the same moment.
                self._release(namespace)
            raise

    def _stop_waiting(self, namespace: str, granted: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(namespace)
        if waiting is not None and granted in waiting:
            waiting.remove(granted)
            if not waiting:
                del self._waiting[namespace]

    def _take(self, namespace: str) -> None:
        self._free -= 1
        self._held[namespace] = self._held.get(namespace, 0) + 1

    def _release(self, namespace: str) -> None:
        self._free += 1
        self._held[namespace] -= 1
        if not self._held[namespace]:
            del self._held[namespace]
        while self._free and (next_namespace := self._next_namespace()) is not None:
            waiting = self._waiting.pop(next_namespace)
            granted = waiting.popleft()
            if waiting:
                self._waiting[next_namespace] = waiting
            # One who was cancelled has yet to hear of it.
            if not granted.done():
                self._take(next_namespace)
                granted.set_result(None)

    def _next_namespace(self) -> str | None:
        """The owner who waits, may take a slot, and has waited for his turn longest."""
        for namespace in self._waiting:
            if may_take_slot(self._held.get(namespace, 0), self._free):
                return namespace
        return None
