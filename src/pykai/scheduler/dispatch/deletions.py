"""Objects taken away for good: pods that are evicted, BindRequests that nobody waits for.

Both are deleted by their uid, as often as it takes within reason.  What cannot be deleted stays, and counts again.
`look` is for those who must know what the server has before they go on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.decode import DecodeError
from pykai.api.scheduling import BindRequest
from pykai.api.timestamp import format_timestamp
from pykai.core.model.shard import Shard
from pykai.kube import resources
from pykai.kube.client import Client, PatchKind
from pykai.kube.clock import Clock
from pykai.kube.errors import Conflict, ConnectionLost, KubeError, NotFound, ServerFailed, TooManyRequests
from pykai.kube.limits import Slots
from pykai.kube.resources import Resource, split_key
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.intake.pendingevictions import takes_long
from pykai.scheduler.status.conditions import pod_condition
from pykai.scheduler.status.statusevents import now_ns

log = logging.getLogger(__name__)
T = TypeVar("T")

_RETRY_S = 0.1
_LONGEST_RETRY_S = 5.0
#: answers that the server itself failed, before a write that need not be is given up
FAILURES = 8


def retry_s(tries: int) -> float:
    """How long to wait after so many tries."""
    return min(_LONGEST_RETRY_S, _RETRY_S * 2.0 ** min(tries - 1, 10))


class Removals:
    """Deletes at the server.  `mark`: a condition says why before a pod goes.  A pod that takes longer
    to go than `stuck_after_ns` gets one that says for which group, so that the next leader knows."""

    def __init__(
        self,
        client: Client,
        intake: Intake,
        clock: Clock,
        *,
        mark: bool,
        in_flight: int,
        stuck_after_ns: int = Shard().stuck_after_ns,
    ) -> None:
        self._client = client
        self._intake = intake
        self._clock = clock
        self._marks = mark
        self._stuck_after_ns = stuck_after_ns
        self._slots = Slots(in_flight)

    async def request(self, key: str, uid: str) -> bool:
        """Delete a BindRequest; False when the server does not get to it."""
        namespace, name = split_key(key)
        failures = 0
        while True:
            try:
                async with self._slots.of(namespace):
                    await self._client.delete(resources.BIND_REQUESTS, name, namespace, uid=uid)
                return True
            except NotFound:
                return True
            except KubeError as error:
                if isinstance(error, Conflict) and not await self._is_there(resources.BIND_REQUESTS, key, uid):
                    return True
                failures += 1
                if failures >= FAILURES:
                    log.warning("BindRequest %s was not deleted: %s", key, error)
                    return False
            await asyncio.sleep(retry_s(failures))

    async def pod(self, key: str, uid: str, why: str) -> None:
        """Delete a pod; if that is refused it stays where it is (cycle:OUT-7)."""
        namespace, name = split_key(key)
        failures = 0
        while True:
            try:
                async with self._slots.of(namespace):
                    await self._mark(key, uid, why)
                    await self._client.delete(resources.PODS, name, namespace, uid=uid)
                return
            except NotFound:
                return
            except (ServerFailed, TooManyRequests, ConnectionLost, Conflict) as error:
                if isinstance(error, Conflict) and not await self._is_there(resources.PODS, key, uid):
                    return
                failures += 1
                if failures >= FAILURES:
                    log.warning("pod %s was not evicted: %s", key, error)
                    break
            except KubeError as error:
                log.warning("pod %s was not evicted: %s", key, error)
                break
            await asyncio.sleep(retry_s(failures))
        self._intake.let_go(key)

    async def _is_there(self, resource: Resource, key: str, uid: str) -> bool:
        """Whether the object that could not be deleted for a conflict is this one still, or another of the name."""
        kind: type[Pod] | type[BindRequest] = Pod if resource == resources.PODS else BindRequest
        found: Pod | BindRequest | None = await self.look(resource, key, kind)
        return found is not None and found.metadata.uid == uid

    async def look(self, resource: Resource, key: str, into: type[T]) -> T | None:
        """An object as the server has it, None when it has none; asked for as often as it takes."""
        namespace, name = split_key(key)
        tries = 0
        while True:
            try:
                return await self._client.get(resource, name, namespace, into=into)
            except NotFound:
                return None
            except (KubeError, DecodeError) as error:
                log.warning("%s %s cannot be seen: %s", resource.kind, key, error)
            tries += 1
            await asyncio.sleep(retry_s(tries))

    async def _mark(self, key: str, uid: str, why: str) -> None:
        """Say on the pod why it goes; a pod that cannot be told is not deleted (cycle:OUT-6)."""
        pod = self._intake.pods.get(key)
        if pod is None or pod.metadata.uid != uid:
            return
        now = format_timestamp(now_ns(self._clock))
        wanted: list[tuple[str, str]] = []
        if self._marks:
            wanted.append((names.CONDITION_DISRUPTION_TARGET, why))
        if takes_long(pod, self._stuck_after_ns):
            wanted.append((names.CONDITION_EVICTED_FOR, self._intake.evictions.group_of(key, uid)))
        reason = names.CONDITION_REASON_PREEMPTION
        found = [pod_condition(pod, type_, "True", reason, message, now) for type_, message in wanted]
        conditions = [each for patch in found if patch is not None for each in patch["status"]["conditions"]]
        if conditions:
            content = {"metadata": {"uid": uid}, "status": {"conditions": conditions}}
            namespace, name = split_key(key)
            await self._client.patch(
                resources.PODS, name, content, namespace, kind=PatchKind.STRATEGIC, subresource="status"
            )
