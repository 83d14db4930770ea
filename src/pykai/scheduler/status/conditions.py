"""Conditions of pods and PodGroups as patches: pure functions of the object and its desired conditions.

Pods have Kubernetes' own conditions, merged by type.  PodGroups have `status.schedulingConditions`, one entry a node
pool, ordered by a transition id that all pools share (cycle:EXP-11): the newest stands last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.scheduling import SchedulingCondition, UnschedulableReason

_MAX_MESSAGE_LENGTH = 32_000


def pod_condition_patch(
    pod: Pod, type_: str, status: str, reason: str, message: str, now: str
) -> dict[str, Any] | None:
    """The patch that sets a condition of a pod, None if it is set (cycle:EXP-14)."""
    message = message[:_MAX_MESSAGE_LENGTH]
    current = next((each for each in pod.status.conditions if each.type == type_), None)
    if current is not None and (current.status, current.reason, current.message) == (status, reason, message):
        return None
    status_changed = current is None or current.status != status
    changed = {"type": type_, "status": status, "reason": reason, "message": message}
    changed["lastTransitionTime"] = now if status_changed or current is None else current.last_transition_time or now
    return {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [changed]}}


def unschedulable_conditions(
    existing: Sequence[SchedulingCondition],
    *,
    pool: str,
    message: str,
    reasons: Sequence[Mapping[str, object]],
    now: str,
) -> list[SchedulingCondition] | None:
    """The scheduling conditions with one that says the group does not fit in this pool; None if they already say so."""
    newest = max(existing, key=lambda each: transition_number(each), default=None)
    if (
        newest is not None
        and existing[-1].node_pool == pool
        and newest.node_pool == pool
        and newest.type == names.CONDITION_UNSCHEDULABLE_ON_NODE_POOL
        and newest.reason == names.CONDITION_REASON_UNSCHEDULABLE
        and newest.status == "True"
        and newest.message == message
    ):
        return None
    added = SchedulingCondition(
        type=names.CONDITION_UNSCHEDULABLE_ON_NODE_POOL,
        node_pool=pool,
        reason=names.CONDITION_REASON_UNSCHEDULABLE,
        message=message,
        status="True",
        transition_id=str((transition_number(newest) if newest is not None else 0) + 1),
        last_transition_time=now,
        reasons=[msgspec.convert(reason, UnschedulableReason) for reason in reasons],
    )
    return [each for each in existing if each.node_pool != pool] + [added]


def transition_number(condition: SchedulingCondition) -> int:
    """The number of a transition id; 0 for an invalid one."""
    text = condition.transition_id
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def conditions_patch(uid: str, conditions: Sequence[SchedulingCondition], resource_version: str) -> dict[str, Any]:
    """Replace the scheduling conditions of a PodGroup.

    If another pool has an entry in the list too, the patch holds only for the version it was made from: a merge patch
    replaces the whole list.
    """
    metadata = {"uid": uid}
    if resource_version:
        metadata["resourceVersion"] = resource_version
    return {"metadata": metadata, "status": {"schedulingConditions": msgspec.to_builtins(list(conditions))}}
