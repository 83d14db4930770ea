"""A last look at a node before a pod is sent there.

Between the snapshot of a cycle and the write of its last bind lie the cycle itself and the queue of writes.  Meanwhile
others go on: the default scheduler binds its pods to the same nodes, static pods appear, nodes shrink.  A bind that no
longer fits would be refused by the kubelet, and the pod would have failed through our fault, although we could have
known.  So each bind is looked at right before it goes out.

That is cheap, because hardly ever did anything happen: the intake counts what came to a node without us, and a node to
which nothing came since the decision has the room that the engine saw.  Otherwise the requests of everybody who is
there or on the way are added up (`core.placing.nodeload`), and `obstacle` says what is missing.

Subtle: a pod that shares a GPU of which no reservation pod is known yet needs a whole one of the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.scheduling import BindRequest
from pykai.core.model.shapes import ShapeRegister
from pykai.core.model.tasks import has_ended
from pykai.core.placing.nodeload import NodeLoad, shape_or_empty
from pykai.scheduler.dispatch.bindplan import Planned
from pykai.scheduler.dispatch.gangplans import GangPlan, is_whole
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.sanitising.nodes import believable
from pykai.scheduler.sanitising.standins import PODS_ON

_REQUESTS_FOR = "requests by node"


class Room:
    """Says whether nodes still have room for what was decided a while ago."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._register = ShapeRegister()
        intake.requests.index(_REQUESTS_FOR, _selected_node)

    def obstacle(self, namespace: str, entry: Planned, as_of: int) -> str:
        """Why a pod that was given its node as of then does not fit there any more, "" when it does."""
        node = self._intake.nodes.get(entry.node)
        if node is None:
            return f"node {entry.node} is gone"
        if self._intake.came_to(entry.node) <= as_of:
            return ""
        pod = self._intake.pods.get(f"{namespace}/{entry.pod}")
        if pod is None:
            # Whoever binds will be told.
            return ""
        return self._missing(entry, pod, believable(node)[0])

    def keeps_back(self, plan: GangPlan, entries: Iterable[Planned], as_of: int) -> str:
        """Why a gang of which nothing is bound yet cannot be whole any more, "" when it can."""
        found = {entry.pod: self.obstacle(plan.namespace, entry, as_of) for entry in entries}
        group = self._intake.groups.get(plan.key)
        if plan.bound or group is None or not any(found.values()):
            return ""

        def comes(pod: Pod) -> bool:
            name = pod.metadata.name
            return not found.get(name) and self._intake.assumes_bind(f"{plan.namespace}/{name}")

        whole = is_whole(group, self._intake.pods_of(plan.key), comes)
        return "" if whole else next(why for why in found.values() if why)

    def _missing(self, entry: Planned, pod: Pod, node: Node) -> str:
        load = NodeLoad(self._register)
        held: set[str] = set()
        for other in self._intake.pods.by(PODS_ON, entry.node):
            if not has_ended(other):
                load.add(other)
                if group := self._intake.reserved_group(other):
                    held.add(group)
        coming: set[str] = set()
        for request in self._on_the_way(entry):
            other_pod = self._intake.pods.get(f"{request.metadata.namespace}/{request.spec.pod_name}")
            if other_pod is not None:
                load.add(other_pod)
                coming.update(request.spec.selected_gpu_groups)
        load.used[names.NVIDIA_GPU] += len(coming - held)
        spec = entry.spec()
        shape = shape_or_empty(pod, self._register)
        served = spec.extended_resource_claim_allocation is not None
        wanted = Counter({each: asked for each, asked in shape.requests if not (served and "/" in each)})
        wanted[names.NVIDIA_GPU] += len(set(spec.selected_gpu_groups) - held - coming)
        why = load.shortage(node, wanted, shape)
        return f"others came to node {entry.node}: {why}" if why else ""

    def _on_the_way(self, entry: Planned) -> Iterator[BindRequest]:
        """The binds of others to the node that have not been seen there yet."""
        seen = set()
        for request in (*self._intake.binds_to(entry.node), *self._intake.requests.by(_REQUESTS_FOR, entry.node)):
            key = f"{request.metadata.namespace}/{request.spec.pod_name}"
            pod = self._intake.pods.get(key)
            if key in seen or pod is None:
                continue
            if not pod.spec.node_name and pod.metadata.uid != entry.uid and self._intake.counts(request):
                seen.add(key)
                yield request


def _selected_node(request: BindRequest) -> Iterable[str]:
    return (request.spec.selected_node,) if request.spec.selected_node else ()
