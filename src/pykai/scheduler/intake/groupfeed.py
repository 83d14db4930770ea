"""Changes of PodGroups, passed to each part of the scheduler in turn.

The store has one subscriber, this feed.  Its stages fix the order, whatever the order in which the parts were made: the
tables, then writes in progress, then published statuses.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from pykai.api.scheduling import PodGroup
from pykai.kube.store import Change

GroupHandler = Callable[[Change[PodGroup]], None]


class GroupStage(IntEnum):
    """The parts that receive a change, first to last."""

    INTAKE = 0
    DISPATCH = 1
    STATUS = 2


class GroupFeed:
    """Passes changes on."""

    def __init__(self) -> None:
        self._handlers: list[tuple[GroupStage, GroupHandler]] = []

    def subscribe(self, stage: GroupStage, handler: GroupHandler) -> None:
        """Subscribe to changes, after the earlier stages and earlier subscribers of the same stage."""
        self._handlers.append((stage, handler))
        self._handlers.sort(key=lambda each: each[0])

    def publish(self, change: Change[PodGroup]) -> None:
        """Pass on a change of a PodGroup."""
        for _, handler in self._handlers:
            handler(change)
