"""The grouper of a kind that an administrator has declared: where it holds the replicas of each role.

An entry names the kind, its roles with the place of their replicas, and how many pods must start together.  One group
is made of the top owner, with a subgroup for each role.  The minimum is that of all roles, or a number, which the roles
fill in their order: what is left of later roles is elastic.

Places are names separated by dots, such as `spec.workers.replicas`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.meta import Int64, Wire
from pykai.api.scheduling import SubGroup
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import (
    Grouper,
    GroupingError,
    GroupingSettings,
    GroupVersionKind,
    Metadata,
    Owner,
    Readers,
)
from pykai.podgrouper.ownerspec import MAX_INT32, checked_minimum, describe_owner

#: The minimum that asks for every pod of every role.
ALL: Final = "all"


class DeclaredRole(Wire):
    """A role of a declared kind."""

    #: name of its subgroup
    name: str = ""
    #: how many pods it has: a number, or the place of one
    replicas: Int64 | str = 1
    #: how many, where that place is empty
    default: Int64 | None = None
    #: the label of its pods, and its value; the role without a label has all other pods
    pod_label: str = ""
    #: the name of the role if absent
    pod_label_value: str | None = None

    def has(self, pod: Pod) -> bool:
        """Whether a pod has the label of the role."""
        wanted = self.name if self.pod_label_value is None else self.pod_label_value
        return bool(self.pod_label) and pod.metadata.labels.get(self.pod_label) == wanted


class DeclaredKind(Wire):
    """A declared kind."""

    api_version: str = ""
    kind: str = ""
    roles: tuple[DeclaredRole, ...] = ()
    #: `all`, a number, or the place of one
    minimum: Int64 | str = ALL
    #: for workloads and pods that name none
    priority_class: str = names.PRIORITY_CLASS_TRAIN

    @property
    def group_version_kind(self) -> GroupVersionKind:
        """What it declares."""
        group, _, version = self.api_version.rpartition("/")
        return group, version, self.kind


def declared_grouper(declared: DeclaredKind) -> Grouper:
    """The grouper of a declared kind."""

    def group(
        top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
    ) -> Metadata:
        found = default_metadata(top, pod, (), settings, readers, priority_class=declared.priority_class)
        replicas = [_replicas(top, role) for role in declared.roles]
        minimum = _minimum(top, declared, sum(replicas))
        if not declared.roles:
            return replace(found, min_available=minimum)
        own = _role_of(declared, top, pod)
        sub_groups = []
        left = minimum
        for role, count in zip(declared.roles, replicas, strict=True):
            needed = min(count, left)
            left -= needed
            # A role without pods is left out, unless this pod is one of it.
            if count or role is own:
                sub_groups.append(SubGroup(name=role.name, min_member=needed))
        return replace(found, sub_groups=tuple(sub_groups), min_sub_group=len(sub_groups), pod_sub_group=own.name)

    return group


def _role_of(declared: DeclaredKind, top: Owner, pod: Pod) -> DeclaredRole:
    others = next((role for role in declared.roles if not role.pod_label), None)
    own = next((role for role in declared.roles if role.has(pod)), others)
    if own is None:
        labels = ", ".join(sorted({role.pod_label for role in declared.roles}))
        expected = ", ".join(role.name for role in declared.roles)
        raise GroupingError(
            f"{describe_owner(top)}: pod {pod.metadata.name} has no role: its label {labels} names none of {expected}; "
            "correct the label, or add a role without podLabel to the workload kinds"
        )
    return own


def _replicas(top: Owner, role: DeclaredRole) -> int:
    if isinstance(role.replicas, int):
        return role.replicas
    found = _number_at(top, role.replicas)
    if found is None:
        found = role.default
    if found is None:
        raise GroupingError(
            f"{describe_owner(top)}: {role.replicas}: missing; expected the replicas of role {role.name}, "
            "or a default in the workload kinds"
        )
    return checked_minimum(top, role.replicas, found)


def _minimum(top: Owner, declared: DeclaredKind, pods: int) -> int:
    wanted = declared.minimum
    where = wanted if isinstance(wanted, str) and wanted != ALL else "minimum"
    number = _number_at(top, where) if where is wanted and isinstance(wanted, str) else wanted
    if number == ALL or (number is None and declared.roles):
        number = pods
    if not isinstance(number, int):
        raise GroupingError(f"{describe_owner(top)}: {where}: missing; expected the number of pods that start together")
    if declared.roles and number > pods:
        raise GroupingError(f"{describe_owner(top)}: {where}: {number} is more than the {pods} pods of all roles")
    return checked_minimum(top, where, number)


def _number_at(top: Owner, place: str) -> int | None:
    """The number at a place of a workload, None where there is none."""
    value: Any = top.body
    for name in place.split("."):
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise GroupingError(f"{describe_owner(top)}: {place}: there is no field {name!r} in {value!r:.60}")
        value = value.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_INT32:
        raise GroupingError(f"{describe_owner(top)}: {place}: {value!r:.60} is no number of pods; fix the manifest")
    return value
