"""The life of a pod on its machine, as a function of time.

    ADMITTED --> INITIALISING --> RUNNING <--> BACKING_OFF
        |              |             |              |
        +--------------+------+------+--------------+
                              v
                            ENDED

`next_step` takes the state of a pod, its object and the facts of its machine, and returns what to write, the next
state, and when to check again. It neither waits nor writes, so every transition can be tested in isolation. The caller
keeps the new `LifecycleState` only once the write succeeded.

After a restart `restored_state` reads the state from the object. Timestamps on the wire have whole seconds, so such a
pod may end up to a second early; otherwise nothing is lost.

Times are seconds of cluster time since 1970.

Statements: sim:life.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from pykai.api.workloads import MachinePod
from pykai.kube.backoff import Backoff
from pykai.lab.machines import statuses
from pykai.lab.machines.machine import Rejection
from pykai.lab.machines.podbehaviour import PodBehaviour
from pykai.lab.timestamps import to_seconds, to_timestamp

#: A start that takes longer is shown as ContainerCreating; a shorter one is not worth a write.
MIN_REPORTED_START_S = 2.0
BACKOFF = Backoff(10.0, 300.0)
#: Default grace period.
DEFAULT_GRACE_S = 30.0


class Stage(Enum):
    ADMITTED = "admitted"
    INITIALISING = "initialising"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class LifecycleState:
    """The state of a pod on its machine."""

    stage: Stage
    #: when this stage began
    since_s: float
    #: when the machine admitted the pod
    started_s: float
    restarts: int = 0
    #: the waiting reason written last
    reported_waiting: str = ""
    #: when its deletion was first seen
    stopping_s: float | None = None


@dataclass(frozen=True, slots=True)
class ContainerWaiting:
    """Why the containers of a pod cannot start."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What the machine knows about a pod beyond its object."""

    behaviour: PodBehaviour
    init_s: float = 0.5
    host: str = ""
    address: str = ""
    rejection: Rejection | None = None
    waiting: ContainerWaiting | None = None


@dataclass(frozen=True, slots=True)
class LifecycleStep:
    """What to do now, and when to check again."""

    state: LifecycleState
    status: statuses.PodStatusPatch | None = None
    #: the object can be removed: it was deleted and its containers have stopped
    remove: bool = False
    #: seconds until the next check; None: on the next event
    wake_s: float | None = None


def restored_state(pod: MachinePod, now_s: float) -> LifecycleState:
    """The state of a pod that was on its machine before this process started."""
    started_s = to_seconds(pod.status.start_time) or now_s
    if pod.status.phase in ("Succeeded", "Failed"):
        return LifecycleState(Stage.ENDED, now_s, started_s)
    first = pod.status.container_statuses[0] if pod.status.container_statuses else None
    if first is None or pod.status.phase != "Running":
        return LifecycleState(Stage.ADMITTED, now_s, started_s)
    if first.state.waiting is not None:
        return LifecycleState(Stage.BACKING_OFF, now_s, started_s, first.restart_count)
    since = first.state.running.started_at if first.state.running is not None else None
    return LifecycleState(Stage.RUNNING, to_seconds(since) or started_s, started_s, first.restart_count)


def next_step(state: LifecycleState, pod: MachinePod, now_s: float, facts: MachineFacts) -> LifecycleStep:
    """What happens to a pod now."""
    deleting = pod.metadata.deletion_timestamp is not None
    if state.stage is Stage.ENDED:
        return LifecycleStep(state, remove=deleting)
    if pod.status.phase in ("Succeeded", "Failed"):
        # Another client ended it.
        return LifecycleStep(replace(state, stage=Stage.ENDED, since_s=now_s), remove=deleting)
    if deleting:
        return _stop_pod(state, pod, now_s, facts)
    if facts.rejection is not None:
        status = statuses.rejected_status(facts.rejection.reason, facts.rejection.message, to_timestamp(now_s))
        return LifecycleStep(replace(state, stage=Stage.ENDED, since_s=now_s), status)
    deadline_s = pod.spec.active_deadline_seconds
    if deadline_s is not None and now_s >= state.started_s + deadline_s:
        message = "Pod was active on the node longer than the specified deadline"
        return _end_pod(state, pod, now_s, statuses.STOPPED_EXIT_CODE, "DeadlineExceeded", message)
    transition = _STAGES[state.stage](state, pod, now_s, facts)
    if deadline_s is not None and transition.state.stage is not Stage.ENDED:
        left_s = state.started_s + deadline_s - now_s
        transition = replace(transition, wake_s=left_s if transition.wake_s is None else min(left_s, transition.wake_s))
    return transition


def _starting(life: LifecycleState, pod: MachinePod, now_s: float, facts: MachineFacts) -> LifecycleStep:
    due_s = life.since_s + facts.behaviour.start_s
    reason, message = ("ContainerCreating", "")
    if facts.waiting is not None:
        reason, message = facts.waiting.reason, facts.waiting.message
    is_blocked = facts.waiting is not None and now_s >= due_s
    if is_blocked or (now_s < due_s and facts.behaviour.start_s >= MIN_REPORTED_START_S):
        wake_s = None if is_blocked else due_s - now_s
        waiting_text = f"{reason}: {message}"
        if waiting_text == life.reported_waiting:
            return LifecycleStep(life, wake_s=wake_s)
        status = statuses.waiting_status(
            pod, reason, message, to_timestamp(now_s), to_timestamp(life.started_s), facts.host
        )
        return LifecycleStep(replace(life, reported_waiting=waiting_text), status, wake_s=wake_s)
    if now_s < due_s:
        return LifecycleStep(life, wake_s=due_s - now_s)
    if any(container.restart_policy != "Always" for container in pod.spec.init_containers):
        status = statuses.initialising_status(pod, to_timestamp(now_s), to_timestamp(life.started_s), facts.host)
        after = replace(life, stage=Stage.INITIALISING, since_s=now_s)
        return LifecycleStep(after, status, wake_s=_init_s(pod, facts))
    return _start_running(life, pod, now_s, facts)


def _initialising(life: LifecycleState, pod: MachinePod, now_s: float, facts: MachineFacts) -> LifecycleStep:
    due_s = life.since_s + _init_s(pod, facts)
    return LifecycleStep(life, wake_s=due_s - now_s) if now_s < due_s else _start_running(life, pod, now_s, facts)


def _start_running(
    life: LifecycleState, pod: MachinePod, now_s: float, facts: MachineFacts, last_exit: int | None = None
) -> LifecycleStep:
    after = replace(life, stage=Stage.RUNNING, since_s=now_s, reported_waiting="")
    status = statuses.running_status(
        pod, to_timestamp(now_s), to_timestamp(life.started_s), facts.host, facts.address, life.restarts, last_exit
    )
    return LifecycleStep(after, status, wake_s=facts.behaviour.run_s)


def _running(life: LifecycleState, pod: MachinePod, now_s: float, facts: MachineFacts) -> LifecycleStep:
    if facts.behaviour.run_s is None:
        return LifecycleStep(life)
    due_s = life.since_s + facts.behaviour.run_s
    if now_s < due_s:
        return LifecycleStep(life, wake_s=due_s - now_s)
    policy, exit_code = pod.spec.restart_policy, facts.behaviour.exit_code
    if policy == "Never" or (policy == "OnFailure" and exit_code == 0):
        return _end_pod(life, pod, now_s, exit_code)
    after = replace(life, stage=Stage.BACKING_OFF, since_s=now_s, restarts=life.restarts + 1)
    delay_s = back_off_s(after.restarts)
    if delay_s == 0:
        return _start_running(after, pod, now_s, facts, exit_code)
    status = statuses.back_off_status(
        pod, to_timestamp(now_s), to_timestamp(life.since_s), life.restarts, exit_code, delay_s
    )
    return LifecycleStep(after, status, wake_s=delay_s)


def _backing_off(life: LifecycleState, pod: MachinePod, now_s: float, facts: MachineFacts) -> LifecycleStep:
    due_s = life.since_s + back_off_s(life.restarts)
    if now_s < due_s:
        return LifecycleStep(life, wake_s=due_s - now_s)
    return _start_running(life, pod, now_s, facts, facts.behaviour.exit_code)


def back_off_s(restarts: int) -> float:
    """Back-off before the n-th restart of a container: none at first, then growing."""
    return BACKOFF.delay_s(restarts - 1)


def _stop_pod(life: LifecycleState, pod: MachinePod, now_s: float, facts: MachineFacts) -> LifecycleStep:
    stopping_s = now_s if life.stopping_s is None else life.stopping_s
    after = replace(life, stopping_s=stopping_s)
    if life.stage is Stage.ADMITTED:
        # No container ever ran, so there is nothing to stop. But watchers must see an end as long as a finalizer holds
        # the object.
        status = statuses.never_started_status(pod, to_timestamp(now_s))
        return LifecycleStep(replace(after, stage=Stage.ENDED, since_s=now_s), status, remove=True)
    grace = pod.metadata.deletion_grace_period_seconds
    due_s = stopping_s + min(facts.behaviour.stop_s, DEFAULT_GRACE_S if grace is None else grace)
    if now_s < due_s:
        return LifecycleStep(after, wake_s=due_s - now_s)
    return replace(_end_pod(after, pod, now_s, statuses.STOPPED_EXIT_CODE), remove=True)


def _end_pod(
    life: LifecycleState, pod: MachinePod, now_s: float, exit_code: int, reason: str = "", message: str = ""
) -> LifecycleStep:
    status = statuses.ended_status(
        pod, to_timestamp(now_s), to_timestamp(life.since_s), life.restarts, exit_code, reason, message
    )
    return LifecycleStep(replace(life, stage=Stage.ENDED, since_s=now_s), status)


def _init_s(pod: MachinePod, facts: MachineFacts) -> float:
    return facts.init_s * sum(container.restart_policy != "Always" for container in pod.spec.init_containers)


_STAGES = {
    Stage.ADMITTED: _starting,
    Stage.INITIALISING: _initialising,
    Stage.RUNNING: _running,
    Stage.BACKING_OFF: _backing_off,
}
