"""Plugin arguments as the configuration spells them: text to typed fields.

Each plugin class lists its arguments in `ARGUMENTS`: name in the configuration -> (field, reader).  A reader returns
the value or raises ValueError with what it expected; a bad value falls back to the default with a report (cycle:21).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from pykai.api.duration import DurationError, parse_extended_duration
from pykai.api.suggestions import did_you_mean
from pykai.core.model.problems import Problem, ProblemReporter

ArgumentReader = Callable[[str], Any]


def read_number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError("expected a number") from None
    if not isfinite(value):
        raise ValueError("expected a finite number")
    return value


def read_count(text: str) -> int:
    """A whole number that is not negative."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise ValueError("expected a whole number that is not negative")
    return int(text)


def read_flag(text: str) -> bool:
    """true or false."""
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("expected true or false")
    return lowered == "true"


def read_list(text: str) -> frozenset[str]:
    """Words separated by commas; none for an empty text."""
    return frozenset(word for part in text.split(",") if (word := part.strip()))


def read_duration_ns(text: str) -> int:
    """A duration that is not negative, days and weeks allowed, in nanoseconds."""
    try:
        span = parse_extended_duration(text)
    except DurationError as error:
        raise ValueError(f"expected a duration such as 10m or 1d ({error})") from None
    if span < 0:
        raise ValueError("expected a duration that is not negative")
    return span


def read_one_of(*choices: str) -> ArgumentReader:
    """One of some words."""

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return text

    return read


def read_arguments(
    table: Mapping[str, tuple[str, ArgumentReader]],
    arguments: Mapping[str, str],
    subject: str,
    path: str,
    report: ProblemReporter,
) -> dict[str, Any]:
    """Fields for a plugin's constructor; unknown and bad arguments are reported and left out."""
    fields: dict[str, Any] = {}
    for name, text in arguments.items():
        argument = table.get(name)
        if argument is None:
            expected = f"it knows {', '.join(sorted(table))}" if table else "it takes none"
            report(
                Problem(subject, f"{path}.{name}", f"unknown argument; {expected}; ignored{did_you_mean(name, table)}")
            )
            continue
        field, read = argument
        try:
            fields[field] = read(str(text))
        except ValueError as error:
            report(Problem(subject, f"{path}.{name}", f"{text!r}: {error}; the default is used"))
    return fields
