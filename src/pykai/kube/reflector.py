"""List once, then follow the changes: what keeps a cache equal to the server.

`WatchDecoder` cuts the bytes of a watch into events and does no I/O.  `Follower` drives it: it lists, watches from the
list's resource version, resumes after every end from the last version it saw, and lists again when the server has
forgotten that version (410).  What flows out are calls to a `Sink`: `store.Store`.

Subtle:
- A connection can die without a word.  Servers send bookmarks about once a minute, so silence for longer than `idle_s`
  ends the watch from our side.
- A watch that ends is normal (servers end each after some minutes; we ask for a time drawn at random, so that clients
  do not come back all at once) and is resumed at once.  A watch that fails, or that ends at once without an event, is
  resumed after a pause that doubles up to 30 s.
- A list is the truth.  It is applied as a difference, so an object that vanished while nobody watched is reported as
  deleted.
- Events are in the order of their resource versions.  One that repeats what is known is dropped.  A bookmark that goes
  back, or an old version of something that is not known, means that the server's history is not ours (a restored
  backup, a replayed stream): list again.
- A client cannot notice an event that a server leaves out, so every kind is listed again once in a while (`resync_s`,
  docs/adr/0024), at a time drawn at random so that kinds and clients do not come together.

Statements: faults:watch, kube:410, kube:back-off, kube:half-open.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from pykai.kube.client import PAGE, Client, Page
from pykai.kube.errors import (
    ApiError,
    ConnectionLost,
    CredentialsError,
    Gone,
    KubeError,
    NotFound,
    Unauthorized,
    from_status,
)
from pykai.kube.resources import Resource

log = logging.getLogger(__name__)

#: a watch that ended sooner, without an event, is no success
_TOO_SHORT_S = 1.0
#: events taken before others get their turn
_AT_A_TIME = 64


class WatchEvent(NamedTuple):
    """`ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`, and the undecoded object."""

    type: str
    object: msgspec.Raw


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    class _Metadata(msgspec.Struct, rename="camel"):
        resource_version: str = ""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_LINES = msgspec.json.Decoder(_Line)
_BOOKMARKS = msgspec.json.Decoder(_Bookmark)


class WatchDecoder:
    """Bytes in, in pieces of any size; events out, one a line."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[WatchEvent]:
        """The events that are complete now; raises `ConnectionLost` for what is no event."""
        end = chunk.rfind(b"\n")
        if end < 0:
            self._pieces.append(chunk)
            return []
        if self._pieces:
            self._pieces.append(chunk[:end])
            complete = b"".join(self._pieces)
            self._pieces.clear()
        else:
            complete = chunk[:end]
        if end + 1 < len(chunk):
            self._pieces.append(chunk[end + 1 :])
        try:
            lines = [_LINES.decode(line) for line in complete.split(b"\n") if line and not line.isspace()]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConnectionLost(f"the watch brought something that is no event: {error}") from None
        return [WatchEvent(line.type, line.object) for line in lines]


class OutOfOrder(KubeError):
    """The watch brought history that is not ours; only a list can tell what is true."""


class Sink(Protocol):
    """Where a follower puts what it learns."""

    def begin_list(self) -> None:
        """A list begins (again); what it does not bring will be gone."""
        ...

    def listed(self, items: list[msgspec.Raw]) -> None:
        """Objects of the list."""
        ...

    def end_list(self, resource_version: str) -> None:
        """The list is complete."""
        ...

    def happened(self, event: WatchEvent) -> str:
        """Take an ADDED, MODIFIED or DELETED, and say from which resource version to resume.

        Raises `OutOfOrder` if it cannot belong to the history seen so far.
        """
        ...

    def bookmarked(self, resource_version: str) -> None:
        """Everything up to this version has been seen; raises `OutOfOrder` if it goes back."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a resource to follow."""

    resource: Resource
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    #: ask for the metadata of the objects alone, so that their content stays where it is
    metadata_only: bool = False


@dataclass(frozen=True, slots=True)
class Patience:
    """Wall times of a follower, in seconds."""

    #: silence after which a watch is taken for dead; bookmarks come about once a minute
    idle_s: float = 90.0
    #: a watch is asked to last between this and twice this
    watch_s: int = 300
    #: pause after the first failure, doubled with each further one
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    #: list again after so long, up to twice that, whatever the watch says; None: never
    resync_s: float | None = 1800.0


class _Silent(ConnectionLost):
    """A watch that the server had begun to answer, without a word since.

    The connection may be dead, or nothing may ever have happened to the kind: an API server sends no bookmarks then.
    """


class Follower:
    """Keeps one sink equal to what a server has."""

    def __init__(
        self,
        client: Client,
        selection: Selection,
        sink: Sink,
        *,
        optional: bool = False,
        patience: Patience | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._selection = selection
        self._sink = sink
        self.optional = optional
        self._patience = patience or Patience()
        self._pause = pause
        self._version = ""
        self._failures = 0
        self._brought = False
        #: whether the last word of the server was a 410
        self._outdated = False
        #: when to list again, seconds of the event loop
        self._resync_due_s = math.inf
        self._opened_s: float | None = None

    async def run(self) -> None:
        """Follow until cancelled; raises `Unauthorized` or `CredentialsError`, after which nothing can go on."""
        while True:
            try:
                await self._once()
            except (Unauthorized, CredentialsError):
                raise
            except (Gone, OutOfOrder) as reason:
                log.info("%s: listing again: %s", self._selection.resource.plural, reason)
                self._version = ""
                if isinstance(reason, Gone) and not self._outdated:
                    # The server answers: the failures before, while it was away, are over.
                    self._outdated, self._failures = True, 0
                # The first 410 costs nothing but a list; a server that keeps saying so is not to be hammered.
                await self._rest(reason, free=1 if isinstance(reason, Gone) else 0)
            except NotFound:
                self._version = ""
                if self.optional:
                    self._sink.begin_list()
                    self._sink.end_list("")
                    self._failures = max(self._failures, 6)
                await self._rest(_not_served(self._selection.resource), quiet=self.optional)
            except _Silent as silence:
                await self._rest(silence, free=1)
            except KubeError as failure:
                # One loss after a working watch is the network's everyday; the next one waits.
                await self._rest(failure, free=1 if isinstance(failure, ConnectionLost) and self._brought else 0)

    async def _once(self) -> None:
        """One list if needed, and one watch."""
        self._brought = False
        # A server that is away is not asked for lists.
        due = not self._failures and asyncio.get_running_loop().time() > self._resync_due_s
        if due or not self._version:
            await self._list()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            await self._watch()
        finally:
            if self._opened_s is not None and loop.time() - self._opened_s >= _TOO_SHORT_S:
                self._failures = 0
        if not self._brought and loop.time() - began_s < _TOO_SHORT_S:
            raise ConnectionLost("the watch ended at once")
        self._failures = 0

    async def _list(self) -> None:
        selection = self._selection
        version = ""
        page: Page
        async for page in self._client.pages(
            selection.resource,
            namespace=selection.namespace,
            label_selector=selection.label_selector,
            field_selector=selection.field_selector,
            metadata_only=selection.metadata_only,
        ):
            if page.first:
                self._sink.begin_list()
                version = page.resource_version
            for begin in range(0, len(page.items), PAGE):
                if begin:
                    # A list that was begun again comes in one piece, however many objects there are.
                    await asyncio.sleep(0)
                self._sink.listed(page.items[begin : begin + PAGE])
            if page.last:
                self._sink.end_list(version)
        self._version = version
        if self._patience.resync_s is not None:
            after_s = random.uniform(self._patience.resync_s, 2 * self._patience.resync_s)
            self._resync_due_s = asyncio.get_running_loop().time() + after_s

    async def _watch(self) -> None:
        selection, patience = self._selection, self._patience
        loop = asyncio.get_running_loop()
        decoder = WatchDecoder()
        self._opened_s = None
        # The server may be slow to begin an answer to a watch without news; the idle limit covers that, too.
        try:
            async with (
                asyncio.timeout(patience.idle_s) as limit,
                self._client.open_watch(
                    selection.resource,
                    resource_version=self._version,
                    timeout_s=random.randint(patience.watch_s, 2 * patience.watch_s),
                    namespace=selection.namespace,
                    label_selector=selection.label_selector,
                    field_selector=selection.field_selector,
                    metadata_only=selection.metadata_only,
                ) as stream,
            ):
                self._opened_s = loop.time()
                taken = 0
                async for chunk in stream.chunks():
                    limit.reschedule(loop.time() + patience.idle_s)
                    for event in decoder.feed(chunk):
                        self._take(event)
                        taken += 1
                        if taken % _AT_A_TIME == 0:
                            # A burst must not keep the loop from everybody else.
                            await asyncio.sleep(0)
                    if loop.time() > self._resync_due_s:
                        self._version = ""
                        return
        except TimeoutError:
            kind = ConnectionLost if self._opened_s is None else _Silent
            raise kind(f"nothing came for {patience.idle_s:g} s") from None

    def _take(self, event: WatchEvent) -> None:
        if event.type == "BOOKMARK":
            try:
                version = _BOOKMARKS.decode(event.object).metadata.resource_version
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ConnectionLost(f"unreadable bookmark: {error}") from None
            if version:
                self._sink.bookmarked(version)
        elif event.type == "ERROR":
            raise _error(event.object)
        else:
            version = self._sink.happened(event)
        if version:
            self._version = version
        self._brought = True
        self._outdated = False
        self._failures = 0

    async def _rest(self, failure: Exception, *, free: int = 0, quiet: bool = False) -> None:
        self._failures += 1
        patience = self._patience
        doublings = self._failures - 1 - free
        ceiling_s = 0.0
        if doublings >= 0:
            ceiling_s = min(patience.longest_pause_s, patience.first_pause_s * 2.0 ** min(doublings, 16))
        pause_s = random.uniform(ceiling_s / 2, ceiling_s)
        if isinstance(failure, ApiError) and failure.retry_after_s is not None:
            pause_s = max(pause_s, failure.retry_after_s)
        level = logging.DEBUG if quiet or not ceiling_s else logging.WARNING
        log.log(level, "%s: %s; trying again in %.1f s", self._selection.resource.plural, failure, pause_s)
        await self._pause(pause_s)


def _not_served(resource: Resource) -> NotFound:
    """404 for a whole kind comes without a reason that says anything."""
    text = f"the server does not serve {resource.api_version} (is its CustomResourceDefinition installed?)"
    return NotFound(404, "NotFound", text)


def _error(raw: msgspec.Raw) -> ApiError:
    try:
        status: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        status = None
    if not isinstance(status, dict):
        status = {}
    code = status.get("code")
    return from_status(code if isinstance(code, int) else 500, status)
