"""Compares the outcome of a case with what it expects.

A `CaseOutcome` is the cluster in the terms of `expect`. `differences` returns one line for each deviation; a field that
cannot be compared is a difference, too.

Names: a case names pods and groups without their namespace. If two namespaces hold the same name, the case has to say
`namespace/name`; an ambiguous name is a difference. Pods that neither `pods` nor `podGroups` names are free: they may
be anywhere, on shared GPUs too unless `podsByDevice` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pykai.api.keys import split_key
from pykai.dev.cases import Case, Raw

#: Statuses that recorded cases do not distinguish: a task placed by an action waits for its binding.
_STATUS_ALIASES = {"Allocated": "Binding", "Bound": "Running"}
#: Statuses in which a pod is on its shared GPUs.
_ON_DEVICE = frozenset(("Running", "Binding", "Pipelined", "Releasing", "StuckInReleasing"))
_TOLERANCE = 1e-6


def case_status(name: str) -> str:
    """The status in the terms of cases."""
    return _STATUS_ALIASES.get(name, name)


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """A pod as the comparison sees it."""

    #: namespace/name
    key: str
    #: namespace/name of its PodGroup, "" when it names none
    group: str
    status: str
    node: str = ""
    #: ids of the shared GPUs it is on; they are unique within a node only
    gpu_groups: tuple[str, ...] = ()
    #: GPUs its placement was accepted with, MIG slices not counted
    gpus_accepted: float = 0.0
    #: numbers of the NUMA zones it uses
    numa_zones: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Its name without the namespace."""
        return split_key(self.key)[1]


@dataclass
class CaseOutcome:
    """The outcome of a case in the terms of `expect`."""

    #: by namespace/name
    pods: dict[str, PodOutcome] = field(default_factory=dict)
    #: namespace/name of every PodGroup
    groups: set[str] = field(default_factory=set)
    idle_gpus: dict[str, float] = field(default_factory=dict)
    releasing_gpus: dict[str, float] = field(default_factory=dict)
    #: queue -> CPU milli, memory bytes, GPUs
    fair_shares: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    #: namespace/name of a PodGroup -> why it waits, in the detailed form
    messages: dict[str, str] = field(default_factory=dict)

    @cached_property
    def members(self) -> dict[str, list[PodOutcome]]:
        """Pods by the key of their group."""
        pods_by_group: dict[str, list[PodOutcome]] = {group: [] for group in self.groups}
        for pod in self.pods.values():
            pods_by_group.setdefault(pod.group, []).append(pod)
        return pods_by_group

    @cached_property
    def pod_keys(self) -> dict[str, list[str]]:
        """Name without namespace -> keys of pods with that name."""
        return _by_name(self.pods)

    @cached_property
    def group_keys(self) -> dict[str, list[str]]:
        """Name without namespace -> keys of groups with that name."""
        return _by_name(self.groups)


def _by_name(keys: Iterable[str]) -> dict[str, list[str]]:
    keys_by_name: dict[str, list[str]] = {}
    for key in keys:
        keys_by_name.setdefault(split_key(key)[1], []).append(key)
    return keys_by_name


def _resolve(name: str, keys: Collection[str], by_name: Mapping[str, list[str]]) -> list[str]:
    """Keys a name of the case stands for."""
    return [name] if name in keys else by_name.get(name, [])


def _ambiguous_name(what: str, name: str, keys: list[str]) -> str:
    if not keys:
        return f"{what} {name}: not there"
    return f"{what} {name}: there are {len(keys)} ({', '.join(sorted(keys))}); the case must say which"


def differences(case: Case, outcome: CaseOutcome, fields: Collection[str] | None = None) -> list[str]:
    """Deviations from the case's expectations, one line each; `fields` limits the comparison."""
    lines: list[str] = []
    for name, expected in case.expect.items():
        if fields is not None and name not in fields:
            continue
        compare = _COMPARISONS.get(name)
        if compare is None:
            lines.append(f"{name}: this runner cannot compare it")
        else:
            lines.extend(compare(case, outcome, expected))
    return lines


def has_expectations(case: Case, fields: Collection[str] | None) -> bool:
    """Whether the case expects something in one of these fields."""
    return fields is None or any(name in fields for name in case.expect)


def _differs(have: float, wanted: float) -> bool:
    return abs(have - wanted) > _TOLERANCE * max(1.0, abs(wanted))


def _pod_differences(what: str, pod: PodOutcome, expected: Raw) -> Iterator[str]:
    """One pod against its own line or that of its group."""
    for name, wanted in expected.items():
        if name == "status":
            if pod.status != case_status(wanted):
                yield f"{what}: status {pod.status}, expected {wanted}"
        elif name == "node":
            if wanted and pod.node != wanted:
                yield f"{what}: node {pod.node or '-'}, expected {wanted}"
        elif name == "numaZones":
            if sorted(pod.numa_zones) != sorted(wanted):
                yield f"{what}: NUMA zones {sorted(pod.numa_zones)}, expected {sorted(wanted)}"
        elif name not in ("gpusAccepted", "message"):
            yield f"{what}: this runner cannot compare {name}"


def _accepted_differences(what: str, pods: Iterable[PodOutcome], wanted: float) -> Iterator[str]:
    have = sum(pod.gpus_accepted for pod in pods)
    if _differs(have, wanted):
        yield f"{what}: {have:g} GPUs accepted, expected {wanted:g}"


def _compare_groups(case: Case, outcome: CaseOutcome, expected: Raw) -> Iterator[str]:
    singled_out = {
        key for name in case.expect.get("pods") or () for key in _resolve(name, outcome.pods, outcome.pod_keys)
    }
    for name, wanted in expected.items():
        group_keys = _resolve(name, outcome.groups, outcome.group_keys)
        if len(group_keys) != 1:
            yield _ambiguous_name("group", name, group_keys)
            continue
        pods = outcome.members[group_keys[0]]
        for pod in pods:
            if pod.key not in singled_out:
                yield from _pod_differences(f"group {name}: pod {pod.name}", pod, wanted)
        if "gpusAccepted" in wanted:
            yield from _accepted_differences(f"group {name}", pods, wanted["gpusAccepted"])
        if "message" in wanted:
            message = outcome.messages.get(group_keys[0], "")
            if message != wanted["message"]:
                yield f"group {name}: message {message!r}, expected {wanted['message']!r}"


def _compare_pods(case: Case, outcome: CaseOutcome, expected: Raw) -> Iterator[str]:
    for name, wanted in expected.items():
        pod_keys = _resolve(name, outcome.pods, outcome.pod_keys)
        if len(pod_keys) != 1:
            yield _ambiguous_name("pod", name, pod_keys)
            continue
        pod = outcome.pods[pod_keys[0]]
        yield from _pod_differences(f"pod {name}", pod, wanted)
        if "gpusAccepted" in wanted:
            yield from _accepted_differences(f"pod {name}", [pod], wanted["gpusAccepted"])
        if "message" in wanted:
            yield f"pod {name}: this runner cannot compare the message of one pod"


def _compare_accepted(case: Case, outcome: CaseOutcome, expected: Raw) -> Iterator[str]:
    for name, wanted in expected.items():
        groups = _resolve(name, outcome.groups, outcome.group_keys)
        pods = _resolve(name, outcome.pods, outcome.pod_keys)
        if len(groups) == 1:
            yield from _accepted_differences(f"group {name}", outcome.members[groups[0]], wanted)
        elif not groups and len(pods) == 1:
            yield from _accepted_differences(f"pod {name}", [outcome.pods[pods[0]]], wanted)
        else:
            yield _ambiguous_name("group or pod", name, groups or pods)


def _compare_nodes(case: Case, outcome: CaseOutcome, expected: Raw) -> Iterator[str]:
    columns = {"idleGPUs": outcome.idle_gpus, "releasingGPUs": outcome.releasing_gpus}
    for name, line in expected.items():
        if name not in outcome.idle_gpus:
            yield f"node {name}: not there"
            continue
        for figure, wanted in line.items():
            if figure not in columns:
                yield f"node {name}: this runner cannot compare {figure}"
            elif _differs(columns[figure][name], wanted):
                yield f"node {name}: {figure} {columns[figure][name]:g}, expected {wanted:g}"


def _compare_devices(case: Case, outcome: CaseOutcome, expected: list[list[str]]) -> Iterator[str]:
    """The pods of each shared GPU, whatever the GPUs are called."""
    wanted: list[list[str]] = []
    for names in expected:
        members: list[str] = []
        for name in names:
            pod_keys = _resolve(name, outcome.pods, outcome.pod_keys)
            if len(pod_keys) != 1:
                yield _ambiguous_name("pod", name, pod_keys)
                return
            members += pod_keys
        wanted.append(sorted(members))
    named = _named_pods(case, outcome).union(*wanted)
    devices: dict[tuple[str, str], set[str]] = {}
    for pod in outcome.pods.values():
        if pod.key in named and pod.status in _ON_DEVICE:
            for group in pod.gpu_groups:
                devices.setdefault((pod.node, group), set()).add(pod.key)
    have = sorted(sorted(pods) for pods in devices.values())
    if have != sorted(wanted):
        yield f"pods by device: {_format_devices(have)}, expected {_format_devices(sorted(wanted))}"


def _named_pods(case: Case, outcome: CaseOutcome) -> set[str]:
    """Pods that `pods` or `podGroups` name."""
    named: set[str] = set()
    for name in case.expect.get("pods") or ():
        named.update(_resolve(name, outcome.pods, outcome.pod_keys))
    for name in case.expect.get("podGroups") or ():
        for group in _resolve(name, outcome.groups, outcome.group_keys):
            named.update(pod.key for pod in outcome.members[group])
    return named


def _format_devices(devices: list[list[str]]) -> str:
    return " ".join("[" + ", ".join(split_key(key)[1] for key in pods) + "]" for pods in devices) or "none"


def _compare_shares(case: Case, outcome: CaseOutcome, expected: Raw) -> Iterator[str]:
    for queue, line in expected.items():
        shares = outcome.fair_shares.get(queue)
        if shares is None:
            yield f"queue {queue}: not there"
            continue
        have = dict(zip(("CPU", "Memory", "GPU"), shares, strict=True))
        for resource, wanted in line.items():
            if resource not in have:
                yield f"queue {queue}: this runner cannot compare the fair share of {resource}"
            elif _differs(have[resource], wanted):
                yield f"queue {queue}: fair share of {resource} {have[resource]:.10g}, expected {wanted:.10g}"


def _compare_running(case: Case, outcome: CaseOutcome, expected: Raw) -> Iterator[str]:
    for name, wanted in expected.items():
        group_keys = _resolve(name, outcome.groups, outcome.group_keys)
        if len(group_keys) != 1:
            yield _ambiguous_name("group", name, group_keys)
            continue
        have = sum(pod.status == "Running" for pod in outcome.members[group_keys[0]])
        if have != wanted:
            yield f"group {name}: {have} pods running, expected {wanted}"


_COMPARISONS: dict[str, Callable[[Case, CaseOutcome, Any], Iterator[str]]] = {
    "podGroups": _compare_groups,
    "pods": _compare_pods,
    "gpusAccepted": _compare_accepted,
    "nodes": _compare_nodes,
    "podsByDevice": _compare_devices,
    "fairShares": _compare_shares,
    "runningPods": _compare_running,
}

#: Fields of `expect`, to which a run can be narrowed.
FIELDS = tuple(_COMPARISONS)
