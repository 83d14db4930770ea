"""How long a follower waits, and for what, in time that passes only when it is waited for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pykai.api.core import Pod
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.reflector import Reflector, WatchSelection
from pykai.kube.resources import PODS
from pykai.kube.store import Store
from tests.kube.fakes import FakeServer, pod, status
from tests.kube.faketime import in_fake_time


@asynccontextmanager
async def following(
    server: FakeServer, *, optional: bool = False, absent_pause_s: float | None = None
) -> AsyncIterator[Store[Pod]]:
    store = Store(PODS, Pod)
    reflector = Reflector(Client(server), WatchSelection(PODS), store, optional=optional, absent_pause_s=absent_pause_s)
    task = asyncio.ensure_future(reflector.run())
    try:
        yield store
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def now() -> float:
    return asyncio.get_running_loop().time() - 1000


def watches(server: FakeServer) -> int:
    return sum("watch" in request.query for request in server.requests)


def test_watches_ask_for_bookmarks_and_for_a_time_drawn_at_random() -> None:
    async def story() -> None:
        server = FakeServer()
        async with following(server):
            for number in range(20):
                await server.watched(number + 1)
                server.bookmark()
                await asyncio.sleep(2)
                server.end_watches()
        asked = [request.query for request in server.requests if "watch" in request.query]
        assert all(query["allowWatchBookmarks"] == "true" for query in asked)
        times = [int(query["timeoutSeconds"]) for query in asked]
        assert all(300 <= time <= 600 for time in times)
        assert len(set(times)) > 5

    in_fake_time(story())


def test_bookmarks_keep_a_quiet_watch_alive() -> None:
    async def story() -> None:
        server = FakeServer()
        async with following(server):
            await server.watched()
            for _ in range(20):
                await asyncio.sleep(60)
                server.bookmark()
            assert watches(server) == 1

    in_fake_time(story())


def test_silence_ends_a_watch_after_ninety_seconds_and_pauses_do_not_grow() -> None:
    async def story() -> None:
        server = FakeServer()
        async with following(server) as store:
            await asyncio.sleep(89)
            assert watches(server) == 1
            # A server without bookmarks, and nothing to tell.
            await asyncio.sleep(5000)
            assert watches(server) >= 54
            server.mute()
            server.put(pod("a"))
            began_s = now()
            await store.wait_until(lambda s: len(s) == 1, 1000)
            assert now() - began_s <= 91

    in_fake_time(story())


def test_a_dead_server_is_asked_less_and_less_often() -> None:
    async def story() -> None:
        server = FakeServer()
        async with following(server) as store:
            await server.watched()
            server.lose(times=10_000)
            server.drop_watches()
            await asyncio.sleep(3600)
            assert 3600 / 30 <= watches(server) <= 3600 / 15 + 20
            server._planned.clear()
            server.put(pod("a"))
            await store.wait_until(lambda s: len(s) == 1, 31)

    in_fake_time(story())


def test_a_kind_is_listed_again_every_hour_or_so() -> None:
    """What a watch never brought is made up for."""

    async def story() -> None:
        server = FakeServer()
        async with following(server):
            await server.watched()
            for number in range(4 * 60):
                await asyncio.sleep(60)
                server.put(pod(f"pod-{number}"))
                if number % 5 == 4:
                    server.end_watches()
            assert 4 <= server.lists() <= 9

    in_fake_time(story())


def test_a_server_that_is_away_is_asked_for_no_lists() -> None:
    """Lists are made again every hour or so, but the first thing a server needs when it is back is not a list."""

    async def story() -> None:
        server = FakeServer()
        async with following(server):
            await server.watched()
            server.lose(times=10_000)
            server.drop_watches()
            await asyncio.sleep(3 * 3600)
            assert server.lists() == 1

    in_fake_time(story())


def test_what_the_server_asks_to_wait_is_waited() -> None:
    async def story() -> None:
        server = FakeServer()
        server.answer(status(429, "TooManyRequests", retry_after_s=120), watch=True)
        async with following(server):
            await asyncio.sleep(119)
            assert watches(server) == 1
            await asyncio.sleep(2)
            assert watches(server) == 2

    in_fake_time(story())


def test_watches_that_end_at_once_are_not_hammered() -> None:
    async def story() -> None:
        server = FakeServer()
        server.answer(status(200), times=1000, watch=True)
        async with following(server):
            await asyncio.sleep(600)
            assert 20 <= watches(server) <= 60

    in_fake_time(story())


def test_a_server_that_always_says_gone_is_not_hammered() -> None:
    async def story() -> None:
        server = FakeServer()
        server.answer(status(410, "Expired"), times=10_000, watch=True)
        async with following(server):
            await asyncio.sleep(600)
            assert server.lists() <= 60

    in_fake_time(story())


def test_a_server_that_comes_back_without_history_is_listed_at_once() -> None:
    async def story() -> None:
        server = FakeServer()
        async with following(server):
            await server.watched()
            server.lose(times=10, watch=True)
            server.answer(status(410, "Expired"), watch=True)
            server.drop_watches()
            while watches(server) < 12:
                await asyncio.sleep(0.1)
            back_s = now()
            while watches(server) < 13:
                await asyncio.sleep(0.1)
            assert server.lists() == 2
            assert now() - back_s <= 0.2

    in_fake_time(story())


def test_an_optional_kind_is_found_when_it_comes() -> None:
    async def story() -> None:
        server = FakeServer()
        server.answer(status(404, "NotFound"), times=3)
        server.put(pod("a"))
        async with following(server, optional=True) as store:
            await store.synced.wait()
            assert len(store) == 0
            await store.wait_until(lambda s: len(s) == 1, 100)

    in_fake_time(story())


def test_an_absent_kind_is_looked_for_no_more_often_than_asked() -> None:
    """workloads:KT-2, T-117."""

    async def story() -> None:
        server = FakeServer()
        server.answer(status(404, "NotFound"), times=3)
        server.put(pod("a"))
        async with following(server, optional=True, absent_pause_s=60) as store:
            await store.synced.wait()
            for minutes in range(1, 4):
                await asyncio.sleep(60 * minutes - now() - 0.5)
                assert server.lists() <= minutes
            await store.wait_until(lambda s: len(s) == 1, 200)

    in_fake_time(story())


def test_a_kind_that_must_be_there_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        server = FakeServer()
        server.answer(status(404, "NotFound"), times=3)
        async with following(server) as store:
            await asyncio.sleep(0.1)
            assert not store.synced.is_set()
            await store.synced.wait()

    in_fake_time(story())
    assert "pods: the server does not serve v1 (is its CustomResourceDefinition installed?)" in caplog.text


def test_a_kind_of_which_there_is_no_news_is_no_cause_for_alarm(caplog: pytest.LogCaptureFixture) -> None:
    """A real API server sends no bookmarks of a kind before its first event."""

    async def story() -> None:
        server = FakeServer()
        async with following(server):
            await asyncio.sleep(300)
            assert (server.lists(), watches(server)) == (1, 4)

    in_fake_time(story())
    assert not caplog.records


def test_a_mistake_in_one_watch_starts_it_over() -> None:
    async def story() -> None:
        server = FakeServer()
        server.put(pod("a"))
        server.answer(RuntimeError("broken on purpose"))
        caches = Caches(Client(server))
        store = caches.store(PODS, Pod)
        await caches.start()
        await caches.wait_for_sync()
        assert len(store) == 1
        await caches.stop()

    in_fake_time(story())


def test_a_burst_leaves_the_loop_to_others() -> None:
    async def story() -> None:
        server = FakeServer()
        async with following(server) as store:
            await server.watched()
            lines = []
            for number in range(1000):
                document = pod(f"p{number}")
                document["metadata"]["resourceVersion"] = str(1000 + number)
                lines.append(json.dumps({"type": "ADDED", "object": document}).encode())
            server.say(b"\n".join(lines) + b"\n")
            most = 0
            before = 0
            while len(store) < 1000:
                await asyncio.sleep(0)
                most = max(most, len(store) - before)
                before = len(store)
            assert most <= 64

    in_fake_time(story())
