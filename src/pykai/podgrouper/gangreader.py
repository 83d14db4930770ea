"""Reads the gangs of Kubernetes: Workloads or PodGroups of scheduling.k8s.io, whichever the server has.

Nothing is asked while `--workload-api` is off, and nothing before a pod names a gang.  Then the server's discovery says
which versions there are; the newest that we know is watched.  A server without this API is asked again after a minute,
when the next such pod comes (`RestMapper`).

Topologies are watched too: the topology key of a gang is a level of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from pykai.api import names
from pykai.api.topology import Topology
from pykai.api.workloadapi import KubernetesPodGroup, KubernetesWorkload
from pykai.kube import resources
from pykai.kube.errors import NotFound
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change, Store
from pykai.podgrouper.metadata import GroupingError, KubernetesGang
from pykai.podgrouper.origins import POD_GROUP, WORKLOAD
from pykai.podgrouper.restmapper import RestMapper

#: Wall seconds that a pod waits for the first list of gangs before it is set aside.
_SYNC_TIMEOUT_S: Final = 5.0
_BY_LEVEL: Final = "podgrouper-level"

GangContent = KubernetesWorkload | KubernetesPodGroup


class _GangKind(NamedTuple):
    #: newest first
    versions: tuple[str, ...]
    read_as: type[KubernetesWorkload] | type[KubernetesPodGroup]


_KINDS: Final = {
    WORKLOAD: _GangKind(("v1alpha1",), KubernetesWorkload),
    POD_GROUP: _GangKind(("v1beta1", "v1alpha3", "v1alpha2"), KubernetesPodGroup),
}


class GangReader:
    """The gangs of one cluster; `on_change` is called with kind, namespace and name of one that changed."""

    def __init__(self, runtime: Runtime, on_change: Callable[[str, str, str], None]) -> None:
        self._caches = runtime.caches
        self._rest_mapper = RestMapper(runtime.client, runtime.clock)
        self._on_change = on_change
        self._stores: dict[str, Store[GangContent]] = {}
        self._topologies: Store[Topology] | None = None
        self._discovery = asyncio.Lock()

    async def prepare(self, kind: str) -> None:
        """Watch a kind of gangs if the server has it; raises `GroupingError` while they cannot be listed."""
        # One asks for all pods that name a gang for the first time.
        async with self._discovery:
            if kind not in self._stores:
                await self._discover(kind)
        store = self._stores.get(kind)
        if store is None:
            return
        needed: list[Store[GangContent] | Store[Topology]] = [store]
        if self._topologies is not None:
            needed.append(self._topologies)
        for each in needed:
            if not each.synced.is_set():
                try:
                    await asyncio.wait_for(each.synced.wait(), _SYNC_TIMEOUT_S)
                except TimeoutError:
                    raise GroupingError(
                        f"{each.resource.plural} of {each.resource.api_version} cannot be listed; "
                        f"does the role of {names.POD_GROUPER} allow it?"
                    ) from None

    async def _discover(self, kind: str) -> None:
        versions, read_as = _KINDS[kind]
        for version in versions:
            try:
                resource = await self._rest_mapper.resource(f"{names.PRIORITY_GROUP}/{version}", kind)
            except NotFound:
                continue
            store: Store[GangContent] = self._caches.store(resource, read_as)
            self._stores[kind] = store
            store.subscribe(lambda change: self._changed(kind, change))
            if kind == POD_GROUP:
                self._topologies = self._caches.store(resources.TOPOLOGIES, Topology, optional=True)
                self._topologies.index(_BY_LEVEL, lambda topology: {each.node_label for each in topology.spec.levels})
                self._topologies.subscribe(self._topology_changed)
            return

    def serves(self, kind: str) -> bool:
        """Whether the server has gangs of this kind, as far as is known."""
        return kind in self._stores

    def gang(self, kind: str, key: str) -> KubernetesGang | None:
        """A gang by namespace/name; raises `GroupingError` for one that cannot be read."""
        store = self._stores[kind]
        problem = store.problems.get(key)
        if problem is not None:
            raise GroupingError(f"{problem}; fix this {kind}")
        found = store.get(key)
        return KubernetesGang(store.resource.api_version, found) if found is not None else None

    def topologies_with_level(self, label: str) -> Collection[str]:
        """The names of the Topologies with this level."""
        if self._topologies is None:
            return ()
        return [each.metadata.name for each in self._topologies.by_index(_BY_LEVEL, label)]

    def _changed(self, kind: str, change: Change[GangContent]) -> None:
        old, new = change.old, change.new
        if new is None or (old is not None and _facts(old) == _facts(new)):
            return
        self._on_change(kind, new.metadata.namespace, new.metadata.name)

    def _topology_changed(self, change: Change[Topology]) -> None:
        """A level appears or disappears: gangs that name it are looked at again."""
        levels = {
            level.node_label for each in (change.old, change.new) if each is not None for level in each.spec.levels
        }
        for gang in self._stores[POD_GROUP].values():
            if isinstance(gang, KubernetesPodGroup) and any(
                each.key in levels for each in gang.spec.scheduling_constraints.topology
            ):
                self._on_change(POD_GROUP, gang.metadata.namespace, gang.metadata.name)


def _facts(gang: GangContent) -> tuple[object, ...]:
    meta = gang.metadata
    return gang.spec, meta.labels, meta.annotations, meta.uid
