"""Plans with ranks that are kept from search to search, and with ranks made for each (cycle:PERF-5, PERF-6).

Rules that may read more than figures have ranks made for each search; so the same plan must come out either way.
"""

from __future__ import annotations

from random import Random
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.api import names
from pykai.core.hooks import Rules
from pykai.core.policy import SearchBudgets
from pykai.core.report.decisions import Plan
from tests.core.builders import Cluster, cluster

_ENDLESS = SearchBudgets(default_action=None, job=None, generators={}, default_generator=None)


def _rivals(random: Random) -> Cluster:
    """A full cluster of queues in departments, some far above their shares, and gangs that wait in most of them."""
    nodes = random.randrange(1, 5)
    built = cluster(nodes=nodes, gpus=4).priority_class("high", 90)
    leaves = []
    for department in range(random.randrange(1, 4)):
        built.queue(f"d{department}", quota=random.randrange(6))
        for team in range(random.randrange(1, 4)):
            leaves.append(f"d{department}-t{team}")
            built.queue(leaves[-1], parent=f"d{department}", quota=random.randrange(4))
    rich = random.sample(leaves, max(1, len(leaves) // 2))
    for number in range(4 * nodes):
        built.gang(f"old-{number}", queue=random.choice(rich), on=f"node-{number // 4}", gpu=1)
    for number in range(random.randrange(1, 8)):
        size, priority = random.choice((1, 1, 2)), random.choice(("", "", "high"))
        built.gang(f"new-{number}", size, queue=random.choice(leaves), gpu=random.choice((1, 2)), priority=priority)
    return built


def _plan(built: Cluster) -> Plan:
    return built.with_policy(actions=names.DEFAULT_ACTIONS, search_budgets=_ENDLESS).schedule().plan


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_plans_are_those_of_ranks_made_for_each_search(seed: int) -> None:
    """cycle:PERF-5, PERF-6."""
    plan = _plan(_rivals(Random(seed)))
    with patch.object(Rules, "keeps_ranks", lambda rules, key: False):
        plain = _plan(_rivals(Random(seed)))
    assert plan == plain


def test_some_of_these_plans_evict() -> None:
    """Otherwise nothing was compared."""
    plans = [_plan(_rivals(Random(seed))) for seed in range(30)]
    assert sum(bool(plan.evictions) for plan in plans) > 10
