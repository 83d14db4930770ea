"""One cycle after the other, for as long as the scheduler leads.

    changes --(thread) digest, snapshot, schedule--> plan --(event loop) assume, write--> --(thread) news--> announce

`--schedule-period` is the longest wait between two cycles; a change that matters starts one earlier, after
`--min-cycle-interval`, or after as long as the last cycle took if that was longer, so that cycles never take more than
half of a core.  Binds go out before anybody is told why he waits.

The engine works in a thread of its own.  Its tables are touched there only, and only inside a cycle, so nothing needs
locks; what arrives meanwhile is written down by the intake.  A cycle that raises is logged and counted; the next comes
after a pause, and after a few in a row the tables are built anew from the caches.
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
from pykai.core.cycle.memory import CycleMemory
from pykai.core.model.problems import Problem
from pykai.core.policy import Policy
from pykai.core.report.decisions import Plan
from pykai.core.schedule import schedule
from pykai.kube.clock import Clock
from pykai.kube.store import Change
from pykai.observe.logs import context
from pykai.scheduler.config.configfile import ConfigurationFile
from pykai.scheduler.flags import Flags
from pykai.scheduler.gccontrol import collector_paused, settle
from pykai.scheduler.intake.backlog import Operation
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.problemevents import Complaints
from pykai.scheduler.sinks import NewsOutlet, PlanOutlet
from pykai.scheduler.status.startstamps import longest_ns
from pykai.scheduler.status.statusdiff import StatusBook
from pykai.scheduler.status.statusevents import now_ns

log = logging.getLogger(__name__)
T = TypeVar("T")

#: failed cycles in a row before the tables are built anew
_PATIENCE = 3
_LONGEST_PAUSE_S = 30.0
#: a cycle is followed by a pause of so many times what it took, at most the period
_REST = 4.0
#: waiting groups above which their news are found in the engine's thread
_MANY = 20


@dataclass(frozen=True, slots=True)
class Worked:
    """What the engine's thread brings back."""

    plan: Plan
    snapshot: Snapshot
    #: BindRequests that nobody waits for
    dead: list[str]
    problems: tuple[Problem, ...]
    changes: int
    open_s: float
    total_s: float


class Loop:
    """Runs cycles."""

    def __init__(
        self,
        intake: Intake,
        dispatcher: PlanOutlet,
        announcer: NewsOutlet,
        complaints: Complaints,
        metrics: SchedulerMetrics,
        clock: Clock,
        configuration: ConfigurationFile,
        flags: Flags,
    ) -> None:
        self.intake = intake
        self.configuration = configuration
        self.policy = flags.shaping(configuration.current.policy)
        #: namespace -> the group with which its turn begins, where the last cycle put groups off
        self._resume: dict[str, str] = {}
        #: groups that the last cycle promised places
        self._promised: frozenset[str] = frozenset()
        #: cycles that ended well
        self.cycles = 0
        #: monotonic seconds when the last one did, None before the first
        self.last_s: float | None = None
        #: held by whoever uses the tables
        self.engine = asyncio.Lock()
        self._dispatcher = dispatcher
        self._announcer = announcer
        self._complaints = complaints
        self._metrics = metrics
        self._clock = clock
        self._flags = flags
        self._period_s = flags.other["schedule-period"] / 1e9
        self._least_s = flags.other["min-cycle-interval"] / 1e9
        self._memory = CycleMemory()
        #: of the last cycle
        self.plan: Plan | None = None
        #: told of every plan once it is being carried out
        self.listeners: list[Callable[[Plan], None]] = []
        self._book = StatusBook()
        self._woken = asyncio.Event()
        self._took_s = 0.0
        self._failures = 0
        self._numbers = itertools.count(1)
        self._thread = ThreadPoolExecutor(1, "engine")
        #: groups with scheduling conditions; replaced when it changes
        self._conditioned: frozenset[str] = frozenset()
        self._conditioned_now: set[str] = set()
        self._conditions_changed = False
        metrics.budgets(self.policy)
        intake.groups.subscribe(self._on_group)
        intake.wake = self.wake

    @property
    def holds_for_good(self) -> bool:
        """Whether the last plan holds until something in the cluster changes: no rule waits for an instant to come, and
        no group for its turn."""
        return self._memory.valid_until_ns is None and not self.intake.waiting and not self._resume

    def wake(self) -> None:
        """Something changed that a cycle should see."""
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Run cycles until told to stop; a cycle under way is finished."""
        self._book.forget()
        self._woken.set()
        while not stop.is_set():
            await self._rest(stop)
            if stop.is_set():
                return
            self._woken.clear()
            await self.cycle()

    async def stand_by(self, stop: asyncio.Event) -> None:
        """Keep the tables warm without deciding anything."""
        while not stop.is_set():
            async with self.engine:
                operations = self.intake.take()
                if operations:
                    await self._in_thread(partial(self._keep_warm, operations))
            await _either(stop, None, self._clock.wall_s(self._period_s))

    def _keep_warm(self, operations: list[Operation]) -> None:
        self.intake.digest(operations)
        self.intake.tables.refresh_indexes()

    def close(self) -> None:
        """Give up the thread."""
        self._thread.shutdown(wait=False)

    async def _rest(self, stop: asyncio.Event) -> None:
        """Wait for a change or the end of the period, and in any case a minimum since the last cycle."""
        loop = asyncio.get_running_loop()
        period_s = self._clock.wall_s(self._period_s)
        if self._failures:
            period_s = min(_LONGEST_PAUSE_S, max(period_s, 0.05) * 2.0 ** min(self._failures, 16))
            await _either(stop, None, period_s)
            return
        await _either(stop, self._woken, period_s)
        if self.last_s is not None:
            # A stream of changes is taken in batches: most of the time is left to those who carry decisions out.
            # At least half of it is, however fast the cluster's clock runs.
            took_s = self._took_s
            least_s = max(self._least_s, min(took_s, self._period_s), min(_REST * took_s, period_s))
            await _either(stop, None, self.last_s + least_s - loop.time())

    async def cycle(self) -> Plan | None:
        """One cycle: take changes in, decide, start the writes, find out what to tell.  None when it failed.

        Statements: cycle:CYC-2, CYC-5.
        """
        if self.configuration.refresh():
            self.policy = self._flags.shaping(self.configuration.current.policy)
            self._metrics.budgets(self.policy)
        self._complaints.configuration(self.configuration.complaints)
        async with self.engine:
            with context(session=f"{next(self._numbers):06d}"):
                try:
                    return await self._cycle()
                except Exception:
                    self._failures += 1
                    self._memory = CycleMemory()
                    self._metrics.cycle_failed()
                    log.exception("the cycle failed, for the %d. time in a row", self._failures)
                    if self._failures >= _PATIENCE:
                        log.error("the tables are built anew from the caches")
                        self.intake.start_over()
                    return None

    async def _cycle(self) -> Plan:
        loop = asyncio.get_running_loop()
        # A pause may end while the engine works; the plan does not know that.
        held_back = self._dispatcher.held_back()
        operations, as_of = self.intake.take(), self.intake.arrivals
        at_ns = now_ns(self._clock)
        worked = await self._in_thread(partial(self._work, operations, at_ns, self.policy_now))
        plan = self.plan = worked.plan
        self._resume = dict(plan.resume or ())
        self._promised = frozenset(item.group for item in plan.nominations)
        self._dispatcher.clear_away(worked.dead)
        await self._dispatcher.carry_out(plan, as_of)
        for listener in self.listeners:
            listener(plan)
        self._metrics.cycle(open_s=worked.open_s, total_s=worked.total_s, changes=worked.changes)
        self._metrics.planned(plan)
        doubts = (problem for name in sorted(self.intake.doubts) for problem in self.intake.doubts[name])
        self._complaints.found((*worked.snapshot.problems, *worked.problems, *doubts), plan.problems)
        began_s = loop.time()
        if self._conditions_changed:
            self._conditioned = frozenset(self._conditioned_now)
            self._conditions_changed = False
        digest = partial(
            self._book.digest,
            plan,
            worked.snapshot,
            self._conditioned,
            held_back | self._dispatcher.held_back(),
            protected_ns=longest_ns(self.policy, worked.snapshot),
        )
        news = digest() if len(plan.unscheduled) < _MANY else await self._in_thread(digest)
        await self._announcer.announce(news)
        self._metrics.closed(loop.time() - began_s)
        self._failures = 0
        self._took_s = worked.total_s
        self.last_s = loop.time()
        self.cycles += 1
        if self.cycles == 1:
            settle(len(self.intake.pods))
        if plan.binds or plan.evictions:
            log.debug("%d binds, %d evictions", len(plan.binds), len(plan.evictions))
        return plan

    @property
    def policy_now(self) -> Policy:
        """The policy, and whose turn it is."""
        if not self._resume and not self._promised:
            return self.policy
        return replace(self.policy, resume=self._resume, nominated_groups=self._promised)

    def _work(self, operations: list[Operation], at_ns: int, policy: Policy) -> Worked:
        """The engine's part; no await, no I/O."""
        with collector_paused():
            began_s = time.perf_counter()
            digest = self.intake.digest(operations)
            snapshot = self.intake.tables.snapshot(at_ns)
            opened_s = time.perf_counter()
            plan = schedule(snapshot, policy, self._memory)
            dead = self.intake.tables.stale_bind_requests()
            ended_s = time.perf_counter()
        return Worked(plan, snapshot, dead, digest.problems, digest.operations, opened_s - began_s, ended_s - began_s)

    async def ask_engine(self, question: Callable[[Snapshot, Policy], T]) -> T:
        """Ask something of the cluster as the next cycle would see it, between two cycles."""
        async with self.engine:
            at_ns = now_ns(self._clock)
            return await self._in_thread(lambda: question(self.intake.tables.snapshot(at_ns), self.policy))

    async def consult(self, question: Callable[[Snapshot, Policy], T]) -> tuple[T, int]:
        """The same before the first cycle, with all changes so far taken in; also the number of arrivals until then."""
        async with self.engine:
            operations, as_of = self.intake.take(), self.intake.arrivals
            at_ns = now_ns(self._clock)

            def answer() -> T:
                self.intake.digest(operations)
                return question(self.intake.tables.snapshot(at_ns), self.policy)

            return await self._in_thread(answer), as_of

    # One thread computes at a time (cycle:PRC-9).
    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _on_group(self, change: Change[PodGroup]) -> None:
        known = change.key in self._conditioned_now
        if change.new is not None and change.new.status.scheduling_conditions:
            if not known:
                self._conditioned_now.add(change.key)
                self._conditions_changed = True
        elif known:
            self._conditioned_now.discard(change.key)
            self._conditions_changed = True
        if change.new is None:
            self._metrics.group_gone(change.key)


async def _either(stop: asyncio.Event, woken: asyncio.Event | None, seconds: float) -> None:
    """Wait for one of the events, at most so long."""
    if seconds <= 0 or stop.is_set() or (woken is not None and woken.is_set()):
        return
    waits = [asyncio.ensure_future(event.wait()) for event in (stop, woken) if event is not None]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
