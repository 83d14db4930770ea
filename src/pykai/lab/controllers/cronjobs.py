"""CronJobs: a Job at each time of a schedule, in cluster time.

Once a minute each CronJob is checked for a scheduled time that has passed without a Job. Of several missed times only
the last counts; one older than `startingDeadlineSeconds` is skipped. A Job is named after its time, so no time gets
two.

Statements: sim:cron.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pykai.api import names
from pykai.api.unstructured import JsonObject
from pykai.api.workloads import CronJob, Job
from pykai.core.queueing.cron import CronError, parse_cron
from pykai.kube.errors import ApiError
from pykai.kube.resources import CRON_JOBS, JOBS
from pykai.kube.runtime import Runtime, Service
from pykai.lab.controllers.controller import (
    AssumingWriter,
    Controller,
    controlled_by,
    owner_reference,
)
from pykai.lab.controllers.jobs import finished_condition
from pykai.lab.controllers.pods import CONTROLLER
from pykai.lab.timestamps import to_seconds, to_timestamp

DEFAULT_SUCCESSFUL_HISTORY = 3
DEFAULT_FAILED_HISTORY = 1
_MINUTE_S = 60


class CronJobs:
    """The CronJob controller."""

    def __init__(self, runtime: Runtime) -> None:
        self._crons = runtime.caches.store(CRON_JOBS, CronJob)
        self._jobs = runtime.caches.store(JOBS, Job)
        self._jobs.index(CONTROLLER, controlled_by)
        self._write = AssumingWriter(runtime.client, self._crons, CronJob, runtime.clock)
        self._write_job = AssumingWriter(runtime.client, self._jobs, Job, runtime.clock)
        self.controller = Controller(
            "cronjob-controller",
            runtime,
            self._reconcile,
            self._crons,
            owns=[self._jobs],
        )

    async def _reconcile(self, key: str) -> float | None:
        cron = self._crons.get(key)
        if cron is None or cron.metadata.deletion_timestamp is not None:
            return None
        owned = self._jobs.by_index(CONTROLLER, cron.metadata.uid)
        await self._delete_old_jobs(cron, [job for job in owned if job.metadata.deletion_timestamp is None])
        now_s = self.controller.now_s()
        scheduled_s: float | None = None
        if not cron.spec.suspend:
            try:
                due_s = due_time(cron, now_s)
            except (CronError, ZoneInfoNotFoundError, ValueError) as error:
                self.controller.event(
                    cron, "Warning", "UnparseableSchedule", f"unparseable schedule {cron.spec.schedule!r}: {error}"
                )
                return None
            if due_s is not None and await self._start_job(cron, due_s):
                scheduled_s = due_s
        await self._update_status(cron, scheduled_s)
        return _MINUTE_S - self.controller.now_s() % _MINUTE_S

    async def _start_job(self, cron: CronJob, due_s: float) -> bool:
        """Create the Job of a scheduled time; False if it has to wait."""
        active = self._active(cron)
        if active and cron.spec.concurrency_policy == "Forbid":
            self.controller.event(
                cron,
                "Normal",
                "JobAlreadyActive",
                "Not starting job because prior execution is running and concurrency policy is Forbid",
            )
            return False
        if active and cron.spec.concurrency_policy == "Replace":
            for job in active:
                await self._write_job.delete(job)
        body = job_document(cron, due_s)
        try:
            created = await self._write_job.create(body)
        except ApiError as error:
            self.controller.report_failed_create(cron, error, f"Error creating job: {error}")
            return False
        if created is not None:
            self.controller.event(cron, "Normal", "SuccessfulCreate", f"Created job {created.metadata.name}")
        return True

    def _active(self, cron: CronJob) -> list[Job]:
        return [
            job
            for job in self._jobs.by_index(CONTROLLER, cron.metadata.uid)
            if finished_condition(job) is None and job.metadata.deletion_timestamp is None
        ]

    async def _delete_old_jobs(self, cron: CronJob, owned: Sequence[Job]) -> None:
        for kind, limit, default in (
            ("Complete", cron.spec.successful_jobs_history_limit, DEFAULT_SUCCESSFUL_HISTORY),
            ("Failed", cron.spec.failed_jobs_history_limit, DEFAULT_FAILED_HISTORY),
        ):
            ended = [job for job in owned if (over := finished_condition(job)) is not None and over.type == kind]
            ended.sort(key=lambda job: (job.status.start_time or "", job.metadata.name))
            for job in ended[: max(0, len(ended) - (default if limit is None else limit))]:
                await self._write_job.delete(job)

    async def _update_status(self, cron: CronJob, scheduled_s: float | None) -> None:
        current = self._write.latest(cron)
        if current is None:
            return
        patch: JsonObject = {}
        active = sorted(self._active(current), key=lambda job: job.metadata.name)
        if [one.uid for one in current.status.active] != [job.metadata.uid for job in active]:
            patch["active"] = [
                {
                    "apiVersion": JOBS.api_version,
                    "kind": JOBS.kind,
                    "name": job.metadata.name,
                    "namespace": job.metadata.namespace,
                    "uid": job.metadata.uid,
                }
                for job in active
            ]
        if scheduled_s is not None:
            patch["lastScheduleTime"] = to_timestamp(scheduled_s)
        successes = [
            job.status.completion_time
            for job in self._jobs.by_index(CONTROLLER, current.metadata.uid)
            if job.status.completion_time is not None
        ]
        latest = max(successes, default=None)
        if latest is not None and latest > (current.status.last_successful_time or ""):
            patch["lastSuccessfulTime"] = latest
        if patch:
            await self._write.patch_status(current, patch)


def cron_jobs(runtime: Runtime) -> Service:
    """The CronJob controller as a service."""
    return CronJobs(runtime).controller


def due_time(cron: CronJob, now_s: float) -> float | None:
    """The last scheduled time that has passed without a Job, None if there is none."""
    schedule = parse_cron(cron.spec.schedule)
    offset_s = 0.0
    if cron.spec.time_zone:
        offset = datetime.fromtimestamp(now_s, UTC).astimezone(ZoneInfo(cron.spec.time_zone)).utcoffset()
        offset_s = offset.total_seconds() if offset is not None else 0.0
    last_ns = schedule.last_before(int((now_s + offset_s) * 1e9) + 1)
    if last_ns is None:
        return None
    last_s = last_ns / 1e9 - offset_s
    served_s = to_seconds(cron.status.last_schedule_time) or to_seconds(cron.metadata.creation_timestamp) or now_s
    if last_s <= served_s:
        return None
    deadline_s = cron.spec.starting_deadline_seconds
    return None if deadline_s is not None and last_s < now_s - deadline_s else last_s


def job_document(cron: CronJob, due_s: float) -> JsonObject:
    """The Job of a scheduled time."""
    template = cron.spec.job_template
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": f"{cron.metadata.name[:52]}-{int(due_s) // _MINUTE_S}",
            "namespace": cron.metadata.namespace,
            "labels": metadata.get("labels") or {},
            "annotations": {
                **(metadata.get("annotations") or {}),
                names.CRON_SCHEDULED_AT_ANNOTATION: to_timestamp(due_s),
            },
            "ownerReferences": [owner_reference(cron, CRON_JOBS)],
        },
        "spec": template.get("spec") or {},
    }
