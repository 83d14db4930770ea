"""How far a Job is: counting, verdicts, back-off, indexes."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api import names
from pykai.api.decode import decode_as
from pykai.api.workloads import Job, MachinePod
from pykai.lab.controllers.jobstatus import (
    JobMemory,
    JobResult,
    count_pods,
    desired_active,
    failure_action,
    format_indexes,
    job_result,
    missing_indexes,
    parse_indexes,
    pods_to_delete,
)
from pykai.lab.timestamps import to_timestamp
from tests.lab.simulatedcluster import pod

T0 = 1_800_000_000.0


def a_job(status: dict[str, Any] | None = None, **spec: Any) -> Job:
    return decode_as(Job, {"metadata": {"name": "j"}, "spec": spec, "status": status or {}})


def a_pod(
    uid: str, phase: str = "Running", *, ended_s: float | None = None, going: bool = False, **more: Any
) -> MachinePod:
    made = pod(uid, node=more.pop("node", "n"), annotations=more.pop("annotations", None))
    made["metadata"]["uid"] = uid
    if going:
        made["metadata"]["deletionTimestamp"] = to_timestamp(T0)
    status: dict[str, Any] = {"phase": phase, "conditions": more.pop("conditions", [])}
    if ended_s is not None:
        ended = {"exitCode": more.pop("code", 0), "finishedAt": to_timestamp(ended_s)}
        status["containerStatuses"] = [{"name": "c0", "state": {"terminated": ended}}]
    made["status"] = status
    return decode_as(MachinePod, made)


def indexed(uid: str, index: int, phase: str = "Running", **more: Any) -> MachinePod:
    return a_pod(uid, phase, annotations={names.COMPLETION_INDEX_ANNOTATION: str(index)}, **more)


def test_pods_are_counted_by_what_became_of_them() -> None:
    pods = [a_pod("a"), a_pod("b", going=True), a_pod("c", "Succeeded"), a_pod("d", "Failed"), a_pod("e", "Pending")]
    found = count_pods(a_job(), pods, JobMemory())
    assert ([p.metadata.uid for p in found.active], found.terminating) == (["a", "e"], 1)
    assert (found.succeeded, found.failed) == (1, 1)


def test_pods_that_vanish_stay_counted() -> None:
    memory = JobMemory()
    job = a_job()
    memory.record_vanished_pod(job, a_pod("a", "Succeeded"))
    memory.record_vanished_pod(job, a_pod("b", "Running"))
    memory.deleted_by_us.add("c")
    memory.record_vanished_pod(job, a_pod("c", "Running"))
    found = count_pods(job, [a_pod("d", "Succeeded")], memory)
    assert (found.succeeded, found.failed, memory.deleted_by_us) == (2, 1, set())


def test_after_a_restart_the_status_stands_for_pods_that_are_gone() -> None:
    job = a_job({"succeeded": 3, "failed": 1})
    pods = [a_pod("a", "Succeeded"), a_pod("b", "Failed"), a_pod("c", "Failed")]
    memory = JobMemory.of(job, pods)
    found = count_pods(job, pods, memory)
    assert (found.succeeded, found.failed) == (3, 2)


def test_indexes_of_the_status_and_of_pods_are_done() -> None:
    job = a_job({"completedIndexes": "0,2"}, completionMode="Indexed", completions=6)
    found = count_pods(job, [indexed("a", 3, "Succeeded"), indexed("b", 1)], JobMemory())
    assert (found.indexes, found.succeeded) == (frozenset({0, 2, 3}), 3)
    assert missing_indexes(job, found, (), 2) == [4, 5]
    assert missing_indexes(job, found, [indexed("c", 4)], 2) == [5]


@pytest.mark.parametrize("text", ["", "0", "0,1", "0-2", "1,3-5,7,8", "0,2,4"])
def test_indexes_are_read_as_they_are_written(text: str) -> None:
    assert format_indexes(parse_indexes(text)) == text


@pytest.mark.parametrize(
    ("spec", "succeeded", "active", "expected"),
    [
        ({"parallelism": 3, "completions": 9}, 0, 0, 3),
        ({"parallelism": 3, "completions": 4}, 2, 2, 2),
        ({"parallelism": 3}, 0, 1, 3),
        ({"parallelism": 3}, 1, 2, 2),
        ({"parallelism": 3, "completions": 9, "suspend": True}, 0, 3, 0),
        ({}, 0, 0, 1),
    ],
)
def test_how_many_pods_there_should_be(spec: dict[str, Any], succeeded: int, active: int, expected: int) -> None:
    pods = [a_pod(f"s{n}", "Succeeded") for n in range(succeeded)] + [a_pod(f"a{n}") for n in range(active)]
    job = a_job(**spec)
    assert desired_active(job, count_pods(job, pods, JobMemory())) == expected


def decide(job: Job, *pods: MachinePod, now_s: float = T0) -> JobResult | None:
    return job_result(job, count_pods(job, pods, JobMemory()), now_s)


def test_enough_successes_complete_a_job() -> None:
    job = a_job(completions=2)
    assert decide(job, a_pod("a", "Succeeded")) is None
    over = decide(job, a_pod("a", "Succeeded"), a_pod("b", "Succeeded"), a_pod("c"))
    assert over is not None
    assert over.complete


def test_a_work_queue_is_done_when_one_succeeded_and_none_is_left() -> None:
    assert decide(a_job(), a_pod("a", "Succeeded"), a_pod("b")) is None
    assert decide(a_job(), a_pod("a", "Succeeded"), a_pod("b", going=True)) is None
    over = decide(a_job(), a_pod("a", "Succeeded"))
    assert over is not None
    assert over.complete


def test_one_failure_more_than_the_limit_is_too_many() -> None:
    failed = [a_pod(f"f{number}", "Failed") for number in range(7)]
    assert decide(a_job(), *failed[:6]) is None
    over = decide(a_job(), *failed)
    assert over is not None
    assert (over.complete, over.reason) == (False, "BackoffLimitExceeded")
    assert decide(a_job(backoffLimit=0), *failed[:1]) is not None


def test_a_deadline_counts_from_the_start_of_the_job() -> None:
    job = a_job({"startTime": to_timestamp(T0)}, activeDeadlineSeconds=10)
    assert decide(job, a_pod("a"), now_s=T0 + 9) is None
    over = decide(job, a_pod("a"), now_s=T0 + 10)
    assert over is not None
    assert over.reason == "DeadlineExceeded"


def test_replacements_wait_longer_after_each_failure_and_not_after_a_success() -> None:
    first, second = a_pod("a", "Failed", ended_s=T0), a_pod("b", "Failed", ended_s=T0 + 20)
    assert count_pods(a_job(), [first], JobMemory()).back_off_until_s == T0 + 10
    assert count_pods(a_job(), [first, second], JobMemory()).back_off_until_s == T0 + 40
    better = a_pod("c", "Succeeded", ended_s=T0 + 30)
    assert count_pods(a_job(), [first, second, better], JobMemory()).back_off_until_s == 0


def test_evicted_pods_do_not_slow_their_replacements() -> None:
    evicted = a_pod("a", "Failed", ended_s=T0, going=True)
    assert count_pods(a_job(), [evicted], JobMemory()).back_off_until_s == 0


def test_those_that_came_least_far_are_given_up_first() -> None:
    ready = {"type": "Ready", "status": "True"}
    pods = [a_pod("serves", conditions=[ready]), a_pod("runs"), a_pod("waits", "Pending", node="")]
    job = a_job()
    assert [p.metadata.uid for p in pods_to_delete(job, count_pods(job, pods, JobMemory()), 2)] == ["waits", "runs"]


def test_the_failure_policy_looks_at_conditions_and_exit_codes() -> None:
    job = a_job(
        podFailurePolicy={
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
            ]
        }
    )
    preempted = a_pod("a", "Failed", ended_s=T0, code=143, conditions=[{"type": "DisruptionTarget", "status": "True"}])
    fatal = a_pod("b", "Failed", ended_s=T0, code=42)
    plain = a_pod("c", "Failed", ended_s=T0, code=1)
    assert [failure_action(job, one) for one in (preempted, fatal, plain)] == ["Ignore", "FailJob", "Count"]
    over = decide(job, fatal)
    assert over is not None
    assert over.reason == "PodFailurePolicy"
    assert count_pods(job, [preempted], JobMemory()).failed == 0
