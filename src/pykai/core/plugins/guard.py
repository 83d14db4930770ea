"""Plugins of others must not stop a cycle: what their hooks raise is reported once and answered cautiously.

Built-in rules run unguarded; a mistake there should be seen at once.  For a plugin that came through an entry point
every hook is wrapped: a check that fails refuses the nodes it was asked about, a score that fails drops them
(cycle:SCO-1), a key says nothing, a gate lets through.  Answers of the wrong length count as failures.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from pykai.core.groups import Report
from pykai.core.hooks import Ask, Hooks, NodeCheck, NodeScore, NodeSet, Plugin, Rows
from pykai.core.problems import Problem
from pykai.core.snapshot import Snapshot
from pykai.core.state import State

Answer = TypeVar("Answer")


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

    def call(self, hook: str, function: Callable[..., Answer], fallback: Answer) -> Callable[..., Answer]:
        """The function, or the fallback where it raises."""

        def guarded(*args: Any) -> Answer:
            try:
                return function(*args)
            except Exception as error:
                self.complain(hook, error)
                return fallback

        return guarded

    def check(self, check: NodeCheck) -> NodeCheck:
        failed = len(check.texts) + 1

        def evaluate(state: State, ask: Ask, rows: Rows) -> Any:
            size = len(state.snapshot.nodes.names[rows]) if isinstance(rows, slice) else len(rows)
            try:
                codes = np.asarray(check.evaluate(state, ask, rows), dtype=np.int64)
                if codes.shape != (size,):
                    raise ValueError(f"answered {codes.shape} for {size} rows")
                if size and not 0 <= int(codes.min()) <= int(codes.max()) < failed:
                    raise ValueError(f"answered a code outside 0 to {len(check.texts)}")
                return codes
            except Exception as error:
                self.complain(f"node_checks[{check.name}]", error)
                return np.full(size, failed, dtype=np.int64)

        return replace(
            check,
            texts=(*check.texts, f"plugin {self._name} failed"),
            evaluate=evaluate,
            applies=self.call(f"node_checks[{check.name}].applies", check.applies, True),
            describe=None,
        )

    def context(self, name: str, context: Callable[..., Callable[[], Hashable]]) -> Callable[..., Any]:
        hook = f"node_scores[{name}].context"

        def nothing() -> Hashable:
            return None

        def guarded(*args: Any) -> Callable[[], Hashable]:
            return self.call(hook, self.call(hook, context, nothing)(*args), None)

        return guarded

    def score(self, score: NodeScore) -> NodeScore:
        def evaluate(state: State, ask: Ask, rows: Rows, context: Any) -> Any:
            size = len(state.snapshot.nodes.names[rows]) if isinstance(rows, slice) else len(rows)
            try:
                scores = np.asarray(score.evaluate(state, ask, rows, context), dtype=np.float64)
                if scores.shape != (size,):
                    raise ValueError(f"answered {scores.shape} for {size} rows")
                if np.isnan(scores).any():
                    raise ValueError("answered a score that is no number")
                return scores
            except Exception as error:
                self.complain(f"node_scores[{score.name}]", error)
                return np.full(size, -np.inf)

        context = score.context
        return replace(
            score,
            evaluate=evaluate,
            applies=self.call(f"node_scores[{score.name}].applies", score.applies, True),
            context=None if context is None else self.context(score.name, context),
            at=None,
        )


def prepare_guarded(name: str, plugin: Plugin, snapshot: Snapshot, report: Report) -> Hooks:
    """The hooks of someone else's plugin, wrapped; no hooks at all when `prepare` fails."""
    guard = _Guard(name, report)
    try:
        hooks = plugin.prepare(snapshot)
        if not isinstance(hooks, Hooks):
            raise TypeError(f"prepare returned {type(hooks).__name__}, expected Hooks")
    except Exception as error:
        guard.complain("prepare", error)
        return Hooks()

    def optional(hook: str, fallback: Any) -> Any:
        function = getattr(hooks, hook)
        return None if function is None else guard.call(hook, function, fallback)

    node_sets = hooks.node_sets

    def sets(state: State, gang: Any, node: Any, tasks: Any, nodes: NodeSet) -> list[NodeSet]:
        assert node_sets is not None
        return guard.call("node_sets", node_sets, [nodes])(state, gang, node, tasks, nodes)

    return replace(
        hooks,
        pre_place=tuple(guard.call("pre_place", check, None) for check in hooks.pre_place),
        node_checks=tuple(guard.check(check) for check in hooks.node_checks),
        node_scores=tuple(guard.score(score) for score in hooks.node_scores),
        gpu_score=optional("gpu_score", 0.0),
        node_sets=None if node_sets is None else sets,
        queue_key=optional("queue_key", ()),
        queue_tie=optional("queue_tie", False),
        group_key=optional("group_key", ()),
        subgroup_key=optional("subgroup_key", ()),
        task_key=optional("task_key", ()),
        quota_gate=optional("quota_gate", None),
        ask_key=optional("ask_key", None),
        bind_annotations=optional("bind_annotations", {}),
    )
