"""Admission of pods to a machine, as a kubelet does it.

Pods are admitted in the order of arrival if their requests still fit; otherwise they fail with the reason
`OutOf<resource>`, whichever scheduler placed them. This tests schedulers: a pod that a correct one placed is never
refused.

Stricter than a kubelet in one point: a resource that the machine does not have at all counts as zero, while a kubelet
lets such a pod in.

Statements: sim:admission.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pykai.api import names
from pykai.api.core import Node
from pykai.api.workloads import MachinePod
from pykai.lab.machines.devices import DeviceLedger
from pykai.lab.machines.requests import ResourceRequests, resource_amounts
from pykai.lab.machines.zones import MachineZoneLedger

#: A kubelet names the first of these that is short, then any other resource.
_CHECKED_FIRST = (names.PODS, names.CPU, names.MEMORY, names.EPHEMERAL_STORAGE)
#: Default for the number of pods on a machine.
DEFAULT_PODS = 110


def _check_order(item: tuple[str, int]) -> tuple[int, str]:
    resource = item[0]
    return (_CHECKED_FIRST.index(resource) if resource in _CHECKED_FIRST else len(_CHECKED_FIRST), resource)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a machine refused a pod."""

    reason: str
    message: str


class Machine:
    """One node: capacity, usage of its admitted pods, devices, NUMA zones."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.capacity: ResourceRequests = {}
        self.devices = DeviceLedger(name)
        self.zones = MachineZoneLedger()
        self._used: ResourceRequests = {}
        #: pod -> the requests it was admitted with
        self._admitted: dict[str, ResourceRequests] = {}

    def update(self, node: Node) -> None:
        """The node's allocatable resources; pods already admitted stay."""
        self.capacity = {names.PODS: DEFAULT_PODS, **resource_amounts(node.status.allocatable or node.status.capacity)}

    def is_admitted(self, pod: str) -> bool:
        """Whether the pod is admitted and not released."""
        return pod in self._admitted

    def pods(self) -> Iterable[str]:
        """The admitted pods."""
        return self._admitted.keys()

    def admit(self, pod: str, requests: ResourceRequests) -> Rejection | None:
        """Admit a pod, or return why it does not fit."""
        if pod in self._admitted:
            return None
        for resource, requested in sorted(requests.items(), key=_check_order):
            used, capacity = self._used.get(resource, 0), self.capacity.get(resource, 0)
            if requested > 0 and used + requested > capacity:
                return Rejection(
                    f"OutOf{resource}",
                    f"Pod was rejected: Node didn't have enough resource: {resource}, "
                    f"requested: {requested}, used: {used}, capacity: {capacity}",
                )
        self.admit_existing(pod, requests)
        return None

    def admit_existing(self, pod: str, requests: ResourceRequests) -> None:
        """Admit a pod that was admitted before, even if it no longer fits."""
        if pod in self._admitted:
            return
        self._admitted[pod] = requests
        for resource, requested in requests.items():
            self._used[resource] = self._used.get(resource, 0) + requested

    def release(self, pod: str) -> None:
        """The pod's containers have stopped."""
        for resource, asked in self._admitted.pop(pod, {}).items():
            self._used[resource] -= asked
        self.devices.release(pod)
        self.zones.release(pod)

    def align(self, pod: MachinePod) -> Rejection | None:
        """Give an admitted pod its zones, or refuse it."""
        if self.zones.admit(pod):
            return None
        self.release(pod.metadata.uid)
        return Rejection(
            "TopologyAffinityError", "Pod was rejected: Resources cannot be allocated with Topology locality"
        )

    def assign_devices(self, pod: str) -> tuple[str, ...]:
        """The devices of an admitted pod."""
        return self.devices.assign(pod, self._admitted.get(pod, {}), self.capacity)

    @property
    def used(self) -> Mapping[str, int]:
        """The sum of the admitted pods' requests."""
        return self._used
