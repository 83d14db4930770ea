"""Decisions become writes, many at a time, and what goes wrong is put right.

`carry_out` assumes every decision of a plan at once, so that the next cycle builds on it, and starts the writes; it
does not wait for them.

*Binds.*  A single bind is one write (`binding`).  Several binds of one group are a gang: its plan is put on the
PodGroup before the first of them (`bindplan`, `gangplans`), and taken off when all are settled.  `take_over` finishes
the plans that another scheduler left behind, before the first cycle.  If a gang cannot reach its minimum any more,
because a bind was refused for good, the part that was bound is evicted, with an event.

*Evictions.*  A bound pod is deleted, by uid; one that is only on its way loses its BindRequest instead.

Right before each bind the node is looked at once more (`room`): a place that others have taken since the decision is
given up, and the pod decided again at once.

A pod whose bind was refused stays out of the cycles for a pause that doubles with every refusal; its condition says
why.  Otherwise it would be decided and refused again many times a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

import msgspec

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.scheduling import BindRequest, PodGroup
from pykai.api.timestamp import format_timestamp
from pykai.core.decisions import Bind, Evict, Plan
from pykai.core.shard import Shard
from pykai.core.tasks import instant_or_zero
from pykai.kube import resources
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import ConnectionLost, KubeError, ServerFailed, TooManyRequests
from pykai.kube.resources import split_key
from pykai.kube.store import Change
from pykai.kube.turns import in_turns
from pykai.scheduler.announcing import WARNING, Announcer, is_waiting, now_ns
from pykai.scheduler.binding import Binding, Outcome
from pykai.scheduler.bindplan import PlanError, Planned, decode_plan
from pykai.scheduler.bindrequests import assumed_request, needs_binder, request_spec
from pykai.scheduler.evictions import beneficiary
from pykai.scheduler.gangplans import GangPlan, given_up, holds_node, is_whole
from pykai.scheduler.intake import Intake
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.removing import FAILURES, Removals, retry_s
from pykai.scheduler.room import Room

log = logging.getLogger(__name__)
T = TypeVar("T")

#: cluster seconds for a pod of a gang to find another place when others took its own
_SECOND_CHANCE_S = 5.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


class Dispatcher:
    """Carries out plans.  Lives on the event loop."""

    def __init__(
        self,
        client: Client,
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
        self._client = client
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
        self._plans: dict[str, GangPlan] = {}
        #: PodGroup key -> the texts we wrote there and are done with, until the watch shows none
        self._closed: dict[str, set[str]] = {}
        #: PodGroup key -> held while its annotation is written
        self._annotating: dict[str, asyncio.Lock] = {}
        #: uid of a pod -> how often its bind was refused
        self._refused: dict[str, int] = {}
        #: pod key -> the end of its pause
        self._pauses: dict[str, asyncio.TimerHandle] = {}
        self._room = Room(intake)
        self._leading = False
        intake.pods.subscribe(self._on_pod)
        intake.requests.subscribe(self._on_request)
        intake.groups.subscribe(self._on_group)

    @property
    def busy(self) -> bool:
        """Whether binds are going out."""
        return bool(self._binds)

    @property
    def open_plans(self) -> int:
        """Gangs that are not settled."""
        return len(self._plans)

    def held_back(self) -> set[str]:
        """Groups with a pod that pauses after a refused bind."""
        groups = set()
        for key in self._pauses:
            pod = self._intake.pods.get(key)
            if pod is not None:
                groups.add(_group_key(pod))
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
        for timer in self._pauses.values():
            timer.cancel()
        self._pauses.clear()
        # The watches go on for a while; what they bring is for the next leader to answer.
        self._plans.clear()
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]:
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
            entry = self._planned(bind)
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
            if key in short and not self._can_be_whole(key):
                log.info("gang %s does not begin: one of its pods went while it was decided", key)
                for entry in entries:
                    self._intake.give_up_bind(f"{namespace}/{entry.pod}")
            elif len(entries) == 1 and key not in self._plans:
                self._place(namespace, entries[0], None, as_of)
            elif entries:
                self._open_plan(key, entries, as_of)
        async for eviction in in_turns(plan.evictions):
            self._start(self._evict(eviction), f"eviction of {eviction.namespace}/{eviction.pod}")

    def _can_be_whole(self, key: str) -> bool:
        """Whether a group reaches its minimum with what is bound and what is on its way."""
        group = self._intake.groups.get(key)
        pods = self._intake.pods_of(key)
        return group is None or is_whole(group, pods, lambda pod: self._intake.assumes_bind(_key(pod)))

    def _can_be_bound(self, key: str, uid: str) -> bool:
        """False when the pod has gone or was bound since it was decided; the change waits for the next cycle."""
        pod = self._intake.pods.get(key)
        return pod is not None and pod.metadata.uid == uid and not pod.spec.node_name

    def _planned(self, bind: Bind) -> Planned | None:
        key = f"{bind.namespace}/{bind.pod}"
        pod = self._intake.pods.get(key)
        if pod is None or not self._can_be_bound(key, bind.uid):
            return None
        if self._fast_bind and not needs_binder(bind, pod):
            return Planned(bind.pod, bind.uid, bind.node)
        request = request_content(bind)
        return Planned(bind.pod, bind.uid, bind.node, request, dict(bind.annotations))

    def _place(self, namespace: str, entry: Planned, plan: GangPlan | None, as_of: int) -> None:
        """Start the write that binds a pod."""
        key = f"{namespace}/{entry.pod}"
        if plan is not None:
            plan.unwritten.discard(entry.pod)
        task = self._start(self._bind(namespace, entry, plan, as_of), f"bind of {key}")
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
                self._pause(key, entry.uid)
            if plan is not None:
                plan.lose(entry, result.why)
        if plan is not None:
            self._check(plan)

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
            self._check(plan)

    def _waited_s(self, key: str) -> float | None:
        pod = self._intake.pods.get(key)
        return None if pod is None else age_s(pod, self._clock)

    def _pause(self, key: str, uid: str) -> None:
        """Keep a pod out of the cycles for a while, unless it has another place by now, or has gone."""
        pod = self._intake.pods.get(key)
        if self._intake.assumes_bind(key) or pod is None or pod.metadata.uid != uid:
            return
        times = self._refused[uid] = self._refused.get(uid, 0) + 1
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(times - 1, 10))
        self._intake.hold_back(key)
        loop = asyncio.get_running_loop()
        earlier = self._pauses.pop(key, None)
        if earlier is not None:
            earlier.cancel()
        self._pauses[key] = loop.call_later(self._clock.wall_s(pause_s), self._end_pause, key)

    def _pause_given_up(self, request: BindRequest) -> None:
        """Let the pod of a request that the binder has given up pause, once for each request."""
        key = f"{request.metadata.namespace}/{request.spec.pod_name}"
        pod = self._intake.pods.get(key)
        if pod is not None and not pod.spec.node_name and key not in self._pauses and given_up(request):
            self._pause(key, pod.metadata.uid)

    def _end_pause(self, key: str) -> None:
        if self._pauses.pop(key, None) is not None:
            self._intake.let_go(key)

    # -- gangs ------------------------------------------------------------------------------------------------------

    def _open_plan(self, key: str, entries: list[Planned], as_of: int) -> None:
        group = self._intake.groups.get(key)
        if group is None:
            for entry in entries:
                self._intake.give_up_bind(f"{key.partition('/')[0]}/{entry.pod}")
            return
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = GangPlan(key, group.metadata.uid)
        plan.add(entries)
        self._start(self._begin(plan, entries, as_of), f"plan of gang {key}")

    async def _begin(self, plan: GangPlan, entries: list[Planned], as_of: int) -> None:
        """Persist the plan, then bind."""
        why = await self._persist(plan)
        if not why and (taken := self._room.keeps_back(plan, entries, as_of)):
            log.info("gang %s does not begin: %s", plan.key, taken)
            for entry in entries:
                self._metrics.bind_overtaken()
                self._intake.give_up_place(f"{plan.namespace}/{entry.pod}", entry.uid, entry.node)
                plan.lose(entry, taken)
            self._check(plan)
            return
        for entry in entries:
            key = f"{plan.namespace}/{entry.pod}"
            if not why:
                if plan.open.get(entry.pod) is entry:
                    self._place(plan.namespace, entry, plan, as_of)
                continue
            plan.lose(entry, why)
            self._intake.give_up_place(key, entry.uid, entry.node)
            self._announcer.binding_failed(key, entry.uid, entry.node, why)
            self._pause(key, entry.uid)
        if why:
            self._check(plan)

    async def _persist(self, plan: GangPlan) -> str:
        """Put what is open on the PodGroup; why that was refused, "" when it is there."""
        async with self._annotating.setdefault(plan.key, asyncio.Lock()):
            try:
                text = plan.encoded()
            except PlanError as error:
                return str(error)
            if text == plan.text:
                return ""
            # What is refused may stand there all the same: an earlier try without an answer was carried out.
            plan.texts.add(text)
            why = await self._annotate(plan, text)
            if not why:
                plan.text = text
            return why

    async def _annotate(self, plan: GangPlan, text: str | None) -> str:
        """Write or remove the annotation; the same again does no harm, so doubt means once more."""
        _, name = split_key(plan.key)
        content = {"metadata": {"uid": plan.uid, "annotations": {names.BIND_PLAN_ANNOTATION: text}}}
        failures = tries = 0
        while True:
            try:
                await self._client.patch(resources.POD_GROUPS, name, content, plan.namespace, brief=True)
                return ""
            except (ServerFailed, TooManyRequests) as error:
                failures += 1
                if failures >= FAILURES:
                    return f"the plan of the gang could not be kept: {error}"
            except ConnectionLost:
                pass
            except KubeError as error:
                return f"the plan of the gang could not be kept: {error}"
            tries += 1
            await asyncio.sleep(retry_s(tries))

    def _check(self, plan: GangPlan) -> None:
        """Finish a plan of which nothing is open."""
        if plan.settled and self._plans.get(plan.key) is plan:
            del self._plans[plan.key]
            if plan.key in self._intake.groups:
                self._closed.setdefault(plan.key, set()).update(plan.texts)
            self._start(self._close(plan), f"end of the plan of gang {plan.key}")

    async def _close(self, plan: GangPlan) -> None:
        """Give back what was bound if the gang is not whole, then take the plan off the PodGroup."""
        group = self._intake.groups.get(plan.key)
        if plan.lost and group is not None and group.metadata.uid == plan.uid:
            await self._mend(plan, group)
        async with self._annotating.setdefault(plan.key, asyncio.Lock()):
            # A new plan of the group may have been written meanwhile; it is not ours to remove.
            if plan.texts and plan.key not in self._plans:
                why = await self._annotate(plan, None)
                if why:
                    log.warning("the plan of gang %s stays on its PodGroup: %s", plan.key, why)
            if plan.key not in self._plans:
                self._annotating.pop(plan.key, None)

    async def _mend(self, plan: GangPlan, group: PodGroup) -> None:
        """A gang of which pods were lost on the way keeps its nodes only if its minimum is there."""
        if self._can_be_whole(plan.key):
            return
        bound = [pod for pod in self._intake.pods_of(plan.key) if holds_node(pod)]
        if not bound or group.metadata.deletion_timestamp is not None:
            return
        name, why = min(plan.lost.items())
        text = (
            f"The gang cannot be completed: pod {plan.namespace}/{name} was not bound ({why}). "
            f"The {len(bound)} pods that were bound are evicted"
        )
        log.warning("gang %s: %s", plan.key, text)
        self._announcer.group_event(plan.key, WARNING, names.EVENT_GANG_BROKEN, text)
        self._metrics.gang_broken()
        stamp = format_timestamp(now_ns(self._clock))
        self._announcer.stamp(plan.key, {names.LAST_EVICTION_TIMESTAMP_ANNOTATION: stamp})
        for pod in bound:
            self._intake.assume_evicted(_key(pod), pod.metadata.uid)
        await asyncio.gather(*(self._removals.pod(_key(pod), pod.metadata.uid, text) for pod in bound))

    async def take_over(self) -> None:
        """Become responsible: plans left behind are finished before anything else is decided."""
        self._leading = True
        async for key in in_turns(self._intake.groups.keys()):
            group = self._intake.groups.get(key)
            if group is not None:
                self._adopt(group)

    def _adopt(self, group: PodGroup) -> None:
        """Go on with a plan that someone else began."""
        text = group.metadata.annotations.get(names.BIND_PLAN_ANNOTATION)
        key = _key(group)
        if not text or key in self._plans or text in self._closed.get(key, ()) or not self._covers(group):
            return
        plan = GangPlan(key, group.metadata.uid, text=text, texts={text})
        self._plans[key] = plan
        try:
            plan.add(decode_plan(text))
        except PlanError as error:
            self._announcer.group_event(
                key, WARNING, f"{names.EVENT_INVALID_PREFIX}BindPlan", f"{error}; it is removed"
            )
        log.info("gang %s: going on with a plan of %d pods", key, len(plan.open))
        for entry in list(plan.open.values()):
            pod_key = f"{plan.namespace}/{entry.pod}"
            pod = self._intake.pods.get(pod_key)
            plan.saw_pod(entry.pod, pod)
            request = self._intake.requests.get(pod_key)
            if request is not None:
                plan.saw_request(request)
            if entry.pod not in plan.open:
                continue
            if self._intake.nodes.get(entry.node) is None:
                plan.lose(entry, f"node {entry.node} is gone")
                continue
            self._intake.assume_bind(assumed_request(plan.namespace, entry.uid, entry.spec()))
            self._place(plan.namespace, entry, plan, 0)
        self._check(plan)

    def _covers(self, item: PodGroup | BindRequest) -> bool:
        return self._intake.tables.shard.covers(item.metadata)

    def _on_group(self, change: Change[PodGroup]) -> None:
        group = change.new
        if group is None:
            self._closed.pop(change.key, None)
            return
        text = group.metadata.annotations.get(names.BIND_PLAN_ANNOTATION)
        if not text:
            self._closed.pop(change.key, None)
        elif self._leading:
            self._adopt(group)

    def _on_pod(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None and change.old is not None:
            self._refused.pop(change.old.metadata.uid, None)
        if change.key in self._pauses and (pod is None or not is_waiting(pod)):
            self._pauses[change.key].cancel()
            self._end_pause(change.key)
        if not self._plans:
            return
        group = _group_key(pod) if pod is not None else ""
        before = _group_key(change.old) if change.old is not None else ""
        for key in dict.fromkeys((before, group)):
            plan = self._plans.get(key)
            if plan is not None:
                plan.saw_pod(split_key(change.key)[1], pod)
                if key != group and (entry := plan.open.get(split_key(change.key)[1])) is not None:
                    plan.lose(entry, "the pod has left the group")
                self._check(plan)

    def _on_request(self, change: Change[BindRequest]) -> None:
        request = change.new
        if request is not None and self._leading and self._covers(request) and not self._intake.is_withdrawn(request):
            # At once: the next cycle would decide about the pod again before it takes the request away.
            self._pause_given_up(request)
        if not self._plans:
            return
        if request is None:
            # The end of an older request of the name says nothing about the one that we write or have written.
            if change.key not in self._binds and not self._intake.assumes_bind(change.key):
                self._lose(change.key, "its BindRequest was deleted")
        elif given_up(request):
            plan = self._plan_of(f"{request.metadata.namespace}/{request.spec.pod_name}")
            if plan is not None:
                plan.saw_request(request)
                self._check(plan)

    def _plan_of(self, pod_key: str) -> GangPlan | None:
        pod = self._intake.pods.get(pod_key)
        return self._plans.get(_group_key(pod)) if pod is not None else None

    def _lose(self, pod_key: str, why: str) -> None:
        """A pod that went by a BindRequest will not be bound."""
        plan = self._plan_of(pod_key)
        if plan is not None:
            entry = plan.open.get(split_key(pod_key)[1])
            if entry is not None and entry.request is not None:
                plan.lose(entry, why)
                self._check(plan)

    # -- what leads nowhere, and evictions --------------------------------------------------------------------------

    def clear_away(self, keys: Iterable[str]) -> None:
        """Delete BindRequests that nobody waits for (cycle:SNP-8); their pods pause before they are tried again."""
        for key in keys:
            request = self._intake.requests.get(key)
            if request is None:
                continue
            self._intake.assume_withdrawn(key, request.metadata.uid)
            pod_key = f"{request.metadata.namespace}/{request.spec.pod_name}"
            pod = self._intake.pods.get(pod_key)
            if pod is not None and not pod.spec.node_name:
                self._lose(pod_key, request.status.reason or f"node {request.spec.selected_node} is gone")
                self._pause_given_up(request)
            self._start(self._removals.request(key, request.metadata.uid), f"end of BindRequest {key}")

    async def _evict(self, eviction: Evict) -> None:
        """Take a pod off its node (cycle:16.2)."""
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
        plan = self._plan_of(key)
        entry = plan.open.get(split_key(key)[1]) if plan is not None else None
        if plan is not None and entry is not None and entry.pod in plan.unwritten:
            self._intake.give_up_place(key, entry.uid, entry.node)
            plan.lose(entry, "it made room for others")
            self._check(plan)
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
            self._lose(key, "its BindRequest was withdrawn")
        else:
            self._intake.trust_request(key)
        return True


def request_content(bind: Bind) -> dict[str, Any]:
    """The spec of a bind's BindRequest as plain data."""
    content: dict[str, Any] = msgspec.to_builtins(request_spec(bind))
    return content


def age_s(pod: Pod, clock: Clock) -> float | None:
    """How long a pod has existed, in cluster seconds; None when that cannot be told."""
    created_ns = instant_or_zero(pod.metadata.creation_timestamp)
    return max(0.0, (now_ns(clock) - created_ns) / 1e9) if created_ns else None


def _key(item: Pod | PodGroup) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"


def _group_key(pod: Pod) -> str:
    name = pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION)
    return f"{pod.metadata.namespace}/{name}" if name else ""
