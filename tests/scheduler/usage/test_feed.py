"""Usage as cycles see it: fetched behind them, kept over failures, dropped when it is old (queues:14.1); fake time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import pytest
from prometheus_client import CollectorRegistry

from pykai.api.duration import HOUR, MINUTE, SECOND
from pykai.observe.metrics import Metrics
from pykai.scheduler.config.usagedb import UsageConfig
from pykai.scheduler.status.statusevents import now_ns
from pykai.scheduler.usage.feed import NoUsage, Usage, UsageFeed
from pykai.scheduler.usage.metrics import UsageMetrics
from pykai.scheduler.usage.promql import UsageError
from tests.kube.faketime import LoopClock, in_fake_time

CONFIG = UsageConfig("prometheus", "http://usage")
SOME: Usage = {"a": (0.0, 0.0, 0.5)}


@dataclass
class Source:
    """Gives what a test says; an error is raised."""

    gives: Usage | Exception = field(default_factory=lambda: SOME)
    takes_s: float = 0.0
    fetched_s: list[float] = field(default_factory=list)
    made: list[UsageConfig] = field(default_factory=list)

    def make(self, config: UsageConfig) -> Source:
        self.made.append(config)
        return self

    async def fetch(self, now_ns: int) -> Usage:
        self.fetched_s.append(asyncio.get_running_loop().time() - 1000.0)
        await asyncio.sleep(self.takes_s)
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives


class Bench:
    """A feed that runs."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.clock = LoopClock.of_2026()
        self.registry = CollectorRegistry()
        self.feed = UsageFeed(source.make, UsageMetrics(Metrics("kai", self.registry)), self.clock)

    def current(self) -> Usage:
        return self.feed.current(now_ns(self.clock))

    def metric(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"kai_usage_{name}")


@asynccontextmanager
async def running(source: Source, config: UsageConfig | None = CONFIG) -> AsyncIterator[Bench]:
    bench = Bench(source)
    bench.feed.configure(config)
    task = asyncio.create_task(bench.feed.run())
    try:
        yield bench
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_q331_usage_is_fetched_at_start_and_then_every_interval() -> None:
    """queues:Q-331: the cycles only read."""

    async def story() -> None:
        source = Source()
        async with running(source, replace(CONFIG, fetch_interval_ns=30 * SECOND)) as bench:
            assert bench.current() == {}
            await asyncio.sleep(1)
            assert bench.current() == SOME
            await asyncio.sleep(89)
            assert source.fetched_s == pytest.approx([0, 30, 60])

    in_fake_time(story())


def test_q330_without_configuration_nothing_is_fetched() -> None:
    """queues:Q-330"""

    async def story() -> None:
        source = Source()
        async with running(source, None) as bench:
            await bench.feed.wait_for_first(asyncio.Event())
            await asyncio.sleep(600)
            assert (bench.current(), source.made) == ({}, [])

    in_fake_time(story())


def test_q333_a_failed_fetch_keeps_what_is_there(caplog: pytest.LogCaptureFixture) -> None:
    """queues:Q-333"""

    async def story() -> None:
        source = Source()
        async with running(source) as bench:
            await asyncio.sleep(1)
            source.gives = UsageError("the disk is full")
            await asyncio.sleep(120)
            assert bench.current() == SOME
            assert bench.metric("fetch_failures_total") == 2
            source.gives = RuntimeError("a mistake of ours")
            await asyncio.sleep(60)
            source.gives = {"b": (0.0, 0.0, 1.0)}
            await asyncio.sleep(60)
            assert bench.current() == source.gives
            assert bench.metric("fetch_failures_total") == 3

    in_fake_time(story())
    assert "usage could not be fetched: the disk is full" in caplog.text
    assert "a mistake of ours" in caplog.text


def test_q333_usage_that_is_stale_is_not_taken_into_account(caplog: pytest.LogCaptureFixture) -> None:
    """ADR-36, queues:Q-333: and counts again once it is fresh."""

    async def story() -> None:
        source = Source()
        async with running(source, replace(CONFIG, staleness_ns=5 * MINUTE)) as bench:
            await asyncio.sleep(1)
            source.gives = UsageError("gone")
            await asyncio.sleep(298)
            assert bench.current() == SOME
            await asyncio.sleep(2)
            assert bench.current() == {}
            assert bench.current() == {}
            source.gives = SOME
            await asyncio.sleep(60)
            assert bench.current() == SOME

    in_fake_time(story())
    assert caplog.text.count("more than stalenessPeriod (5m0s)") == 1


def test_a_slow_fetch_holds_up_nothing_but_the_next() -> None:
    """queues:Q-331: usage is as old as the instant it was asked for."""

    async def story() -> None:
        source = Source(takes_s=40)
        async with running(source) as bench:
            await asyncio.sleep(39)
            assert bench.current() == {}
            await asyncio.sleep(2)
            assert bench.current() == SOME
            assert bench.metric("last_fetch_timestamp_seconds") == bench.clock._start.timestamp()
            await asyncio.sleep(100)
            assert source.fetched_s == pytest.approx([0, 100])

    in_fake_time(story())


def test_the_latency_of_successful_fetches_is_measured() -> None:
    """queues:15.2: in milliseconds."""

    async def story() -> None:
        source = Source(takes_s=0.03)
        async with running(source) as bench:
            await asyncio.sleep(1)
            source.gives = UsageError("no")
            await asyncio.sleep(60)
            assert bench.metric("query_latency_milliseconds_count") == 1
            assert bench.metric("query_latency_milliseconds_sum") == pytest.approx(30)
            limits = {
                sample.labels["le"]
                for family in bench.registry.collect()
                for sample in family.samples
                if sample.name == "kai_usage_query_latency_milliseconds_bucket"
            }
            assert limits == {f"{5.0 * 2**power}" for power in range(10)} | {"+Inf"}

    in_fake_time(story())


# Start


def test_q332_the_start_waits_for_the_first_fetch() -> None:
    """queues:Q-332"""

    async def story() -> None:
        source = Source(takes_s=5)
        async with running(source) as bench:
            await bench.feed.wait_for_first(asyncio.Event())
            assert bench.current() == SOME
            assert bench.clock.elapsed_s() == pytest.approx(5)
            await bench.feed.wait_for_first(asyncio.Event())
            assert bench.clock.elapsed_s() == pytest.approx(5)

    in_fake_time(story())


def test_q332_after_the_timeout_scheduling_begins_without_usage(caplog: pytest.LogCaptureFixture) -> None:
    """queues:Q-332: counted from the start of the process, so a standby that takes over later does not wait."""

    async def story() -> None:
        source = Source(gives=UsageError("no"))
        async with running(source, replace(CONFIG, wait_timeout_ns=90 * SECOND)) as bench:
            await asyncio.sleep(30)
            await bench.feed.wait_for_first(asyncio.Event())
            assert bench.clock.elapsed_s() == pytest.approx(90)
            await bench.feed.wait_for_first(asyncio.Event())
            assert bench.clock.elapsed_s() == pytest.approx(90)

    in_fake_time(story())
    assert "no usage within 1m30s (waitTimeout); scheduling begins without it" in caplog.text


def test_a_scheduler_that_is_stopped_does_not_wait() -> None:
    async def story() -> None:
        stop = asyncio.Event()
        async with running(Source(takes_s=50)) as bench:
            asyncio.get_running_loop().call_later(1, stop.set)
            await bench.feed.wait_for_first(stop)
            assert bench.clock.elapsed_s() == pytest.approx(1)

    in_fake_time(story())


# Another configuration


def test_a_new_configuration_is_fetched_at_once_and_the_old_usage_counts_until_then() -> None:
    async def story() -> None:
        source = Source()
        async with running(source) as bench:
            await asyncio.sleep(10)
            other = replace(CONFIG, fetch_interval_ns=HOUR)
            bench.feed.configure(other)
            assert bench.current() == SOME
            await asyncio.sleep(1)
            assert source.made == [CONFIG, other]
            assert source.fetched_s == pytest.approx([0, 10])
            bench.feed.configure(replace(other))
            await asyncio.sleep(100)
            assert source.made == [CONFIG, other], "an equal one changes nothing"

    in_fake_time(story())


def test_usage_of_another_source_does_not_count() -> None:
    async def story() -> None:
        source = Source(takes_s=2)
        async with running(source) as bench:
            await asyncio.sleep(3)
            assert bench.current() == SOME
            bench.feed.configure(UsageConfig("builtin"))
            assert bench.current() == {}
            await asyncio.sleep(1)
            bench.feed.configure(None)
            await asyncio.sleep(30)
            assert bench.current() == {}, "what was on its way does not count either"
            bench.feed.configure(CONFIG)
            await asyncio.sleep(3)
            assert bench.current() == SOME

    in_fake_time(story())


async def test_upstreams_test_clients_have_no_usage() -> None:
    """queues:14.2"""
    assert await NoUsage().fetch(0) == {}


def test_how_old_usage_is_and_may_be_are_those_of_the_configuration() -> None:
    """queues:15.2, Q-330: usage that is dropped was never fetched, as far as anyone can see."""

    async def story() -> None:
        async with running(Source()) as bench:
            assert bench.metric("staleness_period_seconds") == 300
            await asyncio.sleep(1)
            fetched_s = bench.metric("last_fetch_timestamp_seconds")
            assert fetched_s
            bench.feed.configure(replace(CONFIG, staleness_ns=HOUR))
            assert bench.metric("staleness_period_seconds") == 3600
            assert bench.metric("last_fetch_timestamp_seconds") == fetched_s
            bench.feed.configure(None)
            await asyncio.sleep(1)
            assert bench.metric("staleness_period_seconds") == 0
            assert bench.metric("last_fetch_timestamp_seconds") == 0

    in_fake_time(story())


def test_a_change_of_the_configuration_does_not_keep_it_from_ending() -> None:
    """A scheduler that is stopped in the moment of a change would wait for its feed forever."""

    async def story() -> None:
        async with running(Source()) as bench:
            await asyncio.sleep(1)
            bench.feed.configure(None)

    in_fake_time(story())
