"""Quantities against Kubernetes' own examples and against a slow oracle of fractions."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pykai.api.quantity import (
    SATURATED,
    QuantityError,
    RawQuantity,
    canonical_quantity,
    format_quantity,
    milli_value,
    nano_value,
    parse_quantity,
    unit_value,
)

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
SUFFIXES = {name: Fraction(10) ** power for name, power in DECIMAL.items()} | {
    name: Fraction(1024) ** power for name, power in BINARY.items()
}
DIGITS = st.text("0123456789", max_size=25)


def away_from_zero(value: Fraction) -> int:
    size = -(-abs(value.numerator) // value.denominator)
    return size if value >= 0 else -size


def capped(value: int, bound: int = SATURATED) -> int:
    return max(-bound, min(bound, value))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", 0),
        ("-0", 0),
        ("0Ki", 0),
        ("00012", 12),
        ("1", 1),
        ("+1", 1),
        ("-1", -1),
        ("1.", 1),
        ("5.", 5),
        ("1.G", 10**9),
        (".5", Fraction(1, 2)),
        ("-.5", Fraction(-1, 2)),
        ("0.5", Fraction(1, 2)),
        ("1.5", Fraction(3, 2)),
        ("1n", Fraction(1, 10**9)),
        ("1u", Fraction(1, 10**6)),
        ("100m", Fraction(1, 10)),
        ("1k", 1000),
        ("1M", 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1Ki", 1024),
        ("1Mi", 1024**2),
        ("1Gi", 1024**3),
        ("1Ti", 1024**4),
        ("1Pi", 1024**5),
        ("1Ei", 1024**6),
        ("1.5Gi", 3 * 512 * 1024**2),
        (".5Ki", 512),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e+3", 1000),
        ("1E+3", 1000),
        ("1.5e3", 1500),
        ("1e-3", Fraction(1, 1000)),
        ("1E-3", Fraction(1, 1000)),
        ("12E", SATURATED),
        ("12E6", 12 * 10**6),
        ("1e0", 1),
        # Finer than a billionth rounds away from zero.
        ("0.1n", Fraction(1, 10**9)),
        ("1.1n", Fraction(2, 10**9)),
        ("-0.1n", Fraction(-1, 10**9)),
        ("0.00000000001", Fraction(1, 10**9)),
        ("1e-99", Fraction(1, 10**9)),
        ("0e-99", 0),
        # JSON numbers.
        (0, 0),
        (3, 3),
        (-3, -3),
        (0.1, Fraction(1, 10)),
        (1.5, Fraction(3, 2)),
        (1e22, SATURATED),
        (1e-12, Fraction(1, 10**9)),
        (1e300, SATURATED),
        # Absurd values saturate.
        ("9223372036854775807", SATURATED),
        ("8Ei", SATURATED),
        ("-8Ei", -SATURATED),
        ("1e30", SATURATED),
        ("1" + 200 * "0", SATURATED),
        ("1e999999999", SATURATED),
        ("-1e999999999", -SATURATED),
        ("0e999999999", 0),
        ("1e-999999999", Fraction(1, 10**9)),
        ("1e" + 200 * "9", SATURATED),
        pytest.param(10**5000, SATURATED, id="huge"),
        pytest.param(-(10**5000), -SATURATED, id="-huge"),
    ],
)
def test_kubernetes_examples(value: RawQuantity, expected: Fraction | int) -> None:
    assert parse_quantity(value) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", " ", " 1", "1 ", "1\n", "1 Gi", "1gi", "1GI", "1ki", "1K", "1i", ".5i", "1mi", "1mm", "1Kii", "0x10", "1_0",
        "1e", "1E+", "1e-", "1e1.5", "1ee3", "1e3Ki", "1Ee3", "1.1.1", "1+1", "--1", "+-1", "1-", "+", "-", ".", "+.",
        "Mi", "m", "e3", "NaN", "nan", "inf", "-inf", "Infinity", "1,5", "١", "²", "1\u00a0", "1" * 257,
    ],
)  # fmt: skip
def test_garbage_is_refused_and_named(text: str) -> None:
    with pytest.raises(QuantityError) as refused:
        unit_value(text)
    assert refused.value.text == text
    assert repr(text[:61])[:-1] in str(refused.value)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_numbers_are_refused(number: float) -> None:
    with pytest.raises(QuantityError):
        milli_value(number)


@pytest.mark.parametrize(
    ("value", "in_milli", "in_units"),
    [
        ("1n", 1, 1),
        ("1m", 1, 1),
        ("1500u", 2, 1),
        ("500m", 500, 1),
        ("1001m", 1001, 2),
        ("-1n", -1, -1),
        ("-1500m", -1500, -2),
        ("2", 2000, 2),
        ("64Gi", 64 * 1024**3 * 1000, 64 * 1024**3),
        # A value may saturate in thousandths and not in units.
        ("4Ei", SATURATED, SATURATED),
        ("1Ei", SATURATED, 1 << 60),
        ("-1Ei", -SATURATED, -(1 << 60)),
        (4, 4000, 4),
        (0.25, 250, 1),
    ],
)
def test_milli_and_whole_round_up(value: RawQuantity, in_milli: int, in_units: int) -> None:
    assert milli_value(value) == in_milli
    assert unit_value(value) == in_units


@given(st.sampled_from(["", "+", "-"]), DIGITS, st.none() | DIGITS, st.sampled_from(sorted(SUFFIXES)))
@example("", "0", "9" * 25, "Ei")
def test_suffixes_against_the_oracle(sign: str, integer: str, fraction: str | None, suffix: str) -> None:
    text = sign + integer + ("" if fraction is None else "." + fraction) + suffix
    if not integer and not fraction:
        with pytest.raises(QuantityError):
            nano_value(text)
        return
    size = Fraction(int(integer + (fraction or "")), 10 ** len(fraction or "")) * SUFFIXES[suffix]
    assert_reads_as(text, -size if sign == "-" else size)


@given(st.integers(), st.integers(0, 30), st.integers(-60, 60), st.sampled_from("eE"))
def test_exponents_against_the_oracle(mantissa: int, places: int, exponent: int, letter: str) -> None:
    digits = str(abs(mantissa)).rjust(places + 1, "0")
    point = len(digits) - places
    text = f"{'-' if mantissa < 0 else ''}{digits[:point]}.{digits[point:]}{letter}{exponent}"
    assert_reads_as(text, Fraction(mantissa) * Fraction(10) ** (exponent - places))


def assert_reads_as(text: str, value: Fraction) -> None:
    nanos = away_from_zero(value * 10**9)
    assert nano_value(text) == capped(nanos, SATURATED * 10**9)
    assert milli_value(text) == capped(away_from_zero(Fraction(nanos, 10**6)))
    assert unit_value(text) == capped(away_from_zero(Fraction(nanos, 10**9)))


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_read_like_their_text(number: float) -> None:
    assert nano_value(number) == nano_value(str(number))


@given(st.text() | st.text("0123456789.+-eEinumkKMGTP ", max_size=300))
def test_any_text_reads_or_is_refused(text: str) -> None:
    try:
        value = unit_value(text)
    except QuantityError:
        return
    assert -SATURATED <= value <= SATURATED
    assert abs(value) <= abs(milli_value(text))


@pytest.mark.parametrize(
    ("value", "binary", "text"),
    [
        (0, False, "0"),
        ("0.5", False, "500m"),
        ("1500m", False, "1500m"),
        ("1000m", False, "1"),
        (2000, False, "2k"),
        ("1n", False, "1n"),
        ("8192Mi", True, "8Gi"),
        ("1G", True, "1G"),
        ("1536Ki", True, "1536Ki"),
        ("100m", True, "100m"),
        (1000, True, "1k"),
        ("-2Gi", True, "-2Gi"),
    ],
)
def test_a_quantity_is_written_as_kubernetes_writes_it(value: str | int, binary: bool, text: str) -> None:
    assert format_quantity(nano_value(value), binary=binary) == text
    assert nano_value(text) == nano_value(value)


#: as sent, and as an API server gives it back; tests/lab/apiserver/test_writer.py compares with one
CANONICAL: list[tuple[RawQuantity, str]] = [
    ("0.5", "500m"),
    ("1000m", "1"),
    ("1500m", "1500m"),
    ("1.5Gi", "1536Mi"),
    ("0.5Ki", "512"),
    ("1000", "1k"),
    ("1024", "1024"),
    ("2048Ki", "2Mi"),
    ("1.0001k", "1000100m"),
    ("1e3", "1e3"),
    ("0Gi", "0"),
    (2, "2"),
    (2.0, "2"),
    (0.25, "250m"),
]


@pytest.mark.parametrize(("value", "text"), CANONICAL)
def test_the_canonical_form(value: RawQuantity, text: str) -> None:
    assert canonical_quantity(value) == text
    assert nano_value(value) == nano_value(text)


def test_an_invalid_quantity_is_kept() -> None:
    assert canonical_quantity("much") == "much"
    assert canonical_quantity("9E99") == "9E99"
