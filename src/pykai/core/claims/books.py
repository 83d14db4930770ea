"""Devices as a cycle gives them out: which claim has which, and who uses the claim (gpu:D-8 to D-16).

A claim gets its devices with its first user and keeps them as long as it has one; users that come later share them, on
nodes from which the devices can be reached.  So devices are counted per claim, not per pod: live while one user is
live, leaving while all that is left of its users leaves, promised while it has no more than promises.

Extended resources that a device class stands behind are served either way: on a node that offers the resource itself by
its column, on any other by a claim made for the pod (gpu:D-14).  That claim, too, is booked before the binder creates
it, and is free again when the pod is a victim (gpu:D-8 and D-16, Do better).

What tasks held before the cycle is booked when the books are opened; devices of claims whose users nobody knows here
stay with them.  GPUs among the devices have a column of their own, which follows the books.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from pykai.api import names
from pykai.api.resource import AllocationResult
from pykai.api.scheduling import ExtendedResourceClaimAllocation
from pykai.core.axes import BoolArray, IntArray
from pykai.core.claims.allocator import Allocation, allocate, available, result_of
from pykai.core.claims.asks import ClaimAsk, Refusal
from pykai.core.claims.extended import CLAIM_NAME, ExtendedRequests, device_requests
from pykai.core.claims.feasible import fits
from pykai.core.claims.inventory import DeviceId, Inventory, is_gpu
from pykai.core.devices import LIVE, PIPELINED, RELEASING, holding_of
from pykai.core.place.constraints import some_term
from pykai.core.shapes import Shape
from pykai.core.snapshot import Snapshot
from pykai.core.state import State
from pykai.core.tasks import Task
from pykai.core.vectors import PLANES, charge_planes

#: Pods that may use one claim (gpu:D-9).
MOST_CONSUMERS = 256

Rows = slice | IntArray


class Held(NamedTuple):
    """A claim and the devices it has."""

    #: what the pod calls it, or `extended.CLAIM_NAME`
    name: str
    key: str
    allocation: Allocation


class Plain(NamedTuple):
    """An amount of a resource that the node offers itself."""

    axis: int
    amount: int


Content = tuple[Held | Plain, ...]


class _Claim:
    """A claim in use."""

    __slots__ = ("allocation", "before", "mask", "others", "users", "wire")

    def __init__(self) -> None:
        self.allocation: Allocation | None = None
        #: what the API server says it has, if that is how it was found
        self.wire: AllocationResult | None = None
        #: [node] from where its devices can be reached, None = from all
        self.mask: BoolArray | None = None
        #: the three above as the cycle began, for when everything is undone
        self.before: tuple[Allocation, AllocationResult, BoolArray | None] | None = None
        #: users by holding
        self.users = [0, 0, 0]
        #: uids that hold it and are no task of ours
        self.others: frozenset[str] = frozenset()

    @property
    def holdings(self) -> tuple[bool, bool, bool]:
        """How it holds its devices."""
        live = self.users[LIVE] > 0 or bool(self.others)
        return live, self.users[RELEASING] > 0, self.users[PIPELINED] > 0


def expected_plane(live: IntArray, releasing: IntArray, pipelined: IntArray) -> IntArray:
    """[plane, device] what devices held so do to the planes of their node (see `core/devices.py`)."""
    idle = -((live > 0) | (releasing > 0)).astype(np.int64)
    released = np.where(live > 0, 0, (releasing > 0).astype(np.int64) - (pipelined > 0))
    used = ((live > 0) | (releasing > 0) | (pipelined > 0)).astype(np.int64)
    return np.stack([idle, released, idle + released, used])


class ClaimBooks:
    """The claims of one cycle."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._index = snapshot.claims
        self.inventory: Inventory = snapshot.claims.inventory(snapshot.nodes)
        size = len(self.inventory)
        #: [holding, device] claims that hold it so
        self._held: IntArray = np.zeros((3, size), dtype=np.int64)
        #: [device] not to be given to a pod that starts now, and not to be promised
        self._busy: BoolArray = np.zeros(size, dtype=np.bool_)
        self._promised: BoolArray = np.zeros(size, dtype=np.bool_)
        self._claims: dict[str, _Claim] = {}
        self._axis = snapshot.axes.index.get(names.DRA_GPU)
        #: [device] counts in the column of GPUs
        self._gpus: BoolArray = np.array([is_gpu(device.driver) for device in self.inventory.ids], dtype=np.bool_)
        self._gpus &= self.inventory.row >= 0
        self._extended: dict[tuple[int, tuple[str, ...]], tuple[ExtendedRequests, ClaimAsk | Refusal]] = {}
        self._open()

    # -- what there was before the cycle ----------------------------------------------------------------------------

    def _open(self) -> None:
        """Book what tasks hold, in bulk: a large cluster has tens of thousands of claims."""
        rows = self._snapshot.nodes.rows
        tasks = self._snapshot.tasks_with_claims
        uids = {task.uid for task in tasks.values()}
        for key, claim in self._index.claims.items():
            status = claim.status
            if status.allocation is not None or status.reserved_for:
                found = self._claims[key] = _Claim()
                found.others = frozenset(user.uid for user in status.reserved_for if user.uid not in uids)
                if status.allocation is not None:
                    self._read(found, status.allocation)
        for task in tasks.values():
            if task.holds_node and task.node in rows:
                self._open_task(task, rows[task.node])
        held: tuple[list[int], list[int], list[int]] = ([], [], [])
        for key, found in self._claims.items():
            if found.allocation is None:
                continue
            if not any(found.users) and not found.others:
                # It has devices and nobody uses it: they stay with it until somebody takes them back.
                found.others = frozenset((key,))
            for holding, holds in enumerate(found.holdings):
                if holds:
                    held[holding].extend(found.allocation.takes)
        for holding, devices in enumerate(held):
            np.add.at(self._held[holding], np.array(devices, dtype=np.int64), 1)
        self._mark(np.arange(len(self.inventory)))
        gpus = np.flatnonzero(self._gpus)
        self._charge_gpus(gpus, expected_plane(*self._held[:, gpus]))

    def _open_task(self, task: Task, row: int) -> None:
        holding = holding_of(task.status)
        written = dict(task.claim_allocations)
        names_and_keys = [(claim.name, key) for claim, key in zip(task.shape.claims, task.claim_keys, strict=True)]
        if task.shape.extended is not None:
            if self._served(task.shape, row):
                names_and_keys.append((CLAIM_NAME, task.extended_key or _synthetic_key(task)))
            for axis, amount in self._plain(task.shape, row):
                self._snapshot.columns[:, axis, row] += charge_planes(np.array([amount]), holding)[:, 0]
        for name, key in names_and_keys:
            found = self._claims.get(key)
            if found is None:
                if not key:
                    continue
                found = self._claims[key] = _Claim()
            if name in written and found.wire is None:
                # The binder has not written it into the claim yet (gpu:D-8).
                self._read(found, written[name])
            if found.allocation is not None:
                found.users[holding] += 1

    def _read(self, claim: _Claim, wire: AllocationResult) -> None:
        index = self.inventory.index
        takes = []
        for result in wire.devices.results:
            device = index.get(DeviceId(result.driver, result.pool, result.device))
            if device is not None and not result.admin_access:
                takes.append(device)
        claim.allocation = Allocation((), tuple(takes))
        claim.wire = wire
        self._locate(claim, wire)
        claim.before = (claim.allocation, claim.wire, claim.mask)

    def _locate(self, claim: _Claim, wire: AllocationResult) -> None:
        selector = wire.node_selector
        claim.mask = None if selector is None else some_term(self._snapshot.nodes, selector.node_selector_terms)

    # -- the books --------------------------------------------------------------------------------------------------

    def concerns(self, shape: Shape) -> bool:
        """Whether tasks of this shape use claims."""
        return bool(shape.claims) or shape.extended is not None

    def held(self, task: Task) -> object | None:
        """The claims and devices of a task since before the cycle."""
        row = self._snapshot.nodes.rows.get(task.node)
        if row is None or not task.holds_node:
            return None
        content: list[Held | Plain] = []
        for claim, key in zip(task.shape.claims, task.claim_keys, strict=True):
            content += self._held_before(claim.name, key)
        if task.shape.extended is not None:
            if self._served(task.shape, row):
                content += self._held_before(CLAIM_NAME, task.extended_key or _synthetic_key(task))
            content += self._plain(task.shape, row)
        return tuple(content)

    def _held_before(self, name: str, key: str) -> list[Held]:
        claim = self._claims.get(key)
        return [] if claim is None or claim.before is None else [Held(name, key, claim.before[0])]

    def hold(self, task: Task, row: int, content: object, holding: int, sign: int) -> None:
        """Count a task among the users of its claims, or no longer."""
        for entry in _entries(content):
            if isinstance(entry, Plain):
                planes = charge_planes(np.array([entry.amount]), holding)[:, 0]
                self._snapshot.columns[:, entry.axis, row] += sign * planes
                continue
            claim = self._claims.setdefault(entry.key, _Claim())
            before = claim.holdings
            claim.users[holding] += sign
            if claim.allocation is None and claim.before is not None and claim.before[0] == entry.allocation:
                claim.allocation, claim.wire, claim.mask = claim.before
            elif claim.allocation is None:
                claim.allocation = entry.allocation
                self._locate_fresh(claim, task, row, entry)
            self._switch(claim, before, claim.holdings)
            if not any(claim.holdings):
                # Without users it gives its devices back (gpu:D-11).
                claim.allocation, claim.wire, claim.mask = None, None, None

    def _locate_fresh(self, claim: _Claim, task: Task, row: int, entry: Held) -> None:
        ask = self._ask_of(task.shape, row, entry.name)
        if ask is not None and entry.allocation.requests:
            self._locate(claim, result_of(self.inventory, row, ask, entry.allocation))
        elif self.inventory.row[list(entry.allocation.takes)].max(initial=-1) >= 0:
            claim.mask = np.arange(len(self._snapshot.nodes)) == row

    def _switch(self, claim: _Claim, before: tuple[bool, bool, bool], after: tuple[bool, bool, bool]) -> None:
        if before == after or claim.allocation is None:
            return
        devices = list(claim.allocation.takes)
        if not devices:
            return
        gpus = np.array([device for device in devices if self._gpus[device]], dtype=np.int64)
        was = expected_plane(*self._held[:, gpus])
        self._held[:, devices] += (np.array(after, dtype=np.int64) - np.array(before))[:, np.newaxis]
        self._mark(np.array(devices, dtype=np.int64))
        self._charge_gpus(gpus, expected_plane(*self._held[:, gpus]) - was)

    def _mark(self, devices: IntArray) -> None:
        live, releasing, pipelined = self._held[:, devices] > 0
        self._promised[devices] = live | pipelined
        self._busy[devices] = live | pipelined | releasing

    def _charge_gpus(self, devices: IntArray, change: IntArray) -> None:
        """The column of GPUs follows: [plane, device] by how much."""
        if self._axis is not None and len(devices):
            rows = self.inventory.row[devices]
            for plane in range(PLANES):
                np.add.at(self._snapshot.columns[plane, self._axis], rows, change[plane])

    # -- what a task would get --------------------------------------------------------------------------------------

    def grant(self, state: State, ask: Any, row: int, *, idle: bool) -> object | None:
        """Devices for the claims of a task on a node, those it has there already if it may stay."""
        task, shape = ask.task, ask.shape
        taken = self._busy if idle else self._promised
        leaving = state.leaving.get(task.key)
        if leaving is not None and leaving.row == row:
            own = next((grant.content for grant in leaving.grants if grant.book is self), None)
            if own is not None and self._still_there(own, taken):
                return own
        content: list[Held | Plain] = []
        fresh: list[tuple[str, str, ClaimAsk]] = []
        again = "#again" if leaving is not None else ""
        for claim, own_key in zip(shape.claims, _own_keys(task), strict=True):
            # A pod that comes back has new claims from its templates; one it names itself is the same.
            key = own_key if claim.key else own_key + again
            known = self._claims.get(key) if claim.key else None
            if known is not None and known.allocation is not None:
                if known.mask is not None and not known.mask[row]:
                    return None
                content.append(Held(claim.name, key, known.allocation))
            elif claim.ask is None:
                return None
            else:
                fresh.append((claim.name, key, claim.ask))
        plain = self._plain(shape, row)
        for axis, amount in plain:
            if state.free[axis, row] < amount or (idle and state.idle[axis, row] < amount):
                return None
        extended = self._extended_ask(shape, row)
        if isinstance(extended, Refusal):
            return None
        if extended is not None:
            fresh.append((CLAIM_NAME, _synthetic_key(task) + again, extended))
        if fresh:
            found = allocate(self.inventory, row, [each for _, _, each in fresh], taken)
            if isinstance(found, Refusal):
                return None
            content += [Held(name, key, given) for (name, key, _), given in zip(fresh, found, strict=True)]
        return (*content, *plain)

    def _still_there(self, content: object, taken: BoolArray) -> bool:
        """Whether nobody else has or was promised the devices a task is leaving."""
        for entry in _entries(content):
            if isinstance(entry, Plain):
                return False
            claim = self._claims.get(entry.key)
            if claim is not None and claim.allocation is not None and (claim.users[LIVE] or claim.users[PIPELINED]):
                # A claim that others use on: they share it anyway.
                continue
            devices = list(entry.allocation.takes)
            others = taken.copy()
            others[devices] = self._promised[devices]
            if not available(self.inventory, devices, others):
                return False
        return True

    def loose(self, shape: Shape) -> bool:
        """Whether what is given on one node may change what another can give."""
        return any(claim.key for claim in shape.claims) or bool((self.inventory.row < 0).any())

    def codes(self, state: State, shape: Shape, rows: Rows, *, idle: bool = False) -> IntArray:
        """[rows] 0 where all claims can be satisfied, else why not: see the codes below."""
        taken = self._busy if idle else self._promised
        numbers: IntArray = np.arange(len(self._snapshot.nodes))[rows]
        codes: IntArray = np.zeros(len(numbers), dtype=np.int64)
        fresh: list[ClaimAsk] = []
        gpus = 0
        for claim in shape.claims:
            known = self._claims.get(claim.key) if claim.key else None
            if known is not None and known.allocation is not None:
                if known.mask is not None:
                    codes[(codes == 0) & ~known.mask[numbers]] = ELSEWHERE
            elif claim.ask is None:
                codes[:] = NO_DEVICES
            else:
                fresh.append(claim.ask)
                gpus += claim.gpus
        plane = state.idle if idle else state.free
        if gpus and self._axis is not None:
            offered = self._snapshot.allocatable[self._axis, numbers] > 0
            codes[(codes == 0) & offered & (plane[self._axis, numbers] < gpus)] = NO_GPUS
        for served, inside in self._by_service(shape, numbers):
            ask = self._extended_by(shape, served)[1] if served else None
            if isinstance(ask, Refusal):
                codes[inside & (codes == 0)] = NO_DEVICES
                continue
            for name, amount in shape.backed:
                if name not in served:
                    axis = self._snapshot.axes.index[name]
                    short = plane[axis, numbers] < amount
                    codes[inside & (codes == 0) & short] = NO_GPUS if name.endswith("/gpu") else NO_DEVICES
            wanted = [*fresh, ask] if ask is not None else fresh
            left = np.flatnonzero(inside & (codes == 0))
            if wanted and len(left):
                found = fits(self.inventory, wanted, taken, numbers[left])
                codes[left[~found]] = NO_DEVICES
        return codes

    def failure_at(self, shape: Shape, row: int) -> str:
        """Why the allocator gives up on a node, "" when there is no more to say than that it does."""
        asks = [claim.ask for claim in shape.claims if claim.ask is not None]
        extended = self._extended_ask(shape, row)
        if isinstance(extended, Refusal):
            return extended.text
        for ask in [*asks, *([extended] if extended is not None else [])]:
            for way in ask.alternatives():
                failures = self.inventory.selection(way.selectors).failures
                for device in self.inventory.at(row).tolist() if failures else ():
                    if device in failures:
                        return failures[device]
        broken = [str(pool) for pool in self.inventory.broken_at(row)]
        return broken[0] if broken else ""

    def full(self, shape: Shape, task: Task) -> str | None:
        """The shared claim that has too many users for one more (gpu:D-9)."""
        for claim in shape.claims:
            known = self._claims.get(claim.key) if claim.key else None
            if known is None or task.uid in known.others:
                continue
            reserved = self._index.claims[claim.key].status.reserved_for if claim.key in self._index.claims else []
            waiting = {user.uid for user in reserved} - known.others
            users = len(known.others) + known.users[LIVE] + known.users[PIPELINED]
            if task.uid not in waiting and users >= MOST_CONSUMERS:
                return claim.key
        return None

    # -- extended resources -----------------------------------------------------------------------------------------

    def _served(self, shape: Shape, row: int) -> tuple[str, ...]:
        """Resources that a node serves by claims: it offers none of them itself (gpu:D-14)."""
        index, allocatable = self._snapshot.axes.index, self._snapshot.allocatable
        return tuple(name for name, _ in shape.backed if name not in index or allocatable[index[name], row] <= 0)

    def _by_service(self, shape: Shape, numbers: IntArray) -> Iterator[tuple[tuple[str, ...], BoolArray]]:
        """Which resources are served by claims, and [rows] where that is so."""
        if shape.extended is None:
            yield (), np.ones(len(numbers), dtype=np.bool_)
            return
        index, allocatable = self._snapshot.axes.index, self._snapshot.allocatable
        codes: IntArray = np.zeros(len(numbers), dtype=np.int64)
        for bit, (name, _) in enumerate(shape.backed):
            offered = allocatable[index[name], numbers] > 0 if name in index else np.zeros(len(numbers), dtype=np.bool_)
            codes |= np.where(offered, 0, 1 << bit)
        for code in np.unique(codes).tolist():
            served = tuple(name for bit, (name, _) in enumerate(shape.backed) if code >> bit & 1)
            yield served, codes == code

    def _plain(self, shape: Shape, row: int) -> list[Plain]:
        if not shape.backed:
            return []
        served = self._served(shape, row)
        index = self._snapshot.axes.index
        return [Plain(index[name], amount) for name, amount in shape.backed if name not in served]

    def _extended_ask(self, shape: Shape, row: int) -> ClaimAsk | Refusal | None:
        served = self._served(shape, row) if shape.extended is not None else ()
        return self._extended_by(shape, served)[1] if served else None

    def _extended_by(self, shape: Shape, served: tuple[str, ...]) -> tuple[ExtendedRequests, ClaimAsk | Refusal]:
        found = self._extended.get((shape.id, served))
        if found is None:
            assert shape.extended is not None
            requests = device_requests(shape.extended, self._index.backing, served)
            ask = ClaimAsk.of(requests.spec(), self._index.classes, CLAIM_NAME)
            found = self._extended[shape.id, served] = (requests, ask)
        return found

    def _ask_of(self, shape: Shape, row: int, name: str) -> ClaimAsk | None:
        if name == CLAIM_NAME:
            found = self._extended_ask(shape, row)
            return None if isinstance(found, Refusal) else found
        return next((claim.ask for claim in shape.claims if claim.name == name), None)

    # -- decisions --------------------------------------------------------------------------------------------------

    def written(self, task: Task, row: int, content: object) -> tuple[tuple[str, AllocationResult], ...]:
        """What a BindRequest says of the claims of a pod (gpu:7)."""
        return tuple(
            (entry.name, self._wire(task, row, entry))
            for entry in _entries(content)
            if isinstance(entry, Held) and entry.name != CLAIM_NAME
        )

    def _wire(self, task: Task, row: int, entry: Held) -> AllocationResult:
        claim = self._claims[entry.key]
        if claim.wire is not None:
            return claim.wire
        ask = self._ask_of(task.shape, row, entry.name)
        assert ask is not None, "what was given was asked for"
        return result_of(self.inventory, row, ask, entry.allocation)

    def written_extended(self, task: Task, row: int, content: object) -> ExtendedResourceClaimAllocation | None:
        """The same for the claim behind its extended resources."""
        for entry in _entries(content):
            if isinstance(entry, Held) and entry.name == CLAIM_NAME:
                requests = self._extended_by(task.shape, self._served(task.shape, row))[0]
                return ExtendedResourceClaimAllocation(
                    allocation=self._wire(task, row, entry),
                    device_requests=list(requests.requests),
                    container_mappings=list(requests.mappings),
                )
        return None

    # -- validation -------------------------------------------------------------------------------------------------

    def agrees(self, held: Iterable[tuple[int, object, int]]) -> bool:
        """Whether the books are what these tasks hold."""
        return self._recount(held)[0]

    def charged(self, held: Iterable[tuple[int, object, int]]) -> IntArray:
        """[plane, axis, node] what these tasks do to the columns through the books."""
        return self._recount(held)[1]

    def _recount(self, held: Iterable[tuple[int, object, int]]) -> tuple[bool, IntArray]:
        columns = np.zeros_like(self._snapshot.columns)
        users: dict[str, list[int]] = {}
        for row, content, holding in held:
            for entry in _entries(content):
                if isinstance(entry, Plain):
                    columns[:, entry.axis, row] += charge_planes(np.array([entry.amount]), holding)[:, 0]
                else:
                    users.setdefault(entry.key, [0, 0, 0])[holding] += 1
        counts = np.zeros_like(self._held)
        same = True
        for key, claim in self._claims.items():
            same &= users.get(key, [0, 0, 0]) == claim.users
            if claim.allocation is not None and claim.allocation.takes:
                counts[:, list(claim.allocation.takes)] += np.array(claim.holdings, dtype=np.int64)[:, np.newaxis]
        same &= bool((counts == self._held).all()) and users.keys() <= self._claims.keys()
        # A device has one claim at a time; a second one only may wait for it to be free.
        same &= bool((counts[LIVE] + counts[PIPELINED] <= 1).all())
        if self._axis is not None:
            gpus = np.flatnonzero(self._gpus)
            planes = expected_plane(*counts[:, gpus])
            for plane in range(PLANES):
                np.add.at(columns[plane, self._axis], self.inventory.row[gpus], planes[plane])
        return same, columns


#: Why claims do not fit a node.
NO_GPUS, ELSEWHERE, NO_DEVICES = 1, 2, 3


def _entries(content: object) -> Content:
    assert isinstance(content, tuple)
    return content


def _own_keys(task: Task) -> tuple[str, ...]:
    """The claims of a task; one whose claim does not exist yet is known by its own name."""
    return tuple(key or f"{task.key}#{number}" for number, key in enumerate(task.claim_keys))


def _synthetic_key(task: Task) -> str:
    return f"{task.key}#{CLAIM_NAME}"
