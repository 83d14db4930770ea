"""From a grouper's result to writes: a PodGroup to create, a patch of one that exists, a patch of the pod.

Pure.  `new_group` gives the object to create, `group_patch` the difference to what exists (None for none, so that
nothing is written that changes nothing), `pod_patch` what the pod lacks.

Other writers own parts of an existing group (workloads:0).  Sticky fields stay as they are: the queue (moving work is a
separate decision), `markUnschedulable`, `schedulingBackoff`, the node pool and queue labels, and a topology that the
workload does not name.  Labels and annotations are only ever added or overwritten: others write there too.  The rest of
the spec and the one owner reference are ours.

Subtle: values are compared by meaning.  Absent and empty are equal, and so are `90s` and `1m30s`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.duration import DurationError, format_go_duration, parse_duration
from pykai.api.scheduling import PodGroup, SubGroup, TopologyConstraint
from pykai.api.unstructured import JsonObject
from pykai.podgrouper.constraints import updated_group_constraint
from pykai.podgrouper.metadata import GroupingSettings, Metadata

_TOPOLOGY_FIELDS = ("topology", "requiredTopologyLevel", "preferredTopologyLevel")


def new_group(meta: Metadata) -> JsonObject:
    """The PodGroup as it is created (workloads:AP-1, AP-2)."""
    metadata: JsonObject = {
        "name": meta.name,
        "namespace": meta.namespace,
        "annotations": dict(meta.annotations),
        "ownerReferences": [_reference(meta)],
    }
    if meta.labels:
        metadata["labels"] = dict(meta.labels)
    spec: JsonObject = {"topologyConstraint": _topology(meta.topology)}
    if meta.queue:
        spec["queue"] = meta.queue
    spec.update((key, value) for key, value in _computed_spec(meta).items() if value is not None)
    return {"apiVersion": names.POD_GROUP_API_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def group_patch(
    existing: PodGroup, meta: Metadata, settings: GroupingSettings, *, follow_queue: bool = False
) -> JsonObject | None:
    """A merge patch that makes the group what it should be, against the version that was read; None for none.

    `follow_queue` makes queue and queue label follow the workload.

    Statements: workloads:AP-3.
    """
    metadata: JsonObject = {}
    labels = _changed_entries(existing.metadata.labels, meta.labels)
    labels.pop(settings.node_pool_label, None)
    if settings.queue_label in existing.metadata.labels and not follow_queue:
        labels.pop(settings.queue_label, None)
    if labels:
        metadata["labels"] = labels
    annotations = _changed_entries(existing.metadata.annotations, meta.annotations)
    if annotations:
        metadata["annotations"] = annotations
    if existing.metadata.owner_references != (meta.owner,):
        metadata["ownerReferences"] = [_reference(meta)]

    spec = _spec_patch(existing, meta)
    if follow_queue and meta.queue and meta.queue != existing.spec.queue:
        spec["queue"] = meta.queue
    if not metadata and not spec:
        return None
    patch: JsonObject = {"metadata": metadata}
    if existing.metadata.resource_version:
        metadata["resourceVersion"] = existing.metadata.resource_version
    if spec:
        patch["spec"] = spec
    return patch


def pod_patch(pod: Pod, meta: Metadata) -> JsonObject | None:
    """What the pod lacks to be in its group and subgroup, as a merge patch; None for nothing (workloads:PP-1, PP-2).

    A subgroup label that no longer fits is removed: the scheduler refuses a pod whose subgroup does not exist.

    Statements: workloads:PP-3.
    """
    patch: JsonObject = {}
    if pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION) != meta.name:
        patch["annotations"] = {names.POD_GROUP_ANNOTATION: meta.name}
    current_sub_group = pod.metadata.labels.get(names.SUBGROUP_LABEL)
    if current_sub_group != (meta.pod_sub_group or None):
        patch["labels"] = {names.SUBGROUP_LABEL: meta.pod_sub_group or None}
    return {"metadata": patch} if patch else None


def _reference(meta: Metadata) -> JsonObject:
    owner = meta.owner
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}


def _changed_entries(existing: Mapping[str, str], wanted: Mapping[str, str]) -> JsonObject:
    return {key: value for key, value in wanted.items() if existing.get(key) != value}


def _computed_spec(meta: Metadata) -> JsonObject:
    """The fields of the spec that are written as computed, None for absent."""
    grouped = meta.min_sub_group is not None
    return {
        "minMember": None if grouped else meta.min_available,
        "minSubGroup": meta.min_sub_group,
        "priorityClassName": meta.priority_class or None,
        "preemptibility": meta.preemptibility or None,
        "preemptionDelay": _go_duration(meta.preemption_delay_ns),
        "stalenessGracePeriod": _go_duration(meta.staleness_grace_ns),
        "subGroups": [_sub_group_entry(each) for each in meta.sub_groups] or None,
    }


def _spec_patch(existing: PodGroup, meta: Metadata) -> JsonObject:
    spec = existing.spec
    existing_spec = {
        "minMember": spec.min_member,
        "minSubGroup": spec.min_sub_group,
        "priorityClassName": spec.priority_class_name or None,
        "preemptibility": spec.preemptibility or None,
        "preemptionDelay": _canonical(spec.preemption_delay),
        "stalenessGracePeriod": _canonical(spec.staleness_grace_period),
        "subGroups": [_sub_group_entry(each) for each in spec.sub_groups] or None,
    }
    patch: JsonObject = {key: value for key, value in _computed_spec(meta).items() if existing_spec[key] != value}
    wanted = updated_group_constraint(spec.topology_constraint, meta.topology)
    if wanted != (spec.topology_constraint or TopologyConstraint()):
        # A merge patch merges objects: removed keys must be named.
        patch["topologyConstraint"] = dict.fromkeys(_TOPOLOGY_FIELDS) | _topology(wanted)
    return patch


def _go_duration(nanoseconds: int | None) -> str | None:
    return None if nanoseconds is None else format_go_duration(nanoseconds)


def _canonical(text: str | None) -> str | None:
    if not text:
        return None
    try:
        return format_go_duration(parse_duration(text))
    except DurationError:
        return text


def _topology(constraint: TopologyConstraint) -> JsonObject:
    return {key: value for key, value in msgspec.to_builtins(constraint).items() if value}


def _sub_group_entry(each: SubGroup) -> JsonObject:
    entry: JsonObject = {"name": each.name}
    if each.min_sub_group is not None:
        entry["minSubGroup"] = each.min_sub_group
    elif each.min_member is not None:
        entry["minMember"] = each.min_member
    if each.parent:
        entry["parent"] = each.parent
    constraint = _topology(each.topology_constraint) if each.topology_constraint is not None else {}
    if constraint:
        entry["topologyConstraint"] = constraint
    return entry
