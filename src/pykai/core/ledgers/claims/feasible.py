"""On which of many nodes claims can be satisfied.

Most claims request some devices of one kind and nothing else.  Then free devices are counted by node, for all nodes at
once, and the count is the whole answer: requests must not compete for devices, except for exactly the same ones.

For the others (alternatives, constraints, partitions, overlapping kinds, selectors that fail) counting rules out nodes,
and the allocator decides about the rest.  Its results are kept by what it reads: nodes whose devices are alike, and
taken alike, share one search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pykai.core.caching import Cache
from pykai.core.cluster.claims.inventory import FAILED, MATCHED, NOT_MATCHED, Inventory
from pykai.core.ledgers.claims.allocator import ClaimAllocation, RequestAllocation, allocate
from pykai.core.model.axes import BoolArray, IntArray
from pykai.core.model.claimrequests import Alternative, ClaimRefusal, ClaimRequest

#: Up to this many nodes are checked one by one.
_FEW_ROWS: Final = 32
_MAX_ANSWERS: Final = 1 << 17


class _DeviceNeed(NamedTuple):
    """What one alternative needs, for counting."""

    #: [device] may be chosen, or is left to the allocator because a selector failed
    choosable: BoolArray
    #: [device] selected, whether available or not
    selected: BoolArray
    #: how many; 0 = all
    device_count: int
    admin_access: bool


class FeasibilityPlan(NamedTuple):
    """Claims as counts."""

    claims: tuple[ClaimRequest, ...]
    #: one entry a request: its alternatives
    requests: tuple[tuple[_DeviceNeed, ...], ...]
    #: what all requests of one kind need together; complete when counting decides
    merged_needs: tuple[_DeviceNeed, ...]
    #: counting alone decides
    is_exact: bool
    #: [device, fact] everything the allocator reads
    facts: NDArray[np.int64]


class _DevicePartitions(NamedTuple):
    """Devices that share counters."""

    #: [device] shares some
    sharing: BoolArray
    #: [device] 0, or a number for what it takes from which counter of its pool and how much of that there is
    shares: IntArray
    #: [device] its pool begins here; the shares of another pool have other counters
    begins: BoolArray
    #: [device] shares counters with devices of the same node only
    node_local: BoolArray


def feasibility_plan(inventory: Inventory, claims: Sequence[ClaimRequest]) -> FeasibilityPlan:
    """What is known of claims whichever devices are taken; kept with the inventory."""
    claim_requests = tuple(claims)
    return inventory.remember(("plan", claim_requests), lambda: _build_plan(inventory, claim_requests))


def reaches_other_nodes(inventory: Inventory, claims: Sequence[ClaimRequest]) -> bool:
    """Whether claims may get devices that other nodes reach too, or that share counters with those of other nodes."""
    partitions = inventory.remember("partitions", lambda: _partitions(inventory))
    far = (inventory.node_row < 0) | ~partitions.node_local
    return bool(far.any()) and any(
        bool(((need.choosable | need.selected) & far).any())
        for needs in feasibility_plan(inventory, claims).requests
        for need in needs
    )


def minimum_devices(inventory: Inventory, claims: Sequence[ClaimRequest], kind: BoolArray) -> int:
    """How many devices of a kind ([device]) claims get at least: those requests that can get no others."""
    if not claims:
        return 0
    requests = feasibility_plan(inventory, claims).requests
    return sum(
        min(0 if need.admin_access or (need.choosable & ~kind).any() else need.device_count or 1 for need in ways)
        for ways in requests
    )


def fits_plan(inventory: Inventory, plan: FeasibilityPlan, taken: BoolArray, rows: slice | IntArray) -> BoolArray:
    """[row asked] whether `allocate` finds devices for all claims there; `taken` is [device]."""
    numbers = np.arange(len(inventory.node_names))[rows] if isinstance(rows, slice) else rows
    fits_mask = np.ones(len(numbers), dtype=np.bool_)
    if plan.is_exact:
        for need in plan.merged_needs:
            fits_mask &= _has_enough(inventory, need, taken, rows)
        return fits_mask
    for alternatives in plan.requests:
        any_alternative = np.zeros_like(fits_mask)
        for need in alternatives:
            any_alternative |= _has_enough(inventory, need, taken, rows)
        fits_mask &= any_alternative
    for position in np.flatnonzero(fits_mask).tolist():
        fits_mask[position] = _search_finds(inventory, plan, int(numbers[position]), taken)
    return fits_mask


def fits_at(inventory: Inventory, plan: FeasibilityPlan, taken: BoolArray, row: int) -> bool:
    """`fits_plan` for one node."""
    if plan.is_exact:
        return all(_has_enough_at(inventory, need, taken, row) for need in plan.merged_needs)
    for alternatives in plan.requests:
        if not any(_has_enough_at(inventory, need, taken, row) for need in alternatives):
            return False
    return _search_finds(inventory, plan, row, taken)


def allocate_by_plan(
    inventory: Inventory, plan: FeasibilityPlan, row: int, taken: BoolArray
) -> tuple[ClaimAllocation, ...] | ClaimRefusal:
    """`allocate`, without a search where counting alone decides: the first free devices in order."""
    if not plan.is_exact:
        return allocate(inventory, row, plan.claims, taken)
    devices = inventory.devices_at(row)
    used: set[int] = set()
    needs = iter(plan.requests)
    allocations: list[ClaimAllocation] = []
    for claim in plan.claims:
        request_allocations: list[RequestAllocation] = []
        exclusive_devices: list[int] = []
        for _ in claim.requests:
            (need,) = next(needs)
            chosen = need.choosable[devices]
            free = devices[chosen if need.admin_access else chosen > taken[devices]].tolist()
            chosen_devices = [device for device in free if need.admin_access or device not in used][: need.device_count]
            if len(chosen_devices) < need.device_count:
                # The allocator gives the reason.
                return allocate(inventory, row, plan.claims, taken)
            request_allocations.append(RequestAllocation(0, tuple(chosen_devices)))
            if not need.admin_access:
                used.update(chosen_devices)
                exclusive_devices += chosen_devices
        allocations.append(ClaimAllocation(tuple(request_allocations), tuple(sorted(exclusive_devices))))
    return tuple(allocations)


def _has_enough(inventory: Inventory, need: _DeviceNeed, taken: BoolArray, rows: slice | IntArray) -> BoolArray:
    if not isinstance(rows, slice) and len(rows) <= _FEW_ROWS:
        return np.array([_has_enough_at(inventory, need, taken, row) for row in rows.tolist()], dtype=np.bool_)
    free = need.choosable if need.admin_access else need.choosable & ~taken
    have = inventory.count_by_node(free)[rows]
    # "All devices" needs at least one, and all of them available.
    least: int | IntArray = need.device_count or np.maximum(inventory.count_by_node(need.selected)[rows], 1)
    return np.greater_equal(have, least)


def _has_enough_at(inventory: Inventory, need: _DeviceNeed, taken: BoolArray, row: int) -> bool:
    """`_enough` for one node."""
    devices = inventory.devices_at(row)
    chosen = need.choosable[devices]
    have = int(np.count_nonzero(chosen if need.admin_access else chosen > taken[devices]))
    return have >= (need.device_count or max(int(np.count_nonzero(need.selected[devices])), 1))


def _search_finds(inventory: Inventory, plan: FeasibilityPlan, row: int, taken: BoolArray) -> bool:
    claims = plan.claims
    devices = inventory.devices_at(row)
    partitions = inventory.remember("partitions", lambda: _partitions(inventory))
    if inventory.broken_pools_at(row) or not partitions.node_local[devices].all():
        return not isinstance(allocate(inventory, row, claims, taken), ClaimRefusal)
    key = (claims, plan.facts[devices].tobytes(), taken[devices].tobytes())
    answers = inventory.remember("answers", _no_answers)
    answer = answers.get(key)
    if answer is None:
        answer = answers.store(key, not isinstance(allocate(inventory, row, claims, taken), ClaimRefusal))
    return answer


def _no_answers() -> Cache[object, bool]:
    return Cache(_MAX_ANSWERS)


def _build_plan(inventory: Inventory, claims: tuple[ClaimRequest, ...]) -> FeasibilityPlan:
    requests = tuple(
        tuple(_device_need(inventory, way) for way in request.alternatives)
        for claim in claims
        for request in claim.requests
    )
    alternatives = [way for claim in claims for way in claim.alternatives()]
    columns = [inventory.selection(way.selectors).results.astype(np.int64) for way in alternatives]
    partitions = inventory.remember("partitions", lambda: _partitions(inventory))
    is_countable = (
        not any((column == FAILED).any() for column in columns)
        and not any((need.choosable & partitions.sharing).any() for needs in requests for need in needs)
        and all(len(needs) == 1 for needs in requests)
        and not any(claim.constraints for claim in claims)
        # With all devices of a node the limit of results and unfinished pools come in: the allocator knows both.
        and all(way.device_count for way in alternatives)
    )
    merged_needs = _merge_needs([needs[0] for needs in requests]) if is_countable else None
    columns += [inventory.tolerable(way).astype(np.int64) for way in alternatives]
    columns += [inventory.attribute(item.attribute) for claim in claims for item in claim.constraints]
    columns += [inventory.usable_at_once.astype(np.int64), partitions.shares, partitions.begins.astype(np.int64)]
    return FeasibilityPlan(claims, requests, merged_needs or (), merged_needs is not None, np.stack(columns, axis=1))


def _device_need(inventory: Inventory, alternative: Alternative) -> _DeviceNeed:
    results = inventory.selection(alternative.selectors).results
    return _DeviceNeed(
        choosable=(results != NOT_MATCHED) & inventory.usable_at_once & inventory.tolerable(alternative),
        selected=(results == MATCHED) & inventory.usable_at_once,
        device_count=alternative.device_count,
        admin_access=alternative.admin_access,
    )


def _merge_needs(needs: list[_DeviceNeed]) -> tuple[_DeviceNeed, ...] | None:
    """Needs of the same devices added up; None when some overlap otherwise."""
    merged: list[_DeviceNeed] = []
    for need in needs:
        for position, merged_need in enumerate(merged):
            if need.admin_access or merged_need.admin_access:
                continue
            if np.array_equal(need.choosable, merged_need.choosable):
                merged[position] = merged_need._replace(device_count=merged_need.device_count + need.device_count)
                break
            if (need.choosable & merged_need.choosable).any():
                return None
        else:
            merged.append(need)
    return tuple(merged)


def _partitions(inventory: Inventory) -> _DevicePartitions:
    pools = [identity[:2] for identity in inventory.ids]
    begins = [number == 0 or pools[number - 1] != pool for number, pool in enumerate(pools)]
    shares = np.zeros(len(inventory), dtype=np.int64)
    inside = np.ones(len(inventory), dtype=np.bool_)
    codes: dict[object, int] = {}
    # Counters of a pool are numbered one after the other, so the least one of a pool stands for its first.
    first: dict[tuple[str, str], int] = {}
    for number, uses in inventory.counter_use.items():
        first[pools[number]] = min(first.get(pools[number], uses[0][0]), uses[0][0])
    homes = [set(inventory.node_row[users].tolist()) for users in inventory.counter_users]
    for number, uses in inventory.counter_use.items():
        base, home = first[pools[number]], int(inventory.node_row[number])
        code = tuple((counter - base, amount, inventory.counter_limits[counter]) for counter, amount in uses)
        shares[number] = codes.setdefault(code, len(codes) + 1)
        inside[number] = home >= 0 and all(homes[counter] == {home} for counter, _ in uses)
    return _DevicePartitions(shares > 0, shares, np.array(begins, dtype=np.bool_), inside)
