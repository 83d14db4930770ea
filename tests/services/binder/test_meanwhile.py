"""What changes while an attempt is under way: a pod is bound with the labels of its GPU groups, or not at all."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from pykai.api import names
from pykai.binder.options import BinderOptions
from pykai.kube.errors import ConnectionLost
from pykai.kube.resources import BIND_REQUESTS, PODS
from pykai.kube.transport import Request, Response, Transport
from tests.services.binder.bindercluster import FaultyBinderTransport, binder_cluster, status

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
