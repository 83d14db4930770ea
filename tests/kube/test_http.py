"""The real wire: TLS, tokens that change, connections that die in every way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pykai.api.core import Pod
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.credentials import StaticCredentials, TokenFileCredentials
from pykai.kube.errors import ConnectionLost, CredentialsError, Unauthorized
from pykai.kube.http import ClientCertificate, HttpTransport, RequestCredentials
from pykai.kube.reflector import WatchTimeouts
from pykai.kube.resources import PODS
from pykai.kube.store import Store
from pykai.kube.transport import Request, Response
from tests.kube.certificates import Authority, authority
from tests.kube.fakes import FakeServer, pod, status
from tests.kube.lagging import HangingTransport
from tests.kube.wires import Proxy, Wire

QUICK = WatchTimeouts(idle_s=0.15, first_pause_s=0.01, longest_pause_s=0.05)


@asynccontextmanager
async def served(server: FakeServer, folder: Path | None = None) -> AsyncIterator[Wire]:
    """Over HTTPS if there is a folder for its certificate."""
    wire = Wire(server, authority().server_context(folder) if folder is not None else None)
    await wire.start()
    try:
        yield wire
    finally:
        await wire.stop()


@asynccontextmanager
async def following(url: str, patience: WatchTimeouts = QUICK) -> AsyncIterator[Store[Pod]]:
    transport = HttpTransport(url)
    caches = Caches(Client(transport), timeouts=patience)
    store = caches.store(PODS, Pod)
    await caches.start()
    try:
        await caches.wait_for_sync()
        yield store
    finally:
        await caches.stop()
        await transport.close()


async def test_requests_and_watches_over_tls(tmp_path: Path) -> None:
    server = FakeServer()
    server.put(pod("a"))
    async with served(server, tmp_path) as wire:
        transport = HttpTransport(wire.url, ca=authority().pem, credentials=StaticCredentials("Bearer t"))
        client = Client(transport)
        caches = Caches(client)
        store = caches.store(PODS, Pod)
        await caches.start()
        await caches.wait_for_sync()
        await server.watched()
        await client.create(PODS, pod("b"))
        await client.patch(PODS, "a", {"spec": {"nodeName": "ü?&=/ +"}}, "default")
        await store.wait_until(lambda s: len(s) == 2 and s.get("default/a").spec.node_name == "ü?&=/ +")  # type: ignore[union-attr]
        await client.list_raw(PODS, label_selector="a in (b, c),d!=e", field_selector="x=+&y")
        assert server.requests[-1].query["labelSelector"] == "a in (b, c),d!=e"
        assert server.requests[-1].query["fieldSelector"] == "x=+&y"
        assert set(wire.seen) == {("Bearer t", "")}
        await caches.stop()
        await transport.close()


async def test_a_server_of_another_authority_is_not_trusted(tmp_path: Path) -> None:
    async with served(FakeServer(), tmp_path) as wire:
        for transport in (
            HttpTransport(wire.url, ca=Authority("other").pem),
            HttpTransport(wire.url),
            HttpTransport(wire.url, ca=authority().pem, server_name="elsewhere"),
        ):
            with pytest.raises(ConnectionLost, match=r"(?i)certificate"):
                await transport.send(Request("GET", "/api/v1/pods"))
            await transport.close()
        for transport in (
            HttpTransport(wire.url, insecure=True),
            HttpTransport(wire.url, ca=authority().pem, server_name="kubernetes"),
        ):
            assert (await transport.send(Request("GET", "/api/v1/pods"))).status == 200
            await transport.close()


async def test_client_certificates_are_shown(tmp_path: Path) -> None:
    issued = authority().issue("alice", common_name_only=True)
    certificate = ClientCertificate(issued.certificate, issued.key)
    async with served(FakeServer(), tmp_path) as wire:
        transport = HttpTransport(wire.url, ca=authority().pem, credentials=StaticCredentials("", certificate))
        await transport.send(Request("GET", "/api/v1/pods"))
        await transport.close()
        assert wire.seen == [("", "alice")]


async def test_bad_certificates_say_so() -> None:
    with pytest.raises(CredentialsError, match="CA certificate"):
        await HttpTransport("https://127.0.0.1:1", ca=b"-----BEGIN NONSENSE").send(Request("GET", "/"))
    broken = StaticCredentials("", ClientCertificate(b"no", b"nor this"))
    with pytest.raises(CredentialsError, match="client certificate"):
        await HttpTransport("https://127.0.0.1:1", credentials=broken).send(Request("GET", "/"))
    with pytest.raises(CredentialsError, match="URL"):
        HttpTransport("127.0.0.1:6443")


async def test_a_refused_token_is_read_again_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    server = FakeServer()
    async with served(server) as wire:
        transport = HttpTransport(wire.url, credentials=TokenFileCredentials(token))
        client = Client(transport)
        await client.list_raw(PODS)
        token.write_text("new\n")
        wire.accepted = {"Bearer new"}
        await client.list_raw(PODS)
        async with client.open_watch(PODS, resource_version="100", timeout_s=10) as stream:
            assert stream.status == 200
        assert [shown for shown, _ in wire.seen] == ["Bearer old", "Bearer old", "Bearer new", "Bearer new"]
        wire.accepted = {"Bearer newer still"}
        with pytest.raises(Unauthorized):
            await client.list_raw(PODS)
        await transport.close()


async def test_a_watch_that_is_refused_refreshes_too(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    async with served(FakeServer()) as wire:
        transport = HttpTransport(wire.url, credentials=TokenFileCredentials(token))
        client = Client(transport)
        await client.list_raw(PODS)
        token.write_text("new")
        wire.accepted = {"Bearer new"}
        async with client.open_watch(PODS, resource_version="100", timeout_s=10) as stream:
            assert stream.status == 200
        await transport.close()


async def test_certificates_may_change_while_running(tmp_path: Path) -> None:
    class Rotating:
        def __init__(self) -> None:
            self.names = iter(("first", "second", "second"))

        async def current(self) -> RequestCredentials:
            issued = certified[next(self.names)]
            return RequestCredentials("", ClientCertificate(issued.certificate, issued.key))

        async def refresh_after_401(self, presented: RequestCredentials) -> bool:
            return False

    certified = {name: authority().issue(name, common_name_only=True) for name in ("first", "second")}
    async with served(FakeServer(), tmp_path) as wire:
        transport = HttpTransport(wire.url, ca=authority().pem, credentials=Rotating())
        for _ in range(3):
            await transport.send(Request("GET", "/api/v1/pods"))
        await transport.close()
        assert [name for _, name in wire.seen] == ["first", "second", "second"]


async def test_half_open_connections_are_found() -> None:
    server = FakeServer()
    async with served(server) as wire:
        proxy = Proxy(wire.port)
        await proxy.start()
        async with following(f"http://127.0.0.1:{proxy.port}") as store:
            await server.watched()
            server.put(pod("a"))
            await store.wait_until(lambda s: len(s) == 1)
            proxy.silence()
            server.put(pod("b"))
            await store.wait_until(lambda s: len(s) == 2, 10)
            assert server.lists() == 1
        await proxy.stop()


async def test_requests_on_half_open_connections_end_and_the_next_ones_work() -> None:
    server = FakeServer()
    server.put(pod("a"))
    async with served(server) as wire:
        proxy = Proxy(wire.port)
        await proxy.start()
        transport = HttpTransport(f"http://127.0.0.1:{proxy.port}")
        ask = Request("GET", "/api/v1/namespaces/default/pods/a", timeout_s=0.1)
        # Three connections are in the pool, and all of them die.
        await asyncio.gather(*(transport.send(Request("GET", ask.path)) for _ in range(3)))
        proxy.silence()
        with pytest.raises(ConnectionLost, match="no answer within"):
            await transport.send(ask)
        assert (await transport.send(Request("GET", ask.path, timeout_s=3))).status == 200
        await transport.close()
        await proxy.stop()


async def test_cut_connections_are_resumed() -> None:
    server = FakeServer()
    async with served(server) as wire:
        proxy = Proxy(wire.port)
        await proxy.start()
        async with following(f"http://127.0.0.1:{proxy.port}", WatchTimeouts(first_pause_s=0.01)) as store:
            for number in range(3):
                await server.watched(number + 1)
                proxy.cut()
                server.put(pod(f"p{number}"))
                await store.wait_until(lambda s, number=number: len(s) == number + 1)  # type: ignore[misc]
            assert server.lists() == 1
        await proxy.stop()


async def test_the_server_may_restart() -> None:
    server = FakeServer()
    server.put(pod("a"))
    async with served(server) as wire, following(wire.url) as store:
        await server.watched()
        await wire.stop()
        server.put(pod("b"))
        await wire.start()
        await store.wait_until(lambda s: len(s) == 2)
        assert server.lists() == 1
        # And once more, having forgotten its history and an object.
        await wire.stop()
        server.remove("a")
        server.expire()
        await wire.start()
        await store.wait_until(lambda s: "default/a" not in s)


async def test_a_server_that_is_not_there_is_a_lost_connection() -> None:
    transport = HttpTransport("http://127.0.0.1:1")
    with pytest.raises(ConnectionLost, match="GET /version"):
        await transport.send(Request("GET", "/version"))
    await transport.close()
    with pytest.raises(ConnectionLost, match="closed"):
        await transport.send(Request("GET", "/version"))


async def test_requests_that_hang_leave_connections_for_others() -> None:
    inner = FakeServer()
    inner.put(pod("p"))
    hanging = HangingTransport(inner)

    class Front(FakeServer):
        async def send(self, request: Request) -> Response:
            return await hanging.send(request)

    async with served(Front()) as wire:
        transport = HttpTransport(wire.url)
        stuck = [
            asyncio.create_task(transport.send(Request("POST", f"/api/v1/namespaces/slow/pods/p{number}/binding")))
            for number in range(120)
        ]
        await hanging.until_hung(120)
        answer = await transport.send(Request("GET", "/api/v1/namespaces/default/pods/p"))
        assert answer.status == 200
        hanging.let_go.set()
        await asyncio.gather(*stuck)
        await transport.close()


async def test_redirects_are_not_followed() -> None:
    server = FakeServer()
    answer = status(302)
    server.answer(type(answer)(302, b"", {"Location": "http://127.0.0.1:1/evil"}))
    async with served(server) as wire:
        transport = HttpTransport(wire.url, credentials=StaticCredentials("Bearer secret"))
        assert (await transport.send(Request("GET", "/version"))).status == 302
        await transport.close()


def test_secrets_are_not_printed(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("test").warning(
        "%s", RequestCredentials("Bearer very-secret", ClientCertificate(b"cert", b"very-secret"))
    )
    assert "very-secret" not in caplog.text
