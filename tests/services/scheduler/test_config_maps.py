"""ConfigMaps of tenants: the scheduler learns that they exist, never what they hold."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from aiohttp import ClientSession

from pykai.api.core import ConfigMap
from pykai.kube import resources
from pykai.kube.transport import Request, Response, Stream, Transport
from pykai.scheduler.snapshotfile import read_snapshot
from tests.services.scheduler.schedulercluster import SchedulerCluster, scheduler_cluster

SECRET = "what-the-tenant-keeps-for-itself"


class Listening:
    """A transport that keeps all bytes that come from the server."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.heard = bytearray()

    async def send(self, request: Request) -> Response:
        """See `Transport`."""
        answer = await self._inner.send(request)
        self.heard += answer.body
        return answer

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """See `Transport`."""
        return self._overheard(request)

    @asynccontextmanager
    async def _overheard(self, request: Request) -> AsyncIterator[Stream]:
        async with self._inner.stream(request) as stream:
            yield _Overheard(stream, self.heard)

    async def close(self) -> None:
        """See `Transport`."""
        await self._inner.close()


class _Overheard:
    def __init__(self, inner: Stream, heard: bytearray) -> None:
        self._inner, self._heard = inner, heard
        self.status, self.headers = inner.status, inner.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """See `Stream`."""
        async for chunk in self._inner.chunks():
            self._heard += chunk
            yield chunk


async def config_map(lab: SchedulerCluster, name: str, *, applied: bool = False) -> None:
    """A ConfigMap, as `kubectl create` or `kubectl apply` makes it."""
    data = {"password": SECRET}
    note = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"data": data})} if applied else {}
    await lab.create(resources.CONFIG_MAPS, {"metadata": {"name": name, "annotations": note}, "data": data})


def needing(name: str) -> list[dict[str, object]]:
    return [{"name": "main", "image": "none", "envFrom": [{"configMapRef": {"name": name}}]}]


async def test_the_data_of_config_maps_never_reaches_the_scheduler() -> None:
    """Neither with the list, nor with the watch; that they exist does."""
    async with scheduler_cluster() as lab:
        await lab.node("a")
        await config_map(lab, "early")
        wire = Listening(lab.faults.inner)
        lab.faults.inner = wire
        async with lab.scheduler() as scheduler:
            for name in ("early", "late"):
                await lab.group(name)
                await lab.pod(f"{name}-0", name, containers=needing(name))
            await lab.until_bound("early", 1)
            assert "late" in (await lab.wait_for_event("Unschedulable", "late"))
            await config_map(lab, "late")
            await lab.until_bound("late", 1)
            known = scheduler.intake.stores["ConfigMap"]
            assert {"default/early", "default/late"} <= set(known.keys())
        assert b'"early"' in wire.heard
        assert SECRET.encode() not in wire.heard


async def test_a_snapshot_has_config_maps_by_name_alone() -> None:
    """`kubectl apply` leaves what a ConfigMap holds in an annotation; the file for others to read is without it."""
    async with scheduler_cluster() as lab:
        await lab.node("a")
        await config_map(lab, "settings", applied=True)
        async with lab.scheduler() as scheduler, ClientSession() as http:
            await lab.gang("job", pods=1)
            await lab.until_bound("job", 1)
            plugins = scheduler.plugin_endpoint("127.0.0.1:0")
            base = f"http://127.0.0.1:{await plugins.start()}"
            try:
                async with http.get(f"{base}/get-snapshot") as answer:
                    recording = read_snapshot(await answer.read())
            finally:
                await plugins.stop()
        found = {item.metadata.name: item for item in recording.objects if isinstance(item, ConfigMap)}
        assert found["settings"].metadata.annotations == {}
