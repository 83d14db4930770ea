"""What a cycle has read, so that the next one knows whether its plan still holds.

The tables replace a token with every change: one for groups that wait (or are broken), one for work that runs, one for
all the rest.  Pods that run change all the time, and most of that means nothing to those that wait: what counts are the
free amounts of nodes and the sums of queues, which are compared by value, and any further look at running work, of
which the snapshot keeps track (`Snapshot.inspected_running`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pykai.core.cluster.groupindex import GroupIndex, PriorityKind, ResourceSums, TerminatingSums
from pykai.core.model.axes import IntArray


class ChangeTokens(NamedTuple):
    """Tokens: the same object as long as nothing of its kind has changed."""

    #: groups that wait or are broken, and their tasks
    waiting: object
    #: other groups and tasks
    running: object
    #: nodes, queues, and everything else
    rest: object

    def is_same(self, other: ChangeTokens) -> bool:
        """Whether nothing at all has changed."""
        return self.waiting is other.waiting and self.running is other.running and self.rest is other.rest

    def same_except_running(self, other: ChangeTokens) -> bool:
        """Whether at most running work has changed."""
        return self.waiting is other.waiting and self.rest is other.rest


#: kinds of groups, kinds of those that run, and what they have, want and are giving up
QueueSums = tuple[
    frozenset[PriorityKind],
    frozenset[PriorityKind],
    dict[PriorityKind, ResourceSums],
    ResourceSums,
    int,
    dict[PriorityKind, TerminatingSums],
]


class RunningSums:
    """What all running work comes to: all that a cycle sees of it, unless it looks."""

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

    __hash__ = None  # type: ignore[assignment]
