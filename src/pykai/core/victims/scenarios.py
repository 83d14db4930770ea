"""Sets of victims to try, in the order of cycle:13.4.

Both ways read the victims worst first and add one unit after the other.  `node_local` tries, after each, to clear one
node of the last victim's gang; `multi_node` tries prefixes of the nodes that would have room, the fullest first.  A
set that cannot suffice is not handed out (`bounds`).

`recorded` are victims that a smaller part of the same gang needs already: they are in every set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pykai.core.session import Session
from pykai.core.victims.bounds import Bounds, add_freed
from pykai.core.victims.order import VictimOrder
from pykai.core.victims.trial import Preemptor, Victim
from pykai.core.victims.units import Unit

Victims = list[Victim]


class Material:
    """What scenarios are made of."""

    __slots__ = ("bounds", "freed", "order", "preemptor", "recorded", "recorded_keys", "session")

    def __init__(
        self, session: Session, preemptor: Preemptor, order: VictimOrder, bounds: Bounds, recorded: Victims
    ) -> None:
        self.session = session
        self.preemptor = preemptor
        self.order = order
        self.bounds = bounds
        self.recorded = recorded
        self.recorded_keys = {victim.member.task.key for victim in recorded}
        #: what the recorded ones free: node row -> axis -> amount
        self.freed: dict[int, dict[int, int]] = {}
        add_freed(session, self.freed, (victim.member for victim in recorded))

    def units(self) -> Iterator[Victims]:
        """Units worst first, without what is recorded."""
        index = 0
        while (unit := self.order.at(index)) is not None:
            index += 1
            left = self.left_of(unit)
            if left:
                yield left

    def left_of(self, unit: Unit) -> Victims:
        """A unit without what is recorded."""
        gang = unit.gang
        if not self.recorded_keys:
            return [Victim(gang, member) for member in unit.members]
        return [Victim(gang, member) for member in unit.members if member.task.key not in self.recorded_keys]

    def with_recorded(self, chosen: Victims) -> Victims | None:
        """The recorded ones and these, None when that cannot suffice."""
        freed = {row: dict(amounts) for row, amounts in self.freed.items()}
        add_freed(self.session, freed, (victim.member for victim in chosen))
        if not self.bounds.may_suffice(freed):
            return None
        return [*self.recorded, *chosen]


def node_local(material: Material) -> Iterator[Victims]:
    """Clear one node (cycle:SOL-9)."""
    if material.recorded and (found := material.with_recorded([])) is not None:
        yield found
    #: gang -> its victims so far, and node -> gangs with a victim there
    by_gang: dict[str, Victims] = {}
    on_node: dict[int, dict[str, None]] = {}
    rows_of: dict[str, set[int]] = {}
    for unit in material.units():
        last = unit[0].gang.key
        by_gang.setdefault(last, []).extend(unit)
        rows = rows_of.setdefault(last, set())
        rows.update(victim.member.row for victim in unit)
        for row in rows:
            on_node.setdefault(row, {})[last] = None
        tried: set[frozenset[str]] = set()
        for row in sorted(rows):
            gangs = frozenset(on_node[row])
            if gangs in tried:
                continue
            tried.add(gangs)
            chosen = [victim for key in on_node[row] for victim in by_gang[key]]
            found = material.with_recorded(chosen)
            if found is not None:
                yield found


def multi_node(material: Material) -> Iterator[Victims]:
    """Clear several nodes at once (cycle:SOL-10)."""
    if material.recorded and (found := material.with_recorded([])) is not None:
        yield found
    session = material.session
    tasks = [task for batch in material.preemptor.batches for task in batch.tasks]
    smallest = min((_gpus(session, task.shape.gpu_hundredths, task.shape) for task in tasks), default=0.0)
    demand = sum(_gpus(session, task.shape.gpu_hundredths, task.shape) for task in tasks)
    room = _Room(material)
    units: list[Victims] = []
    freed = {row: dict(amounts) for row, amounts in material.freed.items()}
    suffices = False
    for unit in material.units():
        units.append(unit)
        room.add(unit)
        if not suffices:
            add_freed(session, freed, (victim.member for victim in unit))
            suffices = material.bounds.may_suffice(freed)
        if not suffices or all(room.at(victim.member.row) < smallest for victim in unit):
            continue
        nodes = [row for row in room.first_seen if room.at(row) >= smallest]
        place = {row: index for index, row in enumerate(nodes)}
        nodes.sort(key=lambda row: (room.at(row), place[row]))
        missing = demand - room.elsewhere()
        fewest = _fewest(nodes, missing, room)
        if fewest is None:
            continue
        for count in _growing(fewest, len(nodes)):
            chosen_rows = set(nodes[:count])
            chosen = [victim for each in units if any(v.member.row in chosen_rows for v in each) for victim in each]
            found = material.with_recorded(chosen)
            if found is not None and found:
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


def _gpus(session: Session, hundredths: int, shape: object) -> float:
    memory = getattr(shape, "gpu").memory_mib
    if memory and session.smallest_gpu_mib:
        return 100.0 * getattr(shape, "gpu").devices * memory / session.smallest_gpu_mib
    return float(hundredths)


class _Room:
    """GPUs (hundredths) that nodes have or would have."""

    def __init__(self, material: Material) -> None:
        session = material.session
        self._feasible = material.preemptor.feasible
        self._base = free_gpus(session)
        for victim in material.recorded:
            self._base[victim.member.row] += victim.member.amounts[2]
        #: what the units free, nodes in the order they were met
        self._freed: dict[int, float] = {}
        self._total = 0.0
        recorded_rows = {victim.member.row for victim in material.recorded}
        for row, gpus in enumerate(self._base):
            if self._feasible is None or self._feasible[row] or row in recorded_rows:
                self._total += gpus
        self._inside = recorded_rows

    @property
    def first_seen(self) -> list[int]:
        return list(self._freed)

    def add(self, unit: Victims) -> None:
        for victim in unit:
            row = victim.member.row
            if row not in self._freed:
                self._freed[row] = 0.0
                if self._feasible is None or self._feasible[row] or row in self._inside:
                    self._total -= self._base[row]
            self._freed[row] += victim.member.amounts[2]

    def at(self, row: int) -> float:
        return self._base[row] + self._freed[row]

    def elsewhere(self) -> float:
        """On nodes without victims."""
        return self._total


def free_gpus(session: Session) -> list[float]:
    """[node] GPUs idle or being released, in hundredths, the rest of shared ones included."""
    state, snapshot = session.state, session.snapshot
    free: list[float] = [0.0] * len(snapshot.nodes)
    for axis in snapshot.axes.gpu_axes:
        for row, count in enumerate(state.free[axis].tolist()):
            free[row] += 100.0 * count
    for row, devices in state.devices.items():
        mib = snapshot.nodes.facts[row].gpu_mib
        for device in devices.values():
            if device.live or device.releasing != device.pipelined:
                free[row] += 100.0 * max(0, mib - device.allocated_mib + device.releasing_mib) / mib
    return free


WAYS: dict[str, Callable[[Material], Iterator[Victims]]] = {
    "NodeLocalGreedy": node_local,
    "MultiNodeGang": multi_node,
}
