"""The table of workload kinds: one row each.

A row says which grouper makes the PodGroups of a kind, what is cached of its objects, and what the pod grouper may do
with them.  Watches, the role of the pod grouper and the tests of docs/podgrouper.md read this table.  A new kind is a
row here and a module with its grouper.

Kubernetes' own kinds are watched, and read from the server where the cache is behind.  Kinds of other operators are
read one by one, when a pod is owned by one; they need not be installed.  A kind without a row ends the climb to the top
owner below it, since the server forbids reading it, unless an administrator allows it (docs/podgrouper.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pykai.api.suspension import SUSPEND_PATHS
from pykai.kube import resources
from pykai.kube.resources import Resource
from pykai.podgrouper.kinds.amljob import group_aml_job
from pykai.podgrouper.kinds.cronjob import group_cron_job
from pykai.podgrouper.kinds.default import group_default
from pykai.podgrouper.kinds.deployment import group_deployment
from pykai.podgrouper.kinds.grove import group_pod_gang
from pykai.podgrouper.kinds.job import group_job
from pykai.podgrouper.kinds.jobset import group_job_set
from pykai.podgrouper.kinds.knative import group_knative_service
from pykai.podgrouper.kinds.kubeflow import (
    group_jax_job,
    group_mpi_job,
    group_notebook,
    group_tf_job,
    group_xgboost_job,
)
from pykai.podgrouper.kinds.leaderworkerset import group_leader_worker_set
from pykai.podgrouper.kinds.pod import group_pod
from pykai.podgrouper.kinds.pytorchjob import group_pytorch_job
from pykai.podgrouper.kinds.ray import group_ray
from pykai.podgrouper.kinds.runaijob import group_runai_job
from pykai.podgrouper.kinds.skipped import group_by_child
from pykai.podgrouper.kinds.spotrequest import group_spot_request
from pykai.podgrouper.metadata import Grouper, GroupVersionKind
from pykai.podgrouper.owners import JobProgress, ObjectMetadataOnly

_READ = ("get",)
_WATCH = ("list", "watch", "get")


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """One kind of workload."""

    resource: Resource
    #: None: the default grouper, as for kinds without a row, unless an administrator describes the kind
    grouper: Grouper | None = None
    #: what its grouper reads of an object, cached and followed; None: objects are read one by one
    cached_as: type[ObjectMetadataOnly] | None = None
    #: what the pod grouper may do with objects of the kind
    verbs: tuple[str, ...] = _READ
    #: the row holds for every version of the kind; `resource` names the usual one
    any_version: bool = False

    @property
    def suspend_path(self) -> tuple[str, ...] | None:
        """The field that suspends an object, as names from the top; None where a kind has none."""
        return SUSPEND_PATHS.get((self.resource.group, self.resource.kind))

    @property
    def group_version_kind(self) -> GroupVersionKind:
        """API group, version or `*`, kind."""
        return self.resource.group, "*" if self.any_version else self.resource.version, self.resource.kind


def _watched(
    resource: Resource,
    grouper: Grouper,
    cached_as: type[ObjectMetadataOnly] = ObjectMetadataOnly,
) -> WorkloadKind:
    return WorkloadKind(resource, grouper, cached_as, _WATCH)


def _foreign(
    group: str,
    versions: str,
    *kinds: str,
    grouper: Grouper | None = None,
    any_version: bool = False,
) -> Iterator[WorkloadKind]:
    """Kinds of one API group that share a grouper, a row for each of the versions, the usual one last."""
    for version in versions.split():
        for kind in kinds:
            resource = Resource(group, version, f"{kind.lower()}s", kind, True)
            yield WorkloadKind(resource, grouper, any_version=any_version)


_ROWS = (
    # The service itself watches pods.
    WorkloadKind(resources.PODS, group_pod, verbs=()),
    _watched(resources.JOBS, group_job, JobProgress),
    _watched(resources.CRON_JOBS, group_cron_job),
    _watched(resources.DEPLOYMENTS, group_deployment),
    _watched(resources.REPLICA_SETS, group_default),
    _watched(resources.STATEFUL_SETS, group_default),
    # workloads:12.3
    *_foreign("amlarc.azureml.com", "v1alpha1", "AmlJob", grouper=group_aml_job),
    *_foreign("argoproj.io", "v1alpha1", "Workflow", grouper=group_by_child),
    *_foreign("egx.nvidia.io", "v1", "SPOTRequest", grouper=group_spot_request),
    *_foreign("grove.io", "v1alpha1", "PodClique", "PodCliqueScalingGroup"),
    *_foreign("grove.io", "v1alpha1", "PodCliqueSet", "PodGangSet", grouper=group_pod_gang),
    *_foreign("jobset.x-k8s.io", "v1alpha2", "JobSet", grouper=group_job_set),
    *_foreign("kubeflow.org", "v1", "JAXJob", grouper=group_jax_job),
    *_foreign("kubeflow.org", "v2beta1 v1", "MPIJob", grouper=group_mpi_job),
    *_foreign("kubeflow.org", "v1", "PyTorchJob", grouper=group_pytorch_job),
    *_foreign("kubeflow.org", "v1", "TFJob", grouper=group_tf_job),
    *_foreign("kubeflow.org", "v1", "XGBoostJob", grouper=group_xgboost_job),
    *_foreign("kubeflow.org", "v1beta1", "Notebook", grouper=group_notebook),
    *_foreign("kubeflow.org", "v1alpha1", "ScheduledWorkflow", grouper=group_default),
    *_foreign("kubevirt.io", "v1", "VirtualMachine"),
    *_foreign("kubevirt.io", "v1", "VirtualMachineInstance", grouper=group_default),
    *_foreign("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", grouper=group_leader_worker_set),
    *_foreign("machinelearning.seldon.io", "v1alpha2 v1", "SeldonDeployment", grouper=group_default),
    *_foreign("nvidia.com", "v1alpha1", "DynamoGraphDeployment", grouper=group_by_child, any_version=True),
    *_foreign("ray.io", "v1alpha1 v1", "RayCluster", "RayService", grouper=group_ray),
    *_foreign("ray.io", "v1alpha1 v1", "RayJob", grouper=group_ray),
    *_foreign("run.ai", "v1", "RunaiJob", grouper=group_runai_job),
    *_foreign(
        "run.ai",
        "v2alpha1",
        "DistributedInferenceWorkload",
        "DistributedWorkload",
        "InferenceWorkload",
        "InteractiveWorkload",
        "TrainingWorkload",
        grouper=group_by_child,
        any_version=True,
    ),
    *_foreign("scheduler.grove.io", "v1alpha1", "PodGang"),
    *_foreign("serving.knative.dev", "v1", "Configuration", "Revision"),
    *_foreign("serving.knative.dev", "v1", "Service", grouper=group_knative_service),
    *_foreign("tekton.dev", "v1", "PipelineRun", "TaskRun", grouper=group_default),
    *_foreign("trainer.kubeflow.org", "v1alpha1", "TrainJob", grouper=group_by_child),
    *_foreign("workspace.devfile.io", "v1alpha2", "DevWorkspace", grouper=group_default),
)

#: group, version and kind -> row
WORKLOAD_KINDS: dict[GroupVersionKind, WorkloadKind] = {row.group_version_kind: row for row in _ROWS}


def built_in_groupers() -> dict[GroupVersionKind, Grouper]:
    """The groupers of the table."""
    return {key: row.grouper for key, row in WORKLOAD_KINDS.items() if row.grouper is not None}


def watched_kinds() -> tuple[WorkloadKind, ...]:
    """The kinds whose objects are cached."""
    return tuple(row for row in WORKLOAD_KINDS.values() if row.cached_as is not None)


def read_kinds() -> tuple[WorkloadKind, ...]:
    """The kinds whose objects are read one by one."""
    return tuple(row for row in WORKLOAD_KINDS.values() if row.cached_as is None and row.verbs)
