"""A typed cache of one kind of object, with indexes and a feed of changes.

`watch.Follower` fills it; services read it, on the event loop, and never wait for it after the first list.  Every
change is told to the subscribers once, synchronously and in order, after the indexes have been brought up to date.

A service that has just written something may `assume` the result, so that it is seen before the watch brings it.  An
assumption hides what the watch said until the watch brings that version or a newer one, or until `forget`.

What cannot be read is not in the cache (its earlier version leaves it, as a change) but in `problems`, until it is
mended or gone.

Subtle: the store never goes back in time within a watch: an event whose resource version is not newer than what is
known is a repetition and dropped.  A list, in contrast, is the truth, even where its versions are older.

Statements: hostile:store, kube:assume, kube:relist, kube:repeat, kube:store, kube:unreadable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeVar

import msgspec

from pykai.api.decode import DecodeError
from pykai.kube.decoding import Identity, Reader, newer
from pykai.kube.reflector import OutOfOrder, WatchEvent
from pykai.kube.resources import Resource
from pykai.kube.yielding import in_turns

T = TypeVar("T")

log = logging.getLogger(__name__)

#: stands in `problems` for an object of which not even the name could be read
_NAMELESS = "?"


class Change(msgspec.Struct, Generic[T], frozen=True):
    """An object came (`old` None), changed, or went (`new` None); the key is `namespace/name`, or `name`."""

    key: str
    old: T | None
    new: T | None


class _Index(Generic[T]):
    """Objects by the values that a function gives for them."""

    def __init__(self, of: Callable[[T], Iterable[str]]) -> None:
        self.of = of
        self.rows: dict[str, dict[str, T]] = {}
        self._values: dict[str, tuple[str, ...]] = {}

    def move(self, key: str, new: T | None) -> None:
        values: tuple[str, ...] = ()
        if new is not None:
            try:
                values = tuple(self.of(new))
            except Exception:
                log.exception("an index cannot take %s", key)
        for value in self._values.pop(key, ()):
            if value not in values:
                row = self.rows[value]
                del row[key]
                if not row:
                    del self.rows[value]
        if new is not None and values:
            self._values[key] = values
            for value in values:
                self.rows.setdefault(value, {})[key] = new


class Store(Generic[T]):
    """What the server has of one resource, as of the last event."""

    def __init__(self, resource: Resource, into: type[T]) -> None:
        self.resource = resource
        self.problems: dict[str, DecodeError] = {}
        #: set once the first list is in
        self.synced = asyncio.Event()
        self._reader = Reader(resource, into)
        #: what readers see: assumptions included
        self._objects: dict[str, T] = {}
        #: what the server last said of keys about which something is assumed
        self._hidden: dict[str, T | None] = {}
        self._indexes: dict[str, _Index[T]] = {}
        self._subscribers: list[Callable[[Change[T]], None]] = []
        self._problem_listeners: list[Callable[[str, DecodeError | None], None]] = []
        self._waiting: list[asyncio.Future[None]] = []
        #: newest resource version of list and watch
        self._version = ""
        #: keys that the list in progress has brought
        self._listed: set[str] = set()

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    def get(self, key: str) -> T | None:
        """The object, or None."""
        return self._objects.get(key)

    def values(self) -> Collection[T]:
        """All objects now; stays as it is while the store changes."""
        return list(self._objects.values())

    def keys(self) -> Collection[str]:
        """All keys now."""
        return list(self._objects)

    def reached(self, resource_version: str) -> bool:
        """Whether list and watch have come to this version of an object of the store."""
        return not newer(resource_version, self._version)

    def index(self, name: str, of: Callable[[T], Iterable[str]]) -> None:
        """Keep an index from each value that `of` gives for an object; a name that exists is left alone."""
        if name in self._indexes:
            return
        index = self._indexes[name] = _Index(of)
        for key, obj in self._objects.items():
            index.move(key, obj)

    def by(self, name: str, value: str) -> Collection[T]:
        """The objects for which the index has this value; stays as it is while the store changes."""
        row = self._indexes[name].rows.get(value)
        return list(row.values()) if row else ()

    def subscribe(self, on_change: Callable[[Change[T]], None]) -> None:
        """Call for every change from now on, and at once for everything that is there."""
        self._subscribers.append(on_change)
        for key, obj in list(self._objects.items()):
            self._call(on_change, Change(key, None, obj))

    async def subscribe_in_turns(self, on_change: Callable[[Change[T]], None]) -> None:
        """The same where that is much work: everybody else gets a turn in between.  Returns when all has been told."""
        untold = dict.fromkeys(self._objects)

        def told(change: Change[T]) -> None:
            if change.key not in untold:
                on_change(change)
                return
            del untold[change.key]
            if change.new is not None:
                on_change(Change(change.key, None, change.new))

        def tell(key: str) -> None:
            if key in untold:
                del untold[key]
                self._call(on_change, Change(key, None, self._objects[key]))

        self._subscribers.append(told)
        try:
            async for key in in_turns(list(untold)):
                tell(key)
        finally:
            # Whoever is cancelled has subscribed all the same.
            for key in list(untold):
                tell(key)
            self._subscribers[self._subscribers.index(told)] = on_change

    def on_problem(self, on_problem: Callable[[str, DecodeError | None], None]) -> None:
        """Call for every object that cannot be read, and with None when it can be again or is gone."""
        self._problem_listeners.append(on_problem)
        for key, problem in list(self.problems.items()):
            on_problem(key, problem)

    async def until(self, holds: Callable[[Store[T]], bool], timeout_s: float = 30.0) -> None:
        """Wait, change by change, for something to hold; raises `TimeoutError`."""
        try:
            async with asyncio.timeout(timeout_s):
                while not holds(self):
                    change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.append(change)
                    await change
        except TimeoutError:
            raise TimeoutError(f"not within {timeout_s:g} s; {len(self)} {self.resource.plural} are there") from None

    def assume(self, obj: T) -> bool:
        """Show this version until the watch brings it or a newer one; False if something newer is known already.

        An object that keeps the resource version it was made from (`structs.replace`) is a guess and lasts until the
        next real version.  In a store with selectors, assume only what they select: nothing else would ever end it.
        """
        key, _, version = self._reader.identity(obj)
        current = self._objects.get(key)
        if current is None:
            # Unknown, though the watch is past that version: it was deleted in the meantime.
            if newer(version, self._version) is False:
                return False
        elif newer(self._reader.identity(current).resource_version, version):
            return False
        elif current == obj:
            # A write that changed nothing is no news: a reader that answers changes with writes would never rest.
            return True
        self._hidden.setdefault(key, current)
        self._set(key, obj)
        return True

    def forget(self, key: str) -> None:
        """Show again what the server said."""
        if key in self._hidden:
            self._set(key, self._hidden.pop(key))

    def begin_list(self) -> None:
        """See `watch.Sink`."""
        self._listed.clear()

    def listed(self, items: list[msgspec.Raw]) -> None:
        """See `watch.Sink`."""
        for raw in items:
            identity, obj = self._decode(raw)
            key = identity.key
            self._listed.add(key)
            if isinstance(obj, DecodeError):
                self._unreadable(key, obj)
                continue
            known = self._said(key)
            if known is not None:
                seen = self._reader.identity(known)
                if seen.uid == identity.uid and seen.resource_version == identity.resource_version:
                    continue
            self._learn(identity, obj)

    def end_list(self, resource_version: str) -> None:
        """See `watch.Sink`."""
        for key in [key for key in self._objects if key not in self._listed]:
            if key in self._hidden:
                assumed = self._reader.identity(self._objects[key]).resource_version
                if newer(assumed, resource_version):
                    self._hidden[key] = None
                    continue
            self._gone(key)
        for key in [key for key in self.problems if key not in self._listed]:
            self._problem(key, None)
        self._listed.clear()
        self._version = resource_version
        self.synced.set()
        self._wake()

    def happened(self, event: WatchEvent) -> str:
        """See `watch.Sink`."""
        identity, obj = self._decode(event.object)
        key, uid, version = identity
        seen = self._seen(key)
        if event.type == "DELETED":
            # Old servers send the last version of the object, so an equal one is no repetition here.
            if seen is None or not newer(seen.resource_version, version):
                self._deleted(identity)
        elif seen is not None and seen.uid == uid:
            if version != seen.resource_version and newer(version, seen.resource_version) is not False:
                self._came(identity, obj)
        elif newer(version, self._version) is False:
            raise OutOfOrder(f"{key} came with resource version {version}, after {self._version}")
        else:
            self._came(identity, obj)
        if version and newer(version, self._version) is not False:
            self._version = version
        return self._version

    def bookmarked(self, resource_version: str) -> None:
        """See `watch.Sink`."""
        if newer(self._version, resource_version):
            raise OutOfOrder(f"bookmark of resource version {resource_version}, after {self._version}")
        self._version = resource_version

    def _decode(self, raw: msgspec.Raw) -> tuple[Identity, T | DecodeError]:
        try:
            obj = self._reader.read(raw)
        except DecodeError as problem:
            identity = self._reader.identity_of_raw(raw)
            problem.uid, problem.resource_version = identity.uid, identity.resource_version
            return (identity if identity.key else identity._replace(key=_NAMELESS)), problem
        return self._reader.identity(obj), obj

    def _said(self, key: str) -> T | None:
        """What the server last said of a key, whatever is assumed."""
        return self._hidden[key] if key in self._hidden else self._objects.get(key)

    def _seen(self, key: str) -> Identity | None:
        """Which version of a key the server last told, readable or not."""
        known, problem = self._said(key), self.problems.get(key)
        if known is not None:
            return self._reader.identity(known)
        if problem is not None and problem.resource_version:
            return Identity(key, problem.uid, problem.resource_version)
        return None

    def _came(self, identity: Identity, obj: T | DecodeError) -> None:
        if isinstance(obj, DecodeError):
            self._unreadable(identity.key, obj)
        else:
            self._learn(identity, obj)

    def _learn(self, identity: Identity, obj: T) -> None:
        """The server has this version."""
        key = identity.key
        if self.problems and key in self.problems:
            self._problem(key, None)
        if key in self._hidden:
            assumed = self._objects[key]
            if newer(self._reader.identity(assumed).resource_version, identity.resource_version):
                self._hidden[key] = obj
                return
            del self._hidden[key]
            if assumed == obj:
                return
        self._set(key, obj)

    def _deleted(self, identity: Identity) -> None:
        key = identity.key
        if key in self._hidden:
            assumed = self._reader.identity(self._objects[key])
            if assumed.uid != identity.uid and newer(assumed.resource_version, identity.resource_version):
                # Deleted and made again by us, and only the deletion has been told so far.
                self._hidden[key] = None
                return
        self._gone(key)

    def _gone(self, key: str) -> None:
        self._hidden.pop(key, None)
        if key in self.problems:
            self._problem(key, None)
        self._set(key, None)

    def _unreadable(self, key: str, problem: DecodeError) -> None:
        self._hidden.pop(key, None)
        self._set(key, None)
        known = self.problems.get(key)
        if known is None or str(known) != str(problem):
            log.warning("%s cannot be read and is left out: %s", self.resource.kind, problem)
            self._problem(key, problem)
        else:
            known.uid, known.resource_version = problem.uid, problem.resource_version

    def _problem(self, key: str, problem: DecodeError | None) -> None:
        if problem is None:
            self.problems.pop(key, None)
        else:
            self.problems[key] = problem
        for listener in self._problem_listeners:
            try:
                listener(key, problem)
            except Exception:
                log.exception("a reader of %s failed on a problem of %s", self.resource.plural, key)
        self._wake()

    def _set(self, key: str, new: T | None) -> None:
        old = self._objects.get(key)
        if new is not None:
            self._objects[key] = new
        elif old is None:
            return
        else:
            del self._objects[key]
        for index in self._indexes.values():
            index.move(key, new)
        change = Change(key, old, new)
        for subscriber in self._subscribers:
            self._call(subscriber, change)
        if self._waiting:
            self._wake()

    def _call(self, subscriber: Callable[[Change[T]], None], change: Change[T]) -> None:
        # One reader's mistake must not keep the others, or the watch, from going on.
        try:
            subscriber(change)
        except Exception:
            log.exception("a reader of %s failed on %s", self.resource.plural, change.key)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            if not change.done():
                change.set_result(None)
