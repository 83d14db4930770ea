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
from pykai.kube.store import Store
from pykai.scheduler.dispatch.failedbinds import MAX_BIND_FAILURES, FailedBinds
from pykai.scheduler.dispatch.gangplans import group_key
from pykai.scheduler.intake.bindassumptions import BindAssumptions
from pykai.scheduler.intake.statusassumptions import StatusAssumptions

_BACKOFF = Backoff(1.0, 60.0)


class BindBackoff:
    """Holds pods back, and releases them in time."""

    def __init__(
        self,
        pods: Store[Pod],
        binds: BindAssumptions,
        statuses: StatusAssumptions,
        failed_binds: FailedBinds,
        clock: Clock,
    ) -> None:
        self._store = pods
        self._binds = binds
        self._statuses = statuses
        self._failed_binds = failed_binds
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

    def start(self, key: str, uid: str) -> None:
        """Hold a pod back whose bind failed, unless it has another place by now, or is deleted."""
        pod = self._store.get(key)
        if self._binds.is_assumed(key) or pod is None or pod.metadata.uid != uid:
            return
        group = group_key(pod)
        pod_failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        backoff_s = _BACKOFF.delay_s(max(pod_failures, self._failed_binds.failure_count(group)))
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._clock.wall_s(backoff_s)
        self._hold_until(key, until_s)
        if group:
            if group in self._groups:
                self._groups[group].cancel()
            self._groups[group] = loop.call_at(until_s, self._groups.pop, group, None)

    def inherit(self, key: str, pod: Pod) -> None:
        """Hold a new pod back as long as the last pause of its group lasts, if binds of the group keep failing."""
        group = group_key(pod)
        if group in self._groups and self._failed_binds.failure_count(group) >= MAX_BIND_FAILURES:
            self._hold_until(key, self._groups[group].when())

    def _hold_until(self, key: str, until_s: float) -> None:
        self._statuses.assume_gated(key)
        if key in self._pods:
            self._pods[key].cancel()
        self._pods[key] = asyncio.get_running_loop().call_at(until_s, self.end, key)

    def end(self, key: str) -> None:
        """Release a pod."""
        timer = self._pods.pop(key, None)
        if timer is not None:
            timer.cancel()
            self._statuses.release_gated(key)

    def forget(self, pod: Pod) -> None:
        """Forget a deleted pod."""
        self._failures.pop(pod.metadata.uid, None)
