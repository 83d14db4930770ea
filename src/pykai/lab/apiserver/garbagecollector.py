"""Garbage collection: dependents of deleted owners, contents of deleted namespaces, old events.

A dependent whose last owner is gone is deleted; one that has another owner loses the reference. An owner deleted in the
foreground waits for its dependents; one deleted with Orphan first removes itself from them. A namespace that is deleted
is emptied and then removed. Events live for an hour of cluster time.

The collector takes candidates from the store's events and works through them in its own task: deleting a thousand pods
must not delay requests.

Subtle: an owner of a kind that the server does not serve counts as present, since the server cannot tell.

Statements: apiserver:garbage.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from pykai.api.keys import split_key
from pykai.api.unstructured import JsonObject
from pykai.kube.errors import ApiError
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.deletion import FOREGROUND, ORPHAN
from pykai.lab.apiserver.kinds import StoreKey
from pykai.lab.apiserver.serverstate import ServerState
from pykai.lab.apiserver.storage import DELETED, StorageEvent, StoredObject
from pykai.lab.apiserver.writer import ObjectWriter

ObjectKey = tuple[StoreKey, str]

EVENT_TTL_S: Final = 3600.0
#: cluster seconds between two checks for old events
_EVENT_EXPIRY_INTERVAL_S: Final = 30.0
#: objects processed before yielding to other tasks
_BATCH: Final = 64

_EVENTS: Final[StoreKey] = ("", "events")
_NAMESPACES: Final[StoreKey] = ("", "namespaces")
_log = logging.getLogger(__name__)


class GarbageCollector:
    """Collects garbage in a background task."""

    def __init__(self, state: ServerState, writer: ObjectWriter) -> None:
        self._state = state
        self._storage = state.storage
        self._registry = state.registry
        self._clock = state.clock
        self._writer = writer
        self._work_queue: dict[ObjectKey, None] = {}
        self._wake = asyncio.Event()
        self._terminating_namespaces: set[str] = set()
        #: when an event was last written, its key, and the revision of that write
        self._event_expiry_queue: deque[tuple[float, str, int]] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        state.storage.listeners.append(self._on_event)

    def start(self) -> None:
        """Enqueue stored candidates, then follow events."""
        for collection in self._storage.collections():
            for record in collection.records.values():
                if record.owners or record.terminating:
                    self._enqueue((collection.store, record.key))
        now = self._clock.elapsed_s()
        for record in self._storage.collection(_EVENTS).records.values():
            self._event_expiry_queue.append((now, record.key, record.revision))
        self._tasks = [asyncio.create_task(self._run_worker()), asyncio.create_task(self._run_event_expiry())]

    async def stop(self) -> None:
        """End the tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _enqueue(self, place: ObjectKey) -> None:
        self._work_queue[place] = None
        self._wake.set()

    def _on_event(self, store: StoreKey, event: StorageEvent) -> None:
        record = event.record
        objects_by_uid = self._storage.by_uid
        if event.type == DELETED:
            for place in self._storage.dependents.get(record.uid, ()):
                self._enqueue(place)
            for uid in record.owners:
                owner = objects_by_uid.get(uid)
                if owner is not None:
                    self._enqueue_if_terminating(owner)
            if record.namespace in self._terminating_namespaces:
                self._enqueue((_NAMESPACES, record.namespace))
            return
        if record.terminating or any(uid not in objects_by_uid for uid in record.owners):
            self._enqueue((store, record.key))
        if store == _EVENTS:
            self._event_expiry_queue.append((self._clock.elapsed_s(), record.key, record.revision))

    def _enqueue_if_terminating(self, place: ObjectKey) -> None:
        record = self._storage.get(*place)
        if record is not None and record.terminating:
            self._enqueue(place)

    async def _run_worker(self) -> None:
        done = 0
        while True:
            if not self._work_queue:
                self._wake.clear()
                await self._wake.wait()
                continue
            place = next(iter(self._work_queue))
            del self._work_queue[place]
            try:
                self._collect(place)
            except ApiError as error:
                _log.warning("garbage collection of %s %s: %s", place[0][1], place[1], error)
            except Exception:
                # One object must not keep the garbage of others.
                _log.exception("garbage collection of %s %s failed", place[0][1], place[1])
            done += 1
            if done % _BATCH == 0:
                await asyncio.sleep(0)

    def _collect(self, place: ObjectKey) -> None:
        store, key = place
        record = self._storage.get(store, key)
        if record is None:
            return
        if record.terminating:
            if store == _NAMESPACES:
                self._empty_namespace(record)
            else:
                self._process_finalizers(place, record)
        if record.owners:
            self._check_owners(place, record)

    def _check_owners(self, place: ObjectKey, record: StoredObject) -> None:
        obj = record.object()
        references = obj["metadata"]["ownerReferences"]
        absent = [reference for reference in references if self._is_owner_absent(reference)]
        if not absent:
            return
        if len(absent) == len(references):
            if not record.terminating:
                self._delete(place, record, {"preconditions": {"uid": record.uid}})
            return
        self._set_owners(place, [reference for reference in references if reference not in absent])

    def _is_owner_absent(self, reference: Mapping[str, Any]) -> bool:
        if reference.get("uid") in self._storage.by_uid:
            return False
        return self._registry.by_kind(str(reference.get("apiVersion")), str(reference.get("kind"))) is not None

    def _set_owners(self, place: ObjectKey, owners: list[JsonObject]) -> None:
        record = self._storage.get(*place)
        kind = self._registry.storage_kind(place[0])
        if record is None or kind is None:
            return
        obj = record.object()
        meta = {**obj["metadata"], "ownerReferences": owners}
        if not owners:
            del meta["ownerReferences"]
        self._state.write(kind, {**obj, "metadata": meta})

    def _process_finalizers(self, place: ObjectKey, record: StoredObject) -> None:
        """Foreground: dependents first. Orphan: dependents stay and lose the owner reference."""
        finalizers = record.object()["metadata"].get("finalizers") or ()
        if ORPHAN in finalizers:
            for dependent in list(self._storage.dependents.get(record.uid, ())):
                dependent_record = self._storage.get(*dependent)
                if dependent_record is not None:
                    references = dependent_record.object()["metadata"].get("ownerReferences") or ()
                    self._set_owners(dependent, [r for r in references if r.get("uid") != record.uid])
            self._remove_finalizer(place, ORPHAN)
        elif FOREGROUND in finalizers:
            blocking = False
            for dependent in list(self._storage.dependents.get(record.uid, ())):
                dependent_record = self._storage.get(*dependent)
                if dependent_record is None:
                    continue
                references = dependent_record.object()["metadata"].get("ownerReferences") or ()
                mine = [r for r in references if r.get("uid") == record.uid]
                others = [r for r in references if r.get("uid") != record.uid and not self._is_owner_absent(r)]
                if others:
                    self._set_owners(dependent, others)
                    continue
                blocks = any(r.get("blockOwnerDeletion") is True for r in mine)
                if not dependent_record.terminating:
                    policy = "Foreground" if blocks else "Background"
                    self._delete(dependent, dependent_record, {"propagationPolicy": policy})
                blocking |= blocks and self._storage.get(*dependent) is not None
            if not blocking:
                self._remove_finalizer(place, FOREGROUND)

    def _remove_finalizer(self, place: ObjectKey, finalizer: str) -> None:
        kind = self._registry.storage_kind(place[0])
        if kind is not None:
            namespace, name = split_key(place[1])
            self._writer.remove_finalizer(Call("update", kind, namespace, name), finalizer)

    def _delete(self, place: ObjectKey, record: StoredObject, options: JsonObject) -> None:
        kind = self._registry.storage_kind(place[0])
        if kind is not None:
            self._writer.delete_now(Call("delete", kind, record.namespace, split_key(place[1])[1]), options)

    def _empty_namespace(self, namespace: StoredObject) -> None:
        """Delete the contents of a namespace; when it is empty, remove the namespace."""
        name = namespace.key
        self._terminating_namespaces.add(name)
        left = 0
        for collection in self._storage.collections():
            begin, end = collection.namespace_range(name)
            for key in collection.keys[begin:end]:
                record = collection.records[key]
                if not record.terminating:
                    self._delete((collection.store, key), record, {})
                left += self._storage.get(collection.store, key) is not None
        if left:
            return
        self._terminating_namespaces.discard(name)
        kind = self._registry.storage_kind(_NAMESPACES)
        obj = namespace.object()
        if kind is not None and not obj["metadata"].get("finalizers"):
            self._storage.remove(_NAMESPACES, name)

    async def _run_event_expiry(self) -> None:
        while True:
            await self._clock.sleep(_EVENT_EXPIRY_INTERVAL_S)
            self.expire_events()

    def expire_events(self) -> None:
        """Remove events that have not been written for an hour."""
        old = self._clock.elapsed_s() - EVENT_TTL_S
        while self._event_expiry_queue and self._event_expiry_queue[0][0] <= old:
            _, key, revision = self._event_expiry_queue.popleft()
            record = self._storage.get(_EVENTS, key)
            if record is not None and record.revision == revision:
                self._storage.remove(_EVENTS, key)
