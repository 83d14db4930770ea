"""Resuming suspended workloads: placeholders get nodes, the owner is resumed, its pods take the nodes (suspend:resume).

    plan binds placeholders --> assumed on their nodes --> record, owner resumed --> pods come and are hidden
        --> the minimum is there: in one step placeholders go, pods are placed on their nodes by every rule, and bound

Nothing else is served between the last two: both happen while no cycle runs.  Pods above the minimum that come later
take their places one by one.  At the time limit the places that are left become free, and pods that are there wait as
all others do.

A pod that has a place is hidden from the tables: its placeholder is charged to the queue already.  So the gate of its
queue is opened without a look at quota and limit (suspend:gates).  Pods for which no place is left wait as all others
do, behind the gate too.

The user of a workload always wins: an owner that was resumed, changed or deleted by others ends the suspension.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key, split_key
from pykai.api.scheduling import PodGroup
from pykai.core.model.gates import Gate, read_gate
from pykai.core.model.groups import build_subgroup_tree
from pykai.core.report.decisions import Bind, PlannedBind, Ungate
from pykai.core.resume import UnfinishedBinds, resume
from pykai.kube.backoff import Backoff
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.store import Change, Store
from pykai.scheduler.dispatch.backgroundtasks import BackgroundTasks
from pykai.scheduler.dispatch.bindplan import PendingBind, has_minimum
from pykai.scheduler.dispatch.bindrequests import assumed_request, request_spec
from pykai.scheduler.dispatch.gangbinding import GangBinding
from pykai.scheduler.dispatch.gangplans import group_key, is_bound_and_active
from pykai.scheduler.dispatch.heldplaces import ReturningPod
from pykai.scheduler.dispatch.podbinding import PodBinding
from pykai.scheduler.dispatch.suspendedworkloads import SuspendedWorkload, SuspendedWorkloads, key_of
from pykai.scheduler.dispatch.suspendrecord import SuspendState, placeholder_key
from pykai.scheduler.dispatch.suspension import Suspension
from pykai.scheduler.dispatch.ungating import Ungating
from pykai.scheduler.dispatch.workloadowner import OwnerError, OwnerGone, read_owner, set_suspended
from pykai.scheduler.enginequery import EngineQuery
from pykai.scheduler.intake.bindassumptions import BindAssumptions
from pykai.scheduler.intake.podintake import PodIntake
from pykai.scheduler.intake.statusassumptions import StatusAssumptions
from pykai.scheduler.status.statusevents import NORMAL, WARNING, StatusEvents, is_waiting, now_ns

log = logging.getLogger(__name__)

#: cluster seconds for the pods of a resumed owner to come
HOLD_LIMIT_S = 120.0
_BACKOFF = Backoff(5.0, 300.0)


class Resumption:
    """Resumes suspended workloads.  Lives on the event loop."""

    def __init__(
        self,
        client: Client,
        pods: Store[Pod],
        groups: Store[PodGroup],
        pods_of_group: Callable[[str], Collection[Pod]],
        binds: BindAssumptions,
        statuses: StatusAssumptions,
        pod_intake: PodIntake,
        status_events: StatusEvents,
        workloads: SuspendedWorkloads,
        suspension: Suspension,
        ungating: Ungating,
        pod_binding: PodBinding,
        gang_binding: GangBinding,
        tasks: BackgroundTasks,
        clock: Clock,
    ) -> None:
        self._client = client
        self._pods = pods
        self._groups = groups
        self._pods_of_group = pods_of_group
        self._binds = binds
        self._statuses = statuses
        self._pod_intake = pod_intake
        self._status_events = status_events
        self._workloads = workloads
        self._suspension = suspension
        self._ungating = ungating
        self._pod_binding = pod_binding
        self._gang_binding = gang_binding
        self._tasks = tasks
        self._clock = clock
        self._query_engine: EngineQuery | None = None
        #: groups of workloads whose pods may take the room that is held
        self._complete: dict[str, SuspendedWorkload] = {}
        self._swapping: asyncio.Task[object] | None = None

    def lead(self, query_engine: EngineQuery) -> None:
        """Begin to lead; `query_engine` places pods between two cycles."""
        self._query_engine = query_engine

    # From a plan to a resumed owner

    def assume(self, binds: Iterable[Bind]) -> None:
        """Let placeholders hold the nodes that a plan gives them, and resume their owners."""
        placed: dict[str, SuspendedWorkload] = {}
        for bind in binds:
            workload = self._workloads.get(bind.group)
            if (
                workload is None
                or workload.state is not SuspendState.SUSPENDED
                or bind.pod not in workload.placeholders
            ):
                continue
            self.hold(workload, bind)
            placed[bind.group] = workload
        for workload in placed.values():
            nodes = {name: node for name, node in workload.placeholders.items() if node}
            until_ns = now_ns(self._clock) + int(HOLD_LIMIT_S * 1e9)
            workload.record = replace(workload.record, state=SuspendState.RESUMING, nodes=nodes, held_until_ns=until_ns)
            # The owner creates all its pods; those without a place wait as pods do.
            self._workloads.drop_placeholders(workload, [name for name in workload.placeholders if name not in nodes])
            self._workloads.hold_places(workload)
            self._tasks.start(self._resume_owner(workload), f"resuming {workload.describe()}")

    def hold(self, workload: SuspendedWorkload, bind: Bind) -> None:
        """Let a placeholder hold a node."""
        self._binds.assume(assumed_request(bind.namespace, bind.uid, request_spec(bind)))
        workload.placeholders[bind.pod] = bind.node

    def evicted(self, groups: Iterable[str]) -> None:
        """Give up the places of workloads that have to make room again."""
        for group in dict.fromkeys(groups):
            workload = self._workloads.get(group)
            if workload is not None:
                self._workloads.end(workload, "others need the room that was held for it")

    async def _resume_owner(self, workload: SuspendedWorkload) -> None:
        """Write the record, then resume the owner; where that fails, wait and try again."""
        why = await self._workloads.persist(workload)
        if why:
            self._pause(workload, why)
            return
        if not self._workloads.is_current(workload):
            return
        owner, mark = workload.record.owner, workload.record.mark(workload.uid)
        try:
            state = await read_owner(self._client, workload.namespace, owner)
            if not state.suspended or state.mark != mark:
                raise OwnerGone(f"{owner.kind} {owner.name} was changed by others")
            if state.managed_by:
                raise OwnerGone(f"{owner.kind} {owner.name} is managed by {state.managed_by} now")
            if not self._workloads.is_current(workload):
                return
            await set_suspended(self._client, workload.namespace, state, mark, suspend=False)
        except OwnerGone as error:
            self._workloads.end(workload, str(error))
        except OwnerError as error:
            self._pause(workload, str(error))
        else:
            self._on_resumed(workload)

    def _on_resumed(self, workload: SuspendedWorkload) -> None:
        text = f"{workload.describe()} was resumed: {len(workload.placeholders)} of its pods fit"
        self._status_events.group_event(workload.group, NORMAL, names.EVENT_RESUMED, text)
        self.await_pods(workload)

    def await_pods(self, workload: SuspendedWorkload) -> None:
        """Hold the room until the pods come, or the time limit of the record."""
        if not self._workloads.is_current(workload):
            return
        left_s = max(0.0, (workload.record.held_until_ns - now_ns(self._clock)) / 1e9)
        workload.timer = asyncio.get_running_loop().call_later(self._clock.wall_s(left_s), self._on_limit, workload)
        for pod in sorted(self._pods_of_group(workload.group), key=_by_age):
            self._on_waiting_pod(workload, pod)

    def _on_limit(self, workload: SuspendedWorkload) -> None:
        if not self._workloads.is_current(workload):
            return
        text = (
            f"{workload.describe()} was resumed, but {len(workload.placeholders)} of its pods did not come within "
            f"{HOLD_LIMIT_S:g} s; their room is free for others"
        )
        self._status_events.group_event(workload.group, WARNING, names.EVENT_NOT_RESUMED, text)
        self._workloads.end(workload, "the time limit for its pods has passed")

    def _pause(self, workload: SuspendedWorkload, why: str) -> None:
        """Give the room back, and wait before the next attempt."""
        if not self._workloads.is_current(workload):
            return
        workload.failures += 1
        delay_s = _BACKOFF.delay_s(workload.failures)
        text = f"{workload.describe()} cannot be resumed; next attempt in {delay_s:g} s: {why}"
        log.warning("%s", text)
        self._status_events.group_event(workload.group, WARNING, names.EVENT_NOT_RESUMED, text)
        self._workloads.let_wait(workload)
        for name in workload.placeholders:
            self._statuses.assume_gated(placeholder_key(workload.group, name))
        workload.timer = asyncio.get_running_loop().call_later(self._clock.wall_s(delay_s), self._end_pause, workload)

    def _end_pause(self, workload: SuspendedWorkload) -> None:
        for name in workload.placeholders:
            self._statuses.release_gated(placeholder_key(workload.group, name))

    # From arriving pods to binds

    def on_pod_change(self, change: Change[Pod]) -> None:
        """Handle a change of any pod."""
        if not self._workloads:
            return
        pod = change.new
        for key in dict.fromkeys(group_key(each) for each in (change.old, pod) if each is not None):
            workload = self._workloads.get(key)
            if workload is None:
                continue
            if workload.state is SuspendState.SUSPENDING:
                self._suspension.on_pod_change(workload, change)
            elif change.old is not None and (pod is None or pod.metadata.uid != change.old.metadata.uid):
                workload.early.discard(change.old.metadata.uid)
            self._give_back_place(workload, change)
            if pod is not None and group_key(pod) == key:
                self._on_waiting_pod(workload, pod)

    def on_group_change(self, change: Change[PodGroup]) -> None:
        """Handle a change of any PodGroup: with another uid it is another workload."""
        workload = self._workloads.get(change.key)
        if workload is not None and (change.new is None or change.new.metadata.uid != workload.uid):
            self._workloads.end(workload, "its PodGroup is gone")

    def _give_back_place(self, workload: SuspendedWorkload, change: Change[Pod]) -> None:
        """Free the place of a pod that does not wait for it any more."""
        returning, pod = workload.places.get(change.key), change.new
        if returning is not None and (pod is None or pod.metadata.uid != returning.uid or not is_waiting(pod)):
            workload.places.give_back(change.key)
            self._pod_intake.show(change.key)

    def _on_waiting_pod(self, workload: SuspendedWorkload, pod: Pod) -> None:
        uid = pod.metadata.uid
        if not is_waiting(pod) or uid in workload.leaving:
            return
        if workload.state is SuspendState.RESUMING:
            self._take_place(workload, pod)
        elif workload.state is SuspendState.SUSPENDED and uid not in workload.early:
            workload.early.add(uid)
            self._tasks.start(self._check_owner(workload), f"look at {workload.describe()}")

    def _take_place(self, workload: SuspendedWorkload, pod: Pod) -> None:
        """Let a pod that has come back wait for the others, out of sight of the cycles, and open its gate."""
        key, gate = key_of(pod), read_gate(pod.spec.scheduling_gates)
        returning = workload.places.get(key)
        if returning is None:
            if gate is Gate.FOREIGN or self._binds.is_assumed(key):
                return
            returning = workload.places.take(key, pod, alike=gate is Gate.QUEUE)
            if returning is None:
                return
            self._pod_intake.hide(key, pod.metadata.uid)
            if gate is Gate.QUEUE:
                self._open_gate(workload, key, returning)
        if gate is Gate.NONE and not returning.arrived:
            workload.places.arrive(returning)
            if self._is_complete(workload):
                self._complete[workload.group] = workload
                if self._swapping is None or self._swapping.done():
                    self._swapping = self._tasks.start(self._swap_complete(), "pods of resumed workloads")

    def _open_gate(self, workload: SuspendedWorkload, key: str, returning: ReturningPod) -> None:
        """Open the gate of the queue of a pod that has a place, unless it has lost it."""
        group = self._groups.get(workload.group)
        if group is None or workload.places.get(key) is not returning:
            return
        namespace, name = split_key(key)
        decision = Ungate(namespace, name, returning.uid, workload.group, group.spec.queue)
        admitted = self._ungating.assume(decision, now_ns(self._clock))
        if admitted is not None:
            self._tasks.start(self._write_gate(workload, returning, decision, admitted), f"gate of {key}")

    async def _write_gate(
        self, workload: SuspendedWorkload, returning: ReturningPod, decision: Ungate, admitted: str
    ) -> None:
        again_s = await self._ungating.open(decision, admitted)
        if again_s is not None:
            key = object_key(decision.namespace, decision.pod)
            wait_s = self._clock.wall_s(again_s)
            asyncio.get_running_loop().call_later(wait_s, self._open_gate, workload, key, returning)

    async def _check_owner(self, workload: SuspendedWorkload) -> None:
        """End the suspension if the owner was resumed by others."""
        try:
            state = await read_owner(self._client, workload.namespace, workload.record.owner)
        except OwnerGone as error:
            self._workloads.end(workload, str(error))
        except OwnerError as error:
            log.info("%s: %s", workload.describe(), error)
        else:
            if workload.state is SuspendState.SUSPENDED and not state.suspended:
                self._workloads.end(workload, "it was resumed by others")

    def _is_complete(self, workload: SuspendedWorkload) -> bool:
        """Whether the pods that are here reach the minimum, or are all that are expected."""
        arrived = workload.places.arrived
        group = self._groups.get(workload.group)
        if workload.started or group is None or arrived.total() >= len(workload.placeholders):
            return True
        root, _ = build_subgroup_tree(group)
        return has_minimum(root, arrived)

    async def _swap_complete(self) -> None:
        """Let pods take the nodes of placeholders, those of all workloads that are complete by then in one query."""
        while self._complete:
            await self._swap()

    async def _swap(self) -> None:
        assert self._query_engine is not None, "only a leader resumes"
        workloads: list[SuspendedWorkload] = []
        unfinished: list[UnfinishedBinds] = []

        def take_places() -> None:
            workloads.extend(self._complete.values())
            self._complete.clear()
            for workload in workloads:
                group = self._groups.get(workload.group)
                planned = self._take_places(workload) if self._workloads.is_current(workload) else ()
                if planned and group is not None:
                    unfinished.append(UnfinishedBinds(workload.group, workload.uid, group.spec.queue, planned))

        try:
            resumed, seen_generation = await self._query_engine(partial(resume, unfinished=unfinished), take_places)
        except Exception:
            # Their pods must not be held back for good: the cycles place them.
            log.exception("pods of resumed workloads cannot take the room that was held for them")
            for workload in (*workloads, *self._complete.values()):
                self._workloads.end(workload, "its pods could not be placed")
            self._complete.clear()
            return
        # No await until the binds are assumed: a cycle would give their room away.
        entries: dict[str, list[PendingBind]] = {}
        for bind in resumed.binds:
            entry = self._pod_binding.make_pending_bind(bind)
            if entry is not None:
                self._binds.assume(assumed_request(bind.namespace, bind.uid, request_spec(bind)))
                entries.setdefault(bind.group, []).append(entry)
        for key, why in resumed.refused.items():
            log.info("pod %s does not get the place that was held for it: %s", key, why)
        for each in unfinished:
            found = entries.get(each.group, [])
            self._gang_binding.start_binds(each.group, found, seen_generation, lost=len(found) < len(each.planned))
        for workload in workloads:
            if not workload.placeholders:
                self._workloads.end(workload, "its pods are back")

    def _take_places(self, workload: SuspendedWorkload) -> tuple[PlannedBind, ...]:
        """Put the pods that are here into the tables, in place of their placeholders."""
        planned: list[PlannedBind] = []
        for key, returning in workload.places.pop_arrived():
            node = workload.placeholders[returning.place]
            planned.append(PlannedBind(split_key(key)[1], returning.uid, node))
            self._workloads.drop_placeholders(workload, [returning.place])
            self._pod_intake.show(key)
        workload.started = True
        return tuple(planned)

    def drop_taken(self, workload: SuspendedWorkload) -> None:
        """Drop placeholders of an earlier scheduler whose pods have a node already."""
        self._workloads.hold_places(workload)
        for pod in self._pods_of_group(workload.group):
            key = key_of(pod)
            if is_bound_and_active(pod) or self._binds.is_assumed(key):
                taken = workload.places.take(key, pod, alike=False)
                if taken is not None:
                    self._workloads.drop_placeholders(workload, [taken.place])

    def held_binds(self, workload: SuspendedWorkload) -> UnfinishedBinds | None:
        """The places that an earlier scheduler held, for the engine to check."""
        group = self._groups.get(workload.group)
        if group is None:
            return None
        nodes = workload.record.nodes
        planned = tuple(PlannedBind(name, name, nodes[name]) for name in workload.placeholders)
        return UnfinishedBinds(workload.group, workload.uid, group.spec.queue, planned)


def _by_age(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.name
