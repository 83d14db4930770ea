"""Counts calls and turns of the event loop, for work that must not grow with the size of the cluster."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from cProfile import Profile
from types import FrameType


def count_calls(work: Callable[[], object]) -> int:
    """How many functions are called.

    The garbage collector waits: what it calls when it finds garbage of earlier tests is not part of the work.
    """
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before, collecting = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        if isinstance(before, Profile):
            # A profiler in C cannot be set again as a function.
            before.enable()
        else:
            sys.setprofile(before)
        if collecting:
            gc.enable()
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
