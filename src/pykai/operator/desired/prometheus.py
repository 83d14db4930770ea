"""Prometheus, for usage over time, and ServiceMonitors of all components (operations:O-44 to O-47, OD-17, E-16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pykai.api.duration import DurationError, parse_extended_duration
from pykai.api.installation import PrometheusSpec, ServiceMonitorSpec
from pykai.api.timestamp import TimestampError, format_timestamp, parse_timestamp
from pykai.api.unstructured import JsonObject
from pykai.operator.desired import numaexporter
from pykai.operator.desired.arguments import queue_metrics
from pykai.operator.desired.components import COMPONENTS
from pykai.operator.desired.facts import ClusterFacts
from pykai.operator.desired.objects import (
    COMPONENT_LABEL,
    METRICS_NAME,
    OPERATOR,
    account,
    make_object,
    port,
    service,
)
from pykai.operator.desired.settings import Settings, default, part

OPERAND: Final = "KAI-prometheus"
DEPENDENCY: Final = "prometheus operator"
DEPRECATED_ANNOTATION: Final = "kai/deprecation-timestamp"
_GROUP: Final = "monitoring.coreos.com/v1"
_TOKEN: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_SECOND: Final = 1_000_000_000
_MONTH: Final = 30 * 24 * 3600 * _SECOND


def prometheus_objects(
    settings: Settings, facts: ClusterFacts, *, has_numa_exporter: bool
) -> tuple[list[JsonObject], bool]:
    """The objects, and whether the Prometheus operator is missing."""
    spec = settings.prometheus
    if not spec.enabled:
        return _deprecated(facts), False
    monitored = _monitored(settings, has_numa_exporter=has_numa_exporter)
    if spec.external_prometheus_url:
        return (_monitors(settings, spec, monitored) if facts.has_service_monitors else []), False
    if not facts.has_prometheus:
        # operations:O-46
        return [], True
    name = default(spec.instance_name, "prometheus")
    return [
        account(name, settings.namespace),
        _prometheus(name, settings, spec),
        service("usage-prometheus", settings, [port(9090, 9090, "web")]) | {"spec": _usage_service(name)},
        *_monitors(settings, spec, monitored),
    ], False


def _prometheus(name: str, settings: Settings, spec: PrometheusSpec) -> JsonObject:
    selector = {"matchLabels": dict([_accounting(spec)])}
    content: JsonObject = {
        "replicas": 1,
        "serviceAccountName": name,
        "retention": default(spec.retention_period, "2w"),
        "scrapeInterval": default(spec.sample_interval, "1m"),
        "serviceMonitorSelector": selector,
        "podMonitorSelector": selector,
        "ruleSelector": selector,
    }
    if default(spec.enable_persistent_storage, True):
        claim = {
            "storageClassName": default(spec.storage_class_name, "standard"),
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": default(spec.storage_size, "50Gi")}},
        }
        content["storage"] = {"volumeClaimTemplate": {"spec": claim}}
    return make_object(_GROUP, "Prometheus", name, settings.namespace, spec=content)


def _usage_service(instance: str) -> JsonObject:
    return {"selector": {"prometheus": instance}, "ports": [port(9090, 9090, "web")]}


def _accounting(spec: PrometheusSpec) -> tuple[str, str]:
    return default(spec.accounting_label_key, "kai.scheduler/accounting"), default(spec.accounting_label_value, "true")


class _Monitored(NamedTuple):
    """Services that Prometheus reads."""

    #: of the ServiceMonitor, and the value of the label
    name: str
    port: str
    namespaces: tuple[str, ...]
    label: str = "app"


def _monitored(settings: Settings, *, has_numa_exporter: bool) -> list[_Monitored]:
    """KAI's two, queues and the capacity of nodes, then the operator, our other components and all schedulers."""
    own = (settings.namespace,)
    queues = "queue-controller"
    rows = [
        _Monitored(queues, queue_metrics(settings).name or "", own),
        _Monitored("kube-state-metrics", "http", ("monitoring", "default"), "app.kubernetes.io/name"),
        # The chart makes its Service, as it makes the operator.
        _Monitored(OPERATOR, METRICS_NAME, own),
    ]
    rows += [
        _Monitored(each.name, METRICS_NAME, own)
        for each in COMPONENTS
        if each.name != queues and settings.is_enabled(each.spec(settings))
    ]
    if has_numa_exporter:
        rows.append(_Monitored(numaexporter.NAME, METRICS_NAME, own))
    if settings.is_enabled(settings.scheduler):
        rows.append(_Monitored("scheduler", METRICS_NAME, own, COMPONENT_LABEL))
    return rows


def _monitors(settings: Settings, spec: PrometheusSpec, monitored: list[_Monitored]) -> list[JsonObject]:
    """A ServiceMonitor for each."""
    given = part(spec.service_monitor, ServiceMonitorSpec)
    if not default(given.enabled, True):
        return []
    endpoint = {
        "interval": default(given.interval, "30s"),
        "scrapeTimeout": default(given.scrape_timeout, "10s"),
        "bearerTokenFile": default(given.bearer_token_file, _TOKEN),
    }
    return [
        make_object(
            _GROUP,
            "ServiceMonitor",
            each.name,
            settings.namespace,
            labels=dict([_accounting(spec)]),
            spec={
                "endpoints": [{"port": each.port, **endpoint}],
                "namespaceSelector": {"matchNames": list(each.namespaces)},
                "selector": {"matchLabels": {each.label: each.name}},
            },
        )
        for each in monitored
    ]


# operations:O-47, OC-16
def _deprecated(facts: ClusterFacts) -> list[JsonObject]:
    """A Prometheus that is not wanted any more is kept as long as its data would be."""
    live = facts.prometheus
    if live is None:
        return []
    metadata: Mapping[str, Any] = live.get("metadata") or {}
    now = int(facts.now_s * _SECOND)
    since = _since(metadata.get("annotations") or {}, now)
    if now - since > _retention(live.get("spec") or {}):
        return []
    annotations = {DEPRECATED_ANNOTATION: format_timestamp(since)}
    return [
        make_object(
            _GROUP,
            "Prometheus",
            str(metadata.get("name", "")),
            str(metadata.get("namespace", "")),
            annotations=annotations,
            spec=live.get("spec"),
        )
    ]


def _since(annotations: Mapping[str, Any], now: int) -> int:
    try:
        return min(now, parse_timestamp(str(annotations.get(DEPRECATED_ANNOTATION, ""))))
    except TimestampError:
        return now


def _retention(spec: Mapping[str, Any]) -> int:
    try:
        return parse_extended_duration(str(spec.get("retention", "")))
    except DurationError:
        return _MONTH
