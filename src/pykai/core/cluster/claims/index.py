"""The objects of dynamic resource allocation, and what the claims of a pod amount to (gpu:11).

`apply` and `remove` take one object and answer with the pods whose asks it may have changed; `use` is told of pods that
come and go.  `resolve` gives the asks of a pod, a function of the current objects.  A claim that was made from a
template for one pod is anonymous: only what it asks for matters, so the pods of a job share one shape.  A claim the pod
names itself may be shared, and one that has its devices already says where the pod must go: these keep their names.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple, TypeVar

from pykai.api import names
from pykai.api.core import Container, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from pykai.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from pykai.core.cluster.claims.counting import spec_gpus, synthetic
from pykai.core.cluster.claims.inventory import Inventory
from pykai.core.cluster.snapshot import NodeTable
from pykai.core.model.claimrequests import ClaimAsk, PodClaim, Refusal
from pykai.core.model.extendedresources import Backing, backed_resources

ClaimObject = ResourceClaim | ResourceSlice | DeviceClass
#: What the pod calls a claim that was made from its template.
_MADE_AS = names.POD_CLAIM_NAME_ANNOTATION
CLAIM_KINDS = ("ResourceClaim", "ResourceSlice", "DeviceClass")


class Claimed(NamedTuple):
    """What a pod asks of dynamic resource allocation."""

    claims: tuple[PodClaim, ...] = ()
    #: key of the claim behind each of `claims`, "" where there is none
    keys: tuple[str, ...] = ()
    #: its containers with those requests only that a device class stands behind, None when there are none
    extended: PodSpec | None = None
    #: names of these requests
    backed: tuple[str, ...] = ()
    #: key of the claim that serves them where the pod is, "" while there is none
    synthetic: str = ""


NOTHING_CLAIMED = Claimed()


class ClaimIndex:
    """Claims, slices and classes of a cluster."""

    def __init__(self, queue_label: str) -> None:
        self._queue_label = queue_label
        self.claims: dict[str, ResourceClaim] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.backing = Backing.of(())
        #: claim key -> pods that use it
        self._users: dict[str, set[str]] = {}
        #: pod key -> claims it uses, resources it names that a class may stand behind, its namespace and uid
        self._uses: dict[str, _Use] = {}
        #: resource -> pods that name it
        self._wanted_by: dict[str, set[str]] = {}
        #: namespace and uid -> the pod, of pods in `_uses`
        self._pods: dict[tuple[str, str], str] = {}
        #: namespace and uid of a pod -> claims made for it
        self._owned: dict[tuple[str, str], set[str]] = {}
        #: device class -> claims that name it
        self._of_class: dict[str, set[str]] = {}
        self._inventory: Inventory | None = None
        self._nodes: NodeTable | None = None

    # -- objects that come and go -----------------------------------------------------------------------------------

    def apply(self, item: ClaimObject) -> set[str]:
        """Add or replace an object; the pods whose asks may have changed."""
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
        key = f"{item.metadata.namespace}/{name}"
        if self.claims.get(key) == item:
            return set()
        touched = self._set_claim(key, None) if key in self.claims else set()
        return touched | self._set_claim(key, item)

    def remove(self, kind: str, namespace: str, name: str) -> set[str]:
        """Forget an object; the pods whose asks may have changed."""
        if kind == "ResourceSlice":
            if self.slices.pop(name, None) is not None:
                self._inventory = None
            return set()
        if kind == "DeviceClass":
            return self._class_changed(name) if self.classes.pop(name, None) is not None else set()
        key = f"{namespace}/{name}"
        return self._set_claim(key, None) if key in self.claims else set()

    def _set_claim(self, key: str, claim: ResourceClaim | None) -> set[str]:
        """Enter a claim, or take the one of this key out (None): its users, and the pods it was made for."""
        add = claim is not None
        item = claim if claim is not None else self.claims.pop(key)
        if claim is not None:
            self.claims[key] = claim
        touched = set(self._users.get(key, ()))
        for owner in _owners(item):
            _enter(self._owned, owner, key, add=add)
            if owner in self._pods:
                touched.add(self._pods[owner])
        for device_class in _classes_of(item):
            _enter(self._of_class, device_class, key, add=add)
        return touched

    def _class_changed(self, name: str) -> set[str]:
        before, self.backing = self.backing, Backing.of(self.classes.values())
        touched: set[str] = set()
        for key in self._of_class.get(name, ()):
            touched |= self._users.get(key, set())
        for resource, pods in self._wanted_by.items():
            if before.class_of(resource) != self.backing.class_of(resource):
                touched |= pods
        return touched

    # -- pods -------------------------------------------------------------------------------------------------------

    def use(self, key: str, pod: Pod | None) -> None:
        """A pod came or changed, or is gone (None)."""
        known = self._uses.pop(key, None)
        if known is not None:
            self._enter_pod(key, known, add=False)
        if pod is None:
            return
        names_of = {name for container in _containers(pod) for name in container.resources.requests if "/" in name}
        if not names_of and not pod.spec.resource_claims:
            return
        owner = (pod.metadata.namespace, pod.metadata.uid)
        self._uses[key] = use = _Use(frozenset(found for _, found in self._named(pod) if found), names_of, owner)
        self._enter_pod(key, use, add=True)

    def _enter_pod(self, key: str, use: _Use, *, add: bool) -> None:
        for claim in use.claims:
            _enter(self._users, claim, key, add=add)
        for resource in use.resources:
            _enter(self._wanted_by, resource, key, add=add)
        if add:
            self._pods[use.owner] = key
        elif self._pods.get(use.owner) == key:
            del self._pods[use.owner]

    def _named(self, pod: Pod) -> Iterator[tuple[PodResourceClaim, str | None]]:
        """The claims of a pod and their keys, None where no claim has been made yet (gpu:D-5)."""
        made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_name:
                yield entry, f"{pod.metadata.namespace}/{entry.resource_claim_name}"
            elif entry.name in made:
                name = made[entry.name]
                # Without a name there is none to wait for.
                if name is not None:
                    yield entry, f"{pod.metadata.namespace}/{name}"
            else:
                made_here = (key for key, notes in self._made_for(pod) if notes.get(_MADE_AS) == entry.name)
                yield entry, next(made_here, None)

    def _made_for(self, pod: Pod) -> Iterator[tuple[str, dict[str, str]]]:
        """Claims made for a pod whose names may not be in its status yet, with their annotations."""
        for key in sorted(self._owned.get((pod.metadata.namespace, pod.metadata.uid), ())):
            yield key, self.claims[key].metadata.annotations

    def resolve(self, pod: Pod, *, placed: bool) -> Claimed:
        """What a pod asks for; `placed` when it is on a node or on its way to one."""
        backed = backed_resources(pod.spec, self.backing) if self.classes else ()
        if not pod.spec.resource_claims and not backed:
            return NOTHING_CLAIMED
        claims: list[PodClaim] = []
        keys: list[str] = []
        for entry, key in self._named(pod):
            claims.append(self._pod_claim(pod, entry, key, placed=placed))
            keys.append(key or "")
            if key and keys.count(key) > 1:
                # Named twice, it costs once.
                claims[-1] = claims[-1]._replace(gpus=0)
        extended = _only(pod.spec, backed) if backed else None
        return Claimed(tuple(claims), tuple(keys), extended, backed, self._synthetic(pod) if backed else "")

    def _synthetic(self, pod: Pod) -> str:
        """The claim behind the extended resources of a pod, which its status names last (gpu:D-17); "" without one."""
        status = pod.status.extended_resource_claim_status
        if status is not None:
            return f"{pod.metadata.namespace}/{status.resource_claim_name}"
        return next((key for key, notes in self._made_for(pod) if synthetic(notes)), "")

    def _pod_claim(self, pod: Pod, entry: PodResourceClaim, key: str | None, *, placed: bool) -> PodClaim:
        claim = self.claims.get(key) if key else None
        if claim is None or key is None:
            text = f"resource claim {key} does not exist" if key else "no resource claim name found for pod {pod}"
            return PodClaim(entry.name, problem=text if key else f"{text} and its claim {entry.name}")
        # Named by the pod, it is the pod's own ask, even if it calls itself synthetic (gpu:D-4), as tenants may do.
        gpus = spec_gpus(claim.spec).gpus
        shared = bool(entry.resource_claim_name)
        allocated = claim.status.allocation is not None
        problem = ""
        if claim.metadata.deletion_timestamp is not None and not placed:
            problem = f"resource claim {key} is being deleted"
        owners = _owners(claim)
        if not shared and owners and (pod.metadata.namespace, pod.metadata.uid) not in owners:
            problem = f"resource claim {key} was not created for pod {{pod}}"
        ask = ClaimAsk.of(claim.spec, self.classes, key)
        if isinstance(ask, Refusal):
            problem = problem or ("" if allocated else ask.text)
        return PodClaim(
            name=entry.name,
            key=key if shared or (allocated and not placed) else "",
            ask=None if isinstance(ask, Refusal) else ask,
            gpus=gpus,
            queue_checked=shared and gpus > 0,
            queue=claim.metadata.labels.get(self._queue_label) if shared and gpus else None,
            problem=problem,
        )

    def inventory(self, nodes: NodeTable) -> Inventory:
        """All devices, made anew when a slice, or the name or a label of a node has changed."""
        if self._inventory is None or not self._same_nodes(nodes):
            self._inventory = Inventory.of(self.slices.values(), nodes)
        self._nodes = nodes
        return self._inventory

    def _same_nodes(self, nodes: NodeTable) -> bool:
        known = self._nodes
        return known is nodes or (
            known is not None
            and known.names == nodes.names
            and all(one.labels == other.labels for one, other in zip(known.facts, nodes.facts, strict=True))
        )


class _Use(NamedTuple):
    """What a pod has to do with claims."""

    claims: frozenset[str]
    resources: set[str]
    owner: tuple[str, str]


Key = TypeVar("Key", bound=Hashable)


def _enter(index: dict[Key, set[str]], key: Key, member: str, *, add: bool) -> None:
    """Add to or take from an index of sets; empty sets are not kept."""
    if add:
        index.setdefault(key, set()).add(member)
        return
    found = index[key]
    found.discard(member)
    if not found:
        del index[key]


def _owners(claim: ResourceClaim) -> set[tuple[str, str]]:
    """Namespace and uid of the pods a claim was made for."""
    return {(claim.metadata.namespace, owner.uid) for owner in claim.metadata.owner_references if owner.kind == "Pod"}


def _classes_of(claim: ResourceClaim) -> set[str]:
    found = set()
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            found.add(request.exactly.device_class_name)
        found.update(way.device_class_name for way in request.first_available)
    return found


def _containers(pod: Pod) -> list[Container]:
    return [*pod.spec.init_containers, *pod.spec.containers]


def _only(spec: PodSpec, resources: tuple[str, ...]) -> PodSpec:
    """The containers of a pod with some of their requests only; the order of a container's requests is kept by name."""

    def pruned(container: Container) -> Container:
        # Names of requests count their place among all requests of the container (gpu:D-15).
        kept = {name: value if name in resources else 0 for name, value in container.resources.requests.items()}
        return Container(
            name=container.name,
            resources=ResourceRequirements(requests=kept),
            restart_policy=container.restart_policy,
        )

    return PodSpec(
        containers=tuple(pruned(container) for container in spec.containers),
        init_containers=tuple(pruned(container) for container in spec.init_containers),
    )
