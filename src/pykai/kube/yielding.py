"""Long work on the event loop, in turns.

In a large cluster there are a hundred thousand of everything: pods of a list that came in one piece, binds of the first
plan, pods to be told why they wait.  Each costs microseconds, together they take seconds, and a loop that hangs for
seconds renews no lease and answers no probe.  `in_turns` lets everybody else work after every few.

Subtle: whatever was looked at before a turn may be out of date after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

#: items that cost some ten microseconds each
_AT_A_TIME = 200


async def in_turns(items: Iterable[T], at_a_time: int = _AT_A_TIME) -> AsyncIterator[T]:
    """The items, and after every few of them a turn for everybody else."""
    for number, item in enumerate(items, 1):
        yield item
        if number % at_a_time == 0:
            await asyncio.sleep(0)
