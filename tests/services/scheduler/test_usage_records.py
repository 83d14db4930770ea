"""Usage without Prometheus: what a leader records, what the next one finds, what plans make of it (usage:builtin)."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pykai.api import names
from pykai.api.duration import DAY, HOUR, MINUTE, SECOND
from pykai.core.model.shard import Shard
from pykai.core.queueing.usagehistory import TUMBLING, UsageAmounts, UsageSpan, UsageWindow
from pykai.core.report.decisions import Plan, QueueFigures, encode_as_text
from pykai.kube import resources
from pykai.kube.client import Client
from pykai.kube.lease import Fence
from pykai.scheduler.service import Scheduler
from pykai.scheduler.status.statusevents import now_ns
from pykai.scheduler.usage.promql import UsageError
from pykai.scheduler.usage.recorder import KEY, RETENTION_NS, UsageRecorder
from pykai.scheduler.usage.storedusage import decode_usage, encode_usage
from tests.services.scheduler.schedulercluster import SchedulerCluster, refusal, scheduler_cluster

CAPACITY: UsageAmounts = (100.0, 1000.0, 10.0)
WINDOW = UsageWindow(size_ns=10 * HOUR)


def figures(**gpus: float) -> tuple[QueueFigures, ...]:
    """Queues that hold so many GPUs."""
    none = (0.0, 0.0, 0.0)
    return tuple(
        QueueFigures(name, "", "", 0, none, none, none, none, (0.0, 0.0, count), none) for name, count in gpus.items()
    )


def recorder(lab: SchedulerCluster, *, writes: bool = True, shard: Shard | None = None) -> UsageRecorder:
    """A recorder that leads."""
    made = UsageRecorder(Client(lab.faults), shard or Shard(), names.DEFAULT_NAMESPACE, lab.clock, writes=writes)
    made.lead()
    return made


def record(made: UsageRecorder, at_ns: int, **gpus: float) -> None:
    made.record(at_ns, figures(**gpus), lambda: CAPACITY)


async def saved(made: UsageRecorder, lab: SchedulerCluster, *, keep_ns: int = 0) -> None:
    await made.save(now_ns(lab.clock) - keep_ns)


async def stored(lab: SchedulerCluster) -> list[UsageSpan]:
    """What the ConfigMap holds."""
    found = [
        each
        for each in await lab.client.list_raw(resources.CONFIG_MAPS, namespace=names.DEFAULT_NAMESPACE)
        if each["metadata"]["name"].startswith("kai-usage-")
    ]
    (content,) = (each["binaryData"][KEY] for each in found)
    return decode_usage(base64.b64decode(content), now_ns(lab.clock) + DAY)


async def leave(lab: SchedulerCluster, spans: list[UsageSpan], data: Mapping[str, Any] | None = None) -> None:
    """Leave usage behind, as a scheduler on another machine does; `data` replaces its fields."""
    name = UsageRecorder(lab.client, Shard(), names.DEFAULT_NAMESPACE, lab.clock, writes=True).name
    content = data or {"binaryData": {KEY: base64.b64encode(encode_usage(spans)).decode()}}
    await lab.create(
        resources.CONFIG_MAPS, {"metadata": {"name": name, "namespace": names.DEFAULT_NAMESPACE}, **content}
    )


def span(now: int, ago: int, until: int = 0, **gpus: float) -> UsageSpan:
    seconds = (ago - until) / SECOND
    held = {queue: (0.0, 0.0, count * seconds) for queue, count in gpus.items()}
    return UsageSpan(now - ago, now - until, (100 * seconds, 1000 * seconds, 10 * seconds), held)


async def test_the_next_leader_goes_on_where_the_last_one_stopped() -> None:
    """usage:stored: on another machine, with what is in the API alone."""
    async with scheduler_cluster(queue="") as lab:
        now = now_ns(lab.clock)
        first = recorder(lab)
        record(first, now - 4 * MINUTE, a=5)
        record(first, now - 2 * MINUTE, a=10)
        await saved(first, lab)
        second = recorder(lab)
        later = now_ns(lab.clock) + MINUTE
        record(second, later, a=0)
        used = await second.usage(WINDOW, later + 4 * MINUTE)
        assert used["a"][2] == pytest.approx(30 / 80, rel=0.02)
        await saved(second, lab)
        assert sum(each.allocated.get("a", (0, 0, 0))[2] for each in await stored(lab)) == pytest.approx(
            30 * 60, rel=0.02
        )


async def test_schedulers_and_shards_keep_their_usage_apart() -> None:
    """usage:stored"""
    async with scheduler_cluster(queue="") as lab:
        shards = (Shard(), Shard(node_pool="a"), Shard(scheduler_name="other"))
        assert len({recorder(lab, shard=each).name for each in shards}) == 3


async def test_a_standby_reads_what_the_leader_wrote_last() -> None:
    """usage:builtin: so that it has usage at the moment it leads."""
    async with scheduler_cluster(queue="") as lab:
        standby = recorder(lab)
        standby.stop()
        now = now_ns(lab.clock)
        assert await standby.usage(WINDOW, now) == {}
        await leave(lab, [span(now, 2 * HOUR, HOUR, a=3)])
        assert (await standby.usage(WINDOW, now))["a"][2] == pytest.approx(0.3)
        await saved(standby, lab)
        record(standby, now, a=9)
        assert lab.faults.written("PATCH", "configmaps") == []


async def test_nothing_is_written_before_the_past_was_read() -> None:
    """usage:stored: a leader that cannot read would overwrite what others recorded."""
    async with scheduler_cluster(queue="") as lab:
        now = now_ns(lab.clock)
        await leave(lab, [span(now, 2 * HOUR, HOUR, a=3)])
        made = recorder(lab)
        record(made, now, a=1)
        lab.faults.refuse("GET", "configmaps", refusal(403, "Forbidden", "no right"), times=2)
        with pytest.raises(UsageError, match=r"kai-scheduler/kai-usage-\w+ cannot be read: .*no right"):
            await made.usage(WINDOW, now)
        await saved(made, lab)
        assert lab.faults.writes == []
        record(made, now + MINUTE, a=1)
        await saved(made, lab)
        assert (await stored(lab))[0].allocated["a"][2] == pytest.approx(3 * 3600)


async def test_a_leader_that_has_lost_its_lease_writes_nothing() -> None:
    """usage:stored: fenced."""
    async with scheduler_cluster(queue="") as lab:
        fence = Fence()
        made = UsageRecorder(
            Client(lab.faults).fenced(fence.check), Shard(), names.DEFAULT_NAMESPACE, lab.clock, writes=True
        )
        made.lead()
        record(made, now_ns(lab.clock) - MINUTE, a=1)
        fence.until_s = 0.0
        await saved(made, lab)
        assert lab.faults.writes == []


async def test_a_frozen_leader_does_not_overwrite_what_the_next_one_wrote() -> None:
    """usage:stored: writes carry the version that was read."""
    async with scheduler_cluster(queue="") as lab:
        now = now_ns(lab.clock)
        frozen, other = recorder(lab), recorder(lab)
        for each in (frozen, other):
            record(each, now - 3 * MINUTE, a=1)
            await saved(each, lab)
        record(other, now - 2 * MINUTE, b=10)
        await saved(other, lab)
        before = await stored(lab)
        record(frozen, now - MINUTE, c=10)
        await saved(frozen, lab)
        assert await stored(lab) == before


async def test_a_conflict_costs_one_write() -> None:
    """usage:stored: a person changed the ConfigMap of a leader that goes on."""
    async with scheduler_cluster(queue="") as lab:
        made = recorder(lab)
        record(made, now_ns(lab.clock) - 3 * MINUTE, a=1)
        await saved(made, lab)
        await lab.client.patch(
            resources.CONFIG_MAPS, made.name, {"binaryData": {KEY: "aGVsbG8="}}, names.DEFAULT_NAMESPACE
        )
        for _ in range(2):
            await saved(made, lab)
        assert (await stored(lab))[0].allocated["a"][2] >= 180
        await lab.client.delete(resources.CONFIG_MAPS, made.name, names.DEFAULT_NAMESPACE)
        for _ in range(2):
            await saved(made, lab)
        assert (await stored(lab))[0].allocated["a"][2] >= 180


@pytest.mark.parametrize(
    "data",
    [
        {"data": {"usage": "lots"}},
        {"binaryData": {KEY: base64.b64encode(b"hello").decode()}},
        {"binaryData": {KEY: ""}},
    ],
    ids=["no key", "no gzip", "empty"],
)
async def test_bad_content_is_logged_and_counts_as_nothing(
    data: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """usage:stored: and is overwritten."""
    async with scheduler_cluster(queue="") as lab:
        await leave(lab, [], data)
        made = recorder(lab)
        now = now_ns(lab.clock)
        record(made, now - MINUTE, a=5)
        assert (await made.usage(WINDOW, now))["a"][2] == pytest.approx(0.5)
        assert "does not hold the usage of queues" in caplog.text
        await saved(made, lab)
        assert (await stored(lab))[0].allocated["a"][2] == pytest.approx(300, rel=0.1)


async def test_a_refused_write_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster(queue="") as lab:
        made = recorder(lab)
        record(made, now_ns(lab.clock) - MINUTE, a=5)
        lab.faults.refuse("POST", "configmaps", refusal(403, "Forbidden", "no right"))
        for _ in range(3):
            await saved(made, lab)
        assert caplog.text.count("usage cannot be kept in ConfigMap kai-scheduler/kai-usage-") == 1
        lab.faults.heal()
        await saved(made, lab)
        assert await stored(lab)


async def test_old_usage_goes_unless_the_window_counts_it() -> None:
    """usage:bounds"""
    async with scheduler_cluster(queue="") as lab:
        now = now_ns(lab.clock)
        await leave(lab, [span(now, RETENTION_NS + 2 * DAY, RETENTION_NS + DAY, a=1), span(now, HOUR, MINUTE, a=1)])
        made = recorder(lab)
        await saved(made, lab, keep_ns=RETENTION_NS + 3 * DAY)
        assert len(await stored(lab)) == 2
        await saved(made, lab)
        assert len(await stored(lab)) == 1


async def test_amounts_hold_from_cycle_to_cycle_and_no_longer_than_cycles_run() -> None:
    """usage:builtin: looked at once a second; after five minutes without a cycle nothing is known."""
    async with scheduler_cluster(queue="") as lab:
        made, now = recorder(lab), now_ns(lab.clock)
        record(made, now - HOUR, a=10)
        record(made, now - HOUR + SECOND // 2, a=1)
        record(made, now - 5 * MINUTE, a=0)
        used = await made.usage(WINDOW, now)
        assert used["a"][2] == pytest.approx(0.5, rel=0.001), "five minutes of ten GPUs, five of none"
        shadow = recorder(lab, writes=False)
        record(shadow, now - MINUTE, a=1)
        await saved(shadow, lab)
        assert lab.faults.writes == []


# In the scheduler


CONFIGURATION = """
actions: allocate, reclaim
tiers: [{plugins: [{name: predicates}, {name: proportion, arguments: {kValue: "10000"}}, {name: sg-nodelocalgreedy}]}]
"""
BUILTIN = "usageDBConfig: {clientType: builtin}\n"


async def heavy_and_light(lab: SchedulerCluster) -> None:
    """Queue a has all the weight and runs everything; queue b requests one GPU (queues case U9)."""
    await lab.node("n", gpus=4)
    free = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    for name, weight in (("a", 10_000), ("b", 1)):
        gpu = {"quota": 0, "limit": -1, "overQuotaWeight": weight}
        await lab.queue(name, resources={"gpu": gpu, "cpu": free, "memory": free})
    await lab.gang("running", pods=4, minimum=1, queue="a", gpu=1)
    async with lab.scheduler():
        await lab.until_bound("running", 4)
    await lab.gang("claim", pods=1, queue="b", gpu=1)


async def plan_with(lab: SchedulerCluster, tmp_path: Path, text: str) -> tuple[Plan, bytes, Scheduler]:
    """The first plan of a shadow that is configured so, and as bytes without its time."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(CONFIGURATION + text)
    plans: list[Plan] = []
    made = asyncio.Event()

    def keep(plan: Plan) -> None:
        plans.append(plan)
        made.set()

    scheduler = lab.make_scheduler(scheduler_conf=str(file), shadow="true")
    scheduler.loop.plan_listeners.append(keep)
    stop = asyncio.Event()
    task = asyncio.create_task(scheduler.run(stop))
    async with asyncio.timeout(10):
        await made.wait()
    stop.set()
    await task
    await scheduler.intake._caches.stop()
    plain = msgspec.to_builtins(plans[0], enc_hook=encode_as_text)
    plain["now_ns"] = 0
    return plans[0], msgspec.json.encode(plain), scheduler


async def test_q330_recorded_usage_counts_only_where_a_shard_says_so(tmp_path: Path) -> None:
    """queues:Q-330, usage:builtin: without it a plan is the same to the byte, whatever was recorded."""
    async with scheduler_cluster(queue="") as lab:
        await heavy_and_light(lab)
        plain, before, _ = await plan_with(lab, tmp_path, "")
        _, unused, _ = await plan_with(lab, tmp_path, BUILTIN)
        assert unused == before, "there is no past yet"
        now = now_ns(lab.clock)
        await leave(lab, [span(now, 2 * HOUR, HOUR, a=10)])
        _, after, _ = await plan_with(lab, tmp_path, "")
        assert after == before
        assert plain.evictions == ()
        acting, differs, scheduler = await plan_with(lab, tmp_path, BUILTIN)
        assert differs != before
        assert [eviction.group for eviction in acting.evictions] == ["default/running"]
        # The capacity of the cluster in the record is that of ten GPUs.
        assert scheduler.loop.effective_policy.usage["a"][2] == pytest.approx(1.0)
        shown = {
            sample.labels["queue_metadata_name"]: sample.value
            for family in scheduler.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "kai_queue_gpu_usage"
        }
        assert shown == {"a": pytest.approx(1.0), "b": 0.0}


async def test_a_leader_records_without_being_asked() -> None:
    """usage:builtin: within a minute, in the time of the cluster."""
    async with scheduler_cluster(speed=60) as lab:
        await lab.node("n", gpus=4)
        await lab.gang("job", pods=2, gpu=1)
        async with lab.scheduler():
            await lab.until_bound("job", 2)
            name = UsageRecorder(lab.client, Shard(), names.DEFAULT_NAMESPACE, lab.clock, writes=True).name
            key = f"{names.DEFAULT_NAMESPACE}/{name}"
            await lab.maps.wait_until(lambda _: key in lab.maps, 30)
        spans = await stored(lab)
        assert spans[-1].allocated["team"][2] == spans[-1].allocated["department"][2] > 0
        seconds = (spans[-1].end_ns - spans[-1].begin_ns) / SECOND
        assert spans[-1].capacity[2] == pytest.approx(4 * seconds, rel=0.01)


async def test_a_window_of_prometheus_counts_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """queues:Q-331, Q-332: a Prometheus that is not there delays the first cycle by waitTimeout, and no other."""
    with caplog.at_level(logging.WARNING):
        async with scheduler_cluster(queue="") as lab:
            await lab.node("n", gpus=1)
            await lab.queue("department")
            await lab.queue("team", parent="department")
            await lab.gang("job", pods=1, gpu=1)
            file = tmp_path / "scheduler.yaml"
            file.write_text(
                "usageDBConfig:\n  clientType: prometheus\n  connectionString: http://127.0.0.1:1\n"
                "  usageParams: {waitTimeout: 10ms}\n"
            )
            async with lab.scheduler(scheduler_conf=str(file)) as scheduler:
                await lab.until_bound("job", 1)
                assert scheduler.loop.effective_policy.usage == {}
    assert "scheduling begins without it" in caplog.text
    assert "Prometheus at http://127.0.0.1:1 cannot be reached" in caplog.text


async def test_the_window_of_the_shard_decides_how_long_usage_is_kept(tmp_path: Path) -> None:
    """usage:bounds"""
    file = tmp_path / "scheduler.yaml"
    params = "{windowType: tumbling, windowSize: 52w, tumblingWindowStartTime: 2020-01-01T00:00:00Z, fetchInterval: 5m}"
    file.write_text(f"usageDBConfig: {{clientType: builtin, usageParams: {params}}}\n")
    async with scheduler_cluster(queue="") as lab:
        scheduler = lab.make_scheduler(scheduler_conf=str(file))
        now = now_ns(lab.clock)
        config = scheduler.usage.config
        assert config is not None
        assert config.window.kind == TUMBLING
        assert scheduler._usage_kept_from_ns(now) == config.window.begin_ns(now)
        assert scheduler._usage_write_interval_ns() == 5 * MINUTE
        plain = lab.make_scheduler()
        assert (plain._usage_kept_from_ns(now), plain._usage_write_interval_ns()) == (now, 0)
