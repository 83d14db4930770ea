"""The annotation with the top owner of a PodGroup, byte for byte as KAI writes it.

It is a YAML block of five texts.  Text that YAML would take for something else (a number, a date, `true`, `no`, nothing
at all) is quoted; names of Kubernetes objects hold no other characters that would need it.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Final

from pykai.podgrouper.metadata import Owner

_YAML_KEYWORDS: Final = frozenset(
    spelling
    for word in ("y", "yes", "true", "on", "n", "no", "false", "off", "null", ".inf", ".nan")
    for spelling in (word, word.capitalize(), word.upper())
) | {"", "~", "<<", "=", ".Inf", ".INF", ".NaN", ".NAN"}
_DECIMAL: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_DIGITS_OF: Final = {"0x": "[0-9a-f]", "0o": "[0-7]", "0b": "[01]"}
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_SEXAGESIMAL: Final = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")


def top_owner_text(top: Owner) -> str:
    """The value of `kai.scheduler/top-owner-metadata`."""
    fields = {
        "name": top.metadata.name,
        "uid": top.metadata.uid,
        "group": top.group,
        "version": top.version,
        "kind": top.kind,
    }
    return "".join(f"{key}: {_quoted(text)}\n" for key, text in fields.items())


def _quoted(text: str) -> str:
    return f'"{text}"' if text in _YAML_KEYWORDS or _is_number(text) or _is_date(text) else text


def _is_number(text: str) -> bool:
    if not text[:1] or text[0] not in "+-.0123456789":
        return False
    # YAML lets underscores part the digits of a number.
    plain = text.replace("_", "")
    unsigned = plain.lstrip("+-").lower()
    digits = _DIGITS_OF.get(unsigned[:2])
    if digits is not None and re.fullmatch(f"{digits}+", unsigned[2:]):
        return int(unsigned, 0) < 1 << 64
    return bool(_DECIMAL.fullmatch(plain) or _SEXAGESIMAL.fullmatch(text))


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    try:
        date(*map(int, match.groups()))
    except ValueError:
        return False
    return True
