"""Requests meant to do harm: too much, too deep, too slow, or no HTTP at all.  They are refused; others are served.

This is about the embedded server's own port, not about Kubernetes.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pykai.kube.errors import BadRequest
from pykai.lab.apiserver.certificates import LOCAL_NAMES, server_context
from pykai.lab.apiserver.http import HttpServer
from pykai.lab.apiserver.negotiation import read_body
from pykai.lab.apiserver.server import ApiServer
from tests.lab.apiserver.apiclient import running_server

YAML = "application/yaml"
JSON = "application/json"
CONFIG_MAPS = b"/api/v1/namespaces/default/configmaps"
#: sends bytes, gives what comes back until the server closes
Send = Callable[[bytes], Awaitable[bytes]]


@pytest.fixture
def server(inside: ApiServer) -> ApiServer:
    return inside


@asynccontextmanager
async def port(server: ApiServer, **patience: float) -> AsyncIterator[Send]:
    """A port of its own, with the patience that a test has."""
    http = HttpServer(server.handler, server.tokens, **patience)
    number = await http.start("127.0.0.1", 0, server_context(server.authority, LOCAL_NAMES))
    context = ssl.create_default_context(cadata=server.authority.pem.decode())

    async def send(data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("localhost", number, ssl=context)
        try:
            writer.write(data)
            return await asyncio.wait_for(reader.read(), 5)
        finally:
            writer.close()

    try:
        yield send
    finally:
        await http.stop()


def head(server: ApiServer, line: bytes, *lines: bytes, token: str | None = None) -> bytes:
    """The head of a request of the administrator."""
    bearer = b"Authorization: Bearer " + (token or server.tokens.tokens["admin"]).encode()
    return b"\r\n".join((line + b" HTTP/1.1", b"Host: x", b"Connection: close", bearer, *lines, b"", b""))


def aliases(levels: int) -> bytes:
    """A few lines that stand for nine to the power of `levels` words."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, levels)]
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    "body",
    [aliases(6), b"a: &a [*a]", b"a: &a " + b"x" * 500_000 + b"".join(b"\nb%d: *a" % at for at in range(100))],
    ids=["powers", "circle", "copies"],
)
def test_yaml_that_stands_for_too_much(body: bytes) -> None:
    with pytest.raises(BadRequest, match="aliases stand for too much"):
        read_body(body, YAML)


def test_honest_aliases_are_read() -> None:
    assert read_body(b"a: &a {b: c}\nd: *a", YAML) == {"a": {"b": "c"}, "d": {"b": "c"}}
    assert read_body(aliases(3), YAML)["a2"][8][8][8] == "x"


@pytest.mark.parametrize("media", [JSON, YAML, "application/merge-patch+json", "application/apply-patch+yaml"])
def test_bodies_that_are_nested_too_deeply(media: str) -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' * levels + b"1" + b"}" * levels

    assert read_body(nested(200), media)
    for levels in (201, 900, 100_000):
        with pytest.raises(BadRequest, match=r"nested more than 200|cannot be read"):
            read_body(nested(levels), media)
    with pytest.raises(BadRequest, match="nested more than 200"):
        read_body(b"[" * 300 + b"]" * 300, media)


async def test_what_is_no_http_is_refused_without_an_outcry(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with port(server) as send:
        for data in (
            b"\x00\xff" * 50 + b"\r\n\r\n",
            b"BREW /api/v1/pods HTTP/1.1\r\n\r\n",
            head(server, b"GET /" + b"a" * 20_000),
            head(server, b"GET /version", *(b"X-%d: y" % at for at in range(50_000))),
            head(server, b"POST " + CONFIG_MAPS, b"Content-Length: -5"),
            head(server, b"POST " + CONFIG_MAPS, b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        ):
            assert (await send(data)).split(b" ")[1] == b"400"
        assert b"200 OK" in await send(head(server, b"GET /version"))
    assert caplog.records == []


async def test_paths_lead_nowhere_else(server: ApiServer) -> None:
    async with port(server) as send:
        for path in (
            b"/api/v1/../../../etc/passwd",
            b"/api/v1/namespaces/..%2f..%2fetc/pods",
            b"/api/v1/namespaces/default/secrets/%00",
            b"//api//v1//pods",
        ):
            assert (await send(head(server, b"GET " + path))).split(b" ")[1] == b"404"
        assert (await send(head(server, b"TRACE /api/v1/pods"))).split(b" ")[1] == b"405"


async def test_compressed_bodies_are_not_unpacked(server: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    bomb = gzip.compress(b" " * (8 << 20))
    lines = (b"Content-Type: application/json", b"Content-Encoding: gzip", b"Content-Length: %d" % len(bomb))
    async with port(server) as send:
        assert b"400 Bad Request" in await send(head(server, b"POST " + CONFIG_MAPS, *lines) + bomb)
    assert caplog.records == []


async def test_a_body_that_is_announced_as_too_large_is_not_waited_for(server: ApiServer) -> None:
    async with port(server, body_s=0.5) as send:
        answer = await send(head(server, b"POST " + CONFIG_MAPS, b"Content-Length: 99999999999") + b"{")
    assert b"RequestEntityTooLarge" in answer


async def test_a_body_that_never_ends_is_given_up(server: ApiServer) -> None:
    async with port(server, body_s=0.05) as send:
        answer = await send(head(server, b"POST " + CONFIG_MAPS, b"Content-Length: 100") + b"{")
    assert b"408" in answer
    assert b"did not come within" in answer


@pytest.mark.parametrize("data", [b"", b"GET /version HTTP/1.1\r\nHost: x\r\nX-Slow: "], ids=["silent", "slow"])
async def test_a_connection_without_a_request_is_closed(server: ApiServer, data: bytes) -> None:
    async with port(server, idle_s=0.05) as send:
        assert await send(data) == b""


async def test_a_watch_outlives_the_patience_for_requests(server: ApiServer) -> None:
    path = b"GET /api/v1/pods?watch=true&timeoutSeconds=1"
    async with port(server, idle_s=0.05, body_s=0.05) as send:
        answer = await send(head(server, path))
    assert answer.endswith(b"0\r\n\r\n"), "the watch came to its own end"


async def test_tokens_stay_where_they_belong(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_server(data=tmp_path) as (server, _):
        await server.serve()
        server.kubeconfig(tmp_path / "config")
        async with port(server) as send:
            for token in ("wrong", "w\u00fcrong", server.tokens.tokens["admin"]):
                await send(head(server, b"GET /api/v1/secrets", token=token))
                await send(head(server, b"GET /" + b"a" * 20_000, token=token))
        secrets = list(server.tokens.tokens.values())
    assert not [token for token in secrets if token in caplog.text]
    private = [path for path in tmp_path.iterdir() if any(token in path.read_text("latin-1") for token in secrets)]
    assert private
    assert [path.stat().st_mode & 0o077 for path in private] == [0] * len(private)
