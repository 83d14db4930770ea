"""The client against the embedded API server over HTTPS, with a proxy in between that breaks connections.

What a client does with any server is in test_on_a_server.py; here the server itself is stopped, started and inspected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.credentials import connect
from pykai.kube.resources import CONFIG_MAPS
from pykai.lab.apiserver.server import ApiServer
from tests.kube.test_on_a_server import config_map, following, tour
from tests.kube.wires import Proxy


@asynccontextmanager
async def over_https(server: ApiServer, folder: Path) -> AsyncIterator[tuple[Client, Proxy]]:
    """A client that comes through a proxy, with the kubeconfig that the server writes."""
    port = await server.serve()
    proxy = Proxy(port)
    await proxy.start()
    path = folder / "kubeconfig"
    server.kubeconfig(path)
    path.write_text(path.read_text().replace(f":{port}", f":{proxy.port}"))
    transport = connect(path)
    try:
        yield Client(transport), proxy
    finally:
        await transport.close()
        await proxy.stop()


async def test_over_https(tmp_path: Path) -> None:
    server = await ApiServer.open(clock=Clock())
    async with over_https(server, tmp_path) as (client, _):
        await tour(client)
    await server.close()


async def test_half_open_connections_over_tls(tmp_path: Path) -> None:
    server = await ApiServer.open(clock=Clock())
    local = Client(server.transport())
    async with over_https(server, tmp_path) as (client, proxy), following(client) as store:
        await local.create(CONFIG_MAPS, config_map("before"))
        await store.wait_until(lambda s: "default/before" in s)
        proxy.silence()
        await local.create(CONFIG_MAPS, config_map("after"))
        await local.delete(CONFIG_MAPS, "before", "default")
        await store.wait_until(lambda s: "default/after" in s and "default/before" not in s)
    await server.close()


async def test_a_restart_from_disk(tmp_path: Path) -> None:
    """The server goes away, comes back with what it had stored, and the store follows on."""
    data = tmp_path / "data"
    data.mkdir()
    server = await ApiServer.open(clock=Clock(), data=data)
    async with over_https(server, tmp_path) as (client, proxy), following(client) as store:
        await client.create(CONFIG_MAPS, config_map("before"))
        await store.wait_until(lambda s: "default/before" in s)
        await server.close()
        server = await ApiServer.open(clock=Clock(), data=data)
        proxy.target = await server.serve()
        await client.create(CONFIG_MAPS, config_map("after"))
        await client.delete(CONFIG_MAPS, "before", "default")
        await store.wait_until(lambda s: "default/after" in s and "default/before" not in s)
    await server.close()
