"""Trees of subgroups, as `Cluster.tree` takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.core.gatheredobjects import Raw


@dataclass(frozen=True)
class SubgroupSpec:
    """A subgroup: a leaf with pods, or a branch with parts of its own."""

    name: str
    #: minMember or minSubGroup, None leaves the field out
    minimum: int | None
    parts: tuple[SubgroupSpec, ...] = ()
    running: int = 0
    pending: int = 0
    gated: int = 0
    #: how the pods of a leaf are, as `Cluster.pod` takes it
    pod: Raw = field(default_factory=dict)
    #: further fields of its entry as the wire spells them
    spec: Raw = field(default_factory=dict)


def leaf(
    name: str, minimum: int | None = 1, *, running: int = 0, pending: int = 0, gated: int = 0, **pod: Any
) -> SubgroupSpec:
    """A subgroup of pods; `minimum` is its minMember."""
    return SubgroupSpec(name, minimum, (), running, pending, gated, pod)


def branch(name: str, *parts: SubgroupSpec, needs: int | None = None) -> SubgroupSpec:
    """A subgroup of subgroups; `needs` is its minSubGroup."""
    return SubgroupSpec(name, needs, parts)


def with_parents(parts: tuple[SubgroupSpec, ...], parent: str = "") -> Iterator[tuple[SubgroupSpec, str]]:
    for part in parts:
        yield part, parent
        yield from with_parents(part.parts, part.name)
