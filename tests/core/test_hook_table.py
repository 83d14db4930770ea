"""The table of hooks: the fields of `Hooks` and `Rules` have rows, and a new row is all that a new hook needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import pytest

from pykai.core import hookanswers
from pykai.core.hooks import HOOK_TABLE, Hooks, HookSpec, Rules, each_plugin
from pykai.core.plugins.isolation import prepare_isolated
from pykai.plugin import Snapshot
from tests.core.builders import cluster
from tests.docs.test_plugins_doc import hooks_without_heading


def test_every_hook_has_a_row() -> None:
    assert [spec.name for spec in HOOK_TABLE] == [field.name for field in fields(Hooks)]


def test_every_rule_has_a_row_or_is_derived() -> None:
    assert {spec.rule for spec in HOOK_TABLE} | {"request_checks"} == {field.name for field in fields(Rules)}


@dataclass(frozen=True, slots=True)
class MoreHooks(Hooks):
    """With one hook more."""

    luck: Callable[[int], float] | None = None


@dataclass(frozen=True, slots=True)
class MoreRules(Rules):
    """With the rule of that hook."""

    luck: tuple[Callable[[int], float], ...] = ()


TABLE = (*HOOK_TABLE, HookSpec("luck", "luck", each_plugin, fallback=lambda plugin: 7.0, read=hookanswers.number))


class Lucky:
    """A third-party plugin with that hook."""

    def __init__(self, luck: Callable[[int], Any]) -> None:
        self._luck = luck

    def prepare(self, snapshot: Snapshot) -> Hooks:
        return MoreHooks(luck=self._luck)


def test_a_new_row_is_combined() -> None:
    rules = MoreRules.combine([MoreHooks(luck=float), MoreHooks(), MoreHooks(luck=lambda row: 2.0 * row)], TABLE)
    assert [luck(3) for luck in rules.luck] == [3.0, 6.0]
    assert rules.checks == ()


@pytest.mark.parametrize(
    ("luck", "answer", "problems"),
    [
        pytest.param(lambda row: "4", 4.0, 0, id="read"),
        pytest.param(lambda row: float("nan"), 7.0, 1, id="wrong answer"),
        pytest.param(lambda row: 1 // 0, 7.0, 1, id="raises"),
    ],
)
def test_a_new_row_is_isolated(luck: Callable[[int], Any], answer: float, problems: int) -> None:
    reported: list[object] = []
    snapshot = cluster(nodes=1).cycle().context.snapshot
    hooks = prepare_isolated("theirs", Lucky(luck), snapshot, reported.append, TABLE)
    assert isinstance(hooks, MoreHooks)
    assert hooks.luck is not None
    assert [hooks.luck(1), hooks.luck(1)] == [answer, answer]
    assert len(reported) == problems
    assert all("luck" in str(problem) for problem in reported)


def test_a_new_row_needs_a_heading() -> None:
    assert hooks_without_heading(spec.name for spec in TABLE) == {"luck"}
