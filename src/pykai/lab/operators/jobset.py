"""JobSets: replicated Jobs `<jobset>-<replicated job>-<index>`, which the Job controller runs.

All Jobs start at once. With the startup policy InOrder those of a replicated job start when the ones before it are
ready. The JobSet completes with its Jobs (all, or any of the chosen ones) and fails with the first failed one, unless
it may restart: then all Jobs are deleted and created with the next number of attempt. A suspended JobSet has suspended
Jobs.

Not done: rules of the failure policy, a startup that depends on others, network names, a coordinator.

Statements: sim:operators-order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import field

from pykai.api import names
from pykai.api.meta import Int64, Wire
from pykai.api.unstructured import JsonMapping, JsonObject
from pykai.api.workloads import Job
from pykai.kube.resources import JOBS, Resource
from pykai.lab.controllers.controller import owner_reference
from pykai.lab.controllers.jobs import finished_condition
from pykai.lab.operators.steps import (
    Creation,
    Deletion,
    ObservedWorkload,
    OperatedKind,
    OperatedWorkload,
    Patching,
    Step,
    checked_count,
    condition,
    conditions_of,
    holding,
    seconds_left,
)

JOB_SETS: Final = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", True)
_PREFIX: Final = "jobset.sigs.k8s.io"
_ATTEMPT: Final = f"{_PREFIX}/restart-attempt"


class ReplicatedJobTemplate(Wire):
    """A Job to be made, as far as the operator changes it."""

    metadata: JsonObject = field(default_factory=dict)
    spec: JsonObject = field(default_factory=dict)


class ReplicatedJobSpec(Wire):
    name: str = ""
    replicas: Int64 | None = None
    template: ReplicatedJobTemplate = field(default_factory=ReplicatedJobTemplate)


class JobSetStartup(Wire):
    startup_policy_order: str = ""


class JobSetFailurePolicy(Wire):
    max_restarts: Int64 = 0


class JobSetSuccessPolicy(Wire):
    operator: str = ""
    target_replicated_jobs: list[str] = field(default_factory=list)


class JobSetWorkloadSpec(Wire):
    suspend: bool = False
    replicated_jobs: list[ReplicatedJobSpec] = field(default_factory=list)
    startup_policy: JobSetStartup = field(default_factory=JobSetStartup)
    failure_policy: JobSetFailurePolicy = field(default_factory=JobSetFailurePolicy)
    success_policy: JobSetSuccessPolicy = field(default_factory=JobSetSuccessPolicy)
    ttl_seconds_after_finished: Int64 | None = None


class JobSetWorkload(OperatedWorkload):
    """A JobSet as its operator reads it."""

    spec: JobSetWorkloadSpec = field(default_factory=JobSetWorkloadSpec)


def plan_job_set(job_set: JobSetWorkload, seen: ObservedWorkload) -> Step:
    """The next step of a JobSet."""
    conditions = conditions_of(job_set.status)
    jobs: Sequence[Job] = seen.owned.get(JOBS, ())
    over = holding(conditions, "Completed") or holding(conditions, "Failed")
    if over is not None:
        return _after_the_end(job_set, over, jobs, seen)
    attempt = _attempt(job_set.status)
    stale = [job for job in jobs if job.metadata.labels.get(_ATTEMPT) != str(attempt)]
    if stale:
        return Step(job_set.status, delete=[Deletion(JOBS, job) for job in stale])
    failed = [job for job in jobs if (end := finished_condition(job)) is not None and end.type == "Failed"]
    if failed and attempt < job_set.spec.failure_policy.max_restarts:
        return Step({**job_set.status, "restarts": attempt + 1}, wait_s=0.0)
    status = {**job_set.status, "restarts": attempt, **_replica_statuses(job_set, jobs)}
    if failed:
        text = f"jobset failed due to one or more job failures: {failed[0].metadata.name}"
        ended = condition(conditions, "Failed", "FailedJobs", text, seen.now)
        return Step({**status, "conditions": ended, "terminalState": "Failed"})
    if _has_succeeded(job_set, jobs):
        text = "jobset completed successfully"
        ended = condition(conditions, "Completed", "AllJobsCompleted", text, seen.now)
        return Step({**status, "conditions": ended, "terminalState": "Completed"})
    create, patch = _converge_jobs(job_set, jobs, attempt)
    suspended, text = (True, "jobset is suspended") if job_set.spec.suspend else (False, "jobset is resumed")
    reason = "SuspendedJobs" if suspended else "ResumeJobs"
    conditions = condition(conditions, "Suspended", reason, text, seen.now, holds=suspended)
    return Step({**status, "conditions": conditions}, create, patch=patch)


def _after_the_end(job_set: JobSetWorkload, over: JsonMapping, jobs: Sequence[Job], seen: ObservedWorkload) -> Step:
    """Jobs that still run are deleted, and the JobSet after its time to live."""
    delete = [Deletion(JOBS, job) for job in jobs if finished_condition(job) is None]
    status = {**job_set.status, **_replica_statuses(job_set, jobs)}
    ttl_s = job_set.spec.ttl_seconds_after_finished
    if ttl_s is None:
        return Step(status, delete=delete)
    left_s = seconds_left(over.get("lastTransitionTime"), ttl_s, seen.now_s)
    if left_s:
        return Step(status, delete=delete, wait_s=left_s)
    return Step(status, delete=[*delete, Deletion(JOB_SETS, job_set)])


def _attempt(status: JsonMapping) -> int:
    restarts = status.get("restarts")
    return restarts if isinstance(restarts, int) else 0


def _has_succeeded(job_set: JobSetWorkload, jobs: Sequence[Job]) -> bool:
    policy = job_set.spec.success_policy
    counted = [
        replicated
        for replicated in job_set.spec.replicated_jobs
        if not policy.target_replicated_jobs or replicated.name in policy.target_replicated_jobs
    ]
    wanted = sum(checked_count(each.replicas, f"replicas of {each.name}") for each in counted)
    chosen = {each.name for each in counted}
    complete = sum(
        job.metadata.labels.get(names.JOBSET_REPLICATED_JOB_LABEL) in chosen and finished_condition(job) is not None
        for job in jobs
    )
    return complete > 0 and (complete >= wanted or policy.operator == "Any")


def _converge_jobs(job_set: JobSetWorkload, jobs: Sequence[Job], attempt: int) -> tuple[list[Creation], list[Patching]]:
    existing = {job.metadata.name: job for job in jobs}
    in_order = job_set.spec.startup_policy.startup_policy_order == "InOrder"
    create: list[Creation] = []
    patch: list[Patching] = []
    first = 0
    for replicated in job_set.spec.replicated_jobs:
        ready = True
        count = checked_count(replicated.replicas, f"replicas of {replicated.name}")
        for index in range(count):
            job = existing.get(_job_name(job_set, replicated, index))
            if job is None:
                create.append(Creation(JOBS, job_document(job_set, replicated, index, first + index, attempt)))
            elif job.spec.suspend != job_set.spec.suspend:
                patch.append(Patching(JOBS, job, {"spec": {"suspend": job_set.spec.suspend}}))
            ready = ready and job is not None and _is_ready(job)
        first += count
        if in_order and not ready and not job_set.spec.suspend:
            break
    return create, patch


def _is_ready(job: Job) -> bool:
    """Whether all pods that run at a time are ready, or were."""
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    pods = parallelism if job.spec.completions is None else min(parallelism, job.spec.completions)
    return finished_condition(job) is not None or (job.status.ready or 0) + job.status.succeeded >= pods


def _job_name(job_set: JobSetWorkload, replicated: ReplicatedJobSpec, index: int) -> str:
    return f"{job_set.metadata.name}-{replicated.name}-{index}"


def job_document(
    job_set: JobSetWorkload, replicated: ReplicatedJobSpec, index: int, global_index: int, attempt: int
) -> JsonObject:
    """A Job with the labels that JobSet writes on it and on its pods."""
    name = _job_name(job_set, replicated, index)
    marks = {
        f"{_PREFIX}/jobset-name": job_set.metadata.name,
        f"{_PREFIX}/jobset-uid": job_set.metadata.uid,
        names.JOBSET_REPLICATED_JOB_LABEL: replicated.name,
        f"{_PREFIX}/replicatedjob-replicas": str(checked_count(replicated.replicas, "replicas")),
        names.JOBSET_JOB_INDEX_LABEL: str(index),
        f"{_PREFIX}/job-global-index": str(global_index),
        f"{_PREFIX}/job-key": hashlib.sha1(
            f"{job_set.metadata.namespace}/{name}".encode(), usedforsecurity=False
        ).hexdigest(),
        _ATTEMPT: str(attempt),
    }
    template = replicated.template
    spec = template.spec
    pod = spec.get("template") or {}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            **_marked(template.metadata, marks),
            "name": name,
            "namespace": job_set.metadata.namespace,
            "ownerReferences": [owner_reference(job_set, JOB_SETS)],
        },
        "spec": {
            "completionMode": "Indexed",
            **({} if "completions" in spec else {"completions": spec.get("parallelism", 1)}),
            **spec,
            "suspend": job_set.spec.suspend,
            "template": {**pod, "metadata": _marked(pod.get("metadata") or {}, marks)},
        },
    }


def _marked(metadata: JsonMapping, marks: Mapping[str, str]) -> JsonObject:
    return {
        "labels": {**(metadata.get("labels") or {}), **marks},
        "annotations": {**(metadata.get("annotations") or {}), **marks},
    }


def _replica_statuses(job_set: JobSetWorkload, jobs: Sequence[Job]) -> JsonObject:
    listed = []
    for replicated in job_set.spec.replicated_jobs:
        own = [job for job in jobs if job.metadata.labels.get(names.JOBSET_REPLICATED_JOB_LABEL) == replicated.name]
        ends = [end.type for job in own if (end := finished_condition(job)) is not None]
        unfinished = [job for job in own if finished_condition(job) is None]
        listed.append(
            {
                "name": replicated.name,
                "ready": sum(map(_is_ready, unfinished)),
                "succeeded": ends.count("Complete"),
                "failed": ends.count("Failed"),
                "active": sum(job.status.active > 0 for job in unfinished),
                "suspended": sum(job.spec.suspend for job in unfinished),
            }
        )
    return {"replicatedJobsStatus": listed}


def job_set_kind() -> OperatedKind[JobSetWorkload]:
    """JobSets as their operator runs them."""
    return OperatedKind(JOB_SETS, JobSetWorkload, plan_job_set, owns=((JOBS, Job),))
