"""Inter-pod affinity and anti-affinity by counting (cycle:FLT-2 InterPodAffinity, PERF-9).

For every distinct term in play the index keeps how many matching pods (or holders of the term) each topology domain
has, and follows placements and undo.  A question about all nodes is then one look-up in a column of domain codes.
The index exists only in clusters where some pod has such terms; elsewhere it costs nothing.

As in Kubernetes: a required affinity counts only pods that match all terms of the incoming pod; the first pod of a
self-matching group may go anywhere that has the topology labels; an anti-affinity term of a running pod also keeps
matching newcomers away.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import msgspec
import numpy as np

from pykai.api.core import Affinity, PodAffinityTerm
from pykai.api.meta import LabelSelector
from pykai.core.axes import BoolArray, FloatArray, IntArray
from pykai.core.hooks import Ask, Rows
from pykai.core.place.constraints import MOST_WEIGHT
from pykai.core.shapes import Shape, pod_affinity_terms
from pykai.core.snapshot import Snapshot
from pykai.core.state import State
from pykai.core.tasks import Task

#: Codes of `refused`, in the order Kubernetes reports them.
AFFINITY_TEXTS = (
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
)


def selects(selector: LabelSelector | None, labels: dict[str, str]) -> bool:
    """Whether a label selector selects these labels; no selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    for key, wanted in selector.match_labels.items():
        if labels.get(key) != wanted:
            return False
    for requirement in selector.match_expressions:
        value, values = labels.get(requirement.key), requirement.values
        operator = requirement.operator
        met = (
            (operator == "In" and value is not None and value in values)
            or (operator == "NotIn" and (value is None or value not in values))
            or (operator == "Exists" and value is not None)
            or (operator == "DoesNotExist" and value is None)
        )
        if not met:
            return False
    return True


class Term(NamedTuple):
    """A term with its namespaces worked out; equal terms are equal keys."""

    topology_key: str
    #: None = every namespace
    namespaces: frozenset[str] | None
    #: the selector's canonical bytes; `selector` itself is looked up by them
    selector: bytes


class _Counts:
    """How many pods of some kind each domain of a topology key has."""

    __slots__ = ("by_code", "topology_key", "total")

    def __init__(self, topology_key: str) -> None:
        self.topology_key = topology_key
        self.by_code: dict[int, int] = {}
        self.total = 0

    def add(self, code: int, sign: int) -> None:
        count = self.by_code.get(code, 0) + sign
        self.total += sign
        if count:
            self.by_code[code] = count
        else:
            del self.by_code[code]


class AffinityIndex:
    """Counts of matching pods per domain, following placements (an `Observer` of the state)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._nodes = snapshot.nodes
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self._selectors: dict[bytes, LabelSelector | None] = {}
        self._terms: dict[int, tuple[tuple[Term, ...], tuple[Term, ...]]] = {}
        self._preferred: dict[int, tuple[tuple[Term, int], ...]] = {}
        #: tasks on nodes: key -> (task, row)
        self._here: dict[str, tuple[Task, int]] = {}
        #: pods that match all of some terms, per domain of one key
        self._matching: dict[tuple[tuple[Term, ...], str], _Counts] = {}
        #: pods that hold an anti-affinity term, per domain of its key
        self._holders: dict[Term, _Counts] = {}
        #: the same for preferred terms, by weight
        self._weighted: dict[tuple[Term, int], _Counts] = {}
        #: changes with every placement: results older than this are void
        self.epoch = 0
        #: whether any pod, placed or waiting, has a term at all
        self.active = bool(snapshot.tasks_with_affinity)
        if self.active:
            rows = self._nodes.rows
            for name, tasks in snapshot.tasks_on.items():
                row = rows.get(name)
                if row is None:
                    continue
                for task in tasks.values():
                    if task.holds_node:
                        self._here[task.key] = (task, row)
                        self._hold(task, row, 1)

    def came(self, task: Task, row: int) -> None:
        """A task now holds the node."""
        self._here[task.key] = (task, row)
        self._change(task, row, 1)

    def went(self, task: Task, row: int) -> None:
        """A task no longer holds the node."""
        self._here.pop(task.key, None)
        self._change(task, row, -1)

    def _change(self, task: Task, row: int, sign: int) -> None:
        if not self.active:
            return
        self.epoch += 1
        for (terms, _), counts in self._matching.items():
            self._tally(counts, row, sign, self._matches_all(terms, task))
        self._hold(task, row, sign)

    def _hold(self, task: Task, row: int, sign: int) -> None:
        if task.shape.affinity is None:
            return
        for term in self._required(task.shape, task.namespace)[1]:
            self._tally(self._holders.setdefault(term, _Counts(term.topology_key)), row, sign, True)
        for weighted in self._preferred_terms(task.shape, task.namespace):
            counts = self._weighted.setdefault(weighted, _Counts(weighted[0].topology_key))
            self._tally(counts, row, sign, True)

    def _tally(self, counts: _Counts, row: int, sign: int, matches: bool) -> None:
        if not matches:
            return
        codes, values = self._nodes.label_codes(counts.topology_key)
        code = int(codes[row])
        if values[code] is not None:
            counts.add(code, sign)

    def _term(self, term: PodAffinityTerm, namespace: str) -> Term:
        selector = self._encoder.encode(term.label_selector)
        self._selectors[selector] = term.label_selector
        named = frozenset(term.namespaces)
        if term.namespace_selector is None:
            return Term(term.topology_key, named or frozenset((namespace,)), selector)
        wanted = term.namespace_selector
        if not wanted.match_labels and not wanted.match_expressions:
            return Term(term.topology_key, None, selector)
        known = (name for name, labels in self._snapshot.namespaces.items() if selects(wanted, labels))
        return Term(term.topology_key, named | frozenset(known), selector)

    def _required(self, shape: Shape, namespace: str) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
        found = self._terms.get(shape.id)
        if found is None:
            near, far = pod_affinity_terms(shape.affinity)
            found = self._terms[shape.id] = (
                tuple(self._term(term, namespace) for term in near),
                tuple(self._term(term, namespace) for term in far),
            )
        return found

    def _preferred_terms(self, shape: Shape, namespace: str) -> tuple[tuple[Term, int], ...]:
        found = self._preferred.get(shape.id)
        if found is None:
            found = self._preferred[shape.id] = tuple(
                (self._term(term, namespace), weight) for term, weight in _preferred(shape.affinity)
            )
        return found

    def _matches(self, term: Term, labels: dict[str, str], namespace: str) -> bool:
        if term.namespaces is not None and namespace not in term.namespaces:
            return False
        return selects(self._selectors[term.selector], labels)

    def _matches_all(self, terms: tuple[Term, ...], task: Task) -> bool:
        return all(self._matches(term, task.labels, task.namespace) for term in terms)

    def _counts_of(self, terms: tuple[Term, ...], topology_key: str) -> _Counts:
        counts = self._matching.get((terms, topology_key))
        if counts is None:
            counts = self._matching[terms, topology_key] = _Counts(topology_key)
            for task, row in self._here.values():
                self._tally(counts, row, 1, self._matches_all(terms, task))
        return counts

    def _column(self, counts: _Counts, rows: Rows) -> IntArray:
        codes, values = self._nodes.label_codes(counts.topology_key)
        by_code = np.zeros(len(values), dtype=np.int64)
        for code, count in counts.by_code.items():
            by_code[code] = count
        column: IntArray = by_code[codes[rows]]
        return column

    def concerns(self, ask: Ask) -> bool:
        """Whether affinity of anyone can decide about this ask."""
        return self.active and (ask.shape.affinity is not None or bool(self._against(ask)))

    def key(self, ask: Ask) -> Hashable:
        """What else than the shape decides: the labels, and the placements so far."""
        if not self.active or (ask.shape.affinity is None and not self._holders and not self._weighted):
            return None
        return (tuple(sorted(ask.task.labels.items())), ask.task.namespace, self.epoch)

    def _against(self, ask: Ask) -> list[_Counts]:
        task = ask.task
        return [
            counts
            for term, counts in self._holders.items()
            if counts.by_code and self._matches(term, task.labels, task.namespace)
        ]

    def refused(self, state: State, ask: Ask, rows: Rows) -> IntArray:
        """[rows] 0 or the number of the text in AFFINITY_TEXTS."""
        task = ask.task
        near, far = self._required(ask.shape, task.namespace)
        size = len(np.arange(len(self._nodes))[rows])
        codes = np.zeros(size, dtype=np.int64)

        def refuse(where: BoolArray, code: int) -> None:
            codes[(codes == 0) & where] = code

        if near:
            everywhere = [self._counts_of(near, term.topology_key) for term in near]
            lonely = all(counts.total == 0 for counts in everywhere) and self._matches_all(near, task)
            for term, counts in zip(near, everywhere, strict=True):
                labelled = self._nodes.per_label(term.topology_key, lambda value: value is not None)[rows]
                refuse(~labelled, 1)
                if not lonely:
                    refuse(self._column(counts, rows) == 0, 1)
        for term in far:
            refuse(self._column(self._counts_of((term,), term.topology_key), rows) > 0, 2)
        for counts in self._against(ask):
            refuse(self._column(counts, rows) > 0, 3)
        return codes

    def preference(self, state: State, ask: Ask, rows: Rows) -> FloatArray:
        """[rows] sum of preferred weights, of the pod and of pods already there (cycle:SCO-2 K8sPlugins)."""
        task = ask.task
        total = np.zeros(len(np.arange(len(self._nodes))[rows]))
        for term, weight in self._preferred_terms(ask.shape, task.namespace):
            total += weight * self._column(self._counts_of((term,), term.topology_key), rows)
        for (term, weight), counts in self._weighted.items():
            if counts.by_code and self._matches(term, task.labels, task.namespace):
                total += weight * self._column(counts, rows)
        return total


def _preferred(affinity: Affinity | None) -> list[tuple[PodAffinityTerm, int]]:
    """Preferred terms with their weights, negative for anti-affinity; what the API server would not admit counts as
    the most it would, or as nothing."""
    if affinity is None:
        return []
    found: list[tuple[PodAffinityTerm, int]] = []
    for side, sign in ((affinity.pod_affinity, 1), (affinity.pod_anti_affinity, -1)):
        if side is None:
            continue
        for item in side.preferred:
            if item.weight > 0:
                found.append((item.pod_affinity_term, sign * min(item.weight, MOST_WEIGHT)))
    return found


def affinity_index(snapshot: Snapshot) -> AffinityIndex:
    """The index of a snapshot; the plugins that need it share one."""
    found = snapshot.memo.get("affinity")
    if not isinstance(found, AffinityIndex):
        found = snapshot.memo["affinity"] = AffinityIndex(snapshot)
    return found
