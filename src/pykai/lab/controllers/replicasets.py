"""ReplicaSets: a fixed number of equal pods.

A pod that finished or is being deleted does not count and is replaced at once. Surplus pods are deleted in this order:
unbound before bound, unready before ready, lower deletion cost first, youngest first. Matching pods without a
controller are adopted when the ReplicaSet is first seen.

Statements: sim:replicas.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykai.api import names
from pykai.api.unstructured import JsonObject
from pykai.api.workloads import MachinePod, ReplicaSet
from pykai.kube.errors import ApiError
from pykai.kube.resources import REPLICA_SETS
from pykai.kube.runtime import Runtime, Service
from pykai.lab.controllers.controller import (
    AssumingWriter,
    Controller,
    changed_fields,
    controller_of,
    owner_reference,
    random_suffix_name,
    replicas_of,
    selector_matches,
)
from pykai.lab.controllers.pods import (
    CONTROLLER,
    is_active,
    is_ready,
    is_terminating,
    pod_from_template,
    pod_store,
    pod_writer,
    ready_since_s,
)

_MAX_CREATES_PER_SYNC = 500


class ReplicaSets:
    """The ReplicaSet controller."""

    def __init__(self, runtime: Runtime) -> None:
        self._sets = runtime.caches.store(REPLICA_SETS, ReplicaSet)
        self._pods = pod_store(runtime)
        self._write_set = AssumingWriter(runtime.client, self._sets, ReplicaSet, runtime.clock)
        self._write_pod = pod_writer(runtime)
        #: uid -> number of created pods, which numbers their names; present once orphans were adopted
        self._created_counts: dict[str, int] = {}
        self.controller = Controller(
            "replicaset-controller",
            runtime,
            self._reconcile,
            self._sets,
            forget=lambda uid: self._created_counts.pop(uid, None),
            owns=[self._pods],
        )

    async def _reconcile(self, key: str) -> float | None:
        owner = self._sets.get(key)
        if owner is None or owner.metadata.deletion_timestamp is not None:
            return None
        uid = owner.metadata.uid
        if uid not in self._created_counts:
            await self._adopt(owner)
            self._created_counts[uid] = 0
        active = [pod for pod in self._pods.by_index(CONTROLLER, uid) if is_active(pod)]
        goal = replicas_of(owner)
        again_s: float | None = None
        if len(active) < goal:
            again_s = await self._create_pods(owner, goal - len(active))
        elif len(active) > goal:
            for pod in sorted(active, key=deletion_order)[: len(active) - goal]:
                await self._write_pod.delete(pod)
        return await self._update_status(owner, again_s)

    async def _create_pods(self, owner: ReplicaSet, count: int) -> float | None:
        uid = owner.metadata.uid
        reference_to = owner_reference(owner, REPLICA_SETS)
        for _ in range(min(count, _MAX_CREATES_PER_SYNC)):
            name = random_suffix_name(owner.metadata.name, uid, self._created_counts[uid])
            pod = pod_from_template(owner.spec.template, name, owner.metadata.namespace, reference_to)
            try:
                await self._write_pod.create(pod)
            except ApiError as error:
                self.controller.report_failed_create(owner, error, f"Error creating: {error}")
                return 10.0
            self._created_counts[uid] += 1
        return 0.0 if count > _MAX_CREATES_PER_SYNC else None

    async def _adopt(self, owner: ReplicaSet) -> None:
        for pod in self._pods.values():
            if (
                pod.metadata.namespace == owner.metadata.namespace
                and controller_of(pod) is None
                and is_active(pod)
                and selector_matches(owner.spec.selector, pod.metadata.labels)
            ):
                belongs = {"metadata": {"ownerReferences": [owner_reference(owner, REPLICA_SETS)]}}
                await self._write_pod.patch(pod, belongs)

    async def _update_status(self, owner: ReplicaSet, again_s: float | None) -> float | None:
        current = self._write_set.latest(owner)
        if current is None:
            return None
        status, available_in_s = status_patch(
            current, self._pods.by_index(CONTROLLER, current.metadata.uid), self.controller.now_s()
        )
        if status:
            await self._write_set.patch_status(current, status)
        waits = [wait_s for wait_s in (again_s, available_in_s) if wait_s is not None]
        return min(waits) if waits else None


def replica_sets(runtime: Runtime) -> Service:
    """The ReplicaSet controller as a service."""
    return ReplicaSets(runtime).controller


def deletion_order(pod: MachinePod) -> tuple[object, ...]:
    """Sort key that puts the pods to delete first."""
    cost = pod.metadata.annotations.get(names.POD_DELETION_COST_ANNOTATION, "0")
    since_s = ready_since_s(pod)
    return (
        bool(pod.spec.node_name),
        ("Pending", "Unknown", "Running").index(pod.status.phase) if pod.status.phase in ("Unknown", "Running") else 0,
        since_s is not None,
        int(cost) if cost.lstrip("-").isdigit() else 0,
        -(since_s or 0.0),
        [-ord(letter) for letter in pod.metadata.creation_timestamp or ""],
        pod.metadata.name,
    )


def seconds_until_available(pod: MachinePod, min_ready_s: int, now_s: float) -> float | None:
    """Seconds until the pod counts as available: 0 if it does, None if it is not ready."""
    since_s = ready_since_s(pod)
    return None if since_s is None else max(0.0, since_s + min_ready_s - now_s) if min_ready_s else 0.0


def status_patch(owner: ReplicaSet, pods: Iterable[MachinePod], now_s: float) -> tuple[JsonObject, float | None]:
    """The changes of the status, and the seconds until the next pod is available."""
    labels = ((owner.spec.template.get("metadata") or {}).get("labels") or {}).items()
    count = labelled = ready = available_count = 0
    waits: list[float] = []
    terminating = 0
    for pod in pods:
        if not is_active(pod):
            terminating += is_terminating(pod)
            continue
        count += 1
        labelled += labels <= pod.metadata.labels.items()
        if is_ready(pod):
            ready += 1
            wait_s = seconds_until_available(pod, owner.spec.min_ready_seconds, now_s)
            if wait_s == 0:
                available_count += 1
            elif wait_s is not None:
                waits.append(wait_s)
    desired = {
        "replicas": count,
        "fullyLabeledReplicas": labelled,
        "readyReplicas": ready,
        "availableReplicas": available_count,
        "terminatingReplicas": terminating,
        "observedGeneration": owner.metadata.generation,
    }
    return changed_fields(owner.status, desired), min(waits, default=None)
