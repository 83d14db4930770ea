"""Reservation pods: how a GPU group becomes a physical GPU (gpu:8.4).

The scheduler knows only that some pods share "a GPU of this node".  The binder makes one pod per group that asks the
kubelet for a whole GPU; the program in it writes the GPU's UUID into an annotation, and every pod of the group is given
that UUID.  So two groups of a node are two GPUs, and no other pod gets them.

The name of a reservation pod follows from node and group.  It cannot be created twice, so no lock is needed: the second
attempt finds it and waits for its annotation too.  The cache suffices for waiting and to learn the UUID; creating,
deleting and, right before the bind, whether the reservation still exists are decided on live reads.

Subtle: a reservation pod that is being deleted or has finished holds no GPU, although its annotation still names one.
It must be gone before the name can be used again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.gpuvendors import SHAREABLE_GPU
from pykai.api.keys import object_key
from pykai.api.sharing import ReservationRule, reservation_name
from pykai.binder.changewaiters import ChangeWaiters, cancel_all, wait_until
from pykai.binder.lifecycle import BindFailure
from pykai.binder.metrics import BinderMetrics
from pykai.binder.options import BinderOptions
from pykai.binder.scaleups import waits_for_node
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, ServerError, TooManyRequests
from pykai.kube.resources import PODS

log = logging.getLogger(__name__)

#: index of the pods' store: the pods that attract new nodes, under ""
SCALING_INDEX = "binder-scaling"
FINISHED = ("Succeeded", "Failed")


#: whether other pods than the one with this uid use the GPU of a group: (group, node, uid)
HasTenants = Callable[[str, str, str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class ReservedGpu:
    """A GPU that is held for a group."""

    name: str
    uid: str
    gpu: str


class _WantedReservation:
    """A reservation that is being waited for."""

    __slots__ = ("awaited_uid", "created_uid", "group", "key", "name", "node", "pod")

    def __init__(self, pod: Pod, node: str, group: str, namespace: str) -> None:
        self.pod = pod
        self.node = node
        self.group = group
        self.name = reservation_name(node, group)
        self.key = object_key(namespace, self.name)
        #: the pod that this attempt has created, and the one that the server said to wait for
        self.created_uid = self.awaited_uid = ""


class _SeenReservation(NamedTuple):
    """A reservation pod as it was last read; the GPU is empty until the pod knows it."""

    uid: str
    gpu: str = ""
    is_terminating: bool = False


def reservation_pod(pod: Pod, node: str, group: str, options: BinderOptions) -> dict[str, Any]:
    """The pod that holds a GPU of `node` for `group`; `pod` is the first that needs it (gpu:RV-4, KA-1)."""
    container: dict[str, Any] = {
        "name": "resource-reservation",
        "image": options.reservation_image,
        "imagePullPolicy": "IfNotPresent",
        # The image holds all programs; the one of KAI's own image ignores arguments.
        "args": ["reserve"],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        ],
        "resources": {kind: _with_one_gpu(options.reservation_resources.get(kind)) for kind in ("requests", "limits")},
    }
    if options.fake_gpu_nodes:
        container["image"] = "ubuntu"
        container["args"] = ["sleep", "infinity"]
    if options.reservation_container_security_context is not None:
        container["securityContext"] = dict(options.reservation_container_security_context)
    spec: dict[str, Any] = {
        "nodeName": node,
        "serviceAccountName": options.reservation_service_account,
        "tolerations": [msgspec.to_builtins(toleration) for toleration in pod.spec.tolerations],
        "containers": [container],
    }
    if options.reservation_runtime_class:
        spec["runtimeClassName"] = options.reservation_runtime_class
    if options.reservation_pod_security_context is not None:
        spec["securityContext"] = dict(options.reservation_pod_security_context)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": reservation_name(node, group),
            "namespace": options.reservation_namespace,
            "labels": {names.APP_LABEL: options.reservation_app, names.GPU_GROUP_LABEL: group},
            "annotations": {names.KARPENTER_DO_NOT_DISRUPT_ANNOTATION: "true"},
        },
        "spec": spec,
    }


def reservation_rule(options: BinderOptions) -> ReservationRule:
    """Which pods are reservations."""
    return ReservationRule(options.reservation_namespace, options.reservation_app)


def group_held_by(pod: Pod, rule: ReservationRule) -> str:
    """The group for which a pod holds a GPU of its node, "" when it is no reservation."""
    meta = pod.metadata
    return rule.group_held_by(meta.namespace, meta.name, meta.labels, pod.spec.node_name)


def _reserved_gpu(annotations: Mapping[str, str]) -> str:
    return annotations.get(names.RESERVED_GPU_ANNOTATION) or ""


def _with_one_gpu(configured: object) -> dict[str, Any]:
    amounts = dict(configured) if isinstance(configured, dict) else {}
    return {**amounts, SHAREABLE_GPU: "1"}


class Reservations:
    """Gets GPUs for groups."""

    def __init__(
        self,
        client: Client,
        pods: ChangeWaiters[Pod],
        nodes: ChangeWaiters[Node],
        *,
        options: BinderOptions,
        clock: Clock,
        metrics: BinderMetrics,
    ) -> None:
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._options = options
        self._rule = reservation_rule(options)
        self._clock = clock
        self._metrics = metrics
        scaling = options.scale_adjust_namespace
        pods.store.index(SCALING_INDEX, lambda pod: ("",) if pod.metadata.namespace == scaling else ())

    async def reserve_all(
        self, pod: Pod, node: str, groups: Iterable[str], has_tenants: HasTenants
    ) -> list[ReservedGpu]:
        """A GPU for each group, in order; concurrently, so that a pod of eight devices waits once."""
        tasks = [asyncio.ensure_future(self.reserve(pod, node, group, has_tenants)) for group in groups]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            await cancel_all(*tasks)
            # The failure's traceback references this frame; a reference back would leave both to the garbage collector.
            del tasks

    async def reserve(self, pod: Pod, node: str, group: str, has_tenants: HasTenants) -> ReservedGpu:
        """The GPU of a group, reserved now unless it is already; raises `BindFailure` if none can be reserved in time.

        A group that has tenants and no reservation has lost its GPU.  A new reservation would be another GPU, so the
        tenants must be gone first.

        Statements: gpu:RV-2, RV-5.
        """
        wanted = _WantedReservation(pod, node, group, self._options.reservation_namespace)
        started_s = self._clock.elapsed_s()
        until_s = started_s + self._options.reservation_timeout_s
        timed_out = False
        changed = asyncio.Event()
        with self._pods.notify(wanted.key, changed), self._nodes.notify(node, changed):
            while True:
                changed.clear()
                seen = None if timed_out else self._cached_reservation(wanted)
                seen = seen or await self._live_reservation(wanted, has_tenants)
                if seen is None:
                    continue
                if seen.gpu and not seen.is_terminating:
                    self._metrics.reservation_wait.observe(self._clock.elapsed_s() - started_s)
                    return ReservedGpu(wanted.name, seen.uid, seen.gpu)
                if self._nodes.store.get(node) is None:
                    raise BindFailure("node", f"node {node} is gone")
                if timed_out:
                    if not seen.is_terminating:
                        await self.delete(wanted.name, seen.uid)
                    text = f"failed waiting for GPU reservation pod to allocate: {wanted.key}"
                    raise BindFailure("reservation", text)
                # The timeout is reported only after a last live read.
                wanted.awaited_uid = seen.uid
                timed_out = not await wait_until(changed, self._clock, until_s)

    def _cached_reservation(self, wanted: _WantedReservation) -> _SeenReservation | None:
        """The reservation pod as the cache has it, None where a live read is needed.

        A cached GPU may just have been released, unless the server named this reservation pod as the one to wait for.
        """
        cached = self._pods.store.get(wanted.key)
        if cached is None:
            return None
        cached_gpu, awaited_uid = _reserved_gpu(cached.metadata.annotations), wanted.awaited_uid
        is_current = cached.metadata.uid == awaited_uid or not (awaited_uid or cached_gpu)
        if is_current and self._is_usable(cached, wanted.node, wanted.group):
            return _SeenReservation(cached.metadata.uid, cached_gpu)
        return None

    async def _live_reservation(self, wanted: _WantedReservation, has_tenants: HasTenants) -> _SeenReservation | None:
        """The reservation pod as the server has it, created if there is none; None to try again."""
        live = await self._read_reservation(wanted.name)
        if live is None:
            return await self._create_missing(wanted, has_tenants)
        metadata, status = live["metadata"], live.get("status") or {}
        self._check_holder(wanted, metadata.get("labels") or {}, live.get("spec", {}).get("nodeName", ""))
        uid, is_terminating = metadata["uid"], metadata.get("deletionTimestamp") is not None
        if not is_terminating and status.get("phase") in FINISHED:
            await self.delete(wanted.name, uid)
            if wanted.created_uid:
                why = status.get("message") or status.get("reason") or status["phase"]
                raise BindFailure("reservation", f"GPU reservation pod {wanted.key} ended: {why}")
            return None
        return _SeenReservation(uid, _reserved_gpu(metadata.get("annotations") or {}), is_terminating)

    async def _create_missing(self, wanted: _WantedReservation, has_tenants: HasTenants) -> _SeenReservation | None:
        if wanted.created_uid:
            raise BindFailure("reservation", f"GPU reservation pod {wanted.key} was deleted")
        pod, node, group = wanted.pod, wanted.node, wanted.group
        self._refuse_while_scaling(node)
        if await has_tenants(group, node, pod.metadata.uid):
            raise BindFailure("reservation", f"GPU group {group} has lost its GPU and is still in use")
        wanted.created_uid = await self._create(reservation_pod(pod, node, group, self._options))
        return _SeenReservation(wanted.created_uid) if wanted.created_uid else None

    def _check_holder(self, wanted: _WantedReservation, labels: Mapping[str, str], where: str) -> None:
        """Reject a pod that has the name of the reservation but belongs to another node or group."""
        node, group = wanted.node, wanted.group
        held = self._rule.group_held_by(self._options.reservation_namespace, wanted.name, labels, where)
        if where != node or held != group:
            raise BindFailure(
                "reservation",
                f"pod {wanted.key} has the name of the GPU reservation of group {group} on node {node}, but is"
                f" on node {where or 'none'} and has the labels {labels}; delete it",
            )

    def _is_usable(self, pod: Pod, node: str, group: str) -> bool:
        """Whether a pod, as the cache knows it, is the reservation to wait for."""
        is_active = pod.metadata.deletion_timestamp is None and pod.status.phase not in FINISHED
        return is_active and pod.spec.node_name == node and group_held_by(pod, self._rule) == group

    async def still_holds(self, reserved: ReservedGpu) -> bool:
        """Whether a reservation still exists, by a live read."""
        namespace = self._options.reservation_namespace
        try:
            live = await self._client.get(PODS, reserved.name, namespace, into=Pod)
        except NotFound:
            return False
        return (
            live.metadata.uid == reserved.uid
            and live.metadata.deletion_timestamp is None
            and live.status.phase not in FINISHED
        )

    async def delete(self, name: str, uid: str) -> bool:
        """Delete a reservation pod at once (gpu:RV-7); whether it was this one and was there."""
        try:
            await self._client.delete(PODS, name, self._options.reservation_namespace, uid=uid, grace_s=0)
        except (NotFound, Conflict):
            return False
        return True

    async def _read_reservation(self, name: str) -> dict[str, Any] | None:
        try:
            return await self._client.get_raw(PODS, name, self._options.reservation_namespace)
        except NotFound:
            return None

    async def _create(self, document: dict[str, Any]) -> str:
        """The uid of the new pod, "" if another attempt has created it first."""
        try:
            created = await self._client.create(PODS, document, brief=True)
        except AlreadyExists:
            return ""
        except ApiError as error:
            if isinstance(error, (ServerError, TooManyRequests)):
                raise
            raise BindFailure("reservation", f"could not create GPU reservation pod: {error}") from error
        return str(created["metadata"]["uid"])

    def _refuse_while_scaling(self, node: str) -> None:
        """While a scaling pod waits for a new node, that node's GPUs are for it (gpu:RV-3, SA-9)."""
        node_object = self._nodes.store.get(node)
        if node_object is None:
            return
        now_s = self._clock.now().timestamp()
        if any(waits_for_node(pod, node_object, now_s) for pod in self._pods.store.by_index(SCALING_INDEX, "")):
            raise BindFailure("scaling", "cluster is scaling up, could not create reservation pod")
