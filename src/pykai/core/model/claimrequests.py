"""What a claim requests, as a value: equal specs are equal, so pods made from one template share all work.

`ClaimRequest.of` resolves device classes right away: an alternative carries the selectors of its class followed by its
own (gpu:D-20), and the configuration of its class.  What cannot be granted on any node (an unknown class, an unknown
mode, too many devices, shares of a device) is a `ClaimRefusal` instead of a request.

A request is a list of alternatives, best first; `exactly` is a list of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from pykai.api.core import Toleration
from pykai.api.resource import (
    DeviceClass,
    DeviceConfiguration,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaimSpec,
)

#: Devices one claim may be given (gpu:D-21); the API server takes no longer list.
MAX_RESULTS: Final = 32
#: A namespace with this label set to "true" may have administrative access to devices in use.
ADMIN_ACCESS_LABEL: Final = "resource.kubernetes.io/admin-access"


class DraFeatures(NamedTuple):
    """What goes beyond KAI Scheduler and may be switched off (gpu:D-23)."""

    #: a claim may have a prioritised list (`firstAvailable`); otherwise it is refused
    prioritized_lists: bool = True
    #: taints of devices keep requests away; otherwise they are ignored
    device_taints: bool = True


#: Everything switched on.
ALL_FEATURES: Final = DraFeatures()


class PodClaim(NamedTuple):
    """A claim as a request of a pod; equal pods have equal ones."""

    #: what the pod calls it
    name: str
    #: namespace/name where it matters which claim it is: the pod names it, or it has its devices already; else ""
    key: str = ""
    #: None when it cannot be read
    request: ClaimRequest | None = None
    #: GPUs it costs a queue
    gpus: int = 0
    #: a shared claim of GPUs must name its queue (gpu:D-9); `queue` is the one it names
    queue_checked: bool = False
    queue: str | None = None
    #: why it cannot be used, "" when it can; may contain `{pod}`
    problem: str = ""


class ClaimRefusal(NamedTuple):
    """Why claims get no devices; `text` is empty when there are not enough devices (gpu:D-10)."""

    text: str = ""

    def text_on(self, node: str) -> str:
        """The sentence for one node."""
        if not self.text:
            return f"cannot allocate all DRA claims on node {node}"
        return f"cannot allocate DRA claims on node {node}: {self.text}"


class DriverConfig(NamedTuple):
    """Parameters for a driver, as text that compares."""

    driver: str
    parameters: bytes
    #: names of requests they are for, none means all
    requests: tuple[str, ...] = ()


class DeviceTaintToleration(NamedTuple):
    """A toleration of device taints."""

    key: str
    operator: str
    value: str
    effect: str
    seconds: int | None

    def as_toleration(self) -> Toleration:
        """The same in the shape node taints are matched with."""
        return Toleration(key=self.key, operator=self.operator, value=self.value, effect=self.effect)


class Alternative(NamedTuple):
    """One way to satisfy a request."""

    #: as results call it: `request`, or `request/alternative`
    name: str
    device_class: str
    #: CEL expressions, those of the class first
    selectors: tuple[str, ...]
    #: how many devices; 0 = all that are selected
    device_count: int
    #: administrative access: use devices that others hold, take none
    admin_access: bool
    tolerations: tuple[DeviceTaintToleration, ...]
    class_config: tuple[DriverConfig, ...]


class RequestAlternatives(NamedTuple):
    name: str
    #: best first
    alternatives: tuple[Alternative, ...]


class AttributeConstraint(NamedTuple):
    """Devices agree in an attribute, or differ in it."""

    #: names of requests (with all their alternatives) or of single alternatives, none means all
    requests: tuple[str, ...]
    attribute: str
    distinct: bool

    def covers(self, name: str) -> bool:
        """Whether devices of the request or alternative of this name are concerned."""
        return lists_request(self.requests, name)


def lists_request(requests: tuple[str, ...], name: str) -> bool:
    """Whether a list of requests names this request or alternative; an empty list means all."""
    return not requests or name in requests or name.partition("/")[0] in requests


class ClaimRequest(NamedTuple):
    """A claim to the allocator."""

    requests: tuple[RequestAlternatives, ...]
    constraints: tuple[AttributeConstraint, ...] = ()
    config: tuple[DriverConfig, ...] = ()

    @classmethod
    def of(
        cls,
        spec: ResourceClaimSpec,
        classes: Mapping[str, DeviceClass],
        claim: str = "",
        features: DraFeatures = ALL_FEATURES,
    ) -> ClaimRequest | ClaimRefusal:
        """The request of a spec, with classes resolved; `claim` is `namespace/name` for texts."""
        requests = []
        for request in spec.devices.requests:
            if request.first_available and not features.prioritized_lists:
                return ClaimRefusal(f"claim {claim} request {request.name}: prioritised lists are switched off")
            alternatives = []
            for name, wire_request in _alternatives(request):
                resolved = _alternative(name, wire_request, classes, claim)
                if isinstance(resolved, ClaimRefusal):
                    return resolved
                alternatives.append(resolved)
            if not alternatives:
                return ClaimRefusal(f"claim {claim} request {request.name} names no devices")
            requests.append(RequestAlternatives(request.name, tuple(alternatives)))
        if sum(min(way.device_count or 1 for way in request.alternatives) for request in requests) > MAX_RESULTS:
            return ClaimRefusal(f"claim {claim} requests more than {MAX_RESULTS} devices")
        constraints = []
        for constraint in spec.devices.constraints:
            attribute = constraint.match_attribute or constraint.distinct_attribute
            if not attribute:
                return ClaimRefusal(f"claim {claim} has a constraint of a kind that is not supported")
            constraints.append(
                AttributeConstraint(tuple(constraint.requests), attribute, not constraint.match_attribute)
            )
        return cls(tuple(requests), tuple(constraints), _config(spec.devices.config))

    @property
    def wants_admin_access(self) -> bool:
        """Whether some request wants administrative access; see `allows_admin_access`."""
        return any(way.admin_access for way in self.alternatives())

    def alternatives(self) -> Iterator[Alternative]:
        """All alternatives of all requests."""
        for request in self.requests:
            yield from request.alternatives


def allows_admin_access(namespace_labels: Mapping[str, str]) -> bool:
    """Whether claims of a namespace with these labels may have administrative access."""
    return namespace_labels.get(ADMIN_ACCESS_LABEL) == "true"


def _alternatives(request: DeviceRequest) -> Iterator[tuple[str, ExactDeviceRequest | DeviceSubRequest]]:
    if request.exactly is not None:
        yield request.name, request.exactly
    for sub in request.first_available:
        yield f"{request.name}/{sub.name}", sub


def _alternative(
    name: str, wire_request: ExactDeviceRequest | DeviceSubRequest, classes: Mapping[str, DeviceClass], claim: str
) -> Alternative | ClaimRefusal:
    device_class = classes.get(wire_request.device_class_name)
    if device_class is None:
        return ClaimRefusal(
            f"device class {wire_request.device_class_name} does not exist for claim {claim} request {name}"
        )
    if wire_request.allocation_mode not in ("", "ExactCount", "All"):
        return ClaimRefusal(
            f"claim {claim} request {name}: allocation mode {wire_request.allocation_mode} is not supported"
        )
    if wire_request.capacity is not None and wire_request.capacity.requests:
        return ClaimRefusal(f"claim {claim} request {name}: shares of a device (capacity) are not supported")
    selectors: list[str] = []
    for selector in [*device_class.spec.selectors, *wire_request.selectors]:
        if selector.cel is None:
            return ClaimRefusal(f"claim {claim} request {name} has a selector of a kind that is not supported")
        selectors.append(selector.cel.expression)
    return Alternative(
        name=name,
        device_class=wire_request.device_class_name,
        selectors=tuple(selectors),
        device_count=0 if wire_request.allocation_mode == "All" else max(wire_request.count, 1),
        admin_access=isinstance(wire_request, ExactDeviceRequest) and wire_request.admin_access,
        tolerations=tuple(
            DeviceTaintToleration(item.key, item.operator, item.value, item.effect, item.toleration_seconds)
            for item in wire_request.tolerations
        ),
        class_config=_config(device_class.spec.config),
    )


def _config(configs: Iterable[DeviceConfiguration]) -> tuple[DriverConfig, ...]:
    return tuple(
        DriverConfig(config.opaque.driver, _parameters(config.opaque.parameters), tuple(config.requests))
        for config in configs
        if config.opaque is not None
    )


def _parameters(parameters: object) -> bytes:
    try:
        return msgspec.json.encode(parameters)
    except RecursionError:
        # Nested too deeply: the configuration is dropped and the claim goes on.
        return b"null"
