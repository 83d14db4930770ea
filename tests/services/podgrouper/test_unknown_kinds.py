"""Workloads of unknown kinds are reported once."""

from __future__ import annotations

from pykai.kube.resources import Resource
from pykai.kube.store import Store
from tests.services.podgrouper.grouped import assigned, definition, group_of, grouper, sweep
from tests.services.servicecluster import Document, ServiceCluster, refusal

UNKNOWN = "UnknownWorkloadKind"
LOCKED = Resource("locked.example.com", "v1", "vaults", "Vault", True)


def reported(events: Store[Document]) -> list[tuple[str, str]]:
    found = (event["involvedObject"] for event in events.values() if event["reason"] == UNKNOWN)
    return sorted((each["kind"], each["name"]) for each in found)


async def test_an_owner_of_an_unknown_kind_is_reported_once(place: ServiceCluster) -> None:
    """kinds:unknown: when it has a second pod, and not when it has a third."""
    owner = await sweep(place)
    await place.pod("a", by=owner)
    wire = place.wire()
    async with place.running(grouper(), transport=wire) as service:
        await place.pods.wait_until(assigned("a"))
        await place.settled(service)
        assert reported(place.events) == []
        await place.pod("b", by=owner)
        await place.pods.wait_until(assigned("b"))
        group = group_of(place.pods, "b")
        await place.events.wait_until(lambda events: len(reported(events)) == 2)
        reads = len(wire.reads)
        await place.pod("c", by=owner)
        await place.pods.wait_until(assigned("c"))
        assert len(wire.reads) == reads
    assert reported(place.events) == [("PodGroup", group), ("Sweep", "s")]
    text = await place.wait_for_warning("s", UNKNOWN)
    assert "Sweep of example.com/v1 is unknown to the pod grouper" in text
    assert "scheduled one by one" in text
    assert await place.count("s", UNKNOWN) == 1


async def test_an_owner_that_may_not_be_read_is_reported(place: ServiceCluster) -> None:
    """kinds:unknown."""
    await place.ensure(definition(LOCKED.group, LOCKED.version, LOCKED.plural, LOCKED.kind))
    owner = await place.create(LOCKED, "v")
    await place.pod("a", by=owner)
    await place.pod("b", by=owner)
    wire = place.wire()
    wire.fault = lambda request: refusal(403, "Forbidden") if "/vaults/" in request.path else None
    async with place.running(grouper(), transport=wire):
        text = await place.wait_for_warning("v", UNKNOWN)
        await place.pods.wait_until(assigned("a", "b"))
    assert "may not read objects of the kind Vault of locked.example.com/v1" in text
    assert reported(place.events) == [("Vault", "v")]
