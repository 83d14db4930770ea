"""Usage as the cycles read it: fetched by a background task, kept, and dropped when it is too old (queues:14.1).

A cycle takes what is there and never waits.  The task fetches at start, then every `fetchInterval`, and at once when
the configuration changes.  A standby fetches too, so that it has usage at the moment it leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from pykai.api.duration import SECOND, format_go_duration
from pykai.core.queueing.usagehistory import UsageAmounts
from pykai.kube.clock import Clock
from pykai.scheduler.config.usagedb import UsageConfig
from pykai.scheduler.status.statusevents import now_ns
from pykai.scheduler.usage.metrics import UsageMetrics
from pykai.scheduler.usage.promql import UsageError

log = logging.getLogger(__name__)

Usage = Mapping[str, UsageAmounts]


class UsageSource(Protocol):
    """Where usage comes from."""

    async def fetch(self, now_ns: int) -> Usage:
        """Queue -> fraction of the cluster it used, queues without usage may be left out; raises `UsageError`."""
        ...


class NoUsage:
    """A source without usage, as upstream's test clients are here."""

    async def fetch(self, now_ns: int) -> Usage:
        """See `UsageSource`."""
        return {}


class UsageFeed:
    """The usage of the moment."""

    def __init__(self, make_source: Callable[[UsageConfig], UsageSource], metrics: UsageMetrics, clock: Clock) -> None:
        self._make_source = make_source
        self._metrics = metrics
        self._clock = clock
        self._config: UsageConfig | None = None
        self._configured_s = 0.0
        self._usage: Usage = {}
        self._fetched_ns: int | None = None
        self._fetched = asyncio.Event()
        self._changed = asyncio.Event()
        self._stale = False

    @property
    def config(self) -> UsageConfig | None:
        """The configuration in use; None = usage does not count."""
        return self._config

    def configure(self, config: UsageConfig | None) -> None:
        """Use this configuration; the same one again changes nothing."""
        if config == self._config:
            return
        if config is None or self._config is None or config.client_type != self._config.client_type:
            self._usage, self._fetched_ns = {}, None
            self._fetched.clear()
            self._metrics.forget_fetch()
        self._metrics.set_staleness(0 if config is None else config.staleness_ns)
        self._config = config
        self._configured_s = self._clock.elapsed_s()
        self._changed.set()

    def current(self, at_ns: int) -> Usage:
        """What a cycle takes into account; nothing while nothing is known, and nothing that is stale.

        Statements: ADR-36, queues:Q-330, Q-331, Q-333.
        """
        config, fetched_ns = self._config, self._fetched_ns
        if config is None or fetched_ns is None:
            return {}
        stale = at_ns - fetched_ns > config.staleness_ns
        if stale != self._stale:
            self._stale = stale
            if stale:
                age, limit = format_go_duration(at_ns - fetched_ns), format_go_duration(config.staleness_ns)
                log.warning("usage is %s old, more than stalenessPeriod (%s); it is not taken into account", age, limit)
            else:
                log.info("usage is fresh again")
        return {} if stale else self._usage

    async def run(self) -> None:
        """Fetch until cancelled (queues:Q-331)."""
        while True:
            self._changed.clear()
            config = self._config
            if config is None:
                await self._changed.wait()
                continue
            source = self._make_source(config)
            while not self._changed.is_set():
                await self._fetch(source)
                await _wait(self._changed, self._clock.wall_s(config.fetch_interval_ns / SECOND))

    # A failed fetch keeps what is there (queues:Q-333).
    async def _fetch(self, source: UsageSource) -> None:
        loop = asyncio.get_running_loop()
        at_ns, began_s, config = now_ns(self._clock), loop.time(), self._config
        try:
            usage = await source.fetch(at_ns)
        except UsageError as error:
            log.warning("usage could not be fetched: %s", error)
            self._metrics.count_failure()
            return
        except Exception:
            log.exception("usage could not be fetched")
            self._metrics.count_failure()
            return
        if config != self._config:
            return
        self._usage, self._fetched_ns = usage, at_ns
        self._fetched.set()
        self._metrics.observe_fetch(loop.time() - began_s, at_ns)

    async def wait_for_first(self, stop: asyncio.Event) -> None:
        """Wait until usage was fetched once, at most `waitTimeout` since it was configured (queues:Q-332)."""
        config = self._config
        if config is None or self._fetched.is_set():
            return
        left_s = config.wait_timeout_ns / SECOND - (self._clock.elapsed_s() - self._configured_s)
        waits = [asyncio.ensure_future(event.wait()) for event in (self._fetched, stop)]
        try:
            await asyncio.wait(waits, timeout=max(0.0, self._clock.wall_s(left_s)), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not self._fetched.is_set() and not stop.is_set():
            limit = format_go_duration(config.wait_timeout_ns)
            log.warning("no usage within %s (waitTimeout); scheduling begins without it", limit)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    # `asyncio.wait_for` of Python 3.11 loses a cancellation that comes together with the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
