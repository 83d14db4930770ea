"""Conditions, stamps and labels on their way out: a small pool of writers that comes after the binds (cycle:EXP-15).

What is to be written on one part of one object stands under one key, and what is put there later replaces what has not
gone out yet.  The content is made at the moment of writing, by a callable that looks at the cache: it finds that the
object is gone, or says already what it should, and nothing is written.

Errors: what the server refuses (gone, invalid, forbidden) is dropped and told to the owner; a conflict is tried again
with new content; an unreachable or failing server is tried again after a pause that doubles.

Namespaces take turns, and one whose writes hang leaves writers for the others (`kube.workqueue`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pykai.kube.client import Client, PatchKind
from pykai.kube.errors import ApiError, Conflict, KubeError, NotFound, ServerFailed, TooManyRequests
from pykai.kube.resources import Resource
from pykai.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 30.0
_CONFLICTS = 5
#: how long writers wait for binds to go first
_POLITE_S = 0.5


@dataclass(frozen=True, slots=True)
class Patch:
    """One patch of one object."""

    resource: Resource
    namespace: str
    name: str
    content: Mapping[str, Any]
    kind: PatchKind = PatchKind.MERGE
    subresource: str = ""


#: Makes the patch, None when there is nothing to write (any more).
Make = Callable[[], Patch | None]
#: Told when nothing is left to write under a key: the resource version of the answer, "" when nothing was written.
Done = Callable[[str], None]


@dataclass(slots=True)
class _Entry:
    make: Make
    done: Done
    #: failed attempts of this content
    attempts: int = 0
    #: newest resource version of an answer under this key
    answered: str = field(default="")


class StatusWrites:
    """The pool."""

    def __init__(self, client: Client, *, workers: int = 5, busy: Callable[[], bool] = lambda: False) -> None:
        self._client = client
        self._workers = workers
        #: whether something more urgent is going out
        self._busy = busy
        self._entries: dict[str, _Entry] = {}
        self._line = WorkQueue(_namespace_of)
        self._more = asyncio.Event()
        #: keys being written now
        self._out: set[str] = set()
        #: keys that wait for the end of a pause
        self._pausing: dict[str, asyncio.TimerHandle] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, key: str, make: Make, done: Done = lambda _: None) -> None:
        """Write this under `key`, instead of what waits there; a key is some words and `namespace/name`."""
        known = self._entries.get(key)
        self._entries[key] = _Entry(make, done, answered=known.answered if known is not None else "")
        self._idle.clear()
        if known is None and key not in self._out:
            self._stand_in_line(key)

    def drop(self, key: str) -> None:
        """Forget what waits under a key; what is going out is not stopped."""
        entry = self._entries.get(key)
        if entry is not None and key not in self._out:
            self._finish(key, entry)

    def __len__(self) -> int:
        return len(self._entries)

    async def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything is written; False when that took too long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def run(self, stop: asyncio.Event) -> None:
        """Write until told to stop."""
        writers = [asyncio.create_task(self._write_all()) for _ in range(self._workers)]
        try:
            await stop.wait()
        finally:
            for writer in writers:
                writer.cancel()
            await asyncio.gather(*writers, return_exceptions=True)
            for timer in self._pausing.values():
                timer.cancel()
            self._pausing.clear()

    async def _write_all(self) -> None:
        while True:
            key = self._line.take(self._workers - self._line.working)
            if key is None:
                self._more.clear()
                await self._more.wait()
                continue
            try:
                await self._serve(key)
            finally:
                self._line.done(key)
                self._more.set()

    async def _serve(self, key: str) -> None:
        """Write what stands under a key, if anything does still."""
        if key not in self._entries:
            return
        self._out.add(key)
        try:
            waited_s = 0.0
            while self._busy() and waited_s < _POLITE_S:
                await asyncio.sleep(0.02)
                waited_s += 0.02
            entry = self._entries[key]
            pause_s = await self._write(entry)
            # A transport within the process answers without ever waiting; others have a right to their turn.
            await asyncio.sleep(0)
        finally:
            self._out.discard(key)
        newest = self._entries[key]
        newest.answered = entry.answered
        if newest is not entry:
            self._stand_in_line(key)
        elif pause_s is not None:
            loop = asyncio.get_running_loop()
            self._pausing[key] = loop.call_later(pause_s, self._come_back, key)
        else:
            self._finish(key, entry)

    def _stand_in_line(self, key: str) -> None:
        self._line.add(key)
        self._more.set()

    def _come_back(self, key: str) -> None:
        self._pausing.pop(key, None)
        if key in self._entries:
            self._stand_in_line(key)

    def _finish(self, key: str, entry: _Entry) -> None:
        if self._entries.get(key) is entry:
            del self._entries[key]
        try:
            entry.done(entry.answered)
        except Exception:
            log.exception("after writing %s", key)
        if not self._entries:
            self._idle.set()

    async def _write(self, entry: _Entry) -> float | None:
        """Write once; seconds after which to try again, None when done with it."""
        try:
            patch = entry.make()
        except Exception:
            log.exception("a status could not be made")
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
        except (ServerFailed, TooManyRequests, Conflict) as error:
            entry.attempts += 1
            if isinstance(error, Conflict) and entry.attempts > _CONFLICTS:
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
            # A mistake of ours costs this write, never the writer.
            log.exception("%s %s/%s was not updated", patch.resource.kind, patch.namespace, patch.name)
            return None
        entry.answered = str(answer.get("metadata", {}).get("resourceVersion", ""))
        return None


def _pause_s(attempts: int) -> float:
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(attempts - 1, 16))


def _namespace_of(key: str) -> str:
    return key.rpartition(" ")[2].partition("/")[0]
