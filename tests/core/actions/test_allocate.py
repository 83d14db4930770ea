"""Allocate: which pending pods get which free resources, all or nothing (cycle:12), and the cases cycle:T-1 to T-15."""

from __future__ import annotations

import pytest

from pykai.core.model.status import TaskStatus
from pykai.core.plugins.scores import GpuSpread
from pykai.core.policy import NamedPlugin
from pykai.core.report.decisions import NoPlace, OverCapacity
from tests.core.builders import Cluster, branch, cluster, leaf

SHORT_OF_GPUS = "1 node(s) didn't have enough resources: GPUs."


def with_leaving_pod(built: Cluster, *, gpu: int, node: str = "node-0", gone_s: float = 10) -> Cluster:
    """A terminating pod, `gone_s` seconds after its grace period."""
    return built.group("leaving").pod("leaving", group="leaving", gpu=gpu, on=node, deleted=gone_s)


# The cases of section 23


def test_t1_every_pod_that_fits_is_bound() -> None:
    result = cluster(nodes=1, gpus=2).queue("q").gang("job", 2, min=1, gpu=1).schedule()
    assert result.bound_pods("job") == ["job-0", "job-1"]
    assert result.why("job") == ""


def test_t2_when_one_fits_the_first_by_order_is_bound() -> None:
    result = cluster(nodes=1, gpus=1).queue("q").gang("job", 2, min=1, gpu=1).schedule()
    assert result.bound_pods("job") == ["job-0"]
    waiting = result.unscheduled("job")
    assert waiting is not None
    assert waiting.pending == 1


def test_t3_the_pod_of_higher_task_priority_is_bound() -> None:
    built = cluster(nodes=1, gpus=1).queue("q").group("job", minMember=1)
    for number in ("1", "2"):
        built.pod(f"job-{number}", group="job", gpu=1, labels={"kai.scheduler/task-priority": number})
    assert built.schedule().bound_pods("job") == ["job-2"]


def test_t4_elastic_groups_of_one_age_take_turns() -> None:
    built = cluster(nodes=1, gpus=5).queue("q")
    for name in ("a", "b"):
        built.gang(name, 3, min=1, gpu=1, age=100)
    result = built.schedule()
    assert (result.bound("a"), result.bound("b")) == (3, 2)
    assert [bind.group for bind in result.plan.binds] == [f"default/{name}" for name in "ababa"]


def test_t5_half_a_gang_is_never_bound() -> None:
    result = cluster(nodes=1, gpus=2).queue("q", quota=4).gang("job", 2, gpu=2, preemptible=False).schedule()
    assert result.plan.binds == ()
    assert result.plan.nominations == ()


def test_t6_a_non_preemptible_gang_above_the_quota_waits() -> None:
    result = cluster(nodes=1, gpus=10).queue("q", quota=3).gang("job", 2, gpu=2, preemptible=False).schedule()
    assert result.bound("job") == 0
    assert result.why("job").startswith("NonPreemptibleOverQuota: ")


def test_t7_a_gang_that_needs_resources_still_being_released_is_pipelined_as_a_whole() -> None:
    result = with_leaving_pod(cluster(nodes=1, gpus=4).queue("q"), gpu=1).gang("job", 2, gpu=2).schedule()
    assert result.plan.binds == ()
    assert result.nodes_used("job") == {"node-0": 2}
    assert result.pipelined("job") == 2
    assert result.why("job") == ""


def test_t8_a_pod_waits_for_a_terminating_pod_but_not_for_a_stuck_one() -> None:
    leaving = with_leaving_pod(cluster(nodes=1, gpus=1).queue("q"), gpu=1).gang("job", gpu=1).schedule()
    assert leaving.pipelined("job") == 1
    stuck = with_leaving_pod(cluster(nodes=1, gpus=1).queue("q"), gpu=1, gone_s=121).gang("job", gpu=1).schedule()
    assert stuck.pipelined("job") == 0
    assert stuck.why("job").endswith(f"{SHORT_OF_GPUS}.")


def test_t9_a_group_that_already_runs_is_not_started_again() -> None:
    built = cluster(nodes=1, gpus=2).queue("q").group("job", minMember=1).pod("job-0", group="job", gpu=1, on="node-0")
    result = built.pod("job-1", group="job", gpu=1).schedule()
    assert result.bound("job") == 1
    assert result.plan.started == ()


def test_t10_a_missing_minimum_goes_before_an_extra_pod() -> None:
    result = (
        cluster(nodes=1, gpus=4)
        .queue("q")
        .tree("job", leaf("a", 2, running=2, pending=1), leaf("b", 2, pending=2), gpu=1)
        .schedule()
    )
    assert result.bound_pods("job") == ["job-b-0", "job-b-1"]


def test_t11_all_subgroups_fit_or_none_is_bound() -> None:
    result = (
        cluster(nodes=1, gpus=4)
        .queue("q")
        .tree("job", leaf("sub0", 1, pending=2, gpu=3), leaf("sub1", 2, pending=2, gpu=1))
        .schedule()
    )
    assert result.plan.binds == ()


def test_t12_nested_subgroups_are_bound_together() -> None:
    result = (
        cluster(nodes=1, gpus=8)
        .queue("q")
        .tree(
            "job",
            branch("ab", leaf("a", 2, pending=2, gpu=1), leaf("b", 2, pending=2, gpu=1)),
            leaf("c", 1, pending=1, gpu=4),
        )
        .schedule()
    )
    assert result.bound("job") == 5


def test_t13_one_of_two_subgroups_is_enough_with_min_sub_group_one() -> None:
    result = (
        cluster(nodes=1, gpus=2)
        .queue("q")
        .tree(
            "job",
            branch("a", leaf("a1", pending=1), leaf("a2", pending=1)),
            branch("b", leaf("b1", pending=1), leaf("b2", pending=1)),
            needs=1,
            gpu=1,
        )
        .schedule()
    )
    assert result.bound_pods("job") == ["job-a1-0", "job-a2-0"]


def test_t14_a_surplus_subgroup_is_bound_when_resources_are_free() -> None:
    result = (
        cluster(nodes=1, gpus=2)
        .queue("q")
        .tree("job", leaf("a", 1, running=1), leaf("b", 1, pending=1), needs=1, gpu=1)
        .schedule()
    )
    assert result.bound_pods("job") == ["job-b-0"]


def test_t15_without_a_required_subgroup_each_turn_serves_one() -> None:
    built = (
        cluster(nodes=1, gpus=3)
        .queue("q")
        .tree("job", leaf("a", 2, pending=2), leaf("b", 2, pending=2), needs=0, gpu=1)
    )
    cycle = built.cycle()
    (gang,) = cycle.gangs.waiting()
    assert [[task.name for task in batch.tasks] for batch in cycle.gangs.next_tasks(gang)] == [["job-a-0", "job-a-1"]]
    assert built.schedule().bound_pods("job") == ["job-a-0", "job-a-1"]


def test_t15_nothing_is_chosen_when_every_subgroup_is_satisfied() -> None:
    built = (
        cluster(nodes=1, gpus=4)
        .queue("q")
        .tree("job", leaf("a", 1, running=1), leaf("b", 1, running=1), leaf("c", 2, pending=1), needs=0, gpu=1)
    )
    cycle = built.cycle()
    (gang,) = cycle.gangs.waiting()
    assert cycle.gangs.next_tasks(gang) == []
    assert not cycle.placer.place_gang(gang)
    result = built.schedule()
    assert result.plan.binds == ()
    assert "Waiting for 2 pods for SubGroup c, currently 1 exist" in result.why("job")


# cycle:ALC-1: what is tried


def test_alc1_the_queue_check_covers_all_chosen_tasks_at_once() -> None:
    """One pod would be within the limit, the gang is not."""
    result = cluster(nodes=1, gpus=4).queue("q", limit=1).gang("job", 2, gpu=1).schedule()
    assert result.plan.binds == ()
    record = result.unscheduled("job")
    assert record is not None
    (refusal,) = record.refusals
    assert isinstance(refusal, OverCapacity)
    assert (refusal.bound, refusal.used, refusal.requested) == (1.0, 0.0, 2.0)


def test_alc1_the_queue_check_covers_only_the_tasks_chosen_now() -> None:
    """Of an elastic group the minimum is chosen first, then one pod a turn."""
    result = cluster(nodes=1, gpus=4).queue("q", limit=2).gang("job", 4, min=1, gpu=1).schedule()
    assert result.bound("job") == 2


def test_alc1_a_group_over_capacity_inspects_no_node() -> None:
    result = cluster(nodes=1, gpus=4).queue("q", limit=1).gang("job", 2, gpu=1).schedule()
    assert result.plan.work == 0


def test_alc1_without_the_proportion_plugin_no_queue_is_checked() -> None:
    built = cluster(nodes=1, gpus=4).queue("q", limit=1).gang("job", 2, gpu=1)
    plugins = tuple(named for named in built.policy().plugins if named.name != "proportion")
    assert built.with_policy(plugins=plugins).schedule().bound("job") == 2


# cycle:ALC-3: one task


def test_alc3_a_task_that_fits_what_is_idle_starts() -> None:
    built = with_leaving_pod(cluster(nodes=2, gpus=2).queue("q"), gpu=2).gang("job", gpu=2)
    result = built.schedule()
    assert result.bound_pods("job") == ["job-0"]
    assert result.node_of("job-0") == "node-1"


def test_alc3_a_task_that_fits_only_with_what_is_released_is_pipelined() -> None:
    result = with_leaving_pod(cluster(nodes=1, gpus=3).queue("q"), gpu=1).gang("job", gpu=3).schedule()
    assert result.bound("job") == 0
    assert result.nominations["default/job-0"].node == "node-0"


def test_alc3_every_resource_must_be_idle_for_a_task_to_start() -> None:
    """GPUs are idle; the CPU is still held by the terminating pod."""
    built = cluster(nodes=1, gpus=2, cpu=4).queue("q").group("leaving")
    built.pod("leaving", group="leaving", cpu=4, on="node-0", deleted=1)
    result = built.gang("job", gpu=1, cpu=1).schedule()
    assert (result.bound("job"), result.pipelined("job")) == (0, 1)


def test_alc3_a_shared_request_starts_on_an_idle_device_and_waits_for_a_releasing_one() -> None:
    idle = cluster(nodes=1, gpus=1).queue("q").gang("job", fraction=0.5).schedule()
    assert idle.bound("job") == 1
    built = cluster(nodes=1, gpus=1).queue("q").group("leaving")
    built.pod("leaving", group="leaving", fraction=0.8, on="node-0", device="gpu-0", deleted=1)
    waits = built.gang("job", fraction=0.5).schedule()
    assert (waits.bound("job"), waits.pipelined("job")) == (0, 1)


def test_alc3_a_shared_request_does_not_start_on_devices_of_which_one_is_still_being_released() -> None:
    """Spreading takes two whole GPUs, of which one is idle, although a shared one has room right now."""
    built = cluster(nodes=1, gpus=3).queue("q").group("old")
    built.pod("old", group="old", fraction=0.2, on="node-0", device="gpu-0")
    with_leaving_pod(built, gpu=1).gang("job", fraction=0.5, devices=2)
    others = tuple(named for named in built.policy().plugins if named.name != "gpupack")
    result = built.with_policy(plugins=(*others, NamedPlugin("gpuspread", GpuSpread()))).schedule()
    assert (result.bound("job"), result.pipelined("job")) == (0, 1)


def test_alc3_in_a_simulation_nothing_starts() -> None:
    cycle = cluster(nodes=1, gpus=2).queue("q").gang("job", 2, gpu=1).cycle()
    (gang,) = cycle.gangs.waiting()
    assert cycle.placer.try_place_tasks(gang, cycle.gangs.next_tasks(gang))
    assert {placed.status for placed in cycle.state.placements.values()} == {TaskStatus.PIPELINED}


def test_alc3_in_a_simulation_shared_requests_do_not_start_either() -> None:
    cycle = cluster(nodes=1, gpus=2).queue("q").gang("job", 2, fraction=0.5).cycle()
    (gang,) = cycle.gangs.waiting()
    assert cycle.placer.try_place_tasks(gang, cycle.gangs.next_tasks(gang))
    assert {placed.status for placed in cycle.state.placements.values()} == {TaskStatus.PIPELINED}


# cycle:ALC-4, ALC-7: failing


def test_alc4_what_a_failed_gang_tried_is_free_for_the_next() -> None:
    built = cluster(nodes=1, gpus=4).queue("q").gang("big", 3, gpu=2).gang("small", 2, gpu=2)
    result = built.schedule()
    assert result.bound("big") == 0
    assert result.bound("small") == 2


def test_alc4_an_attempt_places_the_whole_gang_or_nothing() -> None:
    cycle = cluster(nodes=1, gpus=4).queue("q").gang("big", 3, gpu=2).cycle()
    (gang,) = cycle.gangs.waiting()
    assert not cycle.placer.place_gang(gang)
    assert cycle.state.placements == {}


def test_alc4_a_failing_subgroup_fails_the_whole_job() -> None:
    result = (
        cluster(nodes=1, gpus=4)
        .queue("q")
        .tree("job", leaf("a", 2, pending=2, gpu=1), leaf("b", 1, pending=1, gpu=3))
        .gang("next", 4, gpu=1)
        .schedule()
    )
    assert result.bound("job") == 0
    assert result.bound("next") == 4


def test_alc7_a_job_that_failed_is_not_tried_again() -> None:
    built = cluster(nodes=1, gpus=1).queue("q").gang("big", 2, gpu=1).gang("small", gpu=1)
    result = built.schedule()
    record = result.unscheduled("big")
    assert record is not None
    assert len(record.refusals) == 1


def test_alc7_equal_jobs_fail_without_being_tried_while_nothing_changes() -> None:
    """cycle:PERF-3: the second of two equal jobs costs no work, and its reason names its own pods."""
    built = cluster(nodes=1, gpus=1).queue("q")
    for index in range(4):
        built.gang(f"job{index}", 2, gpu=1)
    result = built.schedule()
    slow = built.with_policy(reuse_failures=False).schedule()
    assert result.plan.work == 2
    assert slow.plan.work == 8
    assert [result.why(f"job{index}") for index in range(4)] == [slow.why(f"job{index}") for index in range(4)]
    last = result.unscheduled("job3")
    assert last is not None
    assert [item.pod for item in last.refusals if isinstance(item, NoPlace)] == ["default/job3-1"]


def test_alc7_an_equal_job_is_tried_again_once_something_was_placed() -> None:
    """A failure is remembered only for the state it happened in."""
    built = cluster(nodes=2, gpus=1).queue("q")
    built.gang("first", 3, gpu=1).gang("fits", 1, gpu=1).gang("second", 3, gpu=1)
    result = built.schedule()
    record = result.unscheduled("second")
    assert record is not None
    (refusal,) = record.refusals
    assert isinstance(refusal, NoPlace)
    assert refusal.found == 1


# cycle:ALC-5, ALC-6: nominations


def test_alc5_no_member_binds_early() -> None:
    """Two of three pods could start; the third must wait, so all wait, on the nodes they were given."""
    built = with_leaving_pod(cluster(nodes=3, gpus=1).queue("q"), gpu=1, node="node-2")
    result = built.gang("job", 3, gpu=1).schedule()
    assert result.plan.binds == ()
    assert result.nodes_used("job") == {"node-0": 1, "node-1": 1, "node-2": 1}
    assert result.plan.started == ()


def test_alc5_a_subgroup_that_must_wait_keeps_the_others_waiting() -> None:
    built = with_leaving_pod(cluster(nodes=1, gpus=2).queue("q"), gpu=1)
    result = built.tree("job", leaf("a", 1, pending=1), leaf("b", 1, pending=1), gpu=1).schedule()
    assert result.plan.binds == ()
    assert result.pipelined("job") == 2


def test_alc5_an_extra_pod_that_must_wait_does_not_hold_up_the_minimum() -> None:
    built = with_leaving_pod(cluster(nodes=1, gpus=3).queue("q"), gpu=1)
    result = built.gang("job", 3, min=2, gpu=1).schedule()
    assert result.bound_pods("job") == ["job-0", "job-1"]
    assert list(result.nominations) == ["default/job-2"]
    assert result.plan.started == ("default/job",)


def test_alc5_after_an_extra_pod_that_must_wait_another_one_may_start() -> None:
    built = cluster(nodes=1, gpus=2).node("node-1", gpus=2).queue("q")
    with_leaving_pod(built, gpu=2).group("job", minMember=1)
    built.pod("a", group="job", gpu=1).pod("b", group="job", gpu=2).pod("c", group="job", gpu=1)
    result = built.schedule()
    assert result.bound_pods("job") == ["a", "c"]
    assert list(result.nominations) == ["default/b"]


def test_alc5_pods_that_run_count_towards_the_minimum() -> None:
    built = with_leaving_pod(cluster(nodes=1, gpus=3).queue("q"), gpu=1)
    built.group("job", minMember=2).pod("job-0", group="job", gpu=1, on="node-0")
    result = built.pod("job-1", group="job", gpu=1).pod("job-2", group="job", gpu=1).schedule()
    assert result.bound_pods("job") == ["job-1"]
    assert list(result.nominations) == ["default/job-2"]


def test_alc5_an_extra_pod_does_not_start_before_a_minimum_that_waits() -> None:
    """The two pods of the minimum wait for two GPUs each; the third pod would fit the idle one."""
    built = cluster(nodes=1, gpus=4).node("node-1", gpus=1).queue("q")
    with_leaving_pod(built, gpu=4).group("job", minMember=2)
    result = built.pod("a", group="job", gpu=2).pod("b", group="job", gpu=2).pod("c", group="job", gpu=1).schedule()
    assert result.plan.binds == ()
    assert result.nodes_used("job") == {"node-0": 2, "node-1": 1}


def test_alc5_other_groups_still_start() -> None:
    built = with_leaving_pod(cluster(nodes=1, gpus=3).queue("q"), gpu=1)
    result = built.gang("starts", 1, gpu=1).gang("waits", 2, gpu=1).schedule()
    assert result.bound("starts") == 1
    assert result.pipelined("waits") == 2


def test_alc6_a_node_is_not_nominated_twice_for_the_same_resources() -> None:
    built = with_leaving_pod(cluster(nodes=1, gpus=1).queue("q"), gpu=1)
    result = built.gang("first", gpu=1).gang("second", gpu=1).schedule()
    assert (result.pipelined("first"), result.pipelined("second")) == (1, 0)
    assert result.why("second").endswith(f"{SHORT_OF_GPUS}.")


def test_alc6_a_nomination_does_not_outlive_the_cycle() -> None:
    """Only a nomination on the pod itself is remembered, and that only ranks nodes."""
    built = with_leaving_pod(cluster(nodes=1, gpus=1).queue("q"), gpu=1)
    built.gang("first", gpu=1).gang("second", gpu=1)
    tables = built.tables()
    assert tables.snapshot(1).task_records["default/first-0"].status is TaskStatus.PENDING
    built.schedule()
    assert tables.snapshot(2).task_records["default/first-0"].status is TaskStatus.PENDING


def test_alc6_a_nominated_pod_goes_to_its_nominated_node() -> None:
    """cycle:ALC-6, Do better: the nominatednode plugin honours the nomination in the status of the pod."""
    built = cluster(nodes=3, gpus=1).queue("q").gang("job", gpu=1, nominated="node-2")
    assert built.schedule().node_of("job-0") == "node-2"


# Starts


def test_a_group_is_started_once_however_many_turns_it_takes() -> None:
    result = cluster(nodes=1, gpus=3).queue("q").gang("job", 3, min=1, gpu=1).schedule()
    assert result.bound("job") == 3
    assert result.plan.started == ("default/job",)


def test_a_fully_pipelined_group_is_not_started() -> None:
    result = with_leaving_pod(cluster(nodes=1, gpus=1).queue("q"), gpu=1).gang("job", gpu=1).schedule()
    assert result.pipelined("job") == 1
    assert result.plan.started == ()


# cycle:ALC-8: why not


def test_alc8_the_reason_of_a_single_pod_names_why_no_node_fits() -> None:
    result = cluster(nodes=1, gpus=1).queue("q").gang("job", 2, min=1, gpu=1).schedule()
    assert result.why("job") == (
        "PodSchedulingErrors: Resources were not found for pod default/job-1 due to: "
        "no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPUs.."
    )


def test_alc8_the_reason_of_a_gang_counts_the_pods_that_fit() -> None:
    result = cluster(nodes=1, gpus=2).queue("q").gang("job", 3, gpu=1).schedule()
    assert result.why("job") == (
        "PodSchedulingErrors: Resources were found for 2 pods while 3 are required for gang scheduling. "
        "Additional pods cannot be scheduled due to: "
        "no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPUs.."
    )


def test_alc8_the_reason_names_the_subgroup_and_counts_over_the_whole_job() -> None:
    """cycle:ALC-8, Do better: found are two pods of a and one of b."""
    result = (
        cluster(nodes=1, gpus=3)
        .queue("q")
        .tree("job", leaf("a", 2, pending=2), leaf("b", 2, pending=2), gpu=1)
        .schedule()
    )
    assert result.why("job") == (
        "PodSchedulingErrors: Resources were found for 3 pods from all sub-groups while sub-group b requires 2 pods "
        "for gang scheduling. Additional pods cannot be scheduled in this sub-group due to: "
        "no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPUs.."
    )


def test_alc8_beyond_the_minimum_the_reason_is_about_the_pod() -> None:
    result = cluster(nodes=1, gpus=2).queue("q").gang("job", 3, min=2, gpu=1).schedule()
    assert "Resources were not found for pod default/job-2 due to: " in result.why("job")


def test_alc8_subgroups_of_one_pod_each_are_not_a_gang() -> None:
    result = (
        cluster(nodes=1, gpus=1)
        .queue("q")
        .tree("job", leaf("a", 1, pending=1), leaf("b", 1, pending=1), gpu=1)
        .schedule()
    )
    assert "Resources were not found for pod default/job-b-0 due to: " in result.why("job")


def test_alc8_terminating_pods_count_for_the_form_of_the_message() -> None:
    """activeUsed counts terminating pods, so the message treats this gang as satisfied."""
    built = cluster(nodes=1, gpus=2).queue("q").group("job", minMember=2)
    for index in range(2):
        built.pod(f"old-{index}", group="job", gpu=1, on="node-0", deleted=200)
    result = built.pod("new-0", group="job", gpu=1).pod("new-1", group="job", gpu=1).schedule()
    assert "Resources were not found for pod default/new-0 due to: " in result.why("job")


def test_alc8_a_simulation_leaves_what_it_tried_untouched() -> None:
    cycle = cluster(nodes=1, gpus=1).queue("q").gang("job", 2, gpu=1).cycle()
    (gang,) = cycle.gangs.waiting()
    assert not cycle.placer.try_place_tasks(gang, cycle.gangs.next_tasks(gang))
    assert cycle.state.placements == {}


# cycle:ALC-9: gpu-memory requests


def test_alc9_the_job_level_check_converts_with_the_largest_gpu() -> None:
    """500 MiB are half of the small GPU and an eighth of the large one, which counts as 0.13 there."""
    built = cluster().node("small", gpus=1, gpu_memory=1000).node("large", gpus=1, gpu_memory=4000)
    result = built.queue("q", limit=0.13).gang("job", gpu_memory=500).schedule()
    assert result.node_of("job-0") == "large"


def test_alc9_the_check_of_a_node_uses_its_own_gpus() -> None:
    built = cluster().node("small", gpus=1, gpu_memory=1000).node("large", gpus=1, gpu_memory=4000)
    built.group("busy", preemptibility="preemptible").pod("busy", group="busy", gpu=1, on="large")
    result = built.queue("q", limit=1.2).gang("job", gpu_memory=500).schedule()
    assert result.bound("job") == 0
    assert (
        "1 node does not have enough capacity. Reason: OverLimit, Details: q quota has reached the allowable limit of "
        "GPUs. Limit is 1.2 GPUs, currently 1 GPUs allocated and workload requested 0.5 GPUs"
    ) in result.why("job")


def test_alc9_the_order_of_queues_converts_with_the_smallest_gpu() -> None:
    """Half of a small GPU is more than 0.3 GPUs, an eighth of a large one would be less."""
    built = cluster().node("large", gpus=4, gpu_memory=4000).node("small", gpus=4, gpu_memory=1000)
    built.queue("memory", age=50).queue("fraction", age=40)
    built.gang("m", queue="memory", gpu_memory=500).gang("f", queue="fraction", fraction=0.3)
    assert built.schedule().order() == ["f", "m"]


@pytest.mark.parametrize("known", [None, 100])
def test_alc9_without_a_gpu_of_known_memory_nothing_is_converted(known: int | None) -> None:
    cycle = cluster(nodes=1, gpus=1, gpu_memory=known).queue("q").gang("job", gpu_memory=50).cycle()
    (gang,) = cycle.gangs.waiting()
    assert (cycle.context.smallest_gpu_mib, cycle.context.largest_gpu_mib) == (0, 0)
    assert cycle.gangs.least_amounts(gang)[2] == 0.0


# Gates, simulations


def test_exp10_the_reason_of_a_fully_gated_group_names_the_gates() -> None:
    result = cluster(nodes=1).queue("q").gang("job", 2, spec={"schedulingGates": [{"name": "wait"}]}).schedule()
    assert result.why("job") == "Job is not ready for scheduling. Waiting for 2 pods, currently 2 exist, 2 are gated"


def test_alc8_a_simulation_records_no_refusal() -> None:
    cycle = cluster(nodes=1, gpus=1).queue("q", limit=5).gang("job", 2, gpu=1).gang("over", 6, gpu=1).cycle()
    for gang in cycle.gangs.waiting():
        assert not cycle.placer.try_place_tasks(gang, cycle.gangs.next_tasks(gang))
    assert cycle.decisions.refusals == {}
