"""A Job that wishes to be suspended when it is evicted, and a controller of Jobs that the test plays by hand.

async with suspend_cluster() as lab, lab.cluster.scheduler():
    await lab.evict()               # another queue claims the GPUs of the Job
    await lab.until_suspended()
    await lab.delete_pods()         # the controller
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from pykai.api import names
from pykai.kube.caches import Caches
from pykai.kube.resources import CONFIG_MAPS, JOBS, POD_GROUPS, PODS, Resource
from pykai.kube.store import Store
from pykai.kube.transport import Request
from tests.services.scheduler.schedulercluster import Raw, SchedulerCluster, scheduler_cluster

WISH = {names.EVICTION_STRATEGY_ANNOTATION: names.EVICTION_STRATEGY_SUSPEND}
JOB = r"/jobs/train$"
RECORD = "suspended-workload"


class SuspendCluster:
    """A node of four GPUs, a Job of two pods with two GPUs each that has them, and a queue that claims them."""

    def __init__(self, cluster: SchedulerCluster) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self._caches = Caches(cluster.client)
        self.jobs: Store[Raw] = self._caches.store(JOBS, dict, namespace="default")
        #: pods that the controller has created
        self.generation = 0
        self.job: Raw = {}
        self.group: Raw = {}

    async def open(
        self,
        *,
        wish: Mapping[str, str] = WISH,
        minimum: int = 2,
        named: str = "",
        job: Raw | None = None,
        queue: Raw | None = None,
        **pod: Any,
    ) -> None:
        """Create all of it; `job` are fields of its metadata and spec, `queue` more fields of the queue of the Job,
        `named` another Job that the PodGroup names.
        """
        lab = self.cluster
        await lab.node("a", gpus=4)
        await lab.queue("rich", parent="department", quota=0, **(queue or {}))
        await lab.queue("poor", parent="department", quota=4)
        self.job = await self.create_owner(JOBS, "train", **(job or {}))
        owner = _reference(await self.create_owner(JOBS, named) if named else self.job)
        spec = {"minMember": minimum, "queue": "rich"}
        meta = {"name": "train", "annotations": dict(wish), "ownerReferences": [owner]}
        self.group = await lab.create(POD_GROUPS, {"metadata": meta, "spec": spec})
        await self.create_pods(running=True, **pod)

    async def start(self) -> None:
        """Watch the Job."""
        await self._caches.start()
        await self.jobs.synced.wait()

    async def stop(self) -> None:
        """End that."""
        await self._caches.stop()

    async def create_owner(self, resource: Resource, name: str, **fields: Any) -> Raw:
        """A Job that no controller but the test's looks after."""
        template = {
            "spec": {
                "restartPolicy": "Never",
                "schedulerName": names.SCHEDULER_NAME,
                "containers": [{"name": "main", "image": "none"}],
            }
        }
        spec = {"template": template, "parallelism": 2, "completions": 2}
        metadata = {"name": name, **fields.pop("metadata", {})}
        return await self.cluster.create(resource, {"metadata": metadata, "spec": {**spec, **fields}})

    # The controller

    async def create_pods(self, count: int = 2, *, running: bool = False, **pod: Any) -> list[str]:
        """Create pods of the Job with new names."""
        self.generation += 1
        made = []
        for index in range(count):
            name = f"train-{self.generation}-{index}"
            await self.pod(name, running=running, **pod)
            made.append(name)
        return made

    async def pod(
        self, name: str, *, running: bool = False, gpu: int = 2, owner: Raw | None = None, **pod: Any
    ) -> None:
        """A pod of the Job."""
        requests = {"cpu": "1", "memory": "1Gi", names.NVIDIA_GPU: str(gpu)}
        container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}
        meta = {
            "name": name,
            "annotations": {names.POD_GROUP_ANNOTATION: "train"},
            "ownerReferences": [{**_reference(owner or self.job), "controller": True}],
        }
        spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **pod}
        made = await self.cluster.create(PODS, {"metadata": meta, "spec": spec})
        if running:
            await self.client.bind("default", name, uid=made["metadata"]["uid"], node="a")
            await self.client.patch(PODS, name, {"status": {"phase": "Running"}}, "default", subresource="status")

    async def delete_pods(self) -> None:
        """Delete all pods of the Job."""
        for name in self.pods():
            await self.client.delete(PODS, name, "default", grace_s=0)
        await self.cluster.pods.wait_until(lambda _: not self.pods(), 10)

    # Others

    async def evict(self) -> None:
        """Let a queue claim what it deserves: all GPUs."""
        await self.cluster.gang("claim", pods=1, queue="poor", gpu=4)

    async def go_away(self) -> None:
        """Let the other queue give its GPUs back."""
        await self.client.delete(PODS, "claim-0", "default", grace_s=0)

    async def break_record(self) -> None:
        """Write something else into the record."""
        labels = {each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in self.cluster.maps.values()}
        (name,) = (name for name in labels if labels[name].get(names.RECORD_LABEL) == RECORD)
        await self.client.patch(CONFIG_MAPS, name, {"data": {"workload": "eA=="}}, names.DEFAULT_NAMESPACE)

    # What became of it

    def pods(self) -> list[str]:
        """Pods of the Job."""
        return sorted(
            pod.metadata.name
            for pod in self.cluster.pods.values()
            if pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION) == "train"
        )

    async def live_job(self) -> Raw:
        """The Job as the server has it."""
        return await self.client.get_raw(JOBS, "train", "default")

    async def until_suspended(self, *, suspended: bool = True) -> Raw:
        """Wait until the Job is suspended, or is not; the Job."""
        await self.jobs.wait_until(lambda _: self._is_suspended() == suspended, 15)
        return await self.live_job()

    def _is_suspended(self) -> bool:
        found = self.jobs.get("default/train")
        return bool(found and found["spec"].get("suspend"))

    async def suspend(self) -> None:
        """Evict the Job, play its controller, and wait until the other queue runs."""
        await self.evict()
        await self.until_suspended()
        await self.delete_pods()
        await self.cluster.until_bound("claim", 1)

    async def until_deleted(self) -> None:
        """Wait until the pods of the Job are deleted one by one."""
        await self.cluster.pods.wait_until(lambda _: not self._staying(), 10)

    def _staying(self) -> list[str]:
        found = (self.cluster.pods.get(f"default/{name}") for name in self.pods())
        return [pod.metadata.name for pod in found if pod is not None and pod.metadata.deletion_timestamp is None]

    def records(self) -> list[dict[str, str]]:
        """Records of suspended workloads."""
        return self.cluster.records(RECORD)

    def patches(self) -> list[Raw]:
        """What the scheduler has written on the Job."""
        return [msgspec.json.decode(each.body or b"") for each in self.cluster.faults.written("PATCH", JOB)]

    def writes(self) -> list[Request]:
        """All writes of the scheduler."""
        return self.cluster.faults.writes


def mark_of(job: Raw) -> str:
    """The mark on a Job."""
    return str(job["metadata"].get("annotations", {}).get(names.SUSPENDED_BY_ANNOTATION, ""))


def _reference(owner: Raw) -> Raw:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


@asynccontextmanager
async def suspend_cluster(*, speed: float = 1.0, **how: Any) -> AsyncIterator[SuspendCluster]:
    """A cluster with the Job."""
    async with scheduler_cluster(speed=speed) as cluster:
        lab = SuspendCluster(cluster)
        await lab.open(**how)
        await lab.start()
        try:
            yield lab
        finally:
            await lab.stop()
