"""Preempt: inside a queue, work of higher priority takes the place of preemptible work of lower (cycle:14)."""

from __future__ import annotations

from collections.abc import Callable

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.session import Session
from pykai.core.eviction.evictionaction import Method, refused_by_quota, take_back
from pykai.core.eviction.search import Aim
from pykai.core.hooks import Taking
from pykai.core.model.tasks import Task
from pykai.core.report.decisions import Verdict


def preempt(session: Session) -> None:
    """Let work of higher priority evict lower in its own queue."""
    rules, state = session.rules, session.state
    lowest = _lowest_priorities(session)

    def gate(gang: Gang) -> tuple[Verdict, bool] | None:
        """Someone of lower priority must be there, and work that may not be taken back must be within quota
        (queues:Q-204)."""
        if gang.priority <= lowest[gang.queue]:
            return Verdict("preempt", "no_lower_priority", session.snapshot.tree.names[gang.queue]), True
        if rules.quota_gate is None or not gang.starts_core:
            return None
        refusal = rules.quota_gate(state, gang, session.amounts(gang, session.largest_gpu_mib))
        if refusal is None or refusal.rule != "quota":
            return None
        return refused_by_quota("preempt", session.snapshot.tree, refusal), True

    def aim(gang: Gang) -> Aim:
        filters = [make(state, gang, session.request_of(gang)) for make in rules.preempt_filters]

        def accepts(victim: Gang) -> bool:
            return victim.priority < gang.priority and all(passes(victim) for passes in filters)

        def judge(taking: Taking) -> str | None:
            return next((found for check in rules.preempt_gates if (found := check(state, taking)) is not None), None)

        return Aim("preempt", [gang.queue], accepts, judge)

    def message(gang: Gang) -> Callable[[Gang, Task], str]:
        return lambda victim, task: f"Pod {task.key} was preempted by higher priority workload {gang.key}"

    take_back(session, Method("preempt", gate, aim, message))


def _lowest_priorities(session: Session) -> dict[int, int]:
    """Queue -> the lowest priority of a group in it; whether it runs is seen later."""
    snapshot = session.snapshot
    rows = snapshot.tree.rows
    return {
        rows[name]: min(snapshot.class_priority(kind.priority_class) for kind in count.groups)
        for name, count in snapshot.census.queues.items()
        if name in rows
    }
