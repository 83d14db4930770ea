"""The ledger of claims: which devices each has, and which tasks use it (gpu:D-8 to D-16).

A claim gets its devices with its first user and keeps them as long as it has one; users that come later share them, on
nodes from which the devices can be reached.  So devices are counted per claim, not per pod (`holdings.py`).

Extended resources that a device class backs may be served by a claim made for the pod (`service.py`).  That claim, too,
is recorded before the binder creates it, and is free again when the pod is a victim (gpu:D-8 and D-16, Do better).

What tasks held before the cycle is recorded when the ledger is opened; claims with unknown users keep their devices.
GPUs among the devices have a column of their own, which follows the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pykai.api import names
from pykai.api.gpuvendors import is_gpu
from pykai.api.resource import AllocationResult
from pykai.api.scheduling import ExtendedResourceClaimAllocation
from pykai.core import caching
from pykai.core.caching import Cache
from pykai.core.cluster.claims.inventory import DeviceId, Inventory
from pykai.core.cluster.nodematching import matches_any_term
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.cycle.request import PlacementRequest
from pykai.core.cycle.state import State
from pykai.core.ledgers.claims.allocator import ClaimAllocation, allocation_result, are_available
from pykai.core.ledgers.claims.claimusers import ClaimInUse, HeldClaim, entries_of, extended_claim_key, own_keys
from pykai.core.ledgers.claims.feasible import (
    FeasibilityPlan,
    allocate_by_plan,
    feasibility_plan,
    fits_at,
    fits_plan,
    minimum_devices,
    reaches_other_nodes,
)
from pykai.core.ledgers.claims.holdings import NOT_HELD, DeviceHoldings
from pykai.core.ledgers.claims.service import ExtendedResourceService, NodeAmount
from pykai.core.model.axes import BoolArray, IntArray, Rows
from pykai.core.model.claimrequests import ClaimRefusal, ClaimRequest
from pykai.core.model.extendedresources import EXTENDED_CLAIM_NAME
from pykai.core.model.shapes import Shape
from pykai.core.model.sharedgpus import LIVE, PIPELINED, RELEASING, holding_of
from pykai.core.model.tasks import Task
from pykai.core.model.vectors import charge_planes

#: Pods that may use one claim (gpu:D-9).
MAX_CONSUMERS = 256

#: Why claims do not fit a node: see `refusal_codes`.
NO_GPUS, UNREACHABLE, NO_DEVICES = 1, 2, 3


class _ClaimNeeds(NamedTuple):
    """What the claims of a shape need at the moment."""

    #: requests of claims that have no devices yet
    requests: tuple[ClaimRequest, ...]
    #: GPUs these count for
    gpus: int
    #: claims that have devices
    allocated: tuple[ClaimInUse, ...]
    #: some claim cannot be read, or is about to lose its devices to another
    is_unsatisfiable: bool


class ClaimLedger:
    """The claims of one cycle."""

    def __init__(self, snapshot: Snapshot, *, serving: bool = True) -> None:
        self._snapshot = snapshot
        self._index = snapshot.claims
        self.inventory: Inventory = snapshot.claims.inventory(snapshot.nodes)
        self._axis = snapshot.axes.index.get(names.DRA_GPU)
        self._service = ExtendedResourceService(snapshot, claims=serving)
        self._holdings = DeviceHoldings(snapshot, self.inventory)
        self._claims: dict[str, ClaimInUse] = {}
        #: what shapes without named claims need, by shape number
        self._needs_by_shape: Cache[int, _ClaimNeeds] = Cache()
        #: how to count for the claims of a shape, by shape and the resources that a claim serves
        self._plans: Cache[tuple[int, tuple[str, ...]], FeasibilityPlan] = Cache()
        self._affects_other_nodes: Cache[int, bool] = Cache()
        #: increases with every change that may affect other nodes than the one changed
        self.cross_node_changes = 0
        self._load()

    def _load(self) -> None:
        claims = self._claims
        for key, claim in self._index.claims.items():
            status = claim.status
            reserved_for = status.reserved_for
            if status.allocation is not None or reserved_for:
                claim_in_use = claims[key] = ClaimInUse()
                if reserved_for:
                    claim_in_use.unknown_users = (
                        {user.uid for user in reserved_for} if len(reserved_for) > 1 else {reserved_for[0].uid}
                    )
                if status.allocation is not None:
                    self._set_initial(claim_in_use, status.allocation)
        tasks = self._snapshot.tasks_with_claims
        # BindRequests may disagree about one claim: the first pod by name decides.
        for task in sorted((task for task in tasks.values() if task.claim_allocations), key=lambda task: task.key):
            self._assume_from_bind_request(task)
        for task in tasks.values():
            self._load_task(task)
        for key, claim_in_use in claims.items():
            if claim_in_use.allocation is not None and not any(claim_in_use.users) and not claim_in_use.unknown_users:
                # An allocated claim without users keeps its devices until it is deallocated.
                claim_in_use.unknown_users = {key}
        self._holdings.load_initial(
            (claim.allocation.exclusive_devices, claim.hold_state)
            for claim in claims.values()
            if claim.allocation is not None
        )

    def _assume_from_bind_request(self, task: Task) -> None:
        """Allocations of a BindRequest that the binder has not written to the claims yet (gpu:D-8)."""
        if not task.holds_node or task.node not in self._snapshot.nodes.rows:
            return
        bind_allocations = dict(task.claim_allocations)
        for name, key in self._claim_names_and_keys(task):
            if name in bind_allocations:
                claim_in_use = self._claims.get(key)
                if claim_in_use is None:
                    claim_in_use = self._claims[key] = ClaimInUse()
                if claim_in_use.result is None:
                    self._set_initial(claim_in_use, bind_allocations[name])

    def _load_task(self, task: Task) -> None:
        row = self._snapshot.nodes.rows.get(task.node, -1) if task.holds_node else -1
        holding = holding_of(task.status)
        for _, key in self._claim_names_and_keys(task):
            claim_in_use = self._claims.get(key)
            if claim_in_use is None:
                continue
            is_reserved = task.uid in claim_in_use.unknown_users
            claim_in_use.unknown_users.discard(task.uid)
            if row < 0:
                claim_in_use.unplaced_users += is_reserved
            elif claim_in_use.allocation is not None:
                claim_in_use.users[holding] += 1
        if row >= 0 and task.shape.dra_backed:
            for axis, amount in self._service.node_amounts(task.shape, row):
                self._holdings.charge(axis, row, amount, holding, 1)

    def _claim_names_and_keys(self, task: Task) -> Iterator[tuple[str, str]]:
        """The claims of a task by name: those it names, and the one for its extended resources on its node.

        A claim named twice is listed once.
        """
        claims, keys = task.shape.claims, own_keys(task)
        for number, key in enumerate(keys):
            if not number or key not in keys[:number]:
                yield claims[number].name, key
        if task.shape.dra_backed:
            row = self._snapshot.nodes.rows.get(task.node)
            if row is not None and self._service.served(task.shape, row):
                yield EXTENDED_CLAIM_NAME, task.extended_key or extended_claim_key(task)

    def _set_initial(self, claim: ClaimInUse, result: AllocationResult) -> None:
        index = self.inventory.index
        takes = []
        for device_result in result.devices.results:
            device = index.get(DeviceId(device_result.driver, device_result.pool, device_result.device))
            if device is not None and not device_result.admin_access:
                takes.append(device)
        claim.allocation, claim.result = ClaimAllocation((), tuple(takes)), result
        claim.initial = (claim.allocation, result)

    def concerns(self, shape: Shape) -> bool:
        """Whether tasks of this shape use claims."""
        return bool(shape.claims or shape.dra_backed)

    def held(self, task: Task) -> object | None:
        """The claims and devices of a task since before the cycle."""
        row = self._snapshot.nodes.rows.get(task.node)
        if row is None or not task.holds_node:
            return None
        entries: list[HeldClaim | NodeAmount] = []
        for name, key in self._claim_names_and_keys(task):
            claim = self._claims.get(key)
            if claim is not None and claim.initial is not None:
                entries.append(HeldClaim(name, key, claim.initial[0]))
        if task.shape.dra_backed:
            entries += self._service.node_amounts(task.shape, row)
        return tuple(entries)

    def hold(self, task: Task, row: int, allocation: object, holding: int, sign: int) -> None:
        """Add a task to the users of its claims (sign 1) or remove it (-1)."""
        for entry in entries_of(allocation):
            if isinstance(entry, NodeAmount):
                self._holdings.charge(entry.axis, row, entry.amount, holding, sign)
                continue
            claim = self._claims.get(entry.key)
            if claim is None:
                claim = self._claims[entry.key] = ClaimInUse()
            before = claim.hold_state
            claim.users[holding] += sign
            if claim.allocation is None:
                claim.assign(entry.allocation, (task.shape, row, entry.name))
            assert claim.allocation is not None
            after = claim.hold_state
            if after != before:
                self._holdings.change(claim.allocation.exclusive_devices, before, after)
            if after == NOT_HELD:
                claim.release()
        self.cross_node_changes += self.affects_other_nodes(task.shape)

    def grant(self, state: State, request: PlacementRequest, row: int, *, idle: bool) -> object | None:
        """Devices for the claims of a task on a node; an evicted task keeps its own there if it can."""
        task, shape = request.task, request.shape
        evicted_from = state.evicted_from.get(task.key) if state.evicted_from else None
        if evicted_from is not None and evicted_from.row == row:
            held_allocation = next((grant.allocation for grant in evicted_from.grants if grant.ledger is self), None)
            if held_allocation is not None and self._may_stay(state, row, held_allocation):
                return held_allocation
        taken = self._holdings.busy if idle else self._holdings.promised
        if idle and self.overused_claim(shape, task, include_terminating=True) is not None:
            return None
        entries: list[HeldClaim | NodeAmount] = []
        new_claims: list[tuple[str, str, ClaimRequest]] = []
        retry_suffix = "#again" if evicted_from is not None else ""
        seen: set[str] = set()
        shared_devices: list[int] = []
        served: tuple[str, ...] = ()
        for claim, own_key in zip(shape.claims, own_keys(task), strict=True):
            if own_key in seen:
                continue
            seen.add(own_key)
            claim_in_use = self._claims.get(claim.key) if claim.key else None
            if claim_in_use is not None and claim_in_use.allocation is not None:
                reach = self._reach(claim_in_use)
                if (reach is not None and not reach[row]) or not self._may_join(claim_in_use):
                    return None
                entries.append(HeldClaim(claim.name, own_key, claim_in_use.allocation))
                shared_devices += claim_in_use.allocation.exclusive_devices
            elif claim.request is None:
                return None
            else:
                # A recreated pod has new claims from its templates; named claims stay the same.
                new_claims.append((claim.name, own_key if claim.key else own_key + retry_suffix, claim.request))
        if shape.dra_backed:
            node_amounts = self._service.node_amounts(shape, row)
            if not all(_node_has_amount(state, row, entry, idle=idle) for entry in node_amounts):
                return None
            entries += node_amounts
            served = self._service.served(shape, row)
            extended = self._service.claim_for(shape, served)[1] if served else None
            if isinstance(extended, ClaimRefusal):
                return None
            if extended is not None:
                new_claims.append((EXTENDED_CLAIM_NAME, extended_claim_key(task) + retry_suffix, extended))
        if new_claims:
            plan = self._plan(shape, served, tuple([each for _, _, each in new_claims]))
            allocations = allocate_by_plan(self.inventory, plan, row, _with_taken(taken, shared_devices))
            if isinstance(allocations, ClaimRefusal):
                return None
            entries += [
                HeldClaim(name, key, given) for (name, key, _), given in zip(new_claims, allocations, strict=True)
            ]
        return tuple(entries)

    def _may_stay(self, state: State, row: int, allocation: object) -> bool:
        """Whether no other claim holds or waits for the devices of an evicted task."""
        for entry in entries_of(allocation):
            if isinstance(entry, NodeAmount):
                if not _node_has_amount(state, row, entry, idle=False):
                    return False
                continue
            claim = self._claims[entry.key]
            if claim.allocation != entry.allocation or not self._may_join(claim):
                return False
        return True

    def _may_join(self, claim: ClaimInUse) -> bool:
        """Whether a claim keeps its devices: a user stays, or no other claim waits for them."""
        live, _, pipelined = claim.hold_state
        assert claim.allocation is not None
        return bool(live or pipelined) or are_available(
            self.inventory, claim.allocation.exclusive_devices, self._holdings.promised
        )

    def _reach(self, claim: ClaimInUse) -> BoolArray | None:
        """[node] from where the devices of a claim can be reached, None = from everywhere (gpu:D-10)."""
        if isinstance(claim.reachable, tuple):
            selector = self._result(claim).node_selector
            nodes = self._snapshot.nodes
            reach = None if selector is None else matches_any_term(nodes, selector.node_selector_terms)
            if caching.enabled:
                claim.reachable = reach
            return reach
        return claim.reachable

    def _result(self, claim: ClaimInUse) -> AllocationResult:
        """The allocation of a claim in wire form."""
        if claim.result is None:
            assert claim.first_user is not None, "only allocated claims have a result"
            assert claim.allocation is not None, "only allocated claims have a result"
            shape, row, name = claim.first_user
            request = self._request_of(shape, row, name)
            assert request is not None, "what was given was asked for"
            result = allocation_result(self.inventory, row, request, claim.allocation)
            if caching.enabled:
                claim.result = result
            return result
        return claim.result

    def _request_of(self, shape: Shape, row: int, name: str) -> ClaimRequest | None:
        if name == EXTENDED_CLAIM_NAME:
            extended = self._service.claim_request_at(shape, row)
            return None if isinstance(extended, ClaimRefusal) else extended
        return next((claim.request for claim in shape.claims if claim.name == name), None)

    def affects_other_nodes(self, shape: Shape) -> bool:
        """Whether an allocation on one node may change what another node can allocate."""
        affects_others = self._affects_other_nodes.get(shape.id)
        if affects_others is None:
            affects_others = any(claim.key for claim in shape.claims)
            requests = [claim.request for claim in shape.claims if claim.request is not None]
            if shape.dra_backed and not affects_others:
                extended = self._service.claim_for(shape, tuple(name for name, _ in shape.dra_backed))[1]
                requests += [] if isinstance(extended, ClaimRefusal) else [extended]
            affects_others = self._affects_other_nodes.store(
                shape.id, affects_others or reaches_other_nodes(self.inventory, requests)
            )
        return affects_others

    def refusal_codes(self, state: State, shape: Shape, rows: Rows, *, idle: bool = False) -> IntArray:
        """[rows] 0 where all claims can be satisfied, else NO_GPUS, UNREACHABLE or NO_DEVICES."""
        taken = self._holdings.busy if idle else self._holdings.promised
        numbers: IntArray = np.arange(len(self._snapshot.nodes))[rows] if isinstance(rows, slice) else rows
        codes: IntArray = np.zeros(len(numbers), dtype=np.int64)
        needs = self._needs_of(shape)
        if needs.is_unsatisfiable:
            codes[:] = NO_DEVICES
            return codes
        for claim in needs.allocated:
            reach = self._reach(claim)
            if reach is not None:
                codes[(codes == 0) & ~reach[numbers]] = UNREACHABLE
            assert claim.allocation is not None
            taken = _with_taken(taken, claim.allocation.exclusive_devices)
        plane = state.idle if idle else state.free
        if not shape.dra_backed:
            if needs.requests:
                undecided_rows = np.flatnonzero(codes == 0) if codes.any() else slice(None)
                fits = fits_plan(self.inventory, self._plan(shape, (), needs.requests), taken, numbers[undecided_rows])
                if not fits.all():
                    codes[undecided_rows] = np.where(
                        fits, 0, self._shortage_codes(plane, needs.gpus, numbers[undecided_rows])
                    )
            return codes
        for served, in_group in self._service.split_by_service(shape, numbers):
            extended = self._service.claim_for(shape, served)[1] if served else None
            for name, amount in shape.dra_backed:
                if name not in served:
                    short = in_group & (codes == 0) & (plane[self._snapshot.axes.index[name], numbers] < amount)
                    codes[short] = NO_GPUS if is_gpu(name) else NO_DEVICES
            undecided = np.flatnonzero(in_group & (codes == 0))
            if isinstance(extended, ClaimRefusal):
                codes[undecided] = NO_DEVICES
            elif len(undecided) and (needs.requests or extended is not None):
                plan = self._plan(shape, served, needs.requests if extended is None else (*needs.requests, extended))
                fits = fits_plan(self.inventory, plan, taken, numbers[undecided])
                codes[undecided] = np.where(fits, 0, self._shortage_codes(plane, needs.gpus, numbers[undecided]))
        return codes

    def refusal_code_at(self, state: State, shape: Shape, row: int, *, idle: bool = False) -> int:
        """`refusal_codes` for one node."""
        needs = self._needs_of(shape)
        if shape.dra_backed or needs.allocated or needs.is_unsatisfiable:
            return int(self.refusal_codes(state, shape, np.array([row]), idle=idle)[0])
        taken = self._holdings.busy if idle else self._holdings.promised
        if fits_at(self.inventory, self._plan(shape, (), needs.requests), taken, row):
            return 0
        return int(self._shortage_codes(state.idle if idle else state.free, needs.gpus, np.array([row]))[0])

    def _needs_of(self, shape: Shape) -> _ClaimNeeds:
        needs = self._needs_by_shape.get(shape.id)
        if needs is not None:
            return needs
        requests: list[ClaimRequest] = []
        allocated: dict[str, ClaimInUse] = {}
        seen: set[str] = set()
        gpus, is_unsatisfiable, has_named_claims = 0, False, False
        for claim in shape.claims:
            claim_in_use = self._claims.get(claim.key) if claim.key else None
            has_named_claims |= bool(claim.key)
            if claim_in_use is not None and claim_in_use.allocation is not None:
                allocated[claim.key] = claim_in_use
                is_unsatisfiable |= not self._may_join(claim_in_use)
            elif claim.request is None:
                is_unsatisfiable = True
            elif claim.key not in seen:
                requests.append(claim.request)
                gpus += claim.gpus
                seen.update([claim.key] if claim.key else [])
        needs = _ClaimNeeds(tuple(requests), gpus, tuple(allocated.values()), is_unsatisfiable)
        if not has_named_claims:
            # Named claims may get their devices later.
            self._needs_by_shape.store(shape.id, needs)
        return needs

    def _plan(self, shape: Shape, served: tuple[str, ...], requests: tuple[ClaimRequest, ...]) -> FeasibilityPlan:
        """How to count for the claims of a shape; mostly that of the last call."""
        key = (shape.id, served)
        plan = self._plans.get(key)
        if plan is None or (plan.claims is not requests and plan.claims != requests):
            plan = self._plans.store(key, feasibility_plan(self.inventory, requests))
        return plan

    def _shortage_codes(self, plane: IntArray, gpus: int, rows: IntArray) -> IntArray:
        """[rows] why there are no devices: the GPUs of the node do not suffice, or something else."""
        if not gpus or self._axis is None:
            return np.full(len(rows), NO_DEVICES)
        offered = self._snapshot.allocatable[self._axis, rows] > 0
        return np.where(offered & (plane[self._axis, rows] < gpus), NO_GPUS, NO_DEVICES)

    def allocator_failure_at(self, shape: Shape, row: int) -> str:
        """Why the allocator fails on a node, "" when it gives no reason."""
        requests = [claim.request for claim in shape.claims if claim.request is not None]
        extended = self._service.claim_request_at(shape, row)
        if isinstance(extended, ClaimRefusal):
            return extended.text
        for request in [*requests, *([extended] if extended is not None else [])]:
            for alternative in request.alternatives():
                failures = self.inventory.selection(alternative.selectors).failures
                for device in self.inventory.devices_at(row).tolist() if failures else ():
                    if device in failures:
                        return failures[device]
        broken = [str(pool) for pool in self.inventory.broken_pools_at(row)]
        return broken[0] if broken else ""

    def unreachable_claim(self, shape: Shape, row: int) -> str:
        """The claim of a shape whose devices cannot be reached from a node."""
        for claim in shape.claims:
            claim_in_use = self._claims.get(claim.key) if claim.key else None
            reach = (
                self._reach(claim_in_use) if claim_in_use is not None and claim_in_use.allocation is not None else None
            )
            if reach is not None and not reach[row]:
                return claim.key
        return ""

    def overused_claim(self, shape: Shape, task: Task, *, include_terminating: bool = False) -> str | None:
        """The claim that has too many users for one more (gpu:D-9), by choice including terminating ones."""
        for claim in shape.claims:
            claim_in_use = self._claims.get(claim.key) if claim.key else None
            if claim_in_use is None:
                continue
            users = (
                len(claim_in_use.unknown_users)
                + claim_in_use.unplaced_users
                + claim_in_use.users[LIVE]
                + claim_in_use.users[PIPELINED]
            )
            users += claim_in_use.users[RELEASING] if include_terminating else 0
            if users >= MAX_CONSUMERS and not self.is_reserved_for(claim.key, task):
                return claim.key
        return None

    def is_reserved_for(self, key: str, task: Task) -> bool:
        """Whether a claim is reserved for a task already."""
        claim = self._index.claims.get(key)
        return claim is not None and any(user.uid == task.uid for user in claim.status.reserved_for)

    def takes_at_least(self, shape: Shape) -> list[tuple[int, int, bool]]:
        """(axis, amount, strictly) that a pod takes of the columns of any node that has them, or (strictly) of any."""
        index = self._snapshot.axes.index
        amounts = [(index[name], amount, False) for name, amount in shape.dra_backed if name in index]
        requests = [claim.request for claim in shape.claims if claim.request is not None and not claim.key]
        gpus = minimum_devices(self.inventory, requests, self.inventory.whole_gpus())
        if gpus and self._axis is not None:
            amounts.append((self._axis, gpus, True))
        return amounts

    def frees_at_most(self, allocation: object) -> Iterator[tuple[int, int]]:
        """(axis, amount) that a pod with this allocation frees."""
        whole = self.inventory.whole_gpus()
        for entry in entries_of(allocation):
            if isinstance(entry, NodeAmount):
                yield entry.axis, entry.amount
            elif self._axis is not None:
                yield self._axis, sum(bool(whole[device]) for device in entry.allocation.exclusive_devices)

    def bind_fields(self, task: Task, row: int, allocation: object) -> dict[str, Any]:
        """What the claims of a pod get."""
        return {
            "claims": self.claim_allocations(task, allocation),
            "extended_claim": self.extended_claim_allocation(task, row, allocation),
        }

    def claim_allocations(self, task: Task, allocation: object) -> tuple[tuple[str, AllocationResult], ...]:
        """The claims of a pod in a BindRequest, one entry for each name in the pod (gpu:7)."""
        held = {entry.key for entry in entries_of(allocation) if isinstance(entry, HeldClaim)}
        names_and_keys = zip(task.shape.claims, own_keys(task), strict=True)
        return tuple((claim.name, self._result(self._claims[key])) for claim, key in names_and_keys if key in held)

    def extended_claim_allocation(
        self, task: Task, row: int, allocation: object
    ) -> ExtendedResourceClaimAllocation | None:
        """The same for the claim behind its extended resources."""
        for entry in entries_of(allocation):
            if isinstance(entry, HeldClaim) and entry.name == EXTENDED_CLAIM_NAME:
                requests = self._service.claim_for(task.shape, self._service.served(task.shape, row))[0]
                return ExtendedResourceClaimAllocation(
                    allocation=self._result(self._claims[entry.key]),
                    device_requests=list(requests.requests),
                    container_mappings=list(requests.mappings),
                )
        return None

    def agrees(self, held: Iterable[tuple[int, object, int]]) -> bool:
        """Whether the ledger equals what these tasks hold: node row, allocation, holding."""
        users: dict[str, list[int]] = {}
        allocations: dict[str, ClaimAllocation] = {}
        for _, allocation, holding in held:
            for entry in entries_of(allocation):
                if isinstance(entry, HeldClaim):
                    users.setdefault(entry.key, [0, 0, 0])[holding] += 1
                    if allocations.setdefault(entry.key, entry.allocation) != entry.allocation:
                        return False
        for key, claim in self._claims.items():
            if users.pop(key, [0, 0, 0]) != claim.users:
                return False
            if claim.allocation != allocations.get(
                key, claim.initial[0] if claim.unknown_users and claim.initial else None
            ):
                return False
        return not users and self._holdings.matches(self._sums())

    def column_charges(self, held: Iterable[tuple[int, object, int]]) -> IntArray:
        """[plane, axis, node] what these tasks change in the columns through the ledger."""
        columns = self._holdings.column_charges(self._sums())
        for row, allocation, holding in held:
            for entry in entries_of(allocation):
                if isinstance(entry, NodeAmount):
                    columns[:, entry.axis, row] += charge_planes(np.array([entry.amount]), holding)[:, 0]
        return columns

    def _sums(self) -> Any:
        held = [
            (claim.allocation.exclusive_devices, claim.hold_state)
            for claim in self._claims.values()
            if claim.allocation
        ]
        return self._holdings.sum_holders(held)


def _with_taken(taken: BoolArray, devices: Sequence[int]) -> BoolArray:
    """The column with more devices taken."""
    if devices:
        taken = taken.copy()
        taken[list(devices)] = True
    return taken


def _node_has_amount(state: State, row: int, entry: NodeAmount, *, idle: bool) -> bool:
    """Whether a node has an amount of its own, free or idle."""
    axis, amount = entry
    return bool(state.free[axis, row] >= amount and (not idle or state.idle[axis, row] >= amount))
