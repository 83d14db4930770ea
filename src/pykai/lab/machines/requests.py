"""The resource requests of a pod, as a kubelet adds them up.

CPU is in thousandths, everything else in units (bytes, devices). Containers add up; sidecars stay beside them; other
init containers run before and one at a time, so the largest of them counts; pod-level requests replace the sum;
overhead comes on top. Every pod requests one of `pods`.

Subtle: an extended resource that a claim serves is left out, since the claim accounts for it.

Statements: sim:asks.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykai.api import names
from pykai.api.quantity import QuantityError, RawQuantity, milli_value, unit_value
from pykai.api.workloads import MachinePod

#: Resource name to amount.
ResourceRequests = dict[str, int]


def resource_amount(resource: str, quantity: RawQuantity) -> int:
    """A quantity in these units; an unreadable one is 0, since the API server refuses it anyway."""
    try:
        return max(0, milli_value(quantity) if resource == names.CPU else unit_value(quantity))
    except QuantityError:
        return 0


def resource_amounts(resources: Mapping[str, RawQuantity]) -> ResourceRequests:
    """A resource list in these units."""
    return {name: resource_amount(name, quantity) for name, quantity in resources.items()}


def pod_requests(pod: MachinePod) -> ResourceRequests:
    """The requests of this pod."""
    spec = pod.spec
    total: ResourceRequests = {}
    for container in spec.containers:
        _add(total, container.resources.requests)
    if spec.init_containers:
        sidecars: ResourceRequests = {}
        peaks: ResourceRequests = {}
        for container in spec.init_containers:
            if container.restart_policy == "Always":
                _add(sidecars, container.resources.requests)
                continue
            own = dict(sidecars)
            _add(own, container.resources.requests)
            for name, value in own.items():
                peaks[name] = max(peaks.get(name, 0), value)
        for name, value in sidecars.items():
            total[name] = total.get(name, 0) + value
        for name, value in peaks.items():
            total[name] = max(total.get(name, 0), value)
    if spec.resources is not None:
        total.update(resource_amounts(spec.resources.requests))
    _add(total, spec.overhead)
    served = pod.status.extended_resource_claim_status
    if served is not None:
        for mapping in served.request_mappings:
            total.pop(mapping.resource_name, None)
    total[names.PODS] = 1
    return total


def _add(total: ResourceRequests, resources: Mapping[str, RawQuantity]) -> None:
    for name, quantity in resources.items():
        total[name] = total.get(name, 0) + resource_amount(name, quantity)
