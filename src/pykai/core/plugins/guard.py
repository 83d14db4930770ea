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
from pykai.core.cycle.journal import Books, Observer
from pykai.core.cycle.state import State
from pykai.core.eviction.scenarios import WAYS
from pykai.core.hooks import Ask, Hooks, NodeCheck, NodeScore, NodeSet, NoSets, Plugin, PreFailure, Rows
from pykai.core.model.groups import Report
from pykai.core.model.problems import Problem
from pykai.core.model.shapes import Shape
from pykai.core.model.tasks import Task
from pykai.core.queueing.queueledger import Refusal
from pykai.core.report.decisions import Verdict

Answer = TypeVar("Answer")

#: The code of a check that failed and describes its refusals itself.
_FAILED = 2**31


def _a_number(answer: Any) -> float:
    value = float(answer)
    if isnan(value):
        raise ValueError("answered what is no number")
    return value


def _a_key(answer: Any) -> tuple[Any, ...]:
    if not isinstance(answer, tuple) or not all(isinstance(part, Real) and part == part for part in answer):
        raise TypeError(f"answered {answer!r}, expected a tuple of numbers")
    return answer


def _hashable(answer: Any) -> Hashable:
    hash(answer)
    return answer  # type: ignore[no-any-return]


def _annotations(answer: Any) -> dict[str, str]:
    if not isinstance(answer, dict) or not all(isinstance(part, str) for item in answer.items() for part in item):
        raise TypeError(f"answered {answer!r}, expected a dict of texts")
    return answer


def _names(answer: Any) -> tuple[str, ...]:
    found = () if isinstance(answer, str) else tuple(answer)
    if isinstance(answer, str) or not all(isinstance(name, str) for name in found):
        raise TypeError(f"answered {answer!r}, expected names")
    if unknown := [name for name in found if name not in WAYS]:
        raise ValueError(f"named {', '.join(unknown)}, known are {', '.join(WAYS)}")
    return found


def _nothing_or(kind: type) -> Callable[[Any], Any]:
    def read(answer: Any) -> Any:
        if answer is not None and not isinstance(answer, kind):
            raise TypeError(f"answered {type(answer).__name__}, expected {kind.__name__} or None")
        return answer

    return read


def _node_sets(answer: Any, size: int) -> list[NodeSet] | NoSets:
    if isinstance(answer, NoSets):
        return answer
    found = list(answer)
    for item in found:
        if not isinstance(item, NodeSet):
            raise TypeError(f"answered {type(item).__name__} in its list, expected NodeSet")
        if item.mask is not None and (item.mask.dtype != np.bool_ or item.mask.shape != (size,)):
            raise ValueError(f"answered a mask that has not one truth value for each of {size} nodes")
    return found


class _Guard:
    """Wraps the hooks of one plugin."""

    def __init__(self, name: str, report: Report) -> None:
        self._name = name
        self._report = report
        self._reported: set[str] = set()

    def complain(self, hook: str, error: Exception) -> None:
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
                self.complain(hook, error)
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

        def evaluate(state: State, ask: Ask, rows: Rows) -> Any:
            size = _count(state, rows)
            try:
                codes = np.asarray(check.evaluate(state, ask, rows), dtype=np.int64)
                if codes.shape != (size,):
                    raise ValueError(f"answered {codes.shape} for {size} rows")
                if size and not 0 <= int(codes.min()) <= int(codes.max()) < failed:
                    raise ValueError(f"answered a code outside 0 to {failed - 1}")
                return codes
            except Exception as error:
                self.complain(hook, error)
                return np.full(size, failed, dtype=np.int64)

        text = f"plugin {self._name} failed"

        def described(state: State, ask: Ask, code: int, row: int) -> str:
            assert describe is not None
            return text if code == failed else self.call(f"{hook}.describe", describe, text, str)(state, ask, code, row)

        def keyed(ask: Ask) -> Hashable:
            assert key is not None
            # Without a key an ask is equal only to itself.
            itself: Hashable = (self._name, ask.task.key)
            return self.call(f"{hook}.key", key, itself, _hashable)(ask)

        return replace(
            check,
            texts=(*check.texts, text),
            evaluate=evaluate,
            applies=self.call(f"{hook}.applies", check.applies, True, bool),
            describe=None if describe is None else described,
            key=None if key is None else keyed,
        )

    def score(self, score: NodeScore) -> NodeScore:
        hook = f"node_scores[{score.name}]"
        context = score.context

        def evaluate(state: State, ask: Ask, rows: Rows, context: Any) -> Any:
            size = _count(state, rows)
            try:
                scores = np.asarray(score.evaluate(state, ask, rows, context), dtype=np.float64)
                if scores.shape != (size,):
                    raise ValueError(f"answered {scores.shape} for {size} rows")
                if np.isnan(scores).any():
                    raise ValueError("answered a score that is no number")
                return scores
            except Exception as error:
                self.complain(hook, error)
                return np.full(size, -np.inf)

        def nothing() -> Hashable:
            return None

        def told(*args: Any) -> Callable[[], Hashable]:
            assert context is not None
            tell = self.call(f"{hook}.context", context, nothing)(*args)
            return self.call(f"{hook}.context", tell, None, _hashable)

        return replace(
            score,
            evaluate=evaluate,
            applies=self.call(f"{hook}.applies", score.applies, True, bool),
            context=None if context is None else told,
            at=None,
        )

    def victim_filter(self, hooks: Hooks, hook: str) -> Any:
        function = getattr(hooks, hook)
        if function is None:
            return None

        def nobody(gang: Any) -> bool:
            return False

        def made(*args: Any) -> Callable[[Any], bool]:
            return self.call(hook, self.call(hook, function, nobody)(*args), False, bool)

        return made

    def node_sets(self, hooks: Hooks) -> Any:
        function = hooks.node_sets
        if function is None:
            return None

        def sets(state: State, gang: Any, node: Any, tasks: Any, nodes: NodeSet) -> list[NodeSet] | NoSets:
            size = len(state.snapshot.nodes)
            every: list[NodeSet] | NoSets = [nodes]
            guarded = self.call("node_sets", function, every, lambda answer: _node_sets(answer, size))
            return guarded(state, gang, node, tasks, nodes)

        return sets


class _GuardedObserver:
    """Someone else's observer."""

    def __init__(self, observer: Observer, guard: _Guard) -> None:
        self._observer = observer
        self._guard = guard

    def came(self, task: Task, row: int) -> None:
        """A task now holds the node."""
        self._guard.call("observer", lambda: self._observer.came(task, row), None)()

    def went(self, task: Task, row: int) -> None:
        """A task no longer holds the node."""
        self._guard.call("observer", lambda: self._observer.went(task, row), None)()


class _GuardedBooks:
    """Someone else's books; what they cannot tell is not given out."""

    def __init__(self, books: Books, guard: _Guard) -> None:
        self._books = books
        self._guard = guard

    def concerns(self, shape: Shape) -> bool:
        """Whether tasks of this shape hold anything."""
        return self._guard.call("books", lambda: bool(self._books.concerns(shape)), True)()

    def held(self, task: Task) -> object | None:
        """What a task holds since before the cycle."""
        return self._guard.call("books", lambda: self._books.held(task), None)()

    def grant(self, state: State, ask: Ask, row: int, *, idle: bool) -> object | None:
        """What a task would get."""
        return self._guard.call("books", lambda: self._books.grant(state, ask, row, idle=idle), None)()

    def hold(self, task: Task, row: int, content: object, holding: int, sign: int) -> None:
        """Book it."""
        self._guard.call("books", lambda: self._books.hold(task, row, content, holding, sign), None)()


def _count(state: State, rows: Rows) -> int:
    return len(state.snapshot.nodes.names[rows]) if isinstance(rows, slice) else len(rows)


def prepare_guarded(name: str, plugin: Plugin, snapshot: Snapshot, report: Report) -> Hooks:
    """The hooks of someone else's plugin, wrapped; no hooks at all when `prepare` fails."""
    guard = _Guard(name, report)
    no_names: tuple[str, ...] = ()
    try:
        hooks = plugin.prepare(snapshot)
        if not isinstance(hooks, Hooks):
            raise TypeError(f"prepare returned {type(hooks).__name__}, expected Hooks")
        return replace(
            hooks,
            pre_place=tuple(guard.call("pre_place", one, None, _nothing_or(PreFailure)) for one in hooks.pre_place),
            hopeless=guard.optional(hooks, "hopeless", False, bool),
            node_checks=tuple(guard.check(check) for check in hooks.node_checks),
            node_scores=tuple(guard.score(score) for score in hooks.node_scores),
            gpu_score=guard.optional(hooks, "gpu_score", 0.0, _a_number),
            before_gang=guard.optional(hooks, "before_gang", None, lambda answer: None),
            node_sets=guard.node_sets(hooks),
            node_sets_for=guard.optional(hooks, "node_sets_for", True, bool),
            queue_key=guard.optional(hooks, "queue_key", (), _a_key),
            queue_tie=guard.optional(hooks, "queue_tie", False, bool),
            group_key=guard.optional(hooks, "group_key", (), _a_key),
            subgroup_key=guard.optional(hooks, "subgroup_key", (), _a_key),
            task_key=guard.optional(hooks, "task_key", (), _a_key),
            quota_gate=guard.optional(hooks, "quota_gate", None, _nothing_or(Refusal)),
            start_gate=guard.optional(hooks, "start_gate", None, _nothing_or(Refusal)),
            victim_queue_key=guard.optional(hooks, "victim_queue_key", (), _a_key),
            # What cannot be judged is not evicted.
            may_reclaim=guard.optional(
                hooks, "may_reclaim", Verdict("reclaim", "plugin", other=name), _nothing_or(Verdict)
            ),
            reclaim_from=guard.victim_filter(hooks, "reclaim_from"),
            reclaim_losers=guard.victim_filter(hooks, "reclaim_losers"),
            reclaim_filter=guard.victim_filter(hooks, "reclaim_filter"),
            preempt_filter=guard.victim_filter(hooks, "preempt_filter"),
            reclaim_gate=guard.optional(hooks, "reclaim_gate", f"plugin {name} failed", _nothing_or(str)),
            preempt_gate=guard.optional(hooks, "preempt_gate", f"plugin {name} failed", _nothing_or(str)),
            scenarios=guard.call("scenarios", lambda: hooks.scenarios, no_names, _names)(),
            ask_key=guard.optional(hooks, "ask_key", None, _hashable),
            observer=None if hooks.observer is None else _GuardedObserver(hooks.observer, guard),
            books=None if hooks.books is None else _GuardedBooks(hooks.books, guard),
            bind_annotations=guard.optional(hooks, "bind_annotations", {}, _annotations),
        )
    except Exception as error:
        guard.complain("prepare", error)
        return Hooks()
