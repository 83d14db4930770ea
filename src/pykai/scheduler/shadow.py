"""Shadow mode: decides as usual, logs the decisions, writes nothing.

    plan --> Shadow --> log lines and counters
    watch --> Shadow: what another scheduler did with the same pods --> ShadowReport

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.keys import object_key
from pykai.api.scheduling import BindRequest, PodGroup
from pykai.api.sharing import gpu_groups
from pykai.api.timestamp import TimestampError, format_timestamp, parse_timestamp
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.equalnodes import equal_nodes
from pykai.core.model.shard import Shard
from pykai.core.policy import Policy
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
from pykai.scheduler.shadowreport import (
    BIND,
    EVICT,
    Difference,
    Outcome,
    ShadowBind,
    ShadowReport,
    judge_bind,
    judge_eviction,
)
from pykai.scheduler.status.statusdiff import StatusDiff

log = logging.getLogger(__name__)

#: cluster seconds that a decision is assumed although it is not carried out
ASSUMPTION_TIMEOUT_S = 60.0

#: outcome -> its label in metrics
_METRIC_OUTCOMES = {
    Outcome.AGREED: "agreed",
    Outcome.UNDECIDED: "undecided",
    Outcome.NO_EVICTION: "no eviction",
    Outcome.NOT_TAKEN: "expired",
}
_DIFFERED = "differed"
#: cluster seconds between the deletion of a pod and the mark of the eviction on its group
MARK_TIMEOUT_S = 60.0
_NANOSECONDS = 1_000_000_000
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class _ShadowDecision:
    """The decision about one pod."""

    uid: str
    #: where it would go; of a victim: where it is
    node: str
    since_s: float
    #: GPU groups of the bind
    gpu_groups: frozenset[str] = frozenset()
    #: nodes of the same score
    equal_nodes: frozenset[str] = frozenset()
    #: whether the tables assume it
    assumed: bool = True
    #: whether it was compared with what happened
    was_compared: bool = False


class _Leaving(NamedTuple):
    """A pod that is being deleted, and what the shadow thought of it."""

    node: str
    #: whether the shadow would evict it
    is_ours: bool
    #: whether it would evict others
    has_other_victims: bool
    #: whether a cycle has begun since the last change that could lead to a decision
    has_decided: bool
    since_s: float


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
        self.mark_timeout_s = MARK_TIMEOUT_S
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
        self.report = ShadowReport(self._at())
        #: pod key -> nodes of equal score, of the plan that is about to be dispatched
        self._equal_nodes: Mapping[str, frozenset[str]] = {}
        #: PodGroup -> its pods that are being deleted, until the group says whether they were evicted
        self._leaving: dict[str, dict[str, _Leaving]] = {}
        #: cluster seconds of the last change that may lead to another decision, and of the begin of the last cycle
        self._changed_s = 0.0
        self._decided_s = -1.0
        #: group or pod without group -> why it waits, as last logged
        self._logged_reasons: dict[str, str] = {}
        intake.pods.subscribe(self._on_pod)
        intake.requests.subscribe(self._on_request)
        intake.group_feed.subscribe(GroupStage.DISPATCH, self._on_group)

    def note_equal_nodes(self, snapshot: Snapshot, policy: Policy, plan: Plan) -> None:
        """Find the nodes of equal score for new binds; called in the engine's thread before `dispatch`."""
        new = [each for each in plan.binds if object_key(each.namespace, each.pod) not in self._binds]
        self._equal_nodes = equal_nodes(snapshot, policy, new) if new else {}

    async def dispatch(self, plan: Plan, seen_generation: int = 0) -> None:
        """Assume the decisions, and log the new ones."""
        self._decided_s = plan.now_ns / _NANOSECONDS
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
            choice = self._binds[key]
            choice.gpu_groups = frozenset(bind.gpu_groups)
            choice.equal_nodes = self._equal_nodes.get(key, frozenset())
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
        self._expire_deletions()
        for kind, choices in ((BIND, self._binds), (EVICT, self._victims)):
            for key, choice in choices.items():
                if not choice.assumed or choice.since_s > late_s:
                    continue
                choice.assumed = False
                if kind == BIND:
                    self._intake.binds.give_up(key, choice.uid, choice.node)
                else:
                    self._intake.statuses.give_up_eviction(key, choice.uid)
                if not choice.was_compared:
                    choice.was_compared = True
                    log.debug("not carried out: %s %s, %s", kind, key, choice.node)
                    self._note(kind, Outcome.NOT_TAKEN, key, ours=choice.node)

    def _expire_deletions(self) -> None:
        """Pods whose group got no mark in time were not evicted (shadow:evictions)."""
        late_s = self._now_s() - self.mark_timeout_s
        for group, pods in list(self._leaving.items()):
            for key in [key for key, each in pods.items() if each.since_s <= late_s]:
                self._note(EVICT, Outcome.NO_EVICTION, key, theirs=pods.pop(key).node)
            if not pods:
                del self._leaving[group]

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
        if changes_decisions(old, pod):
            self._changed_s = self._now_s()
        is_replaced = pod is not None and old is not None and old.metadata.uid != pod.metadata.uid
        if pod is None or is_replaced or pod.metadata.deletion_timestamp is not None:
            self._on_pod_gone(key, old)
            if not is_replaced:
                return
        if pod is not None and pod.spec.node_name and old is not None and not old.spec.node_name:
            groups = frozenset(gpu_groups(pod.metadata.labels))
            self._on_bound_elsewhere(key, pod.metadata.uid, pod.spec.node_name, groups)
            self._binds.pop(key, None)

    def _on_pod_gone(self, key: str, before: Pod | None) -> None:
        """A pod goes, or is gone; `before` is what it was until now."""
        self._binds.pop(key, None)
        self._admitted.pop(key, None)
        self._logged_reasons.pop(key, None)
        victim = self._victims.pop(key, None)
        is_news = before is not None and before.metadata.deletion_timestamp is None
        if before is not None and is_news and before.spec.node_name and before.status.phase not in _ENDED:
            self._on_deletion(key, before, is_ours=victim is not None and victim.assumed)

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
            groups = frozenset(request.spec.selected_gpu_groups)
            self._on_bound_elsewhere(key, pod.metadata.uid, request.spec.selected_node, groups)
            if choice.assumed:
                choice.assumed = False
                self._intake.binds.give_up(key, choice.uid, choice.node)

    def _on_bound_elsewhere(self, key: str, uid: str, node: str, groups: frozenset[str]) -> None:
        """Another scheduler has bound a pod to a node, and to shared GPUs."""
        pod, decision = self._intake.pods.get(key), self._binds.get(key)
        if decision is not None and decision.uid != uid:
            decision = None
        if decision is None and (pod is None or pod.spec.scheduler_name != self._shard.scheduler_name):
            return
        if decision is not None and decision.was_compared:
            return
        choice, why, joined = None, "", frozenset[str]()
        if decision is not None:
            decision.was_compared = True
            opened = {each for each in decision.gpu_groups | groups if not self._is_open(each, key)}
            choice = ShadowBind(decision.node, decision.gpu_groups - opened, decision.equal_nodes)
            joined = groups - opened
        elif pod is not None:
            why = self._logged_reasons.get(_group_of(pod), "") or self._logged_reasons.get(key, "")
        outcome = judge_bind(choice, node, joined, why_waits=why, assumes_others=self._holds_room())
        self._log_bind(key, node, outcome, choice, why)
        self._note(BIND, outcome, key, theirs=node, ours=choice.node if choice is not None else "", why=why)

    def _log_bind(self, key: str, node: str, outcome: Outcome, choice: ShadowBind | None, why: str) -> None:
        if outcome is Outcome.AGREED:
            log.debug("%s was bound to %s, as the shadow chose", key, node)
        elif outcome is Outcome.UNDECIDED:
            log.debug("%s was bound to %s before the shadow had decided", key, node)
        elif outcome is Outcome.OTHER_DEVICE:
            log.info("%s was bound to another GPU of %s than the shadow chose", key, node)
        elif choice is None:
            log.info("%s was bound to %s by another scheduler; the shadow found no place: %s", key, node, why)
        else:
            log.info("%s was bound to %s by another scheduler; the shadow chose %s", key, node, choice.node)

    def _holds_room(self) -> bool:
        """Whether decisions of ours hold room that the other scheduler has not given to these pods."""
        return any(each.assumed and not each.was_compared for each in self._binds.values())

    def _is_open(self, group: str, key: str) -> bool:
        """Whether other pods share a GPU under this group already."""
        return any(
            group in gpu_groups(pod.metadata.labels)
            for each, pod in zip(self._intake.pods.keys(), self._intake.pods.values(), strict=True)
            if each != key
        )

    # KAI Scheduler marks the groups of its victims (queues:Q-321): other deletions are not its decisions
    # (shadow:evictions).
    def _on_deletion(self, key: str, pod: Pod, *, is_ours: bool) -> None:
        """A running pod is deleted; its group says, now or soon, whether the other scheduler did it."""
        group_key = _group_of(pod)
        group = self._intake.groups.get(group_key)
        if pod.spec.scheduler_name != self._shard.scheduler_name or group is None:
            return
        others = any(each.assumed for each in self._victims.values())
        found = _Leaving(pod.spec.node_name, is_ours, others, self._has_decided(), self._now_s())
        self._leaving.setdefault(group_key, {})[key] = found
        self._judge_evictions(group)

    def _has_decided(self) -> bool:
        """Whether a cycle has seen every change that may have led to the decision of the other scheduler."""
        return self._decided_s >= self._changed_s

    def _judge_evictions(self, group: PodGroup) -> None:
        """Judge the pods of a group that are being deleted, if it was marked as evicted just now."""
        group_key = object_key(group.metadata.namespace, group.metadata.name)
        if group_key not in self._leaving or not self._is_evicted_now(group):
            return
        for key, each in self._leaving.pop(group_key).items():
            outcome = judge_eviction(
                is_ours=each.is_ours, has_other_victims=each.has_other_victims, has_decided=each.has_decided
            )
            if outcome is Outcome.AGREED:
                log.debug("%s was evicted from %s, as the shadow chose", key, each.node)
            elif outcome is not Outcome.UNDECIDED:
                log.info("%s was evicted from %s by another scheduler; the shadow: %s", key, each.node, outcome)
            ours = each.node if each.is_ours else ""
            self._note(EVICT, outcome, key, theirs=each.node, ours=ours, queue=group.spec.queue)

    def _is_evicted_now(self, group: PodGroup) -> bool:
        text = group.metadata.annotations.get(names.LAST_EVICTION_TIMESTAMP_ANNOTATION, "")
        try:
            return abs(self._now_s() - parse_timestamp(text) / _NANOSECONDS) <= self.mark_timeout_s
        except TimestampError:
            return False

    def _on_group(self, change: Change[PodGroup]) -> None:
        if change.new is None:
            self._logged_reasons.pop(change.key, None)
            for key, each in self._leaving.pop(change.key, {}).items():
                self._note(EVICT, Outcome.NO_EVICTION, key, theirs=each.node)
        else:
            if change.old is None:
                self._changed_s = self._now_s()
            self._judge_evictions(change.new)

    def _note(
        self, kind: str, outcome: Outcome, key: str, *, theirs: str = "", ours: str = "", why: str = "", queue: str = ""
    ) -> None:
        """Count an outcome, for the report and for metrics."""
        pod = self._intake.pods.get(key)
        group = self._intake.groups.get(_group_of(pod)) if pod is not None else None
        queue = queue or (group.spec.queue if group is not None else "")
        self.report.add(Difference(self._at(), kind, outcome, key, queue, theirs, ours, why))
        self._metrics.count_shadow_comparison(kind, _METRIC_OUTCOMES.get(outcome, _DIFFERED))

    def _at(self) -> str:
        return format_timestamp(int(self._now_s() * _NANOSECONDS))

    def _now_s(self) -> float:
        return self._clock.now().timestamp()


def _single_line(text: str) -> str:
    """A text of several lines as one."""
    return " ".join(text.split())


def changes_decisions(old: Pod | None, pod: Pod | None) -> bool:
    """Whether a pod came, went, ended, or got its group or node; a deletion that has only begun frees nothing yet."""
    if old is None or pod is None:
        return True
    before, after = ((_group_of(each), each.spec.node_name, each.status.phase in _ENDED) for each in (old, pod))
    return before != after


def _group_of(pod: Pod) -> str:
    """The PodGroup that a pod names."""
    return object_key(pod.metadata.namespace, pod.metadata.annotations.get(names.POD_GROUP_ANNOTATION, ""))
