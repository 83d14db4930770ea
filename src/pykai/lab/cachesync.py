"""Waits for caches, and for the signal to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from pykai.kube.store import Store


async def wait_for_cache_sync(stop: asyncio.Event, *stores: Store[Any]) -> bool:
    """Wait until the stores have their first lists; False if `stop` is set before."""
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(_all_synced(stores)), asyncio.ensure_future(stop.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return not stop.is_set()


async def _all_synced(stores: Iterable[Store[Any]]) -> None:
    for store in stores:
        await store.synced.wait()
