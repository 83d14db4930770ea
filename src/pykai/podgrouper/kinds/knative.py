"""Knative Services: the pods of a Revision start together, as many as its `min-scale` (workloads:WK-KN).

With `--knative-gang-schedule=false`, and for Revisions whose pods have groups of their own from older releases, each
pod is a group.  Preemptibility, delays and topology of a Revision count, which KAI ignores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.nulls import describe_value
from pykai.core.model.problems import Problem
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata, ObjectName, Owner, Readers
from pykai.podgrouper.ownerspec import describe_owner, look_up, parse_int32

_SERVING: Final = "serving.knative.dev/v1"


def group_knative_service(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group of the pod's Revision, or of the pod alone."""
    if not settings.knative_gang_schedule:
        return _pod_alone(top, pod, settings, readers)
    revision = _revision_of(top, pod, owners, readers)
    if _has_groups_of_pods(revision, pod, readers):
        return _pod_alone(top, pod, settings, readers)
    metadata = default_metadata(revision, pod, (), settings, readers, priority_class=names.PRIORITY_CLASS_INFERENCE)
    return _with_min_scale(metadata, revision)


def _pod_alone(top: Owner, pod: Pod, settings: GroupingSettings, readers: Readers) -> Metadata:
    return replace(
        default_metadata(top, pod, (), settings, readers),
        name=f"pg-{pod.metadata.name}-{pod.metadata.uid}",
        owner=Owner.of_pod(pod).reference(),
        priority_class=names.PRIORITY_CLASS_INFERENCE,
    )


def _revision_of(top: Owner, pod: Pod, owners: Iterable[Owner], readers: Readers) -> Owner:
    name = pod.metadata.labels.get(names.KNATIVE_REVISION_LABEL)
    pod_name = object_key(pod.metadata.namespace, pod.metadata.name)
    if not name:
        raise GroupingError(f"pod {pod_name} of {describe_owner(top)} has no label {names.KNATIVE_REVISION_LABEL}")
    revision = look_up(ObjectName(_SERVING, "Revision", pod.metadata.namespace, name), owners, readers)
    if revision is None:
        raise GroupingError(f"Revision {name}, which pod {pod_name} names, does not exist")
    return revision


def _has_groups_of_pods(revision: Owner, pod: Pod, readers: Readers) -> bool:
    """Whether older releases made a group for each pod of the Revision."""
    groups: set[str] = set()
    for each in readers.pods(pod.metadata.namespace, {names.KNATIVE_REVISION_LABEL: revision.metadata.name}):
        group = each.metadata.annotations.get(names.POD_GROUP_ANNOTATION)
        if not group:
            continue
        if group in groups:
            return False
        groups.add(group)
    if len(groups) != 1:
        return len(groups) > 1
    (name,) = groups
    existing = readers.pod_group(pod.metadata.namespace, name)
    if existing is None:
        return False
    kinds = [reference.kind for reference in existing.metadata.owner_references[:1]]
    if kinds not in (["Revision"], ["Pod"]):
        raise GroupingError(
            f"PodGroup {name} of a pod of {describe_owner(revision)} is owned by {kinds[0] if kinds else 'nothing'}, "
            "neither by a Revision nor by a Pod; delete it"
        )
    return kinds == ["Pod"]


def _with_min_scale(metadata: Metadata, revision: Owner) -> Metadata:
    key = names.KNATIVE_MIN_SCALE_ANNOTATION
    text = revision.metadata.annotations.get(key)
    scale = 1 if text is None else parse_int32(text)
    if scale is not None and scale >= 0:
        return replace(metadata, min_available=scale)
    subject = f"Revision/{revision.metadata.namespace}/{revision.metadata.name}"
    problem = Problem(
        subject, f"metadata.annotations[{key}]", f"{describe_value(text)} is no number of pods; 1 is used"
    )
    return replace(metadata, problems=(*metadata.problems, problem))
