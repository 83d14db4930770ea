"""What is a change of status: texts, new pods, a heartbeat; and what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from pykai.api import names
from pykai.api.core import SchedulingGate
from pykai.api.scheduling import SubGroup
from pykai.api.timestamp import format_timestamp
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cluster.tables import Tables
from pykai.core.cycle.memory import CycleMemory
from pykai.core.report.decisions import NoPlace, Plan, Refusal, StrayPod
from pykai.core.report.sentences import NO_NODES
from pykai.core.schedule import schedule
from pykai.lab import objects as build
from pykai.scheduler.config.configuration import default_configuration
from pykai.scheduler.status.statusdiff import (
    GATHERING_GRACE_NS,
    MIN_TEXT_INTERVAL_NS,
    REPEAT_EVENT_NS,
    SWEEP_NS,
    StatusDiff,
    StatusTracker,
)

NOW_NS = 1_767_225_600_000_000_000
SECOND = 1_000_000_000


class Cluster:
    """Tables, and cycles on them at any time."""

    def __init__(self, *objects: Any) -> None:
        parent = build.queue("department")
        self.tables = Tables(None, [parent, build.queue("team", parent="department"), *objects])
        self.memory = CycleMemory()
        self.policy = default_configuration().policy
        self.book = StatusTracker()
        self.conditioned: frozenset[str] = frozenset()

    def cycle(self, after_s: float = 0.0) -> tuple[Plan, Snapshot]:
        snapshot = self.tables.snapshot(NOW_NS + int(after_s * SECOND))
        return schedule(snapshot, self.policy, self.memory), snapshot

    def news(self, after_s: float = 0.0, *, protected_s: int = 0) -> StatusDiff:
        plan, snapshot = self.cycle(after_s)
        return self.book.diff(plan, snapshot, self.conditioned, protected_ns=protected_s * SECOND)


def crowded(pods: int = 1) -> Cluster:
    """A group that waits because the only GPU is taken."""
    return Cluster(
        build.node("a", gpus=1),
        build.pod_group("runs", namespace="ns", queue="team"),
        build.pod("runs-0", namespace="ns", group="runs", gpus=1, on="a"),
        build.pod_group("waits", namespace="ns", queue="team", minimum=pods),
        *(build.pod(f"waits-{index}", namespace="ns", group="waits", gpus=1) for index in range(pods)),
    )


def test_a_waiting_group_is_a_change_once() -> None:
    cluster = crowded()
    (group,) = cluster.news().groups
    assert (group.key, group.reason, group.event) == ("ns/waits", "Unschedulable", True)
    assert [(pod.key, pod.condition, pod.event) for pod in group.pods] == [("ns/waits-0", True, True)]
    assert group.reasons is not None
    assert not cluster.news(1).groups


def test_equal_refusals_are_not_a_change() -> None:
    cluster = crowded()
    cluster.news()
    cluster.memory = CycleMemory()
    cluster.tables.apply(build.node("b"))
    cluster.tables.remove("Node", "", "b")
    assert not cluster.news(1).groups


def test_silence_ends_with_a_heartbeat() -> None:
    cluster = crowded()
    cluster.news()
    assert not cluster.news((REPEAT_EVENT_NS - SECOND) / SECOND).groups
    (group,) = cluster.news(REPEAT_EVENT_NS / SECOND + SWEEP_NS / SECOND).groups
    assert group.event
    assert group.pods[0].event


def test_changing_figures_are_written_at_intervals_only() -> None:
    cluster = crowded()
    cluster.news()
    cluster.tables.apply(build.node("b", gpus=0))
    assert not cluster.news(1).groups
    (group,) = cluster.news(MIN_TEXT_INTERVAL_NS / SECOND + SWEEP_NS / SECOND).groups
    assert group.event
    assert "1 node(s) didn't have enough resources: GPUs" in group.text or "2 node(s)" in group.text


def test_another_reason_is_written_at_once() -> None:
    cluster = crowded()
    cluster.news()
    cluster.tables.remove("Queue", "", "team")
    (group,) = (each for each in cluster.news(1).groups if each.key == "ns/waits")
    assert "Queue 'team' does not exist" in group.text


def test_a_new_pod_of_a_waiting_group_gets_a_condition_and_the_others_no_second_one() -> None:
    cluster = crowded()
    cluster.news()
    cluster.tables.apply(build.pod("waits-9", namespace="ns", group="waits", gpus=1))
    (group,) = cluster.news(MIN_TEXT_INTERVAL_NS / SECOND + 1).groups
    assert [pod.key for pod in group.pods if pod.event][-1] == "ns/waits-9"


def pod_texts(cluster: Cluster, *refusals: Refusal) -> list[str]:
    """The conditions of the pods of the waiting group for these refusals of the group."""
    plan, snapshot = cluster.cycle()
    (record,) = plan.unscheduled
    plan = changed(plan, unscheduled=(changed(record, refusals=refusals),))
    (group,) = cluster.book.diff(plan, snapshot, cluster.conditioned).groups
    return [pod.text for pod in group.pods]


def test_a_pod_has_its_own_reason_or_that_of_its_group() -> None:
    """cycle:EXP-10."""
    cordoned = NoPlace("ns/waits-0", "gang", 0, "", 3, nodes={"cordoned": 1})
    stray = StrayPod("ns/waits-1", "x", "ns/waits")
    own, lost, shared = pod_texts(crowded(3), cordoned, stray)
    assert own == f"{NO_NODES}: 1 cordoned."
    assert lost == 'Pod ns/waits-1 references subgroup "x", which does not exist in PodGroup ns/waits'
    assert shared.startswith("Unable to schedule podgroup: ")


def test_a_pod_of_a_group_without_reasons_cannot_be_scheduled() -> None:
    """cycle:EXP-10."""
    assert pod_texts(crowded()) == ["Unable to schedule pod"]


def test_a_group_that_pauses_after_a_refused_bind_keeps_its_reason() -> None:
    cluster = crowded()
    plan, snapshot = cluster.cycle()
    assert not cluster.book.diff(plan, snapshot, frozenset(), {"ns/waits"}).groups


def incomplete(*more: Any) -> Cluster:
    """A gang of three of which one pod exists."""
    return Cluster(
        build.node("a", gpus=4),
        build.pod_group("half", namespace="ns", queue="team", minimum=3),
        build.pod("half-0", namespace="ns", group="half", gpus=1),
        *more,
    )


NOT_READY = "Job is not ready for scheduling. Waiting for 3 pods, currently {} exist, {} are gated"


def test_pods_of_an_incomplete_gang_have_a_reason_of_their_own() -> None:
    """cycle:EXP-10, ADR 27: the event is the group's, which gets no condition; pods get theirs after a moment."""
    cluster = incomplete()
    (group,) = cluster.news().groups
    assert (group.reason, group.text, group.event) == ("NotReady", NOT_READY.format(1, 0), True)
    assert (group.pods, group.reasons) == ((), None)
    assert not cluster.news(1).groups
    (group,) = cluster.news(GATHERING_GRACE_NS / SECOND).groups
    assert (group.event, group.reasons) == (False, None)
    (pod,) = group.pods
    assert (pod.key, pod.text, pod.reason) == ("ns/half-0", NOT_READY.format(1, 0), "PodGroupNotReady")
    assert (pod.condition, pod.event) == (True, False)
    assert not cluster.news(4).groups


def test_a_gang_that_arrives_in_one_go_costs_no_condition_a_pod() -> None:
    cluster = incomplete()
    cluster.news()
    for index in (1, 2):
        cluster.tables.apply(build.pod(f"half-{index}", namespace="ns", group="half", gpus=1))
    plan, snapshot = cluster.cycle(1)
    assert len(plan.binds) == 3
    assert not cluster.book.diff(plan, snapshot, frozenset()).groups


def test_gated_pods_of_an_incomplete_gang_are_left_alone() -> None:
    pod = build.pod("half-1", namespace="ns", group="half", gpus=1)
    gated = changed(pod, spec=changed(pod.spec, scheduling_gates=(SchedulingGate(name="later"),)))
    cluster = incomplete(gated)
    cluster.news()
    (group,) = cluster.news(GATHERING_GRACE_NS / SECOND).groups
    assert [(each.key, each.text) for each in group.pods] == [("ns/half-0", NOT_READY.format(2, 1))]


def test_pods_of_an_incomplete_gang_are_not_marked_where_the_group_opts_out() -> None:
    group = build.pod_group("half", namespace="ns", queue="team", minimum=3)
    cluster = incomplete(changed(group, spec=changed(group.spec, mark_unschedulable=False)))
    cluster.news()
    (told,) = cluster.news(GATHERING_GRACE_NS / SECOND).groups
    assert [pod.condition for pod in told.pods] == [False]


def test_a_gang_that_becomes_complete_and_does_not_fit_is_unschedulable() -> None:
    cluster = incomplete()
    cluster.news()
    cluster.news(GATHERING_GRACE_NS / SECOND)
    for index in (1, 2):
        cluster.tables.apply(build.pod(f"half-{index}", namespace="ns", group="half", gpus=4))
    (group,) = cluster.news(5).groups
    assert group.reasons is not None
    assert [(pod.key, pod.reason, pod.event) for pod in group.pods] == [
        (f"ns/half-{index}", "Unschedulable", True) for index in range(3)
    ]


def elastic(**spec: Any) -> Cluster:
    """A group of which one pod runs on the only GPU and another waits."""
    group = build.pod_group("runs", namespace="ns", queue="team")
    cluster = crowded()
    cluster.tables.apply(changed(group, spec=changed(group.spec, **spec)))
    cluster.tables.apply(build.pod("runs-1", namespace="ns", group="runs", gpus=1))
    return cluster


def test_a_partly_running_group_has_a_reason_for_the_rest() -> None:
    """ADR 27: KAI writes no condition while a pod of the group has a node (cycle:EXP-11)."""
    groups = {group.key: group for group in elastic().news().groups}
    (reason,) = groups["ns/runs"].reasons or ()
    assert "node(s) didn't have enough resources: GPUs" in str(reason["message"])
    assert groups["ns/waits"].reasons is not None


def test_a_group_that_tries_a_pool_once_gets_no_condition_while_something_of_it_runs() -> None:
    """cycle:SNP-11: with it the pod that waits would never be tried again."""
    groups = {group.key: group for group in elastic(scheduling_backoff=1).news().groups}
    assert groups["ns/runs"].reasons is None


def test_an_elastic_group_has_its_reason_again_after_reclaim() -> None:
    """Its pod is evicted and made again; the condition went while nothing waited."""
    cluster = elastic()
    cluster.news()
    cluster.tables.remove("Pod", "ns", "runs-1")
    cluster.conditioned = frozenset({"ns/runs"})
    assert cluster.news(1).cleared == ["ns/runs"]
    cluster.conditioned = frozenset()
    cluster.tables.apply(build.pod("runs-2", namespace="ns", group="runs", gpus=1))
    groups = {group.key: group for group in cluster.news(2).groups}
    assert groups["ns/runs"].reasons is not None


@pytest.mark.parametrize("blocked", ["no queue", "no leaf", "over limit", "no room for the gang", "bad tree"])
def test_every_pod_that_a_queue_or_a_gang_blocks_is_unschedulable(blocked: str) -> None:
    """operations:E-8: the one that fits, too."""
    queue = {"no queue": "nowhere", "no leaf": "department", "over limit": "small"}.get(blocked, "team")
    group = build.pod_group("job", namespace="ns", queue=queue, minimum=2)
    if blocked == "bad tree":
        doubled = [SubGroup(name="a", min_member=1), SubGroup(name="a", min_member=1)]
        group = changed(group, spec=changed(group.spec, sub_groups=doubled))
    gpus = (1, 9) if blocked == "no room for the gang" else (1, 1)
    small = build.queue("small", parent="department", limit=1)
    pods = [build.pod(f"job-{index}", namespace="ns", group="job", gpus=each) for index, each in enumerate(gpus)]
    (told,) = Cluster(build.node("a", gpus=4), small, group, *pods).news().groups
    assert [(pod.key, pod.reason, pod.condition) for pod in told.pods] == [
        (f"ns/job-{index}", "Unschedulable", True) for index in range(2)
    ]
    assert told.reasons


def test_conditions_are_removed_when_nothing_waits_and_not_before() -> None:
    cluster = crowded()
    cluster.conditioned = frozenset({"ns/waits", "ns/runs"})
    assert cluster.news().cleared == ["ns/runs"]
    cluster.tables.remove("Pod", "ns", "runs-0")
    plan, snapshot = cluster.cycle(1)
    assert [bind.pod for bind in plan.binds] == ["waits-0"]
    assert "ns/waits" not in cluster.book.diff(plan, snapshot, cluster.conditioned).cleared
    bound = build.pod("waits-0", namespace="ns", group="waits", gpus=1, on="a")
    cluster.tables.apply(bound)
    assert "ns/waits" in cluster.news(2).cleared


def test_a_pool_is_named_where_a_group_tries_once_only() -> None:
    cluster = crowded()
    group = build.pod_group("once", namespace="ns", queue="team")
    cluster.tables.apply(changed(group, spec=changed(group.spec, scheduling_backoff=1)))
    cluster.tables.apply(build.pod("once-0", namespace="ns", group="once", gpus=1))
    found = {each.key: each for each in cluster.news().groups}["ns/once"]
    assert found.text.startswith("Node-Pool 'default': ")
    assert found.pods[0].text.startswith("Node-Pool 'default': ")


def test_details_are_written_where_configured() -> None:
    cluster = crowded()
    cluster.policy = replace(cluster.policy, detailed_fit_errors=True)
    (group,) = cluster.news().groups
    assert "\n<a>: " in group.pods[0].text


def test_a_stale_gang_of_which_all_pods_leave_gets_no_event() -> None:
    """kueue:leaving: it is stamped as in KAI, and the event comes if a pod stays after all."""
    pod = build.pod("broken-0", namespace="ns", group="broken", gpus=1, on="a")
    leaving = changed(pod, metadata=changed(pod.metadata, deletion_timestamp="2025-12-31T23:59:59Z"))
    cluster = Cluster(
        build.node("a", gpus=1), build.pod_group("broken", namespace="ns", queue="team", minimum=2), leaving
    )
    first = cluster.news()
    assert (list(first.timestamp_annotations), first.stale) == (["ns/broken"], [])
    cluster.tables.apply(pod)
    assert [key for key, _ in cluster.news(1).stale] == ["ns/broken"]


def test_a_new_stale_gang_is_stamped_and_an_old_one_is_not() -> None:
    cluster = Cluster(
        build.node("a", gpus=1),
        build.pod_group("broken", namespace="ns", queue="team", minimum=2),
        build.pod("broken-0", namespace="ns", group="broken", gpus=1, on="a"),
    )
    first = cluster.news()
    assert first.timestamp_annotations == {"ns/broken": {names.STALE_TIMESTAMP_ANNOTATION: "2026-01-01T00:00:00Z"}}
    assert [key for key, _ in first.stale] == ["ns/broken"]
    group = build.pod_group("broken", namespace="ns", queue="team", minimum=2)
    stamped = {names.STALE_TIMESTAMP_ANNOTATION: "2026-01-01T00:00:00Z"}
    cluster.tables.apply(changed(group, metadata=changed(group.metadata, annotations=stamped)))
    second = cluster.news(5)
    assert (second.timestamp_annotations, second.stale) == ({}, [])
    forged = {names.STALE_TIMESTAMP_ANNOTATION: "2099-01-01T00:00:00Z"}
    cluster.tables.apply(changed(group, metadata=changed(group.metadata, annotations=forged)))
    assert cluster.news(6).timestamp_annotations == {
        "ns/broken": {names.STALE_TIMESTAMP_ANNOTATION: "2026-01-01T00:00:06Z"}
    }
    cluster.tables.apply(changed(group, metadata=changed(group.metadata, annotations=stamped)))
    evicting = cluster.news(90)
    assert names.LAST_EVICTION_TIMESTAMP_ANNOTATION in evicting.timestamp_annotations["ns/broken"]


def test_a_pod_without_a_group_is_given_time() -> None:
    created = "2026-01-01T00:00:00Z"
    pod = build.pod("stray", namespace="ns", group="", gpus=1)
    cluster = Cluster(changed(pod, metadata=changed(pod.metadata, creation_timestamp=created)))
    assert not cluster.news(1).pods
    (told,) = cluster.news(30).pods
    assert told.key == "ns/stray"
    assert not cluster.news(60).pods


def moment(after_s: float = 0.0) -> str:
    return format_timestamp(NOW_NS + int(after_s * SECOND))


def lonely(*names_: str, born_s: float = 0.0) -> list[Any]:
    """Pods of ours without a PodGroup."""
    return [build.pod(name, namespace="ns", gpus=1, created=moment(born_s)) for name in names_]


def test_a_pod_without_a_group_is_reported_once_the_grouper_has_had_its_time() -> None:
    cluster = Cluster(build.node("a", gpus=8), *lonely("alone"))
    assert not cluster.news(after_s=1).pods
    assert [pod.key for pod in cluster.news(after_s=25).pods] == ["ns/alone"]
    assert not cluster.news(after_s=40).pods
    assert cluster.news(after_s=25 + REPEAT_EVENT_NS / SECOND).pods


def test_a_new_scheduler_gives_the_grouper_its_time() -> None:
    cluster = Cluster(build.node("a", gpus=8), *lonely("old", born_s=-500))
    assert not cluster.news().pods
    assert cluster.news(after_s=20).pods


def test_while_the_grouper_works_through_a_backlog_nothing_is_reported() -> None:
    cluster = Cluster(build.node("a", gpus=8), *lonely("one", "two", "three"))
    cluster.news()
    for after_s, name in ((11, "one"), (22, "two")):
        cluster.tables.apply(build.pod_group(name, namespace="ns", queue="team"))
        cluster.tables.apply(build.pod(name, namespace="ns", group=name, gpus=1, created=moment()))
        assert not cluster.news(after_s=after_s).pods
    assert [pod.key for pod in cluster.news(after_s=33).pods] == ["ns/three"]


def test_an_overtaken_pod_is_reported_though_others_get_their_groups() -> None:
    cluster = Cluster(build.node("a", gpus=8), *lonely("forgotten"), *lonely("late", born_s=15))
    cluster.news(after_s=16)
    cluster.tables.apply(build.pod_group("late", namespace="ns", queue="team"))
    cluster.tables.apply(build.pod("late", namespace="ns", group="late", gpus=1, created=moment(15)))
    assert [pod.key for pod in cluster.news(after_s=27).pods] == ["ns/forgotten"]


def test_a_pod_that_was_deleted_does_not_count_as_grouped() -> None:
    cluster = Cluster(build.node("a", gpus=8), *lonely("gone", "stays"))
    cluster.news()
    cluster.tables.remove("Pod", "ns", "gone")
    assert [pod.key for pod in cluster.news(after_s=15).pods] == ["ns/stays"]


def test_a_start_is_stamped_where_a_minimum_run_time_counts() -> None:
    def started() -> Cluster:
        group = build.pod_group("job", namespace="ns", queue="team")
        return Cluster(build.node("a", gpus=1), group, build.pod("job-0", namespace="ns", group="job", gpus=1))

    assert started().news().timestamp_annotations == {}
    assert started().news(protected_s=60).timestamp_annotations == {
        "ns/job": {names.LAST_START_TIMESTAMP_ANNOTATION: moment()}
    }


def test_groups_that_run_without_a_timestamp_are_found_when_the_minimum_run_time_grows() -> None:
    cluster = crowded()
    assert not cluster.news().without_start_time
    for after_s, protected_s, found in ((1, 60, True), (2, 60, False), (3, 90, True), (4, 30, False), (5, 90, True)):
        news = cluster.news(after_s, protected_s=protected_s)
        assert (news.without_start_time == {"ns/runs": ("ns/runs-0",)}) is found
