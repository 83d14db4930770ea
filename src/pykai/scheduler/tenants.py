"""Pods that say they share a GPU which nobody holds for them.

A shared GPU is a group of pods and the reservation pod that holds the device on its node.  A pod gets the labels of its
group from the binder, after the reservation and before its node.  So a pod on a node whose group has no reservation
there was labelled by somebody else, or the reservation is lost.  New pods sent into such a group would be refused by
the binder again and again, while other GPUs stand by; so the labels are not believed, and the pod is told.

Subtle: reservations and tenants come over the same watch, in the order in which they were written; a list may bring the
tenant first.  When a reservation comes or goes, its tenants are looked at again (`concerned`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.sharing import gpu_groups, group_labels
from pykai.core.problems import Problem
from pykai.kube.store import Change, Store

_RESERVED = "reservations by group and node"
_TENANTS = "tenants by group"
#: What has ended holds no GPU, whatever its labels say.
_IN_USE = ("", "Pending", "Running")


class Tenants:
    """Judges the GPU groups of the pods in a store."""

    def __init__(self, pods: Store[Pod], reservation_app: str) -> None:
        self._pods = pods
        self._app = reservation_app
        pods.index(_RESERVED, self._places)
        pods.index(_TENANTS, self._groups)

    def believable(self, pod: Pod) -> tuple[Pod, tuple[Problem, ...]]:
        """The pod without groups that it cannot be in, and what is wrong; nearly always the pod itself."""
        groups = self._groups(pod)
        if not groups:
            return pod, ()
        node = pod.spec.node_name
        missing = [group for group in groups if not self._pods.by(_RESERVED, f"{group}/{node}")]
        if not missing:
            return pod, ()
        meta = pod.metadata
        wrong = group_labels(meta.labels)
        text = f"no reservation pod holds a GPU for group {missing[0]} on node {node}; treated as absent"
        problem = Problem(f"Pod/{meta.namespace}/{meta.name}", f"metadata.labels[{wrong[0]}]", text)
        kept = {key: value for key, value in meta.labels.items() if key not in wrong}
        return replace(pod, metadata=replace(meta, labels=kept)), (problem,)

    def concerned(self, change: Change[Pod]) -> Collection[Pod]:
        """Pods to be judged again because a reservation came or went."""
        before = set(self._places(change.old)) if change.old is not None else set()
        after = set(self._places(change.new)) if change.new is not None else set()
        return [
            tenant
            for place in sorted(before ^ after)
            for tenant in self._pods.by(_TENANTS, place.rpartition("/")[0])
            if tenant.spec.node_name == place.rpartition("/")[2]
        ]

    def _is_reservation(self, pod: Pod) -> bool:
        return pod.metadata.labels.get(names.APP_LABEL) == self._app

    def _places(self, pod: Pod) -> Iterable[str]:
        if not self._is_reservation(pod):
            return ()
        return [f"{group}/{pod.spec.node_name}" for group in gpu_groups(pod.metadata.labels)]

    def _groups(self, pod: Pod) -> Iterable[str]:
        """The groups of a pod that sits on a node and is no reservation itself."""
        labels = pod.metadata.labels
        if not labels or not pod.spec.node_name or pod.status.phase not in _IN_USE or self._is_reservation(pod):
            return ()
        return gpu_groups(labels)
