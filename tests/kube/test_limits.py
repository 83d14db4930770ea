"""Slots: so many at a time, and never all of them for one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from pykai.kube.client import Client
from pykai.kube.limits import FairSemaphore, may_take_slot
from pykai.kube.resources import PODS
from tests.kube.fakes import FakeServer, pod
from tests.kube.lagging import HangingTransport


class Crowd:
    """Waiters for slots, and the holders in order."""

    def __init__(self, total: int) -> None:
        self.slots = FairSemaphore(total)
        self.inside: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._ends: dict[str, asyncio.Event] = {}

    async def comes(self, *names: str) -> None:
        """One after the other, `owner` or `owner-1`, ..."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks.append(asyncio.create_task(self._stay(name), name=name))
        await self.settled()

    async def goes(self, name: str) -> None:
        self._ends[name].set()
        await self.settled()

    async def loses_patience(self, name: str) -> None:
        (task,) = [task for task in self.tasks if task.get_name() == name]
        task.cancel()
        await self.settled()

    async def settled(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def _stay(self, name: str) -> None:
        async with self.slots.slot(name.partition("-")[0]):
            self.inside.append(name)
            await self._ends[name].wait()
            self.inside.remove(name)


@pytest.mark.parametrize(("total", "most"), [(1, 1), (2, 1), (3, 2), (5, 4), (10, 8), (80, 64), (128, 102)])
def test_how_many_one_may_have(total: int, most: int) -> None:
    held = 0
    while may_take_slot(held, total - held):
        held += 1
    assert held == most


async def test_a_long_holder_leaves_room_for_others() -> None:
    crowd = Crowd(6)
    await crowd.comes(*(f"slow-{number}" for number in range(20)))
    assert len(crowd.inside) == 4
    await crowd.comes("a-0", "b-0")
    assert {"a-0", "b-0"} <= set(crowd.inside)


async def test_waiters_take_turns_and_all_get_in() -> None:
    crowd = Crowd(1)
    await crowd.comes("a-0", "a-1", "a-2", "b-0", "b-1", "c-0")
    seen = []
    while crowd.inside:
        seen += crowd.inside
        await crowd.goes(crowd.inside[0])
    assert seen == ["a-0", "a-1", "b-0", "c-0", "a-2", "b-1"]


async def test_a_slot_is_not_lost_with_a_cancelled_waiter() -> None:
    crowd = Crowd(1)
    await crowd.comes("a-0", "a-1", "b-0")
    await crowd.loses_patience("a-1")
    await crowd.goes("a-0")
    assert crowd.inside == ["b-0"]
    await crowd.goes("b-0")
    async with asyncio.timeout(1), crowd.slots.slot("c"):
        pass


async def test_a_slot_that_comes_at_the_moment_of_leaving_goes_to_the_next() -> None:
    crowd = Crowd(1)
    await crowd.comes("a-0", "a-1", "b-0")
    (late,) = [task for task in crowd.tasks if task.get_name() == "a-1"]
    async with AsyncExitStack() as moment:
        moment.callback(late.cancel)
        crowd._ends["a-0"].set()
        while "a-0" in crowd.inside:
            await asyncio.sleep(0)
    await crowd.settled()
    assert crowd.inside == ["b-0"]


async def test_a_namespace_whose_writes_hang_does_not_stop_the_others() -> None:
    server = FakeServer()
    server.put(pod("p", "default"))
    wire = HangingTransport(server)
    client = Client(wire)
    stuck = [
        asyncio.create_task(client.bind("slow", f"p{number}", uid="u", node="n"), name=str(number))
        for number in range(200)
    ]
    await wire.until_hung(102)
    async with asyncio.timeout(10):
        await client.get_raw(PODS, "p", "default")
    assert wire.hung == 102
    for task in stuck:
        task.cancel()
    await asyncio.gather(*stuck, return_exceptions=True)
