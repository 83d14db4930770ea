"""`usageDBConfig` of the configuration file (queues:14.2): where historical usage comes from, and which part counts.

`clientType: built-in` keeps usage in the scheduler itself and needs nothing else; `prometheus` queries a server.  A
mistake is reported and switches time-based fair share off; it never stops the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pykai.api.duration import MINUTE, SECOND, DurationError, parse_duration, parse_extended_duration
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.core.model.problems import Problem, ProblemReporter
from pykai.core.queueing.cron import CronError, CronSchedule, parse_cron
from pykai.core.queueing.usagehistory import CRON, SLIDING, TUMBLING, UsageWindow

BUILT_IN, PROMETHEUS = "built-in", "prometheus"
#: Upstream's own test clients are accepted; they have no usage to report.
CLIENT_TYPES = (BUILT_IN, PROMETHEUS, "fake", "fake-with-history")
_SUBJECT = "scheduler configuration"
_PATH = "usageDBConfig"
_KEYS = ("clientType", "connectionString", "connectionStringEnvVar", "usageParams")


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
    extra: Mapping[str, str] = field(default_factory=dict)


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
    if client_type != BUILT_IN and bool(connection) == bool(variable):
        raise _UsageConfigError(
            "connectionString", "exactly one of connectionString and connectionStringEnvVar must be set"
        )
    params = value.get("usageParams") or {}
    if not isinstance(params, Mapping):
        raise _UsageConfigError("usageParams", "expected a mapping")
    fetch = _span(params, "fetchInterval", MINUTE)
    extra = params.get("extraParams") or {}
    return UsageConfig(
        client_type,
        connection,
        variable,
        _window(params),
        max(fetch, SECOND),
        # Data cannot be fresher than the fetch interval (queues:Q-334).
        max(fetch, _span(params, "stalenessPeriod", 5 * MINUTE)),
        _span(params, "waitTimeout", MINUTE),
        {str(key): str(text) for key, text in extra.items()} if isinstance(extra, Mapping) else {},
    )


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
