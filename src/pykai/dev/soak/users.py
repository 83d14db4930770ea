"""Users of a soak: they keep a number of jobs open, delete some while they run, and scale services.

They tolerate crashes: a request without an answer is retried, and existing objects are fine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pykai.dev.soak import workload
from pykai.dev.soak.invariants import is_complete
from pykai.kube.client import Client
from pykai.kube.errors import AlreadyExists, ConnectionLost, NotFound, ServerError, TooManyRequests
from pykai.kube.resources import DEPLOYMENTS, JOBS, Resource

_NAMESPACE = "default"
#: seconds between two checks of open jobs
_POLL_INTERVAL_S = 0.5
#: probabilities, at each check, of deleting a running job and of scaling a service
_GIVE_UP, _SCALE = 0.03, 0.08
#: errors that are retried
_TRANSIENT_ERRORS = (ConnectionLost, ServerError, TooManyRequests)
_RETRY_DELAY_S = 0.1


class LoadUsers:
    """Users of one cluster; `at_once` is how many jobs they have open."""

    def __init__(self, client: Client, *, seed: int, at_once: int) -> None:
        self._client = client
        self._at_once = at_once
        self._generator = workload.WorkloadGenerator(seed)
        #: keys of the Jobs that were submitted, and of those that were deleted before their end
        self.submitted: set[str] = set()
        self.given_up: set[str] = set()
        self.scaled = 0

    async def work(self, stop: asyncio.Event) -> None:
        """Submit, delete and scale until `stop` is set."""
        for service in workload.services():
            await self.create(DEPLOYMENTS, service)
        while not stop.is_set():
            jobs = [
                each for each in await self.list_all(JOBS) if not is_complete(each) and _key(each) not in self.given_up
            ]
            for _ in range(self._at_once - len(jobs)):
                job = self._generator.job()
                self.submitted.add(_key(job))
                await self.create(JOBS, job)
            active = [each["metadata"]["name"] for each in jobs if each.get("status", {}).get("active")]
            if active and self._generator.happens(_GIVE_UP):
                await self._give_up(self._generator.one_of(active))
            if self._generator.happens(_SCALE):
                await self._scale(*self._generator.scale())
            try:
                await asyncio.wait_for(stop.wait(), _POLL_INTERVAL_S)
            except TimeoutError:
                continue

    async def delete_services(self) -> None:
        """Delete the services; Jobs run to their ends."""
        for service in workload.services():
            await self.delete(DEPLOYMENTS, service["metadata"]["name"])

    async def create(self, resource: Resource, document: dict[str, Any]) -> None:
        """Create an object, retrying while the server is down."""
        namespace = _NAMESPACE if resource.namespaced else ""
        await _retry_until_answered(lambda: self._client.create(resource, document, namespace))

    async def delete(self, resource: Resource, name: str) -> None:
        """Delete an object and what belongs to it."""
        await _retry_until_answered(lambda: self._client.delete(resource, name, _NAMESPACE, propagation="Background"))

    async def list_all(self, resource: Resource) -> list[dict[str, Any]]:
        """All objects of a kind."""
        while True:
            try:
                return await self._client.list_raw(resource)
            except _TRANSIENT_ERRORS:
                await asyncio.sleep(_RETRY_DELAY_S)

    async def _give_up(self, name: str) -> None:
        self.given_up.add(f"{_NAMESPACE}/{name}")
        await self.delete(JOBS, name)

    async def _scale(self, name: str, replicas: int) -> None:
        await _retry_until_answered(
            lambda: self._client.patch(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, _NAMESPACE)
        )
        self.scaled += 1


def _key(job: dict[str, Any]) -> str:
    return f"{_NAMESPACE}/{job['metadata']['name']}"


async def _retry_until_answered(send: Callable[[], Awaitable[Any]]) -> None:
    """Retry until there is an answer; "already done" counts as success."""
    while True:
        try:
            await send()
            return
        except (AlreadyExists, NotFound):
            return
        except _TRANSIENT_ERRORS:
            await asyncio.sleep(_RETRY_DELAY_S)
