"""Limits of a client: requests in flight, and requests a second.

By default only the number of requests in flight is bounded, and the server throttles with 429.  `--qps` and `--burst`
add a token bucket for installations that rely on one.  Watches do not count as in flight; starting one takes a token
like any request.

A bounded resource can be exhausted.  A request that waits for a hanging webhook holds its slot for a minute, and one
namespace can cause enough of them to hold every slot.  So slots are shared (`FairSemaphore`, and the same rule in
`workqueue`): a namespace may hold at most four times as many slots as remain free.

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

#: Slots that one owner may hold for each that remains free.  Totals are large enough for a single owner.
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
    """`take` returns at once while there are tokens, later in order of arrival as they are refilled."""

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
        """Wait for a token; the debt is booked at once, so waiting callers do not overtake each other."""
        moment = self._now()
        self._tokens = min(float(self._burst), self._tokens + (moment - self._at) * self._qps)
        self._at = moment
        self._tokens -= 1
        if self._tokens < 0:
            await self._sleep(-self._tokens / self._qps)


def may_take_slot(held: int, free: int) -> bool:
    """Whether an owner of so many slots may take another free one; the first is never denied."""
    return free > 0 and (held == 0 or held + 1 <= _MAX_HELD_PER_FREE * (free - 1))


class FairSemaphore:
    """A number of slots that one owner can never exhaust.

    First come, first served within an owner; owners that wait take turns.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._held: dict[str, int] = {}
        #: owner -> its waiters; the owner whose turn is next comes first
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
            # A cancelled waiter has not removed itself yet.
            if not granted.done():
                self._take(next_namespace)
                granted.set_result(None)

    def _next_namespace(self) -> str | None:
        """The owner that may take a slot and has waited longest for its turn."""
        for namespace in self._waiting:
            if may_take_slot(self._held.get(namespace, 0), self._free):
                return namespace
        return None
