"""Reclaim: queues get back what others hold beyond their share (cycle:14, queues:11)."""

from __future__ import annotations

from collections.abc import Callable

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.session import Session
from pykai.core.eviction.evictionaction import EvictionAction, run_eviction_action
from pykai.core.eviction.search import VictimPolicy
from pykai.core.eviction.victims import victim_table_of
from pykai.core.hooks import EvictionProposal
from pykai.core.model.tasks import Task
from pykai.core.plan import queue_figures
from pykai.core.report.decisions import NoEviction
from pykai.core.report.sentences import queue_line


def reclaim(session: Session) -> None:
    """Let queues below their share take from those above."""
    rules, state = session.rules, session.state
    if rules.may_reclaim is None:
        return
    may_reclaim = rules.may_reclaim

    def precheck(gang: Gang) -> tuple[NoEviction, bool] | None:
        forbidden = may_reclaim(state, gang, session.requested_amounts(gang))
        return None if forbidden is None else (forbidden, False)

    def victim_policy(gang: Gang) -> VictimPolicy:
        required = session.requested_amounts(gang)
        filters = [make(state, gang, required) for make in rules.reclaim_filters]
        accepted_by_gang: dict[str, bool] = {}

        def accepts(victim: Gang) -> bool:
            accepted = accepted_by_gang.get(victim.key)
            if accepted is None:
                accepted = accepted_by_gang[victim.key] = all(passes(victim) for passes in filters)
            return accepted

        def objection(proposal: EvictionProposal) -> str | None:
            return next((text for check in rules.reclaim_gates if (text := check(state, proposal)) is not None), None)

        source_filters = [make(state, gang, required) for make in rules.reclaim_from]
        victims = victim_table_of(session)
        leaf_queues = [
            leaf
            for leaf in victims.leaf_queues()
            if leaf != gang.queue and all(may_lose(leaf) for may_lose in source_filters) and victims.units_of(leaf)
        ]
        loser_filters = [make(state, gang, required) for make in rules.reclaim_losers]
        losing_leaves = frozenset(leaf for leaf in leaf_queues if all(may_lose(leaf) for may_lose in loser_filters))
        # Where nobody may lose anything for good, this is a consolidation, and as large as one may be.
        max_gangs = -1 if losing_leaves else session.policy.max_consolidation_preemptees
        return VictimPolicy("reclaim", leaf_queues if max_gangs else [], accepts, objection, max_gangs, losing_leaves)

    def message(gang: Gang) -> Callable[[Gang, Task], str]:
        lines: dict[int, str] = {}
        # Rows are replaced, never changed: these stay as they are before anyone is evicted.
        allocated_before = list(state.ledger.allocated)

        def text(victim: Gang, task: Task) -> str:
            if victim.queue not in lines:
                reclaimer_side, victim_side = session.snapshot.tree.diverging_ancestors(gang.queue, victim.queue)
                queue_texts = (
                    queue_line(queue_figures(session, queue, allocated_before[queue]))
                    for queue in (victim_side, reclaimer_side)
                )
                lines[victim.queue] = "\n".join(queue_texts)
            return f"Pod {task.key} was preempted by workload {gang.key}.\n{lines[victim.queue]}"

        return text

    run_eviction_action(session, EvictionAction("reclaim", precheck, victim_policy, message, precheck_first=True))
