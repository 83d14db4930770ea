"""Binds one pod: the write in the background, and the handling of its outcome.

Right before each write the node is rechecked (`noderecheck`): if other pods have taken the place since the decision,
the bind is dropped and the pod decided again at once.  A pod whose bind was refused stays out of the cycles for a while
(`bindbackoff`); its condition says why.  A group whose binds keep failing evicts no more pods (`failedbinds`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.scheduling import PodGroup
from pykai.core.model.tasks import timestamp_or_zero
from pykai.core.report.decisions import Bind
from pykai.kube.clock import Clock
from pykai.kube.store import Store
from pykai.scheduler.dispatch.backgroundtasks import BackgroundTasks
from pykai.scheduler.dispatch.bindbackoff import BindBackoff
from pykai.scheduler.dispatch.bindplan import PendingBind
from pykai.scheduler.dispatch.bindrequests import needs_binder, request_spec
from pykai.scheduler.dispatch.bindwriter import BindOutcome, BindResult, BindWriter
from pykai.scheduler.dispatch.failedbinds import FailedBinds
from pykai.scheduler.dispatch.gangplans import group_key
from pykai.scheduler.dispatch.noderecheck import NodeRecheck
from pykai.scheduler.intake.assumptions import AssumptionEvent
from pykai.scheduler.intake.bindassumptions import BindAssumptions
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.status.statusevents import StatusEvents, now_ns

log = logging.getLogger(__name__)


class PodBinding:
    """Binds pods.  Lives on the event loop."""

    def __init__(
        self,
        writer: BindWriter,
        pods: Store[Pod],
        groups: Store[PodGroup],
        binds: BindAssumptions,
        status_events: StatusEvents,
        metrics: SchedulerMetrics,
        clock: Clock,
        tasks: BackgroundTasks,
        recheck: NodeRecheck,
        failed_binds: FailedBinds,
        backoff: BindBackoff,
        *,
        fast_bind: bool,
    ) -> None:
        self._writer = writer
        self._pods = pods
        self._groups = groups
        self._binds = binds
        self._status_events = status_events
        self._metrics = metrics
        self._clock = clock
        self._tasks = tasks
        self._recheck = recheck
        self._failed_binds = failed_binds
        self._backoff = backoff
        self._fast_bind = fast_bind
        #: pod key -> the write that binds it
        self._writes: dict[str, asyncio.Task[object]] = {}

    def __len__(self) -> int:
        return len(self._writes)

    def write_of(self, key: str) -> asyncio.Task[object] | None:
        """The write that binds a pod, None if there is none."""
        return self._writes.get(key)

    def can_be_bound(self, key: str, uid: str) -> bool:
        """False if the pod was deleted or bound since the decision; the change waits for the next cycle."""
        pod = self._pods.get(key)
        return pod is not None and pod.metadata.uid == uid and not pod.spec.node_name

    def make_pending_bind(self, bind: Bind) -> PendingBind | None:
        """How to write a bind; None if the pod was deleted or bound since the decision."""
        key = object_key(bind.namespace, bind.pod)
        pod = self._pods.get(key)
        if pod is None or not self.can_be_bound(key, bind.uid):
            return None
        if self._fast_bind and not needs_binder(bind, pod):
            return PendingBind(bind.pod, bind.uid, bind.node)
        request: dict[str, Any] = msgspec.to_builtins(request_spec(bind))
        return PendingBind(bind.pod, bind.uid, bind.node, request, dict(bind.annotations))

    def start(
        self,
        namespace: str,
        entry: PendingBind,
        seen_generation: int,
        counted_causes: set[str] | None = None,
        on_result: Callable[[BindResult], None] = lambda _: None,
    ) -> None:
        """Start the write that binds a pod; each cause of failure is counted once for its gang."""
        key = object_key(namespace, entry.pod)
        work = self._bind(namespace, entry, seen_generation, counted_causes, on_result)
        task = self._tasks.start(work, f"bind of {key}")
        self._writes[key] = task
        task.add_done_callback(partial(self._on_write_done, key))

    def _on_write_done(self, key: str, task: asyncio.Task[object]) -> None:
        if self._writes.get(key) is task:
            del self._writes[key]

    async def _bind(
        self,
        namespace: str,
        entry: PendingBind,
        seen_generation: int,
        counted_causes: set[str] | None,
        on_result: Callable[[BindResult], None],
    ) -> None:
        key = object_key(namespace, entry.pod)
        labels = self._status_events.node_pool_label()
        started_s = asyncio.get_running_loop().time()
        fit_error = partial(self._recheck.fit_error, namespace, entry, seen_generation)
        report = self._binds.follow_write(key, entry.uid, entry.node)
        result = await self._writer.write(namespace, entry, labels, fit_error, report)
        if result.outcome is BindOutcome.PLACED:
            report(AssumptionEvent.ACCEPTED)
            self._on_placed(key, entry, asyncio.get_running_loop().time() - started_s)
        elif result.outcome is BindOutcome.OVERTAKEN:
            log.info("pod %s is not bound to node %s: %s", key, entry.node, result.why)
            self.drop_overtaken(namespace, entry)
        elif result.outcome is BindOutcome.GONE:
            self._binds.give_up(key, entry.uid, entry.node, AssumptionEvent.OBJECT_GONE)
        else:
            self._on_refused(key, entry, result, counted_causes)
        on_result(result)

    def drop_overtaken(self, namespace: str, entry: PendingBind) -> None:
        """Drop a bind whose place other pods have taken; the pod is decided again at once."""
        self._metrics.count_overtaken_bind()
        self._binds.give_up(object_key(namespace, entry.pod), entry.uid, entry.node)

    def drop_unrecorded(self, namespace: str, entry: PendingBind, why: str) -> None:
        """Drop a bind because the plan of its gang could not be recorded; the pod backs off."""
        key = object_key(namespace, entry.pod)
        self._binds.give_up(key, entry.uid, entry.node)
        self._status_events.binding_failed(key, entry.uid, entry.node, why)
        self._backoff.start(key, entry.uid)

    def _on_placed(self, key: str, entry: PendingBind, took_s: float) -> None:
        pod = self._pods.get(key)
        group = None if pod is None else self._groups.get(group_key(pod))
        self._metrics.observe_bind(
            took_s,
            None if pod is None else age_s(pod, self._clock),
            node=entry.node,
            queue="" if group is None else group.spec.queue,
        )
        self._status_events.pod_scheduled(key, entry.uid, entry.node)
        if entry.request is not None:
            self._status_events.label_node_pool(key, entry.uid)

    def _on_refused(self, key: str, entry: PendingBind, result: BindResult, counted_causes: set[str] | None) -> None:
        self._binds.give_up(key, entry.uid, entry.node, AssumptionEvent.REFUSED)
        self._metrics.count_refused_bind()
        log.warning("pod %s was not bound to node %s: %s", key, entry.node, result.why)
        self._status_events.binding_failed(key, entry.uid, entry.node, result.why)
        pod = self._pods.get(key)
        if result.is_permanent and pod is not None and pod.metadata.uid == entry.uid:
            self._failed_binds.count_failure(pod, group_key(pod), result.why, entry.node, counted_causes)
        self._backoff.start(key, entry.uid)


def age_s(pod: Pod, clock: Clock) -> float | None:
    """How long a pod has existed, in cluster seconds; None if unknown."""
    created_ns = timestamp_or_zero(pod.metadata.creation_timestamp)
    return max(0.0, (now_ns(clock) - created_ns) / 1e9) if created_ns else None
