"""`usageDBConfig` of the configuration file (queues:14.2): where historical usage comes from, and which part counts.

`clientType: builtin` counts what the scheduler itself has recorded and needs nothing else; `prometheus` queries a
server.  A mistake is reported and switches time-based fair share off; it never stops the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pykai.api.duration import (
    MILLISECOND,
    MINUTE,
    SECOND,
    DurationError,
    format_go_duration,
    parse_duration,
    parse_extended_duration,
)
from pykai.api.suggestions import did_you_mean
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.core.model.problems import Problem, ProblemReporter
from pykai.core.queueing.cron import CronError, CronSchedule, parse_cron
from pykai.core.queueing.usagehistory import CRON, SLIDING, TUMBLING, UsageWindow

BUILTIN, PROMETHEUS = "builtin", "prometheus"
#: Upstream's own test clients are accepted; they have no usage to report.
CLIENT_TYPES = (BUILTIN, PROMETHEUS, "fake", "fake-with-history")
_SUBJECT = "scheduler configuration"
_PATH = "usageDBConfig"
_KEYS = ("clientType", "connectionString", "connectionStringEnvVar", "usageParams")

QUERY_TIMEOUT, RESOLUTION = "usageQueryTimeout", "queryResolution"
#: Durations among `extraParams` and their defaults.
_EXTRA_DURATIONS = {QUERY_TIMEOUT: 10 * SECOND, RESOLUTION: MINUTE}
#: Metrics among `extraParams` and their defaults, of CPU, memory and GPUs (operations:O-48).
_ALLOCATION_METRICS = {
    "cpuAllocationMetric": "kai_queue_allocated_cpu_cores",
    "memoryAllocationMetric": "kai_queue_allocated_memory_bytes",
    "gpuAllocationMetric": "kai_queue_allocated_gpus",
}
_CAPACITY_METRICS = {
    "cpuCapacityMetric": 'sum(kube_node_status_capacity{resource="cpu"})',
    "memoryCapacityMetric": 'sum(kube_node_status_capacity{resource="memory"})',
    "gpuCapacityMetric": 'sum(kube_node_status_capacity{resource="nvidia_com_gpu"})',
}
EXTRA_KEYS = (*_EXTRA_DURATIONS, *_ALLOCATION_METRICS, *_CAPACITY_METRICS)


@dataclass(frozen=True, slots=True)
class UsageConfig:
    """Where usage comes from."""

    client_type: str
    connection: str = ""
    #: environment variable that holds the connection instead
    connection_variable: str = ""
    window: UsageWindow = field(default_factory=UsageWindow)
    fetch_interval_ns: int = MINUTE
    #: older data is not used
    staleness_ns: int = 5 * MINUTE
    wait_timeout_ns: int = MINUTE
    #: for Prometheus: the limit of all queries of a fetch, and the distance of samples within the window
    query_timeout_ns: int = _EXTRA_DURATIONS[QUERY_TIMEOUT]
    resolution_ns: int = _EXTRA_DURATIONS[RESOLUTION]
    #: PromQL for CPU, memory and GPUs
    allocation_metrics: tuple[str, ...] = tuple(_ALLOCATION_METRICS.values())
    capacity_metrics: tuple[str, ...] = tuple(_CAPACITY_METRICS.values())


class _UsageConfigError(ValueError):
    """A field that invalidates the whole block: path and text."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(text)
        self.path = path


def read_usage(value: object, report: ProblemReporter) -> UsageConfig | None:
    """The block, None if there is none or it is invalid (queues:Q-330)."""
    if value is None:
        return None
    try:
        if not isinstance(value, Mapping):
            raise _UsageConfigError("", "expected a mapping")
        for key in value:
            if key not in _KEYS:
                report(Problem(_SUBJECT, f"{_PATH}.{key}", f"unknown key; known are {', '.join(_KEYS)}; ignored"))
        return _read(value, report)
    except _UsageConfigError as error:
        path = f"{_PATH}.{error.path}" if error.path else _PATH
        report(Problem(_SUBJECT, path, f"{error}; historical usage is not taken into account"))
        return None


def _read(value: Mapping[Any, Any], report: ProblemReporter) -> UsageConfig:
    client_type = str(value.get("clientType") or "")
    if not client_type:
        raise _UsageConfigError("clientType", "client type cannot be empty")
    if client_type not in CLIENT_TYPES:
        raise _UsageConfigError(
            "clientType", f"unknown client type {client_type!r}; supported are {', '.join(CLIENT_TYPES)}"
        )
    connection, variable = str(value.get("connectionString") or ""), str(value.get("connectionStringEnvVar") or "")
    if client_type != BUILTIN and bool(connection) == bool(variable):
        raise _UsageConfigError(
            "connectionString", "exactly one of connectionString and connectionStringEnvVar must be set"
        )
    params = value.get("usageParams") or {}
    if not isinstance(params, Mapping):
        raise _UsageConfigError("usageParams", "expected a mapping")
    fetch = _span(params, "fetchInterval", MINUTE)
    extra = _extra(params.get("extraParams"), report)
    return UsageConfig(
        client_type,
        connection,
        variable,
        _window(params),
        max(fetch, SECOND),
        # Data cannot be fresher than the fetch interval (queues:Q-334).
        max(fetch, _span(params, "stalenessPeriod", 5 * MINUTE)),
        _span(params, "waitTimeout", MINUTE),
        _extra_span(extra, QUERY_TIMEOUT, report),
        _extra_span(extra, RESOLUTION, report),
        tuple(extra.get(key) or default for key, default in _ALLOCATION_METRICS.items()),
        tuple(extra.get(key) or default for key, default in _CAPACITY_METRICS.items()),
    )


def _extra(value: object, report: ProblemReporter) -> dict[str, str]:
    """`extraParams`; what is not known there is reported and ignored."""
    path = f"{_PATH}.usageParams.extraParams"
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        report(Problem(_SUBJECT, path, "expected a mapping of texts; ignored"))
        return {}
    for key in value:
        if key not in EXTRA_KEYS:
            meant = did_you_mean(str(key), EXTRA_KEYS)
            report(
                Problem(_SUBJECT, f"{path}.{key}", f"unknown key; known are {', '.join(EXTRA_KEYS)}; ignored{meant}")
            )
    return {str(key): str(text) for key, text in value.items() if text is not None}


def _extra_span(extra: Mapping[str, str], key: str, report: ProblemReporter) -> int:
    """A duration among `extraParams`; one that cannot be used is reported, and the default counts (queues:14.2)."""
    default, text = _EXTRA_DURATIONS[key], extra.get(key) or ""
    try:
        span = parse_duration(text) if text else default
        # Prometheus knows nothing shorter than a millisecond.
        problem = "" if span >= MILLISECOND else f"{text!r}: expected at least 1ms"
    except DurationError as error:
        span, problem = 0, str(error)
    if not problem:
        return span
    used = format_go_duration(default)
    report(Problem(_SUBJECT, f"{_PATH}.usageParams.extraParams.{key}", f"{problem}; the default {used} is used"))
    return default


# An unknown kind of window is an error here, not at the first fetch (queues:Q-345).
def _window(params: Mapping[Any, Any]) -> UsageWindow:
    kind = str(params.get("windowType") or SLIDING)
    if kind not in (SLIDING, TUMBLING, CRON):
        raise _UsageConfigError(
            "usageParams.windowType", f"unknown window type {kind!r}; known are sliding, tumbling and cron"
        )
    size = _span(params, "windowSize", UsageWindow().size_ns, extended=True)
    if size <= 0:
        raise _UsageConfigError("usageParams.windowSize", "expected more than nothing")
    start_ns, cron = 0, None
    if kind == TUMBLING:
        try:
            start_ns = parse_timestamp(str(params.get("tumblingWindowStartTime") or ""))
        except TimestampError as error:
            raise _UsageConfigError(
                "usageParams.tumblingWindowStartTime", f"{error}; tumbling windows need it"
            ) from None
    if kind == CRON:
        cron = _cron(params)
    return UsageWindow(kind, size, start_ns, cron, max(0, _span(params, "halfLifePeriod", 0)))


def _cron(params: Mapping[Any, Any]) -> CronSchedule:
    try:
        return parse_cron(str(params.get("cronString") or ""))
    except CronError as error:
        raise _UsageConfigError("usageParams.cronString", str(error)) from None


def _span(params: Mapping[Any, Any], key: str, default: int, *, extended: bool = False) -> int:
    value = params.get(key)
    if value is None or value == "":
        return default
    try:
        return (parse_extended_duration if extended else parse_duration)(str(value))
    except DurationError as error:
        raise _UsageConfigError(f"usageParams.{key}", str(error)) from None
