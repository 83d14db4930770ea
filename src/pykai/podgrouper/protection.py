"""What a group keeps while its pods have nodes, so that its workload cannot protect them later (protect:grouper).

Priority and preemptibility come from labels that a tenant may change at any time.  Pods that were placed beyond the
quota of their queue must stay what they were then, or no other queue gets its quota back.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from pykai.api import names
from pykai.api.core import PriorityClass
from pykai.api.decode import decode_as
from pykai.api.scheduling import PodGroup
from pykai.core.model.problems import Problem
from pykai.core.model.protected import may_protect, newly_protected
from pykai.podgrouper.metadata import GroupingError, Metadata
from pykai.podgrouper.writes import new_group

Classes = Mapping[str, PriorityClass]
_FIELDS: Final = ("priorityClassName", "preemptibility", "minMember", "minSubGroup", "subGroups")


def keep_protection(before: PodGroup | None, meta: Metadata, held: Mapping[str, int], classes: Classes) -> Metadata:
    """The result without what would protect pods that have a node, and with that as a problem.

    `before` is the group as it is, or as it was before it was deleted; `held` counts the pods by subgroup.
    """
    if not _protects(before, meta, held, classes):
        return meta
    kept = next(each for each in _weaker(before, meta) if not _protects(before, each, held, classes))
    fields = ", ".join(f"spec.{name}" for name in _changed(meta, kept))
    text = (
        f"{sum(held.values())} pods of the group have a node, maybe beyond the quota of their queue, and would be "
        "protected; the group stays as it is until none has"
    )
    problem = Problem(f"PodGroup/{meta.namespace}/{meta.name}", fields, text)
    return replace(kept, problems=(*kept.problems, problem))


def may_be_protected(before: PodGroup, meta: Metadata, classes: Classes) -> bool:
    """Whether a change of the group could protect pods, whichever have a node."""
    return may_protect(before, _as_group(before, meta), classes)


def refuse_protected_join(
    old: PodGroup | None, group: PodGroup, meta: Metadata, held: Mapping[str, int], classes: Classes
) -> None:
    """Raise `GroupingError` where a pod that has a node would be protected by the group that it moves to."""
    if newly_protected(old, group, held, classes):
        raise GroupingError(
            f"the pod has a node, maybe beyond the quota of its queue, and PodGroup {meta.namespace}/{meta.name} would "
            "protect it; it stays where it is"
        )


def _weaker(before: PodGroup | None, meta: Metadata) -> Iterator[Metadata]:
    """The result with less and less of its own protection."""
    if before is not None:
        spec = before.spec
        meta = replace(meta, preemptibility=spec.preemptibility, priority_class=spec.priority_class_name)
        yield meta
        least = 1 if spec.min_member is None else spec.min_member
        meta = replace(meta, min_available=least, min_sub_group=spec.min_sub_group, sub_groups=tuple(spec.sub_groups))
        yield meta
    yield replace(meta, preemptibility=names.PREEMPTIBLE)


def _protects(before: PodGroup | None, meta: Metadata, held: Mapping[str, int], classes: Classes) -> bool:
    return bool(held) and newly_protected(before, _as_group(before, meta), held, classes) > 0


def _as_group(before: PodGroup | None, meta: Metadata) -> PodGroup:
    """The group that a result asks for; one that exists keeps its queue."""
    return decode_as(PodGroup, new_group(meta if before is None else replace(meta, queue=before.spec.queue)))


def _changed(meta: Metadata, kept: Metadata) -> list[str]:
    asked, given = (new_group(each)["spec"] for each in (meta, kept))
    return [name for name in _FIELDS if asked.get(name) != given.get(name)]
