"""What reclaim, preempt and consolidation have in common (cycle:14).

Waiting gangs are looked at in the fair order.  Each passes its action's own gate, is skipped if an easier one of its
kind has failed, and is then searched for; a set of victims that suffices is carried out at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

from pykai.api import names
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.journal import CommitResult
from pykai.core.cycle.recording import EvictionCause, record_decisions
from pykai.core.cycle.session import Session
from pykai.core.cycle.validate import check_state
from pykai.core.eviction.search import ActionBudget, SearchResult, VictimPolicy, find_victims
from pykai.core.eviction.signatures import FailedGangs
from pykai.core.eviction.victims import VictimTable
from pykai.core.eviction.waitinglines import WaitingLines
from pykai.core.hooks import PlacementRequest, PreFailure
from pykai.core.model.queuetree import GPU, RESOURCE_NAMES, QueueTree
from pykai.core.model.tasks import Task
from pykai.core.placing.task import request_for_task, unmet_text
from pykai.core.queueing.queueledger import CapacityRefusal as Over
from pykai.core.queueing.queuewalk import gangs_by_leaf_queue, lines_by_leaf_queue
from pykai.core.report.decisions import FreeRoomOnly, NoEviction, NoPlace, WithinDelay


class EvictionAction(NamedTuple):
    """One action that takes resources back."""

    action: str
    #: which rule forbids it to a gang before anything is searched, and whether equal gangs need not be asked
    precheck: Callable[[Gang], tuple[NoEviction, bool] | None]
    victim_policy: Callable[[Gang], VictimPolicy]
    #: what is told of the pods that are evicted for a gang
    message: Callable[[Gang], Callable[[Gang, Task], str]]
    #: jobs of different queues are different kinds
    by_queue: bool = True
    #: asked before the memory of what failed
    precheck_first: bool = False


def run_eviction_action(session: Session, eviction_action: EvictionAction) -> None:
    """Serve waiting gangs by evicting others."""
    state, action = session.state, eviction_action.action
    budget = ActionBudget(session, session.policy.search_budgets, action)
    failed_gangs = FailedGangs(session, by_queue=eviction_action.by_queue)
    depth = session.policy.queue_depth.get(action)
    walk = session.queue_walk(
        lines_by_leaf_queue(_candidates_by_leaf_queue(session), session.order_key_of, session.requested_amounts, depth)
    )
    while (gang := walk.pop()) is not None:
        if eviction_action.precheck_first and (forbidden := eviction_action.precheck(gang)) is not None:
            session.record_no_eviction(gang, forbidden[0])
            continue
        if (similar := failed_gangs.failed_alike(gang)) is not None:
            session.record_no_eviction(gang, NoEviction(action, "alike", other=similar))
            continue
        if _refuse_if_unresolvable(session, gang):
            continue
        if not eviction_action.precheck_first and (forbidden := eviction_action.precheck(gang)) is not None:
            session.record_no_eviction(gang, forbidden[0])
            if forbidden[1]:
                failed_gangs.add(gang)
            continue
        mark = state.mark()
        message = eviction_action.message(gang)
        if session.rules.unresolvable and _is_unresolvable(session, gang):
            # What a search would find, once it had tried everything.
            result = SearchResult("generators_exhausted")
        else:
            result = find_victims(session, gang, eviction_action.victim_policy(gang), budget)
        if result.outcome == "solved" and gang.complete:
            _commit(session, gang, state.commit(mark), EvictionCause(action, message, gang.key, gang.group.uid))
            continue
        # Whatever a search leaves behind is undone (cycle:PG-8, Do better).
        state.rollback(mark)
        session.record_no_eviction(gang, NoEviction(action, result.outcome, other=result.objection))
        if result.outcome in ("deadline_exhausted", "not_attempted"):
            session.stopped_searches.append(
                f"{action} stopped at {gang.key}: {result.outcome}, {state.work} units of work done"
            )
            return
        failed_gangs.add(gang)


def no_eviction_over_quota(action: str, tree: QueueTree, refusal: Over) -> NoEviction:
    """The figures of a limit or quota that keeps an action from helping a gang."""
    scale = 100.0 if refusal.resource == GPU else 1.0
    would_have, bound = (refusal.used + refusal.requested) / scale, refusal.bound / scale
    return NoEviction(
        action, refusal.rule, tree.names[refusal.queue], RESOURCE_NAMES[refusal.resource], would_have, bound
    )


# Victims that move are deleted like the others (cycle:SOL-16).
def _commit(session: Session, gang: Gang, outcome: CommitResult, cause: EvictionCause) -> None:
    record_decisions(session, outcome, cause)
    changed = {other.key: other for other in (gang, *outcome.gangs_by_task.values())}
    for table in (session.memo[VictimTable], session.memo[WaitingLines]):
        for other in changed.values():
            table.refresh(other)
        table.version = session.state.version
    if session.policy.validate:
        check_state(session)


class _Candidates(NamedTuple):
    """Those who may trigger evictions, in line, and the state for which that holds."""

    version: int
    by_leaf: dict[int, list[tuple[tuple[object, ...], Gang]]]


def _candidates_by_leaf_queue(session: Session) -> dict[int, list[tuple[tuple[object, ...], Gang]]]:
    """The same for one action after the other, as long as none of them does anything."""
    cached: _Candidates | None = session.memo.get(_Candidates)
    if cached is None or cached.version != session.state.version:
        cached = _Candidates(session.state.version, gangs_by_leaf_queue(_candidates(session), session.order_key_of))
        session.memo[_Candidates] = cached
    return cached.by_leaf


def _candidates(session: Session) -> Iterator[Gang]:
    """Gangs that may trigger evictions now (cycle:ORD-1, POL-4)."""
    tree = session.snapshot.tree
    for gang in session.waiting_gangs():
        if gang.queue < 0 or tree.children[gang.queue] or gang.group.tree_error or gang.unsupported:
            continue
        if not gang.unplaced or not session.next_tasks(gang):
            continue
        delayed = _eviction_delay(session, gang)
        if delayed is None:
            yield gang
        elif delayed not in session.refusals.get(gang.key, ()):
            session.record_refusal(gang, delayed)


def _eviction_delay(session: Session, gang: Gang) -> FreeRoomOnly | WithinDelay | None:
    """Until when a gang may not trigger evictions (queues:Q-321, Q-322)."""
    group = gang.group
    if (confined := session.snapshot.restricted_to_free.get(gang.key)) is not None:
        return confined
    if session.policy.honour_preemption_policy:
        priority_class = session.snapshot.priority_classes.get(group.priority_class)
        if priority_class is not None and priority_class.preemption_policy == "Never":
            return WithinDelay(0, None)
    delay = group.preemption_delay_ns
    if not delay or delay <= 0:
        return None
    since = max(group.creation_ns, group.last_eviction_ns or 0)
    if group.key in session.evicted_groups:
        since = session.snapshot.now_ns
    return None if session.state.passed(since + delay) else WithinDelay(delay, since + delay)


def _is_unresolvable(session: Session, gang: Gang) -> bool:
    """Whether some task can go to no node, whichever pods leave."""
    batches = session.next_tasks(gang)
    tasks = [task for batch in batches for task in batch.tasks]
    seen: set[Hashable] = set()
    for batch in batches:
        for task in batch.tasks:
            request = request_for_task(session, gang, batch.leaf, task)
            # Subgroups differ in their topology.
            key = (id(batch.leaf), session.rankings.request_key(request))
            if key not in seen:
                seen.add(key)
                if any(hopeless(request, tasks) for hopeless in session.rules.unresolvable):
                    return True
    return False


#: The order in which the guard asks (cycle:FLT-9), not that of a placement.
_PREDICATE_ORDER = (names.PREDICATE_VOLUME_BINDING, names.PREDICATE_CONFIG_MAP, names.PREDICATE_MAX_NODE_POOL_RESOURCES)


def _predicate_position(failure: PreFailure) -> int:
    return _PREDICATE_ORDER.index(failure.predicate) if failure.predicate in _PREDICATE_ORDER else len(_PREDICATE_ORDER)


def _refuse_if_unresolvable(session: Session, gang: Gang) -> bool:
    """Whether no eviction would help a task (cycle:FLT-9); told like a failure to place it."""
    for batch in session.next_tasks(gang):
        seen: set[int] = set()
        for task in batch.tasks:
            if task.shape.id in seen:
                continue
            seen.add(task.shape.id)
            request = PlacementRequest(task, gang, batch.leaf, session.snapshot.vectors[task.shape])
            failures = [
                failed_check
                for check in session.rules.pre_place
                if (failed_check := check(session.state, request)) is not None
            ]
            if any(failure.unresolvable for failure in failures):
                failures.sort(key=_predicate_position)
                recorded = session.refusals.get(gang.key, ())
                if not any(isinstance(refusal, NoPlace) and refusal.unresolvable for refusal in recorded):
                    leaf, base = batch.leaf, unmet_text(failures)
                    session.record_refusal(
                        gang, NoPlace(task.key, "pod", 0, leaf.name, leaf.minimum, base, unresolvable=True)
                    )
                return True
    return False
