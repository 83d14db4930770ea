"""Third-party plugins that raise: the cycle goes on and names the plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pykai.core.policy import NamedPlugin
from pykai.plugin import Hooks, NodeCheck, NodeScore, Snapshot
from tests.core.builders import Cluster, Result, cluster


class Foreign:
    """A plugin with the given hooks."""

    def __init__(self, hooks: Callable[[Snapshot], Hooks]) -> None:
        self._hooks = hooks

    def prepare(self, snapshot: Snapshot) -> Hooks:
        return self._hooks(snapshot)


def broken(*args: Any) -> Any:
    raise RuntimeError("out of order")


def with_plugin(base: Cluster, hooks: Callable[[Snapshot], Hooks], *, foreign: bool = True) -> Result:
    plugins = (*base.policy().plugins, NamedPlugin("theirs", Foreign(hooks), third_party=foreign))
    return base.with_policy(plugins=plugins).schedule()


def lab() -> Cluster:
    return cluster(nodes=2, gpus=8).queue("q").gang("train", pods=2, gpu=4)


def test_a_plugin_that_cannot_prepare_adds_nothing() -> None:
    result = with_plugin(lab(), broken)
    assert result.bound("train") == 2
    assert [line for line in result.plan.problems if "plugin theirs" in line and "out of order" in line]


def test_a_failing_score_drops_the_nodes_it_scored() -> None:
    result = with_plugin(lab(), lambda snapshot: Hooks(node_scores=(NodeScore("theirs", broken),)))
    assert result.bound("train") == 0
    assert any("node_scores[theirs]" in line for line in result.plan.problems)


def test_a_failing_check_refuses_with_a_reason() -> None:
    result = with_plugin(lab(), lambda snapshot: Hooks(node_checks=(NodeCheck("theirs", (), broken),)))
    assert result.bound("train") == 0
    assert "2 plugin theirs failed" in result.why("train")


def test_an_answer_of_the_wrong_length_is_a_failure() -> None:
    def short(*args: Any) -> Any:
        return np.zeros(1)

    result = with_plugin(lab(), lambda snapshot: Hooks(node_scores=(NodeScore("theirs", short),)))
    assert result.bound("train") == 0
    assert any("rows" in line for line in result.plan.problems)


def test_a_score_that_is_not_a_number_is_a_failure() -> None:
    def nan(state: Any, ask: Any, rows: Any, context: Any) -> Any:
        return np.full(len(np.arange(2)[rows]), np.nan)

    result = with_plugin(lab(), lambda snapshot: Hooks(node_scores=(NodeScore("theirs", nan),)))
    assert result.bound("train") == 0


def test_a_code_without_a_text_is_a_failure() -> None:
    def seven(state: Any, ask: Any, rows: Any) -> Any:
        return np.full(len(np.arange(2)[rows]), 7)

    result = with_plugin(lab(), lambda snapshot: Hooks(node_checks=(NodeCheck("theirs", ("no",), seven),)))
    assert "2 plugin theirs failed" in result.why("train")


@pytest.mark.parametrize(
    "hook",
    [
        "queue_key",
        "queue_tie",
        "group_key",
        "subgroup_key",
        "task_key",
        "quota_gate",
        "start_gate",
        "cache_key",
        "bind_annotations",
        "before_gang",
    ],
)
def test_other_failing_hooks_are_skipped_and_work_goes_on(hook: str) -> None:
    base = (
        cluster(nodes=2, gpus=8)
        .queue("a")
        .queue("b")
        .gang("one", pods=2, gpu=1, queue="a")
        .gang("two", pods=2, gpu=1, queue="b")
        .group("three", queue="b", subGroups=[{"name": "x", "minMember": 1}, {"name": "y", "minMember": 1}])
        .pod("three-x", group="three", subgroup="x")
        .pod("three-y", group="three", subgroup="y")
    )
    # Without the built-in plugins, so that the first-registered hooks are theirs.
    added: dict[str, Any] = {hook: broken}
    plugins = (NamedPlugin("theirs", Foreign(lambda snapshot: Hooks(**added)), third_party=True),)
    result = base.with_policy(plugins=plugins).schedule()
    assert result.bound("one") == 2
    assert result.bound("two") == 2
    assert result.bound("three") == 2


def test_a_failure_is_reported_once_a_cycle() -> None:
    result = with_plugin(
        lab().gang("more", pods=4, gpu=1), lambda snapshot: Hooks(node_scores=(NodeScore("theirs", broken),))
    )
    assert sum("node_scores[theirs]" in line for line in result.plan.problems) == 1


def test_a_built_in_rule_is_not_isolated() -> None:
    with pytest.raises(RuntimeError, match="out of order"):
        with_plugin(lab(), broken, foreign=False)
