"""Shared GPUs of a node: which tenants are on which device, and what is left (gpu:4).

A shared device is a *group*: an id, and tenants that each hold some MiB of it.  What a group does to the whole-GPU
column of its node follows from the sets of its tenants alone, never from their order, so adding and
removing in any order gives the same numbers (gpu:S-6, and the "Do better" that replaces gpu:S-4/S-5 by sets):

- a device with a live or releasing tenant is not idle;
- a device all of whose tenants are releasing is one whole releasing GPU;
- a tenant pipelined onto a device without live tenants takes that releasing GPU (or, on a new id, waits for one).

A reservation pod holds a whole GPU of its node for the tenants of a group.  Beside them it counts for nothing; without
them its GPU is being released, because the pod is about to be removed (`docs/adr/0014-lone-reservations.md`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pykai.core.model.axes import IntArray
from pykai.core.model.shapes import GpuRequest
from pykai.core.model.status import TaskStatus
from pykai.core.model.vectors import FREE, IDLE, Vector, charge_planes
from pykai.core.model.vectors import RELEASING as RELEASING_PLANE

#: How a task holds its node: the rows of the accounting table in cycle:4.
LIVE, RELEASING, PIPELINED = 0, 1, 2
#: How a reservation pod holds its device: it stays, or it terminates.
RESERVED, RESERVATION_TERMINATING = 3, 4

_HOLDINGS = {TaskStatus.RELEASING: RELEASING, TaskStatus.PIPELINED: PIPELINED}


def holding_of(status: TaskStatus) -> int:
    """How a task in this status holds its node."""
    return _HOLDINGS.get(status, LIVE)


class DeviceUse(NamedTuple):
    """Tenants, memory (MiB) and reservation pods of one shared GPU."""

    live: int = 0
    releasing: int = 0
    pipelined: int = 0
    #: memory of all tenants
    used_mib: int = 0
    #: memory of live and releasing tenants
    allocated_mib: int = 0
    #: memory of releasing tenants less that of pipelined ones; may be negative (gpu:S-7)
    releasing_mib: int = 0
    #: reservation pods that stay
    reservations: int = 0
    #: reservation pods that terminate, or whose node does not respond
    reservations_terminating: int = 0

    @property
    def idle_gpus(self) -> int:
        """Change of the node's idle GPUs caused by this device."""
        return -max(self.reservations + self.reservations_terminating, 1 if self.live or self.releasing else 0)

    @property
    def releasing_gpus(self) -> int:
        """Change of the node's releasing GPUs caused by this device: what is not idle, less the one in use."""
        return -self.idle_gpus - (1 if self.live or self.pipelined else 0)

    def with_tenant(self, holding: int, mib: int, sign: int) -> DeviceUse:
        """The device with a tenant added (sign 1) or removed (-1) (gpu:S-4, S-5)."""
        live, releasing, pipelined, used, allocated, freed, reservations, reservations_terminating = self
        used += sign * mib
        if holding == LIVE:
            live += sign
            allocated += sign * mib
        elif holding == RELEASING:
            releasing += sign
            allocated += sign * mib
            freed += sign * mib
        elif holding == PIPELINED:
            pipelined += sign
            freed -= sign * mib
        elif holding == RESERVED:
            reservations += sign
        else:
            reservations_terminating += sign
        return DeviceUse(live, releasing, pipelined, used, allocated, freed, reservations, reservations_terminating)

    @property
    def has_no_tenant(self) -> bool:
        """No tenant at all."""
        return not (self.live or self.releasing or self.pipelined)

    @property
    def is_only_reserved(self) -> bool:
        """Only a reservation pod that stays: a tenant that joins may start at once, although no GPU is idle."""
        return self.reservations > 0 and self.has_no_tenant

    def fits_tenant(self, mib: int, gpu_mib: int) -> bool:
        """Room for a tenant counting what is being released (gpu:F-3).

        A device that is released entirely is used as a whole GPU instead, and so is one without tenants.
        """
        free_mib = self.joinable_mib(gpu_mib)
        return free_mib is not None and free_mib >= mib

    def joinable_mib(self, gpu_mib: int) -> int | None:
        """MiB for tenants that join, counting what is being released; None when it cannot be joined."""
        if self.used_mib == 0 or self.allocated_mib == self.releasing_mib:
            return None
        return gpu_mib - self.allocated_mib + self.releasing_mib

    def fits_tenant_now(self, mib: int, gpu_mib: int) -> bool:
        """Room for a tenant now (gpu:F-7); a device that a pipelined tenant created has none."""
        is_occupied = self.live > 0 or self.releasing > 0 or self.reservations > 0
        return is_occupied and gpu_mib - self.allocated_mib - mib >= 0


FREE_DEVICE = DeviceUse()


def tenant_mib(request: GpuRequest, gpu_mib: int, label_mib: int) -> int:
    """Memory that this request takes of one device on a node (gpu:C-2).

    A request for all the memory the node advertises is a request for the whole device, although the engine's own
    figure is floored to a multiple of 100 (gpu:C-1, Do better).
    """
    if request.memory_mib > 0:
        return min(request.memory_mib, gpu_mib) if request.memory_mib <= label_mib else request.memory_mib
    return int(request.portion * gpu_mib)


def portion_hundredths(request: GpuRequest, gpu_mib: int, label_mib: int) -> int:
    """Portion of one device on a node in hundredths, rounded up for gpu-memory requests (gpu:C-3)."""
    if request.memory_mib > 0:
        return -(-100 * tenant_mib(request, gpu_mib, label_mib) // gpu_mib)
    return int(request.portion * 100 + 0.5)


def quota_hundredths(request: GpuRequest, gpu_mib: int, label_mib: int) -> int:
    """What the per-node quota check charges for a shared request (gpu:C-9)."""
    return request.devices * -(-100 * tenant_mib(request, gpu_mib, label_mib) // gpu_mib)


def fits_device(request: GpuRequest, gpu_mib: int, label_mib: int) -> bool:
    """Whether one device of the node is large enough (gpu:C-4); none is for more than a whole device."""
    return tenant_mib(request, gpu_mib, label_mib) <= gpu_mib


class DeviceTenant(NamedTuple):
    """A tenant's place: memory it takes of each device, and how it holds it."""

    mib: int
    holding: int


def reservation_tenant(status: TaskStatus) -> DeviceTenant:
    """The place of a reservation pod: no tenant may join one that terminates."""
    return DeviceTenant(0, RESERVED if status in (TaskStatus.BOUND, TaskStatus.RUNNING) else RESERVATION_TERMINATING)


def reservation_charge(vector: Vector, status: TaskStatus, axis: int) -> tuple[IntArray, bool]:
    """What a reservation pod takes of [plane, axis] of its node, and whether it holds the device of a group besides.

    `axis` is that of the GPUs which the node shares, -1 when there are none or the pod names no group.  GPUs that are
    held for no group count as being released: no pod uses them.
    """
    gpus = vector.gpus
    holds_device = axis >= 0 and bool(gpus[axis] > 0)
    if holds_device:
        gpus = gpus.copy()
        gpus[axis] -= 1
    planes = charge_planes(vector.reservation_charge, holding_of(status)) + charge_planes(gpus, RELEASING)
    return planes, holds_device


def assign_devices(
    columns: IntArray,
    axis: int,
    row: int,
    devices: dict[str, DeviceUse],
    groups: Iterable[str],
    tenant: DeviceTenant,
    sign: int,
) -> None:
    """Assign a tenant to shared devices of a node (sign 1) or remove it from them (-1).

    `columns` is [plane, axis, node]; the whole-GPU figures of the node follow its devices.

    Statements: gpu:S-1.
    """
    for group in groups:
        after = devices.get(group, FREE_DEVICE).with_tenant(tenant.holding, tenant.mib, sign)
        set_device(columns, axis, row, devices, group, after)


def set_device(
    columns: IntArray, axis: int, row: int, devices: dict[str, DeviceUse], group: str, after: DeviceUse
) -> tuple[int, int]:
    """Set the use of a device; a free one is dropped.  Returns the change of idle and releasing GPUs."""
    before = devices.get(group, FREE_DEVICE)
    if after == FREE_DEVICE:
        del devices[group]
    else:
        devices[group] = after
    idle = after.idle_gpus - before.idle_gpus
    releasing = after.releasing_gpus - before.releasing_gpus
    if idle or releasing:
        columns[IDLE, axis, row] += idle
        columns[RELEASING_PLANE, axis, row] += releasing
        columns[FREE, axis, row] += idle + releasing
    return idle, releasing
