"""The ledger of volumes: which waiting claim gets which volume, and what is left.

`VolumeLedger` serves waiting claims: volumes chosen, capacity spent on new ones, the choice made for a claim that
several pods share (the others follow it).  It starts with pods that have a node while their claims still wait: they
get volumes by the same rules, oldest first, so that nothing is given twice.  The binder chooses by
the same rules too; the smallest volume that fits, then the first name, is the same choice on both sides.

Every share is counted by how it is held.  Terminating pods still count against what is *idle*, not against what is
*free*; capacity that returns when a pod goes with its own claims is free, not idle (cycle:NOD-7).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np

from pykai.core.caching import Cache
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cluster.storage import CapacityPool, VolumeFacts
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.ledgers.volumes.candidates import ClassSupply, VolumeCandidates, accessible_rows
from pykai.core.ledgers.volumes.sharecounts import count_shares, held_planes, tasks_on_nodes
from pykai.core.model.axes import IntArray, Rows, row_numbers
from pykai.core.model.shapes import Shape
from pykai.core.model.sharedgpus import holding_of
from pykai.core.model.tasks import Task, by_age
from pykai.core.model.volumerequests import VolumeRequest

#: Codes of a node that cannot serve waiting claims.
NO_VOLUME, NO_ROOM = 1, 2

#: Up to this many rows are evaluated one by one.
_FEW_ROWS = 64

#: Columns kept at a time.
_MAX_COLUMNS = 512


class VolumeShare(NamedTuple):
    """What a claim is given."""

    #: key of a claim that several pods share, else the task and the number of its claim
    owner: str
    storage_class: str
    #: the volume chosen, "" when one is provisioned
    volume: str = ""
    #: the capacity pool of a new volume, "" when capacity is not tracked
    pool: str = ""
    size: int = 0
    #: node for which it is provisioned, -1 for an existing volume
    row: int = -1
    #: freed when the pod goes, rather than taken
    freed_on_exit: bool = False


class _VolumePlan(NamedTuple):
    """What is the same for all tasks of a shape."""

    #: number of the claim and its request, smallest first
    waiting: tuple[tuple[int, VolumeRequest], ...]
    ephemeral: tuple[tuple[int, VolumeRequest], ...]
    candidates: dict[int, VolumeCandidates]
    classes: tuple[str, ...]
    #: [node] nodes of a kind reach the same storage; -1 for nodes with storage of their own
    node_kinds: IntArray
    #: a node of each kind
    samples: tuple[int, ...]
    single_nodes: tuple[int, ...]


class VolumeLedger:
    """Volumes and capacity given to waiting claims."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = snapshot.nodes
        self._storage = snapshot.storage
        self._concerned: Cache[int, bool] = Cache()
        #: opened once: opening one counts what is being provisioned
        self._supplies: dict[str, ClassSupply] = {}
        self._plans: Cache[int, _VolumePlan] = Cache()
        self._candidates: Cache[VolumeRequest, VolumeCandidates] = Cache()
        #: capacity of claims whose volumes were being provisioned before the cycle
        self._provisioning: dict[str, int] = {}
        #: share -> how many hold it live, releasing, pipelined
        self._counts: dict[VolumeShare, list[int]] = {}
        #: volume -> shares of it that are held, and that pods which do not terminate hold
        self._taken: dict[str, list[int]] = {}
        #: pool -> bytes spent of what is idle and of what is free
        self._spent: dict[str, list[int]] = {}
        #: shared claim -> what was chosen for it
        self._decided: dict[str, dict[VolumeShare, None]] = {}
        #: class -> what is taken of storage that several nodes reach
        self._multi_node_use: dict[str, dict[str, int]] = {}
        #: rows where something changed, undo included
        self._changed_rows: list[int] = []
        #: codes of all nodes by shape and key, and how many changed rows they include
        self._columns: Cache[Hashable, tuple[IntArray, int]] = Cache(_MAX_COLUMNS)
        self._held: dict[str, tuple[VolumeShare, ...]] = {}
        #: whether any pod has a claim to which this matters
        self.active = any(self.concerns(task.shape) for task in snapshot.tasks_with_volumes.values())
        for task in sorted(tasks_on_nodes(snapshot, self.concerns), key=by_age):
            row = self._nodes.rows[task.node]
            chosen = self._choose(task.shape, task.key, row, idle=False)
            allocation = chosen if isinstance(chosen, tuple) else ()
            self._held[task.key] = allocation
            self.hold(task, row, allocation, holding_of(task.status), 1)

    def concerns(self, shape: Shape) -> bool:
        """Whether the choice of a node decides about some claim, or capacity returns with the pod."""
        concerned = self._concerned.get(shape.id)
        if concerned is None:
            concerned = self._concerned.store(
                shape.id, any(volume_request.waiting or volume_request.is_ephemeral for volume_request in shape.volumes)
            )
        return concerned

    def held(self, task: Task) -> object | None:
        """What a task holds since before the cycle."""
        return self._held.get(task.key)

    def grant(self, state: State, request: PlacementRequest, row: int, *, idle: bool) -> object | None:
        """Volumes and capacity for all waiting claims of a task; an evicted task keeps its own if it can."""
        evicted_from = state.evicted_from.get(request.task.key)
        if evicted_from is not None and evicted_from.row == row:
            held_allocation = next((grant.allocation for grant in evicted_from.grants if grant.ledger is self), None)
            if isinstance(held_allocation, tuple) and self._still_available(held_allocation):
                return held_allocation
        chosen = self._choose(request.shape, request.task.key, row, idle=idle)
        return chosen if isinstance(chosen, tuple) else None

    def hold(self, task: Task, row: int, allocation: object, holding: int, sign: int) -> None:
        """Record shares (sign 1) or remove them (-1)."""
        assert isinstance(allocation, tuple)
        for share in allocation:
            counts = self._counts.setdefault(share, [0, 0, 0])
            before = held_planes(counts)
            counts[holding] += sign
            after = held_planes(counts)
            if not any(counts):
                del self._counts[share]
            if before != after:
                self._changed_rows.append(row)
                self._update_sums(share, [new - old for old, new in zip(before, after, strict=True)])

    def state_key(self, request: PlacementRequest) -> Hashable:
        """What decides besides the shape and the row: what is left of storage that several nodes reach."""
        if not self.concerns(request.shape):
            return None
        plan = self._plan(request.shape)
        left = tuple(tuple(sorted(self._multi_node_use.get(name, {}).items())) for name in plan.classes)
        return (
            left,
            *(self._decision(volume_request) for _, volume_request in plan.waiting if volume_request.shared_key),
        )

    def refusal_codes(self, state: State, request: PlacementRequest, rows: Rows) -> IntArray:
        """[rows] 0 where what is free serves the claims, else NO_VOLUME or NO_ROOM."""
        shape = request.shape
        numbers, plan = row_numbers(rows, len(self._nodes)), self._plan(shape)
        if len(numbers) <= _FEW_ROWS or len(numbers) < len(plan.single_nodes):
            return np.array([self._code(shape, row) for row in numbers], dtype=np.int64)
        column_key = (shape.id, self.state_key(request))
        codes, seen = self._columns.get(column_key, (None, 0))
        if codes is None:
            codes = self._codes(shape, plan)
        else:
            for row in set(self._changed_rows[seen:]):
                codes[row] = self._code(shape, row)
        self._columns.store(column_key, (codes, len(self._changed_rows)))
        return codes[rows].copy()

    def _codes(self, shape: Shape, plan: _VolumePlan) -> IntArray:
        """[node] a code for every node, evaluated once for each kind of node and each node with storage of its own."""
        codes = np.full(len(self._nodes), NO_VOLUME, dtype=np.int64)
        decisions = [self._decision(volume_request) for _, volume_request in plan.waiting]
        decided = {share.row for share in decisions if share is not None and not share.volume}
        if decided:
            # A claim whose volume is being provisioned for one node keeps its pods there.
            for row in decided:
                codes[row] = self._code(shape, row)
            return codes
        by_kind = np.array([self._code(shape, row) for row in plan.samples], dtype=np.int64)
        if len(by_kind):
            codes = np.where(plan.node_kinds >= 0, by_kind[plan.node_kinds], NO_VOLUME)
        for row in plan.single_nodes:
            codes[row] = self._code(shape, row)
        return codes

    def agrees(self, held: Iterable[tuple[int, object, int]]) -> bool:
        """Whether the ledger equals what these tasks hold."""
        return count_shares(held) == self._counts

    def as_comparable(self) -> dict[str, object]:
        """All figures, for comparison."""
        return {
            "shares": {share: tuple(counts) for share, counts in self._counts.items()},
            "taken": {name: tuple(counts) for name, counts in self._taken.items()},
            "spent": {name: tuple(amounts) for name, amounts in self._spent.items()},
            "decided": {claim: frozenset(shares) for claim, shares in self._decided.items()},
            "wide": {name: dict(things) for name, things in self._multi_node_use.items()},
        }

    def _code(self, shape: Shape, row: int) -> int:
        chosen = self._choose(shape, "", row, idle=False)
        return chosen if isinstance(chosen, int) else 0

    def _choose(self, shape: Shape, task_key: str, row: int, *, idle: bool) -> tuple[VolumeShare, ...] | int:
        """Existing volumes first, smallest claims first; other claims are provisioned (as VolumeBinding does)."""
        plan = self._plan(shape)
        shares = self._ephemeral_shares(plan, task_key, row) if plan.ephemeral else []
        if shares and not self._still_available(tuple(shares)):
            return NO_ROOM
        chosen: set[str] = set()
        to_provision: list[tuple[str, VolumeRequest]] = []
        for number, volume_request in plan.waiting:
            owner = volume_request.shared_key or f"{task_key}#{number}"
            decision = self._decision(volume_request)
            # A volume that only terminating pods hold may have gone to an earlier claim of this pod.
            if decision is not None and decision.volume not in chosen:
                if not self._is_usable(decision, row):
                    return NO_VOLUME
                shares.append(decision)
                if decision.volume:
                    chosen.add(decision.volume)
                continue
            if volume_request.selected_node:
                # It is being provisioned; if that fails, the driver removes the selected node.
                if self._nodes.names[row] != volume_request.selected_node:
                    return NO_VOLUME
                continue
            volume = self._volume(plan.candidates[number], row, chosen, idle)
            if volume is None:
                to_provision.append((owner, volume_request))
            else:
                chosen.add(volume.name)
                shares.append(VolumeShare(owner, volume.storage_class, volume=volume.name))
        spent = self._regained(shares) if to_provision else {}
        for owner, volume_request in to_provision:
            supply = self._supply(volume_request.storage_class)
            if not supply.provisionable[row]:
                return NO_VOLUME
            if not supply.tracks_capacity:
                if volume_request.shared_key:
                    shares.append(VolumeShare(owner, volume_request.storage_class, row=row))
                continue
            pool = self._pool(supply, volume_request.size, row, spent, idle)
            if pool is None:
                return NO_ROOM
            spent[pool.name] = spent.get(pool.name, 0) + volume_request.size
            shares.append(
                VolumeShare(owner, volume_request.storage_class, pool=pool.name, size=volume_request.size, row=row)
            )
        return tuple(shares)

    def _ephemeral_shares(self, plan: _VolumePlan, task_key: str, row: int) -> list[VolumeShare]:
        shares: list[VolumeShare] = []
        for number, volume_request in plan.ephemeral:
            supply = self._supply(volume_request.storage_class)
            pools = sorted(supply.pools.at(row)) if supply.tracks_capacity else []
            if pools:
                owner = f"{task_key}#{number}"
                shares.append(
                    VolumeShare(
                        owner,
                        volume_request.storage_class,
                        pool=pools[0].name,
                        size=volume_request.size,
                        row=row,
                        freed_on_exit=True,
                    )
                )
        return shares

    def _volume(self, candidates: VolumeCandidates, row: int, chosen: set[str], idle: bool) -> VolumeFacts | None:
        for volume in candidates.at(row):
            anyone, others = self._taken.get(volume.name, (0, 0))
            if volume.name not in chosen and not (anyone if idle else others):
                return volume
        return None

    def _pool(self, supply: ClassSupply, size: int, row: int, spent: dict[str, int], idle: bool) -> CapacityPool | None:
        for pool in sorted(supply.pools.at(row)):
            if size <= pool.max_volume_bytes and spent.get(pool.name, 0) + size <= self._room(pool, idle):
                return pool
        return None

    def _room(self, pool: CapacityPool, idle: bool) -> int:
        of_idle, of_free = self._spent.get(pool.name, (0, 0))
        # Pipelined pods count as well, so that a pod that starts now does not take their capacity.
        return pool.free_bytes - self._provisioning.get(pool.name, 0) - (max(of_idle, of_free) if idle else of_free)

    def _decision(self, volume_request: VolumeRequest) -> VolumeShare | None:
        """What was chosen for a claim that several pods share; a choice of terminating pods counts while it lasts."""
        shares = self._decided.get(volume_request.shared_key) if volume_request.shared_key else None
        return min((share for share in shares if self._still_available((share,))), default=None) if shares else None

    def _is_usable(self, share: VolumeShare, row: int) -> bool:
        if not share.volume:
            return share.row == row
        return bool(np.isin(row, accessible_rows(self._nodes, self._storage.volumes[share.volume].accessible_from)))

    def _still_available(self, shares: tuple[VolumeShare, ...]) -> bool:
        """Whether evicted holders of these shares can keep them."""
        for share in shares:
            taken = share.volume and self._taken.get(share.volume, (0, 0))[1]
            if taken and not self._planes_of(share)[2]:
                return False
        pools = {share.pool: self._storage.pools[share.storage_class][share.pool] for share in shares if share.pool}
        regained = self._regained(shares)
        return all(amount <= self._room(pools[name], idle=False) for name, amount in regained.items())

    def _regained(self, shares: Iterable[VolumeShare]) -> dict[str, int]:
        """Pool -> bytes that are free now and would not be if the evicted holders of these shares stayed."""
        spent: dict[str, int] = {}
        for share in shares:
            _, _, free, given_up = self._planes_of(share)
            if share.pool and (given_up if share.freed_on_exit else not free):
                spent[share.pool] = spent.get(share.pool, 0) + share.size
        return spent

    def _planes_of(self, share: VolumeShare) -> tuple[bool, bool, bool, bool]:
        return held_planes(self._counts.get(share, [0, 0, 0]))

    def _supply(self, storage_class: str) -> ClassSupply:
        supply = self._supplies.get(storage_class)
        if supply is None:
            supply = self._supplies[storage_class] = ClassSupply(self._nodes, self._storage, storage_class)
            for provisioning in (
                self._storage.provisioning.get(storage_class, {}).values() if supply.tracks_capacity else ()
            ):
                row = self._nodes.rows.get(provisioning.node)
                pools = (
                    [] if row is None else [p for p in supply.pools.at(row) if provisioning.size <= p.max_volume_bytes]
                )
                if pools:
                    pool = min(pools)
                    self._provisioning[pool.name] = self._provisioning.get(pool.name, 0) + provisioning.size
        return supply

    def _plan(self, shape: Shape) -> _VolumePlan:
        plan = self._plans.get(shape.id)
        if plan is None:
            plan = self._plans.store(shape.id, self._make_plan(shape))
        return plan

    def _make_plan(self, shape: Shape) -> _VolumePlan:
        numbered = list(enumerate(shape.volumes))
        waiting = sorted((item for item in numbered if item[1].waiting), key=lambda item: (item[1].size, item[0]))
        ephemeral = [item for item in numbered if item[1].is_ephemeral and item[1].bound]
        candidates = {number: self._candidates_for(volume_request) for number, volume_request in waiting}
        supplies = [self._supply(volume_request.storage_class) for _, volume_request in waiting]
        reach_masks = [supply.provisionable for supply in supplies]
        reach_masks += [mask for supply in supplies for mask, _ in supply.pools.multi_node]
        reach_masks += [mask for volumes in candidates.values() for mask, _ in volumes.located.multi_node]
        single_nodes = {row for supply in supplies for row in supply.pools.single_node}
        single_nodes.update(row for volumes in candidates.values() for row in volumes.located.single_node)
        single_nodes.update(self._nodes.rows.get(volume_request.selected_node, -1) for _, volume_request in waiting)
        single_nodes.discard(-1)
        masks_by_row: list[list[int]] = [[] for _ in range(len(self._nodes))]
        for number, mask in enumerate(reach_masks):
            for row in np.flatnonzero(mask).tolist():
                masks_by_row[row].append(number)
        kind_numbers: dict[tuple[int, ...], int] = {}
        samples: list[int] = []
        node_kinds = np.full(len(self._nodes), -1, dtype=np.int64)
        for row, storage in enumerate(masks_by_row):
            if row not in single_nodes:
                kind = node_kinds[row] = kind_numbers.setdefault(tuple(storage), len(kind_numbers))
                if kind == len(samples):
                    samples.append(row)
        classes = tuple(sorted({volume_request.storage_class for _, volume_request in (*waiting, *ephemeral)}))
        return _VolumePlan(
            tuple(waiting),
            tuple(ephemeral),
            candidates,
            classes,
            node_kinds,
            tuple(samples),
            tuple(sorted(single_nodes)),
        )

    def _candidates_for(self, volume_request: VolumeRequest) -> VolumeCandidates:
        candidates = self._candidates.get(volume_request)
        if candidates is None:
            candidates = VolumeCandidates(self._nodes, self._storage, volume_request)
            self._candidates.store(volume_request, candidates)
        return candidates

    def _update_sums(self, share: VolumeShare, change: list[int]) -> None:
        """Apply a change of (anyone, idle, free, given back) to the sums."""
        anyone, of_idle, of_free, back = change
        if share.owner and anyone and "#" not in share.owner:
            shares = self._decided.setdefault(share.owner, {})
            if anyone > 0:
                shares[share] = None
            else:
                del shares[share]
                if not shares:
                    del self._decided[share.owner]
        if share.volume:
            _add_pair(self._taken, share.volume, anyone, of_free)
            if len(accessible_rows(self._nodes, self._storage.volumes[share.volume].accessible_from)) > 1:
                self._add_multi_node_use(share.storage_class, share.volume, of_free)
        elif share.pool:
            if share.freed_on_exit:
                of_idle, of_free = 0, -back
            _add_pair(self._spent, share.pool, share.size * of_idle, share.size * of_free)
            pool = self._storage.pools[share.storage_class][share.pool]
            if len(accessible_rows(self._nodes, pool.accessible_from)) > 1:
                self._add_multi_node_use(share.storage_class, share.pool, share.size * of_free)

    def _add_multi_node_use(self, storage_class: str, thing: str, amount: int) -> None:
        things = self._multi_node_use.setdefault(storage_class, {})
        things[thing] = things.get(thing, 0) + amount
        if not things[thing]:
            del things[thing]
        if not things:
            del self._multi_node_use[storage_class]


def _add_pair(sums: dict[str, list[int]], name: str, first: int, second: int) -> None:
    pair = sums.setdefault(name, [0, 0])
    pair[0] += first
    pair[1] += second
    if not any(pair):
        del sums[name]
