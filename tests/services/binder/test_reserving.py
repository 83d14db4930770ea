"""Reserving a GPU, without the service and its cleanup: gpu:RV-2 to RV-7."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.decode import decode_as
from pykai.api.sharing import reservation_name
from pykai.binder.changewaiters import ChangeWaiters
from pykai.binder.lifecycle import BindFailure
from pykai.binder.metrics import BinderMetrics
from pykai.binder.options import BinderOptions
from pykai.binder.reservation import Reservations
from pykai.kube.client import Client
from pykai.kube.resources import NODES, PODS
from pykai.kube.transport import Request, Response
from tests.services.binder.bindercluster import (
    RESERVATIONS,
    BinderCluster,
    FaultyBinderTransport,
    binder_cluster,
    status,
)
from tests.services.binder.test_reservations import reservation

POD = decode_as(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}})
NAME = reservation_name("n1", "g")


async def nobody(group: str, node: str, uid: str) -> bool:
    return False


@asynccontextmanager
async def reserving(
    it: BinderCluster, timeout_s: float = 30.0
) -> AsyncIterator[tuple[Reservations, FaultyBinderTransport]]:
    wire = FaultyBinderTransport(it.server.transport("binder"))
    nodes = it.caches.store(NODES, Node)
    await nodes.synced.wait()
    yield (
        Reservations(
            Client(wire),
            ChangeWaiters(it.pods),
            ChangeWaiters(nodes),
            options=replace(BinderOptions(), reservation_timeout_s=timeout_s),
            clock=it.clock,
            metrics=BinderMetrics(CollectorRegistry()),
        ),
        wire,
    )


async def test_a_finished_reservation_is_replaced() -> None:
    async with binder_cluster() as it, reserving(it) as (reservations, _):
        it.answers = False
        await reservation(it, gpu="GPU-old")
        await it.set_phase(NAME, "Failed", RESERVATIONS)
        it.answers = True
        reserved = await reservations.reserve(POD, "n1", "g", nobody)
        assert reserved.gpu != "GPU-old"
        assert await reservations.still_holds(reserved)


async def test_a_reservation_is_verified_against_the_server() -> None:
    async with binder_cluster() as it, reserving(it) as (reservations, _):
        reserved = await reservations.reserve(POD, "n1", "g", nobody)
        assert await reservations.still_holds(reserved)
        await it.caches.stop()
        await it.client.delete(PODS, NAME, RESERVATIONS, grace_s=0)
        assert it.pods.get(f"{RESERVATIONS}/{NAME}") is not None
        assert not await reservations.still_holds(reserved)


async def test_a_gpu_that_is_only_in_the_cache_is_not_given() -> None:
    async with (
        binder_cluster() as it,
        reserving(it) as (earlier, _),
        reserving(it, timeout_s=0.05) as (reservations, _),
    ):
        await earlier.reserve(POD, "n1", "g", nobody)
        await it.caches.stop()
        await it.client.delete(PODS, NAME, RESERVATIONS, grace_s=0)
        with pytest.raises(BindFailure, match="failed waiting"):
            await reservations.reserve(POD, "n1", "g", nobody)


async def test_t66_a_silent_reservation_is_deleted() -> None:
    async with binder_cluster() as it, reserving(it, timeout_s=0.05) as (reservations, _):
        it.answers = False
        with pytest.raises(BindFailure, match="failed waiting for GPU reservation pod to allocate"):
            await reservations.reserve(POD, "n1", "g", nobody)
        assert await it.reservations() == []


async def test_t66_one_that_cannot_be_deleted_stays() -> None:
    async with binder_cluster() as it, reserving(it, timeout_s=0.05) as (reservations, wire):
        it.answers = False

        def fault(request: Request) -> Response | None:
            return status(409, "Conflict") if request.method == "DELETE" else None

        wire.fault = fault
        with pytest.raises(BindFailure):
            await reservations.reserve(POD, "n1", "g", nobody)
        assert len(await it.reservations()) == 1


async def test_groups_are_reserved_side_by_side() -> None:
    async with binder_cluster() as it, reserving(it) as (reservations, _):
        it.answers = False
        both = asyncio.ensure_future(reservations.reserve_all(POD, "n1", ["b", "a"], nobody))
        await it.until_reservations(2)
        for group in ("a", "b"):
            await it.annotate_reservation(reservation_name("n1", group), f"GPU-{group}")
        assert [reserved.gpu for reserved in await both] == ["GPU-b", "GPU-a"]


async def test_when_one_group_fails_the_others_are_not_waited_for() -> None:
    async with binder_cluster() as it, reserving(it) as (reservations, _):
        it.answers = False
        both = asyncio.ensure_future(reservations.reserve_all(POD, "n1", ["a", "b"], nobody))
        await it.until_reservations(2)
        await it.set_phase(reservation_name("n1", "b"), "Failed", RESERVATIONS)
        with pytest.raises(BindFailure, match="ended"):
            await both


async def test_with_fake_gpus_the_pod_only_sleeps() -> None:
    async with binder_cluster() as it, it.working(replace(BinderOptions(), fake_gpu_nodes=True)):
        await it.request(await it.pod(fraction="0.5"), groups=("g",))
        await it.until_phase("Succeeded")
        (held,) = await it.reservations()
        (container,) = held["spec"]["containers"]
        assert (container["image"], container["args"]) == ("ubuntu", ["sleep", "infinity"])
        assert held["metadata"]["annotations"][names.RESERVED_GPU_ANNOTATION]


async def test_a_recreated_reservation_of_the_same_name_is_another_one() -> None:
    async with binder_cluster() as it, reserving(it) as (reservations, _):
        reserved = await reservations.reserve(POD, "n1", "g", nobody)
        await it.client.delete(PODS, NAME, RESERVATIONS, grace_s=0)
        await reservations.reserve(POD, "n1", "g", nobody)
        assert not await reservations.still_holds(reserved)
