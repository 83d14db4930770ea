"""What nodes hold during a cycle: columns, shared GPUs and host ports, and how a task is charged to its node.

The journal and the queues are in `state.py`, which adds them to this.
"""

from __future__ import annotations

import numpy as np

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.journal import Grant, Placement
from pykai.core.model.axes import PODS, BoolArray, IntArray
from pykai.core.model.shapes import HostPort, Shape, count_ports
from pykai.core.model.sharedgpus import FREE_DEVICE, DeviceUse, set_device, tenant_mib
from pykai.core.model.sharedgpus import RELEASING as RELEASED
from pykai.core.model.tasks import Task
from pykai.core.model.vectors import FREE, IDLE, RELEASING, USED


class NodeState:
    """The nodes of one cycle."""

    __slots__ = (
        "_flat",
        "_offered",
        "allocatable",
        "columns",
        "devices",
        "free",
        "idle",
        "ports",
        "releasing",
        "reserved_before_cycle",
        "snapshot",
        "terminating_ports",
        "used",
    )

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        #: [axis, node] what nodes offer
        self.allocatable: IntArray = snapshot.allocatable
        #: [plane, axis, node]
        self.columns: IntArray = snapshot.columns
        #: the same memory as [plane x axis, node]
        self._flat: IntArray = self.columns.reshape(len(self.columns) * len(snapshot.axes), len(snapshot.nodes))
        #: [as above] the capacity of the node: a pod that runs there without it frees nothing (gpu:S-3)
        self._offered: BoolArray = np.tile(snapshot.allocatable > 0, (len(self.columns), 1))
        #: [axis, node] not held by any task
        self.idle: IntArray = self.columns[IDLE]
        #: [axis, node] being released, less what is pipelined onto it
        self.releasing: IntArray = self.columns[RELEASING]
        #: [axis, node] idle + releasing
        self.free: IntArray = self.columns[FREE]
        #: [axis, node] held, pipelined included
        self.used: IntArray = self.columns[USED]
        #: node row -> shared GPU -> tenants
        self.devices: dict[int, dict[str, DeviceUse]] = snapshot.devices
        #: node row -> shared GPUs that had a reservation pod before the cycle
        self.reserved_before_cycle = {row: frozenset(devices) for row, devices in self.devices.items()}
        #: node row -> host port -> holders
        self.ports: dict[int, dict[HostPort, int]] = snapshot.ports
        #: node row -> host port -> evicted holders: no task may start on it before they are gone
        self.terminating_ports: dict[int, dict[HostPort, int]] = {}

    def _charge_node(self, task: Task, placement: Placement, holding: int, sign: int) -> None:
        """Charge a node for a task (sign 1), or remove the charge (-1): columns, shared GPUs, discrete ledgers."""
        shape, row = task.shape, placement.row
        self._flat[:, row] += sign * self.snapshot.vectors[shape].charges[holding] * self._offered[:, row]
        if placement.gpu_groups:
            self._change_tenants(shape, row, placement.gpu_groups, (holding, sign))
        if placement.grants:
            self._charge_ledgers(task, row, placement.grants, holding, sign)

    def _charge_ledgers(self, task: Task, row: int, grants: tuple[Grant, ...], holding: int, sign: int) -> None:
        for ledger, allocation in grants:
            ledger.hold(task, row, allocation, holding, sign)

    def _recharge_node(self, task: Task, placement: Placement, was: int, becomes: int) -> None:
        charges = self.snapshot.vectors[task.shape].charges
        self._flat[:, placement.row] += (charges[becomes] - charges[was]) * self._offered[:, placement.row]
        if placement.gpu_groups:
            self._change_tenants(task.shape, placement.row, placement.gpu_groups, (was, -1), (becomes, 1))
        if placement.grants:
            # In this order, because an allocation without holders may be released.
            self._charge_ledgers(task, placement.row, placement.grants, becomes, 1)
            self._charge_ledgers(task, placement.row, placement.grants, was, -1)

    def _change_tenants(self, shape: Shape, row: int, gpu_groups: tuple[str, ...], *changes: tuple[int, int]) -> None:
        """Add tenants that hold shared GPUs in some way (sign 1), or remove them; whole GPUs follow (gpu:4)."""
        facts = self.snapshot.nodes.facts[row]
        axis = self.snapshot.axes.index[facts.shared_resource]
        devices = self.devices.setdefault(row, {})
        mib = tenant_mib(shape.gpu, facts.gpu_mib, facts.gpu_label_mib)
        reserved_before_cycle = self.reserved_before_cycle.get(row, frozenset())
        for group in gpu_groups:
            use = devices.get(group, FREE_DEVICE)
            for holding, sign in changes:
                use = use.with_tenant(holding, mib, sign)
            idle, releasing = set_device(self.columns, axis, row, devices, group, use)
            if (idle or releasing) and group not in reserved_before_cycle:
                # The first tenant of a shared device brings a reservation pod, which needs a slot as the device does
                # (gpu:P-7).
                self.idle[PODS, row] += idle
                self.releasing[PODS, row] += releasing
                self.free[PODS, row] += idle + releasing
        if not devices:
            del self.devices[row]

    def _put_device(self, row: int, group: str, device: DeviceUse) -> None:
        """Set the new state of a shared GPU."""
        axis = self.snapshot.axes.index[self.snapshot.nodes.facts[row].shared_resource]
        devices = self.devices.setdefault(row, {})
        set_device(self.columns, axis, row, devices, group, device)
        if not devices:
            del self.devices[row]

    def _hold_ports(self, held: dict[int, dict[HostPort, int]], shape: Shape, row: int, sign: int) -> None:
        ports = held.setdefault(row, {})
        count_ports(ports, shape.host_ports, sign)
        if not ports:
            del held[row]

    def _charge_evicted(self, task: Task, placement: Placement, sign: int) -> None:
        """Charge a node for a task that is to leave it (sign 1), or no longer (-1)."""
        self._charge_node(task, placement, RELEASED, sign)
        if task.shape.host_ports:
            self._hold_ports(self.terminating_ports, task.shape, placement.row, sign)
