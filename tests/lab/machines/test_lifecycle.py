"""The life of a pod as a function of time, one transition at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pykai.api.decode import decode_as
from pykai.api.workloads import MachinePod
from pykai.lab.machines.lifecycle import (
    ContainerWaiting,
    LifecycleState,
    LifecycleStep,
    MachineFacts,
    Stage,
    back_off_s,
    next_step,
    restored_state,
)
from pykai.lab.machines.machine import Rejection
from pykai.lab.machines.podbehaviour import PodBehaviour
from pykai.lab.timestamps import to_timestamp
from tests.lab.simulatedcluster import pod

T0 = 1_800_000_000.0
ADMITTED = LifecycleState(Stage.ADMITTED, T0, T0)
RUNNING = LifecycleState(Stage.RUNNING, T0, T0)


def a_pod(status: dict[str, Any] | None = None, deleted_with_grace: int | None = None, **fields: Any) -> MachinePod:
    made = pod("p", node="n", **fields)
    made["metadata"]["uid"] = "u"
    if status is not None:
        made["status"] = status
    if deleted_with_grace is not None:
        made["metadata"] |= {"deletionTimestamp": to_timestamp(T0), "deletionGracePeriodSeconds": deleted_with_grace}
    return decode_as(MachinePod, made)


def facts(start: float = 1, run: float | None = 10, code: int = 0, stop: float = 1, **more: Any) -> MachineFacts:
    return MachineFacts(PodBehaviour(start, run, code, stop), host="172.16.0.1", address="10.0.0.1", **more)


def phase(taken: LifecycleStep) -> str | None:
    return taken.status["phase"] if taken.status is not None else None


def test_a_pod_waits_for_its_start() -> None:
    early = next_step(ADMITTED, a_pod(), T0 + 0.4, facts(start=1))
    assert early.status is None
    assert early.wake_s == pytest.approx(0.6)
    late = next_step(ADMITTED, a_pod(), T0 + 1, facts(start=1))
    assert (phase(late), late.state.stage, late.wake_s) == ("Running", Stage.RUNNING, 10)


def test_a_long_start_is_shown_once() -> None:
    first = next_step(ADMITTED, a_pod(), T0, facts(start=60))
    assert first.status is not None
    assert first.status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    again = next_step(first.state, a_pod(), T0 + 1, facts(start=60))
    assert (again.status, again.wake_s) == (None, 59)
    assert phase(next_step(again.state, a_pod(), T0 + 60, facts(start=60))) == "Running"


def test_a_missing_object_is_reported_when_it_blocks_the_pod_and_when_it_changes() -> None:
    first = facts(waiting=ContainerWaiting("CreateContainerConfigError", "a"))
    assert next_step(ADMITTED, a_pod(), T0, first).status is None
    told = next_step(ADMITTED, a_pod(), T0 + 1, first)
    assert (phase(told), told.wake_s) == ("Pending", None)
    assert next_step(told.state, a_pod(), T0 + 2, first).status is None
    other = next_step(told.state, a_pod(), T0 + 2, facts(waiting=ContainerWaiting("CreateContainerConfigError", "b")))
    assert phase(other) == "Pending"
    assert phase(next_step(told.state, a_pod(), T0 + 3, facts())) == "Running"


def test_a_rejected_pod_fails_before_anything_starts() -> None:
    taken = next_step(ADMITTED, a_pod(), T0, facts(rejection=Rejection("OutOfcpu", "no room")))
    assert taken.status is not None
    assert (phase(taken), taken.status["reason"], taken.state.stage) == ("Failed", "OutOfcpu", Stage.ENDED)
    assert "containerStatuses" not in taken.status


def test_init_containers_take_their_time_one_after_the_other() -> None:
    two = a_pod(init=2)
    begun = next_step(ADMITTED, two, T0 + 1, facts())
    assert (begun.state.stage, begun.wake_s) == (Stage.INITIALISING, 1.0)
    assert next_step(begun.state, two, T0 + 1.9, facts()).status is None
    assert phase(next_step(begun.state, two, T0 + 2, facts())) == "Running"


def test_a_pod_of_sidecars_needs_no_initialising() -> None:
    assert next_step(ADMITTED, a_pod(sidecars=1), T0 + 1, facts()).state.stage is Stage.RUNNING


@pytest.mark.parametrize(
    ("policy", "code", "expected"),
    [
        ("Never", 0, "Succeeded"),
        ("Never", 1, "Failed"),
        ("OnFailure", 0, "Succeeded"),
        ("OnFailure", 1, "Running"),
        ("Always", 0, "Running"),
        ("Always", 1, "Running"),
    ],
)
def test_the_restart_policy_says_what_an_end_means(policy: str, code: int, expected: str) -> None:
    taken = next_step(RUNNING, a_pod(restart=policy), T0 + 10, facts(code=code))
    assert phase(taken) == expected
    assert taken.state.restarts == (1 if expected == "Running" else 0)


def test_a_second_failure_waits_longer_and_says_so() -> None:
    taken = next_step(replace(RUNNING, restarts=1), a_pod(restart="Always"), T0 + 10, facts(code=1))
    assert taken.status is not None
    assert (taken.state.stage, taken.state.restarts, taken.wake_s) == (Stage.BACKING_OFF, 2, 10.0)
    entry = taken.status["containerStatuses"][0]
    assert entry["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert (entry["restartCount"], entry["lastState"]["terminated"]["exitCode"]) == (1, 1)
    again = next_step(taken.state, a_pod(restart="Always"), T0 + 20, facts(code=1))
    assert again.status is not None
    assert again.status["containerStatuses"][0]["restartCount"] == 2


def test_pauses_between_restarts_grow_to_five_minutes() -> None:
    assert [back_off_s(count) for count in (1, 2, 3, 4, 7, 8, 1000)] == [0, 10, 20, 40, 300, 300, 300]


def test_a_service_runs_until_something_happens() -> None:
    taken = next_step(RUNNING, a_pod(restart="Always"), T0 + 1e6, facts(run=None))
    assert (taken.status, taken.wake_s) == (None, None)


@pytest.mark.parametrize(("grace", "stop", "due"), [(30, 2, 2), (1, 5, 1), (0, 5, 0)])
def test_a_deleted_pod_stops_in_its_time_but_at_most_its_grace(grace: int, stop: float, due: float) -> None:
    going = a_pod(deleted_with_grace=grace)
    seen = next_step(RUNNING, going, T0 + 100, facts(stop=stop))
    if due:
        assert (seen.status, seen.wake_s, seen.remove) == (None, due, False)
        seen = next_step(seen.state, going, T0 + 100 + due, facts(stop=stop))
    assert (phase(seen), seen.remove) == ("Failed", True)


def test_a_pod_that_never_ran_fails_and_goes_at_once() -> None:
    taken = next_step(ADMITTED, a_pod(deleted_with_grace=30), T0, facts())
    assert (phase(taken), taken.remove) == ("Failed", True)
    assert taken.status is not None
    states = [each["state"]["terminated"] for each in taken.status["containerStatuses"]]
    assert [(state["exitCode"], state["reason"]) for state in states] == [(137, "ContainerStatusUnknown")]


def test_a_finished_pod_goes_when_it_is_deleted_and_not_before() -> None:
    ended = LifecycleState(Stage.ENDED, T0, T0)
    assert not next_step(ended, a_pod({"phase": "Succeeded"}), T0, facts()).remove
    assert next_step(ended, a_pod({"phase": "Succeeded"}, deleted_with_grace=0), T0, facts()).remove


def test_a_pod_that_another_client_ended_is_finished() -> None:
    taken = next_step(RUNNING, a_pod({"phase": "Failed"}), T0, facts())
    assert (taken.status, taken.state.stage) == (None, Stage.ENDED)


def test_a_deadline_counts_from_the_start_and_wakes() -> None:
    limited = a_pod(activeDeadlineSeconds=5)
    assert next_step(RUNNING, limited, T0 + 1, facts(run=None)).wake_s == 4
    taken = next_step(RUNNING, limited, T0 + 5, facts(run=None))
    assert taken.status is not None
    assert (phase(taken), taken.status["reason"]) == ("Failed", "DeadlineExceeded")


def test_every_stage_is_read_back_from_the_object() -> None:
    at = to_timestamp(T0)
    container = {"name": "c0", "restartCount": 3}
    running = {**container, "state": {"running": {"startedAt": to_timestamp(T0 + 7)}}}
    waiting = {**container, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    assert restored_state(a_pod({"phase": "Pending"}), T0 + 9) == LifecycleState(Stage.ADMITTED, T0 + 9, T0 + 9)
    assert restored_state(a_pod({"phase": "Succeeded", "startTime": at}), T0 + 9).stage is Stage.ENDED
    found = restored_state(a_pod({"phase": "Running", "startTime": at, "containerStatuses": [running]}), T0 + 9)
    assert found == LifecycleState(Stage.RUNNING, T0 + 7, T0, restarts=3)
    found = restored_state(a_pod({"phase": "Running", "startTime": at, "containerStatuses": [waiting]}), T0 + 9)
    assert found == LifecycleState(Stage.BACKING_OFF, T0 + 9, T0, restarts=3)


def test_what_is_written_is_never_about_scheduling() -> None:
    for taken in (
        next_step(ADMITTED, a_pod(), T0 + 1, facts()),
        next_step(ADMITTED, a_pod(), T0 + 1, facts(waiting=ContainerWaiting("CreateContainerConfigError", "x"))),
        next_step(ADMITTED, a_pod(init=1), T0 + 1, facts()),
        next_step(RUNNING, a_pod(), T0 + 10, facts()),
        next_step(replace(RUNNING, restarts=1), a_pod(restart="Always"), T0 + 10, facts()),
    ):
        assert taken.status is not None
        assert "PodScheduled" not in [condition["type"] for condition in taken.status["conditions"]]
