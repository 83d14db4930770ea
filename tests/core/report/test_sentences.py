"""The exact messages (cycle:17.1, 17.2, EXP-8, EXP-10, ALC-8, RCL-2, POL-4; queues:Q-208, Q-209, Q-323)."""

from __future__ import annotations

from math import inf

import pytest

from pykai.core.report.decisions import (
    BrokenTree,
    DomainShort,
    NoEviction,
    NoPlace,
    NoQueue,
    NotLeafQueue,
    NotReady,
    NotSupported,
    OrphanPod,
    OverBudget,
    OverCapacity,
    QueueFigures,
    Refusal,
    StaleGang,
    StrayPod,
    Unscheduled,
    WithinDelay,
)
from pykai.core.report.sentences import (
    amount_text,
    counted_reasons,
    detailed_group_text,
    format_go_float,
    format_number,
    group_text,
    milli_text,
    no_eviction_text,
    not_ready_text,
    orphan_text,
    over_budget_text,
    queue_line,
    reason_of,
    refusal_text,
    stale_text,
    task_text,
)
from tests.core.builders import NOW_NS, Raw, cluster, leaf

NO_NODES = "no nodes with enough resources were found"


def no_place(form: str = "pod", *, base: str = "", pod: str = "ns/p", found: int = 1, **nodes: int) -> NoPlace:
    counted = {reason.replace("_", " "): count for reason, count in nodes.items()}
    return NoPlace(pod, form, found, "workers", 4, base, counted)


def waiting(*refusals: Refusal) -> Unscheduled:
    return Unscheduled("ns", "job", "q", 1, refusals)


def over(
    rule: str = "limit", resource: str = "GPU", *, bound: float = 4, used: float = 3, requested: float = 2
) -> OverCapacity:
    return OverCapacity(rule, "q", "Team Q", resource, bound, used, requested, (0, 0, 0), preemptible=rule == "limit")


# cycle:EXP-1, EXP-2: why a task found no node


def test_exp1_without_reasons_the_text_is_that_no_node_was_found() -> None:
    assert task_text(no_place()) == NO_NODES


def test_exp1_reasons_are_counted_sorted_as_text_and_joined() -> None:
    found = task_text(no_place(too_small=2, no_gpu=10, cordoned=3))
    assert found == f"{NO_NODES}: 10 no gpu. \n2 too small. \n3 cordoned."


def test_exp1_a_base_text_replaces_the_usual_one() -> None:
    assert task_text(no_place(base="nothing was tried")) == "nothing was tried"
    assert task_text(no_place(base="nothing was tried", cordoned=1)) == "nothing was tried: 1 cordoned."


def test_exp1_the_name_of_the_pod_is_filled_in() -> None:
    refusal = NoPlace("ns/p", "pod", 0, "default", 1, "{pod} has no place", {"{pod} is too large": 2})
    assert task_text(refusal) == "ns/p has no place: 2 ns/p is too large."


def test_exp1_histogram() -> None:
    assert counted_reasons({"b": 1, "a": 1, "c": 10}) == "1 a. \n1 b. \n10 c"
    assert counted_reasons({}) == ""


def test_exp2_a_node_short_of_several_resources_gives_every_one() -> None:
    built = cluster(nodes=2, gpus=1, cpu=1).node(gpus=8, cpu=1).node(gpus=1, cpu=100).queue("q")
    record = built.gang("job", gpu=2, cpu=4).schedule().unscheduled("job")
    assert record is not None
    (refusal,) = record.refusals
    assert isinstance(refusal, NoPlace)
    assert refusal.nodes == {
        "node(s) didn't have enough resources: CPU cores": 3,
        "node(s) didn't have enough resources: GPUs": 3,
    }


def test_exp2_a_node_that_has_the_resources_gives_the_first_check_it_fails() -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    built = cluster().node(gpus=2, unschedulable=True, taints=[taint]).node(gpus=2, taints=[taint]).node(gpus=1)
    assert built.queue("q").gang("job", gpu=2).schedule().why("job") == (
        "PodSchedulingErrors: Resources were not found for pod default/job-0 due to: "
        f"{NO_NODES}: 1 node is unschedulable. \n1 node(s) didn't have enough resources: GPUs. \n"
        "1 node(s) had untolerated taint(s).."
    )


def test_exp2_a_node_short_of_resources_gives_no_further_reasons() -> None:
    result = cluster(nodes=1, gpus=1, unschedulable=True).node(gpus=2, unschedulable=True).queue("q").gang("job", gpu=2)
    why = result.schedule().why("job")
    assert "1 node is unschedulable" in why
    assert "1 node(s) didn't have enough resources: GPUs" in why


def test_exp2_a_node_without_pod_slots_has_that_reason() -> None:
    built = cluster(nodes=1, pods=1).queue("q").group("old").pod("old", group="old", on="node-0").gang("job")
    assert "1 node(s) pod number exceeded." in built.schedule().why("job")


# cycle:EXP-3: what a node is short of


def test_exp3_each_resource_has_its_word() -> None:
    slice_name = "nvidia.com/mig-1g.5gb"
    extra = {"example.com/thing": 2, slice_name: 2}
    for pod, text in (
        ({"gpu": 2}, "node(s) didn't have enough resources: GPUs"),
        ({"cpu": 2}, "node(s) didn't have enough resources: CPU cores"),
        ({"memory": "2G"}, "node(s) didn't have enough resources: memory"),
        ({"extra": {"example.com/thing": 2}}, "node(s) didn't have enough resources: example.com/thing"),
        ({"extra": {slice_name: 2}}, f"node(s) didn't have enough of mig profile: {slice_name}"),
    ):
        built = cluster().node(gpus=2, cpu=2, memory="2G", extra=extra).queue("q").group("old")
        built.pod("old", group="old", gpu=1, cpu=1, memory="1G", extra=dict.fromkeys(extra, 1), on="node-0")
        asks: Raw = {"cpu": 0, "memory": 0, **pod}
        assert f"{NO_NODES}: 1 {text}." in built.gang("job", **asks).schedule().why("job")


def test_exp3_gpus_of_every_vendor_are_gpus() -> None:
    built = cluster().node(extra={"amd.com/gpu": 2}).queue("q").group("old")
    built.pod("old", group="old", extra={"amd.com/gpu": 1}, on="node-0")
    why = built.gang("job", extra={"amd.com/gpu": 2}).schedule().why("job")
    assert "1 node(s) didn't have enough resources: GPUs." in why


def test_exp3_shared_requests_are_short_of_gpus_or_of_gpu_memory() -> None:
    built = cluster().node(gpus=1, gpu_memory=1000).node(gpus=1, gpu_memory=4000).queue("q").group("old")
    built.pod("old", group="old", gpu=1, on="node-1")
    why = built.gang("job", gpu_memory=2000).schedule().why("job")
    assert f"{NO_NODES}: 1 node(s) didn't have enough resources: GPU memory. \n" in why
    assert "1 node(s) didn't have enough resources: GPUs." in why


OVERHEAD = {"overhead": {"cpu": "250m", "memory": "2k"}}
SUFFIX = ". Not enough resources due to pod overhead resources. The overhead resources are  cpu: 250m, memory: 2000"


def test_exp3_the_overhead_is_named_where_the_pod_would_fit_without_it() -> None:
    built = cluster().node(cpu=3).node("large", cpu=8, unschedulable=True).queue("q").gang("job", cpu=3, spec=OVERHEAD)
    why = built.schedule().why("job")
    assert f"1 node(s) didn't have enough resources: CPU cores{SUFFIX}." in why


@pytest.mark.parametrize(
    ("node", "job"),
    [({"pods": 1}, {}), ({"gpus": 1}, {"fraction": 0.5}), ({}, {"devices": "example.com/a"})],
)
def test_exp3_the_overhead_is_named_where_all_else_just_fits(node: Raw, job: Raw) -> None:
    """The last slot, the last GPU, and a resource that no node has and only the overhead asks for."""
    overhead = {"cpu": "250m", "memory": "2k", **({job["devices"]: 1} if "devices" in job else {})}
    pod = {} if "devices" in job else job
    built = cluster().node(cpu=3, **node).queue("q").gang("job", cpu=3, spec={"overhead": overhead}, **pod)
    why = built.configured({"tiers": [{"plugins": [{"name": "proportion"}]}]}).schedule().why("job")
    assert "CPU cores. Not enough resources due to pod overhead resources" in why


def test_exp3_the_overhead_is_not_named_where_more_is_lacking() -> None:
    built = cluster().node(cpu=3, memory="1G").node("large", cpu=8, memory="8G", unschedulable=True).queue("q")
    why = built.gang("job", cpu=3, memory="2G", spec=OVERHEAD).schedule().why("job")
    assert "overhead" not in why
    assert "1 node(s) didn't have enough resources: CPU cores. \n" in why
    assert "1 node(s) didn't have enough resources: memory." in why


# cycle:ALC-8 as text


def test_alc8_the_three_forms() -> None:
    assert refusal_text(no_place("pod")) == f"Resources were not found for pod ns/p due to: {NO_NODES}"
    assert refusal_text(no_place("gang")) == (
        "Resources were found for 1 pods while 4 are required for gang scheduling. "
        f"Additional pods cannot be scheduled due to: {NO_NODES}"
    )
    assert refusal_text(no_place("subgroup")) == (
        "Resources were found for 1 pods from all sub-groups while sub-group workers requires 4 pods for gang "
        f"scheduling. Additional pods cannot be scheduled in this sub-group due to: {NO_NODES}"
    )


# cycle:EXP-5: why a group waits


def test_exp5_without_errors_the_text_is_the_usual_one() -> None:
    assert group_text(waiting()) == "Unable to schedule podgroup"
    assert detailed_group_text(waiting()) == "\nUnable to schedule podgroup."


def test_exp5_the_reason_of_the_only_error_comes_first() -> None:
    assert group_text(waiting(NoQueue("x"))) == "QueueDoesNotExist: Queue 'x' does not exist."


def test_exp5_several_errors_are_counted_and_sorted_under_the_usual_text() -> None:
    found = group_text(waiting(NoQueue("x"), no_place(), no_place()))
    assert found == (
        f"Unable to schedule podgroup: 2 Resources were not found for pod ns/p due to: {NO_NODES}. \n"
        "Queue 'x' does not exist."
    )


def test_exp5_detailed_form() -> None:
    assert detailed_group_text(waiting(NoQueue("x"))) == "\nQueueDoesNotExist.\nQueue 'x' does not exist."
    assert detailed_group_text(waiting(NoQueue("y"), NoQueue("x"))) == (
        "\nUnable to schedule podgroup.\nQueue 'x' does not exist.\nQueue 'y' does not exist."
    )


# cycle:EXP-6; queues: capacity


def test_exp6_each_refusal_has_its_reason() -> None:
    reasons: list[tuple[Refusal, str]] = [
        (no_place(), "PodSchedulingErrors"),
        (over("quota"), "NonPreemptibleOverQuota"),
        (over("limit"), "OverLimit"),
        (NoQueue("x"), "QueueDoesNotExist"),
        (NotLeafQueue("x"), "QueueDoesNotExist"),
        (BrokenTree("x"), "PodSchedulingErrors"),
        (StrayPod("ns/p", "x", "ns/g"), "PodSchedulingErrors"),
        (NotSupported(("x",)), "PodSchedulingErrors"),
        (NotReady("default", 2, 1, 0), "NotReady"),
    ]
    assert [reason_of(refusal) for refusal, _ in reasons] == [reason for _, reason in reasons]


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        (
            over("limit", "GPU"),
            "Team Q quota has reached the allowable limit of GPUs. Limit is 4 GPUs, currently 3 GPUs allocated and "
            "workload requested 2 GPUs",
        ),
        (
            over("limit", "CPU", bound=4500, used=3250, requested=100),
            "Team Q quota has reached the allowable limit of CPU cores. Limit is 4.5 cores, currently 3.25 cores "
            "allocated and workload requested 0.1 cores",
        ),
        (
            over("limit", "Memory", bound=2e9, used=1.5e9, requested=2**30),
            "Team Q quota has reached the allowable limit of memory. Limit is 2 GB, currently 1.5 GB allocated and "
            "workload requested 1.073 GB",
        ),
        (
            over("quota", "GPU", bound=1, used=0.5, requested=0.75),
            "Non-preemptible workload is over quota. Workload requested 0.75 GPUs, but Team Q quota is 1 GPUs, while "
            "0.5 GPUs are already allocated for non-preemptible pods. Use a preemptible workload to go over quota.",
        ),
        (
            over("quota", "CPU", bound=1000, used=0, requested=1001),
            "Non-preemptible workload is over quota. Workload requested 1.001 CPU cores, but Team Q quota is 1 cores, "
            "while 0 cores are already allocated for non-preemptible pods. "
            "Use a preemptible workload to go over quota.",
        ),
        (
            over("quota", "Memory", bound=1e9, used=1, requested=2e9),
            "Non-preemptible workload is over quota. Workload requested 2 GB memory, but Team Q quota is 1 GB, while "
            "0 GB are already allocated for non-preemptible pods. Use a preemptible workload to go over quota.",
        ),
    ],
    ids=["GPU limit", "CPU limit", "memory limit", "GPU quota", "CPU quota", "memory quota"],
)
def test_q208_limit_and_quota(refusal: OverCapacity, text: str) -> None:
    assert refusal_text(refusal) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (100.0, "100"),
        (1.5, "1.5"),
        (0.1239, "0.123"),
        (1.9999, "1.999"),
        (0.0001, "0"),
        (2 / 3, "0.666"),
        (0.9999999, "1"),
        (inf, "Unlimited"),
    ],
)
def test_q209_numbers_are_cut_to_three_decimals_after_rounding_to_six(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(("value", "text"), [(2.0, "2"), (0.0, "0"), (0.1239, "0.1239"), (1.2, "1.2")])
def test_q209_the_gpus_of_a_quota_message_are_printed_raw(value: float, text: str) -> None:
    assert format_go_float(value) == text
    assert f"Workload requested {text} GPUs" in refusal_text(over("quota", "GPU", requested=value))


# cycle:EXP-10: groups that are not ready


def test_exp10_the_reason_of_a_plain_group_counts_its_missing_pods() -> None:
    assert not_ready_text((NotReady("default", 3, 2, 1),)) == (
        "Job is not ready for scheduling. Waiting for 3 pods, currently 2 exist, 1 are gated"
    )


def test_exp10_subgroups_are_named() -> None:
    found = group_text(waiting(NotReady("a", 3, 2, 1), NotReady("b", 1, 0, 0)))
    assert found == (
        "Job is not ready for scheduling. Waiting for 3 pods for SubGroup a, currently 2 exist, 1 are gated. "
        "Waiting for 1 pods for SubGroup b, currently 0 exist, 0 are gated."
    )


def test_exp10_missing_pods_are_the_only_reason_of_an_incomplete_group() -> None:
    result = cluster(nodes=1, gpus=1).queue("q").gang("job", 1, min=2, gpu=1).schedule()
    assert result.plan.binds == ()
    assert result.why("job") == "Job is not ready for scheduling. Waiting for 2 pods, currently 1 exist, 0 are gated"


def test_exp10_gated_pods_exist_but_do_not_count() -> None:
    built = cluster(nodes=1, gpus=4).queue("q")
    result = built.tree("job", leaf("a", 1, pending=1), leaf("b", 2, pending=1, gated=1), gpu=1).schedule()
    assert result.plan.binds == ()
    assert result.why("job") == (
        "Job is not ready for scheduling. Waiting for 2 pods for SubGroup b, currently 2 exist, 1 are gated."
    )


# The other refusals


def test_the_reason_of_an_orphan_names_what_is_missing() -> None:
    assert orphan_text(OrphanPod("ns", "p", "g")) == "Pod ns/p belongs to PodGroup g, which does not exist (yet)"
    assert orphan_text(OrphanPod("ns", "p", "")) == (
        "Pod ns/p has no annotation pod-group-name; the pod grouper has not put it into a PodGroup (yet)"
    )


def test_broken_trees_and_unsupported_requests_are_named() -> None:
    assert refusal_text(BrokenTree("a is its own parent")) == (
        "The subgroups of the PodGroup are invalid: a is its own parent"
    )
    assert refusal_text(NotSupported(("x", "y"))) == "This scheduler cannot place pods with x and y"


@pytest.mark.parametrize(
    ("milli", "text"), [(0, "0"), (1000, "1"), (250, "250m"), (2500, "2500m"), (3_000_000, "3000")]
)
def test_thousandths_are_written_as_kubernetes_writes_them(milli: int, text: str) -> None:
    assert milli_text(milli) == text


def test_amounts_are_written_in_the_unit_of_their_resource() -> None:
    assert amount_text("cpu", 250) == "250m"
    assert amount_text("memory", 2000) == "2000"
    assert amount_text("nvidia.com/gpu", 2) == "2"
    assert amount_text("example.com/thing", 2000) == "2"


# Why nothing is taken back


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (
            NoEviction("reclaim", "fair_share", "team", "GPU", 6.0, 4.5),
            "reclaim: queue team would have 6 GPUs, more than its fair share of 4.5 GPUs",
        ),
        (
            NoEviction("reclaim", "fair_share", "team", "CPU", 12_500.0, 8000.0),
            "reclaim: queue team would have 12.5 cores, more than its fair share of 8 cores",
        ),
        (
            NoEviction("reclaim", "fair_share", "team", "Memory", 64e9, 32.5e9),
            "reclaim: queue team would have 64 GB, more than its fair share of 32.5 GB",
        ),
        (
            NoEviction("preempt", "quota", "team", "GPU", 10.0, 8.0),
            "preempt: queue team would have 10 GPUs for workloads that cannot be taken back, "
            "more than its quota of 8 GPUs",
        ),
        (
            NoEviction("consolidation", "limit", "team", "GPU", 10.0, 8.0),
            "consolidation: queue team would have 10 GPUs, more than its limit of 8 GPUs",
        ),
        (
            NoEviction("consolidation", "too_little_free", "", "GPU", 8.0, 6.25),
            "consolidation: it asks for 8 GPUs, and only 6.25 GPUs are free in the cluster",
        ),
        (
            NoEviction("reclaim", "alike", other="ns/first"),
            "reclaim: a workload like it, ns/first, was tried and found nothing",
        ),
        (NoEviction("consolidation", "not_preemptible"), "consolidation: only preemptible workloads move others"),
        (
            NoEviction("preempt", "hopeless"),
            "preempt: even without everyone who may be evicted there would be too little room",
        ),
        (NoEviction("preempt", "no_lower_priority", "team"), "preempt: nobody in queue team has a lower priority"),
        (NoEviction("preempt", "no_generator"), "preempt: no plugin says how to choose victims"),
        (NoEviction("reclaim", "generators_exhausted"), "reclaim: no fair set of victims makes enough room"),
        (
            NoEviction("reclaim", "generators_exhausted", other="ns/a has not run for its minimum time yet"),
            "reclaim: no fair set of victims makes enough room: ns/a has not run for its minimum time yet",
        ),
        (NoEviction("reclaim", "deadline_exhausted"), "reclaim: the search was ended by its budget"),
        (NoEviction("reclaim", "not_attempted"), "reclaim: the budget of the action was used up before its turn"),
        (NoEviction("reclaim", "plugin", other="curfew"), "reclaim: plugin curfew failed"),
    ],
)
def test_each_verdict_is_a_sentence(verdict: NoEviction, text: str) -> None:
    """cycle:SOL-3, queues:Q-260, Q-261, Q-204: figures in the units people use."""
    assert no_eviction_text(verdict) == text


def test_sol3_verdicts_are_those_the_actions_give() -> None:
    """cycle:SOL-3: every action that evicts nothing has a verdict, in order."""
    built = cluster(nodes=1, gpus=2).queue("q", quota=1).with_actions("allocate", "consolidation", "reclaim", "preempt")
    result = built.gang("running", 2, gpu=1, on="node-0", preemptible=False).gang("job", gpu=1).schedule()
    record = result.unscheduled("job")
    assert record is not None
    assert [no_eviction_text(verdict) for verdict in record.verdicts] == [
        "consolidation: it asks for 1 GPUs, and only 0 GPUs are free in the cluster",
        "reclaim: queue q would have 3 GPUs, more than its fair share of 2 GPUs",
        "preempt: nobody in queue q has a lower priority",
    ]


# cycle:RCL-2: those who lose something


def figures(**changes: tuple[float, float, float]) -> QueueFigures:
    """A queue with its figures: CPU milli, memory bytes, GPUs."""
    zero = (0.0, 0.0, 0.0)
    usual = {"fair_share": zero, "quota": zero, "limit": zero, "request": zero, "allocated": zero}
    return QueueFigures("q", "Team Q", "", 150, **{**usual, **changes}, allocated_non_preemptible=zero)


def test_rcl2_the_figures_of_a_queue() -> None:
    """cycle:RCL-2: under its display name, at most three decimals, unlimited as a word."""
    told = queue_line(
        figures(allocated=(2500.0, 1_500_000_000.0, 1.23456), quota=(inf, inf, 2.0), fair_share=(4000.0, 8e9, 1.5))
    )
    assert told == (
        "Team Q uses <GPU: 1.234, CPU: 2.5 (cores), memory: 1.5 (GB)> "
        "with a quota of <GPU: 2, CPU: Unlimited (cores), memory: Unlimited (GB)>, "
        "fair-share of <GPU: 1.5, CPU: 4 (cores), memory: 8 (GB)> and queue priority of <150>."
    )


def test_rcl2_the_message_names_both_queues_as_they_were_before() -> None:
    """cycle:RCL-2: the one that loses first."""
    built = cluster(nodes=1, gpus=2).with_actions("reclaim").queue("rich", quota=0, weight=0).queue("poor", quota=2)
    built.gang("running", 2, min=1, gpu=1, queue="rich", on="node-0").gang("claim", gpu=1, queue="poor")
    told = built.schedule().eviction("running-1").message.splitlines()
    assert told[0] == "Pod default/running-1 was preempted by workload default/claim."
    assert told[1].startswith("rich uses <GPU: 2, ")
    assert told[2].startswith("poor uses <GPU: 0, ")
    assert len(told) == 3


def test_rcl2_queues_of_different_parents_are_named_by_their_parents() -> None:
    """cycle:RCL-2"""
    built = cluster(nodes=1, gpus=1).with_actions("reclaim").queue("product", quota=0, weight=0).queue("lab", quota=1)
    built.queue("ads", parent="product", quota=0, weight=0).queue("vision", parent="lab", quota=1)
    built.gang("running", gpu=1, queue="ads", on="node-0").gang("claim", gpu=1, queue="vision")
    told = built.schedule().eviction("running-0").message.splitlines()
    assert [line.split()[0] for line in told[1:]] == ["product", "lab"]


# cycle:POL-4, POL-7: who may not trigger evictions


@pytest.mark.parametrize(
    ("delay_s", "said"), [(300, "5m0s"), (3600, "1h0m0s"), (90, "1m30s"), (0.5, "500ms"), (86_400, "24h0m0s")]
)
def test_q323_the_delay_is_printed_as_go_prints_it(delay_s: float, said: str) -> None:
    """cycle:POL-4, queues:Q-323: in UTC."""
    refusal = WithinDelay(int(delay_s * 1e9), NOW_NS + 60_000_000_000)
    assert refusal_text(refusal) == (
        f"Workload is within its preemption delay window ({said}) and may not trigger evictions "
        "before 2026-01-01T00:01:00Z"
    )
    assert reason_of(refusal) == "PreemptionDelayNotElapsed"


def test_pol7_the_reason_names_a_class_that_never_preempts() -> None:
    """cycle:POL-7"""
    refusal = WithinDelay(0, None)
    assert refusal_text(refusal) == (
        "The priority class of the workload says preemptionPolicy Never; it may not trigger evictions"
    )
    assert reason_of(refusal) == "PreemptionDelayNotElapsed"


def test_q323_the_delay_is_given_once_beside_the_other_reasons() -> None:
    """cycle:POL-4, queues:Q-323: once per cycle, however many actions skip the job."""
    built = cluster(nodes=1, gpus=1).with_actions("allocate", "consolidation", "reclaim", "preempt").queue("q")
    built.gang("running", gpu=1, on="node-0").gang("job", gpu=1, age=60, group_spec={"preemptionDelay": "5m"})
    assert built.schedule().why("job") == (
        "Unable to schedule podgroup: Resources were not found for pod default/job-0 due to: "
        f"{NO_NODES}: 1 node(s) didn't have enough resources: GPUs.. \n"
        "Workload is within its preemption delay window (5m0s) and may not trigger evictions "
        "before 2026-01-01T00:04:00Z."
    )


# cycle:EXP-8: gangs that are incomplete


def test_exp8_the_reason_of_a_stale_gang_counts_what_is_left() -> None:
    """cycle:EXP-8"""
    assert stale_text(StaleGang("ns", "job", 0, 1, 2)) == "Job is stale. 1 pods are active, minMember is 2"
    parts = (("workers", 3, 1), ("chief", 1, 0))
    assert stale_text(StaleGang("ns", "job", 0, 1, 4, parts)) == (
        "Job is stale. 1 pods are active, minMember is 4, subGroup workers minMember is 3 and 1 pods are active, "
        "subGroup chief minMember is 1 and 0 pods are active"
    )


def test_a_budget_names_how_many_others_forbid_it_too() -> None:
    assert over_budget_text(OverBudget("ns/b", 1, 2)).endswith(
        "1 more eviction of its pods, and 2 more forbid it as well"
    )
    assert over_budget_text(OverBudget("ns/b", 0)).endswith("0 more evictions of its pods")


def test_a_domain_that_is_short_is_one_short_line() -> None:
    """topo:5.3: the long form has a line a resource."""
    short = DomainShort("r1", "", 1, 2, (("/gpu", 2.0, 1.0),))
    assert refusal_text(short) in group_text(waiting(short))
    assert refusal_text(short) not in detailed_group_text(waiting(short))
