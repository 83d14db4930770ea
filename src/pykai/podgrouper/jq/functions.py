"""The functions of the subset, by name and number of arguments.

Most work on one value (`_of_value`); those that take expressions evaluate them as often as needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cmp_to_key
from typing import Final

from pykai.podgrouper.jq import values
from pykai.podgrouper.jq.budget import Budget, JqError, JqUnsupported
from pykai.podgrouper.jq.nodes import Function, JqNode, JqScope
from pykai.podgrouper.jq.values import Json, compare, describe, spend_for, truthy, type_name

_NUMBER: Final = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MAX_NUMBER_LENGTH: Final = 40


def _of_value(function: Callable[[Json, Budget], Json]) -> Function:
    """A function of its input alone."""

    def run(value: Json, _: tuple[JqNode, ...], scope: JqScope) -> Iterator[Json]:
        yield function(value, scope.budget)

    return run


def _of_argument(function: Callable[[Json, Json, Budget], Json]) -> Function:
    """A function of its input and one value."""

    def run(value: Json, arguments: tuple[JqNode, ...], scope: JqScope) -> Iterator[Json]:
        for argument in arguments[0].run(value, scope):
            yield function(value, argument, scope.budget)

    return run


def _entries(value: Json, budget: Budget) -> Iterator[Json]:
    if not isinstance(value, list | dict):
        raise JqError(f"{describe(value)} has no entries to go through")
    for entry in value if isinstance(value, list) else value.values():
        budget.spend()
        yield entry


def _select(value: Json, arguments: tuple[JqNode, ...], scope: JqScope) -> Iterator[Json]:
    for each in arguments[0].run(value, scope):
        if truthy(each):
            yield value


def _map(value: Json, arguments: tuple[JqNode, ...], scope: JqScope) -> Iterator[Json]:
    yield [result for entry in _entries(value, scope.budget) for result in arguments[0].run(entry, scope)]


def _first_of(value: Json, arguments: tuple[JqNode, ...], scope: JqScope) -> Iterator[Json]:
    for each in arguments[0].run(value, scope):
        yield each
        return


def _empty(value: Json, arguments: tuple[JqNode, ...], scope: JqScope) -> Iterator[Json]:
    return iter(())


def _not_null(value: Json, arguments: tuple[JqNode, ...], scope: JqScope) -> Iterator[Json]:
    if value is not None:
        yield value


def _quantifier(decisive: bool) -> Function:
    """`any` (a true result decides) and `all` (a false one), with no, one or two arguments."""

    def run(value: Json, arguments: tuple[JqNode, ...], scope: JqScope) -> Iterator[Json]:
        entries = arguments[0].run(value, scope) if len(arguments) == 2 else _entries(value, scope.budget)
        for entry in entries:
            for result in arguments[-1].run(entry, scope) if arguments else (entry,):
                if truthy(result) is decisive:
                    yield decisive
                    return
        yield not decisive

    return run


def _length(value: Json, budget: Budget) -> Json:
    if value is None:
        return 0
    if isinstance(value, bool):
        raise JqError(f"{describe(value)} has no length")
    return values.number(abs(value)) if isinstance(value, int | float) else len(value)


def _keys(value: Json, budget: Budget) -> Json:
    spend_for(value, budget)
    if isinstance(value, dict):
        budget.spend(len(value))
        return list[Json](sorted(value))
    if isinstance(value, list):
        return list[Json](range(len(value)))
    raise JqError(f"{describe(value)} has no keys")


def _to_entries(value: Json, budget: Budget) -> Json:
    if not isinstance(value, list | dict):
        raise JqError(f"{describe(value)} has no keys")
    budget.spend(len(value))
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return [{"key": key, "value": entry} for key, entry in pairs]


def _has(value: Json, key: Json, budget: Budget) -> Json:
    if value is None:
        return False
    if isinstance(value, dict) and isinstance(key, str):
        return key in value
    if isinstance(value, list) and values.is_number(key):
        return 0 <= int(key) < len(value)
    raise JqError(f"{describe(value)} cannot have a key like {describe(key)}")


def _index(value: Json, wanted: Json, budget: Budget) -> Json:
    if value is None and (isinstance(wanted, str) or values.is_number(wanted)):
        return None
    if isinstance(value, str) and isinstance(wanted, str):
        spend_for(value, budget)
        place = value.find(wanted) if wanted else -1
        return place if place >= 0 else None
    if isinstance(value, list) and not isinstance(wanted, list):
        places = (place for place, entry in enumerate(value) if not compare(entry, wanted, budget))
        return next(places, None)
    if isinstance(wanted, list | dict) or isinstance(value, dict):
        raise JqUnsupported(f"{describe(wanted)} in {describe(value)} is not part of the subset")
    raise JqError(f"{describe(value)} cannot hold {describe(wanted)}")


def _add(value: Json, budget: Budget) -> Json:
    total: Json = None
    for entry in _entries(value, budget):
        total = values.add(total, entry, budget)
    return total


def _sorted(value: Json, budget: Budget) -> list[Json]:
    if not isinstance(value, list):
        raise JqError(f"{describe(value)} cannot be sorted")

    def order(one: Json, other: Json) -> int:
        return compare(one, other, budget)

    return sorted(value, key=cmp_to_key(order))


def _sort(value: Json, budget: Budget) -> Json:
    return _sorted(value, budget)


def _unique(value: Json, budget: Budget) -> Json:
    kept: list[Json] = []
    for entry in _sorted(value, budget):
        if not kept or compare(kept[-1], entry, budget):
            kept.append(entry)
    return kept


def _min(value: Json, budget: Budget) -> Json:
    entries = _sorted(value, budget)
    return entries[0] if entries else None


def _max(value: Json, budget: Budget) -> Json:
    entries = _sorted(value, budget)
    return entries[-1] if entries else None


def _end(place: int) -> Callable[[Json, Budget], Json]:
    def entry(value: Json, budget: Budget) -> Json:
        if value is None or isinstance(value, list):
            return value[place] if value else None
        raise JqError(f"{describe(value)} has no entry for number {place}")

    return entry


def _tostring(value: Json, budget: Budget) -> Json:
    if isinstance(value, list | dict):
        raise JqUnsupported(f"{describe(value)} as text is not part of the subset")
    return _as_text(value)


def _as_text(value: bool | int | float | str | None) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(values.number(value))


def _tonumber(value: Json, budget: Budget) -> Json:
    if values.is_number(value):
        return value
    if isinstance(value, str) and len(value) <= _MAX_NUMBER_LENGTH and _NUMBER.fullmatch(value):
        return values.number(float(value) if not value.lstrip("-").isdigit() else int(value))
    raise JqError(f"{describe(value)} is no number")


def _text_test(test: Callable[[str, str], bool]) -> Function:
    def run(value: Json, part: Json, budget: Budget) -> Json:
        if isinstance(value, str) and isinstance(part, str):
            return test(value, part)
        raise JqError(f"{describe(value)} and {describe(part)} must be text")

    return _of_argument(run)


def _split(value: Json, separator: Json, budget: Budget) -> Json:
    if not isinstance(value, str) or not isinstance(separator, str):
        raise JqError(f"{describe(value)} and {describe(separator)} must be text")
    parts = value.split(separator) if separator else list(value)
    budget.spend(len(parts))
    return list[Json](parts) if value else []


def _join(value: Json, separator: Json, budget: Budget) -> Json:
    parts = [_joined(entry) for entry in _entries(value, budget)]
    if len(parts) > 1 and not (separator is None or isinstance(separator, str)):
        raise JqError(f"{describe(separator)} must be text")
    text = (separator if isinstance(separator, str) else "").join(parts)
    spend_for(text, budget)
    return text


def _joined(entry: Json) -> str:
    if isinstance(entry, list | dict):
        raise JqError(f"{describe(entry)} cannot be joined to text")
    return "" if entry is None else _as_text(entry)


def _ascii_downcase(value: Json, budget: Budget) -> Json:
    if not isinstance(value, str):
        raise JqError(f"{describe(value)} must be text")
    spend_for(value, budget)
    return re.sub("[A-Z]+", lambda match: match.group().lower(), value)


def _rounded(direction: Callable[[float], int]) -> Callable[[Json, Budget], Json]:
    def run(value: Json, budget: Budget) -> Json:
        if values.is_number(value):
            return values.number(direction(value))
        raise JqError(f"{describe(value)} is no number")

    return run


#: (name, number of arguments) -> function
FUNCTIONS: Final[dict[tuple[str, int], Function]] = {
    ("add", 0): _of_value(_add),
    ("all", 0): _quantifier(False),
    ("all", 1): _quantifier(False),
    ("all", 2): _quantifier(False),
    ("any", 0): _quantifier(True),
    ("any", 1): _quantifier(True),
    ("any", 2): _quantifier(True),
    ("ascii_downcase", 0): _of_value(_ascii_downcase),
    ("ceil", 0): _of_value(_rounded(lambda value: int(-(-value // 1)))),
    ("empty", 0): _empty,
    ("endswith", 1): _text_test(str.endswith),
    ("false", 0): _of_value(lambda value, budget: False),
    ("first", 0): _of_value(_end(0)),
    ("first", 1): _first_of,
    ("floor", 0): _of_value(_rounded(lambda value: int(value // 1))),
    ("has", 1): _of_argument(_has),
    ("index", 1): _of_argument(_index),
    ("join", 1): _of_argument(_join),
    ("keys", 0): _of_value(_keys),
    ("last", 0): _of_value(_end(-1)),
    ("length", 0): _of_value(_length),
    ("map", 1): _map,
    ("max", 0): _of_value(_max),
    ("min", 0): _of_value(_min),
    ("not", 0): _of_value(lambda value, budget: not truthy(value)),
    ("null", 0): _of_value(lambda value, budget: None),
    ("select", 1): _select,
    ("sort", 0): _of_value(_sort),
    ("split", 1): _of_argument(_split),
    ("startswith", 1): _text_test(str.startswith),
    ("to_entries", 0): _of_value(_to_entries),
    ("tonumber", 0): _of_value(_tonumber),
    ("tostring", 0): _of_value(_tostring),
    ("true", 0): _of_value(lambda value, budget: True),
    ("type", 0): _of_value(lambda value, budget: type_name(value)),
    ("unique", 0): _of_value(_unique),
    ("values", 0): _not_null,
}
