"""NodeResourceTopology (topology.node.k8s.io/v1alpha2): capacity and free amounts of each NUMA zone of a node.

A daemon on the node publishes one object a node, under the node's name. Its fields are at the top level, not under
`spec`. The policy of the kubelet's Topology Manager is in `attributes`; older daemons wrote `topologyPolicies` instead.
"""

from msgspec import field

from pykai.api.meta import ObjectMeta, Wire
from pykai.api.quantity import RawQuantity


class TopologyAttribute(Wire):
    name: str = ""
    value: str = ""


class ZoneResource(Wire):
    """One resource of a zone: capacity, allocatable and available."""

    name: str = ""
    capacity: RawQuantity = 0
    allocatable: RawQuantity = 0
    available: RawQuantity = 0


class Zone(Wire):
    """A zone; those of type Node are NUMA nodes."""

    name: str = ""
    type: str = ""
    resources: list[ZoneResource] = field(default_factory=list)


class NodeResourceTopology(Wire):
    """The zones of the node of the same name."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    attributes: list[TopologyAttribute] = field(default_factory=list)
    topology_policies: list[str] = field(default_factory=list)
    zones: list[Zone] = field(default_factory=list)
