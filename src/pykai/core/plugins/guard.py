"""Plugins of others must not stop a cycle: what their hooks raise is reported once and answered cautiously.

Built-in rules run unguarded; a mistake there should be seen at once.  For a plugin that came through an entry point
every hook is wrapped: a check that fails refuses the nodes it was asked about, a score that fails drops them
(cycle:SCO-1), a key says nothing, a gate lets through.  An answer of the wrong kind or length would raise later, where
nobody knows whose it was; it counts as a failure of the hook too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from math import isnan
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.journal import Observer
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import DiscreteLedger, State
from pykai.core.eviction.scenarios import GENERATORS
from pykai.core.hooks import Hooks, NodeCheck, NodeScore, NodeSet, NoNodeSets, Plugin, PreFailure
from pykai.core.model.axes import Rows
from pykai.core.model.problems import Problem, ProblemReporter
from pykai.core.model.shapes import Shape
from pykai.core.model.tasks import Task
from pykai.core.queueing.queueledger import CapacityRefusal
from pykai.core.report.decisions import NoEviction

Answer = TypeVar("Answer")

#: The code of a check that failed and describes its refusals itself.
_FAILED = 2**31


def _checked_number(answer: Any) -> float:
    value = float(answer)
    if isnan(value):
        raise ValueError("answered what is no number")
    return value


def _checked_key(answer: Any) -> tuple[Any, ...]:
    if not isinstance(answer, tuple) or not all(isinstance(part, Real) and part == part for part in answer):
        raise TypeError(f"answered {answer!r}, expected a tuple of numbers")
    return answer


def _checked_hashable(answer: Any) -> Hashable:
    hash(answer)
    return answer  # type: ignore[no-any-return]


def _checked_annotations(answer: Any) -> dict[str, str]:
    if not isinstance(answer, dict) or not all(isinstance(part, str) for item in answer.items() for part in item):
        raise TypeError(f"answered {answer!r}, expected a dict of texts")
    return answer


def _checked_generators(answer: Any) -> tuple[str, ...]:
    generators = () if isinstance(answer, str) else tuple(answer)
    if isinstance(answer, str) or not all(isinstance(name, str) for name in generators):
        raise TypeError(f"answered {answer!r}, expected names")
    if unknown := [name for name in generators if name not in GENERATORS]:
        raise ValueError(f"named {', '.join(unknown)}, known are {', '.join(GENERATORS)}")
    return generators


def _optional(kind: type) -> Callable[[Any], Any]:
    def read(answer: Any) -> Any:
        if answer is not None and not isinstance(answer, kind):
            raise TypeError(f"answered {type(answer).__name__}, expected {kind.__name__} or None")
        return answer

    return read


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


class _HookGuard:
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
        """The function with its answer read, or the fallback where either raises."""

        def guarded(*args: Any) -> Answer:
            try:
                answer = function(*args)
                return answer if read is None else read(answer)
            except Exception as error:
                self.report_failure(hook, error)
                return fallback

        return guarded

    def optional(self, hooks: Hooks, hook: str, fallback: Any, read: Callable[[Any], Any]) -> Any:
        """A hook of that name, wrapped, if the plugin has it."""
        function = getattr(hooks, hook)
        return None if function is None else self.call(hook, function, fallback, read)

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

        def guarded_describe(state: State, request: PlacementRequest, code: int, row: int) -> str:
            assert describe is not None
            return (
                text
                if code == failed
                else self.call(f"{hook}.describe", describe, text, str)(state, request, code, row)
            )

        def guarded_key(request: PlacementRequest) -> Hashable:
            assert key is not None
            # Without a key an ask is equal only to itself.
            itself: Hashable = (self._name, request.task.key)
            return self.call(f"{hook}.key", key, itself, _checked_hashable)(request)

        return replace(
            check,
            texts=(*check.texts, text),
            evaluate=evaluate,
            applies=self.call(f"{hook}.applies", check.applies, True, bool),
            describe=None if describe is None else guarded_describe,
            key=None if key is None else guarded_key,
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
                    raise ValueError("answered a score that is no number")
                return scores
            except Exception as error:
                self.report_failure(hook, error)
                return np.full(size, -np.inf)

        def nothing() -> Hashable:
            return None

        def guarded_context(*args: Any) -> Callable[[], Hashable]:
            assert context is not None
            context_of = self.call(f"{hook}.context", context, nothing)(*args)
            return self.call(f"{hook}.context", context_of, None, _checked_hashable)

        return replace(
            score,
            evaluate=evaluate,
            applies=self.call(f"{hook}.applies", score.applies, True, bool),
            context=None if context is None else guarded_context,
            at=None,
        )

    def victim_filter(self, hooks: Hooks, hook: str) -> Any:
        function = getattr(hooks, hook)
        if function is None:
            return None

        def nobody(gang: Any) -> bool:
            return False

        def guarded_filter(*args: Any) -> Callable[[Any], bool]:
            return self.call(hook, self.call(hook, function, nobody)(*args), False, bool)

        return guarded_filter

    def node_sets(self, hooks: Hooks) -> Any:
        function = hooks.node_sets
        if function is None:
            return None

        def sets(state: State, gang: Any, node: Any, tasks: Any, nodes: NodeSet) -> list[NodeSet] | NoNodeSets:
            size = len(state.snapshot.nodes)
            every: list[NodeSet] | NoNodeSets = [nodes]
            guarded = self.call("node_sets", function, every, lambda answer: _checked_node_sets(answer, size))
            return guarded(state, gang, node, tasks, nodes)

        return sets


class _GuardedObserver:
    """Someone else's observer."""

    def __init__(self, observer: Observer, guard: _HookGuard) -> None:
        self._observer = observer
        self._guard = guard

    def task_added(self, task: Task, row: int) -> None:
        """A task now holds the node."""
        self._guard.call("observer", lambda: self._observer.task_added(task, row), None)()

    def task_removed(self, task: Task, row: int) -> None:
        """A task no longer holds the node."""
        self._guard.call("observer", lambda: self._observer.task_removed(task, row), None)()


class _GuardedLedger:
    """Someone else's books; what they cannot tell is not given out."""

    def __init__(self, ledger: DiscreteLedger, guard: _HookGuard) -> None:
        self._ledger = ledger
        self._guard = guard

    def concerns(self, shape: Shape) -> bool:
        """Whether tasks of this shape hold anything."""
        return self._guard.call("discrete_ledger", lambda: bool(self._ledger.concerns(shape)), True)()

    def held(self, task: Task) -> object | None:
        """What a task holds since before the cycle."""
        return self._guard.call("discrete_ledger", lambda: self._ledger.held(task), None)()

    def grant(self, state: State, request: PlacementRequest, row: int, *, idle: bool) -> object | None:
        """What a task would get."""
        return self._guard.call("discrete_ledger", lambda: self._ledger.grant(state, request, row, idle=idle), None)()

    def hold(self, task: Task, row: int, allocation: object, holding: int, sign: int) -> None:
        """Book it."""
        self._guard.call("discrete_ledger", lambda: self._ledger.hold(task, row, allocation, holding, sign), None)()


def _row_count(state: State, rows: Rows) -> int:
    return len(state.snapshot.nodes.names[rows]) if isinstance(rows, slice) else len(rows)


def prepare_guarded(name: str, plugin: Plugin, snapshot: Snapshot, report: ProblemReporter) -> Hooks:
    """The hooks of someone else's plugin, wrapped; no hooks at all when `prepare` fails."""
    guard = _HookGuard(name, report)
    no_names: tuple[str, ...] = ()
    try:
        hooks = plugin.prepare(snapshot)
        if not isinstance(hooks, Hooks):
            raise TypeError(f"prepare returned {type(hooks).__name__}, expected Hooks")
        return replace(
            hooks,
            pre_place=tuple(guard.call("pre_place", one, None, _optional(PreFailure)) for one in hooks.pre_place),
            unresolvable=guard.optional(hooks, "unresolvable", False, bool),
            node_checks=tuple(guard.check(check) for check in hooks.node_checks),
            node_scores=tuple(guard.score(score) for score in hooks.node_scores),
            gpu_score=guard.optional(hooks, "gpu_score", 0.0, _checked_number),
            before_gang=guard.optional(hooks, "before_gang", None, lambda answer: None),
            node_sets=guard.node_sets(hooks),
            node_sets_for=guard.optional(hooks, "node_sets_for", True, bool),
            queue_key=guard.optional(hooks, "queue_key", (), _checked_key),
            queue_tie=guard.optional(hooks, "queue_tie", False, bool),
            group_key=guard.optional(hooks, "group_key", (), _checked_key),
            subgroup_key=guard.optional(hooks, "subgroup_key", (), _checked_key),
            task_key=guard.optional(hooks, "task_key", (), _checked_key),
            quota_gate=guard.optional(hooks, "quota_gate", None, _optional(CapacityRefusal)),
            start_gate=guard.optional(hooks, "start_gate", None, _optional(CapacityRefusal)),
            victim_queue_key=guard.optional(hooks, "victim_queue_key", (), _checked_key),
            # What cannot be judged is not evicted.
            may_reclaim=guard.optional(
                hooks, "may_reclaim", NoEviction("reclaim", "plugin", other=name), _optional(NoEviction)
            ),
            reclaim_from=guard.victim_filter(hooks, "reclaim_from"),
            reclaim_losers=guard.victim_filter(hooks, "reclaim_losers"),
            reclaim_filter=guard.victim_filter(hooks, "reclaim_filter"),
            preempt_filter=guard.victim_filter(hooks, "preempt_filter"),
            reclaim_gate=guard.optional(hooks, "reclaim_gate", f"plugin {name} failed", _optional(str)),
            preempt_gate=guard.optional(hooks, "preempt_gate", f"plugin {name} failed", _optional(str)),
            scenarios=guard.call("scenarios", lambda: hooks.scenarios, no_names, _checked_generators)(),
            cache_key=guard.optional(hooks, "cache_key", None, _checked_hashable),
            observer=None if hooks.observer is None else _GuardedObserver(hooks.observer, guard),
            discrete_ledger=None if hooks.discrete_ledger is None else _GuardedLedger(hooks.discrete_ledger, guard),
            bind_annotations=guard.optional(hooks, "bind_annotations", {}, _checked_annotations),
        )
    except Exception as error:
        guard.report_failure("prepare", error)
        return Hooks()
