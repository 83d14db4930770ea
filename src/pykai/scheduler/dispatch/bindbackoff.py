"""Pods that stay out of the cycles for a while after a failed bind.

Otherwise such a pod would be decided and refused again many times a second.  The pause doubles with every failure, of
this pod or of similar ones in its group (`failedbinds`), up to a minute.  A pod that a controller creates to replace a
pausing one inherits that pause, once its group has failed too often.
"""

from __future__ import annotations

import asyncio

from pykai.api.core import Pod
from pykai.kube.backoff import Backoff
from pykai.kube.clock import Clock
from pykai.scheduler.intake.intake import Intake

_BACKOFF = Backoff(1.0, 60.0)


class BindBackoff:
    """Holds pods back, and releases them in time."""

    def __init__(self, intake: Intake, clock: Clock) -> None:
        self._intake = intake
        self._clock = clock
        #: pod key -> the end of its pause
        self._pods: dict[str, asyncio.TimerHandle] = {}
        #: PodGroup key -> the end of the last pause of a pod of it
        self._groups: dict[str, asyncio.TimerHandle] = {}
        #: uid of a pod -> how often its bind failed
        self._failures: dict[str, int] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._pods

    def pods(self) -> list[str]:
        """Pods that pause."""
        return list(self._pods)

    def stop(self) -> None:
        """Hold no pod back any more."""
        for timer in (*self._pods.values(), *self._groups.values()):
            timer.cancel()
        self._pods.clear()
        self._groups.clear()

    def start(self, key: str, uid: str, group: str, group_failures: int = 0) -> None:
        """Hold a pod back whose bind failed, for the n-th time in its group."""
        pod_failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        backoff_s = _BACKOFF.delay_s(max(pod_failures, group_failures))
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._clock.wall_s(backoff_s)
        self._hold_until(key, until_s)
        if group:
            if group in self._groups:
                self._groups[group].cancel()
            self._groups[group] = loop.call_at(until_s, self._groups.pop, group, None)

    def inherit(self, key: str, group: str) -> None:
        """Hold a new pod of a group back as long as the last of its pauses lasts."""
        if group in self._groups:
            self._hold_until(key, self._groups[group].when())

    def _hold_until(self, key: str, until_s: float) -> None:
        self._intake.statuses.assume_gated(key)
        if key in self._pods:
            self._pods[key].cancel()
        self._pods[key] = asyncio.get_running_loop().call_at(until_s, self.end, key)

    def end(self, key: str) -> None:
        """Release a pod."""
        timer = self._pods.pop(key, None)
        if timer is not None:
            timer.cancel()
            self._intake.statuses.forget(key)

    def forget(self, pod: Pod) -> None:
        """Forget a deleted pod."""
        self._failures.pop(pod.metadata.uid, None)
