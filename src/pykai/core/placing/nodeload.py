"""The requests of the pods on one node, added up as its kubelet does, and what another pod would lack there.

For the recheck right before a pod is bound, by scheduler and binder: the engine's columns are those of its last cycle,
and pods of other schedulers arrive at any time.  Resources and host ports are checked, because kubelets reject pods for
them.

Subtle: resources that the node does not list are not checked: they are served by claims, which have their own ledgers
on the server.  A request that cannot be read counts as nothing.
"""

from __future__ import annotations

from collections import Counter

from pykai.api.core import Node, Pod
from pykai.api.quantity import QuantityError
from pykai.core.model.axes import amount
from pykai.core.model.shapes import HostPort, RequestError, Shape, ShapeRegister
from pykai.core.placing.ports import ports_conflict

_EMPTY_SHAPE = Shape(())
#: Shapes that a register holds before it is emptied: here they are only read.
_MAX_SHAPES = 4096


def shape_or_empty(pod: Pod, register: ShapeRegister) -> Shape:
    """The shape of a pod, as far as its own spec defines it."""
    try:
        return register.shape_of(pod)
    except RequestError:
        return _EMPTY_SHAPE


class NodeLoad:
    """The pods of one node, added up."""

    def __init__(self, register: ShapeRegister) -> None:
        #: resource name -> amount in axis units
        self.used: Counter[str] = Counter()
        self._ports: list[HostPort] = []
        self._register = register
        if len(register.shapes) > _MAX_SHAPES:
            register.retain_only(frozenset())

    def add(self, pod: Pod) -> None:
        """Add a pod."""
        shape = shape_or_empty(pod, self._register)
        for resource, requested in shape.requests:
            self.used[resource] += requested
        self._ports += shape.host_ports

    def shortage(self, node: Node, requests: Counter[str], shape: Shape) -> str:
        """The resource that the node lacks for such a request, "" if it has enough."""
        for resource, requested in sorted(requests.items()):
            if requested and resource in node.status.allocatable:
                allocatable, used = node_capacity(node, resource), self.used[resource]
                if used + requested > allocatable:
                    return f"{resource}: {used} of {allocatable} are in use, {requested} are wanted"
        return "a host port is in use" if shape.host_ports and ports_conflict(shape.host_ports, self._ports) else ""


def node_capacity(node: Node, resource: str) -> int:
    """How much of a resource a node has, in axis units; 0 where that cannot be read."""
    try:
        return amount(resource, node.status.allocatable.get(resource, 0))
    except QuantityError:
        return 0
