"""The text of an expression as tokens."""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

from pykai.podgrouper.jq.budget import MAX_LENGTH, JqSyntaxError

#: longest first
_OPERATORS: Final = (
    ("?//", "//=", "..")
    + ("|=", "+=", "-=", "*=", "/=", "%=", "==", "!=", "<=", ">=", "//")
    + tuple(".[]|,()+-*/%<>?;:={}")
)
_TOKEN: Final = re.compile(
    r"(?P<blank>[ \t\r\n]+|#[^\n]*)"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r'|(?P<text>"(?:[^"\\\x00-\x1f]|\\.)*")'
    r"|(?P<field>\.[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<variable>\$[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<format>@[A-Za-z0-9_]+)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z_][A-Za-z0-9_]*)*)"
    rf"|(?P<operator>{'|'.join(re.escape(each) for each in _OPERATORS)})"
)
_REFUSED: Final = {
    "..": "the recursive descent `..`",
    "?//": "the alternative patterns `?//`",
    "{": "the construction of objects `{...}`",
    "}": "the construction of objects `{...}`",
    **dict.fromkeys(("=", "|=", "+=", "-=", "*=", "/=", "%=", "//="), "an assignment"),
}


class Token(NamedTuple):
    """One token; `kind` is number, text, field, variable, word or operator, or end."""

    kind: str
    #: of a text its value, of a field and a variable the name
    value: str
    position: int


def tokens(text: str) -> list[Token]:
    """The tokens of an expression, an end behind them; raises `JqSyntaxError`."""
    if len(text) > MAX_LENGTH:
        raise JqSyntaxError(text, 0, f"it has {len(text)} characters, more than {MAX_LENGTH}")
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            what = "text without an end" if text[position] == '"' else f"the character {text[position]!r}"
            raise JqSyntaxError(text, position, f"{what} is not expected")
        kind = str(match.lastgroup)
        if kind != "blank":
            found.append(Token(kind, _value(text, kind, match.group(), position), position))
        position = match.end()
    found.append(Token("end", "", len(text)))
    return found


def _value(text: str, kind: str, found: str, position: int) -> str:
    if kind in ("field", "variable"):
        return found[1:]
    if kind == "text":
        return _unquoted(text, found, position)
    if kind == "format":
        raise JqSyntaxError(text, position, f"the format {found} is not part of the subset")
    if found in _REFUSED:
        raise JqSyntaxError(text, position, f"{_REFUSED[found]} is not part of the subset")
    return found


def _unquoted(text: str, found: str, position: int) -> str:
    # Backslashes in pairs are text; an odd one before a parenthesis is not.
    if re.search(r"(?<!\\)(?:\\\\)*\\\(", found):
        raise JqSyntaxError(text, position, r"text with \(...) is not part of the subset")
    try:
        # Half of a surrogate pair is no character.
        return str(json.loads(found)).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    except ValueError as error:
        raise JqSyntaxError(text, position, "the text has an escape that does not exist") from error
