"""Pods of ours that are on a node and belong to no PodGroup: they are charged to a queue all the same.

The engine charges queues by PodGroups.  A pod that its user created with a node, or whose PodGroup was deleted, would
use its GPUs free of charge until the pod grouper has made a PodGroup for it, or for good where an annotation keeps the
pod grouper away.  So the engine is shown a stand-in: a PodGroup of this one pod, in the queue that the pod's label
names, with the pod's priority class.  It is never written; it goes when the pod goes or gets a PodGroup.

Subtle: pods and PodGroups come over two watches, so at the start every pod may seem to have none.  Stand-ins are made
from `begin` on, when the lists are in.  Only nodes of this shard count: each scheduler sees all pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Node, Pod
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import PodGroup, PodGroupSpec
from pykai.core.shard import Shard
from pykai.core.tasks import has_ended
from pykai.kube.store import Change, Store

#: index of the pods: the node they are on
PODS_ON = "pods by node"

Operation = tuple[str, Any]


class Ungrouped:
    """Stand-ins for the PodGroups that pods lack."""

    def __init__(self, pods: Store[Pod], groups: Store[PodGroup], nodes: Store[Node], shard: Shard) -> None:
        self._pods = pods
        self._groups = groups
        self._nodes = nodes
        self._shard = shard
        self._begun = False
        #: key of a pod -> what stands in for its PodGroup
        self._stand_ins: dict[str, PodGroup] = {}
        pods.index(PODS_ON, lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())

    def begin(self) -> list[Pod]:
        """From now on pods are looked at; those that need a stand-in already."""
        self._begun = True
        return [pod for pod in self._pods.values() if self._lacks_group(pod)]

    def groups(self) -> Collection[PodGroup]:
        """All stand-ins."""
        return self._stand_ins.values()

    def grouped(self, pod: Pod, seen: Pod) -> tuple[Pod, list[Operation], list[Operation]]:
        """A pod with its stand-in, if it needs one, and the changes of the tables to make before and after it."""
        key = _key(pod)
        if not self._lacks_group(pod):
            return seen, [], self.gone(key)
        group = self._stand_in(pod)
        before, after = self._stand_ins.get(key), list[Operation]()
        if before is not None and before.metadata.name != group.metadata.name:
            after = self.gone(key)
        self._stand_ins[key] = group
        return _member(seen, group), [] if before == group else [("apply", group)], after

    def shown(self, pod: Pod, seen: Pod) -> Pod:
        """A pod as the tables have it."""
        group = self._stand_ins.get(_key(pod))
        return seen if group is None else _member(seen, group)

    def gone(self, key: str) -> list[Operation]:
        """The changes of the tables when a pod is gone, or needs no stand-in."""
        group = self._stand_ins.pop(key, None) if self._stand_ins else None
        return [] if group is None else [("remove", ("PodGroup", group.metadata.namespace, group.metadata.name))]

    def concerned(self, change: Change[Node]) -> Iterable[Pod]:
        """Pods to be looked at again because their node came, went, or changed the shard."""
        old, new = change.old, change.new
        was = old is not None and self._shard.covers_node(old.metadata)
        if not self._begun or was == (new is not None and self._shard.covers_node(new.metadata)):
            return ()
        name = change.key
        return [pod for pod in self._pods.by(PODS_ON, name) if was or self._lacks_group(pod)]

    def left(self, pods: Collection[Pod]) -> Iterable[Pod]:
        """Those of a PodGroup's pods to be looked at again because it came or went."""
        return [pod for pod in pods if pod.spec.node_name] if self._begun else ()

    def _lacks_group(self, pod: Pod) -> bool:
        node = pod.spec.node_name
        if not self._begun or not node or pod.spec.scheduler_name != self._shard.scheduler_name or has_ended(pod):
            return False
        meta = pod.metadata
        group = meta.annotations.get(names.POD_GROUP_ANNOTATION)
        if group and f"{meta.namespace}/{group}" in self._groups:
            return False
        where = self._nodes.get(node)
        return where is not None and self._shard.covers_node(where.metadata)

    def _stand_in(self, pod: Pod) -> PodGroup:
        meta, shard = pod.metadata, self._shard
        pool = {shard.node_pool_key: shard.node_pool} if shard.node_pool_key and shard.node_pool else {}
        return PodGroup(
            metadata=ObjectMeta(
                name=f"{names.STAND_IN_PREFIX}{meta.uid}",
                namespace=meta.namespace,
                uid=meta.uid,
                labels=pool,
                creation_timestamp=meta.creation_timestamp,
            ),
            spec=PodGroupSpec(
                min_member=1,
                queue=meta.labels.get(shard.queue_label) or names.DEFAULT_QUEUE,
                priority_class_name=meta.labels.get(names.PRIORITY_CLASS_LABEL) or pod.spec.priority_class_name,
            ),
        )


def _key(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _member(pod: Pod, group: PodGroup) -> Pod:
    annotations = {**pod.metadata.annotations, names.POD_GROUP_ANNOTATION: group.metadata.name}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))
