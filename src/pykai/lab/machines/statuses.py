"""Pod statuses as a kubelet writes them, as strategic merge patches.

Each function gives the `status` of one moment in the life of a pod.  Lists of container statuses are replaced as a
whole; conditions merge by their type, so `PodScheduled`, which belongs to schedulers, is never touched.
"""

from __future__ import annotations

from typing import Any

from pykai.api.workloads import MachineContainer, MachinePod

Status = dict[str, Any]

#: The state of a container whose turn has not come.
_LATER: Status = {"waiting": {"reason": "PodInitializing"}}
#: How a container ends that is told to stop: SIGTERM.
STOPPED_EXIT_CODE = 143
#: How one ends of which nobody knows: SIGKILL.
KILLED_EXIT_CODE = 137


def condition(kind: str, holds: bool, at: str, reason: str = "", message: str = "") -> Status:
    """One condition of a pod."""
    made: Status = {"type": kind, "status": "True" if holds else "False", "lastTransitionTime": at}
    # A merge keeps what is not named: an old reason has to be taken away.
    made["reason"] = reason or None
    made["message"] = message or None
    return made


def rejected(reason: str, message: str, at: str) -> Status:
    """The machine had no room."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": at}


def waiting(pod: MachinePod, reason: str, message: str, at: str, started: str, host: str) -> Status:
    """Admitted, and its containers cannot start yet."""
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    unready = _unready(pod)
    return {
        "phase": "Pending",
        "startTime": started,
        **_hosted(host),
        "conditions": [
            condition("PodReadyToStartContainers", False, at),
            condition("Initialized", not pod.spec.init_containers, at),
            condition("Ready", False, at, "ContainersNotReady", unready),
            condition("ContainersReady", False, at, "ContainersNotReady", unready),
        ],
        "initContainerStatuses": [
            _still(c, {"waiting": {"reason": "PodInitializing"}}) for c in pod.spec.init_containers
        ]
        or None,
        "containerStatuses": [_still(container, state) for container in pod.spec.containers],
    }


def initialising(pod: MachinePod, at: str, started: str, host: str) -> Status:
    """Init containers run."""
    unready = _unready(pod)
    return {
        "phase": "Pending",
        "startTime": started,
        **_hosted(host),
        "conditions": [
            condition("PodReadyToStartContainers", True, at),
            condition("Initialized", False, at, "ContainersNotInitialized", "init containers are running"),
            condition("Ready", False, at, "ContainersNotReady", unready),
            condition("ContainersReady", False, at, "ContainersNotReady", unready),
        ],
        "initContainerStatuses": [_running(pod, c, at, 0, ready=False) for c in pod.spec.init_containers],
        "containerStatuses": [_still(container, _LATER) for container in pod.spec.containers],
    }


def running(
    pod: MachinePod, at: str, started: str, host: str, address: str, restarts: int = 0, last_exit: int | None = None
) -> Status:
    """All containers run; `last_exit` is how they ended before they were restarted."""
    last = None if last_exit is None else _terminated(last_exit, at, at)
    status: Status = {
        "phase": "Running",
        "startTime": started,
        **_hosted(host),
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            condition("PodReadyToStartContainers", True, at),
            condition("Initialized", True, at),
            condition("Ready", True, at),
            condition("ContainersReady", True, at),
        ],
        "containerStatuses": [_running(pod, container, at, restarts, last) for container in pod.spec.containers],
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [
            _running(pod, container, at, 0)
            if container.restart_policy == "Always"
            else _ended(pod, container, 0, started, at, 0)
            for container in pod.spec.init_containers
        ]
    return status


def backing_off(pod: MachinePod, at: str, since: str, restarts: int, exit_code: int, delay_s: float) -> Status:
    """The containers ended and will be started again after a while."""
    unready = _unready(pod)
    statuses = []
    for container in pod.spec.containers:
        message = f"back-off {delay_s:.0f}s restarting failed container={container.name} pod={pod.metadata.name}"
        entry = _still(container, {"waiting": {"reason": "CrashLoopBackOff", "message": message}})
        entry["restartCount"] = restarts
        entry["lastState"] = _terminated(exit_code, since, at)
        statuses.append(entry)
    return {
        "phase": "Running",
        "conditions": [
            condition("Ready", False, at, "ContainersNotReady", unready),
            condition("ContainersReady", False, at, "ContainersNotReady", unready),
        ],
        "containerStatuses": statuses,
    }


def ended(
    pod: MachinePod, at: str, since: str, restarts: int, exit_code: int, reason: str = "", message: str = ""
) -> Status:
    """The containers stopped for good."""
    well = exit_code == 0
    why = "PodCompleted" if well else "PodFailed"
    status: Status = {
        "phase": "Succeeded" if well else "Failed",
        "conditions": [
            condition("PodReadyToStartContainers", False, at),
            condition("Initialized", True, at, "PodCompleted" if well else ""),
            condition("Ready", False, at, why),
            condition("ContainersReady", False, at, why),
        ],
        "containerStatuses": [_ended(pod, c, exit_code, since, at, restarts) for c in pod.spec.containers],
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [_ended(pod, c, 0, since, at, 0) for c in pod.spec.init_containers]
    if reason:
        status["reason"], status["message"] = reason, message
    return status


def never_ran(pod: MachinePod, at: str) -> Status:
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
            condition("Ready", False, at, "PodFailed"),
            condition("ContainersReady", False, at, "PodFailed"),
        ],
        "containerStatuses": [_still(container, {"terminated": unknown}) for container in pod.spec.containers],
    }


def _hosted(host: str) -> Status:
    return {"hostIP": host, "hostIPs": [{"ip": host}]} if host else {}


def _unready(pod: MachinePod) -> str:
    return f"containers with unready status: [{' '.join(container.name for container in pod.spec.containers)}]"


def _still(container: MachineContainer, state: Status) -> Status:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": state,
    }


def _running(
    pod: MachinePod, container: MachineContainer, at: str, restarts: int, last: Status | None = None, ready: bool = True
) -> Status:
    made: Status = {
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
        made["lastState"] = last
    return made


def _ended(pod: MachinePod, container: MachineContainer, exit_code: int, since: str, at: str, restarts: int) -> Status:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": f"simulated://{container.image}",
        "containerID": f"simulated://{pod.metadata.uid}-{container.name}-{restarts}",
        "ready": exit_code == 0 and container.name not in {c.name for c in pod.spec.containers},
        "started": False,
        "restartCount": restarts,
        "state": _terminated(exit_code, since, at),
    }


def _terminated(exit_code: int, since: str, at: str) -> Status:
    reason = "Completed" if exit_code == 0 else "Error"
    return {"terminated": {"exitCode": exit_code, "reason": reason, "startedAt": since, "finishedAt": at}}
