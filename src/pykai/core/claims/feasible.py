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

from pykai.core.axes import BoolArray, IntArray
from pykai.core.claims.allocator import allocate
from pykai.core.claims.asks import Alternative, ClaimAsk, Refusal
from pykai.core.claims.inventory import FAILED, NO, YES, Inventory

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


class _Plan(NamedTuple):
    """Claims as counts."""

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


def fits(
    inventory: Inventory, claims: Sequence[ClaimAsk], taken: BoolArray, rows: slice | IntArray = slice(None)
) -> BoolArray:
    """[row asked] whether `allocate` finds devices for all claims there; `taken` is [device]."""
    asked = tuple(claims)
    plan = inventory.remember(("plan", asked), lambda: _plan(inventory, asked))
    counted = np.ones(len(np.arange(len(inventory.node_names))[rows]), dtype=np.bool_)
    if plan.exact:
        for need in plan.kinds:
            counted &= _enough(inventory, need, taken, rows)
        return counted
    for ways in plan.requests:
        some = np.zeros_like(counted)
        for need in ways:
            some |= _enough(inventory, need, taken, rows)
        counted &= some
    numbers = np.arange(len(inventory.node_names))[rows]
    for at in np.flatnonzero(counted).tolist():
        counted[at] = _searched(inventory, plan, asked, int(numbers[at]), taken)
    return counted


def _enough(inventory: Inventory, need: _Need, taken: BoolArray, rows: slice | IntArray) -> BoolArray:
    free = need.chosen if need.admin else need.chosen & ~taken
    have = _counts(inventory, free, rows)
    # All devices are enough when there is one, and none that cannot be had.
    least: int | IntArray = need.wanted or np.maximum(_counts(inventory, need.every, rows), 1)
    return np.greater_equal(have, least)


def _counts(inventory: Inventory, chosen: BoolArray, rows: slice | IntArray) -> IntArray:
    if isinstance(rows, slice) or len(rows) > _FEW:
        return inventory.count_by_node(chosen)[rows]
    return np.array([np.count_nonzero(chosen[inventory.at(row)]) for row in rows.tolist()], dtype=np.int64)


def _searched(inventory: Inventory, plan: _Plan, claims: tuple[ClaimAsk, ...], row: int, taken: BoolArray) -> bool:
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


def _plan(inventory: Inventory, claims: tuple[ClaimAsk, ...]) -> _Plan:
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
    return _Plan(requests, kinds or (), kinds is not None, np.stack(columns, axis=1))


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
