"""The cluster as the end-to-end specs see it (operations:16): queues, pods, groups, and waits for what a watch shows.

    queue = await e2e.queue("elastic", cpu=limited(500))
    pods = [await e2e.pod(queue, cpu="500m", group=group) for _ in range(2)]
    await e2e.settled(pods, scheduled=1)

As upstream's suites it talks to nothing but the API server.  All of a spec is in one namespace, and gone after it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from pykai.api import names
from pykai.api.timestamp import parse_timestamp
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import Client, PatchKind
from pykai.kube.credentials import connect
from pykai.kube.errors import AlreadyExists, Conflict, NotFound, ServerError
from pykai.kube.resources import Resource
from pykai.kube.store import Change, Store
from tests.e2e.labshard import LabShard

Document = dict[str, Any]

NAMESPACE = "kai-e2e"
#: operations:E-5; CPU in millicores, memory in megabytes, GPUs in devices
UNLIMITED = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
#: operations:E-7, with room for a busy machine: this ends a spec that fails, and delays none that passes
TIMEOUT_S = 300.0
#: which software makes the GPUs of a node known (operations:E-30)
DEVICE_PLUGIN_LABEL = "nvidia.com/gpu.deploy.device-plugin"
DRA_LABEL = "nvidia.com/gpu.deploy.dra-plugin-gpu"
#: of nodes with zones, and the key of their taint
NUMA_LABEL = "e2e-numa"
CLASSES = {
    "e2e-low": 40,
    "e2e-middle": 50,
    "e2e-high": 60,
    "e2e-low-held": 110,
    "e2e-high-held": 120,
}
_WATCHED = (
    resources.PODS,
    resources.NODES,
    resources.POD_GROUPS,
    resources.QUEUES,
    resources.JOBS,
    resources.CONFIG_MAPS,
    resources.EVENTS,
    resources.CONFIGS,
    resources.SCHEDULING_SHARDS,
)
#: deleted after each spec, in this order
_OF_A_SPEC = (
    resources.JOBS,
    resources.DEPLOYMENTS,
    resources.PODS,
    resources.POD_GROUPS,
    resources.PERSISTENT_VOLUME_CLAIMS,
    resources.CONFIG_MAPS,
    resources.RESOURCE_CLAIMS,
    resources.RESOURCE_CLAIM_TEMPLATES,
)


def real_or_short(real_s: int, short_s: int) -> int:
    """A time that is a field of an object: as upstream has it with `make e2e`, shorter otherwise."""
    return real_s if os.environ.get("KAI_E2E_REAL_TIMES") else short_s


def seconds(real: int, short: int) -> str:
    """The same as the field has it."""
    return f"{real_or_short(real, short)}s"


def limited(limit: float, quota: float | None = None, weight: float = 1) -> Document:
    """A queue's amounts of one resource; the quota is the limit, unless it is given."""
    return {"quota": limit if quota is None else quota, "limit": limit, "overQuotaWeight": weight}


def deserves(quota: float, weight: float = 1) -> Document:
    """A queue's amounts of one resource, without a limit."""
    return {"quota": quota, "limit": -1, "overQuotaWeight": weight}


def subgroup(name: str, minimum: int | None = None, parent: str = "", **fields: Any) -> Document:
    """An entry of `subGroups`."""
    made: Document = {"name": name, **fields}
    if minimum is not None:
        made["minMember"] = minimum
    if parent:
        made["parent"] = parent
    return made


def condition(pod: Document, kind: str) -> tuple[str, str]:
    """Status and reason of a condition, empty if there is none."""
    for each in pod["status"].get("conditions") or ():
        if each["type"] == kind:
            return str(each["status"]), str(each.get("reason") or "")
    return "", ""


def is_scheduled(pod: Document) -> bool:
    """operations:E-8."""
    return condition(pod, "PodScheduled")[0] == "True"


def is_unschedulable(pod: Document) -> bool:
    """operations:E-8."""
    return condition(pod, "PodScheduled") == ("False", "Unschedulable")


def is_ready(pod: Document) -> bool:
    """operations:E-8."""
    return condition(pod, "Ready")[0] == "True"


def created_s(obj: Mapping[str, Any]) -> float:
    """When an object was created, in seconds since the epoch, without their fraction."""
    return parse_timestamp(obj["metadata"]["creationTimestamp"]) / 1e9


def is_in_force(obj: Mapping[str, Any]) -> bool:
    """operations:E-17: all conditions hold for what is written now."""
    generation = obj["metadata"]["generation"]
    holding = {
        each["type"]
        for each in obj.get("status", {}).get("conditions") or ()
        if each["status"] == "True" and each.get("observedGeneration") == generation
    }
    return {"Deployed", "Available", "DependenciesFulfilled"} <= holding


class EndToEnd:
    """One spec's view of the cluster."""

    def __init__(self, client: Client, lab_shard: LabShard) -> None:
        self.client = client
        self.caches = Caches(client)
        self.stores: dict[Resource, Store[Document]] = {
            each: self.caches.store(each, dict, namespace=NAMESPACE if each.namespaced else "") for each in _WATCHED
        }
        self.reserving: Store[Document] = self.caches.store(resources.PODS, dict, namespace=names.RESERVATION_NAMESPACE)
        #: pods and objects of the installation itself
        self.system: Store[Document] = self.caches.store(resources.PODS, dict, namespace=names.DEFAULT_NAMESPACE)
        #: pod -> when a watch first showed that it was leaving, in seconds since the epoch: never too early
        self.left_s: dict[str, float] = {}
        self.stores[resources.PODS].subscribe(self._on_pod)
        self._lab_shard = lab_shard
        self._numbers = itertools.count()
        self._made: list[tuple[Resource, str]] = []
        #: workloads of other kinds in the namespace of the spec, whose operators would recreate their pods
        self._workloads: list[tuple[Resource, str]] = []

    def _on_pod(self, change: Change[Document]) -> None:
        if change.new is None or "deletionTimestamp" in change.new["metadata"]:
            self.left_s.setdefault(change.key.rpartition("/")[2], time.time())

    # What a spec creates.

    async def queue(self, name: str, **fields: Any) -> str:
        """A queue; `gpu`, `cpu` and `memory` are amounts, unlimited by default, other fields are those of its spec."""
        amounts = {kind: fields.pop(kind, UNLIMITED) for kind in ("gpu", "cpu", "memory")}
        labels = {"project": name, "app": "engine-e2e"}
        spec = {"resources": amounts, **fields}
        await self.add(resources.QUEUES, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        return name

    async def family(self, name: str, *, of: Mapping[str, Document] | None = None, **fields: Any) -> list[str]:
        """Child queues, created before their parent (operations:E-4); `of` gives the fields of each child."""
        children = [
            await self.queue(f"{name}-{child}", parentQueue=name, **given)
            for child, given in (of or {"queue": {}}).items()
        ]
        await self.queue(name, **fields)
        return children

    async def add(self, resource: Resource, obj: Mapping[str, Any]) -> Document:
        """An object without a namespace; it goes with the spec."""
        self._made.append((resource, obj["metadata"]["name"]))
        return await self._create(resource, obj)

    def keep_in_mind(self, resource: Resource, name: str) -> None:
        """A workload that must go with the spec."""
        self._workloads.append((resource, name))

    async def _create(self, resource: Resource, obj: Mapping[str, Any], namespace: str = "") -> Document:
        """Create an object, also while the admission service restarts (operations:E-4, E-6)."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    return await self.client.create(resource, obj, namespace)
                except ServerError as error:
                    if "failed to call webhook" not in str(error):
                        raise
                await asyncio.sleep(0.2)

    async def pod(
        self,
        queue: str,
        *,
        gpus: int = 0,
        cpu: str = "",
        memory: str = "",
        fraction: str = "",
        group: str = "",
        subgroup: str = "",
        name: str = "",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        requests: Mapping[str, str] | None = None,
        mounts: Sequence[str] = (),
        **spec: Any,
    ) -> str:
        """A pod of operations:E-6; its name."""
        name = name or f"pod-{next(self._numbers)}"
        made = template(
            queue,
            gpus=gpus,
            cpu=cpu,
            memory=memory,
            fraction=fraction,
            labels=labels,
            annotations=annotations,
            requests=requests,
            mounts=mounts,
            **spec,
        )
        metadata = made["metadata"]
        if group:
            metadata["labels"][names.POD_GROUP_ANNOTATION] = group
            metadata["annotations"][names.POD_GROUP_ANNOTATION] = group
        if subgroup:
            metadata["labels"][names.SUBGROUP_LABEL] = subgroup
        await self._create(resources.PODS, {**made, "metadata": {"name": name, **metadata}}, NAMESPACE)
        return name

    async def pods(self, count: int, queue: str, **fields: Any) -> list[str]:
        """So many equal pods."""
        return [await self.pod(queue, **fields) for _ in range(count)]

    async def group(self, name: str, queue: str, minimum: int | None = 1, **fields: Any) -> str:
        """A PodGroup."""
        spec = {"queue": queue, **({} if minimum is None else {"minMember": minimum}), **fields}
        await self.client.create(resources.POD_GROUPS, {"metadata": {"name": name}, "spec": spec}, NAMESPACE)
        return name

    async def gang(
        self, name: str, queue: str, count: int, *, minimum: int = 1, priority: str = "", **fields: Any
    ) -> list[str]:
        """Pods and their group, which comes after them."""
        made = await self.pods(count, queue, group=name, **fields)
        await self.group(name, queue, minimum, **({"priorityClassName": priority} if priority else {}))
        return made

    async def job(
        self, queue: str, *, pods: int = 1, name: str = "", annotations: Mapping[str, str] | None = None, **fields: Any
    ) -> str:
        """A Job of so many pods at a time."""
        name = name or f"job-{next(self._numbers)}"
        made = template(queue, restartPolicy="Never", **fields)
        made["metadata"]["labels"]["workload"] = name
        spec = {"parallelism": pods, "completions": pods, "backoffLimit": 1000, "template": made}
        metadata = {"name": name, "labels": {"app": "engine-e2e"}, "annotations": dict(annotations or {})}
        await self.client.create(resources.JOBS, {"metadata": metadata, "spec": spec}, NAMESPACE)
        return name

    async def remove(self, *pods: str) -> None:
        """Delete pods, and wait until they are gone."""
        for name in pods:
            await self.client.delete(resources.PODS, name, NAMESPACE)
        await self.stores[resources.PODS].wait_until(lambda _: not any(self.get(name) for name in pods), TIMEOUT_S)

    # What it sees.

    def get(self, name: str) -> Document | None:
        """A pod, if it is there."""
        return self.stores[resources.PODS].get(f"{NAMESPACE}/{name}")

    def pods_here(self) -> list[Document]:
        """All pods of the spec."""
        return list(self.stores[resources.PODS].values())

    def there(self, pods: Iterable[str]) -> list[Document]:
        """Those pods that are there and not being deleted."""
        found = (self.get(name) for name in pods)
        return [pod for pod in found if pod is not None and not pod["metadata"].get("deletionTimestamp")]

    def of_job(self, *jobs: str) -> list[Document]:
        """The pods of Jobs that are there and not being deleted."""
        return [
            pod
            for pod in self.stores[resources.PODS].values()
            if pod["metadata"]["labels"].get("workload") in jobs and not pod["metadata"].get("deletionTimestamp")
        ]

    def node_of(self, name: str) -> str:
        """Where a pod is."""
        found = self.get(name)
        assert found is not None, f"{name} is gone"
        return str(found["spec"].get("nodeName", ""))

    def gpu_nodes(self) -> list[str]:
        """Nodes with whole GPUs, without those that are tainted for their zones."""
        return [
            node["metadata"]["name"]
            for node in self._nodes()
            if gpus_of(node) and NUMA_LABEL not in node["metadata"]["labels"]
        ]

    def cpu_nodes(self) -> list[str]:
        """Nodes without, not even such as a driver publishes."""
        return [
            node["metadata"]["name"]
            for node in self._nodes()
            if not gpus_of(node) and DRA_LABEL not in node["metadata"]["labels"]
        ]

    @property
    def gpus_per_node(self) -> int:
        """All GPU nodes have as many (operations:E-33)."""
        (count,) = {gpus_of(node) for node in self._nodes()} - {0}
        return count

    def _nodes(self) -> list[Document]:
        return sorted(self.stores[resources.NODES].values(), key=lambda node: str(node["metadata"]["name"]))

    # What it waits for.

    async def until(
        self, holds: Callable[[], bool], what: str, kind: Resource | Store[Document] = resources.PODS
    ) -> None:
        """Wait, change by change of a kind, until something holds; the failure lists the pods."""
        store = kind if isinstance(kind, Store) else self.stores[kind]
        try:
            await store.wait_until(lambda _: holds(), TIMEOUT_S)
        except TimeoutError as error:
            raise AssertionError(f"not within {TIMEOUT_S:.0f} s: {what}\n{self._listing()}") from error

    async def scheduled(self, *pods: str) -> None:
        """All of these are."""
        await self.settled(pods, scheduled=len(pods))

    async def ready(self, *pods: str) -> None:
        """All of these are."""
        await self.until(lambda: sum(map(is_ready, self.there(pods))) == len(pods), f"{pods} ready")

    async def unschedulable(self, *pods: str) -> None:
        """All of these are, and say so."""
        await self.settled(pods, scheduled=0)

    async def decided(self, pod: str) -> None:
        """It is unschedulable; or scheduled, if the machine was so slow that its time has come already."""
        await self.until(
            lambda: any(is_scheduled(each) or is_unschedulable(each) for each in self.there([pod])), f"{pod} is decided"
        )

    async def settled(self, pods: Sequence[str], *, scheduled: int) -> None:
        """So many of the pods are scheduled, all others unschedulable."""

        def holds() -> bool:
            found = self.there(pods)
            waiting = [pod for pod in found if not is_scheduled(pod)]
            counted = len(found) - len(waiting)
            return counted == scheduled and len(found) == len(pods) and all(map(is_unschedulable, waiting))

        await self.until(holds, f"{scheduled} of {len(pods)} pods scheduled and the others unschedulable")

    async def jobs_scheduled(self, count: int, *jobs: str) -> None:
        """So many pods of these Jobs are scheduled; those evicted were made again by their Jobs."""
        await self.until(
            lambda: sum(map(is_scheduled, self.of_job(*jobs))) == count, f"{count} pods of {jobs} scheduled"
        )

    async def group_reason(self, group: str, reason: str) -> None:
        """operations:E-24."""

        def holds() -> bool:
            found = self.stores[resources.POD_GROUPS].get(f"{NAMESPACE}/{group}")
            conditions = (found or {}).get("status", {}).get("schedulingConditions") or ()
            return any(each["reason"] == reason for entry in conditions for each in entry.get("reasons") or ())

        await self.until(holds, f"{group} has the reason {reason}", resources.POD_GROUPS)

    def group_of(self, pod: str) -> str:
        """The group that was made for a pod; empty if there is none yet."""
        found = self.get(pod)
        return str(((found or {}).get("metadata", {}).get("annotations") or {}).get(names.POD_GROUP_ANNOTATION, ""))

    async def made_group(self, pod: str) -> Document:
        """The same, once it is there."""
        await self.until(lambda: bool(self.group_of(pod)), f"{pod} names its group")
        key, groups = f"{NAMESPACE}/{self.group_of(pod)}", self.stores[resources.POD_GROUPS]
        await self.until(lambda: key in groups, f"{key} is there", resources.POD_GROUPS)
        found = groups.get(key)
        assert found is not None
        return found

    def _listing(self) -> str:
        lines = []
        for pod in self.stores[resources.PODS].values():
            said = [
                (each["type"], each["status"], each.get("message")) for each in pod["status"].get("conditions") or ()
            ]
            lines.append(f"{pod['metadata']['name']} on {pod['spec'].get('nodeName')}: {said}")
        return "\n".join(sorted(lines))

    # What it changes about the installation.

    @asynccontextmanager
    async def configured(self, **spec: Any) -> AsyncIterator[None]:
        """The Config with these fields of its spec, in force; afterwards as it was."""
        async with self._changed(resources.CONFIGS, "kai-config", spec):
            yield

    @asynccontextmanager
    async def configured_while(self, meanwhile: Callable[[], Awaitable[None]], **spec: Any) -> AsyncIterator[None]:
        """As `configured`; something else happens right after it was written."""
        async with self._changed(resources.CONFIGS, "kai-config", spec, meanwhile):
            yield

    @asynccontextmanager
    async def sharded(self, **spec: Any) -> AsyncIterator[None]:
        """The default shard with these fields of its spec, in force; afterwards as it was."""
        if self._lab_shard.exists:
            with self._lab_shard.written(**spec):
                yield
            return
        async with self._changed(resources.SCHEDULING_SHARDS, "default", spec):
            yield

    async def change_shard(self, **spec: Any) -> Document:
        """Put these fields of the default shard in force, for several specs; what puts them back."""
        if self._lab_shard.exists:
            self._lab_shard.write(**spec)
            return dict.fromkeys(spec)
        before = (await self.client.get_raw(resources.SCHEDULING_SHARDS, "default"))["spec"]
        written = await self.client.patch(resources.SCHEDULING_SHARDS, "default", {"spec": spec})
        await self.in_force(resources.SCHEDULING_SHARDS, written)
        return {name: before.get(name) for name in spec}

    @asynccontextmanager
    async def _changed(
        self,
        kind: Resource,
        name: str,
        spec: Mapping[str, Any],
        meanwhile: Callable[[], Awaitable[None]] | None = None,
    ) -> AsyncIterator[None]:
        before = (await self.client.get_raw(kind, name))["spec"]
        written = await self.client.patch(kind, name, {"spec": spec})
        if meanwhile is not None:
            await meanwhile()
        await self.in_force(kind, written)
        try:
            yield
        finally:
            whole = [{"op": "replace", "path": "/spec", "value": before}]
            await self.in_force(kind, await self.client.patch(kind, name, whole, kind=PatchKind.JSON))

    async def in_force(self, kind: Resource, written: Mapping[str, Any]) -> None:
        """operations:E-17, for what was just written."""
        name, generation = written["metadata"]["name"], written["metadata"]["generation"]

        def holds() -> bool:
            found = self.stores[kind].get(name)
            return found is not None and found["metadata"]["generation"] >= generation and is_in_force(found)

        await self.until(holds, f"{kind.kind} {name} in force: {self.stores[kind].get(name)}", kind)

    def system_pods(self, app: str) -> list[Document]:
        """The running pods of a component."""
        return [
            pod
            for pod in self.system.values()
            if pod["metadata"].get("labels", {}).get("app") == app
            and pod["status"].get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
        ]

    async def clean(self) -> None:
        """operations:E-10: nothing of the spec is left, not even the reservation of a GPU."""
        for resource, name in self._workloads:
            with suppress(NotFound):
                await self.client.delete(resource, name, NAMESPACE)
        for kind in _OF_A_SPEC:
            for each in await self.client.list_raw(kind, namespace=NAMESPACE):
                with suppress(NotFound, Conflict):
                    await self.client.delete(
                        kind, each["metadata"]["name"], NAMESPACE, grace_s=0, propagation="Background"
                    )
        for resource, name in reversed(self._made):
            with suppress(NotFound):
                await self.client.delete(resource, name)
        pods = self.stores[resources.PODS]
        await pods.wait_until(lambda _: not pods.values(), TIMEOUT_S)
        await self.reserving.wait_until(lambda store: not store.values(), TIMEOUT_S)


def template(
    queue: str,
    *,
    gpus: int = 0,
    cpu: str = "",
    memory: str = "",
    fraction: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    mounts: Sequence[str] = (),
    **spec: Any,
) -> Document:
    """A pod template (operations:E-6); its container mounts the volumes in `mounts`."""
    asked = {**({"cpu": cpu} if cpu else {}), **({"memory": memory} if memory else {}), **(requests or {})}
    if gpus:
        asked[names.NVIDIA_GPU] = str(gpus)
    container = {
        "name": "ubuntu-container",
        "image": "ubuntu",
        "args": ["sleep", "infinity"],
        "resources": {"requests": asked, "limits": asked},
        "volumeMounts": [{"name": each, "mountPath": f"/{each}"} for each in mounts],
    }
    return {
        "metadata": {
            "labels": {"app": "engine-e2e", names.QUEUE_LABEL: queue, **(labels or {})},
            "annotations": {**({names.GPU_FRACTION_ANNOTATION: fraction} if fraction else {}), **(annotations or {})},
        },
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "tolerations": [{"key": names.NVIDIA_GPU, "operator": "Exists", "effect": "NoSchedule"}],
            **spec,
        },
    }


def gpus_of(node: Document) -> int:
    """Whole GPUs of a node."""
    return int(node["status"].get("allocatable", {}).get(names.NVIDIA_GPU, "0"))


@asynccontextmanager
async def end_to_end(kubeconfig: Path) -> AsyncIterator[EndToEnd]:
    """A spec on the installation behind a kubeconfig."""
    transport = connect(kubeconfig)
    client = Client(transport)
    e2e = EndToEnd(client, LabShard(kubeconfig))
    await e2e.caches.start()
    try:
        await e2e.caches.wait_for_sync()
        yield e2e
        await e2e.clean()
    finally:
        await e2e.caches.stop()
        await transport.close()


async def prepare(kubeconfig: Path) -> None:
    """What all specs share: the namespace, in which pods can be created, and priority classes."""
    transport = connect(kubeconfig)
    client = Client(transport)
    try:
        shared: list[tuple[Resource, Document]] = [
            (resources.NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": {"app": "engine-e2e"}}}),
            *(
                (resources.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
                for name, value in CLASSES.items()
            ),
        ]
        for resource, obj in shared:
            with suppress(AlreadyExists):
                await client.create(resource, obj)
        async with asyncio.timeout(TIMEOUT_S):
            while not await _can_create_pods(client):
                await asyncio.sleep(0.1)
    finally:
        await transport.close()


async def _can_create_pods(client: Client) -> bool:
    try:
        await client.get_raw(resources.SERVICE_ACCOUNTS, "default", NAMESPACE)
    except NotFound:
        return False
    return True
