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
from pykai.kube.yielding import in_turns
from pykai.scheduler.dispatch.bindbackoff import Pauses
from pykai.scheduler.dispatch.bindplan import Planned
from pykai.scheduler.dispatch.bindrequests import assumed_request, needs_binder, request_spec
from pykai.scheduler.dispatch.bindwriter import Binding, Outcome
from pykai.scheduler.dispatch.deletions import Removals
from pykai.scheduler.dispatch.failedbinds import MOST_FAILURES, FailedBinds
from pykai.scheduler.dispatch.gangbinding import Consult, GangBinding, group_key
from pykai.scheduler.dispatch.gangplans import GangPlan, given_up
from pykai.scheduler.dispatch.noderecheck import Room
from pykai.scheduler.dispatch.records import BIND_PLAN, FAILED_BINDS, Records
from pykai.scheduler.intake.intake import Intake, owner_uid
from pykai.scheduler.intake.pendingevictions import beneficiary
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.status.statusevents import Announcer, is_waiting, now_ns

log = logging.getLogger(__name__)
T = TypeVar("T")

#: cluster seconds for a pod of a gang to find another place when others took its own
_SECOND_CHANCE_S = 5.0


class Dispatcher:
    """Carries out plans.  Lives on the event loop."""

    def __init__(
        self,
        client: Client,
        records: Records,
        intake: Intake,
        announcer: Announcer,
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
        self._announcer = announcer
        self._metrics = metrics
        self._clock = clock
        self._fast_bind = fast_bind
        self._binding = Binding(client, shard, in_flight=in_flight)
        self._removals = Removals(
            client, intake, clock, mark=mark_evicted, stuck_after_ns=shard.stuck_after_ns, in_flight=in_flight
        )
        self._tasks: set[asyncio.Task[object]] = set()
        #: pod key -> the write that binds it
        self._binds: dict[str, asyncio.Task[object]] = {}
        self._pauses = Pauses(intake, clock)
        self._room = Room(intake)
        self._gangs = GangBinding(records, intake, announcer, metrics, self._removals, self._room, clock, self)
        self._failed = FailedBinds(records, intake, announcer, self.start)
        self._leading = False
        intake.pods.subscribe(self._on_pod)
        intake.groups.subscribe(self._failed.saw_group)
        intake.requests.subscribe(self._on_request)

    @property
    def busy(self) -> bool:
        """Whether binds are going out."""
        return bool(self._binds)

    @property
    def open_plans(self) -> int:
        """Gangs that are not settled."""
        return len(self._gangs)

    def held_back(self) -> set[str]:
        """Groups with a pod that pauses after a refused bind."""
        groups = set()
        for key in self._pauses.pods():
            pod = self._intake.pods.get(key)
            if pod is not None:
                groups.add(group_key(pod))
        return groups

    async def settle(self, timeout_s: float = 10.0) -> bool:
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
        self._pauses.stop()
        # The watches go on for a while; what they bring is for the next leader to answer.
        self._gangs.stop()
        self._failed.stop()
        for task in self._tasks:
            task.cancel()

    def start(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]:
        """Work in the background; what it raises is logged."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", task.get_name(), exc_info=task.exception())

    # -- a plan -----------------------------------------------------------------------------------------------------

    async def carry_out(self, plan: Plan, as_of: int = 0) -> None:
        """Assume what was decided, and start to write it; `as_of` counts the arrivals that the cycle has seen."""
        groups: dict[str, list[Planned]] = {}
        short: set[str] = set()
        async for bind in in_turns(plan.binds):
            entry = self.planned(bind)
            if entry is None:
                short.add(bind.group)
            else:
                self._intake.assume_bind(assumed_request(bind.namespace, bind.uid, request_spec(bind)))
                groups.setdefault(bind.group, []).append(entry)
        async for eviction in in_turns(plan.evictions):
            key = f"{eviction.namespace}/{eviction.pod}"
            self._intake.assume_evicted(key, eviction.uid, beneficiary(eviction))
        async for key, decided in in_turns(groups.items()):
            namespace = key.partition("/")[0]
            entries = [entry for entry in decided if self._can_be_bound(f"{namespace}/{entry.pod}", entry.uid)]
            if len(entries) < len(decided):
                short.add(key)
            if key in short and not self._gangs.can_be_whole(key):
                log.info("gang %s does not begin: one of its pods went while it was decided", key)
                for entry in entries:
                    self._intake.give_up_bind(f"{namespace}/{entry.pod}")
            elif len(entries) == 1 and key not in self._gangs:
                self.place(namespace, entries[0], None, as_of)
            elif entries:
                self._gangs.open(key, entries, as_of)
        async for eviction in in_turns(plan.evictions):
            self.start(self._evict(eviction), f"eviction of {eviction.namespace}/{eviction.pod}")

    def _can_be_bound(self, key: str, uid: str) -> bool:
        """False when the pod has gone or was bound since it was decided; the change waits for the next cycle."""
        pod = self._intake.pods.get(key)
        return pod is not None and pod.metadata.uid == uid and not pod.spec.node_name

    def planned(self, bind: Bind) -> Planned | None:
        """How a bind is to be written; None when the pod has gone or was bound since it was decided."""
        key = f"{bind.namespace}/{bind.pod}"
        pod = self._intake.pods.get(key)
        if pod is None or not self._can_be_bound(key, bind.uid):
            return None
        if self._fast_bind and not needs_binder(bind, pod):
            return Planned(bind.pod, bind.uid, bind.node)
        request = request_content(bind)
        return Planned(bind.pod, bind.uid, bind.node, request, dict(bind.annotations))

    def place(self, namespace: str, entry: Planned, plan: GangPlan | None, as_of: int) -> None:
        """Start the write that binds a pod."""
        key = f"{namespace}/{entry.pod}"
        if plan is not None:
            plan.unwritten.discard(entry.pod)
        task = self.start(self._bind(namespace, entry, plan, as_of), f"bind of {key}")
        self._binds[key] = task
        task.add_done_callback(partial(self._bind_ended, key))

    def _bind_ended(self, key: str, task: asyncio.Task[object]) -> None:
        if self._binds.get(key) is task:
            del self._binds[key]

    async def _bind(self, namespace: str, entry: Planned, plan: GangPlan | None, as_of: int) -> None:
        key = f"{namespace}/{entry.pod}"
        labels = self._announcer.pool_label()
        started_s = asyncio.get_running_loop().time()
        obstacle = partial(self._room.obstacle, namespace, entry, as_of)
        result = await self._binding.place(namespace, entry, labels, obstacle)
        if result.outcome is Outcome.OVERTAKEN:
            self._overtaken(key, entry, plan, result.why)
            return
        if result.outcome is Outcome.PLACED:
            self._metrics.bound(asyncio.get_running_loop().time() - started_s, self._waited_s(key))
            self._announcer.scheduled(key, entry.uid, entry.node)
            if entry.request is not None:
                self._announcer.label_pool(key, entry.uid)
            if plan is not None:
                # The watch may have been quicker than the answer.
                plan.saw_pod(entry.pod, self._intake.pods.get(key))
        else:
            self._intake.give_up_place(key, entry.uid, entry.node)
            if result.outcome is Outcome.REFUSED:
                self._metrics.bind_refused()
                log.warning("pod %s was not bound to node %s: %s", key, entry.node, result.why)
                self._announcer.binding_failed(key, entry.uid, entry.node, result.why)
                pod = self._intake.pods.get(key)
                if result.counts and pod is not None and pod.metadata.uid == entry.uid:
                    self._failed.count(pod, group_key(pod), result.why, entry.node, plan)
                self.pause(key, entry.uid)
            if plan is not None:
                plan.lose(entry, result.why)
        if plan is not None:
            self._gangs.check(plan)

    def _overtaken(self, key: str, entry: Planned, plan: GangPlan | None, why: str) -> None:
        """Others were quicker: the pod waits again.  One of a gang has some time to find another place."""
        self._metrics.bind_overtaken()
        log.info("pod %s is not bound to node %s: %s", key, entry.node, why)
        self._intake.give_up_place(key, entry.uid, entry.node)
        if plan is not None:
            wait_s = self._clock.wall_s(_SECOND_CHANCE_S)
            asyncio.get_running_loop().call_later(wait_s, self._no_other_place, plan, entry, why)

    def _no_other_place(self, plan: GangPlan, entry: Planned, why: str) -> None:
        if self._leading and plan.open.get(entry.pod) is entry:
            plan.lose(entry, why)
            self._gangs.check(plan)

    def _waited_s(self, key: str) -> float | None:
        pod = self._intake.pods.get(key)
        return None if pod is None else age_s(pod, self._clock)

    def pause(self, key: str, uid: str) -> None:
        """Keep a pod out of the cycles for a while, unless it has another place by now, or has gone."""
        pod = self._intake.pods.get(key)
        if self._intake.assumes_bind(key) or pod is None or pod.metadata.uid != uid:
            return
        group = group_key(pod)
        self._pauses.begin(key, uid, group, self._failed.times(group))

    def _given_up(self, request: BindRequest) -> None:
        """The binder may have given up on a request: count that, and let the pod pause, once for each request."""
        key = f"{request.metadata.namespace}/{request.spec.pod_name}"
        pod = self._intake.pods.get(key)
        if pod is None or pod.spec.node_name or not given_up(request):
            return
        uid = pod.metadata.uid
        if owner_uid(request) == uid:
            why, node = request.status.reason or "the binder gave up", request.spec.selected_node
            plan = self._gangs.plan_of(key)
            self._failed.count(pod, group_key(pod), why, node, plan, request.metadata.uid)
        if key not in self._pauses:
            self.pause(key, uid)

    # -- what the watches bring ----------------------------------------------------------------------------------------

    async def take_over(self, consult: Consult) -> None:
        """Become responsible: plans left behind are finished before anything else is decided."""
        records = await self._records.found()
        self._leading = True
        self._failed.take_over(each for each in records if each.kind == FAILED_BINDS)
        await self._gangs.take_over([each for each in records if each.kind == BIND_PLAN], consult)

    def _covers(self, item: PodGroup | BindRequest) -> bool:
        return self._intake.tables.shard.covers(item.metadata)

    def _on_pod(self, change: Change[Pod]) -> None:
        pod = change.new
        if change.old is not None and (pod is None or pod.metadata.uid != change.old.metadata.uid):
            self._pauses.forget(change.old)
        if change.key in self._pauses and (pod is None or not is_waiting(pod)):
            self._pauses.end(change.key)
        self._gangs.saw_pod(change)
        for group in dict.fromkeys(group_key(each) for each in (change.old, pod) if each is not None):
            self._failed.saw_pod(change, group)
        if pod is not None and is_waiting(pod) and (change.old is None or change.old.metadata.uid != pod.metadata.uid):
            if self._failed.times(group_key(pod)) >= MOST_FAILURES:
                self._pauses.inherit(change.key, group_key(pod))

    def _on_request(self, change: Change[BindRequest]) -> None:
        request = change.new
        if request is not None and self._leading and self._covers(request) and not self._intake.is_withdrawn(request):
            # At once: the next cycle would decide about the pod again before it takes the request away.
            self._given_up(request)
        if request is not None:
            self._gangs.saw_request(request)
        elif change.key not in self._binds and not self._intake.assumes_bind(change.key):
            # The end of an older request of the name says nothing about the one that we write or have written.
            self._gangs.lose(change.key, "its BindRequest was deleted")

    # -- what leads nowhere, and evictions --------------------------------------------------------------------------

    def clear_away(self, keys: Iterable[str]) -> None:
        """Delete BindRequests that nobody waits for (cycle:SNP-8); their pods pause before they are tried again.

        Statements: gpu:B-5.
        """
        for key in keys:
            request = self._intake.requests.get(key)
            if request is None:
                continue
            self._intake.assume_withdrawn(key, request.metadata.uid)
            pod_key = f"{request.metadata.namespace}/{request.spec.pod_name}"
            pod = self._intake.pods.get(pod_key)
            if pod is not None and not pod.spec.node_name:
                self._gangs.lose(pod_key, request.status.reason or f"node {request.spec.selected_node} is gone")
                self._given_up(request)
            self.start(self._removals.request(key, request.metadata.uid), f"end of BindRequest {key}")

    async def _evict(self, eviction: Evict) -> None:
        """Take a pod off its node (cycle:16.2, OUT-4)."""
        key = f"{eviction.namespace}/{eviction.pod}"
        under_way = self._binds.get(key)
        if under_way is not None:
            await asyncio.wait([under_way])
        pod = self._intake.pods.get(key)
        if pod is None or pod.metadata.uid != eviction.uid or pod.status.phase in ("Succeeded", "Failed"):
            log.info("received an eviction attempt for a terminated task: %s", key)
            self._intake.let_go(key)
            return
        self._announcer.evicted(eviction)
        self._metrics.evicted(eviction, self._intake.groups.get(eviction.group), self._announcer.pool)
        if eviction.unbound and not pod.spec.node_name and await self._withdraw(key, eviction.uid):
            self._intake.let_go(key)
            return
        await self._removals.pod(key, eviction.uid, eviction.message)

    async def _withdraw(self, key: str, uid: str) -> bool:
        """Take a pod that is on its way back by its BindRequest; False when it is bound already."""
        plan = self._gangs.plan_of(key)
        entry = plan.open.get(split_key(key)[1]) if plan is not None else None
        if plan is not None and entry is not None and entry.pod in plan.unwritten:
            self._intake.give_up_place(key, entry.uid, entry.node)
            plan.lose(entry, "it made room for others")
            self._gangs.check(plan)
            return True
        request = self._intake.requests.get(key)
        if request is None and self._intake.assumes_bind(key):
            request = await self._removals.look(resources.BIND_REQUESTS, key, BindRequest)
            if request is None:
                # Bound directly, and the watch has not shown it yet.
                return False
        if request is None:
            return True
        self._intake.doubt_withdrawal(key)
        if await self._removals.request(key, request.metadata.uid):
            pod = await self._removals.look(resources.PODS, key, Pod)
            if pod is not None and pod.metadata.uid == uid and pod.spec.node_name:
                # The binder was quicker, and the watch has not shown it yet.
                return False
            self._intake.assume_withdrawn(key, request.metadata.uid)
            self._intake.give_up_bind(key)
            self._gangs.lose(key, "its BindRequest was withdrawn")
        else:
            self._intake.trust_request(key)
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
