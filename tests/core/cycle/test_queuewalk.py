"""The walk over the tree of queues, and which jobs take part (cycle:8.1; queues:10.2).

Everything fits on one large node unless a test says otherwise, so that the order of the binds is the order in which
queues were served.  Pods request GPUs only unless a test says otherwise; CPU and memory of a queue are unlimited.
"""

import pytest

from pykai.core.report.decisions import BrokenTree, NoQueue, NotLeafQueue, NotReady
from tests.core.builders import Cluster, Result, cluster
from tests.core.cycle.rivalqueues import QueueFiller, ground

# The walk (cycle:8.1, queues:10.2)


def test_equal_queues_take_turns() -> None:
    """cycle:ORD-3: a queue that was served is ranked again."""
    filled = QueueFiller(ground().queue("a", quota=10).queue("b", quota=10))
    for number in range(3):
        filled.asks("a", f"a{number}", gpu=1).asks("b", f"b{number}", gpu=1)
    assert filled.order() == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_growth_competes_with_other_queues_pod_by_pod() -> None:
    """queues:Q-238; cycle:PG-10."""
    filled = QueueFiller(ground().queue("a", quota=10).queue("b", quota=10)).asks("a", "grows", pods=3, min=1, gpu=1)
    for number in range(3):
        filled.asks("b", f"b{number}", gpu=1)
    pods = [bind.pod for bind in filled.built.schedule().plan.binds]
    assert pods == ["grows-0", "b0-0", "grows-1", "b1-0", "grows-2", "b2-0"]


def test_after_a_failed_job_the_next_of_its_queue_is_tried() -> None:
    """cycle:ORD-3, ALC-7"""
    filled = QueueFiller(ground(gpus=8).queue("a")).asks("a", "huge", gpu=9).asks("a", "small", gpu=1)
    assert filled.order() == ["small"]


def test_after_the_last_job_of_a_queue_its_siblings_go_on() -> None:
    """cycle:ORD-3: empty nodes are pruned upward."""
    built = ground().queue("x", quota=10).queue("y", quota=10)
    built.queue("x1", parent="x", quota=10).queue("x2", parent="x", quota=10).queue("y1", parent="y", quota=10)
    filled = QueueFiller(built).asks("x1", gpu=1).asks("x2", gpu=2).asks("y1", "y1a", gpu=5).asks("y1", "y1b", gpu=1)
    assert filled.order() == ["x1", "x2", "y1a", "y1b"]


def test_a_gang_that_was_undone_leaves_its_queue_as_it_was() -> None:
    """cycle:ORD-3: `a` goes on as if its first gang had never found a place for one of two pods."""
    filled = QueueFiller(ground().queue("a", quota=100).queue("b", quota=100))
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
    filled = QueueFiller(departments()).has("x1", gpu=8).has("y1", gpu=2)
    assert filled.asks("x2", gpu=1).asks("y1", gpu=1).order() == ["y1", "x2"]


def test_a_department_is_judged_by_the_best_job_of_its_best_leaf() -> None:
    """queues:Q-236; cycle:ORD-2: x requests 1, not 9; after that it requests 9."""
    filled = QueueFiller(departments()).asks("x2", gpu=9).asks("x1", gpu=1).asks("y1", gpu=5)
    assert filled.order() == ["x1", "y1", "x2"]


def test_within_a_department_its_leaves_take_turns() -> None:
    """queues:Q-237: y requests twice as much, and on a tie has less."""
    filled = QueueFiller(departments())
    for number in range(2):
        filled.asks("x2", f"x2-{number}", gpu=1).asks("x1", f"x1-{number}", gpu=1).asks("y1", f"y1-{number}", gpu=2)
    assert filled.order() == ["x2-0", "y1-0", "x1-0", "x2-1", "y1-1", "x1-1"]


def test_the_priority_of_a_department_decides_among_departments_only() -> None:
    """queues:Q-236: y's priority is that of y, x2's own priority matters only below x."""
    built = ground().queue("x", quota=10, priority=1, age=90).queue("y", quota=10, priority=2, age=80)
    built.queue("x1", parent="x", quota=10, priority=5).queue("x2", parent="x", quota=10, priority=9)
    built.queue("y1", parent="y", quota=10, priority=1)
    filled = QueueFiller(built).asks("x1", gpu=1).asks("x2", gpu=1).asks("y1", gpu=1)
    assert filled.order() == ["y1", "x2", "x1"]


def test_leaves_at_different_depths_compete_at_the_level_where_they_part() -> None:
    """queues:Q-236: a leaf at the top beside a tree of three levels."""
    built = ground().queue("top", quota=10, age=10).queue("a", quota=10, age=20)
    built.queue("b", parent="a", quota=10).queue("c", parent="b", quota=10)
    filled = QueueFiller(built).has("c", gpu=5).asks("c", gpu=1).asks("top", gpu=4).asks("top", "next", gpu=3)
    assert filled.order() == ["top", "c", "next"]


def test_without_the_plugin_queues_are_served_by_age() -> None:
    """cycle:ORD-2: the fallback; priority and shares mean nothing then."""
    built = ground().queue("a", age=10, priority=900).queue("b", age=20)
    built.configured({"tiers": [{"plugins": [{"name": "predicates"}]}]})
    assert QueueFiller(built).has("b", gpu=9).asks("a", gpu=1).asks("b", gpu=1).order() == ["b", "a"]


@pytest.mark.parametrize("turn", range(3))
def test_the_order_of_input_objects_does_not_matter(turn: int) -> None:
    """cycle:8.1"""
    filled = QueueFiller(departments().queue("z", quota=10, age=90)).has("x1", gpu=2)
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
    filled = QueueFiller(built).asks("q", "worst", gpu=1, priority="low").asks("q", "good", gpu=1, age=9)
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
    assert QueueFiller(built).asks("q", "a", gpu=1).asks("q", "b", gpu=1).order() == ["a", "b"]


def test_growth_is_not_cut_by_a_depth() -> None:
    """cycle:ORD-5: the job is the one that was kept."""
    built = ground().queue("q").with_policy(queue_depth={"allocate": 1})
    result = QueueFiller(built).asks("q", "grows", pods=3, min=1, gpu=1).asks("q", "b", gpu=1).built.schedule()
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
