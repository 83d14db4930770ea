"""What reclaim, preempt and consolidation have in common (cycle:14).

Waiting gangs are looked at in the fair order.  Each passes its action's own gate, is skipped if an easier one of its
kind has failed, and is then searched for; a set of victims that suffices is carried out at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

from pykai.api import names
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.journal import Outcome
from pykai.core.cycle.recording import Cause, carry_out
from pykai.core.cycle.session import Session
from pykai.core.cycle.validate import check_state
from pykai.core.eviction.search import Aim, Budget, Found, search
from pykai.core.eviction.signatures import Failed
from pykai.core.eviction.victims import Victims
from pykai.core.hooks import Ask, PreFailure
from pykai.core.model.tasks import Task
from pykai.core.placing.task import ask_of, unmet_text
from pykai.core.queueing.queueledger import Refusal as Over
from pykai.core.queueing.queuetree import GPU, RESOURCE_NAMES, QueueTree
from pykai.core.queueing.queuewalk import in_line, lines_of
from pykai.core.queueing.waitinglines import Standing
from pykai.core.report.decisions import FreeRoomOnly, NoPlace, Verdict, WithinDelay


class Method(NamedTuple):
    """One action that takes resources back."""

    action: str
    #: which rule forbids it to a gang before anything is searched, and whether equal gangs need not be asked
    gate: Callable[[Gang], tuple[Verdict, bool] | None]
    aim: Callable[[Gang], Aim]
    #: what is told of the pods that are evicted for a gang
    message: Callable[[Gang], Callable[[Gang, Task], str]]
    #: jobs of different queues are different kinds
    by_queue: bool = True
    #: asked before the memory of what failed
    gate_first: bool = False


def take_back(session: Session, method: Method) -> None:
    """Serve waiting gangs by evicting others."""
    state, action = session.state, method.action
    budget = Budget(session, session.policy.search_budgets, action)
    failed = Failed(session, by_queue=method.by_queue)
    depth = session.policy.queue_depth.get(action)
    walk = session.queue_walk(lines_of(_waiting(session), session.place_of, session.request_of, depth))
    while (gang := walk.pop()) is not None:
        if method.gate_first and (forbidden := method.gate(gang)) is not None:
            session.judge(gang, forbidden[0])
            continue
        if (like := failed.covers(gang)) is not None:
            session.judge(gang, Verdict(action, "alike", other=like))
            continue
        if _cannot_help(session, gang):
            continue
        if not method.gate_first and (forbidden := method.gate(gang)) is not None:
            session.judge(gang, forbidden[0])
            if forbidden[1]:
                failed.add(gang)
            continue
        mark = state.mark()
        message = method.message(gang)
        if session.rules.hopeless and _kept_out(session, gang):
            # What a search would find, once it had tried everything.
            found = Found("generators_exhausted")
        else:
            found = search(session, gang, method.aim(gang), budget)
        if found.result == "solved" and gang.complete:
            _commit(session, gang, state.commit(mark), Cause(action, message, gang.key, gang.group.uid))
            continue
        # Whatever a search leaves behind is undone (cycle:PG-8, Do better).
        state.rollback(mark)
        session.judge(gang, Verdict(action, found.result, other=found.objection))
        if found.result in ("deadline_exhausted", "not_attempted"):
            session.stopped.append(f"{action} stopped at {gang.key}: {found.result}, {state.work} units of work done")
            return
        failed.add(gang)


def refused_by_quota(action: str, tree: QueueTree, refusal: Over) -> Verdict:
    """The figures of a limit or quota that keeps an action from helping a gang."""
    scale = 100.0 if refusal.resource == GPU else 1.0
    would_have, bound = (refusal.used + refusal.requested) / scale, refusal.bound / scale
    return Verdict(action, refusal.rule, tree.names[refusal.queue], RESOURCE_NAMES[refusal.resource], would_have, bound)


# Victims that move are deleted like the others (cycle:SOL-16).
def _commit(session: Session, gang: Gang, outcome: Outcome, cause: Cause) -> None:
    carry_out(session, outcome, cause)
    changed = {other.key: other for other in (gang, *outcome.touched.values())}
    for table in (session.memo[Victims], session.memo[Standing]):
        for other in changed.values():
            table.changed(other)
        table.version = session.state.version
    if session.policy.validate:
        check_state(session)


class _Waiting(NamedTuple):
    """Those who may trigger evictions, in line, and the state for which that holds."""

    version: int
    by_leaf: dict[int, list[tuple[tuple[object, ...], Gang]]]


def _waiting(session: Session) -> dict[int, list[tuple[tuple[object, ...], Gang]]]:
    """The same for one action after the other, as long as none of them does anything."""
    found: _Waiting | None = session.memo.get(_Waiting)
    if found is None or found.version != session.state.version:
        found = _Waiting(session.state.version, in_line(_candidates(session), session.place_of))
        session.memo[_Waiting] = found
    return found.by_leaf


def _candidates(session: Session) -> Iterator[Gang]:
    """Gangs that may trigger evictions now (cycle:ORD-1, POL-4)."""
    tree = session.snapshot.tree
    for gang in session.waiting():
        if gang.queue < 0 or tree.children[gang.queue] or gang.group.tree_error or gang.unsupported:
            continue
        if not gang.open or not session.next_tasks(gang):
            continue
        delayed = _delay(session, gang)
        if delayed is None:
            yield gang
        elif delayed not in session.refusals.get(gang.key, ()):
            session.refuse(gang, delayed)


def _delay(session: Session, gang: Gang) -> FreeRoomOnly | WithinDelay | None:
    """Until when a gang may not trigger evictions (queues:Q-321, Q-322)."""
    group = gang.group
    if (confined := session.snapshot.confined.get(gang.key)) is not None:
        return confined
    if session.policy.honour_preemption_policy:
        known = session.snapshot.priority_classes.get(group.priority_class)
        if known is not None and known.preemption_policy == "Never":
            return WithinDelay(0, None)
    delay = group.preemption_delay_ns
    if not delay or delay <= 0:
        return None
    since = max(group.creation_ns, group.last_eviction_ns or 0)
    if group.key in session.evicted_groups:
        since = session.snapshot.now_ns
    return None if session.state.passed(since + delay) else WithinDelay(delay, since + delay)


def _kept_out(session: Session, gang: Gang) -> bool:
    """Whether some task can go to no node, whichever pods leave."""
    batches = session.next_tasks(gang)
    tasks = [task for batch in batches for task in batch.tasks]
    seen: set[Hashable] = set()
    for batch in batches:
        for task in batch.tasks:
            ask = ask_of(session, gang, batch.leaf, task)
            # Subgroups differ in their topology.
            key = (id(batch.leaf), session.rankings.key(ask))
            if key not in seen:
                seen.add(key)
                if any(hopeless(ask, tasks) for hopeless in session.rules.hopeless):
                    return True
    return False


#: The order in which the guard asks (cycle:FLT-9), not that of a placement.
_GUARDS = (names.PREDICATE_VOLUME_BINDING, names.PREDICATE_CONFIG_MAP, names.PREDICATE_MAX_NODE_POOL_RESOURCES)


def _guard_order(failure: PreFailure) -> int:
    return _GUARDS.index(failure.predicate) if failure.predicate in _GUARDS else len(_GUARDS)


def _cannot_help(session: Session, gang: Gang) -> bool:
    """Whether no eviction would help a task (cycle:FLT-9); told like a failure to place it."""
    for batch in session.next_tasks(gang):
        seen: set[int] = set()
        for task in batch.tasks:
            if task.shape.id in seen:
                continue
            seen.add(task.shape.id)
            ask = Ask(task, gang, batch.leaf, session.snapshot.vectors[task.shape])
            failures = [found for check in session.rules.pre_place if (found := check(session.state, ask)) is not None]
            if any(failure.unresolvable for failure in failures):
                failures.sort(key=_guard_order)
                known = session.refusals.get(gang.key, ())
                if not any(isinstance(refusal, NoPlace) and refusal.unresolvable for refusal in known):
                    leaf, base = batch.leaf, unmet_text(failures)
                    session.refuse(gang, NoPlace(task.key, "pod", 0, leaf.name, leaf.minimum, base, unresolvable=True))
                return True
    return False
