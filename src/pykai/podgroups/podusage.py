"""What one pod requests and holds, as its group counts it (workloads:PC-3 to PC-6).

Requests are read by the scheduler's own reader (`core.model.shapes`), so that group, queue and scheduler see the same:
init and sidecar containers, overhead, GPU shares.  A share of a GPU counts as a fraction of a GPU or as memory, as the
pod requests it; once the pod has its share, memory becomes the fraction it is of a GPU of its node.

Subtle: an unreadable part never hides the rest.  A pod with invalid requests counts as 0 but is a member of its group;
a pod whose node does not declare its GPU memory counts without its share.  Both are reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from pykai.api import names
from pykai.api.amounts import NanoAmounts
from pykai.api.core import Pod
from pykai.api.gpuvendors import SHAREABLE_GPU
from pykai.api.keys import object_key
from pykai.api.quantity import QuantityError, nano_value
from pykai.core.model.axes import amount
from pykai.core.model.shapes import GpuKind, RequestError, Shape, ShapeRegister

_NANO = 10**9
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A pod as its group counts it."""

    uid: str
    subgroup: str
    #: waits for a node or has one, and is not being deleted
    is_active: bool
    gated: bool
    scheduled: bool
    running: bool
    finished: bool
    requested: Mapping[str, int]
    allocated: Mapping[str, int]
    #: keys of its claims of devices
    claims: tuple[str, ...] = ()
    #: whether the claims are in use, too, and not only asked for
    claims_allocated: bool = False
    #: the node whose GPU memory its share is measured by, "" for none
    gpu_memory_node: str = ""
    #: what cannot be read, "" for nothing
    problem: str = ""
    #: names of the scheduling gates that hold it
    gates: tuple[str, ...] = ()


def read_member(pod: Pod, shapes: ShapeRegister, node_labels: Mapping[str, str] | None) -> GroupMember:
    """The pod as a member; `node_labels` are those of its node, None if the node is not known."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    phase = status.phase or "Pending"
    counts_requests = phase in ("Pending", "Running")
    counts_allocation = phase == "Running" or (phase == "Pending" and _is_scheduled(pod))
    terminating = meta.deletion_timestamp is not None
    requested: NanoAmounts = {}
    allocated: NanoAmounts = {}
    measured_by = ""
    problem = ""
    if counts_requests:
        try:
            shape = shapes.shape_of(pod)
        except RequestError as error:
            problem = str(error)
        else:
            requested = _plain_requests(shape) | _requested_share(shape)
            problem = _share_problem(pod, shape)
            if counts_allocation:
                allocated = dict(_plain_requests(shape))
                if shape.shared and meta.annotations.get(names.RECEIVED_TYPE_ANNOTATION) == names.RECEIVED_FRACTION:
                    if shape.gpu.kind is GpuKind.MEMORY:
                        measured_by = spec.node_name
                    share, problem_of_share = _received_share(shape, node_labels)
                    allocated |= share
                    problem = problem or problem_of_share
    claims = _claims(pod) if counts_requests else ()
    gates = tuple(gate.name for gate in spec.scheduling_gates) if counts_requests and not terminating else ()
    return GroupMember(
        uid=meta.uid,
        subgroup=meta.labels.get(names.SUBGROUP_LABEL) or names.DEFAULT_SUBGROUP,
        is_active=counts_requests and not terminating,
        gated=bool(gates),
        scheduled=counts_requests and not terminating and bool(spec.node_name),
        running=phase == "Running" and not terminating,
        finished=phase in ("Succeeded", "Failed"),
        requested=requested,
        allocated=allocated,
        claims=claims,
        claims_allocated=counts_allocation and bool(claims),
        gpu_memory_node=measured_by,
        problem=problem,
        gates=gates,
    )


def same_member(old: Pod, new: Pod) -> bool:
    """Whether two versions of a pod are surely the same member; False means unknown."""
    was, now = old.metadata, new.metadata
    return (
        old.status.phase == new.status.phase
        and old.spec.node_name == new.spec.node_name
        and was.deletion_timestamp == now.deletion_timestamp
        and was.uid == now.uid
        and was.labels == now.labels
        and was.annotations == now.annotations
        and old.status.resource_claim_statuses == new.status.resource_claim_statuses
        and _is_scheduled(old) == _is_scheduled(new)
        and old.spec == new.spec
    )


def gpu_memory_mib(labels: Mapping[str, str]) -> int:
    """Memory of one GPU of a node; ValueError where the labels do not say, or say two things (workloads:PC-5)."""
    declared_mib: list[int] = []
    nvidia = labels.get(names.GPU_MEMORY_NODE_LABEL)
    if nvidia is not None:
        if not _INTEGER.fullmatch(nvidia) or int(nvidia) <= 0:
            raise ValueError(f"label {names.GPU_MEMORY_NODE_LABEL}={nvidia!r} is not an amount of MiB")
        value = int(nvidia)
        declared_mib.append(value >> 20 if value >= names.GPU_MEMORY_BYTES_FROM else value)
    for key in labels:
        if key.startswith(names.AMD_GPU_MEMORY_NODE_LABEL_PREFIX):
            digits = re.search(r"[0-9].*", key[len(names.AMD_GPU_MEMORY_NODE_LABEL_PREFIX) :])
            try:
                declared_mib.append(nano_value(digits.group() if digits else "") // (_NANO * 10**6))
            except QuantityError:
                raise ValueError(f"label {key} does not give an amount of memory") from None
    if len(declared_mib) != 1 or declared_mib[0] <= 0:
        text = "says nothing of its GPU memory" if not declared_mib else "says several things of its GPU memory"
        raise ValueError(f"the node {text}; it needs one label {names.GPU_MEMORY_NODE_LABEL}")
    return declared_mib[0]


@lru_cache(maxsize=4096)
def _nano_per_unit(name: str) -> int:
    """Billionths in one step of the resource's axis."""
    return _NANO // amount(name, 1)


def _plain_requests(shape: Shape) -> NanoAmounts:
    """The requests of a shape, shares of GPUs left out."""
    return {name: value * _nano_per_unit(name) for name, value in shape.requests if name != names.PODS}


def _requested_share(shape: Shape) -> NanoAmounts:
    gpu_request = shape.gpu
    if gpu_request.kind is GpuKind.FRACTION:
        return {SHAREABLE_GPU: nano_value(gpu_request.portion) * gpu_request.devices}
    if gpu_request.kind is GpuKind.MEMORY:
        return {names.GPU_MEMORY_RESOURCE: gpu_request.memory_mib * gpu_request.devices * _NANO}
    return {}


def _received_share(shape: Shape, node_labels: Mapping[str, str] | None) -> tuple[NanoAmounts, str]:
    gpu_request = shape.gpu
    if gpu_request.kind is GpuKind.FRACTION:
        return _requested_share(shape), ""
    if node_labels is None:
        return {}, "its node is not known, so what its GPU memory is of a GPU is not known either"
    try:
        whole_mib = gpu_memory_mib(node_labels)
    except ValueError as error:
        return {}, str(error)
    return {SHAREABLE_GPU: nano_value(gpu_request.memory_mib / whole_mib) * gpu_request.devices}, ""


def _share_problem(pod: Pod, shape: Shape) -> str:
    if shape.shared:
        return ""
    for key in (names.GPU_FRACTION_ANNOTATION, names.GPU_MEMORY_ANNOTATION):
        text = pod.metadata.annotations.get(key)
        if text is not None:
            return f"metadata.annotations[{key}]: {text!r} is not a share of a GPU, so none is counted"
    return ""


def _is_scheduled(pod: Pod) -> bool:
    for condition in pod.status.conditions:
        if condition.type == names.CONDITION_POD_SCHEDULED:
            return condition.status == "True"
    return False


def _claims(pod: Pod) -> tuple[str, ...]:
    """Keys of the claims that exist for the pod; one that is still to be made from a template is left out."""
    if not pod.spec.resource_claims:
        return ()
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    found = (each.resource_claim_name or made.get(each.name) for each in pod.spec.resource_claims)
    return tuple(object_key(pod.metadata.namespace, name) for name in found if name)
