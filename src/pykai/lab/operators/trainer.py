"""TrainJobs of Kubeflow Trainer: a JobSet made from a runtime.

The runtime, a TrainingRuntime of the namespace or a ClusterTrainingRuntime, holds the template of the JobSet; the
TrainJob says how many nodes its replicated job `node` has and what runs there. Without such a runtime that of the lab
is used: one replicated job `node` with `schedulerName: kai-scheduler`. The TrainJob ends as its JobSet does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import field

from pykai.api import names
from pykai.api.meta import Int64, ObjectMeta, Wire
from pykai.api.unstructured import JsonMapping, JsonObject
from pykai.kube.resources import Resource
from pykai.lab.controllers.controller import owner_reference
from pykai.lab.operators.jobset import JOB_SETS, JobSetWorkload
from pykai.lab.operators.steps import (
    Creation,
    ObservedWorkload,
    OperatedKind,
    OperatedWorkload,
    Patching,
    Step,
    checked_count,
    condition,
    conditions_of,
    holding,
)

GROUP: Final = "trainer.kubeflow.org"
TRAIN_JOBS: Final = Resource(GROUP, "v1alpha1", "trainjobs", "TrainJob", True)
TRAINING_RUNTIMES: Final = Resource(GROUP, "v1alpha1", "trainingruntimes", "TrainingRuntime", True)
CLUSTER_TRAINING_RUNTIMES: Final = Resource(
    GROUP, "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", False
)
_NODE: Final = "node"


class RuntimeSpec(Wire):
    template: JsonObject = field(default_factory=dict)


class TrainingRuntimeTemplate(Wire):
    """A TrainingRuntime or ClusterTrainingRuntime."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: RuntimeSpec = field(default_factory=RuntimeSpec)


class RuntimeReference(Wire):
    name: str = ""
    kind: str = "ClusterTrainingRuntime"


class Trainer(Wire):
    """What runs on each node."""

    image: str = ""
    command: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    num_nodes: Int64 | None = None
    resources_per_node: JsonObject | None = None


class TrainJobSpec(Wire):
    suspend: bool = False
    runtime_ref: RuntimeReference = field(default_factory=RuntimeReference)
    trainer: Trainer = field(default_factory=Trainer)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class TrainJobWorkload(OperatedWorkload):
    """A TrainJob as its operator reads it."""

    spec: TrainJobSpec = field(default_factory=TrainJobSpec)


def plan_train_job(job: TrainJobWorkload, seen: ObservedWorkload) -> Step:
    """The next step of a TrainJob."""
    sets: Sequence[JobSetWorkload] = seen.owned.get(JOB_SETS, ())
    conditions = conditions_of(job.status)
    if holding(conditions, "Complete") or holding(conditions, "Failed"):
        return Step(job.status)
    suspended, text = job.spec.suspend, "TrainJob is suspended" if job.spec.suspend else "TrainJob is resumed"
    reason = "Suspended" if suspended else "Resumed"
    conditions = condition(conditions, "Suspended", reason, text, seen.now, holds=suspended)
    job_set = next(iter(sets), None)
    if job_set is None:
        return Step({**job.status, "conditions": conditions}, [Creation(JOB_SETS, job_set_document(job, seen))])
    for end, own in (("Completed", "Complete"), ("Failed", "Failed")):
        if (found := holding(conditions_of(job_set.status), end)) is not None:
            conditions = condition(conditions, own, found["reason"], found["message"], seen.now)
    status = {**job.status, "conditions": conditions}
    if (jobs := job_set.status.get("replicatedJobsStatus")) is not None:
        status["jobsStatus"] = jobs
    change = {"spec": {"suspend": suspended}}
    return Step(status, patch=[Patching(JOB_SETS, job_set, change)] if job_set.spec.suspend != suspended else [])


def job_set_document(job: TrainJobWorkload, seen: ObservedWorkload) -> JsonObject:
    """The JobSet of a TrainJob."""
    template = _runtime_template(job, seen)
    spec = dict(template.get("spec") or {})
    replicated = [_for_job(each, job) for each in spec.get("replicatedJobs") or () if isinstance(each, dict)]
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": JOB_SETS.kind,
        "metadata": {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "labels": {**(metadata.get("labels") or {}), **job.spec.labels},
            "annotations": {**(metadata.get("annotations") or {}), **job.spec.annotations},
            "ownerReferences": [owner_reference(job, TRAIN_JOBS)],
        },
        "spec": {**spec, "replicatedJobs": replicated, "suspend": job.spec.suspend},
    }


def _runtime_template(job: TrainJobWorkload, seen: ObservedWorkload) -> JsonMapping:
    wanted = job.spec.runtime_ref
    if wanted.kind == TRAINING_RUNTIMES.kind:
        found = seen.find(TRAINING_RUNTIMES, TRAINING_RUNTIMES.key(job.metadata.namespace, wanted.name))
    else:
        found = seen.find(CLUSTER_TRAINING_RUNTIMES, wanted.name)
    if isinstance(found, TrainingRuntimeTemplate):
        return found.spec.template
    pod = {
        "schedulerName": names.SCHEDULER_NAME,
        "restartPolicy": "Never",
        "containers": [{"name": _NODE, "image": "pytorch"}],
    }
    return {"spec": {"replicatedJobs": [{"name": _NODE, "template": {"spec": {"template": {"spec": pod}}}}]}}


def _for_job(replicated: JsonMapping, job: TrainJobWorkload) -> JsonObject:
    """The replicated job `node` with what the TrainJob says; others are taken as they are."""
    if replicated.get("name") != _NODE:
        return dict(replicated)
    trainer = job.spec.trainer
    template = dict(replicated.get("template") or {})
    spec = dict(template.get("spec") or {})
    if trainer.num_nodes is not None:
        nodes = checked_count(trainer.num_nodes, "trainer.numNodes")
        spec |= {"parallelism": nodes, "completions": nodes}
    pod = dict(spec.get("template") or {})
    body = dict(pod.get("spec") or {})
    body["containers"] = [_for_trainer(container, trainer) for container in body.get("containers") or ()]
    spec["template"] = {**pod, "spec": body}
    return {**replicated, "template": {**template, "spec": spec}}


def _for_trainer(container: JsonMapping, trainer: Trainer) -> JsonObject:
    if container.get("name") != _NODE:
        return dict(container)
    own: JsonObject = {"image": trainer.image, "command": trainer.command, "args": trainer.args}
    changed = {key: value for key, value in own.items() if value}
    if trainer.resources_per_node is not None:
        changed["resources"] = trainer.resources_per_node
    return {**container, **changed}


def train_job_kind() -> OperatedKind[TrainJobWorkload]:
    """TrainJobs as their operator runs them."""
    runtimes = tuple((each, TrainingRuntimeTemplate) for each in (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES))
    return OperatedKind(
        TRAIN_JOBS, TrainJobWorkload, plan_train_job, owns=((JOB_SETS, JobSetWorkload),), reads=runtimes
    )
