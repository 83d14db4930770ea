"""Groups that another API describes: gangs of Kubernetes (scheduling.k8s.io), and pod groups of Kueue.

The grouper of the top owner runs first, as for every pod.  Then the *origin* of the pod, the group that it names in the
other API, changes the result: its own name and minimum, no subgroups, and what the object of the gang says about
queue, priority, preemptibility and topology (workloads:NW-2, NW-3).

The name of such a group is made of words that tenants choose, so it could equal that of another group.  The annotation
`kai.scheduler/made-from` on the PodGroup therefore holds the identity of the origin.  It is never copied from an owner,
and a PodGroup is only written by pods of its own origin, or of none where it has none (ADR 34).

Subtle: a gang may have pods of several owners, or pods without any.  The first pod describes the group; it is not
rewritten for each of the others.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Final

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.scheduling import PodGroup, TopologyConstraint
from pykai.api.workloadapi import GroupPolicy, KubernetesPodGroup, KubernetesWorkload
from pykai.core.model.problems import Problem
from pykai.podgrouper.defaults import overridden_by
from pykai.podgrouper.kinds.pod import in_existing_group
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata, Owner, Readers
from pykai.podgrouper.ownerspec import MAX_INT32, is_object_name, parse_int32

WORKLOAD: Final = "Workload"
POD_GROUP: Final = "PodGroup"
KUEUE_POD_GROUP: Final = "KueuePodGroup"
_LONGEST_NAME: Final = 253


class MissingGang(GroupingError):
    """The gang that a pod names does not exist; it may be on its way."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The group of another API that a pod belongs to."""

    kind: str
    #: of the object
    name: str
    #: the group in a Workload, and which of its replicas
    part: str = ""
    replica: str = ""

    @property
    def identity(self) -> str:
        """Unlike the name of the group it is never ambiguous: no name holds a slash."""
        return "/".join(filter(None, (self.kind, self.name, self.part, self.replica)))

    @property
    def group_name(self) -> str:
        """The name of the PodGroup; raises `GroupingError` where none can be made (workloads:NW-2, NW-3)."""
        parts = {
            WORKLOAD: (self.name, self.part, self.replica),
            POD_GROUP: ("sg", self.name),
            KUEUE_POD_GROUP: ("kueue", self.name),
        }[self.kind]
        name = "-".join(filter(None, parts))
        if len(name) > _LONGEST_NAME:
            digest = hashlib.sha256(self.identity.encode()).hexdigest()[:12]
            name = f"{name[: _LONGEST_NAME - 13].rstrip('-.')}-{digest}"
        if not is_object_name(name):
            raise GroupingError(f"{self.kind} {self.name}: {name!r} cannot be the name of a PodGroup")
        return name


def origin_of(pod: Pod, settings: GroupingSettings) -> Origin | None:
    """The origin of a pod, None for none or where it is not to be read."""
    spec, meta = pod.spec, pod.metadata
    if settings.workload_api and meta.annotations.get(names.IGNORE_WORKLOAD_API_ANNOTATION) != "true":
        if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
            return Origin(POD_GROUP, spec.scheduling_group.pod_group_name)
        reference = spec.workload_ref
        if reference is not None and reference.name and reference.pod_group:
            return Origin(WORKLOAD, reference.name, reference.pod_group, reference.pod_group_replica_key)
    if settings.kueue_pod_groups and (name := meta.labels.get(names.KUEUE_POD_GROUP_LABEL)):
        return Origin(KUEUE_POD_GROUP, name)
    return None


def origin_keys(pod: Pod, settings: GroupingSettings) -> tuple[str, ...]:
    """What pods are indexed by: the object of their origin, the group they are in, and whether they wait or succeeded.

    A gang may have thousands of pods, each of which is grouped: what is asked about all of them must be a count.
    """
    origin = origin_of(pod, settings)
    if origin is None:
        return ()
    namespace = pod.metadata.namespace
    keys = [f"{namespace}/{origin.kind}/{origin.name}"]
    if group := pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION):
        keys.append(_key_in_group(namespace, origin, group))
    if pod.status.phase == "Succeeded":
        keys.append(_key_of_succeeded(namespace, origin))
    elif origin.kind == KUEUE_POD_GROUP and not pod.spec.node_name and pod.status.phase != "Failed":
        keys.append(_key_of_waiting(namespace, origin))
    return tuple(keys)


def waiting_siblings_key(pod: Pod, settings: GroupingSettings) -> str | None:
    """The key of pods without a node that are in the group of a pod that has succeeded, if there can be any."""
    origin = origin_of(pod, settings)
    if origin is None or origin.kind != KUEUE_POD_GROUP or pod.status.phase != "Succeeded":
        return None
    return _key_of_waiting(pod.metadata.namespace, origin)


def _key_in_group(namespace: str, origin: Origin, group: str) -> str:
    # No identity holds a space.
    return f"{namespace}/{origin.identity} in {group}"


def _key_of_succeeded(namespace: str, origin: Origin) -> str:
    return f"{namespace}/{origin.identity} succeeded"


def _key_of_waiting(namespace: str, origin: Origin) -> str:
    return f"{namespace}/{origin.identity} waiting"


def is_in_origin_group(pod: Pod, settings: GroupingSettings) -> bool:
    """Whether the pod is in the group that is made from its origin."""
    origin = origin_of(pod, settings)
    try:
        return origin is not None and pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION) == origin.group_name
    except GroupingError:
        return False


def refuse_foreign_group(existing: PodGroup, meta: Metadata) -> None:
    """Raise `GroupingError` where a group of this name is made from something else (ADR 34)."""
    theirs = existing.metadata.annotations.get(names.MADE_FROM_ANNOTATION, "")
    ours = meta.annotations.get(names.MADE_FROM_ANNOTATION, "")
    if theirs != ours:
        raise GroupingError(
            f"PodGroup {meta.namespace}/{meta.name} belongs to {theirs or 'another workload'}, "
            f"not to {ours or 'this workload'}; give one of them another name"
        )


def with_origin(meta: Metadata, top: Owner, pod: Pod, settings: GroupingSettings, readers: Readers) -> Metadata:
    """The group of the pod's origin, described by its top owner; unchanged for a pod without origin."""
    origin = origin_of(pod, settings)
    if origin is None:
        return meta
    if origin.kind != KUEUE_POD_GROUP and (
        top.metadata.annotations.get(names.IGNORE_WORKLOAD_API_ANNOTATION) == "true"
        or not readers.serves_gangs(origin.kind)
    ):
        return meta
    name = origin.group_name
    existing = readers.pod_group(meta.namespace, name)
    if _stays_in_own_group(meta, pod, origin, existing, readers):
        return meta
    bare = top.metadata.uid == pod.metadata.uid
    described = existing is not None and bool(existing.metadata.owner_references)
    if existing is not None and described and (bare or existing.metadata.owner_references[0].uid != top.metadata.uid):
        meta = in_existing_group(meta, existing)
    meta = replace(meta, name=name, min_sub_group=None, sub_groups=(), pod_sub_group="")
    if origin.kind == KUEUE_POD_GROUP:
        meta = replace(meta, min_available=_kueue_minimum(pod, origin, readers))
    else:
        meta = _with_gang(meta, origin, settings, readers, owns_group=bare and not described)
    annotations = {**meta.annotations, names.MADE_FROM_ANNOTATION: origin.identity}
    if names.POD_GROUP_ANNOTATION in annotations:
        annotations[names.POD_GROUP_ANNOTATION] = name
    return replace(meta, annotations=annotations)


def _stays_in_own_group(meta: Metadata, pod: Pod, origin: Origin, existing: PodGroup | None, readers: Readers) -> bool:
    """Whether the pods of the gang are in the group of their top owner already: no group is renamed, and none split."""
    if readers.pod_group(meta.namespace, meta.name) is None:
        return False
    if pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION) == meta.name:
        return True
    # Once the group of the gang exists, all new pods join it.
    return existing is None and readers.count_of_origin(_key_in_group(meta.namespace, origin, meta.name)) > 0


def _with_gang(
    meta: Metadata, origin: Origin, settings: GroupingSettings, readers: Readers, *, owns_group: bool
) -> Metadata:
    """The group with what the object of the gang says; with `owns_group` that object is its owner."""
    gang = readers.gang(origin.kind, meta.namespace, origin.name)
    where = object_key(meta.namespace, origin.name)
    if gang is None:
        raise MissingGang(f"{origin.kind} {where} does not exist; the pod waits for it")
    content = gang.content
    owner = Owner(gang.api_version, origin.kind, content.metadata)
    if isinstance(content, KubernetesWorkload):
        meta = overridden_by(meta, owner, "", settings, readers)
        policy = next((each.policy for each in content.spec.pod_groups if each.name == origin.part), None)
        if policy is None:
            raise MissingGang(f"{origin.kind} {where} has no pod group {origin.part!r}; the pod waits for it")
    else:
        meta = overridden_by(meta, owner, content.spec.priority_class_name, settings, readers)
        meta = _with_constraints(meta, content, readers)
        policy = content.spec.scheduling_policy
    meta = replace(meta, min_available=_minimum(f"{origin.kind} {where}", policy))
    return replace(meta, owner=owner.reference()) if owns_group else meta


def _minimum(subject: str, policy: GroupPolicy) -> int:
    """How many pods of a gang start together; 1 where each starts alone."""
    if policy.gang is None:
        return 1
    minimum = policy.gang.min_count
    if 1 <= minimum <= MAX_INT32:
        return minimum
    raise GroupingError(f"{subject}: gang.minCount is {minimum}; use a number from 1 to {MAX_INT32}")


def _with_constraints(meta: Metadata, gang: KubernetesPodGroup, readers: Readers) -> Metadata:
    """The group in one domain of a topology, if the gang asks for that; what cannot be honoured is reported."""
    problems = list(meta.problems)
    subject = f"{POD_GROUP}/{gang.metadata.namespace}/{gang.metadata.name}"
    if parent := gang.spec.parent_composite_pod_group_name:
        text = f"composite pod groups are not supported; the group does not wait for the others of {parent!r}"
        problems.append(Problem(subject, "spec.parentCompositePodGroupName", text))
    topology = meta.topology
    for constraint in gang.spec.scheduling_constraints.topology[:1]:
        topologies = readers.topologies_with_level(constraint.key)
        if topologies:
            chosen = topology.topology if topology.topology in topologies else min(topologies)
            topology = TopologyConstraint(topology=chosen, required_topology_level=constraint.key)
        else:
            text = f"no Topology has the level {constraint.key!r}; create one, until then this key is not used"
            problems.append(Problem(subject, "spec.schedulingConstraints.topology[0].key", text))
    return replace(meta, topology=topology, problems=tuple(problems))


def _kueue_minimum(pod: Pod, origin: Origin, readers: Readers) -> int:
    """The pods of a Kueue pod group that have not succeeded start together (kueue:pod-groups)."""
    key = names.KUEUE_POD_GROUP_COUNT_ANNOTATION
    text = pod.metadata.annotations.get(key, "")
    total = parse_int32(text)
    if total is None or total < 1:
        where = object_key(pod.metadata.namespace, pod.metadata.name)
        raise GroupingError(f"Pod {where}: metadata.annotations[{key}]: {text!r} is not a number of pods")
    return max(1, total - readers.count_of_origin(_key_of_succeeded(pod.metadata.namespace, origin)))
