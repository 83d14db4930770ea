"""Deletion of an object: at once, after its grace period, or after its finalizers.

DeleteOptions set how dependents are deleted (propagation), how long a pod may take to end (grace) and which object is
meant (preconditions). `pending_deletion` returns what keeps the object for now, or None if it is removed.

Pods have a grace period: one without a node, or finished, is removed at once; any other waits for its kubelet to delete
it again with grace 0.

Statements: apiserver:finalizers, apiserver:grace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pykai.api.unstructured import JsonObject
from pykai.lab.apiserver import apierrors
from pykai.lab.apiserver.apierrors import StatusCause
from pykai.lab.apiserver.kinds import ResourceKind

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
_DEFAULT_GRACE_S: Final = 30


@dataclass(frozen=True, slots=True)
class PendingDeletion:
    """An object that is deleted but not removed yet."""

    finalizers: list[str]
    grace_s: int


def check_preconditions(kind: ResourceKind, name: str, obj: JsonObject, options: Mapping[str, Any]) -> None:
    """409 if the preconditions name another object or version."""
    preconditions = options.get("preconditions") or {}
    meta = obj["metadata"]
    for field, label, became in (
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ):
        wanted = preconditions.get(field)
        if wanted and wanted != meta.get(field):
            text = (
                f"the {label} in the precondition ({wanted}) does not match the {label} in record ({meta.get(field)})"
            )
            raise apierrors.conflict(kind.group, kind.kind, name, f"{text}. The object might have been {became}")


def read_options(query: Mapping[str, str], body: Any) -> JsonObject:
    """DeleteOptions from the body and the query, checked."""
    options: JsonObject = dict(body) if isinstance(body, dict) else {}
    grace = query.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
    if grace is not None:
        try:
            options["gracePeriodSeconds"] = int(grace)
        except (TypeError, ValueError, OverflowError):
            raise apierrors.bad_request(f"gracePeriodSeconds must be a number, not {grace!r}") from None
    if query.get("propagationPolicy"):
        options["propagationPolicy"] = query["propagationPolicy"]
    if query.get("orphanDependents") or options.get("orphanDependents") is not None:
        if options.get("propagationPolicy"):
            text = "orphanDependents and deletionPropagation cannot be both set"
            cause = apierrors.invalid_value("propagationPolicy", options["propagationPolicy"], text)
            raise apierrors.invalid_options("DeleteOptions", cause)
        orphan = str(query.get("orphanDependents", options.get("orphanDependents"))).lower() == "true"
        options.setdefault("propagationPolicy", "Orphan" if orphan else "Background")
    preconditions = options.get("preconditions") or {}
    if not isinstance(preconditions, dict):
        raise apierrors.bad_request("preconditions must be an object with uid and resourceVersion")
    options["preconditions"] = preconditions
    policy = options.get("propagationPolicy")
    if policy not in (None, "", "Orphan", "Background", "Foreground"):
        supported = ("Foreground", "Background", "Orphan", "nil")
        raise apierrors.invalid_options(
            "DeleteOptions", apierrors.unsupported_value("propagationPolicy", policy, *supported)
        )
    return options


def pending_deletion(kind: ResourceKind, obj: JsonObject, options: Mapping[str, Any]) -> PendingDeletion | None:
    """What keeps the object; None if it is removed at once."""
    finalizers = list(obj["metadata"].get("finalizers") or ())
    policy = options.get("propagationPolicy")
    if policy is not None:
        finalizers = [name for name in finalizers if name not in (FOREGROUND, ORPHAN)]
        if policy == "Foreground":
            finalizers.append(FOREGROUND)
        elif policy == "Orphan":
            finalizers.append(ORPHAN)
    grace_s = _grace_s(kind, obj, options.get("gracePeriodSeconds"))
    if not finalizers and grace_s == 0 and not _is_nonempty_namespace(kind, obj):
        return None
    return PendingDeletion(finalizers, grace_s)


def is_ready_to_remove(kind: ResourceKind, obj: JsonObject) -> bool:
    """Whether a deleted object without finalizers can be removed."""
    if _is_nonempty_namespace(kind, obj):
        return False
    return not int(obj["metadata"].get("deletionGracePeriodSeconds") or 0)


def validate_finalizers(before: JsonObject, new: JsonObject) -> list[StatusCause]:
    """Refuse new finalizers on an object that is being deleted."""
    added = [name for name in new.get("finalizers") or () if name not in (before.get("finalizers") or ())]
    if not added:
        return []
    text = f"no new finalizers can be added if the object is being deleted, found new finalizers {added!r}"
    return [apierrors.forbidden_field("metadata.finalizers", text)]


def _grace_s(kind: ResourceKind, obj: JsonObject, requested_s: int | None) -> int:
    if kind.store != ("", "pods"):
        return 0
    spec, status = _dict_or_empty(obj.get("spec")), _dict_or_empty(obj.get("status"))
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    grace = requested_s if requested_s is not None else spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
    grace = 1 if grace < 0 else int(grace)
    left = obj["metadata"].get("deletionGracePeriodSeconds")
    # A second delete can only shorten the wait.
    return grace if left is None else min(grace, int(left))


def _dict_or_empty(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _is_nonempty_namespace(kind: ResourceKind, obj: JsonObject) -> bool:
    """Namespaces are emptied first; `spec.finalizers` says so until it is done."""
    return kind.store == ("", "namespaces") and bool(_dict_or_empty(obj.get("spec")).get("finalizers"))
