"""What the state of a cycle holds besides sums: placements, what was granted with them, and the journal's entries.

Every change of the state is one entry; `State.rollback` undoes them from the tail.  What tasks hold that is no column
goes through ledgers (docs/adr/0009).

Statements: cycle:STM-1, PERF-4.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from pykai.core.cycle.gangs import Gang, LeafState
from pykai.core.model.sharedgpus import DeviceUse
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task


class AllocationHolder(Protocol):
    """A ledger of things that tasks hold one by one (`state.DiscreteLedger`)."""

    def hold(self, task: Task, row: int, allocation: object, holding: int, sign: int) -> None:
        """Book something as held live, releasing or pipelined (sign 1), or take it out again (-1)."""


@runtime_checkable
class BindFieldSource(Protocol):
    """Books of which the bind of a pod tells: what the binder must know."""

    def bind_fields(self, task: Task, row: int, allocation: object) -> dict[str, Any]:
        """Fields of `decisions.Bind`."""


class Grant(NamedTuple):
    """What a task is given out of a ledger; equal allocations are equal grants."""

    ledger: AllocationHolder
    allocation: object


class Placement(NamedTuple):
    """Where a task is in this cycle, if the cycle moved it (gpu:S-10)."""

    status: TaskStatus
    row: int
    gpu_groups: tuple[str, ...]
    grants: tuple[Grant, ...] = ()


class Placed(NamedTuple):
    gang: Gang
    leaf: LeafState
    task: Task
    placement: Placement
    holding: int
    saved: list[list[float]]
    previous: Placement | None
    non_preemptible: bool
    version: int


class Converted(NamedTuple):
    gang: Gang
    leaf: LeafState
    task: Task
    placement: Placement
    version: int


class Evicted(NamedTuple):
    """A task told to leave its node: `here`, as it leaves it (gpu:S-8)."""

    gang: Gang
    leaf: LeafState
    task: Task
    placement: Placement
    saved: list[list[float]]
    previous: Placement | None
    version: int


class Dropped(NamedTuple):
    """A promise taken back."""

    gang: Gang
    leaf: LeafState
    task: Task
    placement: Placement
    saved: list[list[float]]
    previous: Placement | None
    version: int


class Kept(NamedTuple):
    """An eviction taken back: the task goes on where it is."""

    gang: Gang
    leaf: LeafState
    task: Task
    placement: Placement
    saved: list[list[float]]
    previous: Placement | None
    cancelled: Placement | None
    version: int


class Vacated(NamedTuple):
    """A task that was told to leave is gone, and so are the reservations of shared GPUs it was the last on."""

    gang: Gang
    leaf: LeafState
    task: Task
    placement: Placement
    previous: Placement | None
    devices: dict[str, DeviceUse]
    version: int


JournalEntry = Placed | Converted | Evicted | Dropped | Kept | Vacated


class CommitResult(NamedTuple):
    """What the entries since a mark amount to, each task once, in the order they were first touched."""

    #: keys of the tasks concerned, with their gangs
    gangs_by_task: dict[str, Gang]
    #: tasks with a place they did not have: started (Binding) or promised (Pipelined)
    placed: list[tuple[Gang, Task, Placement]]
    #: tasks that leave, with where they were
    evicted: list[tuple[Gang, Task, Placement]]


class Observer(Protocol):
    """Someone who keeps its own index of which task is where."""

    def task_added(self, task: Task, row: int) -> None:
        """A task now holds the node."""

    def task_removed(self, task: Task, row: int) -> None:
        """A task no longer holds the node."""
