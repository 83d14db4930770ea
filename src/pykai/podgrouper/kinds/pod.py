"""Pods without an owner, and Spark applications, whose executors belong to their driver pod (workloads:WK-POD).

All pods of one Spark application share the group that its selector names.  The driver describes the group; an executor
without an owner joins the group unchanged, so that the two do not overwrite each other for as long as they run.
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
    labels = pod.metadata.labels
    name = labels.get(names.SPARK_APP_SELECTOR_LABEL)
    if names.SPARK_APP_NAME_LABEL not in labels or not name:
        return metadata
    metadata = replace(metadata, name=name)
    if labels.get(names.SPARK_ROLE_LABEL) == names.SPARK_EXECUTOR and top.metadata.uid == pod.metadata.uid:
        existing = readers.pod_group(metadata.namespace, name)
        if existing is not None and existing.metadata.owner_references:
            return _from_existing_group(metadata, existing)
    return metadata


def _from_existing_group(metadata: Metadata, existing: PodGroup) -> Metadata:
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
