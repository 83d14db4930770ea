"""What a queue may take on: limits and non-preemptible quota (queues:9), priorities and preemptibility (queues:6)."""

from __future__ import annotations

import pytest

from pykai.core.model.queuetree import QueueAmounts
from pykai.core.queueing.queueledger import CapacityRefusal
from pykai.core.report.decisions import NoPlace, OverCapacity
from pykai.core.report.sentences import queue_details
from tests.core.builders import Cluster, Result, cluster


def refusal_of(result: Result, group: str = "job") -> OverCapacity:
    record = result.unscheduled(group)
    assert record is not None
    (refusal,) = record.refusals
    assert isinstance(refusal, OverCapacity)
    return refusal


def running(built: Cluster, gpu: int, *, queue: str = "q", preemptible: bool = True, cpu: int = 1) -> Cluster:
    """A pod that runs already."""
    mode = "preemptible" if preemptible else "non-preemptible"
    built.group("old", queue=queue, minMember=1, preemptibility=mode)
    return built.pod("old", group="old", gpu=gpu, cpu=cpu, on="node-0")


# The cases of section 19.4


@pytest.mark.parametrize("limited", ["q", "mid", "top"])
def test_c1_a_full_limit_at_any_level_refuses_part_of_a_gpu(limited: str) -> None:
    """queues:C1."""
    limits = dict.fromkeys(("q", "mid", "top"), -1.0) | {limited: 3.0}
    built = cluster(nodes=1, gpus=8).queue("top", limit=limits["top"])
    built.queue("mid", parent="top", limit=limits["mid"]).queue("q", parent="mid", limit=limits["q"])
    result = running(built, gpu=3).gang("job", gpu_memory=500).schedule()
    assert result.bound("job") == 0
    refusal = refusal_of(result)
    assert (refusal.rule, refusal.queue, refusal.used, refusal.requested) == ("limit", limited, 3.0, 0.5)


@pytest.mark.parametrize(("preemptible", "bound"), [(False, 0), (True, 1)])
def test_c2_c3_a_quota_exceeded_at_the_top_only_binds_what_is_preemptible(preemptible: bool, bound: int) -> None:
    """queues:C2, C3."""
    built = cluster(nodes=1, gpus=8).queue("top", quota=1).queue("mid", parent="top", quota=5)
    built.queue("q", parent="mid", quota=5)
    result = built.gang("job", gpu=2, preemptible=preemptible).schedule()
    assert result.bound("job") == bound
    if not preemptible:
        assert (refusal_of(result).rule, refusal_of(result).queue) == ("quota", "top")


def test_c4_a_queue_over_its_cpu_limit_still_runs_what_needs_only_gpus() -> None:
    """queues:C4."""
    built = cluster(nodes=1, gpus=8).queue("q", cpu=(0, 1000, 1))
    result = running(built, gpu=0, cpu=2).gang("job", gpu=1, cpu=0).schedule()
    assert result.bound("job") == 1


def test_c5_exactly_the_limit_is_allowed() -> None:
    """queues:C5."""
    assert running(cluster(nodes=1, gpus=8).queue("q", limit=3), gpu=2).gang("job", gpu=1).schedule().bound("job") == 1


def test_c6_shared_devices_are_charged_by_the_memory_of_the_node() -> None:
    """queues:C6: twice 60 of 100 MiB are 1.2 GPUs, beside 0.4 that are held already."""
    built = cluster(nodes=1, gpus=4, gpu_memory=100).queue("q", quota=1)
    built.group("old", preemptibility="non-preemptible")
    built.pod("old", group="old", fraction=0.4, on="node-0", device="gpu-0")
    result = built.gang("job", gpu_memory=60, devices=2, preemptible=False).schedule()
    assert result.bound("job") == 0
    record = result.unscheduled("job")
    assert record is not None
    (refusal,) = record.refusals
    assert isinstance(refusal, NoPlace)
    assert list(refusal.nodes) == [
        "node does not have enough capacity. Reason: NonPreemptibleOverQuota, Details: Non-preemptible workload is "
        "over quota. Workload requested 1.2 GPUs, but q quota is 1 GPUs, while 0.4 GPUs are already allocated for "
        "non-preemptible pods. Use a preemptible workload to go over quota."
    ]


def test_c7_a_pod_larger_than_the_limit_is_refused() -> None:
    """queues:C7."""
    assert cluster(nodes=1, gpus=8).queue("q", limit=1).gang("job", gpu=2).schedule().bound("job") == 0


def test_c8_a_limit_that_is_not_set_lets_nothing_run() -> None:
    """queues:Q-15, C8."""
    built = cluster(nodes=1, gpus=8).add(
        {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": "q"},
            "spec": {"resources": {"gpu": {"quota": -1, "limit": -1, "overQuotaWeight": 1}}},
        }
    )
    refusal = refusal_of(built.gang("job", gpu=1, cpu=1).schedule())
    assert (refusal.rule, refusal.resource, refusal.bound) == ("limit", "CPU", 0.0)


# queues: the two checks


def ask(built: Cluster, amounts: QueueAmounts, *, committed: bool = False) -> CapacityRefusal | None:
    cycle = built.cycle()
    tree = cycle.context.snapshot.tree
    return cycle.state.ledger.check_capacity(tree.chains[tree.rows["q"]], amounts, committed)


def test_q200_the_limit_is_checked_before_the_quota() -> None:
    built = cluster(nodes=1, gpus=8).queue("top").queue("q", parent="top", quota=1, limit=1)
    found = ask(built, (0, 0, 200), committed=True)
    assert found is not None
    assert found.rule == "limit"


def test_q200_the_leaf_is_checked_before_its_ancestors() -> None:
    built = cluster(nodes=1, gpus=8).queue("top", limit=1).queue("q", parent="top", limit=2)
    found = ask(built, (0, 0, 300))
    assert found is not None
    assert built.tables().snapshot(0).tree.names[found.queue] == "q"


def test_q200_cpu_is_checked_before_memory_and_memory_before_gpu() -> None:
    built = cluster(nodes=1, gpus=8).queue("q", cpu=(0, 1000, 1), memory=(0, 1, 1), limit=1)
    for amounts, expected in (((2000, 2e6, 200), 0), ((1000, 2e6, 200), 1), ((1000, 1e6, 200), 2)):
        found = ask(built, amounts)
        assert found is not None
        assert (found.rule, found.resource) == ("limit", expected)
    assert ask(built, (1000, 1e6, 100)) is None


def test_q200_cpu_quota_is_checked_before_memory_and_gpu_quota() -> None:
    built = cluster(nodes=1, gpus=8).queue("q", cpu=(1000, -1, 1), memory=(1, -1, 1), quota=1)
    for amounts, expected in (((2000, 2e6, 200), 0), ((1000, 2e6, 200), 1), ((1000, 1e6, 200), 2)):
        found = ask(built, amounts, committed=True)
        assert found is not None
        assert (found.rule, found.resource) == ("quota", expected)


def test_q200_a_limit_holds_for_preemptible_and_non_preemptible_work() -> None:
    for preemptible in (True, False):
        result = cluster(nodes=1, gpus=8).queue("q", limit=1).gang("job", gpu=2, preemptible=preemptible).schedule()
        assert refusal_of(result).rule == "limit"


def test_q200_the_quota_counts_only_non_preemptible_work() -> None:
    """Two GPUs of the quota are used by preemptible work."""
    built = running(cluster(nodes=1, gpus=8).queue("q", quota=2), gpu=2)
    assert built.gang("job", gpu=2, preemptible=False).schedule().bound("job") == 1


def test_q200_the_quota_counts_non_preemptible_work_that_runs() -> None:
    built = running(cluster(nodes=1, gpus=8).queue("q", quota=2), gpu=1, preemptible=False)
    refusal = refusal_of(built.gang("job", gpu=2, preemptible=False).schedule())
    assert (refusal.rule, refusal.bound, refusal.used, refusal.requested) == ("quota", 2.0, 1.0, 2.0)


def test_q200_what_was_bound_in_this_cycle_counts_too() -> None:
    built = cluster(nodes=1, gpus=8).queue("q", limit=3)
    for index in range(3):
        built.gang(f"job{index}", gpu=2)
    result = built.schedule()
    assert [result.bound(f"job{index}") for index in range(3)] == [1, 0, 0]


def test_q200_pods_pipelined_in_this_cycle_count_too() -> None:
    built = cluster(nodes=1, gpus=4).queue("q", limit=2).queue("other")
    built.group("leaving", queue="other").pod("leaving", group="leaving", gpu=4, on="node-0", deleted=1)
    result = built.gang("first", gpu=2).gang("second", gpu=2).schedule()
    assert (result.pipelined("first"), result.pipelined("second")) == (1, 0)
    assert refusal_of(result, "second").rule == "limit"


def test_q201_a_resource_that_is_not_requested_never_blocks() -> None:
    """The queue is over its CPU quota and over its CPU limit, at every level."""
    built = cluster(nodes=1, gpus=8).queue("top", cpu=(0, 0, 1)).queue("q", parent="top", cpu=(0, 0, 1))
    result = running(built, gpu=0, cpu=2, preemptible=False).gang("job", gpu=1, cpu=0, preemptible=False).schedule()
    assert result.bound("job") == 1


def test_q201_a_requested_resource_blocks() -> None:
    built = cluster(nodes=1, gpus=8).queue("q", memory=(0, 1000, 1))
    refusal = refusal_of(built.gang("job", gpu=1, memory="2G").schedule())
    assert (refusal.rule, refusal.resource, refusal.bound, refusal.requested) == ("limit", "Memory", 1e9, 2e9)


# queues: the check of a job


def test_q202_the_missing_minimum_is_checked_as_a_sum() -> None:
    built = cluster(nodes=1, gpus=8).queue("q", limit=3)
    assert refusal_of(built.gang("job", 2, gpu=2).schedule()).requested == 4.0


def test_q202_beyond_the_minimum_one_pod_is_checked() -> None:
    assert cluster(nodes=1, gpus=8).queue("q", limit=3).gang("job", 4, min=2, gpu=1).schedule().bound("job") == 3


def test_q202_gpu_memory_is_converted_with_the_largest_gpu() -> None:
    built = cluster().node(gpus=1, gpu_memory=1000).node(gpus=1, gpu_memory=4000).queue("q", limit=0.1)
    assert refusal_of(built.gang("job", gpu_memory=1000).schedule()).requested == 0.25


def test_q202_gpu_memory_counts_every_device() -> None:
    built = cluster().node(gpus=4, gpu_memory=4000).queue("q", limit=0.1)
    assert refusal_of(built.gang("job", gpu_memory=1000, devices=3).schedule()).requested == 0.75


def test_q203_the_refusal_is_recorded_once_and_the_job_is_not_tried_further() -> None:
    result = cluster(nodes=1, gpus=8).queue("q", limit=1).gang("job", 3, min=1, gpu=1).schedule()
    assert result.bound("job") == 1
    assert refusal_of(result).used == 1.0
    assert result.plan.work == 1


# queues:Q-205: the check of a node


def test_q205_a_shared_request_is_kept_off_nodes_where_it_costs_too_much() -> None:
    built = cluster().node("a", gpus=1, gpu_memory=1000).node("b", gpus=1, gpu_memory=2000).queue("q", limit=0.5)
    assert built.gang("job", gpu_memory=800).schedule().node_of("job-0") == "b"


def test_q205_the_memory_is_rounded_up_to_hundredths() -> None:
    """335 of 1000 MiB are 0.34 GPUs."""
    built = cluster().node("a", gpus=1, gpu_memory=1000).node("large", gpus=1, gpu_memory=4000, unschedulable=True)
    refused = built.queue("q", limit=0.335).gang("job", gpu_memory=335).schedule()
    assert "currently 0 GPUs allocated and workload requested 0.34 GPUs" in refused.why("job")
    built = cluster().node("a", gpus=1, gpu_memory=1000).queue("q", limit=0.34)
    assert built.gang("job", gpu_memory=335).schedule().bound("job") == 1


def test_q205_tasks_of_a_gang_are_added_up_node_by_node() -> None:
    """Each half GPU is within the limit and both are not; the large GPU would make them an eighth each."""
    built = cluster().node("a", gpus=2, gpu_memory=1000).node("large", gpus=1, gpu_memory=4000, unschedulable=True)
    result = built.queue("q", limit=0.9).gang("job", 2, gpu_memory=500).schedule()
    assert result.bound("job") == 0
    assert "Resources were found for 1 pods while 2 are required" in result.why("job")


def test_q205_the_quota_is_checked_after_the_limit() -> None:
    built = cluster().node("a", gpus=1, gpu_memory=1000).node("large", gpus=1, gpu_memory=4000, unschedulable=True)
    built.queue("q", quota=0.2, limit=0.3)
    assert "Reason: OverLimit" in built.gang("job", gpu_memory=500, preemptible=False).schedule().why("job")
    built = cluster().node("a", gpus=1, gpu_memory=1000).node("large", gpus=1, gpu_memory=4000, unschedulable=True)
    built.queue("q", quota=0.2)
    why = built.gang("job", gpu_memory=500, preemptible=False).schedule().why("job")
    assert "Reason: NonPreemptibleOverQuota" in why


def test_q205_the_refusal_of_one_queue_does_not_bind_another() -> None:
    """Equal pods of two queues, tried one after the other: the limit of one does not bind the other."""
    built = cluster().node("a", gpus=2, gpu_memory=1000).node("large", gpus=1, gpu_memory=4000, unschedulable=True)
    built.queue("poor", limit=0.2, priority=200).queue("rich", limit=2)
    result = built.gang("p", queue="poor", gpu_memory=500).gang("r", queue="rich", gpu_memory=500).schedule()
    assert (result.bound("p"), result.bound("r")) == (0, 1)


# queues: the messages users see


def test_q206_the_reasons_are_over_limit_and_non_preemptible_over_quota() -> None:
    limited = cluster(nodes=1, gpus=8).queue("q", limit=1).gang("job", gpu=2).schedule()
    assert limited.why("job").partition(":")[0] == "OverLimit"
    over = cluster(nodes=1, gpus=8).queue("q", quota=1).gang("job", gpu=2, preemptible=False).schedule()
    assert over.why("job").partition(":")[0] == "NonPreemptibleOverQuota"


def details(result: Result) -> dict[str, object]:
    refusal = refusal_of(result)
    (figures,) = (queue for queue in result.plan.queues if queue.name == refusal.queue)
    return queue_details(refusal, figures)


def test_q207_the_details_name_the_queue_that_refused_and_its_figures() -> None:
    built = cluster(nodes=1, gpus=8).queue("top", quota=2.5, limit=3, cpu=(1500, -1, 1), memory=(-1, 5000, 1))
    built.queue("q", parent="top")
    built.group("old", preemptibility="non-preemptible").pod("half", group="old", fraction=0.5, on="node-0", device="d")
    result = built.gang("job", gpu=3, cpu="250m", memory="1G", preemptible=False).schedule()
    assert details(result) == {
        "name": "top",
        "queueRequestedResources": {"cpu": "1250m", "memory": str(2**30 + 10**9), "nvidia.com/gpu": "3500m"},
        "queueDeservedResources": {"cpu": "1500m", "nvidia.com/gpu": "2500m"},
        "queueAllocatedResources": {"cpu": "1", "memory": str(2**30), "nvidia.com/gpu": "500m"},
        "queueAllocatedNonPreemptibleResources": {"cpu": "1", "memory": str(2**30), "nvidia.com/gpu": "500m"},
        "queueResourceLimits": {"memory": "5000000000", "nvidia.com/gpu": "3"},
        "podGroupRequestedResources": {"cpu": "250m", "memory": "1000000000", "nvidia.com/gpu": "3"},
        "podGroupRequestedNonPreemptibleResources": {"cpu": "250m", "memory": "1000000000", "nvidia.com/gpu": "3"},
    }


def test_q207_a_preemptible_group_requests_nothing_non_preemptible() -> None:
    found = details(cluster(nodes=1, gpus=8).queue("q", limit=1).gang("job", gpu=2).schedule())
    assert found["podGroupRequestedNonPreemptibleResources"] == {"cpu": "0", "memory": "0", "nvidia.com/gpu": "0"}


def test_q208_the_name_shown_is_the_display_name() -> None:
    result = cluster(nodes=1, gpus=8).queue("q", limit=1, display_name="Team Q").gang("job", gpu=2).schedule()
    assert result.why("job") == (
        "OverLimit: Team Q quota has reached the allowable limit of GPUs. Limit is 1 GPUs, currently 0 GPUs allocated "
        "and workload requested 2 GPUs."
    )


def test_q208_cpu_and_memory_have_their_own_words() -> None:
    cpu = cluster(nodes=1).queue("q", cpu=(0, 1500, 1)).gang("job", cpu=2).schedule()
    assert cpu.why("job") == (
        "OverLimit: q quota has reached the allowable limit of CPU cores. Limit is 1.5 cores, currently 0 cores "
        "allocated and workload requested 2 cores."
    )
    memory = cluster(nodes=1).queue("q", memory=(500, -1, 1)).gang("job", memory="2G", preemptible=False).schedule()
    assert memory.why("job") == (
        "NonPreemptibleOverQuota: Non-preemptible workload is over quota. Workload requested 2 GB memory, but q quota "
        "is 0.5 GB, while 0 GB are already allocated for non-preemptible pods. "
        "Use a preemptible workload to go over quota.."
    )


# queues:Q-210: the whole subtree


def two_children(quota: float = -1, limit: float = -1) -> Cluster:
    built = cluster(nodes=1, gpus=8).queue("parent", quota=quota, limit=limit)
    return built.queue("q1", parent="parent", quota=4).queue("q2", parent="parent", quota=4)


def test_q210_the_limit_of_a_parent_caps_its_children_together() -> None:
    built = two_children(limit=3).gang("a", queue="q1", gpu=2).gang("b", queue="q2", gpu=2)
    result = built.schedule()
    assert (result.bound("a"), result.bound("b")) == (1, 0)


def test_q210_the_quota_of_a_parent_caps_the_non_preemptible_work_below_it() -> None:
    """The quotas of the children add up to more."""
    built = two_children(quota=3).gang("a", queue="q1", gpu=2, preemptible=False)
    result = built.gang("b", queue="q2", gpu=2, preemptible=False).gang("c", queue="q2", gpu=2).schedule()
    assert (result.bound("a"), result.bound("b"), result.bound("c")) == (1, 0, 1)
    assert refusal_of(result, "b").queue == "parent"


# queues: priority and preemptibility


def facts(built: Cluster, group: str = "job") -> tuple[int, bool]:
    """Priority of a group and whether it is preemptible."""
    snapshot = built.tables().snapshot(0)
    found = snapshot.group_entries[f"default/{group}"].group
    assert found is not None
    priority = snapshot.priority_of(found)
    return priority, snapshot.is_preemptible(found, priority)


def test_q80_the_priority_is_that_of_the_class_the_group_names() -> None:
    built = cluster().priority_class("build", 100).priority_class("other", 7, default=True)
    assert facts(built.gang("job", priority="build", preemptible=None))[0] == 100


@pytest.mark.parametrize("named", ["", "unknown"])
def test_q80_without_a_known_class_the_global_default_decides(named: str) -> None:
    built = cluster().priority_class("build", 100).priority_class("usual", 70, default=True)
    assert facts(built.gang("job", priority=named, preemptible=None))[0] == 70


@pytest.mark.parametrize("named", ["", "unknown"])
def test_q80_without_any_class_the_priority_is_50(named: str) -> None:
    assert facts(cluster().gang("job", priority=named, preemptible=None))[0] == 50


def test_q80_of_several_global_defaults_the_first_by_name_counts() -> None:
    built = cluster().priority_class("b", 20, default=True).priority_class("a", 10, default=True)
    assert facts(built.gang("job", preemptible=None))[0] == 10


@pytest.mark.parametrize(("value", "preemptible"), [(99, True), (100, False), (125, False)])
def test_q81_below_100_a_group_is_preemptible(value: int, preemptible: bool) -> None:
    built = cluster().priority_class("some", value).gang("job", priority="some", preemptible=None)
    assert facts(built) == (value, preemptible)


@pytest.mark.parametrize(("said", "value"), [(True, 125), (False, 50)])
def test_q81_the_preemptibility_of_the_group_wins(said: bool, value: int) -> None:
    built = cluster().priority_class("some", value).gang("job", priority="some", preemptible=said)
    assert facts(built) == (value, said)


@pytest.mark.parametrize(("value", "bound"), [(75, 1), (100, 0)])
def test_q82_only_preemptible_groups_may_go_over_quota(value: int, bound: int) -> None:
    built = cluster(nodes=1, gpus=4).queue("q", quota=1).priority_class("some", value)
    assert built.gang("job", gpu=2, priority="some", preemptible=None).schedule().bound("job") == bound


def test_q85_non_preemptible_work_stays_within_the_quota_of_every_level() -> None:
    for level in ("q", "mid", "top"):
        quotas = dict.fromkeys(("q", "mid", "top"), 4.0) | {level: 1.0}
        built = cluster(nodes=1, gpus=4).queue("top", quota=quotas["top"])
        built.queue("mid", parent="top", quota=quotas["mid"]).queue("q", parent="mid", quota=quotas["q"])
        result = built.gang("job", gpu=2, preemptible=False).schedule()
        assert refusal_of(result).queue == level


def test_q85_preemptible_work_may_go_up_to_the_limit() -> None:
    result = cluster(nodes=1, gpus=4).queue("q", quota=1, limit=3).gang("job", 4, min=1, gpu=1).schedule()
    assert result.bound("job") == 3


def test_q86_the_priority_of_a_group_counts_only_inside_its_queue() -> None:
    """Queue a is older and is served first, although the group of b has the higher priority."""
    built = cluster(nodes=1, gpus=1).priority_class("high", 90).priority_class("low", 10)
    built.queue("a").queue("b").gang("in-a", queue="a", gpu=1, priority="low")
    assert built.gang("in-b", queue="b", gpu=1, priority="high").schedule().order() == ["in-a"]
    built = cluster(nodes=1, gpus=1).priority_class("high", 90).priority_class("low", 10).queue("a")
    built.gang("first", queue="a", gpu=1, priority="low").gang("second", queue="a", gpu=1, priority="high")
    assert built.schedule().order() == ["second"]


def test_q86_the_priority_of_a_queue_counts_only_between_queues() -> None:
    built = cluster(nodes=1, gpus=1).queue("a", priority=1).queue("b", priority=2)
    assert built.gang("in-a", queue="a", gpu=1).gang("in-b", queue="b", gpu=1).schedule().order() == ["in-b"]
