"""PodDisruptionBudgets: without one nothing changes, `strict` holds, and `prefer` only orders."""

from __future__ import annotations

from copy import deepcopy
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pykai.core.caching import caches_disabled
from pykai.core.policy import DisruptionMode, SearchBudgets
from pykai.core.report.decisions import Plan
from tests.core.builders import Cluster
from tests.property.clusters import tight_clusters

EXAMPLES = settings(max_examples=40, deadline=None)
#: Budgets of searches count work, which is what caches save.
ENDLESS = SearchBudgets(default_action=None, job=None, generators={}, default_generator=None)
APPS = ("web", "db", "job")


def plan_of(built: Cluster, mode: DisruptionMode) -> Plan:
    return built.with_policy(disruption_budgets=mode).schedule().plan


@st.composite
def budgeted_clusters(draw: st.DrawFn) -> tuple[Cluster, Cluster, dict[str, int]]:
    """A cluster with labelled pods, the same with budgets of some labels, and what these allow."""
    built = draw(tight_clusters())
    dice = Random(draw(st.integers(0, 2**32)))
    for raw in built.objects:
        if raw["kind"] == "Pod":
            raw["metadata"]["labels"]["app"] = dice.choice(APPS)
    budgeted = deepcopy(built)
    allowed = {app: dice.choice((0, 0, 1, 2)) for app in APPS if dice.random() < 0.7}
    for app, count in allowed.items():
        budgeted.disruption_budget(app, count, matchLabels={"app": app})
    return built, budgeted, allowed


@EXAMPLES
@given(budgeted_clusters())
def test_ignored_budgets_and_budgets_without_pods_change_nothing(
    clusters: tuple[Cluster, Cluster, dict[str, int]],
) -> None:
    """disruptions:prefer"""
    plain, budgeted, _ = clusters
    expected = plan_of(plain, DisruptionMode.PREFER).encoded()
    assert plan_of(plain, DisruptionMode.STRICT).encoded() == expected
    assert plan_of(budgeted, DisruptionMode.IGNORE).encoded() == expected
    elsewhere = plain.disruption_budget("all", namespace="elsewhere").disruption_budget("x", matchLabels={"app": "x"})
    for mode in DisruptionMode:
        assert plan_of(elsewhere, mode).encoded() == expected


@EXAMPLES
@given(budgeted_clusters())
def test_strict_budgets_hold(clusters: tuple[Cluster, Cluster, dict[str, int]]) -> None:
    """disruptions:strict: only what is left of a broken gang goes whatever budgets say."""
    _, budgeted, allowed = clusters
    plan = plan_of(budgeted, DisruptionMode.STRICT)
    pods = {
        f"{raw['metadata']['namespace']}/{raw['metadata']['name']}": raw
        for raw in budgeted.objects
        if raw["kind"] == "Pod"
    }
    for app, count in allowed.items():
        lost = [
            item
            for item in plan.evictions
            if item.action != "stalegangeviction"
            and pods[f"{item.namespace}/{item.pod}"]["metadata"]["labels"]["app"] == app
            and pods[f"{item.namespace}/{item.pod}"]["status"]["phase"] == "Running"
        ]
        assert len(lost) <= count, (app, lost)


@settings(max_examples=30, deadline=None)
@given(budgeted_clusters(), st.sampled_from([DisruptionMode.PREFER, DisruptionMode.STRICT]))
def test_caches_change_no_order(clusters: tuple[Cluster, Cluster, dict[str, int]], mode: DisruptionMode) -> None:
    """caches"""
    _, budgeted, _ = clusters
    budgeted.with_policy(search_budgets=ENDLESS)
    expected = replace(plan_of(budgeted, mode), work=0).encoded()
    with caches_disabled():
        assert replace(plan_of(budgeted, mode), work=0).encoded() == expected
