"""The sums of running work that a cycle reads.

Two cycles with equal sums see the same running work, unless one of them has inspected more of it
(`Snapshot.inspected_running`).
"""

from __future__ import annotations

import numpy as np

from pykai.core.cluster.groupindex import GroupIndex, PriorityKind, ResourceSums, TerminatingSums
from pykai.core.model.axes import IntArray

#: kinds of groups, kinds of running groups, and what they hold, request and give up
QueueSums = tuple[
    frozenset[PriorityKind],
    frozenset[PriorityKind],
    dict[PriorityKind, ResourceSums],
    ResourceSums,
    int,
    dict[PriorityKind, TerminatingSums],
]


class RunningSums:
    """Sums of all running work."""

    __slots__ = ("_columns", "_foreign_usage", "_queues")

    def __init__(self, columns: IntArray, foreign_usage: dict[int, tuple[int, ...]], group_index: GroupIndex) -> None:
        #: a copy, since the cycle changes the snapshot's
        self._columns = columns.copy()
        self._foreign_usage = foreign_usage
        self._queues: dict[str, QueueSums] = {
            name: (
                frozenset(count.groups),
                frozenset(count.running),
                dict(count.allocated),
                count.requested,
                count.requested_mib,
                dict(count.terminating),
            )
            for name, count in group_index.queues.items()
        }

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RunningSums)
            and self._queues == other._queues
            and self._foreign_usage == other._foreign_usage
            and np.array_equal(self._columns, other._columns)
        )

    # Sums change, so they are no key; typeshed has `__hash__` as a method only.
    __hash__ = None  # type: ignore[assignment]
