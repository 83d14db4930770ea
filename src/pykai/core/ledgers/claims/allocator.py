"""Which devices of one node satisfy claims: a depth-first search by claim and request (gpu:D-19 to D-23).

Devices are tried in the order of the inventory and the first full solution wins, so equal input gives equal devices.
Alternatives of a request (`firstAvailable`) are tried best first.  A device serves one request; with administrative
access a request looks at devices that others hold and takes none.  Devices that wait for a driver's consent
(`bindingConditions`) are never given, tainted ones only to requests that bear the taint, and partitions only as long as
the counters they share suffice.

The search is exhaustive but does no work in vain: before each choice it counts what can still be chosen, and when a
device leads nowhere, devices like it (selected by the same requests, equal in all attributes that constraints name,
taking from the same counters) are not tried in its place.  What is left of hopeless searches ends after `STEPS`
choices, and the refusal says so.

A selector that fails on a device ends the search when, and only when, the search comes to that device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from pykai.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from pykai.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    DeviceToleration,
    OpaqueConfiguration,
)
from pykai.core.cluster.claims.inventory import EVERYWHERE, FAILED, YES, Inventory
from pykai.core.model.axes import BoolArray
from pykai.core.model.claimrequests import MOST_RESULTS, Alternative, ClaimAsk, Config, Refusal, names

#: Choices of one search before it gives up.
STEPS: Final = 20_000


class Given(NamedTuple):
    """What one request got."""

    #: which alternative
    alternative: int
    devices: tuple[int, ...]


class Allocation(NamedTuple):
    """What one claim got, by request; numbers are those of the inventory it was made from."""

    requests: tuple[Given, ...]
    #: devices nobody else may have now, in order; those looked at by administrators are not among them
    takes: tuple[int, ...]


def allocate(
    inventory: Inventory, row: int, claims: Sequence[ClaimAsk], taken: BoolArray, *, steps: int = STEPS
) -> tuple[Allocation, ...] | Refusal:
    """Devices for all claims on one node, or why not; `taken` is [device]."""
    search = _Search(inventory, row, claims, taken, steps)
    try:
        found = search.run()
    except _Abort as abort:
        return Refusal(str(abort))
    if found:
        return search.allocations()
    invalid = [pool for pool in inventory.broken_at(row) if not pool.incomplete]
    return Refusal(str(invalid[0])) if invalid else Refusal()


def available(inventory: Inventory, devices: Sequence[int], taken: BoolArray) -> bool:
    """Whether devices that were once given could be given again: none taken, counters suffice."""
    if any(taken[device] for device in devices):
        return False
    uses = [inventory.uses.get(device, ()) for device in devices]
    left = inventory.left({counter for shares in uses for counter, _ in shares}, taken)
    for shares in uses:
        for counter, amount in shares:
            left[counter] -= amount
    return all(amount >= 0 for amount in left.values())


class _Abort(Exception):
    """The search cannot go on."""


class _Rule(NamedTuple):
    """A constraint of a claim, with the devices of this node."""

    #: numbers of its values; 0 = has it not
    codes: list[int]
    distinct: bool
    #: how often each value is chosen so far
    chosen: dict[int, int]


class _Way(NamedTuple):
    """An alternative on this node."""

    number: int
    needs: int
    #: places (see `_Search`) that may be chosen, in order
    places: list[int]
    #: places where its selectors failed
    failed: dict[int, str]
    rules: list[_Rule]
    admin: bool
    #: why the search ends when it comes to this alternative, "" when it does not
    abort: str = ""


class _Turn(NamedTuple):
    """A request of a claim."""

    claim: int
    ways: list[_Way]


class _Search:
    """The devices of one node by `place` (0, 1, ... among those the node reaches) and what is chosen so far."""

    __slots__ = (
        "_claims",
        "_inventory",
        "_kinds",
        "_left",
        "_numbers",
        "_picks",
        "_results",
        "_row",
        "_rules",
        "_steps",
        "_taken",
        "_turns",
        "_used",
        "_uses",
    )

    def __init__(
        self, inventory: Inventory, row: int, claims: Sequence[ClaimAsk], taken: BoolArray, steps: int
    ) -> None:
        self._inventory = inventory
        self._row = row
        self._claims = claims
        self._taken = taken
        self._steps = steps
        self._numbers = inventory.at(row)
        self._used = [False] * len(self._numbers)
        self._results = [0] * len(claims)
        self._rules: list[_Rule] = []
        self._turns: list[_Turn] = []
        #: alternative and places by turn
        self._picks: list[tuple[_Way, list[int]]] = []
        self._kinds: dict[int, tuple[object, ...]] = {}
        self._uses = {
            place: shares
            for place, number in enumerate(self._numbers.tolist() if inventory.uses else ())
            if (shares := inventory.uses.get(number))
        }
        self._left = inventory.left({counter for shares in self._uses.values() for counter, _ in shares}, taken)

    def run(self) -> bool:
        for number, claim in enumerate(self._claims):
            rules = [
                _Rule(self._inventory.attribute(item.attribute)[self._numbers].tolist(), item.distinct, {})
                for item in claim.constraints
            ]
            self._rules += rules
            for request in claim.requests:
                ways = []
                for index, alternative in enumerate(request.alternatives):
                    bound = [
                        rule
                        for rule, item in zip(rules, claim.constraints, strict=True)
                        if item.covers(alternative.name)
                    ]
                    way = self._way(index, alternative, bound)
                    if way is not None:
                        ways.append(way)
                if not ways:
                    return False
                self._turns.append(_Turn(number, ways))
        return self._request(0)

    def _way(self, index: int, alternative: Alternative, rules: list[_Rule]) -> _Way | None:
        """The alternative with the devices it may choose from; None when they cannot suffice."""
        inventory, numbers = self._inventory, self._numbers
        verdicts, failures = inventory.selection(alternative.selectors)
        verdicts = verdicts[numbers]
        usable = inventory.plain[numbers]
        free = inventory.tolerated(alternative)[numbers]
        if not alternative.admin:
            free = free & ~self._taken[numbers]
        if alternative.wanted:
            places = np.flatnonzero((verdicts != 0) & usable & free).tolist()
            failed = {place: failures[int(numbers[place])] for place in places if verdicts[place] == FAILED}
            enough = len(places) >= alternative.wanted or failed
            return _Way(index, alternative.wanted, places, failed, rules, alternative.admin) if enough else None
        every = (verdicts == YES) & usable
        places = np.flatnonzero(every).tolist()
        aborts = [
            f"request {alternative.name} is for all devices, but {pool}" for pool in inventory.broken_at(self._row)
        ]
        aborts += [failures[number] for number in numbers[(verdicts == FAILED) & usable].tolist()]
        if not aborts and not (places and free[every].all()):
            return None
        return _Way(index, len(places), places, {}, rules, alternative.admin, aborts[0] if aborts else "")

    def _request(self, at: int) -> bool:
        if at == len(self._turns):
            return True
        claim, ways = self._turns[at]
        for way in ways:
            if way.abort:
                raise _Abort(way.abort)
            if self._results[claim] + way.needs > MOST_RESULTS:
                continue
            self._results[claim] += way.needs
            self._picks.append((way, []))
            if self._pick(at, way.places):
                return True
            self._picks.pop()
            self._results[claim] -= way.needs
        return False

    def _pick(self, at: int, places: list[int]) -> bool:
        """Choose the next device of a request from these places."""
        way, picked = self._picks[at]
        needed = way.needs - len(picked)
        if not needed:
            return self._request(at + 1)
        # What cannot be chosen now cannot be chosen further down either.
        places = [place for place in places if self._may(way, place)]
        hopeless: set[object] = set()
        for index, place in enumerate(places):
            if len(places) - index < needed and not way.failed:
                return False
            if place in way.failed:
                raise _Abort(way.failed[place])
            if hopeless and self._kind(place) in hopeless:
                continue
            self._steps -= 1
            if self._steps < 0:
                raise _Abort(
                    "the search for devices was given up after too many steps; ask for less, or constrain less"
                )
            self._change(way, place, 1)
            picked.append(place)
            if self._pick(at, places[index + 1 :]):
                return True
            picked.pop()
            self._change(way, place, -1)
            hopeless.add(self._kind(place))
        return False

    def _may(self, way: _Way, place: int) -> bool:
        """Whether nothing chosen so far speaks against this device."""
        if place in way.failed:
            return True
        for rule in way.rules:
            code = rule.codes[place]
            if not code or (rule.chosen and (code in rule.chosen) == rule.distinct):
                return False
        if way.admin:
            return True
        if self._used[place]:
            return False
        return all(amount <= self._left[counter] for counter, amount in self._uses.get(place, ()))

    def _change(self, way: _Way, place: int, sign: int) -> None:
        """Choose a device, or take that back."""
        for rule in way.rules:
            code = rule.codes[place]
            count = rule.chosen.get(code, 0) + sign
            if count:
                rule.chosen[code] = count
            else:
                del rule.chosen[code]
        if not way.admin:
            self._used[place] = sign > 0
            for counter, amount in self._uses.get(place, ()):
                self._left[counter] -= sign * amount

    def _kind(self, place: int) -> tuple[object, ...]:
        """Devices of one kind are interchangeable in every solution."""
        kind = self._kinds.get(place)
        if kind is None:
            chosen_by = tuple((place in way.places, place in way.failed) for turn in self._turns for way in turn.ways)
            kind = (chosen_by, tuple(rule.codes[place] for rule in self._rules), self._uses.get(place, ()))
            self._kinds[place] = kind
        return kind

    def allocations(self) -> tuple[Allocation, ...]:
        """What was found, by claim."""
        given: list[list[Given]] = [[] for _ in self._claims]
        takes: list[list[int]] = [[] for _ in self._claims]
        for turn, (way, places) in zip(self._turns, self._picks, strict=True):
            numbers = tuple(int(self._numbers[place]) for place in places)
            given[turn.claim].append(Given(way.number, numbers))
            if not way.admin:
                takes[turn.claim] += numbers
        return tuple(Allocation(tuple(parts), tuple(sorted(all_))) for parts, all_ in zip(given, takes, strict=True))


def result_of(inventory: Inventory, row: int, claim: ClaimAsk, allocation: Allocation) -> AllocationResult:
    """The allocation as the claim's status and a BindRequest tell it (gpu:D-22)."""
    chosen = [
        (request.alternatives[given.alternative], given.devices)
        for request, given in zip(claim.requests, allocation.requests, strict=True)
    ]
    results = [
        DeviceRequestAllocationResult(
            request=way.name,
            driver=inventory.ids[number].driver,
            pool=inventory.ids[number].pool,
            device=inventory.ids[number].device,
            admin_access=True if way.admin else None,
            tolerations=[
                DeviceToleration(
                    key=item.key,
                    operator=item.operator,
                    value=item.value,
                    effect=item.effect,
                    toleration_seconds=item.seconds,
                )
                for item in way.tolerations
            ],
        )
        for way, devices in chosen
        for number in devices
    ]
    return AllocationResult(
        devices=DeviceAllocationResult(results=results, config=_config(claim, [way for way, _ in chosen])),
        node_selector=_node_selector(inventory, row, [number for _, devices in chosen for number in devices]),
    )


def _config(claim: ClaimAsk, ways: list[Alternative]) -> list[DeviceAllocationConfiguration]:
    """Parameters of the classes, each once with the requests that use it, then those of the claim that apply."""
    users: dict[str, list[str]] = {}
    for way in ways:
        users.setdefault(way.device_class, []).append(way.name)
    configs = {way.device_class: way.class_config for way in ways}
    found = [_allocated("FromClass", config, requests) for name, requests in users.items() for config in configs[name]]
    for config in claim.config:
        if any(names(config.requests, way.name) for way in ways):
            found.append(_allocated("FromClaim", config, list(config.requests)))
    return found


def _allocated(source: str, config: Config, requests: list[str]) -> DeviceAllocationConfiguration:
    opaque = OpaqueConfiguration(driver=config.driver, parameters=msgspec.json.decode(config.parameters))
    return DeviceAllocationConfiguration(source=source, requests=requests, opaque=opaque)


def _node_selector(inventory: Inventory, row: int, numbers: list[int]) -> NodeSelector | None:
    """Nodes the devices can be used from: the one they are on, those that all their selectors match, or every node."""
    terms: list[NodeSelectorTerm] = []
    local = False
    for number in numbers:
        place = int(inventory.row[number])
        if place >= 0:
            local = True
        elif place != EVERYWHERE:
            said = inventory.sets[int(inventory.set_of[number])].selector.node_selector_terms
            # Alternatives cannot be merged with other selectors, so the claim stays on this node.
            local |= len(said) != 1
            terms += said
    if local:
        pin = NodeSelectorRequirement(key="metadata.name", operator="In", values=(inventory.node_names[row],))
        return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(pin,)),))
    if not terms:
        return None
    merged = NodeSelectorTerm(
        match_expressions=_distinct(item for term in terms for item in term.match_expressions),
        match_fields=_distinct(item for term in terms for item in term.match_fields),
    )
    return NodeSelector(node_selector_terms=(merged,))


def _distinct(requirements: Iterable[NodeSelectorRequirement]) -> tuple[NodeSelectorRequirement, ...]:
    found: list[NodeSelectorRequirement] = []
    for requirement in requirements:
        if requirement not in found:
            found.append(requirement)
    return tuple(found)
