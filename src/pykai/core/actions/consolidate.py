"""Consolidation: running work moves together so that a waiting gang fits; no gang loses anything (cycle:14).

Statements: crowds:limits.
"""

from __future__ import annotations

from pykai.core.actions.action import Action
from pykai.core.actions.evictionaction import (
    EvictionAction,
    PrecheckFailure,
    no_eviction_over_quota,
    run_eviction_action,
)
from pykai.core.actions.reclaim import is_owed
from pykai.core.caching import VersionedValue
from pykai.core.cycle.gangs import Gang
from pykai.core.eviction.freegpus import total_free_gpus
from pykai.core.eviction.search import VictimPolicy
from pykai.core.eviction.victims import was_placed_in_cycle
from pykai.core.hooks import EvictionProposal
from pykai.core.model.queuetree import GPU
from pykai.core.opencycle import Cycle
from pykai.core.report.decisions import NoEviction
from pykai.core.report.evictions import no_other_place_text

#: amounts that sums of fractions may differ by
_SLACK = 1e-6


def consolidate(cycle: Cycle, action: Action) -> None:
    """Move preemptible work where that makes room (cycle:CON-2; queues:Q-286; topo:T-56)."""
    state = cycle.state
    max_gangs = cycle.context.policy.max_consolidation_preemptees
    if max_gangs == 0:
        return
    free_gpus: VersionedValue[float] = VersionedValue()

    def precheck(gang: Gang) -> PrecheckFailure | None:
        if not gang.preemptible:
            return PrecheckFailure(NoEviction(action.name, "not_preemptible"), for_equal_gangs=False)
        free = free_gpus.current(state.version)
        if free is None:
            free = free_gpus.store(state.version, total_free_gpus(state))
        requested = cycle.gangs.least_amounts(gang)[2]
        if requested > free + 1e-6:
            reason = NoEviction(action.name, "too_little_free", "", "GPU", requested / 100.0, free / 100.0)
            return PrecheckFailure(reason, for_equal_gangs=True)
        return _limit_stays_exceeded(cycle, action, gang)

    def victim_policy(gang: Gang) -> VictimPolicy:
        def accepts(victim: Gang) -> bool:
            # Nothing is moved twice in a cycle; a task that is only pipelined has not started and cannot move.
            # A pod that may no longer use its queue would not start elsewhere (access:withdrawn).
            return victim is not gang and victim.entry.denial is None and not was_placed_in_cycle(state, victim)

        queues = list(state.snapshot.tree.roots)
        return VictimPolicy(
            queues, accepts, _objection_unless_all_move, max_gangs, frozenset(), lambda: is_owed(cycle, gang)
        )

    run_eviction_action(cycle, EvictionAction(action, precheck, victim_policy, by_queue=False))


def _limit_stays_exceeded(cycle: Cycle, action: Action, gang: Gang) -> PrecheckFailure | None:
    """A gang beyond the limit of a queue gains nothing: a moved gang is charged as before, so the queue stays full.

    GPUs are compared only where moving cannot change what a share of one costs: memory of GPUs of several sizes and
    devices of claims are left to the search.
    """
    context, snapshot = cycle.context, cycle.context.snapshot
    if context.rules.quota_gate is None:
        return None
    refusal = context.rules.quota_gate(cycle.state, gang, cycle.gangs.least_amounts(gang))
    if refusal is None or refusal.rule != "limit" or refusal.used + refusal.requested <= refusal.bound + _SLACK:
        return None
    costs_the_same = context.smallest_gpu_mib == context.largest_gpu_mib and not snapshot.tasks_with_claims
    if refusal.resource == GPU and not costs_the_same:
        return None
    return PrecheckFailure(no_eviction_over_quota(action.name, snapshot.tree, refusal), for_equal_gangs=True)


def _objection_unless_all_move(proposal: EvictionProposal) -> str | None:
    for gang, losses in proposal.losses:
        if any(not loss.moves for loss in losses):
            return no_other_place_text(gang.key)
    return None
