"""Grouping, kind by kind (workloads:5.1)."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from pykai.api.decode import decode_as
from pykai.api.scheduling import PodGroup
from pykai.dev.groupingcases import RecordedReaders
from pykai.podgrouper import kinds
from pykai.podgrouper.kinds.default import group_default
from pykai.podgrouper.kinds.job import group_job
from pykai.podgrouper.kinds.pod import group_pod
from pykai.podgrouper.kinds.table import built_in_groupers
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, ObjectName, ObjectNotRead
from pykai.podgrouper.writes import group_patch, new_group
from tests.podgrouper.groupings import grouped, owner, pod

MIN_MEMBER = "kai.scheduler/batch-min-member"


def test_every_pod_of_a_deployment_is_a_group() -> None:
    """workloads:T-60."""
    top = owner("Deployment", "d", "1", api="apps/v1", labels={"kai.scheduler/queue": "q"})
    sets = owner("ReplicaSet", "d-1", "2", api="apps/v1", by=top, labels={"priorityClassName": "build"})
    found = [grouped(pod(name, uid, by=sets), sets, top) for name, uid in (("pod-1", "3"), ("pod-2", "4"))]
    assert [meta.name for meta in found] == ["pg-pod-1-3", "pg-pod-2-4"]
    assert [(meta.owner.kind, meta.owner.name, meta.owner.uid) for meta in found] == [
        ("Pod", "pod-1", "3"),
        ("Pod", "pod-2", "4"),
    ]
    assert {(meta.priority_class, meta.queue, meta.min_available) for meta in found} == {("inference", "q", 1)}


def test_the_revision_is_the_deployments_or_else_the_replica_sets() -> None:
    key = "deployment.kubernetes.io/revision"
    extra = {key: "7", "deployment.kubernetes.io/desired-replicas": "2"}
    young = owner("Deployment", "d", "1", api="apps/v1")
    sets = owner("ReplicaSet", "d-1", "2", api="apps/v1", by=young, annotations=extra)
    assert grouped(pod(by=sets), sets, young).annotations.keys() == {key, "kai.scheduler/top-owner-metadata"}
    assert grouped(pod(by=sets), sets, young).annotations[key] == "7"
    known = owner("Deployment", "d", "1", api="apps/v1", annotations={key: "8"})
    assert grouped(pod(by=sets), sets, known).annotations[key] == "8"


def test_all_pods_of_a_job_are_one_group() -> None:
    """workloads:T-61."""
    top = owner("Job", "j", "U")
    assert {grouped(pod(name, by=top), top).name for name in ("a", "b")} == {"pg-j-U"}
    assert grouped(pod(by=top), top).min_available == 1


@pytest.mark.parametrize(("text", "least"), [("2", 2), ("+3", 3), ("0", 0), ("-1", -1), ("2147483647", 2147483647)])
def test_the_minimum_of_a_job_is_its_annotation_or_parallelism(text: str, least: int) -> None:
    """workloads:T-62."""
    top = owner("Job", annotations={MIN_MEMBER: text})
    assert grouped(pod(by=top), top).min_available == least


@pytest.mark.parametrize(
    ("succeeded", "completions", "least"),
    [(0, 4, 4), (1, 4, 3), (3, 4, 1), (4, 4, 1), (2, 8, 4), (6, 8, 2), (1, None, 4), (0, 2, 4)],
)
def test_a_job_waits_for_no_more_pods_than_it_has_left_to_run(
    succeeded: int, completions: int | None, least: int
) -> None:
    """Those that have succeeded never come back; before the first has, the annotation decides, as in KAI."""
    top = replace(
        owner("Job", annotations={MIN_MEMBER: "4"}),
        body={"spec": {"completions": completions}, "status": {"succeeded": succeeded}},
    )
    assert grouped(pod(by=top), top).min_available == least


@pytest.mark.parametrize(
    ("parallelism", "succeeded", "least"),
    [(2, 0, 2), (4, 0, 4), (8, 0, 4), (1, 0, 1), (None, 0, 4), (0, 0, 4), (3, 6, 2), (1, 6, 1)],
)
def test_a_job_waits_for_no_more_pods_than_it_runs_at_a_time(
    parallelism: int | None, succeeded: int, least: int
) -> None:
    """kueue:parallelism: Kueue admits a Job in part by lowering it; 0 pauses the Job and is no bound."""
    top = replace(
        owner("Job", annotations={MIN_MEMBER: "4"}),
        body={"spec": {"completions": 8, "parallelism": parallelism}, "status": {"succeeded": succeeded}},
    )
    assert grouped(pod(by=top), top).min_available == least


@pytest.mark.parametrize("text", ["abc", "", " 2", "1_0", "2.0", "2147483648", "٣", "9" * 5000])
def test_a_job_with_invalid_values_is_refused(text: str) -> None:
    """workloads:T-62."""
    top = owner("Job", "j", annotations={MIN_MEMBER: text})
    with pytest.raises(GroupingError, match="invalid min-member annotation value"):
        grouped(pod(by=top), top)


def test_a_pod_of_a_job_keeps_its_own_old_group() -> None:
    """workloads:T-63."""
    top = owner("Job", "j", "U", annotations={MIN_MEMBER: "4"})
    known = RecordedReaders(groups={"ns/pg-old-U": PodGroup()})
    legacy = grouped(pod("old", by=top), top, readers=known)
    assert (legacy.name, legacy.min_available) == ("pg-old-U", 1)
    fresh = grouped(pod("new", by=top), top, readers=known)
    assert (fresh.name, fresh.min_available) == ("pg-j-U", 4)
    off = GroupingSettings(search_legacy_groups=False)
    assert grouped(pod("old", by=top), top, readers=known, settings=off).name == "pg-j-U"


def test_each_run_of_a_cron_job_is_a_group() -> None:
    """workloads:WK-CJ; the minimum stays 1, as recorded groups show."""
    top = owner("CronJob", "c", "1", labels={"kai.scheduler/queue": "ignored"})
    job = owner("Job", "c-1", "2", by=top, annotations={MIN_MEMBER: "2"}, labels={"kai.scheduler/queue": "q"})
    meta = grouped(pod(by=job), job, top)
    assert (meta.name, meta.queue, meta.min_available, meta.owner.name) == ("pg-c-1-2", "q", 1, "c-1")


def test_a_pod_of_a_cron_job_needs_a_job() -> None:
    """workloads:T-64."""
    top = owner("CronJob", "c", "1")
    job = owner("Job", "c-1", "2", by=top)
    with pytest.raises(GroupingError, match="no owner reference of type 'Job'"):
        grouped(pod(by=top), top)
    with pytest.raises(GroupingError, match="no owner reference of type 'Job'"):
        grouped(pod(by=job), top)


@pytest.mark.parametrize(("kind", "api"), [("ReplicaSet", "apps/v1"), ("StatefulSet", "apps/v1"), ("Odd", "x.io/v9")])
def test_other_kinds_are_one_group_with_a_minimum_of_one(kind: str, api: str) -> None:
    top = owner(kind, "w", "U", api=api)
    meta = grouped(pod(by=top), top)
    assert (meta.name, meta.min_available, meta.priority_class, meta.owner.kind) == ("pg-w-U", 1, "train", kind)


def test_only_the_default_grouper_reads_the_whole_chain() -> None:
    near = {"priorityClassName": "build"}
    odd = owner("Odd", "o", "1", api="x.io/v1")
    between = owner("ReplicaSet", "r", "2", api="apps/v1", by=odd, labels=near)
    assert grouped(pod(by=between), between, odd).priority_class == "build"
    job = owner("Job", "j", "3")
    between = owner("ReplicaSet", "r", "2", api="apps/v1", by=job, labels=near)
    assert grouped(pod(by=between), between, job).priority_class == "train"


def test_pods_of_a_spark_application_share_the_group_of_their_selector() -> None:
    """workloads:T-110."""
    both = {"spark-app-name": "app", "spark-app-selector": "spark-1"}
    driver = pod("driver", "d", labels=both)
    top = owner("Pod", "driver", "d", api="v1", labels=both)
    executor = pod("exec", "e", by=top, labels=both)
    found = grouped(driver), grouped(executor, top)
    assert {(meta.name, meta.owner.name) for meta in found} == {("spark-1", "driver")}
    assert grouped(pod("driver", "d", labels={"spark-app-selector": "spark-1"})).name == "pg-driver-d"
    assert grouped(pod("driver", "d", labels={"spark-app-name": "app"})).name == "pg-driver-d"


def test_an_executor_without_an_owner_joins_the_group_of_its_driver_as_it_is() -> None:
    """workloads:WK-POD: whichever comes first, the driver describes the group, and nothing is written to and fro."""
    both = {"spark-app-name": "app", "spark-app-selector": "spark-1"}
    driver = grouped(pod("driver", "d", labels={**both, "spark-role": "driver"}, priority_class="build"))
    group = decode_as(PodGroup, new_group(driver))
    known = RecordedReaders(groups={"ns/spark-1": group})
    alone = pod("exec", "e", labels={**both, "spark-role": "executor"})
    executor = grouped(alone, readers=known)
    assert group_patch(group, executor, GroupingSettings()) is None
    first = decode_as(PodGroup, new_group(grouped(alone)))
    patch = group_patch(first, driver, GroupingSettings())
    assert patch is not None
    assert patch["metadata"]["ownerReferences"][0]["name"] == "driver"


def test_the_exact_version_comes_before_any_version() -> None:
    """workloads:HB-1."""
    groupers = {("x.io", "v1", "K"): group_job, ("x.io", "*", "K"): group_pod}
    assert kinds.grouper_for((groupers,), ("x.io", "v1", "K")) is group_job
    assert kinds.grouper_for((groupers,), ("x.io", "v2", "K")) is group_pod
    assert kinds.grouper_for((groupers,), ("y.io", "v1", "K")) is group_default


def test_third_parties_add_kinds_by_entry_points(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def points(group: str) -> EntryPoints:
        here = "pykai.podgrouper.kinds.job:group_job"
        names = ("x.io/*/Sweep", "v1/Thing", "nonsense")
        found = [EntryPoint(name, here, group) for name in names]
        return EntryPoints([*found, EntryPoint("x.io/v1/Gone", "no.such.module:f", group)])

    monkeypatch.setattr(kinds, "entry_points", points)
    installed = kinds.installed_groupers()
    assert installed.keys() - built_in_groupers().keys() == {("x.io", "*", "Sweep"), ("", "v1", "Thing")}
    assert [("nonsense" in text, "Gone" in text) for text in caplog.messages] == [(True, False), (False, True)]


def test_a_missing_object_is_requested() -> None:
    which = ObjectName("v1", "Thing", "ns", "n")
    with pytest.raises(ObjectNotRead):
        RecordedReaders().object(which)
