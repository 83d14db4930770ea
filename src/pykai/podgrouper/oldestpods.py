"""The oldest pod of each group: the one whose labels the group inherits.

Pods of one workload may differ in their labels, and a group that took them from whichever pod changed last would
flicker.  So the oldest pod of the group counts (of equal age the first by name).

Subtle: one heap per group, cleaned lazily: a pod that is gone or has changed its group is dropped when it reaches the
top.  A group with thousands of pods costs one step per pod, not a scan.  Where an old pod stays while younger ones come
and go, stale entries pile up behind it; so a heap that has doubled is compacted.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key, split_key
from pykai.kube.store import Change, Store

#: a heap with fewer entries is not worth compacting
_MIN_COMPACTION_SIZE = 64


def group_key(pod: Pod) -> str:
    """Key of the PodGroup that the pod names, "" for none."""
    name = pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION)
    return object_key(pod.metadata.namespace, name) if name else ""


@dataclass(slots=True)
class _Heap:
    #: (creation, name, uid) of pods, some of them gone
    entries: list[tuple[str, str, str]] = field(default_factory=list)
    #: entries at which it is compacted
    compaction_size: int = _MIN_COMPACTION_SIZE


class OldestPods:
    """Follows a store of pods."""

    def __init__(self, pods: Store[Pod]) -> None:
        self._pods = pods
        #: by group key
        self._heaps: dict[str, _Heap] = {}

    def __len__(self) -> int:
        """How many pods are remembered, gone ones included."""
        return sum(len(heap.entries) for heap in self._heaps.values())

    def observe(self, change: Change[Pod]) -> None:
        """Add or update a pod."""
        pod = change.new
        # A pod without owners is grouped once and never again.
        if pod is None or not pod.metadata.owner_references:
            return
        group = group_key(pod)
        if group and (change.old is None or group_key(change.old) != group):
            meta = pod.metadata
            heap = self._heaps.setdefault(group, _Heap())
            heapq.heappush(heap.entries, (meta.creation_timestamp or "", meta.name, meta.uid))
            if len(heap.entries) > heap.compaction_size:
                heap.entries = [entry for entry in heap.entries if self._current_pod(group, entry) is not None]
                heapq.heapify(heap.entries)
                heap.compaction_size = max(_MIN_COMPACTION_SIZE, 2 * len(heap.entries))

    def oldest_in(self, group: str) -> Pod | None:
        """The oldest pod of a group, if any pod names it."""
        heap = self._heaps.get(group)
        while heap is not None and heap.entries:
            pod = self._current_pod(group, heap.entries[0])
            if pod is not None:
                return pod
            heapq.heappop(heap.entries)
        self._heaps.pop(group, None)
        return None

    def _current_pod(self, group: str, entry: tuple[str, str, str]) -> Pod | None:
        """The pod of an entry, None when it is gone or in another group."""
        _, name, uid = entry
        pod = self._pods.get(object_key(split_key(group)[0], name))
        return pod if pod is not None and pod.metadata.uid == uid and group_key(pod) == group else None

    def forget(self, group: str) -> None:
        """Drop a deleted group; pods that still name it come back with their next change."""
        self._heaps.pop(group, None)
