"""Which nodes come and which go: what cluster-autoscaler and Karpenter would do, as one pure function.

In: the groups, all nodes and pods, the nodes that boot, since when nodes were empty, and the time. Out: orders of
nodes, and which nodes are closed, opened again or deleted.

A node is ordered for pods with the condition PodScheduled=False, reason Unschedulable, that fit on no node that is
there or boots. The pods are packed largest first, each on the first new node that still has room for it. With
cluster-autoscaler a new node is the machine of its group; with Karpenter its kind stays open, and it becomes the
smallest kind that holds all of its pods.

A node goes once it has been empty for the idle time of its group: first it is closed by a taint, then, if still empty,
deleted. Pods are never evicted for it. Nodes on which a waiting pod would fit count as used.

Subtle: queues, gangs and topologies are not considered, as real autoscalers do not. What keeps them from buying nodes
for work that may not run is the gate of its queue (queues:Q-405).

Statements: sim:autoscaler, sim:autoscaler-idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Node
from pykai.api.gpuvendors import is_gpu
from pykai.api.keys import object_key
from pykai.api.workloads import MachinePod
from pykai.lab.autoscaling.nodegroups import NodeGroup, machine_size
from pykai.lab.controllers.pods import condition_of, is_active
from pykai.lab.machines.nodes import MachineKind
from pykai.lab.machines.placement import PodRequirements, SchedulerCache, requirements_of

#: Pods that do not keep a node, by the kind of their owner: they come with it.
_OF_THE_NODE = ("DaemonSet", "Node")


@dataclass(frozen=True, slots=True)
class BootingNode:
    """A node that was ordered and is not there yet."""

    name: str
    group: NodeGroup
    machine: MachineKind
    ready_s: float


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """What an autoscaler sees."""

    nodes: Sequence[Node] = ()
    pods: Sequence[MachinePod] = ()
    booting: Sequence[BootingNode] = ()


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """One new node, and the pods it is for."""

    group: NodeGroup
    machine: MachineKind
    pods: tuple[MachinePod, ...] = ()


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What is to be done now."""

    orders: tuple[NodeOrder, ...] = ()
    #: node -> since when it is empty, of all that are
    empty_since_s: Mapping[str, float] = field(default_factory=dict)
    close: tuple[str, ...] = ()
    reopen: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()


def plan_nodes(
    groups: Sequence[NodeGroup],
    cluster: ObservedCluster,
    empty_since_s: Mapping[str, float],
    now_s: float,
    drain_s: float,
) -> NodePlan:
    """What the autoscalers of these groups do; a closed node is deleted `drain_s` after its idle time."""
    sizes = {
        group.name: sum(map(group.owns, cluster.nodes)) + sum(each.group is group for each in cluster.booting)
        for group in groups
    }
    orders, needed = _orders(groups, cluster, sizes)
    used = needed | {pod.spec.node_name for pod in cluster.pods if pod.spec.node_name and _keeps_node(pod)}
    empty = {
        node.metadata.name: empty_since_s.get(node.metadata.name, now_s)
        for node in cluster.nodes
        if node.metadata.name not in used
    }
    close: list[str] = []
    reopen: list[str] = []
    delete: list[str] = []
    for group in groups:
        spare = sizes[group.name] - group.least
        own = {node.metadata.name: is_closed(node, group) for node in cluster.nodes if group.owns(node)}
        for name in sorted(own, key=lambda each: (empty.get(each, now_s), each)):
            idle_s = now_s - empty[name] if name in empty else -1.0
            if idle_s < group.idle_s or spare <= 0:
                if own[name]:
                    reopen.append(name)
                continue
            spare -= 1
            if not own[name]:
                close.append(name)
            elif idle_s >= group.idle_s + drain_s:
                delete.append(name)
    return NodePlan(orders, empty, tuple(close), tuple(reopen), tuple(delete))


def is_closed(node: Node, group: NodeGroup) -> bool:
    """Whether the node is about to go."""
    return any(taint.key == group.provisioner.leaving_taint for taint in node.spec.taints)


def waits_for_node(pod: MachinePod) -> bool:
    """Whether a scheduler has said that the pod fits nowhere; a pod behind a gate has not been looked at."""
    if pod.spec.node_name or not is_active(pod) or pod.spec.scheduling_gates:
        return False
    condition = condition_of(pod, names.CONDITION_POD_SCHEDULED)
    return (
        condition is not None
        and condition.status == "False"
        and condition.reason == names.CONDITION_REASON_UNSCHEDULABLE
    )


def _keeps_node(pod: MachinePod) -> bool:
    return pod.status.phase not in ("Succeeded", "Failed") and not any(
        owner.kind in _OF_THE_NODE for owner in pod.metadata.owner_references
    )


class _NewNode:
    """A node to be ordered: the kinds of machines that hold all of its pods so far."""

    def __init__(self, group: NodeGroup) -> None:
        self.group = group
        self.pods: list[MachinePod] = []
        self._options = [(machine, _nodes_of([group.template(machine, group.name)])) for machine in group.machines]

    def take(self, pod: MachinePod, requirements: PodRequirements) -> bool:
        """Put a pod on the node if some kind of machine has room for it."""
        fitting = [option for option in self._options if isinstance(option[1].choose_node(requirements), str)]
        if fitting:
            self._options = fitting
            self.pods.append(pod)
            for _, node in fitting:
                node.add_pod(pod.metadata.uid, self.group.name, requirements.requests)
        return bool(fitting)

    @property
    def machine(self) -> MachineKind:
        """The smallest machine that is enough."""
        return min((machine for machine, _ in self._options), key=machine_size)


def _orders(
    groups: Sequence[NodeGroup], cluster: ObservedCluster, sizes: Mapping[str, int]
) -> tuple[tuple[NodeOrder, ...], set[str]]:
    """The nodes to order, and the nodes on which a waiting pod fits."""
    there = _nodes_of(map(_as_ready, cluster.nodes))
    for each in cluster.booting:
        there.put_node(each.group.template(each.machine, each.name))
    for pod in cluster.pods:
        if pod.spec.node_name and is_active(pod):
            there.add_pod(pod.metadata.uid, pod.spec.node_name, requirements_of(pod).requests)
    needed: set[str] = set()
    new: list[_NewNode] = []
    left = {group.name: group.most - sizes[group.name] for group in groups}
    waiting = [(pod, requirements_of(pod)) for pod in cluster.pods if waits_for_node(pod)]
    for pod, requirements in sorted(waiting, key=_largest_first):
        chosen = there.choose_node(requirements)
        if isinstance(chosen, str):
            there.add_pod(pod.metadata.uid, chosen, requirements.requests)
            needed.add(chosen)
            continue
        if any(node.take(pod, requirements) for node in new):
            continue
        candidates = [_NewNode(group) for group in groups if left[group.name] > 0]
        fitting = [node for node in candidates if node.take(pod, requirements)]
        if fitting:
            best = min(fitting, key=lambda node: machine_size(node.machine))
            left[best.group.name] -= 1
            new.append(best)
    orders = [NodeOrder(node.group, node.machine, tuple(node.pods)) for node in new]
    for group in groups:
        missing = group.least - sizes[group.name] - sum(order.group is group for order in orders)
        orders += [NodeOrder(group, min(group.machines, key=machine_size))] * missing
    return tuple(orders), needed


def _nodes_of(nodes: Iterable[Node]) -> SchedulerCache:
    cache = SchedulerCache()
    for node in nodes:
        cache.put_node(node)
    return cache


def _as_ready(node: Node) -> Node:
    """A node that has just come, without the taint that it loses in a moment."""
    if not any(taint.key == names.NOT_READY_TAINT for taint in node.spec.taints):
        return node
    taints = tuple(taint for taint in node.spec.taints if taint.key != names.NOT_READY_TAINT)
    return replace(node, spec=replace(node.spec, taints=taints))


def _largest_first(waiting: tuple[MachinePod, PodRequirements]) -> tuple[int, int, int, str]:
    pod, requirements = waiting
    requests = requirements.requests
    gpus = sum(amount for name, amount in requests.items() if is_gpu(name))
    key = object_key(pod.metadata.namespace, pod.metadata.name)
    return -gpus, -requests.get(names.CPU, 0), -requests.get(names.MEMORY, 0), key
