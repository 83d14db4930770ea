"""Fair shares in the status of queues: what is written, how often, and what is not (status:fair-share)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pykai.api import names
from pykai.api.scheduling import Queue
from pykai.core.report.decisions import Plan, QueueFigures
from pykai.kube import resources
from pykai.kube.client import Client
from pykai.scheduler.intake.changes import CHANGE_FILTERS
from pykai.scheduler.service import Scheduler
from pykai.scheduler.status.fairshares import FairShares, fair_share_amounts, has_changed
from pykai.scheduler.status.statuswrites import StatusWrites
from tests.services.scheduler.schedulercluster import SchedulerCluster, refusal, scheduler_cluster

SECOND = 10**9
QUEUES = ("department", "team")
QUEUE_STATUS = r"/queues/[^/]+/status$"
NONE = (0.0, 0.0, 0.0)


def plan(at_s: float, *, cpu_milli: float = 0.0, memory: float = 0.0, queue: str = "team", gpus: float = 0.0) -> Plan:
    share = (cpu_milli, memory, gpus)
    figures = QueueFigures(queue, "", "", 0, share, NONE, NONE, NONE, NONE, NONE)
    return Plan(int(at_s * SECOND), (), (), (), (), (), (), (), (), (figures,), (), 0)


@asynccontextmanager
async def two_queues() -> AsyncIterator[SchedulerCluster]:
    async with scheduler_cluster() as lab:
        await lab.queues.wait_until(lambda store: all(name in store for name in QUEUES))
        yield lab


class Board:
    """A publisher with a pool of writes."""

    def __init__(self, lab: SchedulerCluster, interval_s: int) -> None:
        self.lab = lab
        self.writes = StatusWrites(Client(lab.faults))
        self.shares = FairShares(lab.queues, self.writes, interval_s * SECOND)

    async def tried(self, at_s: float, **figures: Any) -> int:
        """How many patches a plan leads to."""
        before = len(self.lab.faults.writes)
        self.shares.on_plan(plan(at_s, **figures))
        assert await self.writes.flush()
        return len(self.lab.faults.writes) - before


@asynccontextmanager
async def publishing(interval_s: int = 15) -> AsyncIterator[Board]:
    async with two_queues() as lab:
        board, stop = Board(lab, interval_s), asyncio.Event()
        writing = asyncio.create_task(board.writes.run(stop))
        yield board
        stop.set()
        await writing


def test_shares_are_in_devices_cores_and_bytes() -> None:
    """Rounded to what someone reads: hundredths of GPUs, thousandths of cores, megabytes."""
    (figures,) = plan(0, cpu_milli=2500.4, memory=3_000_400_000.0, gpus=1.3333).queues
    nano = 10**9
    assert fair_share_amounts(figures) == {
        "cpu": 2_500 * nano // 1000,
        "memory": 3_000_000_000 * nano,
        "gpu": 133 * nano // 100,
    }


def test_an_amount_without_end_is_left_out() -> None:
    (figures,) = plan(0, cpu_milli=float("inf"), memory=-1.0, gpus=2.0).queues
    assert fair_share_amounts(figures) == {"gpu": 2 * 10**9}


@pytest.mark.parametrize(
    ("listed", "changed"),
    [
        ({"gpu": "100"}, False),
        ({"gpu": "99"}, False),
        ({"gpu": "101"}, False),
        ({"gpu": "98.9"}, True),
        ({"gpu": "101.1"}, True),
        ({"gpu": "0"}, True),
        ({}, True),
        (None, True),
        ("rubbish", True),
        ({"gpu": "rubbish"}, True),
        ({"gpu": "100", "cpu": "1"}, True),
        ({"gpu": "100", "cpu": "rubbish"}, True),
    ],
)
def test_a_change_of_less_than_a_hundredth_is_none(listed: object, changed: bool) -> None:
    assert has_changed(listed, {"gpu": 100 * 10**9}) is changed


async def test_a_queue_is_written_once_an_interval_at_most() -> None:
    async with publishing() as board:
        assert await board.tried(100, gpus=1.0) == 1
        assert await board.tried(101, gpus=2.0) == 0
        assert await board.tried(114.9, gpus=3.0) == 0
        assert await board.tried(115, gpus=3.0) == 1
        assert (await shares(board.lab, "team"))["gpu"] == "3"


async def test_what_has_not_changed_is_not_written() -> None:
    async with publishing() as board:
        await board.tried(100, gpus=200.0)
        await board.lab.queues.wait_until(lambda store: shows(store.get("team"), gpu="200"))
        assert await board.tried(115, gpus=201.0) == 0
        assert await board.tried(130, gpus=203.0) == 1


async def test_a_clock_that_was_set_back_holds_nothing_up() -> None:
    async with publishing() as board:
        await board.tried(100, gpus=1.0)
        assert await board.tried(50, gpus=2.0) == 1


async def test_without_an_interval_nothing_is_written() -> None:
    async with publishing(interval_s=0) as board:
        assert await board.tried(100, gpus=1.0) == 0


async def test_a_queue_that_is_gone_is_not_written() -> None:
    async with publishing() as board:
        assert await board.tried(100, queue="gone", gpus=1.0) == 0


async def shares(lab: SchedulerCluster, queue: str) -> Any:
    found = await lab.client.get_raw(resources.QUEUES, queue)
    return found.get("status", {}).get("fairShare")


async def until_cycles(scheduler: Scheduler, count: int = 1) -> None:
    """Wait until so many cycles have begun to write."""
    done = asyncio.Event()
    seen: list[Plan] = []

    def listen(each: Plan) -> None:
        seen.append(each)
        if len(seen) >= count:
            done.set()

    scheduler.loop.plan_listeners.append(listen)
    await asyncio.wait_for(done.wait(), 30)


def shows(queue: Queue | None, **amounts: str) -> bool:
    status = queue.status if queue is not None else None
    listed = status.get("fairShare", {}) if isinstance(status, dict) else {}
    return amounts.items() <= listed.items()


async def test_what_queues_may_have_is_in_their_status_and_a_new_leader_repeats_nothing() -> None:
    async with two_queues() as lab:
        await lab.node("a", gpus=8)
        await lab.gang("train", pods=3, gpu=1)
        async with lab.scheduler():
            await lab.queues.wait_until(lambda store: all(shows(store.get(name), gpu="3") for name in QUEUES), 30)
        assert (await shares(lab, "team")).keys() == {"cpu", "memory", "gpu"}
        written = len(lab.faults.written("PATCH", QUEUE_STATUS))
        async with lab.scheduler() as second:
            await until_cycles(second)
            assert not len(second.writes)
        assert len(lab.faults.written("PATCH", QUEUE_STATUS)) == written


async def test_a_share_that_may_not_be_written_is_tried_seldom() -> None:
    """As under a role of KAI, which has no right to it."""
    async with publishing() as board:
        board.lab.faults.refuse("PATCH", QUEUE_STATUS, refusal(403, "Forbidden"))
        assert await board.tried(100, gpus=1.0) == 1
        for at_s in (115, 130, 699):
            assert await board.tried(at_s, gpus=1.0) == 0
        assert await board.tried(700, gpus=1.0) == 1
        board.lab.faults.heal()
        assert await board.tried(1300, gpus=1.0) == 1
        assert await board.tried(1315, gpus=2.0) == 1


async def test_a_shadow_publishes_nothing() -> None:
    async with two_queues() as lab:
        await lab.node("a", gpus=8)
        async with lab.scheduler(shadow="true") as scheduler:
            await until_cycles(scheduler)
            assert not len(scheduler.writes)


async def test_a_status_of_a_queue_starts_no_cycle() -> None:
    """The engine does not read it: what the queue controller and this publisher write would start one each."""
    async with two_queues() as lab:
        old = lab.queues.get("team")
        assert old is not None
        await lab.client.patch(resources.QUEUES, "team", {"status": {"fairShare": {"gpu": "1"}}}, subresource="status")
        await lab.queues.wait_until(lambda store: store.get("team") is not old)
        new = lab.queues.get("team")
        assert new is not None
        assert new.status != old.status
        differs = CHANGE_FILTERS["Queue"]
        assert not differs(old, new)
        await lab.client.patch(resources.QUEUES, "team", {"metadata": {"labels": {names.NODE_POOL_LABEL: "blue"}}})
        await lab.queues.wait_until(lambda store: store.get("team") is not new)
        assert differs(new, lab.queues.get("team"))
