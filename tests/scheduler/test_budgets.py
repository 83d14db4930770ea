"""`scenarioSearchBudgets`: durations become units of work, mistakes stop no cycle (cycle:13.2)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.model.problems import Problem
from pykai.core.policy import UNITS_PER_SECOND, SearchBudgets
from pykai.scheduler.config.budgets import read_budgets
from pykai.scheduler.metrics import SchedulerMetrics
from tests.core.builders import Cluster, cluster


def read(value: object) -> SearchBudgets:
    """Budgets without mistakes."""
    problems: list[Problem] = []
    found = read_budgets(value, problems.append)
    assert problems == []
    return found


def mistakes(value: object) -> tuple[SearchBudgets, list[str]]:
    """Budgets, and the fields of the mistakes."""
    problems: list[Problem] = []
    found = read_budgets(value, problems.append)
    return found, [problem.field for problem in problems]


def units(seconds: float) -> int:
    return int(seconds * UNITS_PER_SECOND)


# Values


def test_sol5_the_built_in_budgets() -> None:
    """cycle:SOL-5: five minutes an action, four a job, two a way and half of one for NodeLocalGreedy."""
    nothing: tuple[object, ...] = (None, {})
    for value in nothing:
        budgets = read(value)
        assert budgets == SearchBudgets()
        for action in ("reclaim", "preempt", "consolidation"):
            assert budgets.action_units(action) == units(300)
        assert budgets.job == units(240)
        assert budgets.job_minimum == 0
        assert budgets.generator_units("NodeLocalGreedy") == units(30)
        assert budgets.generator_units("MultiNodeGang") == units(120)


def test_sol5_every_key_is_read() -> None:
    """cycle:SOL-5"""
    budgets = read(
        {
            "maxActionSearchDuration": {"reclaim": "10s", "preempt": "1m", "default": "2m"},
            "maxJobSearchDuration": "20s",
            "minJobSearchDuration": "500ms",
            "maxGeneratorSearchDuration": {"NodeLocalGreedy": "1s", "MultiNodeGang": "3s"},
        }
    )
    assert budgets.action_units("reclaim") == units(10)
    assert budgets.action_units("preempt") == units(60)
    assert budgets.action_units("consolidation") == units(120)
    assert budgets.job == units(20)
    assert budgets.job_minimum == units(0.5)
    assert budgets.generator_units("NodeLocalGreedy") == units(1)
    assert budgets.generator_units("MultiNodeGang") == units(3)


def test_sol5_the_default_for_generators_does_not_override_their_own_values() -> None:
    """cycle:SOL-5"""
    budgets = read({"maxGeneratorSearchDuration": {"default": "7s"}})
    assert budgets.generator_units("NodeLocalGreedy") == units(30)
    assert budgets.generator_units("SomeoneElses") == units(7)


@pytest.mark.parametrize("zero", ["0s", "0", 0])
def test_sol5_an_empty_value_means_unlimited(zero: object) -> None:
    """cycle:SOL-5: for the largest values; the least a job gets is nothing then."""
    budgets = read(
        {
            "maxActionSearchDuration": {"default": zero, "reclaim": zero},
            "maxJobSearchDuration": zero,
            "minJobSearchDuration": zero,
            "maxGeneratorSearchDuration": {"NodeLocalGreedy": zero, "default": zero},
        }
    )
    assert budgets.action_units("reclaim") is None
    assert budgets.action_units("preempt") is None
    assert budgets.job is None
    assert budgets.job_minimum == 0
    assert budgets.generator_units("NodeLocalGreedy") is None
    assert budgets.generator_units("MultiNodeGang") is None


def test_a_duration_too_short_for_a_unit_is_one_unit() -> None:
    """Not nothing, which would be without end."""
    assert read({"maxJobSearchDuration": "1ns"}).job == 1


def test_with_unlimited_budgets_a_job_may_have_any_minimum() -> None:
    """cycle:SOL-5: min >= max is wrong only where there is a max."""
    budgets = read({"maxJobSearchDuration": "0s", "minJobSearchDuration": "1h"})
    assert (budgets.job, budgets.job_minimum) == (None, units(3600))


# Mistakes


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("fast", ""),
        ([], ""),
        ({"maxJobSearchDuration": "soon"}, ".maxJobSearchDuration"),
        ({"maxJobSearchDuration": "-1s"}, ".maxJobSearchDuration"),
        ({"maxJobSearchDuration": 5}, ".maxJobSearchDuration"),
        ({"maxJobSearchDuration": None}, ".maxJobSearchDuration"),
        ({"maxJobSearchDuration": ["1s"]}, ".maxJobSearchDuration"),
        ({"minJobSearchDuration": "-1s"}, ".minJobSearchDuration"),
        ({"maxSearchDuration": "1s"}, ".maxSearchDuration"),
        ({"maxActionSearchDuration": "1s"}, ".maxActionSearchDuration"),
        ({"maxActionSearchDuration": {"fly": "1s"}}, ".maxActionSearchDuration.fly"),
        ({"maxActionSearchDuration": {"allocate": "1s"}}, ".maxActionSearchDuration.allocate"),
        ({"maxActionSearchDuration": {"reclaim": "-1s"}}, ".maxActionSearchDuration.reclaim"),
        ({"maxActionSearchDuration": {7: "1s"}}, ".maxActionSearchDuration.7"),
        ({"maxGeneratorSearchDuration": {"Clairvoyance": "1s"}}, ".maxGeneratorSearchDuration.Clairvoyance"),
        ({"maxGeneratorSearchDuration": {"NodeLocalGreedy": ""}}, ".maxGeneratorSearchDuration.NodeLocalGreedy"),
        ({"maxGeneratorSearchDuration": {"default": "x"}}, ".maxGeneratorSearchDuration.default"),
        ({7: "1s"}, ".7"),
    ],
)
def test_a_mistake_is_named_and_the_built_in_value_counts(value: object, field: str) -> None:
    """cycle:SOL-5: upstream skips the whole action instead."""
    budgets, fields = mistakes(value)
    assert fields == [f"scenarioSearchBudgets{field}"]
    for action in ("reclaim", "preempt", "consolidation"):
        assert budgets.action_units(action) == units(300)
    assert (budgets.job, budgets.job_minimum) == (units(240), 0)
    assert budgets.generator_units("NodeLocalGreedy") == units(30)
    assert budgets.generator_units("MultiNodeGang") == units(120)


@pytest.mark.parametrize(("least", "most"), [("10s", "10s"), ("11s", "10s"), ("5m", None)])
def test_sol5_the_least_must_be_less_than_the_most(least: str, most: str | None) -> None:
    """cycle:SOL-5: else both have their built-in values."""
    given: dict[str, Any] = {"minJobSearchDuration": least, "maxActionSearchDuration": {"reclaim": "1s"}}
    budgets, fields = mistakes(given if most is None else {**given, "maxJobSearchDuration": most})
    assert fields == ["scenarioSearchBudgets.minJobSearchDuration"]
    assert (budgets.job, budgets.job_minimum) == (units(240), 0)
    assert budgets.action_units("reclaim") == units(1), "what is right is kept"


def test_other_keys_survive_a_mistake() -> None:
    budgets, fields = mistakes(
        {"maxJobSearchDuration": "x", "minJobSearchDuration": "1s", "maxGeneratorSearchDuration": {"default": "9s"}}
    )
    assert fields == ["scenarioSearchBudgets.maxJobSearchDuration"]
    assert (budgets.job, budgets.job_minimum) == (units(240), units(1))
    assert budgets.generator_units("SomeoneElses") == units(9)


# Their effect


def claim(**budgets: Any) -> Cluster:
    """A claim that reclaim could satisfy."""
    base = (
        cluster(nodes=2, gpus=2)
        .with_actions("reclaim")
        .queue("poor", quota=2)
        .queue("rich", quota=0, weight=0)
        .gang("rich-0", 2, gpu=1, queue="rich", on="node-0")
        .gang("rich-1", 2, gpu=1, queue="rich", on="node-1")
        .gang("claim", 2, gpu=1, queue="poor")
    )
    return base.with_policy(search_budgets=SearchBudgets(**budgets))


def test_sol6_enough_units_are_enough() -> None:
    """cycle:SOL-6"""
    assert claim().schedule().pipelined("claim") == 2
    unlimited = claim(default_action=None, job=None, generators={}, default_generator=None)
    assert unlimited.schedule().pipelined("claim") == 2


@pytest.mark.parametrize("budgets", [{"job": 1}, {"actions": {"reclaim": 1}}])
def test_sol3_a_search_that_is_stopped_evicts_nothing_and_has_a_reason(budgets: dict[str, Any]) -> None:
    """cycle:SOL-3"""
    result = claim(**budgets).schedule()
    assert result.plan.evictions == ()
    assert result.verdicts("claim") == {"reclaim": "deadline_exhausted"}
    (stopped,) = result.plan.stopped
    assert (stopped.action, stopped.group, stopped.outcome) == ("reclaim", "default/claim", "deadline_exhausted")
    metrics = SchedulerMetrics()
    metrics.record_plan(result.plan)
    name = "kai_scenario_search_action_budget_exhausted_total"
    assert metrics.registry.get_sample_value(name, {"action": "reclaim"}) == 1


def test_sol3_nothing_left_means_not_attempted() -> None:
    """cycle:SOL-3, SOL-6"""
    result = claim(actions={"reclaim": 0}).schedule()
    assert result.verdicts("claim") == {"reclaim": "not_attempted"}
    assert result.plan.evictions == ()


def test_sol6_the_least_of_a_job_counts_whatever_the_action_has_left() -> None:
    """cycle:SOL-6: job = max(least, min(action, most))."""
    result = claim(actions={"reclaim": 0}, job_minimum=1000).schedule()
    assert result.pipelined("claim") == 2


def test_sol6_a_generator_out_of_budget_leaves_the_job_to_the_next() -> None:
    """cycle:SOL-6: the way has its own limit, and running into it does not end the action."""
    result = claim(generators={"NodeLocalGreedy": 0}).schedule()
    assert result.pipelined("claim") == 2
    assert result.plan.stopped == ()
    assert claim(generators={"NodeLocalGreedy": 0, "MultiNodeGang": 0}).schedule().plan.evictions == ()


def test_a_budget_counts_work_so_a_replay_stops_where_the_original_stopped() -> None:
    """cycle:13.2: the same bytes, however fast the machine."""
    for units_left in range(1, 12):
        first, second = (claim(job=units_left).schedule().plan.encoded() for _ in range(2))
        assert first == second
