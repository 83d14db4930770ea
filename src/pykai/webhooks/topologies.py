"""Validation of Topologies (gpu:A-11, topo:T-9, TD-21); pure.

An alias may be pointed at another level while workloads run, which changes what their constraints mean; that is a
warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pykai.api.decode import DecodeError, decode_as
from pykai.api.topology import Topology, alias_problems
from pykai.webhooks.validationresult import ValidationResult

#: a level of the topology, by alias -> how many PodGroups name it in a constraint
GroupsUsing = Callable[[str], int]


def validate(
    document: Mapping[str, Any], old: Mapping[str, Any] | None = None, groups_using: GroupsUsing = lambda _: 0
) -> ValidationResult:
    """The verdict about a Topology that is created, or updated to this."""
    try:
        topology = decode_as(Topology, dict(document))
    except DecodeError as error:
        return ValidationResult((str(error),))
    problem = alias_problems(topology)
    if problem:
        return ValidationResult((problem,))
    return ValidationResult(warnings=_moved_alias_warnings(topology, old, groups_using))


def _moved_alias_warnings(
    topology: Topology, old: Mapping[str, Any] | None, groups_using: GroupsUsing
) -> tuple[str, ...]:
    """What changes for workloads whose constraints name an alias that now means another level, or none (topo:TD-21)."""
    try:
        before = _labels_by_alias(decode_as(Topology, dict(old or {})))
    except DecodeError:
        return ()
    labels = _labels_by_alias(topology)
    warnings = []
    for alias, label in sorted(before.items()):
        now = labels.get(alias)
        groups = groups_using(alias) if now != label else 0
        if groups:
            meaning = f"means {now} instead of {label}" if now else f"no longer means {label}"
            warnings.append(
                f"alias {alias} {meaning}; PodGroups with a constraint of that name: {groups}; the constraint changes"
                " for pods that are not scheduled yet"
            )
    return tuple(warnings)


def _labels_by_alias(topology: Topology) -> dict[str, str]:
    return {level.alias: level.node_label for level in topology.spec.levels if level.alias}
