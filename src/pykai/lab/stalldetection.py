"""Detects a story that can make no more progress.

`kai up --until-done` ends when every Job of its story has ended. A Job that requests more than the cluster has never
ends, so after every scheduling cycle `StallDetector` checks whether anything can still change:

- every unfinished Job waits as a whole: the last plan refused the PodGroups of its pods, and not for missing pods,
  which the Job's controller may still create;
- no pod runs that will end by itself, starts, or is being deleted;
- the plan moves nothing, has seen every change, and depends on no time.

Then nothing will ever happen: `reached` is set, and `sentences` name each Job and why it waits.

Subtle: pods that are never created or grouped (a webhook refuses them, their owner is unusual) never appear in a plan.
For them a time-out holds: ten minutes of cluster time without a change of any pod or Job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key, split_key
from pykai.core.report.decisions import NotReady, Plan, Unscheduled
from pykai.core.report.sentences import group_text
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change
from pykai.lab.player import Player
from pykai.scheduler.service import Scheduler

#: cluster seconds without a change that count as a stall; Jobs pause for at most six minutes between two pods
QUIET_PERIOD_S: Final = 600.0
_ENDED: Final = ("Succeeded", "Failed")
#: whose pods run until they are deleted
_LONG_RUNNING_OWNERS: Final = ("ReplicaSet", "StatefulSet", "DaemonSet")


class StallDetector:
    """Checks after every cycle; see the module."""

    def __init__(self, runtime: Runtime, scheduler: Scheduler, player: Player, *, nodes_may_come: bool = False) -> None:
        """With `nodes_may_come` an autoscaler may help any pod, so only the time-out holds."""
        self.stalled = asyncio.Event()
        #: a sentence for each Job that will not end
        self.reasons: list[str] = []
        self._clock = runtime.clock
        self._scheduler = scheduler
        self._player = player
        self._nodes_may_come = nodes_may_come
        self._last_change_s = 0.0
        scheduler.intake.pods.subscribe(self._on_change)
        player.jobs.subscribe(self._on_change)
        scheduler.loop.plan_listeners.append(self._on_plan)

    def _on_change(self, _: Change[Any]) -> None:
        self._last_change_s = self._clock.elapsed_s()

    def _on_plan(self, plan: Plan) -> None:
        if self.stalled.is_set() or not self._player.all_submitted:
            return
        open_jobs = self._player.unfinished_jobs()
        if not open_jobs:
            return
        refused = {object_key(each.namespace, each.group): each for each in plan.unscheduled}
        reasons = self._permanent_reasons(plan, open_jobs, refused) or self._quiet_reasons(open_jobs, refused)
        if reasons:
            self.reasons = reasons
            self.stalled.set()

    def _permanent_reasons(self, plan: Plan, open_jobs: list[str], refused: dict[str, Unscheduled]) -> list[str]:
        """Why each Job waits, if nothing can change any more; else empty."""
        scheduler = self._scheduler
        if self._nodes_may_come:
            return []
        if plan.binds or plan.evictions or plan.nominations or plan.stale or not scheduler.loop.plan_holds_until_change:
            return []
        if scheduler.dispatcher.has_binds_in_flight or scheduler.dispatcher.unsettled_gangs:
            return []
        if any(_may_change(pod) for pod in scheduler.intake.pods.values()):
            return []
        complete = {
            key: each for key, each in refused.items() if not any(isinstance(why, NotReady) for why in each.refusals)
        }
        why = [self._waiting_reason(job, complete) for job in open_jobs]
        return why if all(why) else []

    def _quiet_reasons(self, open_jobs: list[str], refused: dict[str, Unscheduled]) -> list[str]:
        """The same, if nothing has changed for a long time and no running pod will end."""
        pods = self._scheduler.intake.pods.values()
        if self._clock.elapsed_s() - self._last_change_s < QUIET_PERIOD_S or any(_will_end(pod) for pod in pods):
            return []
        quiet = f"nothing has changed for {QUIET_PERIOD_S:g} seconds of the cluster's time"
        return [self._waiting_reason(job, refused) or f"job {job}: {quiet}" for job in open_jobs]

    def _waiting_reason(self, job: str, refused: dict[str, Unscheduled]) -> str:
        """Why a Job waits; empty if it has no pods, or one that does not wait for the scheduler."""
        groups = {_group(pod) for pod in self._pods_of(job)}
        if not groups or not groups <= refused.keys():
            return ""
        texts = (" ".join(group_text(refused[key]).split()) for key in sorted(groups))
        return f"job {job} waits: {'; '.join(texts)}"

    def _pods_of(self, job: str) -> Iterator[Pod]:
        namespace, name = split_key(job)
        for pod in self._scheduler.intake.pods.values():
            if pod.metadata.namespace == namespace and pod.status.phase not in _ENDED:
                if any(owner.kind == "Job" and owner.name == name for owner in pod.metadata.owner_references):
                    yield pod


def _group(pod: Pod) -> str:
    return object_key(pod.metadata.namespace, pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION, ""))


def _may_change(pod: Pod) -> bool:
    """Whether this pod may change by itself."""
    if pod.status.phase in _ENDED:
        return False
    if pod.metadata.deletion_timestamp is not None:
        return True
    if pod.metadata.namespace == names.RESERVATION_NAMESPACE:
        return False
    if not pod.spec.node_name:
        return pod.spec.scheduler_name == names.SCHEDULER_NAME and not pod.metadata.annotations.get(
            names.POD_GROUP_ANNOTATION
        )
    return pod.status.phase != "Running" or not _is_long_running(pod)


def _will_end(pod: Pod) -> bool:
    """Whether this pod runs for a Job, which is how pods end."""
    return pod.status.phase == "Running" and any(owner.kind == "Job" for owner in pod.metadata.owner_references)


def _is_long_running(pod: Pod) -> bool:
    return any(owner.kind in _LONG_RUNNING_OWNERS for owner in pod.metadata.owner_references)
