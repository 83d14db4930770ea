"""Pods that are their own workload, and Spark applications, whose executors belong to their driver (workloads:WK-POD).

All pods of one Spark application share the group that its selector names.  The driver describes the group; an executor
without an owner joins the group unchanged, so that the two do not overwrite each other for as long as they run.

Subtle: KAI groups a pod with owners again after it patched the pod, and then copies its own annotation to the group.
Recorded groups hold it, so ours get it when they are created.
"""

from __future__ import annotations

from dataclasses import replace

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.duration import DurationError, parse_duration
from pykai.api.scheduling import PodGroup, TopologyConstraint
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import GroupingSettings, Metadata, Owner, Readers


def group_pod(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """A group of one pod, or the group of a Spark application."""
    metadata = default_metadata(top, pod, (), settings, readers)
    application = _spark_application(pod)
    if application:
        metadata = replace(metadata, name=application)
    if pod.metadata.owner_references:
        annotations = {**metadata.annotations, names.POD_GROUP_ANNOTATION: metadata.name}
        metadata = replace(metadata, annotations=annotations)
    if application and _is_executor(pod) and top.metadata.uid == pod.metadata.uid:
        existing = readers.pod_group(metadata.namespace, application)
        if existing is not None and existing.metadata.owner_references:
            return in_existing_group(metadata, existing)
    return metadata


def _spark_application(pod: Pod) -> str:
    """The selector of the pod's Spark application, "" for none."""
    labels = pod.metadata.labels
    return labels.get(names.SPARK_APP_SELECTOR_LABEL, "") if names.SPARK_APP_NAME_LABEL in labels else ""


def _is_executor(pod: Pod) -> bool:
    return pod.metadata.labels.get(names.SPARK_ROLE_LABEL) == names.SPARK_EXECUTOR


def in_existing_group(metadata: Metadata, existing: PodGroup) -> Metadata:
    """The place of a pod in a group that does not change."""
    spec = existing.spec
    return replace(
        metadata,
        owner=existing.metadata.owner_references[0],
        labels={},
        annotations={},
        queue=spec.queue,
        priority_class=spec.priority_class_name,
        preemptibility=spec.preemptibility,
        preemption_delay_ns=_duration_ns(spec.preemption_delay),
        staleness_grace_ns=_duration_ns(spec.staleness_grace_period),
        min_available=spec.min_member or 1,
        topology=spec.topology_constraint or TopologyConstraint(),
    )


def _duration_ns(text: str | None) -> int | None:
    try:
        return parse_duration(text) if text else None
    except DurationError:
        return None
