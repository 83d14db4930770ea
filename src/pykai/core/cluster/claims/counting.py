"""What a claim costs a queue in GPUs (gpu:D-3, D-4).

A device class is one of GPUs when its name says so; GPUs of a claim count as whole GPUs of its queue (gpu:D-7) and are
reported under the name of the first GPU class.

Where KAI Scheduler counts nothing, a prioritised list (`firstAvailable`) counts as its most expensive GPU alternative:
the count is needed before a node is chosen, and a queue must not get beyond its limit by the alternative it happens to
receive.  A request with administrative access takes no device and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pykai.api import names
from pykai.api.resource import DeviceRequest, DeviceSubRequest, ExactDeviceRequest, ResourceClaimSpec

#: Counts stop here, as 64-bit integers do.
MAX_COUNT: Final = (1 << 63) - 1


class GpuCount(NamedTuple):
    """GPUs of a claim."""

    gpus: int = 0
    #: the first GPU class named, "" when there is none
    device_class: str = ""


def names_gpu(name: str) -> bool:
    """Whether a driver or device class is one of GPUs: its name says so (gpu:D-3, D-6)."""
    return "gpu" in name.lower()


def is_synthetic(annotations: Mapping[str, str]) -> bool:
    """Whether a claim says that it stands for extended resources of a pod, whose GPUs count in the pod (gpu:D-4).

    Users can write that annotation, so it is read only on claims that no pod names as its own.
    """
    return annotations.get(names.EXTENDED_RESOURCE_CLAIM_ANNOTATION) == "true"


def claim_gpus(spec: ResourceClaimSpec) -> GpuCount:
    """GPUs the requests of a claim count for, all under the first GPU class."""
    total, first = 0, ""
    for request in spec.devices.requests:
        largest, device_class = max(_gpu_alternatives(request), key=lambda way: way[0], default=(0, ""))
        total = min(total + largest, MAX_COUNT)
        first = first or device_class
    return GpuCount(total, first)


def _gpu_alternatives(request: DeviceRequest) -> Iterable[tuple[int, str]]:
    exactly: list[ExactDeviceRequest | DeviceSubRequest] = [] if request.exactly is None else [request.exactly]
    for alternative in exactly + list(request.first_available):
        if names_gpu(alternative.device_class_name) and not (
            isinstance(alternative, ExactDeviceRequest) and alternative.admin_access
        ):
            yield _count(alternative), alternative.device_class_name


def _count(alternative: ExactDeviceRequest | DeviceSubRequest) -> int:
    if alternative.allocation_mode == "All":
        # How many that will be depends on the node; it is charged as one (gpu:D-4).
        return 1
    return max(alternative.count, 1) if alternative.allocation_mode in ("", "ExactCount") else 0
