"""Which devices are held and how, and the column of GPUs that follows from it (gpu:D-6, D-7).

A claim holds all its devices alike: live while one of its users is live; else releasing, pipelined, or both, when one
user waits for what another still holds.  A device may be releasing from one claim and pipelined to another.

What a device does to the planes of its node follows from these facts alone, never from their order, so undo is exact
 (see `core/model/sharedgpus.py` for the same rule over shared GPUs).

Statements: gpu:S-9.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from pykai.api import names
from pykai.core.cluster.claims.inventory import Inventory
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.model.axes import BoolArray, IntArray
from pykai.core.model.vectors import PLANES, charge_planes

#: Live, releasing, pipelined: 1 where a claim holds its devices so.
HoldState = tuple[int, int, int]
NOT_HELD: Final[HoldState] = (0, 0, 0)


def _plane_effect(code: int) -> tuple[int, int, int, int]:
    """What a device held so (bits: live 4, releasing 2, pipelined 1) does to the planes of its node."""
    live, releasing, pipelined = code >> 2 & 1, code >> 1 & 1, code & 1
    idle = -(live | releasing)
    released = 0 if live else releasing - pipelined
    return idle, released, idle + released, live | releasing | pipelined


#: [how a device is held][plane]
_PLANE_EFFECTS: Final = tuple(_plane_effect(code) for code in range(8))
_PLANE_EFFECT_TABLE: Final[IntArray] = np.array(_PLANE_EFFECTS, dtype=np.int64)
#: [holding][plane] what one unit of a plain resource does
_UNIT_EFFECTS: Final = tuple(
    tuple(charge_planes(np.ones(1, dtype=np.int64), holding)[:, 0].tolist()) for holding in range(3)
)


class DeviceSums(NamedTuple):
    """What the holders of devices add up to."""

    #: [holding, device]
    held: IntArray
    #: [plane, device]
    planes: IntArray


class DeviceHoldings:
    """The devices of an inventory in one cycle."""

    def __init__(self, snapshot: Snapshot, inventory: Inventory) -> None:
        self._columns = snapshot.columns
        self._axis = snapshot.axes.index.get(names.DRA_GPU, -1)
        self._inventory = inventory
        size = len(inventory)
        #: [device] unavailable to a pod that starts now
        self.busy: BoolArray = np.zeros(size, dtype=np.bool_)
        #: [device] unavailable to a pipelined pod
        self.promised: BoolArray = np.zeros(size, dtype=np.bool_)
        #: claims that hold a device so, by device
        self._live = [0] * size
        self._releasing = [0] * size
        self._pipelined = [0] * size
        #: row by device, -1 where it does not count in the column of GPUs
        self._row: list[int] = np.where(inventory.whole_gpus(), inventory.node_row, -1).tolist()
        #: devices that more than one claim held when the cycle began
        self._initially_doubled: BoolArray = np.zeros(size, dtype=np.bool_)

    def load_initial(self, held: Iterable[tuple[Sequence[int], HoldState]]) -> None:
        """Record what claims held before the cycle, in bulk: a large cluster has tens of thousands of them."""
        sums = self.sum_holders(held)
        self._live, self._releasing, self._pipelined = sums.held.tolist()
        self.busy, self.promised = _unavailable(sums.held)
        self._initially_doubled = sums.held[0] + sums.held[2] > 1
        self._columns += self.column_charges(sums)

    def change(self, devices: Sequence[int], before: HoldState, after: HoldState) -> None:
        """Record that a claim holds its devices in another way."""
        live, releasing, pipelined = after[0] - before[0], after[1] - before[1], after[2] - before[2]
        for device in devices:
            old_code = self._code(device)
            self._live[device] += live
            self._releasing[device] += releasing
            self._pipelined[device] += pipelined
            new_code = self._code(device)
            if old_code == new_code:
                continue
            self.promised[device] = new_code & 5 != 0
            self.busy[device] = new_code != 0
            row = self._row[device]
            if row >= 0 and self._axis >= 0:
                column = self._columns[:, self._axis, row]
                for plane in range(PLANES):
                    column[plane] += _PLANE_EFFECTS[new_code][plane] - _PLANE_EFFECTS[old_code][plane]

    def _code(self, device: int) -> int:
        return (4 if self._live[device] else 0) | (2 if self._releasing[device] else 0) | (self._pipelined[device] > 0)

    def charge(self, axis: int, row: int, amount: int, holding: int, sign: int) -> None:
        """Charge a resource that the node offers itself."""
        column = self._columns[:, axis, row]
        for plane in range(PLANES):
            column[plane] += sign * amount * _UNIT_EFFECTS[holding][plane]

    def sum_holders(self, held: Iterable[tuple[Sequence[int], HoldState]]) -> DeviceSums:
        """What these holders come to."""
        devices: tuple[list[int], list[int], list[int]] = ([], [], [])
        for takes, hold_state in held:
            for held_devices, is_held in zip(devices, hold_state, strict=True):
                if is_held:
                    held_devices.extend(takes)
        size = len(self._row)
        counts = np.stack([np.bincount(np.array(numbers, np.int64), minlength=size) for numbers in devices])
        codes = ((counts > 0) * np.array([[4], [2], [1]])).sum(axis=0)
        return DeviceSums(counts.astype(np.int64), _PLANE_EFFECT_TABLE[codes].T)

    def column_charges(self, sums: DeviceSums) -> IntArray:
        """[plane, axis, node] what that does to the columns."""
        columns = np.zeros_like(self._columns)
        gpus = np.flatnonzero(self._inventory.whole_gpus())
        if self._axis >= 0:
            for plane in range(PLANES):
                np.add.at(columns[plane, self._axis], self._inventory.node_row[gpus], sums.planes[plane, gpus])
        return columns

    def matches(self, sums: DeviceSums) -> bool:
        """Whether the holdings equal these sums, and no device was allocated to a second claim."""
        busy, promised = _unavailable(sums.held)
        return (
            sums.held.tolist() == [self._live, self._releasing, self._pipelined]
            and np.array_equal(busy, self.busy)
            and np.array_equal(promised, self.promised)
            and not bool(((sums.held[0] + sums.held[2] > 1) & ~self._initially_doubled).any())
        )


def _unavailable(held: IntArray) -> tuple[BoolArray, BoolArray]:
    """[device] which cannot be allocated now, and which cannot even be pipelined onto."""
    live, releasing, pipelined = held > 0
    return live | releasing | pipelined, live | pipelined
