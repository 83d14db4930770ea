"""Stale gangs: what is left of a gang that lost its minimum is evicted after a grace period (cycle:15)."""

from __future__ import annotations

from pykai.api import names
from pykai.core.cluster.groupindex import GroupEntry, can_be_stale
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.recording import EvictionCause, record_decisions
from pykai.core.cycle.session import Session
from pykai.core.cycle.validate import check_state
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.report.decisions import StaleGang


def evict_stale_gangs(session: Session) -> None:
    """Evict what is left of gangs that have been incomplete for too long, whatever their priority (cycle:STL-5)."""
    state, snapshot = session.state, session.snapshot
    # Whoever was whole and has not been touched still is.
    for key in sorted({*snapshot.group_index.stale, *session.inspected_gangs()}):
        entry = snapshot.group_entries[key]
        group = entry.group
        if group is None or not can_be_stale(group) or group.tree_error or not group.in_cycle:
            continue
        if not _may_be_stale(entry):
            if group.stale_since_ns is not None:
                session.recovered.append(key)
            continue
        gang = session.gang(entry)
        active_count = sum(leaf.active_used for leaf in gang.leaves)
        if not active_count or gang.complete:
            if group.stale_since_ns is not None:
                session.recovered.append(key)
            continue
        # The clock starts when the gang is first seen broken (cycle:STL-2).
        since = snapshot.now_ns if group.stale_since_ns is None else group.stale_since_ns
        # It cannot have broken in a time to come: believed, that would put off its end (ADR 21).
        since = min(since, snapshot.now_ns)
        grace = group.staleness_grace_ns
        if grace is None:
            grace = session.policy.staleness_grace_ns
        due = grace >= 0 and session.state.passed(since + grace)
        incomplete_subgroups = tuple(
            (leaf.name, leaf.minimum, leaf.active_used)
            for leaf in gang.leaves
            if not leaf.complete and leaf.name != names.DEFAULT_SUBGROUP
        )
        session.stale.append(
            StaleGang(
                group.namespace, group.name, since, active_count, group.min_member, incomplete_subgroups, evicted=due
            )
        )
        if due:
            mark = state.mark()
            remaining = gang.active_tasks(state.status_of)
            for leaf in gang.leaves:
                for task in reversed(remaining.get(leaf.name, ())):
                    if state.status_of(task) is TaskStatus.PIPELINED or task.node in snapshot.nodes.rows:
                        state.evict(gang, leaf, task)
            record_decisions(session, state.commit(mark), EvictionCause("stalegangeviction", _message))
            if session.policy.validate:
                check_state(session)


def _may_be_stale(entry: GroupEntry) -> bool:
    """A gang of which a pod has ended well is not broken (cycle:STL-1)."""
    return not any(task.status is TaskStatus.SUCCEEDED for task in entry.tasks.values())


# The text of the eviction is KAI's (cycle:STL-4).
def _message(gang: Gang, task: Task) -> str:
    index = gang.group.leaf_index.get(task.subgroup)
    least = "" if index is None else f" ({gang.leaves[index].minimum})"
    where = "" if task.subgroup == names.DEFAULT_SUBGROUP else f" in sub-group {task.subgroup}"
    return (
        f"Workload doesn't meet the minimum required number of pods{least}{where}, evicting remaining pod: {task.key}"
    )
