"""The NUMA zones of a machine, as a kubelet's Topology Manager hands them out.

A machine has zones if a NodeResourceTopology of its name exists. Each container of a pod is aligned by the policy of
that object (all containers at once, with scope `pod`): its devices in any case, its memory and whole cores if the pod
is Guaranteed, as the static managers of a kubelet do. Under `restricted` and `single-numa-node` a pod that cannot be
aligned is refused. What a pod was given is its observed placement; on a real node the exporter writes it.

As in a kubelet, every resource proposes sets of zones and prefers those as small as any set that could ever hold the
amount. A placement is aligned if all resources prefer the same set. The scheduler finds zones in another way, so the
two can be held against each other.

Subtle: a topology that comes later than its pods says nothing about them; they hold nothing then.

Statements: sim:zones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import msgspec

from pykai.api import names
from pykai.api.numa import NodeResourceTopology
from pykai.api.quantity import format_quantity
from pykai.api.scheduling import NumaZonePlacement
from pykai.api.workloads import MachineContainer, MachinePod
from pykai.lab.machines.requests import ResourceRequests, resource_amount, resource_amounts

SINGLE, RESTRICTED, BEST_EFFORT = "single-numa-node", "restricted", "best-effort"
_STRICT = (SINGLE, RESTRICTED)
#: a kubelet supports eight; objects may have any number
_MAX_ZONES = 8
_MILLI, _UNIT = 10**6, 10**9

#: Zone numbers, ascending.
ZoneSet = tuple[int, ...]


class MachineZoneLedger:
    """The zones of one machine, and what pods hold of them."""

    def __init__(self) -> None:
        self._policy = ""
        self._pod_scope = False
        self._names: list[str] = []
        #: of each zone, without the share of the system
        self._allocatable: list[ResourceRequests] = []
        #: pod -> what it holds of each zone, by the name of the zone
        self._held: dict[str, dict[str, ResourceRequests]] = {}

    def update(self, topology: NodeResourceTopology | None) -> None:
        """The topology of the machine as it is now; pods keep what they hold."""
        zones = [each for each in topology.zones if each.type == names.NUMA_ZONE_TYPE_NODE] if topology else []
        zones = sorted(zones, key=lambda each: each.name)[:_MAX_ZONES]
        attributes = {each.name: each.value for each in topology.attributes} if topology else {}
        self._policy = attributes.get(names.NUMA_POLICY_ATTRIBUTE, "")
        self._pod_scope = attributes.get(names.NUMA_SCOPE_ATTRIBUTE) == "pod"
        self._names = [each.name for each in zones]
        self._allocatable = [
            {each.name: resource_amount(each.name, each.allocatable) for each in zone.resources} for zone in zones
        ]

    def admit(self, pod: MachinePod) -> bool:
        """Give zones to a pod; False if the policy refuses it."""
        if not self._names:
            return True
        serial, concurrent = self._needs(pod)
        left = self._left()
        taken: list[ResourceRequests] = [{} for _ in self._names]
        if any(self._choose(need, left) is None for need in serial):
            return False
        for need in concurrent:
            chosen = self._choose(need, left)
            if chosen is None:
                return False
            self._draw(need, chosen, left, taken)
        held = {name: amounts for name, amounts in zip(self._names, taken, strict=True) if amounts}
        if held:
            self._held[pod.metadata.uid] = held
        return True

    def record(self, pod: MachinePod) -> None:
        """What a pod was given before this process began."""
        text = pod.metadata.annotations.get(names.NUMA_OBSERVED_ANNOTATION, "")
        if not text:
            return
        try:
            said = msgspec.json.decode(text, type=list[NumaZonePlacement])
        except msgspec.DecodeError:
            return
        self._held[pod.metadata.uid] = {each.zone: resource_amounts(each.amount) for each in said}

    def release(self, pod: str) -> None:
        """The pod's containers have stopped."""
        self._held.pop(pod, None)

    def annotation(self, pod: str) -> str:
        """The observed placement of a pod, empty if it holds nothing of a zone."""
        held = self._held.get(pod, {})
        listed = [
            {"zone": zone, "amount": {name: _quantity(name, amounts[name]) for name in sorted(amounts)}}
            for zone, amounts in sorted(held.items())
        ]
        return msgspec.json.encode(listed).decode() if listed else ""

    def _needs(self, pod: MachinePod) -> tuple[list[ResourceRequests], list[ResourceRequests]]:
        """What is aligned together, first of containers that run alone, then of those that run side by side."""
        spec = pod.spec
        guaranteed = pod.status.qos_class == "Guaranteed"
        alone = [each for each in spec.init_containers if each.restart_policy != "Always"]
        beside = [each for each in spec.init_containers if each.restart_policy == "Always"]
        serial = [self._aligned(each, guaranteed) for each in alone]
        concurrent = [self._aligned(each, guaranteed) for each in [*beside, *spec.containers]]
        if not self._pod_scope:
            return serial, concurrent
        whole = _sum(concurrent)
        for need in serial:
            whole = {name: max(whole.get(name, 0), need.get(name, 0)) for name in whole | need}
        return [], [whole]

    def _aligned(self, container: MachineContainer, guaranteed: bool) -> ResourceRequests:
        """What of a container's request has zones."""
        asked = resource_amounts(container.resources.requests)
        known = set().union(*self._allocatable)
        return {
            name: amount
            for name, amount in asked.items()
            if amount > 0
            and name in known
            and (guaranteed or not (name in (names.CPU, names.MEMORY) or name.startswith(names.HUGEPAGES_PREFIX)))
            and (name != names.CPU or amount % 1000 == 0)
        }

    def _left(self) -> list[ResourceRequests]:
        left = [dict(amounts) for amounts in self._allocatable]
        for held in self._held.values():
            for number, name in enumerate(self._names):
                for resource, amount in held.get(name, {}).items():
                    left[number][resource] = left[number].get(resource, 0) - amount
        return left

    def _choose(self, need: ResourceRequests, left: Sequence[ResourceRequests]) -> ZoneSet | None:
        """The zones from which a need is served; None if the policy admits none."""
        everywhere: ZoneSet = tuple(range(len(self._names)))
        if not need or self._policy not in (*_STRICT, BEST_EFFORT):
            return everywhere
        proposals = [self._proposals(resource, amount, left) for resource, amount in need.items()]
        preferred = set.intersection(*(set(preferred) for preferred, _ in proposals))
        if preferred:
            return min(preferred, key=_smallest)
        if self._policy in _STRICT:
            return None
        merged: set[ZoneSet] = {everywhere}
        for _, possible in proposals:
            merged = {both for one in merged for other in possible if (both := tuple(z for z in one if z in other))}
        return min(merged, key=_smallest, default=everywhere)

    def _proposals(
        self, resource: str, amount: int, left: Sequence[ResourceRequests]
    ) -> tuple[list[ZoneSet], list[ZoneSet]]:
        """The sets of zones that a resource prefers, and all that have enough."""
        sets = [each for size in range(1, len(self._names) + 1) for each in combinations(range(len(self._names)), size)]
        fitting = (len(each) for each in sets if _amount(self._allocatable, each, resource) >= amount)
        width = min(fitting, default=0)
        possible = [each for each in sets if _amount(left, each, resource) >= amount]
        if self._policy == SINGLE:
            possible = [each for each in possible if len(each) == 1]
        return [each for each in possible if len(each) == width], possible

    def _draw(
        self,
        need: ResourceRequests,
        chosen: ZoneSet,
        left: Sequence[ResourceRequests],
        taken: Sequence[ResourceRequests],
    ) -> None:
        """Take a need from the chosen zones, then from the others."""
        order = [*chosen, *(zone for zone in range(len(self._names)) if zone not in chosen)]
        for resource, missing in need.items():
            for zone in order:
                drawn = max(0, min(missing, left[zone].get(resource, 0)))
                if drawn:
                    left[zone][resource] -= drawn
                    taken[zone][resource] = taken[zone].get(resource, 0) + drawn
                    missing -= drawn


def _smallest(zones: ZoneSet) -> tuple[int, ZoneSet]:
    return len(zones), zones


def _amount(zones: Sequence[ResourceRequests], chosen: ZoneSet, resource: str) -> int:
    return sum(zones[zone].get(resource, 0) for zone in chosen)


def _sum(needs: Iterable[Mapping[str, int]]) -> ResourceRequests:
    total: ResourceRequests = {}
    for need in needs:
        for name, amount in need.items():
            total[name] = total.get(name, 0) + amount
    return total


def _quantity(resource: str, amount: int) -> str:
    return format_quantity(amount * (_MILLI if resource == names.CPU else _UNIT))
