"""Plays a story on a cluster: creates its machines and queues, then runs each step at its time.

The player is an ordinary user of the API server: it creates and watches Jobs and Deployments, nothing else. A display
reads `told` (the sentences so far) and waits on `finished`, which is set when the last step of a round is done and
every Job of the round has ended. `refused` lists the objects that the server did not accept.

Subtle: all times are those of the cluster's clock. A repeated round first deletes its Jobs and Deployments and waits
until they are gone, because the next one uses the same names.

Statements: kai:up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from pykai.api.keys import object_key
from pykai.api.meta import ObjectMeta, Wire
from pykai.api.timestamp import format_timestamp
from pykai.kube import resources
from pykai.kube.errors import AlreadyExists, KubeError, NotFound
from pykai.kube.resources import Resource
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.lab.machines.nodes import machine_objects, runtime_class
from pykai.lab.story import ObjectToDelete, Story, StoryStep, machine_kind, queue_object, step_objects

_LOG = logging.getLogger(__name__)

#: what a story may create or delete, by kind
KINDS: dict[str, Resource] = {
    resource.kind: resource for resource in vars(resources).values() if isinstance(resource, Resource)
}


class _WorkloadCondition(Wire):
    type: str = ""
    status: str = ""


class _WorkloadStatus(Wire):
    conditions: list[_WorkloadCondition] = msgspec.field(default_factory=list)


class StoryWorkload(Wire):
    """The identity of a Job or Deployment, and whether it has ended."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    status: _WorkloadStatus = msgspec.field(default_factory=_WorkloadStatus)

    @property
    def failed(self) -> bool:
        """Whether a Job has failed."""
        return any(each.type == "Failed" and each.status == "True" for each in self.status.conditions)

    @property
    def ended(self) -> bool:
        """Whether a Job has completed or failed."""
        return any(each.type in ("Complete", "Failed") and each.status == "True" for each in self.status.conditions)


@dataclass(frozen=True, slots=True)
class StoryLine:
    """A sentence of the story and its time."""

    at_s: float
    text: str


class Player:
    """A service that plays one story."""

    name = "story"

    def __init__(self, runtime: Runtime, story: Story) -> None:
        self._client = runtime.client
        self._clock = runtime.clock
        self.story = story
        self.lines: list[StoryLine] = []
        self.rounds = 0
        self.finished = asyncio.Event()
        #: the last step of this round is done
        self.all_submitted = False
        #: a sentence for each object of the story that was not created
        self.refused: list[str] = []
        self.jobs: Store[StoryWorkload] = runtime.caches.store(resources.JOBS, StoryWorkload)
        self._deployments: Store[StoryWorkload] = runtime.caches.store(resources.DEPLOYMENTS, StoryWorkload)
        #: (resource, namespace, name) of what this round submitted
        self._submitted: dict[tuple[Resource, str, str], None] = {}
        #: keys of those Jobs that the cache has shown; one that is missing later was deleted by a user
        self._seen_jobs: set[str] = set()
        self._began_s = 0.0

    def ready(self) -> bool:
        """Always true: the player needs no preparation."""
        return True

    async def run(self, stop: asyncio.Event) -> None:
        """Play rounds until `stop` is set; a story that does not repeat leaves its objects in place at the end."""
        playing = asyncio.create_task(self._play())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((playing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if playing.done():
                playing.result()
                await stopping
        finally:
            for task in (playing, stopping):
                task.cancel()
            await asyncio.gather(playing, stopping, return_exceptions=True)

    async def _play(self) -> None:
        await self.jobs.synced.wait()
        await self._deployments.synced.wait()
        now = format_timestamp(int(self._clock.now().timestamp()) * 1_000_000_000)
        kinds = [machine_kind(entry) for group in self.story.node_groups for entry in group.machines]
        await self._create_all(
            [
                # The software for GPUs is there before the first node with one comes.
                *([runtime_class()] if any(kind.gpus for kind in kinds) else []),
                *machine_objects(map(machine_kind, self.story.machines), now),
                *(queue_object(entry) for entry in self.story.queues),
                *self.story.objects,
            ]
        )
        while True:
            await self._play_round()
            if not self.story.repeat_s:
                return
            await self._sleep_until(self.story.repeat_s)
            await self._clear()

    async def _play_round(self) -> None:
        self._began_s = self._clock.elapsed_s()
        self.finished.clear()
        self.all_submitted = False
        for step in sorted(self.story.steps, key=lambda each: each.at_s):
            await self._sleep_until(step.at_s)
            await self._play_step(step)
        self.all_submitted = True
        await self.jobs.wait_until(lambda _: not self.unfinished_jobs(), timeout_s=float("inf"))
        self.rounds += 1
        self.finished.set()

    def failed(self) -> list[str]:
        """Names of the failed Jobs of this round."""
        found = (self.jobs.get(key) for key in self._story_job_keys())
        return sorted(job.metadata.name for job in found if job is not None and job.failed)

    def unfinished_jobs(self) -> list[str]:
        """Keys of the unfinished Jobs of this round, including those that the cache does not show yet."""
        unfinished = []
        for key in self._story_job_keys():
            job = self.jobs.get(key)
            if job is not None:
                self._seen_jobs.add(key)
            if (key not in self._seen_jobs) if job is None else not job.ended:
                unfinished.append(key)
        return unfinished

    def _story_job_keys(self) -> Iterable[str]:
        for resource, namespace, name in self._submitted:
            if resource is resources.JOBS:
                yield object_key(namespace, name)

    async def _sleep_until(self, at_s: float) -> None:
        await self._clock.sleep(self._began_s + at_s - self._clock.elapsed_s())

    async def _play_step(self, step: StoryStep) -> None:
        if step.say:
            self.lines.append(StoryLine(self._clock.elapsed_s(), step.say))
            _LOG.info("%s", step.say)
        for named in step.delete:
            await self._delete(named)
        await self._create_all(step_objects(step))

    async def _create_all(self, objects: Iterable[dict[str, Any]]) -> None:
        for document in objects:
            resource = KINDS.get(document.get("kind", ""))
            metadata = document.get("metadata", {})
            name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
            if resource is None:
                self._note_refusal(f"{document.get('kind')!r} is not a kind that a story can create")
                continue
            if resource.namespaced and not namespace:
                namespace = "default"
            try:
                await self._client.create(resource, document, namespace)
            except AlreadyExists:
                _LOG.debug("%s %s exists already", resource.kind, name)
            except KubeError as error:
                self._note_refusal(f"{resource.kind} {name} was refused: {error}")
                continue
            if resource in (resources.JOBS, resources.DEPLOYMENTS):
                self._submitted[resource, namespace, name] = None

    def _note_refusal(self, why: str) -> None:
        self.refused.append(why)
        _LOG.warning("an object of the story is missing: %s", why)

    async def _delete(self, named: ObjectToDelete) -> None:
        resource = KINDS.get(named.kind)
        if resource is None:
            _LOG.warning("the story deletes an object of kind %r, which is not known", named.kind)
            return
        try:
            await self._client.delete(
                resource, named.name, named.namespace if resource.namespaced else "", propagation="Background"
            )
        except NotFound:
            _LOG.debug("%s %s is gone already", named.kind, named.name)
        self._submitted.pop((resource, named.namespace if resource.namespaced else "", named.name), None)

    async def _clear(self) -> None:
        """Delete the objects of the round and wait until they are gone."""
        left = list(self._submitted)
        self._submitted.clear()
        self._seen_jobs.clear()
        for resource, namespace, name in left:
            await self._delete(ObjectToDelete(kind=resource.kind, name=name, namespace=namespace))
        for store in (self.jobs, self._deployments):
            keys = {object_key(namespace, name) for resource, namespace, name in left if resource is store.resource}
            await store.wait_until(partial(_has_none_of, keys), timeout_s=float("inf"))


def _has_none_of(keys: set[str], store: Store[StoryWorkload]) -> bool:
    return not any(key in store for key in keys)
