"""Jobs of Kubeflow's training operator: PyTorchJob, TFJob, XGBoostJob, JAXJob.

A job has roles with a number of pods each, `<job>-<role>-<index>`. It is done when its decisive pod has succeeded: the
first of the master or chief where the kind has one, else worker 0. It fails when a pod has failed for good. Then its
pods are deleted as `cleanPodPolicy` says.

Not done: services for the pods, environment variables, scaling by an elastic policy. Other than the training operator,
which keeps the pods of finished jobs, the default of `cleanPodPolicy` is Running: the GPUs of the lab are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from msgspec import field

from pykai.api import names
from pykai.api.meta import Int64, Wire
from pykai.api.unstructured import JsonMapping, JsonObject
from pykai.api.workloads import MachinePod
from pykai.kube.resources import Resource
from pykai.lab.controllers.pods import is_active, is_terminating
from pykai.lab.operators.steps import (
    Deletion,
    ObservedWorkload,
    OperatedKind,
    OperatedWorkload,
    RefusedWorkload,
    Step,
    WantedPod,
    checked_count,
    condition,
    conditions_of,
    converge_pods,
    delete_pods,
    holding,
    seconds_left,
    unfinished,
)

GROUP: Final = "kubeflow.org"
_OPERATOR_LABEL: Final = "training.kubeflow.org/operator-name"
#: Exit codes from here on are worth another attempt under the restart policy ExitCode.
_FIRST_RETRYABLE_EXIT: Final = 128


class TrainingRole(Wire):
    """One role of a job."""

    replicas: Int64 | None = None
    restart_policy: str = ""
    template: JsonObject = field(default_factory=dict)


class TrainingRunPolicy(Wire):
    """What holds for a job as a whole."""

    suspend: bool = False
    clean_pod_policy: str = ""
    backoff_limit: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    ttl_seconds_after_finished: Int64 | None = None


class TrainingJobSpec(Wire):
    run_policy: TrainingRunPolicy = field(default_factory=TrainingRunPolicy)
    pytorch_replica_specs: dict[str, TrainingRole] = field(default_factory=dict)
    tf_replica_specs: dict[str, TrainingRole] = field(default_factory=dict)
    xgb_replica_specs: dict[str, TrainingRole] = field(default_factory=dict)
    jax_replica_specs: dict[str, TrainingRole] = field(default_factory=dict)
    mpi_replica_specs: dict[str, TrainingRole] = field(default_factory=dict)
    #: of an MPIJob
    launcher_creation_policy: str = ""


class TrainingJob(OperatedWorkload):
    """A job of any of these kinds; it has the roles of its own."""

    spec: TrainingJobSpec = field(default_factory=TrainingJobSpec)


@dataclass(frozen=True, slots=True)
class TrainingKind:
    """What distinguishes the kinds."""

    resource: Resource
    #: the field of the spec with the roles, as an attribute
    roles: str
    #: the first of these that a job has decides about its end
    decisive: tuple[str, ...]
    #: which of them is labelled as master
    masters: tuple[str, ...]
    restart_policy: str


def _kind(kind: str, roles: str, decisive: tuple[str, ...], masters: tuple[str, ...], restart: str) -> TrainingKind:
    return TrainingKind(Resource(GROUP, "v1", f"{kind.lower()}s", kind, True), roles, decisive, masters, restart)


TRAINING_KINDS: Final = (
    _kind("PyTorchJob", "pytorch_replica_specs", ("Master", "Worker"), ("Master",), "OnFailure"),
    _kind("TFJob", "tf_replica_specs", ("Chief", "Master", "Worker"), ("Chief", "Master", "Worker"), "Never"),
    _kind("XGBoostJob", "xgb_replica_specs", ("Master",), ("Master",), "Never"),
    _kind("JAXJob", "jax_replica_specs", ("Worker",), ("Worker",), "OnFailure"),
)


def plan_training_job(kind: TrainingKind, job: TrainingJob, seen: ObservedWorkload) -> Step:
    """The next step of a job."""
    roles: Mapping[str, TrainingRole] = getattr(job.spec, kind.roles)
    over = finished(job)
    if over is not None:
        return after_the_end(kind.resource, job, roles, over, seen)
    decisive = next((role for role in kind.decisive if role in roles), None)
    if decisive is None:
        raise RefusedWorkload(f"a {kind.resource.kind} needs the role {' or '.join(kind.decisive)}")
    state = JobState(kind.resource.kind, job, seen)
    if job.spec.run_policy.suspend:
        return Step(state.suspended(roles), delete=delete_pods(seen.pods))
    wanted = list(_wanted_pods(kind, job, roles, decisive))
    by_name = {pod.metadata.name: pod for pod in seen.pods}
    decider = by_name.get(pod_name(job, decisive, 0))
    if decider is not None and decider.status.phase == "Succeeded":
        return Step(state.ended("Succeeded", "is successfully completed", roles))
    failed, retried = _failed_pods(kind, roles, seen.pods)
    problem = state.problem(failed)
    if problem:
        return Step(state.ended("Failed", problem, roles))
    create, delete = converge_pods(job, kind.resource, wanted, seen.pods)
    running = len(wanted) == len(by_name) and all(pod.status.phase in ("Running", "Succeeded") for pod in seen.pods)
    status = state.going(roles, running=running, restarting=bool(retried))
    return Step(status, create, [*delete, *delete_pods(retried)], wait_s=state.deadline_s())


def training_kinds() -> list[OperatedKind[TrainingJob]]:
    """The kinds as operators run them."""
    return [OperatedKind(kind.resource, TrainingJob, partial(plan_training_job, kind)) for kind in TRAINING_KINDS]


def pod_name(job: TrainingJob, role: str, index: int) -> str:
    """`<job>-<role>-<index>`."""
    return f"{job.metadata.name}-{role.lower()}-{index}"


def role_labels(kind: str, job: TrainingJob, role: str, index: int) -> dict[str, str]:
    """What the training operator writes on a pod."""
    return {
        _OPERATOR_LABEL: f"{kind.lower()}-controller",
        names.KUBEFLOW_JOB_NAME_LABEL: job.metadata.name,
        names.KUBEFLOW_REPLICA_TYPE_LABEL: role.lower(),
        names.KUBEFLOW_REPLICA_INDEX_LABEL: str(index),
    }


def _wanted_pods(
    kind: TrainingKind, job: TrainingJob, roles: Mapping[str, TrainingRole], decisive: str
) -> Iterator[WantedPod]:
    for role, spec in roles.items():
        count = checked_count(spec.replicas, f"replicas of {role}")
        policy = spec.restart_policy or kind.restart_policy
        for index in range(count):
            labels = role_labels(kind.resource.kind, job, role, index)
            if role == decisive and role in kind.masters and index == 0:
                labels[names.KUBEFLOW_ROLE_LABEL] = "master"
            restart = {"restartPolicy": "Never" if policy == "ExitCode" else policy}
            yield WantedPod(pod_name(job, role, index), spec.template, labels, restart)


def _failed_pods(
    kind: TrainingKind, roles: Mapping[str, TrainingRole], pods: Sequence[MachinePod]
) -> tuple[list[MachinePod], list[MachinePod]]:
    """Pods that failed for good, and those that get another attempt; evicted pods are in deletion and are neither."""
    policies = {role.lower(): spec.restart_policy or kind.restart_policy for role, spec in roles.items()}
    failed: list[MachinePod] = []
    retried: list[MachinePod] = []
    for pod in pods:
        if pod.status.phase != "Failed" or is_terminating(pod):
            continue
        policy = policies.get(pod.metadata.labels.get(names.KUBEFLOW_REPLICA_TYPE_LABEL, ""), "")
        again = policy == "ExitCode" and _exit_code(pod) >= _FIRST_RETRYABLE_EXIT
        (retried if again else failed).append(pod)
    return failed, retried


def _exit_code(pod: MachinePod) -> int:
    ends = (status.state.terminated for status in pod.status.container_statuses)
    return max((end.exit_code for end in ends if end is not None), default=0)


def finished(job: TrainingJob) -> JsonMapping | None:
    """The condition that ends a job."""
    conditions = conditions_of(job.status)
    return holding(conditions, "Succeeded") or holding(conditions, "Failed")


def after_the_end(
    resource: Resource, job: TrainingJob, roles: Mapping[str, TrainingRole], over: JsonMapping, seen: ObservedWorkload
) -> Step:
    """Clean up after a job: its pods as the policy says, and the job itself after its time to live."""
    policy = job.spec.run_policy.clean_pod_policy or "Running"
    pods = seen.pods
    leaving = {"None": [], "All": list(pods)}.get(policy, unfinished(pods))
    delete = delete_pods(leaving)
    status = JobState(resource.kind, job, seen).over(roles)
    ttl_s = job.spec.run_policy.ttl_seconds_after_finished
    if ttl_s is None:
        return Step(status, delete=delete)
    left_s = seconds_left(over.get("lastTransitionTime"), ttl_s, seen.now_s)
    if left_s:
        return Step(status, delete=delete, wait_s=left_s)
    return Step(status, delete=[*delete, Deletion(resource, job)])


class JobState:
    """The status of a job in the words of Kubeflow: conditions, and pods by role."""

    def __init__(self, kind: str, job: TrainingJob, seen: ObservedWorkload) -> None:
        self._kind = kind
        self._job = job
        self._seen = seen
        self._text = f"{kind} {job.metadata.namespace}/{job.metadata.name}"

    def going(self, roles: Mapping[str, Any], *, running: bool, restarting: bool = False) -> JsonObject:
        """The status of a job that is neither suspended nor over."""
        found = self._set(conditions_of(self._job.status), "Created", "is created")
        if holding(found, "Suspended"):
            found = self._set(found, "Suspended", "is resumed", holds=False, reason="Resumed")
        if restarting:
            found = self._set(self._set(found, "Running", "is restarting", holds=False), "Restarting", "is restarting")
        elif running:
            found = self._set(self._set(found, "Restarting", "is running", holds=False), "Running", "is running")
        began = self._job.status.get("startTime") or self._seen.now
        return {**self._job.status, "conditions": found, **self._counts(roles), "startTime": began}

    def suspended(self, roles: Mapping[str, Any]) -> JsonObject:
        """The status of a suspended job: it starts from the beginning when it is resumed."""
        found = self._set(conditions_of(self._job.status), "Created", "is created")
        found = self._set(found, "Running", "is suspended", holds=False, reason="Suspended")
        found = self._set(found, "Suspended", "is suspended")
        kept = {key: value for key, value in self._job.status.items() if key != "startTime"}
        return {**kept, "conditions": found, **self._counts(roles)}

    def ended(self, how: str, text: str, roles: Mapping[str, Any]) -> JsonObject:
        """The status of a job that has succeeded or failed."""
        found = self._set(conditions_of(self._job.status), "Created", "is created")
        for before in ("Running", "Restarting"):
            found = self._set(found, before, text, holds=False, reason=how)
        found = self._set(found, how, text)
        return {**self._job.status, "conditions": found, **self._counts(roles), "completionTime": self._seen.now}

    def over(self, roles: Mapping[str, Any]) -> JsonObject:
        """The status of a job that ended before: its pods still change."""
        return {**self._job.status, **self._counts(roles)}

    def problem(self, failed: Sequence[MachinePod]) -> str:
        """Why the job fails; empty if it does not."""
        if failed:
            return f"is failed because pod {failed[0].metadata.name} failed"
        limit = self._job.spec.run_policy.backoff_limit
        if limit is not None:
            restarts = sum(status.restart_count for pod in self._seen.pods for status in pod.status.container_statuses)
            if restarts > limit:
                return f"has failed because it has reached the specified backoff limit: {restarts} restarts of {limit}"
        if self.deadline_s() == 0.0:
            return "has failed because it was active longer than specified deadline"
        return ""

    def deadline_s(self) -> float | None:
        """The seconds that are left to the job; None without a deadline."""
        limit_s = self._job.spec.run_policy.active_deadline_seconds
        began = self._job.status.get("startTime")
        if limit_s is None:
            return None
        return float(limit_s) if began is None else seconds_left(began, limit_s, self._seen.now_s)

    def _set(
        self, conditions: Sequence[JsonMapping], kind: str, text: str, *, holds: bool = True, reason: str = ""
    ) -> list[JsonMapping]:
        made = f"{self._kind}{reason or kind}"
        return condition(conditions, kind, made, f"{self._text} {text}.", self._seen.now, holds=holds)

    def _counts(self, roles: Mapping[str, Any]) -> JsonObject:
        """How many pods of each role are active, have succeeded and have failed."""
        counts: JsonObject = {role: {} for role in roles}
        spelling = {role.lower(): role for role in roles}
        for pod in self._seen.pods:
            role = spelling.get(pod.metadata.labels.get(names.KUBEFLOW_REPLICA_TYPE_LABEL, ""))
            phase = "active" if is_active(pod) else pod.status.phase.lower()
            if role is not None and not is_terminating(pod):
                counts[role][phase] = counts[role].get(phase, 0) + 1
        return {"replicaStatuses": counts}
