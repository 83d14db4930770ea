"""CustomResourceDefinitions of the kinds that the lab's operators run, cut down to what these read.

Everything else of a manifest is kept as it was written, so that those of the originals can be applied. Names, versions,
short names and the columns of `kubectl get` are the originals'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykai.api.crds import PRESERVED_UNKNOWN, SchemaDocument, array, boolean, integer, object_schema, text
from pykai.api.unstructured import JsonObject
from pykai.kube.resources import Resource

#: type of a printer column, its name and its path
ColumnDefinition = tuple[str, str, str]

AGE: Final[ColumnDefinition] = ("date", "Age", ".metadata.creationTimestamp")
LAST_CONDITION: Final[ColumnDefinition] = ("string", "State", ".status.conditions[-1:].type")


@dataclass(frozen=True, slots=True)
class CustomKind:
    """A definition as a row of a table."""

    #: in the version that is stored
    resource: Resource
    #: fields of the spec that operators read
    fields: SchemaDocument
    columns: tuple[ColumnDefinition, ...] = (AGE,)
    short_names: tuple[str, ...] = ()
    #: versions that are served besides
    other_versions: tuple[str, ...] = ()
    #: where `kubectl scale` finds the number of replicas; empty: nowhere
    replicas_path: str = ""

    def definition(self) -> JsonObject:
        """The CustomResourceDefinition."""
        resource = self.resource
        names: JsonObject = {
            "kind": resource.kind,
            "listKind": f"{resource.kind}List",
            "plural": resource.plural,
            "singular": resource.kind.lower(),
        }
        if self.short_names:
            names["shortNames"] = list(self.short_names)
        metadata: JsonObject = {"name": f"{resource.plural}.{resource.group}"}
        if resource.group.endswith(".k8s.io"):
            # Servers refuse kinds in groups of Kubernetes that do not say whether these were approved.
            metadata["annotations"] = {"api-approved.kubernetes.io": "unapproved, cut down for simulated clusters"}
        versions = [self._version(resource.version), *(self._version(each) for each in self.other_versions)]
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": metadata,
            "spec": {
                "group": resource.group,
                "names": names,
                "scope": "Namespaced" if resource.namespaced else "Cluster",
                "versions": versions,
            },
        }

    def _version(self, version: str) -> JsonObject:
        schema = object_schema(
            apiVersion=text(), kind=text(), metadata={"type": "object"}, spec=self.fields, status=PRESERVED_UNKNOWN
        )
        subresources: JsonObject = {"status": {}}
        if self.replicas_path:
            subresources["scale"] = {"specReplicasPath": self.replicas_path, "statusReplicasPath": ".status.replicas"}
        return {
            "name": version,
            "served": True,
            "storage": version == self.resource.version,
            "schema": {"openAPIV3Schema": schema},
            "subresources": subresources,
            "additionalPrinterColumns": [
                {"type": kind, "name": name, "jsonPath": path} for kind, name, path in self.columns
            ],
        }


def open_schema(**fields: SchemaDocument) -> SchemaDocument:
    """An object with these fields, and others that are kept."""
    return {**object_schema(**fields), "x-kubernetes-preserve-unknown-fields": True}


def roles_schema() -> SchemaDocument:
    """Roles by name, each with a number of replicas and a template."""
    role = open_schema(replicas=integer(), restartPolicy=text(), template=PRESERVED_UNKNOWN)
    return {"type": "object", "additionalProperties": role}


def training_schema(*roles: str) -> SchemaDocument:
    """The spec of a job of Kubeflow with its roles in these fields."""
    policy = open_schema(
        suspend=boolean(),
        cleanPodPolicy=text(),
        backoffLimit=integer(),
        activeDeadlineSeconds=integer(64),
        ttlSecondsAfterFinished=integer(),
        schedulingPolicy=open_schema(minAvailable=integer()),
    )
    return open_schema(runPolicy=policy, **{role: roles_schema() for role in roles})


def ray_cluster_schema() -> SchemaDocument:
    """The spec of a RayCluster, also inside a RayJob and a RayService."""
    workers = open_schema(
        groupName=text(),
        replicas=integer(),
        minReplicas=integer(),
        maxReplicas=integer(),
        numOfHosts=integer(),
        suspend=boolean(),
        template=PRESERVED_UNKNOWN,
    )
    return open_schema(
        suspend=boolean(),
        headGroupSpec=open_schema(template=PRESERVED_UNKNOWN),
        workerGroupSpecs=array(workers),
    )


def job_set_schema() -> SchemaDocument:
    """The spec of a JobSet."""
    job = open_schema(name=text(), replicas=integer(), template=PRESERVED_UNKNOWN)
    return open_schema(
        suspend=boolean(),
        replicatedJobs=array(job),
        startupPolicy=open_schema(startupPolicyOrder=text()),
        failurePolicy=open_schema(maxRestarts=integer()),
        successPolicy=open_schema(operator=text(), targetReplicatedJobs=array(text())),
        ttlSecondsAfterFinished=integer(),
    )


def spark_schema() -> SchemaDocument:
    """The spec of a SparkApplication."""
    pod = open_schema(
        cores=integer(),
        memory=text(),
        instances=integer(),
        gpu=open_schema(name=text(), quantity=integer(64)),
        template=PRESERVED_UNKNOWN,
        schedulerName=text(),
    )
    return open_schema(
        suspend=boolean(),
        image=text(),
        driver=pod,
        executor=pod,
        restartPolicy=open_schema(type=text(), onFailureRetries=integer()),
    )
