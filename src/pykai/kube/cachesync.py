"""Waiting for caches without missing the word to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from pykai.kube.caches import Caches
from pykai.kube.store import Store


async def first_lists(stores: Iterable[Store[Any]], stop: asyncio.Event, timeout_s: float | None = None) -> bool:
    """Wait until all stores have their first list; False if told to stop, or out of wall time, before."""
    everything = asyncio.ensure_future(_all_first_lists(list(stores)))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((everything, stopped), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return everything.done() and not stop.is_set()
    finally:
        stopped.cancel()
        everything.cancel()


async def caught_up(caches: Caches, stores: Iterable[Store[Any]], stop: asyncio.Event) -> bool:
    """Wait until stores show what the last leader wrote: watches may be behind.  False if told to stop before."""
    seen = asyncio.ensure_future(caches.catch_up(*stores))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((seen, stopped), return_when=asyncio.FIRST_COMPLETED)
        return seen.done() and seen.result() is None
    finally:
        seen.cancel()
        stopped.cancel()


async def _all_first_lists(stores: list[Store[Any]]) -> None:
    # In a task of its own and not by asyncio.gather: one of those that is cancelled is logged as an error.
    for store in stores:
        await store.synced.wait()
