"""Watches: what they tell, from where, and how they end."""

from __future__ import annotations

import asyncio

import pytest

from pykai.kube.client import Client
from pykai.lab.apiserver import storage, watches
from pykai.lab.apiserver.server import ApiServer
from tests.lab.apiserver.apiclient import Api, config_map, pod
from tests.servers import Server, ensure_namespace


async def test_a_watch_sends_present_objects_and_changes(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    async with api.watch("configmaps") as watch:
        await api.create("configmaps", config_map("b"))
        await api.patch("configmaps", "a", {"data": {"x": "1"}})
        await api.delete("configmaps", "b")
        assert await watch.take(4) == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]


async def test_a_watch_from_a_revision_sends_later_changes(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    then = (await api.list("configmaps")).meta["resourceVersion"]
    await api.create("configmaps", config_map("b"))
    async with api.watch("configmaps", resourceVersion=then) as watch:
        await api.create("configmaps", config_map("c"))
        assert await watch.take(2) == [("ADDED", "b"), ("ADDED", "c")]


async def test_a_deletion_carries_its_own_revision(api: Api) -> None:
    created = await api.create("configmaps", config_map("a"))
    async with api.watch("configmaps", resourceVersion=created.meta["resourceVersion"]) as watch:
        await api.delete("configmaps", "a")
        _, obj = await watch.next()
        assert int(obj["metadata"]["resourceVersion"]) > int(created.meta["resourceVersion"])


async def test_a_watch_of_a_namespace_hears_nothing_of_others(api: Api) -> None:
    # Of its own: others hold what the API server or its controllers create there at some time.
    await ensure_namespace(Client(api.transport), "watched")
    async with api.watch("configmaps", "watched") as watch:
        await api.create("configmaps", config_map("a"))
        await api.create("configmaps", config_map("b"), namespace="watched")
        assert await watch.take(1) == [("ADDED", "b")]


async def test_objects_enter_and_leave_a_selector(api: Api) -> None:
    async with api.watch("configmaps", labelSelector="app=web") as watch:
        await api.create("configmaps", config_map("a"))
        await api.patch("configmaps", "a", {"metadata": {"labels": {"app": "web"}}})
        await api.patch("configmaps", "a", {"data": {"x": "1"}})
        left = await api.patch("configmaps", "a", {"metadata": {"labels": None}})
        await api.create("configmaps", config_map("b", labels={"app": "web"}))
        await api.delete("configmaps", "a")
        await api.delete("configmaps", "b")
        assert await watch.take(2) == [("ADDED", "a"), ("MODIFIED", "a")]
        type_, gone = await watch.next()
        assert type_ == "DELETED"
        assert gone["metadata"]["labels"] == {"app": "web"}
        assert gone["metadata"]["resourceVersion"] == left.meta["resourceVersion"]
        assert await watch.take(2) == [("ADDED", "b"), ("DELETED", "b")]


async def test_objects_enter_a_field_selector(api: Api) -> None:
    async with api.watch("pods", fieldSelector="spec.nodeName=n1") as watch:
        await api.create("pods", pod("a"))
        await api.bind("a", "n1")
        type_, obj = await watch.next()
        assert (type_, obj["spec"]["nodeName"]) == ("ADDED", "n1")


async def test_initial_events_end_with_a_bookmark(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with api.watch("configmaps", **query) as watch:
        assert await watch.take(1) == [("ADDED", "a")]
        type_, obj = await watch.next()
        assert type_ == "BOOKMARK"
        assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        revision = obj["metadata"]["resourceVersion"]
        assert revision == (await api.list("configmaps")).meta["resourceVersion"]
        await api.create("configmaps", config_map("b"))
        assert await watch.take(1) == [("ADDED", "b")]


async def test_initial_events_need_their_match(api: Api) -> None:
    refused = await api.list("configmaps", watch="true", sendInitialEvents="true")
    assert (refused.code, refused.body["reason"]) == (422, "Invalid")


async def test_bookmarks_are_sent_on_request(inside: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "BOOKMARK_S", 0.01)
    api = Api(inside.transport())
    then = (await api.list("configmaps")).meta["resourceVersion"]
    await api.create("secrets", {"metadata": {"name": "s"}})
    async with api.watch("configmaps", resourceVersion=then, allowWatchBookmarks="true") as watch:
        type_, obj = await watch.next()
        assert type_ == "BOOKMARK"
        assert obj["kind"] == "ConfigMap"
        assert int(obj["metadata"]["resourceVersion"]) > int(then)


async def test_a_forgotten_revision_is_410(api: Api, server: Server) -> None:
    then = (await api.create("secrets", {"metadata": {"name": "s"}})).meta["resourceVersion"]
    for text in ("MQ==", "Mg=="):
        await api.patch("secrets", "s", {"data": {"n": text}})
    server.compact()
    async with api.watch("secrets", resourceVersion=then, timeoutSeconds="5") as watch:
        type_, status = await watch.next()
        assert (type_, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        assert await watch.rest() == []


async def test_a_watch_that_falls_behind_ends_with_410(inside: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(inside.transport())
    await api.create("configmaps", config_map("a"))
    async with api.watch("configmaps", timeoutSeconds="1") as watch:
        assert await watch.take(1) == [("ADDED", "a")]
        monkeypatch.setattr(storage, "HISTORY_EVENTS", 4)
        for number in range(20):
            await api.patch("configmaps", "a", {"data": {"n": str(number)}})
        (type_, obj), *more = await watch.rest()
        assert (type_, obj["code"]) == ("ERROR", 410)
        assert more == []


async def test_a_watch_ends_when_its_time_is_over(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    async with api.watch("configmaps", timeoutSeconds="1") as watch:
        assert [type_ for type_, _ in await watch.rest()] == ["ADDED"]


async def test_many_watches_hear_the_same(api: Api) -> None:
    async def names() -> list[tuple[str, str]]:
        async with api.watch("configmaps") as watch:
            return await watch.take(20)

    listening = [asyncio.create_task(names()) for _ in range(5)]
    for number in range(20):
        await api.create("configmaps", config_map(f"c{number:02}"))
    heard = await asyncio.gather(*listening)
    assert heard == [[("ADDED", f"c{number:02}") for number in range(20)]] * 5


async def test_a_closed_server_ends_its_watches(inside: ApiServer) -> None:
    api = Api(inside.transport())
    async with api.watch("configmaps") as watch:
        waiting = asyncio.create_task(watch.rest())
        await asyncio.sleep(0)
        await inside.close()
        assert await waiting == []
