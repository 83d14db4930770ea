"""Which devices of one node satisfy claims: a depth-first search by claim and request (gpu:D-19 to D-23).

Devices are tried in the order of the inventory and the first full solution wins, so equal input gives equal devices.
Alternatives of a request (`firstAvailable`) are tried best first.  A device serves one request; with administrative
access a request uses devices that others hold and takes none.  Devices that wait for a driver (`bindingConditions`)
are never allocated, tainted ones only to requests that tolerate the taint, and partitions only while the counters they
share suffice.

The search is exhaustive but prunes: before each choice it counts what can still be chosen, and when a device leads
nowhere, devices like it (selected by the same requests, equal in all attributes that constraints name,
taking from the same counters) are not tried in its place.  Remaining searches end after `MAX_STEPS`
choices, and the refusal says so.

A selector that fails on a device ends the search only when the search reaches that device.
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
from pykai.core.cluster.claims.inventory import FAILED, MATCHED, REACHED_FROM_ALL, Inventory
from pykai.core.model.axes import BoolArray
from pykai.core.model.claimrequests import (
    MAX_RESULTS,
    Alternative,
    ClaimRefusal,
    ClaimRequest,
    DriverConfig,
    lists_request,
)

#: Choices of one search before it gives up.
MAX_STEPS: Final = 20_000


class RequestAllocation(NamedTuple):
    """What one request got."""

    #: which alternative
    alternative: int
    devices: tuple[int, ...]


class ClaimAllocation(NamedTuple):
    """What one claim got, by request; numbers are those of the inventory it was made from."""

    requests: tuple[RequestAllocation, ...]
    #: devices taken exclusively, in order; without those of administrative access
    exclusive_devices: tuple[int, ...]


def allocate(
    inventory: Inventory, row: int, claims: Sequence[ClaimRequest], taken: BoolArray, *, steps: int = MAX_STEPS
) -> tuple[ClaimAllocation, ...] | ClaimRefusal:
    """Devices for all claims on one node, or why not; `taken` is [device]."""
    search = _DeviceSearch(inventory, row, claims, taken, steps)
    try:
        is_satisfied = search.run()
    except _SearchAborted as abort:
        return ClaimRefusal(str(abort))
    if is_satisfied:
        return search.allocations()
    invalid = [pool for pool in inventory.broken_pools_at(row) if not pool.incomplete]
    return ClaimRefusal(str(invalid[0])) if invalid else ClaimRefusal()


def are_available(inventory: Inventory, devices: Sequence[int], taken: BoolArray) -> bool:
    """Whether these devices could be allocated again: none is taken, counters suffice."""
    if any(taken[device] for device in devices):
        return False
    uses = [inventory.counter_use.get(device, ()) for device in devices]
    left = inventory.counters_left({counter for shares in uses for counter, _ in shares}, taken)
    for shares in uses:
        for counter, amount in shares:
            left[counter] -= amount
    return all(amount >= 0 for amount in left.values())


class _SearchAborted(Exception):
    """The search cannot go on."""


class _NodeConstraint(NamedTuple):
    """A constraint of a claim, with the devices of this node."""

    #: numbers of its values; 0 = the device lacks the attribute
    codes: list[int]
    distinct: bool
    #: how often each value is chosen so far
    chosen_counts: dict[int, int]


class _NodeAlternative(NamedTuple):
    """An alternative on this node."""

    index_in_request: int
    device_count: int
    #: places (see `_DeviceSearch`) that may be chosen, in order
    candidates: list[int]
    #: places where its selectors failed
    failed_selectors: dict[int, str]
    constraints: list[_NodeConstraint]
    admin_access: bool
    #: why the search ends at this alternative, "" when it does not
    abort_reason: str = ""


class _NodeRequest(NamedTuple):
    """A request of a claim."""

    claim: int
    alternatives: list[_NodeAlternative]


class _DeviceSearch:
    """The devices of one node by `place` (0, 1, ... among those the node reaches) and what is chosen so far."""

    __slots__ = (
        "_choices",
        "_chosen",
        "_claims",
        "_constraints",
        "_counter_use",
        "_counters_left",
        "_device_numbers",
        "_equivalence_classes",
        "_inventory",
        "_node_requests",
        "_result_counts",
        "_row",
        "_steps",
        "_taken",
    )

    def __init__(
        self, inventory: Inventory, row: int, claims: Sequence[ClaimRequest], taken: BoolArray, steps: int
    ) -> None:
        self._inventory = inventory
        self._row = row
        self._claims = claims
        self._taken = taken
        self._steps = steps
        self._device_numbers = inventory.devices_at(row)
        self._chosen = [False] * len(self._device_numbers)
        self._result_counts = [0] * len(claims)
        self._constraints: list[_NodeConstraint] = []
        self._node_requests: list[_NodeRequest] = []
        #: alternative and places by turn
        self._choices: list[tuple[_NodeAlternative, list[int]]] = []
        self._equivalence_classes: dict[int, tuple[object, ...]] = {}
        self._counter_use = {
            place: counter_shares
            for place, number in enumerate(self._device_numbers.tolist() if inventory.counter_use else ())
            if (counter_shares := inventory.counter_use.get(number))
        }
        self._counters_left = inventory.counters_left(
            {counter for shares in self._counter_use.values() for counter, _ in shares}, taken
        )

    def run(self) -> bool:
        for number, claim in enumerate(self._claims):
            constraints = [
                _NodeConstraint(
                    self._inventory.attribute(item.attribute)[self._device_numbers].tolist(), item.distinct, {}
                )
                for item in claim.constraints
            ]
            self._constraints += constraints
            for request in claim.requests:
                alternatives = []
                for index, alternative in enumerate(request.alternatives):
                    applicable = [
                        rule
                        for rule, item in zip(constraints, claim.constraints, strict=True)
                        if item.covers(alternative.name)
                    ]
                    node_alternative = self._node_alternative(index, alternative, applicable)
                    if node_alternative is not None:
                        alternatives.append(node_alternative)
                if not alternatives:
                    return False
                self._node_requests.append(_NodeRequest(number, alternatives))
        return self._search_request(0)

    def _node_alternative(
        self, index: int, alternative: Alternative, constraints: list[_NodeConstraint]
    ) -> _NodeAlternative | None:
        """The alternative with the devices it may choose from; None when they cannot suffice."""
        inventory, numbers = self._inventory, self._device_numbers
        results, failures = inventory.selection(alternative.selectors)
        results = results[numbers]
        usable = inventory.usable_at_once[numbers]
        free = inventory.tolerable(alternative)[numbers]
        if not alternative.admin_access:
            free = free & ~self._taken[numbers]
        if alternative.device_count:
            candidates = np.flatnonzero((results != 0) & usable & free).tolist()
            failed_selectors = {
                place: failures[int(numbers[place])] for place in candidates if results[place] == FAILED
            }
            enough = len(candidates) >= alternative.device_count or failed_selectors
            return (
                _NodeAlternative(
                    index, alternative.device_count, candidates, failed_selectors, constraints, alternative.admin_access
                )
                if enough
                else None
            )
        selected = (results == MATCHED) & usable
        candidates = np.flatnonzero(selected).tolist()
        aborts = [
            f"request {alternative.name} is for all devices, but {pool}"
            for pool in inventory.broken_pools_at(self._row)
        ]
        aborts += [failures[number] for number in numbers[(results == FAILED) & usable].tolist()]
        if not aborts and not (candidates and free[selected].all()):
            return None
        return _NodeAlternative(
            index, len(candidates), candidates, {}, constraints, alternative.admin_access, aborts[0] if aborts else ""
        )

    def _search_request(self, depth: int) -> bool:
        if depth == len(self._node_requests):
            return True
        claim, alternatives = self._node_requests[depth]
        for alternative in alternatives:
            if alternative.abort_reason:
                raise _SearchAborted(alternative.abort_reason)
            if self._result_counts[claim] + alternative.device_count > MAX_RESULTS:
                continue
            self._result_counts[claim] += alternative.device_count
            self._choices.append((alternative, []))
            if self._search_device(depth, alternative.candidates):
                return True
            self._choices.pop()
            self._result_counts[claim] -= alternative.device_count
        return False

    def _search_device(self, depth: int, candidates: list[int]) -> bool:
        """Choose the next device of a request from these places."""
        alternative, picked = self._choices[depth]
        needed = alternative.device_count - len(picked)
        if not needed:
            return self._search_request(depth + 1)
        # A device that cannot be chosen now cannot be chosen deeper either.
        candidates = [place for place in candidates if self._may_choose(alternative, place)]
        hopeless: set[object] = set()
        for index, position in enumerate(candidates):
            if len(candidates) - index < needed and not alternative.failed_selectors:
                return False
            if position in alternative.failed_selectors:
                raise _SearchAborted(alternative.failed_selectors[position])
            if hopeless and self._equivalence_class(position) in hopeless:
                continue
            self._steps -= 1
            if self._steps < 0:
                raise _SearchAborted(
                    "the search for devices was stopped after too many steps; request fewer devices or constraints"
                )
            self._apply_choice(alternative, position, 1)
            picked.append(position)
            if self._search_device(depth, candidates[index + 1 :]):
                return True
            picked.pop()
            self._apply_choice(alternative, position, -1)
            hopeless.add(self._equivalence_class(position))
        return False

    def _may_choose(self, alternative: _NodeAlternative, position: int) -> bool:
        """Whether the choices so far allow this device."""
        if position in alternative.failed_selectors:
            return True
        for constraint in alternative.constraints:
            code = constraint.codes[position]
            if not code or (constraint.chosen_counts and (code in constraint.chosen_counts) == constraint.distinct):
                return False
        if alternative.admin_access:
            return True
        if self._chosen[position]:
            return False
        return all(amount <= self._counters_left[counter] for counter, amount in self._counter_use.get(position, ()))

    def _apply_choice(self, alternative: _NodeAlternative, position: int, sign: int) -> None:
        """Choose a device, or undo that."""
        for constraint in alternative.constraints:
            code = constraint.codes[position]
            count = constraint.chosen_counts.get(code, 0) + sign
            if count:
                constraint.chosen_counts[code] = count
            else:
                del constraint.chosen_counts[code]
        if not alternative.admin_access:
            self._chosen[position] = sign > 0
            for counter, amount in self._counter_use.get(position, ()):
                self._counters_left[counter] -= sign * amount

    def _equivalence_class(self, position: int) -> tuple[object, ...]:
        """Devices of one kind are interchangeable in every solution."""
        equivalence_class = self._equivalence_classes.get(position)
        if equivalence_class is None:
            chosen_by = tuple(
                (position in way.candidates, position in way.failed_selectors)
                for turn in self._node_requests
                for way in turn.alternatives
            )
            equivalence_class = (
                chosen_by,
                tuple(rule.codes[position] for rule in self._constraints),
                self._counter_use.get(position, ()),
            )
            self._equivalence_classes[position] = equivalence_class
        return equivalence_class

    def allocations(self) -> tuple[ClaimAllocation, ...]:
        """What was found, by claim."""
        request_allocations: list[list[RequestAllocation]] = [[] for _ in self._claims]
        exclusive_devices: list[list[int]] = [[] for _ in self._claims]
        for node_request, (alternative, positions) in zip(self._node_requests, self._choices, strict=True):
            numbers = tuple(int(self._device_numbers[place]) for place in positions)
            request_allocations[node_request.claim].append(RequestAllocation(alternative.index_in_request, numbers))
            if not alternative.admin_access:
                exclusive_devices[node_request.claim] += numbers
        return tuple(
            ClaimAllocation(tuple(parts), tuple(sorted(all_)))
            for parts, all_ in zip(request_allocations, exclusive_devices, strict=True)
        )


def allocation_result(
    inventory: Inventory, row: int, claim: ClaimRequest, allocation: ClaimAllocation
) -> AllocationResult:
    """The allocation as written to the claim's status and a BindRequest (gpu:D-22)."""
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
            admin_access=True if way.admin_access else None,
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


def _config(claim: ClaimRequest, alternatives: list[Alternative]) -> list[DeviceAllocationConfiguration]:
    """Parameters of the classes, each once with the requests that use it, then those of the claim that apply."""
    users: dict[str, list[str]] = {}
    for alternative in alternatives:
        users.setdefault(alternative.device_class, []).append(alternative.name)
    configs = {way.device_class: way.class_config for way in alternatives}
    allocated_configs = [
        _allocated("FromClass", config, requests) for name, requests in users.items() for config in configs[name]
    ]
    for config in claim.config:
        if any(lists_request(config.requests, way.name) for way in alternatives):
            allocated_configs.append(_allocated("FromClaim", config, list(config.requests)))
    return allocated_configs


def _allocated(source: str, config: DriverConfig, requests: list[str]) -> DeviceAllocationConfiguration:
    opaque = OpaqueConfiguration(driver=config.driver, parameters=msgspec.json.decode(config.parameters))
    return DeviceAllocationConfiguration(source=source, requests=requests, opaque=opaque)


def _node_selector(inventory: Inventory, row: int, numbers: list[int]) -> NodeSelector | None:
    """Nodes the devices can be used from: the one they are on, those that all their selectors match, or every node."""
    terms: list[NodeSelectorTerm] = []
    stays_on_node = False
    for number in numbers:
        device_row = int(inventory.node_row[number])
        if device_row >= 0:
            stays_on_node = True
        elif device_row != REACHED_FROM_ALL:
            selector_terms = inventory.node_sets[int(inventory.node_set_of[number])].selector.node_selector_terms
            # Alternatives cannot be merged with other selectors, so the claim stays on this node.
            stays_on_node |= len(selector_terms) != 1
            terms += selector_terms
    if stays_on_node:
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
    distinct: list[NodeSelectorRequirement] = []
    for requirement in requirements:
        if requirement not in distinct:
            distinct.append(requirement)
    return tuple(distinct)
