"""What controllers share: the loop, names and owners of dependents, and writes that show in the cache at once.

A `Controller` waits for its stores, subscribes to them and reconciles keys. An unreadable object, or one whose writes
the server refuses, gets an event. `AssumingWriter` creates, patches and deletes objects of one store and puts the
result into it before the watch does, so that the next reconcile does not create the same pod twice.

Random suffixes of names derive from the owner, a number and the process. So a creation whose answer was lost is retried
under the same name, and found to exist.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from pykai.api import names
from pykai.api.decode import DecodeError, decode_as
from pykai.api.keys import object_key, split_key
from pykai.api.meta import LabelSelector, ObjectMeta, OwnerReference, Wire
from pykai.api.unstructured import JsonObject
from pykai.api.workloads import Deployment, ReplicaSet, StatefulSet
from pykai.kube.client import Client, PatchKind
from pykai.kube.clock import Clock
from pykai.kube.errors import AlreadyExists, ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound
from pykai.kube.events import EventRecorder, InvolvedObject
from pykai.kube.reconcile import Reconciler
from pykai.kube.resources import Resource
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change, Store
from pykai.lab.cachesync import wait_for_cache_sync
from pykai.lab.timestamps import to_timestamp

T = TypeVar("T", bound=Wire)
OnChange = Callable[[Change[Any]], None]

#: Kubernetes' alphabet for random suffixes: no vowels, so that no words appear.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
#: Wall seconds in which changes of many pods become one reconcile of their owner.
BATCH_DELAY_S = 0.05

#: Larger percentages, and more digits, are cut to this.
_MOST_PERCENT, _DIGITS = 1000, 9
#: Kubernetes' reason of events about an object that cannot be reconciled.
_FAILED_SYNC = "FailedSync"

_PROCESS = uuid.uuid4().hex


class Controller:
    """A service that reconciles objects of one kind."""

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        reconcile: Callable[[str], Awaitable[float | None]],
        store: Store[Any],
        *,
        on_change: OnChange | None = None,
        forget: Callable[[str], object] | None = None,
        owns: Iterable[Store[Any]] = (),
        watches: Iterable[tuple[Store[Any], OnChange]] = (),
        reads: Iterable[Store[Any]] = (),
    ) -> None:
        """`store` holds the controller's own kind.

        A change of its own kind enqueues the object unless `on_change` handles it; `forget` gets the uids of deleted
        objects. A change in a store of `owns` enqueues the owner soon. `watches` brings stores with their handlers.
        Stores of `reads` are only synced.
        """
        self._name = name
        self._store = store
        self._forget = forget
        self.clock = runtime.clock
        self.recorder = EventRecorder(runtime.client, component=name, clock=runtime.clock)
        self._reconcile = reconcile
        self._reconciler = Reconciler(name, self._reconcile_or_report, clock=runtime.clock, workers=8, max_delay_s=30.0)
        self._sources: list[tuple[Store[Any], OnChange]] = [
            (store, on_change or self._on_own_change),
            *((owned, self._on_owned_change) for owned in owns),
            *watches,
        ]
        self._reads = tuple(reads)
        self._ready = False

    @property
    def name(self) -> str:
        """As in events and logs."""
        return self._name

    def ready(self) -> bool:
        """Whether it reconciles."""
        return self._ready

    def now(self) -> str:
        """Cluster time as a timestamp."""
        return to_timestamp(self.now_s())

    def now_s(self) -> float:
        """Cluster time in seconds since 1970."""
        return self.clock.now().timestamp()

    def enqueue(self, key: str) -> None:
        """Reconcile as soon as possible."""
        self._reconciler.enqueue(key)

    def enqueue_soon(self, key: str) -> None:
        """Reconcile after a short delay that batches changes."""
        self._reconciler.enqueue(key, BATCH_DELAY_S * self.clock.speed)

    def owner_key(self, change: Change[Any]) -> str | None:
        """The key of the object of the controller's kind that controls a changed object."""
        obj = change.new or change.old
        owner = controller_of(obj) if obj is not None else None
        if obj is None or owner is None or owner.kind != self._store.resource.kind:
            return None
        return object_key(obj.metadata.namespace, owner.name)

    def event(self, obj: Wire, event_type: str, reason: str, message: str) -> None:
        """Record an event about an object of the controller's kind."""
        self.recorder.event(reference(obj, self._store.resource), event_type, reason, message)

    def report_failed_create(self, owner: Wire, error: ApiError, message: str) -> None:
        """Record that a dependent was refused; raise the error again where another attempt may succeed."""
        if error.code >= 500 or error.code in (409, 429):
            raise error
        self.event(owner, "Warning", names.EVENT_FAILED_CREATE, message)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set."""
        if not await wait_for_cache_sync(stop, *(store for store, _ in self._sources), *self._reads):
            return
        for store, on_change in self._sources:
            store.subscribe(on_change)
        self._store.on_problem(self._report_unreadable)
        self._ready = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self.recorder.run(stop))
            group.create_task(self._reconciler.run(stop))
        self._ready = False

    def _on_own_change(self, change: Change[Any]) -> None:
        if self._forget is not None and change.new is None and change.old is not None:
            self._forget(change.old.metadata.uid)
        self.enqueue(change.key)

    def _on_owned_change(self, change: Change[Any]) -> None:
        key = self.owner_key(change)
        if key is not None:
            self.enqueue_soon(key)

    async def _reconcile_or_report(self, key: str) -> float | None:
        try:
            return await self._reconcile(key)
        except (BadRequest, Forbidden, Invalid) as refusal:
            obj = self._store.get(key)
            if obj is not None:
                self.event(obj, "Warning", _FAILED_SYNC, str(refusal))
            raise

    def _report_unreadable(self, key: str, problem: DecodeError | None) -> None:
        if problem is not None:
            resource = self._store.resource
            about = InvolvedObject(resource.api_version, resource.kind, *split_key(key), problem.uid)
            text = f"{problem}; nothing is done for it until this is fixed"
            self.recorder.event(about, "Warning", names.EVENT_UNREADABLE, text)


class AssumingWriter(Generic[T]):
    """Writes objects of one kind, and puts the result into their store at once."""

    def __init__(self, client: Client, store: Store[T], into: type[T], clock: Clock) -> None:
        self._client = client
        self._store = store
        self._resource = store.resource
        self._into = into
        self._clock = clock

    def latest(self, obj: T) -> T | None:
        """The object as the store has it now; None if it is gone or was replaced."""
        current = self._store.get(key_of(obj))
        return current if current is not None and metadata_of(current).uid == metadata_of(obj).uid else None

    async def create(self, obj: JsonObject) -> T | None:
        """Create an object; None if the name is taken."""
        try:
            made = await self._client.create(self._resource, obj)
        except AlreadyExists:
            return None
        return self._assume(made)

    async def patch(self, obj: T, patch: JsonObject, *, kind: PatchKind = PatchKind.MERGE) -> T | None:
        """Patch it; None if it is gone or was replaced."""
        return await self._patch(obj, patch, kind, "")

    async def patch_status(self, obj: T, status: JsonObject, *, kind: PatchKind = PatchKind.MERGE) -> T | None:
        """Patch it; None if it is gone or was replaced."""
        return await self._patch(obj, {"status": status}, kind, "status")

    async def delete(self, obj: T, *, grace_s: int | None = None) -> None:
        """Delete exactly this object, dependents in the background; gone already is fine."""
        metadata = metadata_of(obj)
        try:
            await self._client.delete(
                self._resource,
                metadata.name,
                metadata.namespace,
                uid=metadata.uid,
                grace_s=grace_s,
                propagation="Background",
            )
        except (NotFound, Conflict):
            return
        if metadata.deletion_timestamp is None and self._store.get(key_of(obj)) is obj:
            going = msgspec.structs.replace(metadata, deletion_timestamp=to_timestamp(self._clock.now().timestamp()))
            self._store.assume(msgspec.structs.replace(obj, metadata=going))

    async def _patch(self, obj: T, patch: JsonObject, kind: PatchKind, subresource: str) -> T | None:
        metadata = metadata_of(obj)
        body = {**patch, "metadata": {**patch.get("metadata", {}), "uid": metadata.uid}}
        try:
            patched = await self._client.patch(
                self._resource, metadata.name, body, metadata.namespace, kind=kind, subresource=subresource
            )
        except (NotFound, Conflict):
            return None
        return self._assume(patched)

    def _assume(self, document: JsonObject) -> T:
        obj = decode_as(self._into, document)
        self._store.assume(obj)
        return obj


def metadata_of(obj: Wire) -> ObjectMeta:
    """The metadata of any object."""
    # Every kind that a controller watches has metadata; `Wire`, the base of nested types too, does not say so.
    metadata: ObjectMeta = obj.metadata  # type: ignore[attr-defined]
    return metadata


def key_of(obj: Wire) -> str:
    """The object's key in stores."""
    metadata = metadata_of(obj)
    return object_key(metadata.namespace, metadata.name) if metadata.namespace else metadata.name


def reference(obj: Wire, resource: Resource) -> InvolvedObject:
    """The object as an event refers to it."""
    metadata = metadata_of(obj)
    return InvolvedObject(resource.api_version, resource.kind, metadata.namespace, metadata.name, metadata.uid)


def controller_of(obj: Wire) -> OwnerReference | None:
    """The controlling owner of an object."""
    for owner in metadata_of(obj).owner_references:
        if owner.controller:
            return owner
    return None


def controlled_by(obj: Wire) -> tuple[str, ...]:
    """For an index: the uid of the controlling owner."""
    owner = controller_of(obj)
    return (owner.uid,) if owner is not None else ()


def owner_reference(obj: Wire, resource: Resource) -> JsonObject:
    """The owner reference to `obj` for its dependents."""
    metadata = metadata_of(obj)
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def random_suffix_name(base: str, owner_uid: str, number: int) -> str:
    """`<base>-<five characters>`; the same for the same owner and number within a process."""
    digest = hashlib.blake2b(f"{_PROCESS}/{owner_uid}/{number}".encode(), digest_size=8).digest()
    return f"{base[:57]}-{encode_suffix(int.from_bytes(digest, 'big'), 5)}"


def encode_suffix(number: int, length: int) -> str:
    """A number in the alphabet of random suffixes."""
    letters = []
    for _ in range(length):
        number, rest = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[rest])
    return "".join(letters)


def template_hash(document: object, salt: str = "") -> str:
    """A hash of a document, ten characters long."""
    data = msgspec.json.encode(document, order="deterministic") + salt.encode()
    return encode_suffix(int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big"), 10)


def selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector matches; an absent or empty one matches nothing here."""
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    for expression in selector.match_expressions:
        value = labels.get(expression.key)
        if expression.operator == "In" and value not in expression.values:
            return False
        if expression.operator == "NotIn" and value is not None and value in expression.values:
            return False
        if expression.operator == "Exists" and value is None:
            return False
        if expression.operator == "DoesNotExist" and value is not None:
            return False
    return True


def replicas_of(owner: Deployment | ReplicaSet | StatefulSet) -> int:
    """How many pods a workload wants."""
    return 1 if owner.spec.replicas is None else max(0, owner.spec.replicas)


def int_or_percent(value: int | str | None, total: int, *, up: bool, default: int | str) -> int:
    """A count given as a number or as a percentage of a total."""
    value = default if value is None else value
    if isinstance(value, int):
        return max(0, value)
    text = value.removesuffix("%")
    if not (text.isascii() and text.isdigit()):
        return int_or_percent(default, total, up=up, default=0)
    share = min(int(text[:_DIGITS]), _MOST_PERCENT) * total
    return -(-share // 100) if up else share // 100


def changed_fields(status: Wire, desired: Mapping[str, object]) -> JsonObject:
    """The desired fields that a status does not have yet; an absent number counts as 0."""
    attributes = _attribute_names(type(status))
    return {
        name: value
        for name, value in desired.items()
        if (current := getattr(status, attributes[name])) != value and not (current is None and value == 0)
    }


@cache
def _attribute_names(into: type[Wire]) -> Mapping[str, str]:
    return {field.encode_name: field.name for field in msgspec.structs.fields(into)}


def without_nulls(document: JsonObject) -> JsonObject:
    """Without the fields that are None."""
    return {key: value for key, value in document.items() if value is not None}
