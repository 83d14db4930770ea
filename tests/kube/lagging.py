"""Watches that fall behind: what they have to tell waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from pykai.kube.transport import Request, Response, Stream, Transport


class Late:
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
async def late(inner: AbstractAsyncContextManager[Stream], current: asyncio.Event) -> AsyncIterator[Stream]:
    """A stream whose news wait for `current`."""
    async with inner as stream:
        yield Late(stream, current)


class Lagging:
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
        return late(self._inner.stream(request), self.current)

    async def close(self) -> None:
        """See `Transport`."""
        await self._inner.close()
