"""Tables that the searches of a cycle share: victims, waiting gangs and candidates, each for one state version."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pykai.core.caching import VersionedValue
from pykai.core.cycle.cyclegangs import CycleGangs
from pykai.core.cycle.departures import Departures
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.state import State
from pykai.core.eviction.disruptions import DisruptionLedger
from pykai.core.eviction.victims import VictimTable
from pykai.core.eviction.waitinglines import WaitingLines
from pykai.core.hooks import Rules
from pykai.core.policy import DisruptionMode

#: Leaf queue -> gangs with their order keys, best first.
GangsByLeafQueue = dict[int, list[tuple[tuple[object, ...], Gang]]]


class EvictionTables:
    """Tables that are valid while the state does not change; a commit of a search updates them."""

    __slots__ = (
        "_candidates",
        "_departures",
        "_gangs",
        "_rules",
        "_victims",
        "_waiting_lines",
        "disruptions",
        "state",
    )

    def __init__(
        self,
        state: State,
        gangs: CycleGangs,
        rules: Rules,
        disruption_mode: DisruptionMode = DisruptionMode.PREFER,
    ) -> None:
        self.state = state
        #: what PodDisruptionBudgets allow, None where none matters
        self.disruptions = DisruptionLedger.open(state, disruption_mode)
        self._gangs = gangs
        self._rules = rules
        self._victims: VersionedValue[VictimTable] = VersionedValue()
        self._waiting_lines: VersionedValue[WaitingLines] = VersionedValue()
        self._candidates: VersionedValue[GangsByLeafQueue] = VersionedValue()
        self._departures: VersionedValue[Departures] = VersionedValue()

    def victims(self) -> VictimTable:
        """Tasks that may be evicted."""
        version = self.state.version
        table = self._victims.current(version)
        if table is None:
            table = self._victims.store(version, VictimTable(self.state, self._gangs, self._rules, self.disruptions))
        return table

    def waiting_lines(self) -> WaitingLines:
        """Waiting gangs by leaf queue."""
        version = self.state.version
        lines = self._waiting_lines.current(version)
        if lines is None:
            lines = self._waiting_lines.store(version, WaitingLines(self.state, self._gangs))
        return lines

    def departures(self) -> Departures:
        """What changes when every evicted task is gone and nothing is pipelined."""
        version = self.state.version
        departures = self._departures.current(version)
        if departures is None:
            departures = Departures(self.state)
            for gang in self._gangs.placed():
                departures.refresh(gang)
            self._departures.store(version, departures)
        return departures

    def candidates(self, make: Callable[[], GangsByLeafQueue]) -> GangsByLeafQueue:
        """Gangs that may trigger evictions: the same for successive actions while none of them evicts."""
        version = self.state.version
        candidates = self._candidates.current(version)
        if candidates is None:
            candidates = self._candidates.store(version, make())
        return candidates

    def refresh(self, changed: Iterable[Gang]) -> None:
        """Update the gangs that a committed search changed."""
        gangs, version = list(changed), self.state.version
        # A search reads the victims first, so whatever is for their version is for the state before the search.
        if (departures := self._departures.latest) is not None and self._departures.version == self._victims.version:
            for gang in gangs:
                departures.refresh(gang)
            self._departures.store(version, departures)
        if (victims := self._victims.latest) is not None:
            for gang in gangs:
                victims.refresh(gang)
            self._victims.store(version, victims)
        if (lines := self._waiting_lines.latest) is not None:
            lines.refresh(gangs)
            self._waiting_lines.store(version, lines)
