"""Removes sentences of our own, which may change on purpose, before a comparison.

Sentences of KAI Scheduler (cycle:EXP-1 to EXP-12, queues:Q-206 and Q-208, topo:T-21 and T-40, operations:E-24 and E-25)
are always compared; so are reasons, which programs read.
"""

from __future__ import annotations

import json
import re
from typing import Any

#: kinds of refusals whose sentence is ours; `_is_own` knows the ones that are ours in part
OWN_REFUSALS = frozenset(
    (
        "NotLeafQueue",
        "BrokenTree",
        "NotSupported",
        "FurtherDomains",
        "WaysSpent",
        "FreeRoomOnly",
        "Postponed",
        "OverBudget",
    )
)
#: fields of refusals that hold such a sentence
_OWN_FIELDS = {"BrokenTree": ("text",), "NoQueue": ("fault",), "FreeRoomOnly": ("cause",), "NotSupported": ("what",)}


def _is_own(refusal: dict[str, Any]) -> bool:
    kind = refusal.get("type")
    if kind == "NoQueue":
        return bool(refusal.get("fault"))
    if kind == "WithinDelay":
        return refusal.get("until_ns") is None
    return kind in OWN_REFUSALS


def _cut(text: str) -> str:
    """A sentence of a queue without what we add about pods that are being deleted."""
    return text.split(" are still held by pods being deleted")[0].rpartition(". ")[0]


def without_own(compared: dict[str, Any]) -> dict[str, Any]:
    """A record without sentences of ours; decisions, figures and ids stay."""
    if "plan" not in compared:
        return compared
    result: dict[str, Any] = json.loads(json.dumps(compared))
    plan, said = result["plan"], result["said"]
    plan["problems"] = len(plan["problems"])
    plan["stopped"] = len(plan["stopped"])
    said["orphans"] = len(said["orphans"])
    said["held"] = [_cut(text) for text in said["held"]]
    for group in plan["unscheduled"]:
        texts = said["groups"][f"{group['namespace']}/{group['group']}"]
        texts["verdicts"] = len(texts["verdicts"])
        own = False
        for refusal, line in zip(group["refusals"], texts["refusals"], strict=True):
            leaving = bool(refusal.get("leaving"))
            if leaving:
                line["text"] = _cut(line["text"])
            elif _is_own(refusal):
                line["text"] = ""
            own |= leaving or _is_own(refusal)
            for field in _OWN_FIELDS.get(refusal.get("type", ""), ()):
                refusal[field] = bool(refusal.get(field))
        for verdict in group["verdicts"]:
            # Why a set of victims is not fair is a sentence; names have no blanks.
            verdict["other"] = "" if " " in verdict["other"] else verdict["other"]
        if own:
            texts["text"] = texts["detailed"] = ""
    return result


#: events whose text is ours, and conditions that KAI Scheduler does not have
_OWN_EVENTS = re.compile(r"^(GangBroken|BindsFailed|Unreadable|PodGrouperWarning|GPUReservationMissing|Invalid.*)$")
_OWN_CONDITIONS = frozenset(("Valid", "Ready", "Scheduled", "Running", "Orphan", "Cyclic", "OverQuota"))


def without_own_writes(compared: dict[str, Any]) -> dict[str, Any]:
    """The same for a write of a service."""
    body = (compared.get("write") or {}).get("body")
    if not isinstance(body, dict):
        return compared
    result: dict[str, Any] = json.loads(json.dumps(compared))
    body = result["write"]["body"]
    if body.get("kind") == "Event" and _OWN_EVENTS.match(str(body.get("reason"))):
        body["message"] = ""
    status = body.get("status")
    for condition in (status.get("conditions") or ()) if isinstance(status, dict) else ():
        if condition.get("type") in _OWN_CONDITIONS:
            condition["message"] = ""
    return result
