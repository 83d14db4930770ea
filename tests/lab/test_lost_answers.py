"""Whatever single write gets lost, and whenever everything dies: the end is the same."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api import names
from pykai.kube.clock import Clock
from pykai.kube.resources import DEPLOYMENTS, JOBS
from pykai.lab.apiserver.server import ApiServer
from pykai.lab.machines.options import MachineOptions
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from tests.lab.controllers.test_deployments import deployed, deployment
from tests.lab.controllers.test_jobs import is_complete, job
from tests.lab.lostanswers import AnswerLosingTransport
from tests.lab.simulatedcluster import Process, SimulatedCluster

OPTIONS = MachineOptions(BehaviourDefaults(run_s=2, stop_s=0), default_scheduler=False)


async def start(nth: int, *, carried_out: bool) -> tuple[SimulatedCluster, AnswerLosingTransport]:
    clock = Clock(speed=500)
    server = await ApiServer.open(clock=clock)
    w = SimulatedCluster(server, clock, OPTIONS)
    losing = AnswerLosingTransport(server.transport(), nth, carried_out=carried_out)
    w.process = Process(losing, clock, OPTIONS)
    await w.caches.start()
    await w.caches.wait_for_sync()
    await w.process.start()
    return w, losing


async def end(w: SimulatedCluster) -> None:
    await w.process.stop()
    await w.caches.stop()
    await w.server.close()


def each_device_once(history: list[Any]) -> bool:
    """Whether no two pods ran with one device at a time."""
    holders: dict[str, str] = {}
    for version in history:
        device = version.metadata.annotations.get(names.DEVICES_ANNOTATION)
        if device is None:
            continue
        if version.status.phase != "Running":
            holders = {held: uid for held, uid in holders.items() if uid != version.metadata.uid}
        elif holders.setdefault(device, version.metadata.uid) != version.metadata.uid:
            return False
    return True


async def run_a_job(nth: int, *, carried_out: bool) -> int:
    """Run a Job to its end while one write is lost; how many writes there were."""
    w, losing = await start(nth, carried_out=carried_out)
    try:
        await w.node("n1", gpus=2)
        w.binds_to("n1")
        await w.create(JOBS, job(parallelism=2, completions=3, pods={"gpus": 1}))
        done = await w.wait_for_job("j", is_complete)
        assert (done.status.succeeded, done.status.failed) == (3, 0)
        succeeded = {version.metadata.uid for version in w.history if version.status.phase == "Succeeded"}
        assert len(succeeded) == 3
        assert each_device_once(w.history)
    finally:
        await end(w)
    return losing.writes


@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_job_ends_as_it_should_whichever_write_is_lost(carried_out: bool) -> None:
    writes = await run_a_job(10**9, carried_out=carried_out)
    for nth in range(writes):
        await run_a_job(nth, carried_out=carried_out)


@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_deployment_is_rolled_out_whichever_write_is_lost(carried_out: bool) -> None:
    for nth in range(12):
        w, _ = await start(nth, carried_out=carried_out)
        try:
            await w.node("n1")
            w.binds_to("n1")
            await w.create(DEPLOYMENTS, deployment(replicas=2))
            await deployed(w, 2)
            await w.pods.wait_until(lambda s: len(s) == 2)
        finally:
            await end(w)


async def test_killed_again_and_again_a_job_still_runs_each_pod_once() -> None:
    w, _ = await start(10**9, carried_out=True)
    try:
        await w.node("n1", gpus=4)
        w.binds_to("n1")
        await w.create(JOBS, job(parallelism=4, completions=8, pods={"gpus": 1}))
        for succeeded in range(1, 8, 2):
            await w.pods.wait_until(
                lambda s, n=succeeded: sum(p.status.phase == "Succeeded" for p in s.values()) >= n  # type: ignore[misc]
            )
            await w.restart()
        done = await w.wait_for_job("j", is_complete)
        assert (done.status.succeeded, done.status.failed) == (8, 0)
        assert not [v for v in w.history if v.status.phase == "Failed"]
        assert each_device_once(w.history)
    finally:
        await end(w)
