"""A real HTTP server on a real socket before the fake one, and a TCP proxy in between that can go silent."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any

from aiohttp import web

from pykai.kube.transport import Request
from tests.kube.fakes import FakeServer


class Wire:
    """Serves a `FakeServer` over HTTP(S) on loopback; can be stopped and started again on the same port."""

    def __init__(self, server: FakeServer, tls: ssl.SSLContext | None = None) -> None:
        self.server = server
        self.tls = tls
        self.port = 0
        #: Authorization headers and names of client certificates, as they came
        self.seen: list[tuple[str, str]] = []
        self.accepted: set[str] | None = None
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self.tls, reuse_address=True)
        await site.start()
        assert site._server is not None
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            self.server.drop_watches()
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, incoming: web.Request) -> web.StreamResponse:
        certificate: Any = incoming.get_extra_info("peercert") or {}
        name = "".join(value for part in certificate.get("subject", ()) for _, value in part)
        shown = incoming.headers.get("Authorization", "")
        self.seen.append((shown, name))
        if self.accepted is not None and shown not in self.accepted:
            return web.json_response({"kind": "Status", "code": 401, "reason": "Unauthorized"}, status=401)
        request = Request(
            incoming.method,
            incoming.path,
            dict(incoming.query),
            await incoming.read() or None,
            incoming.content_type,
        )
        if "watch" not in request.query:
            answer = await self.server.send(request)
            return web.Response(
                status=answer.status, body=answer.body, headers=answer.headers, content_type="application/json"
            )
        async with self.server.stream(request) as stream:
            response = web.StreamResponse(status=stream.status)
            await response.prepare(incoming)
            async for chunk in stream.chunks():
                await response.write(chunk)
            return response


class Proxy:
    """Forwards bytes to a port until silenced: connections stay open, and nothing passes any more."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.accepted = 0
        self._silent: list[asyncio.Event] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def silence(self) -> None:
        """From now on nothing passes on the connections that are open; new ones work."""
        for silent in self._silent:
            silent.set()

    def cut(self) -> None:
        """Close every connection."""
        for writer in self._writers:
            writer.close()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        silent = asyncio.Event()
        self._silent.append(silent)
        try:
            back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self._writers += [writer, back_writer]
        for source, sink in ((reader, back_writer), (back_reader, writer)):
            task = asyncio.ensure_future(self._forward(source, sink, silent))
            self._tasks.add(task)

    @staticmethod
    async def _forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter, silent: asyncio.Event) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                if silent.is_set():
                    continue
                sink.write(data)
                await sink.drain()
        if not silent.is_set():
            sink.close()
