"""A workload cannot protect pods that have a node already (protect:grouper)."""

from __future__ import annotations

from typing import Any

from pykai.api import names
from pykai.api.scheduling import PodGroup
from pykai.kube import resources
from pykai.kube.store import Store
from tests.services.podgrouper.grouped import GROUP, QUEUE, WARNING, assigned, grouper
from tests.services.servicecluster import Document, ServiceCluster

NON_PREEMPTIBLE = {names.PREEMPTIBILITY_LABEL: names.NON_PREEMPTIBLE}
BUILD = {names.PRIORITY_CLASS_LABEL: "build"}


def says(preemptibility: str = "", priority_class: str = "train", **labels: str) -> Any:
    """Whether the one group says this, and has these labels."""

    def holds(store: Store[PodGroup]) -> bool:
        return [
            (each.spec.preemptibility, each.spec.priority_class_name, each.metadata.labels.items() >= labels.items())
            for each in store.values()
        ] == [(preemptibility, priority_class, True)]

    return holds


async def label_job(place: ServiceCluster, **labels: str | None) -> None:
    await place.client.patch(resources.JOBS, "j", {"metadata": {"labels": labels}}, "default")


async def spec_of_group(place: ServiceCluster) -> Document:
    (group,) = await place.raw_groups()
    spec: Document = group["spec"]
    return spec


async def test_what_runs_stays_preemptible_until_no_pod_has_a_node(place: ServiceCluster) -> None:
    """protect:grouper"""
    job = await place.job()
    for name in ("a", "b"):
        await place.pod(name, by=job)
    async with place.running(grouper()) as service:
        await place.pods.wait_until(assigned("a", "b"))
        await place.bind("a")
        await label_job(place, **NON_PREEMPTIBLE, **BUILD, changed="1")
        # The rest of the change is written.
        await place.groups.wait_until(says(changed="1"))
        name = next(iter(await place.raw_groups()))["metadata"]["name"]
        for about in (name, "a"):
            message = await place.wait_for_warning(about, names.EVENT_INVALID_WORKLOAD)
            assert "spec.priorityClassName, spec.preemptibility: 1 pods of the group have a node" in message
        await place.settled(service)
        assert says()(place.groups)
        await place.pod_status("a", phase="Succeeded")
        await place.groups.wait_until(says(names.NON_PREEMPTIBLE, "build"))


async def test_a_class_that_makes_work_non_preemptible_waits_too(place: ServiceCluster) -> None:
    """protect:grouper: and what gives protection up is written at once."""
    job = await place.job()
    await place.pod("a", by=job)
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a"))
        await place.bind("a")
        await label_job(place, **BUILD, changed="1")
        await place.groups.wait_until(says(changed="1"))
        await label_job(place, **{names.PREEMPTIBILITY_LABEL: names.PREEMPTIBLE})
        await place.groups.wait_until(says(names.PREEMPTIBLE, "build"))
        await label_job(place, **{names.PREEMPTIBILITY_LABEL: None}, changed="2")
        await place.groups.wait_until(says(names.PREEMPTIBLE, "build", changed="2"))
        await label_job(place, **{names.PRIORITY_CLASS_LABEL: "train"})
        await place.groups.wait_until(says())


async def test_while_pods_wait_a_workload_may_change(place: ServiceCluster) -> None:
    """protect:grouper"""
    job = await place.job()
    await place.pod("a", by=job)
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a"))
        await label_job(place, **NON_PREEMPTIBLE)
        await place.groups.wait_until(says(names.NON_PREEMPTIBLE))


async def test_a_pod_that_is_being_bound_counts(place: ServiceCluster) -> None:
    """protect:grouper"""
    job = await place.job()
    await place.pod("a", by=job)
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a"))
        request = {"podName": "a", "selectedNode": "node-0"}
        await place.create(resources.BIND_REQUESTS, "a", spec=request)
        await label_job(place, **NON_PREEMPTIBLE, changed="1")
        await place.groups.wait_until(says(changed="1"))
        assert "preemptibility" not in await spec_of_group(place)


async def made_again(place: ServiceCluster) -> None:
    """Delete the group, and wait for the next one."""
    (old,) = await place.raw_groups()
    await place.client.delete(resources.POD_GROUPS, old["metadata"]["name"], "default")
    await place.groups.wait_until(
        lambda groups: [each.metadata.uid for each in groups.values()] not in ([], [old["metadata"]["uid"]])
    )


async def test_a_group_that_is_deleted_comes_back_as_it_was(place: ServiceCluster) -> None:
    """protect:grouper: neither more protected than it was, nor less."""
    place.clock.speed = 100.0
    job = await place.job()
    await place.pod("a", by=job)
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a"))
        await place.bind("a")
        await label_job(place, **NON_PREEMPTIBLE, changed="1")
        await place.groups.wait_until(says(changed="1"))
        await made_again(place)
        assert "preemptibility" not in await spec_of_group(place)
        await place.pod_status("a", phase="Succeeded")
        await place.pod("b", by=job)
        await place.pods.wait_until(assigned("b"))
        await place.groups.wait_until(says(names.NON_PREEMPTIBLE))
        await place.bind("b")
        await place.pods.wait_until(lambda pods: [each.spec.node_name for each in pods.values()] == ["node-0"] * 2)
        await made_again(place)
        assert (await spec_of_group(place))["preemptibility"] == names.NON_PREEMPTIBLE


async def test_pods_with_a_node_and_without_a_group_become_preemptible(place: ServiceCluster) -> None:
    """protect:grouper: nothing has checked their quota."""
    await place.pod("a", labels={QUEUE: "team", **NON_PREEMPTIBLE})
    await place.bind("a")
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a"))
        assert (await spec_of_group(place))["preemptibility"] == names.PREEMPTIBLE


async def test_a_pod_with_a_node_does_not_move_to_a_group_that_protects_it(place: ServiceCluster) -> None:
    """protect:grouper"""
    job = await place.job(labels=NON_PREEMPTIBLE)
    await place.group("other", queue="q", minMember=1)
    await place.pod("a", by=job)
    async with place.running(grouper()) as service:
        await place.pods.wait_until(assigned("a"))
        await place.settled(service)
        await place.pod("b", by=job, group="other", annotations={names.SKIP_POD_GROUPER_ANNOTATION: "true"})
        await place.bind("b")
        off = {"metadata": {"annotations": {names.SKIP_POD_GROUPER_ANNOTATION: None}}}
        await place.client.patch(resources.PODS, "b", off, "default")
        message = await place.wait_for_warning("b", WARNING)
        assert "would protect it; it stays where it is" in message
        assert (await place.raw_pod("b"))["metadata"]["annotations"][GROUP] == "other"
