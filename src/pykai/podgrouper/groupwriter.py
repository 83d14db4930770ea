"""Creates and patches PodGroups for the results of groupers.

A group that is up to date is not written.  Work on one PodGroup is serialised, so ten pods of a new job make one group
and not one group and nine conflicts.  Our own writes are assumed until the watch brings them, and a group that exists
after all is read and patched.

A change that protects pods is written only while none has a node (`protection`): not by the cache, and not by the API
server either.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pykai.api.core import PriorityClass
from pykai.api.decode import DecodeError, decode_as
from pykai.api.keys import object_key
from pykai.api.scheduling import PodGroup
from pykai.kube import resources
from pykai.kube.client import Client
from pykai.kube.errors import AlreadyExists, Conflict, NotFound
from pykai.kube.heldpods import held_pods
from pykai.kube.store import Store
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata
from pykai.podgrouper.origins import refuse_foreign_group
from pykai.podgrouper.protection import keep_protection, may_be_protected
from pykai.podgrouper.writes import group_patch, new_group

_log = logging.getLogger(__name__)


class PodGroupWriter:
    """Writes PodGroups of one cluster."""

    def __init__(
        self,
        client: Client,
        groups: Store[PodGroup],
        settings: GroupingSettings,
        *,
        follow_queue: bool,
        held: Callable[[str], Mapping[str, int]],
        classes: Callable[[], Mapping[str, PriorityClass]],
    ) -> None:
        """`held` counts the pods of a group that have a node, by subgroup; with `follow_queue` the queue of a group
        follows its workload while there are none."""
        self._client = client
        self._groups = groups
        self._settings = settings
        self._follow_queue = follow_queue
        self._held = held
        self._classes = classes
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    async def apply(self, meta: Metadata, joining: Iterable[str] = (), old: PodGroup | None = None) -> Metadata:
        """Create or patch the PodGroup of a grouper's result, and give what was written; raises `GroupingError` or
        `Conflict`.

        `joining` has the subgroup of a pod that has a node and is not in the group yet; `old` is the group that its
        pods were in.
        """
        key = object_key(meta.namespace, meta.name)
        problem = self._groups.problems.get(key)
        if problem is not None:
            raise GroupingError(f"{problem}; fix or delete this PodGroup")
        cached = existing = self._groups.get(key)
        if existing is not None and self._patch(existing, meta) is None:
            return meta
        async with self._locked(key):
            existing = self._groups.get(key)
            if existing is None:
                held = Counter(joining) + Counter(self._held(key))
                meta = keep_protection(old, meta, held, self._classes())
                try:
                    self._assume(await self._client.create(resources.POD_GROUPS, new_group(meta), meta.namespace))
                    return meta
                except AlreadyExists:
                    existing = await self._reread(meta)
            else:
                meta = await self._without_new_protection(existing, meta)
            patch = self._patch(existing, meta)
            if patch is None:
                return meta
            if cached is None:
                # The result of a grouper may depend on whether the group exists, as for Spark executors.
                raise Conflict(409, "Conflict", f"PodGroup {key} was created meanwhile; grouping is retried")
            try:
                self._assume(await self._client.patch(resources.POD_GROUPS, meta.name, patch, meta.namespace))
            except Conflict:
                # The cache lags; the next attempt must not meet the same conflict.
                await self._reread(meta)
                raise
            return meta

    async def _without_new_protection(self, existing: PodGroup, meta: Metadata) -> Metadata:
        classes = self._classes()
        if not may_be_protected(existing, meta, classes):
            return meta
        kept = keep_protection(existing, meta, self._held(object_key(meta.namespace, meta.name)), classes)
        if kept is not meta:
            return kept
        return keep_protection(existing, meta, await held_pods(self._client, meta.namespace, meta.name), classes)

    def _patch(self, existing: PodGroup, meta: Metadata) -> dict[str, Any] | None:
        refuse_foreign_group(existing, meta)
        follow = (
            self._follow_queue
            and meta.queue != existing.spec.queue
            and not self._held(object_key(meta.namespace, meta.name))
        )
        return group_patch(existing, meta, self._settings, follow_queue=follow)

    async def _reread(self, meta: Metadata) -> PodGroup:
        try:
            group = await self._client.get(resources.POD_GROUPS, meta.name, meta.namespace, into=PodGroup)
        except DecodeError as error:
            raise GroupingError(f"{error}; fix or delete this PodGroup") from error
        except NotFound as error:
            self._groups.forget(object_key(meta.namespace, meta.name))
            raise Conflict(409, "Conflict", f"PodGroup {meta.name} comes and goes") from error
        self._groups.assume(group)
        return group

    def _assume(self, answer: dict[str, Any]) -> None:
        try:
            self._groups.assume(decode_as(PodGroup, answer))
        except DecodeError as error:
            _log.warning("The server answered with a PodGroup that cannot be read: %s", error)

    @asynccontextmanager
    async def _locked(self, key: str) -> AsyncIterator[None]:
        lock, users = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)
