"""What is published about work that waits, starts, breaks or goes (cycle:17), and only when it changed.

    Plan --diff (engine's thread)--> StatusDiff --publish (event loop)--> conditions, timestamps, events

`diff` compares a plan with what was published before.  A plan whose refusals are the very same objects as last time
costs nothing; equal refusals cost a comparison; texts are made for changed ones only.  `publish` passes conditions and
timestamps to `StatusWrites`, which compares them with the cached object, so that a restarted scheduler repeats nothing.

Rules that limit the writes:

- events come with a changed text, and again every ten minutes while nothing changes;
- a text that changes while the reason stays (figures in a busy cluster) is published every few seconds at most;
- pods of a gang of which too few exist get their condition when that has lasted a moment: most gangs arrive in one go,
  and a write for each early pod would be wasted;
- a pod without a PodGroup gets no condition for some time, because the pod grouper needs some; while it works off a
  backlog, only pods that later ones have overtaken get one.

All times here are those of the cluster's clock, as the cycle has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pykai.api import names
from pykai.api.keys import object_key
from pykai.api.timestamp import format_timestamp
from pykai.core.cluster.changetokens import ChangeTokens
from pykai.core.cluster.groupindex import GroupEntry
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.gates import Gate
from pykai.core.model.status import ACTIVE_ALLOCATED, TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.report.decisions import (
    NoPlace,
    NotReady,
    OverCapacity,
    Plan,
    QueueAccessDenied,
    QueueFigures,
    Refusal,
    StrayPod,
    Unscheduled,
)
from pykai.core.report.sentences import (
    UNABLE_TO_SCHEDULE_POD,
    detailed_group_text,
    detailed_task_text,
    group_text,
    orphan_text,
    queue_details,
    reason_of,
    refusal_text,
    stale_text,
    task_text,
)
from pykai.scheduler.status.starttimestamps import groups_without_start

_SECOND = 1_000_000_000
REPEAT_EVENT_NS = 600 * _SECOND
#: between two texts of a group that differ in figures only
MIN_TEXT_INTERVAL_NS = 5 * _SECOND
#: how often everything is checked though nothing changed
SWEEP_NS = 10 * _SECOND
#: how long a pod may be without PodGroup before that is published
GROUPING_GRACE_NS = 10 * _SECOND
#: how long a gang may be incomplete before its pods get a condition
GATHERING_GRACE_NS = 2 * _SECOND
_NEVER_NS = 2**63


class PodStatusDiff(NamedTuple):
    """Why one pod waits."""

    key: str
    uid: str
    text: str
    #: write the condition PodScheduled
    condition: bool
    #: send an event
    event: bool
    #: reason of the condition and of the event
    reason: str = names.CONDITION_REASON_UNSCHEDULABLE


@dataclass(frozen=True, slots=True)
class GroupStatusDiff:
    """Why a group waits."""

    key: str
    uid: str
    text: str
    #: reason of the event: Unschedulable, NotReady or QueueAccessDenied
    reason: str
    event: bool
    #: entries of `reasons` of the scheduling condition, None = no condition is written
    reasons: tuple[dict[str, object], ...] | None
    pods: tuple[PodStatusDiff, ...]


@dataclass(slots=True)
class StatusDiff:
    """Everything that a plan changes in published statuses."""

    groups: list[GroupStatusDiff] = field(default_factory=list)
    #: pods outside any group
    pods: list[PodStatusDiff] = field(default_factory=list)
    #: groups whose scheduling conditions are removed
    cleared: list[str] = field(default_factory=list)
    #: group key -> annotations to set, None = to remove
    timestamp_annotations: dict[str, dict[str, str | None]] = field(default_factory=dict)
    #: groups that run without a written start -> their pods, and how far back a start matters
    without_start_time: dict[str, tuple[str, ...]] = field(default_factory=dict)
    protected_ns: int = 0
    #: group key, text
    stale: list[tuple[str, str]] = field(default_factory=list)
    #: pod key, uid, node, and why it may not start where there is room
    pipelined: list[tuple[str, str, str, str]] = field(default_factory=list)


@dataclass(slots=True)
class _PublishedStatus:
    """What was last published about a group."""

    record: Unscheduled
    uids: tuple[str, ...]
    text: str
    pod_texts: tuple[str, ...]
    #: whether a scheduling condition goes with it
    condition: bool
    #: whether its pods got conditions
    pods_published: bool
    at_ns: int
    event_ns: int


class StatusTracker:
    """Remembers what was published.  Used by one thread at a time, the engine's (cycle:PERF-10)."""

    def __init__(self) -> None:
        self._published: dict[str, _PublishedStatus] = {}
        #: groups without enough pods -> since when
        self._incomplete: dict[str, int] = {}
        #: when the first of them whose pods have no condition yet is due
        self._next_gathered_ns = _NEVER_NS
        self._stale: dict[str, tuple[str, int]] = {}
        self._orphans_published: dict[str, int] = {}
        #: pods without a group at the last sweep: key -> uid and creation; when one got its group, and the newest such
        self._ungrouped: dict[str, tuple[str, int]] = {}
        self._grouped_ns: int | None = None
        self._newest_grouped_ns = 0
        #: the longest minimum run time so far
        self._protected_ns = 0
        #: uid of a pod -> node, and whether pods in deletion keep it from starting
        self._pipelined: dict[str, tuple[str, bool]] = {}
        self._last_plan_parts: tuple[object, object, object] | None = None
        self._sweep_ns = 0
        self._last_conditioned: frozenset[str] | None = None
        self._change_tokens: ChangeTokens | None = None

    def forget(self) -> None:
        """Forget what was published; a new leader starts this way."""
        # mypy fears a subclass whose constructor takes arguments; there is none.
        self.__init__()  # type: ignore[misc]

    def diff(
        self,
        plan: Plan,
        snapshot: Snapshot,
        conditioned: frozenset[str],
        groups_backing_off: Collection[str] = (),
        *,
        protected_ns: int = 0,
    ) -> StatusDiff:
        """What is new in a plan.

        `conditioned` are the groups that have scheduling conditions, `groups_backing_off` those that pause after a
        failed bind: their reasons are published already.  `protected_ns` is the longest minimum run time of any queue.
        """
        diff = StatusDiff()
        now_ns = plan.now_ns
        due = now_ns >= min(self._sweep_ns, self._next_gathered_ns)
        plan_parts = (plan.unscheduled, plan.nominations, plan.stale)
        changed = self._last_plan_parts is None or any(
            new is not old for new, old in zip(plan_parts, self._last_plan_parts, strict=True)
        )
        self._diff_annotations(plan, snapshot, diff, protected_ns)
        cluster_changed = (
            self._change_tokens is None
            or not self._change_tokens.is_same(snapshot.change_tokens)
            or conditioned is not self._last_conditioned
        )
        if not (due or changed or cluster_changed):
            return diff
        self._change_tokens = snapshot.change_tokens
        if due:
            self._sweep_ns = now_ns + SWEEP_NS
            self._diff_orphans(plan, snapshot, diff)
        self._last_plan_parts = plan_parts
        self._last_conditioned = conditioned
        if due or changed:
            self._next_gathered_ns = _NEVER_NS
            queues = {figures.name: figures for figures in plan.queues}
            waiting: set[str] = set()
            for record in plan.unscheduled:
                key = object_key(record.namespace, record.group)
                waiting.add(key)
                entry = snapshot.group_entries.get(key)
                if entry is not None and entry.group is not None and key not in groups_backing_off:
                    self._diff_waiting_group(key, record, entry, queues, snapshot, now_ns, diff)
            for key in self._published.keys() - waiting:
                del self._published[key]
            for key in self._incomplete.keys() - waiting:
                del self._incomplete[key]
            self._diff_pipelined(plan, diff)
        self._diff_cleared_conditions(plan, snapshot, conditioned, diff)
        return diff

    def _diff_waiting_group(
        self,
        key: str,
        record: Unscheduled,
        entry: GroupEntry,
        queues: dict[str, QueueFigures],
        snapshot: Snapshot,
        now_ns: int,
        diff: StatusDiff,
    ) -> None:
        """Compare a waiting group with what was published about it."""
        if entry.gated and any(task.gate is Gate.OPENING for task in entry.tasks.values()):
            # It was admitted to its queue, and the watch does not show that yet.
            return
        tasks = [task for task in entry.tasks.values() if task.for_this_scheduler and task.status is TaskStatus.PENDING]
        uids = tuple(task.uid for task in tasks)
        published = self._published.get(key)
        overdue = published is not None and now_ns - published.event_ns >= REPEAT_EVENT_NS
        ready = not any(isinstance(refusal, NotReady) for refusal in record.refusals)
        publishes_pods = self._publishes_pods(key, ready, now_ns)
        condition = ready and _may_have_condition(entry)
        subjects = (uids, condition, publishes_pods)
        if published is not None and not overdue and _is_published(published, record, subjects, now_ns):
            return
        group = entry.group
        assert group is not None
        # A group that tries a pool once says which (cycle:EXP-13).
        tries_once = group.scheduling_backoff == names.BACKOFF_ONCE
        prefix = f"Node-Pool '{group.node_pool or names.DEFAULT_NODE_POOL}': " if tries_once else ""
        detailed = any(isinstance(refusal, NoPlace) and refusal.details for refusal in record.refusals)
        text = prefix + (detailed_group_text(record) if detailed else group_text(record))
        pod_texts = tuple(_pod_texts(record, tasks, ready, prefix, publishes_pods))
        text_is_new = overdue or published is None or published.text != text
        self._published[key] = _PublishedStatus(
            record,
            uids,
            text,
            pod_texts,
            condition,
            publishes_pods,
            now_ns,
            now_ns if text_is_new or published is None else published.event_ns,
        )
        known = published if published is not None and not overdue else None
        pods = tuple(
            _pod_diffs(_new_pod_texts(tasks, pod_texts, known), record, ready=ready, mark=group.mark_unschedulable)
        )
        if not text_is_new and not pods and published is not None and published.condition == condition:
            return
        diff.groups.append(
            GroupStatusDiff(
                key=key,
                uid=group.uid,
                text=text,
                reason=_event_reason(entry, ready),
                event=text_is_new,
                reasons=_condition_reasons(record, queues) if condition else None,
                pods=pods,
            )
        )

    def _publishes_pods(self, key: str, ready: bool, now_ns: int) -> bool:
        """Whether the pods of a group get the reason: an incomplete gang has some time to gather."""
        if ready:
            self._incomplete.pop(key, None)
            return True
        gathered_ns = self._incomplete.setdefault(key, now_ns) + GATHERING_GRACE_NS
        if now_ns >= gathered_ns:
            return True
        self._next_gathered_ns = min(self._next_gathered_ns, gathered_ns)
        return False

    def _diff_annotations(self, plan: Plan, snapshot: Snapshot, diff: StatusDiff, protected_ns: int) -> None:
        """Annotations that remember when things happened (cycle:EXP-8); starts where they are needed."""
        now = format_timestamp(plan.now_ns)
        timestamp_annotations = diff.timestamp_annotations
        if protected_ns:
            for key in plan.started:
                timestamp_annotations.setdefault(key, {})[names.LAST_START_TIMESTAMP_ANNOTATION] = now
        if protected_ns > self._protected_ns:
            started = set(plan.started)
            diff.without_start_time = {
                key: pods for key, pods in groups_without_start(snapshot).items() if key not in started
            }
            diff.protected_ns = protected_ns
        self._protected_ns = protected_ns
        for eviction in plan.evictions:
            if not eviction.unbound:
                timestamp_annotations.setdefault(eviction.group, {})[names.LAST_EVICTION_TIMESTAMP_ANNOTATION] = now
        stale: dict[str, tuple[str, int]] = {}
        for gang in plan.stale:
            key = object_key(gang.namespace, gang.group)
            entry = snapshot.group_entries.get(key)
            stale_since_ns = entry.group.stale_since_ns if entry is not None and entry.group is not None else None
            if stale_since_ns is None or stale_since_ns > plan.now_ns:
                timestamp_annotations.setdefault(key, {})[names.STALE_TIMESTAMP_ANNOTATION] = format_timestamp(
                    gang.since_ns
                )
            if gang.leaving:
                continue  # Nothing is left to be evicted (kueue:leaving).
            text = stale_text(gang)
            before = self._stale.get(key)
            if before is not None and before[0] == text and plan.now_ns - before[1] < REPEAT_EVENT_NS:
                stale[key] = before
            else:
                stale[key] = (text, plan.now_ns)
                diff.stale.append((key, text))
        self._stale = stale
        for key in plan.recovered:
            timestamp_annotations.setdefault(key, {})[names.STALE_TIMESTAMP_ANNOTATION] = None

    def _diff_cleared_conditions(
        self, plan: Plan, snapshot: Snapshot, conditioned: Iterable[str], diff: StatusDiff
    ) -> None:
        """Groups whose pods are placed, or admitted to their queue, lose their conditions (cycle:EXP-12;
        queues:Q-409)."""
        if not conditioned:
            return
        moving = {item.group for item in plan.binds} | {item.group for item in plan.nominations}
        admitted = {item.group for item in plan.ungates or ()}
        admitted.difference_update(object_key(record.namespace, record.group) for record in plan.unscheduled)
        for key in conditioned:
            entry = snapshot.group_entries.get(key)
            if entry is None or entry.group is None:
                continue
            if key in admitted and not entry.pending:
                diff.cleared.append(key)
                continue
            if entry.pending or entry.gated or key in moving:
                continue
            if not any(task.status is TaskStatus.BINDING for task in entry.tasks.values()):
                diff.cleared.append(key)

    def _diff_orphans(self, plan: Plan, snapshot: Snapshot, diff: StatusDiff) -> None:
        """Pods that are overdue for a group: no pod gets one at present, or later pods have theirs."""
        waiting: dict[str, tuple[str, int]] = {}
        for orphan in plan.orphans:
            key = object_key(orphan.namespace, orphan.pod)
            task = snapshot.task_records.get(key)
            if task is not None:
                waiting[key] = (task.uid, task.creation_ns)
        now_ns = plan.now_ns
        for key, (uid, creation_ns) in self._ungrouped.items():
            if key not in waiting and (task := snapshot.task_records.get(key)) is not None and task.uid == uid:
                self._grouped_ns = now_ns
                self._newest_grouped_ns = max(self._newest_grouped_ns, creation_ns)
        if self._grouped_ns is None:
            # A scheduler that has just started does not know yet how fast groups are made.
            self._grouped_ns = now_ns
        stalled = now_ns - self._grouped_ns >= GROUPING_GRACE_NS
        published: dict[str, int] = {}
        texts = {object_key(orphan.namespace, orphan.pod): orphan for orphan in plan.orphans}
        for key, (uid, creation_ns) in waiting.items():
            is_overtaken = self._newest_grouped_ns - creation_ns >= GROUPING_GRACE_NS
            if now_ns - creation_ns < GROUPING_GRACE_NS or not (stalled or is_overtaken):
                continue
            before = self._orphans_published.get(uid)
            if before is None or now_ns - before >= REPEAT_EVENT_NS:
                diff.pods.append(PodStatusDiff(key, uid, orphan_text(texts[key]), condition=True, event=True))
                before = now_ns
            published[uid] = before
        self._orphans_published = published
        self._ungrouped = waiting

    def _diff_pipelined(self, plan: Plan, diff: StatusDiff) -> None:
        published = {}
        for item in plan.nominations:
            published[item.uid] = (item.node, item.held is not None)
            if self._pipelined.get(item.uid) != published[item.uid]:
                why = f"{reason_of(item.held)}: {refusal_text(item.held)}" if item.held is not None else ""
                diff.pipelined.append((object_key(item.namespace, item.pod), item.uid, item.node, why))
        self._pipelined = published


def _event_reason(entry: GroupEntry, ready: bool) -> str:
    if entry.denial is not None:
        return names.EVENT_QUEUE_ACCESS_DENIED
    return names.EVENT_UNSCHEDULABLE if ready else names.EVENT_NOT_READY


def _may_have_condition(entry: GroupEntry) -> bool:
    """Whether the PodGroup may have a condition, also while others of its pods run (cycle:EXP-11, ADR 27).

    A condition keeps a group that tries a pool once out of the cycles of that pool (cycle:SNP-11), so such a group gets
    none while a pod of it runs: its waiting pods would never be tried again.  Nor does one of which no pod was tried,
    since all wait for admission to their queue.
    """
    group = entry.group
    if group is None or group.scheduling_backoff == names.BACKOFF_NONE:
        return True
    if entry.held.tasks and not entry.pending:
        return False
    return not any(ACTIVE_ALLOCATED[task.status] for task in entry.tasks.values())


def _is_published(
    published: _PublishedStatus, record: Unscheduled, subjects: tuple[tuple[str, ...], bool, bool], now_ns: int
) -> bool:
    """Whether the same was published, or so recently that new figures for the same reasons can wait."""
    if (published.uids, published.condition, published.pods_published) != subjects:
        return False
    if published.record is record or published.record == record:
        return True
    return now_ns - published.at_ns < MIN_TEXT_INTERVAL_NS and _have_same_reasons(published.record, record)


def _pod_diffs(
    new_texts: Iterable[tuple[Task, str]], record: Unscheduled, *, ready: bool, mark: bool
) -> Iterator[PodStatusDiff]:
    """What to publish about pods; a pod of a group that is not ready gets no event, unless it is a stray."""
    strays = {refusal.pod for refusal in record.refusals if isinstance(refusal, StrayPod)}
    denied = any(isinstance(refusal, QueueAccessDenied) for refusal in record.refusals)
    for task, text in new_texts:
        if denied:
            yield PodStatusDiff(task.key, task.uid, text, mark, True, names.CONDITION_REASON_QUEUE_ACCESS_DENIED)
        elif ready or task.key in strays:
            yield PodStatusDiff(task.key, task.uid, text, mark, event=True)
        else:
            yield PodStatusDiff(task.key, task.uid, text, mark, False, names.CONDITION_REASON_NOT_READY)


def _new_pod_texts(
    tasks: Iterable[Task], pod_texts: Iterable[str], published: _PublishedStatus | None
) -> Iterator[tuple[Task, str]]:
    """The unpublished texts, with their pods."""
    known = dict(zip(published.uids, published.pod_texts, strict=True)) if published is not None else {}
    for task, text in zip(tasks, pod_texts, strict=True):
        if text and known.get(task.uid) != text:
            yield task, text


def _have_same_reasons(one: Unscheduled, other: Unscheduled) -> bool:
    """Whether two records give the same reasons, whatever the figures."""
    return [_reason_kind(refusal) for refusal in one.refusals] == [_reason_kind(refusal) for refusal in other.refusals]


def _reason_kind(refusal: Refusal) -> tuple[str, str]:
    return type(refusal).__name__, reason_of(refusal)


def _pod_texts(record: Unscheduled, tasks: list[Task], ready: bool, prefix: str, publishes_pods: bool) -> Iterable[str]:
    """The text for each pod, "" = none (cycle:EXP-9, EXP-10); pods of a group that is not ready say what it says.

    Statements: operations:E-8.
    """
    own: dict[str, str] = {}
    for refusal in record.refusals:
        if isinstance(refusal, NoPlace) and ready:
            own.setdefault(refusal.pod, detailed_task_text(refusal) if refusal.details else task_text(refusal))
        elif isinstance(refusal, StrayPod):
            own[refusal.pod] = refusal_text(refusal)
    shared = ""
    if publishes_pods:
        shared = group_text(record) if record.refusals else UNABLE_TO_SCHEDULE_POD
    for task in tasks:
        text = own.get(task.key, shared)
        yield prefix + text if text else ""


def _condition_reasons(record: Unscheduled, queues: dict[str, QueueFigures]) -> tuple[dict[str, object], ...]:
    """The `reasons` of a scheduling condition; equal ones once (operations:E-24)."""
    reasons: dict[tuple[str, str], dict[str, object]] = {}
    for refusal in record.refusals:
        reason, message = reason_of(refusal), refusal_text(refusal)
        entry: dict[str, object] = {"reason": reason, "message": message}
        if isinstance(refusal, OverCapacity) and refusal.queue in queues:
            entry["details"] = {"queueDetails": queue_details(refusal, queues[refusal.queue])}
        reasons.setdefault((reason, message), entry)
    return tuple(reasons.values())
