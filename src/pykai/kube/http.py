"""A transport over HTTP and HTTPS to a real API server.

Requests share a pool of connections that stay open; watches have connections of their own, so that many of them leave
room for requests.  `Credentials` are read before every request, because tokens and certificates change while a process
runs.  A 401 refreshes them once and repeats the request.

Subtle:
- After a request times out, all idle connections are closed: behind a dead peer they are all dead, and each would cost
  another time-out.
- The TLS context of a client certificate can only be made from files, so the key stands in a private file for the
  moment of loading it.
- Proxies are not used, whatever the environment says.

Statements: cycle:PRC-6, kube:401.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from pykai import __version__
from pykai.kube.errors import ConnectionLost, CredentialsError
from pykai.kube.transport import Request, Response

_CONNECT_S = 10.0
# Servers close what is idle for longer; a request on a connection that closes at that moment would be lost.
_KEEPALIVE_S = 30.0
_READ_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True, repr=False)
class ClientCertificate:
    """Certificate and private key, PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True, repr=False)
class RequestCredentials:
    """Credentials of a request: an Authorization header, a client certificate, both or none.  Never printed."""

    authorization: str = ""
    certificate: ClientCertificate | None = None


class Credentials(Protocol):
    """The source of credentials."""

    async def current(self) -> RequestCredentials:
        """The current credentials; raises `CredentialsError`."""
        ...

    async def refresh_after_401(self, presented: RequestCredentials) -> bool:
        """The server answered 401 to these; whether `present` now has others."""
        ...


class AnonymousCredentials:
    """No credentials: for servers that ask for none."""

    async def current(self) -> RequestCredentials:
        return RequestCredentials()

    async def refresh_after_401(self, presented: RequestCredentials) -> bool:
        return False


class HttpStream:
    """The answer to a watch."""

    def __init__(self, response: aiohttp.ClientResponse, what: str) -> None:
        self._response = response
        self._what = what

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        content = self._response.content
        while True:
            try:
                chunk = await content.readany()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise ConnectionLost(f"{self._what}: {_error_text(error)}") from None
            if not chunk:
                return
            yield chunk


class HttpTransport:
    """Carries requests to the API server at `server`, an URL."""

    def __init__(
        self,
        server: str,
        *,
        ca: bytes | None = None,
        credentials: Credentials | None = None,
        insecure: bool = False,
        server_name: str = "",
    ) -> None:
        if not server.startswith(("https://", "http://")):
            raise CredentialsError(f"the server must be an http or https URL, not {server!r}")
        self.server = server.rstrip("/")
        self._ca = ca
        self._credentials: Credentials = credentials or AnonymousCredentials()
        self._insecure = insecure
        self._server_name = server_name or None
        self._certificate: ClientCertificate | None = None
        self._tls: ssl.SSLContext | None = None
        self._pool: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None
        #: given up for new requests, still serving what they carry
        self._retired: list[aiohttp.ClientSession] = []
        self._closed = False

    async def send(self, request: Request) -> Response:
        presented = await self._credentials.current()
        response = await self._send(request, presented)
        if response.status == 401 and await self._credentials.refresh_after_401(presented):
            response = await self._send(request, await self._credentials.current())
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[HttpStream]:
        presented = await self._credentials.current()
        response = await self._open(request, presented)
        try:
            if response.status == 401 and await self._credentials.refresh_after_401(presented):
                response.close()
                response = await self._open(request, await self._credentials.current())
            yield HttpStream(response, f"GET {request.path}")
        finally:
            # A watch is never read to its end, so its connection cannot be used again.
            response.close()

    async def close(self) -> None:
        self._closed = True
        sessions = [session for session in (self._pool, self._streams, *self._retired) if session is not None]
        self._pool = self._streams = None
        self._retired = []
        for session in sessions:
            await session.close()

    async def _send(self, request: Request, presented: RequestCredentials) -> Response:
        what = f"{request.method} {request.path}"
        pool = await self._session(presented, streams=False)
        try:
            async with pool.request(
                request.method,
                self._url(request),
                data=request.body,
                headers=_headers(request, presented),
                timeout=aiohttp.ClientTimeout(total=request.timeout_s, sock_connect=_CONNECT_S),
                allow_redirects=False,
                server_hostname=self._server_name,
            ) as response:
                return Response(response.status, await response.read(), response.headers)
        except TimeoutError:
            await self._abandon_pool(pool)
            raise ConnectionLost(f"{what}: no answer within {request.timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost(f"{what}: {_error_text(error)}") from None
        except RuntimeError as error:
            if not self._closed:
                raise
            raise ConnectionLost(f"{what}: {error}") from None

    async def _open(self, request: Request, presented: RequestCredentials) -> aiohttp.ClientResponse:
        what = f"{request.method} {request.path}"
        session = await self._session(presented, streams=True)
        try:
            async with asyncio.timeout(request.timeout_s):
                return await session.request(
                    request.method,
                    self._url(request),
                    headers=_headers(request, presented),
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                    allow_redirects=False,
                    server_hostname=self._server_name,
                    read_bufsize=_READ_BUFFER,
                )
        except TimeoutError:
            raise ConnectionLost(f"{what}: no answer within {request.timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost(f"{what}: {_error_text(error)}") from None
        except RuntimeError as error:
            if not self._closed:
                raise
            raise ConnectionLost(f"{what}: {error}") from None

    def _url(self, request: Request) -> URL:
        query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
        return URL(f"{self.server}{request.path}{query}", encoded=True)

    async def _session(self, presented: RequestCredentials, *, streams: bool) -> aiohttp.ClientSession:
        if self._closed:
            raise ConnectionLost("the transport is closed")
        if presented.certificate != self._certificate or self._tls is None:
            self._tls = self._tls_context(presented.certificate)
            self._certificate = presented.certificate
            stale_sessions = (self._pool, self._streams)
            self._pool = self._streams = None
            for session in stale_sessions:
                await self._retire(session)
        if streams:
            if self._streams is None:
                self._streams = self._new_session(self._tls)
            return self._streams
        if self._pool is None:
            self._pool = self._new_session(self._tls)
        return self._pool

    def _new_session(self, tls: ssl.SSLContext) -> aiohttp.ClientSession:
        # `Client` limits requests. A limit here would make a lease renewal wait behind requests that hang.
        connector = aiohttp.TCPConnector(ssl=tls, limit=0, keepalive_timeout=_KEEPALIVE_S)
        # Redirects and cookies could leak our token to another server.
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)

    def _tls_context(self, certificate: ClientCertificate | None) -> ssl.SSLContext:
        try:
            text = self._ca.decode("ascii") if self._ca else None
            context = ssl.create_default_context(cadata=text)
        except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
            raise CredentialsError(f"the CA certificate for {self.server} cannot be read: {error}") from None
        if self._insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            _load_certificate(context, certificate)
        return context

    async def _abandon_pool(self, pool: aiohttp.ClientSession) -> None:
        if pool is self._pool:
            self._pool = None
            await self._retire(pool)

    async def _retire(self, session: aiohttp.ClientSession | None) -> None:
        """Retire a session; its requests may finish until the next one is retired."""
        if session is None:
            return
        before, self._retired = self._retired[:-2], [*self._retired[-2:], session]
        for old in before:
            await old.close()


def _headers(request: Request, presented: RequestCredentials) -> dict[str, str]:
    # Within a cluster the network is faster than decompression.
    headers = {"Accept": request.accept, "Accept-Encoding": "identity", "User-Agent": f"pykai/{__version__}"}
    if request.body is not None:
        headers["Content-Type"] = request.content_type
    if presented.authorization:
        headers["Authorization"] = presented.authorization
    return headers


def _load_certificate(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    with tempfile.TemporaryDirectory(prefix="pykai-") as folder:
        path = os.path.join(folder, "client.pem")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(certificate.certificate + b"\n" + certificate.key)
        try:
            context.load_cert_chain(path)
        except (ssl.SSLError, OSError) as error:
            raise CredentialsError(f"client certificate and key cannot be used: {error}") from None


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__
