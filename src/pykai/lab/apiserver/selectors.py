"""Label and field selectors: `app=web,tier in (a,b),!old` and `spec.nodeName=n1,status.phase!=Failed`.

A selector is parsed once per request and evaluated per object. Records keep labels and selectable fields beside their
bytes, so filtering decodes no object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pykai.lab.apiserver.apierrors import bad_request

#: says whether labels (or fields) match
LabelPredicate = Callable[[Mapping[str, str]], bool]

_SET: Final = re.compile(r"^\s*(\S+)\s+(in|notin)\s*\(([^)]*)\)\s*$")
_KEY: Final = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")


def _split(text: str) -> list[str]:
    """At commas outside parentheses."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    parts.append(text[begin:])
    return parts


def _requirement(operator: str, key: str, values: Iterable[str]) -> LabelPredicate:
    wanted = frozenset(values)
    if operator == "in":
        if len(wanted) == 1:
            (only,) = wanted
            return lambda labels: labels.get(key) == only
        return lambda labels: labels.get(key) in wanted
    if operator == "notin":
        return lambda labels: labels.get(key) not in wanted
    if operator == "exists":
        return lambda labels: key in labels
    if operator == "gt":
        return lambda labels: _number(labels.get(key)) > _number(next(iter(wanted)))
    if operator == "lt":
        return lambda labels: key in labels and _number(labels.get(key)) < _number(next(iter(wanted)))
    return lambda labels: key not in labels


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def _all_of(tests: list[LabelPredicate]) -> LabelPredicate | None:
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def parse_label_selector(text: str) -> LabelPredicate | None:
    """The predicate of a label selector; None if it selects everything."""
    tests = []
    for part in _split(text):
        part = part.strip()
        if not part:
            continue
        match = _SET.match(part)
        if match is not None:
            key, operator, listed = match.groups()
            values = [value.strip() for value in listed.split(",")]
        elif "!=" in part:
            key, _, value = part.partition("!=")
            operator, values = "notin", [value.strip()]
        elif "==" in part:
            key, _, value = part.partition("==")
            operator, values = "in", [value.strip()]
        elif "=" in part:
            key, _, value = part.partition("=")
            operator, values = "in", [value.strip()]
        elif ">" in part or "<" in part:
            operator = "gt" if ">" in part else "lt"
            key, _, value = part.partition(">" if operator == "gt" else "<")
            values = [value.strip()]
        elif part.startswith("!"):
            operator, key, values = "absent", part[1:], []
        else:
            operator, key, values = "exists", part, []
        key = key.strip()
        if not _KEY.match(key):
            raise bad_request(f"unable to parse requirement: {key!r} is not a label key (in the selector {text!r})")
        tests.append(_requirement(operator, key, values))
    return _all_of(tests)


def parse_field_selector(text: str, selectable_fields: Iterable[str], kind: str) -> LabelPredicate | None:
    """The predicate of a field selector; unsupported fields are refused."""
    tests = []
    for part in _split(text):
        part = part.strip()
        if not part:
            continue
        operator = "notin" if "!=" in part else "in"
        key, sign, value = part.partition("!=" if operator == "notin" else "==" if "==" in part else "=")
        if not sign:
            raise bad_request(f'invalid selector: "{text}"; can\'t understand "{part}"')
        key = key.strip()
        if key not in selectable_fields:
            raise bad_request(f"field label not supported: {key} (of {kind})")
        tests.append(_requirement(operator, key, [value.strip()]))
    return _all_of(tests)


def selector_matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector object selects these labels; None selects nothing, the empty one everything."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for term in selector.get("matchExpressions") or ():
        key, operator, values = term.get("key"), term.get("operator"), term.get("values") or ()
        if operator == "In":
            is_match = labels.get(key) in values
        elif operator == "NotIn":
            is_match = labels.get(key) not in values
        elif operator == "Exists":
            is_match = key in labels
        else:
            is_match = key not in labels
        if not is_match:
            return False
    return True
