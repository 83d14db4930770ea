"""Workloads whose groups another object describes: it is read under the role, and read again when it was too early."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pykai.api import names
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.resources import Resource
from pykai.kube.runtime import Runtime
from pykai.podgrouper.kinds.table import WORKLOAD_KINDS
from pykai.podgrouper.metadata import GroupingError
from pykai.podgrouper.service import PodGrouper
from tests.services.podgrouper.grouped import GROUP, QUEUE, ROLE, WARNING, assigned, definition, grouper
from tests.services.servicecluster import Document, ServiceCluster, reference, service_cluster

SUBGROUP = names.SUBGROUP_LABEL
#: how long owners are remembered: without end
MEMORY_S = 1e18
IN_GANG = {"grove.io/podgang": "g"}


def kind(group: str, version: str, name: str) -> Resource:
    return WORKLOAD_KINDS[group, version, name].resource


RAY_CLUSTERS = kind("ray.io", "v1", "RayCluster")
RAY_JOBS = kind("ray.io", "v1", "RayJob")
POD_CLIQUE_SETS = kind("grove.io", "v1alpha1", "PodCliqueSet")
POD_GANGS = kind("scheduler.grove.io", "v1alpha1", "PodGang")
KNATIVE_SERVICES = kind("serving.knative.dev", "v1", "Service")
REVISIONS = kind("serving.knative.dev", "v1", "Revision")


async def install(place: ServiceCluster, *kinds: Resource) -> None:
    await place.ensure(*(definition(each.group, each.version, each.plural, each.kind) for each in kinds))


async def groups_by_name(place: ServiceCluster) -> dict[str, Document]:
    return {group["metadata"]["name"]: group for group in await place.raw_groups("default")}


async def place_of(place: ServiceCluster, pod: str) -> tuple[str | None, str | None]:
    """Group and subgroup of a pod."""
    meta = (await place.raw_pod(pod))["metadata"]
    return (meta.get("annotations") or {}).get(GROUP), (meta.get("labels") or {}).get(SUBGROUP)


def subgroups(group: Document) -> dict[str, int]:
    return {each["name"]: each["minMember"] for each in group["spec"]["subGroups"]}


@asynccontextmanager
async def waiting_grouper(place: ServiceCluster) -> AsyncIterator[PodGrouper]:
    """A pod grouper that groups only what it is asked to; between two requests days pass."""
    client = Client(place.server.transport(ROLE))
    caches = Caches(client)
    service: PodGrouper = grouper(owner_memory_s=MEMORY_S)(Runtime(client, caches, Clock(speed=1e9)))
    await caches.start()
    try:
        await caches.wait_for_sync()
        yield service
    finally:
        await caches.stop()


async def test_a_ray_job_without_the_name_of_its_cluster_is_read_again(place: ServiceCluster) -> None:
    """workloads:WK-RAY."""
    await install(place, RAY_JOBS, RAY_CLUSTERS)
    ray_job = await place.create(RAY_JOBS, "j", labels={QUEUE: "q"})
    cluster = await place.create(RAY_CLUSTERS, "c", owners=[reference(ray_job)], spec={"headGroupSpec": {}})
    await place.pod("head", by=cluster, labels={"ray.io/group": "headgroup"})
    async with waiting_grouper(place) as service:
        pod = service._pods.get("default/head")
        assert pod is not None
        with pytest.raises(GroupingError):
            await service._group(pod)
        await place.client.patch(RAY_JOBS, "j", {"status": {"rayClusterName": "c"}}, "default")
        await service._group(pod)
    assert await place_of(place, "head") == (f"pg-j-{ray_job['metadata']['uid']}", "headgroup")


async def test_a_pod_that_its_gang_does_not_list_is_grouped_again_later(place: ServiceCluster) -> None:
    """workloads:WK-GR."""
    await install(place, POD_CLIQUE_SETS, POD_GANGS)
    clique_set = await place.create(POD_CLIQUE_SETS, "s")
    await place.create(POD_GANGS, "g", spec=pods_of_gang("listed"))
    for name in ("listed", "late"):
        await place.pod(name, by=clique_set, labels=IN_GANG)
    async with waiting_grouper(place) as service:
        listed, late = (service._pods.get(f"default/{name}") for name in ("listed", "late"))
        assert listed is not None
        assert late is not None
        assert await service._group(listed) == MEMORY_S
        assert await service._group(late) == service._no_subgroup_delay_s(late) < MEMORY_S


async def test_a_ray_job_is_grouped_when_its_status_names_the_cluster(place: ServiceCluster) -> None:
    """workloads:WK-RAY; the submitter has other labels than the oldest pod, and still gets a subgroup."""
    await install(place, RAY_JOBS, RAY_CLUSTERS)
    ray_job = await place.create(RAY_JOBS, "j", labels={QUEUE: "q"})
    workers = {"groupName": "Small_1", "replicas": 2}
    spec = {"headGroupSpec": {}, "workerGroupSpecs": [workers]}
    owners = [reference(ray_job)]
    cluster = await place.create(RAY_CLUSTERS, "c", owners=owners, spec=spec)
    await place.pod("head", by=cluster, labels={"ray.io/group": "headgroup"})
    async with place.running(grouper()):
        await place.wait_for_warning("head", WARNING)
        await place.client.patch(RAY_JOBS, "j", {"status": {"rayClusterName": "c"}}, "default")
        await place.pods.wait_until(assigned("head"))
        await place.pod("worker", by=cluster, labels={"ray.io/group": "Small_1"})
        await place.pod("submitter", by=ray_job, labels={"user": "someone"})
        await place.pods.wait_until(assigned("worker", "submitter"))
    name = f"pg-j-{ray_job['metadata']['uid']}"
    (group,) = (await groups_by_name(place)).values()
    assert (group["metadata"]["name"], group["spec"]["minMember"], group["spec"]["queue"]) == (name, 3, "q")
    assert subgroups(group) == {"headgroup": 1, "small-1": 2, "submitter": 0}
    found = {pod: await place_of(place, pod) for pod in ("head", "worker", "submitter")}
    assert found == {"head": (name, "headgroup"), "worker": (name, "small-1"), "submitter": (name, "submitter")}


def pods_of_gang(*pods: str) -> Document:
    """The spec of a PodGang that lists these pods."""
    references = [{"namespace": "default", "name": name} for name in pods]
    return {"podgroups": [{"name": "web", "minReplicas": 5, "podReferences": references}]}


async def test_a_pod_gang_is_read_once_for_pods_that_come_together(place: ServiceCluster) -> None:
    """workloads:WK-GR."""
    await install(place, POD_CLIQUE_SETS, POD_GANGS)
    clique_set = await place.create(POD_CLIQUE_SETS, "s", labels={QUEUE: "q"})
    pods = [f"p{number}" for number in range(5)]
    await place.create(POD_GANGS, "g", spec=pods_of_gang(*pods))
    for name in pods:
        await place.pod(name, by=clique_set, labels=IN_GANG)
    wire = place.wire()
    async with place.running(grouper(), transport=wire):
        await place.pods.wait_until(assigned(*pods))
    assert sum("podgangs/g" in read for read in wire.reads) == 1
    (group,) = (await groups_by_name(place)).values()
    assert (subgroups(group), group["spec"]["queue"]) == ({"web": 5}, "q")
    assert group["metadata"]["ownerReferences"][0]["kind"] == "PodGang"


async def test_a_pod_that_its_gang_lists_later_gets_its_subgroup() -> None:
    async with service_cluster(ROLE, Clock(speed=50)) as place:
        await place.classes()
        await install(place, POD_CLIQUE_SETS, POD_GANGS)
        clique_set = await place.create(POD_CLIQUE_SETS, "s")
        await place.create(POD_GANGS, "g", spec=pods_of_gang())
        await place.pod("late", by=clique_set, labels=IN_GANG)
        async with place.running(grouper(owner_memory_s=1e9)):
            await place.pods.wait_until(assigned("late"))
            assert (await place_of(place, "late"))[1] is None
            await place.client.patch(POD_GANGS, "g", {"spec": pods_of_gang("late")}, "default")
            await place.pods.wait_until(lambda pods: any(SUBGROUP in pod.metadata.labels for pod in pods.values()))


async def test_the_pods_of_a_revision_are_one_group(place: ServiceCluster) -> None:
    """workloads:WK-KN."""
    await install(place, KNATIVE_SERVICES, REVISIONS)
    service = await place.create(KNATIVE_SERVICES, "svc")
    scale = {"autoscaling.knative.dev/min-scale": "2"}
    revision = await place.create(REVISIONS, "rev", annotations=scale, owners=[reference(service)])
    labels = {"serving.knative.dev/revision": "rev"}
    for name in ("a", "b", "c"):
        await place.pod(name, by=revision, labels=labels)
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a", "b", "c"))
    (group,) = (await groups_by_name(place)).values()
    assert group["metadata"]["name"] == f"pg-rev-{revision['metadata']['uid']}"
    assert group["spec"]["minMember"] == 2
    async with place.running(grouper(knative_gang_schedule=False)):
        await place.pods.wait_until(lambda pods: len({pod.metadata.annotations[GROUP] for pod in pods.values()}) == 3)
