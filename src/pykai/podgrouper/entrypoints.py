"""Groupers of third parties, from the entry-point group `pykai.groupers`, isolated from the service.

A grouper of a third party may fail to import, raise anything, or return something else than a group.  Each of these
becomes a refusal of the pod that names the entry point; nothing else is affected (kinds:entry-points).
"""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint
from typing import Any

from pykai.api.core import Pod
from pykai.api.meta import OwnerReference
from pykai.api.scheduling import SubGroup, TopologyConstraint
from pykai.podgrouper.metadata import (
    Grouper,
    GroupingError,
    GroupingSettings,
    GroupVersionKind,
    Metadata,
    ObjectNotRead,
    Owner,
    Readers,
)
from pykai.podgrouper.ownerspec import MAX_INT32, SUB_GROUP_NAME, is_object_name

_log = logging.getLogger(__name__)


class EntryPointGrouper:
    """A grouper of a third party; see the module."""

    def __init__(self, point: EntryPoint, grouper: Grouper) -> None:
        self.name = f"{point.name} = {point.value}"
        self._grouper = grouper
        self._failed = False

    def __call__(
        self, top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
    ) -> Metadata:
        """The group of a pod; see `metadata.Grouper`."""
        try:
            found: object = self._grouper(top, pod, owners, settings, readers)
        except (ObjectNotRead, GroupingError):
            raise
        except (Exception, SystemExit) as error:
            # The traceback once: a job of a thousand pods would flood the log.
            _log.log(
                logging.DEBUG if self._failed else logging.ERROR, "the grouper %s failed", self.name, exc_info=error
            )
            self._failed = True
            raise GroupingError(f"the grouper {self.name} failed: {type(error).__name__}: {error}") from None
        problem = _problem_of(found, pod)
        if problem or not isinstance(found, Metadata):
            raise GroupingError(f"the grouper {self.name} returned an unusable group: {problem}")
        return found


def load_grouper(point: EntryPoint) -> tuple[GroupVersionKind, Grouper] | None:
    """Kind and grouper of an entry point; None for an unusable one, which is logged."""
    parts = point.name.rsplit("/", 2)
    try:
        grouper = point.load()
        if len(parts) < 2 or not callable(grouper):
            raise TypeError("the name must be <group>/<version>/<Kind> and the value a function")
    except (Exception, SystemExit) as error:
        # Importing foreign code may raise anything.
        _log.warning("The grouper %r of %s cannot be used: %s", point.name, point.value, error)
        return None
    version, kind = parts[-2:]
    return (parts[0] if len(parts) == 3 else "", version, kind), EntryPointGrouper(point, grouper)


def _problem_of(found: Any, pod: Pod) -> str:
    """What is wrong with a result, "" for nothing."""
    if not isinstance(found, Metadata):
        return f"it is a {type(found).__name__}, not a Metadata"
    if not isinstance(found.name, str) or not is_object_name(found.name):
        return f"its name {found.name!r:.100} is no name of an object"
    if found.namespace != pod.metadata.namespace:
        return f"its namespace {found.namespace!r:.100} is not that of the pod"
    if not isinstance(found.owner, OwnerReference) or not isinstance(found.topology, TopologyConstraint):
        return "its owner or topology is of another type"
    for field in ("queue", "priority_class", "preemptibility", "pod_sub_group"):
        if not isinstance(getattr(found, field), str):
            return f"its {field} is no text"
    for field in ("labels", "annotations"):
        entries = getattr(found, field)
        if not isinstance(entries, dict) or not all(isinstance(text, str) for pair in entries.items() for text in pair):
            return f"its {field} are no texts by texts"
    return _wrong_number(found) or _wrong_sub_group(found)


def _wrong_number(found: Metadata) -> str:
    for field in ("min_available", "min_sub_group"):
        number: object = getattr(found, field)
        if number is None and field == "min_sub_group":
            continue
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_INT32:
            return f"its {field} {number!r:.40} is no number from 0 to {MAX_INT32}"
    for field in ("preemption_delay_ns", "staleness_grace_ns"):
        span: object = getattr(found, field)
        if span is not None and not isinstance(span, int):
            return f"its {field} {span!r:.40} is no whole number"
    return ""


def _wrong_sub_group(found: Metadata) -> str:
    if not isinstance(found.sub_groups, tuple) or not all(isinstance(each, SubGroup) for each in found.sub_groups):
        return "its sub_groups are no tuple of SubGroups"
    named = [each.name for each in found.sub_groups]
    wrong = next((name for name in named if not isinstance(name, str) or not SUB_GROUP_NAME.fullmatch(name)), None)
    if wrong is not None:
        return f"the name {wrong!r:.100} of a subgroup is not one of lower-case letters, digits and dashes"
    if found.pod_sub_group and found.pod_sub_group not in named:
        return f"its pod_sub_group {found.pod_sub_group!r:.100} is none of its subgroups"
    return ""
