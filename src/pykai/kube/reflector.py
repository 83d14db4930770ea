"""Lists a kind once, then follows its changes: keeps a cache equal to the server.

`WatchDecoder` cuts the bytes of a watch into events and does no I/O.  `Reflector` drives it: it lists, watches from the
list's resource version, resumes after every end from the last version it saw, and lists again when the server has
forgotten that version (410).  It calls a `ReflectorStore`, such as `store.Store`.

Subtle:
- A connection can die silently.  Servers send bookmarks about once a minute, so a watch that is silent for longer than
  `idle_s` is ended.
- Servers end every watch after some minutes (we ask for a random time, so that clients do not come back all at once);
  it is resumed at once.  A watch that fails, or that ends at once without an event, is resumed after a delay that
  doubles up to 30 s.
- A list is authoritative.  It is applied as a difference, so an object that vanished between watches is reported as
  deleted.
- Events arrive in the order of their resource versions; repetitions are dropped.  A bookmark that goes back, or an old
  version of an unknown object, means that the server's history has changed (a restored backup, a replayed stream):
  list again.
- A client cannot notice an event that a server leaves out, so every kind is listed again once in a while (`resync_s`,
  docs/adr/0024), at a random time so that kinds and clients do not relist together.

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

from pykai.kube.backoff import Backoff
from pykai.kube.client import PAGE_SIZE, Client, ListPage
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

#: a watch that ends sooner, without an event, counts as a failure
_TOO_SHORT_S = 1.0
#: events handled before yielding to the event loop
_YIELD_EVERY = 64


class WatchEvent(NamedTuple):
    """`ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`, and the undecoded object."""

    type: str
    object: msgspec.Raw


class _WatchLine(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    class _BookmarkMetadata(msgspec.Struct, rename="camel"):
        resource_version: str = ""

    metadata: _BookmarkMetadata = msgspec.field(default_factory=_BookmarkMetadata)


_LINE_DECODER = msgspec.json.Decoder(_WatchLine)
_BOOKMARK_DECODER = msgspec.json.Decoder(_Bookmark)


class WatchDecoder:
    """Bytes in, in pieces of any size; events out, one a line."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[WatchEvent]:
        """The complete events so far; raises `ConnectionLost` for malformed input."""
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
            lines = [_LINE_DECODER.decode(line) for line in complete.split(b"\n") if line and not line.isspace()]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConnectionLost(f"the watch sent something that is not an event: {error}") from None
        return [WatchEvent(line.type, line.object) for line in lines]


class OutOfOrder(KubeError):
    """The watch contradicts what was seen before; only a list can resolve it."""


class ReflectorStore(Protocol):
    """Receives lists and events."""

    def begin_list(self) -> None:
        """A list begins (again); objects that it does not bring are deleted."""
        ...

    def add_listed(self, items: list[msgspec.Raw]) -> None:
        """Objects of the list."""
        ...

    def end_list(self, resource_version: str) -> None:
        """The list is complete."""
        ...

    def apply_event(self, event: WatchEvent) -> str:
        """Take an ADDED, MODIFIED or DELETED, and say from which resource version to resume.

        Raises `OutOfOrder` if it cannot belong to the history seen so far.
        """
        ...

    def apply_bookmark(self, resource_version: str) -> None:
        """Everything up to this version has been seen; raises `OutOfOrder` if it goes back."""
        ...


@dataclass(frozen=True, slots=True)
class WatchSelection:
    """Which objects of a resource to follow."""

    resource: Resource
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    #: request only metadata, so that content never leaves the server
    metadata_only: bool = False


@dataclass(frozen=True, slots=True)
class WatchTimeouts:
    """Wall times of a follower, in seconds."""

    #: silence after which a watch is taken for dead; bookmarks come about once a minute
    idle_s: float = 90.0
    #: a watch is requested to last between this and twice this
    watch_s: int = 300
    #: pause after the first failure, doubled with each further one
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    #: list again after so long, up to twice that, whatever the watch says; None: never
    resync_s: float | None = 1800.0


class _WatchIdle(ConnectionLost):
    """A watch that went silent after the server began to answer.

    The connection may be dead, or nothing has ever happened to the kind: an API server then sends no bookmarks.
    """


class Reflector:
    """Keeps one sink equal to what a server has."""

    def __init__(
        self,
        client: Client,
        selection: WatchSelection,
        store: ReflectorStore,
        *,
        optional: bool = False,
        absent_pause_s: float | None = None,
        timeouts: WatchTimeouts | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._selection = selection
        self._store = store
        self.optional = optional
        self._absent_pause_s = absent_pause_s
        self._timeouts = timeouts or WatchTimeouts()
        self._sleep = sleep
        self._resource_version = ""
        self._failures = 0
        self._received_event = False
        #: whether the server's last answer was 410
        self._last_was_gone = False
        #: when to list again, seconds of the event loop
        self._resync_due_s = math.inf
        self._opened_s: float | None = None

    async def run(self) -> None:
        """Follow until cancelled; raises `Unauthorized` or `CredentialsError`, which cannot be retried."""
        while True:
            try:
                await self._list_and_watch()
            except (Unauthorized, CredentialsError):
                raise
            except (Gone, OutOfOrder) as reason:
                log.info("%s: listing again: %s", self._selection.resource.plural, reason)
                self._resource_version = ""
                if isinstance(reason, Gone) and not self._last_was_gone:
                    # The server answers again: earlier failures no longer count.
                    self._last_was_gone, self._failures = True, 0
                # The first 410 costs only a list; repeated ones back off.
                await self._back_off(reason, free_failures=1 if isinstance(reason, Gone) else 0)
            except NotFound:
                self._resource_version = ""
                if self.optional:
                    self._store.begin_list()
                    self._store.end_list("")
                    self._failures = max(self._failures, 6)
                await self._back_off(
                    _not_served(self._selection.resource), quiet=self.optional, least_s=self._absent_pause_s or 0.0
                )
            except _WatchIdle as silence:
                await self._back_off(silence, free_failures=1)
            except KubeError as failure:
                # One lost connection after a working watch is normal; the next one backs off.
                await self._back_off(
                    failure, free_failures=1 if isinstance(failure, ConnectionLost) and self._received_event else 0
                )

    async def _list_and_watch(self) -> None:
        """One list if needed, and one watch."""
        self._received_event = False
        # Do not list from a server that is down.
        due = not self._failures and asyncio.get_running_loop().time() > self._resync_due_s
        if due or not self._resource_version:
            await self._list()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            await self._watch()
        finally:
            if self._opened_s is not None and loop.time() - self._opened_s >= _TOO_SHORT_S:
                self._failures = 0
        if not self._received_event and loop.time() - began_s < _TOO_SHORT_S:
            raise ConnectionLost("the watch ended at once")
        self._failures = 0

    async def _list(self) -> None:
        selection = self._selection
        version = ""
        page: ListPage
        async for page in self._client.pages(
            selection.resource,
            namespace=selection.namespace,
            label_selector=selection.label_selector,
            field_selector=selection.field_selector,
            metadata_only=selection.metadata_only,
        ):
            if page.first:
                self._store.begin_list()
                version = page.resource_version
            for begin in range(0, len(page.items), PAGE_SIZE):
                if begin:
                    # A list that was begun again comes in one piece, however many objects there are.
                    await asyncio.sleep(0)
                self._store.add_listed(page.items[begin : begin + PAGE_SIZE])
            if page.last:
                self._store.end_list(version)
        self._resource_version = version
        if self._timeouts.resync_s is not None:
            after_s = random.uniform(self._timeouts.resync_s, 2 * self._timeouts.resync_s)
            self._resync_due_s = asyncio.get_running_loop().time() + after_s

    async def _watch(self) -> None:
        selection, timeouts = self._selection, self._timeouts
        loop = asyncio.get_running_loop()
        decoder = WatchDecoder()
        self._opened_s = None
        # The server may be slow to begin an answer to a watch without news; the idle limit covers that, too.
        try:
            async with (
                asyncio.timeout(timeouts.idle_s) as limit,
                self._client.open_watch(
                    selection.resource,
                    resource_version=self._resource_version,
                    timeout_s=random.randint(timeouts.watch_s, 2 * timeouts.watch_s),
                    namespace=selection.namespace,
                    label_selector=selection.label_selector,
                    field_selector=selection.field_selector,
                    metadata_only=selection.metadata_only,
                ) as stream,
            ):
                self._opened_s = loop.time()
                handled = 0
                async for chunk in stream.chunks():
                    limit.reschedule(loop.time() + timeouts.idle_s)
                    for event in decoder.feed(chunk):
                        self._handle_event(event)
                        handled += 1
                        if handled % _YIELD_EVERY == 0:
                            # A burst must not starve the event loop.
                            await asyncio.sleep(0)
                    if loop.time() > self._resync_due_s:
                        self._resource_version = ""
                        return
        except TimeoutError:
            kind = ConnectionLost if self._opened_s is None else _WatchIdle
            raise kind(f"nothing came for {timeouts.idle_s:g} s") from None

    def _handle_event(self, event: WatchEvent) -> None:
        if event.type == "BOOKMARK":
            try:
                version = _BOOKMARK_DECODER.decode(event.object).metadata.resource_version
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ConnectionLost(f"unreadable bookmark: {error}") from None
            if version:
                self._store.apply_bookmark(version)
        elif event.type == "ERROR":
            raise _watch_error(event.object)
        else:
            version = self._store.apply_event(event)
        if version:
            self._resource_version = version
        self._received_event = True
        self._last_was_gone = False
        self._failures = 0

    async def _back_off(
        self, failure: Exception, *, free_failures: int = 0, quiet: bool = False, least_s: float = 0.0
    ) -> None:
        self._failures += 1
        timeouts = self._timeouts
        ceiling_s = Backoff(timeouts.first_pause_s, timeouts.longest_pause_s).delay_s(self._failures - free_failures)
        pause_s = least_s + random.uniform(ceiling_s / 2, ceiling_s)
        if isinstance(failure, ApiError) and failure.retry_after_s is not None:
            pause_s = max(pause_s, failure.retry_after_s)
        level = logging.DEBUG if quiet or not ceiling_s else logging.WARNING
        log.log(level, "%s: %s; retrying in %.1f s", self._selection.resource.plural, failure, pause_s)
        await self._sleep(pause_s)


def _not_served(resource: Resource) -> NotFound:
    """404 for a whole kind comes without a useful reason."""
    text = f"the server does not serve {resource.api_version} (is its CustomResourceDefinition installed?)"
    return NotFound(404, "NotFound", text)


def _watch_error(raw: msgspec.Raw) -> ApiError:
    try:
        status: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        status = None
    if not isinstance(status, dict):
        status = {}
    code = status.get("code")
    return from_status(code if isinstance(code, int) else 500, status)
