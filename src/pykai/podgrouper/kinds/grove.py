"""Grove: the PodGang of a pod says which pods start together (workloads:WK-GR).

The PodGroup describes a PodGang: its groups of pods are subgroups, and groups that share a topology constraint have a
common parent.  Labels and annotations of the PodCliqueSet fill what the PodGang does not say; so do queue and grace
period, which KAI does not take from there.

Subtle: Grove lists a pod in its PodGang some time after it created the pod.  Until then the label of its PodClique,
which is the name of the group of pods, says where it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from msgspec import field

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.meta import Int64, Wire
from pykai.api.nulls import describe_value
from pykai.api.scheduling import SubGroup, TopologyConstraint
from pykai.podgrouper.constraints import group_constraint
from pykai.podgrouper.defaults import PREEMPTIBILITIES, default_metadata
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata, ObjectName, Owner, Readers
from pykai.podgrouper.ownerspec import MAX_INT32, SUB_GROUP_NAME, checked_minimum, describe_owner, look_up, read_owner

POD_GANG_API_VERSION: Final = "scheduler.grove.io/v1alpha1"


class _PackConstraint(Wire):
    required: str | None = None
    preferred: str | None = None


class _GangConstraint(Wire):
    pack_constraint: _PackConstraint = field(default_factory=_PackConstraint)


class _PodReference(Wire):
    namespace: str = ""
    name: str = ""


class _GangPodGroup(Wire):
    name: str = ""
    min_replicas: Int64 = 0
    pod_references: list[_PodReference] | None = None
    topology_constraint: _GangConstraint = field(default_factory=_GangConstraint)


class _GangGroupConfig(Wire):
    name: str = ""
    pod_group_names: list[str] = field(default_factory=list)
    topology_constraint: _GangConstraint = field(default_factory=_GangConstraint)


class _PodGangSpec(Wire):
    podgroups: list[_GangPodGroup] = field(default_factory=list)
    topology_constraint: _GangConstraint | None = None
    topology_constraint_group_configs: list[_GangGroupConfig] = field(default_factory=list)
    priority_class_name: str | None = None


class _PodGang(Wire):
    spec: _PodGangSpec = field(default_factory=_PodGangSpec)


class _GangSubGroups(NamedTuple):
    sub_groups: tuple[SubGroup, ...]
    minimum: int
    pod_sub_group: str


def group_pod_gang(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group of the PodGang that the pod names."""
    gang = _gang_of(top, pod, readers)
    spec = read_owner(_PodGang, gang).spec
    topology = gang.metadata.annotations.get(names.GROVE_TOPOLOGY_ANNOTATION) or gang.metadata.annotations.get(
        names.TOPOLOGY_ANNOTATION, ""
    )
    metadata = default_metadata(gang, pod, (), settings, readers)
    root = _constraint(gang, "spec.topologyConstraint", spec.topology_constraint, topology)
    metadata = replace(
        metadata,
        topology=root or metadata.topology,
        priority_class=metadata.priority_class if spec.priority_class_name is None else spec.priority_class_name,
    )
    found = _sub_groups(gang, spec, topology, pod)
    metadata = replace(
        metadata,
        min_available=checked_minimum(gang, "spec.podgroups", found.minimum),
        sub_groups=found.sub_groups,
        pod_sub_group=found.pod_sub_group,
    )
    return _with_values_of(top, gang, metadata, default_metadata(top, pod, (), settings, readers), pod, settings)


def _gang_of(top: Owner, pod: Pod, readers: Readers) -> Owner:
    name = pod.metadata.labels.get(names.GROVE_POD_GANG_LABEL)
    pod_name = object_key(pod.metadata.namespace, pod.metadata.name)
    if not name:
        raise GroupingError(f"pod {pod_name} of {describe_owner(top)} has no label {names.GROVE_POD_GANG_LABEL}")
    gang = look_up(ObjectName(POD_GANG_API_VERSION, "PodGang", pod.metadata.namespace, name), (), readers)
    if gang is None:
        raise GroupingError(f"PodGang {name}, which pod {pod_name} names, does not exist; is Grove running?")
    return gang


def _with_values_of(
    top: Owner, gang: Owner, metadata: Metadata, from_top: Metadata, pod: Pod, settings: GroupingSettings
) -> Metadata:
    """The group with what the PodCliqueSet says and the PodGang does not."""
    labels = {**from_top.labels, **metadata.labels}
    annotations = {**from_top.annotations, **metadata.annotations}
    preemptibility = labels.get(names.PREEMPTIBILITY_LABEL)
    if preemptibility is not None and preemptibility not in PREEMPTIBILITIES:
        raise GroupingError(
            f"label {names.PREEMPTIBILITY_LABEL} of {describe_owner(gang)} or {describe_owner(top)}: "
            f"{preemptibility!r} is neither {names.PREEMPTIBLE} nor {names.NON_PREEMPTIBLE}"
        )
    own, above = metadata.topology, group_constraint(annotations)
    says = gang.metadata.annotations
    return replace(
        metadata,
        labels=labels,
        annotations=annotations,
        queue=metadata.queue if _names_queue(top, gang, pod, settings) else from_top.queue,
        priority_class=labels.get(names.PRIORITY_CLASS_LABEL, metadata.priority_class),
        preemptibility=metadata.preemptibility if preemptibility is None else preemptibility,
        preemption_delay_ns=(metadata if names.PREEMPTION_DELAY_ANNOTATION in says else from_top).preemption_delay_ns,
        staleness_grace_ns=(
            metadata if names.STALENESS_GRACE_PERIOD_ANNOTATION in says else from_top
        ).staleness_grace_ns,
        topology=TopologyConstraint(
            topology=own.topology or above.topology,
            required_topology_level=own.required_topology_level or above.required_topology_level,
            preferred_topology_level=own.preferred_topology_level or above.preferred_topology_level,
        ),
        problems=tuple(
            dict.fromkeys(
                (
                    *metadata.problems,
                    *(problem for problem in from_top.problems if problem.field.startswith("metadata.annotations")),
                )
            )
        ),
    )


def _names_queue(top: Owner, gang: Owner, pod: Pod, settings: GroupingSettings) -> bool:
    """Whether the PodGang or the pod decides the queue."""
    if settings.queue_label in gang.metadata.labels or settings.queue_label in pod.metadata.labels:
        return True
    return settings.queue_label not in top.metadata.labels and bool(gang.metadata.labels.get(names.PROJECT_LABEL))


def _sub_groups(gang: Owner, spec: _PodGangSpec, topology: str, pod: Pod) -> _GangSubGroups:
    """Parents first, then the groups of pods, as KAI lists them."""
    parents = _parents(gang, spec)
    members: dict[str, int] = {}
    leaves: list[SubGroup] = []
    minimum = 0
    pod_sub_group = ""
    for number, each in enumerate(spec.podgroups):
        path = f"spec.podgroups[{number}]"
        _check_name(gang, f"{path}.name", each.name)
        if each.pod_references is None or not 0 < each.min_replicas <= MAX_INT32:
            raise GroupingError(
                f"{describe_owner(gang)}: {path}: podReferences and a minReplicas of 1 or more are required"
            )
        parent = parents.get(each.name)
        if parent is not None:
            members[parent] = members.get(parent, 0) + 1
        if _refers_to(gang, path, each.pod_references, pod):
            pod_sub_group = each.name
        constraint = _constraint(gang, path, each.topology_constraint, topology)
        leaves.append(
            SubGroup(name=each.name, parent=parent, min_member=each.min_replicas, topology_constraint=constraint)
        )
        minimum += each.min_replicas
    sub_groups = (*_parent_sub_groups(gang, spec, topology, members), *leaves)
    by_name = {each.name for each in sub_groups}
    if len(by_name) < len(sub_groups):
        raise GroupingError(f"{describe_owner(gang)}: spec.podgroups: two groups have one name")
    clique = pod.metadata.labels.get(names.GROVE_POD_CLIQUE_LABEL, "")
    if not pod_sub_group and any(each.name == clique for each in leaves):
        pod_sub_group = clique
    return _GangSubGroups(sub_groups, minimum, pod_sub_group)


def _parents(gang: Owner, spec: _PodGangSpec) -> Mapping[str, str]:
    """Group of pods -> the parent that it shares with others."""
    parents: dict[str, str] = {}
    for number, config in enumerate(spec.topology_constraint_group_configs):
        _check_name(gang, f"spec.topologyConstraintGroupConfigs[{number}].name", config.name)
        for name in config.pod_group_names:
            parents.setdefault(name, config.name)
    return parents


def _parent_sub_groups(
    gang: Owner, spec: _PodGangSpec, topology: str, members: Mapping[str, int]
) -> tuple[SubGroup, ...]:
    """The parents that have children; KAI also counts children that do not exist."""
    return tuple(
        SubGroup(
            name=config.name,
            min_sub_group=members[config.name],
            topology_constraint=_constraint(
                gang, f"spec.topologyConstraintGroupConfigs[{number}]", config.topology_constraint, topology
            ),
        )
        for number, config in enumerate(spec.topology_constraint_group_configs)
        if config.name in members
    )


def _check_name(gang: Owner, path: str, name: str) -> None:
    if not SUB_GROUP_NAME.fullmatch(name):
        raise GroupingError(f"{describe_owner(gang)}: {path}: {describe_value(name)} is no name for a subgroup")


def _refers_to(gang: Owner, path: str, references: list[_PodReference], pod: Pod) -> bool:
    found = False
    for reference in references:
        if reference.namespace != pod.metadata.namespace:
            raise GroupingError(
                f"{describe_owner(gang)}: {path}.podReferences: expected pods of namespace {pod.metadata.namespace}, "
                f"got {describe_value(reference.namespace)}"
            )
        found = found or reference.name == pod.metadata.name
    return found


def _constraint(gang: Owner, path: str, given: _GangConstraint | None, topology: str) -> TopologyConstraint | None:
    if given is None:
        return None
    required, preferred = given.pack_constraint.required, given.pack_constraint.preferred
    if required is None and preferred is None:
        return None
    if not topology:
        raise GroupingError(
            f"{describe_owner(gang)}: {path}: a topology constraint needs the annotation "
            f"{names.GROVE_TOPOLOGY_ANNOTATION} or {names.TOPOLOGY_ANNOTATION}"
        )
    return TopologyConstraint(
        topology=topology, required_topology_level=required or "", preferred_topology_level=preferred or ""
    )
