"""Historical usage: which part of the past counts and how much (queues:14, cases U1 to U11)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.duration import DAY, HOUR, MINUTE, SECOND, WEEK
from pykai.api.timestamp import format_timestamp, parse_timestamp
from pykai.core.queueing.cron import parse_cron
from pykai.core.queueing.usagehistory import (
    CRON,
    TUMBLING,
    UsageAmounts,
    UsageHistory,
    UsageSpan,
    UsageWindow,
    usage_within,
)
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


class Recorded:
    """A history and the window in which it counts."""

    def __init__(self, window: UsageWindow) -> None:
        self.history = UsageHistory()
        self.window = window

    def __len__(self) -> int:
        return len(self.history.spans(NOW))

    def usage(self, now: int) -> dict[str, UsageAmounts]:
        return usage_within(self.history.spans(now), self.window, now)


def history(
    *steps: tuple[int, dict[str, UsageAmounts]], window: UsageWindow | None = None, capacity: UsageAmounts = TEN_GPUS
) -> Recorded:
    """A history of allocations, each so many nanoseconds before now."""
    made = Recorded(window or UsageWindow(size_ns=10 * HOUR))
    for ago, allocated in steps:
        made.history.record(NOW - ago, allocated, capacity)
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
    made = history((10 * HOUR, {"q": gpus(5)}))
    made.history.record(NOW - 5 * HOUR, {"q": gpus(5)}, (0.0, 0.0, 30.0))
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
    assert history().usage(NOW) == {}
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
    made.history.record(NOW - MINUTE, {"q": gpus(2)}, (0.0, 0.0, 20.0))
    assert len(made) == 3, "another capacity is a change"


def test_the_last_record_of_an_instant_counts() -> None:
    made = history((HOUR, {"q": gpus(1)}), (HOUR, {"q": gpus(4)}))
    assert len(made) == 1
    assert made.usage(NOW)["q"][2] == pytest.approx(0.4)


def test_queues_that_hold_nothing_take_no_room() -> None:
    (span,) = history((HOUR, {"q": gpus(1), "idle": gpus(0)})).history.spans(NOW)
    assert dict(span.allocated) == {"q": (0.0, 0.0, 3600.0)}


def test_a_clock_that_goes_back_takes_the_future_with_it() -> None:
    """usage:builtin"""
    made = history((4 * HOUR, {"q": gpus(10)}), (HOUR, {"q": gpus(5)}))
    made.history.record(NOW - 2 * HOUR, {}, TEN_GPUS)
    assert [(span.begin_ns, span.end_ns) for span in made.history.spans(NOW)] == [
        (NOW - 4 * HOUR, NOW - 2 * HOUR),
        (NOW - 2 * HOUR, NOW),
    ]
    assert made.usage(NOW)["q"][2] == pytest.approx(0.5)
    made.history.record(NOW - 5 * HOUR, {"q": gpus(1)}, TEN_GPUS)
    assert [span.begin_ns for span in made.history.spans(NOW)] == [NOW - 5 * HOUR]


def test_time_without_records_counts_neither_as_use_nor_as_capacity() -> None:
    """usage:builtin: also where spans are joined across it."""
    made = history((8 * HOUR, {"q": gpus(4)}))
    made.history.close(NOW - 7 * HOUR)
    made.history.record(NOW - HOUR, {"q": gpus(2)}, TEN_GPUS)
    assert made.usage(NOW)["q"][2] == pytest.approx(0.3)
    late = NOW + 1000 * HOUR
    made.history.close(NOW)
    made.history.compact(late)
    assert len(made.history.spans(late)) == 1
    assert usage_within(made.history.spans(late), UsageWindow(size_ns=2000 * HOUR), late)["q"][2] == pytest.approx(0.3)


def test_what_is_recorded_is_a_copy() -> None:
    given = {"q": gpus(1)}
    made = history((HOUR, given))
    given["q"] = gpus(9)
    assert made.usage(NOW)["q"][2] == pytest.approx(0.1)


def test_spans_that_no_window_counts_again_are_dropped() -> None:
    made = history((30 * HOUR, {"q": gpus(1)}), (20 * HOUR, {"q": gpus(2)}), (5 * HOUR, {"q": gpus(4)}))
    made.history.forget(made.window.begin_ns(NOW))
    assert len(made) == 2, "the one in force when the window begins is needed still"
    assert made.usage(NOW)["q"][2] == pytest.approx(0.3)


def test_what_another_left_ends_where_the_own_records_begin() -> None:
    """usage:stored"""
    older = history((9 * HOUR, {"q": gpus(10)})).history.spans(NOW)
    made = history((4 * HOUR, {"q": gpus(5)}))
    made.history.prepend(older)
    assert [(span.begin_ns, span.end_ns) for span in made.history.spans(NOW)] == [
        (NOW - 9 * HOUR, NOW - 4 * HOUR),
        (NOW - 4 * HOUR, NOW),
    ]
    assert made.usage(NOW)["q"][2] == pytest.approx(7 / 9)
    alone = UsageHistory()
    alone.prepend(older)
    assert alone.spans(NOW) == older


def minutes(count: int, fineness: int = 32) -> UsageHistory:
    """A record a minute, compacted as often, each with another amount; nothing but the last is exact."""
    made = UsageHistory(fineness=fineness)
    for ago in range(count, 0, -1):
        made.record(NOW - ago * MINUTE, {"q": gpus(ago % 7 + 1)}, TEN_GPUS)
        made.compact(NOW - ago * MINUTE)
    return made


@pytest.mark.parametrize(("fineness", "limit"), [(32, 400), (8, 120), (1, 25)])
def test_the_number_of_spans_grows_with_the_logarithm_of_time(fineness: int, limit: int) -> None:
    """usage:bounds: a week of changes every minute."""
    spans = minutes(7 * 24 * 60, fineness).spans(NOW)
    assert len(spans) < limit
    assert spans[0].begin_ns == NOW - WEEK
    assert all(one.end_ns == other.begin_ns for one, other in pairwise(spans)), "nothing is lost"
    assert sum(span.capacity[2] for span in spans) == pytest.approx(10 * 7 * 24 * 3600)
    for span in spans:
        assert span.end_ns - span.begin_ns <= max(MINUTE, (NOW - span.end_ns) / fineness)


def test_changes_within_a_minute_are_one_span() -> None:
    """usage:bounds"""
    made = UsageHistory()
    for second in range(180):
        made.record(NOW + second * SECOND, {"q": gpus(second % 2 + 1)}, TEN_GPUS)
    end = NOW + 180 * SECOND
    assert len(made.spans(end)) <= 4
    assert sum(span.allocated["q"][2] for span in made.spans(end)) == pytest.approx(270)


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 10)), min_size=1, max_size=30), st.integers(0, 1000))
def test_compacting_loses_no_area(steps: list[tuple[int, int]], later: int) -> None:
    """usage:bounds: only where in time it lies gets coarser."""
    made = UsageHistory()
    for ago, count in sorted(steps, reverse=True):
        made.record(NOW - ago * MINUTE, {"q": gpus(count)}, TEN_GPUS)

    def areas() -> tuple[float, float]:
        spans: tuple[UsageSpan, ...] = made.spans(NOW)
        used = sum(span.allocated.get("q", gpus(0))[2] for span in spans)
        return used, sum(span.capacity[2] for span in spans)

    before = areas()
    made.compact(NOW + later * MINUTE)
    assert areas() == pytest.approx(before)


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
    short.history.forget(window.begin_ns(then))
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


def test_q341_tumbling_windows_count_from_the_epoch_by_default() -> None:
    """queues:Q-341."""
    assert UsageWindow(TUMBLING, DAY).begin_ns(NOW) == parse_timestamp("2026-03-02T00:00:00Z")
