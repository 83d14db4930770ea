"""Inter-pod affinity and anti-affinity by counting (cycle:FLT-2 InterPodAffinity, cycle:PERF-9).

For every distinct selection of pods that a term in play makes, the index keeps how many of them each node has, and
follows placements and undo.  What an ask finds is worked out for all nodes at once and kept until a count changes that
it depends on.  The index exists only in clusters where some pod has such terms; elsewhere it costs nothing.

As in Kubernetes: a required affinity counts only pods that match all terms of the incoming pod; the first pod of a
self-matching group may go anywhere that has the topology labels; an anti-affinity term of a running pod also keeps
matching newcomers away.

Subtle: a term costs what it selects, never a walk over all pods or over all other terms (`affinityterms.py` says how),
because a tenant may write as many of them as it likes.  A topology key that no node has selects nothing, and nothing is
counted for it.  `selections` says how many were counted: that is the work of a cycle.

Statements: cycle:FLT-6, crowds:search, crowds:terms.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.state import State
from pykai.core.hooks import Ask, Rows
from pykai.core.model.affinityterms import Anchor, Scope, Term, anchors_of, selects
from pykai.core.model.axes import BoolArray, FloatArray, IntArray
from pykai.core.model.shapes import Shape
from pykai.core.model.tasks import Task

#: Codes of `refused`, in the order Kubernetes reports them.
AFFINITY_TEXTS = (
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
)

#: Node row -> how many pods.
_Rows = dict[int, int]


class _Change(NamedTuple):
    """A task came to a node (sign 1) or left it (-1)."""

    task: Task
    row: int
    sign: int


class _Selection:
    """Pods that all of some terms select, counted by node row."""

    __slots__ = ("base", "by_row", "log", "seen", "terms")

    def __init__(self, terms: tuple[Term, ...], log: list[_Change], base: IntArray | None) -> None:
        self.terms = terms
        #: [node] pods among which it is, less those in `by_row`; shared, None = all are in `by_row`
        self.base = base
        self.by_row: _Rows = {}
        #: changes of pods that can belong to it, and how many of them are counted
        self.log = log
        self.seen = 0

    @property
    def column(self) -> IntArray | _Rows:
        """Pods by node row, as a column where most nodes have some."""
        if self.base is None:
            return self.by_row
        column = self.base.copy()
        for row, count in self.by_row.items():
            column[row] += count
        return column

    @property
    def empty(self) -> bool:
        """No pod at all."""
        column = self.column
        return not column if isinstance(column, dict) else not column.any()


def _count(by_row: _Rows, row: int, sign: int) -> None:
    count = by_row.get(row, 0) + sign
    if count:
        by_row[row] = count
    else:
        del by_row[row]


class _Held(NamedTuple):
    """A term of pods on nodes that selects a pod, and where they are; anti-affinity has no weight."""

    term: Term
    weight: int
    by_row: _Rows


class _Concern:
    """What the terms of a pod and of others mean to it; equal for all pods of a shape with equal labels."""

    __slots__ = ("codes", "epoch", "far", "held", "held_version", "near", "points", "preferred", "version")

    def __init__(self) -> None:
        self.near: _Selection | None = None
        self.far: list[_Selection] = []
        self.preferred: list[tuple[int, _Selection]] = []
        #: terms of pods on nodes that select it
        self.held: list[_Held] = []
        self.held_version = -1
        #: the epoch it was looked at last, and that in which a count of it changed last
        self.epoch = -1
        self.version = 0
        #: [node] results, None = to be worked out
        self.codes: IntArray | None = None
        self.points: FloatArray | None = None


class AffinityIndex:
    """Counts of matching pods per domain, following placements (an `Observer` of the state)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._nodes = snapshot.nodes
        self._scopes: dict[Scope, frozenset[str] | None] = {}
        #: how many selections of pods were counted
        self.selections = 0
        self._selected: dict[tuple[Term, ...], _Selection] = {}
        #: label and value -> tasks on nodes as the cycle began, with their rows; None -> all; made on first use
        self._began: dict[Anchor, list[tuple[Task, int]]] | None = None
        #: namespaces -> [node] how many tasks of theirs
        self._crowds: dict[Scope, IntArray] = {}
        #: label and value -> changes since, of the tasks that have it; None -> all
        self._logs: dict[Anchor, list[_Change]] = {}
        #: shape with terms -> where pods of it are
        self._holders: dict[int, _Rows] = {}
        #: changes when pods with other terms come
        self._held_version = 0
        self._concerns: dict[Hashable, _Concern] = {}
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
            self._store.begin(held)

    def came(self, task: Task, row: int) -> None:
        """A task now holds the node."""
        self._change(task, row, 1)

    def went(self, task: Task, row: int) -> None:
        """A task no longer holds the node."""
        self._change(task, row, -1)

    def _change(self, task: Task, row: int, sign: int) -> None:
        if not self.active:
            return
        self.epoch += 1
        change = _Change(task, row, sign)
        for anchor in anchors_of(task.labels):
            self._logs.setdefault(anchor, []).append(change)
        if task.shape.affinity is not None:
            if task.shape.id not in self._holders:
                self._store.hold(task.shape)
                self._held_version += 1
            _count(self._holders.setdefault(task.shape.id, {}), row, sign)

    def _namespaces(self, scope: Scope) -> frozenset[str] | None:
        """The namespaces a term is about, None = all."""
        if not scope.by_labels:
            return scope.named
        if scope not in self._scopes:
            wanted = self._store.namespace_selectors[scope.selector]
            everything = not wanted.match_labels and not wanted.match_expressions
            known = (name for name, labels in self._snapshot.namespaces.items() if selects(wanted, labels))
            self._scopes[scope] = None if everything else scope.named | frozenset(known)
        return self._scopes[scope]

    def _matches(self, term: Term, task: Task) -> bool:
        namespaces = self._namespaces(term.scope)
        if namespaces is not None and task.namespace not in namespaces:
            return False
        return selects(term.selector, task.labels)

    def _matches_all(self, terms: tuple[Term, ...], task: Task) -> bool:
        return all(self._matches(term, task) for term in terms)

    def _here(self) -> dict[Anchor, list[tuple[Task, int]]]:
        """Tasks on nodes as the cycle began, by label."""
        if self._began is None:
            everyone: list[tuple[Task, int]] = []
            for name, tasks in self._snapshot.tasks_on.items():
                row = self._nodes.rows.get(name)
                if row is not None:
                    everyone.extend((task, row) for task in tasks.values() if task.holds_node)
            self._began = {}
            for place in everyone:
                for anchor in anchors_of(place[0].labels):
                    self._began.setdefault(anchor, []).append(place)
        return self._began

    def _everyone(self, scope: Scope) -> IntArray:
        """[node] tasks of these namespaces as the cycle began."""
        found = self._crowds.get(scope)
        if found is None:
            found = self._crowds[scope] = np.zeros(len(self._nodes), dtype=np.int64)
            namespaces = self._namespaces(scope)
            for task, row in self._here().get(None, ()):
                if namespaces is None or task.namespace in namespaces:
                    found[row] += 1
        return found

    def _selection(self, terms: tuple[Term, ...]) -> _Selection:
        """The pods that all of the terms select."""
        found = self._selected.get(terms)
        if found is None:
            self.selections += 1
            here = self._here()
            anchors: list[Anchor] = [anchor for term in terms for anchor in term.anchors]
            # The label that fewest pods have leaves fewest to look at.
            anchor = min(anchors, key=lambda label: len(here.get(label, ()))) if anchors else None
            log = self._logs.setdefault(anchor, [])
            if anchor is None and len({term.scope for term in terms}) == 1:
                # Nearly all pods: cheaper to count those that are not.
                found = _Selection(terms, log, self._everyone(terms[0].scope))
                namespaces = self._namespaces(terms[0].scope)
                left_out = {
                    id(place): place for term in terms for label in term.excludes for place in here.get(label, ())
                }
                for task, row in left_out.values():
                    if (namespaces is None or task.namespace in namespaces) and not self._matches_all(terms, task):
                        _count(found.by_row, row, -1)
            else:
                found = _Selection(terms, log, None)
                for task, row in here.get(anchor, ()):
                    if self._matches_all(terms, task):
                        _count(found.by_row, row, 1)
            self._selected[terms] = found
            self._recount(found)
        return found

    def _recount(self, selection: _Selection) -> bool:
        """Count what came and went since it was looked at last; whether that changed it."""
        log = selection.log
        if selection.seen == len(log):
            return False
        changed = False
        for change in log[selection.seen :]:
            if self._matches_all(selection.terms, change.task):
                _count(selection.by_row, change.row, change.sign)
                changed = True
        selection.seen = len(log)
        return changed

    def _concern(self, ask: Ask) -> _Concern:
        """What terms mean to an ask right now."""
        task = ask.task
        key = (ask.shape.id, task.namespace, tuple(sorted(task.labels.items())))
        found = self._concerns.get(key)
        if found is None:
            found = self._concerns[key] = self._read(ask.shape)
        if found.epoch != self.epoch or found.held_version != self._held_version:
            found.epoch = self.epoch
            changed = self._read_held(found, task)
            for selection in _selections(found):
                changed = self._recount(selection) or changed
            if changed:
                found.version = self.epoch
                found.codes = found.points = None
        return found

    def _read(self, shape: Shape) -> _Concern:
        made = _Concern()
        if shape.affinity is not None:
            terms, known = self._store.of(shape), self._nodes.label_keys()
            if terms.near and all(term.topology_key in known for term in terms.near):
                made.near = self._selection(terms.near)
            made.far = [self._selection((term,)) for term in terms.far if term.topology_key in known]
            made.preferred = [
                (weight, self._selection((term,))) for term, weight in terms.preferred if term.topology_key in known
            ]
        return made

    def _read_held(self, concern: _Concern, task: Task) -> bool:
        """Find the terms of pods on nodes that select the pod; whether they may have changed or moved."""
        if concern.held_version != self._held_version:
            concern.held_version = self._held_version
            concern.held = [
                _Held(term, weight, self._holders[shape])
                for anchor in anchors_of(task.labels)
                for shape, entries in self._store.anchored.get(anchor, {}).items()
                if shape in self._holders
                for term, weight in entries
                if self._matches(term, task)
            ]
        return bool(concern.held)

    def concerns(self, ask: Ask) -> bool:
        """Whether affinity of anyone can decide about this ask."""
        return self.active and (ask.shape.affinity is not None or bool(self._against(ask)))

    def key(self, ask: Ask) -> Hashable:
        """What else than the shape decides: the labels, and the placements so far that matter to it."""
        if not self.active or (ask.shape.affinity is None and not self._store.anchored):
            return None
        concern = self._concern(ask)
        if ask.shape.affinity is None and not concern.held:
            return None
        return (tuple(sorted(ask.task.labels.items())), ask.task.namespace, concern.version)

    def hopeless(self, ask: Ask, beside: Sequence[Task]) -> bool:
        """Whether no eviction can help: it must be near pods that are neither on nodes nor among its companions."""
        near = self._store.of(ask.shape).near if ask.shape.affinity is not None else ()
        if not near:
            return False
        selection = self._concern(ask).near
        if selection is None:
            return True
        return selection.empty and not any(self._matches_all(near, task) for task in beside)

    def _against(self, ask: Ask) -> list[_Held]:
        return [held for held in self._concern(ask).held if not held.weight and held.by_row]

    def refused(self, state: State, ask: Ask, rows: Rows) -> IntArray:
        """[rows] 0 or the number of the text in AFFINITY_TEXTS."""
        concern = self._concern(ask)
        if concern.codes is None:
            concern.codes = self._refused(ask, concern)
        found: IntArray = concern.codes[rows]
        return found

    def _refused(self, ask: Ask, concern: _Concern) -> IntArray:
        """[node] the same for all nodes."""
        near = self._store.of(ask.shape).near if ask.shape.affinity is not None else ()
        codes: IntArray = np.zeros(len(self._nodes), dtype=np.int64)

        def refuse(where: BoolArray, code: int) -> None:
            codes[(codes == 0) & where] = code

        if near:
            # Without a selection, no node has the label that one of the terms names.
            by_row = _rows_of(concern.near.column) if concern.near is not None else {}
            everywhere = {key: self._domains(key, by_row) for key in {term.topology_key for term in near}}
            lonely = not any(domains.any() for domains in everywhere.values()) and self._matches_all(near, ask.task)
            for key, domains in everywhere.items():
                labelled = self._nodes.per_label(key, lambda value: value is not None)
                refuse(~labelled, 1)
                if not lonely:
                    refuse(~self._column(key, domains), 1)
        for key, domains in self._taken((each.terms[0].topology_key, each.column) for each in concern.far):
            refuse(self._column(key, domains), 2)
        for key, domains in self._taken((held.term.topology_key, held.by_row) for held in self._against(ask)):
            refuse(self._column(key, domains), 3)
        return codes

    def _taken(self, counts: Iterable[tuple[str, IntArray | _Rows]]) -> Iterator[tuple[str, BoolArray]]:
        """Topology key -> [domain] there is a pod of one of those that are counted."""
        by_key: dict[str, set[int]] = {}
        crowded: dict[str, BoolArray] = {}
        for key, column in counts:
            if not isinstance(column, dict):
                where = crowded.get(key)
                crowded[key] = column > 0 if where is None else where | (column > 0)
            elif column:
                by_key.setdefault(key, set()).update(column)
        for key, where in crowded.items():
            by_key.setdefault(key, set()).update(np.flatnonzero(where).tolist())
        for key, rows in by_key.items():
            yield key, self._domains(key, rows)

    def _domains(self, topology_key: str, rows: Iterable[int]) -> BoolArray:
        """[domain] one of the rows lies in it; rows without the label are in no domain."""
        codes, values = self._nodes.label_codes(topology_key)
        found: BoolArray = np.zeros(len(values), dtype=np.bool_)
        for row in rows:
            code = int(codes[row])
            if values[code] is not None:
                found[code] = True
        return found

    def _column(self, topology_key: str, domains: BoolArray) -> BoolArray:
        """[node] its domain is one of these."""
        found: BoolArray = domains[self._nodes.label_codes(topology_key)[0]]
        return found

    def preference(self, state: State, ask: Ask, rows: Rows) -> FloatArray:
        """[rows] sum of preferred weights, of the pod and of pods already there (cycle:SCO-2 K8sPlugins)."""
        concern = self._concern(ask)
        if concern.points is None:
            concern.points = self._points(concern)
        found: FloatArray = concern.points[rows]
        return found

    def _points(self, concern: _Concern) -> FloatArray:
        """[node] the same for all nodes."""
        by_key: dict[str, FloatArray] = {}

        def weigh(key: str, weight: int, column: IntArray | _Rows) -> None:
            if len(column):
                points = by_key.get(key)
                if points is None:
                    points = by_key[key] = np.zeros(len(self._nodes))
                if isinstance(column, dict):
                    for row, count in column.items():
                        points[row] += weight * count
                else:
                    points += weight * column

        for weight, selection in concern.preferred:
            weigh(selection.terms[0].topology_key, weight, selection.column)
        for held in concern.held:
            if held.weight:
                weigh(held.term.topology_key, held.weight, held.by_row)
        total = np.zeros(len(self._nodes))
        for key, by_row in by_key.items():
            codes, values = self._nodes.label_codes(key)
            points = np.bincount(codes, weights=by_row, minlength=len(values))
            points[[value is None for value in values]] = 0.0
            total += points[codes]
        return total


def _rows_of(column: IntArray | _Rows) -> Iterable[int]:
    return column if isinstance(column, dict) else np.flatnonzero(column).tolist()


def _selections(concern: _Concern) -> Iterator[_Selection]:
    if concern.near is not None:
        yield concern.near
    yield from concern.far
    for _, selection in concern.preferred:
        yield selection


def affinity_index(snapshot: Snapshot) -> AffinityIndex:
    """The index of a snapshot; the plugins that need it share one."""
    found = snapshot.memo.get("affinity")
    if not isinstance(found, AffinityIndex):
        found = snapshot.memo["affinity"] = AffinityIndex(snapshot)
    return found
