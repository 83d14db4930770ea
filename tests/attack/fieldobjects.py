"""What rows of `fields` are made of: the names of others, spots, and the objects that a tenant writes there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pykai.api import names
from tests.attack.target import HONEST, TENANT, Document, document, pod, pod_group

#: what others own; the tenant tries these names
THEIRS = "theirs"
THEIR_JOB = "theirs-job"
#: a group of others that has one pod less than its minimum
UNFINISHED = "unfinished"
#: a queue of others that a project and a node pool lead to
POOLED_QUEUE = f"{HONEST}-fast"
#: a class above all others
CRITICAL = "critical"
#: a Topology whose levels the machines have
TOPOLOGY = "racks"
#: the machines: one with free GPUs, one whose GPUs others hold
FREE, FULL = "free", "full"
#: machine -> a name that others use; pods of both machines would be in one group
THEIR_SPARKS = {FREE: "theirs-spark", FULL: "theirs-spark-2"}
THEIR_KUEUES = {FREE: THEIRS, FULL: "theirs-2"}
UNFINISHED_GROUPS = {FREE: UNFINISHED, FULL: "unfinished-2"}
HUGE = str((1 << 31) - 1)
FOREVER_S = "1000000"
PAST, FUTURE = "2001-01-01T00:00:00Z", "2999-01-01T00:00:00Z"

ACCESS = names.REASON_QUEUE_ACCESS_DENIED
OVER_QUOTA = names.REASON_NON_PREEMPTIBLE_OVER_QUOTA
NO_GROUP = "does not exist"
NOT_READY = "Waiting for"
NO_TOPOLOGY = "nowhere"
#: the scheduler knows no group of the pod
ALONE = "no PodGroup"
#: the group belongs to another shard
OTHER_POOL = "another node pool"
INVALID_TREE = "subgroups of the PodGroup are invalid"


class Change(NamedTuple):
    """A merge patch of the tenant."""

    kind: str
    #: `{uid}` stands for the uid of the pod of the spot
    name: str
    patch: Document
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a row is carried out: the beginning of all names, and the machine."""

    name: str
    machine: str

    def pod(self, suffix: str = "", *, owner: Document | None = None, queue: str = TENANT, **fields: Any) -> Document:
        """A pod of one GPU."""
        made = pod(self.name + suffix, gpus=1, queue=queue, nodeSelector={"machine": self.machine}, **fields)
        if not queue:
            del made["metadata"]["labels"][names.QUEUE_LABEL]
        if owner is not None:
            reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
            made["metadata"]["ownerReferences"] = [reference]
        return made

    def group(self, **spec: Any) -> Document:
        """A PodGroup of this name; None leaves a field out."""
        made = pod_group(self.name, **spec)
        made["spec"] = {key: value for key, value in made["spec"].items() if value is not None}
        return made

    @property
    def protected_name(self) -> str:
        """The name of another PodGroup, which is non-preemptible."""
        return f"{self.name}-protected"

    def protected_group(self) -> Document:
        """That PodGroup."""
        return pod_group(self.protected_name, preemptibility=names.NON_PREEMPTIBLE)

    def job(
        self,
        *,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        template_labels: dict[str, str] | None = None,
        template_annotations: dict[str, str] | None = None,
        queue: str = TENANT,
        **spec: Any,
    ) -> Document:
        """A Job of one pod; a label `queue` is on the template."""
        made = self.pod(queue=queue, labels=template_labels, annotations=template_annotations)
        template = {key: made["metadata"][key] for key in ("labels", "annotations")}
        template["annotations"][names.RUN_SECONDS_ANNOTATION] = FOREVER_S
        return document(
            "Job",
            self.name,
            labels=labels or {},
            annotations=annotations or {},
            spec={
                "template": {"metadata": template, "spec": {**made["spec"], "restartPolicy": "Never"}},
                **spec,
            },
        )

    def workload(
        self,
        api_version: str,
        kind: str,
        *,
        name: str = "",
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        spec: Document | None = None,
    ) -> Document:
        """A workload of another project, whose pods the tenant makes itself."""
        meta = {
            "name": name or self.name,
            "namespace": TENANT,
            "labels": labels or {},
            "annotations": annotations or {},
        }
        return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec or {}}


#: objects that the tenant creates, and changes in between
Objects = Callable[[Spot], Iterable[Document | Change]]
Changes = Callable[[Spot], Iterable[Change]]


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that the tenant writes."""

    #: a label, an annotation or a field
    key: str
    where: str
    tried: str
    objects: Objects
    #: the reason that the workload gets for waiting; "" if it runs, charged to a queue of the tenant
    waits: str = ""
    #: the same before the tenant's later change
    waits_first: str = ""
    #: what the tenant changes once its pods run or have a reason to wait
    later: Changes | None = None
    #: the API server refuses it: "rights" where roles or policies do, "webhooks" where these do, "running" where they
    #: do for pods that have a node, "always" whatever the tenant may do
    refused: str = ""
    #: whether it protects what runs over quota where nothing refuses it
    protects: bool = False
    #: the value of an annotation that the PodGroup must not get from its owner
    kept_off: str = ""
    #: whether pods of the row may get a node where GPUs are free: either the binder carries out a forged BindRequest or
    #: the scheduler deletes it first.  Only the scheduler knows what it has decided; the binder could tell by a
    #: signature, which takes a key in both (ADR 18), or by waiting for the scheduler with every bind.  Where others
    #: hold the GPUs it refuses, and charges count as for all rows.
    may_run: bool = False

    @property
    def ends(self) -> str:
        """What happens, for people."""
        if self.refused == "always":
            return "refused"
        happens = f"waits: `{self.waits}`" if self.waits else "runs in its own queue"
        if self.may_run:
            happens = "the scheduler deletes it"
        if self.protects:
            happens = "it keeps its GPU"
        without = {"": "", "rights": "roles and policies", "webhooks": "webhooks", "running": "webhooks"}[self.refused]
        return f"refused; without {without} {happens}" if without else happens


def one_pod(**fields: Any) -> Objects:
    return lambda spot: [spot.pod(**fields)]


def job(**fields: Any) -> Objects:
    return lambda spot: [spot.job(**fields)]


def own_group(pod_fields: Document | None = None, **spec: Any) -> Objects:
    """A PodGroup of the tenant and a pod in it."""
    return lambda spot: [spot.group(**spec), spot.pod(group=spot.name, **(pod_fields or {}))]


def owned(
    api_version: str,
    kind: str,
    *,
    spec: Document | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    pods: Iterable[Document] = ({},),
    others: Callable[[Spot], Iterable[Document]] = lambda _: (),
) -> Objects:
    """A workload of another project and its pods."""

    def objects(spot: Spot) -> Iterable[Document | Change]:
        owner = spot.workload(api_version, kind, spec=spec, labels=labels, annotations=annotations)
        yield owner
        yield from others(spot)
        for number, fields in enumerate(pods):
            yield spot.pod(f"-{number}", owner=owner, **fields)

    return objects


def pytorch(labels: dict[str, str], template: dict[str, str] | None = None, workers: int = 1) -> Objects:
    roles = {"Worker": {"replicas": workers, "template": {"metadata": {"annotations": template or {}}}}}
    pods = [{"labels": {names.KUBEFLOW_REPLICA_INDEX_LABEL: str(each), **labels}} for each in range(workers)]
    return owned("kubeflow.org/v1", "PyTorchJob", spec={"pytorchReplicaSpecs": roles}, pods=pods)


WORKER = {names.KUBEFLOW_REPLICA_TYPE_LABEL: "worker"}


def mpi(labels: Callable[[Spot], dict[str, str]]) -> Objects:
    """An MPIJob whose launcher comes later, and a worker."""
    role = {"replicas": 1, "template": {}}
    spec = {
        "launcherCreationPolicy": "WaitForWorkersReady",
        "mpiReplicaSpecs": {"Launcher": role, "Worker": role},
    }

    def objects(spot: Spot) -> Iterable[Document | Change]:
        owner = spot.workload("kubeflow.org/v2beta1", "MPIJob", spec=spec)
        return [owner, spot.pod(owner=owner, labels=labels(spot))]

    return objects


def ray(pod_labels: dict[str, str], **fields: Any) -> Objects:
    spec = {"headGroupSpec": {"template": {}}, "workerGroupSpecs": []}
    return owned("ray.io/v1", "RayCluster", spec=spec, pods=[{"labels": pod_labels}], **fields)


HEAD = {names.RAY_GROUP_LABEL: "headgroup"}


def lws(
    labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, policy: str = "LeaderCreated"
) -> Objects:
    spec = {"startupPolicy": policy, "leaderWorkerTemplate": {"size": 1}}
    pods = [{"labels": labels, "annotations": annotations}]
    return owned("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec=spec, pods=pods)


def job_set(labels: dict[str, str], annotations: dict[str, str] | None = None) -> Objects:
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": {"parallelism": 1}}}]}
    return owned("jobset.x-k8s.io/v1alpha2", "JobSet", spec=spec, annotations=annotations, pods=[{"labels": labels}])


JOB_SET_POD = {names.JOBSET_REPLICATED_JOB_LABEL: "workers", names.JOBSET_JOB_INDEX_LABEL: "0"}
TRAIN = {names.PRIORITY_CLASS_LABEL: names.PRIORITY_CLASS_TRAIN}


def grove(
    gang: str = "", clique: str = "", annotations: dict[str, str] | None = None, namespace: str = TENANT, **spec: Any
) -> Objects:
    """A PodCliqueSet, its PodGang with one group of pods, and a pod."""

    def objects(spot: Spot) -> Iterable[Document | Change]:
        owner = spot.workload("grove.io/v1alpha1", "PodCliqueSet")
        references = [{"namespace": namespace, "name": THEIRS}] if namespace != TENANT else []
        group = {"name": "workers", "minReplicas": 1, "podReferences": references}
        body = {"podgroups": [group], **spec}
        yield owner
        yield spot.workload("scheduler.grove.io/v1alpha1", "PodGang", annotations=annotations, spec=body)
        labels = {names.GROVE_POD_GANG_LABEL: gang or spot.name, names.GROVE_POD_CLIQUE_LABEL: clique or "workers"}
        yield spot.pod(owner=owner, labels=labels)

    return objects


def knative(revision: str = "", **annotations: str) -> Objects:
    """A Service of Knative, its Revision, and a pod."""

    def objects(spot: Spot) -> Iterable[Document | Change]:
        owner = spot.workload("serving.knative.dev/v1", "Service")
        yield owner
        yield spot.workload("serving.knative.dev/v1", "Revision", annotations=annotations)
        yield spot.pod(owner=owner, labels={**TRAIN, names.KNATIVE_REVISION_LABEL: revision or spot.name})

    return objects


def patched(kind: str, patch: Document, suffix: str = "") -> Changes:
    """A patch of an object of the spot, once its pods run."""
    return lambda spot: [Change(kind, spot.name + suffix, patch)]


def with_stamp(key: str, value: str) -> Changes:
    return lambda spot: [Change("PodGroup", spot.name, {"metadata": {"annotations": {key: value}}})]


def forged_owner(spot: Spot) -> Iterable[Document | Change]:
    """A pod that names the Job of others, with its uid, which the run fills in."""
    job = spot.workload("batch/v1", "Job", name=THEIR_JOB)
    return [spot.pod(owner=job)]


def bind_request(spot: Spot, pod_name: str) -> Document:
    request = {
        "podName": pod_name,
        "selectedNode": spot.machine,
        "receivedResourceType": "Regular",
        "receivedGPU": {"count": 1, "portion": "1.00"},
    }
    return document("BindRequest", pod_name, spec=request)


def forged_request(spot: Spot) -> list[Document | Change]:
    request = bind_request(spot, spot.name)
    request["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": spot.name}]
    return [spot.group(queue=HONEST), spot.pod(group=spot.name), request]


def request_of_others(spot: Spot) -> Iterable[Document | Change]:
    """A BindRequest for a pod of others, under a name of its own, and a pod that runs."""
    request = bind_request(spot, f"{UNFINISHED}-0")
    request["metadata"]["name"] = spot.name
    return [spot.pod(), request]


def karta(spot: Spot, key: str) -> Document:
    values = {names.KARTA_GROUP_LABEL: "batch", names.KARTA_VERSION_LABEL: "v1", names.KARTA_KIND_LABEL: "Job"}
    return document("Karta", f"{spot.name}-{key.rpartition('-')[2]}", labels={key: values[key]}, spec={})


def forged_status(**status: Any) -> Changes:
    return lambda spot: [Change("PodGroup", spot.name, {"status": status}, "status")]


SKIP = {names.SKIP_POD_GROUPER_ANNOTATION: "true"}
GPUS = {names.NVIDIA_GPU: "100"}
