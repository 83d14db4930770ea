"""Turns committed changes into decisions: binds, nominations, evictions (cycle:16)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec.structs import replace

from pykai.api import names
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.journal import BindFieldSource, CommitResult, Placement
from pykai.core.cycle.state import State
from pykai.core.hooks import Rules
from pykai.core.model.problems import Problem
from pykai.core.model.shapes import GpuKind, Shape
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.report.decisions import (
    Bind,
    Evict,
    NoEviction,
    Nominate,
    OverCapacity,
    QueueFigures,
    Refusal,
    StaleGang,
    StoppedSearch,
    Ungate,
)
from pykai.core.report.evictions import EvictionFacts


class EvictionCause(NamedTuple):
    """Why pods are evicted."""

    action: str
    #: the text of the event of one pod
    sentence: Callable[[EvictionFacts], str]
    #: the group that benefits
    preemptor: str = ""
    preemptor_uid: str = ""
    #: returns the competing queues of a victim, for sentences that show them
    queues_of: Callable[[Gang], tuple[QueueFigures, ...]] | None = None

    def text(self, gang: Gang, task: Task) -> str:
        """The text of the event of a pod."""
        index = gang.group.leaf_index.get(task.subgroup)
        minimum = None if index is None else gang.leaves[index].minimum
        queues = () if self.queues_of is None else self.queues_of(gang)
        return self.sentence(EvictionFacts(task.key, self.preemptor, task.subgroup, minimum, queues))


class Decisions:
    """The decisions of a cycle so far, and why the remaining pods wait."""

    __slots__ = (
        "binds",
        "evicted_groups",
        "evictions",
        "no_evictions",
        "nominations",
        "problems",
        "recovered",
        "refusals",
        "served_first",
        "stale",
        "start_refusals",
        "started",
        "stopped_searches",
        "ungates",
    )

    def __init__(self, problems: list[Problem]) -> None:
        #: problems of this cycle, besides those of the snapshot
        self.problems = problems
        #: by task key
        self.binds: dict[str, Bind] = {}
        self.nominations: dict[str, Nominate] = {}
        self.evictions: dict[str, Evict] = {}
        #: group key -> why its next tasks may be pipelined, but not start
        self.start_refusals: dict[str, OverCapacity] = {}
        #: groups that start in this cycle
        self.started: dict[str, None] = {}
        self.stale: list[StaleGang] = []
        self.recovered: list[str] = []
        #: group key -> why its pods wait
        self.refusals: dict[str, list[Refusal]] = {}
        #: group key -> why it may not evict, or found no victims
        self.no_evictions: dict[str, list[NoEviction]] = {}
        #: searches that a budget ended
        self.stopped_searches: list[StoppedSearch] = []
        #: groups of which a task was evicted in this cycle
        self.evicted_groups: set[str] = set()
        #: groups that the next cycle serves before all others, in order
        self.served_first: list[str] = []
        #: gates of queues to remove, by task key
        self.ungates: dict[str, Ungate] = {}

    def record_refusal(self, gang: Gang, refusal: Refusal) -> None:
        """Record why a gang waits."""
        self.refusals.setdefault(gang.key, []).append(refusal)

    def record_no_eviction(self, gang: Gang, reason: NoEviction) -> None:
        """Record why an action evicts nothing for a gang."""
        self.no_evictions.setdefault(gang.key, []).append(reason)


class _Received(NamedTuple):
    type: str
    devices: int
    portion: str


_CPU_ONLY = _Received(names.RECEIVED_REGULAR, 0, "0.00")
_MIG = _Received(names.RECEIVED_MIG, 0, "0.00")


@lru_cache(maxsize=64)
def _whole_gpus(devices: int) -> _Received:
    return _Received(names.RECEIVED_REGULAR, devices, "1.00")


def _received_resources(state: State, shape: Shape, row: int) -> _Received:
    """What a pod received, for its BindRequest (cycle:OUT-1; gpu:C-8)."""
    gpu = shape.gpu
    if gpu.kind is GpuKind.NONE:
        return _CPU_ONLY
    if gpu.kind is GpuKind.WHOLE:
        return _whole_gpus(gpu.devices)
    if gpu.kind is GpuKind.MIG:
        return _MIG
    portion = state.amounts_on(shape, row)[2] / gpu.devices / 100.0
    return _Received(names.RECEIVED_FRACTION, gpu.devices, f"{portion:.2f}")


def record_decisions(
    decisions: Decisions, state: State, rules: Rules, outcome: CommitResult, cause: EvictionCause | None = None
) -> None:
    """Turn committed changes into decisions (cycle:ALC-6)."""
    for key, gang in outcome.gangs_by_task.items():
        # Earlier decisions of this cycle about the task no longer hold.
        decisions.nominations.pop(key, None)
        if decisions.binds.pop(key, None) is not None and gang.key in decisions.started and not _holds_node(gang):
            del decisions.started[gang.key]
            gang.started_before = False
        if (eviction := decisions.evictions.get(key)) is not None:
            decisions.evictions[key] = replace(eviction, moves_to="")
    node_names = state.snapshot.nodes.names
    has_pipelined: dict[str, bool] = {}
    for gang, task, placement in outcome.placed:
        node = node_names[placement.row]
        is_pipelined = placement.status is TaskStatus.PIPELINED
        has_pipelined[gang.key] = is_pipelined or has_pipelined.get(gang.key, False)
        if is_pipelined:
            decisions.nominations[task.key] = Nominate(
                task.namespace,
                task.name,
                task.uid,
                gang.key,
                node,
                placement.gpu_groups,
                decisions.start_refusals.get(gang.key) if cause is None else None,
            )
        else:
            decisions.binds[task.key] = _bind(state, rules, gang, task, placement, node)
    for gang, _, _ in outcome.placed:
        if not has_pipelined[gang.key] and not gang.started_before:
            gang.started_before = True
            decisions.started[gang.key] = None
    if cause is None:
        return
    for gang, task, placement in outcome.evicted:
        decisions.evicted_groups.add(gang.key)
        target = decisions.nominations.get(task.key)
        decisions.evictions[task.key] = Evict(
            namespace=task.namespace,
            pod=task.name,
            uid=task.uid,
            group=gang.key,
            node=node_names[placement.row],
            action=cause.action,
            gang_size=len(outcome.evicted),
            message=cause.text(gang, task),
            preemptor=cause.preemptor,
            preemptor_uid=cause.preemptor_uid,
            moves_to=target.node if target is not None else "",
            unbound=task.status is TaskStatus.BINDING,
        )


def _holds_node(gang: Gang) -> bool:
    """Whether some task of a gang holds a node, not only a pipelined one."""
    return any(leaf.active_allocated > leaf.pipelined for leaf in gang.leaves)


# The bind names the GPU groups that were chosen (gpu:F-11).
def _bind(state: State, rules: Rules, gang: Gang, task: Task, placement: Placement, node: str) -> Bind:
    received = _received_resources(state, task.shape, placement.row)
    annotations: dict[str, str] = {}
    for annotate in rules.bind_annotations:
        annotations.update(annotate(task, node))
    return Bind(
        task.namespace,
        task.name,
        task.uid,
        gang.key,
        node,
        received.type,
        received.devices,
        received.portion,
        placement.gpu_groups,
        annotations,
        **_discrete_bind_fields(task, placement),
    )


def _discrete_bind_fields(task: Task, placement: Placement) -> dict[str, Any]:
    """The fields of the bind from discrete ledgers."""
    bind_fields: dict[str, Any] = {}
    for ledger, allocation in placement.grants:
        if isinstance(ledger, BindFieldSource):
            bind_fields |= ledger.bind_fields(task, placement.row, allocation)
    return bind_fields
