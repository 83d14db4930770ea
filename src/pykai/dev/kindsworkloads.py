"""Workloads of ten kinds with everything that operators create for them, as plain documents.

`expanded` plays the operators of the lab, and the Job controller, on documents alone: it plans steps until none creates
anything. No pod runs meanwhile, so what waits for running pods is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pykai.api import names
from pykai.api.decode import decode_as
from pykai.api.unstructured import JsonObject
from pykai.api.workloads import Job, MachinePod
from pykai.lab.controllers.jobs import pod_document
from pykai.lab.operators.families import ALL, read_families
from pykai.lab.operators.steps import ObservedWorkload, OperatedKind

NAMESPACE: Final = "default"
#: number of pods -> spec of a workload
SpecMaker = Callable[[int], JsonObject]
_NOW: Final = "2026-01-01T00:00:00Z"

OPERATED_KINDS: Final[Mapping[str, OperatedKind[Any]]] = {
    kind.resource.kind: kind for family in read_families(ALL) for kind in family.operated
}


def workloads(count: int, pods: int) -> Iterator[list[JsonObject]]:
    """So many workloads, of ten kinds in turn, each with all its objects; each has this number of pods."""
    makers = tuple(_SPECS.items())
    for number in range(count):
        (api_version, kind), make = makers[number % len(makers)]
        metadata = {
            "name": f"{kind.lower()}-{number}",
            "namespace": NAMESPACE,
            "uid": f"{kind.lower()}-{number}",
            "generation": 1,
            "labels": {names.QUEUE_LABEL: names.DEFAULT_QUEUE},
        }
        yield expanded({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": make(pods)})


def _template(gpus: int = 1) -> JsonObject:
    limits = {names.NVIDIA_GPU: str(gpus)}
    container = {"name": "main", "image": "none", "resources": {"limits": limits, "requests": {"cpu": "1", **limits}}}
    return {"spec": {"schedulerName": names.SCHEDULER_NAME, "restartPolicy": "Never", "containers": [container]}}


def _roles(field: str, first: str) -> SpecMaker:
    def spec(pods: int) -> JsonObject:
        others = {"Worker": {"replicas": pods - 1, "template": _template()}}
        return {field: {first: {"replicas": 1, "template": _template()}, **others}}

    return spec


def _ray(pods: int) -> JsonObject:
    workers = {"groupName": "gpu", "replicas": pods - 1, "template": _template()}
    return {"headGroupSpec": {"template": _template(0)}, "workerGroupSpecs": [workers]}


def _replicated(pods: int) -> JsonObject:
    job = {"spec": {"parallelism": pods // 2, "completions": pods // 2, "template": _template()}}
    return {"replicatedJobs": [{"name": "node", "replicas": 2, "template": job}]}


_SPECS: Final[Mapping[tuple[str, str], SpecMaker]] = {
    ("kubeflow.org/v1", "PyTorchJob"): _roles("pytorchReplicaSpecs", "Master"),
    ("kubeflow.org/v1", "TFJob"): _roles("tfReplicaSpecs", "Chief"),
    ("kubeflow.org/v1", "XGBoostJob"): _roles("xgbReplicaSpecs", "Master"),
    ("kubeflow.org/v1", "JAXJob"): lambda pods: {
        "jaxReplicaSpecs": {"Worker": {"replicas": pods, "template": _template()}}
    },
    ("kubeflow.org/v2beta1", "MPIJob"): _roles("mpiReplicaSpecs", "Launcher"),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): lambda pods: {"trainer": {"numNodes": pods}},
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): _replicated,
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): lambda pods: {
        "replicas": 2,
        "leaderWorkerTemplate": {"size": pods // 2, "workerTemplate": _template()},
    },
    ("ray.io/v1", "RayCluster"): _ray,
    ("ray.io/v1", "RayJob"): lambda pods: {"rayClusterSpec": _ray(pods)},
}


def expanded(workload: JsonObject) -> list[JsonObject]:
    """A workload with everything that its operators create before the first pod runs."""
    made = [workload]
    while True:
        created = [each for document in made if document["kind"] != "Pod" for each in _next_objects(document, made)]
        if not created:
            return made
        made += created


def _next_objects(document: JsonObject, existing: Sequence[JsonObject]) -> list[JsonObject]:
    """What an operator, or the Job controller, creates for an object beside what exists."""
    own = [each for each in existing if _is_owned(each, document["metadata"]["uid"])]
    if document["kind"] == "Job":
        job = decode_as(Job, document)
        indexes: Sequence[int | None] = range(job.spec.completions or 1) if job.spec.completion_mode else [None]
        found = () if own else indexes
        return [_with_uid(pod_document(job, f"{job.metadata.name}-{index or 0}", index)) for index in found]
    kind = OPERATED_KINDS[document["kind"]]
    below = [each for pod in own for each in existing if _is_owned(each, pod["metadata"]["uid"])]
    owned = {
        resource: [decode_as(into, each) for each in own if each["kind"] == resource.kind]
        for resource, into in kind.owns
    }
    pods = [decode_as(MachinePod, each) for each in (*own, *below) if each["kind"] == "Pod"]
    step = kind.plan(decode_as(kind.into, document), ObservedWorkload(_NOW, 0.0, pods, owned=owned))
    if step.status != document.get("status"):
        document["status"] = dict(step.status)
        if not step.create:
            return _next_objects(document, existing)
    return [_with_uid(each.document) for each in step.create]


def _is_owned(document: JsonObject, uid: str) -> bool:
    return any(each["uid"] == uid for each in document["metadata"].get("ownerReferences", ()))


def _with_uid(document: JsonObject) -> JsonObject:
    metadata = document["metadata"]
    kind = document["kind"].lower()
    return {**document, "metadata": {**metadata, "uid": f"{kind}-{metadata['name']}", "generation": 1}}
