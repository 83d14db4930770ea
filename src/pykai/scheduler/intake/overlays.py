"""Our unseen writes on a PodGroup, overlaid on the object as the watch shows it (cycle:EXP-16).

Stamps and conditions affect the next cycle, but the watch shows them a while after they were written.  A write counts
until the watch shows a version of the object at least as new as the answer to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import PodGroup, SchedulingCondition
from pykai.scheduler.intake.assumptions import Assumption, AssumptionKind


@dataclass(slots=True)
class GroupOverlay(Assumption):
    """Our unseen writes on a PodGroup."""

    kind = AssumptionKind.NOTE
    uid: str
    #: None = removed
    annotations: dict[str, str | None] = field(default_factory=dict)
    conditions: list[SchedulingCondition] | None = None
    #: parts of the object on which a write is under way
    parts_in_flight: set[str] = field(default_factory=set)
    #: resource version of the last answer, 0 = none yet
    written_version: int = 0


def apply_overlay(group: PodGroup, overlay: GroupOverlay | None) -> PodGroup:
    """A PodGroup with our writes applied."""
    if overlay is None:
        return group
    if overlay.annotations:
        annotations = {**group.metadata.annotations, **overlay.annotations}
        kept = {key: value for key, value in annotations.items() if value is not None}
        group = replace(group, metadata=replace(group.metadata, annotations=kept))
    if overlay.conditions is not None:
        group = replace(group, status=replace(group.status, scheduling_conditions=overlay.conditions))
    return group


def overlay_is_observed(overlay: GroupOverlay, meta: ObjectMeta) -> bool:
    """Whether a version of the object shows all that was written on it, or the writes have failed."""
    if overlay.parts_in_flight:
        return False
    return (
        not overlay.written_version
        or not meta.resource_version.isdecimal()
        or int(meta.resource_version) >= overlay.written_version
    )
