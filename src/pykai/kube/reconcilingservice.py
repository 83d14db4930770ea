"""The skeleton of a service that reconciles: caches are filled, handlers subscribed once, keys worked on until the end.

A subclass makes its stores with `_need`, subscribes to them in `_subscribe`, enqueues keys with `self._reconciler`, and
looks at one key at a time in `_reconcile`.  A service may be run again after it has stopped, when its process leads for
the second time; it stays subscribed meanwhile.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

from pykai.kube.cachesync import wait_for_sync
from pykai.kube.events import EventRecorder
from pykai.kube.reconcile import Reconciler, reconcile_and_record_events
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store

T = TypeVar("T")


class ReconcilingService(ABC):
    """A service with one queue of keys; see the module."""

    #: as in logs and on the command line
    name: ClassVar[str]

    def __init__(self, runtime: Runtime, *, component: str, workers: int) -> None:
        """`component` is the source of its events."""
        self._client = runtime.client
        self._clock = runtime.clock
        self._recorder = EventRecorder(runtime.client, component=component, clock=runtime.clock)
        self._reconciler = Reconciler(
            self.name, self._reconcile, clock=runtime.clock, workers=workers, metrics=runtime.controllers
        )
        self._needed: list[Store[Any]] = []
        self._subscribing = False
        #: whether every object that was there at the start has been seen
        self._subscribed = False

    def _need(self, store: Store[T]) -> Store[T]:
        """Wait for this store before anything starts."""
        self._needed.append(store)
        return store

    def ready(self) -> bool:
        """Whether the caches are filled."""
        return all(store.synced.is_set() for store in self._needed)

    def idle(self) -> bool:
        """Whether every change that was seen has been dealt with."""
        return self._subscribed and self._reconciler.idle()

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until told to stop; what is in flight then is finished."""
        if not await wait_for_sync(self._needed, stop):
            return
        await self._wait_before_subscribing(stop)
        if not self._subscribing:
            self._subscribing = True
            await self._subscribe()
            self._subscribed = True
        await reconcile_and_record_events(self._reconciler, self._recorder, stop)

    async def _wait_before_subscribing(self, stop: asyncio.Event) -> None:
        """Wait for what is useful and not needed."""
        return

    @abstractmethod
    async def _subscribe(self) -> None:
        """Subscribe to the stores."""

    @abstractmethod
    async def _reconcile(self, key: str) -> float | None:
        """Make one object as it should be; the cluster seconds after which to look again, or None."""
