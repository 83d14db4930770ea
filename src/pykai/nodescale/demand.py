"""Which pods need a new GPU that no autoscaler sees, and how many GPUs they need together (gpu:SA-5, SA-6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.core.model.shapes import GpuKind, GpuRequest, RequestError, ShapeRegister, hundredths, read_integer
from pykai.core.model.sharedgpus import portion_hundredths

#: No machine has more GPUs: a pod that asks for more would only raise the demand of others.
MAX_DEVICES: Final = 128
_FINISHED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class UnschedulableShare:
    """A pod that asks for shares of GPUs and fits nowhere."""

    namespace: str
    name: str
    uid: str
    created: str
    request: GpuRequest
    #: what the whole pod requests
    cpu_milli: int
    memory_bytes: int

    @property
    def key(self) -> str:
        """The key of the pod."""
        return object_key(self.namespace, self.name)


def is_unschedulable(pod: Pod) -> bool:
    """Whether a scheduler has said that the pod fits nowhere."""
    return any(
        condition.type == names.CONDITION_POD_SCHEDULED
        and condition.status == "False"
        and condition.reason == names.CONDITION_REASON_UNSCHEDULABLE
        for condition in pod.status.conditions
    )


def has_scheduling_condition(pod: Pod) -> bool:
    """Whether a scheduler has said anything about the pod."""
    return any(condition.type == names.CONDITION_POD_SCHEDULED for condition in pod.status.conditions)


def shares_gpus(pod: Pod, scheduler_name: str) -> bool:
    """Whether a pod of ours asks for shares of GPUs and has no node yet (gpu:SA-5)."""
    annotations = pod.metadata.annotations
    return (
        pod.spec.scheduler_name == scheduler_name
        and not pod.spec.node_name
        and pod.status.phase not in _FINISHED
        and pod.metadata.deletion_timestamp is None
        and bool(annotations.get(names.GPU_FRACTION_ANNOTATION) or annotations.get(names.GPU_MEMORY_ANNOTATION))
    )


def unschedulable_share(pod: Pod, scheduler_name: str, shapes: ShapeRegister) -> UnschedulableShare | None:
    """What a pod needs, None where it needs no GPU, waits for something else, or cannot be read (gpu:SA-5, SA-6)."""
    if not shares_gpus(pod, scheduler_name) or not is_unschedulable(pod):
        return None
    devices = pod.metadata.annotations.get(names.GPU_NUM_DEVICES_ANNOTATION)
    if devices is not None and read_integer(devices) is None:
        return None
    try:
        shape = shapes.shape_of(pod)
    except RequestError:
        return None
    if not shape.shared or not 1 <= shape.gpu.devices <= MAX_DEVICES:
        return None
    requests = dict(shape.requests)
    metadata = pod.metadata
    return UnschedulableShare(
        metadata.namespace,
        metadata.name,
        metadata.uid,
        metadata.creation_timestamp or "",
        shape.gpu,
        requests.get("cpu", 0),
        requests.get("memory", 0),
    )


def needed_gpus(shares: Iterable[UnschedulableShare], gpu_sizes_mib: Sequence[int], ratio: float) -> int:
    """GPUs that the shares would fill together (gpu:SA-6).

    A request for memory counts as its portion of the smallest GPU of the cluster that holds it, so that whichever
    kind of node comes is enough; `ratio` where no node tells.
    """
    return -(-sum(_hundredths(share.request, gpu_sizes_mib, ratio) for share in shares) // 100)


def _hundredths(request: GpuRequest, gpu_sizes_mib: Sequence[int], ratio: float) -> int:
    if request.kind is not GpuKind.MEMORY:
        return hundredths(request.portion) * request.devices
    large_enough = [size for size in gpu_sizes_mib if size >= request.memory_mib]
    if not large_enough:
        return hundredths(min(ratio, 1.0)) * request.devices
    size = min(large_enough)
    return portion_hundredths(request, size, size) * request.devices
