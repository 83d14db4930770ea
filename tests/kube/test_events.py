"""Events: equal ones become one, floods stay small, nothing waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pykai.kube.client import Client
from pykai.kube.events import NORMAL, WARNING, EventRecorder, InvolvedObject
from pykai.kube.transport import Transport
from tests.kube.fakes import FakeServer, status
from tests.kube.faketime import LoopClock, in_fake_time
from tests.kube.lagging import HangingTransport

POD = InvolvedObject("v1", "Pod", "default", "train-0", "uid-1")


@asynccontextmanager
async def recording(server: Transport) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(Client(server), component="kai-scheduler", clock=LoopClock.of_2026())
    stop = asyncio.Event()
    task = asyncio.ensure_future(recorder.run(stop))
    try:
        yield recorder
    finally:
        stop.set()
        await task


def events(server: FakeServer) -> list[dict[str, Any]]:
    return [document for path, document in server.objects.items() if "/events/" in path]


def writes(server: FakeServer) -> list[str]:
    return [request.method for request in server.requests]


def test_what_an_event_says() -> None:
    async def story() -> None:
        server = FakeServer()
        async with recording(server) as recorder:
            recorder.event(POD, WARNING, "Unschedulable", "no GPUs", annotations={"a": "b"})
        (event,) = events(server)
        assert event["metadata"]["name"].startswith("train-0.")
        assert event["metadata"]["annotations"] == {"a": "b"}
        assert event["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "default",
            "name": "train-0",
            "uid": "uid-1",
        }
        assert (event["type"], event["reason"], event["message"]) == ("Warning", "Unschedulable", "no GPUs")
        assert event["source"] == {"component": "kai-scheduler"}
        assert event["count"] == 1
        assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T00:00:00Z"

    in_fake_time(story())


def test_equal_events_are_one_whose_count_grows() -> None:
    async def story() -> None:
        server = FakeServer()
        async with recording(server) as recorder:
            for _ in range(200):
                recorder.event(POD, WARNING, "Unschedulable", "no GPUs")
                await asyncio.sleep(0.1)
        (event,) = events(server)
        assert event["count"] == 200
        assert event["lastTimestamp"] == "2026-01-01T00:00:19Z"
        assert len(server.requests) <= 12

    in_fake_time(story())


def test_other_words_reasons_or_objects_are_other_events() -> None:
    async def story() -> None:
        server = FakeServer()
        async with recording(server) as recorder:
            recorder.event(POD, NORMAL, "Bound", "to n1")
            recorder.event(POD, NORMAL, "Bound", "to n2")
            recorder.event(POD, NORMAL, "Evicted", "to n1")
            recorder.event(InvolvedObject("v1", "Pod", "default", "train-0", "uid-2"), NORMAL, "Bound", "to n1")
        assert len(events(server)) == 4

    in_fake_time(story())


def test_after_ten_minutes_it_is_news_again() -> None:
    async def story() -> None:
        server = FakeServer()
        async with recording(server) as recorder:
            recorder.event(POD, NORMAL, "Bound", "to n1")
            await asyncio.sleep(601)
            recorder.event(POD, NORMAL, "Bound", "to n1")
        assert [event["count"] for event in events(server)] == [1, 1]

    in_fake_time(story())


def test_one_object_cannot_flood_the_server() -> None:
    async def story() -> None:
        server = FakeServer()
        async with recording(server) as recorder:
            for number in range(100):
                recorder.event(POD, WARNING, "Unschedulable", f"attempt {number}")
            await asyncio.sleep(1)
            assert len(events(server)) == 25
            assert recorder.dropped == 75
            recorder.event(InvolvedObject("v1", "Pod", "default", "other", "uid-9"), NORMAL, "Bound", "to n1")
            await asyncio.sleep(301)
            recorder.event(POD, WARNING, "Unschedulable", "again allowed")
        assert len(events(server)) == 27

    in_fake_time(story())


def test_an_expired_event_is_created_again() -> None:
    async def story() -> None:
        server = FakeServer()
        async with recording(server) as recorder:
            recorder.event(POD, WARNING, "Unschedulable", "no GPUs")
            await asyncio.sleep(1)
            for path in [path for path in server.objects if "/events/" in path]:
                del server.objects[path]
            recorder.event(POD, WARNING, "Unschedulable", "no GPUs")
        (event,) = events(server)
        assert event["count"] == 2

    in_fake_time(story())


def test_a_server_that_refuses_loses_only_that_event() -> None:
    async def story() -> None:
        server = FakeServer()
        server.answer(status(403, "Forbidden", "namespace is terminating"), to="POST")
        server.lose(to="POST")
        async with recording(server) as recorder:
            for name in ("a", "b", "c"):
                recorder.event(InvolvedObject("v1", "Pod", "default", name, name), NORMAL, "Bound", "to n1")
        assert [event["involvedObject"]["name"] for event in events(server)] == ["c"]

    in_fake_time(story())


def test_cluster_wide_objects_have_their_events_in_default() -> None:
    async def story() -> None:
        server = FakeServer()
        async with recording(server) as recorder:
            recorder.event(InvolvedObject("v1", "Node", "", "n1", "u"), WARNING, "LiesAboutGpus", "8 said, 4 there")
        (event,) = events(server)
        assert event["metadata"]["namespace"] == "default"
        assert "namespace" not in event["involvedObject"]

    in_fake_time(story())


def test_new_events_do_not_wait_for_growing_ones() -> None:
    async def story() -> None:
        server = FakeServer()
        async with recording(server) as recorder:
            recorder.event(POD, NORMAL, "Bound", "to n1")
            await asyncio.sleep(0.01)
            recorder.event(POD, NORMAL, "Bound", "to n1")
            await asyncio.sleep(0.01)
            recorder.event(POD, NORMAL, "Bound", "to n2")
            await asyncio.sleep(0.01)
            assert writes(server) == ["POST", "POST"]

    in_fake_time(story())


def test_overlong_names_and_messages_are_cut() -> None:
    async def story() -> None:
        server = FakeServer()
        async with recording(server) as recorder:
            recorder.event(InvolvedObject("v1", "Pod", "default", "x" * 253, "u"), NORMAL, "Bound", "m" * 5000)
        (event,) = events(server)
        assert len(event["metadata"]["name"]) <= 253
        assert len(event["message"]) == 1024

    in_fake_time(story())


def test_a_mistake_of_ours_costs_one_event() -> None:
    async def story() -> None:
        server = FakeServer()
        server.answer(RuntimeError("broken on purpose"), times=3)
        async with recording(server) as recorder:
            for number in range(3):
                recorder.event(POD, NORMAL, "Lost", str(number))
            await asyncio.sleep(1)
            recorder.event(POD, NORMAL, "Told", "")
            await asyncio.sleep(1)
            assert [event["reason"] for event in events(server)] == ["Told"]

    in_fake_time(story())


def test_events_that_hang_in_one_namespace_delay_no_others_and_not_the_end() -> None:
    async def story() -> None:
        server = FakeServer()
        loop = asyncio.get_running_loop()
        async with recording(HangingTransport(server)) as recorder:
            for number in range(10):
                recorder.event(InvolvedObject("v1", "Pod", "slow", f"p{number}", "u"), NORMAL, "Hangs", "")
            await asyncio.sleep(1)
            recorder.event(POD, NORMAL, "Told", "")
            await asyncio.sleep(1)
            assert [event["reason"] for event in events(server)] == ["Told"]
            told_s = loop.time()
        assert loop.time() - told_s <= 5

    in_fake_time(story())
