"""Ungate: pods behind the gate of their queue are admitted as far as its quota and limit go (queues:17.2)."""

from typing import Any

import pytest
from msgspec import UNSET

from pykai.api.decode import decode_object
from pykai.core.cycle.memory import CycleMemory
from pykai.core.model.gates import OPENING_GATE
from pykai.core.model.status import TaskStatus
from pykai.core.report.decisions import BrokenTree, NoQueue, NotLeafQueue, NotReady, OverCapacity
from pykai.core.report.sentences import reason_of, refusal_text
from pykai.core.schedule import schedule
from tests.core.builders import NOW_NS, Cluster, Result, branch, cluster, leaf, timestamp_before

S = 1_000_000_000
GATE = "kai.scheduler/queue-admission"
ADMITTED = "kai.scheduler/queue-admitted-timestamp"


def behind(*gates: str) -> dict[str, Any]:
    """How a pod behind these gates is."""
    return {"spec": {"schedulingGates": [{"name": gate} for gate in gates]}}


HELD = behind(GATE)


def gated(*, quota: float = -1, limit: float = -1, **more: Any) -> Cluster:
    """A cluster without nodes, with the feature on, and a queue that gates."""
    return on(cluster().queue("q", quota=quota, limit=limit, admissionGating=True, **more))


def on(built: Cluster, *, timeout: float = 600, actions: tuple[str, ...] = ("allocate", "ungate")) -> Cluster:
    return built.with_policy(actions=actions, admission_reservation_ns=int(timeout * S))


def opened(result: Result) -> list[str]:
    """Pods whose gate is removed, in order."""
    return [item.pod for item in result.plan.ungates or ()]


def admitted_at(age: float) -> dict[str, Any]:
    return {"annotations": {ADMITTED: timestamp_before(age)}}


def ungated(
    built: Cluster, name: str, pods: int = 1, *, age: float = 5, queue: str = "q", preemptible: bool = True, **how: Any
) -> Cluster:
    """A group of young pods that never had a gate."""
    built.group(name, queue=queue, preemptibility="preemptible" if preemptible else "non-preemptible")
    for index in range(pods):
        built.pod(f"{name}-{index}", group=name, age=age, **how)
    return built


# queues:Q-406: quota for non-preemptible work, the limit for all


@pytest.mark.parametrize(
    ("preemptible", "quota", "limit", "count"),
    [(False, 2, -1, 2), (True, 2, -1, 4), (True, 2, 3, 3), (False, 4, 3, 3), (False, 0, -1, 0), (True, 0, 0, 0)],
)
def test_groups_are_admitted_up_to_the_quota_and_the_limit(
    preemptible: bool, quota: float, limit: float, count: int
) -> None:
    built = gated(quota=quota, limit=limit)
    for index in range(4):
        built.gang(f"job-{index}", gpu=1, preemptible=preemptible, **HELD)
    assert opened(built.schedule()) == [f"job-{index}-0" for index in range(count)]


def test_what_runs_counts_to_quota_and_limit() -> None:
    built = on(cluster(nodes=1, gpus=8).queue("q", quota=3, limit=3, admissionGating=True))
    built.gang("running", 2, gpu=1, on="node-0", preemptible=False).gang("job", 2, min=1, gpu=1, **HELD)
    assert opened(built.schedule()) == ["job-0"]


def test_what_starts_in_this_cycle_counts_too() -> None:
    built = on(cluster(nodes=1, gpus=8).queue("q", limit=1, admissionGating=True))
    built.gang("pending", gpu=1).gang("job", gpu=1, **HELD)
    result = built.schedule()
    assert result.bound("pending") == 1
    assert opened(result) == []


@pytest.mark.parametrize(("limit", "quota"), [(2, -1), (-1, 2)])
def test_every_level_of_the_queues_is_checked(limit: float, quota: float) -> None:
    built = on(cluster().queue("root", limit=limit).queue("middle", parent="root", quota=quota))
    for name in ("a", "b"):
        built.queue(name, parent="middle", admissionGating=True)
        built.gang(f"{name}-job", 3, min=0, gpu=1, queue=name, preemptible=False, **HELD)
    assert sorted(opened(built.schedule())) == ["a-job-0", "b-job-0"]


def test_pods_in_deletion_are_charged() -> None:
    """A pod that is admitted and may not start would look like one that lacks a node."""
    built = on(cluster(nodes=1, gpus=8).queue("q", limit=1, admissionGating=True))
    built.gang("leaving", gpu=1, on="node-0", deleted=5).gang("job", gpu=1, **HELD)
    result = built.schedule()
    assert opened(result) == []
    assert "1 GPUs are still held by pods being deleted" in result.why("job")


def test_gpu_memory_counts_as_on_the_largest_gpu() -> None:
    """queues:Q-202"""
    built = on(cluster(nodes=1, gpus=1, gpu_memory=10_000).queue("q", limit=1, admissionGating=True))
    built.gang("half", 3, min=0, gpu_memory=5000, **HELD)
    assert opened(built.schedule()) == ["half-0", "half-1"]


# queues:Q-407: the whole minimum, then one by one


def test_the_minimum_of_a_gang_is_admitted_whole_or_not_at_all() -> None:
    result = gated(limit=3).gang("big", 4, gpu=1, **HELD).gang("small", 2, gpu=1, **HELD).schedule()
    assert opened(result) == ["small-0", "small-1"]
    (refusal,) = result.refusals("big")
    assert reason_of(refusal) == "OverLimit"


def test_elastic_pods_are_admitted_one_by_one() -> None:
    assert opened(gated(limit=3).gang("job", 5, min=2, gpu=1, **HELD).schedule()) == ["job-0", "job-1", "job-2"]


def test_a_group_is_served_a_hundred_times_in_a_cycle_at_most() -> None:
    """The minimum of two, 99 pods one by one; the rest is for the next cycles, and other groups lose nothing."""
    result = gated().gang("job", 150, min=2, gpu=1, **HELD).gang("other", 3, min=1, gpu=1, **HELD).schedule()
    assert [sum(pod.startswith(name) for pod in opened(result)) for name in ("job-", "other-")] == [101, 3]
    assert result.unscheduled("job") is None


def test_the_minimum_is_that_of_the_subgroup_tree() -> None:
    parts = [
        branch(name, leaf(f"{name}-lead", 1, pending=1, **HELD), leaf(f"{name}-work", 2, pending=2, **HELD))
        for name in ("a", "b")
    ]
    for limit, count in ((2, 0), (3, 3), (5, 3), (6, 6)):
        built = gated(limit=limit).tree("job", *parts, needs=1, gpu=1)
        assert len(opened(built.schedule())) == count, limit


def test_a_gang_that_lost_a_pod_gets_its_replacement_admitted() -> None:
    built = on(cluster(nodes=1, gpus=8).queue("q", limit=3, admissionGating=True))
    built.group("job", minMember=3).pod("job-0", group="job", gpu=1, on="node-0")
    built.pod("job-1", group="job", gpu=1, on="node-0").pod("job-2", group="job", gpu=1, **HELD)
    assert opened(built.schedule()) == ["job-2"]


def test_a_gang_that_lacks_pods_waits_without_a_verdict() -> None:
    result = gated().group("job", minMember=2).pod("job-0", group="job", **HELD).schedule()
    assert opened(result) == []
    assert result.refusals("job") == (NotReady("default", 2, 1, 1),)


# queues:Q-406: only pods of which ours is the only gate


def test_foreign_gates_are_never_touched() -> None:
    result = gated().gang("both", **behind(GATE, "example.com/later")).gang("foreign", **behind("example.com/later"))
    assert opened(result.schedule()) == []


def test_a_pod_behind_a_foreign_gate_does_not_count_to_the_minimum() -> None:
    built = gated().group("job", minMember=2).pod("job-0", group="job", **HELD)
    built.pod("job-1", group="job", **behind("example.com/later"))
    assert opened(built.schedule()) == []
    assert opened(built.pod("job-2", group="job", **HELD).schedule()) == ["job-0", "job-2"]


def test_pods_of_another_scheduler_are_not_touched() -> None:
    assert opened(gated().gang("job", scheduler="other", **HELD).schedule()) == []


# queues:Q-406: order


def test_queues_take_turns() -> None:
    built = on(cluster().queue("root", limit=4))
    for name in ("a", "b"):
        built.queue(name, parent="root", admissionGating=True, quota=0)
        built.gang(name, 8, min=0, gpu=1, queue=name, preemptible=True, **HELD)
    assert opened(built.schedule()) == ["a-0", "b-0", "a-1", "b-1"]


def test_queues_take_turns_with_equal_groups() -> None:
    built = on(cluster().queue("root", limit=4))
    for name in ("a", "b"):
        built.queue(name, parent="root", admissionGating=True, quota=0)
        for index in range(3):
            built.gang(f"{name}{index}", gpu=1, queue=name, preemptible=True, **HELD)
    assert opened(built.schedule()) == ["a0-0", "b0-0", "a1-0", "b1-0"]


def test_groups_go_by_priority_then_age() -> None:
    built = gated(limit=2).priority_class("high", 90).gang("old", gpu=1, preemptible=True, **HELD)
    built.gang("young", gpu=1, preemptible=True, **HELD)
    built.gang("urgent", gpu=1, priority="high", preemptible=True, **HELD)
    assert opened(built.schedule()) == ["urgent-0", "old-0"]


def test_a_gang_that_was_left_half_admitted_goes_first() -> None:
    """queues:Q-408: in all queues, since what was admitted of it holds a reservation."""
    built = on(cluster().queue("root", limit=3), actions=("ungate",))
    built.queue("a", parent="root", admissionGating=True).queue("b", parent="root", admissionGating=True)
    built.gang("waiting", gpu=1, queue="a", **HELD)
    built.group("half", queue="b", minMember=3).pod("half-0", group="half", gpu=1, **admitted_at(5))
    built.pod("half-1", group="half", gpu=1, **HELD).pod("half-2", group="half", gpu=1, **HELD)
    assert opened(built.schedule()) == ["half-1", "half-2"]


@pytest.mark.parametrize(
    ("how", "first"),
    [
        (admitted_at(5), "half-1"),
        # It came without a gate: no scheduler has left it half admitted.
        ({}, "urgent-0"),
        (admitted_at(-100), "urgent-0"),
        (admitted_at(1_000_000), "urgent-0"),
        ({**admitted_at(5), "scheduler": "other"}, "urgent-0"),
    ],
)
def test_a_pod_without_a_gate_does_not_take_its_gang_past_the_line(how: dict[str, Any], first: str) -> None:
    """queues:Q-408"""
    built = on(cluster().queue("q", admissionGating=True), actions=("ungate",)).priority_class("high", 90)
    built.group("half", minMember=2).pod("half-0", group="half", gpu=1, age=3600, **how)
    built.pod("half-1", group="half", gpu=1, **HELD)
    built.gang("urgent", gpu=1, priority="high", preemptible=True, **HELD)
    assert opened(built.schedule())[0] == first


def test_a_time_of_admission_counts_once_it_has_come() -> None:
    """A gang that is taken over from the last cycle sees the time of this one."""
    built = on(cluster().queue("q", limit=1, admissionGating=True), actions=("ungate",)).priority_class("high", 90)
    built.group("half", minMember=2).pod("half-0", group="half", age=3600, **admitted_at(-100))
    built.pod("half-1", group="half", gpu=1, **HELD)
    built.gang("urgent", gpu=1, priority="high", preemptible=True, **HELD)
    tables, memory, policy = built.tables(), CycleMemory(), built.policy()
    for seconds, pod in ((0, "urgent-0"), (100, "half-1")):
        plan = schedule(tables.snapshot(NOW_NS + seconds * S), policy, memory)
        assert [item.pod for item in plan.ungates or ()] == [pod]


def test_a_gang_that_runs_and_grows_does_not_go_first() -> None:
    built = on(cluster(nodes=1, gpus=8).queue("q", limit=2, admissionGating=True)).priority_class("high", 90)
    built.group("grows", minMember=1).pod("grows-0", group="grows", gpu=1, on="node-0")
    built.pod("grows-1", group="grows", gpu=1, **HELD)
    built.gang("urgent", gpu=1, priority="high", preemptible=True, **HELD)
    assert opened(built.schedule()) == ["urgent-0"]


def test_a_gang_whose_minimum_is_raised_while_it_runs_waits_in_line() -> None:
    """ADR-35: stepwise, an elastic group would always go first, in all queues."""
    built = on(cluster(nodes=1, gpus=8).queue("q", limit=2, admissionGating=True)).priority_class("high", 90)
    built.group("raised", minMember=2).pod("raised-0", group="raised", gpu=1, on="node-0", **admitted_at(5))
    built.pod("raised-1", group="raised", gpu=1, **HELD)
    built.gang("urgent", gpu=1, priority="high", preemptible=True, **HELD)
    assert opened(built.schedule()) == ["urgent-0"]


@pytest.mark.parametrize(("age", "first"), [(599, "half-1"), (601, "urgent-0")])
def test_what_is_left_half_admitted_goes_first_while_its_reservation_lasts(age: float, first: str) -> None:
    """ADR-35"""
    built = on(cluster().queue("q", limit=2, admissionGating=True), actions=("ungate",)).priority_class("high", 90)
    built.group("half", minMember=2).pod("half-0", group="half", age=3600, gpu=1, **admitted_at(age))
    built.pod("half-1", group="half", gpu=1, **HELD)
    built.gang("urgent", gpu=1, priority="high", preemptible=True, **HELD)
    assert opened(built.schedule())[0] == first


# queues:Q-406: reservations


@pytest.mark.parametrize(
    ("how", "count"),
    [
        (admitted_at(5), 0),
        (admitted_at(601), 1),
        # Without a time the reservation begins with the pod, which is an hour old.
        ({}, 1),
        ({"age": 5}, 0),
        # No user extends it: a time in the future or before the pod was created is not true.
        (admitted_at(-100), 1),
        ({"age": 5, **admitted_at(700)}, 0),
        ({"annotations": {ADMITTED: "now"}}, 1),
        # Its removal is being written.
        ({**admitted_at(0), **behind(OPENING_GATE)}, 0),
        # A gate of another program came with it: it was never admitted.
        ({**admitted_at(5), **behind("example.com/later")}, 1),
        ({**admitted_at(5), "scheduler": "other"}, 1),
    ],
)
def test_pods_that_were_admitted_and_wait_hold_a_reservation(how: dict[str, Any], count: int) -> None:
    built = on(cluster().queue("q", limit=1, admissionGating=True), actions=("ungate",))
    built.group("waits").pod("waits-0", group="waits", gpu=1, **{"age": 3600, **how}).gang("job", gpu=1, **HELD)
    result = built.schedule()
    assert len(opened(result)) == count
    if not count:
        assert refusal_text(result.refusals("job")[0]) == (
            "q quota has reached the allowable limit of GPUs. Limit is 1 GPUs, currently 0 GPUs allocated and workload "
            "requested 1 GPUs. 1 GPUs are reserved for pods that were admitted and wait for a node"
        )


@pytest.mark.parametrize("preemptible", [True, False])
def test_a_pod_that_its_queues_could_never_take_reserves_nothing(preemptible: bool) -> None:
    """It came without a gate, and would keep out everything below the queue above."""
    built = on(cluster().queue("root", quota=2, limit=4), actions=("ungate",))
    built.queue("a", parent="root").queue("b", parent="root", admissionGating=True)
    ungated(built, "huge", gpu=1_000_000, queue="a", preemptible=preemptible)
    built.gang("job", 4, min=0, gpu=1, queue="b", preemptible=preemptible, **HELD)
    assert len(opened(built.schedule())) == (4 if preemptible else 2)


def test_pods_without_a_gate_reserve_no_more_than_their_own_queue_may_take() -> None:
    built = on(cluster().queue("root", limit=4), actions=("ungate",))
    built.queue("a", parent="root", limit=1).queue("b", parent="root", admissionGating=True)
    ungated(built, "many", 8, gpu=1, queue="a").gang("job", 4, min=0, gpu=1, queue="b", **HELD)
    assert len(opened(built.schedule())) == 3


def test_admitted_pods_reserve_before_those_without_a_gate() -> None:
    """An older pod without a gate takes nothing from what was promised."""
    built = on(cluster().queue("q", limit=4, admissionGating=True), actions=("ungate",))
    ungated(built, "older", gpu=1, age=500).gang("promised", gpu=4, **admitted_at(5))
    assert opened(built.gang("job", gpu=1, **HELD).schedule()) == []


def test_pods_without_a_gate_reserve_oldest_first() -> None:
    for ages, count in (((400, 5), 0), ((5, 400), 3)):
        built = on(cluster().queue("q", limit=4, admissionGating=True), actions=("ungate",))
        ungated(ungated(built, "big", gpu=4, age=ages[0]), "small", gpu=1, age=ages[1])
        assert len(opened(built.gang("job", 4, min=0, gpu=1, **HELD).schedule())) == count


def test_a_pod_that_names_no_subgroup_of_its_group_reserves_nothing() -> None:
    """cycle:PG-4: it is never placed."""
    built = on(cluster().queue("q", limit=1, admissionGating=True), actions=("ungate",))
    built.group("waits").pod("waits-0", group="waits", gpu=1, subgroup="none", **admitted_at(5))
    assert opened(built.gang("job", gpu=1, **HELD).schedule()) == ["job-0"]


def test_a_pod_that_pauses_after_a_failed_bind_keeps_its_reservation() -> None:
    built = gated(limit=1).gang("pauses", gpu=1, **admitted_at(5)).assume("pauses-0", TaskStatus.GATED)
    assert opened(built.gang("job", gpu=1, **HELD).schedule()) == []


@pytest.mark.parametrize(("reserving", "count"), [("preemptible", 2), ("non-preemptible", 0), ("semi-preemptible", 1)])
def test_reservations_of_non_preemptible_work_count_to_the_quota(reserving: str, count: int) -> None:
    built = gated(quota=2).group("waits", minMember=1, preemptibility=reserving)
    built.pod("waits-0", group="waits", gpu=1, **admitted_at(5)).pod("waits-1", group="waits", gpu=1, **admitted_at(5))
    built.gang("job", 2, min=0, gpu=1, preemptible=False, **HELD)
    assert len(opened(built.schedule())) == count


def test_the_running_core_of_a_semi_preemptible_group_leaves_the_rest_preemptible() -> None:
    """queues:Q-415: one pod runs and is the minimum, so what waits does not count to the quota."""
    built = on(cluster(nodes=1, gpus=8).queue("q", quota=2, admissionGating=True), actions=("ungate",))
    built.group("waits", minMember=1, preemptibility="semi-preemptible")
    built.pod("waits-0", group="waits", gpu=1, on="node-0").pod("waits-1", group="waits", gpu=1, **admitted_at(5))
    built.gang("job", 2, min=0, gpu=1, preemptible=False, **HELD)
    assert opened(built.schedule()) == ["job-0"]


def test_a_pod_that_starts_in_this_cycle_is_not_charged_twice() -> None:
    """queues:Q-406: it is allocated, and reserves nothing besides."""
    built = on(cluster(nodes=1, gpus=8).queue("q", limit=2, admissionGating=True))
    ungated(built, "starts", gpu=1).gang("job", gpu=1, **HELD)
    result = built.schedule()
    assert result.bound("starts") == 1
    assert opened(result) == ["job-0"]


def test_a_pod_of_a_queue_with_children_reserves_nothing() -> None:
    """queues:Q-65: it is never placed."""
    built = on(cluster().queue("root", limit=1).queue("q", parent="root", admissionGating=True), actions=("ungate",))
    built.gang("lost", gpu=1, queue="root", **admitted_at(5)).gang("job", gpu=1, **HELD)
    assert opened(built.schedule()) == ["job-0"]


@pytest.mark.parametrize(("memory", "count"), [("1Gi", 1), ("2Gi", 0)])
def test_the_memory_of_pods_that_want_gpu_memory_is_reserved_too(memory: str, count: int) -> None:
    """queues:Q-202, Q-406: two GiB are the limit."""
    built = on(cluster(nodes=1, gpus=1, gpu_memory=10_000), actions=("ungate",))
    built.queue("q", memory=(-1, 2147.483648, 1), admissionGating=True)
    built.gang("waits", gpu_memory=1000, memory=memory, **admitted_at(5)).gang("job", memory="1Gi", **HELD)
    assert len(opened(built.schedule())) == count


@pytest.mark.parametrize(("preemptible", "rule", "used"), [(True, "limit", 3), (False, "quota", 2)])
def test_what_is_reserved_is_named_besides_what_is_allocated(preemptible: bool, rule: str, used: float) -> None:
    """queues:Q-406: two pods that are not preemptible run and one that is, and one more waits for a node."""
    built = cluster(nodes=1, gpus=8)
    built.queue("q", quota=3 if rule == "quota" else -1, limit=4 if rule == "limit" else -1, admissionGating=True)
    built.gang("fixed", 2, gpu=1, on="node-0", preemptible=False).gang("loose", gpu=1, on="node-0")
    on(built, actions=("ungate",)).gang("waits", gpu=1, preemptible=preemptible, **admitted_at(5))
    result = built.gang("job", gpu=1, preemptible=preemptible, **HELD).schedule()
    (refusal,) = result.refusals("job")
    assert isinstance(refusal, OverCapacity)
    assert (refusal.rule, refusal.used, refusal.reserved) == (rule, used, 1)


def test_pods_of_a_group_are_admitted_in_task_order() -> None:
    """cycle:8.5: the oldest first, whichever was seen first."""
    built = gated(limit=1).group("job", minMember=0)
    built.pod("young", group="job", gpu=1, age=5, **HELD).pod("old", group="job", gpu=1, age=50, **HELD)
    assert opened(built.schedule()) == ["old"]


def test_a_group_that_has_changed_is_judged_as_it_is_now() -> None:
    """What the last cycle leaves behind is for groups that are the same."""
    built = gated(limit=2).gang("big", 3, gpu=1, age=100, **HELD)
    tables, memory, policy = built.tables(), CycleMemory(), built.policy()
    assert not schedule(tables.snapshot(NOW_NS), policy, memory).ungates
    for item in cluster().group("big", minMember=2, preemptibility="preemptible", age=100).objects:
        tables.apply(decode_object(item))
    plan = schedule(tables.snapshot(NOW_NS), policy, memory)
    assert [item.pod for item in plan.ungates or ()] == ["big-0", "big-1"]


def test_the_plan_holds_until_a_reservation_ends() -> None:
    tables = on(cluster().queue("q", limit=1, admissionGating=True))
    tables.gang("waits", gpu=1, **admitted_at(500)).gang("job", gpu=1, **HELD)
    memory, objects, policy = CycleMemory(), tables.tables(), tables.policy()
    assert not schedule(objects.snapshot(NOW_NS), policy, memory).ungates
    assert memory.valid_until_ns == NOW_NS + 100 * S
    assert not schedule(objects.snapshot(NOW_NS + 99 * S), policy, memory).ungates
    assert [item.pod for item in schedule(objects.snapshot(NOW_NS + 100 * S), policy, memory).ungates or ()] == [
        "job-0"
    ]


def test_a_plan_that_opens_gates_is_not_kept() -> None:
    built = gated(limit=1).gang("job", gpu=1, **HELD)
    memory, tables, policy = CycleMemory(), built.tables(), built.policy()
    plan = schedule(tables.snapshot(NOW_NS), policy, memory)
    assert plan.ungates
    assert memory.recall(tables.snapshot(NOW_NS), policy) is None


def test_gangs_that_are_taken_over_decide_alike() -> None:
    """What the last cycle leaves behind changes nothing, whether or not a group has changed since."""
    built = gated(limit=2).gang("big", 3, gpu=1, **HELD).gang("small", 3, min=1, gpu=1, **HELD)
    tables, memory, policy = built.tables(), CycleMemory(), built.policy()
    for change in (cluster().namespace("other"), cluster().pod("big-3", group="big", gpu=1, **HELD), cluster(nodes=1)):
        for item in change.objects:
            tables.apply(decode_object(item))
        kept = schedule(tables.snapshot(NOW_NS), policy, memory)
        assert [item.pod for item in kept.ungates or ()] == ["small-0", "small-1"]
        assert kept.encoded() == schedule(tables.snapshot(NOW_NS), policy).encoded()
        assert memory.reuse is not None
        assert list(memory.reuse.admission_gangs) == ["default/big"]


def test_the_ledger_is_as_before() -> None:
    """Neither what is admitted nor what is reserved is allocated."""
    built = gated(limit=3).gang("waits", gpu=1, preemptible=False, **admitted_at(5))
    result = built.gang("job", gpu=1, preemptible=False, **HELD).schedule()
    assert opened(result) == ["job-0"]
    (queue,) = result.plan.queues
    assert queue.allocated == (0, 0, 0)
    assert queue.allocated_non_preemptible == (0, 0, 0)


# Reasons


def test_a_group_that_may_not_be_admitted_says_why() -> None:
    result = gated(quota=1).gang("job", 2, gpu=1, preemptible=False, **HELD).schedule()
    record = result.unscheduled("job")
    assert record is not None
    assert record.pending == 0
    (refusal,) = record.refusals
    assert isinstance(refusal, OverCapacity)
    assert reason_of(refusal) == "NonPreemptibleOverQuota"
    assert "2 GPUs, but q quota is 1 GPUs" in refusal_text(refusal)
    assert refusal.reserved is UNSET


def test_a_group_that_is_admitted_has_no_reason_left() -> None:
    assert gated().gang("job", 2, **HELD).schedule().unscheduled("job") is None


@pytest.mark.parametrize("actions", [("allocate", "ungate"), ("ungate",)])
def test_without_its_queue_a_group_stays_gated_and_says_so(actions: tuple[str, ...]) -> None:
    """queues:Q-408"""
    result = on(cluster().gang("job", queue="gone", **HELD), actions=actions).schedule()
    assert opened(result) == []
    assert result.refusals("job") == (NoQueue("gone"),)


def test_a_namespace_that_may_not_use_the_queue_stays_gated_and_says_so() -> None:
    """access:engine; nor is it demand."""
    result = gated(allowed="other").gang("job", gpu=1, **HELD).schedule()
    assert opened(result) == []
    assert "may not use queue 'q'" in result.why("job")
    (queue,) = result.plan.queues
    assert queue.request[2] == 0


@pytest.mark.parametrize("actions", [("allocate", "ungate"), ("ungate",)])
def test_a_queue_with_children_admits_nothing(actions: tuple[str, ...]) -> None:
    built = on(gated().queue("child", parent="q").gang("job", **HELD), actions=actions)
    result = built.schedule()
    assert opened(result) == []
    assert result.refusals("job") == (NotLeafQueue("q"),)


def test_only_the_reason_that_the_gate_gave_is_dropped() -> None:
    """One of two subgroups is needed, and the other can never be complete."""
    parts = [{"name": "a", "minMember": 1}, {"name": "b", "minSubGroup": 3}, {"name": "c", "parent": "b"}]
    built = gated().group("job", subGroups=parts, minSubGroup=1).pod("job-0", group="job", subgroup="a", **HELD)
    result = built.schedule()
    assert opened(result) == ["job-0"]
    assert {type(refusal) for refusal in result.refusals("job")} == {BrokenTree}


@pytest.mark.parametrize("actions", [("allocate", "ungate"), ("ungate",)])
def test_a_group_with_a_broken_tree_is_not_admitted_and_says_so(actions: tuple[str, ...]) -> None:
    """cycle:PG-1"""
    twice = [{"name": "a", "minMember": 1}, {"name": "a", "minMember": 1}]
    result = on(gated(), actions=actions).group("job", subGroups=twice).pod("job-0", group="job", **HELD).schedule()
    assert opened(result) == []
    (refusal,) = result.refusals("job")
    assert isinstance(refusal, BrokenTree)


# queues:Q-407: gates that have no purpose


def test_where_the_queue_does_not_gate_the_gate_is_opened() -> None:
    built = on(cluster().queue("q", limit=0)).gang("job", 2, gpu=1, **HELD).gang("foreign", **behind(GATE, "x.io/a"))
    plan = built.schedule().plan
    assert [(item.pod, item.queue) for item in plan.ungates or ()] == [("job-0", ""), ("job-1", "")]


@pytest.mark.parametrize("enabled", [True, False])
def test_a_group_whose_gates_are_opened_is_not_said_to_lack_pods(enabled: bool) -> None:
    """queues:Q-407: the event would be out of date when it is read."""
    built = cluster().queue("q").gang("job", 2, gpu=1, **HELD).gang("lacks", 1, min=2, gpu=1)
    result = (on(built) if enabled else built).schedule()
    assert opened(result) == ["job-0", "job-1"]
    assert result.unscheduled("job") is None
    assert {type(refusal) for refusal in result.refusals("lacks")} == {NotReady}


def test_with_the_feature_off_every_gate_is_opened() -> None:
    built = cluster().queue("q", limit=0, admissionGating=True).gang("job", gpu=1, **HELD)
    built.gang("lost", queue="gone", **HELD).pod("alone", **HELD).pod("foreign", **behind(GATE, "x.io/a"))
    plan = built.schedule().plan
    assert [(item.pod, item.queue) for item in plan.ungates or ()] == [("alone", ""), ("job-0", ""), ("lost-0", "")]


def test_a_gate_that_comes_later_is_opened_too() -> None:
    built = cluster().queue("q").gang("waits", gpu=1)
    tables, memory, policy = built.tables(), CycleMemory(), built.policy()
    assert not schedule(tables.snapshot(NOW_NS), policy, memory).ungates
    later = cluster().pod("late", **HELD).tables()
    tables.apply(later._pods["default/late"])
    assert [item.pod for item in schedule(tables.snapshot(NOW_NS), policy, memory).ungates or ()] == ["late"]


def test_another_shard_opens_the_gates_of_its_groups() -> None:
    built = cluster().sharded(node_pool_key="pool", node_pool="").queue("q")
    built.group("job", labels={"pool": "other"}).pod("job-0", group="job", **HELD)
    assert opened(built.schedule()) == []


def test_plans_without_gates_have_the_bytes_they_had() -> None:
    encoded = cluster(nodes=1).queue("q", limit=0).gang("job", gpu=1).schedule().plan.encoded()
    assert b"ungates" not in encoded
    assert b"reserved" not in encoded


# queues: fair share


@pytest.mark.parametrize(("enabled", "gpus"), [(True, 3.0), (False, 1.0)])
def test_what_waits_for_admission_is_requested_of_the_queue(enabled: bool, gpus: float) -> None:
    built = cluster(nodes=1, gpus=8).queue("q", limit=0, admissionGating=True).gang("pending", gpu=1)
    built.gang("job", 2, gpu=1, **HELD).gang("foreign", gpu=1, **behind("example.com/later"))
    (queue,) = (on(built) if enabled else built).schedule().plan.queues
    assert queue.request[2] == gpus


def test_gpu_memory_that_waits_for_admission_is_requested_too() -> None:
    built = on(cluster(nodes=1, gpus=1, gpu_memory=10_000).queue("q", limit=0, admissionGating=True))
    (queue,) = built.gang("job", 2, gpu_memory=2500, **HELD).schedule().plan.queues
    assert queue.request[2] == 0.5
