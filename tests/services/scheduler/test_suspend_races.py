"""Suspended workloads while something else happens: no owner is forgotten, and no gang is half started."""

from __future__ import annotations

import asyncio

from pykai.api import names
from pykai.kube.resources import CONFIG_MAPS
from pykai.kube.transport import Request
from tests.services.scheduler.suspendcluster import SuspendCluster, suspend_cluster


class HeldWrite:
    """Keeps the writes with this method and part of a path from the server until they are let go."""

    def __init__(self, lab: SuspendCluster, method: str, part: str) -> None:
        self.begun, self._go_on = asyncio.Event(), asyncio.Event()
        self._method, self._part = method, part
        lab.cluster.faults.on_write = self._wait

    async def _wait(self, request: Request) -> None:
        if request.method == self._method and self._part in request.path:
            self.begun.set()
            await self._go_on.wait()

    async def wait(self) -> None:
        """Wait for the first of them."""
        async with asyncio.timeout(10):
            await self.begun.wait()

    def let_go(self) -> None:
        """Let all of them go on."""
        self._go_on.set()


async def resumed(lab: SuspendCluster) -> None:
    """Suspend the Job, then let it be resumed."""
    await lab.suspend()
    await lab.go_away()
    await lab.until_suspended(suspended=False)


async def test_the_end_of_a_record_does_not_end_the_next_one_of_the_group() -> None:
    """suspend:record"""
    async with suspend_cluster() as lab, lab.cluster.scheduler() as scheduler:
        await resumed(lab)
        deletion = HeldWrite(lab, "DELETE", "/configmaps/kai-suspended-workload")
        await lab.create_pods()
        await lab.cluster.until_bound("train", 2)
        await deletion.wait()
        await lab.cluster.gang("again", pods=1, queue="poor", gpu=4)
        await lab.cluster.wait_for_event("Pipelined", "again-0")
        for _ in range(5):
            await scheduler.loop.cycle()
            await lab.live_job()
        deletion.let_go()
        await lab.until_suspended()
        await scheduler.dispatcher.drain()
        live = await lab.client.list_raw(CONFIG_MAPS, namespace=names.DEFAULT_NAMESPACE)
        assert [each["data"]["owner"] for each in live if "owner" in each.get("data", {})] == ["Job/train"]
