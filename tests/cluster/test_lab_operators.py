"""The lab's operators on a real API server, beside real controllers: kinds that make pods, Jobs and other kinds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.credentials import connect
from pykai.kube.resources import POD_GROUPS, PODS, Resource
from pykai.kube.runtime import Runtime, run_services
from pykai.lab.machines.nodes import MachineKind
from pykai.lab.operators.service import from_flags
from tests.cluster.realcluster import QUEUE, Document, RealCluster, has_condition, real_cluster
from tests.lab.operators.operatedcluster import KINDS, example
from tests.lab.operators.test_families import create_when_served

pytestmark = [pytest.mark.cluster_only, pytest.mark.asyncio(loop_scope="module")]

MACHINES = (MachineKind(count=2, name="gpu-{}", gpus=8, cpu="32"),)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealCluster]:
    async with real_cluster(tmp_path_factory.mktemp("operators"), MACHINES) as made:
        transport = connect(made.plane.kubeconfig)
        client = Client(transport)
        runtime = Runtime(client, Caches(client), Clock())
        services = from_flags(runtime, {"kinds": "kubeflow,jobset,ray"}, CollectorRegistry())
        stop = asyncio.Event()
        running = asyncio.create_task(run_services(runtime, services, stop))
        try:
            yield made
        finally:
            stop.set()
            await running
            await transport.close()


def in_queue(value: Any) -> Any:
    """An example in the queue of these tests, whose pods run for two seconds."""
    if isinstance(value, dict):
        changed = {key: in_queue(each) for key, each in value.items()}
        for key, own in ((names.QUEUE_LABEL, QUEUE), (names.RUN_SECONDS_ANNOTATION, "2")):
            if key in changed:
                changed[key] = own
        return changed
    return [in_queue(each) for each in value] if isinstance(value, list) else value


async def submit(cluster: RealCluster, name: str) -> tuple[str, Document]:
    """Apply an example in a namespace of its own."""
    space = await cluster.namespace(name)
    (document,) = (in_queue(each) for each in example(name))
    await create_when_served(cluster.client, KINDS[document["kind"]], document, space)
    return space, document


async def until(
    cluster: RealCluster, resource: Resource, space: str, name: str, holds: Callable[[Document], bool]
) -> Document:
    """Wait until an object is as it should be; this kind is not in the caches of the cluster."""
    async with asyncio.timeout(60):
        while not holds(found := await cluster.client.get_raw(resource, name, space)):
            await asyncio.sleep(0.5)
    return found


def minimums(cluster: RealCluster, space: str) -> list[int]:
    """Of all groups in a namespace, in the order of their names."""
    return [each["spec"].get("minMember", each["spec"].get("minSubGroup")) for each in cluster.all(POD_GROUPS, space)]


async def test_a_pytorch_job_runs_as_a_gang_and_succeeds(cluster: RealCluster) -> None:
    space, job = await submit(cluster, "pytorchjob")
    done = await until(cluster, KINDS["PyTorchJob"], space, job["metadata"]["name"], has_condition("Succeeded"))
    assert done["status"]["completionTime"]
    assert minimums(cluster, space) == [4]
    pods = {pod["metadata"]["name"] for pod in cluster.all(PODS, space)}
    assert "pytorch-master-0" in pods


async def test_a_job_set_runs_jobs_of_the_real_controller(cluster: RealCluster) -> None:
    space, job_set = await submit(cluster, "jobset")
    done = await until(cluster, KINDS["JobSet"], space, job_set["metadata"]["name"], has_condition("Completed"))
    assert done["status"]["terminalState"] == "Completed"
    assert minimums(cluster, space) == [2]
    assert len(cluster.pods(space, "Succeeded")) == 5


async def test_a_ray_cluster_becomes_ready_and_gives_its_pods_back_when_suspended(cluster: RealCluster) -> None:
    space, ray = await submit(cluster, "raycluster")
    name, resource = ray["metadata"]["name"], KINDS["RayCluster"]
    await until(cluster, resource, space, name, has_condition("RayClusterProvisioned"))
    assert minimums(cluster, space) == [3]
    await cluster.client.patch(resource, name, {"spec": {"suspend": True}}, space)
    await cluster.gone(PODS, space)
    await until(cluster, resource, space, name, has_condition("RayClusterSuspended"))
