"""Usage from a real Prometheus (`make test-prometheus`): it takes our queries, and means what we do (queues:14.3)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pykai.api.duration import DAY, HOUR, MINUTE, SECOND
from pykai.api.timestamp import parse_timestamp
from pykai.core.queueing.cron import parse_cron
from pykai.core.queueing.usagehistory import CRON, TUMBLING, UsageAmounts, UsageHistory, UsageWindow, usage_within
from pykai.scheduler.config.usagedb import UsageConfig
from pykai.scheduler.usage.prometheus import PrometheusUsage
from pykai.scheduler.usage.promql import UsageError
from tests.scheduler.usage.realprometheus import Series, real_prometheus, write_samples
from tests.services.scheduler.schedulercluster import scheduler_cluster
from tests.services.scheduler.test_usage_records import CONFIGURATION, heavy_and_light

pytestmark = pytest.mark.prometheus

NOW = parse_timestamp("2026-03-02T12:00:00Z")


def queue(metric: str, name: str, pod: str = "x") -> str:
    return f'kai_queue_allocated_{metric}{{queue_name="{name}",pod="{pod}"}}'


def capacity(resource: str, node: str) -> str:
    return f'kube_node_status_capacity{{resource="{resource}",node="{node}"}}'


#: two nodes with five GPUs each; queue a held eight of ten GPUs until three hours ago, under two exporters, b two since
PAST: list[Series] = [
    (capacity("cpu", "m"), lambda _: 50),
    (capacity("cpu", "n"), lambda _: 50),
    (capacity("memory", "m"), lambda _: 1000),
    (capacity("nvidia_com_gpu", "m"), lambda _: 5),
    (capacity("nvidia_com_gpu", "n"), lambda _: 5),
    (queue("cpu_cores", "a"), lambda _: 25),
    (queue("gpus", "a"), lambda ago: 8.0 if ago > 6 * HOUR else None),
    (queue("gpus", "a", "restarted"), lambda ago: None if ago > 6 * HOUR else 8.0 if ago > 3 * HOUR else 0.0),
    (queue("gpus", "b"), lambda ago: 2.0 if ago <= 3 * HOUR else 0.0),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prometheus")
    write_samples(folder / "past", NOW, 12 * HOUR, PAST)
    with real_prometheus(folder, folder / "past") as found:
        yield found


def recorded(window: UsageWindow) -> dict[str, UsageAmounts]:
    """The same past as our own recorder would have it."""
    made = UsageHistory()
    total = (100.0, 1000.0, 10.0)
    made.record(NOW - 12 * HOUR, {"a": (25.0, 0.0, 8.0)}, total)
    made.record(NOW - 3 * HOUR, {"a": (25.0, 0.0, 0.0), "b": (0.0, 0.0, 2.0)}, total)
    return usage_within(made.spans(NOW), window, NOW)


WINDOWS = {
    "sliding": UsageWindow(size_ns=10 * HOUR),
    "sliding, short": UsageWindow(size_ns=90 * MINUTE),
    "tumbling": UsageWindow(TUMBLING, DAY, parse_timestamp("2026-01-01T05:00:00Z")),
    "cron": UsageWindow(CRON, cron=parse_cron("0 4 * * *")),
    "half-life": UsageWindow(size_ns=10 * HOUR, half_life_ns=2 * HOUR),
    "cron with half-life": UsageWindow(CRON, cron=parse_cron("30 1 * * *"), half_life_ns=HOUR),
}


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS.keys())
async def test_every_window_gives_what_our_own_records_would(address: str, window: UsageWindow) -> None:
    """queues:Q-337 to Q-343: also where a restarted exporter has made several series."""
    used = await PrometheusUsage(UsageConfig("prometheus", address, window=window)).fetch(NOW)
    expected = recorded(window)
    assert used.keys() == {"a", "b"}
    for name, amounts in expected.items():
        assert used[name] == pytest.approx(amounts, abs=0.01)


async def test_u11_twenty_four_gpu_hours_of_ten_gpus_in_ten_hours(address: str) -> None:
    """queues:Q-339, case U11: a held 8 GPUs for three of ten hours."""
    window = UsageWindow(size_ns=10 * HOUR)
    config = replace(UsageConfig("prometheus", address, window=window), resolution_ns=10 * SECOND)
    used = await PrometheusUsage(config).fetch(NOW + 4 * HOUR)
    assert used["a"][2] == pytest.approx(0.8 * 3 / 6, abs=0.02), "only six hours of it have samples"


async def test_a_window_that_has_just_begun_is_answered(address: str) -> None:
    """queues:Q-341: one of seven seconds."""
    window = UsageWindow(TUMBLING, DAY, NOW - 7 * SECOND)
    used = await PrometheusUsage(UsageConfig("prometheus", address, window=window)).fetch(NOW)
    assert used["b"][2] == pytest.approx(0.2)


async def test_expressions_of_the_configuration_are_asked(address: str) -> None:
    """queues:14.2 extraParams"""
    config = UsageConfig("prometheus", address, window=UsageWindow(size_ns=HOUR))
    config = replace(
        config,
        allocation_metrics=("kai_queue_allocated_cpu_cores", "nothing_at_all", "2 * kai_queue_allocated_gpus"),
        capacity_metrics=("vector(50)", "nothing_at_all", config.capacity_metrics[2]),
    )
    used = await PrometheusUsage(config).fetch(NOW)
    assert used["a"] == pytest.approx((0.5, 0.0, 0.0))
    assert used["b"] == pytest.approx((0.0, 0.0, 0.4))


async def test_q344_a_cluster_without_gpus(address: str) -> None:
    """queues:Q-344"""
    config = UsageConfig("prometheus", address, window=UsageWindow(size_ns=HOUR))
    config = replace(config, capacity_metrics=(*config.capacity_metrics[:2], "nothing_at_all"))
    used = await PrometheusUsage(config).fetch(NOW)
    assert used == {"a": pytest.approx((0.25, 0.0, 0.0))}


async def test_q340_a_past_without_samples_is_an_error(address: str) -> None:
    """queues:Q-340"""
    with pytest.raises(UsageError, match="no data returned for the capacity of the cluster"):
        await PrometheusUsage(UsageConfig("prometheus", address)).fetch(NOW - 30 * DAY)


async def test_a_mistake_in_an_expression_is_shown_as_prometheus_puts_it(address: str) -> None:
    config = replace(UsageConfig("prometheus", address), capacity_metrics=("sum(", "b", "c"))
    with pytest.raises(UsageError, match=r"answered 400 to the query .*parse error"):
        await PrometheusUsage(config).fetch(NOW)


async def test_u9_the_heaviest_user_gives_way(tmp_path: Path) -> None:
    """queues:Q-331, Q-346, case U9: the scheduler with a Prometheus that knows who had all GPUs."""
    now = time.time_ns() + 10 * MINUTE
    past: list[Series] = [
        (capacity("cpu", "n"), lambda _: 64),
        (capacity("nvidia_com_gpu", "n"), lambda _: 4),
        (queue("gpus", "a"), lambda _: 4),
    ]
    write_samples(tmp_path / "past", now, 2 * HOUR, past)
    with real_prometheus(tmp_path, tmp_path / "past") as address:
        async with scheduler_cluster(queue="") as lab:
            await heavy_and_light(lab)
            file = tmp_path / "scheduler.yaml"
            file.write_text(
                f"{CONFIGURATION}\nusageDBConfig: {{clientType: prometheus, connectionString: {address}, "
                "usageParams: {windowSize: 1h}}\n"
            )
            async with lab.scheduler(scheduler_conf=str(file)) as scheduler:
                await lab.pods.wait_until(
                    lambda pods: any(pod.metadata.deletion_timestamp for pod in pods.values()), 10
                )
                assert scheduler.loop.effective_policy.usage["a"][2] == pytest.approx(1.0)
                sample = "kai_usage_query_latency_milliseconds_count"
                assert scheduler.metrics.registry.get_sample_value(sample) == 1
