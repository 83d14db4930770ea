"""Counts calls and turns of the event loop, for work that must not grow with the size of the cluster."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from types import FrameType


def count_calls(work: Callable[[], object]) -> int:
    """How many functions are called."""
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


async def count_loop_turns(work: Awaitable[object]) -> int:
    """How many turns other tasks get before this ends."""
    count = 0

    async def others() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(others())
    try:
        await work
    finally:
        beside.cancel()
    return count
