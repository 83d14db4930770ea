"""From the change feed of the caches to the engine's tables.

    stores --change--> Intake (event loop) --operations--> Tables (engine's thread, between cycles)

A snapshot is valid until the next change of the tables, so changes are not applied as they come: they are queued in
order (`operationqueue`), and applied right before the next cycle.  Changes that the engine would not notice
(heartbeats, conditions of pods, our own patches of PodGroups) are not queued and start no cycle (`changes`).

`PodIntake`, `GroupIntake` and `BindAssumptions` turn the changes of pods, PodGroups and BindRequests into operations,
each with our own unseen writes (`assumptions`).  Other kinds go into the tables unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import Any, TypeVar

from pykai.api import names
from pykai.api.core import ConfigMap, Namespace, Node, Pod
from pykai.api.decode import WireObject
from pykai.api.keys import object_key
from pykai.api.meta import Wire
from pykai.api.scheduling import BindRequest, PodGroup, Queue
from pykai.core.cluster.tables import Tables
from pykai.core.model.shard import Shard
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.resources import Resource
from pykai.kube.store import Change, Store
from pykai.scheduler.intake.bindassumptions import BindAssumptions
from pykai.scheduler.intake.changes import CHANGE_FILTERS, differs, is_record
from pykai.scheduler.intake.groupfeed import GroupFeed, GroupStage
from pykai.scheduler.intake.groupintake import GroupIntake
from pykai.scheduler.intake.kinds import DRA_KINDS, OPTIONAL_KINDS, REQUIRED_KINDS
from pykai.scheduler.intake.nodegenerations import NodeGenerations
from pykai.scheduler.intake.operationqueue import OperationQueue
from pykai.scheduler.intake.operations import (
    ApplyObject,
    ApplyResult,
    SetFreeRoomOnly,
    TableOperation,
    apply_operations,
    remove_by_key,
)
from pykai.scheduler.intake.pendingadmissions import PendingAdmissions
from pykai.scheduler.intake.pendingevictions import PendingEvictions
from pykai.scheduler.intake.placeholderpods import PlaceholderPods
from pykai.scheduler.intake.podintake import PodIntake
from pykai.scheduler.intake.statusassumptions import StatusAssumptions
from pykai.scheduler.sanitising.nodes import sanitise_node
from pykai.scheduler.sanitising.problems import SanitisingProblems
from pykai.scheduler.sanitising.requestverifier import BindRequestVerifier
from pykai.scheduler.sanitising.sharedgpus import SharedGpuSanitiser
from pykai.scheduler.sanitising.standins import StandInGroups
from pykai.scheduler.sanitising.starttimes import StartTimeSanitiser

W = TypeVar("W", bound=Wire)

#: Failed pods hold nothing and never come back; the server filters them out (cycle:SNP-1).
POD_SELECTOR = "status.phase!=Failed"

#: index of the pods: key of their PodGroup
PODS_BY_GROUP = "pod group"


class Intake:
    """Keeps the tables current.  All methods but `apply_operations` belong to the event loop."""

    def __init__(self, caches: Caches, shard: Shard) -> None:
        self.tables = Tables(shard)
        self.queue = OperationQueue()
        self.pods: Store[Pod] = caches.store(resources.PODS, Pod, field_selector=POD_SELECTOR)
        self.groups: Store[PodGroup] = caches.store(resources.POD_GROUPS, PodGroup)
        self.requests: Store[BindRequest] = caches.store(resources.BIND_REQUESTS, BindRequest)
        self.nodes: Store[Node] = caches.store(resources.NODES, Node)
        self.pods.index(PODS_BY_GROUP, _pod_group_keys)
        self.group_feed = GroupFeed()
        self.queues: Store[Queue] = caches.store(resources.QUEUES, Queue)
        #: kind -> store
        self.stores: dict[str, Store[Any]] = {}
        #: impossible values of nodes, pods and PodGroups
        self.sanitising_problems = SanitisingProblems()
        self.generations = NodeGenerations()
        #: which BindRequests count
        self.verifier = BindRequestVerifier(self.pods, self.groups, self.nodes, shard)
        self.shared_gpus = SharedGpuSanitiser(self.pods, shard)
        self._start_times = StartTimeSanitiser(self.pods_of_group)
        namespaces: Store[Namespace] = caches.store(resources.NAMESPACES, Namespace)
        self._stand_ins = StandInGroups(self.pods, self.groups, self.nodes, self.queues, namespaces, shard)
        self.binds = BindAssumptions(self.pods, self.requests, self.verifier, self.generations, self.queue)
        evictions = PendingEvictions()
        self.admissions = PendingAdmissions()
        #: pods of suspended workloads
        self.placeholders = PlaceholderPods(self.queue)
        self.pod_intake = PodIntake(
            self.pods,
            self.pods_of_group,
            self.shared_gpus,
            self._stand_ins,
            evictions,
            self.admissions,
            self.sanitising_problems,
            self.queue,
        )
        self.statuses = StatusAssumptions(self.pods, self.pod_intake, evictions, self.queue)
        self.group_intake = GroupIntake(self.groups, self._start_times, self.sanitising_problems, self.queue)
        self._shard = shard
        self._caches = caches
        self._subscribe(namespaces)

    def _subscribe(self, namespaces: Store[Namespace]) -> None:
        self._add_store(self.pods).subscribe(self._on_pod)
        self._add_store(self.groups).subscribe(self.group_feed.publish)
        self.group_feed.subscribe(GroupStage.INTAKE, self.group_intake.on_change)
        self.group_feed.subscribe(GroupStage.INTAKE, self.pod_intake.on_group_change)
        self._add_store(self.requests).subscribe(self.binds.on_request_change)
        self._add_store(self.nodes).subscribe(self._on_node)
        # Scheduling needs only their existence, not their content.
        self._take_in(self._caches.store(resources.CONFIG_MAPS, ConfigMap, metadata_only=True))
        for resource, kind in REQUIRED_KINDS:
            self._take_in(self._caches.store(resource, kind))
        self.queues.subscribe(self.pod_intake.on_queue_change)
        namespaces.subscribe(self.pod_intake.on_namespace_change)
        for resource, kind in OPTIONAL_KINDS:
            self._take_in(self._caches.store(resource, kind, optional=True))

    def _add_store(self, store: Store[W]) -> Store[W]:
        self.stores[store.resource.kind] = store
        return store

    def _take_in(self, store: Store[W]) -> None:
        """Take objects of a kind into the tables unchanged."""
        self._add_store(store).subscribe(partial(self._on_object, store.resource.kind))

    def watch_claims(self, version: str) -> None:
        """Take in claims of devices as well, in the version of their API group that the server has."""
        for resource, kind in DRA_KINDS:
            served = Resource(resource.group, version, resource.plural, resource.kind, resource.namespaced)
            self._take_in(self._caches.store(served, kind, optional=True))

    async def wait_for_sync(self) -> None:
        """Wait until every first list is in."""
        for store in list(self.stores.values()):
            await store.synced.wait()

    def pods_of_group(self, group: str) -> Collection[Pod]:
        """The pods of a PodGroup."""
        return self.pods.by_index(PODS_BY_GROUP, group)

    def _on_object(self, kind: str, change: Change[Any]) -> None:
        if change.new is None:
            if change.old is None or not is_record(change.old):
                self.queue.add(remove_by_key(kind, change.key))
        elif change.old is None or CHANGE_FILTERS.get(kind, differs)(change.old, change.new):
            if not is_record(change.new):
                self.queue.add(ApplyObject(change.new))

    def _on_node(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if new is None:
            self.generations.forget(change.key)
            self.sanitising_problems.record(f"Node/{change.key}", ())
            self.queue.add(remove_by_key("Node", change.key))
            self.pod_intake.on_node_change(change)
            return
        if old is None or old.status != new.status:
            self.generations.bump(change.key)
        if old is None or differs(old, new):
            node, problems = sanitise_node(new)
            self.sanitising_problems.record(f"Node/{change.key}", problems)
            self.queue.add(ApplyObject(node))
            self.pod_intake.on_node_change(change)

    def _on_pod(self, change: Change[Pod]) -> None:
        self.pod_intake.on_change(change)
        self.binds.on_pod_change(change)
        self.pod_intake.apply_gpu_sharers(change)
        affected_group = self._start_times.affected_group(change)
        if affected_group is not None:
            self.group_intake.apply(affected_group)

    def apply_operations(self, operations: Iterable[TableOperation]) -> ApplyResult:
        """Apply changes to the tables; the engine's thread calls this."""
        return apply_operations(self.tables, operations)

    def rebuild_tables(self) -> None:
        """Fill new tables from the caches: the remedy when they contradict themselves."""
        self.tables = Tables(self._shard)
        operations: list[TableOperation] = [ApplyObject(item) for item in self.objects()]
        operations += self.statuses.operations()
        operations += [SetFreeRoomOnly(key, why) for key, why in self.group_intake.free_room_only.items()]
        self.queue.replace(operations)

    def objects(self) -> Iterable[WireObject]:
        """Every object as the tables see it, assumed binds and patches included."""
        for kind, store in self.stores.items():
            if kind == "PodGroup":
                yield from self.group_intake.objects()
                yield from self._stand_ins.groups()
            elif kind == "BindRequest":
                yield from self.binds.effective_requests()
            elif kind == "Node":
                yield from (sanitise_node(node)[0] for node in store.values())
            elif kind == "Pod":
                yield from self.pod_intake.objects()
                yield from self.placeholders.objects()
            else:
                yield from store.values()


def _pod_group_keys(pod: Pod) -> Iterable[str]:
    name = pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION)
    return (object_key(pod.metadata.namespace, name),) if name else ()
