"""A transport that loses answers: the request is carried out or not, and the caller does not learn which."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from pykai.kube.errors import ConnectionLost
from pykai.kube.transport import Request, Response, Stream, Transport


class AnswerLosingTransport:
    """Passes everything on but one write, the n-th (from 0): lost before or after the server carried it out."""

    def __init__(self, transport: Transport, nth: int, *, carried_out: bool) -> None:
        self._transport = transport
        self._nth = nth
        self._carried_out = carried_out
        #: writes so far, those of events not counted
        self.writes = 0

    async def send(self, request: Request) -> Response:
        if request.method == "GET" or request.path.endswith("/events"):
            return await self._transport.send(request)
        number = self.writes
        self.writes += 1
        if number != self._nth:
            return await self._transport.send(request)
        if self._carried_out:
            await self._transport.send(request)
        raise ConnectionLost("the answer was lost")

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()
