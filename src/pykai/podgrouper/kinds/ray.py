"""Ray: the head and each group of workers are subgroups that start together (workloads:WK-RAY).

The description is the RayCluster's; a RayJob or RayService names its RayCluster in its status.  Name, owner, queue and
labels of the group are those of the top owner.

Pods that belong to no group of the cluster, such as the submitter of a RayJob, get an elastic subgroup, so that the
scheduler does not refuse them.  It exists from the first such pod on: groups without one are equal to KAI's.

Subtle: names of worker groups need not be names of subgroups.  Subgroups and routing use the same corrected names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from msgspec import field

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.meta import Int64, Wire
from pykai.api.nulls import describe_value
from pykai.api.scheduling import MOST_SUBGROUPS, SubGroup, TopologyConstraint
from pykai.podgrouper.constraints import group_constraint
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata, ObjectName, Owner, Readers
from pykai.podgrouper.ownerspec import checked_minimum, describe_owner, look_up, read_owner

_HEAD: Final = "headgroup"
_SUBMITTER: Final = "submitter"
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9-]+")
#: what a label may hold
_MAX_NAME_LENGTH: Final = 63


class _RayTemplateMetadata(Wire):
    annotations: dict[str, str] = field(default_factory=dict)


class _RayTemplate(Wire):
    metadata: _RayTemplateMetadata = field(default_factory=_RayTemplateMetadata)


class _RayHeadGroup(Wire):
    template: _RayTemplate = field(default_factory=_RayTemplate)


class _RayWorkerGroup(Wire):
    group_name: str = ""
    replicas: Int64 = 0
    min_replicas: Int64 = 0
    num_of_hosts: Int64 = 1
    #: as KubeRay spells it, and as KAI reads it
    suspend: bool = False
    suspended: bool = False
    template: _RayTemplate = field(default_factory=_RayTemplate)


class _RayClusterSpec(Wire):
    head_group_spec: _RayHeadGroup = field(default_factory=_RayHeadGroup)
    worker_group_specs: list[_RayWorkerGroup] = field(default_factory=list)


class _RayCluster(Wire):
    spec: _RayClusterSpec = field(default_factory=_RayClusterSpec)


class _RayServiceStatus(Wire):
    ray_cluster_name: str = ""


class _RayStatus(Wire):
    #: of a RayJob
    ray_cluster_name: str = ""
    #: of a RayService
    active_service_status: _RayServiceStatus = field(default_factory=_RayServiceStatus)
    pending_service_status: _RayServiceStatus = field(default_factory=_RayServiceStatus)


class _RayWorkload(Wire):
    status: _RayStatus = field(default_factory=_RayStatus)


class _RaySubGroups(NamedTuple):
    sub_groups: tuple[SubGroup, ...]
    #: value of the label `ray.io/group` -> subgroup
    routes: Mapping[str, str]


def group_ray(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group of a RayCluster, of all clusters of a RayJob or of those of a RayService."""
    metadata = default_metadata(top, pod, (), settings, readers)
    priority_class = top.metadata.labels.get(names.RAY_PRIORITY_CLASS_LABEL)
    if priority_class:
        metadata = replace(metadata, priority_class=priority_class)
    cluster = _cluster_of(top, pod, owners, readers)
    found = _sub_groups(cluster)
    minimum = sum(each.min_member or 0 for each in found.sub_groups)
    metadata = replace(metadata, min_available=checked_minimum(cluster, "spec.workerGroupSpecs", minimum))

    existing = readers.pod_group(metadata.namespace, metadata.name)
    if existing is not None and not existing.spec.sub_groups:
        return metadata  # older releases made groups without subgroups
    pod_sub_group = found.routes.get(pod.metadata.labels.get(names.RAY_GROUP_LABEL, ""), "")
    elastic = _free_name(_SUBMITTER, [each.name for each in found.sub_groups])
    known = existing is not None and any(each.name == elastic for each in existing.spec.sub_groups)
    sub_groups = found.sub_groups
    if known or not pod_sub_group:
        sub_groups = (*sub_groups, SubGroup(name=elastic, min_member=0))
    return replace(metadata, sub_groups=sub_groups, pod_sub_group=pod_sub_group or elastic)


def _cluster_of(top: Owner, pod: Pod, owners: Iterable[Owner], readers: Readers) -> Owner:
    """The RayCluster that describes the group."""
    if top.kind == "RayCluster":
        return top
    status = read_owner(_RayWorkload, top).status
    if top.kind == "RayJob":
        name = status.ray_cluster_name
    else:
        name = status.active_service_status.ray_cluster_name or status.pending_service_status.ray_cluster_name
    subject = describe_owner(top)
    if not name:
        raise GroupingError(f"{subject} names no RayCluster in its status; please make sure that ray-operator is up")
    which = ObjectName(top.api_version, "RayCluster", pod.metadata.namespace, name)
    cluster = look_up(which, owners, readers)
    if cluster is None:
        missing = f"the RayCluster in the status of {subject}, {describe_value(name)}, does not exist"
        raise GroupingError(f"{missing}; please make sure that ray-operator is up")
    return cluster


def _sub_groups(cluster: Owner) -> _RaySubGroups:
    spec = read_owner(_RayCluster, cluster).spec
    sub_groups = [_sub_group(cluster, _HEAD, 1, spec.head_group_spec.template)]
    routes = {_HEAD: _HEAD}
    taken = {_HEAD}
    if len(spec.worker_group_specs) >= MOST_SUBGROUPS:
        problem = f"{len(spec.worker_group_specs)} groups; with the head at most {MOST_SUBGROUPS} can start together"
        raise GroupingError(f"{describe_owner(cluster)}: spec.workerGroupSpecs: {problem}")
    for number, workers in enumerate(spec.worker_group_specs):
        path = f"spec.workerGroupSpecs[{number}]"
        count = _worker_count(cluster, path, workers)
        if not count:
            continue
        label = workers.group_name or f"worker-group-{number}"
        if label in routes:
            problem = f"{describe_value(label)} names two groups; rename one"
            raise GroupingError(f"{describe_owner(cluster)}: {path}.groupName: {problem}")
        name = routes[label] = _free_name(_valid_name(label) or f"worker-group-{number}", taken, number)
        taken.add(name)
        sub_groups.append(_sub_group(cluster, name, count, workers.template))
    return _RaySubGroups(tuple(sub_groups), routes)


def _worker_count(cluster: Owner, path: str, workers: _RayWorkerGroup) -> int:
    """How many pods of a worker group start together; 0 for a group without pods."""
    if workers.suspend or workers.suspended:
        return 0
    for key, value, least in (
        ("replicas", workers.replicas, 0),
        ("minReplicas", workers.min_replicas, 0),
        ("numOfHosts", workers.num_of_hosts, 1),
    ):
        if value < least:
            raise GroupingError(f"{describe_owner(cluster)}: {path}.{key}: expected {least} or more, got {value}")
    if workers.min_replicas > workers.replicas:
        raise GroupingError(
            f"{describe_owner(cluster)}: {path}.minReplicas: {workers.min_replicas} is more than the "
            f"{workers.replicas} replicas"
        )
    return (workers.min_replicas or workers.replicas) * workers.num_of_hosts


def _sub_group(cluster: Owner, name: str, minimum: int, template: _RayTemplate) -> SubGroup:
    constraint: TopologyConstraint | None = group_constraint(template.metadata.annotations)
    if constraint is not None and not (constraint.required_topology_level or constraint.preferred_topology_level):
        constraint = None
    if constraint is not None and not constraint.topology:
        raise GroupingError(
            f"{describe_owner(cluster)}: topology annotation ({names.TOPOLOGY_ANNOTATION}) is required for {name} "
            "when topology placement annotations are set"
        )
    return SubGroup(name=name, min_member=minimum, topology_constraint=constraint)


def _valid_name(text: str) -> str:
    """The text as the name of a subgroup, "" where nothing is left of it."""
    return _NOT_IN_NAMES.sub("-", text.lower())[:_MAX_NAME_LENGTH].strip("-")


def _free_name(name: str, taken: Collection[str], number: int = 1) -> str:
    """A name that no other subgroup has; each group begins with another number, so that few are tried."""
    candidate = name
    while candidate in taken:
        candidate = f"{name[: _MAX_NAME_LENGTH - 1 - len(str(number))]}-{number}"
        number += 1
    return candidate
