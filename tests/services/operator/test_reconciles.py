"""One look of the operator at a time: what it writes, and whether it asks to be called again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.runtime import Runtime
from pykai.kube.transport import Request, Response
from pykai.operator.service import InstallationError
from tests.services.operator.installed import change, conditions, config, make_available, newest_versions, operator
from tests.services.servicecluster import RecordingTransport, ServiceCluster, refusal

#: of the Config: where its conditions are written
STATUS = "/configs/kai-config/status"


@asynccontextmanager
async def looking(place: ServiceCluster, wire: RecordingTransport) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """An operator that looks once for each call, at what is there then."""
    client = Client(wire)
    caches = Caches(client)
    service = operator()(Runtime(client, caches, place.clock))

    async def look() -> None:
        for store, newest in await newest_versions(place, service):
            while not store.has_reached(newest):
                await asyncio.sleep(0.005)
        await service._reconcile("installation")

    await caches.start()
    try:
        await caches.wait_for_sync()
        yield look
    finally:
        await caches.stop()


def statuses(wire: RecordingTransport) -> int:
    """How often the conditions of the Config were written since the last question."""
    written = sum(write.endswith(STATUS) for write in wire.writes)
    wire.writes.clear()
    return written


async def test_od6_conditions_are_written_at_the_beginning_and_at_the_end_and_then_where_they_change(
    place: ServiceCluster,
) -> None:
    """operations:O-35"""
    await config(place)
    wire = place.wire()
    async with looking(place, wire) as look:
        await look()
        assert statuses(wire) == 2
        await look()
        assert wire.writes == []
        await make_available(place, "binder")
        await look()
        assert statuses(wire) == 1
        await change(place, "global.jsonLog", True)
        await look()
        assert statuses(wire) == 2
        await look()
        assert wire.writes == []


async def test_o38_a_look_that_could_not_write_everything_has_failed(place: ServiceCluster) -> None:
    """operations:O-38: only then it is repeated; the conditions are written all the same."""

    def refuse_the_binder(request: Request) -> Response | None:
        is_binder = request.method == "PATCH" and request.path.endswith("/deployments/binder")
        return refusal(403, "Forbidden") if is_binder else None

    await config(place)
    wire = place.wire()
    wire.fault = refuse_the_binder
    async with looking(place, wire) as look:
        with pytest.raises(InstallationError, match=r"Binder: Deployment binder: .*injected Forbidden"):
            await look()
        assert (await conditions(place))["Deployed"][0] == "False"
        wire.fault = lambda _: None
        await look()
        assert (await conditions(place))["Deployed"][0] == "True"
