"""Gangs of Kubernetes become PodGroups: found at run time, read under the role, followed (workloads:NW-2, NW-3)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api import names
from pykai.api.scheduling import PodGroup
from pykai.kube import resources
from pykai.kube.clock import Clock
from pykai.kube.errors import NotFound
from pykai.kube.resources import Resource
from pykai.kube.store import Store
from pykai.kube.transport import Response
from tests import servers
from tests.services.podgrouper.grouped import GROUP, QUEUE, ROLE, WARNING, assigned, definition, grouper
from tests.services.servicecluster import Document, RecordingTransport, ServiceCluster, service_cluster

API = "scheduling.k8s.io"
WORKLOADS = Resource(API, "v1alpha1", "workloads", "Workload", True)
LATER = pytest.mark.embedded_only("Kubernetes 1.35 has no PodGroups")
REFERENCE = {"workloadRef": {"name": "w", "podGroup": "workers"}}
SCHEDULING_GROUP = {"schedulingGroup": {"podGroupName": "g"}}
RACK = "example.com/rack"


def pod_groups(version: str = "v1beta1") -> Resource:
    return Resource(API, version, "podgroups", "PodGroup", True)


def gang_definition(resource: Resource) -> Document:
    """A kind in a group of Kubernetes needs a word of approval."""
    made = definition(resource.group, resource.version, resource.plural, resource.kind)
    made["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for tests"}
    return made


async def install(place: ServiceCluster, resource: Resource) -> None:
    """The real server has Workloads itself."""
    if servers.REAL is None:
        await place.ensure(gang_definition(resource))


async def workload(place: ServiceCluster, minimum: int = 2, **meta: Any) -> Document:
    await install(place, WORKLOADS)
    spec = {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": minimum}}}]}
    return await place.create(WORKLOADS, "w", spec=spec, **meta)


async def pod_group(place: ServiceCluster, version: str = "v1beta1", minimum: int = 2, **spec: Any) -> Document:
    await install(place, pod_groups(version))
    policy = {"gang": {"minCount": minimum}}
    return await place.create(pod_groups(version), "g", spec={"schedulingPolicy": policy, **spec})


def minimums(**expected: int) -> Any:
    """Whether these are the groups, with their minimums."""

    def holds(store: Store[PodGroup]) -> bool:
        return {group.metadata.name.replace("-", "_"): group.spec.min_member for group in store.values()} == expected

    return holds


def owned_by(name: str) -> Any:
    """Whether there is one group, and an object of this name owns it."""

    def holds(store: Store[PodGroup]) -> bool:
        return [owner.name for group in store.values() for owner in group.metadata.owner_references] == [name]

    return holds


def placed_at(level: str) -> Any:
    """Whether there is one group, and this level is required of it."""

    def holds(store: Store[PodGroup]) -> bool:
        constraints = [group.spec.topology_constraint for group in store.values()]
        return [each.required_topology_level for each in constraints if each is not None] == [level]

    return holds


async def test_a_gang_of_a_workload_is_one_group_below_its_owner(place: ServiceCluster) -> None:
    """workloads:NW-2, as Kubernetes 1.35 has it."""
    job = await place.job(completions=2, labels={"team": "a"})
    await workload(place, labels={QUEUE: "q"})
    for name in ("a", "b"):
        await place.pod(name, by=job, spec=REFERENCE)
    async with place.running(grouper(workload_api=True)):
        await place.pods.wait_until(assigned("a", "b"))
    (group,) = await place.raw_groups()
    assert (group["metadata"]["name"], group["spec"]["minMember"], group["spec"]["queue"]) == ("w-workers", 2, "q")
    assert group["metadata"]["labels"] == {"team": "a", QUEUE: "q"}
    assert [owner["uid"] for owner in group["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]


async def test_without_the_flag_gangs_are_not_read(place: ServiceCluster) -> None:
    """workloads:NW-1."""
    job = await place.job()
    await workload(place)
    await place.pod("a", by=job, spec=REFERENCE)
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a"))
    assert [group["metadata"]["name"] for group in await place.raw_groups()] == [f"pg-j-{job['metadata']['uid']}"]


async def test_a_pod_waits_for_its_workload() -> None:
    """workloads:NW-2: an event names what is missing; the pod is grouped as soon as it exists."""
    async with service_cluster(ROLE, Clock(speed=20)) as place:
        await place.classes()
        await install(place, WORKLOADS)
        await place.pod("a", spec=REFERENCE)
        async with place.running(grouper(workload_api=True)):
            text = await place.wait_for_warning("a", WARNING)
            assert text == "Workload default/w does not exist; the pod waits for it"
            assert not await place.raw_groups()
            await workload(place)
            await place.groups.wait_until(minimums(w_workers=2))
            await place.pods.wait_until(assigned("a"))


async def test_the_server_is_asked_once_a_pod_names_a_gang(place: ServiceCluster) -> None:
    """Without such pods the flag costs no request."""
    transport = RecordingTransport(place.server.transport(ROLE))
    await workload(place)
    await place.pod("plain")
    async with place.running(grouper(workload_api=True), transport=transport):
        await place.pods.wait_until(assigned("plain"))
        assert not [path for path in transport.reads if f"{API}/v1alpha1" in path]
        for name in ("a", "b"):
            await place.pod(name, spec=REFERENCE)
        await place.pods.wait_until(assigned("a", "b"))
    assert len([path for path in transport.reads if path == f"GET /apis/{API}/v1alpha1"]) == 1


async def test_a_pod_waits_while_the_server_does_not_say_whether_it_has_gangs() -> None:
    """It is not grouped without its gang meanwhile."""
    failures = iter([Response(503, b"{}"), Response(503, b"{}")])
    async with service_cluster(ROLE, Clock(speed=20)) as place:
        await place.classes()
        transport = RecordingTransport(place.server.transport(ROLE))
        transport.fault = lambda request: next(failures, None) if request.path == f"/apis/{API}/v1alpha1" else None
        await workload(place)
        await place.pod("a", spec=REFERENCE)
        async with place.running(grouper(workload_api=True), transport=transport):
            await place.wait_for_warning("a", WARNING)
            await place.pods.wait_until(assigned("a"))
        assert [group["metadata"]["name"] for group in await place.raw_groups()] == ["w-workers"]


@LATER
@pytest.mark.parametrize("version", ["v1alpha2", "v1alpha3", "v1beta1"])
async def test_a_pod_group_of_kubernetes_is_one_group(place: ServiceCluster, version: str) -> None:
    """workloads:NW-3, as later versions have it; a changed minimum is applied, to pods without owners too."""
    made = await pod_group(place, version, priorityClassName="build")
    for name in ("a", "b"):
        await place.pod(name, spec=SCHEDULING_GROUP)
    async with place.running(grouper(workload_api=True)):
        await place.pods.wait_until(assigned("a", "b"))
        (group,) = await place.raw_groups()
        assert (group["metadata"]["name"], group["spec"]["priorityClassName"]) == ("sg-g", "build")
        (owner,) = group["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["uid"]) == (f"{API}/{version}", made["metadata"]["uid"])
        larger = {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
        await place.client.patch(pod_groups(version), "g", larger, "default")
        await place.groups.wait_until(minimums(sg_g=3))
    kept = (await place.raw_pod("a"))["spec"]
    assert kept["schedulingGroup"] == {"podGroupName": "g"}


@LATER
async def test_the_newest_version_is_watched(place: ServiceCluster) -> None:
    both = gang_definition(pod_groups())
    (newest,) = both["spec"]["versions"]
    both["spec"]["versions"] = [{**newest, "name": "v1alpha2", "storage": False}, newest]
    await place.ensure(both)
    await pod_group(place)
    await place.pod("a", spec=SCHEDULING_GROUP)
    async with place.running(grouper(workload_api=True)):
        await place.pods.wait_until(assigned("a"))
    (group,) = await place.raw_groups()
    assert group["metadata"]["ownerReferences"][0]["apiVersion"] == f"{API}/v1beta1"


@LATER
async def test_a_level_is_looked_for_again_when_topologies_change(place: ServiceCluster) -> None:
    """workloads:NW-3."""
    await pod_group(place, schedulingConstraints={"topology": [{"key": RACK}]})
    await place.pod("a", spec=SCHEDULING_GROUP)
    async with place.running(grouper(workload_api=True)):
        text = await place.wait_for_warning("a", names.EVENT_INVALID_WORKLOAD)
        assert f"no Topology has the level {RACK!r}" in text
        await place.create(resources.TOPOLOGIES, "t", spec={"levels": [{"nodeLabel": RACK}]})
        await place.groups.wait_until(placed_at(RACK))


@LATER
async def test_an_api_that_appears_later_is_found() -> None:
    """Discovery is asked again after a minute; what was grouped meanwhile stays as it is."""
    async with service_cluster(ROLE, Clock(speed=2000)) as place:
        await place.classes()
        await place.pod("early", spec=SCHEDULING_GROUP)
        async with place.running(grouper(workload_api=True)):
            await place.pods.wait_until(assigned("early"))
            with pytest.raises(NotFound):
                await place.client.list_raw(pod_groups())
            await pod_group(place)
            for number in range(2000):
                # Each pod asks again, as soon as the minute is over.
                await place.pod(f"later-{number}", spec=SCHEDULING_GROUP)
                await place.pods.wait_until(assigned(f"later-{number}"))
                if (await place.raw_pod(f"later-{number}"))["metadata"]["annotations"][GROUP] == "sg-g":
                    break
            else:
                raise AssertionError("the API was not found")
        assert (await place.raw_pod("early"))["metadata"]["annotations"][GROUP].startswith("pg-early-")


@LATER
async def test_a_group_of_another_workload_is_not_taken(place: ServiceCluster) -> None:
    """ADR-34: the pod waits, and the group stays as it is."""
    await place.group("sg-g", queue="theirs", minMember=7)
    await pod_group(place)
    await place.pod("a", spec=SCHEDULING_GROUP)
    async with place.running(grouper(workload_api=True)):
        text = await place.wait_for_warning("a", WARNING)
    assert text.startswith("PodGroup default/sg-g belongs to another workload, not to PodGroup/g")
    (group,) = await place.raw_groups()
    assert (group["spec"]["queue"], group["spec"]["minMember"]) == ("theirs", 7)


async def test_pods_of_a_kueue_pod_group_are_one_group() -> None:
    """kueue:pod-groups: it outlives the pod that came first."""
    labels = {"kueue.x-k8s.io/pod-group-name": "k"}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    async with service_cluster(ROLE, Clock(speed=20)) as place:
        await place.classes()
        await place.pod("a", labels=labels, annotations=annotations)
        async with place.running(grouper(kueue_pod_groups=True)):
            await place.pods.wait_until(assigned("a"))
            await place.pod("b", labels=labels, annotations=annotations)
            await place.pods.wait_until(assigned("b"))
            (group,) = await place.raw_groups()
            assert (group["metadata"]["name"], group["spec"]["minMember"]) == ("kueue-k", 2)
            assert group["metadata"]["ownerReferences"][0]["name"] == "a"
            await place.client.delete(resources.PODS, "a", "default", grace_s=0)
            await place.groups.wait_until(owned_by("b"))


async def test_the_minimum_of_a_kueue_pod_group_follows_what_is_left() -> None:
    """kueue:pod-groups: a pod that waits does not wait for one that has succeeded."""
    labels = {"kueue.x-k8s.io/pod-group-name": "k"}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    async with service_cluster(ROLE, Clock(speed=20)) as place:
        await place.classes()
        for name in ("a", "b"):
            await place.pod(name, labels=labels, annotations=annotations)
        async with place.running(grouper(kueue_pod_groups=True)):
            await place.pods.wait_until(assigned("a"))
            await place.pods.wait_until(assigned("b"))
            await place.pod_status("a", phase="Succeeded")
            await place.groups.wait_until(lambda groups: [each.spec.min_member for each in groups.values()] == [1])
