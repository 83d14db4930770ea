"""The progress of a Job: how its pods ended, and what follows.

Pure: `count_pods` makes `JobCounts` from a Job, its pods and the memory of vanished pods; `job_result` says whether the
Job is finished, `desired_active` how many pods should be active.

Kubernetes keeps finished pods with finalizers until they are counted. Here a vanished pod is counted when the watch
reports it (`JobMemory.record_vanished_pod`); after a restart the Job's own status supplies the missing counts. Only a
pod that finished and vanished while this process was down is not counted, so a Job may run one pod too many, and never
one too few.

Statements: sim:job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pykai.api import names
from pykai.api.workloads import Job, MachinePod, PodFailureRule
from pykai.kube.backoff import Backoff
from pykai.lab.controllers.pods import finished_at_s, is_finished, is_ready, is_terminating
from pykai.lab.timestamps import to_seconds

DEFAULT_BACKOFF_LIMIT = 6
BACKOFF = Backoff(10.0, 600.0)

IGNORE, COUNT, FAIL_JOB = "Ignore", "Count", "FailJob"


@dataclass(slots=True)
class JobMemory:
    """What is remembered about a Job beyond its object."""

    #: pods that are gone, and how they ended
    gone_succeeded: int = 0
    gone_failed: int = 0
    #: pods that the controller deleted: their end is no failure
    deleted_by_us: set[str] = field(default_factory=set)
    #: numbers the names of pods
    created: int = 0

    @classmethod
    def of(cls, job: Job, pods: Iterable[MachinePod]) -> JobMemory:
        """After a restart: pods that the Job's status counted and that are gone."""
        ended = [pod.status.phase for pod in pods if is_finished(pod)]
        return cls(
            gone_succeeded=max(0, job.status.succeeded - ended.count("Succeeded")),
            gone_failed=max(0, job.status.failed - ended.count("Failed")),
        )

    def record_vanished_pod(self, job: Job, pod: MachinePod) -> None:
        """A pod has vanished."""
        if pod.metadata.uid in self.deleted_by_us:
            self.deleted_by_us.discard(pod.metadata.uid)
        elif pod.status.phase == "Succeeded":
            self.gone_succeeded += 1
        elif failure_action(job, pod) != IGNORE:
            self.gone_failed += 1


@dataclass(frozen=True, slots=True)
class JobCounts:
    """The pods of a Job, counted."""

    active: tuple[MachinePod, ...]
    terminating: int
    ready: int
    succeeded: int
    failed: int
    #: completion indexes that are done, for Indexed Jobs
    indexes: frozenset[int]
    #: container restarts in pods that restart their containers themselves
    restarts: int
    #: a failed pod that fails the Job
    fatal_pod: MachinePod | None
    #: when replacements may be made after failures
    back_off_until_s: float


def count_pods(job: Job, pods: Iterable[MachinePod], memory: JobMemory) -> JobCounts:
    """Count the pods of a Job."""
    active: list[MachinePod] = []
    terminating = succeeded = failed = restarts = 0
    indexes = set(parse_indexes(job.status.completed_indexes)) if is_indexed(job) else set()
    fatal: MachinePod | None = None
    failures: list[float] = []
    last_success_s = 0.0
    for pod in pods:
        if pod.status.phase == "Succeeded":
            succeeded += 1
            last_success_s = max(last_success_s, finished_at_s(pod) or 0.0)
            index = index_of(pod)
            if index is not None:
                indexes.add(index)
        elif pod.status.phase == "Failed":
            action = failure_action(job, pod)
            if pod.metadata.uid in memory.deleted_by_us or action == IGNORE:
                continue
            failed += 1
            if action == FAIL_JOB:
                fatal = fatal or pod
            if not is_terminating(pod):
                failures.append(finished_at_s(pod) or to_seconds(pod.status.start_time) or 0.0)
        elif is_terminating(pod):
            terminating += 1
        else:
            active.append(pod)
            restarts += sum(status.restart_count for status in pod.status.container_statuses)
    recent = [at_s for at_s in failures if at_s >= last_success_s]
    delay_s = BACKOFF.delay_s(len(recent))
    return JobCounts(
        active=tuple(active),
        terminating=terminating,
        ready=sum(map(is_ready, active)),
        succeeded=len(indexes) if is_indexed(job) else succeeded + memory.gone_succeeded,
        failed=failed + memory.gone_failed,
        indexes=frozenset(indexes),
        restarts=restarts,
        fatal_pod=fatal,
        back_off_until_s=max(recent) + delay_s if recent else 0.0,
    )


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a Job finished."""

    complete: bool
    reason: str
    message: str


def job_result(job: Job, tally: JobCounts, now_s: float) -> JobResult | None:
    """How the Job finished; None while it goes on."""
    limit = DEFAULT_BACKOFF_LIMIT if job.spec.backoff_limit is None else job.spec.backoff_limit
    if tally.fatal_pod is not None:
        pod = tally.fatal_pod.metadata
        return JobResult(
            False, "PodFailurePolicy", f"Pod {pod.namespace}/{pod.name} matched a rule with action FailJob"
        )
    if tally.failed > limit or (tally.restarts > 0 and tally.restarts >= max(1, limit)):
        return JobResult(False, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    deadline_s, start_s = job.spec.active_deadline_seconds, to_seconds(job.status.start_time)
    if deadline_s is not None and start_s is not None and not job.spec.suspend and now_s >= start_s + deadline_s:
        return JobResult(False, "DeadlineExceeded", "Job was active longer than specified deadline")
    if job.spec.completions is None:
        done = tally.succeeded > 0 and not tally.active and not tally.terminating
    else:
        done = tally.succeeded >= job.spec.completions
    return JobResult(True, "CompletionsReached", "Reached expected number of succeeded pods") if done else None


def desired_active(job: Job, tally: JobCounts) -> int:
    """How many pods of the Job should be active."""
    parallelism = 1 if job.spec.parallelism is None else max(0, job.spec.parallelism)
    if job.spec.suspend:
        return 0
    if job.spec.completions is None:
        # One success is enough: running pods may finish, none is added.
        return min(parallelism, len(tally.active)) if tally.succeeded else parallelism
    return min(parallelism, max(0, job.spec.completions - tally.succeeded))


def missing_indexes(job: Job, tally: JobCounts, others: Iterable[MachinePod], count: int) -> list[int]:
    """The lowest indexes that are neither done nor taken by a pod."""
    taken = {index_of(pod) for pod in (*tally.active, *others)}
    missing: list[int] = []
    for index in range(job.spec.completions or 0):
        if len(missing) == count:
            break
        if index not in tally.indexes and index not in taken:
            missing.append(index)
    return missing


def pods_to_delete(job: Job, tally: JobCounts, count: int) -> Sequence[MachinePod]:
    """The surplus pods to delete: those with the least progress."""
    return sorted(
        tally.active,
        key=lambda pod: (
            bool(pod.spec.node_name),
            pod.status.phase == "Running",
            is_ready(pod),
            [-ord(c) for c in pod.metadata.creation_timestamp or ""],
            pod.metadata.name,
        ),
    )[:count]


def is_indexed(job: Job) -> bool:
    """Whether each completion has a number."""
    return job.spec.completion_mode == "Indexed"


def index_of(pod: MachinePod) -> int | None:
    """The completion index of a pod."""
    text = pod.metadata.annotations.get(names.COMPLETION_INDEX_ANNOTATION, "")
    return int(text) if text.isdigit() else None


def failure_action(job: Job, pod: MachinePod) -> str:
    """The action of the Job's failure policy for a failed or deleted pod."""
    policy = job.spec.pod_failure_policy
    if policy is not None:
        for rule in policy.rules:
            if _rule_matches(rule, pod):
                return rule.action
    return COUNT


def _rule_matches(rule: PodFailureRule, pod: MachinePod) -> bool:
    for pattern in rule.on_pod_conditions:
        for condition in pod.status.conditions:
            if condition.type == pattern.type and condition.status == (pattern.status or "True"):
                return True
    codes = rule.on_exit_codes
    if codes is not None:
        for status in pod.status.container_statuses:
            if codes.container_name and codes.container_name != status.name:
                continue
            ended = status.state.terminated
            if ended is not None and ended.exit_code and (ended.exit_code in codes.values) == (codes.operator == "In"):
                return True
    return False


def parse_indexes(text: str) -> list[int]:
    """`1,3-5,7` as numbers; other text is skipped."""
    indexes: list[int] = []
    for piece in text.split(","):
        low, dash, high = piece.partition("-")
        if low.isdigit() and (high.isdigit() if dash else True):
            indexes += range(int(low), int(high if dash else low) + 1)
    return indexes


def format_indexes(indexes: Iterable[int]) -> str:
    """Numbers as `1,3-5,7`."""
    pieces: list[str] = []
    ordered = sorted(indexes)
    first = 0
    for position, index in enumerate(ordered):
        if position + 1 < len(ordered) and ordered[position + 1] == index + 1:
            continue
        low = ordered[first]
        length = index - low
        pieces.append(str(low) if length == 0 else f"{low},{index}" if length == 1 else f"{low}-{index}")
        first = position + 1
    return ",".join(pieces)
