"""The real kube-scheduler places its pods on the nodes where we place ours, at the same time.

Nothing keeps two schedulers from choosing the last free GPU at the same moment: the kubelet then admits the pod whose
binding it saw first and rejects the other.  It must never be our fault: no bind goes out that does not
fit beside the pods that our scheduler has already received.  `Witness` sits between the scheduler and the server
and adds that up for every bind, from the scheduler's own cache.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from pykai.api import names
from pykai.api.core import Pod
from pykai.kube.resources import JOBS, PODS, REPLICA_SETS, Resource
from pykai.kube.transport import Request, Response, Stream, Transport
from pykai.lab.machines.nodes import MachineKind
from pykai.lab.machines.requests import ResourceRequests, resource_amounts
from pykai.scheduler.service import Scheduler
from tests.cluster.realcluster import Document, RealCluster, has_condition, job, real_cluster, scheduler_of, template

pytestmark = [pytest.mark.cluster_only, pytest.mark.asyncio(loop_scope="module")]

NODES = 20
MACHINES = (MachineKind(count=NODES, name="node-{}", gpus=4, cpu="8", pods=20),)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", True)
WAVES = 3
#: pods with half a GPU each, whose reservations the default scheduler competes with
SHARING = 8
_BOUND = re.compile(r"/namespaces/([^/]+)/(?:pods/([^/]+)/binding|bindrequests)$")


class Witness:
    """Adds up, at every bind, what the scheduler knows to be on the node."""

    def __init__(self) -> None:
        self.scheduler: Scheduler | None = None
        #: called with pod and node right before a bind goes out
        self.before: Callable[[str, str], Awaitable[None]] | None = None
        self.binds = 0
        #: binds that did not fit beside what was known, as sentences
        self.faults: list[str] = []
        #: pod -> its node, until the scheduler sees it there
        self._sent: dict[str, str] = {}

    def between(self, transport: Transport) -> Transport:
        return _Watched(transport, self)

    async def pass_on(self, namespace: str, body: Document) -> None:
        spec = body.get("spec")
        name = spec["podName"] if spec else body["metadata"]["name"]
        node = spec["selectedNode"] if spec else body["target"]["name"]
        self.look(f"{namespace}/{name}", node)
        if self.before is not None:
            await self.before(name, node)

    def look(self, key: str, node: str) -> None:
        assert self.scheduler is not None
        pods = self.scheduler.intake.pods
        ours, machine = pods.get(key), self.scheduler.intake.nodes.get(node)
        if ours is None or machine is None:
            return
        self.binds += 1
        self._sent.pop(key, None)
        used: Counter[str] = Counter()
        there = []
        for pod in pods.values():
            other = f"{pod.metadata.namespace}/{pod.metadata.name}"
            if pod.spec.node_name:
                self._sent.pop(other, None)
            if (pod.spec.node_name or self._sent.get(other)) == node and pod.status.phase != "Succeeded":
                used.update(_asks(pod))
                there.append(f"{other} ({pod.spec.scheduler_name}, {pod.status.phase})")
        has_room = resource_amounts(machine.status.allocatable)
        for resource, asked in _asks(ours).items():
            if used[resource] + asked > has_room.get(resource, 0):
                self.faults.append(
                    f"{key} to {node}: {resource} {used[resource]}+{asked}>{has_room.get(resource)}, {there}"
                )
        self._sent[key] = node


def _asks(pod: Pod) -> ResourceRequests:
    total: Counter[str] = Counter({names.PODS: 1})
    for container in pod.spec.containers:
        total.update(resource_amounts(container.resources.requests))
    return dict(total)


class _Watched:
    def __init__(self, inner: Transport, witness: Witness) -> None:
        self._inner = inner
        self._witness = witness

    async def send(self, request: Request) -> Response:
        found = _BOUND.search(request.path) if request.method == "POST" else None
        if found is not None and request.body is not None:
            await self._witness.pass_on(found[1], json.loads(request.body))
        return await self._inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


async def foreign_pods(cluster: RealCluster) -> None:
    """What runs on the nodes of any cluster: a daemon set, static pods, pods without requests."""
    agent = template(cpu="100m", scheduler="default-scheduler", labels={"app": "agent"})
    daemons = {"selector": {"matchLabels": {"app": "agent"}}, "template": agent}
    await cluster.create(DAEMON_SETS, {"metadata": {"name": "agent"}, "spec": daemons}, "kube-system")
    for number in range(NODES):
        static_pod = template(cpu="250m", scheduler="default-scheduler", nodeName=f"node-{number}", hostNetwork=True)
        noted = {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}
        static = {"name": f"proxy-node-{number}", "annotations": noted}
        spec = {**static_pod["spec"], "automountServiceAccountToken": False}
        await cluster.create(PODS, {"metadata": static, "spec": spec}, "kube-system")
    idle = template(scheduler="default-scheduler", labels={"app": "idle"})
    replicas = {"replicas": 2 * NODES, "selector": {"matchLabels": {"app": "idle"}}, "template": idle}
    await cluster.create(REPLICA_SETS, {"metadata": {"name": "idle"}, "spec": replicas}, "theirs")
    await cluster.running("kube-system", 2 * NODES)
    await cluster.running("theirs", 2 * NODES)


async def wave(cluster: RealCluster, number: int) -> None:
    """A hundred pods for each of the two schedulers, most of which end and are followed by others."""
    again = {"backoffLimit": 100}
    twice = {**again, "completions": 10}
    made: list[tuple[Document, str]] = []
    for index in range(5):
        for space, who in (("ours", names.SCHEDULER_NAME), ("theirs", names.DEFAULT_SCHEDULER_NAME)):
            for kind, asks in (("gpu", {"gpus": 1}), ("cpu", {"gpus": 0, "cpu": "2"})):
                of_pods: dict[str, Any] = {"runs_s": 0.3 + 0.2 * index, "scheduler": who, **asks}
                made.append((job(f"{kind}-{number}-{index}", 5, spec=twice, **of_pods), space))
    for index in range(2):
        made.append((job(f"gang-{number}-{index}", pods=4, gpus=2, minimum=4, runs_s=0.5, spec=again), "ours"))
    await asyncio.gather(*(cluster.create(JOBS, each, space) for each, space in made))


def lose_a_race(cluster: RealCluster, witness: Witness) -> None:
    """The first bind of the pod `loser` is overtaken by a pod that the scheduler cannot know of."""

    async def others_are_quicker(pod: str, node: str) -> None:
        if pod.startswith("loser-"):
            witness.before = None
            winner = template(1, scheduler="default-scheduler", runs_s=2, nodeName=node, restartPolicy="Never")
            await cluster.create(PODS, {"metadata": {"name": "winner"}, "spec": winner["spec"]}, "theirs")

    witness.before = others_are_quicker


async def test_no_bind_of_ours_overfills_what_we_know_of_a_node(cluster: RealCluster, witness: Witness) -> None:
    await foreign_pods(cluster)
    lose_a_race(cluster, witness)
    await cluster.create(JOBS, job("loser", gpus=4, runs_s=0.5), "ours")
    half = template(labels={"app": "shared"}, annotations={names.GPU_FRACTION_ANNOTATION: "0.5"})
    shared = {"replicas": SHARING, "selector": {"matchLabels": {"app": "shared"}}, "template": half}
    await cluster.create(REPLICA_SETS, {"metadata": {"name": "shared"}, "spec": shared}, "shares")
    for number in range(WAVES):
        await wave(cluster, number)
        await cluster.until(JOBS, f"cpu-{number}-0", "ours", has_condition("Complete"))
    for each in cluster.all(JOBS, "ours"):
        await cluster.until(JOBS, each["metadata"]["name"], "ours", has_condition("Complete"))
    await cluster.running("shares", SHARING)
    assert witness.faults == []
    assert witness.binds > WAVES * 100
    rejected = [pod for pod in cluster.pods("ours", "Failed") if pod["metadata"]["name"].startswith("loser-")]
    # Once for certain, and again where the default scheduler happens to be quicker, too.
    assert {pod["status"]["reason"] for pod in rejected} == {"OutOfnvidia.com/gpu"}


@pytest.fixture(scope="module")
def witness() -> Witness:
    return Witness()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory, witness: Witness) -> AsyncIterator[RealCluster]:
    folder: Path = tmp_path_factory.mktemp("beside")
    wrap = {"scheduler": witness.between}
    async with real_cluster(folder, MACHINES, default_scheduler=True, wrap=wrap) as made:
        witness.scheduler = scheduler_of(made)
        for space in ("ours", "theirs", "shares"):
            await made.namespace(space, admitted=space == "shares")
        yield made
