"""Keeps reservation pods and the pods that share their GPUs in step (gpu:8.7).

A reservation pod lives as long as a pod on its node is in its group, or a BindRequest is about to add one; then it is
deleted at once, and its GPU is free.  A running pod whose reservation pod is gone shares a GPU that the kubelet may
give to another pod: it is deleted, with an event, after the server has confirmed that there is no reservation.  Labels
that a failed or interrupted attempt left on an unbound pod are removed.

Work is per group: changes of pods and BindRequests name the groups to reconcile, indexes list their members.

Labels say which pods are in a group, and a tenant may write labels.  So a pod counts only if it asks for our scheduler:
one of another scheduler never got a GPU from us and keeps none reserved.  A pod in the namespace of reservations, in
contrast, stands for the GPU of its label under any name here: tenants cannot create pods there, and the strict answer
would delete running pods.

Subtle: caches lag.  Before a reservation is deleted, pods that BindRequests of the group were made for are read live:
one may just have been bound.  And while an attempt works on a group (`exclusive`), nothing of it is touched; an attempt
that begins while a group is being reconciled waits for that.

Statements: faults:delete; operations:E-10.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.scheduling import BindRequest
from pykai.api.sharing import gpu_group_label_keys, gpu_groups
from pykai.binder.lifecycle import may_use_gpu_groups, pod_uid
from pykai.binder.metrics import BinderMetrics
from pykai.binder.options import BinderOptions
from pykai.binder.reservation import FINISHED, Reservations
from pykai.kube.client import Client
from pykai.kube.errors import Conflict, NotFound
from pykai.kube.events import EventRecorder, InvolvedObject
from pykai.kube.resources import BIND_REQUESTS, PODS
from pykai.kube.store import Change, Store

log = logging.getLogger(__name__)

#: index of the stores of pods and of BindRequests, by GPU group
GROUP_INDEX = "binder-gpu-group"
#: index of the pods' store: reservation pods by node
RESERVATION_INDEX = "binder-reservations"


def groups_of_request(request: BindRequest) -> tuple[str, ...]:
    """The GPU groups a request puts its pod into."""
    if request.spec.received_resource_type != names.RECEIVED_FRACTION:
        return ()
    return tuple(dict.fromkeys(request.spec.selected_gpu_groups))


def _is_unfinished(pod: Pod) -> bool:
    return pod.status.phase not in FINISHED


class GpuGroupReconciler:
    """Reconciles the groups of shared GPUs, one at a time."""

    def __init__(
        self,
        client: Client,
        pods: Store[Pod],
        requests: Store[BindRequest],
        failed: Store[Pod],
        reservations: Reservations,
        *,
        options: BinderOptions,
        recorder: EventRecorder,
        metrics: BinderMetrics,
        enqueue: Callable[[str], None],
    ) -> None:
        self._client = client
        self._pods = pods
        self._requests = requests
        #: reservation pods that failed: they are not among `pods`, so no other reconciler sees them
        self._failed = failed
        self._reservations = reservations
        self._options = options
        self._recorder = recorder
        self._metrics = metrics
        self._enqueue = enqueue
        self._attempts_in_progress: Counter[str] = Counter()
        self._reconciling: dict[str, asyncio.Event] = {}
        namespace = options.reservation_namespace
        pods.index(GROUP_INDEX, lambda pod: gpu_groups(pod.metadata.labels))
        pods.index(RESERVATION_INDEX, lambda pod: (pod.spec.node_name,) if pod.metadata.namespace == namespace else ())
        requests.index(GROUP_INDEX, groups_of_request)
        failed.index(GROUP_INDEX, lambda pod: gpu_groups(pod.metadata.labels))
        pods.subscribe(self._pod_changed)
        requests.subscribe(self._request_changed)
        failed.subscribe(self._pod_changed)

    def enqueue_all(self) -> None:
        """Reconcile all groups: at start-up, for changes made while no leader watched (gpu:BD-2, SY-1, SY-4)."""
        for pod in (*self._pods.values(), *self._failed.values()):
            for group in gpu_groups(pod.metadata.labels):
                self._enqueue(group)

    async def release_unused(self, node: str) -> None:
        """Delete unused reservations of a node, so that a new one finds a GPU (gpu:BI-1)."""
        for pod in self._pods.by_index(RESERVATION_INDEX, node):
            for group in gpu_groups(pod.metadata.labels):
                if not self._is_used(group):
                    await self.reconcile(group)

    async def has_tenants(self, group: str, node: str, uid: str) -> bool:
        """Whether a pod on the node, other than the one with this uid, is in the group."""
        for pod in self._pods.by_index(GROUP_INDEX, group):
            if self._can_be_tenant(pod) and pod.metadata.uid != uid and pod.spec.node_name == node:
                return True
        return await self._was_just_bound(group, node, uid)

    @asynccontextmanager
    async def exclusive(self, groups: Iterable[str]) -> AsyncIterator[None]:
        """While an attempt works on these groups they are not touched; afterwards they are reconciled (gpu:RV-1)."""
        held_groups = list(groups)
        for group in held_groups:
            while (reconciling := self._reconciling.get(group)) is not None:
                await reconciling.wait()
            self._attempts_in_progress[group] += 1
        try:
            yield
        finally:
            for group in held_groups:
                self._attempts_in_progress[group] -= 1
                if self._attempts_in_progress[group] <= 0:
                    del self._attempts_in_progress[group]
                self._enqueue(group)

    async def reconcile(self, group: str) -> float | None:
        """Reconcile one group (gpu:SY-2)."""
        while (reconciling := self._reconciling.get(group)) is not None:
            await reconciling.wait()
        if self._attempts_in_progress[group]:
            return None
        self._reconciling[group] = asyncio.Event()
        try:
            await self._reconcile_group(group)
        finally:
            self._reconciling.pop(group).set()
        return None

    def _is_used(self, group: str) -> bool:
        """Whether the caches show a pod in the group, or about to join it (gpu:RB-3)."""
        if self._attempts_in_progress[group] or any(
            may_use_gpu_groups(request) for request in self._requests.by_index(GROUP_INDEX, group)
        ):
            return True
        return any(pod.spec.node_name and self._can_be_tenant(pod) for pod in self._pods.by_index(GROUP_INDEX, group))

    def _can_be_tenant(self, pod: Pod) -> bool:
        """Whether a pod with the label of a group can be in it."""
        elsewhere = pod.metadata.namespace != self._options.reservation_namespace
        return elsewhere and pod.spec.scheduler_name == self._options.scheduler_name and _is_unfinished(pod)

    # Which reservation pods are deleted, and which pods that lost theirs (gpu:SY-3).
    async def _reconcile_group(self, group: str) -> None:
        reservations: list[Pod] = []
        tenants: list[Pod] = []
        for pod in self._pods.by_index(GROUP_INDEX, group):
            if pod.metadata.namespace == self._options.reservation_namespace:
                reservations.append(pod)
            elif self._can_be_tenant(pod):
                tenants.append(pod)
        open_requests = [
            request for request in self._requests.by_index(GROUP_INDEX, group) if may_use_gpu_groups(request)
        ]
        kept_nodes = {request.spec.selected_node for request in open_requests}
        bound = [pod for pod in tenants if pod.spec.node_name]
        for pod in tenants:
            if not pod.spec.node_name and not kept_nodes:
                live = await self._clean_up_unbound(pod, group)
                if live is not None and live.spec.node_name:
                    bound.append(live)
                elif live is not None:
                    kept_nodes.update(reserved.spec.node_name for reserved in reservations)
        kept_nodes.update(pod.spec.node_name for pod in bound)
        for reservation in self._failed.by_index(GROUP_INDEX, group):
            await self._delete_reservation(reservation)
        for reservation in reservations:
            node = reservation.spec.node_name
            if not _is_unfinished(reservation):
                await self._delete_reservation(reservation)
            elif node not in kept_nodes and not await self._was_just_bound(group, node):
                if await self._delete_reservation(reservation):
                    self._metrics.orphans_deleted.inc()
                    log.debug("reservation %s of group %s is unused", reservation.metadata.name, group)
        reserved_nodes = {reserved.spec.node_name for reserved in reservations if _is_unfinished(reserved)}
        without_reservation = [pod for pod in bound if pod.spec.node_name not in reserved_nodes]
        if without_reservation:
            await self._delete_without_reservation(group, without_reservation)

    async def _clean_up_unbound(self, pod: Pod, group: str) -> Pod | None:
        """A pod that carries the group's label and is not bound, as far as the cache knows.

        None if the pod belongs to no group any more: its label was removed.  Otherwise the pod as it is now.
        """
        meta = pod.metadata
        live = await self._read_pod(meta.namespace, meta.name)
        if live is None or live.metadata.uid != meta.uid or not _is_unfinished(live):
            return None
        if live.spec.node_name:
            return live
        try:
            request = await self._client.get(BIND_REQUESTS, meta.name, meta.namespace, into=BindRequest)
        except NotFound:
            request = None
        if request is not None and may_use_gpu_groups(request) and group in groups_of_request(request):
            return live
        stale_labels: dict[str, None] = dict.fromkeys(
            key for key in gpu_group_label_keys(live.metadata.labels) if live.metadata.labels[key] == group
        )
        if stale_labels:
            # This version only: a new decision may have put the pod into another group meanwhile.
            version = live.metadata.resource_version
            patch = {"metadata": {"uid": meta.uid, "resourceVersion": version, "labels": stale_labels}}
            with suppress(NotFound):
                await self._client.patch(PODS, meta.name, patch, meta.namespace, brief=True)
        return None

    async def _was_just_bound(self, group: str, node: str, except_uid: str = "") -> bool:
        """Whether a pod was bound to the group's GPU and the cache does not know yet."""
        for request in self._requests.by_index(GROUP_INDEX, group):
            if request.spec.selected_node != node or pod_uid(request) == except_uid != "":
                continue
            namespace, name, uid = request.metadata.namespace, request.spec.pod_name, pod_uid(request)
            cached = self._pods.get(object_key(namespace, name))
            if cached is not None and cached.metadata.uid == uid and not _is_unfinished(cached):
                continue
            live = await self._read_pod(namespace, name)
            if live is None or (uid and live.metadata.uid != uid) or not _is_unfinished(live):
                continue
            if live.spec.node_name == node and group in gpu_groups(live.metadata.labels):
                return True
        return False

    async def _delete_without_reservation(self, group: str, pods: list[Pod]) -> None:
        """Delete running pods whose GPU is no longer reserved; pods that have not started wait."""
        reservations = await self._client.list(
            PODS,
            into=Pod,
            namespace=self._options.reservation_namespace,
            label_selector=f"{names.GPU_GROUP_LABEL}={group}",
        )
        nodes = {pod.spec.node_name for pod in reservations.items if _is_unfinished(pod)}
        for pod in pods:
            if pod.spec.node_name in nodes:
                continue
            meta = pod.metadata
            live = await self._read_pod(meta.namespace, meta.name)
            if live is None or live.metadata.uid != meta.uid or live.metadata.deletion_timestamp is not None:
                continue
            if live.status.phase != "Running" or group not in gpu_groups(live.metadata.labels):
                continue
            text = (
                f"The pod that reserves its GPU on node {pod.spec.node_name} (group {group}) is gone; "
                "the pod is deleted, as another may be given the same GPU"
            )
            about = InvolvedObject("v1", "Pod", meta.namespace, meta.name, meta.uid)
            self._recorder.event(about, "Warning", names.EVENT_RESERVATION_MISSING, text)
            log.warning("pod %s/%s: %s", meta.namespace, meta.name, text)
            try:
                await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid)
                self._metrics.pods_deleted.inc()
            except NotFound:
                pass

    async def _delete_reservation(self, reservation: Pod) -> bool:
        """Delete a reservation pod; whether it existed.  Raises `Conflict` if it still does: the group is reconciled
        again.
        """
        meta = reservation.metadata
        if await self._reservations.delete(meta.name, meta.uid):
            return True
        live = await self._read_pod(meta.namespace, meta.name)
        if live is not None and live.metadata.uid == meta.uid:
            raise Conflict(409, "Conflict", f"reservation pod {meta.name} could not be deleted")
        return False

    async def _read_pod(self, namespace: str, name: str) -> Pod | None:
        try:
            return await self._client.get(PODS, name, namespace, into=Pod)
        except NotFound:
            return None

    # A pod that ends or is deleted may leave a reservation unused (gpu:BD-4).
    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            if old.status.phase == new.status.phase and old.spec.node_name == new.spec.node_name:
                return
        before = gpu_groups(old.metadata.labels) if old is not None else ()
        after = gpu_groups(new.metadata.labels) if new is not None else ()
        for group in {*before, *after}:
            self._enqueue(group)

    def _request_changed(self, change: Change[BindRequest]) -> None:
        """A request that ends, one way or another, holds its groups no longer (gpu:B-6)."""
        if change.old is None and change.new is not None and may_use_gpu_groups(change.new):
            return
        for request in (change.old, change.new):
            if request is not None:
                for group in groups_of_request(request):
                    self._enqueue(group)
