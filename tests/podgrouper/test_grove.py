"""Groups of Grove's PodGangs (workloads:WK-GR)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.core import Pod
from pykai.api.scheduling import TopologyConstraint
from pykai.dev.groupingcases import RecordedReaders
from pykai.podgrouper.metadata import GroupingError, Metadata, ObjectName, ObjectNotRead, Owner
from tests.podgrouper.groupings import Labels, Raw, grouped, owner, pod

GANG = ObjectName("scheduler.grove.io/v1alpha1", "PodGang", "ns", "g")
QUEUE = "kai.scheduler/queue"
TOPOLOGY = "kai.scheduler/topology"
GROVE_TOPOLOGY = "grove.io/topology-name"
REQUIRED = "kai.scheduler/topology-required-placement"


def pods_of(name: str, minimum: Any = 1, *pods: str, **fields: Any) -> Raw:
    references = [{"namespace": "ns", "name": each} for each in pods]
    return {"name": name, "minReplicas": minimum, "podReferences": references, **fields}


def packed(**levels: str) -> Raw:
    return {"packConstraint": levels}


def reading(
    *groups: Raw, labels: Labels | None = None, annotations: Labels | None = None, **spec: Any
) -> RecordedReaders:
    meta = {"name": "g", "namespace": "ns", "uid": "G", "labels": labels or {}, "annotations": annotations or {}}
    return RecordedReaders(objects={GANG: {"metadata": meta, "spec": {"podgroups": list(groups), **spec}}})


def cliques(kind: str = "PodCliqueSet", *, labels: Labels | None = None, annotations: Labels | None = None) -> Owner:
    return owner(kind, "s", "S", api="grove.io/v1alpha1", labels=labels, annotations=annotations)


def member(labels: Labels | None = None) -> Pod:
    return pod(labels={"grove.io/podgang": "g", **(labels or {})})


def found(readers: RecordedReaders, one: Pod | None = None, top: Owner | None = None) -> Metadata:
    return grouped(one or member(), top or cliques(), readers=readers)


@pytest.mark.parametrize("kind", ["PodCliqueSet", "PodGangSet"])
def test_the_groups_of_a_pod_gang_are_subgroups(kind: str) -> None:
    """workloads:T-98."""
    readers = reading(pods_of("a", 4), pods_of("b", 3, "p"), pods_of("c", 5), priorityClassName="inference")
    meta = found(readers, member({QUEUE: "q"}), cliques(kind))
    assert (meta.name, meta.owner.kind, meta.owner.name, meta.owner.uid) == ("pg-g-G", "PodGang", "g", "G")
    assert (meta.min_available, meta.min_sub_group, meta.priority_class, meta.queue) == (12, None, "inference", "q")
    assert [(each.name, each.min_member, each.parent) for each in meta.sub_groups] == [
        ("a", 4, None),
        ("b", 3, None),
        ("c", 5, None),
    ]
    assert meta.pod_sub_group == "b"


def test_groups_that_share_a_constraint_have_a_parent() -> None:
    """workloads:T-99."""
    readers = reading(
        pods_of("pg1", 2, "p", topologyConstraint=packed(required="host")),
        pods_of("pg2"),
        annotations={TOPOLOGY: "T"},
        topologyConstraintGroupConfigs=[
            {"name": "group1", "podGroupNames": ["pg1"], "topologyConstraint": packed(preferred="rack")},
            {"name": "empty"},
        ],
    )
    parent, first, second = found(readers).sub_groups
    assert (parent.name, parent.min_sub_group, parent.parent) == ("group1", 1, None)
    assert parent.topology_constraint == TopologyConstraint(topology="T", preferred_topology_level="rack")
    assert (first.name, first.parent, first.min_member) == ("pg1", "group1", 2)
    assert first.topology_constraint == TopologyConstraint(topology="T", required_topology_level="host")
    assert (second.parent, second.topology_constraint) == (None, None)


def test_a_parent_counts_the_children_it_has() -> None:
    """KAI counts children that do not exist, and such a gang never starts."""
    configs = [{"name": "both", "podGroupNames": ["a", "gone"]}, {"name": "none", "podGroupNames": ["gone"]}]
    sub_groups = found(reading(pods_of("a"), topologyConstraintGroupConfigs=configs)).sub_groups
    assert [(each.name, each.min_sub_group) for each in sub_groups] == [("both", 1), ("a", None)]


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (pods_of("a", topologyConstraint=packed(required="rack")), "a topology constraint needs the annotation"),
        (
            {**pods_of("a"), "podReferences": [{"namespace": "other", "name": "p"}]},
            "expected pods of namespace ns, got the text 'other'",
        ),
        (pods_of("a", 0), "minReplicas of 1 or more"),
        (pods_of("a", None), "minReplicas of 1 or more"),
        ({"name": "a", "podReferences": []}, "minReplicas of 1 or more"),
        ({"name": "a", "minReplicas": 1}, "podReferences"),
        (pods_of(""), r"spec.podgroups\[0\].name: .* is no name for a subgroup"),
        (pods_of("A.b"), r"spec.podgroups\[0\].name: .* is no name for a subgroup"),
        (pods_of("a", 1 << 31), "minReplicas"),
        (pods_of("a", "x"), r"spec.podgroups\[0\].minReplicas"),
    ],
)
def test_an_invalid_group_is_refused(group: Raw, text: str) -> None:
    """workloads:T-100."""
    with pytest.raises(GroupingError, match=f"PodGang ns/g: .*{text}"):
        found(reading(group))


def test_groups_of_one_name_are_refused() -> None:
    for groups, configs in (
        ([pods_of("a"), pods_of("a")], []),
        ([pods_of("a"), pods_of("b")], [{"name": "b", "podGroupNames": ["a"]}]),
    ):
        with pytest.raises(GroupingError, match="two groups have one name"):
            found(reading(*groups, topologyConstraintGroupConfigs=configs))
    with pytest.raises(GroupingError, match=r"topologyConstraintGroupConfigs\[0\].name: .* is no name"):
        found(reading(topologyConstraintGroupConfigs=[{"podGroupNames": ["a"]}]))


def test_the_topology_name_of_grove_wins() -> None:
    """workloads:T-101."""
    both = {GROVE_TOPOLOGY: "G", TOPOLOGY: "K", REQUIRED: "ignored"}
    readers = reading(pods_of("a"), annotations=both, topologyConstraint=packed(required="zone", preferred="rack"))
    expected = TopologyConstraint(topology="G", required_topology_level="zone", preferred_topology_level="rack")
    assert found(readers).topology == expected
    annotated = reading(pods_of("a"), annotations={TOPOLOGY: "K", REQUIRED: "zone"})
    assert found(annotated).topology == TopologyConstraint(topology="K", required_topology_level="zone")


def test_the_pod_clique_set_fills_what_the_pod_gang_does_not_say() -> None:
    top = cliques(
        labels={"x": "set", "y": "set", "priorityClassName": "build", "kai.scheduler/preemptibility": "preemptible"},
        annotations={TOPOLOGY: "T", REQUIRED: "rack", "kai.scheduler/preemption-delay": "30s", "z": "set"},
    )
    meta = found(reading(pods_of("a"), labels={"x": "gang"}), top=top)
    assert (meta.labels["x"], meta.labels["y"], meta.annotations["z"]) == ("gang", "set", "set")
    assert "kind: PodGang" in meta.annotations["kai.scheduler/top-owner-metadata"]
    assert (meta.priority_class, meta.preemptibility, meta.preemption_delay_ns) == ("build", "preemptible", 30 * 10**9)
    assert meta.topology == TopologyConstraint(topology="T", required_topology_level="rack")
    gang_says = reading(
        pods_of("a"),
        labels={"priorityClassName": "ghost"},
        annotations={TOPOLOGY: "own", "kai.scheduler/preemption-delay": "1s"},
    )
    meta = found(gang_says, top=top)
    assert (meta.priority_class, meta.preemption_delay_ns, meta.topology.topology) == ("ghost", 10**9, "own")


def test_an_unknown_preemptibility_is_refused() -> None:
    with pytest.raises(GroupingError, match="'maybe' is neither preemptible nor non-preemptible"):
        found(reading(pods_of("a")), top=cliques(labels={"kai.scheduler/preemptibility": "maybe"}))


def test_an_empty_class_of_the_gang_counts() -> None:
    assert found(reading(pods_of("a"), priorityClassName="")).priority_class == ""
    assert found(reading(pods_of("a"), priorityClassName=None)).priority_class == "train"


@pytest.mark.parametrize(
    ("gang", "of_pod", "above", "queue"),
    [
        ({}, {}, {QUEUE: "set"}, "set"),
        ({QUEUE: "gang"}, {}, {QUEUE: "set"}, "gang"),
        ({}, {QUEUE: "pod"}, {QUEUE: "set"}, "pod"),
        ({"project": "gang"}, {}, {QUEUE: "set"}, "set"),
        ({"project": "gang"}, {}, {"project": "set"}, "gang"),
        ({}, {"project": "pod"}, {}, "pod"),
        ({}, {}, {"project": "set"}, "set"),
        ({}, {}, {}, "default-queue"),
    ],
)
def test_the_queue_of_the_set_counts(gang: Labels, of_pod: Labels, above: Labels, queue: str) -> None:
    """KAI leaves a gang in the default queue when only its PodCliqueSet has the label."""
    assert found(reading(pods_of("a"), labels=gang), member(of_pod), cliques(labels=above)).queue == queue


def test_the_grace_period_of_the_set_counts() -> None:
    """KAI does not read it."""
    key = "kai.scheduler/staleness-grace-period"
    assert found(reading(pods_of("a")), top=cliques(annotations={key: "-1s"})).staleness_grace_ns == -(10**9)
    meta = found(reading(pods_of("a"), annotations={key: "5s"}), top=cliques(annotations={key: "-1s"}))
    assert meta.staleness_grace_ns == 5 * 10**9
    wrong = found(reading(pods_of("a")), top=cliques(annotations={key: "soon"}))
    assert [problem.subject for problem in wrong.problems] == ["PodCliqueSet/ns/s"]


def test_a_pod_that_is_not_listed_yet_follows_its_clique() -> None:
    readers = reading(pods_of("g-0-web", 1, "other"))
    places = {
        clique: found(readers, member({"grove.io/podclique": clique})).pod_sub_group for clique in ("g-0-web", "x")
    }
    assert places == {"g-0-web": "g-0-web", "x": ""}


def test_a_pod_needs_a_pod_gang() -> None:
    with pytest.raises(GroupingError, match=r"has no label grove\.io/podgang"):
        grouped(pod(), cliques())
    with pytest.raises(ObjectNotRead):
        found(RecordedReaders())
    with pytest.raises(GroupingError, match="PodGang g, which pod ns/p names, does not exist"):
        found(RecordedReaders(objects={GANG: None}))
    with pytest.raises(GroupingError, match="PodGang ns/g: metadata"):
        found(RecordedReaders(objects={GANG: {"metadata": []}}))


def test_a_dynamo_graph_gives_its_queue_to_the_gang() -> None:
    """workloads:ST-4."""
    dynamo = owner("DynamoGraphDeployment", "d", "D", api="nvidia.com/v1beta1", labels={QUEUE: "llm"})
    clique_set = owner("PodCliqueSet", "s", "S", api="grove.io/v1alpha1", by=dynamo)
    clique = owner("PodClique", "c", "C", api="grove.io/v1alpha1", by=clique_set)
    meta = grouped(member(), clique, clique_set, dynamo, readers=reading(pods_of("a", 2, "p")))
    assert (meta.name, meta.queue, meta.min_available, meta.pod_sub_group) == ("pg-g-G", "llm", 2, "a")
