"""What the specification (docs/spec) says of our custom resources, as a table that the definitions are compared with.

`DEFINITIONS` has what holds for a whole kind, `FIELDS` one row for each field: its path (`[]` for the elements of a
list), its type, what else the schema demands of it, and where that is written.  A field that is not in the table is in
no schema, and a demand that is not in the table is made by none.

Types are the specification's words: `int32` and `time` are a type with a format, `resources` is a ResourceList,
`document` an object whose fields are another API's and are kept as they come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Definition:
    """A kind as a whole."""

    group: str
    version: str
    plural: str
    singular: str
    scope: str
    said: str
    short_names: tuple[str, ...] = ()
    status: bool = True
    #: those of KAI, which come first: name, JSON path; all of type string
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Field:
    """A field of a kind."""

    path: str
    type: str
    said: str
    rules: dict[str, Any] = field(default_factory=dict)


DEFINITIONS = {
    "Queue": Definition(
        "scheduling.run.ai",
        "v2",
        "queues",
        "queue",
        "Cluster",
        "queues:Q-10, Q-11, Q-12",
        columns=(
            ("Priority", ".spec.priority"),
            ("Parent", ".spec.parentQueue"),
            ("Children", ".status.childQueues"),
            ("DisplayName", ".spec.displayName"),
        ),
    ),
    "PodGroup": Definition(
        "scheduling.run.ai", "v2alpha2", "podgroups", "podgroup", "Namespaced", "workloads:PG-1", short_names=("pg",)
    ),
    "BindRequest": Definition("scheduling.run.ai", "v1alpha2", "bindrequests", "bindrequest", "Namespaced", "gpu:7"),
    "Topology": Definition("kai.scheduler", "v1alpha1", "topologies", "topology", "Cluster", "topo:2", status=False),
}

_SUB_GROUP_NAME = {"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
_AT_LEAST_0 = {"minimum": 0}
_REQUIRED = {"required": True}
#: a key of a label: the pattern itself is the definition's affair, tests/lab/apiserver/test_our_kinds.py tries it
_LABEL = {"minLength": 1, "maxLength": 316, "pattern": ...}


def _constraint(path: str, said: str) -> list[Field]:
    names = ("topology", "requiredTopologyLevel", "preferredTopologyLevel")
    return [Field(path, "object", said), *(Field(f"{path}.{name}", "string", "workloads:PG-4") for name in names)]


def _condition(path: str, said: str) -> list[Field]:
    texts = ("type", "status", "transitionID", "reason", "message")
    return [
        Field(path, "list", said),
        Field(f"{path}[]", "object", said),
        *(Field(f"{path}[].{name}", "string", said) for name in texts),
        Field(f"{path}[].lastTransitionTime", "time", said),
    ]


_QUEUE = [
    Field("spec", "object", "queues:2.1"),
    Field("spec.displayName", "string", "queues:2.1"),
    Field("spec.parentQueue", "string", "queues:2.1"),
    Field("spec.priority", "integer", "queues:2.1"),
    Field("spec.preemptMinRuntime", "string", "queues:2.1"),
    Field("spec.reclaimMinRuntime", "string", "queues:2.1"),
    Field("spec.admissionGating", "boolean", "queues:Q-405"),
    Field("spec.resources", "object", "queues:2.1"),
    *(Field(f"spec.resources.{kind}", "object", "queues:2.1") for kind in ("gpu", "cpu", "memory")),
    *(
        Field(f"spec.resources.{kind}.{amount}", "number", "queues:2.1, Q-16")
        for kind in ("gpu", "cpu", "memory")
        for amount in ("quota", "limit", "overQuotaWeight")
    ),
    Field("status", "object", "queues:2.2"),
    Field("status.childQueues", "list", "queues:2.2"),
    Field("status.childQueues[]", "string", "queues:2.2"),
    Field("status.allocated", "resources", "queues:2.2"),
    Field("status.allocatedNonPreemptible", "resources", "queues:2.2"),
    Field("status.requested", "resources", "queues:2.2"),
    Field("status.fairShare", "resources", "status:fair-share"),
    Field("status.conditions", "list", "queues:2.2"),
    Field("status.conditions[]", "object", "queues:2.2"),
    Field("status.conditions[].type", "string", "queues:2.2, Q-13", _REQUIRED),
    Field("status.conditions[].status", "string", "queues:2.2, Q-13", _REQUIRED),
    Field("status.conditions[].lastProbeTime", "time", "queues:2.2"),
    Field("status.conditions[].lastTransitionTime", "time", "queues:2.2"),
    Field("status.conditions[].reason", "string", "queues:2.2"),
    Field("status.conditions[].message", "string", "queues:2.2"),
]

_POD_GROUP = [
    Field("spec", "object", "workloads:PG-2"),
    Field("spec.minMember", "int32", "workloads:PG-2", _AT_LEAST_0),
    Field("spec.minSubGroup", "int32", "workloads:PG-2", _AT_LEAST_0),
    Field("spec.queue", "string", "workloads:PG-2"),
    Field("spec.priorityClassName", "string", "workloads:PG-2"),
    Field("spec.preemptibility", "string", "workloads:PG-2, queues:Q-81", {"enum": ["preemptible", "non-preemptible"]}),
    *_constraint("spec.topologyConstraint", "workloads:PG-2"),
    Field("spec.subGroups", "list", "workloads:PG-2"),
    Field("spec.subGroups[]", "object", "workloads:PG-3"),
    Field("spec.subGroups[].name", "string", "workloads:PG-3", {**_REQUIRED, "minLength": 1, **_SUB_GROUP_NAME}),
    Field("spec.subGroups[].minMember", "int32", "workloads:PG-3", _AT_LEAST_0),
    Field("spec.subGroups[].minSubGroup", "int32", "workloads:PG-3", _AT_LEAST_0),
    Field("spec.subGroups[].parent", "string", "workloads:PG-3", _SUB_GROUP_NAME),
    *_constraint("spec.subGroups[].topologyConstraint", "workloads:PG-3"),
    Field("spec.markUnschedulable", "boolean", "workloads:PG-2"),
    Field("spec.schedulingBackoff", "int32", "workloads:PG-2"),
    Field("spec.preemptionDelay", "string", "workloads:PG-2"),
    Field("spec.stalenessGracePeriod", "string", "workloads:PG-2"),
    Field("status", "object", "workloads:PG-5"),
    *_condition("status.conditions", "workloads:PG-5"),
    *_condition("status.schedulingConditions", "workloads:PG-6"),
    Field("status.schedulingConditions[].nodePool", "string", "workloads:PG-6"),
    Field("status.schedulingConditions[].reasons", "list", "workloads:PG-6"),
    Field("status.schedulingConditions[].reasons[]", "object", "workloads:PG-6"),
    Field("status.schedulingConditions[].reasons[].reason", "string", "workloads:PG-6"),
    Field("status.schedulingConditions[].reasons[].message", "string", "workloads:PG-6"),
    Field("status.schedulingConditions[].reasons[].details", "object", "workloads:PG-6"),
    Field("status.schedulingConditions[].reasons[].details.queueDetails", "object", "workloads:PG-6"),
    Field("status.schedulingConditions[].reasons[].details.queueDetails.name", "string", "queues:Q-207"),
    *(
        Field(f"status.schedulingConditions[].reasons[].details.queueDetails.{name}", "resources", "queues:Q-207")
        for name in (
            "queueRequestedResources",
            "queueDeservedResources",
            "queueAllocatedResources",
            "queueAllocatedNonPreemptibleResources",
            "queueResourceLimits",
            "podGroupRequestedResources",
            "podGroupRequestedNonPreemptibleResources",
        )
    ),
    Field("status.resourcesStatus", "object", "workloads:PG-8"),
    Field("status.resourcesStatus.allocated", "resources", "workloads:PG-8"),
    Field("status.resourcesStatus.allocatedNonPreemptible", "resources", "workloads:PG-8"),
    Field("status.resourcesStatus.requested", "resources", "workloads:PG-8"),
    Field("status.state", "string", "status:group"),
    Field("status.pods", "object", "status:group"),
    Field("status.pods.total", "int32", "status:group"),
    Field("status.pods.placed", "int32", "status:group"),
]

_BIND_REQUEST = [
    Field("spec", "object", "gpu:7"),
    Field("spec.podName", "string", "gpu:7"),
    Field("spec.selectedNode", "string", "gpu:7"),
    Field("spec.receivedResourceType", "string", "gpu:7"),
    Field("spec.receivedGPU", "object", "gpu:7"),
    Field("spec.receivedGPU.count", "integer", "gpu:7"),
    Field("spec.receivedGPU.portion", "string", "gpu:7"),
    Field("spec.selectedGPUGroups", "list", "gpu:7"),
    Field("spec.selectedGPUGroups[]", "string", "gpu:7"),
    Field("spec.resourceClaimAllocations", "list", "gpu:7"),
    Field("spec.resourceClaimAllocations[]", "object", "gpu:7"),
    Field("spec.resourceClaimAllocations[].name", "string", "gpu:7"),
    Field("spec.resourceClaimAllocations[].allocation", "document", "gpu:7"),
    Field("spec.extendedResourceClaimAllocation", "object", "gpu:7"),
    Field("spec.extendedResourceClaimAllocation.allocation", "document", "gpu:7"),
    Field("spec.extendedResourceClaimAllocation.deviceRequests", "list", "gpu:7"),
    Field("spec.extendedResourceClaimAllocation.deviceRequests[]", "document", "gpu:7"),
    Field("spec.extendedResourceClaimAllocation.containerMappings", "list", "gpu:7"),
    Field("spec.extendedResourceClaimAllocation.containerMappings[]", "object", "gpu:7"),
    *(
        Field(f"spec.extendedResourceClaimAllocation.containerMappings[].{name}", "string", "gpu:11.4")
        for name in ("containerName", "resourceName", "requestName")
    ),
    Field("spec.predictedNUMAZones", "list", "gpu:7"),
    Field("spec.predictedNUMAZones[]", "object", "gpu:7"),
    Field("spec.predictedNUMAZones[].zone", "string", "gpu:7", _REQUIRED),
    Field("spec.predictedNUMAZones[].amount", "resources", "gpu:7", _REQUIRED),
    Field("spec.backoffLimit", "int32", "gpu:7"),
    Field("status", "object", "gpu:7"),
    Field("status.phase", "string", "gpu:7"),
    Field("status.reason", "string", "gpu:7"),
    Field("status.failedAttempts", "int32", "gpu:7"),
]

_TOPOLOGY = [
    Field("spec", "object", "topo:2", _REQUIRED),
    Field(
        "spec.levels",
        "list",
        "topo:2",
        {
            **_REQUIRED,
            "minItems": 1,
            "maxItems": 16,
            "x-kubernetes-list-type": "atomic",
            "messages": [
                "nodeLabel structure is immutable; only aliases may be edited",
                "nodeLabel must be unique",
                "the kubernetes.io/hostname label can only be used at the lowest level of topology",
            ],
        },
    ),
    Field("spec.levels[]", "object", "topo:2"),
    Field("spec.levels[].nodeLabel", "string", "topo:2", {**_REQUIRED, **_LABEL}),
    Field("spec.levels[].alias", "string", "topo:2", _LABEL),
]

FIELDS: dict[str, list[Field]] = {
    "Queue": _QUEUE,
    "PodGroup": _POD_GROUP,
    "BindRequest": _BIND_REQUEST,
    "Topology": _TOPOLOGY,
}
