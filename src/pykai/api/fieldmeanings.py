"""What each field of our kinds means, as `kubectl explain` says it, and the columns that `kubectl get` prints.

The definitions in `crds` are completed from these tables; a test fails on a field without a row, and on a row without a
field.  Fields of Config and SchedulingShard say their meaning in `installation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

Schema = dict[str, Any]


class Column(NamedTuple):
    """A column of `kubectl get`."""

    name: str
    #: JSONPath into the object
    path: str
    meaning: str
    type: str = "string"
    #: with `-o wide` only
    is_wide: bool = False


_GPU: Final = r"nvidia\.com/gpu"

#: those of KAI first, in its order (queues:Q-12)
COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = {
    "Queue": (
        Column("Priority", ".spec.priority", "Which queue is served first; higher before lower."),
        Column("Parent", ".spec.parentQueue", "The queue above."),
        Column("Children", ".status.childQueues", "The queues below."),
        Column("DisplayName", ".spec.displayName", "Name in messages and metrics."),
        Column("GPU-Quota", ".spec.resources.gpu.quota", "GPUs the queue is sure of; -1 is unlimited."),
        Column(
            "GPU-Fair-Share", ".status.fairShare.gpu", "GPUs the queue may have now, its part of the surplus included."
        ),
        Column("GPU-Allocated", f".status.allocated.{_GPU}", "NVIDIA GPUs of pods with a node, queues below included."),
        Column("GPU-Requested", f".status.requested.{_GPU}", "NVIDIA GPUs of running and waiting pods."),
        Column("GPU-Limit", ".spec.resources.gpu.limit", "GPUs the queue may have at most.", is_wide=True),
        Column("CPU-Quota", ".spec.resources.cpu.quota", "Thousandths of a core it is sure of.", is_wide=True),
        Column("Memory-Quota", ".spec.resources.memory.quota", "Megabytes it is sure of.", is_wide=True),
        Column("Fair-Share", ".status.fairShare", "The same for GPUs, CPU and memory.", is_wide=True),
        Column("Allocated", ".status.allocated", "All resources of pods with a node.", is_wide=True),
        Column("Requested", ".status.requested", "All resources of running and waiting pods.", is_wide=True),
        Column("Age", ".metadata.creationTimestamp", "How long ago it was made.", "date"),
    ),
    "PodGroup": (
        Column("Queue", ".spec.queue", "The queue whose share it uses."),
        Column("Minimum", ".spec.minMember", "Pods that start together; subgroups have their own.", "integer"),
        Column("Pods", ".status.pods.total", "Pods that have not ended.", "integer"),
        Column("Placed", ".status.pods.placed", "Those that have a node.", "integer"),
        Column("State", ".status.state", "How far it has come."),
        Column("Reason", ".status.schedulingConditions[0].reasons[0].reason", "Why it waits."),
        Column(
            "Ready",
            '.status.conditions[?(@.type=="Ready")].status',
            "The pods of the minimum exist.",
            is_wide=True,
        ),
        Column("Scheduled", '.status.conditions[?(@.type=="Scheduled")].status', "They have nodes.", is_wide=True),
        Column("Running", '.status.conditions[?(@.type=="Running")].status', "They run.", is_wide=True),
        Column("Priority-Class", ".spec.priorityClassName", "Its priority class.", is_wide=True),
        Column("Requested", ".status.resourcesStatus.requested", "Resources of its pods.", is_wide=True),
        Column("Age", ".metadata.creationTimestamp", "How long ago it was made.", "date"),
    ),
    "BindRequest": (
        Column("Pod", ".spec.podName", "The pod that is bound."),
        Column("Node", ".spec.selectedNode", "The node it goes to."),
        Column("Phase", ".status.phase", "Pending, Succeeded or Failed."),
        Column("Attempts", ".status.failedAttempts", "Attempts that failed.", "integer"),
        Column("Reason", ".status.reason", "Why the last one failed.", is_wide=True),
        Column("Age", ".metadata.creationTimestamp", "How long ago it was made.", "date"),
    ),
    "Topology": (
        Column("Coarsest", ".spec.levels[0].nodeLabel", "The label of nodes that names domains of the coarsest level."),
        Column("Levels", ".spec.levels", "All levels, from the coarsest to the finest.", is_wide=True),
        Column("Age", ".metadata.creationTimestamp", "How long ago it was made.", "date"),
    ),
    "Config": (
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status', "All components are deployed and available."),
        Column("Available", '.status.conditions[?(@.type=="Available")].message', "What is not available."),
        Column("Age", ".metadata.creationTimestamp", "How long ago it was made.", "date"),
    ),
    "SchedulingShard": (
        Column("Pool", ".spec.partitionLabelValue", "The node pool; empty for nodes without one."),
        Column("GPU-Strategy", ".spec.placementStrategy.gpu", "How pods with GPUs are placed."),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status', "Its scheduler is available."),
        Column("Age", ".metadata.creationTimestamp", "How long ago it was made.", "date"),
    ),
}

_OBJECT: Final = {
    "apiVersion": "Version of the API.",
    "kind": "Kind of the object.",
    # Of its metadata an API server allows no description.
}
_AMOUNTS: Final = {
    "quota": "What the queue is sure of, and gets back from others; -1 is unlimited, nothing is 0.",
    "limit": "What the queue may have at most; -1 is unlimited, nothing is 0: then no pod that asks for it starts.",
    "overQuotaWeight": "Weight in the division of what is left over once all quotas are served; nothing is 0.",
}
_CONDITION: Final = {
    "type": "What the condition is about.",
    "status": "True, False or Unknown.",
    "transitionID": "Counts transitions of the group's conditions.",
    "lastProbeTime": "Not written.",
    "lastTransitionTime": "When the status last changed.",
    "reason": "One word on why.",
    "message": "A sentence on why, with figures.",
}
_CONSTRAINT: Final = {
    "topology": "Name of the Topology.",
    "requiredTopologyLevel": "Level, by label or alias: all pods go into one domain of it, or wait.",
    "preferredTopologyLevel": "Level, by label or alias: pods go into one domain of it where possible.",
}
_SUMS: Final = {
    "allocated": "Resources of pods that have a node.",
    "allocatedNonPreemptible": "The part of it that belongs to work that is never preempted.",
    "requested": "Resources of running and waiting pods.",
}
_QUEUE_DETAILS: Final = {
    "name": "The queue that refuses.",
    "queueRequestedResources": "What the queue asks for.",
    "queueDeservedResources": "Its quota.",
    "queueAllocatedNonPreemptibleResources": "What work that is never preempted has of it.",
    "podGroupRequestedResources": "What the group asks for.",
    "podGroupRequestedNonPreemptibleResources": "The part of it that is never preempted.",
    "queueAllocatedResources": "What the queue has.",
    "queueResourceLimits": "Its limit.",
}


def _below(path: str, texts: Mapping[str, str], *names: str) -> dict[str, str]:
    return {f"{path}.{name}": text for name, text in texts.items() if not names or name in names}


#: kind -> path, `[]` for the elements of a list -> meaning
MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "Queue": {
        **_OBJECT,
        "spec": "What a team may use, and how it shares with others.",
        "spec.displayName": "Name in messages and metrics; the object's own name without it.",
        "spec.parentQueue": "Name of the queue above; without it the queue stands at the top.",
        "spec.priority": "Queues of a higher priority are served first among equals; 100 without it.",
        "spec.preemptMinRuntime": "How long work runs before work of the same queue may preempt it, as in 10m.",
        "spec.reclaimMinRuntime": "How long work runs before another queue may reclaim its resources, as in 10m.",
        "spec.resources": "Quota, limit and weight of each resource. What is left out is 0: a queue that names GPUs"
        " only runs no pod that asks for CPU or memory.",
        "spec.resources.gpu": "GPUs of every vendor, as devices; 0.5 is half of one.",
        "spec.resources.cpu": "CPU, in thousandths of a core.",
        "spec.resources.memory": "Memory, in megabytes (1,000,000 bytes).",
        **{
            key: text
            for kind in ("gpu", "cpu", "memory")
            for key, text in _below(f"spec.resources.{kind}", _AMOUNTS).items()
        },
        "spec.admissionGating": "Hold pods over quota or limit behind a scheduling gate. Not in KAI.",
        "status": "What the queue uses.",
        "status.childQueues": "Names of the queues below.",
        "status.childQueues[]": "Name of a queue.",
        **_below("status", _SUMS),
        "status.fairShare": "What the queue may have at present: GPUs of every vendor, CPU and memory. Not in KAI.",
        "status.conditions": "Orphan, Cyclic, OverQuota and Valid.",
        "status.conditions[]": "A condition.",
        **_below(
            "status.conditions[]",
            _CONDITION,
            "type",
            "status",
            "lastProbeTime",
            "lastTransitionTime",
            "reason",
            "message",
        ),
    },
    "PodGroup": {
        **_OBJECT,
        "spec": "Pods that are scheduled together.",
        "spec.minMember": "Pods that must start together; 1 without it, and 0 lets each start alone.",
        "spec.minSubGroup": "Subgroups of the top that must start together; all without it.",
        "spec.queue": "Name of the queue whose share the pods use; a queue without queues below.",
        "spec.priorityClassName": "Priority class of the group.",
        "spec.preemptibility": "Whether others may take its resources; without it, a priority below 100 may be taken.",
        "spec.topologyConstraint": "Where in the network all its pods go.",
        **_below("spec.topologyConstraint", _CONSTRAINT),
        "spec.subGroups": "Parts with minimums of their own, such as leaders and workers.",
        "spec.subGroups[]": "A part of the group; pods name theirs with the label kai.scheduler/subgroup-name.",
        "spec.subGroups[].name": "Name of the subgroup, unique in the group.",
        "spec.subGroups[].minMember": "Pods of it that must start together.",
        "spec.subGroups[].minSubGroup": "Subgroups directly below that must start together; all without it.",
        "spec.subGroups[].parent": "Name of the subgroup above; without it, it stands at the top.",
        "spec.subGroups[].topologyConstraint": "Where in the network its pods go.",
        **_below("spec.subGroups[].topologyConstraint", _CONSTRAINT),
        "spec.markUnschedulable": "Write the condition PodScheduled of waiting pods; true without it.",
        "spec.schedulingBackoff": "1: after one failed cycle the group is not tried again in its node pool;"
        " -1, as without it: it always is.",
        "spec.preemptionDelay": "How long the group waits before others are evicted for it, as in 5m.",
        "spec.stalenessGracePeriod": "How long it may run below its minimum, as in 5m; negative: for any time.",
        "status": "How far the group is.",
        "status.conditions": "Ready, Scheduled, Running and Valid.",
        "status.conditions[]": "A condition.",
        **_below(
            "status.conditions[]",
            _CONDITION,
            "type",
            "status",
            "transitionID",
            "lastTransitionTime",
            "reason",
            "message",
        ),
        "status.schedulingConditions": "Why the group waits, by node pool.",
        "status.schedulingConditions[]": "A condition of a node pool.",
        **_below(
            "status.schedulingConditions[]",
            _CONDITION,
            "type",
            "status",
            "transitionID",
            "lastTransitionTime",
            "reason",
            "message",
        ),
        "status.schedulingConditions[].nodePool": "The node pool.",
        "status.schedulingConditions[].reasons": "All reasons.",
        "status.schedulingConditions[].reasons[]": "A reason.",
        "status.schedulingConditions[].reasons[].reason": "One word, such as OverLimit.",
        "status.schedulingConditions[].reasons[].message": "A sentence with figures.",
        "status.schedulingConditions[].reasons[].details": "The figures.",
        "status.schedulingConditions[].reasons[].details.queueDetails": "Figures of the queue that refuses.",
        **_below("status.schedulingConditions[].reasons[].details.queueDetails", _QUEUE_DETAILS),
        "status.resourcesStatus": "What its pods use.",
        **_below("status.resourcesStatus", _SUMS),
        "status.state": "Invalid, Incomplete (pods of the minimum are missing), Waiting (for nodes), Starting, Running"
        " or Finished. Not in KAI.",
        "status.pods": "How many pods it has. Not in KAI.",
        "status.pods.total": "Pods that have not ended.",
        "status.pods.placed": "Those that have a node.",
    },
    "BindRequest": {
        **_OBJECT,
        "spec": "A decision of the scheduler that the binder carries out.",
        "spec.podName": "The pod, in the same namespace.",
        "spec.selectedNode": "Its node.",
        "spec.receivedResourceType": "Regular for whole GPUs, Fraction for a shared one.",
        "spec.receivedGPU": "What it gets of GPUs.",
        "spec.receivedGPU.count": "How many devices.",
        "spec.receivedGPU.portion": "Which part of each, as in 0.50.",
        "spec.selectedGPUGroups": "The shared devices, by their groups.",
        "spec.selectedGPUGroups[]": "A group of pods that share a device.",
        "spec.resourceClaimAllocations": "Devices for the pod's resource claims.",
        "spec.resourceClaimAllocations[]": "Devices for one claim.",
        "spec.resourceClaimAllocations[].name": "Name of the claim in the pod.",
        "spec.resourceClaimAllocations[].allocation": "An AllocationResult of resource.k8s.io.",
        "spec.extendedResourceClaimAllocation": "Devices for extended resources that a driver of claims serves.",
        "spec.extendedResourceClaimAllocation.allocation": "An AllocationResult of resource.k8s.io.",
        "spec.extendedResourceClaimAllocation.deviceRequests": "The requests of the claim that is made.",
        "spec.extendedResourceClaimAllocation.deviceRequests[]": "A DeviceRequest of resource.k8s.io.",
        "spec.extendedResourceClaimAllocation.containerMappings": "Which container gets which request.",
        "spec.extendedResourceClaimAllocation.containerMappings[]": "One container and one resource.",
        "spec.extendedResourceClaimAllocation.containerMappings[].containerName": "The container.",
        "spec.extendedResourceClaimAllocation.containerMappings[].resourceName": "The extended resource.",
        "spec.extendedResourceClaimAllocation.containerMappings[].requestName": "The request of the claim.",
        "spec.predictedNUMAZones": "The NUMA zones on which the pod is expected.",
        "spec.predictedNUMAZones[]": "One zone.",
        "spec.predictedNUMAZones[].zone": "Name of the zone.",
        "spec.predictedNUMAZones[].amount": "What the pod takes of it.",
        "spec.backoffLimit": "Attempts until the binder gives up.",
        "status": "What the binder has done.",
        "status.phase": "Pending, Succeeded or Failed.",
        "status.reason": "Why the last attempt failed.",
        "status.failedAttempts": "How many have failed.",
    },
    "Topology": {
        **_OBJECT,
        "spec": "How nodes are connected.",
        "spec.levels": "Labels of nodes, from the coarsest level (a zone) to the finest (a host).",
        "spec.levels[]": "A level: nodes with the same value of its label, and of all labels before, are one domain.",
        "spec.levels[].nodeLabel": "The label of nodes.",
        "spec.levels[].alias": "Another name for the level, as in rack; it may be changed at any time.",
    },
    "Config": _OBJECT,
    "SchedulingShard": _OBJECT,
}


def describe(schema: Schema, meanings: Mapping[str, str], path: str = "") -> None:
    """Write the meanings into a schema."""
    if path in meanings:
        # First, as readers of the file expect it.
        rest = {key: value for key, value in schema.items() if key != "description"}
        schema.clear()
        schema.update({"description": meanings[path], **rest})
    for name, below in schema.get("properties", {}).items():
        describe(below, meanings, f"{path}.{name}" if path else name)
    if "items" in schema:
        describe(schema["items"], meanings, f"{path}[]")


def printer_columns(kind: str) -> list[dict[str, Any]]:
    """The columns as a definition spells them."""
    return [
        {
            "name": each.name,
            "type": each.type,
            "description": each.meaning,
            "jsonPath": each.path,
            **({"priority": 1} if each.is_wide else {}),
        }
        for each in COLUMNS.get(kind, ())
    ]
