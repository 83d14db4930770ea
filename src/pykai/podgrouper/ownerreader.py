"""Reads the owners of pods: from caches where their kind is watched, otherwise from the server."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.podgrouper.kinds.table import watched_kinds
from pykai.podgrouper.metadata import Grouper, GroupVersionKind, ObjectName, Owner
from pykai.podgrouper.owners import ObjectMetadataOnly, OwnerCache, ReadCache, controller_uid, find_owners
from pykai.podgrouper.restmapper import RestMapper

_BY_OWNER = "podgrouper-owner"
#: Cluster seconds for which an object that is no owner is remembered: it changes while its pods come.
_NAMED_OBJECT_TTL_S: Final = 1.0


class OwnerReader:
    """Owners of one cluster; those of kinds that are not watched are remembered for a while."""

    def __init__(self, runtime: Runtime, groupers: Mapping[GroupVersionKind, Grouper], memory_s: float) -> None:
        self._client = runtime.client
        self._rest_mapper = RestMapper(runtime.client, runtime.clock)
        self._cache = OwnerCache(runtime.clock, memory_s)
        self._named: ReadCache[Mapping[str, Any]] = ReadCache(runtime.clock, _NAMED_OBJECT_TTL_S)
        self._watched: dict[tuple[str, str], Store[ObjectMetadataOnly]] = {}
        for kind in watched_kinds():
            # A third-party grouper may read more than is cached.
            if kind.cached_as is not None and groupers.get(kind.group_version_kind) is kind.grouper:
                store = runtime.caches.store(kind.resource, kind.cached_as, optional=True)
                store.index(_BY_OWNER, controller_uid)
                self._watched[(kind.resource.api_version, kind.resource.kind)] = store

    @property
    def stores(self) -> Collection[Store[ObjectMetadataOnly]]:
        """The caches of watched kinds."""
        return self._watched.values()

    @property
    def memory_s(self) -> float:
        """For how many cluster seconds owners of other kinds are remembered."""
        return self._cache.ttl_s

    def is_watched(self, api_version: str, kind: str) -> bool:
        """Whether a change of such an owner is seen."""
        return (api_version, kind) in self._watched

    def children(self, uid: str) -> set[str]:
        """The uids of watched objects that the owner with this uid controls."""
        return {each.metadata.uid for store in self._watched.values() for each in store.by_index(_BY_OWNER, uid)}

    async def find(self, pod: Pod) -> tuple[Owner, tuple[Owner, ...]]:
        """The top owner of a pod, and all its owners from the nearest to the top."""
        return await find_owners(pod, self._cached_owner, self.read, self._cache)

    def forget(self, owners: Iterable[Owner]) -> None:
        """Read these again next time, unless that has just been done: an old copy may be what is wrong."""
        for owner in owners:
            self._cache.drop(owner.metadata.uid, _NAMED_OBJECT_TTL_S)

    async def read_named(self, which: ObjectName) -> Mapping[str, Any]:
        """An object that a workload names, read once for pods that are grouped at the same time; see `read`."""
        key = "/".join(which)
        found = self._named.get(key)
        return found if found is not None else await self._named.get_or_read(key, lambda: self.read(which))

    async def read(self, which: ObjectName) -> Mapping[str, Any]:
        """Any object, from the server; raises `NotFound`, `Forbidden` and the other `kube.errors`."""
        resource = await self._rest_mapper.resource(which.api_version, which.kind)
        return await self._client.get_raw(resource, which.name, which.namespace if resource.namespaced else "")

    def _cached_owner(self, which: ObjectName) -> Owner | None:
        store = self._watched.get((which.api_version, which.kind))
        owner = store.get(object_key(which.namespace, which.name)) if store is not None else None
        if owner is None:
            return None
        body = {} if type(owner) is ObjectMetadataOnly else msgspec.to_builtins(owner)
        return Owner(which.api_version, which.kind, owner.metadata, body)
