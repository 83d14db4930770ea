"""Shadow mode: decides as usual, logs the decisions, writes nothing.

    plan --> Shadow --> log lines and counters
    watch --> Shadow: what another scheduler did with the same pods

A shadow runs beside the active scheduler.  Its decisions are assumed like those of any scheduler, so that it does not
assign one GPU twice, but only until the cluster says otherwise: a pod that another scheduler binds is on that node,
whatever the shadow chose, and a decision that is not carried out within `ASSUMPTION_TIMEOUT_S` is no longer assumed.
Then it is made again; the log repeats it only if it differs.

One line per decision, made to be searched for:

    would bind ns/pod to node-3 (queue team, gang ns/train)
    would evict ns/pod from node-3 (reclaim for ns/urgent) because ...
    cannot place ns/group: ...
    ns/pod was bound to node-5 by another scheduler; the shadow chose node-3
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.scheduling import BindRequest, PodGroup
from pykai.core.model.shard import Shard
from pykai.core.report.decisions import Bind, Evict, Plan, Ungate
from pykai.kube.clock import Clock
from pykai.kube.store import Change
from pykai.kube.yielding import yielding_to_loop
from pykai.scheduler.dispatch.bindrequests import assumed_request, request_spec
from pykai.scheduler.dispatch.gangplans import binder_gave_up
from pykai.scheduler.enginequery import EngineQuery
from pykai.scheduler.intake.groupfeed import GroupStage
from pykai.scheduler.intake.intake import Intake
from pykai.scheduler.intake.pendingevictions import preemptor_reference
from pykai.scheduler.metrics import SchedulerMetrics
from pykai.scheduler.status.statusdiff import StatusDiff

log = logging.getLogger(__name__)

#: cluster seconds that a decision is assumed although it is not carried out
ASSUMPTION_TIMEOUT_S = 60.0

AGREED = "agreed"
DIFFERED = "differed"
UNDECIDED = "undecided"
EXPIRED = "expired"


@dataclass(slots=True)
class _ShadowDecision:
    """The decision about one pod."""

    uid: str
    #: where it would go; of a victim: where it is
    node: str
    since_s: float
    #: whether the tables assume it
    assumed: bool = True
    #: whether it was compared with what happened
    was_compared: bool = False


class Shadow:
    """The sink of a shadow's decisions.  Lives on the event loop."""

    #: nothing is ever in progress
    has_binds_in_flight = False
    unsettled_gangs = 0

    def __init__(
        self,
        intake: Intake,
        metrics: SchedulerMetrics,
        shard: Shard,
        clock: Clock,
        *,
        assumption_timeout_s: float = ASSUMPTION_TIMEOUT_S,
    ) -> None:
        self.assumption_timeout_s = assumption_timeout_s
        self._intake = intake
        self._metrics = metrics
        self._shard = shard
        self._clock = clock
        #: pod key -> where it would go
        self._binds: dict[str, _ShadowDecision] = {}
        #: pod key -> its eviction
        self._victims: dict[str, _ShadowDecision] = {}
        #: pod key -> the queue that would admit it
        self._admitted: dict[str, _ShadowDecision] = {}
        #: group or pod without group -> why it waits, as last logged
        self._logged_reasons: dict[str, str] = {}
        intake.pods.subscribe(self._on_pod)
        intake.requests.subscribe(self._on_request)
        intake.group_feed.subscribe(GroupStage.DISPATCH, self._on_group)

    async def dispatch(self, plan: Plan, seen_generation: int = 0) -> None:
        """Assume the decisions, and log the new ones."""
        async for bind in yielding_to_loop(plan.binds):
            self._bind(bind)
        async for eviction in yielding_to_loop(plan.evictions):
            self._evict(eviction)
        async for opened in yielding_to_loop(plan.ungates or ()):
            self._ungate(opened)
        self._expire()

    def _bind(self, bind: Bind) -> None:
        key = object_key(bind.namespace, bind.pod)
        pod = self._intake.pods.get(key)
        if pod is None or pod.metadata.uid != bind.uid or pod.spec.node_name:
            # Gone or bound while the cycle ran.
            return
        self._intake.binds.assume(assumed_request(bind.namespace, bind.uid, request_spec(bind)))
        self._logged_reasons.pop(bind.group, None)
        if not self._is_repeated(self._binds, key, bind.uid, bind.node):
            group = self._intake.groups.get(bind.group)
            queue = group.spec.queue if group is not None else ""
            log.info("would bind %s to %s (queue %s, gang %s)", key, bind.node, queue, bind.group)
            self._metrics.count_shadow_decision("bind")

    def _evict(self, eviction: Evict) -> None:
        key = object_key(eviction.namespace, eviction.pod)
        pod = self._intake.pods.get(key)
        if pod is None or pod.metadata.uid != eviction.uid:
            # Gone while the cycle ran.
            return
        own_bind = self._binds.get(key)
        if eviction.unbound and own_bind is not None and own_bind.assumed:
            # Only the shadow assumes its bind.
            del self._binds[key]
            self._intake.binds.give_up(key, own_bind.uid, own_bind.node)
            log.info("would no longer bind %s to %s because %s", key, own_bind.node, _single_line(eviction.message))
            return
        self._intake.statuses.assume_eviction(key, eviction.uid, preemptor_reference(eviction))
        if not self._is_repeated(self._victims, key, eviction.uid, eviction.node):
            by = f"{eviction.action} for {eviction.preemptor}" if eviction.preemptor else eviction.action
            log.info("would evict %s from %s (%s) because %s", key, eviction.node, by, _single_line(eviction.message))
            self._metrics.count_shadow_decision("evict")

    def _ungate(self, opened: Ungate) -> None:
        key = object_key(opened.namespace, opened.pod)
        if key in self._intake.pods and not self._is_repeated(self._admitted, key, opened.uid, opened.queue):
            log.info("would remove the gate of %s (queue %s)", key, opened.queue or "does not gate")
            self._metrics.count_shadow_decision("ungate")

    def _is_repeated(self, decisions: dict[str, _ShadowDecision], key: str, uid: str, node: str) -> bool:
        """Note a choice; whether it is the one that was last logged."""
        before = decisions.get(key)
        if before is None or before.uid != uid or before.node != node:
            decisions[key] = _ShadowDecision(uid, node, self._now_s())
            return False
        if not before.assumed:
            before.assumed, before.since_s = True, self._now_s()
        return True

    def _expire(self) -> None:
        """Stop assuming decisions that are not carried out."""
        late_s = self._now_s() - self.assumption_timeout_s
        for kind, choices in (("bind", self._binds), ("evict", self._victims)):
            for key, choice in choices.items():
                if not choice.assumed or choice.since_s > late_s:
                    continue
                choice.assumed = False
                if kind == "bind":
                    self._intake.binds.give_up(key, choice.uid, choice.node)
                else:
                    self._intake.statuses.give_up_eviction(key, choice.uid)
                if not choice.was_compared:
                    choice.was_compared = True
                    log.debug("not carried out: %s %s, %s", kind, key, choice.node)
                    self._metrics.count_shadow_comparison(kind, EXPIRED)

    def delete_dead_requests(self, keys: Iterable[str]) -> None:
        """Dead BindRequests belong to another scheduler, which deletes them."""

    def groups_backing_off(self) -> set[str]:
        """No pod backs off."""
        return set()

    async def take_over(self, query_engine: EngineQuery) -> None:
        """A shadow takes nothing over."""

    async def drain(self, timeout_s: float = 10.0) -> bool:
        """Nothing is written."""
        return True

    def stop(self) -> None:
        """Nothing is in progress."""

    async def publish(self, diff: StatusDiff) -> None:
        """Log which groups wait, and why."""
        async for group in yielding_to_loop(diff.groups):
            if group.key in self._intake.groups:
                self._cannot_place(group.key, group.text)
        for pod in diff.pods:
            if pod.key in self._intake.pods:
                self._cannot_place(pod.key, pod.text)
        for key, _, node, _ in diff.pipelined:
            log.info("would keep %s for %s until there is room", key, node)
            self._metrics.count_shadow_decision("nominate")
        for key, text in diff.stale:
            log.info("stale gang %s: %s", key, _single_line(text))

    def _cannot_place(self, key: str, text: str) -> None:
        text = _single_line(text)
        if self._logged_reasons.get(key) != text:
            self._logged_reasons[key] = text
            log.info("cannot place %s: %s", key, text)
            self._metrics.count_shadow_decision("cannot place")

    def object_event(self, kind: str, key: str, type_: str, reason: str, text: str) -> None:
        """The problem is in the log already."""

    def _on_pod(self, change: Change[Pod]) -> None:
        key, old, pod = change.key, change.old, change.new
        if pod is None or (old is not None and old.metadata.uid != pod.metadata.uid):
            self._on_pod_gone(key)
            if pod is None:
                return
        if pod.metadata.deletion_timestamp is not None:
            self._on_pod_gone(key)
        elif pod.spec.node_name and old is not None and not old.spec.node_name:
            self._on_bound_elsewhere(key, pod.metadata.uid, pod.spec.node_name)
            self._binds.pop(key, None)

    def _on_pod_gone(self, key: str) -> None:
        self._binds.pop(key, None)
        self._admitted.pop(key, None)
        self._logged_reasons.pop(key, None)
        victim = self._victims.pop(key, None)
        if victim is not None and victim.assumed:
            log.debug("%s goes, as the shadow chose", key)
            self._metrics.count_shadow_comparison("evict", AGREED)

    def _on_request(self, change: Change[BindRequest]) -> None:
        request = change.new
        if request is None or binder_gave_up(request):
            return
        key = object_key(request.metadata.namespace, request.spec.pod_name)
        pod = self._intake.pods.get(key)
        if pod is None or pod.spec.node_name:
            return
        choice = self._binds.get(key)
        if choice is not None:
            self._on_bound_elsewhere(key, pod.metadata.uid, request.spec.selected_node)
            if choice.assumed:
                choice.assumed = False
                self._intake.binds.give_up(key, choice.uid, choice.node)

    def _on_bound_elsewhere(self, key: str, uid: str, node: str) -> None:
        """Another scheduler has bound a pod to a node."""
        choice = self._binds.get(key)
        if choice is None or choice.uid != uid:
            self._on_undecided_bind(key, node)
        elif choice.node == node:
            if not choice.was_compared:
                log.debug("%s was bound to %s, as the shadow chose", key, node)
                self._metrics.count_shadow_comparison("bind", AGREED)
            choice.was_compared = True
        else:
            if not choice.was_compared:
                log.info("%s was bound to %s by another scheduler; the shadow chose %s", key, node, choice.node)
                self._metrics.count_shadow_comparison("bind", DIFFERED)
            choice.was_compared = True

    def _on_undecided_bind(self, key: str, node: str) -> None:
        """A pod was bound before the shadow had decided about it."""
        pod = self._intake.pods.get(key)
        if pod is None or pod.spec.scheduler_name != self._shard.scheduler_name:
            return
        group = object_key(pod.metadata.namespace, pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION, ""))
        why = self._logged_reasons.get(group)
        if why is not None:
            log.info("%s was bound to %s by another scheduler; the shadow found no place: %s", key, node, why)
            self._metrics.count_shadow_comparison("bind", DIFFERED)
        else:
            log.debug("%s was bound to %s before the shadow had decided", key, node)
            self._metrics.count_shadow_comparison("bind", UNDECIDED)

    def _on_group(self, change: Change[PodGroup]) -> None:
        if change.new is None:
            self._logged_reasons.pop(change.key, None)

    def _now_s(self) -> float:
        return self._clock.now().timestamp()


def _single_line(text: str) -> str:
    """A text of several lines as one."""
    return " ".join(text.split())
