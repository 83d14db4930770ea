"""The end of a cycle: the decisions, and why the remaining pods wait."""

from __future__ import annotations

from operator import attrgetter

import msgspec
from msgspec.structs import replace

from pykai.api.keys import split_key
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.queuefigures import queue_figures
from pykai.core.cycle.state import State
from pykai.core.hooks import Rules
from pykai.core.model.status import TaskStatus
from pykai.core.opencycle import Cycle
from pykai.core.placing.details import node_details
from pykai.core.placing.task import request_for_task
from pykai.core.report.decisions import (
    NoPlace,
    OrphanPod,
    Plan,
    Refusal,
    StrayPod,
    Unscheduled,
)

_KEY = attrgetter("key")


def build_plan(cycle: Cycle) -> Plan:
    """The plan of a cycle whose actions have run."""
    snapshot, state, decisions = cycle.context.snapshot, cycle.state, cycle.decisions
    return Plan(
        now_ns=snapshot.now_ns,
        binds=tuple(decisions.binds.values()),
        nominations=tuple(decisions.nominations.values()),
        evictions=tuple(decisions.evictions.values()),
        stale=tuple(decisions.stale),
        recovered=tuple(decisions.recovered),
        started=tuple(decisions.started),
        unscheduled=tuple(_unscheduled(cycle)),
        orphans=tuple(_orphan_pods(snapshot)),
        queues=tuple(
            queue_figures(snapshot.tree, state.ledger, queue, allocated)
            for queue, allocated in enumerate(state.ledger.allocated)
        ),
        problems=tuple(str(problem) for problem in (*snapshot.problems, *decisions.problems)),
        work=state.work,
        stopped=tuple(decisions.stopped_searches),
        resume=cycle.gangs.selection.resume or msgspec.UNSET,
        served_first=tuple(decisions.served_first) or msgspec.UNSET,
        ungates=tuple(decisions.ungates.values()) or msgspec.UNSET,
    )


def _unscheduled(cycle: Cycle) -> list[Unscheduled]:
    """Groups with pods left waiting, by name."""
    decisions, rules = cycle.decisions, cycle.context.rules
    unscheduled: list[Unscheduled] = []
    for gang in cycle.gangs.waiting():
        unplaced = gang.unplaced
        strays = _stray_refusals(gang) if gang.strays else []
        # Another action may have served what one action refused.
        if unplaced or strays or (gang.key in decisions.refusals and not gang.pipelined):
            group = gang.group
            refusals = (*decisions.refusals.get(gang.key, ()), *strays)
            if cycle.context.policy.detailed_fit_errors:
                refusals = tuple(_with_node_details(cycle.state, rules, gang, refusal) for refusal in refusals)
            no_evictions = tuple(decisions.no_evictions.get(gang.key, ()))
            unscheduled.append(
                Unscheduled(group.namespace, group.name, group.queue, unplaced + len(strays), refusals, no_evictions)
            )
    for key, postponed in cycle.gangs.selection.postponed.items():
        entry = cycle.context.snapshot.group_entries[key]
        postponed_group = entry.group
        if entry.pending and postponed_group is not None:
            unscheduled.append(
                Unscheduled(
                    postponed_group.namespace,
                    postponed_group.name,
                    postponed_group.queue,
                    entry.pending,
                    (postponed,),
                    (),
                )
            )
    unscheduled += cycle.context.snapshot.group_index.denied.values()
    return sorted(unscheduled, key=lambda item: (item.namespace, item.group))


def _with_node_details(state: State, rules: Rules, gang: Gang, refusal: Refusal) -> Refusal:
    """A refusal with the reason of every node at the end of the cycle."""
    if not isinstance(refusal, NoPlace) or refusal.base:
        return refusal
    task = state.snapshot.task_records[refusal.pod]
    leaf = gang.leaves[gang.group.leaf_index[refusal.subgroup]]
    request = request_for_task(state, gang, leaf, task)
    return replace(refusal, details=node_details(state, rules, request, is_multi_pod=gang.size > 1))


# Pods of subgroups that do not exist; the rest of the group is unaffected (workloads:PS-4, EX-5).
def _stray_refusals(gang: Gang) -> list[Refusal]:
    waiting = sorted(
        (task for task in gang.strays if task.for_this_scheduler and task.status is TaskStatus.PENDING),
        key=lambda task: task.key,
    )
    return [StrayPod(task.key, task.subgroup, gang.key) for task in waiting]


def _orphan_pods(snapshot: Snapshot) -> list[OrphanPod]:
    """Pods that ask for this scheduler and have no group (workloads:EX-4)."""
    waiting = sorted(snapshot.ungrouped_tasks(), key=_KEY)
    return [OrphanPod(task.namespace, task.name, split_key(task.group_key)[1]) for task in waiting]
