"""Names and sentences of the board: what a plan evicts, and for which group."""

from __future__ import annotations

from collections import defaultdict

from pykai.core.actions import ACTIONS
from pykai.core.report.decisions import Plan

#: length of a dash and a uid
_UID = 37


def eviction_sentences(plan: Plan) -> list[str]:
    """What a plan evicts: a sentence for every group that others make room for."""
    evicted_groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for eviction in plan.evictions:
        evicted_groups[eviction.action, eviction.preemptor].append(short_name(eviction.group))
    return [
        texts.summary.format(
            pods=f"{len(victims)} pod{'s' if len(victims) > 1 else ''}",
            victims=" and ".join(sorted(set(victims))),
            group=short_name(preemptor),
        )
        for (action, preemptor), victims in evicted_groups.items()
        if (texts := ACTIONS[action].texts) is not None
    ]


def short_name(group: str) -> str:
    """`default/pg-train-<uid>` as people call it: `train`."""
    name = group.rpartition("/")[2]
    return name[3:-_UID] if name.startswith("pg-") and len(name) > _UID + 3 else name
