"""Cron expressions of usage windows: meaning, last occurrence and errors (queues:Q-341)."""

from __future__ import annotations

import pytest

from pykai.api.timestamp import format_timestamp, parse_timestamp
from pykai.core.queueing.cron import CronError, parse_cron


def last(expression: str, now: str) -> str:
    """The last occurrence of an expression before an instant, "" when there is none."""
    found = parse_cron(expression).last_before(parse_timestamp(now))
    return "" if found is None else format_timestamp(found)


@pytest.mark.parametrize(
    ("expression", "now", "expected"),
    [
        ("0 * * * *", "2026-03-02T14:30:00Z", "2026-03-02T14:00:00Z"),
        ("0 * * * *", "2026-03-02T14:00:00Z", "2026-03-02T13:00:00Z"),
        ("0 0 1 * *", "2026-03-31T23:00:00Z", "2026-03-01T00:00:00Z"),
    ],
)
def test_u4_and_u5_the_last_occurrence_strictly_before_now(expression: str, now: str, expected: str) -> None:
    """queues:Q-341, cases U4 and U5."""
    assert last(expression, now) == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-03-02T14:00:00.000000001Z", "2026-03-02T14:00:00Z"),
        ("2026-03-02T14:00:59Z", "2026-03-02T14:00:00Z"),
        ("2026-03-02T14:01:00Z", "2026-03-02T14:00:00Z"),
        ("2026-03-02T14:01:00.5Z", "2026-03-02T14:01:00Z"),
    ],
)
def test_q341_a_boundary_counts_from_the_instant_after_it(now: str, expected: str) -> None:
    """queues:Q-341: to the nanosecond."""
    assert last("* * * * *", now) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # 2026-03-02 is a Monday.
        ("30 6 * * *", "2026-03-02T06:30:00Z"),
        ("30 20 * * *", "2026-03-01T20:30:00Z"),
        ("10-20 9 * * *", "2026-03-02T09:20:00Z"),
        ("5,50 * * * *", "2026-03-02T11:50:00Z"),
        ("*/25 * * * *", "2026-03-02T11:50:00Z"),
        ("10-40/20 * * * *", "2026-03-02T11:30:00Z"),
        ("20/15 * * * *", "2026-03-02T11:50:00Z"),
        ("0 8-18/4 * * *", "2026-03-02T08:00:00Z"),
        ("0 0 1,15 * *", "2026-03-01T00:00:00Z"),
        ("0 0 * jan *", "2026-01-31T00:00:00Z"),
        ("0 0 1 1,FEB-mar,12 *", "2026-03-01T00:00:00Z"),
        ("0 0 * * wed", "2026-02-25T00:00:00Z"),
        ("0 0 * * Tue-Thu", "2026-02-26T00:00:00Z"),
        ("0 0 * * 0", "2026-03-01T00:00:00Z"),
        ("0 0 * * 7", "2026-03-01T00:00:00Z"),
        ("0 0 * * 5-7", "2026-03-01T00:00:00Z"),
        ("0 0 31 * *", "2026-01-31T00:00:00Z"),
        ("59 23 31 12 *", "2025-12-31T23:59:00Z"),
    ],
)
def test_ranges_lists_steps_and_names(expression: str, expected: str) -> None:
    """queues:Q-341: as seen on Monday the 2nd of March 2026 at noon."""
    assert last(expression, "2026-03-02T12:00:00Z") == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # Both fields restricted: either is enough.
        ("0 0 13 * fri", "2026-02-27T00:00:00Z"),
        ("0 0 28 * fri", "2026-02-28T00:00:00Z"),
        ("0 0 1-7 * sat", "2026-03-02T00:00:00Z"),
        # One of them a star: the other decides alone.
        ("0 0 13 * *", "2026-02-13T00:00:00Z"),
        ("0 0 * * fri", "2026-02-27T00:00:00Z"),
        # A stepped star restricts nothing by itself, and both must agree.
        ("0 0 */2 * fri", "2026-02-27T00:00:00Z"),
        ("0 0 13 * */5", "2026-02-13T00:00:00Z"),
    ],
)
def test_a_day_counts_when_either_day_field_names_it(expression: str, expected: str) -> None:
    """queues:Q-341: day of the month or day of the week, as in cron."""
    assert last(expression, "2026-03-02T12:00:00Z") == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-03-02T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("2024-02-29T00:00:00Z", "2020-02-29T00:00:00Z"),
        ("2104-02-28T00:00:00Z", "2096-02-29T00:00:00Z"),
        ("2104-02-29T00:00:00Z", "2096-02-29T00:00:00Z"),
    ],
)
def test_the_29th_of_february_may_be_years_away(now: str, expected: str) -> None:
    """queues:Q-341: eight of them around 2100, which is no leap year."""
    assert last("0 0 29 2 *", now) == expected


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4,6,9,11 *"])
def test_a_day_that_never_occurs_has_no_last_occurrence(expression: str) -> None:
    assert last(expression, "2026-03-02T00:00:00Z") == ""


@pytest.mark.parametrize(
    ("alias", "expression"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        (" @hourly ", "0 * * * *"),
    ],
)
def test_the_usual_short_names(alias: str, expression: str) -> None:
    assert parse_cron(alias) == parse_cron(expression)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("", "found 0"),
        ("* * * *", "found 4"),
        ("* * * * * *", "found 6"),
        ("@reboot", "found 1"),
        ("60 * * * *", "minute: '60' is not between 0 and 59"),
        ("* 24 * * *", "hour: '24'"),
        ("* * 0 * *", "day of the month: '0' is not between 1 and 31"),
        ("* * 32 * *", "day of the month: '32'"),
        ("* * * 13 *", "month: '13'"),
        ("* * * 0 *", "month: '0'"),
        ("* * * * 8", "day of the week: '8'"),
        ("* * * mon *", "month: 'mon'"),
        ("* * * * jan", "day of the week: 'jan'"),
        ("-1 * * * *", "minute: ''"),
        ("5- * * * *", "minute: ''"),
        ("1,,2 * * * *", "minute: ''"),
        ("*/0 * * * *", "minute: '0' is not between 1 and 59"),
        ("*/ * * * *", "minute: ''"),
        ("*/2/3 * * * *", "minute: '2/3'"),
        ("20-10 * * * *", "minute: '20-10' ends before it begins"),
        ("* * * * fri-sun", "day of the week: 'fri-sun' ends before it begins"),
        ("1.5 * * * *", "minute: '1.5'"),
        ("\u0661 * * * *", "minute: '\u0661'"),
        ("00001 * * * *", "minute: '00001'"),
        ("? * * * *", "minute: '?'"),
    ],
)
def test_an_invalid_cron_expression_names_the_bad_field(expression: str, complaint: str) -> None:
    with pytest.raises(CronError) as caught:
        parse_cron(expression)
    assert complaint in str(caught.value)


def test_there_is_nothing_before_the_first_day() -> None:
    """A cluster whose clock is not set yet."""
    assert parse_cron("0 0 31 12 *").last_before(0) == parse_timestamp("1969-12-31T00:00:00Z")
