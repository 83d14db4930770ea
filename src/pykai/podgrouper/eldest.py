"""The oldest pod of each group: the one whose labels speak for all.

Pods of one workload may differ in their labels, and a group that took them from whichever pod changed last would
flicker.  So the oldest pod that is in the group speaks (of equal age the first by name).

Subtle: a heap a group, cleaned only when somebody looks: a pod that is gone or has changed its group is passed over
then.  A group with thousands of pods costs a step a pod, not a walk over all of them.
"""

from __future__ import annotations

import heapq

from pykai.api import names
from pykai.api.core import Pod
from pykai.kube.store import Change, Store


def group_key(pod: Pod) -> str:
    """Key of the PodGroup that the pod names, "" for none."""
    name = pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION)
    return f"{pod.metadata.namespace}/{name}" if name else ""


class Eldest:
    """Follows a store of pods."""

    def __init__(self, pods: Store[Pod]) -> None:
        self._pods = pods
        #: group key -> (creation, name, uid) of pods, some of them gone
        self._heaps: dict[str, list[tuple[str, str, str]]] = {}

    def saw(self, change: Change[Pod]) -> None:
        """A pod came or changed."""
        pod = change.new
        # A pod without owners is grouped once and never asked about again.
        if pod is None or not pod.metadata.owner_references:
            return
        group = group_key(pod)
        if group and (change.old is None or group_key(change.old) != group):
            meta = pod.metadata
            heapq.heappush(self._heaps.setdefault(group, []), (meta.creation_timestamp or "", meta.name, meta.uid))

    def of(self, group: str) -> Pod | None:
        """The oldest pod of a group, if any pod names it."""
        heap = self._heaps.get(group)
        while heap:
            _, name, uid = heap[0]
            pod = self._pods.get(f"{group.partition('/')[0]}/{name}")
            if pod is not None and pod.metadata.uid == uid and group_key(pod) == group:
                return pod
            heapq.heappop(heap)
        self._heaps.pop(group, None)
        return None

    def forget(self, group: str) -> None:
        """The group is gone; pods that still name it come back with their next change."""
        self._heaps.pop(group, None)
