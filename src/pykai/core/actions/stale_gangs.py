"""Stale gangs: the rest of a gang that lost its minimum is evicted after a grace period (cycle:15)."""

from __future__ import annotations

from pykai.api import names
from pykai.core.actions.action import Action
from pykai.core.cluster.groupindex import GroupEntry, can_be_stale
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.recording import EvictionCause, record_decisions
from pykai.core.cycle.validate import check_state
from pykai.core.model.status import TaskStatus
from pykai.core.opencycle import Cycle
from pykai.core.report.decisions import StaleGang


def evict_stale_gangs(cycle: Cycle, action: Action) -> None:
    """Evict the rest of gangs that have been incomplete for too long, whatever their priority (cycle:STL-5)."""
    state, snapshot, decisions = cycle.state, cycle.state.snapshot, cycle.decisions
    # A gang that was complete and has not been touched still is.
    for key in sorted({*snapshot.group_index.stale, *cycle.gangs.inspected()}):
        entry = snapshot.group_entries[key]
        group = entry.group
        if group is None or not can_be_stale(group) or group.tree_error or not group.in_cycle:
            continue
        gang = cycle.gangs.gang(entry) if _may_be_stale(entry) else None
        active_count = 0 if gang is None else sum(leaf.active_used for leaf in gang.leaves)
        if gang is None or not active_count or gang.complete:
            if group.stale_since_ns is not None:
                decisions.recovered.append(key)
            continue
        # The clock starts when the gang is first seen broken (cycle:STL-2).
        since = snapshot.now_ns if group.stale_since_ns is None else group.stale_since_ns
        # A time in the future is invalid: accepted, it would delay the eviction (ADR 21).
        since = min(since, snapshot.now_ns)
        grace = group.staleness_grace_ns
        if grace is None:
            grace = cycle.context.policy.staleness_grace_ns
        due = grace >= 0 and state.passed(since + grace)
        decisions.stale.append(
            StaleGang(
                group.namespace,
                group.name,
                since,
                active_count,
                group.min_member,
                _incomplete_subgroups(gang),
                evicted=due,
                leaving=not any(leaf.active_allocated for leaf in gang.leaves),
            )
        )
        if due:
            _evict_rest(cycle, action, gang)


def _incomplete_subgroups(gang: Gang) -> tuple[tuple[str, int, int], ...]:
    return tuple(
        (leaf.name, leaf.minimum, leaf.active_used)
        for leaf in gang.leaves
        if not leaf.complete and leaf.name != names.DEFAULT_SUBGROUP
    )


def _evict_rest(cycle: Cycle, action: Action, gang: Gang) -> None:
    """Evict all tasks of a gang that hold a node or are pipelined."""
    state = cycle.state
    mark = state.mark()
    remaining = gang.active_tasks(state.status_of)
    for leaf in gang.leaves:
        for task in reversed(remaining.get(leaf.name, ())):
            if state.status_of(task) is TaskStatus.PIPELINED or task.node in state.snapshot.nodes.rows:
                state.evict(gang, leaf, task)
    assert action.texts is not None
    cause = EvictionCause(action.name, action.texts.event)
    record_decisions(cycle.decisions, state, cycle.context.rules, state.commit(mark), cause)
    if cycle.context.policy.validate:
        check_state(state, cycle.gangs)


def _may_be_stale(entry: GroupEntry) -> bool:
    """A gang is not stale if one of its pods has succeeded (cycle:STL-1)."""
    return not any(task.status is TaskStatus.SUCCEEDED for task in entry.tasks.values())
