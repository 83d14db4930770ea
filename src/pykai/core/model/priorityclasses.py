"""The priority of groups, and whether it makes them preemptible (queues:Q-80 to Q-82)."""

from __future__ import annotations

from collections.abc import Mapping

from pykai.api import names
from pykai.api.core import PriorityClass


def default_class(classes: Mapping[str, PriorityClass]) -> PriorityClass | None:
    """The class of groups that name none; None when there is no default class."""
    defaults = [item for item in classes.values() if item.global_default]
    return min(defaults, key=lambda item: item.metadata.name, default=None)


def default_priority(classes: Mapping[str, PriorityClass]) -> int:
    """Priority of groups whose class is not known (queues:Q-80)."""
    default = default_class(classes)
    return names.DEFAULT_JOB_PRIORITY if default is None else default.value


def class_priority(name: str, classes: Mapping[str, PriorityClass]) -> int:
    """Priority of groups that name this class; "" = none (queues:Q-80)."""
    found = classes.get(name)
    return default_priority(classes) if found is None else found.value


def is_preemptible(preemptibility: str, priority: int) -> bool:
    """Whether groups that say this are preemptible as a whole (queues:Q-81, Q-82, Q-85; cycle:POL-2)."""
    if preemptibility == names.PREEMPTIBLE:
        return True
    if preemptibility in (names.NON_PREEMPTIBLE, names.SEMI_PREEMPTIBLE):
        return False
    return priority < names.NON_PREEMPTIBLE_PRIORITY
