"""A bad object does not stop the scheduling of other work, and is reported."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.decode import DecodeError
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import Queue, QueueResource, QueueResources, QueueSpec
from pykai.core.report.decisions import BrokenTree, NoQueue, OrphanPod, StrayPod
from pykai.core.schedule import schedule
from tests.core.builders import NOW_NS, Cluster, Raw, Result, cluster


def healthy() -> Cluster:
    """A cluster with a queue `good` and a gang `fine` that always fits."""
    return cluster(nodes=2, gpus=4).queue("good").gang("fine", 2, queue="good", gpu=2)


def still_fine(built: Cluster) -> Result:
    """Run a cycle and check that the healthy gang was bound."""
    result = built.schedule()
    assert result.bound("fine") == 2
    assert result.why("fine") == ""
    return result


def problem_about(result: Result, subject: str) -> str:
    (found,) = (problem for problem in result.plan.problems if problem.startswith(f"{subject}:"))
    return found


# Queues


def test_queues_that_are_their_own_ancestors_are_left_out() -> None:
    built = healthy().queue("a", parent="c").queue("b", parent="a").queue("c", parent="b").gang("stuck", queue="b")
    result = still_fine(built)
    fault = "the parents form a cycle, a -> c -> b -> a"
    assert result.why("stuck") == f"QueueDoesNotExist: Queue 'b' cannot be used: {fault}."
    for name in "abc":
        assert "the parents form a cycle, a -> c -> b -> a" in problem_about(result, f"Queue/{name}")


def test_a_queue_that_is_its_own_parent_is_left_out() -> None:
    result = still_fine(healthy().queue("self", parent="self").gang("stuck", queue="self"))
    assert result.unscheduled("stuck") is not None
    assert result.bound("stuck") == 0


def test_a_queue_without_its_parent_is_left_out_with_everything_below_it() -> None:
    built = healthy().queue("lost", parent="gone").queue("below", parent="lost").gang("stuck", queue="below")
    result = still_fine(built)
    record = result.unscheduled("stuck")
    assert record is not None
    assert record.refusals == (NoQueue("below", "queue 'lost' has the parent 'gone', which does not exist"),)
    assert "'gone', which does not exist" in problem_about(result, "Queue/below")


@pytest.mark.parametrize("field", ["quota", "limit", "weight"])
def test_a_negative_number_counts_as_zero(field: str) -> None:
    numbers: dict[str, Any] = {field: -7}
    result = still_fine(healthy().queue("q", **numbers))
    assert "it counts as 0" in problem_about(result, "Queue/q")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_a_number_is_rejected_when_decoded(bad: float) -> None:
    with pytest.raises(DecodeError, match=r"spec\.resources\.gpu\.overQuotaWeight"):
        healthy().queue("q", weight=bad).schedule()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_nan_in_an_object_counts_as_zero(bad: float) -> None:
    built = healthy().gang("other", queue="q", gpu=1)
    tables = built.tables()
    numbers = QueueResource(quota=bad, limit=bad, over_quota_weight=bad)
    spec = QueueSpec(resources=QueueResources(gpu=numbers, cpu=numbers, memory=numbers))
    tables.apply(Queue(metadata=ObjectMeta(name="q"), spec=spec))
    plan = schedule(tables.snapshot(NOW_NS), built.policy())
    assert sorted(bind.pod for bind in plan.binds) == ["fine-0", "fine-1"]
    assert len(plan.problems) == 9
    (figures,) = (queue for queue in plan.queues if queue.name == "q")
    assert figures.limit == figures.quota == figures.fair_share == (0, 0, 0)


def test_a_queue_without_resources_may_run_nothing() -> None:
    bare: Raw = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "bare"}}
    result = still_fine(healthy().add(bare).gang("stuck", queue="bare", cpu=1))
    assert result.why("stuck").startswith("OverLimit: bare quota has reached the allowable limit of CPU cores.")


def test_a_group_in_a_queue_that_does_not_exist_waits() -> None:
    result = still_fine(healthy().gang("stuck", queue="gone"))
    assert result.why("stuck") == "QueueDoesNotExist: Queue 'gone' does not exist."


def test_a_group_that_names_no_queue_waits() -> None:
    result = still_fine(healthy().gang("stuck", queue=""))
    assert result.why("stuck") == "QueueDoesNotExist: Queue '' does not exist."


def test_a_group_in_an_inner_queue_waits() -> None:
    built = healthy().queue("inner").queue("below", parent="inner").gang("stuck", queue="inner")
    assert "'inner' is not a leaf queue" in still_fine(built).why("stuck")


def test_a_running_group_whose_queue_is_gone_is_harmless() -> None:
    """queues:5, Do better: the ledgers tolerate a missing queue."""
    built = healthy().group("old", queue="gone").pod("old", group="old", gpu=1, on="node-0").pod("new", group="old")
    assert still_fine(built).bound("old") == 0


def test_without_queues_every_group_waits() -> None:
    result = cluster(nodes=1).gang("stuck").schedule()
    assert result.plan.queues == ()
    assert result.why("stuck") == "QueueDoesNotExist: Queue 'q' does not exist."


# Groups


def test_a_pod_without_a_group_waits_by_itself() -> None:
    result = still_fine(healthy().pod("alone"))
    assert result.plan.orphans == (OrphanPod("default", "alone", ""),)


def test_a_pod_whose_group_does_not_exist_waits_by_itself() -> None:
    result = still_fine(healthy().pod("alone", group="gone"))
    assert result.plan.orphans == (OrphanPod("default", "alone", "gone"),)


def test_groups_of_one_name_in_two_namespaces_are_two_groups() -> None:
    """cycle:1, Do better: a pod joins the group of its own namespace only."""
    built = healthy().queue("q").gang("job", 2, namespace="x", gpu=1).gang("job", 1, min=2, namespace="y", gpu=1)
    result = still_fine(built)
    assert result.bound("job", "x") == 2
    assert result.bound("job", "y") == 0
    assert result.why("job", "y").endswith("Waiting for 2 pods, currently 1 exist, 0 are gated")


def test_a_pod_does_not_join_a_group_of_another_namespace() -> None:
    built = healthy().queue("q").gang("job", 1, min=2, namespace="x", gpu=1).pod("job-1", group="job", namespace="y")
    result = still_fine(built)
    assert result.bound("job", "x") == 0
    assert result.plan.orphans == (OrphanPod("y", "job-1", "job"),)


@pytest.mark.parametrize(
    "parts",
    [
        [{"name": "a"}, {"name": "a"}],
        [{"name": "a", "parent": "gone"}],
        [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}],
        [{"name": "a", "parent": "a"}],
        [{"name": ""}],
        [{"name": f"s{index}", "parent": f"s{index - 1}" if index else ""} for index in range(60)],
    ],
    ids=["twice", "missing parent", "cycle", "self", "nameless", "deep"],
)
def test_a_group_with_an_invalid_subgroup_tree_waits(parts: list[Raw]) -> None:
    built = healthy().queue("q").group("broken", subGroups=parts).pod("p", group="broken", subgroup="a")
    result = still_fine(built.pod("plain", group="broken"))
    assert result.bound("broken") == 0
    record = result.unscheduled("broken")
    assert record is not None
    assert any(isinstance(refusal, BrokenTree) for refusal in record.refusals)
    assert "The subgroups of the PodGroup are invalid: " in result.why("broken")
    assert "spec.subGroups" in problem_about(result, "PodGroup/default/broken")


def test_a_pod_of_a_subgroup_that_does_not_exist_waits_and_its_group_runs() -> None:
    """cycle:PG-4"""
    built = healthy().queue("q").gang("job", 2, gpu=1).pod("lost", group="job", subgroup="typo", gpu=1)
    result = still_fine(built)
    assert result.bound_pods("job") == ["job-0", "job-1"]
    record = result.unscheduled("job")
    assert record is not None
    assert record.pending == 1
    assert record.refusals == (StrayPod("default/lost", "typo", "default/job"),)


def test_a_pod_of_a_missing_subgroup_does_not_count_towards_the_minimum() -> None:
    built = healthy().queue("q").gang("job", 1, min=2, gpu=1).pod("lost", group="job", subgroup="typo", gpu=1)
    assert still_fine(built).bound("job") == 0


def test_an_orphan_of_another_scheduler_is_not_reported() -> None:
    built = healthy().queue("q").gang("job", 2, gpu=9).pod("a", group="job", subgroup="typo")
    record = still_fine(built.pod("b", group="job", subgroup="typo", scheduler="default-scheduler")).unscheduled("job")
    assert record is not None
    assert record.pending == 3
    assert [refusal.pod for refusal in record.refusals if isinstance(refusal, StrayPod)] == ["default/a"]


def test_a_negative_minimum_counts_as_none() -> None:
    result = still_fine(healthy().queue("q").gang("job", 2, min=-5, gpu=1))
    assert result.bound("job") == 2


@pytest.mark.parametrize("field", ["preemptionDelay", "stalenessGracePeriod"])
def test_a_duration_that_cannot_be_read_counts_as_absent(field: str) -> None:
    result = still_fine(healthy().queue("q").gang("job", gpu=1, group_spec={field: "soon"}))
    assert result.bound("job") == 1
    assert f"spec.{field}" in problem_about(result, "PodGroup/default/job")


# Quantities


@pytest.mark.parametrize("absurd", ["1e30", "999999999999999999999Ei", str(2**62), str(2**63), str(2**64)])
@pytest.mark.parametrize("resource", ["cpu", "memory", "gpu"])
def test_an_absurd_request_waits_and_the_reason_names_the_largest_node(resource: str, absurd: str) -> None:
    asks: dict[str, Any] = {resource: absurd}
    result = still_fine(healthy().queue("q").gang("mad", 3, **asks))
    assert result.bound("mad") == 0
    assert "MaxNodePoolResources: " in result.why("mad")


@pytest.mark.parametrize("pods", [1, 2, 3, 4, 50])
def test_absurd_pods_that_run_do_not_make_their_node_look_free(pods: int) -> None:
    """Sums must not wrap around: the node stays full however many such pods it has."""
    built = cluster(nodes=2, gpus=4).queue("good").queue("q")
    for index in range(pods):
        built.group(f"mad-{index}").pod(f"mad-{index}", group=f"mad-{index}", cpu="1e30", memory="1e30", on="node-0")
    result = still_fine(built.gang("fine", 2, queue="good", gpu=2))
    assert result.nodes_used("fine") == {"node-1": 2}


def test_absurd_node_amounts_are_clamped() -> None:
    slices = {"nvidia.com/mig-7g.80gb": "1e30", "nvidia.com/mig-999g.5gb": "1e30"}
    built = healthy().node("mad", gpus=10**30, cpu="1e30", memory="1e30", extra=slices)
    result = still_fine(built)
    assert all(figure >= 0 for queue in result.plan.queues for figure in queue.fair_share)
    assert built.cycle().state.ledger.total[2] > 2**53


@pytest.mark.parametrize("bad", ["abc", "", "1.2.3", "5 Gi", "0x10"])
def test_a_request_that_cannot_be_read_is_never_placed(bad: str) -> None:
    result = still_fine(healthy().queue("q").gang("stuck", memory=bad))
    assert result.bound("stuck") == 0
    assert "cannot be read" in result.why("stuck")
    assert "spec.containers[0].resources.requests.memory" in problem_about(result, "Pod/default/stuck-0")


def test_a_negative_request_counts_as_zero() -> None:
    built = healthy().queue("q").gang("job", cpu=-5)
    assert still_fine(built).bound("job") == 1
    assert all(figure >= 0 for queue in built.schedule().plan.queues for figure in queue.allocated)


def test_an_amount_of_a_node_that_cannot_be_read_counts_as_absent() -> None:
    result = still_fine(healthy().node("odd", gpus=4, cpu="many"))
    assert "status.allocatable[cpu]" in problem_about(result, "Node/odd")


@pytest.mark.parametrize("annotation", ["gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"])
@pytest.mark.parametrize("value", ["", "x", "-1", "0", "nan", "inf", "1e9", "999999999999999999999"])
def test_a_malformed_gpu_annotation_is_harmless(annotation: str, value: str) -> None:
    built = healthy().queue("q").gang("odd", annotations={annotation: value})
    built.group("old").pod("old", group="old", annotations={annotation: value}, on="node-1", device="gpu-0")
    still_fine(built)


# Nothing there


def test_an_empty_cluster_gives_an_empty_plan() -> None:
    plan = cluster().schedule().plan
    assert (plan.binds, plan.nominations, plan.unscheduled, plan.orphans, plan.queues, plan.problems) == ((),) * 6


def test_without_nodes_every_group_waits_with_a_reason() -> None:
    result = cluster().queue("q").gang("job", 2, gpu=1).gang("part", fraction=0.5).gang("plain").schedule()
    assert result.plan.binds == ()
    for group in ("job", "part", "plain"):
        assert "No node in the default node-pool has " in result.why(group)


def test_without_nodes_a_pod_without_requests_waits_too() -> None:
    result = cluster().queue("q").gang("job", cpu=0, memory=0).schedule()
    assert result.why("job") == (
        "PodSchedulingErrors: Resources were not found for pod default/job-0 due to: "
        "no nodes with enough resources were found."
    )


def test_a_group_without_pods_is_not_reported() -> None:
    assert still_fine(healthy().group("empty", queue="good")).plan.unscheduled == ()


def test_a_pod_on_an_unknown_node_is_harmless() -> None:
    built = healthy().group("old", queue="good").pod("old", group="old", gpu=1, on="gone")
    result = still_fine(built.pod("next", group="old", gpu=1))
    assert result.bound("old") == 1


def test_every_mistake_at_once() -> None:
    built = healthy().queue("a", parent="b").queue("b", parent="a").queue("q", weight=-1).queue("lost", parent="gone")
    built.gang("g1", queue="a").gang("g2", queue="lost").gang("g3", cpu="x").gang("g4", cpu="1e30").pod("alone")
    built.group("g5", subGroups=[{"name": "a", "parent": "a"}]).pod("p5", group="g5", subgroup="a")
    built.node("odd", cpu="many", gpu_memory=None).gang("g6", gpu_memory=10**9).gang("g7", fraction=0.5, devices=99)
    result = still_fine(built)
    assert {bind.group for bind in result.plan.binds} == {"default/fine"}
    assert len(result.plan.unscheduled) == 7
