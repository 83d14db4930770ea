"""The NUMA zones of a node, read once when its NodeResourceTopology changes (gpu:N-1 to N-3).

The object comes from a daemon on the node.  What the kubelet does with a pod depends on the policy and scope of its
Topology Manager and on what each zone offers (allocatable); the daemon reports what is left (available) with a delay.
Everything but `available` is the *layout*: nodes of one model have equal layouts, which are the same object here, so
that work is done once for all of them.

An object with more zones or resources than any machine has is not used: all nodes share columns that are as wide as the
widest of them.

Amounts are in the units of `axes.py`, so a record, a request and a zone can be compared as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from pykai.api import names
from pykai.api.numa import NodeResourceTopology, Zone
from pykai.api.quantity import QuantityError, RawQuantity
from pykai.core.model.axes import amount, is_tracked
from pykai.core.model.problems import Problem, ProblemReporter

#: Amounts as [zone][resource].
ZoneGrid = tuple[tuple[int, ...], ...]

#: Zones of a node, and resources they name, that are read; a kubelet supports eight zones by default.
MAX_ZONES, MAX_ZONE_RESOURCES = 64, 64

_NUMBER = re.compile(r"[0-9]+$", re.ASCII)


class ZonePolicy(IntEnum):
    """What the kubelet's Topology Manager does with a pod it cannot align."""

    NONE = 0
    BEST_EFFORT = 1
    RESTRICTED = 2
    SINGLE = 3

    @property
    def rejects_unaligned(self) -> bool:
        """Whether it rejects such a pod (gpu:N-8)."""
        return self >= ZonePolicy.RESTRICTED


_POLICIES = {
    "best-effort": ZonePolicy.BEST_EFFORT,
    "restricted": ZonePolicy.RESTRICTED,
    "single-numa-node": ZonePolicy.SINGLE,
}
#: What older daemons write: policy, and whether the scope is the pod (gpu:N-2).
_LEGACY_POLICIES = {
    "SingleNUMANodePodLevel": (ZonePolicy.SINGLE, True),
    "SingleNUMANodeContainerLevel": (ZonePolicy.SINGLE, False),
    "RestrictedPodLevel": (ZonePolicy.RESTRICTED, True),
    "Restricted": (ZonePolicy.RESTRICTED, False),
    "RestrictedContainerLevel": (ZonePolicy.RESTRICTED, False),
    "BestEffortPodLevel": (ZonePolicy.BEST_EFFORT, True),
    "BestEffort": (ZonePolicy.BEST_EFFORT, False),
    "BestEffortContainerLevel": (ZonePolicy.BEST_EFFORT, False),
}


@dataclass(frozen=True, slots=True)
class ZoneLayout:
    """What is fixed about the zones of a node."""

    #: ids in order: the number of a zone is its place here
    zones: tuple[str, ...]
    policy: ZonePolicy
    #: aligned as a whole; otherwise container by container
    pod_scope: bool
    #: names that some zone reports, sorted
    resources: tuple[str, ...]
    allocatable: ZoneGrid


@dataclass(frozen=True, slots=True)
class NodeZones:
    """The zones of one node."""

    layout: ZoneLayout
    #: what the daemon last reported as unused
    available: ZoneGrid


@lru_cache(maxsize=4096)
def _interned(layout: ZoneLayout) -> ZoneLayout:
    """The one object for equal layouts."""
    return layout


def _zone_order(zone: Zone) -> tuple[int, int, str]:
    """By the number at the end of the name, those without one last (gpu:N-1)."""
    number = _NUMBER.search(zone.name)
    return (0, int(number.group()[-18:]), zone.name) if number else (1, 0, zone.name)


def _policy(topology: NodeResourceTopology) -> tuple[ZonePolicy, bool]:
    attributes = {attribute.name: attribute.value for attribute in topology.attributes}
    policy = attributes.get(names.NUMA_POLICY_ATTRIBUTE)
    if policy:
        return _POLICIES.get(policy, ZonePolicy.NONE), attributes.get(names.NUMA_SCOPE_ATTRIBUTE) == "pod"
    legacy = topology.topology_policies[0] if topology.topology_policies else ""
    return _LEGACY_POLICIES.get(legacy, (ZonePolicy.NONE, False))


def read_zones(topology: NodeResourceTopology, report: ProblemReporter) -> NodeZones | None:
    """The zones of the node of the same name, None when it has none."""
    subject = f"NodeResourceTopology/{topology.metadata.name}"

    def read_amount(path: str, name: str, raw: RawQuantity) -> int:
        try:
            return max(0, amount(name, raw))
        except QuantityError as error:
            report(Problem(subject, path, f"{error}; counted as 0"))
            return 0

    resources_by_zone: dict[str, dict[str, tuple[int, int]]] = {}
    for zone in sorted((zone for zone in topology.zones if zone.type == names.NUMA_ZONE_TYPE_NODE), key=_zone_order):
        if zone.name in resources_by_zone:
            report(Problem(subject, f"zones[{zone.name}]", "a second zone of this name; ignored"))
            continue
        resources_by_zone[zone.name] = {
            resource.name: (
                read_amount(f"zones[{zone.name}].{resource.name}.allocatable", resource.name, resource.allocatable),
                read_amount(f"zones[{zone.name}].{resource.name}.available", resource.name, resource.available),
            )
            for resource in zone.resources
            if is_tracked(resource.name)
        }
    if not resources_by_zone:
        return None
    policy, pod_scope = _policy(topology)
    resources = tuple(sorted({name for zone in resources_by_zone.values() for name in zone}))
    for what, number, most in (
        ("zones", len(resources_by_zone), MAX_ZONES),
        ("resources", len(resources), MAX_ZONE_RESOURCES),
    ):
        if number > most:
            text = f"{number} {what}, more than the {most} that are looked at; the node counts as one without zones"
            report(Problem(subject, "zones", text))
            return None
    nothing = (0, 0)

    def grid(side: int) -> ZoneGrid:
        return tuple(tuple(zone.get(name, nothing)[side] for name in resources) for zone in resources_by_zone.values())

    return NodeZones(_interned(ZoneLayout(tuple(resources_by_zone), policy, pod_scope, resources, grid(0))), grid(1))
