"""The cluster under attack: honest users, one tenant, and the meter of the effect on honest users.

    async with target(nodes=20) as cluster:
        await cluster.tenant.create(pod("miner", gpus=1))
        before = await cluster.probe()

All services run in this process on the embedded API server with simulated machines (`kai up` without its board).  The
tenant has the role `edit` in one namespace plus PodGroups and BindRequests; attacks go through its client only.  The
admission policies are not installed by default: clusters without them exist, and what they refuse must do no harm
there.  What the admin client does belongs to the scenery: queues, classes, honest work.

Subtle: the whole cluster shares one interpreter here, which no installation does.  What a cycle takes is therefore the
processor time of the engine's thread, read whenever a plan is out: waiting for the API server's work is not counted.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.guardedfields import DEFAULT_GUARD_SETTINGS
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.errors import KubeError, NotFound
from pykai.kube.resources import Resource
from pykai.kube.store import Change, Store
from pykai.lab.cluster import LabCluster, LabOptions
from pykai.lab.story import MachineEntry, QueueEntry, ResourceShare, Story
from pykai.operator.install import installation
from pykai.podgrouper.kinds.table import WORKLOAD_KINDS
from pykai.podgrouper.options import PodGrouperOptions

Document = dict[str, Any]

TENANT = "tenant"
HONEST = "honest"
_KINDS = {each.kind: each for each in vars(resources).values() if isinstance(each, Resource)}
_RESOURCES = {
    (each.api_version, each.kind): each
    for each in (*(row.resource for row in WORKLOAD_KINDS.values()), *_KINDS.values())
}
#: how the scheduler calls the thread of its engine
ENGINE = "engine"
#: whether the admission policies are installed
POLICIES: ContextVar[bool] = ContextVar("policies", default=False)
#: wall seconds without the awaited change before the command gives up on it
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Impact:
    """What honest users experienced during a probe."""

    #: processor milliseconds of each cycle
    cycles: Sequence[float]
    #: milliseconds from create to bind, of each pod of the probe
    binds: Sequence[float]

    @property
    def cycle_ms(self) -> float:
        """The slowest cycle."""
        return max(self.cycles, default=0.0)

    @property
    def bind_ms(self) -> float:
        """The median time a pod waits for its node."""
        return statistics.median(self.binds) if self.binds else 0.0


@dataclass(frozen=True, slots=True)
class AttackOutcome:
    """How an attack ended."""

    #: whether the cluster withstood it
    repelled: bool
    #: one sentence with the figures that decide
    happened: str


def document(kind: str, name: str, namespace: str = TENANT, **fields: Any) -> Document:
    """An object of a kind; `labels` and `annotations` go into its metadata."""
    resource = _KINDS[kind]
    meta: Document = {"name": name}
    if resource.namespaced:
        meta["namespace"] = namespace
    for key in ("labels", "annotations", "finalizers", "ownerReferences"):
        if key in fields:
            meta[key] = fields.pop(key)
    return {"apiVersion": resource.api_version, "kind": kind, "metadata": meta, **fields}


def pod(
    name: str,
    *,
    namespace: str = TENANT,
    queue: str = TENANT,
    group: str = "",
    gpus: int = 0,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Document:
    """A pod for our scheduler that runs until it is deleted; the rest goes into its spec."""
    amounts: Document = {"cpu": "10m"}
    limits: Document = {names.NVIDIA_GPU: str(gpus)} if gpus else {}
    container = {
        "name": "main",
        "image": "simulated",
        "resources": {"requests": {**amounts, **limits}, "limits": limits},
    }
    return document(
        "Pod",
        name,
        namespace,
        labels={names.QUEUE_LABEL: queue, **(labels or {})},
        annotations={**({names.POD_GROUP_ANNOTATION: group} if group else {}), **(annotations or {})},
        spec={
            "schedulerName": names.SCHEDULER_NAME,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **spec,
        },
    )


def pod_group(
    name: str, *, queue: str = TENANT, minimum: int = 1, annotations: dict[str, str] | None = None, **spec: Any
) -> Document:
    """A PodGroup of the tenant."""
    fields = {"queue": queue, "minMember": minimum, **spec}
    return document("PodGroup", name, annotations=annotations or {}, spec=fields)


@dataclass
class ActorClient:
    """A client with methods named after user actions."""

    client: Client
    #: what the API server refused, in its words
    refusals: list[str] = field(default_factory=list)

    async def create(self, *objects: Document) -> list[Document]:
        """Create objects; a refusal is noted, not raised."""
        made = []
        for each in objects:
            try:
                resource = _RESOURCES[each["apiVersion"], each["kind"]]
                made.append(await self.client.create(resource, each, each["metadata"].get("namespace", "")))
            except KubeError as error:
                self.refusals.append(str(error))
        return made

    async def patch(
        self, kind: str, name: str, change: Document, namespace: str = TENANT, subresource: str = ""
    ) -> None:
        """Merge a change into an object; a refusal is noted."""
        try:
            await self.client.patch(_KINDS[kind], name, change, namespace, subresource=subresource)
        except KubeError as error:
            self.refusals.append(str(error))

    async def delete(self, kind: str, name: str, namespace: str = TENANT, grace_s: int | None = None) -> None:
        """Delete an object, if it is there."""
        with suppress(NotFound):
            await self.client.delete(_KINDS[kind], name, namespace, grace_s=grace_s)


class Target:
    """The cluster, seen from outside."""

    def __init__(self, cluster: LabCluster) -> None:
        self.cluster = cluster
        self.admin = ActorClient(Client(cluster.server.transport()))
        self.tenant = ActorClient(Client(cluster.server.transport(f"system:serviceaccount:{TENANT}:default")))
        self.caches = Caches(self.admin.client)
        self.pods: Store[Pod] = self.caches.store(resources.PODS, Pod)
        #: key of every pod that was ever bound -> its node, also if it was gone a moment later
        self.bound: dict[str, str] = {}
        self.pods.subscribe(self._note_bind)
        self.cycles: list[float] = []
        self._probes = 0
        self._worked_ms = 0.0
        cluster.scheduler.loop.plan_listeners.append(lambda _: self.record_engine_time())

    def _note_bind(self, change: Change[Pod]) -> None:
        if change.new is not None and change.new.spec.node_name:
            self.bound[change.key] = change.new.spec.node_name

    def ever_bound(self, prefix: str) -> list[str]:
        """Names of the tenant's pods that had a node at some time."""
        return sorted(key for key in self.bound if key.startswith(f"{TENANT}/{prefix}"))

    def record_engine_time(self) -> None:
        """Record the processor time of the engine's thread since the last call."""
        worked_ms = sum(
            1000.0 * time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
            for thread in threading.enumerate()
            if thread.name.startswith(ENGINE) and thread.ident is not None
        )
        self.cycles.append(worked_ms - self._worked_ms)
        self._worked_ms = worked_ms

    @property
    def speed(self) -> float:
        """Cluster seconds per second."""
        return self.cluster.options.speed

    @asynccontextmanager
    async def repeating(self, act: Callable[[], Awaitable[None]], every_s: float) -> AsyncIterator[None]:
        """Repeat something every so many cluster seconds while the block runs."""

        async def again() -> None:
            while True:
                await act()
                await self.advance(every_s)

        task = asyncio.create_task(again())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def advance(self, cluster_s: float) -> None:
        """Let cluster time pass."""
        await asyncio.sleep(cluster_s / self.speed)

    async def until(self, seen: Callable[[Store[Pod]], bool], patience_s: float = PATIENCE_S) -> bool:
        """Wait until the pods are as wanted; False after the timeout."""
        try:
            await self.pods.wait_until(seen, patience_s)
        except TimeoutError:
            return False
        return True

    async def holds_for(self, cluster_s: float, wrong: Callable[[], bool]) -> bool:
        """Whether something wrong never happens while so much cluster time passes."""
        until_s = time.monotonic() + cluster_s / self.speed
        while time.monotonic() < until_s:
            if wrong():
                return False
            await asyncio.sleep(0.05)
        return not wrong()

    def of(self, namespace: str) -> list[Pod]:
        """The pods of a namespace."""
        return [each for each in self.pods.values() if each.metadata.namespace == namespace]

    def on_nodes(self, namespace: str = TENANT, prefix: str = "") -> list[Pod]:
        """Pods of a namespace that have a node."""
        return [each for each in self.of(namespace) if each.spec.node_name and each.metadata.name.startswith(prefix)]

    async def events(self, namespace: str = TENANT) -> list[str]:
        """The messages of all events of a namespace."""
        found = await self.admin.client.list_raw(resources.EVENTS, namespace=namespace)
        return [f"{each['reason']}: {each['message']}" for each in found]

    async def probe(self, pods: int = 5) -> Impact:
        """Honest users submit pods, one after the other; what they experience."""
        self._probes += 1
        first = len(self.cycles)
        binds = []
        for number in range(pods):
            name = f"probe-{self._probes}-{number}"
            began_s = time.monotonic()
            await self.admin.create(pod(name, namespace=HONEST, queue=HONEST))
            key = f"{HONEST}/{name}"

            def bound(store: Store[Pod], key: str = key) -> bool:
                found = store.get(key)
                return found is not None and bool(found.spec.node_name)

            await self.pods.wait_until(bound, PATIENCE_S)
            binds.append((time.monotonic() - began_s) * 1000.0)
        for number in range(pods):
            await self.admin.delete("Pod", f"probe-{self._probes}-{number}", HONEST, grace_s=0)
        await asyncio.sleep(0.1)
        self.record_engine_time()
        return Impact(self.cycles[first:], binds)


def tenant_rights() -> list[Document]:
    """The tenant's namespace, and what it may do there."""
    group = "rbac.authorization.k8s.io"
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    rules = [{"apiGroups": [names.SCHEDULING_GROUP], "resources": ["podgroups", "bindrequests"], "verbs": verbs}]

    def bound(kind: str, role: str) -> Document:
        return {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": TENANT},
            "roleRef": {"apiGroup": group, "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": TENANT}],
        }

    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "groups", "namespace": TENANT}}
    namespace = document("Namespace", TENANT)
    return [namespace, {**role, "rules": rules}, bound("Role", "groups"), bound("ClusterRole", "edit")]


@asynccontextmanager
async def target(
    machines: Sequence[MachineEntry],
    *,
    queues: Sequence[QueueEntry] = (),
    speed: float = 20.0,
    objects: Sequence[Document] = (),
    installed: Sequence[Document] = (),
    podgrouper: PodGrouperOptions | None = None,
) -> AsyncIterator[Target]:
    """A cluster with these machines, the queues `honest` and `tenant` (limit 2 GPUs unless given), and all services.

    `installed` is there before the services start.
    """
    given_names = {each.name for each in queues}
    default_queues = [
        QueueEntry(name="root", gpu=ResourceShare(quota=-1)),
        QueueEntry(name=HONEST, parent="root", gpu=ResourceShare(quota=-1)),
        QueueEntry(name=TENANT, parent="root", gpu=ResourceShare(quota=2, limit=2)),
    ]
    story = Story(
        machines=list(machines),
        queues=[*(each for each in default_queues if each.name not in given_names), *queues],
        objects=[document("Namespace", HONEST), *objects],
    )
    first = [*installation(DEFAULT_GUARD_SETTINGS if POLICIES.get() else None), *tenant_rights(), *installed]
    options = LabOptions(story=story, speed=speed, objects=first, podgrouper=podgrouper or PodGrouperOptions())
    cluster = await LabCluster.start(options)
    stop = asyncio.Event()
    running = asyncio.create_task(cluster.run(stop))
    attacked = Target(cluster)
    await attacked.caches.start()
    try:
        await asyncio.wait_for(cluster.player.finished.wait(), PATIENCE_S)
        yield attacked
    finally:
        await attacked.caches.stop()
        stop.set()
        await running
