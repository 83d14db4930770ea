"""Rechecks a node right before a pod is bound to it.

Between the snapshot of a cycle and the write of its last bind lie the cycle itself and the queue of writes.  Meanwhile
the default scheduler binds its pods to the same nodes, static pods appear, nodes shrink.  A bind that no longer fits
would be rejected by the kubelet, and the pod would have failed through our fault, although we could have known.  So
each bind is checked right before it is written.

That is cheap, because changes are rare: the intake counts what came to a node without us, and a node without arrivals
since the decision has the room that the engine saw.  Otherwise the requests of all pods on the node and of binds in
progress are added up (`core.placing.nodeload`), and `fit_error` says what is missing.

Subtle: a pod that shares a GPU without a known reservation pod needs a whole GPU of the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from pykai.api.core import Node, Pod
from pykai.api.gpuvendors import SHAREABLE_GPU
from pykai.api.keys import object_key
from pykai.api.scheduling import BindRequest
from pykai.core.model.shapes import ShapeRegister
from pykai.core.model.tasks import has_ended
from pykai.core.placing.nodeload import NodeLoad, shape_or_empty
from pykai.kube.store import Store
from pykai.scheduler.dispatch.bindplan import PendingBind
from pykai.scheduler.intake.bindassumptions import BindAssumptions
from pykai.scheduler.intake.nodegenerations import NodeGenerations
from pykai.scheduler.sanitising.nodes import sanitise_node
from pykai.scheduler.sanitising.sharedgpus import SharedGpuSanitiser
from pykai.scheduler.sanitising.standins import PODS_BY_NODE

_REQUESTS_BY_NODE = "requests by node"


class NodeRecheck:
    """Checks whether nodes still have room for earlier decisions."""

    def __init__(
        self,
        pods: Store[Pod],
        nodes: Store[Node],
        requests: Store[BindRequest],
        binds: BindAssumptions,
        generations: NodeGenerations,
        shared_gpus: SharedGpuSanitiser,
    ) -> None:
        self._pods = pods
        self._nodes = nodes
        self._requests = requests
        self._binds = binds
        self._generations = generations
        self._shared_gpus = shared_gpus
        self._register = ShapeRegister()
        requests.index(_REQUESTS_BY_NODE, _selected_node)

    def fit_error(self, namespace: str, entry: PendingBind, seen_generation: int) -> str:
        """Why a pod no longer fits the node it was given at that generation, "" if it does."""
        node = self._nodes.get(entry.node)
        if node is None:
            return f"node {entry.node} is gone"
        if self._generations.of(entry.node) <= seen_generation:
            return ""
        pod = self._pods.get(object_key(namespace, entry.pod))
        if pod is None:
            # The bind itself will fail.
            return ""
        return self._shortage(entry, pod, sanitise_node(node)[0])

    def _shortage(self, entry: PendingBind, pod: Pod, node: Node) -> str:
        load = NodeLoad(self._register)
        reserved_groups: set[str] = set()
        for other in self._pods.by_index(PODS_BY_NODE, entry.node):
            if not has_ended(other):
                load.add(other)
                if group := self._shared_gpus.reserved_group(other):
                    reserved_groups.add(group)
        incoming_groups: set[str] = set()
        for request in self._incoming_binds(entry):
            other_pod = self._pods.get(object_key(request.metadata.namespace, request.spec.pod_name))
            if other_pod is not None:
                load.add(other_pod)
                incoming_groups.update(request.spec.selected_gpu_groups)
        load.used[SHAREABLE_GPU] += len(incoming_groups - reserved_groups)
        spec = entry.spec()
        shape = shape_or_empty(pod, self._register)
        served = spec.extended_resource_claim_allocation is not None
        requested = Counter({each: asked for each, asked in shape.requests if not (served and "/" in each)})
        requested[SHAREABLE_GPU] += len(set(spec.selected_gpu_groups) - reserved_groups - incoming_groups)
        why = load.shortage(node, requested, shape)
        return f"others came to node {entry.node}: {why}" if why else ""

    def _incoming_binds(self, entry: PendingBind) -> Iterator[BindRequest]:
        """Other binds to the node that have not been seen there yet."""
        seen = set()
        for request in (
            *self._binds.on_node(entry.node),
            *self._requests.by_index(_REQUESTS_BY_NODE, entry.node),
        ):
            key = object_key(request.metadata.namespace, request.spec.pod_name)
            pod = self._pods.get(key)
            if key in seen or pod is None:
                continue
            if not pod.spec.node_name and pod.metadata.uid != entry.uid and self._binds.is_effective(request):
                seen.add(key)
                yield request


def _selected_node(request: BindRequest) -> Iterable[str]:
    return (request.spec.selected_node,) if request.spec.selected_node else ()
