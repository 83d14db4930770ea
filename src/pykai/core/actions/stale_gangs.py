"""Stale gangs: what is left of a gang that lost its minimum is evicted after a grace period (cycle:15)."""

from __future__ import annotations

from pykai.api import names
from pykai.core.cluster.groupindex import GroupEntry, may_break
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.recording import Cause, carry_out
from pykai.core.cycle.session import Session
from pykai.core.cycle.validate import check_state
from pykai.core.model.status import Status
from pykai.core.model.tasks import Task
from pykai.core.report.decisions import StaleGang


def evict_stale_gangs(session: Session) -> None:
    """Evict what is left of gangs that have been incomplete for too long, whatever their priority (cycle:STL-5)."""
    state, snapshot = session.state, session.snapshot
    # Whoever was whole and has not been touched still is.
    for key in sorted({*snapshot.census.broken, *session.touched_gangs()}):
        entry = snapshot.entries[key]
        group = entry.group
        if group is None or not may_break(group) or group.tree_error or not group.in_cycle:
            continue
        if not _may_be_stale(entry):
            if group.stale_since_ns is not None:
                session.recovered.append(key)
            continue
        gang = session.gang(entry)
        active = sum(leaf.active_used for leaf in gang.leaves)
        if not active or gang.complete:
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
        missing = tuple(
            (leaf.name, leaf.minimum, leaf.active_used)
            for leaf in gang.leaves
            if not leaf.complete and leaf.name != names.DEFAULT_SUBGROUP
        )
        session.stale.append(
            StaleGang(group.namespace, group.name, since, active, group.min_member, missing, evicted=due)
        )
        if due:
            mark = state.mark()
            left = gang.active(state.status_of)
            for leaf in gang.leaves:
                for task in reversed(left.get(leaf.name, ())):
                    if state.status_of(task) is Status.PIPELINED or task.node in snapshot.nodes.rows:
                        state.evict(gang, leaf, task)
            carry_out(session, state.commit(mark), Cause("stalegangeviction", _message))
            if session.policy.validate:
                check_state(session)


def _may_be_stale(entry: GroupEntry) -> bool:
    """A gang of which a pod has ended well is not broken (cycle:STL-1)."""
    return not any(task.status is Status.SUCCEEDED for task in entry.tasks.values())


# The text of the eviction is KAI's (cycle:STL-4).
def _message(gang: Gang, task: Task) -> str:
    index = gang.group.leaf_index.get(task.subgroup)
    least = "" if index is None else f" ({gang.leaves[index].minimum})"
    where = "" if task.subgroup == names.DEFAULT_SUBGROUP else f" in sub-group {task.subgroup}"
    return (
        f"Workload doesn't meet the minimum required number of pods{least}{where}, evicting remaining pod: {task.key}"
    )
