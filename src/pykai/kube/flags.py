"""Command-line flags of services: one type, one reader, one error policy.

A service lists its flags in a table of `Flag`, every flag of its counterpart in KAI included, so that an operator's
command line works unchanged.  `read_flags` reads given values by that table and reports what is wrong.  On a command
line any problem ends the program (`checked_values` raises): a service that starts with other settings than it was given
does the wrong thing unnoticed.  The flags in a snapshot file of another version are read as far as they can be: a bad
value is reported and the default stays, an unknown flag is reported and skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar, cast

from pykai.api import names
from pykai.api.duration import DurationError, parse_duration
from pykai.api.suggestions import did_you_mean

T = TypeVar("T")

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_MAX_INT32 = 2**31 - 1


class OptionError(ValueError):
    """Flags that cannot be used; the text names them."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of a service."""

    #: without dashes
    name: str
    #: as KAI prints it, unless the meaning says otherwise
    default: str
    #: turns text into a value; raises `ValueError` with what was expected, or `OptionError` with the whole sentence
    read: Callable[[str], Any]
    meaning: str
    #: the field of the service's options that it sets, "part.field" inside a part; "" = used by name
    field: str = ""
    #: the statement of the specification that uses it
    spec_id: str = ""
    #: accepted because operators pass it, without effect here
    no_effect: bool = False

    def help(self) -> str:
        """One line for `--help`."""
        notes = "; accepted, without effect" if self.no_effect else ""
        return f"{self.meaning}{notes} [{self.default}]" if self.default else f"{self.meaning}{notes}"


class FlagProblem(NamedTuple):
    """A flag that is unknown or has an unreadable value."""

    #: without dashes
    name: str
    text: str
    #: the default that holds instead; None for an unknown flag
    default: str | None = None
    #: what was probably meant
    hint: str = ""

    def __str__(self) -> str:
        return f"--{self.name}: {self.text}{self.hint}"


class FlagReading(NamedTuple):
    """Given flags as read."""

    #: flag -> value, of those that were given and could be read
    values: dict[str, Any]
    problems: list[FlagProblem]


def read_flags(table: Iterable[Flag], given: Mapping[str, object]) -> FlagReading:
    """Given flags by name, with or without dashes in front; values are texts, numbers or booleans, unset ones None.

    A reader that raises `OptionError` refuses the whole: its sentence names the flag already.
    """
    by_name = {flag.name: flag for flag in table}
    reading = FlagReading({}, [])
    for spelled, value in given.items():
        name = spelled.lstrip("-")
        flag = by_name.get(name)
        if flag is None:
            reading.problems.append(FlagProblem(name, "unknown flag", hint=did_you_mean(name, by_name, "--")))
        elif value is not None:
            try:
                reading.values[name] = flag.read(str(value).lower() if isinstance(value, bool) else str(value))
            except OptionError:
                raise
            except ValueError as error:
                reading.problems.append(FlagProblem(name, f"{value!r}: {error}", flag.default))
    return reading


def checked_values(table: Iterable[Flag], given: Mapping[str, object]) -> dict[str, Any]:
    """The given flags as read; raises `OptionError` that names everything that is wrong."""
    reading = read_flags(table, given)
    if reading.problems:
        raise OptionError("; ".join(map(str, reading.problems)))
    return reading.values


def set_fields(options: T, table: Iterable[Flag], values: Mapping[str, Any]) -> T:
    """The options with the fields that these flags set."""
    changes: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for flag in table:
        if flag.field and flag.name in values:
            part, _, field = flag.field.rpartition(".")
            (parts.setdefault(part, {}) if part else changes)[field] = values[flag.name]
    for part, fields in parts.items():
        changes[part] = replace(getattr(options, part), **fields)
    return cast(T, replace(cast(Any, options), **changes))


def read_options(options: T, table: Iterable[Flag], given: Mapping[str, object]) -> T:
    """The options with what was given; raises `OptionError`."""
    table = tuple(table)
    return set_fields(options, table, checked_values(table, given))


def parse_command_line(arguments: Iterable[str]) -> dict[str, str]:
    """`--name value`, `--name=value` and `--switch` as a mapping; raises `OptionError` for anything else."""
    given: dict[str, str] = {}
    pending_flag = ""
    for argument in arguments:
        if argument.startswith("-") and not argument[1:2].isdigit():
            if pending_flag:
                given[pending_flag] = "true"
            name, equals, value = argument.lstrip("-").partition("=")
            pending_flag = "" if equals else name
            if equals:
                given[name] = value
        elif pending_flag:
            given[pending_flag] = argument
            pending_flag = ""
        else:
            raise OptionError(f"{argument!r} is neither a flag nor the value of one")
    if pending_flag:
        given[pending_flag] = "true"
    return given


def read_text(text: str) -> str:
    """Any text."""
    return text


def read_bool(text: str) -> bool:
    """A boolean as Go reads it."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("expected true or false")


def bounded_int(minimum: int, maximum: int = _MAX_INT32) -> Callable[[str], int]:
    """A whole number between two bounds."""

    def read(text: str) -> int:
        number = int(text) if _INTEGER.fullmatch(text) else minimum - 1
        if minimum <= number <= maximum:
            return number
        at_most = f" and at most {maximum}" if maximum < _MAX_INT32 or number > maximum else ""
        raise ValueError(f"expected a whole number of at least {minimum}{at_most}")

    return read


read_count = bounded_int(0)
read_positive = bounded_int(1)
read_port = bounded_int(0, 65535)


def read_optional_positive(text: str) -> int | None:
    """A whole number of at least 1, or nothing."""
    return read_positive(text) if text else None


def _finite_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    return number if -1.0 < number < 1e9 else -1.0


def read_positive_number(text: str) -> float:
    """A number above 0."""
    number = _finite_number(text)
    if number <= 0:
        raise ValueError("expected a number of more than 0")
    return number


def read_nonnegative_number(text: str) -> float:
    """A number that is not negative."""
    number = _finite_number(text)
    if number < 0:
        raise ValueError("expected a number that is not negative")
    return number


def read_pairs(text: str) -> dict[str, str]:
    """`k1=v1,k2=v2`; empty text for none, the last of equal keys wins."""
    pairs: dict[str, str] = {}
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"expected key=value pairs, got {part!r}")
        pairs[key.strip()] = value.strip()
    return pairs


def read_duration(text: str) -> int:
    """A Go duration, in nanoseconds."""
    try:
        return parse_duration(text)
    except DurationError as error:
        raise ValueError(f"expected a duration such as 1m30s ({error})") from None


def read_nonnegative_duration(text: str) -> int:
    """A Go duration that is not negative, in nanoseconds."""
    span = read_duration(text)
    if span < 0:
        raise ValueError("expected a duration that is not negative")
    return span


#: flags that `kai run` reads for every service
QPS = Flag("qps", "", read_optional_positive, "requests to the API server a second; no limit without it")
BURST = Flag("burst", "", read_optional_positive, "requests at once beyond that")
VERBOSITY = Flag("v", "3", read_count, "log verbosity: 2 warnings, 3 what an operator wants to read, 4 everything")
LOG_JSON = Flag("log-json", "false", read_bool, "log as JSON")
LEADER_ELECT = Flag("leader-elect", "false", read_bool, "one of several replicas is active")
NAMESPACE = Flag("namespace", names.DEFAULT_NAMESPACE, read_text, "where the lease is")
COMMON_FLAGS = (QPS, BURST, VERBOSITY, LOG_JSON, LEADER_ELECT, NAMESPACE)

#: where most services of KAI serve metrics, and where health: here both addresses serve both
METRICS_ADDRESS = Flag("metrics-bind-address", "", read_text, "where metrics and health are served; nowhere without it")
HEALTH_ADDRESS = Flag("health-probe-bind-address", "", read_text, "a second address for metrics and health")

#: flags that several services have; an option that it sets has the same name everywhere
SCHEDULER_NAME = Flag(
    "scheduler-name", names.SCHEDULER_NAME, read_text, "pods that name it are ours", field="scheduler_name"
)
SHARED_CACHE = Flag(
    "shared-cache",
    "false",
    read_bool,
    "share the scheduler's pod cache in one process (not in KAI Scheduler)",
    field="shared_cache",
)
SKIP_CONTROLLER_NAME_VALIDATION = Flag(
    "skip-controller-name-validation", "", read_text, "allow two controllers of one name in a process", no_effect=True
)
FEATURE_GATES = Flag("feature-gates", "", read_text, "feature gates of Kubernetes libraries", no_effect=True)


def max_concurrent_reconciles(default: int, meaning: str) -> Flag:
    """How many objects a service works on at a time."""
    return Flag("max-concurrent-reconciles", str(default), read_positive, meaning, field="max_concurrent_reconciles")


def settle_seconds(default: float) -> Flag:
    """How long a service that writes statuses gathers changes."""
    return Flag(
        "settle-seconds",
        str(default),
        read_positive_number,
        "wall time between a change and the write (not in KAI Scheduler)",
        field="settle_s",
    )
