"""Binds that a scheduler had decided and did not write, checked against the cluster as it is now.

    resume(snapshot, policy, unfinished) -> Resumed

A scheduler that takes over reads which pods its predecessor was about to bind to which nodes
(`scheduler/dispatch/records.py`). Since that decision anything may have happened, and the record itself may be wrong.
So nothing of it is trusted: the engine places each pod again, by every rule of a cycle (quota and limits of the queue,
selectors, taints, room on the node, on each shared GPU, devices of claims, volumes, topology), except that only the
named node is allowed.  Other fields of the bind (GPU groups, devices, volumes) are decided again.

A gang is tried as a whole first.  If that fails its pods are tried one by one, and those that fail are `refused` with
the reason; the caller decides whether the rest is worth keeping.  A place that other pods are still leaving does not
count: the pods would have to wait for it, and the cycles take care of waiting pods.

Statements: security:plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

import numpy as np

from pykai.api.keys import object_key, split_key
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.cyclegangs import total_amounts
from pykai.core.cycle.gangs import Batch, Gang
from pykai.core.cycle.recording import record_decisions
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.cycle.validate import check_state
from pykai.core.hooks import Hooks, NodeCheck, NodeSet, Scope
from pykai.core.model.axes import IntArray, Rows
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.opencycle import Cycle, open_cycle
from pykai.core.placing.capacity import over_capacity
from pykai.core.placing.reasons import count_refusals
from pykai.core.placing.task import request_for_task, unmet_text
from pykai.core.policy import Policy
from pykai.core.report.decisions import Bind, PlannedBind
from pykai.core.report.sentences import access_denied_text, refusal_text


class UnfinishedBinds(NamedTuple):
    """The binds of one group that were decided and may not have been written."""

    #: namespace/name of the PodGroup, its uid, and the queue it was in
    group: str
    uid: str
    queue: str
    planned: tuple[PlannedBind, ...]


class ResumedBinds(NamedTuple):
    """The binds that are still valid."""

    binds: tuple[Bind, ...]
    #: pod key -> why it is not bound there
    refused: dict[str, str]


def resume(snapshot: Snapshot, policy: Policy, unfinished: Iterable[UnfinishedBinds]) -> ResumedBinds:
    """Place the pods on their recorded nodes, as far as every rule allows that now."""
    refused: dict[str, str] = {}
    #: task key -> node row
    pins: dict[str, int] = {}
    with closing(open_cycle(snapshot, policy, extra_hooks=[Hooks(node_checks=(_pinned(pins),))])) as cycle:
        for group_binds in sorted(unfinished):
            gang, reason = _bindable_gang(cycle, group_binds)
            if gang is None:
                namespace = split_key(group_binds.group)[0]
                refused |= {object_key(namespace, place.pod): reason for place in group_binds.planned}
                continue
            tasks = list(_bindable_tasks(snapshot, gang, group_binds, pins, refused))
            if not _place_on_idle(cycle, gang, tasks):
                for task in tasks:
                    if not _place_on_idle(cycle, gang, [task]):
                        refused[task.key] = _why_not_bound(cycle, gang, task, pins[task.key])
        return ResumedBinds(tuple(cycle.decisions.binds.values()), refused)


def _pinned(pins: Mapping[str, int]) -> NodeCheck:
    def evaluate(state: State, request: PlacementRequest, rows: Rows) -> IntArray:
        elsewhere = np.ones(len(state.snapshot.nodes), dtype=np.int64)
        elsewhere[pins[request.task.key]] = 0
        return elsewhere[rows]

    return NodeCheck(
        "planned node",
        ("node(s) were not planned for the pod",),
        evaluate,
        Scope.REQUEST,
        applies=lambda ask: ask.task.key in pins,
        key=lambda ask: pins[ask.task.key],
    )


def _bindable_gang(cycle: Cycle, unfinished: UnfinishedBinds) -> tuple[Gang | None, str]:
    """The gang, or why nothing of it may be bound."""
    snapshot = cycle.context.snapshot
    entry = snapshot.group_entries.get(unfinished.group)
    if entry is None or entry.group is None:
        return None, f"PodGroup {unfinished.group} does not exist"
    gang = cycle.gangs.gang(entry)
    group, tree = gang.group, snapshot.tree
    if group.uid != unfinished.uid:
        return (
            None,
            f"PodGroup {unfinished.group} is another one of the name: its uid is {group.uid}, not {unfinished.uid}",
        )
    if group.queue != unfinished.queue:
        return None, f"PodGroup {unfinished.group} is in queue '{group.queue}', not in '{unfinished.queue}' any more"
    if gang.queue < 0 or tree.children[gang.queue]:
        return None, f"'{group.queue}' is not a leaf queue of the cluster"
    if entry.denial is not None:
        return None, access_denied_text(entry.denial)
    if group.tree_error or gang.unsupported:
        return None, group.tree_error or f"its pods ask for {' and '.join(sorted(gang.unsupported))}"
    return gang, ""


def _bindable_tasks(
    snapshot: Snapshot, gang: Gang, unfinished: UnfinishedBinds, pins: dict[str, int], refused: dict[str, str]
) -> Iterator[Task]:
    """The pods that wait, belong to the group and whose node exists."""
    for planned_bind in unfinished.planned:
        key = object_key(gang.group.namespace, planned_bind.pod)
        task = gang.entry.tasks.get(key)
        row = snapshot.nodes.rows.get(planned_bind.node)
        if task is None or task.uid != planned_bind.uid:
            refused[key] = f"there is no such pod in PodGroup {gang.key}"
        elif (
            not task.for_this_scheduler
            or task.status is not TaskStatus.PENDING
            or task.subgroup not in gang.group.leaf_index
        ):
            refused[key] = "the pod does not wait for a node of this scheduler"
        elif row is None:
            refused[key] = f"node {planned_bind.node} is gone"
        else:
            pins[key] = row
            yield task


def _place_on_idle(cycle: Cycle, gang: Gang, tasks: list[Task]) -> bool:
    """Place these tasks on what is idle now, all or none."""
    state = cycle.state
    mark = state.mark()
    if not tasks or not cycle.placer.try_place_tasks(gang, _batches(gang, tasks), pipeline_only=False):
        return False
    if any(state.placements[task.key].status is TaskStatus.PIPELINED for task in tasks):
        state.rollback(mark)
        return False
    record_decisions(cycle.decisions, state, cycle.context.rules, state.commit(mark))
    if cycle.context.policy.validate:
        check_state(state, cycle.gangs)
    return True


def _batches(gang: Gang, tasks: list[Task]) -> list[Batch]:
    tasks_by_subgroup: dict[str, list[Task]] = {}
    for task in tasks:
        tasks_by_subgroup.setdefault(task.subgroup, []).append(task)
    return [Batch(gang.leaves[gang.group.leaf_index[name]], each) for name, each in tasks_by_subgroup.items()]


def _why_not_bound(cycle: Cycle, gang: Gang, task: Task, row: int) -> str:
    """Why one task cannot be bound to its node."""
    state, rules, snapshot = cycle.state, cycle.context.rules, cycle.context.snapshot
    request = request_for_task(state, gang, gang.leaves[gang.group.leaf_index[task.subgroup]], task)
    if rules.quota_gate is not None:
        amounts = total_amounts(snapshot.vectors, _batches(gang, [task]), cycle.context.largest_gpu_mib)
        refusal = rules.quota_gate(state, gang, amounts)
        if refusal is not None:
            return refusal_text(over_capacity(snapshot.tree, refusal, amounts, gang.preemptible))
    failures = [failure for check in rules.pre_place if (failure := check(state, request)) is not None]
    if failures:
        return unmet_text(failures).replace("{pod}", task.key)
    only = np.zeros(len(snapshot.nodes), dtype=np.bool_)
    only[row] = True
    reasons = count_refusals(state, rules, request, NodeSet(only))
    node = snapshot.nodes.names[row]
    if reasons:
        return f"node {node}: {', '.join(reasons)}".replace("{pod}", task.key)
    return f"node {node} does not have everything the pod needs free now"
