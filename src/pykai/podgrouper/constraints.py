"""The topology constraints in a workload's annotations: for the whole group, and for each segment of it.

The group's constraint is copied from the top owner unchanged; the scheduler validates it. A segment's constraint has
its own annotations for the levels, so that a job can ask for one zone as a whole and for one rack a segment. Nearer
sources go first: the pod, the template it was made from, the owner. Empty text counts as absent.
"""

from collections.abc import Mapping

from pykai.api import names
from pykai.api.scheduling import TopologyConstraint

Annotations = Mapping[str, str]


def group_constraint(owner: Annotations) -> TopologyConstraint:
    """The constraint of the whole group, from the top owner's annotations alone (topo:T-12)."""
    return TopologyConstraint(
        topology=owner.get(names.TOPOLOGY_ANNOTATION, ""),
        required_topology_level=owner.get(names.TOPOLOGY_REQUIRED_ANNOTATION, ""),
        preferred_topology_level=owner.get(names.TOPOLOGY_PREFERRED_ANNOTATION, ""),
    )


def updated_group_constraint(existing: TopologyConstraint | None, computed: TopologyConstraint) -> TopologyConstraint:
    """What an update writes: a group whose workload names no topology keeps what others wrote there (topo:T-13).

    Subgroups have no such rule: theirs are always written as computed.
    """
    return computed if computed.topology or existing is None else existing


def segment_constraint(pod: Annotations, template: Annotations, owner: Annotations) -> TopologyConstraint | None:
    """The constraint of each segment; none without a topology or without a level (topo:T-44)."""
    topology = _first_value(names.TOPOLOGY_ANNOTATION, pod, template, owner)
    required = _first_value(names.SEGMENT_TOPOLOGY_REQUIRED_ANNOTATION, pod, template)
    preferred = _first_value(names.SEGMENT_TOPOLOGY_PREFERRED_ANNOTATION, pod, template)
    if not topology or not (required or preferred):
        return None
    return TopologyConstraint(topology=topology, required_topology_level=required, preferred_topology_level=preferred)


def _first_value(key: str, *sources: Annotations) -> str:
    return next((text for source in sources if (text := source.get(key))), "")
