"""Looking ahead at once and task by task is the same (cycle:SOL-12).

`Departures` keep as sums what changes when every evicted task is gone and nothing is pipelined.  Here they are compared
with the change task by task, in states that evictions have led to, and plans with and without them are compared.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any
from unittest.mock import PropertyMock, patch

from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.api import names
from pykai.core.cycle.departures import Departures
from pykai.core.eviction.search import VictimFinder
from pykai.core.opencycle import Cycle
from pykai.core.policy import SearchBudgets
from pykai.core.report.decisions import Plan
from pykai.core.schedule import run_actions
from tests.core.builders import Cluster, cluster
from tests.core.cycle.evictions import PORT, content

_ENDLESS = SearchBudgets(default_action=None, job=None, generators={}, default_generator=None)
_ACTIONS = (names.ACTION_ALLOCATE, names.ACTION_RECLAIM, names.ACTION_PREEMPT, names.ACTION_CONSOLIDATION)


def _crowded(random: Random) -> Cluster:
    """Full nodes, and gangs that wait for parts of them in queues below their shares."""
    nodes = random.randrange(2, 5)
    built = cluster().priority_class("high", 90)
    for number in range(nodes):
        built.node(gpus=4, labels={"zone": f"z{number % 2}"})
    leaves = []
    for department in range(random.randrange(1, 3)):
        built.queue(f"d{department}", quota=random.randrange(2, 9))
        for team in range(random.randrange(1, 4)):
            leaves.append(f"d{department}-t{team}")
            built.queue(leaves[-1], parent=f"d{department}", quota=random.randrange(5))
    places = [node for node in range(nodes) for _ in range(random.choice((3, 4)))]
    random.shuffle(places)
    number = 0
    while places:
        kind = _kind(random)
        name, pods = f"old-{number}", min(len(places), random.choice((1, 1, 2, 3)))
        built.group(name, queue=random.choice(leaves[:2]), minMember=random.randrange(1, pods + 1), **_rules(random))
        for member in range(pods):
            built.pod(f"{name}-{member}", group=name, on=f"node-{places.pop()}", **kind)
        number += 1
    for number in range(random.randrange(2, 9)):
        size, priority = random.choice((1, 1, 2, 3)), random.choice(("", "", "high"))
        kind = _kind(random) if random.random() < 0.3 else {"gpu": random.choice((1, 2, 3, 4))}
        built.gang(f"new-{number}", size, queue=random.choice(leaves), priority=priority, **kind)
    return built


def _rules(random: Random) -> dict[str, Any]:
    return {"preemptibility": random.choice(("preemptible",) * 6 + ("semi-preemptible", "non-preemptible"))}


def _kind(random: Random) -> dict[str, Any]:
    """Most pods hold whole GPUs and nothing that is not a sum."""
    if random.random() < 0.85:
        return {"gpu": 1}
    label = {"app": "web"}
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": label}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return random.choice(
        ({"gpu": 1, "spec": {"affinity": affinity}, "labels": label}, {"gpu": 0, "spec": PORT}, {"fraction": 0.5})
    )


def _compare(cycle: Cycle, seen: Counter[str]) -> None:
    state, tables = cycle.state, cycle.tables
    tables.victims()
    departures = tables.departures()
    if not departures.are_exact:
        seen["inexact"] += 1
        return
    before, mark, version = content(cycle), state.mark(), state.version
    rows = len(state.changed_rows)
    state.depart(departures.apply)
    at_once, changed = content(cycle), set(state.changed_rows[rows:])
    state.rollback(mark)
    assert content(cycle) == before
    assert state.version == version
    rows = len(state.changed_rows)
    gangs = cycle.victims.trials._assume_all_gone(set())
    assert content(cycle) == at_once
    assert changed == set(state.changed_rows[rows:])
    assert departures.gangs == gangs
    state.rollback(mark)
    seen["moved" if any(gang.pipelined and gang.started_before for gang in gangs.values()) else "other"] += bool(gangs)


def _run(built: Cluster, seen: Counter[str]) -> None:
    cycle = built.with_policy(actions=_ACTIONS, search_budgets=_ENDLESS).cycle()
    find = VictimFinder.find

    def checked(finder: VictimFinder, *arguments: Any) -> Any:
        _compare(cycle, seen)
        return find(finder, *arguments)

    with patch.object(VictimFinder, "find", checked):
        run_actions(cycle)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_at_once_is_as_task_by_task(seed: int) -> None:
    """cycle:SOL-12, STM-5."""
    _run(_crowded(Random(seed)), Counter())


def test_states_of_every_kind_are_compared() -> None:
    """Otherwise nothing was."""
    seen: Counter[str] = Counter()
    for seed in range(100):
        _run(_crowded(Random(seed)), seen)
    assert seen["moved"] > 10, seen
    assert seen["other"] > 10, seen
    assert seen["inexact"], seen


def _plan(seed: int) -> Plan:
    return _crowded(Random(seed)).with_policy(actions=_ACTIONS, search_budgets=_ENDLESS).schedule().plan


@given(seed=st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_plans_are_those_of_departures_task_by_task(seed: int) -> None:
    """cycle:SOL-12."""
    plan = _plan(seed)
    with patch.object(Departures, "are_exact", PropertyMock(return_value=False)):
        assert _plan(seed) == plan
