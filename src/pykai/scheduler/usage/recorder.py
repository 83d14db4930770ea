"""Usage without Prometheus: the scheduler records what queues hold, and keeps it in a ConfigMap.

Every leader records, whatever the configuration says, so that `clientType: builtin` finds a past to count when it is
switched on.  Until then nothing reads it.  The ConfigMap is in the scheduler's namespace, one for each shard, and is
written once a minute at most; a new leader, on any machine, goes on from there.

Subtle:
- A leader reads the ConfigMap before it writes it, and keeps its own records until it could.
- Writes are fenced by the lease, and carry the version that was read: a leader that was frozen overwrites nothing.
- Content that cannot be read is logged, counts as nothing, and is overwritten.
- No right is needed beside those for records of gangs (`services/rights.py`): it is found by a list with its name, made
  by `create` and changed by `patch`, in the scheduler's own namespace.

Statements: usage:builtin, usage:stored.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from pykai.api import names
from pykai.api.duration import DAY, MINUTE, SECOND
from pykai.core.model.shard import Shard
from pykai.core.queueing.usagehistory import UsageAmounts, UsageHistory, UsageSpan, UsageWindow, usage_within
from pykai.core.report.decisions import QueueFigures
from pykai.kube import resources
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from pykai.scheduler.dispatch.bindrequests import label_value
from pykai.scheduler.status.statusevents import now_ns
from pykai.scheduler.usage.promql import UsageError
from pykai.scheduler.usage.storedusage import StoredUsageError, decode_usage, encode_within

log = logging.getLogger(__name__)

KEY = "usage.json.gz"
#: kept at least this long, so that a month counts when usage is switched on
RETENTION_NS = 35 * DAY
#: shortest time between two writes
WRITE_INTERVAL_NS = MINUTE
#: more often than this the amounts are not looked at
_SAMPLE_NS = SECOND
#: after so long without a cycle it is not known what queues held meanwhile
_LONGEST_STEP_NS = 5 * MINUTE


class UsageRecorder:
    """What the queues of a shard have held, in memory and in its ConfigMap."""

    def __init__(self, client: Client, shard: Shard, namespace: str, clock: Clock, *, writes: bool) -> None:
        whose = f"{shard.scheduler_name}/{shard.node_pool}"
        #: name of its ConfigMap
        self.name = f"kai-usage-{hashlib.sha256(whose.encode()).hexdigest()[:8]}"
        self._labels = {
            names.RECORD_SCHEDULER_LABEL: label_value(shard.scheduler_name),
            names.RECORD_POOL_LABEL: label_value(shard.node_pool),
        }
        self._client = client
        self._namespace = namespace
        self._clock = clock
        #: False for a shadow
        self._writes = writes
        self._history = UsageHistory()
        self._leading = False
        #: whether the history holds what the last leader left
        self._loaded = False
        #: resource version of the ConfigMap; "" = there is none, None = not known
        self._version: str | None = None
        self._recorded_ns = 0
        self._failure = ""

    def lead(self) -> None:
        """Record from now on; what another leader wrote is read again."""
        self._history, self._leading, self._loaded, self._version = UsageHistory(), True, False, None
        self._recorded_ns = 0

    def stop(self) -> None:
        """Record no longer."""
        if self._leading:
            self._history.close(now_ns(self._clock))
        self._leading = False

    def record(self, at_ns: int, queues: Sequence[QueueFigures], capacity: Callable[[], UsageAmounts]) -> None:
        """Take down what the queues hold at the end of a cycle."""
        if not self._leading or 0 <= at_ns - self._recorded_ns < _SAMPLE_NS:
            return
        if self._recorded_ns and at_ns - self._recorded_ns > _LONGEST_STEP_NS:
            self._history.close(self._recorded_ns + _LONGEST_STEP_NS)
        self._history.record(at_ns, {each.name: each.allocated for each in queues}, capacity())
        self._recorded_ns = at_ns

    async def usage(self, window: UsageWindow, at_ns: int) -> dict[str, UsageAmounts]:
        """Queue -> fraction of the shard it used within the window; raises `UsageError`."""
        try:
            # A standby sees what the leader wrote last.
            if not self._leading or not self._loaded:
                await self._load()
        except KubeError as error:
            raise UsageError(f"ConfigMap {self._namespace}/{self.name} cannot be read: {error}") from None
        return await asyncio.to_thread(usage_within, self._history.spans(at_ns), window, at_ns)

    async def run(self, interval_ns: Callable[[], int], keep_from_ns: Callable[[int], int]) -> None:
        """Write until cancelled; what was recorded before `keep_from_ns` of an instant is dropped."""
        while True:
            await self._clock.sleep(max(interval_ns(), WRITE_INTERVAL_NS) / SECOND)
            await self.save(keep_from_ns(now_ns(self._clock)))

    async def save(self, keep_from_ns: int) -> None:
        """Write the history; what fails is logged and tried again next time."""
        if not self._leading or not self._writes:
            return
        try:
            if not self._loaded or self._version is None:
                await self._load()
            await self._write(keep_from_ns)
            self._failure = ""
        except (AlreadyExists, Conflict) as error:
            self._version = None
            log.info("ConfigMap %s/%s was changed meanwhile: %s", self._namespace, self.name, error)
        except KubeError as error:
            if isinstance(error, NotFound):
                self._version = None
            if str(error) != self._failure:
                self._failure = str(error)
                log.warning("usage cannot be kept in ConfigMap %s/%s: %s", self._namespace, self.name, error)

    async def _load(self) -> None:
        """Read the ConfigMap: the version, and the past unless it is known."""
        found = await self._client.list_raw(
            resources.CONFIG_MAPS, namespace=self._namespace, field_selector=f"metadata.name={self.name}"
        )
        spans = self._read(found[0]) if found else []
        self._version = str(found[0]["metadata"].get("resourceVersion") or "") if found else ""
        if not self._leading:
            self._history = UsageHistory(spans)
        elif not self._loaded:
            self._history.prepend(spans)
            self._loaded = True

    # A bad text counts as nothing (usage:stored).
    def _read(self, config_map: dict[str, Any]) -> list[UsageSpan]:
        content = config_map.get("binaryData")
        text = content.get(KEY) if isinstance(content, dict) else None
        try:
            if not isinstance(text, str):
                raise StoredUsageError(f"it has no binaryData[{KEY}]")
            return decode_usage(base64.b64decode(text, validate=True), now_ns(self._clock))
        except (StoredUsageError, binascii.Error) as error:
            log.warning(
                "ConfigMap %s/%s does not hold the usage of queues: %s; it is ignored",
                self._namespace,
                self.name,
                error,
            )
            return []

    async def _write(self, keep_from_ns: int) -> None:
        at_ns, history = now_ns(self._clock), self._history
        history.compact(at_ns)
        history.forget(min(keep_from_ns, at_ns - RETENTION_NS))
        encoded, fineness = await asyncio.to_thread(encode_within, history.spans(at_ns), at_ns, history.fineness)
        history.fineness = max(1, fineness)
        metadata: dict[str, Any] = {"name": self.name, "labels": self._labels}
        content = {"metadata": metadata, "binaryData": {KEY: base64.b64encode(encoded).decode()}}
        if self._version:
            metadata["resourceVersion"] = self._version
            answer = await self._client.patch(resources.CONFIG_MAPS, self.name, content, self._namespace, brief=True)
        else:
            answer = await self._client.create(resources.CONFIG_MAPS, content, self._namespace, brief=True)
        self._version = str(answer["metadata"].get("resourceVersion") or "") or None


class BuiltInUsage:
    """Usage of a window, from the records (usage:builtin)."""

    def __init__(self, recorder: UsageRecorder, window: UsageWindow) -> None:
        self._recorder = recorder
        self._window = window

    async def fetch(self, now_ns: int) -> dict[str, UsageAmounts]:
        """See `UsageSource`."""
        return await self._recorder.usage(self._window, now_ns)
