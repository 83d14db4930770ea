"""The state machine of a BindRequest (gpu:BR-1 to BR-7, with upstream's errors fixed).

    "" / Pending ──attempt──► Succeeded                       terminal
         │
         └──────attempt──► Failed ── attempts left ──► (pause) ──attempt──► ...
                             └────── none left                terminal

Every failed attempt is counted in the status before anything else happens, so that a back-off limit ends.  A request
without a limit gets one attempt: the scheduler deletes a Failed one and decides again, and a second attempt of the old
decision would race with the new one.  The pod's condition says bound only when it is.

Pure: what to write for an outcome is computed here, and written elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pykai.api import names
from pykai.api.scheduling import BindRequest
from pykai.kube.backoff import Backoff

_BACKOFF = Backoff(1.0, 1024.0)


#: where an attempt fails, for metrics
BindStep = Literal[
    "node",
    "pod",
    "room",
    "reservation",
    "scaling",
    "labels",
    "volumes",
    "claims",
    "configmaps",
    "bind",
    "request",
    "server",
    "internal",
]


class BindFailure(Exception):
    """The attempt failed for good; the text goes to the status, the condition and the event."""

    def __init__(self, step: BindStep, text: str) -> None:
        self.step = step
        super().__init__(text)


class InvalidRequest(BindFailure):
    """The request can never be carried out: it is deleted."""


class AttemptAborted(Exception):
    """The request or its pod is gone, or the request is settled: only cleanup is left."""


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """What an attempt leads to."""

    status: dict[str, Any]
    #: seconds until the next attempt; None = there is none
    retry_after_s: float | None = None


def has_retries_left(request: BindRequest) -> bool:
    """Whether a failed request will be tried again; the scheduler decides likewise (gpu:B-4)."""
    limit = request.spec.backoff_limit
    return limit is not None and request.status.failed_attempts < limit


def is_settled(request: BindRequest) -> bool:
    """Whether the request needs no further work."""
    phase = request.status.phase
    return phase == names.BIND_SUCCEEDED or (phase == names.BIND_FAILED and not has_retries_left(request))


def may_use_gpu_groups(request: BindRequest) -> bool:
    """Whether the request may still put a pod on its GPU groups."""
    return request.status.phase not in (names.BIND_SUCCEEDED, names.BIND_FAILED)


def pod_uid(request: BindRequest) -> str:
    """The uid of the pod the request was made for, "" when it does not say."""
    for owner in request.metadata.owner_references:
        if owner.kind == "Pod" and owner.name == request.spec.pod_name:
            return owner.uid
    return ""


def success_outcome(request: BindRequest) -> AttemptOutcome:
    """After the pod was bound."""
    return AttemptOutcome({"phase": names.BIND_SUCCEEDED, "reason": None})


def failure_outcome(request: BindRequest, text: str) -> AttemptOutcome:
    """After a failed attempt; the delay doubles with each (gpu:BR-6)."""
    attempts = max(0, request.status.failed_attempts)
    retry_after_s = _BACKOFF.delay_s(attempts + 1) if has_retries_left(request) else None
    return AttemptOutcome({"phase": names.BIND_FAILED, "reason": text, "failedAttempts": attempts + 1}, retry_after_s)
