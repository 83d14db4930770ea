"""The kinds of owners that the pod grouper reads, from which its role is made.

`WATCHED` are Kubernetes' own: cached, and asked of the server where the cache is behind.  `FOREIGN` are those of other
operators: read one by one, when a pod is owned by one.  A kind in neither ends the climb at the owner before it, since
the server forbids reading it, unless an administrator lets the grouper read it too (docs/podgrouper.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pykai.kube import resources
from pykai.kube.resources import Resource

#: their groupers read no more than metadata and, of a Job, how far it is
WATCHED_KINDS: Final = (
    resources.JOBS,
    resources.CRON_JOBS,
    resources.DEPLOYMENTS,
    resources.REPLICA_SETS,
    resources.STATEFUL_SETS,
)


def _resources(group: str, version: str, *kinds: str) -> Iterator[Resource]:
    for kind in kinds:
        yield Resource(group, version, f"{kind.lower()}s", kind, True)


#: workloads:12.3; any version of a kind may be read, the one here is the usual
THIRD_PARTY_KINDS: Final = (
    *_resources("amlarc.azureml.com", "v1alpha1", "AmlJob"),
    *_resources("argoproj.io", "v1alpha1", "Workflow"),
    *_resources("egx.nvidia.io", "v1", "SPOTRequest"),
    *_resources("grove.io", "v1alpha1", "PodClique", "PodCliqueScalingGroup", "PodCliqueSet", "PodGangSet"),
    *_resources("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    *_resources("kubeflow.org", "v1", "JAXJob", "MPIJob", "PyTorchJob", "TFJob", "XGBoostJob"),
    *_resources("kubeflow.org", "v1beta1", "Notebook"),
    *_resources("kubeflow.org", "v1alpha1", "ScheduledWorkflow"),
    *_resources("kubevirt.io", "v1", "VirtualMachine", "VirtualMachineInstance"),
    *_resources("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    *_resources("machinelearning.seldon.io", "v1", "SeldonDeployment"),
    *_resources("nvidia.com", "v1alpha1", "DynamoGraphDeployment"),
    *_resources("ray.io", "v1", "RayCluster", "RayJob", "RayService"),
    *_resources("run.ai", "v1", "RunaiJob"),
    *_resources(
        "run.ai",
        "v2alpha1",
        "DistributedInferenceWorkload",
        "DistributedWorkload",
        "InferenceWorkload",
        "InteractiveWorkload",
        "TrainingWorkload",
    ),
    *_resources("serving.knative.dev", "v1", "Configuration", "Revision", "Service"),
    *_resources("tekton.dev", "v1", "PipelineRun", "TaskRun"),
    *_resources("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
    *_resources("workspace.devfile.io", "v1alpha2", "DevWorkspace"),
)
