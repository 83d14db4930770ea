"""Preempt: inside a queue, work of higher priority takes the place of preemptible work of lower (cycle:14)."""

from __future__ import annotations

from collections.abc import Callable

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.session import Session
from pykai.core.eviction.evictionaction import EvictionAction, no_eviction_over_quota, run_eviction_action
from pykai.core.eviction.search import VictimPolicy
from pykai.core.hooks import EvictionProposal
from pykai.core.model.tasks import Task
from pykai.core.report.decisions import NoEviction


def preempt(session: Session) -> None:
    """Let work of higher priority evict lower in its own queue."""
    rules, state = session.rules, session.state
    lowest_priorities = _lowest_priorities(session)

    def precheck(gang: Gang) -> tuple[NoEviction, bool] | None:
        """Someone of lower priority must be there, and work that may not be taken back must be within quota
        (queues:Q-204)."""
        if gang.priority <= lowest_priorities[gang.queue]:
            return NoEviction("preempt", "no_lower_priority", session.snapshot.tree.names[gang.queue]), True
        if rules.quota_gate is None or not gang.next_task_non_preemptible:
            return None
        refusal = rules.quota_gate(state, gang, session.next_task_amounts(gang, session.largest_gpu_mib))
        if refusal is None or refusal.rule != "quota":
            return None
        return no_eviction_over_quota("preempt", session.snapshot.tree, refusal), True

    def victim_policy(gang: Gang) -> VictimPolicy:
        filters = [make(state, gang, session.requested_amounts(gang)) for make in rules.preempt_filters]

        def accepts(victim: Gang) -> bool:
            return victim.priority < gang.priority and all(passes(victim) for passes in filters)

        def objection(proposal: EvictionProposal) -> str | None:
            return next((text for check in rules.preempt_gates if (text := check(state, proposal)) is not None), None)

        return VictimPolicy("preempt", [gang.queue], accepts, objection)

    def message(gang: Gang) -> Callable[[Gang, Task], str]:
        return lambda victim, task: f"Pod {task.key} was preempted by higher priority workload {gang.key}"

    run_eviction_action(session, EvictionAction("preempt", precheck, victim_policy, message))


def _lowest_priorities(session: Session) -> dict[int, int]:
    """Queue -> the lowest priority of a group in it; whether it runs is seen later."""
    snapshot = session.snapshot
    rows = snapshot.tree.rows
    return {
        rows[name]: min(snapshot.class_priority(kind.priority_class) for kind in count.groups)
        for name, count in snapshot.group_index.queues.items()
        if name in rows
    }
