"""Ray: clusters of a head and groups of workers, and the jobs and services that bring a cluster of their own.

A RayJob names its RayCluster in its status, creates it, and starts a submitter, a Job, once the cluster is ready; it
ends as the submitter does. One that is suspended and may not be gets the status `ValidationFailed`, and nothing happens
to it any more. A RayService has a cluster that is pending until it is ready, and then active.

Not done: scaling, `clusterSelector`, retries of a RayJob, updates of a RayService.

Statements: sim:operators-order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import field

from pykai.api import names
from pykai.api.meta import Int64, Wire
from pykai.api.unstructured import JsonMapping, JsonObject
from pykai.api.workloads import Job, MachinePod
from pykai.kube.resources import JOBS, Resource
from pykai.lab.controllers.controller import owner_reference, template_hash
from pykai.lab.controllers.jobs import finished_condition
from pykai.lab.controllers.pods import is_finished, is_ready
from pykai.lab.operators.steps import (
    Creation,
    Deletion,
    ObservedWorkload,
    OperatedKind,
    OperatedWorkload,
    Step,
    WantedPod,
    checked_count,
    condition,
    conditions_of,
    converge_pods,
    delete_pods,
    seconds_left,
)

GROUP: Final = "ray.io"
RAY_CLUSTERS: Final = Resource(GROUP, "v1", "rayclusters", "RayCluster", True)
RAY_JOBS: Final = Resource(GROUP, "v1", "rayjobs", "RayJob", True)
RAY_SERVICES: Final = Resource(GROUP, "v1", "rayservices", "RayService", True)
_HEAD_GROUP: Final = "headgroup"
#: A status, and the reason for it.
_VALIDATION_FAILED: Final = "ValidationFailed"
#: Letters that make the name of a cluster its own.
_SUFFIX_LENGTH: Final = 5


class RayHead(Wire):
    template: JsonObject = field(default_factory=dict)


class RayWorkers(Wire):
    """One group of workers."""

    group_name: str = ""
    replicas: Int64 | None = None
    min_replicas: Int64 | None = None
    num_of_hosts: Int64 | None = None
    suspend: bool = False
    template: JsonObject = field(default_factory=dict)

    @property
    def pods(self) -> int:
        """How many pods it has."""
        if self.suspend:
            return 0
        path = f"of the group {self.group_name}"
        wanted = max(checked_count(self.replicas, f"replicas {path}", 0), self.min_replicas or 0)
        return checked_count(wanted * checked_count(self.num_of_hosts, f"numOfHosts {path}"), f"pods {path}")


class RayClusterWorkloadSpec(Wire):
    suspend: bool = False
    head_group_spec: RayHead = field(default_factory=RayHead)
    worker_group_specs: list[RayWorkers] = field(default_factory=list)


class RayClusterWorkload(OperatedWorkload):
    """A RayCluster as its operator reads it."""

    spec: RayClusterWorkloadSpec = field(default_factory=RayClusterWorkloadSpec)


class RayJobSpec(Wire):
    suspend: bool = False
    ray_cluster_spec: JsonObject = field(default_factory=dict)
    submitter_pod_template: JsonObject | None = None
    cluster_selector: JsonObject = field(default_factory=dict)
    shutdown_after_job_finishes: bool = False
    ttl_seconds_after_finished: Int64 = 0


class RayJobWorkload(OperatedWorkload):
    """A RayJob as its operator reads it."""

    spec: RayJobSpec = field(default_factory=RayJobSpec)


class RayServiceSpec(Wire):
    ray_cluster_config: JsonObject = field(default_factory=dict)


class RayServiceWorkload(OperatedWorkload):
    """A RayService as its operator reads it."""

    spec: RayServiceSpec = field(default_factory=RayServiceSpec)


def plan_ray_cluster(cluster: RayClusterWorkload, seen: ObservedWorkload) -> Step:
    """The next step of a RayCluster."""
    conditions = conditions_of(cluster.status)
    if cluster.spec.suspend:
        state = "suspended" if not seen.pods else cluster.status.get("state", "")
        text = "All pods are deleted" if not seen.pods else "Pods are being deleted"
        conditions = condition(conditions, "RayClusterProvisioned", "RayClusterSuspended", text, seen.now, holds=False)
        conditions = condition(conditions, "RayClusterSuspended", "AllPodsDeleted", text, seen.now, holds=not seen.pods)
        return Step(_cluster_status(cluster, seen, state, conditions), delete=delete_pods(seen.pods))
    wanted = list(_cluster_pods(cluster))
    ended = [pod for pod in seen.pods if is_finished(pod)]
    create, delete = converge_pods(cluster, RAY_CLUSTERS, wanted, seen.pods)
    ready = len(seen.pods) == len(wanted) and all(map(is_ready, seen.pods))
    head = any(is_ready(pod) and _node_type(pod) == names.RAY_HEAD for pod in seen.pods)
    conditions = condition(
        conditions, "RayClusterSuspended", "RayClusterResumed", "The cluster is resumed", seen.now, holds=False
    )
    conditions = condition(
        conditions, "HeadPodReady", "HeadPodRunningAndReady", "The head pod is ready", seen.now, holds=head
    )
    conditions = condition(
        conditions,
        "RayClusterProvisioned",
        "AllPodRunningAndReadyFirstTime",
        "All pods are ready",
        seen.now,
        holds=ready,
    )
    status = _cluster_status(cluster, seen, "ready" if ready else "", conditions)
    return Step(status, create, [*delete, *delete_pods(ended)])


def _cluster_pods(cluster: RayClusterWorkload) -> Iterator[WantedPod]:
    name = cluster.metadata.name
    yield WantedPod(f"{name}-head", cluster.spec.head_group_spec.template, _labels(name, names.RAY_HEAD, _HEAD_GROUP))
    checked_count(sum(workers.pods for workers in cluster.spec.worker_group_specs), "pods of all groups")
    for workers in cluster.spec.worker_group_specs:
        group = workers.group_name
        for index in range(workers.pods):
            suffix = template_hash([cluster.metadata.uid, group, index])[:_SUFFIX_LENGTH]
            pod = f"{name}-{group.lower().replace('_', '-')}-worker-{suffix}"
            yield WantedPod(pod, workers.template, _labels(name, "worker", group))


def _labels(cluster: str, node_type: str, group: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/created-by": "kuberay-operator",
        "app.kubernetes.io/name": "kuberay",
        "ray.io/cluster": cluster,
        "ray.io/identifier": f"{cluster}-{node_type}",
        "ray.io/is-ray-node": "yes",
        names.RAY_NODE_TYPE_LABEL: node_type,
        names.RAY_GROUP_LABEL: group,
    }


def _node_type(pod: MachinePod) -> str:
    return pod.metadata.labels.get(names.RAY_NODE_TYPE_LABEL, "")


def _cluster_status(
    cluster: RayClusterWorkload, seen: ObservedWorkload, state: str, conditions: Sequence[JsonMapping]
) -> JsonObject:
    workers = [pod for pod in seen.pods if _node_type(pod) == "worker"]
    return {
        "state": state,
        "conditions": list(conditions),
        "desiredWorkerReplicas": sum(group.pods for group in cluster.spec.worker_group_specs),
        "availableWorkerReplicas": sum(pod.status.phase == "Running" for pod in workers),
        "readyWorkerReplicas": sum(map(is_ready, workers)),
        "observedGeneration": cluster.metadata.generation,
    }


def plan_ray_job(job: RayJobWorkload, seen: ObservedWorkload) -> Step:
    """The next step of a RayJob."""
    clusters: Sequence[RayClusterWorkload] = seen.owned.get(RAY_CLUSTERS, ())
    submitters: Sequence[Job] = seen.owned.get(JOBS, ())
    deployment = job.status.get("jobDeploymentStatus", "")
    if deployment in ("Complete", "Failed"):
        return _after_ray_job(job, clusters, seen)
    if deployment == _VALIDATION_FAILED:
        return Step(job.status)
    if error := _validation_error(job.spec):
        failed = {"jobDeploymentStatus": _VALIDATION_FAILED, "reason": _VALIDATION_FAILED, "message": error}
        return Step({**job.status, **failed})
    if job.spec.suspend:
        return _suspend_ray_job(job, clusters, submitters)
    name = job.status.get("rayClusterName")
    if not name:
        named = {"rayClusterName": cluster_name(job), "jobStatus": "", "jobDeploymentStatus": "Initializing"}
        return Step({**named, "startTime": seen.now}, wait_s=0.0)
    status = dict(job.status)
    cluster = next((each for each in clusters if each.metadata.name == name), None)
    if cluster is None:
        return Step(status, [_new_cluster(job, RAY_JOBS, name, job.spec.ray_cluster_spec)])
    submitter = next(iter(submitters), None)
    end = finished_condition(submitter) if submitter is not None else None
    if end is not None:
        done = end.type == "Complete"
        ending = {"jobDeploymentStatus": "Complete" if done else "Failed", "endTime": seen.now}
        if not done:
            ending |= {"reason": "AppFailed", "message": end.message}
        return Step({**status, **ending, "jobStatus": "SUCCEEDED" if done else "FAILED"}, wait_s=0.0)
    if submitter is not None:
        running = "RUNNING" if submitter.status.ready else "PENDING"
        return Step({**status, "jobDeploymentStatus": "Running", "jobStatus": running})
    if cluster.status.get("state") != "ready":
        return Step(status)
    return Step(status, [Creation(JOBS, submitter_document(job))])


def _validation_error(spec: RayJobSpec) -> str:
    """Why KubeRay calls a RayJob invalid; "" if it does not. Its rules for `suspend` only."""
    if spec.suspend and not spec.shutdown_after_job_finishes:
        return "a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended"
    if spec.suspend and spec.cluster_selector:
        return "the ClusterSelector mode doesn't support the suspend operation"
    return ""


def _after_ray_job(job: RayJobWorkload, clusters: Sequence[RayClusterWorkload], seen: ObservedWorkload) -> Step:
    """The cluster stays unless the job says that it goes."""
    if not job.spec.shutdown_after_job_finishes or not clusters:
        return Step(job.status)
    left_s = seconds_left(job.status.get("endTime"), job.spec.ttl_seconds_after_finished, seen.now_s)
    if left_s:
        return Step(job.status, wait_s=left_s)
    return Step(job.status, delete=[Deletion(RAY_CLUSTERS, each) for each in clusters])


def _suspend_ray_job(job: RayJobWorkload, clusters: Sequence[RayClusterWorkload], submitters: Sequence[Job]) -> Step:
    """A resumed job starts again with another cluster."""
    leaving = [*(Deletion(RAY_CLUSTERS, each) for each in clusters), *(Deletion(JOBS, each) for each in submitters)]
    return Step({"jobStatus": "", "jobDeploymentStatus": "Suspending" if leaving else "Suspended"}, delete=leaving)


def cluster_name(owner: RayJobWorkload | RayServiceWorkload) -> str:
    """The name of a cluster that a job or service creates; another one after each change of its spec."""
    metadata = owner.metadata
    return f"{metadata.name}-{template_hash([metadata.uid, metadata.generation])[:_SUFFIX_LENGTH]}"


def _new_cluster(
    owner: RayJobWorkload | RayServiceWorkload, resource: Resource, name: str, spec: JsonObject
) -> Creation:
    origin = {"ray.io/originated-from-cr-name": owner.metadata.name, "ray.io/originated-from-crd": resource.kind}
    metadata = {
        "name": name,
        "namespace": owner.metadata.namespace,
        "labels": {**owner.metadata.labels, **origin},
        "ownerReferences": [owner_reference(owner, resource)],
    }
    document = {"apiVersion": RAY_CLUSTERS.api_version, "kind": RAY_CLUSTERS.kind, "metadata": metadata, "spec": spec}
    return Creation(RAY_CLUSTERS, document)


def submitter_document(job: RayJobWorkload) -> JsonObject:
    """The Job that submits the work to the cluster; without a template it runs the image of the head."""
    template = job.spec.submitter_pod_template
    if template is None:
        head = (job.spec.ray_cluster_spec.get("headGroupSpec") or {}).get("template") or {}
        containers = (head.get("spec") or {}).get("containers") or [{}]
        image = containers[0].get("image", "rayproject/ray")
        template = {"spec": {"containers": [{"name": "ray-job-submitter", "image": image}]}}
    body = {"restartPolicy": "Never", **(template.get("spec") or {})}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "ownerReferences": [owner_reference(job, RAY_JOBS)],
        },
        "spec": {"backoffLimit": 2, "template": {**template, "spec": body}},
    }


def plan_ray_service(service: RayServiceWorkload, seen: ObservedWorkload) -> Step:
    """The next step of a RayService."""
    active = _named_cluster(service.status, "activeServiceStatus")
    pending = _named_cluster(service.status, "pendingServiceStatus")
    if not active and not pending:
        return Step({"pendingServiceStatus": {"rayClusterName": cluster_name(service)}}, wait_s=0.0)
    name = active or pending
    clusters: Sequence[RayClusterWorkload] = seen.owned.get(RAY_CLUSTERS, ())
    cluster = next((each for each in clusters if each.metadata.name == name), None)
    if cluster is None:
        return Step(service.status, [_new_cluster(service, RAY_SERVICES, name, service.spec.ray_cluster_config)])
    if active or cluster.status.get("state") != "ready":
        return Step(service.status)
    return Step({"activeServiceStatus": {"rayClusterName": name}, "serviceStatus": "Running"})


def _named_cluster(status: JsonMapping, part: str) -> str:
    found = status.get(part)
    name = found.get("rayClusterName") if isinstance(found, dict) else None
    return name if isinstance(name, str) else ""


def ray_cluster_kind() -> OperatedKind[RayClusterWorkload]:
    """RayClusters as their operator runs them."""
    return OperatedKind(RAY_CLUSTERS, RayClusterWorkload, plan_ray_cluster)


def ray_job_kind() -> OperatedKind[RayJobWorkload]:
    """RayJobs as their operator runs them."""
    owns = ((RAY_CLUSTERS, RayClusterWorkload), (JOBS, Job))
    return OperatedKind(RAY_JOBS, RayJobWorkload, plan_ray_job, owns=owns)


def ray_service_kind() -> OperatedKind[RayServiceWorkload]:
    """RayServices as their operator runs them."""
    return OperatedKind(RAY_SERVICES, RayServiceWorkload, plan_ray_service, owns=((RAY_CLUSTERS, RayClusterWorkload),))
