"""Dynamic resource allocation: ResourceClaim, ResourceSlice, DeviceClass (resource.k8s.io).

The types have the shape of version v1. Version v1beta1 put the fields of a request directly on it and wrapped a
device's facts in `basic`; `upgrade_v1beta1` rewrites such a document before it is decoded. v1beta2 reads as v1.

`AllocationResult` also travels inside a BindRequest from the scheduler to the binder, so it holds everything that
must arrive in the claim's status, opaque driver parameters included.

Subtle: attribute and capacity names may be qualified (`gpu.nvidia.com/memory`) or not, in which case the driver's
name is their domain; they are left as written. An attribute carries exactly one of its four values.
"""

from typing import Any

from msgspec import field

from pykai.api.core import NodeSelector
from pykai.api.meta import Int64, ObjectMeta, Wire
from pykai.api.quantity import RawQuantity


class CelSelector(Wire):
    expression: str = ""


class DeviceSelector(Wire):
    """A CEL expression over one device."""

    cel: CelSelector | None = None


class DeviceToleration(Wire):
    """A device taint that a request tolerates."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class CapacityRequirements(Wire):
    """Shares of a device that several claims may use at once."""

    requests: dict[str, RawQuantity] = field(default_factory=dict)


class ExactDeviceRequest(Wire):
    """Devices of one class: `count` of them, or All."""

    device_class_name: str = ""
    selectors: list[DeviceSelector] = field(default_factory=list)
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool = False
    tolerations: list[DeviceToleration] = field(default_factory=list)
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(Wire):
    """One alternative of a prioritised list."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] = field(default_factory=list)
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: list[DeviceToleration] = field(default_factory=list)
    capacity: CapacityRequirements | None = None


class DeviceRequest(Wire):
    """A named request: either `exactly` or the first alternative that fits."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] = field(default_factory=list)


class DeviceConstraint(Wire):
    """All devices of the named requests (all requests if none is named) agree in an attribute, or differ in one."""

    requests: list[str] = field(default_factory=list)
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueConfiguration(Wire):
    """Parameters for a driver; passed on, never read."""

    driver: str = ""
    parameters: Any = None


class DeviceConfiguration(Wire):
    """Driver parameters of a claim (with the requests they are for) or of a class (without)."""

    requests: list[str] = field(default_factory=list)
    opaque: OpaqueConfiguration | None = None


class DeviceClaim(Wire):
    requests: list[DeviceRequest] = field(default_factory=list)
    constraints: list[DeviceConstraint] = field(default_factory=list)
    config: list[DeviceConfiguration] = field(default_factory=list)


class ResourceClaimSpec(Wire):
    devices: DeviceClaim = field(default_factory=DeviceClaim)


class DeviceRequestAllocationResult(Wire):
    """One device allocated to one request."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = field(default_factory=list)


class DeviceAllocationConfiguration(Wire):
    """Driver parameters that apply, and whether the class or the claim brought them."""

    source: str = ""
    requests: list[str] = field(default_factory=list)
    opaque: OpaqueConfiguration | None = None


class DeviceAllocationResult(Wire):
    results: list[DeviceRequestAllocationResult] = field(default_factory=list)
    config: list[DeviceAllocationConfiguration] = field(default_factory=list)


class AllocationResult(Wire):
    """The allocation of a claim; without a node selector it can be used from every node."""

    devices: DeviceAllocationResult = field(default_factory=DeviceAllocationResult)
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ConsumerReference(Wire):
    """A consumer of a claim; pods have resource `pods` and no API group."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Wire):
    allocation: AllocationResult | None = None
    reserved_for: list[ConsumerReference] = field(default_factory=list)


class ResourceClaim(Wire):
    """A request for devices, and its allocation."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = field(default_factory=ResourceClaimStatus)


class ResourcePool(Wire):
    """The pool a slice belongs to; only slices of the newest generation count."""

    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class DeviceAttribute(Wire):
    """Exactly one of four values."""

    int_value: Int64 | None = field(default=None, name="int")
    bool_value: bool | None = field(default=None, name="bool")
    string_value: str | None = field(default=None, name="string")
    version_value: str | None = field(default=None, name="version")


class DeviceCapacity(Wire):
    value: RawQuantity = 0


class DeviceTaint(Wire):
    key: str = ""
    value: str = ""
    effect: str = ""


class Counter(Wire):
    value: RawQuantity = 0


class CounterSet(Wire):
    """Named amounts that the partitions of a larger device share and together do not exceed."""

    name: str = ""
    counters: dict[str, Counter] = field(default_factory=dict)


class DeviceCounterConsumption(Wire):
    """A share of a counter set; its presence marks a partition of a larger device."""

    counter_set: str = ""
    counters: dict[str, Counter] = field(default_factory=dict)


class Device(Wire):
    """A device of a slice."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = field(default_factory=dict)
    capacity: dict[str, DeviceCapacity] = field(default_factory=dict)
    consumes_counters: list[DeviceCounterConsumption] = field(default_factory=list)
    taints: list[DeviceTaint] = field(default_factory=list)
    binding_conditions: list[str] = field(default_factory=list)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False


class ResourceSliceSpec(Wire):
    """Devices of one driver in one pool, reachable from one node, from selected nodes or from all."""

    driver: str = ""
    pool: ResourcePool = field(default_factory=ResourcePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: list[Device] = field(default_factory=list)
    shared_counters: list[CounterSet] = field(default_factory=list)


class ResourceSlice(Wire):
    """The devices that a driver offers."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ResourceSliceSpec = field(default_factory=ResourceSliceSpec)


class DeviceClassSpec(Wire):
    selectors: list[DeviceSelector] = field(default_factory=list)
    config: list[DeviceConfiguration] = field(default_factory=list)
    extended_resource_name: str | None = None


class DeviceClass(Wire):
    """A kind of device that requests name."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)


_EXACT_FIELDS = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")


def upgrade_v1beta1(document: dict[str, Any]) -> dict[str, Any]:
    """A claim or slice of version v1beta1 in the shape of v1; any other document is returned unchanged."""
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return document
    devices = spec.get("devices")
    if isinstance(devices, dict) and isinstance(requests := devices.get("requests"), list):
        upgraded = [_upgrade_request(request) if isinstance(request, dict) else request for request in requests]
        return {**document, "spec": {**spec, "devices": {**devices, "requests": upgraded}}}
    if isinstance(devices, list):
        upgraded = [_upgrade_device(device) if isinstance(device, dict) else device for device in devices]
        return {**document, "spec": {**spec, "devices": upgraded}}
    return document


def _upgrade_request(request: dict[str, Any]) -> dict[str, Any]:
    exactly = {name: request[name] for name in _EXACT_FIELDS if name in request}
    if not exactly:
        return request
    rest = {name: value for name, value in request.items() if name not in exactly}
    return {**rest, "exactly": exactly}


def _upgrade_device(device: dict[str, Any]) -> dict[str, Any]:
    basic = device.get("basic")
    if not isinstance(basic, dict):
        return device
    return {**{name: value for name, value in device.items() if name != "basic"}, **basic}
