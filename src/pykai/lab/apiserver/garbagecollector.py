"""What goes when something else goes: dependents of deleted owners, the contents of namespaces, old events.

A dependent whose last owner is gone is deleted; one that has another owner loses the reference.  An owner deleted in
the foreground waits for its dependents, one deleted with Orphan lets go of them first.  A namespace that is deleted is
emptied and then removed.  Events live for an hour of cluster time.

The collector follows the store's events, which name candidates, and works through them in a task of its own: deleting
a thousand pods must not hold up anybody's request.

Subtle: an owner of a kind that the server does not serve counts as present, since nobody knows whether it exists.

Statements: apiserver:garbage.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from pykai.kube.clock import Clock
from pykai.kube.errors import ApiError
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.deletion import FOREGROUND, ORPHAN
from pykai.lab.apiserver.kinds import Registry, StoreKey
from pykai.lab.apiserver.storage import DELETED, Event, Record, Storage
from pykai.lab.apiserver.writer import Writer

JsonObject = dict[str, Any]
Place = tuple[StoreKey, str]

EVENT_LIFE_S: Final = 3600.0
#: cluster seconds between two looks for old events
_EVENT_PACE_S: Final = 30.0
#: objects worked through before others get their turn
_BATCH: Final = 64

_EVENTS: Final[StoreKey] = ("", "events")
_NAMESPACES: Final[StoreKey] = ("", "namespaces")
_log = logging.getLogger(__name__)


class Garbage:
    """The collector."""

    def __init__(self, storage: Storage, registry: Registry, writer: Writer, clock: Clock) -> None:
        self._storage = storage
        self._registry = registry
        self._writer = writer
        self._clock = clock
        self._todo: dict[Place, None] = {}
        self._wake = asyncio.Event()
        self._closing: set[str] = set()
        #: when an event was last written, its key, and the revision of that write
        self._events: deque[tuple[float, str, int]] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        storage.listeners.append(self._follow)

    def start(self) -> None:
        """Look at everything that is stored, then follow."""
        for collection in self._storage.collections():
            for record in collection.records.values():
                if record.owners or record.terminating:
                    self._enqueue((collection.store, record.key))
        now = self._clock.elapsed_s()
        for record in self._storage.collection(_EVENTS).records.values():
            self._events.append((now, record.key, record.revision))
        self._tasks = [asyncio.create_task(self._work()), asyncio.create_task(self._expire())]

    async def stop(self) -> None:
        """End the tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _enqueue(self, place: Place) -> None:
        self._todo[place] = None
        self._wake.set()

    def _follow(self, store: StoreKey, event: Event) -> None:
        record = event.record
        known = self._storage.by_uid
        if event.type == DELETED:
            for place in self._storage.dependents.get(record.uid, ()):
                self._enqueue(place)
            for uid in record.owners:
                owner = known.get(uid)
                if owner is not None:
                    self._enqueue_if_terminating(owner)
            if record.namespace in self._closing:
                self._enqueue((_NAMESPACES, record.namespace))
            return
        if record.terminating or any(uid not in known for uid in record.owners):
            self._enqueue((store, record.key))
        if store == _EVENTS:
            self._events.append((self._clock.elapsed_s(), record.key, record.revision))

    def _enqueue_if_terminating(self, place: Place) -> None:
        record = self._storage.get(*place)
        if record is not None and record.terminating:
            self._enqueue(place)

    async def _work(self) -> None:
        done = 0
        while True:
            if not self._todo:
                self._wake.clear()
                await self._wake.wait()
                continue
            place = next(iter(self._todo))
            del self._todo[place]
            try:
                self._collect(place)
            except ApiError as error:
                _log.warning("garbage collection of %s %s: %s", place[0][1], place[1], error)
            except Exception:
                _log.exception("garbage collection of %s %s failed", place[0][1], place[1])
            done += 1
            if done % _BATCH == 0:
                await asyncio.sleep(0)

    def _collect(self, place: Place) -> None:
        store, key = place
        record = self._storage.get(store, key)
        if record is None:
            return
        if record.terminating:
            if store == _NAMESPACES:
                self._empty(record)
            else:
                self._let_go(place, record)
        if record.owners:
            self._check_owners(place, record)

    def _check_owners(self, place: Place, record: Record) -> None:
        obj = record.object()
        references = obj["metadata"]["ownerReferences"]
        absent = [reference for reference in references if self._is_absent(reference)]
        if not absent:
            return
        if len(absent) == len(references):
            if not record.terminating:
                self._delete(place, record, {"preconditions": {"uid": record.uid}})
            return
        self._keep_owners(place, [reference for reference in references if reference not in absent])

    def _is_absent(self, reference: Mapping[str, Any]) -> bool:
        if reference.get("uid") in self._storage.by_uid:
            return False
        return self._registry.named(str(reference.get("apiVersion")), str(reference.get("kind"))) is not None

    def _keep_owners(self, place: Place, owners: list[JsonObject]) -> None:
        record = self._storage.get(*place)
        kind = self._registry.stored(place[0])
        if record is None or kind is None:
            return
        obj = record.object()
        meta = {**obj["metadata"], "ownerReferences": owners}
        if not owners:
            del meta["ownerReferences"]
        self._writer.write(kind, {**obj, "metadata": meta})

    def _let_go(self, place: Place, record: Record) -> None:
        """Foreground: dependents first.  Orphan: dependents stay and forget their owner."""
        finalizers = record.object()["metadata"].get("finalizers") or ()
        if ORPHAN in finalizers:
            for dependent in list(self._storage.dependents.get(record.uid, ())):
                held = self._storage.get(*dependent)
                if held is not None:
                    references = held.object()["metadata"].get("ownerReferences") or ()
                    self._keep_owners(dependent, [r for r in references if r.get("uid") != record.uid])
            self._release(place, ORPHAN)
        elif FOREGROUND in finalizers:
            blocking = False
            for dependent in list(self._storage.dependents.get(record.uid, ())):
                held = self._storage.get(*dependent)
                if held is None:
                    continue
                references = held.object()["metadata"].get("ownerReferences") or ()
                mine = [r for r in references if r.get("uid") == record.uid]
                others = [r for r in references if r.get("uid") != record.uid and not self._is_absent(r)]
                if others:
                    self._keep_owners(dependent, others)
                    continue
                blocks = any(r.get("blockOwnerDeletion") is True for r in mine)
                if not held.terminating:
                    policy = "Foreground" if blocks else "Background"
                    self._delete(dependent, held, {"propagationPolicy": policy})
                blocking |= blocks and self._storage.get(*dependent) is not None
            if not blocking:
                self._release(place, FOREGROUND)

    def _release(self, place: Place, finalizer: str) -> None:
        kind = self._registry.stored(place[0])
        if kind is not None:
            namespace, _, name = place[1].rpartition("/")
            self._writer.remove_finalizer(Call("update", kind, namespace, name), finalizer)

    def _delete(self, place: Place, record: Record, options: JsonObject) -> None:
        kind = self._registry.stored(place[0])
        if kind is not None:
            self._writer.delete_now(Call("delete", kind, record.namespace, place[1].rpartition("/")[2]), options)

    def _empty(self, namespace: Record) -> None:
        """Delete what is in a namespace; when nothing is left, let the namespace go."""
        name = namespace.key
        self._closing.add(name)
        left = 0
        for collection in self._storage.collections():
            begin, end = collection.span(name)
            for key in collection.keys[begin:end]:
                record = collection.records[key]
                if not record.terminating:
                    self._delete((collection.store, key), record, {})
                left += self._storage.get(collection.store, key) is not None
        if left:
            return
        self._closing.discard(name)
        kind = self._registry.stored(_NAMESPACES)
        obj = namespace.object()
        if kind is not None and not obj["metadata"].get("finalizers"):
            self._storage.remove(_NAMESPACES, name)

    async def _expire(self) -> None:
        while True:
            await self._clock.sleep(_EVENT_PACE_S)
            self.expire_events()

    def expire_events(self) -> None:
        """Remove events that nobody has written to for an hour."""
        old = self._clock.elapsed_s() - EVENT_LIFE_S
        while self._events and self._events[0][0] <= old:
            _, key, revision = self._events.popleft()
            record = self._storage.get(_EVENTS, key)
            if record is not None and record.revision == revision:
                self._storage.remove(_EVENTS, key)
