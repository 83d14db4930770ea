"""Claims as a cycle gives devices to them: which claim has which, and who uses the claim (gpu:D-8 to D-16).

A claim gets its devices with its first user and keeps them as long as it has one; users that come later share them, on
nodes from which the devices can be reached.  So devices are counted per claim, not per pod (`holdings.py`).

Extended resources that a device class stands behind may be served by a claim made for the pod (`service.py`).  That
claim, too, is booked before the binder creates it, and is free again when the pod is a victim (gpu:D-8 and D-16, Do
better).

What tasks held before the cycle is booked when the books are opened; devices of claims whose users nobody knows here
stay with them.  GPUs among the devices have a column of their own, which follows the books.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pykai.api import names
from pykai.api.resource import AllocationResult
from pykai.api.scheduling import ExtendedResourceClaimAllocation
from pykai.core.cluster.claims.inventory import DeviceId, Inventory
from pykai.core.cluster.nodematching import some_term
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.state import State
from pykai.core.ledgers.claims.allocator import Allocation, available, result_of
from pykai.core.ledgers.claims.feasible import Plan, fits_at, fits_plan, give, least_of, plan_of, reaches_far
from pykai.core.ledgers.claims.holdings import NOT_HELD, Holdings, Manner
from pykai.core.ledgers.claims.service import Plain, Service
from pykai.core.model.axes import BoolArray, IntArray, is_gpu
from pykai.core.model.claimrequests import ClaimAsk, Refusal
from pykai.core.model.extendedresources import CLAIM_NAME
from pykai.core.model.shapes import Shape
from pykai.core.model.sharedgpus import LIVE, PIPELINED, RELEASING, holding_of
from pykai.core.model.tasks import Task
from pykai.core.model.vectors import charge_planes

#: Pods that may use one claim (gpu:D-9).
MOST_CONSUMERS = 256

#: Why claims do not fit a node: see `codes`.
NO_GPUS, ELSEWHERE, NO_DEVICES = 1, 2, 3

Rows = slice | IntArray


class Held(NamedTuple):
    """A claim and the devices it has."""

    #: what the pod calls it, or `extended.CLAIM_NAME`
    name: str
    key: str
    allocation: Allocation


Content = tuple[Held | Plain, ...]


class _Claim:
    """A claim in use."""

    __slots__ = ("_reach", "allocation", "before", "fresh", "others", "unplaced", "users", "wire")

    def __init__(self) -> None:
        self.allocation: Allocation | None = None
        #: what the API server or a BindRequest says it has, if that is how it was found
        self.wire: AllocationResult | None = None
        #: otherwise the first to get it: shape, node row, what it calls the claim
        self.fresh: tuple[Shape, int, str] | None = None
        #: allocation and wire as the cycle began, for when everything is undone
        self.before: tuple[Allocation, AllocationResult] | None = None
        #: users by holding
        self.users = [0, 0, 0]
        #: uids that hold it and are none of its users here
        self.others: set[str] = set()
        #: users it is reserved for that are on no node
        self.unplaced = 0
        #: [node] from where its devices can be reached, () = not asked yet, None = from all
        self._reach: BoolArray | tuple[()] | None = ()

    @property
    def manner(self) -> Manner:
        """How it holds its devices."""
        if self.allocation is None:
            return NOT_HELD
        live, releasing, pipelined = self.users
        if live or (self.others and self.before is not None):
            return (1, 0, 0)
        return (0, 1 if releasing else 0, 1 if pipelined else 0)

    def give(self, allocation: Allocation, fresh: tuple[Shape, int, str]) -> None:
        """It has devices now: those it had before, or others."""
        self.allocation, self._reach = allocation, ()
        if self.before is not None and self.before[0] == allocation:
            self.wire = self.before[1]
        else:
            self.fresh = fresh

    def take_back(self) -> None:
        """Without users it gives its devices back (gpu:D-11)."""
        self.allocation, self.wire, self.fresh, self._reach = None, None, None, ()


class _Needs(NamedTuple):
    """What the claims of a shape come to right now."""

    #: those that have no devices yet
    asks: tuple[ClaimAsk, ...]
    #: GPUs these count for
    gpus: int
    #: those that have
    given: tuple[_Claim, ...]
    #: some claim cannot be read, or is about to lose its devices to another
    hopeless: bool


class ClaimBooks:
    """The claims of one cycle."""

    def __init__(self, snapshot: Snapshot, *, serving: bool = True) -> None:
        self._snapshot = snapshot
        self._index = snapshot.claims
        self.inventory: Inventory = snapshot.claims.inventory(snapshot.nodes)
        self._axis = snapshot.axes.index.get(names.DRA_GPU)
        self._service = Service(snapshot, claims=serving)
        self._holdings = Holdings(snapshot, self.inventory)
        self._claims: dict[str, _Claim] = {}
        #: what shapes need whose claims have no names, by number
        self._needs: dict[int, _Needs] = {}
        #: counting for the claims of a shape, by shape and what is served by a claim
        self._plans: dict[tuple[int, tuple[str, ...]], Plan] = {}
        self._loose: dict[int, bool] = {}
        #: changes with everything that other nodes than the one touched may notice
        self.far_changes = 0
        self._open()

    # -- what there was before the cycle ----------------------------------------------------------------------------

    def _open(self) -> None:
        claims = self._claims
        for key, claim in self._index.claims.items():
            status = claim.status
            reserved = status.reserved_for
            if status.allocation is not None or reserved:
                found = claims[key] = _Claim()
                if reserved:
                    found.others = {user.uid for user in reserved} if len(reserved) > 1 else {reserved[0].uid}
                if status.allocation is not None:
                    self._read(found, status.allocation)
        tasks = self._snapshot.tasks_with_claims
        # What BindRequests say of one claim may differ: the first pod by name is right, whatever came first.
        for task in sorted((task for task in tasks.values() if task.claim_allocations), key=lambda task: task.key):
            self._assume(task)
        for task in tasks.values():
            self._open_task(task)
        for key, found in claims.items():
            if found.allocation is not None and not any(found.users) and not found.others:
                # It has devices and nobody uses it: they stay with it until somebody takes them back.
                found.others = {key}
        self._holdings.open(
            (found.allocation.takes, found.manner) for found in claims.values() if found.allocation is not None
        )

    def _assume(self, task: Task) -> None:
        """What a BindRequest gives to claims that the binder has not written into them yet (gpu:D-8)."""
        if not task.holds_node or task.node not in self._snapshot.nodes.rows:
            return
        written = dict(task.claim_allocations)
        for name, key in self._keys(task):
            if name in written:
                found = self._claims.get(key)
                if found is None:
                    found = self._claims[key] = _Claim()
                if found.wire is None:
                    self._read(found, written[name])

    def _open_task(self, task: Task) -> None:
        row = self._snapshot.nodes.rows.get(task.node, -1) if task.holds_node else -1
        holding = holding_of(task.status)
        for _, key in self._keys(task):
            found = self._claims.get(key)
            if found is None:
                continue
            reserved = task.uid in found.others
            found.others.discard(task.uid)
            if row < 0:
                found.unplaced += reserved
            elif found.allocation is not None:
                found.users[holding] += 1
        if row >= 0 and task.shape.backed:
            for axis, amount in self._service.plain(task.shape, row):
                self._holdings.charge(axis, row, amount, holding, 1)

    def _keys(self, task: Task) -> Iterator[tuple[str, str]]:
        """The claims of a task by name: those it names, and the one for its extended resources where it is.

        A claim named twice is listed once: it has one user more.
        """
        claims, keys = task.shape.claims, _own_keys(task)
        for number, key in enumerate(keys):
            if not number or key not in keys[:number]:
                yield claims[number].name, key
        if task.shape.backed:
            row = self._snapshot.nodes.rows.get(task.node)
            if row is not None and self._service.served(task.shape, row):
                yield CLAIM_NAME, task.extended_key or _synthetic_key(task)

    def _read(self, claim: _Claim, wire: AllocationResult) -> None:
        index = self.inventory.index
        takes = []
        for result in wire.devices.results:
            device = index.get(DeviceId(result.driver, result.pool, result.device))
            if device is not None and not result.admin_access:
                takes.append(device)
        claim.allocation, claim.wire = Allocation((), tuple(takes)), wire
        claim.before = (claim.allocation, wire)

    # -- the books --------------------------------------------------------------------------------------------------

    def concerns(self, shape: Shape) -> bool:
        """Whether tasks of this shape use claims."""
        return bool(shape.claims or shape.backed)

    def held(self, task: Task) -> object | None:
        """The claims and devices of a task since before the cycle."""
        row = self._snapshot.nodes.rows.get(task.node)
        if row is None or not task.holds_node:
            return None
        content: list[Held | Plain] = []
        for name, key in self._keys(task):
            claim = self._claims.get(key)
            if claim is not None and claim.before is not None:
                content.append(Held(name, key, claim.before[0]))
        if task.shape.backed:
            content += self._service.plain(task.shape, row)
        return tuple(content)

    def hold(self, task: Task, row: int, content: object, holding: int, sign: int) -> None:
        """Count a task among the users of its claims, or no longer."""
        for entry in _entries(content):
            if isinstance(entry, Plain):
                self._holdings.charge(entry.axis, row, entry.amount, holding, sign)
                continue
            claim = self._claims.get(entry.key)
            if claim is None:
                claim = self._claims[entry.key] = _Claim()
            before = claim.manner
            claim.users[holding] += sign
            if claim.allocation is None:
                claim.give(entry.allocation, (task.shape, row, entry.name))
            assert claim.allocation is not None
            after = claim.manner
            if after != before:
                self._holdings.change(claim.allocation.takes, before, after)
            if after == NOT_HELD:
                claim.take_back()
        self.far_changes += self.loose(task.shape)

    # -- what a task would get --------------------------------------------------------------------------------------

    def grant(self, state: State, ask: Any, row: int, *, idle: bool) -> object | None:
        """Devices for the claims of a task on a node, those it has there already if it may stay."""
        task, shape = ask.task, ask.shape
        leaving = state.leaving.get(task.key) if state.leaving else None
        if leaving is not None and leaving.row == row:
            own = next((grant.content for grant in leaving.grants if grant.book is self), None)
            if own is not None and self._may_stay(state, row, own):
                return own
        taken = self._holdings.busy if idle else self._holdings.promised
        if idle and self.full(shape, task, leavers=True) is not None:
            return None
        content: list[Held | Plain] = []
        fresh: list[tuple[str, str, ClaimAsk]] = []
        again = "#again" if leaving is not None else ""
        seen: set[str] = set()
        joined: list[int] = []
        served: tuple[str, ...] = ()
        for claim, own_key in zip(shape.claims, _own_keys(task), strict=True):
            if own_key in seen:
                continue
            seen.add(own_key)
            known = self._claims.get(claim.key) if claim.key else None
            if known is not None and known.allocation is not None:
                reach = self._reach(known)
                if (reach is not None and not reach[row]) or not self._may_join(known):
                    return None
                content.append(Held(claim.name, own_key, known.allocation))
                joined += known.allocation.takes
            elif claim.ask is None:
                return None
            else:
                # A pod that comes back has new claims from its templates; one it names itself is the same.
                fresh.append((claim.name, own_key if claim.key else own_key + again, claim.ask))
        if shape.backed:
            plain = self._service.plain(shape, row)
            if not all(_has(state, row, entry, idle=idle) for entry in plain):
                return None
            content += plain
            served = self._service.served(shape, row)
            extended = self._service.claim(shape, served)[1] if served else None
            if isinstance(extended, Refusal):
                return None
            if extended is not None:
                fresh.append((CLAIM_NAME, _synthetic_key(task) + again, extended))
        if fresh:
            plan = self._plan(shape, served, tuple([each for _, _, each in fresh]))
            found = give(self.inventory, plan, row, _with(taken, joined))
            if isinstance(found, Refusal):
                return None
            content += [Held(name, key, given) for (name, key, _), given in zip(fresh, found, strict=True)]
        return tuple(content)

    def _may_stay(self, state: State, row: int, content: object) -> bool:
        """Whether nobody else has or was promised what a task is leaving."""
        for entry in _entries(content):
            if isinstance(entry, Plain):
                if not _has(state, row, entry, idle=False):
                    return False
                continue
            claim = self._claims[entry.key]
            if claim.allocation != entry.allocation or not self._may_join(claim):
                return False
        return True

    def _may_join(self, claim: _Claim) -> bool:
        """Whether a claim goes on having its devices: somebody stays, or nobody was promised what all of them leave."""
        live, _, pipelined = claim.manner
        assert claim.allocation is not None
        return bool(live or pipelined) or available(self.inventory, claim.allocation.takes, self._holdings.promised)

    def _reach(self, claim: _Claim) -> BoolArray | None:
        """[node] from where the devices of a claim can be reached, None = from everywhere (gpu:D-10)."""
        if isinstance(claim._reach, tuple):
            selector = self._result(claim).node_selector
            nodes = self._snapshot.nodes
            claim._reach = None if selector is None else some_term(nodes, selector.node_selector_terms)
        return claim._reach

    def _result(self, claim: _Claim) -> AllocationResult:
        """What a claim has, as a BindRequest says it."""
        if claim.wire is None:
            assert claim.fresh is not None, "only who has something tells"
            assert claim.allocation is not None, "only who has something tells"
            shape, row, name = claim.fresh
            ask = self._ask_of(shape, row, name)
            assert ask is not None, "what was given was asked for"
            claim.wire = result_of(self.inventory, row, ask, claim.allocation)
        return claim.wire

    def _ask_of(self, shape: Shape, row: int, name: str) -> ClaimAsk | None:
        if name == CLAIM_NAME:
            found = self._service.ask_at(shape, row)
            return None if isinstance(found, Refusal) else found
        return next((claim.ask for claim in shape.claims if claim.name == name), None)

    # -- checks -----------------------------------------------------------------------------------------------------

    def loose(self, shape: Shape) -> bool:
        """Whether what is given on one node may change what another can give."""
        found = self._loose.get(shape.id)
        if found is None:
            found = any(claim.key for claim in shape.claims)
            asks = [claim.ask for claim in shape.claims if claim.ask is not None]
            if shape.backed and not found:
                extended = self._service.claim(shape, tuple(name for name, _ in shape.backed))[1]
                asks += [] if isinstance(extended, Refusal) else [extended]
            found = self._loose[shape.id] = found or reaches_far(self.inventory, asks)
        return found

    def codes(self, state: State, shape: Shape, rows: Rows, *, idle: bool = False) -> IntArray:
        """[rows] 0 where all claims can be satisfied, else NO_GPUS, ELSEWHERE or NO_DEVICES."""
        taken = self._holdings.busy if idle else self._holdings.promised
        numbers: IntArray = np.arange(len(self._snapshot.nodes))[rows] if isinstance(rows, slice) else rows
        codes: IntArray = np.zeros(len(numbers), dtype=np.int64)
        needs = self._needs_of(shape)
        if needs.hopeless:
            codes[:] = NO_DEVICES
            return codes
        for claim in needs.given:
            reach = self._reach(claim)
            if reach is not None:
                codes[(codes == 0) & ~reach[numbers]] = ELSEWHERE
            assert claim.allocation is not None
            taken = _with(taken, claim.allocation.takes)
        plane = state.idle if idle else state.free
        if not shape.backed:
            if needs.asks:
                left = np.flatnonzero(codes == 0) if codes.any() else slice(None)
                found = fits_plan(self.inventory, self._plan(shape, (), needs.asks), taken, numbers[left])
                if not found.all():
                    codes[left] = np.where(found, 0, self._short(plane, needs.gpus, numbers[left]))
            return codes
        for served, inside in self._service.split(shape, numbers):
            ask = self._service.claim(shape, served)[1] if served else None
            for name, amount in shape.backed:
                if name not in served:
                    short = inside & (codes == 0) & (plane[self._snapshot.axes.index[name], numbers] < amount)
                    codes[short] = NO_GPUS if is_gpu(name) else NO_DEVICES
            where = np.flatnonzero(inside & (codes == 0))
            if isinstance(ask, Refusal):
                codes[where] = NO_DEVICES
            elif len(where) and (needs.asks or ask is not None):
                plan = self._plan(shape, served, needs.asks if ask is None else (*needs.asks, ask))
                found = fits_plan(self.inventory, plan, taken, numbers[where])
                codes[where] = np.where(found, 0, self._short(plane, needs.gpus, numbers[where]))
        return codes

    def code_at(self, state: State, shape: Shape, row: int, *, idle: bool = False) -> int:
        """`codes` for one node."""
        needs = self._needs_of(shape)
        if shape.backed or needs.given or needs.hopeless:
            return int(self.codes(state, shape, np.array([row]), idle=idle)[0])
        taken = self._holdings.busy if idle else self._holdings.promised
        if fits_at(self.inventory, self._plan(shape, (), needs.asks), taken, row):
            return 0
        return int(self._short(state.idle if idle else state.free, needs.gpus, np.array([row]))[0])

    def _needs_of(self, shape: Shape) -> _Needs:
        found = self._needs.get(shape.id)
        if found is not None:
            return found
        asks: list[ClaimAsk] = []
        given: dict[str, _Claim] = {}
        seen: set[str] = set()
        gpus, hopeless, named = 0, False, False
        for claim in shape.claims:
            known = self._claims.get(claim.key) if claim.key else None
            named |= bool(claim.key)
            if known is not None and known.allocation is not None:
                given[claim.key] = known
                hopeless |= not self._may_join(known)
            elif claim.ask is None:
                hopeless = True
            elif claim.key not in seen:
                asks.append(claim.ask)
                gpus += claim.gpus
                seen.update([claim.key] if claim.key else [])
        found = _Needs(tuple(asks), gpus, tuple(given.values()), hopeless)
        if not named:
            # Of claims with names some may have their devices meanwhile.
            self._needs[shape.id] = found
        return found

    def _plan(self, shape: Shape, served: tuple[str, ...], asks: tuple[ClaimAsk, ...]) -> Plan:
        """How to count for claims of a shape; the last answer is most often the right one."""
        key = (shape.id, served)
        plan = self._plans.get(key)
        if plan is None or (plan.claims is not asks and plan.claims != asks):
            plan = self._plans[key] = plan_of(self.inventory, asks)
        return plan

    def _short(self, plane: IntArray, gpus: int, rows: IntArray) -> IntArray:
        """[rows] why there are no devices: the GPUs of the node do not suffice, or something else."""
        if not gpus or self._axis is None:
            return np.full(len(rows), NO_DEVICES)
        offered = self._snapshot.allocatable[self._axis, rows] > 0
        return np.where(offered & (plane[self._axis, rows] < gpus), NO_GPUS, NO_DEVICES)

    def failure_at(self, shape: Shape, row: int) -> str:
        """Why the allocator gives up on a node, "" when there is no more to say than that it does."""
        asks = [claim.ask for claim in shape.claims if claim.ask is not None]
        extended = self._service.ask_at(shape, row)
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

    def elsewhere(self, shape: Shape, row: int) -> str:
        """The claim of a shape whose devices cannot be reached from a node."""
        for claim in shape.claims:
            known = self._claims.get(claim.key) if claim.key else None
            reach = self._reach(known) if known is not None and known.allocation is not None else None
            if reach is not None and not reach[row]:
                return claim.key
        return ""

    def full(self, shape: Shape, task: Task, *, leavers: bool = False) -> str | None:
        """The claim that has too many users for one more (gpu:D-9); `leavers` count while they are there."""
        for claim in shape.claims:
            known = self._claims.get(claim.key) if claim.key else None
            if known is None:
                continue
            users = len(known.others) + known.unplaced + known.users[LIVE] + known.users[PIPELINED]
            users += known.users[RELEASING] if leavers else 0
            if users >= MOST_CONSUMERS and not self.reserved(claim.key, task):
                return claim.key
        return None

    def reserved(self, key: str, task: Task) -> bool:
        """Whether a claim is reserved for a task already."""
        claim = self._index.claims.get(key)
        return claim is not None and any(user.uid == task.uid for user in claim.status.reserved_for)

    # -- bounds -----------------------------------------------------------------------------------------------------

    def takes_at_least(self, shape: Shape) -> list[tuple[int, int, bool]]:
        """(axis, amount, strictly) that a pod takes of the columns of any node that has them, or (strictly) of any."""
        index = self._snapshot.axes.index
        found = [(index[name], amount, False) for name, amount in shape.backed if name in index]
        asks = [claim.ask for claim in shape.claims if claim.ask is not None and not claim.key]
        gpus = least_of(self.inventory, asks, self.inventory.whole_gpus())
        if gpus and self._axis is not None:
            found.append((self._axis, gpus, True))
        return found

    def frees_at_most(self, content: object) -> Iterator[tuple[int, int]]:
        """(axis, amount) that a pod with this content gives back."""
        whole = self.inventory.whole_gpus()
        for entry in _entries(content):
            if isinstance(entry, Plain):
                yield entry.axis, entry.amount
            elif self._axis is not None:
                yield self._axis, sum(bool(whole[device]) for device in entry.allocation.takes)

    # -- decisions --------------------------------------------------------------------------------------------------

    def bind_fields(self, task: Task, row: int, content: object) -> dict[str, Any]:
        """What the claims of a pod get."""
        return {
            "claims": self.written(task, content),
            "extended_claim": self.written_extended(task, row, content),
        }

    def written(self, task: Task, content: object) -> tuple[tuple[str, AllocationResult], ...]:
        """What a BindRequest says of the claims of a pod, one entry for each name it has for them (gpu:7)."""
        held = {entry.key for entry in _entries(content) if isinstance(entry, Held)}
        names_and_keys = zip(task.shape.claims, _own_keys(task), strict=True)
        return tuple((claim.name, self._result(self._claims[key])) for claim, key in names_and_keys if key in held)

    def written_extended(self, task: Task, row: int, content: object) -> ExtendedResourceClaimAllocation | None:
        """The same for the claim behind its extended resources."""
        for entry in _entries(content):
            if isinstance(entry, Held) and entry.name == CLAIM_NAME:
                requests = self._service.claim(task.shape, self._service.served(task.shape, row))[0]
                return ExtendedResourceClaimAllocation(
                    allocation=self._result(self._claims[entry.key]),
                    device_requests=list(requests.requests),
                    container_mappings=list(requests.mappings),
                )
        return None

    # -- validation -------------------------------------------------------------------------------------------------

    def agrees(self, held: Iterable[tuple[int, object, int]]) -> bool:
        """Whether the books are what these tasks hold: node row, content, how."""
        users: dict[str, list[int]] = {}
        given: dict[str, Allocation] = {}
        for _, content, holding in held:
            for entry in _entries(content):
                if isinstance(entry, Held):
                    users.setdefault(entry.key, [0, 0, 0])[holding] += 1
                    if given.setdefault(entry.key, entry.allocation) != entry.allocation:
                        return False
        for key, claim in self._claims.items():
            if users.pop(key, [0, 0, 0]) != claim.users:
                return False
            if claim.allocation != given.get(key, claim.before[0] if claim.others and claim.before else None):
                return False
        return not users and self._holdings.agree(self._sums())

    def charged(self, held: Iterable[tuple[int, object, int]]) -> IntArray:
        """[plane, axis, node] what these tasks do to the columns through the books."""
        columns = self._holdings.column_of(self._sums())
        for row, content, holding in held:
            for entry in _entries(content):
                if isinstance(entry, Plain):
                    columns[:, entry.axis, row] += charge_planes(np.array([entry.amount]), holding)[:, 0]
        return columns

    def _sums(self) -> Any:
        held = [(claim.allocation.takes, claim.manner) for claim in self._claims.values() if claim.allocation]
        return self._holdings.add_up(held)


def _with(taken: BoolArray, devices: Sequence[int]) -> BoolArray:
    """The column with some more devices taken."""
    if devices:
        taken = taken.copy()
        taken[list(devices)] = True
    return taken


def _entries(content: object) -> Content:
    assert isinstance(content, tuple)
    return content


def _has(state: State, row: int, entry: Plain, *, idle: bool) -> bool:
    """Whether a node has an amount of its own to promise, or to give now."""
    axis, amount = entry
    return bool(state.free[axis, row] >= amount and (not idle or state.idle[axis, row] >= amount))


def _own_keys(task: Task) -> tuple[str, ...]:
    """The claims of a task; one whose claim does not exist yet is known by its own name."""
    return tuple(key or f"{task.key}#{number}" for number, key in enumerate(task.claim_keys))


def _synthetic_key(task: Task) -> str:
    return f"{task.key}#{CLAIM_NAME}"
