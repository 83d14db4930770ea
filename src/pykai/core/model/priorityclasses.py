"""The priority of groups whose class is missing or unknown (queues:Q-80)."""

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
