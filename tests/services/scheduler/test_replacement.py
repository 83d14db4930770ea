"""A scheduler whose ConfigMap changes goes on with it at once, and decides nothing once its replacement is ordered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pykai.api import names
from pykai.core.plugins.scores import NodePlacement
from pykai.kube import resources
from pykai.kube.client import PatchKind
from pykai.kube.errors import LeaseLost
from pykai.scheduler.service import Scheduler
from tests.services.scheduler.schedulercluster import SchedulerCluster, scheduler_cluster

NS = names.DEFAULT_NAMESPACE
MAP = "kai-scheduler-default"
PACK = "tiers: [{plugins: [{name: predicates}, {name: nodeplacement, arguments: {cpu: binpack, gpu: binpack}}]}]\n"
SPREAD = PACK.replace("binpack", "spread")
BINDING = r"/binding$"


async def config_map(lab: SchedulerCluster, text: str, *args: str) -> None:
    """What the operator writes."""
    flags = [f"--scheduler-configmap={MAP}", "--schedule-period=200ms", *args]
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": MAP, "namespace": NS},
        "data": {"config.yaml": text, "args": json.dumps(flags)},
    }
    await lab.client.patch(
        resources.CONFIG_MAPS, MAP, obj, NS, kind=PatchKind.APPLY, field_manager="kai-operator", force=True
    )


@asynccontextmanager
async def at_work(**options: Any) -> AsyncIterator[tuple[SchedulerCluster, Scheduler]]:
    """Two nodes, and a scheduler that follows its ConfigMap."""
    async with scheduler_cluster() as lab:
        for node in ("a", "b"):
            await lab.node(node, gpus=4)
        await config_map(lab, PACK)
        async with lab.scheduler(scheduler_configmap=MAP, **options) as scheduler:
            yield lab, scheduler


def strategy(scheduler: Scheduler) -> str:
    """How GPUs are chosen."""
    (found,) = [each.plugin for each in scheduler.loop.policy.plugins if isinstance(each.plugin, NodePlacement)]
    return found.gpu


async def own_pod(lab: SchedulerCluster, name: str, finalizer: str = "") -> None:
    """The pod that a scheduler finds in its environment."""
    metadata: dict[str, Any] = {"name": name, "namespace": NS}
    if finalizer:
        metadata["finalizers"] = [finalizer]
    container = {"name": "main", "image": "example"}
    spec = {"schedulerName": "another", "containers": [container]}
    await lab.create(resources.PODS, {"metadata": metadata, "spec": spec})


def is_fenced(scheduler: Scheduler) -> bool:
    """Whether it may not write any more."""
    try:
        scheduler.succession.check()
    except LeaseLost as error:
        return "nothing is written any more" in str(error)
    return False


async def stops_deciding(scheduler: Scheduler) -> str:
    """Wait until it leads no more; why."""
    async with asyncio.timeout(20):
        await scheduler.succession.ordered.wait()
        while scheduler.leading:
            await asyncio.sleep(0.005)
    assert scheduler._why_not_ready() == f"it waits to be replaced: {scheduler.succession.why}"
    return scheduler.succession.why


async def test_e18_a_new_strategy_is_in_force_at_once() -> None:
    """operations:OD-10"""
    async with at_work() as (lab, scheduler):
        await lab.gang("first", pods=2, gpu=1)
        await lab.until_bound("first", 2)
        assert len(set(lab.placed("first").values())) == 1
        await config_map(lab, SPREAD)
        async with asyncio.timeout(20):
            while strategy(scheduler) != "spread":
                await asyncio.sleep(0.005)
        await lab.gang("second", pods=4, gpu=1)
        await lab.until_bound("second", 4)
        # The empty node first, then both in turn.
        assert len(set(lab.placed("second").values())) == 2
        assert scheduler.leading


async def test_the_mounted_file_may_be_older(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(SPREAD)
    async with at_work(scheduler_conf=str(file)) as (lab, scheduler):
        await lab.gang("first", pods=1, gpu=1)
        await lab.until_bound("first", 1)
        assert strategy(scheduler) == "binpack"


async def test_a_configuration_with_errors_changes_nothing_and_is_reported() -> None:
    async with at_work() as (lab, scheduler):
        await lab.gang("first", pods=1, gpu=1)
        await lab.until_bound("first", 1)
        await config_map(lab, "actions: alocate\n")
        async with asyncio.timeout(20):
            while not scheduler.loop.configuration.problems:
                await asyncio.sleep(0.005)
        (problem,) = scheduler.loop.configuration.problems
        assert problem.startswith(
            f"ConfigMap {NS}/{MAP}: scheduler configuration: actions[0]: unknown action 'alocate'"
        )
        assert strategy(scheduler) == "binpack"
        await config_map(lab, PACK)
        async with asyncio.timeout(20):
            while scheduler.loop.configuration.problems:
                await asyncio.sleep(0.005)


async def test_flags_that_can_be_reloaded_are_in_force_at_once() -> None:
    async with at_work() as (lab, scheduler):
        assert scheduler.loop.policy.max_consolidation_preemptees == 16
        await config_map(lab, PACK, "--max-consolidation-preemptees=3", "--v=5")
        async with asyncio.timeout(20):
            while scheduler.loop.policy.max_consolidation_preemptees != 3:
                await asyncio.sleep(0.005)
        assert not scheduler.succession.why
        await lab.gang("first", pods=1, gpu=1)
        await lab.until_bound("first", 1)


async def test_e19_a_flag_that_needs_a_new_process_stops_the_old_one() -> None:
    async with at_work() as (lab, scheduler):
        await lab.gang("first", pods=1, gpu=1)
        await lab.until_bound("first", 1)
        await config_map(lab, PACK, "--full-hierarchy-fairness=false", "--restrict-node-scheduling=true")
        why = await stops_deciding(scheduler)
        assert why == f"--restrict-node-scheduling, --full-hierarchy-fairness changed in ConfigMap {NS}/{MAP}"


async def test_flags_of_another_version_need_a_new_process() -> None:
    async with at_work() as (lab, scheduler):
        await config_map(lab, PACK, "--flag-of-tomorrow=1")
        assert await stops_deciding(scheduler) == f"--flag-of-tomorrow changed in ConfigMap {NS}/{MAP}"


async def test_a_pod_that_is_being_deleted_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "scheduler-0")
    async with at_work() as (lab, scheduler):
        await lab.gang("first", pods=1, gpu=1)
        await own_pod(lab, "scheduler-0", finalizer="example.com/hold")
        await lab.until_bound("first", 1)
        await lab.client.delete(resources.PODS, "scheduler-0", NS)
        assert await stops_deciding(scheduler) == f"its pod {NS}/scheduler-0 is being deleted"
        # What has begun may be finished.
        scheduler.succession.check()
        await lab.client.patch(resources.PODS, "scheduler-0", {"metadata": {"finalizers": None}}, NS)


async def test_a_process_that_has_not_seen_its_pod_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "scheduler-0")
    async with at_work() as (lab, scheduler):
        await scheduler.intake.wait_for_sync()
        async with asyncio.timeout(20):
            while scheduler._why_not_ready() != "its own pod has not been seen yet":
                await asyncio.sleep(0.005)
        assert not scheduler.leading
        await own_pod(lab, "scheduler-0")
        await lab.gang("first", pods=1, gpu=1)
        await lab.until_bound("first", 1)


async def test_a_pod_that_is_gone_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """operations:E-20: deleted by force, while its process goes on."""
    monkeypatch.setenv("POD_NAME", "scheduler-0")
    async with at_work() as (lab, scheduler):
        await own_pod(lab, "scheduler-0")
        await lab.gang("first", pods=1, gpu=1)
        await lab.until_bound("first", 1)
        await lab.client.delete(resources.PODS, "scheduler-0", NS, grace_s=0)
        # A real server may first show that the pod is being deleted.
        assert (await stops_deciding(scheduler)).startswith(f"its pod {NS}/scheduler-0 is ")
        async with asyncio.timeout(20):
            while not is_fenced(scheduler):
                await asyncio.sleep(0.005)
        written = len(lab.faults.writes)
        with pytest.raises(LeaseLost):
            await scheduler.recorder._client.patch(resources.PODS, "first-0", {"metadata": {"labels": None}}, "default")
        assert len(lab.faults.writes) == written


async def test_a_plan_that_was_made_meanwhile_is_dropped() -> None:
    async with at_work() as (lab, scheduler):
        await lab.gang("first", pods=1, gpu=1)
        await lab.until_bound("first", 1)
        loop = scheduler.loop
        async with loop.engine_lock:
            await lab.gang("second", pods=1, gpu=1)
            async with asyncio.timeout(20):
                # A cycle has begun, and waits for the engine.
                while "default/second-0" not in scheduler.intake.pods or loop._cycle_requested.is_set():
                    await asyncio.sleep(0.005)
            scheduler.succession.order("a test wants it")
        await stops_deciding(scheduler)
        assert loop.plan is not None
        assert [bind.pod for bind in loop.plan.binds] == ["second-0"]
        assert len(lab.faults.written("POST", BINDING)) == 1
        assert lab.placed("second") == {}
