"""Checks of values against a CRD's OpenAPI schema, beyond the type: ranges, lengths, patterns, formats.

`compile_checks` turns one node of the schema into functions, once; `validation.validate` calls them with each value.
Texts are those of a real API server. `oneOf`, `anyOf`, `allOf` and `not` hold schemas that check values without giving
them a shape; they are compiled by `compile_predicate` into functions that say yes or no.

Subtle: patterns are Go's regular expressions, which is RE2; so RE2 matches them here, in linear time whatever a
tenant's definition says. A pattern that RE2 cannot read checks nothing rather than refusing every object. Lengths count
characters. A whole number is an integer, however it is written.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import re2

from pykai.api.duration import DurationError, parse_duration
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.lab.apiserver.schema.celrules import expression_checks
from pykai.lab.apiserver.schema.model import FieldProblem, ValueCheck

INVALID: Final = "FieldValueInvalid"
REQUIRED: Final = "FieldValueRequired"
UNSUPPORTED: Final = "FieldValueNotSupported"
TYPE_INVALID: Final = "FieldValueTypeInvalid"
DUPLICATE: Final = "FieldValueDuplicate"
TOO_LONG: Final = "FieldValueTooLong"
TOO_MANY: Final = "FieldValueTooMany"

#: bytes that a compiled pattern may take, and characters it is matched with: the product bounds the time it takes
_MAX_PATTERN_MEMORY: Final = 1 << 19
_MAX_MATCHED_LENGTH: Final = 1 << 16

_RANGES: Final = {"int32": 1 << 31, "int64": 1 << 63}


def invalid(path: str, value: Any, detail: str) -> FieldProblem:
    """A value that breaks a rule."""
    return FieldProblem(path, INVALID, f"Invalid value: {format_value(value)}: {detail}")


def wrong_type(path: str, value: Any, expected: str) -> FieldProblem:
    """A value of another type than the schema's."""
    name = type_name(value)
    return FieldProblem(
        path, TYPE_INVALID, f'Invalid value: "{name}": {path} in body must be of type {expected}: "{name}"'
    )


def unsupported(path: str, value: Any, allowed: tuple[Any, ...]) -> FieldProblem:
    """A value that is not one of those allowed."""
    return FieldProblem(
        path,
        UNSUPPORTED,
        f"Unsupported value: {format_value(value)}: supported values: {', '.join(map(format_value, allowed))}",
    )


def format_value(value: Any) -> str:
    """A value as messages show it."""
    text = json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":"))
    return text if len(text) <= 256 else f"{text[:253]}..."


def type_name(value: Any) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def is_number(value: Any) -> bool:
    """Whether the value is a JSON number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def compile_checks(source: Mapping[str, Any]) -> tuple[ValueCheck, ...]:
    """The functions that check a value against this node of a schema."""
    checks: list[ValueCheck] = []
    if isinstance(source.get("enum"), list):
        checks.append(_enum(tuple(source["enum"])))
    checks += _number_checks(source)
    checks += _text_checks(source)
    checks += _size_checks(source)
    if any(source.get(word) for word in ("allOf", "anyOf", "oneOf", "not")):
        checks.append(_combination_check(source))
    checks += expression_checks(source)
    return tuple(checks)


def _enum(allowed: tuple[Any, ...]) -> ValueCheck:
    texts = frozenset(value for value in allowed if isinstance(value, str))

    def check(value: Any, path: str, problems: list[FieldProblem]) -> None:
        if isinstance(value, str):
            if value in texts:
                return
        elif any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed):
            return
        problems.append(unsupported(path, value, allowed))

    return check


def _number_checks(source: Mapping[str, Any]) -> list[ValueCheck]:
    checks: list[ValueCheck] = []

    def add(holds: Callable[[Any], bool], words: str) -> None:
        def check(value: Any, path: str, problems: list[FieldProblem]) -> None:
            if is_number(value) and not holds(value):
                problems.append(invalid(path, value, f"{path} in body {words}"))

        checks.append(check)

    low, high, step = source.get("minimum"), source.get("maximum"), source.get("multipleOf")
    if is_number(low):
        if source.get("exclusiveMinimum"):
            add(lambda value: bool(value > low), f"should be greater than {_format_number(low)}")
        else:
            add(lambda value: bool(value >= low), f"should be greater than or equal to {_format_number(low)}")
    if is_number(high):
        if source.get("exclusiveMaximum"):
            add(lambda value: bool(value < high), f"should be less than {_format_number(high)}")
        else:
            add(lambda value: bool(value <= high), f"should be less than or equal to {_format_number(high)}")
    if is_number(step) and step:
        add(lambda value: _multiple(value, step), f"should be a multiple of {_format_number(step)}")
    edge = _RANGES.get(str(source.get("format")))
    if edge is not None and source.get("type") == "integer":
        add(lambda value: -edge <= value < edge, f"must be of type {source['format']}")
    return checks


def _multiple(value: float, step: float) -> bool:
    ratio = value / step
    return abs(ratio - round(ratio)) < 1e-9


def _format_number(number: Any) -> str:
    return str(int(number)) if float(number).is_integer() else repr(number)


def _text_checks(source: Mapping[str, Any]) -> list[ValueCheck]:
    checks: list[ValueCheck] = []
    least, most = source.get("minLength"), source.get("maxLength")
    pattern = go_pattern(str(source["pattern"])) if source.get("pattern") else None
    conforms = _FORMATS.get(str(source.get("format") or "").replace("-", ""))

    if least:

        def shortest(value: Any, path: str, problems: list[FieldProblem]) -> None:
            if isinstance(value, str) and len(value) < least:
                problems.append(invalid(path, value, f"{path} in body should be at least {least} chars long"))

        checks.append(shortest)
    if most is not None:

        def longest(value: Any, path: str, problems: list[FieldProblem]) -> None:
            if isinstance(value, str) and len(value) > most:
                problems.append(FieldProblem(path, TOO_LONG, f"Too long: may not be more than {most} bytes"))

        checks.append(longest)
    if pattern is not None:

        def matches(value: Any, path: str, problems: list[FieldProblem]) -> None:
            if not isinstance(value, str):
                return
            if len(value) > _MAX_MATCHED_LENGTH:
                problems.append(
                    FieldProblem(path, TOO_LONG, f"Too long: may not be more than {_MAX_MATCHED_LENGTH} bytes")
                )
            elif pattern.search(value) is None:
                problems.append(invalid(path, value, f"{path} in body should match '{source['pattern']}'"))

        checks.append(matches)
    if conforms is not None and source.get("type") == "string":

        def formatted(value: Any, path: str, problems: list[FieldProblem]) -> None:
            if isinstance(value, str) and not conforms(value):
                detail = f"{path} in body must be of type {source['format']}: {format_value(value)}"
                problems.append(invalid(path, value, detail))

        checks.append(formatted)
    return checks


def _size_checks(source: Mapping[str, Any]) -> list[ValueCheck]:
    checks: list[ValueCheck] = []

    def add(kind: type[list[Any]] | type[dict[str, Any]], least: Any, most: Any, noun: str) -> None:
        def check(value: Any, path: str, problems: list[FieldProblem]) -> None:
            if not isinstance(value, kind):
                return
            count = len(value)
            if least and count < least:
                problems.append(invalid(path, count, f"{path} in body should have at least {least} {noun}"))
            if most is not None and count > most:
                problems.append(FieldProblem(path, TOO_MANY, f"Too many: {count}: must have at most {most} items"))

        if least or most is not None:
            checks.append(check)

    add(list, source.get("minItems"), source.get("maxItems"), "items")
    add(dict, source.get("minProperties"), source.get("maxProperties"), "properties")
    return checks


def _combination_check(source: Mapping[str, Any]) -> ValueCheck:
    every = [compile_predicate(inner) for inner in source.get("allOf") or ()]
    some = [compile_predicate(inner) for inner in source.get("anyOf") or ()]
    one = [compile_predicate(inner) for inner in source.get("oneOf") or ()]
    none = compile_predicate(source["not"]) if isinstance(source.get("not"), dict) else None

    def check(value: Any, path: str, problems: list[FieldProblem]) -> None:
        def wrong(words: str) -> None:
            problems.append(FieldProblem(path, INVALID, f'Invalid value: "": "{path}" must {words}'))

        if every and not all(holds(value) for holds in every):
            wrong("validate all the schemas (allOf)")
        if some and not any(holds(value) for holds in some):
            wrong("validate at least one schema (anyOf)")
        if one:
            count = sum(holds(value) for holds in one)
            if count != 1:
                outcome = "Found none valid" if count == 0 else f"Found {count} valid alternatives"
                wrong(f"validate one and only one schema (oneOf). {outcome}")
        if none is not None and none(value):
            wrong("not validate the schema (not)")

    return check


def compile_predicate(source: Mapping[str, Any]) -> Callable[[Any], bool]:
    """A predicate for a schema inside `oneOf` and the like."""
    checks = compile_checks(source)
    kind = source.get("type")
    required = tuple(source.get("required") or ())
    fields = {name: compile_predicate(inner) for name, inner in (source.get("properties") or {}).items()}
    items = compile_predicate(source["items"]) if isinstance(source.get("items"), dict) else None
    values = source.get("additionalProperties")
    others = compile_predicate(values) if isinstance(values, dict) else None

    def holds(value: Any) -> bool:
        if kind and not _has_type(value, kind):
            return False
        problems: list[FieldProblem] = []
        for check in checks:
            check(value, "", problems)
            if problems:
                return False
        if isinstance(value, dict):
            if any(name not in value for name in required):
                return False
            for name, inner in value.items():
                test = fields.get(name, others)
                if test is not None and not test(inner):
                    return False
        elif isinstance(value, list) and items is not None:
            return all(map(items, value))
        return True

    return holds


def _has_type(value: Any, kind: str) -> bool:
    name = type_name(value)
    return name == kind or (kind == "number" and name == "integer")


class Pattern(Protocol):
    """A compiled regular expression."""

    def search(self, text: str) -> object:
        """A match anywhere in the text, or None."""
        ...


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_PATTERN_MEMORY
    return options


def go_pattern(pattern: str) -> Pattern | None:
    """A compiled Go regular expression; None if it is invalid or too large."""
    try:
        found: Pattern = re2.compile(pattern, _options())
    except (re2.error, UnicodeEncodeError):
        return None
    return found


def _succeeds(read: Callable[[str], object], *errors: type[Exception]) -> Callable[[str], bool]:
    def conforms(text: str) -> bool:
        try:
            read(text)
        except errors:
            return False
        return True

    return conforms


_DATE: Final = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_HOST: Final = re.compile(
    r"(?=.{1,253}\Z)[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*"
)
_URI: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:\S+|/\S*")
_MAC: Final = re.compile(r"([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}")

#: Formats that a real server checks, dashes left out; it ignores all others.
_FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "datetime": _succeeds(parse_timestamp, TimestampError),
    "duration": _succeeds(parse_duration, DurationError),
    "date": lambda text: _DATE.fullmatch(text) is not None,
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "hostname": lambda text: _HOST.fullmatch(text) is not None,
    "uri": lambda text: _URI.fullmatch(text) is not None,
    "mac": lambda text: _MAC.fullmatch(text) is not None,
    "ipv4": _succeeds(ipaddress.IPv4Address, ValueError),
    "ipv6": _succeeds(ipaddress.IPv6Address, ValueError),
    "cidr": _succeeds(lambda text: ipaddress.ip_network(text, strict=False), ValueError),
    "uuid": _succeeds(uuid.UUID, ValueError),
    "byte": _succeeds(lambda text: base64.b64decode(text, validate=True), binascii.Error),
}
