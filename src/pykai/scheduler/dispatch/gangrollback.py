"""Undoes gangs that cannot be completed: the pods that were bound are evicted, with an event on the PodGroup."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.scheduling import PodGroup
from pykai.api.timestamp import format_timestamp
from pykai.kube.clock import Clock
from pykai.scheduler.dispatch.deletions import Deletions
from pykai.scheduler.dispatch.gangplans import GangPlan, is_bound_and_active
from pykai.scheduler.intake.statusassumptions import StatusAssumptions
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.status.statusevents import WARNING, StatusEvents, now_ns

log = logging.getLogger(__name__)


class GangRollback:
    """Evicts the bound part of a gang."""

    def __init__(
        self,
        pods_of_group: Callable[[str], Collection[Pod]],
        statuses: StatusAssumptions,
        status_events: StatusEvents,
        deletions: Deletions,
        metrics: SchedulerMetrics,
        clock: Clock,
    ) -> None:
        self._pods_of_group = pods_of_group
        self._statuses = statuses
        self._status_events = status_events
        self._deletions = deletions
        self._metrics = metrics
        self._clock = clock

    async def evict_bound_pods(self, plan: GangPlan, group: PodGroup) -> None:
        """Evict the bound pods of a gang that lost pods on the way."""
        bound = [pod for pod in self._pods_of_group(plan.key) if is_bound_and_active(pod)]
        if not bound or group.metadata.deletion_timestamp is not None:
            return
        name, why = min(plan.failed.items())
        text = (
            f"The gang cannot be completed: pod {plan.namespace}/{name} was not bound ({why}). "
            f"The {len(bound)} pods that were bound are evicted"
        )
        log.warning("gang %s: %s", plan.key, text)
        self._status_events.group_event(plan.key, WARNING, names.EVENT_GANG_BROKEN, text)
        self._metrics.count_broken_gang()
        timestamp = format_timestamp(now_ns(self._clock))
        self._status_events.annotate_group(plan.key, {names.LAST_EVICTION_TIMESTAMP_ANNOTATION: timestamp})
        victims = [(object_key(pod.metadata.namespace, pod.metadata.name), pod.metadata.uid) for pod in bound]
        for key, uid in victims:
            self._statuses.assume_eviction(key, uid)
        await asyncio.gather(*(self._deletions.delete_pod(key, uid, text) for key, uid in victims))
