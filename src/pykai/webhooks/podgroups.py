"""Validation of PodGroups (workloads:WH-1 to WH-6); pure.

Two kinds of errors.  If the subgroups are no tree (duplicate names, a missing parent, a cycle, both minimums at once),
that is the only error.  Otherwise every subgroup is checked, in the order of names.

Subtle: some errors are only warnings, because groups that exist have them: a minimum that exceeds the number of
children always (they may come later), pods counted on a subgroup of subgroups when a group is updated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pykai.api.decode import DecodeError, decode_as
from pykai.api.scheduling import DEEPEST_SUBGROUP, MOST_SUBGROUPS, PodGroup, SubGroup
from pykai.webhooks.validationresult import ValidationResult


def validate(document: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> ValidationResult:
    """The verdict about a PodGroup that is created (`old` None), or updated to this."""
    creating = old is None
    try:
        group = decode_as(PodGroup, dict(document))
    except DecodeError as error:
        return ValidationResult((str(error),))
    spec = group.spec
    structure_error = _tree_error(group)
    for each in () if structure_error else _sorted(spec.sub_groups):
        if each.min_member is not None and each.min_sub_group is not None:
            structure_error = f'subgroup "{each.name}": minMember and minSubGroup are mutually exclusive'
            break
    if structure_error:
        return ValidationResult((structure_error,))
    errors: list[str] = []
    warnings: list[str] = []
    # An existing group may have more, from before there was a limit; it must stay editable.
    (errors if creating else warnings).extend(_bound_errors(spec.sub_groups))
    children = _children(spec.sub_groups)
    for each in _sorted(spec.sub_groups):
        below = children.get(each.name, 0)
        if not below:
            if each.min_sub_group is not None:
                errors.append(
                    f'subgroup "{each.name}": minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)'
                )
            if each.min_member is None:
                errors.append(f"subgroup {each.name}: minMember is required")
            continue
        if each.min_member is not None:
            text = f'subgroup "{each.name}": minMember cannot be set on a mid-level SubGroup (has child SubGroups); '
            (errors if creating else warnings).append(text + "use minSubGroup instead")
        if each.min_sub_group is not None and each.min_sub_group > below:
            warnings.append(f'subgroup "{each.name}": {_exceeds_children_text(each.min_sub_group, below)}')
    tops = children.get("", 0)
    if spec.min_sub_group is not None and spec.min_sub_group > tops:
        warnings.append(_exceeds_children_text(spec.min_sub_group, tops))
    return ValidationResult(tuple(errors), tuple(warnings))


def _bound_errors(listed: Sequence[SubGroup]) -> Iterator[str]:
    """Which bound of the scheduler the subgroups exceed; such a group would be set aside."""
    if len(listed) > MOST_SUBGROUPS:
        yield f"spec.subGroups: {len(listed)} subgroups, at most {MOST_SUBGROUPS} are allowed"
    parents = {each.name: each.parent or "" for each in listed}
    levels = {"": 0}
    for name in parents:
        path: list[str] = []
        while name not in levels:
            path.append(name)
            name = parents[name]
        for each in reversed(path):
            levels[each] = levels[parents[each]] + 1
    deepest = max(levels.values())
    if deepest > DEEPEST_SUBGROUP:
        yield f"spec.subGroups: nested {deepest} levels deep, at most {DEEPEST_SUBGROUP} are allowed"


def _exceeds_children_text(wanted: int, there: int) -> str:
    return f"minSubGroup ({wanted}) exceeds the number of direct child SubGroups ({there})"


def _sorted(listed: Sequence[SubGroup]) -> list[SubGroup]:
    return sorted(listed, key=lambda each: each.name)


def _children(listed: Sequence[SubGroup]) -> dict[str, int]:
    """How many subgroups name each parent; "" stands for the root."""
    counts: dict[str, int] = {}
    for each in listed:
        counts[each.parent or ""] = counts.get(each.parent or "", 0) + 1
    return counts


def _tree_error(group: PodGroup) -> str:
    """Why there is no tree, empty when there is one (workloads:WH-2)."""
    spec = group.spec
    if spec.min_member is not None and spec.min_sub_group is not None:
        return (
            f"minMember and minSubGroup are mutually exclusive: set minMember ({spec.min_member}) to schedule a fixed "
            "number of pods, or set minSubGroup to require a minimum number of child SubGroups, but not both"
        )
    parents: dict[str, str] = {}
    for each in spec.sub_groups:
        if each.name in parents:
            return f"duplicate subgroup name {each.name}"
        parents[each.name] = each.parent or ""
    for name, parent in parents.items():
        if parent and parent not in parents:
            return f"parent {parent} of {name} was not found"
    acyclic: set[str] = set()
    for name in parents:
        path: set[str] = set()
        while name and name not in acyclic:
            if name in path:
                return "cycle detected in subgroups"
            path.add(name)
            name = parents[name]
        acyclic |= path
    return ""
