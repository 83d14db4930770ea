"""A plan with all its sentences.

`told(plan)` collects every text that statuses, events and the command line derive from a plan.
"""

from __future__ import annotations

import json
from typing import Any

from tools.compare.adapter import find, plan_bytes


def told(plan: Any) -> dict[str, Any]:
    """All sentences about a plan."""
    queues = {each.name: each for each in plan.queues}
    groups = {}
    for group in plan.unscheduled:
        refusals = []
        for refusal in group.refusals:
            said = {"reason": find("reason_of")(refusal), "text": find("refusal_text")(refusal)}
            if hasattr(refusal, "asked") and refusal.queue in queues:
                said["details"] = find("queue_details")(refusal, queues[refusal.queue])
            refusals.append(said)
        groups[f"{group.namespace}/{group.group}"] = {
            "text": find("group_text")(group),
            "detailed": find("detailed_group_text")(group),
            "refusals": refusals,
            "verdicts": [find("verdict_text")(each) for each in group.verdicts],
        }
    return {
        "groups": groups,
        "stale": [find("stale_text")(each) for each in plan.stale],
        "orphans": [find("orphan_text")(each) for each in plan.orphans],
        "queues": [find("queue_line")(each) for each in plan.queues],
        "held": [find("refusal_text")(each.held) for each in plan.nominations if each.held is not None],
    }


def record(case: str, cycle: int, plan: Any, **more: Any) -> dict[str, Any]:
    """A plan as it is compared."""
    return {"case": case, "cycle": cycle, "plan": json.loads(plan_bytes(plan)), "said": told(plan), **more}
