"""What a cycle has read, so that the next one knows whether its plan still holds.

The tables replace a token with every change: one for waiting and stale groups, one for running work, one for the rest.
Running pods change all the time, and most of these changes do not matter to waiting pods.  What matters are the free
amounts of nodes and the sums of queues, which are compared by value, and anything else a cycle reads of running work,
which the snapshot records (`Snapshot.inspected_running`).
"""

from __future__ import annotations

from typing import NamedTuple

from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task


class ChangeTokens(NamedTuple):
    """Tokens: the same object as long as nothing of its kind has changed."""

    #: waiting and stale groups, and their tasks
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


class ChangeTracker:
    """The present tokens; each is replaced when something of its kind changes."""

    __slots__ = ("_rest", "_running", "_waiting")

    def __init__(self) -> None:
        self._waiting = object()
        self._running = object()
        self._rest = object()

    def tokens(self) -> ChangeTokens:
        """The tokens as they are now."""
        return ChangeTokens(self._waiting, self._running, self._rest)

    def waiting_changed(self) -> None:
        """A waiting or stale group changed."""
        self._waiting = object()

    def running_changed(self) -> None:
        """Running work changed."""
        self._running = object()

    def rest_changed(self) -> None:
        """Something else changed."""
        self._rest = object()

    def task_changed(self, task: Task) -> None:
        """A task comes, goes or changes; whether its group waits is decided when the group index is refreshed."""
        shape = task.shape
        if (
            task.gpu_groups
            or task.is_reservation
            or shape.host_ports
            or shape.affinity is not None
            or shape.volumes
            or shape.claims
            or shape.dra_backed_spec is not None
            or shape.gpu.legacy_mig
            or task.evicted_for
            or task.held_by_queue
        ):
            # These affect waiting pods by more than sums.
            self._rest = object()
        elif not task.group_key and task.for_this_scheduler and task.status is TaskStatus.PENDING:
            self._waiting = object()
        else:
            self._running = object()
