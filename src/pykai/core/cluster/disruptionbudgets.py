"""PodDisruptionBudgets by namespace, and how many running pods each could still lose.

A budget names pods by their labels.  Pods that agree in every label that some budget of their namespace reads are under
the same budgets, so running pods are counted by these labels (`LabelValues`) and each combination is matched once.
Only namespaces with budgets are counted, from the first time a cycle asks for them.

The status of a budget follows our evictions with a delay.  So a budget also allows no more evictions than it has
running pods beyond those it desires: pods whose eviction is under way do not run here any more.

Tenants choose how many budgets there are, how large, and how often they change.  So a selector is measured once, when
its budget is read, and one that is too large is not kept; which budgets count is chosen once per cycle, and only in
namespaces where a budget has changed.

Statements: disruptions:count, disruptions:bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from pykai.api.disruption import PodDisruptionBudget
from pykai.api.keys import object_key
from pykai.api.meta import LabelSelector
from pykai.core.model.affinityterms import selector_matches
from pykai.core.model.problems import Problem
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task

#: Budgets of a namespace that count, in the order of their names, and labels that they may read together.
MAX_BUDGETS = 50
MAX_LABELS = 16
#: Values that the expressions of a selector may list; an expression without values counts as one.
MAX_VALUES = 50
#: Budgets of a namespace that are reported one by one.
MAX_REPORTED = 10

#: Values of the labels that the budgets of a namespace read, in the order of `NamespaceBudgets.labels`.
LabelValues = tuple[str | None, ...]


class DisruptionBudget(NamedTuple):
    """What a PodDisruptionBudget says."""

    #: namespace/name
    key: str
    selector: LabelSelector | None
    #: evictions that its controller allows; none while the controller has not read its present spec
    allowed: int
    #: pods that have to stay healthy
    desired_healthy: int
    #: the labels that its selector reads
    labels: frozenset[str] = frozenset()
    #: which bound its selector exceeds by itself, "" for none
    excess: str = ""


def read_budget(item: PodDisruptionBudget) -> DisruptionBudget:
    """The facts of a budget that evictions depend on."""
    meta, status = item.metadata, item.status
    observed = status.observed_generation >= meta.generation
    allowed = max(0, status.disruptions_allowed) if observed else 0
    key = object_key(meta.namespace, meta.name)
    selector = item.spec.selector
    labels = _labels_read(selector)
    if excess := _own_excess(selector, labels):
        return DisruptionBudget(key, None, 0, 0, excess=excess)
    return DisruptionBudget(key, selector, allowed, max(0, status.desired_healthy), labels)


def _labels_read(selector: LabelSelector | None) -> frozenset[str]:
    if selector is None:
        return frozenset()
    return frozenset((*selector.match_labels, *(requirement.key for requirement in selector.match_expressions)))


def _own_excess(selector: LabelSelector | None, labels: frozenset[str]) -> str:
    """Which bound a selector exceeds by itself, "" for none."""
    if len(labels) > MAX_LABELS:
        return f"its selector reads {len(labels)} labels, at most {MAX_LABELS} are allowed"
    values = sum(max(1, len(each.values)) for each in selector.match_expressions) if selector is not None else 0
    return f"its selector lists {values} values, at most {MAX_VALUES} are allowed" if values > MAX_VALUES else ""


def _excess(budget: DisruptionBudget, chosen: int, read: set[str]) -> str:
    """Which bound a budget exceeds after so many others, which read these labels; "" for none."""
    if chosen >= MAX_BUDGETS:
        return f"its namespace has more than {MAX_BUDGETS} PodDisruptionBudgets, of which the first by name count"
    if budget.excess:
        return budget.excess
    if (labels := len(read | budget.labels)) > MAX_LABELS:
        return f"the budgets of its namespace up to this one read {labels} labels, at most {MAX_LABELS} are allowed"
    return ""


class NamespaceBudgets:
    """The budgets of one namespace."""

    __slots__ = ("_by_key", "budgets", "has_more_problems", "labels", "problems", "running")

    def __init__(self) -> None:
        self._by_key: dict[str, DisruptionBudget] = {}
        #: those that count, by name
        self.budgets: tuple[DisruptionBudget, ...] = ()
        #: the labels their selectors read
        self.labels: tuple[str, ...] = ()
        #: running pods by these labels, None = not counted yet
        self.running: dict[LabelValues, int] | None = None
        #: key of a budget that does not count -> why, for the first `MAX_REPORTED`
        self.problems: dict[str, str] = {}
        #: whether more budgets do not count
        self.has_more_problems = False

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def set(self, key: str, budget: DisruptionBudget | None) -> bool:
        """Add, replace or remove a budget; whether that changes anything."""
        before = self._by_key.get(key)
        if before == budget:
            return False
        if budget is None:
            del self._by_key[key]
        else:
            self._by_key[key] = budget
        return True

    def choose(self) -> None:
        """Take budgets in the order of their names as long as they are within bounds."""
        chosen: list[DisruptionBudget] = []
        read: set[str] = set()
        self.problems, self.has_more_problems = {}, False
        for key in sorted(self._by_key):
            budget = self._by_key[key]
            problem = _excess(budget, len(chosen), read)
            if not problem:
                chosen.append(budget)
                read |= budget.labels
            elif len(self.problems) < MAX_REPORTED:
                self.problems[key] = f"{problem}; evictions ignore the budget"
            else:
                self.has_more_problems = True
                if len(chosen) >= MAX_BUDGETS:
                    break
        self.budgets = tuple(chosen)
        labels = tuple(sorted(read))
        if labels != self.labels:
            self.labels, self.running = labels, None

    def values_of(self, task: Task) -> LabelValues:
        """The labels of a task that decide which budgets it is under."""
        labels = task.labels
        return tuple(labels.get(label) for label in self.labels)

    def covering(self, values: LabelValues) -> tuple[str, ...]:
        """Keys of the budgets of pods with these labels."""
        labels = {label: value for label, value in zip(self.labels, values, strict=True) if value is not None}
        return tuple(budget.key for budget in self.budgets if selector_matches(budget.selector, labels))

    def allowances(self) -> dict[str, int]:
        """Key of each budget -> evictions it allows: what its status says, but no more than run beyond its desire."""
        running: Counter[str] = Counter()
        for values, count in (self.running or {}).items():
            for key in self.covering(values):
                running[key] += count
        return {
            budget.key: max(0, min(budget.allowed, running[budget.key] - budget.desired_healthy))
            for budget in self.budgets
        }

    def count(self, task: Task, sign: int) -> None:
        """A task comes (1) or goes (-1)."""
        if self.running is None or task.status is not TaskStatus.RUNNING:
            return
        values = self.values_of(task)
        count = self.running.get(values, 0) + sign
        if count:
            self.running[values] = count
        else:
            self.running.pop(values, None)


class BudgetIndex:
    """The budgets of the cluster; false while there is none."""

    __slots__ = ("_by_namespace", "_changed")

    def __init__(self) -> None:
        self._by_namespace: dict[str, NamespaceBudgets] = {}
        #: namespaces whose budgets have changed since the last choice
        self._changed: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._by_namespace

    def set(self, namespace: str, key: str, budget: DisruptionBudget | None) -> bool:
        """Add, replace or remove a budget; whether that changes anything."""
        known = self._by_namespace.get(namespace)
        if known is None:
            if budget is None:
                return False
            known = self._by_namespace[namespace] = NamespaceBudgets()
        changed = known.set(key, budget)
        if changed:
            self._changed.add(namespace)
        if not known:
            del self._by_namespace[namespace]
        return changed

    def choose(self) -> list[str]:
        """Choose the budgets that count; the namespaces where that was due."""
        namespaces = sorted(self._changed)
        self._changed.clear()
        for namespace in namespaces:
            if (known := self._by_namespace.get(namespace)) is not None:
                known.choose()
        return namespaces

    def problems(self, namespace: str) -> list[Problem]:
        """The budgets of a namespace that do not count, and why."""
        known = self._by_namespace.get(namespace)
        if known is None:
            return []
        found = [Problem(f"PodDisruptionBudget/{key}", "spec", text) for key, text in known.problems.items()]
        if known.has_more_problems:
            # Without a number: it would be another problem with every budget.
            text = f"more PodDisruptionBudgets do not count than the {MAX_REPORTED} that are reported"
            found.append(Problem(f"Namespace/{namespace}", "", f"{text}; evictions ignore them"))
        return found

    def count(self, task: Task, sign: int) -> None:
        """A task comes (1) or goes (-1)."""
        known = self._by_namespace.get(task.namespace)
        if known is not None:
            known.count(task, sign)

    def counted(self, namespace: str, tasks: Iterable[Task]) -> NamespaceBudgets | None:
        """The budgets of a namespace with their running pods; what was not counted yet is counted from all tasks."""
        known = self._by_namespace.get(namespace)
        if known is not None and known.running is None:
            uncounted = {name: each for name, each in self._by_namespace.items() if each.running is None}
            for each in uncounted.values():
                each.running = {}
            for task in tasks:
                if (each_budgets := uncounted.get(task.namespace)) is not None:
                    each_budgets.count(task, 1)
        return known
