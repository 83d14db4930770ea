"""Reclaim: queues get back what others hold beyond their share (cycle:14, queues:11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from pykai.core.actions.action import Action
from pykai.core.actions.evictionaction import EvictionAction, PrecheckFailure, run_eviction_action
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.queuefigures import queue_figures
from pykai.core.cycle.state import State
from pykai.core.eviction.search import VictimPolicy
from pykai.core.eviction.victims import VictimTable
from pykai.core.hooks import EvictionProposal, FilterBySide
from pykai.core.model.queuetree import QueueAmounts, QueueTree
from pykai.core.opencycle import Cycle
from pykai.core.queueing.reclaimrules import is_above_share
from pykai.core.report.decisions import QueueFigures


def reclaim(cycle: Cycle, action: Action) -> None:
    """Let queues below their share take from those above."""
    rules, state, gangs = cycle.context.rules, cycle.state, cycle.gangs
    if rules.may_reclaim is None:
        return
    may_reclaim = rules.may_reclaim

    def precheck(gang: Gang) -> PrecheckFailure | None:
        forbidden = may_reclaim(state, gang, gangs.requested_amounts(gang))
        return None if forbidden is None else PrecheckFailure(forbidden, for_equal_gangs=False)

    def victim_policy(gang: Gang) -> VictimPolicy:
        required = gangs.requested_amounts(gang)
        filters = [make(state, gang, required) for make in rules.reclaim_filters]
        accepted_by_gang: dict[str, bool] = {}

        def accepts(victim: Gang) -> bool:
            accepted = accepted_by_gang.get(victim.key)
            if accepted is None:
                accepted = accepted_by_gang[victim.key] = all(passes(victim) for passes in filters)
            return accepted

        def objection(proposal: EvictionProposal) -> str | None:
            return next((text for check in rules.reclaim_gates if (text := check(state, proposal)) is not None), None)

        queues, losing = _queues_for(cycle, gang, required)
        losing_leaves = frozenset(chain.from_iterable(map(cycle.tables.victims().leaves_below, losing)))
        # Where no queue may lose anything for good, this is a consolidation, with the same limit.
        max_gangs = -1 if losing_leaves else cycle.context.policy.max_consolidation_preemptees
        return VictimPolicy(
            queues if max_gangs else [],
            accepts if filters else None,
            objection,
            max_gangs,
            losing_leaves,
            may_go_first=lambda: bool(losing_leaves),
            accepts_by_time=bool(filters),
        )

    def queues_of(gang: Gang) -> Callable[[Gang], tuple[QueueFigures, ...]]:
        return competing_queues(state, gang)

    run_eviction_action(
        cycle, EvictionAction(action, precheck, victim_policy, queues_of=queues_of, precheck_first=True)
    )


def is_owed(cycle: Cycle, gang: Gang) -> bool:
    """Whether a gang stays within the fair share of its queue while another has more than its own, and can lose it
    (queues:Q-260, Q-270).

    One that has more than its quota alone owes nothing to a gang for which no queue would lose anything.
    """
    may_reclaim, required = cycle.context.rules.may_reclaim, cycle.gangs.requested_amounts(gang)
    if may_reclaim is None or may_reclaim(cycle.state, gang, required) is not None:
        return False
    ledger, tree = cycle.state.ledger, cycle.state.snapshot.tree
    _, losing = _queues_for(cycle, gang, required)
    return any(is_above_share(ledger, tree.diverging_ancestors(gang.queue, queue)[1]) for queue in losing)


def _queues_for(cycle: Cycle, gang: Gang, required: QueueAmounts) -> tuple[list[int], list[int]]:
    """Queues that may lose something to a gang, and those of them that may lose it for good."""
    rules, state = cycle.context.rules, cycle.state
    sources = [make(state, gang, required) for make in rules.reclaim_from]
    losers = [make(state, gang, required) for make in rules.reclaim_losers]
    return _queues_that_may_lose(cycle.tables.victims(), state.snapshot.tree, gang.queue, sources, losers)


def _queues_that_may_lose(
    victims: VictimTable,
    tree: QueueTree,
    reclaimer: int,
    sources: Sequence[Callable[[int], bool]],
    losers: Sequence[Callable[[int], bool]],
) -> tuple[list[int], list[int]]:
    """Queues with victims that may lose something, all below each alike, and those that may lose it for good."""
    by_side = [each.passes for each in sources if isinstance(each, FilterBySide)]
    losers_by_side = [each.passes for each in losers if isinstance(each, FilterBySide)]
    if len(by_side) < len(sources) or len(losers_by_side) < len(losers):
        leaves = [leaf for leaf in victims.leaf_queues() if leaf != reclaimer]
        queues = victims.with_units(leaf for leaf in leaves if all(passes(leaf) for passes in sources))
        return queues, [leaf for leaf in queues if all(passes(leaf) for passes in losers)]
    # A few queues beside the path of the reclaimer's queue answer for all leaves.
    own = {side: ancestor for ancestor, side in tree.sides(reclaimer) if all(p(ancestor, side) for p in by_side)}
    queues = victims.with_units(own)
    return queues, [side for side in queues if all(passes(own[side], side) for passes in losers_by_side)]


def competing_queues(state: State, gang: Gang) -> Callable[[Gang], tuple[QueueFigures, ...]]:
    """Returns a function: victim -> the competing queues above it and above the gang, with their present figures."""
    tree = state.snapshot.tree
    # Rows are replaced, never changed: these keep the figures before any eviction.
    allocated_before = list(state.ledger.allocated)
    figures: dict[int, tuple[QueueFigures, ...]] = {}

    def queues_of(victim: Gang) -> tuple[QueueFigures, ...]:
        if victim.queue not in figures:
            reclaimer_side, victim_side = tree.diverging_ancestors(gang.queue, victim.queue)
            figures[victim.queue] = tuple(
                queue_figures(tree, state.ledger, queue, allocated_before[queue])
                for queue in (victim_side, reclaimer_side)
            )
        return figures[victim.queue]

    return queues_of
