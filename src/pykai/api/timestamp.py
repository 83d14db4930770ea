"""RFC 3339 timestamps as nanoseconds since 1970, UTC.

Kubernetes writes `2026-01-01T00:00:00Z`; other writers add fractions or an offset. `parse_timestamp` gives one int
that columns hold and subtract, `format_timestamp` prints whole seconds in UTC as Kubernetes does. Pods of one
workload share their creation second, so the cache answers most calls; a miss costs a few microseconds.

Subtle: results saturate at -2⁶² and 2⁶²-1 nanoseconds (the years 1823 and 2116), so that the difference of any two
fits int64; Go's zero time `0001-01-01T00:00:00Z` therefore reads as "long ago". Digits beyond nanoseconds are cut
off, as Go does, and a leap second (`:60`) is refused, as Go does.
"""

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final

_LONG_AGO: Final = -(1 << 62)
_FAR_OFF: Final = (1 << 62) - 1
_SECOND: Final = 1_000_000_000
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_S: Final = (date.min.toordinal() - _EPOCH_DAY) * 86400
_LAST_S: Final = (date.max.toordinal() - _EPOCH_DAY) * 86400 + 86399

_GRAMMAR: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)


class TimestampError(ValueError):
    """The text is not an RFC 3339 timestamp, or RFC 3339 cannot express the number."""

    def __init__(self, text: str, problem: str) -> None:
        self.text = text
        self.problem = problem
        shown = repr(text) if len(text) <= 64 else f"{text[:61]!r}..."
        super().__init__(f"{shown} is not a timestamp: {problem}")


@lru_cache(maxsize=1 << 16)
def parse_timestamp(text: str) -> int:
    """Nanoseconds since the epoch, saturating at -2⁶² and 2⁶²-1."""
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise TimestampError(text, "expected RFC 3339 like 2026-01-31T23:59:59Z")
    year, month, day, hour, minute, second, fraction, sign, offset_hour, offset_minute = match.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH_DAY
    except ValueError as error:
        raise TimestampError(text, str(error)) from None
    seconds = days * 86400 + int(hour) * 3600 + int(minute) * 60 + int(second)
    if sign:
        offset_s = int(offset_hour) * 3600 + int(offset_minute) * 60
        seconds += -offset_s if sign == "+" else offset_s
    nanoseconds = seconds * _SECOND
    if fraction:
        nanoseconds += int(fraction[:9].ljust(9, "0"))
    return max(_LONG_AGO, min(_FAR_OFF, nanoseconds))


def format_timestamp(nanoseconds: int) -> str:
    """The second that contains this instant, in RFC 3339 and UTC; refuses years outside 1 to 9999."""
    seconds = nanoseconds // _SECOND
    if not _FIRST_S <= seconds <= _LAST_S:
        raise TimestampError(str(nanoseconds), "the year is outside 1 to 9999")
    moment = _EPOCH + timedelta(seconds=seconds)
    return f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}T{moment:%H:%M:%S}Z"
