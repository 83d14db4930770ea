"""Which of the places that are held for a resumed workload its pods take when they come back (suspend:resume).

A place belongs to a subgroup and was made for a certain demand.  A pod takes a place of its own demand if one is free,
else any of its subgroup; the engine then checks whether it fits there.  A pod behind the gate of its queue takes only a
place of its own demand: the gate is opened because the place is charged to the queue already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from pykai.api import names
from pykai.api.core import Pod

#: What a share of a GPU asks for.
_SHARES: Final = (
    names.GPU_FRACTION_ANNOTATION,
    names.GPU_MEMORY_ANNOTATION,
    names.GPU_NUM_DEVICES_ANNOTATION,
)


@dataclass(slots=True)
class ReturningPod:
    """A pod that has come back and has a place."""

    uid: str
    subgroup: str
    demand: bytes
    #: the placeholder that holds it
    place: str
    #: whether no gate holds the pod
    arrived: bool = False


class HeldPlaces:
    """The places of one workload."""

    def __init__(self, placeholders: Iterable[Pod] = ()) -> None:
        #: subgroup -> demand -> placeholders whose place is free
        self._free: dict[str, dict[bytes, list[str]]] = {}
        for each in placeholders:
            self._free.setdefault(subgroup_of(each), {}).setdefault(_demand_of(each), []).append(each.metadata.name)
        #: namespace/name -> pod that has a place
        self._pods: dict[str, ReturningPod] = {}
        #: subgroup -> how many of them no gate holds
        self.arrived: Counter[str] = Counter()

    def get(self, key: str) -> ReturningPod | None:
        """A pod that has a place."""
        return self._pods.get(key)

    def __iter__(self) -> Iterator[str]:
        """The pods that have a place."""
        return iter(self._pods)

    def take(self, key: str, pod: Pod, *, alike: bool) -> ReturningPod | None:
        """Give a pod a place, with `alike` one of its own demand or none."""
        subgroup, demand = subgroup_of(pod), _demand_of(pod)
        by_demand = self._free.get(subgroup, {})
        made_for = demand if demand in by_demand or alike else next(iter(by_demand), None)
        if made_for is None or made_for not in by_demand:
            return None
        free = by_demand[made_for]
        place = free.pop()
        if not free:
            del by_demand[made_for]
        taken = self._pods[key] = ReturningPod(pod.metadata.uid, subgroup, made_for, place)
        return taken

    def arrive(self, pod: ReturningPod) -> None:
        """No gate holds a pod any more."""
        if not pod.arrived:
            pod.arrived = True
            self.arrived[pod.subgroup] += 1

    def give_back(self, key: str) -> None:
        """Free the place of a pod that is gone."""
        pod = self._forget(key)
        if pod is not None:
            self._free.setdefault(pod.subgroup, {}).setdefault(pod.demand, []).append(pod.place)

    def pop_arrived(self) -> list[tuple[str, ReturningPod]]:
        """The pods that no gate holds, by key; they and their places are forgotten."""
        found = sorted((key, pod) for key, pod in self._pods.items() if pod.arrived)
        for key, _ in found:
            self._forget(key)
        return found

    def _forget(self, key: str) -> ReturningPod | None:
        pod = self._pods.pop(key, None)
        if pod is not None and pod.arrived:
            self.arrived[pod.subgroup] -= 1
        return pod


def subgroup_of(pod: Pod) -> str:
    """The subgroup that a pod is in."""
    return pod.metadata.labels.get(names.SUBGROUP_LABEL) or names.DEFAULT_SUBGROUP


def _demand_of(pod: Pod) -> bytes:
    """What pods that may take each other's place have in common."""
    spec = pod.spec
    containers = [(each.restart_policy, each.resources) for each in (*spec.init_containers, *spec.containers)]
    shares = [pod.metadata.annotations.get(each, "") for each in _SHARES]
    wanted = (spec.node_selector, containers, spec.resources, spec.overhead, spec.resource_claims, shares)
    return msgspec.json.encode(wanted, order="sorted")
