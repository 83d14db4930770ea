"""Conditions, timestamps and labels to be written: a small pool of writers that yields to binds (cycle:EXP-15).

Writes on one part of one object have one key, and a later write replaces one that has not been sent yet.  The content
is made at the moment of writing, by a callable that reads the cache: if the object is gone, or already up to date,
nothing is written.

Errors: a refused write (gone, invalid, forbidden) is dropped and reported to the owner; a conflict is retried with new
content; an unreachable or failing server is retried after a pause that doubles.

Namespaces take turns, and one whose writes hang leaves writers for the others (`kube.workqueue`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pykai.kube.backoff import Backoff
from pykai.kube.client import Client, PatchKind
from pykai.kube.errors import ApiError, Conflict, KubeError, NotFound, ServerError, TooManyRequests
from pykai.kube.resources import Resource
from pykai.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

_BACKOFF = Backoff(0.1, 30.0)
_MAX_CONFLICTS = 5
#: how long writers wait for binds to go first
_YIELD_TO_BINDS_S = 0.5


@dataclass(frozen=True, slots=True)
class StatusPatch:
    """One patch of one object."""

    resource: Resource
    namespace: str
    name: str
    content: Mapping[str, Any]
    kind: PatchKind = PatchKind.MERGE
    subresource: str = ""


#: Makes the patch, None if there is nothing to write (any more).
MakePatch = Callable[[], StatusPatch | None]
#: Called when nothing is left to write under a key: the resource version of the answer, "" if nothing was written.
OnWritten = Callable[[str], None]


@dataclass(slots=True)
class _PendingWrite:
    make: MakePatch
    on_written: OnWritten
    #: failed attempts of this content
    attempts: int = 0
    #: newest resource version of an answer under this key
    written_version: str = field(default="")


class StatusWrites:
    """The pool."""

    def __init__(self, client: Client, *, workers: int = 5, busy: Callable[[], bool] = lambda: False) -> None:
        self._client = client
        self._workers = workers
        #: whether more urgent writes are in progress
        self._busy = busy
        self._pending: dict[str, _PendingWrite] = {}
        self._queue = WorkQueue(_namespace_of)
        self._work_available = asyncio.Event()
        #: keys being written now
        self._in_flight: set[str] = set()
        #: keys that wait for the end of a pause
        self._backing_off: dict[str, asyncio.TimerHandle] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, key: str, make: MakePatch, on_written: OnWritten = lambda _: None) -> None:
        """Write this under `key`, replacing what waits there; a key is some words and `namespace/name`."""
        previous = self._pending.get(key)
        self._pending[key] = _PendingWrite(
            make, on_written, written_version=previous.written_version if previous is not None else ""
        )
        self._idle.clear()
        if previous is None and key not in self._in_flight:
            self._enqueue(key)

    def drop(self, key: str) -> None:
        """Forget what waits under a key; a write in progress is not stopped."""
        entry = self._pending.get(key)
        if entry is not None and key not in self._in_flight:
            self._finish(key, entry)

    def __len__(self) -> int:
        return len(self._pending)

    async def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything is written; False on a timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def run(self, stop: asyncio.Event) -> None:
        """Write until stopped."""
        writers = [asyncio.create_task(self._run_writer()) for _ in range(self._workers)]
        try:
            await stop.wait()
        finally:
            for writer in writers:
                writer.cancel()
            await asyncio.gather(*writers, return_exceptions=True)
            for timer in self._backing_off.values():
                timer.cancel()
            self._backing_off.clear()

    async def _run_writer(self) -> None:
        while True:
            key = self._queue.get(self._workers - self._queue.processing)
            if key is None:
                self._work_available.clear()
                await self._work_available.wait()
                continue
            try:
                await self._process(key)
            finally:
                self._queue.done(key)
                self._work_available.set()

    async def _process(self, key: str) -> None:
        """Write what waits under a key, if anything."""
        if key not in self._pending:
            return
        self._in_flight.add(key)
        try:
            waited_s = 0.0
            while self._busy() and waited_s < _YIELD_TO_BINDS_S:
                await asyncio.sleep(0.02)
                waited_s += 0.02
            entry = self._pending[key]
            pause_s = await self._write(entry)
            # An in-process transport answers without ever waiting; other tasks need their turn.
            await asyncio.sleep(0)
        finally:
            self._in_flight.discard(key)
        newest = self._pending[key]
        newest.written_version = entry.written_version
        if newest is not entry:
            self._enqueue(key)
        elif pause_s is not None:
            loop = asyncio.get_running_loop()
            self._backing_off[key] = loop.call_later(pause_s, self._end_backoff, key)
        else:
            self._finish(key, entry)

    def _enqueue(self, key: str) -> None:
        self._queue.add(key)
        self._work_available.set()

    def _end_backoff(self, key: str) -> None:
        self._backing_off.pop(key, None)
        if key in self._pending:
            self._enqueue(key)

    def _finish(self, key: str, entry: _PendingWrite) -> None:
        if self._pending.get(key) is entry:
            del self._pending[key]
        try:
            entry.on_written(entry.written_version)
        except Exception:
            # A bug in a callback costs no writer.
            log.exception("the callback after writing %s failed", key)
        if not self._pending:
            self._idle.set()

    async def _write(self, entry: _PendingWrite) -> float | None:
        """Write once; seconds until the next try, None when finished."""
        try:
            patch = entry.make()
        except Exception:
            # A bug costs this write, never the writer.
            log.exception("the content of a status could not be made")
            return None
        if patch is None:
            return None
        try:
            answer = await self._client.patch(
                patch.resource,
                patch.name,
                patch.content,
                patch.namespace,
                kind=patch.kind,
                subresource=patch.subresource,
                brief=True,
            )
        except NotFound:
            return None
        except (ServerError, TooManyRequests, Conflict) as error:
            entry.attempts += 1
            if isinstance(error, Conflict) and entry.attempts > _MAX_CONFLICTS:
                log.debug("%s %s/%s: %s", patch.resource.kind, patch.namespace, patch.name, error)
                return None
            return _pause_s(entry.attempts)
        except ApiError as error:
            log.warning("%s %s/%s was not updated: %s", patch.resource.kind, patch.namespace, patch.name, error)
            return None
        except KubeError:
            entry.attempts += 1
            return _pause_s(entry.attempts)
        except Exception:
            # A bug of ours costs this write, never the writer.
            log.exception("%s %s/%s was not updated", patch.resource.kind, patch.namespace, patch.name)
            return None
        entry.written_version = str(answer.get("metadata", {}).get("resourceVersion", ""))
        return None


def _pause_s(attempts: int) -> float:
    return _BACKOFF.delay_s(attempts)


def _namespace_of(key: str) -> str:
    return key.rpartition(" ")[2].partition("/")[0]
