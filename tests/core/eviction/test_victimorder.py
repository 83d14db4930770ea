"""The order of victims: the fair order reversed (cycle:ORD-4, queues:10.1, Q-231, Q-239).

A test reads the order in which the units of gangs would be evicted.  Queues and gangs that are
added later are younger.  CPU and memory of a queue are unlimited unless a test says otherwise, and pods request GPUs.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.queueranks import RankedSiblings
from pykai.core.eviction.units import EvictionUnit
from pykai.core.eviction.victimorder import VictimOrder
from pykai.core.opencycle import Cycle
from tests.core.builders import Cluster, cluster


def ground(gpus: int = 100, **node: Any) -> Cluster:
    return cluster(nodes=1, gpus=gpus, pods=1000, **node)


def has(built: Cluster, queue: str, *jobs: str, gpu: int = 1, cpu: int = 0, **more: Any) -> Cluster:
    """Running gangs of one pod each, the first one the oldest."""
    for name in jobs:
        built.gang(name, queue=queue, on="node-0", gpu=gpu, cpu=cpu, memory=0, **more)
    return built


def everyone(gang: Gang) -> bool:
    return True


def units_of(cycle: Cycle, accepts: Callable[[Gang], bool] = everyone, most: int = -1) -> list[EvictionUnit]:
    table = cycle.tables.victims()
    order = VictimOrder(cycle.state, cycle.context.rules, table, sorted(table.units_by_leaf_queue), accepts, most)
    return [
        unit for unit in takewhile(lambda unit: unit is not None, map(order.unit_at, range(1000))) if unit is not None
    ]


def victims(built: Cluster, accepts: Callable[[Gang], bool] = everyone, most: int = -1) -> list[str]:
    """Names of the gangs in the order their units would be taken."""
    return [unit.gang.group.name for unit in units_of(built.cycle(), accepts, most)]


# Inside a queue


def test_ord4_the_worst_job_goes_first() -> None:
    """cycle:ORD-4, 8.3 reversed: lower priority, then above its minimum, then younger."""
    built = ground().queue("q").priority_class("high", 90).priority_class("low", 10)
    has(built, "q", "high", priority="high")
    has(built, "q", "low", priority="low")
    has(built, "q", "old", "young")
    built.gang("elastic", 2, min=1, gpu=1, on="node-0", age=2_000_000)
    assert victims(built) == ["low", "elastic", "young", "old", "elastic", "high"]


def test_ord4_equal_ages_go_by_name() -> None:
    """cycle:ORD-5, Do better: the inverted order is the exact reverse."""
    assert victims(has(ground().queue("q"), "q", "b", "a", "c", age=9)) == ["c", "b", "a"]


def test_ord4_only_some_gangs_are_candidates() -> None:
    """cycle:ORD-1: the filter of the action."""
    built = has(ground().queue("q"), "q", "a", "b", "c")
    assert victims(built, accepts=lambda gang: gang.group.name != "b") == ["c", "a"]
    assert victims(built, accepts=lambda gang: False) == []
    has(built.queue("r"), "r", "d")
    assert victims(built, accepts=lambda gang: gang.group.name in "ad") == ["a", "d"], "q would be left with more"
    assert victims(built, accepts=lambda gang: False) == []


@pytest.mark.parametrize("queues", [1, 2])
def test_con1_no_more_gangs_are_offered_than_the_limit(queues: int) -> None:
    """cycle:CON-1: an elastic gang counts once however many steps it takes."""
    built = ground().queue("q").queue("other")
    built.gang("elastic", 3, min=0, gpu=1, on="node-0")
    has(built, "q", "single")
    if queues == 2:
        has(built, "other", "far")
    every = victims(built)
    assert victims(built, most=-1) == every
    for most in range(3):
        allowed = list(dict.fromkeys(every))[:most]
        assert victims(built, most=most) == [name for name in every if name in allowed]


# Queues


def rivals(*, late: dict[str, Any], early: dict[str, Any]) -> Cluster:
    """Two top-level queues; early is older."""
    return ground().queue("early", **early).queue("late", **late)


def test_ord4_the_queue_that_is_served_last_gives_first() -> None:
    """cycle:ORD-4, queues:10.1 rule 5: the larger dominant share gives first."""
    built = rivals(early={"quota": 0}, late={"quota": 0})
    has(built, "early", "e0", "e1", "e2")
    has(built, "late", "l0")
    assert victims(built)[0] == "e2"


def test_q239_rule_1_a_queue_over_its_share_of_everything_gives_first() -> None:
    """queues:10.1 rule 1: before priority."""
    nothing = {"quota": 0, "weight": 0, "cpu": (0.0, -1.0, 0.0), "memory": (0.0, -1.0, 0.0)}
    built = rivals(early={**nothing, "priority": 200}, late={"quota": 0, "priority": 1})
    built.gang("over", queue="early", on="node-0", gpu=1, cpu=1, memory="1Gi")
    built.gang("fair", queue="late", on="node-0", gpu=1, cpu=1, memory="1Gi")
    assert victims(built) == ["over", "fair"]


def test_q239_rule_2_a_queue_within_its_quota_gives_last() -> None:
    """queues:10.1 rule 2: before priority; the request is zero."""
    built = rivals(early={"quota": 0, "priority": 200}, late={"quota": 1, "priority": 1})
    assert victims(has(has(built, "early", "over"), "late", "within")) == ["over", "within"]


def test_q239_rule_2_compares_what_a_queue_has_not_what_it_would_have_left() -> None:
    """queues:10.1 rule 2: a victim does not make its queue starved."""
    built = rivals(early={"quota": 1, "priority": 1}, late={"quota": 1, "priority": 2})
    has(has(built, "early", "e0", "e1"), "late", "l0", "l1")
    assert victims(built) == ["e1", "e0", "l1", "l0"]


def test_q239_rule_3_a_queue_of_lower_priority_gives_first() -> None:
    """queues:10.1 rule 3: although it has less."""
    built = rivals(early={"quota": 0, "priority": 1}, late={"quota": 0, "priority": 200})
    assert victims(has(has(built, "early", "e"), "late", "l0", "l1")) == ["e", "l1", "l0"]


def test_q239_rule_4_a_queue_that_has_what_it_may_not_have_gives_first() -> None:
    """queues:10.1 rule 4."""
    built = rivals(early={"quota": 0, "weight": 0}, late={"quota": 0})
    assert victims(has(has(built, "early", "e"), "late", "l0", "l1", gpu=20)) == ["e", "l1", "l0"]


def test_q239_rule_5_counts_what_is_taken_already_and_what_comes_next() -> None:
    """queues:Q-239: of the victims so far and the next one, so queues of equal size give in turn."""
    built = rivals(early={}, late={})
    has(has(built, "early", "e0", "e1", "e2", gpu=2), "late", "l0", "l1", "l2", gpu=2)
    assert victims(built) == ["l2", "e2", "l1", "e1", "l0", "e0"]


def test_q239_rule_5_counts_memory_too() -> None:
    """queues:Q-239: the same where memory is the dominant resource."""
    built = rivals(early={}, late={})
    for queue in ("early", "late"):
        for index in range(3):
            built.gang(f"{queue}-{index}", queue=queue, on="node-0", gpu=0, cpu=0, memory="100Gi")
    assert victims(built) == ["late-2", "early-2", "late-1", "early-1", "late-0", "early-0"]


def test_q239_rule_5_compares_what_would_be_left() -> None:
    """queues:Q-239: the queue with more has a large job to give, and would be left with less."""
    built = rivals(early={}, late={})
    has(has(has(built, "early", "small"), "early", "large", gpu=9), "late", "l0", "l1", gpu=2)
    assert victims(built)[0] == "l1"


def test_q239_an_elastic_gang_counts_whole_and_once() -> None:
    """queues:Q-239: its first step counts all of it, its next steps no more."""
    built = rivals(early={}, late={})
    built.gang("elastic", 4, min=0, gpu=1, on="node-0", queue="early")
    has(has(built, "early", "e"), "late", "l0", "l1", "l2")
    # early would be left with 1, late with 2; then 1 against 1, where the one that has more gives first.
    assert victims(built)[:3] == ["l2", "elastic", "elastic"]


def test_q239_rule_6_then_the_queue_that_has_more_gives_first() -> None:
    """queues:10.1 rule 6: equal rests, 4 - 3 against 2 - 1."""
    built = rivals(early={}, late={})
    has(has(built, "early", "e0"), "early", "e1", gpu=3)
    has(built, "late", "l0", "l1")
    assert victims(built)[0] == "e1"


def test_q239_rule_7_then_the_queue_that_may_have_more_gives_first() -> None:
    """queues:10.1 rule 7: both have no dominant share left to compare."""
    limits = {"quota": 0, "limit": 50}
    built = rivals(early={**limits, "cpu": (50_000, 50_000, 1)}, late={**limits, "cpu": (40_000, 40_000, 1)})
    assert victims(has(has(built, "early", "e"), "late", "l")) == ["e", "l"]
    built = rivals(early={**limits, "cpu": (40_000, 40_000, 1)}, late={**limits, "cpu": (50_000, 50_000, 1)})
    assert victims(has(has(built, "early", "e"), "late", "l")) == ["l", "e"]


def test_q239_rule_8_then_the_younger_queue_gives_first() -> None:
    """queues:10.1 rule 8, with the name for queues of the same age."""
    built = rivals(early={"quota": 0}, late={"quota": 0})
    assert victims(has(has(built, "early", "e"), "late", "l")) == ["l", "e"]
    twins = ground().queue("b", age=5, quota=0).queue("a", age=5, quota=0)
    assert victims(has(has(twins, "a", "of-a"), "b", "of-b")) == ["of-b", "of-a"]


def test_q231_gpu_memory_victims_count_what_they_have() -> None:
    """queues:Q-231, Do better: accepted resources, not zero GPUs."""
    built = rivals(early={}, late={})
    for index in range(2):
        built.gang(f"m{index}", queue="early", on="node-0", gpu_memory=1000, cpu=0, memory=0, device=f"d{index}")
    has(built, "late", "w0", "w1")
    # Both queues have two GPUs and give in turn; a victim that counted nothing would leave early with more.
    assert victims(built) == ["w1", "m1", "w0", "m0"]


def test_q239_without_fairness_the_youngest_queue_gives_first() -> None:
    """cycle:ORD-2: the fallback reversed, where no plugin compares queues."""
    plugins = [{"name": name} for name in ("predicates", "priority", "elastic")]
    built = ground().configured({"actions": "allocate", "tiers": [{"plugins": plugins}]})
    built.queue("early").queue("late")
    assert victims(has(has(built, "early", "e0", "e1"), "late", "l0")) == ["l0", "e1", "e0"]


# The tree


def departments() -> Cluster:
    """Departments one and two with teams a, b below one and c below two."""
    built = ground().queue("one").queue("two")
    return built.queue("a", parent="one").queue("b", parent="one").queue("c", parent="two")


def test_q239_departments_are_compared_before_their_teams() -> None:
    """queues:Q-239, Q-236: the department that has most gives, although its team has little."""
    built = has(has(has(departments(), "a", "a0", "a1"), "b", "b0", "b1"), "c", "c0", "c1", "c2")
    assert victims(built)[0] in ("a1", "b1")
    assert victims(has(built, "c", "c3", "c4"))[0] == "c4"


def test_ord4_the_worst_team_of_a_department_gives_first() -> None:
    """cycle:ORD-4: on every level, whichever is younger."""
    assert victims(has(has(departments(), "a", "a0", "a1", "a2"), "b", "b0")) == ["a2", "a1", "a0", "b0"]
    assert victims(has(has(departments(), "a", "a0"), "b", "b0", "b1", "b2")) == ["b2", "b1", "b0", "a0"]


def test_q239_a_department_counts_what_is_taken_from_its_teams_and_the_next_gang() -> None:
    """queues:Q-239, Do better: victims so far of all its teams, and the next one of the team that would give it."""
    built = has(has(departments(), "a", "a0", gpu=5), "b", "b0", gpu=4)
    has(has(built, "c", "c0", gpu=4), "c", "c1", gpu=3)
    # One has 9, and 4 without a0; two has 7, and 4 without c1: equal, and one has more.  Then one would be left with
    # nothing and two with 4; then both with nothing.
    assert victims(built) == ["a0", "c1", "b0", "c0"]


def test_q239_a_department_counts_the_gang_its_worst_team_would_give() -> None:
    """queues:Q-239: one would be left with 1 of 6 without a0, two with 2 of 4."""
    built = has(has(departments(), "a", "a0", gpu=5), "b", "b0")
    assert victims(has(built, "c", "c0", "c1", gpu=2))[0] == "c1"


def test_q239_a_team_without_victims_leaves_the_order() -> None:
    """queues:Q-237: empty nodes are pruned upward."""
    built = has(has(departments(), "a", "a0"), "c", "c0", "c1", "c2")
    assert sorted(victims(built)) == ["a0", "c0", "c1", "c2"]
    only = victims(built, accepts=lambda gang: gang.group.name != "a0")
    assert only == ["c2", "c1", "c0"]


def test_every_scenario_reads_the_order_from_its_beginning() -> None:
    """cycle:13.3: read again, the same unit has the same position."""
    cycle = has(has(ground().queue("q").queue("r"), "q", "a", "b"), "r", "c").cycle()
    table = cycle.tables.victims()
    order = VictimOrder(cycle.state, cycle.context.rules, table, sorted(table.units_by_leaf_queue), everyone)
    last = order.unit_at(2)
    assert last is not None
    assert order.unit_at(3) is None
    first = order.unit_at(0)
    assert order.unit_at(2) is last
    assert order.unit_at(0) is first
    assert len({id(order.unit_at(index)) for index in range(3)}) == 3


# Siblings from their other end


@given(queues=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=6))
def test_ord4_the_worst_sibling_is_the_last_that_would_be_best(queues: list[tuple[int, int]]) -> None:
    """cycle:ORD-4: the same order from its other end, by key, then by what queues may have, then by age."""
    siblings = RankedSiblings(lambda row, other: queues[row][1] < queues[other][1])
    for row, (key, _) in enumerate(queues):
        siblings.update(row, (key,))
    ranks = [(*queue, row) for row, queue in enumerate(queues)]
    assert siblings.worst() == max(ranks)[2]
    served = []
    while siblings.order:
        served.append(siblings.best())
        siblings.discard(served[-1])
    assert served[-1] == max(ranks)[2]


def test_ord4_without_a_rule_for_ties_the_youngest_sibling_is_the_worst() -> None:
    """cycle:ORD-2: rows are in order of age and name."""
    siblings = RankedSiblings(None)
    for row in (2, 0, 1):
        siblings.update(row, ())
    assert (siblings.best(), siblings.worst()) == (0, 2)


# The key of a queue


def test_q239_the_key_of_a_victim_counts_what_is_taken_in_rule_5_only() -> None:
    """queues:10.1, Q-239."""
    built = has(ground().queue("q", quota=1, limit=10), "q", "a", gpu=4)
    cycle = built.cycle()
    row = cycle.context.snapshot.tree.rows["q"]
    ledger = cycle.state.ledger
    untouched = ledger.victim_order_key(row, (0.0, 0.0, 0.0))
    taken = ledger.victim_order_key(row, (0.0, 0.0, 100.0))
    assert untouched == ledger.queue_order_key(row, (0.0, 0.0, 0.0))
    assert taken[:4] == untouched[:4]
    assert (untouched[4], taken[4]) == (1.0, 0.75)
    assert taken[5] == untouched[5]
    assert ledger.victim_order_key(row, (0.0, 0.0, 400.0))[1], "still over its quota, whatever is taken"


def test_q239_the_key_of_a_victim_counts_every_resource() -> None:
    """queues:10.1 rule 5: the dominant share of what is left."""
    built = ground(cpu=10, memory="10Gi").queue("q", quota=0).gang("a", on="node-0", gpu=50, cpu=8, memory="2Gi")
    cycle = built.cycle()
    ledger, row = cycle.state.ledger, cycle.context.snapshot.tree.rows["q"]
    gi = float(1024**3)
    shares = [
        ledger.victim_order_key(row, taken)[4]
        for taken in ((0.0, 0.0, 0.0), (8000.0, 0.0, 0.0), (8000.0, 0.0, 5000.0), (8000.0, 2 * gi, 5000.0))
    ]
    assert shares == [1.0, 1.0, 0.2, 0.0]
