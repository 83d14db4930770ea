"""LeaderWorkerSets: groups of a leader `<set>-<group>` and workers `<set>-<group>-<index>`.

Workers belong to their leader and go with it. They are created with the leader or, with the startup policy LeaderReady,
when it is ready. A group that loses a pod is created again as a whole; with the restart policy None only that pod is.

Other than the original, there are no StatefulSets between a set and its pods. Not done: rolling updates; a changed
template holds for new pods.

Statements: sim:operators-order.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import field

from pykai.api import names
from pykai.api.meta import Int64, Wire
from pykai.api.unstructured import JsonObject
from pykai.api.workloads import MachinePod
from pykai.kube.resources import PODS, Resource
from pykai.lab.controllers.controller import controller_of
from pykai.lab.controllers.pods import is_active, is_finished, is_ready
from pykai.lab.operators.steps import (
    Creation,
    Deletion,
    ObservedWorkload,
    OperatedKind,
    OperatedWorkload,
    Step,
    WantedPod,
    checked_count,
    condition,
    conditions_of,
    converge_pods,
    delete_pods,
)

LEADER_WORKER_SETS: Final = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet", True)
_PREFIX: Final = "leaderworkerset.sigs.k8s.io"


class LeaderWorkerTemplate(Wire):
    """The pods of a group."""

    size: Int64 | None = None
    leader_template: JsonObject | None = None
    worker_template: JsonObject = field(default_factory=dict)
    restart_policy: str = ""


class LeaderWorkerSetSpec(Wire):
    replicas: Int64 | None = None
    startup_policy: str = ""
    leader_worker_template: LeaderWorkerTemplate = field(default_factory=LeaderWorkerTemplate)


class LeaderWorkerSetWorkload(OperatedWorkload):
    """A LeaderWorkerSet as its operator reads it."""

    spec: LeaderWorkerSetSpec = field(default_factory=LeaderWorkerSetSpec)


def plan_leader_worker_set(workload: LeaderWorkerSetWorkload, seen: ObservedWorkload) -> Step:
    """The next step of a LeaderWorkerSet."""
    count = checked_count(workload.spec.replicas, "replicas")
    size = checked_count(workload.spec.leader_worker_template.size, "size")
    checked_count(count * size, "replicas times size")
    groups: dict[str, list[MachinePod]] = defaultdict(list)
    for pod in seen.pods:
        groups[pod.metadata.labels.get(names.LWS_GROUP_INDEX_LABEL, "")].append(pod)
    lost = {owner.uid for pod in seen.vanished if (owner := controller_of(pod)) is not None}
    create: list[Creation] = []
    delete: list[Deletion] = []
    ready = 0
    for index in range(count):
        pods = groups.pop(str(index), [])
        if _is_broken(workload, pods, lost):
            delete += delete_pods(pods)
            continue
        created, surplus = _converge_group(workload, index, size, pods)
        create += created
        delete += [*surplus, *delete_pods(filter(is_finished, pods))]
        ready += len(pods) == size and all(map(is_ready, pods))
    for pods in groups.values():
        delete += delete_pods(pods)
    conditions = conditions_of(workload.status)
    done = ready == count
    available = ("AllGroupsReady", "All replicas are ready")
    progressing = ("GroupsProgressing", "Replicas are progressing")
    conditions = condition(conditions, "Progressing", *progressing, seen.now, holds=not done)
    conditions = condition(conditions, "Available", *available, seen.now, holds=done)
    status = {
        "conditions": conditions,
        "replicas": count,
        "readyReplicas": ready,
        "updatedReplicas": ready,
        "observedGeneration": workload.metadata.generation,
    }
    return Step(status, create, delete)


def _is_broken(workload: LeaderWorkerSetWorkload, pods: Sequence[MachinePod], lost: Collection[str]) -> bool:
    """Whether the group must start again: a pod has ended or is being deleted, or its leader has lost one."""
    keeps = workload.spec.leader_worker_template.restart_policy == "None"
    return not keeps and not all(is_active(pod) and pod.metadata.uid not in lost for pod in pods)


def _converge_group(
    workload: LeaderWorkerSetWorkload, group: int, size: int, pods: Sequence[MachinePod]
) -> tuple[list[Creation], list[Deletion]]:
    leader = next((pod for pod in pods if pod.metadata.labels.get(names.LWS_WORKER_INDEX_LABEL) == "0"), None)
    if leader is None:
        # Workers of an earlier leader go with it.
        wanted = _pod(workload, group, 0, size)
        return ([], []) if pods else converge_pods(workload, LEADER_WORKER_SETS, [wanted], ())
    if workload.spec.startup_policy == "LeaderReady" and not is_ready(leader) and len(pods) == 1:
        return [], []
    workers = [_pod(workload, group, index, size) for index in range(1, size)]
    return converge_pods(leader, PODS, workers, [pod for pod in pods if pod is not leader])


def _pod(workload: LeaderWorkerSetWorkload, group: int, index: int, size: int) -> WantedPod:
    name = workload.metadata.name
    leader = f"{name}-{group}"
    key = hashlib.sha1(f"{workload.metadata.namespace}/{leader}".encode(), usedforsecurity=False).hexdigest()
    labels = {
        f"{_PREFIX}/name": name,
        names.LWS_GROUP_INDEX_LABEL: str(group),
        names.LWS_WORKER_INDEX_LABEL: str(index),
        f"{_PREFIX}/group-key": key,
    }
    annotations = {names.LWS_SIZE_ANNOTATION: str(size)}
    if index:
        annotations[f"{_PREFIX}/leader-name"] = leader
    template = workload.spec.leader_worker_template
    chosen = template.worker_template if index or template.leader_template is None else template.leader_template
    return WantedPod(f"{leader}-{index}" if index else leader, chosen, labels, annotations=annotations)


def leader_worker_set_kind() -> OperatedKind[LeaderWorkerSetWorkload]:
    """LeaderWorkerSets as their operator runs them."""
    return OperatedKind(LEADER_WORKER_SETS, LeaderWorkerSetWorkload, plan_leader_worker_set)
