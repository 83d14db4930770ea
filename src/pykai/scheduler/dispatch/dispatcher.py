"""Decisions become writes, many at a time, and failures are handled.

    plan --> Dispatcher --+--> PodBinding: a single bind is one write
                          +--> GangBinding: several binds of one group have a plan, kept in a record
                          +--> Evictions, or Suspension of their owner; Resumption when it fits again
                          +--> Ungating: gates of queues
    watch --> FailedRequests, FailedBinds, BindBackoff: what failed pauses, and evicts no more

`dispatch` assumes every decision of a plan at once, so that the next cycle builds on it, and starts the writes; it does
not wait for them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.core.model.shard import Shard
from pykai.core.report.decisions import Plan
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.store import Change
from pykai.kube.yielding import yielding_to_loop
from pykai.scheduler.dispatch.backgroundtasks import BackgroundTasks
from pykai.scheduler.dispatch.bindbackoff import BindBackoff
from pykai.scheduler.dispatch.bindplan import PendingBind
from pykai.scheduler.dispatch.bindrequests import assumed_request, request_spec
from pykai.scheduler.dispatch.bindwriter import BindWriter
from pykai.scheduler.dispatch.deletions import Deletions
from pykai.scheduler.dispatch.evictions import Evictions
from pykai.scheduler.dispatch.failedbinds import FailedBinds
from pykai.scheduler.dispatch.failedrequests import FailedRequests
from pykai.scheduler.dispatch.gangbinding import GangBinding
from pykai.scheduler.dispatch.gangplans import group_key
from pykai.scheduler.dispatch.gangrollback import GangRollback
from pykai.scheduler.dispatch.gangtakeover import GangTakeover
from pykai.scheduler.dispatch.noderecheck import NodeRecheck
from pykai.scheduler.dispatch.podbinding import PodBinding
from pykai.scheduler.dispatch.records import BIND_PLAN, FAILED_BINDS, SUSPENDED_WORKLOAD, HandoverRecords
from pykai.scheduler.dispatch.resumption import Resumption
from pykai.scheduler.dispatch.suspendedworkloads import SuspendedWorkloads
from pykai.scheduler.dispatch.suspendtakeover import SuspendTakeover
from pykai.scheduler.dispatch.suspension import Suspension
from pykai.scheduler.dispatch.ungating import Ungating
from pykai.scheduler.enginequery import EngineQuery
from pykai.scheduler.intake.groupfeed import GroupStage
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.intake.pendingevictions import preemptor_reference
from pykai.scheduler.intake.placeholderpods import is_placeholder
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.status.statusevents import StatusEvents, is_waiting

log = logging.getLogger(__name__)


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
        self._tasks = tasks = BackgroundTasks()
        self._pods, self._binds, self._statuses = pods, binds, statuses = intake.pods, intake.binds, intake.statuses
        groups, requests, pods_of_group = intake.groups, intake.requests, intake.pods_of_group
        deletions = Deletions(
            client,
            pods,
            statuses,
            clock,
            mark_disruption=mark_evicted,
            stuck_after_ns=shard.stuck_after_ns,
            in_flight=in_flight,
        )
        recheck = NodeRecheck(pods, intake.nodes, requests, binds, intake.generations, intake.shared_gpus)
        self._failed_binds = failed = FailedBinds(
            records, groups, pods_of_group, intake.group_intake, status_events, tasks
        )
        self._backoff = backoff = BindBackoff(pods, binds, statuses, failed, clock)
        self._pod_binding = binding = PodBinding(
            BindWriter(client, shard, in_flight=in_flight),
            pods,
            groups,
            binds,
            status_events,
            metrics,
            clock,
            tasks,
            recheck,
            failed,
            backoff,
            fast_bind=fast_bind,
        )
        rollback = GangRollback(pods_of_group, statuses, status_events, deletions, metrics, clock)
        self._gang_binding = gangs = GangBinding(
            records, pods, groups, pods_of_group, binds, recheck, binding, rollback, tasks, clock
        )
        self._takeover = GangTakeover(
            records, pods, groups, requests, pods_of_group, binds, shard, tasks, binding, gangs
        )
        self._evictions = Evictions(
            pods, groups, requests, binds, statuses, status_events, metrics, deletions, binding, gangs
        )
        self._ungating = Ungating(client, intake, status_events, metrics, clock, in_flight=in_flight)
        self._wire_suspension(client, intake, status_events, shard, clock, deletions)
        self._follow_changes(intake, shard, deletions)

    def _follow_changes(self, intake: Intake, shard: Shard, deletions: Deletions) -> None:
        pods, requests, binds, failed = intake.pods, intake.requests, intake.binds, self._failed_binds
        self._failed_requests = FailedRequests(
            pods,
            requests,
            binds,
            shard,
            self._tasks,
            deletions,
            failed,
            self._backoff,
            self._pod_binding,
            self._gang_binding,
        )
        pods.subscribe(self._on_pod)
        intake.group_feed.subscribe(GroupStage.DISPATCH, failed.on_group_change)
        intake.group_feed.subscribe(GroupStage.DISPATCH, self._resumption.on_group_change)
        requests.subscribe(self._failed_requests.on_request_change)

    def _wire_suspension(
        self,
        client: Client,
        intake: Intake,
        status_events: StatusEvents,
        shard: Shard,
        clock: Clock,
        deletions: Deletions,
    ) -> None:
        """Put the parts together that suspend evicted workloads and resume them."""
        pods, groups, pods_of_group = intake.pods, intake.groups, intake.pods_of_group
        binds, statuses, tasks = intake.binds, intake.statuses, self._tasks
        self._workloads = SuspendedWorkloads(
            self._records, pods_of_group, intake.placeholders, binds, statuses, intake.pod_intake, tasks
        )
        self._suspension = Suspension(
            client,
            groups,
            pods_of_group,
            statuses,
            status_events,
            deletions,
            self._evictions,
            self._workloads,
            tasks,
            clock,
        )
        self._resumption = Resumption(
            client,
            pods,
            groups,
            pods_of_group,
            binds,
            statuses,
            intake.pod_intake,
            status_events,
            self._workloads,
            self._suspension,
            self._ungating,
            self._pod_binding,
            self._gang_binding,
            tasks,
            clock,
        )
        self._suspend_takeover = SuspendTakeover(
            client, self._records, groups, shard, self._workloads, self._suspension, self._resumption, tasks, clock
        )

    @property
    def has_binds_in_flight(self) -> bool:
        """Whether binds are in progress."""
        return bool(self._pod_binding)

    @property
    def unsettled_gangs(self) -> int:
        """Gangs that are not settled."""
        return len(self._gang_binding)

    def groups_backing_off(self) -> set[str]:
        """Groups with a pod that pauses after a refused bind."""
        pods = map(self._pods.get, self._backoff.pods())
        return {group_key(pod) for pod in pods if pod is not None}

    async def take_over(self, query_engine: EngineQuery) -> None:
        """Become responsible: plans left behind are finished before any new decision."""
        records = await self._records.list_records()
        self._failed_requests.leading = True
        self._failed_binds.take_over(each for each in records if each.kind == FAILED_BINDS)
        await self._takeover.take_over([each for each in records if each.kind == BIND_PLAN], query_engine)
        await self._suspend_takeover.take_over(
            [each for each in records if each.kind == SUSPENDED_WORKLOAD], query_engine
        )

    async def drain(self, timeout_s: float = 10.0) -> bool:
        """Wait for the writes in progress; False on a timeout."""
        return await self._tasks.drain(timeout_s)

    def stop(self) -> None:
        """Start nothing more, and cancel writes in progress: the next leader resumes them."""
        self._failed_requests.leading = False
        self._backoff.stop()
        self._ungating.stop()
        # The watches go on for a while; the next leader handles what they bring.
        self._gang_binding.stop()
        self._failed_binds.stop()
        self._workloads.stop()
        self._tasks.cancel()

    async def dispatch(self, plan: Plan, seen_generation: int = 0) -> None:
        """Assume the decisions of a plan, and start to write them; the cycle has seen nodes up to `seen_generation`."""
        groups, incomplete = await self._assume(plan)
        async for key, decided in yielding_to_loop(groups.items()):
            self._gang_binding.start_binds(key, decided, seen_generation, lost=key in incomplete)
        suspended = self._suspension.select(plan.evictions)
        async for eviction in yielding_to_loop(plan.evictions):
            if eviction.group not in suspended and not is_placeholder(eviction.uid):
                self._tasks.start(self._evictions.evict(eviction), f"eviction of {eviction.namespace}/{eviction.pod}")
        for key, evictions in suspended.items():
            self._tasks.start(self._suspension.suspend(key, evictions), f"suspension of {key}")
        async for opened in yielding_to_loop(plan.ungates or ()):
            admitted = self._ungating.assume(opened, plan.now_ns)
            if admitted is not None:
                self._tasks.start(self._ungating.open(opened, admitted), f"gate of {opened.namespace}/{opened.pod}")

    async def _assume(self, plan: Plan) -> tuple[dict[str, list[PendingBind]], set[str]]:
        """Assume decisions; returns the binds by group, and the groups that lost a pod meanwhile."""
        groups: dict[str, list[PendingBind]] = {}
        incomplete: set[str] = set()
        placeholders = [bind for bind in plan.binds if is_placeholder(bind.uid)]
        self._resumption.assume(placeholders)
        self._resumption.evicted(each.group for each in plan.evictions if is_placeholder(each.uid))
        async for bind in yielding_to_loop(plan.binds):
            if is_placeholder(bind.uid):
                continue
            entry = self._pod_binding.make_pending_bind(bind)
            if entry is None:
                incomplete.add(bind.group)
            else:
                self._binds.assume(assumed_request(bind.namespace, bind.uid, request_spec(bind)))
                groups.setdefault(bind.group, []).append(entry)
        async for eviction in yielding_to_loop(plan.evictions):
            key = object_key(eviction.namespace, eviction.pod)
            self._statuses.assume_eviction(key, eviction.uid, preemptor_reference(eviction))
        return groups, incomplete

    def delete_dead_requests(self, keys: Iterable[str]) -> None:
        """Delete dead BindRequests."""
        self._failed_requests.delete_dead(keys)

    def _on_pod(self, change: Change[Pod]) -> None:
        pod, old = change.new, change.old
        is_new = old is None or pod is None or pod.metadata.uid != old.metadata.uid
        if old is not None and is_new:
            self._backoff.forget(old)
        if change.key in self._backoff and (pod is None or not is_waiting(pod)):
            self._backoff.end(change.key)
        self._gang_binding.on_pod_change(change)
        self._resumption.on_pod_change(change)
        for group in dict.fromkeys(group_key(each) for each in (old, pod) if each is not None):
            self._failed_binds.on_pod_change(change, group)
        if pod is not None and is_waiting(pod) and is_new:
            self._backoff.inherit(change.key, pod)
