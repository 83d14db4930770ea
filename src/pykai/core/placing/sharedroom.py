"""Room on the shared GPUs of all nodes, as columns that follow the rows that change.

Shared GPUs have ids and tenants, and live in dictionaries by node.  A search asks for room on all of them at once, for
every task, so what matters of them is kept as columns: a node has one slot for each of its devices, in the order of
their ids.  The most free memory of any device of a node answers for requests of one device, which most are.
"""

from __future__ import annotations

import numpy as np

from pykai.core.cycle.state import State
from pykai.core.model.axes import IntArray

#: MiB free in a slot without a device, or with one that cannot be joined; no request is for less than nothing.
NO_ROOM = -1


class SharedRoom:
    """What shared GPUs have for requests to join them (gpu:F-3)."""

    __slots__ = ("_seen", "free_mib", "most_mib", "only_reserved")

    def __init__(self, nodes: int) -> None:
        self._seen = -1
        #: [slot, node] MiB free on each device, NO_ROOM where there is none that can be joined
        self.free_mib: IntArray = np.full((1, nodes), NO_ROOM, dtype=np.int64)
        #: [node] the most of them
        self.most_mib: IntArray = np.full(nodes, NO_ROOM, dtype=np.int64)
        #: [node] GPUs with nothing but a reservation pod
        self.only_reserved: IntArray = np.zeros(nodes, dtype=np.int64)

    @classmethod
    def of(cls, state: State) -> SharedRoom:
        """That of the cycle, up to date."""
        snapshot = state.snapshot
        room = snapshot.memo.remember(SharedRoom, lambda: cls(len(snapshot.nodes)))
        room._refresh(state)
        return room

    def _refresh(self, state: State) -> None:
        touched, seen = state.changed_rows, self._seen
        if seen == len(touched):
            return
        self._seen = len(touched)
        for row in set(state.devices) if seen < 0 else set(touched[seen:]):
            self._read_row(state, row)

    def _read_row(self, state: State, row: int) -> None:
        devices = state.devices.get(row)
        if devices is None:
            if self.most_mib.item(row) != NO_ROOM:
                self.free_mib[:, row] = self.most_mib[row] = NO_ROOM
            self.only_reserved[row] = 0
            return
        gpu_mib = state.snapshot.nodes.facts[row].gpu_mib
        room = [device.joinable_mib(gpu_mib) for device in devices.values()]
        free_mib = [NO_ROOM if free is None else free for free in room]
        slots = len(self.free_mib)
        if len(free_mib) > slots:
            more = np.full((len(free_mib) - slots, self.free_mib.shape[1]), NO_ROOM, dtype=np.int64)
            self.free_mib = np.concatenate((self.free_mib, more))
        else:
            free_mib += [NO_ROOM] * (slots - len(free_mib))
        self.free_mib[:, row] = free_mib
        self.most_mib[row] = max(free_mib)
        self.only_reserved[row] = sum([device.is_only_reserved for device in devices.values()])
