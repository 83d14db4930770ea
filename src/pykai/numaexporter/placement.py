"""From what containers were given to the annotation that the scheduler reads.

Counted is what lies on exactly one NUMA node: a device that is near several, or near none, says nothing about zones.
Cores count only where the kubelet gave them exclusively.

Statements: gpu:X-2, X-3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from pykai.api.quantity import format_quantity
from pykai.numaexporter.podresources import PodResources

_CPU: Final = "cpu"
_NANO: Final = 10**9


def observed_placements(pods: Iterable[PodResources], node_of_core: Mapping[int, int]) -> dict[tuple[str, str], str]:
    """(namespace, name) -> annotation, of the pods that have something of a zone."""
    placements = {}
    for pod in pods:
        if zones := _zones(pod, node_of_core):
            placements[pod.namespace, pod.name] = _annotation(zones)
    return placements


def _zones(pod: PodResources, node_of_core: Mapping[int, int]) -> dict[str, dict[str, int]]:
    """Zone -> resource -> amount."""
    found = [(each.resource, each.amount, each.nodes[0]) for each in pod.amounts if len(set(each.nodes)) == 1]
    found += [(_CPU, 1, node_of_core[core]) for core in pod.cores if core in node_of_core]
    zones: dict[str, dict[str, int]] = {}
    for resource, amount, node in found:
        if amount > 0:
            amounts = zones.setdefault(f"node-{node}", {})
            amounts[resource] = amounts.get(resource, 0) + amount
    return zones


def _annotation(zones: Mapping[str, Mapping[str, int]]) -> str:
    """Sorted, so that equal placements are equal texts."""
    listed = [
        {"zone": zone, "amount": {name: format_quantity(amounts[name] * _NANO) for name in sorted(amounts)}}
        for zone, amounts in sorted(zones.items())
    ]
    return msgspec.json.encode(listed).decode()
