"""From a pod to the workload at the top of its owners (workloads:OW-1 to OW-6).

`find_owners` climbs from reference to reference: the controller's if there is one, else the first.  Common kinds are
read from caches; others, and what a cache has not seen yet, are read from the server and then remembered by their uid
for a while, because all pods of a workload climb the same chain.

The climb ends early where the server forbids reading the next owner; the last owner that was read is then the top.

Subtle: only an object with the uid of the reference is the owner; a later object of the same name is another one.
Owners in a cycle are refused.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from pykai.api.core import Pod
from pykai.api.decode import DecodeError, decode_as
from pykai.api.meta import Int64, ObjectMeta, OwnerReference, Wire
from pykai.kube.clock import Clock
from pykai.kube.errors import Forbidden, KubeError, NotFound
from pykai.podgrouper.metadata import GroupingError, ObjectName, Owner

#: Chains of real workloads have three or four links.
_MAX_CHAIN_LENGTH: Final = 16
#: How many objects a cache holds at most.
_MAX_CACHED_OBJECTS: Final = 20_000

_Value = TypeVar("_Value")


class ObjectMetadataOnly(Wire):
    """The metadata of any object."""

    metadata: ObjectMeta = ObjectMeta()


class JobProgressSpec(Wire):
    completions: Int64 | None = None
    parallelism: Int64 | None = None


class JobProgressStatus(Wire):
    succeeded: Int64 = 0


class JobProgress(ObjectMetadataOnly):
    """The metadata and progress of a Job."""

    spec: JobProgressSpec = JobProgressSpec()
    status: JobProgressStatus = JobProgressStatus()


#: Reads an object in full; raises `NotFound`, `Forbidden` and the other `kube.errors`.
ServerRead = Callable[[ObjectName], Awaitable[Mapping[str, Any]]]
#: The owner as a cache has it, None where no cache can say.
CacheRead = Callable[[ObjectName], Owner | None]


class ReadCache(Generic[_Value]):
    """What was read from the server, by key, for `ttl_s` cluster seconds."""

    def __init__(self, clock: Clock, ttl_s: float) -> None:
        self._clock = clock
        self.ttl_s = ttl_s
        self._entries: OrderedDict[str, tuple[float, _Value]] = OrderedDict()
        self._in_flight: dict[str, asyncio.Event] = {}

    def get(self, key: str) -> _Value | None:
        """The value, if it was read not long ago."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if self._clock.elapsed_s() - entry[0] > self.ttl_s:
            del self._entries[key]
            return None
        return entry[1]

    def put(self, key: str, value: _Value) -> None:
        """Remember a value and drop expired ones: workloads are large."""
        now_s = self._clock.elapsed_s()
        self._entries.pop(key, None)
        self._entries[key] = (now_s, value)
        while len(self._entries) > _MAX_CACHED_OBJECTS or now_s - next(iter(self._entries.values()))[0] > self.ttl_s:
            self._entries.popitem(last=False)

    def drop(self, key: str, min_age_s: float) -> None:
        """Forget a value that was read so many seconds ago or earlier."""
        entry = self._entries.get(key)
        if entry is not None and self._clock.elapsed_s() - entry[0] >= min_age_s:
            del self._entries[key]

    def __len__(self) -> int:
        return len(self._entries)

    async def get_or_read(self, key: str, read: Callable[[], Awaitable[_Value]]) -> _Value:
        """The value, read once however many pods need it at the same time."""
        while (asking := self._in_flight.get(key)) is not None:
            await asking.wait()
            found = self.get(key)
            if found is not None:
                return found
        done = self._in_flight[key] = asyncio.Event()
        try:
            value = await read()
            self.put(key, value)
            return value
        finally:
            del self._in_flight[key]
            done.set()


#: Owners by their uid.
OwnerCache = ReadCache[Owner]


async def find_owners(
    pod: Pod, read_cache: CacheRead, fetch: ServerRead, cache: OwnerCache
) -> tuple[Owner, tuple[Owner, ...]]:
    """The top owner, and all owners from the nearest to the top; none for a pod that owns itself."""
    owners: list[Owner] = []
    visited_uids: set[str] = set()
    reference = controller_reference(pod.metadata.owner_references)
    while reference is not None:
        if reference.uid in visited_uids or len(owners) >= _MAX_CHAIN_LENGTH:
            chain = " -> ".join(f"{owner.kind} {owner.metadata.name}" for owner in owners)
            raise GroupingError(f"the owners of pod {pod.metadata.name} own each other: {chain}; fix ownerReferences")
        visited_uids.add(reference.uid)
        try:
            owner = await _resolve_owner(reference, pod.metadata.namespace, read_cache, fetch, cache)
        except Forbidden:
            break
        owners.append(owner)
        reference = controller_reference(owner.metadata.owner_references)
    return (owners[-1] if owners else Owner.of_pod(pod)), tuple(owners)


def controller_reference(references: Sequence[OwnerReference]) -> OwnerReference | None:
    """The reference to follow: the controller's, else the first."""
    if not references:
        return None
    return next((each for each in references if each.controller), references[0])


def controller_uid(obj: Pod | ObjectMetadataOnly) -> tuple[str, ...]:
    """The uid of the reference to follow, for an index; none without owners."""
    reference = controller_reference(obj.metadata.owner_references)
    return (reference.uid,) if reference is not None and reference.uid else ()


async def _resolve_owner(
    reference: OwnerReference, namespace: str, read_cache: CacheRead, fetch: ServerRead, cache: OwnerCache
) -> Owner:
    which = ObjectName(reference.api_version, reference.kind, namespace, reference.name)
    # The cache may lag and hold an earlier object of this name; read from the server.
    for candidate in (read_cache(which), cache.get(reference.uid)):
        if candidate is not None and candidate.metadata.uid == reference.uid:
            return candidate
    return await cache.get_or_read(reference.uid, lambda: _fetch_owner(which, reference.uid, fetch))


async def _fetch_owner(which: ObjectName, uid: str, fetch: ServerRead) -> Owner:
    subject = f"failed to find {which.kind}: {which.namespace}/{which.name}, uid: {uid}"
    try:
        owner = owner_from(which, await fetch(which))
    except Forbidden:
        raise
    except NotFound as error:
        raise GroupingError(f"{subject}: not found ({error})") from error
    except (KubeError, DecodeError) as error:
        raise GroupingError(f"{subject}: {error}") from error
    if not uid or owner.metadata.uid != uid:
        raise GroupingError(f"Owner resource with uid {uid} not found: {which.kind} {which.name} is another object now")
    return owner


def owner_from(which: ObjectName, body: Mapping[str, Any]) -> Owner:
    """An owner read in full; raises `DecodeError` when its metadata is invalid."""
    return Owner(which.api_version, which.kind, decode_as(ObjectMetadataOnly, dict(body)).metadata, body)
