"""Writes that hang in one namespace, behind a webhook that does not answer for one, leave the others alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pykai.core.model.shard import Shard
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.transport import Response
from pykai.scheduler.dispatch.bindplan import PendingBind
from pykai.scheduler.dispatch.bindwriter import BindOutcome, BindResult, BindWriter
from pykai.scheduler.dispatch.deletions import Deletions
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.status.statuswrites import StatusPatch, StatusWrites
from tests.kube.fakes import FakeServer, pod
from tests.kube.lagging import HangingTransport


class Scene:
    """A server, a transport that hangs in the namespace `slow`, and the requests stuck there."""

    def __init__(self) -> None:
        self.server = FakeServer()
        self.server.put(pod("p", uid="u"))
        self.wire = HangingTransport(self.server)
        self.client = Client(self.wire)
        self.tasks: list[asyncio.Task[Any]] = []


@contextmanager
def scene() -> Iterator[Scene]:
    made = Scene()
    try:
        yield made
    finally:
        for task in made.tasks:
            task.cancel()


@pytest.mark.parametrize("request_", [None, {"podName": "p", "selectedNode": "n"}], ids=["direct", "by the binder"])
async def test_binds(request_: dict[str, str] | None) -> None:
    with scene() as it:
        binding = BindWriter(it.client, Shard(), in_flight=6)

        async def places(namespace: str) -> BindResult:
            return await binding.write(namespace, PendingBind("p", "u", "n", request_), {})

        it.tasks += [asyncio.create_task(places("slow")) for _ in range(20)]
        await it.wire.until_hung(4)
        it.server.answer(Response(201, b'{"metadata": {"name": "p"}}'), to="POST")
        async with asyncio.timeout(10):
            assert (await places("default")).outcome is BindOutcome.PLACED
        assert it.wire.hung == 4


async def test_evictions() -> None:
    with scene() as it:
        intake = Intake(Caches(it.client), Shard())
        removals = Deletions(it.client, intake.pods, intake.statuses, Clock(), mark_disruption=False, in_flight=6)
        it.tasks += [asyncio.create_task(removals.delete_pod(f"slow/p{number}", "u", "why")) for number in range(20)]
        await it.wire.until_hung(4)
        async with asyncio.timeout(10):
            await removals.delete_pod("default/p", "u", "why")
        assert not it.server.objects


async def test_statuses() -> None:
    with scene() as it:
        writes = StatusWrites(it.client, workers=5)
        it.tasks.append(asyncio.create_task(writes.run(asyncio.Event())))
        # All kinds of writes about one namespace share its limit.
        for number in range(10):
            what = ("pod status", "pod labels", "group status")[number % 3]
            writes.put(f"{what} slow/p{number}", lambda: StatusPatch(resources.PODS, "slow", "p", {}))
        await it.wire.until_hung(4)
        told = asyncio.Event()
        writes.put(
            "pod status default/p", lambda: StatusPatch(resources.PODS, "default", "p", {}), lambda _: told.set()
        )
        async with asyncio.timeout(10):
            await told.wait()
        assert it.wire.hung == 4
