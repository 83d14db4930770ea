"""Carries out one BindRequest: prepare, bind, tell; or undo, count, tell (gpu:8.2, 8.3, 8.6).

The order of writes is what makes a crash harmless.  GPUs are reserved, then the pod gets its group labels, then the
steps prepare (volumes, claims, ConfigMaps), then one Binding both places the pod and carries its annotations, then
the pod's condition, and last the request's phase.  Each write can be repeated, and until the last the request is
open: whoever finds it open begins again.

A failure is undone before it is counted, so that whoever sees Failed finds nothing in the way.  Failures of the API
server itself (no answer, 5xx) say nothing about the request: it is tried again, and only after several is it counted.
A pod that is bound and cannot be told so is bound all the same.

Subtle: between the decision and the bind the world moves on, and caches lag.  An attempt may begin on what the caches
say, but right before the Binding the request is read from the server (it must be the same object with the same spec,
open, and not on its way out) and so are the reservations; the Binding names the pod's uid.  While the attempt prepares,
the deletion of request or pod ends it; the Binding itself is never interrupted, because nobody could tell whether it
arrived.

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
from pykai.api.quantity import QuantityError, whole
from pykai.api.scheduling import BindRequest
from pykai.api.sharing import group_labels, labels_for
from pykai.binder.attempt import Attempt, Step
from pykai.binder.bindadmission import Room
from pykai.binder.bindevents import Verdicts
from pykai.binder.changewaiters import end_all
from pykai.binder.gpugroups import GroupSync, groups_of_request
from pykai.binder.lifecycle import (
    BindFailure,
    InvalidRequest,
    Outcome,
    Withdrawn,
    failed,
    holds_groups,
    pod_uid,
    settled,
    succeeded,
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
    ServerFailed,
    TooManyRequests,
    Unauthorized,
)
from pykai.kube.resources import BIND_REQUESTS, NODES, PODS, split_key
from pykai.kube.store import Store

log = logging.getLogger(__name__)

#: failures of the API server in a row before they count as a failure of the request
_MOST_DISTURBANCES = 5
#: stands for the document of a request of which nothing is copied
_PLAIN: dict[str, Any] = {"spec": {}}


class _Unseen(KubeError):
    """Whether a pod is bound cannot be seen now: a server that has just started knows no roles and forbids to look."""


#: what the API server is to blame for
_PASSING = (ConnectionLost, ServerFailed, TooManyRequests, Conflict, _Unseen)


class Binding:
    """Carries out BindRequests; `reconcile` is called for one key at a time."""

    def __init__(
        self,
        client: Client,
        requests: Store[BindRequest],
        pods: Store[Pod],
        nodes: Store[Node],
        *,
        reservations: Reservations,
        groups: GroupSync,
        room: Room,
        steps: Sequence[Step],
        verdicts: Verdicts,
        clock: Clock,
        metrics: BinderMetrics,
    ) -> None:
        self._client = client
        self._requests = requests
        self._pods = pods
        self._nodes = nodes
        self._reservations = reservations
        self._groups = groups
        self._steps = steps
        self._verdicts = verdicts
        self._clock = clock
        self._metrics = metrics
        #: key of a request -> what ends its attempt early
        self._ends: dict[str, asyncio.Event] = {}
        #: key of a pod -> keys of the requests that are being carried out for it; somebody may have made several
        self._by_pod: dict[str, set[str]] = {}
        #: key of a request -> (its uid, cluster second of its next attempt)
        self._not_before: dict[str, tuple[str, float]] = {}
        #: key of a request -> failures of the API server in a row
        self._disturbed: dict[str, int] = {}
        #: key of a request -> its uid, once an attempt was made here
        self._tried: dict[str, str] = {}
        self._stopping = False
        self._room = room

    def request_gone(self, key: str) -> None:
        """The request was deleted, or is about to be."""
        self._forget(key)
        if key in self._ends:
            self._ends[key].set()

    def _forget(self, key: str) -> None:
        self._not_before.pop(key, None)
        self._disturbed.pop(key, None)
        self._tried.pop(key, None)

    def pod_gone(self, pod_key: str) -> None:
        """The pod was deleted, or is about to be."""
        if pod_key in self._by_pod:
            for key in self._by_pod[pod_key]:
                self._ends[key].set()

    def start(self) -> None:
        """Take attempts up, for the first time or again."""
        self._stopping = False

    def stop(self) -> None:
        """End attempts that still prepare, and leave them to the next process."""
        self._stopping = True
        for end in self._ends.values():
            end.set()

    async def reconcile(self, key: str) -> float | None:
        """Carry out a request, unless it is settled; seconds until its next attempt."""
        try:
            return await self._reconcile(key)
        finally:
            if key not in self._requests:
                # It has gone on the way, and nothing will be told of it again.
                self._forget(key)

    async def _reconcile(self, key: str) -> float | None:
        cached = self._requests.get(key)
        if self._stopping or cached is None or settled(cached) or cached.metadata.deletion_timestamp is not None:
            return None
        uid, at_s = self._not_before.get(key, ("", 0.0))
        if uid == cached.metadata.uid and (left_s := at_s - self._clock.elapsed_s()) > 0:
            return left_s
        request, document = cached, _PLAIN
        if not _fresh_and_plain(cached) or self._tried.get(key) == cached.metadata.uid:
            live = await self._live(key)
            if live is None:
                return None
            document = live
            try:
                request = decode_as(BindRequest, document)
            except DecodeError as problem:
                self._verdicts.unreadable(key, problem)
                return None
            if settled(request) or request.metadata.deletion_timestamp is not None:
                return None
        self._tried[key] = request.metadata.uid
        self._metrics.attempts.inc()
        async with self._groups.entered(groups_of_request(request)):
            outcome = await self._attempt(key, request, document)
        if outcome is None or outcome.retry_after_s is None:
            self._not_before.pop(key, None)
            return None
        self._not_before[key] = (request.metadata.uid, self._clock.elapsed_s() + outcome.retry_after_s)
        return outcome.retry_after_s

    async def _attempt(self, key: str, request: BindRequest, document: dict[str, Any]) -> Outcome | None:
        pod: Pod | None = None
        try:
            if not request.spec.pod_name or not request.spec.selected_node:
                raise InvalidRequest("request", "spec.podName and spec.selectedNode must both be set")
            pod = await self._pod(request)
            node = pod.spec.node_name
            if not node:
                node = await self._carry_out(key, request, document, pod)
        except Withdrawn as reason:
            log.debug("BindRequest %s: %s", key, reason)
            return None
        except BindFailure as failure:
            return await self._failed(key, request, pod, failure)
        except (Unauthorized, LeaseLost, TooManyRequests):
            # The last is no failure, only a word to come back later.
            raise
        except _PASSING as error:
            if not self._too_often(key):
                self._disturbed[key] = self._disturbed.get(key, 0) + 1
                raise
            return await self._failed(key, request, pod, BindFailure("server", str(error)))
        except KubeError as error:
            return await self._failed(key, request, pod, BindFailure("server", str(error)))
        except Exception as error:
            log.exception("BindRequest %s", key)
            return await self._failed(key, request, pod, BindFailure("internal", f"Internal Error: {error}"))
        await self._tell_bound(key, pod, node)
        self._disturbed.pop(key, None)
        outcome = succeeded(request)
        await self._settle(key, request, outcome)
        return outcome

    def _too_often(self, key: str) -> bool:
        """Whether one more failure of the API server counts."""
        return self._disturbed.get(key, 0) + 1 >= _MOST_DISTURBANCES

    async def _tell_bound(self, key: str, pod: Pod, node: str) -> None:
        """Say it on the pod; whoever refuses that for good must not keep the request open, and a GPU with it."""
        try:
            await self._verdicts.bound(pod, node)
        except (Unauthorized, LeaseLost, TooManyRequests):
            raise
        except KubeError as error:
            if isinstance(error, _PASSING) and not self._too_often(key):
                self._disturbed[key] = self._disturbed.get(key, 0) + 1
                raise
            log.warning("%s/%s is bound and cannot be told so: %s", pod.metadata.namespace, pod.metadata.name, error)

    async def _carry_out(self, key: str, request: BindRequest, document: dict[str, Any], pod: Pod) -> str:
        """Prepare and bind; gives the node the pod is on then."""
        if pod.metadata.deletion_timestamp is not None:
            raise BindFailure("pod", f"pod {request.metadata.namespace}/{request.spec.pod_name} is being deleted")
        attempt = Attempt(request, document, pod, await self._node(request))
        if attempt.shared and not attempt.groups:
            raise InvalidRequest("request", "a request for a part of a GPU names no selectedGPUGroups")
        if attempt.shared:
            _check_number(attempt)
        self._room.agrees(attempt)
        self._ends[key] = asyncio.Event()
        self._by_pod.setdefault(attempt.key, set()).add(key)
        try:
            await self._prepare_unless_ended(key, attempt)
            await self._check(key, attempt)
            self._room.enter(attempt, await self._node(attempt.request))
            return await self._bind(attempt)
        except (Unauthorized, LeaseLost):
            raise
        except Exception as error:
            if self._stopping and isinstance(error, Withdrawn):
                raise
            live = await self._live_pod(request)
            if live is not None and live.metadata.uid == pod.metadata.uid and live.spec.node_name:
                if live.spec.node_name != request.spec.selected_node:
                    await self._undo(attempt, live)
                return live.spec.node_name
            self._room.leave(attempt.key)
            if not isinstance(error, _PASSING) or (self._too_often(key) and not isinstance(error, TooManyRequests)):
                await self._undo(attempt, live)
            raise
        finally:
            del self._ends[key]
            self._by_pod[attempt.key].discard(key)
            if not self._by_pod[attempt.key]:
                del self._by_pod[attempt.key]

    async def _prepare_unless_ended(self, key: str, attempt: Attempt) -> None:
        end = self._ends[key]
        preparing = asyncio.ensure_future(self._prepare(attempt))
        ended = asyncio.ensure_future(end.wait())
        try:
            await asyncio.wait((preparing, ended), return_when=asyncio.FIRST_COMPLETED)
            if not preparing.done():
                raise Withdrawn("stopped" if self._stopping else "the request or its pod was deleted on the way")
            await preparing
        finally:
            await end_all(preparing, ended)
            # A failure knows this frame and must not be found in it, or only the garbage collector could free both.
            del preparing, ended

    # GPUs first, then the plugins by priority (gpu:BI-2, BI-3).
    async def _prepare(self, attempt: Attempt) -> None:
        if attempt.shared:
            node = attempt.node.metadata.name
            await self._groups.clear_node(node)
            tenants = self._groups.has_tenants
            attempt.reserved = await self._reservations.reserve_all(attempt.pod, node, attempt.groups, tenants)
            await self._label(attempt)
        for step in self._steps:
            try:
                await step.prepare(attempt)
            except BindFailure as failure:
                text = f"plugin {step.name} failed in PreBind: {failure}"
                raise BindFailure(failure.step, text) from failure

    async def _label(self, attempt: Attempt) -> None:
        """Put the pod into its groups, and out of those an earlier attempt has left on it (gpu:RV-6)."""
        metadata = attempt.pod.metadata
        wanted: dict[str, str | None] = dict(labels_for(attempt.groups))
        for key in group_labels(metadata.labels):
            wanted.setdefault(key, None)
        # Also where the cache knows them: an attempt that failed has taken them off again.
        try:
            patch = {"metadata": {"uid": metadata.uid, "labels": wanted}}
            await self._client.patch(PODS, metadata.name, patch, metadata.namespace, brief=True)
        except NotFound as error:
            raise Withdrawn(f"pod {attempt.key} is gone: {error}") from None
        except ApiError as error:
            # A conflict: it is another pod now, or many write to this one. The next attempt will see.
            if isinstance(error, (ServerFailed, TooManyRequests, Conflict)):
                raise
            raise BindFailure("labels", f"failed to label pod {attempt.key}: {error}") from error

    async def _check(self, key: str, attempt: Attempt) -> None:
        """What must still hold right before the pod is bound."""
        namespace, name = split_key(key)
        try:
            request = await self._client.get(BIND_REQUESTS, name, namespace, into=BindRequest)
        except NotFound:
            raise Withdrawn("the request was deleted on the way") from None
        if request.metadata.uid != attempt.request.metadata.uid:
            raise Withdrawn("the request was deleted on the way")
        if request.metadata.deletion_timestamp is not None or settled(request):
            raise Withdrawn("the request was settled or deleted on the way")
        if request.spec != attempt.request.spec:
            # The watch brings the change, and with it the next attempt.
            raise Withdrawn("the request was changed on the way")
        for reserved in attempt.reserved:
            if not await self._reservations.holds(reserved):
                raise BindFailure("reservation", f"GPU reservation pod {reserved.name} was deleted on the way")

    # The annotations ride on the Binding (gpu:BI-4, BI-5).
    async def _bind(self, attempt: Attempt) -> str:
        spec, metadata = attempt.request.spec, attempt.pod.metadata
        annotations: dict[str, str] = {}
        if spec.received_resource_type:
            annotations[names.RECEIVED_TYPE_ANNOTATION] = spec.received_resource_type
        if spec.predicted_numa_zones:
            zones = msgspec.json.encode(attempt.document["spec"]["predictedNUMAZones"])
            annotations[names.NUMA_PREDICTED_ANNOTATION] = zones.decode()
        try:
            await self._client.bind(
                metadata.namespace, metadata.name, uid=metadata.uid, node=spec.selected_node, annotations=annotations
            )
        except ApiError as error:
            if isinstance(error, (ServerFailed, TooManyRequests)):
                raise
            text = f"failed to bind pod <{attempt.key}> to node <{spec.selected_node}>: {error}"
            raise BindFailure("bind", text) from error
        return spec.selected_node

    async def _undo(self, attempt: Attempt, live: Pod | None) -> None:
        """Take back what was prepared; every step is tried, and what fails is only told (gpu:RB-1)."""
        for step in self._steps:
            try:
                await step.undo(attempt)
            except Unauthorized:
                raise
            except Exception as error:
                log.warning("%s: undoing %s: %s", attempt.key, step.name, error)
        if live is None or not attempt.shared or live.metadata.uid != attempt.pod.metadata.uid:
            return
        stale: dict[str, None] = dict.fromkeys(group_labels(live.metadata.labels))
        if stale:
            version = live.metadata.resource_version
            patch = {"metadata": {"uid": live.metadata.uid, "resourceVersion": version, "labels": stale}}
            try:
                await self._client.patch(PODS, live.metadata.name, patch, live.metadata.namespace, brief=True)
            except KubeError as error:
                log.warning("%s: taking its GPU groups back: %s", attempt.key, error)

    async def _failed(self, key: str, request: BindRequest, pod: Pod | None, failure: BindFailure) -> Outcome | None:
        self._disturbed.pop(key, None)
        self._metrics.failures.labels(failure.step).inc()
        where = request.metadata.namespace, request.spec.pod_name, request.spec.selected_node
        log.warning("pod %s/%s was not bound to node %s: %s", *where, failure)
        outcome = failed(request, str(failure))
        namespace, name = split_key(key)
        if isinstance(failure, InvalidRequest):
            with suppress(NotFound, Conflict):
                await self._client.delete(BIND_REQUESTS, name, namespace, uid=request.metadata.uid)
            outcome = Outcome({})
        else:
            await self._settle(key, request, outcome)
        await self._verdicts.failed(request, pod, str(failure))
        return outcome

    async def _settle(self, key: str, request: BindRequest, outcome: Outcome) -> None:
        namespace, name = split_key(key)
        patch = {"metadata": {"uid": request.metadata.uid}, "status": outcome.status}
        try:
            await self._client.patch(BIND_REQUESTS, name, patch, namespace, subresource="status", brief=True)
        except NotFound:
            # Nobody waits for the answer.
            log.debug("BindRequest %s is gone", key)

    async def _pod(self, request: BindRequest) -> Pod:
        namespace, name, uid = request.metadata.namespace, request.spec.pod_name, pod_uid(request)
        pod = self._pods.get(f"{namespace}/{name}")
        if pod is None or (uid and pod.metadata.uid != uid):
            pod = await self._live_pod(request)
        if pod is None:
            raise BindFailure("pod", f"pod {namespace}/{name} not found")
        if uid and pod.metadata.uid != uid:
            raise BindFailure("pod", f"pod {namespace}/{name} is not the one the request was made for")
        return pod

    async def _node(self, request: BindRequest) -> Node:
        name = request.spec.selected_node
        node = self._nodes.get(name)
        if node is not None:
            return node
        try:
            return await self._client.get(NODES, name, into=Node)
        except (NotFound, ValueError):
            raise BindFailure("node", f"node {name} not found") from None

    async def _live(self, key: str) -> dict[str, Any] | None:
        namespace, name = split_key(key)
        try:
            return await self._client.get_raw(BIND_REQUESTS, name, namespace)
        except NotFound:
            return None

    async def _live_pod(self, request: BindRequest) -> Pod | None:
        try:
            return await self._client.get(PODS, request.spec.pod_name, request.metadata.namespace, into=Pod)
        except NotFound:
            return None
        except Forbidden as error:
            raise _Unseen(str(error)) from error


def _fresh_and_plain(request: BindRequest) -> bool:
    """Whether the cache is enough to begin with: nobody has tried yet, and nothing must be copied unpruned."""
    spec, status = request.spec, request.status
    return (
        holds_groups(request)
        and not status.failed_attempts
        and not spec.resource_claim_allocations
        and spec.extended_resource_claim_allocation is None
        and not spec.predicted_numa_zones
    )


def _check_number(attempt: Attempt) -> None:
    """A node must have a GPU for each group: a reservation pod for every one of thousands would bury the cluster."""
    try:
        gpus = whole(attempt.node.status.allocatable.get(names.NVIDIA_GPU, 0))
    except QuantityError:
        gpus = 0
    if len(attempt.groups) > gpus:
        raise BindFailure(
            "request",
            f"{len(attempt.groups)} GPUs are to be shared on node {attempt.node.metadata.name}, which has {gpus}",
        )
