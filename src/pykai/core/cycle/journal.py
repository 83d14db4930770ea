"""What the state of a cycle holds besides sums: placements, their grants, and the journal's entries.

Every change of the state is one entry; `State.rollback` undoes them from the tail.  Resources that are no column go
through ledgers (docs/adr/0009).

Statements: cycle:STM-1, PERF-4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pykai.core.cycle.gangs import Gang, LeafState
from pykai.core.model.sharedgpus import DeviceUse
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task


class AllocationHolder(Protocol):
    """A ledger of resources that tasks hold one by one (`state.DiscreteLedger`)."""

    def hold(self, task: Task, row: int, allocation: object, holding: int, sign: int) -> None:
        """Record an allocation as live, releasing or pipelined (sign 1), or remove it (-1)."""


@runtime_checkable
class BindFieldSource(Protocol):
    """A ledger with fields for the binder in the bind of a pod."""

    def bind_fields(self, task: Task, row: int, allocation: object) -> dict[str, Any]:
        """Fields of `decisions.Bind`."""


class Grant(NamedTuple):
    """What a ledger grants a task; equal allocations are equal grants."""

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
    """A task evicted from its node: `here`, in its terminating state (gpu:S-8)."""

    gang: Gang
    leaf: LeafState
    task: Task
    placement: Placement
    saved: list[list[float]]
    previous: Placement | None
    version: int


class Dropped(NamedTuple):
    """A pipelined placement undone."""

    gang: Gang
    leaf: LeafState
    task: Task
    placement: Placement
    saved: list[list[float]]
    previous: Placement | None
    version: int


class Kept(NamedTuple):
    """An eviction undone: the task keeps running."""

    gang: Gang
    leaf: LeafState
    task: Task
    placement: Placement
    saved: list[list[float]]
    previous: Placement | None
    cancelled: Placement | None
    version: int


class Vacated(NamedTuple):
    """An evicted task is gone, and so are the reservations of shared GPUs that only it still used."""

    gang: Gang
    leaf: LeafState
    task: Task
    placement: Placement
    previous: Placement | None
    devices: dict[str, DeviceUse]
    version: int


class Departed(NamedTuple):
    """Many tasks that are gone, or wait again, at once."""

    undo: Callable[[], None]
    version: int


JournalEntry = Placed | Converted | Evicted | Dropped | Kept | Vacated | Departed


class CommitResult(NamedTuple):
    """What the entries since a mark amount to, each task once, in the order they were first touched."""

    #: keys of the affected tasks, with their gangs
    gangs_by_task: dict[str, Gang]
    #: tasks with a new placement: started (Binding) or Pipelined
    placed: list[tuple[Gang, Task, Placement]]
    #: evicted tasks, with their nodes
    evicted: list[tuple[Gang, Task, Placement]]


class Observer(Protocol):
    """Keeps its own index of which task is where."""

    def task_added(self, task: Task, row: int) -> None:
        """A task now holds the node."""

    def task_removed(self, task: Task, row: int) -> None:
        """A task no longer holds the node."""
