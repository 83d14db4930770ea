"""Label selectors as people write them: `team=vision,env in (test, prod),!archived`.

The text of a selector is that of `kubectl -l`; the result is the LabelSelector of the API.  Reading is strict: what
`kubectl` would refuse is refused here, with the part that is wrong, and so is a selector that selects everything.  The
time is linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import Final

from pykai.api.meta import LabelSelector, LabelSelectorRequirement

_LONGEST_NAME: Final = 63
_LONGEST_PREFIX: Final = 253
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_SET: Final = re.compile(r"([^\s()!=,]+)\s+(in|notin)\s*\(([^()]*)\)")
_COMPARISON: Final = re.compile(r"([^\s()!=,]+)\s*(==|!=|=)\s*([^\s()!=,]*)")
_OPERATORS: Final = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn"}
#: of a wrong part, as much as a message shows
_SHOWN: Final = 80


class LabelSelectorError(ValueError):
    """The text is no label selector; the message says which part is wrong."""


def read_label_selector(text: str) -> LabelSelector:
    """The selector of a text; raises `LabelSelectorError`."""
    if not text.strip():
        raise LabelSelectorError("the selector is empty")
    return LabelSelector(match_expressions=tuple(_requirement(part.strip()) for part in _split(text)))


def _split(text: str) -> list[str]:
    """At commas outside parentheses."""
    parts: list[str] = []
    begin = 0
    inside = False
    for at, letter in enumerate(text):
        if letter in "()":
            inside = letter == "("
        elif letter == "," and not inside:
            parts.append(text[begin:at])
            begin = at + 1
    parts.append(text[begin:])
    return parts


def _requirement(part: str) -> LabelSelectorRequirement:
    found = _SET.fullmatch(part)
    if found is not None:
        key, operator, listed = found.groups()
        values = tuple(value.strip() for value in listed.split(","))
    elif (found := _COMPARISON.fullmatch(part)) is not None:
        key, operator, value = found.groups()
        values = (value,)
    else:
        absent = part.startswith("!")
        return LabelSelectorRequirement(
            key=_checked_key(part[1:].strip() if absent else part), operator="DoesNotExist" if absent else "Exists"
        )
    return LabelSelectorRequirement(
        key=_checked_key(key), operator=_OPERATORS[operator], values=tuple(map(_checked_value, values))
    )


def _checked_key(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if (
        len(name) > _LONGEST_NAME
        or len(prefix) > _LONGEST_PREFIX
        or _NAME.fullmatch(name) is None
        or (slash and _PREFIX.fullmatch(prefix) is None)
    ):
        raise LabelSelectorError(f"{_shown(key)} is not a requirement such as team=vision, nor the key of a label")
    return key


def _checked_value(value: str) -> str:
    if len(value) > _LONGEST_NAME or (value and _NAME.fullmatch(value) is None):
        raise LabelSelectorError(f"{_shown(value)} is not the value of a label")
    return value


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
