"""Binds of gangs: the plan is recorded before the first bind and deleted after the last.

Several binds of one group are a gang: its plan is kept in a record before the first of them (`records`, `bindplan`,
`gangplans`), and deleted when all are settled.  If a gang can no longer reach its minimum, because a bind was refused
for good, the part that was bound is evicted, with an event.

`podbinding` makes each bind; `gangtakeover` resumes the plans that another scheduler left behind.

Statements: cycle:STM.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key, split_key
from pykai.api.scheduling import BindRequest, PodGroup
from pykai.api.timestamp import format_timestamp
from pykai.kube.clock import Clock
from pykai.kube.store import Change
from pykai.scheduler.dispatch.backgroundtasks import BackgroundTasks
from pykai.scheduler.dispatch.bindplan import BindPlanError, PendingBind
from pykai.scheduler.dispatch.bindwriter import BindOutcome, BindResult
from pykai.scheduler.dispatch.deletions import Deletions
from pykai.scheduler.dispatch.gangplans import GangPlan, binder_gave_up, group_key, is_bound_and_active, reaches_minimum
from pykai.scheduler.dispatch.noderecheck import NodeRecheck
from pykai.scheduler.dispatch.podbinding import PodBinding
from pykai.scheduler.dispatch.records import BIND_PLAN, HandoverRecords
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.status.statusevents import WARNING, StatusEvents, now_ns

log = logging.getLogger(__name__)

#: fields of the record of a plan
RECORD_QUEUE = "queue"
RECORD_PODS = "pods"
#: cluster seconds for a pod of a gang to get another place after losing its own
_SECOND_CHANCE_S = 5.0


class GangBinding:
    """The plans of gangs that are being bound."""

    def __init__(
        self,
        records: HandoverRecords,
        intake: Intake,
        status_events: StatusEvents,
        metrics: SchedulerMetrics,
        deletions: Deletions,
        recheck: NodeRecheck,
        clock: Clock,
        tasks: BackgroundTasks,
        pod_binding: PodBinding,
    ) -> None:
        self._records = records
        self._intake = intake
        self._status_events = status_events
        self._metrics = metrics
        self._deletions = deletions
        self._recheck = recheck
        self._clock = clock
        self._tasks = tasks
        self._pod_binding = pod_binding
        self._plans: dict[str, GangPlan] = {}
        #: PodGroup key -> lock held while its record is written
        self._record_locks: dict[str, asyncio.Lock] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def __contains__(self, key: str) -> bool:
        return key in self._plans

    def adopt(self, plan: GangPlan) -> None:
        """Resume a plan that another scheduler left."""
        self._plans[plan.key] = plan

    def stop(self) -> None:
        """Forget plans in progress: the next leader finishes them."""
        self._plans.clear()

    def can_reach_minimum(self, key: str) -> bool:
        """Whether a group reaches its minimum with the pods that are bound or being bound."""
        group = self._intake.groups.get(key)
        pods = self._intake.pods_of_group(key)
        return group is None or reaches_minimum(group, pods, lambda pod: self._intake.binds.is_assumed(_key(pod)))

    def bind_gang(self, key: str, entries: list[PendingBind], seen_generation: int) -> None:
        """Bind several pods of a group, or more of a gang that is being bound."""
        group = self._intake.groups.get(key)
        if group is None:
            for entry in entries:
                self._intake.binds.give_up(f"{key.partition('/')[0]}/{entry.pod}")
            return
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = GangPlan(key, group.metadata.uid)
        plan.add(entries)
        self._tasks.start(self._persist_and_bind(plan, entries, seen_generation), f"plan of gang {key}")

    async def _persist_and_bind(self, plan: GangPlan, entries: list[PendingBind], seen_generation: int) -> None:
        """Persist the plan, then bind."""
        why = await self._persist(plan)
        if not why and (fit_error := self._recheck.gang_fit_error(plan, entries, seen_generation)):
            log.info("gang %s does not begin: %s", plan.key, fit_error)
            for entry in entries:
                self._metrics.count_overtaken_bind()
                self._intake.binds.give_up_to(object_key(plan.namespace, entry.pod), entry.uid, entry.node)
                plan.mark_failed(entry, fit_error)
            self.finish_if_settled(plan)
            return
        for entry in entries:
            key = object_key(plan.namespace, entry.pod)
            if not why:
                if plan.in_flight.get(entry.pod) is entry:
                    self.bind_pod(plan, entry, seen_generation)
                continue
            plan.mark_failed(entry, why)
            self._intake.binds.give_up_to(key, entry.uid, entry.node)
            self._status_events.binding_failed(key, entry.uid, entry.node, why)
            self._pod_binding.back_off(key, entry.uid)
        if why:
            self.finish_if_settled(plan)

    def bind_pod(self, plan: GangPlan, entry: PendingBind, seen_generation: int) -> None:
        """Start the write that binds a pod of a plan."""
        plan.unwritten.discard(entry.pod)
        on_result = partial(self._on_bind_result, plan, entry)
        self._pod_binding.start(plan.namespace, entry, seen_generation, plan.counted_causes, on_result)

    def _on_bind_result(self, plan: GangPlan, entry: PendingBind, result: BindResult) -> None:
        if result.outcome is BindOutcome.OVERTAKEN:
            # Another pod took the place: this one has some time to get another.
            wait_s = self._clock.wall_s(_SECOND_CHANCE_S)
            asyncio.get_running_loop().call_later(wait_s, self._fail_if_unplaced, plan, entry, result.why)
            return
        if result.outcome is BindOutcome.PLACED:
            # The watch may have been faster than the answer.
            plan.on_pod(entry.pod, self._intake.pods.get(object_key(plan.namespace, entry.pod)))
        else:
            plan.mark_failed(entry, result.why)
        self.finish_if_settled(plan)

    def _fail_if_unplaced(self, plan: GangPlan, entry: PendingBind, why: str) -> None:
        if self._plans.get(plan.key) is plan and plan.in_flight.get(entry.pod) is entry:
            plan.mark_failed(entry, why)
            self.finish_if_settled(plan)

    async def _persist(self, plan: GangPlan) -> str:
        """Record the open binds; returns why that failed, "" on success."""
        async with self._record_locks.setdefault(plan.key, asyncio.Lock()):
            group = self._intake.groups.get(plan.key)
            if group is None:
                return "the PodGroup is gone"
            try:
                text = plan.encode()
            except BindPlanError as error:
                return str(error)
            if text == plan.recorded_text:
                return ""
            # A failed write may exist all the same: an earlier try without an answer was carried out.
            plan.may_be_recorded = True
            data = {RECORD_QUEUE: group.spec.queue, RECORD_PODS: text}
            why = await self._records.put(BIND_PLAN, plan.key, plan.uid, data)
            if not why:
                plan.recorded_text = text
            return f"the plan of the gang could not be kept: {why}" if why else ""

    def finish_if_settled(self, plan: GangPlan) -> None:
        """Finish a plan of which nothing is open."""
        if plan.is_settled and self._plans.get(plan.key) is plan:
            del self._plans[plan.key]
            self._tasks.start(self._finish(plan), f"end of the plan of gang {plan.key}")

    async def _finish(self, plan: GangPlan) -> None:
        """Evict what was bound if the gang is incomplete, then delete the record."""
        group = self._intake.groups.get(plan.key)
        if plan.failed and group is not None and group.metadata.uid == plan.uid:
            await self._evict_if_below_minimum(plan, group)
        async with self._record_locks.setdefault(plan.key, asyncio.Lock()):
            # A new plan of the group may have been written meanwhile; it must stay.
            next_plan = self._plans.get(plan.key)
            if plan.may_be_recorded and (next_plan is None or next_plan.uid != plan.uid):
                await self._records.remove(self._records.name_of(BIND_PLAN, plan.uid))
            if next_plan is None:
                self._record_locks.pop(plan.key, None)

    async def _evict_if_below_minimum(self, plan: GangPlan, group: PodGroup) -> None:
        """Evict the bound pods of a gang that lost pods on the way, unless its minimum is bound."""
        if self.can_reach_minimum(plan.key):
            return
        bound = [pod for pod in self._intake.pods_of_group(plan.key) if is_bound_and_active(pod)]
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
        for pod in bound:
            self._intake.statuses.assume_eviction(_key(pod), pod.metadata.uid)
        await asyncio.gather(*(self._deletions.delete_pod(_key(pod), pod.metadata.uid, text) for pod in bound))

    def plan_of_pod(self, pod_key: str) -> GangPlan | None:
        """The open plan of a pod's group."""
        pod = self._intake.pods.get(pod_key)
        return self._plans.get(group_key(pod)) if pod is not None else None

    def fail_pod(self, pod_key: str, why: str) -> None:
        """Record that a pod with a BindRequest will not be bound."""
        plan = self.plan_of_pod(pod_key)
        if plan is not None:
            entry = plan.in_flight.get(split_key(pod_key)[1])
            if entry is not None and entry.request is not None:
                plan.mark_failed(entry, why)
                self.finish_if_settled(plan)

    def on_pod_change(self, change: Change[Pod]) -> None:
        """Handle a change of any pod."""
        if not self._plans:
            return
        pod = change.new
        group = group_key(pod) if pod is not None else ""
        before = group_key(change.old) if change.old is not None else ""
        for key in dict.fromkeys((before, group)):
            plan = self._plans.get(key)
            if plan is not None:
                plan.on_pod(split_key(change.key)[1], pod)
                if key != group and (entry := plan.in_flight.get(split_key(change.key)[1])) is not None:
                    plan.mark_failed(entry, "the pod has left the group")
                self.finish_if_settled(plan)

    def on_request_change(self, request: BindRequest) -> None:
        """Handle a change of any BindRequest."""
        if self._plans and binder_gave_up(request):
            plan = self.plan_of_pod(object_key(request.metadata.namespace, request.spec.pod_name))
            if plan is not None:
                plan.on_request(request)
                self.finish_if_settled(plan)


def _key(item: Pod | PodGroup) -> str:
    return object_key(item.metadata.namespace, item.metadata.name)
