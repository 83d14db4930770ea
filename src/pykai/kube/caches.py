"""The stores of a process, each with the watch that fills it.

Services ask for stores by resource, type and selection.  Equal requests share a store, so services in one process watch
and decode a kind once.  Stores requested before `start` begin together, later ones at once.

Subtle: an error that no watch can survive (rejected credentials) ends the process; `wait_for_failure` raises it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

from pykai.kube.client import Client
from pykai.kube.decoding import ResourceDecoder
from pykai.kube.errors import CredentialsError, KubeError, Unauthorized
from pykai.kube.reflector import Reflector, WatchSelection, WatchTimeouts
from pykai.kube.resources import Resource
from pykai.kube.store import Store

T = TypeVar("T")

log = logging.getLogger(__name__)

#: wall seconds between checks while waiting for a watch
_POLL_S = 1.0


class Caches:
    """Stores shared by the services of a process."""

    def __init__(self, client: Client, *, timeouts: WatchTimeouts | None = None) -> None:
        self._client = client
        self._timeouts = timeouts
        self._stores: dict[tuple[WatchSelection, type[Any]], Store[Any]] = {}
        self._reflectors: dict[tuple[WatchSelection, type[Any]], Reflector] = {}
        self._tasks: dict[asyncio.Task[None], Reflector] = {}
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
        absent_pause_s: float | None = None,
        metadata_only: bool = False,
    ) -> Store[T]:
        """The store for this selection; with `optional`, a kind that the server does not have counts as empty.

        `absent_pause_s`: the least wall seconds until such a kind is looked for again.
        `metadata_only`: the content of the objects is not asked for; `into` must need nothing but their metadata.
        """
        selection = WatchSelection(resource, namespace, label_selector, field_selector, metadata_only)
        store_key = (selection, into)
        existing = self._stores.get(store_key)
        if existing is not None:
            if not optional:
                self._reflectors[store_key].optional = False
            return cast("Store[T]", existing)
        store = Store(resource, into)
        reflector = Reflector(
            self._client, selection, store, optional=optional, absent_pause_s=absent_pause_s, timeouts=self._timeouts
        )
        self._stores[store_key] = store
        self._reflectors[store_key] = reflector
        if self._running:
            self._start_reflector(reflector)
        return store

    async def start(self) -> None:
        """Begin to watch; returns at once."""
        if self._running:
            return
        self._running = True
        for reflector in self._reflectors.values():
            self._start_reflector(reflector)

    async def wait_for_sync(self) -> None:
        """Wait until every store has its first list; raises what makes that impossible."""
        for store in list(self._stores.values()):
            ready = asyncio.ensure_future(store.synced.wait())
            failed = asyncio.ensure_future(self._failed.wait())
            try:
                await asyncio.wait((ready, failed), return_when=asyncio.FIRST_COMPLETED)
            finally:
                ready.cancel()
                failed.cancel()
            if not store.synced.is_set() and self._failure is not None:
                raise self._failure

    async def wait_until_caught_up(self, *stores: Store[Any]) -> None:
        """Wait until stores show everything that the server has now; a watch may lag arbitrarily.

        The newest object of a list says how far the watch has to get; the version of the list itself would be reached
        only with the next bookmark.
        """
        for (selection, into), store in list(self._stores.items()):
            if any(store is each for each in stores):
                newest = await self._newest_version(selection, into)
                while not store.has_reached(newest):
                    with suppress(TimeoutError):
                        await store.wait_until(partial(Store.has_reached, resource_version=newest), _POLL_S)

    async def _newest_version(self, selection: WatchSelection, into: type[Any]) -> str:
        """The newest resource version of the objects that a server has, "" when it has none."""
        reader = ResourceDecoder(selection.resource, into)
        while True:
            newest = ""
            try:
                async for page in self._client.pages(
                    selection.resource,
                    namespace=selection.namespace,
                    label_selector=selection.label_selector,
                    field_selector=selection.field_selector,
                    metadata_only=True,
                ):
                    versions = (reader.raw_identity(raw).resource_version for raw in page.items)
                    newest = max((newest, *versions), key=lambda version: int(version) if version.isdecimal() else 0)
                return newest
            except (Unauthorized, CredentialsError):
                raise
            except KubeError as error:
                log.warning("%s: %s; trying again", selection.resource.plural, error)
            await asyncio.sleep(_POLL_S)

    def all_synced(self) -> bool:
        """Whether every store has its first list."""
        return all(store.synced.is_set() for store in self._stores.values())

    async def wait_for_failure(self) -> None:
        """Wait for an error that no watch can survive, and raise it; it should end the process."""
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

    def _start_reflector(self, reflector: Reflector) -> None:
        task = asyncio.get_running_loop().create_task(reflector.run())
        self._tasks[task] = reflector
        task.add_done_callback(self._on_reflector_done)

    def _on_reflector_done(self, task: asyncio.Task[None]) -> None:
        reflector = self._tasks.pop(task)
        if task.cancelled():
            return
        failure = task.exception()
        if isinstance(failure, KubeError):
            log.error("a watch cannot continue: %s", failure)
            self._failure = self._failure or failure
            self._failed.set()
        elif failure is not None:
            # A bug in one watch: log it and restart that watch.
            log.error("a watch failed unexpectedly and is restarted", exc_info=failure)
            if self._running:
                asyncio.get_running_loop().call_later(1.0, self._restart_reflector, reflector)

    def _restart_reflector(self, reflector: Reflector) -> None:
        if self._running:
            self._start_reflector(reflector)
