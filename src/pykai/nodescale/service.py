"""Creates scaling pods for pods that share GPUs and fit nowhere (gpu:SA-1 to SA-8).

Autoscalers read requests; shares of GPUs are annotations.  For such pods this service asks for whole GPUs in a
namespace of its own; when a node with a GPU comes, the scaling pod runs there, ends and is deleted, and the pod gets
the GPU (the binder holds it back meanwhile, gpu:SA-9).

In: changes of pods and nodes.  Out: scaling pods, created and deleted, and an event about each pod they are for.

Subtle:
- What pods need is followed event by event; one look at the whole, at most every `settle_s`, decides.
- A pod has at most one scaling pod: its name follows from the pod's.
- After a removal nothing is created for `cooldown_s`: the pod may be about to start.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.decode import decode_as
from pykai.api.gpuvendors import SHAREABLE_GPU
from pykai.api.quantity import QuantityError, unit_value
from pykai.core.model.nodes import read_node
from pykai.core.model.shapes import ShapeRegister
from pykai.kube import resources
from pykai.kube.client import PatchKind
from pykai.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Unauthorized
from pykai.kube.events import InvolvedObject
from pykai.kube.flags import read_options
from pykai.kube.reconcilingservice import ReconcilingService
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change
from pykai.nodescale.adjustment import ScalingPod, to_create, unneeded
from pykai.nodescale.demand import (
    UnschedulableShare,
    has_scheduling_condition,
    is_unschedulable,
    needed_gpus,
    shares_gpus,
    unschedulable_share,
)
from pykai.nodescale.options import FLAGS, NodeScaleOptions
from pykai.nodescale.scalingpod import back_reference, scaling_pod

log = logging.getLogger(__name__)

#: The one key that is reconciled: the cluster.
_CLUSTER: Final = "cluster"
#: Shapes of pods that are remembered before the register is cleared.
_MAX_SHAPES: Final = 5_000
_UNSCHEDULABLE: Final = {
    "status": {
        "conditions": [
            {
                "type": names.CONDITION_POD_SCHEDULED,
                "status": "False",
                "reason": names.CONDITION_REASON_UNSCHEDULABLE,
                "message": "waits for a node with a GPU for pods that share GPUs",
            }
        ]
    }
}


def from_flags(runtime: Runtime, given: Mapping[str, str], _: CollectorRegistry) -> list[NodeScaleAdjuster]:
    """The service that flags ask for; raises `OptionError`."""
    return [NodeScaleAdjuster(runtime, read_options(NodeScaleOptions(), FLAGS, given))]


class NodeScaleAdjuster(ReconcilingService):
    """See the module."""

    name = "nodescale"

    def __init__(self, runtime: Runtime, options: NodeScaleOptions) -> None:
        super().__init__(runtime, component=names.NODE_SCALE_ADJUSTER, workers=1)
        caches = runtime.caches
        self._options = options
        selector = "status.phase!=Failed" if options.shared_cache else f"spec.schedulerName={options.scheduler_name}"
        self._pods = self._need(caches.store(resources.PODS, Pod, field_selector=selector))
        self._scaling_pods = self._need(caches.store(resources.PODS, Pod, namespace=options.namespace))
        self._nodes = self._need(caches.store(resources.NODES, Node))
        self._shapes = ShapeRegister()
        #: pod key -> what it needs
        self._shares: dict[str, UnschedulableShare] = {}
        #: pod key -> back reference, of pods whose scaling pod stays
        self._wanted: dict[str, tuple[str, str]] = {}
        #: node -> memory of its GPUs
        self._gpu_mib: dict[str, int] = {}
        #: uids of scaling pods that were deleted here and that the watch may still show
        self._deleted: set[str] = set()
        self._last_removal_s: float | None = None
        #: whether something has changed since the last look
        self._is_dirty = False

    def idle(self) -> bool:
        """Whether every change that was seen has been dealt with."""
        return not self._is_dirty and super().idle()

    async def _subscribe(self) -> None:
        self._nodes.subscribe(self._node_changed)
        self._scaling_pods.subscribe(self._scaling_pod_changed)
        await self._pods.subscribe_yielding(self._pod_changed)

    def _look_again(self) -> None:
        self._is_dirty = True
        self._reconciler.enqueue(_CLUSTER, after_s=self._options.settle_s * self._clock.speed)

    def _pod_changed(self, change: Change[Pod]) -> None:
        key, pod = change.key, change.new
        share, wanted = None, None
        if pod is not None and shares_gpus(pod, self._options.scheduler_name):
            if len(self._shapes.shapes) > _MAX_SHAPES:
                self._shapes = ShapeRegister()
            share = unschedulable_share(pod, self._options.scheduler_name, self._shapes)
            if is_unschedulable(pod) or not has_scheduling_condition(pod):
                wanted = back_reference(pod.metadata.namespace, pod.metadata.name)
        if share != self._shares.get(key) or wanted != self._wanted.get(key):
            _put(self._shares, key, share)
            _put(self._wanted, key, wanted)
            self._look_again()

    def _scaling_pod_changed(self, change: Change[Pod]) -> None:
        """gpu:SA-2, with changes of scaling pods, which KAI misses."""
        if change.new is None and change.old is not None:
            self._deleted.discard(change.old.metadata.uid)
        self._look_again()

    def _node_changed(self, change: Change[Node]) -> None:
        facts = read_node(change.new, "", lambda problem: None) if change.new is not None else None
        known = facts.gpu_mib if facts is not None and facts.has_gpu_memory_label else None
        if known != self._gpu_mib.get(change.key):
            _put(self._gpu_mib, change.key, known)
            self._look_again()

    async def _reconcile(self, key: str) -> float | None:
        """gpu:SA-3: what is not needed goes, then, after a pause, what is missing comes."""
        self._is_dirty = False
        existing = self._existing()
        unneeded_pods = unneeded(existing, set(self._wanted.values()))
        for pod in unneeded_pods:
            await self._delete(pod)
        pause_s = self._pause_s()
        if pause_s > 0:
            return pause_s
        gone = {pod.uid for pod in unneeded_pods}
        left = [pod for pod in existing if pod.uid not in gone]
        shares = list(self._shares.values())
        needed = needed_gpus(shares, list(set(self._gpu_mib.values())), self._options.gpu_memory_to_fraction_ratio)
        for share in to_create(shares, left, needed, self._options.max_scaling_pods):
            await self._create(share)
        return None

    def _existing(self) -> list[ScalingPod]:
        """The scaling pods in the cluster; other pods in the namespace are left alone."""
        found = []
        for pod in self._scaling_pods.values():
            metadata = pod.metadata
            is_ours = metadata.labels.get(names.APP_LABEL) == self._options.scaling_pod_app
            if is_ours and metadata.deletion_timestamp is None and metadata.uid not in self._deleted:
                labels = metadata.labels
                reference = (
                    labels.get(names.SHARED_GPU_POD_NAMESPACE_LABEL, ""),
                    labels.get(names.SHARED_GPU_POD_NAME_LABEL, ""),
                )
                found.append(
                    ScalingPod(metadata.name, metadata.uid, reference, _gpus(pod), pod.status.phase == "Succeeded")
                )
        return found

    def _pause_s(self) -> float:
        """Cluster seconds until scaling pods may be created."""
        if self._last_removal_s is None:
            return 0.0
        return self._last_removal_s + self._options.cooldown_s - self._clock.elapsed_s()

    async def _delete(self, pod: ScalingPod) -> None:
        with suppress(NotFound, Conflict):
            await self._client.delete(resources.PODS, pod.name, self._options.namespace, uid=pod.uid)
        self._deleted.add(pod.uid)
        self._last_removal_s = self._clock.elapsed_s()
        log.info("deleted scaling pod %s: its pod does not need it", pod.name)

    async def _create(self, share: UnschedulableShare) -> None:
        """Create the scaling pod of a pod; a failure is logged and stops no other."""
        try:
            pod = await self._client.get_raw(resources.PODS, share.name, share.namespace)
            if pod["metadata"].get("uid") != share.uid:
                return
            created = await self._client.create(resources.PODS, scaling_pod(share, pod.get("spec", {}), self._options))
            self._scaling_pods.assume(decode_as(Pod, created))
            # At once, instead of when the default scheduler gets to it: autoscalers read this condition.
            name = created["metadata"]["name"]
            await self._client.patch(
                resources.PODS,
                name,
                _UNSCHEDULABLE,
                self._options.namespace,
                kind=PatchKind.STRATEGIC,
                subresource="status",
                brief=True,
            )
        except (NotFound, AlreadyExists) as error:
            log.debug("no scaling pod for %s: %s", share.key, error)
        except Unauthorized:
            raise
        except ApiError as error:
            log.warning("no scaling pod for %s: %s", share.key, error)
        else:
            about = InvolvedObject("v1", "Pod", share.namespace, share.name, share.uid)
            gpus = "a GPU" if share.request.devices == 1 else f"{share.request.devices} GPUs"
            message = f"asked for a node with {gpus} through scaling pod {self._options.namespace}/{name}"
            self._recorder.event(about, "Normal", names.EVENT_SCALE_UP_REQUESTED, message)


def _put(table: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _gpus(pod: Pod) -> int:
    try:
        return sum(unit_value(each.resources.limits.get(SHAREABLE_GPU, 0)) for each in pod.spec.containers)
    except QuantityError:
        return 0
