"""Evicted workloads are suspended through their owner, or their pods are deleted (suspend:evict)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api import names
from pykai.kube.errors import ConnectionLost
from pykai.kube.resources import JOBS, POD_GROUPS
from tests.services.scheduler.schedulercluster import refusal
from tests.services.scheduler.suspendcluster import JOB, SuspendCluster, mark_of, suspend_cluster

POD = r"/pods/train-[^/]+$"
FORBIDDEN = refusal(403, "Forbidden", "not yours")


def index_of(lab: SuspendCluster, method: str, part: str) -> int:
    """The number of the first write to such a path."""
    return next(at for at, each in enumerate(lab.writes()) if each.method == method and part in each.path)


async def test_the_owner_is_suspended_and_marked_after_the_record_is_written() -> None:
    """suspend:record, suspend:owner"""
    async with suspend_cluster() as lab, lab.cluster.scheduler():
        before = await lab.live_job()
        await lab.evict()
        job = await lab.until_suspended()
        assert mark_of(job).startswith(f"{lab.group['metadata']['uid']}/")
        await lab.cluster.wait_for_event("WorkloadSuspended", "train")
        assert lab.cluster.event_messages("WorkloadSuspended") == [
            "Job default/train was suspended to evict its 2 pods; it resumes when it fits again"
        ]
        assert len(lab.cluster.event_messages("Evict", "train")) == 2
        (record,) = lab.records()
        assert record["owner"] == "Job/train"
        (patch,) = lab.patches()
        assert patch["spec"] == {"suspend": True}
        assert patch["metadata"]["uid"] == before["metadata"]["uid"]
        assert patch["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        assert index_of(lab, "POST", "/configmaps") < index_of(lab, "PATCH", "/jobs/train")
        assert not lab.cluster.faults.written("DELETE", POD)


async def test_a_suspended_workload_waits_without_pods_and_says_why() -> None:
    """suspend:demand: it has a condition as a waiting group has, and nothing is written about its placeholders."""
    async with suspend_cluster() as lab, lab.cluster.scheduler() as scheduler:
        await lab.suspend()
        await scheduler.loop.cycle()
        assert scheduler.loop.plan is not None
        assert [each.group for each in scheduler.loop.plan.unscheduled] == ["train"]

        def reasons(_: object) -> bool:
            found = lab.cluster.groups.get("default/train")
            return found is not None and bool(found.status.scheduling_conditions)

        await lab.cluster.groups.wait_until(reasons, 10)
        labels = dict.fromkeys(("queue_name", "queue_metadata_name", "queue_display_name"), "rich")
        assert scheduler.metrics.registry.get_sample_value("kai_queue_requested_gpus", labels) == 4
        assert not any("placeholder" in each["involvedObject"]["name"] for each in lab.cluster.events.values())
        assert not any("placeholder" in each.path for each in lab.writes())
        placeholders = [pod for pod in scheduler.intake.objects() if pod.metadata.name.startswith("placeholder:")]
        assert len(placeholders) == 2
        scheduler.intake.rebuild_tables()
        await scheduler.loop.cycle()
        assert scheduler.loop.plan is not None
        assert [each.group for each in scheduler.loop.plan.unscheduled] == ["train"]


@pytest.mark.parametrize("wish", [{}, {names.EVICTION_STRATEGY_ANNOTATION: "delete"}])
async def test_without_the_wish_pods_are_deleted_and_no_owner_is_read(wish: dict[str, str]) -> None:
    async with suspend_cluster(wish=wish) as lab:
        lab.cluster.faults.refuse("GET", JOB, FORBIDDEN)
        async with lab.cluster.scheduler():
            await lab.evict()
            await lab.until_deleted()
        assert not lab.patches()
        assert lab.cluster.faults.rules[0].seen == 0


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("GET", JOB, FORBIDDEN),
        ("PATCH", JOB, FORBIDDEN),
        ("PATCH", JOB, refusal(422, "Invalid", "no")),
        ("PATCH", JOB, refusal(500, "InternalError")),
        ("POST", "/configmaps$", FORBIDDEN),
    ],
)
async def test_where_a_write_fails_pods_are_deleted(method: str, path: str, answer: Any) -> None:
    """suspend:rights"""
    async with suspend_cluster() as lab:
        lab.cluster.faults.refuse(method, path, answer)
        async with lab.cluster.scheduler():
            await lab.evict()
            await lab.until_deleted()
            await lab.cluster.maps.wait_until(lambda _: not lab.records(), 10)
        assert not mark_of(await lab.live_job())


@pytest.mark.parametrize(
    "job",
    [
        {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}}},
        {"managedBy": "kueue.x-k8s.io/multikueue"},
        {"managedBy": "example.com/controller"},
    ],
)
async def test_an_owner_that_another_program_manages_is_left_alone(job: dict[str, Any]) -> None:
    """suspend:kueue, suspend:obeyed"""
    async with suspend_cluster(job=job) as lab, lab.cluster.scheduler():
        await lab.evict()
        await lab.until_deleted()
        assert not lab.patches()


async def test_an_owner_that_names_its_own_controller_is_suspended() -> None:
    """suspend:obeyed"""
    async with suspend_cluster(job={"managedBy": "kubernetes.io/job-controller"}) as lab, lab.cluster.scheduler():
        await lab.evict()
        await lab.until_suspended()


async def test_a_group_that_names_another_owner_does_not_reach_the_owner_of_its_pods() -> None:
    """suspend:owner"""
    async with suspend_cluster(named="other") as lab, lab.cluster.scheduler():
        await lab.evict()
        await lab.until_deleted()
        assert not lab.patches()


async def test_a_group_does_not_reach_an_owner_that_its_pods_do_not_have() -> None:
    """suspend:owner: a tenant writes PodGroups; what a pod is owned by decides."""
    async with suspend_cluster() as lab:
        other = await lab.create_owner(JOBS, "other")
        await lab.delete_pods()
        for name in ("train-2-0", "train-2-1"):
            await lab.pod(name, running=True, owner=other)
        async with lab.cluster.scheduler():
            await lab.evict()
            await lab.until_deleted()
        assert not lab.patches()
        assert not lab.cluster.faults.written("PATCH", "/jobs/other$")


async def test_an_elastic_group_that_only_shrinks_is_not_suspended() -> None:
    async with suspend_cluster(minimum=1) as lab, lab.cluster.scheduler():
        await lab.cluster.gang("claim", pods=1, queue="poor", gpu=2)
        await lab.cluster.pods.wait_until(
            lambda store: any(pod.metadata.deletion_timestamp for pod in store.values()), 10
        )
        assert not lab.patches()


async def test_pods_that_have_volumes_of_their_own_are_deleted() -> None:
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": claim}}
    async with suspend_cluster(volumes=[volume]) as lab, lab.cluster.scheduler():
        await lab.evict()
        await lab.until_deleted()
        assert not lab.patches()


async def test_an_owner_that_changes_meanwhile_is_read_again() -> None:
    """Its controller writes the status all the time."""
    async with suspend_cluster() as lab:
        lab.cluster.faults.refuse("PATCH", JOB, refusal(409, "Conflict"), times=2)
        async with lab.cluster.scheduler():
            await lab.evict()
            await lab.until_suspended()
        assert len(lab.patches()) == 3


@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_patch_without_an_answer_suspends_once(carried_out: bool) -> None:
    async with suspend_cluster() as lab:
        lab.cluster.faults.lose("PATCH", JOB, ConnectionLost("gone"), carried_out=carried_out)
        async with lab.cluster.scheduler():
            await lab.evict()
            assert mark_of(await lab.until_suspended())
            await lab.cluster.wait_for_event("WorkloadSuspended", "train")
        assert not lab.cluster.faults.written("DELETE", POD)


async def test_pods_that_do_not_leave_in_time_are_deleted() -> None:
    """suspend:evict: no controller deletes them."""
    async with suspend_cluster(speed=60) as lab, lab.cluster.scheduler():
        await lab.evict()
        await lab.until_suspended()
        await lab.until_deleted()
        assert len(lab.cluster.faults.written("DELETE", POD)) == 2


async def test_a_suspension_ends_with_its_group() -> None:
    async with suspend_cluster() as lab, lab.cluster.scheduler() as scheduler:
        await lab.suspend()
        await lab.client.delete(POD_GROUPS, "train", "default")
        await lab.cluster.maps.wait_until(lambda _: not lab.records(), 10)
        assert not list(scheduler.intake.placeholders.objects())
        assert len(lab.patches()) == 1
