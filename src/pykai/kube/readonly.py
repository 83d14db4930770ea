"""A transport that only reads: writes are answered with 403 and never sent.

For processes that promise to write nothing: a safety net in case they try.
"""

from __future__ import annotations

import json
import logging
from contextlib import AbstractAsyncContextManager

from pykai.kube.errors import Forbidden
from pykai.kube.transport import Request, Response, Stream, Transport

log = logging.getLogger(__name__)

_READ_METHODS = ("GET", "HEAD")


class ReadOnlyTransport:
    """Lets reads through to another transport."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        #: writes that were not sent
        self.refused_writes = 0

    async def send(self, request: Request) -> Response:
        """See `Transport`."""
        if request.method in _READ_METHODS:
            return await self._inner.send(request)
        status = {
            "apiVersion": "v1",
            "kind": "Status",
            "status": "Failure",
            "code": 403,
            "reason": "Forbidden",
            "message": self._refuse(request),
        }
        return Response(403, json.dumps(status).encode())

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """See `Transport`."""
        if request.method not in _READ_METHODS:
            raise Forbidden(403, "Forbidden", self._refuse(request))
        return self._inner.stream(request)

    async def close(self) -> None:
        """See `Transport`."""
        await self._inner.close()

    def _refuse(self, request: Request) -> str:
        self.refused_writes += 1
        text = f"this process only reads; {request.method} {request.path} was not sent"
        log.error("%s", text)
        return text
