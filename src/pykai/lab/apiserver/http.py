"""The HTTPS side of the server: aiohttp in front of the same handler that the local transport uses.

The bearer token identifies the user; without one only health and version are served. A body is read only if the user is
authorised for the request.

Subtle: a connection costs a file descriptor and little else, but there are only so many. One that sends no request, or
no complete body, in time is closed; watches stay.

Statements: hostile:wire.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from pykai.kube import errors
from pykai.kube.transport import JSON, Request, Response
from pykai.lab.apiserver.apierrors import status_object
from pykai.lab.apiserver.handler import RequestHandler
from pykai.lab.apiserver.negotiation import MAX_BODY
from pykai.lab.apiserver.storage import encode
from pykai.lab.apiserver.users import ANONYMOUS, Tokens, User

_log = logging.getLogger(__name__)
_wire_log = logging.getLogger(f"{__name__}.wire")
#: seconds without a request after which a connection is closed; clients should close theirs earlier
_IDLE_S: Final = 300.0
#: seconds in which a body must arrive
_BODY_S: Final = 60.0
#: seconds in which the rest of a refused body may still arrive, so that its sender reads the response
_LINGER_S: Final = 5.0
_ANONYMOUS_PATHS = frozenset({"/version", "/healthz", "/livez", "/readyz"})


class HttpServer:
    """An HTTPS port of the server."""

    def __init__(
        self, handler: RequestHandler, tokens: Tokens, *, idle_s: float = _IDLE_S, body_s: float = _BODY_S
    ) -> None:
        self._handler = handler
        self._tokens = tokens
        self._idle_s = idle_s
        self._body_s = body_s
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
            keepalive_timeout=self._idle_s,
            lingering_time=min(_LINGER_S, self._body_s),
            auto_decompress=False,
            logger=_wire_log,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=context, backlog=1024)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the port and its connections."""
        if self._runner is not None:
            await self._runner.cleanup()

    def _user(self, request: web.Request) -> User | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            return ANONYMOUS if request.path in _ANONYMOUS_PATHS else None
        return self._tokens.user(token.strip()) if scheme.lower() == "bearer" else None

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        user = self._user(request)
        if user is None:
            unknown = errors.Unauthorized(401, "Unauthorized", "Unauthorized")
            return _web_response(Response(401, encode(status_object(unknown)), {"Content-Type": JSON}))
        api_request = Request(
            request.method,
            request.path,
            dict(request.query),
            None,
            request.headers.get("Content-Type", JSON),
            accept=request.headers.get("Accept", JSON),
        )
        if (forbidden := self._handler.authorization_failure(api_request, user)) is not None:
            refused = _web_response(forbidden)
            if request.can_read_body:
                # The body is not read, so the connection cannot be reused.
                refused.force_close()
            return refused
        if (request.content_length or 0) > MAX_BODY:
            return _too_large()
        try:
            async with asyncio.timeout(self._body_s):
                body = await request.read() if request.can_read_body else None
        except web.HTTPRequestEntityTooLarge:
            return _too_large()
        except web.RequestPayloadError as error:
            return _error_response(400, "BadRequest", f"the body cannot be read: {error}")
        except TimeoutError:
            return _error_response(408, "Timeout", f"the body did not come within {self._body_s:g} seconds")
        api_request = msgspec.structs.replace(api_request, body=body)
        answer = await self._handler.handle(
            api_request, user, tracked=True, agent=request.headers.get("User-Agent", "")
        )
        if isinstance(answer, Response):
            return _web_response(answer)
        response = web.StreamResponse(headers=dict(answer.headers))
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            async for lines in answer.watch.lines():
                await response.write(lines)
            await response.write_eof()
        except (ConnectionResetError, ConnectionError):
            _log.debug("the client closed its watch of %s", request.path)
        finally:
            answer.watch.end()
        return response


def _is_server_fault(record: logging.LogRecord) -> bool:
    """Whether a log record of the HTTP library reports a fault of the server rather than of a client."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, (HttpProcessingError, web.RequestPayloadError)):
        _log.debug("malformed HTTP request: %s", error)
        return False
    return True


_wire_log.addFilter(_is_server_fault)


def _too_large() -> web.Response:
    return _error_response(413, "RequestEntityTooLarge", f"the body is larger than {MAX_BODY} bytes")


def _error_response(code: int, reason: str, message: str) -> web.Response:
    """The response to a request whose body is not fully read; the connection cannot be reused."""
    refused = errors.ApiError(code, reason, message)
    response = _web_response(Response(code, encode(status_object(refused)), {"Content-Type": JSON}))
    response.force_close()
    return response


def _web_response(answer: Response) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=dict(answer.headers))
