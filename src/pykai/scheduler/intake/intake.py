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
from pykai.api.decode import DecodeError, Object
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
from pykai.scheduler.intake.backlog import Backlog, Digest, Operation, digest
from pykai.scheduler.intake.changes import MATTERS, differs, group_differs, is_record, pod_differs
from pykai.scheduler.intake.overlays import Overlay, caught_up, covered
from pykai.scheduler.intake.pendingevictions import Evictions
from pykai.scheduler.sanitising.nodes import believable
from pykai.scheduler.sanitising.requestverifier import OwnRequests
from pykai.scheduler.sanitising.sharedgpus import Tenants
from pykai.scheduler.sanitising.standins import Ungrouped
from pykai.scheduler.sanitising.starttimes import StartTimes

log = logging.getLogger(__name__)
W = TypeVar("W", bound=Wire)

#: Failed pods hold nothing and never come back; the server keeps them from us (cycle:SNP-1).
POD_SELECTOR = "status.phase!=Failed"

#: index of the pods: key of their PodGroup
BY_GROUP = "pod group"

#: Kinds every server has, besides pods, PodGroups and BindRequests.
_PLAIN_KINDS: tuple[tuple[Resource, type[Wire]], ...] = (
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
        self.wake: Callable[[], None] = lambda: None
        self.tables = Tables(shard)
        self.pods: Store[Pod] = caches.store(resources.PODS, Pod, field_selector=POD_SELECTOR)
        self.groups: Store[PodGroup] = caches.store(resources.POD_GROUPS, PodGroup)
        self.requests: Store[BindRequest] = caches.store(resources.BIND_REQUESTS, BindRequest)
        self.pods.index(BY_GROUP, _group_of)
        self._tenants = Tenants(self.pods, shard)
        self.nodes: Store[Node] = caches.store(resources.NODES, Node)
        #: which BindRequests count
        self.own = OwnRequests(self.pods, self.groups, self.nodes, shard)
        self._starts = StartTimes(self.pods_of)
        queues: Store[Queue] = caches.store(resources.QUEUES, Queue)
        self._ungrouped = Ungrouped(self.pods, self.groups, self.nodes, queues, shard)
        #: `Kind/key` of nodes, pods and PodGroups -> what they say that cannot be true
        self.doubts: dict[str, tuple[Problem, ...]] = {}
        #: kind -> store
        self.stores: dict[str, Store[Any]] = {}
        self._shard = shard
        self._caches = caches
        self._operations: list[Operation] = []
        self._backlog = Backlog()
        #: pod key -> the bind we decided and have not seen
        self._binds: dict[str, BindRequest] = {}
        #: node -> pods with such a bind to it; a dict is an ordered set
        self._binds_to: dict[str, dict[str, None]] = {}
        #: pod key -> uid of the pod we evict
        self._evicted: dict[str, str] = {}
        self.evictions = Evictions()
        #: PodGroups that may use free resources only
        self.confined: dict[str, FreeRoomOnly] = {}
        #: request key -> uid of the request we deleted
        self._withdrawn: dict[str, str] = {}
        #: requests whose end says nothing about their pods yet
        self._doubtful: set[str] = set()
        self._overlays: dict[str, Overlay] = {}
        #: how often a pod came to a node without us, or a node changed, so far; and the number of the last, by node
        self.arrivals = 0
        self._came: dict[str, int] = {}
        self._follow(self.pods, self._on_pod)
        self._follow(self.groups, self._on_group)
        self._follow(self.requests, self._on_request)
        self._follow(self.nodes, self._on_node)
        # Whether they exist is all that scheduling needs; what they hold is their owners' business.
        self._follow(caches.store(resources.CONFIG_MAPS, ConfigMap, metadata_only=True), None)
        for resource, kind in _PLAIN_KINDS:
            self._follow(caches.store(resource, kind), None)
        queues.subscribe(self._on_queue)
        for resource, kind in _OPTIONAL_KINDS:
            self._follow(caches.store(resource, kind, optional=True), None)

    def follow_claims(self, version: str) -> None:
        """Take in claims of devices as well, in the version of their API group that the server has."""
        for resource, kind in DRA_KINDS:
            served = Resource(resource.group, version, resource.plural, resource.kind, resource.namespaced)
            self._follow(self._caches.store(served, kind, optional=True), None)

    def pods_of(self, group: str) -> Collection[Pod]:
        """The pods of a PodGroup."""
        return self.pods.by(BY_GROUP, group)

    async def synced(self) -> None:
        """Wait until every first list is in."""
        for store in list(self.stores.values()):
            await store.synced.wait()

    def _follow(self, store: Store[W], handler: Callable[[Change[W]], None] | None) -> None:
        kind = store.resource.kind
        self.stores[kind] = store
        if handler is None:
            matters = MATTERS.get(kind, differs)

            def on_change(change: Change[W]) -> None:
                if change.new is None:
                    if change.old is None or not is_record(change.old):
                        self._add(("remove", (kind, *split_key(change.key))))
                elif (change.old is None or matters(change.old, change.new)) and not is_record(change.new):
                    self._add(("apply", change.new))

            store.subscribe(on_change)
        else:
            store.subscribe(handler)

    def _add(self, operation: Operation) -> None:
        self._operations.append(operation)
        self.wake()

    def reserved_group(self, pod: Pod) -> str:
        """The group for which a pod holds a GPU of its node, "" when it is no reservation."""
        return self._tenants.reserved_group(pod)

    def came_to(self, node: str) -> int:
        """The number of the last arrival at a node, 0 when there was none; compare with an earlier `arrivals`."""
        return self._came.get(node, 0)

    def _arrived(self, node: str) -> None:
        self.arrivals += 1
        self._came[node] = self.arrivals

    def _on_node(self, change: Change[Node]) -> None:
        if change.new is None:
            self._came.pop(change.key, None)
            self._doubt(f"Node/{change.key}", ())
            self._add(("remove", ("Node", "", change.key)))
            for pod in self._ungrouped.concerned(change):
                self._apply_pod(pod)
            return
        if change.old is None or change.old.status != change.new.status:
            self._arrived(change.key)
        if change.old is None or differs(change.old, change.new):
            node, problems = believable(change.new)
            self._doubt(f"Node/{change.key}", problems)
            self._add(("apply", node))
            for pod in self._ungrouped.concerned(change):
                self._apply_pod(pod)

    def _doubt(self, subject: str, problems: tuple[Problem, ...]) -> None:
        if problems:
            self.doubts[subject] = problems
        else:
            self.doubts.pop(subject, None)

    # -- pods -------------------------------------------------------------------------------------------------------

    def _on_pod(self, change: Change[Pod]) -> None:
        self._take_pod(change)
        for tenant in self._tenants.concerned(change):
            self._apply_pod(tenant)
        concerned = self._starts.concerned(change)
        if concerned is not None and (group := self.seen_group(concerned)) is not None:
            self._add(("apply", self._judged(group)))

    def _apply_pod(self, pod: Pod) -> None:
        seen, problems = self._tenants.believable(pod)
        if problems or self.doubts:
            self._doubt(f"Pod/{pod.metadata.namespace}/{pod.metadata.name}", problems)
        seen, first, last = self._ungrouped.grouped(pod, seen)
        self._operations += first
        self._add(("apply", self.evictions.marked(seen)))
        self._operations += last

    def charge_ungrouped(self) -> None:
        """All lists are in: from now on pods on a node without a PodGroup are charged to a queue."""
        for pod in self._ungrouped.begin():
            self._apply_pod(pod)

    def _take_pod(self, change: Change[Pod]) -> None:
        key, old, pod = change.key, change.old, change.new
        if pod is None:
            self.own.forget(key)
            self._doubt(f"Pod/{key}", ())
            self._evicted.pop(key, None)
            self.evictions.forget(key)
            self._add(("remove", ("Pod", *split_key(key))))
            self._operations += self._ungrouped.gone(key)
            self.trust_request(key)
            self._end_bind(key)
            if key not in self.requests:
                self._withdrawn.pop(key, None)
            return
        if old is None or pod_differs(old, pod):
            self._apply_pod(pod)
        if old is None and (early := self.requests.get(key)) is not None and self.own.objection(early):
            self._add(("remove", ("BindRequest", *split_key(key))))
        if key in self._evicted and (
            self._evicted[key] != pod.metadata.uid or pod.metadata.deletion_timestamp is not None
        ):
            del self._evicted[key]
        assumed = self._binds.get(key)
        node = pod.spec.node_name
        if old is not None and old.metadata.uid != pod.metadata.uid:
            self.own.forget(key)
            self.trust_request(key)
        elif node:
            if key not in self.requests:
                self.own.forget(key)
            self.trust_request(key)
        if node and (old is None or old.spec.node_name != node):
            if assumed is None or assumed.spec.selected_node != node:
                self._arrived(node)
        if assumed is not None and (node or pod.metadata.uid != owner_uid(assumed)):
            self._end_bind(key)

    def assume_bind(self, request: BindRequest) -> None:
        """A bind was decided: the pod counts as on its way (gpu:B-2)."""
        key = f"{request.metadata.namespace}/{request.spec.pod_name}"
        pod = self.pods.get(key)
        if pod is not None and (pod.spec.node_name or pod.metadata.uid != owner_uid(request)):
            return
        self._drop_bind(key)
        self._binds_to.setdefault(request.spec.selected_node, {})[key] = None
        self._binds[key] = request
        self.own.decide(key, request.spec)
        self._operations.append(("apply", request))

    def assumed_binds(self) -> Collection[BindRequest]:
        """The binds that were decided and neither seen nor given up."""
        return self._binds.values()

    def binds_to(self, node: str) -> Collection[BindRequest]:
        """Those of them that lead to a node."""
        return [self._binds[key] for key in self._binds_to.get(node, ())]

    def assumes_bind(self, key: str) -> bool:
        """Whether a bind of this pod was decided and neither seen nor given up."""
        return key in self._binds

    def give_up_bind(self, key: str) -> None:
        """The bind did not come about: the pod waits again."""
        self._end_bind(key)

    def give_up_place(self, key: str, uid: str, node: str) -> None:
        """The same, unless another pod of the name, or another node, has been decided on meanwhile."""
        assumed = self._binds.get(key)
        if assumed is not None and (owner_uid(assumed), assumed.spec.selected_node) == (uid, node):
            self._end_bind(key)

    def _drop_bind(self, key: str) -> bool:
        """Forget a bind that was assumed; whether there was one."""
        known = self._binds.pop(key, None)
        if known is None:
            return False
        node = known.spec.selected_node
        del self._binds_to[node][key]
        if not self._binds_to[node]:
            del self._binds_to[node]
        return True

    def _end_bind(self, key: str) -> None:
        if not self._drop_bind(key):
            return
        real = self.requests.get(key)
        if real is None:
            self.own.forget(key)
        if real is not None and self.counts(real):
            self._add(("apply", real))
        else:
            self._add(("remove", ("BindRequest", *split_key(key))))

    def hold_back(self, key: str) -> None:
        """Keep a waiting pod out of the cycles for a while, as if it were gated."""
        self._add(("assume", (key, TaskStatus.GATED)))

    def let_go(self, key: str) -> None:
        """End what was assumed about the state of a pod."""
        self._evicted.pop(key, None)
        self._add(("assume", (key, None)))
        if self.evictions.forget(key) and (pod := self.pods.get(key)) is not None:
            self._apply_pod(pod)

    def assume_evicted(self, key: str, uid: str, group: str = "") -> None:
        """An eviction was decided: the pod counts as going, for the good of a PodGroup (namespace/name/uid)."""
        pod = self.pods.get(key)
        if pod is not None and pod.metadata.uid == uid:
            self._evicted[key] = uid
            self.evictions.note(key, uid, group)
            self._operations.append(("assume", (key, TaskStatus.RELEASING)))
            seen = self._ungrouped.shown(pod, self._tenants.believable(pod)[0])
            self._operations.append(("apply", self.evictions.marked(seen)))

    def is_evicted(self, key: str, uid: str) -> bool:
        """Whether we evict this very pod and have not seen it going."""
        return self._evicted.get(key) == uid

    # -- BindRequests -----------------------------------------------------------------------------------------------

    def _on_request(self, change: Change[BindRequest]) -> None:
        key, request = change.key, change.new
        if request is None:
            gone = change.old.metadata.uid if change.old is not None else ""
            if self._withdrawn.get(key) == gone:
                del self._withdrawn[key]
            if key not in self._binds and key not in self._doubtful:
                self.own.forget(key)
                self._add(("remove", ("BindRequest", *split_key(key))))
            return
        if self._withdrawn.get(key) == request.metadata.uid:
            return
        if self.own.objection(request):
            if change.old is not None and key not in self._binds:
                self._add(("remove", ("BindRequest", *split_key(key))))
            return
        assumed = self._binds.get(key)
        if assumed is not None:
            if not same_placement(assumed, request):
                return
            self._drop_bind(key)
        if change.old is None or assumed is not None or differs(change.old, change.new):
            self._add(("apply", request))

    def judge_requests(self) -> None:
        """We lead: from now on only BindRequests count that say what was decided."""
        self.own.begin(self.requests.values())
        for key, request in zip(self.requests.keys(), self.requests.values(), strict=True):
            if self.own.objection(request):
                self._add(("remove", ("BindRequest", *split_key(key))))

    def trust_requests(self) -> None:
        """Others lead: BindRequests count as they are."""
        self.own.end()

    def counts(self, request: BindRequest) -> bool:
        """Whether a BindRequest speaks for its pod."""
        return not self.is_withdrawn(request) and not self.own.objection(request)

    def is_withdrawn(self, request: BindRequest) -> bool:
        """Whether we deleted this request and have not seen it go."""
        meta = request.metadata
        return bool(meta.uid) and self._withdrawn.get(f"{meta.namespace}/{meta.name}") == meta.uid

    def doubt_withdrawal(self, key: str) -> None:
        """A BindRequest is being deleted and its pod may be bound: it counts until one or the other is known."""
        self._doubtful.add(key)

    def trust_request(self, key: str) -> None:
        """What the watch says of a BindRequest counts again."""
        if key in self._doubtful:
            self._doubtful.discard(key)
            if key not in self._binds and key not in self.requests:
                self._add(("remove", ("BindRequest", *split_key(key))))

    def assume_withdrawn(self, key: str, uid: str) -> None:
        """A BindRequest was deleted: it no longer speaks for its pod."""
        self._doubtful.discard(key)
        # Also where the watch has not shown it yet: it may still do so, and that is news of the past.
        self._withdrawn[key] = uid
        if key not in self._binds:
            self._add(("remove", ("BindRequest", *split_key(key))))

    # -- PodGroups --------------------------------------------------------------------------------------------------

    def _on_group(self, change: Change[PodGroup]) -> None:
        key, group = change.key, change.new
        overlay = before = self._overlays.get(key)
        moved = self._ungrouped.judge_group(change)
        if group is None:
            self._overlays.pop(key, None)
            self._starts.forget(key)
            self._doubt(f"PodGroup/{key}", ())
            self._add(("remove", ("PodGroup", *split_key(key))))
            for pod in self._ungrouped.left(self.pods_of(key)):
                self._apply_pod(pod)
            return
        if overlay is not None and (overlay.uid != group.metadata.uid or caught_up(overlay, group.metadata)):
            overlay = None
            del self._overlays[key]
        seen = covered(group, overlay)
        if change.old is None or group_differs(covered(change.old, before), seen):
            self._add(("apply", self._judged(seen)))
        if moved:
            for pod in self._ungrouped.left(self.pods_of(key)):
                self._apply_pod(pod)

    def _on_queue(self, change: Change[Queue]) -> None:
        for pod in self._ungrouped.judge_queue(change):
            self._apply_pod(pod)

    def _judged(self, group: PodGroup) -> PodGroup:
        """A PodGroup with the start time that counts."""
        judged, problems = self._starts.believable(group)
        if problems or self.doubts:
            self._doubt(f"PodGroup/{group.metadata.namespace}/{group.metadata.name}", problems)
        return judged

    def lay_over(
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
            overlay = self._overlays[key] = Overlay(group.metadata.uid)
        before = covered(group, overlay)
        overlay.annotations.update(annotations or {})
        if conditions is not None:
            overlay.conditions = conditions
        overlay.open.add(part)
        after = covered(group, overlay)
        if group_differs(before, after):
            # No cycle for it: the cycle that decided this knew it already.
            self._operations.append(("apply", self._judged(after)))
        return True

    def written(self, key: str, part: str, resource_version: str) -> None:
        """All writes on a part of a PodGroup were answered, the last with this version; "" when it failed for good."""
        overlay = self._overlays.get(key)
        if overlay is None:
            return
        overlay.open.discard(part)
        if resource_version.isdecimal():
            overlay.seen_at = max(overlay.seen_at, int(resource_version))
        group = self.groups.get(key)
        if group is None:
            return
        if caught_up(overlay, group.metadata):
            del self._overlays[key]
            if group_differs(covered(group, overlay), group):
                self._add(("apply", self._judged(group)))

    def confine(self, key: str, why: FreeRoomOnly | None) -> None:
        """Let a group use free resources only, or no longer."""
        if why is not None:
            self.confined[key] = why
        elif self.confined.pop(key, None) is None:
            return
        self._add(("confine", (key, why)))

    def seen_group(self, key: str) -> PodGroup | None:
        """A PodGroup with our own unseen writes laid over it."""
        group = self.groups.get(key)
        return None if group is None else covered(group, self._overlays.get(key))

    # -- the engine's side ------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Changes that the next cycle will take in."""
        return len(self._operations) + len(self._backlog)

    def take(self) -> list[Operation]:
        """The changes for the next cycle, for `digest`; what a namespace has too many of comes with the one after."""
        taken, self._operations = self._backlog.admit(self._operations), []
        if self._backlog:
            self.wake()
        return taken

    def digest(self, operations: Iterable[Operation]) -> Digest:
        """Apply changes to the tables; the engine's thread calls this."""
        return digest(self.tables, operations)

    def start_over(self) -> None:
        """Forget the tables and fill new ones from the caches: the way out when they contradict themselves."""
        self.tables = Tables(self._shard)
        self._backlog.clear()
        self._operations = [("apply", item) for item in self.objects()]
        self._operations += [("assume", (key, TaskStatus.RELEASING)) for key in self._evicted]
        self._operations += [("confine", item) for item in self.confined.items()]
        self.wake()

    def objects(self) -> Iterable[Object]:
        """Every object as the tables see it, assumed binds and notes included."""
        for kind, store in self.stores.items():
            if kind == "PodGroup":
                for key, group in zip(store.keys(), store.values(), strict=True):
                    yield self._judged(covered(group, self._overlays.get(key)))
                yield from self._ungrouped.groups()
            elif kind == "BindRequest":
                for key, request in zip(store.keys(), store.values(), strict=True):
                    if key not in self._binds and self.counts(request):
                        yield request
                yield from self._binds.values()
            elif kind == "Node":
                yield from (believable(node)[0] for node in store.values())
            elif kind == "Pod":
                for pod in store.values():
                    yield self.evictions.marked(self._ungrouped.shown(pod, self._tenants.believable(pod)[0]))
            else:
                yield from store.values()

    def unreadable(self) -> dict[str, DecodeError]:
        """Objects that cannot be read, by kind and key."""
        return {
            f"{kind}/{key}": problem for kind, store in self.stores.items() for key, problem in store.problems.items()
        }


def _group_of(pod: Pod) -> Iterable[str]:
    name = pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION)
    return (f"{pod.metadata.namespace}/{name}",) if name else ()


def same_placement(one: BindRequest, other: BindRequest) -> bool:
    """Whether two requests bring the same pod to the same node."""
    return one.spec.selected_node == other.spec.selected_node and owner_uid(one) == owner_uid(other)


def owner_uid(request: BindRequest) -> str:
    """The uid of the pod that a request is for."""
    return next((owner.uid for owner in request.metadata.owner_references if owner.kind == "Pod"), "")
