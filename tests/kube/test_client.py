"""Requests: what goes over the wire, what is tried again and what is not, and what errors say."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from typing import Any

import pytest

from pykai.api.core import Pod
from pykai.api.decode import DecodeError
from pykai.api.keys import split_key
from pykai.kube.client import Client, PatchKind
from pykai.kube.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    ConnectionLost,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from pykai.kube.limits import Limits, TokenBucket
from pykai.kube.resources import NODES, POD_GROUPS, PODS, QUEUES, Resource
from pykai.kube.transport import Request, Response
from tests.kube.fakes import FakeServer, pod, status


class Pauses:
    """Notes pauses instead of making them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def body(request: Request) -> Any:
    assert request.body is not None
    return json.loads(request.body)


def test_paths() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("ns") == "/api/v1/namespaces/ns/pods"
    assert PODS.path("ns", "p", "status") == "/api/v1/namespaces/ns/pods/p/status"
    assert NODES.path("", "n1") == "/api/v1/nodes/n1"
    assert QUEUES.path("", "q") == "/apis/scheduling.run.ai/v2/queues/q"
    assert POD_GROUPS.path("ns", "a/b?c") == "/apis/scheduling.run.ai/v2alpha2/namespaces/ns/podgroups/a%2Fb%3Fc"
    assert POD_GROUPS.api_version == "scheduling.run.ai/v2alpha2"
    assert NODES.api_version == "v1"
    with pytest.raises(ValueError, match="needs a namespace"):
        PODS.path("", "p")


def test_keys() -> None:
    assert split_key(PODS.key("ns", "p")) == ("ns", "p")
    assert split_key(NODES.key("", "n1")) == ("", "n1")


async def test_get_reads_into_the_type_or_a_document() -> None:
    server = FakeServer()
    server.put(pod("a", node="n1"))
    client = Client(server)
    assert (await client.get(PODS, "a", "default", into=Pod)).spec.node_name == "n1"
    assert (await client.get_raw(PODS, "a", "default"))["kind"] == "Pod"
    with pytest.raises(NotFound):
        await client.get(PODS, "b", "default", into=Pod)


async def test_lists_keep_the_unreadable_apart() -> None:
    server = FakeServer()
    server.put({**pod("bad"), "spec": 7})
    for number in range(5):
        server.put(pod(f"p{number}"))
    listing = await Client(server).list(PODS, into=Pod, namespace="default", limit=2)
    assert [item.metadata.name for item in listing.items] == ["p0", "p1", "p2", "p3", "p4"]
    assert listing.resource_version == str(server.version)
    (problem,) = listing.problems
    assert isinstance(problem, DecodeError)
    assert "Pod default/bad" in str(problem)
    assert server.lists() == 3


async def test_selectors_and_namespaces_are_asked_for() -> None:
    server = FakeServer()
    await Client(server).list_raw(PODS, namespace="ns", label_selector="a in (b)", field_selector="spec.nodeName=n1")
    request = server.requests[0]
    assert request.path == "/api/v1/namespaces/ns/pods"
    assert request.query["labelSelector"] == "a in (b)"
    assert request.query["fieldSelector"] == "spec.nodeName=n1"


async def test_a_list_that_expires_half_way_is_read_in_one_piece() -> None:
    server = FakeServer()
    for number in range(5):
        server.put(pod(f"p{number}"))
    client = Client(server)
    pages = client.pages(PODS, limit=2)
    first = await anext(pages)
    assert first.first
    assert not first.last
    server.answer(status(410, "Expired"))
    again = await anext(pages)
    assert again.first
    assert again.last
    assert len(again.items) == 5
    assert "limit" not in server.requests[-1].query


async def test_writes_name_their_manager() -> None:
    server = FakeServer()
    client = Client(server, field_manager="kai-binder")
    await client.create(PODS, {"metadata": {"name": "a", "namespace": "default"}}, dry_run=True)
    create = server.requests[-1]
    assert (create.method, create.path) == ("POST", "/api/v1/namespaces/default/pods")
    assert create.query == {"fieldManager": "kai-binder", "dryRun": "All"}
    assert body(create)["kind"] == "Pod"
    assert body(create)["apiVersion"] == "v1"


async def test_a_brief_write_gives_the_identity_only() -> None:
    server = FakeServer()
    client = Client(server)
    made = await client.create(PODS, pod("a"), brief=True)
    assert made.keys() == {"metadata"}
    whole = (await client.get_raw(PODS, "a", "default"))["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion")
    assert made["metadata"] == {field: whole[field] for field in fields if field in whole}
    patched = await client.patch(PODS, "a", {"metadata": {"labels": {"x": "y"}}}, "default", brief=True)
    assert patched["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    server.answer(Response(200, b"hello"))
    with pytest.raises(ConnectionLost, match="not an object"):
        await client.patch(PODS, "a", {}, "default", brief=True)


async def test_update_detects_conflicts() -> None:
    server = FakeServer()
    old = server.put(pod("a"))
    client = Client(server)
    await client.update(PODS, {**old, "spec": {"nodeName": "n1"}})
    with pytest.raises(Conflict):
        await client.update(PODS, old)


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [
        (PatchKind.MERGE, "application/merge-patch+json"),
        (PatchKind.JSON, "application/json-patch+json"),
        (PatchKind.STRATEGIC, "application/strategic-merge-patch+json"),
        (PatchKind.APPLY, "application/apply-patch+yaml"),
    ],
)
async def test_patches_say_what_they_are(kind: PatchKind, content_type: str) -> None:
    server = FakeServer()
    server.answer(Response(200, b"{}"))
    patch = [{"op": "remove", "path": "/x"}] if kind is PatchKind.JSON else {"x": 1}
    await Client(server).patch(
        PODS, "a", patch, "default", kind=kind, subresource="status", force=True, field_manager="m"
    )
    request = server.requests[-1]
    assert request.method == "PATCH"
    assert request.path.endswith("/pods/a/status")
    assert request.content_type == content_type
    assert request.query == {"fieldManager": "m", "force": "true"}


async def test_delete_with_options() -> None:
    server = FakeServer()
    server.put(pod("a"))
    client = Client(server)
    await client.delete(PODS, "a", "default", uid="u", resource_version="5", grace_s=0, propagation="Background")
    assert body(server.requests[-1]) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "5"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }
    with pytest.raises(NotFound):
        await client.delete(PODS, "a", "default")


async def test_bind_and_evict() -> None:
    server = FakeServer()
    client = Client(server)
    await client.bind("ns", "p", uid="u1", node="n1", annotations={"a": "b"}, labels={"c": "d"})
    bind = server.requests[-1]
    assert bind.path == "/api/v1/namespaces/ns/pods/p/binding"
    assert body(bind) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "annotations": {"a": "b"}, "labels": {"c": "d"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    await client.evict("ns", "p", uid="u1", grace_s=30)
    evict = server.requests[-1]
    assert evict.path == "/api/v1/namespaces/ns/pods/p/eviction"
    assert body(evict)["deleteOptions"] == {"preconditions": {"uid": "u1"}, "gracePeriodSeconds": 30}


async def test_a_disruption_budget_is_an_answer_and_not_overload() -> None:
    server = FakeServer()
    pauses = Pauses()
    server.answer(status(429, "TooManyRequests", "Cannot evict pod as it would violate the budget", retry_after_s=10))
    with pytest.raises(TooManyRequests, match="budget") as caught:
        await Client(server, sleep=pauses).evict("ns", "p")
    assert caught.value.retry_after_s == 10
    assert not pauses.seconds


async def test_overload_is_waited_out_as_long_as_the_server_says() -> None:
    server = FakeServer()
    pauses = Pauses()
    server.answer(status(429, "TooManyRequests", retry_after_s=7), times=2)
    await Client(server, sleep=pauses).create(PODS, pod("a"))
    assert len(server.requests) == 3
    assert all(7 <= seconds <= 8 for seconds in pauses.seconds)


async def test_overload_without_end_is_raised() -> None:
    server = FakeServer()
    server.answer(status(429, "TooManyRequests"), times=100)
    with pytest.raises(TooManyRequests):
        await Client(server, sleep=Pauses()).create(PODS, pod("a"))
    assert len(server.requests) == 6


@pytest.mark.parametrize("trouble", [ConnectionLost("dead"), status(500), status(503)])
async def test_reads_are_tried_again_and_writes_are_not(trouble: Response | Exception) -> None:
    server = FakeServer()
    server.put(pod("a"))
    pauses = Pauses()
    client = Client(server, sleep=pauses)
    server.answer(trouble, times=3)
    await client.get_raw(PODS, "a", "default")
    assert len(pauses.seconds) == 3
    for write in (
        client.create(PODS, pod("b")),
        client.patch(PODS, "a", {}, "default"),
        client.delete(PODS, "a", "default"),
        client.bind("default", "a", uid="u", node="n"),
    ):
        server.answer(trouble)
        with pytest.raises((ConnectionLost, ServerError)):
            await write
    assert len(pauses.seconds) == 3


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (status(400, "BadRequest"), BadRequest),
        (status(401, "Unauthorized"), Unauthorized),
        (status(403, "Forbidden"), Forbidden),
        (status(404, "NotFound"), NotFound),
        (status(409, "AlreadyExists"), AlreadyExists),
        (status(409, "Conflict"), Conflict),
        (status(410, "Gone"), Gone),
        (status(422, "Invalid"), Invalid),
        (status(500, "InternalError"), ServerError),
        (status(504, "Timeout"), ServerError),
    ],
)
async def test_each_answer_has_its_error(answer: Response, error: type[KubeError]) -> None:
    server = FakeServer()
    server.answer(answer)
    with pytest.raises(error) as caught:
        await Client(server).create(PODS, pod("a"))
    assert type(caught.value) is error


async def test_an_error_goes_with_its_last_holder() -> None:
    async def refused() -> weakref.ref[NotFound]:
        try:
            await Client(FakeServer()).get_raw(PODS, "nobody", "ns")
        except NotFound as error:
            return weakref.ref(error)
        raise AssertionError("found")

    gc.disable()
    try:
        error = await refused()
        assert error() is None, "it waits for the garbage collector, with request and answer"
    finally:
        gc.enable()


async def test_an_answer_that_is_no_status_is_shown() -> None:
    server = FakeServer()
    server.answer(Response(502, b"<html>bad gateway</html>"))
    with pytest.raises(ServerError, match="HTTP 502: <html>bad gateway"):
        await Client(server).create(PODS, pod("a"))


async def test_an_answer_that_is_no_json_is_a_lost_one() -> None:
    server = FakeServer()
    server.answer(Response(200, b"hello"), times=2)
    client = Client(server)
    with pytest.raises(ConnectionLost):
        await client.get_raw(PODS, "a", "default")
    with pytest.raises(ConnectionLost, match="not a list"):
        await client.list(PODS, into=Pod)


async def test_which_groups_are_served() -> None:
    server = FakeServer()
    client = Client(server)
    server.answer(Response(200, b"{}"))
    assert await client.serves_group_version("resource.k8s.io", "v1")
    assert server.requests[-1].path == "/apis/resource.k8s.io/v1"
    assert not await client.serves_group_version("no.such.group")
    server.answer(Response(200, b'{"gitVersion": "v1.35.0"}'))
    assert (await client.server_version())["gitVersion"] == "v1.35.0"


async def test_requests_in_flight_are_bounded() -> None:
    most = now = 0

    class Slow(FakeServer):
        async def send(self, request: Request) -> Response:
            nonlocal most, now
            now += 1
            most = max(most, now)
            for _ in range(3):
                await asyncio.sleep(0)
            now -= 1
            return Response(200, b"{}")

    client = Client(Slow(), limits=Limits(in_flight=4))
    await asyncio.gather(*(client.get_raw(PODS, f"p{number}", f"ns-{number % 8}") for number in range(40)))
    assert most == 4


async def test_a_token_bucket_lets_the_burst_through_and_then_the_rate() -> None:
    time_s = 0.0
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(round(seconds, 3))

    bucket = TokenBucket(10, 3, now=lambda: time_s, sleep=pause)
    for _ in range(5):
        await bucket.take()
    assert pauses == [0.1, 0.2]
    time_s = 60.0
    pauses.clear()
    for _ in range(4):
        await bucket.take()
    assert pauses == [0.1]


async def test_the_client_obeys_qps_and_burst() -> None:
    pauses = Pauses()
    server = FakeServer()
    server.put(pod("a"))
    client = Client(server, limits=Limits(qps=0.001, burst=2), sleep=pauses)
    for _ in range(3):
        await client.get_raw(PODS, "a", "default")
    assert len(pauses.seconds) == 1
    assert pauses.seconds[0] > 900


@pytest.mark.parametrize("limits", [{"qps": 0}, {"qps": -1}, {"burst": -1}, {"in_flight": 0}])
def test_limits_that_make_no_sense(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Limits(**limits)


async def test_objects_need_metadata_to_be_written() -> None:
    gadgets = Resource("example.com", "v1", "gadgets", "Gadget", True)
    with pytest.raises(ValueError, match="without metadata"):
        await Client(FakeServer()).create(gadgets, {"kind": "Gadget"})
