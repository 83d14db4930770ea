"""An API server of a hundred lines that does what a test tells it, good or bad.

It holds the objects of any number of resources, numbers every change, and serves get, list (paged), create, patch, put,
delete and watch through the `Transport` seam.  Tests change objects with `put` and `remove`, and spoil things with
`answer`, `lose`, `expire`, `drop_watches`, `say` and `mute`.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pykai.kube.errors import ConnectionLost
from pykai.kube.transport import Request, Response

Document = dict[str, Any]


def pod(name: str, namespace: str = "default", *, uid: str = "", node: str = "", **labels: str) -> Document:
    spec: Document = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "labels": labels},
        "spec": spec,
    }


def status(code: int, reason: str = "", message: str = "", *, retry_after_s: int | None = None) -> Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message or reason}
    headers = {"Retry-After": str(retry_after_s)} if retry_after_s is not None else {}
    return Response(code, json.dumps(body).encode(), headers)


class FakeStream:
    def __init__(self, code: int, first: list[bytes]) -> None:
        self.code = code
        self.headers: Mapping[str, str] = {}
        self.chunks_to_come: asyncio.Queue[bytes | ConnectionLost | None] = asyncio.Queue()
        for chunk in first:
            self.chunks_to_come.put_nowait(chunk)

    @property
    def status(self) -> int:
        return self.code

    async def chunks(self) -> AsyncIterator[bytes]:
        while (chunk := await self.chunks_to_come.get()) is not None:
            if isinstance(chunk, ConnectionLost):
                raise chunk
            yield chunk


class FakeServer:
    """A transport and the server behind it."""

    def __init__(self, first_version: int = 100) -> None:
        self.version = first_version
        self.objects: dict[str, Document] = {}
        self.history: list[tuple[int, str, str, bytes]] = []
        self.oldest = first_version
        self.requests: list[Request] = []
        self.watches: list[tuple[Request, FakeStream]] = []
        #: all open watches, including those that get no events
        self.streams: list[FakeStream] = []
        self._planned: deque[tuple[Callable[[Request], bool], Response | Exception]] = deque()
        self._arrived = asyncio.Event()

    def put(self, document: Document, path: str = "/api/v1/namespaces/default/pods") -> Document:
        """Store a new version and tell the watches."""
        place = f"{path}/{document['metadata']['name']}"
        kind = "MODIFIED" if place in self.objects else "ADDED"
        self.version += 1
        stored = {**document, "metadata": {**document["metadata"], "resourceVersion": str(self.version)}}
        self.objects[place] = stored
        self._happen(kind, path, stored)
        return stored

    def remove(self, name: str, path: str = "/api/v1/namespaces/default/pods") -> None:
        self.version += 1
        document = self.objects.pop(f"{path}/{name}")
        metadata = {**document["metadata"], "resourceVersion": str(self.version)}
        self._happen("DELETED", path, {**document, "metadata": metadata})

    def answer(self, answer: Response | Exception, *, times: int = 1, to: str = "", watch: bool | None = None) -> None:
        """Answer the next requests (of this method, or all) with this instead."""

        def fits(request: Request) -> bool:
            if watch is not None and ("watch" in request.query) != watch:
                return False
            return not to or request.method == to

        for _ in range(times):
            self._planned.append((fits, answer))

    def lose(self, *, times: int = 1, to: str = "", watch: bool | None = None) -> None:
        """Leave the next requests without an answer."""
        self.answer(ConnectionLost("the line is dead"), times=times, to=to, watch=watch)

    def expire(self) -> None:
        """Forget all history: a watch from before is too old."""
        self.version += 1
        self.oldest = self.version

    def drop_watches(self) -> None:
        for stream in self.streams:
            stream.chunks_to_come.put_nowait(ConnectionLost("reset by peer"))
        self.watches.clear()

    def end_watches(self) -> None:
        for _, stream in self.watches:
            stream.chunks_to_come.put_nowait(None)
        self.watches.clear()

    def say(self, *lines: bytes | Document) -> None:
        """Send this to every watch, whatever it is."""
        for line in lines:
            chunk = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            for _, stream in self.watches:
                stream.chunks_to_come.put_nowait(chunk)

    def bookmark(self, version: int | None = None) -> None:
        metadata = {"resourceVersion": str(version or self.version)}
        self.say({"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}})

    def mute(self) -> None:
        """Keep every connection open and say nothing more on those that are."""
        self.watches.clear()

    async def asked(self, holds: Callable[[list[Request]], bool]) -> None:
        """Wait until the requests so far are such that this holds."""
        async with asyncio.timeout(5):
            while not holds(self.requests):
                self._arrived.clear()
                await self._arrived.wait()

    async def watched(self, times: int = 1) -> None:
        """Wait until so many watches have been opened in all."""
        await self.asked(lambda requests: sum("watch" in request.query for request in requests) >= times)

    def lists(self) -> int:
        return sum(request.method == "GET" and "watch" not in request.query for request in self.requests)

    async def send(self, request: Request) -> Response:
        self._note(request)
        planned = self._next(request)
        if isinstance(planned, Exception):
            raise planned
        return planned if planned is not None else self._serve(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[FakeStream]:
        self._note(request)
        planned = self._next(request)
        if isinstance(planned, Exception):
            raise planned
        since = int(request.query["resourceVersion"])
        if planned is None and since < self.oldest:
            planned = status(410, "Expired", f"too old resource version: {since}")
        if planned is not None:
            stream = FakeStream(planned.status, [planned.body])
            stream.headers = planned.headers
            stream.chunks_to_come.put_nowait(None)
            yield stream
            return
        first = [line for version, path, _, line in self.history if version > since and _below(path, request.path)]
        stream = FakeStream(200, first)
        entry = (request, stream)
        self.watches.append(entry)
        self.streams.append(stream)
        try:
            yield stream
        finally:
            self.streams.remove(stream)
            if entry in self.watches:
                self.watches.remove(entry)

    async def close(self) -> None:
        self.end_watches()

    def _note(self, request: Request) -> None:
        self.requests.append(request)
        self._arrived.set()

    def _next(self, request: Request) -> Response | Exception | None:
        for at, (fits, answer) in enumerate(self._planned):
            if fits(request):
                del self._planned[at]
                return answer
        return None

    def _happen(self, kind: str, path: str, document: Document) -> None:
        line = json.dumps({"type": kind, "object": document}).encode() + b"\n"
        self.history.append((self.version, path, kind, line))
        for request, stream in self.watches:
            if _below(path, request.path):
                stream.chunks_to_come.put_nowait(line)

    def _serve(self, request: Request) -> Response:
        body = json.loads(request.body) if request.body else {}
        if request.method == "GET" and request.path in self.objects:
            return _ok(self.objects[request.path])
        if request.method == "GET" and request.path.rsplit("/", 1)[-1] in _PLURALS:
            return self._list(request)
        if request.method == "POST" and request.path.endswith(("/binding", "/eviction")):
            return _ok({"kind": "Status", "status": "Success"}, 201)
        if request.method == "POST":
            if f"{request.path}/{body['metadata']['name']}" in self.objects:
                return status(409, "AlreadyExists", "exists")
            return _ok(self.put(body, request.path), 201)
        path, _, name = request.path.rpartition("/")
        known = self.objects.get(request.path)
        if known is None:
            return status(404, "NotFound", f"{name} not found")
        if request.method == "DELETE":
            self.remove(name, path)
            return _ok({"kind": "Status", "status": "Success"})
        if request.method == "PUT":
            if body["metadata"].get("resourceVersion") != known["metadata"]["resourceVersion"]:
                return status(409, "Conflict", "changed in the meantime")
            return _ok(self.put(body, path))
        return _ok(self.put(_merged(known, body), path))

    def _list(self, request: Request) -> Response:
        found = [self.objects[path] for path in sorted(self.objects) if _below(path.rpartition("/")[0], request.path)]
        begin = int(request.query.get("continue", "0"))
        limit = int(request.query.get("limit", "0")) or len(found)
        metadata = {"resourceVersion": str(self.version)}
        if begin + limit < len(found):
            metadata["continue"] = str(begin + limit)
        items = [{key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in found]
        return _ok({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items[begin : begin + limit]})


_PLURALS = ("pods", "nodes", "events", "leases", "configmaps", "version", "widgets")


def _ok(document: Document, code: int = 200) -> Response:
    return Response(code, json.dumps(document).encode())


def _below(path: str, asked: str) -> bool:
    """Whether objects at `path` are among those of `asked`, which may stand for all namespaces."""
    return path == asked or (path.rpartition("/")[2] == asked.rpartition("/")[2] and "/namespaces/" not in asked)


def _merged(old: Document, patch: Document) -> Document:
    merged = dict(old)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            below = merged.get(key)
            merged[key] = _merged(below if isinstance(below, dict) else {}, value)
        else:
            merged[key] = value
    return merged
