"""Nodes ranked for a shape, kept up to date by repairing only the rows that changed.

A `Ranking` holds one score per node, minus infinity where the request does not fit; the best node is the first maximum.
It is made once per shape (and per value of the plugins' `cache_key`) and repaired lazily: it remembers how far it has
read the state's list of touched rows.  A placement touches one row, so a pod costs one repaired row and one argmax,
however many nodes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf

import numpy as np

from pykai.core.caching import Cache
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.hooks import NodeSet, Planes, Rules, Scope
from pykai.core.model.axes import BoolArray, FloatArray, Rows
from pykai.core.model.vectors import FREE
from pykai.core.placing.fit import fits_plane, fits_row

_ALL = slice(None)

#: Up to so many rows are scored one by one, without NumPy, which is faster for a few.
_FEW_ROWS = 12

#: Rankings kept at a time, and rows in all of them; requests and node sets that differ from task to task must not eat
#: the memory.
_MAX_RANKINGS = 2048
_MAX_ROWS = 6_000_000


class _RequestKind:
    """What all rankings for one kind of request have in common: its rules, and what cannot change in a cycle."""

    __slots__ = (
        "allowed",
        "checks",
        "fixed_scores",
        "is_by_row",
        "request",
        "row_checks",
        "row_functions",
        "row_scores",
    )

    def __init__(self, state: State, rules: Rules, request: PlacementRequest) -> None:
        self.request = request
        self.checks = [c for c in rules.checks if c.scope is Scope.ROW and c.applies(request)]
        self.row_scores = [s for s in rules.scores if s.scope is Scope.ROW and s.applies(request)]
        self.row_functions = [s.at for s in self.row_scores if s.at is not None]
        self.row_checks = [c.at for c in self.checks if c.at is not None]
        #: rows can be scored one by one
        self.is_by_row = len(self.row_checks) == len(self.checks) and len(self.row_functions) == len(self.row_scores)
        #: [node] passes everything that cannot change in this cycle
        self.allowed: BoolArray = np.ones(len(state.snapshot.nodes), dtype=np.bool_)
        for check in rules.checks:
            if check.scope is Scope.NODES and check.applies(request):
                self.allowed &= check.evaluate(state, request, _ALL) == 0
        #: [node] scores that cannot change in this cycle
        self.fixed_scores = [
            score.evaluate(state, request, _ALL, None)
            for score in rules.scores
            if score.scope is Scope.NODES and score.applies(request)
        ]


class Ranking:
    """Scores of all nodes for one kind of request (cycle:PERF-2, PERF-3; topo:T-34)."""

    __slots__ = (
        "_context",
        "_context_readers",
        "_few_rows",
        "_fixed",
        "_kind",
        "_request",
        "_seen",
        "allowed",
        "scores",
    )

    def __init__(self, state: State, kind: _RequestKind, nodes: NodeSet, few_rows: int) -> None:
        size = len(state.snapshot.nodes)
        self._kind = kind
        self._request = request = kind.request
        #: rows that are scored one by one at most
        self._few_rows = few_rows if kind.is_by_row else 0
        #: [node] of the set, and passes everything that cannot change in this cycle
        self.allowed: BoolArray = kind.allowed if nodes.mask is None else kind.allowed & nodes.mask
        if nodes.scores is not None:
            self.allowed = self.allowed & (nodes.scores > -inf)
        #: [node] the part of the score that cannot change in this cycle
        self._fixed: FloatArray = np.zeros(size) if nodes.scores is None else nodes.scores.copy()
        for scores in kind.fixed_scores:
            self._fixed += scores
        #: [node] the score, -inf where the request does not fit
        self.scores: FloatArray = np.full(size, -inf)
        context_readers = [None if s.context is None else s.context(state, request, nodes) for s in kind.row_scores]
        #: what the scores depend on besides their row: a function each, None for nothing
        self._context_readers: list[Callable[[], Hashable] | None] = context_readers
        self._context = self._read_context()
        self._score(state, range(size))
        self._seen = len(state.changed_rows)

    def refresh(self, state: State) -> None:
        """Bring the scores up to date."""
        touched = state.changed_rows
        seen = self._seen
        if seen == len(touched):
            return
        self._seen = len(touched)
        context = self._read_context()
        if context != self._context:
            self._context = context
            self._score(state, range(len(self.scores)))
        else:
            rows = touched[seen:]
            self._score(state, rows if len(rows) == 1 else set(rows))

    def _score(self, state: State, rows: range | set[int] | list[int]) -> None:
        """Score some nodes, or all."""
        if len(rows) <= self._few_rows:
            for row in rows:
                if self.allowed.item(row):
                    self._repair(state, row)
        else:
            self._evaluate(state, _ALL if isinstance(rows, range) else np.fromiter(rows, np.int64, len(rows)))

    def _repair(self, state: State, row: int) -> None:
        """`_evaluate` for one row."""
        request = self._request
        planes: Planes = state.columns[:, :, row].tolist()
        if not fits_row(state, planes[FREE], request, row, idle=False):
            self.scores[row] = -inf
            return
        for refused in self._kind.row_checks:
            if refused(state, request, row):
                self.scores[row] = -inf
                return
        score = self._fixed.item(row)
        for position, at in enumerate(self._kind.row_functions):
            score += at(state, request, row, planes, self._context[position])
        self.scores[row] = score

    def _read_context(self) -> list[Hashable]:
        return [None if tell is None else tell() for tell in self._context_readers]

    def _evaluate(self, state: State, rows: Rows) -> None:
        request = self._request
        fits = fits_plane(state, state.free, request, rows)
        fits &= self.allowed[rows]
        for check in self._kind.checks:
            fits &= check.evaluate(state, request, rows) == 0
        score = self._fixed[rows]
        for scorer, context in zip(self._kind.row_scores, self._context, strict=True):
            score = score + scorer.evaluate(state, request, rows, context)
        self.scores[rows] = np.where(fits, score, -np.inf)


class Rankings:
    """The rankings of a cycle."""

    __slots__ = ("_few_rows", "_kinds", "_rankings", "_rules")

    def __init__(self, rules: Rules, few_rows: int = _FEW_ROWS) -> None:
        """`few_rows`: up to so many are scored one by one."""
        self._rules = rules
        self._few_rows = few_rows
        self._rankings: Cache[Hashable, Ranking] = Cache(_MAX_RANKINGS)
        self._kinds: Cache[Hashable, _RequestKind] = Cache(_MAX_RANKINGS)

    def request_key(self, request: PlacementRequest) -> tuple[Hashable, ...]:
        """Identifies one kind of request."""
        keys = self._rules.cache_keys
        return (
            (request.shape.id, keys[0](request))
            if len(keys) == 1
            else (request.shape.id, *[key(request) for key in keys])
        )

    def ranking_for(self, state: State, request: PlacementRequest, nodes: NodeSet) -> Ranking:
        """The up-to-date ranking for a request."""
        key = (nodes, self.request_key(request))
        ranking = self._rankings.get(key)
        if ranking is None:
            if len(self._rankings) * len(state.snapshot.nodes) > _MAX_ROWS:
                self.clear()
            kind = self._kind_of(state, request)
            ranking = self._rankings.store(key, Ranking(state, kind, nodes, self._few_rows))
        else:
            ranking.refresh(state)
        return ranking

    def allowed_nodes(self, state: State, request: PlacementRequest) -> BoolArray:
        """[node] where a request may go, as far as evictions cannot change it."""
        return self._kind_of(state, request).allowed

    def _kind_of(self, state: State, request: PlacementRequest) -> _RequestKind:
        key = self.request_key(request)
        kind = self._kinds.get(key)
        return self._kinds.store(key, _RequestKind(state, self._rules, request)) if kind is None else kind

    def clear(self) -> None:
        """Forget all: rankings refer to the state, which refers to them."""
        self._rankings.clear()
        self._kinds.clear()
