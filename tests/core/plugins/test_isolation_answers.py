"""Third-party plugins with invalid answers: for every hook the cycle goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from pykai.core.policy import NamedPlugin
from pykai.core.report.sentences import no_eviction_text
from pykai.plugin import Hooks, NodeCheck, NodeScore, NodeSet, NoEviction, Scope, Snapshot
from tests.core.builders import Cluster, Result, cluster


class Theirs:
    """A plugin with the given hooks."""

    def __init__(self, hooks: Any) -> None:
        self._hooks = hooks

    def prepare(self, snapshot: Snapshot) -> Hooks:
        return self._hooks() if callable(self._hooks) else self._hooks  # type: ignore[no-any-return]


def lab() -> Cluster:
    """Two queues and a shared GPU, so that every hook is called."""
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
    """A cycle with their plugin, by default without the built-in ones, so that their hooks come first."""
    base = lab()
    named = NamedPlugin("theirs", Theirs(hooks), third_party=True)
    plugins = (named,) if alone else (*base.policy().plugins, named)
    return base.with_policy(plugins=plugins).schedule()


def complaints(result: Result) -> list[str]:
    return [line for line in result.plan.problems if line.startswith("plugin theirs: ")]


def answering(answer: Any) -> Callable[..., Any]:
    return lambda *args: answer


def raising(*args: Any) -> Any:
    raise RuntimeError("out of order")


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
    "start_gate": ("no", True),
    "cache_key": ([], {}),
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
    elsewhere = {"pre_place", "node_checks", "node_scores", "observer", "discrete_ledger", "before_gang"}
    about_victims = {*ABOUT_VICTIMS, *LENIENT}
    assert {field.name for field in fields(Hooks)} == {*NONSENSE, *about_victims, *elsewhere, "node_sets_for"}


@pytest.mark.parametrize("answer", [raising, answering(np.array([True, False]))])
def test_groups_without_a_usable_key_all_have_node_sets(answer: Callable[..., Any]) -> None:
    asked: list[str] = []

    def sets(state: Any, gang: Any, subgroup: Any, tasks: Any, nodes: NodeSet) -> list[NodeSet]:
        asked.append(gang.group.name)
        return [nodes]

    result = run_with(Hooks(node_sets=sets, node_sets_for=answer))
    assert [line.split(": ")[1] for line in complaints(result)] == ["node_sets_for"]
    assert {"one", "two"} <= set(asked)
    assert result.bound("one") == 2


def test_a_reason_that_is_none_lets_the_pod_pass() -> None:
    result = run_with(Hooks(pre_place=(answering("no"),)))
    assert result.bound("one") == 2
    assert "pre_place: raised TypeError" in complaints(result)[0]


def test_an_observer_that_raises_is_still_notified() -> None:
    heard: list[str] = []

    class Observer:
        def task_added(self, task: Any, row: int) -> None:
            heard.append(task.name)
            raise RuntimeError("deaf")

        def task_removed(self, task: Any, row: int) -> None:
            raise RuntimeError("deaf")

    result = run_with(Hooks(observer=Observer()))
    assert result.bound("one") == 2
    assert "one-0" in heard
    assert "one-1" in heard
    assert "observer: raised RuntimeError: deaf" in complaints(result)[0]


class Seats:
    """A third-party ledger: so many `seats` a node, one for each pod."""

    def __init__(self, seats: int, broken: str = "") -> None:
        self.left = [seats, seats]
        self.broken = broken

    def _maybe(self, call: str) -> None:
        if self.broken == call:
            raise RuntimeError("out of order")

    def concerns(self, shape: Any) -> bool:
        self._maybe("concerns")
        return True

    def held(self, task: Any) -> object | None:
        self._maybe("held")
        return None

    def grant(self, state: Any, ask: Any, row: int, *, idle: bool) -> object | None:
        self._maybe("grant")
        return "a seat" if self.left[row] else None

    def hold(self, task: Any, row: int, content: object, holding: int, sign: int) -> None:
        self._maybe("hold")
        self.left[row] -= sign


def test_a_node_whose_ledger_has_nothing_left_is_skipped() -> None:
    seats = Seats(1)
    result = run_with(Hooks(discrete_ledger=seats))
    assert result.bound("one") == 2
    assert result.nodes_used("one") == {"node-0": 1, "node-1": 1}
    assert result.bound("two") == 0, "none is left, and a gang is all or nothing"
    assert seats.left == [0, 0]


@pytest.mark.parametrize(("call", "placed"), [("concerns", 2), ("grant", 0), ("hold", 2)])
def test_a_ledger_that_raises_is_reported_and_grants_nothing(call: str, placed: int) -> None:
    result = run_with(Hooks(discrete_ledger=Seats(9, broken=call)))
    assert result.bound("one") == placed
    assert "discrete_ledger: raised RuntimeError: out of order" in complaints(result)[0]


@pytest.mark.parametrize("hooks", [Hooks(node_checks=(7,)), Hooks(node_scores=7), Hooks(pre_place=None)])  # type: ignore[arg-type]
def test_hooks_of_the_wrong_kind_are_ignored(hooks: Hooks) -> None:
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
def test_a_check_without_a_usable_key_runs_for_every_pod(key: Callable[..., Any]) -> None:
    asked: list[str] = []

    def evaluate(state: Any, ask: Any, rows: Any) -> Any:
        asked.append(ask.task.name)
        return np.ones(2, dtype=np.int64)[rows]

    check = NodeCheck("c", ("no",), evaluate, Scope.REQUEST, key=key)
    result = run_with(Hooks(node_checks=(check,)), alone=False)
    assert {"one-0", "two-0"} <= set(asked)
    assert result.node_reasons("two") == {"no": 2}
    assert "node_checks[c].key" in complaints(result)[0]


# Rules about victims


def under_pressure() -> Cluster:
    """Two queues hold more than theirs, so that a third reclaims; urgent work preempts inside its own queue."""
    return (
        cluster(nodes=3, gpus=2)
        .with_actions("reclaim", "preempt")
        .priority_class("low", 10)
        .priority_class("high", 90)
        .queue("poor", quota=4)
        .queue("rich", quota=1, weight=0)
        .queue("richer", quota=0, weight=0)
        .gang("rich-0", gpu=2, queue="rich", on="node-0")
        .gang("richer-0", gpu=2, queue="richer", on="node-1")
        .gang("lowly", gpu=2, queue="poor", priority="low", on="node-2")
        .gang("urgent", gpu=2, queue="poor", priority="high")
    )


def pressed_with(action: str, hooks: Any, *, foreign: bool = True) -> Result:
    """The action with their plugin before the built-in ones, so that what only one plugin decides is theirs."""
    base = under_pressure()
    named = NamedPlugin("theirs", Theirs(hooks), third_party=foreign)
    return base.with_actions(action).with_policy(plugins=(named, *base.policy().plugins)).schedule()


WRONG_FUNCTIONS: tuple[Any, ...] = (None, 7, answering(np.array([True, False])), raising)
#: Hook -> the action that calls it, and invalid answers.
ABOUT_VICTIMS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "may_reclaim": ("reclaim", ("no", True, ("reclaim", "fair_share"))),
    "reclaim_from": ("reclaim", WRONG_FUNCTIONS),
    "reclaim_losers": ("reclaim", WRONG_FUNCTIONS),
    "reclaim_filter": ("reclaim", WRONG_FUNCTIONS),
    "preempt_filter": ("preempt", WRONG_FUNCTIONS),
    "reclaim_gate": ("reclaim", (True, False, 7, ["unfair"])),
    "preempt_gate": ("preempt", (True, False, 7, ["unfair"])),
}
#: Hooks about victims whose failure forbids nothing.
LENIENT = {"victim_queue_key", "scenarios", "unresolvable"}
VICTIM_CASES = [(hook, answering(answer)) for hook, (_, all_) in ABOUT_VICTIMS.items() for answer in all_]


@pytest.mark.parametrize(("hook", "answer"), [*VICTIM_CASES, *((hook, raising) for hook in ABOUT_VICTIMS)])
def test_pods_are_not_evicted_when_a_hook_fails(hook: str, answer: Callable[..., Any]) -> None:
    hooks: dict[str, Any] = {hook: answer}
    result = pressed_with(ABOUT_VICTIMS[hook][0], Hooks(**hooks))
    assert [line.split(": ")[1] for line in complaints(result)] == [hook]
    assert result.plan.evictions == ()


@pytest.mark.parametrize("hook", ABOUT_VICTIMS)
def test_the_same_hooks_with_valid_answers_evict(hook: str) -> None:
    makes_a_function = hook in ("reclaim_from", "reclaim_losers", "reclaim_filter", "preempt_filter")
    hooks: dict[str, Any] = {hook: answering(answering(True) if makes_a_function else None)}
    result = pressed_with(ABOUT_VICTIMS[hook][0], Hooks(**hooks))
    assert complaints(result) == []
    assert result.evicted_pods() == (["richer-0-0"] if ABOUT_VICTIMS[hook][0] == "reclaim" else ["lowly-0"])


@pytest.mark.parametrize("answer", [raising, answering(np.array([True, False]))])
def test_a_failing_precheck_does_not_stop_the_victim_search(answer: Callable[..., Any]) -> None:
    result = pressed_with("reclaim", Hooks(unresolvable=answer))
    assert [line.split(": ")[1] for line in complaints(result)] == ["unresolvable"]
    assert result.evicted_pods() == ["richer-0-0"]
    assert pressed_with("reclaim", Hooks(unresolvable=answering(True))).plan.evictions == ()


def test_the_reason_names_the_plugin_that_failed() -> None:
    reclaiming = pressed_with("reclaim", Hooks(may_reclaim=raising)).unscheduled("urgent")
    assert reclaiming is not None
    assert [no_eviction_text(verdict) for verdict in reclaiming.verdicts] == ["reclaim: plugin theirs failed"]
    preempting = pressed_with("preempt", Hooks(preempt_gate=raising)).unscheduled("urgent")
    assert preempting is not None
    assert [no_eviction_text(verdict) for verdict in preempting.verdicts] == [
        "preempt: no fair set of victims makes enough room: plugin theirs failed"
    ]


@pytest.mark.parametrize("answer", [*NOT_KEYS, raising])
def test_an_invalid_victim_key_leaves_the_order_to_the_others(answer: Any) -> None:
    result = pressed_with("reclaim", Hooks(victim_queue_key=answer if answer is raising else answering(answer)))
    assert [line.split(": ")[1] for line in complaints(result)] == ["victim_queue_key"]
    assert result.evicted_pods() == ["richer-0-0"]


@pytest.mark.parametrize("names", [7, (7,), (None,), (("NodeLocalGreedy",),)])
def test_scenario_generators_that_are_not_names_are_ignored(names: Any) -> None:
    result = pressed_with("reclaim", Hooks(scenarios=names))
    assert "scenarios: raised TypeError" in complaints(result)[0]
    assert result.evicted_pods() == ["richer-0-0"]


@pytest.mark.parametrize("names", [("Clairvoyance",), ("NodeLocalGreedy", "Clairvoyance"), "NodeLocalGreedy"])
def test_an_unknown_generator_is_reported(names: Any) -> None:
    result = pressed_with("reclaim", Hooks(scenarios=names))
    assert len(complaints(result)) == 1
    assert result.evicted_pods() == ["richer-0-0"]


@pytest.mark.parametrize("verdict", [NoEviction("reclaim", "mood"), NoEviction("reclaim", "fair_share")])
def test_any_verdict_of_a_plugin_can_be_reported(verdict: NoEviction) -> None:
    result = pressed_with("reclaim", Hooks(may_reclaim=answering(verdict)))
    assert result.plan.evictions == ()
    record = result.unscheduled("urgent")
    assert record is not None
    assert [no_eviction_text(found).startswith("reclaim: ") for found in record.verdicts] == [True]
