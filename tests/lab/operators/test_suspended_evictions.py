"""Workloads that are suspended instead of deleted, with operators, pod grouper and machines (suspend:evict)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api import names
from pykai.kube.resources import JOBS, Resource
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
