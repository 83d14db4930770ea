"""A real control plane with workloads: all our services under their own accounts, and kubelets played by the simulator.

    async with living_cluster(folder, [MachineKind(count=2, gpus=8)]) as cluster:
        await cluster.create(JOBS, job("train", pods=4))
        await cluster.until(JOBS, "train", complete)

Every service has a client and caches of its own, as a process has.  Kubelets are quick: a container starts within a
tenth of a second and stops as fast.  `until` waits for changes of one object, `gone` for its end, both by watches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from pykai.api import names
from pykai.binder.options import BinderOptions
from pykai.binder.service import make_binder
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.credentials import connect
from pykai.kube.resources import MUTATING_WEBHOOKS, NAMESPACES, NODES, SERVICE_ACCOUNTS, Resource
from pykai.kube.runtime import Runtime, Service, run_services
from pykai.kube.store import Store
from pykai.kube.transport import Transport
from pykai.lab.machines import create_nodes
from pykai.lab.machines.kubelets import Kubelets
from pykai.lab.machines.nodes import MachineKind
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from pykai.operator.install import installation
from pykai.podgrouper.options import PodGrouperOptions
from pykai.podgrouper.service import make_podgrouper
from pykai.podgroups.options import PodGroupsOptions
from pykai.podgroups.service import make_podgroups
from pykai.queues.options import QueuesOptions
from pykai.queues.service import make_queues
from pykai.scheduler.flags import read_flags
from pykai.scheduler.service import Scheduler, make_scheduler
from tests.cluster.controlplane import ControlPlane
from tests.cluster.plane import admission, install

Document = dict[str, Any]
Wrap = Callable[[Transport], Transport]

#: how long anything may take on a busy machine
TIMEOUT_S = 900.0
QUICK_BEHAVIOUR = BehaviourDefaults(start_s=0.05, run_s=1.0, stop_s=0.05, init_s=0.05, reservation_start_s=0.05)
#: the queue of all workloads, with all it may need
QUEUE = "team"
#: what tests wait for
_WATCHED = (
    resources.PODS,
    resources.JOBS,
    resources.DEPLOYMENTS,
    resources.REPLICA_SETS,
    resources.STATEFUL_SETS,
    resources.RESOURCE_CLAIMS,
    resources.POD_GROUPS,
    resources.BIND_REQUESTS,
    resources.QUEUES,
    NAMESPACES,
    NODES,
    SERVICE_ACCOUNTS,
)

log = logging.getLogger(__name__)


class RealCluster:
    """The cluster as its users see it."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        self.plane = plane
        self.client = client
        self.caches = Caches(client)
        self.stores: dict[Resource, Store[Document]] = {each: self.caches.store(each, dict) for each in _WATCHED}
        self.services: list[Service] = []

    def all(self, resource: Resource, namespace: str = "") -> list[Document]:
        """The objects of a kind, by name."""
        found = [
            each
            for each in self.stores[resource].values()
            if not namespace or each["metadata"].get("namespace") == namespace
        ]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))

    def pods(self, namespace: str, phase: str = "") -> list[Document]:
        """Pods of a namespace, those in one phase."""
        return [pod for pod in self.all(resources.PODS, namespace) if not phase or pod["status"]["phase"] == phase]

    async def namespace(self, name: str, *, admitted: bool = False) -> str:
        """A new namespace in which pods can be created; `admitted`: through our webhook."""
        labels = {"kai.test/admitted": "true"} if admitted else {}
        await self.client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        await self.wait_for(SERVICE_ACCOUNTS, lambda: f"{name}/default" in self.stores[SERVICE_ACCOUNTS])
        return name

    async def create(self, resource: Resource, obj: Mapping[str, Any], namespace: str = "") -> Document:
        """Create an object as a user does."""
        return await self.client.create(resource, obj, namespace)

    async def change(
        self, resource: Resource, name: str, namespace: str, patch: Mapping[str, Any], subresource: str = ""
    ) -> None:
        """Patch an object; what is waited for afterwards is no older than that."""
        written = await self.client.patch(resource, name, patch, namespace, subresource=subresource)
        version = int(written["metadata"]["resourceVersion"])
        await self.until(resource, name, namespace, lambda found: int(found["metadata"]["resourceVersion"]) >= version)

    async def wait_for(self, resource: Resource, holds: Callable[[], bool]) -> None:
        """Wait, change by change of a kind, until something holds."""
        await self.stores[resource].wait_until(lambda _: holds(), TIMEOUT_S)

    async def until(self, resource: Resource, name: str, namespace: str, holds: Callable[[Document], bool]) -> Document:
        """Wait until one object satisfies a condition."""
        store, key = self.stores[resource], resource.key(namespace, name)
        try:
            await store.wait_until(lambda _: (found := store.get(key)) is not None and holds(found), TIMEOUT_S)
        except TimeoutError as error:
            raise AssertionError(f"{resource.kind} {key} is {store.get(key)}") from error
        found = store.get(key)
        assert found is not None
        return found

    async def gone(self, resource: Resource, namespace: str = "") -> None:
        """Wait until nothing of a kind is left, in a namespace or at all."""
        try:
            await self.wait_for(resource, lambda: not self.all(resource, namespace))
        except TimeoutError as error:
            left = [f"{each['metadata']}" for each in self.all(resource, namespace)]
            raise AssertionError("\n".join([f"{resource.plural} left over:", *left])) from error

    async def running(self, namespace: str, count: int) -> list[Document]:
        """Wait until so many pods of a namespace run."""
        try:
            await self.wait_for(resources.PODS, lambda: len(self.pods(namespace, "Running")) == count)
        except TimeoutError as error:
            found = [f"{each['metadata']['name']}: {each['status']}" for each in self.pods(namespace)]
            raise AssertionError("\n".join([f"not {count} running pods:", *found])) from error
        return self.pods(namespace, "Running")

    async def events(self, namespace: str) -> list[Document]:
        """The events of a namespace."""
        return await self.client.list_raw(resources.EVENTS, namespace=namespace)


@asynccontextmanager
async def real_cluster(
    folder: Path,
    machines: Sequence[MachineKind],
    *,
    default_scheduler: bool = False,
    audit: bool = False,
    habits: BehaviourDefaults = QUICK_BEHAVIOUR,
    wrap: Mapping[str, Callable[[Transport], Transport]] | None = None,
) -> AsyncIterator[RealCluster]:
    """Start everything, with these nodes; `wrap` puts something between a service and the server."""
    plane = ControlPlane(folder, controllers=("*",), scheduler=default_scheduler, service_accounts=True, audit=audit)
    selected = {"matchLabels": {"kai.test/admitted": "true"}}
    async with AsyncExitStack() as stack:
        stack.enter_context(plane)
        webhook = stack.enter_context(admission(plane, selected))
        admin = connect(plane.kubeconfig)
        stack.push_async_callback(admin.close)
        await install(admin, installation())
        client = Client(admin)
        await client.create(MUTATING_WEBHOOKS, webhook)
        await client.create(resources.QUEUES, _queue())
        plane.start_controllers()
        clock = Clock()
        await create_nodes(client, clock, machines)
        cluster = RealCluster(plane, client)
        await cluster.caches.start()
        stack.push_async_callback(cluster.caches.stop)
        await cluster.caches.wait_for_sync()
        connections = await stack.enter_async_context(AsyncExitStack())
        stop = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []
        stack.push_async_callback(_ended, stop, tasks)
        for account, make in SERVICES.items():
            transport = connect(plane.kubeconfig_of(names.DEFAULT_NAMESPACE, account))
            connections.push_async_callback(transport.close)
            runtime = _runtime((wrap or {}).get(account, _unwrapped)(transport), clock)
            cluster.services.append(service := make(runtime))
            tasks.append(asyncio.create_task(run_services(runtime, [service], stop), name=account))
        runtime = _runtime(admin, clock)
        cluster.services.append(kubelets := Kubelets(runtime, habits))
        tasks.append(asyncio.create_task(run_services(runtime, [kubelets], stop), name="kubelets"))
        # The node lifecycle controller lets pods onto a node once its kubelet is ready.
        await cluster.wait_for(NODES, lambda: not any(node["spec"].get("taints") for node in cluster.all(NODES)))
        yield cluster


def _runtime(transport: Transport, clock: Clock) -> Runtime:
    client = Client(transport)
    return Runtime(client, Caches(client), clock)


def _queue() -> Document:
    enough = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    return {"metadata": {"name": QUEUE}, "spec": {"resources": {"gpu": enough, "cpu": enough, "memory": enough}}}


def _unwrapped(transport: Transport) -> Transport:
    return transport


async def _ended(stop: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
    """Services end by themselves; one that failed fails the test."""
    stop.set()
    await asyncio.gather(*tasks)


def scheduler_of(cluster: RealCluster) -> Scheduler:
    """Our scheduler, for inspection."""
    (found,) = (service for service in cluster.services if isinstance(service, Scheduler))
    return found


#: account -> its service
SERVICES: Mapping[str, Callable[[Runtime], Service]] = {
    "scheduler": lambda runtime: make_scheduler(runtime, read_flags({}), endpoints=False),
    "binder": lambda runtime: make_binder(runtime, BinderOptions()),
    "pod-grouper": lambda runtime: make_podgrouper(runtime, PodGrouperOptions()),
    "podgroup-controller": lambda runtime: make_podgroups(runtime, PodGroupsOptions()),
    "queue-controller": lambda runtime: make_queues(runtime, QueuesOptions()),
}


def template(
    gpus: int = 0,
    *,
    cpu: str = "",
    scheduler: str = names.SCHEDULER_NAME,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    runs_s: float | None = None,
    **spec: Any,
) -> Document:
    """A pod template; `runs_s` is how long its containers run."""
    pod_annotations = dict(annotations or {})
    if runs_s is not None:
        pod_annotations[names.RUN_SECONDS_ANNOTATION] = str(runs_s)
    labels = {names.QUEUE_LABEL: QUEUE, **(labels or {})}
    requests = {**({names.NVIDIA_GPU: str(gpus)} if gpus else {}), **({"cpu": cpu} if cpu else {})}
    container = {"name": "main", "image": "example", "resources": {"requests": requests, "limits": requests}}
    return {
        "metadata": {"labels": labels, "annotations": pod_annotations},
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
    }


def job(
    name: str,
    pods: int = 1,
    gpus: int = 1,
    *,
    minimum: int = 0,
    runs_s: float = 1.0,
    spec: Mapping[str, Any] | None = None,
    **of_pods: Any,
) -> Document:
    """A Job of so many pods at a time; a gang if `minimum` says how many must start together."""
    made = {"restartPolicy": "Never", **of_pods}
    return {
        "metadata": {
            "name": name,
            "annotations": {names.BATCH_MIN_MEMBER_ANNOTATION: str(minimum)} if minimum else {},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": template(gpus, runs_s=runs_s, **made),
            **(spec or {}),
        },
    }


def has_condition(condition: str) -> Callable[[Document], bool]:
    """Whether an object has a condition that holds."""

    def holds(found: Document) -> bool:
        conditions = found.get("status", {}).get("conditions") or []
        return any(each["type"] == condition and each["status"] == "True" for each in conditions)

    return holds
