"""Consolidation: running work is moved together so that a waiting gang fits; nobody loses anything (cycle:14).

Statements: crowds:limits.
"""

from __future__ import annotations

from collections.abc import Callable

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.session import Session
from pykai.core.eviction.evictionaction import Method, refused_by_quota, take_back
from pykai.core.eviction.search import Aim
from pykai.core.eviction.trial import total_free_gpus
from pykai.core.eviction.victims import placed_in_cycle, victims_of
from pykai.core.hooks import Taking
from pykai.core.model.tasks import Task
from pykai.core.queueing.queuetree import GPU
from pykai.core.report.decisions import Verdict

#: amounts that sums of fractions may differ by
_SLACK = 1e-6


def consolidate(session: Session) -> None:
    """Move preemptible work where that makes room (cycle:CON-2; queues:Q-286; topo:T-56)."""
    most = session.policy.max_consolidation_preemptees
    if most == 0:
        return
    free: dict[int, float] = {}

    def gate(gang: Gang) -> tuple[Verdict, bool] | None:
        if not gang.preemptible:
            return Verdict("consolidation", "not_preemptible"), False
        version = session.state.version
        if version not in free:
            free.clear()
            free[version] = total_free_gpus(session)
        asked = session.amounts(gang, session.largest_gpu_mib)[2]
        if asked > free[version] + 1e-6:
            return Verdict("consolidation", "too_little_free", "", "GPU", asked / 100.0, free[version] / 100.0), True
        return _over_limit(session, gang)

    def aim(gang: Gang) -> Aim:
        def accepts(victim: Gang) -> bool:
            # Nobody is moved twice in a cycle; what was only promised a place is not there to be moved.
            return victim is not gang and not placed_in_cycle(session, victim)

        return Aim("consolidation", victims_of(session).leaves(), accepts, _all_move, most, frozenset())

    def message(gang: Gang) -> Callable[[Gang, Task], str]:
        return lambda victim, task: (
            f"Pod {task.key} was preempted and rescheduled due to bin packing (resource consolidation) procedure"
        )

    take_back(session, Method("consolidation", gate, aim, message, by_queue=False))


def _over_limit(session: Session, gang: Gang) -> tuple[Verdict, bool] | None:
    """A gang beyond the limit of a queue gains nothing: who moves is charged as before, so the queue stays full.

    GPUs are compared only where moving cannot change what a share of one costs: memory of GPUs of several sizes and
    devices of claims are left to the search.
    """
    if session.rules.quota_gate is None:
        return None
    refusal = session.rules.quota_gate(session.state, gang, session.amounts(gang, session.largest_gpu_mib))
    if refusal is None or refusal.rule != "limit" or refusal.used + refusal.requested <= refusal.bound + _SLACK:
        return None
    costs_the_same = session.smallest_gpu_mib == session.largest_gpu_mib and not session.snapshot.tasks_with_claims
    if refusal.resource == GPU and not costs_the_same:
        return None
    return refused_by_quota("consolidation", session.snapshot.tree, refusal), True


def _all_move(taking: Taking) -> str | None:
    for gang, losses in taking.losses:
        if any(not loss.moves for loss in losses):
            return f"there is no other place for {gang.key}"
    return None
