"""What the searches of a cycle share: victims, waiting gangs and candidates, each for one version of the state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pykai.core.cycle.cyclegangs import CycleGangs
from pykai.core.cycle.gangs import Gang, SubgroupKey
from pykai.core.cycle.state import State
from pykai.core.eviction.victims import VictimTable
from pykai.core.eviction.waitinglines import WaitingLines

#: Leaf queue -> gangs with their order keys, best first.
GangsByLeafQueue = dict[int, list[tuple[tuple[object, ...], Gang]]]


class _Candidates(NamedTuple):
    version: int
    by_leaf: GangsByLeafQueue


class EvictionTables:
    """Tables that hold while the state does not change; a commit of a search brings them up to date."""

    __slots__ = ("_candidates", "_gangs", "_subgroup_key", "_victims", "_waiting_lines", "state")

    def __init__(self, state: State, gangs: CycleGangs, subgroup_key: SubgroupKey) -> None:
        self.state = state
        self._gangs = gangs
        self._subgroup_key = subgroup_key
        self._victims: VictimTable | None = None
        self._waiting_lines: WaitingLines | None = None
        self._candidates: _Candidates | None = None

    def victims(self) -> VictimTable:
        """What can be evicted."""
        table = self._victims
        if table is None or table.version != self.state.version:
            table = self._victims = VictimTable(self.state, self._gangs, self._subgroup_key)
        return table

    def waiting_lines(self) -> WaitingLines:
        """Waiting gangs by leaf queue."""
        lines = self._waiting_lines
        if lines is None or lines.version != self.state.version:
            lines = self._waiting_lines = WaitingLines(self.state, self._gangs)
        return lines

    def candidates(self, make: Callable[[], GangsByLeafQueue]) -> GangsByLeafQueue:
        """Gangs that may trigger evictions: the same for one action after the other while none of them evicts."""
        cached = self._candidates
        if cached is None or cached.version != self.state.version:
            cached = self._candidates = _Candidates(self.state.version, make())
        return cached.by_leaf

    def refresh(self, changed: Iterable[Gang]) -> None:
        """A search was committed: list the gangs anew that it changed."""
        gangs = list(changed)
        for table in (self._victims, self._waiting_lines):
            if table is not None:
                for gang in gangs:
                    table.refresh(gang)
                table.version = self.state.version
