"""Caches change nothing but the work: plans with caches and without are the same (docs/caches.md)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pykai.api import names
from pykai.core.caching import caches_disabled
from pykai.core.policy import SearchBudgets
from pykai.core.report.decisions import Plan
from tests.core.builders import Cluster
from tests.property.clusters import clusters, tight_clusters

#: Budgets count work, which is what caches save.
ENDLESS = SearchBudgets(default_action=None, job=None, generators={}, default_generator=None)


def plan_of(built: Cluster) -> Plan:
    return built.with_policy(actions=names.DEFAULT_ACTIONS, search_budgets=ENDLESS).schedule().plan


@pytest.mark.parametrize("drawn", [clusters(), tight_clusters()], ids=["roomy", "tight"])
def test_plans_are_the_same_without_caches(drawn: st.SearchStrategy[Cluster]) -> None:
    @settings(max_examples=60, deadline=None)
    @given(drawn)
    def compare(built: Cluster) -> None:
        cached = plan_of(built)
        with caches_disabled():
            fresh = plan_of(built)
        assert cached.work <= fresh.work
        assert replace(cached, work=0).encoded() == replace(fresh, work=0).encoded()

    compare()


def test_without_caches_nothing_is_kept() -> None:
    """The comparison above would prove nothing if caches stayed on."""
    built = Cluster().nodes(2, gpus=1).queue("q")
    for number in range(6):
        built.gang(f"job-{number}", gpu=1)
    cached: Any = built.cycle()
    placed = [cached.placer.place_gang(gang) for gang in cached.gangs.waiting()]
    with caches_disabled():
        fresh: Any = built.cycle()
        assert [fresh.placer.place_gang(gang) for gang in fresh.gangs.waiting()] == placed == [True, True, *[False] * 4]
    assert cached.placer._failures
    assert not fresh.placer._failures
    assert len(cached.rankings._rankings) == 1
    assert not fresh.rankings._rankings
    assert cached.gangs.waiting()[2].order_key is not None
    assert fresh.gangs.waiting()[2].order_key is None
