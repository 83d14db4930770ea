"""CronJobs: which times are due, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api import names
from pykai.api.decode import decode_as
from pykai.api.workloads import CronJob, Job
from pykai.kube.resources import CRON_JOBS
from pykai.lab.controllers.cronjobs import due_time, job_document
from pykai.lab.machines.podbehaviour import BehaviourDefaults
from pykai.lab.timestamps import to_seconds, to_timestamp
from tests.lab.simulatedcluster import simulated_cluster, template


def at(text: str) -> float:
    found = to_seconds(f"2026-03-01T{text}Z")
    assert found is not None
    return found


def cron_job(schedule: str = "*/10 * * * *", *, last: str | None = None, **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "default", "creationTimestamp": "2026-03-01T00:00:00Z"},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": template()}}, **spec},
    }
    if last is not None:
        made["status"] = {"lastScheduleTime": to_timestamp(at(last))}
    return made


def read(*args: Any, **kwargs: Any) -> CronJob:
    return decode_as(CronJob, cron_job(*args, **kwargs))


@pytest.mark.parametrize(
    ("cron", "now", "expected"),
    [
        (read(), "00:09:59", None),
        (read(), "00:10:00", "00:10:00"),
        (read(last="00:10:00"), "00:10:30", None),
        (read(last="00:10:00"), "01:05:00", "01:00:00"),
        (read(last="00:10:00", startingDeadlineSeconds=200), "01:05:00", None),
        (read(last="00:10:00", startingDeadlineSeconds=400), "01:05:00", "01:00:00"),
        (read("30 14 * * *", timeZone="Asia/Kolkata"), "09:01:00", "09:00:00"),
    ],
)
def test_the_last_missed_time_is_due(cron: CronJob, now: str, expected: str | None) -> None:
    assert due_time(cron, at(now)) == (at(expected) if expected is not None else None)


def test_a_job_is_named_after_its_minute() -> None:
    made = job_document(read(), at("00:10:00"))
    assert made["metadata"]["name"] == f"nightly-{int(at('00:10:00')) // 60}"
    assert made["metadata"]["annotations"] == {names.CRON_SCHEDULED_AT_ANNOTATION: "2026-03-01T00:10:00Z"}


async def test_a_cron_job_makes_its_jobs_and_forgets_old_ones() -> None:
    async with simulated_cluster(speed=2000, behaviour=BehaviourDefaults(run_s=5), controllers=True) as w:
        await w.node("n1")
        w.binds_to("n1")
        made = cron_job("* * * * *", successfulJobsHistoryLimit=1)
        del made["metadata"]["creationTimestamp"]
        await w.create(CRON_JOBS, made)
        seen: set[str] = set()

        def served(found: Job) -> bool:
            if found.status.completion_time:
                seen.add(found.metadata.name)
            return True

        await w.jobs.wait_until(lambda s: all(map(served, s.values())) and len(seen) >= 3)
        await w.jobs.wait_until(lambda s: sum(bool(j.status.completion_time) for j in s.values()) <= 1)
        status = (await w.get(CRON_JOBS, "nightly"))["status"]
        assert status["lastScheduleTime"]
        assert status["lastSuccessfulTime"]


async def test_forbid_starts_nothing_while_a_job_runs() -> None:
    async with simulated_cluster(speed=2000, behaviour=BehaviourDefaults(run_s=1e9), controllers=True) as w:
        made = cron_job("* * * * *", concurrencyPolicy="Forbid")
        del made["metadata"]["creationTimestamp"]
        await w.create(CRON_JOBS, made)
        await w.event("JobAlreadyActive")
        assert len(w.jobs) == 1


async def test_replace_gives_the_old_job_up() -> None:
    async with simulated_cluster(speed=2000, behaviour=BehaviourDefaults(run_s=1e9, stop_s=0), controllers=True) as w:
        made = cron_job("* * * * *", concurrencyPolicy="Replace")
        del made["metadata"]["creationTimestamp"]
        await w.create(CRON_JOBS, made)
        await w.jobs.wait_until(lambda s: len(s) >= 1)
        first = next(iter(w.jobs.values()))
        await w.jobs.wait_until(lambda s: len(s) >= 1 and f"default/{first.metadata.name}" not in s)


async def test_an_invalid_schedule_is_reported() -> None:
    async with simulated_cluster(controllers=True) as w:
        await w.create(CRON_JOBS, cron_job("now and then"))
        await w.event("UnparseableSchedule", "now and then")


async def test_a_suspended_cron_job_makes_nothing() -> None:
    async with simulated_cluster(speed=3000, controllers=True) as w:
        quiet = cron_job("* * * * *", suspend=True)
        quiet["metadata"]["name"] = "quiet"
        await w.create(CRON_JOBS, quiet)
        busy = cron_job("* * * * *")
        del busy["metadata"]["creationTimestamp"]
        await w.create(CRON_JOBS, busy)
        await w.jobs.wait_until(lambda s: len(s) >= 2)
        assert {j.metadata.owner_references[0].name for j in w.jobs.values()} == {"nightly"}
