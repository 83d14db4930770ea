"""The end of a cycle: what was decided, and for everyone else why not."""

from __future__ import annotations

from operator import attrgetter

import msgspec
from msgspec.structs import replace

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.session import Session
from pykai.core.hooks import PlacementRequest
from pykai.core.model.status import TaskStatus
from pykai.core.placing.details import node_details
from pykai.core.report.decisions import (
    NoPlace,
    OrphanPod,
    Plan,
    QueueFigures,
    Refusal,
    ResourceAmounts,
    StrayPod,
    Unscheduled,
)

_KEY = attrgetter("key")


def build_plan(session: Session) -> Plan:
    """The plan of a session whose actions have run."""
    return Plan(
        now_ns=session.snapshot.now_ns,
        binds=tuple(session.binds.values()),
        nominations=tuple(session.nominations.values()),
        evictions=tuple(session.evictions.values()),
        stale=tuple(session.stale),
        recovered=tuple(session.recovered),
        started=tuple(session.started),
        unscheduled=tuple(_unscheduled(session)),
        orphans=tuple(_orphan_pods(session)),
        queues=tuple(_all_queue_figures(session)),
        problems=tuple(str(problem) for problem in (*session.snapshot.problems, *session.problems)),
        work=session.state.work,
        stopped=tuple(session.stopped_searches),
        resume=session.group_selection.resume or msgspec.UNSET,
    )


def _unscheduled(session: Session) -> list[Unscheduled]:
    """Groups with pods left waiting, by name."""
    unscheduled: list[Unscheduled] = []
    for gang in session.waiting_gangs():
        unplaced = gang.unplaced
        strays = _stray_refusals(gang) if gang.strays else []
        # What one action refused another may have served.
        if unplaced or strays or (gang.key in session.refusals and not gang.pipelined):
            group = gang.group
            refusals = (*session.refusals.get(gang.key, ()), *strays)
            if session.policy.detailed_fit_errors:
                refusals = tuple(_with_node_details(session, gang, refusal) for refusal in refusals)
            no_evictions = tuple(session.no_evictions.get(gang.key, ()))
            unscheduled.append(
                Unscheduled(group.namespace, group.name, group.queue, unplaced + len(strays), refusals, no_evictions)
            )
    for key, postponed in session.group_selection.postponed.items():
        entry = session.snapshot.group_entries[key]
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
    return sorted(unscheduled, key=lambda item: (item.namespace, item.group))


def _with_node_details(session: Session, gang: Gang, refusal: Refusal) -> Refusal:
    """A refusal that says what every node had to say when the cycle ended."""
    if not isinstance(refusal, NoPlace) or refusal.base:
        return refusal
    task = session.snapshot.task_records[refusal.pod]
    leaf = gang.leaves[gang.group.leaf_index[refusal.subgroup]]
    request = PlacementRequest(task, gang, leaf, session.snapshot.vectors[task.shape])
    return replace(refusal, details=node_details(session.state, session.rules, request, is_multi_pod=gang.size > 1))


# Pods of subgroups that do not exist; the rest of the group is unaffected (workloads:PS-4, EX-5).
def _stray_refusals(gang: Gang) -> list[Refusal]:
    waiting = sorted(
        (task for task in gang.strays if task.for_this_scheduler and task.status is TaskStatus.PENDING),
        key=lambda task: task.key,
    )
    return [StrayPod(task.key, task.subgroup, gang.key) for task in waiting]


def _orphan_pods(session: Session) -> list[OrphanPod]:
    """Pods that ask for this scheduler and have no group (workloads:EX-4)."""
    waiting = sorted(session.snapshot.ungrouped_tasks(), key=_KEY)
    return [OrphanPod(task.namespace, task.name, task.group_key.partition("/")[2]) for task in waiting]


def queue_figures(session: Session, queue: int, allocated: list[float]) -> QueueFigures:
    """Figures of a queue that has so much allocated."""
    ledger, tree = session.state.ledger, session.snapshot.tree

    def in_devices(row: list[float] | tuple[float, ...]) -> ResourceAmounts:
        return (row[0], row[1], round(row[2] / 100.0, 9))

    return QueueFigures(
        name=tree.names[queue],
        display_name=tree.display_names[queue],
        parent=tree.names[tree.parents[queue]] if tree.parents[queue] >= 0 else "",
        priority=tree.priorities[queue],
        fair_share=in_devices(ledger.fair_share[queue]),
        quota=in_devices(ledger.quota[queue]),
        limit=in_devices(ledger.limit[queue]),
        request=in_devices(ledger.request[queue]),
        allocated=in_devices(allocated),
        allocated_non_preemptible=in_devices(ledger.allocated_non_preemptible[queue]),
    )


def _all_queue_figures(session: Session) -> list[QueueFigures]:
    return [queue_figures(session, queue, allocated) for queue, allocated in enumerate(session.state.ledger.allocated)]
