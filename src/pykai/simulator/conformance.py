"""Runs recorded cases through the engine and compares what comes out.

A case is one JSON object a line: cluster objects, what to run (`actions` once, or `cycles` with a simulated cluster in
between) and what to expect.  The format is described in the README of the case folder.  Nothing here knows a case by
name; a field of `expect` that the engine cannot answer is a failure, not a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pykai.api import names
from pykai.api.decode import decode_object
from pykai.api.timestamp import parse_timestamp
from pykai.core.cycle import open_session, run
from pykai.core.decisions import Unscheduled
from pykai.core.explain import detailed_group_text
from pykai.core.fairshare.tree import CPU, GPU, MEMORY
from pykai.core.policy import Policy
from pykai.core.session import Session
from pykai.core.shard import Shard
from pykai.core.status import STATUS_NAMES, Status
from pykai.core.tables import Tables
from pykai.scheduler.configuration import Configuration, default_configuration, read_configuration

_WIRE_NAMES = {status: name for name, status in STATUS_NAMES.items()}
#: Statuses the recorded cases do not tell apart: a task placed by an action waits for its binding.
_SAME = {"Allocated": "Binding", "Bound": "Running"}

#: Fields of `expect` a run can be narrowed to.
FIELDS = ("podGroups", "pods", "nodes", "podsByDevice", "fairShares", "runningPods", "gpusAccepted")


@dataclass(slots=True)
class Case:
    """One recorded case."""

    id: str
    now_ns: int
    objects: list[dict[str, Any]]
    expect: dict[str, Any]
    actions: list[str] | None
    cycles: dict[str, Any] | None
    pod_states: dict[str, str]
    environment: dict[str, Any]
    settings: dict[str, Any]
    scheduler_conf: dict[str, Any] | None

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Case:
        """Read a case."""
        return cls(
            id=raw["id"],
            now_ns=parse_timestamp(raw["now"]),
            objects=raw["objects"],
            expect=raw["expect"],
            actions=raw.get("actions"),
            cycles=raw.get("cycles"),
            pod_states=raw.get("podStates") or {},
            environment=raw.get("environment") or {},
            settings=raw.get("settings") or {},
            scheduler_conf=raw.get("schedulerConf"),
        )


def read_cases(path: Path) -> Iterator[Case]:
    """The cases of one file."""
    with path.open("rb") as lines:
        for line in lines:
            if line.strip():
                yield Case.of(msgspec.json.decode(line))


@dataclass(slots=True)
class PodView:
    """A pod as the comparison sees it."""

    key: str
    name: str
    group: str
    status: str
    node: str
    gpu_groups: tuple[str, ...]
    gpus_accepted: float


@dataclass(slots=True)
class Outcome:
    """What a case ended in, in the words of `expect`."""

    pods: dict[str, PodView] = field(default_factory=dict)
    idle_gpus: dict[str, float] = field(default_factory=dict)
    releasing_gpus: dict[str, float] = field(default_factory=dict)
    fair_shares: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)


class CaseRun:
    """A case under way: its objects, its policy, and the tables."""

    def __init__(self, case: Case, *, validate: bool = False, skip_seen: bool = True) -> None:
        self.case = case
        self.now_ns = case.now_ns
        configuration = self._configuration(case)
        self.policy = Policy(
            actions=tuple(case.actions) if case.actions is not None else configuration.policy.actions,
            plugins=tuple(
                named
                for named in configuration.policy.plugins
                if not (named.name == "predicates" and case.environment.get("predicatesPlugin") == "off")
            ),
            queue_depth=configuration.policy.queue_depth,
            validate=validate,
            skip_seen=skip_seen,
        )
        self.tables = Tables(Shard())
        self.pods: dict[str, dict[str, Any]] = {}
        unsynced = set(case.environment.get("gpuMemoryNotSynced") or ())
        for raw in case.objects:
            if raw["kind"] == "Node" and raw["metadata"]["name"] in unsynced:
                labels = {k: v for k, v in raw["metadata"]["labels"].items() if k != names.GPU_MEMORY_NODE_LABEL}
                raw = {**raw, "metadata": {**raw["metadata"], "labels": labels}}
            if raw["kind"] == "Pod":
                self.pods[_key(raw)] = raw
            self.tables.apply(decode_object(raw))
        for name, state in case.pod_states.items():
            for key in [key for key in self.pods if key.partition("/")[2] == name]:
                self.tables.assume(key, STATUS_NAMES[state])

    @staticmethod
    def _configuration(case: Case) -> Configuration:
        if case.scheduler_conf is None:
            return default_configuration()
        return read_configuration(case.scheduler_conf)

    def cycle(self) -> Session:
        """One cycle on the cluster as it is."""
        session = open_session(self.tables.snapshot(self.now_ns), self.policy)
        run(session)
        return session

    def move_on(self, session: Session) -> None:
        """What the rest of the cluster does between two cycles."""
        stay = set(self.case.environment.get("evictedPodsNeverLeave") or ())
        for key, placement in session.state.moved.items():
            raw = self.pods[key]
            if placement.status is Status.BINDING:
                self._replace(key, _started(raw, session.snapshot.nodes.names[placement.row], placement.gpu_groups))
            elif placement.status is Status.RELEASING:
                group = raw["metadata"]["annotations"].get(names.POD_GROUP_ANNOTATION)
                if group in stay:
                    self.tables.assume(key, Status.RELEASING)
                else:
                    self._replace(key, _recreated(raw))
            elif placement.status is Status.PIPELINED and session.snapshot.tasks[key].node:
                self._replace(key, _recreated(raw))

    def _replace(self, key: str, raw: dict[str, Any]) -> None:
        self.pods[key] = raw
        self.tables.assume(key, None)
        self.tables.apply(decode_object(raw))


def _key(raw: dict[str, Any]) -> str:
    return f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"


def _started(raw: dict[str, Any], node: str, gpu_groups: Sequence[str]) -> dict[str, Any]:
    """The pod running on its node, with the labels and annotations a binder writes."""
    meta = raw["metadata"]
    labels = dict(meta.get("labels") or {})
    if len(gpu_groups) == 1:
        labels[names.GPU_GROUP_LABEL] = gpu_groups[0]
    for group in gpu_groups if len(gpu_groups) > 1 else ():
        labels[names.GPU_GROUP_LABEL_PREFIX + group] = group
    received = names.RECEIVED_FRACTION if gpu_groups else names.RECEIVED_REGULAR
    annotations = {**(meta.get("annotations") or {}), names.RECEIVED_TYPE_ANNOTATION: received}
    return {
        **raw,
        "metadata": {**meta, "labels": labels, "annotations": annotations},
        "spec": {**raw["spec"], "nodeName": node},
        "status": {**raw.get("status", {}), "phase": "Running"},
    }


def _recreated(raw: dict[str, Any]) -> dict[str, Any]:
    """A new pod of the same name, not placed anywhere."""
    meta = {k: v for k, v in raw["metadata"].items() if k != "deletionTimestamp"}
    meta["labels"] = {k: v for k, v in (meta.get("labels") or {}).items() if not k.startswith(names.GPU_GROUP_LABEL)}
    meta["annotations"] = {
        k: v for k, v in (meta.get("annotations") or {}).items() if k != names.RECEIVED_TYPE_ANNOTATION
    }
    spec = {k: v for k, v in raw["spec"].items() if k != "nodeName"}
    return {**raw, "metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def observe(run_: CaseRun, session: Session, *, moved_on: bool) -> Outcome:
    """What the cluster looks like: right after the actions, or after the cluster has moved on."""
    outcome = Outcome()
    state, snapshot = session.state, session.snapshot
    now = run_.tables.snapshot(run_.now_ns) if moved_on else snapshot
    for key, task in now.tasks.items():
        placement = None if moved_on else state.moved.get(key)
        status = task.status if placement is None else placement.status
        if placement is None:
            node, groups = task.node, task.gpu_groups
        else:
            node, groups = snapshot.nodes.names[placement.row], placement.gpu_groups
        row = snapshot.nodes.rows.get(node)
        accepted = state.amounts_on(task.shape, row)[2] / 100.0 if row is not None else 0.0
        name = _WIRE_NAMES[status]
        group = task.group_key.partition("/")[2]
        outcome.pods[key] = PodView(key, task.name, group, _SAME.get(name, name), node, groups, accepted)
    for row, name in enumerate(snapshot.nodes.names):
        gpu_axes = snapshot.axes.gpu_axes
        outcome.idle_gpus[name] = float(sum(state.idle[axis, row] for axis in gpu_axes))
        outcome.releasing_gpus[name] = float(sum(state.releasing[axis, row] for axis in gpu_axes))
    for key, refusals in session.refusals.items():
        facts = snapshot.groups[key].group
        if facts is not None:
            record = Unscheduled(facts.namespace, facts.name, facts.queue, 0, tuple(refusals))
            outcome.messages[facts.name] = detailed_group_text(record)
    return outcome


def fair_shares_of(session: Session) -> dict[str, tuple[float, float, float]]:
    """Fair share of every queue at the start of the cycle."""
    ledger = session.state.ledger
    return {
        name: (
            ledger.fair_share[queue][CPU],
            ledger.fair_share[queue][MEMORY],
            ledger.fair_share[queue][GPU] / 100.0,
        )
        for queue, name in enumerate(session.snapshot.tree.names)
    }


def differences(case: Case, outcome: Outcome, fields: Iterable[str] | None = None) -> list[str]:
    """Where the outcome is not what the case expects, one line each."""
    chosen = set(fields) if fields is not None else None
    found: list[str] = []
    for name, expected in case.expect.items():
        if chosen is not None and name not in chosen:
            continue
        compare = _COMPARISONS.get(name)
        if compare is None:
            found.append(f"{name}: this runner cannot compare it")
        else:
            found.extend(compare(case, outcome, expected))
    return found


def _pod_differences(what: str, pod: PodView, expected: dict[str, Any]) -> Iterator[str]:
    for name, wanted in expected.items():
        if name == "status":
            if pod.status != _SAME.get(wanted, wanted):
                yield f"{what} {pod.name}: status {pod.status}, expected {wanted}"
        elif name == "node":
            if pod.node != wanted and pod.status != "Pending":
                yield f"{what} {pod.name}: node {pod.node or '-'}, expected {wanted}"
            elif pod.status == "Pending" and expected.get("status") != "Pending":
                yield f"{what} {pod.name}: no node, expected {wanted}"
        elif name not in ("gpusAccepted", "message"):
            yield f"{what} {pod.name}: this runner cannot compare {name}"


def _compare_groups(case: Case, outcome: Outcome, expected: dict[str, Any]) -> Iterator[str]:
    singled_out = set(case.expect.get("pods") or {})
    for group, wanted in expected.items():
        pods = [pod for pod in outcome.pods.values() if pod.group == group]
        for pod in pods:
            if pod.name not in singled_out:
                yield from _pod_differences(f"group {group}", pod, wanted)
        if "gpusAccepted" in wanted:
            accepted = sum(pod.gpus_accepted for pod in pods)
            if abs(accepted - wanted["gpusAccepted"]) > 1e-6:
                yield f"group {group}: {accepted} GPUs accepted, expected {wanted['gpusAccepted']}"
        if "message" in wanted and outcome.messages.get(group, "") != wanted["message"]:
            yield f"group {group}: message {outcome.messages.get(group, '')!r}, expected {wanted['message']!r}"


def _compare_pods(case: Case, outcome: Outcome, expected: dict[str, Any]) -> Iterator[str]:
    by_name = {pod.name: pod for pod in outcome.pods.values()}
    for name, wanted in expected.items():
        pod = by_name.get(name)
        if pod is None:
            yield f"pod {name}: not there"
            continue
        yield from _pod_differences("pod", pod, wanted)
        if "gpusAccepted" in wanted and abs(pod.gpus_accepted - wanted["gpusAccepted"]) > 1e-6:
            yield f"pod {name}: {pod.gpus_accepted} GPUs accepted, expected {wanted['gpusAccepted']}"


def _compare_nodes(case: Case, outcome: Outcome, expected: dict[str, Any]) -> Iterator[str]:
    for name, wanted in expected.items():
        for key, have in (("idleGPUs", outcome.idle_gpus), ("releasingGPUs", outcome.releasing_gpus)):
            if key in wanted and abs(have.get(name, 0.0) - wanted[key]) > 1e-6:
                yield f"node {name}: {key} {have.get(name, 0.0)}, expected {wanted[key]}"


def _compare_devices(case: Case, outcome: Outcome, expected: Any) -> Iterator[str]:
    seen: dict[tuple[str, str], set[str]] = {}
    for pod in outcome.pods.values():
        if pod.status in ("Running", "Binding", "Pipelined", "Releasing"):
            for group in pod.gpu_groups:
                seen.setdefault((pod.node, group), set()).add(pod.name)
    have = sorted(sorted(pods) for pods in seen.values())
    wanted = sorted(sorted(pods) for pods in expected)
    if have != wanted:
        yield f"pods by device: {have}, expected {wanted}"


def _compare_shares(case: Case, outcome: Outcome, expected: dict[str, Any]) -> Iterator[str]:
    for queue, wanted in expected.items():
        have = outcome.fair_shares.get(queue)
        if have is None:
            yield f"queue {queue}: not there"
            continue
        for resource, value in zip(("CPU", "Memory", "GPU"), have, strict=True):
            if resource in wanted and abs(value - wanted[resource]) > 1e-6 * max(1.0, abs(wanted[resource])):
                yield f"queue {queue}: fair share of {resource} {value}, expected {wanted[resource]}"


def _compare_running(case: Case, outcome: Outcome, expected: dict[str, Any]) -> Iterator[str]:
    for group, wanted in expected.items():
        have = sum(pod.group == group and pod.status == "Running" for pod in outcome.pods.values())
        if have != wanted:
            yield f"group {group}: {have} pods running, expected {wanted}"


_COMPARISONS: dict[str, Callable[[Case, Outcome, Any], Iterator[str]]] = {
    "podGroups": _compare_groups,
    "pods": _compare_pods,
    "nodes": _compare_nodes,
    "podsByDevice": _compare_devices,
    "fairShares": _compare_shares,
    "runningPods": _compare_running,
}


def run_case(
    case: Case, fields: Iterable[str] | None = None, *, validate: bool = False, skip_seen: bool = True
) -> list[str]:
    """Run a case; the differences from what it expects, none when it passes."""
    run_ = CaseRun(case, validate=validate, skip_seen=skip_seen)
    chosen = list(fields) if fields is not None else None
    if chosen == ["fairShares"]:
        session = open_session(run_.tables.snapshot(run_.now_ns), run_.policy)
        return differences(case, Outcome(fair_shares=fair_shares_of(session)), chosen)
    if case.cycles is None:
        session = run_.cycle()
        outcome = observe(run_, session, moved_on=False)
        outcome.fair_shares = fair_shares_of(session)
        return differences(case, outcome, chosen)
    return _run_cycles(run_, chosen)


def _run_cycles(run_: CaseRun, fields: list[str] | None) -> list[str]:
    case = run_.case
    assert case.cycles is not None
    step_ns = int(float(case.cycles.get("secondsBetween", 0)) * 1e9)
    first = case.cycles.get("run") or case.cycles.get("untilMatch", 1)
    still = 0 if case.cycles.get("run") else case.cycles.get("stillMatchFor", 0)
    shares: dict[str, tuple[float, float, float]] | None = None
    for number in range(1, first + still + 1):
        session = run_.cycle()
        if shares is None:
            shares = fair_shares_of(session)
        run_.move_on(session)
        run_.now_ns += step_ns
        if number >= first:
            outcome = observe(run_, session, moved_on=True)
            outcome.fair_shares = shares
            found = differences(case, outcome, fields)
            if found:
                return [f"after cycle {number}: {line}" for line in found]
    return []
