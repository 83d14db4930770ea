"""The one seam between services and an API server.

A `Transport` carries requests: over HTTPS to a real server (`kube.http`), or within the process to the embedded one
(`lab.apiserver.localtransport`).  Tests put transports in between that drop, delay or answer with errors.  Everything
above speaks in `Request`, `Response` and `Stream`, in bytes, so that both ways behave alike.

Subtle: a transport never raises for an HTTP error, only for the lack of an answer (`ConnectionLost`).  Requests and
answers are Structs because there are a dozen of each a pod, and frozen dataclasses take ten times as long to make.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

JSON = "application/json"


class Request(msgspec.Struct, frozen=True):
    """One request; `path` starts with a slash and holds no query."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = JSON
    #: wall seconds for the whole answer; for a stream: until it begins
    timeout_s: float = 60.0
    accept: str = JSON


class Response(msgspec.Struct, frozen=True):
    """A complete answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}


class Stream(Protocol):
    """An answer that goes on: a watch."""

    @property
    def status(self) -> int:
        """The HTTP code."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the answer."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The bytes as they come, in pieces of any size; ends when the server ends it, raises `ConnectionLost`."""
        ...


class Transport(Protocol):
    """Carries requests to one API server."""

    async def send(self, request: Request) -> Response:
        """Send and wait for the whole answer."""
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Send, and read the answer as it comes; leaving the context ends it."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
