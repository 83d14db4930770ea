"""Labels of live pods about shared GPUs, kept only where they can be true.

A shared GPU is a group of pods and the reservation pod that holds the device on its node.  The binder creates the
reservation, labels the pod with its group, and then binds it.  But any user who may create pods can write labels, so
before the engine sees a pod:

- one that is marked as a reservation without being one (`api.sharing.ReservationRule`) is an ordinary pod, which is
  charged for its requests;
- one of another scheduler never got a share from us: it counts with its requests, without group or share;
- one of ours is in the group of its label if a reservation pod of that node and group exists.  Otherwise another user
  labelled it, or the reservation is lost.  The binder would refuse new pods in such a group again and again, while
  other GPUs stay idle.

The engine itself trusts its input: recorded cases and snapshots are taken as they are.

Subtle: reservations and tenants come over the same watch, in the order in which they were written; a list may bring the
tenant first.  When a reservation appears or disappears, its tenants are checked again (`affected_pods`).

Statements: hostile:tenants, trust:groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.sharing import ReservationRule, gpu_group_label_keys, gpu_groups, shares_gpu
from pykai.core.model.problems import Problem
from pykai.core.model.shard import Shard
from pykai.kube.store import Change, Store

_RESERVATIONS_BY_PLACE = "reservations by group and node"
_TENANTS_BY_GROUP = "tenants by group"
#: Finished pods hold no GPU, whatever their labels say.
_IN_USE = ("", "Pending", "Running")
#: Annotations that request parts of GPUs.
_SHARE_ANNOTATIONS = (
    names.GPU_FRACTION_ANNOTATION,
    names.GPU_MEMORY_ANNOTATION,
    names.GPU_NUM_DEVICES_ANNOTATION,
)


class SharedGpuSanitiser:
    """Checks the pods in a store."""

    def __init__(self, pods: Store[Pod], shard: Shard) -> None:
        self._pods = pods
        self._scheduler = shard.scheduler_name
        self._rule = ReservationRule(shard.reservation_namespace, shard.reservation_app)
        pods.index(_RESERVATIONS_BY_PLACE, self._reserved_places)
        pods.index(_TENANTS_BY_GROUP, self._tenant_groups)

    def reserved_group(self, pod: Pod) -> str:
        """The group for which a pod holds a GPU of its node, "" when it is no reservation."""
        meta = pod.metadata
        return self._rule.group_held_by(meta.namespace, meta.name, meta.labels, pod.spec.node_name)

    def sanitise(self, pod: Pod) -> tuple[Pod, tuple[Problem, ...]]:
        """The pod without impossible claims, and what is wrong; nearly always the pod itself."""
        meta, foreign = pod.metadata, pod.spec.scheduler_name != self._scheduler
        if not meta.labels and not (foreign and shares_gpu(meta.annotations)):
            return pod, ()
        problems: list[Problem] = []
        labels, annotations = meta.labels, meta.annotations
        if self._rule.is_marked(labels):
            if self.reserved_group(pod):
                return pod, ()
            problems.append(_problem(pod, names.APP_LABEL, self._not_a_reservation_text(pod)))
            labels = {key: value for key, value in labels.items() if key != names.APP_LABEL}
        if foreign and pod.spec.node_name:
            if group_label_keys := gpu_group_label_keys(labels):
                text = f"the pod is of scheduler {pod.spec.scheduler_name}, whose pods share no GPUs; treated as absent"
                problems.append(_problem(pod, group_label_keys[0], text))
                labels = {key: value for key, value in labels.items() if key not in group_label_keys}
            if shares_gpu(annotations):
                annotations = {key: value for key, value in annotations.items() if key not in _SHARE_ANNOTATIONS}
        elif missing_group := self._group_without_reservation(pod):
            group_label_keys = gpu_group_label_keys(labels)
            where = pod.spec.node_name
            text = f"no reservation pod holds a GPU for group {missing_group} on node {where}; treated as absent"
            problems.append(_problem(pod, group_label_keys[0], text))
            labels = {key: value for key, value in labels.items() if key not in group_label_keys}
        if labels is meta.labels and annotations is meta.annotations:
            return pod, ()
        return replace(pod, metadata=replace(meta, labels=labels, annotations=annotations)), tuple(problems)

    def affected_pods(self, change: Change[Pod]) -> Collection[Pod]:
        """Pods to check again because a reservation appeared or disappeared."""
        before = set(self._reserved_places(change.old)) if change.old is not None else set()
        after = set(self._reserved_places(change.new)) if change.new is not None else set()
        return [
            tenant
            for place in sorted(before ^ after)
            for tenant in self._pods.by_index(_TENANTS_BY_GROUP, place.rpartition("/")[0])
            if tenant.spec.node_name == place.rpartition("/")[2]
        ]

    def _group_without_reservation(self, pod: Pod) -> str:
        """A group of the pod that no reservation holds on its node, "" when there is none."""
        node = pod.spec.node_name
        return next(
            (
                group
                for group in self._tenant_groups(pod)
                if not self._pods.by_index(_RESERVATIONS_BY_PLACE, f"{group}/{node}")
            ),
            "",
        )

    def _not_a_reservation_text(self, pod: Pod) -> str:
        return (
            f"only pods in namespace {self._rule.namespace} hold GPUs for others, named {names.RESERVATION_NAME_PREFIX}"
            f" and a hash of node {pod.spec.node_name or 'none'} and GPU group"
            f" {pod.metadata.labels.get(names.GPU_GROUP_LABEL, 'none')}; treated as an ordinary pod"
        )

    def _reserved_places(self, pod: Pod) -> Iterable[str]:
        group = self.reserved_group(pod)
        return (f"{group}/{pod.spec.node_name}",) if group else ()

    def _tenant_groups(self, pod: Pod) -> Iterable[str]:
        """The groups of a pod of ours that is on a node and is no reservation itself."""
        labels = pod.metadata.labels
        if not labels or not pod.spec.node_name or pod.status.phase not in _IN_USE:
            return ()
        if pod.spec.scheduler_name != self._scheduler or self.reserved_group(pod):
            return ()
        return gpu_groups(labels)


def _problem(pod: Pod, label: str, text: str) -> Problem:
    meta = pod.metadata
    return Problem(f"Pod/{meta.namespace}/{meta.name}", f"metadata.labels[{label}]", text)
