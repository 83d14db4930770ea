"""Two instances of every service, as processes, on real leases: one leads, the other is warm and takes over.

The leaders are killed while a gang is being bound.  Nothing may be lost and nothing done twice; the API server's audit
log is the witness.  Leases are those of KAI: 15 s, which is why there is one such story and not ten.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pykai.api import names
from pykai.api.quantity import milli_value
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.credentials import connect
from pykai.kube.errors import LeaseLost
from pykai.kube.lease import LeaderElection, micro_time
from pykai.kube.resources import BIND_REQUESTS, CONFIG_MAPS, JOBS, LEASES, NODES, POD_GROUPS, PODS, QUEUES
from pykai.kube.store import Store
from pykai.kube.transport import Request, Response, Stream, Transport
from pykai.lab.machines.nodes import MachineKind, node_objects
from pykai.lab.story import JobEntry, QueueEntry, job_object, queue_object
from tests import servers
from tests.cluster.controlplane import free_port
from tests.cluster.plane import ADMITTED_NAMESPACE as NS
from tests.cluster.plane import TestPlane
from tests.cluster.soak import ACCOUNTS

pytestmark = [pytest.mark.cluster_only, pytest.mark.slow]

PATIENCE_S = 900.0
#: service -> its lease, and the flag with the address of its readiness
PAIRS = {
    "scheduler": ("kai-scheduler", "--listen-address"),
    "binder": (names.BINDER_LEASE, "--metrics-bind-address"),
    "podgrouper": ("54dff599.kai.scheduler", "--metrics-bind-address"),
    "podgroups": ("o1x22tjj.kai.scheduler", "--metrics-bind-address"),
    "queues": ("ov3xj497.kai.scheduler", "--metrics-listen-address"),
}
GANG = 120


@dataclass
class Instance:
    """One process of a service."""

    service: str
    process: asyncio.subprocess.Process
    log: Path
    ready_at: str

    @property
    def leads(self) -> bool:
        return " leads (" in self.log.read_text(encoding="utf-8").replace("stands by", "\n")

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.ready_at, timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@dataclass
class Pairs:
    """Two instances of each service."""

    plane: TestPlane
    folder: Path
    instances: list[Instance] = field(default_factory=list)

    async def start(self, service: str) -> Instance:
        log = self.folder / f"{service}-{len(self.instances)}.log"
        ready = free_port()
        arguments = ["--leader-elect=true", f"{PAIRS[service][1]}=127.0.0.1:{ready}"]
        if service == "scheduler":
            arguments.append(f"--plugin-server-port={free_port()}")
        process = await _kai(log, "run", service, "--kubeconfig", self._kubeconfig(service), *arguments)
        made = Instance(service, process, log, f"http://127.0.0.1:{ready}/readyz")
        self.instances.append(made)
        return made

    def leader(self, service: str) -> Instance | None:
        alive = [each for each in self.instances if each.service == service and each.process.returncode is None]
        return next((each for each in alive if each.leads), None)

    def _kubeconfig(self, service: str) -> str:
        return str(self.plane.kubeconfig_of_user(ACCOUNTS[service]))


async def _kai(log: Path, *arguments: str) -> asyncio.subprocess.Process:
    with log.open("ab") as out:
        return await asyncio.create_subprocess_exec(sys.executable, "-m", "pykai", *arguments, stdout=out, stderr=out)


@asynccontextmanager
async def pairs_of(plane: TestPlane, folder: Path) -> AsyncIterator[Pairs]:
    """Two of each service, one of which leads; kubelets are played."""
    pairs = Pairs(plane, folder)
    flags = ("--controllers=false", "--default-scheduler=false")
    kubelets = await _kai(folder / "machines.log", "run", "machines", "--kubeconfig", str(plane.kubeconfig), *flags)
    try:
        for service in PAIRS:
            await pairs.start(service)
        await until(lambda: all(pairs.leader(service) for service in PAIRS))
        for service in PAIRS:
            await pairs.start(service)
        await until(lambda: all(each.is_ready() for each in pairs.instances))
        yield pairs
    finally:
        for process in (*(each.process for each in pairs.instances), kubelets):
            if process.returncode is None:
                process.terminate()
        for process in (*(each.process for each in pairs.instances), kubelets):
            await process.wait()


async def until(holds: Any) -> None:
    """Wait for something that processes write to files and ports."""
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(holds):
            await asyncio.sleep(0.1)


class Cluster:
    """What the test makes, and sees of it by watches."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.caches = Caches(client)
        self.pods: Store[dict[str, Any]] = self.caches.store(PODS, dict, namespace=NS)
        self.groups: Store[dict[str, Any]] = self.caches.store(POD_GROUPS, dict)
        self.queues: Store[dict[str, Any]] = self.caches.store(QUEUES, dict)
        #: node of a pod as first seen, and when
        self.bound: dict[str, str] = {}
        self.bound_s: dict[str, float] = {}
        self.moved: list[str] = []
        self.pods.subscribe(self._pod_changed)

    def _pod_changed(self, change: Any) -> None:
        node = change.new["spec"].get("nodeName") if change.new is not None else None
        if node:
            self.bound_s.setdefault(change.key, time.monotonic())
            if self.bound.setdefault(change.key, node) != node:
                self.moved.append(change.key)

    async def furnish(self) -> None:
        await servers.ensure_namespace(self.client, NS)
        for node in node_objects(MachineKind(name="leaders", count=16, gpus=8), "2026-01-01T00:00:00Z"):
            await self.client.create(NODES, node)
            # There is no controller here that removes the taint of a new node once it is ready.
            await self.client.patch(NODES, node["metadata"]["name"], {"spec": {"taints": None}})
        await self.client.create(QUEUES, queue_object(QueueEntry(name="pairs")))

    async def job(self, entry: JobEntry) -> None:
        """A Job and its pods, as its controller makes them."""
        job = job_object(entry)
        template = job["spec"]["template"]
        job["spec"]["suspend"] = True
        made = await self.client.create(JOBS, job, NS)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True, "name": entry.name}
        owner["uid"] = made["metadata"]["uid"]
        for number in range(entry.pods):
            metadata = {**template["metadata"], "name": f"{entry.name}-{number}", "ownerReferences": [owner]}
            await self.client.create(PODS, {"metadata": metadata, "spec": template["spec"]}, NS)

    async def until_bound(self, job: str, count: int) -> None:
        def enough(_: object) -> bool:
            return sum(1 for key in self.bound if key.startswith(f"{NS}/{job}-")) >= count

        await self.pods.wait_until(enough, PATIENCE_S)

    async def clear(self) -> None:
        # The processes have made leases and records that no other test of this control plane expects.
        for resource in (LEASES, CONFIG_MAPS):
            for each in await self.client.list_raw(resource, namespace=names.DEFAULT_NAMESPACE):
                await self.client.delete(resource, each["metadata"]["name"], names.DEFAULT_NAMESPACE)
        for resource in (JOBS, PODS, POD_GROUPS, BIND_REQUESTS):
            for each in await self.client.list_raw(resource, namespace=NS):
                await self.client.delete(resource, each["metadata"]["name"], NS, grace_s=0)
        for each in await self.client.list_raw(PODS, namespace=names.RESERVATION_NAMESPACE):
            await self.client.delete(PODS, each["metadata"]["name"], names.RESERVATION_NAMESPACE, grace_s=0)
        await self.client.delete(QUEUES, "pairs")
        for each in await self.client.list_raw(NODES):
            await self.client.delete(NODES, each["metadata"]["name"])


@asynccontextmanager
async def furnished(plane: TestPlane) -> AsyncIterator[Cluster]:
    client = Client(connect(plane.kubeconfig))
    cluster = Cluster(client)
    await cluster.caches.start()
    await cluster.caches.wait_for_sync()
    try:
        await cluster.furnish()
        yield cluster
    finally:
        await cluster.clear()
        await cluster.caches.stop()
        await client.close()


async def test_killing_the_leaders_in_the_middle_of_a_gang_loses_nothing(plane: TestPlane, tmp_path: Path) -> None:
    before = sum(1 for _ in plane.requests())
    async with furnished(plane) as cluster, pairs_of(plane, tmp_path) as pairs:
        await cluster.job(JobEntry(name="gang", namespace=NS, queue="pairs", pods=GANG, gpus=1, runs="600s"))
        await cluster.until_bound("gang", 5)
        for service in PAIRS:
            leader = pairs.leader(service)
            assert leader is not None
            leader.process.kill()
            await leader.process.wait()
        killed_s = time.monotonic()
        began = len(cluster.bound)
        assert began < GANG, "the gang was bound before a leader could be killed"

        await cluster.until_bound("gang", GANG)
        first_s = min(at_s for at_s in cluster.bound_s.values() if at_s > killed_s) - killed_s
        print(f"{began} of {GANG} pods were bound before the kill; the standby bound its first after {first_s:.1f} s")
        # The others lead, too: a pod that shares a GPU needs the grouper, the scheduler and the binder.
        await cluster.job(JobEntry(name="share", namespace=NS, queue="pairs", pods=1, fraction=0.5, runs="600s"))
        await cluster.until_bound("share", 1)
        await cluster.groups.wait_until(
            lambda _: sum(map(_allocated, cluster.groups.values())) > 1000 * GANG, PATIENCE_S
        )
        await cluster.queues.wait_until(
            lambda _: sum(map(_allocated, cluster.queues.values())) > 1000 * GANG, PATIENCE_S
        )
        assert cluster.moved == []
        for service, (lease, _) in PAIRS.items():
            held = await cluster.client.get_raw(LEASES, lease, names.DEFAULT_NAMESPACE)
            assert held["spec"]["leaseTransitions"] >= 1, service
    bindings, deletions = Counter[str](), Counter[str]()
    for number, request in enumerate(plane.requests()):
        about = request.get("objectRef", {})
        if number < before or about.get("resource") != "pods" or request["responseStatus"].get("code", 0) >= 300:
            continue
        if about.get("subresource") == "binding":
            bindings[about["name"]] += 1
        elif request["verb"] == "delete" and "serviceaccount" in request["user"]["username"]:
            deletions[about["name"]] += 1
    # Every pod was seen bound. What was carried out while its sender was killed has no good answer in the audit log.
    assert [name for name, count in bindings.items() if name.startswith("gang-") and count > 1] == []
    assert [name for name in deletions if name.startswith("gang-")] == []


def _allocated(counted: dict[str, Any]) -> int:
    """Thousandths of GPUs of a PodGroup or of a queue, as the services that count them have written."""
    status = counted.get("status", {})
    amounts = status.get("resourcesStatus", status).get("allocated") or {}
    return milli_value(amounts.get(names.NVIDIA_GPU, 0))


class Skewed:
    """The way of a machine whose clock is wrong, and whose renewals may hang."""

    def __init__(self, inner: Transport, skew: timedelta) -> None:
        self._inner = inner
        self._skew = skew
        self.hangs = False

    async def send(self, request: Request) -> Response:
        if request.method in ("PUT", "POST") and "/leases" in request.path:
            if self.hangs:
                await asyncio.Event().wait()
            assert isinstance(request.body, bytes)
            lease = json.loads(request.body)
            for name in ("renewTime", "acquireTime"):
                if lease["spec"].get(name):
                    lease["spec"][name] = micro_time(datetime.fromisoformat(lease["spec"][name]) + self._skew)
            request = msgspec.structs.replace(request, body=json.dumps(lease).encode())
        return await self._inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


class Scribe:
    """A candidate whose work is to write the name of the leader all the time."""

    LEASE, LEDGER = "skewed", "ledger"

    def __init__(self, plane: TestPlane, identity: str, skew: timedelta) -> None:
        self.transport = Skewed(connect(plane.kubeconfig_of_user("binder")), skew)
        self.client = Client(self.transport)
        self.identity = identity
        #: resource versions of what it has written
        self.written: list[int] = []
        self.wrote = asyncio.Event()
        election = LeaderElection(
            self.client,
            namespace=names.DEFAULT_NAMESPACE,
            name=self.LEASE,
            identity=identity,
            lease_duration_s=3.0,
            renew_deadline_s=1.5,
            retry_period_s=0.5,
        )
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(election.lead(self.stop, self.work))

    async def work(self, _: asyncio.Event) -> None:
        # It ignores a stop: it must be fenced before another leader may write.
        while True:
            patch = {"data": {"leader": self.identity, "count": str(len(self.written))}}
            answer = await self.client.patch(CONFIG_MAPS, self.LEDGER, patch, names.DEFAULT_NAMESPACE)
            self.written.append(int(answer["metadata"]["resourceVersion"]))
            self.wrote.set()
            await asyncio.sleep(0.02)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.client.close()


async def test_a_leader_that_cannot_renew_stops_writing_before_another_leads(plane: TestPlane) -> None:
    admin = Client(connect(plane.kubeconfig))
    await admin.create(CONFIG_MAPS, {"metadata": {"name": Scribe.LEDGER}}, names.DEFAULT_NAMESPACE)
    first = Scribe(plane, "first", timedelta(hours=-1))
    try:
        await asyncio.wait_for(first.wrote.wait(), PATIENCE_S)
        second = Scribe(plane, "second", timedelta(hours=1))
        try:
            # Two whole terms of a lease whose times look an hour old to the other.
            count = len(first.written)
            async with asyncio.timeout(PATIENCE_S):
                while len(first.written) < count + 100:
                    await asyncio.sleep(0.1)
            assert second.written == []
            first.transport.hangs = True
            await asyncio.wait_for(second.wrote.wait(), PATIENCE_S)
            with pytest.raises(LeaseLost):
                await first.task
            assert max(first.written) < min(second.written)
        finally:
            await second.end()
    finally:
        await first.end()
        await admin.delete(CONFIG_MAPS, Scribe.LEDGER, names.DEFAULT_NAMESPACE)
        await admin.delete(LEASES, Scribe.LEASE, names.DEFAULT_NAMESPACE)
        await admin.close()
