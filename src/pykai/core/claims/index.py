"""The objects of dynamic resource allocation, and what the claims of a pod amount to (gpu:11).

`apply` and `remove` take one object and answer with the pods whose asks it may have changed; `use` is told of pods that
come and go.  `resolve` gives the asks of a pod, a function of the current objects.  A claim that was made from a
template for one pod is anonymous: only what it asks for matters, so the pods of a job share one shape.  A claim the pod
names itself may be shared, and one that has its devices already says where the pod must go: these keep their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pykai.api import names
from pykai.api.core import Container, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from pykai.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from pykai.core.claims.asks import ClaimAsk, PodClaim, Refusal
from pykai.core.claims.counting import claim_gpus
from pykai.core.claims.extended import Backing, backed_resources
from pykai.core.claims.inventory import Inventory
from pykai.core.snapshot import NodeTable

ClaimObject = ResourceClaim | ResourceSlice | DeviceClass
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
        #: pod key -> claims it uses
        self._uses: dict[str, set[str]] = {}
        #: uid of a pod -> claims made for it
        self._owned: dict[str, set[str]] = {}
        #: pods that use claims or name resources a class may stand behind
        self._interested: set[str] = set()
        self._inventory: Inventory | None = None
        self._nodes: NodeTable | None = None

    def apply(self, item: ClaimObject) -> set[str]:
        """Add or replace an object; the pods whose asks may have changed."""
        if isinstance(item, ResourceSlice):
            self.slices[item.metadata.name] = item
            self._inventory = None
            return set()
        if isinstance(item, DeviceClass):
            self.classes[item.metadata.name] = item
            return self._classes_changed()
        key = f"{item.metadata.namespace}/{item.metadata.name}"
        self._forget_owner(key)
        self.claims[key] = item
        owners = [owner.uid for owner in item.metadata.owner_references if owner.kind == "Pod"]
        for uid in owners:
            self._owned.setdefault(uid, set()).add(key)
        return set(self._users.get(key, ())) | self._of_template()

    def remove(self, kind: str, namespace: str, name: str) -> set[str]:
        """Forget an object; the pods whose asks may have changed."""
        if kind == "ResourceSlice":
            if self.slices.pop(name, None) is not None:
                self._inventory = None
            return set()
        if kind == "DeviceClass":
            self.classes.pop(name, None)
            return self._classes_changed()
        key = f"{namespace}/{name}"
        self._forget_owner(key)
        self.claims.pop(key, None)
        return set(self._users.get(key, ()))

    def _forget_owner(self, key: str) -> None:
        before = self.claims.get(key)
        for owner in before.metadata.owner_references if before is not None else ():
            owned = self._owned.get(owner.uid)
            if owned is not None:
                owned.discard(key)
                if not owned:
                    del self._owned[owner.uid]

    def _of_template(self) -> set[str]:
        """Pods that wait for a claim nobody has named yet; the new one may be theirs."""
        return set(self._users.get("", ()))

    def _classes_changed(self) -> set[str]:
        self.backing = Backing.of(self.classes.values())
        return set(self._interested)

    def use(self, key: str, pod: Pod | None) -> None:
        """A pod came or changed, or is gone (None)."""
        for claim in self._uses.pop(key, ()):
            users = self._users[claim]
            users.discard(key)
            if not users:
                del self._users[claim]
        self._interested.discard(key)
        if pod is None:
            return
        claims = {found or "" for _, found in self._named(pod)}
        for claim in claims:
            self._users.setdefault(claim, set()).add(key)
        if claims:
            self._uses[key] = claims
        if claims or any("/" in name for container in _containers(pod) for name in container.resources.requests):
            self._interested.add(key)

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
                yield entry, self._made_for(pod, entry.name)

    def _made_for(self, pod: Pod, name: str) -> str | None:
        """The claim of a template whose name nobody has written into the pod's status yet."""
        for key in sorted(self._owned.get(pod.metadata.uid, ())):
            if self.claims[key].metadata.annotations.get(names.POD_CLAIM_NAME_ANNOTATION) == name:
                return key
        return None

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
        status = pod.status.extended_resource_claim_status
        synthetic = f"{pod.metadata.namespace}/{status.resource_claim_name}" if backed and status is not None else ""
        extended = _only(pod.spec, backed) if backed else None
        return Claimed(tuple(claims), tuple(keys), extended, backed, synthetic)

    def _pod_claim(self, pod: Pod, entry: PodResourceClaim, key: str | None, *, placed: bool) -> PodClaim:
        claim = self.claims.get(key) if key else None
        if claim is None or key is None:
            text = f"resource claim {key} does not exist" if key else "no resource claim name found for pod {pod}"
            return PodClaim(entry.name, problem=text if key else f"{text} and its claim {entry.name}")
        gpus = claim_gpus(claim).gpus
        shared = bool(entry.resource_claim_name)
        allocated = claim.status.allocation is not None
        problem = ""
        if claim.metadata.deletion_timestamp is not None and not placed:
            problem = f"resource claim {key} is being deleted"
        owners = [owner.uid for owner in claim.metadata.owner_references if owner.kind == "Pod"]
        if not shared and owners and pod.metadata.uid not in owners:
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
            queue=claim.metadata.labels.get(self._queue_label),
            problem=problem,
        )

    def inventory(self, nodes: NodeTable) -> Inventory:
        """All devices, made anew when a slice or a node has changed."""
        if self._inventory is None or self._nodes is not nodes:
            self._inventory = Inventory.of(self.slices.values(), nodes)
            self._nodes = nodes
        return self._inventory

    def same_nodes(self, nodes: NodeTable) -> None:
        """The nodes are the same ones under a new table."""
        self._nodes = nodes


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
        containers=[pruned(container) for container in spec.containers],
        init_containers=[pruned(container) for container in spec.init_containers],
    )
