"""Runs recorded cases through the engine and compares the outcome.

A case gives objects and either `actions`, run once and compared as they left the cluster, or `cycles`, with a simulated
cluster that advances after each: bound pods run, evicted pods are replaced by new ones, nominated pods wait again. No
case is treated specially.

Subtle: after the cluster has advanced, everything is compared as the next cycle would see it; only the messages of
waiting groups and the fair shares are those of the cycles that ran.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any, cast

from pykai.api import names
from pykai.api.decode import decode_object
from pykai.api.keys import split_key
from pykai.core.actions import ACTIONS
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cluster.tables import Tables
from pykai.core.cycle.journal import Placement
from pykai.core.ledgers.numa.ledger import ZoneAllocation, ZoneLedger
from pykai.core.model.queuetree import CPU, GPU, MEMORY
from pykai.core.model.shapes import GpuKind
from pykai.core.model.status import ACTIVE_USED, STATUS_NAMES, TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.model.vectors import IDLE, RELEASING
from pykai.core.opencycle import Cycle, open_cycle
from pykai.core.plugins import ACCEPTED_WITHOUT_EFFECT, DEFAULT_PROFILE, PROFILES
from pykai.core.policy import Policy
from pykai.core.report.decisions import Bind, Unscheduled
from pykai.core.report.sentences import detailed_group_text
from pykai.core.schedule import run_actions
from pykai.dev.cases import Case, CaseError, Raw
from pykai.dev.claimlifecycle import allocate_claims, release_claims
from pykai.dev.comparison import CaseOutcome, PodOutcome, case_status, differences
from pykai.dev.settings import read_settings
from pykai.scheduler.config.configuration import read_configuration
from pykai.scheduler.flags import Flags

_WIRE_NAMES = {status: name for name, status in STATUS_NAMES.items()}
#: Annotations of a started pod; its replacement has none of them.
_STARTED_ANNOTATIONS = frozenset(
    (names.RECEIVED_TYPE_ANNOTATION, names.NUMA_PREDICTED_ANNOTATION, names.NUMA_OBSERVED_ANNOTATION)
)
_ENVIRONMENT = ("evictedPodsNeverLeave", "predicatesPlugin", "gpuMemoryNotSynced")

SharesByQueue = dict[str, tuple[float, float, float]]


class CaseRun:
    """A running case: its policy, its tables, and its current pods."""

    def __init__(self, case: Case, *, validate: bool = False, reuse_failures: bool = True) -> None:
        for name in case.environment:
            if name not in _ENVIRONMENT:
                raise CaseError(f"environment.{name}: this runner does not know it")
        self.case = case
        self.now_ns = case.now_ns
        settings = read_settings(case.settings)
        self.policy = _policy(case, settings, validate=validate, reuse_failures=reuse_failures)
        self.tables = Tables(settings.shard)
        self.pods: dict[str, Raw] = {}
        self._never_terminate = set(case.environment.get("evictedPodsNeverLeave") or ())
        not_synced = set(case.environment.get("gpuMemoryNotSynced") or ())
        for raw in case.objects:
            if raw["kind"] == "Node" and raw["metadata"]["name"] in not_synced:
                raw = _without_gpu_memory(raw)
            if raw["kind"] == "Pod":
                self.pods[_key(raw)] = raw
            self.tables.apply(decode_object(raw))
        for name, state in case.pod_states.items():
            self.tables.assume(self._pod_key(name), _status(name, state))

    def _pod_key(self, name: str) -> str:
        keys = [key for key in self.pods if name in (key, split_key(key)[1])]
        if len(keys) != 1:
            raise CaseError(f"podStates.{name}: {len(keys)} pods of that name")
        return keys[0]

    def open(self) -> Cycle:
        """A cycle on the cluster as it is, before any action."""
        return open_cycle(self.tables.snapshot(self.now_ns), self.policy)

    def cycle(self) -> Cycle:
        """One cycle on the cluster as it is."""
        cycle = self.open()
        run_actions(cycle)
        return cycle

    def step(self) -> Cycle:
        """Run one cycle, then advance the cluster and the clock."""
        cycle = self.cycle()
        self.apply_decisions(cycle)
        self.policy = replace(self.policy, served_first=tuple(cycle.decisions.served_first))
        if self.case.cycles is not None:
            self.now_ns += round(self.case.cycles.seconds_between * 1e9)
        return cycle

    def apply_decisions(self, cycle: Cycle) -> None:
        """Do what the rest of the cluster does between two cycles."""
        for key, task in list(cycle.context.snapshot.task_records.items()):
            placement = cycle.state.placements.get(key)
            status = task.status if placement is None else placement.status
            if status is TaskStatus.BINDING and placement is not None:
                bind = cycle.decisions.binds[key]
                self._replace(key, _started_pod(self.pods[key], bind, allocate_claims(self.tables, task, bind)))
            elif status is TaskStatus.RELEASING:
                if self._never_terminates(task.group_key):
                    # Without a deletion time it cannot count as stuck.
                    self._replace(key, _without_deletion(self.pods[key]))
                    self.tables.assume(key, TaskStatus.RELEASING)
                else:
                    release_claims(self.tables, task)
                    self._replace(key, _recreated_pod(self.pods[key]))
            elif status is TaskStatus.PIPELINED:
                release_claims(self.tables, task)
                self._replace(key, _recreated_pod(self.pods[key]))

    def _never_terminates(self, group_key: str) -> bool:
        return group_key in self._never_terminate or split_key(group_key)[1] in self._never_terminate

    def _replace(self, key: str, raw: Raw) -> None:
        self.pods[key] = raw
        self.tables.assume(key, None)
        self.tables.apply(decode_object(raw))


def _key(raw: Raw) -> str:
    return f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"


def _status(pod: str, name: str) -> TaskStatus:
    status = STATUS_NAMES.get(name)
    if status is None:
        raise CaseError(f"podStates.{pod}: unknown state {name}")
    return status


def _without_gpu_memory(raw: Raw) -> Raw:
    """The node without the label for GPU memory."""
    meta = raw["metadata"]
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key != names.GPU_MEMORY_NODE_LABEL}
    return {**raw, "metadata": {**meta, "labels": labels}}


def _policy(case: Case, settings: Flags, *, validate: bool, reuse_failures: bool) -> Policy:
    """The policy: the built-in configuration or the case's, without disabled parts."""
    content = (
        dict(case.scheduler_conf) if case.scheduler_conf is not None else {"tiers": _built_in_tiers(case, settings)}
    )
    off = {"predicates"} if case.environment.get("predicatesPlugin") == "off" else set()
    if "tiers" in content:
        content["tiers"] = [_tier_without(tier, off) for tier in content["tiers"]]
    configuration = read_configuration(content, settings.profile)
    if configuration.problems:
        raise CaseError("; ".join(str(problem) for problem in configuration.problems))
    policy = configuration.policy
    policy = settings.apply_to(policy)
    return replace(
        policy,
        actions=tuple(case.actions) if case.actions is not None else policy.actions,
        validate=validate,
        reuse_failures=reuse_failures and policy.reuse_failures,
    )


def _built_in_tiers(case: Case, settings: Flags) -> list[Raw]:
    built_in = PROFILES[settings.profile or DEFAULT_PROFILE]
    plugins: list[Raw] = [{"name": name, "arguments": dict(arguments)} for name, arguments in built_in]
    if any(raw["kind"] == "NodeResourceTopology" for raw in case.objects):
        plugins.append({"name": "numa"})
    return [{"plugins": plugins}]


def _tier_without(tier: Any, off: set[str]) -> Any:
    """The tier without plugins that are disabled or not built yet."""
    if not isinstance(tier, dict) or not isinstance(tier.get("plugins"), list):
        return tier
    kept = [
        entry
        for entry in tier["plugins"]
        if not (isinstance(entry, dict) and (entry.get("name") in off or entry.get("name") in ACCEPTED_WITHOUT_EFFECT))
    ]
    return {**tier, "plugins": kept}


def _started_pod(raw: Raw, bind: Bind, extended_claim: str = "") -> Raw:
    """The pod running on its node, with the labels, annotations and claim names a binder writes."""
    meta = raw["metadata"]
    labels = dict(meta.get("labels") or {})
    if len(bind.gpu_groups) == 1:
        labels[names.GPU_GROUP_LABEL] = bind.gpu_groups[0]
    for group in bind.gpu_groups if len(bind.gpu_groups) > 1 else ():
        labels[names.GPU_GROUP_LABEL_PREFIX + group] = group
    annotations = {**(meta.get("annotations") or {}), names.RECEIVED_TYPE_ANNOTATION: bind.received_type}
    if bind.numa_zones:
        zones = [{"zone": zone, "amount": dict(amounts)} for zone, amounts in bind.numa_zones]
        annotations[names.NUMA_PREDICTED_ANNOTATION] = json.dumps(zones)
    status = {**raw.get("status", {}), "phase": "Running"}
    if extended_claim:
        status["extendedResourceClaimStatus"] = {"resourceClaimName": extended_claim}
    return {
        **raw,
        "metadata": {**meta, "labels": labels, "annotations": annotations},
        "spec": {**raw["spec"], "nodeName": bind.node},
        "status": status,
    }


def _without_deletion(raw: Raw) -> Raw:
    meta = {key: value for key, value in raw["metadata"].items() if key != "deletionTimestamp"}
    return {**raw, "metadata": meta}


def _recreated_pod(raw: Raw) -> Raw:
    """A new pod of the same name, uid and age, not placed anywhere."""
    meta = _without_deletion(raw)["metadata"]
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    meta["labels"] = {key: value for key, value in labels.items() if not _is_gpu_group(key)}
    meta["annotations"] = {key: value for key, value in annotations.items() if key not in _STARTED_ANNOTATIONS}
    spec = {key: value for key, value in raw["spec"].items() if key != "nodeName"}
    kept = {key: value for key, value in raw.get("status", {}).items() if key in ("qosClass", "resourceClaimStatuses")}
    return {**raw, "metadata": meta, "spec": spec, "status": {**kept, "phase": "Pending"}}


def _is_gpu_group(label: str) -> bool:
    return label == names.GPU_GROUP_LABEL or label.startswith(names.GPU_GROUP_LABEL_PREFIX)


def case_outcome(case_run: CaseRun, cycle: Cycle, *, after_cycle: bool) -> CaseOutcome:
    """The outcome right after the actions, or after the cluster has advanced."""
    state = cycle.state
    snapshot = case_run.open().context.snapshot if after_cycle else cycle.context.snapshot
    columns = snapshot.columns if after_cycle else state.columns
    outcome = CaseOutcome(groups={key for key, entry in snapshot.group_entries.items() if entry.group is not None})
    for key, task in snapshot.task_records.items():
        placement = None if after_cycle else state.placements.get(key)
        if placement is None:
            status, node, gpu_groups = task.status, task.node, task.gpu_groups
        else:
            # A withdrawn nomination leaves the pod without a node.
            node = snapshot.nodes.names[placement.row] if placement.row >= 0 else ""
            status, gpu_groups = placement.status, placement.gpu_groups
        outcome.pods[key] = PodOutcome(
            key=key,
            group=task.group_key,
            status=case_status(_WIRE_NAMES[status]),
            node=node,
            gpu_groups=gpu_groups,
            gpus_accepted=_gpus_accepted(cycle, snapshot, key, node) if ACTIVE_USED[status] else 0.0,
            numa_zones=_numa_zones(snapshot, task, placement),
        )
    for row, name in enumerate(snapshot.nodes.names):
        gpu_axes = snapshot.axes.gpu_axes
        outcome.idle_gpus[name] = float(sum(columns[IDLE, axis, row] for axis in gpu_axes))
        outcome.releasing_gpus[name] = float(sum(columns[RELEASING, axis, row] for axis in gpu_axes))
    outcome.messages = _messages(cycle)
    return outcome


def _gpus_accepted(cycle: Cycle, snapshot: Snapshot, key: str, node: str) -> float:
    shape = snapshot.task_records[key].shape
    row = cycle.context.snapshot.nodes.rows.get(node)
    if row is None or shape.gpu.kind is GpuKind.MIG:
        return 0.0
    return cycle.state.amounts_on(shape, row)[2] / 100.0


def _numa_zones(snapshot: Snapshot, task: Task, placement: Placement | None) -> tuple[int, ...]:
    """NUMA zones of a pod: those of this cycle's placement, otherwise those of its record."""
    if placement is not None:
        held = [
            cast(ZoneAllocation, grant.allocation) for grant in placement.grants if isinstance(grant.ledger, ZoneLedger)
        ]
        return tuple(zone for content in held for zone, _ in content)
    node_zones = snapshot.numa.get(task.node)
    ids = node_zones.layout.zones if node_zones is not None else ()
    return tuple(ids.index(zone) for zone, _ in task.numa_record if zone in ids)


def _messages(cycle: Cycle) -> dict[str, str]:
    messages: dict[str, str] = {}
    for key, refusals in cycle.decisions.refusals.items():
        facts = cycle.context.snapshot.group_entries[key].group
        if facts is not None:
            record = Unscheduled(facts.namespace, facts.name, facts.queue, 0, tuple(refusals))
            messages[key] = detailed_group_text(record)
    return messages


def fair_shares_of(cycle: Cycle) -> SharesByQueue:
    """Fair share of every queue at the start of the cycle."""
    shares = cycle.state.ledger.fair_share
    return {
        name: (shares[queue][CPU], shares[queue][MEMORY], shares[queue][GPU] / 100.0)
        for queue, name in enumerate(cycle.context.snapshot.tree.names)
    }


def run_case(
    case: Case, fields: Collection[str] | None = None, *, validate: bool = False, reuse_failures: bool = True
) -> list[str]:
    """Run a case; returns the differences, none if it passes. Exceptions of the engine pass through."""
    case_run = CaseRun(case, validate=validate, reuse_failures=reuse_failures)
    if fields is not None and set(fields) == {"fairShares"}:
        return differences(case, CaseOutcome(fair_shares=fair_shares_of(case_run.open())), fields)
    if case.cycles is not None:
        return _run_cycles(case_run, fields)
    if missing := [name for name in case_run.policy.actions if name not in ACTIONS]:
        return [f"action {name}: the engine does not have it" for name in missing]
    cycle = case_run.cycle()
    outcome = case_outcome(case_run, cycle, after_cycle=False)
    outcome.fair_shares = fair_shares_of(cycle)
    return differences(case, outcome, fields)


def _run_cycles(case_run: CaseRun, fields: Collection[str] | None) -> list[str]:
    cycles = case_run.case.cycles
    assert cycles is not None
    shares: SharesByQueue | None = None
    for number in range(1, cycles.last_cycle + 1):
        cycle = case_run.step()
        if shares is None:
            shares = fair_shares_of(cycle)
        if number >= cycles.first_comparison:
            outcome = case_outcome(case_run, cycle, after_cycle=True)
            outcome.fair_shares = shares
            lines = differences(case_run.case, outcome, fields)
            if lines:
                return [f"after cycle {number}: {line}" for line in lines]
    return []


def check_case(case: Case, fields: Collection[str] | None = None) -> list[str]:
    """Like `run_case`, but an exception counts as a difference, so that other cases still run."""
    try:
        return run_case(case, fields)
    except CaseError as error:
        return [str(error)]
    except Exception as error:
        # The engine is what is tested here: whatever it raises is a difference.
        return [f"{type(error).__name__}: {error}"]
