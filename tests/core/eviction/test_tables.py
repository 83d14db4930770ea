"""Tables of the searches end with the version of the state (docs/caches.md)."""

from __future__ import annotations

from pykai.core.eviction.tables import GangsByLeafQueue
from pykai.core.opencycle import Cycle
from tests.core.builders import cluster


def busy() -> Cycle:
    return cluster(nodes=1, gpus=2).queue("q").gang("old", gpu=1, on="node-0").gang("new", gpu=1).cycle()


def test_tables_hold_while_the_state_is_the_same() -> None:
    tables = busy().tables
    assert tables.victims() is tables.victims()
    assert tables.waiting_lines() is tables.waiting_lines()
    made: GangsByLeafQueue = {}
    assert tables.candidates(lambda: made) is made
    assert tables.candidates(dict) is made


def test_tables_are_rebuilt_when_the_state_has_changed() -> None:
    cycle = busy()
    tables = cycle.tables
    victims, lines = tables.victims(), tables.waiting_lines()
    before: GangsByLeafQueue = {}
    tables.candidates(lambda: before)
    (gang,) = cycle.gangs.waiting()
    cycle.state.place(gang, gang.leaves[0], gang.leaves[0].tasks[0], 0, (), pipelined=False)
    after: GangsByLeafQueue = {}
    assert tables.candidates(lambda: after) is after
    assert tables.victims() is not victims
    assert tables.waiting_lines() is not lines
    assert [len(line.gangs) for line in tables.waiting_lines().lines.values()] == []


def test_a_commit_refreshes_the_tables_it_changed() -> None:
    cycle = busy()
    tables = cycle.tables
    victims, lines = tables.victims(), tables.waiting_lines()
    (gang,) = cycle.gangs.waiting()
    cycle.state.place(gang, gang.leaves[0], gang.leaves[0].tasks[0], 0, (), pipelined=False)
    tables.refresh([gang])
    assert tables.victims() is victims
    assert tables.waiting_lines() is lines
    assert [line.gangs for line in lines.lines.values()] == [[]]
