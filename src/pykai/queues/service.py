"""Keeps `Queue.status` up to date and queues visible in Prometheus (queues:Q-40 to Q-47).

In: changes of queues and PodGroups.  Out: one merge patch of a queue's status when its content changes, gauges, and an
event for a queue that cannot be read.

Subtle: sums follow every event at once, in memory; writing waits `settle_s` after the first change, so that a gang that
starts is one write for its queue and each queue above.  What another service writes into PodGroups reaches all levels
of the tree in the same moment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry

from pykai.api import names
from pykai.api.decode import DecodeError
from pykai.api.scheduling import PodGroup, Queue
from pykai.kube import resources
from pykai.kube.errors import NotFound
from pykai.kube.events import InvolvedObject
from pykai.kube.flags import read_options
from pykai.kube.reconcilingservice import ReconcilingService
from pykai.kube.runtime import Runtime
from pykai.kube.store import Change
from pykai.queues.forest import QueueForest, QueueUsage
from pykai.queues.gauges import ExtraLabels, QueueGauges
from pykai.queues.options import FLAGS, QueuesOptions
from pykai.queues.status import status_patch


def make_queues(
    runtime: Runtime, chosen: QueuesOptions | None = None, registry: CollectorRegistry | None = None
) -> Queues:
    """The service; without a registry its gauges are not exported."""
    return Queues(runtime, chosen or QueuesOptions(), registry or CollectorRegistry())


def from_flags(runtime: Runtime, given: Mapping[str, str], registry: CollectorRegistry) -> list[Queues]:
    """The service that flags ask for; raises `OptionError`."""
    return [make_queues(runtime, read_options(QueuesOptions(), FLAGS, given), registry)]


class Queues(ReconcilingService):
    """See the module."""

    name = "queues"

    def __init__(self, runtime: Runtime, chosen: QueuesOptions, registry: CollectorRegistry) -> None:
        super().__init__(runtime, component=names.QUEUE_CONTROLLER, workers=chosen.max_concurrent_reconciles)
        self._options = chosen
        self.registry = registry
        self._queues = self._need(runtime.caches.store(resources.QUEUES, Queue))
        self._groups = self._need(runtime.caches.store(resources.POD_GROUPS, PodGroup))
        self._forest = QueueForest()
        extra = ExtraLabels(chosen.queue_label_to_metric_label, chosen.queue_label_to_default_metric_value)
        self._gauges = QueueGauges(registry, chosen.metrics_namespace, extra)
        self._dirty: set[str] = set()

    def idle(self) -> bool:
        """Whether every change that was seen has been written."""
        return not self._dirty and super().idle()

    async def _subscribe(self) -> None:
        self._queues.subscribe(self._queue_changed)
        self._queues.on_problem(self._queue_problem)
        self._groups.subscribe(self._group_changed)

    def _mark_dirty(self, queues: Iterable[str]) -> None:
        for queue in queues:
            if queue not in self._dirty:
                self._dirty.add(queue)
                self._reconciler.enqueue(queue, after_s=self._options.settle_s * self._clock.speed)

    def _queue_changed(self, change: Change[Queue]) -> None:
        new = change.new
        if new is None:
            self._gauges.drop(change.key)
            self._mark_dirty(self._forest.drop_queue(change.key))
        elif change.old is None or change.old.spec.parent_queue != new.spec.parent_queue:
            self._mark_dirty(self._forest.put_queue(change.key, new.spec.parent_queue) | {change.key})
        else:
            self._mark_dirty((change.key,))

    def _queue_problem(self, key: str, problem: DecodeError | None) -> None:
        if problem is not None:
            about = InvolvedObject(names.QUEUE_API_VERSION, "Queue", "", key, problem.uid)
            text = f"{problem}; its workloads wait until it is fixed"
            self._recorder.event(about, "Warning", names.EVENT_UNREADABLE, text)

    def _group_changed(self, change: Change[PodGroup]) -> None:
        old, new = change.old, change.new
        if new is None:
            self._mark_dirty(self._forest.put_group(change.key, "", None))
            return
        resources_status = new.status.resources_status
        if old is None or (old.spec.queue, old.status.resources_status) != (new.spec.queue, resources_status):
            self._mark_dirty(self._forest.put_group(change.key, new.spec.queue, QueueUsage.of_group(resources_status)))

    async def _reconcile(self, key: str) -> float | None:
        self._dirty.discard(key)
        queue = self._queues.get(key)
        if queue is None:
            return None
        self._gauges.set(queue, self._forest.total(key).allocated)
        patch = status_patch(queue, self._forest, self._clock.now().isoformat(timespec="seconds")[:19] + "Z")
        if patch is not None:
            # A recreated queue of the same name is another queue.
            patch["metadata"] = {"uid": queue.metadata.uid}
            with contextlib.suppress(NotFound):
                await self._client.patch(resources.QUEUES, key, patch, subresource="status")
        return None
