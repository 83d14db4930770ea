"""Extended resources backed by device classes: `example.com/gpu: 2` of a container as a device request (gpu:11.4).

A cluster may serve such a resource by a device plugin on one node (its allocatable names the resource) and by dynamic
resource allocation on another.  There a synthetic claim stands for the pod's containers: its requests, and which
container uses which of them, are built here, always the same for the same pod.

Containers that live as long as the pod (regular ones and sidecars) each need their own devices.  Ordinary init
containers run one after the other before those that come later, so they use the devices of later containers, and only
what these do not cover is requested for them: once, for the one that misses most.

Statements: operations:E-28.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pykai.api import names
from pykai.api.core import Container, PodSpec
from pykai.api.quantity import QuantityError, unit_value
from pykai.api.resource import DeviceClaim, DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaimSpec
from pykai.api.scheduling import ContainerExtendedResourceRequest
from pykai.api.timestamp import TimestampError, parse_timestamp

#: What texts call the claim before the binder has created it (gpu:D-16).
EXTENDED_CLAIM_NAME: Final = "<extended-resources>"


@dataclass(frozen=True, slots=True)
class ExtendedResourceMap:
    """Which device class serves which extended resource (gpu:D-13)."""

    explicit: Mapping[str, str]
    classes: frozenset[str]

    @classmethod
    def of(cls, classes: Iterable[DeviceClass]) -> ExtendedResourceMap:
        """The map of these classes; where several name one resource, the newest wins, then the smaller name."""
        ordered = sorted(classes, key=lambda item: (-_created_ns(item), item.metadata.name))
        explicit: dict[str, str] = {}
        for item in ordered:
            if item.spec.extended_resource_name:
                explicit.setdefault(item.spec.extended_resource_name, item.metadata.name)
        return cls(explicit, frozenset(item.metadata.name for item in ordered))

    def class_of(self, resource: str) -> str | None:
        """The class that backs a resource, None when there is none."""
        device_class = self.explicit.get(resource)
        if device_class is None and resource.startswith(names.DEVICE_CLASS_RESOURCE_PREFIX):
            implicit = resource.removeprefix(names.DEVICE_CLASS_RESOURCE_PREFIX)
            device_class = implicit if implicit in self.classes else None
        return device_class


class ExtendedRequests(NamedTuple):
    """The synthetic claim of a pod on a node."""

    requests: tuple[DeviceRequest, ...]
    mappings: tuple[ContainerExtendedResourceRequest, ...]

    def spec(self) -> ResourceClaimSpec:
        """The claim to allocate (gpu:D-16)."""
        return ResourceClaimSpec(devices=DeviceClaim(requests=list(self.requests)))


def dra_backed_resources(pod: PodSpec, resource_map: ExtendedResourceMap) -> tuple[str, ...]:
    """Resources of a pod that a device class backs, in order; none for most pods (gpu:D-14)."""
    return tuple(
        sorted(
            {
                resource
                for container in _containers(pod)
                for resource in container.resources.requests
                if _amount(container, resource) and resource_map.class_of(resource) is not None
            }
        )
    )


def device_requests(pod: PodSpec, resource_map: ExtendedResourceMap, resources: Collection[str]) -> ExtendedRequests:
    """Requests and mappings for resources that are served by claims (gpu:D-15)."""
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in sorted(resources):
        device_class = resource_map.class_of(resource)
        if device_class is not None:
            _append_requests(pod, resource, device_class, requests, mappings)
    return ExtendedRequests(tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings))


def _append_requests(
    pod: PodSpec,
    resource: str,
    device_class: str,
    requests: list[DeviceRequest],
    mappings: list[ContainerExtendedResourceRequest],
) -> None:
    """Append what one resource needs."""
    requesting = [
        (number, container, amount)
        for number, container in enumerate(_containers(pod))
        if (amount := _amount(container, resource)) > 0
    ]
    long_running = [item for item in requesting if _is_long_running(pod, item[0])]
    for number, container, amount in long_running:
        name = _name(number, container, resource)
        requests.append(_request(name, device_class, amount))
        mappings.append(_mapping(container, resource, name))
    missing: list[tuple[int, str]] = []
    init_mappings: list[tuple[Container, str | None]] = []
    for number, container, amount in requesting:
        if _is_long_running(pod, number):
            continue
        for later, other, covered in long_running:
            if later >= number and amount > 0:
                init_mappings.append((container, _name(later, other, resource)))
                amount -= covered
        if amount > 0:
            missing.append((amount, _name(number, container, resource)))
            init_mappings.append((container, None))
    # Init containers run one at a time: what suffices for the greediest suffices for each.
    most, shared = max(missing, key=lambda item: item[0], default=(0, ""))
    if most:
        requests.append(_request(shared, device_class, most))
    mappings += [_mapping(container, resource, shared if name is None else name) for container, name in init_mappings]


def _containers(pod: PodSpec) -> Iterator[Container]:
    yield from pod.init_containers
    yield from pod.containers


def _is_long_running(pod: PodSpec, number: int) -> bool:
    """Whether a container lives as long as the pod: a regular one, or a sidecar."""
    return number >= len(pod.init_containers) or pod.init_containers[number].restart_policy == "Always"


def _amount(container: Container, resource: str) -> int:
    try:
        return unit_value(container.resources.requests.get(resource, 0))
    except QuantityError:
        # The reader of the requests reports it, and the pod waits.
        return 0


def _name(number: int, container: Container, resource: str) -> str:
    return f"container-{number}-request-{sorted(container.resources.requests).index(resource)}"


def _request(name: str, device_class: str, count: int) -> DeviceRequest:
    exactly = ExactDeviceRequest(device_class_name=device_class, allocation_mode="ExactCount", count=count)
    return DeviceRequest(name=name, exactly=exactly)


def _mapping(container: Container, resource: str, request: str) -> ContainerExtendedResourceRequest:
    return ContainerExtendedResourceRequest(container_name=container.name, resource_name=resource, request_name=request)


def _created_ns(item: DeviceClass) -> int:
    """When the class was created; an unreadable time counts as the oldest."""
    try:
        return parse_timestamp(item.metadata.creation_timestamp or "")
    except TimestampError:
        return -(1 << 63)
