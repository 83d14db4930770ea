"""Nodes ranked for a shape, kept right by repairing only the rows that changed.

A `Ranking` holds one score per node, minus infinity where the ask does not fit; the best node is the first maximum.  It
is made once per shape (and whatever else the plugins' `ask_key` names) and repaired lazily: it remembers how far it has
read the state's list of touched rows.  A placement touches one row, so a pod costs one repaired row and one argmax,
however many nodes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf

import numpy as np

from pykai.core.cycle.state import State
from pykai.core.hooks import Ask, NodeSet, Planes, Rows, Rules, Scope
from pykai.core.model.axes import BoolArray, FloatArray
from pykai.core.model.vectors import FREE, fits_within
from pykai.core.placing.fit import fits_in

_ALL = slice(None)

#: Up to so many changed rows are repaired one by one.
_FEW_ROWS = 16

#: Rankings kept at a time, and rows in all of them; asks and node sets that differ from task to task must not eat the
#: memory.
_MOST_RANKINGS = 2048
_MOST_ROWS = 6_000_000


class Ranking:
    """Scores of all nodes for one kind of ask (cycle:PERF-2, PERF-3; topo:T-34)."""

    __slots__ = (
        "_ask",
        "_by_row",
        "_checks",
        "_context",
        "_fixed",
        "_row_checks",
        "_row_functions",
        "_row_scores",
        "_seen",
        "_tellers",
        "allowed",
        "scores",
    )

    def __init__(self, state: State, rules: Rules, ask: Ask, nodes: NodeSet) -> None:
        size = len(state.snapshot.nodes)
        self._ask = ask
        self._checks = [c for c in rules.checks if c.scope is Scope.ROW and c.applies(ask)]
        self._row_scores = [s for s in rules.scores if s.scope is Scope.ROW and s.applies(ask)]
        #: rows can be repaired one by one without NumPy, which is quicker for a single row
        self._row_functions = [s.at for s in self._row_scores if s.at is not None]
        self._row_checks = [c.at for c in self._checks if c.at is not None]
        self._by_row = (
            not ask.shape.shared
            and len(self._row_checks) == len(self._checks)
            and len(self._row_functions) == len(self._row_scores)
        )
        #: [node] passes everything that cannot change in this cycle
        self.allowed: BoolArray = np.ones(size, dtype=np.bool_) if nodes.mask is None else nodes.mask.copy()
        if nodes.scores is not None:
            self.allowed &= nodes.scores > -np.inf
        for check in rules.checks:
            if check.scope is Scope.NODES and check.applies(ask):
                self.allowed &= check.evaluate(state, ask, _ALL) == 0
        #: [node] the part of the score that cannot change in this cycle
        self._fixed: FloatArray = np.zeros(size) if nodes.scores is None else nodes.scores.copy()
        for score in rules.scores:
            if score.scope is Scope.NODES and score.applies(ask):
                self._fixed += score.evaluate(state, ask, _ALL, None)
        #: [node] the score, -inf where the ask does not fit
        self.scores: FloatArray = np.full(size, -np.inf)
        tellers = [None if s.context is None else s.context(state, ask, nodes) for s in self._row_scores]
        #: what the scores depend on besides their row: a function each, None where there is nothing
        self._tellers: list[Callable[[], Hashable] | None] = tellers
        self._context = self._read_context()
        self._evaluate(state, _ALL)
        self._seen = len(state.touched)

    def refresh(self, state: State) -> None:
        """Bring the scores up to date."""
        touched = state.touched
        seen = self._seen
        if seen == len(touched):
            return
        self._seen = len(touched)
        context = self._read_context()
        if context != self._context:
            self._context = context
            self._evaluate(state, _ALL)
        elif self._by_row and self._seen - seen <= _FEW_ROWS:
            for row in touched[seen:]:
                self._repair(state, row)
        else:
            self._evaluate(state, np.unique(np.array(touched[seen:], dtype=np.int64)))

    def _repair(self, state: State, row: int) -> None:
        """`_evaluate` for one row."""
        ask = self._ask
        planes: Planes = state.columns[:, :, row].tolist()
        if not self.allowed[row] or not fits_within(planes[FREE], ask.vector.asked):
            self.scores[row] = -inf
            return
        for refused in self._row_checks:
            if refused(state, ask, row):
                self.scores[row] = -inf
                return
        score = self._fixed.item(row)
        for position, at in enumerate(self._row_functions):
            score += at(state, ask, row, planes, self._context[position])
        self.scores[row] = score

    def _read_context(self) -> list[Hashable]:
        return [None if tell is None else tell() for tell in self._tellers]

    def _evaluate(self, state: State, rows: Rows) -> None:
        ask = self._ask
        fits = fits_in(state, state.free, ask, rows)
        fits &= self.allowed[rows]
        for check in self._checks:
            fits &= check.evaluate(state, ask, rows) == 0
        score = self._fixed[rows]
        for scorer, context in zip(self._row_scores, self._context, strict=True):
            score = score + scorer.evaluate(state, ask, rows, context)
        self.scores[rows] = np.where(fits, score, -np.inf)


class Rankings:
    """The rankings of a cycle."""

    __slots__ = ("_made", "_rules")

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._made: dict[Hashable, Ranking] = {}

    def key(self, ask: Ask) -> tuple[Hashable, ...]:
        """What tells one kind of ask from another."""
        keys = self._rules.ask_keys
        return (ask.shape.id, keys[0](ask)) if len(keys) == 1 else (ask.shape.id, *[key(ask) for key in keys])

    def of(self, state: State, ask: Ask, nodes: NodeSet) -> Ranking:
        """The up-to-date ranking for an ask."""
        key = (nodes, self.key(ask))
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= min(_MOST_RANKINGS, 1 + _MOST_ROWS // max(1, len(state.snapshot.nodes))):
                self._made.clear()
            made = self._made[key] = Ranking(state, self._rules, ask, nodes)
        else:
            made.refresh(state)
        return made
