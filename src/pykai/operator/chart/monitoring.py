"""What Prometheus and Grafana read, as far as the values ask for it: dashboards, alerts, the rights of a Prometheus.

Dashboards are files of the chart; a ConfigMap takes the text of each.  The operator makes the Prometheus of a Config
and its account; the role is here, because the operator hands out no rights (operations:11).

Statements: operations:O-44, O-54.
"""

from __future__ import annotations

from typing import Any, Final

from pykai.operator.chart.language import (
    All,
    Choice,
    FileText,
    FirstOf,
    IsSet,
    Not,
    ReleaseNamespace,
    TemplateNode,
    Value,
    when_set,
)
from pykai.operator.monitoring.files import monitoring_objects, path_of_dashboard

_RBAC: Final = "rbac.authorization.k8s.io"
_ROLE: Final = "kai-prometheus"
#: what finding the endpoints of ServiceMonitors takes, in all namespaces that they name
_RULES: Final = (
    {"apiGroups": [""], "resources": ["endpoints", "pods", "services"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
    {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
)


def monitoring_documents() -> list[TemplateNode]:
    """Alerts, then a ConfigMap for each dashboard."""
    alerts, *dashboards = monitoring_objects()
    return [
        Choice(IsSet(Value("alerts.enabled")), _labelled(alerts, "alerts.labels")),
        *(Choice(IsSet(Value("dashboards.enabled")), _from_files(each)) for each in dashboards),
    ]


def _labelled(made: dict[str, Any], labels: str) -> dict[str, TemplateNode]:
    metadata = {"name": made["metadata"]["name"], "namespace": ReleaseNamespace(), "labels": when_set(labels)}
    return {**made, "metadata": metadata}


def _from_files(made: dict[str, Any]) -> dict[str, TemplateNode]:
    data = {name: FileText(path_of_dashboard(name), text) for name, text in made["data"].items()}
    return {**_labelled(made, "dashboards.labels"), "data": data}


def prometheus_role() -> list[TemplateNode]:
    """What the Prometheus that the operator makes may read; its account has the name of the instance."""
    account = FirstOf((Value("prometheus.instanceName"), "prometheus"))
    is_made = All((IsSet(Value("prometheus.enabled")), Not(IsSet(Value("prometheus.externalPrometheusUrl")))))
    role = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _ROLE},
        "rules": [dict(each) for each in _RULES],
    }
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _ROLE},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": ReleaseNamespace()}],
    }
    return [Choice(is_made, [role, binding])]
