"""Admission of pods: what is added to new pods of this scheduler, and which are refused (gpu:10).

Shared GPUs come first, then access to devices.  Pods of other schedulers pass untouched (gpu:A-1).  Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykai.webhooks import gpusharing
from pykai.webhooks.deviceaccess import device_access_problem, hide_devices
from pykai.webhooks.fields import object_at
from pykai.webhooks.gpusharing import SharingRules

#: the subresource that adds containers to a pod
EPHEMERAL_CONTAINERS = "ephemeralcontainers"


def is_for_scheduler(pod: dict[str, Any], rules: SharingRules) -> bool:
    """Whether a pod is to be scheduled by us."""
    return object_at(pod, "spec").get("schedulerName") == rules.scheduler_name


def mutate_pod(
    pod: dict[str, Any],
    old: dict[str, Any] | None = None,
    *,
    namespace: str,
    random: Callable[[int], str],
    rules: SharingRules,
) -> dict[str, Any] | None:
    """A new pod as it is to be stored, None if nothing is to be changed; raises `AdmissionDenied`.

    With `old` only ephemeral containers are new: nothing else of a pod can be changed.
    """
    if not is_for_scheduler(pod, rules):
        return None
    changed = gpusharing.mutate(pod, namespace=namespace, random=random, rules=rules) if old is None else None
    if rules.visible_devices_blocked:
        changed = hide_devices(changed or pod, old) or changed
    return changed


def pod_problem(pod: dict[str, Any], old: dict[str, Any] | None, *, privileged: bool, rules: SharingRules) -> str:
    """Why a new or changed pod is refused; "" if it is not.

    Containers of an existing pod were checked when they came; its annotations and labels may change.
    """
    problems = gpusharing.validate(pod, old, privileged=privileged, rules=rules)
    if problems:
        return problems[0]
    if not rules.visible_devices_blocked or not is_for_scheduler(pod, rules):
        return ""
    if old is not None and object_at(old, "spec") == object_at(pod, "spec"):
        return ""
    return device_access_problem(pod)
