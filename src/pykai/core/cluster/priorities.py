"""PodGroups whose priority class does not exist.

They get the default priority, which may make them preemptible or put them last; KAI does so silently (queues:Q-80).
A class may be created or deleted at any time, so every cycle looks up which groups name an unknown one.
Kinds of groups are few, and groups are read only where a kind is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest

from pykai.api.core import PriorityClass
from pykai.core.cluster.groupindex import GroupIndex
from pykai.core.model.priorityclasses import default_class, default_priority
from pykai.core.model.problems import Problem

#: Groups that are reported at a time; the others are reported when these are gone or corrected.
_MAX_REPORTED = 100


def unknown_class_problems(group_index: GroupIndex, classes: Mapping[str, PriorityClass]) -> tuple[Problem, ...]:
    """Problems of waiting groups that name a class that does not exist."""
    unknown = {kind.priority_class for kind in group_index.kinds} - classes.keys() - {""}
    if not unknown:
        return ()
    waiting = (
        (key, entry.group.priority_class)
        for key, entry in group_index.waiting.items()
        if entry.group is not None and entry.group.priority_class in unknown
    )
    default = default_class(classes)
    fallback = f"priority {default_priority(classes)} is used instead"
    if default is not None:
        fallback += f", that of the default class {default.metadata.name}"
    return tuple(
        Problem(f"PodGroup/{key}", "spec.priorityClassName", f"priority class {name!r} does not exist; {fallback}")
        for key, name in nsmallest(_MAX_REPORTED, waiting)
    )
