"""Pod statuses as a kubelet writes them, as strategic merge patches.

Each function returns the `status` for one transition of a pod. Lists of container statuses are replaced as a whole;
conditions merge by their type, so `PodScheduled`, which belongs to schedulers, is never touched.
"""

from __future__ import annotations

from typing import Any

from pykai.api.workloads import MachineContainer, MachinePod

PodStatusPatch = dict[str, Any]

#: The state of a container that waits for init containers.
_PENDING_STATE: PodStatusPatch = {"waiting": {"reason": "PodInitializing"}}
#: Exit code of a container that was stopped: SIGTERM.
STOPPED_EXIT_CODE = 143
#: Exit code of a container whose end was not seen: SIGKILL.
KILLED_EXIT_CODE = 137


def pod_condition(kind: str, holds: bool, at: str, reason: str = "", message: str = "") -> PodStatusPatch:
    """One condition of a pod."""
    entry: PodStatusPatch = {"type": kind, "status": "True" if holds else "False", "lastTransitionTime": at}
    # A merge keeps absent fields, so an old reason must be removed.
    entry["reason"] = reason or None
    entry["message"] = message or None
    return entry


def rejected_status(reason: str, message: str, at: str) -> PodStatusPatch:
    """The machine refused the pod."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": at}


def waiting_status(pod: MachinePod, reason: str, message: str, at: str, started: str, host: str) -> PodStatusPatch:
    """The pod is admitted, and its containers cannot start yet."""
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    unready = _unready_message(pod)
    return {
        "phase": "Pending",
        "startTime": started,
        **_host_fields(host),
        "conditions": [
            pod_condition("PodReadyToStartContainers", False, at),
            pod_condition("Initialized", not pod.spec.init_containers, at),
            pod_condition("Ready", False, at, "ContainersNotReady", unready),
            pod_condition("ContainersReady", False, at, "ContainersNotReady", unready),
        ],
        "initContainerStatuses": [
            _not_running_container(c, {"waiting": {"reason": "PodInitializing"}}) for c in pod.spec.init_containers
        ]
        or None,
        "containerStatuses": [_not_running_container(container, state) for container in pod.spec.containers],
    }


def initialising_status(pod: MachinePod, at: str, started: str, host: str) -> PodStatusPatch:
    """Init containers run."""
    unready = _unready_message(pod)
    return {
        "phase": "Pending",
        "startTime": started,
        **_host_fields(host),
        "conditions": [
            pod_condition("PodReadyToStartContainers", True, at),
            pod_condition("Initialized", False, at, "ContainersNotInitialized", "init containers are running"),
            pod_condition("Ready", False, at, "ContainersNotReady", unready),
            pod_condition("ContainersReady", False, at, "ContainersNotReady", unready),
        ],
        "initContainerStatuses": [_running_container(pod, c, at, 0, ready=False) for c in pod.spec.init_containers],
        "containerStatuses": [_not_running_container(container, _PENDING_STATE) for container in pod.spec.containers],
    }


def running_status(
    pod: MachinePod, at: str, started: str, host: str, address: str, restarts: int = 0, last_exit: int | None = None
) -> PodStatusPatch:
    """All containers run; `last_exit` is how they ended before they were restarted."""
    last = None if last_exit is None else _terminated_state(last_exit, at, at)
    status: PodStatusPatch = {
        "phase": "Running",
        "startTime": started,
        **_host_fields(host),
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            pod_condition("PodReadyToStartContainers", True, at),
            pod_condition("Initialized", True, at),
            pod_condition("Ready", True, at),
            pod_condition("ContainersReady", True, at),
        ],
        "containerStatuses": [
            _running_container(pod, container, at, restarts, last) for container in pod.spec.containers
        ],
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [
            _running_container(pod, container, at, 0)
            if container.restart_policy == "Always"
            else _ended_container(pod, container, 0, started, at, 0)
            for container in pod.spec.init_containers
        ]
    return status


def back_off_status(
    pod: MachinePod, at: str, since: str, restarts: int, exit_code: int, delay_s: float
) -> PodStatusPatch:
    """The containers ended and restart after a back-off."""
    unready = _unready_message(pod)
    statuses = []
    for container in pod.spec.containers:
        message = f"back-off {delay_s:.0f}s restarting failed container={container.name} pod={pod.metadata.name}"
        entry = _not_running_container(container, {"waiting": {"reason": "CrashLoopBackOff", "message": message}})
        entry["restartCount"] = restarts
        entry["lastState"] = _terminated_state(exit_code, since, at)
        statuses.append(entry)
    return {
        "phase": "Running",
        "conditions": [
            pod_condition("Ready", False, at, "ContainersNotReady", unready),
            pod_condition("ContainersReady", False, at, "ContainersNotReady", unready),
        ],
        "containerStatuses": statuses,
    }


def ended_status(
    pod: MachinePod, at: str, since: str, restarts: int, exit_code: int, reason: str = "", message: str = ""
) -> PodStatusPatch:
    """The containers stopped for good."""
    well = exit_code == 0
    why = "PodCompleted" if well else "PodFailed"
    status: PodStatusPatch = {
        "phase": "Succeeded" if well else "Failed",
        "conditions": [
            pod_condition("PodReadyToStartContainers", False, at),
            pod_condition("Initialized", True, at, "PodCompleted" if well else ""),
            pod_condition("Ready", False, at, why),
            pod_condition("ContainersReady", False, at, why),
        ],
        "containerStatuses": [_ended_container(pod, c, exit_code, since, at, restarts) for c in pod.spec.containers],
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [_ended_container(pod, c, 0, since, at, 0) for c in pod.spec.init_containers]
    if reason:
        status["reason"], status["message"] = reason, message
    return status


def never_started_status(pod: MachinePod, at: str) -> PodStatusPatch:
    """The pod was deleted before its containers had started; a kubelet calls them killed."""
    unknown = {
        "exitCode": KILLED_EXIT_CODE,
        "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was deleted",
        "startedAt": None,
        "finishedAt": None,
    }
    return {
        "phase": "Failed",
        "conditions": [
            pod_condition("Ready", False, at, "PodFailed"),
            pod_condition("ContainersReady", False, at, "PodFailed"),
        ],
        "containerStatuses": [
            _not_running_container(container, {"terminated": unknown}) for container in pod.spec.containers
        ],
    }


def _host_fields(host: str) -> PodStatusPatch:
    return {"hostIP": host, "hostIPs": [{"ip": host}]} if host else {}


def _unready_message(pod: MachinePod) -> str:
    return f"containers with unready status: [{' '.join(container.name for container in pod.spec.containers)}]"


def _not_running_container(container: MachineContainer, state: PodStatusPatch) -> PodStatusPatch:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": state,
    }


def _running_container(
    pod: MachinePod,
    container: MachineContainer,
    at: str,
    restarts: int,
    last: PodStatusPatch | None = None,
    ready: bool = True,
) -> PodStatusPatch:
    container_status: PodStatusPatch = {
        "name": container.name,
        "image": container.image,
        "imageID": f"simulated://{container.image}",
        "containerID": f"simulated://{pod.metadata.uid}-{container.name}-{restarts}",
        "ready": ready,
        "started": True,
        "restartCount": restarts,
        "state": {"running": {"startedAt": at}},
    }
    if last is not None:
        container_status["lastState"] = last
    return container_status


def _ended_container(
    pod: MachinePod, container: MachineContainer, exit_code: int, since: str, at: str, restarts: int
) -> PodStatusPatch:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": f"simulated://{container.image}",
        "containerID": f"simulated://{pod.metadata.uid}-{container.name}-{restarts}",
        "ready": exit_code == 0 and container.name not in {c.name for c in pod.spec.containers},
        "started": False,
        "restartCount": restarts,
        "state": _terminated_state(exit_code, since, at),
    }


def _terminated_state(exit_code: int, since: str, at: str) -> PodStatusPatch:
    reason = "Completed" if exit_code == 0 else "Error"
    return {"terminated": {"exitCode": exit_code, "reason": reason, "startedAt": since, "finishedAt": at}}
