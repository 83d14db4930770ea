"""Who gets which volume in a cycle, and what that leaves (a `Books` of the state).

`VolumeBooks` serves waiting claims: volumes chosen, room spent on new ones, the choice made for a claim that several
pods share (the others follow it).  It starts with what pods hold that already have a node while their claims still
wait: they are given volumes by the same rules, oldest first, so that nothing is promised twice.  The binder chooses by
the same rules too; the smallest volume that fits, then the first name, is the same choice on both sides.

`AttachBooks` serves the option of volume limits: volumes attached per node and driver, and claims that only one pod may
use at a time.

Both count every share by how it is held.  Of what is *idle* leavers still have their part, of what is *free* they do
not; room that goes back when a pod leaves with its own claims is free, not idle (cycle:NOD-7).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cluster.storage import Pool, Volume
from pykai.core.cycle.state import State
from pykai.core.ledgers.volumes.candidates import Candidates, Supply, rows_of
from pykai.core.model.axes import IntArray
from pykai.core.model.shapes import Shape
from pykai.core.model.sharedgpus import LIVE, PIPELINED, RELEASING, holding_of
from pykai.core.model.tasks import Task, by_age
from pykai.core.model.volumerequests import VolumeAsk
from pykai.core.placing.fit import row_numbers

if TYPE_CHECKING:
    from pykai.core.hooks import Ask, Rows

#: Codes of a node that cannot serve waiting claims.
NO_VOLUME, NO_ROOM = 1, 2

#: Up to so many rows are looked at one by one.
_FEW_ROWS = 64

#: Columns kept at a time.
_MOST_COLUMNS = 512

_NO_LIMIT = 2**31


class Share(NamedTuple):
    """What a claim is given."""

    #: key of a claim that several pods share, else the task and the number of its claim
    owner: str
    storage_class: str
    #: the volume chosen, "" when one is made
    volume: str = ""
    #: whose room a new volume takes, "" when nobody counts it
    pool: str = ""
    size: int = 0
    #: node for which it is made, -1 for a volume that is there
    row: int = -1
    #: not taken but given back when the pod leaves
    back: bool = False


class _Plan(NamedTuple):
    """What is the same for all tasks of a shape."""

    #: number of the claim and its ask, smallest first
    waiting: tuple[tuple[int, VolumeAsk], ...]
    own: tuple[tuple[int, VolumeAsk], ...]
    candidates: dict[int, Candidates]
    classes: tuple[str, ...]
    #: [node] nodes of a kind reach the same storage; -1 where some storage is of one node alone
    kinds: IntArray
    #: a node of each kind
    samples: tuple[int, ...]
    alone: tuple[int, ...]


class VolumeBooks:
    """Volumes and room given to waiting claims."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = snapshot.nodes
        self._storage = snapshot.storage
        self._concerned: dict[int, bool] = {}
        self._supplies: dict[str, Supply] = {}
        self._plans: dict[int, _Plan] = {}
        self._candidates: dict[VolumeAsk, Candidates] = {}
        #: room of claims whose volumes are being made since before the cycle
        self._making: dict[str, int] = {}
        #: share -> how many hold it live, releasing, pipelined
        self._counts: dict[Share, list[int]] = {}
        #: volume -> shares of it that anyone holds, and that others than leavers hold
        self._taken: dict[str, list[int]] = {}
        #: pool -> bytes spent of what is idle and of what is free
        self._spent: dict[str, list[int]] = {}
        #: shared claim -> what was chosen for it
        self._decided: dict[str, dict[Share, None]] = {}
        #: class -> what is taken of storage that several nodes reach
        self._wide: dict[str, dict[str, int]] = {}
        #: rows where something changed, undo included
        self._log: list[int] = []
        #: codes of all nodes by shape and key, and how much of the log they know
        self._columns: dict[Hashable, tuple[IntArray, int]] = {}
        self._held: dict[str, tuple[Share, ...]] = {}
        #: whether any pod has a claim to which this matters
        self.active = any(self.concerns(task.shape) for task in snapshot.tasks_with_volumes.values())
        for task in sorted(_on_nodes(snapshot, self.concerns), key=by_age):
            row = self._nodes.rows[task.node]
            found = self._choose(task.shape, task.key, row, idle=False)
            content = found if isinstance(found, tuple) else ()
            self._held[task.key] = content
            self.hold(task, row, content, holding_of(task.status), 1)

    # -- the seam ---------------------------------------------------------------------------------------------------

    def concerns(self, shape: Shape) -> bool:
        """Whether the choice of a node decides about some claim, or room goes back with the pod."""
        known = self._concerned.get(shape.id)
        if known is None:
            known = self._concerned[shape.id] = any(ask.waiting or ask.own for ask in shape.volumes)
        return known

    def held(self, task: Task) -> object | None:
        """What a task holds since before the cycle."""
        return self._held.get(task.key)

    def grant(self, state: State, ask: Ask, row: int, *, idle: bool) -> object | None:
        """Volumes and room for all waiting claims of a task; a task that leaves keeps what it has while it can."""
        leaving = state.leaving.get(ask.task.key)
        if leaving is not None and leaving.row == row:
            before = next((grant.content for grant in leaving.grants if grant.book is self), None)
            if isinstance(before, tuple) and self._still_there(before):
                return before
        found = self._choose(ask.shape, ask.task.key, row, idle=idle)
        return found if isinstance(found, tuple) else None

    def hold(self, task: Task, row: int, content: object, holding: int, sign: int) -> None:
        """Book shares or take them out."""
        assert isinstance(content, tuple)
        for share in content:
            counts = self._counts.setdefault(share, [0, 0, 0])
            before = _planes(counts)
            counts[holding] += sign
            after = _planes(counts)
            if not any(counts):
                del self._counts[share]
            if before != after:
                self._log.append(row)
                self._move(share, [new - old for old, new in zip(before, after, strict=True)])

    def key(self, ask: Ask) -> Hashable:
        """What else than the shape and the row decides: what is left of storage that several nodes reach."""
        if not self.concerns(ask.shape):
            return None
        plan = self._plan(ask.shape)
        left = tuple(tuple(sorted(self._wide.get(name, {}).items())) for name in plan.classes)
        return (left, *(self._decision(found) for _, found in plan.waiting if found.shared))

    def refused(self, state: State, ask: Ask, rows: Rows) -> IntArray:
        """[rows] 0 where what is free serves the claims, else NO_VOLUME or NO_ROOM."""
        shape = ask.shape
        numbers, plan = row_numbers(rows, len(self._nodes)), self._plan(shape)
        if len(numbers) <= _FEW_ROWS or len(numbers) < len(plan.alone):
            return np.array([self._code(shape, row) for row in numbers], dtype=np.int64)
        known = (shape.id, self.key(ask))
        codes, seen = self._columns.get(known, (None, 0))
        if codes is None:
            if len(self._columns) >= _MOST_COLUMNS:
                self._columns.clear()
            codes = self._codes(shape, plan)
        else:
            for row in set(self._log[seen:]):
                codes[row] = self._code(shape, row)
        self._columns[known] = (codes, len(self._log))
        return codes[rows].copy()

    def _codes(self, shape: Shape, plan: _Plan) -> IntArray:
        """[node] a code for every node, with one look at each kind of node and at each with storage of its own."""
        codes = np.full(len(self._nodes), NO_VOLUME, dtype=np.int64)
        decisions = [self._decision(found) for _, found in plan.waiting]
        decided = {share.row for share in decisions if share is not None and not share.volume}
        if decided:
            # A claim whose volume is being made for one node holds its pods there.
            for row in decided:
                codes[row] = self._code(shape, row)
            return codes
        by_kind = np.array([self._code(shape, row) for row in plan.samples], dtype=np.int64)
        if len(by_kind):
            codes = np.where(plan.kinds >= 0, by_kind[plan.kinds], NO_VOLUME)
        for row in plan.alone:
            codes[row] = self._code(shape, row)
        return codes

    def agrees(self, held: Iterable[tuple[int, object, int]]) -> bool:
        """Whether the books are what these tasks hold."""
        return _count(held) == self._counts

    def figures(self) -> dict[str, object]:
        """Everything booked, for comparison."""
        return {
            "shares": {share: tuple(counts) for share, counts in self._counts.items()},
            "taken": {name: tuple(counts) for name, counts in self._taken.items()},
            "spent": {name: tuple(amounts) for name, amounts in self._spent.items()},
            "decided": {claim: frozenset(shares) for claim, shares in self._decided.items()},
            "wide": {name: dict(things) for name, things in self._wide.items()},
        }

    # -- choosing ---------------------------------------------------------------------------------------------------

    def _code(self, shape: Shape, row: int) -> int:
        found = self._choose(shape, "", row, idle=False)
        return found if isinstance(found, int) else 0

    def _choose(self, shape: Shape, task_key: str, row: int, *, idle: bool) -> tuple[Share, ...] | int:
        """Volumes that are there first, smallest claims first; what finds none is made (as VolumeBinding does)."""
        plan = self._plan(shape)
        shares = self._given_back(plan, task_key, row) if plan.own else []
        if shares and not self._still_there(tuple(shares)):
            return NO_ROOM
        chosen: set[str] = set()
        to_make: list[tuple[str, VolumeAsk]] = []
        for number, ask in plan.waiting:
            owner = ask.shared or f"{task_key}#{number}"
            decision = self._decision(ask)
            # What only leavers hold may have gone to an earlier claim of this very pod.
            if decision is not None and decision.volume not in chosen:
                if not self._usable(decision, row):
                    return NO_VOLUME
                shares.append(decision)
                if decision.volume:
                    chosen.add(decision.volume)
                continue
            if ask.selected_node:
                # It is being made: the driver says whether it succeeds, and takes the node back if not.
                if self._nodes.names[row] != ask.selected_node:
                    return NO_VOLUME
                continue
            volume = self._volume(plan.candidates[number], row, chosen, idle)
            if volume is None:
                to_make.append((owner, ask))
            else:
                chosen.add(volume.name)
                shares.append(Share(owner, volume.storage_class, volume=volume.name))
        spent = self._regained(shares) if to_make else {}
        for owner, ask in to_make:
            supply = self._supply(ask.storage_class)
            if not supply.makes[row]:
                return NO_VOLUME
            if not supply.metered:
                if ask.shared:
                    shares.append(Share(owner, ask.storage_class, row=row))
                continue
            pool = self._pool(supply, ask.size, row, spent, idle)
            if pool is None:
                return NO_ROOM
            spent[pool.name] = spent.get(pool.name, 0) + ask.size
            shares.append(Share(owner, ask.storage_class, pool=pool.name, size=ask.size, row=row))
        return tuple(shares)

    def _given_back(self, plan: _Plan, task_key: str, row: int) -> list[Share]:
        shares: list[Share] = []
        for number, ask in plan.own:
            supply = self._supply(ask.storage_class)
            pools = sorted(supply.pools.at(row)) if supply.metered else []
            if pools:
                owner = f"{task_key}#{number}"
                shares.append(Share(owner, ask.storage_class, pool=pools[0].name, size=ask.size, row=row, back=True))
        return shares

    def _volume(self, candidates: Candidates, row: int, chosen: set[str], idle: bool) -> Volume | None:
        for volume in candidates.at(row):
            anyone, others = self._taken.get(volume.name, (0, 0))
            if volume.name not in chosen and not (anyone if idle else others):
                return volume
        return None

    def _pool(self, supply: Supply, size: int, row: int, spent: dict[str, int], idle: bool) -> Pool | None:
        for pool in sorted(supply.pools.at(row)):
            if size <= pool.largest and spent.get(pool.name, 0) + size <= self._room(pool, idle):
                return pool
        return None

    def _room(self, pool: Pool, idle: bool) -> int:
        of_idle, of_free = self._spent.get(pool.name, (0, 0))
        # What is promised is spent too, so that nobody who starts now takes it away.
        return pool.room - self._making.get(pool.name, 0) - (max(of_idle, of_free) if idle else of_free)

    def _decision(self, ask: VolumeAsk) -> Share | None:
        """What was chosen for a claim that several pods share; what only leavers hold binds while it is there."""
        shares = self._decided.get(ask.shared) if ask.shared else None
        return min((share for share in shares if self._still_there((share,))), default=None) if shares else None

    def _usable(self, share: Share, row: int) -> bool:
        if not share.volume:
            return share.row == row
        return bool(np.isin(row, rows_of(self._nodes, self._storage.volumes[share.volume].place)))

    def _still_there(self, shares: tuple[Share, ...]) -> bool:
        """Whether shares whose holders are to give them up can be had by them all the same."""
        for share in shares:
            taken = share.volume and self._taken.get(share.volume, (0, 0))[1]
            if taken and not self._planes_of(share)[2]:
                return False
        pools = {share.pool: self._storage.pools[share.storage_class][share.pool] for share in shares if share.pool}
        regained = self._regained(shares)
        return all(amount <= self._room(pools[name], idle=False) for name, amount in regained.items())

    def _regained(self, shares: Iterable[Share]) -> dict[str, int]:
        """Pool -> bytes that are free now and no longer once these shares are held: leavers' room, should they stay."""
        spent: dict[str, int] = {}
        for share in shares:
            _, _, free, given_up = self._planes_of(share)
            if share.pool and (given_up if share.back else not free):
                spent[share.pool] = spent.get(share.pool, 0) + share.size
        return spent

    def _planes_of(self, share: Share) -> tuple[bool, bool, bool, bool]:
        return _planes(self._counts.get(share, [0, 0, 0]))

    # -- what there is ----------------------------------------------------------------------------------------------

    def _supply(self, storage_class: str) -> Supply:
        found = self._supplies.get(storage_class)
        if found is None:
            found = self._supplies[storage_class] = Supply(self._nodes, self._storage, storage_class)
            for making in self._storage.making.get(storage_class, {}).values() if found.metered else ():
                row = self._nodes.rows.get(making.node)
                pools = [] if row is None else [p for p in found.pools.at(row) if making.size <= p.largest]
                if pools:
                    pool = min(pools)
                    self._making[pool.name] = self._making.get(pool.name, 0) + making.size
        return found

    def _plan(self, shape: Shape) -> _Plan:
        plan = self._plans.get(shape.id)
        if plan is None:
            plan = self._plans[shape.id] = self._make_plan(shape)
        return plan

    def _make_plan(self, shape: Shape) -> _Plan:
        numbered = list(enumerate(shape.volumes))
        waiting = sorted((item for item in numbered if item[1].waiting), key=lambda item: (item[1].size, item[0]))
        own = [item for item in numbered if item[1].own and item[1].bound]
        candidates = {number: self._candidates_for(ask) for number, ask in waiting}
        supplies = [self._supply(ask.storage_class) for _, ask in waiting]
        reaching = [supply.makes for supply in supplies]
        reaching += [mask for supply in supplies for mask, _ in supply.pools.wide]
        reaching += [mask for found in candidates.values() for mask, _ in found.located.wide]
        alone = {row for supply in supplies for row in supply.pools.near}
        alone.update(row for found in candidates.values() for row in found.located.near)
        alone.update(self._nodes.rows.get(ask.selected_node, -1) for _, ask in waiting)
        alone.discard(-1)
        reached: list[list[int]] = [[] for _ in range(len(self._nodes))]
        for number, mask in enumerate(reaching):
            for row in np.flatnonzero(mask).tolist():
                reached[row].append(number)
        known: dict[tuple[int, ...], int] = {}
        samples: list[int] = []
        kinds = np.full(len(self._nodes), -1, dtype=np.int64)
        for row, storage in enumerate(reached):
            if row not in alone:
                kind = kinds[row] = known.setdefault(tuple(storage), len(known))
                if kind == len(samples):
                    samples.append(row)
        classes = tuple(sorted({ask.storage_class for _, ask in (*waiting, *own)}))
        return _Plan(tuple(waiting), tuple(own), candidates, classes, kinds, tuple(samples), tuple(sorted(alone)))

    def _candidates_for(self, ask: VolumeAsk) -> Candidates:
        found = self._candidates.get(ask)
        if found is None:
            found = self._candidates[ask] = Candidates(self._nodes, self._storage, ask)
        return found

    # -- counting ---------------------------------------------------------------------------------------------------

    def _move(self, share: Share, change: list[int]) -> None:
        """Carry a change of (anyone, idle, free, given back) into the sums."""
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
            _add(self._taken, share.volume, anyone, of_free)
            if len(rows_of(self._nodes, self._storage.volumes[share.volume].place)) > 1:
                self._add_wide(share.storage_class, share.volume, of_free)
        elif share.pool:
            if share.back:
                of_idle, of_free = 0, -back
            _add(self._spent, share.pool, share.size * of_idle, share.size * of_free)
            pool = self._storage.pools[share.storage_class][share.pool]
            if len(rows_of(self._nodes, pool.place)) > 1:
                self._add_wide(share.storage_class, share.pool, share.size * of_free)

    def _add_wide(self, storage_class: str, thing: str, amount: int) -> None:
        things = self._wide.setdefault(storage_class, {})
        things[thing] = things.get(thing, 0) + amount
        if not things[thing]:
            del things[thing]
        if not things:
            del self._wide[storage_class]


def _on_nodes(snapshot: Snapshot, concerns: Callable[[Shape], bool]) -> Iterator[Task]:
    """Tasks that hold a node and something of a book."""
    for task in snapshot.tasks_with_volumes.values():
        if task.holds_node and task.node in snapshot.nodes.rows and concerns(task.shape):
            yield task


def _planes(counts: list[int]) -> tuple[bool, bool, bool, bool]:
    """Whether something is held by anyone, out of what is idle, out of what is free; whether it is being given up."""
    live, releasing, pipelined = counts[LIVE], counts[RELEASING], counts[PIPELINED]
    free = live + pipelined > 0
    return live + releasing + pipelined > 0, live + releasing > 0, free, releasing > 0 and not free


def _add(sums: dict[str, list[int]], name: str, first: int, second: int) -> None:
    found = sums.setdefault(name, [0, 0])
    found[0] += first
    found[1] += second
    if not any(found):
        del sums[name]


class Use(NamedTuple):
    """A volume attached to a node, or (row -1, no driver) a claim that one pod at a time may use."""

    volume: str
    driver: str = ""
    row: int = -1


class AttachBooks:
    """Volumes attached to nodes, and claims in use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = snapshot.nodes
        self._storage = snapshot.storage
        self._concerned: dict[int, bool] = {}
        self._counts: dict[Use, list[int]] = {}
        #: driver -> [idle or free, node] volumes attached
        self._attached: dict[str, IntArray] = {}
        self._limits: dict[str, IntArray] = {}
        #: volume that several pods use -> nodes that have it attached for others than leavers
        self._where: dict[str, set[int]] = {}
        self._held: dict[str, tuple[Use, ...]] = {}
        self.active = any(self.concerns(task.shape) for task in snapshot.tasks_with_volumes.values())
        for task in _on_nodes(snapshot, self.concerns):
            row = self._nodes.rows[task.node]
            self._held[task.key] = content = _uses(task.shape, task.key, row)
            self.hold(task, row, content, holding_of(task.status), 1)

    def concerns(self, shape: Shape) -> bool:
        """Whether a driver attaches some volume, or a claim admits one pod only."""
        known = self._concerned.get(shape.id)
        if known is None:
            known = self._concerned[shape.id] = any(ask.driver or ask.once for ask in shape.volumes)
        return known

    def held(self, task: Task) -> object | None:
        """What a task holds since before the cycle."""
        return self._held.get(task.key)

    def grant(self, state: State, ask: Ask, row: int, *, idle: bool) -> object | None:
        """What a task attaches on a node, None when it may not."""
        uses = _uses(ask.shape, ask.task.key, row)
        leaving = state.leaving.get(ask.task.key)
        stays = leaving is not None and leaving.row == row
        planes = (1,) if stays or not idle else (0, 1)
        return uses if all(self._fits(uses, row, plane) for plane in planes) else None

    def hold(self, task: Task, row: int, content: object, holding: int, sign: int) -> None:
        """Book uses or take them out."""
        assert isinstance(content, tuple)
        for use in content:
            counts = self._counts.setdefault(use, [0, 0, 0])
            before = _planes(counts)
            counts[holding] += sign
            after = _planes(counts)
            if not any(counts):
                del self._counts[use]
            if use.driver and before != after:
                attached = self._attached_by(use.driver)
                attached[0, use.row] += after[1] - before[1]
                attached[1, use.row] += after[2] - before[2]
                if "#" not in use.volume and after[2] != before[2]:
                    where = self._where.setdefault(use.volume, set())
                    (where.add if after[2] else where.discard)(use.row)
                    if not where:
                        del self._where[use.volume]

    def key(self, ask: Ask) -> Hashable:
        """Which claims that admit one pod only are in use."""
        return tuple(self._in_use(found, 1) for found in ask.shape.volumes if found.once and found.shared)

    def over_limit(self, state: State, ask: Ask, rows: Rows) -> IntArray:
        """[rows] 1 where a driver would attach more volumes than it can."""
        refused = np.zeros(len(self._nodes), dtype=np.bool_)
        by_driver: dict[str, list[VolumeAsk]] = {}
        for found in ask.shape.volumes:
            if found.driver:
                by_driver.setdefault(found.driver, []).append(found)
        for driver, asks in by_driver.items():
            new = np.full(len(self._nodes), len(asks), dtype=np.int64)
            for found in asks:
                for row in self._where.get(found.shared, ()) if found.shared else ():
                    new[row] -= 1
            refused |= (new > 0) & (self._attached_by(driver)[1] + new > self._limit(driver))
        return refused[rows].astype(np.int64)

    def used_by_another(self, state: State, ask: Ask, rows: Rows) -> IntArray:
        """[rows] 1 everywhere while another pod uses a claim that admits one only."""
        taken = any(self._in_use(found, 1) for found in ask.shape.volumes)
        return np.full(len(self._nodes), int(taken), dtype=np.int64)[rows]

    def agrees(self, held: Iterable[tuple[int, object, int]]) -> bool:
        """Whether the books are what these tasks hold."""
        return _count(held) == self._counts

    def figures(self) -> dict[str, object]:
        """Everything booked, for comparison."""
        return {
            "uses": {use: tuple(counts) for use, counts in self._counts.items()},
            "attached": {driver: found.tolist() for driver, found in self._attached.items() if found.any()},
            "where": {volume: frozenset(rows) for volume, rows in self._where.items()},
        }

    def _fits(self, uses: Iterable[Use], row: int, plane: int) -> bool:
        new: dict[str, int] = {}
        for use in uses:
            there = _planes(self._counts.get(use, [0, 0, 0]))[1 + plane]
            if not use.driver and there:
                return False
            if use.driver and not there:
                new[use.driver] = new.get(use.driver, 0) + 1
        return all(
            self._attached_by(driver)[plane, row] + count <= self._limit(driver)[row] for driver, count in new.items()
        )

    def _in_use(self, ask: VolumeAsk, plane: int) -> bool:
        return ask.once and bool(ask.shared) and _planes(self._counts.get(Use(ask.shared), [0, 0, 0]))[1 + plane]

    def _attached_by(self, driver: str) -> IntArray:
        found = self._attached.get(driver)
        if found is None:
            found = self._attached[driver] = np.zeros((2, len(self._nodes)), dtype=np.int64)
        return found

    def _limit(self, driver: str) -> IntArray:
        found = self._limits.get(driver)
        if found is None:
            limits = self._storage.limits
            listed = [limits.get(name, {}).get(driver, _NO_LIMIT) for name in self._nodes.names]
            found = self._limits[driver] = np.array(listed, dtype=np.int64)
        return found


def _uses(shape: Shape, task_key: str, row: int) -> tuple[Use, ...]:
    uses: list[Use] = []
    for number, ask in enumerate(shape.volumes):
        if ask.driver:
            uses.append(Use(ask.shared or f"{task_key}#{number}", ask.driver, row))
        if ask.once and ask.shared:
            uses.append(Use(ask.shared))
    return tuple(uses)


def _count(held: Iterable[tuple[int, object, int]]) -> dict[object, list[int]]:
    """What tasks hold, as (row, content, holding): how many hold each share live, releasing and pipelined."""
    counts: dict[object, list[int]] = {}
    for _, content, holding in held:
        assert isinstance(content, tuple)
        for share in content:
            counts.setdefault(share, [0, 0, 0])[holding] += 1
    return counts
