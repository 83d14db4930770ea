"""A last look at node and devices, right before a pod is bound.

A BindRequest may be old: the node has shrunk, or others have come.  It may also be forged, because a tenant can write
BindRequests in its namespace.  So nothing in it is trusted that would fill a node or a GPU beyond its capacity:

- the pod asks for our scheduler, and a share of a GPU goes only to a pod that asks for one, on as many GPUs and of no
  larger portion than it asks (`agrees`);
- the node has room for the pod's requests (`core.placing.nodeload`);
- each GPU of a group has room for the pod's share beside those of the pods that are in the group on that node.

Subtle: the cache shows a bound pod a moment after its Binding, and many attempts run side by side.  A pod that passed
counts at once, and until the cache shows it or its attempt has failed.  Between the look and the note nothing waits.

Statements: trust:devices.
"""

from __future__ import annotations

import math
from collections import Counter

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.binder.attempt import Attempt
from pykai.binder.gpugroups import GROUP_INDEX
from pykai.binder.lifecycle import BindFailure
from pykai.binder.options import BinderOptions
from pykai.core.model.nodes import NodeFacts, read_node
from pykai.core.model.shapes import Shape, ShapeRegister
from pykai.core.model.sharedgpus import portion_hundredths, tenant_mib
from pykai.core.model.tasks import has_ended
from pykai.core.placing.nodeload import NodeLoad, node_capacity, shape_or_empty
from pykai.kube.store import Change, Store

#: index of the pods' store: those on a node
PODS_ON = "binder-node"
#: portions are written with two decimals
_ROUNDING = 0.005


class Room:
    """Lets pods through to nodes and devices that can hold them."""

    def __init__(self, pods: Store[Pod], options: BinderOptions) -> None:
        self._pods = pods
        self._options = options
        self._register = ShapeRegister()
        #: node -> key of a pod -> the attempt that was let through and that the cache does not show yet
        self._coming: dict[str, dict[str, Attempt]] = {}
        #: key of a pod -> the node it comes to
        self._nodes: dict[str, str] = {}
        pods.index(PODS_ON, lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        pods.subscribe(self._pod_changed)

    def agrees(self, attempt: Attempt) -> None:
        """Raise `BindFailure` if a request gives a pod what it does not ask for."""
        pod, request = attempt.pod, attempt.request.spec
        if pod.spec.scheduler_name != self._options.scheduler_name:
            text = f"pod {attempt.key} asks for scheduler {pod.spec.scheduler_name}, not {self._options.scheduler_name}"
            raise BindFailure("request", text)
        if not attempt.shared:
            return
        shape = shape_or_empty(pod, self._register)
        if not shape.shared:
            raise BindFailure(
                "request", f"pod {attempt.key} asks for no part of a GPU and is to get {request.received_gpu}"
            )
        if len(attempt.groups) != shape.gpu.devices:
            asked = f"pod {attempt.key} asks for parts of {shape.gpu.devices} GPUs"
            raise BindFailure("request", f"{asked} and is to get {len(attempt.groups)}")
        facts = _facts(attempt.node)
        most = portion_hundredths(shape.gpu, facts.gpu_mib, facts.gpu_label_mib) / 100
        portion = request.received_gpu.portion if request.received_gpu is not None else ""
        if portion and not _number(portion) <= most + _ROUNDING:
            raise BindFailure("request", f"pod {attempt.key} asks for {most:.2f} of a GPU and is to get {portion}")

    def enter(self, attempt: Attempt, node: Node) -> None:
        """Let a pod through and count it from now on; raises `BindFailure` if node or device cannot hold it."""
        name = node.metadata.name
        shape = shape_or_empty(attempt.pod, self._register)
        coming = self._on_the_way(attempt, name)
        load = NodeLoad(self._register)
        for pod in self._pods.by(PODS_ON, name):
            if not has_ended(pod):
                load.add(pod)
        for other in coming:
            load.add(other.pod)
        # What claims serve does not count on the node, unless it still has some of its own.
        served = attempt.request.spec.extended_resource_claim_allocation is not None
        wanted = Counter(
            {
                each: asked
                for each, asked in shape.requests
                if not (served and "/" in each and not node_capacity(node, each))
            }
        )
        if why := load.shortage(node, wanted, shape):
            raise BindFailure("room", f"others came to node {name}: {why}")
        if attempt.groups:
            self._check_devices(attempt, node, shape, coming)
        self._coming.setdefault(name, {})[attempt.key] = attempt
        self._nodes[attempt.key] = name

    def _check_devices(self, attempt: Attempt, node: Node, shape: Shape, coming: list[Attempt]) -> None:
        facts = _facts(node)
        mine = tenant_mib(shape.gpu, facts.gpu_mib, facts.gpu_label_mib)
        for group in attempt.groups:
            tenants = [pod for pod in self._pods.by(GROUP_INDEX, group) if self._is_tenant(pod, facts.name)]
            tenants += [other.pod for other in coming if group in other.groups]
            used = sum(
                tenant_mib(shape_or_empty(pod, self._register).gpu, facts.gpu_mib, facts.gpu_label_mib)
                for pod in tenants
                if pod.metadata.uid != attempt.pod.metadata.uid
            )
            if used + mine > facts.gpu_mib:
                has = f"{used} of {facts.gpu_mib} MiB are in use, {mine} are wanted"
                raise BindFailure("room", f"the GPU of group {group} on node {facts.name} is full: {has}")

    def _is_tenant(self, pod: Pod, node: str) -> bool:
        ours = pod.spec.scheduler_name == self._options.scheduler_name
        elsewhere = pod.metadata.namespace != self._options.reservation_namespace
        return ours and elsewhere and pod.spec.node_name == node and not has_ended(pod)

    def leave(self, key: str) -> None:
        """A pod is not on its way any more: it is there, or will not come."""
        name = self._nodes.pop(key, "")
        coming = self._coming.get(name)
        if coming is not None:
            coming.pop(key, None)
            if not coming:
                del self._coming[name]

    def _on_the_way(self, attempt: Attempt, node: str) -> list[Attempt]:
        """The other attempts that were let through to a node and that the cache does not show yet."""
        return [other for key, other in self._coming.get(node, {}).items() if key != attempt.key]

    def _pod_changed(self, change: Change[Pod]) -> None:
        if self._nodes and change.key in self._nodes and (change.new is None or change.new.spec.node_name):
            self.leave(change.key)


def _facts(node: Node) -> NodeFacts:
    return read_node(node, names.MIG_ENABLED_NODE_LABEL, lambda _: None)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf
