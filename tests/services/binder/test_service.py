"""The binder as a process: leadership, bad input, stopping."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from pykai.api import names
from pykai.binder.options import BinderOptions
from pykai.kube.resources import BIND_REQUESTS, LEASES, PODS
from pykai.kube.transport import Request, Response, Stream, Transport
from tests.heldentries import entry_counts
from tests.kube.lagging import HangingTransport, delayed_stream
from tests.servers import ensure_namespace
from tests.services.binder.bindercluster import FaultyBinderTransport, Running, binder_cluster, status

ELECTED = replace(BinderOptions(), leader_elect=True)


async def test_only_the_leader_works_a_standby_is_warm_and_the_lease_is_given_back() -> None:
    async with binder_cluster() as it:
        first = await it.binder(ELECTED)
        await it.request(await it.pod("a"))
        await it.until_phase("Succeeded", "a")
        second = await it.binder(ELECTED)
        await second.caches.wait_for_sync()
        assert second.service.ready()
        await it.request(await it.pod("b"))
        await it.until_phase("Succeeded", "b")
        assert second.count("bind_attempts_total") == 0
        await first.end()
        await second.end()
        lease = await it.client.get_raw(LEASES, names.BINDER_LEASE, names.DEFAULT_NAMESPACE)
        assert not lease["spec"].get("holderIdentity")


async def test_a_standby_keeps_no_list_of_what_the_leader_does_and_finds_what_is_left_to_do() -> None:
    async with binder_cluster() as it:
        first = await it.binder(ELECTED)
        await it.request(await it.pod("a", fraction="0.5"), groups=("g",))
        await it.until_phase("Succeeded", "a")
        second = await it.binder(ELECTED, lease_retry_s=0.05)
        await second.caches.wait_for_sync()
        await it.request(await it.pod("b", fraction="0.5"), groups=("h",))
        await it.until_phase("Succeeded", "b")
        await second.service._requests.wait_until(lambda store: "ns/b" in store)
        assert second.service.idle()
        await first.end()
        await it.request(await it.pod("c"))
        await it.client.delete(PODS, "a", "ns", grace_s=0)
        await it.until_phase("Succeeded", "c")
        await it.until_reservations(1)
        await second.end()


async def test_a_request_that_cannot_be_read_gets_an_event_and_others_are_served() -> None:
    async with binder_cluster() as it, it.working() as binder:
        # As it could come from a server whose schema is older.
        binder.transport.garble = lambda chunk: chunk.replace(b'"podName":"bad"', b'"podName":5')
        await binder.caches.wait_for_sync()
        await it.request(await it.pod("bad"))
        await it.request(await it.pod())
        await it.until_phase("Succeeded")
        await binder.service.recorder.flush()
        (event,) = await it.events(names.EVENT_INVALID_BIND_REQUEST)
        assert "podName" in event["message"]


async def test_a_binder_that_is_stopped_before_it_starts_ends() -> None:
    async with binder_cluster() as it:
        binder = await it.binder()
        async with asyncio.timeout(5):
            await binder.end()
        assert binder.service.idle()


async def test_a_request_deleted_while_its_failure_is_written_leaves_nothing_behind() -> None:
    async with binder_cluster(speed=100.0) as it:

        class Slow(FaultyBinderTransport):
            async def send(self, request: Request) -> Response:
                if request.method == "PATCH" and "/bindrequests/" in request.path:
                    await it.client.delete(BIND_REQUESTS, "p", "ns")
                    await requests.wait_until(lambda store: not store)
                return await super().send(request)

        pod = await it.pod()
        binder = await it.binder(transport=Slow(it.server.transport("binder")))
        requests = binder.service._requests
        await binder.caches.wait_for_sync()
        before = entry_counts(binder.service._binding)
        await it.request(pod, node="nowhere", backoffLimit=3)
        async with asyncio.timeout(10):
            while await it.get(BIND_REQUESTS, "p") or not binder.service.idle():
                await asyncio.sleep(0.002)
        assert binder.count("bind_failures_total", reason="node") == 1
        assert entry_counts(binder.service._binding) == before
        await binder.end()


async def test_an_attempt_that_fails_is_freed_at_once() -> None:
    """Not only when the garbage collector comes, which is seldom in a large process."""
    async with binder_cluster(speed=100.0) as it, it.working() as binder:
        binder.transport.fault = lambda request: (
            status(403, "Forbidden") if request.method == "POST" and request.path.endswith("/pods") else None
        )
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await it.request(await it.pod(fraction="0.5"), groups=("g",))
            await it.until_phase("Failed")
            while not binder.service.idle():
                await asyncio.sleep(0.002)
            gc.collect()
            left = Counter(type(found).__name__ for found in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert left["BindFailure"] == left["Task"] == left["Attempt"] == 0


class Behind(FaultyBinderTransport):
    """A binder's wire on which watches of chosen kinds fall behind, and that says when the requests are listed."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.current = {"pods": asyncio.Event(), "bindrequests": asyncio.Event()}
        self.listed = asyncio.Event()
        for event in self.current.values():
            event.set()

    async def send(self, request: Request) -> Response:
        """Like the inner transport."""
        answer = await super().send(request)
        if request.method == "GET" and request.path.endswith("/bindrequests"):
            self.listed.set()
        return answer

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """The inner transport's, late."""
        kind = request.path.rpartition("/")[2]
        stream = super().stream(request)
        return delayed_stream(stream, self.current[kind]) if kind in self.current else stream


async def leads(binder: Running) -> None:
    """Wait until a binder works."""
    while not binder.service._leading:
        await asyncio.sleep(0.002)


async def done_with_it(binder: Running) -> None:
    """Wait until a binder has nothing to do."""
    while not binder.service.idle():
        await asyncio.sleep(0.002)


async def test_a_new_leader_takes_no_gpu_from_a_pod_it_has_not_seen_yet() -> None:
    async with binder_cluster() as it:
        it.answers = False
        first = await it.binder(ELECTED)
        await leads(first)
        wire = Behind(it.server.transport("binder"))
        second = await it.binder(ELECTED, transport=wire, lease_retry_s=0.05)
        await second.caches.wait_for_sync()
        wire.current["bindrequests"].clear()
        await it.request(await it.pod(fraction="0.5"), groups=("g",))
        await it.until_reservations(1)
        await second.service._pods.wait_until(lambda store: len(store) == 2)
        # The new leader knows the reservation, and neither its pod nor the request.
        wire.current["pods"].clear()
        (reservation,) = await it.reservations()
        await it.annotate_reservation(reservation["metadata"]["name"], "GPU-1")
        await it.until_phase("Succeeded")
        await it.set_phase("p", "Running")
        wire.listed.clear()
        await first.end()
        taken = asyncio.ensure_future(leads(second))
        asked = asyncio.ensure_future(wire.listed.wait())
        await asyncio.wait((taken, asked), timeout=20, return_when=asyncio.FIRST_COMPLETED)
        await done_with_it(second)
        for event in wire.current.values():
            event.set()
        await taken
        await done_with_it(second)
        assert len(await it.reservations()) == 1
        assert not await it.events(names.EVENT_RESERVATION_MISSING)
        asked.cancel()
        await second.end()


async def test_an_attempt_that_outlives_the_lease_writes_nothing() -> None:
    async with binder_cluster(speed=100) as it:
        it.answers = False
        binder = await it.binder(replace(ELECTED, reservation_timeout_s=4000))
        await it.request(await it.pod(fraction="0.5"), groups=("g",))
        await it.until_reservations(1)
        # As if the process had been suspended until the lease expired.
        binder.service._fence.until_s = asyncio.get_running_loop().time()
        binder.transport.writes.clear()
        (reservation,) = await it.reservations()
        await it.annotate_reservation(reservation["metadata"]["name"], "GPU-1")
        while binder.count("bind_attempts_total") < 2:
            await asyncio.sleep(0.002)
        assert not binder.transport.writes
        # A renewal allows writes again.
        await it.until_phase("Succeeded")
        await binder.end()


async def test_requests_that_hang_in_one_namespace_do_not_stop_the_others() -> None:
    async with binder_cluster() as it:
        await ensure_namespace(it.client, "slow")
        hanging = HangingTransport(it.server.transport("binder"))
        binder = await it.binder(
            replace(BinderOptions(), max_concurrent_reconciles=4), transport=FaultyBinderTransport(hanging)
        )
        for number in range(8):
            await it.request(await it.pod(f"p{number}", namespace="slow"))
        await hanging.until_hung(3)
        await it.request(await it.pod())
        await it.until_phase("Succeeded")
        assert hanging.hung == 3
        hanging.let_go.set()
        await binder.end()
