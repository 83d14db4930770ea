"""Evictions: a bound pod is deleted, by uid; for a pod that is not bound yet, its BindRequest is deleted instead."""

from __future__ import annotations

import asyncio
import logging

from pykai.api.core import Pod
from pykai.api.keys import object_key, split_key
from pykai.api.scheduling import BindRequest, PodGroup
from pykai.core.report.decisions import Evict
from pykai.kube import resources
from pykai.kube.store import Store
from pykai.scheduler.dispatch.deletions import Deletions
from pykai.scheduler.dispatch.gangbinding import GangBinding
from pykai.scheduler.dispatch.podbinding import PodBinding
from pykai.scheduler.intake.bindassumptions import BindAssumptions
from pykai.scheduler.intake.statusassumptions import StatusAssumptions
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.status.statusevents import StatusEvents

log = logging.getLogger(__name__)


class Evictions:
    """Evicts pods."""

    def __init__(
        self,
        pods: Store[Pod],
        groups: Store[PodGroup],
        requests: Store[BindRequest],
        binds: BindAssumptions,
        statuses: StatusAssumptions,
        status_events: StatusEvents,
        metrics: SchedulerMetrics,
        deletions: Deletions,
        pod_binding: PodBinding,
        gang_binding: GangBinding,
    ) -> None:
        self._pods = pods
        self._groups = groups
        self._requests = requests
        self._binds = binds
        self._statuses = statuses
        self._status_events = status_events
        self._metrics = metrics
        self._deletions = deletions
        self._pod_binding = pod_binding
        self._gang_binding = gang_binding

    async def evict(self, eviction: Evict) -> None:
        """Evict a pod (cycle:16.2, OUT-4)."""
        key = object_key(eviction.namespace, eviction.pod)
        write = self._pod_binding.write_of(key)
        if write is not None:
            await asyncio.wait([write])
        pod = self._pods.get(key)
        if pod is None or pod.metadata.uid != eviction.uid or pod.status.phase in ("Succeeded", "Failed"):
            log.info("received an eviction attempt for a terminated task: %s", key)
            self._statuses.give_up_eviction(key, eviction.uid)
            return
        self.publish(eviction)
        if eviction.unbound and not pod.spec.node_name and await self._withdraw(key, eviction.uid):
            self._statuses.give_up_eviction(key, eviction.uid)
            return
        await self._deletions.delete_pod(key, eviction.uid, eviction.message)

    def publish(self, eviction: Evict) -> None:
        """Publish and count an eviction that is carried out."""
        self._status_events.pod_evicted(eviction)
        self._metrics.count_eviction(eviction, self._groups.get(eviction.group), self._status_events.node_pool)

    async def _withdraw(self, key: str, uid: str) -> bool:
        """Withdraw a bind in progress by deleting its BindRequest; False if the pod is already bound."""
        plan = self._gang_binding.plan_of_pod(key)
        entry = plan.in_flight.get(split_key(key)[1]) if plan is not None else None
        if plan is not None and entry is not None and entry.pod in plan.unwritten:
            self._binds.give_up(key, entry.uid, entry.node)
            plan.mark_failed(entry, "it made room for others")
            self._gang_binding.finish_if_settled(plan)
            return True
        request = self._requests.get(key)
        if request is None and self._binds.is_assumed(key):
            request = await self._deletions.read_live(resources.BIND_REQUESTS, key, BindRequest)
            if request is None:
                # Bound directly, and the watch has not shown it yet.
                return False
        if request is None:
            return True
        self._binds.begin_withdrawal(key, request.metadata.uid)
        if not await self._deletions.delete_request(key, request.metadata.uid):
            self._binds.keep_request(key, request.metadata.uid)
            return True
        pod = await self._deletions.read_live(resources.PODS, key, Pod)
        if pod is not None and pod.metadata.uid == uid and pod.spec.node_name:
            # The binder was faster, and the watch has not shown it yet.
            return False
        self._binds.withdraw(key, request.metadata.uid)
        self._binds.give_up(key, uid, None)
        self._gang_binding.fail_pod(key, uid, "its BindRequest was withdrawn")
        return True
