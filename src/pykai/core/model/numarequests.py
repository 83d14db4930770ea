"""What a pod needs of NUMA zones, as its shape carries it (gpu:N-5 to N-7).

The kubelet aligns a pod as a whole or container by container, depending on the scope of the node, so a request holds
both forms.  It has only what can be aligned: the cores of a container count when the pod is Guaranteed and requests
whole ones; memory and huge pages count for Guaranteed pods; devices count for all.  A pod that no node could align
has no request, which is most pods of a cluster, and equal requests are equal records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from pykai.api.core import Container, Pod, ResourceRequirements
from pykai.api.gpuvendors import is_gpu
from pykai.api.quantity import QuantityError, RawQuantity, nano_value
from pykai.core.model.axes import MAX_AMOUNT, amount, is_tracked

#: What one unit needs: (resource, amount in axis units), amounts above zero, sorted by name.
ZoneNeed = tuple[tuple[str, int], ...]

_MILLI_CORES = 1000
#: What Kubernetes derives the class of a pod from.
_QOS_RESOURCES = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class NumaRequest:
    """What a pod needs of zones."""

    #: of the QoS class Guaranteed, so its cores and memory are aligned too
    guaranteed: bool
    #: the pod as one unit
    pod: ZoneNeed
    #: containers that run side by side, in the order they are aligned
    concurrent: tuple[ZoneNeed, ...] = ()
    #: containers that run alone before the others
    serial: tuple[ZoneNeed, ...] = ()

    def units(self, pod_scope: bool) -> tuple[tuple[ZoneNeed, ...], tuple[ZoneNeed, ...]]:
        """Units that keep what they get, and units that only have to fit (gpu:N-5)."""
        return ((self.pod,), ()) if pod_scope else (self.concurrent, self.serial)


def is_guaranteed_only(name: str) -> bool:
    """Whether only Guaranteed pods have this aligned (gpu:N-7); everything else is a device."""
    return name in _QOS_RESOURCES or name.startswith("hugepages-")


def read_numa_request(pod: Pod, *, shared: bool) -> NumaRequest | None:
    """The request of a pod, None when no node would align it.  Whole GPUs of a pod that shares one do not count."""
    guaranteed = _is_guaranteed(pod)

    def need(container: Container) -> dict[str, int]:
        amounts: dict[str, int] = {}
        for name, raw in container.resources.requests.items():
            if not is_tracked(name) or (is_guaranteed_only(name) and not guaranteed) or (shared and is_gpu(name)):
                continue
            value = amount(name, raw)
            if value > 0 and (name != "cpu" or value % _MILLI_CORES == 0):
                amounts[name] = value
        return amounts

    regular = [need(container) for container in pod.spec.containers]
    sidecars: list[dict[str, int]] = []
    ordinary: list[dict[str, int]] = []
    peak: dict[str, int] = {}
    for container in pod.spec.init_containers:
        container_need = need(container)
        if container.restart_policy == "Always":
            sidecars.append(container_need)
        else:
            ordinary.append(container_need)
            # It runs beside the sidecars declared before it.
            peak = _maximum(peak, _sum((*sidecars, container_need)))
    pod_need = _maximum(peak, _sum((*sidecars, *regular)))
    if not guaranteed and not pod_need:
        return None
    return NumaRequest(
        guaranteed,
        _need(pod_need),
        tuple(_need(own) for own in (*sidecars, *regular)),
        tuple(_need(own) for own in ordinary),
    )


def _need(amounts: Mapping[str, int]) -> ZoneNeed:
    # The sum of any number of absurd containers still fits the columns.
    return tuple(sorted((name, min(value, MAX_AMOUNT)) for name, value in amounts.items()))


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for name, value in chain.from_iterable(part.items() for part in parts):
        total[name] = total.get(name, 0) + value
    return total


def _maximum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _is_guaranteed(pod: Pod) -> bool:
    """The QoS class as the API server wrote it, or else computed as Kubernetes does (gpu:N-6)."""
    if pod.status.qos_class:
        return pod.status.qos_class == "Guaranteed"
    own = pod.spec.resources
    parts = [own] if own is not None and (own.requests or own.limits) else []
    parts = parts or [each.resources for each in (*pod.spec.init_containers, *pod.spec.containers)]
    try:
        return _all_guaranteed(parts)
    except QuantityError:
        # An unreadable limit guarantees nothing.
        return False


def _all_guaranteed(parts: list[ResourceRequirements]) -> bool:
    """Every part has limits for cpu and memory, and in sum they are what is requested."""
    if not parts or any(len(_exact(part.limits)) < len(_QOS_RESOURCES) for part in parts):
        return False
    return _sum(_exact(part.requests) for part in parts) == _sum(_exact(part.limits) for part in parts)


def _exact(resources: Mapping[str, RawQuantity]) -> dict[str, int]:
    amounts = {name: nano_value(resources[name]) for name in _QOS_RESOURCES if name in resources}
    return {name: value for name, value in amounts.items() if value > 0}
