"""Waits until caches are filled, or until the service stops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from pykai.kube.caches import Caches
from pykai.kube.store import Store


async def wait_for_sync(stores: Iterable[Store[Any]], stop: asyncio.Event, timeout_s: float | None = None) -> bool:
    """Wait until all stores have their first list; False if told to stop, or out of wall time, before."""
    all_synced = asyncio.ensure_future(_wait_for_all(list(stores)))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((all_synced, stopped), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return all_synced.done() and not stop.is_set()
    finally:
        stopped.cancel()
        all_synced.cancel()


async def wait_until_caught_up(caches: Caches, stores: Iterable[Store[Any]], stop: asyncio.Event) -> bool:
    """Wait until stores show what the last leader wrote: watches may be behind.  False if told to stop before."""
    catching_up = asyncio.ensure_future(caches.wait_until_caught_up(*stores))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((catching_up, stopped), return_when=asyncio.FIRST_COMPLETED)
        return catching_up.done() and catching_up.result() is None
    finally:
        catching_up.cancel()
        stopped.cancel()


async def _wait_for_all(stores: list[Store[Any]]) -> None:
    # A task, not asyncio.gather: a cancelled gather is logged as an error.
    for store in stores:
        await store.synced.wait()
