"""Binds of gangs: the plan is recorded before the first bind and deleted after the last.

Several binds of one group are a gang: its plan is kept in a record before the first of them (`records`, `bindplan`,
`gangplans`), and deleted when all are settled.  If a gang can no longer reach its minimum, because a bind was refused
for good, the part that was bound is evicted (`gangrollback`).

`podbinding` makes each bind; `gangtakeover` resumes the plans that another scheduler left behind.

Statements: cycle:STM.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial

from pykai.api.core import Pod
from pykai.api.keys import object_key, split_key
from pykai.api.scheduling import BindRequest, PodGroup
from pykai.kube.clock import Clock
from pykai.kube.store import Change, Store
from pykai.scheduler.dispatch.backgroundtasks import BackgroundTasks
from pykai.scheduler.dispatch.bindplan import BindPlanError, PendingBind
from pykai.scheduler.dispatch.bindwriter import BindOutcome, BindResult
from pykai.scheduler.dispatch.gangplans import GangPlan, binder_gave_up, group_key, reaches_minimum
from pykai.scheduler.dispatch.gangrollback import GangRollback
from pykai.scheduler.dispatch.noderecheck import NodeRecheck
from pykai.scheduler.dispatch.podbinding import PodBinding
from pykai.scheduler.dispatch.records import BIND_PLAN, HandoverRecords
from pykai.scheduler.intake.bindassumptions import BindAssumptions

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
        pods: Store[Pod],
        groups: Store[PodGroup],
        pods_of_group: Callable[[str], Collection[Pod]],
        binds: BindAssumptions,
        recheck: NodeRecheck,
        pod_binding: PodBinding,
        rollback: GangRollback,
        tasks: BackgroundTasks,
        clock: Clock,
    ) -> None:
        self._records = records
        self._pods = pods
        self._groups = groups
        self._pods_of_group = pods_of_group
        self._binds = binds
        self._recheck = recheck
        self._pod_binding = pod_binding
        self._rollback = rollback
        self._tasks = tasks
        self._clock = clock
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
        group = self._groups.get(key)
        return group is None or reaches_minimum(group, self._pods_of_group(key), self._is_being_bound)

    def _is_being_bound(self, pod: Pod) -> bool:
        return self._binds.is_assumed(object_key(pod.metadata.namespace, pod.metadata.name))

    def start_binds(self, key: str, decided: list[PendingBind], seen_generation: int, *, lost: bool) -> None:
        """Start the binds of a group, several of them as a gang; `lost` says that a pod of it went meanwhile."""
        namespace, _ = split_key(key)
        entries = [
            entry for entry in decided if self._pod_binding.can_be_bound(object_key(namespace, entry.pod), entry.uid)
        ]
        if (lost or len(entries) < len(decided)) and not self.can_reach_minimum(key):
            log.info("gang %s does not begin: one of its pods went while it was decided", key)
            for entry in entries:
                self._binds.give_up(object_key(namespace, entry.pod), entry.uid, entry.node)
        elif len(entries) == 1 and key not in self._plans:
            self._pod_binding.start(namespace, entries[0], seen_generation)
        elif entries:
            self.bind_gang(key, entries, seen_generation)

    def bind_gang(self, key: str, entries: list[PendingBind], seen_generation: int) -> None:
        """Bind several pods of a group, or more of a gang that is being bound."""
        group = self._groups.get(key)
        if group is None:
            for entry in entries:
                self._binds.give_up(object_key(split_key(key)[0], entry.pod), entry.uid, entry.node)
            return
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = GangPlan(key, group.metadata.uid)
        plan.add(entries)
        self._tasks.start(self._persist_and_bind(plan, entries, seen_generation), f"plan of gang {key}")

    async def _persist_and_bind(self, plan: GangPlan, entries: list[PendingBind], seen_generation: int) -> None:
        """Persist the plan, then bind."""
        why = await self._persist(plan)
        if not why and (fit_error := self._fit_error(plan, entries, seen_generation)):
            log.info("gang %s does not begin: %s", plan.key, fit_error)
            for entry in entries:
                self._pod_binding.drop_overtaken(plan.namespace, entry)
                plan.mark_failed(entry, fit_error)
            self.finish_if_settled(plan)
            return
        for entry in entries:
            if not why:
                if plan.in_flight.get(entry.pod) is entry:
                    self.bind_pod(plan, entry, seen_generation)
                continue
            plan.mark_failed(entry, why)
            self._pod_binding.drop_unrecorded(plan.namespace, entry, why)
        if why:
            self.finish_if_settled(plan)

    def _fit_error(self, plan: GangPlan, entries: Iterable[PendingBind], seen_generation: int) -> str:
        """Why a gang with no bound pod can no longer be complete, "" if it can."""
        fit_errors = {entry.pod: self._recheck.fit_error(plan.namespace, entry, seen_generation) for entry in entries}
        group = self._groups.get(plan.key)
        if plan.bound or group is None or not any(fit_errors.values()):
            return ""

        def will_be_bound(pod: Pod) -> bool:
            return not fit_errors.get(pod.metadata.name) and self._is_being_bound(pod)

        has_minimum = reaches_minimum(group, self._pods_of_group(plan.key), will_be_bound)
        return "" if has_minimum else next(why for why in fit_errors.values() if why)

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
            plan.on_pod(entry.pod, self._pods.get(object_key(plan.namespace, entry.pod)))
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
            group = self._groups.get(plan.key)
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
        group = self._groups.get(plan.key)
        if plan.failed and group is not None and group.metadata.uid == plan.uid:
            if not self.can_reach_minimum(plan.key):
                await self._rollback.evict_bound_pods(plan, group)
        async with self._record_locks.setdefault(plan.key, asyncio.Lock()):
            # A new plan of the group may have been written meanwhile; it must stay.
            next_plan = self._plans.get(plan.key)
            if plan.may_be_recorded and (next_plan is None or next_plan.uid != plan.uid):
                await self._records.remove(self._records.name_of(BIND_PLAN, plan.uid))
            if next_plan is None:
                self._record_locks.pop(plan.key, None)

    def plan_of_pod(self, pod_key: str) -> GangPlan | None:
        """The open plan of a pod's group."""
        pod = self._pods.get(pod_key)
        return self._plans.get(group_key(pod)) if pod is not None else None

    def fail_pod(self, pod_key: str, uid: str, why: str) -> None:
        """Record that a pod with a BindRequest will not be bound; another pod of its name is left alone."""
        plan = self.plan_of_pod(pod_key)
        if plan is not None:
            entry = plan.in_flight.get(split_key(pod_key)[1])
            if entry is not None and entry.uid == uid and entry.request is not None:
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
