"""The client against the embedded API server, within the process and over HTTPS with a proxy in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pykai.api.core import ConfigMap
from pykai.apiserver.server import ApiServer
from pykai.kube.caches import Caches
from pykai.kube.client import Client, PatchKind
from pykai.kube.clock import Clock
from pykai.kube.credentials import connect
from pykai.kube.errors import AlreadyExists, Conflict, NotFound
from pykai.kube.events import NORMAL, Recorder, Reference
from pykai.kube.lease import LeaderElection
from pykai.kube.resources import CONFIG_MAPS, EVENTS, LEASES
from pykai.kube.store import Store
from pykai.kube.watch import Patience
from tests.kube.wires import Proxy

QUICK = Patience(idle_s=0.2, first_pause_s=0.01, longest_pause_s=0.05)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


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


@asynccontextmanager
async def following(client: Client) -> AsyncIterator[Store[ConfigMap]]:
    caches = Caches(client, patience=QUICK)
    store = caches.store(CONFIG_MAPS, ConfigMap, namespace="default")
    await caches.start()
    try:
        await caches.synced()
        yield store
    finally:
        await caches.stop()


async def tour(client: Client) -> None:
    """Every kind of request, and the watch that shows what they did."""
    async with following(client) as store:
        for number in range(3):
            await client.create(CONFIG_MAPS, config_map(f"c{number}"))
        with pytest.raises(AlreadyExists):
            await client.create(CONFIG_MAPS, config_map("c0"))
        old = await client.get_raw(CONFIG_MAPS, "c0", "default")
        await client.update(CONFIG_MAPS, {**old, "data": {"a": "b"}})
        with pytest.raises(Conflict):
            await client.update(CONFIG_MAPS, {**old, "data": {"a": "c"}})
        await client.patch(CONFIG_MAPS, "c1", {"metadata": {"labels": {"seen": "yes"}}}, "default")
        await client.patch(
            CONFIG_MAPS,
            "applied",
            {"apiVersion": "v1", "kind": "ConfigMap", **config_map("applied", x="y")},
            "default",
            kind=PatchKind.APPLY,
            force=True,
        )
        await client.delete(CONFIG_MAPS, "c2", "default", uid=(await uid(client, "c2")))
        with pytest.raises(NotFound):
            await client.delete(CONFIG_MAPS, "c2", "default")
        await store.until(lambda s: "default/applied" in s and "default/c2" not in s)
        seen = store.get("default/c1")
        assert seen is not None
        assert seen.metadata.labels == {"seen": "yes"}
        listing = await client.list(CONFIG_MAPS, into=ConfigMap, namespace="default", label_selector="seen=yes")
        assert [item.metadata.name for item in listing.items] == ["c1"]


async def uid(client: Client, name: str) -> str:
    text: str = (await client.get_raw(CONFIG_MAPS, name, "default"))["metadata"]["uid"]
    return text


async def test_within_the_process() -> None:
    server = await ApiServer.open(clock=Clock())
    await tour(Client(server.transport()))
    await server.close()


async def test_over_https(tmp_path: Path) -> None:
    server = await ApiServer.open(clock=Clock())
    async with over_https(server, tmp_path) as (client, _):
        await tour(client)
    await server.close()


async def test_lists_in_pages() -> None:
    server = await ApiServer.open(clock=Clock())
    client = Client(server.transport())
    for number in range(7):
        await client.create(CONFIG_MAPS, config_map(f"c{number}"))
    pages = [page async for page in client.pages(CONFIG_MAPS, namespace="default", limit=3)]
    assert [len(page.items) for page in pages] == [3, 3, 1]
    assert len({page.resource_version for page in pages}) == 1
    await server.close()


async def test_half_open_connections_over_tls(tmp_path: Path) -> None:
    server = await ApiServer.open(clock=Clock())
    local = Client(server.transport())
    async with over_https(server, tmp_path) as (client, proxy), following(client) as store:
        await local.create(CONFIG_MAPS, config_map("before"))
        await store.until(lambda s: "default/before" in s)
        proxy.silence()
        await local.create(CONFIG_MAPS, config_map("after"))
        await local.delete(CONFIG_MAPS, "before", "default")
        await store.until(lambda s: "default/after" in s and "default/before" not in s)
    await server.close()


async def test_a_restart_from_disk(tmp_path: Path) -> None:
    """The server goes away, comes back with what it had stored, and the store follows on."""
    data = tmp_path / "data"
    data.mkdir()
    server = await ApiServer.open(clock=Clock(), data=data)
    async with over_https(server, tmp_path) as (client, proxy), following(client) as store:
        await client.create(CONFIG_MAPS, config_map("before"))
        await store.until(lambda s: "default/before" in s)
        await server.close()
        server = await ApiServer.open(clock=Clock(), data=data)
        proxy.target = await server.serve()
        await client.create(CONFIG_MAPS, config_map("after"))
        await client.delete(CONFIG_MAPS, "before", "default")
        await store.until(lambda s: "default/after" in s and "default/before" not in s)
    await server.close()


async def test_leases_and_events() -> None:
    server = await ApiServer.open(clock=Clock())
    client = Client(server.transport())
    election = LeaderElection(client, namespace="default", name="kai-scheduler", identity="host_1")

    async def work(stop: asyncio.Event) -> None:
        lease = await client.get_raw(LEASES, "kai-scheduler", "default")
        assert lease["spec"]["holderIdentity"] == "host_1"
        recorder = Recorder(client, component="kai-scheduler", clock=Clock())
        for _ in range(3):
            recorder.event(Reference("v1", "Pod", "default", "p", "u"), NORMAL, "Bound", "to n1")
            await recorder.flush()

    await election.lead(asyncio.Event(), work)
    (event,) = await client.list_raw(EVENTS, namespace="default", field_selector="involvedObject.name=p")
    assert event["count"] == 3
    assert not (await client.get_raw(LEASES, "kai-scheduler", "default"))["spec"].get("holderIdentity")
    await server.close()
