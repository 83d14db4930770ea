"""Placeholder pods: in the tables they stand for the pods of a suspended workload (suspend:demand).

A suspended owner has no pods, and the engine knows demand only as pods.  So each recorded pod has a placeholder, which
waits, counts in its queue and is placed by every rule like the pod that it stands for.  Placeholders exist in the
tables only: nothing is ever written about them.  No pod can have their names and uids, which contain a colon.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.scheduler.intake.operationqueue import OperationQueue
from pykai.scheduler.intake.operations import ApplyObject, remove_by_key

#: before the uid of the PodGroup, in names and uids of placeholders
PLACEHOLDER_PREFIX = "placeholder:"


def is_placeholder(uid: str) -> bool:
    """Whether a pod with this uid is a placeholder."""
    return uid.startswith(PLACEHOLDER_PREFIX)


class PlaceholderPods:
    """The placeholders of the tables.  Lives on the event loop."""

    def __init__(self, queue: OperationQueue) -> None:
        self._queue = queue
        #: namespace/name -> placeholder
        self._pods: dict[str, Pod] = {}

    def add(self, pods: Iterable[Pod]) -> None:
        """Let placeholders wait."""
        for pod in pods:
            self._pods[object_key(pod.metadata.namespace, pod.metadata.name)] = pod
            self._queue.add(ApplyObject(pod))

    def remove(self, key: str) -> None:
        """Remove a placeholder; one that is gone already stays so."""
        if self._pods.pop(key, None) is not None:
            self._queue.add(remove_by_key("Pod", key))

    def get(self, key: str) -> Pod | None:
        """A placeholder by namespace/name."""
        return self._pods.get(key)

    def objects(self) -> Collection[Pod]:
        """All placeholders."""
        return self._pods.values()
