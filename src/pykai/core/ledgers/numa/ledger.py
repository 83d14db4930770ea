"""The ledger of NUMA zones: what each zone has left in a cycle (gpu:N-15 to N-18).

Two planes of [node, zone, resource], like the columns of the nodes: *idle* is unused, *free* adds what is releasing and
subtracts what is pipelined.  A pod that starts now must find its zones in both; a pipelined pod uses the free plane
alone.  So a bind never targets a zone that is still in use (gpu:N-16, Do better).

For many nodes at once, each distinct situation is evaluated once: what matters to a request is the layout of the node
and, for the resources it needs, what is left in each zone up to what it needs.  Ten thousand equal nodes are one
situation, and ten thousand differently filled ones are a few.

An *allocation* is what one pod holds: ((zone number, ((resource, amount), ...)), ...), zones ascending; () is nothing,
or nothing recorded.  The planes are made on first use: a cycle without a pod that needs zones pays nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np

from pykai.api.quantity import SATURATED
from pykai.core.caching import Cache
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.ledgers.numa.alignment import NeedVector, align_zones
from pykai.core.model.axes import BoolArray, IntArray, Rows
from pykai.core.model.numarequests import NumaRequest, ZoneNeed, is_guaranteed_only
from pykai.core.model.shapes import Shape
from pykai.core.model.sharedgpus import PIPELINED, RELEASING, holding_of
from pykai.core.model.status import TaskStatus
from pykai.core.model.tasks import Task
from pykai.core.model.zones import ZoneGrid, ZoneLayout, ZonePolicy
from pykai.core.report.sentences import amount_text

#: What a pod holds: (zone number, what it has of it), zones ascending.
ZoneAllocation = tuple[tuple[int, ZoneNeed], ...]

#: Spans that are not a number of zones: the pod cannot be aligned there; the node does not align it.
INFEASIBLE, UNACCOUNTED = 0, -1

#: Not on the node yet, so the daemon there has not counted it.
_NOT_ON_NODE_YET = frozenset((TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.PIPELINED))


#: Situations that a plan keeps.
_MAX_SITUATIONS = 1 << 16


class _ZonePlanes(NamedTuple):
    """[node, zone, resource] each."""

    #: what the zones offer before any pod of the records
    offered: IntArray
    idle: IntArray
    free: IntArray


class _AlignmentResult(NamedTuple):
    """What a request gets in one situation."""

    #: zones it spans, at least 1, or INFEASIBLE
    span: int
    allocation: ZoneAllocation | None


class _AlignmentPlan:
    """How one request is aligned on nodes of one layout, with the situations seen so far."""

    __slots__ = ("_layout", "_limits", "_names", "_offered", "_results", "_units", "columns")

    def __init__(
        self, numa_request: NumaRequest, layout: ZoneLayout, aligned: Iterable[str], index: dict[str, int]
    ) -> None:
        concurrent, serial = numa_request.units(layout.pod_scope)
        wanted = {name for need in (*concurrent, *serial) for name, _ in need}
        names = tuple(sorted(wanted.intersection(aligned)))
        positions = [layout.resources.index(name) for name in names]

        def amounts(needs: tuple[ZoneNeed, ...]) -> tuple[NeedVector, ...]:
            return tuple(tuple(dict(need).get(name, 0) for name in names) for need in needs)

        self._layout = layout
        self._names = names
        #: resources of the planes that matter
        self.columns = [index[name] for name in names]
        self._offered: ZoneGrid = tuple(tuple(zone[place] for place in positions) for zone in layout.allocatable)
        self._units = amounts(concurrent), amounts(serial)
        sums = [sum(need) for need in zip(*self._units[0], strict=True)] or [0] * len(names)
        peaks = [max(need) for need in zip(*self._units[1], strict=True)] or [0] * len(names)
        # More than all units together can take of a zone makes no difference.
        self._limits = np.array([min(max(both), SATURATED) for both in zip(sums, peaks, strict=True)], dtype=np.int64)
        self._results: Cache[bytes, _AlignmentResult] = Cache(_MAX_SITUATIONS)

    def align_all(self, left: IntArray) -> list[_AlignmentResult]:
        """What the request would get, for each of [node, zone, resource]."""
        cells = np.ascontiguousarray(np.clip(left, 0, self._limits))
        width = cells.itemsize * cells.shape[1] * cells.shape[2]
        data = cells.tobytes()
        keys = [data[start : start + width] for start in range(0, len(data), width or 1)] or [b""] * len(cells)
        known, results = self._results, []
        for position, key in enumerate(keys):
            result = known.get(key)
            if result is None:
                result = known.store(key, self._align(cells[position].tolist()))
            results.append(result)
        return results

    def _align(self, left: list[list[int]]) -> _AlignmentResult:
        taken = align_zones(self._layout.policy, self._offered, left, *self._units)
        if taken is None:
            return _AlignmentResult(INFEASIBLE, None)
        allocation = tuple(
            (zone, tuple((name, amount) for name, amount in zip(self._names, amounts, strict=True) if amount))
            for zone, amounts in enumerate(taken)
            if any(amounts)
        )
        return _AlignmentResult(max(1, len(allocation)), allocation)


class ZoneLedger:
    """What each pod holds of which zone in one cycle (a `DiscreteLedger`)."""

    def __init__(self, snapshot: Snapshot, *, ignored: frozenset[str] = frozenset(), reconstruct: bool = True) -> None:
        rows = snapshot.nodes.rows
        zones_by_row = {rows[name]: zones for name, zones in snapshot.numa.items() if name in rows}
        numbers: dict[ZoneLayout, int] = {}
        by_identity: dict[int, int] = {}
        self._snapshot = snapshot
        self._zones_by_row = zones_by_row
        self._ignored = ignored
        self._reconstruct = reconstruct
        #: [node] number of its layout, -1 without zones
        self._layout_of: IntArray = np.full(len(rows), -1, dtype=np.int64)
        for row, zones in zones_by_row.items():
            number = by_identity.get(id(zones.layout))
            if number is None:
                number = by_identity[id(zones.layout)] = numbers.setdefault(zones.layout, len(numbers))
            self._layout_of[row] = number
        self._layouts = list(numbers)
        reported = sorted({name for layout in numbers for name in layout.resources})
        #: resource -> its place in the planes
        self._index = {name: column for column, name in enumerate(reported)}
        self._most_zones = max((len(layout.zones) for layout in numbers), default=0)
        accounting = [layout for layout in numbers if layout.policy is not ZonePolicy.NONE]
        self._any_policy = bool(accounting)
        self._devices = {name for layout in accounting for name in layout.resources if self._is_device(name)}
        #: [node] whether its kubelet rejects pods that it cannot align
        self.rejects_unaligned: BoolArray = (
            self._per_layout([layout.policy.rejects_unaligned for layout in numbers], False) > 0
        )
        #: [node] zones of the node; where they are not known, the most that any node has (gpu:N-14)
        self.zone_counts: IntArray = self._per_layout([len(layout.zones) for layout in numbers], self._most_zones)
        self._planes: _ZonePlanes | None = None
        #: plans, or None, by shape and layout and by request and layout
        self._plans: Cache[Hashable, tuple[_AlignmentPlan | None]] = Cache()
        self._relevant: Cache[Shape, bool] = Cache()

    def _per_layout(self, values: list[int] | list[bool], otherwise: int) -> IntArray:
        return np.array([*values, otherwise], dtype=np.int64)[self._layout_of]

    def _is_device(self, name: str) -> bool:
        """Whether this is aligned for pods of every class (gpu:N-7)."""
        return name not in self._ignored and not is_guaranteed_only(name)

    def is_numa_relevant(self, shape: Shape) -> bool:
        """Whether zones make a difference to pods of this shape (gpu:N-14)."""
        relevant = self._relevant.get(shape)
        if relevant is None:
            numa_request = shape.numa
            relevant = numa_request is not None and (
                numa_request.guaranteed or any(name in self._devices for name, _ in numa_request.pod)
            )
            self._relevant.store(shape, relevant)
        return relevant

    def concerns(self, shape: Shape) -> bool:
        """Whether pods of this shape hold zones of some node."""
        return self._any_policy and self.is_numa_relevant(shape)

    def _plan(self, shape: Shape, number: int) -> _AlignmentPlan | None:
        """How a shape is aligned on nodes of a layout, None where it is not (gpu:N-7, N-8)."""
        key = (shape, number)
        plan = self._plans.get(key)
        if plan is None:
            numa_request = shape.numa
            assert numa_request is not None, "only shapes that zones concern have a plan"
            shared = (numa_request, number)
            plan = self._plans.get(shared)
            if plan is None:
                plan = self._plans.store(shared, (self._make_plan(numa_request, self._layouts[number]),))
            self._plans.store(key, plan)
        return plan[0]

    def _is_accounted(self, numa_request: NumaRequest | None, layout: ZoneLayout) -> bool:
        """Whether nodes of a layout align such pods (gpu:N-8)."""
        if numa_request is None or layout.policy is ZonePolicy.NONE:
            return False
        return numa_request.guaranteed or any(
            name in layout.resources and self._is_device(name) for name, _ in numa_request.pod
        )

    def _make_plan(self, numa_request: NumaRequest, layout: ZoneLayout) -> _AlignmentPlan | None:
        if not self._is_accounted(numa_request, layout):
            return None
        return _AlignmentPlan(
            numa_request, layout, (name for name in layout.resources if name not in self._ignored), self._index
        )

    def planes(self) -> _ZonePlanes:
        """The planes, made on first use from what was there when the cycle began."""
        if self._planes is None:
            shape = (len(self._layout_of), self._most_zones, len(self._index))
            offered = np.zeros(shape, dtype=np.int64)
            for number, layout in enumerate(self._layouts):
                rows = np.flatnonzero(self._layout_of == number)
                columns = np.array([self._index[name] for name in layout.resources], dtype=np.int64)
                grids = (
                    layout.allocatable
                    if self._reconstruct
                    else [self._zones_by_row[row].available for row in rows.tolist()]
                )
                offered[np.ix_(rows, np.arange(len(layout.zones)), columns)] = np.array(grids, dtype=np.int64)
            holders = [
                (task, row, allocation)
                for row in self._zones_by_row
                for task in self._snapshot.read_running().tasks_on.get(self._snapshot.nodes.names[row], {}).values()
                if task.numa_record and self.concerns(task.shape) and (allocation := self.held(task))
            ]
            if not self._reconstruct:
                for task, row, allocation in holders:
                    if task.status not in _NOT_ON_NODE_YET:
                        # The daemon on the node has subtracted it already.
                        self._add(offered, row, allocation, 1)
            self._planes = _ZonePlanes(offered, offered.copy(), offered.copy())
            for task, row, allocation in holders:
                self.hold(task, row, allocation, holding_of(task.status), 1)
        return self._planes

    def available(self, rows: Rows, *, idle: bool) -> IntArray:
        """[rows, zone, resource] what a pod that starts now, or a pipelined one, could get."""
        planes = self.planes()
        free: IntArray = planes.free[rows]
        return np.minimum(free, planes.idle[rows]) if idle else free

    def spans(self, shape: Shape, rows: Rows, *, idle: bool) -> IntArray:
        """[rows] zones a pod of a shape would span, at least 1, or INFEASIBLE or UNACCOUNTED."""
        layouts = self._layout_of[rows]
        spans = np.full(len(layouts), UNACCOUNTED, dtype=np.int64)
        left = self.available(rows, idle=idle)
        for number in np.unique(layouts).tolist():
            plan = self._plan(shape, number) if number >= 0 else None
            if plan is not None:
                chosen = layouts == number
                results = plan.align_all(self._plan_cells(left[chosen], number, plan))
                spans[chosen] = [answer.span for answer in results]
        return spans

    def _plan_cells(self, left: IntArray, number: int, plan: _AlignmentPlan) -> IntArray:
        cells: IntArray = left[:, : len(self._layouts[number].zones)][:, :, plan.columns]
        return cells

    def held(self, task: Task) -> ZoneAllocation | None:
        """What a pod holds by its record; nothing when it has none or names an unknown zone (gpu:N-15)."""
        row = self._snapshot.nodes.rows.get(task.node, -1)
        number = int(self._layout_of[row]) if row >= 0 else -1
        if number < 0 or not task.holds_node:
            return ()
        layout = self._layouts[number]
        if not self._is_accounted(task.shape.numa, layout):
            return ()
        record = dict(task.numa_record)
        if not record.keys() <= set(layout.zones):
            return ()
        parts = (
            (zone, tuple(part for part in record.get(name, ()) if part[0] in layout.resources))
            for zone, name in enumerate(layout.zones)
        )
        return tuple(part for part in parts if part[1])

    def grant(self, state: State, request: PlacementRequest, row: int, *, idle: bool) -> ZoneAllocation | None:
        """The zones a pod would get; an evicted pod keeps its own if it can (gpu:N-17)."""
        number = int(self._layout_of[row])
        plan = self._plan(request.shape, number) if number >= 0 else None
        if plan is None:
            return ()
        left = self.available(np.array([row]), idle=idle)
        evicted_from = state.evicted_from.get(request.task.key)
        if evicted_from is not None and evicted_from.row == row:
            for grant in evicted_from.grants:
                if grant.ledger is self and self._has_allocation(left[0], grant.allocation):
                    # A grant of this ledger holds what this ledger allocated.
                    return grant.allocation  # type: ignore[return-value]
        allocation = plan.align_all(self._plan_cells(left, number, plan))[0].allocation
        if allocation is None and not self.rejects_unaligned[row]:
            # It starts anyway, wherever the kubelet has room.
            return ()
        return allocation

    def _has_allocation(self, left: IntArray, allocation: Any) -> bool:
        return all(left[zone, self._index[name]] >= amount for zone, need in allocation for name, amount in need)

    def hold(self, task: Task, row: int, allocation: Any, holding: int, sign: int) -> None:
        """Record what a pod holds (sign 1) or remove it (-1)."""
        planes = self.planes()
        if holding != PIPELINED:
            self._add(planes.idle, row, allocation, -sign)
        if holding != RELEASING:
            self._add(planes.free, row, allocation, -sign)

    def _add(self, plane: IntArray, row: int, allocation: ZoneAllocation, sign: int) -> None:
        for zone, need in allocation:
            for name, amount in need:
                plane[row, zone, self._index[name]] += sign * amount

    def agrees(self, holders: Iterable[tuple[int, Any, int]]) -> bool:
        """Whether the planes are what the zones offer less what these hold: (row, allocation, holding)."""
        planes = self.planes()
        idle, free = planes.offered.copy(), planes.offered.copy()
        for row, allocation, holding in holders:
            if holding != PIPELINED:
                self._add(idle, row, allocation, -1)
            if holding != RELEASING:
                self._add(free, row, allocation, -1)
        return bool((idle == planes.idle).all() and (free == planes.free).all())

    def bind_fields(self, task: Task, row: int, allocation: object) -> dict[str, Any]:
        """The zones a pod is expected to get."""
        return {"numa_zones": self.predicted_zones(row, allocation)}

    def predicted_zones(self, row: int, allocation: Any) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
        """An allocation in a BindRequest: zone ids, amounts as quantities (gpu:N-18)."""
        zones = self._layouts[int(self._layout_of[row])].zones
        return tuple(
            (zones[zone], tuple((name, amount_text(name, amount)) for name, amount in need))
            for zone, need in allocation
        )
