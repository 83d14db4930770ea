"""Binds of gangs: the plan before the first of them, its end after the last, and what another scheduler left behind.

Several binds of one group are a gang: its plan is kept in a record before the first of them (`records`, `bindplan`,
`gangplans`), and deleted when all are settled.  If a gang cannot reach its minimum any more, because a bind was refused
for good, the part that was bound is evicted, with an event.

`take_over` goes on with the plans that another scheduler left behind, before the first cycle.  A plan is only a hint
there: the engine decides again whether each pod may be bound to its node (`core.resume`), and what cannot is lost.

The binds themselves are the dispatcher's, which stands behind `Carrier` here.

Statements: cycle:STM.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.scheduling import BindRequest, PodGroup
from pykai.api.timestamp import format_timestamp
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.policy import Policy
from pykai.core.report.decisions import Bind
from pykai.core.resume import PlannedBind, ResumedBinds, UnfinishedBinds, resume
from pykai.kube.clock import Clock
from pykai.kube.resources import split_key
from pykai.kube.store import Change
from pykai.kube.yielding import yielding_to_loop
from pykai.scheduler.dispatch.bindplan import BindPlanError, PendingBind, decode_plan
from pykai.scheduler.dispatch.bindrequests import assumed_request
from pykai.scheduler.dispatch.deletions import Deletions
from pykai.scheduler.dispatch.gangplans import GangPlan, binder_gave_up, is_bound_and_active, reaches_minimum
from pykai.scheduler.dispatch.noderecheck import NodeRecheck
from pykai.scheduler.dispatch.records import BIND_PLAN, HandoverRecord, HandoverRecords
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.sanitising.requestverifier import owner_uid
from pykai.scheduler.status.statusevents import WARNING, StatusEvents, now_ns

log = logging.getLogger(__name__)
T = TypeVar("T")

_QUEUE = "queue"
_PODS = "pods"


class BindStarter(Protocol):
    """Who writes the binds."""

    def start_task(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]:
        """Work in the background; what it raises is logged."""
        ...

    def start_bind(self, namespace: str, entry: PendingBind, plan: GangPlan | None, seen_generation: int) -> None:
        """Start the write that binds a pod."""
        ...

    def make_pending_bind(self, bind: Bind) -> PendingBind | None:
        """How a bind is to be written; None when the pod has gone or was bound since it was decided."""
        ...

    def back_off(self, key: str, uid: str) -> None:
        """Keep a pod out of the cycles for a while."""
        ...


class EngineQuery(Protocol):
    """Asks the engine about the cluster as it is now; also how many arrivals it has seen (`room`)."""

    def __call__(self, query: Callable[[Snapshot, Policy], T], /) -> Awaitable[tuple[T, int]]:
        """The answer."""
        ...


class GangBinding:
    """The plans of gangs that are on their way."""

    def __init__(
        self,
        records: HandoverRecords,
        intake: Intake,
        status_events: StatusEvents,
        metrics: SchedulerMetrics,
        deletions: Deletions,
        recheck: NodeRecheck,
        clock: Clock,
        bind_starter: BindStarter,
    ) -> None:
        self._records = records
        self._intake = intake
        self._status_events = status_events
        self._metrics = metrics
        self._deletions = deletions
        self._recheck = recheck
        self._clock = clock
        self._bind_starter = bind_starter
        self._plans: dict[str, GangPlan] = {}
        #: PodGroup key -> held while its record is written
        self._record_locks: dict[str, asyncio.Lock] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def __contains__(self, key: str) -> bool:
        return key in self._plans

    def stop(self) -> None:
        """Forget what is under way: it is for the next leader to finish."""
        self._plans.clear()

    def can_reach_minimum(self, key: str) -> bool:
        """Whether a group reaches its minimum with what is bound and what is on its way."""
        group = self._intake.groups.get(key)
        pods = self._intake.pods_of_group(key)
        return group is None or reaches_minimum(group, pods, lambda pod: self._intake.binds.is_assumed(_key(pod)))

    def bind_gang(self, key: str, entries: list[PendingBind], seen_generation: int) -> None:
        """Bind several pods of a group, or more of a gang that is on its way."""
        group = self._intake.groups.get(key)
        if group is None:
            for entry in entries:
                self._intake.binds.give_up(f"{key.partition('/')[0]}/{entry.pod}")
            return
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = GangPlan(key, group.metadata.uid)
        plan.add(entries)
        self._bind_starter.start_task(self._persist_and_bind(plan, entries, seen_generation), f"plan of gang {key}")

    async def _persist_and_bind(self, plan: GangPlan, entries: list[PendingBind], seen_generation: int) -> None:
        """Persist the plan, then bind."""
        why = await self._persist(plan)
        if not why and (fit_error := self._recheck.gang_fit_error(plan, entries, seen_generation)):
            log.info("gang %s does not begin: %s", plan.key, fit_error)
            for entry in entries:
                self._metrics.count_overtaken_bind()
                self._intake.binds.give_up_to(f"{plan.namespace}/{entry.pod}", entry.uid, entry.node)
                plan.mark_failed(entry, fit_error)
            self.finish_if_settled(plan)
            return
        for entry in entries:
            key = f"{plan.namespace}/{entry.pod}"
            if not why:
                if plan.in_flight.get(entry.pod) is entry:
                    self._bind_starter.start_bind(plan.namespace, entry, plan, seen_generation)
                continue
            plan.mark_failed(entry, why)
            self._intake.binds.give_up_to(key, entry.uid, entry.node)
            self._status_events.binding_failed(key, entry.uid, entry.node, why)
            self._bind_starter.back_off(key, entry.uid)
        if why:
            self.finish_if_settled(plan)

    async def _persist(self, plan: GangPlan) -> str:
        """Keep what is open in the record; why that failed, "" when it is there."""
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
            # What failed may be there all the same: an earlier try without an answer was carried out.
            plan.may_be_recorded = True
            data = {_QUEUE: group.spec.queue, _PODS: text}
            why = await self._records.put(BIND_PLAN, plan.key, plan.uid, data)
            if not why:
                plan.recorded_text = text
            return f"the plan of the gang could not be kept: {why}" if why else ""

    def finish_if_settled(self, plan: GangPlan) -> None:
        """Finish a plan of which nothing is open."""
        if plan.is_settled and self._plans.get(plan.key) is plan:
            del self._plans[plan.key]
            self._bind_starter.start_task(self._finish(plan), f"end of the plan of gang {plan.key}")

    async def _finish(self, plan: GangPlan) -> None:
        """Give back what was bound if the gang is not whole, then delete the record."""
        group = self._intake.groups.get(plan.key)
        if plan.failed and group is not None and group.metadata.uid == plan.uid:
            await self._evict_if_below_minimum(plan, group)
        async with self._record_locks.setdefault(plan.key, asyncio.Lock()):
            # A new plan of the group may have been written meanwhile; it is not ours to remove.
            next_plan = self._plans.get(plan.key)
            if plan.may_be_recorded and (next_plan is None or next_plan.uid != plan.uid):
                await self._records.remove(self._records.name_of(BIND_PLAN, plan.uid))
            if next_plan is None:
                self._record_locks.pop(plan.key, None)

    async def _evict_if_below_minimum(self, plan: GangPlan, group: PodGroup) -> None:
        """A gang of which pods were lost on the way keeps its nodes only if its minimum is there."""
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

    # -- plans of others --------------------------------------------------------------------------------------------

    async def take_over(self, records: Iterable[HandoverRecord], query_engine: EngineQuery) -> None:
        """Go on with the plans that another scheduler left, as far as the engine finds them right now."""
        plans: list[GangPlan] = []
        unfinished: list[UnfinishedBinds] = []
        async for record in yielding_to_loop(records):
            plan_and_places = self._read_plan(record)
            if plan_and_places is None:
                self._bind_starter.start_task(self._records.remove(record.name), f"end of record {record.name}")
                continue
            plan, places = plan_and_places
            log.info("gang %s: going on with a plan of %d pods", plan.key, len(plan.in_flight))
            plans.append(plan)
            # At once, so that what happens while the engine is asked is not missed.
            self._plans[plan.key] = plan
            if places:
                unfinished.append(UnfinishedBinds(plan.key, plan.uid, record.data.get(_QUEUE, ""), places))
        resumed, seen_generation = ResumedBinds((), {}), 0
        if unfinished:
            try:
                resumed, seen_generation = await query_engine(partial(resume, unfinished=unfinished))
            except Exception:
                log.exception("the plans that were left behind cannot be checked; none of their binds is made")
        binds: dict[str, list[Bind]] = {}
        for bind in resumed.binds:
            binds.setdefault(bind.group, []).append(bind)
        for plan in plans:
            self._resume_plan(plan, binds.get(plan.key, ()), resumed.refused, seen_generation)

    def _read_plan(self, record: HandoverRecord) -> tuple[GangPlan, tuple[PlannedBind, ...]] | None:
        """The plan in a record, and the places of it that nothing was written for; None when it is of no use."""
        group = self._intake.groups.get(record.group)
        if group is None or group.metadata.uid != record.uid or not self._covers(group):
            log.info("the plan of gang %s is deleted: there is no such PodGroup with uid %s", record.group, record.uid)
            return None
        try:
            places = decode_plan(record.data.get(_PODS, ""))
        except BindPlanError as error:
            log.warning("the plan of gang %s is deleted: %s", record.group, error)
            return None
        plan = GangPlan(record.group, record.uid, may_be_recorded=True)
        return plan, tuple(place for place in places if self._adopt_place(plan, place))

    def _adopt_place(self, plan: GangPlan, place: PlannedBind) -> bool:
        """Take a pod into a plan; whether it waits and nothing is under way for it."""
        key = f"{plan.namespace}/{place.pod}"
        request = self._intake.requests.get(key)
        if request is not None and self._intake.binds.is_effective(request) and owner_uid(request) == place.uid:
            entry = PendingBind(*place, request=msgspec.to_builtins(request.spec))
            plan.add([entry])
            plan.unwritten.discard(entry.pod)
            plan.on_pod(entry.pod, self._intake.pods.get(key))
            plan.on_request(request)
            if request.spec.selected_node != place.node:
                plan.mark_failed(entry, f"its BindRequest leads to node {request.spec.selected_node}")
            return False
        plan.add([PendingBind(*place)])
        plan.on_pod(place.pod, self._intake.pods.get(key))
        return place.pod in plan.in_flight

    def _resume_plan(
        self, plan: GangPlan, binds: Iterable[Bind], refused: Mapping[str, str], seen_generation: int
    ) -> None:
        """Bind what the engine has placed again, unless the gang cannot be whole with it."""
        rebinds = {bind.pod: bind for bind in binds}
        entries: list[PendingBind] = []
        for name in sorted(plan.unwritten & plan.in_flight.keys()):
            old = plan.in_flight[name]
            bind = rebinds.get(name)
            entry = self._bind_starter.make_pending_bind(bind) if bind is not None else None
            if entry is None or bind is None:
                why = refused.get(f"{plan.namespace}/{name}", "its place could not be checked")
                log.warning("pod %s/%s of a plan is not bound to node %s: %s", plan.namespace, name, old.node, why)
                plan.mark_failed(old, why)
                continue
            plan.add([entry])
            self._intake.binds.assume(assumed_request(plan.namespace, entry.uid, entry.spec()))
            entries.append(entry)
        can_complete = not plan.failed or self._will_reach_minimum(plan)
        loss = "without pod {} the gang is not whole: {}".format(*min(plan.failed.items())) if not can_complete else ""
        for entry in entries:
            if can_complete:
                self._bind_starter.start_bind(plan.namespace, entry, plan, seen_generation)
            else:
                self._intake.binds.give_up_to(f"{plan.namespace}/{entry.pod}", entry.uid, entry.node)
                plan.mark_failed(entry, loss)
        self.finish_if_settled(plan)

    def _will_reach_minimum(self, plan: GangPlan) -> bool:
        group = self._intake.groups.get(plan.key)
        pods = self._intake.pods_of_group(plan.key)
        return group is not None and reaches_minimum(group, pods, lambda pod: pod.metadata.name in plan.in_flight)

    def _covers(self, group: PodGroup) -> bool:
        return self._intake.tables.shard.covers(group.metadata)

    # -- pods of plans ----------------------------------------------------------------------------------------------

    def plan_of_pod(self, pod_key: str) -> GangPlan | None:
        """The open plan of a pod's group."""
        pod = self._intake.pods.get(pod_key)
        return self._plans.get(group_key(pod)) if pod is not None else None

    def fail_pod(self, pod_key: str, why: str) -> None:
        """A pod that went by a BindRequest will not be bound."""
        plan = self.plan_of_pod(pod_key)
        if plan is not None:
            entry = plan.in_flight.get(split_key(pod_key)[1])
            if entry is not None and entry.request is not None:
                plan.mark_failed(entry, why)
                self.finish_if_settled(plan)

    # -- what the watches bring -------------------------------------------------------------------------------------

    def on_pod_change(self, change: Change[Pod]) -> None:
        """News of any pod."""
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
        """News of any BindRequest."""
        if self._plans and binder_gave_up(request):
            plan = self.plan_of_pod(f"{request.metadata.namespace}/{request.spec.pod_name}")
            if plan is not None:
                plan.on_request(request)
                self.finish_if_settled(plan)


def _key(item: Pod | PodGroup) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"


def group_key(pod: Pod) -> str:
    """namespace/name of the PodGroup of a pod, "" without one."""
    name = pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION)
    return f"{pod.metadata.namespace}/{name}" if name else ""
