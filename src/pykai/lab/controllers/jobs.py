"""Jobs: pods until enough of them have succeeded.

Reconciling a Job counts its pods (`jobstatus`), creates missing ones, deletes surplus ones, and writes the status when
it changed. A finished Job loses its active pods and is deleted after its time to live.

Not done: `backoffLimitPerIndex`, `successPolicy`, `managedBy`, tracking finalizers (see `jobstatus`).
"""

from __future__ import annotations

from typing import Any

from pykai.api import names
from pykai.api.core import Condition
from pykai.api.keys import object_key
from pykai.api.unstructured import JsonObject
from pykai.api.workloads import Job, MachinePod
from pykai.kube.errors import ApiError
from pykai.kube.resources import JOBS
from pykai.kube.runtime import Runtime, Service
from pykai.kube.store import Change
from pykai.lab.controllers.controller import (
    AssumingWriter,
    Controller,
    owner_reference,
    random_suffix_name,
)
from pykai.lab.controllers.jobstatus import (
    JobCounts,
    JobMemory,
    JobResult,
    count_pods,
    desired_active,
    format_indexes,
    is_indexed,
    job_result,
    missing_indexes,
    pods_to_delete,
)
from pykai.lab.controllers.pods import CONTROLLER, is_terminating, pod_from_template, pod_store, pod_writer
from pykai.lab.timestamps import to_seconds

#: Pods created per reconcile; the rest follows at once.
_MAX_CREATES_PER_SYNC = 500


class Jobs:
    """The Job controller."""

    def __init__(self, runtime: Runtime) -> None:
        self._jobs = runtime.caches.store(JOBS, Job)
        self._pods = pod_store(runtime)
        self._write_job = AssumingWriter(runtime.client, self._jobs, Job, runtime.clock)
        self._write_pod = pod_writer(runtime)
        #: by uid
        self._job_memories: dict[str, JobMemory] = {}
        self.controller = Controller(
            "job-controller",
            runtime,
            self._reconcile,
            self._jobs,
            forget=lambda uid: self._job_memories.pop(uid, None),
            watches=[(self._pods, self._on_pod)],
        )

    def _on_pod(self, change: Change[MachinePod]) -> None:
        key = self.controller.owner_key(change)
        if key is None:
            return
        job = self._jobs.get(key)
        if change.new is None and change.old is not None and job is not None and job.metadata.uid in self._job_memories:
            self._job_memories[job.metadata.uid].record_vanished_pod(job, change.old)
        self.controller.enqueue_soon(key)

    async def _reconcile(self, key: str) -> float | None:
        job = self._jobs.get(key)
        if job is None or is_terminating_job(job):
            return None
        now_s = self.controller.now_s()
        pods = self._pods.by_index(CONTROLLER, job.metadata.uid)
        over = finished_condition(job)
        if over is not None:
            return await self._clean_up_finished(job, over, pods, now_s)
        memory = self._job_memories.get(job.metadata.uid)
        if memory is None:
            memory = self._job_memories[job.metadata.uid] = JobMemory.of(job, pods)
        tally = count_pods(job, pods, memory)
        outcome = job_result(job, tally, now_s)
        wait_s: float | None = None
        if outcome is not None:
            for pod in tally.active:
                memory.deleted_by_us.add(pod.metadata.uid)
                await self._write_pod.delete(pod)
        else:
            wait_s = await self._adjust_pods(job, tally, memory, now_s)
        await self._update_status(job, memory, outcome)
        deadline_s, start_s = job.spec.active_deadline_seconds, to_seconds(job.status.start_time)
        if outcome is None and deadline_s is not None and not job.spec.suspend:
            left_s = deadline_s if start_s is None else start_s + deadline_s - now_s
            wait_s = left_s if wait_s is None else min(wait_s, left_s)
        return wait_s

    async def _adjust_pods(self, job: Job, tally: JobCounts, memory: JobMemory, now_s: float) -> float | None:
        """Create or delete pods; returns the seconds until the next check."""
        desired = desired_active(job, tally)
        have = len(tally.active)
        if have > desired:
            for pod in pods_to_delete(job, tally, have - desired):
                memory.deleted_by_us.add(pod.metadata.uid)
                await self._write_pod.delete(pod)
            return None
        waits_for_terminated = job.spec.pod_replacement_policy == "Failed"
        count = desired - have - (tally.terminating if waits_for_terminated else 0)
        if count <= 0:
            return None
        if tally.back_off_until_s > now_s:
            return tally.back_off_until_s - now_s
        indexes: list[int | None] = [None] * count
        if is_indexed(job):
            going = (pod for pod in self._pods.by_index(CONTROLLER, job.metadata.uid) if is_terminating(pod))
            indexes = list(missing_indexes(job, tally, going if waits_for_terminated else (), count))
        for index in indexes[:_MAX_CREATES_PER_SYNC]:
            if not await self._create_pod(job, memory, index):
                return 10.0
        return 0.0 if len(indexes) > _MAX_CREATES_PER_SYNC else None

    async def _create_pod(self, job: Job, memory: JobMemory, index: int | None) -> bool:
        base = job.metadata.name if index is None else f"{job.metadata.name}-{index}"
        while True:
            name = random_suffix_name(base, job.metadata.uid, memory.created)
            try:
                created = await self._write_pod.create(pod_document(job, name, index))
            except ApiError as error:
                self.controller.report_failed_create(job, error, f"Error creating: {error}")
                return False
            memory.created += 1
            # A pod that exists but is not in the cache is ours: the answer to its creation was lost.
            if created is not None or self._pods.get(object_key(job.metadata.namespace, name)) is None:
                return True

    async def _update_status(self, job: Job, memory: JobMemory, outcome: JobResult | None) -> None:
        current = self._write_job.latest(job)
        if current is None:
            return
        job = current
        tally = count_pods(job, self._pods.by_index(CONTROLLER, job.metadata.uid), memory)
        status = status_patch(job, tally, outcome, self.controller.now())
        if status:
            await self._write_job.patch_status(job, status)
            if outcome is not None:
                kind = "Normal" if outcome.complete else "Warning"
                reason = "Completed" if outcome.complete else outcome.reason
                self.controller.event(job, kind, reason, "Job completed" if outcome.complete else outcome.message)

    async def _clean_up_finished(self, job: Job, over: Condition, pods: Any, now_s: float) -> float | None:
        """Clean up after a finished Job."""
        for pod in pods:
            if not is_terminating(pod) and pod.status.phase not in ("Succeeded", "Failed"):
                await self._write_pod.delete(pod)
        terminating = sum(1 for pod in pods if is_terminating(pod) and pod.status.phase not in ("Succeeded", "Failed"))
        if (job.status.terminating or 0) != terminating:
            await self._write_job.patch_status(job, {"terminating": terminating})
        ttl_s = job.spec.ttl_seconds_after_finished
        if ttl_s is None:
            return None
        ended_s = to_seconds(over.last_transition_time) or now_s
        if now_s < ended_s + ttl_s:
            return ended_s + ttl_s - now_s
        await self._write_job.delete(job)
        return None


def jobs(runtime: Runtime) -> Service:
    """The Job controller as a service."""
    return Jobs(runtime).controller


def is_terminating_job(job: Job) -> bool:
    """Whether the Job itself is being deleted."""
    return job.metadata.deletion_timestamp is not None


def finished_condition(job: Job) -> Condition | None:
    """The condition that finishes the Job."""
    for condition in job.status.conditions:
        if condition.type in ("Complete", "Failed") and condition.status == "True":
            return condition
    return None


def pod_document(job: Job, name: str, index: int | None) -> JsonObject:
    """A pod of a Job."""
    labels = {
        names.JOB_NAME_LABEL: job.metadata.name,
        names.JOB_CONTROLLER_UID_LABEL: job.metadata.uid,
        names.LEGACY_JOB_NAME_LABEL: job.metadata.name,
        names.LEGACY_JOB_CONTROLLER_UID_LABEL: job.metadata.uid,
    }
    annotations: dict[str, str] = {}
    spec: JsonObject = {}
    if index is not None:
        labels[names.COMPLETION_INDEX_LABEL] = str(index)
        annotations[names.COMPLETION_INDEX_ANNOTATION] = str(index)
        body = job.spec.template.get("spec") or {}
        if not body.get("hostname"):
            spec["hostname"] = f"{job.metadata.name}-{index}"
        for field in ("containers", "initContainers"):
            if body.get(field):
                spec[field] = [_with_index(container) for container in body[field]]
    return pod_from_template(
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


def _with_index(container: JsonObject) -> JsonObject:
    environment = container.get("env") or []
    if any(variable.get("name") == _INDEX_VARIABLE["name"] for variable in environment):
        return container
    return {**container, "env": [*environment, _INDEX_VARIABLE]}


def status_patch(job: Job, tally: JobCounts, outcome: JobResult | None, now: str) -> JsonObject:
    """A merge patch for the status; empty if nothing changes."""
    status = job.status
    over = outcome is not None
    desired: JsonObject = {
        "active": 0 if over else len(tally.active),
        "ready": 0 if over else tally.ready,
        "terminating": tally.terminating + (len(tally.active) if over else 0),
        "succeeded": tally.succeeded,
        "failed": tally.failed,
    }
    if is_indexed(job):
        desired["completedIndexes"] = format_indexes(tally.indexes)
    existing: JsonObject = {
        "active": status.active,
        "ready": status.ready or 0,
        "terminating": status.terminating or 0,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "completedIndexes": status.completed_indexes,
    }
    patch = {field: value for field, value in desired.items() if existing[field] != value}
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


def _conditions(job: Job, outcome: JobResult | None, now: str) -> list[JsonObject] | None:
    """All conditions, or None if they do not change."""

    def made(kind: str, holds: bool, reason: str, message: str) -> JsonObject:
        return {
            "type": kind,
            "status": "True" if holds else "False",
            "reason": reason,
            "message": message,
            "lastProbeTime": now,
            "lastTransitionTime": now,
        }

    suspended = next((c for c in job.status.conditions if c.type == "Suspended"), None)
    new_conditions: list[JsonObject] = []
    if outcome is not None:
        for kind in ("SuccessCriteriaMet", "Complete") if outcome.complete else ("FailureTarget", "Failed"):
            new_conditions.append(made(kind, True, outcome.reason, outcome.message))
    if job.spec.suspend and (suspended is None or suspended.status != "True"):
        new_conditions.append(made("Suspended", True, "JobSuspended", "Job suspended"))
    elif not job.spec.suspend and suspended is not None and suspended.status == "True":
        new_conditions.append(made("Suspended", False, "JobResumed", "Job resumed"))
    if not new_conditions:
        return None
    replaced = {condition["type"] for condition in new_conditions}
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
    return kept + new_conditions
