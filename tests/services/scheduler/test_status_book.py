"""What is news: changed texts, new pods, a heartbeat; and what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec.structs import replace as changed

from pykai.api import names
from pykai.api.timestamp import format_timestamp
from pykai.core.cycle import schedule
from pykai.core.decisions import Plan
from pykai.core.memory import Memory
from pykai.core.snapshot import Snapshot
from pykai.core.tables import Tables
from pykai.scheduler.configuration import default_configuration
from pykai.scheduler.status import CALM_NS, HEARTBEAT_NS, SWEEP_NS, News, StatusBook
from pykai.simulator import build

NOW_NS = 1_767_225_600_000_000_000
SECOND = 1_000_000_000


class Cluster:
    """Tables, and cycles on them at any time."""

    def __init__(self, *objects: Any) -> None:
        parent = build.queue("department")
        self.tables = Tables(None, [parent, build.queue("team", parent="department"), *objects])
        self.memory = Memory()
        self.policy = default_configuration().policy
        self.book = StatusBook()
        self.conditioned: frozenset[str] = frozenset()

    def cycle(self, after_s: float = 0.0) -> tuple[Plan, Snapshot]:
        snapshot = self.tables.snapshot(NOW_NS + int(after_s * SECOND))
        return schedule(snapshot, self.policy, self.memory), snapshot

    def news(self, after_s: float = 0.0, *, protected_s: int = 0) -> News:
        plan, snapshot = self.cycle(after_s)
        return self.book.digest(plan, snapshot, self.conditioned, protected_ns=protected_s * SECOND)


def crowded(pods: int = 1) -> Cluster:
    """A group that waits because the only GPU is taken."""
    return Cluster(
        build.node("a", gpus=1),
        build.pod_group("runs", namespace="ns", queue="team"),
        build.pod("runs-0", namespace="ns", group="runs", gpus=1, on="a"),
        build.pod_group("waits", namespace="ns", queue="team", minimum=pods),
        *(build.pod(f"waits-{index}", namespace="ns", group="waits", gpus=1) for index in range(pods)),
    )


def test_a_group_that_waits_is_news_once() -> None:
    cluster = crowded()
    (group,) = cluster.news().groups
    assert (group.key, group.reason, group.event) == ("ns/waits", "Unschedulable", True)
    assert [(pod.key, pod.condition, pod.event) for pod in group.pods] == [("ns/waits-0", True, True)]
    assert group.reasons is not None
    assert not cluster.news(1).groups


def test_refusals_that_are_equal_are_no_news() -> None:
    cluster = crowded()
    cluster.news()
    cluster.memory = Memory()
    cluster.tables.apply(build.node("b"))
    cluster.tables.remove("Node", "", "b")
    assert not cluster.news(1).groups


def test_silence_ends_with_a_heartbeat() -> None:
    cluster = crowded()
    cluster.news()
    assert not cluster.news((HEARTBEAT_NS - SECOND) / SECOND).groups
    (group,) = cluster.news(HEARTBEAT_NS / SECOND + SWEEP_NS / SECOND).groups
    assert group.event
    assert group.pods[0].event


def test_figures_that_move_are_told_now_and_then_only() -> None:
    cluster = crowded()
    cluster.news()
    cluster.tables.apply(build.node("b", gpus=0))
    assert not cluster.news(1).groups
    (group,) = cluster.news(CALM_NS / SECOND + SWEEP_NS / SECOND).groups
    assert group.event
    assert "1 node(s) didn't have enough resources: GPUs" in group.text or "2 node(s)" in group.text


def test_another_reason_is_told_at_once() -> None:
    cluster = crowded()
    cluster.news()
    cluster.tables.remove("Queue", "", "team")
    (group,) = (each for each in cluster.news(1).groups if each.key == "ns/waits")
    assert "Queue 'team' does not exist" in group.text


def test_a_new_pod_of_a_waiting_group_is_told_and_the_others_are_not_told_again() -> None:
    cluster = crowded()
    cluster.news()
    cluster.tables.apply(build.pod("waits-9", namespace="ns", group="waits", gpus=1))
    (group,) = cluster.news(CALM_NS / SECOND + 1).groups
    assert [pod.key for pod in group.pods if pod.event][-1] == "ns/waits-9"


def test_a_group_that_pauses_after_a_refused_bind_was_told_why_already() -> None:
    cluster = crowded()
    plan, snapshot = cluster.cycle()
    assert not cluster.book.digest(plan, snapshot, frozenset(), {"ns/waits"}).groups


def test_a_group_that_is_not_ready_speaks_for_its_pods() -> None:
    cluster = Cluster(
        build.node("a", gpus=1),
        build.pod_group("half", namespace="ns", queue="team", minimum=2),
        build.pod("half-0", namespace="ns", group="half", gpus=1),
    )
    (group,) = cluster.news().groups
    assert (group.reason, group.pods, group.reasons) == ("NotReady", (), None)


def test_a_group_with_work_that_runs_gets_no_condition() -> None:
    cluster = crowded()
    cluster.tables.apply(build.pod("runs-1", namespace="ns", group="runs", gpus=1))
    groups = {group.key: group for group in cluster.news().groups}
    assert groups["ns/runs"].reasons is None
    assert groups["ns/waits"].reasons is not None


def test_conditions_go_when_nothing_waits_and_not_before() -> None:
    cluster = crowded()
    cluster.conditioned = frozenset({"ns/waits", "ns/runs"})
    assert cluster.news().cleared == ["ns/runs"]
    cluster.tables.remove("Pod", "ns", "runs-0")
    plan, snapshot = cluster.cycle(1)
    assert [bind.pod for bind in plan.binds] == ["waits-0"]
    assert "ns/waits" not in cluster.book.digest(plan, snapshot, cluster.conditioned).cleared
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


def test_details_are_told_where_they_are_asked_for() -> None:
    cluster = crowded()
    cluster.policy = replace(cluster.policy, detailed_fit_errors=True)
    (group,) = cluster.news().groups
    assert "\n<a>: " in group.pods[0].text


def test_a_new_stale_gang_is_stamped_and_an_old_one_is_not() -> None:
    cluster = Cluster(
        build.node("a", gpus=1),
        build.pod_group("broken", namespace="ns", queue="team", minimum=2),
        build.pod("broken-0", namespace="ns", group="broken", gpus=1, on="a"),
    )
    first = cluster.news()
    assert first.stamps == {"ns/broken": {names.STALE_TIMESTAMP_ANNOTATION: "2026-01-01T00:00:00Z"}}
    assert [key for key, _ in first.stale] == ["ns/broken"]
    group = build.pod_group("broken", namespace="ns", queue="team", minimum=2)
    stamped = {names.STALE_TIMESTAMP_ANNOTATION: "2026-01-01T00:00:00Z"}
    cluster.tables.apply(changed(group, metadata=changed(group.metadata, annotations=stamped)))
    second = cluster.news(5)
    assert (second.stamps, second.stale) == ({}, [])
    forged = {names.STALE_TIMESTAMP_ANNOTATION: "2099-01-01T00:00:00Z"}
    cluster.tables.apply(changed(group, metadata=changed(group.metadata, annotations=forged)))
    assert cluster.news(6).stamps == {"ns/broken": {names.STALE_TIMESTAMP_ANNOTATION: "2026-01-01T00:00:06Z"}}
    cluster.tables.apply(changed(group, metadata=changed(group.metadata, annotations=stamped)))
    evicting = cluster.news(90)
    assert names.LAST_EVICTION_TIMESTAMP_ANNOTATION in evicting.stamps["ns/broken"]


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


def test_a_pod_without_a_group_is_told_once_the_grouper_has_had_its_time() -> None:
    cluster = Cluster(build.node("a", gpus=8), *lonely("alone"))
    assert not cluster.news(after_s=1).pods
    assert [pod.key for pod in cluster.news(after_s=25).pods] == ["ns/alone"]
    assert not cluster.news(after_s=40).pods
    assert cluster.news(after_s=25 + HEARTBEAT_NS / SECOND).pods


def test_who_has_just_begun_to_look_gives_the_grouper_its_time() -> None:
    cluster = Cluster(build.node("a", gpus=8), *lonely("old", born_s=-500))
    assert not cluster.news().pods
    assert cluster.news(after_s=20).pods


def test_while_the_grouper_works_off_a_crowd_nobody_is_told() -> None:
    cluster = Cluster(build.node("a", gpus=8), *lonely("one", "two", "three"))
    cluster.news()
    for after_s, name in ((11, "one"), (22, "two")):
        cluster.tables.apply(build.pod_group(name, namespace="ns", queue="team"))
        cluster.tables.apply(build.pod(name, namespace="ns", group=name, gpus=1, created=moment()))
        assert not cluster.news(after_s=after_s).pods
    assert [pod.key for pod in cluster.news(after_s=33).pods] == ["ns/three"]


def test_a_pod_that_was_overtaken_is_told_though_others_get_their_groups() -> None:
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

    assert started().news().stamps == {}
    assert started().news(protected_s=60).stamps == {"ns/job": {names.LAST_START_TIMESTAMP_ANNOTATION: moment()}}


def test_who_runs_without_a_stamp_is_found_when_the_minimum_run_time_grows() -> None:
    cluster = crowded()
    assert not cluster.news().unstamped
    for after_s, protected_s, found in ((1, 60, True), (2, 60, False), (3, 90, True), (4, 30, False), (5, 90, True)):
        news = cluster.news(after_s, protected_s=protected_s)
        assert (news.unstamped == {"ns/runs": ("ns/runs-0",)}) is found
