"""Groups of nodes that an autoscaler makes larger and smaller, and the nodes it makes for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pykai.api import names
from pykai.api.core import Node
from pykai.api.decode import decode_as
from pykai.api.quantity import milli_value, unit_value
from pykai.api.unstructured import JsonObject
from pykai.lab.machines.nodes import MachineKind, node_objects

CLUSTER_AUTOSCALER: Final = "cluster-autoscaler"
KARPENTER: Final = "karpenter"


@dataclass(frozen=True, slots=True)
class Provisioner:
    """An autoscaler, as objects show it."""

    name: str
    #: on nodes: their group
    group_label: str
    #: keeps pods off a node that is about to go
    leaving_taint: str
    #: reason and text of the event about a pod for which a node comes
    event: str
    message: str


PROVISIONERS: Final = {
    each.name: each
    for each in (
        Provisioner(
            CLUSTER_AUTOSCALER,
            names.SIMULATED_NODE_GROUP_LABEL,
            names.CLUSTER_AUTOSCALER_LEAVING_TAINT,
            names.EVENT_TRIGGERED_SCALE_UP,
            "pod triggered scale-up: node {node} of group {group}",
        ),
        Provisioner(
            KARPENTER,
            names.KARPENTER_NODE_POOL_LABEL,
            names.KARPENTER_LEAVING_TAINT,
            names.EVENT_NOMINATED,
            "Pod should schedule on: node/{node} of pool {group}",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one kind (cluster-autoscaler), or of whichever kind fits the pods best (Karpenter)."""

    name: str
    machines: Sequence[MachineKind]
    provisioner: Provisioner = PROVISIONERS[CLUSTER_AUTOSCALER]
    least: int = 0
    most: int = 10
    #: from the order of a node until it is there
    boot_s: float = 30.0
    #: how long a node is empty before it goes
    idle_s: float = 60.0

    def node(self, machine: MachineKind, name: str, now: str) -> JsonObject:
        """A new node of the group as an object."""
        labels = {**machine.labels, self.provisioner.group_label: self.name}
        (node,) = node_objects(replace(machine, count=1, name=name, labels=labels, dra=False), now)
        return node

    def template(self, machine: MachineKind, name: str) -> Node:
        """The same as the planner reads it."""
        return decode_as(Node, self.node(machine, name, ""))

    def owns(self, node: Node) -> bool:
        """Whether the node is one of the group."""
        return node.metadata.labels.get(self.provisioner.group_label) == self.name


def machine_size(machine: MachineKind) -> tuple[int, int, int]:
    """What a machine costs, for comparison: GPUs, then CPU, then memory."""
    return machine.gpus, milli_value(machine.cpu), unit_value(machine.memory)
