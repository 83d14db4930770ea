"""Pods on their way into the tables: sanitised, charged to a stand-in if they lack a PodGroup, with our evictions.

Pods for which a placeholder stands are hidden: in the tables, demand and room must be there once (suspend:resume).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from pykai.api.core import Namespace, Node, Pod
from pykai.api.keys import object_key
from pykai.api.scheduling import PodGroup, Queue
from pykai.kube.store import Change, Store
from pykai.scheduler.intake.changes import pod_differs
from pykai.scheduler.intake.operationqueue import OperationQueue
from pykai.scheduler.intake.operations import ApplyObject, RemoveObject, remove_by_key
from pykai.scheduler.intake.pendingadmissions import PendingAdmissions
from pykai.scheduler.intake.pendingevictions import PendingEvictions
from pykai.scheduler.sanitising.problems import SanitisingProblems
from pykai.scheduler.sanitising.sharedgpus import SharedGpuSanitiser
from pykai.scheduler.sanitising.standins import StandInGroups


class PodIntake:
    """Keeps the pods of the tables current.  Lives on the event loop."""

    def __init__(
        self,
        pods: Store[Pod],
        pods_of_group: Callable[[str], Collection[Pod]],
        shared_gpus: SharedGpuSanitiser,
        stand_ins: StandInGroups,
        evictions: PendingEvictions,
        admissions: PendingAdmissions,
        problems: SanitisingProblems,
        queue: OperationQueue,
    ) -> None:
        self._pods = pods
        self._pods_of_group = pods_of_group
        self._shared_gpus = shared_gpus
        self._stand_ins = stand_ins
        self._problems = problems
        self._queue = queue
        self._evictions = evictions
        self._admissions = admissions
        #: namespace/name of hidden pods -> uid
        self._hidden: dict[str, str] = {}

    def on_change(self, change: Change[Pod]) -> None:
        """Handle a change of a pod."""
        key, pod = change.key, change.new
        self._stand_ins.on_pod_change(change)
        if pod is None:
            self._problems.record(f"Pod/{key}", ())
            self._evictions.on_pod_change(key, None)
            self._admissions.on_pod_change(key, None)
            self._queue.add(remove_by_key("Pod", key))
            self._remove_group(self._stand_ins.remove_stand_in(key))
            return
        if change.old is None or pod_differs(change.old, pod):
            self.apply(pod)
        self._evictions.on_pod_change(key, pod)
        self._admissions.on_pod_change(key, pod)

    def apply_gpu_sharers(self, change: Change[Pod]) -> None:
        """Apply the pods that share a GPU with one that changed."""
        self._apply_each(self._shared_gpus.affected_pods(change))

    def on_node_change(self, change: Change[Node]) -> None:
        """Handle a change of a node: its pods may need a stand-in, or none any more."""
        self._apply_each(self._stand_ins.affected_pods(change))

    def on_queue_change(self, change: Change[Queue]) -> None:
        """Handle a change of a queue: the same for the pods in it."""
        self._apply_each(self._stand_ins.on_queue_change(change))

    def on_namespace_change(self, change: Change[Namespace]) -> None:
        """Handle a change of a namespace: the same for its pods."""
        self._apply_each(self._stand_ins.on_namespace_change(change))

    def on_group_change(self, change: Change[PodGroup]) -> None:
        """Handle a change of a PodGroup: its pods may need a stand-in, or none any more."""
        if self._stand_ins.on_group_change(change):
            self._apply_each(self._stand_ins.pods_to_recheck(self._pods_of_group(change.key)))

    def charge_ungrouped(self) -> None:
        """Charge pods on a node without a PodGroup to a queue from now on: all lists are complete."""
        self._apply_each(self._stand_ins.start())

    def _apply_each(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            self.apply(pod)

    def hide(self, key: str, uid: str) -> None:
        """Take a pod out of the tables until `show`; another pod of its name is left alone."""
        self._hidden[key] = uid
        self._queue.add(remove_by_key("Pod", key))

    def show(self, key: str) -> None:
        """Let a hidden pod take part again."""
        if self._hidden.pop(key, None) is not None and (pod := self._pods.get(key)) is not None:
            self.apply(pod)

    def _is_hidden(self, pod: Pod) -> bool:
        meta = pod.metadata
        return bool(self._hidden) and self._hidden.get(object_key(meta.namespace, meta.name)) == meta.uid

    def apply_quietly(self, pod: Pod) -> None:
        """Queue what the last plan has changed on a pod, which requests no cycle."""
        if not self._is_hidden(pod):
            self._queue.add_quietly(ApplyObject(self.as_in_tables(pod)))

    def apply(self, pod: Pod) -> None:
        """Queue the present version of a pod."""
        if self._is_hidden(pod):
            return
        sanitised, problems = self._shared_gpus.sanitise(pod)
        if problems or self._problems:
            self._problems.record(f"Pod/{pod.metadata.namespace}/{pod.metadata.name}", problems)
        change = self._stand_ins.with_stand_in(pod, sanitised)
        if change.added is not None:
            self._queue.add_quietly(ApplyObject(change.added))
        self._queue.add(ApplyObject(self._with_unseen_writes(change.pod)))
        self._remove_group(change.removed)

    def _remove_group(self, group: PodGroup | None) -> None:
        if group is not None:
            self._queue.add_quietly(RemoveObject("PodGroup", group.metadata.namespace, group.metadata.name))

    def as_in_tables(self, pod: Pod) -> Pod:
        """A pod as the tables have it."""
        stand_in = self._stand_ins.apply_stand_in(pod, self._shared_gpus.sanitise(pod)[0])
        return self._with_unseen_writes(stand_in)

    def _with_unseen_writes(self, pod: Pod) -> Pod:
        return self._admissions.with_opening(self._evictions.with_condition(pod))

    def objects(self) -> Iterator[Pod]:
        """The pods of the tables."""
        return (self.as_in_tables(pod) for pod in self._pods.values() if not self._is_hidden(pod))
