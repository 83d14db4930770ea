"""Services that run together: how they stop, and what happens when one of them fails."""

from __future__ import annotations

import asyncio

import pytest

from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import Unauthorized
from pykai.kube.resources import PODS
from pykai.kube.runtime import Runtime, run_services
from tests.kube.fakes import FakeServer, status


class Worker:
    """A service that does what a test wants."""

    def __init__(self, name: str, *, fails: bool = False, stubborn: bool = False) -> None:
        self.name = name
        self.began, self.ended = asyncio.Event(), asyncio.Event()
        self._fails, self._stubborn = fails, stubborn

    async def run(self, stop: asyncio.Event) -> None:
        self.began.set()
        if self._fails:
            raise RuntimeError(f"{self.name} broke")
        await stop.wait()
        if self._stubborn:
            await asyncio.Event().wait()
        self.ended.set()

    def ready(self) -> bool:
        return self.began.is_set()


def runtime(server: FakeServer | None = None) -> Runtime:
    client = Client(server or FakeServer())
    return Runtime(client, Caches(client), Clock())


async def test_services_are_stopped_and_awaited() -> None:
    stop, workers = asyncio.Event(), [Worker("a"), Worker("b")]
    running = asyncio.create_task(run_services(runtime(), workers, stop))
    for worker in workers:
        await worker.began.wait()
    stop.set()
    await running
    assert all(worker.ended.is_set() for worker in workers)


async def test_when_one_fails_the_others_finish_and_the_failure_is_reported() -> None:
    stop, good = asyncio.Event(), Worker("good")
    with pytest.raises(RuntimeError, match="bad broke"):
        await run_services(runtime(), [good, Worker("bad", fails=True)], stop)
    assert stop.is_set()
    assert good.ended.is_set()


async def test_one_that_does_not_stop_is_cancelled() -> None:
    stop, stubborn = asyncio.Event(), Worker("stubborn", stubborn=True)
    stop.set()
    await asyncio.wait_for(run_services(runtime(), [stubborn], stop, shutdown_timeout_s=0.01), 5)
    assert not stubborn.ended.is_set()


async def test_a_service_that_returns_early_is_no_failure() -> None:
    class Brief(Worker):
        async def run(self, stop: asyncio.Event) -> None:
            self.ended.set()

    stop, brief, other = asyncio.Event(), Brief("brief"), Worker("other")
    running = asyncio.create_task(run_services(runtime(), [brief, other], stop))
    await other.began.wait()
    assert brief.ended.is_set()
    assert not stop.is_set()
    stop.set()
    await running


async def test_a_process_that_the_server_knows_no_more_ends() -> None:
    server = FakeServer()
    server.answer(status(401, "Unauthorized"), times=10)
    shared = runtime(server)
    shared.caches.store(PODS, dict)
    with pytest.raises(Unauthorized):
        await asyncio.wait_for(run_services(shared, [Worker("a")], asyncio.Event()), 5)
