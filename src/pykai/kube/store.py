"""A typed cache of one kind of object, with indexes and a feed of changes.

`reflector.Reflector` fills it; services read it on the event loop and never wait for it after the first list.  Every
change is delivered to subscribers once, synchronously and in order, after the indexes have been brought up to date.

A service that has just written something may `assume` the result, so that it is seen before the watch brings it.  An
assumption hides what the watch said until the watch brings that version or a newer one, or until `forget`.

An object that cannot be decoded leaves the cache, as a change, and is listed in `problems` until it is fixed or
deleted.

Subtle: the store never goes back in time within a watch: an event whose resource version is not newer than what is
known is a repetition and dropped.  A list, in contrast, is authoritative, even where its versions are older.

Statements: hostile:store, kube:assume, kube:relist, kube:repeat, kube:store, kube:unreadable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeVar

import msgspec

from pykai.api.decode import DecodeError
from pykai.kube.decoding import ObjectIdentity, ResourceDecoder, is_newer
from pykai.kube.reflector import OutOfOrder, WatchEvent
from pykai.kube.resources import Resource
from pykai.kube.yielding import yielding_to_loop

T = TypeVar("T")

log = logging.getLogger(__name__)

#: key in `problems` for an object whose name could not be read
_NAMELESS = "?"


class Change(msgspec.Struct, Generic[T], frozen=True):
    """An object came (`old` None), changed, or went (`new` None); the key is `namespace/name`, or `name`."""

    key: str
    old: T | None
    new: T | None


class _StoreIndex(Generic[T]):
    """Objects by the values that a function gives for them."""

    def __init__(self, of: Callable[[T], Iterable[str]]) -> None:
        self.keys_of = of
        self.rows: dict[str, dict[str, T]] = {}
        self._values: dict[str, tuple[str, ...]] = {}

    def update(self, key: str, new: T | None) -> None:
        values: tuple[str, ...] = ()
        if new is not None:
            try:
                values = tuple(self.keys_of(new))
            except Exception:
                # The object is then in no row of this index, but in the store and the other indexes.
                log.exception("an index function failed on %s", key)
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
    """The objects of one resource as of the last event."""

    def __init__(self, resource: Resource, into: type[T]) -> None:
        self.resource = resource
        self.problems: dict[str, DecodeError] = {}
        #: set once the first list is in
        self.synced = asyncio.Event()
        self._decoder = ResourceDecoder(resource, into)
        #: what readers see: assumptions included
        self._objects: dict[str, T] = {}
        #: what the server last said of keys about which something is assumed
        self._observed_behind_assumption: dict[str, T | None] = {}
        self._indexes: dict[str, _StoreIndex[T]] = {}
        self._subscribers: list[Callable[[Change[T]], None]] = []
        self._problem_listeners: list[Callable[[str, DecodeError | None], None]] = []
        self._waiting: list[asyncio.Future[None]] = []
        #: newest resource version of list and watch
        self._resource_version = ""
        #: keys that the list in progress has brought
        self._listed_keys: set[str] = set()

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    def get(self, key: str) -> T | None:
        """The object, or None."""
        return self._objects.get(key)

    def values(self) -> Collection[T]:
        """A copy of all objects."""
        return list(self._objects.values())

    def keys(self) -> Collection[str]:
        """All keys now."""
        return list(self._objects)

    def has_reached(self, resource_version: str) -> bool:
        """Whether list and watch have come to this version of an object of the store."""
        return not is_newer(resource_version, self._resource_version)

    def index(self, name: str, keys_of: Callable[[T], Iterable[str]]) -> None:
        """Keep an index from each value that `of` gives for an object; a name that exists is left alone."""
        if name in self._indexes:
            return
        index = self._indexes[name] = _StoreIndex(keys_of)
        for key, obj in self._objects.items():
            index.update(key, obj)

    def by_index(self, name: str, value: str) -> Collection[T]:
        """A copy of the objects for which the index has this value."""
        row = self._indexes[name].rows.get(value)
        return list(row.values()) if row else ()

    def count_by_index(self, name: str, value: str) -> int:
        """How many objects the index has for this value, without a copy of them."""
        return len(self._indexes[name].rows.get(value, ()))

    def subscribe(self, on_change: Callable[[Change[T]], None]) -> None:
        """Call for every change from now on, and at once for everything that is there."""
        self._subscribers.append(on_change)
        for key, obj in list(self._objects.items()):
            self._notify(on_change, Change(key, None, obj))

    async def subscribe_yielding(self, on_change: Callable[[Change[T]], None]) -> None:
        """The same for many objects: yields to the event loop in between.  Returns when all have been delivered."""
        undelivered = dict.fromkeys(self._objects)

        def deliver_once(change: Change[T]) -> None:
            if change.key not in undelivered:
                on_change(change)
                return
            del undelivered[change.key]
            if change.new is not None:
                on_change(Change(change.key, None, change.new))

        def deliver_initial(key: str) -> None:
            if key in undelivered:
                del undelivered[key]
                self._notify(on_change, Change(key, None, self._objects[key]))

        self._subscribers.append(deliver_once)
        try:
            async for key in yielding_to_loop(list(undelivered)):
                deliver_initial(key)
        finally:
            # A cancelled caller is subscribed all the same.
            for key in list(undelivered):
                deliver_initial(key)
            self._subscribers[self._subscribers.index(deliver_once)] = on_change

    def on_problem(self, on_problem: Callable[[str, DecodeError | None], None]) -> None:
        """Call for every object that cannot be read, and with None when it can be again or is gone."""
        self._problem_listeners.append(on_problem)
        for key, problem in list(self.problems.items()):
            on_problem(key, problem)

    async def wait_until(self, condition: Callable[[Store[T]], bool], timeout_s: float = 30.0) -> None:
        """Wait, change by change, for something to hold; raises `TimeoutError`."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition(self):
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
        key, _, version = self._decoder.identity(obj)
        current = self._objects.get(key)
        if current is None:
            # Unknown, though the watch is past that version: it was deleted in the meantime.
            if is_newer(version, self._resource_version) is False:
                return False
        elif is_newer(self._decoder.identity(current).resource_version, version):
            return False
        elif current == obj:
            # A write that changed nothing is not delivered: a subscriber that answers changes with writes would loop.
            return True
        self._observed_behind_assumption.setdefault(key, current)
        self._set(key, obj)
        return True

    def forget(self, key: str) -> None:
        """Drop an assumption: show what the server has."""
        if key in self._observed_behind_assumption:
            self._set(key, self._observed_behind_assumption.pop(key))

    def begin_list(self) -> None:
        """See `reflector.Sink`."""
        self._listed_keys.clear()

    def add_listed(self, items: list[msgspec.Raw]) -> None:
        """See `reflector.Sink`."""
        for raw in items:
            identity, obj = self._decode(raw)
            key = identity.key
            self._listed_keys.add(key)
            if isinstance(obj, DecodeError):
                self._apply_unreadable(key, obj)
                continue
            observed = self._observed(key)
            if observed is not None:
                observed_identity = self._decoder.identity(observed)
                if (
                    observed_identity.uid == identity.uid
                    and observed_identity.resource_version == identity.resource_version
                ):
                    continue
            self._apply_observed(identity, obj)

    def end_list(self, resource_version: str) -> None:
        """See `reflector.Sink`."""
        for key in [key for key in self._objects if key not in self._listed_keys]:
            if key in self._observed_behind_assumption:
                assumed = self._decoder.identity(self._objects[key]).resource_version
                if is_newer(assumed, resource_version):
                    self._observed_behind_assumption[key] = None
                    continue
            self._remove(key)
        for key in [key for key in self.problems if key not in self._listed_keys]:
            self._set_problem(key, None)
        self._listed_keys.clear()
        self._resource_version = resource_version
        self.synced.set()
        self._wake_waiters()

    def apply_event(self, event: WatchEvent) -> str:
        """See `reflector.Sink`."""
        identity, obj = self._decode(event.object)
        key, uid, version = identity
        observed = self._observed_identity(key)
        if event.type == "DELETED":
            # Old servers send the last version of the object, so an equal one is no repetition here.
            if observed is None or not is_newer(observed.resource_version, version):
                self._apply_deletion(identity)
        elif observed is not None and observed.uid == uid:
            if version != observed.resource_version and is_newer(version, observed.resource_version) is not False:
                self._apply_object(identity, obj)
        elif is_newer(version, self._resource_version) is False:
            raise OutOfOrder(f"{key} came with resource version {version}, after {self._resource_version}")
        else:
            self._apply_object(identity, obj)
        if version and is_newer(version, self._resource_version) is not False:
            self._resource_version = version
        return self._resource_version

    def apply_bookmark(self, resource_version: str) -> None:
        """See `reflector.Sink`."""
        if is_newer(self._resource_version, resource_version):
            raise OutOfOrder(f"bookmark of resource version {resource_version}, after {self._resource_version}")
        self._resource_version = resource_version

    def _decode(self, raw: msgspec.Raw) -> tuple[ObjectIdentity, T | DecodeError]:
        try:
            obj = self._decoder.decode(raw)
        except DecodeError as problem:
            identity = self._decoder.raw_identity(raw)
            problem.uid, problem.resource_version = identity.uid, identity.resource_version
            return (identity if identity.key else identity._replace(key=_NAMELESS)), problem
        return self._decoder.identity(obj), obj

    def _observed(self, key: str) -> T | None:
        """The server's version of a key, without assumptions."""
        return (
            self._observed_behind_assumption[key] if key in self._observed_behind_assumption else self._objects.get(key)
        )

    def _observed_identity(self, key: str) -> ObjectIdentity | None:
        """The newest version of a key seen from the server, readable or not."""
        observed, problem = self._observed(key), self.problems.get(key)
        if observed is not None:
            return self._decoder.identity(observed)
        if problem is not None and problem.resource_version:
            return ObjectIdentity(key, problem.uid, problem.resource_version)
        return None

    def _apply_object(self, identity: ObjectIdentity, obj: T | DecodeError) -> None:
        if isinstance(obj, DecodeError):
            self._apply_unreadable(identity.key, obj)
        else:
            self._apply_observed(identity, obj)

    def _apply_observed(self, identity: ObjectIdentity, obj: T) -> None:
        """The server has this version."""
        key = identity.key
        if self.problems and key in self.problems:
            self._set_problem(key, None)
        if key in self._observed_behind_assumption:
            assumed = self._objects[key]
            if is_newer(self._decoder.identity(assumed).resource_version, identity.resource_version):
                self._observed_behind_assumption[key] = obj
                return
            del self._observed_behind_assumption[key]
            if assumed == obj:
                return
        self._set(key, obj)

    def _apply_deletion(self, identity: ObjectIdentity) -> None:
        key = identity.key
        if key in self._observed_behind_assumption:
            assumed = self._decoder.identity(self._objects[key])
            if assumed.uid != identity.uid and is_newer(assumed.resource_version, identity.resource_version):
                # We deleted and recreated it; only the deletion has been seen so far.
                self._observed_behind_assumption[key] = None
                return
        self._remove(key)

    def _remove(self, key: str) -> None:
        self._observed_behind_assumption.pop(key, None)
        if key in self.problems:
            self._set_problem(key, None)
        self._set(key, None)

    def _apply_unreadable(self, key: str, problem: DecodeError) -> None:
        self._observed_behind_assumption.pop(key, None)
        self._set(key, None)
        previous = self.problems.get(key)
        if previous is None or str(previous) != str(problem):
            log.warning("%s cannot be read and is left out: %s", self.resource.kind, problem)
            self._set_problem(key, problem)
        else:
            previous.uid, previous.resource_version = problem.uid, problem.resource_version

    def _set_problem(self, key: str, problem: DecodeError | None) -> None:
        if problem is None:
            self.problems.pop(key, None)
        else:
            self.problems[key] = problem
        for listener in self._problem_listeners:
            try:
                listener(key, problem)
            except Exception:
                # As in `_notify`.
                log.exception("a subscriber to %s failed on a problem of %s", self.resource.plural, key)
        self._wake_waiters()

    def _set(self, key: str, new: T | None) -> None:
        old = self._objects.get(key)
        if new is not None:
            self._objects[key] = new
        elif old is None:
            return
        else:
            del self._objects[key]
        for index in self._indexes.values():
            index.update(key, new)
        change = Change(key, old, new)
        for subscriber in self._subscribers:
            self._notify(subscriber, change)
        if self._waiting:
            self._wake_waiters()

    def _notify(self, subscriber: Callable[[Change[T]], None], change: Change[T]) -> None:
        # A failing subscriber must not stop the others or the watch.
        try:
            subscriber(change)
        except Exception:
            log.exception("a subscriber to %s failed on %s", self.resource.plural, change.key)

    def _wake_waiters(self) -> None:
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            if not change.done():
                change.set_result(None)
