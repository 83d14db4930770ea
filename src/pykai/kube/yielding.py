"""Long work on the event loop, in turns.

In a large cluster there are a hundred thousand of everything: pods of a list that came in one piece, binds of the first
plan, pods to be told why they wait.  Each costs microseconds, together they take seconds, and a loop that hangs for
seconds renews no lease and answers no probe.  `yielding_to_loop` lets everybody else work after every few.

Subtle: whatever was looked at before a turn may be out of date after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

#: items that cost some ten microseconds each
_YIELD_EVERY = 200


async def yielding_to_loop(items: Iterable[T], every: int = _YIELD_EVERY) -> AsyncIterator[T]:
    """The items, and after every few of them a turn for everybody else."""
    for number, item in enumerate(items, 1):
        yield item
        if number % every == 0:
            await asyncio.sleep(0)
