"""Pods that own themselves, and Spark applications, whose executors belong to their driver pod (workloads:WK-POD).

All pods of one Spark application share the group that its selector names.
"""

from __future__ import annotations

from dataclasses import replace

from pykai.api import names
from pykai.api.core import Pod
from pykai.podgrouper.defaults import default_metadata
from pykai.podgrouper.metadata import Metadata, Owner, Readers, Settings


def group_pod(top: Owner, pod: Pod, owners: tuple[Owner, ...], settings: Settings, readers: Readers) -> Metadata:
    """A group of one pod, or the group of a Spark application."""
    found = default_metadata(top, pod, (), settings, readers)
    labels = pod.metadata.labels
    if names.SPARK_APP_NAME_LABEL in labels and labels.get(names.SPARK_APP_SELECTOR_LABEL):
        return replace(found, name=labels[names.SPARK_APP_SELECTOR_LABEL])
    return found
