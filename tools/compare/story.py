"""The API writes of our services while the story of `tests/faults` runs on the embedded server, in fake time.

`recorded(tell)` gives them in order: service account, method, path, query and body. `normalised` replaces names that
differ between runs: uids, random suffixes of names and lease times say nothing about decisions.

What would make two runs differ is replaced while the story runs:

- The scheduler rests for as long as its last cycle took; `time.perf_counter` stands still.
- Identities of processes and endings of pod names come from `os.urandom`; it gives the same byte every time.  Names of
  ConfigMaps are drawn by `secrets.choice`; it draws from a seed.
- Sets of futures are walked in the order of their hashes, which are addresses; all hashes are equal, so a set is walked
  in the order in which it was filled.
- Uids come from `random`, and equal pods are ordered by uid.  Drawn uids grow, so pods keep their order even if
  services create other objects in between.

This module imports nothing of PyKAI: it runs with any version's story and transports.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import secrets
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, NamedTuple

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ENDING = re.compile(r"^(.+)-[bcdfghjklmnpqrstvwxz2456789]{5}$")
_EVENT_NAME = re.compile(r"\.[0-9a-f]{16}\b")
_FRACTION = re.compile(r"(\d\d:\d\d:\d\d)\.\d+Z")
#: fields of leases that tell the time of the machine and the process
_OF_LEASES = ("acquireTime", "renewTime", "holderIdentity")


class Write(NamedTuple):
    """One request that changes something."""

    account: str
    method: str
    path: str
    query: dict[str, str]
    body: Any


class _Wire:
    """A transport that keeps what is written through it, and learns the names of what is read."""

    def __init__(self, inner: Any, account: str, writes: list[Write], seen: list[Any]) -> None:
        self._inner, self._account, self._writes, self._seen = inner, account, writes, seen

    async def send(self, request: Any) -> Any:
        if request.method != "GET":
            body = json.loads(request.body) if request.body else None
            self._writes.append(Write(self._account, request.method, request.path, dict(request.query), body))
        answer = await self._inner.send(request)
        self._learn(answer.body)
        return answer

    def stream(self, request: Any) -> AbstractAsyncContextManager[Any]:
        return self._opened(request)

    @asynccontextmanager
    async def _opened(self, request: Any) -> AsyncIterator[Any]:
        async with self._inner.stream(request) as stream:
            yield _Stream(stream, self._learn)

    async def close(self) -> None:
        await self._inner.close()

    def _learn(self, text: bytes) -> None:
        for line in text.splitlines():
            try:
                self._seen.append(json.loads(line))
            except ValueError:
                continue


class _Stream:
    def __init__(self, inner: Any, learn: Callable[[bytes], None]) -> None:
        self.status, self.headers = inner.status, inner.headers
        self._inner, self._learn = inner, learn

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            self._learn(chunk)
            yield chunk


class _Future(asyncio.Future):  # type: ignore[type-arg]
    """A future whose place in a set does not depend on its address."""

    def __hash__(self) -> int:
        return 0


class _Task(asyncio.Task):  # type: ignore[type-arg]
    """The same for a task."""

    def __hash__(self) -> int:
        return 0


def _future(loop: asyncio.AbstractEventLoop) -> _Future:
    return _Future(loop=loop)


def _task(loop: asyncio.AbstractEventLoop, work: Any, *, name: str | None = None, context: Any = None) -> _Task:
    return _Task(work, loop=loop, name=name, context=context)


@contextmanager
def steady() -> Iterator[None]:
    """Nothing that differs from run to run; PyKAI is to be imported inside, too."""
    before = time.perf_counter, os.urandom, random.getrandbits
    choice, loops = secrets.choice, asyncio.BaseEventLoop
    made = loops.create_future, loops.create_task
    letters = random.Random(1)
    numbers = itertools.count(1)

    def growing(bits: int) -> int:
        return (next(numbers) << 88) | 0x5EED if bits == 128 else before[2](bits)

    time.perf_counter = lambda: 0.0
    os.urandom = lambda size: b"\x2a" * size
    random.getrandbits = growing
    secrets.choice = letters.choice
    loops.create_future, loops.create_task = _future, _task  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        secrets.choice = choice
        loops.create_future, loops.create_task = made  # type: ignore[method-assign]
        time.perf_counter, os.urandom, random.getrandbits = before


def recorded(tell: Callable[..., Any]) -> tuple[list[Write], list[Any], Any]:
    """The writes of our services in a story, all documents they have read, and what `tell` returned."""
    writes: list[Write] = []
    seen: list[Any] = []
    wires = itertools.count(1)

    def wrap(transport: Any) -> _Wire:
        # The story makes one transport for each service, in the order of its table.
        return _Wire(transport, f"service {next(wires)}", writes, seen)

    with steady():
        told = tell(wrap=wrap)
    return writes, seen, told


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    """Everything in an answer that has a name and a uid."""
    if isinstance(document, dict):
        meta = document.get("metadata")
        if isinstance(meta, dict) and meta.get("uid") and meta.get("name"):
            yield document
        for key in ("object", "items"):
            inner = document.get(key)
            for each in inner if isinstance(inner, list) else (inner,):
                yield from _objects(each)


def aliases(seen: list[Any]) -> dict[str, str]:
    """Random text -> its alias: names by base and order of appearance, uids by the name of their object."""
    found: dict[str, str] = {}
    counts: dict[str, int] = defaultdict(int)
    for document in seen:
        for item in _objects(document):
            meta = item["metadata"]
            name, uid = str(meta["name"]), str(meta["uid"])
            drawn = _ENDING.match(name)
            if drawn and name not in found:
                base = drawn[1]
                counts[base] += 1
                found[name] = f"{base}-#{counts[base]}"
            if uid not in found:
                # A list leaves the kind of its items out.
                labels = meta.get("labels") or {}
                where = f"{meta.get('namespace', '')}/{found.get(name, name)}"
                counts[where] += 1
                found[uid] = f"<uid {counts[where]} of {labels.get('app', '')}{where}>"
    return found


def normalised(writes: list[Write], seen: list[Any]) -> dict[str, list[dict[str, Any]]]:
    """Object -> what was written to it, in order, under names that are the same in every run."""
    known = aliases(seen)
    pattern = re.compile("|".join(re.escape(each) for each in sorted(known, key=len, reverse=True)) or r"(?!)")

    def text(value: str) -> str:
        # Names hold uids, and aliases of uids hold names: twice is enough.
        for _ in range(2):
            value = pattern.sub(lambda match: known[match[0]], value)
        return _FRACTION.sub(r"\1Z", _EVENT_NAME.sub(".#", value))

    def plain(value: Any) -> Any:
        if isinstance(value, str):
            return text(value)
        if isinstance(value, list):
            return [plain(each) for each in value]
        if isinstance(value, dict):
            return {
                text(key): "*" if key in _OF_LEASES or key == "resourceVersion" else plain(each)
                for key, each in value.items()
            }
        return value

    listed: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for write in writes:
        if "/leases" in write.path and write.method != "POST":
            # How often a lease is renewed depends on nothing but the time.
            continue
        body = plain(write.body)
        path = text(write.path)
        name = body.get("metadata", {}).get("name", "") if write.method == "POST" and isinstance(body, dict) else ""
        subject = path if not name or name in path else f"{path}/{name}"
        if isinstance(body, dict) and body.get("kind") == "Event":
            subject = f"{subject} {body.get('reason')}"
        subject = re.sub(r"/(status|binding|eviction|scale)$", "", subject)
        entry = {"by": write.account, "method": write.method, "path": path, "query": plain(write.query), "body": body}
        listed[subject].append(entry)
    left: dict[str, str] = {}

    def rest(match: re.Match[str]) -> str:
        return left.setdefault(match[0], f"<uuid {len(left) + 1}>")

    flat = _UUID.sub(rest, json.dumps(listed, sort_keys=True))
    result: dict[str, list[dict[str, Any]]] = json.loads(flat)
    return result
