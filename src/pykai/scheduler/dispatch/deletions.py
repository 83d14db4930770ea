"""Deletions: evicted pods, and dead BindRequests.

Both are deleted by their uid, with a limited number of retries.  What cannot be deleted stays, and counts again.
`read_live` reads from the server, for callers that cannot rely on the cache.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.decode import DecodeError
from pykai.api.keys import split_key
from pykai.api.scheduling import BindRequest
from pykai.api.timestamp import format_timestamp
from pykai.core.model.shard import Shard
from pykai.kube import resources
from pykai.kube.backoff import Backoff
from pykai.kube.client import Client, PatchKind
from pykai.kube.clock import Clock
from pykai.kube.errors import Conflict, ConnectionLost, KubeError, NotFound, ServerError, TooManyRequests
from pykai.kube.limits import FairSemaphore
from pykai.kube.resources import Resource
from pykai.kube.store import Store
from pykai.scheduler.intake.assumptions import AssumptionEvent
from pykai.scheduler.intake.pendingevictions import outlasts_stuck_threshold
from pykai.scheduler.intake.statusassumptions import StatusAssumptions
from pykai.scheduler.status.conditions import pod_condition_patch
from pykai.scheduler.status.statusevents import now_ns

log = logging.getLogger(__name__)
T = TypeVar("T")

_BACKOFF = Backoff(0.1, 5.0)
#: server errors before an optional write is given up
MAX_SERVER_FAILURES = 8


def retry_delay_s(tries: int) -> float:
    """How long to wait after so many tries."""
    return _BACKOFF.delay_s(tries)


class Deletions:
    """Deletes at the server.  With `mark_disruption` a condition gives the reason before a pod is deleted.  A pod
    with a grace period beyond `stuck_after_ns` gets a condition that names the group, so that the next leader knows."""

    def __init__(
        self,
        client: Client,
        pods: Store[Pod],
        statuses: StatusAssumptions,
        clock: Clock,
        *,
        mark_disruption: bool,
        in_flight: int,
        stuck_after_ns: int = Shard().stuck_after_ns,
    ) -> None:
        self._client = client
        self._pods = pods
        self._statuses = statuses
        self._clock = clock
        self._mark_disruption = mark_disruption
        self._stuck_after_ns = stuck_after_ns
        self._slots = FairSemaphore(in_flight)

    async def delete_request(self, key: str, uid: str) -> bool:
        """Delete a BindRequest; False if the server does not carry it out."""
        namespace, name = split_key(key)
        failures = 0
        while True:
            try:
                async with self._slots.slot(namespace):
                    await self._client.delete(resources.BIND_REQUESTS, name, namespace, uid=uid)
                return True
            except NotFound:
                return True
            except KubeError as error:
                if isinstance(error, Conflict) and not await self._still_exists(resources.BIND_REQUESTS, key, uid):
                    return True
                failures += 1
                if failures >= MAX_SERVER_FAILURES:
                    log.warning("BindRequest %s was not deleted: %s", key, error)
                    return False
            await asyncio.sleep(retry_delay_s(failures))

    async def delete_pod(self, key: str, uid: str, why: str) -> None:
        """Delete a pod; if that is refused it stays where it is (cycle:OUT-7)."""
        namespace, name = split_key(key)
        failures = 0
        while True:
            try:
                async with self._slots.slot(namespace):
                    await self.write_eviction_conditions(key, uid, why)
                    await self._client.delete(resources.PODS, name, namespace, uid=uid)
                self._statuses.eviction_written(key, uid)
                return
            except NotFound:
                self._statuses.eviction_written(key, uid)
                return
            except (ServerError, TooManyRequests, ConnectionLost, Conflict) as error:
                if isinstance(error, Conflict) and not await self._still_exists(resources.PODS, key, uid):
                    return
                failures += 1
                if failures >= MAX_SERVER_FAILURES:
                    log.warning("pod %s was not evicted: %s", key, error)
                    break
            except KubeError as error:
                log.warning("pod %s was not evicted: %s", key, error)
                break
            await asyncio.sleep(retry_delay_s(failures))
        self._statuses.give_up_eviction(key, uid, AssumptionEvent.REFUSED)

    async def _still_exists(self, resource: Resource, key: str, uid: str) -> bool:
        """Whether the object whose deletion met a conflict still exists, or another has its name."""
        kind: type[Pod] | type[BindRequest] = Pod if resource == resources.PODS else BindRequest
        live: Pod | BindRequest | None = await self.read_live(resource, key, kind)
        return live is not None and live.metadata.uid == uid

    async def read_live(self, resource: Resource, key: str, into: type[T]) -> T | None:
        """An object as the server has it, None if it does not exist; retried as often as it takes."""
        namespace, name = split_key(key)
        tries = 0
        while True:
            try:
                return await self._client.get(resource, name, namespace, into=into)
            except NotFound:
                return None
            except (KubeError, DecodeError) as error:
                log.warning("%s %s cannot be read: %s", resource.kind, key, error)
            tries += 1
            await asyncio.sleep(retry_delay_s(tries))

    async def write_eviction_conditions(self, key: str, uid: str, why: str) -> None:
        """Write the reason on the pod; without it the pod is not deleted (cycle:OUT-6)."""
        pod = self._pods.get(key)
        if pod is None or pod.metadata.uid != uid:
            return
        now = format_timestamp(now_ns(self._clock))
        condition_messages: list[tuple[str, str]] = []
        if self._mark_disruption:
            condition_messages.append((names.CONDITION_DISRUPTION_TARGET, why))
        if outlasts_stuck_threshold(pod, self._stuck_after_ns):
            condition_messages.append((names.CONDITION_EVICTED_FOR, self._statuses.preemptor_of(key, uid)))
        reason = names.CONDITION_REASON_PREEMPTION
        patches = [
            pod_condition_patch(pod, type_, "True", reason, message, now) for type_, message in condition_messages
        ]
        conditions = [each for patch in patches if patch is not None for each in patch["status"]["conditions"]]
        if conditions:
            content = {"metadata": {"uid": uid}, "status": {"conditions": conditions}}
            namespace, name = split_key(key)
            await self._client.patch(
                resources.PODS, name, content, namespace, kind=PatchKind.STRATEGIC, subresource="status"
            )
