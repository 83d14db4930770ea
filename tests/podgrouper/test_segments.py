"""Segments of PyTorchJobs and LeaderWorkerSets: topo:10, workloads:WK-PT and WK-LWS."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.core import Pod, PodSpec
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import SubGroup, TopologyConstraint
from pykai.podgrouper.constraints import group_constraint, updated_group_constraint
from pykai.podgrouper.segments import SegmentError, Subgroups, leader_worker_subgroups, pytorch_subgroups

Raw = dict[str, Any]

SIZE = "kai.scheduler/segment-size"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED = "kai.scheduler/segment-topology-required-placement"
PREFERRED = "kai.scheduler/segment-topology-preferred-placement"
TEMPLATE_SIZE = 'PyTorchJob/team/j: spec.pytorchReplicaSpecs.Worker.template.metadata.annotations["' + SIZE + '"]'
SET_SIZE = "LeaderWorkerSet/team/l: spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize"


def metadata(name: str, annotations: Raw | None) -> Raw:
    return {"name": name, "namespace": "team", "annotations": annotations}


def role(replicas: int | None, **annotations: str) -> Raw:
    return {"replicas": replicas, "template": {"metadata": {"annotations": annotations}}}


def pytorch(
    masters: int | None = 1,
    workers: int | None = 4,
    *,
    size: str | None = "2",
    template: Raw | None = None,
    annotations: Raw | None = None,
    minimum: int | None = None,
    elastic: int | None = None,
) -> Raw:
    """A job; `size` and `template` are annotations of the worker template, `annotations` those of the job."""
    worker = role(workers, **(template or {}), **({} if size is None else {SIZE: size}))
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata("j", annotations),
        "spec": {
            "runPolicy": {"schedulingPolicy": None if minimum is None else {"minAvailable": minimum}},
            "elasticPolicy": None if elastic is None else {"minReplicas": elastic},
            "pytorchReplicaSpecs": {"Master": role(masters), "Worker": worker},
        },
    }


def leader_worker_set(
    members: int | None = 5,
    size: object = 2,
    *,
    policy: str | None = None,
    startup: str | None = None,
    template: Raw | None = None,
    annotations: Raw | None = None,
) -> Raw:
    """A set; `size` is its subGroupSize, `template` are annotations of the worker template."""
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata("l", annotations),
        "spec": {
            "startupPolicy": startup,
            "leaderWorkerTemplate": {
                "size": members,
                "subGroupPolicy": {"subGroupSize": size, "subGroupPolicyType": policy},
                "workerTemplate": {"metadata": {"annotations": template}},
            },
        },
    }


def pod(labels: dict[str, str | None], annotations: dict[str, str], node: str = "") -> Pod:
    kept = {key: value for key, value in labels.items() if value is not None}
    found = ObjectMeta(name="p", namespace="team", labels=kept, annotations=annotations)
    return Pod(metadata=found, spec=PodSpec(node_name=node))


def worker(index: str | None = "0", **annotations: str) -> Pod:
    kubeflow = "training.kubeflow.org/"
    return pod({f"{kubeflow}replica-type": "worker", f"{kubeflow}replica-index": index}, annotations)


def master(**annotations: str) -> Pod:
    return pod({"training.kubeflow.org/replica-type": "master"}, annotations)


def member(index: str | None = "1", node: str = "", **annotations: str) -> Pod:
    return pod({"leaderworkerset.sigs.k8s.io/worker-index": index}, annotations, node)


def subgroups_of(owner: Raw, each: Pod) -> Subgroups:
    return (pytorch_subgroups if owner["kind"] == "PyTorchJob" else leader_worker_subgroups)(owner, each)


def drawn(parts: Subgroups) -> str:
    """`worker sets 2, worker-0 in worker 3`: a set of which 2 are needed, and a leaf of it that needs 3 pods."""

    def each(group: SubGroup) -> str:
        parent = f" in {group.parent}" if group.parent else ""
        assert (group.min_member is None) != (group.min_sub_group is None)
        return (
            f"{group.name}{parent} {group.min_member if group.min_sub_group is None else f'sets {group.min_sub_group}'}"
        )

    return ", ".join(each(group) for group in parts.sub_groups)


def constraints(parts: Subgroups) -> dict[str, TopologyConstraint]:
    return {each.name: each.topology_constraint for each in parts.sub_groups if each.topology_constraint is not None}


def inside(topology: str, required: str = "", preferred: str = "") -> TopologyConstraint:
    return TopologyConstraint(topology=topology, required_topology_level=required, preferred_topology_level=preferred)


def places(owner: Raw, count: int) -> list[str]:
    """The subgroups of pods 0, 1, ... of a LeaderWorkerSet."""
    return [leader_worker_subgroups(owner, member(str(index))).pod_sub_group for index in range(count)]


def test_t45_workers_are_divided_into_segments_below_one_set() -> None:
    """topo:T-45."""
    parts = pytorch_subgroups(pytorch(1, 4), worker())
    assert drawn(parts) == "master 1, worker sets 2, worker-0 in worker 2, worker-1 in worker 2"
    assert parts.min_member == 5
    assert parts.problems == ()


def test_t45_the_last_segment_has_the_remainder() -> None:
    """topo:T-45."""
    parts = pytorch_subgroups(pytorch(1, 5), worker())
    assert drawn(parts) == "master 1, worker sets 3, worker-0 in worker 2, worker-1 in worker 2, worker-2 in worker 1"


def test_t48_segments_beyond_the_minimum_are_elastic() -> None:
    """topo:T-48: 20 workers, at least 12, segments of 4."""
    parts = pytorch_subgroups(pytorch(0, 20, size="4", elastic=12), worker())
    expected = ["worker sets 5"] + [f"worker-{number} in worker {4 if number < 3 else 0}" for number in range(5)]
    assert drawn(parts) == ", ".join(expected)
    assert parts.min_member == 12


def test_t45_a_minimum_inside_a_segment_needs_all_of_it() -> None:
    """topo:T-45: the minimum is rounded up to whole segments."""
    parts = pytorch_subgroups(pytorch(0, 8, size="4", elastic=5), worker())
    assert drawn(parts) == "worker sets 2, worker-0 in worker 4, worker-1 in worker 4"


def test_t45_masters_count_towards_the_minimum() -> None:
    """topo:T-45: worker_min = max(0, pg_min - master replicas)."""
    parts = pytorch_subgroups(pytorch(2, 4, elastic=4), worker())
    assert drawn(parts) == "master 2, worker sets 2, worker-0 in worker 2, worker-1 in worker 0"
    alone = pytorch_subgroups(pytorch(2, 4, size=None, elastic=1), worker())
    assert drawn(alone) == "master 2, worker 0"


def test_t45_min_available_goes_before_min_replicas_and_these_before_the_sum() -> None:
    """topo:T-45."""
    assert pytorch_subgroups(pytorch(1, 8, minimum=3, elastic=5), worker()).min_member == 3
    assert pytorch_subgroups(pytorch(1, 8, elastic=5), worker()).min_member == 5
    assert pytorch_subgroups(pytorch(1, 8), worker()).min_member == 9


def test_t45_absent_replicas_are_one() -> None:
    """topo:T-45: of masters as of workers."""
    assert drawn(pytorch_subgroups(pytorch(None, None, size=None), worker())) == "master 1, worker 1"


def test_t45_without_workers_for_now_the_worker_stays_a_leaf_and_nothing_is_reported() -> None:
    """topo:T-45: n == 0."""
    parts = pytorch_subgroups(pytorch(1, 0, minimum=1), master())
    assert drawn(parts) == "master 1, worker 0"
    assert parts.problems == ()


def test_t45_a_job_without_the_role_worker_has_only_its_master() -> None:
    """topo:T-45: Worker only."""
    owner = pytorch()
    del owner["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert drawn(pytorch_subgroups(owner, master(**{SIZE: "2"}))) == "master 1"


def test_t45_without_masters_there_is_no_group_for_them() -> None:
    """topo:T-45."""
    assert drawn(pytorch_subgroups(pytorch(0, 4, size=None), worker())) == "worker 4"


def test_t45_a_worker_belongs_to_the_segment_of_its_index() -> None:
    """topo:T-45."""
    found = [pytorch_subgroups(pytorch(1, 5), worker(str(index))).pod_sub_group for index in range(5)]
    assert found == ["worker-0", "worker-0", "worker-1", "worker-1", "worker-2"]


def test_t45_other_pods_belong_to_their_role_or_to_none() -> None:
    """topo:T-45: only workers need an index."""
    assert pytorch_subgroups(pytorch(), master()).pod_sub_group == "master"
    assert pytorch_subgroups(pytorch(size=None), worker(None)).pod_sub_group == "worker"
    assert pytorch_subgroups(pytorch(), pod({}, {})).pod_sub_group == ""
    assert pytorch_subgroups(pytorch(), pod({"training.kubeflow.org/replica-type": "chief"}, {})).pod_sub_group == ""


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (None, "missing, so the pod belongs to no segment"),
        ("x", "expected a whole number of 0 or more, got the text 'x'"),
        ("", "expected a whole number of 0 or more, got the text ''"),
        ("1_0", "expected a whole number of 0 or more, got the text '1_0'"),
        ("١", "expected a whole number of 0 or more, got the text '١'"),
        ("-1", "expected a whole number of 0 or more, got the text '-1'"),
        ("4", "4 is beyond the 4 pods that the workload is divided for"),
    ],
)
def test_t45_a_worker_that_no_segment_has_is_an_error(index: str | None, said: str) -> None:
    """topo:T-45; workloads:WK-PT, better (c)."""
    with pytest.raises(SegmentError) as caught:
        pytorch_subgroups(pytorch(1, 4), worker(index))
    where = 'Pod/team/p: metadata.labels["training.kubeflow.org/replica-index"]'
    advice = "the controller of the workload sets this label, see that nothing changes it"
    assert str(caught.value) == f"{where}: {said}; {advice}"
    assert caught.value.problem.subject == "Pod/team/p"


def test_t45_the_template_sets_the_size_for_all_pods() -> None:
    """topo:T-45; workloads:WK-PT, better (b): a pod annotated otherwise does not rewrite the group."""
    owner = pytorch(1, 8, size="4")
    for each in (worker(), worker(**{SIZE: "2"}), master(), master(**{SIZE: "2"})):
        assert (
            drawn(pytorch_subgroups(owner, each))
            == "master 1, worker sets 2, worker-0 in worker 4, worker-1 in worker 4"
        )


def test_t45_without_a_size_in_the_template_a_worker_sets_it() -> None:
    """topo:T-45; workloads:WK-PT, better (b)."""
    for silent in (None, ""):
        parts = pytorch_subgroups(pytorch(1, 4, size=silent), worker("3", **{SIZE: "2"}))
        assert drawn(parts) == "master 1, worker sets 2, worker-0 in worker 2, worker-1 in worker 2"
        assert parts.pod_sub_group == "worker-1"
        assert drawn(pytorch_subgroups(pytorch(1, 4, size=silent), master(**{SIZE: "2"}))) == "master 1, worker 4"


def test_t45_more_than_ten_thousand_segments_are_an_error() -> None:
    """topo:T-45."""
    assert len(pytorch_subgroups(pytorch(0, 20_000), worker()).sub_groups) == 10_001
    with pytest.raises(SegmentError) as caught:
        pytorch_subgroups(pytorch(0, 20_001), worker())
    assert str(caught.value) == (
        "PyTorchJob/team/j: spec.pytorchReplicaSpecs.Worker: the number of subgroups created for the segmentation is "
        "10001, more than 10000; use larger segments"
    )


BAD_SIZES = ["0", "1", "-2", "9", "two", "2.0", " 2", "2_0", "٢", "9" * 30]


@pytest.mark.parametrize("size", BAD_SIZES)
@pytest.mark.parametrize("where", ["template", "pod"])
def test_td19_a_bad_size_of_a_job_is_reported_and_its_workers_are_not_divided(size: str, where: str) -> None:
    """topo:TD-19: wherever it is set; no index is needed then."""
    on_pod = where == "pod"
    owner = pytorch(1, 8, size=None if on_pod else size)
    parts = pytorch_subgroups(owner, worker(None, **{SIZE: size} if on_pod else {}))
    assert drawn(parts) == "master 1, worker 8"
    assert parts.pod_sub_group == "worker"
    said = f'Pod/team/p: metadata.annotations["{SIZE}"]' if on_pod else TEMPLATE_SIZE
    why = "is not a segment size: expected a whole number from 2 to the number of workers, 8; grouped without segments"
    assert [str(each) for each in parts.problems] == [f"{said}: the text {size!r} {why} until it is fixed"]


@pytest.mark.parametrize("size", [0, 1, -2, 6, True, 2.5, [2], *BAD_SIZES])
def test_td19_a_bad_size_of_a_set_is_reported_and_its_workers_are_not_divided(size: object) -> None:
    """topo:TD-19, T-46: the same judge."""
    parts = leader_worker_subgroups(leader_worker_set(5, size), member(None))
    assert drawn(parts) == "leader 1, workers 4"
    assert parts.pod_sub_group == "workers"
    (problem,) = parts.problems
    assert str(problem).startswith(f"{SET_SIZE}: ")
    assert "expected a whole number from 2 to the size of the group, 5" in problem.text


@pytest.mark.parametrize("size", ["2", "8", "+4", "008"])
def test_td19_all_sizes_from_two_to_the_replicas_are_good(size: str) -> None:
    """topo:TD-19."""
    assert pytorch_subgroups(pytorch(1, 8, size=size), worker()).problems == ()
    assert pytorch_subgroups(pytorch(1, 8, size=size), worker()).pod_sub_group == "worker-0"


def test_t44_each_segment_has_the_constraint_and_the_set_above_has_none() -> None:
    """topo:T-44."""
    parts = pytorch_subgroups(pytorch(1, 4, template={TOPOLOGY: "net", REQUIRED: "rack", PREFERRED: "host"}), worker())
    assert constraints(parts) == dict.fromkeys(("worker-0", "worker-1"), inside("net", "rack", "host"))


@pytest.mark.parametrize("level", [REQUIRED, PREFERRED])
def test_t44_one_level_is_enough(level: str) -> None:
    """topo:T-44."""
    wanted = inside("net", **{"required" if level == REQUIRED else "preferred": "rack"})
    assert (
        constraints(pytorch_subgroups(pytorch(template={TOPOLOGY: "net", level: "rack"}), worker()))["worker-0"]
        == wanted
    )
    found = leader_worker_subgroups(leader_worker_set(template={TOPOLOGY: "net", level: "rack"}), member())
    assert constraints(found) == dict.fromkeys(("segment-0", "segment-1"), wanted)


def test_t44_the_pod_names_the_topology_before_the_template_and_this_before_the_owner() -> None:
    """topo:T-44."""
    owner = {TOPOLOGY: "of-owner"}
    template = {TOPOLOGY: "of-template", REQUIRED: "rack"}
    for job, each in (
        (pytorch(template=template, annotations=owner), worker(**{TOPOLOGY: "of-pod"})),
        (leader_worker_set(template=template, annotations=owner), member(**{TOPOLOGY: "of-pod"})),
    ):
        parts = subgroups_of(job, each)
        assert set(constraints(parts).values()) == {inside("of-pod", "rack")}
    parts = pytorch_subgroups(pytorch(template=template, annotations=owner), worker())
    assert set(constraints(parts).values()) == {inside("of-template", "rack")}
    parts = pytorch_subgroups(pytorch(template={REQUIRED: "rack"}, annotations=owner), worker())
    assert set(constraints(parts).values()) == {inside("of-owner", "rack")}


def test_t44_the_pod_names_levels_before_the_template_and_the_owner_names_none() -> None:
    """topo:T-44."""
    template = {TOPOLOGY: "net", REQUIRED: "block", PREFERRED: "rack"}
    parts = pytorch_subgroups(pytorch(template=template), worker(**{REQUIRED: "zone", PREFERRED: ""}))
    assert constraints(parts)["worker-0"] == inside("net", "zone", "rack")
    annotations = {TOPOLOGY: "net", REQUIRED: "rack", PREFERRED: "rack"}
    assert constraints(pytorch_subgroups(pytorch(annotations=annotations), worker())) == {}


def test_t44_segments_without_topology_or_without_level_have_no_constraint() -> None:
    """topo:T-44: the segments are there all the same."""
    for template in ({REQUIRED: "rack", PREFERRED: "host"}, {TOPOLOGY: "net"}):
        for job, each in (
            (pytorch(template=template), worker()),
            (leader_worker_set(template=template), member()),
        ):
            parts = subgroups_of(job, each)
            assert constraints(parts) == {}
            assert len(parts.sub_groups) == 4


def test_t44_annotations_of_masters_and_leaders_do_not_apply_to_segments() -> None:
    """topo:T-44: the constraint would change with the pod that was reconciled last."""
    template = {TOPOLOGY: "net", REQUIRED: "rack"}
    other = {TOPOLOGY: "other", REQUIRED: "zone"}
    assert constraints(pytorch_subgroups(pytorch(template=template), master(**other)))["worker-0"] == inside(
        "net", "rack"
    )
    found = leader_worker_subgroups(leader_worker_set(template=template), member("0", **other))
    assert constraints(found)["segment-0"] == inside("net", "rack")


def test_t12_the_annotations_of_segments_do_not_apply_to_the_whole_group() -> None:
    """topo:T-12."""
    placement = {
        "kai.scheduler/topology-required-placement": "zone",
        "kai.scheduler/topology-preferred-placement": "block",
    }
    assert group_constraint({TOPOLOGY: "net", REQUIRED: "rack", PREFERRED: "host"}) == inside("net")
    assert group_constraint({TOPOLOGY: "net", **placement}) == inside("net", "zone", "block")
    assert group_constraint(placement) == inside("", "zone", "block")
    parts = pytorch_subgroups(pytorch(template={TOPOLOGY: "net", **placement}), worker())
    assert constraints(parts) == {}


def test_t13_a_group_keeps_its_constraint_unless_the_workload_names_a_topology() -> None:
    """topo:T-13."""
    existing = inside("net", "rack")
    assert updated_group_constraint(existing, inside("", "zone")) == existing
    assert updated_group_constraint(existing, inside("other")) == inside("other")
    assert updated_group_constraint(None, inside("", "zone")) == inside("", "zone")


def test_t47_the_leader_joins_a_full_first_segment_when_the_workers_divide_evenly() -> None:
    """topo:T-47; workloads:T-92: size 5, segments of 2."""
    owner = leader_worker_set(5, 2)
    parts = leader_worker_subgroups(owner, member())
    assert drawn(parts) == "segment-0 sets 2, segment-1 2, leader in segment-0 1, workers in segment-0 2"
    assert places(owner, 5) == ["leader", "workers", "workers", "segment-1", "segment-1"]
    assert parts.min_member == 5
    assert parts.problems == ()


def test_t47_otherwise_the_leader_counts_in_the_first_segment() -> None:
    """topo:T-47: size 6, segments of 2: (0,1), (2,3), (4,5)."""
    owner = leader_worker_set(6, 2)
    parts = leader_worker_subgroups(owner, member())
    assert drawn(parts) == "segment-0 sets 2, segment-1 2, segment-2 2, leader in segment-0 1, workers in segment-0 1"
    assert places(owner, 6) == ["leader", "workers", "segment-1", "segment-1", "segment-2", "segment-2"]


def test_t46_the_last_segment_has_what_is_left() -> None:
    """topo:T-46; workloads:T-94: size 5, segments of 3."""
    parts = leader_worker_subgroups(leader_worker_set(5, 3), member())
    assert drawn(parts) == "segment-0 sets 2, segment-1 2, leader in segment-0 1, workers in segment-0 2"
    assert places(leader_worker_set(5, 3), 5) == ["leader", "workers", "workers", "segment-1", "segment-1"]


@pytest.mark.parametrize(("members", "size"), [(3, 2), (3, 3), (2, 2)])
def test_t46_a_single_segment_counts_its_leader_once(members: int, size: int) -> None:
    """topo:T-46; workloads:WK-LWS, better (a): or the workers would wait for one that never comes."""
    parts = leader_worker_subgroups(leader_worker_set(members, size), member())
    assert drawn(parts) == f"segment-0 sets 2, leader in segment-0 1, workers in segment-0 {members - 1}"


def test_t46_every_pod_is_in_a_segment_that_waits_for_exactly_its_pods() -> None:
    """topo:T-46: for all small sizes, both policies."""
    for members in range(2, 14):
        for size in range(2, members + 1):
            even = (members - 1) % size == 0
            for policy in ("LeaderWorker", "LeaderExcluded") if even else ("LeaderWorker",):
                owner = leader_worker_set(members, size, policy=policy)
                found = places(owner, members)
                groups = leader_worker_subgroups(owner, member()).sub_groups
                leaves = {each.name: each.min_member for each in groups if each.min_member is not None}
                assert leaves == {name: found.count(name) for name in found}, (members, size, policy)


def test_t46_an_excluded_leader_comes_before_the_segments() -> None:
    """topo:T-46."""
    owner = leader_worker_set(5, 2, policy="LeaderExcluded", template={TOPOLOGY: "net", REQUIRED: "rack"})
    parts = leader_worker_subgroups(owner, member())
    assert drawn(parts) == "leader 1, segment-0 2, segment-1 2"
    assert places(owner, 5) == ["leader", "segment-0", "segment-0", "segment-1", "segment-1"]
    assert set(constraints(parts)) == {"segment-0", "segment-1"}


def test_t46_an_excluded_leader_needs_workers_that_divide_evenly() -> None:
    """topo:T-46."""
    with pytest.raises(SegmentError) as caught:
        leader_worker_subgroups(leader_worker_set(4, 2, policy="LeaderExcluded"), member())
    assert str(caught.value) == (
        "LeaderWorkerSet/team/l: spec.leaderWorkerTemplate.subGroupPolicy.subGroupPolicyType: LeaderExcluded needs "
        "segments of equal size, but 3 workers are not a multiple of 2; change the size of the group or of the "
        "segments, or use LeaderWorker"
    )


def test_t46_the_leaders_set_has_the_constraint_and_its_children_have_none() -> None:
    """topo:T-46."""
    parts = leader_worker_subgroups(leader_worker_set(template={TOPOLOGY: "net", REQUIRED: "rack"}), member())
    assert constraints(parts) == dict.fromkeys(("segment-0", "segment-1"), inside("net", "rack"))


def test_t46_the_size_is_read_from_the_policy_then_the_set_then_the_template() -> None:
    """topo:T-46."""
    annotations, template = {SIZE: "3"}, {SIZE: "4"}

    def count(size: object, annotations: Raw) -> int:
        owner = leader_worker_set(13, size, annotations=annotations, template=template)
        return sum(each.name.startswith("segment-") for each in leader_worker_subgroups(owner, member()).sub_groups)

    assert (count(2, annotations), count(None, annotations), count(None, {})) == (6, 4, 3)


def test_t46_a_pod_does_not_set_the_size() -> None:
    """topo:T-46."""
    assert drawn(leader_worker_subgroups(leader_worker_set(5, None), member(**{SIZE: "2"}))) == "leader 1, workers 4"


def test_t46_without_segments_a_pod_is_the_leader_or_one_of_the_workers() -> None:
    """workloads:WK-LWS 4."""
    owner = leader_worker_set(3, None)
    assert [leader_worker_subgroups(owner, member(index)).pod_sub_group for index in ("0", "1", "9", None)] == [
        "leader",
        "workers",
        "workers",
        "workers",
    ]
    assert drawn(leader_worker_subgroups(leader_worker_set(1, None), member("0"))) == "leader 1"


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (None, "missing, so the pod belongs to no segment"),
        ("x", "expected a whole number of 0 or more, got the text 'x'"),
        ("-1", "expected a whole number of 0 or more, got the text '-1'"),
        ("5", "5 is beyond the 5 pods that the workload is divided for"),
    ],
)
def test_t46_a_pod_that_no_segment_has_is_an_error(index: str | None, said: str) -> None:
    """topo:T-46; workloads:WK-LWS, better (c)."""
    with pytest.raises(SegmentError, match=said) as caught:
        leader_worker_subgroups(leader_worker_set(5, 2), member(index))
    assert caught.value.problem.field == 'metadata.labels["leaderworkerset.sigs.k8s.io/worker-index"]'


def test_t46_more_than_ten_thousand_segments_are_an_error() -> None:
    """topo:T-46."""
    assert len(leader_worker_subgroups(leader_worker_set(20_001, 2), member()).sub_groups) == 10_002
    with pytest.raises(SegmentError, match="segmentation is 10001, more than 10000; use larger segments"):
        leader_worker_subgroups(leader_worker_set(20_002, 2), member())


def test_t46_a_leader_that_starts_before_its_workers_is_alone_until_it_has_a_node() -> None:
    """workloads:WK-LWS 2, better (b): the size is judged when there is something to divide."""
    owner = leader_worker_set(5, 2, startup="LeaderReady")
    alone = leader_worker_subgroups(owner, member("0"))
    assert (drawn(alone), alone.pod_sub_group, alone.min_member, alone.problems) == ("leader 1", "leader", 1, ())
    placed = leader_worker_subgroups(owner, member("0", node="n1"))
    assert (placed.pod_sub_group, placed.min_member, len(placed.sub_groups)) == ("leader", 5, 4)
    assert leader_worker_subgroups(leader_worker_set(5, 2), member("0")).min_member == 5


def test_t46_pods_of_a_started_group_carry_the_group_size() -> None:
    """workloads:WK-LWS 2."""
    owner = leader_worker_set(5, 2, startup="LeaderReady")
    sizes = {"7": 7, "x": 5, "0": 5}
    for text, members in sizes.items():
        found = leader_worker_subgroups(owner, member("1", **{"leaderworkerset.sigs.k8s.io/size": text}))
        assert found.min_member == members
    created = leader_worker_subgroups(leader_worker_set(5, 2), member("1", **{"leaderworkerset.sigs.k8s.io/size": "7"}))
    assert created.min_member == 5


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        (leader_worker_set(0), "LeaderWorkerSet/team/l: spec.leaderWorkerTemplate.size: expected the number of pods"),
        (leader_worker_set(None), "LeaderWorkerSet/team/l: spec.leaderWorkerTemplate.size: expected the number of"),
        (leader_worker_set(startup="Never"), 'spec.startupPolicy: unknown policy "Never"; use LeaderCreated or'),
        (leader_worker_set(policy="Odd"), 'subGroupPolicyType: unknown policy "Odd"; use LeaderWorker or'),
        (
            pytorch() | {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": "2"}}}},
            "PyTorchJob team/j: spec.pytorchReplicaSpecs['Worker'].replicas: expected a whole number of 64 bits, got "
            "the text '2'; fix the manifest",
        ),
    ],
)
def test_a_manifest_that_contradicts_itself_is_an_error_with_its_path(owner: Raw, said: str) -> None:
    with pytest.raises(SegmentError) as caught:
        subgroups_of(owner, member())
    assert said in str(caught.value)


def test_t49_the_annotation_pod_index_label_is_not_read() -> None:
    """topo:T-49."""
    key = "kai.scheduler/pod-index-label"
    each = pod(
        {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "3", "mine": "0"},
        {key: "mine"},
    )
    assert (
        pytorch_subgroups(pytorch(annotations={key: "mine"}, template={key: "mine"}), each).pod_sub_group == "worker-1"
    )
