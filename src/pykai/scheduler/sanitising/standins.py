"""Pods of ours on a node without a PodGroup that is charged for them: they are charged to a queue all the same.

The engine charges queues by PodGroups.  A pod that its user created with a node, or whose PodGroup was deleted, would
use its GPUs free of charge until the pod grouper has made a PodGroup for it, or for good where an annotation keeps the
pod grouper away.  So the engine sees a stand-in: a PodGroup of this one pod, in the queue that the pod's label names,
with the pod's priority class.  It is never written; it ends when the pod is deleted or gets a PodGroup.

A PodGroup that moves to another node pool, or to a queue that does not exist, is not charged here either, and its
tenant can write both; one that names a queue which its namespace may not use would be charged to others.  The pods
on our nodes then stay in the last queue of the group that this scheduler has seen; the group itself, with its waiting
pods, is taken as it is.  Where access is withdrawn from a group that was charged, its pods stay charged there; pods
that come to the group later are not.

Subtle: pods and PodGroups come over two watches, so at the start every pod may seem to have none.  Stand-ins are made
after `start`, when the lists are complete.  Only nodes of this shard count: each scheduler sees all pods.

Statements: trust:ungrouped, access:charges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Namespace, Node, Pod
from pykai.api.keys import object_key
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import PodGroup, PodGroupSpec, Queue
from pykai.core.cluster.queueaccess import find_denial
from pykai.core.model.queueaccess import QueueAccess, access_texts, read_queue_access
from pykai.core.model.shard import Shard
from pykai.core.model.tasks import has_ended
from pykai.kube.store import Change, Store

#: index of the pods: the node they are on
PODS_BY_NODE = "pods by node"


_NEVER_CHARGED: Final = ("", PodGroupSpec())


class StandInChange(NamedTuple):
    """A pod as the tables have it, and the stand-ins to add before it and to remove after it."""

    pod: Pod
    added: PodGroup | None = None
    removed: PodGroup | None = None


class StandInGroups:
    """Stand-ins for missing PodGroups."""

    def __init__(
        self,
        pods: Store[Pod],
        groups: Store[PodGroup],
        nodes: Store[Node],
        queues: Store[Queue],
        namespaces: Store[Namespace],
        shard: Shard,
    ) -> None:
        self._pods = pods
        self._groups = groups
        self._queues = queues
        self._namespaces = namespaces
        self._nodes = nodes
        self._shard = shard
        self._started = False
        #: key of a pod -> the stand-in for its PodGroup
        self._stand_ins: dict[str, PodGroup] = {}
        #: key of a PodGroup -> its uid, and its spec when it was last charged
        self._last_charged: dict[str, tuple[str, PodGroupSpec]] = {}
        #: keys of pods that came to their PodGroup while its queue was closed to them
        self._latecomers: set[str] = set()
        pods.index(PODS_BY_NODE, lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())

    def start(self) -> list[Pod]:
        """Start to check pods; returns those that already need a stand-in."""
        if not self._started:
            self._started = True
            self._remember_groups()
        return [pod for pod in self._pods.values() if self._needs_stand_in(pod)]

    def _remember_groups(self) -> None:
        """Take groups that run as charged to the queue that they name: their access may have been withdrawn."""
        running = {_group_key(pod) for pod in self._pods.values() if self._is_ours(pod) and not has_ended(pod)}
        for key, group in zip(self._groups.keys(), self._groups.values(), strict=True):
            if key in running and self._names_queue_here(group):
                self._last_charged[key] = (group.metadata.uid, group.spec)
            else:
                self._remember_if_charged(key, group)

    def groups(self) -> Collection[PodGroup]:
        """All stand-ins."""
        return self._stand_ins.values()

    def with_stand_in(self, pod: Pod, sanitised: Pod) -> StandInChange:
        """A pod with its stand-in, if it needs one."""
        key = _key(pod)
        if not self._needs_stand_in(pod):
            return StandInChange(sanitised, removed=self.remove_stand_in(key))
        group = self._stand_in(pod)
        before, removed = self._stand_ins.get(key), None
        if before is not None and before.metadata.name != group.metadata.name:
            removed = self.remove_stand_in(key)
        self._stand_ins[key] = group
        return StandInChange(_as_member(sanitised, group), None if before == group else group, removed)

    def apply_stand_in(self, pod: Pod, sanitised: Pod) -> Pod:
        """A pod as the tables have it."""
        group = self._stand_ins.get(_key(pod))
        return sanitised if group is None else _as_member(sanitised, group)

    def remove_stand_in(self, key: str) -> PodGroup | None:
        """Drop the stand-in of a pod that is deleted or needs none; returns it, if there was one."""
        return self._stand_ins.pop(key, None) if self._stand_ins else None

    def affected_pods(self, change: Change[Node]) -> Iterable[Pod]:
        """Pods to check again because their node appeared, disappeared, or changed the shard."""
        old, new = change.old, change.new
        was = old is not None and self._shard.covers_node(old.metadata)
        if not self._started or was == (new is not None and self._shard.covers_node(new.metadata)):
            return ()
        name = change.key
        return [pod for pod in self._pods.by_index(PODS_BY_NODE, name) if was or self._needs_stand_in(pod)]

    def on_group_change(self, change: Change[PodGroup]) -> bool:
        """Note whether a PodGroup is charged; True if its pods have to be checked again."""
        old, new = change.old, change.new
        if not self._started:
            # The lists of queues and namespaces may be incomplete.
            return False
        if new is None:
            self._last_charged.pop(change.key, None)
            return True
        is_charged = self._remember_if_charged(change.key, new)
        return old is None or self._is_charged(old) != is_charged

    def on_queue_change(self, change: Change[Queue]) -> Iterable[Pod]:
        """Pods to check again because a queue was created or deleted, or may be used by others than before."""
        if not self._started:
            return ()
        if change.old is not None and change.new is not None:
            access = {
                (each.spec.parent_queue, access_texts(each.metadata.annotations)) for each in (change.old, change.new)
            }
            return () if len(access) == 1 else self._pods_with_stand_in()
        named = self._groups.values()
        groups = {
            object_key(each.metadata.namespace, each.metadata.name): each
            for each in named
            if each.spec.queue == change.key
        }
        for key, group in groups.items():
            self._remember_if_charged(key, group)
        in_queue = [pod for pod in self._pods.values() if pod.spec.node_name and _group_key(pod) in groups]
        # A queue that comes or goes may close or open those below it.
        return in_queue + self._pods_with_stand_in()

    def on_namespace_change(self, change: Change[Namespace]) -> Iterable[Pod]:
        """Pods to check again because the labels of their namespace may select it for other queues than before."""
        old, new = change.old, change.new
        if not self._stand_ins or (old and old.metadata.labels) == (new and new.metadata.labels):
            return ()
        return [pod for pod in self._pods_with_stand_in() if pod.metadata.namespace == change.key]

    def on_pod_change(self, change: Change[Pod]) -> None:
        """Note whether a pod came to its PodGroup while the queue of the group was closed to it (access:charges)."""
        old, new = change.old, change.new
        if not self._started or new is None:
            self._latecomers.discard(change.key)
            return
        if old is not None and old.metadata.uid == new.metadata.uid and _group_key(old) == _group_key(new):
            return
        key = _group_key(new)
        group = self._groups.get(key)
        if group is not None and not self._may_use(new.metadata.namespace, self._charged_queue(key, group)):
            self._latecomers.add(change.key)
        else:
            self._latecomers.discard(change.key)

    def _pods_with_stand_in(self) -> list[Pod]:
        return [pod for key in self._stand_ins if (pod := self._pods.get(key)) is not None]

    def _remember_if_charged(self, key: str, group: PodGroup) -> bool:
        """Whether a PodGroup is charged; its spec is kept for when it no longer is."""
        is_charged = self._is_charged(group)
        if is_charged:
            self._last_charged[key] = (group.metadata.uid, group.spec)
        return is_charged

    def _is_charged(self, group: PodGroup) -> bool:
        return self._names_queue_here(group) and not self._is_closed_to(group)

    def _names_queue_here(self, group: PodGroup) -> bool:
        return self._shard.covers(group.metadata) and group.spec.queue in self._queues

    def _is_closed_to(self, group: PodGroup) -> bool:
        """Whether a group names a queue that its namespace may not use, and that it was not charged to when it might.

        Where access to its queue was withdrawn, it is charged as before (access:withdrawn).
        """
        meta, queue = group.metadata, group.spec.queue
        uid, spec = self._last_charged.get(object_key(meta.namespace, meta.name), _NEVER_CHARGED)
        return (uid != meta.uid or spec.queue != queue) and not self._may_use(meta.namespace, queue)

    def _charged_queue(self, key: str, group: PodGroup) -> str:
        uid, spec = self._last_charged.get(key, _NEVER_CHARGED)
        return spec.queue if uid == group.metadata.uid else group.spec.queue

    def _may_use(self, namespace: str, queue: str) -> bool:
        known = self._namespaces.get(namespace)
        labels = known.metadata.labels if known is not None else None
        return find_denial(namespace, queue, self._queues.get, self._access_of, labels) is None

    def _access_of(self, queue: str) -> QueueAccess | None:
        found = self._queues.get(queue)
        return None if found is None else read_queue_access(found.metadata.annotations)

    def pods_to_recheck(self, pods: Collection[Pod]) -> Iterable[Pod]:
        """The pods of a PodGroup to check again because it was created or deleted."""
        return [pod for pod in pods if pod.spec.node_name] if self._started else ()

    def _needs_stand_in(self, pod: Pod) -> bool:
        node = pod.spec.node_name
        if not self._started or not node or has_ended(pod):
            return False
        key = _group_key(pod)
        group = self._groups.get(key)
        if not self._is_ours(pod) and (group is None or not self._names_queue_here(group)):
            # Without a PodGroup, pods of other schedulers are charged to no queue.
            return False
        if group is not None and self._remember_if_charged(key, group) and not self._is_latecomer(pod, group):
            return False
        where = self._nodes.get(node)
        return where is not None and self._shard.covers_node(where.metadata)

    def _is_ours(self, pod: Pod) -> bool:
        return bool(pod.spec.node_name) and pod.spec.scheduler_name == self._shard.scheduler_name

    def _is_latecomer(self, pod: Pod, group: PodGroup) -> bool:
        key = _key(pod)
        if key in self._latecomers and self._may_use(pod.metadata.namespace, group.spec.queue):
            self._latecomers.remove(key)
        return key in self._latecomers

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
            spec=self._last_spec(pod)
            or PodGroupSpec(
                min_member=1,
                queue=self._queue_of(pod),
                priority_class_name=meta.labels.get(names.PRIORITY_CLASS_LABEL) or pod.spec.priority_class_name,
            ),
        )

    def _queue_of(self, pod: Pod) -> str:
        """The queue that the label of a pod names, or the default one; "" if its namespace may use neither
        (access:charges)."""
        named = pod.metadata.labels.get(self._shard.queue_label)
        queues = (named, names.DEFAULT_QUEUE)
        return next((queue for queue in queues if queue and self._may_use(pod.metadata.namespace, queue)), "")

    def _last_spec(self, pod: Pod) -> PodGroupSpec | None:
        """The spec of an existing PodGroup when it was last charged, for one pod of it."""
        key = _group_key(pod)
        group = self._groups.get(key)
        uid, spec = self._last_charged.get(key, _NEVER_CHARGED)
        if group is None or group.metadata.uid != uid or _key(pod) in self._latecomers:
            return None
        return PodGroupSpec(
            min_member=1,
            queue=spec.queue,
            priority_class_name=spec.priority_class_name,
            preemptibility=spec.preemptibility,
        )


def _key(pod: Pod) -> str:
    return object_key(pod.metadata.namespace, pod.metadata.name)


def _group_key(pod: Pod) -> str:
    return object_key(pod.metadata.namespace, pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION, ""))


def _as_member(pod: Pod, group: PodGroup) -> Pod:
    annotations = {**pod.metadata.annotations, names.POD_GROUP_ANNOTATION: group.metadata.name}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))
