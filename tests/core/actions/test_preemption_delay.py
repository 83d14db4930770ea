"""Preemption delay: a young job evicts nothing yet (queues:13; cycle:POL-4, POL-7, T-25)."""

from typing import Any

import pytest

from pykai.core.report.decisions import WithinDelay
from pykai.core.report.sentences import reason_of, refusal_text
from tests.core.builders import NOW_NS, Cluster, Result, cluster, timestamp_before

SECOND = 1_000_000_000
EVICTED = "kai.scheduler/last-eviction-timestamp"


def ground(action: str) -> Cluster:
    """A cluster in which `old` blocks `new` and the action may evict or move it."""
    built = cluster(nodes=2, gpus=4).with_actions(action).priority_class("high", 90)
    built.queue("mine", quota=8).queue("theirs", quota=0, weight=0)
    theirs = {"preempt": "mine"}.get(action, "theirs")
    pods = {"consolidation": 2}.get(action, 4)
    for index in range(2):
        built.gang(f"old-{index}", queue=theirs, gpu=pods, on=f"node-{index}")
    return built


def new(built: Cluster, delay: str | None, age: float, *, name: str = "new", **spec: Any) -> Cluster:
    """A job that waits; it is `age` seconds old."""
    if delay is not None:
        spec["preemptionDelay"] = delay
    return built.gang(name, queue="mine", gpu=3, priority="high", age=age, group_spec=spec)


def triggers(result: Result, name: str = "new") -> bool:
    return result.pipelined(name) == 1 and len(result.plan.evictions) > 0


ACTIONS = ("reclaim", "preempt", "consolidation")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(("age", "may"), [(299, False), (300, True), (301, True)])
def test_t25_a_job_triggers_nothing_before_its_delay_is_over(action: str, age: float, may: bool) -> None:
    """cycle:POL-4, T-25; queues:Q-321, Q-322: in each of the three actions, to the second."""
    assert triggers(new(ground(action), "5m", age).schedule()) is may


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("delay", [None, "0s", "-5m", "soon"])
def test_q321_without_a_delay_there_is_no_window(action: str, delay: str | None) -> None:
    """queues:Q-321: null, zero, negative; one that cannot be read counts as none."""
    assert triggers(new(ground(action), delay, 1).schedule())


@pytest.mark.parametrize(("evicted_s", "may"), [(299, False), (301, True)])
def test_q321_the_window_begins_again_with_an_eviction(evicted_s: float, may: bool) -> None:
    """queues:Q-321: the later of creation and last eviction counts."""
    built = new(ground("preempt"), "5m", 1000, annotations={EVICTED: timestamp_before(evicted_s)})
    assert triggers(built.schedule()) is may


def test_q321_an_eviction_before_the_creation_does_not_shorten_the_window() -> None:
    """queues:Q-321."""
    assert not triggers(new(ground("preempt"), "5m", 100, annotations={EVICTED: timestamp_before(1000)}).schedule())


def test_q323_the_refusal_names_the_end_of_the_delay() -> None:
    """queues:Q-323, cycle:POL-4: duration as Go writes it."""
    result = new(ground("preempt"), "1h", 600).schedule()
    record = result.unscheduled("new")
    assert record is not None
    assert record.refusals == (WithinDelay(3600 * SECOND, NOW_NS + 3000 * SECOND),)
    assert reason_of(record.refusals[0]) == "PreemptionDelayNotElapsed"
    assert refusal_text(record.refusals[0]) == (
        "Workload is within its preemption delay window (1h0m0s) and may not trigger evictions before "
        "2026-01-01T00:50:00Z"
    )


def test_q323_it_is_recorded_once_per_cycle() -> None:
    """queues:Q-323: three actions, one refusal; the one of allocate stays too."""
    built = new(ground("preempt"), "5m", 10).with_policy(
        actions=("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
    )
    record = built.schedule().unscheduled("new")
    assert record is not None
    assert [type(refusal).__name__ for refusal in record.refusals] == ["NoPlace", "WithinDelay"]


def test_q323_it_is_recorded_once_though_an_action_in_between_did_something() -> None:
    """queues:Q-323: reclaim serves another job, so preempt tries every job again."""
    built = (
        cluster(nodes=1, gpus=2)
        .with_actions("reclaim", "preempt")
        .queue("mine", quota=2)
        .queue("theirs", quota=0, weight=0)
    )
    built.gang("old", gpu=1, queue="theirs", on="node-0").gang("kept", gpu=1, queue="mine", on="node-0")
    built.gang("next", gpu=1, queue="mine", age=50)
    built.gang("new", gpu=1, queue="mine", age=10, group_spec={"preemptionDelay": "5m"})
    result = built.schedule()
    assert result.evicted_pods() == ["old-0"]
    record = result.unscheduled("new")
    assert record is not None
    assert [type(refusal).__name__ for refusal in record.refusals] == ["WithinDelay"]


def test_q322_the_plan_expires_when_the_window_ends() -> None:
    """queues:Q-322: the answer changes then."""
    assert new(ground("preempt"), "5m", 100).schedule().cycle.state.valid_until_ns == NOW_NS + 200 * SECOND


def test_q322_allocate_ignores_the_delay() -> None:
    """queues:Q-322: on free resources a job starts at once."""
    built = cluster(nodes=1, gpus=4).queue("mine")
    assert new(built, "5m", 1).schedule().bound("new") == 1


def test_t25_a_running_job_with_a_delay_is_still_a_victim() -> None:
    """cycle:T-25, queues:Q-322."""
    built = cluster(nodes=1, gpus=4).with_actions("preempt").queue("mine").priority_class("high", 90)
    built.gang("old", queue="mine", gpu=4, on="node-0", age=5, group_spec={"preemptionDelay": "5m"})
    assert triggers(new(built, None, 1).schedule())


def test_q322_its_demand_still_counts_for_its_queue() -> None:
    """queues:Q-322: the fair share is that of a queue that wants three GPUs."""
    built = cluster(nodes=2, gpus=4).with_actions("reclaim").queue("mine", quota=0).queue("theirs", quota=0)
    built.gang("old", queue="theirs", gpu=4, on="node-0").gang("older", queue="theirs", gpu=4, on="node-1")
    queues = {item.name: item for item in new(built, "5m", 1).schedule().plan.queues}
    assert queues["mine"].request[2] == queues["mine"].fair_share[2] == 3


def test_another_job_of_the_queue_goes_on() -> None:
    """queues:Q-322: the delayed job is not in the queue order."""
    built = new(new(ground("preempt"), "5m", 10, name="young"), None, 5, name="other")
    result = built.schedule()
    assert triggers(result, "other")
    assert not triggers(result, "young")


@pytest.mark.parametrize(("delay", "actions"), [("5m", ["reclaim"]), (None, ["reclaim", "preempt"])])
def test_q321_a_group_that_loses_a_pod_in_this_cycle_waits_from_now_on(delay: str | None, actions: list[str]) -> None:
    """queues:Q-321: a group that loses a pod to reclaim does not preempt in the same cycle."""
    built = (
        cluster(nodes=1, gpus=4).with_actions("reclaim", "preempt").priority_class("high", 90).priority_class("low", 10)
    )
    built.queue("theirs", quota=2, reclaimMinRuntime="1h").queue("mine", quota=2)
    fresh = {"annotations": {"kai.scheduler/last-start-timestamp": timestamp_before(1)}}
    built.gang("low", queue="theirs", gpu=2, on="node-0", priority="low", group_spec=fresh)
    spec: dict[str, Any] = {"minMember": 1, "preemptibility": "preemptible", "priorityClassName": "high"}
    built.group("job", queue="theirs", age=1000, **spec, **({"preemptionDelay": delay} if delay else {}))
    for index in range(3):
        built.pod(f"job-{index}", group="job", gpu=1, on="node-0" if index < 2 else "")
    result = built.gang("new", queue="mine", gpu=1).schedule()
    assert [evicted.action for evicted in result.plan.evictions] == actions
    assert result.evicted("job") == 1


# Priority classes that never preempt


def never(honour: bool, **group: Any) -> Result:
    built = ground("preempt").priority_class("high", 90, policy="Never").priority_class("mid", 80)
    if honour:
        built.with_policy(honour_preemption_policy=True)
    return new(built, None, 1000, **group).schedule()


def test_pol7_upstream_ignores_the_policy_of_the_class() -> None:
    """cycle:POL-7: by default."""
    assert triggers(never(honour=False))


def test_pol7_never_is_an_infinite_delay() -> None:
    """cycle:POL-7, Do better: behind the knob."""
    result = never(honour=True)
    assert not triggers(result)
    record = result.unscheduled("new")
    assert record is not None
    assert record.refusals == (WithinDelay(0, None),)
    assert "preemptionPolicy Never" in refusal_text(record.refusals[0])


@pytest.mark.parametrize("policy", ["", "PreemptLowerPriority"])
def test_pol7_other_policies_change_nothing(policy: str) -> None:
    """cycle:POL-7."""
    built = ground("preempt").priority_class("high", 90, policy=policy).with_policy(honour_preemption_policy=True)
    assert triggers(new(built, None, 1000).schedule())


def test_pol7_a_class_that_does_not_exist_forbids_nothing() -> None:
    """cycle:POL-7: reclaim needs no priority."""
    built = ground("reclaim").with_policy(honour_preemption_policy=True)
    result = built.gang("new", queue="mine", gpu=3, priority="unknown").schedule()
    assert triggers(result)
