"""The whole order of victims at once, and columns of its units, are those of reading one by one.

Compared at the beginning of every search of a cycle, so that what is kept has been through evictions and rollbacks.

Statements: cycle:ORD-4, PERF-6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.api import names
from pykai.core.cycle.gangs import Gang
from pykai.core.eviction import mergedorder, readunits
from pykai.core.eviction.balance import ResourceBalance
from pykai.core.eviction.mergedorder import OrderMerger
from pykai.core.eviction.readunits import ReadUnits
from pykai.core.eviction.search import VictimFinder
from pykai.core.eviction.units import EvictionUnit
from pykai.core.eviction.victimorder import VictimOrder
from pykai.core.eviction.victims import VictimTable
from pykai.core.hooks import FixedTie
from pykai.core.opencycle import Cycle
from pykai.core.policy import SearchBudgets
from pykai.core.report.decisions import Plan
from pykai.core.schedule import run_actions
from tests.core.builders import Cluster, cluster

_ENDLESS = SearchBudgets(default_action=None, job=None, generators={}, default_generator=None)
_ACTIONS = (names.ACTION_ALLOCATE, names.ACTION_RECLAIM, names.ACTION_PREEMPT, names.ACTION_CONSOLIDATION)


def _tree(random: Random, built: Cluster) -> list[str]:
    """Queues at up to three levels, many of them alike; returns the leaves."""
    leaves = []
    quotas = [random.randrange(5) for _ in range(2)]
    level = [""]
    for depth in range(random.randrange(1, 4)):
        below = []
        for parent in level:
            for number in range(random.choice((1, 2, 3, 4))):
                name = f"{parent or 't'}{number}"
                cpu = (random.choice((-1.0, -1.0, 4.0)), -1.0, 1.0)
                built.queue(
                    name,
                    parent=parent,
                    quota=random.choice(quotas),
                    cpu=cpu,
                    priority=random.choice((100,) * 9 + (200,)),
                )
                below.append(name)
        level = below
        leaves = level
        assert depth < 3
    return leaves


def _crowded(random: Random) -> Cluster:
    """Many running gangs of all kinds in some of the queues, and gangs that wait in others."""
    nodes = random.randrange(2, 6)
    built = cluster(nodes=nodes, gpus=4, cpu=64).priority_class("high", 90)
    leaves = _tree(random, built)
    rich = random.sample(leaves, max(1, len(leaves) // 2))
    places = [node for node in range(nodes) for _ in range(4)]
    random.shuffle(places)
    number = 0
    while places:
        pods = min(len(places), random.choice((1, 1, 1, 2, 3)))
        name, priority = f"old-{number}", random.choice(("", "", "high"))
        kind: dict[str, Any] = random.choice(({"gpu": 1},) * 4 + ({"fraction": 0.7}, {"gpu": 0, "cpu": 3}))
        built.group(
            name, queue=random.choice(rich), minMember=random.randrange(1, pods + 1), priorityClassName=priority
        )
        for member in range(pods):
            built.pod(f"{name}-{member}", group=name, on=f"node-{places.pop()}", **kind)
        number += 1
    for number in range(random.randrange(1, 7)):
        size, priority = random.choice((1, 1, 2)), random.choice(("", "", "high"))
        built.gang(f"new-{number}", size, queue=random.choice(leaves), gpu=random.choice((1, 2, 4)), priority=priority)
    return built


def _orders(cycle: Cycle, random: Random) -> Callable[[], VictimOrder]:
    """Orders of the same random victims."""
    tree, table, rules = cycle.state.snapshot.tree, cycle.tables.victims(), cycle.context.rules
    if random.random() < 0.3:
        # Which of two queues wins a tie need not be an order of all queues.
        wins = {(one, other) for one in range(len(tree.names)) for other in range(one) if random.random() < 0.5}
        tie = FixedTie(lambda state, one, other: (one, other) in wins)
        rules = replace(rules, queue_tie=tie)
        table = VictimTable(cycle.state, cycle.gangs, rules)
    rows = list(tree.roots)
    if random.random() < 0.5:
        rows = [row for row in range(len(tree.names)) if not tree.children[row] and random.random() < 0.7]
    queues, most = table.with_units(rows), random.choice((-1, -1, 0, 3))
    refused = {key for key in cycle.context.snapshot.group_entries if random.random() < 0.2}
    accepts = random.choice((None, lambda gang: gang.key not in refused))

    def order() -> VictimOrder:
        return VictimOrder(cycle.state, rules, table, queues, accepts, most)

    return order


def _read(order: VictimOrder) -> list[EvictionUnit]:
    units: list[EvictionUnit] = []
    while (unit := order.unit_at(len(units))) is not None:
        units.append(unit)
    return units


def _compare(cycle: Cycle, gang: Gang, random: Random, seen: Counter[str]) -> None:
    order = _orders(cycle, random)
    units = _read(order())
    with patch.object(mergedorder, "_MOST_COMPARED", random.choice((0, 32))):
        whole = order().numbers()
    assert whole is not None
    columns, numbers = whole
    assert [columns.units[number] for number in numbers.tolist()] == units
    seen["units"] += len(units)
    seen["queues"] += len({unit.gang.queue for unit in units}) > 1
    if not units:
        return
    plain, fast = (ReadUnits(order(), cycle.context.snapshot, first) for first in (10**9, random.randrange(len(units))))
    assert plain.read(10**9) == fast.read(10**9) == len(units)
    tree = cycle.state.snapshot.tree
    losing = random.choice((None, frozenset(row for row in range(len(tree.names)) if random.random() < 0.5)))
    balance = ResourceBalance(cycle.context, cycle.state, cycle.gangs.next_tasks(gang), losing)
    tasks = [member.task.key for unit in units for member in unit.members]
    for _ in range(3):
        first = random.randrange(len(units))
        end = random.randrange(first, len(units)) + 1
        out = random.sample(tasks, min(len(tasks), random.randrange(3)))
        assert (plain.freed(first, end, out) == fast.freed(first, end, out)).all()
        assert plain.losses(balance, first, end, out) == fast.losses(balance, first, end, out)
        assert plain.between(first, end) == fast.between(first, end)
        for key in cycle.context.snapshot.group_entries:
            assert plain.of_gang(key, first) == fast.of_gang(key, first)
        for row in range(len(cycle.state.snapshot.nodes)):
            assert plain.on_row(row, first) == fast.on_row(row, first)


def _run(seed: int, seen: Counter[str]) -> None:
    cycle = _crowded(Random(seed)).with_policy(actions=_ACTIONS, search_budgets=_ENDLESS).cycle()
    random, find = Random(seed), VictimFinder.find

    def checked(finder: VictimFinder, gang: Gang, *arguments: Any) -> Any:
        _compare(cycle, gang, random, seen)
        return find(finder, gang, *arguments)

    with patch.object(VictimFinder, "find", checked):
        run_actions(cycle)
    seen["evictions"] += len(cycle.decisions.evictions)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_the_whole_order_is_that_of_reading_one_by_one(seed: int) -> None:
    """cycle:ORD-4, PERF-6; queues:Q-239."""
    _run(seed, Counter())


def test_orders_of_every_kind_are_compared() -> None:
    """Otherwise nothing was."""
    seen: Counter[str] = Counter()
    settle = OrderMerger._settle_ties

    def counted(merger: OrderMerger, *arguments: Any) -> None:
        seen["ties"] += 1
        settle(merger, *arguments)

    with patch.object(OrderMerger, "_settle_ties", counted):
        for seed in range(60):
            _run(seed, seen)
    assert seen["queues"] > 20, seen
    assert seen["units"] > 300, seen
    assert seen["evictions"] > 20, seen
    assert seen["ties"], seen


def _plan(seed: int) -> Plan:
    return _crowded(Random(seed)).with_policy(actions=_ACTIONS, search_budgets=_ENDLESS).schedule().plan


@given(seed=st.integers(0, 2**32), first=st.integers(0, 4))
@settings(max_examples=80, deadline=None)
def test_plans_are_those_of_reading_one_by_one(seed: int, first: int) -> None:
    """cycle:PERF-6, PERF-7."""
    plan = _plan(seed)
    with patch.object(ReadUnits.__init__, "__defaults__", (first,)):
        assert _plan(seed) == plan
    assert readunits.FIRST_UNITS > 50, "otherwise the plan was read in the same way"
