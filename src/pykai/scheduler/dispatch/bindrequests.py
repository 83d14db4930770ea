"""BindRequests as the scheduler writes them (cycle:OUT-1, gpu:B-1), and which pods need none.

A bind becomes a BindRequest for the binder, which prepares what the pod needs (shared GPUs, claims, volumes) and then
binds it.  A pod that needs no preparation can be bound directly; `needs_binder` decides.

`assumed_request` is the same placement as the struct that the engine's tables read: it represents a bind that was
decided and that the watch has not shown yet, whichever way the bind goes.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.meta import ObjectMeta, OwnerReference
from pykai.api.scheduling import (
    BindRequest,
    BindRequestSpec,
    NumaZonePlacement,
    ReceivedGpu,
    ResourceClaimAllocation,
)
from pykai.core.model.shard import Shard
from pykai.core.report.decisions import Bind

_LONGEST_LABEL = 63
_HASH_DIGITS = 8


def needs_binder(bind: Bind, pod: Pod) -> bool:
    """Whether something has to be prepared before the pod can be bound."""
    if bind.received_type != names.RECEIVED_REGULAR or bind.gpu_groups or bind.annotations:
        return True
    if bind.claims or bind.extended_claim is not None or bind.numa_zones or pod.spec.resource_claims:
        return True
    return any(
        volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in pod.spec.volumes
    )


def request_spec(bind: Bind) -> BindRequestSpec:
    """The spec of the BindRequest; the number of retries is left to the binder."""
    return BindRequestSpec(
        pod_name=bind.pod,
        selected_node=bind.node,
        received_resource_type=bind.received_type,
        received_gpu=ReceivedGpu(count=bind.gpu_count, portion=bind.gpu_portion),
        selected_gpu_groups=list(bind.gpu_groups),
        resource_claim_allocations=[
            ResourceClaimAllocation(name=name, allocation=allocation) for name, allocation in bind.claims
        ],
        extended_resource_claim_allocation=bind.extended_claim,
        predicted_numa_zones=[NumaZonePlacement(zone=zone, amount=dict(amounts)) for zone, amounts in bind.numa_zones],
    )


def assumed_request(namespace: str, uid: str, spec: BindRequestSpec) -> BindRequest:
    """The placement as the tables read it."""
    owner = OwnerReference(api_version="v1", kind="Pod", name=spec.pod_name, uid=uid)
    return BindRequest(
        metadata=ObjectMeta(name=spec.pod_name, namespace=namespace, owner_references=(owner,)),
        spec=spec,
    )


def request_object(
    namespace: str, uid: str, spec: BindRequestSpec, annotations: dict[str, str], shard: Shard
) -> dict[str, Any]:
    """The BindRequest to create (gpu:B-1; operations:O-34)."""
    labels = {names.SELECTED_NODE_LABEL: label_value(spec.selected_node)}
    if shard.node_pool_key and shard.node_pool:
        labels[shard.node_pool_key] = shard.node_pool
    metadata: dict[str, Any] = {
        "name": spec.pod_name,
        "namespace": namespace,
        "labels": labels,
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": spec.pod_name, "uid": uid}],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": names.BIND_REQUEST_API_VERSION,
        "kind": "BindRequest",
        "metadata": metadata,
        "spec": msgspec.to_builtins(spec),
    }


def label_value(text: str) -> str:
    """The text, cut and marked with its hash where it is too long for the value of a label (gpu:B-1, Do better)."""
    if len(text) <= _LONGEST_LABEL:
        return text
    mark = hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{text[: _LONGEST_LABEL - _HASH_DIGITS - 1].rstrip('-._')}-{mark}"
