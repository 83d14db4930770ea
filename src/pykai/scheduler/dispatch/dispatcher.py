"""Decisions become writes, many at a time, and what goes wrong is put right.

`carry_out` assumes every decision of a plan at once, so that the next cycle builds on it, and starts the writes; it
does not wait for them.

*Binds.*  A single bind is one write (`binding`).  Several binds of one group are a gang, which has a plan
(`gangbinding`).

*Evictions.*  A bound pod is deleted, by uid; one that is only on its way loses its BindRequest instead.

Right before each bind the node is looked at once more (`room`): a place that others have taken since the decision is
given up, and the pod decided again at once.

A pod whose bind was refused stays out of the cycles for a while (`pauses`); its condition says why.  A group whose
binds keep failing evicts no more pods (`failedbinds`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

import msgspec

from pykai.api.core import Pod
from pykai.api.scheduling import BindRequest, PodGroup
from pykai.core.model.shard import Shard
from pykai.core.model.tasks import timestamp_or_zero
from pykai.core.report.decisions import Bind, Evict, Plan
from pykai.kube import resources
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.resources import split_key
from pykai.kube.store import Change
from pykai.kube.yielding import yielding_to_loop
from pykai.scheduler.dispatch.bindbackoff import BindBackoff
from pykai.scheduler.dispatch.bindplan import PendingBind
from pykai.scheduler.dispatch.bindrequests import assumed_request, needs_binder, request_spec
from pykai.scheduler.dispatch.bindwriter import BindOutcome, BindWriter
from pykai.scheduler.dispatch.deletions import Deletions
from pykai.scheduler.dispatch.failedbinds import MAX_BIND_FAILURES, FailedBinds
from pykai.scheduler.dispatch.gangbinding import EngineQuery, GangBinding, group_key
from pykai.scheduler.dispatch.gangplans import GangPlan, binder_gave_up
from pykai.scheduler.dispatch.noderecheck import NodeRecheck
from pykai.scheduler.dispatch.records import BIND_PLAN, FAILED_BINDS, HandoverRecords
from pykai.scheduler.intake.assumptions import AssumptionEvent
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.intake.pendingevictions import preemptor_reference
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.sanitising.requestverifier import owner_uid
from pykai.scheduler.status.statusevents import StatusEvents, is_waiting, now_ns

log = logging.getLogger(__name__)
T = TypeVar("T")

#: cluster seconds for a pod of a gang to find another place when others took its own
_SECOND_CHANCE_S = 5.0


class Dispatcher:
    """Carries out plans.  Lives on the event loop."""

    def __init__(
        self,
        client: Client,
        records: HandoverRecords,
        intake: Intake,
        status_events: StatusEvents,
        metrics: SchedulerMetrics,
        shard: Shard,
        clock: Clock,
        *,
        fast_bind: bool = True,
        mark_evicted: bool = False,
        in_flight: int = 80,
    ) -> None:
        self._records = records
        self._intake = intake
        self._status_events = status_events
        self._metrics = metrics
        self._clock = clock
        self._fast_bind = fast_bind
        self._binding = BindWriter(client, shard, in_flight=in_flight)
        self._deletions = Deletions(
            client,
            intake,
            clock,
            mark_disruption=mark_evicted,
            stuck_after_ns=shard.stuck_after_ns,
            in_flight=in_flight,
        )
        self._tasks: set[asyncio.Task[object]] = set()
        #: pod key -> the write that binds it
        self._bind_tasks: dict[str, asyncio.Task[object]] = {}
        self._backoff = BindBackoff(intake, clock)
        self._recheck = NodeRecheck(intake)
        self._gang_binding = GangBinding(
            records, intake, status_events, metrics, self._deletions, self._recheck, clock, self
        )
        self._failed_binds = FailedBinds(records, intake, status_events, self.start_task)
        self._leading = False
        intake.pods.subscribe(self._on_pod)
        intake.groups.subscribe(self._failed_binds.on_group_change)
        intake.requests.subscribe(self._on_request)

    @property
    def has_binds_in_flight(self) -> bool:
        """Whether binds are going out."""
        return bool(self._bind_tasks)

    @property
    def unsettled_gangs(self) -> int:
        """Gangs that are not settled."""
        return len(self._gang_binding)

    def groups_backing_off(self) -> set[str]:
        """Groups with a pod that pauses after a refused bind."""
        groups = set()
        for key in self._backoff.pods():
            pod = self._intake.pods.get(key)
            if pod is not None:
                groups.add(group_key(pod))
        return groups

    async def drain(self, timeout_s: float = 10.0) -> bool:
        """Wait for the writes that are going out; False when that took too long."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._tasks:
                    await asyncio.wait(self._tasks)
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """Start nothing more, and end what is under way: whoever leads now will find it."""
        self._leading = False
        self._backoff.stop()
        # The watches go on for a while; what they bring is for the next leader to answer.
        self._gang_binding.stop()
        self._failed_binds.stop()
        for task in self._tasks:
            task.cancel()

    def start_task(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]:
        """Work in the background; what it raises is logged."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", task.get_name(), exc_info=task.exception())

    # -- a plan -----------------------------------------------------------------------------------------------------

    async def dispatch(self, plan: Plan, seen_generation: int = 0) -> None:
        """Assume what was decided, and start to write it; the cycle has seen nodes up to `seen_generation`."""
        groups: dict[str, list[PendingBind]] = {}
        incomplete: set[str] = set()
        async for bind in yielding_to_loop(plan.binds):
            entry = self.make_pending_bind(bind)
            if entry is None:
                incomplete.add(bind.group)
            else:
                self._intake.binds.assume(assumed_request(bind.namespace, bind.uid, request_spec(bind)))
                groups.setdefault(bind.group, []).append(entry)
        async for eviction in yielding_to_loop(plan.evictions):
            key = f"{eviction.namespace}/{eviction.pod}"
            self._intake.statuses.assume_eviction(key, eviction.uid, preemptor_reference(eviction))
        async for key, decided in yielding_to_loop(groups.items()):
            namespace = key.partition("/")[0]
            entries = [entry for entry in decided if self._can_be_bound(f"{namespace}/{entry.pod}", entry.uid)]
            if len(entries) < len(decided):
                incomplete.add(key)
            if key in incomplete and not self._gang_binding.can_reach_minimum(key):
                log.info("gang %s does not begin: one of its pods went while it was decided", key)
                for entry in entries:
                    self._intake.binds.give_up(f"{namespace}/{entry.pod}")
            elif len(entries) == 1 and key not in self._gang_binding:
                self.start_bind(namespace, entries[0], None, seen_generation)
            elif entries:
                self._gang_binding.bind_gang(key, entries, seen_generation)
        async for eviction in yielding_to_loop(plan.evictions):
            self.start_task(self._evict(eviction), f"eviction of {eviction.namespace}/{eviction.pod}")

    def _can_be_bound(self, key: str, uid: str) -> bool:
        """False when the pod has gone or was bound since it was decided; the change waits for the next cycle."""
        pod = self._intake.pods.get(key)
        return pod is not None and pod.metadata.uid == uid and not pod.spec.node_name

    def make_pending_bind(self, bind: Bind) -> PendingBind | None:
        """How a bind is to be written; None when the pod has gone or was bound since it was decided."""
        key = f"{bind.namespace}/{bind.pod}"
        pod = self._intake.pods.get(key)
        if pod is None or not self._can_be_bound(key, bind.uid):
            return None
        if self._fast_bind and not needs_binder(bind, pod):
            return PendingBind(bind.pod, bind.uid, bind.node)
        request = request_content(bind)
        return PendingBind(bind.pod, bind.uid, bind.node, request, dict(bind.annotations))

    def start_bind(self, namespace: str, entry: PendingBind, plan: GangPlan | None, seen_generation: int) -> None:
        """Start the write that binds a pod."""
        key = f"{namespace}/{entry.pod}"
        if plan is not None:
            plan.unwritten.discard(entry.pod)
        task = self.start_task(self._bind(namespace, entry, plan, seen_generation), f"bind of {key}")
        self._bind_tasks[key] = task
        task.add_done_callback(partial(self._on_bind_done, key))

    def _on_bind_done(self, key: str, task: asyncio.Task[object]) -> None:
        if self._bind_tasks.get(key) is task:
            del self._bind_tasks[key]

    async def _bind(self, namespace: str, entry: PendingBind, plan: GangPlan | None, seen_generation: int) -> None:
        key = f"{namespace}/{entry.pod}"
        labels = self._status_events.node_pool_label()
        started_s = asyncio.get_running_loop().time()
        fit_error = partial(self._recheck.fit_error, namespace, entry, seen_generation)
        report = self._intake.binds.follow_write(key, entry.uid, entry.node)
        result = await self._binding.write(namespace, entry, labels, fit_error, report)
        if result.outcome is BindOutcome.OVERTAKEN:
            self._on_overtaken(key, entry, plan, result.why)
            return
        if result.outcome is BindOutcome.PLACED:
            report(AssumptionEvent.ACCEPTED)
            self._metrics.observe_bind(asyncio.get_running_loop().time() - started_s, self._pod_age_s(key))
            self._status_events.pod_scheduled(key, entry.uid, entry.node)
            if entry.request is not None:
                self._status_events.label_node_pool(key, entry.uid)
            if plan is not None:
                # The watch may have been quicker than the answer.
                plan.on_pod(entry.pod, self._intake.pods.get(key))
        else:
            is_gone = result.outcome is BindOutcome.GONE
            event = AssumptionEvent.OBJECT_GONE if is_gone else AssumptionEvent.REFUSED
            self._intake.binds.give_up_to(key, entry.uid, entry.node, event)
            if result.outcome is BindOutcome.REFUSED:
                self._metrics.count_refused_bind()
                log.warning("pod %s was not bound to node %s: %s", key, entry.node, result.why)
                self._status_events.binding_failed(key, entry.uid, entry.node, result.why)
                pod = self._intake.pods.get(key)
                if result.is_permanent and pod is not None and pod.metadata.uid == entry.uid:
                    self._failed_binds.count_failure(pod, group_key(pod), result.why, entry.node, plan)
                self.back_off(key, entry.uid)
            if plan is not None:
                plan.mark_failed(entry, result.why)
        if plan is not None:
            self._gang_binding.finish_if_settled(plan)

    def _on_overtaken(self, key: str, entry: PendingBind, plan: GangPlan | None, why: str) -> None:
        """Others were quicker: the pod waits again.  One of a gang has some time to find another place."""
        self._metrics.count_overtaken_bind()
        log.info("pod %s is not bound to node %s: %s", key, entry.node, why)
        self._intake.binds.give_up_to(key, entry.uid, entry.node)
        if plan is not None:
            wait_s = self._clock.wall_s(_SECOND_CHANCE_S)
            asyncio.get_running_loop().call_later(wait_s, self._fail_if_unplaced, plan, entry, why)

    def _fail_if_unplaced(self, plan: GangPlan, entry: PendingBind, why: str) -> None:
        if self._leading and plan.in_flight.get(entry.pod) is entry:
            plan.mark_failed(entry, why)
            self._gang_binding.finish_if_settled(plan)

    def _pod_age_s(self, key: str) -> float | None:
        pod = self._intake.pods.get(key)
        return None if pod is None else age_s(pod, self._clock)

    def back_off(self, key: str, uid: str) -> None:
        """Keep a pod out of the cycles for a while, unless it has another place by now, or has gone."""
        pod = self._intake.pods.get(key)
        if self._intake.binds.is_assumed(key) or pod is None or pod.metadata.uid != uid:
            return
        group = group_key(pod)
        self._backoff.start(key, uid, group, self._failed_binds.failure_count(group))

    def _on_binder_gave_up(self, request: BindRequest) -> None:
        """The binder may have given up on a request: count that, and let the pod pause, once for each request."""
        key = f"{request.metadata.namespace}/{request.spec.pod_name}"
        pod = self._intake.pods.get(key)
        if pod is None or pod.spec.node_name or not binder_gave_up(request):
            return
        uid = pod.metadata.uid
        if owner_uid(request) == uid:
            why, node = request.status.reason or "the binder gave up", request.spec.selected_node
            plan = self._gang_binding.plan_of_pod(key)
            self._failed_binds.count_failure(pod, group_key(pod), why, node, plan, request.metadata.uid)
        if key not in self._backoff:
            self.back_off(key, uid)

    # -- what the watches bring ----------------------------------------------------------------------------------------

    async def take_over(self, query_engine: EngineQuery) -> None:
        """Become responsible: plans left behind are finished before anything else is decided."""
        records = await self._records.list_records()
        self._leading = True
        self._failed_binds.take_over(each for each in records if each.kind == FAILED_BINDS)
        await self._gang_binding.take_over([each for each in records if each.kind == BIND_PLAN], query_engine)

    def _covers(self, item: PodGroup | BindRequest) -> bool:
        return self._intake.tables.shard.covers(item.metadata)

    def _on_pod(self, change: Change[Pod]) -> None:
        pod = change.new
        if change.old is not None and (pod is None or pod.metadata.uid != change.old.metadata.uid):
            self._backoff.forget(change.old)
        if change.key in self._backoff and (pod is None or not is_waiting(pod)):
            self._backoff.end(change.key)
        self._gang_binding.on_pod_change(change)
        for group in dict.fromkeys(group_key(each) for each in (change.old, pod) if each is not None):
            self._failed_binds.on_pod_change(change, group)
        if pod is not None and is_waiting(pod) and (change.old is None or change.old.metadata.uid != pod.metadata.uid):
            if self._failed_binds.failure_count(group_key(pod)) >= MAX_BIND_FAILURES:
                self._backoff.inherit(change.key, group_key(pod))

    def _on_request(self, change: Change[BindRequest]) -> None:
        request = change.new
        if (
            request is not None
            and self._leading
            and self._covers(request)
            and not self._intake.binds.is_withdrawn(request)
        ):
            # At once: the next cycle would decide about the pod again before it takes the request away.
            self._on_binder_gave_up(request)
        if request is not None:
            self._gang_binding.on_request_change(request)
        elif change.key not in self._bind_tasks and not self._intake.binds.is_assumed(change.key):
            # The end of an older request of the name says nothing about the one that we write or have written.
            self._gang_binding.fail_pod(change.key, "its BindRequest was deleted")

    # -- what leads nowhere, and evictions --------------------------------------------------------------------------

    def delete_dead_requests(self, keys: Iterable[str]) -> None:
        """Delete BindRequests that nobody waits for (cycle:SNP-8); their pods pause before they are tried again.

        Statements: gpu:B-5.
        """
        for key in keys:
            request = self._intake.requests.get(key)
            if request is None:
                continue
            self._intake.binds.withdraw(key, request.metadata.uid)
            pod_key = f"{request.metadata.namespace}/{request.spec.pod_name}"
            pod = self._intake.pods.get(pod_key)
            if pod is not None and not pod.spec.node_name:
                self._gang_binding.fail_pod(
                    pod_key, request.status.reason or f"node {request.spec.selected_node} is gone"
                )
                self._on_binder_gave_up(request)
            self.start_task(self._deletions.delete_request(key, request.metadata.uid), f"end of BindRequest {key}")

    async def _evict(self, eviction: Evict) -> None:
        """Take a pod off its node (cycle:16.2, OUT-4)."""
        key = f"{eviction.namespace}/{eviction.pod}"
        bind_task = self._bind_tasks.get(key)
        if bind_task is not None:
            await asyncio.wait([bind_task])
        pod = self._intake.pods.get(key)
        if pod is None or pod.metadata.uid != eviction.uid or pod.status.phase in ("Succeeded", "Failed"):
            log.info("received an eviction attempt for a terminated task: %s", key)
            self._intake.statuses.forget(key)
            return
        self._status_events.pod_evicted(eviction)
        self._metrics.count_eviction(eviction, self._intake.groups.get(eviction.group), self._status_events.node_pool)
        if eviction.unbound and not pod.spec.node_name and await self._withdraw(key, eviction.uid):
            self._intake.statuses.forget(key)
            return
        await self._deletions.delete_pod(key, eviction.uid, eviction.message)

    async def _withdraw(self, key: str, uid: str) -> bool:
        """Take a pod that is on its way back by its BindRequest; False when it is bound already."""
        plan = self._gang_binding.plan_of_pod(key)
        entry = plan.in_flight.get(split_key(key)[1]) if plan is not None else None
        if plan is not None and entry is not None and entry.pod in plan.unwritten:
            self._intake.binds.give_up_to(key, entry.uid, entry.node)
            plan.mark_failed(entry, "it made room for others")
            self._gang_binding.finish_if_settled(plan)
            return True
        request = self._intake.requests.get(key)
        if request is None and self._intake.binds.is_assumed(key):
            request = await self._deletions.read_live(resources.BIND_REQUESTS, key, BindRequest)
            if request is None:
                # Bound directly, and the watch has not shown it yet.
                return False
        if request is None:
            return True
        self._intake.binds.begin_withdrawal(key, request.metadata.uid)
        if await self._deletions.delete_request(key, request.metadata.uid):
            pod = await self._deletions.read_live(resources.PODS, key, Pod)
            if pod is not None and pod.metadata.uid == uid and pod.spec.node_name:
                # The binder was quicker, and the watch has not shown it yet.
                return False
            self._intake.binds.withdraw(key, request.metadata.uid)
            self._intake.binds.give_up(key)
            self._gang_binding.fail_pod(key, "its BindRequest was withdrawn")
        else:
            self._intake.binds.keep_request(key)
        return True


def request_content(bind: Bind) -> dict[str, Any]:
    """The spec of a bind's BindRequest as plain data."""
    content: dict[str, Any] = msgspec.to_builtins(request_spec(bind))
    return content


def age_s(pod: Pod, clock: Clock) -> float | None:
    """How long a pod has existed, in cluster seconds; None when that cannot be told."""
    created_ns = timestamp_or_zero(pod.metadata.creation_timestamp)
    return max(0.0, (now_ns(clock) - created_ns) / 1e9) if created_ns else None


def _key(item: Pod | PodGroup) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"
