"""Topology spread constraints by counting (cycle:FLT-4, Do better; ADR 26), as Kubernetes 1.35 decides them.

A constraint selects pods of the pod's own namespace and counts them per domain: the nodes that share a value of the
topology key.  Only nodes count that have the keys of all constraints of the kind and that the two policies of the
constraint (node affinity, taints) let in.  `DoNotSchedule` refuses a node where the pod would make its domain exceed
the emptiest one by more than `maxSkew`; `ScheduleAnyway` prefers the domains with few.

The index follows placements and undo.  Nothing is counted before a pod with constraints asks, and what is counted once
is shared by all constraints that count the same pods over the same nodes.  Subtle:

- One placement changes the answer for many nodes, so a ranking may not be repaired row by row.  `key` therefore names
  which domains are closed right now: with zones the same few answers come again and again, and each has its ranking.
- `key` also says whether the pod counts itself, because that decides how a ranking goes on when counts change.
- A constraint binds the pod that has it, at the moment it is placed: pods without one may crowd its domain later.  But
  while others are tried as its victims, they may not come back at once to where they were one too many: else the pod
  would be promised a place that the next cycle denies it again.
- An empty selector counts nobody, though it selects the pod itself; that is how Kubernetes has it.
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
from pykai.core.cluster.nodematching import candidates, selected, tainted
from pykai.core.cluster.snapshot import NodeTable, Snapshot
from pykai.core.cycle.state import State
from pykai.core.hooks import Ask, NodeSet, Rows
from pykai.core.model.affinityterms import selects
from pykai.core.model.axes import BoolArray, FloatArray, IntArray
from pykai.core.model.shapes import HARD_SPREAD, SOFT_SPREAD, Shape
from pykai.core.model.status import ACTIVE_ALLOCATED, Status
from pykai.core.model.tasks import Task

_TOO_MANY, _NO_LABEL = 1, 2
#: Texts of the codes above.
SPREAD_TEXTS = (
    "node(s) didn't match pod topology spread constraints",
    "node(s) didn't match pod topology spread constraints (missing required label)",
)

_ALL = slice(None)
#: Best points of a score, as kube-scheduler counts them.
_BEST = 100.0


class _Tally:
    """How many selected pods each domain has, over the nodes that count."""

    __slots__ = ("codes", "counts", "domains", "eligible", "missing", "version")

    def __init__(self, nodes: NodeTable, topology_key: str, eligible: BoolArray) -> None:
        #: [node] its domain; [domain] pods there, whether a node of it counts, whether it stands for "no label"
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

    def least(self, min_domains: int) -> int:
        """Pods in the emptiest domain; while there are fewer domains than wanted, one counts as empty."""
        present = self.counts[self.domains]
        return int(present.min()) if present.size >= max(min_domains, 1) else 0


class _Selection:
    """Pods of one namespace that a selector selects, with what is counted of them."""

    __slots__ = ("anchor", "counts_nobody", "namespace", "selector", "tallies")

    def __init__(self, namespace: str, selector: LabelSelector | None) -> None:
        self.namespace = namespace
        self.selector = selector
        self.counts_nobody = selector is None or not (selector.match_labels or selector.match_expressions)
        #: a label that all of them have, so that they are found quickly; an empty key when there is none
        labels = selector.match_labels if selector is not None else {}
        self.anchor = min(labels.items(), default=("", ""))
        self.tallies: dict[Hashable, _Tally] = {}

    def has(self, task: Task) -> bool:
        return task.namespace == self.namespace and selects(self.selector, task.labels)


class _Rule:
    """A constraint of a shape with its pods and nodes worked out."""

    __slots__ = ("_verdicts", "constraint", "selection", "tally")

    def __init__(self, constraint: TopologySpreadConstraint, selection: _Selection, tally: _Tally) -> None:
        self.constraint = constraint
        self.selection = selection
        self.tally = tally
        self._verdicts: dict[bool, tuple[int, IntArray, bytes]] = {}

    def verdict(self, counts_itself: bool) -> tuple[IntArray, bytes]:
        """[domain] 0 or the number of the text, for a pod that the constraint selects or does not; and its bytes."""
        tally = self.tally
        found = self._verdicts.get(counts_itself)
        if found is None or found[0] != tally.version:
            skew = tally.counts + counts_itself - tally.least(self.constraint.min_domains or 1)
            codes = np.where(skew > self.constraint.max_skew, _TOO_MANY, 0)
            codes[tally.missing] = _NO_LABEL
            packed = np.packbits(codes == _TOO_MANY).tobytes()
            found = self._verdicts[counts_itself] = (tally.version, codes, packed)
        return found[1], found[2]


class Crowding(NamedTuple):
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
        self._selections: dict[tuple[str, bytes], _Selection] = {}
        #: namespace and anchor -> selections that a task of that namespace and label may belong to
        self._anchored: dict[tuple[str, str, str], list[_Selection]] = {}
        #: the constraints of a shape by kind, for certain values of the labels they name
        self._rules: dict[Hashable, tuple[_Rule, ...]] = {}
        #: namespace -> tasks that counted when the cycle began, with their rows; made on first use
        self._began: dict[str, list[tuple[Task, int]]] | None = None
        #: namespace and label -> the same by value of the label
        self._labelled: dict[tuple[str, str], dict[str, list[tuple[Task, int]]]] = {}
        #: tasks that came or went since, with their rows, -1 = gone
        self._moved: dict[str, tuple[Task, int]] = {}
        #: constraints of tasks placed in this cycle, with their domains -> how many of these tasks
        self._promised: Counter[tuple[_Rule, int]] = Counter()
        #: changes with every task that comes or goes
        self._epoch = 0

    def came(self, task: Task, row: int) -> None:
        """A task now holds the node."""
        self._change(task, row, 1)
        self._moved[task.key] = (task, row)

    def went(self, task: Task, row: int) -> None:
        """A task no longer holds the node."""
        self._change(task, row, -1)
        self._moved[task.key] = (task, -1)

    def _change(self, task: Task, row: int, sign: int) -> None:
        """Follow a task; what is counted for the first time here still sees it where it was (`_moved`)."""
        self._epoch += 1
        if task.shape.spread and self._nodes.rows.get(task.node) != row:
            for rule in self._rules_of(task, HARD_SPREAD):
                promise = (rule, int(rule.tally.codes[row]))
                self._promised[promise] += sign
                if not self._promised[promise]:
                    del self._promised[promise]
        if not self._anchored:
            return
        for label, value in (("", ""), *task.labels.items()):
            for selection in self._anchored.get((task.namespace, label, value), ()):
                if selection.has(task):
                    for tally in selection.tallies.values():
                        tally.add(row, sign)

    def _here(self, selection: _Selection) -> Iterator[tuple[Task, int]]:
        """Tasks on nodes right now, at least those of the selection."""
        namespace, (label, value) = selection.namespace, selection.anchor
        if self._began is None:
            self._began = {}
            for node, row in self._nodes.rows.items():
                for task in self._snapshot.tasks_on.get(node, {}).values():
                    if _counts(task):
                        self._began.setdefault(task.namespace, []).append((task, row))
        by_value = self._labelled.get((namespace, label))
        if by_value is None:
            by_value = self._labelled[namespace, label] = {}
            for item in self._began.get(namespace, ()):
                by_value.setdefault(item[0].labels.get(label, ""), []).append(item)
        yield from (item for item in by_value.get(value, ()) if item[0].key not in self._moved)
        yield from (item for item in self._moved.values() if item[1] >= 0)

    def _selection(self, constraint: TopologySpreadConstraint, task: Task) -> _Selection:
        """The pods a constraint counts, those with the same values of `matchLabelKeys` only."""
        selector, labels = constraint.label_selector, task.labels
        same = [key for key in constraint.match_label_keys if key in labels]
        if selector is not None and same:
            own = [LabelSelectorRequirement(key=key, operator="In", values=(labels[key],)) for key in same]
            selector = msgspec.structs.replace(selector, match_expressions=(*selector.match_expressions, *own))
        key = (task.namespace, self._encoder.encode(selector))
        found = self._selections.get(key)
        if found is None:
            found = self._selections[key] = _Selection(task.namespace, selector)
            if not found.counts_nobody:
                self._anchored.setdefault((found.namespace, *found.anchor), []).append(found)
        return found

    def _tally(self, selection: _Selection, topology_key: str, eligible: BoolArray) -> _Tally:
        key = (topology_key, np.packbits(eligible).tobytes())
        tally = selection.tallies.get(key)
        if tally is None:
            tally = selection.tallies[key] = _Tally(self._nodes, topology_key, eligible)
            if not selection.counts_nobody:
                for task, row in self._here(selection):
                    if selection.has(task):
                        tally.add(row, 1)
        return tally

    def _rules_of(self, task: Task, kind: str) -> tuple[_Rule, ...]:
        key = (task.shape.id, kind, _same_labels(task))
        found = self._rules.get(key)
        if found is None:
            found = self._rules[key] = self._read(task, kind)
        return found

    def _read(self, task: Task, kind: str) -> tuple[_Rule, ...]:
        constraints = [constraint for constraint in task.shape.spread if constraint.when_unsatisfiable == kind]
        labelled = np.ones(len(self._nodes), dtype=np.bool_)
        for constraint in constraints:
            labelled &= self._nodes.per_label(constraint.topology_key, lambda value: value is not None)
        rules = []
        for constraint in constraints:
            selection = self._selection(constraint, task)
            eligible = labelled & _let_in(self._nodes, task.shape, constraint)
            rules.append(_Rule(constraint, selection, self._tally(selection, constraint.topology_key, eligible)))
        return tuple(rules)

    def key(self, ask: Ask) -> Hashable:
        """What else than the shape decides: labels of the pod, and which domains are closed to it right now."""
        task = ask.task
        back = (task.key, self._epoch) if self._comes_back(task) else None
        if not ask.shape.spread:
            return back
        hard = self._rules_of(task, HARD_SPREAD)
        itself = tuple(rule.selection.has(task) for rule in hard)
        closed = tuple(rule.verdict(own)[1] for rule, own in zip(hard, itself, strict=True))
        return (_same_labels(task), itself, closed, back)

    def preference_key(self, ask: Ask) -> Hashable:
        """The same for `preference`; what is counted it tells through `crowding`."""
        return _same_labels(ask.task) if ask.shape.has_spread(SOFT_SPREAD) else None

    def _comes_back(self, task: Task) -> bool:
        """Whether a task was told to leave, while others were placed under constraints."""
        return bool(self._promised) and bool(task.node)

    def decides(self, ask: Ask) -> bool:
        """Whether `refused` can refuse anything."""
        return self._comes_back(ask.task) or ask.shape.has_spread(HARD_SPREAD)

    def refused(self, state: State, ask: Ask, rows: Rows) -> IntArray:
        """[rows] 0 or the number of the text in SPREAD_TEXTS; the first constraint that refuses a node tells why."""
        task = ask.task
        codes: IntArray = np.zeros(len(np.arange(len(self._nodes))[rows]), dtype=np.int64)
        for rule in self._rules_of(task, HARD_SPREAD):
            verdict, _ = rule.verdict(rule.selection.has(task))
            codes = np.where(codes == 0, verdict[rule.tally.codes[rows]], codes)
        if self._comes_back(task):
            for rule, domain in self._promised:
                tally = rule.tally
                if rule.selection.has(task) and rule.verdict(True)[0][domain] == _TOO_MANY:
                    codes[(codes == 0) & tally.eligible[rows] & (tally.codes[rows] == domain)] = _TOO_MANY
        return codes

    def crowding(self, state: State, ask: Ask, nodes: NodeSet) -> Callable[[], Crowding]:
        """How crowded the nodes are that the pod could use, now and whenever it is asked."""
        rules = self._rules_of(ask.task, SOFT_SPREAD)
        usable = candidates(self._nodes, ask.shape) & _labelled(rules, _ALL)
        if nodes.mask is not None:
            usable &= nodes.mask
        # Rounded, so that every machine adds up the same figures.
        weights = tuple(round(log(len(np.unique(rule.tally.codes[usable])) + 2), 9) for rule in rules)
        known = Crowding((), weights, 0.0, 0.0)

        def now() -> Crowding:
            nonlocal known
            versions = tuple(rule.tally.version for rule in rules)
            if versions != known.versions:
                crowd = _crowd(rules, weights, _ALL)[usable]
                least, most = (float(crowd.min()), float(crowd.max())) if crowd.size else (0.0, 0.0)
                known = Crowding(versions, weights, least, most)
            return known

        return now

    def preference(self, state: State, ask: Ask, rows: Rows, crowding: Crowding) -> FloatArray:
        """[rows] from 100 for the emptiest candidates down; 0 for nodes without the topology keys."""
        rules = self._rules_of(ask.task, SOFT_SPREAD)
        labelled = _labelled(rules, rows)
        if crowding.most <= 0:
            return np.multiply(_BEST, labelled)
        crowd = _crowd(rules, crowding.weights, rows)
        return labelled * (_BEST * (crowding.most + crowding.least - crowd) / crowding.most)


def _counts(task: Task) -> bool:
    """Whether a pod on a node counts: one that is leaving does not, one that nobody has heard of lately does."""
    return ACTIVE_ALLOCATED[task.status] or (task.status is Status.UNKNOWN and task.deletion_ns is None)


def _same_labels(task: Task) -> tuple[str | None, ...]:
    """The pod's values of the labels named in `matchLabelKeys`."""
    labels = task.labels
    return tuple(labels.get(key) for constraint in task.shape.spread for key in constraint.match_label_keys)


def _let_in(nodes: NodeTable, shape: Shape, constraint: TopologySpreadConstraint) -> BoolArray:
    """[node] counts for a constraint, as its policies say."""
    column = np.ones(len(nodes), dtype=np.bool_)
    if (constraint.node_affinity_policy or "Honor") == "Honor":
        column &= selected(nodes, shape)
    if (constraint.node_taints_policy or "Ignore") == "Honor":
        column &= ~tainted(nodes, shape)
    return column


def _labelled(rules: tuple[_Rule, ...], rows: Rows) -> BoolArray:
    """[rows] has the topology keys of all constraints."""
    labelled: BoolArray = np.ones(1, dtype=np.bool_)
    for rule in rules:
        labelled = labelled & ~rule.tally.missing[rule.tally.codes[rows]]
    return labelled


def _crowd(rules: tuple[_Rule, ...], weights: tuple[float, ...], rows: Rows) -> FloatArray:
    """[rows] pods in the domains of a node, weighed; a larger `maxSkew` makes differences matter less."""
    total: FloatArray = np.zeros(1)
    for rule, weight in zip(rules, weights, strict=True):
        total = total + rule.tally.counts[rule.tally.codes[rows]] * weight + (rule.constraint.max_skew - 1)
    return total


def spread_index(snapshot: Snapshot) -> SpreadIndex:
    """The index of a snapshot; the plugins that need it share one."""
    found = snapshot.memo.get("spread")
    if not isinstance(found, SpreadIndex):
        found = snapshot.memo["spread"] = SpreadIndex(snapshot)
    return found
