"""Carries out one BindRequest: prepare, bind, report; or undo, count, report (gpu:8.2, 8.3, 8.6).

The order of writes is what makes a crash harmless.  GPUs are reserved, then the pod gets its group labels, then the
steps prepare (volumes, claims, ConfigMaps), then one Binding both places the pod and carries its annotations, then the
pod's condition, and last the request's phase.  Each write can be repeated, and until the last the request is open: a
process that finds it open starts over.

A failure is undone before it is counted, so that a Failed request leaves nothing behind.  Failures of the API server
itself (no answer, 5xx) say nothing about the request: it is retried, and only several in a row are counted.  A bound
pod whose condition cannot be written is bound all the same.

Subtle: between decision and bind the cluster changes, and caches lag.  An attempt may begin with cached objects, but
right before the Binding the request is read from the server (the same object with the same spec, open, and not being
deleted) and so are the reservations; the Binding names the pod's uid.  While the attempt prepares, the deletion of
request or pod ends it; the Binding itself is never interrupted, because its outcome would be unknown.

Statements: hostile:bind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.decode import DecodeError, decode_as
from pykai.api.gpuvendors import SHAREABLE_GPU
from pykai.api.keys import object_key, split_key
from pykai.api.quantity import QuantityError, unit_value
from pykai.api.scheduling import BindRequest
from pykai.api.sharing import gpu_group_label_keys, gpu_group_labels
from pykai.binder.attempt import BindAttempt, BinderPlugin
from pykai.binder.bindadmission import BindAdmission
from pykai.binder.bindevents import BindEvents
from pykai.binder.changewaiters import cancel_all
from pykai.binder.gpugroups import GpuGroupReconciler, groups_of_request
from pykai.binder.lifecycle import (
    AttemptAborted,
    AttemptOutcome,
    BindFailure,
    InvalidRequest,
    failure_outcome,
    is_settled,
    may_use_gpu_groups,
    pod_uid,
    success_outcome,
)
from pykai.binder.metrics import BinderMetrics
from pykai.binder.reservation import Reservations
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import (
    ApiError,
    Conflict,
    ConnectionLost,
    Forbidden,
    KubeError,
    LeaseLost,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from pykai.kube.resources import BIND_REQUESTS, NODES, PODS
from pykai.kube.store import Store

log = logging.getLogger(__name__)

#: failures of the API server in a row before they count as a failure of the request
_MAX_SERVER_FAILURES = 5
#: stands for the document of a request of which nothing is copied
_NO_RAW_REQUEST: dict[str, Any] = {"spec": {}}


class _PodStateUnknown(KubeError):
    """Whether a pod is bound cannot be read now: a server that has just started has no roles yet and forbids it."""


#: failures of the API server
_TRANSIENT = (ConnectionLost, ServerError, TooManyRequests, Conflict, _PodStateUnknown)


class BindRequestReconciler:
    """Carries out BindRequests; `reconcile` is called for one key at a time."""

    def __init__(
        self,
        client: Client,
        requests: Store[BindRequest],
        pods: Store[Pod],
        nodes: Store[Node],
        *,
        reservations: Reservations,
        groups: GpuGroupReconciler,
        admission: BindAdmission,
        plugins: Sequence[BinderPlugin],
        events: BindEvents,
        clock: Clock,
        metrics: BinderMetrics,
    ) -> None:
        self._client = client
        self._requests = requests
        self._pods = pods
        self._nodes = nodes
        self._reservations = reservations
        self._groups = groups
        self._plugins = plugins
        self._events = events
        self._clock = clock
        self._metrics = metrics
        #: key of a request -> what ends its attempt early
        self._cancel_events: dict[str, asyncio.Event] = {}
        #: key of a pod -> keys of its requests in progress; there may be several
        self._by_pod: dict[str, set[str]] = {}
        #: key of a request -> (its uid, cluster second of its next attempt)
        self._not_before: dict[str, tuple[str, float]] = {}
        #: key of a request -> failures of the API server in a row
        self._server_failures: dict[str, int] = {}
        #: key of a request -> its uid, once an attempt was made here
        self._attempted: dict[str, str] = {}
        self._stopping = False
        self._admission = admission

    def request_gone(self, key: str) -> None:
        """The request was deleted or is being deleted."""
        self._forget(key)
        if key in self._cancel_events:
            self._cancel_events[key].set()

    def _forget(self, key: str) -> None:
        self._not_before.pop(key, None)
        self._server_failures.pop(key, None)
        self._attempted.pop(key, None)

    def pod_gone(self, pod_key: str) -> None:
        """The pod was deleted or is being deleted."""
        if pod_key in self._by_pod:
            for key in self._by_pod[pod_key]:
                self._cancel_events[key].set()

    def start(self) -> None:
        """Accept attempts, for the first time or again."""
        self._stopping = False

    def stop(self) -> None:
        """End attempts that still prepare, and leave them to the next process."""
        self._stopping = True
        for cancel_event in self._cancel_events.values():
            cancel_event.set()

    async def reconcile(self, key: str) -> float | None:
        """Carry out a request, unless it is settled; seconds until its next attempt."""
        try:
            return await self._reconcile(key)
        finally:
            if key not in self._requests:
                # It was deleted meanwhile, and no further change will be seen.
                self._forget(key)

    async def _reconcile(self, key: str) -> float | None:
        cached = self._requests.get(key)
        if self._stopping or cached is None or is_settled(cached) or cached.metadata.deletion_timestamp is not None:
            return None
        uid, at_s = self._not_before.get(key, ("", 0.0))
        if uid == cached.metadata.uid and (remaining_s := at_s - self._clock.elapsed_s()) > 0:
            return remaining_s
        request, document = cached, _NO_RAW_REQUEST
        if not _cache_suffices(cached) or self._attempted.get(key) == cached.metadata.uid:
            raw_request = await self._read_request(key)
            if raw_request is None:
                return None
            document = raw_request
            try:
                request = decode_as(BindRequest, document)
            except DecodeError as problem:
                self._events.publish_unreadable(key, problem)
                return None
            if is_settled(request) or request.metadata.deletion_timestamp is not None:
                return None
        self._attempted[key] = request.metadata.uid
        self._metrics.attempts.inc()
        async with self._groups.exclusive(groups_of_request(request)):
            outcome = await self._attempt(key, request, document)
        if outcome is None or outcome.retry_after_s is None:
            self._not_before.pop(key, None)
            return None
        self._not_before[key] = (request.metadata.uid, self._clock.elapsed_s() + outcome.retry_after_s)
        return outcome.retry_after_s

    async def _attempt(self, key: str, request: BindRequest, document: dict[str, Any]) -> AttemptOutcome | None:
        pod: Pod | None = None
        try:
            if not request.spec.pod_name or not request.spec.selected_node:
                raise InvalidRequest("request", "spec.podName and spec.selectedNode must both be set")
            pod = await self._find_pod(request)
            node = pod.spec.node_name
            if not node:
                began_s = self._clock.elapsed_s()
                node = await self._prepare_and_bind(key, request, document, pod)
                self._metrics.observe_bind(node, self._clock.elapsed_s() - began_s)
        except AttemptAborted as reason:
            log.debug("BindRequest %s: %s", key, reason)
            return None
        except BindFailure as failure:
            return await self._failed(key, request, pod, failure)
        except (Unauthorized, LeaseLost, TooManyRequests):
            # The last one is no failure: it only requests a retry.
            raise
        except _TRANSIENT as error:
            if not self._retries_exhausted(key):
                self._server_failures[key] = self._server_failures.get(key, 0) + 1
                raise
            return await self._failed(key, request, pod, BindFailure("server", str(error)))
        except KubeError as error:
            return await self._failed(key, request, pod, BindFailure("server", str(error)))
        except Exception as error:
            # A bug is reported in the status like any failure, so that the scheduler places the pod again.
            log.exception("BindRequest %s", key)
            return await self._failed(key, request, pod, BindFailure("internal", f"Internal Error: {error}"))
        await self._publish_bound(key, pod, node)
        self._server_failures.pop(key, None)
        outcome = success_outcome(request)
        await self._write_status(key, request, outcome)
        return outcome

    def _retries_exhausted(self, key: str) -> bool:
        """Whether one more failure of the API server counts."""
        return self._server_failures.get(key, 0) + 1 >= _MAX_SERVER_FAILURES

    async def _publish_bound(self, key: str, pod: Pod, node: str) -> None:
        """Report on the pod; a permanent refusal must not keep the request, and with it a GPU, open."""
        try:
            await self._events.publish_bound(pod, node)
        except (Unauthorized, LeaseLost, TooManyRequests):
            raise
        except KubeError as error:
            if isinstance(error, _TRANSIENT) and not self._retries_exhausted(key):
                self._server_failures[key] = self._server_failures.get(key, 0) + 1
                raise
            log.warning(
                "%s/%s is bound, but its condition could not be written: %s",
                pod.metadata.namespace,
                pod.metadata.name,
                error,
            )

    async def _prepare_and_bind(self, key: str, request: BindRequest, document: dict[str, Any], pod: Pod) -> str:
        """Prepare and bind; returns the node of the pod."""
        if pod.metadata.deletion_timestamp is not None:
            raise BindFailure("pod", f"pod {request.metadata.namespace}/{request.spec.pod_name} is being deleted")
        attempt = BindAttempt(request, document, pod, await self._find_node(request))
        if attempt.is_shared and not attempt.groups:
            raise InvalidRequest("request", "a request for a part of a GPU names no selectedGPUGroups")
        if attempt.is_shared:
            _check_group_count(attempt)
        self._admission.check_request(attempt)
        self._cancel_events[key] = asyncio.Event()
        self._by_pod.setdefault(attempt.key, set()).add(key)
        try:
            await self._prepare_unless_cancelled(key, attempt)
            await self._verify_before_bind(key, attempt)
            self._admission.admit(attempt, await self._find_node(attempt.request))
            return await self._bind(attempt)
        except (Unauthorized, LeaseLost):
            raise
        except Exception as error:
            # Whatever failed, what was prepared is undone unless the pod is bound after all.
            if self._stopping and isinstance(error, AttemptAborted):
                raise
            live_pod = await self._read_pod(request)
            if live_pod is not None and live_pod.metadata.uid == pod.metadata.uid and live_pod.spec.node_name:
                if live_pod.spec.node_name != request.spec.selected_node:
                    await self._rollback(attempt, live_pod)
                return live_pod.spec.node_name
            self._admission.release(attempt.key)
            if not isinstance(error, _TRANSIENT) or (
                self._retries_exhausted(key) and not isinstance(error, TooManyRequests)
            ):
                await self._rollback(attempt, live_pod)
            raise
        finally:
            del self._cancel_events[key]
            self._by_pod[attempt.key].discard(key)
            if not self._by_pod[attempt.key]:
                del self._by_pod[attempt.key]

    async def _prepare_unless_cancelled(self, key: str, attempt: BindAttempt) -> None:
        cancel_event = self._cancel_events[key]
        preparing = asyncio.ensure_future(self._prepare(attempt))
        cancelled = asyncio.ensure_future(cancel_event.wait())
        try:
            await asyncio.wait((preparing, cancelled), return_when=asyncio.FIRST_COMPLETED)
            if not preparing.done():
                raise AttemptAborted("stopped" if self._stopping else "the request or its pod was deleted on the way")
            await preparing
        finally:
            await cancel_all(preparing, cancelled)
            # The failure's traceback references this frame; a reference back would leave both to the garbage collector.
            del preparing, cancelled

    # GPUs first, then the plugins by priority (gpu:BI-2, BI-3).
    async def _prepare(self, attempt: BindAttempt) -> None:
        if attempt.is_shared:
            node = attempt.node.metadata.name
            await self._groups.release_unused(node)
            has_tenants = self._groups.has_tenants
            attempt.reserved = await self._reservations.reserve_all(attempt.pod, node, attempt.groups, has_tenants)
            await self._label_gpu_groups(attempt)
        for plugin in self._plugins:
            try:
                await plugin.pre_bind(attempt)
            except BindFailure as failure:
                text = f"plugin {plugin.name} failed in PreBind: {failure}"
                raise BindFailure(failure.step, text) from failure

    async def _label_gpu_groups(self, attempt: BindAttempt) -> None:
        """Put the pod into its groups, and out of those an earlier attempt has left on it (gpu:RV-6)."""
        metadata = attempt.pod.metadata
        labels: dict[str, str | None] = dict(gpu_group_labels(attempt.groups))
        for key in gpu_group_label_keys(metadata.labels):
            labels.setdefault(key, None)
        # Also where the cache has them: a failed attempt may have removed them.
        try:
            patch = {"metadata": {"uid": metadata.uid, "labels": labels}}
            await self._client.patch(PODS, metadata.name, patch, metadata.namespace, brief=True)
        except NotFound as error:
            raise AttemptAborted(f"pod {attempt.key} is gone: {error}") from None
        except ApiError as error:
            # A conflict: another pod of this name, or concurrent writes. The next attempt reads again.
            if isinstance(error, (ServerError, TooManyRequests, Conflict)):
                raise
            raise BindFailure("labels", f"failed to label pod {attempt.key}: {error}") from error

    async def _verify_before_bind(self, key: str, attempt: BindAttempt) -> None:
        """What must still hold right before the pod is bound."""
        namespace, name = split_key(key)
        try:
            request = await self._client.get(BIND_REQUESTS, name, namespace, into=BindRequest)
        except NotFound:
            raise AttemptAborted("the request was deleted on the way") from None
        if request.metadata.uid != attempt.request.metadata.uid:
            raise AttemptAborted("the request was deleted on the way")
        if request.metadata.deletion_timestamp is not None or is_settled(request):
            raise AttemptAborted("the request was settled or deleted on the way")
        if request.spec != attempt.request.spec:
            # The watch brings the change, and with it the next attempt.
            raise AttemptAborted("the request was changed on the way")
        for reserved in attempt.reserved:
            if not await self._reservations.still_holds(reserved):
                raise BindFailure("reservation", f"GPU reservation pod {reserved.name} was deleted on the way")

    # The Binding carries the annotations (gpu:BI-4, BI-5).
    async def _bind(self, attempt: BindAttempt) -> str:
        spec, metadata = attempt.request.spec, attempt.pod.metadata
        annotations: dict[str, str] = {}
        if spec.received_resource_type:
            annotations[names.RECEIVED_TYPE_ANNOTATION] = spec.received_resource_type
        if spec.predicted_numa_zones:
            zones = msgspec.json.encode(attempt.raw_request["spec"]["predictedNUMAZones"])
            annotations[names.NUMA_PREDICTED_ANNOTATION] = zones.decode()
        try:
            await self._client.bind(
                metadata.namespace, metadata.name, uid=metadata.uid, node=spec.selected_node, annotations=annotations
            )
        except ApiError as error:
            if isinstance(error, (ServerError, TooManyRequests)):
                raise
            text = f"failed to bind pod <{attempt.key}> to node <{spec.selected_node}>: {error}"
            raise BindFailure("bind", text) from error
        return spec.selected_node

    async def _rollback(self, attempt: BindAttempt, live_pod: Pod | None) -> None:
        """Undo what was prepared; every plugin is tried, and failures are only reported (gpu:RB-1)."""
        for plugin in self._plugins:
            try:
                await plugin.rollback(attempt)
            except Unauthorized:
                raise
            except Exception as error:
                log.warning("%s: undoing %s: %s", attempt.key, plugin.name, error)
        if live_pod is None or not attempt.is_shared or live_pod.metadata.uid != attempt.pod.metadata.uid:
            return
        stale_labels: dict[str, None] = dict.fromkeys(gpu_group_label_keys(live_pod.metadata.labels))
        if stale_labels:
            version = live_pod.metadata.resource_version
            patch = {"metadata": {"uid": live_pod.metadata.uid, "resourceVersion": version, "labels": stale_labels}}
            try:
                await self._client.patch(PODS, live_pod.metadata.name, patch, live_pod.metadata.namespace, brief=True)
            except KubeError as error:
                log.warning("%s: removing its GPU groups: %s", attempt.key, error)

    async def _failed(
        self, key: str, request: BindRequest, pod: Pod | None, failure: BindFailure
    ) -> AttemptOutcome | None:
        self._server_failures.pop(key, None)
        self._metrics.failures.labels(failure.step).inc()
        where = request.metadata.namespace, request.spec.pod_name, request.spec.selected_node
        log.warning("pod %s/%s was not bound to node %s: %s", *where, failure)
        outcome = failure_outcome(request, str(failure))
        namespace, name = split_key(key)
        if isinstance(failure, InvalidRequest):
            with suppress(NotFound, Conflict):
                await self._client.delete(BIND_REQUESTS, name, namespace, uid=request.metadata.uid)
            outcome = AttemptOutcome({})
        else:
            await self._write_status(key, request, outcome)
        await self._events.publish_failed(request, pod, str(failure))
        return outcome

    async def _write_status(self, key: str, request: BindRequest, outcome: AttemptOutcome) -> None:
        namespace, name = split_key(key)
        patch = {"metadata": {"uid": request.metadata.uid}, "status": outcome.status}
        try:
            await self._client.patch(BIND_REQUESTS, name, patch, namespace, subresource="status", brief=True)
        except NotFound:
            # The answer is not awaited.
            log.debug("BindRequest %s is gone", key)

    async def _find_pod(self, request: BindRequest) -> Pod:
        namespace, name, uid = request.metadata.namespace, request.spec.pod_name, pod_uid(request)
        pod = self._pods.get(object_key(namespace, name))
        if pod is None or (uid and pod.metadata.uid != uid):
            pod = await self._read_pod(request)
        if pod is None:
            raise BindFailure("pod", f"pod {namespace}/{name} not found")
        if uid and pod.metadata.uid != uid:
            raise BindFailure("pod", f"pod {namespace}/{name} is not the one the request was made for")
        return pod

    async def _find_node(self, request: BindRequest) -> Node:
        name = request.spec.selected_node
        node = self._nodes.get(name)
        if node is not None:
            return node
        try:
            return await self._client.get(NODES, name, into=Node)
        except (NotFound, ValueError):
            raise BindFailure("node", f"node {name} not found") from None

    async def _read_request(self, key: str) -> dict[str, Any] | None:
        namespace, name = split_key(key)
        try:
            return await self._client.get_raw(BIND_REQUESTS, name, namespace)
        except NotFound:
            return None

    async def _read_pod(self, request: BindRequest) -> Pod | None:
        try:
            return await self._client.get(PODS, request.spec.pod_name, request.metadata.namespace, into=Pod)
        except NotFound:
            return None
        except Forbidden as error:
            raise _PodStateUnknown(str(error)) from error


def _cache_suffices(request: BindRequest) -> bool:
    """Whether cached objects suffice to begin: the first attempt, and nothing must be copied unpruned."""
    spec, status = request.spec, request.status
    return (
        may_use_gpu_groups(request)
        and not status.failed_attempts
        and not spec.resource_claim_allocations
        and spec.extended_resource_claim_allocation is None
        and not spec.predicted_numa_zones
    )


def _check_group_count(attempt: BindAttempt) -> None:
    """A node must have a GPU for each group: thousands of reservation pods would swamp the cluster."""
    try:
        gpus = unit_value(attempt.node.status.allocatable.get(SHAREABLE_GPU, 0))
    except QuantityError:
        gpus = 0
    if len(attempt.groups) > gpus:
        raise BindFailure(
            "request",
            f"{len(attempt.groups)} GPUs are to be shared on node {attempt.node.metadata.name}, which has {gpus}",
        )
