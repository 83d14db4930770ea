"""Groups of RayClusters, RayJobs and RayServices (workloads:WK-RAY)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pykai.api.decode import decode_as
from pykai.api.scheduling import PodGroup, TopologyConstraint
from pykai.dev.groupingcases import RecordedReaders
from pykai.podgrouper.metadata import GroupingError, Metadata, ObjectName, ObjectNotRead, Owner
from pykai.podgrouper.writes import new_group
from tests.podgrouper.groupings import Labels, Raw, grouped, owner, pod

RAY = "ray.io/v1"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED = "kai.scheduler/topology-required-placement"
PREFERRED = "kai.scheduler/topology-preferred-placement"


def workers(name: str = "", **fields: Any) -> Raw:
    return ({"groupName": name} if name else {}) | fields


def annotated(annotations: Labels) -> Raw:
    return {"metadata": {"annotations": dict(annotations)}}


def cluster(*groups: Raw, head: Raw | None = None, labels: Labels | None = None, by: Owner | None = None) -> Owner:
    spec = {"headGroupSpec": {"template": head or {}}, "workerGroupSpecs": list(groups)}
    return replace(owner("RayCluster", "r", "U", api=RAY, labels=labels, by=by), body={"spec": spec})


def in_group(name: str = "headgroup", by: Owner | None = None) -> Any:
    return pod(by=by, labels={"ray.io/group": name} if name else {})


def minimums(found: Metadata) -> dict[str, int | None]:
    return {each.name: each.min_member for each in found.sub_groups}


def test_head_and_worker_groups_are_subgroups() -> None:
    """workloads:T-76."""
    top = cluster(workers(replicas=3, minReplicas=2), workers(replicas=3, minReplicas=1))
    found = grouped(in_group(by=top), top)
    assert (found.name, found.min_available, found.min_sub_group) == ("pg-r-U", 4, None)
    assert list(minimums(found).items()) == [("headgroup", 1), ("worker-group-0", 2), ("worker-group-1", 1)]
    named = cluster(workers("small", replicas=1), workers(replicas=2))
    assert minimums(grouped(in_group(), named)) == {"headgroup": 1, "small": 1, "worker-group-1": 2}


def test_a_pod_belongs_to_the_subgroup_of_its_label() -> None:
    top = cluster(workers("small", replicas=1), workers(replicas=2))
    routes = {label: grouped(in_group(label, by=top), top).pod_sub_group for label in ("headgroup", "small")}
    assert routes == {"headgroup": "headgroup", "small": "small"}
    assert grouped(in_group("worker-group-1"), top).pod_sub_group == "worker-group-1"


@pytest.mark.parametrize("field", ["suspend", "suspended"])
def test_a_suspended_group_is_left_out(field: str) -> None:
    """workloads:T-77; KubeRay says suspend, KAI reads suspended."""
    top = cluster(workers("a", replicas=3, minReplicas=2), workers("b", replicas=3, minReplicas=1, **{field: True}))
    found = grouped(in_group(), top)
    assert (found.min_available, minimums(found)) == (3, {"headgroup": 1, "a": 2})


def test_every_host_of_a_replica_counts() -> None:
    """workloads:T-78."""
    top = cluster(
        workers("a", replicas=2, minReplicas=2, numOfHosts=2), workers("b", replicas=3, minReplicas=1, numOfHosts=3)
    )
    assert grouped(in_group(), top).min_available == 8


def test_without_a_minimum_all_replicas_start_together() -> None:
    top = cluster(workers("a", replicas=3), workers("b", replicas=0, minReplicas=0), workers("c"))
    assert minimums(grouped(in_group(), top)) == {"headgroup": 1, "a": 3}


@pytest.mark.parametrize(
    ("group", "path"),
    [
        ({"replicas": 1, "minReplicas": 2}, r"spec.workerGroupSpecs\[0\].minReplicas: 2 is more than the 1 replicas"),
        ({"replicas": -1}, r"spec.workerGroupSpecs\[0\].replicas: expected 0 or more, got -1"),
        ({"replicas": 1, "numOfHosts": 0}, r"spec.workerGroupSpecs\[0\].numOfHosts: expected 1 or more, got 0"),
        ({"replicas": "two"}, r"spec.workerGroupSpecs\[0\].replicas: "),
        ({"replicas": True}, r"spec.workerGroupSpecs\[0\].replicas: "),
        ({"replicas": 1 << 40}, "spec.workerGroupSpecs: a minimum of 1099511627777 pods is not possible"),
    ],
)
def test_impossible_numbers_are_refused(group: Raw, path: str) -> None:
    """workloads:T-79."""
    with pytest.raises(GroupingError, match=f"RayCluster ns/r: {path}"):
        grouped(in_group(), cluster(group))


def test_more_groups_than_a_pod_group_can_have_are_refused() -> None:
    many = [workers(f"g{number}", replicas=1) for number in range(1024)]
    with pytest.raises(GroupingError, match=r"spec.workerGroupSpecs: 1024 groups; with the head at most 1024"):
        grouped(in_group(), cluster(*many))
    assert len(grouped(in_group(), cluster(*many[1:])).sub_groups) == 1024


def test_many_groups_whose_names_become_one_stay_apart() -> None:
    alike = [workers("g" + "!" * (number + 1), replicas=1) for number in range(500)]
    assert len(minimums(grouped(in_group(), cluster(*alike)))) == 501


def test_the_priority_label_of_ray_wins_unchecked() -> None:
    """workloads:T-80."""
    top = cluster(labels={"ray.io/priority-class-name": "x", "priorityClassName": "build"})
    assert grouped(in_group(), top).priority_class == "x"


def test_an_existing_group_without_subgroups_keeps_its_shape() -> None:
    """workloads:T-81."""
    top = cluster(workers("a", replicas=2))
    fresh = grouped(in_group(), top)
    flat = RecordedReaders(groups={"ns/pg-r-U": PodGroup()})
    legacy = grouped(in_group("a"), top, readers=flat)
    assert (legacy.sub_groups, legacy.pod_sub_group, legacy.min_available) == ((), "", 3)
    divided = RecordedReaders(groups={"ns/pg-r-U": decode_as(PodGroup, new_group(fresh))})
    assert grouped(in_group("a"), top, readers=divided).sub_groups == fresh.sub_groups


def test_the_topology_of_a_group_is_its_templates() -> None:
    """workloads:T-82."""
    rack = annotated({TOPOLOGY: "t", REQUIRED: "rack"})
    zone = annotated({TOPOLOGY: "t", PREFERRED: "zone"})
    top = cluster(workers("a", replicas=1, template=zone), workers("b", replicas=1), head=rack)
    found = grouped(in_group(), top)
    assert [each.topology_constraint for each in found.sub_groups] == [
        TopologyConstraint(topology="t", required_topology_level="rack"),
        TopologyConstraint(topology="t", preferred_topology_level="zone"),
        None,
    ]
    without_level = cluster(head=annotated({TOPOLOGY: "t"}))
    assert grouped(in_group(), without_level).sub_groups[0].topology_constraint is None
    for key in (REQUIRED, PREFERRED):
        with pytest.raises(GroupingError, match=r"topology annotation \(kai.scheduler/topology\) is required for head"):
            grouped(in_group(), cluster(head=annotated({key: "rack"})))


def ray_workload(kind: str, status: Raw) -> Owner:
    return replace(owner(kind, "w", "W", api=RAY), body={"status": status})


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("RayJob", {"rayClusterName": "r"}),
        ("RayService", {"activeServiceStatus": {"rayClusterName": "r"}}),
        ("RayService", {"pendingServiceStatus": {"rayClusterName": "r"}}),
        (
            "RayService",
            {"activeServiceStatus": {"rayClusterName": "r"}, "pendingServiceStatus": {"rayClusterName": "next"}},
        ),
    ],
)
def test_jobs_and_services_have_the_shape_of_their_cluster(kind: str, status: Raw) -> None:
    top = ray_workload(kind, status)
    below = cluster(workers("a", replicas=2), by=top)
    found = grouped(in_group("a", by=below), below, top)
    assert (found.name, found.owner.kind, found.min_available) == ("pg-w-W", kind, 3)
    assert minimums(found) == {"headgroup": 1, "a": 2}
    # The cluster is read where it is not among the owners of the pod, as for the submitter of a job.
    which = ObjectName(RAY, "RayCluster", "ns", "r")
    with pytest.raises(ObjectNotRead):
        grouped(in_group(), top)
    body = {"metadata": {"name": "r", "namespace": "ns"}, **below.body}
    read = RecordedReaders(objects={which: body})
    assert grouped(in_group(), top, readers=read).min_available == 3
    with pytest.raises(GroupingError, match=r"the RayCluster in the status of .* does not exist"):
        grouped(in_group(), top, readers=RecordedReaders(objects={which: None}))


@pytest.mark.parametrize("name", ["..", ".", "a/b", "A", "-", "x" * 254])
def test_a_name_that_no_object_has_is_not_looked_up(name: str) -> None:
    with pytest.raises(GroupingError, match="does not exist"):
        grouped(in_group(), ray_workload("RayJob", {"rayClusterName": name}))


@pytest.mark.parametrize("kind", ["RayJob", "RayService"])
def test_a_job_that_names_no_cluster_is_tried_again(kind: str) -> None:
    with pytest.raises(GroupingError, match=f"{kind} ns/w names no RayCluster .* ray-operator is up"):
        grouped(in_group(), ray_workload(kind, {}))


def test_a_pod_of_no_group_gets_an_elastic_subgroup() -> None:
    """The submitter of a job: KAI's scheduler refuses it."""
    top = cluster(workers("a", replicas=2))
    submitter = grouped(in_group(""), top)
    assert submitter.pod_sub_group == "submitter"
    assert minimums(submitter) == {"headgroup": 1, "a": 2, "submitter": 0}
    assert submitter.min_available == 3
    # The subgroup stays when other pods are grouped again.
    known = RecordedReaders(groups={"ns/pg-r-U": decode_as(PodGroup, new_group(submitter))})
    head = grouped(in_group(), top, readers=known)
    assert (head.sub_groups, head.pod_sub_group) == (submitter.sub_groups, "headgroup")
    assert grouped(in_group("unknown"), top).pod_sub_group == "submitter"
    taken = cluster(workers("submitter", replicas=2))
    assert grouped(in_group(""), taken).pod_sub_group == "submitter-1"


def test_names_that_no_subgroup_may_have_are_corrected_for_group_and_pod() -> None:
    """KAI's PodGroup cannot be created."""
    top = cluster(workers("Big_Group.1", replicas=1), workers("big-group-1", replicas=2), workers("__", replicas=3))
    assert minimums(grouped(in_group(), top)) == {
        "headgroup": 1,
        "big-group-1": 1,
        "big-group-1-1": 2,
        "worker-group-2": 3,
    }
    routes = {label: grouped(in_group(label), top).pod_sub_group for label in ("Big_Group.1", "big-group-1", "__")}
    assert routes == {"Big_Group.1": "big-group-1", "big-group-1": "big-group-1-1", "__": "worker-group-2"}
    long = grouped(in_group("x" * 70), cluster(workers("x" * 70, replicas=1)))
    assert long.pod_sub_group == "x" * 63


def test_two_groups_of_one_name_are_refused() -> None:
    with pytest.raises(GroupingError, match=r"spec.workerGroupSpecs\[1\].groupName: the text 'a' names two groups"):
        grouped(in_group(), cluster(workers("a", replicas=1), workers("a", replicas=1)))
