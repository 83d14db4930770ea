"""What `kai run` adds around a service: leader election, and an address for metrics and health."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from functools import partial

from prometheus_client import CollectorRegistry

from pykai.kube.lease import Fence, LeaderElection
from pykai.kube.ownpod import own_pod_name
from pykai.kube.runtime import Runtime, Service
from pykai.observe.endpoint import Endpoint


class LeaderElected:
    """A service that works only while this process holds the lease; its caches are filled all the time."""

    def __init__(self, service: Service, runtime: Runtime, *, namespace: str, lease: str, fence: Fence) -> None:
        self._service = service
        self._caches = runtime.caches
        self._election = LeaderElection(
            runtime.client,
            namespace=namespace,
            name=lease,
            identity=f"{own_pod_name()}_{uuid.uuid4()}",
            fence=fence,
        )

    @property
    def name(self) -> str:
        """The name of the service."""
        return self._service.name

    async def run(self, stop: asyncio.Event) -> None:
        """Wait for the lease, then run the service until `stop` is set or the lease is lost."""
        await self._election.lead(stop, self._service.run)

    def ready(self) -> bool:
        """A standby is ready once its caches are filled: it can take over at any moment."""
        return self._service.ready() if self._election.leading else self._caches.all_synced()


class EndpointService:
    """Metrics and health of the services that do not serve them themselves."""

    name = "endpoint"

    def __init__(self, address: str, registry: CollectorRegistry, services: Sequence[Service]) -> None:
        checks = {service.name: partial(_unready, service) for service in services}
        self._endpoint = Endpoint(address, registry=registry, health={"ping": str}, readiness=checks)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop."""
        await self._endpoint.start()
        try:
            await stop.wait()
        finally:
            await self._endpoint.stop()

    def ready(self) -> bool:
        """There is nothing to wait for."""
        return True


def _unready(service: Service) -> str:
    return "" if service.ready() else "is not ready yet"
