"""The order of queues, the walk over their tree, and which jobs take part (cycle:8.1, 8.2; queues:10).

Everything fits on one large node unless a test says otherwise, so that the order of the binds is the order in which
queues were served.  Pods request GPUs only unless a test says otherwise; CPU and memory of a queue are unlimited.  In
the tests of a rule the queue that must win is called `late`: it is the younger one, so age never explains the outcome.
"""

from typing import Any

import pytest

from pykai.core.report.decisions import BrokenTree, NoQueue, NotLeafQueue, NotReady
from tests.core.builders import Cluster, Result, cluster

GI = 1024**3
#: a block (quota, limit, weight) that gives nothing
NOTHING = (0.0, -1.0, 0.0)


def ground(gpus: int = 400, **node: Any) -> Cluster:
    return cluster(nodes=1, gpus=gpus, pods=1000, **node)


def rivals(*, late: dict[str, Any], early: dict[str, Any], gpus: int = 400) -> Cluster:
    """Two top-level queues."""
    return ground(gpus).queue("early", age=20, **early).queue("late", age=10, **late)


class _Asks:
    """Fills queues: `has` gives one running pod, `asks` a waiting job of one pod."""

    def __init__(self, built: Cluster) -> None:
        self.built = built
        self._count = 0

    def has(self, queue: str, gpu: int = 0, cpu: str | int = 0, memory: str | int = 0) -> "_Asks":
        self._count += 1
        self.built.gang(f"old-{self._count}", queue=queue, on="node-0", gpu=gpu, cpu=cpu, memory=memory)
        return self

    def asks(self, queue: str, name: str = "", pods: int = 1, **job: Any) -> "_Asks":
        self.built.gang(name or queue, pods=pods, queue=queue, **{"cpu": 0, "memory": 0, **job})
        return self

    def order(self) -> list[str]:
        """Names of the jobs in the order they were served; a job is called like its queue unless it has a name."""
        return self.built.schedule().order()


def share_of(result: Result, queue: str) -> tuple[float, float, float]:
    """Fair share: CPU milli, memory bytes, GPUs."""
    return next(figures.fair_share for figures in result.plan.queues if figures.name == queue)


# Rule 1: over its fair share in all resources


def test_a_queue_over_its_share_of_everything_goes_after_one_that_is_not() -> None:
    """queues:10.1 rule 1: even when its priority is higher."""
    poor = {"quota": 0, "weight": 0, "cpu": NOTHING, "memory": NOTHING, "priority": 200}
    plain = {"quota": 0, "cpu": (0, -1, 1), "memory": (0, -1, 1)}
    filled = _Asks(rivals(early=poor, late=plain)).has("early", gpu=1, cpu=1, memory="1Gi")
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
    filled = _Asks(rivals(early=plain, late=poor)).has("late", **held)
    assert filled.asks("early", gpu=1).asks("late", gpu=1).order() == ["late", "early"]


@pytest.mark.parametrize("exact", ["gpu", "cpu", "memory"])
def test_a_queue_with_exactly_its_share_is_not_over(exact: str) -> None:
    """queues:10.1 rule 1: strictly."""
    blocks: dict[str, Any] = {"quota": 0, "weight": 0, "cpu": NOTHING, "memory": NOTHING, "priority": 200}
    blocks.update({"quota": 1} if exact == "gpu" else {exact: (1000, -1, 0)})
    plain = {"quota": 0, "cpu": (0, -1, 1), "memory": (0, -1, 1)}
    filled = _Asks(rivals(early=plain, late=blocks)).has("late", gpu=1, cpu=1, memory=1_000_000_000)
    result = filled.asks("early", gpu=1).asks("late", gpu=1).built.schedule()
    assert share_of(result, "late")[("cpu", "memory", "gpu").index(exact)] > 0
    assert result.order() == ["late", "early"]


# Rule 2: starved, which is within the quota with the job


def test_o1_a_starved_queue_goes_first() -> None:
    """queues:19.5 O1: the other has 20 with quota 2 and share 99."""
    filled = _Asks(rivals(early={"quota": 2}, late={"quota": 2}, gpus=101)).has("early", gpu=20)
    filled.asks("early", gpu=1).asks("early", "more", gpu=78).asks("late", gpu=1).asks("late", "rest", gpu=1)
    result = filled.built.schedule()
    assert (share_of(result, "early")[2], share_of(result, "late")[2]) == (99, 2)
    assert result.order()[0] == "late"


def test_o2_starvation_beats_priority() -> None:
    """queues:19.5 O2"""
    filled = _Asks(rivals(early={"quota": 2, "priority": 1}, late={"quota": 2, "priority": 0}, gpus=101))
    filled.has("early", gpu=20).asks("early", gpu=1).asks("early", "more", gpu=78).asks("late", gpu=1)
    result = filled.built.schedule()
    assert share_of(result, "early")[2] == 99
    assert result.order()[0] == "late"


def test_a_queue_that_reaches_its_quota_exactly_with_the_job_is_starved_and_one_beyond_it_is_not() -> None:
    """queues:10.1 rule 2: 3 + 1 of 4 is starved, 1 + 2 of 2 is not."""
    filled = _Asks(rivals(early={"quota": 2, "priority": 200}, late={"quota": 4}))
    filled.has("early", gpu=1).has("late", gpu=3).asks("early", gpu=2).asks("late", gpu=1)
    assert filled.order() == ["late", "early"]


@pytest.mark.parametrize("beyond", ["gpu", "cpu", "memory"])
def test_a_queue_beyond_its_quota_of_one_resource_is_not_starved(beyond: str) -> None:
    """queues:10.1 rule 2: all three."""
    short: dict[str, Any] = {"quota": 5, "cpu": (5000, -1, 1), "memory": (5 * GI / 1e6, -1, 1), "priority": 200}
    job: dict[str, Any] = {"gpu": 5, "cpu": 5, "memory": 5 * GI}
    job[beyond] = {"gpu": 6, "cpu": 6, "memory": 6 * GI}[beyond]
    filled = _Asks(rivals(early=short, late={"quota": 5}))
    assert filled.asks("early", **job).asks("late", gpu=5, cpu=5, memory="5Gi").order() == ["late", "early"]


def test_an_unlimited_quota_is_never_used_up() -> None:
    """queues:10.1 rule 2; queues:Q-1."""
    filled = _Asks(rivals(early={"quota": 0, "priority": 200}, late={"quota": -1})).has("late", gpu=300)
    assert filled.asks("early", gpu=1).asks("late", gpu=1).order() == ["late", "early"]


# Rule 3: priority


def test_o3_among_queues_that_are_not_starved_the_higher_priority_goes_first() -> None:
    """queues:19.5 O3"""
    filled = _Asks(rivals(early={"quota": 2, "priority": 0}, late={"quota": 2, "priority": 1}, gpus=101))
    filled.has("late", gpu=20).has("early", gpu=3)
    filled.asks("late", gpu=1).asks("late", "more", gpu=78).asks("early", gpu=1)
    result = filled.built.schedule()
    assert (share_of(result, "late")[2], share_of(result, "early")[2]) == (99, 2)
    assert result.order()[0] == "late"


def test_o4_priority_decides_whatever_the_dominant_shares_are() -> None:
    """queues:19.5 O4"""
    filled = _Asks(rivals(early={"quota": 2, "priority": 0}, late={"quota": 2, "priority": 1}, gpus=179))
    filled.has("late", gpu=20).has("early", gpu=3)
    filled.asks("late", gpu=1).asks("late", "more", gpu=78).asks("early", gpu=1).asks("early", "rest", gpu=76)
    result = filled.built.schedule()
    assert (share_of(result, "late")[2], share_of(result, "early")[2]) == (99, 80)
    assert result.order()[0] == "late"


def test_among_starved_queues_the_higher_priority_goes_first_too() -> None:
    """queues:10.1 rule 3"""
    filled = _Asks(rivals(early={"quota": 50}, late={"quota": 50, "priority": 101})).has("late", gpu=40)
    assert filled.asks("early", gpu=1).asks("late", gpu=1).order() == ["late", "early"]


def test_a_queue_without_priority_has_100() -> None:
    """queues:10.1 rule 3"""
    filled = _Asks(rivals(early={"quota": 50, "priority": 99}, late={"quota": 50})).has("late", gpu=40)
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
    filled = _Asks(rivals(early=violator, late=other)).asks("early", **little).asks("late", **much)
    assert filled.order() == ["late", "early"]


def test_a_queue_that_already_uses_a_forbidden_resource_goes_last() -> None:
    """queues:10.1 rule 4: allocated + request, though the job requests none of it."""
    none, other = {"quota": 0, "weight": 0, "cpu": (1, -1, 1)}, {"quota": 0, "cpu": (1, -1, 0)}
    filled = _Asks(rivals(early=none, late=other)).has("early", gpu=1).has("late", cpu=2)
    assert filled.asks("early", cpu=1).asks("late", cpu=1).order() == ["late", "early"]


def test_a_queue_that_does_not_use_a_forbidden_resource_is_not_a_violator() -> None:
    """queues:10.1 rule 4"""
    none, other = {"quota": 0, "weight": 0, "cpu": (0, -1, 1)}, {"quota": 0, "cpu": (0, -1, 1)}
    filled = _Asks(rivals(early=other, late=none)).has("early", cpu=5)
    assert filled.asks("early", cpu=1).asks("late", cpu=1).order() == ["late", "early"]


# Rules 5 and 6: dominant shares


def test_the_smaller_dominant_share_with_the_job_goes_first() -> None:
    """queues:10.1 rule 5: 5 of 10 before 8 of 10, though the other has nothing yet."""
    filled = _Asks(rivals(early={"quota": 10}, late={"quota": 10})).has("late", gpu=4)
    assert filled.asks("early", gpu=8).asks("late", gpu=1).order() == ["late", "early"]


def test_the_largest_share_of_the_three_resources_counts() -> None:
    """queues:10.1 rule 5: 0.2 of the GPUs and 0.6 of the CPU is 0.6."""
    filled = _Asks(rivals(early={"quota": 10, "cpu": (10_000, -1, 1)}, late={"quota": 10}))
    assert filled.asks("early", gpu=2, cpu=6).asks("late", gpu=5).order() == ["late", "early"]
    filled = _Asks(rivals(early={"quota": 10, "memory": (10_000, -1, 1)}, late={"quota": 10}))
    assert filled.asks("early", gpu=2, memory=6_000_000_000).asks("late", gpu=5).order() == ["late", "early"]


def test_of_an_unlimited_queue_the_share_is_that_of_the_cluster() -> None:
    """queues:1.3: 30 of 100 is more than 10 of 50."""
    filled = _Asks(rivals(early={"quota": -1}, late={"quota": 50}, gpus=100))
    assert filled.asks("early", gpu=30).asks("late", gpu=10).order() == ["late", "early"]


def test_a_limit_bounds_what_an_unlimited_queue_may_have() -> None:
    """queues:1.3: Allocatable is the limit; 6 of 20 is more than 10 of 50."""
    filled = _Asks(rivals(early={"quota": -1, "limit": 20}, late={"quota": -1, "limit": 50}))
    assert filled.asks("early", gpu=6).asks("late", gpu=10).order() == ["late", "early"]


def test_a_limit_bounds_a_quota() -> None:
    """queues:1.3"""
    filled = _Asks(rivals(early={"quota": 50, "limit": 20}, late={"quota": 50}))
    assert filled.asks("early", gpu=6).asks("late", gpu=10).order() == ["late", "early"]


def test_a_fair_share_beyond_the_quota_counts() -> None:
    """queues:1.3: 10 of a share of 40 is less than 6 of a quota of 20."""
    filled = _Asks(rivals(early={"quota": 20}, late={"quota": 10})).asks("early", gpu=6).asks("late", gpu=10)
    result = filled.asks("late", "more", gpu=30).built.schedule()
    assert share_of(result, "late")[2] == 40
    assert result.order()[0] == "late"


def test_a_quota_beyond_the_fair_share_counts() -> None:
    """queues:1.3: a share is never more than the request; 4 of 20 is less than 3 of 10."""
    filled = _Asks(rivals(early={"quota": 10}, late={"quota": 20}))
    assert filled.asks("early", gpu=3).asks("late", gpu=4).order() == ["late", "early"]


@pytest.mark.parametrize("resource", ["gpu", "cpu", "memory"])
def test_between_two_violators_the_smaller_amount_goes_first(resource: str) -> None:
    """queues:1.3: nothing to divide by, so the amount itself is compared."""
    none: dict[str, Any] = {"quota": 0, "weight": 0, "cpu": NOTHING, "memory": NOTHING}
    two: dict[str, Any] = {resource: 2}
    one: dict[str, Any] = {resource: 1}
    filled = _Asks(rivals(early=none, late=none)).asks("early", **two).asks("late", **one)
    assert filled.order() == ["late", "early"]


def test_between_two_violators_a_whole_gpu_weighs_as_much_as_a_milli_core() -> None:
    """queues:1.3: units are devices and milli-cores, each times 1000."""
    filled = _Asks(rivals(early={"quota": 0, "cpu": NOTHING}, late={"quota": 0, "weight": 0}))
    assert filled.asks("early", cpu="3m").asks("late", gpu=2).order() == ["late", "early"]
    filled = _Asks(rivals(early={"quota": 0, "weight": 0}, late={"quota": 0, "cpu": NOTHING}))
    assert filled.asks("early", gpu=3).asks("late", cpu="2m").order() == ["late", "early"]


def test_with_equal_shares_the_queue_that_has_less_goes_first() -> None:
    """queues:10.1 rule 6: 4 + 4 and 6 + 2 of 10."""
    filled = _Asks(rivals(early={"quota": 10}, late={"quota": 10})).has("early", gpu=6).has("late", gpu=4)
    assert filled.asks("early", gpu=2).asks("late", gpu=4).order() == ["late", "early"]


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_what_a_queue_has_of_any_resource_counts(resource: str) -> None:
    """queues:10.1 rule 6: the share with the job is that of GPUs, and equal."""
    spec = {"quota": 10, "cpu": (10_000, -1, 1), "memory": (10_000, -1, 1)}
    held: dict[str, Any] = {"cpu": 4} if resource == "cpu" else {"memory": 4_000_000_000}
    filled = _Asks(rivals(early=spec, late=spec)).has("early", **held)
    assert filled.asks("early", gpu=5).asks("late", gpu=5).order() == ["late", "early"]


# Rules 7 and 8


@pytest.mark.parametrize("resource", ["gpu", "cpu", "memory"])
def test_with_equal_shares_the_queue_that_may_have_less_goes_first(resource: str) -> None:
    """queues:10.1 rule 7: less of one resource, not more of any."""
    large: dict[str, Any] = {"quota": 20, "cpu": (20_000, -1, 1), "memory": (20_000, -1, 1)}
    small = {**large, **({"quota": 10} if resource == "gpu" else {resource: (10_000, -1, 1)})}
    filled = _Asks(rivals(early=large, late=small))
    assert filled.asks("early", gpu=10).asks("late", gpu=small["quota"] // 2).order() == ["late", "early"]


@pytest.mark.parametrize("more", ["cpu", "memory"])
def test_less_of_one_and_more_of_another_decides_nothing(more: str) -> None:
    """queues:10.1 rules 7, 8: the older one goes first."""
    one: dict[str, Any] = {"quota": 20, "cpu": (10_000, -1, 1), "memory": (10_000, -1, 1)}
    other = {**one, "quota": 10, more: (20_000, -1, 1)}
    filled = _Asks(rivals(early=one, late=other)).asks("early", gpu=10).asks("late", gpu=5)
    assert filled.order() == ["early", "late"]
    filled = _Asks(rivals(early=other, late=one)).asks("early", gpu=5).asks("late", gpu=10)
    assert filled.order() == ["early", "late"]


def test_ties_are_settled_pairwise_from_the_oldest() -> None:
    """queues:10.1 rule 7 is no total order: c goes before a, b is like neither, so c, a, b."""
    built = ground()
    built.queue("a", quota=20, cpu=(20_000, -1, 1), age=30)
    built.queue("b", quota=10, cpu=(30_000, -1, 1), age=20)
    built.queue("c", quota=20, cpu=(10_000, -1, 1), age=10)
    assert _Asks(built).asks("a", gpu=10).asks("b", gpu=5).asks("c", gpu=10).order() == ["c", "a", "b"]


def test_of_two_that_beat_the_oldest_the_older_goes_first() -> None:
    """queues:10.1 rules 7, 8"""
    built = ground()
    built.queue("a", quota=20, cpu=(20_000, -1, 1), age=30)
    built.queue("c", quota=10, cpu=(20_000, -1, 1), age=20)
    built.queue("b", quota=20, cpu=(10_000, -1, 1), age=10)
    assert _Asks(built).asks("a", gpu=10).asks("b", gpu=10).asks("c", gpu=5).order() == ["c", "b", "a"]


def test_equal_queues_are_served_by_age() -> None:
    """queues:10.1 rule 8; cycle:ORD-2."""
    built = ground().queue("a", quota=10, age=10).queue("b", quota=10, age=20)
    assert _Asks(built).asks("a", gpu=1).asks("b", gpu=1).order() == ["b", "a"]


def test_queues_of_one_age_are_served_by_name() -> None:
    """queues:10.1, Do better; cycle:ORD-2, ORD-5: upstream answers "the right one" whichever way it is asked."""
    built = ground().queue("b", quota=10, age=10).queue("c", quota=10, age=10).queue("a", quota=10, age=10)
    assert _Asks(built).asks("c", gpu=1).asks("a", gpu=1).asks("b", gpu=1).order() == ["a", "b", "c"]


# What a job requests (queues:Q-230)


def _gpu_memory(late: tuple[int, int], early: tuple[int, int]) -> list[str]:
    """Two queues with 40 of 50 GPUs of 10000 MiB; each job is (pods, MiB)."""
    built = ground(gpu_memory=10_000).queue("early", quota=50, age=20).queue("late", quota=50, age=10)
    filled = _Asks(built).has("early", gpu=40).has("late", gpu=40)
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
    filled = _Asks(built).asks("early", gpu_memory=6000).asks("late", fraction=0.5)
    assert filled.order() == ["late", "early"]


def test_every_device_of_a_gpu_memory_request_counts() -> None:
    """queues:Q-230"""
    filled = _Asks(rivals(early={"quota": 10}, late={"quota": 10}))
    assert filled.asks("early", gpu_memory=400, devices=2).asks("late", fraction=0.5).order() == ["late", "early"]


def test_a_job_requests_its_missing_minimum_and_not_all_its_pods() -> None:
    """queues:Q-230"""
    filled = _Asks(rivals(early={"quota": 10}, late={"quota": 10}))
    assert filled.asks("early", pods=2, gpu=1).asks("late", pods=5, min=1, gpu=1).order() == ["late", "early"]


def test_a_job_that_has_its_minimum_requests_one_more_pod() -> None:
    """queues:Q-230; cycle:PG-9: 3 + 1 of 10 before 5 of 10, not 3 + 3."""
    filled = _Asks(ground().queue("a", quota=10).queue("b", quota=10)).asks("a", "grows", pods=4, min=3, gpu=1)
    pods = [bind.pod for bind in filled.asks("b", gpu=5).built.schedule().plan.binds]
    assert pods == ["grows-0", "grows-1", "grows-2", "grows-3", "b-0"]


def test_the_first_job_of_a_queue_represents_it() -> None:
    """cycle:ORD-2: the larger second job does not count yet."""
    filled = _Asks(rivals(early={"quota": 50}, late={"quota": 50}))
    filled.asks("early", gpu=2).asks("late", gpu=1).asks("late", "huge", gpu=40)
    assert filled.order() == ["late", "early", "huge"]


# The walk (cycle:8.1, queues:10.2)


def test_equal_queues_take_turns() -> None:
    """cycle:ORD-3: a queue that was served is ranked again."""
    filled = _Asks(ground().queue("a", quota=10).queue("b", quota=10))
    for number in range(3):
        filled.asks("a", f"a{number}", gpu=1).asks("b", f"b{number}", gpu=1)
    assert filled.order() == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_growth_competes_with_other_queues_pod_by_pod() -> None:
    """queues:Q-238; cycle:PG-10."""
    filled = _Asks(ground().queue("a", quota=10).queue("b", quota=10)).asks("a", "grows", pods=3, min=1, gpu=1)
    for number in range(3):
        filled.asks("b", f"b{number}", gpu=1)
    pods = [bind.pod for bind in filled.built.schedule().plan.binds]
    assert pods == ["grows-0", "b0-0", "grows-1", "b1-0", "grows-2", "b2-0"]


def test_after_a_failed_job_the_next_of_its_queue_is_tried() -> None:
    """cycle:ORD-3, ALC-7"""
    filled = _Asks(ground(gpus=8).queue("a")).asks("a", "huge", gpu=9).asks("a", "small", gpu=1)
    assert filled.order() == ["small"]


def test_after_the_last_job_of_a_queue_its_siblings_go_on() -> None:
    """cycle:ORD-3: empty nodes are pruned upward."""
    built = ground().queue("x", quota=10).queue("y", quota=10)
    built.queue("x1", parent="x", quota=10).queue("x2", parent="x", quota=10).queue("y1", parent="y", quota=10)
    filled = _Asks(built).asks("x1", gpu=1).asks("x2", gpu=2).asks("y1", "y1a", gpu=5).asks("y1", "y1b", gpu=1)
    assert filled.order() == ["x1", "x2", "y1a", "y1b"]


def test_a_gang_that_was_undone_leaves_its_queue_as_it_was() -> None:
    """cycle:ORD-3: `a` goes on as if its first gang had never found a place for one of two pods."""
    filled = _Asks(ground().queue("a", quota=100).queue("b", quota=100))
    filled.asks("a", "half", gpu=1, min=2)
    filled.built.pod("half-1", group="half", cpu=0, memory=0, gpu=1, spec={"nodeSelector": {"no": "where"}})
    assert filled.asks("a", gpu=3).asks("b", gpu=3).order() == ["a", "b"]


def departments() -> Cluster:
    """Departments x and y, with the leaves x1, x2 and y1."""
    built = ground().queue("x", quota=10, age=90).queue("y", quota=10, age=80)
    built.queue("x2", parent="x", quota=10, age=70).queue("x1", parent="x", quota=10, age=60)
    return built.queue("y1", parent="y", quota=10, age=50)


def test_departments_are_compared_by_their_own_figures() -> None:
    """queues:Q-236: x2 has nothing and y1 has 2, but x has 8 and y has 2."""
    filled = _Asks(departments()).has("x1", gpu=8).has("y1", gpu=2)
    assert filled.asks("x2", gpu=1).asks("y1", gpu=1).order() == ["y1", "x2"]


def test_a_department_is_judged_by_the_best_job_of_its_best_leaf() -> None:
    """queues:Q-236; cycle:ORD-2: x requests 1, not 9; after that it requests 9."""
    filled = _Asks(departments()).asks("x2", gpu=9).asks("x1", gpu=1).asks("y1", gpu=5)
    assert filled.order() == ["x1", "y1", "x2"]


def test_within_a_department_its_leaves_take_turns() -> None:
    """queues:Q-237: y requests twice as much, and on a tie has less."""
    filled = _Asks(departments())
    for number in range(2):
        filled.asks("x2", f"x2-{number}", gpu=1).asks("x1", f"x1-{number}", gpu=1).asks("y1", f"y1-{number}", gpu=2)
    assert filled.order() == ["x2-0", "y1-0", "x1-0", "x2-1", "y1-1", "x1-1"]


def test_the_priority_of_a_department_decides_among_departments_only() -> None:
    """queues:Q-236: y's priority is that of y, x2's own priority matters only below x."""
    built = ground().queue("x", quota=10, priority=1, age=90).queue("y", quota=10, priority=2, age=80)
    built.queue("x1", parent="x", quota=10, priority=5).queue("x2", parent="x", quota=10, priority=9)
    built.queue("y1", parent="y", quota=10, priority=1)
    filled = _Asks(built).asks("x1", gpu=1).asks("x2", gpu=1).asks("y1", gpu=1)
    assert filled.order() == ["y1", "x2", "x1"]


def test_leaves_at_different_depths_compete_at_the_level_where_they_part() -> None:
    """queues:Q-236: a leaf at the top beside a tree of three levels."""
    built = ground().queue("top", quota=10, age=10).queue("a", quota=10, age=20)
    built.queue("b", parent="a", quota=10).queue("c", parent="b", quota=10)
    filled = _Asks(built).has("c", gpu=5).asks("c", gpu=1).asks("top", gpu=4).asks("top", "next", gpu=3)
    assert filled.order() == ["top", "c", "next"]


def test_without_the_plugin_queues_are_served_by_age() -> None:
    """cycle:ORD-2: the fallback; priority and shares mean nothing then."""
    built = ground().queue("a", age=10, priority=900).queue("b", age=20)
    built.configured({"tiers": [{"plugins": [{"name": "predicates"}]}]})
    assert _Asks(built).has("b", gpu=9).asks("a", gpu=1).asks("b", gpu=1).order() == ["b", "a"]


@pytest.mark.parametrize("turn", range(3))
def test_the_order_of_input_objects_does_not_matter(turn: int) -> None:
    """cycle:8.1"""
    filled = _Asks(departments().queue("z", quota=10, age=90)).has("x1", gpu=2)
    for queue in ("x1", "x2", "y1", "z"):
        filled.asks(queue, f"{queue}-a", gpu=1, age=5).asks(queue, f"{queue}-b", gpu=1, age=5)
    plan = filled.built.schedule().plan.encoded()
    objects = filled.built.objects
    filled.built.objects = list(reversed(objects)) if turn == 0 else objects[turn * 4 :] + objects[: turn * 4]
    assert filled.built.schedule().plan.encoded() == plan


# How many jobs of a queue are tried (cycle:ORD-5, queues:Q-240)


def _of_three(depth: int | None) -> list[str]:
    built = ground().priority_class("high", 80).priority_class("low", 40).queue("q").queue("r")
    if depth is not None:
        built.with_policy(queue_depth={"allocate": depth})
    filled = _Asks(built).asks("q", "worst", gpu=1, priority="low").asks("q", "good", gpu=1, age=9)
    filled.asks("q", "best", gpu=1, priority="high").asks("r", "other", gpu=1)
    return sorted(filled.order())


def test_without_a_depth_all_jobs_are_tried() -> None:
    """cycle:ORD-5"""
    assert _of_three(None) == ["best", "good", "other", "worst"]


def test_a_depth_keeps_the_best_jobs_of_every_leaf() -> None:
    """cycle:ORD-5, queues:Q-240, Do better: the true best, wherever they are in the input."""
    assert _of_three(1) == ["best", "other"]
    assert _of_three(2) == ["best", "good", "other"]


def test_a_depth_is_that_of_one_action() -> None:
    """cycle:ORD-5"""
    built = ground().queue("q").with_policy(queue_depth={"reclaim": 1})
    assert _Asks(built).asks("q", "a", gpu=1).asks("q", "b", gpu=1).order() == ["a", "b"]


def test_growth_is_not_cut_by_a_depth() -> None:
    """cycle:ORD-5: the job is the one that was kept."""
    built = ground().queue("q").with_policy(queue_depth={"allocate": 1})
    result = _Asks(built).asks("q", "grows", pods=3, min=1, gpu=1).asks("q", "b", gpu=1).built.schedule()
    assert (result.bound("grows"), result.bound("b")) == (3, 0)


# Which gangs take part (cycle:ORD-1, queues:Q-235)


def refusals(result: Result, group: str) -> tuple[object, ...]:
    record = result.unscheduled(group)
    assert record is not None
    return record.refusals


def test_a_job_of_a_missing_queue_is_left_out() -> None:
    """cycle:ORD-1; queues:Q-65."""
    result = ground().queue("q").gang("job", queue="gone", gpu=1).schedule()
    assert result.plan.binds == ()
    assert refusals(result, "job") == (NoQueue("gone"),)


def test_a_job_of_a_queue_whose_parent_is_missing_is_left_out() -> None:
    """cycle:ORD-1; queues:Q-63."""
    result = ground().queue("q", parent="gone").gang("job", queue="q", gpu=1).schedule()
    assert result.plan.binds == ()
    assert refusals(result, "job") == (NoQueue("q", "queue 'q' has the parent 'gone', which does not exist"),)


def test_a_job_of_an_inner_queue_is_left_out_with_a_reason() -> None:
    """cycle:ORD-1; queues:Q-66, Do better."""
    built = ground().queue("department").queue("team", parent="department")
    result = built.gang("job", queue="department", gpu=1).gang("fine", queue="team", gpu=1).schedule()
    assert result.order() == ["fine"]
    assert refusals(result, "job") == (NotLeafQueue("department"),)


def test_a_job_that_is_not_ready_is_left_out() -> None:
    """cycle:ORD-1, PG-6"""
    result = ground().queue("q").gang("job", pods=1, min=2, gpu=1).schedule()
    assert refusals(result, "job") == (NotReady("default", 2, 1, 0),)


def test_a_job_with_a_broken_tree_is_left_out() -> None:
    """cycle:ORD-1, PG-1"""
    built = ground().queue("q").group("job", subGroups=[{"name": "a"}, {"name": "a"}]).pod("p", group="job", gpu=1)
    result = built.schedule()
    assert result.plan.binds == ()
    assert BrokenTree('subgroup "a" is listed twice') in refusals(result, "job")


def test_jobs_without_pending_pods_are_not_reported() -> None:
    """cycle:ORD-1"""
    built = ground().queue("q").gang("runs", on="node-0", gpu=1).group("empty", minMember=1)
    built.gang("gated", gpu=1, spec={"schedulingGates": [{"name": "wait"}]})
    result = built.gang("foreign", gpu=1, scheduler="other").schedule()
    assert result.plan.binds == ()
    # Gated groups have a reason (cycle:EXP-10); the others have nothing to wait for.
    assert [item.group for item in result.plan.unscheduled] == ["gated"]


@pytest.mark.parametrize("why", ["not ready", "nothing pending", "no pods", "broken tree"])
def test_jobs_left_out_do_not_use_up_the_queue_depth(why: str) -> None:
    """cycle:ORD-1, ORD-5: a job that takes no part does not count for the depth."""
    built = ground().queue("q").with_policy(queue_depth={"allocate": 1}).priority_class("high", 80)
    if why == "not ready":
        built.gang("out", pods=1, min=2, gpu=1, priority="high")
    elif why == "nothing pending":
        built.gang("out", on="node-0", gpu=1, priority="high")
    elif why == "no pods":
        built.group("out", priorityClassName="high", minMember=0)
    else:
        built.group("out", priorityClassName="high", subGroups=[{"name": "a"}, {"name": "a"}])
        built.pod("out-0", group="out", gpu=1)
    assert built.gang("job", gpu=1).schedule().order() == ["job"]


def test_ord3_a_queue_whose_next_job_requests_more_is_reordered() -> None:
    """cycle:ORD-3: its first job fits nowhere, so nothing has changed but its next request."""
    built = cluster(nodes=1, gpus=4).queue("a").queue("b")
    built.gang("nowhere", gpu=1, queue="a", age=30, spec={"nodeSelector": {"no": "node"}})
    built.gang("large", gpu=4, queue="a", age=20).gang("small", gpu=2, queue="b", age=10)
    result = built.schedule()
    assert (result.bound("small"), result.bound("large")) == (1, 0)
