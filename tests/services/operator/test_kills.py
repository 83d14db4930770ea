"""An operator that dies in the middle of an installation is followed by one that finishes it (operations:OC-1)."""

from __future__ import annotations

import asyncio
from functools import partial

from pykai.api import names
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.resources import Resource
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.kube.transport import Request, Response, Transport
from tests.services.operator.installed import NS, Document, config, newest_versions, operator, shard
from tests.services.servicecluster import RecordingTransport, ServiceCluster


async def test_an_operator_that_dies_after_each_write_is_followed_by_one_that_goes_on(place: ServiceCluster) -> None:
    """Every write of an installation is once the last one of a process, so every state between two writes is met."""
    await config(place, scheduler={"replicas": 2})
    await shard(place)
    async with place.running(operator()):
        pass
    expected = await _everything(place)
    await _remove_everything(place)
    writes: list[str] = []
    while last := await _runs_until_its_first_write(place):
        writes.append(last)
        assert len(writes) < 100, writes
    assert len(writes) > len(expected)
    assert await _everything(place) == expected


class _Dying(RecordingTransport):
    """The process ends with its first write: nothing gets out after that, and its answer is not seen."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.died = asyncio.Event()
        self._dies = False

    async def send(self, request: Request) -> Response:
        if request.method != "GET":
            if not self._dies:
                self._dies = True
                await super().send(request)
                self.died.set()
            await asyncio.Event().wait()
        return await super().send(request)


def _has_reached(version: str, store: Store[Document]) -> bool:
    return store.has_reached(version)


async def _runs_until_its_first_write(place: ServiceCluster) -> str:
    """Which one, if there was one."""
    wire = place.wire(_Dying)
    client = Client(wire)
    caches = Caches(client)
    service = operator()(Runtime(client, caches, place.clock))
    await caches.start()
    # A server may list from a cache that lacks the last write, which would be made again.
    for store, newest in await newest_versions(place, service):
        await store.wait_until(partial(_has_reached, newest))
    stop = asyncio.Event()
    task = asyncio.create_task(service.run(stop))
    settled = asyncio.create_task(place.settled(service))
    died = asyncio.create_task(wire.died.wait())
    try:
        await asyncio.wait((settled, died), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.set()
        for each in (task, settled, died):
            each.cancel()
        await asyncio.gather(task, settled, died, return_exceptions=True)
        await caches.stop()
    return wire.writes[0] if wire.writes else ""


#: kind -> namespaces
_MADE = (
    (resources.SERVICE_ACCOUNTS, (NS, names.RESERVATION_NAMESPACE, names.SCALE_ADJUST_NAMESPACE)),
    (resources.SECRETS, (NS,)),
    (resources.CONFIG_MAPS, (NS,)),
    (resources.SERVICES, (NS,)),
    (resources.ENDPOINT_SLICES, (NS,)),
    (resources.DEPLOYMENTS, (NS,)),
    (resources.MUTATING_WEBHOOKS, ("",)),
    (resources.VALIDATING_WEBHOOKS, ("",)),
)


async def _made(place: ServiceCluster) -> list[tuple[Resource, Document]]:
    """What belongs to the Config or a shard."""
    return [
        (resource, each)
        for resource, namespaces in _MADE
        for namespace in namespaces
        for each in await place.client.list_raw(resource, namespace=namespace)
        if each["metadata"].get("ownerReferences")
    ]


async def _everything(place: ServiceCluster) -> list[tuple[str, str, str]]:
    return sorted(
        (resource.kind, each["metadata"]["name"], str(each["metadata"].get("annotations")))
        for resource, each in await _made(place)
    )


async def _remove_everything(place: ServiceCluster) -> None:
    for resource, each in await _made(place):
        metadata = each["metadata"]
        await place.client.delete(resource, metadata["name"], metadata.get("namespace", ""))
    for kind, name in ((resources.CONFIGS, "kai-config"), (resources.SCHEDULING_SHARDS, "default")):
        await place.client.patch(kind, name, {"status": None}, subresource="status")
