"""What reclaim, preempt and consolidation have in common (cycle:14).

Waiting gangs are tried in the fair order.  Each passes its action's own gate, is skipped if an easier gang of its kind
has failed, and is then searched for; a sufficient set of victims is evicted at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

from pykai.api import names
from pykai.core.actions.action import Action
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.journal import CommitResult
from pykai.core.cycle.queuewalk import QueueWalk, gangs_by_leaf_queue, lines_by_leaf_queue
from pykai.core.cycle.recording import EvictionCause, record_decisions
from pykai.core.cycle.validate import check_state
from pykai.core.eviction.search import ActionBudget, SearchResult, VictimPolicy
from pykai.core.eviction.signatures import FailedGangs
from pykai.core.eviction.tables import GangsByLeafQueue
from pykai.core.hooks import PreFailure
from pykai.core.model.queuetree import GPU, RESOURCE_NAMES, QueueTree
from pykai.core.opencycle import Cycle
from pykai.core.placing.task import request_for_task, unmet_text
from pykai.core.queueing.queueledger import CapacityRefusal
from pykai.core.report.decisions import FreeRoomOnly, NoEviction, NoPlace, QueueFigures, StoppedSearch, WithinDelay


class PrecheckFailure(NamedTuple):
    """The rule that forbids an action to a gang before the search."""

    reason: NoEviction
    #: gangs of the same kind are not checked again in this action
    for_equal_gangs: bool


class EvictionAction(NamedTuple):
    """An action that evicts."""

    action: Action
    precheck: Callable[[Gang], PrecheckFailure | None]
    victim_policy: Callable[[Gang], VictimPolicy]
    #: returns, before the search for a gang, the queue figures for the sentence about a victim
    queues_of: Callable[[Gang], Callable[[Gang], tuple[QueueFigures, ...]]] | None = None
    #: jobs of different queues are different kinds
    by_queue: bool = True
    #: checked before the cache of failures
    precheck_first: bool = False

    def cause_for(self, gang: Gang) -> EvictionCause:
        """Why pods are evicted for a gang; made before the search, because it shows queues as they were."""
        texts = self.action.texts
        assert texts is not None
        queues_of = None if self.queues_of is None else self.queues_of(gang)
        return EvictionCause(self.action.name, texts.event, gang.key, gang.group.uid, queues_of)


def run_eviction_action(cycle: Cycle, eviction_action: EvictionAction) -> None:
    """Serve waiting gangs by evicting others."""
    state, decisions, action = cycle.state, cycle.decisions, eviction_action.action.name
    policy = cycle.context.policy
    budget = ActionBudget(state, policy.search_budgets, action)
    failed_gangs = FailedGangs(
        state, cycle.gangs, by_queue=eviction_action.by_queue, reuse_failures=policy.reuse_failures
    )
    walk = _eviction_walk(cycle, action)
    while (gang := walk.pop()) is not None:
        if eviction_action.precheck_first and (forbidden := eviction_action.precheck(gang)) is not None:
            decisions.record_no_eviction(gang, forbidden.reason)
            continue
        if (similar := failed_gangs.failed_alike(gang)) is not None:
            decisions.record_no_eviction(gang, NoEviction(action, "alike", other=similar))
            continue
        if _refuse_if_unresolvable(cycle, gang):
            continue
        if not eviction_action.precheck_first and (forbidden := eviction_action.precheck(gang)) is not None:
            decisions.record_no_eviction(gang, forbidden.reason)
            if forbidden.for_equal_gangs:
                failed_gangs.add(gang)
            continue
        mark = state.mark()
        cause = eviction_action.cause_for(gang)
        if cycle.context.rules.unresolvable and _is_unresolvable(cycle, gang):
            # The result of a search that has tried everything.
            result = SearchResult("generators_exhausted")
        else:
            reduced = budget.is_reduced()
            result = cycle.victims.find(gang, eviction_action.victim_policy(gang), budget)
            cycle.context.listener.search_ended(result.outcome, reduced_budget=reduced)
        if result.outcome == "solved" and gang.complete:
            _commit(cycle, gang, state.commit(mark), cause)
            decisions.served_first.extend(result.served_first)
            continue
        # Leftovers of a search are undone (cycle:PG-8, Do better).
        state.rollback(mark)
        decisions.record_no_eviction(gang, NoEviction(action, result.outcome, other=result.objection))
        if result.over_budget is not None and result.over_budget not in decisions.refusals.get(gang.key, ()):
            decisions.record_refusal(gang, result.over_budget)
        if result.outcome in ("deadline_exhausted", "not_attempted"):
            decisions.stopped_searches.append(StoppedSearch(action, gang.key, result.outcome, state.work))
            return
        failed_gangs.add(gang)


def _eviction_walk(cycle: Cycle, action: str) -> QueueWalk:
    """The fair order of the gangs that may trigger evictions."""
    gangs = cycle.gangs
    candidates = cycle.tables.candidates(lambda: _candidates_by_leaf_queue(cycle))
    depth = cycle.context.policy.queue_depth.get(action)
    return gangs.queue_walk(lines_by_leaf_queue(candidates, gangs.order_key_of, gangs.requested_amounts, depth))


def no_eviction_over_quota(action: str, tree: QueueTree, refusal: CapacityRefusal) -> NoEviction:
    """The figures of a limit or quota that keeps an action from helping a gang."""
    scale = 100.0 if refusal.resource == GPU else 1.0
    would_have, bound = (refusal.used + refusal.requested) / scale, refusal.bound / scale
    return NoEviction(
        action, refusal.rule, tree.names[refusal.queue], RESOURCE_NAMES[refusal.resource], would_have, bound
    )


# Victims that move are deleted like the others (cycle:SOL-16).
def _commit(cycle: Cycle, gang: Gang, outcome: CommitResult, cause: EvictionCause) -> None:
    record_decisions(cycle.decisions, cycle.state, cycle.context.rules, outcome, cause)
    changed = {other.key: other for other in (gang, *outcome.gangs_by_task.values())}
    cycle.tables.refresh(changed.values())
    if cycle.context.policy.validate:
        check_state(cycle.state, cycle.gangs)


def _candidates_by_leaf_queue(cycle: Cycle) -> GangsByLeafQueue:
    return gangs_by_leaf_queue(_candidates(cycle), cycle.gangs.order_key_of)


def _candidates(cycle: Cycle) -> Iterator[Gang]:
    """Gangs that may trigger evictions now (cycle:ORD-1, POL-4)."""
    tree, decisions = cycle.state.snapshot.tree, cycle.decisions
    for gang in cycle.gangs.waiting():
        if gang.queue < 0 or tree.children[gang.queue] or gang.group.tree_error or gang.unsupported:
            continue
        if not gang.unplaced or not cycle.gangs.next_tasks(gang):
            continue
        delayed = _eviction_delay(cycle, gang)
        if delayed is None:
            yield gang
        elif delayed not in decisions.refusals.get(gang.key, ()):
            decisions.record_refusal(gang, delayed)


def _eviction_delay(cycle: Cycle, gang: Gang) -> FreeRoomOnly | WithinDelay | None:
    """Until when a gang may not trigger evictions (queues:Q-321, Q-322)."""
    group, snapshot = gang.group, cycle.context.snapshot
    if (free_room_only := snapshot.free_room_only.get(gang.key)) is not None:
        return free_room_only
    if cycle.context.policy.honour_preemption_policy:
        priority_class = snapshot.priority_classes.get(group.priority_class)
        if priority_class is not None and priority_class.preemption_policy == "Never":
            return WithinDelay(0, None)
    delay = group.preemption_delay_ns
    if not delay or delay <= 0:
        return None
    since = max(group.creation_ns, group.last_eviction_ns or 0)
    if group.key in cycle.decisions.evicted_groups:
        since = snapshot.now_ns
    return None if cycle.state.passed(since + delay) else WithinDelay(delay, since + delay)


def _is_unresolvable(cycle: Cycle, gang: Gang) -> bool:
    """Whether some task fits no node, whichever pods leave."""
    batches = cycle.gangs.next_tasks(gang)
    tasks = [task for batch in batches for task in batch.tasks]
    seen: set[Hashable] = set()
    for batch in batches:
        for task in batch.tasks:
            request = request_for_task(cycle.state, gang, batch.leaf, task)
            # Subgroups differ in their topology.
            key = (id(batch.leaf), cycle.rankings.request_key(request))
            if key not in seen:
                seen.add(key)
                if any(hopeless(request, tasks) for hopeless in cycle.context.rules.unresolvable):
                    return True
    return False


#: The order of the checks before evictions (cycle:FLT-9), not that of a placement.
_PREDICATE_ORDER = (names.PREDICATE_VOLUME_BINDING, names.PREDICATE_CONFIG_MAP, names.PREDICATE_MAX_NODE_POOL_RESOURCES)


def _predicate_position(failure: PreFailure) -> int:
    return _PREDICATE_ORDER.index(failure.predicate) if failure.predicate in _PREDICATE_ORDER else len(_PREDICATE_ORDER)


def _refuse_if_unresolvable(cycle: Cycle, gang: Gang) -> bool:
    """Whether no eviction would help a task (cycle:FLT-9); reported like a failure to place it."""
    state, decisions = cycle.state, cycle.decisions
    for batch in cycle.gangs.next_tasks(gang):
        seen: set[int] = set()
        for task in batch.tasks:
            if task.shape.id in seen:
                continue
            seen.add(task.shape.id)
            request = request_for_task(state, gang, batch.leaf, task)
            failures = [
                failed_check
                for check in cycle.context.rules.pre_place
                if (failed_check := check(state, request)) is not None
            ]
            if any(failure.unresolvable for failure in failures):
                failures.sort(key=_predicate_position)
                recorded = decisions.refusals.get(gang.key, ())
                if not any(isinstance(refusal, NoPlace) and refusal.unresolvable for refusal in recorded):
                    leaf, base = batch.leaf, unmet_text(failures)
                    decisions.record_refusal(
                        gang, NoPlace(task.key, "pod", 0, leaf.name, leaf.minimum, base, unresolvable=True)
                    )
                return True
    return False
