"""Go durations: `1h30m`, `-1.5s`, `300ms`.

KAI's objects, flags and annotations carry durations as Go prints them. `parse_duration` reads what
`time.ParseDuration` reads, `parse_extended_duration` also takes days and weeks (`1w`, `10d`), which plugin arguments
and usage windows allow; `format_go_duration` prints like `Duration.String`. The value is an int of nanoseconds within
int64.

Subtle: a number needs a unit, except a lone `0`. Blanks are refused. A value beyond int64 is refused too and does not
saturate, because Go refuses it, and a duration that large is a typo. The fraction of a number is scaled in floating
point like Go's: digits that float64 cannot hold are lost in both.
"""

import re
from typing import Final

#: Nanoseconds of the common units.
MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY

_UNITS: Final = {
    "ns": 1,
    "us": MICROSECOND,
    "\u00b5s": MICROSECOND,  # micro sign
    "\u03bcs": MICROSECOND,  # Greek mu
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
_EXTENDED_UNITS: Final = {**_UNITS, "d": DAY, "w": WEEK}
_TERM: Final = re.compile(r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?([^.0-9]*)")
_MAX: Final = (1 << 63) - 1
_MAX_DIGITS: Final = 19


class DurationError(ValueError):
    """The text is not a duration; `text` is the input."""

    def __init__(self, text: str, problem: str) -> None:
        self.text = text
        self.problem = problem
        shown = repr(text) if len(text) <= 64 else f"{text[:61]!r}..."
        super().__init__(f"{shown} is not a duration: {problem}")


def parse_duration(text: str) -> int:
    """Nanoseconds of a duration in Go's syntax."""
    return _parse(text, _UNITS)


def parse_extended_duration(text: str) -> int:
    """Nanoseconds of a duration in Go's syntax plus `d` (24 hours) and `w` (7 days)."""
    return _parse(text, _EXTENDED_UNITS)


def format_go_duration(nanoseconds: int) -> str:
    """The duration as Go prints it: `5m0s`, `1.5s`, `100ms`, `0s`."""
    if nanoseconds == 0:
        return "0s"
    sign = "-" if nanoseconds < 0 else ""
    size = abs(nanoseconds)
    if size < MICROSECOND:
        return f"{sign}{size}ns"
    if size < MILLISECOND:
        return f"{sign}{_decimal(size, 3)}\u00b5s"
    if size < SECOND:
        return f"{sign}{_decimal(size, 6)}ms"
    minutes, below = divmod(size, MINUTE)
    seconds = f"{_decimal(below, 9)}s"
    if not minutes:
        return sign + seconds
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}h{minutes}m{seconds}" if hours else f"{sign}{minutes}m{seconds}"


def _parse(text: str, units: dict[str, int]) -> int:
    negative = text.startswith("-")
    body = text[1:] if text[:1] in ("-", "+") else text
    if body == "0":
        return 0
    if not body:
        raise DurationError(text, "it is empty")
    total = 0
    position = 0
    while position < len(body):
        term = _TERM.match(body, position)
        if term is None:
            raise DurationError(text, "expected a number with a unit")
        integer, fraction, unit = term.groups(default="")
        if not unit:
            raise DurationError(text, "a number lacks its unit")
        if unit not in units:
            shown = unit if len(unit) <= 16 else unit[:13] + "..."
            raise DurationError(text, f"unknown unit {shown!r}, expected one of {' '.join(units)}")
        total += _scaled(integer, fraction, units[unit])
        if total > _MAX + 1:
            raise DurationError(text, "it does not fit 64 bits of nanoseconds")
        position = term.end()
    # The smallest int64 has no positive counterpart.
    if total > _MAX and not negative:
        raise DurationError(text, "it does not fit 64 bits of nanoseconds")
    return -total if negative else total


def _scaled(integer: str, fraction: str, unit: int) -> int:
    digits = integer.lstrip("0")
    # int() refuses thousands of digits; twenty are already too many for the caller's check.
    value = int(digits[: _MAX_DIGITS + 1] or "0") * unit
    numerator = 0
    scale = 1.0
    for digit in fraction:
        # Go stops reading the fraction where its 64-bit numerator would overflow.
        longer = numerator * 10 + int(digit)
        if numerator > _MAX // 10 or longer > _MAX + 1:
            break
        numerator = longer
        scale *= 10
    return value + (int(float(numerator) * (float(unit) / scale)) if numerator else 0)


def _decimal(size: int, places: int) -> str:
    integer, fraction = divmod(size, 10**places)
    digits = f"{fraction:0{places}d}".rstrip("0")
    return f"{integer}.{digits}" if digits else str(integer)
