"""The cluster as a cycle changes it: columns plus a journal.

Every change is one entry in the journal, and `rollback(mark)` undoes entries from the tail: nothing is ever copied to
try something (design: what-if by journal).  Integers are undone by the opposite addition, which is exact; queue
figures are put back as saved.

`touched` names the node rows changed so far, undo included.  Whoever caches something per row remembers how far it
read that list and repairs the rows after it; see `place/ranking.py`.  `version` identifies the content: after a
rollback it is the version of the mark again, so "nothing changed since" is one comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.gangs import Gang, LeafRun
from pykai.core.cycle.journal import (
    Books,
    Converted,
    Dropped,
    Entry,
    Evicted,
    Grant,
    Kept,
    Observer,
    Outcome,
    Placed,
    Placement,
    Vacated,
)
from pykai.core.model.axes import PODS, BoolArray, IntArray
from pykai.core.model.shapes import HostPort, Shape, hold_ports
from pykai.core.model.sharedgpus import FREE_DEVICE, LIVE, PIPELINED, DeviceUse, Seat, put_device, seat, tenant_mib
from pykai.core.model.sharedgpus import RELEASING as RELEASED
from pykai.core.model.status import ACTIVE_ALLOCATED, Status
from pykai.core.model.tasks import Task
from pykai.core.model.vectors import FREE, IDLE, RELEASING, USED
from pykai.core.queueing.queueledger import Amounts, Ledger, Refusal


class State:
    """Mutable view of one cycle."""

    __slots__ = (
        "_flat",
        "_journal",
        "_next_version",
        "_offered",
        "allocatable",
        "allowed",
        "books",
        "closing",
        "columns",
        "core",
        "devices",
        "free",
        "gone",
        "gpu_scores",
        "idle",
        "leaving",
        "ledger",
        "moved",
        "observers",
        "ports",
        "quota_gate",
        "releasing",
        "reserved",
        "snapshot",
        "touched",
        "until_ns",
        "used",
        "version",
        "work",
    )

    def __init__(self, snapshot: Snapshot, ledger: Ledger) -> None:
        self.snapshot = snapshot
        self.ledger = ledger
        #: [axis, node] what nodes offer
        self.allocatable: IntArray = snapshot.allocatable
        #: [plane, axis, node]
        self.columns: IntArray = snapshot.columns
        #: the same memory as [plane x axis, node]
        self._flat: IntArray = self.columns.reshape(len(self.columns) * len(snapshot.axes), len(snapshot.nodes))
        #: [as above] what the node has: a pod that runs there without it gives nothing back (gpu:S-3)
        self._offered: BoolArray = np.tile(snapshot.allocatable > 0, (len(self.columns), 1))
        #: [axis, node] not held by anyone
        self.idle: IntArray = self.columns[IDLE]
        #: [axis, node] being given back, less what is promised of it
        self.releasing: IntArray = self.columns[RELEASING]
        #: [axis, node] idle + releasing
        self.free: IntArray = self.columns[FREE]
        #: [axis, node] held, pipelined included
        self.used: IntArray = self.columns[USED]
        #: node row -> shared GPU -> tenants
        self.devices: dict[int, dict[str, DeviceUse]] = snapshot.devices
        #: node row -> shared GPUs that had a reservation pod before the cycle
        self.reserved = {row: frozenset(devices) for row, devices in self.devices.items()}
        #: node row -> host port -> holders
        self.ports: dict[int, dict[HostPort, int]] = snapshot.ports
        #: node row -> host port -> holders that were told to leave: nobody may start on it before they are gone
        self.closing: dict[int, dict[HostPort, int]] = {}
        #: task key -> where this cycle put it, or that it told it to leave
        self.moved: dict[str, Placement] = {}
        #: task key -> the node it was told to leave; a task that is moved stands here and in `moved`
        self.leaving: dict[str, Placement] = {}
        #: tasks whose eviction is decided
        self.gone: set[str] = set()
        #: tasks of semi-preemptible gangs that count as non-preemptible (queues:Q-415), placed in this cycle
        self.core: set[str] = set()
        self.observers: list[Observer] = []
        #: what nodes give out besides columns and shared GPUs
        self.books: tuple[Books, ...] = ()
        #: whether the queues of a gang may take on some amounts; None = nobody asks
        self.quota_gate: Callable[[State, Gang, Amounts], Refusal | None] | None = None
        #: [node] where a task (`hooks.Ask`) may go as far as no eviction can change it; None = nobody tells
        self.allowed: Callable[[State, Any], BoolArray] | None = None
        #: how plugins rate a shared GPU (None = a whole one) for a task: (state, ask, row, device)
        self.gpu_scores: tuple[Callable[[State, Any, int, DeviceUse | None], float], ...] = ()
        #: node rows changed, in order, undo included
        self.touched: list[int] = []
        #: names the content; equal versions are equal states
        self.version = 0
        #: units of work done, for budgets that a replay repeats exactly
        self.work = 0
        #: the next instant at which a rule that was asked would answer otherwise, None = never
        self.until_ns: int | None = None
        self._next_version = 1
        self._journal: list[Entry] = []

    def passed(self, instant_ns: int) -> bool:
        """Whether an instant has come.  Every rule about time asks here, so that the cycle knows how long it holds."""
        if instant_ns <= self.snapshot.now_ns:
            return True
        if self.until_ns is None or instant_ns < self.until_ns:
            self.until_ns = instant_ns
        return False

    def status_of(self, task: Task) -> Status:
        """State of a task right now."""
        moved = self.moved.get(task.key)
        return task.status if moved is None else moved.status

    def is_open(self, task: Task) -> bool:
        """Whether a task waits to be placed (cycle:TSK-7); one evicted by a trial does, so that it may be kept."""
        moved = self.moved.get(task.key)
        status = task.status if moved is None else moved.status
        return status is Status.PENDING or (
            status is Status.RELEASING and moved is not None and task.key not in self.gone
        )

    def seat_of(self, task: Task) -> Placement:
        """The node a task holds and how; it must hold one."""
        moved = self.moved.get(task.key)
        if moved is not None:
            return moved
        return Placement(task.status, self.snapshot.nodes.rows[task.node], task.gpu_groups, self.held_before(task))

    def held_before(self, task: Task) -> tuple[Grant, ...]:
        """What a task has held out of the books since before the cycle."""
        if not self.books:
            return ()
        held = ((book, book.held(task)) for book in self.books if book.concerns(task.shape))
        return tuple(Grant(book, content) for book, content in held if content is not None)

    def grants_at(self, ask: Any, row: int, *, idle: bool) -> tuple[Grant, ...] | None:
        """What a task would be given on a node out of all books, None when one of them has too little."""
        given: list[Grant] = []
        for book in self.books:
            if book.concerns(ask.shape):
                content = book.grant(self, ask, row, idle=idle)
                if content is None:
                    return None
                given.append(Grant(book, content))
        return tuple(given)

    def amounts_on(self, shape: Shape, row: int) -> Amounts:
        """What a task of this shape costs its queue on a node (gpu:C-8)."""
        return self.snapshot.amounts_on(shape, row)

    def place(
        self,
        gang: Gang,
        leaf: LeafRun,
        task: Task,
        row: int,
        gpu_groups: tuple[str, ...],
        grants: tuple[Grant, ...] = (),
        *,
        pipelined: bool,
    ) -> None:
        """Put a task on a node, on idle resources or (pipelined) on those still being released (cycle:STM-4)."""
        holding = PIPELINED if pipelined else LIVE
        shape = task.shape
        self._flat[:, row] += self.snapshot.vectors[shape].charges[holding] * self._offered[:, row]
        if gpu_groups:
            self._seat(shape, row, gpu_groups, holding, 1)
        if grants:
            self._book(task, row, grants, holding, 1)
        if shape.host_ports:
            self._hold_ports(self.ports, shape, row, 1)
        core = gang.starts_core or (gang.semi and task.key in gang.core)
        saved = self.ledger.add(gang.chain, self.amounts_on(shape, row), core)
        if core and gang.semi:
            self.core.add(task.key)
        leaf.active_allocated += 1
        leaf.active_used += task.key not in self.leaving
        leaf.pipelined += pipelined
        leaf.open -= 1
        gang.pipelined += pipelined
        gang.open -= 1
        gang.changed()
        before = self.moved.get(task.key)
        here = Placement(Status.PIPELINED if pipelined else Status.ALLOCATED, row, gpu_groups, grants)
        self.moved[task.key] = here
        self._journal.append(Placed(gang, leaf, task, here, holding, saved, before, core, self.version))
        self._step(row)
        for observer in self.observers:
            observer.came(task, row)

    def evict(self, gang: Gang, leaf: LeafRun, task: Task) -> None:
        """Tell a task to leave its node (cycle:STM-2); one that was only promised a place loses the promise."""
        before = self.moved.get(task.key)
        here = self.seat_of(task)
        assert ACTIVE_ALLOCATED[here.status], f"{task.key} is {here.status.name} and cannot be evicted"
        row = here.row
        if here.status is Status.PIPELINED:
            leaves = self.leaving.get(task.key)
            saved = self._take_back(gang, leaf, task, here, PIPELINED)
            leaf.pipelined -= 1
            gang.pipelined -= 1
            # A task that was to move goes on leaving its old node; one that waited waits again (cycle:PG-14).
            waits = leaves is None
            leaf.active_used -= waits
            leaf.open += waits
            gang.open += waits
            self.moved[task.key] = leaves if leaves is not None else Placement(Status.PENDING, -1, ())
            self._journal.append(Dropped(gang, leaf, task, here, saved, before, self.version))
            self._step(row)
            return
        self._rehold(task, here, LIVE, RELEASED)
        saved = self.ledger.add(gang.chain, _negative(self.amounts_on(task.shape, row)), self._is_core(gang, task))
        leaf.active_allocated -= 1
        leaf.open += 1
        leaf.evicted.append(task)
        gang.open += 1
        gang.changed()
        if task.shape.host_ports:
            self._hold_ports(self.ports, task.shape, row, -1)
            self._hold_ports(self.closing, task.shape, row, 1)
        leaving = Placement(Status.RELEASING, row, here.gpu_groups, here.grants)
        self.moved[task.key] = self.leaving[task.key] = leaving
        self._journal.append(Evicted(gang, leaf, task, leaving, saved, before, self.version))
        self._step(row)
        for observer in self.observers:
            observer.went(task, row)

    def keep(self, gang: Gang, leaf: LeafRun, task: Task) -> None:
        """Take an eviction back: the task stays where it is and never notices (cycle:STM-3)."""
        entry = next(entry for entry in reversed(self._journal) if isinstance(entry, Evicted) and entry.task is task)
        after = self.moved[task.key]
        saved = self._stay(gang, leaf, task, entry.here, entry.before)
        self._journal.append(Kept(gang, leaf, task, entry.here, saved, entry.before, after, self.version))
        self._step(entry.here.row)

    def vacate(self, gang: Gang, leaf: LeafRun, task: Task) -> None:
        """Look ahead: a task that was told to leave is gone, and its successor waits."""
        here = self.leaving.pop(task.key)
        self._hold_leaving(task, here, -1)
        there = self.devices.get(here.row, {})
        # With the last tenant goes the reservation pod.
        left = {group: there[group] for group in here.gpu_groups if group in there and there[group].unused}
        for group in left:
            self._put_device(here.row, group, FREE_DEVICE)
        leaf.active_used -= 1
        before = self.moved[task.key]
        self.moved[task.key] = Placement(Status.PENDING, -1, ())
        self._journal.append(Vacated(gang, leaf, task, here, before, left, self.version))
        self._step(here.row)

    def _hold_leaving(self, task: Task, here: Placement, sign: int) -> None:
        """Charge a node for a task that is to leave it (sign 1), or no longer (-1)."""
        self._hold(task, here, RELEASED, sign)
        if task.shape.host_ports:
            self._hold_ports(self.closing, task.shape, here.row, sign)

    def _stay(
        self, gang: Gang, leaf: LeafRun, task: Task, here: Placement, before: Placement | None
    ) -> list[list[float]]:
        row = here.row
        self._rehold(task, here, RELEASED, LIVE)
        saved = self.ledger.add(gang.chain, self.amounts_on(task.shape, row), self._is_core(gang, task))
        leaf.active_allocated += 1
        leaf.open -= 1
        leaf.evicted.remove(task)
        gang.open -= 1
        gang.changed()
        if task.shape.host_ports:
            self._hold_ports(self.ports, task.shape, row, 1)
            self._hold_ports(self.closing, task.shape, row, -1)
        del self.leaving[task.key]
        self._put(task, before)
        for observer in self.observers:
            observer.came(task, row)
        return saved

    def _take_back(self, gang: Gang, leaf: LeafRun, task: Task, here: Placement, holding: int) -> list[list[float]]:
        """Take a task off the node it was put on; its counters of kind are the caller's."""
        shape = task.shape
        self._hold(task, here, holding, -1)
        if shape.host_ports:
            self._hold_ports(self.ports, shape, here.row, -1)
        saved = self.ledger.add(gang.chain, _negative(self.amounts_on(shape, here.row)), self._is_core(gang, task))
        leaf.active_allocated -= 1
        leaf.first_open = 0
        gang.changed()
        for observer in self.observers:
            observer.went(task, here.row)
        return saved

    def _is_core(self, gang: Gang, task: Task) -> bool:
        """Whether the books count a task that holds a node as non-preemptible."""
        return not gang.preemptible and (not gang.semi or task.key in self.core or task.key in gang.core)

    def _put(self, task: Task, placement: Placement | None) -> None:
        if placement is None:
            self.moved.pop(task.key, None)
        else:
            self.moved[task.key] = placement

    def convert_to_pipelined(self, gang: Gang, mark: int) -> None:
        """Turn every allocation of the gang since the mark into a promise on the same node (cycle:STM-6)."""
        for entry in self._journal[mark:]:
            if not isinstance(entry, Placed) or entry.gang is not gang or entry.holding != LIVE:
                continue
            if self.moved[entry.task.key].status is not Status.ALLOCATED:
                continue
            self._rehold(entry.task, entry.here, LIVE, PIPELINED)
            entry.leaf.pipelined += 1
            gang.pipelined += 1
            self.moved[entry.task.key] = entry.here._replace(status=Status.PIPELINED)
            self._journal.append(Converted(gang, entry.leaf, entry.task, entry.here, self.version))
            self._step(entry.here.row)

    def commit(self, mark: int) -> Outcome:
        """What the entries since the mark amount to; allocated tasks are Binding from here on (cycle:STM-8).

        What was evicted is on its way out from here on: no later trial may keep it.

        Statements: cycle:STM-7.
        """
        outcome = Outcome({}, [], [])
        seen: dict[str, tuple[Gang, LeafRun, Task, Placement | None]] = {}
        for entry in self._journal[mark:]:
            if entry.task.key not in seen and not isinstance(entry, Converted):
                seen[entry.task.key] = (entry.gang, entry.leaf, entry.task, entry.before)
        for key, (gang, leaf, task, before) in seen.items():
            now = self.moved.get(key)
            if now is None or now == before:
                continue
            outcome.touched[key] = gang
            left_before = before is not None and before.status is Status.RELEASING
            if key in self.leaving and task.status is Status.PENDING:
                # It was to be bound in this very cycle: with the bind withdrawn there is nothing to delete.
                self._never_came(leaf, task)
                now = self.moved[key]
            elif key in self.leaving and not left_before and task in leaf.evicted:
                outcome.evicted.append((gang, task, self.leaving[key]))
                leaf.evicted.remove(task)
                if now.status is Status.RELEASING:
                    leaf.open -= 1
                    gang.open -= 1
                    gang.changed()
                    leaf.alive -= 1
                self.gone.add(key)
            if now.status is Status.ALLOCATED:
                now = self.moved[key] = Placement(Status.BINDING, now.row, now.gpu_groups, now.grants)
            if now.status in (Status.BINDING, Status.PIPELINED):
                outcome.placed.append((gang, task, now))
        return outcome

    def _never_came(self, leaf: LeafRun, task: Task) -> None:
        """Free at once what a task holds that was told to leave before it was there."""
        here = self.leaving.pop(task.key)
        self._hold_leaving(task, here, -1)
        leaf.evicted.remove(task)
        leaf.first_open = 0
        if self.moved[task.key].status is Status.RELEASING:
            leaf.active_used -= 1
            self.moved[task.key] = Placement(Status.PENDING, -1, ())
        self._step(here.row)

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo everything since the mark, exactly (cycle:STM-5)."""
        journal = self._journal
        while len(journal) > mark:
            entry = journal.pop()
            if isinstance(entry, Placed):
                self._unplace(entry)
            elif isinstance(entry, Converted):
                self._rehold(entry.task, entry.here, PIPELINED, LIVE)
                entry.leaf.pipelined -= 1
                entry.gang.pipelined -= 1
                self.moved[entry.task.key] = entry.here
            elif isinstance(entry, Evicted):
                self._stay(entry.gang, entry.leaf, entry.task, entry.here, entry.before)
                self._restore(entry)
            elif isinstance(entry, Dropped):
                self._promise_again(entry)
            elif isinstance(entry, Vacated):
                assert entry.before is not None
                self.leaving[entry.task.key] = entry.here
                for group, device in entry.devices.items():
                    self._put_device(entry.here.row, group, device)
                self._hold_leaving(entry.task, entry.here, 1)
                entry.leaf.active_used += 1
                self.moved[entry.task.key] = entry.before
            else:
                self._leave_again(entry)
            self.touched.append(entry.here.row)
            self.version = entry.version

    def _restore(self, entry: Placed | Evicted | Dropped | Kept) -> None:
        core = entry.core if isinstance(entry, Placed) else self._is_core(entry.gang, entry.task)
        self.ledger.restore(entry.gang.chain, entry.saved, core)

    def _promise_again(self, entry: Dropped) -> None:
        gang, leaf, task, row = entry.gang, entry.leaf, entry.task, entry.here.row
        self._hold(task, entry.here, PIPELINED, 1)
        if task.shape.host_ports:
            self._hold_ports(self.ports, task.shape, row, 1)
        self._restore(entry)
        leaf.active_allocated += 1
        waited = task.key not in self.leaving
        leaf.active_used += waited
        leaf.open -= waited
        gang.open -= waited
        leaf.pipelined += 1
        gang.pipelined += 1
        gang.changed()
        self._put(task, entry.before)
        for observer in self.observers:
            observer.came(task, row)

    def _leave_again(self, entry: Kept) -> None:
        gang, leaf, task, row = entry.gang, entry.leaf, entry.task, entry.here.row
        self._rehold(task, entry.here, LIVE, RELEASED)
        self._restore(entry)
        leaf.active_allocated -= 1
        leaf.open += 1
        leaf.evicted.append(task)
        gang.open += 1
        gang.changed()
        if task.shape.host_ports:
            self._hold_ports(self.ports, task.shape, row, -1)
            self._hold_ports(self.closing, task.shape, row, 1)
        self.leaving[task.key] = entry.here
        self._put(task, entry.after)
        for observer in self.observers:
            observer.went(task, row)

    def _unplace(self, entry: Placed) -> None:
        gang, leaf, task, here, holding, saved, before, core, _ = entry
        shape, row = task.shape, here.row
        self._hold(task, here, holding, -1)
        if shape.host_ports:
            self._hold_ports(self.ports, shape, row, -1)
        self.ledger.restore(gang.chain, saved, core)
        if core and gang.semi:
            self.core.discard(task.key)
        leaf.active_allocated -= 1
        leaf.active_used -= task.key not in self.leaving
        leaf.pipelined -= holding == PIPELINED
        leaf.open += 1
        gang.pipelined -= holding == PIPELINED
        gang.open += 1
        leaf.first_open = 0
        gang.changed()
        self._put(task, before)
        for observer in self.observers:
            observer.went(task, row)

    def _step(self, row: int) -> None:
        self.touched.append(row)
        self.version = self._next_version
        self._next_version += 1

    def _hold(self, task: Task, here: Placement, holding: int, sign: int) -> None:
        """Charge a node for a task (sign 1), or take the charge back (-1): columns, shared GPUs, books."""
        shape, row = task.shape, here.row
        self._flat[:, row] += sign * self.snapshot.vectors[shape].charges[holding] * self._offered[:, row]
        if here.gpu_groups:
            self._seat(shape, row, here.gpu_groups, holding, sign)
        if here.grants:
            self._book(task, row, here.grants, holding, sign)

    def _book(self, task: Task, row: int, grants: tuple[Grant, ...], holding: int, sign: int) -> None:
        for book, content in grants:
            book.hold(task, row, content, holding, sign)

    def _rehold(self, task: Task, here: Placement, was: int, becomes: int) -> None:
        charges = self.snapshot.vectors[task.shape].charges
        self._flat[:, here.row] += (charges[becomes] - charges[was]) * self._offered[:, here.row]
        if here.gpu_groups:
            self._seat(task.shape, here.row, here.gpu_groups, was, -1)
            self._seat(task.shape, here.row, here.gpu_groups, becomes, 1)
        if here.grants:
            # In this order, because what nobody holds any more may be given back.
            self._book(task, here.row, here.grants, becomes, 1)
            self._book(task, here.row, here.grants, was, -1)

    def _seat(self, shape: Shape, row: int, gpu_groups: tuple[str, ...], holding: int, sign: int) -> None:
        """Seat a tenant on shared GPUs, or take it off them; the whole-GPU column follows (gpu:4)."""
        facts = self.snapshot.nodes.facts[row]
        axis = self.snapshot.axes.index[facts.shared_resource]
        devices = self.devices.setdefault(row, {})
        mib = tenant_mib(shape.gpu, facts.gpu_mib, facts.gpu_label_mib)
        known = self.reserved.get(row, frozenset())
        fresh = [group for group in gpu_groups if group not in known]
        before = [devices.get(group, FREE_DEVICE) for group in fresh]
        seat(self.columns, axis, row, devices, gpu_groups, Seat(mib, holding), sign)
        for group, was in zip(fresh, before, strict=True):
            # The first to share a device brings a reservation pod, which needs a slot as the device does (gpu:P-7).
            use = devices.get(group, FREE_DEVICE)
            idle, releasing = use.idle_gpus - was.idle_gpus, use.releasing_gpus - was.releasing_gpus
            self.idle[PODS, row] += idle
            self.releasing[PODS, row] += releasing
            self.free[PODS, row] += idle + releasing
        if not devices:
            del self.devices[row]

    def _put_device(self, row: int, group: str, device: DeviceUse) -> None:
        """Make a shared GPU what it is from now on."""
        axis = self.snapshot.axes.index[self.snapshot.nodes.facts[row].shared_resource]
        devices = self.devices.setdefault(row, {})
        put_device(self.columns, axis, row, devices, group, device)
        if not devices:
            del self.devices[row]

    def _hold_ports(self, held: dict[int, dict[HostPort, int]], shape: Shape, row: int, sign: int) -> None:
        ports = held.setdefault(row, {})
        hold_ports(ports, shape.host_ports, sign)
        if not ports:
            del held[row]


def _negative(amounts: Amounts) -> Amounts:
    return (-amounts[0], -amounts[1], -amounts[2])
