"""From the change feed of the caches to the engine's tables.

    stores --change--> Intake (event loop) --operations--> Tables (engine's thread, between cycles)

A snapshot holds until the next change of the tables, so changes are not applied as they come: they are written down in
order, and `digest` applies them right before the next cycle.  What the engine would not notice (heartbeats, conditions
of pods, our own notes on PodGroups) is not even written down and starts no cycle.

Our own writes are assumed until the watch shows them:

- a bind: the tables see a BindRequest for the pod, whether one is written or the pod is bound directly, until the pod
  has a node or the real request is there;
- an eviction: the pod counts as going, by uid, until its object shows it (cycle:SNP-17, Do better), and until it has
  gone it says for whom (`pendingevictions.py`);
- a withdrawn BindRequest: gone, until the watch says so, but only once it is known that its pod was not bound before;
- notes on a PodGroup (stamps, conditions): laid over the object until a version at least as new as the answer to our
  write is there (cycle:EXP-16).

Subtle: between our write and its echo the watch may still bring news of the past, such as the deletion of an older
BindRequest of the same name.  Such news must not end an assumption; only the object we wrote does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from pykai.api import names
from pykai.api.core import ConfigMap, Namespace, Node, Pod, PriorityClass
from pykai.api.decode import DecodeError, WireObject
from pykai.api.meta import Wire
from pykai.api.numa import NodeResourceTopology
from pykai.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from pykai.api.scheduling import BindRequest, PodGroup, Queue, SchedulingCondition
from pykai.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from pykai.api.topology import Topology
from pykai.core.cluster.tables import Tables
from pykai.core.model.problems import Problem
from pykai.core.model.shard import Shard
from pykai.core.model.status import TaskStatus
from pykai.core.report.decisions import FreeRoomOnly
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.resources import Resource, split_key
from pykai.kube.store import Change, Store
from pykai.scheduler.intake.backlog import ApplyResult, Backlog, TableOperation, apply_operations
from pykai.scheduler.intake.changes import CHANGE_FILTERS, differs, group_differs, is_record, pod_differs
from pykai.scheduler.intake.overlays import GroupOverlay, apply_overlay, overlay_is_observed
from pykai.scheduler.intake.pendingevictions import PendingEvictions
from pykai.scheduler.sanitising.nodes import sanitise_node
from pykai.scheduler.sanitising.requestverifier import BindRequestVerifier
from pykai.scheduler.sanitising.sharedgpus import SharedGpuSanitiser
from pykai.scheduler.sanitising.standins import StandInGroups
from pykai.scheduler.sanitising.starttimes import StartTimeSanitiser

log = logging.getLogger(__name__)
W = TypeVar("W", bound=Wire)

#: Failed pods hold nothing and never come back; the server keeps them from us (cycle:SNP-1).
POD_SELECTOR = "status.phase!=Failed"

#: index of the pods: key of their PodGroup
PODS_BY_GROUP = "pod group"

#: Kinds every server has, besides pods, PodGroups and BindRequests.
_REQUIRED_KINDS: tuple[tuple[Resource, type[Wire]], ...] = (
    (resources.QUEUES, Queue),
    (resources.PRIORITY_CLASSES, PriorityClass),
    (resources.NAMESPACES, Namespace),
    (resources.PERSISTENT_VOLUMES, PersistentVolume),
    (resources.PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim),
    (resources.STORAGE_CLASSES, StorageClass),
    (resources.CSI_DRIVERS, CSIDriver),
    (resources.CSI_NODES, CSINode),
    (resources.CSI_STORAGE_CAPACITIES, CSIStorageCapacity),
)
#: Kinds a server may lack (operations:O-56).
_OPTIONAL_KINDS: tuple[tuple[Resource, type[Wire]], ...] = (
    (resources.TOPOLOGIES, Topology),
    (resources.NODE_RESOURCE_TOPOLOGIES, NodeResourceTopology),
)
DRA_KINDS: tuple[tuple[Resource, type[Wire]], ...] = (
    (resources.RESOURCE_CLAIMS, ResourceClaim),
    (resources.RESOURCE_SLICES, ResourceSlice),
    (resources.DEVICE_CLASSES, DeviceClass),
)


class Intake:
    """Keeps the tables current.  All methods but `digest` belong to the event loop."""

    def __init__(self, caches: Caches, shard: Shard) -> None:
        #: called with every change that a cycle should see
        self.request_cycle: Callable[[], None] = lambda: None
        self.tables = Tables(shard)
        self.pods: Store[Pod] = caches.store(resources.PODS, Pod, field_selector=POD_SELECTOR)
        self.groups: Store[PodGroup] = caches.store(resources.POD_GROUPS, PodGroup)
        self.requests: Store[BindRequest] = caches.store(resources.BIND_REQUESTS, BindRequest)
        self.pods.index(PODS_BY_GROUP, _pod_group_keys)
        self._shared_gpus = SharedGpuSanitiser(self.pods, shard)
        self.nodes: Store[Node] = caches.store(resources.NODES, Node)
        #: which BindRequests count
        self.verifier = BindRequestVerifier(self.pods, self.groups, self.nodes, shard)
        self._start_times = StartTimeSanitiser(self.pods_of_group)
        queues: Store[Queue] = caches.store(resources.QUEUES, Queue)
        self._stand_ins = StandInGroups(self.pods, self.groups, self.nodes, queues, shard)
        #: `Kind/key` of nodes, pods and PodGroups -> what they say that cannot be true
        self.sanitising_problems: dict[str, tuple[Problem, ...]] = {}
        #: kind -> store
        self.stores: dict[str, Store[Any]] = {}
        self._shard = shard
        self._caches = caches
        self._operations: list[TableOperation] = []
        self._backlog = Backlog()
        #: pod key -> the bind we decided and have not seen
        self._assumed_binds: dict[str, BindRequest] = {}
        #: node -> pods with such a bind to it; a dict is an ordered set
        self._assumed_binds_by_node: dict[str, dict[str, None]] = {}
        #: pod key -> uid of the pod we evict
        self._assumed_evictions: dict[str, str] = {}
        self.evictions = PendingEvictions()
        #: PodGroups that may use free resources only
        self.confined: dict[str, FreeRoomOnly] = {}
        #: request key -> uid of the request we deleted
        self._withdrawn_requests: dict[str, str] = {}
        #: requests whose end says nothing about their pods yet
        self._withdrawals_in_doubt: set[str] = set()
        self._overlays: dict[str, GroupOverlay] = {}
        #: how often a pod came to a node without us, or a node changed, so far; and the number of the last, by node
        self.latest_generation = 0
        self._node_generations: dict[str, int] = {}
        self._watch(self.pods, self._on_pod)
        self._watch(self.groups, self._on_group)
        self._watch(self.requests, self._on_request)
        self._watch(self.nodes, self._on_node)
        # Whether they exist is all that scheduling needs; what they hold is their owners' business.
        self._watch(caches.store(resources.CONFIG_MAPS, ConfigMap, metadata_only=True), None)
        for resource, kind in _REQUIRED_KINDS:
            self._watch(caches.store(resource, kind), None)
        queues.subscribe(self._on_queue)
        for resource, kind in _OPTIONAL_KINDS:
            self._watch(caches.store(resource, kind, optional=True), None)

    def watch_claims(self, version: str) -> None:
        """Take in claims of devices as well, in the version of their API group that the server has."""
        for resource, kind in DRA_KINDS:
            served = Resource(resource.group, version, resource.plural, resource.kind, resource.namespaced)
            self._watch(self._caches.store(served, kind, optional=True), None)

    def pods_of_group(self, group: str) -> Collection[Pod]:
        """The pods of a PodGroup."""
        return self.pods.by_index(PODS_BY_GROUP, group)

    async def wait_for_sync(self) -> None:
        """Wait until every first list is in."""
        for store in list(self.stores.values()):
            await store.synced.wait()

    def _watch(self, store: Store[W], handler: Callable[[Change[W]], None] | None) -> None:
        kind = store.resource.kind
        self.stores[kind] = store
        if handler is None:
            differs_for_engine = CHANGE_FILTERS.get(kind, differs)

            def on_change(change: Change[W]) -> None:
                if change.new is None:
                    if change.old is None or not is_record(change.old):
                        self._add_operation(("remove", (kind, *split_key(change.key))))
                elif (change.old is None or differs_for_engine(change.old, change.new)) and not is_record(change.new):
                    self._add_operation(("apply", change.new))

            store.subscribe(on_change)
        else:
            store.subscribe(handler)

    def _add_operation(self, operation: TableOperation) -> None:
        self._operations.append(operation)
        self.request_cycle()

    def reserved_group(self, pod: Pod) -> str:
        """The group for which a pod holds a GPU of its node, "" when it is no reservation."""
        return self._shared_gpus.reserved_group(pod)

    def node_generation(self, node: str) -> int:
        """The number of the last arrival at a node, 0 when there was none; compare with an earlier `arrivals`."""
        return self._node_generations.get(node, 0)

    def _bump_node_generation(self, node: str) -> None:
        self.latest_generation += 1
        self._node_generations[node] = self.latest_generation

    def _on_node(self, change: Change[Node]) -> None:
        if change.new is None:
            self._node_generations.pop(change.key, None)
            self._set_problems(f"Node/{change.key}", ())
            self._add_operation(("remove", ("Node", "", change.key)))
            for pod in self._stand_ins.affected_pods(change):
                self._apply_pod(pod)
            return
        if change.old is None or change.old.status != change.new.status:
            self._bump_node_generation(change.key)
        if change.old is None or differs(change.old, change.new):
            node, problems = sanitise_node(change.new)
            self._set_problems(f"Node/{change.key}", problems)
            self._add_operation(("apply", node))
            for pod in self._stand_ins.affected_pods(change):
                self._apply_pod(pod)

    def _set_problems(self, subject: str, problems: tuple[Problem, ...]) -> None:
        if problems:
            self.sanitising_problems[subject] = problems
        else:
            self.sanitising_problems.pop(subject, None)

    # -- pods -------------------------------------------------------------------------------------------------------

    def _on_pod(self, change: Change[Pod]) -> None:
        self._handle_pod_change(change)
        for tenant in self._shared_gpus.affected_pods(change):
            self._apply_pod(tenant)
        affected_group = self._start_times.affected_group(change)
        if affected_group is not None and (group := self.overlaid_group(affected_group)) is not None:
            self._add_operation(("apply", self._sanitise_group(group)))

    def _apply_pod(self, pod: Pod) -> None:
        sanitised, problems = self._shared_gpus.sanitise(pod)
        if problems or self.sanitising_problems:
            self._set_problems(f"Pod/{pod.metadata.namespace}/{pod.metadata.name}", problems)
        sanitised, operations_before, operations_after = self._stand_ins.with_stand_in(pod, sanitised)
        self._operations += operations_before
        self._add_operation(("apply", self.evictions.with_condition(sanitised)))
        self._operations += operations_after

    def charge_ungrouped(self) -> None:
        """All lists are in: from now on pods on a node without a PodGroup are charged to a queue."""
        for pod in self._stand_ins.start():
            self._apply_pod(pod)

    def _handle_pod_change(self, change: Change[Pod]) -> None:
        key, old, pod = change.key, change.old, change.new
        if pod is None:
            self.verifier.forget(key)
            self._set_problems(f"Pod/{key}", ())
            self._assumed_evictions.pop(key, None)
            self.evictions.forget(key)
            self._add_operation(("remove", ("Pod", *split_key(key))))
            self._operations += self._stand_ins.remove_stand_in(key)
            self.end_withdrawal_doubt(key)
            self._end_assumed_bind(key)
            if key not in self.requests:
                self._withdrawn_requests.pop(key, None)
            return
        if old is None or pod_differs(old, pod):
            self._apply_pod(pod)
        if (
            old is None
            and (early_request := self.requests.get(key)) is not None
            and self.verifier.objection(early_request)
        ):
            self._add_operation(("remove", ("BindRequest", *split_key(key))))
        if key in self._assumed_evictions and (
            self._assumed_evictions[key] != pod.metadata.uid or pod.metadata.deletion_timestamp is not None
        ):
            del self._assumed_evictions[key]
        assumed = self._assumed_binds.get(key)
        node = pod.spec.node_name
        if old is not None and old.metadata.uid != pod.metadata.uid:
            self.verifier.forget(key)
            self.end_withdrawal_doubt(key)
        elif node:
            if key not in self.requests:
                self.verifier.forget(key)
            self.end_withdrawal_doubt(key)
        if node and (old is None or old.spec.node_name != node):
            if assumed is None or assumed.spec.selected_node != node:
                self._bump_node_generation(node)
        if assumed is not None and (node or pod.metadata.uid != owner_uid(assumed)):
            self._end_assumed_bind(key)

    def assume_bind(self, request: BindRequest) -> None:
        """A bind was decided: the pod counts as on its way (gpu:B-2)."""
        key = f"{request.metadata.namespace}/{request.spec.pod_name}"
        pod = self.pods.get(key)
        if pod is not None and (pod.spec.node_name or pod.metadata.uid != owner_uid(request)):
            return
        self._drop_assumed_bind(key)
        self._assumed_binds_by_node.setdefault(request.spec.selected_node, {})[key] = None
        self._assumed_binds[key] = request
        self.verifier.record_decision(key, request.spec)
        self._operations.append(("apply", request))

    def assumed_binds(self) -> Collection[BindRequest]:
        """The binds that were decided and neither seen nor given up."""
        return self._assumed_binds.values()

    def assumed_binds_on(self, node: str) -> Collection[BindRequest]:
        """Those of them that lead to a node."""
        return [self._assumed_binds[key] for key in self._assumed_binds_by_node.get(node, ())]

    def is_bind_assumed(self, key: str) -> bool:
        """Whether a bind of this pod was decided and neither seen nor given up."""
        return key in self._assumed_binds

    def forget_bind(self, key: str) -> None:
        """The bind did not come about: the pod waits again."""
        self._end_assumed_bind(key)

    def forget_bind_to(self, key: str, uid: str, node: str) -> None:
        """The same, unless another pod of the name, or another node, has been decided on meanwhile."""
        assumed = self._assumed_binds.get(key)
        if assumed is not None and (owner_uid(assumed), assumed.spec.selected_node) == (uid, node):
            self._end_assumed_bind(key)

    def _drop_assumed_bind(self, key: str) -> bool:
        """Forget a bind that was assumed; whether there was one."""
        assumed = self._assumed_binds.pop(key, None)
        if assumed is None:
            return False
        node = assumed.spec.selected_node
        del self._assumed_binds_by_node[node][key]
        if not self._assumed_binds_by_node[node]:
            del self._assumed_binds_by_node[node]
        return True

    def _end_assumed_bind(self, key: str) -> None:
        if not self._drop_assumed_bind(key):
            return
        observed = self.requests.get(key)
        if observed is None:
            self.verifier.forget(key)
        if observed is not None and self.is_effective(observed):
            self._add_operation(("apply", observed))
        else:
            self._add_operation(("remove", ("BindRequest", *split_key(key))))

    def assume_gated(self, key: str) -> None:
        """Keep a waiting pod out of the cycles for a while, as if it were gated."""
        self._add_operation(("assume", (key, TaskStatus.GATED)))

    def forget_assumed_status(self, key: str) -> None:
        """End what was assumed about the state of a pod."""
        self._assumed_evictions.pop(key, None)
        self._add_operation(("assume", (key, None)))
        if self.evictions.forget(key) and (pod := self.pods.get(key)) is not None:
            self._apply_pod(pod)

    def assume_eviction(self, key: str, uid: str, preemptor: str = "") -> None:
        """An eviction was decided: the pod counts as going, for the good of a PodGroup (namespace/name/uid)."""
        pod = self.pods.get(key)
        if pod is not None and pod.metadata.uid == uid:
            self._assumed_evictions[key] = uid
            self.evictions.add(key, uid, preemptor)
            self._operations.append(("assume", (key, TaskStatus.RELEASING)))
            sanitised = self._stand_ins.apply_stand_in(pod, self._shared_gpus.sanitise(pod)[0])
            self._operations.append(("apply", self.evictions.with_condition(sanitised)))

    def is_eviction_assumed(self, key: str, uid: str) -> bool:
        """Whether we evict this very pod and have not seen it going."""
        return self._assumed_evictions.get(key) == uid

    # -- BindRequests -----------------------------------------------------------------------------------------------

    def _on_request(self, change: Change[BindRequest]) -> None:
        key, request = change.key, change.new
        if request is None:
            deleted_uid = change.old.metadata.uid if change.old is not None else ""
            if self._withdrawn_requests.get(key) == deleted_uid:
                del self._withdrawn_requests[key]
            if key not in self._assumed_binds and key not in self._withdrawals_in_doubt:
                self.verifier.forget(key)
                self._add_operation(("remove", ("BindRequest", *split_key(key))))
            return
        if self._withdrawn_requests.get(key) == request.metadata.uid:
            return
        if self.verifier.objection(request):
            if change.old is not None and key not in self._assumed_binds:
                self._add_operation(("remove", ("BindRequest", *split_key(key))))
            return
        assumed = self._assumed_binds.get(key)
        if assumed is not None:
            if not same_placement(assumed, request):
                return
            self._drop_assumed_bind(key)
        if change.old is None or assumed is not None or differs(change.old, change.new):
            self._add_operation(("apply", request))

    def start_verifying_requests(self) -> None:
        """We lead: from now on only BindRequests count that say what was decided."""
        self.verifier.start(self.requests.values())
        for key, request in zip(self.requests.keys(), self.requests.values(), strict=True):
            if self.verifier.objection(request):
                self._add_operation(("remove", ("BindRequest", *split_key(key))))

    def stop_verifying_requests(self) -> None:
        """Others lead: BindRequests count as they are."""
        self.verifier.stop()

    def is_effective(self, request: BindRequest) -> bool:
        """Whether a BindRequest speaks for its pod."""
        return not self.is_withdrawn(request) and not self.verifier.objection(request)

    def is_withdrawn(self, request: BindRequest) -> bool:
        """Whether we deleted this request and have not seen it go."""
        meta = request.metadata
        return bool(meta.uid) and self._withdrawn_requests.get(f"{meta.namespace}/{meta.name}") == meta.uid

    def mark_withdrawal_in_doubt(self, key: str) -> None:
        """A BindRequest is being deleted and its pod may be bound: it counts until one or the other is known."""
        self._withdrawals_in_doubt.add(key)

    def end_withdrawal_doubt(self, key: str) -> None:
        """What the watch says of a BindRequest counts again."""
        if key in self._withdrawals_in_doubt:
            self._withdrawals_in_doubt.discard(key)
            if key not in self._assumed_binds and key not in self.requests:
                self._add_operation(("remove", ("BindRequest", *split_key(key))))

    def assume_withdrawn(self, key: str, uid: str) -> None:
        """A BindRequest was deleted: it no longer speaks for its pod."""
        self._withdrawals_in_doubt.discard(key)
        # Also where the watch has not shown it yet: it may still do so, and that is news of the past.
        self._withdrawn_requests[key] = uid
        if key not in self._assumed_binds:
            self._add_operation(("remove", ("BindRequest", *split_key(key))))

    # -- PodGroups --------------------------------------------------------------------------------------------------

    def _on_group(self, change: Change[PodGroup]) -> None:
        key, group = change.key, change.new
        overlay = old_overlay = self._overlays.get(key)
        recheck_pods = self._stand_ins.on_group_change(change)
        if group is None:
            self._overlays.pop(key, None)
            self._start_times.forget(key)
            self._set_problems(f"PodGroup/{key}", ())
            self._add_operation(("remove", ("PodGroup", *split_key(key))))
            for pod in self._stand_ins.pods_to_recheck(self.pods_of_group(key)):
                self._apply_pod(pod)
            return
        if overlay is not None and (overlay.uid != group.metadata.uid or overlay_is_observed(overlay, group.metadata)):
            overlay = None
            del self._overlays[key]
        overlaid = apply_overlay(group, overlay)
        if change.old is None or group_differs(apply_overlay(change.old, old_overlay), overlaid):
            self._add_operation(("apply", self._sanitise_group(overlaid)))
        if recheck_pods:
            for pod in self._stand_ins.pods_to_recheck(self.pods_of_group(key)):
                self._apply_pod(pod)

    def _on_queue(self, change: Change[Queue]) -> None:
        for pod in self._stand_ins.on_queue_change(change):
            self._apply_pod(pod)

    def _sanitise_group(self, group: PodGroup) -> PodGroup:
        """A PodGroup with the start time that counts."""
        sanitised, problems = self._start_times.sanitise(group)
        if problems or self.sanitising_problems:
            self._set_problems(f"PodGroup/{group.metadata.namespace}/{group.metadata.name}", problems)
        return sanitised

    def overlay_group(
        self,
        key: str,
        part: str,
        annotations: Mapping[str, str | None] | None = None,
        conditions: list[SchedulingCondition] | None = None,
    ) -> bool:
        """A part of a PodGroup is about to be written: it counts already.  False when the group is gone."""
        group = self.groups.get(key)
        if group is None:
            return False
        overlay = self._overlays.get(key)
        if overlay is None or overlay.uid != group.metadata.uid:
            overlay = self._overlays[key] = GroupOverlay(group.metadata.uid)
        before = apply_overlay(group, overlay)
        overlay.annotations.update(annotations or {})
        if conditions is not None:
            overlay.conditions = conditions
        overlay.parts_in_flight.add(part)
        after = apply_overlay(group, overlay)
        if group_differs(before, after):
            # No cycle for it: the cycle that decided this knew it already.
            self._operations.append(("apply", self._sanitise_group(after)))
        return True

    def on_overlay_written(self, key: str, part: str, resource_version: str) -> None:
        """All writes on a part of a PodGroup were answered, the last with this version; "" when it failed for good."""
        overlay = self._overlays.get(key)
        if overlay is None:
            return
        overlay.parts_in_flight.discard(part)
        if resource_version.isdecimal():
            overlay.written_version = max(overlay.written_version, int(resource_version))
        group = self.groups.get(key)
        if group is None:
            return
        if overlay_is_observed(overlay, group.metadata):
            del self._overlays[key]
            if group_differs(apply_overlay(group, overlay), group):
                self._add_operation(("apply", self._sanitise_group(group)))

    def confine(self, key: str, why: FreeRoomOnly | None) -> None:
        """Let a group use free resources only, or no longer."""
        if why is not None:
            self.confined[key] = why
        elif self.confined.pop(key, None) is None:
            return
        self._add_operation(("confine", (key, why)))

    def overlaid_group(self, key: str) -> PodGroup | None:
        """A PodGroup with our own unseen writes laid over it."""
        group = self.groups.get(key)
        return None if group is None else apply_overlay(group, self._overlays.get(key))

    # -- the engine's side ------------------------------------------------------------------------------------------

    @property
    def pending_operations(self) -> int:
        """Changes that the next cycle will take in."""
        return len(self._operations) + len(self._backlog)

    def take_operations(self) -> list[TableOperation]:
        """The changes for the next cycle, for `digest`; what a namespace has too many of comes with the one after."""
        taken, self._operations = self._backlog.admit(self._operations), []
        if self._backlog:
            self.request_cycle()
        return taken

    def apply_operations(self, operations: Iterable[TableOperation]) -> ApplyResult:
        """Apply changes to the tables; the engine's thread calls this."""
        return apply_operations(self.tables, operations)

    def rebuild_tables(self) -> None:
        """Forget the tables and fill new ones from the caches: the way out when they contradict themselves."""
        self.tables = Tables(self._shard)
        self._backlog.clear()
        self._operations = [("apply", item) for item in self.objects()]
        self._operations += [("assume", (key, TaskStatus.RELEASING)) for key in self._assumed_evictions]
        self._operations += [("confine", item) for item in self.confined.items()]
        self.request_cycle()

    def objects(self) -> Iterable[WireObject]:
        """Every object as the tables see it, assumed binds and notes included."""
        for kind, store in self.stores.items():
            if kind == "PodGroup":
                for key, group in zip(store.keys(), store.values(), strict=True):
                    yield self._sanitise_group(apply_overlay(group, self._overlays.get(key)))
                yield from self._stand_ins.groups()
            elif kind == "BindRequest":
                for key, request in zip(store.keys(), store.values(), strict=True):
                    if key not in self._assumed_binds and self.is_effective(request):
                        yield request
                yield from self._assumed_binds.values()
            elif kind == "Node":
                yield from (sanitise_node(node)[0] for node in store.values())
            elif kind == "Pod":
                for pod in store.values():
                    yield self.evictions.with_condition(
                        self._stand_ins.apply_stand_in(pod, self._shared_gpus.sanitise(pod)[0])
                    )
            else:
                yield from store.values()

    def unreadable_objects(self) -> dict[str, DecodeError]:
        """Objects that cannot be read, by kind and key."""
        return {
            f"{kind}/{key}": problem for kind, store in self.stores.items() for key, problem in store.problems.items()
        }


def _pod_group_keys(pod: Pod) -> Iterable[str]:
    name = pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION)
    return (f"{pod.metadata.namespace}/{name}",) if name else ()


def same_placement(one: BindRequest, other: BindRequest) -> bool:
    """Whether two requests bring the same pod to the same node."""
    return one.spec.selected_node == other.spec.selected_node and owner_uid(one) == owner_uid(other)


def owner_uid(request: BindRequest) -> str:
    """The uid of the pod that a request is for."""
    return next((owner.uid for owner in request.metadata.owner_references if owner.kind == "Pod"), "")
