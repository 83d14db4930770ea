"""How a Deployment moves from old pods to new ones, in numbers."""

from __future__ import annotations

from typing import Any

import pytest

from pykai.api.decode import decode_as
from pykai.api.workloads import Deployment
from pykai.lab.controllers.controller import int_or_percent
from pykai.lab.controllers.rollout import ReplicaSetNumbers, plan_rollout, surge_and_unavailable


def deployment(replicas: int = 4, *, surge: Any = 1, missing: Any = 1, **spec: Any) -> Deployment:
    rolling = {"maxSurge": surge, "maxUnavailable": missing}
    body = {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}, **spec}
    return decode_as(Deployment, {"spec": body})


def generation(name: str, replicas: int, available: int | None = None, pods: int | None = None) -> ReplicaSetNumbers:
    there = replicas if pods is None else pods
    return ReplicaSetNumbers(name, replicas, replicas if available is None else available, there)


@pytest.mark.parametrize(
    ("surge", "missing", "expected"),
    [("25%", "25%", (3, 2)), (0, 0, (0, 1)), ("100%", 0, (10, 0)), (2, "50%", (2, 5)), (None, None, (3, 2))],
)
def test_percentages_round_up_for_more_and_down_for_less(surge: Any, missing: Any, expected: tuple[int, int]) -> None:
    assert surge_and_unavailable(deployment(10, surge=surge, missing=missing)) == expected


def test_a_count_that_is_neither_a_number_nor_a_percentage_is_the_default() -> None:
    assert int_or_percent("many", 8, up=True, default="25%") == 2


def test_the_first_replica_set_gets_everything_at_once() -> None:
    assert plan_rollout(deployment(4), generation("new", 0), []) == {"new": 4}


def test_a_rollout_goes_as_far_as_surge_and_absence_allow() -> None:
    assert plan_rollout(deployment(4), generation("new", 0), [generation("old", 4)]) == {"new": 1, "old": 3}


def test_a_rollout_waits_for_new_pods_to_serve() -> None:
    assert plan_rollout(deployment(4), generation("new", 2, 0), [generation("old", 3)]) == {}
    assert plan_rollout(deployment(4), generation("new", 2, 1), [generation("old", 3)]) == {"old": 2}


def test_unhealthy_old_pods_go_first_whatever_is_available() -> None:
    old = [generation("sick", 3, 0), generation("well", 1)]
    assert plan_rollout(deployment(4, surge=0, missing=2), generation("new", 0, 0), old) == {"sick": 1}


def test_unhealthy_old_pods_stay_while_the_new_ones_are_no_better() -> None:
    assert plan_rollout(deployment(4, surge=0, missing=2), generation("new", 2, 0), [generation("sick", 2, 0)]) == {}


def test_every_rollout_ends_without_ever_having_too_many_or_too_few() -> None:
    for surge, missing in ((1, 0), (0, 1), (2, 2), ("25%", "25%"), ("100%", 0)):
        wish = deployment(7, surge=surge, missing=missing)
        most, fewest = 7 + surge_and_unavailable(wish)[0], 7 - surge_and_unavailable(wish)[1]
        sizes = {"old": 7, "new": 0}
        for _ in range(50):
            new, old = generation("new", sizes["new"]), [generation("old", sizes["old"])]
            changes = plan_rollout(wish, new, old)
            if not changes:
                break
            sizes |= changes
            assert sum(sizes.values()) <= most
            assert sum(min(sizes[one.name], one.available) for one in (new, *old)) >= fewest
        assert sizes == {"old": 0, "new": 7}


def test_recreate_waits_until_the_last_old_pod_is_gone() -> None:
    wish = decode_as(Deployment, {"spec": {"replicas": 3, "strategy": {"type": "Recreate"}}})
    assert plan_rollout(wish, generation("new", 0), [generation("old", 3)]) == {"old": 0}
    assert plan_rollout(wish, generation("new", 0), [generation("old", 0, 0, pods=1)]) == {}
    assert plan_rollout(wish, generation("new", 0), [generation("old", 0)]) == {"new": 3}


def test_a_paused_deployment_is_scaled_but_not_rolled_out() -> None:
    wish = deployment(6, paused=True)
    assert plan_rollout(wish, None, [generation("old", 4)]) == {"old": 6}
    assert plan_rollout(wish, generation("new", 2), [generation("old", 2)]) == {}


def test_scaling_down_takes_from_the_only_generation() -> None:
    assert plan_rollout(deployment(2), generation("new", 5), []) == {"new": 2}
