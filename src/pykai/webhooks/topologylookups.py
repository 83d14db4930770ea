"""Which PodGroups use a level of a Topology; read from a cache, since it decides about warnings only."""

from __future__ import annotations

from collections.abc import Iterator

from pykai.api.scheduling import PodGroup, TopologyConstraint
from pykai.kube.resources import POD_GROUPS
from pykai.kube.runtime import Runtime

_BY_TOPOLOGY_LEVEL = "topology level"


class TopologyLookups:
    """Counts the PodGroups that name a level."""

    def __init__(self, runtime: Runtime) -> None:
        self._groups = runtime.caches.store(POD_GROUPS, PodGroup)
        self._groups.index(_BY_TOPOLOGY_LEVEL, levels_used)

    def groups_using(self, topology: str, level: str) -> int:
        """How many PodGroups have a constraint with this level of the topology, by its label or an alias."""
        return len(self._groups.by_index(_BY_TOPOLOGY_LEVEL, _level_key(topology, level)))


def levels_used(group: PodGroup) -> tuple[str, ...]:
    """The levels that the constraints of a PodGroup and of its subgroups name, as keys of the index."""
    return tuple({_level_key(each.topology, level) for each in _constraints(group) for level in _levels(each)})


def _constraints(group: PodGroup) -> Iterator[TopologyConstraint]:
    spec = group.spec
    for constraint in (spec.topology_constraint, *(each.topology_constraint for each in spec.sub_groups)):
        if constraint is not None:
            yield constraint


def _levels(constraint: TopologyConstraint) -> tuple[str, ...]:
    levels = (constraint.required_topology_level, constraint.preferred_topology_level)
    return tuple(level for level in levels if level)


def _level_key(topology: str, level: str) -> str:
    # Names of Topologies hold no blanks.
    return f"{topology} {level}"
