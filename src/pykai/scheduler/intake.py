"""From the change feed of the caches to the engine's tables.

    stores --change--> Intake (event loop) --operations--> Tables (engine's thread, between cycles)

A snapshot holds until the next change of the tables, so changes are not applied as they come: they are written down in
order, and `digest` applies them right before the next cycle.  What the engine would not notice (heartbeats, conditions
of pods, our own notes on PodGroups) is not even written down and starts no cycle.

Our own writes are assumed until the watch shows them:

- a bind: the tables see a BindRequest for the pod, whether one is written or the pod is bound directly, until the pod
  has a node or the real request is there;
- an eviction: the pod counts as going, by uid, until its object shows it (cycle:SNP-17, Do better);
- a withdrawn BindRequest: gone, until the watch says so, but only once it is known that its pod was not bound before;
- notes on a PodGroup (stamps, conditions): laid over the object until a version at least as new as the answer to our
  write is there (cycle:EXP-16).

Subtle: between our write and its echo the watch may still bring news of the past, such as the deletion of an older
BindRequest of the same name.  Such news must not end an assumption; only the object we wrote does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import ConfigMap, Namespace, Node, Pod, PriorityClass
from pykai.api.decode import DecodeError, Object
from pykai.api.meta import ObjectMeta, Wire
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
from pykai.core.problems import Problem
from pykai.core.shard import Shard
from pykai.core.status import Status
from pykai.core.tables import Tables
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.resources import Resource, split_key
from pykai.kube.store import Change, Store
from pykai.scheduler.believing import believable
from pykai.scheduler.tenants import Tenants

log = logging.getLogger(__name__)
W = TypeVar("W", bound=Wire)

#: Failed pods hold nothing and never come back; the server keeps them from us (cycle:SNP-1).
POD_SELECTOR = "status.phase!=Failed"

#: index of the pods: key of their PodGroup
BY_GROUP = "pod group"

_STAMPS = (
    names.STALE_TIMESTAMP_ANNOTATION,
    names.LAST_START_TIMESTAMP_ANNOTATION,
    names.LAST_EVICTION_TIMESTAMP_ANNOTATION,
)

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
#: Kinds a server may lack (ops:O-56).
_OPTIONAL_KINDS: tuple[tuple[Resource, type[Wire]], ...] = (
    (resources.TOPOLOGIES, Topology),
    (resources.NODE_RESOURCE_TOPOLOGIES, NodeResourceTopology),
)
DRA_KINDS: tuple[tuple[Resource, type[Wire]], ...] = (
    (resources.RESOURCE_CLAIMS, ResourceClaim),
    (resources.RESOURCE_SLICES, ResourceSlice),
    (resources.DEVICE_CLASSES, DeviceClass),
)

#: One change of the tables: what to do, and with what.
Operation = tuple[str, Any]


@dataclass(slots=True)
class _Overlay:
    """What we wrote on a PodGroup and have not seen yet."""

    uid: str
    #: None = removed
    annotations: dict[str, str | None] = field(default_factory=dict)
    conditions: list[SchedulingCondition] | None = None
    #: parts of the object on which a write is under way
    open: set[str] = field(default_factory=set)
    #: resource version of the last answer, 0 = none yet
    seen_at: int = 0


@dataclass(frozen=True, slots=True)
class Digest:
    """What applying a batch came to."""

    operations: int
    #: changes that could not be applied, which must not happen
    problems: tuple[Problem, ...] = ()


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
        self._tenants = Tenants(self.pods, shard.reservation_app)
        self.nodes: Store[Node] = caches.store(resources.NODES, Node)
        #: `Kind/key` of nodes and pods -> what they say that cannot be true
        self.doubts: dict[str, tuple[Problem, ...]] = {}
        #: kind -> store
        self.stores: dict[str, Store[Any]] = {}
        self._shard = shard
        self._caches = caches
        self._operations: list[Operation] = []
        #: pod key -> the bind we decided and have not seen
        self._binds: dict[str, BindRequest] = {}
        #: node -> pods with such a bind to it; a dict is an ordered set
        self._binds_to: dict[str, dict[str, None]] = {}
        #: pod key -> uid of the pod we evict
        self._evicted: dict[str, str] = {}
        #: request key -> uid of the request we deleted
        self._withdrawn: dict[str, str] = {}
        #: requests whose end says nothing about their pods yet
        self._doubtful: set[str] = set()
        self._overlays: dict[str, _Overlay] = {}
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
            matters = _MATTERS.get(kind, _differs)

            def on_change(change: Change[W]) -> None:
                if change.new is None:
                    self._add(("remove", (kind, *split_key(change.key))))
                elif change.old is None or matters(change.old, change.new):
                    self._add(("apply", change.new))

            store.subscribe(on_change)
        else:
            store.subscribe(handler)

    def _add(self, operation: Operation) -> None:
        self._operations.append(operation)
        self.wake()

    @property
    def reservation_app(self) -> str:
        """The label of pods that hold a GPU for others."""
        return self._shard.reservation_app

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
            return
        if change.old is None or change.old.status != change.new.status:
            self._arrived(change.key)
        if change.old is None or _differs(change.old, change.new):
            node, problems = believable(change.new)
            self._doubt(f"Node/{change.key}", problems)
            self._add(("apply", node))

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

    def _apply_pod(self, pod: Pod) -> None:
        seen, problems = self._tenants.believable(pod)
        if problems or self.doubts:
            self._doubt(f"Pod/{pod.metadata.namespace}/{pod.metadata.name}", problems)
        self._add(("apply", seen))

    def _take_pod(self, change: Change[Pod]) -> None:
        key, old, pod = change.key, change.old, change.new
        if pod is None:
            self._doubt(f"Pod/{key}", ())
            self._evicted.pop(key, None)
            self._add(("remove", ("Pod", *split_key(key))))
            self.trust_request(key)
            self._end_bind(key)
            if key not in self.requests:
                self._withdrawn.pop(key, None)
            return
        if old is None or pod_differs(old, pod):
            self._apply_pod(pod)
        if key in self._evicted and (
            self._evicted[key] != pod.metadata.uid or pod.metadata.deletion_timestamp is not None
        ):
            del self._evicted[key]
        assumed = self._binds.get(key)
        node = pod.spec.node_name
        if node or (old is not None and old.metadata.uid != pod.metadata.uid):
            self.trust_request(key)
        if node and (old is None or old.spec.node_name != node):
            if assumed is None or assumed.spec.selected_node != node:
                self._arrived(node)
        if assumed is not None and (node or pod.metadata.uid != _owner_uid(assumed)):
            self._end_bind(key)

    def assume_bind(self, request: BindRequest) -> None:
        """A bind was decided: the pod counts as on its way."""
        key = f"{request.metadata.namespace}/{request.spec.pod_name}"
        pod = self.pods.get(key)
        if pod is not None and (pod.spec.node_name or pod.metadata.uid != _owner_uid(request)):
            return
        self._drop_bind(key)
        self._binds_to.setdefault(request.spec.selected_node, {})[key] = None
        self._binds[key] = request
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
        if assumed is not None and (_owner_uid(assumed), assumed.spec.selected_node) == (uid, node):
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
        if real is not None and self._withdrawn.get(key) != real.metadata.uid:
            self._add(("apply", real))
        else:
            self._add(("remove", ("BindRequest", *split_key(key))))

    def hold_back(self, key: str) -> None:
        """Keep a waiting pod out of the cycles for a while, as if it were gated."""
        self._add(("assume", (key, Status.GATED)))

    def let_go(self, key: str) -> None:
        """End what was assumed about the state of a pod."""
        self._evicted.pop(key, None)
        self._add(("assume", (key, None)))

    def assume_evicted(self, key: str, uid: str) -> None:
        """An eviction was decided: the pod counts as going."""
        pod = self.pods.get(key)
        if pod is not None and pod.metadata.uid == uid:
            self._evicted[key] = uid
            self._operations.append(("assume", (key, Status.RELEASING)))

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
                self._add(("remove", ("BindRequest", *split_key(key))))
            return
        if self._withdrawn.get(key) == request.metadata.uid:
            return
        assumed = self._binds.get(key)
        if assumed is not None:
            if not same_placement(assumed, request):
                return
            self._drop_bind(key)
        if change.old is None or assumed is not None or _differs(change.old, change.new):
            self._add(("apply", request))

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
        if group is None:
            self._overlays.pop(key, None)
            self._add(("remove", ("PodGroup", *split_key(key))))
            return
        if overlay is not None and (overlay.uid != group.metadata.uid or _caught_up(overlay, group.metadata)):
            overlay = None
            del self._overlays[key]
        seen = _covered(group, overlay)
        if change.old is None or group_differs(_covered(change.old, before), seen):
            self._add(("apply", seen))

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
            overlay = self._overlays[key] = _Overlay(group.metadata.uid)
        before = _covered(group, overlay)
        overlay.annotations.update(annotations or {})
        if conditions is not None:
            overlay.conditions = conditions
        overlay.open.add(part)
        after = _covered(group, overlay)
        if group_differs(before, after):
            # No cycle for it: the cycle that decided this knew it already.
            self._operations.append(("apply", after))
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
        if _caught_up(overlay, group.metadata):
            del self._overlays[key]
            covered = _covered(group, overlay)
            if group_differs(covered, group):
                self._add(("apply", group))

    def seen_group(self, key: str) -> PodGroup | None:
        """A PodGroup with our own unseen writes laid over it."""
        group = self.groups.get(key)
        return None if group is None else _covered(group, self._overlays.get(key))

    # -- the engine's side ------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Changes that the next cycle will take in."""
        return len(self._operations)

    def take(self) -> list[Operation]:
        """The changes since the last call, for `digest`."""
        taken, self._operations = self._operations, []
        return taken

    def digest(self, operations: Iterable[Operation]) -> Digest:
        """Apply changes to the tables; runs in the engine's thread while nobody else touches the tables."""
        tables = self.tables
        problems: list[Problem] = []
        count = 0
        for what, payload in operations:
            count += 1
            try:
                if what == "apply":
                    tables.apply(payload)
                elif what == "remove":
                    tables.remove(*payload)
                else:
                    tables.assume(*payload)
            except Exception as error:
                log.exception("a change could not be taken in: %s", what)
                problems.append(Problem(_subject(what, payload), "", f"{type(error).__name__}: {error}"))
        return Digest(count, tuple(problems))

    def start_over(self) -> None:
        """Forget the tables and fill new ones from the caches: the way out when they contradict themselves."""
        self.tables = Tables(self._shard)
        self._operations = [("apply", item) for item in self.objects()]
        self._operations += [("assume", (key, Status.RELEASING)) for key in self._evicted]
        self.wake()

    def objects(self) -> Iterable[Object]:
        """Every object as the tables see it, assumed binds and notes included."""
        for kind, store in self.stores.items():
            if kind == "PodGroup":
                for key, group in zip(store.keys(), store.values(), strict=True):
                    yield _covered(group, self._overlays.get(key))
            elif kind == "BindRequest":
                for key, request in zip(store.keys(), store.values(), strict=True):
                    if key not in self._binds and self._withdrawn.get(key) != request.metadata.uid:
                        yield request
                yield from self._binds.values()
            elif kind == "Node":
                yield from (believable(node)[0] for node in store.values())
            elif kind == "Pod":
                yield from (self._tenants.believable(pod)[0] for pod in store.values())
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
    return one.spec.selected_node == other.spec.selected_node and _owner_uid(one) == _owner_uid(other)


def _owner_uid(request: BindRequest) -> str:
    return next((owner.uid for owner in request.metadata.owner_references if owner.kind == "Pod"), "")


def _covered(group: PodGroup, overlay: _Overlay | None) -> PodGroup:
    if overlay is None:
        return group
    if overlay.annotations:
        annotations = {**group.metadata.annotations, **overlay.annotations}
        kept = {key: value for key, value in annotations.items() if value is not None}
        group = replace(group, metadata=replace(group.metadata, annotations=kept))
    if overlay.conditions is not None:
        group = replace(group, status=replace(group.status, scheduling_conditions=overlay.conditions))
    return group


def _caught_up(overlay: _Overlay, meta: ObjectMeta) -> bool:
    """Whether a version of the object shows all that was written on it, or nothing will come of the writes."""
    if overlay.open:
        return False
    return not overlay.seen_at or not meta.resource_version.isdecimal() or int(meta.resource_version) >= overlay.seen_at


def _same_meta(old: ObjectMeta, new: ObjectMeta) -> bool:
    return (
        old.labels == new.labels
        and old.annotations == new.annotations
        and old.uid == new.uid
        and old.deletion_timestamp == new.deletion_timestamp
        and old.owner_references == new.owner_references
    )


def _differs(old: Any, new: Any) -> bool:
    """Whether anything but the resource version changed."""
    return not _same_meta(old.metadata, new.metadata) or any(
        getattr(old, name) != getattr(new, name) for name in type(new).__struct_fields__ if name != "metadata"
    )


def pod_differs(old: Pod, new: Pod) -> bool:
    """Whether the engine could see a difference between two versions of a pod; it does not read conditions."""
    was, now = old.status, new.status
    return (
        was.phase != now.phase
        or was.nominated_node_name != now.nominated_node_name
        or was.resource_claim_statuses != now.resource_claim_statuses
        or was.extended_resource_claim_status != now.extended_resource_claim_status
        or not _same_meta(old.metadata, new.metadata)
        or old.spec != new.spec
    )


def group_differs(old: PodGroup, new: PodGroup) -> bool:
    """The same for PodGroups: the spec, labels, our stamps, and conditions where a failed attempt ends the trying."""
    if old is new:
        return False
    was, now = old.metadata, new.metadata
    if was.uid != now.uid or was.labels != now.labels or old.spec != new.spec:
        return True
    if any(was.annotations.get(key) != now.annotations.get(key) for key in _STAMPS):
        return True
    tries_for_ever = new.spec.scheduling_backoff in (None, names.BACKOFF_NONE)
    return not tries_for_ever and old.status.scheduling_conditions != new.status.scheduling_conditions


def _never(_: object, __: object) -> bool:
    return False


#: kind -> whether two versions differ for the engine; the others by anything but the resource version
_MATTERS: Mapping[str, Callable[[Any, Any], bool]] = {"ConfigMap": _never}


def _subject(what: str, payload: Any) -> str:
    if what == "apply":
        meta = payload.metadata
        return "/".join(part for part in (type(payload).__name__, meta.namespace, meta.name) if part)
    if what == "remove":
        return "/".join(part for part in payload if part)
    return f"Pod/{payload[0]}"
