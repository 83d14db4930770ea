"""Durations against what Go's `time` package reads and prints."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.duration import (
    DAY,
    HOUR,
    MICROSECOND,
    MILLISECOND,
    MINUTE,
    SECOND,
    WEEK,
    DurationError,
    format_go_duration,
    parse_duration,
    parse_extended_duration,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("+0", 0),
        ("-0", 0),
        ("0s", 0),
        ("5s", 5 * SECOND),
        ("+5s", 5 * SECOND),
        ("-5s", -5 * SECOND),
        ("30s", 30 * SECOND),
        ("1478s", 1478 * SECOND),
        ("5.s", 5 * SECOND),
        (".5s", SECOND // 2),
        ("1.0s", SECOND),
        ("1.00s", SECOND),
        ("1.004s", 1004 * MILLISECOND),
        ("1.0040s", 1004 * MILLISECOND),
        ("100.00100s", 100 * SECOND + MILLISECOND),
        ("-1.5s", -1500 * MILLISECOND),
        ("10ns", 10),
        ("11us", 11 * MICROSECOND),
        ("12\u00b5s", 12 * MICROSECOND),
        ("12\u03bcs", 12 * MICROSECOND),
        ("300ms", 300 * MILLISECOND),
        ("14s", 14 * SECOND),
        ("15m", 15 * MINUTE),
        ("16h", 16 * HOUR),
        ("1h30m", 90 * MINUTE),
        ("3h30m", 210 * MINUTE),
        ("10.5s4m", 4 * MINUTE + 10500 * MILLISECOND),
        ("-2m3.4s", -(2 * MINUTE + 3400 * MILLISECOND)),
        ("1h2m3s4ms5us6ns", HOUR + 2 * MINUTE + 3 * SECOND + 4 * MILLISECOND + 5 * MICROSECOND + 6),
        ("39h9m14.425s", 39 * HOUR + 9 * MINUTE + 14425 * MILLISECOND),
        ("52763797000ns", 52763797000),
        ("0.3333333333333333333h", 20 * MINUTE),
        ("9007199254740993ns", (1 << 53) + 1),
        ("9223372036854775807ns", (1 << 63) - 1),
        ("9223372036854775.807us", (1 << 63) - 1),
        ("9223372036s854ms775us807ns", (1 << 63) - 1),
        ("-9223372036854775808ns", -(1 << 63)),
        ("-9223372036854775.808us", -(1 << 63)),
        ("-2562047h47m16.854775808s", -(1 << 63)),
        ("0.100000000000000000000h", 6 * MINUTE),
        ("0.830103483285477580700h", 49 * MINUTE + 48 * SECOND + 372539827),
        pytest.param("0" * 5000 + "1s", SECOND, id="zeros"),
        pytest.param("0." + "0" * 5000 + "1s", 0, id="tiny"),
    ],
)
def test_reads_what_go_reads(text: str, expected: int) -> None:
    assert parse_duration(text) == expected
    assert parse_extended_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "3", "-", "+", "s", ".", "-.", ".s", "+.s", "1", "1.5", "3000000h", "9223372036854775808ns",
        "10000000000000000000ns",
        "9223372036854775.808us", "9223372036854ms775us808ns", "-9223372036854775809ns", "1x", "1S", "1H", "1 s", " 1s",
        "1s ", "1s\n", "1h 30m", "--1s", "1s-1s", "1..5s", "1.5.5s", "1e3s", "\u0661s", "nan", "9" * 5000 + "s", "1ss",
    ],
)  # fmt: skip
def test_refuses_what_go_refuses(text: str) -> None:
    for parse in (parse_duration, parse_extended_duration):
        with pytest.raises(DurationError) as refused:
            parse(text)
        assert refused.value.text == text
        assert repr(text[:61])[:-1] in str(refused.value)


def test_a_fraction_of_any_length_reads() -> None:
    assert abs(parse_duration("0." + "9" * 5000 + "s") - SECOND) <= 1
    assert abs(parse_duration("1." + "3" * 5000 + "h") - 80 * MINUTE) <= 1000


@pytest.mark.parametrize(
    ("text", "expected"), [("1w", WEEK), ("10d", 10 * DAY), ("1d12h", 36 * HOUR), ("0.5d", 12 * HOUR), ("-1w", -WEEK)]
)
def test_days_and_weeks_are_an_extension(text: str, expected: int) -> None:
    assert parse_extended_duration(text) == expected
    with pytest.raises(DurationError, match="unknown unit"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [
        (0, "0s"),
        (1, "1ns"),
        (-1, "-1ns"),
        (1100, "1.1\u00b5s"),
        (999 * MICROSECOND, "999\u00b5s"),
        (2200000, "2.2ms"),
        (100 * MILLISECOND, "100ms"),
        (SECOND, "1s"),
        (1500 * MILLISECOND, "1.5s"),
        (3300 * MILLISECOND, "3.3s"),
        (MINUTE, "1m0s"),
        (5 * MINUTE, "5m0s"),
        (5 * MINUTE + SECOND, "5m1s"),
        (4 * MINUTE + 5001 * MILLISECOND, "4m5.001s"),
        (HOUR, "1h0m0s"),
        (5 * HOUR + 6 * MINUTE + 7001 * MILLISECOND, "5h6m7.001s"),
        (8 * MINUTE + 1, "8m0.000000001s"),
        (48 * HOUR, "48h0m0s"),
        ((1 << 63) - 1, "2562047h47m16.854775807s"),
        (-(1 << 63), "-2562047h47m16.854775808s"),
    ],
)
def test_prints_as_go_prints(nanoseconds: int, expected: str) -> None:
    assert format_go_duration(nanoseconds) == expected


@given(INT64 | st.integers(-2 * HOUR, 2 * HOUR) | st.integers(-SECOND, SECOND))
def test_printing_and_reading_are_inverse(nanoseconds: int) -> None:
    assert parse_duration(format_go_duration(nanoseconds)) == nanoseconds


UNITS = {"ns": 1, "us": MICROSECOND, "ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": WEEK}
TERM = st.tuples(
    st.integers(0, 10**20), st.text("0123456789", max_size=30), st.sampled_from(sorted(UNITS)), st.booleans()
)


@given(st.lists(TERM, min_size=1, max_size=4))
def test_terms_add_up(terms: list[tuple[int, str, str, bool]]) -> None:
    text = ""
    exact = Fraction(0)
    for integer, fraction, unit, has_point in terms:
        text += f"{integer}{'.' + fraction if has_point else ''}{unit}"
        exact += integer * UNITS[unit]
        if has_point and fraction:
            exact += Fraction(int(fraction), 10 ** len(fraction)) * UNITS[unit]
    # Each term is cut to whole nanoseconds, after floating point with 53 bits.
    tolerance = len(terms) * (1 + WEEK / 2**50)
    if exact > (1 << 63) + tolerance:
        with pytest.raises(DurationError, match="64 bits"):
            parse_extended_duration(text)
    elif exact < (1 << 63) - 1 - tolerance:
        assert abs(parse_extended_duration(text) - exact) <= tolerance
        assert parse_extended_duration("-" + text) == -parse_extended_duration(text)


@given(st.text() | st.text("0123456789.+-nuµmshdw ", max_size=60))
def test_any_text_reads_or_is_refused(text: str) -> None:
    try:
        value = parse_extended_duration(text)
    except DurationError:
        return
    assert -(1 << 63) <= value < 1 << 63
