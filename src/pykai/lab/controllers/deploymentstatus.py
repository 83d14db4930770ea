"""The status of a Deployment: its counts and the conditions that `kubectl rollout status` waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pykai.api.unstructured import JsonObject
from pykai.api.workloads import Deployment, DeploymentCondition, ReplicaSet
from pykai.lab.controllers.controller import changed_fields, replicas_of
from pykai.lab.controllers.rollout import surge_and_unavailable
from pykai.lab.timestamps import to_seconds

DEFAULT_PROGRESS_S = 600
#: Counts whose change shows progress of a rollout.
_PROGRESS_FIELDS = frozenset({"replicas", "updatedReplicas", "readyReplicas", "availableReplicas"})


@dataclass(frozen=True, slots=True)
class _DesiredCondition:
    type: str
    status: str
    reason: str
    message: str
    #: Whether lastUpdateTime is renewed although nothing else changes.
    is_renewed: bool = False


def status_patch(
    deployment: Deployment, new: ReplicaSet | None, owned: Sequence[ReplicaSet], now: str, now_s: float
) -> tuple[JsonObject, float | None]:
    """The changes of the status, and the seconds until the progress deadline."""
    counts = _counts(deployment, new, owned)
    patch = changed_fields(deployment.status, counts)
    existing = {condition.type: condition for condition in deployment.status.conditions}
    desired = [_available(deployment, counts["availableReplicas"])]
    progressing, wait_s = _progressing(
        deployment, new, counts, existing.get("Progressing"), bool(_PROGRESS_FIELDS & patch.keys()), now_s
    )
    if progressing is not None:
        desired.append(progressing)
    if any(each.is_renewed or not _is_same(existing.get(each.type), each) for each in desired):
        patch["conditions"] = _conditions(desired, existing, now)
    return patch, wait_s


def _counts(deployment: Deployment, new: ReplicaSet | None, owned: Sequence[ReplicaSet]) -> dict[str, int]:
    available = sum(one.status.available_replicas for one in owned)
    return {
        "replicas": sum(one.status.replicas for one in owned),
        "updatedReplicas": new.status.replicas if new is not None else 0,
        "readyReplicas": sum(one.status.ready_replicas for one in owned),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(map(replicas_of, owned)) - available),
        "observedGeneration": deployment.metadata.generation,
    }


def _available(deployment: Deployment, available: int) -> _DesiredCondition:
    if available >= replicas_of(deployment) - surge_and_unavailable(deployment)[1]:
        text = "Deployment has minimum availability."
        return _DesiredCondition("Available", "True", "MinimumReplicasAvailable", text)
    text = "Deployment does not have minimum availability."
    return _DesiredCondition("Available", "False", "MinimumReplicasUnavailable", text)


def _progressing(
    deployment: Deployment,
    new: ReplicaSet | None,
    counts: Mapping[str, int],
    existing: DeploymentCondition | None,
    has_progressed: bool,
    now_s: float,
) -> tuple[_DesiredCondition | None, float | None]:
    """The condition Progressing, and the seconds until it becomes False."""
    if new is None:
        return None, None
    name, desired = new.metadata.name, replicas_of(deployment)
    if all(counts[field] == desired for field in ("updatedReplicas", "replicas", "availableReplicas")):
        text = f'ReplicaSet "{name}" has successfully progressed.'
        return _DesiredCondition("Progressing", "True", "NewReplicaSetAvailable", text), None
    if deployment.spec.paused:
        return None, None
    limit_s = deployment.spec.progress_deadline_seconds
    limit_s = DEFAULT_PROGRESS_S if limit_s is None else limit_s
    since_s = to_seconds(existing.last_update_time) if existing is not None else None
    left_s = limit_s if since_s is None or has_progressed else since_s + limit_s - now_s
    if left_s > 0:
        text = f'ReplicaSet "{name}" is progressing.'
        return _DesiredCondition("Progressing", "True", "ReplicaSetUpdated", text, has_progressed), left_s
    text = f'ReplicaSet "{name}" has timed out progressing.'
    return _DesiredCondition("Progressing", "False", "ProgressDeadlineExceeded", text, has_progressed), None


def _is_same(existing: DeploymentCondition | None, desired: _DesiredCondition) -> bool:
    return existing is not None and (existing.status, existing.reason, existing.message) == (
        desired.status,
        desired.reason,
        desired.message,
    )


def _conditions(
    desired: Sequence[_DesiredCondition], existing: Mapping[str, DeploymentCondition], now: str
) -> list[JsonObject]:
    """The desired conditions, then those of other types as they are."""
    conditions = []
    for each in desired:
        before = existing.get(each.type)
        since = before.last_transition_time if before is not None and before.status == each.status else now
        is_kept = before is not None and _is_same(before, each) and not each.is_renewed
        updated = before.last_update_time if before is not None and is_kept else now
        conditions.append(_condition(each, since, updated))
    types = {each.type for each in desired}
    return conditions + [
        _condition(each, each.last_transition_time, each.last_update_time)
        for each in existing.values()
        if each.type not in types
    ]


def _condition(each: _DesiredCondition | DeploymentCondition, since: str | None, updated: str | None) -> JsonObject:
    return {
        "type": each.type,
        "status": each.status,
        "reason": each.reason,
        "message": each.message,
        "lastTransitionTime": since,
        "lastUpdateTime": updated,
    }
