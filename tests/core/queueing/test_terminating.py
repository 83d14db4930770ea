"""Pods in deletion are charged for what they still hold (ADR 20, amending queues:Q-105 and cycle:SNP-18)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pykai.api.decode import decode_object
from pykai.core.cycle.memory import CycleMemory
from pykai.core.model.status import TaskStatus
from pykai.core.report.decisions import Evict, OverCapacity, Plan
from pykai.core.report.sentences import refusal_text
from pykai.core.schedule import schedule
from tests.core.builders import NOW_NS, Cluster, Raw, Result, cluster, timestamp_before

SECOND = 1_000_000_000
LIMIT_TEXT = (
    "q quota has reached the allowable limit of GPUs. Limit is 2 GPUs, currently 0 GPUs allocated and workload "
    "requested 2 GPUs. 2 GPUs are still held by pods being deleted"
)


def leaving(
    built: Cluster,
    name: str = "old",
    *,
    gpu: int = 2,
    in_s: float = 20,
    grace_s: int = 30,
    queue: str = "q",
    phase: str = "Running",
    evicted_for: str | None = None,
    preemptible: bool = True,
    on: str = "node-0",
    **pod: Any,
) -> Cluster:
    """A pod that is being deleted: its grace of `grace_s` ends `in_s` from now."""
    built.group(name, queue=queue, minMember=1, preemptibility="preemptible" if preemptible else "non-preemptible")
    built.pod(name, group=name, gpu=gpu, on=on, deleted=-in_s, phase=phase, **pod)
    raw = built.objects[-1]
    raw["metadata"]["deletionGracePeriodSeconds"] = grace_s
    if evicted_for is not None:
        raw["status"]["conditions"] = [marked(evicted_for)]
    return built


def marked(preemptor_uid: str, preemptor: str = "default/job") -> Raw:
    """The condition that the scheduler writes on its victims."""
    message = f"{preemptor}/{preemptor_uid}" if preemptor_uid else ""
    return {"type": "kai.scheduler/EvictedFor", "status": "True", "reason": "preempt", "message": message}


def limited(limit: float = 2, nodes: int = 2) -> Cluster:
    """A large node, and a queue with this GPU limit."""
    return cluster(nodes=nodes, gpus=8).queue("q", limit=limit)


def outcome(result: Result, group: str = "job") -> str:
    """The outcome of a group."""
    if result.bound(group):
        return "starts"
    return "promised" if result.pipelined(group) else "waits"


def test_a_start_is_charged_with_terminating_pods() -> None:
    result = leaving(limited()).gang("job", gpu=2).schedule()
    assert outcome(result) == "promised"


def test_the_reason_names_the_amount_held_by_terminating_pods() -> None:
    result = leaving(limited()).gang("job", gpu=2).schedule()
    (item,) = result.plan.nominations
    assert item.held is not None
    assert refusal_text(item.held) == LIMIT_TEXT


def test_a_start_that_fits_beside_terminating_pods_is_allowed() -> None:
    result = leaving(limited(limit=4)).gang("job", gpu=2).schedule()
    assert outcome(result) == "starts"


@pytest.mark.parametrize("at", ["q", "mid", "top"])
def test_ancestors_charge_terminating_pods_too(at: str) -> None:
    limits = dict.fromkeys(("q", "mid", "top"), -1.0) | {at: 2.0}
    built = cluster(nodes=1, gpus=8).queue("top", limit=limits["top"]).queue("mid", parent="top", limit=limits["mid"])
    built.queue("q", parent="mid", limit=limits["q"])
    assert outcome(leaving(built).gang("job", gpu=2).schedule()) == "promised"


def test_terminating_pods_of_another_queue_do_not_count() -> None:
    built = leaving(limited().queue("other", limit=2), queue="other")
    assert outcome(built.gang("job", gpu=2).schedule()) == "starts"


@pytest.mark.parametrize(
    ("how", "becomes"),
    [
        ({"grace_s": 120, "in_s": 100}, "promised"),
        ({"grace_s": 121, "in_s": 100}, "waits"),
        ({"in_s": -120}, "promised"),
        ({"in_s": -121}, "waits"),
        # A pod that never ran is not stuck, and holds its node as long.
        ({"in_s": -120, "phase": "Pending"}, "promised"),
        ({"in_s": -121, "phase": "Pending"}, "waits"),
    ],
)
def test_a_pipelined_pod_is_charged_with_stuck_pods(how: dict[str, Any], becomes: str) -> None:
    result = leaving(limited(), **how).gang("job", gpu=2).schedule()
    assert outcome(result) == becomes
    if becomes == "waits":
        assert LIMIT_TEXT in result.why("job")


def test_the_text_without_terminating_pods_is_the_recorded_one() -> None:
    result = limited().gang("job", gpu=3).schedule()
    assert "deleted" not in result.why("job")


@pytest.mark.parametrize(("preemptible", "becomes"), [(False, "promised"), (True, "starts")])
def test_the_quota_of_non_preemptible_work_is_charged_too(preemptible: bool, becomes: str) -> None:
    built = leaving(cluster(nodes=2, gpus=8).queue("q", quota=2), preemptible=False)
    result = built.gang("job", gpu=2, preemptible=preemptible).schedule()
    assert outcome(result) == becomes


def test_terminating_preemptible_work_does_not_count_for_the_quota() -> None:
    built = leaving(cluster(nodes=2, gpus=8).queue("q", quota=2), preemptible=True)
    assert outcome(built.gang("job", gpu=2, preemptible=False).schedule()) == "starts"


def test_the_protected_part_of_a_terminating_semi_preemptible_group_is_charged_to_the_quota() -> None:
    """queues:Q-418: of three terminating pods, the two protected ones."""
    for quota, becomes in ((4, "starts"), (3, "promised")):
        built = cluster(nodes=2, gpus=8).queue("q", quota=quota)
        built.group("old", minMember=2, preemptibility="semi-preemptible")
        for index in range(3):
            built.pod(f"old-{index}", group="old", gpu=1, on="node-0", deleted=-20)
        assert outcome(built.gang("job", gpu=2, preemptible=False).schedule()) == becomes


@pytest.mark.parametrize(
    ("old", "quota", "becomes"),
    [
        # One of two protected pods runs: the other adds 1 to what the queue has.
        ([{}, {"deleted": -20}], 4, "starts"),
        ([{}, {"deleted": -20}], 3, "promised"),
        # Pods that go soon are not charged to a promise, pods that stay long are.
        ([{"deleted": -20}], 2, "promised"),
        ([{"deleted": 121}], 2, "waits"),
        ([{"deleted": 121}], 3, "starts"),
    ],
)
def test_the_quota_counts_what_terminating_pods_add_to_a_protected_part(
    old: list[dict[str, Any]], quota: int, becomes: str
) -> None:
    """queues:Q-418: of a semi-preemptible group with a minimum of two."""
    built = cluster(nodes=2, gpus=8).queue("q", quota=quota)
    built.group("old", minMember=2, preemptibility="semi-preemptible")
    for index, how in enumerate(old):
        built.pod(f"old-{index}", group="old", gpu=1, on="node-0", **how)
    assert outcome(built.gang("job", gpu=2, preemptible=False).schedule()) == becomes


@pytest.mark.parametrize(
    ("preemptibility", "becomes"), [("non-preemptible", "starts"), ("semi-preemptible", "promised")]
)
def test_the_quota_spares_non_preemptible_victims_but_no_protected_part(preemptibility: str, becomes: str) -> None:
    """A protected part is not split by task, so it stays charged to the group its pods were evicted for."""
    built = leaving(cluster(nodes=2, gpus=8).queue("q", quota=2), evicted_for="job")
    group = next(raw for raw in built.objects if raw["kind"] == "PodGroup")
    group["spec"]["preemptibility"] = preemptibility
    assert outcome(built.gang("job", gpu=2, preemptible=False).schedule()) == becomes


def test_a_gang_does_not_start_in_parts() -> None:
    """cycle:ALC-5: one of two would be within the limit."""
    result = leaving(limited(limit=3)).gang("job", pods=2, gpu=1).schedule()
    assert (result.bound("job"), result.pipelined("job")) == (0, 2)


def test_of_an_elastic_group_as_many_start_as_are_allowed() -> None:
    result = leaving(limited(limit=3)).gang("job", pods=2, min=1, gpu=1).schedule()
    assert (result.bound("job"), result.pipelined("job")) == (1, 1)


def test_a_gpu_fraction_is_charged_by_its_node() -> None:
    """Half of the larger GPU would be within the limit, all of the smaller is not."""
    built = cluster(nodes=1, gpus=1, gpu_memory=500).node("large", gpus=1, gpu_memory=1000)
    built.queue("q", limit=1.5).node("far", gpus=1, gpu_memory=500, labels={"far": "yes"})
    leaving(built, gpu=1, on="large")
    result = built.gang("job", gpu_memory=500, spec={"nodeSelector": {"far": "yes"}}).schedule()
    assert outcome(result) == "promised"
    (item,) = result.plan.nominations
    assert item.held is not None
    assert item.held.leaving == 1.0


def test_what_was_evicted_for_a_group_is_not_charged_to_it() -> None:
    for how in ({}, {"grace_s": 600, "in_s": 500}, {"in_s": -500}):
        result = leaving(limited(), evicted_for="job", **how).gang("job", gpu=2).schedule()  # type: ignore[arg-type]
        assert outcome(result) == "starts"


def test_what_was_evicted_for_a_group_is_charged_to_others() -> None:
    result = leaving(limited(), evicted_for="another").gang("job", gpu=2).schedule()
    assert outcome(result) == "promised"


@pytest.mark.parametrize("evicted_for", ["another", ""])
def test_a_victim_with_a_long_grace_period_does_not_block_pipelining(evicted_for: str) -> None:
    """Otherwise every other group would evict once more for what is being freed already."""
    built = leaving(limited(), evicted_for=evicted_for, grace_s=600, in_s=500)
    assert outcome(built.gang("job", gpu=2).schedule()) == "promised"


def test_an_assumed_eviction_is_charged_to_a_start() -> None:
    built = limited().group("old", minMember=1).pod("old", group="old", gpu=2, on="node-0")
    built.assume("old", TaskStatus.RELEASING)
    assert outcome(built.gang("job", gpu=2).schedule()) == "promised"


def test_a_group_that_backs_off_is_charged_for_its_terminating_pods() -> None:
    built = leaving(limited())
    group = next(raw for raw in built.objects if raw["kind"] == "PodGroup")
    group["spec"]["schedulingBackoff"] = 1
    group["status"] = {"schedulingConditions": [{"nodePool": "default", "transitionID": "1"}]}
    assert outcome(built.gang("job", gpu=2).schedule()) == "promised"


def test_fair_shares_and_requests_do_not_count_terminating_pods() -> None:
    with_it = leaving(limited()).schedule().plan.queues
    without = limited().schedule().plan.queues
    assert [replace_names(item) for item in with_it] == [replace_names(item) for item in without]


def replace_names(item: Any) -> tuple[Any, ...]:
    return (item.name, item.request, item.fair_share, item.allocated, item.allocated_non_preemptible)


# Over time


class Days:
    """A cluster over several cycles: bound pods run, evicted ones end with their grace period."""

    def __init__(self, built: Cluster, *actions: str) -> None:
        self.tables = built.tables()
        self.policy = replace(built.policy(), actions=actions or ("allocate", "reclaim", "preempt"))
        self.raws: dict[str, Raw] = {raw["metadata"]["name"]: raw for raw in built.objects if raw["kind"] == "Pod"}
        self.now_s = 0.0
        self.memory = CycleMemory()
        self.evictions: list[Evict] = []

    def cycle(self) -> Plan:
        """Decide, with and without plan reuse, and carry the decisions out."""
        at_ns = NOW_NS + int(self.now_s * 1e9)
        plan = schedule(self.tables.snapshot(at_ns), self.policy, self.memory)
        assert plan.encoded() == schedule(self.tables.snapshot(at_ns), self.policy).encoded()
        for bind in plan.binds:
            raw = self.raws[bind.pod]
            raw["spec"]["nodeName"], raw["status"]["phase"] = bind.node, "Running"
            self.tables.apply(decode_object(raw))
        for eviction in plan.evictions:
            self.evictions.append(eviction)
            self.raws[eviction.pod]["status"]["conditions"] = [marked(eviction.preemptor_uid, eviction.preemptor)]
            self.delete(eviction.pod, self.raws[eviction.pod]["spec"].get("terminationGracePeriodSeconds", 30))
        return plan

    def delete(self, pod: str, grace_s: int) -> None:
        """Delete a pod."""
        meta = self.raws[pod]["metadata"]
        meta["deletionTimestamp"] = timestamp_before(-self.now_s - grace_s)
        meta["deletionGracePeriodSeconds"] = grace_s
        self.tables.apply(decode_object(self.raws[pod]))

    def gone(self, pod: str) -> None:
        """A pod is gone."""
        del self.raws[pod]
        self.tables.remove("Pod", "default", pod)


def one_after_the_other(plan: Plan) -> tuple[list[str], list[str], list[str]]:
    return (
        [item.pod for item in plan.binds],
        [item.pod for item in plan.nominations],
        [item.pod for item in plan.evictions],
    )


@pytest.mark.parametrize(("nodes", "others"), [(1, 0), (1, 2), (2, 2)])
def test_a_victim_with_ten_minutes_of_grace_costs_one_eviction(nodes: int, others: int) -> None:
    """In its own queue, at its limit, whether or not there are other victims and free resources elsewhere."""
    built = cluster(nodes=nodes, gpus=2 + others).queue("q", limit=2 + others)
    built.priority_class("low", 10).priority_class("high", 20)
    slow = {"terminationGracePeriodSeconds": 600}
    for index in range(others // 2):
        built.gang(f"other{index}", gpu=2, on="node-0", priority="low", spec=slow, age=2000)
    built.gang("victim", gpu=2, on="node-0", priority="low", spec=slow, age=1000)
    built.gang("job", gpu=2, priority="high")
    days = Days(built)
    assert one_after_the_other(days.cycle()) == ([], ["job-0"], ["victim-0"])
    started_s = None
    for _ in range(70):
        days.now_s += 10
        if days.now_s == 610:
            days.gone("victim-0")
        plan = days.cycle()
        if plan.binds and started_s is None:
            started_s = days.now_s
    assert [eviction.pod for eviction in days.evictions] == ["victim-0"]
    # Without another node, the job starts when its victim is gone.
    assert started_s == (610 if nodes == 1 else 10)


def test_a_victim_of_another_queue_costs_one_eviction_below_a_limited_parent() -> None:
    built = cluster(nodes=1, gpus=2).queue("top", limit=2)
    built.queue("rich", parent="top", quota=0).queue("poor", parent="top", quota=1)
    slow = {"terminationGracePeriodSeconds": 600}
    for index in range(2):
        built.gang(f"greedy{index}", gpu=1, on="node-0", queue="rich", spec=slow)
    built.gang("needy", gpu=1, queue="poor")
    days = Days(built)
    days.cycle()
    (eviction,) = days.evictions
    for _ in range(60):
        days.now_s += 10
        assert one_after_the_other(days.cycle()) == ([], ["needy-0"], [])
    days.gone(eviction.pod)
    assert one_after_the_other(days.cycle()) == (["needy-0"], [], [])


@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_pod_that_becomes_stuck_ends_a_reused_plan(phase: str) -> None:
    """For a pod that never ran, only this charge changes."""
    days = Days(limited().gang("old", gpu=2, on="node-0", phase=phase).gang("job", gpu=2), "allocate")
    days.delete("old-0", 30)
    days.now_s = 149
    assert one_after_the_other(days.cycle())[1] == ["job-0"]
    days.now_s = 150
    assert one_after_the_other(days.cycle())[1] == ["job-0"]
    days.now_s = 151
    plan = days.cycle()
    assert one_after_the_other(plan) == ([], [], [])
    (record,) = plan.unscheduled
    (refusal,) = record.refusals
    assert isinstance(refusal, OverCapacity)
    assert refusal.leaving == 2.0
