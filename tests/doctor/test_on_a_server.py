"""The doctor reads a cluster: everything at once, with few requests, and without a right it says what it misses."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from pykai.doctor.facts import QUEUES
from pykai.doctor.findings import Severity
from pykai.doctor.gathering import IN_FLIGHT, gather
from pykai.doctor.table import examine, sources, worst
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import ConnectionLost, Forbidden
from pykai.kube.limits import Limits
from pykai.kube.readonly import ReadOnlyTransport
from pykai.kube.resources import QUEUES as QUEUE_KIND
from pykai.kube.transport import Request, Response
from tests.servers import api_server
from tests.services.servicecluster import RecordingTransport


async def test_the_installation_of_this_version_is_complete() -> None:
    async with api_server(Clock()) as server:
        wire = RecordingTransport(server.transport())
        client = Client(ReadOnlyTransport(wire), limits=Limits(in_flight=IN_FLIGHT))
        found = examine(await gather(client, sources()))
        assert {"definition-missing", "definition-fields", "right-missing", "not-checked"}.isdisjoint(
            each.code for each in found
        )
        assert wire.writes == []
        assert len(wire.reads) < 2 * len(sources())


async def test_a_queue_that_is_wrong_in_the_cluster_is_found() -> None:
    async with api_server(Clock()) as server:
        client = Client(server.transport())
        await client.create(QUEUE_KIND, {"metadata": {"name": "lost"}, "spec": {"parentQueue": "nowhere"}})
        found = examine(await gather(client, sources()))
        assert ("queue-parent-missing", "Queue lost") in {(each.code, each.where) for each in found}
        assert worst(found) is Severity.ERROR


async def test_a_user_without_rights_learns_which_are_missing() -> None:
    async with api_server(Clock()) as server:
        found = examine(await gather(Client(server.account("default", "jane")), sources()))
        assert {each.code for each in found if each.severity is not Severity.INFO} == {"not-checked"}
        named = {each.where for each in found if each.code == "not-checked"}
        assert {"queues.scheduling.run.ai", "nodes", "secrets", "clusterroles.rbac.authorization.k8s.io"} <= named
        assert all("Give your user the right to" in each.fix for each in found if each.code == "not-checked")


class _Answers:
    """A server that answers one path, and says its time."""

    def __init__(self, date: str, status: int = 200) -> None:
        self.date = date
        self.status = status
        self.in_flight = 0
        self.most = 0

    async def send(self, request: Request) -> Response:
        if request.path == "/version":
            return Response(self.status, b'{"gitVersion": "v1.35.0"}', {"Date": self.date})
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        if "queues" in request.path:
            raise asyncio.CancelledError if self.status == 0 else ConnectionLost("reset by peer")
        return Response(200, b'{"items": []}')

    def stream(self, request: Request) -> None:
        raise AssertionError(request.path)

    async def close(self) -> None:
        """Nothing is open."""


async def _no_wait(_: float) -> None:
    """Retries come at once."""


async def test_the_clock_of_the_server_is_compared_with_ours() -> None:
    now = datetime(2026, 11, 18, 12, 0, 30, tzinfo=UTC)
    answers = _Answers("Wed, 18 Nov 2026 12:00:00 GMT")
    client = Client(answers, limits=Limits(in_flight=IN_FLIGHT), sleep=_no_wait)  # type: ignore[arg-type]
    facts = await gather(client, sources(), now=lambda: now)
    assert facts.server_ahead == timedelta(seconds=-30)
    assert facts.server_version == "v1.35.0"
    assert facts.unread[QUEUES.resource].reason == "reset by peer"
    assert answers.most <= IN_FLIGHT
    assert "clock-skew" in {each.code for each in examine(facts)}


async def test_a_server_that_refuses_everything_is_an_error_of_its_own() -> None:
    client = Client(_Answers("", status=403))  # type: ignore[arg-type]
    with pytest.raises(Forbidden):
        await gather(client, sources())
