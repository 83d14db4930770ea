"""Workloads that are suspended instead of deleted, with operators, pod grouper and machines (suspend:evict)."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest

from pykai.api import names
from pykai.api.suspension import SUSPEND_PATHS
from pykai.kube.resources import JOBS, PODS, Resource
from tests.lab.operators.operatedcluster import KINDS, Document, OperatedCluster, example, operated_cluster
from tests.lab.operators.test_operators import pytorch_job, runs

PYTORCH = KINDS["PyTorchJob"]
LONG = {names.RUN_SECONDS_ANNOTATION: "1000000"}


def suspendable(document: Document) -> Document:
    """A workload that wishes to be suspended when it is evicted."""
    annotations = document["metadata"].setdefault("annotations", {})
    annotations[names.EVICTION_STRATEGY_ANNOTATION] = names.EVICTION_STRATEGY_SUSPEND
    return document


def job(
    name: str, pods: int, gpus: int, priority: str = "train", minimum: int | None = None, **metadata: Any
) -> Document:
    """A Job whose pods run until something ends them."""
    labels = {names.PRIORITY_CLASS_LABEL: priority, **metadata.pop("labels", {})}
    container = {"name": "main", "image": "train", "resources": {"limits": {names.NVIDIA_GPU: gpus}}}
    template = {
        "metadata": {"annotations": LONG},
        "spec": {"schedulerName": names.SCHEDULER_NAME, "restartPolicy": "Never", "containers": [container]},
    }
    annotations = {names.BATCH_MIN_MEMBER_ANNOTATION: str(pods if minimum is None else minimum)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels, "annotations": annotations, **metadata},
        "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template},
    }


async def create_job(cluster: OperatedCluster, document: Document) -> None:
    await cluster.client.create(JOBS, document, "default")


async def until_suspended(cluster: OperatedCluster, resource: Resource, name: str, *, suspended: bool) -> Document:
    """Wait until an owner is suspended, or is not."""

    def holds(found: Document) -> bool:
        spec = found["spec"].get("runPolicy", {}) if resource == PYTORCH else found["spec"]
        return bool(spec.get("suspend", False)) == suspended

    return await cluster.until(resource, name, holds)


def marks(found: Document) -> str:
    return str(found["metadata"].get("annotations", {}).get(names.SUSPENDED_BY_ANNOTATION, ""))


async def test_a_job_is_suspended_for_another_and_resumed_after_it() -> None:
    """suspend:evict, suspend:resume"""
    async with operated_cluster("kubeflow") as cluster:
        await create_job(cluster, suspendable(job("train", pods=13, gpus=8)))
        await runs(cluster, 13)
        first = set(cluster.pods())

        await create_job(cluster, job("urgent", pods=1, gpus=8, priority="build-preemptible"))

        found = await until_suspended(cluster, JOBS, "train", suspended=True)
        assert marks(found).startswith(cluster.group_of(next(iter(first)))["metadata"]["uid"])
        await runs(cluster, 1)
        assert not found["status"].get("failed")
        await cluster.until_event("WorkloadSuspended", "Job default/train was suspended to evict its 13 pods")

        await cluster.client.delete(JOBS, "urgent", "default")

        found = await until_suspended(cluster, JOBS, "train", suspended=False)
        assert not marks(found)
        await runs(cluster, 13)
        assert not first & set(cluster.pods())
        await cluster.until_event("WorkloadResumed", "Job default/train was resumed: 13 of its pods fit")


async def test_workloads_that_come_back_together_get_their_places() -> None:
    """suspend:resume"""
    async with operated_cluster("kubeflow") as cluster:
        for name, pods in (("first", 7), ("second", 6)):
            await create_job(cluster, suspendable(job(name, pods=pods, gpus=8)))
        await runs(cluster, 13)
        await create_job(cluster, job("urgent", pods=13, gpus=8, priority="build-preemptible"))
        for name in ("first", "second"):
            await until_suspended(cluster, JOBS, name, suspended=True)
        await runs(cluster, 13)
        await cluster.client.delete(JOBS, "urgent", "default")
        for name in ("first", "second"):
            await until_suspended(cluster, JOBS, name, suspended=False)
        await cluster.until_pods(
            lambda pods: sorted(each.split("-")[0] for each in pods) == ["first"] * 7 + ["second"] * 6
        )
        await runs(cluster, 13)


async def until_urgent_runs(cluster: OperatedCluster) -> None:
    await cluster.until_pods(lambda pods: "Running" in (pods[name] for name in pods if name.startswith("urgent")))


def endless(document: Any) -> Any:
    """A document whose pods run until something ends them."""
    if isinstance(document, dict):
        return {key: "1000000" if key == names.RUN_SECONDS_ANNOTATION else endless(document[key]) for key in document}
    return [endless(each) for each in document] if isinstance(document, list) else document


@pytest.mark.parametrize(
    ("families", "name", "kind"),
    [
        ("kubeflow", "pytorchjob", "PyTorchJob"),
        ("kubeflow", "mpijob", "MPIJob"),
        ("jobset", "jobset", "JobSet"),
        ("trainer", "trainjob", "TrainJob"),
        ("ray", "rayjob", "RayJob"),
    ],
)
async def test_every_kind_with_a_field_for_it_is_suspended_and_resumed(families: str, name: str, kind: str) -> None:
    """suspend:owner"""
    resource = KINDS[kind]
    path = SUSPEND_PATHS[resource.group, kind]
    async with operated_cluster(families) as cluster:
        documents = endless(list(example(name)))
        await cluster.apply(*(suspendable(each) if each["kind"] == kind else each for each in documents))
        owner = next(each["metadata"]["name"] for each in documents if each["kind"] == kind)
        await cluster.until_pods(lambda pods: len(pods) > 1 and set(pods.values()) == {"Running"})
        before = dict(cluster.pods())

        await create_job(cluster, job("urgent", pods=13, gpus=8, priority="build-preemptible"))

        def is_suspended(found: Document) -> bool:
            return bool(reduce(lambda inner, field: inner.get(field) or {}, path, found))

        found = await cluster.until(resource, owner, is_suspended)
        assert marks(found)
        await runs(cluster, 13)

        await cluster.client.delete(JOBS, "urgent", "default")

        found = await cluster.until(resource, owner, lambda found: not is_suspended(found))
        assert not marks(found)
        await cluster.until_pods(lambda pods: len(pods) == len(before) and set(pods.values()) == {"Running"})


async def test_a_ray_job_that_its_operator_would_fail_loses_its_pods_and_runs_again() -> None:
    """suspend:obeyed: without `shutdownAfterJobFinishes`, as KubeRay has it by default."""
    resource = KINDS["RayJob"]
    async with operated_cluster("ray") as cluster:
        (document,) = endless(list(example("rayjob")))
        del document["spec"]["shutdownAfterJobFinishes"]
        await cluster.apply(suspendable(document))
        await cluster.until_pods(lambda pods: len(pods) == 4 and set(pods.values()) == {"Running"})
        first = {pod["metadata"]["uid"] for pod in cluster.stores[PODS].values()}
        await create_job(cluster, job("urgent", pods=13, gpus=8, priority="build-preemptible"))
        await cluster.until_pods(
            lambda pods: sum(phase == "Running" for name, phase in pods.items() if name.startswith("urgent")) == 13
        )
        found = cluster.stores[resource].get("default/rayjob")
        assert found is not None
        assert not found["spec"].get("suspend")
        assert found["status"]["jobDeploymentStatus"] == "Running"
        await cluster.client.delete(JOBS, "urgent", "default")
        await cluster.until_pods(lambda pods: len(pods) >= 3 and set(pods.values()) == {"Running"})
        assert not first & {
            pod["metadata"]["uid"] for pod in cluster.stores[PODS].values() if "gpu" in pod["metadata"]["name"]
        }


async def test_a_workload_that_does_not_wish_it_is_deleted() -> None:
    """suspend:evict"""
    async with operated_cluster("kubeflow") as cluster:
        await cluster.apply(pytorch_job("plain", 1, 12, 8))
        await runs(cluster, 13)
        await create_job(cluster, job("urgent", pods=1, gpus=8, priority="build-preemptible"))
        await until_urgent_runs(cluster)
        found = cluster.stores[PYTORCH].get("default/plain")
        assert found is not None
        assert not found["spec"]["runPolicy"].get("suspend")


async def test_an_elastic_workload_that_only_shrinks_is_not_suspended() -> None:
    """suspend:evict"""
    async with operated_cluster("kubeflow") as cluster:
        await create_job(cluster, suspendable(job("train", pods=13, gpus=8, minimum=1)))
        await runs(cluster, 13)
        await create_job(cluster, job("urgent", pods=1, gpus=8, priority="build-preemptible"))
        await until_urgent_runs(cluster)
        found = cluster.stores[JOBS].get("default/train")
        assert found is not None
        assert not found["spec"].get("suspend")
