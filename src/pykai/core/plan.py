"""The end of a cycle: what was decided, and for everyone else why not."""

from __future__ import annotations

from operator import attrgetter

import msgspec
from msgspec.structs import replace

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.session import Session
from pykai.core.hooks import Ask
from pykai.core.model.status import Status
from pykai.core.placing.details import node_details
from pykai.core.report.decisions import Figures, NoPlace, OrphanPod, Plan, QueueFigures, Refusal, StrayPod, Unscheduled

_KEY = attrgetter("key")


def reckon(session: Session) -> Plan:
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
        orphans=tuple(_orphans(session)),
        queues=tuple(_queues(session)),
        problems=tuple(str(problem) for problem in (*session.snapshot.problems, *session.problems)),
        work=session.state.work,
        stopped=tuple(session.stopped),
        resume=session.turns.resume or msgspec.UNSET,
    )


def _unscheduled(session: Session) -> list[Unscheduled]:
    """Groups with pods left waiting, by name."""
    found: list[Unscheduled] = []
    for gang in session.waiting():
        waiting = gang.open
        strays = _strays(gang) if gang.strays else []
        # What one action refused another may have served.
        if waiting or strays or (gang.key in session.refusals and not gang.pipelined):
            group = gang.group
            refusals = (*session.refusals.get(gang.key, ()), *strays)
            if session.policy.detailed_fit_errors:
                refusals = tuple(_with_details(session, gang, refusal) for refusal in refusals)
            verdicts = tuple(session.verdicts.get(gang.key, ()))
            found.append(
                Unscheduled(group.namespace, group.name, group.queue, waiting + len(strays), refusals, verdicts)
            )
    for key, why in session.turns.postponed.items():
        entry = session.snapshot.entries[key]
        put_off = entry.group
        if entry.pending and put_off is not None:
            found.append(Unscheduled(put_off.namespace, put_off.name, put_off.queue, entry.pending, (why,), ()))
    return sorted(found, key=lambda item: (item.namespace, item.group))


def _with_details(session: Session, gang: Gang, refusal: Refusal) -> Refusal:
    """A refusal that says what every node had to say when the cycle ended."""
    if not isinstance(refusal, NoPlace) or refusal.base:
        return refusal
    task = session.snapshot.records[refusal.pod]
    leaf = gang.leaves[gang.group.leaf_index[refusal.subgroup]]
    ask = Ask(task, gang, leaf, session.snapshot.vectors[task.shape])
    return replace(refusal, details=node_details(session.state, session.rules, ask, several=gang.size > 1))


# Pods of subgroups that do not exist; the rest of the group is unaffected (workloads:PS-4, EX-5).
def _strays(gang: Gang) -> list[Refusal]:
    waiting = sorted(
        (task for task in gang.strays if task.ours and task.status is Status.PENDING), key=lambda task: task.key
    )
    return [StrayPod(task.key, task.subgroup, gang.key) for task in waiting]


def _orphans(session: Session) -> list[OrphanPod]:
    """Pods that ask for this scheduler and have no group (workloads:EX-4)."""
    waiting = sorted(session.snapshot.ungrouped(), key=_KEY)
    return [OrphanPod(task.namespace, task.name, task.group_key.partition("/")[2]) for task in waiting]


def figures_of(session: Session, queue: int, allocated: list[float]) -> QueueFigures:
    """Figures of a queue that has so much allocated."""
    ledger, tree = session.state.ledger, session.snapshot.tree

    def figures(row: list[float] | tuple[float, ...]) -> Figures:
        return (row[0], row[1], round(row[2] / 100.0, 9))

    return QueueFigures(
        name=tree.names[queue],
        display_name=tree.display_names[queue],
        parent=tree.names[tree.parents[queue]] if tree.parents[queue] >= 0 else "",
        priority=tree.priorities[queue],
        fair_share=figures(ledger.fair_share[queue]),
        quota=figures(ledger.quota[queue]),
        limit=figures(ledger.limit[queue]),
        request=figures(ledger.request[queue]),
        allocated=figures(allocated),
        allocated_non_preemptible=figures(ledger.committed[queue]),
    )


def _queues(session: Session) -> list[QueueFigures]:
    return [figures_of(session, queue, allocated) for queue, allocated in enumerate(session.state.ledger.allocated)]
