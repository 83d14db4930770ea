"""Kubernetes Events: what people read with `kubectl describe`.

`EventRecorder.event` returns at once.  Equal events about one object within ten minutes are one Event object whose
count grows; growth is written with a delay, so that a flood of repetitions becomes a write every few seconds.  One
object may cause 25 events in a burst and one more every five minutes; the rest is dropped, as is everything beyond what
the queue holds.  Nothing waits for events: a refused event is logged and dropped, namespaces take turns so that one
whose events hang delays no other, and pending events get a few seconds at the end.

Subtle: timestamps and the ten minutes are cluster time; the delay before a write is wall time, because it protects the
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
_AGGREGATION_WINDOW_S = 600.0
#: events of one object: at once, and cluster seconds for one more
_BURST = 25
_REFILL_S = 300.0
#: objects and events that are remembered
_MAX_REMEMBERED = 4096
#: events that may wait to be written
_MAX_QUEUED = 10_000
#: wall seconds before a growing count is written
_COUNT_DELAY_S = 2.0
#: wall seconds for what waits at the end
_FLUSH_S = 5.0
#: few, so that under load events do not compete with the writes they describe
_WRITERS = 3
_MAX_MESSAGE_LENGTH = 1024
_MAX_NAME_LENGTH = 253


@dataclass(frozen=True, slots=True)
class InvolvedObject:
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class _EventKey(NamedTuple):
    about: InvolvedObject
    type: str
    reason: str
    message: str


@dataclass(slots=True)
class _EventEntry:
    """One Event object, as it should be and as it was written."""

    key: _EventKey
    #: `namespace/number`, unique in the queue
    queue_key: str
    name: str
    first: datetime
    last: datetime
    last_s: float
    count: int
    annotations: dict[str, str]
    written: int = 0


@dataclass(slots=True)
class _EventAllowance:
    tokens: float
    at_s: float


class EventRecorder:
    """Writes events in the name of one component."""

    def __init__(self, client: Client, *, component: str, clock: Clock, count_delay_s: float = _COUNT_DELAY_S) -> None:
        self.component = component
        #: events that were dropped because too many waited or one object caused too many
        self.dropped = 0
        self._client = client
        self._clock = clock
        self._count_delay_s = count_delay_s
        self._instance = socket.gethostname()
        self._entries: OrderedDict[_EventKey, _EventEntry] = OrderedDict()
        self._allowances: OrderedDict[InvolvedObject, _EventAllowance] = OrderedDict()
        #: by queue key: entries that wait to be written, and those whose count has grown since
        self._queued: dict[str, _EventEntry] = {}
        self._recounted: dict[str, _EventEntry] = {}
        self._queue = WorkQueue()
        self._queue_numbers = itertools.count()
        self._has_queued = asyncio.Event()
        self._has_recounted = asyncio.Event()

    def event(
        self,
        about: InvolvedObject,
        type_: str,
        reason: str,
        message: str,
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Record an event about an object; `type_` is Normal or Warning."""
        if len(message) > _MAX_MESSAGE_LENGTH:
            message = message[: _MAX_MESSAGE_LENGTH - 1] + "…"
        key = _EventKey(about, type_, reason, message)
        now_s = self._clock.elapsed_s()
        entry = self._entries.get(key)
        if entry is not None and now_s - entry.last_s < _AGGREGATION_WINDOW_S:
            entry.count += 1
            entry.last, entry.last_s = self._clock.now(), now_s
            entry.annotations.update(annotations or {})
            self._entries.move_to_end(key)
            if entry.queue_key not in self._queued:
                self._recounted[entry.queue_key] = entry
                self._has_recounted.set()
            return
        if len(self._queued) >= _MAX_QUEUED or not self._take_allowance(about, now_s):
            self.dropped += 1
            if self.dropped == 1 or self.dropped % 1000 == 0:
                log.warning("%d events dropped so far; the last: %s %s", self.dropped, reason, about.name)
            return
        if entry is not None:
            self._recounted.pop(entry.queue_key, None)
        now = self._clock.now()
        queue_key = f"{_namespace(about)}/{next(self._queue_numbers)}"
        entry = _EventEntry(key, queue_key, _event_name(about), now, now, now_s, 1, dict(annotations or {}))
        self._entries[key] = entry
        self._entries.move_to_end(key)
        self._evict_remembered(now_s)
        self._enqueue(entry)

    def _enqueue(self, entry: _EventEntry) -> None:
        self._queued[entry.queue_key] = entry
        self._queue.add(entry.queue_key)
        self._has_queued.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Write events until told to stop, then what still waits."""
        writing = [asyncio.ensure_future(self._run_writer()) for _ in range(_WRITERS)]
        writing.append(asyncio.ensure_future(self._run_recounts()))
        try:
            await stop.wait()
        finally:
            for task in writing:
                task.cancel()
            await asyncio.gather(*writing, return_exceptions=True)
        await self.flush()

    async def _run_writer(self) -> None:
        while True:
            queue_key = self._queue.get(_WRITERS - self._queue.processing)
            if queue_key is not None:
                await self._write(queue_key)
            else:
                self._has_queued.clear()
                await self._has_queued.wait()

    async def _run_recounts(self) -> None:
        while True:
            await self._has_recounted.wait()
            await asyncio.sleep(self._count_delay_s)
            self._has_recounted.clear()
            self._enqueue_recounted()

    def _enqueue_recounted(self) -> None:
        """Queue every event whose count has grown."""
        recounted, self._recounted = self._recounted, {}
        for entry in recounted.values():
            self._enqueue(entry)

    async def flush(self) -> None:
        """Write everything that waits, now; what takes too long is left."""

        async def writer() -> None:
            while (place := self._queue.get()) is not None:
                await self._write(place)

        self._enqueue_recounted()
        try:
            async with asyncio.timeout(_FLUSH_S):
                await asyncio.gather(*(writer() for _ in range(_WRITERS)))
        except TimeoutError:
            log.warning("%d events were not written in time", len(self._queued))

    async def _write(self, queue_key: str) -> None:
        entry = self._queued.pop(queue_key)
        key = entry.key
        try:
            await self._write_one(entry)
        except asyncio.CancelledError:
            # Told to stop in the middle of it; `flush` tries again.
            self._enqueue(entry)
            raise
        except KubeError as error:
            log.debug("event %s about %s was not written: %s", key.reason, key.about.name, error)
        except Exception:
            # A bug costs this event, not later ones.
            log.exception("event %s about %s was not written", key.reason, key.about.name)
        finally:
            self._queue.done(queue_key)
            # The next event of its namespace may go now.
            self._has_queued.set()

    async def _write_one(self, entry: _EventEntry) -> None:
        count = entry.count
        if count == entry.written:
            return
        namespace = _namespace(entry.key.about)
        if entry.written:
            patch = {"count": count, "lastTimestamp": _rfc3339(entry.last), "metadata": _annotation_metadata(entry)}
            try:
                await self._client.patch(EVENTS, entry.name, patch, namespace, brief=True)
            except NotFound:
                # The Event object expired while its cause lasts.
                entry.name = _event_name(entry.key.about)
                await self._client.create(EVENTS, self._document(entry, namespace), namespace, brief=True)
        else:
            # Names are random: an existing one is ours, from a write whose answer was lost.
            with suppress(AlreadyExists):
                await self._client.create(EVENTS, self._document(entry, namespace), namespace, brief=True)
        entry.written = count

    def _document(self, entry: _EventEntry, namespace: str) -> dict[str, Any]:
        about, type_, reason, message = entry.key
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": entry.name, "namespace": namespace, **_annotation_metadata(entry)},
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
            "firstTimestamp": _rfc3339(entry.first),
            "lastTimestamp": _rfc3339(entry.last),
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": self._instance,
        }

    def _evict_remembered(self, now_s: float) -> None:
        """Forget events that are too old to be counted up, and the oldest beyond the limit."""
        while (
            len(self._entries) > _MAX_REMEMBERED
            or next(iter(self._entries.values())).last_s <= now_s - _AGGREGATION_WINDOW_S
        ):
            self._entries.popitem(last=False)

    def _take_allowance(self, about: InvolvedObject, now_s: float) -> bool:
        allowance = self._allowances.get(about)
        if allowance is None:
            allowance = self._allowances[about] = _EventAllowance(float(_BURST), now_s)
            if len(self._allowances) > _MAX_REMEMBERED:
                self._allowances.popitem(last=False)
        else:
            self._allowances.move_to_end(about)
        allowance.tokens = min(float(_BURST), allowance.tokens + (now_s - allowance.at_s) / _REFILL_S)
        allowance.at_s = now_s
        if allowance.tokens < 1:
            return False
        allowance.tokens -= 1
        return True


def _namespace(about: InvolvedObject) -> str:
    """Where the events about an object are."""
    return about.namespace or "default"


def _event_name(about: InvolvedObject) -> str:
    """`<object>.<sixteen hex digits>`, as other components name their events."""
    return f"{about.name[: _MAX_NAME_LENGTH - 17].rstrip('.-')}.{secrets.token_hex(8)}"


def _annotation_metadata(entry: _EventEntry) -> dict[str, Any]:
    return {"annotations": dict(entry.annotations)} if entry.annotations else {}


def _rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
