"""Waiting for a change of one object.

A store delivers every change to every subscriber; the binder waits for a few objects out of thousands. `ChangeWaiters`
is one subscription that wakes only the waiters of the changed object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from pykai.kube.clock import Clock
from pykai.kube.store import Change, Store

T = TypeVar("T")


class ChangeWaiters(Generic[T]):
    """Wakes on changes of chosen objects of a store."""

    def __init__(self, store: Store[T]) -> None:
        self.store = store
        self._events: dict[str, list[asyncio.Event]] = {}
        store.subscribe(self._on_change)

    def _on_change(self, change: Change[T]) -> None:
        for event in self._events.get(change.key, ()):
            event.set()

    @contextmanager
    def notify(self, key: str, event: asyncio.Event) -> Iterator[None]:
        """Set the event at each change of the object, within the block."""
        self._events.setdefault(key, []).append(event)
        try:
            yield
        finally:
            events = self._events[key]
            events.remove(event)
            if not events:
                del self._events[key]


async def cancel_all(*tasks: asyncio.Future[Any]) -> None:
    """Cancel unfinished tasks and wait for all of them, whatever their outcome."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def wait_until(event: asyncio.Event, clock: Clock, until_s: float) -> bool:
    """Wait for the event until the cluster clock shows `until_s` (elapsed); False when that comes first."""
    remaining_s = until_s - clock.elapsed_s()
    if remaining_s <= 0:
        return event.is_set()
    try:
        async with asyncio.timeout(clock.wall_s(remaining_s)):
            await event.wait()
    except TimeoutError:
        return False
    return True
