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

from pykai.kube import resources
from pykai.kube.resources import Resource
from pykai.podgrouper.kinds.cronjob import group_cron_job
from pykai.podgrouper.kinds.default import group_default
from pykai.podgrouper.kinds.deployment import group_deployment
from pykai.podgrouper.kinds.job import group_job
from pykai.podgrouper.kinds.pod import group_pod
from pykai.podgrouper.metadata import Grouper
from pykai.podgrouper.owners import JobProgress, ObjectMetadataOnly

_READ = ("get",)
_WATCH = ("list", "watch", "get")

#: API group, version, kind
GroupVersionKind = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """One kind of workload."""

    resource: Resource
    #: None: the default grouper, as for kinds without a row
    grouper: Grouper | None = None
    #: what its grouper reads of an object, cached and followed; None: objects are read one by one
    cached_as: type[ObjectMetadataOnly] | None = None
    #: what the pod grouper may do with objects of the kind
    verbs: tuple[str, ...] = _READ

    @property
    def group_version_kind(self) -> GroupVersionKind:
        """API group, version, kind."""
        return self.resource.group, self.resource.version, self.resource.kind


def _watched(
    resource: Resource, grouper: Grouper, cached_as: type[ObjectMetadataOnly] = ObjectMetadataOnly
) -> WorkloadKind:
    return WorkloadKind(resource, grouper, cached_as, _WATCH)


def _read_kinds(group: str, version: str, *kinds: str) -> Iterator[WorkloadKind]:
    """Kinds of one API group without a grouper of their own; any version may be read, this one is the usual."""
    for kind in kinds:
        yield WorkloadKind(Resource(group, version, f"{kind.lower()}s", kind, True))


_ROWS = (
    # The service itself watches pods.
    WorkloadKind(resources.PODS, group_pod, verbs=()),
    _watched(resources.JOBS, group_job, JobProgress),
    _watched(resources.CRON_JOBS, group_cron_job),
    _watched(resources.DEPLOYMENTS, group_deployment),
    _watched(resources.REPLICA_SETS, group_default),
    _watched(resources.STATEFUL_SETS, group_default),
    # workloads:12.3
    *_read_kinds("amlarc.azureml.com", "v1alpha1", "AmlJob"),
    *_read_kinds("argoproj.io", "v1alpha1", "Workflow"),
    *_read_kinds("egx.nvidia.io", "v1", "SPOTRequest"),
    *_read_kinds("grove.io", "v1alpha1", "PodClique", "PodCliqueScalingGroup", "PodCliqueSet", "PodGangSet"),
    *_read_kinds("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    *_read_kinds("kubeflow.org", "v1", "JAXJob", "MPIJob", "PyTorchJob", "TFJob", "XGBoostJob"),
    *_read_kinds("kubeflow.org", "v1beta1", "Notebook"),
    *_read_kinds("kubeflow.org", "v1alpha1", "ScheduledWorkflow"),
    *_read_kinds("kubevirt.io", "v1", "VirtualMachine", "VirtualMachineInstance"),
    *_read_kinds("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    *_read_kinds("machinelearning.seldon.io", "v1", "SeldonDeployment"),
    *_read_kinds("nvidia.com", "v1alpha1", "DynamoGraphDeployment"),
    *_read_kinds("ray.io", "v1", "RayCluster", "RayJob", "RayService"),
    *_read_kinds("run.ai", "v1", "RunaiJob"),
    *_read_kinds(
        "run.ai",
        "v2alpha1",
        "DistributedInferenceWorkload",
        "DistributedWorkload",
        "InferenceWorkload",
        "InteractiveWorkload",
        "TrainingWorkload",
    ),
    *_read_kinds("serving.knative.dev", "v1", "Configuration", "Revision", "Service"),
    *_read_kinds("tekton.dev", "v1", "PipelineRun", "TaskRun"),
    *_read_kinds("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
    *_read_kinds("workspace.devfile.io", "v1alpha2", "DevWorkspace"),
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
