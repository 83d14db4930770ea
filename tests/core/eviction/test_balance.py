"""The search skips work that cannot be reclaimed: moving it frees nothing (cycle:PERF-7, queues:Q-275)."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.core.cycle.gangs import Batch
from pykai.core.eviction.balance import ResourceBalance
from pykai.core.opencycle import Cycle
from tests.core.builders import Cluster, cluster


def crowded(*, quota: float = -1, free: int = 0, gpus: int = 4, **wanted: Any) -> Cluster:
    """Two queues on two nodes; `a` runs on all GPUs but the free ones of each node, `b` waits."""
    built = cluster().queue("a", quota=quota).queue("b", quota=quota)
    for row in range(2):
        built.node(gpus=gpus)
        for index in range(gpus - free):
            built.gang(f"old-{row}-{index}", queue="a", gpu=1, on=f"node-{row}")
    return built.gang("new", queue="b", **{"gpu": 1, **wanted})


def asked(cycle: Cycle) -> list[Batch]:
    return cycle.gangs.next_tasks(cycle.gangs.gang(cycle.context.snapshot.group_entries["default/new"]))


def balance_of(built: Cluster, losing: frozenset[int] | None) -> ResourceBalance:
    cycle = built.cycle()
    return ResourceBalance(cycle.context, cycle.state, asked(cycle), losing)


def test_a_full_cluster_with_no_queue_over_its_share_is_not_searched() -> None:
    result = crowded().with_actions("reclaim").schedule()
    assert result.verdicts("new") == {"reclaim": "hopeless"}
    assert result.plan.evictions == ()


def test_the_work_does_not_grow_with_queues_that_cannot_lose() -> None:
    few, many = (crowded(gpus=gpus).with_actions("reclaim").schedule().plan.work for gpus in (2, 16))
    assert few == many


def test_a_queue_over_its_share_still_loses() -> None:
    result = crowded(quota=4).with_actions("reclaim").schedule()
    assert len(result.plan.evictions) == 1


def test_moving_still_helps_where_enough_is_free() -> None:
    """queues:Q-267: no queue is over its quota, but one pod can move so that two GPUs are free on one node."""
    result = crowded(free=1, gpu=2).with_actions("reclaim").schedule()
    assert [bool(eviction.moves_to) for eviction in result.plan.evictions] == [True]


def test_where_no_queue_loses_no_more_are_moved_than_consolidation_may() -> None:
    built = crowded(free=1, gpu=2).with_actions("reclaim").with_policy(max_consolidation_preemptees=0)
    assert built.schedule().plan.evictions == ()


@pytest.mark.parametrize(("free", "covers"), [(0, False), (1, True)])
def test_what_is_free_anywhere_counts(free: int, covers: bool) -> None:
    assert balance_of(crowded(free=free, gpu=2), frozenset()).is_covered is covers


def test_only_queues_that_may_lose_cover_the_deficit() -> None:
    built = crowded(gpu=1)
    cycle = built.cycle()
    batches = asked(cycle)
    victims = cycle.tables.victims()
    (leaf,) = [leaf for leaf in victims.leaf_queues() if victims.units_of(leaf)]
    _, _, unit = victims.units_of(leaf)[0]
    for losing, covers in ((frozenset([leaf]), True), (frozenset[int](), False)):
        balance = ResourceBalance(cycle.context, cycle.state, batches, losing)
        added = balance.copy()
        added.add(unit.gang, unit.members)
        assert not balance.is_covered
        assert added.is_covered is covers


def test_where_every_queue_may_lose_nothing_is_compared() -> None:
    assert balance_of(crowded(gpu=2), None).is_covered


NOTHING: dict[str, Any] = {"gpu": 0, "cpu": 0, "memory": 0}


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ({"cpu": 1}, {"cpu": 1}),
        ({"cpu": 1}, {"cpu": "1m"}),
        ({"memory": "1Gi"}, {"memory": "1Gi"}),
        ({"memory": "1Gi"}, {"memory": 1}),
        ({"gpu": 1}, {"gpu": 1}),
    ],
)
@pytest.mark.parametrize("loses", [True, False])
def test_every_resource_is_compared_with_what_losers_hold(
    held: dict[str, Any], wanted: dict[str, Any], loses: bool
) -> None:
    """cycle:PERF-7: work that only moves frees nothing of any resource."""
    built = cluster().queue("a").queue("b").node(cpu=1, memory="1Gi", gpus=1)
    built.gang("old", queue="a", on="node-0", **{**NOTHING, **held}).gang("new", queue="b", **{**NOTHING, **wanted})
    before, after = balances(built, loses=loses)
    assert not before.is_covered
    assert before.is_unsatisfiable
    assert after.is_covered is loses


def balances(built: Cluster, *, loses: bool) -> tuple[ResourceBalance, ResourceBalance]:
    """Without victims, and with all of queue a, which may lose them or not."""
    cycle = built.cycle()
    leaf = cycle.context.snapshot.tree.rows["a"]
    before = ResourceBalance(cycle.context, cycle.state, asked(cycle), frozenset([leaf] if loses else []))
    after = before.copy()
    for _, _, unit in cycle.tables.victims().units_of(leaf):
        after.add(unit.gang, unit.members)
    return before, after


MIG = {"extra": {"nvidia.com/mig-1g.5gb": 1}}


@pytest.mark.parametrize(("beside", "covers"), [([], True), ([{"gpu": 1}], True), (None, False)])
def test_gpus_are_not_compared_where_a_pod_wants_a_part_of_one(
    beside: list[dict[str, Any]] | None, covers: bool
) -> None:
    """cycle:PERF-7: MIG, alone or beside whole GPUs; None is a whole GPU alone."""
    built = cluster().queue("a").queue("b").node(gpus=1, extra={"nvidia.com/mig-1g.5gb": 2})
    built.gang("old", queue="a", gpu=1, on="node-0")
    pods = [{"gpu": 1}] if beside is None else [MIG, *beside]
    built.group("new", queue="b", minMember=len(pods))
    for index, pod in enumerate(pods):
        built.pod(f"new-{index}", group="new", **pod)
    assert balance_of(built, frozenset()).is_covered is covers


@pytest.mark.parametrize(
    ("sizes", "held", "covers"),
    [
        ((10_000, 40_000), {"gpu": 1}, False),
        ((10_000, 10_000), {"gpu_memory": 10_000, "device": "one"}, False),
        ((10_000, 40_000), {"gpu_memory": 10_000, "device": "one"}, True),
    ],
    ids=["a whole GPU costs one anywhere", "GPUs of one size", "memory is less of a larger GPU"],
)
def test_a_move_frees_gpus_only_where_it_costs_less_elsewhere(
    sizes: tuple[int, int], held: dict[str, Any], covers: bool
) -> None:
    """cycle:PERF-7"""
    built = cluster().queue("a").queue("b")
    for size in sizes:
        built.node(gpus=1, gpu_memory=size)
    built.gang("old", queue="a", on="node-0", **held).gang("fixed", queue="a", gpu=1, on="node-1", preemptible=False)
    _, after = balances(built.gang("new", queue="b", gpu=1), loses=False)
    assert after.is_covered is covers


def test_memory_of_gpus_of_several_sizes_is_not_compared() -> None:
    """A share of a small GPU is less of a large one, so moving may free something."""
    built = cluster().queue("a").queue("b")
    built.node(gpus=1, gpu_memory=10_000).node(gpus=1, gpu_memory=40_000)
    built.gang("old", queue="a", gpu=1, on="node-0").gang("older", queue="a", gpu=1, on="node-1").gang(
        "new", queue="b", gpu=1
    )
    assert not balance_of(built, frozenset()).is_covered
    assert not balance_of(built, frozenset()).is_unsatisfiable
