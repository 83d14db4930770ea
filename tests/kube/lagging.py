"""Watches that fall behind, and writes that hang: what they have to tell waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from pykai.kube.transport import Request, Response, Stream, Transport


class DelayedStream:
    """A watch whose news wait."""

    def __init__(self, inner: Stream, current: asyncio.Event) -> None:
        self._inner, self._current = inner, current
        self.status, self.headers = inner.status, inner.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """See `Stream`."""
        async for chunk in self._inner.chunks():
            await self._current.wait()
            yield chunk


@asynccontextmanager
async def delayed_stream(inner: AbstractAsyncContextManager[Stream], current: asyncio.Event) -> AsyncIterator[Stream]:
    """A stream whose news wait for `current`."""
    async with inner as stream:
        yield DelayedStream(stream, current)


class DelayedTransport:
    """A transport whose watches are behind while `current` is not set, and that keeps what else was answered."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.current = asyncio.Event()
        self.current.set()
        self.answers: list[bytes] = []

    async def send(self, request: Request) -> Response:
        """See `Transport`."""
        response = await self._inner.send(request)
        self.answers.append(response.body)
        return response

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """See `Transport`."""
        return delayed_stream(self._inner.stream(request), self.current)

    async def close(self) -> None:
        """See `Transport`."""
        await self._inner.close()


class HangingTransport:
    """A transport whose writes in the namespace `slow` are not carried out before `let_go` is set."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.let_go = asyncio.Event()
        #: how many writes have hung so far
        self.hung = 0
        self._another = asyncio.Event()

    async def until_hung(self, count: int) -> None:
        """Wait until so many writes hang."""
        async with asyncio.timeout(10):
            while self.hung < count:
                self._another.clear()
                await self._another.wait()

    async def send(self, request: Request) -> Response:
        """See `Transport`."""
        if request.method != "GET" and "/namespaces/slow/" in request.path and not self.let_go.is_set():
            self.hung += 1
            self._another.set()
            await self.let_go.wait()
        return await self._inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """See `Transport`."""
        return self._inner.stream(request)

    async def close(self) -> None:
        """See `Transport`."""
        await self._inner.close()
