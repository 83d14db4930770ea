"""What changes when every task evicted so far is gone and nothing is pipelined: the start of the next cycle.

Each trial that looks ahead begins there.  Undone and done again task by task, that costs the whole cycle for every
trial, so the change is kept as sums: by node, by queue, by gang.  A commit replaces the part of the gangs that it
changed.  Only changes that are exact as sums are kept so: tasks with shared GPUs, host ports or grants of ledgers, and
amounts with fractions, are undone one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from operator import sub
from typing import NamedTuple

import numpy as np

from pykai.core.cycle.gangs import Gang, LeafState
from pykai.core.cycle.journal import Placement
from pykai.core.cycle.state import State
from pykai.core.model.axes import BoolArray, IntArray
from pykai.core.model.queuetree import NO_AMOUNTS, QueueAmounts, difference_of, sum_of
from pykai.core.model.sharedgpus import PIPELINED, RELEASING
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task

_WAITS = Placement(TaskStatus.PENDING, -1, ())


class _LeafDepartures:
    """What the counters of one leaf lose."""

    __slots__ = ("active_used", "leaf", "pipelined", "waits_again")

    def __init__(self, leaf: LeafState) -> None:
        self.leaf = leaf
        #: tasks that give up a pipelined placement
        self.pipelined = 0
        #: those of them that have no other node
        self.waits_again = 0
        self.active_used = 0


class GangDepartures:
    """The part of one gang."""

    __slots__ = (
        "amounts",
        "dropped",
        "gang",
        "keys",
        "leaves",
        "non_preemptible",
        "pipelined",
        "released",
        "waits_again",
    )

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        #: keys of its tasks that are gone or wait again
        self.keys: list[str] = []
        #: tasks that give up a pipelined placement, with their nodes
        self.dropped: list[tuple[Task, int]] = []
        #: (task, node, how it is held)
        self.released: list[tuple[Task, int, int]] = []
        self.leaves: list[_LeafDepartures] = []
        self.pipelined = 0
        self.waits_again = 0
        #: what its queues lose, and the part that counts as non-preemptible
        self.amounts = NO_AMOUNTS
        self.non_preemptible = NO_AMOUNTS

    def shift(self, sign: int) -> None:
        """Take these tasks out of the counters of the gang (sign 1), or count them again (-1)."""
        gang = self.gang
        for each in self.leaves:
            leaf = each.leaf
            leaf.active_allocated -= sign * each.pipelined
            leaf.active_used -= sign * each.active_used
            leaf.pipelined -= sign * each.pipelined
            leaf.unplaced += sign * each.waits_again
            leaf.first_unplaced = 0
        gang.pipelined -= sign * self.pipelined
        gang.unplaced += sign * self.waits_again
        gang.mark_changed()


def gang_departures(state: State, gang: Gang) -> GangDepartures | None:
    """The part of a gang as it is now, None if it cannot be kept as sums."""
    part = GangDepartures(gang)
    index = gang.group.leaf_index
    leaves: dict[int, _LeafDepartures] = {}
    for task in gang.entry.tasks.values():
        placement = state.placements.get(task.key)
        if placement is None:
            continue
        origin = state.evicted_from.get(task.key)
        if placement.status is not TaskStatus.PIPELINED:
            if origin is None:
                continue
            placement = None
        if task.shape.host_ports or any(held.gpu_groups or held.grants for held in (placement, origin) if held):
            return None
        position = index[task.subgroup]
        leaf = leaves.get(position)
        if leaf is None:
            leaf = leaves[position] = _LeafDepartures(gang.leaves[position])
        part.keys.append(task.key)
        if placement is not None:
            waits_again = origin is None
            leaf.pipelined += 1
            leaf.waits_again += waits_again
            leaf.active_used += waits_again
            part.dropped.append((task, placement.row))
            part.released.append((task, placement.row, PIPELINED))
            amounts = state.amounts_on(task.shape, placement.row)
            part.amounts = sum_of(part.amounts, amounts)
            if state.counts_as_non_preemptible(gang, task):
                part.non_preemptible = sum_of(part.non_preemptible, amounts)
        if origin is not None:
            leaf.active_used += 1
            part.released.append((task, origin.row, RELEASING))
    part.leaves = list(leaves.values())
    part.pipelined = sum(leaf.pipelined for leaf in part.leaves)
    part.waits_again = sum(leaf.waits_again for leaf in part.leaves)
    return part if _are_whole(part.amounts) else None


def _are_whole(amounts: Iterable[float]) -> bool:
    """Whether sums of these do not depend on their order."""
    return all(float(amount).is_integer() for amount in amounts)


class _Before(NamedTuple):
    """What of the state is replaced, as it was."""

    placements: dict[str, Placement]
    evicted_from: dict[str, Placement]
    #: queue -> its figures, and those of non-preemptible work
    figures: dict[int, tuple[list[float], list[float]]]


class Departures:
    """The change of one version of the state."""

    __slots__ = ("_by_gang", "_by_queue", "_columns", "_inexact", "_offered", "_state", "_waits", "pipelined")

    def __init__(self, state: State) -> None:
        self._state = state
        self._by_gang: dict[str, GangDepartures] = {}
        #: gangs that cannot be kept as sums
        self._inexact: set[str] = set()
        #: [plane x axis, node] what is no longer held of what nodes offer, and whether they offer it
        self._columns: IntArray = np.zeros(
            (state.columns.shape[0] * state.columns.shape[1], len(state.snapshot.nodes)), dtype=np.int64
        )
        self._offered: BoolArray = np.tile(state.allocatable > 0, (len(state.columns), 1))
        #: queue -> what its gangs lose and those below it, and the part that counts as non-preemptible
        self._by_queue: dict[int, tuple[QueueAmounts, QueueAmounts]] = {}
        #: the placements of all tasks that are gone, or wait
        self._waits: dict[str, Placement] = {}
        #: what was pipelined
        self.pipelined = NO_AMOUNTS

    @property
    def gangs(self) -> dict[str, Gang]:
        """The gangs that are concerned."""
        return {key: part.gang for key, part in self._by_gang.items()}

    def concern(self, tasks: Collection[str]) -> bool:
        """Whether one of these tasks is gone, or waits again."""
        return any(key in self._waits for key in tasks)

    def refresh(self, gang: Gang) -> None:
        """Replace the part of a gang."""
        before = self._by_gang.pop(gang.key, None)
        if before is not None:
            self._count(before, -1)
        self._inexact.discard(gang.key)
        part = gang_departures(self._state, gang)
        if part is None:
            self._inexact.add(gang.key)
        elif part.keys:
            self._by_gang[gang.key] = part
            self._count(part, 1)

    def _count(self, part: GangDepartures, sign: int) -> None:
        vectors, columns = self._state.snapshot.vectors, self._columns
        for task, row, holding in part.released:
            columns[:, row] += sign * vectors[task.shape].charges[holding]
        add = sum_of if sign > 0 else difference_of
        for queue in part.gang.chain:
            amounts, non_preemptible = self._by_queue.get(queue, (NO_AMOUNTS, NO_AMOUNTS))
            self._by_queue[queue] = add(amounts, part.amounts), add(non_preemptible, part.non_preemptible)
        self.pipelined = add(self.pipelined, part.amounts)
        for key in part.keys:
            if sign > 0:
                self._waits[key] = _WAITS
            else:
                del self._waits[key]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was evicted, and nothing is pipelined."""
        return not self._by_gang and not self._inexact

    @property
    def are_exact(self) -> bool:
        """Whether all can be changed at once, to the same figures as one by one."""
        ledger = self._state.ledger
        return not self._inexact and all(
            _are_whole(ledger.allocated[queue]) and _are_whole(ledger.allocated_non_preemptible[queue])
            for queue in self._by_queue
        )

    def apply(self) -> Callable[[], None]:
        """Change the state; the result restores it."""
        state, ledger = self._state, self._state.ledger
        before = _Before(
            state.placements,
            state.evicted_from,
            {queue: (ledger.allocated[queue], ledger.allocated_non_preemptible[queue]) for queue in self._by_queue},
        )
        state.columns -= (self._columns * self._offered).reshape(state.columns.shape)
        state.placements = {**state.placements, **self._waits}
        state.evicted_from = {}
        for queue, (amounts, non_preemptible) in self._by_queue.items():
            ledger.allocated[queue] = [*map(sub, ledger.allocated[queue], amounts)]
            ledger.allocated_non_preemptible[queue] = [
                *map(sub, ledger.allocated_non_preemptible[queue], non_preemptible)
            ]
        for part in self._by_gang.values():
            part.shift(1)
        for observer in state.observers:
            for part in self._by_gang.values():
                for task, row in part.dropped:
                    observer.task_removed(task, row)
        state.changed_rows += self._rows()
        return partial(self._restore, before)

    def _restore(self, before: _Before) -> None:
        state, ledger = self._state, self._state.ledger
        state.columns += (self._columns * self._offered).reshape(state.columns.shape)
        state.placements, state.evicted_from = before.placements, before.evicted_from
        for queue, figures in before.figures.items():
            ledger.allocated[queue], ledger.allocated_non_preemptible[queue] = figures
        for part in self._by_gang.values():
            part.shift(-1)
        for observer in state.observers:
            for part in self._by_gang.values():
                for task, row in part.dropped:
                    observer.task_added(task, row)
        state.changed_rows += self._rows()

    def _rows(self) -> list[int]:
        """The nodes that change."""
        rows: list[int] = np.flatnonzero(self._columns.any(axis=0)).tolist()
        return rows
