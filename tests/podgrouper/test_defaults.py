"""Queue, priority, preemptibility, delays, labels: what a group takes from owners and pods (workloads:4)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pykai.dev.groupingcases import RECORDED_CLASSES, RecordedReaders
from pykai.podgrouper.defaults import inherited_fields, overridden_by
from pykai.podgrouper.kinddefaults import read_kind_defaults
from pykai.podgrouper.metadata import GroupingSettings, KindDefaults, Metadata
from tests.podgrouper.groupings import grouped, owner, pod

QUEUE, POOL, PREEMPTIBILITY = "kai.scheduler/queue", "kai.scheduler/node-pool", "kai.scheduler/preemptibility"
DELAY, GRACE = "kai.scheduler/preemption-delay", "kai.scheduler/staleness-grace-period"
KUEUE_CLASS = "kueue.x-k8s.io/priority-class"
DEFAULTS = [
    {"typeName": "TestKind", "group": "apps", "priorityName": "cm-a", "preemptibility": "Preemptible"},
    {"typeName": "TestKind", "group": "", "priorityName": "cm-k", "preemptibility": "non-preemptible"},
]


def known_defaults(entries: object = DEFAULTS, classes: tuple[str, ...] = ("cm-a", "cm-k", "mine")) -> RecordedReaders:
    return RecordedReaders(classes=RECORDED_CLASSES | set(classes), defaults=read_kind_defaults(json.dumps(entries)))


def test_a_pod_without_anything_gets_all_defaults() -> None:
    """workloads:T-24."""
    meta = grouped(pod("pod-job", ""))
    assert (meta.name, meta.queue, meta.priority_class, meta.min_available) == (
        "pg-pod-job-",
        "default-queue",
        "train",
        1,
    )
    assert (meta.owner.api_version, meta.owner.kind, meta.owner.name) == ("v1", "Pod", "pod-job")
    assert (meta.preemptibility, meta.preemption_delay_ns, meta.staleness_grace_ns) == ("", None, None)


@pytest.mark.parametrize(
    ("of_owner", "of_pod", "queue"),
    [
        ({"project": "p"}, {POOL: "np"}, "p-np"),
        ({"project": "p"}, {}, "p"),
        ({}, {"project": "p"}, "p"),
        ({"project": "a"}, {"project": "b"}, "a"),
        ({"project": "p", POOL: "np"}, {}, "p"),
        ({"project": "p"}, {QUEUE: "q", POOL: "np"}, "q"),
        ({QUEUE: "a"}, {QUEUE: "b"}, "a"),
        ({}, {QUEUE: ""}, ""),
        ({QUEUE: ""}, {QUEUE: "b"}, ""),
        ({"project": ""}, {"project": "b"}, "default-queue"),
        ({}, {}, "default-queue"),
    ],
)
def test_the_queue(of_owner: dict[str, str], of_pod: dict[str, str], queue: str) -> None:
    """workloads:T-40, DF-5."""
    top = owner("TestKind", labels=of_owner)
    assert grouped(pod(by=top, labels=of_pod), top).queue == queue


@pytest.mark.parametrize(
    ("labels", "queue"),
    [
        ({}, "of-the-namespace"),
        ({"project": ""}, "of-the-namespace"),
        ({"project": "p"}, "p"),
        ({"kai.scheduler/queue": "q"}, "q"),
        ({"kai.scheduler/queue": ""}, ""),
    ],
)
def test_a_workload_that_names_no_queue_gets_that_of_its_namespace(labels: dict[str, str], queue: str) -> None:
    """access:default-queue; workloads:DF-5."""
    top = owner("TestKind")
    one = pod(by=top, labels=labels)
    readers = RecordedReaders(default_queues={one.metadata.namespace: "of-the-namespace"})
    assert grouped(one, top, readers=readers).queue == queue


def test_the_keys_of_queue_and_node_pool_can_be_set() -> None:
    top = owner("TestKind", labels={"q": "a", "project": "p"})
    settings = GroupingSettings(queue_label="q", node_pool_label="pool")
    assert grouped(pod(by=top), top, settings=settings).queue == "a"
    bare = owner("TestKind", labels={"project": "p"})
    assert grouped(pod(by=bare, labels={"pool": "x"}), bare, settings=settings).queue == "p-x"
    without = GroupingSettings(node_pool_label="")
    assert grouped(pod(by=bare, labels={"": "x"}), bare, settings=without).queue == "p"


def test_defaults_of_a_kind_go_by_group_first() -> None:
    """workloads:T-41."""
    for api, expected in (("apps/v1", ("cm-a", "preemptible")), ("batch/v1", ("cm-k", "non-preemptible"))):
        top = owner("TestKind", api=api)
        meta = grouped(pod(by=top), top, readers=known_defaults())
        assert (meta.priority_class, meta.preemptibility) == expected


def test_an_explicit_class_leaves_the_kind_its_preemptibility() -> None:
    """workloads:T-42."""
    top = owner("TestKind")
    meta = grouped(pod(by=top, priority_class="mine"), top, readers=known_defaults())
    assert (meta.priority_class, meta.preemptibility) == ("mine", "non-preemptible")


def test_a_class_that_does_not_exist_is_skipped() -> None:
    """workloads:T-43, DF-12."""
    top = owner("TestKind", labels={"priorityClassName": "ghost"})
    assert grouped(pod(by=top), top, readers=known_defaults()).priority_class == "cm-k"
    assert grouped(pod(by=top), top).priority_class == "train"
    assert grouped(pod(by=top), top, readers=known_defaults(classes=())).priority_class == "train"


def problems_of(found: Metadata) -> list[str]:
    return [str(problem) for problem in found.problems]


def test_skipped_values_are_listed_with_what_is_used_instead() -> None:
    """ADR 27."""
    words = {"priorityClassName": "ghost", PREEMPTIBILITY: "maybe"}
    top = owner("TestKind", labels=words, annotations={DELAY: "soon", GRACE: "x"})
    named = f"TestKind/{top.metadata.namespace}/{top.metadata.name}: metadata"
    assert problems_of(grouped(pod(by=top), top)) == [
        f"{named}.labels[priorityClassName]: priority class 'ghost' does not exist; class 'train' is used",
        f"{named}.labels[{PREEMPTIBILITY}]: 'maybe' is neither preemptible nor non-preemptible; the priority decides",
        f"{named}.annotations[{DELAY}]: 'soon' is not a duration: expected a number with a unit; no delay is used",
        f"{named}.annotations[{GRACE}]: 'x' is not a duration: expected a number with a unit; "
        "the scheduler's default is used",
    ]


def test_the_value_of_the_pod_that_is_used_instead_is_named() -> None:
    top = owner("TestKind", annotations={DELAY: "-5s"}, labels={PREEMPTIBILITY: "no"})
    below = pod(by=top, annotations={DELAY: "90s"}, labels={PREEMPTIBILITY: "preemptible"})
    preemptibility, delay = problems_of(grouped(below, top))
    assert preemptibility.endswith("'no' is neither preemptible nor non-preemptible; 'preemptible' is used")
    assert delay.endswith("'-5s' is negative; 90 seconds are used")


def test_a_pod_without_owners_is_named_itself() -> None:
    alone = pod(labels={"priorityClassName": "ghost"})
    (problem,) = grouped(alone).problems
    assert (problem.subject, problem.field) == (
        f"Pod/{alone.metadata.namespace}/{alone.metadata.name}",
        "metadata.labels[priorityClassName]",
    )


def test_a_workload_without_mistakes_has_no_problems() -> None:
    top = owner("TestKind", labels={"priorityClassName": "build"}, annotations={DELAY: "5s", GRACE: "-1s"})
    assert grouped(pod(by=top), top).problems == ()


@pytest.mark.parametrize(
    "text", [None, "", "{", "{}", "7", "[7, null]", '[{"typeName": 3}]', '[{"group": "apps", "priorityName": "build"}]']
)
def test_defaults_that_cannot_be_read_count_as_none(text: str | None) -> None:
    """workloads:T-44."""
    assert read_kind_defaults(text) == {}


def test_later_entries_win_and_wrong_fields_are_empty() -> None:
    entries = [
        {"typeName": "K", "priorityName": "a"},
        {"typeName": "K", "priorityName": "b", "preemptibility": 3},
    ]
    assert read_kind_defaults(json.dumps(entries)) == {"K": KindDefaults("b", "")}


def test_a_core_kind_has_no_group_in_its_key() -> None:
    known = RecordedReaders(classes=frozenset(("c",)), defaults={"Pod": KindDefaults("c", "bogus")})
    meta = grouped(pod(), readers=known)
    assert (meta.priority_class, meta.preemptibility) == ("c", "")


def test_the_class_is_read_from_owners_then_from_the_pod() -> None:
    """workloads:DF-6: the pod is read together with the nearest owner, and so beats farther owners."""
    top = owner("Top", "top", "t", labels={"priorityClassName": "inference"})
    near = owner("Near", "near", "n", by=top)
    assert grouped(pod(by=near), near, top).priority_class == "inference"
    assert grouped(pod(by=near, labels={"priorityClassName": "build"}), near, top).priority_class == "build"
    assert grouped(pod(by=near, priority_class="build"), near, top).priority_class == "build"
    both = pod(by=near, labels={"priorityClassName": "build"}, priority_class="build-preemptible")
    assert grouped(both, near, top).priority_class == "build"
    named = owner("Near", "near", "n", by=top, labels={"priorityClassName": "build-preemptible"})
    assert grouped(both, named, top).priority_class == "build-preemptible"


@pytest.mark.parametrize(
    ("of_owner", "of_pod", "found"),
    [
        ("bogus", "preemptible", "preemptible"),
        ("bogus", "bogus", ""),
        ("non-preemptible", "preemptible", "non-preemptible"),
        ("", "preemptible", ""),
        ("semi-preemptible", "preemptible", "preemptible"),
        ("Preemptible", "non-preemptible", "non-preemptible"),
    ],
)
def test_preemptibility(of_owner: str, of_pod: str, found: str) -> None:
    """workloads:T-45, DF-8."""
    top = owner("TestKind", labels={PREEMPTIBILITY: of_owner})
    assert grouped(pod(by=top, labels={PREEMPTIBILITY: of_pod}), top).preemptibility == found


@pytest.mark.parametrize(
    ("of_owner", "of_pod", "delay_s"),
    [("abc", "30s", 30), ("30", None, None), ("-5m", None, None), ("1m", "30s", 60), ("-5m", "30s", 30)],
)
def test_the_preemption_delay(of_owner: str, of_pod: str | None, delay_s: int | None) -> None:
    """workloads:T-46, DF-9."""
    top = owner("TestKind", annotations={DELAY: of_owner})
    one = pod(by=top, annotations={DELAY: of_pod} if of_pod is not None else {})
    expected = None if delay_s is None else delay_s * 10**9
    assert grouped(one, top).preemption_delay_ns == expected


def test_a_negative_staleness_grace_is_kept() -> None:
    """workloads:T-46, DF-10."""
    top = owner("TestKind", annotations={GRACE: "-10s"})
    assert grouped(pod(by=top), top).staleness_grace_ns == -(10**10)


def test_the_user_of_the_owner_beats_the_user_of_the_pod() -> None:
    """workloads:T-47, DF-3, DF-4."""
    top = owner("TestKind", labels={"user": "a"}, annotations={"user": "x"})
    one = pod(by=top, labels={"user": "b", "other": "no"}, annotations={"user": "y", "other": "no"})
    meta = grouped(one, top)
    assert (meta.labels, meta.annotations["user"]) == ({"user": "a"}, "x")
    bare = owner("TestKind")
    meta = grouped(one, bare)
    assert meta.labels == {"user": "b"}
    assert meta.annotations["user"] == "y"
    assert "other" not in meta.annotations


def test_the_top_owner_is_recorded_in_an_annotation() -> None:
    top = owner("Job", "j", "1e3", annotations={"kai.scheduler/top-owner-metadata": "mine"})
    assert grouped(pod(by=top), top).annotations["kai.scheduler/top-owner-metadata"] == "mine"


def test_annotations_of_schedulers_are_not_copied_from_an_owner() -> None:
    """A tenant writes the owner's annotations, and the pod grouper must not write them where the tenant may not."""
    forged = {f"kai.scheduler/{name}-timestamp": "2026-01-01T00:00:00Z" for name in ("last-start", "last-eviction")}
    top = owner("Job", annotations={**forged, "kai.scheduler/stale-podgroup-timestamp": "x", "keep": "it"})
    assert set(grouped(pod(by=top), top).annotations) == {"keep", "kai.scheduler/top-owner-metadata"}


def test_what_belongs_to_the_owner_alone_is_not_copied() -> None:
    """workloads:2.3, Do better."""
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "pod-group-name": "x", "keep": "it"}
    driver = owner("Pod", "driver", "d", api="v1", annotations=annotations, labels={"kai.scheduler/subgroup-name": "s"})
    meta = grouped(pod(by=driver), driver)
    assert set(meta.annotations) == {"keep", "kai.scheduler/top-owner-metadata", "pod-group-name"}
    # As KAI writes it, but never what a tenant wrote there.
    assert meta.annotations["pod-group-name"] == "pg-driver-d"
    assert meta.labels == {}


def test_the_topology_is_the_top_owners_alone() -> None:
    """workloads:DF-11."""
    top = owner("TestKind", annotations={"kai.scheduler/topology-required-placement": "rack"})
    one = pod(by=top, annotations={"kai.scheduler/topology": "net"})
    found = grouped(one, top).topology
    assert (found.topology, found.required_topology_level, found.preferred_topology_level) == ("", "rack", "")


def test_pods_with_equal_metadata_make_equal_groups() -> None:
    settings = GroupingSettings()
    words = {
        inherited_fields(one, settings)
        for one in (
            pod(),
            pod(labels={QUEUE: "q"}),
            pod(labels={POOL: "q"}),
            pod(labels={"project": "q"}),
            pod(labels={"priorityClassName": "q"}),
            pod(labels={PREEMPTIBILITY: "q"}),
            pod(labels={"user": "q"}),
            pod(annotations={"user": "q"}),
            pod(annotations={DELAY: "q"}),
            pod(annotations={GRACE: "q"}),
            pod(priority_class="q"),
        )
    }
    assert len(words) == 11
    assert inherited_fields(pod("a", "1", labels={"x": "y"}), settings) == inherited_fields(pod("b", "2"), settings)


@pytest.mark.parametrize(
    ("of_owner", "of_pod", "used", "problems"),
    [
        ({KUEUE_CLASS: "mine"}, {}, "mine", 0),
        ({}, {KUEUE_CLASS: "mine"}, "mine", 0),
        ({KUEUE_CLASS: "mine", "priorityClassName": "build"}, {}, "build", 0),
        ({KUEUE_CLASS: "mine"}, {"priorityClassName": "build"}, "mine", 0),
        ({KUEUE_CLASS: "gone"}, {"priorityClassName": "build"}, "train", 1),
    ],
)
def test_the_priority_class_of_kueue_counts_where_it_is_to_be_read(
    of_owner: dict[str, str], of_pod: dict[str, str], used: str, problems: int
) -> None:
    """kueue:priority."""
    top = owner("Job", labels=of_owner)
    member = pod(by=top, labels=of_pod)
    on = GroupingSettings(kueue_priority_classes=True)
    meta = grouped(member, top, readers=known_defaults(), settings=on)
    assert (meta.priority_class, len(meta.problems)) == (used, problems)
    assert all(KUEUE_CLASS in str(problem) for problem in meta.problems)
    without = {key: value for key, value in {**of_pod, **of_owner}.items() if key != KUEUE_CLASS}
    off = grouped(member, top, readers=known_defaults())
    assert (off.priority_class, off.problems) == (without.get("priorityClassName", "train"), ())


def test_the_priority_class_of_kueue_is_inherited_from_the_oldest_pod() -> None:
    settings = GroupingSettings(kueue_priority_classes=True)
    assert inherited_fields(pod(labels={KUEUE_CLASS: "mine"}), settings) != inherited_fields(pod(), settings)


def test_the_mark_that_kueue_stops_a_workload_is_not_copied() -> None:
    """kueue:stopping."""
    top = owner("Job", annotations={"kueue.x-k8s.io/stopping": "true", "kueue.x-k8s.io/other": "kept"})
    found = grouped(pod(by=top), top).annotations
    assert "kueue.x-k8s.io/stopping" not in found
    assert found["kueue.x-k8s.io/other"] == "kept"


@pytest.mark.parametrize(
    ("said", "delay_ns", "grace_ns"),
    [({}, 5, 7), ({DELAY: "1s", GRACE: "2s"}, 10**9, 2 * 10**9), ({DELAY: "soon", GRACE: "later"}, 5, 7)],
)
def test_an_object_above_changes_only_the_durations_it_gives(
    said: dict[str, str], delay_ns: int, grace_ns: int
) -> None:
    """workloads:NW-2."""
    meta = replace(grouped(pod()), preemption_delay_ns=5, staleness_grace_ns=7)
    found = overridden_by(meta, owner("TestKind", annotations=said), "", GroupingSettings(), RecordedReaders())
    assert (found.preemption_delay_ns, found.staleness_grace_ns) == (delay_ns, grace_ns)
