"""Deployments: every replica serves by itself, so each pod is a group of its own (workloads:WK-DEP).

Labels, annotations, queue and priority are the Deployment's; name and owner are the pod's.

Subtle: the Deployment's controller writes the revision on the Deployment only after it made the ReplicaSet, so a pod
can be grouped before it is written.  The ReplicaSet has the same number from the start.
"""

from __future__ import annotations

from dataclasses import replace

from pykai.api import names
from pykai.api.core import Pod
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import GroupingSettings, Metadata, Owner, Readers


def group_deployment(
    top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: GroupingSettings, readers: Readers
) -> Metadata:
    """A group of one pod, with the settings of the Deployment."""
    metadata = default_metadata(top, pod, (), settings, readers, priority_class=names.PRIORITY_CLASS_INFERENCE)
    annotations = dict(metadata.annotations)
    for owner in owners:
        revision = owner.metadata.annotations.get(names.DEPLOYMENT_REVISION_ANNOTATION)
        if owner.kind == "ReplicaSet" and revision is not None:
            annotations.setdefault(names.DEPLOYMENT_REVISION_ANNOTATION, revision)
    own = Owner.of_pod(pod)
    return replace(
        metadata,
        name=f"pg-{pod.metadata.name}-{pod.metadata.uid}",
        owner=own.reference(),
        annotations=annotations,
    )
