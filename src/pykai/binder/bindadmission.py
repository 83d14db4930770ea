"""The last check of node and devices, right before a pod is bound.

A BindRequest may be stale: the node has shrunk, or other pods have come.  It may also be forged, because a tenant can
write BindRequests in its namespace.  So nothing in it is trusted that would overfill a node or a GPU:

- the pod asks for our scheduler, and a share of a GPU goes only to a pod that asks for one, on as many GPUs and of no
  larger portion than it asks for (`check_request`);
- the node has room for the pod's requests (`core.placing.nodeload`);
- each GPU of a group has room for the pod's share beside those of the pods that are in the group on that node.

Subtle: the cache shows a bound pod a moment after its Binding, and many attempts run concurrently.  An admitted pod
counts at once, until the cache shows it or its attempt has failed.  Check and reservation are one step without an
await.

Statements: trust:devices.
"""

from __future__ import annotations

import math
from collections import Counter

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.binder.attempt import BindAttempt
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
NODE_INDEX = "binder-node"
#: portions are written with two decimals
_ROUNDING = 0.005


class BindAdmission:
    """Admits pods to nodes and devices that can hold them."""

    def __init__(self, pods: Store[Pod], options: BinderOptions) -> None:
        self._pods = pods
        self._options = options
        self._register = ShapeRegister()
        #: node -> key of a pod -> the admitted attempt that the cache does not show yet
        self._admitted: dict[str, dict[str, BindAttempt]] = {}
        #: key of a pod -> its node
        self._node_of_pod: dict[str, str] = {}
        pods.index(NODE_INDEX, lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        pods.subscribe(self._pod_changed)

    def check_request(self, attempt: BindAttempt) -> None:
        """Raise `BindFailure` if a request gives a pod what it does not ask for."""
        pod, request = attempt.pod, attempt.request.spec
        if pod.spec.scheduler_name != self._options.scheduler_name:
            text = f"pod {attempt.key} asks for scheduler {pod.spec.scheduler_name}, not {self._options.scheduler_name}"
            raise BindFailure("request", text)
        if not attempt.is_shared:
            return
        shape = shape_or_empty(pod, self._register)
        if not shape.shared:
            raise BindFailure(
                "request", f"pod {attempt.key} asks for no part of a GPU and is to get {request.received_gpu}"
            )
        if len(attempt.groups) != shape.gpu.devices:
            requested = f"pod {attempt.key} asks for parts of {shape.gpu.devices} GPUs"
            raise BindFailure("request", f"{requested} and is to get {len(attempt.groups)}")
        facts = _node_facts(attempt.node)
        requested_portion = portion_hundredths(shape.gpu, facts.gpu_mib, facts.gpu_label_mib) / 100
        portion = request.received_gpu.portion if request.received_gpu is not None else ""
        if portion and not _portion_number(portion) <= requested_portion + _ROUNDING:
            raise BindFailure(
                "request", f"pod {attempt.key} asks for {requested_portion:.2f} of a GPU and is to get {portion}"
            )

    def admit(self, attempt: BindAttempt, node: Node) -> None:
        """Admit a pod and count it from now on; raises `BindFailure` if node or device cannot hold it."""
        name = node.metadata.name
        shape = shape_or_empty(attempt.pod, self._register)
        incoming = self._other_admitted(attempt, name)
        load = NodeLoad(self._register)
        for pod in self._pods.by_index(NODE_INDEX, name):
            if not has_ended(pod):
                load.add(pod)
        for other in incoming:
            load.add(other.pod)
        # Resources served by claims do not count on the node, unless it has some of its own.
        served_by_claim = attempt.request.spec.extended_resource_claim_allocation is not None
        requested = Counter(
            {
                each: asked
                for each, asked in shape.requests
                if not (served_by_claim and "/" in each and not node_capacity(node, each))
            }
        )
        if why := load.shortage(node, requested, shape):
            raise BindFailure("room", f"others came to node {name}: {why}")
        if attempt.groups:
            self._check_devices(attempt, node, shape, incoming)
        self._admitted.setdefault(name, {})[attempt.key] = attempt
        self._node_of_pod[attempt.key] = name

    def _check_devices(self, attempt: BindAttempt, node: Node, shape: Shape, incoming: list[BindAttempt]) -> None:
        facts = _node_facts(node)
        requested_mib = tenant_mib(shape.gpu, facts.gpu_mib, facts.gpu_label_mib)
        for group in attempt.groups:
            tenants = [pod for pod in self._pods.by_index(GROUP_INDEX, group) if self._is_tenant(pod, facts.name)]
            tenants += [other.pod for other in incoming if group in other.groups]
            used = sum(
                tenant_mib(shape_or_empty(pod, self._register).gpu, facts.gpu_mib, facts.gpu_label_mib)
                for pod in tenants
                if pod.metadata.uid != attempt.pod.metadata.uid
            )
            if used + requested_mib > facts.gpu_mib:
                usage = f"{used} of {facts.gpu_mib} MiB are in use, {requested_mib} are wanted"
                raise BindFailure("room", f"the GPU of group {group} on node {facts.name} is full: {usage}")

    def _is_tenant(self, pod: Pod, node: str) -> bool:
        ours = pod.spec.scheduler_name == self._options.scheduler_name
        elsewhere = pod.metadata.namespace != self._options.reservation_namespace
        return ours and elsewhere and pod.spec.node_name == node and not has_ended(pod)

    def release(self, key: str) -> None:
        """A pod is no longer in flight: it is bound, or will not be."""
        name = self._node_of_pod.pop(key, "")
        incoming = self._admitted.get(name)
        if incoming is not None:
            incoming.pop(key, None)
            if not incoming:
                del self._admitted[name]

    def _other_admitted(self, attempt: BindAttempt, node: str) -> list[BindAttempt]:
        """The other attempts admitted to a node that the cache does not show yet.

        Another binder may have bound such a pod before it was admitted here: then the cache counts it already.
        """
        return [
            other
            for key, other in self._admitted.get(node, {}).items()
            if key != attempt.key and not ((pod := self._pods.get(key)) is not None and pod.spec.node_name)
        ]

    def _pod_changed(self, change: Change[Pod]) -> None:
        if self._node_of_pod and change.key in self._node_of_pod and (change.new is None or change.new.spec.node_name):
            self.release(change.key)


def _node_facts(node: Node) -> NodeFacts:
    return read_node(node, names.MIG_ENABLED_NODE_LABEL, lambda _: None)


def _portion_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf
