"""Conditions of an object's status: what holds, since when, and why.

A service says what holds (`Standing`); `merged` compares that with what stands in the object and gives the list to
write, or None when nothing would change.  `lastTransitionTime` moves only when the status of a condition turns.
Conditions of types that the service does not speak of are somebody else's and stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Document = dict[str, Any]


class Standing(NamedTuple):
    """One condition as it should read."""

    type: str
    holds: bool
    reason: str
    message: str = ""


def merged(
    existing: object, standings: Iterable[Standing], now: str, *, numbered: bool = False
) -> list[Document] | None:
    """The conditions to write, None if they stand there already; `numbered` gives each turn a `transitionID`."""
    entries = [dict(entry) for entry in existing if isinstance(entry, Mapping)] if isinstance(existing, list) else []
    position = {entry.get("type"): index for index, entry in enumerate(entries)}
    turn = max((_number(entry.get("transitionID")) for entry in entries), default=0)
    changed = False
    for standing in standings:
        wanted: Document = {"type": standing.type, "status": "True" if standing.holds else "False"}
        wanted |= {"reason": standing.reason, "message": standing.message}
        index = position.get(standing.type)
        known = entries[index] if index is not None else {}
        # An absent message is an empty one: writers leave empty text out.
        if all(known.get(key, "") == value for key, value in wanted.items()):
            continue
        changed = True
        if known.get("status") == wanted["status"]:
            kept = ("lastTransitionTime", "transitionID")
            wanted |= {key: known[key] for key in kept if key in known}
        else:
            turn += 1
            wanted["lastTransitionTime"] = now
            if numbered:
                wanted["transitionID"] = str(turn)
        if index is None:
            entries.append(wanted)
        else:
            entries[index] = wanted
    return entries if changed else None


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 19 else 0
