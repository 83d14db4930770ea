"""Specs that change the shard and watch fair shares or operands (operations:17): reclaim, timeaware and numa."""

from __future__ import annotations

import asyncio
import json
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pykai.api import names
from pykai.kube.errors import NotFound
from pykai.kube.resources import DAEMON_SETS, QUEUES, SCHEDULING_SHARDS
from pykai.lab.processes.addresses import listening_address
from tests.e2e.endtoend import EndToEnd, deserves, limited, seconds
from tests.e2e.shards import all_gpus, apart
from tests.scheduler.usage.realprometheus import real_prometheus

pytestmark = pytest.mark.cluster_only

EXPORTER = "numa-placement-exporter"
#: of the queue controller
METRICS_PORT = 8080


# reclaim: fairness on every level of the hierarchy


@asynccontextmanager
async def dra_shard(e2e: EndToEnd) -> AsyncIterator[None]:
    """operations:E-21: a shard of its own for the nodes with devices that a driver publishes."""
    async with apart(e2e, "dra"):
        spec = {"partitionLabelValue": "dra"}
        await e2e.in_force(
            SCHEDULING_SHARDS, await e2e.add(SCHEDULING_SHARDS, {"metadata": {"name": "dra-shard"}, "spec": spec})
        )
        try:
            yield
        finally:
            await e2e.client.delete(SCHEDULING_SHARDS, "dra-shard")
            await e2e.until(
                lambda: not e2e.system_pods("kai-scheduler-dra-shard"), "the second scheduler is gone", e2e.system
            )


async def test_fairness_on_every_level_or_between_leaves(e2e: EndToEnd) -> None:
    """operations:E-19."""
    (having,) = await e2e.family("having", of={"queue": {"gpu": deserves(0)}}, gpu=deserves(-1))
    (taking,) = await e2e.family("taking", of={"queue": {"gpu": deserves(0)}}, gpu=limited(0))
    async with dra_shard(e2e):
        jobs = [await e2e.job(having, gpus=1, priorityClassName="e2e-low") for _ in range(all_gpus(e2e))]
        await e2e.jobs_scheduled(len(jobs), *jobs)
        pod = await e2e.pod(taking, gpus=1)
        await e2e.unschedulable(pod)
        async with e2e.sharded(args={"full-hierarchy-fairness": "false"}):
            await e2e.scheduled(pod)


# timeaware


@asynccontextmanager
async def usage_of(kind: str, e2e: EndToEnd, queue: str, folder: Path) -> AsyncIterator[dict[str, Any]]:
    """The database of a shard: our own records, or a Prometheus that has scraped what a queue has of all GPUs.

    The shard does not name the Prometheus: the operator takes it from the Config (operations:O-11).
    """
    interval = seconds(5, 1)
    window = {"windowSize": seconds(30, 6), "halfLifePeriod": seconds(15, 3)}
    params = {**window, "fetchInterval": interval, "windowType": "sliding"}
    if kind == "builtin":
        yield {"clientType": kind, "usageParams": params}
        return
    (pod,) = e2e.system_pods("queue-controller")
    target = f"{listening_address(pod['status']['podIP'])}:{METRICS_PORT}"
    settings = (
        f"scrape_configs: [{{job_name: queues, scrape_interval: {interval}, scrape_timeout: {interval}, "
        f"static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    gpus = all_gpus(e2e)
    capacities = {f"{name}CapacityMetric": f"vector({gpus})" for name in ("cpu", "memory", "gpu")}
    with real_prometheus(folder, None, settings) as address:
        async with asyncio.timeout(120):
            while await asyncio.to_thread(scraped, address, queue) < gpus:
                await asyncio.sleep(0.2)
        extra = {**capacities, "queryResolution": interval}
        async with e2e.configured(prometheus={"externalPrometheusUrl": address}):
            yield {"clientType": kind, "usageParams": {**params, "extraParams": extra}}


def scraped(prometheus: str, queue: str) -> float:
    """GPUs of a queue, as Prometheus has them."""
    query = urllib.parse.urlencode({"query": f'kai_queue_allocated_gpus{{queue_name="{queue}"}}'})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?{query}", timeout=30) as answer:
        found = json.load(answer)["data"]["result"]
    return max((float(each["value"][1]) for each in found), default=0.0)


@pytest.mark.parametrize("kind", ["builtin", pytest.param("prometheus", marks=pytest.mark.prometheus)])
async def test_a_queue_that_had_everything_gives_way(e2e: EndToEnd, kind: str, tmp_path: Path) -> None:
    """A weight of 10,000 against 1: without its past the first queue would keep all GPUs."""
    shares = {"heavy": {"gpu": deserves(0, weight=10_000)}, "light": {"gpu": deserves(0)}}
    heavy, light = await e2e.family("timeaware", of=shares, gpu=deserves(-1))
    gpus = all_gpus(e2e)
    async with apart(e2e, "elsewhere"):
        pods = await e2e.gang("heavy", heavy, gpus, gpus=1, priority="e2e-low")
        await e2e.scheduled(*pods)
        await e2e.until(lambda: allocated(e2e, heavy) >= gpus, "the queue shows what it has", QUEUES)
        pod = await e2e.pod(light, gpus=1)
        await e2e.unschedulable(pod)
        async with usage_of(kind, e2e, heavy, tmp_path) as database, e2e.sharded(usageDBConfig=database, kValue=10_000):
            await e2e.scheduled(pod)
        assert len(e2e.there(pods)) == gpus - 1


def allocated(e2e: EndToEnd, queue: str) -> int:
    """GPUs in the status of a queue."""
    status = (e2e.stores[QUEUES].get(queue) or {}).get("status", {})
    return int(status.get("allocated", {}).get(names.NVIDIA_GPU, 0))


# numa: the exporter as an operand


async def is_deployed(e2e: EndToEnd) -> bool:
    """Whether the exporter's DaemonSet is there."""
    try:
        found = await e2e.client.get_raw(DAEMON_SETS, EXPORTER, names.DEFAULT_NAMESPACE)
    except NotFound:
        return False
    return "deletionTimestamp" not in found["metadata"]


async def until_deployed(e2e: EndToEnd, wanted: bool) -> None:
    """Wait until the DaemonSet is there, or is not."""
    async with asyncio.timeout(120):
        while await is_deployed(e2e) is not wanted:
            await asyncio.sleep(0.2)


def with_zones(e2e: EndToEnd) -> Any:
    """The shard asks for the plugin."""
    return e2e.sharded(plugins={"numa": {"enabled": True}})


def exporter(e2e: EndToEnd, enabled: bool) -> Any:
    """The Config decides about the exporter."""
    return e2e.configured(numaPlacementExporter={"service": {"enabled": enabled}})


async def test_the_exporter_comes_and_goes_with_the_plugin(e2e: EndToEnd) -> None:
    assert not await is_deployed(e2e)
    async with with_zones(e2e):
        await until_deployed(e2e, True)
    await until_deployed(e2e, False)


async def test_the_config_keeps_the_exporter_away(e2e: EndToEnd) -> None:
    async with with_zones(e2e):
        await until_deployed(e2e, True)
        async with exporter(e2e, enabled=False):
            await until_deployed(e2e, False)
    async with exporter(e2e, enabled=False), with_zones(e2e):
        assert not await is_deployed(e2e)


async def test_the_config_asks_for_the_exporter(e2e: EndToEnd) -> None:
    async with exporter(e2e, enabled=True):
        await until_deployed(e2e, True)
    await until_deployed(e2e, False)
