"""How a pod behaves: how long it starts and runs, and how it ends.

A pod declares this in annotations (`simulator.kai.scheduler/...`):

    start-seconds   until its containers run, as if an image were pulled
    run-seconds     how long they run: `30`, or `30..90` for a time drawn from that range
    exit-code       how they end
    stop-seconds    how long they take to stop when the pod is deleted, at most its grace period

Without `run-seconds` a pod that restarts its containers for ever (`restartPolicy: Always`) runs until it is deleted;
any other runs as long as its first container sleeps (`sleep 30`, `sleep infinity`), or for the default time. Random
times derive from the pod's uid: the same after a restart, different for each pod. An unreadable value counts as absent
and is reported.

Statements: faults:kubelet, sim:course.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from pykai.api import names
from pykai.api.sharing import reservation_name
from pykai.api.workloads import MachinePod


@dataclass(frozen=True, slots=True)
class BehaviourDefaults:
    """Defaults for pods that declare nothing, in cluster seconds."""

    start_s: float = 0.5
    run_s: float = 30.0
    stop_s: float = 1.0
    #: each init container takes this long
    init_s: float = 0.5
    #: short, because every pod that shares a GPU waits for its reservation pod
    reservation_start_s: float = 0.1
    #: fraction of pods that a kubelet refuses although they fit, as when a device plugin fails; 0 to 1
    refused: float = 0.0


@dataclass(frozen=True, slots=True)
class PodBehaviour:
    """How one pod behaves."""

    start_s: float
    #: None: until it is deleted
    run_s: float | None
    exit_code: int
    stop_s: float
    #: messages about unreadable annotations
    problems: tuple[str, ...] = ()


def behaviour_of(pod: MachinePod, defaults: BehaviourDefaults) -> PodBehaviour:
    """The behaviour of this pod."""
    start_s = defaults.reservation_start_s if is_reservation(pod) else defaults.start_s
    if _is_scaling_pod(pod):
        # Its program only ends.
        return PodBehaviour(start_s, 0.0, 0, defaults.stop_s)
    run_s = None if pod.spec.restart_policy == "Always" else _sleep_duration_s(pod, defaults.run_s)
    annotations = pod.metadata.annotations
    if declared_annotations(pod) == _NONE_DECLARED:
        return PodBehaviour(start_s, run_s, 0, defaults.stop_s)
    problems: list[str] = []
    run = _duration(pod, names.RUN_SECONDS_ANNOTATION, problems)
    start = _duration(pod, names.START_SECONDS_ANNOTATION, problems)
    stop = _duration(pod, names.STOP_SECONDS_ANNOTATION, problems)
    return PodBehaviour(
        start_s if start is None else start,
        run_s if run is None else run,
        _exit_code(annotations.get(names.EXIT_CODE_ANNOTATION), problems),
        defaults.stop_s if stop is None else stop,
        tuple(problems),
    )


def is_randomly_rejected(pod: MachinePod, defaults: BehaviourDefaults) -> bool:
    """Whether the kubelet refuses the pod at random; derived from its uid, so its replacement may pass."""
    return defaults.refused > 0 and _hash_fraction(pod.metadata.uid, "refused") < defaults.refused


def declared_annotations(pod: MachinePod) -> tuple[str | None, ...]:
    """The annotations that declare behaviour; a change means new behaviour."""
    annotations = pod.metadata.annotations
    return tuple([annotations.get(key) for key in _BEHAVIOUR_ANNOTATIONS])


def is_reservation(pod: MachinePod) -> bool:
    """Whether the pod holds a GPU for pods that share it, in whichever namespace an installation keeps them.

    Nothing is granted by it: the binder believes what a pod says of its GPU in its own namespace only.
    """
    meta = pod.metadata
    group = meta.labels.get(names.GPU_GROUP_LABEL, "")
    return bool(group and pod.spec.node_name) and meta.name == reservation_name(pod.spec.node_name, group)


def _is_scaling_pod(pod: MachinePod) -> bool:
    """Whether the pod asks for a node on behalf of another (gpu:SA-8)."""
    return pod.metadata.labels.get(names.APP_LABEL) == names.SCALING_POD_APP


_BEHAVIOUR_ANNOTATIONS = (
    names.RUN_SECONDS_ANNOTATION,
    names.START_SECONDS_ANNOTATION,
    names.STOP_SECONDS_ANNOTATION,
    names.EXIT_CODE_ANNOTATION,
)
_NONE_DECLARED = (None,) * len(_BEHAVIOUR_ANNOTATIONS)


def _duration(pod: MachinePod, key: str, problems: list[str]) -> float | None:
    text = pod.metadata.annotations.get(key)
    if text is None:
        return None
    low, dots, high = text.partition("..")
    try:
        first = float(low)
        last = float(high) if dots else first
    except ValueError:
        first = last = math.nan
    if not 0 <= first <= last < math.inf:
        problems.append(f"annotation {key}: {text!r} is neither a number of seconds nor a range like 30..90")
        return None
    return first + (last - first) * _hash_fraction(pod.metadata.uid, key) if dots else first


def _sleep_duration_s(pod: MachinePod, otherwise_s: float) -> float | None:
    """How long a container that only sleeps runs; None: forever."""
    for container in pod.spec.containers[:1]:
        words = [*container.command, *container.args]
        if len(words) == 2 and words[0].rpartition("/")[2] == "sleep":
            if words[1] in ("infinity", "inf"):
                return None
            if words[1].isascii() and words[1].isdigit():
                return float(words[1][:12])
    return otherwise_s


def _hash_fraction(uid: str, key: str) -> float:
    digest = hashlib.blake2b(f"{uid}/{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _exit_code(text: str | None, problems: list[str]) -> int:
    if text is None:
        return 0
    if text.isascii() and text.isdigit() and int(text[:4]) <= 255:
        return int(text[:4])
    problems.append(f"annotation {names.EXIT_CODE_ANNOTATION}: {text!r} is not a number from 0 to 255")
    return 0
