"""Jobs: pods until enough of them have ended well.

Reconciling a Job counts its pods (`jobtally`), makes those that are missing, takes away those that are too many, and
writes the status when it changed.  A Job that is over loses its active pods and, after its time to live, itself.

Not done: `backoffLimitPerIndex`, `successPolicy`, `managedBy`, tracking finalizers (see `jobtally`).
"""

from __future__ import annotations

from typing import Any

from pykai.api import names
from pykai.api.core import Condition
from pykai.api.workloads import Job, MachinePod
from pykai.kube.errors import ApiError
from pykai.kube.resources import JOBS
from pykai.kube.runtime import Runtime, Service
from pykai.kube.store import Change
from pykai.lab.controllers.controller import (
    Controller,
    Document,
    Writer,
    controller_of,
    drawn_name,
    key_of,
    owner_reference,
    reference,
)
from pykai.lab.controllers.jobstatus import (
    Memory,
    Tally,
    Verdict,
    format_indexes,
    is_indexed,
    missing_indexes,
    surplus,
    tally_of,
    verdict,
    wanted,
)
from pykai.lab.controllers.pods import CONTROLLER, from_template, is_going, pod_store, pod_writer
from pykai.lab.timestamps import seconds

#: Pods made in one go; the rest follows at once.
_MOST_AT_ONCE = 500


class Jobs:
    """The Job controller."""

    def __init__(self, runtime: Runtime) -> None:
        self._jobs = runtime.caches.store(JOBS, Job)
        self._pods = pod_store(runtime)
        self._write_job = Writer(runtime.client, self._jobs, Job, runtime.clock)
        self._write_pod = pod_writer(runtime)
        #: by uid
        self._memories: dict[str, Memory] = {}
        self.controller = Controller(
            "job-controller",
            runtime,
            self._reconcile,
            [(self._jobs, self._on_job), (self._pods, self._on_pod)],
        )

    def _on_job(self, change: Change[Job]) -> None:
        if change.new is None and change.old is not None:
            self._memories.pop(change.old.metadata.uid, None)
        self.controller.enqueue(change.key)

    def _on_pod(self, change: Change[MachinePod]) -> None:
        pod = change.new or change.old
        owner = controller_of(pod) if pod is not None else None
        if pod is None or owner is None or owner.kind != "Job":
            return
        key = f"{pod.metadata.namespace}/{owner.name}"
        job = self._jobs.get(key)
        if change.new is None and job is not None and job.metadata.uid in self._memories:
            self._memories[job.metadata.uid].lost(job, pod)
        self.controller.enqueue_soon(key)

    async def _reconcile(self, key: str) -> float | None:
        job = self._jobs.get(key)
        if job is None or is_going_away(job):
            return None
        now_s = self.controller.now_s()
        pods = self._pods.by_index(CONTROLLER, job.metadata.uid)
        over = finished(job)
        if over is not None:
            return await self._bury(job, over, pods, now_s)
        memory = self._memories.get(job.metadata.uid)
        if memory is None:
            memory = self._memories[job.metadata.uid] = Memory.of(job, pods)
        tally = tally_of(job, pods, memory)
        outcome = verdict(job, tally, now_s)
        wait_s: float | None = None
        if outcome is not None:
            for pod in tally.active:
                memory.withdrawn.add(pod.metadata.uid)
                await self._write_pod.delete(pod)
        else:
            wait_s = await self._fill(job, tally, memory, now_s)
        await self._tell_status(job, memory, outcome)
        deadline_s, start_s = job.spec.active_deadline_seconds, seconds(job.status.start_time)
        if outcome is None and deadline_s is not None and not job.spec.suspend:
            left_s = deadline_s if start_s is None else start_s + deadline_s - now_s
            wait_s = left_s if wait_s is None else min(wait_s, left_s)
        return wait_s

    async def _fill(self, job: Job, tally: Tally, memory: Memory, now_s: float) -> float | None:
        """Make or take away pods; seconds after which to look again."""
        goal = wanted(job, tally)
        have = len(tally.active)
        if have > goal:
            for pod in surplus(job, tally, have - goal):
                memory.withdrawn.add(pod.metadata.uid)
                await self._write_pod.delete(pod)
            return None
        waits_for_the_dead = job.spec.pod_replacement_policy == "Failed"
        count = goal - have - (tally.terminating if waits_for_the_dead else 0)
        if count <= 0:
            return None
        if tally.back_off_until_s > now_s:
            return tally.back_off_until_s - now_s
        indexes: list[int | None] = [None] * count
        if is_indexed(job):
            going = (pod for pod in self._pods.by_index(CONTROLLER, job.metadata.uid) if is_going(pod))
            indexes = list(missing_indexes(job, tally, going if waits_for_the_dead else (), count))
        for index in indexes[:_MOST_AT_ONCE]:
            if not await self._make(job, memory, index):
                return 10.0
        return 0.0 if len(indexes) > _MOST_AT_ONCE else None

    async def _make(self, job: Job, memory: Memory, index: int | None) -> bool:
        base = job.metadata.name if index is None else f"{job.metadata.name}-{index}"
        while True:
            name = drawn_name(base, job.metadata.uid, memory.made)
            try:
                made = await self._write_pod.create(pod_of(job, name, index))
            except ApiError as error:
                if error.code >= 500 or error.code in (409, 429):
                    raise
                self._event(job, "Warning", names.EVENT_FAILED_CREATE, f"Error creating: {error}")
                return False
            memory.made += 1
            # One that exists and that the cache does not know is ours: the answer to its creation got lost.
            if made is not None or self._pods.get(f"{job.metadata.namespace}/{name}") is None:
                return True

    async def _tell_status(self, job: Job, memory: Memory, outcome: Verdict | None) -> None:
        current = self._jobs.get(key_of(job))
        if current is None or current.metadata.uid != job.metadata.uid:
            return
        job = current
        tally = tally_of(job, self._pods.by_index(CONTROLLER, job.metadata.uid), memory)
        status = status_of(job, tally, outcome, self.controller.now())
        if status:
            await self._write_job.patch_status(job, status)
            if outcome is not None:
                kind = "Normal" if outcome.complete else "Warning"
                reason = "Completed" if outcome.complete else outcome.reason
                self._event(job, kind, reason, "Job completed" if outcome.complete else outcome.message)

    async def _bury(self, job: Job, over: Condition, pods: Any, now_s: float) -> float | None:
        """What is left to do for a Job that is over."""
        for pod in pods:
            if not is_going(pod) and pod.status.phase not in ("Succeeded", "Failed"):
                await self._write_pod.delete(pod)
        terminating = sum(1 for pod in pods if is_going(pod) and pod.status.phase not in ("Succeeded", "Failed"))
        if (job.status.terminating or 0) != terminating:
            await self._write_job.patch_status(job, {"terminating": terminating})
        ttl_s = job.spec.ttl_seconds_after_finished
        if ttl_s is None:
            return None
        ended_s = seconds(over.last_transition_time) or now_s
        if now_s < ended_s + ttl_s:
            return ended_s + ttl_s - now_s
        await self._write_job.delete(job)
        return None

    def _event(self, job: Job, kind: str, reason: str, message: str) -> None:
        self.controller.recorder.event(reference(job, JOBS), kind, reason, message)


def jobs(runtime: Runtime) -> Service:
    """The Job controller as a service."""
    return Jobs(runtime).controller


def is_going_away(job: Job) -> bool:
    """Whether the Job itself is being deleted."""
    return job.metadata.deletion_timestamp is not None


def finished(job: Job) -> Condition | None:
    """The condition that says that the Job is over."""
    for condition in job.status.conditions:
        if condition.type in ("Complete", "Failed") and condition.status == "True":
            return condition
    return None


def pod_of(job: Job, name: str, index: int | None) -> Document:
    """A pod of a Job."""
    labels = {
        names.JOB_NAME_LABEL: job.metadata.name,
        names.JOB_CONTROLLER_UID_LABEL: job.metadata.uid,
        names.LEGACY_JOB_NAME_LABEL: job.metadata.name,
        names.LEGACY_JOB_CONTROLLER_UID_LABEL: job.metadata.uid,
    }
    annotations: dict[str, str] = {}
    spec: Document = {}
    if index is not None:
        labels[names.COMPLETION_INDEX_LABEL] = str(index)
        annotations[names.COMPLETION_INDEX_ANNOTATION] = str(index)
        body = job.spec.template.get("spec") or {}
        if not body.get("hostname"):
            spec["hostname"] = f"{job.metadata.name}-{index}"
        for field in ("containers", "initContainers"):
            if body.get(field):
                spec[field] = [_with_index(container) for container in body[field]]
    return from_template(
        job.spec.template,
        name,
        job.metadata.namespace,
        owner_reference(job, JOBS),
        labels=labels,
        annotations=annotations,
        spec=spec,
    )


_INDEX_VARIABLE = {
    "name": "JOB_COMPLETION_INDEX",
    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{names.COMPLETION_INDEX_LABEL}']"}},
}


def _with_index(container: Document) -> Document:
    environment = container.get("env") or []
    if any(variable.get("name") == _INDEX_VARIABLE["name"] for variable in environment):
        return container
    return {**container, "env": [*environment, _INDEX_VARIABLE]}


def status_of(job: Job, tally: Tally, outcome: Verdict | None, now: str) -> Document:
    """A merge patch for the status; empty if it says already what is so."""
    status = job.status
    over = outcome is not None
    desired: Document = {
        "active": 0 if over else len(tally.active),
        "ready": 0 if over else tally.ready,
        "terminating": tally.terminating + (len(tally.active) if over else 0),
        "succeeded": tally.succeeded,
        "failed": tally.failed,
    }
    if is_indexed(job):
        desired["completedIndexes"] = format_indexes(tally.indexes)
    known: Document = {
        "active": status.active,
        "ready": status.ready or 0,
        "terminating": status.terminating or 0,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "completedIndexes": status.completed_indexes,
    }
    patch = {field: value for field, value in desired.items() if known[field] != value}
    conditions = _conditions(job, outcome, now)
    if conditions is not None:
        patch["conditions"] = conditions
    if job.spec.suspend:
        if status.start_time is not None:
            patch["startTime"] = None
    elif status.start_time is None:
        patch["startTime"] = now
    if outcome is not None and outcome.complete:
        patch["completionTime"] = now
    return patch


def _conditions(job: Job, outcome: Verdict | None, now: str) -> list[Document] | None:
    """All conditions, or None if they stay."""

    def made(kind: str, holds: bool, reason: str, message: str) -> Document:
        return {
            "type": kind,
            "status": "True" if holds else "False",
            "reason": reason,
            "message": message,
            "lastProbeTime": now,
            "lastTransitionTime": now,
        }

    suspended = next((c for c in job.status.conditions if c.type == "Suspended"), None)
    fresh: list[Document] = []
    if outcome is not None:
        for kind in ("SuccessCriteriaMet", "Complete") if outcome.complete else ("FailureTarget", "Failed"):
            fresh.append(made(kind, True, outcome.reason, outcome.message))
    if job.spec.suspend and (suspended is None or suspended.status != "True"):
        fresh.append(made("Suspended", True, "JobSuspended", "Job suspended"))
    elif not job.spec.suspend and suspended is not None and suspended.status == "True":
        fresh.append(made("Suspended", False, "JobResumed", "Job resumed"))
    if not fresh:
        return None
    replaced = {condition["type"] for condition in fresh}
    kept = [
        {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastProbeTime": condition.last_transition_time,
            "lastTransitionTime": condition.last_transition_time,
        }
        for condition in job.status.conditions
        if condition.type not in replaced
    ]
    return kept + fresh
