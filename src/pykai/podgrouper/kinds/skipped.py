"""Workloads that only start other workloads: what they own makes the group (workloads:ST-1 to ST-5).

An Argo Workflow, a DynamoGraphDeployment and the workloads of run.ai say nothing about gangs; the next owner below
them does, or the pod itself.  It inherits labels and annotations that it does not have, and then the priority and
preemptibility that the defaults ConfigMap has for the skipped kind.
"""

from __future__ import annotations

from msgspec.structs import replace as with_fields

from pykai.api import names
from pykai.api.core import Pod
from pykai.podgrouper.defaults import PREEMPTIBILITIES, kind_defaults_of
from pykai.podgrouper.metadata import GroupingSettings, Metadata, Owner, Readers


def group_by_child(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """The group that the next owner below the top makes."""
    below = owners[:-1]
    child = _inheriting(below[-1] if below else Owner.of_pod(pod), top, pod, readers)
    grouper = readers.grouper(child.group_version_kind)
    return grouper(child, pod, (*below[:-1], child) if below else (), settings, readers)


def _inheriting(child: Owner, skipped: Owner, pod: Pod, readers: Readers) -> Owner:
    """The child with what it lacks; KAI lets the defaults of the skipped kind win over its labels."""
    labels = {**_defaults(skipped, pod, readers), **skipped.metadata.labels, **child.metadata.labels}
    annotations = {**skipped.metadata.annotations, **child.metadata.annotations}
    metadata = with_fields(child.metadata, labels=labels, annotations=annotations)
    return Owner(child.api_version, child.kind, metadata, child.body)


def _defaults(skipped: Owner, pod: Pod, readers: Readers) -> dict[str, str]:
    """The defaults of the skipped kind as labels, unless the pod itself says otherwise."""
    defaults = kind_defaults_of(skipped, readers)
    labels = {}
    own_class = pod.metadata.labels.get(names.PRIORITY_CLASS_LABEL) or pod.spec.priority_class_name
    if not (own_class and readers.priority_class_exists(own_class)):
        if defaults.priority_class and readers.priority_class_exists(defaults.priority_class):
            labels[names.PRIORITY_CLASS_LABEL] = defaults.priority_class
    preemptibility = defaults.preemptibility.lower()
    if pod.metadata.labels.get(names.PREEMPTIBILITY_LABEL) not in PREEMPTIBILITIES:
        if preemptibility and preemptibility in PREEMPTIBILITIES:
            labels[names.PREEMPTIBILITY_LABEL] = preemptibility
    return labels
