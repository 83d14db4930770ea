"""Preempt: inside a queue, work of higher priority replaces preemptible work of lower priority (cycle:14)."""

from __future__ import annotations

from pykai.core.actions.action import Action
from pykai.core.actions.evictionaction import (
    EvictionAction,
    PrecheckFailure,
    no_eviction_over_quota,
    run_eviction_action,
)
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Gang
from pykai.core.eviction.search import VictimPolicy
from pykai.core.hooks import EvictionProposal
from pykai.core.opencycle import Cycle
from pykai.core.report.decisions import NoEviction


def preempt(cycle: Cycle, action: Action) -> None:
    """Let work of higher priority evict lower in its own queue."""
    rules, state, gangs = cycle.context.rules, cycle.state, cycle.gangs
    tree = state.snapshot.tree
    lowest_priorities = _lowest_priorities(state.snapshot)

    def precheck(gang: Gang) -> PrecheckFailure | None:
        """A gang of lower priority must exist, and non-preemptible work must be within quota (queues:Q-204)."""
        if gang.priority <= lowest_priorities[gang.queue]:
            reason = NoEviction(action.name, "no_lower_priority", tree.names[gang.queue])
            return PrecheckFailure(reason, for_equal_gangs=True)
        if rules.quota_gate is None or not gang.next_task_non_preemptible:
            return None
        refusal = rules.quota_gate(state, gang, gangs.least_amounts(gang))
        if refusal is None or refusal.rule != "quota":
            return None
        return PrecheckFailure(no_eviction_over_quota(action.name, tree, refusal), for_equal_gangs=True)

    def victim_policy(gang: Gang) -> VictimPolicy:
        filters = [make(state, gang, gangs.requested_amounts(gang)) for make in rules.preempt_filters]

        def accepts(victim: Gang) -> bool:
            return victim.priority < gang.priority and all(passes(victim) for passes in filters)

        def objection(proposal: EvictionProposal) -> str | None:
            return next((text for check in rules.preempt_gates if (text := check(state, proposal)) is not None), None)

        return VictimPolicy([gang.queue], accepts, objection, accepts_by_time=bool(filters))

    run_eviction_action(cycle, EvictionAction(action, precheck, victim_policy))


def _lowest_priorities(snapshot: Snapshot) -> dict[int, int]:
    """Queue -> the lowest priority of a group in it; whether it runs is checked later."""
    rows = snapshot.tree.rows
    return {
        rows[name]: min(snapshot.class_priority(kind.priority_class) for kind in count.groups)
        for name, count in snapshot.group_index.queues.items()
        if name in rows
    }
