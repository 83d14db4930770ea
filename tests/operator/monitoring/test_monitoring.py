"""Dashboards and alerts name metrics and labels that exist."""

from __future__ import annotations

import asyncio
import re

import pytest

from pykai.operator.monitoring.alerts import ALERTS, rule_groups
from pykai.operator.monitoring.dashboards import DASHBOARDS, dashboard_document
from pykai.operator.monitoring.files import monitoring_files, monitoring_objects
from tests.docs.metricspage import registries
from tests.operator.monitoring.alertcases import CASES, Case
from tests.operator.monitoring.expressions import all_expressions, known_metrics, mistakes

KNOWN = known_metrics()


@pytest.mark.parametrize("expression", all_expressions().values(), ids=all_expressions().keys())
def test_an_expression_names_metrics_and_labels_that_exist(expression: str) -> None:
    assert mistakes(expression, KNOWN) == []


@pytest.mark.parametrize(
    ("expression", "mistake"),
    [
        ("sum(kai_queue_alocated_gpus)", "no metric kai_queue_alocated_gpus"),
        ("sum(kai_scheduling_cycles)", "no metric kai_scheduling_cycles"),
        ('rate(kai_scheduling_cycles_total{outcome="done"}[5m])', "kai_scheduling_cycles_total has no label outcome"),
        ("sum by (queue) (kai_queue_info)", "no metric of it has the label queue"),
        ("kai_queue_info and on (name) kai_cluster_gpus", "no metric of it has the label name"),
        ("kai_cluster_gpus ? 1", "unreadable: ?"),
    ],
)
def test_a_wrong_name_is_found(expression: str, mistake: str) -> None:
    assert mistakes(expression, KNOWN) == [mistake]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda each: each.name)
def test_an_alert_shows_labels_that_its_expression_keeps(alert: object) -> None:
    (found,) = (each for each in ALERTS if each is alert)
    shown = set(re.findall(r"\$labels\.(\w+)", found.summary + found.action))
    kept = {label for text in re.findall(r"by \(([^)]*)\)", found.expression) for label in text.split(", ")}
    assert shown <= kept
    assert found.action.endswith(".")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda each: each.name)
def test_an_alert_has_cases_in_which_it_fires_and_does_not(alert: object) -> None:
    """`make test-prometheus` evaluates them."""
    (found,) = (each for each in ALERTS if each is alert)
    assert {bool(case.fires) for case in CASES if case.alert == found.name} == {True, False}


@pytest.mark.parametrize("case", CASES, ids=lambda each: f"{each.alert}: {each.title}")
def test_a_case_names_series_and_labels_that_exist(case: Case) -> None:
    assert case.alert in {each.name for each in ALERTS}
    assert [each for name in case.series for each in mistakes(name, KNOWN)] == []


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
def test_a_line_is_named_by_labels_that_its_expression_keeps(dashboard: object) -> None:
    (found,) = (each for each in DASHBOARDS if each is dashboard)
    for panel in found.panels:
        for expression, legend in panel.queries:
            kept = {label for text in re.findall(r"by \(([^)]*)\)", expression) for label in text.split(", ")}
            assert set(re.findall(r"{{(\w+)}}", legend)) <= kept, panel.title


def test_what_an_alert_takes_the_rate_of_is_there_from_the_start() -> None:
    """A series that begins with what it counted has a first sample that no rate contains."""
    found = asyncio.run(registries())
    samples = [each for registry in found.values() for family in registry.collect() for each in family.samples]
    for alert in ALERTS:
        for name in re.findall(r"(?:rate|increase)\((\w+)", alert.expression):
            assert {each.value for each in samples if each.name == name} == {0}, f"{alert.name}: {name}"


def test_names_are_used_once_and_panels_do_not_overlap() -> None:
    assert len({each.name for each in ALERTS}) == len(ALERTS)
    for dashboard in DASHBOARDS:
        panels = dashboard_document(dashboard)["panels"]
        places = {(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels}
        assert len(places) == len(panels) == len({each["id"] for each in panels})


def test_every_alert_is_in_the_rules_and_every_dashboard_in_a_config_map() -> None:
    rules = [rule for group in rule_groups()["groups"] for rule in group["rules"]]
    assert sorted(rule["alert"] for rule in rules) == sorted(each.name for each in ALERTS)
    rule, *maps = monitoring_objects()
    assert rule["spec"] == rule_groups()
    files = monitoring_files()
    for each in maps:
        for name, text in each["data"].items():
            assert files[f"dashboards/{name}"] == text
    assert len(maps) == len(DASHBOARDS)
