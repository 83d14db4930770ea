"""Binds of gangs: the plan before the first of them, its end after the last, and what another scheduler left behind.

Several binds of one group are a gang: its plan is put on the PodGroup before the first of them (`bindplan`,
`gangplans`), and taken off when all are settled.  `take_over` finishes the plans that another scheduler left behind,
before the first cycle.  If a gang cannot reach its minimum any more, because a bind was refused for good, the part that
was bound is evicted, with an event.

The binds themselves are the dispatcher's, which stands behind `Carrier` here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.scheduling import BindRequest, PodGroup
from pykai.api.timestamp import format_timestamp
from pykai.kube import resources
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import ConnectionLost, KubeError, ServerFailed, TooManyRequests
from pykai.kube.resources import split_key
from pykai.kube.store import Change
from pykai.kube.turns import in_turns
from pykai.scheduler.announcing import WARNING, Announcer, now_ns
from pykai.scheduler.bindplan import PlanError, Planned, decode_plan
from pykai.scheduler.bindrequests import assumed_request
from pykai.scheduler.gangplans import GangPlan, given_up, holds_node, is_whole
from pykai.scheduler.intake import Intake
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.removing import FAILURES, Removals, retry_s
from pykai.scheduler.room import Room

log = logging.getLogger(__name__)


class Carrier(Protocol):
    """Who writes the binds."""

    def start(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]:
        """Work in the background; what it raises is logged."""
        ...

    def place(self, namespace: str, entry: Planned, plan: GangPlan | None, as_of: int) -> None:
        """Start the write that binds a pod."""
        ...

    def pause(self, key: str, uid: str) -> None:
        """Keep a pod out of the cycles for a while."""
        ...


class GangBinding:
    """The plans of gangs that are on their way."""

    def __init__(
        self,
        client: Client,
        intake: Intake,
        announcer: Announcer,
        metrics: SchedulerMetrics,
        removals: Removals,
        room: Room,
        clock: Clock,
        carrier: Carrier,
    ) -> None:
        self._client = client
        self._intake = intake
        self._announcer = announcer
        self._metrics = metrics
        self._removals = removals
        self._room = room
        self._clock = clock
        self._carrier = carrier
        self._plans: dict[str, GangPlan] = {}
        #: PodGroup key -> the texts we wrote there and are done with, until the watch shows none
        self._closed: dict[str, set[str]] = {}
        #: PodGroup key -> held while its annotation is written
        self._annotating: dict[str, asyncio.Lock] = {}
        self._leading = False
        intake.groups.subscribe(self._on_group)

    def __len__(self) -> int:
        return len(self._plans)

    def __contains__(self, key: str) -> bool:
        return key in self._plans

    def stop(self) -> None:
        """Forget what is under way: it is for the next leader to finish."""
        self._leading = False
        self._plans.clear()

    def can_be_whole(self, key: str) -> bool:
        """Whether a group reaches its minimum with what is bound and what is on its way."""
        group = self._intake.groups.get(key)
        pods = self._intake.pods_of(key)
        return group is None or is_whole(group, pods, lambda pod: self._intake.assumes_bind(_key(pod)))

    def open(self, key: str, entries: list[Planned], as_of: int) -> None:
        """Bind several pods of a group, or more of a gang that is on its way."""
        group = self._intake.groups.get(key)
        if group is None:
            for entry in entries:
                self._intake.give_up_bind(f"{key.partition('/')[0]}/{entry.pod}")
            return
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = GangPlan(key, group.metadata.uid)
        plan.add(entries)
        self._carrier.start(self._begin(plan, entries, as_of), f"plan of gang {key}")

    async def _begin(self, plan: GangPlan, entries: list[Planned], as_of: int) -> None:
        """Persist the plan, then bind."""
        why = await self._persist(plan)
        if not why and (taken := self._room.keeps_back(plan, entries, as_of)):
            log.info("gang %s does not begin: %s", plan.key, taken)
            for entry in entries:
                self._metrics.bind_overtaken()
                self._intake.give_up_place(f"{plan.namespace}/{entry.pod}", entry.uid, entry.node)
                plan.lose(entry, taken)
            self.check(plan)
            return
        for entry in entries:
            key = f"{plan.namespace}/{entry.pod}"
            if not why:
                if plan.open.get(entry.pod) is entry:
                    self._carrier.place(plan.namespace, entry, plan, as_of)
                continue
            plan.lose(entry, why)
            self._intake.give_up_place(key, entry.uid, entry.node)
            self._announcer.binding_failed(key, entry.uid, entry.node, why)
            self._carrier.pause(key, entry.uid)
        if why:
            self.check(plan)

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

    def check(self, plan: GangPlan) -> None:
        """Finish a plan of which nothing is open."""
        if plan.settled and self._plans.get(plan.key) is plan:
            del self._plans[plan.key]
            if plan.key in self._intake.groups:
                self._closed.setdefault(plan.key, set()).update(plan.texts)
            self._carrier.start(self._close(plan), f"end of the plan of gang {plan.key}")

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
        if self.can_be_whole(plan.key):
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
            self._carrier.place(plan.namespace, entry, plan, 0)
        self.check(plan)

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

    def plan_of(self, pod_key: str) -> GangPlan | None:
        """The open plan of a pod's group."""
        pod = self._intake.pods.get(pod_key)
        return self._plans.get(group_key(pod)) if pod is not None else None

    def lose(self, pod_key: str, why: str) -> None:
        """A pod that went by a BindRequest will not be bound."""
        plan = self.plan_of(pod_key)
        if plan is not None:
            entry = plan.open.get(split_key(pod_key)[1])
            if entry is not None and entry.request is not None:
                plan.lose(entry, why)
                self.check(plan)

    # -- what the watches bring -------------------------------------------------------------------------------------

    def saw_pod(self, change: Change[Pod]) -> None:
        """News of any pod."""
        if not self._plans:
            return
        pod = change.new
        group = group_key(pod) if pod is not None else ""
        before = group_key(change.old) if change.old is not None else ""
        for key in dict.fromkeys((before, group)):
            plan = self._plans.get(key)
            if plan is not None:
                plan.saw_pod(split_key(change.key)[1], pod)
                if key != group and (entry := plan.open.get(split_key(change.key)[1])) is not None:
                    plan.lose(entry, "the pod has left the group")
                self.check(plan)

    def saw_request(self, request: BindRequest) -> None:
        """News of any BindRequest."""
        if self._plans and given_up(request):
            plan = self.plan_of(f"{request.metadata.namespace}/{request.spec.pod_name}")
            if plan is not None:
                plan.saw_request(request)
                self.check(plan)


def _key(item: Pod | PodGroup) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"


def group_key(pod: Pod) -> str:
    """namespace/name of the PodGroup of a pod, "" without one."""
    name = pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION)
    return f"{pod.metadata.namespace}/{name}" if name else ""
