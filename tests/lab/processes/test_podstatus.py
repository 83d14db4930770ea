"""What a pod of processes says of itself (operations:OD-21)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pykai.lab.processes.podstatus import ProcessState, phase_of, status_patch

Document = dict[str, Any]
WAITING = ProcessState("main", "kai")
RUNNING = WAITING.running("t1", restarts=0)
READY = replace(RUNNING, is_ready=True)
DONE, FAILED = RUNNING.ended(0, "t2"), RUNNING.ended(3, "t2")


def status(*containers: ProcessState, initial: tuple[ProcessState, ...] = ()) -> Document:
    return status_patch("Running", initial, containers, address="10.1.1.1", host="172.16.0.1", started="t0", at="t3")


def condition(found: Document, kind: str) -> tuple[str, str | None]:
    (entry,) = (each for each in found["conditions"] if each["type"] == kind)
    return entry["status"], entry["reason"]


@pytest.mark.parametrize(
    ("states", "always", "failed", "phase"),
    [
        ([WAITING], True, False, "Pending"),
        ([RUNNING], True, False, "Running"),
        ([DONE], True, False, "Running"),
        ([DONE], False, False, "Succeeded"),
        ([FAILED], False, False, "Failed"),
        ([FAILED], False, True, "Running"),
        ([DONE, RUNNING], False, False, "Running"),
        # It was started, and waits to be started again.
        ([FAILED.waiting("CrashLoopBackOff")], True, False, "Running"),
    ],
)
def test_the_phase(states: list[ProcessState], always: bool, failed: bool, phase: str) -> None:
    assert phase_of(states, restarts_always=always, restarts_failed=failed) == phase


def test_a_pod_is_ready_once_all_its_containers_are() -> None:
    assert condition(status(READY, READY), "Ready") == ("True", None)
    found = status(READY, RUNNING)
    assert condition(found, "Ready") == ("False", "ContainersNotReady")
    assert [each["ready"] for each in found["containerStatuses"]] == [True, False]
    assert (found["podIP"], found["hostIP"]) == ("10.1.1.1", "172.16.0.1")


def test_a_container_that_is_started_again_says_how_it_ended() -> None:
    again = FAILED.waiting("CrashLoopBackOff", "wait").running("t4", restarts=1)
    (entry,) = status(again)["containerStatuses"]
    assert entry["restartCount"] == 1
    assert entry["state"] == {"running": {"startedAt": "t4"}}
    assert entry["lastState"]["terminated"]["exitCode"] == 3


def test_a_container_that_waits_says_why() -> None:
    (entry,) = status(WAITING.waiting("CreateContainerError", "no program"))["containerStatuses"]
    assert entry["state"] == {"waiting": {"reason": "CreateContainerError", "message": "no program"}}
    assert not entry["started"]


def test_a_pod_is_initialised_after_its_init_containers() -> None:
    assert condition(status(WAITING, initial=(RUNNING,)), "Initialized")[0] == "False"
    assert condition(status(WAITING, initial=(DONE,)), "Initialized")[0] == "True"
