"""Third-party plugins cannot stop a cycle: an exception in a hook is reported once and replaced by a safe result.

Built-in rules run as they are; a mistake there should be seen at once.  For a plugin that came through an entry point
every hook is wrapped: a check that fails refuses the nodes in question, a score that fails excludes them (cycle:SCO-1),
a key is empty, a gate lets through.  A result of the wrong type or length would raise later, where its origin is
unknown; it counts as a failure of the hook too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from pykai.core import hookanswers
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.journal import Observer
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import DiscreteLedger, State
from pykai.core.hooks import (
    HOOK_TABLE,
    Hooks,
    HookSpec,
    HookWrapping,
    NodeCheck,
    NodeScore,
    NodeSet,
    NodeSetMaker,
    NoNodeSets,
    Plugin,
)
from pykai.core.model.axes import Rows
from pykai.core.model.problems import Problem, ProblemReporter
from pykai.core.model.shapes import Shape
from pykai.core.model.tasks import Task

Answer = TypeVar("Answer")

#: Kinds of hooks that a plugin leaves out by None; the others are empty.
_OPTIONAL = (
    HookWrapping.ANSWER,
    HookWrapping.FILTER,
    HookWrapping.NODE_SETS,
    HookWrapping.OBSERVER,
    HookWrapping.LEDGER,
)

#: The code of a check that failed and describes its refusals itself.
_FAILED = 2**31


def _checked_node_sets(answer: Any, size: int) -> list[NodeSet] | NoNodeSets:
    if isinstance(answer, NoNodeSets):
        return answer
    node_sets = list(answer)
    for item in node_sets:
        if not isinstance(item, NodeSet):
            raise TypeError(f"answered {type(item).__name__} in its list, expected NodeSet")
        if item.mask is not None and (item.mask.dtype != np.bool_ or item.mask.shape != (size,)):
            raise ValueError(f"answered a mask that has not one truth value for each of {size} nodes")
    return node_sets


class _HookIsolation:
    """Wraps the hooks of one plugin."""

    def __init__(self, name: str, report: ProblemReporter) -> None:
        self._name = name
        self._report = report
        self._reported: set[str] = set()

    def report_failure(self, hook: str, error: Exception) -> None:
        if hook not in self._reported:
            self._reported.add(hook)
            text = f"raised {type(error).__name__}: {error}; the hook is answered cautiously in this cycle"
            self._report(Problem(f"plugin {self._name}", hook, text))

    def call(
        self, hook: str, function: Callable[..., Any], fallback: Answer, read: Callable[[Any], Answer] | None = None
    ) -> Callable[..., Answer]:
        """The function with its result checked, or the fallback if either raises."""

        def isolated(*args: Any) -> Answer:
            try:
                answer = function(*args)
                return answer if read is None else read(answer)
            except Exception as error:
                self.report_failure(hook, error)
                return fallback

        return isolated

    def check(self, check: NodeCheck) -> NodeCheck:
        hook = f"node_checks[{check.name}]"
        describe, key = check.describe, check.key
        # A check that describes its refusals may use any code; else every code needs its text.
        failed = len(check.texts) + 1 if describe is None else _FAILED

        def evaluate(state: State, request: PlacementRequest, rows: Rows) -> Any:
            size = _row_count(state, rows)
            try:
                codes = np.asarray(check.evaluate(state, request, rows), dtype=np.int64)
                if codes.shape != (size,):
                    raise ValueError(f"answered {codes.shape} for {size} rows")
                if size and not 0 <= int(codes.min()) <= int(codes.max()) < failed:
                    raise ValueError(f"answered a code outside 0 to {failed - 1}")
                return codes
            except Exception as error:
                self.report_failure(hook, error)
                return np.full(size, failed, dtype=np.int64)

        text = f"plugin {self._name} failed"

        def isolated_describe(state: State, request: PlacementRequest, code: int, row: int) -> str:
            assert describe is not None
            return (
                text
                if code == failed
                else self.call(f"{hook}.describe", describe, text, str)(state, request, code, row)
            )

        def isolated_key(request: PlacementRequest) -> Hashable:
            assert key is not None
            # Without a key a request is equal only to itself.
            itself: Hashable = (self._name, request.task.key)
            return self.call(f"{hook}.key", key, itself, hookanswers.hashable)(request)

        return replace(
            check,
            texts=(*check.texts, text),
            evaluate=evaluate,
            applies=self.call(f"{hook}.applies", check.applies, True, bool),
            describe=None if describe is None else isolated_describe,
            key=None if key is None else isolated_key,
        )

    def score(self, score: NodeScore) -> NodeScore:
        hook = f"node_scores[{score.name}]"
        context = score.context

        def evaluate(state: State, request: PlacementRequest, rows: Rows, context: Any) -> Any:
            size = _row_count(state, rows)
            try:
                scores = np.asarray(score.evaluate(state, request, rows, context), dtype=np.float64)
                if scores.shape != (size,):
                    raise ValueError(f"answered {scores.shape} for {size} rows")
                if np.isnan(scores).any():
                    raise ValueError("answered a score that is not a number")
                return scores
            except Exception as error:
                self.report_failure(hook, error)
                return np.full(size, -np.inf)

        def nothing() -> Hashable:
            return None

        def isolated_context(*args: Any) -> Callable[[], Hashable]:
            assert context is not None
            context_of = self.call(f"{hook}.context", context, nothing)(*args)
            return self.call(f"{hook}.context", context_of, None, hookanswers.hashable)

        return replace(
            score,
            evaluate=evaluate,
            applies=self.call(f"{hook}.applies", score.applies, True, bool),
            context=None if context is None else isolated_context,
            at=None,
        )

    def victim_filter(self, hook: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def nobody(gang: Any) -> bool:
            return False

        def isolated_filter(*args: Any) -> Callable[[Any], bool]:
            return self.call(hook, self.call(hook, function, nobody)(*args), False, bool)

        return isolated_filter

    def node_sets(self, function: NodeSetMaker) -> NodeSetMaker:
        def sets(state: State, gang: Any, node: Any, tasks: Any, nodes: NodeSet) -> list[NodeSet] | NoNodeSets:
            size = len(state.snapshot.nodes)
            every: list[NodeSet] | NoNodeSets = [nodes]
            isolated = self.call("node_sets", function, every, lambda answer: _checked_node_sets(answer, size))
            return isolated(state, gang, node, tasks, nodes)

        return sets

    def wrap(self, spec: HookSpec, value: Any) -> Any:
        """A hook of the plugin, wrapped as its row says."""
        if value is None and spec.wrapping in _OPTIONAL:
            return None
        hook, fallback, read = spec.name, spec.fallback(self._name), spec.read
        match spec.wrapping:
            case HookWrapping.ANSWER:
                return self.call(hook, value, fallback, read)
            case HookWrapping.ANSWERS:
                return tuple(self.call(hook, one, fallback, read) for one in value)
            case HookWrapping.VALUE:
                return self.call(hook, lambda: value, fallback, read)()
            case HookWrapping.FILTER:
                return self.victim_filter(hook, value)
            case HookWrapping.NODE_CHECKS:
                return tuple(self.check(check) for check in value)
            case HookWrapping.NODE_SCORES:
                return tuple(self.score(score) for score in value)
            case HookWrapping.NODE_SETS:
                return self.node_sets(value)
            case HookWrapping.OBSERVER:
                return _IsolatedObserver(value, self)
            case HookWrapping.LEDGER:
                return _IsolatedLedger(value, self)


class _IsolatedObserver:
    """A third-party observer."""

    def __init__(self, observer: Observer, isolation: _HookIsolation) -> None:
        self._observer = observer
        self._isolation = isolation

    def task_added(self, task: Task, row: int) -> None:
        """A task now holds the node."""
        self._isolation.call("observer", lambda: self._observer.task_added(task, row), None)()

    def task_removed(self, task: Task, row: int) -> None:
        """A task no longer holds the node."""
        self._isolation.call("observer", lambda: self._observer.task_removed(task, row), None)()


class _IsolatedLedger:
    """A third-party ledger; if it fails, it grants nothing."""

    def __init__(self, ledger: DiscreteLedger, isolation: _HookIsolation) -> None:
        self._ledger = ledger
        self._isolation = isolation

    def concerns(self, shape: Shape) -> bool:
        """Whether tasks of this shape hold anything."""
        return self._isolation.call("discrete_ledger", lambda: bool(self._ledger.concerns(shape)), True)()

    def held(self, task: Task) -> object | None:
        """What a task holds since before the cycle."""
        return self._isolation.call("discrete_ledger", lambda: self._ledger.held(task), None)()

    def grant(self, state: State, request: PlacementRequest, row: int, *, idle: bool) -> object | None:
        """What a task would get."""
        return self._isolation.call(
            "discrete_ledger", lambda: self._ledger.grant(state, request, row, idle=idle), None
        )()

    def hold(self, task: Task, row: int, allocation: object, holding: int, sign: int) -> None:
        """Record or remove an allocation."""
        self._isolation.call("discrete_ledger", lambda: self._ledger.hold(task, row, allocation, holding, sign), None)()


def _row_count(state: State, rows: Rows) -> int:
    return len(state.snapshot.nodes.names[rows]) if isinstance(rows, slice) else len(rows)


def prepare_isolated(
    name: str, plugin: Plugin, snapshot: Snapshot, report: ProblemReporter, table: Iterable[HookSpec] = HOOK_TABLE
) -> Hooks:
    """The hooks of a third-party plugin, wrapped; no hooks at all if `prepare` fails."""
    isolation = _HookIsolation(name, report)
    try:
        hooks = plugin.prepare(snapshot)
        if not isinstance(hooks, Hooks):
            raise TypeError(f"prepare returned {type(hooks).__name__}, expected Hooks")
        return replace(hooks, **{spec.name: isolation.wrap(spec, getattr(hooks, spec.name)) for spec in table})
    except Exception as error:
        isolation.report_failure("prepare", error)
        return Hooks()
