"""A transport that fails a fraction of requests, for soak runs: `kai run scheduler --inject-faults 0.02`.

The fault is random: an overload or server error, a conflict (writes only), a lost connection before or after the server
executes the request, or a long delay. A watch may break at every chunk, or repeat it.

Subtle: leases pass untouched. Frequent changes of leaders would hide everything else, and failing leases have their own
tests.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec

from pykai.kube.errors import ConnectionLost
from pykai.kube.transport import Request, Response, Stream, Transport

_ANSWERS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
_MAX_DELAY_S = 3.0


class FaultyTransport:
    """Fails a fraction `share` of the requests to `inner`."""

    def __init__(self, inner: Transport, fault_rate: float, *, seed: int | None = None) -> None:
        self._inner = inner
        self._fault_rate = fault_rate
        self._random = random.Random(seed)
        #: number of injected faults so far
        self.failed = 0

    async def send(self, request: Request) -> Response:
        """See `Transport`."""
        if "/leases" in request.path or self._random.random() >= self._fault_rate:
            return await self._inner.send(request)
        self.failed += 1
        kinds: list[str | int] = ["lost", "answer lost", "late", 429, 500, 503]
        if request.method != "GET":
            kinds.append(409)
        kind = self._random.choice(kinds)
        if isinstance(kind, int):
            return _error_response(kind)
        if kind == "late":
            await asyncio.sleep(self._random.uniform(0.0, _MAX_DELAY_S))
            return await self._inner.send(request)
        if kind == "answer lost":
            await self._inner.send(request)
        raise ConnectionLost(f"injected: {request.method} {request.path} got no answer")

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """See `Transport`."""
        if self._random.random() < self._fault_rate:
            self.failed += 1
            raise ConnectionLost(f"injected: watch of {request.path}")
        async with self._inner.stream(request) as stream:
            yield _FaultyStream(stream, self._fault_rate, self._random)

    async def close(self) -> None:
        """See `Transport`."""
        await self._inner.close()


class _FaultyStream:
    """A watch that may break at every chunk, and repeats some."""

    def __init__(self, inner: Stream, share: float, draw: random.Random) -> None:
        self._inner, self._share, self._draw = inner, share, draw

    @property
    def status(self) -> int:
        return self._inner.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._inner.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            if self._draw.random() < self._share:
                yield chunk[: self._draw.randrange(len(chunk) + 1)]
                raise ConnectionLost("injected: the watch was cut")
            yield chunk
            if chunk.endswith(b"\n") and chunk.count(b"\n") == 1 and self._draw.random() < self._share:
                # Only a chunk that is a whole event can be repeated.
                yield chunk if chunk.startswith(b"{") else b""


def _error_response(code: int) -> Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": _ANSWERS[code]}
    headers = {"Retry-After": "1"} if code == 429 else {}
    return Response(code, msgspec.json.encode({**status, "message": f"injected {code}"}), headers)
