"""JobSets: a tree of subgroups, one set for each replicated job and in it one leaf for each Job (workloads:WK-JS).

All replicated jobs start together, or one after the other where the startup policy says so; annotations may lower both
the number of replicated jobs and the number of pods of a Job.

Other than in KAI, a replicated job without replicas is left out instead of making the group invalid, a Job waits for no
more pods than it has completions, and the size of the tree is limited.

Subtle: older releases made flat groups, one for the JobSet or one for each replicated job.  A JobSet that has such a
group keeps that form.  Its possible names are known, so no list of groups is searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from msgspec import field

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.meta import Int64, ObjectMeta, Wire
from pykai.api.nulls import describe_value
from pykai.api.scheduling import SubGroup, TopologyConstraint
from pykai.podgrouper.constraints import Annotations, group_constraint
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata, Owner, Readers
from pykai.podgrouper.ownerspec import SUB_GROUP_NAME, checked_minimum, describe_owner, parse_int32, read_owner
from pykai.podgrouper.segments import MAX_SEGMENTS

_IN_ORDER: Final = "InOrder"
_JOBS: Final = "spec.replicatedJobs"


class _JobTemplateSpec(Wire):
    parallelism: Int64 | None = None
    completions: Int64 | None = None


class _JobTemplate(Wire):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: _JobTemplateSpec = field(default_factory=_JobTemplateSpec)


class _ReplicatedJob(Wire):
    name: str = ""
    replicas: Int64 | None = None
    template: _JobTemplate = field(default_factory=_JobTemplate)

    @property
    def count(self) -> int:
        """JobSet takes an absent number for 1."""
        return 1 if self.replicas is None else max(0, self.replicas)


class _JobSetStartupPolicy(Wire):
    startup_policy_order: str = ""


class _JobSetSpec(Wire):
    replicated_jobs: list[_ReplicatedJob] = field(default_factory=list)
    startup_policy: _JobSetStartupPolicy = field(default_factory=_JobSetStartupPolicy)

    @property
    def in_order(self) -> bool:
        """Whether a replicated job starts only when the one before it is ready."""
        return self.startup_policy.startup_policy_order == _IN_ORDER


class _JobSet(Wire):
    spec: _JobSetSpec = field(default_factory=_JobSetSpec)


def group_job_set(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group of a JobSet."""
    spec = read_owner(_JobSet, top).spec
    if not spec.replicated_jobs:
        raise GroupingError(f"jobset {object_key(top.metadata.namespace, top.metadata.name)} has no replicatedJobs")
    metadata = default_metadata(top, pod, (), settings, readers)
    if _has_flat_group(metadata, spec, readers):
        return _flat(metadata, top, pod, spec)
    sub_groups = tuple(_tree(top, spec))
    leaf = f"{_label(pod, names.JOBSET_REPLICATED_JOB_LABEL)}-replica-{_label(pod, names.JOBSET_JOB_INDEX_LABEL)}"
    if not any(each.name == leaf and each.parent for each in sub_groups):
        raise GroupingError(
            f"pod {object_key(pod.metadata.namespace, pod.metadata.name)} belongs to subgroup {leaf!r}, which "
            f"{describe_owner(top)} does not have; see the labels {names.JOBSET_REPLICATED_JOB_LABEL} and "
            f"{names.JOBSET_JOB_INDEX_LABEL}"
        )
    parents = sum(not each.parent for each in sub_groups)
    return replace(metadata, min_sub_group=_min_jobs(top, spec, parents), sub_groups=sub_groups, pod_sub_group=leaf)


def _min_jobs(top: Owner, spec: _JobSetSpec, parents: int) -> int:
    """How many replicated jobs must start together."""
    declared = _annotated_minimum(top, "metadata.annotations", top.metadata.annotations)
    return min(parents, declared if declared is not None else 1 if spec.in_order else parents)


def _tree(top: Owner, spec: _JobSetSpec) -> Iterator[SubGroup]:
    """A set for each replicated job that has replicas, followed by its leaves."""
    total = sum(1 + job.count for job in spec.replicated_jobs if job.count)
    if total > MAX_SEGMENTS:
        raise _refusal(top, _JOBS, f"needs {total} subgroups, more than {MAX_SEGMENTS}; use fewer replicas")
    used: set[str] = set()
    for number, job in enumerate(spec.replicated_jobs):
        if not job.count:
            continue
        path = f"{_JOBS}[{number}]"
        leaves = [f"{job.name}-replica-{index}" for index in range(job.count)]
        if not SUB_GROUP_NAME.fullmatch(job.name) or not SUB_GROUP_NAME.fullmatch(leaves[-1]):
            raise _refusal(top, f"{path}.name", f"{describe_value(job.name)} cannot be the name of a subgroup")
        if not used.isdisjoint((job.name, *leaves)):
            raise _refusal(top, f"{path}.name", f"another replicated job has subgroups named like {job.name!r}")
        used.update((job.name, *leaves))
        yield SubGroup(name=job.name, min_sub_group=job.count)
        minimum, constraint = _min_pods(top, job, path), _constraint(job.template.metadata.annotations)
        for leaf in leaves:
            yield SubGroup(name=leaf, parent=job.name, min_member=minimum, topology_constraint=constraint)


def _min_pods(top: Owner, job: _ReplicatedJob, path: str) -> int:
    """How many pods of each Job must start together."""
    template = job.template
    declared = _annotated_minimum(top, f"{path}.template.metadata.annotations", template.metadata.annotations)
    if declared is not None:
        return declared
    parallelism = 1 if template.spec.parallelism is None else template.spec.parallelism
    completions = template.spec.completions
    minimum = parallelism if completions is None else min(parallelism, completions)
    return checked_minimum(top, f"{path}.template.spec.parallelism", minimum)


def _annotated_minimum(top: Owner, path: str, annotations: Annotations) -> int | None:
    key = names.BATCH_MIN_MEMBER_ANNOTATION
    text = annotations.get(key)
    if text is None:
        return None
    minimum = parse_int32(text)
    if minimum is None or minimum < 1:
        wrong = f"invalid min-member annotation value: {describe_value(text)}; expected a whole number of 1 or more"
        raise _refusal(top, f'{path}["{key}"]', wrong)
    return minimum


def _constraint(template: Annotations) -> TopologyConstraint | None:
    """The constraint of each Job; none without a topology or without a level (topo:T-14)."""
    constraint = group_constraint(template)
    has_level = constraint.required_topology_level or constraint.preferred_topology_level
    return constraint if constraint.topology and has_level else None


def _has_flat_group(metadata: Metadata, spec: _JobSetSpec, readers: Readers) -> bool:
    """Whether an older release made the groups of the JobSet."""
    own = {metadata.name, *(f"{metadata.name}-{job.name}" for job in spec.replicated_jobs)}
    groups = (readers.pod_group(metadata.namespace, name) for name in own)
    return any(group is not None and not group.spec.sub_groups for group in groups)


def _flat(metadata: Metadata, top: Owner, pod: Pod, spec: _JobSetSpec) -> Metadata:
    text = top.metadata.annotations.get(names.BATCH_MIN_MEMBER_ANNOTATION, "1")
    path = f'metadata.annotations["{names.BATCH_MIN_MEMBER_ANNOTATION}"]'
    minimum = parse_int32(text)
    if minimum is None:
        raise _refusal(top, path, f"invalid min-member annotation value: {describe_value(text)}")
    name = _label(pod, names.JOBSET_REPLICATED_JOB_LABEL)
    return replace(
        metadata,
        name=f"{metadata.name}-{name}" if spec.in_order else metadata.name,
        min_available=checked_minimum(top, path, minimum),
    )


def _label(pod: Pod, key: str) -> str:
    value = pod.metadata.labels.get(key)
    if not value:
        subject = f"pod {object_key(pod.metadata.namespace, pod.metadata.name)}"
        raise GroupingError(f"{subject} has no label {key}, which JobSet sets; see that nothing removes it")
    return value


def _refusal(top: Owner, path: str, reason: str) -> GroupingError:
    return GroupingError(f"{describe_owner(top)}: {path}: {reason}")
