"""Leader election: one leads, the others take over when they may and not before."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from pykai.kube.client import Client
from pykai.kube.errors import LeaseLost
from pykai.kube.lease import Fence, LeaderElection
from pykai.kube.limits import Limits
from pykai.kube.resources import PODS
from pykai.kube.transport import Transport
from tests.kube.fakes import FakeServer, pod, status
from tests.kube.faketime import in_fake_time
from tests.kube.lagging import HangingTransport

PATH = "/apis/coordination.k8s.io/v1/namespaces/kai/leases"


class Candidate:
    """An instance that wants to lead, and notes what happens to it."""

    def __init__(self, server: Transport, identity: str, *, limits: Limits | None = None, **times: float) -> None:
        self.fence = Fence()
        client = Client(server, limits=limits)
        #: what the work writes with
        self.client = client.fenced(self.fence.check)
        self.election = LeaderElection(
            client, namespace="kai", name="kai-scheduler", identity=identity, fence=self.fence, **times
        )
        self.stop = asyncio.Event()
        self.began = asyncio.Event()
        self.ended_s = -1.0
        self.linger_s = 0.0
        self.cancelled = False
        self.task = asyncio.ensure_future(self.election.lead(self.stop, self.work))

    async def work(self, stop: asyncio.Event) -> None:
        self.began.set()
        try:
            await stop.wait()
            await asyncio.sleep(self.linger_s)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.ended_s = now()


def now() -> float:
    return asyncio.get_running_loop().time() - 1000


def spec(server: FakeServer) -> dict[str, Any]:
    found: dict[str, Any] = server.objects[f"{PATH}/kai-scheduler"]["spec"]
    return found


def test_the_first_leads_and_the_second_waits_for_the_release() -> None:
    async def story() -> None:
        server = FakeServer()
        first = Candidate(server, "host-1_x")
        await first.began.wait()
        second = Candidate(server, "host-2_y")
        await asyncio.sleep(100)
        assert first.election.leading
        assert not second.began.is_set()
        assert spec(server)["holderIdentity"] == "host-1_x"
        assert spec(server)["leaseTransitions"] == 0
        first.stop.set()
        await first.task
        assert spec(server)["holderIdentity"] == ""
        released_s = now()
        await second.began.wait()
        assert now() - released_s <= 5
        assert spec(server)["holderIdentity"] == "host-2_y"
        assert spec(server)["leaseTransitions"] == 1
        second.stop.set()
        await second.task

    in_fake_time(story())


def test_times_are_written_with_microseconds() -> None:
    async def story() -> None:
        server = FakeServer()
        only = Candidate(server, "a")
        await only.began.wait()
        for name in ("acquireTime", "renewTime"):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", spec(server)[name])
        assert spec(server)["leaseDurationSeconds"] == 15
        only.stop.set()
        await only.task

    in_fake_time(story())


def test_a_dead_leader_is_followed_after_the_whole_duration_as_seen_here() -> None:
    async def story() -> None:
        server = FakeServer()
        # The dead one's clock was a year ahead; only what is seen here counts.
        server.put(
            {
                "metadata": {"name": "kai-scheduler", "namespace": "kai"},
                "spec": {
                    "holderIdentity": "dead",
                    "leaseDurationSeconds": 15,
                    "renewTime": "2099-01-01T00:00:00.000000Z",
                    "leaseTransitions": 4,
                },
            },
            PATH,
        )
        heir = Candidate(server, "heir")
        await heir.began.wait()
        assert 15 <= now() <= 20
        assert spec(server)["leaseTransitions"] == 5
        heir.stop.set()
        await heir.task

    in_fake_time(story())


def test_a_lease_is_taken_when_it_runs_out_not_at_the_next_look() -> None:
    async def story() -> None:
        server = FakeServer()
        spec = {"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
        server.put({"metadata": {"name": "kai-scheduler", "namespace": "kai"}, "spec": spec}, PATH)
        heir = Candidate(server, "heir", retry_period_s=4)
        await heir.began.wait()
        assert 15 <= now() < 15.1
        heir.stop.set()
        await heir.task

    in_fake_time(story())


def test_a_lease_that_changes_has_not_expired() -> None:
    async def story() -> None:
        server = FakeServer()
        lease = {"metadata": {"name": "kai-scheduler", "namespace": "kai"}}
        candidate = Candidate(server, "waiting")
        for second in range(0, 60, 6):
            server.put(
                {**lease, "spec": {"holderIdentity": "alive", "leaseDurationSeconds": 15, "renewTime": str(second)}},
                PATH,
            )
            await asyncio.sleep(6)
        assert not candidate.began.is_set()
        candidate.stop.set()
        await candidate.task

    in_fake_time(story())


def test_a_leader_that_cannot_renew_stops_before_another_may_lead() -> None:
    async def story() -> None:
        server = FakeServer()
        first = Candidate(server, "first")
        first.linger_s = 100
        await first.began.wait()
        server.lose(times=1000, to="PUT")
        with pytest.raises(LeaseLost, match="not renewed"):
            await first.task
        # Stopped after 10 s, cancelled when the lease ran out.
        assert first.cancelled
        assert 10 <= first.ended_s <= 15
        assert spec(server)["holderIdentity"] == "first"

    in_fake_time(story())


def test_work_that_stops_on_request_is_not_cancelled() -> None:
    async def story() -> None:
        server = FakeServer()
        first = Candidate(server, "first")
        first.linger_s = 1
        await first.began.wait()
        server.lose(times=1000, to="PUT")
        with pytest.raises(LeaseLost):
            await first.task
        assert not first.cancelled
        assert not first.election.leading

    in_fake_time(story())


def test_a_lease_with_another_holder_is_lost_and_not_released() -> None:
    async def story() -> None:
        server = FakeServer()
        first = Candidate(server, "first")
        await first.began.wait()
        lease = server.objects[f"{PATH}/kai-scheduler"]
        server.put({**lease, "spec": {**lease["spec"], "holderIdentity": "thief", "renewTime": "later"}}, PATH)
        with pytest.raises(LeaseLost, match="thief"):
            await first.task
        assert spec(server)["holderIdentity"] == "thief"

    in_fake_time(story())


def test_hiccups_do_not_cost_the_lease() -> None:
    async def story() -> None:
        server = FakeServer()
        first = Candidate(server, "first")
        await first.began.wait()
        for _ in range(5):
            server.lose(times=1, to="PUT")
            server.answer(status(409, "Conflict"), to="PUT")
            server.answer(status(503), to="GET")
            await asyncio.sleep(12)
        assert first.election.leading
        assert not first.task.done()
        first.stop.set()
        await first.task

    in_fake_time(story())


def test_of_two_at_once_one_leads() -> None:
    async def story() -> None:
        server = FakeServer()
        both = [Candidate(server, "a"), Candidate(server, "b")]
        await asyncio.sleep(30)
        assert sum(candidate.election.leading for candidate in both) == 1
        for candidate in both:
            candidate.stop.set()
            await candidate.task

    in_fake_time(story())


def test_the_lease_is_kept_while_the_work_comes_to_its_end() -> None:
    async def story() -> None:
        server = FakeServer()
        first = Candidate(server, "first")
        first.linger_s = 40
        await first.began.wait()
        second = Candidate(server, "second")
        first.stop.set()
        await first.task
        assert first.ended_s >= 40
        assert not second.began.is_set()
        await second.began.wait()
        second.stop.set()
        await second.task

    in_fake_time(story())


def test_work_that_fails_releases_the_lease() -> None:
    async def story() -> None:
        server = FakeServer()
        election = LeaderElection(Client(server), namespace="kai", name="kai-scheduler", identity="a")

        async def work(stop: asyncio.Event) -> None:
            raise RuntimeError("broken on purpose")

        with pytest.raises(RuntimeError, match="on purpose"):
            await election.lead(asyncio.Event(), work)
        assert spec(server)["holderIdentity"] == ""

    in_fake_time(story())


def test_a_candidate_stopped_while_waiting_never_leads() -> None:
    async def story() -> None:
        server = FakeServer()
        first, second = Candidate(server, "first"), Candidate(server, "second")
        await first.began.wait()
        second.stop.set()
        await second.task
        assert not second.began.is_set()
        first.stop.set()
        await first.task

    in_fake_time(story())


def test_other_fields_of_the_lease_survive() -> None:
    async def story() -> None:
        server = FakeServer()
        document = {
            "metadata": {"name": "kai-scheduler", "namespace": "kai", "labels": {"kept": "yes"}},
            "spec": {"holderIdentity": "", "strategy": "OldestEmulationVersion"},
        }
        server.put(document, PATH)
        only = Candidate(server, "a")
        await only.began.wait()
        assert spec(server)["strategy"] == "OldestEmulationVersion"
        assert server.objects[f"{PATH}/kai-scheduler"]["metadata"]["labels"] == {"kept": "yes"}
        only.stop.set()
        await only.task

    in_fake_time(story())


@pytest.mark.parametrize("limits", [Limits(), Limits(qps=5, burst=5)], ids=["hanging", "many"])
def test_a_renewal_does_not_wait_behind_other_requests(limits: Limits) -> None:
    async def story() -> None:
        server = FakeServer()
        leader = Candidate(HangingTransport(server), "first", limits=limits)
        await leader.began.wait()
        writes = [
            asyncio.ensure_future(leader.client.patch(PODS, "p", {}, f"slow/{number}" if limits.qps is None else "ns"))
            for number in range(200)
        ]
        await asyncio.sleep(30)
        assert leader.election.leading
        for write in writes:
            write.cancel()
        await asyncio.gather(*writes, return_exceptions=True)
        leader.stop.set()
        await leader.task

    in_fake_time(story())


def test_nothing_is_written_once_the_lease_is_over() -> None:
    async def story() -> None:
        server = FakeServer()
        server.put(pod("p"))
        leader = Candidate(server, "first")
        await leader.client.patch(PODS, "p", {"metadata": {"labels": {"step": "1"}}}, "default")
        await leader.began.wait()
        await leader.client.patch(PODS, "p", {"metadata": {"labels": {"step": "2"}}}, "default")
        # The process is suspended until the lease expires, and has not noticed yet.
        assert leader.fence.until_s is not None
        leader.fence.until_s -= 15
        assert leader.election.leading
        with pytest.raises(LeaseLost):
            await leader.client.patch(PODS, "p", {"metadata": {"labels": {"step": "3"}}}, "default")
        read = await leader.client.get_raw(PODS, "p", "default")
        assert read["metadata"]["labels"] == {"step": "2"}
        await asyncio.sleep(6)
        await leader.client.patch(PODS, "p", {"metadata": {"labels": {"step": "4"}}}, "default")
        leader.stop.set()
        await leader.task
        await leader.client.patch(PODS, "p", {"metadata": {"labels": {"step": "5"}}}, "default")

    in_fake_time(story())


def test_a_leader_that_sees_another_ends_at_once_and_writes_nothing() -> None:
    async def story() -> None:
        server = FakeServer()
        server.put(pod("p"))
        first = Candidate(server, "first")
        first.linger_s = 100
        await first.began.wait()
        lease = server.objects[f"{PATH}/kai-scheduler"]
        server.put({**lease, "spec": {**lease["spec"], "holderIdentity": "other", "renewTime": "later"}}, PATH)
        with pytest.raises(LeaseLost, match="other"):
            await first.task
        assert first.ended_s <= 5.1
        with pytest.raises(LeaseLost):
            await first.client.delete(PODS, "p", "default")

    in_fake_time(story())
