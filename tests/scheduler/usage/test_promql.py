"""The queries for usage, and how answers are read (queues:14.3)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from pykai.api.duration import DAY, HOUR, MILLISECOND, MINUTE, SECOND, WEEK
from pykai.api.timestamp import parse_timestamp
from pykai.core.queueing.cron import parse_cron
from pykai.core.queueing.usagehistory import CRON, TUMBLING, UsageWindow
from pykai.scheduler.config.usagedb import UsageConfig
from pykai.scheduler.usage.promql import (
    UsageError,
    decayed,
    first_value,
    promql_duration,
    read_vector,
    usage_fractions,
    usage_queries,
)
from tests.scheduler.usage.fakeprometheus import vector

NOW = parse_timestamp("2026-03-02T12:00:00Z")
CONFIG = UsageConfig("prometheus", "http://usage")
CPU_CAPACITY = 'sum(kube_node_status_capacity{resource="cpu"})'


def queries(window: UsageWindow, resolution_ns: int = MINUTE) -> tuple[str, str]:
    """The queries for the capacity of CPU and for what queues had of it."""
    found = usage_queries(replace(CONFIG, window=window, resolution_ns=resolution_ns), NOW)
    assert found is not None
    return found.capacity[0], found.allocated[0]


def test_q338_a_sliding_window_is_a_subquery_at_now() -> None:
    """queues:Q-338, Q-343"""
    capacity, allocated = queries(UsageWindow(size_ns=WEEK))
    assert capacity == f"sum_over_time(({CPU_CAPACITY})[1w:1m])"
    assert allocated == "sum by (queue_name) (sum_over_time((kai_queue_allocated_cpu_cores)[1w:1m]))"
    assert "[1w3d:30s]" in queries(UsageWindow(size_ns=10 * DAY), resolution_ns=30 * SECOND)[0]


def test_the_queries_are_for_cpu_memory_and_gpus_in_the_order_of_the_engine() -> None:
    """queues:Q-335; operations:O-48: of the queue controller's metrics."""
    found = usage_queries(CONFIG, NOW)
    assert found is not None
    for query, metric in zip(
        found.allocated,
        ("kai_queue_allocated_cpu_cores", "kai_queue_allocated_memory_bytes", "kai_queue_allocated_gpus"),
        strict=True,
    ):
        assert f"(({metric})[" in query
    for query, resource in zip(found.capacity, ("cpu", "memory", "nvidia_com_gpu"), strict=True):
        assert f'{{resource="{resource}"}}' in query


def test_q342_tumbling_windows_and_those_of_a_schedule_are_subqueries_too() -> None:
    """queues:Q-341, Q-342"""
    tumbling = UsageWindow(TUMBLING, DAY, parse_timestamp("2026-03-01T09:30:00Z"))
    assert queries(tumbling)[0] == f"sum_over_time(({CPU_CAPACITY})[2h30m:1m])"
    cron = UsageWindow(CRON, cron=parse_cron("0 0 * * *"))
    assert queries(cron)[1] == "sum by (queue_name) (sum_over_time((kai_queue_allocated_cpu_cores)[12h:1m]))"


def test_q341_a_window_that_has_not_begun_asks_nothing() -> None:
    """queues:Q-341, case U3."""
    assert usage_queries(replace(CONFIG, window=UsageWindow(TUMBLING, DAY, NOW + HOUR)), NOW) is None
    assert usage_queries(replace(CONFIG, window=UsageWindow(TUMBLING, DAY, NOW - MILLISECOND)), NOW) is None


def test_a_window_that_has_just_begun_holds_a_step_at_least() -> None:
    """Steps are multiples of the resolution, so a window of one step might lie between two of them."""
    assert "[1m30s:45s]" in queries(UsageWindow(TUMBLING, DAY, NOW - 90 * SECOND))[0]
    assert "[2m:1m]" in queries(UsageWindow(TUMBLING, DAY, NOW - 2 * MINUTE))[0]


def test_q337_with_a_half_life_each_sample_fades() -> None:
    """queues:Q-337: the half-life in seconds, with six decimals."""
    fading = UsageWindow(size_ns=WEEK, half_life_ns=90 * MINUTE)
    seconds = NOW // SECOND
    assert decayed("m", fading, NOW) == f"((m) * (0.5^(({seconds} - time()) / 5400.000000)))"
    assert decayed("m", UsageWindow(), NOW) == "m"
    for query in queries(fading):
        assert f"* (0.5^(({seconds} - time()) / 5400.000000))))[1w:1m])" in query


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (WEEK, "1w"),
        (DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5 * MILLISECOND, "1d2h3m4s5ms"),
        (90 * SECOND, "1m30s"),
        (0, "0s"),
    ],
)
def test_durations_are_those_of_promql(nanoseconds: int, text: str) -> None:
    assert promql_duration(nanoseconds) == text


# Answers


def body(document: object) -> bytes:
    return msgspec.json.encode(document)


def test_a_vector_is_read() -> None:
    """queues:Q-339"""
    found = read_vector(body(vector([{"metric": {"queue_name": "a", "pod": "x"}, "value": [1, "2.5"]}], ["slow"])))
    assert (list(found.samples), list(found.warnings)) == ([("a", 2.5)], ["slow"])
    assert first_value(found) == 2.5
    assert first_value(read_vector(body(vector([])))) == 0.0


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-3"])
def test_values_that_are_no_amounts_count_as_nothing(value: str) -> None:
    """queues:Q-144"""
    assert first_value(read_vector(body(vector([{"metric": {}, "value": [1, value]}])))) == 0.0


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"<html>", "not that of a Prometheus"),
        (b"[]", "not that of a Prometheus"),
        (b"\xff", "not that of a Prometheus"),
        (b"{}", "not that of a Prometheus"),
        (body({"status": "error", "errorType": "bad_data", "error": "parse error"}), "parse error"),
        (body({"status": "success", "data": {"resultType": "matrix", "result": []}}), "got matrix, expected vector"),
        (body(vector([{"metric": {}, "value": [1, "much"]}])), "not a number"),
        (body(vector([{"metric": {}, "value": [1]}])), "not a number"),
    ],
)
def test_what_is_no_vector_is_refused(answer: bytes, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        read_vector(answer)


def test_q339_usage_is_allocation_over_capacity() -> None:
    """queues:Q-335, Q-339, Q-344: what the cluster does not have was not used."""
    used = usage_fractions([100.0, 0.0, 10.0], [[("b", 25.0), ("a", 50.0)], [("a", 7.0)], [("a", 1.0), ("a", 1.0)]])
    assert list(used) == ["a", "b"]
    assert used == {"a": (0.5, 0.0, 0.2), "b": (0.25, 0.0, 0.0)}


def test_samples_without_a_queue_are_left_out() -> None:
    assert usage_fractions([1.0, 1.0, 1.0], [[("", 1.0)], [], []]) == {}
