"""What changes while an attempt is under way: a pod is bound with the labels of its GPU groups, or not at all."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pykai.api import names
from pykai.binder.options import BinderOptions
from pykai.kube.errors import ConnectionLost
from pykai.kube.resources import BIND_REQUESTS, PODS
from pykai.kube.transport import Request, Response, Transport
from tests.services.binder.bindercluster import FaultyBinderTransport, binder_cluster, status
from tests.services.binder.test_reservations import looked

QUICK = replace(BinderOptions(), base_delay_s=0.01)
LABEL_GOES = f'"{names.GPU_GROUP_LABEL}":null'.encode()


class Slow(FaultyBinderTransport):
    """Holds the write that takes labels of GPU groups off pods."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.held, self.let_go, self.done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def send(self, request: Request) -> Response:
        """Like the inner transport, delayed."""
        if request.method != "PATCH" or LABEL_GOES not in (request.body or b""):
            return await super().send(request)
        self.held.set()
        await self.let_go.wait()
        try:
            return await super().send(request)
        finally:
            self.done.set()


async def test_a_label_of_a_new_decision_is_not_taken_for_the_stale_one() -> None:
    async with binder_cluster() as it:
        # A binder has died and left its label on the pod; its request is gone, too.
        pod = await it.pod(fraction="0.5")
        label = {"metadata": {"labels": {names.GPU_GROUP_LABEL: "old"}}}
        await it.client.patch(PODS, "p", label, "ns")
        wire = Slow(it.server.transport("binder"))
        binder = await it.binder(QUICK, transport=wire)
        await wire.held.wait()
        await it.request(pod, groups=("new",))
        await it.until_phase("Succeeded")
        wire.let_go.set()
        await wire.done.wait()
        assert (await it.live())["metadata"]["labels"] == {names.GPU_GROUP_LABEL: "new"}
        await binder.end()


async def test_a_label_that_only_the_cache_still_knows_is_written_again() -> None:
    async with binder_cluster(speed=20) as it:
        binder = await it.binder(QUICK, transport=FaultyBinderTransport(it.server.transport("binder")))
        wire = binder.transport
        refused = False

        def without_news_of_the_pod(chunk: bytes) -> bytes:
            lines = chunk.splitlines(keepends=True)
            return b"".join(line for line in lines if not refused or b'"name":"p"' not in line)

        def fault(request: Request) -> Response | Exception | None:
            nonlocal refused
            if refused or not request.path.endswith("/binding"):
                return None
            known = binder.service._pods.get("ns/p")
            if known is None or names.GPU_GROUP_LABEL not in known.metadata.labels:
                return ConnectionLost("the watch is not there yet")
            refused = True
            return status(403, "Forbidden")

        wire.fault, wire.garble = fault, without_news_of_the_pod
        await it.request(await it.pod(fraction="0.5"), groups=("g",), backoffLimit=3)
        await it.until_phase("Succeeded")
        pod = await it.live()
        assert pod["spec"]["nodeName"] == "n1"
        assert pod["metadata"]["labels"] == {names.GPU_GROUP_LABEL: "g"}
        await binder.end()


async def test_a_bind_that_the_server_put_off_is_not_sent_again_for_a_request_that_was_withdrawn() -> None:
    async with binder_cluster() as it:
        binder = await it.binder(QUICK)
        put_off, busy = asyncio.Event(), True

        def fault(request: Request) -> Response | None:
            if not busy or not request.path.endswith("/binding"):
                return None
            put_off.set()
            return status(429, "TooManyRequests")

        binder.transport.fault = fault
        await it.request(await it.pod(fraction="0.5"), groups=("g",))
        await put_off.wait()
        await it.client.delete(BIND_REQUESTS, "p", "ns")
        busy = False

        async def left_its_group() -> bool:
            return names.GPU_GROUP_LABEL not in ((await it.live())["metadata"].get("labels") or {})

        await it.until(left_its_group)
        assert not (await it.live())["spec"].get("nodeName")
        await binder.end()


async def test_a_request_that_was_settled_elsewhere_is_not_begun() -> None:
    async with binder_cluster() as it:

        class SettledFirst(FaultyBinderTransport):
            async def send(self, request: Request) -> Response:
                if request.method == "GET" and request.path.endswith("/bindrequests/p"):
                    settled = {"status": {"phase": "Failed", "failedAttempts": 1}}
                    await it.client.patch(BIND_REQUESTS, "p", settled, "ns", subresource="status")
                return await super().send(request)

        binder = await it.binder(transport=SettledFirst(it.server.transport("binder")))
        # What must be copied whole is read from the server before an attempt.
        await it.request(await it.pod(), predictedNUMAZones=[{"zone": "node-0", "amount": {"cpu": "4"}}])
        await it.until_phase("Failed")
        await looked(it)
        assert binder.count("bind_attempts_total") == 1, "that of the witness"
        await binder.end()


async def test_an_attempt_whose_request_was_withdrawn_prepares_no_further() -> None:
    async with binder_cluster() as it, it.working(QUICK) as binder:
        it.answers = False

        def keep_reservation(request: Request) -> Response | None:
            return status(409, "Conflict") if request.method == "DELETE" else None

        await it.request(await it.pod(fraction="0.5"), groups=("g",))
        await it.until_reservations(1)
        binder.transport.fault = keep_reservation
        await it.client.delete(BIND_REQUESTS, "p", "ns")
        await binder.service._requests.wait_until(lambda store: not store)
        await looked(it)
        (held,) = await it.reservations()
        await it.annotate_reservation(held["metadata"]["name"], "GPU-1")
        await binder.service._pods.wait_until(
            lambda store: any(names.RESERVED_GPU_ANNOTATION in pod.metadata.annotations for pod in store.values())
        )
        await it.request(await it.pod("after"))
        await it.until_phase("Succeeded", "after")
        labelled = [w for w in binder.transport.writes if w.startswith("PATCH") and w.endswith("/pods/p")]
        assert labelled == []


@pytest.mark.embedded_only("cuts whole events out of the bytes of a watch")
async def test_the_gpu_of_a_pod_stays_reserved_before_the_watch_shows_the_pod_bound() -> None:
    async with binder_cluster() as it:
        pod = await it.pod(fraction="0.5")
        binder = await it.binder(QUICK)
        await binder.caches.wait_for_sync()

        def without_news_of_the_pod(chunk: bytes) -> bytes:
            lines = chunk.splitlines(keepends=True)
            return b"".join(line for line in lines if b'"name":"p"' not in line or b'"containers"' not in line)

        binder.transport.garble = without_news_of_the_pod
        await it.request(pod, groups=("g",))
        await it.until_phase("Succeeded")
        await binder.service._requests.wait_until(
            lambda store: any(request.status.phase == "Succeeded" for request in store.values())
        )
        await looked(it)
        while not binder.service.idle():
            await asyncio.sleep(0.002)
        known = binder.service._pods.get("ns/p")
        assert known is not None
        assert not known.metadata.labels
        assert len(await it.reservations()) == 1
        await binder.end()
