"""The cluster as a cycle changes it: columns plus a journal.

Every change is one entry in the journal, and `rollback(mark)` undoes entries from the tail: nothing is ever copied for
a trial (design: what-if by journal).  Integers are undone by the opposite addition, which is exact; queue figures are
restored from saved values.

`changed_rows` lists the node rows changed so far, undo included.  A cache per row remembers how far it has read that
list and repairs the rows after it; see `placing/ranking.py`.  `version` identifies the content: after a rollback it is
the version of the mark again, so "nothing changed since" is one comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Gang, LeafState
from pykai.core.cycle.journal import (
    AllocationHolder,
    CommitResult,
    Converted,
    Departed,
    Dropped,
    Evicted,
    Grant,
    JournalEntry,
    Kept,
    Observer,
    Placed,
    Placement,
    Vacated,
)
from pykai.core.cycle.nodestate import NodeState
from pykai.core.cycle.request import PlacementRequest
from pykai.core.model.axes import BoolArray
from pykai.core.model.queuetree import QueueAmounts
from pykai.core.model.shapes import Shape
from pykai.core.model.sharedgpus import (
    FREE_DEVICE,
    LIVE,
    PIPELINED,
    DeviceUse,
)
from pykai.core.model.sharedgpus import RELEASING as RELEASED
from pykai.core.model.status import ACTIVE_ALLOCATED, TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.queueing.queueledger import CapacityRefusal, QueueLedger


class DiscreteLedger(AllocationHolder, Protocol):
    """A resource that nodes grant to tasks one by one and that is no column: devices of claims, NUMA zones, volumes.

    A ledger serves one cycle.  It starts with what tasks held before.  Like the columns it distinguishes idle (no task
    holds it) from free (terminating tasks still hold it, so it can only be pipelined).
    """

    def concerns(self, shape: Shape) -> bool:
        """Whether tasks of this shape use the ledger."""

    def held(self, task: Task) -> object | None:
        """What a task holds on its node since before the cycle, None for nothing."""

    def grant(self, state: State, request: PlacementRequest, row: int, *, idle: bool) -> object | None:
        """What a task would get on a node, of what is idle or of what is free; None if there is too little."""


#: Whether the queues of a gang may take on some amounts.
QuotaGate = Callable[["State", Gang, QueueAmounts], CapacityRefusal | None]
#: A plugin's score of a shared GPU (None = a whole one) for a task on a node.
GpuScore = Callable[["State", PlacementRequest, int, DeviceUse | None], float]
#: [node] where a task may go, as far as evictions cannot change it.
AllowedNodes = Callable[["State", PlacementRequest], BoolArray]


class State(NodeState):
    """Mutable view of one cycle."""

    __slots__ = (
        "_journal",
        "_next_version",
        "allowed_nodes",
        "changed_rows",
        "decided_evictions",
        "discrete_ledgers",
        "evicted_from",
        "gpu_scores",
        "ledger",
        "observers",
        "placements",
        "protected_keys",
        "quota_gate",
        "valid_until_ns",
        "version",
        "work",
    )

    def __init__(
        self,
        snapshot: Snapshot,
        ledger: QueueLedger,
        *,
        observers: tuple[Observer, ...] = (),
        discrete_ledgers: tuple[DiscreteLedger, ...] = (),
        quota_gate: QuotaGate | None = None,
        gpu_scores: tuple[GpuScore, ...] = (),
        allowed_nodes: AllowedNodes | None = None,
    ) -> None:
        super().__init__(snapshot)
        self.ledger = ledger
        #: task key -> its placement by this cycle, or its eviction
        self.placements: dict[str, Placement] = {}
        #: task key -> the node it was evicted from; a task that moves has a placement, too
        self.evicted_from: dict[str, Placement] = {}
        #: tasks whose eviction is decided
        self.decided_evictions: set[str] = set()
        #: tasks of semi-preemptible gangs that count as non-preemptible (queues:Q-415), placed in this cycle
        self.protected_keys: set[str] = set()
        self.observers = observers
        #: resources of nodes besides columns and shared GPUs
        self.discrete_ledgers = discrete_ledgers
        #: None = every queue may take on everything
        self.quota_gate = quota_gate
        #: None = every node is allowed
        self.allowed_nodes = allowed_nodes
        self.gpu_scores = gpu_scores
        #: node rows changed, in order, undo included
        self.changed_rows: list[int] = []
        #: names the content; equal versions are equal states
        self.version = 0
        #: units of work done, for budgets that a replay repeats exactly
        self.work = 0
        #: the next instant at which a checked rule would change its result, None = never
        self.valid_until_ns: int | None = None
        self._next_version = 1
        self._journal: list[JournalEntry] = []

    def passed(self, instant_ns: int) -> bool:
        """Whether an instant has passed.  Every rule about time calls this, so that the cycle knows how long its plan
        holds.
        """
        if instant_ns <= self.snapshot.now_ns:
            return True
        if self.valid_until_ns is None or instant_ns < self.valid_until_ns:
            self.valid_until_ns = instant_ns
        return False

    def status_of(self, task: Task) -> TaskStatus:
        """State of a task right now."""
        placement = self.placements.get(task.key)
        return task.status if placement is None else placement.status

    def is_unplaced(self, task: Task) -> bool:
        """Whether a task waits to be placed (cycle:TSK-7); one evicted by a trial does, so that it may be kept."""
        placement = self.placements.get(task.key)
        status = task.status if placement is None else placement.status
        return status is TaskStatus.PENDING or (
            status is TaskStatus.RELEASING and placement is not None and task.key not in self.decided_evictions
        )

    def placement_of(self, task: Task) -> Placement:
        """The node a task holds and how; it must hold one."""
        placement = self.placements.get(task.key)
        if placement is not None:
            return placement
        return Placement(
            task.status, self.snapshot.nodes.rows[task.node], task.gpu_groups, self.grants_before_cycle(task)
        )

    def grants_before_cycle(self, task: Task) -> tuple[Grant, ...]:
        """What a task has held in the discrete ledgers since before the cycle."""
        if not self.discrete_ledgers:
            return ()
        held = ((ledger, ledger.held(task)) for ledger in self.discrete_ledgers if ledger.concerns(task.shape))
        return tuple(Grant(ledger, allocation) for ledger, allocation in held if allocation is not None)

    def grants_on(self, request: PlacementRequest, row: int, *, idle: bool) -> tuple[Grant, ...] | None:
        """What all discrete ledgers would grant a task on a node, None if one has too little."""
        grants: list[Grant] = []
        for ledger in self.discrete_ledgers:
            if ledger.concerns(request.shape):
                allocation = ledger.grant(self, request, row, idle=idle)
                if allocation is None:
                    return None
                grants.append(Grant(ledger, allocation))
        return tuple(grants)

    def amounts_on(self, shape: Shape, row: int) -> QueueAmounts:
        """What a task of this shape costs its queue on a node (gpu:C-8)."""
        return self.snapshot.amounts_on(shape, row)

    def place(
        self,
        gang: Gang,
        leaf: LeafState,
        task: Task,
        row: int,
        gpu_groups: tuple[str, ...],
        grants: tuple[Grant, ...] = (),
        *,
        pipelined: bool,
    ) -> None:
        """Place a task on a node, on idle resources or (pipelined) on those still being released (cycle:STM-4)."""
        holding = PIPELINED if pipelined else LIVE
        shape = task.shape
        self._flat[:, row] += self.snapshot.vectors[shape].charges[holding] * self._offered[:, row]
        if gpu_groups:
            self._change_tenants(shape, row, gpu_groups, (holding, 1))
        if grants:
            self._charge_ledgers(task, row, grants, holding, 1)
        if shape.host_ports:
            self._hold_ports(self.ports, shape, row, 1)
        non_preemptible = gang.next_task_non_preemptible or (gang.semi_preemptible and task.key in gang.protected_keys)
        saved = self.ledger.add(gang.chain, self.amounts_on(shape, row), non_preemptible)
        if non_preemptible and gang.semi_preemptible:
            self.protected_keys.add(task.key)
        leaf.active_allocated += 1
        leaf.active_used += task.key not in self.evicted_from
        leaf.pipelined += pipelined
        leaf.unplaced -= 1
        gang.pipelined += pipelined
        gang.unplaced -= 1
        gang.mark_changed()
        previous = self.placements.get(task.key)
        placement = Placement(TaskStatus.PIPELINED if pipelined else TaskStatus.ALLOCATED, row, gpu_groups, grants)
        self.placements[task.key] = placement
        self._journal.append(
            Placed(gang, leaf, task, placement, holding, saved, previous, non_preemptible, self.version)
        )
        self._advance_version(row)
        for observer in self.observers:
            observer.task_added(task, row)

    def evict(self, gang: Gang, leaf: LeafState, task: Task) -> None:
        """Evict a task from its node (cycle:STM-2); a pipelined task loses its placement."""
        previous = self.placements.get(task.key)
        placement = self.placement_of(task)
        assert ACTIVE_ALLOCATED[placement.status], f"{task.key} is {placement.status.name} and cannot be evicted"
        row = placement.row
        if placement.status is TaskStatus.PIPELINED:
            evicted_from = self.evicted_from.get(task.key)
            saved = self._release_pipelined(gang, leaf, task, placement, PIPELINED)
            leaf.pipelined -= 1
            gang.pipelined -= 1
            # A task that was to move keeps leaving its old node; one that waited waits again (cycle:PG-14).
            waits_again = evicted_from is None
            leaf.active_used -= waits_again
            leaf.unplaced += waits_again
            gang.unplaced += waits_again
            self.placements[task.key] = (
                evicted_from if evicted_from is not None else Placement(TaskStatus.PENDING, -1, ())
            )
            self._journal.append(Dropped(gang, leaf, task, placement, saved, previous, self.version))
            self._advance_version(row)
            return
        self._recharge_node(task, placement, LIVE, RELEASED)
        saved = self.ledger.add(
            gang.chain, _negative(self.amounts_on(task.shape, row)), self.counts_as_non_preemptible(gang, task)
        )
        leaf.active_allocated -= 1
        leaf.unplaced += 1
        leaf.evicted.append(task)
        gang.unplaced += 1
        gang.mark_changed()
        if task.shape.host_ports:
            self._hold_ports(self.ports, task.shape, row, -1)
            self._hold_ports(self.terminating_ports, task.shape, row, 1)
        releasing = Placement(TaskStatus.RELEASING, row, placement.gpu_groups, placement.grants)
        self.placements[task.key] = self.evicted_from[task.key] = releasing
        self._journal.append(Evicted(gang, leaf, task, releasing, saved, previous, self.version))
        self._advance_version(row)
        for observer in self.observers:
            observer.task_removed(task, row)

    def cancel_eviction(self, gang: Gang, leaf: LeafState, task: Task) -> None:
        """Undo an eviction: the task stays where it is and never notices (cycle:STM-3)."""
        eviction = next(entry for entry in reversed(self._journal) if isinstance(entry, Evicted) and entry.task is task)
        cancelled = self.placements[task.key]
        saved = self._revert_eviction(gang, leaf, task, eviction.placement, eviction.previous)
        self._journal.append(
            Kept(gang, leaf, task, eviction.placement, saved, eviction.previous, cancelled, self.version)
        )
        self._advance_version(eviction.placement.row)

    def assume_gone(self, gang: Gang, leaf: LeafState, task: Task) -> None:
        """Look ahead: an evicted task is gone, and its successor waits."""
        placement = self.evicted_from.pop(task.key)
        self._charge_evicted(task, placement, -1)
        node_devices = self.devices.get(placement.row, {})
        # The reservation pod goes with the last tenant.
        freed_devices = {
            group: node_devices[group]
            for group in placement.gpu_groups
            if group in node_devices and node_devices[group].has_no_tenant
        }
        for group in freed_devices:
            self._put_device(placement.row, group, FREE_DEVICE)
        leaf.active_used -= 1
        previous = self.placements[task.key]
        self.placements[task.key] = Placement(TaskStatus.PENDING, -1, ())
        self._journal.append(Vacated(gang, leaf, task, placement, previous, freed_devices, self.version))
        self._advance_version(placement.row)

    def depart(self, apply: Callable[[], Callable[[], None]]) -> None:
        """Look ahead: every task evicted so far is gone, and nothing is pipelined.  `apply` changes the state, and
        returns what restores it.
        """
        self._journal.append(Departed(apply(), self.version))
        self._name_content()

    def _revert_eviction(
        self, gang: Gang, leaf: LeafState, task: Task, placement: Placement, previous: Placement | None
    ) -> list[list[float]]:
        row = placement.row
        self._recharge_node(task, placement, RELEASED, LIVE)
        saved = self.ledger.add(
            gang.chain, self.amounts_on(task.shape, row), self.counts_as_non_preemptible(gang, task)
        )
        leaf.active_allocated += 1
        leaf.unplaced -= 1
        leaf.evicted.remove(task)
        gang.unplaced -= 1
        gang.mark_changed()
        if task.shape.host_ports:
            self._hold_ports(self.ports, task.shape, row, 1)
            self._hold_ports(self.terminating_ports, task.shape, row, -1)
        del self.evicted_from[task.key]
        self._set_placement(task, previous)
        for observer in self.observers:
            observer.task_added(task, row)
        return saved

    def _release_pipelined(
        self, gang: Gang, leaf: LeafState, task: Task, placement: Placement, holding: int
    ) -> list[list[float]]:
        """Remove a task from the node it was placed on; the caller updates the gang's counters."""
        shape = task.shape
        self._charge_node(task, placement, holding, -1)
        if shape.host_ports:
            self._hold_ports(self.ports, shape, placement.row, -1)
        saved = self.ledger.add(
            gang.chain, _negative(self.amounts_on(shape, placement.row)), self.counts_as_non_preemptible(gang, task)
        )
        leaf.active_allocated -= 1
        leaf.first_unplaced = 0
        gang.mark_changed()
        for observer in self.observers:
            observer.task_removed(task, placement.row)
        return saved

    def counts_as_non_preemptible(self, gang: Gang, task: Task) -> bool:
        """Whether a task that holds a node is charged as non-preemptible."""
        return not gang.preemptible and (
            not gang.semi_preemptible or task.key in self.protected_keys or task.key in gang.protected_keys
        )

    def _set_placement(self, task: Task, placement: Placement | None) -> None:
        if placement is None:
            self.placements.pop(task.key, None)
        else:
            self.placements[task.key] = placement

    def convert_to_pipelined(self, gang: Gang, mark: int) -> None:
        """Make every allocation of the gang since the mark pipelined on the same node (cycle:STM-6)."""
        for entry in self._journal[mark:]:
            if not isinstance(entry, Placed) or entry.gang is not gang or entry.holding != LIVE:
                continue
            if self.placements[entry.task.key].status is not TaskStatus.ALLOCATED:
                continue
            self._recharge_node(entry.task, entry.placement, LIVE, PIPELINED)
            entry.leaf.pipelined += 1
            gang.pipelined += 1
            self.placements[entry.task.key] = entry.placement._replace(status=TaskStatus.PIPELINED)
            self._journal.append(Converted(gang, entry.leaf, entry.task, entry.placement, self.version))
            self._advance_version(entry.placement.row)

    def commit(self, mark: int) -> CommitResult:
        """What the entries since the mark amount to; allocated tasks are Binding from here on (cycle:STM-8).

        Evicted tasks are terminating from here on: no later trial may keep them.

        Statements: cycle:STM-7.
        """
        outcome = CommitResult({}, [], [])
        first_entries: dict[str, tuple[Gang, LeafState, Task, Placement | None]] = {}
        for entry in self._journal[mark:]:
            if not isinstance(entry, Converted | Departed) and entry.task.key not in first_entries:
                first_entries[entry.task.key] = (entry.gang, entry.leaf, entry.task, entry.previous)
        for key, (gang, leaf, task, previous) in first_entries.items():
            current = self.placements.get(key)
            if current is None or current == previous:
                continue
            outcome.gangs_by_task[key] = gang
            was_releasing = previous is not None and previous.status is TaskStatus.RELEASING
            if key in self.evicted_from and task.status is TaskStatus.PENDING:
                # It was to be bound in this very cycle: with the bind withdrawn there is nothing to delete.
                self._withdraw_start(leaf, task)
                current = self.placements[key]
            elif key in self.evicted_from and not was_releasing and task in leaf.evicted:
                outcome.evicted.append((gang, task, self.evicted_from[key]))
                leaf.evicted.remove(task)
                if current.status is TaskStatus.RELEASING:
                    leaf.unplaced -= 1
                    gang.unplaced -= 1
                    gang.mark_changed()
                    leaf.alive -= 1
                self.decided_evictions.add(key)
            if current.status is TaskStatus.ALLOCATED:
                current = self.placements[key] = Placement(
                    TaskStatus.BINDING, current.row, current.gpu_groups, current.grants
                )
            if current.status in (TaskStatus.BINDING, TaskStatus.PIPELINED):
                outcome.placed.append((gang, task, current))
        return outcome

    def _withdraw_start(self, leaf: LeafState, task: Task) -> None:
        """Free at once what a task holds that was evicted before it started."""
        placement = self.evicted_from.pop(task.key)
        self._charge_evicted(task, placement, -1)
        leaf.evicted.remove(task)
        leaf.first_unplaced = 0
        if self.placements[task.key].status is TaskStatus.RELEASING:
            leaf.active_used -= 1
            self.placements[task.key] = Placement(TaskStatus.PENDING, -1, ())
        self._advance_version(placement.row)

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo everything since the mark, exactly (cycle:STM-5)."""
        journal = self._journal
        while len(journal) > mark:
            entry = journal.pop()
            if isinstance(entry, Departed):
                entry.undo()
                self.version = entry.version
                continue
            if isinstance(entry, Placed):
                self._undo_place(entry)
            elif isinstance(entry, Converted):
                self._recharge_node(entry.task, entry.placement, PIPELINED, LIVE)
                entry.leaf.pipelined -= 1
                entry.gang.pipelined -= 1
                self.placements[entry.task.key] = entry.placement
            elif isinstance(entry, Evicted):
                self._revert_eviction(entry.gang, entry.leaf, entry.task, entry.placement, entry.previous)
                self._restore_queues(entry)
            elif isinstance(entry, Dropped):
                self._undo_drop(entry)
            elif isinstance(entry, Vacated):
                assert entry.previous is not None
                self.evicted_from[entry.task.key] = entry.placement
                for group, device in entry.devices.items():
                    self._put_device(entry.placement.row, group, device)
                self._charge_evicted(entry.task, entry.placement, 1)
                entry.leaf.active_used += 1
                self.placements[entry.task.key] = entry.previous
            else:
                self._undo_cancelled_eviction(entry)
            self.changed_rows.append(entry.placement.row)
            self.version = entry.version

    def _restore_queues(self, entry: Placed | Evicted | Dropped | Kept) -> None:
        non_preemptible = (
            entry.non_preemptible
            if isinstance(entry, Placed)
            else self.counts_as_non_preemptible(entry.gang, entry.task)
        )
        self.ledger.restore(entry.gang.chain, entry.saved, non_preemptible)

    def _undo_drop(self, entry: Dropped) -> None:
        gang, leaf, task, row = entry.gang, entry.leaf, entry.task, entry.placement.row
        self._charge_node(task, entry.placement, PIPELINED, 1)
        if task.shape.host_ports:
            self._hold_ports(self.ports, task.shape, row, 1)
        self._restore_queues(entry)
        leaf.active_allocated += 1
        waited = task.key not in self.evicted_from
        leaf.active_used += waited
        leaf.unplaced -= waited
        gang.unplaced -= waited
        leaf.pipelined += 1
        gang.pipelined += 1
        gang.mark_changed()
        self._set_placement(task, entry.previous)
        for observer in self.observers:
            observer.task_added(task, row)

    def _undo_cancelled_eviction(self, entry: Kept) -> None:
        gang, leaf, task, row = entry.gang, entry.leaf, entry.task, entry.placement.row
        self._recharge_node(task, entry.placement, LIVE, RELEASED)
        self._restore_queues(entry)
        leaf.active_allocated -= 1
        leaf.unplaced += 1
        leaf.evicted.append(task)
        gang.unplaced += 1
        gang.mark_changed()
        if task.shape.host_ports:
            self._hold_ports(self.ports, task.shape, row, -1)
            self._hold_ports(self.terminating_ports, task.shape, row, 1)
        self.evicted_from[task.key] = entry.placement
        self._set_placement(task, entry.cancelled)
        for observer in self.observers:
            observer.task_removed(task, row)

    def _undo_place(self, entry: Placed) -> None:
        gang, leaf, task, placement, holding, saved, previous, non_preemptible, _ = entry
        shape, row = task.shape, placement.row
        self._charge_node(task, placement, holding, -1)
        if shape.host_ports:
            self._hold_ports(self.ports, shape, row, -1)
        self.ledger.restore(gang.chain, saved, non_preemptible)
        if non_preemptible and gang.semi_preemptible:
            self.protected_keys.discard(task.key)
        leaf.active_allocated -= 1
        leaf.active_used -= task.key not in self.evicted_from
        leaf.pipelined -= holding == PIPELINED
        leaf.unplaced += 1
        gang.pipelined -= holding == PIPELINED
        gang.unplaced += 1
        leaf.first_unplaced = 0
        gang.mark_changed()
        self._set_placement(task, previous)
        for observer in self.observers:
            observer.task_removed(task, row)

    def _advance_version(self, row: int) -> None:
        self.changed_rows.append(row)
        self._name_content()

    def _name_content(self) -> None:
        """The content is another than any before."""
        self.version = self._next_version
        self._next_version += 1


def _negative(amounts: QueueAmounts) -> QueueAmounts:
    return (-amounts[0], -amounts[1], -amounts[2])
