"""Watches: readers of a kind's history, each at its own position.

A watch has no queue that could grow: it reads events from the collection's history when its client takes bytes, and
sleeps when there are none. One that falls behind the history ends with an ERROR event of code 410, as does one that
starts before it.

Selectors apply when events are read. An object that begins to match is ADDED and one that ceases to is DELETED,
whatever the write was. All watches share the bytes of a record; only other formats (a Table, metadata alone, another
version) decode and encode objects.

Statements: apiserver:watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from pykai.kube.errors import ApiError, Gone
from pykai.lab.apiserver.apierrors import expired, status_object
from pykai.lab.apiserver.storage import (
    ADDED,
    DELETED,
    MODIFIED,
    Collection,
    ObjectStorage,
    StorageEvent,
    StoredObject,
    decode,
    encode,
)

#: wall seconds between bookmarks
BOOKMARK_S: Final = 60.0
#: events sent before yielding to the event loop, so that a long history does not block other tasks
BATCH: Final = 512

_HEAD: Final = {type_: b'{"type":"%s","object":' % type_.encode() for type_ in (ADDED, MODIFIED, DELETED)}
_TAIL: Final = b"}\n"

#: turns the bytes of an object into the requested format
ResponseTransform = Callable[[bytes], bytes]


class Watch:
    """One watch of one client."""

    def __init__(
        self,
        storage: ObjectStorage,
        collection: Collection,
        *,
        namespace: str = "",
        record_filter: Callable[[StoredObject], bool] | None = None,
        transform: ResponseTransform | None = None,
        bookmarks: bool = False,
        api_version: str = "v1",
        kind: str = "",
        timeout_s: float | None = None,
    ) -> None:
        self._storage = storage
        self._collection = collection
        self._namespace = namespace
        self._record_filter = record_filter
        self._transform = transform
        self._bookmarks = bookmarks
        self._api_version = api_version
        self._kind = kind
        self._timeout_s = timeout_s
        self._position = 0
        self._revision = 0
        self._initial: list[StoredObject] | None = None
        self._ends_initial = False
        self._ended = False
        self._expired_error: Gone | None = None

    def begin(self, revision: int | None, *, initial: bool, ends_initial: bool) -> None:
        """Set the position to read from: after `revision`, or after the present, which `initial` sends first."""
        collection = self._collection
        if initial:
            records = self._storage.list_at(collection, self._namespace, self._storage.revision)
            selects = self._record_filter
            self._initial = records if selects is None else [record for record in records if selects(record)]
            self._ends_initial = ends_initial
            revision = self._storage.revision
        elif revision is None:
            revision = self._storage.revision
        self._revision = revision
        # With a journal, writes up to `revision` may not be published yet; they will be skipped.
        try:
            self._position = collection.position_after(revision)
        except Gone as error:
            self._expired_error = error

    def end(self) -> None:
        """End the stream after what has been read so far."""
        self._ended = True
        self._collection.wake()

    async def lines(self) -> AsyncIterator[bytes]:
        """The stream, in chunks of whole lines, until the time-out or the end of the history."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._timeout_s if self._timeout_s is not None else float("inf")
        bookmark_at = loop.time() + BOOKMARK_S if self._bookmarks else float("inf")
        if self._expired_error is not None:
            yield self._error(self._expired_error)
            return
        if self._initial is not None:
            await self._storage.wait_durable(self._revision)
            records, self._initial = self._initial, None
            for begin in range(0, len(records), BATCH):
                yield self._encode_events([(ADDED, record.raw) for record in records[begin : begin + BATCH]])
            if self._ends_initial:
                yield self._bookmark(self._revision, {"k8s.io/initial-events-end": "true"})
        collection = self._collection
        while not self._ended and not self._storage.ended:
            at = self._position - collection.trimmed_events
            if at < 0:
                yield self._error(expired())
                return
            if at < len(collection.events):
                events = collection.events[at : at + BATCH]
                self._position += len(events)
                matching = self._matching_events(events)
                if matching:
                    yield self._encode_events(matching)
                else:
                    await asyncio.sleep(0)
                continue
            now = loop.time()
            if now >= ends_at:
                return
            if now >= bookmark_at:
                yield self._bookmark(max(self._revision, self._storage.published))
                bookmark_at = loop.time() + BOOKMARK_S
                continue
            waiter: asyncio.Future[None] = loop.create_future()
            collection.waiters.add(waiter)
            wait_s = min(ends_at, bookmark_at) - now
            timer = loop.call_later(wait_s, _wake, waiter) if wait_s < 1e9 else None
            try:
                await waiter
            finally:
                collection.waiters.discard(waiter)
                if timer is not None:
                    timer.cancel()

    def _matching_events(self, events: list[StorageEvent]) -> list[tuple[str, bytes]]:
        matching = []
        namespace, selects, after = self._namespace, self._record_filter, self._revision
        for event in events:
            record = event.record
            if event.revision <= after or (namespace and record.namespace != namespace):
                continue
            if selects is None:
                matching.append((event.type, record.raw))
                continue
            matched = event.old is not None and selects(event.old)
            if event.type == DELETED:
                if matched:
                    matching.append((DELETED, record.raw))
            elif selects(record):
                matching.append((MODIFIED if matched else ADDED, record.raw))
            elif matched and event.old is not None:
                matching.append((DELETED, _at_revision(event.old.raw, event.revision)))
        return matching

    def _encode_events(self, events: list[tuple[str, bytes]]) -> bytes:
        transform = self._transform
        pieces: list[bytes] = []
        for type_, raw in events:
            pieces += (_HEAD[type_], raw if transform is None else transform(raw), _TAIL)
        return b"".join(pieces)

    def _bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        obj = {"kind": self._kind, "apiVersion": self._api_version, "metadata": metadata}
        raw = encode(obj)
        return b'{"type":"BOOKMARK","object":' + (raw if self._transform is None else self._transform(raw)) + _TAIL

    def _error(self, error: ApiError) -> bytes:
        return b'{"type":"ERROR","object":' + encode(status_object(error)) + _TAIL


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _at_revision(raw: bytes, revision: int) -> bytes:
    obj = decode(raw)
    obj["metadata"]["resourceVersion"] = str(revision)
    return encode(obj)
