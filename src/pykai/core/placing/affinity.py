"""Inter-pod affinity and anti-affinity by counting (cycle:FLT-2 InterPodAffinity, cycle:PERF-9).

For every distinct selection of pods that a term in play makes, the index keeps how many of them each node has, and
follows placements and undo.  The result for a request is computed for all nodes at once and kept until a count that it
depends on changes.  The index exists only in clusters where some pod has such terms; elsewhere it costs nothing.

As in Kubernetes: a required affinity counts only pods that match all terms of the incoming pod; the first pod of a
self-matching group may go anywhere that has the topology labels; an anti-affinity term of a running pod also keeps
matching newcomers away.

Subtle: a term costs what it selects, never a walk over all pods or over all other terms (see `affinityterms.py`),
because a tenant may write as many of them as it likes.  A topology key that no node has selects nothing, and nothing is
counted for it.  `selections` counts the selections made: that is the work of a cycle.

Statements: cycle:FLT-6, crowds:search, crowds:terms.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pykai.core.caching import Cache
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.model.affinityterms import AffinityTerm, Anchor, NamespaceScope, anchors_of, selector_matches
from pykai.core.model.axes import BoolArray, FloatArray, IntArray, Rows
from pykai.core.model.shapes import Shape
from pykai.core.model.tasks import Task

#: Codes of `refused`, in the order Kubernetes reports them.
AFFINITY_TEXTS = (
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
)

#: Node row -> how many pods.
_PodsByRow = dict[int, int]


class _PodMove(NamedTuple):
    """A task came to a node (sign 1) or left it (-1)."""

    task: Task
    row: int
    sign: int


class _SelectedPods:
    """Pods that all of some terms select, counted by node row."""

    __slots__ = ("by_row", "changed_epoch", "log", "scope_counts", "seen", "terms")

    def __init__(self, terms: tuple[AffinityTerm, ...], log: list[_PodMove], base: IntArray | None) -> None:
        self.terms = terms
        #: [node] pods among which it is, less those in `by_row`; shared, None = all are in `by_row`
        self.scope_counts = base
        self.by_row: _PodsByRow = {}
        #: changes of pods that can belong to it, and how many of them are counted
        self.log = log
        self.seen = 0
        #: the epoch in which a count was last seen to change; several kinds of pods may read it, in any order
        self.changed_epoch = -1

    @property
    def column(self) -> IntArray | _PodsByRow:
        """Pods by node row, as a column where most nodes have some."""
        if self.scope_counts is None:
            return self.by_row
        column = self.scope_counts.copy()
        for row, count in self.by_row.items():
            column[row] += count
        return column

    @property
    def is_empty(self) -> bool:
        """No pod at all."""
        column = self.column
        return not column if isinstance(column, dict) else not column.any()


def _count(by_row: _PodsByRow, row: int, sign: int) -> None:
    count = by_row.get(row, 0) + sign
    if count:
        by_row[row] = count
    else:
        del by_row[row]


class _HeldTerm(NamedTuple):
    """A term of pods on nodes that selects a pod, and where they are; anti-affinity has no weight."""

    term: AffinityTerm
    weight: int
    by_row: _PodsByRow


class _RelevantTerms:
    """The terms of a pod and of others that concern it; equal for all pods of a shape with equal labels."""

    __slots__ = (
        "affinity",
        "anti_affinity",
        "codes",
        "epoch",
        "held_terms",
        "held_version",
        "preferred",
        "scores",
        "version",
    )

    def __init__(self) -> None:
        self.affinity: _SelectedPods | None = None
        self.anti_affinity: list[_SelectedPods] = []
        self.preferred: list[tuple[int, _SelectedPods]] = []
        #: terms of pods on nodes that select it
        self.held_terms: list[_HeldTerm] = []
        self.held_version = -1
        #: the epoch in which it was last read, and that in which a count of it last changed
        self.epoch = -1
        self.version = 0
        #: [node] results, None = to be computed
        self.codes: IntArray | None = None
        self.scores: FloatArray | None = None


class AffinityIndex:
    """Counts of matching pods per domain, following placements (an `Observer` of the state)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._nodes = snapshot.nodes
        self._namespaces_by_scope: Cache[NamespaceScope, tuple[frozenset[str] | None]] = Cache()
        #: how many selections of pods were counted
        self.selections = 0
        self._selections: dict[tuple[AffinityTerm, ...], _SelectedPods] = {}
        #: label and value -> tasks on nodes as the cycle began, with their rows; None -> all; made on first use
        self._initial_pods_by_anchor: dict[Anchor, list[tuple[Task, int]]] | None = None
        #: namespaces -> [node] how many tasks of theirs
        self._pods_by_scope: dict[NamespaceScope, IntArray] = {}
        #: label and value -> changes since, of the tasks that have it; None -> all
        self._moves_by_anchor: dict[Anchor, list[_PodMove]] = {}
        #: shape with terms -> where pods of it are
        self._holders: dict[int, _PodsByRow] = {}
        #: changes when pods with other terms come
        self._held_version = 0
        self._relevant_terms: dict[Hashable, _RelevantTerms] = {}
        #: changes with every placement
        self.epoch = 0
        #: whether any pod, placed or waiting, has a term at all
        self.active = bool(snapshot.tasks_with_affinity)
        self._store = snapshot.terms
        if self.active:
            held: dict[int, Shape] = {}
            rows = self._nodes.rows
            for task in snapshot.tasks_with_affinity.values():
                row = rows.get(task.node)
                if row is not None and task.holds_node:
                    held[task.shape.id] = task.shape
                    _count(self._holders.setdefault(task.shape.id, {}), row, 1)
            self._store.start_cycle(held)

    def task_added(self, task: Task, row: int) -> None:
        """A task now holds the node."""
        self._record_move(task, row, 1)

    def task_removed(self, task: Task, row: int) -> None:
        """A task no longer holds the node."""
        self._record_move(task, row, -1)

    def _record_move(self, task: Task, row: int, sign: int) -> None:
        if not self.active:
            return
        self.epoch += 1
        change = _PodMove(task, row, sign)
        for anchor in anchors_of(task.labels):
            self._moves_by_anchor.setdefault(anchor, []).append(change)
        if task.shape.affinity is not None:
            if task.shape.id not in self._holders:
                self._store.add_holder(task.shape)
                self._held_version += 1
            _count(self._holders.setdefault(task.shape.id, {}), row, sign)

    def _namespaces(self, scope: NamespaceScope) -> frozenset[str] | None:
        """The namespaces a term is about, None = all."""
        if not scope.by_labels:
            return scope.named
        namespaces = self._namespaces_by_scope.get(scope)
        if namespaces is None:
            selector = self._store.namespace_selectors[scope.selector]
            everything = not selector.match_labels and not selector.match_expressions
            matching = (
                name for name, labels in self._snapshot.namespaces.items() if selector_matches(selector, labels)
            )
            found = None if everything else scope.named | frozenset(matching)
            namespaces = self._namespaces_by_scope.store(scope, (found,))
        return namespaces[0]

    def _matches(self, term: AffinityTerm, task: Task) -> bool:
        namespaces = self._namespaces(term.scope)
        if namespaces is not None and task.namespace not in namespaces:
            return False
        return selector_matches(term.selector, task.labels)

    def _matches_all(self, terms: tuple[AffinityTerm, ...], task: Task) -> bool:
        return all(self._matches(term, task) for term in terms)

    def _initial_pods(self) -> dict[Anchor, list[tuple[Task, int]]]:
        """Tasks on nodes as the cycle began, by label."""
        if self._initial_pods_by_anchor is None:
            placed_pods: list[tuple[Task, int]] = []
            for name, tasks in self._snapshot.read_running().tasks_on.items():
                row = self._nodes.rows.get(name)
                if row is not None:
                    placed_pods.extend((task, row) for task in tasks.values() if task.holds_node)
            self._initial_pods_by_anchor = {}
            for task_and_row in placed_pods:
                for anchor in anchors_of(task_and_row[0].labels):
                    self._initial_pods_by_anchor.setdefault(anchor, []).append(task_and_row)
        return self._initial_pods_by_anchor

    def _pods_in_scope(self, scope: NamespaceScope) -> IntArray:
        """[node] tasks of these namespaces as the cycle began."""
        counts = self._pods_by_scope.get(scope)
        if counts is None:
            counts = self._pods_by_scope[scope] = np.zeros(len(self._nodes), dtype=np.int64)
            namespaces = self._namespaces(scope)
            for task, row in self._initial_pods().get(None, ()):
                if namespaces is None or task.namespace in namespaces:
                    counts[row] += 1
        return counts

    def _select_pods(self, terms: tuple[AffinityTerm, ...]) -> _SelectedPods:
        """The pods that all of the terms select."""
        selection = self._selections.get(terms)
        if selection is None:
            self.selections += 1
            initial_pods = self._initial_pods()
            anchors: list[Anchor] = [anchor for term in terms for anchor in term.anchors]
            # The label with the fewest pods leaves the fewest to check.
            anchor = min(anchors, key=lambda label: len(initial_pods.get(label, ()))) if anchors else None
            log = self._moves_by_anchor.setdefault(anchor, [])
            if anchor is None and len({term.scope for term in terms}) == 1:
                # Nearly all pods: cheaper to count those that are not.
                selection = _SelectedPods(terms, log, self._pods_in_scope(terms[0].scope))
                namespaces = self._namespaces(terms[0].scope)
                left_out = {
                    id(place): place
                    for term in terms
                    for label in term.excluding_labels
                    for place in initial_pods.get(label, ())
                }
                for task, row in left_out.values():
                    if (namespaces is None or task.namespace in namespaces) and not self._matches_all(terms, task):
                        _count(selection.by_row, row, -1)
            else:
                selection = _SelectedPods(terms, log, None)
                for task, row in initial_pods.get(anchor, ()):
                    if self._matches_all(terms, task):
                        _count(selection.by_row, row, 1)
            self._selections[terms] = selection
        return selection

    def _recount(self, selection: _SelectedPods) -> None:
        """Count what came and went since the last read."""
        log = selection.log
        for change in log[selection.seen :]:
            if self._matches_all(selection.terms, change.task):
                _count(selection.by_row, change.row, change.sign)
                selection.changed_epoch = self.epoch
        selection.seen = len(log)

    def _relevant_terms_of(self, request: PlacementRequest) -> _RelevantTerms:
        """What terms mean for a request right now."""
        task = request.task
        key = (request.shape.id, task.namespace, tuple(sorted(task.labels.items())))
        relevant = self._relevant_terms.get(key)
        if relevant is None:
            relevant = self._relevant_terms[key] = self._read_own_terms(request.shape)
        if relevant.epoch != self.epoch or relevant.held_version != self._held_version:
            changed = self._read_held_terms(relevant, task)
            for selection in _selections(relevant):
                self._recount(selection)
                changed = changed or selection.changed_epoch > relevant.epoch
            relevant.epoch = self.epoch
            if changed:
                relevant.version = self.epoch
                relevant.codes = relevant.scores = None
        return relevant

    def _read_own_terms(self, shape: Shape) -> _RelevantTerms:
        relevant = _RelevantTerms()
        if shape.affinity is not None:
            terms, label_keys = self._store.terms_of(shape), self._nodes.label_keys()
            if terms.affinity and all(term.topology_key in label_keys for term in terms.affinity):
                relevant.affinity = self._select_pods(terms.affinity)
            relevant.anti_affinity = [
                self._select_pods((term,)) for term in terms.anti_affinity if term.topology_key in label_keys
            ]
            relevant.preferred = [
                (weight, self._select_pods((term,)))
                for term, weight in terms.preferred
                if term.topology_key in label_keys
            ]
        return relevant

    def _read_held_terms(self, relevant: _RelevantTerms, task: Task) -> bool:
        """Find the terms of pods on nodes that select the pod; whether they may have changed or moved."""
        if relevant.held_version != self._held_version:
            relevant.held_version = self._held_version
            relevant.held_terms = [
                _HeldTerm(term, weight, self._holders[shape])
                for anchor in anchors_of(task.labels)
                for shape, entries in self._store.terms_by_anchor.get(anchor, {}).items()
                if shape in self._holders
                for term, weight in entries
                if self._matches(term, task)
            ]
        return bool(relevant.held_terms)

    def applies_to(self, request: PlacementRequest) -> bool:
        """Whether any affinity affects this request."""
        return self.active and (request.shape.affinity is not None or bool(self._anti_affinity_against(request)))

    def key(self, request: PlacementRequest) -> Hashable:
        """What decides besides the shape: the labels, and the relevant placements so far."""
        if not self.active or (request.shape.affinity is None and not self._store.terms_by_anchor):
            return None
        relevant = self._relevant_terms_of(request)
        if request.shape.affinity is None and not relevant.held_terms:
            return None
        return (tuple(sorted(request.task.labels.items())), request.task.namespace, relevant.version)

    def is_unresolvable(self, request: PlacementRequest, companions: Sequence[Task]) -> bool:
        """Whether no eviction can help: it must be near pods that are neither on nodes nor among its companions."""
        affinity = self._store.terms_of(request.shape).affinity if request.shape.affinity is not None else ()
        if not affinity:
            return False
        selection = self._relevant_terms_of(request).affinity
        if selection is None:
            return True
        return selection.is_empty and not any(self._matches_all(affinity, task) for task in companions)

    def _anti_affinity_against(self, request: PlacementRequest) -> list[_HeldTerm]:
        return [held for held in self._relevant_terms_of(request).held_terms if not held.weight and held.by_row]

    def refusal_codes(self, state: State, request: PlacementRequest, rows: Rows) -> IntArray:
        """[rows] 0 or the number of the text in AFFINITY_TEXTS."""
        relevant = self._relevant_terms_of(request)
        if relevant.codes is None:
            relevant.codes = self._all_refusal_codes(request, relevant)
        codes: IntArray = relevant.codes[rows]
        return codes

    def _all_refusal_codes(self, request: PlacementRequest, relevant: _RelevantTerms) -> IntArray:
        """[node] the same for all nodes."""
        affinity = self._store.terms_of(request.shape).affinity if request.shape.affinity is not None else ()
        codes: IntArray = np.zeros(len(self._nodes), dtype=np.int64)

        def refuse(where: BoolArray, code: int) -> None:
            codes[(codes == 0) & where] = code

        if affinity:
            # Without a selection, no node has the label of one of the terms.
            by_row = _rows_of(relevant.affinity.column) if relevant.affinity is not None else {}
            domains_by_key = {key: self._domains(key, by_row) for key in {term.topology_key for term in affinity}}
            is_first_of_group = not any(domains.any() for domains in domains_by_key.values()) and self._matches_all(
                affinity, request.task
            )
            for key, domains in domains_by_key.items():
                labelled = self._nodes.per_label(key, lambda value: value is not None)
                refuse(~labelled, 1)
                if not is_first_of_group:
                    refuse(~self._nodes_in_domains(key, domains), 1)
        for key, domains in self._occupied_domains(
            (each.terms[0].topology_key, each.column) for each in relevant.anti_affinity
        ):
            refuse(self._nodes_in_domains(key, domains), 2)
        for key, domains in self._occupied_domains(
            (held.term.topology_key, held.by_row) for held in self._anti_affinity_against(request)
        ):
            refuse(self._nodes_in_domains(key, domains), 3)
        return codes

    def _occupied_domains(self, counts: Iterable[tuple[str, IntArray | _PodsByRow]]) -> Iterator[tuple[str, BoolArray]]:
        """Topology key -> [domain] whether it has a counted pod."""
        by_key: dict[str, set[int]] = {}
        dense: dict[str, BoolArray] = {}
        for key, column in counts:
            if not isinstance(column, dict):
                where = dense.get(key)
                dense[key] = column > 0 if where is None else where | (column > 0)
            elif column:
                by_key.setdefault(key, set()).update(column)
        for key, where in dense.items():
            by_key.setdefault(key, set()).update(np.flatnonzero(where).tolist())
        for key, rows in by_key.items():
            yield key, self._domains(key, rows)

    def _domains(self, topology_key: str, rows: Iterable[int]) -> BoolArray:
        """[domain] one of the rows lies in it; rows without the label are in no domain."""
        codes, values = self._nodes.label_codes(topology_key)
        occupied: BoolArray = np.zeros(len(values), dtype=np.bool_)
        for row in rows:
            code = int(codes[row])
            if values[code] is not None:
                occupied[code] = True
        return occupied

    def _nodes_in_domains(self, topology_key: str, domains: BoolArray) -> BoolArray:
        """[node] its domain is one of these."""
        nodes_in: BoolArray = domains[self._nodes.label_codes(topology_key)[0]]
        return nodes_in

    def preference(self, state: State, request: PlacementRequest, rows: Rows) -> FloatArray:
        """[rows] sum of preferred weights, of the pod and of pods already there (cycle:SCO-2 K8sPlugins)."""
        relevant = self._relevant_terms_of(request)
        if relevant.scores is None:
            relevant.scores = self._all_scores(relevant)
        scores: FloatArray = relevant.scores[rows]
        return scores

    def _all_scores(self, relevant: _RelevantTerms) -> FloatArray:
        """[node] the same for all nodes."""
        by_key: dict[str, FloatArray] = {}

        def weigh(key: str, weight: int, column: IntArray | _PodsByRow) -> None:
            if len(column):
                scores = by_key.get(key)
                if scores is None:
                    scores = by_key[key] = np.zeros(len(self._nodes))
                if isinstance(column, dict):
                    for row, count in column.items():
                        scores[row] += weight * count
                else:
                    scores += weight * column

        for weight, selection in relevant.preferred:
            weigh(selection.terms[0].topology_key, weight, selection.column)
        for held in relevant.held_terms:
            if held.weight:
                weigh(held.term.topology_key, held.weight, held.by_row)
        total = np.zeros(len(self._nodes))
        for key, by_row in by_key.items():
            codes, values = self._nodes.label_codes(key)
            scores = np.bincount(codes, weights=by_row, minlength=len(values))
            scores[[value is None for value in values]] = 0.0
            total += scores[codes]
        return total


def _rows_of(column: IntArray | _PodsByRow) -> Iterable[int]:
    return column if isinstance(column, dict) else np.flatnonzero(column).tolist()


def _selections(relevant: _RelevantTerms) -> Iterator[_SelectedPods]:
    if relevant.affinity is not None:
        yield relevant.affinity
    yield from relevant.anti_affinity
    for _, selection in relevant.preferred:
        yield selection


def affinity_index(snapshot: Snapshot) -> AffinityIndex:
    """The index of a snapshot; the plugins that need it share one."""
    index = snapshot.shared.get("affinity")
    if not isinstance(index, AffinityIndex):
        index = snapshot.shared["affinity"] = AffinityIndex(snapshot)
    return index
