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
from typing import Any, NamedTuple, Protocol

from pykai.core.axes import PODS, IntArray
from pykai.core.devices import FREE_DEVICE, LIVE, PIPELINED, DeviceUse, Seat, portion_hundredths, seat, tenant_mib
from pykai.core.fairshare.ledger import Amounts, Ledger, Refusal
from pykai.core.gangs import Gang, LeafRun
from pykai.core.shapes import HostPort, Shape, hold_ports
from pykai.core.snapshot import Snapshot
from pykai.core.status import Status
from pykai.core.tasks import Task
from pykai.core.vectors import FREE, IDLE, RELEASING, USED


class Placement(NamedTuple):
    """Where a task is in this cycle, if the cycle moved it."""

    status: Status
    row: int
    gpu_groups: tuple[str, ...]


class _Placed(NamedTuple):
    gang: Gang
    leaf: LeafRun
    task: Task
    row: int
    holding: int
    gpu_groups: tuple[str, ...]
    saved: list[list[float]]
    before: Placement | None
    version: int


class _Converted(NamedTuple):
    gang: Gang
    leaf: LeafRun
    task: Task
    row: int
    gpu_groups: tuple[str, ...]
    version: int


class Observer(Protocol):
    """Someone who keeps its own index of which task is where."""

    def came(self, task: Task, row: int) -> None:
        """A task now holds the node."""

    def went(self, task: Task, row: int) -> None:
        """A task no longer holds the node."""


class State:
    """Mutable view of one cycle."""

    __slots__ = (
        "_flat",
        "_journal",
        "_next_version",
        "allocatable",
        "columns",
        "devices",
        "free",
        "gpu_scores",
        "idle",
        "ledger",
        "moved",
        "observers",
        "ports",
        "quota_gate",
        "releasing",
        "reserved",
        "snapshot",
        "touched",
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
        #: task key -> where this cycle put it
        self.moved: dict[str, Placement] = {}
        self.observers: list[Observer] = []
        #: whether the queues of a gang may take on some amounts; None = nobody asks
        self.quota_gate: Callable[[State, Gang, Amounts], Refusal | None] | None = None
        #: how plugins rate a shared GPU (None = a whole one) for a task: (state, ask, row, device)
        self.gpu_scores: tuple[Callable[[State, Any, int, DeviceUse | None], float], ...] = ()
        #: node rows changed, in order, undo included
        self.touched: list[int] = []
        #: names the content; equal versions are equal states
        self.version = 0
        #: units of work done, for budgets that a replay repeats exactly
        self.work = 0
        self._next_version = 1
        self._journal: list[_Placed | _Converted] = []

    def status_of(self, task: Task) -> Status:
        """State of a task right now."""
        moved = self.moved.get(task.key)
        return task.status if moved is None else moved.status

    def is_open(self, task: Task) -> bool:
        """Whether a task waits to be placed (cycle:TSK-7)."""
        moved = self.moved.get(task.key)
        return (task.status if moved is None else moved.status) is Status.PENDING

    def amounts_on(self, shape: Shape, row: int) -> Amounts:
        """What a task of this shape costs its queue on a node (gpu:C-8)."""
        vector = self.snapshot.vectors[shape]
        ask = shape.gpu
        if not ask.memory_mib:
            return vector.amounts
        facts = self.snapshot.nodes.facts[row]
        return (vector.cpu, vector.memory, ask.devices * portion_hundredths(ask, facts.gpu_mib, facts.gpu_label_mib))

    def place(
        self, gang: Gang, leaf: LeafRun, task: Task, row: int, gpu_groups: tuple[str, ...], *, pipelined: bool
    ) -> None:
        """Put a task on a node, on idle resources or (pipelined) on those still being released."""
        holding = PIPELINED if pipelined else LIVE
        shape = task.shape
        here = self._flat[:, row]
        here += self.snapshot.vectors[shape].charges[holding]
        if gpu_groups:
            self._seat(shape, row, gpu_groups, holding, 1)
        if shape.host_ports:
            self._hold_ports(shape, row, 1)
        saved = self.ledger.add(gang.chain, self.amounts_on(shape, row), not gang.preemptible)
        leaf.active_allocated += 1
        leaf.active_used += 1
        leaf.pipelined += pipelined
        leaf.open -= 1
        gang.pipelined += pipelined
        gang.open -= 1
        gang.changed()
        before = self.moved.get(task.key)
        self.moved[task.key] = Placement(Status.PIPELINED if pipelined else Status.ALLOCATED, row, gpu_groups)
        self._journal.append(_Placed(gang, leaf, task, row, holding, gpu_groups, saved, before, self.version))
        self._step(row)
        for observer in self.observers:
            observer.came(task, row)

    def convert_to_pipelined(self, gang: Gang, mark: int) -> None:
        """Turn every allocation of the gang since the mark into a promise on the same node (cycle:STM-6)."""
        for entry in self._journal[mark:]:
            if not isinstance(entry, _Placed) or entry.gang is not gang or entry.holding != LIVE:
                continue
            if self.moved[entry.task.key].status is not Status.ALLOCATED:
                continue
            self._rehold(entry.task.shape, entry.row, entry.gpu_groups, LIVE, PIPELINED)
            entry.leaf.pipelined += 1
            gang.pipelined += 1
            self.moved[entry.task.key] = Placement(Status.PIPELINED, entry.row, entry.gpu_groups)
            self._journal.append(_Converted(gang, entry.leaf, entry.task, entry.row, entry.gpu_groups, self.version))
            self._step(entry.row)

    def commit(self, mark: int) -> list[tuple[Task, Placement]]:
        """What the entries since the mark amount to; allocated tasks are Binding from here on (cycle:STM-8)."""
        done: list[tuple[Task, Placement]] = []
        for entry in self._journal[mark:]:
            if not isinstance(entry, _Placed):
                continue
            placement = self.moved[entry.task.key]
            if placement.status is Status.ALLOCATED:
                placement = Placement(Status.BINDING, placement.row, placement.gpu_groups)
                self.moved[entry.task.key] = placement
            done.append((entry.task, placement))
        return done

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo everything since the mark, exactly."""
        journal = self._journal
        while len(journal) > mark:
            entry = journal.pop()
            if isinstance(entry, _Placed):
                self._unplace(entry)
            else:
                self._rehold(entry.task.shape, entry.row, entry.gpu_groups, PIPELINED, LIVE)
                entry.leaf.pipelined -= 1
                entry.gang.pipelined -= 1
                self.moved[entry.task.key] = Placement(Status.ALLOCATED, entry.row, entry.gpu_groups)
            self.touched.append(entry.row)
            self.version = entry.version

    def _unplace(self, entry: _Placed) -> None:
        gang, leaf, task, row, holding, gpu_groups, saved, before, _ = entry
        shape = task.shape
        here = self._flat[:, row]
        here -= self.snapshot.vectors[shape].charges[holding]
        if gpu_groups:
            self._seat(shape, row, gpu_groups, holding, -1)
        if shape.host_ports:
            self._hold_ports(shape, row, -1)
        self.ledger.restore(gang.chain, saved, not gang.preemptible)
        leaf.active_allocated -= 1
        leaf.active_used -= 1
        leaf.pipelined -= holding == PIPELINED
        leaf.open += 1
        gang.pipelined -= holding == PIPELINED
        gang.open += 1
        leaf.first_open = 0
        gang.changed()
        if before is None:
            del self.moved[task.key]
        else:
            self.moved[task.key] = before
        for observer in self.observers:
            observer.went(task, row)

    def _step(self, row: int) -> None:
        self.touched.append(row)
        self.version = self._next_version
        self._next_version += 1

    def _rehold(self, shape: Shape, row: int, gpu_groups: tuple[str, ...], was: int, becomes: int) -> None:
        charges = self.snapshot.vectors[shape].charges
        self._flat[:, row] += charges[becomes] - charges[was]
        if gpu_groups:
            self._seat(shape, row, gpu_groups, was, -1)
            self._seat(shape, row, gpu_groups, becomes, 1)

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

    def _hold_ports(self, shape: Shape, row: int, sign: int) -> None:
        ports = self.ports.setdefault(row, {})
        hold_ports(ports, shape.host_ports, sign)
        if not ports:
            del self.ports[row]
