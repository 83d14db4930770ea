"""Budgets by namespace: what they say, which of them count, and when a change matters (disruptions:count)."""

from typing import Any

from pykai.api.decode import decode_object
from pykai.api.disruption import PodDisruptionBudget
from pykai.core.cluster.disruptionbudgets import MAX_BUDGETS, MAX_LABELS, MAX_REPORTED, MAX_VALUES, read_budget
from pykai.core.cluster.tables import Tables
from tests.calls import count_calls
from tests.core.builders import NOW_NS, Cluster, cluster


def told(tables: Tables, built: Cluster) -> Tables:
    """Tables that have seen the objects of another cluster, too."""
    for raw in built.objects:
        tables.apply(decode_object(raw))
    return tables


def allowances(tables: Tables, namespace: str = "default") -> dict[str, int]:
    snapshot = tables.snapshot(NOW_NS)
    budgets = snapshot.disruption_budgets.counted(namespace, snapshot.task_records.values())
    return {} if budgets is None else budgets.allowances()


def budget(allowed: int, name: str = "b", **more: Any) -> Cluster:
    return cluster().disruption_budget(name, allowed, **more)


def pods(count: int, first: int = 0, **how: Any) -> Cluster:
    built = cluster()
    for index in range(first, first + count):
        built.pod(f"p{index}", on="node-0", **how)
    return built


def test_running_pods_beyond_the_desired_ones_may_go() -> None:
    tables = told(Tables(), budget(9, desired=2))
    assert allowances(tables) == {"default/b": 0}
    assert allowances(told(tables, pods(3))) == {"default/b": 1}
    tables.remove("Pod", "default", "p0")
    assert allowances(tables) == {"default/b": 0}
    assert allowances(told(tables, pods(4, 3))) == {"default/b": 4}


def test_only_running_pods_of_the_selector_and_namespace_count() -> None:
    tables = told(Tables(), budget(9, matchLabels={"app": "web"}))
    for built in (pods(1, 0), pods(1, 1, labels={"app": "db"}), pods(1, 2, labels={"app": "web"}, phase="Pending")):
        assert allowances(told(tables, built)) == {"default/b": 0}
    assert allowances(told(tables, pods(2, 3, labels={"app": "web"}, namespace="other"))) == {"default/b": 0}
    assert allowances(told(tables, pods(2, 5, labels={"app": "web"}))) == {"default/b": 2}


def test_another_selector_counts_again() -> None:
    tables = told(told(Tables(), pods(2, labels={"app": "web"})), budget(9, matchLabels={"tier": "front"}))
    assert allowances(tables) == {"default/b": 0}
    assert allowances(told(tables, budget(9, matchLabels={"app": "web"}))) == {"default/b": 2}
    tables.remove("PodDisruptionBudget", "default", "b")
    assert allowances(tables) == {}
    assert not tables.disruption_budgets


def test_a_budget_changes_nothing_for_plans_that_read_no_running_work() -> None:
    tables = told(Tables(), budget(1))
    before = tables.snapshot(NOW_NS).change_tokens
    assert told(tables, budget(1)).snapshot(NOW_NS).change_tokens.is_same(before), "the same again"
    after = told(tables, budget(2)).snapshot(NOW_NS).change_tokens
    assert not after.is_same(before)
    assert after.same_except_running(before)


def test_one_namespace_cannot_have_budgets_without_end() -> None:
    """disruptions:bounds"""
    built = cluster()
    for number in range(MAX_BUDGETS + 1):
        built.disruption_budget(f"b{number:03}", 1)
    tables = told(told(Tables(), pods(1)), built)
    assert len(allowances(tables)) == MAX_BUDGETS
    (problem,) = tables.snapshot(NOW_NS).problems
    assert problem.subject == f"PodDisruptionBudget/default/b{MAX_BUDGETS:03}"
    assert "has more than 50 PodDisruptionBudgets" in str(problem)
    tables.remove("PodDisruptionBudget", "default", "b000")
    assert tables.snapshot(NOW_NS).problems == ()
    assert f"default/b{MAX_BUDGETS:03}" in allowances(tables)


def test_the_budgets_of_a_namespace_cannot_read_labels_without_end() -> None:
    """disruptions:bounds: those that read labels which others read already still count."""
    labels = {f"label-{number:02}": "x" for number in range(MAX_LABELS + 1)}
    tables = told(Tables(), pods(1, labels=labels))
    for name, (label, value) in zip("abcdefghijklmnopq", labels.items(), strict=True):
        told(tables, budget(1, name, matchLabels={label: value}))
    told(tables, budget(1, "z", matchLabels={"label-00": "x"}))
    assert "default/q" not in allowances(tables)
    assert allowances(tables)["default/z"] == 1
    (problem,) = tables.snapshot(NOW_NS).problems
    assert "PodDisruptionBudget/default/q" in str(problem)
    assert "read 17 labels, at most 16" in str(problem)
    tables.remove("PodDisruptionBudget", "default", "b")
    assert tables.snapshot(NOW_NS).problems == ()
    assert allowances(tables)["default/q"] == 1


def test_a_selector_cannot_list_values_without_end() -> None:
    """disruptions:bounds"""

    def within(count: int) -> dict[str, int]:
        values = [str(number) for number in range(count)]
        listed = {"key": "app", "operator": "NotIn", "values": values}
        return allowances(told(told(Tables(), pods(1)), budget(1, matchExpressions=[listed])))

    assert within(MAX_VALUES) == {"default/b": 1}
    assert within(MAX_VALUES + 1) == {}


def test_expressions_without_values_count_as_values() -> None:
    """disruptions:bounds"""

    def within(count: int) -> dict[str, int]:
        listed = [{"key": "app", "operator": "DoesNotExist"}] * count
        return allowances(told(told(Tables(), pods(1)), budget(1, matchExpressions=listed)))

    assert within(MAX_VALUES) == {"default/b": 1}
    assert within(MAX_VALUES + 1) == {}


def test_only_the_first_budgets_that_do_not_count_are_reported() -> None:
    """disruptions:bounds"""

    def reported(count: int) -> list[str]:
        tables = Tables()
        for number in range(count):
            told(tables, budget(1, f"b{number:03}", matchLabels=too_many_labels(1)))
        return [problem.subject for problem in tables.snapshot(NOW_NS).problems]

    first = [f"PodDisruptionBudget/default/b{number:03}" for number in range(MAX_REPORTED)]
    assert reported(MAX_REPORTED) == first
    assert reported(MAX_REPORTED + 1) == [*first, "Namespace/default"]
    assert reported(MAX_REPORTED + 90) == [*first, "Namespace/default"]


def too_many_labels(factor: int) -> dict[str, str]:
    return {f"label-{number}": "x" for number in range((MAX_LABELS + 1) * factor)}


def test_a_selector_that_is_too_large_is_measured_once_and_not_kept() -> None:
    """disruptions:bounds"""
    (raw,) = budget(1, matchLabels=too_many_labels(100)).objects
    item = decode_object(raw)
    assert isinstance(item, PodDisruptionBudget)
    kept = read_budget(item)
    assert (kept.selector, kept.labels) == (None, frozenset())
    assert "its selector reads 1700 labels, at most 16" in kept.excess


def test_a_changed_budget_costs_the_same_among_many() -> None:
    """disruptions:bounds: which budgets count is chosen when a cycle asks, not with each change."""

    def calls(others: int) -> int:
        tables = Tables()
        for number in range(others):
            told(tables, budget(1, f"b{number:03}", matchLabels=too_many_labels(1)))
        tables.snapshot(NOW_NS)
        (change,) = (decode_object(raw) for raw in budget(3, "z").objects)
        count = count_calls(lambda: tables.apply(change))
        assert allowances(told(tables, pods(5))) == {"default/z": 3}
        return count

    assert calls(300) == calls(3)


def test_a_cycle_chooses_only_where_a_budget_has_changed() -> None:
    """disruptions:bounds"""

    def calls(others: int) -> int:
        tables = Tables()
        for number in range(others):
            told(tables, budget(1, f"b{number:03}"))
        tables.snapshot(NOW_NS)
        told(tables, budget(1, namespace="other"))
        return count_calls(lambda: tables.snapshot(NOW_NS))

    assert calls(40) == calls(4)
