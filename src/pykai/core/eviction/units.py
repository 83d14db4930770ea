"""What is evicted together: tasks of a gang, with what they hold and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Gang, LeafState
from pykai.core.model.queuetree import QueueAmounts
from pykai.core.model.tasks import Task


class EvictableTask:
    """A task that may be evicted, with its leaf and node."""

    __slots__ = ("amounts", "claimed", "leaf", "row", "task")

    def __init__(
        self, leaf: LeafState, task: Task, row: int, amounts: QueueAmounts, claimed: tuple[tuple[int, int], ...] = ()
    ) -> None:
        self.leaf = leaf
        self.task = task
        self.row = row
        #: what it costs its queue where it is
        self.amounts = amounts
        #: at most what its claims would free of the columns of its node: axis and amount
        self.claimed = claimed


class EvictionUnit:
    """Tasks of a gang that are evicted together."""

    __slots__ = ("covered", "gang", "gang_amounts", "members", "number", "rows")

    def __init__(self, gang: Gang, members: list[EvictableTask], gang_amounts: QueueAmounts) -> None:
        self.gang = gang
        self.members = members
        #: nodes they are on, ascending
        self.rows: tuple[int, ...] = tuple(sorted({member.row for member in members}))
        #: what all evictable tasks of the gang cost its queue
        self.gang_amounts = gang_amounts
        #: key of a disruption budget -> tasks under it, None = not counted yet
        self.covered: Mapping[str, int] | None = None
        #: in columns, -1 = in none
        self.number = -1


def freed_by(snapshot: Snapshot, member: EvictableTask) -> list[tuple[int, int]]:
    """(axis, amount) that a task would free of its node at most.

    A device without its tenant is assumed to be a whole free device.
    """
    shape = member.task.shape
    freed = [*snapshot.vectors[shape].taken, *member.claimed]
    if shape.shared:
        axis = snapshot.axes.index.get(snapshot.nodes.facts[member.row].shared_resource)
        if axis is not None:
            freed.append((axis, shape.gpu.devices))
    return freed


UnitKey = tuple[Any, ...]
#: The order key of a unit's gang, minus its place in the gang, the unit.
UnitItem = tuple[UnitKey, int, EvictionUnit]
UnitLine = Sequence[UnitItem]
