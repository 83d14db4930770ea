"""Reclaim: queues get back what others hold beyond their share (cycle:14, queues:11)."""

from __future__ import annotations

from collections.abc import Callable

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.session import Session
from pykai.core.eviction.evictionaction import Method, take_back
from pykai.core.eviction.search import Aim
from pykai.core.eviction.victims import victims_of
from pykai.core.hooks import Taking
from pykai.core.model.tasks import Task
from pykai.core.plan import figures_of
from pykai.core.report.decisions import Verdict
from pykai.core.report.sentences import queue_line


def reclaim(session: Session) -> None:
    """Let queues below their share take from those above."""
    rules, state = session.rules, session.state
    if rules.may_reclaim is None:
        return
    may_reclaim = rules.may_reclaim

    def gate(gang: Gang) -> tuple[Verdict, bool] | None:
        verdict = may_reclaim(state, gang, session.request_of(gang))
        return None if verdict is None else (verdict, False)

    def aim(gang: Gang) -> Aim:
        required = session.request_of(gang)
        filters = [make(state, gang, required) for make in rules.reclaim_filters]
        known: dict[str, bool] = {}

        def accepts(victim: Gang) -> bool:
            found = known.get(victim.key)
            if found is None:
                found = known[victim.key] = all(passes(victim) for passes in filters)
            return found

        def judge(taking: Taking) -> str | None:
            return next((found for check in rules.reclaim_gates if (found := check(state, taking)) is not None), None)

        sources = [make(state, gang, required) for make in rules.reclaim_from]
        victims = victims_of(session)
        leaves = [
            leaf
            for leaf in victims.leaves()
            if leaf != gang.queue and all(may_lose(leaf) for may_lose in sources) and victims.line(leaf)
        ]
        losers = [make(state, gang, required) for make in rules.reclaim_losers]
        losing = frozenset(leaf for leaf in leaves if all(may_lose(leaf) for may_lose in losers))
        # Where nobody may lose anything for good, this is a consolidation, and as large as one may be.
        most = -1 if losing else session.policy.max_consolidation_preemptees
        return Aim("reclaim", leaves if most else [], accepts, judge, most, losing)

    def message(gang: Gang) -> Callable[[Gang, Task], str]:
        lines: dict[int, str] = {}
        # Rows are replaced, never changed: these stay as they are before anyone is evicted.
        before = list(state.ledger.allocated)

        def text(victim: Gang, task: Task) -> str:
            if victim.queue not in lines:
                mine, theirs = session.snapshot.tree.diverging(gang.queue, victim.queue)
                both = (queue_line(figures_of(session, queue, before[queue])) for queue in (theirs, mine))
                lines[victim.queue] = "\n".join(both)
            return f"Pod {task.key} was preempted by workload {gang.key}.\n{lines[victim.queue]}"

        return text

    take_back(session, Method("reclaim", gate, aim, message, gate_first=True))
