"""Reclaim: queues get back what others hold beyond their share (cycle:14; queues:11, cases 19.7).

Nodes have GPUs to spare of nothing else, so GPUs decide.  `old` work runs and `new` work waits.  The pure
rules have their own tests in `queueing/test_reclaimrules.py`; here the whole action runs.
"""

from typing import Any

import pytest

from tests.core.builders import Cluster, Result, cluster, leaf


def reclaiming(*nodes: int) -> Cluster:
    """Nodes with so many GPUs each, on which only reclaim runs."""
    built = cluster().with_actions("reclaim")
    for gpus in nodes:
        built.node(gpus=gpus)
    return built


def runs(built: Cluster, queue: str, jobs: int, prefix: str = "old", **job: Any) -> Cluster:
    """Some jobs of one pod that run on node-0."""
    for index in range(jobs):
        built.gang(f"{prefix}-{queue}-{index}", queue=queue, **{"gpu": 1, "on": "node-0", **job})
    return built


def waits(built: Cluster, queue: str, jobs: int, **job: Any) -> Cluster:
    """Some jobs of one pod that wait."""
    for index in range(jobs):
        built.gang(f"new-{queue}-{index}", queue=queue, **{"gpu": 1, **job})
    return built


def evictions_and_promises(result: Result) -> tuple[int, int]:
    return len(result.plan.evictions), len(result.plan.nominations)


# Cases 19.7


def test_a1_a_queue_gets_back_its_quota_and_no_more() -> None:
    """queues:19.7 A1: one victim, one nomination; the second job would bring its queue above its share."""
    built = reclaiming(2).queue("q0", quota=1).queue("q1", quota=1)
    result = waits(runs(built, "q0", 2), "q1", 2).schedule()
    assert result.evicted_pods() == ["old-q0-1-0"]
    assert result.node_of("new-q1-0-0") == "node-0"
    assert result.plan.binds == ()
    assert result.verdicts("new-q1-1") == {"reclaim": "fair_share"}


@pytest.mark.parametrize("resource", ["amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "example.com/gpu"])
def test_a_queue_gets_back_its_quota_in_gpus_of_any_vendor(resource: str) -> None:
    """cycle:R-3"""
    built = reclaiming().node(extra={resource: 2}).queue("q0", quota=1).queue("q1", quota=1)
    its_gpu: dict[str, Any] = {"gpu": 0, "extra": {resource: 1}}
    result = waits(runs(built, "q0", 2, **its_gpu), "q1", 2, **its_gpu).schedule()
    assert result.evicted_pods() == ["old-q0-1-0"]
    assert result.node_of("new-q1-0-0") == "node-0"
    assert result.verdicts("new-q1-1") == {"reclaim": "fair_share"}


def test_a1_the_younger_job_is_evicted() -> None:
    """cycle:SOL-7: the order of the queue from its other end."""
    built = reclaiming(2).queue("q0", quota=1).queue("q1", quota=1)
    runs(built, "q0", 1, "young", age=10)
    result = waits(runs(built, "q0", 1, age=20), "q1", 1).schedule()
    assert result.evicted_pods() == ["young-q0-0-0"]


def test_a2_queues_within_their_quota_leave_each_other_alone() -> None:
    """queues:19.7 A2."""
    built = reclaiming(2).queue("q0", quota=1).queue("q1", quota=1)
    for queue in ("q0", "q1"):
        waits(runs(built, queue, 1), queue, 1)
    result = built.schedule()
    assert evictions_and_promises(result) == (0, 0)
    assert result.verdicts("new-q0-0") == result.verdicts("new-q1-0") == {"reclaim": "fair_share"}


def test_a3_no_queue_is_over_its_share() -> None:
    """queues:19.7 A3: quotas that the cluster cannot give to both."""
    built = reclaiming(2).queue("q0", quota=2).queue("q1", quota=2)
    result = waits(runs(built, "q0", 2), "q1", 1).schedule()
    assert evictions_and_promises(result) == (0, 0)


def test_a4_a_job_is_evicted_whole() -> None:
    """queues:19.7 A4, Q-270: the last victim may bring its queue below quota."""
    built = reclaiming(2).queue("q0", quota=1).queue("q1", quota=1)
    result = waits(runs(built, "q0", 1, gpu=2), "q1", 2).schedule()
    assert evictions_and_promises(result) == (1, 1)
    assert result.pipelined("new-q1-0") == 1


def test_a5_non_preemptible_work_stays_within_quota() -> None:
    """queues:19.7 A5, Q-261."""
    built = reclaiming(4).queue("q0", quota=1).queue("q1", quota=1)
    runs(built, "q0", 1, preemptible=False)
    runs(built, "q1", 3)
    result = waits(built, "q0", 1, preemptible=False).schedule()
    assert evictions_and_promises(result) == (0, 0)
    assert result.verdicts("new-q0-0") == {"reclaim": "quota"}


@pytest.mark.parametrize(
    ("case", "gpus", "held", "wanted", "reclaims"),
    [("A6", 10, 8, 6, True), ("A7", 10, 4, 7, False), ("A8", 12, 10, 7, True)],
)
def test_surplus_is_reclaimed_by_weight(case: str, gpus: int, held: int, wanted: int, reclaims: bool) -> None:
    """queues:19.7 A6 to A8: weights 1 and 2 over quotas of 2."""
    built = reclaiming(gpus).queue("q0", quota=2, weight=1).queue("q1", quota=2, weight=2)
    result = waits(runs(built, "q0", held), "q1", 1, gpu=wanted).schedule()
    missing = wanted - (gpus - held)
    assert evictions_and_promises(result) == ((missing, 1) if reclaims else (0, 0)), case


def test_a9_an_unlimited_queue_gives_nothing_back() -> None:
    """queues:19.7 A9, Q-275."""
    built = reclaiming(2).queue("q0", quota=-1).queue("q1", quota=2)
    result = waits(runs(built, "q0", 2), "q1", 1).schedule()
    assert evictions_and_promises(result) == (0, 0)


def test_a10_work_of_a_queue_at_its_quota_is_moved() -> None:
    """queues:19.7 A10, Q-267: nothing is taken from it, so nothing is unfair."""
    built = reclaiming(3, 2).queue("q0", quota=3).queue("q1", quota=2)
    built.gang("large", queue="q0", gpu=2, on="node-0").gang("small", queue="q0", gpu=1, on="node-1")
    result = built.gang("new", queue="q1", gpu=2).schedule()
    assert result.evicted_pods() == ["small-0"]
    assert result.moved_to("small-0") == "node-0"
    assert result.node_of("new-0") == "node-1"


def test_rcl3_moved_work_counts_where_configured() -> None:
    """cycle:RCL-3: without --allow-consolidating-reclaim a queue at its quota is left alone."""
    built = reclaiming(3, 2).queue("q0", quota=3).queue("q1", quota=2)
    built.gang("large", queue="q0", gpu=2, on="node-0").gang("small", queue="q0", gpu=1, on="node-1")
    result = built.gang("new", queue="q1", gpu=2).with_policy(allow_consolidating_reclaim=False).schedule()
    assert evictions_and_promises(result) == (0, 0)
    assert result.verdicts("new") == {"reclaim": "generators_exhausted"}


def test_a11_departments_are_fair_to_each_other() -> None:
    """queues:19.7 A11, Q-272: the department has its quota, whatever its queue deserves."""
    built = reclaiming(4).queue("d0", quota=1).queue("d1", quota=1)
    built.queue("queue0", parent="d0", quota=3).queue("queue1", parent="d1", quota=1)
    runs(built, "queue0", 2)
    runs(built, "queue1", 2)
    result = waits(built, "queue0", 1).schedule()
    assert evictions_and_promises(result) == (0, 0)


def test_a12_the_department_quota_binds_non_preemptible_work() -> None:
    """queues:19.7 A12, Q-273: another queue is over, so only the quota of the department forbids it."""
    built = reclaiming(3).queue("d0", quota=1, weight=9).queue("d1", quota=1, weight=0)
    built.queue("queue0", parent="d0", quota=3).queue("queue1", parent="d1", quota=1)
    runs(built, "queue0", 1, preemptible=False)
    runs(built, "queue1", 2)
    assert evictions_and_promises(waits(built, "queue0", 1, preemptible=False).schedule()) == (0, 0)


def test_a12_preemptible_work_may_exceed_the_department_quota() -> None:
    """queues:Q-273: the counterpart."""
    built = reclaiming(3).queue("d0", quota=1, weight=9).queue("d1", quota=1, weight=0)
    built.queue("queue0", parent="d0", quota=3).queue("queue1", parent="d1", quota=1)
    runs(built, "queue0", 1, preemptible=False)
    runs(built, "queue1", 2)
    assert evictions_and_promises(waits(built, "queue0", 1).schedule()) == (1, 1)


def test_a13_over_its_share_of_cpu_a_queue_reclaims_no_gpus() -> None:
    """queues:19.7 A13, Q-260."""
    built = reclaiming(2).queue("q0", quota=1).queue("q1", quota=1, cpu=(1000, -1, 0))
    runs(built, "q0", 2)
    runs(built, "q1", 1, "cpu", gpu=0, cpu=2)
    result = waits(built, "q1", 1, cpu=0).schedule()
    assert evictions_and_promises(result) == (0, 0)
    assert result.verdicts("new-q1-0") == {"reclaim": "fair_share"}


# Cases of cycle:23


def test_t27_only_the_pod_beyond_quota_is_evicted() -> None:
    """cycle:T-27: an elastic job loses the task of lowest priority and keeps the rest."""
    built = reclaiming(2).queue("q0", quota=1).queue("q1", quota=1)
    built.group("old", queue="q0", minMember=1, preemptibility="preemptible")
    for name, priority in (("second", "1"), ("first", "2")):
        built.pod(name, group="old", gpu=1, on="node-0", labels={"kai.scheduler/task-priority": priority})
    result = waits(built, "q1", 1).schedule()
    assert result.evicted_pods() == ["second"]


def test_t28_the_minimum_within_quota_is_not_split() -> None:
    """cycle:T-28, RCL-3: taking the second pod would take the minimum, which the queue deserves."""
    built = reclaiming(3).queue("q0", quota=2).queue("q2", quota=2)
    result = built.gang("old", 3, min=2, queue="q2", gpu=1, on="node-0").gang("new", gpu=2, queue="q0").schedule()
    assert evictions_and_promises(result) == (0, 0)


def test_t28_the_pod_beyond_the_minimum_is_taken_alone() -> None:
    """cycle:RCL-3: the counterpart."""
    built = reclaiming(3).queue("q0", quota=2).queue("q2", quota=2)
    result = built.gang("old", 3, min=2, queue="q2", gpu=1, on="node-0").gang("new", gpu=1, queue="q0").schedule()
    assert result.evicted_pods() == ["old-2"]


def _halves(fraction: float) -> Cluster:
    built = reclaiming(1, 1).queue("q0", quota=0).queue("q1", quota=0).queue("q2", quota=2)
    for index in range(2):
        built.gang(f"old-{index}", queue=f"q{index}", fraction=fraction, on=f"node-{index}", device=f"gpu-{index}")
    return built.gang("new", queue="q2", gpu=1)


def test_t29_shared_gpus_are_moved_together() -> None:
    """cycle:T-29: one delete, and no work is lost."""
    result = _halves(0.5).schedule()
    (evicted,) = result.plan.evictions
    assert evicted.moves_to not in ("", evicted.node)
    assert result.node_of("new-0") == evicted.node


def test_t30_fractions_that_do_not_fit_together_are_evicted_for_good() -> None:
    """cycle:T-30."""
    result = _halves(0.7).schedule()
    (evicted,) = result.plan.evictions
    assert evicted.moves_to == ""
    assert result.node_of("new-0") == evicted.node


def test_t54_a_gpu_fraction_is_evicted_before_a_whole_gpu() -> None:
    """gpu:T-54: one GPU is enough, and the part is less."""
    built = reclaiming(2).queue("q0", quota=1).queue("q1", quota=1)
    built.gang("whole", queue="q0", gpu=1, on="node-0")
    built.gang("part", queue="q0", fraction=0.5, on="node-0", device="gpu-0")
    result = waits(built, "q1", 1).schedule()
    assert result.evicted_pods() == ["part-0"]


@pytest.mark.parametrize(("wanted", "evicted"), [(0.4, 1), (0.8, 2)])
def test_t54_as_many_fractions_as_needed_are_evicted(wanted: float, evicted: int) -> None:
    """gpu:T-54: two halves of one GPU."""
    built = reclaiming(1).queue("q0", quota=0).queue("q1", quota=1)
    for index in range(2):
        built.gang(f"old-{index}", queue="q0", fraction=0.5, on="node-0", device="gpu-0")
    result = built.gang("new", queue="q1", fraction=wanted).schedule()
    assert len(result.evicted_pods()) == evicted
    assert result.node_of("new-0") == "node-0"


def test_t31_a_protected_queue_in_front_does_not_end_the_search() -> None:
    """cycle:T-31: the queue first in the order of victims is within its quota."""
    built = reclaiming(4).queue("protected", quota=2, priority=1).queue("over", quota=1).queue("q", quota=1)
    runs(built, "protected", 2)
    runs(built, "over", 2)
    result = waits(built, "q", 1).schedule()
    assert [pod.rpartition("-")[0] for pod in result.evicted_pods()] == ["old-over-1"]


def test_t32_a_queue_at_the_top_loses_to_one_below_a_department() -> None:
    """cycle:T-32, RCL-2: the message shows the queues where the two sides part."""
    built = reclaiming(2).queue("alone", quota=1, display_name="Alone").queue("dep", quota=1, priority=7)
    built.queue("q", parent="dep", quota=1)
    (evicted,) = waits(runs(built, "alone", 2, cpu=0, memory=0), "q", 1, cpu=0, memory=0).schedule().plan.evictions
    assert evicted.message == (
        "Pod default/old-alone-1-0 was preempted by workload default/new-q-0.\n"
        "Alone uses <GPU: 2, CPU: 0 (cores), memory: 0 (GB)> with a quota of "
        "<GPU: 1, CPU: Unlimited (cores), memory: Unlimited (GB)>, fair-share of "
        "<GPU: 1, CPU: 0 (cores), memory: 0 (GB)> and queue priority of <100>.\n"
        "dep uses <GPU: 0, CPU: 0 (cores), memory: 0 (GB)> with a quota of "
        "<GPU: 1, CPU: Unlimited (cores), memory: Unlimited (GB)>, fair-share of "
        "<GPU: 1, CPU: 0 (cores), memory: 0 (GB)> and queue priority of <7>."
    )


# The messages of victims, and the ledgers behind the decision


def test_rcl2_the_message_of_two_queues_below_one_department() -> None:
    """cycle:RCL-2, queues:Q-277: the victim's queue first; figures before any eviction, in cores and GB."""
    built = reclaiming(4).queue("dep").queue("q0", parent="dep", quota=1.5, cpu=(500, -1, 1)).queue("q1", parent="dep")
    built.objects[-1]["spec"]["resources"]["gpu"]["quota"] = 2
    runs(built, "q0", 3, cpu=1, memory="2G")
    runs(built, "q0", 1, "part", gpu=0, fraction=0.5, device="shared", cpu="250m", memory="1500M")
    result = waits(built, "q1", 2, cpu=0, memory=0).schedule()
    first = result.plan.evictions[0]
    lines = first.message.splitlines()
    assert lines[0] == f"Pod default/{first.pod} was preempted by workload {first.preemptor}."
    assert lines[1].startswith(
        "q0 uses <GPU: 3.5, CPU: 3.25 (cores), memory: 7.5 (GB)> with a quota of "
        "<GPU: 1.5, CPU: 0.5 (cores), memory: Unlimited (GB)>, fair-share of <GPU: "
    )
    assert lines[2].startswith("q1 uses <GPU: 0, CPU: 0 (cores), memory: 0 (GB)> with a quota of <GPU: 2, ")
    assert len(lines) == 3


def test_rcl2_every_message_has_the_figures_before_the_eviction() -> None:
    """cycle:RCL-1, RCL-2: both victims of one job have the same two lines."""
    built = reclaiming(4).queue("q0", quota=2).queue("q1", quota=2)
    result = waits(runs(built, "q0", 4), "q1", 1, gpu=2).schedule()
    first, second = (evicted.message.splitlines()[1:] for evicted in result.plan.evictions)
    assert first == second
    assert first[0].startswith("q0 uses <GPU: 4, ")


def test_rcl2_the_message_of_a_second_reclaimer_has_new_figures() -> None:
    """cycle:RCL-2: ledgers are read when a search begins."""
    built = reclaiming(4).queue("q0", quota=2).queue("q1", quota=2)
    result = waits(runs(built, "q0", 4), "q1", 2).schedule()
    uses = [evicted.message.splitlines()[1].partition(",")[0] for evicted in result.plan.evictions]
    assert uses == ["q0 uses <GPU: 4", "q0 uses <GPU: 3"]


@pytest.mark.parametrize("preemptible", [True, False])
def test_rcl1_a_set_is_judged_by_what_queues_had_before_it(preemptible: bool) -> None:
    """cycle:RCL-1: the reclaimer is within quota although the trial has given it its pods."""
    built = reclaiming(2).queue("q0", quota=1).queue("q1", quota=1)
    result = waits(runs(built, "q0", 2), "q1", 1, preemptible=preemptible).schedule()
    assert evictions_and_promises(result) == (1, 1)


def test_rcl3_the_minimums_of_several_subgroups_are_one_part() -> None:
    """cycle:RCL-3: two subgroups at their minimum go together; three GPUs over, the four of both minimums may go."""
    built = reclaiming(4).queue("q0", quota=1).queue("q1", quota=3)
    built.tree("old", leaf("a", 2, running=2), leaf("b", 2, running=2), queue="q0", gpu=1)
    result = waits(built, "q1", 1, gpu=3).schedule()
    assert sorted(result.evicted_pods()) == ["old-a-0", "old-a-1", "old-b-0", "old-b-1"]


def test_rcl3_pods_beyond_the_minimum_are_judged_one_by_one() -> None:
    """cycle:RCL-3: one over, the second pod is too much although both together could be a part."""
    built = reclaiming(4).queue("q0", quota=3).queue("q1", quota=2)
    result = built.gang("old", 4, min=1, queue="q0", gpu=1, on="node-0").gang("new", queue="q1", gpu=2).schedule()
    assert evictions_and_promises(result) == (0, 0)


# Which gangs take part


def test_reclaim_takes_nothing_from_its_own_queue() -> None:
    """cycle:14: candidates are in other queues, whatever their priority."""
    built = reclaiming(1).queue("q", quota=2).priority_class("high", 200)
    result = waits(runs(built, "q", 1), "q", 1, priority="high").schedule()
    assert evictions_and_promises(result) == (0, 0)


def test_reclaim_takes_no_work_that_is_not_preemptible() -> None:
    """cycle:14, POL-2."""
    built = reclaiming(2).queue("q0", quota=0).queue("q1", quota=1)
    result = waits(runs(built, "q0", 2, preemptible=False), "q1", 1).schedule()
    assert evictions_and_promises(result) == (0, 0)
    assert result.verdicts("new-q1-0") == {"reclaim": "hopeless"}


def test_a_rejected_job_does_not_represent_equal_jobs() -> None:
    """cycle:14: a job that requests less CPU and more GPUs is tried although the other was refused for its CPU."""
    built = reclaiming(4).queue("q0", quota=2, priority=1).queue("q1", quota=2, cpu=(1000, -1, 0))
    runs(built, "q0", 4).gang("large", queue="q1", gpu=1, cpu=2, age=20)
    result = built.gang("small", queue="q1", gpu=2, cpu="500m", age=10).schedule()
    assert result.verdicts("large") == {"reclaim": "fair_share"}
    assert result.pipelined("small") == 1


def test_the_fair_share_check_runs_before_the_signature_check() -> None:
    """cycle:14: the precheck of reclaim comes first, so every job gets its own rule."""
    built = reclaiming(2).queue("q0", quota=1).queue("q1", quota=1)
    runs(built, "q0", 2, preemptible=False)
    result = built.gang("small", queue="q1", gpu=1).gang("large", queue="q1", gpu=2).schedule()
    assert result.verdicts("small") == {"reclaim": "hopeless"}
    assert result.verdicts("large") == {"reclaim": "fair_share"}


def test_without_fairness_nothing_is_reclaimed() -> None:
    """cycle:14: the plugin proportion decides which queues may."""
    names = ["predicates", "priority", "nodeavailability", "sg-nodelocalgreedy", "sg-multinodegang"]
    built = reclaiming(2).configured({"actions": "reclaim", "tiers": [{"plugins": [{"name": n} for n in names]}]})
    built.queue("q0", quota=1).queue("q1", quota=1)
    result = waits(runs(built, "q0", 2), "q1", 1).schedule()
    assert evictions_and_promises(result) == (0, 0)


def test_q276_limits_hold_in_the_trial() -> None:
    """queues:Q-276: the leaf is within its quota and share, every other queue is far over; the department is full."""
    built = reclaiming(4).queue("dep", quota=1, limit=1).queue("q0", quota=0, weight=0)
    runs(runs(built.queue("q1", parent="dep", quota=2), "q1", 1), "q0", 3)
    result = waits(built, "q1", 1).schedule()
    assert evictions_and_promises(result) == (0, 0)
    assert result.verdicts("new-q1-0") == {"reclaim": "generators_exhausted"}


def test_q273_parent_quotas_count_for_resources_that_are_not_requested_too() -> None:
    """queues:Q-273: the department has more non-preemptible CPU in use than its quota."""
    for preemptible, happens in ((False, (0, 0)), (True, (1, 1))):
        built = reclaiming(3).queue("dep", quota=3, cpu=(1000, -1, 1)).queue("q0", quota=0, weight=0)
        built.queue("q1", parent="dep", quota=3)
        runs(built, "q1", 1, "fixed", preemptible=False, gpu=0, cpu=2)
        runs(built, "q0", 3)
        result = waits(built, "q1", 1, preemptible=preemptible, cpu=0, memory=0).schedule()
        assert evictions_and_promises(result) == happens


def test_q262_a_gang_requests_its_minimum() -> None:
    """queues:Q-262: three pods wait, two are the minimum, two are within the share."""
    built = reclaiming(4).queue("q0", quota=2).queue("q1", quota=2)
    result = runs(built, "q0", 4).gang("new", 3, min=2, queue="q1", gpu=1).schedule()
    assert evictions_and_promises(result) == (2, 2)


def test_q262_a_gang_whose_minimum_is_above_the_share_gets_nothing() -> None:
    """queues:Q-262: all or nothing."""
    built = reclaiming(4).queue("q0", quota=2).queue("q1", quota=2)
    result = runs(built, "q0", 4).gang("new", 3, queue="q1", gpu=1).schedule()
    assert evictions_and_promises(result) == (0, 0)


def test_q278_mig_devices_are_gpus_to_fairness() -> None:
    """queues:Q-278, Do better: a queue may not overtake others by requesting MIG slices."""
    slice_ = "nvidia.com/mig-1g.5gb"
    built = (
        cluster()
        .with_actions("reclaim")
        .node(extra={slice_: 4}, labels={"node-role.kubernetes.io/mig-enabled": "true"})
    )
    built.queue("q0", quota=2).queue("q1", quota=2)
    runs(built, "q0", 4, gpu=0, extra={slice_: 1})
    result = waits(built, "q1", 3, gpu=0, extra={slice_: 1}).schedule()
    assert evictions_and_promises(result) == (2, 2)


def test_evicted_work_stays_out_of_the_ledgers() -> None:
    """cycle:CYC-6: what the first reclaimer took is not taken again for the second."""
    built = reclaiming(4).queue("q0", quota=1).queue("q1", quota=1).queue("q2", quota=2)
    runs(built, "q0", 4)
    waits(built, "q1", 1)
    result = waits(built, "q2", 2).schedule()
    assert len(set(result.evicted_pods())) == len(result.evicted_pods()) == 3
    assert [figures.allocated[2] for figures in result.plan.queues] == [1, 1, 2]
