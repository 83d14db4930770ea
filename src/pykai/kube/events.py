"""Kubernetes Events: what people read with `kubectl describe`.

`Recorder.event` returns at once.  Equal events about one object within ten minutes are one Event object whose count
grows; growth is written with a delay, so that a flood of repetitions becomes a write every few seconds.  One object may
cause 25 events in a burst and one more every five minutes; the rest is dropped, as is everything beyond what the queue
holds.  Events are worth having but never worth waiting for: what the server refuses is logged and forgotten, namespaces
take turns so that one whose events hang delays no other, and at the end what waits has a few seconds.

Subtle: timestamps and the ten minutes are cluster time; the delay before a write is wall time, because it spares the
server.

Statements: kube:events.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import socket
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import AlreadyExists, KubeError, NotFound
from pykai.kube.resources import EVENTS
from pykai.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

NORMAL = "Normal"
WARNING = "Warning"

#: cluster seconds within which equal events are one
_SAME_S = 600.0
#: events of one object: at once, and cluster seconds for one more
_BURST = 25
_REFILL_S = 300.0
#: objects and events that are remembered
_REMEMBERED = 4096
#: events that may wait to be written
_WAITING = 10_000
#: wall seconds before a growing count is written
_GROWTH_S = 2.0
#: wall seconds for what waits at the end
_FLUSH_S = 5.0
#: few, so that under load events come after what they tell of
_WRITERS = 3
_LONGEST_MESSAGE = 1024
_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class _Key(NamedTuple):
    about: Reference
    type: str
    reason: str
    message: str


@dataclass(slots=True)
class _Entry:
    """One Event object, as it should be and as it was written."""

    key: _Key
    #: `namespace/number`, its own in the line
    place: str
    name: str
    first: datetime
    last: datetime
    last_s: float
    count: int
    annotations: dict[str, str]
    written: int = 0


@dataclass(slots=True)
class _Allowance:
    tokens: float
    at_s: float


class Recorder:
    """Writes events in the name of one component."""

    def __init__(self, client: Client, *, component: str, clock: Clock, growth_s: float = _GROWTH_S) -> None:
        self.component = component
        #: events that were dropped because too many waited or one object caused too many
        self.dropped = 0
        self._client = client
        self._clock = clock
        self._growth_s = growth_s
        self._instance = socket.gethostname()
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._allowances: OrderedDict[Reference, _Allowance] = OrderedDict()
        #: by place: entries that stand in the line to be written, and those whose count has grown since
        self._due: dict[str, _Entry] = {}
        self._grown: dict[str, _Entry] = {}
        self._line = WorkQueue()
        self._numbers = itertools.count()
        self._some_due = asyncio.Event()
        self._some_grown = asyncio.Event()

    def event(
        self,
        about: Reference,
        type_: str,
        reason: str,
        message: str,
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Say that something happened to an object; `type_` is Normal or Warning."""
        if len(message) > _LONGEST_MESSAGE:
            message = message[: _LONGEST_MESSAGE - 1] + "…"
        key = _Key(about, type_, reason, message)
        now_s = self._clock.elapsed_s()
        entry = self._entries.get(key)
        if entry is not None and now_s - entry.last_s < _SAME_S:
            entry.count += 1
            entry.last, entry.last_s = self._clock.now(), now_s
            entry.annotations.update(annotations or {})
            self._entries.move_to_end(key)
            if entry.place not in self._due:
                self._grown[entry.place] = entry
                self._some_grown.set()
            return
        if len(self._due) >= _WAITING or not self._allowed(about, now_s):
            self.dropped += 1
            if self.dropped == 1 or self.dropped % 1000 == 0:
                log.warning("%d events dropped so far; the last: %s %s", self.dropped, reason, about.name)
            return
        if entry is not None:
            self._grown.pop(entry.place, None)
        now = self._clock.now()
        place = f"{_namespace(about)}/{next(self._numbers)}"
        entry = _Entry(key, place, _name(about), now, now, now_s, 1, dict(annotations or {}))
        self._entries[key] = entry
        self._entries.move_to_end(key)
        self._forget(now_s)
        self._stand_in_line(entry)

    def _stand_in_line(self, entry: _Entry) -> None:
        self._due[entry.place] = entry
        self._line.add(entry.place)
        self._some_due.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Write events until told to stop, then what still waits."""
        writing = [asyncio.ensure_future(self._write_due()) for _ in range(_WRITERS)]
        writing.append(asyncio.ensure_future(self._hurry_grown()))
        try:
            await stop.wait()
        finally:
            for task in writing:
                task.cancel()
            await asyncio.gather(*writing, return_exceptions=True)
        await self.flush()

    async def _write_due(self) -> None:
        while True:
            place = self._line.take(_WRITERS - self._line.working)
            if place is not None:
                await self._write(place)
            else:
                self._some_due.clear()
                await self._some_due.wait()

    async def _hurry_grown(self) -> None:
        while True:
            await self._some_grown.wait()
            await asyncio.sleep(self._growth_s)
            self._some_grown.clear()
            self._hurry()

    def _hurry(self) -> None:
        """Let everything that has grown stand in the line."""
        grown, self._grown = self._grown, {}
        for entry in grown.values():
            self._stand_in_line(entry)

    async def flush(self) -> None:
        """Write everything that waits, now; what takes too long is left."""

        async def writer() -> None:
            while (place := self._line.take()) is not None:
                await self._write(place)

        self._hurry()
        try:
            async with asyncio.timeout(_FLUSH_S):
                await asyncio.gather(*(writer() for _ in range(_WRITERS)))
        except TimeoutError:
            log.warning("%d events were not written in time", len(self._due))

    async def _write(self, place: str) -> None:
        entry = self._due.pop(place)
        key = entry.key
        try:
            await self._write_one(entry)
        except asyncio.CancelledError:
            # Told to stop in the middle of it; `flush` tries again.
            self._stand_in_line(entry)
            raise
        except KubeError as error:
            log.debug("event %s about %s was not written: %s", key.reason, key.about.name, error)
        except Exception:
            # A mistake of ours costs this event, never those to come.
            log.exception("event %s about %s was not written", key.reason, key.about.name)
        finally:
            self._line.done(place)
            # Another of its namespace may go now.
            self._some_due.set()

    async def _write_one(self, entry: _Entry) -> None:
        count = entry.count
        if count == entry.written:
            return
        namespace = _namespace(entry.key.about)
        if entry.written:
            patch = {"count": count, "lastTimestamp": _seconds(entry.last), "metadata": _noted(entry)}
            try:
                await self._client.patch(EVENTS, entry.name, patch, namespace, brief=True)
            except NotFound:
                # Events expire; this one happens still.
                entry.name = _name(entry.key.about)
                await self._client.create(EVENTS, self._document(entry, namespace), namespace, brief=True)
        else:
            # Names are drawn at random: one that exists is ours, from a write whose answer never came.
            with suppress(AlreadyExists):
                await self._client.create(EVENTS, self._document(entry, namespace), namespace, brief=True)
        entry.written = count

    def _document(self, entry: _Entry, namespace: str) -> dict[str, Any]:
        about, type_, reason, message = entry.key
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": entry.name, "namespace": namespace, **_noted(entry)},
            "involvedObject": {
                key: value
                for key, value in (
                    ("apiVersion", about.api_version),
                    ("kind", about.kind),
                    ("namespace", about.namespace),
                    ("name", about.name),
                    ("uid", about.uid),
                )
                if value
            },
            "reason": reason,
            "message": message,
            "type": type_,
            "count": entry.count,
            "firstTimestamp": _seconds(entry.first),
            "lastTimestamp": _seconds(entry.last),
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": self._instance,
        }

    def _forget(self, now_s: float) -> None:
        """Let go of events that will not be counted up any more, and of the oldest of too many."""
        while len(self._entries) > _REMEMBERED or next(iter(self._entries.values())).last_s <= now_s - _SAME_S:
            self._entries.popitem(last=False)

    def _allowed(self, about: Reference, now_s: float) -> bool:
        allowance = self._allowances.get(about)
        if allowance is None:
            allowance = self._allowances[about] = _Allowance(float(_BURST), now_s)
            if len(self._allowances) > _REMEMBERED:
                self._allowances.popitem(last=False)
        else:
            self._allowances.move_to_end(about)
        allowance.tokens = min(float(_BURST), allowance.tokens + (now_s - allowance.at_s) / _REFILL_S)
        allowance.at_s = now_s
        if allowance.tokens < 1:
            return False
        allowance.tokens -= 1
        return True


def _namespace(about: Reference) -> str:
    """Where the events about an object are."""
    return about.namespace or "default"


def _name(about: Reference) -> str:
    """`<object>.<sixteen hex digits>`, as other components name their events."""
    return f"{about.name[: _LONGEST_NAME - 17].rstrip('.-')}.{secrets.token_hex(8)}"


def _noted(entry: _Entry) -> dict[str, Any]:
    return {"annotations": dict(entry.annotations)} if entry.annotations else {}


def _seconds(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
