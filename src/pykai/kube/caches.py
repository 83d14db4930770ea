"""The stores of a process, each with the watch that fills it.

Services ask for stores by resource, type and selection; equal questions give the same store, so that services in one
process watch and decode a kind once.  Stores asked for before `start` begin together, later ones at once.

Subtle: what a watch cannot survive (the server no longer knows us) ends the process, not the watch: `failed` raises it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, TypeVar, cast

from pykai.kube.client import Client
from pykai.kube.errors import KubeError
from pykai.kube.resources import Resource
from pykai.kube.store import Store
from pykai.kube.watch import Follower, Patience, Selection

T = TypeVar("T")

log = logging.getLogger(__name__)


class Caches:
    """Stores shared by the services of a process."""

    def __init__(self, client: Client, *, patience: Patience | None = None) -> None:
        self._client = client
        self._patience = patience
        self._stores: dict[tuple[Selection, type[Any]], Store[Any]] = {}
        self._followers: dict[tuple[Selection, type[Any]], Follower] = {}
        self._tasks: dict[asyncio.Task[None], Follower] = {}
        self._running = False
        self._failure: KubeError | None = None
        self._failed = asyncio.Event()

    def store(
        self,
        resource: Resource,
        into: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        optional: bool = False,
    ) -> Store[T]:
        """The store for this question; `optional`: a kind that the server does not have counts as empty."""
        selection = Selection(resource, namespace, label_selector, field_selector)
        question = (selection, into)
        known = self._stores.get(question)
        if known is not None:
            if not optional:
                self._followers[question].optional = False
            return cast("Store[T]", known)
        store = Store(resource, into)
        follower = Follower(self._client, selection, store, optional=optional, patience=self._patience)
        self._stores[question] = store
        self._followers[question] = follower
        if self._running:
            self._begin(follower)
        return store

    async def start(self) -> None:
        """Begin to watch; returns at once."""
        if self._running:
            return
        self._running = True
        for follower in self._followers.values():
            self._begin(follower)

    async def synced(self) -> None:
        """Wait until every store has its first list; raises what makes that impossible."""
        for store in list(self._stores.values()):
            ready = asyncio.ensure_future(store.synced.wait())
            broken = asyncio.ensure_future(self._failed.wait())
            try:
                await asyncio.wait((ready, broken), return_when=asyncio.FIRST_COMPLETED)
            finally:
                ready.cancel()
                broken.cancel()
            if not store.synced.is_set() and self._failure is not None:
                raise self._failure

    def all_synced(self) -> bool:
        """Whether every store has its first list."""
        return all(store.synced.is_set() for store in self._stores.values())

    async def failed(self) -> None:
        """Wait for something no watch can survive, and raise it: a process should end on it."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    async def stop(self) -> None:
        """End all watches; the stores stay readable."""
        self._running = False
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, follower: Follower) -> None:
        task = asyncio.get_running_loop().create_task(follower.run())
        self._tasks[task] = follower
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        follower = self._tasks.pop(task)
        if task.cancelled():
            return
        failure = task.exception()
        if isinstance(failure, KubeError):
            log.error("a watch cannot go on: %s", failure)
            self._failure = self._failure or failure
            self._failed.set()
        elif failure is not None:
            # A mistake of ours in one watch: say it, and start that watch over.
            log.error("a watch ended by mistake and begins again", exc_info=failure)
            if self._running:
                asyncio.get_running_loop().call_later(1.0, self._begin_again, follower)

    def _begin_again(self, follower: Follower) -> None:
        if self._running:
            self._begin(follower)
