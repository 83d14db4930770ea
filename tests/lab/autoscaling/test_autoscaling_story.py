"""The work of the story of `kai up --autoscale`: nodes come for work that may run, and go."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pykai.api.core import Node, Pod
from pykai.kube.resources import NODES
from pykai.kube.store import Change, Store
from pykai.lab.cluster import LabCluster, LabOptions
from pykai.lab.player import KINDS
from pykai.lab.story import AUTOSCALE_STORY, job_object, parse_story, read_story, service_object
from pykai.operator.install import installation


class Witness:
    """What happened to nodes and pods, in order."""

    def __init__(self, cluster: LabCluster) -> None:
        self.nodes: list[str] = []
        #: job -> the nodes on which its pods ran
        self.ran_on: dict[str, set[str]] = defaultdict(set)
        #: node -> uids of pods on it now
        self.held: dict[str, set[str]] = defaultdict(set)
        #: nodes that went with a pod on them
        self.robbed: set[str] = set()
        self.store = cluster.runtime.caches.store(NODES, Node)
        self.store.subscribe(self._on_node)
        cluster.scheduler.intake.pods.subscribe(self._on_pod)

    def _on_node(self, change: Change[Node]) -> None:
        if change.old is None:
            self.nodes.append(change.key)
        if change.new is None and self.held[change.key]:
            self.robbed.add(change.key)

    def _on_pod(self, change: Change[Pod]) -> None:
        pod = change.new
        if change.old is not None and (pod is None or pod.status.phase in ("Succeeded", "Failed")):
            self.held[change.old.spec.node_name].discard(change.old.metadata.uid)
            return
        if pod is None or pod.metadata.namespace != "default":
            return
        job = pod.metadata.name.split("-")[0]
        if pod.spec.node_name:
            self.ran_on[job].add(pod.spec.node_name)
            self.held[pod.spec.node_name].add(pod.metadata.uid)


#: longer than the test: its jobs run until they are deleted
_ENDLESS = "24h"


def _works() -> dict[str, dict[str, Any]]:
    """Objects of the story by name; how long jobs run is up to the test."""
    steps = read_story(AUTOSCALE_STORY).steps
    jobs = {job.name: job_object(msgspec.structs.replace(job, runs=_ENDLESS)) for step in steps for job in step.jobs}
    return jobs | {service.name: service_object(service) for step in steps for service in step.services}


class Stage:
    """Submits and deletes work, and waits for what becomes of it."""

    def __init__(self, cluster: LabCluster) -> None:
        self._client = cluster.runtime.client
        self._pods = cluster.scheduler.intake.pods
        self._works = _works()

    async def submit(self, name: str) -> None:
        work = self._works[name]
        await self._client.create(KINDS[work["kind"]], work, "default")

    async def delete(self, name: str) -> None:
        await self._client.delete(KINDS[self._works[name]["kind"]], name, "default", propagation="Background")

    async def wait_for(self, name: str, pods: int, fits: Callable[[Pod], bool]) -> None:
        def enough(store: Store[Pod]) -> bool:
            own = [each for each in store.values() if each.metadata.name.startswith(f"{name}-") and fits(each)]
            return len(own) == pods

        await self._pods.wait_until(enough, timeout_s=120)

    async def run(self, name: str, pods: int) -> None:
        """Submit it and wait until all of its pods run."""
        await self.submit(name)
        await self.wait_for(name, pods, lambda pod: pod.status.phase == "Running")


async def test_nodes_come_for_gangs_and_shares_and_not_for_work_over_its_limit() -> None:
    """sim:autoscaler, sim:autoscaler-idle, queues:Q-409, gpu:SA-1

    Each part is submitted when the one before it is where it should be, so no order depends on how busy the machine is.
    """
    story = msgspec.structs.replace(read_story(AUTOSCALE_STORY), steps=[], repeat="0s")
    cluster = await LabCluster.start(LabOptions(story=story, speed=20, objects=installation()))
    seen, stage = Witness(cluster), Stage(cluster)
    stop = asyncio.Event()
    running = asyncio.create_task(cluster.run(stop))
    await cluster.player.finished.wait()
    await stage.run("pretrain", 2)
    await stage.submit("sweep")
    await stage.wait_for("sweep", 4, lambda pod: bool(pod.spec.scheduling_gates))
    await stage.run("probe", 1)
    await stage.run("folding", 4)
    await stage.run("chat", 2)
    # Its pods are behind their gates still, and nothing was bought for them.
    await stage.wait_for("sweep", 4, lambda pod: bool(pod.spec.scheduling_gates))
    assert sorted(seen.nodes) == ["h100-1", "h100-2", "h100-3", "mi300x-1-1", "mi300x-8-1", "system"]
    await stage.delete("pretrain")
    await stage.wait_for("sweep", 4, lambda pod: pod.status.phase == "Running")
    for name in ("sweep", "probe", "folding", "chat"):
        await stage.delete(name)
    await seen.store.wait_until(lambda nodes: set(nodes.keys()) == {"system"}, timeout_s=120)
    stop.set()
    await running
    assert cluster.player.refused == []
    assert seen.ran_on["pretrain"] == {"h100-1", "h100-2"}
    assert seen.ran_on["probe"] == {"mi300x-1-1"}
    assert seen.ran_on["folding"] == {"mi300x-8-1"}
    assert seen.ran_on["chat"] == {"h100-3"}
    assert seen.robbed == set()


@pytest.mark.parametrize(
    ("text", "gates"), [("queues: [{name: q}]", False), ("queues: [{name: q, admissionGating: true}]", True)]
)
def test_queues_gate_only_where_a_story_asks_for_it(text: str, gates: bool) -> None:
    assert parse_story(text).gates_queues is gates


def test_objects_of_a_story_may_ask_for_gates() -> None:
    assert parse_story("objects: [{kind: Queue, metadata: {name: q}, spec: {admissionGating: true}}]").gates_queues


def test_the_story_has_more_work_than_its_limit() -> None:
    """Else the gate would have nothing to do."""
    story = read_story(AUTOSCALE_STORY)
    (research,) = [queue for queue in story.queues if queue.admission_gating]
    jobs = [job for step in story.steps for job in step.jobs if job.queue == research.name]
    assert sum(job.pods * job.gpus for job in jobs) > research.gpu.limit
