"""Timestamps against `datetime` and against the corner cases of RFC 3339."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.timestamp import TimestampError, format_timestamp, parse_timestamp

SECOND = 1_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The range of instants that neither end of saturation touches.
MOMENTS = st.datetimes(datetime(1830, 1, 1), datetime(2110, 1, 1))
OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1970-01-01T00:00:00,5Z", SECOND // 2),
        ("1970-01-01T00:00:00.1234567899Z", 123456789),
        ("1969-12-31T23:59:59Z", -SECOND),
        ("1969-12-31T23:59:59.75Z", -SECOND // 4),
        ("2026-01-01T00:00:00Z", 1767225600 * SECOND),
        ("2026-01-01T01:30:00+01:30", 1767225600 * SECOND),
        ("2025-12-31T19:00:00-05:00", 1767225600 * SECOND),
        ("2026-01-01T00:00:00+00:00", 1767225600 * SECOND),
        ("2024-02-29T12:00:00Z", 1709208000 * SECOND),
        ("0001-01-01T00:00:00Z", -(1 << 62)),
        ("9999-12-31T23:59:59Z", (1 << 62) - 1),
        ("1970-01-01T00:00:00." + "9" * 5000 + "Z", 999999999),
    ],
)
def test_reads_rfc3339(text: str, expected: int) -> None:
    assert parse_timestamp(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01 00:00:00Z", "2026-01-01t00:00:00z",
        "2026-01-01T00:00Z", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00+0100", "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+01:60", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:60Z",
        "0000-01-01T00:00:00Z", "26-01-01T00:00:00Z", "12026-01-01T00:00:00Z", "-2026-01-01T00:00:00Z",
        " 2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z\n", "2026-01-01T00:00:00Zulu", "\u0662026-01-01T00:00:00Z",
    ],
)  # fmt: skip
def test_refuses_other_texts(text: str) -> None:
    with pytest.raises(TimestampError) as refused:
        parse_timestamp(text)
    assert refused.value.text == text
    assert repr(text) in str(refused.value)


@given(MOMENTS, OFFSETS, st.integers(0, 999))
def test_reads_like_datetime(moment: datetime, offset_minutes: int, nanoseconds: int) -> None:
    there = moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(minutes=offset_minutes)))
    sign = "-" if offset_minutes < 0 else "+"
    offset = f"{sign}{abs(offset_minutes) // 60:02d}:{abs(offset_minutes) % 60:02d}"
    text = f"{there:%Y-%m-%dT%H:%M:%S}.{there.microsecond:06d}{nanoseconds:03d}{offset}"
    exact = (there - EPOCH) // timedelta(microseconds=1) * 1000 + nanoseconds
    assert parse_timestamp(text) == exact


@given(st.integers(-(1 << 62), (1 << 62) - 1))
def test_printing_cuts_to_the_second(nanoseconds: int) -> None:
    text = format_timestamp(nanoseconds)
    assert len(text) == len("2026-01-01T00:00:00Z")
    cut = nanoseconds // SECOND * SECOND
    assert parse_timestamp(text) == max(cut, -(1 << 62))


@given(st.integers(1, 9999), st.integers(0, 365 * 86400 - 1))
def test_reading_keeps_the_order_of_instants(year: int, seconds: int) -> None:
    earlier = datetime(year, 1, 1, tzinfo=UTC)
    later = earlier + timedelta(seconds=seconds)
    texts = [f"{moment.isoformat().replace('+00:00', 'Z'):0>20}" for moment in (earlier, later)]
    assert parse_timestamp(texts[0]) <= parse_timestamp(texts[1])


@pytest.mark.parametrize(
    ("seconds", "expected"), [(-62135596800, "0001-01-01T00:00:00Z"), (253402300799, "9999-12-31T23:59:59Z")]
)
def test_prints_four_digit_years_and_no_others(seconds: int, expected: str) -> None:
    assert format_timestamp(seconds * SECOND) == expected
    outside = seconds - 1 if seconds < 0 else seconds + 1
    with pytest.raises(TimestampError, match="year"):
        format_timestamp(outside * SECOND)


@given(st.text() | st.text("0123456789-:.+TZ", max_size=40) | st.from_regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"))
def test_any_text_reads_or_is_refused(text: str) -> None:
    try:
        value = parse_timestamp(text)
    except TimestampError:
        return
    assert -(1 << 62) <= value < 1 << 62
