"""A shadow decides, logs each decision once, writes nothing, and follows what others do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from pykai.api import names
from pykai.core.cluster import tables as core_tables
from pykai.kube import resources
from pykai.kube.client import Client, PatchKind
from pykai.kube.clock import Clock
from pykai.kube.errors import Forbidden
from pykai.kube.readonly import ReadOnlyTransport
from pykai.kube.transport import Request
from pykai.scheduler.flags import read_flags
from pykai.scheduler.service import Scheduler
from pykai.scheduler.shadow import Shadow
from tests.servers import api_server, ensure_namespace
from tests.services.scheduler.schedulercluster import SchedulerCluster, scheduler_cluster
from tests.services.scheduler.test_evictions import an_unfair_cluster

WATCHED = (
    resources.PODS,
    resources.NODES,
    resources.QUEUES,
    resources.POD_GROUPS,
    resources.BIND_REQUESTS,
    resources.EVENTS,
    resources.LEASES,
    resources.CONFIG_MAPS,
)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "pykai.scheduler.shadow"):
        yield caplog


def lines(said: pytest.LogCaptureFixture, start: str = "") -> list[str]:
    """The log lines of the shadow with this prefix."""
    found = [each.getMessage() for each in said.records if each.name == "pykai.scheduler.shadow"]
    return sorted(each for each in found if each.startswith(start))


async def versions(lab: SchedulerCluster) -> dict[str, str]:
    """Every object of every kind that a scheduler writes, and its version."""
    return {
        f"{resource.plural}/{each['metadata'].get('namespace', '')}/{each['metadata']['name']}": each["metadata"][
            "resourceVersion"
        ]
        for resource in WATCHED
        for each in await lab.client.list_raw(resource)
        # A server renews a lease of its own.
        if each["metadata"].get("namespace") != "kube-system"
    }


@asynccontextmanager
async def shadow(lab: SchedulerCluster, patience_s: float = 3600.0, **flags: Any) -> AsyncIterator[Scheduler]:
    """A shadow at work; whatever it does, nothing was written in the end but by the test."""
    async with lab.scheduler(shadow="true", **flags) as scheduler:
        assert isinstance(scheduler.dispatcher, Shadow)
        scheduler.dispatcher.assumption_timeout_s = patience_s
        yield scheduler
        # Writers are asynchronous; they get the time they would need.
        await scheduler.writes.flush()
        await scheduler.recorder.flush()
    assert lab.faults.writes == []


async def cycles(scheduler: Scheduler, count: int = 5) -> None:
    """So many more cycles end."""
    for _ in range(count):
        assert await scheduler.loop.cycle() is not None


async def until_said(said: pytest.LogCaptureFixture, start: str, count: int = 1) -> list[str]:
    """Wait for so many lines with this prefix."""
    try:
        async with asyncio.timeout(10):
            while len(found := lines(said, start)) < count:
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not {count} lines that begin with {start!r}: {lines(said)}") from None
    return found


async def mark_evicted(lab: SchedulerCluster, group: str) -> None:
    """Another scheduler notes that it evicts pods of a group."""
    annotations = {names.LAST_EVICTION_TIMESTAMP_ANNOTATION: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    await lab.client.patch(resources.POD_GROUPS, group, {"metadata": {"annotations": annotations}}, "default")


async def evict(lab: SchedulerCluster, group: str, pod: str, *, grace_s: int = 30) -> None:
    """Another scheduler evicts a pod: it marks the group, and deletes the pod."""
    await mark_evicted(lab, group)
    await lab.client.delete(resources.PODS, pod, "default", grace_s=grace_s)


def counted(scheduler: Scheduler, name: str, **labels: str) -> float:
    """A counter of the shadow."""
    found = scheduler.metrics.registry.get_sample_value(f"kai_shadow_{name}_total", labels)
    return found or 0.0


async def test_it_writes_nothing_whatever_it_decides(said: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as lab:
        await an_unfair_cluster(lab)
        await lab.node("b", cpu="4")
        await lab.gang("train", pods=3, cpu="1")
        await lab.gang("big", pods=1, gpu=7)
        await lab.gang("shared", pods=1, annotations={"gpu-fraction": "0.5"})
        await lab.group("elsewhere", queue="nowhere")
        before = await versions(lab)
        async with shadow(lab) as scheduler:
            await until_said(said, "would bind default/train-", 3)
            await until_said(said, "would evict")
            await until_said(said, "cannot place default/big")
            await cycles(scheduler)
        assert await versions(lab) == before
        assert len(lines(said)) == len(set(lines(said)))
        assert len(lines(said, "would bind default/train-")) == 3


async def test_each_decision_is_one_line(said: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.gang("train", pods=2, gpu=1)
        await lab.gang("big", pods=1, gpu=7)
        async with shadow(lab) as scheduler:
            await until_said(said, "would bind", 2)
            await until_said(said, "cannot place")
            await cycles(scheduler)
            assert lines(said, "would bind") == [
                "would bind default/train-0 to a (queue team, gang default/train)",
                "would bind default/train-1 to a (queue team, gang default/train)",
            ]
            (refusal,) = lines(said, "cannot place")
            assert refusal.startswith("cannot place default/big: ")
            assert "nvidia.com/gpu" in refusal or "GPU" in refusal
            assert counted(scheduler, "decisions", kind="bind") == 2
            assert counted(scheduler, "decisions", kind="cannot place") == 1


async def test_a_victim_is_named_with_its_reason_and_stays(said: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as lab:
        await an_unfair_cluster(lab)
        async with shadow(lab) as scheduler:
            (line,) = await until_said(said, "would evict")
            await cycles(scheduler)
            assert lines(said, "would evict") == [line]
            assert " from a (reclaim for default/needy) because " in line
            assert lines(said, "would keep") == ["would keep default/needy-0 for a until there is room"]
            victim = line.split()[2].removeprefix("default/")
            assert victim in {"greedy0-0", "greedy1-0"}
            await evict(lab, victim.removesuffix("-0"), victim, grace_s=0)
            await until_said(said, "would bind default/needy-0 to a")
            assert counted(scheduler, "comparisons", kind="evict", outcome="agreed") == 1


async def test_where_another_scheduler_bound_a_pod_is_where_it_is(said: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as lab:
        for name in ("a", "b"):
            await lab.node(name, gpus=1)
        await lab.gang("job", pods=1, gpu=1)
        async with shadow(lab) as scheduler:
            (line,) = await until_said(said, "would bind default/job-0")
            chosen = line.split()[4]
            other = {"a": "b", "b": "a"}[chosen]
            await bind(lab, "job-0", other)
            assert await until_said(said, "default/job-0") == [
                f"default/job-0 was bound to {other} by another scheduler; the shadow chose {chosen}"
            ]
            await lab.gang("next", pods=1, gpu=1)
            await until_said(said, f"would bind default/next-0 to {chosen}")
            await bind(lab, "next-0", chosen)
            await lab.until_bound("next", 1)
            await until_counted(scheduler, kind="bind", outcome="agreed")
            assert counted(scheduler, "comparisons", kind="bind", outcome="differed") == 1


async def test_a_bind_request_of_another_scheduler_counts_before_the_pod_is_bound(
    said: pytest.LogCaptureFixture,
) -> None:
    async with scheduler_cluster() as lab:
        for name in ("a", "b"):
            await lab.node(name, gpus=1)
        await lab.gang("job", pods=1, gpu=1)
        async with shadow(lab) as scheduler:
            (line,) = await until_said(said, "would bind default/job-0")
            chosen = line.split()[4]
            other = {"a": "b", "b": "a"}[chosen]
            await request(lab, "job-0", other)
            await until_said(said, f"default/job-0 was bound to {other} by another scheduler")
            await lab.gang("next", pods=1, gpu=1)
            await until_said(said, f"would bind default/next-0 to {chosen}")
            await bind(lab, "job-0", other)
            await lab.until_bound("job", 1)
            await cycles(scheduler)
            assert counted(scheduler, "comparisons", kind="bind", outcome="differed") == 1


async def test_a_pod_nominated_by_another_scheduler(said: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.gang("big", pods=1, gpu=7)
        async with shadow(lab) as scheduler:
            await until_said(said, "cannot place default/big")
            await bind(lab, "big-0", "a")
            (line,) = await until_said(said, "default/big-0 was bound to a")
            assert "; the shadow found no place: " in line
            assert counted(scheduler, "comparisons", kind="bind", outcome="differed") == 1


async def test_decisions_that_are_not_carried_out_expire(said: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=1)
        await lab.gang("job", pods=1, gpu=1)
        async with shadow(lab, patience_s=0.0) as scheduler:
            await until_said(said, "would bind default/job-0 to a")
            # Given up and decided again many times, and logged once.
            await cycles(scheduler, 10)
            await until_counted(scheduler, kind="bind", outcome="expired")
            assert len(lines(said, "would bind")) == 1
            assert counted(scheduler, "comparisons", kind="bind", outcome="expired") == 1
            await lab.node("b", gpus=1)
            await lab.client.patch(resources.NODES, "a", {"spec": {"unschedulable": True}})
            await until_said(said, "would bind default/job-0 to b")


async def test_an_eviction_that_is_not_carried_out_is_logged_once(said: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as lab:
        await an_unfair_cluster(lab)
        async with shadow(lab, patience_s=0.0) as scheduler:
            (line,) = await until_said(said, "would evict")
            await cycles(scheduler, 10)
            assert lines(said, "would evict") == [line]
            assert counted(scheduler, "comparisons", kind="evict", outcome="expired") == 1


async def test_failed_cycles_and_rebuilt_tables_repeat_nothing(said: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        await lab.gang("train", pods=2, gpu=1)
        async with shadow(lab) as scheduler:
            await until_said(said, "would bind", 2)
            told = lines(said, "would bind")
            old = scheduler.intake.tables
            async with scheduler.loop.engine_lock:
                scheduler.intake.rebuild_tables()
            assert scheduler.intake.tables is not old
            assert isinstance(scheduler.intake.tables, core_tables.Tables)
            await cycles(scheduler)
            assert lines(said, "would bind") == told
        async with shadow(lab) as scheduler:
            # Another shadow does not know the first.
            await until_said(said, "would bind", 4)


async def test_only_pods_of_the_scheduler_it_shadows_count(said: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2)
        for name, scheduler_name in (("ours", names.SCHEDULER_NAME), ("theirs", "other-scheduler")):
            await lab.group(name)
            await lab.pod(f"{name}-0", name, gpu=1, schedulerName=scheduler_name)
        async with shadow(lab) as scheduler:
            await until_said(said, "would bind default/ours-0")
            await cycles(scheduler)
            assert not lines(said, "would bind default/theirs-0")
            await bind(lab, "theirs-0", "a")
            await cycles(scheduler)
        said.clear()
        async with shadow(lab, scheduler_name="other-scheduler") as scheduler:
            await lab.group("more")
            await lab.pod("more-0", "more", gpu=1, schedulerName="other-scheduler")
            await until_said(said, "would bind default/more-0")
            assert not lines(said, "would bind default/ours-0")


async def test_it_takes_no_lease(said: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as lab:
        await ensure_namespace(lab.client, "kai-scheduler")
        await lab.node("a", gpus=1)
        await lab.gang("job", pods=1, gpu=1)
        before = await versions(lab)
        async with shadow(lab, leader_elect=True):
            await until_said(said, "would bind default/job-0")
        assert await versions(lab) == before


async def test_its_client_cannot_write() -> None:
    async with api_server(Clock()) as server:
        guard = ReadOnlyTransport(server.transport())
        client = Client(guard)
        pods = resources.PODS
        for write in (
            client.create(pods, {"metadata": {"name": "p", "namespace": "default"}}),
            client.patch(pods, "p", {}, "default"),
            client.patch(pods, "p", {}, "default", kind=PatchKind.STRATEGIC, subresource="status"),
            client.delete(pods, "p", "default"),
            client.bind("default", "p", uid="u", node="n"),
        ):
            with pytest.raises(Forbidden, match="this process only reads"):
                await write
        with pytest.raises(Forbidden):
            guard.stream(Request("POST", "/api/v1/pods"))
        assert guard.refused_writes == 6
        assert await client.list_raw(resources.NAMESPACES)


async def test_a_shadow_has_such_a_client() -> None:
    async with scheduler_cluster() as lab:
        scheduler = lab.make_scheduler(shadow="true")
        with pytest.raises(Forbidden, match="this process only reads"):
            await scheduler._runtime.client.create(resources.NODES, {"metadata": {"name": "n"}})
        assert lab.faults.writes == []


@pytest.mark.parametrize(("value", "shadows"), [("true", True), ("T", True), ("false", False), ("0", False)])
def test_the_shadow_flag_takes_booleans_as_go_spells_them(value: str, shadows: bool) -> None:
    assert read_flags({"shadow": value}).other["shadow"] is shadows


@pytest.mark.parametrize("value", ["yes", "", "flase"])
def test_a_misspelt_value_stops_the_start(value: str) -> None:
    """`kai run` starts nothing while there are problems."""
    (problem,) = read_flags({"shadow": value}).problems
    assert (problem.subject, problem.field) == ("scheduler flags", "--shadow")


async def bind(lab: SchedulerCluster, pod: str, node: str) -> None:
    """Another scheduler binds a pod."""
    found = await lab.client.get_raw(resources.PODS, pod, "default")
    await lab.client.bind("default", pod, uid=found["metadata"]["uid"], node=node)


async def request(lab: SchedulerCluster, pod: str, node: str) -> None:
    """Another scheduler asks its binder to bind a pod."""
    found = await lab.client.get_raw(resources.PODS, pod, "default")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": found["metadata"]["uid"]}
    spec = {"podName": pod, "selectedNode": node, "receivedResourceType": "Regular", "receivedGPU": {"count": 1}}
    await lab.create(resources.BIND_REQUESTS, {"metadata": {"name": pod, "ownerReferences": [owner]}, "spec": spec})


async def until_counted(scheduler: Scheduler, **labels: str) -> None:
    """Wait until something was compared."""
    async with asyncio.timeout(10):
        while not counted(scheduler, "comparisons", **labels):
            await asyncio.sleep(0.005)
