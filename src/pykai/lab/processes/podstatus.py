"""The status of a pod whose containers are processes, as a strategic merge patch; pure.

Statements: operations:OD-21.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pykai.api.unstructured import JsonObject
from pykai.lab.machines.statuses import pod_condition


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One container: it waits, unless it was started, and runs, unless it has ended."""

    name: str
    image: str
    #: why it waits
    reason: str = "ContainerCreating"
    message: str = ""
    started: str = ""
    finished: str = ""
    exit_code: int | None = None
    restarts: int = 0
    #: its probes say so
    is_ready: bool = False
    #: how it ended before it was started again
    last: JsonObject | None = None

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return bool(self.started) and self.exit_code is None

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self.exit_code is not None

    def waiting(self, reason: str, message: str = "") -> ProcessState:
        """It waits; what it was before is its last state."""
        last = self._terminated() if self.has_ended else self.last
        return ProcessState(self.name, self.image, reason, message, restarts=self.restarts, last=last)

    def running(self, at: str, *, restarts: int) -> ProcessState:
        """It was started."""
        return replace(self, started=at, finished="", exit_code=None, restarts=restarts, is_ready=False)

    def ended(self, exit_code: int, at: str) -> ProcessState:
        """Its process ended."""
        return replace(self, finished=at, exit_code=exit_code, is_ready=False)

    def as_status(self) -> JsonObject:
        """As an entry of `containerStatuses`."""
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": self.is_ready,
            "started": self.is_running,
            "restartCount": self.restarts,
            "state": self._state(),
            **({"lastState": self.last} if self.last else {}),
        }

    def _state(self) -> JsonObject:
        if self.has_ended:
            return self._terminated()
        if self.is_running:
            return {"running": {"startedAt": self.started}}
        return {"waiting": {"reason": self.reason, **({"message": self.message} if self.message else {})}}

    def _terminated(self) -> JsonObject:
        reason = "Completed" if self.exit_code == 0 else "Error"
        times = {"startedAt": self.started, "finishedAt": self.finished}
        return {"terminated": {"exitCode": self.exit_code, "reason": reason, **times}}


def phase_of(containers: Sequence[ProcessState], *, restarts_always: bool, restarts_failed: bool) -> str:
    """Pending, Running, Succeeded or Failed."""
    if not any(each.started or each.last for each in containers):
        return "Pending"
    if restarts_always or not all(each.has_ended for each in containers):
        return "Running"
    if all(each.exit_code == 0 for each in containers):
        return "Succeeded"
    return "Running" if restarts_failed else "Failed"


def status_patch(
    phase: str,
    initial: Sequence[ProcessState],
    containers: Sequence[ProcessState],
    *,
    address: str,
    host: str,
    started: str,
    at: str,
) -> JsonObject:
    """The whole status."""
    initialised = all(each.exit_code == 0 for each in initial)
    unready = [each.name for each in containers if not each.is_ready]
    reason = message = ""
    if unready:
        finished = phase == "Succeeded"
        reason = "PodCompleted" if finished else "ContainersNotReady"
        message = "" if finished else f"containers with unready status: [{' '.join(unready)}]"
    return {
        "phase": phase,
        "startTime": started,
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            pod_condition("PodReadyToStartContainers", True, at),
            pod_condition("Initialized", initialised, at, "" if initialised else "ContainersNotInitialized"),
            pod_condition("Ready", not unready, at, reason, message),
            pod_condition("ContainersReady", not unready, at, reason, message),
        ],
        **({"initContainerStatuses": [each.as_status() for each in initial]} if initial else {}),
        "containerStatuses": [each.as_status() for each in containers],
    }
