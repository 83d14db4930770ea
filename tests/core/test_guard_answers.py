"""Plugins of others that answer nonsense: every hook, every kind of nonsense, and the cycle goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from pykai.core.hooks import Hooks, NodeCheck, NodeScore, NodeSet, Scope
from pykai.core.policy import NamedPlugin
from pykai.core.snapshot import Snapshot
from tests.core.builders import Cluster, Result, cluster


class Theirs:
    """A plugin with the given hooks."""

    def __init__(self, hooks: Any) -> None:
        self._hooks = hooks

    def prepare(self, snapshot: Snapshot) -> Hooks:
        return self._hooks() if callable(self._hooks) else self._hooks  # type: ignore[no-any-return]


def lab() -> Cluster:
    """Two queues and a shared GPU, so that every hook is asked."""
    return (
        cluster(nodes=2, gpus=4)
        .queue("a")
        .queue("b")
        .gang("one", pods=2, gpu=1, queue="a")
        .gang("two", pods=2, gpu=1, queue="b")
        .gang("half", fraction=0.5, queue="a")
        .pod("tenant", fraction=0.3, on="node-0", device="d")
        .group("parts", queue="b", subGroups=[{"name": "x", "minMember": 1}, {"name": "y", "minMember": 1}])
        .pod("parts-x", group="parts", subgroup="x")
        .pod("parts-y", group="parts", subgroup="y")
    )


def run_with(hooks: Any, *, alone: bool = True) -> Result:
    """A cycle with their plugin, without the built-in ones unless told: then the first hook of a kind is theirs."""
    base = lab()
    named = NamedPlugin("theirs", Theirs(hooks), foreign=True)
    plugins = (named,) if alone else (*base.policy().plugins, named)
    return base.with_policy(plugins=plugins).schedule()


def complaints(result: Result) -> list[str]:
    return [line for line in result.plan.problems if line.startswith("plugin theirs: ")]


def answering(answer: Any) -> Callable[..., Any]:
    return lambda *args: answer


ONES: Any = np.ones(2)
NOT_KEYS: tuple[Any, ...] = (None, 7, [1.0], ("a",), (float("nan"),), (None,))
NONSENSE: dict[str, tuple[Any, ...]] = {
    "gpu_score": (None, "x", float("nan")),
    "queue_key": NOT_KEYS,
    "queue_tie": (np.array([True, False]),),
    "group_key": NOT_KEYS,
    "subgroup_key": NOT_KEYS,
    "task_key": NOT_KEYS,
    "quota_gate": ("no", True),
    "ask_key": ([], {}),
    "node_sets": (None, [7], [NodeSet(np.ones(7, dtype=np.bool_))], [NodeSet(ONES)]),
    "bind_annotations": (None, 7, {"a": 1}, {1: "a"}, [("a", "b")]),
}


@pytest.mark.parametrize(("hook", "answer"), [(hook, answer) for hook, all_ in NONSENSE.items() for answer in all_])
def test_an_answer_of_the_wrong_kind_is_a_failure_of_the_hook(hook: str, answer: Any) -> None:
    hooks: dict[str, Any] = {hook: answering(answer)}
    result = run_with(Hooks(**hooks))
    assert [line.split(": ")[1] for line in complaints(result)] == [hook]
    assert [result.bound(group) for group in ("one", "two", "half", "parts")] == [2, 2, 1, 2]


def test_every_hook_is_tried_here() -> None:
    elsewhere = {"pre_place", "node_checks", "node_scores", "observer", "before_gang"}
    assert {field.name for field in fields(Hooks)} == {*NONSENSE, *elsewhere}


def test_a_reason_that_is_none_lets_the_pod_pass() -> None:
    result = run_with(Hooks(pre_place=(answering("no"),)))
    assert result.bound("one") == 2
    assert "pre_place: raised TypeError" in complaints(result)[0]


def test_an_observer_that_raises_hears_on() -> None:
    heard: list[str] = []

    class Observer:
        def came(self, task: Any, row: int) -> None:
            heard.append(task.name)
            raise RuntimeError("deaf")

        def went(self, task: Any, row: int) -> None:
            raise RuntimeError("deaf")

    result = run_with(Hooks(observer=Observer()))
    assert result.bound("one") == 2
    assert "one-0" in heard
    assert "one-1" in heard
    assert "observer: raised RuntimeError: deaf" in complaints(result)[0]


@pytest.mark.parametrize("hooks", [Hooks(node_checks=(7,)), Hooks(node_scores=7), Hooks(pre_place=None)])  # type: ignore[arg-type]
def test_hooks_of_the_wrong_kind_are_no_hooks(hooks: Hooks) -> None:
    result = run_with(hooks)
    assert result.bound("one") == 2
    assert "prepare: raised" in complaints(result)[0]


def test_a_context_that_cannot_be_compared_is_none() -> None:
    score = NodeScore("s", lambda state, ask, rows, context: np.zeros(2)[rows], context=answering(answering([])))
    assert run_with(Hooks(node_scores=(score,))).bound("one") == 2
    odd = NodeScore("s", lambda state, ask, rows, context: np.zeros(2)[rows], context=answering(7))
    result = run_with(Hooks(node_scores=(odd,)))
    assert result.bound("one") == 2
    assert "node_scores[s].context" in complaints(result)[0]


def refusing(state: Any, ask: Any, rows: Any) -> Any:
    return np.full(2, 5)[rows]


def test_a_check_may_describe_its_refusals() -> None:
    told = NodeCheck("c", (), refusing, describe=lambda state, ask, code, row: f"code {code}")
    result = run_with(Hooks(node_checks=(told,)), alone=False)
    assert complaints(result) == []
    assert result.node_reasons("one") == {"code 5": 2}


def test_a_check_that_cannot_describe_its_refusals_still_refuses() -> None:
    def mute(*args: Any) -> str:
        raise RuntimeError("mute")

    result = run_with(Hooks(node_checks=(NodeCheck("c", (), refusing, describe=mute),)), alone=False)
    assert result.node_reasons("one") == {"plugin theirs failed": 2}
    assert "node_checks[c].describe: raised RuntimeError: mute" in complaints(result)[0]


@pytest.mark.parametrize("key", [answering([]), lambda ask: ask.nothing])
def test_a_check_without_a_usable_key_is_asked_for_every_pod(key: Callable[..., Any]) -> None:
    asked: list[str] = []

    def evaluate(state: Any, ask: Any, rows: Any) -> Any:
        asked.append(ask.task.name)
        return np.ones(2, dtype=np.int64)[rows]

    check = NodeCheck("c", ("no",), evaluate, Scope.ASK, key=key)
    result = run_with(Hooks(node_checks=(check,)), alone=False)
    assert {"one-0", "two-0"} <= set(asked)
    assert result.node_reasons("two") == {"no": 2}
    assert "node_checks[c].key" in complaints(result)[0]
