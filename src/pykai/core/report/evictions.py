"""Event texts of evicted pods (cycle:RCL-2, STL-4): KAI's sentences, one for each action that evicts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from pykai.api import names
from pykai.core.report.decisions import QueueFigures
from pykai.core.report.sentences import queue_line


class EvictionFacts(NamedTuple):
    """The facts about one evicted pod."""

    #: namespace/name
    pod: str
    #: namespace/name of the group it makes room for, "" when none
    preemptor: str
    subgroup: str
    #: pods its subgroup needs, None when the group has no such subgroup
    minimum: int | None
    #: the queues above the victim and the preemptor that compete, as they were before the eviction
    queues: tuple[QueueFigures, ...] = ()


def moved_text(facts: EvictionFacts) -> str:
    """A pod that consolidation moves."""
    return f"Pod {facts.pod} was preempted and rescheduled due to bin packing (resource consolidation) procedure"


def reclaimed_text(facts: EvictionFacts) -> str:
    """A pod that another queue reclaims."""
    return f"Pod {facts.pod} was preempted by workload {facts.preemptor}.\n{_queue_lines(facts.queues)}"


@lru_cache(maxsize=16)
def _queue_lines(queues: tuple[QueueFigures, ...]) -> str:
    """The same for all victims of one queue."""
    return "\n".join(map(queue_line, queues))


def preempted_text(facts: EvictionFacts) -> str:
    """A pod that higher priority in its own queue preempts."""
    return f"Pod {facts.pod} was preempted by higher priority workload {facts.preemptor}"


def stale_pod_text(facts: EvictionFacts) -> str:
    """A pod of a gang that lost its minimum."""
    least = "" if facts.minimum is None else f" ({facts.minimum})"
    where = "" if facts.subgroup == names.DEFAULT_SUBGROUP else f" in sub-group {facts.subgroup}"
    return (
        f"Workload doesn't meet the minimum required number of pods{least}{where}, evicting remaining pod: {facts.pod}"
    )


class EvictionTexts(NamedTuple):
    """The texts of one action about the pods it evicts."""

    #: the event of one pod
    event: Callable[[EvictionFacts], str]
    #: displays: how many {pods} of which {victims}, for which {group}
    summary: str


MOVED = EvictionTexts(moved_text, "consolidation: {pods} of {victims} move together, so that {group} fits")
RECLAIMED = EvictionTexts(reclaimed_text, "reclaim: {pods} of {victims} make room for {group}")
PREEMPTED = EvictionTexts(preempted_text, "preempt: {pods} of {victims} make room for {group}, which is more urgent")
STALE = EvictionTexts(stale_pod_text, "stale gang: {pods} of {victims} are removed, too little of the gang is left")


def no_other_place_text(group: str) -> str:
    """Why consolidation rejects a set of victims."""
    return f"there is no other place for {group}"


MOVED_BACK = "those who move would come back"


def missing_subgroups_text(subgroup: str, needed: int, found: int) -> str:
    """A subgroup, "" for the group itself, that has fewer children than it needs."""
    where = f'subgroup "{subgroup}"' if subgroup else "the group"
    return f"{where} needs {needed} subgroups and has only {found}"
