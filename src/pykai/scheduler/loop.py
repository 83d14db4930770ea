"""One cycle after the other, for as long as the scheduler leads.

    changes --(thread) apply, snapshot, schedule--> plan --(event loop) assume, write--> --(thread) diff--> publish

`--schedule-period` is the longest wait between two cycles; a change that matters starts one earlier, after
`--min-cycle-interval`, or after several times what the last cycle took (`_REST_FACTOR`), so that cycles leave most of a
core to the writes.  Binds go out before reasons are published.

The engine works in its own thread.  Its tables are touched there only, and only inside a cycle, so nothing needs locks;
changes that arrive meanwhile are queued by the intake.  A cycle that raises is logged and counted.  The next one starts
after a pause, and after a few failures in a row the tables are rebuilt from the caches.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from pykai.api.scheduling import PodGroup
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.clusterfigures import ClusterFigures, cluster_figures
from pykai.core.clusterview import ClusterView, build_cluster_view
from pykai.core.cycle.memory import CycleMemory
from pykai.core.model.problems import Problem
from pykai.core.policy import Policy
from pykai.core.report.decisions import Plan
from pykai.core.schedule import schedule
from pykai.kube.backoff import Backoff
from pykai.kube.clock import Clock
from pykai.kube.store import Change
from pykai.observe.logs import log_context
from pykai.scheduler.config.configfile import ConfigurationFile
from pykai.scheduler.flags import Flags
from pykai.scheduler.gccontrol import freeze_long_lived, gc_paused
from pykai.scheduler.intake.groupfeed import GroupStage
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.intake.operations import TableOperation
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.planlisteners import PlanListeners
from pykai.scheduler.problemevents import ProblemEvents
from pykai.scheduler.sinks import PlanSink, StatusSink
from pykai.scheduler.status.conditionedgroups import ConditionedGroups
from pykai.scheduler.status.starttimestamps import longest_min_runtime_ns
from pykai.scheduler.status.statusdiff import StatusTracker
from pykai.scheduler.status.statusevents import now_ns
from pykai.scheduler.usage.feed import UsageFeed
from pykai.scheduler.usage.recorder import UsageRecorder

log = logging.getLogger(__name__)
T = TypeVar("T")

#: failed cycles in a row before the tables are rebuilt
_MAX_FAILED_CYCLES = 3
_LONGEST_PAUSE_S = 30.0
#: the pause after a cycle, as a multiple of its duration, at most the period
_REST_FACTOR = 4.0
#: waiting groups from which the status diff is computed in the engine's thread
_DIFF_IN_THREAD_FROM = 20


@dataclass(frozen=True, slots=True)
class EngineResult:
    """The result of the engine's thread."""

    plan: Plan
    snapshot: Snapshot
    #: dead BindRequests
    dead_requests: list[str]
    problems: tuple[Problem, ...]
    figures: ClusterFigures
    operation_count: int
    open_s: float
    total_s: float


class Loop:
    """Runs cycles; `may_decide` says whether what a cycle has decided may still be carried out."""

    def __init__(
        self,
        intake: Intake,
        plan_sink: PlanSink,
        status_sink: StatusSink,
        problem_events: ProblemEvents,
        metrics: SchedulerMetrics,
        clock: Clock,
        configuration: ConfigurationFile,
        flags: Flags,
        usage: UsageFeed,
        recorder: UsageRecorder,
        may_decide: Callable[[], bool] = lambda: True,
    ) -> None:
        self.intake = intake
        self.configuration = configuration
        self.policy = flags.apply_to(configuration.current.policy)
        #: namespace -> the group to start with, where the last cycle deferred groups
        self._resume: dict[str, str] = {}
        #: groups that the last cycle pipelined
        self._nominated_groups: frozenset[str] = frozenset()
        #: groups that the next cycle serves first
        self._served_first: tuple[str, ...] = ()
        #: successful cycles
        self.cycles = 0
        #: monotonic seconds at the end of the last one, None before the first
        self.last_cycle_s: float | None = None
        #: held while the tables are in use
        self.engine_lock = asyncio.Lock()
        self._plan_sink = plan_sink
        self._status_sink = status_sink
        self._usage = usage
        self._recorder = recorder
        self._problem_events = problem_events
        self._metrics = metrics
        self._clock = clock
        self._may_decide = may_decide
        self._flags_are_new = False
        self._set_flags(flags)
        self._memory = CycleMemory()
        #: of the last cycle
        self.plan: Plan | None = None
        #: the last view, and after how many cycles it was made
        self._view = ClusterView()
        self._view_cycles = -1
        self._closed = False
        #: called with every plan once its writes have started
        self.plan_listeners = PlanListeners(metrics.count_failed_listener)
        #: called in the engine's thread with the cluster before a plan, and the plan
        self.on_plan_made: Callable[[Snapshot, Policy, Plan], None] | None = None
        self._status_tracker = StatusTracker()
        self._cycle_requested = asyncio.Event()
        self._last_duration_s = 0.0
        self._failures = 0
        self._cycle_numbers = itertools.count(1)
        self._thread = ThreadPoolExecutor(1, "engine")
        self._conditioned_groups = ConditionedGroups()
        metrics.set_search_budgets(self.policy)
        usage.configure(configuration.current.usage)
        self._follow_changes()

    def _follow_changes(self) -> None:
        self.intake.group_feed.subscribe(GroupStage.STATUS, self._conditioned_groups.on_group_change)
        self.intake.group_feed.subscribe(GroupStage.STATUS, self._forget_group)
        self.intake.queue.request_cycle = self.request_cycle

    @property
    def plan_holds_until_change(self) -> bool:
        """Whether the last plan holds until something in the cluster changes: no rule waits for an instant, and no
        group was deferred.
        """
        return self._memory.valid_until_ns is None and not self.intake.queue and not self._resume

    def request_cycle(self) -> None:
        """Request a cycle, because something changed."""
        self._cycle_requested.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Run cycles until stopped; a running cycle is finished."""
        self._status_tracker.forget()
        self._cycle_requested.set()
        while not stop.is_set():
            await self._wait_for_next_cycle(stop)
            if stop.is_set():
                return
            self._cycle_requested.clear()
            await self.cycle()

    def use_flags(self, flags: Flags) -> None:
        """Go on with these flags, and the configuration as it is now, from the next cycle on."""
        self._set_flags(flags)
        self._flags_are_new = True
        self.request_cycle()

    def _set_flags(self, flags: Flags) -> None:
        self._flags = flags
        self._period_s = flags.other["schedule-period"] / 1e9
        self._min_interval_s = flags.other["min-cycle-interval"] / 1e9

    async def stand_by(self, stop: asyncio.Event) -> None:
        """Keep the tables warm without deciding anything."""
        while not stop.is_set():
            async with self.engine_lock:
                operations = self.intake.queue.take()
                if operations:
                    await self._in_thread(partial(self._keep_warm, operations))
            await _wait_for_event(stop, None, self._clock.wall_s(self._period_s))

    def _keep_warm(self, operations: list[TableOperation]) -> None:
        self.intake.apply_operations(operations)
        self.intake.tables.refresh_indexes()

    def refresh_policy(self) -> None:
        """Use another configuration or other flags, if there are any."""
        if self.configuration.refresh() or self._flags_are_new:
            self._flags_are_new = False
            self.policy = self._flags.apply_to(self.configuration.current.policy)
            self._metrics.set_search_budgets(self.policy)
            self._usage.configure(self.configuration.current.usage)

    def close(self) -> None:
        """Release the thread."""
        self._closed = True
        self._thread.shutdown(wait=False)

    async def _wait_for_next_cycle(self, stop: asyncio.Event) -> None:
        """Wait for a change or the end of the period, and in any case a minimum since the last cycle."""
        loop = asyncio.get_running_loop()
        period_s = self._clock.wall_s(self._period_s)
        if self._failures:
            period_s = Backoff(max(period_s, 0.05), _LONGEST_PAUSE_S).delay_s(self._failures + 1)
            await _wait_for_event(stop, None, period_s)
            return
        await _wait_for_event(stop, self._cycle_requested, period_s)
        if self.last_cycle_s is not None:
            # A stream of changes is taken in batches: most of the time is left to dispatch, and at least half of it
            # however fast the cluster's clock runs.
            took_s = self._last_duration_s
            min_wait_s = max(self._min_interval_s, min(took_s, self._period_s), min(_REST_FACTOR * took_s, period_s))
            await _wait_for_event(stop, None, self.last_cycle_s + min_wait_s - loop.time())

    async def cycle(self) -> Plan | None:
        """One cycle: apply changes, decide, start the writes, publish reasons.  None if it failed.

        Statements: cycle:CYC-2, CYC-5.
        """
        self.refresh_policy()
        self._problem_events.report_configuration(self.configuration.problems)
        async with self.engine_lock:
            with log_context(session=f"{next(self._cycle_numbers):06d}"):
                try:
                    return await self._cycle()
                except Exception:
                    # The next cycle starts from the tables again, without what this one remembered.
                    self._failures += 1
                    self._memory = CycleMemory()
                    self._metrics.count_failed_cycle()
                    log.exception("the cycle failed %d times in a row", self._failures)
                    if self._failures >= _MAX_FAILED_CYCLES:
                        log.error("the tables are rebuilt from the caches")
                        self.intake.rebuild_tables()
                    return None

    async def _cycle(self) -> Plan:
        loop = asyncio.get_running_loop()
        # A pause may end while the engine works; the plan does not know that.
        groups_backing_off = self._plan_sink.groups_backing_off()
        operations, seen_generation = self.intake.queue.take(), self.intake.generations.latest
        at_ns, policy = now_ns(self._clock), self.effective_policy
        engine_result = await self._in_thread(partial(self._run_engine, operations, at_ns, policy))
        plan = self.plan = engine_result.plan
        if not self._may_decide():
            log.info("the plan of this cycle is dropped: another process decides in place of this one")
            return plan
        self._recorder.record(at_ns, plan.queues, engine_result.snapshot.cluster_amounts)
        self._resume = dict(plan.resume or ())
        self._nominated_groups = frozenset(item.group for item in plan.nominations)
        self._served_first = tuple(plan.served_first or ())
        self._plan_sink.delete_dead_requests(engine_result.dead_requests)
        await self._plan_sink.dispatch(plan, seen_generation)
        self.plan_listeners.publish(plan)
        self._metrics.observe_cycle(
            open_s=engine_result.open_s, total_s=engine_result.total_s, changes=engine_result.operation_count
        )
        self._metrics.record_plan(plan, policy.usage, engine_result.figures)
        self._metrics.cluster.publish(engine_result.figures)
        self._metrics.cluster.keep_nodes(engine_result.snapshot.nodes.rows)
        queues = engine_result.snapshot.group_index.queues
        self._metrics.set_gated_pods({name: count.held.tasks for name, count in queues.items() if count.held.tasks})
        self._problem_events.report_problems(
            (*engine_result.snapshot.problems, *engine_result.problems, *self.intake.sanitising_problems.in_order()),
            plan.problems,
        )
        began_s = loop.time()
        compute_diff = partial(
            self._status_tracker.diff,
            plan,
            engine_result.snapshot,
            self._conditioned_groups.current(),
            groups_backing_off | self._plan_sink.groups_backing_off(),
            protected_ns=longest_min_runtime_ns(self.policy, engine_result.snapshot),
        )
        diff = compute_diff() if len(plan.unscheduled) < _DIFF_IN_THREAD_FROM else await self._in_thread(compute_diff)
        await self._status_sink.publish(diff)
        self._metrics.observe_status_diff(loop.time() - began_s)
        self._failures = 0
        self._last_duration_s = engine_result.total_s
        self.last_cycle_s = loop.time()
        self.cycles += 1
        if self.cycles == 1:
            freeze_long_lived(len(self.intake.pods))
        if plan.binds or plan.evictions:
            log.debug("%d binds, %d evictions", len(plan.binds), len(plan.evictions))
        return plan

    async def cluster_view(self) -> ClusterView:
        """The cluster at the end of the last cycle; made on demand, at most once a cycle.

        While a cycle runs, or after the last one, callers get the previous view.
        """
        if self._view_cycles != self.cycles and not self.engine_lock.locked() and not self._closed:
            async with self.engine_lock:
                cycles, at_ns = self.cycles, now_ns(self._clock)
                self._view = await self._in_thread(
                    lambda: build_cluster_view(self.intake.tables.snapshot(at_ns), self.plan)
                )
                self._view_cycles = cycles
        return self._view

    @property
    def effective_policy(self) -> Policy:
        """The policy, with the usage of queues and the groups to start with."""
        policy = self._policy_with_usage()
        if not self._resume and not self._nominated_groups and not self._served_first:
            return policy
        return replace(
            policy,
            resume=self._resume,
            nominated_groups=self._nominated_groups,
            served_first=self._served_first,
        )

    def _policy_with_usage(self) -> Policy:
        usage = self._usage.current(now_ns(self._clock))
        return replace(self.policy, usage=usage) if usage else self.policy

    def _run_engine(self, operations: list[TableOperation], at_ns: int, policy: Policy) -> EngineResult:
        """The engine's part; no await, no I/O."""
        with gc_paused():
            began_s = time.perf_counter()
            applied = self.intake.apply_operations(operations)
            snapshot = self.intake.tables.snapshot(at_ns)
            opened_s = time.perf_counter()
            plan = schedule(snapshot, policy, self._memory, self._metrics.cycle)
            dead_requests = self.intake.tables.stale_bind_requests()
            figures = cluster_figures(snapshot, plan)
            ended_s = time.perf_counter()
            if self.on_plan_made is not None:
                # The cycle has changed its own snapshot.
                self.on_plan_made(self.intake.tables.snapshot(at_ns), policy, plan)
        return EngineResult(
            plan,
            snapshot,
            dead_requests,
            applied.problems,
            figures,
            applied.operations,
            opened_s - began_s,
            ended_s - began_s,
        )

    async def query_engine(self, query: Callable[[Snapshot, Policy], T]) -> T:
        """Query the cluster as the next cycle would see it, between two cycles."""
        async with self.engine_lock:
            at_ns, policy = now_ns(self._clock), self._policy_with_usage()
            return await self._in_thread(lambda: query(self.intake.tables.snapshot(at_ns), policy))

    async def query_engine_up_to_date(
        self, query: Callable[[Snapshot, Policy], T], prepare: Callable[[], None] = lambda: None
    ) -> tuple[T, int]:
        """The same with all changes so far applied; also the generation of nodes until then.

        `prepare` may make changes that no cycle must see alone.  What the caller assumes before its next await is in
        the tables before the next cycle.
        """
        async with self.engine_lock:
            prepare()
            operations, seen_generation = self.intake.queue.take(), self.intake.generations.latest
            at_ns, policy = now_ns(self._clock), self._policy_with_usage()

            def apply_and_query() -> T:
                self.intake.apply_operations(operations)
                return query(self.intake.tables.snapshot(at_ns), policy)

            return await self._in_thread(apply_and_query), seen_generation

    # One thread computes at a time (cycle:PRC-9).
    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _forget_group(self, change: Change[PodGroup]) -> None:
        if change.new is None:
            self._metrics.forget_group(change.key)


async def _wait_for_event(stop: asyncio.Event, woken: asyncio.Event | None, seconds: float) -> None:
    """Wait for one of the events, at most this long."""
    if seconds <= 0 or stop.is_set() or (woken is not None and woken.is_set()):
        return
    waits = [asyncio.ensure_future(event.wait()) for event in (stop, woken) if event is not None]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
