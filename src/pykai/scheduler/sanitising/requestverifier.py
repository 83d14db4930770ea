"""Tells BindRequests that we decided from those that a tenant wrote.

A tenant may write BindRequests in its namespace, and change ours there.  Nothing in such an object names its writer, so
its content is compared with our decisions:

- while we lead, a request counts if it matches our decision about its pod;
- when we take over, the existing ones are the last leader's, or were written while no scheduler led.  They are accepted
  if they could have been decided: for a pod of ours, under its name, with as many GPU groups as the pod requests
  devices, and for a bound pod exactly its node and groups.  The binder itself refuses what does not fit.

A request that does not count is not shown to the engine, so it can hold neither node nor device.  A standby or a shadow
decides nothing, and accepts requests as they are.  So does every scheduler with requests of another shard: those whose
node and whose PodGroup both belong there.

Subtle: a request is compared by its effect, not field by field: the server may write a value in another way, and
calling our own request forged would have it deleted and decided again without end.

Statements: neighbours:pools, trust:requests.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.keys import object_key
from pykai.api.resource import AllocationResult
from pykai.api.scheduling import BindRequest, BindRequestSpec, PodGroup
from pykai.api.sharing import gpu_groups
from pykai.core.model.shapes import ShapeRegister
from pykai.core.model.shard import Shard
from pykai.core.placing.nodeload import shape_or_empty
from pykai.kube.store import Store

_NOT_DECIDED = "the scheduler has not decided it"
_CHANGED = "it says something else than the scheduler decided"


class BindRequestVerifier:
    """The decisions about pods that are being bound, or whose request still exists."""

    def __init__(self, pods: Store[Pod], groups: Store[PodGroup], nodes: Store[Node], shard: Shard) -> None:
        self._pods = pods
        self._groups = groups
        self._nodes = nodes
        self._shard = shard
        self._scheduler = shard.scheduler_name
        self._verifying = False
        #: key of a pod -> the decision about it
        self._decided: dict[str, BindRequestSpec] = {}

    def start(self, existing: Iterable[BindRequest]) -> None:
        """From now on only our decisions count, and existing requests if they could have been decided."""
        self._verifying = True
        self._decided = {pod_key_of(request): request.spec for request in existing if self._could_be_ours(request)}

    def stop(self) -> None:
        """Another scheduler decides: requests are accepted as they are."""
        self._verifying = False
        self._decided = {}

    def record_decision(self, key: str, spec: BindRequestSpec) -> None:
        """Record that a pod gets a request, or none."""
        if self._verifying:
            self._decided[key] = spec

    def forget(self, key: str) -> None:
        """Forget a decision that was carried out, or will not be."""
        self._decided.pop(key, None)

    def objection(self, request: BindRequest) -> str:
        """Why a request does not count, "" if it does."""
        if not self._verifying or not self._is_of_this_shard(request):
            return ""
        if request.metadata.name != request.spec.pod_name:
            return "it does not have the name of its pod"
        key = pod_key_of(request)
        decided = self._decided.get(key)
        if decided is None:
            # Without its pod it has no effect; it is checked again when the pod appears.
            return _NOT_DECIDED if key in self._pods else ""
        return "" if same_decision(decided, request.spec) else _CHANGED

    def would_bind_own_pod(self, request: BindRequest) -> bool:
        """Whether a request that does not count would bind a waiting pod of ours."""
        pod = self._pods.get(pod_key_of(request))
        return pod is not None and pod.spec.scheduler_name == self._scheduler and not pod.spec.node_name

    def _is_of_this_shard(self, request: BindRequest) -> bool:
        """Whether it names a node of this shard, or is about a pod of a PodGroup of this shard.

        The labels of the request itself prove nothing: a tenant may write them.
        """
        node = self._nodes.get(request.spec.selected_node)
        if node is not None and self._shard.covers(node.metadata):
            return True
        pod = self._pods.get(pod_key_of(request))
        name = pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION) if pod is not None else None
        group = self._groups.get(object_key(request.metadata.namespace, name)) if name else None
        return self._shard.covers(group.metadata) if group is not None else node is None

    def _could_be_ours(self, request: BindRequest) -> bool:
        pod, spec = self._pods.get(pod_key_of(request)), request.spec
        if pod is None or pod.spec.scheduler_name != self._scheduler or request.metadata.name != spec.pod_name:
            return False
        if pod.metadata.uid not in {owner.uid for owner in request.metadata.owner_references if owner.kind == "Pod"}:
            return False
        groups = set(spec.selected_gpu_groups)
        if pod.spec.node_name:
            return pod.spec.node_name == spec.selected_node and groups == set(gpu_groups(pod.metadata.labels))
        shape = shape_or_empty(pod, ShapeRegister())
        return len(groups) == len(spec.selected_gpu_groups) == (shape.gpu.devices if shape.shared else 0)


def pod_key_of(request: BindRequest) -> str:
    """The key of the pod that a request is about."""
    return object_key(request.metadata.namespace, request.spec.pod_name)


def owner_uid(request: BindRequest) -> str:
    """The uid of the pod that a request is for."""
    return next((owner.uid for owner in request.metadata.owner_references if owner.kind == "Pod"), "")


def same_placement(one: BindRequest, other: BindRequest) -> bool:
    """Whether two requests bind the same pod to the same node."""
    return one.spec.selected_node == other.spec.selected_node and owner_uid(one) == owner_uid(other)


def same_decision(one: BindRequestSpec, other: BindRequestSpec) -> bool:
    """Whether two requests bind a pod to the same node with the same devices."""
    return one is other or _decision(one) == _decision(other)


def _decision(spec: BindRequestSpec) -> tuple[object, ...]:
    extended = spec.extended_resource_claim_allocation
    return (
        spec.pod_name,
        spec.selected_node,
        spec.received_resource_type,
        spec.received_gpu,
        spec.selected_gpu_groups,
        [(entry.name, _devices(entry.allocation)) for entry in spec.resource_claim_allocations],
        None if extended is None else _devices(extended.allocation),
    )


def _devices(allocation: AllocationResult | None) -> list[tuple[str, str, str, str, bool]]:
    if allocation is None:
        return []
    return [
        (each.request, each.driver, each.pool, each.device, bool(each.admin_access))
        for each in allocation.devices.results
    ]
