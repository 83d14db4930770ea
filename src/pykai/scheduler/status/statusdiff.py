"""What the cluster is told about work that waits, starts, breaks or goes (cycle:17), and only when it is news.

    Plan --digest (engine's thread)--> News --announce (event loop)--> conditions, stamps, events

`digest` compares a plan with what was told before.  A plan whose refusals are the very same objects as last time costs
nothing; equal refusals cost a comparison; texts are made for changed ones only.  `announce` hands conditions and stamps
to `StatusWrites`, which compares them with the cached object once more, so that a restarted scheduler repeats nothing.

Rules that keep it quiet:

- events come with a changed text, and again every ten minutes while nothing changes;
- a text that changes while the reason stays (figures that move in a busy cluster) is told every few seconds at most;
- pods of a gang of which too few exist get their condition when that has lasted a moment: most gangs arrive in one go,
  and a write for each pod that came early would be one too many;
- a pod without a PodGroup is given some time, because the pod grouper needs some; while it works off a crowd, pods are
  told only when others that came later have their groups already.

All times here are those of the cluster's clock, as the cycle has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pykai.api import names
from pykai.api.timestamp import format_timestamp
from pykai.core.cluster.changetokens import ChangeTokens
from pykai.core.cluster.groupindex import GroupEntry
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.status import ACTIVE_ALLOCATED, TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.report.decisions import (
    NoPlace,
    NotReady,
    OverCapacity,
    Plan,
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
from pykai.scheduler.status.startstamps import without_start

_SECOND = 1_000_000_000
HEARTBEAT_NS = 600 * _SECOND
#: between two texts of a group that differ in figures only
CALM_NS = 5 * _SECOND
#: how often everything is looked at though nothing changed
SWEEP_NS = 10 * _SECOND
#: how long a pod may be without PodGroup before it is told
GROUPING_NS = 10 * _SECOND
#: how long a gang may be incomplete before its pods say so
GATHERING_NS = 2 * _SECOND
_NEVER_NS = 2**63


class PodNews(NamedTuple):
    """Why one pod waits."""

    key: str
    uid: str
    text: str
    #: write the condition PodScheduled
    condition: bool
    #: send an event
    event: bool
    #: reason of the condition
    reason: str = names.CONDITION_REASON_UNSCHEDULABLE


@dataclass(frozen=True, slots=True)
class GroupNews:
    """Why a group waits."""

    key: str
    uid: str
    text: str
    #: reason of the event: Unschedulable or NotReady
    reason: str
    event: bool
    #: entries of `reasons` of the scheduling condition, None = no condition is written
    reasons: tuple[dict[str, object], ...] | None
    pods: tuple[PodNews, ...]


@dataclass(slots=True)
class News:
    """Everything a plan changed about what should be known."""

    groups: list[GroupNews] = field(default_factory=list)
    #: pods outside any group
    pods: list[PodNews] = field(default_factory=list)
    #: groups whose scheduling conditions go
    cleared: list[str] = field(default_factory=list)
    #: group key -> annotations to set, None = to remove
    stamps: dict[str, dict[str, str | None]] = field(default_factory=dict)
    #: groups that run without a written start -> their pods, and how far back a start matters
    unstamped: dict[str, tuple[str, ...]] = field(default_factory=dict)
    protected_ns: int = 0
    #: group key, text
    stale: list[tuple[str, str]] = field(default_factory=list)
    #: pod key, uid, node, and why it may not start where there is room
    pipelined: list[tuple[str, str, str, str]] = field(default_factory=list)


@dataclass(slots=True)
class _Told:
    """What was last said about a group."""

    record: Unscheduled
    uids: tuple[str, ...]
    text: str
    pod_texts: tuple[str, ...]
    #: whether a scheduling condition goes with it
    condition: bool
    #: whether its pods were told
    pods_told: bool
    at_ns: int
    event_ns: int


class StatusBook:
    """Remembers what was told.  Used by one thread at a time, the engine's (cycle:PERF-10)."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}
        #: groups without enough pods -> since when
        self._incomplete: dict[str, int] = {}
        #: when the first of them whose pods were not told yet has had its time
        self._gathered_ns = _NEVER_NS
        self._stale: dict[str, tuple[str, int]] = {}
        self._orphans: dict[str, int] = {}
        #: pods without a group at the last sweep: key -> uid and creation; when one got its group, and the newest such
        self._ungrouped: dict[str, tuple[str, int]] = {}
        self._grouped_ns: int | None = None
        self._newest_grouped_ns = 0
        #: the longest minimum run time so far
        self._protected_ns = 0
        #: uid of a pod -> node, and whether pods in deletion keep it from starting
        self._pipelined: dict[str, tuple[str, bool]] = {}
        self._seen: tuple[object, object, object] | None = None
        self._sweep_ns = 0
        self._clearable: frozenset[str] | None = None
        self._content: ChangeTokens | None = None

    def forget(self) -> None:
        """Nothing is known to have been told; whoever takes over the lease starts so."""
        self.__init__()  # type: ignore[misc]

    def digest(
        self,
        plan: Plan,
        snapshot: Snapshot,
        conditioned: frozenset[str],
        held_back: Collection[str] = (),
        *,
        protected_ns: int = 0,
    ) -> News:
        """What is new in a plan.

        `conditioned` are the groups that have scheduling conditions, `held_back` those that pause after a failed bind:
        they were told why already.  `protected_ns` is the longest minimum run time of anybody.
        """
        news = News()
        now_ns = plan.now_ns
        due = now_ns >= min(self._sweep_ns, self._gathered_ns)
        seen = (plan.unscheduled, plan.nominations, plan.stale)
        changed = self._seen is None or any(new is not old for new, old in zip(seen, self._seen, strict=True))
        self._stamp(plan, snapshot, news, protected_ns)
        moved = (
            self._content is None
            or not self._content.is_same(snapshot.change_tokens)
            or conditioned is not self._clearable
        )
        if not (due or changed or moved):
            return news
        self._content = snapshot.change_tokens
        if due:
            self._sweep_ns = now_ns + SWEEP_NS
            self._tell_orphans(plan, snapshot, news)
        self._seen = seen
        self._clearable = conditioned
        if due or changed:
            self._gathered_ns = _NEVER_NS
            queues = {figures.name: figures for figures in plan.queues}
            waiting: set[str] = set()
            for record in plan.unscheduled:
                key = f"{record.namespace}/{record.group}"
                waiting.add(key)
                entry = snapshot.groups.get(key)
                if entry is not None and entry.group is not None and key not in held_back:
                    self._waits(key, record, entry, queues, snapshot, now_ns, news)
            for key in self._told.keys() - waiting:
                del self._told[key]
            for key in self._incomplete.keys() - waiting:
                del self._incomplete[key]
            self._tell_pipelined(plan, news)
        self._clear(plan, snapshot, conditioned, news)
        return news

    def _waits(
        self,
        key: str,
        record: Unscheduled,
        entry: GroupEntry,
        queues: dict[str, QueueFigures],
        snapshot: Snapshot,
        now_ns: int,
        news: News,
    ) -> None:
        """Compare a waiting group with what was told about it."""
        tasks = [task for task in entry.tasks.values() if task.for_this_scheduler and task.status is TaskStatus.PENDING]
        uids = tuple(task.uid for task in tasks)
        told = self._told.get(key)
        overdue = told is not None and now_ns - told.event_ns >= HEARTBEAT_NS
        ready = not any(isinstance(refusal, NotReady) for refusal in record.refusals)
        if ready:
            self._incomplete.pop(key, None)
        gathered_ns = now_ns if ready else self._incomplete.setdefault(key, now_ns) + GATHERING_NS
        tells_pods = now_ns >= gathered_ns
        if not tells_pods:
            self._gathered_ns = min(self._gathered_ns, gathered_ns)
        condition = ready and _may_have_condition(entry)
        same = told is not None and (told.uids, told.condition, told.pods_told) == (uids, condition, tells_pods)
        if told is not None and same and not overdue:
            if told.record is record or told.record == record:
                return
            if now_ns - told.at_ns < CALM_NS and _alike(told.record, record):
                return
        group = entry.group
        assert group is not None
        prefix = ""
        if group.scheduling_backoff == names.BACKOFF_ONCE:
            # A group that tries a pool once says which (cycle:EXP-13).
            prefix = f"Node-Pool '{group.node_pool or names.DEFAULT_NODE_POOL}': "
        detailed = any(isinstance(refusal, NoPlace) and refusal.details for refusal in record.refusals)
        text = prefix + (detailed_group_text(record) if detailed else group_text(record))
        pod_texts = tuple(_pod_texts(record, tasks, ready, prefix, tells_pods))
        known = dict(zip(told.uids, told.pod_texts, strict=True)) if told is not None else {}
        fresh = overdue or told is None or told.text != text
        self._told[key] = _Told(
            record,
            uids,
            text,
            pod_texts,
            condition,
            tells_pods,
            now_ns,
            now_ns if fresh or told is None else told.event_ns,
        )
        strays = {refusal.pod for refusal in record.refusals if isinstance(refusal, StrayPod)}
        pods = tuple(
            PodNews(task.key, task.uid, said, group.mark_unschedulable, event=True)
            if ready or task.key in strays
            else PodNews(task.key, task.uid, said, group.mark_unschedulable, False, names.CONDITION_REASON_NOT_READY)
            for task, said in zip(tasks, pod_texts, strict=True)
            if said and (overdue or known.get(task.uid) != said)
        )
        if not fresh and not pods and told is not None and told.condition == condition:
            return
        news.groups.append(
            GroupNews(
                key=key,
                uid=group.uid,
                text=text,
                reason=names.EVENT_UNSCHEDULABLE if ready else names.EVENT_NOT_READY,
                event=fresh,
                reasons=_reasons(record, queues) if condition else None,
                pods=pods,
            )
        )

    def _stamp(self, plan: Plan, snapshot: Snapshot, news: News, protected_ns: int) -> None:
        """Annotations that remember when things happened (cycle:EXP-8); starts where somebody may ask for them."""
        now = format_timestamp(plan.now_ns)
        stamps = news.stamps
        if protected_ns:
            for key in plan.started:
                stamps.setdefault(key, {})[names.LAST_START_TIMESTAMP_ANNOTATION] = now
        if protected_ns > self._protected_ns:
            started = set(plan.started)
            news.unstamped = {key: pods for key, pods in without_start(snapshot).items() if key not in started}
            news.protected_ns = protected_ns
        self._protected_ns = protected_ns
        for eviction in plan.evictions:
            if not eviction.unbound:
                stamps.setdefault(eviction.group, {})[names.LAST_EVICTION_TIMESTAMP_ANNOTATION] = now
        stale: dict[str, tuple[str, int]] = {}
        for gang in plan.stale:
            key = f"{gang.namespace}/{gang.group}"
            entry = snapshot.groups.get(key)
            known_ns = entry.group.stale_since_ns if entry is not None and entry.group is not None else None
            if known_ns is None or known_ns > plan.now_ns:
                stamps.setdefault(key, {})[names.STALE_TIMESTAMP_ANNOTATION] = format_timestamp(gang.since_ns)
            text = stale_text(gang)
            before = self._stale.get(key)
            if before is not None and before[0] == text and plan.now_ns - before[1] < HEARTBEAT_NS:
                stale[key] = before
            else:
                stale[key] = (text, plan.now_ns)
                news.stale.append((key, text))
        self._stale = stale
        for key in plan.recovered:
            stamps.setdefault(key, {})[names.STALE_TIMESTAMP_ANNOTATION] = None

    def _clear(self, plan: Plan, snapshot: Snapshot, conditioned: Iterable[str], news: News) -> None:
        """Groups whose work found its place lose their conditions (cycle:EXP-12)."""
        if not conditioned:
            return
        moving = {item.group for item in plan.binds} | {item.group for item in plan.nominations}
        for key in conditioned:
            entry = snapshot.groups.get(key)
            if entry is None or entry.group is None or entry.pending or entry.gated or key in moving:
                continue
            if not any(task.status is TaskStatus.BINDING for task in entry.tasks.values()):
                news.cleared.append(key)

    def _tell_orphans(self, plan: Plan, snapshot: Snapshot, news: News) -> None:
        """Pods that are overdue for a group: nobody gets one at present, or pods that came later have theirs."""
        waiting: dict[str, tuple[str, int]] = {}
        for orphan in plan.orphans:
            key = f"{orphan.namespace}/{orphan.pod}"
            task = snapshot.task_records.get(key)
            if task is not None:
                waiting[key] = (task.uid, task.creation_ns)
        now_ns = plan.now_ns
        for key, (uid, creation_ns) in self._ungrouped.items():
            if key not in waiting and (task := snapshot.task_records.get(key)) is not None and task.uid == uid:
                self._grouped_ns = now_ns
                self._newest_grouped_ns = max(self._newest_grouped_ns, creation_ns)
        if self._grouped_ns is None:
            # Who has just begun to look does not know yet how fast groups are made.
            self._grouped_ns = now_ns
        stalled = now_ns - self._grouped_ns >= GROUPING_NS
        told: dict[str, int] = {}
        texts = {f"{orphan.namespace}/{orphan.pod}": orphan for orphan in plan.orphans}
        for key, (uid, creation_ns) in waiting.items():
            overtaken = self._newest_grouped_ns - creation_ns >= GROUPING_NS
            if now_ns - creation_ns < GROUPING_NS or not (stalled or overtaken):
                continue
            before = self._orphans.get(uid)
            if before is None or now_ns - before >= HEARTBEAT_NS:
                news.pods.append(PodNews(key, uid, orphan_text(texts[key]), condition=True, event=True))
                before = now_ns
            told[uid] = before
        self._orphans = told
        self._ungrouped = waiting

    def _tell_pipelined(self, plan: Plan, news: News) -> None:
        told = {}
        for item in plan.nominations:
            told[item.uid] = (item.node, item.held is not None)
            if self._pipelined.get(item.uid) != told[item.uid]:
                why = f"{reason_of(item.held)}: {refusal_text(item.held)}" if item.held is not None else ""
                news.pipelined.append((f"{item.namespace}/{item.pod}", item.uid, item.node, why))
        self._pipelined = told


def _may_have_condition(entry: GroupEntry) -> bool:
    """Whether the PodGroup may say why its pods wait, also while others of its pods run (cycle:EXP-11, ADR 27).

    A condition keeps a group that tries a pool once out of the cycles of that pool (cycle:SNP-11), so such a group gets
    none while something of it runs: what waits would never be tried again.
    """
    group = entry.group
    if group is None or group.scheduling_backoff == names.BACKOFF_NONE:
        return True
    return not any(ACTIVE_ALLOCATED[task.status] for task in entry.tasks.values())


def _alike(one: Unscheduled, other: Unscheduled) -> bool:
    """Whether two records give the same reasons, whatever the figures."""
    return [_kind(refusal) for refusal in one.refusals] == [_kind(refusal) for refusal in other.refusals]


def _kind(refusal: Refusal) -> tuple[str, str]:
    return type(refusal).__name__, reason_of(refusal)


def _pod_texts(record: Unscheduled, tasks: list[Task], ready: bool, prefix: str, told: bool) -> Iterable[str]:
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
    if told:
        shared = group_text(record) if record.refusals else UNABLE_TO_SCHEDULE_POD
    for task in tasks:
        text = own.get(task.key, shared)
        yield prefix + text if text else ""


def _reasons(record: Unscheduled, queues: dict[str, QueueFigures]) -> tuple[dict[str, object], ...]:
    """The `reasons` of a scheduling condition; equal ones once (operations:E-24)."""
    found: dict[tuple[str, str], dict[str, object]] = {}
    for refusal in record.refusals:
        reason, message = reason_of(refusal), refusal_text(refusal)
        entry: dict[str, object] = {"reason": reason, "message": message}
        if isinstance(refusal, OverCapacity) and refusal.queue in queues:
            entry["details"] = {"queueDetails": queue_details(refusal, queues[refusal.queue])}
        found.setdefault((reason, message), entry)
    return tuple(found.values())
