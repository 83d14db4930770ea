"""Groups of PyTorchJobs (workloads:WK-PT); how workers are divided is tested in `test_segments`."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.core import Pod
from pykai.api.decode import decode_as
from pykai.api.scheduling import PodGroup, TopologyConstraint
from pykai.dev.groupingcases import GroupingCase, RecordedReaders, group_case
from pykai.podgrouper.metadata import GroupingError, GroupingSettings, Metadata, Owner
from pykai.podgrouper.writes import group_patch, new_group
from tests.podgrouper.groupings import Labels, Raw, grouped, owner, pod

SIZE = "kai.scheduler/segment-size"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED = "kai.scheduler/segment-topology-required-placement"
PREFERRED = "kai.scheduler/segment-topology-preferred-placement"


def job(
    masters: Any = 1,
    workers: Any = 4,
    *,
    template: Labels | None = None,
    annotations: Labels | None = None,
    minimum: Any = None,
    elastic: Any = None,
) -> Owner:
    """A job; None for a role that it does not have, `template` are the annotations of its workers."""
    roles: Raw = {}
    if masters is not None:
        roles["Master"] = {"replicas": masters}
    if workers is not None:
        roles["Worker"] = {"replicas": workers, "template": {"metadata": {"annotations": dict(template or {})}}}
    spec: Raw = {"pytorchReplicaSpecs": roles}
    if minimum is not None:
        spec["runPolicy"] = {"schedulingPolicy": {"minAvailable": minimum}}
    if elastic is not None:
        spec["elasticPolicy"] = {"minReplicas": elastic}
    return owner("PyTorchJob", "j", "U", api="kubeflow.org/v1", annotations=annotations, spec=spec)


def member(role: str = "worker", index: str = "0", by: Owner | None = None, annotations: Labels | None = None) -> Pod:
    labels = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": index}
    return pod(f"j-{role}-{index}", by=by, labels=labels, annotations=annotations)


def drawn(meta: Metadata) -> str:
    """The subgroups in one line: `name=pods`, `name/children`."""
    return " ".join(
        f"{each.name}={each.min_member}" if each.min_sub_group is None else f"{each.name}/{each.min_sub_group}"
        for each in meta.sub_groups
    )


def test_master_and_workers_are_subgroups() -> None:
    """workloads:T-68."""
    meta = grouped(member(), job(2, 3))
    assert (meta.name, meta.min_available, drawn(meta)) == ("pg-j-U", 5, "master=2 worker=3")
    roles = ("master", "worker", "chief")
    assert [grouped(member(role), job()).pod_sub_group for role in roles] == ["master", "worker", ""]
    assert drawn(grouped(member(), job(None, 3))) == "worker=3"
    assert drawn(grouped(member("master"), job(1, None))) == "master=1"


@pytest.mark.parametrize(
    ("minimum", "elastic", "least", "parts"),
    [(3, 5, 3, "master=1 worker=2"), (None, 5, 5, "master=1 worker=4"), (0, None, 0, "master=1 worker=0")],
)
def test_declared_minimums_go_before_the_sum(minimum: int | None, elastic: int | None, least: int, parts: str) -> None:
    """workloads:T-69."""
    meta = grouped(member(), job(1, 8, minimum=minimum, elastic=elastic))
    assert (meta.min_available, drawn(meta)) == (least, parts)


@pytest.mark.parametrize(
    ("workers", "elastic", "least", "parts", "index", "place"),
    [
        (4, None, 5, "master=1 worker/2 worker-0=2 worker-1=2", "2", "worker-1"),
        (5, None, 6, "master=1 worker/3 worker-0=2 worker-1=2 worker-2=1", "4", "worker-2"),
        (8, 5, 5, "master=1 worker/4 worker-0=2 worker-1=2 worker-2=0 worker-3=0", "7", "worker-3"),
    ],
)
def test_workers_are_divided_into_segments(
    workers: int, elastic: int | None, least: int, parts: str, index: str, place: str
) -> None:
    """workloads:T-70, T-71, T-72."""
    top = job(1, workers, template={SIZE: "2"}, elastic=elastic)
    meta = grouped(member(index=index), top)
    assert (meta.min_available, drawn(meta), meta.pod_sub_group) == (least, parts, place)


def test_a_size_that_cannot_be_used_is_reported_and_ignored() -> None:
    """workloads:T-73, topo:TD-19: KAI refuses the job, and divides by zero for a size on the pod."""
    for size in ("not-a-number", "0", "-2", "1", "9"):
        for top, one in (
            (job(template={SIZE: size}), member()),
            (job(), member(annotations={SIZE: size})),
        ):
            meta = grouped(one, top)
            assert drawn(meta) == "master=1 worker=4"
            assert [SIZE in str(problem) for problem in meta.problems] == [True]


@pytest.mark.parametrize("index", ["-1", "x", "4"])
def test_a_worker_needs_an_index_that_a_segment_has(index: str) -> None:
    """workloads:T-73; an index beyond the workers is reported, which KAI routes to a segment that does not exist."""
    with pytest.raises(GroupingError, match=r"Pod/ns/.*training\.kubeflow\.org/replica-index"):
        grouped(member(index=index), job(template={SIZE: "2"}))


def test_too_many_segments_are_refused() -> None:
    """workloads:T-73."""
    with pytest.raises(GroupingError, match="the number of subgroups created for the segmentation is 10001"):
        grouped(member(), job(1, 20_001, template={SIZE: "2"}))


@pytest.mark.parametrize(
    ("key", "level"), [(REQUIRED, "required_topology_level"), (PREFERRED, "preferred_topology_level")]
)
@pytest.mark.parametrize("place", ["pod", "template", "job"])
def test_segments_have_a_constraint_of_their_own(key: str, level: str, place: str) -> None:
    """workloads:T-74."""
    named = {TOPOLOGY: "net"}
    top = job(
        template={SIZE: "2", key: "rack", **(named if place == "template" else {})},
        annotations=named if place == "job" else {},
    )
    meta = grouped(member(annotations=named if place == "pod" else {}), top)
    wanted = TopologyConstraint(topology="net", **{level: "rack"})
    assert [each.topology_constraint for each in meta.sub_groups] == [None, None, wanted, wanted]
    assert meta.topology == TopologyConstraint(topology="net" if place == "job" else "")
    nameless = grouped(member(), job(template={SIZE: "2", key: "rack"}))
    assert {each.topology_constraint for each in nameless.sub_groups} == {None}


def test_without_workers_for_now_the_worker_is_a_leaf() -> None:
    """workloads:T-75."""
    meta = grouped(member("master"), job(1, 0, minimum=1, template={SIZE: "2"}))
    assert (drawn(meta), meta.problems) == ("master=1 worker=0", ())


def test_a_master_does_not_set_the_size() -> None:
    """workloads:WK-PT, Do better: a master that is annotated otherwise must not rewrite the group."""
    top = job(template={SIZE: "2"})
    assert grouped(member("master", annotations={SIZE: "4"}), top).sub_groups == grouped(member(), top).sub_groups


def test_a_master_keeps_segments_that_workers_asked_for() -> None:
    """Without a size in the template only workers know it; the master's turn must not undo their subgroups."""
    top = job()
    divided = grouped(member(annotations={SIZE: "2"}), top)
    group = decode_as(PodGroup, new_group(divided))
    master = grouped(member("master"), top, readers=RecordedReaders(groups={"ns/pg-j-U": group}))
    assert (master.pod_sub_group, group_patch(group, master, GroupingSettings())) == ("master", None)
    plain = decode_as(PodGroup, new_group(grouped(member(), top)))
    master = grouped(member("master"), top, readers=RecordedReaders(groups={"ns/pg-j-U": plain}))
    assert drawn(master) == "master=1 worker=4"


@pytest.mark.parametrize(
    ("top", "text"),
    [
        (job(None, None), "doesn't have a pytorchReplicaSpecs field"),
        (job(None, None, minimum=3), "doesn't have a pytorchReplicaSpecs field"),
        (job(1, 0), "doesn't allow for 0 Worker pods"),
        (job(0, 4, elastic=2), "doesn't allow for 0 Master pods"),
        (job(minimum=-1), "a minimum of -1 pods is not possible"),
        (job(workers="many"), "spec.pytorchReplicaSpecs"),
    ],
)
def test_a_job_that_cannot_run_is_refused(top: Owner, text: str) -> None:
    with pytest.raises(GroupingError) as raised:
        grouped(member(), top)
    assert text in str(raised.value)
    assert "PyTorchJob ns/j: " in str(raised.value)


def test_the_golden_group_comes_out_as_written() -> None:
    """workloads:T-151."""
    inherited = {TOPOLOGY: "t", "kai.scheduler/topology-required-placement": "zone"}
    template = {"metadata": {"annotations": {SIZE: "2", TOPOLOGY: "t", REQUIRED: "rack"}}}
    roles = {"Master": {"replicas": 1}, "Worker": {"replicas": 8, "template": template}}
    top = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "annotations": inherited},
        "spec": {"elasticPolicy": {"minReplicas": 5}, "pytorchReplicaSpecs": roles},
    }
    reference = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "uid": "u", "controller": True}
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "5"}
    one = {
        "metadata": {"name": "w", "namespace": "ns", "uid": "p", "labels": labels, "ownerReferences": [reference]},
        "spec": {"schedulerName": "kai-scheduler"},
    }
    found = group_case(GroupingCase("golden", [top], [one], {}))
    rack = {"topology": "t", "requiredTopologyLevel": "rack"}
    segments = [
        {"name": f"worker-{number}", "parent": "worker", "minMember": least, "topologyConstraint": rack}
        for number, least in enumerate((2, 2, 0, 0))
    ]
    (group,) = found["podGroups"]
    assert group["spec"] == {
        "queue": "default-queue",
        "priorityClassName": "train",
        "minMember": 5,
        "topologyConstraint": {"topology": "t", "requiredTopologyLevel": "zone"},
        "subGroups": [{"name": "master", "minMember": 1}, {"name": "worker", "minSubGroup": 4}, *segments],
    }
    assert found["pods"] == {"w": {"pod-group-name": "pg-j-u", "kai.scheduler/subgroup-name": "worker-2"}}
