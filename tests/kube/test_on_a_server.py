"""The client and what stands on it, against an API server: the embedded one and, with `--cluster`, a real one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pykai.api.core import ConfigMap
from pykai.kube.caches import Caches
from pykai.kube.client import Client, PatchKind
from pykai.kube.clock import Clock
from pykai.kube.errors import AlreadyExists, Conflict, ConnectionLost, Invalid, NotFound
from pykai.kube.events import NORMAL, EventRecorder, InvolvedObject
from pykai.kube.lease import LeaderElection
from pykai.kube.reflector import WatchTimeouts
from pykai.kube.resources import CONFIG_MAPS, EVENTS, LEASES, SECRETS, Resource
from pykai.kube.store import Store
from pykai.kube.transport import Request, Response, Stream, Transport
from tests.kube.lagging import DelayedTransport
from tests.servers import Server, api_server

QUICK = WatchTimeouts(idle_s=0.2, first_pause_s=0.01, longest_pause_s=0.05)
#: for watches that are not to be taken for dead, however slow the machine is
CALM = WatchTimeouts(idle_s=60, first_pause_s=0.01, longest_pause_s=0.05)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with api_server(Clock()) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Client:
    return Client(server.transport())


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


@asynccontextmanager
async def following(
    client: Client, resource: Resource = CONFIG_MAPS, patience: WatchTimeouts = QUICK
) -> AsyncIterator[Store[ConfigMap]]:
    """A store of one namespace; what it reads of an object is its name and its labels."""
    caches = Caches(client, timeouts=patience)
    store = caches.store(resource, ConfigMap, namespace="default")
    await caches.start()
    try:
        await caches.wait_for_sync()
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
        await store.wait_until(lambda s: "default/applied" in s and "default/c2" not in s)
        seen = store.get("default/c1")
        assert seen is not None
        assert seen.metadata.labels == {"seen": "yes"}
        listing = await client.list(CONFIG_MAPS, into=ConfigMap, namespace="default", label_selector="seen=yes")
        assert [item.metadata.name for item in listing.items] == ["c1"]


async def uid(client: Client, name: str) -> str:
    text: str = (await client.get_raw(CONFIG_MAPS, name, "default"))["metadata"]["uid"]
    return text


async def test_every_kind_of_request(client: Client) -> None:
    await tour(client)


async def test_lists_in_pages(client: Client) -> None:
    for number in range(7):
        await client.create(CONFIG_MAPS, config_map(f"c{number}"))
    pages = [page async for page in client.pages(CONFIG_MAPS, namespace="default", limit=3)]
    assert [len(page.items) for page in pages] == [3, 3, 1]
    assert len({page.resource_version for page in pages}) == 1


async def test_lists_of_metadata(client: Client) -> None:
    for number in range(3):
        await client.create(CONFIG_MAPS, config_map(f"c{number}", large="x" * 100))
    listed = client.pages(CONFIG_MAPS, namespace="default", limit=2, metadata_only=True)
    items = [json.loads(bytes(raw)) async for page in listed for raw in page.items]
    found = {item["metadata"]["name"]: item for item in items}
    assert {"c0", "c1", "c2"} <= found.keys()
    for name in ("c0", "c1", "c2"):
        known = await client.get_raw(CONFIG_MAPS, name, "default")
        assert found[name]["metadata"] == known["metadata"]
    assert not any("data" in item for item in items)


async def test_a_store_catches_up_with_the_server(server: Server) -> None:
    """However long a watch is behind; nothing but metadata is read for it."""
    wire = DelayedTransport(server.transport())
    client = Client(wire)
    caches = Caches(client, timeouts=CALM)
    store = caches.store(CONFIG_MAPS, ConfigMap, namespace="default")
    await caches.start()
    try:
        await caches.wait_for_sync()
        wire.current.clear()
        await client.create(CONFIG_MAPS, config_map("late", large="x" * 100))
        asked = len(wire.answers)
        catching_up = asyncio.create_task(caches.wait_until_caught_up(store))
        async with asyncio.timeout(20):
            while len(wire.answers) == asked:
                await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not catching_up.done()
        assert "default/late" not in store
        assert b"late" in wire.answers[-1]
        assert b"x" * 100 not in wire.answers[-1]
        wire.current.set()
        await asyncio.wait_for(catching_up, 20)
        assert "default/late" in store
    finally:
        await caches.stop()


async def test_refusals_say_which_field(client: Client) -> None:
    with pytest.raises(Invalid) as refused:
        await client.create(CONFIG_MAPS, config_map("Not A Name"))
    assert "metadata.name" in str(refused.value)


async def test_leases_and_events(client: Client) -> None:
    election = LeaderElection(client, namespace="default", name="kai-scheduler", identity="host_1")

    async def work(stop: asyncio.Event) -> None:
        lease = await client.get_raw(LEASES, "kai-scheduler", "default")
        assert lease["spec"]["holderIdentity"] == "host_1"
        recorder = EventRecorder(client, component="kai-scheduler", clock=Clock())
        for _ in range(3):
            recorder.event(InvolvedObject("v1", "Pod", "default", "p", "u"), NORMAL, "Bound", "to n1")
            await recorder.flush()

    await election.lead(asyncio.Event(), work)
    (event,) = await client.list_raw(EVENTS, namespace="default", field_selector="involvedObject.name=p")
    assert event["count"] == 3
    assert not (await client.get_raw(LEASES, "kai-scheduler", "default"))["spec"].get("holderIdentity")


async def test_a_released_lease_passes_to_the_next(client: Client) -> None:
    led: list[str] = []

    async def candidate(identity: str, stop: asyncio.Event) -> None:
        async def work(ended: asyncio.Event) -> None:
            led.append(identity)
            stop.set()
            await ended.wait()

        election = LeaderElection(
            client, namespace="default", name="kai-binder", identity=identity, retry_period_s=0.05
        )
        await election.lead(stop, work)

    await asyncio.gather(*(candidate(f"host_{number}", asyncio.Event()) for number in range(3)))
    assert sorted(led) == ["host_0", "host_1", "host_2"]
    lease = await client.get_raw(LEASES, "kai-binder", "default")
    assert lease["spec"]["leaseTransitions"] >= 2


class Severed:
    """A transport whose streams can be cut; while they are, none begins."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._open = asyncio.Event()
        self._open.set()
        self._cuts: set[asyncio.Event] = set()

    def cut(self) -> None:
        """End all streams; new ones wait."""
        self._open.clear()
        for cut in self._cuts:
            cut.set()

    def mend(self) -> None:
        """Streams begin again."""
        self._open.set()

    async def send(self, request: Request) -> Response:
        return await self._inner.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        await self._open.wait()
        cut = asyncio.Event()
        self._cuts.add(cut)
        try:
            async with self._inner.stream(request) as stream:
                yield _Cuttable(stream, cut)
        finally:
            self._cuts.discard(cut)

    async def close(self) -> None:
        await self._inner.close()


class _Cuttable:
    def __init__(self, inner: Stream, cut: asyncio.Event) -> None:
        self._inner = inner
        self._cut = cut
        self.status, self.headers = inner.status, inner.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._inner.chunks())
        waiting = asyncio.ensure_future(self._cut.wait())
        try:
            while True:
                coming = asyncio.ensure_future(anext(chunks))
                await asyncio.wait((coming, waiting), return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)
                    raise ConnectionLost("cut")
                try:
                    yield coming.result()
                except StopAsyncIteration:
                    return
        finally:
            waiting.cancel()


@pytest.mark.parametrize("compacted", [False, True], ids=["resumed", "listed-again"])
async def test_a_watch_that_was_away_misses_nothing(server: Server, client: Client, compacted: bool) -> None:
    """Whether the server remembers the time between, or answers 410."""
    severed = Severed(server.transport())
    async with following(Client(severed), SECRETS, CALM) as store:
        for name in ("stays", "goes", "changes"):
            await client.create(SECRETS, {"metadata": {"name": name, "namespace": "default"}})
        await store.wait_until(lambda s: all(f"default/{name}" in s for name in ("stays", "goes", "changes")))
        told: list[tuple[str, bool]] = []
        store.subscribe(lambda change: told.append((change.key, change.new is None)))
        told.clear()  # present objects come first
        severed.cut()
        await client.create(SECRETS, {"metadata": {"name": "comes", "namespace": "default"}})
        await client.create(SECRETS, {"metadata": {"name": "passes-by", "namespace": "default"}})
        await client.delete(SECRETS, "passes-by", "default")
        await client.delete(SECRETS, "goes", "default")
        await client.patch(SECRETS, "changes", {"metadata": {"labels": {"seen": "yes"}}}, "default")
        if compacted:
            server.compact()
        severed.mend()
        await store.wait_until(
            lambda s: (found := s.get("default/changes")) is not None and bool(found.metadata.labels)
        )
        assert {each.metadata.name for each in store.values()} == {"stays", "changes", "comes"}
        passed = [] if compacted else [("default/passes-by", False), ("default/passes-by", True)]
        assert sorted(told) == sorted(
            [("default/comes", False), ("default/goes", True), ("default/changes", False), *passed]
        )


async def test_a_list_that_expires_between_two_pages_begins_again(server: Server, client: Client) -> None:
    for number in range(3):
        await client.create(SECRETS, {"metadata": {"name": f"s{number}", "namespace": "default"}})
    pages = aiter(client.pages(SECRETS, namespace="default", limit=1))
    await anext(pages)
    await client.patch(SECRETS, "s0", {"metadata": {"labels": {"a": "b"}}}, "default")
    await client.patch(SECRETS, "s0", {"metadata": {"labels": {"a": "c"}}}, "default")
    server.compact()
    assert [len(page.items) async for page in pages] == [3]
