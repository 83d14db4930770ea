"""The objects of dynamic resource allocation, and what the claims of a pod amount to (gpu:11).

`apply` and `remove` take one object and return the pods whose requests it may have changed; `update_pod` follows pods
that come and go.  `resolve` gives the requests of a pod, a function of the current objects.  A claim that was made from
a template for one pod is anonymous: only its requests matter, so the pods of a job share one shape.  A claim that the
pod names may be shared, and an allocated claim decides where the pod can go: these keep their names.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple, TypeVar

from pykai.api import names
from pykai.api.core import Container, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from pykai.api.keys import object_key
from pykai.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from pykai.core.cluster.claims.counting import claim_gpus, is_synthetic
from pykai.core.cluster.claims.inventory import Inventory
from pykai.core.cluster.nodetable import NodeTable
from pykai.core.model.claimrequests import ClaimRefusal, ClaimRequest, PodClaim
from pykai.core.model.extendedresources import ExtendedResourceMap, dra_backed_resources

ClaimObject = ResourceClaim | ResourceSlice | DeviceClass
#: What the pod calls a claim that was made from its template.
_POD_CLAIM_NAME = names.POD_CLAIM_NAME_ANNOTATION
CLAIM_KINDS = ("ResourceClaim", "ResourceSlice", "DeviceClass")


class PodClaims(NamedTuple):
    """What a pod requests of dynamic resource allocation."""

    claims: tuple[PodClaim, ...] = ()
    #: key of the claim behind each of `claims`, "" where there is none
    keys: tuple[str, ...] = ()
    #: its containers with only those requests that a device class backs, None when there are none
    dra_backed_spec: PodSpec | None = None
    #: names of these requests
    dra_backed: tuple[str, ...] = ()
    #: key of the claim that serves them on the node of the pod, "" while there is none
    extended_key: str = ""


NO_POD_CLAIMS = PodClaims()


class ClaimIndex:
    """Claims, slices and classes of a cluster."""

    def __init__(self, queue_label: str) -> None:
        self._queue_label = queue_label
        self.claims: dict[str, ResourceClaim] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.extended_resources = ExtendedResourceMap.of(())
        #: claim key -> pods that use it
        self._users: dict[str, set[str]] = {}
        #: pod key -> claims it uses, resources it names that a class may back, its namespace and uid
        self._use_by_pod: dict[str, _PodClaimUse] = {}
        #: resource -> pods that name it
        self._pods_by_resource: dict[str, set[str]] = {}
        #: namespace and uid -> the pod, of pods in `_use_by_pod`
        self._pods: dict[tuple[str, str], str] = {}
        #: namespace and uid of a pod -> claims made for it
        self._claims_by_owner: dict[tuple[str, str], set[str]] = {}
        #: device class -> claims that name it
        self._claims_by_class: dict[str, set[str]] = {}
        self._inventory: Inventory | None = None
        self._nodes: NodeTable | None = None

    def apply(self, item: ClaimObject) -> set[str]:
        """Add or replace an object; returns the pods whose requests may have changed."""
        name = item.metadata.name
        if isinstance(item, ResourceSlice):
            if self.slices.get(name) != item:
                self.slices[name] = item
                self._inventory = None
            return set()
        if isinstance(item, DeviceClass):
            if self.classes.get(name) == item:
                return set()
            self.classes[name] = item
            return self._class_changed(name)
        key = object_key(item.metadata.namespace, name)
        if self.claims.get(key) == item:
            return set()
        affected_pods = self._set_claim(key, None) if key in self.claims else set()
        return affected_pods | self._set_claim(key, item)

    def remove(self, kind: str, namespace: str, name: str) -> set[str]:
        """Remove an object; returns the pods whose requests may have changed."""
        if kind == "ResourceSlice":
            if self.slices.pop(name, None) is not None:
                self._inventory = None
            return set()
        if kind == "DeviceClass":
            return self._class_changed(name) if self.classes.pop(name, None) is not None else set()
        key = object_key(namespace, name)
        return self._set_claim(key, None) if key in self.claims else set()

    def _set_claim(self, key: str, claim: ResourceClaim | None) -> set[str]:
        """Set or (None) remove a claim; returns its users and the pods it was made for."""
        add = claim is not None
        item = claim if claim is not None else self.claims.pop(key)
        if claim is not None:
            self.claims[key] = claim
        affected_pods = set(self._users.get(key, ()))
        for owner in _owners(item):
            _update_index(self._claims_by_owner, owner, key, add=add)
            if owner in self._pods:
                affected_pods.add(self._pods[owner])
        for device_class in _classes_of(item):
            _update_index(self._claims_by_class, device_class, key, add=add)
        return affected_pods

    def _class_changed(self, name: str) -> set[str]:
        old_map, self.extended_resources = self.extended_resources, ExtendedResourceMap.of(self.classes.values())
        affected_pods: set[str] = set()
        for key in self._claims_by_class.get(name, ()):
            affected_pods |= self._users.get(key, set())
        for resource, pods in self._pods_by_resource.items():
            if old_map.class_of(resource) != self.extended_resources.class_of(resource):
                affected_pods |= pods
        return affected_pods

    def update_pod(self, key: str, pod: Pod | None) -> None:
        """A pod came or changed, or is gone (None)."""
        old_use = self._use_by_pod.pop(key, None)
        if old_use is not None:
            self._index_pod(key, old_use, add=False)
        if pod is None:
            return
        extended_names = {
            name for container in _containers(pod) for name in container.resources.requests if "/" in name
        }
        if not extended_names and not pod.spec.resource_claims:
            return
        owner = (pod.metadata.namespace, pod.metadata.uid)
        self._use_by_pod[key] = pod_use = _PodClaimUse(
            frozenset(claim_key for _, claim_key in self._claims_of_pod(pod) if claim_key), extended_names, owner
        )
        self._index_pod(key, pod_use, add=True)

    def _index_pod(self, key: str, pod_use: _PodClaimUse, *, add: bool) -> None:
        for claim in pod_use.claims:
            _update_index(self._users, claim, key, add=add)
        for resource in pod_use.resources:
            _update_index(self._pods_by_resource, resource, key, add=add)
        if add:
            self._pods[pod_use.owner] = key
        elif self._pods.get(pod_use.owner) == key:
            del self._pods[pod_use.owner]

    def _claims_of_pod(self, pod: Pod) -> Iterator[tuple[PodResourceClaim, str | None]]:
        """The claims of a pod and their keys, None where no claim has been made yet (gpu:D-5)."""
        made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_name:
                yield entry, object_key(pod.metadata.namespace, entry.resource_claim_name)
            elif entry.name in made:
                name = made[entry.name]
                # Without a name there is no claim to wait for.
                if name is not None:
                    yield entry, object_key(pod.metadata.namespace, name)
            else:
                made_here = (
                    key for key, notes in self._claims_made_for(pod) if notes.get(_POD_CLAIM_NAME) == entry.name
                )
                yield entry, next(made_here, None)

    def _claims_made_for(self, pod: Pod) -> Iterator[tuple[str, dict[str, str]]]:
        """Claims made for a pod whose names may not be in its status yet, with their annotations."""
        for key in sorted(self._claims_by_owner.get((pod.metadata.namespace, pod.metadata.uid), ())):
            yield key, self.claims[key].metadata.annotations

    def resolve(self, pod: Pod, *, is_placed: bool) -> PodClaims:
        """What a pod requests; `is_placed` when it is on a node or being bound to one."""
        dra_backed = dra_backed_resources(pod.spec, self.extended_resources) if self.classes else ()
        if not pod.spec.resource_claims and not dra_backed:
            return NO_POD_CLAIMS
        claims: list[PodClaim] = []
        keys: list[str] = []
        for entry, key in self._claims_of_pod(pod):
            claims.append(self._pod_claim(pod, entry, key, is_placed=is_placed))
            keys.append(key or "")
            if key and keys.count(key) > 1:
                # A claim named twice is counted once.
                claims[-1] = claims[-1]._replace(gpus=0)
        dra_backed_spec = _keep_requests(pod.spec, dra_backed) if dra_backed else None
        return PodClaims(
            tuple(claims), tuple(keys), dra_backed_spec, dra_backed, self._extended_claim_key(pod) if dra_backed else ""
        )

    def _extended_claim_key(self, pod: Pod) -> str:
        """The claim behind the extended resources of a pod, which its status names last (gpu:D-17); "" without one."""
        status = pod.status.extended_resource_claim_status
        if status is not None:
            return object_key(pod.metadata.namespace, status.resource_claim_name)
        return next((key for key, notes in self._claims_made_for(pod) if is_synthetic(notes)), "")

    def _pod_claim(self, pod: Pod, entry: PodResourceClaim, key: str | None, *, is_placed: bool) -> PodClaim:
        claim = self.claims.get(key) if key else None
        if claim is None or key is None:
            text = f"resource claim {key} does not exist" if key else "no resource claim name found for pod {pod}"
            return PodClaim(entry.name, problem=text if key else f"{text} and its claim {entry.name}")
        # A claim that the pod names is its own, even if annotated as synthetic (gpu:D-4): users can write that.
        gpus = claim_gpus(claim.spec).gpus
        is_named_by_pod = bool(entry.resource_claim_name)
        allocated = claim.status.allocation is not None
        problem = ""
        if claim.metadata.deletion_timestamp is not None and not is_placed:
            problem = f"resource claim {key} is being deleted"
        owners = _owners(claim)
        if not is_named_by_pod and owners and (pod.metadata.namespace, pod.metadata.uid) not in owners:
            problem = f"resource claim {key} was not created for pod {{pod}}"
        request = ClaimRequest.of(claim.spec, self.classes, key)
        if isinstance(request, ClaimRefusal):
            problem = problem or ("" if allocated else request.text)
        return PodClaim(
            name=entry.name,
            key=key if is_named_by_pod or (allocated and not is_placed) else "",
            request=None if isinstance(request, ClaimRefusal) else request,
            gpus=gpus,
            queue_checked=is_named_by_pod and gpus > 0,
            queue=claim.metadata.labels.get(self._queue_label) if is_named_by_pod and gpus else None,
            problem=problem,
        )

    def inventory(self, nodes: NodeTable) -> Inventory:
        """All devices, rebuilt when a slice, or the name or a label of a node has changed."""
        if self._inventory is None or not self._same_nodes(nodes):
            self._inventory = Inventory.of(self.slices.values(), nodes)
        self._nodes = nodes
        return self._inventory

    def _same_nodes(self, nodes: NodeTable) -> bool:
        old_nodes = self._nodes
        return old_nodes is nodes or (
            old_nodes is not None
            and old_nodes.names == nodes.names
            and all(one.labels == other.labels for one, other in zip(old_nodes.facts, nodes.facts, strict=True))
        )


class _PodClaimUse(NamedTuple):
    """The claims that concern a pod."""

    claims: frozenset[str]
    resources: set[str]
    owner: tuple[str, str]


_IndexKey = TypeVar("_IndexKey", bound=Hashable)


def _update_index(index: dict[_IndexKey, set[str]], key: _IndexKey, member: str, *, add: bool) -> None:
    """Add to or remove from an index of sets; empty sets are dropped."""
    if add:
        index.setdefault(key, set()).add(member)
        return
    members = index[key]
    members.discard(member)
    if not members:
        del index[key]


def _owners(claim: ResourceClaim) -> set[tuple[str, str]]:
    """Namespace and uid of the pods a claim was made for."""
    return {(claim.metadata.namespace, owner.uid) for owner in claim.metadata.owner_references if owner.kind == "Pod"}


def _classes_of(claim: ResourceClaim) -> set[str]:
    device_classes = set()
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            device_classes.add(request.exactly.device_class_name)
        device_classes.update(way.device_class_name for way in request.first_available)
    return device_classes


def _containers(pod: Pod) -> list[Container]:
    return [*pod.spec.init_containers, *pod.spec.containers]


def _keep_requests(spec: PodSpec, resources: tuple[str, ...]) -> PodSpec:
    """The containers of a pod with some of their requests only; the order of a container's requests is kept by name."""

    def pruned(container: Container) -> Container:
        # Names of requests count their place among all requests of the container (gpu:D-15).
        kept_requests = {
            name: value if name in resources else 0 for name, value in container.resources.requests.items()
        }
        return Container(
            name=container.name,
            resources=ResourceRequirements(requests=kept_requests),
            restart_policy=container.restart_policy,
        )

    return PodSpec(
        containers=tuple(pruned(container) for container in spec.containers),
        init_containers=tuple(pruned(container) for container in spec.init_containers),
    )
