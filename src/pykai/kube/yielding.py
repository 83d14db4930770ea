"""Long loops that yield to the event loop.

A large cluster has a hundred thousand pods to list, bind or explain.  Each costs microseconds, together they take
seconds, and an event loop that is blocked for seconds renews no lease and answers no probe.  `yielding_to_loop` yields
after every few items.

Subtle: anything read before a yield may be out of date after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

#: items that cost some ten microseconds each
_YIELD_EVERY = 200


async def yielding_to_loop(items: Iterable[T], every: int = _YIELD_EVERY) -> AsyncIterator[T]:
    """The items, yielding to the event loop after every few."""
    for number, item in enumerate(items, 1):
        yield item
        if number % every == 0:
            await asyncio.sleep(0)
