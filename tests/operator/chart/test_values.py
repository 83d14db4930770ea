"""Every value of the chart has an effect, or docs/values.md says that it has none."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import pytest

from pykai.operator.chart.configuration import config
from pykai.operator.chart.files import rendered_documents
from pykai.operator.chart.values import UNSET, VALUES, ChartValue, Kind
from tests.operator.chart.charts import rendered, scope

#: another value of each kind
_OTHER: Final[dict[Kind, Any]] = {
    Kind.TEXT: "other",
    Kind.NUMBER: 0.5,
    Kind.PORT: 7777,
    Kind.COUNT: 7,
    Kind.QUANTITY: "7Gi",
    Kind.TEXTS: {"other": "text"},
    Kind.DOCUMENT: {"other": {"nested": 1}},
    Kind.DOCUMENTS: [{"key": "other", "operator": "Exists"}],
    Kind.NAMES: [{"name": "other"}],
}
_GIVEN: Final[dict[str, Any]] = {"operator.metricsBindAddress": ":7777", "operator.probeBindAddress": ":7778"}
#: what must be set for a value to matter, by the beginning of its path
_CONTEXTS: Final[dict[str, dict[str, Any]]] = {
    "kaiConfig.render": {"kaiConfigDeployer.enabled": False},
    "global.queueAdmissionGating.reservationTimeout": {"global.queueAdmissionGating.enabled": True},
    "prometheus.enabled": {},
    "prometheus.": {"prometheus.enabled": True},
    "dashboards.labels": {"dashboards.enabled": True},
    "alerts.labels": {"alerts.enabled": True},
    "admission.gpuPodRuntimeClassName": {"admission.gpuFractionRuntimeClassName": None},
}


def context(value: ChartValue) -> dict[str, Any]:
    return next((given for path, given in _CONTEXTS.items() if value.path.startswith(path)), {})


def another(value: ChartValue) -> Any:
    """A value that is not the default."""
    if value.path in _GIVEN:
        return _GIVEN[value.path]
    if value.choices:
        return next(each for each in value.choices if each not in (value.default, ""))
    if value.kind is Kind.SWITCH:
        return value.default is UNSET or not value.default
    return _OTHER[value.kind]


def installed(values: dict[str, Any]) -> Any:
    """All objects, and the Config that a hook, the release or a user applies."""
    return rendered(values), rendered_documents(scope(values), [config()])


@cache
def by_default() -> Any:
    return installed({})


@pytest.mark.parametrize(
    "value", [each for each in VALUES if "without effect" not in each.meaning], ids=lambda each: each.path
)
def test_a_value_changes_what_is_installed_or_is_said_to_be_without_effect(value: ChartValue) -> None:
    """operations:10, OD-18"""
    before = installed(context(value)) if context(value) else by_default()
    assert installed({**context(value), value.path: another(value)}) != before
