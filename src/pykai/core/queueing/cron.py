"""Cron expressions of usage windows: five fields, and their last occurrence (queues:Q-341).

Fields are minute, hour, day of the month, month, day of the week, each `*`, a number, a name where there are names, a
range, a list or a step.  As in cron, a day counts when either of the two day fields names it, if both are restricted.
Times are UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
#: Days to look back: a 29th of February may be eight years away.
_FARTHEST_DAYS = 366 * 8 + 8
_NS = 1_000_000_000


class CronError(ValueError):
    """The text is not a cron expression; the message names the field and the reason."""


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """The times at which something happens."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    #: 0 = Sunday
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def last_before(self, now_ns: int) -> int | None:
        """The last occurrence strictly before an instant, None if there was none in years."""
        # The last whole minute that is strictly before.
        last = datetime.fromtimestamp((now_ns - 1) // _NS // 60 * 60, UTC)
        day = last.date()
        latest = last.hour * 60 + last.minute
        for _ in range(_FARTHEST_DAYS):
            if day.month in self.months and self._includes_day(day):
                minute_of_day = max(
                    (t for h in self.hours for m in self.minutes if (t := h * 60 + m) <= latest), default=None
                )
                if minute_of_day is not None:
                    moment = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(minutes=minute_of_day)
                    return int(moment.timestamp()) * _NS
            if day == date.min:
                return None
            day -= timedelta(days=1)
            latest = 24 * 60
        return None

    def _includes_day(self, day: date) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return in_month and in_week
        return in_month or in_week


def parse_cron(text: str) -> CronSchedule:
    """A cron expression."""
    fields = _ALIASES.get(text.strip(), text).split()
    if len(fields) != len(_FIELDS):
        raise CronError(f"expected five fields (minute hour day month weekday), found {len(fields)}")
    minutes, hours, days, months, weekdays = (
        _parse_field(part, *known) for part, known in zip(fields, _FIELDS, strict=True)
    )
    return CronSchedule(
        minutes,
        hours,
        days,
        months,
        frozenset(day % 7 for day in weekdays),
        any_day=fields[2].startswith("*"),
        any_weekday=fields[4].startswith("*"),
    )


def _parse_field(text: str, what: str, least: int, most: int, words: tuple[str, ...]) -> frozenset[int]:
    values: set[int] = set()
    for part in text.split(","):
        span, _, step_text = part.partition("/")
        step = _parse_number(step_text, what, 1, most, ()) if step_text or part.endswith("/") else 1
        if span == "*":
            first, last = least, most
        else:
            low, dash, high = span.partition("-")
            first = _parse_number(low, what, least, most, words)
            last = _parse_number(high, what, least, most, words) if dash else (most if step_text else first)
        if first > last:
            raise CronError(f"{what}: {part!r} ends before it begins")
        values.update(range(first, last + 1, step))
    return frozenset(values)


def _parse_number(text: str, what: str, least: int, most: int, words: tuple[str, ...]) -> int:
    lowered = text.lower()
    if lowered in words:
        return words.index(lowered) + least
    if not (text.isascii() and text.isdigit() and len(text) < 5) or not least <= int(text) <= most:
        raise CronError(f"{what}: {text!r} is not between {least} and {most}")
    return int(text)
