"""What the scheduler does seldom, under its own role: labels on pods, events that repeat, kinds a cluster may lack."""

from __future__ import annotations

import asyncio

from pykai.api import names
from pykai.kube import resources
from pykai.kube.transport import Request
from tests.cluster.plane import install
from tests.services.scheduler.schedulercluster import refusal, scheduler_cluster

BINDING = r"/pods/[^/]+/binding$"

#: as the operator of node-feature-discovery installs it, its schema left out
NUMA_ZONES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"noderesourcetopologies.{names.NUMA_GROUP}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": names.NUMA_GROUP,
        "scope": "Cluster",
        "names": {"plural": "noderesourcetopologies", "kind": "NodeResourceTopology"},
        "versions": [
            {
                "name": resources.NODE_RESOURCE_TOPOLOGIES.version,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


async def test_a_pod_that_goes_to_a_pool_by_a_bind_request_carries_its_label() -> None:
    """gpu:B-3."""
    pool = {names.NODE_POOL_LABEL: "blue"}
    async with scheduler_cluster() as lab:
        await lab.node("a", gpus=2, memory_mib=40000, labels=pool)
        for queue in ("department", "team"):
            await lab.client.patch(resources.QUEUES, queue, {"metadata": {"labels": pool}})
        await lab.group("job")
        await lab.client.patch(resources.POD_GROUPS, "job", {"metadata": {"labels": pool}}, "default")
        await lab.pod("job-0", "job", annotations={"gpu-fraction": "0.5"})
        async with lab.scheduler(partition_label_value="blue"):
            await lab.requests.wait_until(lambda store: len(store) == 1, 10)
            await lab.pods.wait_until(lambda store: all(pod.metadata.labels == pool for pod in store.values()), 10)


async def test_a_repeated_refusal_is_counted() -> None:
    async with scheduler_cluster(speed=50) as lab:
        await lab.node("a")
        lab.faults.refuse("POST", BINDING, refusal(403, "Forbidden", "not here"))
        await lab.gang("job", pods=1)
        async with lab.scheduler():
            await lab.wait_for_event("FailedBinding", "job-0")
            attempts = len(lab.faults.written("POST", BINDING))
            enough = asyncio.Event()

            async def note(_: Request) -> None:
                # When the next but one begins, the next was reported.
                if len(lab.faults.written("POST", BINDING)) > attempts + 1:
                    enough.set()

            lab.faults.on_write = note
            await asyncio.wait_for(enough.wait(), 20)
        await lab.events.wait_until(
            lambda events: any(each["reason"] == "FailedBinding" and each["count"] > 1 for each in events.values()), 10
        )


async def test_the_zones_of_nodes_are_followed_where_a_cluster_has_them() -> None:
    async with scheduler_cluster() as lab:
        await install(lab.server.transport(), [NUMA_ZONES])
        async with lab.scheduler() as scheduler:
            zones = scheduler.intake.stores["NodeResourceTopology"]
            await zones.synced.wait()
            await lab.create(resources.NODE_RESOURCE_TOPOLOGIES, {"metadata": {"name": "a"}, "zones": []})
            await zones.wait_until(lambda store: "a" in store, 10)
