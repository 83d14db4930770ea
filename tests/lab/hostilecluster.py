"""A cluster to attack: all services, objects put into its storage past every check, and recorded events.

town.smuggle(a("Queue", "loop", spec={"parentQueue": "loop"}))
assert "cycle" in await town.told("Queue", "loop", "InvalidQueue")
await town.serves_others()
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from pykai.api import names
from pykai.api.core import Pod
from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.resources import Resource
from pykai.kube.store import Store
from pykai.lab.apiserver.kinds import StoreKey
from pykai.lab.apiserver.storage import StorageEvent
from pykai.lab.cluster import LabCluster, LabOptions
from pykai.lab.story import JobEntry, MachineEntry, QueueEntry, ResourceShare, Story, job_object
from pykai.operator.install import installation

Document = dict[str, Any]

SPEED = 20
TIMEOUT_S = 15.0
#: wall seconds; longer than services gather changes before they write
_REST_S = 0.8
#: where honest people live
HAVEN = "haven"
_KINDS = {resource.kind: resource for resource in vars(resources).values() if isinstance(resource, Resource)}


def make_object(kind: str, name: str, **fields: Any) -> Document:
    """An object of a kind, with any content; `meta` goes into its metadata."""
    resource = _KINDS[kind]
    meta = {"name": name, **({"namespace": "default"} if resource.namespaced else {}), **fields.pop("meta", {})}
    return {"apiVersion": resource.api_version, "kind": kind, "metadata": meta, **fields}


def make_pod(
    name: str, *, queue: str = "good", group: str = "", requests: Document | None = None, **fields: Any
) -> Document:
    """A pod for our scheduler; `asks` are its requests, `notes` its annotations, the rest goes into its spec."""
    notes = {**fields.pop("notes", {}), **({names.POD_GROUP_ANNOTATION: group} if group else {})}
    labels = {names.QUEUE_LABEL: queue, **fields.pop("labels", {})}
    amounts = {"cpu": "100m", **(requests or {})}
    container = {"name": "main", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **fields}
    return make_object(
        "Pod", name, meta={"labels": labels, "annotations": notes}, spec=spec, status={"phase": "Pending"}
    )


def make_template(**labels: str) -> Document:
    """A pod template without GPUs."""
    container = {"name": "main", "image": "x"}
    spec = {"schedulerName": names.SCHEDULER_NAME, "restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"labels": {names.QUEUE_LABEL: "good", **labels}}, "spec": spec}


class HostileCluster:
    """The cluster, from outside."""

    def __init__(self, cluster: LabCluster) -> None:
        self.cluster = cluster
        self.client = Client(cluster.server.transport())
        self.caches = Caches(self.client)
        self.pods: Store[Pod] = self.caches.store(resources.PODS, Pod)
        self.events = self.caches.store(resources.EVENTS, dict)
        self._served = 0
        self._wrote = asyncio.Event()
        self._writes = Counter[str]()
        cluster.server.storage.listeners.append(self._note)

    def _note(self, store: StoreKey, event: StorageEvent) -> None:
        if store[1] != "events":
            self._writes[f"{store[1]} {event.record.key}"] += 1
            self._wrote.set()

    def store_unchecked(self, *objects: Document) -> None:
        """Put objects into storage as they are."""
        self.cluster.server.load(objects)

    async def submit(self, *objects: Document) -> None:
        """Create objects as a user does."""
        for obj in objects:
            sent = {key: value for key, value in obj.items() if key != "status"}
            await self.client.create(_KINDS[obj["kind"]], sent)

    async def uid(self, kind: str, name: str) -> str:
        """The uid of an object in the namespace default, or of a cluster-wide one."""
        resource = _KINDS[kind]
        found = await self.client.get_raw(resource, name, "default" if resource.namespaced else "")
        return str(found["metadata"]["uid"])

    def events_about(self, kind: str, name: str) -> list[Document]:
        """The events about an object."""
        return [
            event
            for event in self.events.values()
            if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (kind, name)
        ]

    async def wait_for_event(self, kind: str, name: str, reason: str) -> str:
        """Wait for an event about an object; what it says.  `kubectl describe` must find it, so it carries the uid."""
        found: list[Document] = []

        def is_told(_: object) -> bool:
            found[:] = [event for event in self.events_about(kind, name) if event["reason"] == reason]
            return bool(found)

        await self.events.wait_until(is_told, TIMEOUT_S)
        assert all(event["involvedObject"].get("uid") for event in found)
        return "\n".join(event["message"] for event in found)

    async def check_others_are_served(self) -> None:
        """A gang and a pod with a part of a GPU are submitted, run, and are cleared away."""
        self._served += 1
        name = f"fine-{self._served}"
        gang = job_object(JobEntry(name=name, queue="good", pods=2, gpus=1, namespace=HAVEN, runs="10000s"))
        share = make_pod(f"{name}-share", notes={names.GPU_FRACTION_ANNOTATION: "0.5"})
        share["metadata"]["namespace"] = HAVEN
        await self.submit(gang, share)

        def all_run(store: Store[Pod]) -> bool:
            mine = [pod for pod in store.values() if pod.metadata.name.startswith(f"{name}-")]
            return len(mine) == 3 and all(pod.status.phase == "Running" for pod in mine)

        await self.pods.wait_until(all_run, TIMEOUT_S)
        await self.client.delete(resources.JOBS, name, HAVEN, propagation="Background")
        await self.client.delete(resources.PODS, f"{name}-share", HAVEN)

    async def wait_until_idle(self) -> None:
        """Wait until writes stop for a while; fails with the names of services that go on."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + TIMEOUT_S
        lately = Counter[str]()
        while True:
            self._wrote.clear()
            self._writes.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wrote.wait(), _REST_S)
            if not self._writes:
                return
            lately += self._writes
            assert loop.time() < until_s, lately.most_common(5)


@asynccontextmanager
async def hostile_cluster() -> AsyncIterator[HostileCluster]:
    """Four machines of eight GPUs, one shared queue, all services."""
    unlimited = ResourceShare(quota=-1)
    story = Story(
        machines=[MachineEntry(name="m", count=4, gpus=8, model="NVIDIA-H100")],
        queues=[
            QueueEntry(name="root", gpu=unlimited),
            QueueEntry(name="good", parent="root", gpu=unlimited),
        ],
        objects=[make_object("Namespace", HAVEN)],
    )
    cluster = await LabCluster.start(LabOptions(story=story, speed=SPEED, objects=installation()))
    stop = asyncio.Event()
    running = asyncio.create_task(cluster.run(stop))
    there = HostileCluster(cluster)
    await there.caches.start()
    try:
        assert cluster.player is not None
        await asyncio.wait_for(cluster.player.finished.wait(), TIMEOUT_S)
        yield there
        assert not running.done(), "a service ended"
    finally:
        await there.caches.stop()
        stop.set()
        await running
