"""The storage objects of a cluster, and what the claims of a pod amount to (cycle:FLT-2 VolumeBinding).

`apply` and `remove` take one object and return the pods whose requests it may have changed; `update_pod` does the same
when a pod comes or goes, because a claim that several pods use is no longer anonymous.  `resolve` gives the requests of
a pod, a function of the current objects.  Claims are read as Kubernetes reads them: a claim is bound once its volume is
named and the binding marked complete, it waits if its class says WaitForFirstConsumer, and otherwise it cannot be used
yet.

Supplies are kept by class: unclaimed volumes, capacity that drivers publish, and claims whose volumes are being
provisioned.

Statements: cycle:SNP-15.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key, split_key
from pykai.api.quantity import SATURATED, QuantityError, RawQuantity, unit_value
from pykai.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from pykai.core.model.problems import Problem
from pykai.core.model.volumerequests import (
    UNBOUND_IMMEDIATE,
    AccessibleNodes,
    VolumeRequest,
    nodes_of_labels,
    nodes_of_selector,
    nodes_of_topologies,
    selector_requirements,
    zone_labels,
)

StorageObject = PersistentVolume | PersistentVolumeClaim | StorageClass | CSIDriver | CSINode | CSIStorageCapacity
STORAGE_KINDS = (
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "CSIDriver",
    "CSINode",
    "CSIStorageCapacity",
)

_IndexKeyT = TypeVar("_IndexKeyT")
_IndexValueT = TypeVar("_IndexValueT")


@dataclass(frozen=True, slots=True)
class VolumeFacts:
    """The facts of a PersistentVolume."""

    name: str
    size: int
    storage_class: str
    access_modes: frozenset[str]
    volume_mode: str
    attributes_class: str
    labels: dict[str, str]
    accessible_from: AccessibleNodes
    zones: tuple[tuple[str, tuple[str, ...]], ...]
    driver: str
    #: key of the claim it is bound to or reserved for, "" when it is unclaimed
    claim_key: str
    #: uid of that claim, "" for any claim of that name
    claim_uid: str
    #: may be given to a claim that fits
    is_available: bool
    is_deleting: bool


class CapacityPool(NamedTuple):
    """Capacity for volumes of one class (a CSIStorageCapacity)."""

    name: str
    #: bytes of the largest volume, if the driver publishes it
    max_volume_bytes: int
    #: bytes in total, if the driver publishes it
    free_bytes: int
    accessible_from: AccessibleNodes


class Provisioning(NamedTuple):
    """A claim whose volume is being provisioned."""

    claim: str
    node: str
    size: int


def _bytes(raw: RawQuantity | None) -> int | None:
    try:
        return None if raw is None else max(0, unit_value(raw))
    except QuantityError:
        return None


def subject_of(kind: str, namespace: str, name: str) -> str:
    """What problems call a storage object."""
    return "/".join(part for part in (kind, namespace, name) if part)


def size_problems(item: StorageObject) -> list[Problem]:
    """Sizes of an object that cannot be read, and what happens instead."""
    sizes: list[tuple[str, RawQuantity | None]] = []
    fallback = "counted as not told"
    if isinstance(item, PersistentVolume):
        sizes, fallback = [("spec.capacity[storage]", item.spec.capacity.get(names.STORAGE))], "counted as 0"
    elif isinstance(item, PersistentVolumeClaim):
        sizes = [("spec.resources.requests[storage]", item.spec.resources.requests.get(names.STORAGE))]
        fallback = "pods that use the claim wait until this is fixed"
    elif isinstance(item, CSIStorageCapacity):
        sizes = [("capacity", item.capacity), ("maximumVolumeSize", item.maximum_volume_size)]
    subject = subject_of(type(item).__name__, item.metadata.namespace, item.metadata.name)
    problems: list[Problem] = []
    for path, raw in sizes:
        try:
            unit_value(0 if raw is None else raw)
        except QuantityError as error:
            problems.append(Problem(subject, path, f"{error}; {fallback}"))
    return problems


def _class_name(annotations: Mapping[str, str], named: str | None) -> str:
    return annotations.get(names.STORAGE_CLASS_ANNOTATION) or named or ""


def _read_volume(volume: PersistentVolume) -> VolumeFacts:
    spec, meta = volume.spec, volume.metadata
    reference = spec.claim_ref
    deleting = meta.deletion_timestamp is not None
    return VolumeFacts(
        name=meta.name,
        # A volume whose size cannot be read is never chosen for a claim that requests an amount.
        size=_bytes(spec.capacity.get(names.STORAGE)) or 0,
        storage_class=_class_name(meta.annotations, spec.storage_class_name),
        access_modes=frozenset(spec.access_modes),
        volume_mode=spec.volume_mode or "Filesystem",
        attributes_class=spec.volume_attributes_class_name,
        labels=meta.labels,
        accessible_from=nodes_of_selector(spec.node_affinity.required if spec.node_affinity is not None else None),
        zones=zone_labels(meta.labels),
        driver=spec.csi.driver if spec.csi is not None else "",
        claim_key=object_key(reference.namespace, reference.name) if reference is not None else "",
        claim_uid=reference.uid if reference is not None else "",
        is_available=reference is None and volume.status.phase == "Available" and not deleting,
        is_deleting=deleting,
    )


def _add_to_index(
    index: dict[_IndexKeyT, dict[str, _IndexValueT]], key: _IndexKeyT, name: str, value: _IndexValueT
) -> None:
    index.setdefault(key, {})[name] = value


def _remove_from_index(index: dict[_IndexKeyT, dict[str, _IndexValueT]], key: _IndexKeyT, name: str) -> None:
    members = index.get(key)
    if members is not None:
        members.pop(name, None)
        if not members:
            del index[key]


class StorageIndex:
    """All storage objects, with the indexes that keep a change cheap."""

    def __init__(self) -> None:
        self.volumes: dict[str, VolumeFacts] = {}
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.classes: dict[str, StorageClass] = {}
        #: drivers that publish their capacity
        self.capacity_drivers: set[str] = set()
        #: node -> driver -> most volumes it attaches there
        self.limits: dict[str, dict[str, int]] = {}
        #: class -> unclaimed volumes
        self.unclaimed: dict[str, dict[str, VolumeFacts]] = {}
        #: class -> capacity that its driver publishes
        self.pools: dict[str, dict[str, CapacityPool]] = {}
        #: class -> claims whose volumes are being provisioned
        self.provisioning: dict[str, dict[str, Provisioning]] = {}
        self._pool_class: dict[str, str] = {}
        #: volume -> claims that name it
        self._claims_by_volume: dict[str, dict[str, None]] = {}
        #: claim -> volumes reserved for it
        self._reserved_for: dict[str, dict[str, None]] = {}
        #: class -> its claims
        self._claims_by_class: dict[str, dict[str, None]] = {}
        #: claim -> pods that use it
        self._pods_by_claim: dict[str, dict[str, None]] = {}
        #: pod -> claims it uses
        self._claims_by_pod: dict[str, tuple[str, ...]] = {}

    def apply(self, item: StorageObject) -> set[str]:
        """Add or replace an object; returns the keys of pods whose requests may have changed."""
        name = item.metadata.name
        if isinstance(item, PersistentVolume):
            return self._set_volume(name, _read_volume(item))
        if isinstance(item, PersistentVolumeClaim):
            return self._set_claim(object_key(item.metadata.namespace, name), item)
        if isinstance(item, StorageClass):
            return self._set_class(name, item)
        if isinstance(item, CSIDriver):
            (self.capacity_drivers.add if item.spec.storage_capacity else self.capacity_drivers.discard)(name)
        elif isinstance(item, CSINode):
            self.limits[name] = {
                driver.name: max(0, driver.allocatable.count)
                for driver in item.spec.drivers
                if driver.allocatable is not None and driver.allocatable.count is not None
            }
        else:
            self._set_pool(object_key(item.metadata.namespace, name), item)
        return set()

    def remove(self, kind: str, namespace: str, name: str) -> set[str]:
        """Remove an object; returns the keys of pods whose requests may have changed."""
        key = object_key(namespace, name)
        if kind == "PersistentVolume":
            return self._set_volume(name, None)
        if kind == "PersistentVolumeClaim":
            return self._set_claim(key, None)
        if kind == "StorageClass":
            return self._set_class(name, None)
        if kind == "CSIDriver":
            self.capacity_drivers.discard(name)
        elif kind == "CSINode":
            self.limits.pop(name, None)
        elif kind == "CSIStorageCapacity":
            self._set_pool(key, None)
        return set()

    def update_pod(self, pod_key: str, pod: Pod | None) -> set[str]:
        """A pod came, changed or (None) went; returns the keys of other pods whose requests may have changed."""
        before = self._claims_by_pod.pop(pod_key, ())
        after = tuple(dict.fromkeys(claim for claim, _ in _claims_of(pod))) if pod is not None else ()
        affected_pods: set[str] = set()
        for claim in before:
            if claim not in after:
                _remove_from_index(self._pods_by_claim, claim, pod_key)
                affected_pods.update(self._pods_by_claim.get(claim, ()))
        for claim in after:
            affected_pods.update(self._pods_by_claim.get(claim, ()))
            _add_to_index(self._pods_by_claim, claim, pod_key, None)
        if after:
            self._claims_by_pod[pod_key] = after
        affected_pods.discard(pod_key)
        return affected_pods

    def _set_volume(self, name: str, volume: VolumeFacts | None) -> set[str]:
        before = self.volumes.pop(name, None)
        claims = set(self._claims_by_volume.get(name, ()))
        if before is not None:
            _remove_from_index(self.unclaimed, before.storage_class, name)
            _remove_from_index(self._reserved_for, before.claim_key, name)
            claims.add(before.claim_key)
        if volume is not None:
            self.volumes[name] = volume
            if volume.is_available:
                _add_to_index(self.unclaimed, volume.storage_class, name, volume)
            if volume.claim_key:
                _add_to_index(self._reserved_for, volume.claim_key, name, None)
                claims.add(volume.claim_key)
        return self._pods_of(claims)

    def _set_claim(self, key: str, claim: PersistentVolumeClaim | None) -> set[str]:
        before = self.claims.pop(key, None)
        if before is not None:
            _remove_from_index(self._claims_by_volume, before.spec.volume_name, key)
            _remove_from_index(self._claims_by_class, self._class_of(before), key)
            _remove_from_index(self.provisioning, self._class_of(before), key)
        if claim is not None:
            self.claims[key] = claim
            if claim.spec.volume_name:
                _add_to_index(self._claims_by_volume, claim.spec.volume_name, key, None)
            _add_to_index(self._claims_by_class, self._class_of(claim), key, None)
            node = claim.metadata.annotations.get(names.SELECTED_NODE_ANNOTATION)
            if node and not claim.spec.volume_name:
                size = _bytes(claim.spec.resources.requests.get(names.STORAGE)) or 0
                _add_to_index(self.provisioning, self._class_of(claim), key, Provisioning(key, node, size))
        return self._pods_of((key,))

    def _set_class(self, name: str, item: StorageClass | None) -> set[str]:
        if item is None:
            self.classes.pop(name, None)
        else:
            self.classes[name] = item
        return self._pods_of(self._claims_by_class.get(name, ()))

    def _set_pool(self, key: str, item: CSIStorageCapacity | None) -> None:
        _remove_from_index(self.pools, self._pool_class.pop(key, ""), key)
        if item is None:
            return
        free_bytes, max_volume_bytes = _bytes(item.capacity), _bytes(item.maximum_volume_size)
        if free_bytes is None and max_volume_bytes is None:
            # A driver that has not published a capacity yet has none.
            return
        self._pool_class[key] = item.storage_class_name
        pool = CapacityPool(
            name=key,
            max_volume_bytes=max_volume_bytes if max_volume_bytes is not None else SATURATED,
            free_bytes=free_bytes if free_bytes is not None else SATURATED,
            accessible_from=nodes_of_labels(item.node_topology),
        )
        _add_to_index(self.pools, item.storage_class_name, key, pool)

    def _pods_of(self, claims: Iterable[str]) -> set[str]:
        return {pod for claim in claims for pod in self._pods_by_claim.get(claim, ())}

    @staticmethod
    def _class_of(claim: PersistentVolumeClaim) -> str:
        return _class_name(claim.metadata.annotations, claim.spec.storage_class_name)

    def provisioner(self, storage_class: str) -> str:
        """The provisioner of a class, "" when it has none."""
        class_object = self.classes.get(storage_class)
        return (
            class_object.provisioner
            if class_object is not None and class_object.provisioner != names.NO_PROVISIONER
            else ""
        )

    def provisionable_from(self, storage_class: str) -> AccessibleNodes:
        """Nodes for which volumes of a class may be provisioned."""
        class_object = self.classes.get(storage_class)
        return () if class_object is None else nodes_of_topologies(class_object.allowed_topologies)

    def resolve(self, pod: Pod) -> tuple[VolumeRequest, ...]:
        """What the claims of a pod request; problems first, in the order of Kubernetes."""
        volume_requests = {claim: self._volume_request(pod, claim, ephemeral) for claim, ephemeral in _claims_of(pod)}
        if not volume_requests:
            return ()
        with_problems = [volume_request for volume_request in volume_requests.values() if volume_request.problem]
        with_problems.sort(key=lambda volume_request: volume_request.problem == UNBOUND_IMMEDIATE)
        return (
            *with_problems,
            *sorted(
                (volume_request for volume_request in volume_requests.values() if not volume_request.problem), key=repr
            ),
        )

    def _volume_request(self, pod: Pod, key: str, ephemeral: bool) -> VolumeRequest:
        claim = self.claims.get(key)
        shared_key = key if len(self._pods_by_claim.get(key, ())) > 1 else ""
        _, name = split_key(key)
        if claim is None:
            if ephemeral:
                wait = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
                return VolumeRequest(problem=wait)
            return VolumeRequest(problem=f'persistentvolumeclaim "{name}" not found')
        problem = _problem(pod, claim, ephemeral)
        spec, annotations = claim.spec, claim.metadata.annotations
        storage_class = self._class_of(claim)
        size = _bytes(spec.resources.requests.get(names.STORAGE, 0))
        single_pod_only = names.READ_WRITE_ONCE_POD in spec.access_modes
        if spec.volume_name and names.BIND_COMPLETED_ANNOTATION in annotations:
            volume = self.volumes.get(spec.volume_name)
            return VolumeRequest(
                problem=problem,
                bound=True,
                lost=volume is None,
                accessible_from=volume.accessible_from if volume is not None else None,
                zones=volume.zones if volume is not None else (),
                driver=volume.driver if volume is not None else "",
                shared_key=shared_key,
                single_pod_only=single_pod_only,
                is_ephemeral=ephemeral,
                storage_class=storage_class if ephemeral else "",
                size=size or 0 if ephemeral else 0,
            )
        if not problem and size is None:
            problem = f'persistentvolumeclaim "{name}" requests a size that cannot be read'
        class_object = self.classes.get(storage_class)
        waits = class_object is not None and class_object.volume_binding_mode == names.WAIT_FOR_FIRST_CONSUMER
        if not problem and (not waits or spec.volume_name):
            problem = UNBOUND_IMMEDIATE
        if problem:
            return VolumeRequest(problem=problem, shared_key=shared_key, single_pod_only=single_pod_only)
        reserved = (self.volumes[volume] for volume in sorted(self._reserved_for.get(key, ())))
        return VolumeRequest(
            driver=self.provisioner(storage_class),
            shared_key=shared_key,
            single_pod_only=single_pod_only,
            storage_class=storage_class,
            size=size or 0,
            access_modes=tuple(sorted(spec.access_modes)),
            volume_mode=spec.volume_mode or "Filesystem",
            attributes_class=spec.volume_attributes_class_name,
            selector=selector_requirements(spec.selector) if spec.selector is not None else None,
            reserved_volumes=tuple(volume.name for volume in reserved if volume.claim_uid in ("", claim.metadata.uid)),
            selected_node=annotations.get(names.SELECTED_NODE_ANNOTATION, ""),
        )


def _claims_of(pod: Pod) -> list[tuple[str, bool]]:
    """Keys of the claims a pod uses, and whether each belongs to it alone."""
    namespace = pod.metadata.namespace
    claims: list[tuple[str, bool]] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            claims.append((object_key(namespace, volume.persistent_volume_claim.claim_name), False))
        elif volume.ephemeral is not None:
            claims.append((f"{namespace}/{pod.metadata.name}-{volume.name}", True))
    return claims


def _problem(pod: Pod, claim: PersistentVolumeClaim, ephemeral: bool) -> str:
    """Why an existing claim cannot be used, "" when it can (cycle:FLT-9)."""
    meta = claim.metadata
    if claim.status.phase == "Lost":
        missing = claim.spec.volume_name
        return f'persistentvolumeclaim "{meta.name}" bound to non-existent persistentvolume "{missing}"'
    if meta.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{meta.name}" is being deleted'
    owners = [owner.uid for owner in meta.owner_references if owner.controller]
    if ephemeral and pod.metadata.uid not in owners:
        return f"PVC {meta.namespace}/{meta.name} was not created for pod {{pod}} (pod is not owner)"
    return ""
