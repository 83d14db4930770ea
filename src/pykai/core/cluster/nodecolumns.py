"""What nodes offer and what is left of it, kept as pods come and go.

One row of planes per node (idle, releasing, free, used over the axes), the tenants of shared GPUs, host ports in use
and the load of other schedulers.  Rows are node-major, unlike those of a snapshot: a changed pod touches one node,
whose figures then lie side by side.  Every figure is the sum over the tasks that hold the node, so tasks are added and
subtracted in any order.
"""

from __future__ import annotations

import numpy as np

from pykai.core.cluster.nodetable import NodeTable
from pykai.core.model.axes import Axes, IntArray
from pykai.core.model.nodes import NodeFacts
from pykai.core.model.shapes import HostPort, count_ports
from pykai.core.model.sharedgpus import (
    DeviceTenant,
    DeviceUse,
    assign_devices,
    holding_of,
    reservation_charge,
    reservation_tenant,
    tenant_mib,
)
from pykai.core.model.status import TaskStatus
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
        self._foreign_usage: dict[str, list[int]] = {}

    def add_node(self, facts: NodeFacts) -> None:
        """Add a node without tasks."""
        slot = self._take_slot()
        self._slots[facts.name] = slot
        for resource, amount in facts.allocatable:
            axis = self._axis(resource)
            self._allocatable[slot, axis] = amount
            self._columns[slot, IDLE, axis] = amount
            self._columns[slot, FREE, axis] = amount

    def remove_node(self, name: str) -> None:
        """Forget a node and all that was held there."""
        slot = self._slots.pop(name, None)
        if slot is not None:
            self._columns[slot] = 0
            self._allocatable[slot] = 0
            self._free_slots.append(slot)
        self._devices.pop(name, None)
        self._ports.pop(name, None)
        self._foreign_usage.pop(name, None)

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
        """Add a task to or subtract it from the figures of its node (cycle:4, NOD-1)."""
        name = facts.name
        vector = self._vectors[task.shape]
        slot = self._slots[name]
        tenant: DeviceTenant | None = None
        if task.is_reservation:
            axis = self._axes.index[facts.shared_resource] if task.gpu_groups and facts.shared_resource else -1
            charge, holds_device = reservation_charge(vector, task.status, axis)
            if holds_device:
                tenant = reservation_tenant(task.status)
        else:
            holding = holding_of(task.status)
            charge = vector.charges[holding].reshape(PLANES, len(self._axes))
            if task.gpu_groups and facts.shared_resource:
                tenant = DeviceTenant(tenant_mib(task.shape.gpu, facts.gpu_mib, facts.gpu_label_mib), holding)
        # A resource the node does not have cannot be charged (gpu:S-3).
        charge = charge * (self._allocatable[slot] > 0)
        node_planes = self._columns[slot]
        if sign > 0:
            node_planes += charge
        else:
            node_planes -= charge
        if tenant is not None:
            self._assign_devices(facts, slot, task, tenant, sign)
        if task.shape.host_ports:
            ports = self._ports.setdefault(name, {})
            count_ports(ports, task.shape.host_ports, sign)
        if not task.for_this_scheduler and not task.is_utility and task.status is not TaskStatus.UNKNOWN:
            usage = self._foreign_usage.setdefault(name, [0, 0, 0])
            usage[0] += sign * vector.cpu
            usage[1] += sign * vector.memory
            usage[2] += sign * task.shape.gpu_hundredths

    def _assign_devices(self, facts: NodeFacts, slot: int, task: Task, tenant: DeviceTenant, sign: int) -> None:
        """Assign a task to its shared GPUs or remove it from them."""
        axis = self._axes.index[facts.shared_resource]
        devices = self._devices.setdefault(facts.name, {})
        assign_devices(self._columns[slot, :, :, np.newaxis], axis, 0, devices, task.gpu_groups, tenant, sign)

    def _slots_of(self, table: NodeTable) -> IntArray:
        """[node] slots of the rows of a table; a slot changes only with the table."""
        return table.remember("slots", lambda: np.array([self._slots[name] for name in table.names], dtype=np.int64))

    def allocatable(self, table: NodeTable) -> IntArray:
        """[axis, node] what nodes offer."""
        return np.ascontiguousarray(self._allocatable[self._slots_of(table)].T)

    def planes(self, table: NodeTable) -> IntArray:
        """[plane, axis, node] what is left, and what is used; a copy."""
        return np.ascontiguousarray(self._columns[self._slots_of(table)].transpose(1, 2, 0))

    def devices(self, table: NodeTable) -> dict[int, dict[str, DeviceUse]]:
        """Node row -> shared GPU -> its tenants; a copy."""
        return {table.rows[name]: dict(devices) for name, devices in self._devices.items() if devices}

    def ports(self, table: NodeTable) -> dict[int, dict[HostPort, int]]:
        """Node row -> host port -> how many pods hold it; a copy."""
        return {table.rows[name]: dict(ports) for name, ports in self._ports.items() if ports}

    def foreign_usage(self, table: NodeTable) -> dict[int, tuple[int, ...]]:
        """Node row -> cpu, memory, GPU hundredths used by pods of other schedulers."""
        return {table.rows[name]: tuple(load) for name, load in self._foreign_usage.items() if any(load)}
