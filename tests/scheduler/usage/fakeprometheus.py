"""A small HTTP server that answers `/api/v1/query` as a Prometheus does, with what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

#: queue ("" for a sum over all) -> value
Series = list[tuple[str, str]]


@dataclass
class FakePrometheus:
    """What it was asked, and what it answers."""

    #: part of a query -> its vector; queries without one get an empty vector
    vectors: dict[str, Series] = field(default_factory=dict)
    #: instead of all that
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    warnings: list[str] = field(default_factory=list)
    posts: bool = True
    #: method, query, time and Authorization of each request
    asked: list[tuple[str, str, str, str]] = field(default_factory=list)
    address: str = ""
    #: set when the server ends, for answers that hang
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def queries(self) -> list[str]:
        """The queries so far."""
        return [query for _, query, _, _ in self.asked]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one query."""
        if request.method == "POST" and not self.posts:
            return web.Response(status=405)
        fields = await request.post() if request.method == "POST" else request.query
        query = str(fields["query"])
        self.asked.append((request.method, query, str(fields["time"]), request.headers.get("Authorization", "")))
        if self.answer is not None:
            return await self.answer(request)
        found = next((series for part, series in self.vectors.items() if part in query), [])
        result = [{"metric": {"queue_name": name} if name else {}, "value": [1.5, value]} for name, value in found]
        return web.json_response(vector(result, self.warnings))


def vector(result: list[dict[str, Any]], warnings: list[str] | None = None) -> dict[str, Any]:
    """The document of an answer."""
    document: dict[str, Any] = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return {**document, "warnings": warnings} if warnings else document


@asynccontextmanager
async def fake_prometheus(prefix: str = "", **fields: Any) -> AsyncIterator[FakePrometheus]:
    """A running one, below a path if one is given."""
    fake = FakePrometheus(**fields)
    app = web.Application()
    app.router.add_route("*", f"{prefix}/api/v1/query", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    fake.address = f"http://127.0.0.1:{port}{prefix}"
    try:
        yield fake
    finally:
        fake.ending.set()
        await runner.cleanup()


#: 100 cores, 1000 bytes and 10 GPUs
CAPACITY: dict[str, Series] = {
    'resource="cpu"': [("", "100")],
    'resource="memory"': [("", "1000")],
    "nvidia_com_gpu": [("", "10")],
}
