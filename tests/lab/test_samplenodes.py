"""Nodes for an empty cluster: created once, also when the server is not there yet."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest

from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import ConnectionLost
from pykai.kube.resources import NODES
from pykai.kube.runtime import Runtime
from pykai.kube.transport import Request, Response, Stream, Transport
from pykai.lab.apiserver.server import ApiServer
from pykai.lab.machines.nodes import MachineKind
from pykai.lab.samplenodes import SampleNodes


class LateTransport:
    """Loses the first GETs, and one POST: the server starts, and restarts while nodes are created."""

    def __init__(self, transport: Transport, *, lost_gets: int, lost_post: int) -> None:
        self._transport = transport
        self._lost_gets = lost_gets
        self._lost_post = lost_post

    async def send(self, request: Request) -> Response:
        if request.method == "GET" and self._lost_gets:
            self._lost_gets -= 1
            raise ConnectionLost("connection refused")
        if request.method == "POST":
            self._lost_post -= 1
            if not self._lost_post:
                raise ConnectionLost("connection reset")
        return await self._transport.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


@pytest.mark.parametrize(("lost_gets", "lost_post"), [(0, 0), (12, 0), (0, 2), (12, 3)])
async def test_nodes_are_created_once_the_server_answers(lost_gets: int, lost_post: int) -> None:
    async def no_pause(_: float) -> None:
        await asyncio.sleep(0)

    server = await ApiServer.open(clock=Clock())
    transport = LateTransport(server.transport("admin"), lost_gets=lost_gets, lost_post=lost_post)
    client = Client(transport, sleep=no_pause)
    service = SampleNodes(
        Runtime(client, Caches(client), Clock()), [MachineKind(name="gpu", count=3)], only_if_empty=True
    )
    await service.run(asyncio.Event())
    assert service.ready()
    assert len(await client.list_raw(NODES)) == 3
    await server.close()


async def test_a_cluster_with_nodes_keeps_its_own() -> None:
    server = await ApiServer.open(clock=Clock())
    client = Client(server.transport("admin"))
    runtime = Runtime(client, Caches(client), Clock())
    for kind in ("first", "second"):
        service = SampleNodes(runtime, [MachineKind(name=kind, count=2)], only_if_empty=True)
        await service.run(asyncio.Event())
        assert service.ready()
    names = {node["metadata"]["name"] for node in await client.list_raw(NODES)}
    assert names == {"first-0", "first-1"}
    await server.close()
