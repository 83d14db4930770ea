"""Binds one pod to its node: the write, and its outcome when the answer is an error or missing.

There are two ways.  A pod that needs no preparation is bound by the `binding` subresource; any other gets a
BindRequest, and the binder continues from there.  Both end in a `BindOutcome`:

- PLACED: the pod is bound, or its BindRequest exists;
- GONE: the pod no longer exists;
- OVERTAKEN: other pods have taken the place meanwhile, so nothing was written;
- REFUSED: the bind cannot succeed this way, and `why` gives the reason.

Subtle: a missing answer, or a server error, leaves open whether the write was carried out, so the object is read before
the write is repeated or given up, as often as it takes: until the outcome is known, no other pod may have the place.  A
conflict may be the echo of our own write that was carried out unanswered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import NamedTuple

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.decode import DecodeError
from pykai.api.scheduling import BindRequest
from pykai.core.model.shard import Shard
from pykai.kube import resources
from pykai.kube.backoff import Backoff
from pykai.kube.client import Client
from pykai.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    ConnectionLost,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
)
from pykai.kube.limits import FairSemaphore
from pykai.scheduler.dispatch.bindplan import PendingBind
from pykai.scheduler.dispatch.bindrequests import assumed_request, request_object
from pykai.scheduler.intake.assumptions import AssumptionEvent
from pykai.scheduler.sanitising.requestverifier import same_decision, same_placement

log = logging.getLogger(__name__)

_BACKOFF = Backoff(0.05, 5.0)
#: server errors before a bind is given up
_MAX_SERVER_FAILURES = 8
#: the same for answers of an overloaded server
_MAX_THROTTLED = 48
#: answers that say nothing about the pod: unauthenticated, throttled, or the server is down
_NOT_ABOUT_THE_POD = frozenset((401, 429, 502, 503, 504))


class BindOutcome(Enum):
    """The outcome of a bind."""

    PLACED = "placed"
    GONE = "gone"
    OVERTAKEN = "overtaken"
    REFUSED = "refused"


class BindResult(NamedTuple):
    """An outcome, with the reason unless the pod was placed."""

    outcome: BindOutcome
    why: str = ""
    #: whether the pod itself is the reason, so that it would be refused again; not the state of the server or of us
    is_permanent: bool = False


_PLACED = BindResult(BindOutcome.PLACED)
_GONE = BindResult(BindOutcome.GONE, "the pod is gone")
_WriteAttempt = Callable[[], Awaitable[BindResult]]
#: the outcome of a write with this answer; None = it was not carried out and may be repeated
_DoubtResolver = Callable[[KubeError], Awaitable[BindResult | None]]


class BindWriter:
    """Writes binds, a bounded number at a time, of which no namespace can take all (cycle:PERF-11)."""

    def __init__(
        self,
        client: Client,
        shard: Shard,
        *,
        in_flight: int = 80,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._shard = shard
        self._pause = pause
        self._slots = FairSemaphore(in_flight)

    async def write(
        self,
        namespace: str,
        entry: PendingBind,
        labels: dict[str, str],
        fit_error: Callable[[], str] = str,
        report: Callable[[AssumptionEvent], None] = lambda _: None,
    ) -> BindResult:
        """Bind a pod, or create its BindRequest; returns when the outcome is known.

        `fit_error` is called right before each write, and a reason from it keeps the pod from being bound.  `report` is
        called when the write is in doubt, and when it turns out that it was not carried out.
        """
        if entry.request is None:
            return await self._write_until_known(
                namespace,
                lambda: self._bind(namespace, entry, labels),
                lambda error: self._resolve_bind(namespace, entry, error),
                fit_error,
                report,
            )
        expected = assumed_request(namespace, entry.uid, entry.spec())
        return await self._write_until_known(
            namespace,
            lambda: self._create_request(namespace, entry, expected),
            lambda error: self._resolve_request(namespace, entry, expected, error),
            fit_error,
            report,
        )

    async def _write_until_known(
        self,
        namespace: str,
        attempt: _WriteAttempt,
        resolve_doubt: _DoubtResolver,
        fit_error: Callable[[], str],
        report: Callable[[AssumptionEvent], None],
    ) -> BindResult:
        """Try until the outcome is known; a failing server gets some time, an unreachable one all it needs."""
        failures = tries = throttled = 0
        #: why it is unknown whether the last write was carried out
        doubt: KubeError | None = None
        while True:
            min_pause_s = 0.0
            try:
                async with self._slots.slot(namespace):
                    if doubt is not None:
                        if (resolved := await resolve_doubt(doubt)) is not None:
                            return resolved
                        failed, doubt = doubt, None
                        report(AssumptionEvent.NOT_CARRIED_OUT)
                        if failures >= _MAX_SERVER_FAILURES:
                            return _refused(failed)
                    if why := fit_error():
                        return BindResult(BindOutcome.OVERTAKEN, why)
                    try:
                        result = await attempt()
                    except (ConnectionLost, ServerError, Conflict, AlreadyExists) as error:
                        doubt = error
                        report(AssumptionEvent.ANSWER_LOST)
                        raise
                    # An in-process transport answers without ever waiting; other tasks need their turn.
                    await asyncio.sleep(0)
                return result
            except TooManyRequests as error:
                throttled += 1
                min_pause_s = error.retry_after_s or 0.0
                if throttled >= _MAX_THROTTLED and doubt is None:
                    return _refused(error)
            except ServerError as error:
                failures += 1
                if failures >= _MAX_SERVER_FAILURES and doubt is None:
                    return _refused(error)
            except (ConnectionLost, Conflict, AlreadyExists) as error:
                log.debug("a bind is in doubt: %s", error)
            except DecodeError as error:
                return BindResult(BindOutcome.REFUSED, str(error))
            except KubeError as error:
                if doubt is None:
                    return _refused(error)
                # A server that has just started knows no roles yet and forbids the read. That is no answer.
                log.warning("the outcome of a bind cannot be read: %s", error)
            tries += 1
            await self._pause(max(min_pause_s, _BACKOFF.delay_s(tries)))

    async def _bind(self, namespace: str, entry: PendingBind, labels: dict[str, str]) -> BindResult:
        try:
            await self._client.bind(
                namespace,
                entry.pod,
                uid=entry.uid,
                node=entry.node,
                annotations={names.RECEIVED_TYPE_ANNOTATION: names.RECEIVED_REGULAR},
                labels=labels,
            )
        except NotFound:
            return _GONE
        return _PLACED

    async def _resolve_bind(self, namespace: str, entry: PendingBind, error: KubeError) -> BindResult | None:
        """Whether a bind with a doubtful answer was carried out."""
        try:
            pod = await self._client.get(resources.PODS, entry.pod, namespace, into=Pod)
        except NotFound:
            return _GONE
        if pod.metadata.uid != entry.uid:
            return _GONE
        if pod.spec.node_name == entry.node:
            return _PLACED
        if not isinstance(error, Conflict) and not pod.spec.node_name:
            return None
        if pod.spec.node_name:
            return BindResult(BindOutcome.REFUSED, f"it is on node {pod.spec.node_name}")
        return _refused(error)

    async def _create_request(self, namespace: str, entry: PendingBind, expected: BindRequest) -> BindResult:
        content = request_object(namespace, entry.uid, expected.spec, entry.annotations, self._shard)
        try:
            await self._client.create(resources.BIND_REQUESTS, content, namespace, brief=True, once=True)
        except NotFound:
            return _GONE
        return _PLACED

    async def _resolve_request(
        self, namespace: str, entry: PendingBind, expected: BindRequest, error: KubeError
    ) -> BindResult | None:
        """Whether a request of this name is ours; a dead one of the same name is deleted."""
        try:
            existing = await self._client.get(resources.BIND_REQUESTS, entry.pod, namespace, into=BindRequest)
        except NotFound:
            # Never carried out, or the old one has just gone: try again.
            return None
        is_ours = same_placement(existing, expected) and same_decision(existing.spec, expected.spec)
        if is_ours and existing.status.phase != names.BIND_FAILED:
            return _PLACED
        if not isinstance(error, AlreadyExists):
            return None
        if existing.status.phase == names.BIND_FAILED or entry.uid not in {
            owner.uid for owner in existing.metadata.owner_references
        }:
            with contextlib.suppress(NotFound, Conflict):
                await self._client.delete(resources.BIND_REQUESTS, entry.pod, namespace, uid=existing.metadata.uid)
            return None
        why = f"a BindRequest of this name leads to node {existing.spec.selected_node}"
        return BindResult(BindOutcome.REFUSED, why, is_permanent=True)


def _refused(error: KubeError) -> BindResult:
    return BindResult(
        BindOutcome.REFUSED, str(error), isinstance(error, ApiError) and error.code not in _NOT_ABOUT_THE_POD
    )
