"""SparkApplications: a driver pod, and executors that belong to it and come when it runs.

The application ends as its driver does, and its executors go then. A failed driver is replaced as often as
`restartPolicy` says. Requests are computed as Spark does: cores, and memory with a tenth more, at least 384 MiB.

Not done: dynamic allocation, schedules, the restart policy Always, monitoring, volumes.

Statements: sim:operators-order.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from msgspec import field

from pykai.api import names
from pykai.api.meta import Int64, Wire
from pykai.api.unstructured import JsonObject
from pykai.api.workloads import MachinePod
from pykai.kube.resources import PODS, Resource
from pykai.lab.controllers.pods import is_finished
from pykai.lab.operators.steps import (
    Deletion,
    ObservedWorkload,
    OperatedKind,
    OperatedWorkload,
    RefusedWorkload,
    Step,
    WantedPod,
    checked_count,
    converge_pods,
    delete_pods,
)

SPARK_APPLICATIONS: Final = Resource("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication", True)
_MEMORY: Final = re.compile(r"(\d{1,12})([kmgt]?)b?", re.IGNORECASE)
_MIB: Final = {"k": 1 / 1024, "m": 1, "": 1, "g": 1024, "t": 1024 * 1024}
_LEAST_OVERHEAD_MIB: Final = 384


class SparkGpu(Wire):
    name: str = names.NVIDIA_GPU
    quantity: Int64 = 0


class SparkPod(Wire):
    """The driver, or the executors."""

    instances: Int64 | None = None
    cores: Int64 = 1
    memory: str = "1g"
    gpu: SparkGpu | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    scheduler_name: str = ""
    template: JsonObject = field(default_factory=dict)


class SparkRestartPolicy(Wire):
    type: str = "Never"
    on_failure_retries: Int64 = 0


class SparkApplicationSpec(Wire):
    suspend: bool = False
    image: str = "spark"
    driver: SparkPod = field(default_factory=SparkPod)
    executor: SparkPod = field(default_factory=SparkPod)
    restart_policy: SparkRestartPolicy = field(default_factory=SparkRestartPolicy)


class SparkWorkload(OperatedWorkload):
    """A SparkApplication as its operator reads it."""

    spec: SparkApplicationSpec = field(default_factory=SparkApplicationSpec)


def plan_spark_application(app: SparkWorkload, seen: ObservedWorkload) -> Step:
    """The next step of a SparkApplication."""
    driver = next((pod for pod in seen.pods if _role(pod) == "driver"), None)
    executors = [pod for pod in seen.pods if _role(pod) == names.SPARK_EXECUTOR]
    state = _state(app)
    if state in ("COMPLETED", "FAILED"):
        return Step(app.status, delete=delete_pods(executors))
    if app.spec.suspend:
        state = "SUSPENDING" if seen.pods else "SUSPENDED"
        return Step(_status(app, state, executors), delete=delete_pods(seen.pods))
    if driver is None:
        create, _ = converge_pods(app, SPARK_APPLICATIONS, [_wanted(app, "driver", 0)], ())
        attempts = int(app.status.get("executionAttempts", 0)) + (state != "SUBMITTED")
        started = {"submissionAttempts": attempts, "executionAttempts": attempts, "lastSubmissionAttemptTime": seen.now}
        return Step({**_status(app, "SUBMITTED", ()), **started}, create)
    if is_finished(driver):
        return _after_driver(app, driver, executors, seen)
    if driver.status.phase != "Running":
        return Step(_status(app, "SUBMITTED", executors))
    count = checked_count(app.spec.executor.instances, "instances of the executor")
    wanted = [_wanted(app, names.SPARK_EXECUTOR, index + 1) for index in range(count)]
    create, delete = converge_pods(driver, PODS, wanted, executors)
    ended = delete_pods(pod for pod in executors if is_finished(pod))
    return Step(_status(app, "RUNNING", executors), create, [*delete, *ended])


def _after_driver(app: SparkWorkload, driver: MachinePod, executors: list[MachinePod], seen: ObservedWorkload) -> Step:
    delete: list[Deletion] = delete_pods(executors)
    if driver.status.phase == "Succeeded":
        status = {**_status(app, "COMPLETED", executors), "terminationTime": seen.now}
        return Step(status, delete=delete)
    policy = app.spec.restart_policy
    attempts = int(app.status.get("executionAttempts", 1))
    if driver.metadata.deletion_timestamp is not None:
        return Step(_status(app, "PENDING_RERUN", executors), delete=delete)
    if policy.type == "OnFailure" and attempts <= policy.on_failure_retries:
        return Step(_status(app, "PENDING_RERUN", executors), delete=[*delete, *delete_pods([driver])])
    status = {**_status(app, "FAILED", executors), "terminationTime": seen.now}
    status["applicationState"]["errorMessage"] = f"driver pod {driver.metadata.name} failed"
    return Step(status, delete=delete)


def application_id(app: SparkWorkload) -> str:
    """`spark-<32 hexadecimal digits>`; Spark draws it, here the uid decides."""
    return f"spark-{hashlib.md5(app.metadata.uid.encode(), usedforsecurity=False).hexdigest()}"


def _role(pod: MachinePod) -> str:
    return pod.metadata.labels.get(names.SPARK_ROLE_LABEL, "")


def _state(app: SparkWorkload) -> str:
    found = app.status.get("applicationState")
    return str(found.get("state", "")) if isinstance(found, dict) else ""


def _status(app: SparkWorkload, state: str, executors: Any) -> JsonObject:
    phases = {pod.metadata.name: pod.status.phase.upper() for pod in executors}
    return {
        **app.status,
        "sparkApplicationId": application_id(app),
        "applicationState": {"state": state},
        "driverInfo": {"podName": f"{app.metadata.name}-driver"},
        "executorState": phases,
    }


def _wanted(app: SparkWorkload, role: str, number: int) -> WantedPod:
    pod = app.spec.driver if role == "driver" else app.spec.executor
    name = f"{app.metadata.name}-driver" if role == "driver" else f"{app.metadata.name}-exec-{number}"
    labels = {
        **pod.labels,
        "sparkoperator.k8s.io/app-name": app.metadata.name,
        "sparkoperator.k8s.io/launched-by-spark-operator": "true",
        names.SPARK_APP_NAME_LABEL: app.metadata.name,
        names.SPARK_APP_SELECTOR_LABEL: application_id(app),
        names.SPARK_ROLE_LABEL: role,
    }
    if number:
        labels["spark-exec-id"] = str(number)
    body = pod.template.get("spec") or {}
    containers = body.get("containers") or [{}]
    requests: JsonObject = {"cpu": str(pod.cores), "memory": f"{_memory_mib(pod, role)}Mi"}
    limits: JsonObject = {"memory": requests["memory"]}
    if pod.gpu is not None and pod.gpu.quantity:
        limits[pod.gpu.name] = requests[pod.gpu.name] = str(pod.gpu.quantity)
    main = {
        "image": app.spec.image,
        **containers[0],
        "name": f"spark-kubernetes-{role}",
        "resources": {"requests": requests, "limits": limits},
    }
    spec: JsonObject = {"restartPolicy": "Never", "containers": [main, *containers[1:]]}
    if pod.scheduler_name:
        spec["schedulerName"] = pod.scheduler_name
    return WantedPod(name, pod.template, labels, spec, pod.annotations)


def _memory_mib(pod: SparkPod, role: str) -> int:
    """The memory of the pod, in Spark's notation (`512m`, `4g`), with what the JVM needs besides."""
    found = _MEMORY.fullmatch(pod.memory.strip())
    if found is None:
        raise RefusedWorkload(f"{role}.memory: {pod.memory[:40]!r} is not a number with k, m, g or t, such as 4g")
    own = int(found[1]) * _MIB[found[2].lower()]
    return int(own + max(own / 10, _LEAST_OVERHEAD_MIB))


def spark_kind() -> OperatedKind[SparkWorkload]:
    """SparkApplications as their operator runs them."""
    return OperatedKind(SPARK_APPLICATIONS, SparkWorkload, plan_spark_application)
