"""What nodes offer and what is left of it, kept as pods come and go.

One row of planes per node (idle, releasing, free, used over the axes), the tenants of shared GPUs, host ports in use
and the load of other schedulers.  Rows are node-major, unlike those of a snapshot: a changed pod touches one node,
whose figures then lie side by side.  Every figure is the sum over the tasks that hold the node, so a task is taken out
by the opposite of what put it in, in any order.
"""

from __future__ import annotations

import numpy as np

from pykai.core.cluster.snapshot import NodeTable
from pykai.core.model.axes import Axes, IntArray
from pykai.core.model.nodes import NodeFacts
from pykai.core.model.shapes import HostPort, hold_ports
from pykai.core.model.sharedgpus import (
    DeviceUse,
    Seat,
    holding_of,
    reservation_charge,
    reservation_seat,
    seat,
    tenant_mib,
)
from pykai.core.model.status import Status
from pykai.core.model.tasks import Task
from pykai.core.model.vectors import FREE, IDLE, PLANES, Vectors


class NodeColumns:
    """The figures of all nodes."""

    def __init__(self, axes: Axes, vectors: Vectors) -> None:
        self._axes = axes
        self._vectors = vectors
        self._slots: dict[str, int] = {}
        self._free_slots: list[int] = []
        #: [slot, plane, axis]
        self._columns: IntArray = np.zeros((16, PLANES, len(axes)), dtype=np.int64)
        #: [slot, axis]
        self._allocatable: IntArray = np.zeros((16, len(axes)), dtype=np.int64)
        self._devices: dict[str, dict[str, DeviceUse]] = {}
        self._ports: dict[str, dict[HostPort, int]] = {}
        self._foreign: dict[str, list[int]] = {}

    def put(self, facts: NodeFacts) -> None:
        """Add a node that nobody holds."""
        slot = self._take_slot()
        self._slots[facts.name] = slot
        for resource, amount in facts.allocatable:
            axis = self._axis(resource)
            self._allocatable[slot, axis] = amount
            self._columns[slot, IDLE, axis] = amount
            self._columns[slot, FREE, axis] = amount

    def drop(self, name: str) -> None:
        """Forget a node and all that was held there."""
        slot = self._slots.pop(name, None)
        if slot is not None:
            self._columns[slot] = 0
            self._allocatable[slot] = 0
            self._free_slots.append(slot)
        self._devices.pop(name, None)
        self._ports.pop(name, None)
        self._foreign.pop(name, None)

    def _take_slot(self) -> int:
        if not self._free_slots:
            size = self._allocatable.shape[0]
            used = len(self._slots)
            if used < size:
                return used
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)])
            self._allocatable = np.concatenate([self._allocatable, np.zeros_like(self._allocatable)])
            return used
        return self._free_slots.pop()

    # A new axis is zero for every node (cycle:R-5).
    def _axis(self, resource: str) -> int:
        size = len(self._axes)
        axis = self._axes.axis(resource)
        if size != len(self._axes):
            self._vectors.clear()
            self._columns = np.pad(self._columns, ((0, 0), (0, 0), (0, 1)))
            self._allocatable = np.pad(self._allocatable, ((0, 0), (0, 1)))
        return axis

    def charge(self, facts: NodeFacts, task: Task, sign: int) -> None:
        """Add a task to or take it from the figures of its node (cycle:4, NOD-1)."""
        name = facts.name
        vector = self._vectors[task.shape]
        slot = self._slots[name]
        seated: Seat | None = None
        if task.reservation:
            axis = self._axes.index[facts.shared_resource] if task.gpu_groups and facts.shared_resource else -1
            charge, holds_device = reservation_charge(vector, task.status, axis)
            if holds_device:
                seated = reservation_seat(task.status)
        else:
            holding = holding_of(task.status)
            charge = vector.charges[holding].reshape(PLANES, len(self._axes))
            if task.gpu_groups and facts.shared_resource:
                seated = Seat(tenant_mib(task.shape.gpu, facts.gpu_mib, facts.gpu_label_mib), holding)
        # A resource the node does not have cannot be charged (gpu:S-3).
        charge = charge * (self._allocatable[slot] > 0)
        here = self._columns[slot]
        if sign > 0:
            here += charge
        else:
            here -= charge
        if seated is not None:
            self._seat(facts, slot, task, seated, sign)
        if task.shape.host_ports:
            ports = self._ports.setdefault(name, {})
            hold_ports(ports, task.shape.host_ports, sign)
        if not task.ours and not task.utility and task.status is not Status.UNKNOWN:
            load = self._foreign.setdefault(name, [0, 0, 0])
            load[0] += sign * vector.cpu
            load[1] += sign * vector.memory
            load[2] += sign * task.shape.gpu_hundredths

    def _seat(self, facts: NodeFacts, slot: int, task: Task, seated: Seat, sign: int) -> None:
        """Seat a task on its shared GPUs or take it off them."""
        axis = self._axes.index[facts.shared_resource]
        devices = self._devices.setdefault(facts.name, {})
        seat(self._columns[slot, :, :, np.newaxis], axis, 0, devices, task.gpu_groups, seated, sign)

    # -- as a snapshot shows them -----------------------------------------------------------------------------------

    def _order(self, table: NodeTable) -> IntArray:
        """[node] slots of the rows of a table; a slot changes only with the table."""
        return table.remember("slots", lambda: np.array([self._slots[name] for name in table.names], dtype=np.int64))

    def allocatable(self, table: NodeTable) -> IntArray:
        """[axis, node] what nodes offer."""
        return np.ascontiguousarray(self._allocatable[self._order(table)].T)

    def planes(self, table: NodeTable) -> IntArray:
        """[plane, axis, node] what is left, and what is used; a copy."""
        return np.ascontiguousarray(self._columns[self._order(table)].transpose(1, 2, 0))

    def devices(self, table: NodeTable) -> dict[int, dict[str, DeviceUse]]:
        """Node row -> shared GPU -> its tenants; a copy."""
        return {table.rows[name]: dict(found) for name, found in self._devices.items() if found}

    def ports(self, table: NodeTable) -> dict[int, dict[HostPort, int]]:
        """Node row -> host port -> how many pods hold it; a copy."""
        return {table.rows[name]: dict(found) for name, found in self._ports.items() if found}

    def foreign(self, table: NodeTable) -> dict[int, tuple[int, ...]]:
        """Node row -> cpu, memory, GPU hundredths used by pods of other schedulers."""
        return {table.rows[name]: tuple(load) for name, load in self._foreign.items() if any(load)}
