"""The first difference between two lines of runners: case, cycle, field, and both values."""

from __future__ import annotations

import json
from typing import Any

from tools.compare.owning import without_own, without_own_writes

_MAX_CHAIN_LENGTH = 400


def first_difference(old: str, new: str, *, ignore_own: bool = False, ignore_work: bool = False) -> str:
    """What differs, "" when nothing does."""
    if old == new:
        return ""
    one, other = json.loads(old), json.loads(new)
    if ignore_own:
        one, other = (without_own_writes(without_own(each)) for each in (one, other))
    if ignore_work:
        for each in (one, other):
            each.get("plan", {}).pop("work", None)
    found = _field(one, other, "")
    if found is None:
        return ""
    path, before, after = found
    where = f"{one.get('case')}, cycle {one.get('cycle')}"
    if (one.get("case"), one.get("cycle")) != (other.get("case"), other.get("cycle")):
        where += f" (new: {other.get('case')}, cycle {other.get('cycle')})"
    return f"{where}: {path or 'the line'} differs\n  old: {_text(before)}\n  new: {_text(after)}"


def _text(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _MAX_CHAIN_LENGTH else f"{text[:_MAX_CHAIN_LENGTH]}..."


def _field(old: Any, new: Any, path: str) -> tuple[str, Any, Any] | None:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            inner = f"{path}.{key}".lstrip(".")
            if key not in old or key not in new:
                return inner, old.get(key, "(absent)"), new.get(key, "(absent)")
            if found := _field(old[key], new[key], inner):
                return found
        return None
    if isinstance(old, list) and isinstance(new, list):
        for number, (one, other) in enumerate(zip(old, new, strict=False)):
            if found := _field(one, other, f"{path}[{number}]"):
                return found
        if len(old) != len(new):
            number = min(len(old), len(new))
            longer = old[number:] or new[number:]
            rest = longer[0]
            return (
                f"{path}[{number}]",
                rest if len(old) > number else "(absent)",
                (rest if len(new) > number else "(absent)"),
            )
        return None
    return None if type(old) is type(new) and old == new else (path, old, new)
