"""A whole lab with the operators of other projects, in fast time, and queries about what runs there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pykai.api import names
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.resources import EVENTS, JOBS, POD_GROUPS, PODS, Resource
from pykai.kube.store import Store
from pykai.lab.cluster import LabCluster, LabOptions
from pykai.lab.operators.families import FAMILIES, read_families
from pykai.lab.operators.jobset import JOB_SETS
from pykai.lab.operators.kubeflow import TRAINING_KINDS
from pykai.lab.operators.leaderworkerset import LEADER_WORKER_SETS
from pykai.lab.operators.mpi import MPI_JOBS
from pykai.lab.operators.ray import RAY_CLUSTERS, RAY_JOBS, RAY_SERVICES
from pykai.lab.operators.spark import SPARK_APPLICATIONS
from pykai.lab.operators.trainer import TRAIN_JOBS, TRAINING_RUNTIMES
from pykai.lab.story import parse_story
from pykai.operator.install import installation

Document = dict[str, Any]
EXAMPLES = Path(__file__).parents[3] / "examples" / "kinds"
TIMEOUT_S = 60.0
#: 104 GPUs
STORY = "machines: [{name: h100, count: 13, gpus: 8, cpu: '64'}]"
KINDS: dict[str, Resource] = {
    resource.kind: resource
    for resource in (
        *(kind.resource for kind in TRAINING_KINDS),
        MPI_JOBS,
        TRAIN_JOBS,
        TRAINING_RUNTIMES,
        JOB_SETS,
        LEADER_WORKER_SETS,
        RAY_CLUSTERS,
        RAY_JOBS,
        RAY_SERVICES,
        SPARK_APPLICATIONS,
    )
}
_ALL_KINDS = {kind.resource.kind: kind.resource for family in FAMILIES.values() for kind in family.kinds}


def resource_of(document: Document) -> Resource:
    """The kind of an object, in the version that it has."""
    group, _, version = document["apiVersion"].rpartition("/")
    return replace(_ALL_KINDS[document["kind"]], group=group, version=version)


class OperatedCluster:
    """The lab as its users see it."""

    def __init__(self, lab: LabCluster) -> None:
        self.lab = lab
        self.client = Client(lab.server.transport())
        self.caches = Caches(self.client)
        watched = (*KINDS.values(), PODS, POD_GROUPS, JOBS, EVENTS)
        # Kinds that are not installed are empty.
        self.stores: dict[Resource, Store[Document]] = {
            each: self.caches.store(each, dict, optional=True) for each in watched
        }

    async def apply(self, *documents: Document) -> None:
        for document in documents:
            await self.client.create(resource_of(document), document, "default")

    async def until(self, resource: Resource, name: str, holds: Callable[[Document], bool]) -> Document:
        store, key = self.stores[resource], f"default/{name}"
        try:
            await store.wait_until(lambda _: (found := store.get(key)) is not None and holds(found), TIMEOUT_S)
        except TimeoutError as error:
            raise AssertionError(f"{resource.kind} {name} is {store.get(key)}, {self.pods()}") from error
        found = store.get(key)
        assert found is not None
        return found

    async def until_pods(self, holds: Callable[[Mapping[str, str]], bool]) -> None:
        """Wait until names and phases of pods are as they should be."""
        try:
            await self.stores[PODS].wait_until(lambda _: holds(self.pods()), TIMEOUT_S)
        except TimeoutError as error:
            raise AssertionError(f"the pods are {self.pods()}") from error

    async def until_event(self, reason: str, text: str) -> None:
        """Wait for an event."""
        await self.stores[EVENTS].wait_until(
            lambda s: any(each["reason"] == reason and text in each["message"] for each in s.values()), TIMEOUT_S
        )

    def pods(self) -> dict[str, str]:
        """Name -> phase."""
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in self.stores[PODS].values()}

    def group_of(self, pod: str) -> Document:
        """The PodGroup that a pod is in."""
        found = self.stores[PODS].get(f"default/{pod}")
        assert found is not None, pod
        group = self.stores[POD_GROUPS].get(f"default/{found['metadata']['annotations'][names.POD_GROUP_ANNOTATION]}")
        assert group is not None, pod
        return group


def example(name: str) -> Iterator[Document]:
    """The objects of an example."""
    yield from yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))


def holds_true(kind: str) -> Callable[[Document], bool]:
    """Whether a condition is True."""

    def holds(found: Document) -> bool:
        conditions = found.get("status", {}).get("conditions", ())
        return any(each["type"] == kind and each["status"] == "True" for each in conditions)

    return holds


def status_is(field: str, value: str) -> Callable[[Document], bool]:
    """Whether a field of the status, `part.field` inside a part, has this value."""

    def holds(found: Document) -> bool:
        value_found: Any = found.get("status", {})
        for name in field.split("."):
            value_found = value_found.get(name, {})
        return bool(value_found == value)

    return holds


def conditions(found: Document) -> dict[str, str]:
    """Type -> status."""
    return {each["type"]: each["status"] for each in found["status"]["conditions"]}


@asynccontextmanager
async def operated_cluster(kinds: str, speed: float = 40.0) -> AsyncIterator[OperatedCluster]:
    """A lab of 104 GPUs with these families of kinds."""
    options = LabOptions(story=parse_story(STORY), speed=speed, objects=installation(), families=read_families(kinds))
    lab = await LabCluster.start(options)
    stop = asyncio.Event()
    running = asyncio.create_task(lab.run(stop))
    made = OperatedCluster(lab)
    await made.caches.start()
    try:
        yield made
    finally:
        await made.caches.stop()
        stop.set()
        await running
