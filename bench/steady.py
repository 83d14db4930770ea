"""The cost of a cycle in a large cluster whose events do not help pending pods.

    python bench/steady.py [--nodes 5000] [--waiting 1000] [--cycles 100] [--events 100]

Nodes of 8 GPUs, every GPU used by a PodGroup of one pod, and pods that fit nowhere. The state is loaded directly into
the storage of the embedded API server; the scheduler then runs as usual, on watches. Each cycle follows a batch of pod
events of one kind that change nothing for pending pods:

    touched       a condition in the status of running pods changes
    relabelled    a label of running pods changes
    turnover      pods of another scheduler end on CPU nodes, and others start

At the end one pod that fits is created, and the time until it is bound is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.timestamp import format_timestamp
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.resources import POD_GROUPS, PODS
from pykai.kube.runtime import Runtime
from pykai.lab.apiserver.server import ApiServer
from pykai.lab.machines.nodes import MachineKind, node_objects
from pykai.lab.story import QueueEntry, ResourceShare, queue_object
from pykai.operator.install import installation
from pykai.scheduler.flags import read_flags
from pykai.scheduler.service import make_scheduler

Document = dict[str, Any]
_GPUS = 8
_QUEUES = 8
_GROUPS = f"{names.SCHEDULING_GROUP}/v2alpha2"


def pod(
    name: str, *, node: str = "", gpus: int = 1, queue: str = "", scheduler: str = names.SCHEDULER_NAME
) -> Document:
    """A pod, running where a node is given."""
    limits: Document = {names.NVIDIA_GPU: str(gpus)} if gpus else {}
    spec: Document = {
        "schedulerName": scheduler,
        "containers": [
            {"name": "main", "image": "simulated", "resources": {"requests": {"cpu": "1", **limits}, "limits": limits}}
        ],
    }
    if node:
        spec["nodeName"] = node
    annotations = {names.POD_GROUP_ANNOTATION: f"pg-{name}"} if queue else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations},
        "spec": spec,
        "status": {"phase": "Running" if node else "Pending"},
    }


def group(name: str, queue: str) -> Document:
    """Its PodGroup."""
    return {
        "apiVersion": _GROUPS,
        "kind": "PodGroup",
        "metadata": {"name": f"pg-{name}", "namespace": "default", "uid": f"uid-pg-{name}"},
        "spec": {"minMember": 1, "queue": queue, "priorityClassName": "train"},
    }


def cluster_objects(nodes: int, waiting: int) -> Iterator[Document]:
    """The whole cluster: full GPU nodes, a few CPU nodes, queues, and pending pods."""
    now = format_timestamp(time.time_ns())
    yield from node_objects(MachineKind(count=nodes, name="gpu-{}", gpus=_GPUS), now)
    yield from node_objects(MachineKind(count=16, name="cpu-{}"), now)
    quota = nodes * _GPUS / _QUEUES
    yield queue_object(QueueEntry(name="all", gpu=ResourceShare(quota=nodes * _GPUS)))
    for number in range(_QUEUES):
        yield queue_object(QueueEntry(name=f"queue-{number}", parent="all", gpu=ResourceShare(quota=quota)))
    for number in range(nodes * _GPUS):
        name, queue = f"run-{number}", f"queue-{number % _QUEUES}"
        yield group(name, queue)
        yield pod(name, node=f"gpu-{number // _GPUS}", queue=queue)
    for number in range(waiting):
        name, queue = f"wait-{number}", f"queue-{number % _QUEUES}"
        yield group(name, queue)
        yield pod(name, queue=queue, gpus=1 + number % 4)


class SteadyCluster:
    """The cluster and its scheduler."""

    def __init__(self, server: ApiServer, nodes: int) -> None:
        self.server = server
        self.nodes = nodes
        client = Client(server.transport())
        self.client = client
        caches = Caches(client)
        self.runtime = Runtime(client, caches, Clock())
        self.scheduler = make_scheduler(
            self.runtime, read_flags({"schedule-period": "1h", "version": "false"}), endpoints=False
        )
        self.seconds: list[float] = []
        self.cycle_ended = asyncio.Event()
        inner = self.scheduler.loop.cycle

        async def timed() -> Any:
            began = time.perf_counter()
            plan = await inner()
            self.seconds.append(time.perf_counter() - began)
            self.cycle_ended.set()
            return plan

        self.scheduler.loop.cycle = timed  # type: ignore[method-assign]
        self._serial = itertools.count()
        #: pods of another scheduler
        self.foreign: set[str] = set()

    def load(self, documents: Iterator[Document]) -> int:
        """Load objects directly into storage."""
        count = 0
        for document in documents:
            kind = self.server.registry.by_kind(document["apiVersion"], document["kind"])
            assert kind is not None
            self.server.state.write(kind, document)
            count += 1
        return count

    def change(self, key: str, change: Document) -> None:
        """Replace parts of a stored pod."""
        kind = self.server.registry.by_kind("v1", "Pod")
        assert kind is not None
        record = self.server.storage.get(kind.store, key)
        assert record is not None
        old = record.object()
        self.server.state.write(kind, {**old, "metadata": {**old["metadata"], **change.pop("metadata", {})}, **change})

    def remove(self, name: str) -> None:
        """Remove a pod of another scheduler from storage."""
        kind = self.server.registry.by_kind("v1", "Pod")
        assert kind is not None
        self.server.storage.remove(kind.store, f"default/{name}")
        self.foreign.remove(name)

    async def batch(self, kind: str, events: int) -> float:
        """Apply events, then run a cycle; returns its seconds."""
        self.cycle_ended.clear()
        number = next(self._serial)
        for each in range(events):
            at = (number * events + each) % (self.nodes * _GPUS)
            if kind == "touched":
                condition = {"type": "Ready", "status": "True", "message": f"look {number}"}
                self.change(f"default/run-{at}", {"status": {"phase": "Running", "conditions": [condition]}})
            elif kind == "relabelled":
                self.change(f"default/run-{at}", {"metadata": {"labels": {"look": str(number)}}})
            elif each % 2 and f"foreign-{number - 1}-{each - 1}" in self.foreign:
                self.remove(f"foreign-{number - 1}-{each - 1}")
            else:
                name = f"foreign-{number}-{each}"
                self.load(iter([pod(name, node=f"cpu-{each // 2 % 16}", gpus=0, scheduler="default-scheduler")]))
                self.foreign.add(name)
        await self.client.get(PODS, "run-0", "default", into=Pod)
        before = len(self.seconds)
        try:
            await asyncio.wait_for(self.cycle_ended.wait(), 0.3)
        except TimeoutError:
            # The cycle sees no relevant change: this is its base cost.
            return 0.0
        return sum(self.seconds[before:]) or self.seconds[-1]

    async def bind_new_pod(self) -> float:
        """Create a pod that fits; returns the seconds until it is bound."""
        store = self.runtime.caches.store(PODS, Pod, field_selector="status.phase!=Failed")
        began = time.perf_counter()
        await self.client.create(POD_GROUPS, group("new", "queue-0"), "default")
        await self.client.create(PODS, pod("new", gpus=0, queue="queue-0"), "default")
        await store.wait_until(lambda held: bool((new := held.get("default/new")) and new.spec.node_name), timeout_s=60)
        return time.perf_counter() - began


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--events", type=int, default=100)
    options = parser.parse_args()
    server = await ApiServer.open(clock=Clock(), objects=installation())
    steady = SteadyCluster(server, options.nodes)
    began = time.perf_counter()
    count = steady.load(cluster_objects(options.nodes, options.waiting))
    print(f"{count} objects stored in {time.perf_counter() - began:.1f} s", flush=True)
    stop = asyncio.Event()
    began = time.perf_counter()
    running = asyncio.create_task(steady.scheduler.run(stop))
    await steady.cycle_ended.wait()
    print(f"first cycle {steady.seconds[0]:.2f} s, {time.perf_counter() - began:.1f} s after the start", flush=True)
    await asyncio.sleep(3)
    for kind in ("touched", "relabelled", "turnover"):
        seconds = [await steady.batch(kind, options.events) for _ in range(options.cycles)]
        p95 = statistics.quantiles(seconds, n=20)[-1] * 1000
        print(f"{kind:12} median {statistics.median(seconds) * 1000:6.1f} ms, p95 {p95:6.1f} ms", flush=True)
    print(f"one new pod bound after {await steady.bind_new_pod() * 1000:.0f} ms")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB, server and scheduler")
    stop.set()
    await running
    await steady.runtime.caches.stop()
    await server.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
