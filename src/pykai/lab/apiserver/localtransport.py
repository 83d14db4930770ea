"""The in-process transport: requests go straight to the handler, without sockets and TLS, with the same bytes.

Services of `kai up` and nearly all tests use it. It only leaves out the wire: checks, admission, persistence and
watches are the same as over HTTPS.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from pykai.kube.errors import ConnectionLost
from pykai.kube.transport import Request, Response, Stream
from pykai.lab.apiserver.handler import RequestHandler, StreamingResponse
from pykai.lab.apiserver.users import User


class LocalStream:
    """A watch, or the error response to one."""

    def __init__(self, answer: Response | StreamingResponse) -> None:
        self._answer = answer

    @property
    def status(self) -> int:
        """The HTTP code."""
        return self._answer.status if isinstance(self._answer, Response) else 200

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the answer."""
        return self._answer.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes as they come."""
        if isinstance(self._answer, Response):
            yield self._answer.body
            return
        async for lines in self._answer.watch.lines():
            yield lines


class LocalTransport:
    """Carries requests of one user to the server in this process."""

    def __init__(self, handler: RequestHandler, user: User) -> None:
        self._handler = handler
        self._user = user

    async def send(self, request: Request) -> Response:
        """Send and wait for the whole answer."""
        answer = await self._handle(request)
        if isinstance(answer, Response):
            return answer
        body = b"".join([lines async for lines in answer.watch.lines()])
        return Response(200, body, answer.headers)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Send, and read the answer as it comes."""
        answer = await self._handle(request)
        try:
            yield LocalStream(answer)
        finally:
            if isinstance(answer, StreamingResponse):
                answer.watch.end()

    async def close(self) -> None:
        """Nothing to close."""

    async def _handle(self, request: Request) -> Response | StreamingResponse:
        if self._handler.closed:
            raise ConnectionLost("the embedded API server has been closed")
        return await self._handler.handle(request, self._user, tracked=False)
