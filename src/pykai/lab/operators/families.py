"""The table of operators that the lab can play: one row for each family, with its definitions and its operators.

`kai up --kinds kubeflow,ray` and `kai run operators --kinds kubeflow,ray` choose rows. A row may need others: Kubeflow
Trainer makes JobSets. Rows without operators are definitions alone, so that objects of these kinds can own pods that
something else creates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pykai.api.crds import PRESERVED_UNKNOWN, array, boolean, integer, text
from pykai.api.suggestions import did_you_mean
from pykai.api.unstructured import JsonObject
from pykai.kube.resources import Resource
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
    #: families whose kinds these make
    needs: tuple[str, ...] = ()


def _bare(group: str, version: str, kind: str) -> CustomKind:
    """A kind without an operator."""
    return CustomKind(Resource(group, version, f"{kind.lower()}s", kind, True), PRESERVED_UNKNOWN)


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


_ROWS: Final = (
    OperatorFamily(
        "kubeflow",
        (
            *_training_definitions(),
            CustomKind(
                MPI_JOBS, training_schema("mpiReplicaSpecs"), (LAST_CONDITION, AGE), ("mj",), other_versions=("v1",)
            ),
            _bare("kubeflow.org", "v1beta1", "Notebook"),
        ),
        (*training_kinds(), mpi_kind()),
    ),
    OperatorFamily("trainer", _trainer_definitions(), (train_job_kind(),), needs=("jobset",)),
    OperatorFamily("jobset", (_job_set_definition(),), (job_set_kind(),)),
    OperatorFamily("lws", (_leader_worker_definition(),), (leader_worker_set_kind(),)),
    OperatorFamily("ray", _ray_definitions(), (ray_cluster_kind(), ray_job_kind(), ray_service_kind())),
    OperatorFamily("spark", (_spark_definition(),), (spark_kind(),)),
    OperatorFamily("argo", (_bare("argoproj.io", "v1alpha1", "Workflow"),)),
    OperatorFamily(
        "grove",
        (
            *(_bare("grove.io", "v1alpha1", kind) for kind in ("PodCliqueSet", "PodClique", "PodCliqueScalingGroup")),
            _bare("scheduler.grove.io", "v1alpha1", "PodGang"),
        ),
    ),
    OperatorFamily(
        "knative", tuple(_bare("serving.knative.dev", "v1", kind) for kind in ("Service", "Configuration", "Revision"))
    ),
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
    return [operator(kind)(runtime) for family in families for kind in family.operated]
