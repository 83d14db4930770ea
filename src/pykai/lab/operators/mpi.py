"""MPIJobs: workers that wait, and a launcher, a Job, that starts the program on them.

The job ends as its launcher does. With `launcherCreationPolicy: WaitForWorkersReady` the launcher is created when all
workers run. Both versions, v1 and v2beta1, are served and run like v2beta1.

Statements: sim:operators-order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pykai.api import names
from pykai.api.unstructured import JsonObject
from pykai.api.workloads import Job
from pykai.kube.resources import JOBS, Resource
from pykai.lab.controllers.controller import owner_reference
from pykai.lab.controllers.jobs import finished_condition
from pykai.lab.operators.kubeflow import (
    GROUP,
    JobState,
    TrainingJob,
    TrainingRole,
    after_the_end,
    finished,
    pod_name,
    role_labels,
)
from pykai.lab.operators.steps import (
    Creation,
    Deletion,
    ObservedWorkload,
    OperatedKind,
    RefusedWorkload,
    Step,
    WantedPod,
    checked_count,
    converge_pods,
    delete_pods,
)

MPI_JOBS: Final = Resource(GROUP, "v2beta1", "mpijobs", "MPIJob", True)
_LAUNCHER: Final = "Launcher"
_WORKER: Final = "Worker"


def plan_mpi_job(job: TrainingJob, seen: ObservedWorkload) -> Step:
    """The next step of an MPIJob."""
    roles = job.spec.mpi_replica_specs
    over = finished(job)
    if over is not None:
        return after_the_end(MPI_JOBS, job, roles, over, seen)
    launcher = roles.get(_LAUNCHER)
    if launcher is None:
        raise RefusedWorkload(f"an MPIJob needs the role {_LAUNCHER}")
    state = JobState(MPI_JOBS.kind, job, seen)
    launchers: Iterable[Job] = seen.owned.get(JOBS, ())
    if job.spec.run_policy.suspend:
        leaving = [Deletion(JOBS, each) for each in launchers]
        return Step(state.suspended(roles), delete=[*leaving, *delete_pods(seen.pods)])
    end = next((end for each in launchers if (end := finished_condition(each)) is not None), None)
    if end is not None:
        if end.type == "Complete":
            return Step(state.ended("Succeeded", "successfully completed", roles))
        return Step(state.ended("Failed", f"has failed because its launcher did: {end.message}", roles))
    if state.deadline_s() == 0.0:
        return Step(state.ended("Failed", state.problem(()), roles))
    wanted = _workers(job, roles.get(_WORKER))
    create, delete = converge_pods(job, MPI_JOBS, wanted, seen.pods)
    workers_run = not create and all(pod.status.phase == "Running" for pod in seen.pods)
    waits = job.spec.launcher_creation_policy == "WaitForWorkersReady" and not workers_run
    if not list(launchers) and not waits:
        create.append(Creation(JOBS, launcher_document(job, launcher)))
    running = workers_run and any(each.status.active for each in launchers)
    return Step(state.going(roles, running=running), create, delete, wait_s=state.deadline_s())


def launcher_document(job: TrainingJob, launcher: TrainingRole) -> JsonObject:
    """The Job of the launcher."""
    metadata = launcher.template.get("metadata") or {}
    labels = {**role_labels(MPI_JOBS.kind, job, _LAUNCHER, 0), names.KUBEFLOW_ROLE_LABEL: "launcher"}
    body = launcher.template.get("spec") or {}
    restart = "Never" if launcher.restart_policy in ("", "Never", "ExitCode") else "OnFailure"
    limit = job.spec.run_policy.backoff_limit
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": f"{job.metadata.name}-launcher",
            "namespace": job.metadata.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(job, MPI_JOBS)],
        },
        "spec": {
            **({} if limit is None else {"backoffLimit": limit}),
            "template": {
                "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}},
                "spec": {**body, "restartPolicy": restart},
            },
        },
    }


def _workers(job: TrainingJob, workers: TrainingRole | None) -> list[WantedPod]:
    if workers is None:
        return []
    restart = {"restartPolicy": workers.restart_policy or "Never"}
    count = checked_count(workers.replicas, "replicas of Worker")
    return [
        WantedPod(
            pod_name(job, _WORKER, index),
            workers.template,
            {**role_labels(MPI_JOBS.kind, job, _WORKER, index), names.KUBEFLOW_ROLE_LABEL: "worker"},
            restart,
        )
        for index in range(count)
    ]


def mpi_kind() -> OperatedKind[TrainingJob]:
    """MPIJobs as their operator runs them."""
    return OperatedKind(MPI_JOBS, TrainingJob, plan_mpi_job, owns=((JOBS, Job),))
