"""A store follows its server, whatever the connection and the server do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from pykai.api.core import Pod
from pykai.api.decode import DecodeError, decode_as
from pykai.kube.caches import Caches
from pykai.kube.client import PAGE_SIZE, Client
from pykai.kube.errors import Unauthorized
from pykai.kube.reflector import Reflector, WatchEvent, WatchSelection, WatchTimeouts
from pykai.kube.resources import PODS, Resource
from pykai.kube.store import Change, Store
from tests.kube.fakes import FakeServer, pod, status

QUICK = WatchTimeouts(idle_s=5.0, first_pause_s=0.005, longest_pause_s=0.02)


@asynccontextmanager
async def following(server: FakeServer, patience: WatchTimeouts = QUICK, **options: Any) -> AsyncIterator[Store[Pod]]:
    caches = Caches(Client(server), timeouts=patience)
    store = caches.store(PODS, Pod, **options)
    await caches.start()
    try:
        await caches.wait_for_sync()
        yield store
    finally:
        await caches.stop()


def names(store: Store[Pod]) -> list[str]:
    return sorted(obj.metadata.name for obj in store.values())


def told(store: Store[Pod]) -> list[str]:
    """The changes that subscribers get, as `+key`, `~key`, `-key`."""
    tale: list[str] = []

    def note(change: Change[Pod]) -> None:
        sign = "+" if change.old is None else "-" if change.new is None else "~"
        tale.append(sign + change.key)

    store.subscribe(note)
    return tale


def node_is(key: str, node: str) -> Callable[[Store[Pod]], bool]:
    def holds(store: Store[Pod]) -> bool:
        obj = store.get(key)
        return obj is not None and obj.spec.node_name == node

    return holds


async def test_a_list_and_then_its_changes() -> None:
    server = FakeServer()
    server.put(pod("a"))
    async with following(server) as store:
        tale = told(store)
        server.put(pod("b"))
        server.put(pod("a", node="n1"))
        server.remove("b")
        server.put(pod("c"))
        await store.wait_until(lambda s: s.get("default/c") is not None)
        assert tale == ["+default/a", "+default/b", "~default/a", "-default/b", "+default/c"]
        assert names(store) == ["a", "c"]


async def test_long_lists_come_in_pages() -> None:
    server = FakeServer()
    for number in range(1100):
        server.put(pod(f"p{number}"))
    async with following(server) as store:
        assert len(store) == 1100
        assert server.lists() == 3


async def test_a_list_that_expires_half_way_begins_again() -> None:
    server = FakeServer()
    for number in range(600):
        server.put(pod(f"p{number}"))
    plain = server.send
    answers = iter([None, status(410, "Expired")])

    async def send(request: Any) -> Any:
        planned = next(answers, None)
        return planned if planned is not None else await plain(request)

    server.send = send  # type: ignore[method-assign]
    async with following(server) as store:
        assert len(store) == 600


async def test_dropped_watches_resume_where_they_were() -> None:
    server = FakeServer()
    async with following(server) as store:
        for number in range(5):
            await server.watched(number + 1)
            server.put(pod(f"p{number}"))
            key = f"default/p{number}"
            await store.wait_until(lambda s, key=key: s.get(key) is not None)  # type: ignore[misc]
            server.drop_watches()
            server.put(pod(f"q{number}"))
        await store.wait_until(lambda s: len(s) == 10)
        assert server.lists() == 1


async def test_a_watch_that_ends_is_resumed_at_once() -> None:
    server = FakeServer()
    async with following(server, WatchTimeouts(first_pause_s=60)) as store:
        await server.watched(1)
        server.put(pod("a"))
        await store.wait_until(lambda s: len(s) == 1)
        server.end_watches()
        await server.watched(2)
        server.put(pod("b"))
        await store.wait_until(lambda s: len(s) == 2)


async def test_an_expired_version_lists_again_and_reports_the_difference() -> None:
    server = FakeServer()
    for name in ("stays", "changes", "goes"):
        server.put(pod(name))
    async with following(server) as store:
        await server.watched(1)
        tale = told(store)
        tale.clear()
        server.mute()
        server.put(pod("changes", node="n1"))
        server.remove("goes")
        server.put(pod("comes"))
        server.expire()
        server.drop_watches()
        await store.wait_until(lambda s: "default/comes" in s)
        # The list is complete when the watch after it brings something.
        server.put(pod("follows"))
        await store.wait_until(lambda s: "default/follows" in s)
        assert sorted(tale) == ["+default/comes", "+default/follows", "-default/goes", "~default/changes"]


async def test_an_error_event_of_410_lists_again() -> None:
    server = FakeServer()
    async with following(server) as store:
        await server.watched(1)
        server.say({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}})
        server.put(pod("a"))
        await server.watched(2)
        await store.wait_until(lambda s: len(s) == 1)
        assert server.lists() == 2


async def test_silence_is_a_dead_connection() -> None:
    server = FakeServer()
    async with following(server, WatchTimeouts(idle_s=0.05, first_pause_s=0.001)) as store:
        await server.watched(1)
        server.mute()
        server.put(pod("a"))
        await store.wait_until(lambda s: len(s) == 1, 5)
        assert server.lists() == 1


async def test_repeated_events_change_nothing() -> None:
    server = FakeServer()
    server.put(pod("a"))
    server.put(pod("a", node="n1"))
    async with following(server) as store:
        await server.watched(1)
        server.put(pod("a", node="n2"))
        await store.wait_until(node_is("default/a", "n2"))
        tale = told(store)
        tale.clear()
        for _, _, _, line in list(server.history):
            server.say(line)
        server.put(pod("end"))
        await store.wait_until(lambda s: "default/end" in s)
        assert tale == ["+default/end"]
        assert node_is("default/a", "n2")(store)
        assert server.lists() == 1


async def test_an_old_version_of_something_unknown_lists_again() -> None:
    server = FakeServer()
    server.put(pod("ghost"))
    old = server.history[-1][3]
    server.remove("ghost")
    async with following(server) as store:
        await server.watched(1)
        server.say(old)
        await server.watched(2)
        assert server.lists() == 2
        assert len(store) == 0


async def test_a_bookmark_that_goes_back_lists_again() -> None:
    server = FakeServer()
    async with following(server, WatchTimeouts(idle_s=60, first_pause_s=0.005)) as store:
        await server.watched(1)
        server.put(pod("a"))
        await store.wait_until(lambda s: len(s) == 1)
        server.objects.clear()
        server.bookmark(5)
        await store.wait_until(lambda s: len(s) == 0, 5)
        assert server.lists() == 2


async def test_bookmarks_move_the_place_to_resume_from() -> None:
    server = FakeServer()
    async with following(server):
        await server.watched(1)
        server.version = 5000
        server.bookmark()
        server.put(pod("other"), "/api/v1/nodes")
        server.end_watches()
        await server.watched(2)
        assert server.requests[-1].query["resourceVersion"] == "5000"


async def test_a_skipped_event_is_mended_by_the_resync() -> None:
    server = FakeServer()
    server.put(pod("a"))
    async with following(server, WatchTimeouts(resync_s=0.0, first_pause_s=0.001)) as store:
        await server.watched(1)
        watches = list(server.watches)
        server.watches.clear()
        server.remove("a")
        server.watches.extend(watches)
        server.bookmark()
        await store.wait_until(lambda s: len(s) == 0)


async def test_modified_of_something_unknown_is_an_addition() -> None:
    server = FakeServer()
    async with following(server) as store:
        await server.watched(1)
        tale = told(store)
        document = pod("a")
        document["metadata"]["resourceVersion"] = "900"
        server.say({"type": "MODIFIED", "object": document})
        await store.wait_until(lambda s: len(s) == 1)
        assert tale == ["+default/a"]


async def test_versions_that_are_no_numbers_always_count() -> None:
    server = FakeServer()
    async with following(server) as store:
        await server.watched(1)
        for version, node in (("b", "n1"), ("a", "n2")):
            document = pod("a", node=node)
            document["metadata"]["resourceVersion"] = version
            server.say({"type": "MODIFIED", "object": document})
        await store.wait_until(node_is("default/a", "n2"))


async def test_what_cannot_be_read_leaves_the_store_and_comes_back_mended() -> None:
    server = FakeServer()
    server.put(pod("a"))
    server.put(pod("b"))
    async with following(server) as store:
        tale = told(store)
        tale.clear()
        heard: list[tuple[str, bool]] = []

        def hear(key: str, problem: DecodeError | None) -> None:
            heard.append((key, problem is not None))

        store.on_problem(hear)
        server.put({**pod("a"), "spec": {"nodeName": 7}})
        await store.wait_until(lambda s: bool(s.problems))
        assert tale == ["-default/a"]
        assert "spec.nodeName" in str(store.problems["default/a"])
        server.put({**pod("a"), "spec": {"nodeName": "n1"}})
        await store.wait_until(node_is("default/a", "n1"))
        assert not store.problems
        assert heard == [("default/a", True), ("default/a", False)]


async def test_an_unreadable_object_in_the_list_hides_no_other() -> None:
    server = FakeServer()
    server.put({**pod("bad"), "spec": []})
    server.put(pod("good"))
    async with following(server) as store:
        assert names(store) == ["good"]
        assert list(store.problems) == ["default/bad"]
        server.remove("bad")
        await store.wait_until(lambda s: not s.problems)


async def test_a_failing_subscriber_affects_no_other() -> None:
    server = FakeServer()
    async with following(server) as store:
        await server.watched(1)

        def broken(_: Change[Pod]) -> None:
            raise RuntimeError("broken on purpose")

        store.subscribe(broken)
        tale = told(store)
        server.put(pod("a"))
        server.put(pod("b"))
        await store.wait_until(lambda s: len(s) == 2)
        assert tale == ["+default/a", "+default/b"]


async def test_indexes_follow_changes() -> None:
    server = FakeServer()
    server.put(pod("a", node="n1"))
    async with following(server) as store:
        store.index("node", lambda obj: [obj.spec.node_name] if obj.spec.node_name else [])
        store.index("node", lambda obj: ["never used: the name is taken"])
        server.put(pod("b", node="n1"))
        server.put(pod("a", node="n2"))
        await store.wait_until(node_is("default/a", "n2"))
        assert [obj.metadata.name for obj in store.by_index("node", "n1")] == ["b"]
        assert [obj.metadata.name for obj in store.by_index("node", "n2")] == ["a"]
        server.remove("a")
        await store.wait_until(lambda s: len(s) == 1)
        assert not store.by_index("node", "n2")


async def test_own_writes_are_seen_before_the_watch_brings_them() -> None:
    server = FakeServer()
    server.put(pod("a"))
    async with following(server) as store:
        await server.watched(1)
        tale = told(store)
        tale.clear()
        server.mute()
        between = server.put(pod("a", other="label"))
        written = server.put(pod("a", node="n1"))
        assert store.assume(msgspec.convert(written, Pod))
        assert node_is("default/a", "n1")(store)
        # The watch is behind: it brings a version from before, then the one that was assumed, then a newer one.
        for stream in server.streams:
            for document in (
                between,
                written,
                {**written, "metadata": {**written["metadata"], "resourceVersion": "900"}},
            ):
                line = json.dumps({"type": "MODIFIED", "object": document}).encode() + b"\n"
                stream.chunks_to_come.put_nowait(line)
        await store.wait_until(lambda s: s.get("default/a").metadata.resource_version == "900")  # type: ignore[union-attr]
        assert tale == ["~default/a", "~default/a"]


async def test_a_guess_lasts_until_the_next_version_or_is_forgotten() -> None:
    server = FakeServer()
    server.put(pod("a"))
    server.put(pod("b"))
    async with following(server) as store:
        for key in ("default/a", "default/b"):
            seen = store.get(key)
            assert seen is not None
            guess = msgspec.structs.replace(seen, spec=msgspec.structs.replace(seen.spec, node_name="guess"))
            assert store.assume(guess)
        store.forget("default/a")
        assert node_is("default/a", "")(store)
        server.put(pod("b", node="n1"))
        await store.wait_until(node_is("default/b", "n1"))
        store.forget("default/b")
        assert node_is("default/b", "n1")(store)


async def test_what_the_watch_has_deleted_cannot_be_assumed() -> None:
    server = FakeServer()
    async with following(server) as store:
        late = msgspec.convert(server.put(pod("a")), Pod)
        server.remove("a")
        server.put(pod("b"))
        await store.wait_until(lambda s: "default/b" in s)
        assert not store.assume(late)
        assert names(store) == ["b"]


async def test_an_assumed_creation_outlives_a_list_from_before_it() -> None:
    store = Store(PODS, Pod)
    store.begin_list()
    store.end_list("100")
    store.assume(msgspec.convert({**pod("a"), "metadata": {**pod("a")["metadata"], "resourceVersion": "105"}}, Pod))
    store.begin_list()
    store.end_list("103")
    assert names(store) == ["a"]
    store.begin_list()
    store.end_list("110")
    assert names(store) == []


async def test_late_subscribers_get_what_is_there() -> None:
    server = FakeServer()
    server.put(pod("a"))
    async with following(server) as store:
        assert told(store) == ["+default/a"]


async def test_equal_questions_share_a_store() -> None:
    caches = Caches(Client(FakeServer()))
    assert caches.store(PODS, Pod) is caches.store(PODS, Pod)
    assert caches.store(PODS, Pod) is not caches.store(PODS, Pod, label_selector="a=b")


async def test_a_store_asked_for_late_is_followed_too() -> None:
    server = FakeServer()
    server.put(pod("a"))
    caches = Caches(Client(server))
    await caches.start()
    store = caches.store(PODS, Pod)
    await caches.wait_for_sync()
    assert names(store) == ["a"]
    await caches.stop()


async def test_a_kind_the_server_lacks_counts_as_empty_where_optional() -> None:
    server = FakeServer()
    gadgets = Resource("example.com", "v1", "gadgets", "Gadget", False)
    caches = Caches(Client(server), timeouts=QUICK)
    store = caches.store(gadgets, dict, optional=True)
    await caches.start()
    await caches.wait_for_sync()
    assert len(store) == 0
    await caches.stop()


async def test_plain_documents_can_be_cached_whole() -> None:
    server = FakeServer()
    server.put({**pod("a"), "anything": {"at": ["all"]}})
    caches = Caches(Client(server), timeouts=QUICK)
    store = caches.store(PODS, dict)
    await caches.start()
    await caches.wait_for_sync()
    assert store.get("default/a")["anything"] == {"at": ["all"]}  # type: ignore[index]
    await caches.stop()


async def test_being_unknown_to_the_server_ends_the_caches() -> None:
    server = FakeServer()
    server.answer(status(401, "Unauthorized"), times=10)
    caches = Caches(Client(server), timeouts=QUICK)
    caches.store(PODS, Pod)
    await caches.start()
    with pytest.raises(Unauthorized):
        await caches.wait_for_sync()
    with pytest.raises(Unauthorized):
        await caches.wait_for_failure()
    await caches.stop()


async def test_a_failing_server_is_waited_for() -> None:
    server = FakeServer()
    server.put(pod("a"))
    server.answer(status(503, "ServiceUnavailable"), times=2, watch=True)
    server.answer(status(429, "TooManyRequests"), times=2, watch=True)
    server.lose(times=2, watch=True)
    async with following(server) as store:
        await server.watched(7)
        server.put(pod("b"))
        await store.wait_until(lambda s: len(s) == 2)
        assert server.lists() == 1


async def test_assuming_what_is_known_is_no_news() -> None:
    """A writer assumes every answer; one to a write that changed nothing must not wake subscribers that write."""
    server = FakeServer()
    known = msgspec.convert(server.put(pod("a")), Pod)
    async with following(server) as store:
        tale = told(store)
        tale.clear()
        assert store.assume(known)
        assert tale == []


async def test_what_cannot_be_read_is_known_by_its_uid() -> None:
    server = FakeServer()
    put = server.put({**pod("a"), "spec": 5})
    async with following(server) as store:
        assert store.problems["default/a"].uid == put["metadata"]["uid"] != ""


async def test_many_objects_are_delivered_in_turns_and_each_once() -> None:
    server = FakeServer()
    for number in range(1000):
        server.put(pod(f"p{number:03}"))
    async with following(server) as store:
        tale: list[str] = []

        def note(change: Change[Pod]) -> None:
            tale.append(("+" if change.old is None else "-" if change.new is None else "~") + change.key[-4:])

        async def meanwhile() -> None:
            # The first objects are delivered by now, the last are not.
            assert "+p000" in tale
            assert "+p999" not in tale
            for name in ("p000", "p999"):
                store.assume(decode_as(Pod, {**pod(name, node="n"), "metadata": {**meta(name), "uid": f"uid-{name}"}}))
            for name in ("p001", "p998"):
                version = str(server.version + 10)
                gone = {**pod(name), "metadata": {**meta(name), "uid": f"uid-{name}", "resourceVersion": version}}
                store.apply_event(WatchEvent("DELETED", msgspec.Raw(msgspec.json.encode(gone))))

        def meta(name: str) -> dict[str, Any]:
            return {"name": name, "namespace": "default", "resourceVersion": str(server.version + 1)}

        await asyncio.gather(store.subscribe_yielding(note), meanwhile())
        expected = [f"+p{number:03}" for number in range(1000) if number != 998] + ["~p000", "-p001"]
        assert sorted(tale) == sorted(expected)
        store.forget("default/p999")
        assert tale[-1] == "~p999"


async def test_a_subscriber_cancelled_while_it_catches_up_has_subscribed() -> None:
    server = FakeServer()
    for number in range(1000):
        server.put(pod(f"p{number:03}"))
    async with following(server) as store:
        tale: list[str] = []
        task = asyncio.ensure_future(store.subscribe_yielding(lambda change: tale.append(change.key)))
        await asyncio.sleep(0)
        assert 0 < len(tale) < 1000
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(tale) == len(set(tale)) == 1000
        server.put(pod("late"))
        await store.wait_until(lambda s: "default/late" in s)
        assert tale[-1] == "default/late"


async def test_a_list_in_one_piece_is_taken_in_turns() -> None:
    server = FakeServer()
    for number in range(3 * PAGE_SIZE):
        server.put(pod(f"p{number:04}"))
    store = Store(PODS, Pod)
    store.subscribe(lambda change: expire() if change.key == "default/p0000" else None)

    def expire() -> None:
        """The token for the second page."""
        server.answer(status(410, "Expired"), watch=False)

    seen: set[int] = set()
    task = asyncio.ensure_future(Reflector(Client(server), WatchSelection(PODS), store).run())
    try:
        while not store.synced.is_set():
            seen.add(len(store))
            await asyncio.sleep(0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    lists = [request for request in server.requests if "watch" not in request.query]
    assert ["limit" in request.query for request in lists] == [True, True, False]
    assert {PAGE_SIZE, 2 * PAGE_SIZE} <= seen
