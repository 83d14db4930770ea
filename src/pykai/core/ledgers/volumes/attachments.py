"""Volumes attached to nodes, for the option of volume limits.

Counted are volumes per node and driver, and claims that only one pod may use at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np

from pykai.core.caching import Cache
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.ledgers.volumes.sharecounts import count_shares, held_planes, tasks_on_nodes
from pykai.core.model.axes import IntArray, Rows
from pykai.core.model.shapes import Shape
from pykai.core.model.sharedgpus import holding_of
from pykai.core.model.tasks import Task
from pykai.core.model.volumerequests import VolumeRequest

_NO_LIMIT = 2**31


class VolumeUse(NamedTuple):
    """A volume attached to a node, or (row -1, no driver) a claim that one pod at a time may use."""

    volume: str
    driver: str = ""
    row: int = -1


class AttachmentLedger:
    """Volumes attached to nodes, and claims in use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = snapshot.nodes
        self._storage = snapshot.storage
        self._concerned: Cache[int, bool] = Cache()
        self._counts: dict[VolumeUse, list[int]] = {}
        #: driver -> [idle or free, node] volumes attached
        self._attached: dict[str, IntArray] = {}
        self._limits: Cache[str, IntArray] = Cache()
        #: volume that several pods use -> nodes that have it attached for pods that do not terminate
        self._attached_rows: dict[str, set[int]] = {}
        self._held: dict[str, tuple[VolumeUse, ...]] = {}
        self.active = any(self.concerns(task.shape) for task in snapshot.tasks_with_volumes.values())
        for task in tasks_on_nodes(snapshot, self.concerns):
            row = self._nodes.rows[task.node]
            self._held[task.key] = allocation = _uses_of(task.shape, task.key, row)
            self.hold(task, row, allocation, holding_of(task.status), 1)

    def concerns(self, shape: Shape) -> bool:
        """Whether a driver attaches some volume, or a claim admits one pod only."""
        concerned = self._concerned.get(shape.id)
        if concerned is None:
            concerned = self._concerned.store(
                shape.id,
                any(volume_request.driver or volume_request.single_pod_only for volume_request in shape.volumes),
            )
        return concerned

    def held(self, task: Task) -> object | None:
        """What a task holds since before the cycle."""
        return self._held.get(task.key)

    def grant(self, state: State, request: PlacementRequest, row: int, *, idle: bool) -> object | None:
        """What a task attaches on a node, None when it may not."""
        uses = _uses_of(request.shape, request.task.key, row)
        evicted_from = state.evicted_from.get(request.task.key)
        stays_on_node = evicted_from is not None and evicted_from.row == row
        planes = (1,) if stays_on_node or not idle else (0, 1)
        return uses if all(self._fits_plane(uses, row, plane) for plane in planes) else None

    def hold(self, task: Task, row: int, allocation: object, holding: int, sign: int) -> None:
        """Record uses (sign 1) or remove them (-1)."""
        assert isinstance(allocation, tuple)
        for use in allocation:
            counts = self._counts.setdefault(use, [0, 0, 0])
            before = held_planes(counts)
            counts[holding] += sign
            after = held_planes(counts)
            if not any(counts):
                del self._counts[use]
            if use.driver and before != after:
                attached = self._attached_by(use.driver)
                attached[0, use.row] += after[1] - before[1]
                attached[1, use.row] += after[2] - before[2]
                if "#" not in use.volume and after[2] != before[2]:
                    attached_rows = self._attached_rows.setdefault(use.volume, set())
                    (attached_rows.add if after[2] else attached_rows.discard)(use.row)
                    if not attached_rows:
                        del self._attached_rows[use.volume]

    def state_key(self, request: PlacementRequest) -> Hashable:
        """Which claims that admit one pod only are in use."""
        return tuple(
            self._is_in_use(volume_request, 1)
            for volume_request in request.shape.volumes
            if volume_request.single_pod_only and volume_request.shared_key
        )

    def over_limit(self, state: State, request: PlacementRequest, rows: Rows) -> IntArray:
        """[rows] 1 where a driver would attach more volumes than it can."""
        refused = np.zeros(len(self._nodes), dtype=np.bool_)
        by_driver: dict[str, list[VolumeRequest]] = {}
        for volume_request in request.shape.volumes:
            if volume_request.driver:
                by_driver.setdefault(volume_request.driver, []).append(volume_request)
        for driver, volume_requests in by_driver.items():
            new = np.full(len(self._nodes), len(volume_requests), dtype=np.int64)
            for volume_request in volume_requests:
                for row in self._attached_rows.get(volume_request.shared_key, ()) if volume_request.shared_key else ():
                    new[row] -= 1
            refused |= (new > 0) & (self._attached_by(driver)[1] + new > self._limit(driver))
        return refused[rows].astype(np.int64)

    def used_by_another(self, state: State, request: PlacementRequest, rows: Rows) -> IntArray:
        """[rows] 1 everywhere while another pod uses a claim that admits one only."""
        taken = any(self._is_in_use(volume_request, 1) for volume_request in request.shape.volumes)
        return np.full(len(self._nodes), int(taken), dtype=np.int64)[rows]

    def agrees(self, held: Iterable[tuple[int, object, int]]) -> bool:
        """Whether the ledger equals what these tasks hold."""
        return count_shares(held) == self._counts

    def as_comparable(self) -> dict[str, object]:
        """All figures, for comparison."""
        return {
            "uses": {use: tuple(counts) for use, counts in self._counts.items()},
            "attached": {driver: counts.tolist() for driver, counts in self._attached.items() if counts.any()},
            "where": {volume: frozenset(rows) for volume, rows in self._attached_rows.items()},
        }

    def _fits_plane(self, uses: Iterable[VolumeUse], row: int, plane: int) -> bool:
        new: dict[str, int] = {}
        for use in uses:
            there = held_planes(self._counts.get(use, [0, 0, 0]))[1 + plane]
            if not use.driver and there:
                return False
            if use.driver and not there:
                new[use.driver] = new.get(use.driver, 0) + 1
        return all(
            self._attached_by(driver)[plane, row] + count <= self._limit(driver)[row] for driver, count in new.items()
        )

    def _is_in_use(self, volume_request: VolumeRequest, plane: int) -> bool:
        return (
            volume_request.single_pod_only
            and bool(volume_request.shared_key)
            and held_planes(self._counts.get(VolumeUse(volume_request.shared_key), [0, 0, 0]))[1 + plane]
        )

    def _attached_by(self, driver: str) -> IntArray:
        attached = self._attached.get(driver)
        if attached is None:
            attached = self._attached[driver] = np.zeros((2, len(self._nodes)), dtype=np.int64)
        return attached

    def _limit(self, driver: str) -> IntArray:
        limit_by_row = self._limits.get(driver)
        if limit_by_row is None:
            limits = self._storage.limits
            listed = [limits.get(name, {}).get(driver, _NO_LIMIT) for name in self._nodes.names]
            limit_by_row = self._limits.store(driver, np.array(listed, dtype=np.int64))
        return limit_by_row


def _uses_of(shape: Shape, task_key: str, row: int) -> tuple[VolumeUse, ...]:
    uses: list[VolumeUse] = []
    for number, volume_request in enumerate(shape.volumes):
        if volume_request.driver:
            uses.append(VolumeUse(volume_request.shared_key or f"{task_key}#{number}", volume_request.driver, row))
        if volume_request.single_pod_only and volume_request.shared_key:
            uses.append(VolumeUse(volume_request.shared_key))
    return tuple(uses)
