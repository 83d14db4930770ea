"""Kartas in a cluster: read where their definition is installed, and followed."""

from __future__ import annotations

from collections.abc import Callable

from pykai.api.scheduling import PodGroup
from pykai.kube import resources
from pykai.kube.resources import Resource
from pykai.kube.store import Store
from tests.podgrouper.kartas import component, karta_labels, karta_spec
from tests.services.podgrouper.grouped import WARNING, assigned, definition, group_of, grouper, permission
from tests.services.servicecluster import Document, ServiceCluster

TRIALS = Resource("x.io", "v1", "trials", "Trial", True)
WORKERS = component("worker", ".spec.w", role="worker")
WHOLE = {"name": "g"}


async def trial(place: ServiceCluster, **spec: object) -> Document:
    kartas = resources.KARTAS
    await place.ensure(
        definition(TRIALS.group, TRIALS.version, TRIALS.plural, TRIALS.kind),
        *permission(TRIALS.group, TRIALS.plural),
        definition(kartas.group, kartas.version, kartas.plural, kartas.kind, "Cluster"),
    )
    return await place.create(TRIALS, "t", spec=spec)


async def describe(place: ServiceCluster, name: str, spec: Document) -> None:
    await place.create(resources.KARTAS, name, labels=karta_labels(), spec=spec)


def minimum(name: str, wanted: int) -> Callable[[Store[PodGroup]], bool]:
    def holds(groups: Store[PodGroup]) -> bool:
        found = groups.get(f"default/{name}")
        return found is not None and found.spec.min_member == wanted

    return holds


async def test_pods_follow_the_karta_of_their_kind(place: ServiceCluster) -> None:
    """workloads:KT-1; also when it comes later, changes and goes."""
    owner = await trial(place, w=2, n=3)
    uid = owner["metadata"]["uid"]
    await place.pod("a", by=owner)
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a"))
        assert group_of(place.pods, "a") == f"pg-t-{uid}"
        await describe(place, "trials", karta_spec(WORKERS, podGroup=WHOLE))
        await place.groups.wait_until(minimum(f"pg-{uid}-g", 2))
        changed = karta_spec(component("worker", ".spec.n"), podGroup=WHOLE)
        await place.client.patch(resources.KARTAS, "trials", {"spec": changed})
        await place.groups.wait_until(minimum(f"pg-{uid}-g", 3))
        await place.pods.wait_until(lambda pods: group_of(pods, "a") == f"pg-{uid}-g")
        await place.client.delete(resources.KARTAS, "trials")
        await place.pods.wait_until(lambda pods: group_of(pods, "a") == f"pg-t-{uid}")


async def test_kartas_that_cannot_be_used_are_reported(place: ServiceCluster) -> None:
    """workloads:KT-3: on the Karta; a workload that does not fit its Karta, on its pods."""
    owner = await trial(place, w="many")
    await describe(place, "bad", karta_spec(component("worker", ".. | .w"), podGroup=WHOLE))
    await describe(place, "trials", karta_spec(WORKERS, podGroup=WHOLE))
    await place.pod("a", by=owner)
    async with place.running(grouper()):
        assert "replicasPath: jq expression '.. | .w'" in await place.wait_for_warning("bad", "InvalidKarta")
        reason = await place.wait_for_warning("a", WARNING)
        assert "Karta trials, component worker: jq expression '.spec.w'" in reason
        await place.client.delete(resources.KARTAS, "trials")
        await place.pods.wait_until(assigned("a"))


async def test_kartas_can_be_switched_off(place: ServiceCluster) -> None:
    """workloads:KT-1."""
    owner = await trial(place, w=2)
    await describe(place, "trials", karta_spec(WORKERS, podGroup=WHOLE))
    await place.pod("a", by=owner)
    wire = place.wire()
    async with place.running(grouper(generic_karta_fallback=False), transport=wire):
        await place.pods.wait_until(assigned("a"))
    assert group_of(place.pods, "a") == f"pg-t-{owner['metadata']['uid']}"
    assert not [read for read in wire.reads if "kartas" in read]


async def test_pods_are_grouped_where_kartas_are_not_installed(place: ServiceCluster) -> None:
    """workloads:T-117: one list, and no more for a minute."""
    await place.pod("a")
    wire = place.wire()
    async with place.running(grouper(), transport=wire):
        await place.pods.wait_until(assigned("a"))
    assert sum("kartas" in read for read in wire.reads) == 1
