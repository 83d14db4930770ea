"""Sets of victims to try, in the order of cycle:13.4.

Both generators read the victims worst first and add one unit after the other.  `node_local` tries, after each, to clear
one node of the last victim's gang; `multi_node` tries prefixes of the nodes that would have room, the fullest first.  A
set that cannot suffice is skipped (`bounds`).

`recorded` are victims that a smaller part of the same gang already needs: they are in every set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pykai.core.cycle.context import CycleContext
from pykai.core.cycle.state import State
from pykai.core.eviction.balance import ResourceBalance
from pykai.core.eviction.bounds import CapacityBounds, FreedCapacity
from pykai.core.eviction.freegpus import free_gpus
from pykai.core.eviction.trial import Preemptor, Victim
from pykai.core.eviction.units import EvictableTask, EvictionUnit
from pykai.core.eviction.victimorder import VictimOrder
from pykai.core.hookanswers import GENERATOR_NAMES
from pykai.core.model.shapes import Shape

VictimList = list[Victim]


class ScenarioInput:
    """The input of scenarios."""

    __slots__ = ("balance", "context", "freed", "order", "preemptor", "recorded", "recorded_keys", "state")

    def __init__(
        self,
        context: CycleContext,
        state: State,
        preemptor: Preemptor,
        order: VictimOrder,
        bounds: CapacityBounds,
        balance: ResourceBalance,
        recorded: VictimList,
    ) -> None:
        self.context = context
        self.state = state
        self.preemptor = preemptor
        self.order = order
        self.recorded = recorded
        self.recorded_keys = {victim.member.task.key for victim in recorded}
        #: what the recorded ones free
        self.freed = FreedCapacity(context.snapshot, bounds)
        self.freed.add(victim.member for victim in recorded)
        #: what they lose for good, against the request
        self.balance = balance
        for victim in recorded:
            balance.add(victim.gang, (victim.member,))

    def units(self) -> Iterator[EvictionUnit]:
        """Units worst first, without the recorded ones."""
        index = 0
        order, recorded = self.order, self.recorded_keys
        while (unit := order.unit_at(index)) is not None:
            index += 1
            if recorded:
                unrecorded = [member for member in unit.members if member.task.key not in recorded]
                if not unrecorded:
                    continue
                if len(unrecorded) < len(unit.members):
                    unit = EvictionUnit(unit.gang, unrecorded, unit.gang_amounts)
            yield unit

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
    units: list[EvictionUnit] = []
    freed, balance = scenario_input.freed.copy(), scenario_input.balance.copy()
    for last in scenario_input.units():
        units.append(last)
        freed.add(last.members)
        balance.add(last.gang, last.members)
        if not (freed.suffices and balance.is_covered):
            # Not even all of them together free enough.
            continue
        tried: set[frozenset[str]] = set()
        for row in sorted({row for unit in units if unit.gang is last.gang for row in unit.rows}):
            gangs = frozenset(unit.gang.key for unit in units if row in unit.rows)
            if gangs in tried:
                continue
            tried.add(gangs)
            victims = scenario_input.with_recorded([unit for unit in units if unit.gang.key in gangs])
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
    units: list[EvictionUnit] = []
    freed, balance = scenario_input.freed.copy(), scenario_input.balance.copy()
    for last in scenario_input.units():
        units.append(last)
        freed.add(last.members)
        balance.add(last.gang, last.members)
        node_gpus.add(last.members)
        if not (freed.suffices and balance.is_covered) or all(node_gpus.at(row) < smallest for row in last.rows):
            continue
        nodes = [row for row in node_gpus.first_seen if node_gpus.at(row) >= smallest]
        first_seen_index = {row: index for index, row in enumerate(nodes)}
        nodes.sort(key=lambda row: (node_gpus.at(row), first_seen_index[row]))
        fewest = _fewest_nodes(nodes, demand - node_gpus.elsewhere, node_gpus)
        if fewest is None:
            continue
        for count in _growing_counts(fewest, len(nodes)):
            chosen_rows = set(nodes[:count])
            victims = scenario_input.with_recorded([unit for unit in units if not chosen_rows.isdisjoint(unit.rows)])
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
