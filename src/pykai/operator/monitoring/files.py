"""Dashboards and rules as files of the chart, and as objects for `kai manifests --monitoring`."""

from __future__ import annotations

import json
from typing import Any, Final

from pykai.api import names
from pykai.operator.monitoring.alerts import rule_groups
from pykai.operator.monitoring.dashboards import DASHBOARDS, Dashboard, dashboard_document

#: Grafana's sidecar loads ConfigMaps with this label
DASHBOARD_LABEL: Final = "grafana_dashboard"
#: by which the Prometheus of a Config selects rules
RULE_LABELS: Final = {"kai.scheduler/accounting": "true"}


def monitoring_files() -> dict[str, str]:
    """Path -> text.  JSON is YAML as well, so Prometheus reads the rules."""
    return {
        **{path_of_dashboard(f"{each.name}.json"): _text(dashboard_document(each)) for each in DASHBOARDS},
        "rules/kai.yaml": _text(rule_groups()),
    }


def path_of_dashboard(file: str) -> str:
    """Where the chart has the file of a dashboard."""
    return f"dashboards/{file}"


def monitoring_objects(namespace: str = names.DEFAULT_NAMESPACE) -> list[dict[str, Any]]:
    """A PrometheusRule, and a ConfigMap for each dashboard."""
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "kai", "namespace": namespace, "labels": dict(RULE_LABELS)},
        "spec": rule_groups(),
    }
    return [rule, *(_config_map(each, namespace) for each in DASHBOARDS)]


def _config_map(dashboard: Dashboard, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{dashboard.name}-dashboard", "namespace": namespace, "labels": {DASHBOARD_LABEL: "1"}},
        "data": {f"{dashboard.name}.json": _text(dashboard_document(dashboard))},
    }


def _text(document: Any) -> str:
    return json.dumps(document, indent=1) + "\n"
