"""A transport between one service and the API server that injects faults, and records every call.

A `Fault` inspects each call and decides its outcome: nothing (None), an answer in the server's place, no answer at
all before or after the server has carried the request out, or silence until the caller's own limit.  Watches fail in
the same ways when they are opened; `WatchDistortion` changes their events once they are open.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import msgspec

from pykai.kube.errors import ConnectionLost
from pykai.kube.transport import Request, Response, Stream, Transport
from tests.faults.calls import Call, call_of

REASONS = {
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True)
class FaultOutcome:
    """The outcome of a request."""

    #: the answer of the server, if it gives one
    answer: Response | None = None
    #: whether the server carries the request out before the answer is lost
    carried_out: bool = False
    #: whether the caller waits until its own timeout
    silent: bool = False
    #: what happens in the cluster before the request, which does not fail itself, arrives
    meanwhile: Callable[[Request], Awaitable[None]] | None = None


#: the n-th request of a call, from 0 -> its outcome, None for no fault
Fault = Callable[[Call, int], FaultOutcome | None]


def refused(code: int) -> FaultOutcome:
    """An error answer."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": REASONS[code]}
    return FaultOutcome(Response(code, msgspec.json.encode({**status, "message": f"injected {code}"})))


LOST = FaultOutcome()
LOST_ANSWER = FaultOutcome(carried_out=True)
SILENCE = FaultOutcome(silent=True)


class WatchDistortion(Protocol):
    """Changes the events of an open watch."""

    def __call__(self, call: Call, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]: ...


#: what a service reads instead of the server's bytes, in answers and in watches
BodyRewrite = Callable[[Call, bytes], bytes]


def unchanged_body(call: Call, body: bytes) -> bytes:
    """The bytes of the server."""
    return body


async def undistorted(call: Call, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Passes the bytes of the server on."""
    async for chunk in chunks:
        yield chunk


class FaultyServiceTransport:
    """See the module; `calls` counts all requests of each call, the spoilt ones included."""

    def __init__(
        self,
        inner: Transport,
        service: str,
        calls: Counter[Call],
        fault: Fault,
        twist: WatchDistortion,
        hit: Counter[Call],
        reword: BodyRewrite = unchanged_body,
    ) -> None:
        self._inner = inner
        self._service = service
        self._calls = calls
        self._fault = fault
        self._twist = twist
        self._hit = hit
        self._reword = reword

    def _next(self, request: Request) -> tuple[Call, FaultOutcome | None]:
        call = call_of(self._service, request)
        outcome = self._fault(call, self._calls[call])
        self._calls[call] += 1
        self._hit[call] += outcome is not None
        return call, outcome

    async def send(self, request: Request) -> Response:
        """See `Transport`."""
        call, outcome = self._next(request)
        if outcome is not None and outcome.meanwhile is not None:
            await outcome.meanwhile(request)
            outcome = None
        if outcome is None:
            answer = await self._inner.send(request)
            return msgspec.structs.replace(answer, body=self._reword(call, answer.body))
        if outcome.answer is not None:
            return outcome.answer
        if outcome.carried_out:
            await self._inner.send(request)
        if outcome.silent:
            await asyncio.sleep(request.timeout_s)
        raise ConnectionLost(f"injected: {request.method} {request.path} got no answer")

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """See `Transport`."""
        call, outcome = self._next(request)
        if outcome is not None and outcome.answer is not None:
            yield _FixedStream(outcome.answer.status, outcome.answer.headers, _once(outcome.answer.body))
            return
        if outcome is not None and not outcome.silent and not outcome.carried_out:
            raise ConnectionLost(f"injected: watch of {request.path}")
        async with self._inner.stream(request) as stream:
            chunks = _reworded(stream.chunks(), call, self._reword)
            if outcome is not None:
                chunks = _for_ever() if outcome.silent else _cut(chunks)
            yield _FixedStream(stream.status, stream.headers, self._twist(call, chunks))

    async def close(self) -> None:
        """See `Transport`."""


class _FixedStream:
    def __init__(self, status: int, headers: Mapping[str, str], chunks: AsyncIterator[bytes]) -> None:
        self.status, self.headers, self._chunks = status, headers, chunks

    def chunks(self) -> AsyncIterator[bytes]:
        """See `Stream`."""
        return self._chunks


async def _reworded(chunks: AsyncIterator[bytes], call: Call, reword: BodyRewrite) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield reword(call, chunk)


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _for_ever() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def _cut(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The first words, cut in the middle of a line."""
    async for chunk in chunks:
        yield chunk[: len(chunk) // 2]
        raise ConnectionLost("injected: cut in the middle of an event")
