"""The HTTPS side of the server: aiohttp in front of the same handler that the local transport uses.

A request's bearer token says who sends it.  Whoever has none may ask for health and version only.
"""

from __future__ import annotations

import logging
import ssl

from aiohttp import web

from pykai.apiserver.failures import status_object
from pykai.apiserver.handler import Handler
from pykai.apiserver.negotiation import MAX_BODY
from pykai.apiserver.storage import encode
from pykai.apiserver.users import ANONYMOUS, Tokens, User
from pykai.kube import errors
from pykai.kube.transport import JSON, Request, Response

_log = logging.getLogger(__name__)
_OPEN = frozenset({"/version", "/healthz", "/livez", "/readyz"})


class HttpServer:
    """An HTTPS port of the server."""

    def __init__(self, handler: Handler, tokens: Tokens) -> None:
        self._handler = handler
        self._tokens = tokens
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int, context: ssl.SSLContext) -> int:
        """Listen; returns the port."""
        application = web.Application(client_max_size=MAX_BODY + 1)
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            shutdown_timeout=1.0,
            keepalive_timeout=3600.0,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=context, backlog=1024)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the port and what goes on over it."""
        if self._runner is not None:
            await self._runner.cleanup()

    def _user(self, request: web.Request) -> User | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            return ANONYMOUS if request.path in _OPEN else None
        return self._tokens.user(token.strip()) if scheme.lower() == "bearer" else None

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        user = self._user(request)
        if user is None:
            refused = errors.Unauthorized(401, "Unauthorized", "Unauthorized")
            return _answer(Response(401, encode(status_object(refused)), {"Content-Type": JSON}))
        try:
            body = await request.read() if request.can_read_body else None
        except web.HTTPRequestEntityTooLarge:
            large = errors.ApiError(413, "RequestEntityTooLarge", f"the body is larger than {MAX_BODY} bytes")
            return _answer(Response(413, encode(status_object(large)), {"Content-Type": JSON}))
        asked = Request(
            request.method,
            request.path,
            dict(request.query),
            body,
            request.headers.get("Content-Type", JSON),
            accept=request.headers.get("Accept", JSON),
        )
        answer = await self._handler.handle(asked, user, tracked=True, agent=request.headers.get("User-Agent", ""))
        if isinstance(answer, Response):
            return _answer(answer)
        response = web.StreamResponse(headers=dict(answer.headers))
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            async for lines in answer.watch.lines():
                await response.write(lines)
            await response.write_eof()
        except (ConnectionResetError, ConnectionError):
            _log.debug("a watch of %s was left", request.path)
        finally:
            answer.watch.end()
        return response


def _answer(answer: Response) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=dict(answer.headers))
