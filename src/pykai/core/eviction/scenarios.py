"""Sets of victims to try, in the order of cycle:13.4.

Both generators read the victims worst first and add one unit after the other.  `node_local` tries, after each, to clear
one node of the last victim's gang; `multi_node` tries prefixes of the nodes that would have room, the fullest first.  A
set that cannot suffice is skipped (`bounds`).

`recorded` are victims that a smaller part of the same gang already needs: they are in every set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pykai.core.cycle.context import CycleContext
from pykai.core.cycle.gangs import Gang
from pykai.core.cycle.state import State
from pykai.core.eviction.balance import ResourceBalance
from pykai.core.eviction.bounds import CapacityBounds, FreedCapacity
from pykai.core.eviction.freegpus import free_gpus
from pykai.core.eviction.readunits import ReadUnits
from pykai.core.eviction.trial import Preemptor, Victim
from pykai.core.eviction.units import EvictableTask, EvictionUnit
from pykai.core.hookanswers import GENERATOR_NAMES
from pykai.core.model.shapes import Shape

VictimList = list[Victim]
#: So many units are counted one by one before columns of them are: a few are cheaper without.
ONE_BY_ONE = 32


class ScenarioInput:
    """The input of scenarios."""

    __slots__ = (
        "_left_out",
        "_one_by_one",
        "_read",
        "_recorded_gangs",
        "_reduced",
        "balance",
        "context",
        "freed",
        "preemptor",
        "recorded",
        "state",
    )

    def __init__(
        self,
        context: CycleContext,
        state: State,
        preemptor: Preemptor,
        read: ReadUnits,
        bounds: CapacityBounds,
        balance: ResourceBalance,
        recorded: VictimList,
        one_by_one: int = ONE_BY_ONE,
    ) -> None:
        self.context = context
        self.state = state
        self.preemptor = preemptor
        self.recorded = recorded
        self._read = read
        self._one_by_one = one_by_one
        self._left_out = {victim.member.task.key for victim in recorded}
        self._recorded_gangs = {victim.gang.key for victim in recorded}
        #: place -> what is left of a unit without the recorded ones
        self._reduced: dict[int, EvictionUnit | None] = {}
        #: what the recorded ones free
        self.freed = FreedCapacity(context.snapshot, bounds)
        self.freed.add(victim.member for victim in recorded)
        #: what they lose for good, against the request
        self.balance = balance
        for victim in recorded:
            balance.add(victim.gang, (victim.member,))

    def unit_at(self, place: int) -> EvictionUnit | None:
        """A unit that was read, without the recorded tasks; None if nothing is left of it."""
        unit = self._read.unit_at(place)
        if unit is None or unit.gang.key not in self._recorded_gangs:
            return unit
        if place not in self._reduced:
            unrecorded = [member for member in unit.members if member.task.key not in self._left_out]
            if len(unrecorded) < len(unit.members):
                unit = EvictionUnit(unit.gang, unrecorded, unit.gang_amounts) if unrecorded else None
            self._reduced[place] = unit
        return self._reduced[place]

    def sufficient(self) -> Iterator[tuple[int, EvictionUnit]]:
        """Each place up to which all units together could suffice, with its unit, in order."""
        read, freed, balance = self._read, self.freed.copy(), self.balance.copy()
        left_out = self.context.listener.scenarios_left_out
        place = 0
        while read.unit_at(place) is not None:
            if freed.grows_only and freed.suffices and balance.is_covered:
                # More victims neither take room away nor lose less.
                yield from self._all_from(place)
                return
            if place == self._one_by_one and freed.grows_only and not freed.suffices:
                end = freed.add_until_sufficient(read, place, self._left_out)
                balance.subtract(read.losses(balance, place, end - 1, self._left_out))
                left_out(end - 1 - place)
                place = end - 1
                unit = self.unit_at(place)
            elif (unit := self.unit_at(place)) is not None:
                freed.add(unit.members)
            if unit is not None:
                balance.add(unit.gang, unit.members)
                if freed.suffices and balance.is_covered:
                    yield place, unit
                else:
                    left_out(1)
            place += 1

    def _all_from(self, place: int) -> Iterator[tuple[int, EvictionUnit]]:
        """Each place from this one on of which something is left, with its unit."""
        while self._read.unit_at(place) is not None:
            unit = self.unit_at(place)
            if unit is not None:
                yield place, unit
            place += 1

    def units_between(self, first: int, end: int) -> list[EvictionUnit]:
        """The units from a place to before another, without the recorded tasks."""
        if not self.recorded:
            return self._read.between(first, end)
        return self._units(range(first, end))

    def rows_of(self, gang: Gang, last: int) -> list[int]:
        """The nodes of a gang's units up to a place, ascending."""
        return sorted({row for unit in self._units(self._read.of_gang(gang.key, last)) for row in unit.rows})

    def gangs_on(self, row: int, last: int) -> frozenset[str]:
        """The gangs with units on a node, up to a place."""
        return frozenset(unit.gang.key for unit in self._units(self._read.on_row(row, last)) if row in unit.rows)

    def units_of(self, gangs: Iterable[str], last: int) -> list[EvictionUnit]:
        """All units of these gangs up to a place, in order."""
        return self._units(sorted(place for gang in gangs for place in self._read.of_gang(gang, last)))

    def units_on(self, rows: Iterable[int], last: int) -> list[EvictionUnit]:
        """The units on any of these nodes up to a place, in order."""
        wanted = set(rows)
        places = sorted({place for row in wanted for place in self._read.on_row(row, last)})
        return [unit for unit in self._units(places) if not wanted.isdisjoint(unit.rows)]

    def _units(self, places: Sequence[int]) -> list[EvictionUnit]:
        units = self._read.at(places)
        reduced = self._recorded_gangs
        if not reduced:
            return units
        return [
            unit
            for place, whole in zip(places, units, strict=True)
            if (unit := self.unit_at(place) if whole.gang.key in reduced else whole) is not None
        ]

    def with_recorded(self, chosen: list[EvictionUnit]) -> VictimList | None:
        """The recorded units and these, None if they cannot suffice."""
        balance = self.balance.copy()
        for unit in chosen:
            balance.add(unit.gang, unit.members)
        if not balance.is_covered:
            return None
        freed = self.freed.copy()
        for unit in chosen:
            freed.add(unit.members)
        if not freed.suffices:
            return None
        return [*self.recorded, *(Victim(unit.gang, member) for unit in chosen for member in unit.members)]


def node_local(scenario_input: ScenarioInput) -> Iterator[VictimList]:
    """Clear one node (cycle:SOL-9)."""
    if scenario_input.recorded and scenario_input.freed.suffices:
        yield list(scenario_input.recorded)
    for place, last in scenario_input.sufficient():
        tried: set[frozenset[str]] = set()
        for row in scenario_input.rows_of(last.gang, place):
            gangs = scenario_input.gangs_on(row, place)
            if gangs in tried:
                continue
            tried.add(gangs)
            victims = scenario_input.with_recorded(scenario_input.units_of(gangs, place))
            if victims is not None:
                yield victims


def multi_node(scenario_input: ScenarioInput) -> Iterator[VictimList]:
    """Clear several nodes at once (cycle:SOL-10)."""
    if scenario_input.recorded and scenario_input.freed.suffices:
        yield list(scenario_input.recorded)
    smallest_gpu_mib = scenario_input.context.smallest_gpu_mib
    requested = [
        _requested_gpu_hundredths(task.shape, smallest_gpu_mib)
        for batch in scenario_input.preemptor.batches
        for task in batch.tasks
    ]
    smallest, demand = min(requested), sum(requested)
    node_gpus = _NodeGpus(scenario_input)
    passed = 0
    for place, last in scenario_input.sufficient():
        for unit in scenario_input.units_between(passed, place + 1):
            node_gpus.add(unit.members)
        passed = place + 1
        if all(node_gpus.at(row) < smallest for row in last.rows):
            scenario_input.context.listener.scenarios_left_out(1)
            continue
        nodes = [row for row in node_gpus.first_seen if node_gpus.at(row) >= smallest]
        first_seen_index = {row: index for index, row in enumerate(nodes)}
        nodes.sort(key=lambda row: (node_gpus.at(row), first_seen_index[row]))
        fewest = _fewest_nodes(nodes, demand - node_gpus.elsewhere, node_gpus)
        if fewest is None:
            continue
        for count in _growing_counts(fewest, len(nodes)):
            victims = scenario_input.with_recorded(scenario_input.units_on(nodes[:count], place))
            if victims:
                yield victims


def _growing_counts(first: int, last: int) -> Iterator[int]:
    """first, and then 1, 2, 4, ... more, up to last."""
    yield min(first, last)
    step, count = 1, first
    while count < last:
        count = min(first + step, last)
        yield count
        step *= 2


def _fewest_nodes(nodes: list[int], missing: float, node_gpus: _NodeGpus) -> int | None:
    """How many of the nodes cover the missing amount."""
    if missing <= 0:
        return 0
    for count, row in enumerate(nodes, 1):
        missing -= node_gpus.at(row)
        if missing <= 0:
            return count
    return None


def _requested_gpu_hundredths(shape: Shape, gpu_mib: int) -> float:
    """The request of a task in hundredths of a GPU; `gpu_mib` converts gpu-memory."""
    if shape.gpu.memory_mib and gpu_mib:
        return 100.0 * shape.gpu.devices * shape.gpu.memory_mib / gpu_mib
    return float(shape.gpu_hundredths)


class _NodeGpus:
    """GPUs (hundredths) that nodes have or would have."""

    def __init__(self, scenario_input: ScenarioInput) -> None:
        self._feasible = scenario_input.preemptor.feasible
        self._base: list[float] = free_gpus(scenario_input.state).tolist()
        self._recorded = {victim.member.row for victim in scenario_input.recorded}
        for victim in scenario_input.recorded:
            self._base[victim.member.row] += victim.member.amounts[2]
        #: what the units free, nodes in the order they were met
        self._freed: dict[int, float] = {}
        #: on nodes without victims
        self.elsewhere = sum(gpus for row, gpus in enumerate(self._base) if self._is_usable(row))

    def _is_usable(self, row: int) -> bool:
        return self._feasible is None or bool(self._feasible[row]) or row in self._recorded

    @property
    def first_seen(self) -> list[int]:
        return list(self._freed)

    def add(self, members: list[EvictableTask]) -> None:
        for member in members:
            row = member.row
            if row not in self._freed:
                self._freed[row] = 0.0
                if self._is_usable(row):
                    self.elsewhere -= self._base[row]
            self._freed[row] += member.amounts[2]

    def at(self, row: int) -> float:
        return self._base[row] + self._freed[row]


GENERATORS: dict[str, Callable[[ScenarioInput], Iterator[VictimList]]] = dict(
    zip(GENERATOR_NAMES, (node_local, multi_node), strict=True)
)
