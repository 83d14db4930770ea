"""On which of many nodes claims can be satisfied.

Most claims ask for some devices of a kind and nothing else.  Then free devices are counted by node, for all nodes at
once, and the count is the whole answer: requests must not compete for devices, except for exactly the same ones.

For the others (alternatives, constraints, partitions, overlapping kinds, selectors that fail) counting rules out nodes
that cannot do, and the allocator decides about the rest.  Its answers are kept by what it looks at: nodes whose devices
are alike, and are taken alike, share one search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pykai.core.cluster.claims.inventory import FAILED, NO, YES, Inventory
from pykai.core.ledgers.claims.allocator import Allocation, Given, allocate
from pykai.core.model.axes import BoolArray, IntArray
from pykai.core.model.claimrequests import Alternative, ClaimAsk, Refusal

#: Up to so many nodes are looked at one by one.
_FEW: Final = 32
_MOST_ANSWERS: Final = 1 << 17


class _Need(NamedTuple):
    """What one alternative needs, for counting."""

    #: [device] may be chosen, or must be asked for by the allocator because a selector failed
    chosen: BoolArray
    #: [device] selected, whether it can be had or not
    every: BoolArray
    #: how many; 0 = all
    wanted: int
    admin: bool


class Plan(NamedTuple):
    """Claims as counts."""

    claims: tuple[ClaimAsk, ...]
    #: one entry a request: its alternatives
    requests: tuple[tuple[_Need, ...], ...]
    #: what all requests of one kind need together; complete when counting decides
    kinds: tuple[_Need, ...]
    #: counting is the whole answer
    exact: bool
    #: [device, fact] everything the allocator looks at
    facts: NDArray[np.int64]


class _Partitions(NamedTuple):
    """Devices that share counters."""

    #: [device] shares some
    sharing: BoolArray
    #: [device] 0, or a number for what it takes from which counter of its pool and how much of that there is
    shares: IntArray
    #: [device] its pool begins here; the shares of another pool have other counters
    begins: BoolArray
    #: [device] whatever it shares it shares with devices of the same node only
    inside: BoolArray


def plan_of(inventory: Inventory, claims: Sequence[ClaimAsk]) -> Plan:
    """What is known of claims whatever is taken; kept with the inventory."""
    asked = tuple(claims)
    return inventory.remember(("plan", asked), lambda: _plan(inventory, asked))


def reaches_far(inventory: Inventory, claims: Sequence[ClaimAsk]) -> bool:
    """Whether claims may get devices that other nodes reach too, or that share counters with those of other nodes."""
    partitions = inventory.remember("partitions", lambda: _partitions(inventory))
    far = (inventory.row < 0) | ~partitions.inside
    return bool(far.any()) and any(
        bool(((need.chosen | need.every) & far).any())
        for needs in plan_of(inventory, claims).requests
        for need in needs
    )


def least_of(inventory: Inventory, claims: Sequence[ClaimAsk], kind: BoolArray) -> int:
    """How many devices of a kind ([device]) claims get at least: those requests that can get no others."""
    if not claims:
        return 0
    requests = plan_of(inventory, claims).requests
    return sum(
        min(0 if need.admin or (need.chosen & ~kind).any() else need.wanted or 1 for need in ways) for ways in requests
    )


def fits(
    inventory: Inventory, claims: Sequence[ClaimAsk], taken: BoolArray, rows: slice | IntArray = slice(None)
) -> BoolArray:
    """[row asked] whether `allocate` finds devices for all claims there; `taken` is [device]."""
    return fits_plan(inventory, plan_of(inventory, claims), taken, rows)


def fits_plan(inventory: Inventory, plan: Plan, taken: BoolArray, rows: slice | IntArray) -> BoolArray:
    """`fits` for claims that are asked about often."""
    numbers = np.arange(len(inventory.node_names))[rows] if isinstance(rows, slice) else rows
    counted = np.ones(len(numbers), dtype=np.bool_)
    if plan.exact:
        for need in plan.kinds:
            counted &= _enough(inventory, need, taken, rows)
        return counted
    for ways in plan.requests:
        some = np.zeros_like(counted)
        for need in ways:
            some |= _enough(inventory, need, taken, rows)
        counted &= some
    for at in np.flatnonzero(counted).tolist():
        counted[at] = _searched(inventory, plan, int(numbers[at]), taken)
    return counted


def fits_at(inventory: Inventory, plan: Plan, taken: BoolArray, row: int) -> bool:
    """`fits_plan` for one node."""
    if plan.exact:
        return all(_enough_at(inventory, need, taken, row) for need in plan.kinds)
    for ways in plan.requests:
        if not any(_enough_at(inventory, need, taken, row) for need in ways):
            return False
    return _searched(inventory, plan, row, taken)


def give(inventory: Inventory, plan: Plan, row: int, taken: BoolArray) -> tuple[Allocation, ...] | Refusal:
    """`allocate`, without a search where counting is the whole answer: the first free devices in order."""
    if not plan.exact:
        return allocate(inventory, row, plan.claims, taken)
    devices = inventory.at(row)
    used: set[int] = set()
    needs = iter(plan.requests)
    found: list[Allocation] = []
    for claim in plan.claims:
        given: list[Given] = []
        takes: list[int] = []
        for _ in claim.requests:
            (need,) = next(needs)
            chosen = need.chosen[devices]
            free = devices[chosen if need.admin else chosen > taken[devices]].tolist()
            picked = [device for device in free if need.admin or device not in used][: need.wanted]
            if len(picked) < need.wanted:
                # It knows what else to say.
                return allocate(inventory, row, plan.claims, taken)
            given.append(Given(0, tuple(picked)))
            if not need.admin:
                used.update(picked)
                takes += picked
        found.append(Allocation(tuple(given), tuple(sorted(takes))))
    return tuple(found)


def _enough(inventory: Inventory, need: _Need, taken: BoolArray, rows: slice | IntArray) -> BoolArray:
    if not isinstance(rows, slice) and len(rows) <= _FEW:
        return np.array([_enough_at(inventory, need, taken, row) for row in rows.tolist()], dtype=np.bool_)
    free = need.chosen if need.admin else need.chosen & ~taken
    have = inventory.count_by_node(free)[rows]
    # All devices are enough when there is one, and none that cannot be had.
    least: int | IntArray = need.wanted or np.maximum(inventory.count_by_node(need.every)[rows], 1)
    return np.greater_equal(have, least)


def _enough_at(inventory: Inventory, need: _Need, taken: BoolArray, row: int) -> bool:
    """`_enough` for one node."""
    devices = inventory.at(row)
    chosen = need.chosen[devices]
    have = int(np.count_nonzero(chosen if need.admin else chosen > taken[devices]))
    return have >= (need.wanted or max(int(np.count_nonzero(need.every[devices])), 1))


def _searched(inventory: Inventory, plan: Plan, row: int, taken: BoolArray) -> bool:
    claims = plan.claims
    devices = inventory.at(row)
    partitions = inventory.remember("partitions", lambda: _partitions(inventory))
    if inventory.broken_at(row) or not partitions.inside[devices].all():
        return not isinstance(allocate(inventory, row, claims, taken), Refusal)
    key = (claims, plan.facts[devices].tobytes(), taken[devices].tobytes())
    answers = inventory.remember("answers", dict[object, bool])
    answer = answers.get(key)
    if answer is None:
        if len(answers) >= _MOST_ANSWERS:
            answers.clear()
        answer = answers[key] = not isinstance(allocate(inventory, row, claims, taken), Refusal)
    return answer


def _plan(inventory: Inventory, claims: tuple[ClaimAsk, ...]) -> Plan:
    requests = tuple(
        tuple(_need(inventory, way) for way in request.alternatives) for claim in claims for request in claim.requests
    )
    ways = [way for claim in claims for way in claim.alternatives()]
    columns = [inventory.selection(way.selectors).verdicts.astype(np.int64) for way in ways]
    partitions = inventory.remember("partitions", lambda: _partitions(inventory))
    simple = (
        not any((column == FAILED).any() for column in columns)
        and not any((need.chosen & partitions.sharing).any() for needs in requests for need in needs)
        and all(len(needs) == 1 for needs in requests)
        and not any(claim.constraints for claim in claims)
        # With all devices of a node the limit of results and unfinished pools come in: the allocator knows both.
        and all(way.wanted for way in ways)
    )
    kinds = _together([needs[0] for needs in requests]) if simple else None
    columns += [inventory.tolerated(way).astype(np.int64) for way in ways]
    columns += [inventory.attribute(item.attribute) for claim in claims for item in claim.constraints]
    columns += [inventory.plain.astype(np.int64), partitions.shares, partitions.begins.astype(np.int64)]
    return Plan(claims, requests, kinds or (), kinds is not None, np.stack(columns, axis=1))


def _need(inventory: Inventory, way: Alternative) -> _Need:
    verdicts = inventory.selection(way.selectors).verdicts
    return _Need(
        chosen=(verdicts != NO) & inventory.plain & inventory.tolerated(way),
        every=(verdicts == YES) & inventory.plain,
        wanted=way.wanted,
        admin=way.admin,
    )


def _together(needs: list[_Need]) -> tuple[_Need, ...] | None:
    """Needs of the same devices added up; None when some overlap otherwise."""
    kinds: list[_Need] = []
    for need in needs:
        for at, kind in enumerate(kinds):
            if need.admin or kind.admin:
                continue
            if np.array_equal(need.chosen, kind.chosen):
                kinds[at] = kind._replace(wanted=kind.wanted + need.wanted)
                break
            if (need.chosen & kind.chosen).any():
                return None
        else:
            kinds.append(need)
    return tuple(kinds)


def _partitions(inventory: Inventory) -> _Partitions:
    pools = [identity[:2] for identity in inventory.ids]
    begins = [number == 0 or pools[number - 1] != pool for number, pool in enumerate(pools)]
    shares = np.zeros(len(inventory), dtype=np.int64)
    inside = np.ones(len(inventory), dtype=np.bool_)
    codes: dict[object, int] = {}
    # Counters of a pool are numbered one after the other, so the least one of a pool stands for its first.
    first: dict[tuple[str, str], int] = {}
    for number, uses in inventory.uses.items():
        first[pools[number]] = min(first.get(pools[number], uses[0][0]), uses[0][0])
    homes = [set(inventory.row[users].tolist()) for users in inventory.users]
    for number, uses in inventory.uses.items():
        base, home = first[pools[number]], int(inventory.row[number])
        code = tuple((counter - base, amount, inventory.limits[counter]) for counter, amount in uses)
        shares[number] = codes.setdefault(code, len(codes) + 1)
        inside[number] = home >= 0 and all(homes[counter] == {home} for counter, _ in uses)
    return _Partitions(shares > 0, shares, np.array(begins, dtype=np.bool_), inside)
