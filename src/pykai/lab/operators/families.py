"""The table of operators that the lab can play: one row for each family, with its definitions and its operators.

`kai up --kinds kubeflow,ray` and `kai run operators --kinds kubeflow,ray` choose rows. A row may need others: Kubeflow
Trainer makes JobSets. Objects of kinds whose operator is not played say what it would create (`dependents`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pykai.api.crds import PRESERVED_UNKNOWN, array, boolean, integer, text
from pykai.api.suggestions import did_you_mean
from pykai.api.unstructured import JsonObject
from pykai.kube.resources import DEPLOYMENTS, STATEFUL_SETS, Resource
from pykai.kube.runtime import Runtime, Service
from pykai.lab.operators.definitions import (
    AGE,
    LAST_CONDITION,
    CustomKind,
    job_set_schema,
    open_schema,
    ray_cluster_schema,
    spark_schema,
    training_schema,
)
from pykai.lab.operators.dependents import creating_kind
from pykai.lab.operators.jobset import JOB_SETS, job_set_kind
from pykai.lab.operators.kubeflow import TRAINING_KINDS, training_kinds
from pykai.lab.operators.leaderworkerset import LEADER_WORKER_SETS, leader_worker_set_kind
from pykai.lab.operators.mpi import MPI_JOBS, mpi_kind
from pykai.lab.operators.operator import operator
from pykai.lab.operators.ray import (
    RAY_CLUSTERS,
    RAY_JOBS,
    RAY_SERVICES,
    ray_cluster_kind,
    ray_job_kind,
    ray_service_kind,
)
from pykai.lab.operators.spark import SPARK_APPLICATIONS, spark_kind
from pykai.lab.operators.steps import OperatedKind
from pykai.lab.operators.trainer import CLUSTER_TRAINING_RUNTIMES, TRAIN_JOBS, TRAINING_RUNTIMES, train_job_kind

#: chooses every family
ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class OperatorFamily:
    """The kinds of one project."""

    #: as `--kinds` names it
    name: str
    kinds: tuple[CustomKind, ...]
    operated: tuple[OperatedKind[Any], ...] = ()
    #: kinds whose objects say what they create
    creating: tuple[OperatedKind[Any], ...] = ()
    #: families whose kinds these make
    needs: tuple[str, ...] = ()


def _foreign(group: str, version: str, kind: str) -> Resource:
    return Resource(group, version, f"{kind.lower()}s", kind, True)


def _bare(resource: Resource, *other_versions: str) -> CustomKind:
    """A kind without an operator."""
    return CustomKind(resource, PRESERVED_UNKNOWN, other_versions=other_versions)


def _creating_family(
    name: str,
    *kinds: tuple[Resource, tuple[Resource, ...]],
    other_versions: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
) -> OperatorFamily:
    """Kinds without an operator, each with the kinds that its objects create besides pods."""
    return OperatorFamily(
        name,
        tuple(_bare(resource, *other_versions) for resource, _ in kinds),
        creating=tuple(creating_kind(resource, *created) for resource, created in kinds),
        needs=needs,
    )


def _training_definitions() -> tuple[CustomKind, ...]:
    fields = {
        "PyTorchJob": "pytorchReplicaSpecs",
        "TFJob": "tfReplicaSpecs",
        "XGBoostJob": "xgbReplicaSpecs",
        "JAXJob": "jaxReplicaSpecs",
    }
    columns = (LAST_CONDITION, AGE)
    return tuple(
        CustomKind(kind.resource, training_schema(fields[kind.resource.kind]), columns) for kind in TRAINING_KINDS
    )


def _ray_definitions() -> tuple[CustomKind, ...]:
    versions = ("v1alpha1",)
    cluster_columns = (
        ("integer", "desired workers", ".status.desiredWorkerReplicas"),
        ("integer", "available workers", ".status.availableWorkerReplicas"),
        ("string", "status", ".status.state"),
        AGE,
    )
    job_columns = (
        ("string", "job status", ".status.jobStatus"),
        ("string", "deployment status", ".status.jobDeploymentStatus"),
        ("string", "ray cluster name", ".status.rayClusterName"),
        ("string", "start time", ".status.startTime"),
        ("string", "end time", ".status.endTime"),
        AGE,
    )
    job = open_schema(
        suspend=boolean(),
        shutdownAfterJobFinishes=boolean(),
        clusterSelector=PRESERVED_UNKNOWN,
        rayClusterSpec=ray_cluster_schema(),
        submitterPodTemplate=PRESERVED_UNKNOWN,
        ttlSecondsAfterFinished=integer(),
    )
    service = open_schema(rayClusterConfig=ray_cluster_schema())
    return (
        CustomKind(RAY_CLUSTERS, ray_cluster_schema(), cluster_columns, other_versions=versions),
        CustomKind(RAY_JOBS, job, job_columns, other_versions=versions),
        CustomKind(
            RAY_SERVICES, service, (("string", "service status", ".status.serviceStatus"), AGE), other_versions=versions
        ),
    )


def _trainer_definitions() -> tuple[CustomKind, ...]:
    trainer = open_schema(
        image=text(), command=array(text()), args=array(text()), numNodes=integer(), resourcesPerNode=PRESERVED_UNKNOWN
    )
    job = open_schema(runtimeRef=open_schema(name=text(), kind=text()), trainer=trainer)
    runtime = open_schema(template=PRESERVED_UNKNOWN)
    return (
        CustomKind(TRAIN_JOBS, job, (LAST_CONDITION, AGE)),
        CustomKind(TRAINING_RUNTIMES, runtime),
        CustomKind(CLUSTER_TRAINING_RUNTIMES, runtime),
    )


def _job_set_definition() -> CustomKind:
    columns = (
        ("string", "TerminalState", ".status.terminalState"),
        ("string", "Restarts", ".status.restarts"),
        ("string", "Completed", '.status.conditions[?(@.type=="Completed")].status'),
        ("string", "Suspended", ".spec.suspend"),
        AGE,
    )
    return CustomKind(JOB_SETS, job_set_schema(), columns)


def _leader_worker_definition() -> CustomKind:
    template = open_schema(
        size=integer(), leaderTemplate=PRESERVED_UNKNOWN, workerTemplate=PRESERVED_UNKNOWN, restartPolicy=text()
    )
    columns = (
        ("integer", "Desired", ".spec.replicas"),
        ("integer", "Ready", ".status.readyReplicas"),
        AGE,
    )
    return CustomKind(
        LEADER_WORKER_SETS,
        open_schema(replicas=integer(), startupPolicy=text(), leaderWorkerTemplate=template),
        columns,
        short_names=("lws",),
        replicas_path=".spec.replicas",
    )


def _spark_definition() -> CustomKind:
    columns = (
        ("string", "Status", ".status.applicationState.state"),
        ("string", "Attempts", ".status.executionAttempts"),
        ("string", "Start", ".status.lastSubmissionAttemptTime"),
        ("string", "Finish", ".status.terminationTime"),
        AGE,
    )
    return CustomKind(SPARK_APPLICATIONS, spark_schema(), columns, short_names=("sparkapp",))


_NOTEBOOK: Final = _foreign("kubeflow.org", "v1beta1", "Notebook")
_WORKFLOW: Final = _foreign("argoproj.io", "v1alpha1", "Workflow")
_POD_CLIQUE_SET: Final = _foreign("grove.io", "v1alpha1", "PodCliqueSet")
_POD_GANG_SET: Final = _foreign("grove.io", "v1alpha1", "PodGangSet")
_POD_CLIQUE: Final = _foreign("grove.io", "v1alpha1", "PodClique")
_POD_GANG: Final = _foreign("scheduler.grove.io", "v1alpha1", "PodGang")
_KNATIVE_SERVICE: Final = _foreign("serving.knative.dev", "v1", "Service")
_CONFIGURATION: Final = _foreign("serving.knative.dev", "v1", "Configuration")
_REVISION: Final = _foreign("serving.knative.dev", "v1", "Revision")
_RUNAI_JOB: Final = _foreign("run.ai", "v1", "RunaiJob")
_VM_INSTANCE: Final = _foreign("kubevirt.io", "v1", "VirtualMachineInstance")
_TASK_RUN: Final = _foreign("tekton.dev", "v1", "TaskRun")
_PYTORCH_JOB: Final = next(each.resource for each in TRAINING_KINDS if each.resource.kind == "PyTorchJob")
#: kinds of run.ai, and what they create
_RUNAI_WORKLOADS: Final = (
    ("TrainingWorkload", (_RUNAI_JOB,)),
    ("InteractiveWorkload", (_RUNAI_JOB,)),
    ("DistributedWorkload", (_PYTORCH_JOB,)),
    ("InferenceWorkload", (_KNATIVE_SERVICE,)),
    ("DistributedInferenceWorkload", (LEADER_WORKER_SETS,)),
)

_ROWS: Final = (
    OperatorFamily(
        "kubeflow",
        (
            *_training_definitions(),
            CustomKind(
                MPI_JOBS, training_schema("mpiReplicaSpecs"), (LAST_CONDITION, AGE), ("mj",), other_versions=("v1",)
            ),
            _bare(_NOTEBOOK),
        ),
        (*training_kinds(), mpi_kind()),
        (creating_kind(_NOTEBOOK, STATEFUL_SETS),),
    ),
    OperatorFamily("trainer", _trainer_definitions(), (train_job_kind(),), needs=("jobset",)),
    OperatorFamily("jobset", (_job_set_definition(),), (job_set_kind(),)),
    OperatorFamily("lws", (_leader_worker_definition(),), (leader_worker_set_kind(),)),
    OperatorFamily("ray", _ray_definitions(), (ray_cluster_kind(), ray_job_kind(), ray_service_kind())),
    OperatorFamily("spark", (_spark_definition(),), (spark_kind(),)),
    _creating_family(
        "argo", (_WORKFLOW, ()), (_foreign("kubeflow.org", "v1alpha1", "ScheduledWorkflow"), (_WORKFLOW,))
    ),
    _creating_family(
        "grove",
        (_POD_CLIQUE_SET, (_POD_CLIQUE, _POD_GANG)),
        (_POD_GANG_SET, (_POD_CLIQUE, _POD_GANG)),
        (_POD_CLIQUE, ()),
        (_foreign("grove.io", "v1alpha1", "PodCliqueScalingGroup"), (_POD_CLIQUE,)),
        (_POD_GANG, ()),
    ),
    _creating_family(
        "dynamo", (_foreign("nvidia.com", "v1alpha1", "DynamoGraphDeployment"), (_POD_CLIQUE_SET,)), needs=("grove",)
    ),
    _creating_family(
        "knative", (_KNATIVE_SERVICE, (_CONFIGURATION,)), (_CONFIGURATION, (_REVISION,)), (_REVISION, (DEPLOYMENTS,))
    ),
    _creating_family(
        "runai",
        (_RUNAI_JOB, ()),
        *((_foreign("run.ai", "v2alpha1", kind), created) for kind, created in _RUNAI_WORKLOADS),
        needs=("kubeflow", "knative", "lws"),
    ),
    _creating_family("azureml", (_foreign("amlarc.azureml.com", "v1alpha1", "AmlJob"), ())),
    _creating_family("egx", (_foreign("egx.nvidia.io", "v1", "SPOTRequest"), ())),
    _creating_family(
        "seldon",
        (_foreign("machinelearning.seldon.io", "v1", "SeldonDeployment"), (DEPLOYMENTS,)),
        other_versions=("v1alpha2",),
    ),
    _creating_family(
        "kubevirt", (_foreign("kubevirt.io", "v1", "VirtualMachine"), (_VM_INSTANCE,)), (_VM_INSTANCE, ())
    ),
    _creating_family("tekton", (_foreign("tekton.dev", "v1", "PipelineRun"), (_TASK_RUN,)), (_TASK_RUN, ())),
    _creating_family("devworkspace", (_foreign("workspace.devfile.io", "v1alpha2", "DevWorkspace"), (DEPLOYMENTS,))),
)

#: name -> row
FAMILIES: Final[dict[str, OperatorFamily]] = {row.name: row for row in _ROWS}


def read_families(names: str) -> tuple[OperatorFamily, ...]:
    """The chosen families and those that they need, in the order of the table; raises `ValueError`."""
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    if ALL in wanted:
        wanted |= FAMILIES.keys()
    for name in sorted(wanted - FAMILIES.keys() - {ALL}):
        hint = did_you_mean(name, (*FAMILIES, ALL))
        raise ValueError(f"there is no family of kinds {name!r}{hint or ';'} expected {', '.join(FAMILIES)}, or {ALL}")
    wanted |= {need for name in wanted & FAMILIES.keys() for need in FAMILIES[name].needs}
    return tuple(row for row in _ROWS if row.name in wanted)


def definitions(families: Sequence[OperatorFamily]) -> list[JsonObject]:
    """The CustomResourceDefinitions of these families."""
    return [kind.definition() for family in families for kind in family.kinds]


def operators(runtime: Runtime, families: Sequence[OperatorFamily]) -> list[Service]:
    """The operators of these families; create them before the caches start."""
    return [operator(kind)(runtime) for family in families for kind in (*family.operated, *family.creating)]
