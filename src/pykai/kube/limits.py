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
_SHARE = 4


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


def leaves_enough(held: int, free: int) -> bool:
    """Whether one who holds so many slots may take another of those that are free; the first is never denied."""
    return free > 0 and (held == 0 or held + 1 <= _SHARE * (free - 1))


class Slots:
    """So many at a time, and never all of them for one and the same owner.

    First come, first served among those of one owner; owners who wait take turns.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._held: dict[str, int] = {}
        #: owner -> who waits; the owner whose turn is next stands first
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def of(self, owner: str) -> AsyncIterator[None]:
        """Hold a slot in the name of an owner, a namespace mostly, within the block."""
        if owner not in self._waiting and leaves_enough(self._held.get(owner, 0), self._free):
            self._take(owner)
        else:
            await self._turn(owner)
        try:
            yield
        finally:
            self._give_back(owner)

    async def _turn(self, owner: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(owner, turn)
            else:
                # The slot came at the same moment.
                self._give_back(owner)
            raise

    def _leave(self, owner: str, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(owner)
        if waiting is not None and turn in waiting:
            waiting.remove(turn)
            if not waiting:
                del self._waiting[owner]

    def _take(self, owner: str) -> None:
        self._free -= 1
        self._held[owner] = self._held.get(owner, 0) + 1

    def _give_back(self, owner: str) -> None:
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        while self._free and (lucky := self._next()) is not None:
            waiting = self._waiting.pop(lucky)
            turn = waiting.popleft()
            if waiting:
                self._waiting[lucky] = waiting
            # One who was cancelled has yet to hear of it.
            if not turn.done():
                self._take(lucky)
                turn.set_result(None)

    def _next(self) -> str | None:
        """The owner who waits, may take a slot, and has waited for his turn longest."""
        for owner in self._waiting:
            if leaves_enough(self._held.get(owner, 0), self._free):
                return owner
        return None
