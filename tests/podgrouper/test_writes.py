"""What is written on a PodGroup and a pod, and what is left as others wrote it (workloads:2.3, 2.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pykai.api.decode import decode_as
from pykai.api.scheduling import PodGroup, SubGroup, TopologyConstraint
from pykai.podgrouper.kinds.pod import in_existing_group
from pykai.podgrouper.metadata import GroupingSettings, Metadata
from pykai.podgrouper.writes import group_patch, new_group, pod_patch
from tests.podgrouper.groupings import grouped, owner, pod

QUEUE, POOL = "kai.scheduler/queue", "kai.scheduler/node-pool"


def answer(**changes: Any) -> Metadata:
    """A grouper's result for a Job in queue q1."""
    top = owner("Job", "j", "U", labels={QUEUE: "q1"})
    return replace(grouped(pod(by=top), top), **changes)


def stored(meta: Metadata, **spec: Any) -> PodGroup:
    """The group as it was created from a result, with fields that others wrote since."""
    raw = new_group(meta)
    raw["metadata"]["resourceVersion"] = "5"
    raw["spec"].update(spec)
    return decode_as(PodGroup, raw)


def patch(existing: PodGroup, meta: Metadata, **options: Any) -> dict[str, Any] | None:
    return group_patch(existing, meta, GroupingSettings(), **options)


def test_nothing_is_written_when_nothing_changed() -> None:
    """workloads:AP-3, Do better: an absent list is an empty list."""
    plain = answer()
    assert patch(stored(plain), plain) is None
    rich = answer(
        preemption_delay_ns=90 * 10**9,
        staleness_grace_ns=-(10**9),
        preemptibility="preemptible",
        topology=TopologyConstraint(topology="t", required_topology_level="rack"),
        sub_groups=(
            SubGroup(name="a", min_sub_group=1),
            SubGroup(name="b", parent="a", min_member=0, topology_constraint=TopologyConstraint(topology="t")),
        ),
        min_sub_group=1,
    )
    assert patch(stored(rich), rich) is None


def test_durations_are_compared_by_value() -> None:
    meta = answer(preemption_delay_ns=90 * 10**9)
    assert patch(stored(meta, preemptionDelay="90s"), meta) is None
    assert patch(stored(meta, preemptionDelay="nonsense"), meta) is not None


def test_either_minimum_is_written_never_both() -> None:
    """workloads:AP-2."""
    assert new_group(answer(min_available=0))["spec"]["minMember"] == 0
    spec = new_group(answer(min_available=7, min_sub_group=2))["spec"]
    assert ("minMember" in spec, spec["minSubGroup"]) == (False, 2)
    changed = patch(stored(answer()), answer(min_sub_group=2))
    assert changed is not None
    assert changed["spec"] == {"minMember": None, "minSubGroup": 2}


def test_what_is_sticky_stays() -> None:
    """workloads:T-25."""
    meta = answer(queue="q2", labels={QUEUE: "q2"}, priority_class="build")
    changed = patch(stored(answer(), markUnschedulable=False, schedulingBackoff=1), meta)
    assert changed == {"metadata": {"resourceVersion": "5"}, "spec": {"priorityClassName": "build"}}


def test_the_queue_is_updated_where_configured() -> None:
    changed = patch(stored(answer()), answer(queue="q2", labels={QUEUE: "q2"}), follow_queue=True)
    assert changed is not None
    assert (changed["spec"], changed["metadata"]["labels"]) == ({"queue": "q2"}, {QUEUE: "q2"})
    assert patch(stored(answer()), answer(queue=""), follow_queue=True) is None


def test_the_node_pool_label_stays_as_it_is() -> None:
    """workloads:T-26."""
    wanted = answer(labels={QUEUE: "q1", POOL: "pool-a"})
    assert patch(stored(answer()), wanted) is None
    assert patch(stored(answer(labels={QUEUE: "q1", POOL: "pool-b"})), wanted) is None


def test_the_queue_label_is_added_where_there_is_none() -> None:
    changed = patch(stored(answer(labels={})), answer())
    assert changed == {"metadata": {"labels": {QUEUE: "q1"}, "resourceVersion": "5"}}


@pytest.mark.parametrize("said", [TopologyConstraint(), TopologyConstraint(required_topology_level="rack")])
def test_a_topology_of_others_stays_while_the_workload_names_none(said: TopologyConstraint) -> None:
    """workloads:T-27."""
    theirs = {"topology": "E", "preferredTopologyLevel": "host"}
    assert patch(stored(answer(), topologyConstraint=theirs), answer(topology=said)) is None


def test_a_topology_of_the_workload_replaces_all_of_the_old_one() -> None:
    """workloads:T-27."""
    theirs = {"topology": "E", "preferredTopologyLevel": "host"}
    meta = answer(topology=TopologyConstraint(topology="N", required_topology_level="rack"))
    changed = patch(stored(answer(), topologyConstraint=theirs), meta)
    assert changed is not None
    assert changed["spec"]["topologyConstraint"] == {
        "topology": "N",
        "requiredTopologyLevel": "rack",
        "preferredTopologyLevel": None,
    }


def test_labels_and_annotations_are_added_and_never_removed() -> None:
    """workloads:T-28."""
    old = answer(labels={QUEUE: "q1", "gone": "x", "a": "1"}, annotations={"old": "x"})
    changed = patch(stored(old), answer(labels={QUEUE: "q1", "a": "2"}, annotations={"new": "y"}))
    assert changed == {"metadata": {"labels": {"a": "2"}, "annotations": {"new": "y"}, "resourceVersion": "5"}}


def test_the_one_owner_is_ours() -> None:
    meta = answer()
    raw = new_group(meta)
    raw["metadata"]["ownerReferences"].append({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "x"})
    changed = patch(decode_as(PodGroup, raw), meta)
    assert changed is not None
    assert changed["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "U"}
    ]


def test_obsolete_fields_are_removed() -> None:
    meta = answer(preemptibility="preemptible", preemption_delay_ns=10**9, sub_groups=(SubGroup(name="a"),))
    changed = patch(stored(meta), answer())
    assert changed is not None
    assert changed["spec"] == {"preemptibility": None, "preemptionDelay": None, "subGroups": None}


def test_an_empty_queue_is_not_written() -> None:
    assert "queue" not in new_group(answer(queue=""))["spec"]


def test_a_pod_is_labelled_with_its_group_and_subgroup() -> None:
    """workloads:PP-1, PP-2."""
    assert pod_patch(pod(), answer()) == {"metadata": {"annotations": {"pod-group-name": "pg-j-U"}}}
    assert pod_patch(pod(), answer(pod_sub_group="s")) == {
        "metadata": {
            "annotations": {"pod-group-name": "pg-j-U"},
            "labels": {"kai.scheduler/subgroup-name": "s"},
        }
    }


def test_a_pod_that_is_labelled_already_is_left_alone() -> None:
    """workloads:T-31."""
    told = pod(annotations={"pod-group-name": "pg-j-U"}, labels={"kai.scheduler/subgroup-name": "s"})
    assert pod_patch(told, answer(pod_sub_group="s")) is None
    assert pod_patch(pod(annotations={"pod-group-name": "pg-j-U"}), answer()) is None


def test_the_label_of_a_removed_subgroup_is_removed_from_the_pod() -> None:
    """workloads:2.4, Do better."""
    told = pod(annotations={"pod-group-name": "pg-j-U"}, labels={"kai.scheduler/subgroup-name": "s"})
    assert pod_patch(told, answer()) == {"metadata": {"labels": {"kai.scheduler/subgroup-name": None}}}


def test_a_pod_of_an_existing_group_leaves_its_topology_alone() -> None:
    constraint = TopologyConstraint(topology="t", required_topology_level="rack")
    assert in_existing_group(answer(), stored(answer(topology=constraint))).topology == constraint
    assert in_existing_group(answer(), stored(answer())).topology == TopologyConstraint()
