"""The search for a fair set of victims that lets a gang start (cycle:13.1).

Larger and larger parts of the gang are tried (1, 2, 4, ... tasks, then between), and the victims of a part are recorded
for the next: so the set grows along the order of the victims and no further than needed.  Victims that are kept in a
trial drop out of the set, and the trial is repeated without them.

Budgets count work units, never seconds, so a replay decides the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pykai.core.cycle.context import CycleContext
from pykai.core.cycle.cyclegangs import CycleGangs, total_amounts
from pykai.core.cycle.gangs import Batch, Gang
from pykai.core.cycle.state import State
from pykai.core.eviction.balance import ResourceBalance
from pykai.core.eviction.bounds import CapacityBounds
from pykai.core.eviction.freegpus import feasible_nodes
from pykai.core.eviction.readunits import ReadUnits
from pykai.core.eviction.scenarios import GENERATORS, ScenarioInput, VictimList
from pykai.core.eviction.tables import EvictionTables
from pykai.core.eviction.trial import Preemptor, TrialRunner, losses_of
from pykai.core.eviction.victimorder import VictimOrder
from pykai.core.hooks import EvictionProposal, Loss
from pykai.core.listening import DUPLICATE, GENERATORS_EXHAUSTED, SOLVED, UNSOLVED, VALIDATOR_REJECTED
from pykai.core.model.status import TaskStatus
from pykai.core.placing.ranking import Rankings
from pykai.core.policy import SearchBudgets
from pykai.core.report.decisions import OverBudget
from pykai.core.report.evictions import MOVED_BACK
from pykai.core.report.sentences import over_budget_text


class VictimPolicy(NamedTuple):
    """Which victims an action accepts."""

    #: queues to take from, leaves or all that is below them; none of them is above another
    queues: list[int]
    #: whether a gang may lose something, None = any may
    accepts: Callable[[Gang], bool] | None
    #: what is wrong with a sufficient set of victims, None if it is fair
    objection: Callable[[EvictionProposal], str | None]
    #: how many gangs may lose something, -1 = any number
    max_gangs: int = -1
    #: leaves whose gangs may lose something for good, None = all; other victims have to be placed elsewhere
    losing_leaves: frozenset[int] | None = None
    #: whether the preemptor and the gangs that move may be served first in the next cycle (cycle:SOL-17); None = no
    may_go_first: Callable[[], bool] | None = None
    #: whether `accepts` depends on the time, so that asking it for more gangs ends the plan earlier
    accepts_by_time: bool = False


class ActionBudget:
    """Work left for an action."""

    def __init__(self, state: State, limits: SearchBudgets, action: str) -> None:
        self._state = state
        self._limits = limits
        limit = limits.action_units(action)
        self._end = None if limit is None else state.work + limit

    def job_deadline(self) -> int | None:
        """Work at which the search of one job ends; None = unlimited; at or below the present = do not start."""
        limits, spent = self._limits, self._state.work
        ends = [end for end in (self._end, None if limits.job is None else spent + limits.job) if end is not None]
        if not ends:
            return None
        return max(min(ends), spent + limits.job_minimum)

    def is_reduced(self) -> bool:
        """Whether less is left than the search of one job may take (cycle:SOL-6)."""
        job = self._limits.job
        return self._end is not None and job is not None and self._end - self._state.work < job


@dataclass(slots=True)
class SearchResult:
    """The end of a search."""

    #: "solved", or why not (cycle:SOL-3): "hopeless" (found without trying), "no_generator", "generators_exhausted",
    #: "deadline_exhausted", "not_attempted"
    outcome: str
    victims: VictimList | None = None
    #: the objection of the rules to the last sufficient set
    objection: str = ""
    #: the disruption budget that forbids victims, None if none does
    over_budget: OverBudget | None = None
    #: groups that the next cycle has to serve first, or the victims would come back
    served_first: tuple[str, ...] = ()


class VictimFinder:
    """Searches for victims."""

    __slots__ = ("context", "gangs", "rankings", "state", "tables", "trials")

    def __init__(
        self,
        context: CycleContext,
        gangs: CycleGangs,
        rankings: Rankings,
        tables: EvictionTables,
        trials: TrialRunner,
    ) -> None:
        self.context = context
        self.state = tables.state
        self.gangs = gangs
        self.rankings = rankings
        self.tables = tables
        self.trials = trials

    def bounds_of(self, gang: Gang, batches: list[Batch]) -> CapacityBounds:
        """What would have to be free for these tasks."""
        return CapacityBounds(self.state, self.context.rules, self.rankings, gang, batches)

    def find(self, gang: Gang, victim_policy: VictimPolicy, budget: ActionBudget) -> SearchResult:
        """Search for victims; when solved, the trial that succeeded is still in the journal."""
        state, rules = self.state, self.context.rules
        batches = self.gangs.next_tasks(gang)
        if not batches:
            return SearchResult("generators_exhausted")
        end = budget.job_deadline()
        if end is not None and end <= state.work:
            return SearchResult("not_attempted")
        generators = [generator for generator in rules.scenarios if generator in GENERATORS]
        if not generators:
            return SearchResult("no_generator")
        victim_table = self.tables.victims()
        queues = victim_table.with_units(victim_policy.queues)
        if not queues or self.bounds_of(gang, batches).is_unsatisfiable(victim_table.evictable):
            return SearchResult("hopeless")
        losing_leaves = victim_policy.losing_leaves
        if (
            not losing_leaves
            and losing_leaves is not None
            and ResourceBalance(self.context, state, batches, losing_leaves).is_unsatisfiable
        ):
            return SearchResult("hopeless")
        order = VictimOrder(
            state,
            rules,
            victim_table,
            queues,
            victim_policy.accepts,
            victim_policy.max_gangs,
            lazily=victim_policy.accepts_by_time,
        )
        attempt = _VictimSearch(self, gang, batches, victim_policy, order)
        if attempt.read.unit_at(0) is None:
            return self._with_budget(SearchResult("hopeless"), victim_policy, None)
        result = SearchResult("generators_exhausted")
        for generator in generators:
            limit = self.context.policy.search_budgets.generator_units(generator)
            generator_end = _earlier(end, None if limit is None else state.work + limit)
            result = attempt.run_generator(generator, generator_end)
            if result.outcome == "solved" or (result.outcome == "deadline_exhausted" and generator_end == end):
                break
        if result.outcome == "generators_exhausted":
            return self._with_budget(result, victim_policy, attempt.over_budget)
        return result

    def _with_budget(
        self, result: SearchResult, victim_policy: VictimPolicy, over_budget: OverBudget | None
    ) -> SearchResult:
        """A search that found nothing, with the budget that forbids its last set or keeps gangs from being victims."""
        disruptions = self.tables.disruptions
        if disruptions is None:
            return result
        if over_budget is None:
            victims = self.tables.victims()
            leaves = sorted(leaf for queue in victim_policy.queues for leaf in victims.leaves_below(queue))
            over_budget = disruptions.protection(leaves, victim_policy.accepts)
        result.over_budget = over_budget
        if over_budget is not None and not result.objection:
            result.objection = over_budget_text(over_budget)
        return result


def _earlier(end: int | None, other: int | None) -> int | None:
    return min((each for each in (end, other) if each is not None), default=None)


class _VictimSearch:
    """One search in progress."""

    def __init__(
        self,
        finder: VictimFinder,
        gang: Gang,
        batches: list[Batch],
        victim_policy: VictimPolicy,
        order: VictimOrder,
    ) -> None:
        state = finder.state
        self.finder = finder
        self.state = state
        self.gang = gang
        self.batches = batches
        self.victim_policy = victim_policy
        self.read = ReadUnits(order, finder.context.snapshot)
        self.size = sum(len(batch.tasks) for batch in batches)
        self.feasible = feasible_nodes(state, batches)
        #: [queue][resource] before any eviction; rows are replaced, never changed
        self.allocated = list(state.ledger.allocated)
        self.allocated_non_preemptible = list(state.ledger.allocated_non_preemptible)
        self.non_preemptible = gang.next_task_non_preemptible
        self.waiting_lines = finder.tables.waiting_lines()
        self.objection = ""
        self.over_budget: OverBudget | None = None
        #: the gangs that the next cycle has to serve first, for the set that was tried last
        self.served_first: tuple[str, ...] = ()
        #: sets that failed, with the number of tasks they failed for
        self.failed: set[tuple[int, frozenset[str]]] = set()
        self.bounds: dict[int, CapacityBounds] = {}

    def run_generator(self, generator: str, end: int | None) -> SearchResult:
        """Search with one generator until so much work is done: how many tasks can be placed, and then all of them
        (cycle:PERF-8).
        """
        self.finder.context.listener.generator_began(generator)
        recorded: VictimList = []
        placed, count = 0, 1
        too_many = self.size + 1
        while True:
            outcome = self._try_first_tasks(generator, count, recorded, end, final_try=False)
            if outcome == "deadline":
                return SearchResult("deadline_exhausted", None, self.objection)
            if isinstance(outcome, _Solution):
                if outcome.final:
                    return SearchResult("solved", outcome.victims, "", None, self.served_first)
                placed, recorded = count, outcome.victims
            else:
                too_many = count
            if too_many - placed <= 1:
                break
            count = min(2 * count, self.size) if too_many > self.size else (placed + too_many) // 2
        if not placed:
            return SearchResult("generators_exhausted", None, self.objection)
        outcome = self._try_first_tasks(generator, self.size, recorded, end, final_try=True)
        if isinstance(outcome, _Solution):
            return SearchResult("solved", outcome.victims, "", None, self.served_first)
        result = "deadline_exhausted" if outcome == "deadline" else "generators_exhausted"
        return SearchResult(result, None, self.objection)

    def _try_first_tasks(
        self, generator: str, count: int, recorded: VictimList, end: int | None, *, final_try: bool
    ) -> _Solution | str | None:
        """Try to place the first `count` tasks; a solution is final when its trial stays in the journal.

        Statements: cycle:SOL-2.
        """
        state, context = self.state, self.finder.context
        batches = _first_tasks(self.batches, count)
        required = total_amounts(context.snapshot.vectors, batches, context.smallest_gpu_mib)
        preemptor = Preemptor(self.gang, batches, required, self.feasible, self.waiting_lines)
        bounds = self.bounds.get(count)
        if bounds is None:
            bounds = self.bounds[count] = self.finder.bounds_of(self.gang, batches)
        balance = ResourceBalance(context, state, batches, self.victim_policy.losing_leaves)
        scenario_input = ScenarioInput(context, state, preemptor, self.read, bounds, balance, recorded)
        for victims in GENERATORS[generator](scenario_input):
            if end is not None and state.work >= end:
                return "deadline"
            attempt = (count, frozenset(victim.member.task.key for victim in victims))
            if attempt in self.failed:
                context.listener.scenario_ended(DUPLICATE)
                continue
            journal_mark = state.mark()
            lost = self._try_victims(preemptor, victims, journal_mark, final_try=final_try)
            context.listener.scenario_ended(lost if isinstance(lost, str) else SOLVED)
            if isinstance(lost, str):
                state.rollback(journal_mark)
                self.failed.add(attempt)
                continue
            final = final_try or self._is_final(preemptor, victims, lost)
            if not final:
                state.rollback(journal_mark)
            return _Solution(lost, final)
        context.listener.scenario_ended(GENERATORS_EXHAUSTED)
        return None

    def _is_final(self, preemptor: Preemptor, victims: VictimList, lost: VictimList) -> bool:
        """Whether all tasks are placed and no victim was kept: the same trial would end the same."""
        count = sum(len(batch.tasks) for batch in preemptor.batches)
        return count == self.size and len(lost) in (0, len(victims))

    def _try_victims(
        self, preemptor: Preemptor, victims: VictimList, journal_mark: int, *, final_try: bool
    ) -> VictimList | str:
        """The victims that are really lost, or whether the set does not suffice or is not fair (queues:Q-276)."""
        state, trials = self.state, self.finder.trials
        self.served_first = ()
        work_before = state.work
        if not victims or not trials.run(preemptor, victims):
            return UNSOLVED
        losses = losses_of(state, victims)
        if any(_splits_minimum(gang, found) for gang, found in losses):
            # Victims recorded for a part of the preemptor may be a part of a gang; then the rest of it must go too.
            return VALIDATOR_REJECTED
        proposal = EvictionProposal(
            gang=preemptor.gang,
            required=preemptor.required,
            losses=losses,
            allocated=self.allocated,
            allocated_non_preemptible=self.allocated_non_preemptible,
            non_preemptible=self.non_preemptible,
            moving_is_free=self.finder.context.policy.allow_consolidating_reclaim,
        )
        objection = self.victim_policy.objection(proposal)
        if objection is not None:
            self.objection = objection
            return VALIDATOR_REJECTED
        if (disruptions := self.finder.tables.disruptions) is not None:
            over_budget = disruptions.objection(losses)
            if over_budget is not None:
                self.over_budget = over_budget
                return VALIDATOR_REJECTED
        keys = {loss.task.key for _, found in losses for loss in found}
        lost = [victim for victim in victims if victim.member.task.key in keys]
        if any(loss.moves for _, found in losses for loss in found):
            work = state.work - work_before
            state.rollback(journal_mark)
            fits_later = trials.fits_in_next_cycle(preemptor, lost, losses)
            state.rollback(journal_mark)
            if not fits_later and not self._fits_first(preemptor, lost, losses):
                self.objection = MOVED_BACK
                return VALIDATOR_REJECTED
            if final_try or self._is_final(preemptor, victims, lost):
                trials.run(preemptor, victims)
            else:
                # It would end the same and be undone.
                state.work += work
        return lost

    def _fits_first(self, preemptor: Preemptor, lost: VictimList, losses: list[tuple[Gang, list[Loss]]]) -> bool:
        """Whether a move lasts if the next cycle serves those it concerns before all others, and may do so."""
        may_go_first = self.victim_policy.may_go_first
        if may_go_first is None or not may_go_first():
            return False
        mark = self.state.mark()
        order = self.finder.trials.order_if_first(preemptor, lost, losses)
        self.state.rollback(mark)
        self.served_first = tuple(order or ())
        return order is not None


def _splits_minimum(gang: Gang, losses: list[Loss]) -> bool:
    """Whether a victim would be left with part of a minimum, or would start with a part of it."""
    if any(
        loss.moves
        and loss.task.status is TaskStatus.PENDING
        and 0 < loss.leaf.active_allocated - loss.leaf.pipelined < loss.leaf.minimum
        for loss in losses
    ):
        # It was to start in this very cycle: all of its minimum starts, or none.
        return True
    if any(loss.leaf.active_allocated and not loss.leaf.satisfied for loss in losses):
        return True
    return not gang.satisfied and any(leaf.active_allocated for leaf in gang.leaves)


class _Solution(NamedTuple):
    victims: VictimList
    final: bool


def _first_tasks(batches: list[Batch], count: int) -> list[Batch]:
    """The first tasks of some batches (cycle:SOL-1; topo:T-53)."""

    def cut() -> Iterator[Batch]:
        left = count
        for batch in batches:
            if left > 0:
                yield Batch(batch.leaf, batch.tasks[:left]) if left < len(batch.tasks) else batch
                left -= len(batch.tasks)

    return list(cut())
