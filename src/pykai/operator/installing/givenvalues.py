"""Values as users give them: files, `--set a.b=c`, and what is wrong with them.

`--set` is read as Helm reads it: commas separate, a backslash takes a comma or a dot as it is, `{a,b}` is a list, and
numbers, true, false and null are what they look like.

Statements: operations:10.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pykai.api.suggestions import did_you_mean
from pykai.operator.chart.values import VALUES, ChartValue, Kind

_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]*)")
_COMMA: Final = re.compile(r"(?<!\\),(?![^{]*\})")
_DOT: Final = re.compile(r"(?<!\\)\.")
_WORDS: Final[Mapping[str, Any]] = {"true": True, "false": False, "null": None}
_BY_PATH: Final[Mapping[str, ChartValue]] = {each.path: each for each in VALUES}
_TYPES: Final[Mapping[Kind, tuple[type, ...]]] = {
    Kind.TEXT: (str,),
    Kind.SWITCH: (bool,),
    Kind.NUMBER: (int, float),
    Kind.PORT: (int,),
    Kind.COUNT: (int,),
    Kind.QUANTITY: (str, int, float),
    Kind.TEXTS: (dict,),
    Kind.DOCUMENT: (dict,),
    Kind.DOCUMENTS: (list,),
    Kind.NAMES: (list,),
}
_LARGEST_PORT: Final = 65535


class ValueProblem(ValueError):
    """A value that the chart does not take; the text names it."""


def read_set(text: str) -> dict[str, Any]:
    """The values of one `--set`; raises `ValueProblem`."""
    values: dict[str, Any] = {}
    for assignment in _COMMA.split(text):
        path, equals, value = assignment.partition("=")
        if not equals:
            raise ValueProblem(f"--set {assignment}: expected KEY=VALUE, as in global.tag=v1")
        *parents, key = (each.replace("\\.", ".") for each in _DOT.split(path))
        if any("[" in each for each in (*parents, key)):
            raise ValueProblem(f"--set {assignment}: elements of a list cannot be set alone; write them into a file")
        place = values
        for parent in parents:
            place = place.setdefault(parent, {})
        place[key] = _typed(value)
    return values


def _typed(text: str) -> Any:
    if text.startswith("{") and text.endswith("}"):
        return [_typed(each) for each in text[1:-1].split(",") if each]
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return text.replace("\\,", ",")


def check_values(values: Mapping[str, Any]) -> None:
    """Raise `ValueProblem` with all that is wrong: unknown keys, other types, texts that are no choice."""
    problems = list(_problems(values))
    if problems:
        raise ValueProblem("\n".join(problems))


def _problems(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key, value in values.items():
        where = f"{path}.{key}" if path else key
        known = _BY_PATH.get(where)
        if known is not None:
            yield from _wrong(known, value)
        elif not any(each.startswith(f"{where}.") for each in _BY_PATH):
            beside = {each[len(path) :].lstrip(".").partition(".")[0] for each in _BY_PATH if each.startswith(path)}
            yield f"{where}: the chart has no such value{did_you_mean(key, beside)}"
        elif isinstance(value, Mapping):
            yield from _problems(value, where)
        else:
            yield f"{where}: expected a map, not {json.dumps(value)}"


def _wrong(known: ChartValue, value: Any) -> Iterator[str]:
    shown = f"{known.path}: expected"
    allowed: Any = _TYPES[known.kind]
    if value is None:
        # It takes the default away, as in Helm.
        return
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        yield f"{shown} {known.kind.value}, not {json.dumps(value)}"
    elif known.choices and value not in known.choices:
        listed = ", ".join(each or '""' for each in known.choices)
        yield f"{shown} one of {listed}, not {json.dumps(value)}"
    elif known.kind is Kind.PORT and not 1 <= value <= _LARGEST_PORT:
        yield f"{shown} 1 to {_LARGEST_PORT}, not {value}"
    elif known.kind is Kind.COUNT and value < 0:
        yield f"{shown} 0 or more, not {value}"
    elif known.kind is Kind.TEXTS and not all(isinstance(each, str) for each in value.values()):
        yield f"{shown} texts only, not {json.dumps(value)}"
    elif known.kind is Kind.NAMES and not all(isinstance(each, dict) and each.keys() == {"name"} for each in value):
        yield f"{shown} [{{name: ...}}], not {json.dumps(value)}"
    elif known.kind is Kind.DOCUMENTS and not all(isinstance(each, dict) for each in value):
        yield f"{shown} a list of objects, not {json.dumps(value)}"
