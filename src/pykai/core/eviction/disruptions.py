"""PodDisruptionBudgets in the choice of victims (ADR 29).

`prefer` only orders: in the line of a leaf queue, among gangs of the same priority, a unit that would exceed a budget
comes after all that would not.  So which queue loses, and which priority, is decided as without budgets, and a unit
that exceeds one is still taken where nothing else suffices.  `strict` also removes units that a budget forbids, and
objects to sets that exceed one together.

An allowance is spent by every pod that is evicted, moved ones included, and by those of earlier searches of the cycle.
Along a line it is spent worst first: of two gangs that share an allowance of one pod, the worse one is within the
budget and the other is not.

Statements: disruptions:prefer, disruptions:strict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from pykai.core import caching
from pykai.core.caching import Cache
from pykai.core.cluster.disruptionbudgets import LabelValues, NamespaceBudgets
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.state import State
from pykai.core.eviction.units import EvictionUnit, UnitItem, UnitLine
from pykai.core.hooks import Loss
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.policy import DisruptionMode
from pykai.core.report.decisions import OverBudget

#: Key of a budget -> number of pods.
PodCounts = Counter[str]
_NO_PODS: Mapping[str, int] = {}


class ProtectedGang(NamedTuple):
    """A gang that strict budgets keep from losing all of its pods."""

    gang: Gang
    #: the budget, and how many evictions it still allows
    budget: str
    left: int


class DisruptionLedger:
    """What the budgets allow in one cycle."""

    def __init__(self, state: State, mode: DisruptionMode) -> None:
        self._state = state
        #: whether budgets forbid
        self.strict = mode is DisruptionMode.STRICT
        self._index = state.snapshot.disruption_budgets
        #: namespace -> its budgets, counted
        self._namespaces: dict[str, NamespaceBudgets | None] = {}
        #: key of a budget -> evictions that it allows in this cycle
        self._allowances: dict[str, int] = {}
        #: namespace and labels -> keys of the budgets of such pods
        self._covering: Cache[tuple[str, LabelValues], tuple[str, ...]] = Cache()
        #: leaf queue -> gangs that are no victims
        self._protected: dict[int, list[ProtectedGang]] = {}

    @classmethod
    def open(cls, state: State, mode: DisruptionMode) -> DisruptionLedger | None:
        """The ledger of a cycle, None where no budget matters."""
        if mode is DisruptionMode.IGNORE or not state.snapshot.disruption_budgets:
            return None
        return cls(state, mode)

    def concerns(self, gang: Gang) -> bool:
        """Whether the namespace of a gang has budgets."""
        return gang.group.namespace in self._index

    def worst_first(self, queue: int, line: UnitLine, accepts: Callable[[Gang], bool]) -> Iterator[EvictionUnit]:
        """The units of acceptable gangs of a leaf queue in the order of eviction, computed as it is read.

        Its line has the worst last.  A gang that is no victim in this search spends nothing of a budget.
        """
        order = _LineOrder(self, self._evicted_pods())
        self._protected[queue] = order.protected
        return order.worst_first(item for item in reversed(line) if accepts(item[2].gang))

    def objection(self, losses: Iterable[tuple[Gang, list[Loss]]]) -> OverBudget | None:
        """The budget that a set of victims exceeds, where budgets are strict; the victims are evicted in the state."""
        if not self.strict:
            return None
        lost = {key for _, found in losses for loss in found for key in self._budgets_of(loss.task)}
        evicted = self._evicted_pods() if lost else Counter()
        exceeded = sorted(key for key in lost if evicted[key] > self._allowances[key])
        if not exceeded:
            return None
        return OverBudget(exceeded[0], self._allowances[exceeded[0]], len(exceeded) - 1)

    def protection(self, queues: Iterable[int], accepts: Callable[[Gang], bool] | None) -> OverBudget | None:
        """Which budgets keep gangs of these queues from being victims, None if none does."""
        found = {
            protected.budget: protected.left
            for queue in queues
            for protected in self._protected.get(queue, ())
            if accepts is None or accepts(protected.gang)
        }
        if not found:
            return None
        first = min(found)
        return OverBudget(first, found[first], len(found) - 1)

    def exceeded_by(self, counts: Mapping[str, int], spent: PodCounts) -> str | None:
        """The first budget that does not allow so many evictions after those that are spent."""
        for key, count in counts.items():
            if spent[key] + count > self._allowances[key]:
                return key
        return None

    def left(self, key: str, spent: PodCounts) -> int:
        """How many evictions a budget allows after those that are spent."""
        return max(0, self._allowances[key] - spent[key])

    def _evicted_pods(self) -> PodCounts:
        """Pods that the cycle evicts so far, by budget."""
        tasks = self._state.snapshot.task_records
        return Counter(key for evicted in self._state.evicted_from for key in self._budgets_of(tasks[evicted]))

    def covered_pods(self, unit: EvictionUnit) -> Mapping[str, int]:
        """Pods of a unit by budget."""
        if not self.concerns(unit.gang):
            return _NO_PODS
        covered: Mapping[str, int] = Counter(key for member in unit.members for key in self._budgets_of(member.task))
        if caching.enabled:
            unit.covered = covered
        return covered

    def _budgets_of(self, task: Task) -> tuple[str, ...]:
        """Keys of the budgets of a task; a task that does not run is under none, because it is not healthy."""
        if task.status is not TaskStatus.RUNNING:
            return ()
        namespace = task.namespace
        if namespace not in self._namespaces:
            self._open_namespace(namespace)
        budgets = self._namespaces[namespace]
        if budgets is None:
            return ()
        values = budgets.values_of(task)
        covering = self._covering.get((namespace, values))
        if covering is None:
            covering = self._covering.store((namespace, values), budgets.covering(values))
        return covering

    def _open_namespace(self, namespace: str) -> None:
        tasks = self._state.snapshot.read_running().tasks
        budgets = self._namespaces[namespace] = self._index.counted(namespace, tasks.values())
        if budgets is not None:
            self._allowances.update(budgets.allowances())


def _priority(item: UnitItem) -> int:
    return item[2].gang.priority


class _LineOrder:
    """Orders the line of a leaf queue, priority by priority, worst first."""

    def __init__(self, ledger: DisruptionLedger, evicted: PodCounts) -> None:
        self._ledger = ledger
        #: pods that the cycle evicts already, by budget
        self._evicted = evicted
        #: the same and those of units within budgets
        self._spent = evicted.copy()
        #: gang -> pods of its units so far, counted where budgets are strict
        self._lost: dict[str, PodCounts] = {}
        self._exceeding: set[str] = set()
        #: gangs with units that are no victims
        self.protected: list[ProtectedGang] = []
        self._protected_keys: set[str] = set()

    def worst_first(self, line: Iterable[UnitItem]) -> Iterator[EvictionUnit]:
        """Of each priority the units within budgets, then the others, without those that strict budgets forbid."""
        for _, items in groupby(line, key=_priority):
            beyond = []
            for _, _, unit in items:
                if self._is_within(unit):
                    yield unit
                elif not self._ledger.strict or self._is_allowed_alone(unit.gang):
                    beyond.append(unit)
            yield from beyond

    def _is_within(self, unit: EvictionUnit) -> bool:
        """Whether the next unit is within its budgets, which it then spends."""
        covered = unit.covered
        if covered is None:
            covered = self._ledger.covered_pods(unit)
        key = unit.gang.key
        if covered:
            if self._ledger.strict:
                self._lost.setdefault(key, Counter()).update(covered)
            if self._ledger.exceeded_by(covered, self._spent) is not None:
                self._exceeding.add(key)
        # What follows a unit beyond a budget in its gang goes after it.
        if key in self._exceeding:
            return False
        for budget, count in covered.items():
            self._spent[budget] += count
        return True

    def _is_allowed_alone(self, gang: Gang) -> bool:
        """Whether a gang may lose its units so far if no other gang loses anything."""
        if gang.key in self._protected_keys:
            return False
        budget = self._ledger.exceeded_by(self._lost[gang.key], self._evicted)
        if budget is None:
            return True
        self._protected_keys.add(gang.key)
        self.protected.append(ProtectedGang(gang, budget, self._ledger.left(budget, self._evicted)))
        return False
