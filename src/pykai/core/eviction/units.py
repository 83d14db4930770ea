"""What is evicted together: tasks of a gang, with what they hold and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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

    __slots__ = ("covered", "gang", "gang_amounts", "members", "rows")

    def __init__(self, gang: Gang, members: list[EvictableTask], gang_amounts: QueueAmounts) -> None:
        self.gang = gang
        self.members = members
        #: nodes they are on, ascending
        self.rows: tuple[int, ...] = tuple(sorted({member.row for member in members}))
        #: what all evictable tasks of the gang cost its queue
        self.gang_amounts = gang_amounts
        #: key of a disruption budget -> tasks under it, None = not counted yet
        self.covered: Mapping[str, int] | None = None


UnitKey = tuple[Any, ...]
#: The order key of a unit's gang, minus its place in the gang, the unit.
UnitItem = tuple[UnitKey, int, EvictionUnit]
UnitLine = Sequence[UnitItem]
