"""Historical usage: which part of the past counts and how much (queues:14, cases U1 to U11)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.duration import DAY, HOUR, MINUTE, SECOND, WEEK
from pykai.api.timestamp import format_timestamp, parse_timestamp
from pykai.core.queueing.cron import parse_cron
from pykai.core.queueing.usagehistory import CRON, TUMBLING, UsageAmounts, UsageHistory, UsageWindow
from tests.core.builders import Cluster, cluster

NOW = parse_timestamp("2026-03-02T12:00:00Z")
TEN_GPUS: UsageAmounts = (100_000.0, 1e12, 10.0)


def gpus(count: float) -> UsageAmounts:
    return (0.0, 0.0, count)


def begin(window: UsageWindow, now: str) -> str:
    return format_timestamp(window.begin_ns(parse_timestamp(now)))


# Windows


@pytest.mark.parametrize(
    ("start", "now", "expected"),
    [
        ("10:00:00", "12:30:00", "12:00:00"),
        ("10:00:00", "13:00:00", "12:00:00"),
        ("10:00:00", "13:00:01", "13:00:00"),
        ("10:15:30", "12:45:30", "12:15:30"),
        ("10:00:00", "10:00:01", "10:00:00"),
        ("10:00:00", "11:00:00", "10:00:00"),
    ],
)
def test_u1_and_u2_tumbling_windows_begin_strictly_before_now(start: str, now: str, expected: str) -> None:
    """queues:Q-341, cases U1 and U2: on a boundary the window that has just ended counts."""
    window = UsageWindow(TUMBLING, HOUR, parse_timestamp(f"2026-03-02T{start}Z"))
    assert begin(window, f"2026-03-02T{now}Z") == f"2026-03-02T{expected}Z"


@pytest.mark.parametrize("now", ["2026-03-02T09:00:00Z", "2026-03-02T10:00:00Z"])
def test_u3_a_tumbling_window_that_has_not_begun_is_empty(now: str) -> None:
    """queues:Q-341, case U3: never before the start itself."""
    assert begin(UsageWindow(TUMBLING, HOUR, parse_timestamp("2026-03-02T10:00:00Z")), now) == now


def test_q341_a_cron_window_begins_at_the_last_occurrence() -> None:
    """queues:Q-341, case U4."""
    window = UsageWindow(CRON, cron=parse_cron("0 * * * *"))
    assert begin(window, "2026-03-02T14:30:00Z") == "2026-03-02T14:00:00Z"
    assert begin(window, "2026-03-02T14:00:00Z") == "2026-03-02T13:00:00Z"
    assert begin(UsageWindow(CRON, cron=parse_cron("0 0 30 2 *")), "2026-03-02T14:00:00Z") == "2026-03-02T14:00:00Z"


def test_a_sliding_window_is_the_last_week_by_default() -> None:
    """queues:14.2"""
    assert begin(UsageWindow(), "2026-03-08T14:00:00Z") == "2026-03-01T14:00:00Z"
    assert begin(UsageWindow(size_ns=DAY), "2026-03-08T14:00:00Z") == "2026-03-07T14:00:00Z"
    assert UsageWindow().size_ns == WEEK


# Half-life


def test_u10_a_second_one_half_life_ago_counts_half() -> None:
    """queues:Q-337, case U10."""
    window = UsageWindow(half_life_ns=HOUR)
    assert window.weight(NOW - HOUR, NOW - HOUR + SECOND, NOW) == pytest.approx(0.5, rel=1e-3)
    assert window.weight(NOW - 3 * HOUR, NOW - 3 * HOUR + SECOND, NOW) == pytest.approx(0.125, rel=1e-3)
    assert window.weight(NOW - SECOND, NOW, NOW) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("half_life_ns", [0, -HOUR])
def test_q337_without_a_half_life_every_second_counts_in_full(half_life_ns: int) -> None:
    """queues:Q-337, 14.2: at or below zero is off."""
    window = UsageWindow(half_life_ns=half_life_ns)
    assert window.weight(NOW - WEEK, NOW - WEEK + MINUTE, NOW) == 60.0


@pytest.mark.parametrize("half_life_ns", [0, HOUR])
def test_a_span_that_ends_before_it_begins_weighs_nothing(half_life_ns: int) -> None:
    window = UsageWindow(half_life_ns=half_life_ns)
    assert window.weight(NOW, NOW, NOW) == 0.0
    assert window.weight(NOW, NOW - HOUR, NOW) == 0.0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([0, 1, 3600, 10**7]))
def test_the_weight_of_a_span_is_that_of_its_parts(first: int, second: int, third: int, half_life_s: int) -> None:
    """queues:Q-337: it is an area, so cutting a span changes nothing."""
    window = UsageWindow(half_life_ns=half_life_s * SECOND)
    a, b, c = sorted(NOW - seconds * SECOND for seconds in (first, second, third))
    parts = window.weight(a, b, NOW) + window.weight(b, c, NOW)
    assert window.weight(a, c, NOW) == pytest.approx(parts, rel=1e-9, abs=1e-9)


# Usage


def history(
    *steps: tuple[int, dict[str, UsageAmounts]], window: UsageWindow | None = None, capacity: UsageAmounts = TEN_GPUS
) -> Any:
    """A history of allocations, each so many nanoseconds before now."""
    made = UsageHistory(window or UsageWindow(size_ns=10 * HOUR))
    for ago, allocated in steps:
        made.record(NOW - ago, allocated, capacity)
    return made


@pytest.mark.parametrize(
    "steps",
    [
        [(10 * HOUR, {"q": gpus(2.4)})],
        [(10 * HOUR, {}), (7 * HOUR, {"q": gpus(8)}), (4 * HOUR, {})],
        [(20 * HOUR, {"q": gpus(10)}), (10 * HOUR, {}), (3 * HOUR, {"q": gpus(8)})],
        [(20 * HOUR, {"q": gpus(6)}), (6 * HOUR, {})],
    ],
)
def test_u11_usage_is_the_area_over_that_of_the_capacity(steps: list[tuple[int, dict[str, UsageAmounts]]]) -> None:
    """queues:Q-339, case U11: 24 GPU-hours of 10 GPUs in 10 hours."""
    assert history(*steps).usage(NOW)["q"][2] == pytest.approx(0.24)


def test_q335_usage_is_given_for_each_queue_and_each_resource() -> None:
    """queues:Q-335: as fractions of the cluster; queues that never had anything are left out."""
    used = history((10 * HOUR, {"b": (50_000.0, 1e11, 1.0), "a": (25_000.0, 5e11, 0.5)})).usage(NOW)
    assert list(used) == ["a", "b"]
    assert used["a"] == pytest.approx((0.25, 0.5, 0.05))
    assert used["b"] == pytest.approx((0.5, 0.1, 0.1))


def test_q339_capacity_counts_as_it_was() -> None:
    """queues:Q-339: 5 of 10 GPUs, then 5 of 30: 5 of 20 on average."""
    made = UsageHistory(UsageWindow(size_ns=10 * HOUR))
    made.record(NOW - 10 * HOUR, {"q": gpus(5)}, TEN_GPUS)
    made.record(NOW - 5 * HOUR, {"q": gpus(5)}, (0.0, 0.0, 30.0))
    assert made.usage(NOW)["q"][2] == pytest.approx(0.25)


def test_q337_decay_counts_for_usage_and_capacity_alike() -> None:
    """queues:Q-337: steady use is the same fraction with any half-life; recent use weighs more than old."""
    window = UsageWindow(size_ns=10 * HOUR, half_life_ns=HOUR)
    steady = history((10 * HOUR, {"q": gpus(3)}), window=window)
    assert steady.usage(NOW)["q"][2] == pytest.approx(0.3)
    both = history((2 * HOUR, {"old": gpus(10)}), (HOUR, {"new": gpus(10)}), window=window).usage(NOW)
    assert both["new"][2] == pytest.approx(2 / 3)
    assert both["old"][2] == pytest.approx(1 / 3)


def test_q344_a_cluster_without_gpus_has_usage_of_the_rest() -> None:
    """queues:Q-344"""
    used = history((10 * HOUR, {"q": (25_000.0, 5e11, 0.0)}), capacity=(100_000.0, 1e12, 0.0)).usage(NOW)
    assert used["q"] == pytest.approx((0.25, 0.5, 0.0))


def test_without_records_or_in_an_empty_window_usage_is_zero() -> None:
    """queues:Q-341, case U3."""
    assert UsageHistory(UsageWindow()).usage(NOW) == {}
    future = UsageWindow(TUMBLING, HOUR, NOW + HOUR)
    assert history((10 * HOUR, {"q": gpus(5)}), window=future).usage(NOW) == {}
    assert history((0, {"q": gpus(5)})).usage(NOW) == {}


def test_usage_at_a_past_instant_ignores_later_records() -> None:
    made = history((4 * HOUR, {"q": gpus(5)}), (2 * HOUR, {"q": gpus(10)}))
    assert made.usage(NOW - 2 * HOUR)["q"][2] == pytest.approx(0.5)
    assert made.usage(NOW - 3 * HOUR)["q"][2] == pytest.approx(0.5)


# Keeping it


def test_what_does_not_change_is_recorded_once() -> None:
    made = history((3 * HOUR, {"q": gpus(1)}), (2 * HOUR, {"q": gpus(1)}), (HOUR, {"q": gpus(2)}))
    assert len(made) == 2
    made.record(NOW, {"q": gpus(2)}, (0.0, 0.0, 20.0))
    assert len(made) == 3, "another capacity is a change"


def test_the_last_record_of_an_instant_counts() -> None:
    made = history((HOUR, {"q": gpus(1)}), (HOUR, {"q": gpus(4)}))
    assert len(made) == 1
    assert made.usage(NOW)["q"][2] == pytest.approx(0.4)


def test_time_does_not_go_back() -> None:
    made = history((HOUR, {"q": gpus(1)}))
    with pytest.raises(ValueError, match="order of time"):
        made.record(NOW - 2 * HOUR, {}, TEN_GPUS)


def test_what_is_recorded_is_a_copy() -> None:
    given = {"q": gpus(1)}
    made = history((HOUR, given))
    given["q"] = gpus(9)
    assert made.usage(NOW)["q"][2] == pytest.approx(0.1)


def test_records_that_no_window_counts_again_are_dropped() -> None:
    made = history((30 * HOUR, {"q": gpus(1)}), (20 * HOUR, {"q": gpus(2)}), (5 * HOUR, {"q": gpus(4)}))
    made.forget(NOW)
    assert len(made) == 2, "the one in force when the window begins is needed still"
    assert made.usage(NOW)["q"][2] == pytest.approx(0.3)


def windows() -> st.SearchStrategy[UsageWindow]:
    return st.builds(
        UsageWindow,
        st.sampled_from(["sliding", TUMBLING, CRON]),
        st.sampled_from([HOUR, 7 * HOUR, DAY]),
        st.sampled_from([NOW - 3 * DAY, NOW - 10 * HOUR, NOW + HOUR]),
        st.sampled_from([parse_cron("@hourly"), parse_cron("0 3 * * *")]),
        st.sampled_from([0, HOUR]),
    )


@given(windows(), st.lists(st.tuples(st.integers(0, 100), st.integers(0, 10)), min_size=1, max_size=8), st.data())
def test_dropping_records_changes_no_later_result(
    window: UsageWindow, steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    """queues:Q-341: whatever the window, and however long ago it was forgotten."""
    records = [(ago * HOUR, {"q": gpus(count)}) for ago, count in sorted(steps, reverse=True)]
    whole, short = history(*records, window=window), history(*records, window=window)
    then = NOW + data.draw(st.integers(0, 50)) * HOUR
    short.forget(then)
    later = then + data.draw(st.integers(0, 50)) * HOUR
    assert short.usage(later).get("q", (0.0, 0.0, 0.0)) == pytest.approx(whole.usage(later).get("q", (0.0, 0.0, 0.0)))


# Its effect


def heavy_and_light(used: UsageAmounts) -> Cluster:
    """Queue a has all the weight and runs everything; queue b requests one GPU."""
    plugins = [
        {"name": "predicates"},
        {"name": "proportion", "arguments": {"kValue": "10000"}},
        {"name": "sg-nodelocalgreedy"},
    ]
    return (
        cluster(nodes=1, gpus=4)
        .configured({"tiers": [{"plugins": plugins}]})
        .with_actions("allocate", "reclaim")
        .with_policy(usage={"a": used})
        .queue("a", quota=0, weight=10_000)
        .queue("b", quota=0, weight=1)
        .gang("running", 4, min=1, gpu=1, queue="a", on="node-0")
        .gang("claim", gpu=1, queue="b")
    )


def test_u9_the_heaviest_user_gives_way() -> None:
    """queues:Q-346, Q-347, case U9."""
    assert heavy_and_light((0.0, 0.0, 1.0)).schedule().evicted("running") == 1
    assert heavy_and_light((0.0, 0.0, 0.0)).schedule().evicted("running") == 0


def test_q346_a_history_is_what_the_policy_takes() -> None:
    """queues:Q-335, Q-346: the fractions go in as they come."""
    used = history((10 * HOUR, {"a": gpus(10)})).usage(NOW)
    assert heavy_and_light((0.0, 0.0, 0.0)).with_policy(usage=used).schedule().evicted("running") == 1
