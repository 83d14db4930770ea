"""The owners of pods as the pod grouper meets them: chains, unknown kinds, third-party kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pykai.api.core import Pod
from pykai.api.scheduling import SubGroup
from pykai.kube import resources
from pykai.kube.runtime import Runtime
from pykai.kube.transport import Request
from pykai.podgrouper.kinds.default import group_default
from pykai.podgrouper.kinds.table import built_in_groupers
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata, ObjectName, Owner, Readers
from pykai.podgrouper.options import PodGrouperOptions
from pykai.podgrouper.service import PodGrouper, make_podgrouper
from tests.services.podgrouper.grouped import (
    GROUP,
    QUEUE,
    WARNING,
    Slow,
    assigned,
    cron_job,
    group_of,
    grouper,
    replicated,
    sweep,
)
from tests.services.servicecluster import ServiceCluster, reference, refusal


@pytest.mark.parametrize("which", ["CronJob", "Job"])
async def test_an_owner_can_opt_out(place: ServiceCluster, which: str) -> None:
    """workloads:T-22, EX-3."""
    skip = {"kai.scheduler/skip-podgrouper": "true"}
    cron = await cron_job(place, "c", skip if which == "CronJob" else {})
    job = await place.job("j", annotations=skip if which == "Job" else {}, owners=[reference(cron)])
    await place.pod("a", by=job)
    wire = place.wire()
    async with place.running(grouper(), transport=wire) as service:
        await place.settled(service)
    assert wire.writes == []


async def test_pods_of_several_jobs_stay_in_the_group_that_another_made(place: ServiceCluster) -> None:
    """workloads:T-154, EX-1: the group may come after its pods."""
    for name in ("rack-workers", "zone-workers"):
        job = await place.job(name, annotations={"kai.scheduler/skip-podgrouper": "true"})
        await place.pod(f"{name}-0", by=job, group="shared", labels={"kai.scheduler/subgroup-name": name})
    wire = place.wire()
    async with place.running(grouper(), transport=wire) as service:
        await place.settled(service)
        leaves = [{"name": name, "minMember": 1} for name in ("rack-workers", "zone-workers")]
        await place.create(resources.POD_GROUPS, "shared", spec={"queue": "q", "minSubGroup": 2, "subGroups": leaves})
        await place.settled(service)
    assert wire.writes == []


async def test_an_owned_pod_is_grouped_whatever_it_names(place: ServiceCluster) -> None:
    """workloads:T-23, EX-2."""
    job = await place.job()
    await place.pod("a", by=job, group="mine")
    name = f"pg-j-{job['metadata']['uid']}"
    async with place.running(grouper()):
        await place.pods.wait_until(lambda pods: group_of(pods, "a") == name)


async def test_a_label_that_the_owner_lost_stays(place: ServiceCluster) -> None:
    """workloads:T-28; and a change of an owner is applied without an event of a pod."""
    job = await place.job(labels={QUEUE: "q", "gone": "x"})
    await place.pod("a", by=job)
    async with place.running(grouper()) as service:
        assert isinstance(service, PodGrouper)
        (jobs,) = (store for store in service._owners.stores if store.resource == resources.JOBS)
        await place.pods.wait_until(assigned("a"))
        patch = {"metadata": {"labels": {"gone": None, "new": "y"}}}
        await place.client.patch(resources.JOBS, "j", patch, "default")
        # The service knows of the change, and is settled when the block ends.
        await jobs.wait_until(lambda store: all("new" in job.metadata.labels for job in store.values()))
    (group,) = await place.raw_groups()
    assert group["metadata"]["labels"] == {QUEUE: "q", "gone": "x", "new": "y"}


async def test_a_change_of_a_deployment_reaches_pods_through_replica_sets(place: ServiceCluster) -> None:
    top = await replicated(place, resources.DEPLOYMENTS, "d")
    middle = await replicated(place, resources.REPLICA_SETS, "r", owners=[reference(top)])
    await place.pod("a", by=middle)
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a"))
        patch = {"metadata": {"labels": {"team": "y"}}}
        await place.client.patch(resources.DEPLOYMENTS, "d", patch, "default")
        await place.groups.wait_until(
            lambda groups: all(group.metadata.labels == {"team": "y"} for group in groups.values())
        )


async def test_an_owner_of_another_uid_is_reported_and_retried(place: ServiceCluster) -> None:
    """workloads:T-29."""
    job = await place.job()
    uid = job["metadata"]["uid"]
    await place.pod("a", by=job)
    wire = place.wire()
    # Kubernetes deletes a pod whose owner is another object now; here only the service sees that, and the pod stays.
    wire.reword = lambda request, body: body.replace(uid.encode(), b"other") if "/jobs" in request.path else body
    async with place.running(grouper(), transport=wire):
        message = await place.wait_for_warning("a", WARNING)
        wire.reword = lambda request, body: body
        await place.client.patch(resources.PODS, "a", {"metadata": {"labels": {"touched": "x"}}}, "default")
        await place.pods.wait_until(assigned("a"))
    assert f"Owner resource with uid {uid} not found" in message


async def test_an_uncached_owner_is_read_from_the_server(place: ServiceCluster) -> None:
    cron = await cron_job(place, "cronjob")
    owners = [
        await place.job("job", owners=[reference(cron)]),
        await replicated(place, resources.DEPLOYMENTS, "deployment"),
        await replicated(place, resources.REPLICA_SETS, "replicaset"),
        await replicated(place, resources.STATEFUL_SETS, "statefulset"),
        await place.pod("driver", scheduler="default-scheduler"),
    ]
    uids = [owner["metadata"]["uid"].encode() for owner in (cron, *owners)]
    for owner in owners:
        await place.pod(f"of-{owner['metadata']['name']}", by=owner)
    wire = place.wire()

    def of_before(request: Request, body: bytes) -> bytes:
        """Lists hold earlier objects of these names."""
        if request.path.rpartition("/")[2] in ("jobs", "cronjobs", "deployments", "replicasets", "statefulsets"):
            for uid in uids:
                body = body.replace(uid, uid[::-1])
        return body

    wire.reword = of_before
    async with place.running(grouper(), transport=wire):
        await place.pods.wait_until(assigned(*(f"of-{owner['metadata']['name']}" for owner in owners)))
    for owner in (cron, *owners):
        kind = owner["kind"].lower()
        assert sum(f"/{kind}s/" in read for read in wire.reads) == 1, kind


async def test_an_unknown_kind_is_read_once_and_gets_the_default_group(place: ServiceCluster) -> None:
    owner = await sweep(place)
    for name in ("a", "b", "c"):
        await place.pod(name, by=owner)
    wire = place.wire(Slow)
    async with place.running(grouper(), transport=wire):
        await place.pods.wait_until(assigned("a", "b", "c"))
    assert [group["metadata"]["name"] for group in await place.raw_groups()] == [f"pg-s-{owner['metadata']['uid']}"]
    assert sum("/sweeps/s" in read for read in wire.reads) == 1


async def test_a_kind_that_we_may_not_read_ends_the_climb(place: ServiceCluster) -> None:
    """workloads:T-30."""
    owner = await sweep(place)
    created = await place.pod("a", by=owner)
    wire = place.wire()
    wire.fault = lambda request: refusal(403, "Forbidden") if "/sweeps/" in request.path else None
    async with place.running(grouper(), transport=wire):
        await place.pods.wait_until(assigned("a"))
    assert group_of(place.pods, "a") == f"pg-a-{created['metadata']['uid']}"


async def test_a_kind_that_does_not_exist_is_reported(place: ServiceCluster) -> None:
    ghost = {"apiVersion": "no.such/v1", "kind": "Ghost", "metadata": {"name": "g", "uid": "u"}}
    await place.pod("a", by=ghost)
    async with place.running(grouper()):
        message = await place.wait_for_warning("a", WARNING)
    assert "failed to find Ghost: default/g, uid: u" in message


async def test_the_oldest_pod_decides_for_its_group(place: ServiceCluster) -> None:
    """workloads:4, Do better: pods that differ do not make their group flicker."""
    job = await place.job()
    wire = place.wire()
    async with place.running(grouper(), transport=wire) as service:
        await place.pod("a", by=job, labels={QUEUE: "x", "priorityClassName": "build"})
        await place.pods.wait_until(assigned("a"))
        await place.pod("b", by=job, labels={"priorityClassName": "inference"})
        await place.pods.wait_until(assigned("b"))
        await place.settled(service)
        assert (await place.raw_groups())[0]["spec"]["priorityClassName"] == "build"
        assert not [write for write in wire.writes if "/podgroups/" in write]
        await place.client.delete(resources.PODS, "a", "default")
        await place.pods.wait_until(lambda pods: "default/a" not in pods)
        await place.client.patch(resources.PODS, "b", {"metadata": {"labels": {"touched": "x"}}}, "default")
        await place.groups.wait_until(lambda groups: groups.values()[0].spec.priority_class_name == "inference")  # type: ignore[index]


async def test_the_queue_follows_only_while_nothing_runs(place: ServiceCluster) -> None:
    """workloads:4, Do better."""
    job = await place.job(labels={QUEUE: "q1"})
    await place.pod("a", by=job)
    async with place.running(grouper(follow_queue=True)) as service:
        await place.pods.wait_until(assigned("a"))
        await place.client.patch(resources.JOBS, "j", {"metadata": {"labels": {QUEUE: "q2"}}}, "default")
        await place.groups.wait_until(lambda groups: groups.values()[0].spec.queue == "q2")  # type: ignore[index]
        await place.bind("a")
        # An annotation that comes back shows that the grouper has seen everything before it.
        await place.client.patch(resources.PODS, "a", {"metadata": {"annotations": {GROUP: None}}}, "default")
        await place.pods.wait_until(lambda pods: group_of(pods, "a") == "")
        await place.pods.wait_until(assigned("a"))
        await place.client.patch(resources.JOBS, "j", {"metadata": {"labels": {QUEUE: "q3", "x": "y"}}}, "default")
        await place.groups.wait_until(lambda groups: "x" in groups.values()[0].metadata.labels)  # type: ignore[index]
        await place.settled(service)
    assert (await place.raw_groups())[0]["spec"]["queue"] == "q2"


async def test_the_pods_and_group_of_a_deleted_job_go_without_an_event(place: ServiceCluster) -> None:
    job = await place.job()
    for name in ("a", "b"):
        await place.pod(name, by=job)
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("a", "b"))
        await place.client.delete(resources.JOBS, "j", "default", propagation="Background")
        await place.pods.wait_until(lambda pods: len(pods) == 0)
        await place.groups.wait_until(lambda groups: len(groups) == 0)
    assert not await place.client.list_raw(resources.EVENTS, namespace="default")


async def test_a_gang_that_is_partly_done_waits_for_the_rest_only(place: ServiceCluster) -> None:
    """One pod has succeeded and another one comes again: the group of two must be able to start with one."""
    job = await place.job(completions=2, annotations={"kai.scheduler/batch-min-member": "2"})
    await place.pod("again", by=job)
    async with place.running(grouper()):
        await place.pods.wait_until(assigned("again"))
        await place.groups.wait_until(lambda store: [group.spec.min_member for group in store.values()] == [2])
        done = {"status": {"succeeded": 1}}
        await place.client.patch(resources.JOBS, job["metadata"]["name"], done, "default", subresource="status")
        await place.groups.wait_until(lambda store: [group.spec.min_member for group in store.values()] == [1], 10)


async def test_a_gang_that_is_admitted_in_part_waits_for_that_part_only(place: ServiceCluster) -> None:
    """kueue:parallelism."""
    job = await place.job(completions=4, annotations={"kai.scheduler/batch-min-member": "4"})
    await place.pod("waiting", by=job)
    async with place.running(grouper()):
        await place.groups.wait_until(lambda store: [group.spec.min_member for group in store.values()] == [4])
        await place.client.patch(resources.JOBS, "j", {"spec": {"parallelism": 3}}, "default")
        await place.groups.wait_until(lambda store: [group.spec.min_member for group in store.values()] == [3], 10)


class TestOtherGroupers:
    """Kinds that third parties add."""

    @staticmethod
    def with_grouper(group: Any) -> Any:
        def make(runtime: Runtime) -> PodGrouper:
            return make_podgrouper(runtime, PodGrouperOptions(), {**built_in_groupers(), ("batch", "v1", "Job"): group})

        return make

    async def test_a_subgroup_is_written_only_on_the_reconciled_pod(self, place: ServiceCluster) -> None:
        """workloads:T-32, PP-1."""

        def group(
            top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
        ) -> Metadata:
            meta = group_default(top, pod, owners, settings, readers)
            parts = (SubGroup(name="a", min_member=1), SubGroup(name="b", min_member=1))
            return replace(meta, sub_groups=parts, pod_sub_group=pod.metadata.name[0])

        job = await place.job()
        for name in ("a0", "b0", "b1"):
            await place.pod(name, by=job)
        async with place.running(self.with_grouper(group)):
            await place.pods.wait_until(assigned("a0", "b0", "b1"))
        labels = [(await place.raw_pod(name))["metadata"]["labels"] for name in ("a0", "b0", "b1")]
        assert [found["kai.scheduler/subgroup-name"] for found in labels] == ["a", "b", "b"]

    async def test_an_object_is_read_for_a_grouper_that_needs_it(self, place: ServiceCluster) -> None:
        seen: list[Mapping[str, Any] | None] = []

        def group(
            top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
        ) -> Metadata:
            for name in ("s", "nobody"):
                seen.append(readers.object(ObjectName("example.com/v1", "Sweep", "default", name)))
            assert top.body["spec"]["template"], "a kind of a third party is read in full"
            return group_default(top, pod, owners, settings, readers)

        await sweep(place)
        job = await place.job()
        await place.pod("a", by=job)
        async with place.running(self.with_grouper(group)):
            await place.pods.wait_until(assigned("a"))
        assert seen[-1] is None
        assert seen[-2] is not None
        assert seen[-2]["metadata"]["name"] == "s"

    async def test_a_failing_grouper_is_reported_and_others_are_served(self, place: ServiceCluster) -> None:
        def group(
            top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
        ) -> Metadata:
            raise ZeroDivisionError("oh")

        job = await place.job()
        await place.pod("a", by=job)
        await place.pod("b")
        async with place.running(self.with_grouper(group)):
            assert "the grouper of Job failed: oh" in await place.wait_for_warning("a", WARNING)
            await place.pods.wait_until(assigned("b"))

    async def test_a_refusal_is_tried_again(self, place: ServiceCluster) -> None:
        asked: list[str] = []

        def group(
            top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
        ) -> Metadata:
            asked.append(pod.metadata.name)
            if len(asked) < 3:
                raise GroupingError("not now")
            return group_default(top, pod, owners, settings, readers)

        job = await place.job()
        await place.pod("a", by=job)
        place.clock.speed = 1000.0
        async with place.running(self.with_grouper(group)):
            await place.pods.wait_until(assigned("a"))
        assert len(asked) >= 3
