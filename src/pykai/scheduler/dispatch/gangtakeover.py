"""Plans of gangs that another scheduler left behind: resumed before the first cycle.

A plan is only a hint here: the engine decides again whether each pod may be bound to its node (`core.resume`); other
binds are dropped.

Statements: cycle:STM.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

import msgspec

from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.scheduling import BindRequest, PodGroup
from pykai.core.model.shard import Shard
from pykai.core.report.decisions import Bind, PlannedBind
from pykai.core.resume import ResumedBinds, UnfinishedBinds, resume
from pykai.kube.store import Store
from pykai.kube.yielding import yielding_to_loop
from pykai.scheduler.dispatch.backgroundtasks import BackgroundTasks
from pykai.scheduler.dispatch.bindplan import BindPlanError, PendingBind, decode_plan
from pykai.scheduler.dispatch.bindrequests import assumed_request
from pykai.scheduler.dispatch.gangbinding import RECORD_PODS, RECORD_QUEUE, GangBinding
from pykai.scheduler.dispatch.gangplans import GangPlan, reaches_minimum
from pykai.scheduler.dispatch.podbinding import PodBinding
from pykai.scheduler.dispatch.records import HandoverRecord, HandoverRecords
from pykai.scheduler.enginequery import EngineQuery
from pykai.scheduler.intake.bindassumptions import BindAssumptions
from pykai.scheduler.sanitising.requestverifier import owner_uid

log = logging.getLogger(__name__)


class GangTakeover:
    """Reads plans from records, and resumes them."""

    def __init__(
        self,
        records: HandoverRecords,
        pods: Store[Pod],
        groups: Store[PodGroup],
        requests: Store[BindRequest],
        pods_of_group: Callable[[str], Collection[Pod]],
        binds: BindAssumptions,
        shard: Shard,
        tasks: BackgroundTasks,
        pod_binding: PodBinding,
        gang_binding: GangBinding,
    ) -> None:
        self._records = records
        self._pods = pods
        self._groups = groups
        self._requests = requests
        self._pods_of_group = pods_of_group
        self._binds = binds
        self._shard = shard
        self._tasks = tasks
        self._pod_binding = pod_binding
        self._gang_binding = gang_binding

    async def take_over(self, records: Iterable[HandoverRecord], query_engine: EngineQuery) -> None:
        """Resume the plans that another scheduler left, as far as the engine finds them valid now."""
        plans: list[GangPlan] = []
        unfinished: list[UnfinishedBinds] = []
        async for record in yielding_to_loop(records):
            plan_and_places = self._read_plan(record)
            if plan_and_places is None:
                self._tasks.start(self._records.remove(record.name), f"end of record {record.name}")
                continue
            plan, places = plan_and_places
            log.info("gang %s: resuming a plan of %d pods", plan.key, len(plan.in_flight))
            plans.append(plan)
            # At once, so that no change during the engine's check is missed.
            self._gang_binding.adopt(plan)
            if places:
                unfinished.append(UnfinishedBinds(plan.key, plan.uid, record.data.get(RECORD_QUEUE, ""), places))
        resumed, seen_generation = ResumedBinds((), {}), 0
        if unfinished:
            try:
                resumed, seen_generation = await query_engine(partial(resume, unfinished=unfinished))
            except Exception:
                # A new leader must start, so pods of these plans are scheduled again.
                log.exception("the plans that were left behind cannot be checked; none of their pods is bound")
        binds: dict[str, list[Bind]] = {}
        for bind in resumed.binds:
            binds.setdefault(bind.group, []).append(bind)
        for plan in plans:
            self._resume_plan(plan, binds.get(plan.key, ()), resumed.refused, seen_generation)

    def _read_plan(self, record: HandoverRecord) -> tuple[GangPlan, tuple[PlannedBind, ...]] | None:
        """The plan in a record, and its binds that were not written; None if it is useless."""
        group = self._groups.get(record.group)
        if group is None or group.metadata.uid != record.uid or not self._shard.covers(group.metadata):
            log.info("the plan of gang %s is deleted: there is no such PodGroup with uid %s", record.group, record.uid)
            return None
        try:
            places = decode_plan(record.data.get(RECORD_PODS, ""))
        except BindPlanError as error:
            log.warning("the plan of gang %s is deleted: %s", record.group, error)
            return None
        plan = GangPlan(record.group, record.uid, may_be_recorded=True)
        return plan, tuple(place for place in places if self._adopt_place(plan, place))

    def _adopt_place(self, plan: GangPlan, place: PlannedBind) -> bool:
        """Add a pod to a plan; whether it waits and no write is in progress for it."""
        key = object_key(plan.namespace, place.pod)
        request = self._requests.get(key)
        if request is not None and self._binds.is_effective(request) and owner_uid(request) == place.uid:
            entry = PendingBind(*place, request=msgspec.to_builtins(request.spec))
            plan.add([entry])
            plan.unwritten.discard(entry.pod)
            plan.on_pod(entry.pod, self._pods.get(key))
            plan.on_request(request)
            if request.spec.selected_node != place.node:
                plan.mark_failed(entry, f"its BindRequest leads to node {request.spec.selected_node}")
            return False
        plan.add([PendingBind(*place)])
        plan.on_pod(place.pod, self._pods.get(key))
        return place.pod in plan.in_flight

    def _resume_plan(
        self, plan: GangPlan, binds: Iterable[Bind], refused: Mapping[str, str], seen_generation: int
    ) -> None:
        """Bind what the engine has placed again, unless the gang stays incomplete."""
        rebinds = {bind.pod: bind for bind in binds}
        entries: list[PendingBind] = []
        for name in sorted(plan.unwritten & plan.in_flight.keys()):
            old = plan.in_flight[name]
            bind = rebinds.get(name)
            entry = self._pod_binding.make_pending_bind(bind) if bind is not None else None
            if entry is None or bind is None:
                why = refused.get(object_key(plan.namespace, name), "its place could not be checked")
                log.warning("pod %s/%s of a plan is not bound to node %s: %s", plan.namespace, name, old.node, why)
                plan.mark_failed(old, why)
                continue
            plan.add([entry])
            self._binds.assume(assumed_request(plan.namespace, entry.uid, entry.spec()))
            entries.append(entry)
        can_complete = not plan.failed or self._will_reach_minimum(plan)
        loss = "without pod {} the gang is not whole: {}".format(*min(plan.failed.items())) if not can_complete else ""
        for entry in entries:
            if can_complete:
                self._gang_binding.bind_pod(plan, entry, seen_generation)
            else:
                self._binds.give_up(object_key(plan.namespace, entry.pod), entry.uid, entry.node)
                plan.mark_failed(entry, loss)
        self._gang_binding.finish_if_settled(plan)

    def _will_reach_minimum(self, plan: GangPlan) -> bool:
        group = self._groups.get(plan.key)
        pods = self._pods_of_group(plan.key)
        return group is not None and reaches_minimum(group, pods, lambda pod: pod.metadata.name in plan.in_flight)
