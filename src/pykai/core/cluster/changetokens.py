"""What a cycle has read, so that the next one knows whether its plan still holds.

The tables replace a token with every change: one for groups that wait (or are broken), one for work that runs, one for
all the rest.  Pods that run change all the time, and most of that means nothing to those that wait: what counts are the
free amounts of nodes and the sums of queues, which are compared by value, and any further look at running work, of
which the snapshot keeps track (`Snapshot.looked`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pykai.core.cluster.groupindex import Census, Kind, LeavingSums, Sums
from pykai.core.model.axes import IntArray


class Content(NamedTuple):
    """Tokens: the same object as long as nothing of its kind has changed."""

    #: groups that wait or are broken, and their tasks
    waiting: object
    #: other groups and tasks
    running: object
    #: nodes, queues, and everything else
    rest: object

    def same(self, other: Content) -> bool:
        """Whether nothing at all has changed."""
        return self.waiting is other.waiting and self.running is other.running and self.rest is other.rest

    def same_but_running(self, other: Content) -> bool:
        """Whether at most running work has changed."""
        return self.waiting is other.waiting and self.rest is other.rest


#: kinds of groups, kinds of those that run, and what they have, want and are giving up
QueueSums = tuple[frozenset[Kind], frozenset[Kind], dict[Kind, Sums], Sums, int, dict[Kind, LeavingSums]]


class Figures:
    """What all running work comes to: all that a cycle sees of it, unless it looks."""

    __slots__ = ("_columns", "_foreign", "_queues")

    def __init__(self, columns: IntArray, foreign: dict[int, tuple[int, ...]], census: Census) -> None:
        #: a copy, since the cycle changes the snapshot's
        self._columns = columns.copy()
        self._foreign = foreign
        self._queues: dict[str, QueueSums] = {
            name: (
                frozenset(count.groups),
                frozenset(count.running),
                dict(count.allocated),
                count.wanted,
                count.wanted_mib,
                dict(count.leaving),
            )
            for name, count in census.queues.items()
        }

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Figures)
            and self._queues == other._queues
            and self._foreign == other._foreign
            and np.array_equal(self._columns, other._columns)
        )

    __hash__ = None  # type: ignore[assignment]
