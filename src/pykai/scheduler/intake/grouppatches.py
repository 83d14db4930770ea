"""Our unseen patch of a PodGroup, applied to the object as the watch shows it (cycle:EXP-16).

Timestamps and conditions affect the next cycle, but the watch shows them a while after they were written.  A write
counts until the watch shows a version of the object at least as new as the answer to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import PodGroup, SchedulingCondition
from pykai.scheduler.intake.assumptions import Assumption, AssumptionKind


@dataclass(slots=True)
class AssumedGroupPatch(Assumption):
    """Our unseen writes on a PodGroup."""

    kind = AssumptionKind.PATCH
    uid: str
    #: None = removed
    annotations: dict[str, str | None] = field(default_factory=dict)
    conditions: list[SchedulingCondition] | None = None
    #: parts of the object on which a write is under way
    parts_in_flight: set[str] = field(default_factory=set)
    #: resource version of the last answer, 0 = none yet
    written_version: int = 0


def apply_patch(group: PodGroup, patch: AssumedGroupPatch | None) -> PodGroup:
    """A PodGroup with our writes applied."""
    if patch is None:
        return group
    if patch.annotations:
        annotations = {**group.metadata.annotations, **patch.annotations}
        kept = {key: value for key, value in annotations.items() if value is not None}
        group = replace(group, metadata=replace(group.metadata, annotations=kept))
    if patch.conditions is not None:
        group = replace(group, status=replace(group.status, scheduling_conditions=patch.conditions))
    return group


def is_patch_observed(patch: AssumedGroupPatch, meta: ObjectMeta) -> bool:
    """Whether a version of the object shows all that was written on it, or the writes have failed."""
    if patch.parts_in_flight:
        return False
    return (
        not patch.written_version
        or not meta.resource_version.isdecimal()
        or int(meta.resource_version) >= patch.written_version
    )
