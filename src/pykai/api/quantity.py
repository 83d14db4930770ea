"""Kubernetes quantities (`resource.Quantity`), read exactly.

A quantity arrives as text (`500m`, `1.5Gi`, `12e6`) or as a JSON number. Kubernetes keeps nothing finer than a
billionth and rounds finer values away from zero, so every quantity is a whole number of nanos: that integer is the
exact value, and `milli_value` and `unit_value`, which the engine calls for every container, are one division away from
it. All three are cached by the raw value, because a cluster holds many pods and few distinct quantities.

Subtle:
- `E` alone is exa, `E` with digits is an exponent: `12E` = 12·10¹⁸, `12E6` = 12·10⁶. `12e` is invalid.
- Rounding is away from zero, as `Quantity.MilliValue` and `Quantity.Value` do it: `1n` of anything is at least 1.
- Results saturate at ±2⁶², which leaves int64 columns room to add and subtract. An absurd exponent costs no more than
  a sane one.
- The documented grammar wins over the accidents of Kubernetes' scanner, which reads `+`, `.` and `Mi` as zero: these
  are refused here, as are texts longer than 256 characters.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

#: A value of a resource list: the text or number on the wire.
RawQuantity = str | int | float

#: Results lie within ±SATURATED.
SATURATED: Final = 1 << 62

_NANO: Final = 10**9
_MAX_NANOS: Final = SATURATED * _NANO
_MAX_LENGTH: Final = 256
# A non-zero mantissa has at most _MAX_LENGTH digits on either side of the point, so an exponent beyond this bound
# saturates, or rounds to one nano, whatever the mantissa is.
_MAX_EXPONENT: Final = 2 * _MAX_LENGTH

_GRAMMAR: Final = re.compile(
    r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]+))?"
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIXES: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


class QuantityError(ValueError):
    """The text is not a quantity; `text` is the input."""

    def __init__(self, text: str, problem: str) -> None:
        self.text = text
        self.problem = problem
        super().__init__(f"{_shortened(text)} is not a quantity: {problem}")


@lru_cache(maxsize=1 << 16)
def nano_value(value: RawQuantity) -> int:
    """The exact value in billionths, saturating at ±2⁶²·10⁹."""
    if isinstance(value, int):
        return max(-_MAX_NANOS, min(_MAX_NANOS, value * _NANO))
    # The shortest text of a float is the number its writer meant: 0.1 is a tenth here, as it is for Kubernetes.
    text = value if isinstance(value, str) else repr(value)
    if len(text) > _MAX_LENGTH:
        raise QuantityError(text, f"it is longer than {_MAX_LENGTH} characters")
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise QuantityError(text, "expected digits and then one of n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent")
    sign, integer, fraction, suffix, exponent = match.groups(default="")
    mantissa = int(integer + fraction)
    power = 9 - len(fraction)
    if exponent:
        power += max(-_MAX_EXPONENT, min(_MAX_EXPONENT, int(exponent)))
    elif suffix in _BINARY:
        mantissa <<= _BINARY[suffix]
    elif suffix:
        power += _DECIMAL[suffix]
    scale: int = 10 ** abs(power)
    nanos = min(mantissa * scale if power >= 0 else -(-mantissa // scale), _MAX_NANOS)
    return -nanos if sign == "-" else nanos


@lru_cache(maxsize=1 << 16)
def milli_value(value: RawQuantity) -> int:
    """The value in thousandths, rounded away from zero, saturating at ±2⁶²."""
    return _rounded(nano_value(value), 10**6)


@lru_cache(maxsize=1 << 16)
def unit_value(value: RawQuantity) -> int:
    """The value in units, rounded away from zero, saturating at ±2⁶²."""
    return _rounded(nano_value(value), _NANO)


def parse_quantity(value: RawQuantity) -> Fraction:
    """The exact value as Kubernetes keeps it: in steps of a billionth, saturating at ±2⁶²."""
    return Fraction(nano_value(value), _NANO)


def format_quantity(nanos: int, *, binary: bool = False) -> str:
    """The text that Kubernetes writes for this many billionths: `1500m`, `2`, `8Gi` (`binary`, where that is exact)."""
    if not nanos:
        return "0"
    if binary and not nanos % _NANO:
        value, power = nanos // _NANO, 0
        while power < len(_BINARY_SUFFIXES) - 1 and not value % 1024:
            value, power = value // 1024, power + 1
        if power:
            return f"{value}{_BINARY_SUFFIXES[power]}"
    value, power = nanos, 0
    while power < len(_DECIMAL_SUFFIXES) - 1 and not value % 1000:
        value, power = value // 1000, power + 1
    return f"{value}{_DECIMAL_SUFFIXES[power]}"


@lru_cache(maxsize=1 << 16)
def canonical_quantity(value: RawQuantity) -> RawQuantity:
    """The same quantity as an API server returns it: text, with the largest suffix that leaves no fraction.

    Invalid quantities stay as they are, as do quantities with an exponent and those beyond the bounds of this module.
    """
    try:
        nanos = nano_value(value)
    except QuantityError:
        return value
    text = value if isinstance(value, str) else repr(value)
    match = _GRAMMAR.fullmatch(text)
    if match is None or match[5] is not None or abs(nanos) >= _MAX_NANOS:
        return value
    return format_quantity(nanos, binary=match[4] in _BINARY)


def _rounded(nanos: int, step: int) -> int:
    size = min(-(-abs(nanos) // step), SATURATED)
    return -size if nanos < 0 else size


def _shortened(text: str) -> str:
    return repr(text) if len(text) <= 64 else f"{text[:61]!r}..."
