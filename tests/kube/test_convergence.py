"""Whatever happens to server and connection, in whatever order: in the end the store has what the server has.

The feed of changes is held to the same: applied one after the other, they give the same objects, each change begins
where the last one ended, and every index agrees.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pykai.api.core import Pod
from pykai.kube.client import Client
from pykai.kube.reflector import Reflector, WatchSelection
from pykai.kube.resources import PODS
from pykai.kube.store import Change, Store
from tests.kube.fakes import FakeServer, pod, status
from tests.kube.faketime import in_fake_time

NAMES = ("a", "b", "c")
NODES = ("n1", "n2", "n3")

names = st.sampled_from(NAMES)
steps = st.one_of(
    st.tuples(st.just("put"), names, st.sampled_from(NODES)),
    st.tuples(st.just("put unseen"), names, st.sampled_from(NODES)),
    st.tuples(st.just("put and assume"), names, st.sampled_from(NODES)),
    st.tuples(st.just("put unreadable"), names),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("replay"), st.integers(0, 30)),
    st.tuples(st.just("drop")),
    st.tuples(st.just("end")),
    st.tuples(st.just("expire")),
    st.tuples(st.just("go silent")),
    st.tuples(st.just("fail"), st.sampled_from([410, 429, 500])),
    st.tuples(st.just("bookmark")),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.0, 0.1, 5.0])),
)


class Mirror:
    """Follows the feed, and minds that it is one story."""

    def __init__(self, store: Store[Pod]) -> None:
        self.objects: dict[str, Pod] = {}
        self.contradictions: list[Change[Pod]] = []
        store.subscribe(self.take)

    def take(self, change: Change[Pod]) -> None:
        if self.objects.get(change.key) != change.old or change.old is change.new:
            self.contradictions.append(change)
        if change.new is None:
            self.objects.pop(change.key, None)
        else:
            self.objects[change.key] = change.new


async def do(server: FakeServer, store: Store[Pod], step: tuple[Any, ...]) -> None:
    what = step[0]
    known = {path.rsplit("/", 1)[-1] for path in server.objects}
    if what.startswith("put"):
        name = step[1]
        # A name that comes back is another object.
        uid = f"{name}-{sum(kind == 'DELETED' for _, _, kind, _ in server.history)}" if name not in known else ""
        uid = uid or server.objects[f"/api/v1/namespaces/default/pods/{name}"]["metadata"]["uid"]
        if what == "put unreadable":
            server.put({**pod(name, uid=uid), "spec": {"nodeName": 7}})
            return
        if what == "put unseen":
            server.mute()
        written = server.put(pod(name, uid=uid, node=step[2]))
        if what == "put and assume":
            store.assume(msgspec.convert(written, Pod))
    elif what == "remove" and step[1] in known:
        server.remove(step[1])
    elif what == "replay" and server.history:
        server.say(server.history[step[1] % len(server.history)][3])
    elif what == "drop":
        server.drop_watches()
    elif what == "end":
        server.end_watches()
    elif what == "expire":
        server.expire()
        server.drop_watches()
    elif what == "go silent":
        server.mute()
    elif what == "fail":
        server.answer(status(step[1], "Broken"))
        server.drop_watches()
    elif what == "bookmark":
        server.bookmark()
    elif what == "wait":
        await asyncio.sleep(step[1])


#: An old event of an object that could not be read comes once more, after its end.
_READ_NO_MORE = [("put", "a", "n1"), ("put unreadable", "a"), ("remove", "a"), ("wait", 0.0)]


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=40))
@example([*_READ_NO_MORE, ("replay", 1)])
@example([*_READ_NO_MORE, ("put", "a", "n1"), ("replay", 1)])
@example([("put", "a", "n1"), ("remove", "a"), ("put unreadable", "a"), ("wait", 0.0), ("replay", 1)])
def test_the_store_converges(story: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        server = FakeServer()
        store = Store(PODS, Pod)
        store.index("node", lambda obj: [obj.spec.node_name])
        mirror = Mirror(store)
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        task = asyncio.ensure_future(Reflector(Client(server), WatchSelection(PODS), store).run())
        for step in story:
            await do(server, store, step)
        # Silence is found after 90 s, and repeated failures make pauses of up to 30 s.
        await asyncio.sleep(600)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        there = {
            f"default/{document['metadata']['name']}": msgspec.convert(json.loads(json.dumps(document)), Pod)
            for document in server.objects.values()
            if document["spec"].get("nodeName") != 7
        }
        broken = {
            f"default/{document['metadata']['name']}"
            for document in server.objects.values()
            if document["spec"].get("nodeName") == 7
        }
        assert {f"default/{obj.metadata.name}": obj for obj in store.values()} == there
        assert set(store.problems) == broken
        assert mirror.objects == there
        assert not mirror.contradictions
        by_node = {node: {obj.metadata.name for obj in store.by_index("node", node)} for node in NODES}
        assert by_node == {
            node: {obj.metadata.name for obj in there.values() if obj.spec.node_name == node} for node in NODES
        }
        assert not failures

    in_fake_time(run())
