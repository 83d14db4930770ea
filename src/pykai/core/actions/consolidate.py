"""Consolidation: running work is moved together so that a waiting gang fits; nobody loses anything (cycle:14).

Statements: crowds:limits.
"""

from __future__ import annotations

from collections.abc import Callable

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.session import Session
from pykai.core.eviction.evictionaction import EvictionAction, no_eviction_over_quota, run_eviction_action
from pykai.core.eviction.search import VictimPolicy
from pykai.core.eviction.trial import total_free_gpus
from pykai.core.eviction.victims import victim_table_of, was_placed_in_cycle
from pykai.core.hooks import EvictionProposal
from pykai.core.model.queuetree import GPU
from pykai.core.model.tasks import Task
from pykai.core.report.decisions import NoEviction

#: amounts that sums of fractions may differ by
_SLACK = 1e-6


def consolidate(session: Session) -> None:
    """Move preemptible work where that makes room (cycle:CON-2; queues:Q-286; topo:T-56)."""
    max_gangs = session.policy.max_consolidation_preemptees
    if max_gangs == 0:
        return
    free: dict[int, float] = {}

    def precheck(gang: Gang) -> tuple[NoEviction, bool] | None:
        if not gang.preemptible:
            return NoEviction("consolidation", "not_preemptible"), False
        version = session.state.version
        if version not in free:
            free.clear()
            free[version] = total_free_gpus(session)
        requested = session.next_task_amounts(gang, session.largest_gpu_mib)[2]
        if requested > free[version] + 1e-6:
            return NoEviction(
                "consolidation", "too_little_free", "", "GPU", requested / 100.0, free[version] / 100.0
            ), True
        return _limit_stays_exceeded(session, gang)

    def victim_policy(gang: Gang) -> VictimPolicy:
        def accepts(victim: Gang) -> bool:
            # Nobody is moved twice in a cycle; what was only promised a place is not there to be moved.
            return victim is not gang and not was_placed_in_cycle(session, victim)

        return VictimPolicy(
            "consolidation",
            victim_table_of(session).leaf_queues(),
            accepts,
            _objection_unless_all_move,
            max_gangs,
            frozenset(),
        )

    def message(gang: Gang) -> Callable[[Gang, Task], str]:
        return lambda victim, task: (
            f"Pod {task.key} was preempted and rescheduled due to bin packing (resource consolidation) procedure"
        )

    run_eviction_action(session, EvictionAction("consolidation", precheck, victim_policy, message, by_queue=False))


def _limit_stays_exceeded(session: Session, gang: Gang) -> tuple[NoEviction, bool] | None:
    """A gang beyond the limit of a queue gains nothing: who moves is charged as before, so the queue stays full.

    GPUs are compared only where moving cannot change what a share of one costs: memory of GPUs of several sizes and
    devices of claims are left to the search.
    """
    if session.rules.quota_gate is None:
        return None
    refusal = session.rules.quota_gate(session.state, gang, session.next_task_amounts(gang, session.largest_gpu_mib))
    if refusal is None or refusal.rule != "limit" or refusal.used + refusal.requested <= refusal.bound + _SLACK:
        return None
    costs_the_same = session.smallest_gpu_mib == session.largest_gpu_mib and not session.snapshot.tasks_with_claims
    if refusal.resource == GPU and not costs_the_same:
        return None
    return no_eviction_over_quota("consolidation", session.snapshot.tree, refusal), True


def _objection_unless_all_move(proposal: EvictionProposal) -> str | None:
    for gang, losses in proposal.losses:
        if any(not loss.moves for loss in losses):
            return f"there is no other place for {gang.key}"
    return None
