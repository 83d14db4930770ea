"""In-memory storage: every object of every kind, and the recent history of each kind.

One counter numbers all writes. A write replaces the record of a key and appends an event to the history of its kind;
stored records never change in place, so readers share them freely. A record is the JSON of its object, encoded once for
all readers, lists and watches, plus the few values that selectors and garbage collection need. The object itself (a
dict) is kept only for records written recently and decoded again when needed: tens of thousands of pods as dicts would
cost gigabytes and long pauses of the collector.

The history serves watches (each has a position in it, see `watches`), lists at an exact revision and the later pages of
a paged list: the state at revision R is the present with the events after R undone. Revisions that have left the
history are answered with 410.

Subtle: with a journal (`sqlitejournal`) a write is *stored* at once and *published* once it is on disk. Requests are
served from stored state and answered after it is published; watches see only published writes.

Statements: apiserver:durable, apiserver:history, apiserver:pages.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Final, Protocol

import msgspec

from pykai.api.unstructured import JsonObject
from pykai.lab.apiserver.apierrors import expired, too_large_revision
from pykai.lab.apiserver.kinds import StoreKey

_log = logging.getLogger(__name__)

#: events kept per kind, and the bytes of them; a history is cut to the limit when it is half as long again
HISTORY_EVENTS: Final = 8192
HISTORY_BYTES: Final = 48 << 20
#: records of a kind that keep their decoded object
RECENT: Final = 4096

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
_NOTHING: Final[Mapping[str, str]] = {}


class StoredObject:
    """One version of one object."""

    __slots__ = ("fields", "key", "labels", "namespace", "obj", "owners", "raw", "revision", "terminating", "uid")

    def __init__(self, key: str, revision: int, raw: bytes, obj: JsonObject, fields: Mapping[str, str]) -> None:
        metadata = obj["metadata"]
        self.key = key
        self.revision = revision
        self.raw = raw
        self.obj: JsonObject | None = obj
        self.namespace: str = metadata.get("namespace", "")
        self.uid: str = metadata.get("uid", "")
        self.labels: Mapping[str, str] = metadata.get("labels") or _NOTHING
        #: values of selectable fields
        self.fields = fields
        #: is being deleted
        self.terminating = "deletionTimestamp" in metadata
        owners = metadata.get("ownerReferences")
        self.owners: tuple[str, ...] = tuple([str(o.get("uid", "")) for o in owners]) if owners else ()

    def object(self) -> JsonObject:
        """The decoded object; must not be changed."""
        obj = self.obj
        if obj is None:
            obj = decode(self.raw)
        return obj


class StorageEvent:
    """One write, as watches report it."""

    __slots__ = ("old", "record", "revision", "type")

    def __init__(self, type_: str, revision: int, record: StoredObject, old: StoredObject | None) -> None:
        self.type = type_
        self.revision = revision
        #: the new version; for DELETED the last one, with the revision of the deletion
        self.record = record
        self.old = old


class Journal(Protocol):
    """Receives writes before they are published."""

    def append(self, store: StoreKey, event: StorageEvent) -> None:
        """Append this write; `ObjectStorage.publish` is called with it, in order, once it is durable."""
        ...


class Collection:
    """The objects of one kind, in the order of their keys, and the kind's recent events."""

    def __init__(self, store: StoreKey, revision: int) -> None:
        self.store = store
        self.records: dict[str, StoredObject] = {}
        self.keys: list[str] = []
        self.events: list[StorageEvent] = []
        self._bytes = 0
        #: events dropped from the front of `events` since the server started: position = first + index
        self.trimmed_events = 0
        #: the history is complete for revisions above this one
        self.compacted_revision = revision
        #: records that keep their decoded object, the oldest first
        self.recent: deque[StoredObject] = deque()
        #: woken on every publish
        self.waiters: set[asyncio.Future[None]] = set()
        #: called with everything published, in order
        self.listeners: list[Callable[[StorageEvent], None]] = []

    def namespace_range(self, namespace: str) -> tuple[int, int]:
        """Where the keys of a namespace begin and end in `keys`; "" is all of them."""
        if not namespace:
            return 0, len(self.keys)
        # "0" is the character after "/"
        return bisect_left(self.keys, namespace + "/"), bisect_left(self.keys, namespace + "0")

    def put(self, record: StoredObject) -> None:
        """Store a record, replacing an older one."""
        if record.key not in self.records:
            if not self.keys or record.key > self.keys[-1]:
                self.keys.append(record.key)
            else:
                insort(self.keys, record.key)
        self.records[record.key] = record

    def keep_decoded(self, record: StoredObject) -> None:
        """Keep a record's decoded object: recently written objects are likely to be written again."""
        self.recent.append(record)
        if len(self.recent) > RECENT:
            self.recent.popleft().obj = None

    def drop(self, key: str) -> None:
        """Remove a record."""
        del self.records[key]
        del self.keys[bisect_left(self.keys, key)]

    def append_event(self, event: StorageEvent) -> None:
        """Append to the history."""
        self.events.append(event)
        self._bytes += len(event.record.raw)
        if len(self.events) > HISTORY_EVENTS * 3 // 2 or self._bytes > HISTORY_BYTES * 3 // 2:
            self._trim_history()

    def publish_event(self, event: StorageEvent) -> None:
        """Append to the history, wake waiting watches and call listeners."""
        self.append_event(event)
        if self.waiters:
            self.wake()
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:
                # A failing listener must not keep the write from the others.
                _log.exception("a listener failed on %s %s", self.store[1], event.record.key)

    def wake(self) -> None:
        """Wake all waiting watches."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()

    def _trim_history(self) -> None:
        trimmed = 0
        while trimmed < len(self.events) - 1 and (
            len(self.events) - trimmed > HISTORY_EVENTS or self._bytes > HISTORY_BYTES
        ):
            self._bytes -= len(self.events[trimmed].record.raw)
            trimmed += 1
        self.compacted_revision = self.events[trimmed - 1].revision
        del self.events[:trimmed]
        self.trimmed_events += trimmed

    def drop_history(self) -> None:
        """Drop the whole history: revisions before its last event become unavailable."""
        if self.events:
            self.compacted_revision = self.events[-1].revision
            self.trimmed_events += len(self.events)
            self.events.clear()
            self._bytes = 0

    def position_after(self, revision: int) -> int:
        """The position of the first event after a revision; 410 if it has left the history."""
        if revision < self.compacted_revision:
            raise expired(f"too old resource version: {revision} ({self.compacted_revision})")
        return self.trimmed_events + bisect_left(self.events, revision + 1, key=lambda event: event.revision)

    def records_at(self, revision: int) -> dict[str, StoredObject | None]:
        """Per key that changed since: its record at that revision."""
        then: dict[str, StoredObject | None] = {}
        for event in self.events[self.position_after(revision) - self.trimmed_events :]:
            then.setdefault(event.record.key, event.old)
        return then


class ObjectStorage:
    """All collections, and the one counter of writes."""

    def __init__(self, journal: Journal | None = None, revision: int = 1) -> None:
        self.revision = revision
        #: the last revision that watches may report
        self.published = revision
        #: for kinds of which nothing is stored: history is complete after this revision
        self.compacted_revision = 0
        self.journal = journal
        self._collections: dict[StoreKey, Collection] = {}
        #: heap of revisions that requests wait for; the number breaks ties
        self._durability_waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waits = 0
        #: uid -> collection and key of every object
        self.by_uid: dict[str, tuple[StoreKey, str]] = {}
        #: uid of an owner -> objects that name it
        self.dependents: dict[str, dict[tuple[StoreKey, str], None]] = {}
        #: called with every write once it is published
        self.listeners: list[Callable[[StoreKey, StorageEvent], None]] = []
        #: why writes are refused
        self.failure: Exception | None = None
        #: set on shutdown: watches end
        self.ended = False

    def end_watches(self) -> None:
        """End every watch after what it has read."""
        self.ended = True
        for collection in self._collections.values():
            collection.wake()

    def collection(self, store: StoreKey) -> Collection:
        """The objects of a resource, created on first use."""
        collection = self._collections.get(store)
        if collection is None:
            collection = self._collections[store] = Collection(store, self.compacted_revision)
        return collection

    def collections(self) -> Iterator[Collection]:
        """All collections that hold or held objects."""
        return iter(list(self._collections.values()))

    def get(self, store: StoreKey, key: str) -> StoredObject | None:
        """The stored record."""
        collection = self._collections.get(store)
        return collection.records.get(key) if collection is not None else None

    def write(self, store: StoreKey, key: str, obj: JsonObject, fields: Mapping[str, str]) -> StoredObject:
        """Store a new version; `obj["metadata"]` must be the caller's own dict and receives the resource version."""
        revision = self.revision + 1
        obj["metadata"]["resourceVersion"] = str(revision)
        record = StoredObject(key, revision, encode(obj), obj, fields)
        self.revision = revision
        collection = self.collection(store)
        old = collection.records.get(key)
        collection.put(record)
        self._index(store, record, old)
        collection.keep_decoded(record)
        if old is not None:
            old.obj = None
        self._commit(store, StorageEvent(ADDED if old is None else MODIFIED, revision, record, old))
        return record

    def remove(self, store: StoreKey, key: str) -> StoredObject:
        """Delete; returns the last version with the revision of the deletion."""
        collection = self.collection(store)
        old = collection.records[key]
        revision = self.revision + 1
        obj = {**old.object()}
        obj["metadata"] = {**obj["metadata"], "resourceVersion": str(revision)}
        last = StoredObject(key, revision, encode(obj), obj, old.fields)
        last.obj = None
        self.revision = revision
        collection.drop(key)
        self._index(store, None, old)
        self._commit(store, StorageEvent(DELETED, revision, last, old))
        return last

    def load(self, store: StoreKey, records: Iterable[StoredObject]) -> None:
        """Load records that were stored before, without events."""
        collection = self.collection(store)
        for record in records:
            record.obj = None
            collection.records[record.key] = record
            self._index(store, record, None)
        collection.keys = sorted(collection.records)

    def publish(self, store: StoreKey, event: StorageEvent) -> None:
        """Let watches see a write; called in the order of revisions."""
        self.published = event.revision
        self.collection(store).publish_event(event)
        for listener in self.listeners:
            try:
                listener(store, event)
            except Exception:
                # A failing listener must not keep the write from the others.
                _log.exception("a listener failed on %s %s", store[1], event.record.key)
        while self._durability_waiters and self._durability_waiters[0][0] <= event.revision:
            future = heappop(self._durability_waiters)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Fail all requests that wait for the disk, now and later."""
        self.failure = error
        waiting, self._durability_waiters = self._durability_waiters, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(error)

    async def wait_durable(self, revision: int) -> None:
        """Wait until a revision is published."""
        if revision > self.published:
            if self.failure is not None:
                raise self.failure
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waits += 1
            heappush(self._durability_waiters, (revision, self._waits, future))
            await future

    def list_at(self, collection: Collection, namespace: str, revision: int) -> list[StoredObject]:
        """The records of a namespace ("" for all) at an exact revision, in the order of their keys."""
        if revision > self.revision:
            raise too_large_revision(revision, self.revision)
        begin, end = collection.namespace_range(namespace)
        keys = collection.keys[begin:end]
        if revision == self.revision:
            return [collection.records[key] for key in keys]
        changed_records = collection.records_at(revision)
        if not changed_records:
            return [collection.records[key] for key in keys]
        prefix = f"{namespace}/" if namespace else ""
        records_by_key = {key: collection.records[key] for key in keys}
        for key, record in changed_records.items():
            if key.startswith(prefix):
                if record is None:
                    records_by_key.pop(key, None)
                else:
                    records_by_key[key] = record
        return [records_by_key[key] for key in sorted(records_by_key)]

    def _commit(self, store: StoreKey, event: StorageEvent) -> None:
        if self.journal is None:
            self.publish(store, event)
        else:
            self.journal.append(store, event)

    def _index(self, store: StoreKey, new: StoredObject | None, old: StoredObject | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self.by_uid.pop(old.uid, None)
        if new is not None and (old is None or new.uid != old.uid):
            self.by_uid[new.uid] = store, new.key
        before = old.owners if old is not None else ()
        after = new.owners if new is not None else ()
        if before == after:
            return
        for uid in before:
            if uid not in after and old is not None:
                dependents = self.dependents.get(uid)
                if dependents is not None:
                    dependents.pop((store, old.key), None)
                    if not dependents:
                        del self.dependents[uid]
        for uid in after:
            if new is not None:
                self.dependents.setdefault(uid, {})[store, new.key] = None
