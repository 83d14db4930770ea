"""Generators against their definition, which looks at all units again for every set (cycle:SOL-9, SOL-10).

The program keeps indexes, sums and columns of the units it has read; sets and their order must be the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.core.eviction.readunits import ReadUnits
from pykai.core.eviction.scenarios import (
    ScenarioInput,
    VictimList,
    _fewest_nodes,
    _growing_counts,
    _NodeGpus,
    _requested_gpu_hundredths,
)
from pykai.core.eviction.units import EvictionUnit, freed_by
from tests.core.builders import Cluster
from tests.core.eviction.searching import LOCAL, MULTI, names_of, new, old, scenarios_of, searching, sets_of

#: More units than any cluster here has.
_ALL = 10_000


def _prefixes(scenario: ScenarioInput, read: ReadUnits) -> Iterator[list[EvictionUnit]]:
    """The units up to each one with which all of them could suffice, counted from the first each time."""
    units: list[EvictionUnit] = []
    for place in range(read.read(_ALL)):
        last = scenario.unit_at(place)
        if last is None:
            continue
        units.append(last)
        freed, balance = scenario.freed.copy(), scenario.balance.copy()
        for unit in units:
            freed.add(unit.members)
            balance.add(unit.gang, unit.members)
        if freed.suffices and balance.is_covered:
            yield units


def _node_local(scenario: ScenarioInput, read: ReadUnits) -> Iterator[VictimList | None]:
    for units in _prefixes(scenario, read):
        last = units[-1]
        tried = []
        for row in sorted({row for unit in units if unit.gang is last.gang for row in unit.rows}):
            gangs = {unit.gang.key for unit in units if row in unit.rows}
            if gangs not in tried:
                tried.append(gangs)
                yield scenario.with_recorded([unit for unit in units if unit.gang.key in gangs])


def _multi_node(scenario: ScenarioInput, read: ReadUnits) -> Iterator[VictimList | None]:
    tasks = [task for batch in scenario.preemptor.batches for task in batch.tasks]
    requested = [_requested_gpu_hundredths(task.shape, scenario.context.smallest_gpu_mib) for task in tasks]
    for units in _prefixes(scenario, read):
        gpus = _NodeGpus(scenario)
        for unit in units:
            gpus.add(unit.members)
        if all(gpus.at(row) < min(requested) for row in units[-1].rows):
            continue
        seen = gpus.first_seen
        nodes = sorted(
            (row for row in seen if gpus.at(row) >= min(requested)), key=lambda row: (gpus.at(row), seen.index(row))
        )
        fewest = _fewest_nodes(nodes, sum(requested) - gpus.elsewhere, gpus)
        for count in _growing_counts(fewest, len(nodes)) if fewest is not None else ():
            chosen = set(nodes[:count])
            yield scenario.with_recorded([unit for unit in units if not chosen.isdisjoint(unit.rows)])


_PLAIN = {LOCAL: _node_local, MULTI: _multi_node}


@st.composite
def _clusters(draw: st.DrawFn) -> tuple[Cluster, tuple[str, ...]]:
    """Jobs on a few nodes, and a gang that waits; some pods are recorded."""
    gpus = draw(st.lists(st.integers(1, 9), min_size=2, max_size=4))
    built = searching(*gpus)
    pods: list[str] = []
    for node, count in enumerate(gpus):
        for index in range(count):
            name = f"job-{node}-{index}"
            old(built, name, node, gpu=draw(st.sampled_from((1, 1, 0))))
            pods.append(f"{name}-0")
    for index in range(draw(st.integers(0, 3))):
        name = f"wide-{index}"
        built.group(name, queue="q", minMember=2, preemptibility="preemptible")
        for number in range(2):
            built.pod(f"{name}-{number}", group=name, cpu="1", on=f"node-{draw(st.integers(0, len(gpus) - 1))}")
            pods.append(f"{name}-{number}")
    recorded = tuple(draw(st.lists(st.sampled_from(pods), max_size=3, unique=True)))
    return new(built, draw(st.integers(1, 3)), gpu=draw(st.integers(1, 8))), recorded


@given(_clusters(), st.sampled_from((LOCAL, MULTI)), st.sampled_from((None, frozenset({0}))))
@settings(max_examples=40)
def test_sets_and_their_order_are_those_of_the_definition(
    cluster: tuple[Cluster, tuple[str, ...]], generator: str, losing: frozenset[int] | None
) -> None:
    """cycle:SOL-9, SOL-10, PERF-7."""
    built, recorded = cluster
    scenario, read = scenarios_of(built, recorded=recorded, losing=losing)
    plain = [names_of(found) for found in _PLAIN[generator](scenario, read) if found]
    if recorded and scenario.freed.suffices:
        plain.insert(0, names_of(scenario.recorded))
    assert sets_of(built, generator, recorded=recorded, losing=losing, one_by_one=1) == plain


@given(_clusters(), st.integers(0, 8))
@settings(max_examples=20)
def test_sums_over_read_units_are_those_of_their_tasks(cluster: tuple[Cluster, tuple[str, ...]], first: int) -> None:
    """cycle:PERF-7: what they free by axis and node, and lose for good, without some of their tasks."""
    built, left_out = cluster
    scenario, read = scenarios_of(built, recorded=left_out, losing=frozenset({0}))
    end = read.read(_ALL)
    first = min(first, end)
    freed = np.zeros_like(scenario.state.free)
    lost = scenario.balance.copy()
    for unit in scenario.units_between(first, end):
        lost.add(unit.gang, unit.members)
        for member in unit.members:
            for axis, amount in freed_by(scenario.context.snapshot, member):
                freed[axis, member.row] += amount
    keys = {f"default/{pod}" for pod in left_out}
    assert read.freed(first, end, keys).tolist() == freed.tolist()
    summed = scenario.balance.copy()
    summed.subtract(read.losses(summed, first, end, keys))
    assert summed.missing == lost.missing
