"""The order of groups inside a leaf queue (cycle:8.3).

Everything fits, so that the order of the binds is the order in which groups were served.  Where a rule must decide,
the group it prefers is called `last`: it is younger and its name comes later, so that no fallback explains the outcome.
"""

from typing import Any

import pytest

from tests.core.builders import Cluster, cluster, leaf


def one_queue() -> Cluster:
    return cluster(nodes=1, gpus=100).queue("q").priority_class("high", 80).priority_class("low", 40)


def grown(built: Cluster, name: str, running: int, *, min: int = 1, **how: Any) -> Cluster:
    """A group with running pods and one that waits."""
    built.gang(name, pods=running, min=min, on="node-0", gpu=1, **how)
    return built.pod(f"{name}-more", group=name, gpu=1)


# Rule 1: priority


def test_higher_priority_first() -> None:
    """cycle:8.3 rule 1"""
    built = one_queue().gang("first", gpu=1, priority="low").gang("last", gpu=1, priority="high")
    assert built.schedule().order() == ["last", "first"]


def test_a_group_without_priority_class_has_50() -> None:
    """cycle:8.3 rule 1; queues:Q-80."""
    built = one_queue().gang("a", gpu=1, priority="low").gang("b", gpu=1).gang("c", gpu=1, priority="high")
    assert built.schedule().order() == ["c", "b", "a"]


def test_priority_comes_before_need() -> None:
    """cycle:8.3: a group far above its minimum goes before a new one of lower priority."""
    built = grown(one_queue().gang("first", gpu=1, priority="low"), "last", 3, priority="high")
    assert built.schedule().order() == ["last", "first"]


def test_priority_does_not_count_across_queues() -> None:
    """queues:Q-86"""
    built = one_queue().queue("r").gang("first", gpu=1, queue="q").gang("last", gpu=1, queue="r", priority="high")
    assert built.schedule().order() == ["first", "last"]


# Rule 2: how far a group has come


def test_below_its_minimum_first_then_at_it_then_above_it() -> None:
    """cycle:8.3 rule 2"""
    built = grown(grown(one_queue(), "above", 2), "at", 1).gang("below", gpu=1)
    assert built.schedule().order() == ["below", "at", "above"]


def test_one_leaf_below_its_minimum_makes_a_group_below() -> None:
    """cycle:8.3 rule 2: any PodSet; the other leaf has more than it needs."""
    built = grown(one_queue(), "first", 1)
    built.tree("last", leaf("a", 1, running=3), leaf("b", 1, pending=1), gpu=1)
    assert built.schedule().order() == ["last", "first"]


@pytest.mark.parametrize("parts", [(1, 2), (2, 1)])
def test_one_leaf_above_its_minimum_makes_a_group_above(parts: tuple[int, int]) -> None:
    """cycle:8.3 rule 2: exactly at it means all of them."""
    built = one_queue().tree(
        "first", leaf("a", 1, running=parts[0], pending=1), leaf("b", 1, running=parts[1]), needs=0, gpu=1
    )
    assert grown(built, "last", 1).schedule().order() == ["last", "first"]


def test_a_group_with_all_leaves_at_their_minimum_goes_before_one_above_it() -> None:
    """cycle:8.3 rule 2"""
    built = grown(one_queue(), "first", 2).tree("last", leaf("a", 1, running=1, pending=1), leaf("b", 2, running=2))
    assert built.schedule().order() == ["last", "first"]


def test_how_far_below_or_above_does_not_count() -> None:
    """cycle:8.3 rule 2: else equal, so age decides."""
    built = grown(grown(one_queue(), "first", 5), "last", 2)
    assert built.schedule().order() == ["first", "last"]
    built = one_queue().tree("first", leaf("a", 3, running=2, pending=1), gpu=1).gang("last", pods=3, gpu=1)
    assert built.schedule().order() == ["first", "last"]


def test_a_group_without_minimum_starts_at_it_and_is_above_it_with_its_first_pod() -> None:
    """cycle:8.3 rule 2: 0 of 0 is exactly at the minimum."""
    built = grown(one_queue(), "at", 1).gang("none", pods=2, min=0, gpu=1, age=1)
    pods = [bind.pod for bind in built.schedule().plan.binds]
    assert pods == ["at-more", "none-0", "none-1"]
    built = one_queue().gang("none", pods=2, min=0, gpu=1)
    pods = [bind.pod for bind in grown(built, "at", 1).schedule().plan.binds]
    assert pods == ["none-0", "at-more", "none-1"]


def test_a_group_is_ranked_again_when_it_has_grown() -> None:
    """cycle:8.3 rule 2; cycle:POL-3: the younger one catches up before the older one grows on."""
    built = one_queue().gang("a", pods=3, min=1, gpu=1).gang("b", pods=3, min=1, gpu=1)
    pods = [bind.pod for bind in built.schedule().plan.binds]
    assert pods == ["a-0", "b-0", "a-1", "b-1", "a-2", "b-2"]


# Fallbacks


def test_otherwise_the_older_group_goes_first() -> None:
    """cycle:8.3"""
    assert one_queue().gang("a", gpu=1, age=1).gang("b", gpu=1, age=2).schedule().order() == ["b", "a"]


def test_of_one_age_the_smaller_name_goes_first() -> None:
    """cycle:8.3"""
    assert one_queue().gang("b", gpu=1, age=1).gang("a", gpu=1, age=1).schedule().order() == ["a", "b"]


def test_of_one_age_and_name_the_smaller_namespace_goes_first() -> None:
    """cycle:8.3, 1, Do better: groups are told apart by namespace and name."""
    built = one_queue().gang("a", gpu=1, age=1, namespace="y").gang("a", gpu=1, age=1, namespace="x")
    assert [bind.group for bind in built.schedule().plan.binds] == ["x/a", "y/a"]


def test_the_name_comes_before_the_namespace() -> None:
    """cycle:8.3"""
    built = one_queue().gang("b", gpu=1, age=1, namespace="x").gang("a", gpu=1, age=1, namespace="y")
    assert [bind.group for bind in built.schedule().plan.binds] == ["y/a", "x/b"]


# Plugins


def _plugins(*names: str) -> dict[str, Any]:
    return {"tiers": [{"plugins": [{"name": name} for name in ("predicates", "proportion", *names)]}]}


def test_rules_come_in_the_order_of_the_plugins() -> None:
    """cycle:8.3: order follows plugin order in the configuration."""
    built = grown(one_queue(), "first", 2, priority="high").gang("last", gpu=1, priority="low")
    assert built.configured(_plugins("priority", "elastic")).schedule().order() == ["first", "last"]
    assert built.configured(_plugins("elastic", "priority")).schedule().order() == ["last", "first"]


def test_without_the_plugins_only_age_and_name_decide() -> None:
    """cycle:8.3: the fallback."""
    built = grown(one_queue(), "first", 2).gang("last", gpu=1, priority="high")
    assert built.configured(_plugins()).schedule().order() == ["first", "last"]
