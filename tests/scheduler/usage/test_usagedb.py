"""`usageDBConfig`: where historical usage comes from; a mistake switches it off and nothing else (queues:14.2)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.duration import DAY, HOUR, MINUTE, SECOND, WEEK
from pykai.api.timestamp import parse_timestamp
from pykai.core.model.problems import Problem
from pykai.core.queueing.cron import parse_cron
from pykai.core.queueing.usagehistory import UsageWindow
from pykai.scheduler.config.configuration import load_configuration
from pykai.scheduler.config.usagedb import UsageConfig, read_usage

PROMETHEUS: dict[str, Any] = {"clientType": "prometheus", "connectionString": "http://usage:9090"}


def read(value: object) -> UsageConfig:
    """A block without mistakes."""
    problems: list[Problem] = []
    found = read_usage(value, problems.append)
    assert problems == []
    assert found is not None
    return found


def with_params(**params: Any) -> UsageConfig:
    return read({"clientType": "builtin", "usageParams": params})


def complaint(value: object) -> tuple[str, str]:
    """Field and text of the mistake that makes a block useless."""
    problems: list[Problem] = []
    assert read_usage(value, problems.append) is None
    (problem,) = problems
    assert problem.text.endswith("; historical usage is not taken into account")
    return problem.field, problem.text


# Sources


def test_q330_without_the_block_usage_does_not_count() -> None:
    """queues:Q-330"""
    problems: list[Problem] = []
    assert read_usage(None, problems.append) is None
    assert problems == []


def test_the_store_of_our_own_needs_nothing_else() -> None:
    """queues:14 Do better: Prometheus is optional."""
    found = read({"clientType": "builtin"})
    assert (found.client_type, found.connection, found.connection_variable) == ("builtin", "", "")


def test_the_defaults_are_those_of_the_table() -> None:
    """queues:14.2"""
    found = read(PROMETHEUS)
    assert found.connection == "http://usage:9090"
    assert found.window == UsageWindow("sliding", WEEK, 0, None, 0)
    assert (found.fetch_interval_ns, found.staleness_ns, found.wait_timeout_ns) == (MINUTE, 5 * MINUTE, MINUTE)
    assert (found.query_timeout_ns, found.resolution_ns) == (10 * SECOND, MINUTE)
    assert found.allocation_metrics == (
        "kai_queue_allocated_cpu_cores",
        "kai_queue_allocated_memory_bytes",
        "kai_queue_allocated_gpus",
    )
    assert found.capacity_metrics == tuple(
        f'sum(kube_node_status_capacity{{resource="{name}"}})' for name in ("cpu", "memory", "nvidia_com_gpu")
    )


@pytest.mark.parametrize("client", ["prometheus", "fake", "fake-with-history"])
def test_u8_exactly_one_of_the_two_connection_fields(client: str) -> None:
    """queues:14.2, case U8."""
    one, other = {"connectionString": "http://usage"}, {"connectionStringEnvVar": "USAGE"}
    assert read({"clientType": client, **one}).connection == "http://usage"
    assert read({"clientType": client, **other}).connection_variable == "USAGE"
    for wrong in ({}, {**one, **other}, {"connectionString": ""}):
        field, text = complaint({"clientType": client, **wrong})
        assert field == "usageDBConfig.connectionString"
        assert "exactly one of connectionString and connectionStringEnvVar" in text


@pytest.mark.parametrize("value", [{}, {"clientType": ""}, {"clientType": None, "usageParams": {}}])
def test_an_empty_client_type_is_a_mistake(value: object) -> None:
    """queues:14.2: in upstream's words."""
    field, text = complaint(value)
    assert field == "usageDBConfig.clientType"
    assert text.startswith("client type cannot be empty")


def test_the_error_about_an_unknown_client_type_names_the_known_ones() -> None:
    """queues:14.2"""
    field, text = complaint({"clientType": "graphite", "connectionString": "x"})
    assert field == "usageDBConfig.clientType"
    assert "builtin, prometheus, fake, fake-with-history" in text


# Windows


def test_each_type_of_window_is_read() -> None:
    """queues:14.2, Q-341"""
    assert with_params(windowSize="10d").window == UsageWindow("sliding", 10 * DAY)
    assert with_params(windowType="sliding", windowSize="1w", halfLifePeriod="12h").window == UsageWindow(
        "sliding", WEEK, half_life_ns=12 * HOUR
    )
    tumbling = with_params(windowType="tumbling", windowSize="1h", tumblingWindowStartTime="2026-03-02T10:00:00Z")
    assert tumbling.window == UsageWindow("tumbling", HOUR, parse_timestamp("2026-03-02T10:00:00Z"))
    assert with_params(windowType="cron", cronString="0 0 1 * *").window == UsageWindow(
        "cron", cron=parse_cron("@monthly")
    )


@pytest.mark.parametrize("half_life", ["0s", "-1h"])
def test_q337_a_half_life_at_or_below_zero_is_off(half_life: str) -> None:
    """queues:14.2, Q-337"""
    assert with_params(halfLifePeriod=half_life).window.half_life_ns == 0


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"windowType": "hopping"}, "windowType"),
        ({"windowType": "Sliding"}, "windowType"),
        ({"windowSize": "0s"}, "windowSize"),
        ({"windowSize": "-1h"}, "windowSize"),
        ({"windowSize": "long"}, "windowSize"),
        ({"windowType": "tumbling"}, "tumblingWindowStartTime"),
        ({"windowType": "tumbling", "tumblingWindowStartTime": "monday"}, "tumblingWindowStartTime"),
        ({"windowType": "cron"}, "cronString"),
        ({"windowType": "cron", "cronString": "61 * * * *"}, "cronString"),
        ({"halfLifePeriod": "1d"}, "halfLifePeriod"),
        ({"fetchInterval": "often"}, "fetchInterval"),
        ({"stalenessPeriod": "1"}, "stalenessPeriod"),
        ({"waitTimeout": "x"}, "waitTimeout"),
    ],
)
def test_q345_an_invalid_window_is_reported_at_once(params: dict[str, str], field: str) -> None:
    """queues:Q-345: not at the first fetch."""
    assert complaint({"clientType": "builtin", "usageParams": params})[0] == f"usageDBConfig.usageParams.{field}"


@pytest.mark.parametrize(
    ("value", "field"), [("x", ""), ([1], ""), ({**PROMETHEUS, "usageParams": "x"}, ".usageParams")]
)
def test_a_block_of_the_wrong_kind_is_named(value: object, field: str) -> None:
    assert complaint(value)[0] == f"usageDBConfig{field}"


# Times


def test_u6_data_cannot_be_fresher_than_it_is_fetched() -> None:
    """queues:Q-334, case U6."""
    found = with_params(fetchInterval="2m", stalenessPeriod="1m")
    assert (found.fetch_interval_ns, found.staleness_ns) == (2 * MINUTE, 2 * MINUTE)
    assert with_params(fetchInterval="1m", stalenessPeriod="2m").staleness_ns == 2 * MINUTE
    assert with_params(fetchInterval="10m").staleness_ns == 10 * MINUTE


@pytest.mark.parametrize("interval", ["0s", "1ms", "-5s"])
def test_usage_is_fetched_at_most_once_a_second(interval: str) -> None:
    assert with_params(fetchInterval=interval).fetch_interval_ns == SECOND


def test_empty_values_are_those_that_are_missing() -> None:
    found = with_params(fetchInterval="", stalenessPeriod=None, waitTimeout="", windowSize=None, windowType="")
    assert found == read({"clientType": "builtin"})


# The rest


def test_extra_parameters_replace_the_defaults() -> None:
    """queues:14.2"""
    found = with_params(
        extraParams={
            "usageQueryTimeout": "30s",
            "queryResolution": "5m",
            "gpuAllocationMetric": "gpus",
            "cpuCapacityMetric": "vector(64)",
            "memoryCapacityMetric": "",
        }
    )
    assert (found.query_timeout_ns, found.resolution_ns) == (30 * SECOND, 5 * MINUTE)
    assert found.allocation_metrics == ("kai_queue_allocated_cpu_cores", "kai_queue_allocated_memory_bytes", "gpus")
    assert found.capacity_metrics[0] == "vector(64)"
    assert found.capacity_metrics[1] == 'sum(kube_node_status_capacity{resource="memory"})'


@pytest.mark.parametrize(
    ("extra", "field", "text"),
    [
        ({"usageQueryTimeout": "soon"}, ".usageQueryTimeout", "the default 10s is used"),
        ({"queryResolution": 1}, ".queryResolution", "the default 1m0s is used"),
        ({"queryResolution": "10us"}, ".queryResolution", "expected at least 1ms"),
        ({"usageQueryTimeout": "-1s"}, ".usageQueryTimeout", "the default 10s is used"),
        ({"gpuAlocationMetric": "x"}, ".gpuAlocationMetric", "did you mean gpuAllocationMetric?"),
        ("x", "", "expected a mapping"),
    ],
)
def test_an_extra_parameter_that_cannot_be_used_is_reported_and_the_default_counts(
    extra: object, field: str, text: str
) -> None:
    """queues:14.2: unparsable -> default."""
    problems: list[Problem] = []
    found = read_usage({**PROMETHEUS, "usageParams": {"extraParams": extra}}, problems.append)
    assert found == read(PROMETHEUS)
    (problem,) = problems
    assert problem.field == f"usageDBConfig.usageParams.extraParams{field}"
    assert text in problem.text


def test_an_unknown_key_is_reported_and_the_block_counts() -> None:
    """queues:14.2: the user guide puts extraParams in the wrong place."""
    problems: list[Problem] = []
    assert read_usage({**PROMETHEUS, "extraParams": {}}, problems.append) == read(PROMETHEUS)
    assert [problem.field for problem in problems] == ["usageDBConfig.extraParams"]


def test_a_file_as_upstreams_operator_writes_it() -> None:
    """queues:14.2"""
    configuration = load_configuration(
        """
actions: allocate, reclaim
usageDBConfig:
  clientType: prometheus
  connectionString: http://usage-prometheus.kai-scheduler.svc.cluster.local:9090
  usageParams:
    halfLifePeriod: 10m0s
    windowSize: 1w
    windowType: tumbling
    tumblingWindowStartTime: 2026-03-02T10:00:00Z
    fetchInterval: 30s
    stalenessPeriod: 5m
    waitTimeout: 1m
    extraParams:
      gpuAllocationMetric: kai_queue_allocated_gpus
"""
    )
    assert configuration.problems == ()
    assert configuration.usage is not None
    assert configuration.usage.window == UsageWindow(
        "tumbling", WEEK, parse_timestamp("2026-03-02T10:00:00Z"), None, 10 * MINUTE
    )
    assert configuration.usage.fetch_interval_ns == 30 * SECOND
    assert configuration.usage.allocation_metrics[2] == "kai_queue_allocated_gpus"
