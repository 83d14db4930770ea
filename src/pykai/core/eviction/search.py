"""The search for a fair set of victims that lets a gang start (cycle:13.1).

Larger and larger parts of the gang are tried (1, 2, 4, ... tasks, then between), and the victims a part needs are
recorded for the next: so the set grows along the order of the victims and no further than needed.  Victims that are
kept in a trial drop out of the set, and the trial is repeated without them.

Budgets count units of work, never seconds, so a replay decides the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pykai.core.cycle.gangs import Batch, Gang
from pykai.core.cycle.session import Session
from pykai.core.eviction.balance import Balance
from pykai.core.eviction.bounds import Bounds
from pykai.core.eviction.scenarios import WAYS, Material, Victims
from pykai.core.eviction.trial import Preemptor, feasible_nodes, holds_later, losses_of, run_trial
from pykai.core.eviction.victimorder import VictimOrder
from pykai.core.eviction.victims import victims_of
from pykai.core.hooks import Loss, Taking
from pykai.core.model.status import Status
from pykai.core.policy import SearchBudgets
from pykai.core.queueing.waitinglines import standing_of


class Aim(NamedTuple):
    """What an action is after, besides the gang it searches for."""

    action: str
    #: leaves to take from
    leaves: list[int]
    #: whether a gang may lose something
    accepts: Callable[[Gang], bool]
    #: what is wrong with a set of victims that suffices, None when it is fair
    judge: Callable[[Taking], str | None]
    #: how many gangs may lose something, -1 = any number
    most: int = -1
    #: leaves whose gangs may lose something for good, None = all; others have to find another place
    losing: frozenset[int] | None = None


class Budget:
    """Work left for an action."""

    def __init__(self, session: Session, limits: SearchBudgets, action: str) -> None:
        self._session = session
        self._limits = limits
        limit = limits.action_units(action)
        self._end = None if limit is None else session.state.work + limit

    def for_job(self) -> int | None:
        """Work at which the search of one job ends; None = no end; at or below the present = not to be begun."""
        limits, now = self._limits, self._session.state.work
        ends = [end for end in (self._end, None if limits.job is None else now + limits.job) if end is not None]
        if not ends:
            return None
        return max(min(ends), now + limits.least_job)


@dataclass(slots=True)
class Found:
    """The end of a search."""

    #: "solved", or why not (cycle:SOL-3): "hopeless" (found without trying), "no_generator", "generators_exhausted",
    #: "deadline_exhausted", "not_attempted"
    result: str
    victims: Victims | None = None
    #: what the rules said about the last set that would have sufficed
    objection: str = ""


def search(session: Session, gang: Gang, aim: Aim, budget: Budget) -> Found:
    """Look for victims; when solved, the trial that succeeded is still in the journal."""
    state = session.state
    batches = session.next_tasks(gang)
    if not batches:
        return Found("generators_exhausted")
    end = budget.for_job()
    if end is not None and end <= state.work:
        return Found("not_attempted")
    ways = [way for way in session.rules.scenarios if way in WAYS]
    if not ways:
        return Found("no_generator")
    victims = victims_of(session)
    leaves = [leaf for leaf in aim.leaves if victims.line(leaf)]
    if not leaves or Bounds(session, gang, batches).hopeless(victims.evictable):
        return Found("hopeless")
    if not aim.losing and aim.losing is not None and Balance(session, batches, aim.losing).hopeless:
        return Found("hopeless")
    attempt = _Search(session, gang, batches, aim, VictimOrder(session, victims, leaves, aim.accepts, aim.most), end)
    if attempt.order.at(0) is None:
        return Found("hopeless")
    found = Found("generators_exhausted")
    for way in ways:
        limit = session.policy.search_budgets.way_units(way)
        attempt.end = _earlier(end, None if limit is None else state.work + limit)
        found = attempt.by(way)
        if found.result == "solved" or (found.result == "deadline_exhausted" and attempt.end == end):
            break
    return found


def _earlier(end: int | None, other: int | None) -> int | None:
    return min((each for each in (end, other) if each is not None), default=None)


class _Search:
    """One search under way."""

    def __init__(
        self, session: Session, gang: Gang, batches: list[Batch], aim: Aim, order: VictimOrder, end: int | None
    ) -> None:
        self.session = session
        self.gang = gang
        self.batches = batches
        self.aim = aim
        self.order = order
        self.end = end
        self.size = sum(len(batch.tasks) for batch in batches)
        self.feasible = feasible_nodes(session, batches)
        #: [queue][resource] before anyone is evicted; rows are replaced, never changed
        self.allocated = list(session.state.ledger.allocated)
        self.committed = list(session.state.ledger.committed)
        self.core = gang.starts_core
        self.standing = standing_of(session)
        self.objection = ""
        #: sets that failed, with the number of tasks they failed for
        self.failed: set[tuple[int, frozenset[str]]] = set()
        self.bounds: dict[int, Bounds] = {}

    def by(self, way: str) -> Found:
        """Search one way: how many tasks can be placed, and then all of them (cycle:PERF-8)."""
        recorded: Victims = []
        placed, count = 0, 1
        bound = self.size + 1
        while True:
            outcome = self._probe(way, count, recorded, last=False)
            if outcome == "deadline":
                return Found("deadline_exhausted", None, self.objection)
            if isinstance(outcome, _Solution):
                if outcome.final:
                    return Found("solved", outcome.victims, "")
                placed, recorded = count, outcome.victims
            else:
                bound = count
            if bound - placed <= 1:
                break
            count = min(2 * count, self.size) if bound > self.size else (placed + bound) // 2
        if not placed:
            return Found("generators_exhausted", None, self.objection)
        outcome = self._probe(way, self.size, recorded, last=True)
        if isinstance(outcome, _Solution):
            return Found("solved", outcome.victims, "")
        result = "deadline_exhausted" if outcome == "deadline" else "generators_exhausted"
        return Found(result, None, self.objection)

    def _probe(self, way: str, count: int, recorded: Victims, *, last: bool) -> _Solution | str | None:
        """Try to place the first `count` tasks; a solution is final when its trial stays in the journal.

        Statements: cycle:SOL-2.
        """
        session, state = self.session, self.session.state
        batches = _first(self.batches, count)
        required = session.count(batches, session.smallest_gpu_mib)
        preemptor = Preemptor(self.gang, batches, required, self.feasible, self.standing)
        bounds = self.bounds.get(count)
        if bounds is None:
            bounds = self.bounds[count] = Bounds(session, self.gang, batches)
        balance = Balance(session, batches, self.aim.losing)
        material = Material(session, preemptor, self.order, bounds, balance, recorded)
        for victims in WAYS[way](material):
            if self.end is not None and state.work >= self.end:
                return "deadline"
            mark = (count, frozenset(victim.member.task.key for victim in victims))
            if mark in self.failed:
                continue
            begin = state.mark()
            lost = self._try(preemptor, victims, begin)
            if lost is None:
                state.rollback(begin)
                self.failed.add(mark)
                continue
            # Where nobody was kept, the same trial again would end the same.
            final = last or (count == self.size and len(lost) in (0, len(victims)))
            if not final:
                state.rollback(begin)
            return _Solution(lost, final)
        return None

    def _try(self, preemptor: Preemptor, victims: Victims, begin: int) -> Victims | None:
        """The victims that are really lost, None when the set does not suffice or is not fair (queues:Q-276)."""
        session = self.session
        if not victims or not run_trial(session, preemptor, victims):
            return None
        losses = losses_of(session, victims)
        if any(_in_parts(gang, found) for gang, found in losses):
            # Victims recorded for a part of the preemptor may be a part of a gang, whose rest must then go too.
            return None
        taking = Taking(
            gang=preemptor.gang,
            required=preemptor.required,
            losses=losses,
            allocated=self.allocated,
            committed=self.committed,
            core=self.core,
            moving_is_free=session.policy.allow_consolidating_reclaim,
        )
        objection = self.aim.judge(taking)
        if objection is not None:
            self.objection = objection
            return None
        keys = {loss.task.key for _, found in losses for loss in found}
        lost = [victim for victim in victims if victim.member.task.key in keys]
        if any(loss.moves for _, found in losses for loss in found):
            session.state.rollback(begin)
            holds = holds_later(session, preemptor, lost)
            session.state.rollback(begin)
            if not holds:
                self.objection = "those who move would come back"
                return None
            run_trial(session, preemptor, victims)
        return lost


def _in_parts(gang: Gang, losses: list[Loss]) -> bool:
    """Whether a victim would be left with part of a minimum, or would start with a part of it."""
    if any(
        loss.moves
        and loss.task.status is Status.PENDING
        and 0 < loss.leaf.active_allocated - loss.leaf.pipelined < loss.leaf.minimum
        for loss in losses
    ):
        # It was to start in this very cycle: all of its minimum starts, or none.
        return True
    if any(loss.leaf.active_allocated and not loss.leaf.satisfied for loss in losses):
        return True
    return not gang.satisfied and any(leaf.active_allocated for leaf in gang.leaves)


class _Solution(NamedTuple):
    victims: Victims
    final: bool


def _first(batches: list[Batch], count: int) -> list[Batch]:
    """The first tasks of some batches (cycle:SOL-1; topo:T-53)."""

    def cut() -> Iterator[Batch]:
        left = count
        for batch in batches:
            if left > 0:
                yield Batch(batch.leaf, batch.tasks[:left]) if left < len(batch.tasks) else batch
                left -= len(batch.tasks)

    return list(cut())
