"""The order of queues, rule by rule, and what a job counts for (cycle:8.2; queues:10.1).

Everything fits on one large node unless a test says otherwise, so that the order of the binds is the order in which
queues were served.  Pods request GPUs only unless a test says otherwise; CPU and memory of a queue are unlimited.  In
the tests of a rule the queue that must win is called `late`: it is the younger one, so age never explains the outcome.
"""

from typing import Any

import pytest

from tests.core.cycle.rivalqueues import GI, NOTHING, QueueFiller, ground, rivals, share_of

# Rule 1: over its fair share in all resources


def test_a_queue_over_its_share_of_everything_goes_after_one_that_is_not() -> None:
    """queues:10.1 rule 1: even when its priority is higher."""
    poor = {"quota": 0, "weight": 0, "cpu": NOTHING, "memory": NOTHING, "priority": 200}
    plain = {"quota": 0, "cpu": (0, -1, 1), "memory": (0, -1, 1)}
    filled = QueueFiller(rivals(early=poor, late=plain)).has("early", gpu=1, cpu=1, memory="1Gi")
    result = filled.asks("early", gpu=1).asks("late", gpu=1).built.schedule()
    assert share_of(result, "early") == (0, 0, 0)
    assert result.order() == ["late", "early"]


@pytest.mark.parametrize("spared", ["gpu", "cpu", "memory"])
def test_a_queue_within_its_share_of_one_resource_is_not_over(spared: str) -> None:
    """queues:10.1 rule 1: all three must be over; the higher priority decides."""
    poor = {"quota": 0, "weight": 0, "cpu": NOTHING, "memory": NOTHING, "priority": 200}
    plain = {"quota": 0, "cpu": (0, -1, 1), "memory": (0, -1, 1)}
    held: dict[str, Any] = {"gpu": 1, "cpu": 1, "memory": "1Gi"}
    held.pop(spared)
    filled = QueueFiller(rivals(early=plain, late=poor)).has("late", **held)
    assert filled.asks("early", gpu=1).asks("late", gpu=1).order() == ["late", "early"]


@pytest.mark.parametrize("exact", ["gpu", "cpu", "memory"])
def test_a_queue_with_exactly_its_share_is_not_over(exact: str) -> None:
    """queues:10.1 rule 1: strictly."""
    blocks: dict[str, Any] = {"quota": 0, "weight": 0, "cpu": NOTHING, "memory": NOTHING, "priority": 200}
    blocks.update({"quota": 1} if exact == "gpu" else {exact: (1000, -1, 0)})
    plain = {"quota": 0, "cpu": (0, -1, 1), "memory": (0, -1, 1)}
    filled = QueueFiller(rivals(early=plain, late=blocks)).has("late", gpu=1, cpu=1, memory=1_000_000_000)
    result = filled.asks("early", gpu=1).asks("late", gpu=1).built.schedule()
    assert share_of(result, "late")[("cpu", "memory", "gpu").index(exact)] > 0
    assert result.order() == ["late", "early"]


# Rule 2: starved, which is within the quota with the job


def test_o1_a_starved_queue_goes_first() -> None:
    """queues:19.5 O1: the other has 20 with quota 2 and share 99."""
    filled = QueueFiller(rivals(early={"quota": 2}, late={"quota": 2}, gpus=101)).has("early", gpu=20)
    filled.asks("early", gpu=1).asks("early", "more", gpu=78).asks("late", gpu=1).asks("late", "rest", gpu=1)
    result = filled.built.schedule()
    assert (share_of(result, "early")[2], share_of(result, "late")[2]) == (99, 2)
    assert result.order()[0] == "late"


def test_o2_starvation_beats_priority() -> None:
    """queues:19.5 O2"""
    filled = QueueFiller(rivals(early={"quota": 2, "priority": 1}, late={"quota": 2, "priority": 0}, gpus=101))
    filled.has("early", gpu=20).asks("early", gpu=1).asks("early", "more", gpu=78).asks("late", gpu=1)
    result = filled.built.schedule()
    assert share_of(result, "early")[2] == 99
    assert result.order()[0] == "late"


def test_a_queue_that_reaches_its_quota_exactly_with_the_job_is_starved_and_one_beyond_it_is_not() -> None:
    """queues:10.1 rule 2: 3 + 1 of 4 is starved, 1 + 2 of 2 is not."""
    filled = QueueFiller(rivals(early={"quota": 2, "priority": 200}, late={"quota": 4}))
    filled.has("early", gpu=1).has("late", gpu=3).asks("early", gpu=2).asks("late", gpu=1)
    assert filled.order() == ["late", "early"]


@pytest.mark.parametrize("beyond", ["gpu", "cpu", "memory"])
def test_a_queue_beyond_its_quota_of_one_resource_is_not_starved(beyond: str) -> None:
    """queues:10.1 rule 2: all three."""
    short: dict[str, Any] = {"quota": 5, "cpu": (5000, -1, 1), "memory": (5 * GI / 1e6, -1, 1), "priority": 200}
    job: dict[str, Any] = {"gpu": 5, "cpu": 5, "memory": 5 * GI}
    job[beyond] = {"gpu": 6, "cpu": 6, "memory": 6 * GI}[beyond]
    filled = QueueFiller(rivals(early=short, late={"quota": 5}))
    assert filled.asks("early", **job).asks("late", gpu=5, cpu=5, memory="5Gi").order() == ["late", "early"]


def test_an_unlimited_quota_is_never_used_up() -> None:
    """queues:10.1 rule 2; queues:Q-1."""
    filled = QueueFiller(rivals(early={"quota": 0, "priority": 200}, late={"quota": -1})).has("late", gpu=300)
    assert filled.asks("early", gpu=1).asks("late", gpu=1).order() == ["late", "early"]


# Rule 3: priority


def test_o3_among_queues_that_are_not_starved_the_higher_priority_goes_first() -> None:
    """queues:19.5 O3"""
    filled = QueueFiller(rivals(early={"quota": 2, "priority": 0}, late={"quota": 2, "priority": 1}, gpus=101))
    filled.has("late", gpu=20).has("early", gpu=3)
    filled.asks("late", gpu=1).asks("late", "more", gpu=78).asks("early", gpu=1)
    result = filled.built.schedule()
    assert (share_of(result, "late")[2], share_of(result, "early")[2]) == (99, 2)
    assert result.order()[0] == "late"


def test_o4_priority_decides_whatever_the_dominant_shares_are() -> None:
    """queues:19.5 O4"""
    filled = QueueFiller(rivals(early={"quota": 2, "priority": 0}, late={"quota": 2, "priority": 1}, gpus=179))
    filled.has("late", gpu=20).has("early", gpu=3)
    filled.asks("late", gpu=1).asks("late", "more", gpu=78).asks("early", gpu=1).asks("early", "rest", gpu=76)
    result = filled.built.schedule()
    assert (share_of(result, "late")[2], share_of(result, "early")[2]) == (99, 80)
    assert result.order()[0] == "late"


def test_among_starved_queues_the_higher_priority_goes_first_too() -> None:
    """queues:10.1 rule 3"""
    filled = QueueFiller(rivals(early={"quota": 50}, late={"quota": 50, "priority": 101})).has("late", gpu=40)
    assert filled.asks("early", gpu=1).asks("late", gpu=1).order() == ["late", "early"]


def test_a_queue_without_priority_has_100() -> None:
    """queues:10.1 rule 3"""
    filled = QueueFiller(rivals(early={"quota": 50, "priority": 99}, late={"quota": 50})).has("late", gpu=40)
    assert filled.asks("early", gpu=1).asks("late", gpu=1).order() == ["late", "early"]


# Rule 4: forbidden resources


#: a queue that requests the least of a forbidden resource, and one with a far larger dominant share
_VIOLATORS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "gpu": ({"quota": 0, "weight": 0}, {"fraction": 0.1}, {"quota": 0, "cpu": (1, -1, 0)}, {"cpu": 1}),
    "cpu": ({"quota": 0, "cpu": NOTHING}, {"cpu": "1m"}, {"quota": 0, "memory": (1, -1, 0)}, {"memory": "10Gi"}),
    "memory": ({"quota": 0, "memory": NOTHING}, {"memory": 1}, {"quota": 0, "cpu": (1, -1, 0)}, {"cpu": 2}),
}


@pytest.mark.parametrize("resource", _VIOLATORS)
def test_a_queue_that_would_use_a_forbidden_resource_goes_last(resource: str) -> None:
    """queues:10.1 rule 4: before the dominant shares are compared."""
    violator, little, other, much = _VIOLATORS[resource]
    filled = QueueFiller(rivals(early=violator, late=other)).asks("early", **little).asks("late", **much)
    assert filled.order() == ["late", "early"]


def test_a_queue_that_already_uses_a_forbidden_resource_goes_last() -> None:
    """queues:10.1 rule 4: allocated + request, though the job requests none of it."""
    none, other = {"quota": 0, "weight": 0, "cpu": (1, -1, 1)}, {"quota": 0, "cpu": (1, -1, 0)}
    filled = QueueFiller(rivals(early=none, late=other)).has("early", gpu=1).has("late", cpu=2)
    assert filled.asks("early", cpu=1).asks("late", cpu=1).order() == ["late", "early"]


def test_a_queue_that_does_not_use_a_forbidden_resource_is_not_a_violator() -> None:
    """queues:10.1 rule 4"""
    none, other = {"quota": 0, "weight": 0, "cpu": (0, -1, 1)}, {"quota": 0, "cpu": (0, -1, 1)}
    filled = QueueFiller(rivals(early=other, late=none)).has("early", cpu=5)
    assert filled.asks("early", cpu=1).asks("late", cpu=1).order() == ["late", "early"]


# Rules 5 and 6: dominant shares


def test_the_smaller_dominant_share_with_the_job_goes_first() -> None:
    """queues:10.1 rule 5: 5 of 10 before 8 of 10, though the other has nothing yet."""
    filled = QueueFiller(rivals(early={"quota": 10}, late={"quota": 10})).has("late", gpu=4)
    assert filled.asks("early", gpu=8).asks("late", gpu=1).order() == ["late", "early"]


def test_the_largest_share_of_the_three_resources_counts() -> None:
    """queues:10.1 rule 5: 0.2 of the GPUs and 0.6 of the CPU is 0.6."""
    filled = QueueFiller(rivals(early={"quota": 10, "cpu": (10_000, -1, 1)}, late={"quota": 10}))
    assert filled.asks("early", gpu=2, cpu=6).asks("late", gpu=5).order() == ["late", "early"]
    filled = QueueFiller(rivals(early={"quota": 10, "memory": (10_000, -1, 1)}, late={"quota": 10}))
    assert filled.asks("early", gpu=2, memory=6_000_000_000).asks("late", gpu=5).order() == ["late", "early"]


def test_of_an_unlimited_queue_the_share_is_that_of_the_cluster() -> None:
    """queues:1.3: 30 of 100 is more than 10 of 50."""
    filled = QueueFiller(rivals(early={"quota": -1}, late={"quota": 50}, gpus=100))
    assert filled.asks("early", gpu=30).asks("late", gpu=10).order() == ["late", "early"]


def test_a_limit_bounds_what_an_unlimited_queue_may_have() -> None:
    """queues:1.3: Allocatable is the limit; 6 of 20 is more than 10 of 50."""
    filled = QueueFiller(rivals(early={"quota": -1, "limit": 20}, late={"quota": -1, "limit": 50}))
    assert filled.asks("early", gpu=6).asks("late", gpu=10).order() == ["late", "early"]


def test_a_limit_bounds_a_quota() -> None:
    """queues:1.3"""
    filled = QueueFiller(rivals(early={"quota": 50, "limit": 20}, late={"quota": 50}))
    assert filled.asks("early", gpu=6).asks("late", gpu=10).order() == ["late", "early"]


def test_a_fair_share_beyond_the_quota_counts() -> None:
    """queues:1.3: 10 of a share of 40 is less than 6 of a quota of 20."""
    filled = QueueFiller(rivals(early={"quota": 20}, late={"quota": 10})).asks("early", gpu=6).asks("late", gpu=10)
    result = filled.asks("late", "more", gpu=30).built.schedule()
    assert share_of(result, "late")[2] == 40
    assert result.order()[0] == "late"


def test_a_quota_beyond_the_fair_share_counts() -> None:
    """queues:1.3: a share is never more than the request; 4 of 20 is less than 3 of 10."""
    filled = QueueFiller(rivals(early={"quota": 10}, late={"quota": 20}))
    assert filled.asks("early", gpu=3).asks("late", gpu=4).order() == ["late", "early"]


@pytest.mark.parametrize("resource", ["gpu", "cpu", "memory"])
def test_between_two_violators_the_smaller_amount_goes_first(resource: str) -> None:
    """queues:1.3: nothing to divide by, so the amount itself is compared."""
    none: dict[str, Any] = {"quota": 0, "weight": 0, "cpu": NOTHING, "memory": NOTHING}
    two: dict[str, Any] = {resource: 2}
    one: dict[str, Any] = {resource: 1}
    filled = QueueFiller(rivals(early=none, late=none)).asks("early", **two).asks("late", **one)
    assert filled.order() == ["late", "early"]


def test_between_two_violators_a_whole_gpu_weighs_as_much_as_a_milli_core() -> None:
    """queues:1.3: units are devices and milli-cores, each times 1000."""
    filled = QueueFiller(rivals(early={"quota": 0, "cpu": NOTHING}, late={"quota": 0, "weight": 0}))
    assert filled.asks("early", cpu="3m").asks("late", gpu=2).order() == ["late", "early"]
    filled = QueueFiller(rivals(early={"quota": 0, "weight": 0}, late={"quota": 0, "cpu": NOTHING}))
    assert filled.asks("early", gpu=3).asks("late", cpu="2m").order() == ["late", "early"]


def test_with_equal_shares_the_queue_that_has_less_goes_first() -> None:
    """queues:10.1 rule 6: 4 + 4 and 6 + 2 of 10."""
    filled = QueueFiller(rivals(early={"quota": 10}, late={"quota": 10})).has("early", gpu=6).has("late", gpu=4)
    assert filled.asks("early", gpu=2).asks("late", gpu=4).order() == ["late", "early"]


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_what_a_queue_has_of_any_resource_counts(resource: str) -> None:
    """queues:10.1 rule 6: the share with the job is that of GPUs, and equal."""
    spec = {"quota": 10, "cpu": (10_000, -1, 1), "memory": (10_000, -1, 1)}
    held: dict[str, Any] = {"cpu": 4} if resource == "cpu" else {"memory": 4_000_000_000}
    filled = QueueFiller(rivals(early=spec, late=spec)).has("early", **held)
    assert filled.asks("early", gpu=5).asks("late", gpu=5).order() == ["late", "early"]


# Rules 7 and 8


@pytest.mark.parametrize("resource", ["gpu", "cpu", "memory"])
def test_with_equal_shares_the_queue_that_may_have_less_goes_first(resource: str) -> None:
    """queues:10.1 rule 7: less of one resource, not more of any."""
    large: dict[str, Any] = {"quota": 20, "cpu": (20_000, -1, 1), "memory": (20_000, -1, 1)}
    small = {**large, **({"quota": 10} if resource == "gpu" else {resource: (10_000, -1, 1)})}
    filled = QueueFiller(rivals(early=large, late=small))
    assert filled.asks("early", gpu=10).asks("late", gpu=small["quota"] // 2).order() == ["late", "early"]


@pytest.mark.parametrize("more", ["cpu", "memory"])
def test_less_of_one_and_more_of_another_decides_nothing(more: str) -> None:
    """queues:10.1 rules 7, 8: the older one goes first."""
    one: dict[str, Any] = {"quota": 20, "cpu": (10_000, -1, 1), "memory": (10_000, -1, 1)}
    other = {**one, "quota": 10, more: (20_000, -1, 1)}
    filled = QueueFiller(rivals(early=one, late=other)).asks("early", gpu=10).asks("late", gpu=5)
    assert filled.order() == ["early", "late"]
    filled = QueueFiller(rivals(early=other, late=one)).asks("early", gpu=5).asks("late", gpu=10)
    assert filled.order() == ["early", "late"]


def test_ties_are_settled_pairwise_from_the_oldest() -> None:
    """queues:10.1 rule 7 is no total order: c goes before a, b is like neither, so c, a, b."""
    built = ground()
    built.queue("a", quota=20, cpu=(20_000, -1, 1), age=30)
    built.queue("b", quota=10, cpu=(30_000, -1, 1), age=20)
    built.queue("c", quota=20, cpu=(10_000, -1, 1), age=10)
    assert QueueFiller(built).asks("a", gpu=10).asks("b", gpu=5).asks("c", gpu=10).order() == ["c", "a", "b"]


def test_of_two_that_beat_the_oldest_the_older_goes_first() -> None:
    """queues:10.1 rules 7, 8"""
    built = ground()
    built.queue("a", quota=20, cpu=(20_000, -1, 1), age=30)
    built.queue("c", quota=10, cpu=(20_000, -1, 1), age=20)
    built.queue("b", quota=20, cpu=(10_000, -1, 1), age=10)
    assert QueueFiller(built).asks("a", gpu=10).asks("b", gpu=10).asks("c", gpu=5).order() == ["c", "b", "a"]


def test_equal_queues_are_served_by_age() -> None:
    """queues:10.1 rule 8; cycle:ORD-2."""
    built = ground().queue("a", quota=10, age=10).queue("b", quota=10, age=20)
    assert QueueFiller(built).asks("a", gpu=1).asks("b", gpu=1).order() == ["b", "a"]


def test_queues_of_one_age_are_served_by_name() -> None:
    """queues:10.1, Do better; cycle:ORD-2, ORD-5: upstream answers "the right one" whichever way it is asked."""
    built = ground().queue("b", quota=10, age=10).queue("c", quota=10, age=10).queue("a", quota=10, age=10)
    assert QueueFiller(built).asks("c", gpu=1).asks("a", gpu=1).asks("b", gpu=1).order() == ["a", "b", "c"]


# What a job requests (queues:Q-230)


def _gpu_memory(late: tuple[int, int], early: tuple[int, int]) -> list[str]:
    """Two queues with 40 of 50 GPUs of 10000 MiB; each job is (pods, MiB)."""
    built = ground(gpu_memory=10_000).queue("early", quota=50, age=20).queue("late", quota=50, age=10)
    filled = QueueFiller(built).has("early", gpu=40).has("late", gpu=40)
    filled.asks("early", pods=early[0], gpu_memory=early[1]).asks("late", pods=late[0], gpu_memory=late[1])
    return filled.order()


def test_o5_gpu_memory_counts_as_part_of_a_gpu() -> None:
    """queues:19.5 O5: two halves against two whole ones."""
    assert _gpu_memory(late=(2, 5000), early=(2, 10_000)) == ["late", "early"]


def test_o6_more_memory_on_as_many_gpus_is_more() -> None:
    """queues:19.5 O6"""
    assert _gpu_memory(late=(4, 2000), early=(4, 8000)) == ["late", "early"]


def test_gpu_memory_is_converted_by_the_smallest_gpu() -> None:
    """queues:Q-230; cycle:ALC-9: 6000 MiB are 0.6 of 10000, which is more than a half, and 0.3 of 20000."""
    built = ground(gpu_memory=10_000).node(gpus=8, gpu_memory=20_000)
    built.queue("early", quota=10, age=20).queue("late", quota=10, age=10)
    filled = QueueFiller(built).asks("early", gpu_memory=6000).asks("late", fraction=0.5)
    assert filled.order() == ["late", "early"]


def test_every_device_of_a_gpu_memory_request_counts() -> None:
    """queues:Q-230"""
    filled = QueueFiller(rivals(early={"quota": 10}, late={"quota": 10}))
    assert filled.asks("early", gpu_memory=400, devices=2).asks("late", fraction=0.5).order() == ["late", "early"]


def test_a_job_requests_its_missing_minimum_and_not_all_its_pods() -> None:
    """queues:Q-230"""
    filled = QueueFiller(rivals(early={"quota": 10}, late={"quota": 10}))
    assert filled.asks("early", pods=2, gpu=1).asks("late", pods=5, min=1, gpu=1).order() == ["late", "early"]


def test_a_job_that_has_its_minimum_requests_one_more_pod() -> None:
    """queues:Q-230; cycle:PG-9: 3 + 1 of 10 before 5 of 10, not 3 + 3."""
    filled = QueueFiller(ground().queue("a", quota=10).queue("b", quota=10)).asks("a", "grows", pods=4, min=3, gpu=1)
    pods = [bind.pod for bind in filled.asks("b", gpu=5).built.schedule().plan.binds]
    assert pods == ["grows-0", "grows-1", "grows-2", "grows-3", "b-0"]


def test_the_first_job_of_a_queue_represents_it() -> None:
    """cycle:ORD-2: the larger second job does not count yet."""
    filled = QueueFiller(rivals(early={"quota": 50}, late={"quota": 50}))
    filled.asks("early", gpu=2).asks("late", gpu=1).asks("late", "huge", gpu=40)
    assert filled.order() == ["late", "early", "huge"]
