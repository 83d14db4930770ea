"""Subgroups of PyTorchJobs and LeaderWorkerSets, divided into segments where the workload asks for it (topo:10).

A segment is a fixed number of workers that wants to be near each other, such as one rack of a job that spans ten. In:
the owner's manifest and one of its pods. Out: `Parts`, all subgroups of the PodGroup and the one the pod belongs to;
without segments these are the roles alone. No other kind is divided, and the index of a pod is the label its framework
sets; `kai.scheduler/pod-index-label` is not read (topo:T-49).

Errors are reported in two ways. An unusable segment size is a `Problem` beside a valid result, the roles without
segments: the workload runs, and its owner sees the problem (topo:TD-19). If there is no valid result, a `SegmentError`
is raised: the pod cannot be assigned (no index, or one that no segment has), there would be too many segments, or the
manifest contradicts itself. Both name the object, the field, what is wrong and how to fix it.

Subtle: all pods share one PodGroup, so the subgroups must not depend on which pod is grouped. A PyTorchJob's size is
therefore its template's, and a pod's own annotations count only where the template sets none (the size) or the pod is a
worker (size and topology): a master or leader annotated otherwise must not rewrite the group.

Subtle: a LeaderWorkerSet's leader has index 0 and is one of the group's size. When the workers alone divide evenly,
segment 0 is the leader and a full segment of workers; otherwise the leader takes a worker's place in it.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import field

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.decode import DecodeError, decode_as
from pykai.api.meta import Int64, ObjectMeta, Wire
from pykai.api.nulls import describe_value
from pykai.api.scheduling import SubGroup
from pykai.core.model.problems import Problem
from pykai.podgrouper.constraints import Annotations, segment_constraint
from pykai.podgrouper.kubeflowjob import KubeflowJob, PodTemplateMetadata
from pykai.podgrouper.metadata import GroupingError

MAX_SEGMENTS: Final = 10_000

#: As Go reads whole numbers: no blanks, no underscores, only ASCII. More digits count nothing that exists.
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_ANNOTATIONS = "metadata.annotations"


class SegmentError(GroupingError):
    """Subgroups cannot be made, or the pod belongs to none of them; `problem` names place, reason and fix."""

    def __init__(self, subject: str, path: str, text: str) -> None:
        self.problem = Problem(subject, path, text)
        super().__init__(str(self.problem))


class Subgroups(NamedTuple):
    """A workload's division into subgroups, as one of its pods sees it."""

    #: all subgroups, in the order in which the PodGroup lists them
    sub_groups: tuple[SubGroup, ...]
    #: the subgroup of the pod, empty for none
    pod_sub_group: str
    #: pods without which the group does not start, `minMember` of the PodGroup
    min_member: int
    #: requests that were ignored
    problems: tuple[Problem, ...] = ()


class PyTorchJob(KubeflowJob):
    """The kind that errors name."""


class _SubGroupPolicy(Wire):
    #: anything, because a bad size is reported and ignored instead of rejecting the manifest
    sub_group_size: Any = None
    sub_group_policy_type: str = ""


class _LeaderWorkerTemplate(Wire):
    size: Int64 = 0
    sub_group_policy: _SubGroupPolicy = field(default_factory=_SubGroupPolicy)
    worker_template: PodTemplateMetadata = field(default_factory=PodTemplateMetadata)


class _LeaderWorkerSetSpec(Wire):
    startup_policy: str = ""
    leader_worker_template: _LeaderWorkerTemplate = field(default_factory=_LeaderWorkerTemplate)


class LeaderWorkerSet(Wire):
    """As far as its subgroups go."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: _LeaderWorkerSetSpec = field(default_factory=_LeaderWorkerSetSpec)


_Owner = TypeVar("_Owner", PyTorchJob, LeaderWorkerSet)


def pytorch_subgroups(owner: dict[str, Any], pod: Pod) -> Subgroups:
    """Subgroups `master` and `worker`, the latter divided into `worker-0`, `worker-1`, ... (topo:T-45).

    Whether the job may have no replicas of a role is up to its grouper.

    Statements: topo:T-48.
    """
    job = _read(PyTorchJob, owner)
    subject = _subject("PyTorchJob", job.metadata)
    roles = job.spec.pytorch_replica_specs
    masters = roles["Master"].count if "Master" in roles else 0
    declared_minimums = (job.spec.min_available, job.spec.elastic_policy.min_replicas)
    minimum = next(
        (number for number in declared_minimums if number is not None), sum(each.count for each in roles.values())
    )
    role = pod.metadata.labels.get(names.KUBEFLOW_REPLICA_TYPE_LABEL, "")
    pod_sub_group = role if role in ("master", "worker") else ""
    groups = [SubGroup(name="master", min_member=masters)] if masters else []
    worker = roles.get("Worker")
    if worker is None:
        return Subgroups(tuple(groups), pod_sub_group, minimum)

    minimum_workers = max(0, minimum - masters)
    path = "spec.pytorchReplicaSpecs.Worker"
    template = worker.template.metadata.annotations
    own = pod.metadata.annotations if role == "worker" else {}
    size_sources = (
        _size_annotation(subject, f"{path}.template.{_ANNOTATIONS}", template),
        _size_annotation(_subject("Pod", pod.metadata), _ANNOTATIONS, own),
    )
    # No size suits a job that has no workers for now; that is not a problem.
    size, problems = _segment_size(size_sources if worker.count else (), worker.count, "the number of workers")
    if not size:
        groups.append(SubGroup(name="worker", min_member=minimum_workers))
        return Subgroups(tuple(groups), pod_sub_group, minimum, problems)

    count = _checked_count(-(-worker.count // size), subject, path)
    needed = -(-minimum_workers // size)
    constraint = segment_constraint(own, template, job.metadata.annotations)
    groups.append(SubGroup(name="worker", min_sub_group=count))
    for number in range(count):
        groups.append(
            SubGroup(
                name=f"worker-{number}",
                parent="worker",
                # Segments beyond the minimum are elastic: they may start with any number of their pods.
                min_member=min(size, worker.count - number * size) if number < needed else 0,
                topology_constraint=constraint,
            )
        )
    if role == "worker":
        pod_sub_group = f"worker-{_segmented_index(pod, names.KUBEFLOW_REPLICA_INDEX_LABEL, worker.count) // size}"
    return Subgroups(tuple(groups), pod_sub_group, minimum)


def leader_worker_subgroups(owner: dict[str, Any], pod: Pod) -> Subgroups:
    """Subgroups `leader` and `workers`, or segments of them, of one replica of a LeaderWorkerSet (topo:T-46, T-47)."""
    workload = _read(LeaderWorkerSet, owner)
    subject = _subject("LeaderWorkerSet", workload.metadata)
    template_spec = workload.spec.leader_worker_template
    index = _index(pod, names.LWS_WORKER_INDEX_LABEL)
    members = _group_size(workload, subject, pod, index)
    template = template_spec.worker_template.metadata.annotations
    path = "spec.leaderWorkerTemplate"
    size_sources = (
        (subject, f"{path}.subGroupPolicy.subGroupSize", template_spec.sub_group_policy.sub_group_size),
        _size_annotation(subject, _ANNOTATIONS, workload.metadata.annotations),
        _size_annotation(subject, f"{path}.workerTemplate.{_ANNOTATIONS}", template),
    )
    # No size suits a leader that starts before its workers and is alone for now; that is not a problem.
    size, problems = _segment_size(size_sources if members > 1 else (), members, "the size of the group")
    if not size:
        groups = [SubGroup(name="leader", min_member=1)]
        if members > 1:
            groups.append(SubGroup(name="workers", min_member=members - 1))
        return Subgroups(tuple(groups), "leader" if index == 0 else "workers", members, problems)

    policy = template_spec.sub_group_policy.sub_group_policy_type or "LeaderWorker"
    if policy not in ("LeaderWorker", "LeaderExcluded"):
        text = f'unknown policy "{policy}"; use LeaderWorker or LeaderExcluded'
        raise SegmentError(subject, f"{path}.subGroupPolicy.subGroupPolicyType", text)
    even = (members - 1) % size == 0
    if policy == "LeaderExcluded" and not even:
        text = f"LeaderExcluded needs segments of equal size, but {members - 1} workers are not a multiple of {size}; "
        text += "change the size of the group or of the segments, or use LeaderWorker"
        raise SegmentError(subject, f"{path}.subGroupPolicy.subGroupPolicyType", text)
    # Segments are cut from a row of pods: the workers if these divide evenly, else the leader and the workers.
    first = 1 if even else 0
    segmented_pods = members - first
    count = _checked_count(-(-segmented_pods // size), subject, path)
    own = pod.metadata.annotations if index else {}
    constraint = segment_constraint(own, template, workload.metadata.annotations)
    groups = [
        SubGroup(
            name=f"segment-{number}",
            min_member=min(size, segmented_pods - number * size),
            topology_constraint=constraint,
        )
        for number in range(count)
    ]
    leader_in_segment = policy == "LeaderWorker"
    if leader_in_segment:
        groups[0] = SubGroup(name="segment-0", min_sub_group=2, topology_constraint=constraint)
        groups.append(SubGroup(name="leader", parent="segment-0", min_member=1))
        groups.append(SubGroup(name="workers", parent="segment-0", min_member=size if even else size - 1))
    else:
        groups.insert(0, SubGroup(name="leader", min_member=1))

    index = _segmented_index(pod, names.LWS_WORKER_INDEX_LABEL, members)
    number = (index - first) // size
    pod_sub_group = "leader" if index == 0 else "workers" if leader_in_segment and number == 0 else f"segment-{number}"
    return Subgroups(tuple(groups), pod_sub_group, members)


def _group_size(workload: LeaderWorkerSet, subject: str, pod: Pod, index: int | None) -> int:
    """How many pods of a replica start together, the leader included."""
    size = workload.spec.leader_worker_template.size
    if size < 1:
        text = f"expected the number of pods of a replica, 1 or more, got {size}; set it"
        raise SegmentError(subject, "spec.leaderWorkerTemplate.size", text)
    policy = workload.spec.startup_policy or "LeaderCreated"
    if policy == "LeaderCreated":
        return size
    if policy != "LeaderReady":
        text = f'unknown policy "{policy}"; use LeaderCreated or LeaderReady'
        raise SegmentError(subject, "spec.startupPolicy", text)
    if index == 0 and not pod.spec.node_name:
        return 1  # the workers are made when the leader is ready
    annotated_size = _parse_int(pod.metadata.annotations.get(names.LWS_SIZE_ANNOTATION, ""))
    return annotated_size if annotated_size is not None and annotated_size > 0 else size


#: Object, field and value of a segment size.
_SizeSource = tuple[str, str, object]


def _size_annotation(subject: str, path: str, annotations: Annotations) -> _SizeSource:
    key = names.SEGMENT_SIZE_ANNOTATION
    return subject, f'{path}["{key}"]', annotations.get(key)


def _segment_size(size_sources: Iterable[_SizeSource], most: int, what: str) -> tuple[int, tuple[Problem, ...]]:
    """The first size that is given, 0 for no segments; the only check of sizes for all kinds (topo:TD-19)."""
    for subject, path, value in size_sources:
        if value is None or value == "":
            continue
        size = _parse_int(value) if isinstance(value, str) else value if isinstance(value, int) else None
        if size is not None and 1 < size <= most:
            return size, ()
        text = f"{describe_value(value)} is not a segment size: expected a whole number from 2 to {what}, {most}; "
        return 0, (Problem(subject, path, text + "grouped without segments until it is fixed"),)
    return 0, ()


def _checked_count(count: int, subject: str, path: str) -> int:
    if count > MAX_SEGMENTS:
        text = f"the number of subgroups created for the segmentation is {count}, more than {MAX_SEGMENTS}; "
        raise SegmentError(subject, path, text + "use larger segments")
    return count


def _index(pod: Pod, label: str) -> int | None:
    """The pod's number among its kind, if it has one."""
    text = pod.metadata.labels.get(label)
    if text is None:
        return None
    index = _parse_int(text)
    if index is None or index < 0:
        raise _index_error(pod, label, f"expected a whole number of 0 or more, got {describe_value(text)}")
    return index


def _segmented_index(pod: Pod, label: str, count: int) -> int:
    """The index that says which segment the pod belongs to."""
    index = _index(pod, label)
    if index is None:
        raise _index_error(pod, label, "missing, so the pod belongs to no segment")
    if index >= count:
        raise _index_error(pod, label, f"{index} is beyond the {count} pods that the workload is divided for")
    return index


def _index_error(pod: Pod, label: str, text: str) -> SegmentError:
    advice = "; the controller of the workload sets this label, see that nothing changes it"
    return SegmentError(_subject("Pod", pod.metadata), f'metadata.labels["{label}"]', text + advice)


def _parse_int(text: str) -> int | None:
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else None


def _read(wire_type: type[_Owner], owner: dict[str, Any]) -> _Owner:
    try:
        return decode_as(wire_type, owner)
    except DecodeError as error:
        raise SegmentError(error.subject, error.path, f"{error.problem}; fix the manifest") from None


def _subject(kind: str, metadata: ObjectMeta) -> str:
    return "/".join(part for part in (kind, metadata.namespace, metadata.name) if part)
