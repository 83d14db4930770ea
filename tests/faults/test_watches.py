"""Watches with late, repeated, reordered or lost events: caches recover, and nothing breaks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from pykai.kube.errors import ConnectionLost
from tests.faults.calls import Call
from tests.faults.story import SERVICES, tell
from tests.faults.wire import WatchDistortion


def lines(chunk: bytes) -> list[bytes]:
    """The events of a chunk; the embedded server never cuts one in two."""
    return chunk.splitlines(keepends=True)


async def late(call: Call, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Every event is seven seconds late."""
    coming: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    async def listen() -> None:
        async for chunk in chunks:
            coming.put_nowait((loop.time() + 7.0, chunk))

    listening = asyncio.create_task(listen())
    try:
        while True:
            due_s, chunk = await coming.get()
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            yield chunk
    finally:
        listening.cancel()


async def twice(call: Call, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Every event comes twice, with others in between."""
    last = b""
    async for chunk in chunks:
        yield chunk + last + chunk
        last = chunk


async def shuffled(call: Call, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Events that come close together come in any order."""
    draw = random.Random(str(call))
    async for chunk in chunks:
        held = lines(chunk)
        draw.shuffle(held)
        yield b"".join(held)


async def held_back(call: Call, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Every third event comes after the next one."""
    waiting = b""
    number = 0
    async for chunk in chunks:
        for line in lines(chunk):
            number += 1
            if number % 3 == 0 and not waiting:
                waiting = line
            else:
                yield line + waiting
                waiting = b""


async def cut(call: Call, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Every watch breaks after five events, in the middle of the sixth."""
    number = 0
    async for chunk in chunks:
        for line in lines(chunk):
            number += 1
            if number > 5:
                yield line[: len(line) // 2]
                raise ConnectionLost("injected: cut in the middle of an event")
            yield line


def leaving_out(nth: int) -> WatchDistortion:
    """Every n-th event of the first watch of a kind is lost, and the watch goes on."""

    async def twist(call: Call, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        number = 0
        async for chunk in chunks:
            for line in lines(chunk):
                number += 1
                if number % nth:
                    yield line

    return twist


TWISTS: dict[str, WatchDistortion] = {
    "late": late,
    "twice": twice,
    "shuffled": shuffled,
    "held back": held_back,
    "cut": cut,
}


def of(service: str, spoil: WatchDistortion) -> WatchDistortion:
    """Only the watches of one service are spoilt."""

    def twist(call: Call, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        return spoil(call, chunks) if call.service == service else chunks

    return twist


@pytest.mark.parametrize("name", TWISTS)
def test_watches_that_cannot_be_relied_on(name: str) -> None:
    told = tell(twist=TWISTS[name])
    assert told.problems() == []
    assert not told.restarts


@pytest.mark.parametrize("service", SERVICES)
def test_lost_events_are_recovered_by_the_next_list(service: str) -> None:
    told = tell(twist=of(service, leaving_out(7)))
    assert told.problems() == []
