"""Topology spread constraints by counting (cycle:FLT-4, Do better; ADR 26), as Kubernetes 1.35 decides them.

A constraint selects pods of the pod's own namespace and counts them per domain: the nodes that share a value of the
topology key.  Only nodes count that have the keys of all constraints of the kind and that the two policies of the
constraint (node affinity, taints) let in.  `DoNotSchedule` refuses a node where the pod would make its domain exceed
the emptiest one by more than `maxSkew`; `ScheduleAnyway` prefers the domains with few.

The index follows placements and undo.  Nothing is counted before a pod with constraints is placed, and each count is
shared by all constraints that count the same pods over the same nodes.  Subtle:

- One placement changes the result for many nodes, so a ranking may not be repaired row by row.  `key` therefore names
  which domains are closed right now: with zones the same few results come again and again, and each has its ranking.
- `key` also says whether the pod counts itself, because that decides how a ranking changes with the counts.
- A constraint applies to its own pod, at the moment it is placed: pods without one may crowd its domain later.  But in
  a trial its victims may not return at once to a domain where they were one too many: else the pod would be pipelined
  onto a node that the next cycle refuses again.
- An empty selector counts no pods, though it selects the pod itself, as in Kubernetes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from math import log
from typing import NamedTuple

import msgspec
import numpy as np

from pykai.api.core import TopologySpreadConstraint
from pykai.api.meta import LabelSelector, LabelSelectorRequirement
from pykai.core.caching import VersionedCache
from pykai.core.cluster.nodematching import eligible_nodes, has_untolerated_taint, matches_node_selector
from pykai.core.cluster.nodetable import NodeTable
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.hooks import NodeSet
from pykai.core.model.affinityterms import selector_matches
from pykai.core.model.axes import BoolArray, FloatArray, IntArray, Rows
from pykai.core.model.shapes import HARD_SPREAD, SOFT_SPREAD, Shape
from pykai.core.model.status import ACTIVE_ALLOCATED, TaskStatus
from pykai.core.model.tasks import Task

_SKEW_EXCEEDED, _LABEL_MISSING = 1, 2
#: Texts of the codes above.
SPREAD_TEXTS = (
    "node(s) didn't match pod topology spread constraints",
    "node(s) didn't match pod topology spread constraints (missing required label)",
)

_ALL = slice(None)
#: Best points of a score, as kube-scheduler counts them.
_MAX_SCORE = 100.0


class _DomainCounts:
    """How many selected pods each domain has, over the nodes that count."""

    __slots__ = ("codes", "counts", "domains", "eligible", "missing", "version")

    def __init__(self, nodes: NodeTable, topology_key: str, eligible: BoolArray) -> None:
        #: [node] its domain; [domain] pods there, whether a node of it counts, whether it means "no label"
        self.codes, values = nodes.label_codes(topology_key)
        self.counts: IntArray = np.zeros(len(values), dtype=np.int64)
        self.domains: BoolArray = np.bincount(self.codes[eligible], minlength=len(values)) > 0
        self.missing: BoolArray = np.array([value is None for value in values], dtype=np.bool_)
        #: [node] counts
        self.eligible = eligible
        self.version = 0

    def add(self, row: int, sign: int) -> None:
        if self.eligible[row]:
            self.counts[self.codes[row]] += sign
            self.version += 1

    def min_count(self, min_domains: int) -> int:
        """Pods in the emptiest domain; while there are fewer domains than wanted, one counts as empty."""
        present = self.counts[self.domains]
        return int(present.min()) if present.size >= max(min_domains, 1) else 0


class _SpreadSelection:
    """Pods of one namespace that a selector selects, with what is counted of them."""

    __slots__ = ("anchor", "domain_counts", "is_empty_selector", "namespace", "selector")

    def __init__(self, namespace: str, selector: LabelSelector | None) -> None:
        self.namespace = namespace
        self.selector = selector
        self.is_empty_selector = selector is None or not (selector.match_labels or selector.match_expressions)
        #: a label that all of them have, so that they are found quickly; an empty key when there is none
        labels = selector.match_labels if selector is not None else {}
        self.anchor = min(labels.items(), default=("", ""))
        self.domain_counts: dict[Hashable, _DomainCounts] = {}

    def selects_task(self, task: Task) -> bool:
        return task.namespace == self.namespace and selector_matches(self.selector, task.labels)


class _SpreadConstraint:
    """A constraint of a shape with its resolved pods and nodes."""

    __slots__ = ("_codes", "constraint", "domain_counts", "selection")

    def __init__(self, constraint: TopologySpreadConstraint, selection: _SpreadSelection, tally: _DomainCounts) -> None:
        self.constraint = constraint
        self.selection = selection
        self.domain_counts = tally
        self._codes: VersionedCache[bool, tuple[IntArray, bytes]] = VersionedCache()

    def domain_codes(self, counts_itself: bool) -> tuple[IntArray, bytes]:
        """[domain] 0 or the number of the text, for a pod that the constraint selects or does not; and its bytes."""
        domain_counts = self.domain_counts
        known = self._codes.current(counts_itself, domain_counts.version)
        if known is None:
            skew = domain_counts.counts + counts_itself - domain_counts.min_count(self.constraint.min_domains or 1)
            codes = np.where(skew > self.constraint.max_skew, _SKEW_EXCEEDED, 0)
            codes[domain_counts.missing] = _LABEL_MISSING
            packed = np.packbits(codes == _SKEW_EXCEEDED).tobytes()
            known = self._codes.store(counts_itself, domain_counts.version, (codes, packed))
        return known


class DomainLoad(NamedTuple):
    """What the preference for emptier domains depends on besides a node's own domains."""

    versions: tuple[int, ...]
    #: of each constraint: the more domains, the more a pod in one of them counts
    weights: tuple[float, ...]
    #: how crowded the candidate nodes are
    least: float
    most: float


class SpreadIndex:
    """Counts of selected pods per domain, following placements (an `Observer` of the state)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._nodes = snapshot.nodes
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self._selections: dict[tuple[str, bytes], _SpreadSelection] = {}
        #: namespace and anchor -> selections that a task of that namespace and label may belong to
        self._anchored: dict[tuple[str, str, str], list[_SpreadSelection]] = {}
        #: the constraints of a shape by kind, for certain values of the labels they name
        self._constraints: dict[Hashable, tuple[_SpreadConstraint, ...]] = {}
        #: namespace -> tasks that counted when the cycle began, with their rows; made on first use
        self._initial_pods: dict[str, list[tuple[Task, int]]] | None = None
        #: namespace and label -> the same by value of the label
        self._labelled: dict[tuple[str, str], dict[str, list[tuple[Task, int]]]] = {}
        #: tasks that came or went since, with their rows, -1 = gone
        self._moved_tasks: dict[str, tuple[Task, int]] = {}
        #: constraints of tasks placed in this cycle, with their domains -> how many of these tasks
        self._placed_constraints: Counter[tuple[_SpreadConstraint, int]] = Counter()
        #: changes with every task that comes or goes
        self._epoch = 0

    def task_added(self, task: Task, row: int) -> None:
        """A task now holds the node."""
        self._record_move(task, row, 1)
        self._moved_tasks[task.key] = (task, row)

    def task_removed(self, task: Task, row: int) -> None:
        """A task no longer holds the node."""
        self._record_move(task, row, -1)
        self._moved_tasks[task.key] = (task, -1)

    def _record_move(self, task: Task, row: int, sign: int) -> None:
        """Follow a task; a selection that is counted for the first time still sees it where it was (`_moved_tasks`)."""
        self._epoch += 1
        if task.shape.spread and self._nodes.rows.get(task.node) != row:
            for constraint in self._constraints_of(task, HARD_SPREAD):
                placed = (constraint, int(constraint.domain_counts.codes[row]))
                self._placed_constraints[placed] += sign
                if not self._placed_constraints[placed]:
                    del self._placed_constraints[placed]
        if not self._anchored:
            return
        for label, value in (("", ""), *task.labels.items()):
            for selection in self._anchored.get((task.namespace, label, value), ()):
                if selection.selects_task(task):
                    for domain_counts in selection.domain_counts.values():
                        domain_counts.add(row, sign)

    def _current_pods(self, selection: _SpreadSelection) -> Iterator[tuple[Task, int]]:
        """Tasks on nodes right now, at least those of the selection."""
        namespace, (label, value) = selection.namespace, selection.anchor
        if self._initial_pods is None:
            self._initial_pods = {}
            for node, row in self._nodes.rows.items():
                for task in self._snapshot.read_running().tasks_on.get(node, {}).values():
                    if _is_counted(task):
                        self._initial_pods.setdefault(task.namespace, []).append((task, row))
        by_value = self._labelled.get((namespace, label))
        if by_value is None:
            by_value = self._labelled[namespace, label] = {}
            for item in self._initial_pods.get(namespace, ()):
                by_value.setdefault(item[0].labels.get(label, ""), []).append(item)
        yield from (item for item in by_value.get(value, ()) if item[0].key not in self._moved_tasks)
        yield from (item for item in self._moved_tasks.values() if item[1] >= 0)

    def _selection(self, constraint: TopologySpreadConstraint, task: Task) -> _SpreadSelection:
        """The pods a constraint counts, those with the same values of `matchLabelKeys` only."""
        selector, labels = constraint.label_selector, task.labels
        same = [key for key in constraint.match_label_keys if key in labels]
        if selector is not None and same:
            own = [LabelSelectorRequirement(key=key, operator="In", values=(labels[key],)) for key in same]
            selector = msgspec.structs.replace(selector, match_expressions=(*selector.match_expressions, *own))
        key = (task.namespace, self._encoder.encode(selector))
        selection = self._selections.get(key)
        if selection is None:
            selection = self._selections[key] = _SpreadSelection(task.namespace, selector)
            if not selection.is_empty_selector:
                self._anchored.setdefault((selection.namespace, *selection.anchor), []).append(selection)
        return selection

    def _domain_counts(self, selection: _SpreadSelection, topology_key: str, eligible: BoolArray) -> _DomainCounts:
        key = (topology_key, np.packbits(eligible).tobytes())
        domain_counts = selection.domain_counts.get(key)
        if domain_counts is None:
            domain_counts = selection.domain_counts[key] = _DomainCounts(self._nodes, topology_key, eligible)
            if not selection.is_empty_selector:
                for task, row in self._current_pods(selection):
                    if selection.selects_task(task):
                        domain_counts.add(row, 1)
        return domain_counts

    def _constraints_of(self, task: Task, kind: str) -> tuple[_SpreadConstraint, ...]:
        key = (task.shape.id, kind, _same_labels(task))
        constraints = self._constraints.get(key)
        if constraints is None:
            constraints = self._constraints[key] = self._read_constraints(task, kind)
        return constraints

    def _read_constraints(self, task: Task, kind: str) -> tuple[_SpreadConstraint, ...]:
        constraints = [constraint for constraint in task.shape.spread if constraint.when_unsatisfiable == kind]
        labelled = np.ones(len(self._nodes), dtype=np.bool_)
        for constraint in constraints:
            labelled &= self._nodes.per_label(constraint.topology_key, lambda value: value is not None)
        resolved = []
        for constraint in constraints:
            selection = self._selection(constraint, task)
            eligible = labelled & _counted_nodes(self._nodes, task.shape, constraint)
            resolved.append(
                _SpreadConstraint(
                    constraint, selection, self._domain_counts(selection, constraint.topology_key, eligible)
                )
            )
        return tuple(resolved)

    def key(self, request: PlacementRequest) -> Hashable:
        """What decides besides the shape: labels of the pod, and which domains are closed to it right now."""
        task = request.task
        returning_key = (task.key, self._epoch) if self._is_returning_victim(task) else None
        if not request.shape.spread:
            return returning_key
        hard = self._constraints_of(task, HARD_SPREAD)
        counts_itself = tuple(rule.selection.selects_task(task) for rule in hard)
        closed_domains = tuple(rule.domain_codes(own)[1] for rule, own in zip(hard, counts_itself, strict=True))
        return (_same_labels(task), counts_itself, closed_domains, returning_key)

    def preference_key(self, request: PlacementRequest) -> Hashable:
        """The same for `preference`; `domain_load` has the counts."""
        return _same_labels(request.task) if request.shape.has_spread(SOFT_SPREAD) else None

    def _is_returning_victim(self, task: Task) -> bool:
        """Whether a task was evicted, while others were placed under constraints."""
        return bool(self._placed_constraints) and bool(task.node)

    def can_refuse(self, request: PlacementRequest) -> bool:
        """Whether `refusal_codes` can refuse anything."""
        return self._is_returning_victim(request.task) or request.shape.has_spread(HARD_SPREAD)

    def refusal_codes(self, state: State, request: PlacementRequest, rows: Rows) -> IntArray:
        """[rows] 0 or the number of the text in SPREAD_TEXTS; the first constraint that refuses a node gives the
        reason.
        """
        task = request.task
        codes: IntArray = np.zeros(len(np.arange(len(self._nodes))[rows]), dtype=np.int64)
        for constraint in self._constraints_of(task, HARD_SPREAD):
            domain_codes, _ = constraint.domain_codes(constraint.selection.selects_task(task))
            codes = np.where(codes == 0, domain_codes[constraint.domain_counts.codes[rows]], codes)
        if self._is_returning_victim(task):
            for constraint, domain in self._placed_constraints:
                domain_counts = constraint.domain_counts
                if (
                    constraint.selection.selects_task(task)
                    and constraint.domain_codes(True)[0][domain] == _SKEW_EXCEEDED
                ):
                    codes[(codes == 0) & domain_counts.eligible[rows] & (domain_counts.codes[rows] == domain)] = (
                        _SKEW_EXCEEDED
                    )
        return codes

    def domain_load(self, state: State, request: PlacementRequest, nodes: NodeSet) -> Callable[[], DomainLoad]:
        """How crowded the nodes are that the pod could use, now and at each later call."""
        constraints = self._constraints_of(request.task, SOFT_SPREAD)
        usable = eligible_nodes(self._nodes, request.shape) & _has_topology_labels(constraints, _ALL)
        if nodes.mask is not None:
            usable &= nodes.mask
        # Rounded, so that every machine adds up the same figures.
        weights = tuple(round(log(len(np.unique(rule.domain_counts.codes[usable])) + 2), 9) for rule in constraints)
        last_load = DomainLoad((), weights, 0.0, 0.0)

        def current_load() -> DomainLoad:
            nonlocal last_load
            versions = tuple(rule.domain_counts.version for rule in constraints)
            if versions != last_load.versions:
                loads = _domain_loads(constraints, weights, _ALL)[usable]
                least, most = (float(loads.min()), float(loads.max())) if loads.size else (0.0, 0.0)
                last_load = DomainLoad(versions, weights, least, most)
            return last_load

        return current_load

    def preference(self, state: State, request: PlacementRequest, rows: Rows, domain_load: DomainLoad) -> FloatArray:
        """[rows] from 100 for the emptiest candidates down; 0 for nodes without the topology keys."""
        constraints = self._constraints_of(request.task, SOFT_SPREAD)
        labelled = _has_topology_labels(constraints, rows)
        if domain_load.most <= 0:
            return np.multiply(_MAX_SCORE, labelled)
        loads = _domain_loads(constraints, domain_load.weights, rows)
        return labelled * (_MAX_SCORE * (domain_load.most + domain_load.least - loads) / domain_load.most)


def _is_counted(task: Task) -> bool:
    """Whether a pod on a node counts: a terminating one does not, one in phase Unknown does."""
    return ACTIVE_ALLOCATED[task.status] or (task.status is TaskStatus.UNKNOWN and task.deletion_ns is None)


def _same_labels(task: Task) -> tuple[str | None, ...]:
    """The pod's values of the labels named in `matchLabelKeys`."""
    labels = task.labels
    return tuple(labels.get(key) for constraint in task.shape.spread for key in constraint.match_label_keys)


def _counted_nodes(nodes: NodeTable, shape: Shape, constraint: TopologySpreadConstraint) -> BoolArray:
    """[node] counts for a constraint, as its policies say."""
    column = np.ones(len(nodes), dtype=np.bool_)
    if (constraint.node_affinity_policy or "Honor") == "Honor":
        column &= matches_node_selector(nodes, shape)
    if (constraint.node_taints_policy or "Ignore") == "Honor":
        column &= ~has_untolerated_taint(nodes, shape)
    return column


def _has_topology_labels(constraints: tuple[_SpreadConstraint, ...], rows: Rows) -> BoolArray:
    """[rows] has the topology keys of all constraints."""
    labelled: BoolArray = np.ones(1, dtype=np.bool_)
    for constraint in constraints:
        labelled = labelled & ~constraint.domain_counts.missing[constraint.domain_counts.codes[rows]]
    return labelled


def _domain_loads(constraints: tuple[_SpreadConstraint, ...], weights: tuple[float, ...], rows: Rows) -> FloatArray:
    """[rows] pods in the domains of a node, weighed; a larger `maxSkew` makes differences matter less."""
    total: FloatArray = np.zeros(1)
    for constraint, weight in zip(constraints, weights, strict=True):
        total = (
            total
            + constraint.domain_counts.counts[constraint.domain_counts.codes[rows]] * weight
            + (constraint.constraint.max_skew - 1)
        )
    return total


def spread_index(snapshot: Snapshot) -> SpreadIndex:
    """The index of a snapshot; the plugins that need it share one."""
    index = snapshot.shared.get("spread")
    if not isinstance(index, SpreadIndex):
        index = snapshot.shared["spread"] = SpreadIndex(snapshot)
    return index
