"""The steps of upstream's end-to-end specs about Kubernetes' own workloads (operations:17, integrations/k8s_native).

All services run under their own accounts; controllers and kubelets are those of the simulator, on either server.  As
there, a queue is created before its parent (operations:E-4), and pods are those of operations:E-6.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pykai.api import names
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import Forbidden
from pykai.kube.resources import (
    CONFIG_MAPS,
    CRON_JOBS,
    DEPLOYMENTS,
    JOBS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    REPLICA_SETS,
    RUNTIME_CLASSES,
    STATEFUL_SETS,
    Resource,
)
from pykai.kube.runtime import Runtime, Service, run_services
from pykai.kube.store import Store
from pykai.lab.machines import create_nodes, machines
from pykai.lab.machines.nodes import MachineKind
from pykai.lab.machines.options import MachineOptions
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from tests.cluster.realcluster import SERVICES
from tests.servers import Server, api_server
from tests.services.servicecluster import CLASSES
from tests.webhooks.admissioncluster import admitted

Document = dict[str, Any]
NAMESPACE, QUEUE = "default", "test-queue"
QUICK = BehaviourDefaults(start_s=0.01, run_s=3600.0, stop_s=0.01, reservation_start_s=0.01)
ENOUGH = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


class NativeCluster:
    """The cluster as its users see it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = Client(server.transport())
        self.caches = Caches(self.client)
        self.pods: Store[Document] = self.caches.store(PODS, dict, namespace=NAMESPACE)
        self.groups: Store[Document] = self.caches.store(POD_GROUPS, dict, namespace=NAMESPACE)
        self.maps: Store[Document] = self.caches.store(CONFIG_MAPS, dict, namespace=NAMESPACE)

    async def queue(self, cpu_limit: int = -1) -> None:
        """A queue, before its parent."""
        cpu = {**ENOUGH, "limit": cpu_limit}
        for name, more in ((QUEUE, {"parentQueue": "test-department"}), ("test-department", {})):
            spec = {"resources": {"gpu": ENOUGH, "cpu": cpu, "memory": ENOUGH}, **more}
            await self.client.create(QUEUES, {"metadata": {"name": name}, "spec": spec})

    async def create(self, resource: Resource, name: str, spec: Mapping[str, Any], **metadata: Any) -> Document:
        return await self.client.create(resource, {"metadata": {"name": name, **metadata}, "spec": spec}, NAMESPACE)

    def of(self, workload: str, phase: str = "") -> list[Document]:
        """The pods of a workload."""
        labelled = [pod for pod in self.pods.values() if pod["metadata"]["labels"].get("workload") == workload]
        return [pod for pod in labelled if not phase or pod["status"]["phase"] == phase]

    def groups_of(self, workload: str) -> list[Document]:
        """The PodGroups of the pods of a workload."""
        found = {pod["metadata"]["annotations"][names.POD_GROUP_ANNOTATION] for pod in self.of(workload)}
        return [group for group in self.groups.values() if group["metadata"]["name"] in found]

    async def running(self, **counts: int) -> None:
        """Wait until so many pods of each workload run."""
        try:
            await self.pods.wait_until(
                lambda _: all(len(self.of(workload, "Running")) == count for workload, count in counts.items()), 60
            )
        except TimeoutError as error:
            found = [(pod["metadata"]["name"], pod["status"]) for pod in self.pods.values()]
            raise AssertionError(f"not {counts} running pods: {found}") from error


@asynccontextmanager
async def native_cluster(cpu_limit: int = -1) -> AsyncIterator[NativeCluster]:
    """Services, controllers and one machine with two GPUs, each service with caches of its own."""
    clock = Clock()
    async with api_server(clock) as server:
        cluster = NativeCluster(server)
        await cluster.queue(cpu_limit)
        for name, value in CLASSES.items():
            await cluster.client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        await create_nodes(cluster.client, clock, [MachineKind(name="machine", gpus=2)])
        stop = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []

        def start(user: str, make: Callable[[Runtime], list[Service]]) -> None:
            client = Client(server.transport(user))
            runtime = Runtime(client, Caches(client), clock)
            tasks.append(asyncio.create_task(run_services(runtime, make(runtime), stop)))

        await cluster.caches.start()
        try:
            for account, make in SERVICES.items():
                start(account, _alone(make))
            start("admin", lambda runtime: machines(runtime, MachineOptions(QUICK, default_scheduler=False)))
            yield cluster
        finally:
            stop.set()
            await asyncio.gather(*tasks)
            await cluster.caches.stop()


def _alone(make: Callable[[Runtime], Service]) -> Callable[[Runtime], list[Service]]:
    return lambda runtime: [make(runtime)]


def template(workload: str, **spec: Any) -> Document:
    """operations:E-6."""
    container = {"name": "ubuntu-container", "image": "ubuntu", "args": ["sleep", "infinity"]}
    return {
        "metadata": {"labels": {"app": "engine-e2e", "workload": workload, names.QUEUE_LABEL: QUEUE}},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "tolerations": [{"key": names.NVIDIA_GPU, "operator": "Exists", "effect": "NoSchedule"}],
            **spec,
        },
    }


def replicated(workload: str, replicas: int, **annotations: str) -> Document:
    """The spec of a Deployment, a ReplicaSet or a StatefulSet."""
    made = template(workload)
    made["metadata"]["annotations"] = annotations
    return {"replicas": replicas, "selector": {"matchLabels": {"workload": workload}}, "template": made}


def job(workload: str, pods: int = 1) -> Document:
    return {"parallelism": pods, "completions": pods, "template": template(workload, restartPolicy="Never")}


async def test_every_native_workload_is_grouped_and_runs() -> None:
    """workloads:WK-POD, workloads:WK-DEP, workloads:WK-JOB, workloads:WK-CJ, workloads:DF-5, workloads:DF-7."""
    async with native_cluster() as cluster:
        bare = template("pod")
        await cluster.create(PODS, "pod", bare["spec"], labels=bare["metadata"]["labels"])
        await cluster.create(REPLICA_SETS, "replicaset", replicated("replicaset", 2))
        await cluster.create(DEPLOYMENTS, "deployment", replicated("deployment", 2))
        await cluster.create(STATEFUL_SETS, "statefulset", {"serviceName": "s", **replicated("statefulset", 2)})
        await cluster.create(JOBS, "job", job("job", pods=2))
        await cluster.create(CRON_JOBS, "cronjob", {"schedule": "* * * * *", "jobTemplate": {"spec": job("cronjob")}})
        # Its time has come: it was due a minute ago.
        missed = {"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}}
        await cluster.client.patch(CRON_JOBS, "cronjob", missed, NAMESPACE, subresource="status")
        counts = {"pod": 1, "replicaset": 2, "deployment": 2, "statefulset": 2, "job": 2, "cronjob": 1}
        await cluster.running(**counts)

        found = {
            workload: [
                (group["spec"]["queue"], group["spec"]["priorityClassName"], group["spec"]["minMember"])
                for group in cluster.groups_of(workload)
            ]
            for workload in counts
        }
        # A group for the whole workload, but each pod of a Deployment has one of its own.
        expected = {workload: [(QUEUE, "train", 1)] for workload in counts}
        assert found == {**expected, "deployment": [(QUEUE, "inference", 1)] * 2}


async def test_a_job_that_brings_its_group_gets_no_second_one() -> None:
    """workloads:EX-1."""
    async with native_cluster() as cluster:
        subgroups = [{"name": "workers", "minMember": 1}]
        await cluster.create(POD_GROUPS, "external", {"queue": QUEUE, "minMember": 1, "subGroups": subgroups})
        spec = job("job")
        metadata = spec["template"]["metadata"]
        metadata["annotations"] = {names.POD_GROUP_ANNOTATION: "external"}
        metadata["labels"] |= {names.POD_GROUP_ANNOTATION: "external", names.SUBGROUP_LABEL: "workers"}
        await cluster.create(JOBS, "job", spec, annotations={names.SKIP_POD_GROUPER_ANNOTATION: "true"})
        await cluster.running(job=1)
        # By now the pod grouper has seen the job: a later pod has its group.
        later = template("later")
        await cluster.create(PODS, "later", later["spec"], labels=later["metadata"]["labels"])
        await cluster.running(later=1)
        assert {group["metadata"]["name"] for group in cluster.groups_of("job")} == {"external"}
        assert len(cluster.groups) == 2


def shared(maps: Iterable[Document]) -> list[Document]:
    return [each for each in maps if "shared-gpu" in each["metadata"]["name"]]


async def test_a_deployment_of_fractions_takes_its_config_maps_with_it() -> None:
    async with native_cluster() as cluster, admitted(cluster.server):
        fraction = {names.GPU_FRACTION_ANNOTATION: "0.1"}
        await cluster.create(DEPLOYMENTS, "shares", replicated("shares", 10, **fraction))
        await cluster.running(shares=10)
        assert len(shared(cluster.maps.values())) == 20
        await cluster.client.patch(DEPLOYMENTS, "shares", {"spec": {"replicas": 0}}, NAMESPACE, subresource="scale")
        await cluster.maps.wait_until(lambda maps: not shared(maps.values()), 60)


async def test_the_overhead_of_a_runtime_class_counts_against_the_queue() -> None:
    async with native_cluster(cpu_limit=1000) as cluster:
        overhead = {"podFixed": {"cpu": "2"}}
        for name, more in (("light", {}), ("heavy", {"overhead": overhead})):
            await cluster.client.create(RUNTIME_CLASSES, {"metadata": {"name": name}, "handler": name, **more})
        for name in ("light", "heavy"):
            made = template(name, runtimeClassName=name)
            made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
            await _admitted(cluster, name, made)
        await cluster.running(light=1)
        await cluster.pods.wait_until(
            lambda _: any(
                (each["type"], each["status"], each.get("reason")) == ("PodScheduled", "False", "Unschedulable")
                for pod in cluster.of("heavy")
                for each in pod["status"].get("conditions", ())
            ),
            60,
        )


async def _admitted(cluster: NativeCluster, name: str, made: Document) -> None:
    """Create a pod of a new runtime class, which an API server sees with a delay."""
    async with asyncio.timeout(30):
        while True:
            try:
                await cluster.create(PODS, name, made["spec"], labels=made["metadata"]["labels"])
                return
            except Forbidden:
                await asyncio.sleep(0.05)
