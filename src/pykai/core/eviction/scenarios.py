"""Sets of victims to try, in the order of cycle:13.4.

Both ways read the victims worst first and add one unit after the other.  `node_local` tries, after each, to clear one
node of the last victim's gang; `multi_node` tries prefixes of the nodes that would have room, the fullest first.  A
set that cannot suffice is not handed out (`bounds`).

`recorded` are victims that a smaller part of the same gang needs already: they are in every set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pykai.core.cycle.session import Session
from pykai.core.eviction.balance import Balance
from pykai.core.eviction.bounds import Bounds, Freed
from pykai.core.eviction.trial import Preemptor, Victim, free_gpus
from pykai.core.eviction.victimorder import VictimOrder
from pykai.core.eviction.victims import Member, Unit
from pykai.core.model.shapes import Shape

Victims = list[Victim]


class Material:
    """What scenarios are made of."""

    __slots__ = ("balance", "freed", "order", "preemptor", "recorded", "recorded_keys", "session")

    def __init__(
        self,
        session: Session,
        preemptor: Preemptor,
        order: VictimOrder,
        bounds: Bounds,
        balance: Balance,
        recorded: Victims,
    ) -> None:
        self.session = session
        self.preemptor = preemptor
        self.order = order
        self.recorded = recorded
        self.recorded_keys = {victim.member.task.key for victim in recorded}
        #: what the recorded ones free
        self.freed = Freed(session, bounds)
        self.freed.add(victim.member for victim in recorded)
        #: what they lose for good, against what is asked for
        self.balance = balance
        for victim in recorded:
            balance.add(victim.gang, (victim.member,))

    def units(self) -> Iterator[Unit]:
        """Units worst first, without what is recorded."""
        index = 0
        order, recorded = self.order, self.recorded_keys
        while (unit := order.at(index)) is not None:
            index += 1
            if recorded:
                left = [member for member in unit.members if member.task.key not in recorded]
                if not left:
                    continue
                if len(left) < len(unit.members):
                    unit = Unit(unit.gang, left, unit.whole)
            yield unit

    def with_recorded(self, chosen: list[Unit]) -> Victims | None:
        """The recorded ones and these, None when that cannot suffice."""
        balance = self.balance.copy()
        for unit in chosen:
            balance.add(unit.gang, unit.members)
        if not balance.covers:
            return None
        freed = self.freed.copy()
        for unit in chosen:
            freed.add(unit.members)
        if not freed.suffices:
            return None
        return [*self.recorded, *(Victim(unit.gang, member) for unit in chosen for member in unit.members)]


def node_local(material: Material) -> Iterator[Victims]:
    """Clear one node (cycle:SOL-9)."""
    if material.recorded and material.freed.suffices:
        yield list(material.recorded)
    units: list[Unit] = []
    freed, balance = material.freed.copy(), material.balance.copy()
    for last in material.units():
        units.append(last)
        freed.add(last.members)
        balance.add(last.gang, last.members)
        if not (freed.suffices and balance.covers):
            # Not even all of them together make enough room.
            continue
        tried: set[frozenset[str]] = set()
        for row in sorted({row for unit in units if unit.gang is last.gang for row in unit.rows}):
            gangs = frozenset(unit.gang.key for unit in units if row in unit.rows)
            if gangs in tried:
                continue
            tried.add(gangs)
            found = material.with_recorded([unit for unit in units if unit.gang.key in gangs])
            if found is not None:
                yield found


def multi_node(material: Material) -> Iterator[Victims]:
    """Clear several nodes at once (cycle:SOL-10)."""
    if material.recorded and material.freed.suffices:
        yield list(material.recorded)
    session = material.session
    asked = [_gpus(session, task.shape) for batch in material.preemptor.batches for task in batch.tasks]
    smallest, demand = min(asked), sum(asked)
    room = _Room(material)
    units: list[Unit] = []
    freed, balance = material.freed.copy(), material.balance.copy()
    for last in material.units():
        units.append(last)
        freed.add(last.members)
        balance.add(last.gang, last.members)
        room.add(last.members)
        if not (freed.suffices and balance.covers) or all(room.at(row) < smallest for row in last.rows):
            continue
        nodes = [row for row in room.first_seen if room.at(row) >= smallest]
        place = {row: index for index, row in enumerate(nodes)}
        nodes.sort(key=lambda row: (room.at(row), place[row]))
        fewest = _fewest(nodes, demand - room.elsewhere, room)
        if fewest is None:
            continue
        for count in _growing(fewest, len(nodes)):
            chosen_rows = set(nodes[:count])
            found = material.with_recorded([unit for unit in units if not chosen_rows.isdisjoint(unit.rows)])
            if found:
                yield found


def _growing(first: int, last: int) -> Iterator[int]:
    """first, and then 1, 2, 4, ... more, up to last."""
    yield min(first, last)
    step, count = 1, first
    while count < last:
        count = min(first + step, last)
        yield count
        step *= 2


def _fewest(nodes: list[int], missing: float, room: _Room) -> int | None:
    """How many of the nodes cover what is missing."""
    if missing <= 0:
        return 0
    for count, row in enumerate(nodes, 1):
        missing -= room.at(row)
        if missing <= 0:
            return count
    return None


def _gpus(session: Session, shape: Shape) -> float:
    """What a task asks for in hundredths of a GPU."""
    if shape.gpu.memory_mib and session.smallest_gpu_mib:
        return 100.0 * shape.gpu.devices * shape.gpu.memory_mib / session.smallest_gpu_mib
    return float(shape.gpu_hundredths)


class _Room:
    """GPUs (hundredths) that nodes have or would have."""

    def __init__(self, material: Material) -> None:
        self._feasible = material.preemptor.feasible
        self._base: list[float] = free_gpus(material.session).tolist()
        self._recorded = {victim.member.row for victim in material.recorded}
        for victim in material.recorded:
            self._base[victim.member.row] += victim.member.amounts[2]
        #: what the units free, nodes in the order they were met
        self._freed: dict[int, float] = {}
        #: on nodes without victims
        self.elsewhere = sum(gpus for row, gpus in enumerate(self._base) if self._counts(row))

    def _counts(self, row: int) -> bool:
        return self._feasible is None or bool(self._feasible[row]) or row in self._recorded

    @property
    def first_seen(self) -> list[int]:
        return list(self._freed)

    def add(self, members: list[Member]) -> None:
        for member in members:
            row = member.row
            if row not in self._freed:
                self._freed[row] = 0.0
                if self._counts(row):
                    self.elsewhere -= self._base[row]
            self._freed[row] += member.amounts[2]

    def at(self, row: int) -> float:
        return self._base[row] + self._freed[row]


WAYS: dict[str, Callable[[Material], Iterator[Victims]]] = {
    "NodeLocalGreedy": node_local,
    "MultiNodeGang": multi_node,
}
