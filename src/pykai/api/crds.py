"""The custom resources, as CustomResourceDefinitions to be installed.

Queue, PodGroup, BindRequest, Topology, Config and SchedulingShard.

`custom_resource_definitions()` returns them as plain documents.  The schemas of Config and SchedulingShard are made
from their types in `api.installation`.  The others are written field by field with a few small functions (`text`,
`integer`, `object_schema`, ...), because they are a contract with other writers and hold more than our own pruned types
read; a test compares both, so that the API server prunes no field we read.

Subtle: there are no defaults in any schema, as in KAI: absence has a meaning of its own.  Allocations of claims inside
a BindRequest are passed on untouched, in whatever version of resource.k8s.io wrote them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from pykai.api import names, topology
from pykai.api.fieldmeanings import MEANINGS, describe, printer_columns
from pykai.api.installation import Config, SchedulingShard
from pykai.api.meta import Wire
from pykai.api.typeschemas import properties_of

SchemaDocument = dict[str, Any]

_DECIMAL = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
_SUB_GROUP_NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_KEY = rf"^({_DNS_LABEL}(\.{_DNS_LABEL})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"

#: anything below is kept as it is
PRESERVED_UNKNOWN: SchemaDocument = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def text(**rules: Any) -> SchemaDocument:
    """A string."""
    return {"type": "string", **rules}


def integer(bits: int = 32, **rules: Any) -> SchemaDocument:
    """A whole number."""
    return {"type": "integer", "format": f"int{bits}", **rules}


def number() -> SchemaDocument:
    """A number with a fraction."""
    return {"type": "number"}


def boolean() -> SchemaDocument:
    """True or false."""
    return {"type": "boolean"}


def date_time() -> SchemaDocument:
    """A timestamp."""
    return {"type": "string", "format": "date-time"}


def object_schema(required: tuple[str, ...] = (), /, **properties: SchemaDocument) -> SchemaDocument:
    """An object with these fields."""
    schema: SchemaDocument = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema


def array(items: SchemaDocument, **rules: Any) -> SchemaDocument:
    """A list of these."""
    return {"type": "array", "items": items, **rules}


def resources() -> SchemaDocument:
    """Resource names and quantities."""
    quantity: SchemaDocument = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "pattern": rf"^(\+|-)?{_DECIMAL}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_DECIMAL}))?$",
    }
    return {"type": "object", "additionalProperties": quantity}


def _unshared(schema: Any) -> Any:
    """A copy in which each place has its own part: some are used in several, with another meaning in each.

    `deepcopy` would share again what was shared, and the description written last would stand in all places.
    """
    if isinstance(schema, dict):
        return {key: _unshared(value) for key, value in schema.items()}
    return [_unshared(each) for each in schema] if isinstance(schema, list) else schema


def _definition(
    *,
    group: str,
    version: str,
    kind: str,
    plural: str,
    scope: str,
    properties: dict[str, SchemaDocument],
    required: tuple[str, ...] = (),
    status: bool = True,
    short_names: tuple[str, ...] = (),
) -> dict[str, Any]:
    """One definition with one version, completed with what its fields mean."""
    schema = _unshared(
        object_schema(required, apiVersion=text(), kind=text(), metadata={"type": "object"}, **properties)
    )
    describe(schema, MEANINGS[kind])
    served: dict[str, Any] = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    if status:
        served["subresources"] = {"status": {}}
    if columns := printer_columns(kind):
        served["additionalPrinterColumns"] = columns
    kinds: dict[str, Any] = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    if short_names:
        kinds["shortNames"] = list(short_names)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": kinds, "scope": scope, "versions": [served]},
    }


def queue() -> dict[str, Any]:
    """queues:Q-10 to Q-18."""
    amounts = object_schema(quota=number(), limit=number(), overQuotaWeight=number())
    condition = object_schema(
        ("type", "status"),
        type=text(),
        status=text(),
        lastProbeTime=date_time(),
        lastTransitionTime=date_time(),
        reason=text(),
        message=text(),
    )
    return _definition(
        group=names.SCHEDULING_GROUP,
        version="v2",
        kind="Queue",
        plural="queues",
        scope="Cluster",
        properties={
            "spec": object_schema(
                displayName=text(),
                parentQueue=text(),
                priority=integer(64),
                preemptMinRuntime=text(),
                reclaimMinRuntime=text(),
                resources=object_schema(gpu=amounts, cpu=amounts, memory=amounts),
                admissionGating=boolean(),
            ),
            "status": object_schema(
                childQueues=array(text()),
                allocated=resources(),
                allocatedNonPreemptible=resources(),
                requested=resources(),
                fairShare=resources(),
                conditions=array(condition),
            ),
        },
    )


def pod_group() -> dict[str, Any]:
    """workloads:PG-1 to PG-8."""
    constraint = object_schema(topology=text(), requiredTopologyLevel=text(), preferredTopologyLevel=text())
    sub_group = object_schema(
        ("name",),
        name=text(minLength=1, pattern=_SUB_GROUP_NAME),
        minMember=integer(minimum=0),
        minSubGroup=integer(minimum=0),
        parent=text(pattern=_SUB_GROUP_NAME),
        topologyConstraint=constraint,
    )
    return _definition(
        group=names.SCHEDULING_GROUP,
        version="v2alpha2",
        kind="PodGroup",
        plural="podgroups",
        scope="Namespaced",
        short_names=("pg",),
        properties={
            "spec": object_schema(
                minMember=integer(minimum=0),
                minSubGroup=integer(minimum=0),
                queue=text(),
                priorityClassName=text(),
                preemptibility=text(enum=["preemptible", "non-preemptible"]),
                topologyConstraint=constraint,
                subGroups=array(sub_group),
                markUnschedulable=boolean(),
                schedulingBackoff=integer(),
                preemptionDelay=text(),
                stalenessGracePeriod=text(),
            ),
            "status": _pod_group_status(),
        },
    )


def _pod_group_status() -> dict[str, Any]:
    queue_details = object_schema(
        name=text(),
        queueRequestedResources=resources(),
        queueDeservedResources=resources(),
        queueAllocatedNonPreemptibleResources=resources(),
        podGroupRequestedResources=resources(),
        podGroupRequestedNonPreemptibleResources=resources(),
        queueAllocatedResources=resources(),
        queueResourceLimits=resources(),
    )
    reason = object_schema(reason=text(), message=text(), details=object_schema(queueDetails=queue_details))
    condition_fields = {
        "type": text(),
        "status": text(),
        "transitionID": text(),
        "lastTransitionTime": date_time(),
        "reason": text(),
        "message": text(),
    }
    return object_schema(
        conditions=array(object_schema(**condition_fields)),
        schedulingConditions=array(object_schema(**condition_fields, nodePool=text(), reasons=array(reason))),
        resourcesStatus=object_schema(
            allocated=resources(), allocatedNonPreemptible=resources(), requested=resources()
        ),
        state=text(),
        pods=object_schema(total=integer(), placed=integer()),
    )


def bind_request() -> dict[str, Any]:
    """gpu:7."""
    mapping = object_schema(containerName=text(), resourceName=text(), requestName=text())
    return _definition(
        group=names.SCHEDULING_GROUP,
        version="v1alpha2",
        kind="BindRequest",
        plural="bindrequests",
        scope="Namespaced",
        properties={
            "spec": object_schema(
                podName=text(),
                selectedNode=text(),
                receivedResourceType=text(),
                receivedGPU=object_schema(count=integer(64), portion=text()),
                selectedGPUGroups=array(text()),
                resourceClaimAllocations=array(object_schema(name=text(), allocation=PRESERVED_UNKNOWN)),
                extendedResourceClaimAllocation=object_schema(
                    allocation=PRESERVED_UNKNOWN,
                    deviceRequests=array(PRESERVED_UNKNOWN),
                    containerMappings=array(mapping),
                ),
                predictedNUMAZones=array(object_schema(("amount", "zone"), zone=text(), amount=resources())),
                backoffLimit=integer(),
            ),
            "status": object_schema(phase=text(), reason=text(), failedAttempts=integer()),
        },
    )


def network_topology() -> dict[str, Any]:
    """topo:2."""
    label = text(minLength=1, maxLength=topology.LONGEST_LABEL, pattern=_LABEL_KEY)
    rules = [
        {
            "rule": "self.map(l, l.nodeLabel) == oldSelf.map(l, l.nodeLabel)",
            "message": topology.STRUCTURE_IS_IMMUTABLE,
        },
        {
            "rule": "self.all(x, self.filter(y, y.nodeLabel == x.nodeLabel).size() == 1)",
            "message": topology.LABELS_ARE_UNIQUE,
        },
        {
            "rule": "!self.exists(l, l.nodeLabel == 'kubernetes.io/hostname')"
            " || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
            "message": topology.HOST_IS_LOWEST,
        },
    ]
    levels = array(
        object_schema(("nodeLabel",), nodeLabel=label, alias=label),
        minItems=1,
        maxItems=topology.MOST_LEVELS,
        **{"x-kubernetes-list-type": "atomic", "x-kubernetes-validations": rules},
    )
    return _definition(
        group=names.KAI_GROUP,
        version="v1alpha1",
        kind="Topology",
        plural="topologies",
        scope="Cluster",
        status=False,
        required=("spec",),
        properties={"spec": object_schema(("levels",), levels=levels)},
    )


def config() -> dict[str, Any]:
    """operations:2."""
    return _installation_definition("Config", "configs", Config)


def scheduling_shard() -> dict[str, Any]:
    """operations:3."""
    return _installation_definition("SchedulingShard", "schedulingshards", SchedulingShard)


def _installation_definition(kind: str, plural: str, wire: type[Wire]) -> dict[str, Any]:
    return _definition(
        group=names.KAI_GROUP,
        version="v1",
        kind=kind,
        plural=plural,
        scope="Cluster",
        properties=properties_of(wire),
    )


@cache
def _encoded() -> bytes:
    return msgspec.json.encode([queue(), pod_group(), bind_request(), network_topology(), config(), scheduling_shard()])


def custom_resource_definitions() -> list[dict[str, Any]]:
    """All definitions, in the order in which they are installed, as documents of the caller's own."""
    return msgspec.json.decode(_encoded(), type=list[dict[str, Any]])
