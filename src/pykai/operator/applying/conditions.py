"""Conditions of Config and SchedulingShard, in KAI Scheduler's words (operations:O-35 to O-38, E-17)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pykai.api.conditions import ConditionDocument

DEPLOYED, AVAILABLE, FULFILLED = "Deployed", "Available", "DependenciesFulfilled"
READY, RECONCILING = "Ready", "Reconciling"
ARGS_VALID: Final = "ArgsValid"
PROMETHEUS_CONNECTED: Final = "PrometheusConnected"
#: not there where they would say nothing
_PASSING: Final = (ARGS_VALID, PROMETHEUS_CONNECTED)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one Config or SchedulingShard is."""

    #: what was not written, and why
    errors: Sequence[str] = ()
    #: what is not there yet
    unavailable: Sequence[str] = ()
    #: operand -> what it needs
    missing: Mapping[str, str] | None = None
    #: arguments without effect; None where they were not looked at
    left_out: Sequence[str] | None = None
    #: why an external Prometheus does not answer, "" if it does; None where there is none
    unconnected: str | None = None


def conditions(progress: Progress, generation: int) -> list[ConditionDocument]:
    """All conditions at the end of a reconcile."""
    deployed, available = not progress.errors, not progress.unavailable
    missing = progress.missing or {}
    fulfilled = not missing
    is_ready = deployed and available and fulfilled
    absent = "".join(f"\n{operand} is missing {what}" for operand, what in missing.items())
    listed = [
        _condition(DEPLOYED, deployed, "deployed", "Resources deployed" if deployed else "\n".join(progress.errors)),
        _condition(
            AVAILABLE, available, "available", "System available" if available else "\n".join(progress.unavailable)
        ),
        _condition(
            FULFILLED,
            fulfilled,
            "dependencies_fulfilled" if fulfilled else "dependencies_missing",
            "Dependencies are fulfilled" if fulfilled else absent,
        ),
        _condition(
            READY, is_ready, "ready" if is_ready else "not_ready", "System is ready" if is_ready else "System not ready"
        ),
        _condition(RECONCILING, False, "reconciled", "Reconciliation completed successfully"),
    ]
    if progress.left_out is not None:
        listed.append(_args_valid(progress.left_out))
    if progress.unconnected is not None:
        listed.append(_connected(progress.unconnected))
    return [{**each, "observedGeneration": generation} for each in listed]


# operations:OD-3
def _args_valid(left_out: Sequence[str]) -> ConditionDocument:
    if left_out:
        return _condition(ARGS_VALID, False, "unknown_args", "\n".join(left_out))
    return _condition(ARGS_VALID, True, "args_valid", "All arguments are flags that may be given")


# operations:OD-8
def _connected(failure: str) -> ConditionDocument:
    reason = "prometheus_connection_failed" if failure else "prometheus_connected"
    return _condition(PROMETHEUS_CONNECTED, not failure, reason, failure or "Prometheus answers")


def reconciling(generation: int) -> ConditionDocument:
    """The condition while a new generation is worked on."""
    made = _condition(RECONCILING, True, "reconciling", "Reconciliation in progress")
    return {**made, "observedGeneration": generation}


def is_known(found: Iterable[ConditionDocument], generation: int) -> bool:
    """Whether there is a condition Reconciling of this generation already (operations:OC-8)."""
    return any(each.get("type") == RECONCILING and each.get("observedGeneration") == generation for each in found)


def merged(
    found: Sequence[ConditionDocument], made: Sequence[ConditionDocument], now: str, *, is_end: bool = True
) -> list[ConditionDocument] | None:
    """The conditions to write; None where nothing changes. Those of others stay, times change with the status.

    `is_end`: they are all of ours, and what was not looked at has none: a Prometheus, arguments.
    """
    by_type = {str(each.get("type")): each for each in found}
    written = {key: each for key, each in by_type.items() if not is_end or key not in _PASSING}
    for each in made:
        before = by_type.get(each["type"])
        is_same = before is not None and before.get("status") == each["status"]
        since = before.get("lastTransitionTime", now) if before is not None and is_same else now
        written[each["type"]] = {**each, "lastTransitionTime": since}
    return None if written == by_type else list(written.values())


def _condition(type_: str, is_true: bool, reason: str, message: str) -> ConditionDocument:
    return {"type": type_, "status": "True" if is_true else "False", "reason": reason, "message": message}


# operations:O-36
def unavailable_text(operand: str, kind: str, name: str, live: Mapping[str, Any] | None) -> str:
    """Why a workload is not available; empty if it is."""
    status = (live or {}).get("status") or {}
    spec = (live or {}).get("spec") or {}
    generation = ((live or {}).get("metadata") or {}).get("generation", 0)
    is_current = status.get("observedGeneration", 0) >= generation
    if kind == "Deployment":
        is_up = any(
            each.get("type") == AVAILABLE and each.get("status") == "True" for each in status.get("conditions") or ()
        )
        wanted = spec.get("replicas", 1)
        is_available = is_current and is_up and status.get("updatedReplicas", 0) == wanted
    else:
        counts = status.get("desiredNumberScheduled", 0), status.get("numberAvailable", 0)
        is_available = live is not None and is_current and counts[0] == counts[1]
    return "" if is_available else f"{operand}: {kind} [{name}] is not available"
