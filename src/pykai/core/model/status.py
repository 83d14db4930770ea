"""The states a task can be in, and which of them count for what (cycle:1.1).

A task is a pod as the engine sees it.  Most states come from the pod itself; `ALLOCATED` and `PIPELINED` exist only
inside a cycle, and a task evicted by the cycle is `RELEASING` like one that terminates by itself.  The tables below are
indexed by status, so a membership test is one subscript.
"""

from __future__ import annotations

from enum import IntEnum


class TaskStatus(IntEnum):
    """State of a task; the comments of cycle:1.1 say what each means (gpu:C-11)."""

    PENDING = 0
    GATED = 1
    ALLOCATED = 2
    PIPELINED = 3
    BINDING = 4
    BOUND = 5
    RUNNING = 6
    RELEASING = 7
    STUCK_IN_RELEASING = 8
    SUCCEEDED = 9
    FAILED = 10
    UNKNOWN = 11
    DELETED = 12


#: The names on the wire and in recorded cases.
STATUS_NAMES: dict[str, TaskStatus] = {
    "Pending": TaskStatus.PENDING,
    "Gated": TaskStatus.GATED,
    "Allocated": TaskStatus.ALLOCATED,
    "Pipelined": TaskStatus.PIPELINED,
    "Binding": TaskStatus.BINDING,
    "Bound": TaskStatus.BOUND,
    "Running": TaskStatus.RUNNING,
    "Releasing": TaskStatus.RELEASING,
    "StuckInReleasing": TaskStatus.STUCK_IN_RELEASING,
    "Succeeded": TaskStatus.SUCCEEDED,
    "Failed": TaskStatus.FAILED,
    "Unknown": TaskStatus.UNKNOWN,
    "Deleted": TaskStatus.DELETED,
}


def _table(*members: TaskStatus) -> tuple[bool, ...]:
    return tuple(status in members for status in TaskStatus)


#: Exists and does not terminate.
ALIVE = _table(
    TaskStatus.PENDING,
    TaskStatus.GATED,
    TaskStatus.ALLOCATED,
    TaskStatus.PIPELINED,
    TaskStatus.BINDING,
    TaskStatus.BOUND,
    TaskStatus.RUNNING,
)
#: Holds resources of a node, terminating tasks included.
ACTIVE_USED = _table(
    TaskStatus.ALLOCATED,
    TaskStatus.PIPELINED,
    TaskStatus.BINDING,
    TaskStatus.BOUND,
    TaskStatus.RUNNING,
    TaskStatus.RELEASING,
    TaskStatus.STUCK_IN_RELEASING,
)
#: Holds resources and keeps them.
ACTIVE_ALLOCATED = _table(
    TaskStatus.ALLOCATED, TaskStatus.PIPELINED, TaskStatus.BINDING, TaskStatus.BOUND, TaskStatus.RUNNING
)
#: Holds resources until it is gone.
TERMINATING = _table(TaskStatus.RELEASING, TaskStatus.STUCK_IN_RELEASING)
#: Counts as allocated to its queue when a cycle starts (queues:Q-103).
QUEUE_ALLOCATED = _table(TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND, TaskStatus.RUNNING)
