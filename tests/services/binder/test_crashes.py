"""A binder that dies, or a server that fails, at any write: nothing is bound twice, nothing is left over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykai.api import names
from pykai.api.unstructured import JsonObject
from pykai.binder.options import BinderOptions
from pykai.kube.client import MAX_ATTEMPTS
from pykai.kube.errors import ConnectionLost
from pykai.kube.resources import PODS, RESOURCE_CLAIMS
from pykai.kube.transport import Request, Response
from tests.services.binder.bindercluster import (
    RESERVATIONS,
    BinderCluster,
    FaultyBinderTransport,
    binder_cluster,
    status,
)

GROUPS = ("g1", "g2")
ALLOCATION = {
    "devices": {"results": [{"request": "r", "driver": "d", "pool": "n1", "device": "gpu-0"}]},
    "nodeSelector": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    },
}
#: Reservation pods have no timeout where the clock runs fast.
PATIENT = replace(BinderOptions(), reservation_timeout_s=100_000)
#: two reservation pods, labels, claim, two ConfigMaps, binding, condition, phase
WRITES = 9


async def hard_pod(it: BinderCluster) -> JsonObject:
    """A pod with two shared devices and a claim, and the decision about it."""
    claim = {
        "metadata": {"name": "claim", "namespace": "ns"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    await it.client.create(RESOURCE_CLAIMS, claim)
    claims = [{"name": "devices", "resourceClaimName": "claim"}]
    pod = await it.pod(fraction="0.5", devices=2, resourceClaims=claims)
    allocations = [{"name": "devices", "allocation": ALLOCATION}]
    await it.request(pod, groups=GROUPS, resourceClaimAllocations=allocations)
    return pod


async def bound_and_whole(it: BinderCluster, uid: str) -> None:
    """The pod is where it should be, with everything it needs, once."""
    await it.until_phase("Succeeded")
    pod = await it.live()
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["labels"] == {names.GPU_GROUP_LABEL_PREFIX + group: group for group in GROUPS}
    told = [c for c in pod["status"]["conditions"] if c["type"] == names.CONDITION_POD_BOUND]
    assert [c["status"] for c in told] == ["True"]
    assert len(await it.reservations()) == 2
    devices = [data["NVIDIA_VISIBLE_DEVICES"] for data in (await it.config_maps()).values() if data]
    assert len(devices) == 1
    assert len(set(devices[0].split(","))) == 2
    claim = await it.client.get_raw(RESOURCE_CLAIMS, "claim", "ns")
    assert claim["status"]["allocation"]["devices"] == ALLOCATION["devices"]
    assert [consumer["uid"] for consumer in claim["status"]["reservedFor"]] == [uid]


async def test_a_bind_takes_this_many_writes() -> None:
    async with binder_cluster() as it, it.working() as binder:
        await hard_pod(it)
        await it.until_phase("Succeeded")
        assert len([write for write in binder.transport.writes if not write.endswith("/events")]) == WRITES


@pytest.mark.parametrize("after", range(WRITES))
async def test_after_a_crash_at_any_write_the_next_binder_finishes(after: int) -> None:
    async with binder_cluster() as it:
        uid = (await hard_pod(it))["metadata"]["uid"]
        await it.binder_that_dies(after)
        async with it.working():
            await bound_and_whole(it, uid)
            await it.client.delete(PODS, "p", "ns", grace_s=0)
            await it.until_reservations(0)


@pytest.mark.parametrize("after", range(WRITES - 2))
async def test_after_a_crash_at_any_write_a_pod_that_is_gone_leaves_nothing(after: int) -> None:
    async with binder_cluster() as it:
        await hard_pod(it)
        await it.binder_that_dies(after)
        await it.client.delete(PODS, "p", "ns", grace_s=0)
        async with it.working():
            await it.until_reservations(0)

            async def maps_gone() -> bool:
                return await it.config_maps() == {}

            await it.until(maps_gone)


@pytest.mark.parametrize("at", range(WRITES))
@pytest.mark.parametrize("carried_out", [False, True])
async def test_an_answer_that_is_lost_at_any_write_does_no_harm(at: int, carried_out: bool) -> None:
    async with binder_cluster() as it:
        uid = (await hard_pod(it))["metadata"]["uid"]
        wire = FaultyBinderTransport(it.server.transport("binder"))
        seen = 0

        def fault(request: Request) -> Exception | None:
            nonlocal seen
            if request.method == "GET" or request.path.endswith("/events"):
                return None
            seen += 1
            return ConnectionLost("injected") if seen == at + 1 else None

        if carried_out:
            wire.fault_after = fault
        else:
            wire.fault = fault
        binder = await it.binder(replace(BinderOptions(), base_delay_s=0.01), transport=wire)
        await bound_and_whole(it, uid)
        await binder.end()


async def test_without_read_permission_an_unanswered_bind_is_not_given_up() -> None:
    async with binder_cluster() as it:
        uid = (await hard_pod(it))["metadata"]["uid"]
        wire = FaultyBinderTransport(it.server.transport("binder"))
        binds = looks = 0

        def unanswered(request: Request) -> ConnectionLost | None:
            nonlocal binds
            if not request.path.endswith("/binding"):
                return None
            binds += 1
            return ConnectionLost("injected") if binds == 1 else None

        def forbidden(request: Request) -> Response | None:
            """As a server that has just started answers: its roles are loaded a moment later."""
            nonlocal looks
            if request.method != "GET" or not request.path.endswith("/pods/p") or not binds:
                return None
            looks += 1
            return status(403, "Forbidden", "injected") if looks == 1 else None

        wire.fault_after, wire.fault = unanswered, forbidden
        binder = await it.binder(replace(BinderOptions(), base_delay_s=0.01), transport=wire)
        await bound_and_whole(it, uid)
        await binder.end()
        assert looks > 0


@pytest.mark.parametrize("at", range(WRITES - 3))
async def test_a_refusal_before_the_bind_is_undone_completely(at: int) -> None:
    """gpu:T-74: whichever step fails."""
    async with binder_cluster() as it:
        await hard_pod(it)
        wire = FaultyBinderTransport(it.server.transport("binder"))
        seen = 0

        def fault(request: Request) -> Response | None:
            nonlocal seen
            if request.method == "GET" or request.path.endswith("/events"):
                return None
            seen += 1
            return status(403, "Forbidden", "injected") if seen == at + 1 else None

        wire.fault = fault
        binder = await it.binder(transport=wire)
        failed = await it.until_phase("Failed")
        assert "injected" in failed["status"]["reason"]
        await it.until_reservations(0)
        await binder.end()
        pod = await it.live()
        assert "nodeName" not in pod["spec"]
        assert not pod["metadata"].get("labels")
        assert await it.config_maps() == {}
        claim = await it.client.get_raw(RESOURCE_CLAIMS, "claim", "ns")
        assert not (claim.get("status") or {}).get("reservedFor")
        assert not (claim.get("status") or {}).get("allocation")


async def test_a_pod_is_out_of_its_groups_before_the_failure_is_written() -> None:
    """The scheduler decides again as soon as it sees the failure."""
    async with binder_cluster() as it:
        left: list[JsonObject] = []

        class LooksFirst(FaultyBinderTransport):
            async def send(self, request: Request) -> Response:
                if request.method == "PATCH" and request.path.endswith("/bindrequests/p/status"):
                    left.append((await it.live())["metadata"].get("labels") or {})
                return await super().send(request)

        wire = LooksFirst(it.server.transport("binder"))
        wire.fault = lambda request: status(403, "Forbidden", "no") if request.path.endswith("/binding") else None
        binder = await it.binder(transport=wire)
        await it.request(await it.pod(fraction="0.5"), groups=("g",))
        await it.until_phase("Failed")
        await binder.end()
        assert left == [{}]


async def test_a_server_that_fails_for_good_counts_as_a_failure_in_the_end() -> None:
    async with binder_cluster(speed=1000) as it, it.working() as binder:

        def fault(request: Request) -> Response | None:
            return status(500, "InternalError", "down") if request.path.endswith("/binding") else None

        binder.transport.fault = fault
        await it.request(await it.pod())
        failed = await it.until_phase("Failed")
        assert failed["status"]["reason"] == "down"
        assert failed["status"]["failedAttempts"] == 1


async def test_what_a_failing_server_let_through_is_undone_before_it_counts() -> None:
    async with binder_cluster(speed=1000) as it, it.working(PATIENT) as binder:
        binder.transport.fault = lambda request: (
            status(500, "InternalError", "down") if request.path.endswith("/binding") else None
        )
        await hard_pod(it)
        await it.until_phase("Failed")
        assert not (await it.live())["metadata"].get("labels")
        assert await it.config_maps() == {}
        claim = await it.client.get_raw(RESOURCE_CLAIMS, "claim", "ns")
        assert not (claim.get("status") or {}).get("allocation")


@pytest.mark.parametrize("code", [403, 422, 500])
async def test_a_bound_pod_stays_bound_when_its_event_cannot_be_written(code: int) -> None:
    async with binder_cluster(speed=1000) as it, it.working(PATIENT) as binder:
        binder.transport.fault = lambda request: (
            status(code, "Refused", "by policy") if request.path.endswith("/pods/p/status") else None
        )
        await it.request(await it.pod(fraction="0.5"), groups=("g",))
        await it.until_phase("Succeeded")
        # Otherwise the request would keep the GPU of a pod that has ended.
        await it.set_phase("p", "Succeeded")
        await it.until_reservations(0)


@pytest.mark.parametrize("to", ["/pods/p", "/pods/p/binding", "/pods/p/status", "/bindrequests/p/status"])
async def test_a_write_that_collides_with_others_does_not_leave_a_request_open(to: str) -> None:
    async with binder_cluster(speed=1000) as it, it.working(PATIENT) as binder:
        left = 1

        def collide(request: Request) -> Response | None:
            nonlocal left
            if request.method == "GET" or not request.path.endswith(to) or not left:
                return None
            left -= 1
            return status(409, "Conflict", "the object has been modified")

        binder.transport.fault = collide
        await it.request(await it.pod(fraction="0.5"), groups=("g",), backoffLimit=3)
        await it.until_phase("Succeeded")


async def test_a_server_that_puts_a_reservation_off_has_not_refused_it() -> None:
    async with binder_cluster(speed=1000) as it, it.working(PATIENT) as binder:
        left = MAX_ATTEMPTS

        def put_off(request: Request) -> Response | None:
            nonlocal left
            if request.method != "POST" or not request.path.endswith(f"{RESERVATIONS}/pods") or not left:
                return None
            left -= 1
            return Response(429, b"", {"Retry-After": "0"})

        binder.transport.fault = put_off
        await it.request(await it.pod(fraction="0.5"), groups=("g",))
        settled = await it.until_phase("Succeeded")
        assert not settled["status"].get("failedAttempts")


async def test_a_stopping_binder_leaves_an_open_attempt_to_the_next() -> None:
    async with binder_cluster() as it:
        it.answers = False
        uid = (await hard_pod(it))["metadata"]["uid"]
        async with it.working():
            await it.until_reservations(2)
        assert not (await it.client.get_raw(PODS, "p", "ns"))["spec"].get("nodeName")
        assert len(await it.reservations()) == 2
        for number, held in enumerate(await it.reservations()):
            await it.annotate_reservation(held["metadata"]["name"], f"GPU-{number}")
        async with it.working():
            await bound_and_whole(it, uid)


async def test_a_reservation_is_deleted_although_the_deletion_conflicts_with_other_writes() -> None:
    async with binder_cluster(speed=1000) as it, it.working(PATIENT) as binder:
        left = 5

        def collide(request: Request) -> Response | None:
            nonlocal left
            if request.method != "DELETE" or f"{RESERVATIONS}/pods/" not in request.path or not left:
                return None
            left -= 1
            return status(409, "Conflict", "the object has been modified")

        binder.transport.fault = collide
        await it.request(await it.pod(fraction="0.5"), groups=("g",))
        await it.until_phase("Succeeded")
        await it.client.delete(PODS, "p", "ns", grace_s=0)
        await it.until_reservations(0)
        assert not left
