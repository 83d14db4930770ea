"""Every label, annotation and field by which a workload speaks to the services, each as one attack (point 10).

A row says what the tenant writes where, and what becomes of it.  `fieldrun` carries out all rows in one cluster, each
twice: on a machine with free GPUs, where a queue of others could be charged, and on one whose GPUs others hold, where
pods of others could be evicted.  `docs/security.md` lists the rows.

`tests/attack/test_fields.py` fails when the pod grouper reads a key that has no row.
"""

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
    #: the API server refuses it: "rights" where roles or policies do, "always" whatever the tenant may do
    refused: str = ""
    #: the value of an annotation that the PodGroup must not get from its owner
    kept_off: str = ""
    #: whether pods of the row may get a node or not, as the services race; charges count as for all rows
    may_run: bool = False

    @property
    def ends(self) -> str:
        """What happens, for people."""
        if self.refused == "always":
            return "refused"
        happens = f"waits: `{self.waits}`" if self.waits else "runs in its own queue"
        if self.may_run:
            happens = "the scheduler deletes it"
        return f"refused; without roles and policies {happens}" if self.refused else happens


def _one_pod(**fields: Any) -> Objects:
    return lambda spot: [spot.pod(**fields)]


def _job(**fields: Any) -> Objects:
    return lambda spot: [spot.job(**fields)]


def _own_group(pod_fields: Document | None = None, **spec: Any) -> Objects:
    """A PodGroup of the tenant and a pod in it."""
    return lambda spot: [spot.group(**spec), spot.pod(group=spot.name, **(pod_fields or {}))]


def _owned(
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


def _pytorch(labels: dict[str, str], template: dict[str, str] | None = None, workers: int = 1) -> Objects:
    roles = {"Worker": {"replicas": workers, "template": {"metadata": {"annotations": template or {}}}}}
    pods = [{"labels": {names.KUBEFLOW_REPLICA_INDEX_LABEL: str(each), **labels}} for each in range(workers)]
    return _owned("kubeflow.org/v1", "PyTorchJob", spec={"pytorchReplicaSpecs": roles}, pods=pods)


_WORKER = {names.KUBEFLOW_REPLICA_TYPE_LABEL: "worker"}


def _mpi(labels: Callable[[Spot], dict[str, str]]) -> Objects:
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


def _ray(pod_labels: dict[str, str], **fields: Any) -> Objects:
    spec = {"headGroupSpec": {"template": {}}, "workerGroupSpecs": []}
    return _owned("ray.io/v1", "RayCluster", spec=spec, pods=[{"labels": pod_labels}], **fields)


_HEAD = {names.RAY_GROUP_LABEL: "headgroup"}


def _lws(
    labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, policy: str = "LeaderCreated"
) -> Objects:
    spec = {"startupPolicy": policy, "leaderWorkerTemplate": {"size": 1}}
    pods = [{"labels": labels, "annotations": annotations}]
    return _owned("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec=spec, pods=pods)


def _job_set(labels: dict[str, str], annotations: dict[str, str] | None = None) -> Objects:
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": {"parallelism": 1}}}]}
    return _owned("jobset.x-k8s.io/v1alpha2", "JobSet", spec=spec, annotations=annotations, pods=[{"labels": labels}])


_JOB_SET_POD = {names.JOBSET_REPLICATED_JOB_LABEL: "workers", names.JOBSET_JOB_INDEX_LABEL: "0"}
_TRAIN = {names.PRIORITY_CLASS_LABEL: names.PRIORITY_CLASS_TRAIN}


def _grove(
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


def _knative(revision: str = "", **annotations: str) -> Objects:
    """A Service of Knative, its Revision, and a pod."""

    def objects(spot: Spot) -> Iterable[Document | Change]:
        owner = spot.workload("serving.knative.dev/v1", "Service")
        yield owner
        yield spot.workload("serving.knative.dev/v1", "Revision", annotations=annotations)
        yield spot.pod(owner=owner, labels={**_TRAIN, names.KNATIVE_REVISION_LABEL: revision or spot.name})

    return objects


def _with_stamp(key: str, value: str) -> Changes:
    return lambda spot: [Change("PodGroup", spot.name, {"metadata": {"annotations": {key: value}}})]


def _forged_owner(spot: Spot) -> Iterable[Document | Change]:
    """A pod that names the Job of others, with its uid, which the run fills in."""
    job = spot.workload("batch/v1", "Job", name=THEIR_JOB)
    return [spot.pod(owner=job)]


def _bind_request(spot: Spot, pod_name: str) -> Document:
    request = {
        "podName": pod_name,
        "selectedNode": spot.machine,
        "receivedResourceType": "Regular",
        "receivedGPU": {"count": 1, "portion": "1.00"},
    }
    return document("BindRequest", pod_name, spec=request)


def _forged_request(spot: Spot) -> list[Document | Change]:
    request = _bind_request(spot, spot.name)
    request["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": spot.name}]
    return [spot.group(queue=HONEST), spot.pod(group=spot.name), request]


def _request_of_others(spot: Spot) -> Iterable[Document | Change]:
    """A BindRequest for a pod of others, under a name of its own, and a pod that runs."""
    request = _bind_request(spot, f"{UNFINISHED}-0")
    request["metadata"]["name"] = spot.name
    return [spot.pod(), request]


def _karta(spot: Spot, key: str) -> Document:
    values = {names.KARTA_GROUP_LABEL: "batch", names.KARTA_VERSION_LABEL: "v1", names.KARTA_KIND_LABEL: "Job"}
    return document("Karta", f"{spot.name}-{key.rpartition('-')[2]}", labels={key: values[key]}, spec={})


def _forged_status(**status: Any) -> Changes:
    return lambda spot: [Change("PodGroup", spot.name, {"status": status}, "status")]


_SKIP = {names.SKIP_POD_GROUPER_ANNOTATION: "true"}
_GPUS = {names.NVIDIA_GPU: "100"}

# A closed queue.
_QUEUE_ROWS = (
    Row(names.QUEUE_LABEL, "pod", "the queue of others", _one_pod(queue=HONEST), ACCESS),
    Row(names.QUEUE_LABEL, "Job", "the same", _job(queue="", labels={names.QUEUE_LABEL: HONEST}), ACCESS),
    Row(names.QUEUE_LABEL, "template of a Job", "the same", _job(queue=HONEST), ACCESS),
    Row(names.QUEUE_LABEL, "pod", "the parent of all queues", _one_pod(queue="root"), "not a leaf queue"),
    Row(names.QUEUE_LABEL, "pod", "a queue that does not exist", _one_pod(queue="nowhere"), NO_GROUP),
    Row(
        names.QUEUE_LABEL,
        "PodGroup that runs",
        "the queue of others",
        _own_group(),
        later=lambda spot: [Change("PodGroup", spot.name, {"metadata": {"labels": {names.QUEUE_LABEL: HONEST}}})],
    ),
    Row(
        names.PROJECT_LABEL,
        "pod",
        "the queue of others",
        _one_pod(queue="", labels={names.PROJECT_LABEL: HONEST}),
        ACCESS,
    ),
    Row(names.PROJECT_LABEL, "Job", "the same", _job(queue="", labels={names.PROJECT_LABEL: HONEST}), ACCESS),
    Row(
        names.NODE_POOL_LABEL,
        "pod",
        "the queue of others with `project`, removed from the PodGroup later",
        _one_pod(queue="", labels={names.PROJECT_LABEL: HONEST, names.NODE_POOL_LABEL: "fast"}),
        ACCESS,
        waits_first=OTHER_POOL,
        # Back to the pool that is served.
        later=lambda spot: [
            Change("PodGroup", f"pg-{spot.name}-{{uid}}", {"metadata": {"labels": {names.NODE_POOL_LABEL: None}}})
        ],
    ),
    Row(
        names.DEFAULT_QUEUE_ANNOTATION,
        "Namespace",
        "the queue of others, for a pod that names none",
        lambda spot: [
            Change("Namespace", TENANT, {"metadata": {"annotations": {names.DEFAULT_QUEUE_ANNOTATION: HONEST}}}),
            spot.pod(queue=""),
        ],
        ACCESS,
        refused="rights",
    ),
)

_CRITICAL = {names.PRIORITY_CLASS_LABEL: CRITICAL}
_NON_PREEMPTIBLE = {names.PREEMPTIBILITY_LABEL: names.NON_PREEMPTIBLE}
_PREEMPTIBLE = {names.PREEMPTIBILITY_LABEL: names.PREEMPTIBLE}

# Priority, protection and waits; the tenant's queue has no quota of GPUs.
_PRIORITY_ROWS = (
    Row(names.PRIORITY_CLASS_LABEL, "pod", "the highest class", _one_pod(labels=_CRITICAL), OVER_QUOTA),
    Row(names.PRIORITY_CLASS_LABEL, "Job", "the highest class", _job(labels=_CRITICAL), OVER_QUOTA),
    Row(
        names.PRIORITY_CLASS_LABEL,
        "pod",
        "the highest class, preemptible so that no quota is needed",
        _one_pod(labels={**_CRITICAL, **_PREEMPTIBLE}),
    ),
    Row(
        names.PRIORITY_CLASS_LABEL,
        "pod",
        "a class that does not exist",
        _one_pod(labels={names.PRIORITY_CLASS_LABEL: "boundless"}),
    ),
    Row("spec.priorityClassName", "pod", "the highest class", _one_pod(priorityClassName=CRITICAL), OVER_QUOTA),
    Row(names.PREEMPTIBILITY_LABEL, "pod", "non-preemptible over quota", _one_pod(labels=_NON_PREEMPTIBLE), OVER_QUOTA),
    Row(names.PREEMPTIBILITY_LABEL, "Job", "non-preemptible over quota", _job(labels=_NON_PREEMPTIBLE), OVER_QUOTA),
    Row(
        names.PREEMPTIBILITY_LABEL,
        "pod",
        "a word that does not exist",
        _one_pod(labels={names.PREEMPTIBILITY_LABEL: "never"}),
    ),
    Row(
        names.RAY_PRIORITY_CLASS_LABEL,
        "RayCluster",
        "the highest class",
        _ray(_HEAD, labels={names.RAY_PRIORITY_CLASS_LABEL: CRITICAL}),
        OVER_QUOTA,
    ),
    Row(
        names.RAY_PRIORITY_CLASS_LABEL,
        "RayCluster",
        "a class that does not exist",
        _ray(_HEAD, labels={names.RAY_PRIORITY_CLASS_LABEL: "boundless"}),
    ),
    Row(
        names.KUEUE_PRIORITY_CLASS_LABEL,
        "pod",
        "the highest class",
        _one_pod(labels={names.KUEUE_PRIORITY_CLASS_LABEL: CRITICAL}),
        OVER_QUOTA,
    ),
    Row(
        names.PREEMPTION_DELAY_ANNOTATION,
        "pod",
        "a negative time",
        _one_pod(annotations={names.PREEMPTION_DELAY_ANNOTATION: "-1h"}),
    ),
    Row(
        names.STALENESS_GRACE_PERIOD_ANNOTATION,
        "pod",
        "never to be evicted as an incomplete gang",
        _one_pod(annotations={names.STALENESS_GRACE_PERIOD_ANNOTATION: "-1s"}),
    ),
    Row(names.USER_LABEL, "pod", "the name of another user", _one_pod(labels={names.USER_LABEL: HONEST})),
    Row(names.USER_ANNOTATION, "pod", "the same", _one_pod(annotations={names.USER_ANNOTATION: HONEST})),
)

# Places: topologies, segments, pools.
_NOWHERE = {names.TOPOLOGY_ANNOTATION: "nowhere", names.TOPOLOGY_REQUIRED_ANNOTATION: names.HOSTNAME_LABEL}
_SEGMENT_LEVEL = {names.SEGMENT_SIZE_ANNOTATION: "2", names.TOPOLOGY_ANNOTATION: TOPOLOGY}
_PLACE_ROWS = (
    Row(
        names.NODE_POOL_LABEL,
        "pod",
        "a pool that no scheduler serves",
        _one_pod(labels={names.NODE_POOL_LABEL: "elsewhere"}),
        waits=OTHER_POOL,
    ),
    Row(names.TOPOLOGY_ANNOTATION, "Job", "a Topology that does not exist", _job(annotations=_NOWHERE), NO_TOPOLOGY),
    Row(
        names.TOPOLOGY_REQUIRED_ANNOTATION,
        "Job",
        "one machine, and that of others among them",
        _job(
            annotations={names.TOPOLOGY_ANNOTATION: TOPOLOGY, names.TOPOLOGY_REQUIRED_ANNOTATION: names.HOSTNAME_LABEL}
        ),
    ),
    Row(
        names.TOPOLOGY_PREFERRED_ANNOTATION,
        "Job",
        "a level that does not exist",
        _job(annotations={names.TOPOLOGY_ANNOTATION: TOPOLOGY, names.TOPOLOGY_PREFERRED_ANNOTATION: "moon"}),
        "moon",
    ),
    Row(
        names.SEGMENT_SIZE_ANNOTATION,
        "template of a PyTorchJob",
        "a negative size",
        _pytorch(_WORKER, {names.SEGMENT_SIZE_ANNOTATION: "-2"}),
    ),
    Row(
        names.SEGMENT_SIZE_ANNOTATION,
        "template of a PyTorchJob",
        "the largest number",
        _pytorch(_WORKER, {names.SEGMENT_SIZE_ANNOTATION: HUGE}),
    ),
    Row(
        names.SEGMENT_TOPOLOGY_REQUIRED_ANNOTATION,
        "template of a PyTorchJob",
        "a level that does not exist",
        _pytorch(_WORKER, {**_SEGMENT_LEVEL, names.SEGMENT_TOPOLOGY_REQUIRED_ANNOTATION: "moon"}, workers=2),
        "moon",
    ),
    Row(
        names.SEGMENT_TOPOLOGY_PREFERRED_ANNOTATION,
        "template of a PyTorchJob",
        "the machine",
        _pytorch(
            _WORKER, {**_SEGMENT_LEVEL, names.SEGMENT_TOPOLOGY_PREFERRED_ANNOTATION: names.HOSTNAME_LABEL}, workers=2
        ),
    ),
    Row(
        names.GROVE_TOPOLOGY_ANNOTATION,
        "PodGang",
        "a Topology that does not exist",
        _grove(
            annotations={names.GROVE_TOPOLOGY_ANNOTATION: "nowhere"},
            topologyConstraint={"packConstraint": {"required": names.HOSTNAME_LABEL}},
        ),
        NO_TOPOLOGY,
    ),
)

# Minimums.
_MINIMUM_ROWS = (
    Row(
        names.BATCH_MIN_MEMBER_ANNOTATION,
        "Job",
        "none",
        _job(annotations={names.BATCH_MIN_MEMBER_ANNOTATION: "0"}),
    ),
    Row(
        names.BATCH_MIN_MEMBER_ANNOTATION,
        "Job",
        "a negative number",
        _job(annotations={names.BATCH_MIN_MEMBER_ANNOTATION: "-1"}),
        "minMember",
    ),
    Row(
        names.BATCH_MIN_MEMBER_ANNOTATION,
        "Job",
        "the largest number",
        _job(annotations={names.BATCH_MIN_MEMBER_ANNOTATION: HUGE}),
    ),
    Row(
        names.BATCH_MIN_MEMBER_ANNOTATION,
        "JobSet",
        "none",
        _job_set(_JOB_SET_POD, annotations={names.BATCH_MIN_MEMBER_ANNOTATION: "0"}),
        "invalid min-member",
    ),
    Row(
        names.KNATIVE_MIN_SCALE_ANNOTATION,
        "Revision",
        "the largest number",
        _knative(**{names.KNATIVE_MIN_SCALE_ANNOTATION: HUGE}),
        NOT_READY,
    ),
    Row(
        names.KNATIVE_MIN_SCALE_ANNOTATION,
        "Revision",
        "a negative number",
        _knative(**{names.KNATIVE_MIN_SCALE_ANNOTATION: "-1"}),
    ),
    Row(
        names.LWS_SIZE_ANNOTATION,
        "pod of a LeaderWorkerSet",
        "the largest number",
        _lws({names.LWS_WORKER_INDEX_LABEL: "1"}, {names.LWS_SIZE_ANNOTATION: HUGE}, policy="LeaderReady"),
        NOT_READY,
    ),
    Row(
        names.KUEUE_POD_GROUP_COUNT_ANNOTATION,
        "pod",
        "a negative number",
        lambda spot: [
            spot.pod(
                labels={names.KUEUE_POD_GROUP_LABEL: spot.name},
                annotations={names.KUEUE_POD_GROUP_COUNT_ANNOTATION: "-1"},
            )
        ],
        "is not a number of pods",
    ),
)

# Groups of others: by name, by owner, by what their operators write.
_GROUP_ROWS = (
    Row(names.POD_GROUP_ANNOTATION, "pod", "the group of others", _one_pod(group=THEIRS), ALONE),
    Row(
        names.POD_GROUP_ANNOTATION,
        "pod",
        "the group of others, with its namespace",
        _one_pod(group=f"{HONEST}/{THEIRS}"),
        ALONE,
    ),
    Row(
        names.POD_GROUP_ANNOTATION,
        "pod",
        "a group of others that lacks a pod, by a path",
        _one_pod(group=f"../{HONEST}/{UNFINISHED}"),
        ALONE,
    ),
    Row(
        names.POD_GROUP_ANNOTATION,
        "template of a Job",
        "a group of others that lacks a pod",
        _job(template_annotations={names.POD_GROUP_ANNOTATION: UNFINISHED}),
    ),
    Row(
        names.SUBGROUP_LABEL,
        "pod",
        "a subgroup of the group of others",
        _one_pod(group=THEIRS, labels={names.SUBGROUP_LABEL: "workers"}),
        ALONE,
    ),
    Row(
        names.SUBGROUP_LABEL,
        "pod of its own group",
        "a subgroup of the group of others",
        _own_group({"labels": {names.SUBGROUP_LABEL: "workers"}}),
        "which does not exist in PodGroup",
    ),
    Row(
        names.SKIP_POD_GROUPER_ANNOTATION,
        "pod",
        "its own PodGroup in the queue of others",
        _own_group({"annotations": _SKIP}, queue=HONEST),
        ACCESS,
    ),
    Row(
        names.SKIP_POD_GROUPER_ANNOTATION,
        "Job",
        "the group of others",
        _job(annotations=_SKIP, template_annotations={names.POD_GROUP_ANNOTATION: THEIRS}),
        ALONE,
    ),
    Row("metadata.ownerReferences", "pod", "the Job of others, with its uid", _forged_owner, "failed to find"),
    Row(
        names.SPARK_APP_SELECTOR_LABEL,
        "pod",
        "the application of others",
        lambda spot: [
            spot.pod(
                labels={
                    names.SPARK_APP_NAME_LABEL: "app",
                    names.SPARK_APP_SELECTOR_LABEL: THEIR_SPARKS[spot.machine],
                }
            )
        ],
    ),
    Row(
        names.SPARK_APP_NAME_LABEL,
        "pod",
        "the application of others, without a selector",
        _one_pod(labels={names.SPARK_APP_NAME_LABEL: THEIR_SPARKS[FREE]}),
    ),
    Row(
        names.SPARK_ROLE_LABEL,
        "pod",
        "to be an executor of a group of others that lacks a pod",
        lambda spot: [
            spot.pod(
                labels={
                    names.SPARK_APP_NAME_LABEL: "app",
                    names.SPARK_APP_SELECTOR_LABEL: UNFINISHED_GROUPS[spot.machine],
                    names.SPARK_ROLE_LABEL: names.SPARK_EXECUTOR,
                }
            )
        ],
    ),
    Row(
        names.KUEUE_POD_GROUP_LABEL,
        "pod",
        "the pod group of others",
        lambda spot: [
            spot.pod(
                labels={names.KUEUE_POD_GROUP_LABEL: THEIR_KUEUES[spot.machine]},
                annotations={names.KUEUE_POD_GROUP_COUNT_ANNOTATION: "1"},
            )
        ],
    ),
    Row(names.GROVE_POD_GANG_LABEL, "pod", "the PodGang of others", _grove(gang=THEIRS), NO_GROUP),
    Row(
        names.GROVE_POD_GANG_LABEL,
        "pod",
        "its own PodGang, which lists a pod of others",
        _grove(namespace=HONEST),
        "expected pods of namespace",
    ),
    Row(
        names.GROVE_POD_CLIQUE_LABEL, "pod", "a group of pods that its PodGang lacks", _grove(clique=THEIRS), NOT_READY
    ),
    Row(names.KNATIVE_REVISION_LABEL, "pod", "the Revision of others", _knative(revision=THEIRS), NO_GROUP),
    Row(
        names.KUBEFLOW_REPLICA_TYPE_LABEL,
        "pod of a PyTorchJob",
        "a role that does not exist",
        _pytorch({names.KUBEFLOW_REPLICA_TYPE_LABEL: THEIRS}),
        NOT_READY,
    ),
    Row(
        names.KUBEFLOW_REPLICA_INDEX_LABEL,
        "pod of a PyTorchJob",
        "a segment that does not exist",
        _pytorch(
            {**_WORKER, names.KUBEFLOW_REPLICA_INDEX_LABEL: "999"}, {names.SEGMENT_SIZE_ANNOTATION: "2"}, workers=2
        ),
        "is beyond the",
    ),
    Row(
        names.KUBEFLOW_JOB_NAME_LABEL,
        "pod of an MPIJob",
        "the launcher of the job of others",
        _mpi(lambda _: {names.KUBEFLOW_JOB_NAME_LABEL: THEIRS, names.KUBEFLOW_ROLE_LABEL: "launcher"}),
    ),
    Row(
        names.KUBEFLOW_ROLE_LABEL,
        "pod of an MPIJob",
        "a worker that says it is the launcher",
        _mpi(lambda spot: {names.KUBEFLOW_JOB_NAME_LABEL: spot.name, names.KUBEFLOW_ROLE_LABEL: "launcher"}),
        NOT_READY,
    ),
    Row(
        names.RAY_GROUP_LABEL,
        "pod of a RayCluster",
        "a worker group that does not exist",
        _ray({names.RAY_GROUP_LABEL: THEIRS}),
        NOT_READY,
    ),
    Row(
        names.LWS_WORKER_INDEX_LABEL,
        "pod of a LeaderWorkerSet",
        "no number",
        _lws({names.LWS_WORKER_INDEX_LABEL: THEIRS}),
        "expected a whole number of 0 or more",
    ),
    Row(
        names.LWS_GROUP_INDEX_LABEL,
        "pod of a LeaderWorkerSet",
        "the largest number",
        _lws({names.LWS_GROUP_INDEX_LABEL: HUGE, names.LWS_WORKER_INDEX_LABEL: "0"}),
    ),
    Row(
        names.JOBSET_REPLICATED_JOB_LABEL,
        "pod of a JobSet",
        "a replicated job that does not exist",
        _job_set({**_JOB_SET_POD, names.JOBSET_REPLICATED_JOB_LABEL: THEIRS}),
        "belongs to subgroup",
    ),
    Row(
        names.JOBSET_JOB_INDEX_LABEL,
        "pod of a JobSet",
        "a replica that does not exist",
        _job_set({**_JOB_SET_POD, names.JOBSET_JOB_INDEX_LABEL: HUGE}),
        "belongs to subgroup",
    ),
    Row(
        names.KARTA_GROUP_LABEL,
        "Karta",
        "the kind of workloads of others",
        lambda spot: [_karta(spot, names.KARTA_GROUP_LABEL)],
        refused="always",
    ),
    Row(
        names.KARTA_VERSION_LABEL,
        "Karta",
        "the same",
        lambda spot: [_karta(spot, names.KARTA_VERSION_LABEL)],
        refused="always",
    ),
    Row(
        names.KARTA_KIND_LABEL,
        "Karta",
        "the same",
        lambda spot: [_karta(spot, names.KARTA_KIND_LABEL)],
        refused="always",
    ),
)

_APPLIED = f'{{"spec": {{"queue": "{HONEST}"}}}}'

# What services write, and what is only copied.
_FORGED_ROWS = (
    *(
        Row(
            key,
            "PodGroup",
            f"{value[:4]}, while its pod runs",
            _own_group(),
            later=_with_stamp(key, value),
            refused="rights",
        )
        for key, value in (
            (names.STALE_TIMESTAMP_ANNOTATION, FUTURE),
            (names.LAST_START_TIMESTAMP_ANNOTATION, FUTURE),
            (names.LAST_EVICTION_TIMESTAMP_ANNOTATION, PAST),
        )
    ),
    *(
        Row(key, "Job", "the past, for the PodGroup to inherit", _job(annotations={key: PAST}), kept_off=PAST)
        for key in (
            names.STALE_TIMESTAMP_ANNOTATION,
            names.LAST_START_TIMESTAMP_ANNOTATION,
            names.LAST_EVICTION_TIMESTAMP_ANNOTATION,
        )
    ),
    Row(
        names.TOP_OWNER_METADATA_ANNOTATION,
        "Job",
        "the Job of others",
        _job(annotations={names.TOP_OWNER_METADATA_ANNOTATION: f"name: {THEIR_JOB}\nkind: Job\n"}),
    ),
    Row(
        names.MADE_FROM_ANNOTATION,
        "Job",
        "the pod group of others",
        _job(annotations={names.MADE_FROM_ANNOTATION: f"KueuePodGroup/{THEIRS}"}),
        kept_off=f"KueuePodGroup/{THEIRS}",
    ),
    Row(
        names.IGNORE_WORKLOAD_API_ANNOTATION,
        "pod",
        "to leave the gang of others aside",
        _one_pod(
            annotations={names.IGNORE_WORKLOAD_API_ANNOTATION: "true"},
        ),
    ),
    Row(
        names.KUEUE_STOPPING_ANNOTATION,
        "Job",
        "that Kueue stops it",
        _job(annotations={names.KUEUE_STOPPING_ANNOTATION: "true"}),
        kept_off="true",
    ),
    Row(
        names.LAST_APPLIED_ANNOTATION,
        "Job",
        "the queue of others",
        _job(annotations={names.LAST_APPLIED_ANNOTATION: _APPLIED}),
        kept_off=_APPLIED,
    ),
    Row(
        names.DEPLOYMENT_REVISION_ANNOTATION,
        "Job",
        "the largest number",
        _job(annotations={names.DEPLOYMENT_REVISION_ANNOTATION: HUGE}),
    ),
)

# The PodGroup itself, its status, and BindRequests.
_POD_GROUP_ROWS = (
    Row("spec.queue", "PodGroup", "the queue of others", _own_group(queue=HONEST), ACCESS),
    Row(
        "spec.queue",
        "PodGroup that runs",
        "the queue of others",
        _own_group(),
        later=lambda spot: [Change("PodGroup", spot.name, {"spec": {"queue": HONEST}})],
    ),
    Row("spec.minMember", "PodGroup", "none", _own_group(minimum=0)),
    Row("spec.minMember", "PodGroup", "the largest number", _own_group(minimum=int(HUGE)), NOT_READY),
    Row("spec.minMember", "PodGroup", "a negative number", lambda spot: [spot.group(minimum=-1)], refused="always"),
    Row(
        "spec.minSubGroup",
        "PodGroup",
        "the largest number",
        _own_group(
            {"labels": {names.SUBGROUP_LABEL: "a"}},
            minMember=None,
            minSubGroup=int(HUGE),
            subGroups=[{"name": "a", "minMember": 1}],
        ),
        INVALID_TREE,
    ),
    Row(
        "spec.subGroups",
        "PodGroup",
        "a circle of parents",
        _own_group(
            {"labels": {names.SUBGROUP_LABEL: "a"}},
            minMember=None,
            subGroups=[{"name": "a", "parent": "b", "minMember": 1}, {"name": "b", "parent": "a", "minMember": 1}],
        ),
        "which does not exist in PodGroup",
    ),
    Row("spec.priorityClassName", "PodGroup", "the highest class", _own_group(priorityClassName=CRITICAL), OVER_QUOTA),
    Row(
        "spec.preemptibility",
        "PodGroup",
        "non-preemptible over quota",
        _own_group(preemptibility=names.NON_PREEMPTIBLE),
        OVER_QUOTA,
    ),
    Row(
        "spec.topologyConstraint",
        "PodGroup",
        "a Topology that does not exist",
        _own_group(topologyConstraint={"topology": "nowhere", "requiredTopologyLevel": names.HOSTNAME_LABEL}),
        NO_TOPOLOGY,
    ),
    Row(
        "spec.markUnschedulable",
        "PodGroup",
        "false, in the queue of others",
        _own_group(queue=HONEST, markUnschedulable=False),
        ACCESS,
    ),
    Row("spec.schedulingBackoff", "PodGroup", "a number without meaning", _own_group(schedulingBackoff=-100)),
    Row("spec.preemptionDelay", "PodGroup", "a negative time", _own_group(preemptionDelay="-1h0m0s")),
    Row(
        "spec.stalenessGracePeriod",
        "PodGroup",
        "never to be evicted as an incomplete gang",
        _own_group(stalenessGracePeriod="-1s"),
    ),
    Row(
        "status.resourcesStatus",
        "PodGroup in the queue of others",
        "100 GPUs",
        _own_group(queue=HONEST),
        ACCESS,
        later=_forged_status(
            resourcesStatus={"allocated": _GPUS, "allocatedNonPreemptible": _GPUS, "requested": _GPUS}
        ),
        refused="rights",
    ),
    Row(
        "status.schedulingConditions",
        "PodGroup in the queue of others",
        "none",
        _own_group(queue=HONEST),
        ACCESS,
        later=_forged_status(schedulingConditions=[]),
        refused="rights",
    ),
    Row(
        "status.conditions",
        "PodGroup in the queue of others",
        "that it is scheduled",
        _own_group(queue=HONEST),
        ACCESS,
        later=_forged_status(conditions=[{"type": "Scheduled", "status": "True"}]),
        refused="rights",
    ),
    Row(
        "spec.selectedNode",
        "BindRequest",
        "a pod in the queue of others",
        _forged_request,
        refused="rights",
        may_run=True,
    ),
    Row("spec.podName", "BindRequest", "a pod of others that waits", _request_of_others, refused="rights"),
    Row(
        "status.phase",
        "BindRequest",
        "that a pod in the queue of others is bound",
        lambda spot: [
            *_forged_request(spot),
            Change("BindRequest", spot.name, {"status": {"phase": "Succeeded"}}, "status"),
        ],
        refused="rights",
        may_run=True,
    ),
)

ROWS: tuple[Row, ...] = (
    *_QUEUE_ROWS,
    *_PRIORITY_ROWS,
    *_PLACE_ROWS,
    *_MINIMUM_ROWS,
    *_GROUP_ROWS,
    *_FORGED_ROWS,
    *_POD_GROUP_ROWS,
)


def listing() -> list[str]:
    """The rows as the table of docs/security.md."""
    head = ["| Name or field | Where | What the tenant tries | What happens |", "|---|---|---|---|"]
    return head + [f"| `{row.key}` | {row.where} | {row.tried} | {row.ends} |" for row in ROWS]
