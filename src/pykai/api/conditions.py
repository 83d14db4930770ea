"""Conditions of an object's status: status, reason, message and transition time.

A service computes each `DesiredCondition`; `merge_conditions` compares them with the object and returns the list to
write, or None if nothing would change.  `lastTransitionTime` changes only with the status of a condition. Conditions of
other types belong to other writers and stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

ConditionDocument = dict[str, Any]


class DesiredCondition(NamedTuple):
    """A desired condition."""

    type: str
    is_true: bool
    reason: str
    message: str = ""


def merge_conditions(
    existing: object, desired: Iterable[DesiredCondition], now: str, *, with_transition_ids: bool = False
) -> list[ConditionDocument] | None:
    """The conditions to write, None if they are up to date; `numbered` gives each transition a `transitionID`."""
    entries = [dict(entry) for entry in existing if isinstance(entry, Mapping)] if isinstance(existing, list) else []
    position = {entry.get("type"): index for index, entry in enumerate(entries)}
    transition_id = max((_transition_number(entry.get("transitionID")) for entry in entries), default=0)
    changed = False
    for condition in desired:
        entry_to_write: ConditionDocument = {"type": condition.type, "status": "True" if condition.is_true else "False"}
        entry_to_write |= {"reason": condition.reason, "message": condition.message}
        index = position.get(condition.type)
        current = entries[index] if index is not None else {}
        # An absent message is an empty one: writers leave empty text out.
        if all(current.get(key, "") == value for key, value in entry_to_write.items()):
            continue
        changed = True
        if current.get("status") == entry_to_write["status"]:
            kept_fields = ("lastTransitionTime", "transitionID")
            entry_to_write |= {key: current[key] for key in kept_fields if key in current}
        else:
            transition_id += 1
            entry_to_write["lastTransitionTime"] = now
            if with_transition_ids:
                entry_to_write["transitionID"] = str(transition_id)
        if index is None:
            entries.append(entry_to_write)
        else:
            entries[index] = entry_to_write
    return entries if changed else None


def _transition_number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 19 else 0
